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

use crate::classes::{Classes, Grouping, Registry};
use crate::decode::{Compact, Filter, Reader};
use crate::findings::{FindingRow, FindingSites, Findings};
use crate::hashing::Seed;
use crate::ledger::Ledger;
use crate::order::{Chunk, Merger, Order, Window};
use crate::pairs::{Counts, Live, Paired, Pairing, Rules, kind_index};

/// What to do, and with how many threads.
pub(crate) struct Job {
    pub(crate) rules: Rules,
    pub(crate) grouping: Grouping,
    pub(crate) threads: u32,
}

/// Events of a window on one thread: what of them is in memory should stay in a core's cache.
const WINDOW: usize = 8192;

/// Takes all events of `trace` within the bounds that `bounds` gives for its first key.
pub(crate) fn run<F: Filter + Clone + Send>(
    trace: &mut Trace,
    job: Job,
    filter: &F,
    bounds: impl FnOnce(u64) -> (u64, u64),
) -> anyhow::Result<(Order, Paired)> {
    let Job { mut rules, grouping, threads: _ } = job;
    let streams = std::mem::take(&mut trace.streams);
    rules.cpus = streams.iter().map(CpuStream::cpu).collect();
    let classes = Classes::new(trace.names.clone());
    let seed = Seed::random();
    let mut readers: Vec<Reader<'_, F>> = Vec::new();
    for (stream, number) in streams.into_iter().zip(0u16..) {
        readers.push(Reader::new(stream, number, &trace.names, &classes, grouping, seed, filter.clone()));
    }
    let mut merger = Merger::new(rules.cpus.clone(), trace.info.order, 1);
    let batch = batch(WINDOW, readers.len());
    let mut ledger = Ledger::default();
    let mut pairing = Pairing::new(&rules, &classes, seed, 0, 1);
    let mut spare: Vec<Chunk<Compact>> = Vec::new();
    for (index, reader) in readers.iter_mut().enumerate() {
        while merger.lacks(index) {
            let (chunk, ended) = reader.read(Chunk::default(), batch);
            merger.add(index, chunk, ended);
        }
    }
    merger.set_bounds(bounds(merger.first_key()));
    while !merger.is_done() {
        if let Some(window) = merger.next() {
            pairing.take(&window, &mut ledger);
            merger.recycle(window, &mut spare);
        }
        for index in merger.wanted() {
            let (chunk, ended) = readers[index].read(spare.pop().unwrap_or_default(), batch);
            merger.add(index, chunk, ended);
        }
    }
    let order = merger.merged;
    let mut live = if rules.lists_live { pairing.live() } else { Vec::new() };
    live.sort_unstable_by_key(|object| object.birth.serial);
    let (counts, findings) = (vec![pairing.counts], vec![pairing.findings]);
    trace.streams = readers.into_iter().map(|reader| reader.stream).collect();
    let registry = classes.into_inner();
    let paired = summed(&rules, &registry, &ledger, &counts, findings, live);
    trace.names = registry.names;
    Ok((order, paired))
}

/// Hands all events within the bounds to `take`, in windows, with the first key of all.
pub(crate) fn in_order(
    trace: &mut Trace,
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
    let first = merger.first_key();
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
    (window / streams.max(1)).max(256)
}

/// All partitions together.
fn summed(
    rules: &Rules,
    registry: &Registry,
    ledger: &Ledger,
    counts: &[Counts],
    findings: Vec<Findings>,
    live: Vec<Live>,
) -> Paired {
    let mut paired = Paired { live, peak_at: ledger.peak_at, knows_nodes: rules.nodes.is_some(), ..Paired::default() };
    counts.iter().for_each(|part| paired.counts.add(part));
    let keys = registry.rows.iter().enumerate();
    paired.rows = keys.map(|(index, &key)| (key, ledger.figures(index))).collect();
    let mut rows: HashMap<FindingSites, FindingRow, RandomState> = HashMap::default();
    for (key, row) in findings.iter().flat_map(|part| part.rows()) {
        let of = key.alloc.and_then(|alloc| paired.rows.get_mut(alloc as usize));
        if let Some((_, figures)) = of
            && key.is_unexplained(&row)
        {
            figures.live_is_upper_bound = true;
        }
        let alloc_site = key.alloc.filter(|_| rules.by_site).and_then(|alloc| registry.rows.get(alloc as usize));
        let sites = FindingSites {
            class: key.class,
            alloc_site: alloc_site.map(|&(site, _)| site),
            free_site: key.free_site,
            kind: key.kind,
        };
        rows.entry(sites).and_modify(|sum| sum.add(&row)).or_insert(row);
    }
    paired.findings = rows;
    let (kinds, total) = ledger.peaks();
    for ((_, kind), figures) in &paired.rows {
        paired.kinds[kind_index(*kind)].add(figures);
        if *kind != Kind::Pages {
            paired.total.add(figures);
        }
    }
    for (figures, peak) in paired.kinds.iter_mut().zip(kinds) {
        figures.peak_live_allocated = Some(peak);
    }
    paired.total.peak_live_allocated = Some(total);
    paired
}
