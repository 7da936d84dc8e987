//! All CPUs' events in the one total order of the contract: (key, CPU, position in the CPU's stream).
//!
//! The merger turns chunks of all CPUs into windows: events in order, their partitions, and the runs between gaps. A window ends
//! where some CPU may still bring earlier events. Memory is that of a few chunks a CPU, however long the trace.

use kmemtrace_abi::clock::OrderKey;
use kmemtrace_abi::event::Gap;

use crate::account::completeness::MergeStats;
use crate::order::gaps::{GapTracker, LossRun, SequenceHoles};
use crate::order::merge::{Chunk, Keyed, MAX_CHUNKS, Queue, Spare, merge};

/// Events of a window that belong to one partition, in order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part<'a, E> {
    pub(crate) events: &'a [E],
    /// Numbers of the events in the window; empty where the partition has all of them.
    serials: &'a [u32],
}

impl<E> Part<'_, E> {
    /// Number of an event in the window.
    #[inline(always)]
    pub(crate) fn serial(&self, index: usize) -> u32 {
        self.serials.get(index).copied().unwrap_or(index as u32)
    }

    /// Index of the first event from number `serial` on.
    pub(crate) fn position(&self, serial: u32) -> usize {
        let len = self.events.len();
        if self.serials.is_empty() { len.min(serial as usize) } else { self.serials.partition_point(|&n| n < serial) }
    }
}

/// Memory of a partition for its events of a window.
#[derive(Debug, Default)]
pub(crate) struct Share<E> {
    events: Vec<E>,
    /// Numbers in the window; after those of this window stand older ones.
    serials: Vec<u32>,
}

/// Piece of the trace, complete and in order.
#[derive(Clone, Debug)]
pub(crate) struct Window<E> {
    pub(crate) events: Vec<E>,
    /// Partition of each event, where there are several.
    pub(crate) owners: Vec<u8>,
    /// Number of the first event in the trace.
    pub(crate) first_serial: u64,
    /// Tie-breaker of the first key: the key, and the number in the trace at which the window began that had it first. Events of
    /// this key are told apart by their distance from there, events of other keys by their number in the window.
    pub(crate) tie_base: (u64, u64),
    /// Runs of the events between which no gap begins or ends, in order.
    pub(crate) loss_runs: Vec<LossRun>,
    /// A gap begins at the last window's frontier.
    pub(crate) gap_at_last_frontier: bool,
    /// Frontier: all gaps that begin before this key are known; `None`: all gaps.
    pub(crate) complete_until: Option<u64>,
    /// Gaps since the last window, in no order.
    pub(crate) gaps: Vec<Gap>,
}

impl<E> Default for Window<E> {
    fn default() -> Window<E> {
        Window {
            events: Vec::new(),
            owners: Vec::new(),
            first_serial: 0,
            tie_base: (0, 0),
            loss_runs: Vec::new(),
            gap_at_last_frontier: false,
            complete_until: None,
            gaps: Vec::new(),
        }
    }
}

impl<E: Copy> Window<E> {
    fn clear(&mut self) {
        self.events.clear();
        self.owners.clear();
        self.loss_runs.clear();
        self.gaps.clear();
    }

    /// The events of a partition; where there are others, they are copied to `share`.
    pub(crate) fn part<'a>(&'a self, part: usize, share: &'a mut Share<E>) -> Part<'a, E> {
        if self.owners.is_empty() {
            return Part { events: &self.events, serials: &[] };
        }
        let Share { events, serials } = share;
        // Without a branch: the processor cannot predict an event's partition.
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
    /// Keys up to which streams are known to be read, beyond their last events; none where all streams are read to their ends.
    watermarks: Vec<Option<u64>>,
    /// Key that no window passes.
    cap: Option<u64>,
    gaps: GapTracker,
    is_done: bool,
    /// Some record so far was several events.
    has_bulk: bool,
    /// Number in the trace of the next window's first event.
    serial: u64,
    /// [`Window::tie_base`] of the last event's key.
    tie_base: (u64, u64),
    pub(crate) merged: MergeStats,
    /// Events of the next window.
    ordered: Vec<E>,
    spare: Spare<E>,
    /// Windows whose memory is used again.
    used: Vec<Window<E>>,
    /// Chunks whose events are all merged.
    consumed: Vec<Chunk<E>>,
}

impl<E: Keyed + Copy> Merger<E> {
    /// Merger of the streams of these CPUs, in their order.
    pub(crate) fn new(cpus: Vec<u32>, order: OrderKey, parts: u32) -> Merger<E> {
        let gaps = GapTracker::new(cpus.len());
        Merger {
            queues: cpus.iter().map(|_| Queue::default()).collect(),
            cpus,
            order,
            parts: parts.max(1),
            bounds: None,
            watermarks: Vec::new(),
            cap: None,
            gaps,
            is_done: false,
            has_bulk: false,
            serial: 0,
            tie_base: (0, 0),
            merged: MergeStats::default(),
            ordered: Vec::new(),
            spare: Spare::default(),
            used: Vec::new(),
            consumed: Vec::new(),
        }
    }

    /// Key of the first event of all, once each stream has been read once.
    pub(crate) fn first_key(&self) -> u64 {
        self.queues.iter().filter_map(Queue::next_key).min().unwrap_or(0)
    }

    /// Restricts windows to events with keys within these bounds.
    pub(crate) fn set_bounds(&mut self, bounds: (u64, u64)) {
        self.bounds = (bounds != (0, u64::MAX)).then_some(bounds);
    }

    /// Raises a stream's watermark: it has no more events up to `key`, beside its chunks. An idle stream does not hold the others
    /// back then.
    pub(crate) fn raise_watermark(&mut self, stream: usize, key: u64) {
        self.watermarks.resize(self.queues.len(), None);
        if let Some(watermark) = self.watermarks.get_mut(stream) {
            *watermark = (*watermark).max(Some(key));
        }
    }

    /// Ends windows at `key` until a later one is given: later events wait.
    pub(crate) fn set_cap(&mut self, key: Option<u64>) {
        self.cap = key;
    }

    /// Adds the next chunk of a stream.
    pub(crate) fn add(&mut self, stream: usize, mut chunk: Chunk<E>, ended: bool) {
        let Some(queue) = self.queues.get_mut(stream) else { return };
        self.has_bulk |= chunk.has_bulk;
        chunk.gaps.drain(..).for_each(|gap| self.gaps.add(stream, gap));
        queue.ended = ended;
        if !chunk.events.is_empty() {
            queue.chunks.push_back(chunk);
        }
    }

    /// Order keys of all gaps that were read, put together where they overlap; once, at the end.
    pub(crate) fn take_gaps(&mut self) -> Vec<(u64, u64)> {
        self.gaps.all()
    }

    /// True where a stream must be read before more can be merged.
    pub(crate) fn needs_input(&self, stream: usize) -> bool {
        self.waiting(stream) == 0 && !self.has_ended(stream)
    }

    /// True after the last window: that of the streams' ends, where all gaps are known. It may have no events.
    pub(crate) fn is_done(&self) -> bool {
        self.is_done
    }

    /// Key and stream of the next window's last event, before which no more events can come. `None`: read more.
    fn limit(&self) -> Option<(u64, usize)> {
        let mut limit = (u64::MAX, usize::MAX);
        for (index, queue) in self.queues.iter().enumerate().filter(|(_, queue)| queue.has_more()) {
            let is_read = queue.chunks.len() <= MAX_CHUNKS;
            let watermark = self.watermarks.get(index).copied().flatten().filter(|_| is_read);
            limit = limit.min((queue.last_key().max(watermark)?, index));
        }
        Some(self.cap.map_or(limit, |cap| limit.min((cap, usize::MAX - 1))))
    }

    /// True where no more events come up to `key`.
    pub(crate) fn is_complete_until(&self, key: u64) -> bool {
        self.limit().is_some_and(|(limit, _)| limit >= key)
    }

    /// Takes off the consumed chunks, to read into again.
    pub(crate) fn take_consumed(&mut self) -> impl Iterator<Item = Chunk<E>> {
        self.consumed.drain(..)
    }

    /// Number of a stream's chunks that are not consumed.
    pub(crate) fn waiting(&self, stream: usize) -> usize {
        self.queues.get(stream).map_or(0, |queue| queue.chunks.len())
    }

    /// True where the last chunk of a stream is here.
    pub(crate) fn has_ended(&self, stream: usize) -> bool {
        self.queues.get(stream).is_none_or(|queue| queue.ended)
    }

    /// The next window; `None` where a stream must be read before.
    pub(crate) fn next(&mut self) -> Option<Window<E>> {
        let limit = self.limit()?;
        let is_last = limit.1 == usize::MAX;
        let mut window = self.used.pop().unwrap_or_default();
        merge(&mut self.queues, limit, &mut self.ordered, &mut self.spare, &mut self.consumed);
        if self.order == OrderKey::Sequence {
            let SequenceHoles { holes, missing } = self.gaps.add_holes(&self.ordered, &self.cpus);
            self.merged.holes += holes;
            self.merged.missing = self.merged.missing.saturating_add(missing);
        }
        self.keep_to_bounds();
        window.complete_until = (!is_last).then_some(limit.0);
        window.gap_at_last_frontier = self.gaps.advance(window.complete_until, &self.ordered, &mut window.loss_runs);
        self.gaps.report(&mut window.gaps);
        window.first_serial = self.serial;
        window.tie_base = self.find_tie_base();
        self.serial += self.ordered.len() as u64;
        self.merged.events += self.records();
        self.merged.first = self.merged.first.or(self.ordered.first().map(Keyed::key));
        self.merged.last = self.ordered.last().map(Keyed::key).or(self.merged.last);
        if self.parts > 1 {
            window.owners.extend(self.ordered.iter().map(|event| event.part(self.parts)));
        }
        std::mem::swap(&mut window.events, &mut self.ordered);
        self.is_done = is_last;
        Some(window)
    }

    /// Number of records in `ordered`. All events of a record have its key, so a window has all of them or none.
    fn records(&self) -> u64 {
        let addresses: u64 = if self.has_bulk { self.ordered.iter().map(Keyed::addresses).sum() } else { 0 };
        self.ordered.len() as u64 - addresses
    }

    /// [`Window::tie_base`] of the events in `ordered`.
    fn find_tie_base(&mut self) -> (u64, u64) {
        let (Some(first), Some(last)) = (self.ordered.first(), self.ordered.last()) else { return self.tie_base };
        let (first, last) = (first.key(), last.key());
        let tie_base = if self.tie_base.0 == first { self.tie_base } else { (first, self.serial) };
        self.tie_base = if first == last { tie_base } else { (last, self.serial) };
        tie_base
    }

    /// Takes a window back, to use its memory again.
    pub(crate) fn recycle(&mut self, mut window: Window<E>) {
        window.clear();
        self.used.push(window);
    }

    /// Leaves out events that are not within the bounds.
    fn keep_to_bounds(&mut self) {
        if let Some((from, to)) = self.bounds {
            self.ordered.truncate(self.ordered.partition_point(|event| event.key() <= to));
            self.ordered.drain(..self.ordered.partition_point(|event| event.key() < from));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeSet, HashSet};

    use kmemtrace_abi::event::GapCause;
    use kmemtrace_tests::generate::Random;

    use super::*;

    /// Key, stream, position.
    type Told = (u64, usize, usize);

    impl Keyed for Told {
        fn key(&self) -> u64 {
            self.0
        }

        fn part(&self, parts: u32) -> u8 {
            (self.2 as u32 % parts) as u8
        }

        fn cpu(&self, cpus: &[u32]) -> u32 {
            cpus[self.1]
        }
    }

    /// Number of the CPU of stream 0.
    const FIRST_CPU: u32 = 5;

    /// Events of one stream, and the gaps that are read before each of them and after the last.
    #[derive(Clone, Debug, Default)]
    struct Input {
        events: Vec<Told>,
        gaps: Vec<Vec<Gap>>,
    }

    fn gap(from: Option<u64>, to: Option<u64>, stream: usize) -> Gap {
        Gap { from, to, cpu: FIRST_CPU + stream as u32, lost: None, cause: GapCause::Overrun }
    }

    /// Gaps before an event with key `next`, where `last` is the key of the event before.
    fn gaps_between(random: &mut Random, stream: usize, last: Option<u64>, next: Option<u64>) -> Vec<Gap> {
        let first = last.unwrap_or(0);
        let from = |random: &mut Random| if random.chance(60) { first } else { first + random.below(20) };
        let mut gaps: Vec<Gap> = (0..1 + random.below(2))
            .map(|_| {
                let from = from(random);
                let to = match next {
                    Some(next) if random.chance(70) => Some(next.max(from)),
                    _ => Some(from + random.below(12)),
                };
                let begins = Some(from).filter(|_| last.is_some() || random.chance(50));
                gap(begins, to.filter(|_| random.chance(95)), stream)
            })
            .collect();
        gaps.sort_by_key(|gap| gap.from);
        gaps
    }

    /// A stream of up to `most` events with keys below `highest`; every `loss`th has a gap before it, in percent.
    fn input(random: &mut Random, stream: usize, most: u64, highest: u64, loss: u64) -> Input {
        let mut keys: Vec<u64> = (0..random.below(most)).map(|_| random.below(highest)).collect();
        if random.chance(10) {
            keys.push(u64::MAX);
        }
        keys.sort_unstable();
        let mut gaps = Vec::new();
        for place in 0..=keys.len() {
            let last = place.checked_sub(1).map(|place| keys[place]);
            let is_lost = random.chance(loss) && last.is_none_or(|last| last < u64::MAX);
            gaps.push(if is_lost { gaps_between(random, stream, last, keys.get(place).copied()) } else { Vec::new() });
        }
        let events = keys.into_iter().enumerate().map(|(position, key)| (key, stream, position)).collect();
        Input { events, gaps }
    }

    /// Reads the streams in chunks of any length and hands each window to `take`, which gives it back.
    fn merged(
        random: &mut Random,
        inputs: &[Input],
        merger: &mut Merger<Told>,
        mut take: impl FnMut(Window<Told>) -> Window<Told>,
    ) {
        let mut next = vec![0; inputs.len()];
        let (mut added, mut returned) = (0, 0);
        while !merger.is_done() {
            for (stream, Input { events, gaps }) in inputs.iter().enumerate() {
                while !merger.has_ended(stream) && (merger.needs_input(stream) || random.chance(30)) {
                    let from: usize = next[stream];
                    let until = events.len().min(from + random.below(20) as usize);
                    let ended = until == events.len();
                    // A chunk brings the gaps before its events; those before the next one come with it or after it.
                    let last_gaps = until + usize::from(ended);
                    let gaps = gaps[from..last_gaps].iter().flatten().copied().collect();
                    added += usize::from(until > from);
                    merger.add(stream, Chunk { events: events[from..until].to_vec(), gaps, ..Chunk::default() }, ended);
                    next[stream] = until;
                }
            }
            if let Some(window) = merger.next() {
                merger.recycle(take(window));
            }
            returned += merger.take_consumed().count();
        }
        assert_eq!(returned, added, "chunks to read into again");
    }

    fn sorted(inputs: &[Input]) -> Vec<Told> {
        let mut all: Vec<Told> = inputs.iter().flat_map(|input| &input.events).copied().collect();
        all.sort_unstable();
        all
    }

    fn merger(streams: usize, order: OrderKey, parts: u32) -> Merger<Told> {
        Merger::new((FIRST_CPU..).take(streams).collect(), order, parts)
    }

    /// However many streams there are, however far each has been read, and however many events share a key.
    #[test]
    fn events_come_in_the_order_of_key_stream_and_position() {
        for seed in 0..800 {
            let mut random = Random::new(seed);
            let streams = 1 + random.below(12) as usize;
            let highest = if random.chance(10) { u64::MAX } else { 1 + random.below(300) };
            let inputs: Vec<Input> = (0..streams).map(|stream| input(&mut random, stream, 80, highest, 0)).collect();
            let mut merger = merger(streams, OrderKey::Time, 1);
            let mut told: Vec<Told> = Vec::new();
            merged(&mut random, &inputs, &mut merger, |window| {
                assert_eq!(window.first_serial, told.len() as u64, "seed {seed}");
                told.extend_from_slice(&window.events);
                window
            });
            let wanted = sorted(&inputs);
            assert_eq!(told, wanted, "seed {seed}");
            let (first, last) = (wanted.first().map(Keyed::key), wanted.last().map(Keyed::key));
            let MergeStats { first: first_told, last: last_told, events, missing, holes } = merger.merged;
            assert_eq!((first_told, last_told), (first, last), "seed {seed}");
            assert_eq!((events, missing, holes), (wanted.len() as u64, 0, 0), "seed {seed}");
        }
    }

    /// An event with the state of gaps in which a reader of windows sees it.
    #[derive(Clone, Copy, Debug)]
    struct Seen {
        event: Told,
        epoch: usize,
        in_gap: bool,
        /// A gap began at its key, and came to light in the window after.
        touched: bool,
        is_at_frontier: bool,
    }

    /// A reader of windows, as the pairing is one.
    #[derive(Debug, Default)]
    struct Reader {
        seen: Vec<Seen>,
        gaps: Vec<Gap>,
        /// Gaps that have begun.
        epoch: usize,
        complete_until: Option<u64>,
    }

    impl Reader {
        fn take(&mut self, window: &Window<Told>) {
            assert!(
                !window.gap_at_last_frontier || self.complete_until.is_some(),
                "the first window touches none before it"
            );
            for seen in self.seen.iter_mut().filter(|seen| seen.is_at_frontier) {
                seen.touched |= window.gap_at_last_frontier;
                seen.is_at_frontier = window.complete_until == self.complete_until;
            }
            self.complete_until = window.complete_until;
            self.gaps.extend_from_slice(&window.gaps);
            for (number, &event) in window.events.iter().enumerate() {
                let begun = window.loss_runs.partition_point(|run| run.from as usize <= number);
                let run = window.loss_runs[begun - 1];
                self.epoch += usize::from(run.starts_gap && run.from as usize == number);
                let is_at_frontier = window.complete_until == Some(event.0);
                let (epoch, in_gap) = (self.epoch, run.in_gap);
                self.seen.push(Seen { event, epoch, in_gap, touched: false, is_at_frontier });
            }
        }
    }

    /// Compares the suspicion of loss between any two events with every gap there is.
    fn assert_gaps(what: &str, seen: &[Seen], gaps: &[Gap]) {
        for (number, now) in seen.iter().enumerate() {
            for before in &seen[..number] {
                let told = now.in_gap || before.in_gap || before.epoch != now.epoch || now.touched;
                let (from, to) = (before.event.0, now.event.0);
                let begins = |gap: &Gap| gap.from.is_none_or(|begin| begin <= to);
                let known = gaps.iter().any(|gap| begins(gap) && gap.to.is_none_or(|end| end >= from));
                assert_eq!(told, known, "{what}: from {before:?} to {now:?}, {gaps:?}");
            }
        }
    }

    /// A gap is between two events exactly where one that was read touches the time between them: no event too early and
    /// none too late, whatever bounds there are, and however late the gap is read.
    #[test]
    fn a_gap_is_where_it_touches_the_time_between_two_events() {
        for seed in 0..800 {
            let mut random = Random::new(seed);
            let streams = 1 + random.below(4) as usize;
            let highest = *random.pick(&[3, 20, 60, 400]);
            let loss = *random.pick(&[2, 10, 30]);
            let inputs: Vec<Input> = (0..streams).map(|stream| input(&mut random, stream, 30, highest, loss)).collect();
            let mut merger = merger(streams, OrderKey::Time, 1);
            let bounds = (random.below(highest), random.below(highest + highest / 2));
            let bounds = if random.chance(40) && bounds.0 <= bounds.1 { bounds } else { (0, u64::MAX) };
            merger.set_bounds(bounds);
            let mut reader = Reader::default();
            merged(&mut random, &inputs, &mut merger, |window| {
                reader.take(&window);
                window
            });
            let Reader { seen, mut gaps, .. } = reader;
            let wanted: Vec<Told> =
                sorted(&inputs).into_iter().filter(|event| (bounds.0..=bounds.1).contains(&event.0)).collect();
            assert_eq!(seen.iter().map(|seen| seen.event).collect::<Vec<_>>(), wanted, "seed {seed}");
            assert_eq!(merger.merged.events, wanted.len() as u64, "seed {seed}");
            assert_eq!(merger.merged.first, wanted.first().map(Keyed::key), "seed {seed}");
            assert_eq!(merger.merged.last, wanted.last().map(Keyed::key), "seed {seed}");
            let key = |gap: &Gap| (gap.cpu, gap.from, gap.to);
            let mut known: Vec<Gap> = inputs.iter().flat_map(|input| input.gaps.iter().flatten()).copied().collect();
            known.sort_by_key(key);
            gaps.sort_by_key(key);
            assert_eq!(gaps, known, "seed {seed}");
            assert_gaps(&format!("seed {seed}"), &seen, &gaps);
        }
    }

    /// Numbers that no event has are gaps, each counted once, on the CPU whose event comes next; bounds do not hide them.
    #[test]
    fn missing_sequence_numbers_are_gaps() {
        for seed in 0..500 {
            let mut random = Random::new(seed);
            let streams = 1 + random.below(4) as usize;
            let mut inputs = vec![Input::default(); streams];
            // The counter begins anywhere, and may begin again.
            let mut key = *random.pick(&[0, 1, 77, u64::MAX - 30]);
            let mut wanted = Vec::new();
            let mut last = None;
            for _ in 0..random.below(60) {
                let stream = random.below(streams as u64) as usize;
                let step = if random.chance(90) { random.below(2) } else { 2 + random.below(5) };
                key = u64::saturating_add(key, step);
                if let Some(last) = last
                    && key > last
                    && key - last > 1
                {
                    wanted.push((last, key, stream));
                }
                last = Some(key);
                let position = inputs[stream].events.len();
                inputs[stream].events.push((key, stream, position));
            }
            // The lowest stream of equal numbers is first: the gap's CPU depends on that.
            let all = sorted(&inputs);
            for (_, to, stream) in &mut wanted {
                *stream = all[all.partition_point(|event| event.0 < *to)].1;
            }
            inputs.iter_mut().for_each(|input| input.gaps = vec![Vec::new(); input.events.len() + 1]);
            let mut merger = merger(streams, OrderKey::Sequence, 1);
            let middle = all.get(all.len() / 2).map_or(0, Keyed::key);
            if random.chance(50) {
                merger.set_bounds((middle, u64::MAX));
            }
            let mut reader = Reader::default();
            merged(&mut random, &inputs, &mut merger, |window| {
                reader.take(&window);
                window
            });
            let Reader { seen, gaps, .. } = reader;
            let told: Vec<_> = gaps.iter().map(|gap| (gap.from, gap.to, gap.lost, gap.cpu, gap.cause)).collect();
            let gap = |&(last, key, stream): &(u64, u64, usize)| {
                (Some(last), Some(key), Some(key - last - 1), FIRST_CPU + stream as u32, GapCause::Sequence)
            };
            assert_eq!(told, wanted.iter().map(gap).collect::<Vec<_>>(), "seed {seed}");
            let missing: u64 = wanted.iter().map(|(last, key, _)| key - last - 1).sum();
            assert_eq!((merger.merged.holes, merger.merged.missing), (wanted.len() as u64, missing), "seed {seed}");
            assert_gaps(&format!("seed {seed}"), &seen, &gaps);
        }
    }

    /// Events of one key are told apart by their distance from where the key was first seen, however the windows are cut.
    #[test]
    fn events_of_one_key_are_told_apart_across_windows() {
        for seed in 0..300 {
            let mut random = Random::new(seed);
            let streams = 1 + random.below(4) as usize;
            let highest = 1 + random.below(6);
            let inputs: Vec<Input> = (0..streams).map(|stream| input(&mut random, stream, 80, highest, 0)).collect();
            let mut last = None;
            merged(&mut random, &inputs, &mut merger(streams, OrderKey::Time, 1), |window| {
                let (key, since) = window.tie_base;
                for (number, event) in (0..).zip(&window.events) {
                    let before = if event.key() == key { window.first_serial - since } else { 0 };
                    let now = Some((event.key(), before + number));
                    assert!(last < now, "seed {seed}: {last:?}, then {now:?}");
                    last = now;
                }
                window
            });
        }
    }

    /// Each event belongs to one partition, which knows its number in the window.
    #[test]
    fn partitions_share_a_window_without_loss() {
        for seed in 0..300 {
            let mut random = Random::new(seed);
            let streams = 1 + random.below(4) as usize;
            let parts = 1 + random.below(5) as u32;
            let inputs: Vec<Input> = (0..streams).map(|stream| input(&mut random, stream, 40, 50, 0)).collect();
            let mut shares: Vec<Share<Told>> = (0..parts).map(|_| Share::default()).collect();
            merged(&mut random, &inputs, &mut merger(streams, OrderKey::Time, parts), |window| {
                let mut numbers = BTreeSet::new();
                for (number, share) in shares.iter_mut().enumerate() {
                    let part = window.part(number, share);
                    for (index, event) in part.events.iter().enumerate() {
                        let serial = part.serial(index);
                        assert_eq!(window.events[serial as usize], *event, "seed {seed}");
                        assert_eq!(usize::from(event.part(parts)), number, "seed {seed}");
                        assert_eq!(part.position(serial), index, "seed {seed}");
                        assert_eq!(part.position(serial + 1), index + 1, "seed {seed}");
                        assert!(numbers.insert(serial), "seed {seed}: event {serial} twice");
                    }
                    let serials: Vec<u32> = (0..part.events.len()).map(|index| part.serial(index)).collect();
                    assert!(serials.is_sorted(), "seed {seed}");
                    assert_eq!(part.position(u32::MAX), part.events.len(), "seed {seed}");
                }
                assert_eq!(numbers.len(), window.events.len(), "seed {seed}");
                window
            });
        }
    }

    /// A trace of any length is merged in the memory of a few windows.
    #[test]
    fn windows_that_were_given_back_are_used_again() {
        let events: Vec<Told> = (0..4000).map(|key| (key, 0, key as usize)).collect();
        let mut merger = merger(1, OrderKey::Time, 1);
        let mut memory = HashSet::new();
        for events in events.chunks(10) {
            merger.add(0, Chunk { events: events.to_vec(), ..Chunk::default() }, false);
            let window = merger.next().unwrap();
            assert_eq!(window.events, events);
            if window.first_serial > 1000 {
                memory.insert(window.events.as_ptr());
            }
            merger.recycle(window);
            assert_eq!(merger.used.len(), 1);
        }
        assert!(memory.len() <= 2, "{} places", memory.len());
    }

    /// The first key of all is that of the stream whose first event is earliest; without an event it is 0.
    #[test]
    fn the_first_key_is_the_least_of_all_streams() {
        let mut merger = merger(3, OrderKey::Time, 1);
        assert_eq!(merger.first_key(), 0);
        for (stream, key) in [(0, 30), (1, 20), (2, 40)] {
            merger.add(stream, Chunk { events: vec![(key, stream, 0)], ..Chunk::default() }, false);
        }
        assert_eq!(merger.first_key(), 20);
    }
}
