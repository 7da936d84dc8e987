//! Length of names: a file may give one function a name of megabytes, and thousands of addresses that function.

/// Greatest length of a name that is kept, in bytes. Names of C++ and Rust have some hundreds.
pub const MAX_NAME_BYTES: usize = 4096;

/// The begin of a name that is kept.
pub fn cut(name: &[u8]) -> &[u8] {
    name.get(..MAX_NAME_BYTES).unwrap_or(name)
}
