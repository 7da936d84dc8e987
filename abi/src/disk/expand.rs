//! Payloads that are stored compressed (zstd), back to what the kernel handed out.

use crate::fault::Code;

/// Expands a zstd frame to exactly `raw_len` bytes; the code of the fault if it is no such frame.
#[cfg(feature = "zstd")]
pub(crate) fn expand(stored: &[u8], raw_len: usize, out: &mut Vec<u8>) -> Result<(), Code> {
    out.resize(raw_len, 0);
    let expanded = zstd::bulk::decompress_to_buffer(stored, out.as_mut_slice());
    if expanded.is_ok_and(|n| n == raw_len) { Ok(()) } else { Err(Code::BadCompression) }
}

/// A build without zstd reads no compressed block.
#[cfg(not(feature = "zstd"))]
pub(crate) fn expand(_stored: &[u8], _raw_len: usize, _out: &mut Vec<u8>) -> Result<(), Code> {
    Err(Code::NeedsZstd)
}
