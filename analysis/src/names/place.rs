//! Places in the kernel's sources: the frames of a call-site, the line that asked for the memory, its folder.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Static bytes by source file; `None` for those whose file is not known.
pub(crate) type StaticByFile = BTreeMap<Option<Box<[u8]>>, u64>;

/// Function on the way to a call-site, as debug information gives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Name of the function, any bytes.
    pub function: Box<[u8]>,
    /// Source file, relative to the root of the kernel's sources, as `fs/inode.c`; any bytes.
    pub file: Option<Box<[u8]>>,
    /// Line of the call, from 1.
    pub line: Option<u32>,
    /// True if the compiler put the function into the next frame's.
    pub inlined: bool,
}

/// Source of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum NameSource {
    /// Debug information of this very build.
    Dwarf,
    /// Objects of a built tree.
    Objects,
    /// Map of functions to files, made from another build.
    Map,
    /// Path of the module.
    Module,
    /// Symbols that the trace keeps.
    Symbols,
}

impl NameSource {
    /// Word of documents.
    pub fn name(self) -> &'static str {
        match self {
            NameSource::Dwarf => "dwarf",
            NameSource::Objects => "objects",
            NameSource::Map => "map",
            NameSource::Module => "module",
            NameSource::Symbols => "symbols",
        }
    }
}

/// Line of source that asked for the memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceLine {
    /// Name of the function, any bytes.
    pub function: Box<[u8]>,
    /// Source file, relative to the root of the kernel's sources.
    pub file: Option<Box<[u8]>>,
    /// Line of the call, from 1.
    pub line: Option<u32>,
}

/// All that is known of a call-site's place in the sources.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Frames, innermost first, at the call-site less one; empty if nothing is known.
    pub frames: Vec<Frame>,
    /// First frame, from inside, that is neither a wrapper nor inlined from a header.
    pub source: Option<SourceLine>,
    /// Folder of the source, as `fs/ext4`; empty for the root.
    pub folder: Option<Box<[u8]>>,
    /// Source of the folder.
    pub folder_from: Option<NameSource>,
    /// Name of the outermost frame, where every frame is a wrapper: the caller is not known.
    pub wrapper: Option<Box<[u8]>>,
    /// Area of the source file, where areas were given.
    pub area: Option<Box<[u8]>>,
    /// True for a call-site of a module that was gone at the end of the recording.
    pub is_gone: bool,
}

impl Place {
    /// Memory that it takes, in bytes, about.
    pub(crate) fn bytes(&self) -> usize {
        let len = |text: &Option<Box<[u8]>>| text.as_ref().map_or(0, |text| text.len());
        let of_frame = |frame: &Frame| {
            let texts = frame.function.len().saturating_add(len(&frame.file));
            size_of::<Frame>().saturating_add(texts)
        };
        let of_source = |source: &SourceLine| source.function.len().saturating_add(len(&source.file));
        let others = [&self.folder, &self.wrapper, &self.area].into_iter().map(len);
        let parts = self.frames.iter().map(of_frame).chain(self.source.as_ref().map(of_source)).chain(others);
        parts.fold(size_of::<[Place; 2]>(), usize::saturating_add)
    }

    /// Source file, else the folder; `None` where neither is known.
    pub(crate) fn path(&self) -> Option<&[u8]> {
        let folder = self.folder.as_deref()?;
        let file = self.source.as_ref().and_then(|source| source.file.as_deref());
        file.or(Some(folder))
    }
}

/// Origin of the names of an analysis, for the head of its documents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamesReport {
    /// Best source of the kernel's names; `None` without any.
    pub kernel: Option<NameSource>,
    /// File of the kernel's names, where it is not the trace.
    pub file: Option<PathBuf>,
    /// Check that the file passed: `build-id` or `symbols`; `None` for a file that was not checked.
    pub checked: Option<&'static str>,
    /// Modules with debug information.
    pub modules_dwarf: usize,
    /// Modules whose path is known, and no more.
    pub modules_path: usize,
    /// Modules of which nothing is known but the name.
    pub modules_none: usize,
    /// Compile units of debug information that cannot be read: their functions have no frames.
    pub broken_units: u64,
    /// Names of symbols that are cut, as they are too long.
    pub cut_names: u64,
    /// Files that failed a check or take too much, with the reason.
    pub rejected: Vec<(PathBuf, String)>,
}

impl NamesReport {
    /// Notes that symbols are left out: those of the file that was `named`, else those of the trace. The same reason is noted once.
    pub fn leave_out_symbols(&mut self, named: Option<&Path>, why: &str) {
        let path = named.unwrap_or(Path::new("symbols of the trace")).to_owned();
        if !self.rejected.iter().any(|(of, known)| *of == path && known == why) {
            self.rejected.push((path, why.to_owned()));
        }
    }
}
