//! Scheduler of the stages of an analysis: streams, the merge, partitions of the addresses, and the peak tracker.
//!
//! A thread claims a stage that has a task, works without a lock, and completes the task by giving the stage back. Later stages go
//! first: few events are between two stages, and those are still in a core's cache. The cut into windows depends on the speed of
//! the threads; the figures do not.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use kmemtrace_abi::stream::CpuStream;

use crate::engine::peaks::{LiveDeltas, PeakTracker};
use crate::order::merge::{Chunk, MAX_CHUNKS};
use crate::order::merger::{Merger, Window};
use crate::order::pair_event::{PairEvent, PairEventReader};
use crate::pairing::pairs::Pairing;

/// Limit of merged windows that wait for the pairing.
pub(crate) const MAX_ROUNDS: usize = 3;
/// Attempts of a thread without a task before it sleeps: to wake it takes longer than most tasks.
const LOOKS: u32 = 100;

/// A partition of the addresses.
pub(crate) struct Partition<'a> {
    pub(crate) pairing: Pairing<'a>,
    account: Account,
    /// Number of the next window to pair.
    next: u64,
}

/// Receiver of a partition's changes of the live bytes.
enum Account {
    /// Peaks at once, if there is no other partition.
    Peaks(Box<PeakTracker>),
    /// Deltas, replayed with those of the other partitions.
    Deltas(LiveDeltas),
}

impl<'a> Partition<'a> {
    /// The partition of `pairing`; with `peaks` the only one, without it one of several.
    pub(crate) fn new(pairing: Pairing<'a>, peaks: Option<PeakTracker>) -> Partition<'a> {
        let account = match peaks {
            Some(peaks) => Account::Peaks(Box::new(peaks)),
            None => Account::Deltas(LiveDeltas::default()),
        };
        Partition { pairing, account, next: 0 }
    }

    fn take(&mut self, window: &Window<PairEvent>) {
        match &mut self.account {
            Account::Peaks(peaks) => self.pairing.take(window, &mut **peaks),
            Account::Deltas(own) => self.pairing.take(window, own),
        }
    }
}

/// A window that the partitions pair.
struct Round {
    window: Arc<Window<PairEvent>>,
    /// Deltas of the partitions that have finished the window.
    deltas: Vec<Option<LiveDeltas>>,
}

/// A CPU's stream.
struct StreamState {
    /// `None` while a thread reads it.
    idle: Option<Box<CpuStream>>,
    ended: bool,
    /// Chunks that the merge has not consumed.
    waiting: usize,
    bytes_read: u64,
}

/// A claimed stage and its task.
#[expect(clippy::large_enum_variant, reason = "each thread has one, which moves twice in thousands of events")]
enum Task<'a> {
    Read(u16, Box<CpuStream>, Chunk<PairEvent>, bool),
    Merge(Merger<PairEvent>, Vec<Fresh>, Option<Window<PairEvent>>),
    Pair(usize, Partition<'a>, Arc<Window<PairEvent>>),
    Replay(PeakTracker, Arc<Window<PairEvent>>, Vec<LiveDeltas>),
}

/// A chunk for the merge: stream, events, and true for the stream's last.
type Fresh = (usize, Chunk<PairEvent>, bool);

struct State<'a> {
    streams: Vec<StreamState>,
    fresh: Vec<Fresh>,
    merger: Option<Merger<PairEvent>>,
    is_merged: bool,
    rounds: VecDeque<Round>,
    /// Number of the first round.
    first_round: u64,
    partitions: Vec<Option<Partition<'a>>>,
    peaks: Option<PeakTracker>,
    /// Recycled memory.
    chunks: Vec<Chunk<PairEvent>>,
    windows: Vec<Window<PairEvent>>,
    deltas: Vec<LiveDeltas>,
    /// Claimed stages.
    at_work: usize,
    asleep: usize,
    stop: bool,
    is_over: bool,
    events: u64,
    times: StageTimes,
}

/// Time that all threads together worked at each stage.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StageTimes {
    /// Reading and decoding.
    pub(crate) reading: Duration,
    pub(crate) merging: Duration,
    /// Pairing and counting.
    pub(crate) pairing: Duration,
}

/// Progress so far, over all threads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProgressSnapshot {
    pub(crate) bytes_read: u64,
    pub(crate) events: u64,
    /// True once a partition's tables have reached their memory limit: results are invalid from then on.
    pub(crate) is_over: bool,
}

/// The scheduler.
pub(crate) struct Scheduler<'a> {
    state: Mutex<State<'a>>,
    changed: Condvar,
    /// Events to read of a stream at once.
    batch: usize,
    /// Chunks to read of a stream before the merge has consumed the first of them: with more than two streams at least the
    /// [`MAX_CHUNKS`] that the merge waits for.
    ahead: usize,
}

/// The stages at the end of the run.
pub(crate) struct Finished<'a> {
    pub(crate) streams: Vec<CpuStream>,
    pub(crate) merger: Merger<PairEvent>,
    pub(crate) partitions: Vec<Partition<'a>>,
    pub(crate) peaks: PeakTracker,
    pub(crate) times: StageTimes,
}

impl<'a> Scheduler<'a> {
    /// A scheduler of all stages. Each stream must have been read up to its first event.
    pub(crate) fn new(
        streams: Vec<CpuStream>,
        merger: Merger<PairEvent>,
        partitions: Vec<Partition<'a>>,
        peaks: PeakTracker,
        (batch, ahead): (usize, usize),
    ) -> Scheduler<'a> {
        let stream = |(number, stream): (usize, CpuStream)| StreamState {
            idle: Some(Box::new(stream)),
            ended: merger.has_ended(number),
            waiting: merger.waiting(number),
            bytes_read: 0,
        };
        let state = State {
            streams: streams.into_iter().enumerate().map(stream).collect(),
            fresh: Vec::new(),
            is_merged: merger.is_done(),
            merger: Some(merger),
            rounds: VecDeque::new(),
            first_round: 0,
            partitions: partitions.into_iter().map(Some).collect(),
            peaks: Some(peaks),
            chunks: Vec::new(),
            windows: Vec::new(),
            deltas: Vec::new(),
            at_work: 0,
            asleep: 0,
            stop: false,
            is_over: false,
            events: 0,
            times: StageTimes::default(),
        };
        Scheduler { state: Mutex::new(state), changed: Condvar::new(), batch, ahead }
    }

    /// Touches the memory of all buffers for `streams` streams now, so that a run does not grow while it goes on.
    pub(crate) fn take_memory(&mut self, streams: usize) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        let touched = |events| {
            let mut list = vec![PairEvent::default(); events];
            list.clear();
            list
        };
        let chunk = |_| Chunk { events: touched(self.batch), ..Chunk::default() };
        let window = |_| Window { events: touched(self.batch * streams), ..Window::default() };
        state.chunks.extend((0..self.ahead * streams).map(chunk));
        state.windows.extend((0..MAX_ROUNDS).map(window));
    }

    /// Runs all tasks on `threads` threads. The caller's thread is one of them and calls `look` after each task: false stops all.
    /// Each thread reads with a copy of `reader`.
    pub(crate) fn work(
        &self,
        threads: u32,
        reader: PairEventReader<'_>,
        mut look: impl FnMut(ProgressSnapshot) -> bool,
    ) {
        thread::scope(|scope| {
            // Without a new thread from the system, the others do its tasks.
            for _ in 1..threads {
                let own = reader.clone();
                let work = move || self.work_on(own, || true);
                drop(thread::Builder::new().spawn_scoped(scope, work));
            }
            self.work_on(reader, || look(self.snapshot()));
        });
    }

    fn work_on(&self, mut reader: PairEventReader<'_>, mut look: impl FnMut() -> bool) {
        let _guard = StopOnPanic(self);
        while let Some(mut task) = self.claim() {
            let begun = Instant::now();
            match &mut task {
                Task::Read(number, stream, chunk, ended) => {
                    (*chunk, *ended) = reader.read(*number, stream, std::mem::take(chunk), self.batch)
                }
                Task::Merge(merger, fresh, window) => {
                    fresh.drain(..).for_each(|(stream, chunk, ended)| merger.add(stream, chunk, ended));
                    *window = merger.next();
                }
                Task::Pair(_, partition, window) => partition.take(window),
                Task::Replay(peaks, window, deltas) => peaks.replay(window, deltas),
            }
            self.complete(task, begun.elapsed());
            if !look() {
                self.stop();
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<'a>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stop(&self) {
        self.lock().stop = true;
        self.changed.notify_all();
    }

    fn snapshot(&self) -> ProgressSnapshot {
        let state = self.lock();
        let bytes_read = state.streams.iter().map(|stream| stream.bytes_read).sum();
        ProgressSnapshot { bytes_read, events: state.events, is_over: state.is_over }
    }

    /// Waits for the next task and claims its stage; `None` at the end.
    fn claim(&self) -> Option<Task<'a>> {
        let mut state = self.lock();
        let mut looks = 0;
        loop {
            if state.stop || state.is_done() {
                self.changed.notify_all();
                return None;
            }
            if let Some(task) = state.next(self.ahead) {
                state.at_work += 1;
                return Some(task);
            }
            looks += 1;
            if looks < LOOKS {
                drop(state);
                thread::yield_now();
                state = self.lock();
            } else {
                state.asleep += 1;
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.asleep -= 1;
            }
        }
    }

    /// Gives a stage back, and adds the time of its task.
    fn complete(&self, task: Task<'a>, took: Duration) {
        let mut state = self.lock();
        state.at_work -= 1;
        *match task {
            Task::Read(..) => &mut state.times.reading,
            Task::Merge(..) => &mut state.times.merging,
            Task::Pair(..) | Task::Replay(..) => &mut state.times.pairing,
        } += took;
        state.complete(task);
        if state.asleep > 0 {
            self.changed.notify_all();
        }
    }

    /// The stages; `None` if one is missing, because a thread has failed.
    pub(crate) fn into_stages(self) -> Option<Finished<'a>> {
        let state = self.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        let mut partitions = state.partitions.into_iter().collect::<Option<Vec<_>>>()?;
        let mut peaks = state.peaks?;
        if let [Partition { account: Account::Peaks(only), .. }] = partitions.as_mut_slice() {
            peaks = std::mem::take(&mut **only);
        }
        let streams = state.streams.into_iter().map(|stream| stream.idle.map(|idle| *idle)).collect::<Option<_>>()?;
        Some(Finished { streams, merger: state.merger?, partitions, peaks, times: state.times })
    }
}

impl<'a> State<'a> {
    fn is_done(&self) -> bool {
        self.is_merged && self.rounds.is_empty() && self.at_work == 0
    }

    /// Claims a stage that has a task.
    fn next(&mut self, ahead: usize) -> Option<Task<'a>> {
        self.next_replay().or_else(|| self.next_pair()).or_else(|| self.next_merge()).or_else(|| self.next_read(ahead))
    }

    fn next_replay(&mut self) -> Option<Task<'a>> {
        let round = self.rounds.front_mut()?;
        if round.deltas.is_empty() || round.deltas.iter().any(Option::is_none) {
            return None;
        }
        let peaks = self.peaks.take()?;
        Some(Task::Replay(peaks, Arc::clone(&round.window), round.deltas.drain(..).flatten().collect()))
    }

    fn next_pair(&mut self) -> Option<Task<'a>> {
        let end = self.first_round + self.rounds.len() as u64;
        let idle = self.partitions.iter().enumerate();
        let idle = idle.filter_map(|(part, partition)| Some((partition.as_ref()?.next, part)));
        let (next, part) = idle.min().filter(|&(next, _)| next < end)?;
        let window = Arc::clone(&self.rounds.get((next - self.first_round) as usize)?.window);
        Some(Task::Pair(part, self.partitions.get_mut(part)?.take()?, window))
    }

    fn next_merge(&mut self) -> Option<Task<'a>> {
        // With many streams one chunk is always almost consumed, and a window ends with a chunk.
        let enough = if self.streams.len() > 2 { MAX_CHUNKS } else { 1 };
        let is_ready = !self.is_merged
            && self.rounds.len() < MAX_ROUNDS
            && self.streams.iter().all(|stream| stream.ended || stream.waiting >= enough);
        let mut merger = self.merger.take_if(|_| is_ready)?;
        self.windows.drain(..).for_each(|window| merger.recycle(window));
        Some(Task::Merge(merger, std::mem::take(&mut self.fresh), None))
    }

    fn next_read(&mut self, ahead: usize) -> Option<Task<'a>> {
        let idle = self.streams.iter().enumerate().filter(|(_, stream)| stream.idle.is_some() && !stream.ended);
        let (number, _) = idle.filter(|(_, stream)| stream.waiting < ahead).min_by_key(|(_, stream)| stream.waiting)?;
        let stream = self.streams.get_mut(number)?.idle.take()?;
        Some(Task::Read(number as u16, stream, self.chunks.pop().unwrap_or_default(), false))
    }

    /// Gives a stage back, and its output to the next one.
    fn complete(&mut self, task: Task<'a>) {
        match task {
            Task::Read(number, read, chunk, ended) => {
                let number = usize::from(number);
                let stream = &mut self.streams[number];
                stream.bytes_read = read.bytes_read();
                stream.waiting += usize::from(!chunk.events.is_empty());
                stream.ended = ended;
                stream.idle = Some(read);
                self.fresh.push((number, chunk, ended));
            }
            Task::Merge(mut merger, fresh, window) => {
                for (number, stream) in self.streams.iter_mut().enumerate() {
                    let fresh = self.fresh.iter().filter(|(of, chunk, _)| *of == number && !chunk.events.is_empty());
                    stream.waiting = merger.waiting(number) + fresh.count();
                }
                if self.fresh.is_empty() {
                    self.fresh = fresh;
                }
                self.chunks.extend(merger.take_consumed());
                self.is_merged = merger.is_done();
                self.events = merger.merged.events;
                self.merger = Some(merger);
                let parts = if self.partitions.len() > 1 { self.partitions.len() } else { 0 };
                let round = |window| Round { window: Arc::new(window), deltas: (0..parts).map(|_| None).collect() };
                self.rounds.extend(window.map(round));
            }
            Task::Pair(part, mut partition, window) => {
                let round = (partition.next - self.first_round) as usize;
                partition.next += 1;
                self.is_over |= partition.pairing.over_budget;
                drop(window);
                match &mut partition.account {
                    Account::Peaks(_) => self.end_round(),
                    Account::Deltas(own) => {
                        let done = std::mem::replace(own, self.deltas.pop().unwrap_or_default());
                        self.rounds[round].deltas[part] = Some(done);
                    }
                }
                self.partitions[part] = Some(partition);
            }
            Task::Replay(peaks, window, deltas) => {
                self.peaks = Some(peaks);
                drop(window);
                self.deltas.extend(deltas.into_iter().map(LiveDeltas::cleared));
                self.end_round();
            }
        }
    }

    /// Removes the first window, which all partitions have paired.
    fn end_round(&mut self) {
        let window = self.rounds.pop_front().and_then(|round| Arc::into_inner(round.window));
        self.windows.extend(window);
        self.first_round += 1;
    }
}

/// Guard that stops the other threads if this one panics: the stage it claimed never comes back.
struct StopOnPanic<'b, 'a>(&'b Scheduler<'a>);

impl Drop for StopOnPanic<'_, '_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.stop();
        }
    }
}
