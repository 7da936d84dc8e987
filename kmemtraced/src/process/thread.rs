//! Threads of the recorder: their ids, their priority, and the error where one cannot be started.

use std::fmt;
use std::io;

use anyhow::anyhow;
use rustix::io::Errno;
use rustix::thread::CapabilitySet;
use thread_priority::{
    RealtimeThreadSchedulePolicy, ThreadPriority, ThreadSchedulePolicy, set_thread_priority_and_policy,
    thread_native_id,
};

use crate::choices::Priority;

/// Nice level of a raised thread.
const NICE: i32 = -20;

/// Thread id of the caller, in its pid namespace.
pub(crate) fn own_tid() -> i32 {
    rustix::thread::gettid().as_raw_nonzero().get()
}

/// True if no thread has this id any more. A thread that ends in order has told its result before.
pub(crate) fn is_gone(tid: i32) -> bool {
    let pid = rustix::process::Pid::from_raw(tid);
    pid.is_some_and(|pid| matches!(rustix::thread::sched_getaffinity(Some(pid)), Err(Errno::SRCH)))
}

/// Priority that a thread was granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Granted {
    Fifo,
    /// The nice level, and why the kernel refused SCHED_FIFO if that was asked for.
    Nice(i32, Option<String>),
}

impl fmt::Display for Granted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Granted::Fifo => write!(f, "SCHED_FIFO 1"),
            Granted::Nice(level, None) => write!(f, "nice {level}"),
            Granted::Nice(level, Some(refused)) => write!(f, "nice {level}; SCHED_FIFO: {refused}"),
        }
    }
}

/// Raises the priority of the calling thread for as long as it lives. Such a thread must start no process: it would inherit
/// SCHED_FIFO.
pub(crate) fn prioritize(priority: Priority) -> Granted {
    // For SCHED_FIFO, too: it is the level of a thread that the kernel refuses it.
    raise(priority);
    let fifo = ThreadSchedulePolicy::Realtime(RealtimeThreadSchedulePolicy::Fifo);
    let refused = match priority {
        Priority::Fifo => match set_thread_priority_and_policy(thread_native_id(), ThreadPriority::Min, fifo) {
            Ok(()) => return Granted::Fifo,
            Err(error) => Some(refusal(&error)),
        },
        Priority::Nice | Priority::None => None,
    };
    Granted::Nice(nice_level(), refused)
}

/// The kernel's reason to refuse SCHED_FIFO. It answers EPERM to a thread without CAP_SYS_NICE, and to any thread of a cgroup that
/// has no real-time runtime (CONFIG_RT_GROUP_SCHED).
fn refusal(error: &thread_priority::Error) -> String {
    let thread_priority::Error::OS(errno) = error else { return format!("{error:?}") };
    let error = io::Error::from_raw_os_error(*errno);
    let may = rustix::thread::capabilities(None).is_ok_and(|own| own.effective.contains(CapabilitySet::SYS_NICE));
    match error.kind() {
        io::ErrorKind::PermissionDenied if may => "cpu.rt_runtime_us of this cgroup is 0".to_owned(),
        io::ErrorKind::PermissionDenied => "no CAP_SYS_NICE".to_owned(),
        _ => error.to_string(),
    }
}

fn nice_level() -> i32 {
    rustix::process::getpriority_process(None).unwrap_or(0)
}

/// Raises the calling thread to nice level -20 where permitted, and not if `priority` is none. Recording is correct without it, but may
/// lose more.
pub(crate) fn raise(priority: Priority) {
    if priority != Priority::None {
        let _ = rustix::process::setpriority_process(None, NICE);
    }
}

/// Error for a thread that cannot be started, with the limits to raise.
pub(crate) fn not_started(name: &str, error: &io::Error) -> anyhow::Error {
    anyhow!(
        "thread {name} cannot be started: {error}: allow more (pids.max of the cgroup, kernel.threads-max, ulimit -u, ulimit -v, ulimit -d)"
    )
}
