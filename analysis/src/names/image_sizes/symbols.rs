//! Symbols and sections of an ELF file of any byte order and word size.

use object::elf::{FileHeader32, FileHeader64, SHN_ABS, SHN_COMMON, SHT_NULL, SHT_REL, SHT_RELA, SHT_STRTAB, SHT_SYMTAB};
use object::elf::{STB_LOCAL, STT_FILE, STT_FUNC, STT_OBJECT};
use object::read::elf::{FileHeader, SectionHeader, SectionTable, Sym, SymbolTable};
use object::read::{FileKind, ReadRef, SymbolIndex};
use object::{Endianness, SectionIndex};

use super::parts::{Part, SectionPart};

/// Limit of the bytes of a symbol table, and of the names of its symbols: the greatest kernels need a tenth of it.
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
    /// Section; `None` for one that the linker places.
    pub(crate) section: Option<u32>,
    /// Part of memory of that section.
    pub(crate) place: SectionPart,
    /// No other file sees it.
    pub(crate) is_local: bool,
}

/// Section and its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SectionBytes {
    /// Name, any bytes.
    pub(crate) name: Box<[u8]>,
    /// Bytes in the file, or in memory for a section of zeros.
    pub(crate) bytes: u64,
}

/// Hands the file symbols, functions and objects of an ELF file to `take`, in the order of its table, and returns its sections: those
/// that `size -A` lists.
///
/// # Errors
/// The reason for which the file has no symbols.
pub(crate) fn each_symbol<'d, R: ReadRef<'d>>(
    data: R,
    take: &mut dyn FnMut(&SizedSymbol<'_>),
) -> Result<Vec<SectionBytes>, String> {
    match FileKind::parse(data) {
        Ok(FileKind::Elf32) => symbols_of::<FileHeader32<Endianness>, R>(data, take),
        Ok(FileKind::Elf64) => symbols_of::<FileHeader64<Endianness>, R>(data, take),
        _ => Err("no ELF file".to_owned()),
    }
}

fn symbols_of<'d, H: FileHeader<Endian = Endianness>, R: ReadRef<'d>>(
    data: R,
    take: &mut dyn FnMut(&SizedSymbol<'_>),
) -> Result<Vec<SectionBytes>, String> {
    let told = |error: object::read::Error| error.to_string();
    let header = H::parse(data).map_err(told)?;
    let endian = header.endian().map_err(told)?;
    let sections = header.sections(endian, data).map_err(told)?;
    let named = |section: &H::SectionHeader| sections.section_name(endian, section).unwrap_or_default();
    let parts: Vec<SectionPart> = sections
        .iter()
        .map(|section| SectionPart::of(named(section), section.sh_type(endian), section.sh_flags(endian)))
        .collect();
    let mut strings: &[u8] = &[];
    if let Some(table) = sections.iter().find(|section| section.sh_type(endian) == SHT_SYMTAB) {
        let text = sections.section(SectionIndex(table.sh_link(endian) as usize)).map_err(told)?;
        let lengths = [table, text].map(|section| section.sh_size(endian).into());
        if lengths.iter().any(|&bytes: &u64| bytes > MAX_TABLE_BYTES) {
            return Err(format!("its symbols have more than {} MiB", MAX_TABLE_BYTES >> 20));
        }
        // Read at once: names that are read one by one cost a call of the system each.
        strings = data
            .read_bytes_at(text.sh_offset(endian).into(), text.sh_size(endian).into())
            .map_err(|()| "the names of its symbols cannot be read".to_owned())?;
    }
    let symbols = sections.symbols(endian, data, SHT_SYMTAB).map_err(told)?;
    for (index, symbol) in symbols.enumerate() {
        if let Some(symbol) = sized::<H, R>((endian, &symbols), (index, symbol), &parts, strings) {
            take(&symbol);
        }
    }
    Ok(listed::<H, R>(endian, &sections))
}

/// Symbol of the table that has a size, or names a file.
fn sized<'s, 'd, H: FileHeader<Endian = Endianness>, R: ReadRef<'d>>(
    (endian, symbols): (Endianness, &SymbolTable<'d, H, R>),
    (index, symbol): (SymbolIndex, &H::Sym),
    parts: &[SectionPart],
    strings: &'s [u8],
) -> Option<SizedSymbol<'s>> {
    let kind = match symbol.st_type() {
        STT_FILE => SymbolKind::File,
        STT_FUNC => SymbolKind::Function,
        STT_OBJECT => SymbolKind::Object,
        _ => return None,
    };
    let (section, place) = match symbol.st_shndx(endian) {
        _ if kind == SymbolKind::File => (None, SectionPart::COMMON),
        SHN_COMMON => (None, SectionPart::COMMON),
        SHN_ABS => (Some(u32::MAX), SectionPart { part: Part::Data, is_init: false }),
        _ => {
            let section = symbols.symbol_section(endian, symbol, index).ok()??.0;
            (Some(u32::try_from(section).ok()?), *parts.get(section)?)
        }
    };
    let name = strings.get(symbol.st_name(endian) as usize..).unwrap_or_default();
    let name = memchr::memchr(0, name).map_or(name, |end| &name[..end]);
    Some(SizedSymbol {
        kind,
        name,
        address: symbol.st_value(endian).into(),
        bytes: symbol.st_size(endian).into(),
        section,
        place,
        is_local: symbol.st_bind() == STB_LOCAL,
    })
}

/// Sections that `size -A` lists: all but tables of symbols, names and relocations.
fn listed<'d, H: FileHeader<Endian = Endianness>, R: ReadRef<'d>>(
    endian: Endianness,
    sections: &SectionTable<'d, H, R>,
) -> Vec<SectionBytes> {
    let is_listed = |section: &&H::SectionHeader| {
        ![SHT_NULL, SHT_SYMTAB, SHT_STRTAB, SHT_REL, SHT_RELA].contains(&section.sh_type(endian))
    };
    let listed = |section: &H::SectionHeader| SectionBytes {
        name: sections.section_name(endian, section).unwrap_or_default().into(),
        bytes: section.sh_size(endian).into(),
    };
    sections.iter().filter(is_listed).map(listed).collect()
}
