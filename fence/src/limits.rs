//! Limits of the process that its caller may have set too low: open files, and the stack of the first thread.

use std::process::ExitCode;
use std::thread;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Stack of the first thread that is large enough, bytes.
const ENOUGH: u64 = 1 << 20;
/// Stack of the thread that takes its place, bytes: what a first thread usually has.
const STACK: usize = 8 << 20;

/// Raises the limit of open files to the one that the process may set, and returns the earlier one. A trace has a file for each CPU.
pub fn raise_open_files() -> Rlimit {
    let before = getrlimit(Resource::Nofile);
    // Without it there is still the earlier limit.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: before.maximum, maximum: before.maximum });
    before
}

/// Runs the program's work, on a thread with a stack of its own if that of the first thread is small.
pub fn with_stack(work: fn() -> ExitCode) -> ExitCode {
    if getrlimit(Resource::Stack).current.is_none_or(|bytes| bytes >= ENOUGH) {
        return work();
    }
    let started = thread::Builder::new().stack_size(STACK).spawn(work);
    let ended = started.map(thread::JoinHandle::join);
    match ended {
        Ok(Ok(status)) => status,
        // The panic has already printed the reason.
        Ok(Err(_)) => ExitCode::from(101),
        Err(error) => {
            eprintln!("no thread with a larger stack can be started: {error}: raise ulimit -s");
            ExitCode::from(2)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_files_are_as_many_as_the_process_may_have() {
        let before = raise_open_files();
        let now = getrlimit(Resource::Nofile);
        assert_eq!((now.current, now.maximum), (before.maximum, before.maximum));
        assert_eq!(raise_open_files().current, before.maximum);
    }
}
