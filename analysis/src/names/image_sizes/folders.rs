//! Files below a folder, through symbolic links, each folder once: a link that leads back to a folder ends nothing.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use kmemtrace_abi::open::regular;

/// Find of a walk.
pub(super) enum WalkItem<'f> {
    /// Regular file, by its path below the root.
    File(&'f Path),
    /// File or folder that cannot be read, and the reason.
    LeftOut(&'f Path, String),
}

/// Walk over the folders below a root.
struct Walk<'w> {
    root: &'w Path,
    is_left_out: &'w dyn Fn(&Path) -> bool,
    take: &'w mut dyn FnMut(WalkItem<'_>),
    /// Device and inode of the folders that were entered.
    entered: HashSet<(u64, u64)>,
    /// Folders to enter, by their path below the root.
    to_enter: Vec<PathBuf>,
    /// Symbolic links to folders, which come after all folders of the root's own.
    links: Vec<PathBuf>,
}

/// Hands all files below a folder to `take`, in the order of their names, but those whose path, or that of a folder that they are in,
/// `is_left_out` takes.
///
/// # Errors
/// Error of the root; errors of folders below it are handed over.
pub(super) fn each_file(
    root: &Path,
    is_left_out: &dyn Fn(&Path) -> bool,
    take: &mut dyn FnMut(WalkItem<'_>),
) -> io::Result<()> {
    regular::refuse_strangers_links(root)?;
    fs::read_dir(root)?;
    let mut walk =
        Walk { root, is_left_out, take, entered: HashSet::new(), to_enter: vec![PathBuf::new()], links: Vec::new() };
    while let Some(folder) = walk.to_enter.pop().or_else(|| walk.links.pop()) {
        if let Err(why) = walk.enter(&folder) {
            (walk.take)(WalkItem::LeftOut(&root.join(folder), why));
        }
    }
    Ok(())
}

impl Walk<'_> {
    /// Hands over the files of a folder, and notes the folders in it.
    fn enter(&mut self, folder: &Path) -> Result<(), String> {
        let path = self.root.join(folder);
        let told = |error: io::Error| error.to_string();
        let data = fs::metadata(&path).map_err(told)?;
        if !self.entered.insert((data.dev(), data.ino())) {
            return Err("a link to a folder that is counted already".to_owned());
        }
        let mut entries = Vec::new();
        for entry in fs::read_dir(&path).map_err(told)? {
            match entry {
                Ok(entry) => entries.push(entry),
                Err(error) => (self.take)(WalkItem::LeftOut(&path, told(error))),
            }
        }
        // The same tree gives the same document, whatever its file system.
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let below = folder.join(entry.file_name());
            match entry.file_type() {
                _ if (self.is_left_out)(&below) => {}
                Err(error) => (self.take)(WalkItem::LeftOut(&entry.path(), told(error))),
                Ok(kind) if kind.is_dir() => self.to_enter.push(below),
                Ok(kind) if kind.is_symlink() => self.follow(below),
                Ok(kind) if kind.is_file() => (self.take)(WalkItem::File(&below)),
                Ok(_) => {}
            }
        }
        Ok(())
    }

    /// Notes a symbolic link to a folder; one to a file is that file.
    fn follow(&mut self, link: PathBuf) {
        let path = self.root.join(&link);
        match regular::refuse_strangers_links(&path).and_then(|()| fs::metadata(&path)) {
            Ok(data) if data.is_dir() => self.links.push(link),
            Ok(data) if data.is_file() => (self.take)(WalkItem::File(&link)),
            Ok(_) => {}
            // Links to nothing are common in trees, and hide no file that is looked for unless they are named as one.
            Err(error) if error.kind() == io::ErrorKind::NotFound && !is_elf(&link) => {}
            Err(error) => (self.take)(WalkItem::LeftOut(&path, error.to_string())),
        }
    }
}

/// True for a name of an object or a module.
fn is_elf(path: &Path) -> bool {
    path.extension().is_some_and(|end| end == OsStr::new("o") || end == OsStr::new("ko"))
}
