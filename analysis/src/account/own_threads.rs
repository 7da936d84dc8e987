//! The recorder's own threads: their allocations are told from those of others.

use kmemtrace_abi::event::{Context, Event};

/// The recorder's threads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnThreads<'a> {
    /// Thread ids, ascending.
    threads: &'a [i32],
    /// A bit for each remainder of a thread id by 4096: nearly all other threads are told apart without a search, on a machine
    /// of a thousand CPUs, too.
    remainders: [u64; WORDS],
}

const WORDS: usize = 64;

impl<'a> OwnThreads<'a> {
    /// `threads` ascend.
    pub(crate) fn new(threads: &'a [i32]) -> OwnThreads<'a> {
        let mut remainders = [0; WORDS];
        threads.iter().for_each(|&thread| remainders[word(thread)] |= bit(thread));
        OwnThreads { threads, remainders }
    }

    /// True for an allocation that the recorder makes for itself. An interrupt or a softirq on one of its threads works for
    /// others; without flags the context is not known, and the object is not left out.
    #[inline(always)]
    pub(crate) fn allocates(&self, event: &Event) -> bool {
        event.allocates()
            && event.pid.is_some_and(|pid| self.remainders[word(pid)] & bit(pid) != 0 && self.has(pid))
            && event.context() == Some(Context::Task)
    }

    #[cold]
    fn has(&self, pid: i32) -> bool {
        self.threads.binary_search(&pid).is_ok()
    }
}

/// Index of a thread's bit: its word.
#[inline(always)]
fn word(pid: i32) -> usize {
    (pid >> 6) as usize % WORDS
}

/// The thread's bit in that word.
#[inline(always)]
fn bit(pid: i32) -> u64 {
    1 << (pid & 63)
}
