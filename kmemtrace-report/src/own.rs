//! The recorder's own allocations: told from those of others by the thread and the context of their events.

use kmemtrace_abi::event::{Action, Context, Event, Names};

use crate::decode::Filter;

/// The recorder's threads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnThreads<'a> {
    /// Thread ids, ascending.
    threads: &'a [i32],
    /// A bit for each remainder of a thread id by 64: most other threads are told apart without a search.
    remainders: u64,
}

impl<'a> OwnThreads<'a> {
    /// `threads` ascend.
    pub(crate) fn new(threads: &'a [i32]) -> OwnThreads<'a> {
        let remainders = threads.iter().fold(0, |bits, &thread| bits | bit(thread));
        OwnThreads { threads, remainders }
    }

    /// Whether an event is an allocation that the recorder makes for itself. An interrupt or a softirq on one of its threads
    /// works for others; without flags the context is not known, and the object is not left out.
    #[inline(always)]
    fn allocates(&self, event: &Event) -> bool {
        matches!(event.action, Action::Alloc(_))
            && event.pid.is_some_and(|pid| self.remainders & bit(pid) != 0 && self.has(pid))
            && event.context() == Some(Context::Task)
    }

    #[cold]
    fn has(&self, pid: i32) -> bool {
        self.threads.binary_search(&pid).is_ok()
    }
}

#[inline(always)]
fn bit(pid: i32) -> u64 {
    1 << (pid & 63)
}

/// A filter that knows the recorder's own allocations, and takes them only where they are shown.
#[derive(Clone)]
pub(crate) struct ButOwn<'a, F> {
    pub(crate) filter: F,
    pub(crate) own: OwnThreads<'a>,
    pub(crate) shows_own: bool,
}

impl<F: Filter> Filter for ButOwn<'_, F> {
    const FLAGS: bool = true;

    #[inline(always)]
    fn takes(&mut self, event: &Event, names: &Names) -> bool {
        (self.shows_own || !self.is_own(event)) && self.filter.takes(event, names)
    }

    #[inline(always)]
    fn is_own(&self, event: &Event) -> bool {
        self.own.allocates(event)
    }
}
