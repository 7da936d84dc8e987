//! The limit on a program's memory that the kernel enforces, behind the one that the program keeps itself.
//!
//! A program meters what it takes for the contents of a file. What it does not meter ends here: the kernel refuses memory beyond the
//! limit, and the program's allocator ends the program in one sentence where it would be aborted otherwise.
//!
//! `limits` has those limits that the caller may have set too low, and `stdout` finds out whether standard output can be written to.

mod allocator;
mod limits;
mod stdout;

use std::sync::OnceLock;

use kmemtrace_abi::memory::{self, Limit};
use kmemtrace_abi::text::size::whole_units;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

pub use allocator::{Allocator, refuse};
pub use limits::{no_signal_for_large_files, raise_open_files, small_stack};
pub use stdout::check_stdout;

/// Bytes beyond the limit: the program's own data, buffers of files, memory that the allocator keeps for later.
const MARGIN: u64 = 64 << 20;
/// Stack of a thread, in bytes, as the standard library has it.
const STACK: u64 = 2 << 20;
/// Threads beside those that share the work: progress, signals, screen.
const OTHER_THREADS: u64 = 8;

/// Sentence of a program that is refused memory.
static SENTENCE: OnceLock<String> = OnceLock::new();

/// Sets the limit of the process, and has the kernel refuse memory beyond it: the limit, a margin, and the stacks of `threads`. Before
/// Linux 4.7 the kernel does not count what is mapped.
///
/// The first call counts: a program keeps its limit.
pub fn set(program: &str, limit: Limit, threads: usize) {
    let stacks = (threads as u64).saturating_add(OTHER_THREADS).saturating_mul(STACK);
    let fence = limit.bytes.saturating_add(MARGIN).saturating_add(stacks);
    let now = getrlimit(Resource::Data);
    let what = "the contents of these files";
    // A limit that the caller has set comes first where it is lower.
    let limits = [("-d", now.current), ("-v", getrlimit(Resource::As).current)];
    let lower = limits.into_iter().find_map(|(option, bytes)| Some((option, bytes.filter(|bytes| *bytes < fence)?)));
    let sentence = match lower {
        Some((option, bytes)) => {
            format!("{what} need more memory than ulimit {option} allows ({}): raise it", whole_units(bytes))
        }
        None => limit.message(what, "", ""),
    };
    if SENTENCE.set(format!("{program}: {sentence}\n")).is_err() {
        return;
    }
    memory::set_limit(limit);
    let lowered = [now.current, now.maximum].map(|bytes| Some(bytes.unwrap_or(u64::MAX).min(fence)));
    // Without it there is still the limit that the program keeps itself.
    let _ = setrlimit(Resource::Data, Rlimit { current: lowered[0], maximum: now.maximum });
}
