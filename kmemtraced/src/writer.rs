//! One thread per CPU that counts, seals blocks and meets the disk.

use std::fs::File;
use std::io::{self, Seek, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crossbeam_channel::{Receiver, Sender};
use kmemtrace_abi::block::{
    self, BlockInfo, Counters, End, GAP_CLEARED, GAP_NOT_WRITTEN, GapRecord, HEADER_BYTES, LOST_UNKNOWN, RecordingId,
    kind,
};
use kmemtrace_abi::relay;
use kmemtrace_abi::subbuffer::{self, Missed};
use kmemtrace_abi::target::Endian;
use zerocopy::IntoBytes;

use crate::output::Description;
use crate::reader::Message;
use crate::source::{Framing, Stats};

/// What all threads tell of a CPU while they run.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    pub(crate) events: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) lost: AtomicU64,
    /// The disk failed.
    pub(crate) failed: AtomicBool,
}

/// Where the bytes of a trace file go.
pub(crate) trait Store: Write + Send {
    /// Leaves the first `len` bytes, and goes on behind them.
    fn cut(&mut self, len: u64) -> io::Result<()>;
}

impl Store for File {
    fn cut(&mut self, len: u64) -> io::Result<()> {
        self.set_len(len)?;
        self.seek(io::SeekFrom::Start(len)).map(drop)
    }
}

/// A trace file that is being written: only whole blocks, numbered.
pub(crate) struct BlockFile {
    file: Box<dyn Store>,
    cpu: u32,
    recording: RecordingId,
    sequence: u64,
    bytes: u64,
}

/// What a block has of events.
#[derive(Clone, Copy, Debug, Default)]
struct Content {
    events: u64,
    first: u64,
    last: u64,
}

impl BlockFile {
    pub(crate) fn new(file: impl Store + 'static, cpu: u32, recording: RecordingId) -> BlockFile {
        BlockFile { file: Box::new(file), cpu, recording, sequence: 0, bytes: 0 }
    }

    /// Writes a block around a payload.
    pub(crate) fn put(&mut self, kind: u8, payload: &[u8]) -> io::Result<()> {
        let mut bytes = vec![0; HEADER_BYTES];
        bytes.extend_from_slice(payload);
        self.put_sealed(kind, &mut bytes, Content::default(), 0, 0)
    }

    /// Seals and writes room and payload. After an error the file ends with its last whole block.
    fn put_sealed(
        &mut self,
        kind: u8,
        bytes: &mut [u8],
        content: Content,
        events_before: u64,
        lost_before: u64,
    ) -> io::Result<()> {
        let info = BlockInfo {
            kind,
            flags: 0,
            cpu: self.cpu,
            recording: self.recording,
            sequence: self.sequence,
            events_before,
            lost_before,
            first: content.first,
            last: content.last,
            events: u32::try_from(content.events).unwrap_or(u32::MAX),
        };
        block::seal(bytes, &info, None);
        if let Err(error) = self.file.write_all(bytes) {
            let _ = self.file.cut(self.bytes);
            return Err(error);
        }
        self.sequence += 1;
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    /// Blocks written.
    pub(crate) fn blocks(&self) -> u64 {
        self.sequence
    }
}

/// What a writer thread works with.
pub(crate) struct Writer {
    pub(crate) file: BlockFile,
    pub(crate) description: Arc<Description>,
    pub(crate) full: Receiver<Message>,
    pub(crate) free: Sender<Vec<u8>>,
    pub(crate) progress: Arc<Progress>,
    /// Why recording ends: `END_*`, known by the time the reader does.
    pub(crate) reason: Arc<AtomicU64>,
}

/// What a CPU's file came to.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) events: u64,
    pub(crate) bytes: u64,
    pub(crate) lost: u64,
    /// Events that the kernel handed out.
    pub(crate) read: u64,
    pub(crate) cleared: bool,
    pub(crate) error: Option<io::Error>,
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
        let mut outcome = Outcome::default();
        let mut all = Content::default();
        let mut marked = 0u64;
        let mut seen = Stats::default();
        let mut base = Counters::default();
        let mut told = Counters::default();
        let mut unwritten = 0u64;
        while let Ok(message) = self.full.recv() {
            match message {
                Message::Data(mut buffer, used) => {
                    let block = &mut buffer[..HEADER_BYTES + used];
                    let (content, lost) = self.count(&block[HEADER_BYTES..]);
                    let events_before = outcome.events;
                    let written = match &outcome.error {
                        Some(_) => false,
                        None => match self
                            .put_header()
                            .and_then(|()| self.file.put_sealed(kind::DATA, block, content, events_before, marked))
                        {
                            Ok(()) => true,
                            Err(error) => {
                                outcome.error = Some(error);
                                self.progress.failed.store(true, Ordering::Release);
                                false
                            }
                        },
                    };
                    marked = marked.saturating_add(lost);
                    if written {
                        if all.events == 0 {
                            all.first = content.first;
                        }
                        if content.events > 0 {
                            all.last = content.last;
                        }
                        all.events += content.events;
                        outcome.events = all.events;
                        self.progress.events.store(all.events, Ordering::Relaxed);
                        self.progress.bytes.store(self.file.bytes, Ordering::Relaxed);
                    } else {
                        unwritten += content.events;
                    }
                    // The reader may have gone.
                    let _ = self.free.send(buffer);
                }
                Message::Stats(stats) => {
                    if stats.is_before(&seen) {
                        base = sum(&base, &seen);
                        outcome.cleared = true;
                        self.gap(GAP_CLEARED, LOST_UNKNOWN, &mut outcome, marked);
                    }
                    seen = stats;
                    let now = sum(&base, &stats);
                    self.progress.lost.store(now.lost(), Ordering::Relaxed);
                    if now.kernel_lost() != told.kernel_lost() {
                        told = now;
                        let mut block = vec![0; HEADER_BYTES];
                        block.extend_from_slice(now.as_bytes());
                        self.put(kind::COUNTERS, &mut block, &mut outcome, marked);
                    }
                }
            }
        }
        // What could not be written gets its place again if there is room now.
        let failed = outcome.error.take();
        if unwritten > 0 {
            self.gap(GAP_NOT_WRITTEN, unwritten, &mut outcome, marked);
        }
        let mut counters = sum(&base, &seen);
        counters.recorder_lost = unwritten.into();
        let end = End {
            counters,
            events: all.events.into(),
            blocks: self.file.blocks().into(),
            first: all.first.into(),
            last: all.last.into(),
            reason: (self.reason.load(Ordering::Acquire) as u32).into(),
            reserved: 0.into(),
        };
        let mut block = vec![0; HEADER_BYTES];
        block.extend_from_slice(end.as_bytes());
        self.put(kind::END, &mut block, &mut outcome, marked);
        outcome.error = failed.or(outcome.error);
        outcome.bytes = self.file.bytes;
        outcome.lost = counters.lost();
        outcome.read = counters.read.get();
        outcome
    }

    fn put(&mut self, kind: u8, block: &mut [u8], outcome: &mut Outcome, lost_before: u64) {
        if outcome.error.is_none()
            && let Err(error) = self
                .put_header()
                .and_then(|()| self.file.put_sealed(kind, block, Content::default(), outcome.events, lost_before))
        {
            outcome.error = Some(error);
            self.progress.failed.store(true, Ordering::Release);
        }
    }

    fn gap(&mut self, reason: u32, lost: u64, outcome: &mut Outcome, marked: u64) {
        let gap = GapRecord { lost: lost.into(), reason: reason.into(), reserved: 0.into() };
        let mut block = vec![0; HEADER_BYTES];
        block.extend_from_slice(gap.as_bytes());
        self.put(kind::GAP, &mut block, outcome, marked);
    }

    /// Events in a payload, and what its marks say of lost ones.
    fn count(&self, mut payload: &[u8]) -> (Content, u64) {
        let mut content = Content::default();
        let mut lost = 0u64;
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
                    if content.events == 0 {
                        content.first = tally.first;
                    }
                    if tally.events > 0 {
                        content.last = tally.last;
                    }
                    content.events += tally.events;
                    if let Some(Missed::Counted(n)) = tally.missed {
                        lost = lost.saturating_add(n);
                    }
                    payload = &payload[stored..];
                }
            }
        }
        (content, lost)
    }
}

/// Counters over the times that the buffer was reset.
fn sum(base: &Counters, stats: &Stats) -> Counters {
    Counters {
        overrun: (base.overrun.get() + stats.overrun).into(),
        commit_overrun: (base.commit_overrun.get() + stats.commit_overrun).into(),
        dropped: (base.dropped.get() + stats.dropped).into(),
        read: (base.read.get() + stats.read).into(),
        unread: stats.entries.into(),
        recorder_lost: base.recorder_lost,
    }
}
