//! Modules below a folder, with debug information: their functions by source file.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::folders::{self, WalkItem};
use super::linked::{self, Linked};
use super::sizes::{LeftOut, StaticSizes};
use crate::names::error::NamesError;

/// Endings of a module's file after its name, packed or not.
const ENDINGS: [&[u8]; 8] =
    [b".ko", b".ko.debug", b".ko.gz", b".ko.xz", b".ko.zst", b".ko.debug.gz", b".ko.debug.xz", b".ko.debug.zst"];

/// Modules of a folder.
#[derive(Debug, Default)]
pub struct ModuleSizes {
    /// Name and sizes of each module.
    pub modules: Vec<(Box<[u8]>, StaticSizes)>,
    /// Files and folders that cannot be read, and modules without debug information.
    pub left_out: Vec<LeftOut>,
}

impl ModuleSizes {
    /// Reads the modules below a folder.
    ///
    /// # Errors
    /// [`NamesError`] if the folder cannot be read.
    pub fn read(folder: &Path) -> Result<ModuleSizes, NamesError> {
        let mut found = ModuleSizes::default();
        let mut leave_out = Vec::new();
        let walked = folders::each_file(folder, &|_| false, &mut |file| match file {
            WalkItem::LeftOut(path, why) => leave_out.push(LeftOut { path: path.to_owned(), why }),
            WalkItem::File(file) => {
                let Some(name) = module_name(file) else { return };
                let path = folder.join(file);
                match linked::read(&path, Linked::Module) {
                    Ok(sizes) if sizes.files().next().is_some() => found.modules.push((name, sizes)),
                    Ok(_) => leave_out.push(LeftOut { path, why: "it has no debug information".to_owned() }),
                    Err(NamesError::Unusable { why, .. }) => leave_out.push(LeftOut { path, why }),
                    Err(NamesError::Read { error, .. }) => {
                        leave_out.push(LeftOut { path, why: error.to_string() });
                    }
                }
            }
        });
        walked.map_err(|error| NamesError::read(folder, error))?;
        found.left_out = leave_out;
        Ok(found)
    }
}

/// Name of the module of a file; `None` for any other file.
fn module_name(file: &Path) -> Option<Box<[u8]>> {
    let name = file.file_name()?.as_bytes();
    ENDINGS.iter().find_map(|end| name.strip_suffix(*end)).map(Into::into)
}
