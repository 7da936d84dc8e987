//! Who does what next: the stages of the analysis, and what is on its way from one to the next.
//!
//! A stage (a stream, the merge, a partition of the addresses, the ledger) is on the board while nobody works at it. A thread
//! takes a stage that has something to do and puts it back when that is done, so that each works at its own and nothing else is
//! locked. Later stages go first: what is on its way stays little, and is still in a core's cache. Only the second of two
//! threads reads as long as it may, and merges before it pairs: so mostly one core pairs, which has the tables in its cache,
//! and merges where the other is still reading.
//! Which windows come out depends on who was faster; the figures do not.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use kmemtrace_abi::stream::CpuStream;

use crate::engine::peaks::{Ledger, Log};
use crate::order::merge::{Chunk, MAX_CHUNKS};
use crate::order::merger::{Merger, Window};
use crate::order::pair_event::{Filter, PairEvent, PairEventReader};
use crate::pairing::pairs::Pairing;

/// Windows that may wait for the pairing.
pub(crate) const MOST_ROUNDS: usize = 3;
/// How often a thread that finds nothing to do looks again before it sleeps: to wake it takes longer than most tasks.
const LOOKS: u32 = 100;

/// A partition of the addresses.
pub(crate) struct Partition<'a> {
    pub(crate) pairing: Pairing<'a>,
    account: Account,
    /// Number of the window that it takes next.
    next: u64,
}

/// Where a partition's changes of the live bytes go.
enum Account {
    /// There is no other partition.
    Ledger(Box<Ledger>),
    /// To be replayed with those of the others.
    Log(Log),
}

impl<'a> Partition<'a> {
    /// One of several, or the only one.
    pub(crate) fn new(pairing: Pairing<'a>, is_only: bool) -> Partition<'a> {
        let account = if is_only { Account::Ledger(Box::default()) } else { Account::Log(Log::default()) };
        Partition { pairing, account, next: 0 }
    }

    fn take(&mut self, window: &Window<PairEvent>) {
        match &mut self.account {
            Account::Ledger(ledger) => self.pairing.take(window, &mut **ledger),
            Account::Log(log) => self.pairing.take(window, log),
        }
    }
}

/// A window that the partitions are at.
struct Round {
    window: Arc<Window<PairEvent>>,
    /// What the partitions that are through have changed.
    logs: Vec<Option<Log>>,
}

/// A CPU's stream.
struct Stream {
    /// `None`: somebody reads it.
    idle: Option<Box<CpuStream>>,
    ended: bool,
    /// Chunks that the merge is not through with.
    waiting: usize,
    bytes_read: u64,
}

/// A stage that somebody has taken from the board, with its task.
#[expect(clippy::large_enum_variant, reason = "each thread has one, which moves twice in thousands of events")]
enum Work<'a> {
    Read(u16, Box<CpuStream>, Chunk<PairEvent>, bool),
    Merge(Merger<PairEvent>, Vec<Fresh>, Option<Window<PairEvent>>),
    Pair(usize, Partition<'a>, Arc<Window<PairEvent>>),
    Replay(Ledger, Arc<Window<PairEvent>>, Vec<Log>),
}

/// A chunk on its way to the merge: stream, events, whether it is the stream's last.
type Fresh = (usize, Chunk<PairEvent>, bool);

struct State<'a> {
    streams: Vec<Stream>,
    fresh: Vec<Fresh>,
    merger: Option<Merger<PairEvent>>,
    is_merged: bool,
    rounds: VecDeque<Round>,
    /// Number of the first of them.
    first_round: u64,
    partitions: Vec<Option<Partition<'a>>>,
    ledger: Option<Ledger>,
    /// Memory to be used again.
    chunks: Vec<Chunk<PairEvent>>,
    windows: Vec<Window<PairEvent>>,
    logs: Vec<Log>,
    /// Stages that are taken.
    at_work: usize,
    asleep: usize,
    stop: bool,
    is_over: bool,
    events: u64,
    spent: Spent,
}

/// Time that all threads together were at work.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spent {
    /// Reading and decoding.
    pub(crate) reading: Duration,
    pub(crate) merging: Duration,
    /// Pairing and counting; while a table is moved in halves, the longer of the two.
    pub(crate) pairing: Duration,
}

/// How far it has come.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Standing {
    pub(crate) bytes_read: u64,
    pub(crate) events: u64,
    /// A partition's tables are as large as they may be, and it has stopped.
    pub(crate) is_over: bool,
}

/// The board.
pub(crate) struct Board<'a> {
    state: Mutex<State<'a>>,
    changed: Condvar,
    /// Events to read of a stream at once.
    batch: usize,
    /// Chunks to read of a stream before the merge is through with the first of them: of more than two streams at least the
    /// [`MAX_CHUNKS`] that the merge waits for.
    ahead: usize,
}

/// The stages, when all is done.
pub(crate) struct Done<'a> {
    pub(crate) streams: Vec<CpuStream>,
    pub(crate) merger: Merger<PairEvent>,
    pub(crate) partitions: Vec<Partition<'a>>,
    pub(crate) ledger: Ledger,
    pub(crate) spent: Spent,
}

impl<'a> Board<'a> {
    /// With all stages on it. Each stream must have been read up to its first event.
    pub(crate) fn new(
        streams: Vec<CpuStream>,
        merger: Merger<PairEvent>,
        partitions: Vec<Partition<'a>>,
        batch: usize,
        ahead: usize,
    ) -> Board<'a> {
        let stream = |(number, stream): (usize, CpuStream)| Stream {
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
            ledger: Some(Ledger::default()),
            chunks: Vec::new(),
            windows: Vec::new(),
            logs: Vec::new(),
            at_work: 0,
            asleep: 0,
            stop: false,
            is_over: false,
            events: 0,
            spent: Spent::default(),
        };
        Board { state: Mutex::new(state), changed: Condvar::new(), batch, ahead }
    }

    /// Takes memory for all that may be on its way of so many streams, now, and not when there happens to be that much: so a report
    /// takes no more the longer it goes on.
    pub(crate) fn take_memory(&mut self, streams: usize) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        let touched = |events| {
            let mut list = vec![PairEvent::default(); events];
            list.clear();
            list
        };
        let chunk = |_| Chunk { events: touched(self.batch), gaps: Vec::new() };
        let window = |_| Window { events: touched(self.batch * streams), ..Window::default() };
        state.chunks.extend((0..self.ahead * streams).map(chunk));
        state.windows.extend((0..MOST_ROUNDS).map(window));
    }

    /// Does all there is to do, on so many threads, the caller's among them, which calls `look` after each task: false stops
    /// all. They read with `reader`, and copies of it.
    pub(crate) fn work<F: Filter + Clone + Send>(
        &self,
        threads: u32,
        reader: PairEventReader<'_, F>,
        mut look: impl FnMut(Standing) -> bool,
    ) {
        thread::scope(|scope| {
            // Where the system has no thread to give, the others do its tasks.
            let is_second_of_two = threads == 2;
            for _ in 1..threads {
                let own = reader.clone();
                let work = move || self.work_on(is_second_of_two, own, || true);
                drop(thread::Builder::new().spawn_scoped(scope, work));
            }
            self.work_on(false, reader, || look(self.standing()));
        });
    }

    fn work_on<F: Filter>(
        &self,
        reads_first: bool,
        mut reader: PairEventReader<'_, F>,
        mut look: impl FnMut() -> bool,
    ) {
        let _guard = StopOnPanic(self);
        while let Some(mut work) = self.take(reads_first) {
            let begun = Instant::now();
            match &mut work {
                Work::Read(number, stream, chunk, ended) => {
                    (*chunk, *ended) = reader.read(*number, stream, std::mem::take(chunk), self.batch)
                }
                Work::Merge(merger, fresh, window) => {
                    fresh.drain(..).for_each(|(stream, chunk, ended)| merger.add(stream, chunk, ended));
                    *window = merger.next();
                }
                Work::Pair(_, partition, window) => partition.take(window),
                Work::Replay(ledger, window, logs) => ledger.replay(window, logs),
            }
            self.put(work, begun.elapsed());
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

    fn standing(&self) -> Standing {
        let state = self.lock();
        let bytes_read = state.streams.iter().map(|stream| stream.bytes_read).sum();
        Standing { bytes_read, events: state.events, is_over: state.is_over }
    }

    /// The next thing to do, once there is one; `None` at the end.
    fn take(&self, reads_first: bool) -> Option<Work<'a>> {
        let mut state = self.lock();
        let mut looks = 0;
        loop {
            if state.stop || state.is_done() {
                self.changed.notify_all();
                return None;
            }
            if let Some(work) = state.next(self.ahead, reads_first) {
                state.at_work += 1;
                return Some(work);
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

    fn put(&self, work: Work<'a>, took: Duration) {
        let mut state = self.lock();
        state.at_work -= 1;
        *match work {
            Work::Read(..) => &mut state.spent.reading,
            Work::Merge(..) => &mut state.spent.merging,
            Work::Pair(..) | Work::Replay(..) => &mut state.spent.pairing,
        } += took;
        state.put(work);
        if state.asleep > 0 {
            self.changed.notify_all();
        }
    }

    /// The stages; `None` where one is missing, because a thread has failed.
    pub(crate) fn into_stages(self) -> Option<Done<'a>> {
        let state = self.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        let mut partitions = state.partitions.into_iter().collect::<Option<Vec<_>>>()?;
        let mut ledger = state.ledger?;
        if let [Partition { account: Account::Ledger(only), .. }] = partitions.as_mut_slice() {
            ledger = std::mem::take(&mut **only);
        }
        let streams = state.streams.into_iter().map(|stream| stream.idle.map(|idle| *idle)).collect::<Option<_>>()?;
        Some(Done { streams, merger: state.merger?, partitions, ledger, spent: state.spent })
    }
}

impl<'a> State<'a> {
    fn is_done(&self) -> bool {
        self.is_merged && self.rounds.is_empty() && self.at_work == 0
    }

    /// Takes a stage that has something to do.
    fn next(&mut self, ahead: usize, reads_first: bool) -> Option<Work<'a>> {
        if reads_first && let Some(work) = self.next_read(ahead).or_else(|| self.next_merge()) {
            return Some(work);
        }
        self.next_replay().or_else(|| self.next_pair()).or_else(|| self.next_merge()).or_else(|| self.next_read(ahead))
    }

    fn next_replay(&mut self) -> Option<Work<'a>> {
        let round = self.rounds.front_mut()?;
        if round.logs.is_empty() || round.logs.iter().any(Option::is_none) {
            return None;
        }
        let ledger = self.ledger.take()?;
        Some(Work::Replay(ledger, Arc::clone(&round.window), round.logs.drain(..).flatten().collect()))
    }

    fn next_pair(&mut self) -> Option<Work<'a>> {
        let end = self.first_round + self.rounds.len() as u64;
        let idle = self.partitions.iter().enumerate();
        let idle = idle.filter_map(|(part, partition)| Some((partition.as_ref()?.next, part)));
        let (next, part) = idle.min().filter(|&(next, _)| next < end)?;
        let window = Arc::clone(&self.rounds.get((next - self.first_round) as usize)?.window);
        Some(Work::Pair(part, self.partitions.get_mut(part)?.take()?, window))
    }

    fn next_merge(&mut self) -> Option<Work<'a>> {
        // Of many streams there is always one whose chunk is almost through, and a window ends where a chunk does.
        let enough = if self.streams.len() > 2 { MAX_CHUNKS } else { 1 };
        let is_ready = !self.is_merged
            && self.rounds.len() < MOST_ROUNDS
            && self.streams.iter().all(|stream| stream.ended || stream.waiting >= enough);
        let mut merger = self.merger.take_if(|_| is_ready)?;
        self.windows.drain(..).for_each(|window| merger.recycle(window));
        Some(Work::Merge(merger, std::mem::take(&mut self.fresh), None))
    }

    fn next_read(&mut self, ahead: usize) -> Option<Work<'a>> {
        let idle = self.streams.iter().enumerate().filter(|(_, stream)| stream.idle.is_some() && !stream.ended);
        let (number, _) = idle.filter(|(_, stream)| stream.waiting < ahead).min_by_key(|(_, stream)| stream.waiting)?;
        let stream = self.streams.get_mut(number)?.idle.take()?;
        Some(Work::Read(number as u16, stream, self.chunks.pop().unwrap_or_default(), false))
    }

    /// Puts a stage back, and what it came to where the next one finds it.
    fn put(&mut self, work: Work<'a>) {
        match work {
            Work::Read(number, read, chunk, ended) => {
                let number = usize::from(number);
                let stream = &mut self.streams[number];
                stream.bytes_read = read.bytes_read();
                stream.waiting += usize::from(!chunk.events.is_empty());
                stream.ended = ended;
                stream.idle = Some(read);
                self.fresh.push((number, chunk, ended));
            }
            Work::Merge(mut merger, fresh, window) => {
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
                let logs = if self.partitions.len() > 1 { self.partitions.len() } else { 0 };
                let round = |window| Round { window: Arc::new(window), logs: (0..logs).map(|_| None).collect() };
                self.rounds.extend(window.map(round));
            }
            Work::Pair(part, mut partition, window) => {
                let round = (partition.next - self.first_round) as usize;
                partition.next += 1;
                self.is_over |= partition.pairing.over_budget;
                drop(window);
                match &mut partition.account {
                    Account::Ledger(_) => self.end_round(),
                    Account::Log(log) => {
                        let log = std::mem::replace(log, self.logs.pop().unwrap_or_default());
                        self.rounds[round].logs[part] = Some(log);
                    }
                }
                self.partitions[part] = Some(partition);
            }
            Work::Replay(ledger, window, logs) => {
                self.ledger = Some(ledger);
                drop(window);
                self.logs.extend(logs.into_iter().map(Log::cleared));
                self.end_round();
            }
        }
    }

    /// All is done with the first window.
    fn end_round(&mut self) {
        let window = self.rounds.pop_front().and_then(|round| Arc::into_inner(round.window));
        self.windows.extend(window);
        self.first_round += 1;
    }
}

/// Lets the other threads end where this one fails, for what it has taken does not come back.
struct StopOnPanic<'b, 'a>(&'b Board<'a>);

impl Drop for StopOnPanic<'_, '_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.stop();
        }
    }
}
