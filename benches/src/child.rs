//! Resources of a command, as the kernel counts them: the only unsafe code of the benchmarks.

#![expect(unsafe_code, reason = "no safe function returns the resources of one child")]

use std::mem::MaybeUninit;
use std::process::{Command, Stdio};
use std::time::Instant;

/// Resources of one run.
#[derive(Clone, Copy, Debug)]
pub struct Usage {
    /// Seconds from start to end.
    pub seconds: f64,
    /// Seconds of processors, in the program and in the kernel for it.
    pub cpu_seconds: f64,
    /// Greatest resident memory, bytes: at least that of this process, because the child is a copy of it for a moment.
    pub peak_bytes: u64,
}

/// Runs a command without its output.
#[expect(clippy::zombie_processes, reason = "wait4 waits for the child")]
pub fn usage(command: &mut Command) -> Usage {
    let start = Instant::now();
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn();
    let child = child.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (mut status, mut usage) = (0, MaybeUninit::<libc::rusage>::zeroed());
    // SAFETY: both pointers are valid for writes during the call, and no other thread waits for this child.
    let ended = unsafe { libc::wait4(child.id().cast_signed(), &raw mut status, 0, usage.as_mut_ptr()) };
    let seconds = start.elapsed().as_secs_f64();
    assert!(ended > 0 && status == 0, "{command:?} ended with {status}");
    // SAFETY: zeros are a valid `rusage`, and the kernel has filled it in.
    let usage = unsafe { usage.assume_init() };
    let of = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    let peak_bytes = u64::try_from(usage.ru_maxrss).unwrap_or(0) * 1024;
    Usage { seconds, cpu_seconds: of(usage.ru_utime) + of(usage.ru_stime), peak_bytes }
}
