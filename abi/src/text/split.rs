//! Text that a byte divides.

use memchr::memchr;

/// The text before the first byte of this value, and the text behind it.
pub(crate) fn split_once(text: &[u8], byte: u8) -> Option<(&[u8], &[u8])> {
    let (before, rest) = text.split_at_checked(memchr(byte, text)?)?;
    Some((before, rest.get(1..)?))
}

/// The text before the last byte of this value, and the text behind it.
#[cfg(feature = "inputs")]
pub(crate) fn rsplit_once(text: &[u8], byte: u8) -> Option<(&[u8], &[u8])> {
    let (before, rest) = text.split_at_checked(memchr::memrchr(byte, text)?)?;
    Some((before, rest.get(1..)?))
}
