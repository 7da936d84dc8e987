//! Waiting for a file of the kernel to become readable.

use std::fs::File;
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};

/// Waits at most `timeout` until the file, or `stop`, is readable. True where the file is, or gives an error: the read that follows
/// gives the reason.
pub(crate) fn readable(file: &File, stop: impl AsFd, timeout: Duration) -> bool {
    let mut fds = [PollFd::new(file, PollFlags::IN), PollFd::new(&stop, PollFlags::IN)];
    let timeout = Timespec {
        tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(timeout.subsec_nanos()),
    };
    match rustix::event::poll(&mut fds, Some(&timeout)) {
        Ok(_) => !fds[0].revents().is_empty(),
        Err(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::source::stop::Stop;

    #[test]
    fn a_stop_ends_the_wait_for_a_buffer() {
        let (reading, writing) = rustix::pipe::pipe().unwrap();
        let (reading, stop) = (File::from(reading), Stop::new().unwrap());
        let long = Duration::from_secs(600);
        assert!(!readable(&reading, &stop, Duration::ZERO));
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| readable(&reading, &stop, long));
            stop.set();
            assert!(!waits.join().unwrap(), "the pipe is empty");
        });
        assert!(stop.is_set());
        rustix::io::write(&writing, b"1").unwrap();
        let begun = Instant::now();
        assert!(readable(&reading, &stop, long));
        assert!(begun.elapsed() < long);
    }
}
