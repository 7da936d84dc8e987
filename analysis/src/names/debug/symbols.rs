//! Symbols of an ELF file.

use object::Endianness;
use object::elf::{self, Sym32, Sym64};
use object::pod::slice_from_bytes;
use object::read::elf::Sym;

use super::image::{Image, ImageError, Section, name_in};

/// Table of symbols with its strings.
#[derive(Debug)]
pub(crate) struct Symbols {
    table: Vec<u8>,
    strings: Vec<u8>,
    /// Section indices of symbols whose own field is too small for them; big files have them.
    large_indices: Vec<u8>,
    endian: Endianness,
    is_64: bool,
    /// True where the lowest bit of a function's address is a mark and not part of it.
    has_thumb_bit: bool,
}

/// Symbol of an ELF file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ImageSymbol<'a> {
    /// Name, any bytes.
    pub(crate) name: &'a [u8],
    /// Address; in a relocatable object the offset in its section.
    pub(crate) value: u64,
    /// Bytes of the function or object.
    pub(crate) size: u64,
    /// Type, as `elf::STT_FUNC`.
    pub(crate) kind: elf::SymbolType,
    /// Binding, as `elf::STB_LOCAL`.
    pub(crate) bind: elf::SymbolBind,
    /// Index of its section; `None` for an undefined, absolute or common one.
    pub(crate) section: Option<usize>,
}

impl Symbols {
    /// Symbols of `.symtab`; empty where the file was stripped of them.
    pub(crate) fn read(image: &Image) -> Result<Symbols, ImageError> {
        let mut symbols = Symbols {
            table: Vec::new(),
            strings: Vec::new(),
            large_indices: Vec::new(),
            endian: image.endian,
            is_64: image.is_64,
            has_thumb_bit: image.machine == elf::EM_ARM,
        };
        let is_table = |section: &&Section| section.kind == elf::SHT_SYMTAB.0;
        let Some(at) = image.sections.iter().position(|section| is_table(&section)) else { return Ok(symbols) };
        let Some(table) = image.sections.get(at) else { return Ok(symbols) };
        symbols.table = image.content(table)?;
        if let Some(strings) = image.sections.get(table.link) {
            symbols.strings = image.content(strings)?;
        }
        let is_indices = |section: &&Section| section.kind == elf::SHT_SYMTAB_SHNDX.0 && section.link == at;
        if let Some(indices) = image.sections.iter().find(is_indices) {
            symbols.large_indices = image.content(indices)?;
        }
        Ok(symbols)
    }

    /// Number of symbols, the empty first one included.
    pub(crate) fn len(&self) -> usize {
        if self.is_64 { self.entries::<Sym64<Endianness>>().len() } else { self.entries::<Sym32<Endianness>>().len() }
    }

    /// Symbols in the order of the table; those whose name cannot be read have none.
    pub(crate) fn iter(&self) -> impl Iterator<Item = ImageSymbol<'_>> {
        (0..self.len()).filter_map(|index| self.get(index))
    }

    /// The symbol of an index, as relocations have it.
    pub(crate) fn get(&self, index: usize) -> Option<ImageSymbol<'_>> {
        if self.is_64 {
            self.parse(index, self.entries::<Sym64<Endianness>>().get(index)?)
        } else {
            self.parse(index, self.entries::<Sym32<Endianness>>().get(index)?)
        }
    }

    fn entries<S: object::pod::Pod>(&self) -> &[S] {
        let count = self.table.len().checked_div(size_of::<S>()).unwrap_or(0);
        slice_from_bytes(&self.table, count).map_or(&[][..], |(entries, _)| entries)
    }

    fn parse<S: Sym<Endian = Endianness>>(&self, index: usize, symbol: &S) -> Option<ImageSymbol<'_>> {
        let section = match symbol.st_shndx(self.endian) {
            elf::SHN_XINDEX => self.large_index(index),
            section => section.index().map(usize::from),
        };
        let kind = symbol.st_type();
        let mark = u64::from(self.has_thumb_bit && kind == elf::STT_FUNC);
        Some(ImageSymbol {
            name: name_in(&self.strings, symbol.st_name(self.endian)),
            value: symbol.st_value(self.endian).into() & !mark,
            size: symbol.st_size(self.endian).into(),
            kind,
            bind: symbol.st_bind(),
            section,
        })
    }

    fn large_index(&self, index: usize) -> Option<usize> {
        let bytes = self.large_indices.get(index.checked_mul(4)?..)?.first_chunk::<4>()?;
        let number =
            if self.endian == Endianness::Big { u32::from_be_bytes(*bytes) } else { u32::from_le_bytes(*bytes) };
        usize::try_from(number).ok()
    }
}
