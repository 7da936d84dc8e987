//! All CPUs' events in the one total order of the contract: (key, CPU, position in the CPU's stream).
//!
//! What has been read of each CPU, up to the point behind which a CPU may still bring earlier events, is merged and becomes a
//! window: the events in order, with whose they are and what is known of gaps. Memory is that of a few chunks a CPU,
//! however long the trace.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use kmemtrace_abi::clock::OrderKey;
use kmemtrace_abi::event::{Gap, GapCause};

use crate::order::merge::{Chunk, Keyed, Queue, Spare, merge};

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

/// Events of a window that belong to one partition, in order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part<'a, E> {
    pub(crate) events: &'a [E],
    /// Their numbers in the window; none where they are all there are.
    serials: &'a [u32],
}

impl<E> Part<'_, E> {
    /// The number in the window of an event.
    #[inline(always)]
    pub(crate) fn serial(&self, index: usize) -> u32 {
        self.serials.get(index).copied().unwrap_or(index as u32)
    }

    /// Where the events from number `serial` on begin.
    pub(crate) fn position(&self, serial: u32) -> usize {
        let len = self.events.len();
        if self.serials.is_empty() { len.min(serial as usize) } else { self.serials.partition_point(|&n| n < serial) }
    }
}

/// Memory of a partition for the events of a window that are its own.
#[derive(Debug, Default)]
pub(crate) struct Share<E> {
    events: Vec<E>,
    /// As many as any window had events; the first of them are those of this one.
    serials: Vec<u32>,
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
    pub(crate) events: Vec<E>,
    /// Partition of each event, where there are several.
    pub(crate) owners: Vec<u8>,
    /// Number of the first event in the trace.
    pub(crate) first_serial: u64,
    /// The first event's key, and where the window began in which that key was first seen: events of one key are told apart
    /// by how far from there they are, those of other keys by their number in the window.
    pub(crate) shared: (u64, u64),
    pub(crate) stretches: Vec<Stretch>,
    /// A gap begins at the last window's frontier.
    pub(crate) touches_before: bool,
    /// All gaps that begin before this key are known; `None`: all gaps.
    pub(crate) frontier: Option<u64>,
    /// Gaps that were read, in no order.
    pub(crate) gaps: Vec<Gap>,
}

impl<E> Default for Window<E> {
    fn default() -> Window<E> {
        Window {
            events: Vec::new(),
            owners: Vec::new(),
            first_serial: 0,
            shared: (0, 0),
            stretches: Vec::new(),
            touches_before: false,
            frontier: None,
            gaps: Vec::new(),
        }
    }
}

impl<E: Copy> Window<E> {
    fn clear(&mut self) {
        self.events.clear();
        self.owners.clear();
        self.stretches.clear();
        self.gaps.clear();
    }

    /// The events of a partition; where there are others, they are copied to `share`.
    pub(crate) fn part<'a>(&'a self, part: usize, share: &'a mut Share<E>) -> Part<'a, E> {
        if self.owners.is_empty() {
            return Part { events: &self.events, serials: &[] };
        }
        let Share { events, serials } = share;
        // Without a branch on whose an event is, which cannot be predicted.
        serials.resize(serials.len().max(self.owners.len()), 0);
        let mut len = 0;
        for (&owner, serial) in self.owners.iter().zip(0..) {
            serials[len] = serial;
            len += usize::from(usize::from(owner) == part);
        }
        let serials = &serials[..len];
        events.clear();
        events.extend(serials.iter().map(|&serial| self.events[serial as usize]));
        Part { events, serials }
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
    /// [`Window::shared`] of the last event's key.
    shared: (u64, u64),
    pub(crate) merged: Order,
    gaps: Vec<Gap>,
    /// Events of the window that is made.
    ordered: Vec<E>,
    spare: Spare<E>,
    /// Windows and chunks whose memory is used again.
    used: Vec<Window<E>>,
    through: Vec<Chunk<E>>,
}

impl<E: Keyed + Copy> Merger<E> {
    /// For the streams of these CPUs, in their order.
    pub(crate) fn new(cpus: Vec<u32>, order: OrderKey, parts: u32) -> Merger<E> {
        Merger {
            queues: cpus.iter().map(|_| Queue::default()).collect(),
            cpus,
            order,
            parts: parts.max(1),
            bounds: None,
            to_come: BinaryHeap::new(),
            reach: None,
            frontier: None,
            is_done: false,
            last: None,
            serial: 0,
            shared: (0, 0),
            merged: Order::default(),
            gaps: Vec::new(),
            ordered: Vec::new(),
            spare: Spare::default(),
            used: Vec::new(),
            through: Vec::new(),
        }
    }

    /// Key of the first event of all, once each stream has been read once.
    pub(crate) fn first_key(&self) -> u64 {
        self.queues.iter().filter_map(Queue::next_key).min().unwrap_or(0)
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
            queue.chunks.push_back(chunk);
        }
    }

    /// Whether a stream must be read before more can be merged.
    pub(crate) fn lacks(&self, stream: usize) -> bool {
        self.waiting(stream) == 0 && !self.has_ended(stream)
    }

    /// Whether the last window was made: that of the streams' ends, where all gaps are known. It may have no events.
    pub(crate) fn is_done(&self) -> bool {
        self.is_done
    }

    /// The last event, in order, of the next window, before which nothing more can come: its key and stream. `None`: read
    /// more.
    fn limit(&self) -> Option<(u64, usize)> {
        let mut limit = (u64::MAX, usize::MAX);
        for (index, queue) in self.queues.iter().enumerate().filter(|(_, queue)| queue.goes_on()) {
            limit = limit.min((queue.last_key()?, index));
        }
        Some(limit)
    }

    /// Chunks that all has been taken of, to read into again.
    pub(crate) fn through(&mut self) -> impl Iterator<Item = Chunk<E>> {
        self.through.drain(..)
    }

    /// Chunks of a stream that more is to be taken of.
    pub(crate) fn waiting(&self, stream: usize) -> usize {
        self.queues.get(stream).map_or(0, |queue| queue.chunks.len())
    }

    /// Whether the last chunk of a stream is here.
    pub(crate) fn has_ended(&self, stream: usize) -> bool {
        self.queues.get(stream).is_none_or(|queue| queue.ended)
    }

    /// The next window; `None` where a stream must be read before.
    pub(crate) fn next(&mut self) -> Option<Window<E>> {
        let limit = self.limit()?;
        let is_last = limit.1 == usize::MAX;
        let mut window = self.used.pop().unwrap_or_default();
        merge(&mut self.queues, limit, &mut self.ordered, &mut self.spare, &mut self.through);
        if self.order == OrderKey::Sequence {
            self.find_holes();
        }
        self.keep_to_bounds();
        self.begin_gaps(limit.0, is_last);
        window.frontier = (!is_last).then_some(limit.0);
        window.touches_before = self.begin_before();
        self.find_stretches(&mut window);
        window.gaps.append(&mut self.gaps);
        window.first_serial = self.serial;
        window.shared = self.find_shared();
        self.serial += self.ordered.len() as u64;
        self.merged.events += self.ordered.len() as u64;
        self.merged.first = self.merged.first.or(self.ordered.first().map(Keyed::key));
        self.merged.last = self.ordered.last().map(Keyed::key).or(self.merged.last);
        if self.parts > 1 {
            window.owners.extend(self.ordered.iter().map(|event| event.part(self.parts)));
        }
        std::mem::swap(&mut window.events, &mut self.ordered);
        self.frontier = Some(limit.0);
        self.is_done = is_last;
        Some(window)
    }

    /// [`Window::shared`] of the events in `ordered`.
    fn find_shared(&mut self) -> (u64, u64) {
        let (Some(first), Some(last)) = (self.ordered.first(), self.ordered.last()) else { return self.shared };
        let (first, last) = (first.key(), last.key());
        let shared = if self.shared.0 == first { self.shared } else { (first, self.serial) };
        self.shared = if first == last { shared } else { (last, self.serial) };
        shared
    }

    /// Takes a window back, to use its memory again.
    pub(crate) fn recycle(&mut self, mut window: Window<E>) {
        window.clear();
        self.used.push(window);
    }

    /// Gaps that begin before `limit` are known in full: their streams have events after them.
    fn begin_gaps(&mut self, limit: u64, is_last: bool) {
        for queue in &mut self.queues {
            if queue.gap.is_some_and(|(from, _)| from < limit || is_last) {
                self.to_come.extend(queue.gap.take().map(Reverse));
            }
        }
    }

    /// Missing sequence numbers, each run of them a gap.
    fn find_holes(&mut self) {
        for event in &self.ordered {
            let key = event.key();
            if let Some(last) = self.last.filter(|&last| key > last.saturating_add(1)) {
                let lost = key - last - 1;
                self.merged.holes += 1;
                self.merged.missing = self.merged.missing.saturating_add(lost);
                self.to_come.push(Reverse((last, key)));
                let (from, to) = (Some(last), Some(key));
                let cpu = event.cpu(&self.cpus);
                self.gaps.push(Gap { from, to, cpu, lost: Some(lost), cause: GapCause::Sequence });
            }
            self.last = Some(key);
        }
    }

    /// Leaves out what is not within the bounds.
    fn keep_to_bounds(&mut self) {
        if let Some((from, to)) = self.bounds {
            self.ordered.truncate(self.ordered.partition_point(|event| event.key() <= to));
            self.ordered.drain(..self.ordered.partition_point(|event| event.key() < from));
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
        let mut fresh = window.touches_before;
        let mut from = 0;
        while let Some(first) = self.ordered.get(from).map(Keyed::key) {
            while let Some(&Reverse((begin, end))) = self.to_come.peek()
                && begin <= first
            {
                self.to_come.pop();
                self.reach = self.reach.max(Some(end));
                fresh = true;
            }
            let in_gap = self.reach.is_some_and(|reach| first <= reach);
            window.stretches.push(Stretch { from: from as u32, fresh, in_gap });
            let next_begins = self.to_come.peek().map_or(u64::MAX, |&Reverse((begin, _))| begin);
            let ends = self.reach.filter(|_| in_gap).unwrap_or(u64::MAX);
            let same = |key: u64| key < next_begins && key <= ends || key == first;
            from += self.ordered[from..].partition_point(|event| same(event.key()));
            fresh = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use kmemtrace_tests::generate::Random;

    use super::*;

    /// Key, stream, position.
    type Told = (u64, usize, usize);

    impl Keyed for Told {
        fn key(&self) -> u64 {
            self.0
        }

        fn part(&self, _: u32) -> u8 {
            0
        }

        fn cpu(&self, _: &[u32]) -> u32 {
            0
        }
    }

    /// However many streams there are, however far each has been read, and however many events share a key.
    #[test]
    fn events_come_in_the_order_of_key_stream_and_position() {
        for seed in 0..2000 {
            let mut random = Random::new(seed);
            let streams = 1 + random.below(12) as usize;
            let highest = if random.chance(10) { u64::MAX } else { 1 + random.below(300) };
            let mut left: Vec<VecDeque<Told>> = (0..streams)
                .map(|stream| {
                    let mut keys: Vec<u64> = (0..random.below(80)).map(|_| random.below(highest)).collect();
                    if random.chance(10) {
                        keys.push(u64::MAX);
                    }
                    keys.sort_unstable();
                    keys.into_iter().enumerate().map(|(position, key)| (key, stream, position)).collect()
                })
                .collect();
            let mut wanted: Vec<Told> = left.iter().flatten().copied().collect();
            wanted.sort_unstable();
            let mut merger = Merger::new((0..streams as u32).collect(), OrderKey::Time, 1);
            let mut told = Vec::new();
            while !merger.is_done() {
                for (stream, left) in left.iter_mut().enumerate() {
                    while !merger.has_ended(stream) && (merger.lacks(stream) || random.chance(30)) {
                        let events: Vec<Told> = left.drain(..left.len().min(random.below(20) as usize)).collect();
                        merger.add(stream, Chunk { events, gaps: Vec::new() }, left.is_empty());
                    }
                }
                if let Some(window) = merger.next() {
                    told.extend_from_slice(&window.events);
                    merger.recycle(window);
                }
            }
            assert_eq!(told, wanted, "seed {seed}");
        }
    }
}
