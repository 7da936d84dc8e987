//! Byte order and word size of the traced machine.
//!
//! A file's [`Target`] is found once; decoders are generic over [`TargetOrder`] and monomorphised, so
//! nothing is decided again for each record, and nothing depends on the machine that reads.

use byteorder::ByteOrder as StreamOrder;

/// Byte order of the traced kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Endian {
    /// Least significant byte first.
    Little,
    /// Most significant byte first.
    Big,
}

impl Endian {
    /// The order of the machine that runs this code; only a recorder has a use for it.
    pub const NATIVE: Endian = if u16::from_ne_bytes([1, 0]) == 1 { Endian::Little } else { Endian::Big };

    /// `"little"` or `"big"`.
    pub fn name(self) -> &'static str {
        match self {
            Endian::Little => "little",
            Endian::Big => "big",
        }
    }
}

/// Byte order and `sizeof(long)` of the traced kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// Byte order of every number the kernel wrote.
    pub endian: Endian,
    /// 4 or 8: the size of a `long` and of a pointer.
    pub word_bytes: u8,
}

/// A byte order as a type: the one trait that joins what both crates call it.
pub trait TargetOrder: Copy + Send + Sync + 'static {
    /// For fields at computed offsets and for streams.
    type Stream: StreamOrder;
    /// For fixed layouts viewed in place.
    type View: zerocopy::ByteOrder;
    /// The byte order as a value.
    const ENDIAN: Endian;
}

/// Little endian, see [`TargetOrder`].
#[derive(Clone, Copy, Debug)]
pub enum Little {}
/// Big endian, see [`TargetOrder`].
#[derive(Clone, Copy, Debug)]
pub enum Big {}

impl TargetOrder for Little {
    type Stream = byteorder::LittleEndian;
    type View = zerocopy::LittleEndian;
    const ENDIAN: Endian = Endian::Little;
}

impl TargetOrder for Big {
    type Stream = byteorder::BigEndian;
    type View = zerocopy::BigEndian;
    const ENDIAN: Endian = Endian::Big;
}

/// The `N` bytes of `bytes` at `offset`, or `None` where they are not all there.
#[inline]
pub(crate) fn bytes_at<const N: usize>(bytes: &[u8], offset: usize) -> Option<&[u8; N]> {
    bytes.get(offset..)?.first_chunk::<N>()
}

/// The u32 at `offset` in order `O`.
#[inline]
pub(crate) fn u32_at<O: TargetOrder>(bytes: &[u8], offset: usize) -> Option<u32> {
    bytes_at::<4>(bytes, offset).map(|b| O::Stream::read_u32(b))
}

/// The u64 at `offset` in order `O`.
#[inline]
pub(crate) fn u64_at<O: TargetOrder>(bytes: &[u8], offset: usize) -> Option<u64> {
    bytes_at::<8>(bytes, offset).map(|b| O::Stream::read_u64(b))
}

/// The u16 at `offset` in order `O`.
#[inline]
pub(crate) fn u16_at<O: TargetOrder>(bytes: &[u8], offset: usize) -> Option<u16> {
    bytes_at::<2>(bytes, offset).map(|b| O::Stream::read_u16(b))
}

/// The u32 at `offset` in this order.
#[cfg(feature = "inputs")]
pub(crate) fn u32_of(endian: Endian, bytes: &[u8], offset: usize) -> Option<u32> {
    match endian {
        Endian::Little => u32_at::<Little>(bytes, offset),
        Endian::Big => u32_at::<Big>(bytes, offset),
    }
}

/// The u64 at `offset` in this order.
#[cfg(feature = "inputs")]
pub(crate) fn u64_of(endian: Endian, bytes: &[u8], offset: usize) -> Option<u64> {
    match endian {
        Endian::Little => u64_at::<Little>(bytes, offset),
        Endian::Big => u64_at::<Big>(bytes, offset),
    }
}

/// The unsigned number of `size` bytes (1, 2, 4 or 8) at `offset` in order `O`.
#[inline]
pub fn uint_at<O: TargetOrder>(bytes: &[u8], offset: usize, size: usize) -> Option<u64> {
    match size {
        8 => u64_at::<O>(bytes, offset),
        4 => u32_at::<O>(bytes, offset).map(u64::from),
        2 => u16_at::<O>(bytes, offset).map(u64::from),
        1 => bytes.get(offset).copied().map(u64::from),
        _ => None,
    }
}
