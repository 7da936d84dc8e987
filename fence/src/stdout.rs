//! Standard output that cannot be written to.

use std::io;

/// Refuses a standard output that was opened for reading alone: the standard library takes all that is written there for printed.
///
/// # Errors
/// The system's error.
pub fn check_stdout() -> io::Result<()> {
    // Nothing is written: the kernel looks at the descriptor first.
    rustix::io::write(io::stdout(), &[])?;
    Ok(())
}
