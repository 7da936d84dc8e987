//! Payloads that are stored compressed (zstd), back to what the kernel handed out.

/// Expands a zstd frame to exactly `raw_len` bytes; false if it is no such frame.
#[cfg(feature = "zstd")]
pub(crate) fn expand(stored: &[u8], raw_len: usize, out: &mut Vec<u8>) -> bool {
    out.resize(raw_len, 0);
    zstd::bulk::decompress_to_buffer(stored, out.as_mut_slice()).is_ok_and(|n| n == raw_len)
}

/// A build without zstd reads no compressed block.
#[cfg(not(feature = "zstd"))]
pub(crate) fn expand(_stored: &[u8], _raw_len: usize, _out: &mut Vec<u8>) -> bool {
    false
}
