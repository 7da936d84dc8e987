//! Sizes of a built tree: the symbols of its objects, each under the source that it is made of.

use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use kmemtrace_abi::open::regular;

use super::folders::{self, WalkItem};
use super::sizes::{Counted, SectionPlaces, StaticSizes};
use super::symbols;
use super::symbols::SymbolKind;
use crate::names::debug::image::Image;
use crate::names::error::NamesError;

/// Folders whose objects run on the machine that builds.
const OF_THE_BUILD: [&str; 2] = ["scripts", "tools"];
/// Link from a build's own folder to its sources.
const SOURCE_LINK: &str = "source";
/// Endings of sources that objects are made of.
const SOURCES: [&str; 3] = ["c", "S", "rs"];
/// Largest Makefile that is looked through.
const MAX_MAKEFILE_BYTES: u64 = 1 << 20;
/// Largest object that is read.
const MAX_OBJECT_BYTES: u64 = 256 << 20;

/// Tree that is being read.
struct Tree<'t> {
    root: &'t Path,
    /// Sources of a build that has its own folder.
    sources: Option<PathBuf>,
    sizes: StaticSizes,
    sections: SectionPlaces,
}

/// Sizes of a built tree.
pub(super) fn read(root: &Path) -> Result<StaticSizes, NamesError> {
    let sizes = StaticSizes::default();
    let mut tree = Tree { root, sources: sources_of(root), sizes, sections: SectionPlaces::new() };
    let is_left_out = |path: &Path| {
        let name = path.file_name().unwrap_or_default();
        path.as_os_str() == SOURCE_LINK || OF_THE_BUILD.iter().any(|other| name == *other)
    };
    let walked = folders::each_file(root, &is_left_out, &mut |found| match found {
        WalkItem::File(file) => tree.add(file),
        WalkItem::LeftOut(path, why) => tree.sizes.leave_out(path, why),
    });
    walked.map_err(|error| NamesError::read(root, error))?;
    if tree.sizes.objects == 0 {
        let why = "no built tree: no object (.o) in it has its source beside it or in the tree's sources; build the kernel first, \
                   or name a vmlinux";
        return Err(NamesError::unusable(root, why));
    }
    Ok(tree.sizes)
}

/// Sources of a build in a folder of its own (`make O=`): the link `source`, else the folder that its Makefile includes.
fn sources_of(root: &Path) -> Option<PathBuf> {
    let link = root.join(SOURCE_LINK);
    if link.join("Makefile").is_file() {
        return Some(link);
    }
    let makefile = root.join("Makefile");
    let mut text = Vec::new();
    regular::open(&makefile).ok()?.take(MAX_MAKEFILE_BYTES + 1).read_to_end(&mut text).ok()?;
    if text.len() as u64 > MAX_MAKEFILE_BYTES {
        return None;
    }
    let named = |line: &[u8]| -> Option<PathBuf> {
        let included = line.strip_prefix(b"include ").and_then(|path| path.strip_suffix(b"/Makefile"));
        let path = included.or_else(|| line.strip_prefix(b"MAKEARGS := -C "))?;
        let path = root.join(OsStr::from_bytes(path.trim_ascii()));
        (path != root && path.join("Makefile").is_file()).then_some(path)
    };
    text.split(|&byte| byte == b'\n').find_map(named)
}

impl Tree<'_> {
    /// Adds the symbols of a file, if it is an object that has a source.
    fn add(&mut self, file: &Path) {
        let name = file.file_name().unwrap_or_default().as_bytes();
        // Steps of the linker have everything once more.
        if file.extension() != Some(OsStr::new("o")) || name.starts_with(b".tmp_") {
            return;
        }
        let Some(source) = self.source_of(file) else { return };
        let path = self.root.join(file);
        let read = match fs::metadata(&path) {
            Ok(data) if data.len() > MAX_OBJECT_BYTES => {
                Err(format!("it has more than {} MiB", MAX_OBJECT_BYTES >> 20))
            }
            _ => Image::open(&path)
                .and_then(|image| symbols::table(&image).map(|table| (image, table)))
                .map_err(|error| error.why),
        };
        let (image, table) = match read {
            Ok(read) => read,
            Err(why) => return self.sizes.leave_out(&path, why),
        };
        self.sizes.objects = self.sizes.objects.saturating_add(1);
        self.sizes.add_sections(&mut self.sections, symbols::sections(&image));
        let parts = symbols::parts(&image);
        let mut counted = Counted::default();
        symbols::each(&parts, &table, &mut |symbol| counted.add(symbol));
        let known = self.sizes.files.entry(source.as_os_str().as_bytes().into()).or_default();
        counted.symbols().for_each(|symbol| known.add(symbol));
        symbols::each(&parts, &table, &mut |symbol| {
            if symbol.kind == SymbolKind::Function {
                known.add_alias(symbol.name);
            }
        });
    }

    /// Path of the source of an object, below the root.
    fn source_of(&self, file: &Path) -> Option<PathBuf> {
        let roots = [Some(self.root), self.sources.as_deref()];
        let is_there = |source: &PathBuf| roots.into_iter().flatten().any(|root| root.join(source).is_file());
        SOURCES.into_iter().map(|end| file.with_extension(end)).find(is_there)
    }
}
