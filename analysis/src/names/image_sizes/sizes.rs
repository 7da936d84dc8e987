//! Bytes of the kernel's functions and objects by source file.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use super::parts::PartSizes;
use super::symbols::{SectionBytes, SizedSymbol, SymbolKind};

/// Places of sections in their list, by name.
pub(super) type SectionPlaces = BTreeMap<Box<[u8]>, usize>;

/// Files and folders left out that are told by name; further ones are counted.
const MAX_LEFT_OUT: usize = 1000;

/// Bytes of one source file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileSizes {
    /// Bytes of functions and objects.
    pub parts: PartSizes,
    /// Bytes of each function, by name; those of an address with several names count under one of them, and the others have 0.
    pub functions: BTreeMap<Box<[u8]>, u64>,
}

/// File or folder that was left out, with the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// File or folder.
    pub path: PathBuf,
    /// Reason in words.
    pub why: String,
}

/// Bytes of the kernel's functions and objects by source file.
#[derive(Clone, Debug, Default)]
pub struct StaticSizes {
    /// By path below the root of the sources, as `fs/inode.c`.
    pub(super) files: BTreeMap<Box<[u8]>, FileSizes>,
    /// Bytes without a folder, by the base name of their file; an empty name where not even that is known.
    pub(super) placeless: BTreeMap<Box<[u8]>, FileSizes>,
    /// Bytes of each section over all files read, in the order of the files.
    sections: Vec<SectionBytes>,
    /// Number of ELF files read.
    pub(super) objects: usize,
    /// Files and folders left out.
    left_out: Vec<LeftOut>,
    /// Number of them.
    left_out_count: usize,
}

impl StaticSizes {
    /// Bytes of a source file, by its path below the root of the sources; `None` for a file that is not known.
    pub fn bytes_of_file(&self, file: &[u8]) -> Option<u64> {
        self.files.get(file).map(|sizes| sizes.parts.total())
    }

    /// Bytes of a function of a source file; `None` for one that is not known.
    pub fn bytes_of_function(&self, file: &[u8], function: &[u8]) -> Option<u64> {
        self.files.get(file)?.functions.get(function).copied()
    }

    /// Source files and their sizes, by path.
    pub fn files(&self) -> impl Iterator<Item = (&[u8], &FileSizes)> {
        self.files.iter().map(|(path, sizes)| (&**path, sizes))
    }

    /// Sizes without a folder, by the base name of the file: empty where not even that is known.
    pub fn placeless(&self) -> impl Iterator<Item = (&[u8], &FileSizes)> {
        self.placeless.iter().map(|(name, sizes)| (&**name, sizes))
    }

    /// Bytes without a folder.
    pub fn unknown_bytes(&self) -> u64 {
        self.placeless.values().fold(0, |sum, sizes| sum.saturating_add(sizes.parts.total()))
    }

    /// Sum of all bytes, with those without a folder.
    pub fn total(&self) -> PartSizes {
        let mut sum = PartSizes::default();
        self.files.values().chain(self.placeless.values()).for_each(|sizes| sum.add(&sizes.parts));
        sum
    }

    /// Names and bytes of the sections, of all files read together.
    pub fn sections(&self) -> impl Iterator<Item = (&[u8], u64)> {
        self.sections.iter().map(|section| (&*section.name, section.bytes))
    }

    /// Number of ELF files read.
    pub fn objects(&self) -> usize {
        self.objects
    }

    /// Files and folders left out, with the reasons: the first thousand, and the number of all.
    pub fn left_out(&self) -> (&[LeftOut], usize) {
        (&self.left_out, self.left_out_count)
    }

    /// Sizes of nothing but the functions of some files.
    #[cfg(test)]
    pub(crate) fn of_functions(files: &[(&str, &[&str])]) -> StaticSizes {
        let mut sizes = StaticSizes::default();
        for (file, functions) in files {
            let known = sizes.files.entry(file.as_bytes().into()).or_default();
            functions.iter().for_each(|name| known.add_alias(name.as_bytes()));
        }
        sizes
    }

    /// Notes a file or folder that is left out.
    pub(super) fn leave_out(&mut self, path: &Path, why: impl Into<String>) {
        self.left_out_count = self.left_out_count.saturating_add(1);
        if self.left_out.len() < MAX_LEFT_OUT {
            self.left_out.push(LeftOut { path: path.to_owned(), why: why.into() });
        }
    }

    /// Adds the sections of a file.
    pub(super) fn add_sections(&mut self, places: &mut SectionPlaces, sections: impl Iterator<Item = SectionBytes>) {
        for section in sections {
            let place = *places.entry(section.name.clone()).or_insert(self.sections.len());
            match self.sections.get_mut(place) {
                Some(known) => known.bytes = known.bytes.saturating_add(section.bytes),
                None => self.sections.push(section),
            }
        }
    }
}

/// Symbols that count: of those at one address the one with the largest size.
#[derive(Default)]
pub(super) struct Counted<'s> {
    /// By section and address.
    placed: HashMap<(u32, u64), SizedSymbol<'s>, foldhash::fast::RandomState>,
    /// Objects that the linker places.
    common: Vec<SizedSymbol<'s>>,
}

impl<'s> Counted<'s> {
    pub(super) fn add(&mut self, symbol: &SizedSymbol<'s>) {
        match symbol.section {
            _ if symbol.kind == SymbolKind::File => {}
            None => self.common.push(*symbol),
            Some(section) => {
                let known = self.placed.entry((section, symbol.address)).or_insert(*symbol);
                if symbol.bytes > known.bytes {
                    *known = *symbol;
                }
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.placed.is_empty() && self.common.is_empty()
    }

    pub(super) fn symbols(&self) -> impl Iterator<Item = &SizedSymbol<'s>> {
        self.placed.values().chain(&self.common)
    }
}

impl FileSizes {
    /// Adds a function or an object.
    pub(super) fn add(&mut self, symbol: &SizedSymbol<'_>) {
        self.parts.add_symbol(symbol.place, symbol.bytes);
        if symbol.kind == SymbolKind::Function {
            let bytes = self.functions.entry(symbol.name.into()).or_default();
            *bytes = bytes.saturating_add(symbol.bytes);
        }
    }

    /// Adds a further name of a function, whose bytes count under another one.
    pub(super) fn add_alias(&mut self, function: &[u8]) {
        if !self.functions.contains_key(function) {
            self.functions.insert(function.into(), 0);
        }
    }
}
