//! Threads of the recorder: their ids, their priority, and the error where one cannot be started.

use std::io;

use anyhow::anyhow;

/// Thread id of the caller, in its pid namespace.
pub(crate) fn own_tid() -> i32 {
    rustix::thread::gettid().as_raw_nonzero().get()
}

/// The calling thread runs before those of others, until this is dropped. Recording is right without it.
pub(crate) struct HighPriority {
    nice: i32,
}

impl HighPriority {
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

/// The error of a thread that cannot be had.
pub(crate) fn not_started(name: &str, error: &io::Error) -> anyhow::Error {
    anyhow!(
        "thread {name} cannot be started: {error}: allow more (pids.max of the cgroup, kernel.threads-max, ulimit -u, ulimit -v)"
    )
}
