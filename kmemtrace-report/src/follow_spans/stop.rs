//! Signals that end the following, and the wait for what comes next.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// Longest wait between two looks at signals.
const LOOK: Duration = Duration::from_millis(100);
/// Time for a recorder that ends, after a signal that both got.
const GRACE: Duration = Duration::from_secs(5);

/// Signals that ask for the end.
pub(super) struct Stop {
    signals: Arc<AtomicBool>,
    /// Standard output is the output.
    has_reader: bool,
}

/// Result of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waited {
    /// Time has passed.
    Time,
    /// Bytes, or the end, are there to be read.
    Input,
}

/// Result of a wait for more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// More may be there, or the end.
    More,
    /// A signal asks for the end.
    Stopped,
}

/// Moment at which a program that was asked to stop ends, whatever is still to come.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Deadline(Option<Instant>);

impl Stop {
    /// Catches the signals; `has_reader`: standard output is the output.
    pub(super) fn register(has_reader: bool) -> anyhow::Result<Stop> {
        let signals = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&signals)).context("signals cannot be caught")?;
        }
        Ok(Stop { signals, has_reader })
    }

    /// True where a signal came since the last look.
    pub(super) fn take(&self) -> bool {
        self.signals.swap(false, Ordering::Relaxed)
    }

    /// True once a stream is not waited for any more: a second signal came, or the recorder did not end in time after the first.
    pub(super) fn is_over(&self, deadline: &mut Deadline) -> bool {
        let has_signal = self.take();
        match deadline.0 {
            Some(moment) => has_signal || Instant::now() >= moment,
            None => {
                deadline.0 = has_signal.then(|| Instant::now() + GRACE);
                false
            }
        }
    }

    /// Waits for `input`, at most `time`.
    ///
    /// # Errors
    /// The reader of standard output is gone: `BrokenPipe`.
    pub(super) fn wait(&self, input: Option<BorrowedFd<'_>>, time: Duration) -> io::Result<Waited> {
        let stdout = io::stdout();
        let time = Timespec::try_from(time.min(LOOK)).unwrap_or(Timespec { tv_sec: 0, tv_nsec: 0 });
        let mut fds = Vec::new();
        if self.has_reader {
            fds.push(PollFd::from_borrowed_fd(stdout.as_fd(), PollFlags::empty()));
        }
        let place = fds.len();
        fds.extend(input.map(|input| PollFd::from_borrowed_fd(input, PollFlags::IN)));
        match poll(&mut fds, Some(&time)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        // Regular files and most devices never tell of an error.
        if self.has_reader && fds.first().is_some_and(|fd| fd.revents().contains(PollFlags::ERR)) {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let has_input = fds.get(place).is_some_and(|fd| !fd.revents().is_empty());
        Ok(if has_input { Waited::Input } else { Waited::Time })
    }
}
