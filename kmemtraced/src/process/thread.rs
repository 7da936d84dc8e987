//! Threads of the recorder: their ids, their priority, and the error where one cannot be started.

use std::io;

use anyhow::anyhow;

/// Thread id of the caller, in its pid namespace.
pub(crate) fn own_tid() -> i32 {
    rustix::thread::gettid().as_raw_nonzero().get()
}

/// Nice level -20 of the calling thread, until dropped. Recording is correct without it, but may lose more.
pub(crate) struct HighPriority {
    nice: i32,
}

impl HighPriority {
    /// Raises the priority of the calling thread where permitted.
    pub(crate) fn take() -> HighPriority {
        let nice = rustix::process::getpriority_process(None).unwrap_or(0);
        let _ = rustix::process::setpriority_process(None, -20);
        HighPriority { nice }
    }
}

impl Drop for HighPriority {
    fn drop(&mut self) {
        let _ = rustix::process::setpriority_process(None, self.nice);
    }
}

/// Error for a thread that cannot be started, with the limits to raise.
pub(crate) fn not_started(name: &str, error: &io::Error) -> anyhow::Error {
    anyhow!(
        "thread {name} cannot be started: {error}: allow more (pids.max of the cgroup, kernel.threads-max, ulimit -u, ulimit -v)"
    )
}
