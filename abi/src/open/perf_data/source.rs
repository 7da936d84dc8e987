//! The second pass over a `perf.data`: the events of one CPU.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::layout::{Attr, Attrs};
use super::records::{HEADER, Record, Records, kind};
use super::scan::{Cpu, Round, Run, is_cut};
use crate::event::{Event, EventSink, Gap, GapCause, Names, StreamItem};
use crate::fault::{Code, Fault};
use crate::kernel::decoder::Decoder;
use crate::kernel::subbuffer;
use crate::kernel::unknown::UnknownEvents;
use crate::stream::source::{EventSource, Lost, SourceEnd};
use crate::target::{Big, Endian, Little, u64_of};
use crate::text::units::counted;

/// Markers in call chains from here on; one tells what the addresses behind it are of.
const FIRST_MARKER: u64 = (-4095i64).cast_unsigned();
/// Marker of the kernel's own addresses (`PERF_CONTEXT_KERNEL`).
const KERNEL: u64 = (-128i64).cast_unsigned();
/// Items handed over at once: few, so that they are still in the nearest cache.
const AT_ONCE: usize = 16;
/// Frames of a stack, at most; perf records 127 by default.
const MAX_FRAMES: usize = 1024;

/// What all CPUs of a file share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) path: PathBuf,
    pub(super) file: Arc<File>,
    pub(super) endian: Endian,
    pub(super) attrs: Attrs,
    pub(super) decoder: Decoder,
    pub(super) rounds: Vec<Round>,
}

/// The records of one CPU.
#[derive(Debug)]
pub(super) struct CpuRecords {
    shared: Arc<Shared>,
    cpu: u32,
    runs: Vec<Run>,
    /// Number of runs that were begun.
    begun: usize,
    records: Records,
    /// Records that wait until all earlier ones have come: time, and place in the file.
    waiting: Option<BinaryHeap<Reverse<(u64, u64, u64)>>>,
    /// Number of rounds whose end was passed.
    rounds: usize,
    decoded: Decoded,
    /// Lost events that no LOST record reports, at the end.
    lost_at_end: u64,
    /// The kernel left out some events.
    leaves_out: bool,
    /// Why records behind the last one are missing, if they are.
    missing: Option<GapCause>,
    bytes_read: u64,
    is_at_end: bool,
}

impl CpuRecords {
    /// Source of a CPU's records; `leaves_out`: the kernel did not record all events; `missing`: why the file ends early.
    pub(super) fn new(
        shared: Arc<Shared>,
        (cpu, found): (u32, &Cpu),
        leaves_out: bool,
        missing: Option<GapCause>,
    ) -> CpuRecords {
        let [marked, counted] = found.lost;
        let records = Records::new(Arc::clone(&shared.file), shared.endian, 0, 0);
        CpuRecords {
            shared,
            cpu,
            runs: found.runs.clone(),
            begun: 0,
            records,
            waiting: found.is_unordered.then(BinaryHeap::new),
            rounds: 0,
            decoded: Decoded::default(),
            lost_at_end: counted.saturating_sub(marked),
            leaves_out,
            missing,
            bytes_read: 0,
            is_at_end: false,
        }
    }

    /// Reads the next record of the CPU, and decodes it or has it wait; false at the end.
    fn read_next(&mut self, names: &mut Names, items: &mut Vec<StreamItem>) -> io::Result<bool> {
        loop {
            let Some(record) = self.records.next()? else {
                let Some(&run) = self.runs.get(self.begun) else { return Ok(false) };
                self.begun = self.begun.saturating_add(1);
                self.records.enter(run.start, run.end);
                self.release(run.start, names, items)?;
                continue;
            };
            self.bytes_read = self.bytes_read.saturating_add(record.bytes.len() as u64);
            let shared = &*self.shared;
            let Some((attr, time, cpu)) = place(&record, &shared.attrs, shared.endian) else { continue };
            // A run may have records of other CPUs in it.
            if cpu != self.cpu {
                continue;
            }
            match &mut self.waiting {
                Some(waiting) => {
                    waiting.push(Reverse((time, record.offset, record.end())));
                }
                None => self.decoded.add(shared, (attr, time, cpu), &record, names, items),
            }
            return Ok(true);
        }
    }

    /// Decodes the records that wait and that nothing earlier comes behind, once the file was read to byte `at`.
    fn release(&mut self, at: u64, names: &mut Names, items: &mut Vec<StreamItem>) -> io::Result<()> {
        let rounds = self.shared.rounds.get(self.rounds..).unwrap_or_default();
        let passed = rounds.iter().take_while(|round| round.at <= at).count();
        self.rounds = self.rounds.saturating_add(passed);
        let last = rounds.get(..passed).and_then(<[Round]>::last);
        let until = if at == u64::MAX { Some(u64::MAX) } else { last.map(|round| round.until) };
        let Some(until) = until else { return Ok(()) };
        while let Some(Reverse((time, start, end))) = self.waiting.as_mut().and_then(BinaryHeap::pop) {
            if time > until {
                if let Some(waiting) = &mut self.waiting {
                    waiting.push(Reverse((time, start, end)));
                }
                break;
            }
            let shared = &*self.shared;
            let mut records = Records::new(Arc::clone(&shared.file), shared.endian, start, end);
            let Some(record) = records.next()? else { continue };
            if let Some(place) = place(&record, &shared.attrs, shared.endian) {
                self.decoded.add(shared, place, &record, names, items);
            }
        }
        Ok(())
    }
}

/// Attribute, time and CPU of a record of events or of their loss; `None` for any other.
#[inline(always)]
fn place<'a>(record: &Record<'_>, attrs: &'a Attrs, endian: Endian) -> Option<(&'a Attr, u64, u32)> {
    let body = record.body();
    let (attr, (time, cpu)) = match record.kind {
        kind::SAMPLE => {
            let attr = attrs.of_sample(body, endian).filter(|attr| attr.event.is_some())?;
            (attr, attr.place(body, endian)?)
        }
        kind::LOST => {
            let attr = attrs.of_other(body, endian)?;
            (attr, attr.place_at_end(body, endian)?)
        }
        _ => return None,
    };
    Some((attr, time, cpu))
}

/// What is carried from record to record.
#[derive(Debug, Default)]
struct Decoded {
    /// Time of the last event.
    last: Option<u64>,
    frames: Vec<u64>,
    /// Events lost, and in how many gaps.
    lost: (u64, u64),
    /// Events before the first one may have been overwritten.
    is_overwritten: bool,
}

impl Decoded {
    /// Counts a gap, and its events.
    fn lose(&mut self, events: u64) {
        let (lost, gaps) = self.lost;
        self.lost = (lost.saturating_add(events), gaps.saturating_add(1));
    }

    /// Decodes a record: its event, or the gap that it tells of.
    fn add(
        &mut self,
        shared: &Shared,
        (attr, time, cpu): (&Attr, u64, u32),
        record: &Record<'_>,
        names: &mut Names,
        items: &mut Vec<StreamItem>,
    ) {
        let (body, endian) = (record.body(), shared.endian);
        if record.kind == kind::LOST {
            let lost = u64_of(endian, body, 8);
            self.lose(lost.unwrap_or(0));
            let gap = Gap { from: self.last, to: Some(time), cpu, lost, cause: GapCause::Overrun };
            return items.push(StreamItem::Gap(gap));
        }
        if self.last.replace(time).is_none() && attr.is_overwritten {
            items.push(StreamItem::Gap(Gap { from: None, to: Some(time), cpu, lost: None, cause: GapCause::Overrun }));
            self.is_overwritten = true;
        }
        let before = items.len();
        let Some(sample) = attr.sample(body, endian) else {
            return items.push(StreamItem::Event(Event::unreadable(time, cpu, names)));
        };
        let rest = record.rest.get(HEADER.saturating_add(sample.raw_at)..).unwrap_or(sample.raw);
        let raw = subbuffer::Record { time, payload: sample.raw, rest };
        // The stream counts events that are not known.
        let unknown = &mut UnknownEvents::default();
        let to = &mut WithFields(items);
        let decoded = match endian {
            Endian::Little => shared.decoder.decode::<Little, _>(time, cpu, &raw, names, to, unknown),
            Endian::Big => shared.decoder.decode::<Big, _>(time, cpu, &raw, names, to, unknown),
        };
        if decoded.is_err() {
            items.truncate(before);
            return items.push(StreamItem::Event(Event::unreadable(time, cpu, names)));
        }
        kernel_frames(sample.chain, endian, &mut self.frames);
        if self.frames.is_empty() {
            return;
        }
        let stack = Some(names.stacks.intern(&self.frames));
        for item in items.iter_mut().skip(before) {
            if let StreamItem::Event(event) = item {
                event.stack = stack;
            }
        }
    }
}

/// Items whose events have all of their fields, where the reader asks for these.
struct WithFields<'i>(&'i mut Vec<StreamItem>);

impl EventSink for WithFields<'_> {
    const FIELDS: bool = true;

    fn event(&mut self, event: Event, _: &Names) {
        self.0.push(StreamItem::Event(event));
    }

    fn gap(&mut self, gap: Gap) {
        self.0.push(StreamItem::Gap(gap));
    }
}

/// The kernel's own addresses of a call chain.
fn kernel_frames(chain: &[u8], endian: Endian, frames: &mut Vec<u64>) {
    frames.clear();
    let mut is_of_kernel = false;
    for address in chain.chunks_exact(8).filter_map(|bytes| u64_of(endian, bytes, 0)) {
        if address >= FIRST_MARKER {
            is_of_kernel = address == KERNEL;
        } else if is_of_kernel && frames.len() < MAX_FRAMES {
            frames.push(address);
        }
    }
}

impl EventSource for CpuRecords {
    fn cpu(&self) -> u32 {
        self.cpu
    }

    fn path(&self) -> &Path {
        &self.shared.path
    }

    fn read(&mut self, names: &mut Names, items: &mut Vec<StreamItem>) -> Result<(), Fault> {
        while items.len() < AT_ONCE && !self.is_at_end {
            let has_more = match self.read_next(names, items) {
                Ok(true) => true,
                Ok(false) => {
                    // All that waits is in order now.
                    self.release(u64::MAX, names, items).map_err(|error| unreadable(&error, self.records.at()))?;
                    false
                }
                Err(error) => return Err(unreadable(&error, self.records.at())),
            };
            if !has_more {
                self.is_at_end = true;
                if self.lost_at_end > 0 {
                    let lost = Some(self.lost_at_end);
                    self.decoded.lose(self.lost_at_end);
                    let gap = Gap { from: self.decoded.last, to: None, cpu: self.cpu, lost, cause: GapCause::Overrun };
                    items.push(StreamItem::Gap(gap));
                }
                if let Some(cause) = self.missing {
                    let gap = Gap { from: self.decoded.last, to: None, cpu: self.cpu, lost: None, cause };
                    items.push(StreamItem::Gap(gap));
                }
            }
        }
        Ok(())
    }

    fn end(&mut self) -> SourceEnd {
        let fault = |code, message| Fault { code, offset: 0, block: None, message };
        let (lost, gaps) = self.decoded.lost;
        let mut faults = Vec::new();
        if gaps > 0 {
            let message = format!("{} lost on CPU {} in {}", counted(lost, "event"), self.cpu, counted(gaps, "gap"));
            faults.push(fault(Code::Overrun, message));
        }
        if self.decoded.is_overwritten {
            let message = format!("perf kept only the newest events of CPU {}: record without --overwrite", self.cpu);
            faults.push(fault(Code::Overrun, message));
        }
        if self.leaves_out {
            let message =
                "perf took samples at a rate, so the kernel left out events: record without -F and -c".to_owned();
            faults.push(fault(Code::Untold, message));
        }
        let lost = if self.leaves_out { Lost::Told(None) } else { Lost::OfGaps };
        SourceEnd { lost, faults, ..SourceEnd::default() }
    }

    fn bytes_read(&self) -> u64 {
        self.bytes_read
    }

    fn bytes_to_read(&self) -> u64 {
        self.runs.iter().map(|run| run.end.saturating_sub(run.start)).sum()
    }
}

fn unreadable(error: &io::Error, offset: u64) -> Fault {
    let code = if is_cut(error) { Code::CutInBlock } else { Code::BadRecord };
    Fault { code, offset, block: None, message: format!("cannot be read from byte {offset} on: {error}") }
}
