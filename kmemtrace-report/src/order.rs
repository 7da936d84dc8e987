//! All CPUs' events in the one total order of the contract: (key, CPU, position in the CPU's stream).
//!
//! The merge takes what has been read of each CPU up to the point behind which a CPU may still bring earlier events, and
//! makes a window of it: the events in order, dealt out to partitions, with what is known of gaps. Memory is
//! that of a few chunks a CPU, however long the trace.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

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

/// Events of a window that belong to one partition, in order.
#[derive(Debug)]
pub(crate) struct Part<E> {
    pub(crate) events: Vec<E>,
    /// Their numbers in the window; none where it has no other events.
    serials: Vec<u32>,
}

impl<E> Part<E> {
    fn new() -> Part<E> {
        Part { events: Vec::new(), serials: Vec::new() }
    }

    fn clear(&mut self) {
        self.events.clear();
        self.serials.clear();
    }

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
    /// Events of each partition.
    pub(crate) parts: Vec<Part<E>>,
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

impl<E> Window<E> {
    fn new(parts: u32) -> Window<E> {
        Window {
            parts: (0..parts).map(|_| Part::new()).collect(),
            owners: Vec::new(),
            first_serial: 0,
            stretches: Vec::new(),
            touches_before: false,
            frontier: None,
            gaps: Vec::new(),
        }
    }

    fn clear(&mut self) {
        self.parts.iter_mut().for_each(Part::clear);
        self.owners.clear();
        self.stretches.clear();
        self.gaps.clear();
    }

    /// An event of a partition by its number in the window.
    pub(crate) fn event(&self, part: usize, serial: u32) -> Option<&E> {
        let part = self.parts.get(part)?;
        part.events.get(part.position(serial))
    }
}

struct Queue<E> {
    /// None of them is empty.
    chunks: VecDeque<Chunk<E>>,
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

    fn next_key(&self) -> Option<u64> {
        Some(self.chunks.front()?.events.get(self.taken)?.key())
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
    /// Streams that have more for the window that is made, by their next event.
    heads: BinaryHeap<Reverse<(u64, usize)>>,
    /// Keys of the events of the window that is made.
    keys: Vec<u64>,
    /// Windows and chunks whose memory is used again.
    used: Vec<Window<E>>,
    through: Vec<Chunk<E>>,
}

impl<E: Keyed + Copy> Merger<E> {
    /// For the streams of these CPUs, in their order.
    pub(crate) fn new(cpus: Vec<u32>, order: OrderKey, parts: u32) -> Merger<E> {
        let queue = || Queue { chunks: VecDeque::new(), taken: 0, ended: false, gap: None };
        Merger {
            queues: cpus.iter().map(|_| queue()).collect(),
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
            merged: Order::default(),
            gaps: Vec::new(),
            heads: BinaryHeap::new(),
            keys: Vec::new(),
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

    /// A chunk to read into.
    pub(crate) fn spare(&mut self) -> Chunk<E> {
        self.through.pop().unwrap_or_default()
    }

    /// The next window; `None` where a stream must be read before.
    pub(crate) fn next(&mut self) -> Option<Window<E>> {
        let limit = self.limit()?;
        let is_last = limit.1 == usize::MAX;
        let mut window = self.used.pop().unwrap_or_else(|| Window::new(self.parts));
        self.merge(limit, &mut window);
        self.begin_gaps(limit.0, is_last);
        window.frontier = (!is_last).then_some(limit.0);
        window.touches_before = self.begin_before();
        self.find_stretches(&mut window);
        window.gaps.append(&mut self.gaps);
        window.first_serial = self.serial;
        self.serial += self.keys.len() as u64;
        self.merged.events += self.keys.len() as u64;
        self.merged.first = self.merged.first.or(self.keys.first().copied());
        self.merged.last = self.keys.last().copied().or(self.merged.last);
        self.frontier = Some(limit.0);
        self.is_done = is_last;
        Some(window)
    }

    /// Takes a window back, to use its memory again.
    pub(crate) fn recycle(&mut self, mut window: Window<E>) {
        window.clear();
        self.used.push(window);
    }

    /// Moves all events up to `limit` into the window, in order: those of the stream with the earliest one, up to the
    /// earliest of another stream, and so on. Equal keys are in the order of CPUs.
    fn merge(&mut self, limit: (u64, usize), window: &mut Window<E>) {
        let mut queues = std::mem::take(&mut self.queues);
        let mut heads = std::mem::take(&mut self.heads);
        let head =
            |(stream, queue): (usize, &Queue<E>)| Some((queue.next_key()?, stream)).filter(|&head| head <= limit);
        heads.extend(queues.iter().enumerate().filter_map(head).map(Reverse));
        self.keys.clear();
        while let Some(Reverse((_, stream))) = heads.pop() {
            let until = heads.peek().map_or(limit, |&Reverse(other)| other.min(limit));
            // The last key that comes before the other's.
            let last = if stream <= until.1 { until.0 } else { until.0.saturating_sub(1) };
            let queue = &mut queues[stream];
            while let Some(chunk) = queue.chunks.front() {
                let rest = &chunk.events[queue.taken..];
                let run = &rest[..rest.iter().take_while(|event| event.key() <= last).count()];
                queue.taken += run.len();
                self.append(run, stream, window);
                if run.len() < rest.len() {
                    break;
                }
                queue.taken = 0;
                self.through.extend(queue.chunks.pop_front());
            }
            heads.extend(head((stream, queue)).map(Reverse));
        }
        (self.queues, self.heads) = (queues, heads);
    }

    /// Appends some events of a stream to the window.
    #[inline(always)]
    fn append(&mut self, mut run: &[E], stream: usize, window: &mut Window<E>) {
        if self.order == OrderKey::Sequence {
            self.find_holes(run, self.cpus[stream]);
        }
        if let Some((from, to)) = self.bounds {
            let begin = run.partition_point(|event| event.key() < from);
            let end = run.partition_point(|event| event.key() <= to);
            run = run.get(begin..end).unwrap_or_default();
        }
        let first = self.keys.len() as u32;
        self.keys.extend(run.iter().map(Keyed::key));
        if let [only] = window.parts.as_mut_slice() {
            only.events.extend_from_slice(run);
            return;
        }
        for (event, serial) in run.iter().zip(first..) {
            let owner = event.part(self.parts);
            window.owners.push(owner as u16);
            if let Some(part) = window.parts.get_mut(owner as usize) {
                part.events.push(*event);
                part.serials.push(serial);
            }
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

    /// Missing sequence numbers, each run of them a gap.
    fn find_holes(&mut self, run: &[E], cpu: u32) {
        for key in run.iter().map(Keyed::key) {
            if let Some(last) = self.last.filter(|&last| key > last.saturating_add(1)) {
                let lost = key - last - 1;
                self.merged.holes += 1;
                self.merged.missing = self.merged.missing.saturating_add(lost);
                self.to_come.push(Reverse((last, key)));
                let (from, to) = (Some(last), Some(key));
                self.gaps.push(Gap { from, to, cpu, lost: Some(lost), cause: GapCause::Sequence });
            }
            self.last = Some(key);
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
        while let Some(&first) = self.keys.get(from) {
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
            let same = |&key: &u64| key < next_begins && key <= ends || key == first;
            from += self.keys[from..].partition_point(same);
            fresh = false;
        }
    }
}
