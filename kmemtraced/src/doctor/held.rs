//! Signals that would end the process while it has something in the kernel: they wait until that is undone.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::process::Signal;

/// Signals that were held back, from [`Held::new`] to [`Held::act`].
pub(super) struct Held(Arc<AtomicUsize>);

impl Held {
    /// Holds back the signals that people and systems end programs with.
    pub(super) fn new() -> io::Result<Held> {
        let last = Arc::<AtomicUsize>::default();
        for signal in [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT] {
            let number = signal.as_raw();
            signal_hook::flag::register_usize(number, Arc::clone(&last), usize::try_from(number).unwrap_or_default())?;
        }
        Ok(Held(last))
    }

    /// True once one has come.
    pub(super) fn came(&self) -> bool {
        self.0.load(Ordering::Acquire) != 0
    }

    /// Does what the last one does to a program that does not catch it, if one has come.
    pub(super) fn act(&self) {
        if let Ok(signal @ 1..) = i32::try_from(self.0.load(Ordering::Acquire)) {
            let _ = signal_hook::low_level::emulate_default_handler(signal);
        }
    }
}
