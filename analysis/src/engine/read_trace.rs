//! Pipeline from the streams of a trace to its figures: reading, merging, pairing and counting, on one thread or on several.
//!
//! With several threads the addresses are divided into as many partitions, and all stages run at once: streams are read, a window
//! is merged, partitions pair their parts of earlier windows, and the peak tracker replays their changes.

use std::time::{Duration, Instant};

use kmemtrace_abi::stream::CpuStream;
use kmemtrace_abi::trace::Trace;

use crate::account::births::{Births, joined, tenth};
use crate::account::classes::{Classes, NodesOfRows};
use crate::account::completeness::MergeStats;
use crate::account::group_reader::GroupReader;
use crate::account::grouping::GroupKey;
use crate::account::over_time::{OverTime, OverTimeFigures};
use crate::account::place_paths::PlaceSteps;
use crate::account::row_paths::{Nodes, SharedPaths};
use crate::engine::add_up;
use crate::engine::config::{RunConfig, batch};
use crate::engine::peaks::PeakTracker;
use crate::engine::read_in_order::bytes_to_read;
use crate::engine::read_text;
use crate::engine::scheduler::{Finished, MAX_ROUNDS, Partition, Scheduler, StageTimes};
use crate::error::{AnalysisError, LESS_OF_THE_TRACE};
use crate::memory::hashing::Seed;
use crate::order::merge::Chunk;
use crate::order::merger::Merger;
use crate::order::pair_event::{PairEvent, PairEventReader};
use crate::pairing::pairs::Pairing;
use crate::pairing::result::PairingResult;
use crate::progress::Progress;
use crate::query::filter::EventFilter;

/// Interval between two looks at the memory of the process.
pub(super) const BETWEEN_LOOKS: Duration = Duration::from_millis(10);
/// Memory that grows with the trace, for messages.
pub(super) const KEPT: &str = "live objects, freed addresses and their sizes";

/// Memory for each event between two stages, in bytes, with its key and its change of the live bytes.
const EVENT_BYTES: usize = size_of::<PairEvent>() + 32;

/// Pairs all events of `trace` that `filter` takes, within the bounds that `bounds` gives for its first key. `known_first` is the
/// first key of a trace of which only a part is read.
pub(crate) fn run(
    trace: &mut Trace,
    mut config: RunConfig<'_>,
    filter: &EventFilter<'_>,
    bounds: impl FnOnce(u64) -> (u64, u64),
    known_first: Option<u64>,
    progress: &mut dyn Progress,
) -> Result<(MergeStats, PairingResult), AnalysisError> {
    if !trace.info.capabilities.past {
        return read_text::run(trace, &config, filter, bounds, progress);
    }
    let mut streams = std::mem::take(&mut trace.streams);
    config.rules.cpus = trace.info.cpus.clone();
    let paths = config.over_time.nodes.map(SharedPaths::new);
    let classes = Classes::new(trace.names.clone(), config.parallelism.sized_classes);
    let classes = match &paths {
        Some(paths) => classes.with_nodes(NodesOfRows {
            grouping: config.grouping,
            rule: config.facts.module_rule,
            places: config.places.take().map(|(names, by_area)| PlaceSteps::new(names, by_area)),
            paths: paths.clone(),
        }),
        None => classes,
    };
    let seed = Seed::random();
    let mut merger =
        Merger::new(streams.iter().map(CpuStream::cpu).collect(), trace.info.order, config.parallelism.parts());
    let groups = GroupReader::new(config.grouping, config.facts, &classes);
    let by_site = config.grouping.has(GroupKey::Site);
    let mut reader = PairEventReader::new(&trace.names, &classes, groups, by_site, seed, filter.clone());
    reader.tell_cpus_apart(&streams, &config.rules.cpus);
    let at_once = batch(config.parallelism.window, streams.len());
    read_first(&mut streams, &mut merger, &mut reader, at_once);
    let bounds = bounds(merger.first_key());
    merger.set_bounds(bounds);
    let begin = bounds.0.max(known_first.unwrap_or(merger.first_key()));
    let peaks = || PeakTracker::new(OverTime::new(config.over_time, begin, paths.clone()));
    let sizes = Sizes::new(&config, streams.len(), streams.len().saturating_sub(trace.info.missing.len()));
    let partitions = partitions(&config, &classes, seed, &sizes, peaks);
    let to_read = bytes_to_read(&streams);
    let mut scheduler = Scheduler::new(streams, merger, partitions, peaks(), (sizes.batch, sizes.ahead));
    // A short trace does not fill the buffers.
    if config.parallelism.threads > 1 && to_read > sizes.on_the_way as u64 {
        scheduler.take_memory(sizes.readable);
    }
    work(&scheduler, reader, &config, to_read, progress)?;
    let finished = scheduler.into_stages().ok_or(AnalysisError::Thread)?;
    let Finished { streams, mut merger, partitions, mut peaks, times } = finished;
    let over_time = peaks.over_time.take();
    let OverTimeFigures { growth, curve, node_peaks } =
        over_time.map(|over_time| over_time.finish(merger.merged.last)).unwrap_or_default();
    let order = merger.merged;
    // The scheduler's caller looks at the memory after each task but the last.
    if partitions.iter().any(|part| part.pairing.over_budget) {
        return Err(config.budget.exceeded(KEPT, order.events, LESS_OF_THE_TRACE));
    }
    note_times(times, &order, &config);
    let collected = add_up::collect(partitions, &classes, &config, order.events)?;
    trace.streams = streams;
    // Losses without a place are known at the end, too late for the gaps of the merge.
    let is_late = trace.dropped_beyond(order.missing) > 0 || trace.streams.iter().any(|s| s.report().late_loss);
    let (mut paired, names) = collected.add_up(classes, &config.rules, &peaks, is_late)?;
    trace.names = names;
    if config.counts_births {
        let late = (trace.dropped_beyond(order.missing) > 0).then_some((0, u64::MAX));
        paired.gaps = joined(merger.take_gaps().into_iter().chain(late).collect());
        count_births(&mut paired, (order.first.unwrap_or(0), order.last.unwrap_or(0)));
    }
    let nodes = paths.map(|paths| paths.take()).map(|(nodes, paths)| Nodes { nodes, paths, peaks: node_peaks });
    Ok((order, PairingResult { growth, curve, nodes, ..paired }))
}

/// Counts the births of the live objects of each row in the window, in place of their list.
fn count_births(paired: &mut PairingResult, window: (u64, u64)) {
    paired.births = vec![Births::default(); paired.rows.len()];
    for object in std::mem::take(&mut paired.live).iter() {
        let row = paired.classes.get(object.class as usize).map_or(usize::MAX, |class| class.row as usize);
        if let Some(born) = paired.births.get_mut(row) {
            born[tenth(window, object.alloc_info.at)] += 1;
        }
    }
    paired.classes = Vec::new();
}

/// Sizes of the buffers between the stages, and of the tables.
struct Sizes {
    /// Events to read of a stream at once.
    batch: usize,
    /// Chunks to read ahead of each stream.
    ahead: usize,
    /// Streams that have a file.
    readable: usize,
    /// Memory of all events between the stages, in bytes.
    on_the_way: usize,
    /// Memory limit of each partition's tables, in bytes.
    table_bytes: usize,
}

impl Sizes {
    fn new(config: &RunConfig<'_>, streams: usize, readable: usize) -> Sizes {
        let parallelism = config.parallelism;
        let (batch, ahead) = (batch(parallelism.window, streams), parallelism.ahead(streams));
        let parts = parallelism.parts();
        // Several partitions keep copies of theirs, and each of them a number for each event.
        let copies = if parts > 1 { EVENT_BYTES + parts as usize * size_of::<u32>() } else { 0 };
        // All of it may be on the way, read ahead or in windows.
        let on_the_way = parallelism.window.max(batch * readable) * ((ahead + MAX_ROUNDS) * EVENT_BYTES + copies);
        let left = config.budget.left(on_the_way as u64);
        let table_bytes = usize::try_from(left / u64::from(parts)).unwrap_or(usize::MAX);
        Sizes { batch, ahead, readable, on_the_way, table_bytes }
    }
}

/// Reads each stream up to its first event.
fn read_first(
    streams: &mut [CpuStream],
    merger: &mut Merger<PairEvent>,
    reader: &mut PairEventReader<'_>,
    batch: usize,
) {
    for (stream, number) in streams.iter_mut().zip(0u16..) {
        let index = usize::from(number);
        while merger.needs_input(index) {
            let (chunk, ended) = reader.read(number, stream, Chunk::default(), batch);
            merger.add(index, chunk, ended);
        }
    }
}

fn partitions<'a>(
    config: &'a RunConfig<'_>,
    classes: &'a Classes,
    seed: Seed,
    sizes: &Sizes,
    peaks: impl Fn() -> PeakTracker,
) -> Vec<Partition<'a>> {
    let parts = config.parallelism.parts();
    let partition = |part| {
        let mut pairing = Pairing::new(&config.rules, classes, seed, part, parts);
        pairing.set_max_bytes(sizes.table_bytes);
        Partition::new(pairing, (parts == 1).then(&peaks))
    };
    (0..parts as usize).map(partition).collect()
}

/// Runs all stages to their ends; stops where the memory limit is exceeded.
fn work(
    scheduler: &Scheduler<'_>,
    reader: PairEventReader<'_>,
    config: &RunConfig<'_>,
    to_read: u64,
    progress: &mut dyn Progress,
) -> Result<(), AnalysisError> {
    progress.begin();
    let budget = config.budget;
    let mut over = None;
    let mut looked = Instant::now();
    scheduler.work(config.parallelism.threads, reader, |snapshot| {
        let is_time = looked.elapsed() > BETWEEN_LOOKS;
        if is_time {
            looked = Instant::now();
        }
        if snapshot.is_over || is_time && budget.is_exceeded() {
            over = Some(snapshot.events);
        }
        if progress.is_due() {
            progress.show(snapshot.bytes_read, to_read, Some(snapshot.events));
        }
        over.is_none()
    });
    progress.clear();
    over.map_or(Ok(()), |events| Err(budget.exceeded(KEPT, events, LESS_OF_THE_TRACE)))
}

fn note_times(times: StageTimes, order: &MergeStats, config: &RunConfig<'_>) {
    let [read, merged, paired] = [times.reading, times.merging, times.pairing].map(|time| time.as_secs_f64());
    config.notes.note(format_args!(
        "{} events, -j {}: read for {read:.3} s, merged for {merged:.3} s, paired for {paired:.3} s",
        order.events, config.parallelism.threads
    ));
}
