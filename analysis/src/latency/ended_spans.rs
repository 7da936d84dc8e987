//! Spans that a follower of a trace lists as they end.

use std::collections::HashMap;

use kmemtrace_abi::event::{Names, Span};

use super::request::span_name;
use super::stacks::StackFacts;
use super::sums::{ListedStall, Stall, TaskNumber};
use super::task::{Closed, ShrinkerKey, SpanClass};
use crate::names::threads;
use crate::query::select::Select;

/// Request of a follower: the spans that are listed as they end.
#[derive(Clone, Debug, Default)]
pub struct FollowRequest {
    /// Least duration of a listed span, in nanoseconds.
    pub threshold: u64,
    /// Kinds of listed spans, by the words of documents; all if there is none.
    pub spans: Vec<String>,
    /// Spans of all classes are listed; else stalls.
    pub lists_all: bool,
    /// Listed stalls have the events inside them.
    pub lists_events: bool,
    /// Flush interval of the recorder of a trace that grows, in nanoseconds; `None` for that of a recorder that was not asked for
    /// another one.
    pub flush: Option<u64>,
}

impl FollowRequest {
    fn takes(&self, span: Span, class: SpanClass, total: u64, names: &Names) -> bool {
        let is_asked = || self.spans.iter().any(|asked| asked.as_bytes() == span_name(span, names));
        total >= self.threshold
            && (self.lists_all || class == SpanClass::Stall)
            && (self.spans.is_empty() || is_asked())
    }
}

/// Span that has ended.
#[derive(Clone, Debug)]
pub struct EndedSpan {
    /// Span with its task and call-site.
    pub listed: ListedStall,
    /// Class, as far as the task is known.
    pub class: SpanClass,
    /// Kind of the span around.
    pub parent: Option<Span>,
    /// Shrinker, of a span of one.
    pub shrinker: Option<ShrinkerKey>,
    /// Objects freed by a shrinker.
    pub freed: Option<u64>,
    /// Loss may have touched it.
    pub is_suspect: bool,
    /// Path of the thread's cgroup at its start.
    pub cgroup: Option<Box<[u8]>>,
}

impl EndedSpan {
    /// True where the thread is known and its name is not.
    pub fn lacks_name(&self) -> bool {
        self.listed.comm.is_none() && self.listed.pid.is_some_and(|pid| pid > 0)
    }
}

/// Sums over the spans that were listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndedTotals {
    /// Spans that no loss touches.
    pub count: u64,
    /// Sum of their durations.
    pub total: u64,
    /// Largest duration of them.
    pub max: u64,
    /// Number of spans that loss touches, and the sum of their durations.
    pub suspect: (u64, u64),
}

/// Task of a span.
pub(super) struct TaskFacts<'t> {
    pub(super) number: TaskNumber,
    pub(super) pid: Option<i32>,
    /// Command name at its first event.
    pub(super) comm: Option<&'t [u8]>,
    pub(super) is_daemon: bool,
}

/// Spans that have ended since the caller took them.
pub(super) struct EndedSpans<'a> {
    request: &'a FollowRequest,
    /// Threads of the trace are those of this machine, which has names that the trace does not have yet.
    is_here: bool,
    /// Command names of the trace by thread id.
    pub(super) comms: HashMap<i32, Box<[u8]>>,
    pub(super) spans: Vec<EndedSpan>,
    pub(super) totals: EndedTotals,
}

impl<'a> EndedSpans<'a> {
    pub(super) fn new(request: &'a FollowRequest, is_here: bool, comms: HashMap<i32, Box<[u8]>>) -> EndedSpans<'a> {
        EndedSpans { request, is_here, comms, spans: Vec::new(), totals: EndedTotals::default() }
    }

    /// Command name of a thread: the trace's, which may be older than this machine's present threads, else the present one.
    pub(super) fn comm(&self, pid: Option<i32>) -> Option<Box<[u8]>> {
        let of_trace = pid.and_then(|pid| self.comms.get(&pid)).cloned();
        of_trace.or_else(|| threads::comm(pid.filter(|_| self.is_here)?))
    }

    /// Lists a span of a task, if it was asked for.
    pub(super) fn add(
        &mut self,
        task: &TaskFacts<'_>,
        closed: &Closed,
        is_suspect: bool,
        (stacks, names, select): (&mut StackFacts<'_>, &Names, &Select),
    ) {
        let class = if task.is_daemon { SpanClass::Background } else { closed.class };
        let total = closed.total();
        let call_site = stacks.call_site(closed.stack, names);
        if !self.request.takes(closed.span, class, total, names) || !stacks.takes_site(select, call_site) {
            return;
        }
        let totals = &mut self.totals;
        if is_suspect {
            totals.suspect = (totals.suspect.0 + 1, totals.suspect.1.saturating_add(total));
        } else {
            totals.count += 1;
            (totals.total, totals.max) = (totals.total.saturating_add(total), totals.max.max(total));
        }
        let is_shrinker = closed.span == Span::Shrinker;
        let comm = self.comm(task.pid).or_else(|| task.comm.map(Into::into));
        self.spans.push(EndedSpan {
            listed: ListedStall { stall: Stall::of(task.number, closed), pid: task.pid, comm, call_site },
            class,
            parent: closed.parent,
            shrinker: is_shrinker.then_some(closed.shrinker),
            freed: closed.freed(),
            is_suspect,
            cgroup: None,
        });
    }
}
