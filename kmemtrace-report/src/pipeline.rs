//! From the streams of a trace to its figures: reading, merging, pairing and counting, on one thread or on several.
//!
//! With several threads the addresses are dealt out to as many partitions, and at each step all of this happens at once:
//! each CPU's stream that runs short is read, a window is merged, each partition pairs its part of the window before, and
//! the ledger replays the one before that. A step ends when all is done, so the same steps give the same figures
//! whoever does them.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use kmemtrace_abi::event::{Event, Gap, Items, Kind, Names};
use kmemtrace_abi::trace::{CpuStream, Trace};

use crate::budget::Budget;
use crate::classes::{Classes, Grouping, MOST_SIZED};
use crate::crew::{Task, do_all};
use crate::decode::{Compact, Filter, Reader};
use crate::figures::Figures;
use crate::findings::{FindingRow, FindingSites, Findings};
use crate::hashing::Seed;
use crate::ledger::{Ledger, Log};
use crate::order::{Chunk, MOST_PARTS, Merger, Order, Window};
use crate::pairs::{Live, Paired, Pairing, Rules, kind_index};
use crate::progress::Progress;

/// What to do, and with how many threads.
#[derive(Clone)]
pub(crate) struct Job {
    pub(crate) rules: Rules,
    pub(crate) grouping: Grouping,
    pub(crate) crew: CrewSize,
    pub(crate) budget: Budget,
    /// Memory that a table needs for each live object that is listed.
    pub(crate) row_bytes: usize,
    pub(crate) is_quiet: bool,
}

impl Job {
    /// Whether so many live objects may be listed.
    pub(crate) fn has_room_for(&self, rows: usize) -> bool {
        (rows * (LISTED_BYTES + self.row_bytes)) as u64 <= self.budget.left(0)
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
        let window = if threads == 1 { WINDOW } else { WINDOW_AT_ONCE };
        CrewSize { threads, window, sized_classes: MOST_SIZED }
    }

    /// Partitions of the addresses. Two threads are busy without: one pairs while the other reads.
    fn parts(self) -> u32 {
        if self.threads <= 2 { 1 } else { self.threads.min(256).min(MOST_PARTS) }
    }
}

/// Events of a window on one thread: what of them is in memory should stay in a core's cache.
const WINDOW: usize = 8192;
/// On several: a step should take long enough for nobody to notice its end.
const WINDOW_AT_ONCE: usize = 64 << 10;

/// Memory of all stages for each event of a window: chunks being read, merged, paired and replayed, places and logs.
const BUFFER_BYTES: usize = 400;
/// Memory for each live object that is listed, while they are sorted.
const LISTED_BYTES: usize = 2 * size_of::<Live>();

/// A partition of the addresses.
struct Partition<'a> {
    pairing: Pairing<'a>,
    /// What it changes in the ledger, where there are several partitions.
    log: Log,
    /// The same of the window before.
    log_before: Log,
}

/// The stages, and what is on its way from one to the next.
struct Pipeline<'a, F> {
    threads: u32,
    /// Events to read of a stream at once.
    batch: usize,
    readers: Vec<Reader<'a, F>>,
    merger: Merger<Compact>,
    partitions: Vec<Partition<'a>>,
    ledger: Ledger,
    /// To be paired in the next step.
    merged: Option<Window<Compact>>,
    /// To be replayed in the next step from the logs of the partitions.
    paired: Option<Window<Compact>>,
    /// Chunks whose memory is used again.
    spare: Vec<Chunk<Compact>>,
}

impl<F: Filter + Send> Pipeline<'_, F> {
    /// Reads each stream up to its first event.
    fn begin(&mut self) {
        for (index, reader) in self.readers.iter_mut().enumerate() {
            while self.merger.lacks(index) {
                let (chunk, ended) = reader.read(Chunk::default(), self.batch);
                self.merger.add(index, chunk, ended);
            }
        }
    }

    /// Gives each partition its share of the bytes that tables may take.
    fn share_out(&mut self, bytes: u64) {
        let share = usize::try_from(bytes / self.partitions.len().max(1) as u64).unwrap_or(usize::MAX);
        self.partitions.iter_mut().for_each(|part| part.pairing.set_most_bytes(share));
    }

    /// Bytes of all files.
    fn file_bytes(&self) -> u64 {
        let len = |reader: &Reader<'_, F>| std::fs::metadata(reader.stream.path()).map_or(0, |m| m.len());
        self.readers.iter().map(len).sum()
    }

    fn bytes_read(&self) -> u64 {
        self.readers.iter().map(|reader| reader.stream.bytes_read()).sum()
    }

    /// Whether anything is left to do.
    fn goes_on(&self) -> bool {
        !self.merger.is_done() || self.merged.is_some() || self.paired.is_some()
    }

    /// One step of all stages at once, each with what the one before it came to in the last step.
    fn step(&mut self) {
        let Pipeline { batch, merger, ledger, merged, paired, spare, .. } = self;
        let mut next = None;
        let mut read: Vec<(usize, Chunk<Compact>, bool)> = Vec::new();
        if !merger.is_done() {
            read.extend(merger.wanted().into_iter().map(|index| (index, spare.pop().unwrap_or_default(), false)));
        }
        // The longest ones first.
        let mut tasks: Vec<Task<'_>> = Vec::new();
        match (self.partitions.as_mut_slice(), &*merged) {
            ([only], Some(window)) => tasks.push(Box::new(|| only.pairing.take(window, ledger))),
            (several, merged) => {
                let mut logs = Vec::new();
                for part in several {
                    let Partition { pairing, log, log_before } = part;
                    logs.push(&*log_before);
                    if let Some(window) = merged {
                        tasks.push(Box::new(|| pairing.take(window, log)));
                    }
                }
                if let Some(window) = &*paired {
                    tasks.push(Box::new(move || ledger.replay(window, &logs)));
                }
            }
        }
        let mut fresh = read.iter_mut().peekable();
        for (index, reader) in self.readers.iter_mut().enumerate() {
            if let Some((_, chunk, ended)) = fresh.next_if(|(wanted, ..)| *wanted == index) {
                tasks.push(Box::new(|| (*chunk, *ended) = reader.read(std::mem::take(chunk), *batch)));
            }
        }
        if !merger.is_done() {
            tasks.push(Box::new(|| next = merger.next()));
        }
        do_all(self.threads, tasks);
        read.into_iter().for_each(|(index, chunk, ended)| self.merger.add(index, chunk, ended));
        self.pass_on(next);
    }

    /// What was done is the next stage's, and what is through is used again.
    fn pass_on(&mut self, next: Option<Window<Compact>>) {
        if self.partitions.len() > 1 {
            std::mem::swap(&mut self.merged, &mut self.paired);
            for part in &mut self.partitions {
                std::mem::swap(&mut part.log, &mut part.log_before);
                part.log.clear();
            }
        }
        if let Some(window) = std::mem::replace(&mut self.merged, next) {
            self.merger.recycle(window, &mut self.spare);
        }
    }
}

/// Takes all events of `trace` within the bounds that `bounds` gives for its first key, as far as `filter` takes them.
pub(crate) fn run<F: Filter + Clone + Send>(
    trace: &mut Trace,
    job: Job,
    filter: &F,
    bounds: impl FnOnce(u64) -> (u64, u64),
) -> anyhow::Result<(Order, Paired)> {
    let Job { mut rules, grouping, crew, budget, row_bytes, is_quiet } = job;
    let streams = std::mem::take(&mut trace.streams);
    rules.cpus = streams.iter().map(CpuStream::cpu).collect();
    let classes = Classes::new(trace.names.clone(), crew.sized_classes);
    let seed = Seed::random();
    let parts = crew.parts();
    let partition = |part| Partition {
        pairing: Pairing::new(&rules, &classes, seed, part, parts),
        log: Log::default(),
        log_before: Log::default(),
    };
    let mut pipeline = Pipeline {
        threads: crew.threads,
        batch: batch(crew.window, streams.len()),
        readers: Vec::new(),
        merger: Merger::new(rules.cpus.clone(), trace.info.order, parts),
        partitions: (0..parts as usize).map(partition).collect(),
        ledger: Ledger::default(),
        merged: None,
        paired: None,
        spare: Vec::new(),
    };
    for (stream, number) in streams.into_iter().zip(0u16..) {
        let reader = Reader::new(stream, number, &trace.names, &classes, grouping, seed, filter.clone());
        pipeline.readers.push(reader);
    }
    pipeline.begin();
    pipeline.merger.set_bounds(bounds(pipeline.merger.first_key()));
    pipeline.share_out(budget.left((crew.window * BUFFER_BYTES) as u64));
    let mut progress = Progress::new(pipeline.file_bytes(), is_quiet);
    for step in 0u64.. {
        if !pipeline.goes_on() {
            break;
        }
        pipeline.step();
        let events = pipeline.merger.merged.events;
        if pipeline.partitions.iter().any(|part| part.pairing.is_over) || step.is_multiple_of(16) && budget.is_over() {
            budget.exceeded("live objects and freed addresses", events)?;
        }
        if progress.is_due() {
            progress.show(pipeline.bytes_read(), events);
        }
    }
    drop(progress);
    let Pipeline { readers, merger, mut partitions, ledger, .. } = pipeline;
    let mut live = Vec::new();
    if rules.lists_live {
        let rows: usize = partitions.iter().map(|part| part.pairing.live_objects()).sum();
        if (rows * (LISTED_BYTES + row_bytes)) as u64 > budget.left(0) {
            budget.exceeded("rows of live objects", merger.merged.events)?;
        }
        live.extend(partitions.iter_mut().flat_map(|part| part.pairing.live()));
        live.sort_unstable_by_key(|object| object.birth.serial);
    }
    let mut paired = Paired { live, peak_at: ledger.peak_at, knows_nodes: rules.nodes.is_some(), ..Paired::default() };
    let mut figures = vec![Figures::default(); classes.rows()];
    let mut findings = Vec::new();
    for part in partitions {
        paired.counts.add(&part.pairing.counts);
        part.pairing.tallies.add_to(&mut figures);
        findings.push(part.pairing.findings);
    }
    trace.streams = readers.into_iter().map(|reader| reader.stream).collect();
    let registry = classes.into_inner();
    paired.rows = registry.rows.iter().copied().zip(figures).collect();
    add_up(&mut paired, &ledger);
    add_findings(&mut paired, &rules, &findings);
    trace.names = registry.names;
    Ok((merger.merged, paired))
}

/// Hands all events within the bounds to `take`, in windows, with the first key of all: the first one read, if nobody knows it.
pub(crate) fn in_order(
    trace: &mut Trace,
    first: Option<u64>,
    bounds: impl FnOnce(u64) -> (u64, u64),
    mut take: impl FnMut(&Window<Event>, u64, &Names),
) -> Order {
    let cpus = trace.streams.iter().map(CpuStream::cpu).collect();
    let mut merger = Merger::new(cpus, trace.info.order, 1);
    let (streams, names) = (&mut trace.streams, &mut trace.names);
    let batch = batch(WINDOW, streams.len());
    let mut spare: Vec<Chunk<Event>> = Vec::new();
    let mut read = |merger: &mut Merger<Event>, names: &mut Names, index: usize, mut chunk: Chunk<Event>| {
        chunk.clear();
        let ended = !streams[index].decode(names, &mut chunk, batch);
        merger.add(index, chunk, ended);
    };
    for index in 0..trace.info.cpus.len() {
        while merger.lacks(index) {
            read(&mut merger, names, index, Chunk::default());
        }
    }
    let first = first.unwrap_or_else(|| merger.first_key());
    let bounds = bounds(first);
    merger.set_bounds(bounds);
    while !merger.is_done() {
        if let Some(window) = merger.next() {
            take(&window, first.max(bounds.0), names);
            merger.recycle(window, &mut spare);
        }
        for index in merger.wanted() {
            read(&mut merger, names, index, spare.pop().unwrap_or_default());
        }
    }
    merger.merged
}

/// Key of the last event: a pass of its own.
pub(crate) fn last_key(trace: &mut Trace) -> u64 {
    struct Nothing;
    impl Items for Nothing {
        const NAMES: bool = false;
        fn event(&mut self, _: Event, _: &Names) {}
        fn gap(&mut self, _: Gap) {}
    }
    for stream in &mut trace.streams {
        while stream.decode(&mut trace.names, &mut Nothing, WINDOW) {}
    }
    trace.streams.iter().filter_map(|stream| stream.facts().last).max().unwrap_or(0)
}

/// Events to read of a stream at once, where a window has about so many.
fn batch(window: usize, streams: usize) -> usize {
    (window / streams.max(1)).max(window.min(256)).max(1)
}

/// Peaks of the rows, and figures of each kind and in all.
fn add_up(paired: &mut Paired, ledger: &Ledger) {
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

/// Findings of all partitions, by their call-sites.
fn add_findings(paired: &mut Paired, rules: &Rules, findings: &[Findings]) {
    let mut rows: HashMap<FindingSites, FindingRow, RandomState> = HashMap::default();
    for (key, row) in findings.iter().flat_map(Findings::rows) {
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
