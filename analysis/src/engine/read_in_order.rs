//! Passes on the caller's thread: all events in order for an observer, the key of the last event, and loads of modules.

use std::collections::HashSet;

use kmemtrace_abi::event::{Event, EventSink, Gap, ModuleLoad, Names, TaskEvent};
use kmemtrace_abi::stream::CpuStream;
use kmemtrace_abi::trace::Trace;

use crate::account::cgroups::{CgroupBuilder, Cgroups};
use crate::account::completeness::MergeStats;
use crate::account::module_loads::ModuleLoads;
use crate::engine::config::{WINDOW, batch};
use crate::order::merge::Chunk;
use crate::order::merger::{Merger, Window};
use crate::progress::Progress;

/// Limit of call-sites that are looked at; kernels have some ten thousand.
const MAX_SITES: usize = 1 << 20;

/// Hands all events within the bounds to `take`, in windows of about `window_events` events, with the first key of all: `first` where the caller knows it, else
/// the first key read. Ends early where `take` returns false.
pub(crate) fn in_order(
    trace: &mut Trace,
    window_events: usize,
    first: Option<u64>,
    bounds: impl FnOnce(u64) -> (u64, u64),
    progress: &mut dyn Progress,
    mut take: impl FnMut(&Window<Event>, u64, &Names) -> bool,
) -> MergeStats {
    progress.begin();
    let to_read = bytes_to_read(&trace.streams);
    let cpus = trace.streams.iter().map(CpuStream::cpu).collect();
    let mut merger = Merger::new(cpus, trace.info.order, 1);
    let (streams, names) = (&mut trace.streams, &mut trace.names);
    let batch = batch(window_events, streams.len());
    let mut kept = (0, u64::MAX);
    let read = |stream: &mut CpuStream, names: &mut Names, mut chunk: Chunk<Event>, kept: (u64, u64)| {
        chunk.clear();
        let ended = !stream.decode(names, &mut chunk, batch);
        release_fields(names, chunk.events.iter_mut().filter(|event| event.at < kept.0 || event.at > kept.1));
        (chunk, ended)
    };
    for (index, stream) in streams.iter_mut().enumerate() {
        while merger.needs_input(index) {
            let (chunk, ended) = read(stream, names, Chunk::default(), kept);
            merger.add(index, chunk, ended);
        }
    }
    let first = first.unwrap_or_else(|| merger.first_key());
    let bounds = bounds(first);
    merger.set_bounds(bounds);
    kept = bounds;
    let mut spare = Vec::new();
    while !merger.is_done() {
        if let Some(mut window) = merger.next() {
            let goes_on = take(&window, first.max(bounds.0), names);
            release_fields(names, window.events.iter_mut());
            merger.recycle(window);
            if !goes_on {
                break;
            }
        }
        spare.extend(merger.take_consumed());
        for (index, stream) in streams.iter_mut().enumerate() {
            while merger.needs_input(index) {
                let (chunk, ended) = read(stream, names, spare.pop().unwrap_or_default(), kept);
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

/// Forgets the records of events.
pub(crate) fn release_fields<'e>(names: &mut Names, events: impl Iterator<Item = &'e mut Event>) {
    if names.fields.is_kept() {
        events.filter_map(|event| event.fields.take()).for_each(|fields| names.fields.release(fields));
    }
}

/// Key of the last event, by a pass over the whole trace.
pub(crate) fn last_key(trace: &mut Trace, progress: &mut dyn Progress) -> u64 {
    struct Nothing;
    impl EventSink for Nothing {
        const NAMES: bool = false;
        const FLAGS: bool = false;
        const STACKS: bool = false;
        const MARKS: bool = false;
        fn event(&mut self, _: Event, _: &Names) {}
        fn gap(&mut self, _: Gap) {}
    }
    decode_all(trace, &mut Nothing, progress);
    trace.streams.iter().filter_map(|stream| stream.report().last).max().unwrap_or(0)
}

/// Loads of modules, by a pass over the whole trace.
pub(crate) fn module_loads(trace: &mut Trace, progress: &mut dyn Progress) -> ModuleLoads {
    struct Loads(ModuleLoads);
    impl EventSink for Loads {
        const NAMES: bool = false;
        const FLAGS: bool = false;
        const STACKS: bool = false;
        fn event(&mut self, _: Event, _: &Names) {}
        fn gap(&mut self, _: Gap) {}
        fn module_load(&mut self, load: ModuleLoad<'_>) {
            self.0.add(load);
        }
    }
    let mut loads = Loads(ModuleLoads::default());
    decode_all(trace, &mut loads, progress);
    loads.0.sort();
    loads.0
}

/// Cgroups of threads over time, by a pass over the whole trace; `text` are those that the recorder saw.
pub(crate) fn cgroups(trace: &mut Trace, text: &[u8], progress: &mut dyn Progress) -> Cgroups {
    struct Tasks<'t>(CgroupBuilder<'t>);
    impl EventSink for Tasks<'_> {
        const NAMES: bool = false;
        const FLAGS: bool = false;
        const STACKS: bool = false;
        const MARKS: bool = false;
        fn event(&mut self, _: Event, _: &Names) {}
        fn gap(&mut self, _: Gap) {}
        fn task(&mut self, event: TaskEvent<'_>) {
            self.0.add(event);
        }
    }
    let mut tasks = Tasks(CgroupBuilder::new(text));
    decode_all(trace, &mut tasks, progress);
    tasks.0.finish()
}

/// Call-sites of all events, each once, by a pass over the whole trace.
pub(crate) fn call_sites(trace: &mut Trace, progress: &mut dyn Progress) -> HashSet<u64> {
    struct Sites(HashSet<u64>);
    impl EventSink for Sites {
        const NAMES: bool = false;
        const FLAGS: bool = false;
        const STACKS: bool = false;
        const MARKS: bool = false;
        fn event(&mut self, event: Event, _: &Names) {
            if self.0.len() < MAX_SITES {
                self.0.insert(event.call_site);
            }
        }
        fn gap(&mut self, _: Gap) {}
    }
    let mut sites = Sites(HashSet::new());
    decode_all(trace, &mut sites, progress);
    sites.0
}

/// Hands all events of one stream after the other to `items`.
pub(crate) fn decode_all(trace: &mut Trace, items: &mut impl EventSink, progress: &mut dyn Progress) {
    progress.begin();
    let to_read = bytes_to_read(&trace.streams);
    let mut bytes_read = 0;
    for stream in &mut trace.streams {
        while stream.decode(&mut trace.names, items, WINDOW) {
            if progress.is_due() {
                progress.show(bytes_read + stream.bytes_read(), to_read, None);
            }
        }
        bytes_read += stream.bytes_read();
    }
    progress.clear();
}

/// Bytes of all streams, about.
pub(crate) fn bytes_to_read(streams: &[CpuStream]) -> u64 {
    streams.iter().map(CpuStream::bytes_to_read).sum()
}
