//! Objects one by one: [`Query::objects`] hands over each object when its fate becomes known, and each free without one.
//!
//! The pass reads events in the total order, as observers get them, and pairs them by the same code as reports. The table keeps
//! of each live object its order key, its thread and the low half of its place in the order; its class tells the rest.

use std::cell::Cell;
use std::collections::HashMap;
use std::time::Instant;

use kmemtrace_abi::event::{Event, Names as EventNames};
use kmemtrace_abi::trace::Trace;

use crate::account::classes::Classes;
use crate::account::group_reader::{GroupFacts, GroupReader};
use crate::account::grouping::{GroupKey, Grouping};
use crate::account::over_time::OverTimeRequest;
use crate::cache::AnalysisRequest;
use crate::engine::add_up::list_live;
use crate::engine::config::{Parallelism, RunConfig, WINDOW};
use crate::engine::fate_sink::{Fates, WindowFates};
use crate::engine::object_fate::ObjectSink;
use crate::engine::observe::{Observed, OrderedPass, in_order};
use crate::engine::read_trace::{BETWEEN_LOOKS, KEPT};
use crate::error::{AnalysisError, LESS_OF_THE_TRACE};
use crate::memory::budget::Budget;
use crate::memory::hashing::Seed;
use crate::order::merge::MAX_CHUNKS;
use crate::order::merger::Window;
use crate::order::ordered::OpenGaps;
use crate::order::pair_event::{PairEvent, PairEventReader};
use crate::pairing::pairs::Pairing;
use crate::pairing::result::Counts;
use crate::progress::{Progress, Silent};
use crate::query::Query;
use crate::query::filter::EventFilter;

impl Query {
    /// Hands each object of the query to `sink`, and each failed allocation and free without an object, paired as the figures of
    /// [`Query::run`] are. Filters take an object by its allocation, a free without an object by itself. The rows of the query
    /// do not matter here.
    ///
    /// # Errors
    /// As for [`Query::run`].
    pub fn objects(&self, trace: &mut Trace, sink: &mut dyn ObjectSink) -> Result<Observed, AnalysisError> {
        self.objects_with(trace, sink, &mut Silent)
    }

    /// [`Query::objects`] with progress.
    ///
    /// # Errors
    /// As for [`Query::run`].
    pub fn objects_with(
        &self,
        trace: &mut Trace,
        sink: &mut dyn ObjectSink,
        progress: &mut dyn Progress,
    ) -> Result<Observed, AnalysisError> {
        if trace.info.text.is_some() {
            return self.listed_objects(trace, sink, progress);
        }
        let (observed, has_ended) = self.pass_objects(trace, sink, progress, false)?;
        if !observed.has_late_loss || has_ended || trace.inputs.is_empty() {
            return Ok(observed);
        }
        // The second pass takes the names from files, too.
        *trace = trace.reopen()?;
        sink.restart();
        Ok(self.pass_objects(trace, sink, progress, true)?.0)
    }

    /// One pass over the objects; `is_all_suspect`: loss may explain every finding. Also returns true where the sink ended it.
    fn pass_objects(
        &self,
        trace: &mut Trace,
        sink: &mut dyn ObjectSink,
        progress: &mut dyn Progress,
        is_all_suspect: bool,
    ) -> Result<(Observed, bool), AnalysisError> {
        let (budget, first_key) = (Budget::new(self.max_memory), Cell::new(0));
        let (pass, index) = self.open_pass(trace, &first_key, budget, progress)?;
        let OrderedPass { names, window, .. } = &pass;
        let filter = EventFilter::new(pass.filter(), pass.own_threads(), self.shows_own);
        let request = AnalysisRequest {
            grouping: Grouping::KIND,
            matrix: false,
            lists_live: true,
            shows_own: self.shows_own,
            births: false,
        };
        let mut config = RunConfig {
            counts_births: false,
            rules: self.pairing_options(trace, request),
            // A row is a stack, which the class of an object tells.
            grouping: if trace.may_have_stacks() { Grouping::of(&[GroupKey::Stack]) } else { Grouping::KIND },
            facts: GroupFacts { module_rule: self.module_rule, marks_reclaim: self.tells_owners, ..pass.facts() },
            over_time: OverTimeRequest::default(),
            places: None,
            parallelism: Parallelism { sized_classes: self.sized_classes, ..Parallelism::of_threads(1) },
            budget,
            notes: self.notes.clone(),
        };
        config.rules.cpus = trace.info.cpus.clone();
        let classes = Classes::new(trace.names.clone(), config.parallelism.sized_classes);
        let owners = self.tells_owners.then(|| pass.owners());
        let fates = Fates::new(sink, &classes, (&names.comms, owners), &config.rules, is_all_suspect);
        let mut objects = ObjectPass::new(&config, &classes, &trace.names, filter, fates);
        let (order, mut completeness) =
            in_order(trace, self.window_events, index, *window, progress, |window, first, names| {
                objects.window(window, first, names);
                !objects.is_over && !objects.fates.has_ended
            })?;
        let (counts, has_ended) = objects.finish(order.events)?;
        completeness.set_unpaired(counts.all_inferred, counts.all_without_alloc);
        Ok((pass.end(trace, &order, completeness), has_ended))
    }
}

/// Pairing of windows of events, whose places in the total order are told to the sink of fates.
struct ObjectPass<'a> {
    config: &'a RunConfig<'a>,
    classes: &'a Classes,
    reader: PairEventReader<'a>,
    streams: HashMap<u32, u16>,
    pairing: Pairing<'a>,
    fates: Fates<'a>,
    gaps: OpenGaps,
    /// Gaps before the next event.
    gaps_before: u64,
    paired: Window<PairEvent>,
    looked: Instant,
    /// The memory limit is exceeded.
    is_over: bool,
}

impl<'a> ObjectPass<'a> {
    fn new(
        config: &'a RunConfig<'a>,
        classes: &'a Classes,
        names: &EventNames,
        filter: EventFilter<'a>,
        fates: Fates<'a>,
    ) -> ObjectPass<'a> {
        let seed = Seed::random();
        let groups = GroupReader::new(config.grouping, config.facts, classes);
        let mut pairing = Pairing::new(&config.rules, classes, seed, 0, 1);
        let cpus = &config.rules.cpus;
        let read_ahead = (cpus.len() * 256).max(WINDOW) * MAX_CHUNKS * size_of::<Event>();
        pairing.set_max_bytes(usize::try_from(config.budget.left(read_ahead as u64)).unwrap_or(usize::MAX));
        ObjectPass {
            config,
            classes,
            reader: PairEventReader::new(names, classes, groups, false, seed, filter),
            streams: cpus.iter().copied().zip(0..).collect(),
            pairing,
            fates,
            gaps: OpenGaps::default(),
            gaps_before: 0,
            paired: Window::default(),
            looked: Instant::now(),
            is_over: false,
        }
    }

    /// Pairs the next window; `first` is the first key of the trace.
    fn window(&mut self, window: &Window<Event>, first: u64, names: &EventNames) {
        self.gaps.add(&window.gaps, first);
        self.fates.begin_window();
        for (event, serial) in window.events.iter().zip(window.first_serial..) {
            while self.gaps.next_before(event.at).is_some() {
                self.gaps_before += 1;
            }
            self.fates.add_seq(event.at, serial + self.gaps_before);
        }
        let paired = &mut self.paired;
        paired.events.clear();
        let streams = &self.streams;
        let stream = |cpu| streams.get(&cpu).copied().unwrap_or(0);
        self.reader.convert(&window.events, names, stream, &mut paired.events);
        paired.loss_runs.clone_from(&window.loss_runs);
        (paired.first_serial, paired.tie_base) = (window.first_serial, window.tie_base);
        (paired.gap_at_last_frontier, paired.complete_until) = (window.gap_at_last_frontier, window.complete_until);
        self.pairing.take(paired, &mut WindowFates { fates: &mut self.fates, events: &window.events });
        self.is_over |= self.pairing.over_budget;
        if self.looked.elapsed() > BETWEEN_LOOKS {
            self.looked = Instant::now();
            self.is_over |= self.config.budget.is_exceeded();
        }
    }

    /// Hands over the live objects. Returns the sums, and true where the sink has ended the pass.
    fn finish(mut self, events: u64) -> Result<(Counts, bool), AnalysisError> {
        if self.is_over {
            return Err(self.config.budget.exceeded(KEPT, events, LESS_OF_THE_TRACE));
        }
        self.fates.decide_rest();
        let (live, known) = list_live(&mut [&mut self.pairing], self.classes, self.config, events)?;
        self.fates.live(live, &known);
        Ok((self.pairing.counts(), self.fates.has_ended))
    }
}
