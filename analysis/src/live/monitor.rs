//! Pairing of events as they come.
//!
//! Streams are read as far as they go, merged up to a key before which no CPU can bring more events, and paired. A CPU that is idle
//! writes nothing: its recorder hands over events at most a flush interval after they happened, so a CPU whose file has been read
//! to its end has nothing more before the present less that interval. An event that comes later all the same counts at the time
//! that the others have come to, and the interval is taken to be longer from then on.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use kmemtrace_abi::clock::Unit;
use kmemtrace_abi::kernel::gfp::GfpNames;
use kmemtrace_abi::stream::{CpuStream, Hole};
use kmemtrace_abi::trace::{Metadata, Trace};

use super::clock::TraceClock;
use super::figures::per_second;
use super::held::{Held, ListedEntries};
use super::ledger::{Ledger, LedgerSink};
use super::naming::NameMemory;
use super::ticks::TICK;
use crate::account::cgroups::LiveCgroups;
use crate::account::classes::{Classes, MAX_SIZED_CLASSES};
use crate::account::group_reader::{GroupFacts, GroupReader};
use crate::account::grouping::{GroupKey, Grouping, ModuleRule};
use crate::account::text_sites::TextSites;
use crate::cache::AnalysisRequest;
use crate::engine::config::{WINDOW, batch};
use crate::engine::query_run::begin;
use crate::error::AnalysisError;
use crate::memory::budget::Budget;
use crate::memory::hashing::Seed;
use crate::names::caches::CacheNames;
use crate::names::kallsyms::Symbolizer;
use crate::names::resolver::Places;
use crate::order::merge::{Chunk, MAX_CHUNKS};
use crate::order::merger::{Merger, Window};
use crate::order::pair_event::{PairEvent, PairEventReader};
use crate::pairing::pairs::{Pairing, PairingOptions};
use crate::query::Query;
use crate::query::filter::EventFilter;

/// Flush interval of a recorder that was not asked for another one, in nanoseconds.
const FLUSH: u64 = 1_000_000_000;
/// Time for its writing, at least, in nanoseconds.
const WRITING: u64 = 300_000_000;
/// Limit of the delay that late events may teach, in nanoseconds.
const MAX_DELAY: u64 = 10_000_000_000;

/// Options of a monitor.
#[derive(Clone, Copy, Debug, Default)]
pub struct MonitorOptions {
    /// The trace is being written: the ends of its files are not its end.
    pub follows: bool,
    /// Objects that the recorder itself allocates count, too.
    pub shows_own: bool,
    /// Thread of the caller, where its id is that of the trace's events: its objects count as the recorder's, if the trace tells those
    /// apart. A screen would otherwise show itself among those that take memory.
    pub caller: Option<i32>,
    /// Flush interval of the recorder, in nanoseconds; `None` for that of a recorder that was not asked for another one.
    pub flush: Option<u64>,
    /// Memory limit, in bytes.
    pub max_memory: Option<u64>,
}

/// Facts of a trace that a monitor refers to.
pub struct MonitorBase {
    options: MonitorOptions,
    rules: PairingOptions,
    pub(super) classes: Classes,
    symbols: Symbolizer,
    gfp_names: Option<Arc<GfpNames>>,
    comms: HashMap<i32, Box<[u8]>>,
    places: Places,
    caches: CacheNames,
    own_threads: Vec<i32>,
    /// Cgroups of threads as the recorder found them, `TID TGID ROOT PATH`; `None` for a trace that gives none.
    cgroups: Option<Vec<u8>>,
    budget: Budget,
}

impl MonitorBase {
    /// Facts of a trace that was just opened.
    ///
    /// # Errors
    /// [`AnalysisError::NoLiveSeconds`] for a trace whose keys are no times, [`AnalysisError::AlreadyRead`].
    pub fn new(trace: &mut Trace, options: MonitorOptions) -> Result<MonitorBase, AnalysisError> {
        begin(trace)?;
        if trace.info.keys().unit != Unit::Nanoseconds {
            let clock = trace.info.clock.as_deref().unwrap_or("none").to_owned();
            return Err(AnalysisError::NoLiveSeconds { clock });
        }
        let request = AnalysisRequest {
            grouping: Grouping::SITE,
            matrix: false,
            lists_live: true,
            shows_own: options.shows_own,
            births: false,
        };
        let mut rules = Query::by_site().pairing_options(trace, request);
        rules.cpus = trace.streams.iter().map(CpuStream::cpu).collect();
        trace.streams.iter_mut().for_each(|stream| stream.follow(options.follows));
        let mut own_threads = trace.metadata.own_threads.take().unwrap_or_default();
        if !own_threads.is_empty() {
            own_threads.extend(options.caller);
            own_threads.sort_unstable();
        }
        Ok(MonitorBase {
            options,
            rules,
            classes: Classes::new(trace.names.clone(), MAX_SIZED_CLASSES),
            symbols: take_symbols(&mut trace.metadata),
            gfp_names: trace.metadata.gfp_names.clone(),
            comms: HashMap::new(),
            places: Places::default(),
            caches: CacheNames::of(&trace.metadata, trace.info.page_bytes),
            own_threads,
            cgroups: (trace.tells_tasks() || !trace.metadata.cgroups.is_empty())
                .then(|| trace.metadata.cgroups.clone()),
            budget: Budget::new(options.max_memory),
        })
    }
}

/// Result of a round of reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fed {
    /// Every whole block that was there, up to the limit, has been paired.
    CaughtUp,
    /// Time ran out before.
    Behind,
    /// The streams have ended: no more events come.
    Ended,
}

/// Pairs a trace's events as they come.
pub struct Monitor<'a> {
    pub(super) base: &'a MonitorBase,
    reader: PairEventReader<'a>,
    pub(super) merger: Merger<PairEvent>,
    pub(super) held: Held<'a>,
    pub(super) ledger: Ledger<'a>,
    spare: Vec<Chunk<PairEvent>>,
    batch: usize,
    clock: TraceClock,
    pub(super) page_bytes: Option<u64>,
    /// The first event is here.
    has_begun: bool,
    /// Key of the first event; 0 before it.
    pub(super) first: u64,
    /// Key up to which all events are paired.
    pub(super) frontier: u64,
    /// Time after which an event is in its file, in nanoseconds.
    delay: u64,
    /// Nanoseconds that were passed over.
    pub(super) skipped: u64,
    /// Key up to which those of blocks that the writer of a stream left out are counted.
    skipped_to: u64,
    /// Keys a second or more apart, and the number of events by then: the last one and the two before.
    past_events: [(u64, u64); 3],
}

impl<'a> Monitor<'a> {
    /// Monitor of the trace that `base` was made of.
    pub fn new(base: &'a MonitorBase, trace: &mut Trace) -> Monitor<'a> {
        let MonitorBase {
            rules, classes, symbols, gfp_names, comms, places, caches, own_threads, budget, options, ..
        } = base;
        let seed = Seed::random();
        let grouping =
            Grouping::of(&[GroupKey::Site, GroupKey::Cache, GroupKey::Stack, GroupKey::Use, GroupKey::Module]);
        let facts = GroupFacts {
            comms,
            symbols: Some(symbols),
            places,
            caches,
            names: None,
            gfp_names: gfp_names.as_deref(),
            module_rule: ModuleRule::Site,
            loads: None,
            marks_reclaim: false,
            cgroups: None,
        };
        let groups = GroupReader::new(grouping, facts, classes).with_coming_loads();
        let filter = EventFilter::new(None, Some(own_threads), options.shows_own);
        let batch = batch(WINDOW, rules.cpus.len());
        let read_ahead = (rules.cpus.len() * batch).max(WINDOW) * MAX_CHUNKS * size_of::<PairEvent>();
        let held = if trace.info.text.is_some() {
            Held::Listed(ListedEntries::new(classes, *budget))
        } else {
            let mut pairing = Pairing::new(rules, classes, seed, 0, 1);
            pairing.set_max_bytes(usize::try_from(budget.left(read_ahead as u64)).unwrap_or(usize::MAX));
            Held::Paired(Box::new(pairing))
        };
        let clock = TraceClock::of(&trace.info);
        let is_here = options.follows && clock.now().is_some();
        let names = NameMemory::new(std::mem::take(&mut trace.metadata.comms), is_here);
        let cgroups = base.cgroups.as_deref().map(LiveCgroups::new);
        let tasks = cgroups.as_ref().map(LiveCgroups::collector);
        let text_sites = trace.info.text.is_some().then(|| TextSites::new(facts, classes));
        let reader = PairEventReader::new(&trace.names, classes, groups, true, seed, filter);
        Monitor {
            base,
            reader: reader.with_tasks(tasks).with_text_sites(text_sites),
            merger: Merger::new(rules.cpus.clone(), trace.info.order, 1),
            held,
            ledger: Ledger::new(classes, symbols, names, cgroups),
            spare: Vec::new(),
            batch,
            clock,
            page_bytes: trace.info.page_bytes.filter(|bytes| *bytes > 0),
            has_begun: false,
            first: 0,
            frontier: 0,
            delay: delay(options.flush.unwrap_or(FLUSH)),
            skipped: 0,
            skipped_to: 0,
            past_events: [(0, 0); 3],
        }
    }

    /// Reads and pairs what is there, up to `until` (nanoseconds since the start of the trace) and until `deadline`.
    pub fn feed(&mut self, trace: &mut Trace, until: Option<u64>, deadline: Instant) -> Fed {
        let mut dry = vec![None; trace.streams.len()];
        loop {
            let has_read = self.read(trace, &mut dry);
            if !self.has_begun && !self.begin() {
                return if self.has_ended(trace) { Fed::Ended } else { Fed::CaughtUp };
            }
            self.merger.set_cap(until.map(|until| self.first.saturating_add(until)));
            let mut has_paired = false;
            while let Some(window) = (!self.merger.is_done()).then(|| self.merger.next()).flatten() {
                let is_empty = window.events.is_empty();
                self.pair(&window, self.is_at_end(trace));
                self.merger.recycle(window);
                self.spare.extend(self.merger.take_consumed());
                has_paired |= !is_empty;
                if is_empty || self.merger.is_done() {
                    break;
                }
            }
            if self.merger.is_done() || self.is_over_memory() {
                return Fed::Ended;
            }
            if !has_read && !has_paired {
                return if self.is_at_end(trace) { self.finish() } else { Fed::CaughtUp };
            }
            if Instant::now() >= deadline {
                return Fed::Behind;
            }
        }
    }

    /// Reads a chunk of each stream that has none; true where there was one. A stream with nothing more at present is dry, and
    /// gets a watermark: of the time before the look that found it dry.
    fn read(&mut self, trace: &mut Trace, dry: &mut [Option<u64>]) -> bool {
        let mut has_read = false;
        let latest = trace.streams.iter().filter_map(|stream| stream.report().last).max();
        let now = self.clock.now().or(latest).unwrap_or(0);
        for (index, (stream, dry)) in trace.streams.iter_mut().zip(dry).enumerate() {
            while self.merger.needs_input(index) && dry.is_none() {
                let used = self.spare.pop().unwrap_or_default();
                let (mut chunk, is_empty) = self.reader.read(index as u16, stream, used, self.batch);
                if let Some(hole) = stream.take_hole() {
                    let next = chunk.events.first().map_or(now, |event| event.at);
                    self.pass_over(hole, next);
                }
                self.take_late(&mut chunk);
                self.merger.add(index, chunk, stream.has_ended());
                has_read |= !is_empty;
                *dry = is_empty.then_some(now);
            }
            let told = stream.watermark().map(|time| time.saturating_sub(1));
            // Blocks of a stream may be on their way: its recorder tells how far each CPU is, if it can.
            let guessed = dry.filter(|_| told.is_none() || !stream.is_streamed());
            if let Some(watermark) = guessed.map(|now| now.saturating_sub(self.delay)).max(told) {
                if let Some(mut chunk) = self.reader.read_waiting(index as u16, stream, watermark) {
                    self.take_late(&mut chunk);
                    self.merger.add(index, chunk, stream.has_ended());
                    has_read = true;
                }
                self.merger.raise_watermark(index, watermark);
            }
        }
        has_read
    }

    /// Counts the time of blocks that are missing before the event at `next`.
    fn pass_over(&mut self, hole: Hole, next: u64) {
        let (from, to) = hole.span.unwrap_or((if self.has_begun { self.frontier } else { next }, next));
        // Blocks of several CPUs are missing at the same time.
        let from = if hole.is_left_out { from.max(self.skipped_to) } else { from };
        self.skipped_to = self.skipped_to.max(to);
        self.skipped = self.skipped.saturating_add(to.saturating_sub(from).max(1));
    }

    /// Moves events that come after their time to the present: the merge has passed their keys.
    fn take_late(&mut self, chunk: &mut Chunk<PairEvent>) {
        let frontier = self.frontier;
        for event in chunk.events.iter_mut().take_while(|event| event.at < frontier) {
            self.delay = self.delay.max((frontier - event.at).saturating_add(self.delay)).min(MAX_DELAY);
            event.at = frontier;
        }
    }

    /// Begins at the first event; false where there is none yet, or an earlier one may come.
    fn begin(&mut self) -> bool {
        let has_events = (0..self.base.rules.cpus.len()).any(|index| self.merger.waiting(index) > 0);
        let first = self.merger.first_key();
        if !has_events || !self.merger.is_complete_until(first) {
            return false;
        }
        self.has_begun = true;
        self.first = first;
        self.frontier = first;
        self.ledger.begin(first);
        self.past_events = [(first, 0); 3];
        true
    }

    fn has_ended(&self, trace: &Trace) -> bool {
        trace.streams.iter().all(CpuStream::has_ended)
    }

    /// True where no event is left, read or not.
    fn is_at_end(&self, trace: &Trace) -> bool {
        self.has_ended(trace) && (0..trace.streams.len()).all(|index| self.merger.waiting(index) == 0)
    }

    /// Takes the last window, which has no events.
    fn finish(&mut self) -> Fed {
        self.merger.set_cap(None);
        if let Some(window) = self.merger.next() {
            self.pair(&window, true);
        }
        Fed::Ended
    }

    /// Pairs a window. After the last event of the trace its time stands still.
    fn pair(&mut self, window: &Window<PairEvent>, is_at_end: bool) {
        let last = window.events.last().map(|event| event.at);
        if let (Some(cgroups), Some(read), Some(last)) = (&mut self.ledger.numbering.cgroups, self.reader.tasks(), last)
        {
            cgroups.take(read);
            cgroups.pass(last);
        }
        let Monitor { held, ledger, .. } = self;
        match held {
            Held::Paired(pairing) => pairing.take(window, &mut LedgerSink { ledger, events: &window.events }),
            Held::Listed(listed) => listed.take(&window.events, |object| ledger.listed(object)),
        }
        if let Some(listed) = self.reader.listed() {
            // Nothing changes in a text of one moment, so its rows have no past.
            self.frontier = self.frontier.max(listed.newest);
            return;
        }
        self.frontier = self.frontier.max(last.max(window.complete_until.filter(|_| !is_at_end)).unwrap_or(0));
        self.ledger.advance(self.frontier);
        if self.frontier - self.past_events[0].0 >= TICK {
            self.past_events.rotate_right(1);
            self.past_events[0] = (self.frontier, self.events());
        }
    }

    /// Passes over what is there and not read, but for the last blocks: loss on all CPUs, as the pairing sees it.
    pub fn skip(&mut self, trace: &mut Trace) {
        let now = self.clock.now().unwrap_or(self.frontier);
        let mut has_skipped = false;
        for stream in &mut trace.streams {
            // What a stream passes over it tells by holes.
            has_skipped |= stream.skip_to_last() && !stream.is_streamed();
        }
        if has_skipped {
            self.skipped = self.skipped.saturating_add(now.saturating_sub(self.frontier));
        }
    }

    /// Time from the last event that counts to the present, in nanoseconds; `None` where the trace's clock is not this machine's.
    pub fn lag(&self) -> Option<u64> {
        Some(self.clock.now()?.saturating_sub(self.frontier)).filter(|_| self.has_begun)
    }

    /// Time from the start of the trace to the last event that counts, in nanoseconds.
    pub fn elapsed(&self) -> u64 {
        self.frontier - self.first
    }

    /// Sets the mark at the present.
    pub fn set_mark(&mut self) {
        self.ledger.set_mark(self.frontier);
    }

    /// Takes the names of the trace as they are now, all of them.
    pub fn renew_names(&mut self, mut names: Metadata) {
        let symbols = take_symbols(&mut names);
        self.ledger.renew_names(symbols, names.comms, &mut self.held);
    }

    /// Number of events so far.
    pub(super) fn events(&self) -> u64 {
        self.reader.listed().map_or(self.merger.merged.events, |listed| listed.entries)
    }

    /// Events in a second, over the last two to three, or over all of a shorter trace.
    pub(super) fn events_now(&self) -> u64 {
        let [.., (at, before)] = self.past_events;
        per_second(self.events() - before, self.frontier - at)
    }

    /// True once the memory limit was exceeded.
    pub(super) fn is_over_memory(&self) -> bool {
        self.held.is_over_memory()
    }
}

/// Time after which an event is in its file, in nanoseconds.
fn delay(flush: u64) -> u64 {
    flush.saturating_add((flush / 4 * 3).max(WRITING)).min(MAX_DELAY)
}

/// Moves the symbols out of the names of a trace.
fn take_symbols(metadata: &mut Metadata) -> Symbolizer {
    Symbolizer::new(std::mem::take(&mut metadata.kallsyms), &std::mem::take(&mut metadata.modules))
}
