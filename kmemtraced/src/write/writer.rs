//! One thread per CPU that counts what its reader brings, and puts it into the CPU's file.

use std::collections::{BTreeSet, VecDeque};
use std::hint::black_box;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender};
use kmemtrace_abi::block::{
    CounterSample, Counters, End, GAP_CLEARED, GAP_FOREIGN, GAP_FULL, GAP_NOT_WRITTEN, GAP_UNCOUNTED, GapRecord,
    HEADER_BYTES, Interval, LOST_UNKNOWN, MARKS_COUNTED, MARKS_VAGUE, kind,
};
use kmemtrace_abi::relay;
use kmemtrace_abi::stats::Stats;
use kmemtrace_abi::subbuffer::{self, Missed};
use kmemtrace_abi::target::Endian;
use zerocopy::IntoBytes;

use crate::control::foreign::ForeignChanges;
use crate::source::{Framing, Sample};
use crate::write::block_file::{BlockFile, Content, with_room};
use crate::write::compress::Blocks;
use crate::write::header::Description;
use crate::write::own_threads::OwnThreads;
use crate::write::reader::Message;

/// What all threads tell of a CPU while they run.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    pub(crate) events: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) lost: AtomicU64,
    /// The disk failed.
    pub(crate) failed: AtomicBool,
}

/// What a writer thread works with.
pub(crate) struct Writer {
    pub(crate) file: BlockFile,
    pub(crate) description: Arc<Description>,
    pub(crate) compress: Option<Blocks>,
    /// How often what was written is to be on the disk.
    pub(crate) sync: Option<Duration>,
    pub(crate) full: Receiver<Message>,
    pub(crate) free: Sender<Vec<u8>>,
    pub(crate) progress: Arc<Progress>,
    /// Why recording ends: `END_*`, known by the time the reader does.
    pub(crate) reason: Arc<AtomicU64>,
    /// Foreign changes, for every CPU's file.
    pub(crate) changes: ForeignChanges,
    /// The recorder's threads, where their events are to be counted.
    pub(crate) own: Option<OwnThreads>,
    /// Ends it at once, without an end block.
    pub(crate) abandon: Arc<AtomicBool>,
}

/// What a CPU's file came to.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) events: u64,
    pub(crate) bytes: u64,
    pub(crate) lost: u64,
    /// Events that the kernel handed out.
    pub(crate) read: u64,
    /// Those of them that came to somebody else.
    pub(crate) read_by_others: u64,
    pub(crate) cleared: bool,
    /// Events that the recorder's own threads caused, where that was counted.
    pub(crate) own: Option<u64>,
    /// Why events were left in the kernel's buffer, or the counters could not be read: loss is then counted, or not known.
    pub(crate) unreadable: Option<io::Error>,
    /// True if the number of lost events is known.
    pub(crate) counted: bool,
    /// The file has no end block, because a second signal came first.
    pub(crate) unfinished: bool,
    pub(crate) error: Option<io::Error>,
}

impl Outcome {
    /// The outcome of a thread that was left behind.
    pub(crate) fn unfinished(progress: &Progress) -> Outcome {
        let [events, bytes, lost] =
            [&progress.events, &progress.bytes, &progress.lost].map(|n| n.load(Ordering::Relaxed));
        Outcome {
            events,
            bytes,
            lost,
            read: 0,
            read_by_others: 0,
            cleared: false,
            own: None,
            unreadable: None,
            counted: true,
            unfinished: true,
            error: None,
        }
    }
}

/// Times of [`Account::drained`] that are kept: a foreign change is told of within a second.
const DRAINED: usize = 8;
/// Interval between two looks for the last foreign changes.
const LAST_HANDS: Duration = Duration::from_millis(2);

/// What a writer has seen and written so far.
#[derive(Debug, Default)]
struct Account {
    /// What is in the file.
    content: Content,
    /// Events that could not be written.
    unwritten: u64,
    /// Lost events that marks in the data tell of.
    marked: u64,
    /// A mark lacks its count.
    is_vague: bool,
    /// The last counters; the first are those from before the recording.
    seen: Option<Stats>,
    /// When they were read.
    sampled: Option<(u64, u64)>,
    /// Times up to which all events had been taken, by the last samples: ascending, without repetitions.
    drained: VecDeque<u64>,
    /// The kernel counts the events that it changes out.
    counts_reads: bool,
    /// What the counters had come to when the buffer was last reset.
    base: Counters,
    /// Counters of the last block that has some, and the events that others had read by then.
    told: (Counters, u64),
    /// Blocks with an interval.
    timed: u32,
    /// Foreign changes that are in the file.
    changes: usize,
    /// Begins of those that may have emptied the buffer.
    emptied: BTreeSet<u64>,
    cleared: bool,
    /// Events of the recorder's own threads.
    own: u64,
    /// Why the buffer could not be read.
    unreadable: Option<io::Error>,
    /// Why the last counters could not be read.
    uncounted: Option<io::Error>,
    error: Option<io::Error>,
}

impl Account {
    /// Events that came out of the kernel's buffer.
    fn handed_out(&self) -> u64 {
        self.content.events + self.unwritten
    }

    /// From the sample before to this one; where unread events are gone, from the time up to which they had been taken by then.
    fn since_last(&self, read: Option<(u64, u64)>, unread_are_gone: bool) -> Interval {
        let from = self.sampled.map_or(0, |(from, _)| from);
        let from = if unread_are_gone { from.min(self.drained.back().copied().unwrap_or(0)) } else { from };
        read.map_or_else(Interval::default, |(_, to)| Interval::new(from, to))
    }

    fn remember_drained(&mut self, drained: Option<u64>) {
        if let Some(time) = drained.filter(|time| self.drained.back() != Some(time)) {
            self.drained.push_back(time);
            if self.drained.len() > DRAINED {
                self.drained.pop_front();
            }
        }
    }

    /// The last time before `time` up to which all events had been taken; the start of the trace where that is not known.
    fn drained_before(&self, time: u64) -> u64 {
        self.drained.iter().rev().copied().find(|&drained| drained <= time).unwrap_or(0)
    }
}

impl Writer {
    /// Puts the file's first block, unless the records that it must tell of are not known yet.
    pub(crate) fn begin(&mut self) -> io::Result<()> {
        let known = match &*self.description.facts.framing {
            Framing::SubBuffers(_) => true,
            Framing::Relay(framing) => framing.layout.get().is_some(),
        };
        if known { self.put_header() } else { Ok(()) }
    }

    fn put_header(&mut self) -> io::Result<()> {
        if self.file.blocks() > 0 {
            return Ok(());
        }
        self.file.put(kind::FILE_HEADER, &self.description.payload(false))
    }

    /// Writes until the reader has gone, then the end block.
    pub(crate) fn run(mut self) -> Outcome {
        let mut account = Account::default();
        let mut synced = Instant::now();
        while let Ok(message) = self.full.recv() {
            if self.abandon.load(Ordering::Acquire) {
                break;
            }
            match message {
                Message::Data(mut buffer, used) => {
                    self.data(&mut buffer[..HEADER_BYTES + used], &mut account);
                    // The reader may have gone.
                    let _ = self.free.send(buffer);
                }
                Message::Counters(Ok(sample)) => self.counters(sample, &mut account),
                Message::Counters(Err(error)) => account.uncounted = Some(error),
                Message::Unreadable(error) => account.unreadable = Some(error),
            }
            self.put_changes(&mut account);
            if self.sync.is_some_and(|every| synced.elapsed() >= every) && account.error.is_none() {
                synced = Instant::now();
                if let Err(error) = self.file.sync() {
                    self.fail(error, &mut account);
                }
            }
        }
        // Foreign changes are looked for until all buffers are drained.
        while !self.changes.is_closed() && !self.abandon.load(Ordering::Acquire) {
            thread::sleep(LAST_HANDS);
        }
        // The reader may have gone before its end, too.
        if self.abandon.load(Ordering::Acquire) {
            return Outcome::unfinished(&self.progress);
        }
        self.finish(account)
    }

    fn data(&mut self, block: &mut [u8], account: &mut Account) {
        let (content, lost, is_vague) = self.count(&block[HEADER_BYTES..]);
        if let (Some(own), Framing::SubBuffers(shape)) = (&self.own, &*self.description.facts.framing) {
            account.own += own.count(shape, &block[HEADER_BYTES..]);
        }
        let mut written = false;
        if account.error.is_none() {
            match self.put_header().and_then(|()| self.put_data(block, content, account)) {
                Ok(()) => written = true,
                Err(error) => self.fail(error, account),
            }
        }
        account.marked = account.marked.saturating_add(lost);
        account.is_vague |= is_vague;
        if written {
            account.content.append(content);
            self.progress.events.store(account.content.events, Ordering::Relaxed);
            self.progress.bytes.store(self.file.bytes(), Ordering::Relaxed);
        } else {
            account.unwritten += content.events;
        }
    }

    fn counters(&mut self, sample: Sample, account: &mut Account) {
        let stats = sample.stats;
        let seen = account.seen.unwrap_or_default();
        let relay = matches!(*self.description.facts.framing, Framing::Relay(_));
        // Old kernels do not count what they change out.
        account.counts_reads |= stats.counts_reads;
        // All that was read has come before these counters. Where the kernel counts less of it, it began anew, even if it
        // has come farther since than it was when it was last asked.
        let handed_out = account.handed_out();
        let is_behind = account.counts_reads && account.base.read.get().saturating_add(stats.read) < handed_out;
        if stats.is_before(&seen) || is_behind {
            account.base = seen.after(&account.base);
            if account.counts_reads {
                account.base.read = account.base.read.get().max(handed_out.saturating_sub(stats.read)).into();
            }
            account.cleared = true;
            self.gap(GAP_CLEARED, LOST_UNKNOWN, account.since_last(sample.read, true), "", account);
        } else if relay && account.seen.is_some() && stats.overrun > seen.overrun {
            self.gap(GAP_FULL, stats.overrun - seen.overrun, Interval::default(), "", account);
        }
        let mut now = stats.after(&account.base);
        now.recorder_lost = account.unwritten.into();
        let others = if account.counts_reads { now.read.get().saturating_sub(handed_out) } else { 0 };
        self.progress.lost.store(now.lost().saturating_add(others), Ordering::Relaxed);
        // A relay channel has counted since it was made.
        let is_ours = account.seen.is_some() || !relay;
        let is_news = is_ours && (now.kernel_lost(), others) != (account.told.0.kernel_lost(), account.told.1);
        let grew = account.since_last(sample.read, others > account.told.1);
        (account.seen, account.sampled, account.uncounted) = (Some(stats), sample.read, None);
        account.remember_drained(sample.drained);
        if is_news {
            account.told = (now, others);
            self.put_timed(kind::COUNTERS, CounterSample { counters: now, grew }.as_bytes(), grew, account);
        }
    }

    /// Puts the foreign changes that were seen since the last time.
    fn put_changes(&mut self, account: &mut Account) {
        for change in self.changes.since(account.changes) {
            account.changes += 1;
            let (from, is_known) = (change.interval.from.get(), change.interval.ends().is_some());
            if change.clears && is_known && account.emptied.insert(from) {
                let unread = Interval::new(account.drained_before(from), from.max(1));
                self.gap(GAP_CLEARED, LOST_UNKNOWN, unread, "", account);
            }
            self.gap(GAP_FOREIGN, LOST_UNKNOWN, change.interval, &change.text, account);
        }
    }

    fn finish(mut self, mut account: Account) -> Outcome {
        self.put_changes(&mut account);
        // What could not be written gets its place again if there is room now.
        let failed = account.error.take();
        let unwritten = account.unwritten;
        if unwritten > 0 {
            self.gap(GAP_NOT_WRITTEN, unwritten, Interval::default(), "", &mut account);
        }
        let to_the_end =
            account.sampled.map_or_else(Interval::default, |(from, _)| Interval::new(from, Interval::TO_THE_END));
        let uncounted = account.uncounted.take();
        if let Some(error) = &uncounted {
            self.gap(GAP_UNCOUNTED, LOST_UNKNOWN, to_the_end, &error.to_string(), &mut account);
        }
        let mut counters = account.seen.unwrap_or_default().after(&account.base);
        counters.recorder_lost = unwritten.into();
        // The buffer goes with the recording, and so does what is left in it.
        counters.dropped = counters.dropped.get().saturating_add(counters.unread.get()).into();
        let Content { events, first, last } = account.content;
        let end = End {
            counters,
            events: events.into(),
            blocks: self.file.blocks().into(),
            first: first.into(),
            last: last.into(),
            reason: (self.reason.load(Ordering::Acquire) as u32).into(),
            timed: account.timed.into(),
            grew: to_the_end,
            marks: if account.is_vague { MARKS_VAGUE } else { MARKS_COUNTED }.into(),
            ..End::default()
        };
        self.put(kind::END, end.as_bytes(), &mut account);
        if self.sync.is_some() && account.error.is_none() {
            account.error = self.file.sync().err();
        }
        let read = counters.read.get();
        let read_by_others = read.saturating_sub(account.handed_out());
        Outcome {
            events,
            bytes: self.file.bytes(),
            lost: counters.lost() + read_by_others,
            read,
            read_by_others,
            cleared: account.cleared,
            own: self.own.as_ref().map(|_| account.own),
            counted: uncounted.is_none(),
            unreadable: uncounted.or(account.unreadable.filter(|_| counters.unread.get() > 0)),
            unfinished: false,
            error: failed.or(account.error),
        }
    }

    fn put_data(&mut self, block: &mut [u8], content: Content, account: &Account) -> io::Result<()> {
        let raw = block.len() - HEADER_BYTES;
        let (events_before, marked) = (account.content.events, account.marked);
        let (waiting, capacity) = (self.full.len(), self.full.capacity().unwrap_or(1));
        let frame = self.compress.as_mut().and_then(|blocks| blocks.frame(block, HEADER_BYTES, waiting, capacity));
        match frame {
            Some(frame) => self.file.put_sealed(kind::DATA, frame, Some(raw), content, events_before, marked),
            None => self.file.put_sealed(kind::DATA, block, None, content, events_before, marked),
        }
    }

    fn put(&mut self, kind: u8, payload: &[u8], account: &mut Account) {
        if account.error.is_some() {
            return;
        }
        let (mut block, none) = (with_room(payload), Content::default());
        let (events_before, marked) = (account.content.events, account.marked);
        let put = self.put_header();
        let put = put.and_then(|()| self.file.put_sealed(kind, &mut block, None, none, events_before, marked));
        if let Err(error) = put {
            self.fail(error, account);
        }
    }

    fn gap(&mut self, reason: u32, lost: u64, interval: Interval, text: &str, account: &mut Account) {
        let gap = GapRecord { lost: lost.into(), reason: reason.into(), interval, ..GapRecord::default() };
        self.put_timed(kind::GAP, &[gap.as_bytes(), text.as_bytes()].concat(), interval, account);
    }

    /// Puts a block, which counts as one with an interval where it is written and has one.
    fn put_timed(&mut self, kind: u8, payload: &[u8], interval: Interval, account: &mut Account) {
        self.put(kind, payload, account);
        account.timed += u32::from(account.error.is_none() && interval.ends().is_some());
    }

    /// Nothing more is written until the end.
    fn fail(&self, error: io::Error, account: &mut Account) {
        account.error = Some(error);
        self.progress.failed.store(true, Ordering::Release);
    }

    /// Events in a payload, the sum of its marks, and whether one of these lacks its count.
    fn count(&self, mut payload: &[u8]) -> (Content, u64, bool) {
        fetch(payload);
        let mut content = Content::default();
        let (mut lost, mut is_vague) = (0u64, false);
        match &*self.description.facts.framing {
            Framing::Relay(framing) => {
                if let Some(&layout) = framing.layout.get() {
                    let tally = relay::tally(layout, Endian::NATIVE, payload);
                    content = Content { events: tally.events, first: tally.first, last: tally.last };
                }
            }
            Framing::SubBuffers(shape) => {
                while !payload.is_empty() {
                    let Ok((tally, stored)) = subbuffer::tally(shape, payload) else { break };
                    content.append(Content { events: tally.events, first: tally.first, last: tally.last });
                    match tally.missed {
                        Some(Missed::Counted(n)) => lost = lost.saturating_add(n),
                        Some(Missed::Uncounted) => is_vague = true,
                        None => {}
                    }
                    payload = &payload[stored..];
                }
            }
        }
        (content, lost, is_vague)
    }
}

/// Brings a payload into the processor's cache: by the time of the writer's turn it is often no longer there, and who goes from
/// record to record waits for each of them.
fn fetch(payload: &[u8]) {
    const CACHE_LINE: usize = 64;
    black_box(payload.iter().step_by(CACHE_LINE).fold(0, |sum, byte| sum ^ byte));
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::Mutex;

    use kmemtrace_abi::block::{END_ASKED, END_ERROR, Header};
    use kmemtrace_abi::event::{Gap, GapCause, Item};
    use kmemtrace_abi::fault::Verdict;
    use kmemtrace_abi::generate::{
        Options, Random, RelayOptions, Shape, Workload, pages::Encoder, pages::Page, pages::SubBufferWriter, workload,
    };
    use kmemtrace_abi::trace::{FileFacts, Trace};
    use zerocopy::FromBytes;

    use super::*;
    use crate::control::foreign::ForeignChange;
    use crate::source::{RelayFraming, SourceFacts};
    use crate::write::block_file::Store;
    use crate::write::compress::Compress;

    /// A disk that takes a few bytes at a time, is interrupted, and has room for so many bytes, and then for some more.
    struct Disk {
        bytes: Arc<Mutex<Vec<u8>>>,
        random: Random,
        room: usize,
        /// Room that there is again after the disk was full.
        later: usize,
    }

    impl Write for Disk {
        fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
            let mut bytes = self.bytes.lock().unwrap();
            if self.random.chance(10) {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let n = buffer.len().min(self.room - bytes.len()).min(1 + self.random.below(3000) as usize);
            if n == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            bytes.extend_from_slice(&buffer[..n]);
            Ok(n)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Store for Disk {
        fn cut(&mut self, len: u64) -> io::Result<()> {
            self.bytes.lock().unwrap().truncate(len as usize);
            self.room += std::mem::take(&mut self.later);
            Ok(())
        }

        fn sync(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn description(workload: &Workload) -> Description {
        let event = |layout: &kmemtrace_abi::generate::layout::Layout| {
            (format!("{}/{}", layout.system, layout.name), layout.text())
        };
        let facts = SourceFacts {
            cpus: vec![0],
            framing: Arc::new(Framing::SubBuffers(workload.shape.page())),
            word_bytes: workload.shape.target.word_bytes,
            clock: Some("mono".into()),
            header_page: kmemtrace_abi::generate::layout::header_page(&workload.shape),
            header_event: String::new(),
            formats: kmemtrace_abi::generate::layout::layouts(&workload.shape).iter().map(event).collect(),
            events: Vec::new(),
            buffer_bytes: None,
            since_boot: false,
            shown: String::new(),
        };
        Description { recording: [7; 16], facts: Arc::new(facts), started: [0; 16] }
    }

    /// Counters of a kernel that counts what it changes out, read at second `read.0` of the trace's clock.
    fn counted(stats: Stats) -> Message {
        let second = 1_000_000_000;
        let read = Some((stats.read * second, stats.read * second + second));
        Message::Counters(Ok(Sample { stats: Stats { counts_reads: true, ..stats }, read, ..Sample::default() }))
    }

    /// ForeignChanges of which there are no more.
    fn closed(changes: ForeignChanges) -> ForeignChanges {
        changes.close();
        changes
    }

    fn one_cpu() -> Workload {
        workload(1, &Options::plain(Shape::plain(), 1, 3000))
    }

    /// What a writer makes of a CPU's events on such a disk, a block for every few sub-buffers.
    fn written(room: usize, later: usize, seed: u64) -> (Vec<u8>, Outcome, u64) {
        let workload = one_cpu();
        let mut random = Random::new(seed);
        let pages = Encoder::new(&workload.shape, &workload.names).pages(&workload.cpus[0], &mut Random::new(1));
        let events = pages.iter().map(|p| u64::from(p.events)).sum();
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let disk = Disk { bytes: Arc::clone(&bytes), random: Random::new(seed), room, later };
        let (full_in, full) = crossbeam_channel::unbounded();
        let (free, _recycled) = crossbeam_channel::unbounded();
        let mut read = 0;
        let mut pages = pages.iter().peekable();
        while pages.peek().is_some() {
            let mut buffer = vec![0; HEADER_BYTES];
            for page in pages.by_ref().take(1 + random.below(4) as usize) {
                buffer.extend_from_slice(&page.bytes[..page.trimmed]);
                read += u64::from(page.events);
            }
            let used = buffer.len() - HEADER_BYTES;
            full_in.send(Message::Data(buffer, used)).unwrap();
            full_in.send(counted(Stats { read, ..Stats::default() })).unwrap();
        }
        drop(full_in);
        let reason = if room == usize::MAX { END_ASKED } else { END_ERROR };
        let writer = Writer {
            file: BlockFile::new(disk, 0, [7; 16]),
            description: Arc::new(description(&workload)),
            compress: (seed % 3 == 2).then(|| Blocks::new(Compress::Zstd(1))).flatten(),
            sync: None,
            full,
            free,
            progress: Arc::default(),
            reason: Arc::new(u64::from(reason).into()),
            changes: closed(ForeignChanges::default()),
            own: None,
            abandon: Arc::default(),
        };
        let outcome = writer.run();
        let bytes = bytes.lock().unwrap().clone();
        (bytes, outcome, events)
    }

    /// Events that are read back, what is lost, and the verdict.
    fn read_back(bytes: &[u8]) -> (u64, Option<u64>, Verdict) {
        let (facts, _) = items_of(bytes);
        (facts.events, facts.lost, facts.verdict)
    }

    fn items_of(bytes: &[u8]) -> (FileFacts, Vec<Item>) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("cpu0.out");
        std::fs::write(&path, bytes).unwrap();
        let mut trace = Trace::open(&[path]).unwrap();
        let (mut items, mut more) = (Vec::new(), Vec::new());
        while trace.streams[0].fill(&mut trace.names, &mut more) {
            items.append(&mut more);
        }
        (trace.streams[0].facts().clone(), items)
    }

    #[test]
    fn short_and_interrupted_writes_lose_and_repeat_nothing() {
        for seed in 0..20 {
            let (bytes, outcome, events) = written(usize::MAX, 0, seed);
            assert!(outcome.error.is_none());
            assert_eq!((outcome.events, outcome.read, outcome.bytes), (events, events, bytes.len() as u64));
            assert_eq!(read_back(&bytes), (events, Some(0), Verdict::Complete), "seed {seed}");
        }
    }

    #[test]
    fn a_disk_that_is_full_at_any_byte_leaves_whole_blocks_and_no_event_uncounted() {
        let (whole, _, events) = written(usize::MAX, 0, 1);
        for room in (0..whole.len()).step_by(whole.len() / 150) {
            let (bytes, outcome, _) = written(room, 0, 1);
            assert_eq!(outcome.error.map(|e| e.kind()), Some(io::ErrorKind::StorageFull), "room for {room}");
            assert_eq!(outcome.events + outcome.lost, events, "room for {room}");
            let (found, lost, verdict) = read_back(&bytes);
            assert_eq!(found, outcome.events, "room for {room}");
            match verdict {
                // There is room for the small end block where there was none for the data.
                Verdict::Lossy => assert_eq!(lost, Some(outcome.lost), "room for {room}"),
                other => assert_eq!(other, Verdict::Truncated, "room for {room}"),
            }
        }
    }

    #[test]
    fn room_that_comes_back_is_used_for_the_end() {
        let (whole, _, events) = written(usize::MAX, 0, 1);
        let (bytes, outcome, _) = written(whole.len() / 2, 4096, 1);
        assert_eq!(outcome.error.map(|e| e.kind()), Some(io::ErrorKind::StorageFull));
        let (found, lost, verdict) = read_back(&bytes);
        assert_eq!((found, lost, verdict), (outcome.events, Some(events - outcome.events), Verdict::Lossy));
    }

    /// A file of these messages.
    fn written_of(description: Description, messages: Vec<Message>) -> (Vec<u8>, Outcome) {
        written_with(description, messages, ForeignChanges::default())
    }

    fn written_with(description: Description, messages: Vec<Message>, changes: ForeignChanges) -> (Vec<u8>, Outcome) {
        let (full_in, full) = crossbeam_channel::unbounded();
        let (free, _recycled) = crossbeam_channel::unbounded();
        messages.into_iter().for_each(|message| full_in.send(message).unwrap());
        drop(full_in);
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let disk = Disk { bytes: Arc::clone(&bytes), random: Random::new(1), room: usize::MAX, later: 0 };
        let file = BlockFile::new(disk, 0, [7; 16]);
        let (description, reason) = (Arc::new(description), Arc::new(u64::from(END_ASKED).into()));
        let (compress, sync, progress, abandon, own) = (None, None, Arc::default(), Arc::default(), None);
        let writer = Writer {
            file,
            description,
            compress,
            sync,
            full,
            free,
            progress,
            reason,
            changes: closed(changes),
            own,
            abandon,
        };
        let outcome = writer.run();
        let bytes = bytes.lock().unwrap().clone();
        (bytes, outcome)
    }

    #[test]
    fn a_file_that_was_abandoned_has_no_end_and_no_data_later_than_that() {
        let workload = one_cpu();
        let pages = Encoder::new(&workload.shape, &workload.names).pages(&workload.cpus[0], &mut Random::new(1));
        let (full_in, full) = crossbeam_channel::unbounded();
        let (free, recycled) = crossbeam_channel::unbounded();
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let disk = Disk { bytes: Arc::clone(&bytes), random: Random::new(1), room: usize::MAX, later: 0 };
        let (file, description) = (BlockFile::new(disk, 0, [7; 16]), Arc::new(description(&workload)));
        let (compress, sync, progress, reason) = (None, None, Arc::default(), Arc::default());
        let abandon = Arc::new(AtomicBool::new(false));
        let given_up = Arc::clone(&abandon);
        let (changes, own) = (closed(ForeignChanges::default()), None);
        let writer =
            Writer { file, description, compress, sync, full, free, progress, reason, changes, own, abandon: given_up };
        let writer = std::thread::spawn(move || writer.run());
        let put = |page: &Page| {
            let block = [&[0; HEADER_BYTES], &page.bytes[..page.trimmed]].concat();
            full_in.send(Message::Data(block, page.trimmed)).unwrap();
        };
        put(&pages[0]);
        recycled.recv().unwrap();
        abandon.store(true, Ordering::Release);
        put(&pages[1]);
        drop(full_in);
        let outcome = writer.join().unwrap();
        let events = u64::from(pages[0].events);
        assert_eq!((outcome.unfinished, outcome.events), (true, events));
        let (found, _, verdict) = read_back(&bytes.lock().unwrap());
        assert_eq!((found, verdict), (events, Verdict::Truncated));
    }

    #[test]
    fn a_counter_that_goes_back_is_a_gap() {
        let messages = [10, 20, 5].map(|read| counted(Stats { read, ..Stats::default() }));
        let (bytes, outcome) = written_of(description(&one_cpu()), messages.into());
        assert!(outcome.cleared);
        assert_eq!(outcome.read, 25);
        let (_, lost, verdict) = read_back(&bytes);
        assert_eq!((lost, verdict), (None, Verdict::Lossy));
    }

    #[test]
    fn counters_that_began_anew_are_a_gap_even_if_they_have_come_farther_since() {
        let workload = one_cpu();
        let pages = Encoder::new(&workload.shape, &workload.names).pages(&workload.cpus[0], &mut Random::new(1));
        let data =
            |page: &Page| Message::Data([&[0; HEADER_BYTES], &page.bytes[..page.trimmed]].concat(), page.trimmed);
        let stats = |read| counted(Stats { read, ..Stats::default() });
        let counts: Vec<u64> = pages.iter().take(4).map(|page| page.events.into()).collect();
        let all: u64 = counts.iter().sum();
        for (clears, counter) in [(false, all), (true, all - counts[0] - counts[1])] {
            let mut messages = vec![stats(0), data(&pages[0]), stats(counts[0])];
            // Cleared after the second one, and nobody asked before the fourth.
            messages.extend(pages[1..4].iter().map(data));
            messages.extend([stats(counter), stats(counter)]);
            assert!(counter >= counts[0]);
            let (bytes, outcome) = written_of(description(&workload), messages);
            assert_eq!((outcome.cleared, outcome.read_by_others, outcome.read), (clears, 0, all));
            let (events, lost, verdict) = read_back(&bytes);
            assert_eq!(events, all);
            let wanted = if clears { (None, Verdict::Lossy) } else { (Some(0), Verdict::Complete) };
            assert_eq!((lost, verdict), wanted);
        }
    }

    #[test]
    fn a_full_channel_is_a_gap_where_its_counter_has_grown() {
        let mut options = Options::plain(Shape::plain(), 1, 100);
        options.loss = false;
        let mut workload = workload(1, &options);
        let relay = RelayOptions {
            layout: relay::Layout::R4,
            endian: Endian::NATIVE,
            first_sequence: 1,
            features: false,
            holes: false,
        };
        let records = kmemtrace_abi::generate::relay(&mut workload, &relay, 1).cpus[0].bytes();
        let framing = RelayFraming::default();
        framing.layout.set(relay::Layout::R4).unwrap();
        let mut description = description(&workload);
        let facts = Arc::get_mut(&mut description.facts).unwrap();
        facts.framing = Arc::new(Framing::Relay(framing));
        let half = relay::tally(relay::Layout::R4, Endian::NATIVE, &records[..records.len() / 2]).consumed;
        let data = |bytes: &[u8]| Message::Data([&[0; HEADER_BYTES], bytes].concat(), bytes.len());
        let full = |overrun| {
            Message::Counters(Ok(Sample { stats: Stats { overrun, ..Stats::default() }, ..Sample::default() }))
        };
        let messages = vec![full(5), data(&records[..half]), full(5), full(12), data(&records[half..]), full(12)];
        let (bytes, _) = written_of(description, messages);
        let (_, items) = items_of(&bytes);
        let gaps: Vec<&Gap> =
            items.iter().filter_map(|i| if let Item::Gap(gap) = i { Some(gap) } else { None }).collect();
        let [gap] = gaps[..] else { panic!("{gaps:?}") };
        let before = items.iter().take_while(|item| matches!(item, Item::Event(_))).count() as u64;
        assert_eq!(
            (gap.lost, gap.cause, gap.from, gap.to),
            (Some(7), GapCause::Overrun, Some(before), Some(before + 1))
        );
    }

    /// Payloads of the blocks of a kind, in the order of the file.
    fn payloads(bytes: &[u8], wanted: u8) -> Vec<&[u8]> {
        let mut found = Vec::new();
        let mut rest = bytes;
        while let Ok((header, payload)) = Header::read_from_prefix(rest) {
            let (payload, after) = payload.split_at(header.payload_len.get() as usize);
            found.extend((header.kind == wanted).then_some(payload));
            rest = after;
        }
        found
    }

    #[test]
    fn counters_that_grow_say_between_which_samples() {
        let second = 1_000_000_000;
        let at = |n: u64, stats: Stats| {
            let read = Some((n * second, n * second + 7));
            let stats = Stats { counts_reads: true, ..stats };
            Message::Counters(Ok(Sample { stats, read, drained: Some(n * second) }))
        };
        let quiet = Stats::default();
        let refused = Stats { commit_overrun: 3, dropped: 2, ..quiet };
        let others = Stats { read: 40, ..refused };
        let messages = vec![at(1, quiet), at(2, quiet), at(3, refused), at(4, refused), at(5, others), at(6, others)];
        let (bytes, outcome) = written_of(description(&one_cpu()), messages);
        let samples: Vec<CounterSample> =
            payloads(&bytes, kind::COUNTERS).into_iter().filter_map(CounterSample::parse).collect();
        let grew: Vec<_> = samples.iter().map(|sample| sample.grew).collect();
        assert_eq!(grew, [Interval::new(2 * second, 3 * second + 7), Interval::new(4 * second, 5 * second + 7)]);
        assert_eq!(samples.iter().map(|s| s.counters.kernel_lost()).collect::<Vec<_>>(), [5, 5]);
        assert_eq!((outcome.lost, outcome.read_by_others), (45, 40));
        let end = payloads(&bytes, kind::END).into_iter().find_map(End::parse).unwrap();
        assert_eq!((end.timed.get(), end.grew), (2, Interval::new(6 * second, Interval::TO_THE_END)));
    }

    #[test]
    fn the_end_tells_whether_a_mark_lacks_its_count() {
        let shape = Shape::plain();
        let page = |missed: Option<Missed>| {
            let (bytes, trimmed) = SubBufferWriter::new(&shape, 1000).finish(missed);
            Message::Data([&[0; HEADER_BYTES], &bytes[..trimmed]].concat(), trimmed)
        };
        let counted = Some(Missed::Counted(3));
        for (marks, wanted) in
            [(vec![None, counted], MARKS_COUNTED), (vec![counted, Some(Missed::Uncounted), counted], MARKS_VAGUE)]
        {
            let (bytes, _) = written_of(description(&one_cpu()), marks.into_iter().map(page).collect());
            let end = payloads(&bytes, kind::END).into_iter().find_map(End::parse).unwrap();
            assert_eq!(end.marks.get(), wanted);
        }
    }

    #[test]
    fn events_that_stay_in_the_buffer_are_lost() {
        let messages = vec![
            counted(Stats::default()),
            Message::Unreadable(io::Error::other("no such page")),
            counted(Stats { entries: 9, ..Stats::default() }),
        ];
        let (bytes, outcome) = written_of(description(&one_cpu()), messages);
        assert_eq!((outcome.lost, outcome.counted), (9, true));
        assert_eq!(outcome.unreadable.map(|error| error.to_string()), Some("no such page".to_owned()));
        assert_eq!(read_back(&bytes), (0, Some(9), Verdict::Lossy));
    }

    #[test]
    fn counters_that_cannot_be_read_at_the_end_leave_the_loss_unknown() {
        let failed = || Message::Counters(Err(io::Error::other("no counters")));
        let (bytes, outcome) = written_of(description(&one_cpu()), vec![counted(Stats::default()), failed()]);
        assert!(!outcome.counted && outcome.unreadable.is_some());
        assert_eq!(read_back(&bytes), (0, None, Verdict::Lossy));
        // Later ones have what the missing ones would have had.
        let (bytes, outcome) = written_of(description(&one_cpu()), vec![failed(), counted(Stats::default())]);
        assert!(outcome.counted && outcome.unreadable.is_none());
        assert_eq!(read_back(&bytes), (0, Some(0), Verdict::Complete));
    }

    #[test]
    fn a_foreign_hand_is_in_the_file_and_its_end_too() {
        let changes = ForeignChanges::default();
        let change = |from, to, clears| {
            let (interval, text) = (Interval::new(from, to), "tracing_on is 0".to_owned());
            changes.push(ForeignChange { interval, clears, text });
        };
        change(5, Interval::TO_THE_END, false);
        change(5, 9, false);
        let (bytes, _) = written_with(description(&one_cpu()), vec![counted(Stats::default())], changes);
        let gaps: Vec<_> = payloads(&bytes, kind::GAP).into_iter().filter_map(GapRecord::parse).collect();
        let ends: Vec<_> = gaps.iter().map(|(gap, text)| (gap.reason.get(), gap.interval.ends(), *text)).collect();
        let text = &b"tracing_on is 0"[..];
        assert_eq!(ends, [(GAP_FOREIGN, Some((Some(5), None)), text), (GAP_FOREIGN, Some((Some(5), Some(9))), text)]);
        assert_eq!(read_back(&bytes).1, None);
    }

    #[test]
    fn a_buffer_that_was_emptied_has_lost_what_was_not_read() {
        let second = 1_000_000_000;
        let at = |n: u64, drained: u64, read: u64| {
            let stats = Stats { counts_reads: true, read, ..Stats::default() };
            let times = (Some((n * second, n * second + 7)), Some(drained * second));
            Message::Counters(Ok(Sample { stats, read: times.0, drained: times.1 }))
        };
        // Drained at second 1, cleared between samples 3 and 4, and read by others between 5 and 6.
        let messages = vec![at(1, 1, 9), at(2, 1, 9), at(3, 1, 9), at(4, 4, 0), at(5, 4, 0), at(6, 6, 5)];
        let changes = ForeignChanges::default();
        let interval = Interval::new(3 * second + 5, 3 * second + 9);
        changes.push(ForeignChange { interval, clears: true, text: "trace written to".to_owned() });
        let (bytes, _) = written_with(description(&one_cpu()), messages, changes);
        let gaps: Vec<_> = payloads(&bytes, kind::GAP).into_iter().filter_map(GapRecord::parse).collect();
        let gaps: Vec<_> = gaps.iter().map(|(gap, _)| (gap.reason.get(), gap.interval)).collect();
        assert!(gaps.contains(&(GAP_CLEARED, Interval::new(second, 3 * second + 5))), "{gaps:?}");
        assert!(gaps.contains(&(GAP_FOREIGN, interval)), "{gaps:?}");
        assert!(gaps.contains(&(GAP_CLEARED, Interval::new(second, 4 * second + 7))), "{gaps:?}");
        let samples = payloads(&bytes, kind::COUNTERS).into_iter().filter_map(CounterSample::parse);
        let grew: Vec<_> = samples.map(|sample| sample.grew).collect();
        assert_eq!(grew.last(), Some(&Interval::new(4 * second, 6 * second + 7)), "{grew:?}");
    }
}
