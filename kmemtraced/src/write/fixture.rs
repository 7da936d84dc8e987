//! Writers on a scripted disk, and readers of the resulting files, for the tests of this room.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kmemtrace_abi::disk::block::{END_ASKED, END_ERROR, Header};
use kmemtrace_abi::event::StreamItem;
use kmemtrace_abi::fault::Verdict;
use kmemtrace_abi::kernel::stats::Stats;
use kmemtrace_abi::stream::report::FileReport;
use kmemtrace_abi::target::{Endian, Target};
use kmemtrace_abi::trace::Trace;
use kmemtrace_tests::generate::{Options, Random, Shape, Workload, pages::Encoder, workload};
use zerocopy::FromBytes;

use crate::control::foreign::ForeignChanges;
use crate::source::functions::Functions;
use crate::source::probes::Probes;
use crate::source::stacks::Stacks;
use crate::source::{Framing, Sample, SourceFacts};
use crate::write::block_buffer::BlockBuffer;
use crate::write::block_file::{BlockFile, Store};
use crate::write::compress::{BlockCompressor, Compression};
use crate::write::header::Description;
use crate::write::load::Business;
use crate::write::outcome::Outcome;
use crate::write::reader::Message;
use crate::write::writer::Writer;

/// A disk that takes a few bytes at a time, is interrupted, and is full after `room` bytes.
pub(super) struct Disk {
    pub(super) bytes: Arc<Mutex<Vec<u8>>>,
    pub(super) random: Random,
    pub(super) room: usize,
    /// Bytes that become free once the disk was full.
    pub(super) later: usize,
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

    fn check(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn close(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Facts of a source of such a workload.
pub(crate) fn facts(workload: &Workload) -> SourceFacts {
    let event = |layout: &kmemtrace_tests::generate::layout::Layout| {
        (format!("{}/{}", layout.system, layout.name), layout.text())
    };
    SourceFacts {
        scope: kmemtrace_abi::trace::Scope::System,
        filter: None,
        stacks: Stacks::default(),
        functions: Functions::default(),
        probes: Probes::default(),
        missing: Vec::new(),
        cpus: vec![0],
        framing: Arc::new(Framing::SubBuffers(workload.shape.page())),
        word_bytes: workload.shape.target.word_bytes,
        clock: Some("mono".into()),
        header_page: kmemtrace_tests::generate::layout::header_page(&workload.shape),
        header_event: String::new(),
        formats: kmemtrace_tests::generate::layout::layouts(&workload.shape).iter().map(event).collect(),
        events: Vec::new(),
        buffer_bytes: None,
        since_boot: false,
        shown: String::new(),
    }
}

pub(super) fn description(workload: &Workload) -> Description {
    let facts = facts(workload);
    Description { recording: [7; 16], facts: Arc::new(facts), started: [0; 16], host: None, boot: Vec::new() }
}

/// A block of the reader.
pub(super) fn data(payload: &[u8]) -> Message {
    Message::Data(BlockBuffer::holding(payload))
}

/// Counters of a kernel that counts what it hands out, read at second `read.0` of the trace's clock.
pub(super) fn counted(stats: Stats) -> Message {
    let second = 1_000_000_000;
    let read = Some((stats.read * second, stats.read * second + second));
    Message::Counters(Ok(Sample { stats: Stats { counts_reads: true, ..stats }, read, ..Sample::default() }))
}

/// ForeignChanges of which there are no more.
pub(super) fn closed(changes: ForeignChanges) -> ForeignChanges {
    changes.close();
    changes
}

pub(crate) fn one_cpu() -> Workload {
    // A recorder writes the byte order of its machine.
    let target = Target { endian: Endian::NATIVE, word_bytes: 8 };
    workload(1, &Options::plain(Shape { target, ..Shape::plain() }, 1, 3000))
}

/// File of a CPU's events on such a disk, a block for every few sub-buffers; its outcome, and the number of events.
pub(super) fn written(room: usize, later: usize, seed: u64) -> (Vec<u8>, Outcome, u64) {
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
        let mut payload = Vec::new();
        for page in pages.by_ref().take(1 + random.below(4) as usize) {
            payload.extend_from_slice(&page.bytes[..page.trimmed]);
            read += u64::from(page.events);
        }
        full_in.send(data(&payload)).unwrap();
        full_in.send(counted(Stats { read, ..Stats::default() })).unwrap();
    }
    drop(full_in);
    let reason = if room == usize::MAX { END_ASKED } else { END_ERROR };
    let writer = Writer {
        file: BlockFile::new(disk, 0, [7; 16]),
        description: Arc::new(description(&workload)),
        compression: Compression::Zstd(1),
        compressor: (seed % 3 == 2).then(|| BlockCompressor::new(Compression::Zstd(1))).flatten(),
        records: None,
        business: Business::default(),
        patience: Duration::MAX,
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

/// Events read back, lost events, and the verdict.
pub(super) fn read_back(bytes: &[u8]) -> (u64, Option<u64>, Verdict) {
    let (facts, _) = items_of(bytes);
    (facts.events, facts.lost, facts.verdict)
}

pub(super) fn items_of(bytes: &[u8]) -> (FileReport, Vec<StreamItem>) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cpu0.out");
    std::fs::write(&path, bytes).unwrap();
    let mut trace = Trace::open(&[path]).unwrap();
    let (mut items, mut more) = (Vec::new(), Vec::new());
    while trace.streams[0].fill(&mut trace.names, &mut more) {
        items.append(&mut more);
    }
    (trace.streams[0].report().clone(), items)
}

/// File that a writer makes of these messages.
pub(super) fn written_of(description: Description, messages: Vec<Message>) -> (Vec<u8>, Outcome) {
    written_with(description, messages, ForeignChanges::default())
}

pub(super) fn written_with(
    description: Description,
    messages: Vec<Message>,
    changes: ForeignChanges,
) -> (Vec<u8>, Outcome) {
    write(description, messages, changes, (None, Duration::MAX))
}

/// File whose blocks are compressed unless they have waited for `patience`.
pub(super) fn compressed_with(
    description: Description,
    messages: Vec<Message>,
    patience: Duration,
) -> (Vec<u8>, Outcome) {
    let compressor = BlockCompressor::new(Compression::Zstd(1));
    write(description, messages, ForeignChanges::default(), (compressor, patience))
}

fn write(
    description: Description,
    messages: Vec<Message>,
    changes: ForeignChanges,
    (compressor, patience): (Option<BlockCompressor>, Duration),
) -> (Vec<u8>, Outcome) {
    let (full_in, full) = crossbeam_channel::unbounded();
    let (free, _recycled) = crossbeam_channel::unbounded();
    messages.into_iter().for_each(|message| full_in.send(message).unwrap());
    drop(full_in);
    let bytes = Arc::new(Mutex::new(Vec::new()));
    let disk = Disk { bytes: Arc::clone(&bytes), random: Random::new(1), room: usize::MAX, later: 0 };
    let file = BlockFile::new(disk, 0, [7; 16]);
    let (description, reason) = (Arc::new(description), Arc::new(u64::from(END_ASKED).into()));
    let (records, sync, progress, abandon, own) = (None, None, Arc::default(), Arc::default(), None);
    let compression = if compressor.is_some() { Compression::Zstd(1) } else { Compression::None };
    let business = Business::default();
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
        changes: closed(changes),
        own,
        abandon,
    };
    let outcome = writer.run();
    let bytes = bytes.lock().unwrap().clone();
    (bytes, outcome)
}

/// Payloads of the blocks of a kind, in the order of the file.
pub(super) fn payloads(bytes: &[u8], wanted: u8) -> Vec<&[u8]> {
    let mut found = Vec::new();
    let mut rest = bytes;
    while let Ok((header, payload)) = Header::read_from_prefix(rest) {
        let (payload, after) = payload.split_at(header.payload_len.get() as usize);
        found.extend((header.kind == wanted).then_some(payload));
        rest = after;
    }
    found
}
