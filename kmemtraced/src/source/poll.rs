//! Waiting for a file of the kernel to become readable.

use std::fs::File;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};

/// Waits at most `timeout` until the file is readable. True after an error, too: the read that follows gives the reason.
pub(crate) fn readable(file: &File, timeout: Duration) -> bool {
    let mut fds = [PollFd::new(file, PollFlags::IN)];
    let timeout = Timespec {
        tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(timeout.subsec_nanos()),
    };
    !matches!(rustix::event::poll(&mut fds, Some(&timeout)), Ok(0))
}
