//! Sizes of a built tree: the symbols of its objects, each under the source that it is made of.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::symbols::SymbolKind;
use super::{Counted, SectionPlaces, StaticSizes, symbols};
use crate::names::debug::image::Image;
use crate::names::error::NamesError;

/// Folders whose objects run on the machine that builds.
const OF_THE_BUILD: [&str; 2] = ["scripts", "tools"];
/// Endings of sources that objects are made of.
const SOURCES: [&str; 3] = ["c", "S", "rs"];
/// Greatest part of a Makefile that is looked through.
const MAX_MAKEFILE_BYTES: u64 = 1 << 20;

/// Greatest object that is read.
const MAX_OBJECT_BYTES: u64 = 256 << 20;

/// Device and inode: a folder, whatever its path.
type Identity = (u64, u64);

/// Walk over the folders of a tree.
struct Walk<'t> {
    root: &'t Path,
    /// Sources of a build that has its own folder.
    sources: Option<PathBuf>,
    /// Folders that were entered.
    entered: HashSet<Identity>,
    /// Folders to enter, by their path below the root.
    to_enter: Vec<PathBuf>,
    /// Symbolic links to folders, which come after all folders of the tree's own.
    links: Vec<PathBuf>,
    sizes: StaticSizes,
    sections: SectionPlaces,
}

/// Sizes of a built tree.
pub(super) fn read(root: &Path) -> Result<StaticSizes, NamesError> {
    let mut walk = Walk {
        root,
        sources: sources_of(root),
        entered: HashSet::new(),
        to_enter: vec![PathBuf::new()],
        links: Vec::new(),
        sizes: StaticSizes::default(),
        sections: SectionPlaces::new(),
    };
    // An error of the root itself ends it; those of folders below are told.
    fs::read_dir(root).map_err(|error| NamesError::read(root, error))?;
    loop {
        match walk.to_enter.pop().or_else(|| walk.links.pop()) {
            Some(folder) => walk.enter(&folder),
            None => break,
        }
    }
    if walk.sizes.objects == 0 {
        let why = "no built tree: no object (.o) in it has its source beside it or in the tree's sources; build the kernel first, or name a vmlinux";
        return Err(NamesError::unusable(root, why));
    }
    Ok(walk.sizes)
}

/// Sources of a build in a folder of its own (`make O=`): the link `source`, else the folder that its Makefile includes.
fn sources_of(root: &Path) -> Option<PathBuf> {
    let link = root.join("source");
    if link.join("Makefile").is_file() {
        return Some(link);
    }
    let makefile = root.join("Makefile");
    let data = fs::metadata(&makefile).ok()?;
    if !data.is_file() || data.len() > MAX_MAKEFILE_BYTES {
        return None;
    }
    let text = fs::read(&makefile).ok()?;
    let named = |line: &[u8]| -> Option<PathBuf> {
        let included = line.strip_prefix(b"include ").and_then(|path| path.strip_suffix(b"/Makefile"));
        let path = included.or_else(|| line.strip_prefix(b"MAKEARGS := -C "))?;
        let path = root.join(OsStr::from_bytes(path.trim_ascii()));
        (path != root && path.join("Makefile").is_file()).then_some(path)
    };
    text.split(|&byte| byte == b'\n').find_map(named)
}

impl Walk<'_> {
    /// Reads the objects of a folder, and notes the folders in it.
    fn enter(&mut self, folder: &Path) {
        let path = self.root.join(folder);
        let is_new = fs::metadata(&path).map(|data| self.entered.insert((data.dev(), data.ino())));
        let entries = match is_new {
            Ok(true) => fs::read_dir(&path),
            Ok(false) => {
                self.sizes.leave_out(&path, "a link to a folder that is counted already");
                return;
            }
            Err(error) => Err(error),
        };
        let entries = match entries {
            Ok(entries) => entries,
            Err(error) => return self.sizes.leave_out(&path, error.to_string()),
        };
        let mut entries: Vec<_> = entries
            .filter_map(|entry| match entry {
                Ok(entry) => Some(entry),
                Err(error) => {
                    self.sizes.leave_out(&path, error.to_string());
                    None
                }
            })
            .collect();
        // The same tree gives the same document, whatever its file system.
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let (name, below) = (entry.file_name(), folder.join(entry.file_name()));
            match entry.file_type() {
                Err(error) => self.sizes.leave_out(&entry.path(), error.to_string()),
                Ok(_) if OF_THE_BUILD.iter().any(|other| name == *other) => {}
                Ok(kind) if kind.is_dir() => self.to_enter.push(below),
                Ok(kind) if kind.is_symlink() => self.follow(below),
                Ok(kind) if kind.is_file() => self.object(&below),
                Ok(_) => {}
            }
        }
    }

    /// Notes a symbolic link to a folder; one to a file is its object.
    fn follow(&mut self, link: PathBuf) {
        if link.as_os_str() == "source" {
            return;
        }
        match fs::metadata(self.root.join(&link)) {
            Ok(data) if data.is_dir() => self.links.push(link),
            Ok(data) if data.is_file() => self.object(&link),
            // Links to nothing are common in trees, and hide no object unless they are named as one.
            Err(error) if error.kind() != io::ErrorKind::NotFound || link.extension().is_some_and(|end| end == "o") => {
                self.sizes.leave_out(&self.root.join(link), error.to_string());
            }
            _ => {}
        }
    }

    /// Adds the symbols of a file, if it is an object that has a source.
    fn object(&mut self, file: &Path) {
        let name = file.file_name().unwrap_or_default().as_bytes();
        let is_object = file.extension().is_some_and(|end| end == "o");
        // Steps of the linker, which have everything once more.
        if !is_object || name.starts_with(b".tmp_") {
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
        self.sizes.objects += 1;
        self.sizes.add_sections(&mut self.sections, symbols::sections(&image));
        let mut counted = Counted::default();
        let parts = symbols::parts(&image);
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
