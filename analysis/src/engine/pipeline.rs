//! From the streams of a trace to its figures: reading, merging, pairing and counting, on one thread or on several.
//!
//! With several threads the addresses are divided into as many partitions, and all stages are at work at once: streams are
//! read, a window is merged, partitions pair their parts of earlier ones, and the ledger replays what they changed.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use foldhash::fast::RandomState;
use kmemtrace_abi::event::{Event, EventSink, Gap, Kind, Names};
use kmemtrace_abi::stream::CpuStream;
use kmemtrace_abi::trace::Trace;

use crate::account::classes::{Classes, Grouping, MOST_SIZED, UNSELECTED};
use crate::account::stats::Stats;
use crate::engine::peaks::Ledger;
use crate::engine::scheduler::{Board, Done, MOST_ROUNDS, Partition};
use crate::error::AnalysisError;
use crate::memory::budget::{Budget, LESS};
use crate::memory::hashing::Seed;
use crate::order::merge::{Chunk, MAX_CHUNKS};
use crate::order::merger::{MergeStats, Merger, Window};
use crate::order::pair_event::{Filter, PairEvent, PairEventReader};
use crate::pairing::findings::{Finding, FindingRow, FindingSites, Findings};
use crate::pairing::pairs::{Live, Pairing, PairingOptions, PairingResult, kind_index};
use crate::progress::{Notes, Progress};

/// What to do, and with how many threads.
#[derive(Clone)]
pub(crate) struct Job {
    pub(crate) rules: PairingOptions,
    pub(crate) grouping: Grouping,
    pub(crate) crew: CrewSize,
    pub(crate) budget: Budget,
    /// Takes the times of the stages.
    pub(crate) notes: Notes,
}

impl Job {
    /// Whether so many live objects may be listed, where so many bytes are given back for them.
    pub(crate) fn has_room_for(&self, objects: usize, given_back: usize) -> bool {
        let listed = (objects * LISTED_BYTES) as u64;
        listed.saturating_sub(given_back as u64) <= self.budget.left(0)
    }
}

/// How the work is cut.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CrewSize {
    pub(crate) threads: u32,
    /// Events of a window, about.
    pub(crate) window: usize,
    /// See [`MOST_SIZED`].
    pub(crate) sized_classes: u32,
}

impl CrewSize {
    /// For this many threads.
    pub(crate) fn of_threads(threads: u32) -> CrewSize {
        let window = match threads {
            1 => WINDOW,
            2 => WINDOW_OF_TWO,
            _ => WINDOW_AT_ONCE,
        };
        CrewSize { threads, window, sized_classes: MOST_SIZED }
    }

    /// Partitions of the addresses. Two threads are busy without: one pairs while the other reads.
    fn parts(self) -> u32 {
        if self.threads <= 2 { 1 } else { self.threads.min(256) }
    }

    /// Chunks to read of each of so many streams before the merge is through with the first of them: of several threads some
    /// read while one merges the [`MAX_CHUNKS`] that it has waited for.
    fn ahead(self, streams: usize) -> usize {
        match (self.threads, streams) {
            (1, ..=2) => 1,
            (1, _) => MAX_CHUNKS,
            (2, ..=64) => 5,
            _ => 3,
        }
    }
}

/// Events of a window on one thread: what of them is in memory should stay in a core's cache.
const WINDOW: usize = 2048;
/// On two, which mostly each work at their own stages.
const WINDOW_OF_TWO: usize = 8 << 10;
/// On more: a task should take long enough for nobody to notice how it was come by.
const WINDOW_AT_ONCE: usize = 32 << 10;

/// How often the memory of the process is looked at.
const BETWEEN_LOOKS: Duration = Duration::from_millis(10);
/// What is kept that grows with the trace.
const KEPT: &str = "live objects, freed addresses and their sizes";

/// Memory for each event that is on its way, with its key and what it changes.
const EVENT_BYTES: usize = size_of::<PairEvent>() + 32;
/// Memory for each live object that is listed.
const LISTED_BYTES: usize = size_of::<Live>();

/// Takes all events of `trace` within the bounds that `bounds` gives for its first key, as far as `filter` takes them.
pub(crate) fn run<F: Filter + Clone + Send>(
    trace: &mut Trace,
    job: Job,
    filter: &F,
    bounds: impl FnOnce(u64) -> (u64, u64),
    progress: &mut dyn Progress,
) -> Result<(MergeStats, PairingResult), AnalysisError> {
    let Job { grouping, crew, budget, .. } = job;
    let mut rules = job.rules.clone();
    let mut streams = std::mem::take(&mut trace.streams);
    rules.cpus = streams.iter().map(CpuStream::cpu).collect();
    let classes = Classes::new(trace.names.clone(), crew.sized_classes);
    let seed = Seed::random();
    let parts = crew.parts();
    let batch = batch(crew.window, streams.len());
    let mut merger = Merger::new(rules.cpus.clone(), trace.info.order, parts);
    let mut reader = PairEventReader::new(&trace.names, &classes, grouping, seed, filter.clone());
    for (stream, number) in streams.iter_mut().zip(0u16..) {
        let index = usize::from(number);
        while merger.needs_input(index) {
            let (chunk, ended) = reader.read(number, stream, Chunk::default(), batch);
            merger.add(index, chunk, ended);
        }
    }
    merger.set_bounds(bounds(merger.first_key()));
    let ahead = crew.ahead(streams.len());
    // All of it may be on the way, read ahead or in windows.
    let there = streams.len().saturating_sub(trace.info.missing.len());
    // Several partitions keep copies of theirs, and each of them a number for each event.
    let copies = if parts > 1 { EVENT_BYTES + parts as usize * size_of::<u32>() } else { 0 };
    let on_the_way = crew.window.max(batch * there) * ((ahead + MOST_ROUNDS) * EVENT_BYTES + copies);
    let table_bytes = usize::try_from(budget.left(on_the_way as u64) / u64::from(parts)).unwrap_or(usize::MAX);
    let partition = |part| {
        let mut pairing = Pairing::new(&rules, &classes, seed, part, parts);
        pairing.set_max_bytes(table_bytes);
        // More threads have a partition each, and those grow at the same time.
        if crew.threads == 2 {
            pairing.move_in_halves();
        }
        Partition::new(pairing, parts == 1)
    };
    let partitions = (0..parts as usize).map(partition).collect();
    let to_read = bytes_to_read(&streams);
    let mut board = Board::new(streams, merger, partitions, batch, ahead);
    // A short trace does not fill it.
    if crew.threads > 1 && to_read > on_the_way as u64 {
        board.take_memory(there);
    }
    let mut over = None;
    let mut looked = Instant::now();
    board.work(crew.threads, reader, |standing| {
        let is_time = looked.elapsed() > BETWEEN_LOOKS;
        if is_time {
            looked = Instant::now();
        }
        if standing.is_over || is_time && budget.is_exceeded() {
            over = Some(standing.events);
        }
        if progress.is_due() {
            progress.show(standing.bytes_read, to_read, Some(standing.events));
        }
        over.is_none()
    });
    progress.clear();
    if let Some(events) = over {
        return Err(budget.exceeded(KEPT, events, LESS));
    }
    let Done { streams, merger, mut partitions, ledger, spent } = board.into_stages().ok_or(AnalysisError::Thread)?;
    // Nobody looks after the last task.
    if partitions.iter().any(|part| part.pairing.over_budget) {
        return Err(budget.exceeded(KEPT, merger.merged.events, LESS));
    }
    let [read, merged, paired] = [spent.reading, spent.merging, spent.pairing].map(|time| time.as_secs_f64());
    job.notes.note(format_args!(
        "{} events, -j {}: read for {read:.3} s, merged for {merged:.3} s, paired for {paired:.3} s",
        merger.merged.events, crew.threads
    ));
    let (mut live, mut known) = (Vec::new(), Vec::new());
    if rules.lists_live {
        let rows: usize = partitions.iter().map(|part| part.pairing.live_objects()).sum();
        // What takes the tables' place is less than they are.
        if !job.has_room_for(rows, partitions.iter().map(|part| part.pairing.table_bytes()).sum()) {
            return Err(budget.exceeded("rows of live objects", merger.merged.events, LESS));
        }
        live.reserve_exact(rows);
        classes.from(0, |class| known.push(*class));
        partitions.iter_mut().for_each(|part| part.pairing.list_live(&mut live, &mut known));
        live.sort_unstable_by_key(|object| (object.alloc_info.at, object.alloc_info.tie, object.address));
    }
    let peak_at = ledger.peak_at;
    let mut paired =
        PairingResult { live, classes: known, peak_at, knows_nodes: rules.nodes.is_some(), ..PairingResult::default() };
    budget.check_figures(classes.rows(), merger.merged.events)?;
    let mut figures = vec![Stats::default(); classes.rows()];
    let mut findings = Vec::new();
    for part in partitions {
        paired.counts.add(&part.pairing.counts());
        part.pairing.tallies.add_to(&mut figures);
        findings.push(part.pairing.findings);
    }
    trace.streams = streams;
    let registry = classes.into_inner();
    if registry.exhausted {
        return Err(AnalysisError::TooMany { limit: UNSELECTED });
    }
    paired.rows = registry.rows.iter().copied().zip(figures).collect();
    add_up(&mut paired, &ledger);
    // Known only now, too late for the gaps of the merge.
    let is_late = trace.dropped_beyond(merger.merged.missing) > 0 || trace.streams.iter().any(|s| s.facts().late_loss);
    add_findings(&mut paired, &rules, &findings, is_late);
    trace.names = registry.names;
    Ok((merger.merged, paired))
}

/// Hands all events within the bounds to `take`, in windows, with the first key of all: the first one read, if nobody knows it.
/// Ends early where `take` says false.
pub(crate) fn in_order(
    trace: &mut Trace,
    first: Option<u64>,
    bounds: impl FnOnce(u64) -> (u64, u64),
    progress: &mut dyn Progress,
    mut take: impl FnMut(&Window<Event>, u64, &Names) -> bool,
) -> MergeStats {
    let to_read = bytes_to_read(&trace.streams);
    let cpus = trace.streams.iter().map(CpuStream::cpu).collect();
    let mut merger = Merger::new(cpus, trace.info.order, 1);
    let (streams, names) = (&mut trace.streams, &mut trace.names);
    let batch = batch(WINDOW, streams.len());
    let read = |stream: &mut CpuStream, names: &mut Names, mut chunk: Chunk<Event>| {
        chunk.clear();
        let ended = !stream.decode(names, &mut chunk, batch);
        (chunk, ended)
    };
    for (index, stream) in streams.iter_mut().enumerate() {
        while merger.needs_input(index) {
            let (chunk, ended) = read(stream, names, Chunk::default());
            merger.add(index, chunk, ended);
        }
    }
    let first = first.unwrap_or_else(|| merger.first_key());
    let bounds = bounds(first);
    merger.set_bounds(bounds);
    let mut spare = Vec::new();
    while !merger.is_done() {
        if let Some(window) = merger.next() {
            let goes_on = take(&window, first.max(bounds.0), names);
            merger.recycle(window);
            if !goes_on {
                break;
            }
        }
        spare.extend(merger.take_consumed());
        for (index, stream) in streams.iter_mut().enumerate() {
            while merger.needs_input(index) {
                let (chunk, ended) = read(stream, names, spare.pop().unwrap_or_default());
                merger.add(index, chunk, ended);
            }
        }
        if progress.is_due() {
            let read = streams.iter().map(CpuStream::bytes_read).sum();
            progress.show(read, to_read, Some(merger.merged.events));
        }
    }
    progress.clear();
    merger.merged
}

/// Key of the last event: a pass of its own.
pub(crate) fn last_key(trace: &mut Trace, progress: &mut dyn Progress) -> u64 {
    struct Nothing;
    impl EventSink for Nothing {
        const NAMES: bool = false;
        const FLAGS: bool = false;
        fn event(&mut self, _: Event, _: &Names) {}
        fn gap(&mut self, _: Gap) {}
    }
    let to_read = bytes_to_read(&trace.streams);
    let mut bytes_read = 0;
    for stream in &mut trace.streams {
        while stream.decode(&mut trace.names, &mut Nothing, WINDOW) {
            if progress.is_due() {
                progress.show(bytes_read + stream.bytes_read(), to_read, None);
            }
        }
        bytes_read += stream.bytes_read();
    }
    progress.clear();
    trace.streams.iter().filter_map(|stream| stream.facts().last).max().unwrap_or(0)
}

/// Bytes of all streams, about.
fn bytes_to_read(streams: &[CpuStream]) -> u64 {
    streams.iter().map(CpuStream::bytes_to_read).sum()
}

/// Events to read of a stream at once, where a window has about so many.
fn batch(window: usize, streams: usize) -> usize {
    (window / streams.max(1)).max(window.min(256)).max(1)
}

/// Peaks of the rows, and figures of each kind and in all.
fn add_up(paired: &mut PairingResult, ledger: &Ledger) {
    for (index, ((_, kind), figures)) in paired.rows.iter_mut().enumerate() {
        figures.peak_live_allocated = Some(ledger.peak(index));
        paired.kinds[kind_index(*kind)].add(figures);
        if *kind != Kind::Pages {
            paired.total.add(figures);
        }
    }
    let (kinds, total) = ledger.peaks();
    for (figures, peak) in paired.kinds.iter_mut().zip(kinds) {
        figures.peak_live_allocated = Some(peak);
    }
    paired.total.peak_live_allocated = Some(total);
}

/// Findings of all partitions, by their call-sites; `all_suspect`: there is a gap from the first event to the last.
fn add_findings(paired: &mut PairingResult, rules: &PairingOptions, findings: &[Findings], all_suspect: bool) {
    let mut rows: HashMap<FindingSites, FindingRow, RandomState> = HashMap::default();
    for (key, mut row) in findings.iter().flat_map(Findings::rows) {
        if all_suspect && key.class != Finding::ShortAlloc {
            row.suspect = row.count;
        }
        let of = key.alloc.and_then(|alloc| paired.rows.get_mut(alloc as usize));
        let mut alloc_site = None;
        if let Some(((site, kind), figures)) = of {
            alloc_site = rules.by_site.then_some(*site);
            if key.is_unexplained(&row) {
                figures.live_is_upper_bound = true;
                paired.kinds[kind_index(*kind)].live_is_upper_bound = true;
                paired.total.live_is_upper_bound |= *kind != Kind::Pages;
            }
        }
        let sites = FindingSites { class: key.class, alloc_site, free_site: key.free_site, kind: key.kind };
        rows.entry(sites).and_modify(|sum| sum.add(&row)).or_insert(row);
    }
    paired.findings = rows;
}
