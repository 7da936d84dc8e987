//! Random access to finished files, mapped. A single pass over a file reads it into buffers instead: should it be cut
//! meanwhile, that is a fault to tell of.
#![expect(unsafe_code, reason = "a mapping is memory that somebody else may change")]

use std::fs::File;
use std::io;
use std::path::Path;

use memmap2::Mmap;

/// What `look` makes of the bytes of a regular file. Should somebody cut the file meanwhile, the process is killed by SIGBUS.
pub(crate) fn with_mapped<T>(path: &Path, look: impl FnOnce(&[u8]) -> T) -> io::Result<T> {
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let file = File::open(path)?;
    // SAFETY: the mapping is read-only and private to this call. Only somebody who writes to the file meanwhile changes its bytes,
    // and no more than these bytes is believed: what is read is checked against its CRC and held in no reference afterwards.
    let map = unsafe { Mmap::map(&file)? };
    Ok(look(&map))
}
