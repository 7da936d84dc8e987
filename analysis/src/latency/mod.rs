//! Time that tasks wait for memory: spans of reclaim, compaction and shrinkers, made of events in order.
//!
//! `task` has the rules of one task's spans, `loss` the gaps that may explain one, `observer` puts both together and adds up in `sums`.
//! Memory grows with rows, not with spans; where stalls are listed, with these.

mod ended_spans;
#[cfg(test)]
mod exact;
mod figures;
mod loss;
mod observer;
mod pass;
mod request;
#[cfg(test)]
mod rules;
mod stacks;
mod sums;
mod task;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use kmemtrace_abi::clock::Unit;
use kmemtrace_abi::event::{Event, Names, Span};
use kmemtrace_abi::kernel::gfp::GfpNames;
use kmemtrace_abi::trace::TraceInfo;

use crate::account::cgroups::Cgroups;
use crate::engine::observe::Observed;
use crate::names::kallsyms::inside_of;
use crate::names::known::KnownNames;
use crate::names::place::NamesReport;
use crate::order::merger::Window;
use crate::order::ordered::Observer;
use crate::query::select::Select;
use ended_spans::EndedSpans;
pub use ended_spans::{EndedSpan, EndedTotals, FollowRequest};
pub use figures::DurationFigures;
pub use observer::FunctionSums;
use observer::LatencyObserver;
pub(crate) use request::span_name;
pub use request::{LatencyRequest, WaitBy};
use stacks::StackFacts;
use sums::LatencySums;
pub use sums::{ListedStall, ShrinkerSums, SpanSums, Stall, WaitKey, WaitSums};
pub use task::{InsideEvent, InsideSpans, ShrinkerKey, SpanClass};

/// Nanoseconds of a microsecond.
const PER_MICROSECOND: u64 = 1000;

/// Time that the tasks of a trace waited for memory.
pub struct Latency {
    /// Totals of the pass.
    pub(crate) observed: Observed,
    /// Facts of the trace.
    pub(crate) info: TraceInfo,
    /// Names of symbols, commands and events.
    pub(crate) names: KnownNames,
    /// Cgroups of the threads; `None` where the recording does not tell them, or the request does not need them.
    pub(crate) cgroups: Option<Cgroups>,
    /// Names of the flags of allocations.
    pub(crate) gfp_names: Option<Arc<GfpNames>>,
    /// The request.
    pub(crate) request: LatencyRequest,
    /// Filters as they were given.
    pub(crate) given: Vec<(&'static str, Vec<String>)>,
    /// Window as order keys.
    pub(crate) window: Option<(u64, u64)>,
    /// Events of the profile that were read.
    pub(crate) events: u64,
    /// Allocations of pages in task context that were read.
    pub(crate) page_allocs: u64,
    /// Calls of timed functions that were read.
    pub(crate) function_calls: u64,
    /// Sleeps of daemons that were not awake.
    pub(crate) sleeps_without_wake: u64,
    /// Kinds of spans, by name.
    pub(crate) spans: Vec<(Span, SpanSums)>,
    /// Number and sum of the spans of a kind below another kind, in a class.
    pub(crate) nesting: Vec<NestingRow>,
    /// Stalls of tasks.
    pub(crate) tasks: Vec<TaskRow>,
    /// Shrinkers.
    pub(crate) shrinkers: Vec<(ShrinkerKey, ShrinkerSums)>,
    /// Waits of allocations.
    pub(crate) waits: Vec<(WaitKey, WaitSums)>,
    /// Timed functions.
    pub(crate) functions: Vec<(u64, FunctionSums)>,
    /// Stalls, in the order of their begins, each with its task and call-site.
    pub(crate) stalls: Vec<ListedStall>,
}

/// Spans of a kind below another kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NestingRow {
    /// Kind of the spans.
    pub span: Span,
    /// Kind of the span around; `None` for none.
    pub parent: Option<Span>,
    /// Class.
    pub class: SpanClass,
    /// Number of spans.
    pub count: u64,
    /// Sum of their durations.
    pub total: u64,
}

/// Stalls of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskRow {
    /// Thread.
    pub pid: Option<i32>,
    /// Command name of the thread.
    pub comm: Option<Box<[u8]>>,
    /// Number of stalls.
    pub count: u64,
    /// Sum of their durations.
    pub total: u64,
    /// Longest one.
    pub max: u64,
}

impl Latency {
    /// Events of reclaim, compaction and shrinkers that were read: 0 where the trace has none.
    pub fn reclaim_events(&self) -> u64 {
        self.events.saturating_sub(self.function_calls)
    }

    /// Totals of the pass.
    pub fn observed(&self) -> &Observed {
        &self.observed
    }

    /// Origin of the names of call-sites, and the files of names that are left out.
    pub fn names_report(&self) -> NamesReport {
        self.names.report()
    }

    /// Folders and files of the call-sites that a filter by branch was asked about, ascending; `None` where there was no such call-site.
    pub fn source_paths(&self) -> Option<&BTreeSet<Box<[u8]>>> {
        (!self.names.places.is_unused()).then_some(&self.observed.source_paths)
    }

    /// Calls of timed functions that were read, whether the filters take them or not.
    pub fn function_calls(&self) -> u64 {
        self.function_calls
    }

    /// Allocations of pages in task context that were read, whether the filters take them or not.
    pub fn page_allocations(&self) -> u64 {
        self.page_allocs
    }

    /// True where the filters take a call of a timed function.
    pub fn has_functions(&self) -> bool {
        !self.functions.is_empty()
    }

    /// True where the filters take an allocation of pages.
    pub fn has_waits(&self) -> bool {
        !self.waits.is_empty()
    }

    /// True where order keys count nanoseconds, so that durations are known.
    pub fn has_durations(&self) -> bool {
        self.info.keys().unit == Unit::Nanoseconds
    }
}

/// Pass over the events in order, with the observer of a request.
pub(crate) struct Pass<'a> {
    observer: LatencyObserver<'a>,
}

impl<'a> Pass<'a> {
    /// Pass over a trace with these facts and names.
    pub(crate) fn new(
        request: &'a LatencyRequest,
        select: &'a Select,
        names: &'a KnownNames,
        info: &TraceInfo,
    ) -> Pass<'a> {
        let per_microsecond = if info.keys().unit == Unit::Nanoseconds { PER_MICROSECOND } else { 0 };
        Pass { observer: LatencyObserver::new(request, select, StackFacts::new(names), per_microsecond) }
    }

    /// The pass with the cgroups of the threads, which filters and keys go by.
    pub(crate) fn with_cgroups(mut self, cgroups: Option<&'a Cgroups>) -> Pass<'a> {
        self.observer.cgroups = cgroups;
        self
    }

    pub(crate) fn observer(&mut self) -> &mut dyn Observer {
        &mut self.observer
    }

    /// Lists spans as they end, from now on. `is_here`: the threads of the trace are those of this machine; `comms` are the
    /// command names of the trace.
    pub(crate) fn follow(&mut self, request: &'a FollowRequest, is_here: bool, comms: HashMap<i32, Box<[u8]>>) {
        self.observer.ended = Some(EndedSpans::new(request, is_here, comms));
    }

    /// Adds command names.
    pub(crate) fn add_comms(&mut self, comms: HashMap<i32, Box<[u8]>>) {
        if let Some(ended) = &mut self.observer.ended {
            ended.comms.extend(comms);
        }
    }

    /// Takes the events of a window, and its gaps. `first` is the first key of the trace.
    pub(crate) fn take(&mut self, window: &Window<Event>, first: u64, names: &Names) {
        for gap in &window.gaps {
            let (from, to) = gap.ends(first);
            self.observer.gap_ahead(from, to);
        }
        for event in &window.events {
            self.observer.event(event, names, None);
        }
        self.observer.settle_before(window.complete_until.unwrap_or(u64::MAX), names);
    }

    /// Takes a gap that is not one of a window.
    pub(crate) fn gap(&mut self, from: u64, to: u64) {
        self.observer.gap_ahead(from, to);
    }

    /// Adds what has ended, at the end of the events.
    pub(crate) fn settle(&mut self, names: &Names) {
        self.observer.settle_before(u64::MAX, names);
    }

    /// Command name of a thread of a span that has ended.
    pub(crate) fn comm(&self, pid: Option<i32>) -> Option<Box<[u8]>> {
        self.observer.ended.as_ref()?.comm(pid)
    }

    /// Takes off the spans that have ended since the last call.
    pub(crate) fn take_ended(&mut self) -> Vec<EndedSpan> {
        self.observer.ended.as_mut().map_or_else(Vec::new, |ended| std::mem::take(&mut ended.spans))
    }

    /// Sums over the spans that were listed.
    pub(crate) fn ended_totals(&self) -> EndedTotals {
        self.observer.ended.as_ref().map_or_else(EndedTotals::default, |ended| ended.totals)
    }

    /// Rows of all that was taken; `is_late`: loss came to light at the end that may touch each span.
    pub(crate) fn finish(mut self, names: &Names, is_late: bool) -> LatencyRows {
        let observer = &mut self.observer;
        observer.finish(names);
        let mut sums = std::mem::take(&mut observer.sums);
        if is_late {
            sums.suspect_all();
        }
        let LatencySums { spans, nesting, tasks, shrinkers, waits, stalls } = sums;
        let is_daemon = |task: u32| observer.tasks.get(task as usize).is_some_and(|task| task.is_daemon);
        let mut classes: HashMap<(Span, Option<Span>, SpanClass), (u64, u64)> = HashMap::new();
        for ((task, span, parent, class), (count, total)) in nesting {
            let class = if is_daemon(task) { SpanClass::Background } else { class };
            let row = classes.entry((span, parent, class)).or_default();
            *row = (row.0 + count, row.1.saturating_add(total));
        }
        let nesting = classes.into_iter();
        let nesting =
            nesting.map(|((span, parent, class), (count, total))| NestingRow { span, parent, class, count, total });
        // The idle tasks of all CPUs are one row.
        let mut by_pid: HashMap<Option<i32>, TaskRow> = HashMap::new();
        for (task, (count, total, max)) in tasks.into_iter().filter(|(task, _)| !is_daemon(*task)) {
            let Some(task) = observer.tasks.get(task as usize) else { continue };
            let new = || TaskRow { pid: task.pid, comm: task.comm.clone(), count: 0, total: 0, max: 0 };
            let row = by_pid.entry(task.pid).or_insert_with(new);
            row.count += count;
            row.total = row.total.saturating_add(total);
            row.max = row.max.max(max);
        }
        let (nesting, tasks) = (nesting.collect(), by_pid.into_values().collect());
        let mut listed = Vec::new();
        for stall in stalls.into_iter().filter(|stall| !is_daemon(stall.task)) {
            let call_site = observer.stacks.call_site(stall.stack, names);
            if !observer.stacks.takes_site(observer.select, call_site) {
                continue;
            }
            let Some(task) = observer.tasks.get(stall.task as usize) else { continue };
            listed.push(ListedStall { pid: task.pid, comm: task.comm.clone(), call_site, stall });
        }
        let functions = std::mem::take(&mut observer.functions);
        let takes_function = |function| observer.stacks.takes_function(observer.select, function);
        LatencyRows {
            events: observer.events,
            page_allocs: observer.page_allocs,
            function_calls: observer.function_calls,
            sleeps_without_wake: observer.sleeps_without_wake,
            spans: spans.into_iter().collect(),
            nesting,
            tasks,
            shrinkers: shrinkers.into_iter().filter(|(key, _)| takes_function(key.function)).collect(),
            waits: waits.into_iter().collect(),
            functions: functions.into_iter().filter(|(function, _)| takes_function(*function)).collect(),
            stalls: listed,
        }
    }
}

/// Rows of a pass, in no order.
pub(crate) struct LatencyRows {
    events: u64,
    page_allocs: u64,
    function_calls: u64,
    sleeps_without_wake: u64,
    spans: Vec<(Span, SpanSums)>,
    nesting: Vec<NestingRow>,
    tasks: Vec<TaskRow>,
    shrinkers: Vec<(ShrinkerKey, ShrinkerSums)>,
    waits: Vec<(WaitKey, WaitSums)>,
    functions: Vec<(u64, FunctionSums)>,
    stalls: Vec<ListedStall>,
}

impl LatencyRows {
    /// The answer, its rows in order: by total, then by name, address and node.
    pub(crate) fn answer(
        self,
        (observed, info, names): (Observed, TraceInfo, KnownNames),
        (gfp_names, cgroups): (Option<Arc<GfpNames>>, Option<Cgroups>),
        request: LatencyRequest,
        given: Vec<(&'static str, Vec<String>)>,
        window: Option<(u64, u64)>,
    ) -> Latency {
        let LatencyRows {
            mut spans, mut nesting, mut tasks, mut shrinkers, mut waits, mut functions, mut stalls, ..
        } = self;
        let trace_names = &names.trace_names;
        let name = |span: Span| span_name(span, trace_names);
        // Where no duration is known, none decides the order.
        let counts_time = info.keys().unit == Unit::Nanoseconds;
        let total = |total: u64| if counts_time { total } else { 0 };
        let by_total = |a: u64, b: u64| total(b).cmp(&total(a));
        spans.sort_by(|(a, x), (b, y)| by_total(x.figures.total, y.figures.total).then(name(*a).cmp(name(*b))));
        let parent = |row: &NestingRow| row.parent.map(|parent| name(parent).to_vec());
        nesting.sort_by(|a, b| {
            let by_name = || (name(a.span), parent(a), a.class).cmp(&(name(b.span), parent(b), b.class));
            by_total(a.total, b.total).then_with(by_name)
        });
        tasks.sort_by(|a, b| by_total(a.total, b.total).then_with(|| (&a.comm, a.pid).cmp(&(&b.comm, b.pid))));
        let symbol = |address: u64| names.symbols().lookup(inside_of(address)).map(|symbol| symbol.name);
        shrinkers.sort_by(|(a, x), (b, y)| {
            by_total(x.figures.total, y.figures.total)
                .then_with(|| (symbol(a.function), a).cmp(&(symbol(b.function), b)))
        });
        let site =
            |key: &WaitKey| key.call_site.and_then(|site| names.symbols().lookup(site)).map(|symbol| symbol.text());
        let comm = |key: &WaitKey| key.pid.and_then(|pid| names.comms.get(&pid));
        let gfp = |key: &WaitKey| key.gfp.and_then(|flags| Some(gfp_names.as_deref()?.text(flags).to_string()));
        let cgroup = |key: &WaitKey| key.cgroup.and_then(|number| cgroups.as_ref()?.path_of(number));
        waits.sort_by(|(a, x), (b, y)| {
            let by_name = || (site(a), comm(a), gfp(a), cgroup(a)).cmp(&(site(b), comm(b), gfp(b), cgroup(b)));
            let by_count = || y.figures.count.cmp(&x.figures.count);
            by_total(x.figures.total, y.figures.total).then_with(by_count).then_with(by_name).then_with(|| a.cmp(b))
        });
        functions.sort_by(|(a, x), (b, y)| {
            by_total(x.figures.total, y.figures.total).then_with(|| (symbol(*a), a).cmp(&(symbol(*b), b)))
        });
        stalls.sort_by_key(|listed| (listed.stall.begin, listed.pid, listed.stall.end));
        Latency {
            cgroups,
            observed,
            info,
            gfp_names,
            request,
            given,
            window,
            events: self.events,
            page_allocs: self.page_allocs,
            function_calls: self.function_calls,
            sleeps_without_wake: self.sleeps_without_wake,
            spans,
            nesting,
            tasks,
            shrinkers,
            waits,
            functions,
            stalls,
            names,
        }
    }
}
