//! Threads that copy what a viewer writes, through the filter, to standard output or standard error.

use std::fs::File;
use std::io::{self, Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::filter::Filter;

/// Bytes that are copied at once.
const AT_ONCE: usize = 64 << 10;
/// Longest wait before the flag is polled again.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Destination of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum To {
    Output,
    Error,
}

impl To {
    fn write(self, bytes: &[u8]) -> io::Result<()> {
        match self {
            To::Output => io::stdout().write_all(bytes).and_then(|()| io::stdout().flush()),
            To::Error => io::stderr().write_all(bytes),
        }
    }
}

/// State of a copy.
pub(super) enum End {
    /// There may be more.
    Open,
    /// All is copied, or its reader is gone.
    Done,
    /// The destination takes no more.
    Refused(io::Error),
}

/// A running copy.
pub(super) struct Copy {
    filter: Arc<Mutex<Filter>>,
    is_stopped: Arc<AtomicBool>,
    /// Hangs up at the end of the thread, after the reason for which the destination takes no more.
    end: mpsc::Receiver<io::Error>,
}

impl Copy {
    /// Starts the thread.
    pub(super) fn start(from: File, to: To, filter: Filter) -> io::Result<Copy> {
        let filter = Arc::new(Mutex::new(filter));
        let is_stopped = Arc::<AtomicBool>::default();
        let (at_end, end) = mpsc::channel();
        let (with, flag) = (Arc::clone(&filter), Arc::clone(&is_stopped));
        let work = move || {
            if let Err(error) = copy(from, to, &with, &flag) {
                let _ = at_end.send(error);
            }
        };
        thread::Builder::new().name("copy".into()).spawn(work)?;
        Ok(Copy { filter, is_stopped, end })
    }

    /// Waits for the end at most so long. [`End::Refused`] comes once.
    pub(super) fn wait(&self, time: Duration) -> End {
        match self.end.recv_timeout(time) {
            Ok(error) => End::Refused(error),
            Err(mpsc::RecvTimeoutError::Disconnected) => End::Done,
            Err(mpsc::RecvTimeoutError::Timeout) => End::Open,
        }
    }

    /// Copies nothing any more. Returns the bytes that give the screen its usual state back.
    pub(super) fn stop(&self) -> Vec<u8> {
        self.is_stopped.store(true, Ordering::Release);
        self.filter.lock().unwrap_or_else(PoisonError::into_inner).closing()
    }
}

/// Copies to the end. A destination that nobody reads any more is no error.
fn copy(mut from: File, to: To, filter: &Mutex<Filter>, is_stopped: &AtomicBool) -> io::Result<()> {
    let (mut bytes, mut out) = (vec![0; AT_ONCE], Vec::new());
    while !is_stopped.load(Ordering::Acquire) {
        if !has_come(&from) {
            continue;
        }
        let len = match from.read(&mut bytes) {
            // A terminal whose other end is closed is an error.
            Ok(0) => return Ok(()),
            Ok(len) => len,
            Err(error) if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => continue,
            Err(_) => return Ok(()),
        };
        out.clear();
        filter.lock().unwrap_or_else(PoisonError::into_inner).pass(bytes.get(..len).unwrap_or_default(), &mut out);
        if is_stopped.load(Ordering::Acquire) {
            break;
        }
        match to.write(&out) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => break,
            written => written?,
        }
    }
    Ok(())
}

/// True where there is something to read, or the end; waits for it a moment.
fn has_come(from: &File) -> bool {
    let time = Timespec { tv_sec: 0, tv_nsec: POLL_INTERVAL.subsec_nanos().into() };
    match poll(&mut [PollFd::new(from, PollFlags::IN)], Some(&time)) {
        Ok(ready) => ready > 0,
        Err(Errno::INTR) => false,
        // The read says why.
        Err(_) => true,
    }
}
