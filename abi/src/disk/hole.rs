//! Holes in files: bytes that a writer has given back to the file system, and that read as zeros.

use std::fs::File;
use std::io;

use rustix::fs::SeekFrom;
use rustix::io::Errno;

/// Offset from `at` on that is in no hole, in bytes; `None` where a hole goes to the end of the file. The file's position stays.
pub(crate) fn behind(file: &File, at: u64) -> io::Result<Option<u64>> {
    let position = rustix::fs::tell(file)?;
    let found = match rustix::fs::seek(file, SeekFrom::Data(at)) {
        Ok(offset) => Ok(Some(offset.max(at))),
        Err(Errno::NXIO) => Ok(None),
        // File systems and kernels that do not know holes.
        Err(_) => Ok(Some(at)),
    };
    rustix::fs::seek(file, SeekFrom::Start(position))?;
    found
}
