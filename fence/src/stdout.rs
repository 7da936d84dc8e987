//! Standard output that cannot be written to.

use std::io;

use rustix::fs::{OFlags, fcntl_getfl};
use rustix::io::Errno;

/// Refuses a standard output that was opened for reading alone: the standard library takes all that is written there for printed.
///
/// # Errors
/// The system's error, or that of a write to such a descriptor.
pub fn check_stdout() -> io::Result<()> {
    let flags = fcntl_getfl(io::stdout())?;
    let cannot_be_written = flags & OFlags::ACCMODE == OFlags::RDONLY || flags.contains(OFlags::PATH);
    if cannot_be_written { Err(Errno::BADF.into()) } else { Ok(()) }
}
