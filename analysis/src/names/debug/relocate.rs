//! Debug sections of a module, with the addresses that its sections are given here.

use object::elf::{self, Machine};
use object::read::{Object, ObjectSection, Relocation, RelocationKind, RelocationTarget};
use object::{Endianness, File, RelocationFlags};

use super::image::{Image, Section};
use super::sections::Sections;
use super::symbols::Symbols;
use crate::names::work::Work;

/// Addresses of a module's sections, by index; `None` for a section that is not loaded.
pub(crate) type Layout = Vec<Option<u64>>;

/// First address: none of a section is 0, which stands for removed code.
const FIRST: u64 = 0x1_0000;
/// Largest alignment that is kept. The kernel's is a page.
const MAX_ALIGN: u64 = 1 << 16;

/// Lays out the loaded sections one after the other; `None` where they have no room.
pub(crate) fn layout(image: &Image) -> Option<Layout> {
    let last = if image.is_64 { 1 << 40 } else { 1 << 31 };
    let mut next = FIRST;
    let place = |section: &Section| {
        if !section.is_allocated() {
            return Some(None);
        }
        let address = next.next_multiple_of(section.align.clamp(16, MAX_ALIGN).next_power_of_two());
        next = address.checked_add(section.size.max(1)).filter(|&end| end < last)?;
        Some(Some(address))
    };
    image.sections.iter().map(place).collect()
}

/// Debug sections of a module by the addresses of a layout, without the tables of lines.
pub(crate) fn without_lines(
    image: &Image,
    symbols: &Symbols,
    layout: &Layout,
    work: &mut Work,
) -> Result<Sections, String> {
    let bytes = image.whole().map_err(|error| error.why)?;
    let file = File::parse(&*bytes).map_err(|error| format!("it is not a complete ELF file: {error}"))?;
    Sections::in_memory(image.endian, |name| match name {
        ".debug_line" => Ok(Vec::new()),
        name => section(image, (&file, symbols), layout, name, work),
    })
}

/// Content of a debug section after relocation; empty where the module has no such section.
pub(crate) fn section(
    image: &Image,
    (file, symbols): (&File<'_>, &Symbols),
    layout: &Layout,
    name: &str,
    work: &mut Work,
) -> Result<Vec<u8>, String> {
    let Some(at) = image.sections.iter().position(|section| *section.name == *name.as_bytes()) else {
        return Ok(Vec::new());
    };
    let Some(section) = image.sections.get(at) else { return Ok(Vec::new()) };
    let mut bytes = image.content(section).map_err(|error| error.why)?;
    let Ok(parsed) = file.section_by_index(object::SectionIndex(at)) else { return Ok(bytes) };
    for (offset, relocation) in parsed.relocations() {
        work.take(1).map_err(|spent| spent.to_string())?;
        let symbol = match relocation.target() {
            RelocationTarget::Symbol(index) => symbols.get(index.0),
            _ => None,
        };
        let section = symbol.and_then(|symbol| symbol.section);
        let base = section.and_then(|section| layout.get(section).copied().flatten()).unwrap_or_default();
        let value = base.wrapping_add(symbol.map_or(0, |symbol| symbol.value));
        let place = usize::try_from(offset).ok().and_then(|offset| bytes.get_mut(offset..));
        apply(image, &relocation, value, offset, place.unwrap_or_default())
            .ok_or_else(|| format!("section {name} has a relocation that is not known ({:?})", relocation.flags()))?;
    }
    Ok(bytes)
}

/// Changes the bytes at `place`, which begins at `offset` of its section; `None` for an unknown relocation.
fn apply(image: &Image, relocation: &Relocation, value: u64, offset: u64, place: &mut [u8]) -> Option<()> {
    let value = value.wrapping_add(relocation.addend() as u64);
    let bits = relocation.size();
    let mut number = Number { place, bytes: usize::from(bits / 8), endian: image.endian };
    let implicit = if relocation.has_implicit_addend() { number.get()? } else { 0 };
    match relocation.kind() {
        RelocationKind::None => Some(()),
        RelocationKind::Absolute if bits.is_multiple_of(8) => number.set(value.wrapping_add(implicit)),
        RelocationKind::Relative if bits.is_multiple_of(8) => {
            number.set(value.wrapping_add(implicit).wrapping_sub(offset))
        }
        _ => {
            let RelocationFlags::Elf { r_type } = relocation.flags() else { return None };
            difference(image.machine, r_type.0, value, place, image.endian)
        }
    }
}

/// Relocations in pairs: machines that shorten code when they link leave every distance to the linker.
fn difference(machine: Machine, kind: u32, value: u64, place: &mut [u8], endian: Endianness) -> Option<()> {
    enum Change {
        Add,
        Subtract,
        Set,
    }
    use Change::{Add, Set, Subtract};
    let (change, first) = match (machine, kind) {
        (elf::EM_RISCV, 33..=36) => (Add, 33),
        (elf::EM_RISCV, 37..=40) => (Subtract, 37),
        (elf::EM_RISCV, 54..=56) => (Set, 54),
        (elf::EM_RISCV, 53) => return six_bits(place, |_| value),
        (elf::EM_RISCV, 52) | (elf::EM_LOONGARCH, 106) => return six_bits(place, |old| old.wrapping_sub(value)),
        (elf::EM_LOONGARCH, 105) => return six_bits(place, |old| old.wrapping_add(value)),
        (elf::EM_RISCV, 60) => return uleb(place, |_| value),
        (elf::EM_RISCV, 61) | (elf::EM_LOONGARCH, 108) => return uleb(place, |old| old.wrapping_sub(value)),
        (elf::EM_LOONGARCH, 107) => return uleb(place, |old| old.wrapping_add(value)),
        (elf::EM_LOONGARCH, 47 | 48) => (Add, 47),
        (elf::EM_LOONGARCH, 50 | 51) => (Add, 48),
        (elf::EM_LOONGARCH, 52 | 53) => (Subtract, 52),
        (elf::EM_LOONGARCH, 55 | 56) => (Subtract, 53),
        // The note that code may be shortened.
        (elf::EM_RISCV, 51) | (elf::EM_LOONGARCH, 100) => return Some(()),
        _ => return None,
    };
    // Kinds that follow each other change 1, 2, 4 and 8 bytes.
    let bytes = 1usize.checked_shl(kind.checked_sub(first)?)?;
    let mut number = Number { place, bytes, endian };
    let old = number.get()?;
    number.set(match change {
        Add => old.wrapping_add(value),
        Subtract => old.wrapping_sub(value),
        Set => value,
    })
}

/// Changes the low six bits of a byte.
fn six_bits(place: &mut [u8], change: impl FnOnce(u64) -> u64) -> Option<()> {
    let byte = place.first_mut()?;
    *byte = *byte & 0xc0 | change(u64::from(*byte & 0x3f)) as u8 & 0x3f;
    Some(())
}

/// Changes a number of variable length, which keeps its length.
fn uleb(place: &mut [u8], change: impl FnOnce(u64) -> u64) -> Option<()> {
    let last = place.iter().take(10).position(|byte| byte & 0x80 == 0)?;
    let bytes = place.get_mut(..=last)?;
    let old = bytes.iter().rev().fold(0u64, |value, byte| value << 7 | u64::from(byte & 0x7f));
    let mut value = change(old);
    for byte in bytes {
        *byte = *byte & 0x80 | value as u8 & 0x7f;
        value >>= 7;
    }
    Some(())
}

/// Number of 1 to 8 bytes at the start of `place`.
struct Number<'a> {
    place: &'a mut [u8],
    bytes: usize,
    endian: Endianness,
}

impl Number<'_> {
    fn get(&self) -> Option<u64> {
        let bytes = self.place.get(..self.bytes).filter(|bytes| bytes.len() <= 8)?;
        let add = |value: u64, byte: &u8| value << 8 | u64::from(*byte);
        Some(match self.endian {
            Endianness::Big => bytes.iter().fold(0, add),
            Endianness::Little => bytes.iter().rev().fold(0, add),
        })
    }

    fn set(&mut self, value: u64) -> Option<()> {
        let bytes = self.place.get_mut(..self.bytes).filter(|bytes| bytes.len() <= 8)?;
        let mut rest = value;
        let put = |byte: &mut u8| {
            *byte = rest as u8;
            rest >>= 8;
        };
        match self.endian {
            Endianness::Big => bytes.iter_mut().rev().for_each(put),
            Endianness::Little => bytes.iter_mut().for_each(put),
        }
        Some(())
    }
}
