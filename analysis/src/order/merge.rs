//! Merge of many streams into one, in the order of key, stream and position: two by two, without a branch on the next stream.

use std::collections::VecDeque;
use std::hint::select_unpredictable;

use kmemtrace_abi::event::Gap;

use crate::memory::prefetch::prefetch_beyond;

/// Event with an order key.
pub(crate) trait Keyed {
    /// Order key.
    fn key(&self) -> u64;
    /// Partition of the event, of at most 256.
    fn part(&self, parts: u32) -> u8;
    /// CPU of the event; `cpus` are those of the streams.
    fn cpu(&self, cpus: &[u32]) -> u32;
    /// Number of events behind this one that belong to its record, which counts once.
    fn addresses(&self) -> u64 {
        0
    }
}

/// Piece of a CPU's stream that is read at once: events in order, and the gaps before, between and after them.
#[derive(Clone, Debug)]
pub(crate) struct Chunk<E> {
    pub(crate) events: Vec<E>,
    pub(crate) gaps: Vec<Gap>,
    /// Some record is several events, so that their number is not that of records.
    pub(crate) has_bulk: bool,
}

impl<E> Default for Chunk<E> {
    fn default() -> Chunk<E> {
        Chunk { events: Vec::new(), gaps: Vec::new(), has_bulk: false }
    }
}

impl<E> Chunk<E> {
    pub(crate) fn clear(&mut self) {
        self.events.clear();
        self.gaps.clear();
        self.has_bulk = false;
    }
}

/// Limit of chunks that one window takes of a stream, so that windows keep their size however far streams are read ahead. With
/// one they would be too small: each stream's chunks would end windows.
pub(crate) const MAX_CHUNKS: usize = 2;

/// Prefetch distance, in events: an event may be in the cache of another core, which has read it.
const AHEAD: usize = 32;

/// Chunks of a stream that are not merged yet.
pub(crate) struct Queue<E> {
    /// Chunks with events, oldest first.
    pub(crate) chunks: VecDeque<Chunk<E>>,
    /// Events of the first chunk that have been taken.
    taken: usize,
    pub(crate) ended: bool,
}

impl<E> Default for Queue<E> {
    fn default() -> Queue<E> {
        Queue { chunks: VecDeque::new(), taken: 0, ended: false }
    }
}

impl<E: Keyed + Copy> Queue<E> {
    /// Key of the last event of the next window's chunks.
    pub(crate) fn last_key(&self) -> Option<u64> {
        Some(self.chunks.iter().take(MAX_CHUNKS).next_back()?.events.last()?.key())
    }

    /// True where there are, or may come, more events than the next window takes.
    pub(crate) fn has_more(&self) -> bool {
        !self.ended || self.chunks.len() > MAX_CHUNKS
    }

    /// Key of the next event, if one has been read.
    pub(crate) fn next_key(&self) -> Option<u64> {
        Some(self.chunks.front()?.events.get(self.taken)?.key())
    }

    /// Rest of the first chunk.
    fn rest(&self) -> &[E] {
        self.chunks.front().and_then(|chunk| chunk.events.get(self.taken..)).unwrap_or_default()
    }

    /// Moves the events up to `until`, a key and a stream, to `ordered`; `stream` is this one's number.
    fn move_until(&mut self, until: (u64, usize), stream: usize, ordered: &mut Vec<E>) {
        let rest = self.rest();
        let run = rest.iter().take_while(|event| (event.key(), stream) <= until).count();
        ordered.extend_from_slice(&rest[..run]);
        self.taken += run;
    }

    /// Takes off the first chunk where all of its events are taken.
    fn take_used(&mut self) -> Option<Chunk<E>> {
        if !self.rest().is_empty() {
            return None;
        }
        self.taken = 0;
        self.chunks.pop_front()
    }
}

/// Appends events before `until` of two slices to `ordered`, until one slice ends; returns the numbers taken of each. Of
/// equal keys `lower`'s is first.
fn merge_slices<E: Keyed + Copy>(lower: &[E], upper: &[E], until: u64, ordered: &mut Vec<E>) -> (usize, usize) {
    let (mut i, mut j) = (0, 0);
    ordered.reserve(lower.len() + upper.len());
    while let (Some(x), Some(y)) = (lower.get(i), upper.get(j)) {
        // Without a branch: the processor cannot predict the streams' turns.
        let is_upper = y.key() < x.key();
        let next = select_unpredictable(is_upper, y, x);
        prefetch_beyond(next, AHEAD);
        if next.key() >= until {
            break;
        }
        ordered.push(*next);
        i += usize::from(!is_upper);
        j += usize::from(is_upper);
    }
    (i, j)
}

/// Moves the events of one or two queues, the first of which is stream number `first`, up to `limit` to `ordered`, in order;
/// consumed chunks to `consumed`.
fn merge_queues<E: Keyed + Copy>(
    queues: &mut [Queue<E>],
    first: usize,
    limit: (u64, usize),
    ordered: &mut Vec<E>,
    consumed: &mut Vec<Chunk<E>>,
) {
    loop {
        let mut heads = queues.iter().zip(first..).map(|(queue, stream)| Some((queue.next_key()?, stream)));
        let mut head = || heads.next().flatten().filter(|&head| head <= limit);
        let mut moved = (0, 0);
        let (next, other) = match (head(), head()) {
            (None, None) => return,
            (Some(x), Some(y)) => {
                if let [lower, upper] = queues {
                    moved = merge_slices(lower.rest(), upper.rest(), limit.0, ordered);
                    (lower.taken, upper.taken) = (lower.taken + moved.0, upper.taken + moved.1);
                }
                (x.min(y), Some(x.max(y)))
            }
            (Some(next), None) | (None, Some(next)) => (next, None),
        };
        if moved == (0, 0) {
            // One stream alone, or keys equal to the limit.
            let until = other.map_or(limit, |other| other.min(limit));
            queues[next.1 - first].move_until(until, next.1, ordered);
        }
        consumed.extend(queues.iter_mut().filter_map(Queue::take_used));
    }
}

/// Merges runs of events, which stand one after the other in `ordered` and end at `ends`, to one: two by two, so that each event
/// moves once per halving of their number. Of equal keys the earlier run's is first.
fn merge_runs<E: Keyed + Copy>(ordered: &mut Vec<E>, spare: &mut Vec<E>, ends: &mut Vec<usize>) {
    while ends.len() > 1 {
        spare.clear();
        let pairs = ends.len().div_ceil(2);
        let mut from = 0;
        for pair in 0..pairs {
            let middle = ends[2 * pair];
            let end = ends.get(2 * pair + 1).copied().unwrap_or(middle);
            let (lower, upper) = (&ordered[from..middle], &ordered[middle..end]);
            let (i, j) = merge_slices(lower, upper, u64::MAX, spare);
            spare.extend_from_slice(&lower[i..]);
            spare.extend_from_slice(&upper[j..]);
            ends[pair] = end;
            from = end;
        }
        ends.truncate(pairs);
        std::mem::swap(ordered, spare);
    }
}

/// Working memory of the merge.
pub(crate) struct Spare<E> {
    /// Target of the next merge of runs.
    events: Vec<E>,
    /// Ends of the runs that are still to be merged.
    ends: Vec<usize>,
}

impl<E> Default for Spare<E> {
    fn default() -> Spare<E> {
        Spare { events: Vec::new(), ends: Vec::new() }
    }
}

/// Moves the events of all queues up to `limit` into `ordered`, which is empty; consumed chunks to `consumed`.
pub(crate) fn merge<E: Keyed + Copy>(
    queues: &mut [Queue<E>],
    limit: (u64, usize),
    ordered: &mut Vec<E>,
    spare: &mut Spare<E>,
    consumed: &mut Vec<Chunk<E>>,
) {
    let Spare { events, ends } = spare;
    ends.clear();
    for (pair, first) in queues.chunks_mut(2).zip((0..).step_by(2)) {
        let before = ordered.len();
        merge_queues(pair, first, limit, ordered, consumed);
        if ordered.len() > before {
            ends.push(ordered.len());
        }
    }
    merge_runs(ordered, events, ends);
}
