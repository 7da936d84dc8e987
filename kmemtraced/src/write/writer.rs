//! The writer thread of a CPU: it counts the events of each block and writes the block to the CPU's file.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender};
use kmemtrace_abi::disk::block::{End, kind};
use zerocopy::IntoBytes;

use crate::control::foreign::ForeignChanges;
use crate::source::Framing;
use crate::write::block_buffer::{BlockBuffer, HEADER_ROOM};
use crate::write::block_file::{BlockFile, BlockPlace, Stored};
use crate::write::compress::{BlockCompressor, Compression};
use crate::write::header::Description;
use crate::write::load::Business;
use crate::write::loss::{FinalLoss, LossAccount, LossRecord};
use crate::write::outcome::{BlockCounts, Outcome, Progress};
use crate::write::overruns::Overruns;
use crate::write::own_threads::OwnThreads;
use crate::write::reader::Message;
use crate::write::records::RecordEncoder;
use crate::write::tally::{BlockTally, EventSpan};

/// Poll interval for the last changes by other programs.
const LAST_CHANGES_INTERVAL: Duration = Duration::from_millis(2);
/// Interval between two looks whether the disk has failed, where the files are not synced.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Connections and settings of a writer thread.
pub(crate) struct Writer {
    pub(crate) file: BlockFile,
    pub(crate) description: Arc<Description>,
    pub(crate) compression: Compression,
    pub(crate) compressor: Option<BlockCompressor>,
    /// Encoder of the records, where they are not stored as the kernel wrote them.
    pub(crate) records: Option<RecordEncoder>,
    pub(crate) business: Business,
    /// Longest time that a block waits before it is written uncompressed.
    pub(crate) patience: Duration,
    /// Interval between two syncs of the file.
    pub(crate) sync: Option<Duration>,
    pub(crate) full: Receiver<Message>,
    pub(crate) free: Sender<Vec<u8>>,
    pub(crate) progress: Arc<Progress>,
    /// `END_*` of the recording, set before the reader ends.
    pub(crate) reason: Arc<AtomicU64>,
    /// Changes by other programs, which go into the file of every CPU.
    pub(crate) changes: ForeignChanges,
    /// Counter of the recorder's own events, where they are to be counted.
    pub(crate) own: Option<OwnThreads>,
    /// Set by a second stop signal: the thread ends at once, without an end block.
    pub(crate) abandon: Arc<AtomicBool>,
}

/// A file that is being written, with the state of its thread.
struct Writing {
    writer: Writer,
    loss: LossAccount,
    /// Blocks with an interval.
    timed: u32,
    /// Changes by other programs that are in the file.
    changes: usize,
    /// Events of the recorder's own threads.
    own_events: u64,
    /// Reason why the reader could not read the buffer.
    unreadable: Option<io::Error>,
    /// Reason why the file cannot be written: nothing more is written before the end.
    failure: Option<io::Error>,
    synced: Instant,
    /// Reasons why the kernel's buffer overran, from the reader.
    overruns: Overruns,
    /// Longest time that writing a block took.
    slowest_write: Duration,
    /// Blocks of events by the way they are stored.
    blocks: BlockCounts,
}

impl Writer {
    /// Writes the header block, unless the layout of relay records is not known yet.
    pub(crate) fn begin(&mut self) -> io::Result<()> {
        let is_known = match &*self.description.facts.framing {
            Framing::SubBuffers(_) => true,
            Framing::Relay(framing) => framing.layout.get().is_some(),
        };
        if is_known { self.put_header() } else { Ok(()) }
    }

    fn put_header(&mut self) -> io::Result<()> {
        if self.file.blocks() > 0 {
            return Ok(());
        }
        self.file.put(kind::FILE_HEADER, &self.description.payload(false))
    }

    /// True if there is time to compress the block at hand, where that is not asked for come what may.
    fn compresses_now(&mut self) -> bool {
        match self.compression {
            Compression::None | Compression::Records => false,
            Compression::Zstd(_) => true,
            Compression::Auto if self.records.is_some() => {
                let waiting = self.progress.waiting.load(Ordering::Relaxed);
                !self.business.is_busy(waiting, Instant::now())
            }
            Compression::Auto => self.full.len() * 4 <= self.full.capacity().unwrap_or(1),
        }
    }

    /// Writes until the reader has ended, then the end block.
    pub(crate) fn run(self) -> Outcome {
        let is_relay = matches!(*self.description.facts.framing, Framing::Relay(_));
        let mut writing = Writing {
            writer: self,
            loss: LossAccount::new(is_relay),
            timed: 0,
            changes: 0,
            own_events: 0,
            unreadable: None,
            failure: None,
            synced: Instant::now(),
            overruns: Overruns::default(),
            slowest_write: Duration::ZERO,
            blocks: BlockCounts::default(),
        };
        writing.take_messages();
        writing.wait_for_changes();
        // A reader ends early, too, when all is abandoned.
        if writing.is_abandoned() {
            return Outcome::unfinished(&writing.writer.progress);
        }
        writing.finish()
    }
}

/// The block at hand as it is to be stored: in a buffer of the encoder or the compressor where that takes less room.
fn store<'a>(
    buffer: &'a mut BlockBuffer,
    coded_len: Option<usize>,
    records: Option<&'a mut RecordEncoder>,
    compressor: Option<&'a mut BlockCompressor>,
) -> Stored<'a> {
    let raw_len = buffer.payload().len();
    let (block, coded_len) = match (records, coded_len) {
        (Some(records), Some(len)) => (records.block(len), Some(len)),
        (records, _) => {
            if let Some(records) = records {
                records.clear_unused(buffer.payload_mut());
            }
            (buffer.block(), None)
        }
    };
    match compressor.and_then(|compressor| compressor.compress(block, HEADER_ROOM)) {
        Some(block) => Stored { block, raw_len, coded_len, is_compressed: true },
        None => Stored { block, raw_len, coded_len, is_compressed: false },
    }
}

impl Writing {
    fn is_abandoned(&self) -> bool {
        self.writer.abandon.load(Ordering::Acquire)
    }

    fn take_messages(&mut self) {
        let mut is_cut = false;
        // A reader that the kernel has killed still holds its end of the queue.
        while !is_cut && let Ok(message) = self.writer.full.recv() {
            if self.is_abandoned() {
                return;
            }
            match message {
                Message::Data(mut buffer) => {
                    let waiting = &self.writer.progress.waiting;
                    let _ = waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |blocks| blocks.checked_sub(1));
                    self.data(&mut buffer);
                    // Fails where the reader has ended.
                    let _ = self.writer.free.send(buffer.into_memory());
                }
                Message::Counters(Ok(sample)) => {
                    let records = self.loss.add_sample(sample);
                    self.writer.progress.lost.store(self.loss.lost(), Ordering::Relaxed);
                    self.put_all(records);
                }
                Message::Counters(Err(error)) => self.loss.add_failure(error),
                Message::Unreadable(error) => self.unreadable = Some(error),
                Message::Cut(why) => {
                    self.loss.add_cut(why);
                    is_cut = true;
                }
                Message::Watermark(watermark) => self.put(kind::WATERMARK, watermark.as_bytes()),
                Message::Overruns(overruns) => self.overruns = overruns,
            }
            self.put_changes();
            self.sync_if_due();
        }
    }

    /// Waits until all buffers are drained: until then more changes by other programs may be found.
    fn wait_for_changes(&self) {
        while !self.writer.changes.is_closed() && !self.is_abandoned() {
            thread::sleep(LAST_CHANGES_INTERVAL);
        }
    }

    /// Syncs the file, or looks whether the disk has failed, if it is time.
    fn sync_if_due(&mut self) {
        let is_due = self.synced.elapsed() >= self.writer.sync.unwrap_or(CHECK_INTERVAL);
        if is_due && self.failure.is_none() {
            self.synced = Instant::now();
            let file = &mut self.writer.file;
            if let Err(error) = if self.writer.sync.is_some() { file.sync() } else { file.check() } {
                self.fail(error);
            }
        }
    }

    fn data(&mut self, buffer: &mut BlockBuffer) {
        let framing = &*self.writer.description.facts.framing;
        let (tally, coded_len) = match &mut self.writer.records {
            Some(records) => records.encode(buffer.payload()),
            None => (BlockTally::of(framing, buffer.payload()), None),
        };
        if let (Some(own), Framing::SubBuffers(shape)) = (&self.writer.own, framing) {
            self.own_events += own.count(shape, buffer.payload());
        }
        let is_written = self.failure.is_none() && self.put_data(buffer, coded_len, tally.span);
        self.loss.add_block(&tally, is_written);
        if is_written {
            self.writer.progress.events.store(self.loss.written().events, Ordering::Relaxed);
            self.writer.progress.bytes.store(self.writer.file.bytes(), Ordering::Relaxed);
        }
    }

    /// Writes a block of events, stored as is asked for and time allows; false where that fails. `coded_len`: bytes of its encoded
    /// records.
    fn put_data(&mut self, buffer: &mut BlockBuffer, coded_len: Option<usize>, span: EventSpan) -> bool {
        let place = self.place(span);
        let put = self.writer.put_header().and_then(|()| {
            let is_compressed = self.writer.compresses_now();
            let is_late = is_compressed && buffer.waited() >= self.writer.patience;
            self.blocks.late += u64::from(is_late);
            let Writer { file, compressor, records, .. } = &mut self.writer;
            let compressor = compressor.as_mut().filter(|_| is_compressed && !is_late);
            let stored = store(buffer, coded_len, records.as_mut(), compressor);
            self.blocks.count(&stored);
            let begun = Instant::now();
            let put = file.put_block(kind::DATA, stored, place);
            self.slowest_write = self.slowest_write.max(begun.elapsed());
            put
        });
        put.map_err(|error| self.fail(error)).is_ok()
    }

    /// Place of the next block in the file.
    fn place(&self, span: EventSpan) -> BlockPlace {
        BlockPlace { span, events_before: self.loss.written().events, lost_before: self.loss.marked() }
    }

    /// Writes a block without events, unless the file has failed.
    fn put(&mut self, kind: u8, payload: &[u8]) {
        if self.failure.is_some() {
            return;
        }
        let (mut buffer, place) = (BlockBuffer::holding(payload), self.place(EventSpan::default()));
        let put = self.writer.put_header();
        let put = put.and_then(|()| self.writer.file.put_block(kind, Stored::plain(buffer.block()), place));
        if let Err(error) = put {
            self.fail(error);
        }
    }

    /// Writes records about loss, and counts those that have an interval.
    fn put_all(&mut self, records: Vec<LossRecord>) {
        for record in records {
            self.put(record.kind(), &record.payload());
            self.timed += u32::from(self.failure.is_none() && record.interval().ends().is_some());
        }
    }

    /// Writes the changes by other programs that were found since the last call.
    fn put_changes(&mut self) {
        for change in self.writer.changes.since(self.changes) {
            self.changes += 1;
            let records = self.loss.add_change(change);
            self.put_all(records);
        }
    }

    fn fail(&mut self, error: io::Error) {
        self.failure = Some(error);
        self.writer.progress.failed.store(true, Ordering::Release);
    }

    fn finish(mut self) -> Outcome {
        self.put_changes();
        // Blocks at the end are small: there may be room for them where there was none for data.
        let failed = self.failure.take();
        let FinalLoss { gaps, counters, grew, marks, read_by_others, is_cleared, uncounted } = self.loss.finish();
        let unreadable = self.unreadable.take().filter(|_| counters.unread.get() > 0);
        self.put_all(gaps);
        let EventSpan { events, first, last } = self.loss.written();
        let end = End {
            counters,
            events: events.into(),
            blocks: self.writer.file.blocks().into(),
            first: first.into(),
            last: last.into(),
            reason: (self.writer.reason.load(Ordering::Acquire) as u32).into(),
            timed: self.timed.into(),
            grew,
            marks: marks.into(),
            ..End::default()
        };
        self.put(kind::END, end.as_bytes());
        if self.failure.is_none() {
            let file = &mut self.writer.file;
            self.failure = if self.writer.sync.is_some() { file.sync() } else { file.close() }.err();
        }
        Outcome {
            events,
            bytes: self.writer.file.bytes(),
            lost: counters.lost() + read_by_others,
            read: counters.read.get(),
            read_by_others,
            cleared: is_cleared,
            own: self.writer.own.as_ref().map(|_| self.own_events),
            counted: uncounted.is_none(),
            unreadable: uncounted
                .or(unreadable.map(|error| format!("its buffer could not be read to the end: {error}"))),
            unfinished: false,
            overruns: self.overruns,
            slowest_write: self.slowest_write,
            blocks: self.blocks,
            error: failed.or(self.failure),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use kmemtrace_abi::fault::Verdict;
    use kmemtrace_tests::generate::{Random, pages::Encoder, pages::Page};

    use super::*;
    use crate::write::fixture::{Disk, closed, compressed_with, data, description, one_cpu, read_back, written};

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
                // The small end block found room where data found none.
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

    #[test]
    fn a_block_that_waited_is_written_as_it_is() {
        let workload = one_cpu();
        let pages = Encoder::new(&workload.shape, &workload.names).pages(&workload.cpus[0], &mut Random::new(1));
        let [in_time, late] = [Duration::MAX, Duration::ZERO].map(|patience| {
            let messages = pages.iter().map(|page| data(&page.bytes[..page.trimmed]));
            compressed_with(description(&workload), messages.collect(), patience)
        });
        assert_eq!((in_time.1.blocks.late, late.1.blocks.late), (0, pages.len() as u64));
        assert!(late.0.len() > in_time.0.len());
        assert_eq!(read_back(&late.0).0, read_back(&in_time.0).0);
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
        let (compressor, records, sync, progress, reason) = (None, None, None, Arc::default(), Arc::default());
        let (compression, business, patience) = (Compression::None, Business::default(), Duration::MAX);
        let abandon = Arc::new(AtomicBool::new(false));
        let given_up = Arc::clone(&abandon);
        let (changes, own) = (closed(ForeignChanges::default()), None);
        let writer = Writer {
            file,
            description,
            compression,
            compressor,
            records,
            business,
            patience,
            sync,
            full,
            free,
            progress,
            reason,
            changes,
            own,
            abandon: given_up,
        };
        let writer = std::thread::spawn(move || writer.run());
        let put = |page: &Page| {
            full_in.send(data(&page.bytes[..page.trimmed])).unwrap();
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
}
