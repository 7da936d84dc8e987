//! One CPU's file as a stream of events and gaps.

use std::fs::{File, Metadata};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use zerocopy::FromBytes;

use crate::block::{Counters, End, GAP_CLEARED, GAP_FULL, GapRecord, LOST_UNKNOWN, RecordingId, kind};
use crate::blocks::{Block, BlockReader, Ending, Window};
use crate::event::{Action, Event, Gap, GapCause, Item, Items, Kind, NameId, Names};
use crate::fault::{Code, Fault, Verdict};
use crate::format::PageShape;
use crate::kmem::{Decoder, ShortRecord};
use crate::landmarks::{Keeper, Landmarks, Point};
use crate::relay::{self, Layout, Parsed, RelayRecord};
use crate::subbuffer::{Missed, SubBuffer, SubBufferError, trimmed_len};
use crate::target::{Big, Endian, Little, Order};
use crate::trace::{FileFacts, Source};

/// Items after which [`CpuStream::fill`] hands over what it has: they should stay in a core's cache.
const BATCH: usize = 512;

/// How the payloads of a recording are decoded; one for all of its files.
#[derive(Debug)]
pub(crate) enum Coding {
    /// Sub-buffers of tracefs.
    SubBuffers(PageShape, Decoder),
    /// Records of a relay channel.
    Relay(RelayCoding),
    /// Nothing tells how.
    Unknown,
}

/// How relay records are decoded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RelayCoding {
    pub(crate) layout: Layout,
    pub(crate) endian: Endian,
    /// First sequence number of the recording, from which the others are extended to 64 bits.
    pub(crate) origin: u32,
    pub(crate) names: RelayNames,
}

/// Names of the events that relay records stand for: allocation and free of each kind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RelayNames([(NameId, NameId); 3]);

impl RelayNames {
    pub(crate) fn new(names: &mut Names) -> RelayNames {
        RelayNames([
            (names.intern(b"kmalloc"), names.intern(b"kfree")),
            (names.intern(b"kmem_cache_alloc"), names.intern(b"kmem_cache_free")),
            (names.intern(b"mm_page_alloc"), names.intern(b"mm_page_free")),
        ])
    }
}

/// Where a stream's bytes are.
#[derive(Debug)]
enum Body {
    /// A file of ours.
    Blocks(Box<BlockReader>),
    /// Raw relay bytes.
    Raw(Window),
    /// Nowhere: the CPU's file is missing.
    Missing,
    /// All read.
    Done,
}

/// Where sub-buffers stand in a file.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// Of the block, or of the sub-buffer where there are no blocks.
    offset: u64,
    block: Option<u64>,
}

impl Place {
    fn of(block: &Block) -> Place {
        Place { offset: block.offset, block: Some(block.header.sequence.get()) }
    }

    /// For people: byte `from` of it.
    fn sub_buffer(&self, from: usize) -> String {
        let offset = self.offset;
        match self.block {
            Some(number) => format!("block {number} at byte {offset}: the sub-buffer at byte {from} of it"),
            None => format!("the sub-buffer at byte {}", offset + from as u64),
        }
    }
}

/// One CPU's events and gaps.
#[derive(Debug)]
pub struct CpuStream {
    body: Body,
    coding: Arc<Coding>,
    /// The block being decoded, and how far.
    block: Option<(Block, usize)>,
    cursor: Cursor,
    /// Where only a part is read.
    part: Option<Part>,
}

/// A part of a file that is read, with the gaps of all of it.
#[derive(Debug)]
struct Part {
    gaps: Vec<Gap>,
    /// Gaps that were handed over, before the part or in it.
    known: usize,
    /// Whether those before it were.
    begun: bool,
    /// Greatest order key that is wanted.
    to: u64,
}

/// What is carried from record to record.
#[derive(Debug)]
struct Cursor {
    cpu: u32,
    facts: FileFacts,
    /// The batch is full at this many items.
    until: u64,
    /// Key of the last event.
    last: Option<u64>,
    /// Events are missing from `last` to the next event.
    pending: Option<(GapCause, Option<u64>)>,
    /// Some of the file was not read as it was written, so its totals cannot be compared.
    damaged: bool,
    /// Events before the current block.
    before_block: u64,
    marks: Marks,
    /// Events that somebody else read.
    taken: u64,
    /// Keeps landmarks, where somebody wants them.
    keeper: Option<Box<Keeper>>,
}

/// What the marks in the stream say of lost events.
#[derive(Debug, Default)]
struct Marks {
    /// Marks in sub-buffers.
    count: u64,
    /// Sum of those with a number.
    counted: u64,
    /// Marks without a number.
    uncounted: u64,
    /// The greatest number, and the time to which its gap goes.
    longest: (u64, u64),
    /// Sum of gap blocks with a number.
    recorder: u64,
    /// Gap blocks without one.
    unknown: u64,
}

impl CpuStream {
    pub(crate) fn blocks(path: PathBuf, cpu: u32, reader: BlockReader, coding: Arc<Coding>) -> CpuStream {
        CpuStream::new(path, cpu, Body::Blocks(Box::new(reader)), coding)
    }

    pub(crate) fn raw(path: PathBuf, cpu: u32, file: File, coding: Arc<Coding>) -> CpuStream {
        CpuStream::new(path, cpu, Body::Raw(Window::new(file)), coding)
    }

    pub(crate) fn missing(path: PathBuf, cpu: u32) -> CpuStream {
        let mut stream = CpuStream::new(path, cpu, Body::Missing, Arc::new(Coding::Unknown));
        let message = format!("the file of CPU {cpu} is not there");
        stream.cursor.facts.add(Fault { code: Code::Missing, offset: 0, block: None, message });
        stream
    }

    fn new(path: PathBuf, cpu: u32, body: Body, coding: Arc<Coding>) -> CpuStream {
        let cursor = Cursor {
            cpu,
            facts: FileFacts::new(path, Some(cpu)),
            until: 0,
            last: None,
            pending: None,
            damaged: false,
            before_block: 0,
            marks: Marks::default(),
            taken: 0,
            keeper: None,
        };
        CpuStream { body, coding, block: None, cursor, part: None }
    }

    pub(crate) fn facts_mut(&mut self) -> &mut FileFacts {
        &mut self.cursor.facts
    }

    /// What was read while the file was opened: its first block.
    pub(crate) fn start_with(&mut self, block: Block) {
        self.begin(block);
    }

    /// The file's first bytes are damaged.
    pub(crate) fn mark_damaged(&mut self) {
        self.cursor.damage();
    }

    /// The CPU.
    pub fn cpu(&self) -> u32 {
        self.cursor.cpu
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.cursor.facts.path
    }

    /// Bytes of the file read so far.
    pub fn bytes_read(&self) -> u64 {
        match &self.body {
            Body::Blocks(reader) => reader.bytes_read(),
            Body::Raw(window) => window.offset(),
            Body::Missing => 0,
            Body::Done => self.cursor.facts.bytes,
        }
    }

    /// The recording that the file belongs to, while it is read.
    pub fn recording(&self) -> Option<RecordingId> {
        match &self.body {
            Body::Blocks(reader) => reader.recording(),
            _ => None,
        }
    }

    /// What the system says of the file, while it is read: of the very file that was opened, whatever its name stands for now.
    pub fn metadata(&self) -> Option<io::Result<Metadata>> {
        match &self.body {
            Body::Blocks(reader) => Some(reader.file().metadata()),
            Body::Raw(window) => Some(window.file().metadata()),
            Body::Missing | Body::Done => None,
        }
    }

    /// Keeps landmarks from now on; before the first item is taken.
    pub fn keep_landmarks(&mut self) {
        self.cursor.keeper = Some(Box::new(Keeper::new()));
    }

    /// The landmarks of a file that has been read to its end; `None` where they were not kept, or would be too many.
    pub fn landmarks(&self) -> Option<&Landmarks> {
        self.cursor.keeper.as_ref()?.landmarks()
    }

    /// From now on, and before the first item is taken, only what is needed for events with keys from `from` to `to` is read;
    /// some before and behind come with them, and so do all gaps. `landmarks` must be those of this file.
    ///
    /// Afterwards the facts are those of what was read. Whoever knows that the whole file was good will find a worse
    /// verdict than lossy in them where this part is not good any more.
    pub fn narrow(&mut self, landmarks: &Landmarks, (from, to): (u64, u64)) {
        let Body::Blocks(reader) = &mut self.body else { return };
        let mut known = 0;
        if let Some(point) = landmarks.before(from) {
            if let Err(error) = reader.enter(point.offset, point.sequence) {
                let (offset, message) =
                    (point.offset, format!("cannot be read from byte {} on: {error}", point.offset));
                self.cursor.facts.add(Fault { code: Code::CutInBlock, offset, block: Some(point.sequence), message });
            }
            self.block = None;
            self.cursor.last = point.last;
            (self.cursor.facts.events, self.cursor.facts.gaps) = (point.events, point.gaps);
            known = usize::try_from(point.gaps).unwrap_or(usize::MAX).min(landmarks.gaps.len());
        }
        self.part = Some(Part { gaps: landmarks.gaps.clone(), known, begun: false, to });
    }

    /// What is known of the file so far; complete once `fill` returned false.
    pub fn facts(&self) -> &FileFacts {
        &self.cursor.facts
    }

    /// Replaces `items` by the next piece of the stream (never empty); false at its end.
    ///
    /// Items are in stream order: a gap stands before the first event after it, and the last gap may be
    /// open-ended. An unreadable rest is a gap and a fault, not an error.
    pub fn fill(&mut self, names: &mut Names, items: &mut Vec<Item>) -> bool {
        items.clear();
        self.decode(names, items, BATCH)
    }

    /// Hands the next `batch` items, or some more, to `items`; false at the end of the stream, where there are none.
    ///
    /// Generic, so that what `items` does not look at is not even read from the records.
    pub fn decode(&mut self, names: &mut Names, items: &mut impl Items, batch: usize) -> bool {
        let before = self.cursor.taken();
        let known = self.part.as_mut().is_some_and(|part| part.begin(items));
        self.cursor.until = before.saturating_add(batch as u64);
        while !self.cursor.is_full() {
            if self.part.as_ref().is_some_and(|part| self.cursor.last > Some(part.to)) {
                return self.leave_part(items) || self.cursor.taken() > before || known;
            }
            match &mut self.body {
                Body::Done => break,
                Body::Missing => {
                    self.cursor.gap(items, Some(GapCause::Cut), None);
                    self.cursor.facts.lost = None;
                    self.body = Body::Done;
                }
                Body::Raw(window) => {
                    let ending = match &*self.coding {
                        Coding::SubBuffers(shape, decoder) => {
                            self.cursor.raw_sub_buffers(window, shape, decoder, names, items)
                        }
                        coding => self.cursor.raw_records(window, coding, names, items),
                    };
                    if let Some(ending) = ending {
                        self.cursor.facts.bytes = window.offset();
                        self.cursor.finish(ending, items);
                        self.body = Body::Done;
                    }
                }
                Body::Blocks(reader) => match self.block {
                    Some((block, from)) => {
                        let next = self.cursor.payload(reader.payload(), from, &block, &self.coding, names, items);
                        self.block = next.map(|from| (block, from));
                        if next.is_none() {
                            self.cursor.end_of_data(&block);
                        }
                    }
                    None => match reader.next(&mut |fault| self.cursor.facts.add(fault)) {
                        Ok(block) => self.begin(block),
                        Err(ending) => {
                            self.cursor.facts.bytes = reader.bytes_read();
                            self.cursor.facts.blocks = reader.blocks();
                            if self.part.is_some() {
                                return self.leave_part(items) || self.cursor.taken() > before || known;
                            }
                            self.cursor.finish(ending, items);
                            self.body = Body::Done;
                        }
                    },
                },
            }
        }
        self.cursor.taken() > before || known
    }

    /// Hands over the gaps behind the part that was wanted; whether there are any.
    #[cold]
    fn leave_part(&mut self, items: &mut impl Items) -> bool {
        if let Body::Blocks(reader) = &self.body {
            self.cursor.facts.bytes = reader.bytes_met();
        }
        self.body = Body::Done;
        let gaps = self.part.take().map(|part| part.gaps).unwrap_or_default();
        let met = usize::try_from(self.cursor.facts.gaps).unwrap_or(usize::MAX);
        let rest = gaps.get(met..).unwrap_or_default();
        rest.iter().for_each(|gap| items.gap(*gap));
        !rest.is_empty()
    }

    /// Takes on a block: data is decoded piece by piece, the others at once.
    fn begin(&mut self, block: Block) {
        let Body::Blocks(reader) = &self.body else { return };
        let cursor = &mut self.cursor;
        cursor.facts.version = Some(reader.version());
        if block.damage_before {
            cursor.damage();
        }
        let before = block.header.events_before.get();
        if cursor.damaged {
            cursor.facts.unread = before.saturating_sub(cursor.facts.events);
        }
        if !cursor.damaged && before != cursor.facts.events {
            let message =
                format!("its header says that {before} events come before it, and {} do", cursor.facts.events);
            cursor.fault(Code::WrongTotals, &block, message);
        }
        let payload = reader.payload();
        match block.header.kind {
            kind::DATA => {
                cursor.before_block = cursor.facts.events;
                cursor.keep_point(&block);
                self.block = Some((block, 0));
            }
            kind::COUNTERS => match Counters::read_from_prefix(payload) {
                Ok((counters, _)) => cursor.facts.counters = Some(counters),
                Err(_) => cursor.fault(Code::WrongTotals, &block, "its counters are cut short".into()),
            },
            kind::GAP => match GapRecord::read_from_prefix(payload) {
                Ok((gap, _)) => cursor.gap_record(&gap, &block),
                Err(_) => cursor.fault(Code::WrongTotals, &block, "its gap record is cut short".into()),
            },
            kind::END => match End::read_from_prefix(payload) {
                Ok((end, _)) => {
                    cursor.facts.counters = Some(end.counters);
                    let ours = end.events.get().saturating_add(end.counters.recorder_lost.get());
                    cursor.taken = end.counters.read.get().saturating_sub(ours);
                    if cursor.taken > 0 {
                        let (read, events) = (end.counters.read.get(), end.events.get());
                        let message = format!("the kernel handed out {read} events, and {events} are in the file");
                        cursor.fault(Code::OtherReader, &block, message);
                    }
                    if !cursor.damaged && end.events.get() != cursor.facts.events {
                        let (says, has) = (end.events.get(), cursor.facts.events);
                        cursor.fault(
                            Code::WrongTotals,
                            &block,
                            format!("it says that the file has {says} events, and it has {has}"),
                        );
                    }
                }
                Err(_) => cursor.fault(Code::WrongTotals, &block, "its totals are cut short".into()),
            },
            _ => {}
        }
    }
}

impl Part {
    /// Hands over the gaps before the part, once; whether there are any.
    fn begin(&mut self, items: &mut impl Items) -> bool {
        if std::mem::replace(&mut self.begun, true) {
            return false;
        }
        let before = self.gaps.get(..self.known).unwrap_or_default();
        before.iter().for_each(|gap| items.gap(*gap));
        !before.is_empty()
    }
}

impl Cursor {
    /// Items so far.
    #[inline]
    fn taken(&self) -> u64 {
        self.facts.events + self.facts.gaps
    }

    #[inline]
    fn is_full(&self) -> bool {
        self.taken() >= self.until
    }

    fn fault(&mut self, code: Code, block: &Block, message: String) {
        let number = block.header.sequence.get();
        let message = format!("block {number} at byte {}: {message}", block.offset);
        self.facts.add(Fault { code, offset: block.offset, block: Some(number), message });
    }

    fn damage(&mut self) {
        self.damaged = true;
        self.pending.get_or_insert((GapCause::Damage, None));
    }

    fn gap_record(&mut self, gap: &GapRecord, block: &Block) {
        let lost = Some(gap.lost.get()).filter(|&n| n != LOST_UNKNOWN);
        match lost {
            Some(n) => self.marks.recorder = self.marks.recorder.saturating_add(n),
            None => self.marks.unknown += 1,
        }
        let number = lost.map_or("some".into(), |n| n.to_string());
        let (code, cause, message) = match gap.reason.get() {
            GAP_CLEARED => {
                (Code::Cleared, GapCause::Recorder, "somebody cleared or changed the buffer here".to_owned())
            }
            GAP_FULL => (
                Code::Overrun,
                GapCause::Overrun,
                format!("{number} events of all CPUs were dropped about here: the channel was full"),
            ),
            _ => (
                Code::RecorderLoss,
                GapCause::Recorder,
                format!("{number} events were read here and could not be written"),
            ),
        };
        self.fault(code, block, message);
        self.pending = Some((cause, lost));
    }

    /// A gap from the last event to the next one, whose key is `to` (`None`: the end of the trace).
    #[cold]
    fn gap(&mut self, items: &mut impl Items, cause: Option<GapCause>, to: Option<u64>) {
        let (cause, lost) = self.pending.take().or(cause.map(|c| (c, None))).unwrap_or((GapCause::Damage, None));
        self.push_gap(items, Gap { from: self.last, to, cpu: self.cpu, lost, cause });
    }

    /// Where nothing is missing before a block, reading may begin with it.
    fn keep_point(&mut self, block: &Block) {
        if self.pending.is_some() || self.damaged {
            return;
        }
        let (sequence, facts) = (block.header.sequence.get(), &self.facts);
        let point = Point { offset: block.offset, sequence, events: facts.events, gaps: facts.gaps, last: self.last };
        if let Some(keeper) = &mut self.keeper {
            keeper.point(point);
        }
    }

    fn push_gap(&mut self, items: &mut impl Items, gap: Gap) {
        if let Some(keeper) = &mut self.keeper {
            keeper.gap(gap);
        }
        self.facts.gaps += 1;
        if gap.from.is_none() && gap.to.is_some() {
            self.facts.lost_before = gap.lost;
        }
        items.gap(gap);
    }

    /// The order key of an event stamped `time`; never before its predecessor's.
    #[inline]
    fn key(&mut self, time: u64, offset: u64) -> u64 {
        match self.last {
            Some(last) if time < last => self.back_in_time(time, last, offset),
            _ => time,
        }
    }

    #[cold]
    fn back_in_time(&mut self, time: u64, last: u64, offset: u64) -> u64 {
        let message = format!("time stamp {time} follows {last}");
        self.facts.add(Fault { code: Code::BackInTime, offset, block: None, message });
        last
    }

    #[inline(always)]
    fn push(&mut self, items: &mut impl Items, event: Event, names: &Names) {
        if self.pending.is_some() {
            self.gap(items, None, Some(event.at));
        }
        if self.last.is_none() {
            self.facts.first = Some(event.at);
        }
        self.last = Some(event.at);
        self.facts.events += 1;
        items.event(event, names);
    }

    /// Decodes some of a data block's payload from byte `from`; returns where to go on, `None` at its end.
    fn payload(
        &mut self,
        payload: &[u8],
        from: usize,
        block: &Block,
        coding: &Coding,
        names: &mut Names,
        items: &mut impl Items,
    ) -> Option<usize> {
        match coding {
            Coding::SubBuffers(shape, decoder) => {
                self.sub_buffers(payload, from, Place::of(block), shape, decoder, names, items)
            }
            Coding::Relay(coding) => {
                let at = block.offset.saturating_add(block.header.header_len.get().into());
                let bytes = &payload[from..];
                let (taken, parsed) = self.relay_records(bytes, at + from as u64, coding, names, items);
                let next = match parsed {
                    None => from + taken,
                    Some(Parsed::Bad) => {
                        self.fault(Code::BadRelayRecord, block, format!("no record at byte {} of it", from + taken));
                        self.damage();
                        from + taken + resume(coding, &bytes[taken..], true).unwrap_or(bytes.len() - taken)
                    }
                    Some(_) => {
                        self.fault(Code::BadRelayRecord, block, "it ends inside a record".into());
                        self.damage();
                        payload.len()
                    }
                };
                (next < payload.len()).then_some(next)
            }
            Coding::Unknown => {
                self.damage();
                None
            }
        }
    }

    #[expect(clippy::too_many_arguments, reason = "the state of one decoding step, split over its owners")]
    fn sub_buffers<I: Items>(
        &mut self,
        payload: &[u8],
        from: usize,
        place: Place,
        shape: &PageShape,
        decoder: &Decoder,
        names: &mut Names,
        items: &mut I,
    ) -> Option<usize> {
        match shape.target.endian {
            Endian::Little => self.sub_buffers_in::<Little, I>(payload, from, place, shape, decoder, names, items),
            Endian::Big => self.sub_buffers_in::<Big, I>(payload, from, place, shape, decoder, names, items),
        }
    }

    #[expect(clippy::too_many_arguments, reason = "the state of one decoding step, split over its owners")]
    fn sub_buffers_in<O: Order, I: Items>(
        &mut self,
        payload: &[u8],
        mut from: usize,
        place: Place,
        shape: &PageShape,
        decoder: &Decoder,
        names: &mut Names,
        items: &mut I,
    ) -> Option<usize> {
        while !self.is_full() {
            let bytes = payload.get(from..).filter(|rest| !rest.is_empty())?;
            let sub_buffer = match SubBuffer::parse::<O>(shape, bytes) {
                Ok(sub_buffer) => sub_buffer,
                Err(error) => {
                    self.bad_sub_buffer(error, from, place);
                    return None;
                }
            };
            if let Some(missed) = sub_buffer.missed {
                self.mark(missed, sub_buffer.timestamp, items);
            }
            for record in sub_buffer.records::<O>() {
                let record = match record {
                    Ok(record) => record,
                    Err(error) => {
                        self.bad_sub_buffer(error, from, place);
                        break;
                    }
                };
                let at = self.key(record.time, place.offset);
                match decoder.decode::<O, I>(at, self.cpu, record.payload, names) {
                    Ok(event) => self.push(items, event, names),
                    Err(error) => self.bad_record(error, at, place, from, names, items),
                }
            }
            from += sub_buffer.stored;
        }
        (from < payload.len()).then_some(from)
    }

    #[cold]
    fn bad_record(
        &mut self,
        error: ShortRecord,
        at: u64,
        place: Place,
        from: usize,
        names: &mut Names,
        items: &mut impl Items,
    ) {
        self.place_fault(Code::BadRecord, place, format!("{}: {error}", place.sub_buffer(from)));
        self.damage();
        let event = Event::unreadable(at, self.cpu, names);
        self.push(items, event, names);
    }

    #[cold]
    fn bad_sub_buffer(&mut self, error: SubBufferError, from: usize, place: Place) {
        self.place_fault(Code::BadSubBuffer, place, format!("{}: {error}", place.sub_buffer(from)));
        self.damage();
    }

    #[cold]
    fn place_fault(&mut self, code: Code, place: Place, message: String) {
        self.facts.add(Fault { code, offset: place.offset, block: place.block, message });
    }

    /// Events were lost before a sub-buffer that starts at `timestamp`.
    #[cold]
    fn mark(&mut self, missed: Missed, timestamp: u64, items: &mut impl Items) {
        let to = self.last.map_or(timestamp, |last| last.max(timestamp));
        self.marks.count += 1;
        let lost = match missed {
            Missed::Counted(n) => {
                self.marks.counted = self.marks.counted.saturating_add(n);
                self.marks.longest = self.marks.longest.max((n, to));
                Some(n)
            }
            Missed::Uncounted => {
                self.marks.uncounted += 1;
                None
            }
        };
        self.push_gap(items, Gap { from: self.last, to: Some(to), cpu: self.cpu, lost, cause: GapCause::Overrun });
    }

    /// All of a data block was decoded: is it what its header says?
    fn end_of_data(&mut self, block: &Block) {
        let (says, has) = (u64::from(block.header.events.get()), self.facts.events - self.before_block);
        if !self.damaged && says != has {
            self.fault(
                Code::WrongTotals,
                block,
                format!("its header says that it has {says} events, and it has {has}"),
            );
        }
    }

    /// Decodes whole relay records; returns the bytes they took and what stands after them, `None` where the batch is full.
    fn relay_records(
        &mut self,
        bytes: &[u8],
        offset: u64,
        coding: &RelayCoding,
        names: &Names,
        items: &mut impl Items,
    ) -> (usize, Option<Parsed>) {
        match coding.endian {
            Endian::Little => self.relay_records_in::<Little>(bytes, offset, coding, names, items),
            Endian::Big => self.relay_records_in::<Big>(bytes, offset, coding, names, items),
        }
    }

    fn relay_records_in<O: Order>(
        &mut self,
        bytes: &[u8],
        offset: u64,
        coding: &RelayCoding,
        names: &Names,
        items: &mut impl Items,
    ) -> (usize, Option<Parsed>) {
        let mut taken = 0;
        while !self.is_full() {
            match relay::parse::<O>(coding.layout, &bytes[taken..]) {
                Parsed::Record(record, len) => {
                    let at = self.relay_key(&record, coding, offset + taken as u64);
                    self.push(items, relay_event(&record, at, self.cpu, &coding.names), names);
                    taken += len;
                }
                _ if taken == bytes.len() => return (taken, None),
                other => return (taken, Some(other)),
            }
        }
        (taken, None)
    }

    fn relay_key(&mut self, record: &RelayRecord, coding: &RelayCoding, offset: u64) -> u64 {
        if coding.layout != Layout::R4 {
            return self.key(record.stamp, offset);
        }
        let sequence = record.stamp as u32;
        let Some(last) = self.last else {
            return u64::from(coding.origin) + u64::from(sequence.wrapping_sub(coding.origin));
        };
        let step = sequence.wrapping_sub(last as u32).cast_signed();
        if step <= 0 {
            let message = format!("sequence number {sequence} follows {}", last as u32);
            self.facts.add(Fault { code: Code::BackInTime, offset, block: None, message });
        }
        last + u64::from(step.max(0).cast_unsigned())
    }

    /// Decodes some of a file of whole sub-buffers, as `cat` leaves them; says how it ended once it has.
    fn raw_sub_buffers(
        &mut self,
        window: &mut Window,
        shape: &PageShape,
        decoder: &Decoder,
        names: &mut Names,
        items: &mut impl Items,
    ) -> Option<Ending> {
        while !self.is_full() {
            let place = Place { offset: window.offset(), block: None };
            let bytes = window.fill(shape.size);
            let Some(whole) = bytes.get(..shape.size) else {
                if bytes.is_empty() {
                    return Some(Ending::Whole);
                }
                let message =
                    format!("ends inside the sub-buffer at byte {}; every earlier one is whole", place.offset);
                self.place_fault(Code::SubBufferCut, place, message);
                return Some(Ending::Cut);
            };
            match trimmed_len(shape, whole) {
                Ok(stored) => {
                    self.sub_buffers(&whole[..stored], 0, place, shape, decoder, names, items);
                }
                Err(error) => self.bad_sub_buffer(error, 0, place),
            }
            window.advance(shape.size);
        }
        None
    }

    /// Decodes some of a raw relay file; says how it ended once it has.
    fn raw_records(
        &mut self,
        window: &mut Window,
        coding: &Coding,
        names: &Names,
        items: &mut impl Items,
    ) -> Option<Ending> {
        const AT_ONCE: usize = 128 << 10;
        let Coding::Relay(coding) = coding else { return Some(Ending::Whole) };
        let offset = window.offset();
        let bytes = window.fill(AT_ONCE);
        let at_end = bytes.len() < AT_ONCE;
        let (taken, after) = self.relay_records(bytes, offset, coding, names, items);
        let rest = &bytes[taken..];
        let at = offset + taken as u64;
        let (skip, ending) = match after {
            None => (0, (at_end && rest.is_empty()).then_some(Ending::Whole)),
            Some(Parsed::Bad) => {
                if self.pending.is_none() {
                    let message = format!("no record at byte {at}");
                    self.facts.add(Fault { code: Code::BadRelayRecord, offset: at, block: None, message });
                    self.damage();
                }
                match resume(coding, rest, at_end) {
                    Some(skip) => (skip, None),
                    None if at_end => (rest.len(), Some(Ending::Damaged)),
                    // Three records convince, and they may straddle what is at hand: keep the tail.
                    None => (rest.len().saturating_sub(AT_ONCE / 2).max(1), None),
                }
            }
            Some(_) if at_end => {
                let message = format!("ends inside the record at byte {at}; every earlier record is whole");
                self.facts.add(Fault { code: Code::RelayCut, offset: at, block: None, message });
                (rest.len(), Some(Ending::Cut))
            }
            Some(_) => (0, None),
        };
        window.advance(taken + skip);
        ending
    }

    /// The file is read: what its counters and its ending say of loss.
    fn finish(&mut self, ending: Ending, items: &mut impl Items) {
        self.facts.last = self.last;
        let placed = self.marks.counted.saturating_add(self.marks.recorder);
        let counters = self.facts.counters.unwrap_or_default();
        // A relay channel's counter is one for all CPUs; who sees all of them tells what it means.
        let relay = self.facts.source == Some(Source::Relay);
        let counted = if relay { counters.recorder_lost.get() } else { counters.lost().saturating_add(self.taken) };
        let lost = counted.max(placed);
        // Without the kernel's counters only marks tell, and one of them may have no number.
        let raw = self.facts.version.is_none() && !relay;
        let told = !raw || self.facts.counters.is_some() || self.marks.uncounted == 0;
        self.facts.lost = (self.marks.unknown == 0 && told).then_some(lost);
        if self.facts.lost_before.is_none() && self.facts.gaps == 1 {
            // There was no room for the number, and the counters have it.
            self.facts.lost_before = self.facts.lost;
        }
        if raw && ending == Ending::Whole && !self.damaged {
            self.compare_with_stats();
        }
        let unmarked = if relay { 0 } else { counters.dropped.get().saturating_add(counters.commit_overrun.get()) };
        let vague = self.marks.uncounted + self.marks.unknown > 0;
        let unplaced = if vague { unmarked } else { counted.saturating_sub(placed) };
        if self.marks.count > 0 {
            let (longest, to) = self.marks.longest;
            let mut message = format!("{} events lost in {} gaps", lost - unplaced.min(lost), self.marks.count);
            if longest > 0 {
                let after = to.saturating_sub(self.facts.first.unwrap_or(to)) as f64 / 1e9;
                message += &format!(", the longest {longest} events, until {after:.6} s after the first event");
            }
            if self.marks.uncounted > 0 {
                message += &format!("; {} gaps have no number of their own", self.marks.uncounted);
            }
            self.facts.add(Fault { code: Code::Overrun, offset: 0, block: None, message });
        }
        if unplaced > 0 {
            let message = format!("{unplaced} more events lost, nobody knows where");
            self.facts.add(Fault { code: Code::Unplaced, offset: 0, block: None, message });
            self.pending.get_or_insert((GapCause::Counters, Some(unplaced)));
        }
        let cut = match ending {
            Ending::Whole => None,
            Ending::Cut => Some(GapCause::Cut),
            Ending::Damaged => Some(GapCause::Damage),
        };
        if cut.is_some() || self.pending.is_some() {
            self.gap(items, cut, None);
        }
        if lost > 0 || self.marks.unknown > 0 {
            self.facts.verdict = self.facts.verdict.max(Verdict::Lossy);
        }
    }
}

impl Cursor {
    /// Of a captured tree: stats are copied after the sub-buffers, or before.
    fn compare_with_stats(&mut self) {
        let Some(counters) = self.facts.counters else { return };
        let (read, unread) = (counters.read.get(), counters.unread.get());
        if ![read, read.saturating_add(unread)].contains(&self.facts.events) {
            let message =
                format!("stats count {read} events read and {unread} left, and {} are here", self.facts.events);
            self.facts.add(Fault { code: Code::UnlikeStats, offset: 0, block: None, message });
        }
    }
}

fn resume(coding: &RelayCoding, bytes: &[u8], at_end: bool) -> Option<usize> {
    match coding.endian {
        Endian::Little => relay::resume::<Little>(coding.layout, bytes, at_end),
        Endian::Big => relay::resume::<Big>(coding.layout, bytes, at_end),
    }
}

fn relay_event(record: &RelayRecord, at: u64, cpu: u32, names: &RelayNames) -> Event {
    let (alloc, free) = match record.kind {
        Kind::Kmalloc => names.0[0],
        Kind::Cache => names.0[1],
        Kind::Pages => names.0[2],
    };
    let allocation = record.allocation;
    Event {
        at,
        address: record.ptr,
        call_site: record.call_site,
        requested: allocation.map_or(0, |a| a.requested),
        allocated: allocation.map_or(0, |a| a.allocated),
        gfp: allocation.map(|a| a.gfp),
        cpu,
        pid: None,
        node: allocation.map(|a| a.node),
        cache: None,
        name: if allocation.is_some() { alloc } else { free },
        action: if allocation.is_some() { Action::Alloc(record.kind) } else { Action::Free(record.kind) },
        failed: allocation.is_some() && record.ptr == 0,
    }
}
