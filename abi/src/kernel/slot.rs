//! Numbers in a record: their place, and two ways to read them.

use byteorder::ByteOrder;

use crate::kernel::format::{EventFormat, Field, FieldAddressing};
use crate::kernel::subbuffer::LOADED;
use crate::target::{Endian, TargetOrder, u32_at, uint_at};

/// Place of a number in a record.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub(super) offset: u32,
    size: u8,
    /// Mask of the number in the eight bytes at the offset.
    pub(super) mask: u64,
}

impl Slot {
    /// A number that is not there: 0 wherever it is read.
    pub(super) const ABSENT: Slot = Slot { offset: 0, size: 0, mask: 0 };

    pub(super) fn of(field: &Field) -> Option<Slot> {
        let fits = field.place == FieldAddressing::Fixed && matches!(field.size, 1 | 2 | 4 | 8);
        fits.then(|| Slot::new(field.offset as u32, field.size as u8))
    }

    pub(super) fn new(offset: u32, size: u8) -> Slot {
        Slot { offset, size, mask: u64::MAX >> 64u32.saturating_sub(u32::from(size).saturating_mul(8)) }
    }

    /// The number, 0 where it is not there.
    #[inline]
    pub(super) fn read<O: TargetOrder>(self, record: &[u8]) -> u64 {
        uint_at::<O>(record, self.offset as usize, usize::from(self.size)).unwrap_or(0)
    }

    /// Number that begins in the first [`NEAR`] bytes: one load, whatever its size.
    #[inline(always)]
    #[expect(
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects,
        reason = "a head has eight bytes more than `NEAR`"
    )]
    pub(super) fn read_near<O: TargetOrder>(self, head: &Head) -> u64 {
        let at = self.offset as usize % NEAR;
        let word = O::Stream::read_u64(&head[at..at + 8]);
        match O::ENDIAN {
            Endian::Little => word & self.mask,
            Endian::Big => word >> (self.mask.leading_zeros() & 63) & self.mask,
        }
    }

    pub(super) fn end(self) -> usize {
        (self.offset as usize).saturating_add(usize::from(self.size))
    }
}

/// Place of a cache's name.
#[derive(Clone, Copy, Debug)]
pub(super) struct NamePlace {
    /// Length and offset of the name: upper and lower 16 bits.
    pub(super) location: Slot,
    /// Byte of the record that the offset counts from.
    base: usize,
}

impl NamePlace {
    pub(super) fn end(self) -> usize {
        self.location.end()
    }

    /// Offset of the name in the record.
    pub(super) fn start<O: TargetOrder>(self, record: &[u8]) -> usize {
        let location = u32_at::<O>(record, self.location.offset as usize).unwrap_or(0);
        self.base.saturating_add((location & 0xffff) as usize)
    }

    /// The name with its NUL; `None` where it is outside of the record.
    #[inline(always)]
    pub(super) fn read<O: TargetOrder>(self, record: &[u8]) -> Option<&[u8]> {
        let location = u32_at::<O>(record, self.location.offset as usize)?;
        let (len, offset) = ((location >> 16) as usize, (location & 0xffff) as usize);
        record.get(self.base.saturating_add(offset)..)?.get(..len)
    }
}

/// Place of a name that follows the fields of a record.
pub(super) fn name_place(format: &EventFormat, field: &str) -> Option<NamePlace> {
    format.field(field).filter(|field| field.place != FieldAddressing::Fixed).map(|field| {
        let location = Slot::new(field.offset as u32, 4);
        NamePlace { location, base: if field.place == FieldAddressing::RelLoc { location.end() } else { 0 } }
    })
}

/// A record's fields begin before this offset, on every kernel that was seen.
pub(super) const NEAR: usize = LOADED - 8;
/// The start of a record and what stands behind it, so that a field can be loaded without asking for its size.
pub(super) type Head = [u8; LOADED];
