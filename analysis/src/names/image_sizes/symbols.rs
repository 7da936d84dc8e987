//! Symbols that have a size or name a file, and sections of an ELF file.

use object::elf;

use super::parts::SectionPart;
use crate::names::debug::image::{Image, ImageError, Section};
use crate::names::debug::symbols::Symbols;

/// Limit of the bytes of a table of symbols, and of their names: the largest kernels need a tenth of it.
const MAX_TABLE_BYTES: u64 = 256 << 20;

/// Kind of a symbol that has a size or names a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SymbolKind {
    /// Source file of the local symbols after it; its name has no folder.
    File,
    /// Function.
    Function,
    /// Object.
    Object,
}

/// Symbol of an ELF file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SizedSymbol<'s> {
    /// Kind of the symbol.
    pub(crate) kind: SymbolKind,
    /// Name, any bytes.
    pub(crate) name: &'s [u8],
    /// Address; in an object file the distance from the begin of its section.
    pub(crate) address: u64,
    /// Bytes.
    pub(crate) bytes: u64,
    /// Section; `None` for an object that the linker places.
    pub(crate) section: Option<u32>,
    /// Part of memory of that section.
    pub(crate) place: SectionPart,
    /// Number of the file symbol before it, from 0; `None` for a symbol that other files see.
    pub(crate) file_run: Option<u32>,
}

/// Section and its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SectionBytes {
    /// Name, any bytes.
    pub(crate) name: Box<[u8]>,
    /// Bytes in memory, or in the file for a section that is not loaded.
    pub(crate) bytes: u64,
}

/// Tables of the symbols of an ELF file.
pub(crate) fn table(image: &Image) -> Result<Symbols, ImageError> {
    let is_table = |section: &&Section| [elf::SHT_SYMTAB.0, elf::SHT_STRTAB.0].contains(&section.kind);
    if image.sections.iter().filter(is_table).any(|section| section.size > MAX_TABLE_BYTES) {
        return Err(image.error(format!("its symbols have more than {} MiB", MAX_TABLE_BYTES >> 20)));
    }
    Symbols::read(image)
}

/// Part of memory of each section, by its number.
pub(crate) fn parts(image: &Image) -> Vec<SectionPart> {
    let part = |section: &Section| SectionPart::of(&section.name, section.kind, section.flags);
    image.sections.iter().map(part).collect()
}

/// Hands the file symbols, functions and objects of a table to `take`, in its order.
pub(crate) fn each<'s>(parts: &[SectionPart], table: &'s Symbols, take: &mut dyn FnMut(&SizedSymbol<'s>)) {
    let mut files = 0u32;
    for symbol in table.iter() {
        let kind = match symbol.kind {
            elf::STT_FILE => {
                files = files.saturating_add(1);
                SymbolKind::File
            }
            elf::STT_FUNC => SymbolKind::Function,
            elf::STT_OBJECT => SymbolKind::Object,
            _ => continue,
        };
        // Index 0 is that of symbols of other files.
        let Some(place) = symbol.section.map_or(Some(SectionPart::COMMON), |at| parts.get(at).copied()) else {
            continue;
        };
        take(&SizedSymbol {
            kind,
            name: symbol.name,
            address: symbol.value,
            bytes: symbol.size,
            section: symbol.section.and_then(|at| u32::try_from(at).ok()),
            place,
            file_run: files.checked_sub(1).filter(|_| symbol.bind == elf::STB_LOCAL),
        });
    }
}

/// Sections that `size -A` lists: all but tables of symbols, names and relocations.
pub(crate) fn sections(image: &Image) -> impl Iterator<Item = SectionBytes> + '_ {
    let hidden = [elf::SHT_NULL, elf::SHT_SYMTAB, elf::SHT_STRTAB, elf::SHT_REL, elf::SHT_RELA, elf::SHT_GROUP];
    let is_listed =
        move |section: &&Section| section.is_allocated() || !hidden.iter().any(|kind| kind.0 == section.kind);
    let listed = |section: &Section| SectionBytes { name: section.name.clone(), bytes: section.size };
    image.sections.iter().filter(is_listed).map(listed)
}
