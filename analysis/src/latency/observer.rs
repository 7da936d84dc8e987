//! Observer of ordered events that makes spans, and sums of them.

use std::ops::ControlFlow;

use foldhash::HashMap;
use kmemtrace_abi::event::{Action, Context, Event, Kind, Mark, Names, Span};

use super::ended_spans::{EndedSpans, TaskFacts};
use super::figures::DurationFigures;
use super::loss::GapReach;
use super::request::{LatencyRequest, WaitBy, takes_cgroup, takes_task};
use super::stacks::StackFacts;
use super::sums::{LatencySums, TaskNumber, WaitKey};
use super::task::{Closed, Outcome, TaskSpans};
use crate::account::cgroups::Cgroups;
use crate::order::ordered::Observer;
use crate::order::ordered::OrderedItem;
use crate::query::select::Select;

/// Task with its spans, and sums that its next event of reclaim decides on.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) pid: Option<i32>,
    pub(super) comm: Option<Box<[u8]>>,
    /// A daemon's wake or sleep is in the trace.
    pub(super) is_daemon: bool,
    is_taken: bool,
    spans: TaskSpans,
    /// Waits since the last allocation of pages: durations that are certain, and those that are not decided on.
    waits: [Option<u64>; 2],
    /// Sums if the spans that are not decided on count, and if loss touches them.
    held: Option<Box<[LatencySums; 2]>>,
}

/// Span or allocation that ended at the last key: gaps that begin at this key may not be known yet.
#[derive(Debug)]
struct Recent {
    task: TaskNumber,
    end: u64,
    what: RecentKind,
}

#[derive(Debug)]
enum RecentKind {
    /// Span; the task's next event of reclaim is: `Some(true)`, an end without a start.
    Span(Box<Closed>, Option<bool>),
    Allocation(Option<WaitKey>),
}

/// Observer.
pub(super) struct LatencyObserver<'a> {
    pub(super) request: &'a LatencyRequest,
    pub(super) select: &'a Select,
    pub(super) stacks: StackFacts<'a>,
    /// Cgroups of the threads, where they are asked for and known.
    pub(super) cgroups: Option<&'a Cgroups>,
    /// Key units of a microsecond; 0 where keys are no nanoseconds.
    pub(super) per_microsecond: u64,
    pub(super) tasks: Vec<Task>,
    numbers: HashMap<(i32, u32), TaskNumber>,
    gaps: GapReach,
    recent: Vec<Recent>,
    pub(super) sums: LatencySums,
    pub(super) functions: HashMap<u64, FunctionSums>,
    pub(super) sleeps_without_wake: u64,
    /// Spans as they end, where the caller follows the trace.
    pub(super) ended: Option<EndedSpans<'a>>,
    /// Events of the profile.
    pub(super) events: u64,
    /// Allocations of pages in task context.
    pub(super) page_allocs: u64,
    /// Calls of timed functions.
    pub(super) function_calls: u64,
}

/// Calls of a function; durations where the kernel gives them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FunctionSums {
    /// Calls.
    pub count: u64,
    /// Durations; `count` is that of calls with a duration.
    pub figures: DurationFigures,
}

impl<'a> LatencyObserver<'a> {
    pub(super) fn new(
        request: &'a LatencyRequest,
        select: &'a Select,
        stacks: StackFacts<'a>,
        per_microsecond: u64,
    ) -> LatencyObserver<'a> {
        LatencyObserver {
            request,
            select,
            stacks,
            cgroups: None,
            per_microsecond,
            tasks: Vec::new(),
            numbers: HashMap::default(),
            gaps: GapReach::default(),
            recent: Vec::new(),
            sums: LatencySums::default(),
            functions: HashMap::default(),
            sleeps_without_wake: 0,
            ended: None,
            events: 0,
            page_allocs: 0,
            function_calls: 0,
        }
    }

    /// Number of the task of an event; the idle tasks of CPUs share a thread id.
    fn task(&mut self, event: &Event, comm: Option<&[u8]>) -> TaskNumber {
        let pid = event.pid.unwrap_or(0);
        let key = (pid, if pid == 0 { event.cpu } else { 0 });
        let next = self.tasks.len() as TaskNumber;
        let number = *self.numbers.entry(key).or_insert(next);
        if number == next {
            let comm: Option<Box<[u8]>> = match &self.ended {
                Some(ended) => ended.comm(event.pid),
                None => comm.map(Into::into),
            };
            let is_taken = takes_task(self.select, event.pid, comm.as_deref());
            let spans = TaskSpans::default();
            let task = Task { pid: event.pid, comm, is_daemon: false, is_taken, spans, waits: [None; 2], held: None };
            self.tasks.push(task);
        }
        number
    }

    pub(super) fn event(&mut self, event: &Event, names: &Names, comm: Option<&[u8]>) {
        if self.recent.first().is_some_and(|recent| recent.end < event.at) {
            self.settle(names);
        }
        let is_page_alloc = event.action == Action::Alloc(Kind::Pages);
        if event.mark == Mark::None && !is_page_alloc && !self.request.lists_events {
            return;
        }
        self.events += u64::from(event.mark != Mark::None);
        if event.mark == Mark::Function {
            self.function_calls += 1;
            self.function(event, names, comm);
            if !self.request.lists_events {
                return;
            }
        }
        let number = self.task(event, comm);
        let Some(task) = self.tasks.get_mut(number as usize) else { return };
        let in_task = event.context().is_none_or(|context| context == Context::Task);
        if self.request.lists_events {
            task.spans.keep(event, || names.fields.get(event.fields?).cloned());
        }
        if !in_task {
            return;
        }
        if is_page_alloc {
            task.spans.end_attempt();
            self.page_allocs += 1;
            if task.spans.is_idle() && task.is_taken {
                let key = self.wait_key(event, names);
                self.recent.push(Recent { task: number, end: event.at, what: RecentKind::Allocation(key) });
            }
            return;
        }
        let outcome = match event.mark {
            Mark::Begin(span) => {
                let is_charge = span != Span::Memcg || self.stacks.is_charge(event.stack, names);
                task.is_daemon |= matches!(span, Span::Kswapd | Span::Kcompactd);
                task.spans.begin(span, event, is_charge)
            }
            Mark::End(span) => {
                task.is_daemon |= matches!(span, Span::Kswapd | Span::Kcompactd);
                task.spans.end(span, event)
            }
            Mark::Throttled => match event.value {
                Some(delayed) => {
                    let delayed = u64::try_from(delayed).unwrap_or(0);
                    task.spans.throttled(event, delayed.saturating_mul(self.per_microsecond))
                }
                None => TaskSpans::throttled_somehow(),
            },
            Mark::CompactionAttempt => return task.spans.attempt(event),
            Mark::None | Mark::Function | Mark::Beside => return,
        };
        self.take(number, event, outcome, names);
    }

    /// Takes the result of an event: spans that ended, and ends that were lost.
    fn take(&mut self, number: TaskNumber, event: &Event, outcome: Outcome, names: &Names) {
        let Some(task) = self.tasks.get_mut(number as usize) else { return };
        let is_taken = task.is_taken && takes_cgroup(self.select, self.cgroups, task.pid, event.at);
        let counts = |span: Span| is_taken && self.request.takes_span(span, names);
        for span in outcome.unfinished.iter().filter(|span| counts(**span)) {
            self.sums.spans.entry(*span).or_default().unfinished += 1;
        }
        if let Some(span) = outcome.unstarted.filter(|span| counts(*span)) {
            self.sums.spans.entry(span).or_default().unstarted += 1;
        }
        self.sleeps_without_wake += u64::from(outcome.slept && is_taken);
        if let Some(is_unstarted) = outcome.reclaim {
            for recent in self.recent.iter_mut().filter(|recent| recent.task == number) {
                if let RecentKind::Span(_, next @ None) = &mut recent.what {
                    *next = Some(is_unstarted);
                }
            }
            let [certain, undecided] = &mut task.waits;
            if let Some(undecided) = undecided.take().filter(|_| !is_unstarted) {
                *certain = Some(certain.unwrap_or(0).saturating_add(undecided));
            }
            if let Some(held) = task.held.take() {
                let [clean, suspect] = *held;
                self.sums.merge(if is_unstarted { suspect } else { clean });
            }
        }
        if let Some(mut closed) = outcome.closed {
            closed.is_inside = self.request.takes_inside && task.spans.is_inside(counts);
            // The event that ends a span of reclaim is no event after it.
            let next = (closed.may_be_misplaced() && task.spans.reclaim_events() > closed.mark.number).then_some(false);
            self.recent.push(Recent { task: number, end: event.at, what: RecentKind::Span(closed, next) });
        }
    }

    /// Adds what ended before `key`, where all gaps that begin before it are known.
    pub(super) fn settle_before(&mut self, key: u64, names: &Names) {
        if self.recent.first().is_some_and(|recent| recent.end < key) {
            self.settle(names);
        }
    }

    /// Adds what ended at the last key, now that all gaps up to it are known.
    fn settle(&mut self, names: &Names) {
        let mut recent = std::mem::take(&mut self.recent);
        for Recent { task, end, what } in recent.drain(..) {
            match what {
                RecentKind::Span(closed, next) => self.add(task, end, &closed, next, names),
                RecentKind::Allocation(Some(key)) => self.add_wait(task, key),
                RecentKind::Allocation(None) => self.pass_wait(task),
            }
        }
        self.recent = recent;
    }

    fn add(&mut self, number: TaskNumber, end: u64, closed: &Closed, next: Option<bool>, names: &Names) {
        let Some(task) = self.tasks.get_mut(number as usize) else { return };
        let reach = self.gaps.until(end);
        let is_touched = reach.is_some_and(|reach| reach >= closed.exposed_from);
        let may_be_misplaced = closed.may_be_misplaced();
        let since = |reach: u64| closed.mark.last.is_none_or(|last| reach > last);
        let is_suspect = is_touched || may_be_misplaced && (reach.is_some_and(since) || next == Some(true));
        let is_held = may_be_misplaced && !is_suspect && next.is_none();
        let is_wait = matches!(closed.span, Span::Direct | Span::Node) || closed.is_attempted;
        if is_wait && !is_suspect && self.request.takes_span(closed.span, names) {
            let wait = &mut task.waits[usize::from(is_held)];
            *wait = Some(wait.unwrap_or(0).saturating_add(closed.total()));
        }
        let is_taken = task.is_taken && takes_cgroup(self.select, self.cgroups, task.pid, closed.begin);
        if let Some(ended) = self.ended.as_mut().filter(|_| is_taken) {
            let Task { pid, comm, is_daemon, .. } = task;
            let facts = TaskFacts { number, pid: *pid, comm: comm.as_deref(), is_daemon: *is_daemon };
            ended.add(&facts, closed, is_suspect, (&mut self.stacks, names, self.select));
        }
        let request = self.request;
        let is_of_kind = closed.is_inside || request.takes_span(closed.span, names);
        if !is_taken || !is_of_kind || !request.takes_duration(closed.total()) {
            return;
        }
        if request.by_call_site && !self.stacks.takes_stack(self.select, closed.outer_stack, names) {
            return;
        }
        if is_held {
            let [clean, suspect] = &mut **task.held.get_or_insert_default();
            clean.add(number, closed, request.lists_stalls);
            suspect.add_suspect(closed);
        } else if is_suspect {
            self.sums.add_suspect(closed);
        } else {
            self.sums.add(number, closed, request.lists_stalls);
        }
    }

    /// Takes off the wait of an allocation that is not shown.
    fn pass_wait(&mut self, number: TaskNumber) {
        if let Some(task) = self.tasks.get_mut(number as usize) {
            task.waits = Default::default();
        }
    }

    fn add_wait(&mut self, number: TaskNumber, key: WaitKey) {
        let Some(task) = self.tasks.get_mut(number as usize) else { return };
        self.sums.waits.entry(key).or_default().allocs += 1;
        let [certain, undecided] = std::mem::take(&mut task.waits);
        let waited = |wait: Option<u64>| wait.filter(|wait| self.request.takes_duration(*wait));
        match undecided {
            None => {
                if let Some(wait) = waited(certain) {
                    self.sums.add_wait(key, wait);
                }
            }
            Some(undecided) => {
                let [clean, suspect] = &mut **task.held.get_or_insert_default();
                if let Some(wait) = waited(Some(certain.unwrap_or(0).saturating_add(undecided))) {
                    clean.add_wait(key, wait);
                }
                if let Some(wait) = waited(certain) {
                    suspect.add_wait(key, wait);
                }
            }
        }
    }

    /// Keys of an allocation's row; `None` for one whose call-site or cgroup the filters leave out.
    fn wait_key(&mut self, event: &Event, names: &Names) -> Option<WaitKey> {
        if !self.stacks.takes_stack(self.select, event.stack, names)
            || !takes_cgroup(self.select, self.cgroups, event.pid, event.at)
        {
            return None;
        }
        let has = |key| self.request.has_key(key);
        let cgroup = self.cgroups.zip(event.pid).filter(|_| has(WaitBy::Cgroup));
        Some(WaitKey {
            call_site: if has(WaitBy::Site) { self.stacks.call_site(event.stack, names) } else { None },
            pid: event.pid.filter(|_| has(WaitBy::Task)),
            order: event.order.filter(|_| has(WaitBy::Order)),
            gfp: event.gfp.filter(|_| has(WaitBy::Gfp)),
            cgroup: cgroup.map(|(cgroups, pid)| cgroups.at(pid, event.at)).filter(|&cgroup| cgroup != 0),
        })
    }

    fn function(&mut self, event: &Event, names: &Names, comm: Option<&[u8]>) {
        if !takes_task(self.select, event.pid, comm) || !takes_cgroup(self.select, self.cgroups, event.pid, event.at) {
            return;
        }
        if self.request.takes_inside && !self.request.spans.is_empty() {
            let number = self.task(event, comm) as usize;
            let takes = |span| self.request.takes_span(span, names);
            if !self.tasks.get(number).is_some_and(|task| task.spans.is_inside(takes)) {
                return;
            }
        }
        let duration = event.value.map(|value| value.max(0).cast_unsigned());
        if self.request.threshold > 0 && duration.is_none_or(|duration| !self.request.takes_duration(duration)) {
            return;
        }
        let row = self.functions.entry(event.call_site).or_default();
        row.count += 1;
        if let Some(duration) = duration {
            row.figures.add(duration, duration);
        }
    }

    /// Ends the trace: spans that are open have no end, and no event decides on spans any more.
    pub(super) fn finish(&mut self, names: &Names) {
        self.settle(names);
        for task in &mut self.tasks {
            let is_taken = task.is_taken && takes_cgroup(self.select, self.cgroups, task.pid, u64::MAX);
            for span in task.spans.finish() {
                if is_taken && self.request.takes_span(span, names) {
                    self.sums.spans.entry(span).or_default().unfinished += 1;
                }
            }
            if let Some(held) = task.held.take() {
                let [clean, _] = *held;
                self.sums.merge(clean);
            }
        }
    }
}

impl Observer for LatencyObserver<'_> {
    fn gap_ahead(&mut self, from: u64, to: u64) {
        self.gaps.add(from, to);
    }

    fn observe(&mut self, item: &OrderedItem<'_>) -> ControlFlow<()> {
        if let OrderedItem::Event { event, names, comm, .. } = item {
            self.event(event, names, *comm);
        }
        ControlFlow::Continue(())
    }
}
