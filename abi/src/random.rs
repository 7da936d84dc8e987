//! Random bytes that no other user can foresee.

use std::fs::File;
use std::io::{self, Read};

use rustix::io::Errno;
use rustix::rand::GetRandomFlags;

/// Source of random bytes before Linux 3.17, which has no getrandom.
const DEVICE: &str = "/dev/urandom";

/// Fills `bytes`, at most 256 of them. Blocks in early boot until the kernel has collected entropy.
///
/// # Errors
/// Where the kernel gives none.
pub fn fill(bytes: &mut [u8]) -> io::Result<()> {
    match rustix::rand::getrandom(&mut *bytes, GetRandomFlags::empty()) {
        Err(Errno::NOSYS) => File::open(DEVICE)?.read_exact(bytes),
        filled if filled? == bytes.len() => Ok(()),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}
