//! Limit of open files. A recorder has three of them for each CPU, and takes what it may have; programs that it starts get the caller's
//! limit.

use std::sync::OnceLock;

use rustix::process::{Resource, Rlimit, setrlimit};

/// The caller's limit.
static CALLERS: OnceLock<Rlimit> = OnceLock::new();

/// Raises the limit of open files to the one that the process may set.
pub(crate) fn raise_open_files() {
    let before = kmemtrace_fence::raise_open_files();
    let _ = CALLERS.set(before);
}

/// Starts a program with the caller's limit. A thread that opens a file meanwhile may be refused it, on machines with hundreds of CPUs.
pub(crate) fn with_those_of_the_caller<T>(start: impl FnOnce() -> T) -> T {
    let Some(before) = CALLERS.get() else { return start() };
    let _ = setrlimit(Resource::Nofile, *before);
    let started = start();
    kmemtrace_fence::raise_open_files();
    started
}
