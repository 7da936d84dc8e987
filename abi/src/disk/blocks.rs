//! Reading a trace file block by block: finds damage and goes on after it, knows a cut from a corruption.
//!
//! One pass over a file or pipe, in a buffer no larger than its largest block. No number in the file makes
//! it reserve memory: the buffer grows only as bytes are really there.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};

use crate::codec::Decoder;
use crate::disk::block::{
    self, FLAG_OPTIONAL, FLAG_RECORDS, GAP_NOT_SENT, GapRecord, HEADER_BYTES, Header, LOST_UNKNOWN, MAGIC, Parsed,
    RecordingId, kind,
};
use crate::disk::expand::{Expander, is_stored_otherwise};
use crate::disk::feed::Feed;
use crate::disk::hole::{self, Zeros};
#[cfg(feature = "inputs")]
use crate::disk::part::Part;
use crate::disk::walk::{Known, Met, Walk, read_at};
use crate::fault::{Code, Fault};

/// Bytes asked of the system at once, at least and at most.
const CHUNK: std::ops::RangeInclusive<usize> = 128 << 10..=1 << 20;
/// At a file's beginning fewer will do: all of a small file, or the header with its formats (13 KB of a kernel's kmem events),
/// which is all that opening it takes.
const FIRST: usize = 16 << 10;
/// Bytes to have beyond those that are wanted: the next block's header, so that a block comes with one call and nothing
/// that was read is moved.
const AHEAD: usize = 256;
/// Zeros at the end of a file that a power cut leaves: at least a disk sector.
const SECTOR: usize = 512;

/// Origin of a window's bytes.
#[derive(Debug)]
enum Origin {
    File(File),
    Feed(Feed),
    #[cfg(feature = "inputs")]
    Part(Part),
}

impl Origin {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Origin::File(file) => file.read(bytes),
            Origin::Feed(feed) => Ok(feed.read(bytes)),
            #[cfg(feature = "inputs")]
            Origin::Part(part) => part.read(bytes),
        }
    }
}

/// Fills its buffer with the next bytes, unless they end.
pub(crate) type ReadAgain<'a> = dyn FnMut(&mut [u8]) -> io::Result<usize> + 'a;

/// The unread part of a file.
#[derive(Debug)]
pub(crate) struct Window {
    origin: Origin,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Offset of `start` in the file.
    offset: u64,
    eof: bool,
    /// Error that stopped reading, where it was not the end.
    error: Option<io::Error>,
    zeros: Zeros,
}

impl Window {
    pub(crate) fn new(file: File) -> Window {
        Window::of(Origin::File(file))
    }

    /// The bytes of a part of a file.
    #[cfg(feature = "inputs")]
    pub(crate) fn of_part(part: Part) -> Window {
        Window::of(Origin::Part(part))
    }

    fn of(origin: Origin) -> Window {
        let zeros = Zeros::default();
        Window { origin, buffer: Vec::new(), start: 0, end: 0, offset: 0, eof: false, error: None, zeros }
    }

    /// The bytes at hand, at least `want` of them unless the file ends before.
    pub(crate) fn fill(&mut self, want: usize) -> &[u8] {
        while !self.eof
            && let Some(lacking @ 1..) = want.checked_sub(self.bytes().len())
        {
            let least = if self.offset == 0 && self.end == 0 { FIRST } else { *CHUNK.start() };
            let ask = lacking.saturating_add(AHEAD).clamp(least, *CHUNK.end());
            if self.buffer.len().saturating_sub(self.end) < ask {
                self.buffer.copy_within(self.start..self.end, 0);
                self.end = self.end.saturating_sub(self.start);
                self.start = 0;
                self.buffer.resize(self.buffer.len().max(self.end.saturating_add(ask)), 0);
            }
            // The room was made above.
            let room = self.buffer.get_mut(self.end..).and_then(|room| room.get_mut(..ask)).unwrap_or_default();
            match self.origin.read(room) {
                Ok(0) => self.eof = true,
                Ok(n) => self.end = self.end.saturating_add(n),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => {
                    self.error = Some(e);
                    self.eof = true;
                }
            }
        }
        self.bytes()
    }

    /// The bytes at hand.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.buffer.get(self.start..self.end).unwrap_or_default()
    }

    pub(crate) fn advance(&mut self, by: usize) {
        let by = by.min(self.bytes().len());
        self.start = self.start.saturating_add(by);
        self.offset = self.offset.saturating_add(by as u64);
    }

    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// The file; `None` where the bytes come through a stream.
    pub(crate) fn file(&self) -> Option<&File> {
        match &self.origin {
            Origin::File(file) => Some(file),
            _ => None,
        }
    }

    /// The blocks of a stream; `None` where the bytes are a file's.
    fn feed(&self) -> Option<&Feed> {
        match &self.origin {
            Origin::Feed(feed) => Some(feed),
            _ => None,
        }
    }

    /// Another reader of the same bytes, from the first one on: each call fills its buffer unless the bytes end. The window does not
    /// notice. `None` where the bytes come through a stream.
    pub(crate) fn again(&self) -> Option<Box<ReadAgain<'_>>> {
        match &self.origin {
            Origin::File(file) => {
                let mut at = 0;
                Some(Box::new(move |bytes| {
                    let len = read_at(file, bytes, at)?;
                    at = at.saturating_add(len as u64);
                    Ok(len)
                }))
            }
            #[cfg(feature = "inputs")]
            Origin::Part(part) => {
                let mut part = part.again();
                Some(Box::new(move |bytes| part.fill_from(bytes)))
            }
            Origin::Feed(_) => None,
        }
    }

    /// Bytes of the file to read in all, and those that were read, about; `None` where the bytes come through a stream.
    pub(crate) fn stored(&self) -> Option<(u64, u64)> {
        match &self.origin {
            Origin::File(file) => Some((file.metadata().ok()?.len(), self.offset)),
            #[cfg(feature = "inputs")]
            Origin::Part(part) => Some((part.stored_len(), part.stored_read())),
            Origin::Feed(_) => None,
        }
    }

    /// The reason why reading stopped, where that was not the end of the file; given out once.
    pub(crate) fn take_error(&mut self) -> Option<io::Error> {
        self.error.take()
    }

    /// Goes on at `offset`.
    fn enter(&mut self, offset: u64) -> io::Result<()> {
        let Origin::File(file) = &mut self.origin else { return Err(io::ErrorKind::NotSeekable.into()) };
        file.seek(SeekFrom::Start(offset))?;
        (self.start, self.end, self.offset, self.eof) = (0, 0, offset, false);
        Ok(())
    }

    /// True if every byte from here to the end is 0 and there is one. Moves to the first byte that is not.
    fn only_zeros_left(&mut self) -> bool {
        let mut any = false;
        loop {
            let bytes = self.fill(1);
            if bytes.is_empty() {
                return any;
            }
            let zeros = bytes.iter().take_while(|&&b| b == 0).count();
            let all = zeros == bytes.len();
            any |= zeros > 0;
            self.advance(zeros);
            if !all {
                return false;
            }
            self.skip_hole(zeros, 1);
        }
    }

    /// Passes over the hole that begins here, once all bytes at hand are taken: a file of some kilobytes may have holes of TiB. The last
    /// `zeros` bytes were zeros. What is passed over is a multiple of `unit`; returns its bytes.
    pub(crate) fn skip_hole(&mut self, zeros: usize, unit: usize) -> u64 {
        let zeros = self.zeros.add(self.offset, zeros as u64);
        let Origin::File(file) = &self.origin else { return 0 };
        if self.start < self.end || self.eof {
            return 0;
        }
        let offset = self.offset;
        let data = match hole::behind(file, offset, zeros) {
            Ok(Some(data)) => data,
            Ok(None) => file.metadata().map_or(offset, |data| data.len()),
            Err(_) => return 0,
        };
        let len = data.saturating_sub(offset);
        let len = len.saturating_sub(len.checked_rem(unit as u64).unwrap_or(0));
        // Short holes are read: the file system may end one at every block.
        if len > *CHUNK.end() as u64 && self.enter(offset.saturating_add(len)).is_ok() { len } else { 0 }
    }
}

/// A block that was read; its payload is [`BlockReader::payload`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    pub(crate) header: Header,
    /// Offset of its header in the file, in bytes.
    pub(crate) offset: u64,
    /// Bytes or blocks before it are damaged or missing.
    pub(crate) damage_before: bool,
}

/// Ending of a file's blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// With an end block.
    Whole,
    /// Early.
    Cut,
    /// The last bytes are damaged.
    Damaged,
}

/// A header whose checksum is right, at the start of the window.
#[derive(Clone, Copy, Debug)]
struct FoundHeader {
    header: Header,
    /// Offset of the header in the file, in bytes.
    offset: u64,
    /// Bytes of the header.
    len: usize,
    /// Bytes of the block: header and stored payload.
    whole: usize,
    /// Length of the codec's output.
    coded_len: usize,
}

/// Blocks of a growing file or of a stream that are missing at one place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hole {
    /// Events in them, where the writer of a stream left them out and says how many; else `None`.
    pub events: Option<u64>,
    /// Times of their first and last event, on the trace's clock.
    pub span: Option<(u64, u64)>,
    /// The writer of a stream left them out.
    pub is_left_out: bool,
}

impl Hole {
    /// What a mark in a stream tells.
    fn of(gap: &GapRecord) -> Hole {
        let events = Some(gap.lost.get()).filter(|&lost| lost != LOST_UNKNOWN);
        let span = gap.interval.ends().map(|(from, to)| (from.unwrap_or(0), to.unwrap_or(u64::MAX)));
        Hole { events, span, is_left_out: true }
    }

    /// Both together.
    pub fn and(self, other: Hole) -> Hole {
        let span = match (self.span, other.span) {
            (Some((from, to)), Some((other_from, other_to))) => Some((from.min(other_from), to.max(other_to))),
            (one, other) => one.or(other),
        };
        Hole {
            events: self.events.zip(other.events).map(|(one, other)| one.saturating_add(other)),
            span,
            is_left_out: self.is_left_out || other.is_left_out,
        }
    }
}

/// Reads the blocks of one file.
#[derive(Debug)]
pub(crate) struct BlockReader {
    window: Window,
    /// Header length, recording and CPU of the file, once a whole header was seen.
    known: Option<Known>,
    /// Major version of the first block, where it is not ours.
    newer: Option<u16>,
    next_sequence: u64,
    blocks: u64,
    version: (u16, u16),
    /// Bytes of the current block, dropped when the next one is asked for.
    current: usize,
    /// Start and end of its payload in the window.
    payload: (usize, usize),
    expander: Expander,
    is_expanded: bool,
    /// Header of the current block, whose records are encoded.
    encoded: Option<Header>,
    ended: bool,
    /// Ending of the file, once it was met: its findings are reported only then.
    over: Option<Ending>,
    /// Bytes that were passed over.
    passed: u64,
    /// Blocks that were passed over since the last call of `take_hole`.
    hole: Option<Hole>,
}

impl BlockReader {
    pub(crate) fn new(file: File) -> BlockReader {
        BlockReader::of(Window::new(file))
    }

    /// Reader of the blocks of one file that come through a stream.
    pub(crate) fn of_feed(feed: Feed) -> BlockReader {
        BlockReader::of(Window::of(Origin::Feed(feed)))
    }

    fn of(window: Window) -> BlockReader {
        BlockReader {
            window,
            known: None,
            newer: None,
            next_sequence: 0,
            blocks: 0,
            version: (0, 0),
            current: 0,
            payload: (0, 0),
            expander: Expander::default(),
            is_expanded: false,
            encoded: None,
            ended: false,
            over: None,
            passed: 0,
            hole: None,
        }
    }

    /// Length of the headers, recording and CPU, once a whole header was seen.
    pub(crate) fn known(&self) -> Option<Known> {
        self.known
    }

    /// The recording that the blocks belong to.
    pub(crate) fn recording(&self) -> Option<RecordingId> {
        self.known.map(|(_, recording, _)| recording)
    }

    /// CPU that the blocks belong to.
    pub(crate) fn cpu(&self) -> Option<u32> {
        self.known.map(|(_, _, cpu)| cpu)
    }

    /// Format version of the last block.
    pub(crate) fn version(&self) -> (u16, u16) {
        self.version
    }

    /// The newer major version that the file is in.
    pub(crate) fn newer(&self) -> Option<u16> {
        self.newer
    }

    /// Whole blocks so far.
    pub(crate) fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Bytes read so far.
    pub(crate) fn bytes_read(&self) -> u64 {
        self.window.offset().saturating_sub(self.passed)
    }

    /// Bytes read so far, the current block included.
    pub(crate) fn bytes_met(&self) -> u64 {
        self.bytes_read().saturating_add(self.current as u64)
    }

    /// The file; `None` where the blocks come through a stream.
    pub(crate) fn file(&self) -> Option<&File> {
        self.window.file()
    }

    /// Goes on at block `sequence`, whose header is at `offset`.
    pub(crate) fn enter(&mut self, offset: u64, sequence: u64) -> io::Result<()> {
        self.passed = offset.saturating_sub(self.window.offset());
        self.window.enter(offset)?;
        (self.next_sequence, self.blocks) = (sequence, sequence);
        (self.current, self.ended, self.over) = (0, false, None);
        (self.is_expanded, self.encoded) = (false, None);
        Ok(())
    }

    /// True where the next block is whole by now, or no more is to be waited for: bytes that a writer has added since the last
    /// look count. The current block's payload is gone then.
    pub(crate) fn has_next(&mut self) -> bool {
        if self.ended || self.over.is_some() {
            return true;
        }
        self.window.advance(std::mem::take(&mut self.current));
        (self.is_expanded, self.encoded) = (false, None);
        self.window.eof = false;
        if let Some(is_open) = self.window.feed().map(Feed::is_open) {
            self.pass_over_left_out();
            // A stream hands over whole blocks alone.
            return !is_open || !self.window.fill(1).is_empty();
        }
        let header_len = self.known.map(|(len, ..)| len);
        let bytes = self.window.fill(header_len.unwrap_or(block::MAX_HEADER_BYTES));
        let is_whole = match block::parse(bytes, header_len) {
            Parsed::Header(header, len) => {
                let whole = header.block_bytes(len);
                self.window.fill(whole).len() >= whole
            }
            Parsed::Short(_) => false,
            Parsed::Bad if bytes.starts_with(&[0; MAGIC.len()]) => return self.pass_over_hole(),
            Parsed::Newer(_) | Parsed::Bad => true,
        };
        // A part of a block may be cut off again by its writer.
        is_whole || self.window.enter(self.window.offset()).is_err()
    }

    /// Passes over zeros: blocks that the writer has given back to the file system. As [`BlockReader::has_next`] then.
    fn pass_over_hole(&mut self) -> bool {
        while self.window.fill(1).first() == Some(&0) {
            let zeros = self.window.bytes().iter().take_while(|&&byte| byte == 0).count();
            self.window.advance(zeros);
            let offset = self.window.offset();
            let zeros = self.window.zeros.add(offset, zeros as u64);
            let Some(file) = self.window.file() else { return true };
            match hole::behind(file, offset, zeros) {
                Ok(Some(data)) if data > offset && self.window.enter(data).is_ok() => {}
                Ok(Some(_)) => {}
                // The writer goes on behind the hole.
                Ok(None) => break,
                Err(_) => return true,
            }
        }
        let header_len = self.known.map(|(len, ..)| len);
        match block::parse(self.window.fill(header_len.unwrap_or(block::MAX_HEADER_BYTES)), header_len) {
            Parsed::Header(header, _) => {
                self.next_sequence = header.sequence.get();
                self.hole = Some(Hole::default());
                self.has_next()
            }
            Parsed::Short(_) => self.window.enter(self.window.offset()).is_err(),
            Parsed::Newer(_) | Parsed::Bad => true,
        }
    }

    /// Passes over marks of blocks that the writer of the stream left out.
    fn pass_over_left_out(&mut self) {
        while let Some((whole, sequence, gap)) = self.left_out() {
            self.window.advance(whole);
            self.window.eof = false;
            self.next_sequence = sequence.wrapping_add(1);
            let hole = Hole::of(&gap);
            self.hole = Some(self.hole.map_or(hole, |before| before.and(hole)));
        }
    }

    /// The mark that stands here: its bytes, the number of the last block that was left out, and what it tells.
    fn left_out(&mut self) -> Option<(usize, u64, GapRecord)> {
        let header_len = self.known.map(|(len, ..)| len);
        let bytes = self.window.fill(header_len.unwrap_or(HEADER_BYTES));
        let Parsed::Header(header, len) = block::parse(bytes, header_len) else { return None };
        let sequence = header.sequence.get();
        if header.kind != kind::GAP || sequence < self.next_sequence {
            return None;
        }
        let whole = header.block_bytes(len);
        let payload = self.window.fill(whole).get(len..whole)?;
        let is_whole = block::crc32c(payload) == header.payload_crc.get();
        let (gap, _) = GapRecord::parse(payload).filter(|(gap, _)| is_whole && gap.reason.get() == GAP_NOT_SENT)?;
        Some((whole, sequence, gap))
    }

    /// Blocks that were passed over since the last call.
    pub(crate) fn take_hole(&mut self) -> Option<Hole> {
        self.hole.take()
    }

    /// Passes over the blocks that are there, up to the last whole one with events; false where that is none or the next one.
    pub(crate) fn skip_to_last(&mut self) -> io::Result<bool> {
        if let Some(feed) = self.window.feed() {
            // A mark stands for them.
            return Ok(feed.leave_out());
        }
        let Some((known, file)) = self.known.zip(self.window.file()) else { return Ok(false) };
        let from = self.window.offset().saturating_add(self.current as u64);
        let mut walk = Walk::at(file, known, from, self.next_sequence)?;
        let mut last = None;
        while let Some(met) = walk.next()? {
            last = Some(met).filter(|met| met.header.kind == kind::DATA).or(last);
        }
        let Some(Met { header, offset, .. }) = last.filter(|met| met.offset > from) else { return Ok(false) };
        let blocks = self.blocks;
        self.enter(offset, header.sequence.get())?;
        self.blocks = blocks;
        Ok(true)
    }

    /// Gives the memory of an expanded payload back; it is empty from now on.
    pub(crate) fn forget_payload(&mut self) {
        self.expander = Expander::default();
    }

    /// Encoded records of the current block and their decoder, which goes on where it was; `None` where they are not encoded.
    pub(crate) fn encoded(&mut self) -> Option<(&[u8], &mut Decoder)> {
        let header = self.encoded?;
        let stored = self.window.bytes().get(self.payload.0..self.payload.1).unwrap_or_default();
        Some(self.expander.records(stored, &header))
    }

    /// Puts the sub-buffers of encoded records together, up to damage in them: they are the payload then.
    pub(crate) fn rebuild(&mut self) {
        let Some(header) = self.encoded.take() else { return };
        let stored = self.window.bytes().get(self.payload.0..self.payload.1).unwrap_or_default();
        // A reader that takes the records tells of damage.
        let _ = self.expander.rebuild(stored, &header);
        self.is_expanded = true;
    }

    /// Payload of the current block, expanded; of encoded records, what is stored.
    pub(crate) fn payload(&self) -> &[u8] {
        if self.is_expanded {
            self.expander.payload()
        } else {
            self.window.bytes().get(self.payload.0..self.payload.1).unwrap_or_default()
        }
    }

    /// Reads on to the next whole block of this file, telling `faults` of what is wrong on the way.
    pub(crate) fn next(&mut self, faults: &mut dyn FnMut(Fault)) -> Result<Block, Ending> {
        if let Some(ending) = self.over {
            return Err(ending);
        }
        let next = self.read_next(faults);
        self.over = next.as_ref().err().copied();
        next
    }

    fn read_next(&mut self, faults: &mut dyn FnMut(Fault)) -> Result<Block, Ending> {
        self.window.advance(std::mem::take(&mut self.current));
        (self.is_expanded, self.encoded) = (false, None);
        let mut damage_before = false;
        loop {
            let Some(found) = self.find_header(damage_before, faults)? else {
                damage_before = true;
                continue;
            };
            if self.pass_over_foreign(&found, faults) || !self.take_in(&found, faults)? {
                damage_before = true;
                continue;
            }
            let FoundHeader { header, offset, len, whole, .. } = found;
            let sequence = header.sequence.get();
            if sequence != self.next_sequence {
                self.tell_out_of_sequence(&found, damage_before, faults);
                damage_before = true;
                if sequence < self.next_sequence {
                    self.window.advance(whole);
                    continue;
                }
            }
            self.next_sequence = sequence.wrapping_add(1);
            if !(kind::FILE_HEADER..=kind::WATERMARK).contains(&header.kind) {
                self.pass_over_unknown(&found, faults);
                damage_before |= header.flags & FLAG_OPTIONAL == 0;
                continue;
            }
            self.payload = (len, whole);
            if is_stored_otherwise(&header) && !self.expand_payload(&found, faults) {
                damage_before = true;
                continue;
            }
            self.current = whole;
            self.blocks = self.blocks.saturating_add(1);
            self.ended = header.kind == kind::END;
            return Ok(Block { header, offset, damage_before });
        }
    }

    /// The header at the start of the window; `None` where damage was passed over.
    fn find_header(
        &mut self,
        damage_before: bool,
        faults: &mut dyn FnMut(Fault),
    ) -> Result<Option<FoundHeader>, Ending> {
        let offset = self.window.offset();
        let header_len = self.known.map(|(len, ..)| len);
        let bytes = self.window.fill(header_len.unwrap_or(block::MAX_HEADER_BYTES));
        if bytes.is_empty() {
            return Err(self.end_of_file(damage_before, faults));
        }
        if self.ended {
            if self.window.only_zeros_left() {
                faults(zero_tail(offset, offset));
                return Err(Ending::Cut);
            }
            faults(fault(Code::AfterEnd, offset, None, "the end block is followed by more bytes".into()));
            return Err(Ending::Damaged);
        }
        match block::parse(bytes, header_len) {
            Parsed::Header(header, len) => {
                let whole = header.block_bytes(len);
                Ok(Some(FoundHeader { header, offset, len, whole, coded_len: block::coded_len(bytes) }))
            }
            Parsed::Newer(major) if self.known.is_none() => {
                self.newer = Some(major);
                Err(Ending::Damaged)
            }
            Parsed::Short(_) => {
                let there = bytes_there(bytes.len() as u64, header_len);
                faults(self.cut(offset, self.next_sequence, there));
                Err(Ending::Cut)
            }
            Parsed::Newer(_) | Parsed::Bad => self.skip_damage(offset, faults).map_or(Ok(None), Err),
        }
    }

    /// Passes over a block of another CPU or recording; true where it was one.
    fn pass_over_foreign(&mut self, found: &FoundHeader, faults: &mut dyn FnMut(Fault)) -> bool {
        let FoundHeader { header, offset, whole, .. } = found;
        let Some((_, recording, cpu)) = self.known else { return false };
        if header.recording == recording && header.cpu.get() == cpu {
            return false;
        }
        let sequence = header.sequence.get();
        let whose = if header.recording == recording {
            format!("block {sequence} belongs to CPU {}", header.cpu.get())
        } else {
            format!("block {sequence} belongs to another recording")
        };
        faults(fault(Code::Foreign, *offset, Some(sequence), whose));
        self.window.fill(*whole);
        self.window.advance(*whole);
        true
    }

    /// Reads all of a block; false where its checksum differs: it was passed over then.
    fn take_in(&mut self, found: &FoundHeader, faults: &mut dyn FnMut(Fault)) -> Result<bool, Ending> {
        let FoundHeader { header, offset, len, whole, .. } = *found;
        let sequence = header.sequence.get();
        let there = self.window.fill(whole).len();
        if there < whole {
            faults(self.cut(offset, sequence, bytes_there(there as u64, Some(whole))));
            return Err(Ending::Cut);
        }
        self.known.get_or_insert((len, header.recording, header.cpu.get()));
        self.version = (header.major.get(), header.minor.get());
        let stored = self.window.bytes().get(len..whole).unwrap_or_default();
        if block::crc32c(stored) == header.payload_crc.get() {
            return Ok(true);
        }
        let zeros = stored.iter().rev().take_while(|&&b| b == 0).count();
        self.window.advance(whole);
        let is_stored = self.window.file().is_some();
        if is_stored && zeros >= SECTOR && (self.window.fill(1).is_empty() || self.window.only_zeros_left()) {
            let message = format!("block {sequence} at byte {offset} ends in zeros; every earlier block is whole");
            faults(fault(Code::ZeroTail, offset, Some(sequence), message));
            return Err(Ending::Cut);
        }
        let resumes = self.window.offset();
        let message = format!("block {sequence} at byte {offset}: checksum differs; good data resumes at {resumes}");
        faults(fault(Code::BadPayload, offset, Some(sequence), message));
        self.next_sequence = sequence.wrapping_add(1);
        Ok(false)
    }

    fn tell_out_of_sequence(&self, found: &FoundHeader, damage_before: bool, faults: &mut dyn FnMut(Fault)) {
        let (sequence, offset) = (found.header.sequence.get(), found.offset);
        // The number of a damaged first block is not known to be missing twice.
        if !damage_before || sequence < self.next_sequence {
            let message = format!("block {sequence} at byte {offset} stands where block {} should", self.next_sequence);
            faults(fault(Code::OutOfSequence, offset, Some(sequence), message));
        }
    }

    /// Passes over a block of a kind that only newer writers know.
    fn pass_over_unknown(&mut self, found: &FoundHeader, faults: &mut dyn FnMut(Fault)) {
        let FoundHeader { header, offset, whole, .. } = found;
        let sequence = header.sequence.get();
        let code = if header.flags & FLAG_OPTIONAL == 0 { Code::BadHeader } else { Code::UnknownBlock };
        let message = format!("block {sequence} at byte {offset} is of kind {}, which is not known here", header.kind);
        faults(fault(code, *offset, Some(sequence), message));
        self.blocks = self.blocks.saturating_add(1);
        self.window.advance(*whole);
    }

    /// Expands the payload of a block, or begins its records; false where nothing of it comes back: the block was passed over then.
    fn expand_payload(&mut self, found: &FoundHeader, faults: &mut dyn FnMut(Fault)) -> bool {
        let FoundHeader { header, offset, len, whole, coded_len } = *found;
        let stored = self.window.bytes().get(len..whole).unwrap_or_default();
        let is_encoded = header.flags & FLAG_RECORDS != 0;
        let expanded = match is_encoded {
            true => self.expander.begin_records(&header, coded_len, stored),
            false => self.expander.expand(&header, stored),
        };
        match expanded {
            Ok(()) => (self.is_expanded, self.encoded) = (!is_encoded, is_encoded.then_some(header)),
            Err(code) => {
                faults(fault(code, offset, Some(header.sequence.get()), not_expanded(code, offset, &header)));
                self.window.advance(whole);
            }
        }
        expanded.is_ok()
    }

    fn end_of_file(&mut self, damage_before: bool, faults: &mut dyn FnMut(Fault)) -> Ending {
        let offset = self.window.offset();
        if let Some(error) = self.window.take_error() {
            let message = format!("cannot be read beyond byte {offset}: {error}");
            faults(fault(Code::CutInBlock, offset, None, message));
            return Ending::Cut;
        }
        if self.ended {
            return Ending::Whole;
        }
        if damage_before {
            return Ending::Damaged;
        }
        if offset == 0 {
            faults(fault(Code::Empty, 0, None, "the file has no bytes".into()));
        } else {
            let blocks = self.blocks;
            let message =
                format!("ends after block {} without an end block; all {blocks} are whole", blocks.saturating_sub(1));
            faults(fault(Code::NoEnd, offset, None, message));
        }
        Ending::Cut
    }

    fn cut(&self, offset: u64, sequence: u64, there: String) -> Fault {
        let read_error = self.window.error.as_ref().map(|e| format!(" ({e})")).unwrap_or_default();
        let message =
            format!("ends inside block {sequence} at byte {offset}: {there}{read_error}; every earlier block is whole");
        fault(Code::CutInBlock, offset, Some(sequence), message)
    }

    /// No header stands here. Moves to the next one, or says how the file ends.
    fn skip_damage(&mut self, offset: u64, faults: &mut dyn FnMut(Fault)) -> Option<Ending> {
        // A power cut leaves nothing but zeros, or the first bytes of a header and then zeros.
        let bytes = self.window.fill(MAGIC.len());
        let prefix = if bytes.starts_with(&MAGIC) {
            bytes.iter().take(HEADER_BYTES).rposition(|&b| b != 0).map_or(0, |last| last.saturating_add(1))
        } else {
            0
        };
        self.window.advance(prefix);
        let zeros_from = self.window.offset();
        if self.window.only_zeros_left()
            && (prefix == 0 || self.window.offset().saturating_sub(zeros_from) >= SECTOR as u64)
        {
            faults(zero_tail(offset, zeros_from));
            return Some(Ending::Cut);
        }
        if self.window.offset() == offset {
            self.window.advance(1);
        }
        let found = self.resume();
        let code = if self.known.is_none() && self.next_sequence == 0 { Code::BadFileHeader } else { Code::BadHeader };
        let message = match found {
            true => format!("no whole block header at byte {offset}; good data resumes at {}", self.window.offset()),
            false => format!("no whole block header at byte {offset}, and none after it"),
        };
        faults(fault(code, offset, None, message));
        (!found).then_some(Ending::Damaged)
    }

    /// Moves to the next whole header.
    fn resume(&mut self) -> bool {
        loop {
            let bytes = self.window.fill(block::MAX_HEADER_BYTES);
            let there = bytes.len();
            if there < HEADER_BYTES {
                self.window.advance(there);
                return false;
            }
            let Some(at) = bytes.iter().position(|&b| b == MAGIC[0]) else {
                let zeros = bytes.iter().all(|&byte| byte == 0);
                self.window.advance(there);
                if zeros {
                    self.window.skip_hole(there, 1);
                }
                continue;
            };
            let found = bytes.get(at..).is_some_and(|rest| rest.starts_with(&MAGIC));
            self.window.advance(at);
            if found {
                let header_len = self.known.map(|(len, ..)| len);
                let parsed = block::parse(self.window.fill(block::MAX_HEADER_BYTES), header_len);
                if let Parsed::Header(header, _) = parsed
                    && self.known.is_none_or(|(_, recording, _)| recording == header.recording)
                {
                    return true;
                }
            }
            self.window.advance(1);
        }
    }
}

fn bytes_there(there: u64, of: Option<usize>) -> String {
    match of {
        Some(of) => format!("{there} of its {of} bytes are there"),
        None => format!("{there} of its bytes are there"),
    }
}

/// A file that ends in zeros: those behind `offset`, but for what of a header may stand before `zeros_from`.
fn zero_tail(offset: u64, zeros_from: u64) -> Fault {
    let message = format!("nothing but zeros from byte {zeros_from} on; every earlier block is whole");
    fault(Code::ZeroTail, offset, None, message)
}

fn fault(code: Code, offset: u64, block: Option<u64>, message: String) -> Fault {
    Fault { code, offset, block, message }
}

/// Message about a compressed block that is left out.
fn not_expanded(code: Code, offset: u64, header: &Header) -> String {
    let sequence = header.sequence.get();
    match code {
        Code::NeedsZstd => format!(
            "block {sequence} at byte {offset} is compressed, and this program is built without zstd: build kmemtrace-abi with its \
             feature `zstd`"
        ),
        _ => format!("block {sequence} at byte {offset} does not expand to {} bytes", header.raw_len),
    }
}

#[cfg(all(test, not(feature = "zstd")))]
mod without_zstd {
    use std::io::Write;

    use super::*;
    use crate::disk::block::{BlockInfo, FLAG_ZSTD, block};

    #[test]
    fn a_compressed_block_is_left_out_with_its_remedy() {
        let of = |sequence, flags| {
            block(&BlockInfo { kind: kind::COUNTERS, sequence, flags, ..BlockInfo::default() }, b"payload")
        };
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[of(0, 0), of(1, FLAG_ZSTD), of(2, 0)].concat()).unwrap();
        std::io::Seek::rewind(&mut file).unwrap();
        let mut reader = BlockReader::new(file);
        let mut found = Vec::new();
        assert!(reader.next(&mut |fault| found.push(fault)).is_ok_and(|block| !block.damage_before));
        let next = reader.next(&mut |fault| found.push(fault)).unwrap();
        assert!(next.damage_before && next.header.sequence.get() == 2);
        let [fault] = &found[..] else { panic!("{found:?}") };
        assert_eq!((fault.code, fault.block), (Code::NeedsZstd, Some(1)));
        assert!(fault.message.contains("build kmemtrace-abi with its feature `zstd`"), "{}", fault.message);
    }
}

#[cfg(test)]
mod tests;
