//! Pass over the events of a trace that grows, which lists spans as they end: [`Query::follow`].
//!
//! Events are merged up to a key before which no CPU can bring more. The recorder gives it for idle CPUs; of a directory without that,
//! a CPU whose file has been read to its end has nothing more before the present less the flush interval. An event that comes later all
//! the same counts at the time that the others have come to.

use std::collections::HashMap;
use std::sync::Arc;

use kmemtrace_abi::event::{Event, EventSink, Gap, Names, TaskEvent};
use kmemtrace_abi::kernel::gfp::GfpNames;
use kmemtrace_abi::stream::{CpuStream, Hole};
use kmemtrace_abi::trace::{Trace, TraceInfo};

use crate::account::cgroups::{CgroupBuilder, Cgroups, LiveCgroups};
use crate::account::completeness::Completeness;
use crate::account::completeness::MergeStats;
use crate::documents::latency::{EndedRow, Naming};
use crate::engine::config::{WINDOW, batch};
use crate::engine::observe::{Observed, has_late_loss};
use crate::engine::query_run::begin;
use crate::engine::read_in_order::release_fields;
use crate::error::AnalysisError;
use crate::latency::{EndedSpan, EndedTotals, FollowRequest, Latency, LatencyRequest, LatencyRows, Pass};
use crate::live::Fed;
use crate::live::clock::TraceClock;
use crate::names::known::KnownNames;
use crate::order::merge::Chunk;
use crate::order::merger::Merger;
use crate::progress::Silent;
use crate::query::Query;
use crate::query::select::Select;

/// Flush interval of a recorder that was not asked for another one, in nanoseconds.
const FLUSH: u64 = 1_000_000_000;
/// Time for its writing, in nanoseconds.
const WRITING: u64 = 300_000_000;

/// Facts of a trace that a follower refers to.
pub struct FollowerBase {
    request: FollowRequest,
    /// Request of the sums, which are over all spans.
    sums: LatencyRequest,
    select: Select,
    names: KnownNames,
    info: TraceInfo,
    gfp_names: Option<Arc<GfpNames>>,
    given: Vec<(&'static str, Vec<String>)>,
    own_threads: Option<Vec<i32>>,
    /// Cgroups of the threads that the recording began with, as the recorder found them.
    cgroups: Vec<u8>,
    /// The same as a filter asks for them: those that threads had when the trace was opened.
    first_cgroups: Cgroups,
}

/// Answer of a follower at the end of its trace.
pub struct Followed {
    rows: LatencyRows,
    order: MergeStats,
    completeness: Completeness,
    has_late_loss: bool,
    /// Sums over the spans that were listed.
    pub totals: EndedTotals,
    /// Events that came after the merge had passed their time, and count at a later one.
    pub late_events: u64,
}

impl Query {
    /// Begins to follow a trace, whose streams may grow ([`CpuStream::follow`]). Of the query, the filters by
    /// thread and command count; those by call-site, module and source act on the spans that are listed.
    ///
    /// # Errors
    /// [`AnalysisError::AlreadyRead`], or a file of names that cannot be used.
    pub fn follow(&self, trace: &mut Trace, request: FollowRequest) -> Result<FollowerBase, AnalysisError> {
        begin(trace)?;
        let (mut names, own_threads) = self.take_names(trace, &mut Silent)?;
        names.find_sources(trace)?;
        trace.names.fields.set_kept(request.lists_events);
        let sums = LatencyRequest { lists_events: request.lists_events, ..LatencyRequest::default() };
        Ok(FollowerBase {
            request,
            sums,
            select: self.select.clone(),
            names,
            info: trace.info.clone(),
            gfp_names: trace.metadata.gfp_names.clone(),
            given: self.given.clone(),
            own_threads,
            first_cgroups: CgroupBuilder::new(&trace.metadata.cgroups).finish(),
            cgroups: std::mem::take(&mut trace.metadata.cgroups),
        })
    }
}

impl FollowerBase {
    /// Facts of the trace.
    pub fn info(&self) -> &TraceInfo {
        &self.info
    }

    /// Row of a span that has ended.
    pub fn row<'a>(&'a self, span: &'a EndedSpan, trace: &'a Trace) -> EndedRow<'a> {
        let naming = Naming {
            names: &self.names,
            // A span has the path itself.
            cgroups: None,
            trace_names: &trace.names,
            gfp_names: self.gfp_names.as_deref(),
            has_durations: self.info.keys().unit == kmemtrace_abi::clock::Unit::Nanoseconds,
            lists_events: self.request.lists_events,
        };
        EndedRow::of(naming, span)
    }

    /// The answer of a follower that has ended, over all spans: the threshold and the kinds of the request do not count.
    pub fn answer(self, trace: &mut Trace, followed: Followed) -> Latency {
        let Followed { rows, order, completeness, has_late_loss, .. } = followed;
        let observed = Observed {
            completeness,
            events: order.events,
            first_key: order.first.unwrap_or(0),
            keys: order.first.zip(order.last),
            own_threads: self.own_threads,
            has_late_loss,
            source_paths: self.names.places.paths(),
            names: self.names.report(),
        };
        let names = KnownNames { trace_names: std::mem::take(&mut trace.names), ..self.names };
        rows.answer((observed, self.info, names), (self.gfp_names, None), self.sums, self.given, None)
    }
}

/// Chunk of a stream's events, and the events about threads among them.
struct WithTasks<'c>(&'c mut Chunk<Event>, &'c mut LiveCgroups);

impl EventSink for WithTasks<'_> {
    const NAMES: bool = Chunk::<Event>::NAMES;
    const FLAGS: bool = Chunk::<Event>::FLAGS;
    const STACKS: bool = Chunk::<Event>::STACKS;
    const MARKS: bool = Chunk::<Event>::MARKS;
    const FIELDS: bool = Chunk::<Event>::FIELDS;

    fn event(&mut self, event: Event, names: &Names) {
        self.0.event(event, names);
    }

    fn gap(&mut self, gap: Gap) {
        self.0.gap(gap);
    }

    fn task(&mut self, event: TaskEvent<'_>) {
        self.1.add(event);
    }
}

/// Follower of a trace that grows.
pub struct Follower<'a> {
    pass: Pass<'a>,
    cgroups: LiveCgroups,
    merger: Merger<Event>,
    spare: Vec<Chunk<Event>>,
    batch: usize,
    clock: TraceClock,
    /// Time after which an event is in its file, in nanoseconds.
    delay: u64,
    /// The first key; none before the first event.
    first: Option<u64>,
    /// Key up to which all events were taken.
    frontier: u64,
    /// Key of the last event that was read.
    latest: u64,
    late_events: u64,
    /// Streams without events are not waited for.
    hurries: bool,
    /// Events that the writer of the stream left out since the last call of `take_left_out`.
    left_out: Option<Hole>,
}

impl<'a> Follower<'a> {
    /// Follower of the trace that `base` was made of.
    pub fn new(base: &'a FollowerBase, trace: &Trace) -> Follower<'a> {
        let pass = Pass::new(&base.sums, &base.select, &base.names, &base.info);
        let mut pass = pass.with_cgroups(Some(&base.first_cgroups));
        let clock = TraceClock::of(&base.info);
        let grows = trace.streams.iter().any(CpuStream::follows);
        pass.follow(&base.request, grows && clock.now().is_some(), base.names.comms.clone());
        let cpus: Vec<u32> = trace.streams.iter().map(CpuStream::cpu).collect();
        Follower {
            pass,
            cgroups: LiveCgroups::new(&base.cgroups),
            batch: batch(WINDOW, cpus.len()),
            merger: Merger::new(cpus, trace.info.order, 1),
            spare: Vec::new(),
            clock,
            delay: base.request.flush.unwrap_or(FLUSH).saturating_add(WRITING),
            first: None,
            frontier: 0,
            latest: 0,
            late_events: 0,
            hurries: false,
            left_out: None,
        }
    }

    /// Reads a part of what is there. [`Fed::Behind`]: there is more.
    pub fn feed(&mut self, trace: &mut Trace) -> Fed {
        let has_read = self.read(trace);
        if self.first.is_none() && !self.begin(trace) {
            return if has_read { Fed::Behind } else { Fed::CaughtUp };
        }
        let mut has_merged = false;
        while !self.merger.is_done()
            && let Some(mut window) = self.merger.next()
        {
            self.pass.take(&window, self.first.unwrap_or(0), &trace.names);
            release_fields(&mut trace.names, window.events.iter_mut());
            let last = window.events.last().map(|event| event.at);
            self.frontier = self.frontier.max(last.max(window.complete_until).unwrap_or(0));
            self.cgroups.pass(self.frontier);
            let is_empty = window.events.is_empty();
            self.merger.recycle(window);
            self.spare.extend(self.merger.take_consumed());
            has_merged |= !is_empty;
            if is_empty {
                break;
            }
        }
        match (self.merger.is_done(), has_read || has_merged) {
            (true, _) => Fed::Ended,
            (false, true) => Fed::Behind,
            (false, false) => Fed::CaughtUp,
        }
    }

    /// Begins at the first event, or at the end of a trace without any; false where an earlier one may come.
    fn begin(&mut self, trace: &Trace) -> bool {
        let has_events = (0..trace.streams.len()).any(|index| self.merger.waiting(index) > 0);
        let first = self.merger.first_key();
        let has_ended = trace.streams.iter().all(CpuStream::has_ended);
        if !has_ended && (!has_events || !self.merger.is_complete_until(first)) {
            return false;
        }
        (self.first, self.frontier) = (Some(first), first);
        true
    }

    /// Reads a chunk of each stream that has none; true where there was one.
    fn read(&mut self, trace: &mut Trace) -> bool {
        let mut has_read = false;
        let (streams, names) = (&mut trace.streams, &mut trace.names);
        let now = self.clock.now();
        for (index, stream) in streams.iter_mut().enumerate() {
            let mut is_dry = false;
            while self.merger.needs_input(index) && !is_dry {
                let mut chunk = self.spare.pop().unwrap_or_default();
                chunk.clear();
                is_dry = !stream.decode(names, &mut WithTasks(&mut chunk, &mut self.cgroups), self.batch);
                if let Some(hole) = stream.take_hole() {
                    self.left_out = Some(self.left_out.map_or(hole, |before| before.and(hole)));
                }
                self.add(index, chunk, stream);
                has_read |= !is_dry;
            }
            let guessed = now.unwrap_or(self.latest).saturating_sub(self.delay);
            let guessed = if self.hurries { self.latest } else { guessed };
            let is_guessed = is_dry && (self.hurries || !stream.is_streamed());
            let told = stream.watermark().map(|time| time.saturating_sub(1));
            if let Some(watermark) = told.max(is_guessed.then_some(guessed)) {
                let mut chunk = self.spare.pop().unwrap_or_default();
                chunk.clear();
                if stream.end_waiting(names, &mut chunk, watermark) {
                    self.add(index, chunk, stream);
                    has_read = true;
                }
                self.merger.raise_watermark(index, watermark);
            }
        }
        self.hurries = false;
        has_read
    }

    /// Adds a chunk of a stream. Events that come after their time move to the present: the merge has passed their keys. Times of
    /// spans that they begin or end are wrong then, as in a gap.
    fn add(&mut self, index: usize, mut chunk: Chunk<Event>, stream: &CpuStream) {
        let frontier = self.frontier;
        if let Some(first) = chunk.events.first().filter(|event| event.at < frontier) {
            self.pass.gap(first.at, frontier);
        }
        for event in chunk.events.iter_mut().take_while(|event| event.at < frontier) {
            event.at = frontier;
            self.late_events += 1;
        }
        self.latest = self.latest.max(chunk.events.last().map_or(0, |event| event.at));
        self.merger.add(index, chunk, stream.has_ended());
    }

    /// Events that the writer of the stream has left out since the last call: they are in none of the spans.
    pub fn take_left_out(&mut self) -> Option<Hole> {
        self.left_out.take()
    }

    /// Stops waiting for streams that have nothing, where too much of the others waits for them.
    pub fn hurry(&mut self) {
        self.hurries = true;
    }

    /// Key of the first event; `None` before there is one.
    pub fn first(&self) -> Option<u64> {
        self.first
    }

    /// Adds cgroups of threads that the recorder has found since the trace was opened.
    pub fn add_cgroups(&mut self, text: &[u8]) {
        self.cgroups.look(text);
    }

    /// Adds command names that the trace has given since it was opened.
    pub fn add_comms(&mut self, comms: HashMap<i32, Box<[u8]>>) {
        self.pass.add_comms(comms);
    }

    /// Gives a span the name of its thread and its cgroup, where they are known by now.
    pub fn name(&self, span: &mut EndedSpan) {
        if span.lacks_name() {
            span.listed.comm = self.pass.comm(span.listed.pid);
        }
        if span.cgroup.is_none() {
            let path = span.listed.pid.and_then(|pid| self.cgroups.path(pid, span.listed.stall.begin));
            span.cgroup = path.map(Into::into);
        }
    }

    /// Takes off the spans that have ended, in the order of their ends.
    pub fn take_ended(&mut self) -> Vec<EndedSpan> {
        self.pass.take_ended()
    }

    /// Ends the pass, at the end of the trace or before. Spans that end with it are listed by the last of `take`.
    pub fn finish(mut self, trace: &Trace, take: &mut dyn FnMut(Vec<EndedSpan>)) -> Followed {
        let order = self.merger.merged;
        self.pass.settle(&trace.names);
        let mut last = self.pass.take_ended();
        last.iter_mut().for_each(|span| self.name(span));
        take(last);
        let totals = self.pass.ended_totals();
        let has_late_loss = has_late_loss(trace, &order);
        let names: &Names = &trace.names;
        Followed {
            rows: self.pass.finish(names, has_late_loss),
            completeness: Completeness {
                stacks_distinct: trace.names.stacks.len() as u64,
                ..Completeness::of(trace, &order)
            },
            order,
            has_late_loss,
            totals,
            late_events: self.late_events,
        }
    }
}
