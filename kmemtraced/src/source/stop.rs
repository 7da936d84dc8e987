//! Tells the readers that the buffers get no more events.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{EventfdFlags, eventfd};

/// Flag that is set once, and a descriptor that can be read from then on: it ends the wait for a buffer.
pub(crate) struct Stop {
    is_set: AtomicBool,
    event: OwnedFd,
}

impl Stop {
    /// # Errors
    /// The kernel's reason: too many open files, or no memory.
    pub(crate) fn new() -> io::Result<Stop> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Stop { is_set: AtomicBool::new(false), event })
    }

    /// Sets the flag, and ends all waits.
    pub(crate) fn set(&self) {
        self.is_set.store(true, Ordering::Release);
        // Where that fails the readers see the flag after their longest wait.
        let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
    }

    pub(crate) fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Acquire)
    }
}

impl AsFd for Stop {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}
