//! Compressed files and sections: gzip, xz, zstd, zlib.
//!
//! No size that a file gives decides how much memory is taken: output grows as it is made, up to a limit.

use std::io::{self, Error, ErrorKind, Read};

use kmemtrace_abi::memory;

use crate::names::work::Spent;

/// Largest size of an unpacked file or section, in bytes. A kernel with debug information has some 600 MB.
const MAX_UNPACKED: u64 = 4 << 30;
/// Largest size of an unpacked xz file, in bytes: its decoder holds the content up to three times.
const MAX_UNPACKED_XZ: u64 = 1 << 30;
/// Largest ratio of unpacked to packed bytes that is believed. It is zlib's largest; debug information has some 5.
const MAX_RATIO: u64 = 1032;

/// Compression of a whole file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Packing {
    Gzip,
    Xz,
    Zstd,
}

impl Packing {
    /// Largest number of leading bytes that tell a packing.
    pub(super) const MAGIC_BYTES: usize = 6;

    /// Compression of a file by its leading bytes; `None` for any other file.
    pub(super) fn of(head: &[u8]) -> Option<Packing> {
        match head {
            [0x1f, 0x8b, 8, ..] => Some(Packing::Gzip),
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Some(Packing::Xz),
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Some(Packing::Zstd),
            _ => None,
        }
    }

    /// Content of a packed file of `len` bytes.
    pub(crate) fn unpack(self, packed: impl Read, len: u64) -> io::Result<Vec<u8>> {
        let limit = limit(len);
        match self {
            Packing::Gzip => read_all(flate2::read::MultiGzDecoder::new(packed), limit),
            Packing::Zstd => read_all(zstd_of(packed)?, limit),
            Packing::Xz => xz(&read_all(packed, MAX_UNPACKED_XZ)?, limit.min(MAX_UNPACKED_XZ)),
        }
    }
}

/// Content of a section of `size` bytes that is packed as zlib does.
pub(super) fn zlib(packed: &[u8], size: u64) -> io::Result<Vec<u8>> {
    whole(read_all(flate2::read::ZlibDecoder::new(packed), size.min(limit(packed.len() as u64)))?, size)
}

/// Content of a section of `size` bytes that is packed as zstd does.
pub(super) fn zstandard(packed: &[u8], size: u64) -> io::Result<Vec<u8>> {
    whole(read_all(zstd_of(packed)?, size.min(limit(packed.len() as u64)))?, size)
}

/// Largest window of a zstd stream, as a power of two: the decoder holds all of it. That of `zstd -19` is 8 MiB.
const MAX_WINDOW: u32 = 27;

fn zstd_of<'r, R: Read>(packed: R) -> io::Result<zstd::stream::read::Decoder<'r, io::BufReader<R>>> {
    let mut decoder = zstd::stream::read::Decoder::new(packed)?;
    decoder.window_log_max(MAX_WINDOW)?;
    Ok(decoder)
}

fn limit(packed: u64) -> u64 {
    packed.saturating_mul(MAX_RATIO).saturating_add(1 << 20).min(MAX_UNPACKED)
}

fn whole(data: Vec<u8>, size: u64) -> io::Result<Vec<u8>> {
    if data.len() as u64 == size {
        Ok(data)
    } else {
        Err(invalid("a compressed section has another size than it tells"))
    }
}

fn invalid(what: &str) -> Error {
    Error::new(ErrorKind::InvalidData, what)
}

/// Error of contents that take too much: such a file is left out.
fn spent(spent: Spent) -> Error {
    Error::new(ErrorKind::OutOfMemory, spent)
}

/// Bytes between two looks at the memory that is left.
const PIECE: u64 = 1 << 20;

fn read_all(mut reader: impl Read, limit: u64) -> io::Result<Vec<u8>> {
    let mut data = Vec::new();
    loop {
        let before = data.len() as u64;
        // A vector that is full takes as much again.
        let more = if data.capacity().saturating_sub(data.len()) < PIECE as usize { before.max(PIECE) } else { 0 };
        memory::check(more).map_err(|over| spent(over.into()))?;
        reader.by_ref().take(PIECE).read_to_end(&mut data)?;
        if data.len() as u64 > limit {
            return Err(spent(Spent::Unpacked));
        }
        if (data.len() as u64) < before.saturating_add(PIECE) {
            return Ok(data);
        }
    }
}

/// Blocks of an xz file, each of LZMA2 alone. The sizes in the chunks' headers are added up before anything is unpacked: the
/// decoder has no limit of its own. Checksums are left out: the content is checked against the trace.
fn xz(packed: &[u8], limit: u64) -> io::Result<Vec<u8>> {
    let damaged = || invalid("it is no whole xz file");
    let mut rest = packed.get(12..).ok_or_else(damaged)?;
    let check_bytes = match packed.get(7) {
        Some(0) => 0,
        Some(1) => 4,
        Some(4) => 8,
        Some(10) => 32,
        _ => return Err(invalid("its xz check is unknown")),
    };
    let mut data = Vec::new();
    while let Some(&size @ 1..) = rest.first() {
        let header_bytes = usize::from(size).saturating_add(1).saturating_mul(4);
        let (flags, mut header) = rest.get(1..).and_then(<[u8]>::split_first).ok_or_else(damaged)?;
        // Two optional sizes, then the one filter.
        for _ in 0..(flags >> 6).count_ones() {
            let last = header.iter().position(|byte| byte & 0x80 == 0).ok_or_else(damaged)?;
            header = header.get(last..).and_then(|sizes| sizes.get(1..)).ok_or_else(damaged)?;
        }
        if flags & 0x3f != 0 || header.first() != Some(&0x21) {
            return Err(invalid("it has a filter that is not read: unpack it with xz -d"));
        }
        let block = rest.get(header_bytes..).ok_or_else(damaged)?;
        let (packed_bytes, unpacked_bytes) = lzma2_sizes(block).ok_or_else(damaged)?;
        if unpacked_bytes.saturating_add(data.len() as u64) > limit {
            return Err(spent(Spent::Unpacked));
        }
        let more = unpacked_bytes.saturating_add(data.len() as u64).saturating_mul(2);
        memory::check(more).map_err(|over| spent(over.into()))?;
        let (mut block, after) = block.split_at_checked(packed_bytes).ok_or_else(damaged)?;
        lzma_rs::lzma2_decompress(&mut block, &mut data).map_err(|_| damaged())?;
        let padding = packed_bytes.wrapping_neg() % 4;
        rest = after.get(padding.saturating_add(check_bytes)..).ok_or_else(damaged)?;
    }
    Ok(data)
}

/// Bytes of the LZMA2 chunks at the start of `block`, and of what they unpack to.
fn lzma2_sizes(block: &[u8]) -> Option<(usize, u64)> {
    // The size of a chunk is written less one.
    let size = |high: u8, low: u8| usize::from(u16::from_be_bytes([high, low])).saturating_add(1);
    let (mut rest, mut unpacked) = (block, 0u64);
    loop {
        let (head_bytes, packed_bytes, bytes) = match *rest {
            [0, ref after @ ..] => return Some((block.len().checked_sub(after.len())?, unpacked)),
            [1 | 2, high, low, ..] => (3usize, size(high, low), size(high, low)),
            [control, high, low, packed_high, packed_low, ..] if control >= 0x80 => {
                let bytes = usize::from(control & 0x1f) << 16 | usize::from(u16::from_be_bytes([high, low]));
                // New properties take a byte.
                let head_bytes = if control >= 0xc0 { 6 } else { 5 };
                (head_bytes, size(packed_high, packed_low), bytes.saturating_add(1))
            }
            _ => return None,
        };
        unpacked = unpacked.saturating_add(bytes as u64);
        rest = rest.get(head_bytes.saturating_add(packed_bytes)..)?;
    }
}
