//! The time window of a query, put onto a trace.

use std::cell::Cell;

use crate::query::time::TimeWindow;

/// A window with what resolves it: the order keys of a second, and the last key of the trace.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AskedWindow<'a> {
    pub(crate) window: TimeWindow,
    /// Order keys in a second; 1 where keys are no times.
    pub(crate) units: u64,
    /// Last key of the trace; only windows that count from the end need it.
    pub(crate) last: u64,
    /// Takes the first key of the trace.
    pub(crate) first: &'a Cell<u64>,
}

impl AskedWindow<'_> {
    /// Order keys from and to, both included, in a trace whose first key is `first`.
    pub(crate) fn resolve(self, first: u64) -> (u64, u64) {
        self.first.set(first);
        self.window.resolve_in(first, self.last, self.units)
    }
}
