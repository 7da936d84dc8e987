//! Options of opening a trace.

use std::path::PathBuf;

/// Events that a caller is after, where an input has several ring buffers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wanted {
    /// Allocations and frees.
    #[default]
    Objects,
    /// Waits for memory: reclaim and compaction.
    Waits,
    /// Calls of functions.
    Calls,
}

#[cfg(feature = "inputs")]
impl Wanted {
    /// These events, then the others.
    pub(crate) fn order(self) -> [Wanted; 3] {
        match self {
            Wanted::Objects => [Wanted::Objects, Wanted::Waits, Wanted::Calls],
            Wanted::Waits => [Wanted::Waits, Wanted::Objects, Wanted::Calls],
            Wanted::Calls => [Wanted::Calls, Wanted::Objects, Wanted::Waits],
        }
    }

    /// Systems of these events.
    pub(crate) fn systems(self) -> &'static [&'static str] {
        match self {
            Wanted::Objects => crate::kernel::profile::SYSTEMS,
            Wanted::Waits => &["vmscan", "compaction"],
            Wanted::Calls => &["ftrace"],
        }
    }
}

/// Wishes of the caller: `released`, `alike`, `at_free_before`, and those behind `page_bytes`, are for texts that list what is live at one
/// moment, the others for texts of events.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    /// Memory that was given back is read, too.
    pub released: bool,
    /// Allocations that differ in time and address alone may be handed over with the time and the address of the oldest of them,
    /// so that memory goes by distinct stacks. Counts and sums are the same.
    pub alike: bool,
    /// With `alike`: threads and their names are left out, so that allocations of different threads are alike.
    pub without_threads: bool,
    /// With `alike`: stacks are left out where the text itself tells the kind, so that allocations of different stacks are alike.
    pub without_stacks: bool,
    /// Events stand at the time at which the memory's owner before gave it back, in place of the allocation's.
    pub at_free_before: bool,
    /// Name of the ring buffer that is read, of an input that has several; the main one has none.
    pub buffer: Option<String>,
    /// Events that the ring buffer should have, where none is named.
    pub wanted: Wanted,
    /// Release of the kernel that the text is of.
    pub release: Option<String>,
    /// Trace clock of the text's times, as the kernel's `trace_clock` names it.
    pub clock: Option<String>,
    /// A trace of the same boot, or its tracefs's directory `events`, whose formats a `perf.data` takes that perf has not finished.
    pub event_formats: Option<PathBuf>,
    /// Bytes of a page.
    pub page_bytes: Option<u64>,
    /// Form of a text of one moment, where its content does not tell it.
    pub form: Option<String>,
    /// Cache that a text of one moment is of.
    pub cache_name: Option<String>,
    /// Bytes of each object of that cache.
    pub object_size: Option<u64>,
    /// Time of each text of a series, in the order of their names or of the texts in one file.
    pub times: Vec<i64>,
    /// Member of an archive, or one of several texts: the end of its name.
    pub member: Option<String>,
    /// Number of an OOM report among several, from 1.
    pub report_number: Option<usize>,
    /// True for a text that is read, by its input and its form (`"slabinfo"`, `"slabtop"`), where there are texts of several kinds.
    pub takes: Option<fn(&str, &str) -> bool>,
    /// The texts that the trace is opened by are kept, for a writer of another container.
    pub texts: bool,
}
