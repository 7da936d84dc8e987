//! All CPUs' events in the one total order of the contract: (key, CPU, position in the CPU's stream).
//!
//! The merge takes what has been read of each CPU up to the point behind which a CPU may still bring earlier events, and
//! makes a window of it: references to the events in order, dealt out to partitions, with what is known of gaps. Memory is
//! that of a few chunks a CPU, however long the trace.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;

use kmemtrace_abi::event::{Gap, GapCause};
use kmemtrace_abi::trace::OrderKey;

/// An event as far as its order goes.
pub(crate) trait Keyed {
    /// Its order key.
    fn key(&self) -> u64;
    /// To which of `parts` partitions it belongs.
    fn part(&self, parts: u32) -> u32;
}

/// What is read of a CPU's stream at once: events in order, and the gaps before, between and after them.
#[derive(Debug)]
pub(crate) struct Chunk<E> {
    pub(crate) events: Vec<E>,
    pub(crate) gaps: Vec<Gap>,
}

impl<E> Default for Chunk<E> {
    fn default() -> Chunk<E> {
        Chunk { events: Vec::new(), gaps: Vec::new() }
    }
}

impl<E> Chunk<E> {
    pub(crate) fn clear(&mut self) {
        self.events.clear();
        self.gaps.clear();
    }
}

/// What the merge itself learns.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Order {
    /// Key of the first event taken.
    pub(crate) first: Option<u64>,
    /// Key of the last event taken.
    pub(crate) last: Option<u64>,
    /// Events taken.
    pub(crate) events: u64,
    /// Sequence numbers missing.
    pub(crate) missing: u64,
    /// Runs of missing sequence numbers.
    pub(crate) holes: u64,
}

/// Where an event of a window is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// Its number in the window.
    pub(crate) serial: u32,
    pub(crate) slice: u32,
    pub(crate) offset: u32,
}

/// From an event of the window on, what is known of gaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stretch {
    /// Number of its first event in the window.
    pub(crate) from: u32,
    /// A gap has begun: nothing that happened before can be compared with what comes now.
    pub(crate) fresh: bool,
    /// All of it lies in a gap.
    pub(crate) in_gap: bool,
}

/// Some of the trace, complete and in order.
#[derive(Debug)]
pub(crate) struct Window<E> {
    slices: Vec<Slice<E>>,
    /// Events of each partition, in order.
    pub(crate) parts: Vec<Vec<Place>>,
    /// Partition of each event, where there are several.
    pub(crate) owners: Vec<u16>,
    /// Number of the first event in the trace.
    pub(crate) first_serial: u64,
    pub(crate) stretches: Vec<Stretch>,
    /// A gap begins at the last window's frontier.
    pub(crate) touches_before: bool,
    /// All gaps that begin before this key are known; `None`: all gaps.
    pub(crate) frontier: Option<u64>,
    /// Gaps that were read, in no order.
    pub(crate) gaps: Vec<Gap>,
}

/// A chunk that events of a window are in.
#[derive(Debug)]
struct Slice<E> {
    chunk: Arc<Chunk<E>>,
    stream: usize,
}

impl<E> Window<E> {
    fn new() -> Window<E> {
        Window {
            slices: Vec::new(),
            parts: Vec::new(),
            owners: Vec::new(),
            first_serial: 0,
            stretches: Vec::new(),
            touches_before: false,
            frontier: None,
            gaps: Vec::new(),
        }
    }

    fn clear(&mut self) {
        self.slices.clear();
        self.parts.iter_mut().for_each(Vec::clear);
        self.owners.clear();
        self.stretches.clear();
        self.gaps.clear();
    }

    /// An event of a partition by its number in the window.
    pub(crate) fn event(&self, part: usize, serial: u32) -> Option<&E> {
        let places = self.parts.get(part)?;
        let place = &places[places.binary_search_by_key(&serial, |place| place.serial).ok()?];
        self.slices.get(place.slice as usize)?.chunk.events.get(place.offset as usize)
    }

    /// The events that places refer to.
    pub(crate) fn slices(&self) -> Vec<&[E]> {
        self.slices.iter().map(|slice| slice.chunk.events.as_slice()).collect()
    }
}

struct Queue<E> {
    /// None of them is empty.
    chunks: VecDeque<Arc<Chunk<E>>>,
    /// Events of the first chunk that have been taken.
    taken: usize,
    ended: bool,
    /// The last gap, of which more may come.
    gap: Option<(u64, u64)>,
}

impl<E: Keyed> Queue<E> {
    fn last_key(&self) -> Option<u64> {
        Some(self.chunks.back()?.events.last()?.key())
    }
}

/// Merges the chunks of all CPUs.
pub(crate) struct Merger<E> {
    queues: Vec<Queue<E>>,
    cpus: Vec<u32>,
    order: OrderKey,
    parts: u32,
    /// Keys to take, both ends included.
    bounds: Option<(u64, u64)>,
    /// Gaps that have not begun, first ones first.
    to_come: BinaryHeap<Reverse<(u64, u64)>>,
    /// How far the gaps that have begun reach.
    reach: Option<u64>,
    /// Frontier of the last window.
    frontier: Option<u64>,
    is_done: bool,
    /// Key of the last event, taken or not.
    last: Option<u64>,
    serial: u64,
    pub(crate) merged: Order,
    gaps: Vec<Gap>,
    sorted: Vec<Entry>,
    used: Vec<Window<E>>,
}

/// An event to be sorted.
#[derive(Clone, Copy, Debug)]
struct Entry {
    key: u64,
    offset: u32,
    /// Slice, and above it the partition.
    slice: u32,
}

impl Entry {
    fn slice(&self) -> usize {
        self.slice as usize & ((1 << SLICE_BITS) - 1)
    }
}

const SLICE_BITS: u32 = 20;
/// Partitions that an [`Entry`] has room for.
pub(crate) const MOST_PARTS: u32 = 1 << (32 - SLICE_BITS);

impl<E: Keyed> Merger<E> {
    /// For the streams of these CPUs, in their order.
    pub(crate) fn new(cpus: Vec<u32>, order: OrderKey, parts: u32) -> Merger<E> {
        let queue = || Queue { chunks: VecDeque::new(), taken: 0, ended: false, gap: None };
        Merger {
            queues: cpus.iter().map(|_| queue()).collect(),
            cpus,
            order,
            parts: parts.clamp(1, MOST_PARTS),
            bounds: None,
            to_come: BinaryHeap::new(),
            reach: None,
            frontier: None,
            is_done: false,
            last: None,
            serial: 0,
            merged: Order::default(),
            gaps: Vec::new(),
            sorted: Vec::new(),
            used: Vec::new(),
        }
    }

    /// Key of the first event of all, once each stream has been read once.
    pub(crate) fn first_key(&self) -> u64 {
        let first = |queue: &Queue<E>| queue.chunks.front().and_then(|chunk| chunk.events.first()).map(Keyed::key);
        self.queues.iter().filter_map(first).min().unwrap_or(0)
    }

    /// Takes only events with keys within these bounds.
    pub(crate) fn set_bounds(&mut self, bounds: (u64, u64)) {
        self.bounds = (bounds != (0, u64::MAX)).then_some(bounds);
    }

    /// Takes the next chunk of a stream on.
    pub(crate) fn add(&mut self, stream: usize, mut chunk: Chunk<E>, ended: bool) {
        let Some(queue) = self.queues.get_mut(stream) else { return };
        for gap in &chunk.gaps {
            let (from, to) = (gap.from.unwrap_or(0), gap.to.unwrap_or(u64::MAX));
            match &mut queue.gap {
                Some(before) if before.0 == from => before.1 = before.1.max(to),
                other => self.to_come.extend(other.replace((from, to)).map(Reverse)),
            }
        }
        self.gaps.append(&mut chunk.gaps);
        queue.ended = ended;
        if !chunk.events.is_empty() {
            queue.chunks.push_back(Arc::new(chunk));
        }
    }

    /// Streams to read from before, or while, the next window is made.
    pub(crate) fn wanted(&self) -> Vec<usize> {
        let limit = self.limit().map_or(0, |(key, _)| key);
        let is_wanted = |queue: &Queue<E>| {
            // A queue keeps one chunk beyond the window.
            !queue.ended && queue.chunks.back().is_none_or(|last| last.events.first().is_none_or(|e| e.key() <= limit))
        };
        (0..self.queues.len()).filter(|&index| is_wanted(&self.queues[index])).collect()
    }

    /// Whether a stream must be read before its first event is known.
    pub(crate) fn lacks(&self, stream: usize) -> bool {
        self.queues.get(stream).is_some_and(|queue| !queue.ended && queue.chunks.is_empty())
    }

    /// Whether the last window was made: that of the streams' ends, where all gaps are known. It may have no events.
    pub(crate) fn is_done(&self) -> bool {
        self.is_done
    }

    /// The last event, in order, before which nothing more can come: its key and stream. `None`: read more.
    fn limit(&self) -> Option<(u64, usize)> {
        let mut limit = (u64::MAX, usize::MAX);
        for (index, queue) in self.queues.iter().enumerate().filter(|(_, queue)| !queue.ended) {
            limit = limit.min((queue.last_key()?, index));
        }
        Some(limit)
    }

    /// The next window; `None` where a stream must be read before.
    pub(crate) fn next(&mut self) -> Option<Window<E>> {
        let (limit, last_stream) = self.limit()?;
        let is_last = last_stream == usize::MAX;
        let mut window = self.used.pop().unwrap_or_else(Window::new);
        for index in 0..self.queues.len() {
            self.collect(index, limit, index <= last_stream, &mut window);
        }
        // Stable: equal keys stay in the order of CPUs and positions. Streams are long runs, which it merges.
        self.sorted.sort_by_key(|entry| entry.key);
        self.begin_gaps(limit, is_last);
        self.find_holes(&window);
        if let Some((from, to)) = self.bounds {
            self.sorted.retain(|entry| (from..=to).contains(&entry.key));
        }
        window.frontier = (!is_last).then_some(limit);
        window.touches_before = self.begin_before();
        self.find_stretches(&mut window);
        self.deal(&mut window);
        window.gaps.append(&mut self.gaps);
        self.frontier = Some(limit);
        self.is_done = is_last;
        Some(window)
    }

    /// Takes a window back, to use its memory again; returns the chunks that are through.
    pub(crate) fn recycle(&mut self, mut window: Window<E>, through: &mut Vec<Chunk<E>>) {
        through.extend(window.slices.drain(..).filter_map(|slice| Arc::into_inner(slice.chunk)));
        window.clear();
        self.used.push(window);
    }

    /// Moves a stream's events up to `limit` into the window.
    fn collect(&mut self, stream: usize, limit: u64, inclusive: bool, window: &mut Window<E>) {
        let queue = &mut self.queues[stream];
        while let Some(chunk) = queue.chunks.front() {
            let rest = &chunk.events[queue.taken..];
            let count = rest.partition_point(|e| e.key() < limit || inclusive && e.key() == limit);
            if count == 0 {
                break;
            }
            let slice = window.slices.len() as u32;
            let (parts, first) = (self.parts, queue.taken as u32);
            let entry = |(e, offset): (&E, u32)| Entry {
                key: e.key(),
                offset,
                slice: slice | if parts == 1 { 0 } else { e.part(parts) << SLICE_BITS },
            };
            self.sorted.extend(rest[..count].iter().zip(first..).map(entry));
            window.slices.push(Slice { chunk: Arc::clone(chunk), stream });
            queue.taken += count;
            if queue.taken < chunk.events.len() {
                break;
            }
            queue.taken = 0;
            queue.chunks.pop_front();
        }
    }

    /// Gaps that begin before `limit` are known in full: their streams have events after them.
    fn begin_gaps(&mut self, limit: u64, is_last: bool) {
        for queue in &mut self.queues {
            if queue.gap.is_some_and(|(from, _)| from < limit || is_last) {
                self.to_come.extend(queue.gap.take().map(Reverse));
            }
        }
    }

    /// Missing sequence numbers, each run a gap.
    fn find_holes(&mut self, window: &Window<E>) {
        if self.order != OrderKey::Sequence {
            return;
        }
        for entry in &self.sorted {
            if let Some(last) = self.last.filter(|&last| entry.key > last.saturating_add(1)) {
                let lost = entry.key - last - 1;
                self.merged.holes += 1;
                self.merged.missing = self.merged.missing.saturating_add(lost);
                self.to_come.push(Reverse((last, entry.key)));
                let cpu = window.slices.get(entry.slice()).map_or(0, |slice| self.cpus[slice.stream]);
                let (from, to) = (Some(last), Some(entry.key));
                self.gaps.push(Gap { from, to, cpu, lost: Some(lost), cause: GapCause::Sequence });
            }
            self.last = Some(entry.key);
        }
    }

    /// Gaps that begin at the last window's frontier, which came to light only now.
    fn begin_before(&mut self) -> bool {
        let Some(frontier) = self.frontier else { return false };
        let mut any = false;
        while let Some(&Reverse((from, to))) = self.to_come.peek()
            && from <= frontier
        {
            self.to_come.pop();
            self.reach = self.reach.max(Some(to));
            any = true;
        }
        any
    }

    /// Cuts the window where gaps begin and end.
    fn find_stretches(&mut self, window: &mut Window<E>) {
        let entries = &self.sorted;
        let mut fresh = window.touches_before;
        let mut from = 0;
        while let Some(first) = entries.get(from) {
            while let Some(&Reverse((begin, end))) = self.to_come.peek()
                && begin <= first.key
            {
                self.to_come.pop();
                self.reach = self.reach.max(Some(end));
                fresh = true;
            }
            let in_gap = self.reach.is_some_and(|reach| first.key <= reach);
            window.stretches.push(Stretch { from: from as u32, fresh, in_gap });
            let next_begins = self.to_come.peek().map_or(u64::MAX, |&Reverse((begin, _))| begin);
            let ends = self.reach.filter(|_| in_gap).unwrap_or(u64::MAX);
            let same = |entry: &Entry| entry.key < next_begins && entry.key <= ends || entry.key == first.key;
            from += entries[from..].partition_point(same);
            fresh = false;
        }
    }

    /// Gives each partition its events.
    fn deal(&mut self, window: &mut Window<E>) {
        window.parts.resize_with(self.parts as usize, Vec::new);
        window.first_serial = self.serial;
        self.serial += self.sorted.len() as u64;
        self.merged.events += self.sorted.len() as u64;
        self.merged.first = self.merged.first.or(self.sorted.first().map(|entry| entry.key));
        self.merged.last = self.sorted.last().map(|entry| entry.key).or(self.merged.last);
        let place =
            |(entry, serial): (&Entry, u32)| Place { serial, slice: entry.slice() as u32, offset: entry.offset };
        let entries = self.sorted.iter().zip(0..);
        if let [only] = window.parts.as_mut_slice() {
            only.extend(entries.map(place));
        } else {
            window.owners.extend(self.sorted.iter().map(|entry| (entry.slice >> SLICE_BITS) as u16));
            for (entry, serial) in entries {
                if let Some(part) = window.parts.get_mut((entry.slice >> SLICE_BITS) as usize) {
                    part.push(place((entry, serial)));
                }
            }
        }
        self.sorted.clear();
    }
}
