//! The frame around everything in a trace file: a block is a header, then a payload.
//!
//! All numbers of the frame are little endian, whatever machine was traced. Byte by byte: `FORMAT.md`.

use std::mem::offset_of;

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::kernel::format::MAX_SUB_BUFFER_BYTES;
use crate::kernel::stats::Stats;

/// The bytes every block starts with: found again after damage, changed by a text-mode copy.
pub const MAGIC: [u8; 8] = *b"\x89kmTRC\r\n";

/// Largest format version that this code reads. A reader refuses a greater major one.
pub const MAJOR: u16 = Major::Two.number();
/// Additions that old readers may skip.
pub const MINOR: u16 = 9;

/// Bytes of a block header in major version 1.
pub const HEADER_BYTES: usize = size_of::<Header>();
/// No header, of any version, is longer.
pub const MAX_HEADER_BYTES: usize = 512;
/// No payload is longer, stored or expanded: a block has at least one sub-buffer.
pub const MAX_PAYLOAD_BYTES: usize = MAX_SUB_BUFFER_BYTES;

/// Major versions of the format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Major {
    /// Without encoded records. Streams are in this version.
    #[default]
    One,
    /// Records may be encoded ([`FLAG_RECORDS`]); a header gives the length of what the codec made of them.
    Two,
}

impl Major {
    /// `Header::major`.
    pub const fn number(self) -> u16 {
        match self {
            Major::One => 1,
            Major::Two => 2,
        }
    }

    /// Bytes of a header.
    pub const fn header_bytes(self) -> usize {
        match self {
            Major::One => HEADER_BYTES,
            Major::Two => HEADER_BYTES.saturating_add(size_of::<U32>()),
        }
    }

    fn of(number: u16) -> Option<Major> {
        [Major::One, Major::Two].into_iter().find(|major| major.number() == number)
    }
}

/// `Header::cpu` of a file that belongs to no CPU (`meta.out`).
pub const NO_CPU: u32 = u32::MAX;

/// Ties the files of one recording together: 16 random bytes.
pub type RecordingId = [u8; 16];

/// Block kinds. Numbers are never reused.
pub mod kind {
    /// Tells how to decode the rest; the first block of every file. Payload: items.
    pub const FILE_HEADER: u8 = 1;
    /// Payload: the kernel's bytes: trimmed sub-buffers, or whole relay records.
    pub const DATA: u8 = 2;
    /// Payload: [`GapRecord`](super::GapRecord), then a text for people: loss without a mark in the kernel's bytes.
    pub const GAP: u8 = 3;
    /// Payload: [`CounterSample`](super::CounterSample): the kernel's counters at this moment.
    pub const COUNTERS: u8 = 4;
    /// Payload: items that name things (symbols, modules, comms, ...).
    pub const META: u8 = 5;
    /// Payload: [`End`](super::End). The last block of a finished file.
    pub const END: u8 = 6;
    /// Payload: [`Watermark`](super::Watermark): no earlier event of this CPU comes in a later block. Optional.
    pub const WATERMARK: u8 = 7;
}

/// `Header::flags`: a reader that does not know the kind may skip the block.
pub const FLAG_OPTIONAL: u8 = 1;
/// `Header::flags`: the payload is stored as one zstd frame of `raw_len` bytes.
pub const FLAG_ZSTD: u8 = 2;
/// `Header::flags`: the records of the sub-buffers are [encoded](crate::codec); with [`FLAG_ZSTD`] the frame is of the codec's output.
/// Only in [`kind::DATA`], from major version 2 on.
pub const FLAG_RECORDS: u8 = 4;

/// A block header of major version 1, 96 bytes. In major version 2 the length of the codec's output follows, a u32; 0 without
/// [`FLAG_RECORDS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Header {
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// CRC-32C of the header from `header_len` (offset 12) to its end.
    pub header_crc: U32,
    /// Bytes of this header, the same in all blocks of a file; longer in later minor versions.
    pub header_len: U16,
    /// Format version: a reader refuses a greater one than its own.
    pub major: U16,
    /// Format version: a reader skips what it does not know.
    pub minor: U16,
    /// See [`kind`].
    pub kind: u8,
    /// `FLAG_*`; unknown bits are 0.
    pub flags: u8,
    /// CPU whose file this is, or [`NO_CPU`].
    pub cpu: U32,
    /// Ties the files of one recording together.
    pub recording: RecordingId,
    /// Number of this block in its file, from 0 without holes.
    pub sequence: U64,
    /// Event records in the file before this block.
    pub events_before: U64,
    /// Events known to be lost on this CPU before this block: counted marks; a writer may add the numbers of gap blocks.
    pub lost_before: U64,
    /// Time of the first and last event record in this block; both 0 where it has none.
    pub first: U64,
    /// See `first`.
    pub last: U64,
    /// Event records in this block.
    pub events: U32,
    /// Bytes stored after this header.
    pub payload_len: U32,
    /// Bytes of the payload when expanded; equals `payload_len` where it is not compressed.
    pub raw_len: U32,
    /// CRC-32C of the stored payload.
    pub payload_crc: U32,
}

impl Header {
    /// Bytes of the block: its header, which has `header_len`, and the payload.
    pub(crate) fn block_bytes(&self, header_len: usize) -> usize {
        header_len.saturating_add(self.payload_len.get() as usize)
    }
}

/// Offset from which `header_crc` counts.
const CRC_FROM: usize = 12;

/// Header fields that the writer of a block chooses; the rest of the header follows from the payload.
#[derive(Clone, Copy, Debug, Default)]
pub struct BlockInfo {
    /// Version of the header.
    pub major: Major,
    /// See [`kind`].
    pub kind: u8,
    /// `FLAG_*`.
    pub flags: u8,
    /// CPU or [`NO_CPU`].
    pub cpu: u32,
    /// The recording.
    pub recording: RecordingId,
    /// Number in the file.
    pub sequence: u64,
    /// Events before it in the file.
    pub events_before: u64,
    /// Known losses before it.
    pub lost_before: u64,
    /// Time of the first event.
    pub first: u64,
    /// Time of the last event.
    pub last: u64,
    /// Events in it.
    pub events: u32,
}

/// Fills in the header at the start of `block`: room of [`Major::header_bytes`], then the payload as it is stored.
///
/// `raw_len` is the expanded length where the payload is compressed.
///
/// # Panics
/// If `block` has no room for a header or its payload is over [`MAX_PAYLOAD_BYTES`]: the caller's bug.
pub fn seal(block: &mut [u8], info: &BlockInfo, raw_len: Option<usize>) {
    seal_records(block, info, raw_len, 0);
}

/// Like [`seal`], for a block whose records are encoded in `coded_len` bytes; 0 if they are not.
///
/// # Panics
/// As [`seal`].
pub fn seal_records(block: &mut [u8], info: &BlockInfo, raw_len: Option<usize>, coded_len: usize) {
    assert!(block.len() >= info.major.header_bytes(), "no room for a block header");
    let (room, payload) = block.split_at_mut(info.major.header_bytes());
    let raw_len = raw_len.unwrap_or(payload.len());
    assert!(payload.len() <= MAX_PAYLOAD_BYTES && raw_len <= MAX_PAYLOAD_BYTES, "payload too long");
    let header = Header {
        magic: MAGIC,
        header_crc: U32::ZERO,
        header_len: U16::ZERO,
        major: U16::ZERO,
        minor: U16::new(MINOR),
        kind: info.kind,
        flags: info.flags,
        cpu: U32::new(info.cpu),
        recording: info.recording,
        sequence: U64::new(info.sequence),
        events_before: U64::new(info.events_before),
        lost_before: U64::new(info.lost_before),
        first: U64::new(info.first),
        last: U64::new(info.last),
        events: U32::new(info.events),
        payload_len: U32::new(payload.len() as u32),
        raw_len: U32::new(raw_len as u32),
        payload_crc: U32::new(crc32c(payload)),
    };
    put_header(room, header, info.major, coded_len);
}

/// Fills `room`, which has the bytes of a header of the major version.
#[expect(clippy::indexing_slicing, reason = "the fields have their places in a header")]
fn put_header(room: &mut [u8], mut header: Header, major: Major, coded_len: usize) {
    header.header_len = U16::new(major.header_bytes() as u16);
    header.major = U16::new(major.number());
    let (own, more) = room.split_at_mut(HEADER_BYTES);
    own.copy_from_slice(header.as_bytes());
    if let Some(coded) = more.first_chunk_mut() {
        *coded = (coded_len as u32).to_le_bytes();
    }
    let crc = crc32c(&room[CRC_FROM..]);
    room[offset_of!(Header, header_crc)..][..size_of::<U32>()].copy_from_slice(&crc.to_le_bytes());
}

/// A block, or the start of one, with its header as the major version has it; the payload stays as it is, damaged or not. `None`
/// where no whole header of this program's begins the bytes.
pub fn in_major(block: &[u8], major: Major) -> Option<Vec<u8>> {
    let (header, len) = own_header(block)?;
    let mut bytes = vec![0; major.header_bytes()];
    put_header(&mut bytes, header, major, coded_len(block));
    bytes.extend_from_slice(block.get(len..)?);
    Some(bytes)
}

/// The header at the start of `bytes` and its length, where this program writes such headers.
pub(crate) fn own_header(bytes: &[u8]) -> Option<(Header, usize)> {
    let Parsed::Header(header, len) = parse(bytes, None) else { return None };
    (Major::of(header.major.get())?.header_bytes() == len).then_some((header, len))
}

/// Length of the codec's output in the header at the start of `bytes`; 0 where it does not tell one.
pub(crate) fn coded_len(header: &[u8]) -> usize {
    let is_told = matches!(parse_major(header), Some(Major::Two));
    let len = header.get(HEADER_BYTES..).and_then(<[u8]>::first_chunk).filter(|_| is_told);
    len.map_or(0, |len| u32::from_le_bytes(*len) as usize)
}

fn parse_major(header: &[u8]) -> Option<Major> {
    let number = header.get(offset_of!(Header, major)..)?.first_chunk()?;
    Major::of(u16::from_le_bytes(*number))
}

/// The CRC-32C (Castagnoli polynomial; RFC 3720, section 12.1) of `bytes`: all checksums of the format are of this kind.
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// A whole block around `payload`.
pub fn block(info: &BlockInfo, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; info.major.header_bytes()];
    bytes.extend_from_slice(payload);
    seal(&mut bytes, info, None);
    bytes
}

/// Kinds of bytes at the start of a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parsed {
    /// A header that is whole, and its length.
    Header(Header, usize),
    /// Start of a header; this many bytes are needed in all.
    Short(usize),
    /// A whole header of a major version that is not known here.
    Newer(u16),
    /// Not a header, or a damaged one.
    Bad,
}

/// Parses a header. `header_len` is that of the file's first block, where that is known: no other
/// is taken, so that a flipped length is not taken for a cut.
pub(crate) fn parse(bytes: &[u8], header_len: Option<usize>) -> Parsed {
    if bytes.iter().zip(&MAGIC).any(|(byte, of_magic)| byte != of_magic) {
        return Parsed::Bad;
    }
    let Ok((header, _)) = Header::read_from_prefix(bytes) else {
        return Parsed::Short(HEADER_BYTES);
    };
    let len = usize::from(header.header_len.get());
    if !(HEADER_BYTES..=MAX_HEADER_BYTES).contains(&len) || header_len.is_some_and(|known| known != len) {
        return Parsed::Bad;
    }
    let Some(covered) = bytes.get(CRC_FROM..len) else {
        return Parsed::Short(len);
    };
    if crc32c(covered) != header.header_crc.get() {
        return Parsed::Bad;
    }
    match Major::of(header.major.get()) {
        None => return Parsed::Newer(header.major.get()),
        Some(major) if len < major.header_bytes() => return Parsed::Bad,
        Some(_) => {}
    }
    if header.payload_len.get() as usize > MAX_PAYLOAD_BYTES || header.raw_len.get() as usize > MAX_PAYLOAD_BYTES {
        return Parsed::Bad;
    }
    Parsed::Header(header, len)
}

/// Reads a payload that has grown in later minor versions: bytes that it does not have yet are 0. `None` below `least` bytes.
fn read_grown<T: FromBytes + IntoBytes>(payload: &[u8], least: usize) -> Option<T> {
    let mut value = T::new_zeroed();
    let bytes = value.as_mut_bytes();
    let len = payload.len().min(bytes.len());
    if len < least {
        return None;
    }
    bytes.get_mut(..len)?.copy_from_slice(payload.get(..len)?);
    Some(value)
}

/// An interval on the trace's clock, both ends rounded outwards; from minor version 1 on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Interval {
    /// The start; 0: the start of the trace.
    pub from: U64,
    /// The end; 0: the interval is not known, all ones: the end of the trace.
    pub to: U64,
}

impl Interval {
    /// `to` of an interval that goes to the end of the trace.
    pub const TO_THE_END: u64 = u64::MAX;

    /// From `from` to `to`.
    pub fn new(from: u64, to: u64) -> Interval {
        Interval { from: from.into(), to: to.into() }
    }

    /// Both ends, as a gap has them: `None` for the start and the end of the trace. The whole is `None` where the interval is not
    /// known.
    pub fn ends(&self) -> Option<(Option<u64>, Option<u64>)> {
        let (from, to) = (self.from.get(), self.to.get());
        (to != 0).then(|| (Some(from).filter(|&from| from != 0), Some(to).filter(|&to| to != Interval::TO_THE_END)))
    }
}

/// Payload of [`kind::COUNTERS`]: the counters, and when they grew.
///
/// A block is written where `dropped + commit_overrun`, `overrun` or what other readers took has grown since the last sample.
/// Other readers took `read` less `Header::events_before` less `recorder_lost`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct CounterSample {
    /// The counters.
    pub counters: Counters,
    /// From the sample before (which need not have a block) to this one. Not known in relay streams and in minor version 0.
    pub grew: Interval,
}

impl CounterSample {
    /// The sample in a payload of any minor version; `None` where it is cut short.
    pub fn parse(payload: &[u8]) -> Option<CounterSample> {
        read_grown(payload, size_of::<Counters>())
    }
}

/// `per_cpu/cpuN/stats` since the recording began, in events.
///
/// Relay: `overrun` of the lowest CPU's file holds `total_overruns`, which is one number for all CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Counters {
    /// Overwritten before they were read.
    pub overrun: U64,
    /// Refused because nested writers wrapped the buffer.
    pub commit_overrun: U64,
    /// Refused because the buffer was full (no-overwrite mode). In an END block also those that were left in the buffer, because
    /// it could not be read to its end.
    pub dropped: U64,
    /// Consumed by a reader.
    pub read: U64,
    /// In the buffer and not read.
    pub unread: U64,
    /// Read by the recorder and not written to the file.
    pub recorder_lost: U64,
}

impl Counters {
    /// Events that the kernel lost.
    pub fn kernel_lost(&self) -> u64 {
        self.overrun.get().saturating_add(self.commit_overrun.get()).saturating_add(self.dropped.get())
    }

    /// Events lost by kernel and recorder.
    pub fn lost(&self) -> u64 {
        self.kernel_lost().saturating_add(self.recorder_lost.get())
    }
}

impl Stats {
    /// Counters since the start, where the buffer was last reset at `base`.
    pub fn after(&self, base: &Counters) -> Counters {
        Counters {
            overrun: base.overrun.get().saturating_add(self.overrun).into(),
            commit_overrun: base.commit_overrun.get().saturating_add(self.commit_overrun).into(),
            dropped: base.dropped.get().saturating_add(self.dropped).into(),
            read: base.read.get().saturating_add(self.read).into(),
            unread: self.entries.into(),
            recorder_lost: base.recorder_lost,
        }
    }
}

/// Payload of [`kind::END`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct End {
    /// The final counters.
    pub counters: Counters,
    /// Event records in the file.
    pub events: U64,
    /// Blocks before this one.
    pub blocks: U64,
    /// Time of the first event record; 0 where there is none.
    pub first: U64,
    /// Time of the last event record.
    pub last: U64,
    /// The reason why it ended: see `END_*`.
    pub reason: U32,
    /// COUNTERS and GAP blocks of the file that have an [`Interval`]: where it is 0 (as in minor version 0) and `grew` has no
    /// loss of its own, no gap needs to be looked for before the events are read.
    pub timed: U32,
    /// From the sample before the final counters to these.
    pub grew: Interval,
    /// See `MARKS_*`. The first recorders of minor version 1 did not write it.
    pub marks: U32,
    /// 0.
    pub reserved: U32,
}

impl End {
    /// Bytes of the payload in minor version 0.
    const BYTES_IN_0: usize = offset_of!(End, grew);
    /// Bytes of the payload of the first recorders of minor version 1.
    const BYTES_WITHOUT_MARKS: usize = offset_of!(End, marks);

    /// The totals in a payload of any minor version; `None` where it is cut short.
    pub fn parse(payload: &[u8]) -> Option<End> {
        read_grown(payload, End::BYTES_IN_0)
    }

    /// The end block that a finished file ends with, from the file's last bytes: at least [`End::TAIL_BYTES`] of them, or all.
    pub fn at_end_of(tail: &[u8]) -> Option<End> {
        End::with_header(tail).map(|(_, end)| end)
    }

    /// End block and its header, from the file's last bytes.
    pub(crate) fn with_header(tail: &[u8]) -> Option<(Header, End)> {
        let lengths = [size_of::<End>(), End::BYTES_WITHOUT_MARKS, End::BYTES_IN_0];
        let forms =
            [Major::One, Major::Two].into_iter().flat_map(|major| lengths.map(|len| (major.header_bytes(), len)));
        forms.into_iter().find_map(|(header_bytes, len)| {
            let from = tail.len().checked_sub(header_bytes.checked_add(len)?)?;
            let block = tail.get(from..)?;
            let (header, found) = own_header(block)?;
            let payload = block.get(header_bytes..)?;
            let whole = found == header_bytes
                && header.kind == kind::END
                && header.payload_len.get() as usize == payload.len()
                && header.payload_crc.get() == crc32c(payload);
            whole.then(|| End::parse(payload)).flatten().map(|end| (header, end))
        })
    }

    /// Bytes of a file's end that hold its end block.
    pub const TAIL_BYTES: usize = Major::Two.header_bytes() + size_of::<End>();
}

/// `End::reason`: a signal, or the command ended.
pub const END_ASKED: u32 = 0;
/// `End::reason`: `--duration` or `--max-size` was reached.
pub const END_LIMIT: u32 = 1;
/// `End::reason`: an error (disk full, instance gone).
pub const END_ERROR: u32 = 2;

/// `End::marks`: the recorder does not say if every mark of the sub-buffers has a count.
pub const MARKS_UNKNOWN: u32 = 0;
/// `End::marks`: every mark has a count, or there is none. Overrun beyond `Header::lost_before` was lost at no known time.
pub const MARKS_COUNTED: u32 = 1;
/// `End::marks`: a mark lacks its count, so overrun beyond the counted marks may have been lost there.
pub const MARKS_VAGUE: u32 = 2;

/// Payload of [`kind::GAP`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct GapRecord {
    /// Events lost, or [`LOST_UNKNOWN`].
    pub lost: U64,
    /// See `GAP_*`.
    pub reason: U32,
    /// 0.
    pub reserved: U32,
    /// When they were lost. Not known in minor version 0 and in relay streams: there, and with [`GAP_NOT_WRITTEN`], the gap is where
    /// the block stands.
    pub interval: Interval,
}

impl GapRecord {
    /// Bytes of the record in minor version 0.
    const BYTES_IN_0: usize = size_of::<GapRecord>() - size_of::<Interval>();

    /// The record in a payload of any minor version, and the text after it; `None` where it is cut short.
    pub fn parse(payload: &[u8]) -> Option<(GapRecord, &[u8])> {
        let record = read_grown(payload, GapRecord::BYTES_IN_0)?;
        Some((record, payload.get(size_of::<GapRecord>()..).unwrap_or_default()))
    }
}

/// Payload of [`kind::WATERMARK`]: a reader of several CPUs need not wait for this one before `time`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Watermark {
    /// Nanoseconds on the trace's clock: event records of later blocks of this CPU have this time or a later one.
    pub time: U64,
    /// Most bytes that the recorder has taken from the kernel's buffer in one round since the watermark before, in thousandths of the
    /// buffer, plus 1; 0: not known. From minor version 7 on.
    pub filled: U32,
    /// 0.
    pub reserved: U32,
}

impl Watermark {
    /// Bytes of the payload in minor version 6.
    const BYTES_IN_6: usize = size_of::<U64>();

    /// Watermark at `time`; `filled`: thousandths of the kernel's buffer.
    pub fn new(time: u64, filled: Option<u32>) -> Watermark {
        let filled = filled.map_or(0, |filled| filled.min(1000).saturating_add(1));
        Watermark { time: time.into(), filled: filled.into(), reserved: 0.into() }
    }

    /// Thousandths of the kernel's buffer that were full; `None` where that is not known.
    pub fn filled(&self) -> Option<u32> {
        self.filled.get().checked_sub(1).map(|filled| filled.min(1000))
    }

    /// The watermark in a payload of any minor version; `None` where it is cut short.
    pub fn parse(payload: &[u8]) -> Option<Watermark> {
        read_grown(payload, Watermark::BYTES_IN_6)
    }
}

/// `GapRecord::lost`: the number is not known.
pub const LOST_UNKNOWN: u64 = u64::MAX;
/// `GapRecord::reason`: another program cleared or changed the buffer.
pub const GAP_CLEARED: u32 = 1;
/// `GapRecord::reason`: the recorder could not write what it had read.
pub const GAP_NOT_WRITTEN: u32 = 2;
/// `GapRecord::reason`: a relay channel was full. It counts what it drops on all CPUs together, so this is in the lowest
/// CPU's file, where the number was seen to have grown.
pub const GAP_FULL: u32 = 3;
/// `GapRecord::reason`: another program changed what is recorded (tracing switched off, an event disabled, a filter set, ...); the
/// text names the file. The recorder writes the record when it sees the change, to the end of the trace, and again with its end
/// once the state is right again: of records with the same start the last one counts.
pub const GAP_FOREIGN: u32 = 4;
/// `GapRecord::reason`: the end of the kernel's buffer could not be read or counted, so loss from then on is not known; the text has the
/// reason.
pub const GAP_UNCOUNTED: u32 = 5;
/// `GapRecord::reason`: the reader of a stream was too slow for blocks, which are in the recording's files where it has any. The block
/// is in streams alone and has the number of the last block that was left out; its interval is that of their events.
pub const GAP_NOT_SENT: u32 = 6;

/// Items: how a file header or meta payload holds its parts. Each is tag u16, flags u16, length u32, bytes.
pub mod item {
    /// Byte order u8 (1 little, 2 big), word bytes u8, u16 0, page bytes u32.
    pub const TARGET: u16 = 1;
    /// Text: `tracefs` or `relay`.
    pub const SOURCE: u16 = 2;
    /// Text: record layout of a relay stream: `r1`, `r3` or `r4`.
    pub const RELAY_LAYOUT: u16 = 3;
    /// u32 a CPU: those that the recording has a file for.
    pub const CPUS: u16 = 4;
    /// Text: name of the trace clock.
    pub const CLOCK: u16 = 5;
    /// Text: kernel release.
    pub const KERNEL: u16 = 6;
    /// Text: machine name as uname has it.
    pub const ARCH: u16 = 7;
    /// Text: `events/header_page` of the instance.
    pub const HEADER_PAGE: u16 = 8;
    /// Text: `events/header_event`.
    pub const HEADER_EVENT: u16 = 9;
    /// Text: `system/event`, newline, its `format` file (in cpuN.out without the `print fmt` line). Once an event.
    pub const EVENT_FORMAT: u16 = 10;
    /// Time of day and CLOCK_MONOTONIC at the start, ns, u64 each.
    pub const STARTED: u16 = 11;
    /// Text: name and version of the recorder.
    pub const RECORDER: u16 = 12;
    /// Text: bytes of each CPU's kernel buffer.
    pub const BUFFER_BYTES: u16 = 13;
    /// Nothing: the kernel began to record at boot, and the recorder took that over.
    pub const SINCE_BOOT: u16 = 14;
    /// Text: `system`, or `tasks` where the kernel recorded some tasks alone; from minor version 2 on.
    pub const SCOPE: u16 = 15;
    /// Text: the kernel's filter on allocation events; from minor version 2 on, only where there is one.
    pub const FILTER: u16 = 16;
    /// Text: the host's name, unless the user had it left out; from minor version 3 on. Where it is left out, UNAME has `-` in its
    /// place.
    pub const HOST: u16 = 17;
    /// Text: `/proc/sys/kernel/random/boot_id`; from minor version 3 on.
    pub const BOOT: u16 = 18;
    /// Text: the group (system) of the recorder's own probe events; from minor version 8 on, only where it defined any.
    pub const PROBE_GROUP: u16 = 19;

    /// Text: `/proc/kallsyms` at the start.
    pub const KALLSYMS: u16 = 100;
    /// Text: `/proc/modules` at the start.
    pub const MODULES: u16 = 101;
    /// Text: `PID COMM` a line.
    pub const COMMS: u16 = 102;
    /// Text: `CPU NODE` a line.
    pub const CPU_NODES: u16 = 103;
    /// Text: `/proc/slabinfo` at the start.
    pub const SLABINFO_START: u16 = 104;
    /// Text: `/proc/slabinfo` at the end.
    pub const SLABINFO_END: u16 = 105;
    /// Text: system name, node name, release, version, machine.
    pub const UNAME: u16 = 106;
    /// Text: the recorder's command line, words separated by NUL. From minor version 9 on without COMMAND's arguments, and missing
    /// where the host's name is.
    pub const COMMAND_LINE: u16 = 107;
    /// Text: the events that were enabled, a line each.
    pub const EVENTS: u16 = 108;
    /// Text: lines of `/proc/kallsyms` that were not there at the start, as modules are loaded, and at the end.
    pub const KALLSYMS_LATER: u16 = 109;
    /// Text: such lines of `/proc/modules`.
    pub const MODULES_LATER: u16 = 110;
    /// Time of day and CLOCK_MONOTONIC at the end, ns, u64 each.
    pub const STOPPED: u16 = 111;
    /// Text: the thread ids of the recorder, a line each.
    pub const OWN_THREADS: u16 = 112;
    /// Bytes of `/sys/kernel/notes`: ELF notes in the machine's byte order; from minor version 3 on, as are the next ones.
    pub const NOTES: u16 = 113;
    /// Text: `NAME BUILDID PATH SECTION=0xADDRESS…` a line, for each module at the start; `-` for what is not known.
    pub const MODULE_INFO: u16 = 114;
    /// Text: such lines of the end that were not there at the start.
    pub const MODULE_INFO_LATER: u16 = 115;
    /// Text: `CACHE ALIAS…` a line, for each merged slab cache at the end.
    pub const CACHE_ALIASES: u16 = 116;
    /// Text: `/proc/meminfo` once the kernel records.
    pub const MEMINFO_START: u16 = 117;
    /// Text: `/proc/meminfo` before the kernel stops to record.
    pub const MEMINFO_END: u16 = 118;
    /// Text: `/proc/vmstat` once the kernel records.
    pub const VMSTAT_START: u16 = 119;
    /// Text: `/proc/vmstat` before the kernel stops to record.
    pub const VMSTAT_END: u16 = 120;
    /// Text: stacks that the recorder asked the kernel for, as `trigger alloc`, a line each; empty: none; from minor version 4 on.
    pub const STACKS: u16 = 121;
    /// Text: names of the functions that the tracer `function_graph` recorded, a line each; from minor version 5 on, only where there are
    /// any.
    pub const FUNCTIONS: u16 = 122;
    /// Text: the recorder's probe events. First line: the time on the trace's clock from which all of them were enabled, 0 if that was
    /// before the first event. Then their definitions, a line each, as written to `dynamic_events`. From minor version 8 on, only
    /// where it defined any.
    pub const PROBES: u16 = 123;
    /// Text: `CACHE 0` or `CACHE 1` a line, for each slab cache at the end: 1 for one whose objects the kernel takes back when it is short
    /// of memory (SLAB_RECLAIM_ACCOUNT); from minor version 9 on.
    pub const RECLAIM_ACCOUNT: u16 = 130;
    /// Text: ids of the threads that lived after the last event, a line each; from minor version 9 on.
    pub const THREADS_END: u16 = 131;
    /// Text: `TID TGID ROOT PATH` a line, for each thread at the start: its thread group, and number and path of its cgroup in the hierarchy
    /// of version 2, else in that of the memory controller, as `/proc/PID/task/TID/cgroup` has them. Such lines may come later for threads
    /// that were made in a cgroup, or came into one unseen. From minor version 9 on.
    pub const CGROUPS: u16 = 132;
    /// Text: names of the slab caches whose objects have red zones at the end (`slub_debug`), a line each; only where there are any; from
    /// minor version 9 on.
    pub const RED_ZONES: u16 = 134;
    /// Text: `/proc/zoneinfo`, read right after `/proc/meminfo` once the kernel records; from minor version 9 on, as are the next ones.
    pub const ZONEINFO_START: u16 = 140;
    /// Text: `/proc/zoneinfo` before the kernel stops to record.
    pub const ZONEINFO_END: u16 = 141;
    /// Text: `/proc/buddyinfo` once the kernel records.
    pub const BUDDYINFO_START: u16 = 142;
    /// Text: `/proc/buddyinfo` before the kernel stops to record.
    pub const BUDDYINFO_END: u16 = 143;
    /// Text: `/proc/vmallocinfo` once the kernel records.
    pub const VMALLOCINFO_START: u16 = 144;
    /// Text: `/proc/vmallocinfo` before the kernel stops to record.
    pub const VMALLOCINFO_END: u16 = 145;
    /// Text: `/proc/allocinfo` once the kernel records, where the kernel has it.
    pub const ALLOCINFO_START: u16 = 146;
    /// Text: `/proc/allocinfo` before the kernel stops to record.
    pub const ALLOCINFO_END: u16 = 147;

    /// Text: the input that a `trace.dat` was made from, `kmemtrace`, `tree` or `trace.dat`. This item and the following ones stand in
    /// the option of a `trace.dat` alone.
    pub const INPUT: u16 = 200;
    /// Text: source of the size of a page, as documents have it; without it, the recording.
    pub const PAGE_BYTES_FROM: u16 = 201;
    /// Loss of a file: CPU u32 ([`NO_CPU`](super::NO_CPU) for the names), flags u32 (1 it was missing, 2 late loss, 4 `lost` is known,
    /// 8 `lost_before` is known, 16 it has counters), lost u64, lost before the first event u64, unread u64, [`Counters`](super::Counters).
    pub const FILE: u16 = 202;
    /// Gaps of that file that no sub-buffer marks, 40 bytes each: sub-buffers before it u64, from u64, to u64, lost u64, cause u8,
    /// flags u8 (1, 2, 4, 8: each of these four is known), 6 zeros.
    pub const GAPS: u16 = 203;
    /// Numbers of the sub-buffers (u64, ascending) whose mark stands for such gaps.
    pub const MARKS: u16 = 204;
    /// A finding about that file: code u16, 1 if it has a block u16, offset u64, block u64, message.
    pub const FINDING: u16 = 205;

    /// Flag: the next item of this tag continues this one.
    pub const MORE: u16 = 1;

    /// Appends an item. Longer than a block, it must be cut by the caller ([`MORE`]).
    pub fn put(out: &mut Vec<u8>, tag: u16, flags: u16, bytes: &[u8]) {
        out.extend_from_slice(&tag.to_le_bytes());
        out.extend_from_slice(&flags.to_le_bytes());
        out.extend_from_slice(&u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes());
        out.extend_from_slice(bytes);
    }

    /// The items of a payload: (tag, flags, bytes); an `Err` ends it where the bytes make no sense.
    pub fn walk(mut payload: &[u8]) -> impl Iterator<Item = Result<(u16, u16, &[u8]), ()>> {
        std::iter::from_fn(move || {
            if payload.is_empty() {
                return None;
            }
            let parsed = (|| {
                let (head, rest) = payload.split_first_chunk::<8>()?;
                let len = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
                let (bytes, rest) = rest.split_at_checked(len)?;
                payload = rest;
                Some((u16::from_le_bytes([head[0], head[1]]), u16::from_le_bytes([head[2], head[3]]), bytes))
            })();
            if parsed.is_none() {
                payload = &[];
            }
            Some(parsed.ok_or(()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Vec<u8> {
        let info =
            BlockInfo { kind: kind::DATA, cpu: 3, recording: [7; 16], sequence: 9, events: 2, ..BlockInfo::default() };
        block(&info, b"some bytes")
    }

    #[test]
    fn checksums_are_those_of_other_programs() {
        // The check value of CRC-32C, and the zeros and ones of RFC 3720, section B.4.
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!([crc32c(&[0; 32]), crc32c(&[0xff; 32])], [0x8a91_36aa, 0x62a8_ab43]);
    }

    #[test]
    fn every_flipped_bit_of_a_header_is_seen() {
        let good = sample();
        assert!(matches!(parse(&good, Some(HEADER_BYTES)), Parsed::Header(h, HEADER_BYTES) if h.sequence.get() == 9));
        for bit in 0..HEADER_BYTES * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(parse(&bad, Some(HEADER_BYTES)), Parsed::Bad, "bit {bit}");
        }
    }

    #[test]
    fn a_cut_header_is_short_not_bad() {
        let good = sample();
        for len in 0..HEADER_BYTES {
            assert_eq!(parse(&good[..len], None), Parsed::Short(HEADER_BYTES));
        }
    }

    #[test]
    fn a_newer_major_version_is_told_from_damage() {
        let mut block = sample();
        block[14] = 3;
        assert_eq!(parse(&block, None), Parsed::Bad);
        let crc = crc32c(&block[CRC_FROM..HEADER_BYTES]).to_le_bytes();
        block[8..12].copy_from_slice(&crc);
        assert_eq!(parse(&block, None), Parsed::Newer(3));
        // A header of version 2 that is too short for it.
        block[14] = 2;
        let crc = crc32c(&block[CRC_FROM..HEADER_BYTES]).to_le_bytes();
        block[8..12].copy_from_slice(&crc);
        assert_eq!(parse(&block, None), Parsed::Bad);
    }

    #[test]
    fn a_block_is_the_same_in_both_major_versions_but_for_its_header() {
        let one = sample();
        let two = in_major(&one, Major::Two).unwrap();
        assert_eq!((two.len(), in_major(&two, Major::One)), (one.len() + 4, Some(one.clone())));
        let (header, len) = own_header(&two).unwrap();
        assert_eq!((header.major.get(), len, coded_len(&two)), (2, 100, 0));
        assert_eq!((&two[len..], coded_len(&one)), (&one[HEADER_BYTES..], 0));
        let mut coded = vec![0; 110];
        let info = BlockInfo { major: Major::Two, kind: kind::DATA, flags: FLAG_RECORDS, ..BlockInfo::default() };
        seal_records(&mut coded, &info, Some(5000), 10);
        assert_eq!(coded_len(&coded), 10);
        // A damaged payload stays damaged, and a cut one is as long.
        let mut cut = one[..HEADER_BYTES + 2].to_vec();
        cut[HEADER_BYTES] ^= 1;
        assert_eq!(in_major(&cut, Major::Two).unwrap()[100..], cut[HEADER_BYTES..]);
        assert_eq!((in_major(&one[..90], Major::Two), in_major(b"junk", Major::One)), (None, None));
    }

    #[test]
    fn payloads_of_minor_version_0_have_no_times() {
        let counters = Counters { dropped: 7.into(), ..Counters::default() };
        let end = End { counters, timed: 3.into(), grew: Interval::new(5, 9), ..End::default() };
        let with_marks = End { marks: MARKS_VAGUE.into(), ..end };
        assert_eq!(End::parse(with_marks.as_bytes()), Some(with_marks));
        assert_eq!(End::parse(&with_marks.as_bytes()[..104]), Some(end));
        assert_eq!(End::parse(&with_marks.as_bytes()[..88]), Some(End { grew: Interval::default(), ..end }));
        assert_eq!(End::parse(&end.as_bytes()[..87]), None);
        assert_eq!(CounterSample::parse(counters.as_bytes()).map(|sample| sample.grew.ends()), Some(None));
        let gap = GapRecord { lost: 4.into(), interval: Interval::new(0, u64::MAX), ..GapRecord::default() };
        let payload = [gap.as_bytes(), b"why"].concat();
        assert_eq!(GapRecord::parse(&payload), Some((gap, &b"why"[..])));
        assert_eq!(gap.interval.ends(), Some((None, None)));
        let old = GapRecord::parse(&payload[..16]);
        assert_eq!(old.map(|(gap, text)| (gap.lost.get(), gap.interval.ends(), text)), Some((4, None, &b""[..])));
        assert_eq!(GapRecord::parse(&payload[..15]), None);
    }

    #[test]
    fn the_end_of_a_file_of_either_minor_version_is_found() {
        let end = End { events: 12.into(), ..End::default() };
        let info = BlockInfo { kind: kind::END, ..BlockInfo::default() };
        for payload in [end.as_bytes(), &end.as_bytes()[..104], &end.as_bytes()[..88]] {
            let file = [&b"bytes before"[..], &block(&info, payload)].concat();
            assert_eq!(End::at_end_of(&file).map(|end| end.events.get()), Some(12));
            assert_eq!(End::at_end_of(&file[..file.len() - 1]), None);
        }
    }

    #[test]
    fn items_come_back_and_nonsense_ends_them() {
        let mut payload = Vec::new();
        item::put(&mut payload, item::CLOCK, 0, b"mono");
        item::put(&mut payload, item::KALLSYMS, item::MORE, b"");
        let items: Vec<_> = item::walk(&payload).collect();
        assert_eq!(items, [Ok((item::CLOCK, 0, &b"mono"[..])), Ok((item::KALLSYMS, item::MORE, &b""[..]))]);
        payload.extend_from_slice(&[1, 0, 0, 0, 255, 255, 255, 255]);
        assert_eq!(item::walk(&payload).last(), Some(Err(())));
    }

    /// A header with `change`, whose checksum is right.
    fn resealed(change: impl Fn(&mut Vec<u8>)) -> Vec<u8> {
        let mut block = sample();
        change(&mut block);
        let len = usize::from(u16::from_le_bytes([block[12], block[13]])).clamp(CRC_FROM, block.len());
        let crc = crc32c(&block[CRC_FROM..len]).to_le_bytes();
        block[8..12].copy_from_slice(&crc);
        block
    }

    #[test]
    fn a_header_tells_what_its_writer_said() {
        let info = BlockInfo {
            major: Major::One,
            kind: kind::DATA,
            flags: FLAG_OPTIONAL,
            cpu: 3,
            recording: [7; 16],
            sequence: 9,
            events_before: 100,
            lost_before: 5,
            first: 1000,
            last: 2000,
            events: 2,
        };
        let block = block(&info, b"123456789");
        let Parsed::Header(header, HEADER_BYTES) = parse(&block, None) else { panic!("no header") };
        assert_eq!((header.kind, header.flags, header.cpu.get()), (kind::DATA, FLAG_OPTIONAL, 3));
        assert_eq!((header.recording, header.sequence.get(), header.events.get()), ([7; 16], 9, 2));
        assert_eq!((header.events_before.get(), header.lost_before.get()), (100, 5));
        assert_eq!((header.first.get(), header.last.get()), (1000, 2000));
        assert_eq!((header.payload_len.get(), header.raw_len.get()), (9, 9));
        assert_eq!(header.payload_crc.get(), 0xe306_9283);
        assert_eq!((&block[HEADER_BYTES..], block.len()), (&b"123456789"[..], 105));
        // As FORMAT.md has it: readers in other languages go by these offsets.
        assert_eq!(block[..8], *b"\x89kmTRC\r\n");
        assert_eq!(block[12..20], [96, 0, 1, 0, MINOR as u8, 0, kind::DATA, FLAG_OPTIONAL]);
        assert_eq!((block[40], block[84], block[88]), (9, 9, 9));
    }

    #[test]
    fn no_number_of_a_header_is_beyond_its_bound() {
        let long = |at: usize, len: u32| resealed(|block| block[at..at + 4].copy_from_slice(&len.to_le_bytes()));
        for at in [84, 88] {
            assert!(matches!(parse(&long(at, 16_777_216), None), Parsed::Header(_, HEADER_BYTES)), "{at}");
            assert_eq!(parse(&long(at, 16_777_217), None), Parsed::Bad);
            assert_eq!(parse(&long(at, u32::MAX), None), Parsed::Bad);
        }
        let header = |len: u16| {
            resealed(|block| {
                block.resize(600, 0);
                block[12..14].copy_from_slice(&len.to_le_bytes());
            })
        };
        for (len, is_good) in [(95, false), (96, true), (97, true), (512, true), (513, false), (0, false)] {
            let parsed = parse(&header(len), None);
            assert_eq!(matches!(parsed, Parsed::Header(_, found) if found == usize::from(len)), is_good, "{len}");
            assert_eq!(parsed == Parsed::Bad, !is_good);
            assert_eq!(parse(&header(len), Some(100)), Parsed::Bad, "not the length of the file's other headers");
        }
        assert_eq!(parse(&header(200)[..199], None), Parsed::Short(200));
        assert!(matches!(parse(&header(200)[..200], Some(200)), Parsed::Header(_, 200)));
    }

    #[test]
    #[should_panic(expected = "payload too long")]
    fn a_payload_over_the_bound_is_not_written() {
        seal(&mut [0; HEADER_BYTES], &BlockInfo::default(), Some(MAX_PAYLOAD_BYTES + 1));
    }

    #[test]
    fn an_interval_has_its_ends_or_those_of_the_trace() {
        for (from, to, ends) in [
            (0, 0, None),
            (7, 0, None),
            (7, 9, Some((Some(7), Some(9)))),
            (0, 9, Some((None, Some(9)))),
            (7, u64::MAX, Some((Some(7), None))),
            (0, u64::MAX, Some((None, None))),
        ] {
            assert_eq!(Interval::new(from, to).ends(), ends, "{from} {to}");
        }
    }

    #[test]
    fn losses_of_kernel_and_recorder_are_added_up() {
        let counters = Counters {
            overrun: 1.into(),
            commit_overrun: 2.into(),
            dropped: 4.into(),
            read: 100.into(),
            unread: 200.into(),
            recorder_lost: 8.into(),
        };
        assert_eq!((counters.kernel_lost(), counters.lost()), (7, 15));
        let most = Counters { overrun: u64::MAX.into(), ..counters };
        assert_eq!((most.kernel_lost(), most.lost()), (u64::MAX, u64::MAX));
    }

    #[test]
    fn a_whole_sample_of_counters_has_its_interval() {
        let sample = CounterSample { counters: Counters::default(), grew: Interval::new(3, 4) };
        assert_eq!(CounterSample::parse(sample.as_bytes()), Some(sample));
        assert_eq!(CounterSample::parse(&sample.as_bytes()[..47]), None);
        // Bytes that a later minor version adds are passed over.
        assert_eq!(CounterSample::parse(&[sample.as_bytes(), b"more"].concat()), Some(sample));
    }

    #[test]
    fn a_watermark_of_either_minor_version_is_read() {
        let told = Watermark::new(5, Some(260));
        assert_eq!(Watermark::parse(told.as_bytes()).and_then(|read| read.filled()), Some(260));
        let older = Watermark::parse(&told.as_bytes()[..8]).map(|read| (read.time.get(), read.filled()));
        assert_eq!(older, Some((5, None)));
        assert_eq!(Watermark::parse(&told.as_bytes()[..7]), None);
        assert_eq!((Watermark::new(5, None).filled(), Watermark::new(5, Some(2000)).filled()), (None, Some(1000)));
    }

    #[test]
    fn only_a_whole_end_block_is_the_end_of_a_file() {
        let end = End { events: 12.into(), ..End::default() };
        let info = BlockInfo { kind: kind::END, sequence: 4, ..BlockInfo::default() };
        for major in [Major::Two, Major::One] {
            let good = block(&BlockInfo { major, ..info }, end.as_bytes());
            assert!(good.len() <= End::TAIL_BYTES);
            let (header, found) = End::with_header(&good).unwrap();
            assert_eq!((header.sequence.get(), found), (4, end));
        }
        let good = block(&info, end.as_bytes());
        let mut wrong_crc = good.clone();
        wrong_crc[HEADER_BYTES + 1] ^= 1;
        let other_kind = block(&BlockInfo { kind: kind::COUNTERS, ..info }, end.as_bytes());
        // A header whose payload is longer than what stands behind it, though the checksum is that of what does.
        let mut cut = good.clone();
        cut[84] += 1;
        let crc = crc32c(&cut[CRC_FROM..HEADER_BYTES]).to_le_bytes();
        cut[8..12].copy_from_slice(&crc);
        for bad in [&wrong_crc[..], &other_kind, &cut, &good[1..], &[&good[..], b"x"].concat(), b""] {
            assert_eq!(End::at_end_of(bad), None);
        }
    }

    #[test]
    fn an_item_is_as_long_as_it_says() {
        let mut payload = Vec::new();
        item::put(&mut payload, 0x1234, 0x5678, &[9; 300]);
        assert_eq!(payload[..8], [0x34, 0x12, 0x78, 0x56, 0x2c, 1, 0, 0]);
        assert_eq!(item::walk(&payload).collect::<Vec<_>>(), [Ok((0x1234, 0x5678, &[9; 300][..]))]);
        assert_eq!(item::walk(&payload[..307]).collect::<Vec<_>>(), [Err(())]);
        assert_eq!(item::walk(&payload[..7]).collect::<Vec<_>>(), [Err(())]);
        assert_eq!(item::walk(&[]).count(), 0);
    }
}
