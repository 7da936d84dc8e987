//! What tells records from each other whose events differ in time and address alone.

/// What may change in a record without changing its event in more than time and address.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Varying {
    /// Places of address and thread: all other bytes of the record stay.
    pub(crate) places: VaryingPlaces,
    /// Addresses that the record may have.
    pub(crate) addresses: AddressRange,
}

/// Places of address and thread in a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct VaryingPlaces {
    /// Offset of the address.
    pub(crate) address: usize,
    /// Bytes of the address.
    pub(crate) address_bytes: usize,
    /// Offset of the thread id, of 4 bytes.
    pub(crate) pid: usize,
}

/// Addresses of at least `least`, whose bits `mask` are at most `most`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AddressRange {
    least: u16,
    mask: u16,
    most: u16,
}

impl AddressRange {
    /// Pointers to objects: neither null nor what `kmalloc(0)` returns.
    pub(crate) const POINTERS: AddressRange = AddressRange { least: 4096, mask: 0, most: 0 };

    /// First frames of blocks of `1 << order` pages. Blocks that end at a border of 65,536 frames are left out, and with them the frame -1 of
    /// an allocation that failed.
    pub(crate) fn frames(order: u64) -> Option<AddressRange> {
        let pages = u16::try_from(1u64.checked_shl(u32::try_from(order).ok()?)?).ok()?;
        Some(AddressRange { least: 0, mask: u16::MAX, most: u16::MAX.checked_sub(pages)? })
    }

    /// True for an address in it.
    #[inline(always)]
    pub(crate) fn has(self, address: u64) -> bool {
        address >= self.least.into() && address as u16 & self.mask <= self.most
    }
}
