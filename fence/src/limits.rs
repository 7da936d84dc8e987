//! Limits of the process that its caller may have set too low: open files, the size of a file, and the stack.

use std::process::ExitCode;
use std::sync::Arc;

use libc::SIGXFSZ;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Smallest stack of the first thread that is enough for the programs, bytes. Frames of a debug build are larger.
const ENOUGH: u64 = if cfg!(debug_assertions) { 1 << 20 } else { 512 << 10 };
/// Exit status of a program that cannot begin.
const UNUSABLE: u8 = 2;

/// Raises the limit of open files to the one that the process may set. A trace has a file for each CPU.
pub fn raise_open_files() {
    let before = getrlimit(Resource::Nofile);
    // Without it there is still the earlier limit.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: before.maximum, maximum: before.maximum });
}

/// Has a write beyond the limit of a file's size fail, as on a full disk, where the kernel would end the process with a signal.
pub fn no_signal_for_large_files() {
    // Without it the process ends as before.
    let _ = signal_hook::flag::register(SIGXFSZ, Arc::default());
}

/// Prints a sentence if the stack of the first thread is too small for the program, which the kernel would kill otherwise; returns the
/// exit status then.
pub fn small_stack(program: &str) -> Option<ExitCode> {
    let kib = getrlimit(Resource::Stack).current.filter(|bytes| *bytes < ENOUGH)? >> 10;
    let enough = ENOUGH >> 10;
    eprintln!("{program}: a stack of {kib} KiB is too small: allow at least {enough} KiB (ulimit -s 8192)");
    Some(ExitCode::from(UNUSABLE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_files_are_as_many_as_the_process_may_have() {
        let before = getrlimit(Resource::Nofile);
        raise_open_files();
        let now = getrlimit(Resource::Nofile);
        assert_eq!((now.current, now.maximum), (before.maximum, before.maximum));
        assert!(small_stack("a test").is_none());
    }
}
