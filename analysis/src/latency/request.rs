//! Request for the time that tasks wait for memory.

use kmemtrace_abi::event::{Names, Span};

use crate::account::cgroups::Cgroups;
use crate::query::select::Select;

/// Request: the spans that count, and details to keep.
#[derive(Clone, Debug, Default)]
pub struct LatencyRequest {
    /// Least duration of a span, a wait or a call of a function, in nanoseconds.
    pub threshold: u64,
    /// Kinds of spans, by the words of documents; all if there is none.
    pub spans: Vec<String>,
    /// Spans inside a span of such a kind count, too, and so do calls of functions that end inside one.
    pub takes_inside: bool,
    /// Stalls are listed.
    pub lists_stalls: bool,
    /// The query's filters by call-site choose among spans: by the call-site of the outermost span around each, which needs its stack.
    pub by_call_site: bool,
    /// Listed stalls have the events inside them.
    pub lists_events: bool,
    /// Keys of rows of waits; none: the call-site.
    pub waits_by: Vec<WaitBy>,
}

/// Key of a row of waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitBy {
    /// Call-site, by the stack.
    Site,
    /// Thread.
    Task,
    /// Binary logarithm of the number of pages.
    Order,
    /// Flags of the allocation.
    Gfp,
    /// Cgroup of the thread.
    Cgroup,
}

impl WaitBy {
    /// Word of documents.
    pub fn name(self) -> &'static str {
        match self {
            WaitBy::Site => "site",
            WaitBy::Task => "task",
            WaitBy::Order => "order",
            WaitBy::Gfp => "gfp",
            WaitBy::Cgroup => "cgroup",
        }
    }
}

impl LatencyRequest {
    /// Keys of rows of waits.
    pub(crate) fn wait_keys(&self) -> &[WaitBy] {
        if self.waits_by.is_empty() { &[WaitBy::Site] } else { &self.waits_by }
    }

    pub(super) fn has_key(&self, key: WaitBy) -> bool {
        self.wait_keys().contains(&key)
    }

    /// True for a span of a kind that counts.
    pub(super) fn takes_span(&self, span: Span, names: &Names) -> bool {
        let name = span_name(span, names);
        self.spans.is_empty() || self.spans.iter().any(|asked| asked.as_bytes() == name)
    }

    /// True for a duration that counts.
    pub(super) fn takes_duration(&self, duration: u64) -> bool {
        duration >= self.threshold
    }
}

/// True for a thread that the filters take.
pub(super) fn takes_task(select: &Select, pid: Option<i32>, comm: Option<&[u8]>) -> bool {
    select.matches_pid(pid) && select.matches_comm(comm)
}

/// True for a thread whose cgroup at the order key `at` the filters take.
pub(super) fn takes_cgroup(select: &Select, cgroups: Option<&Cgroups>, pid: Option<i32>, at: u64) -> bool {
    select.cgroup.is_empty() || select.matches_cgroup(cgroups.zip(pid).and_then(|(cgroups, pid)| cgroups.path(pid, at)))
}

/// Name of a kind of span: its word, else the name of its events without their last part.
pub(crate) fn span_name(span: Span, names: &Names) -> &[u8] {
    match span {
        Span::Named(name) => names.get(name),
        other => other.name().unwrap_or_default().as_bytes(),
    }
}
