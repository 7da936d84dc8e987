//! The kernel's ring-buffer sub-buffers, as `trace_pipe_raw` hands them out (`kernel/trace/ring_buffer.c`,
//! 2.6.31 to 6.18).
//!
//! A sub-buffer is a header (timestamp u64, commit word), then event entries. In a trace file it is stored
//! trimmed: header, the bytes that the commit word counts, and the count of lost events where there is one.

use crate::event::Note;
use crate::kernel::format::PageShape;
use crate::kernel::varying::Varying;
use crate::target::{Big, Endian, Little, TargetOrder, u32_at, u64_at, uint_at};

/// Commit word: events were lost before this sub-buffer.
const MISSED_EVENTS: u32 = 1 << 31;
/// Commit word: their number follows the counted bytes, as one `long`.
const MISSED_STORED: u32 = 1 << 30;
/// Commit word: bytes of event data.
const COMMIT_MASK: u32 = 0x3fff_ffff;

/// `type_len` of an entry that holds no event.
const PADDING: u32 = 29;
/// `type_len` of an entry that adds to the time.
const TIME_EXTEND: u32 = 30;
/// `type_len` of an entry that sets the time.
const TIME_STAMP: u32 = 31;
/// Bits of `time_delta`, and of the low part of an extended time.
pub(crate) const DELTA_BITS: u32 = 27;
/// Bytes of a record that are loaded together, whatever its length.
pub(crate) const LOADED: usize = 72;
/// Bits that an absolute time stamp holds.
const ABSOLUTE_BITS: u32 = 59;

/// A mark that events were lost before a sub-buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missed {
    /// Number of lost events.
    Counted(u64),
    /// The sub-buffer had no room for the number.
    Uncounted,
}

/// A sub-buffer with its parsed header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubBuffer<'a> {
    /// Time from which its entries count.
    pub timestamp: u64,
    /// Mark of events lost before it.
    pub missed: Option<Missed>,
    /// Event entries.
    pub data: &'a [u8],
    /// Bytes that it takes when trimmed.
    pub stored: usize,
}

/// Bytes that are no sub-buffer, or an entry that cannot be one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubBufferError {
    /// Not even a header, or less than the commit word counts.
    #[error("it is cut: {have} of {need} bytes are there")]
    Cut {
        /// Bytes there.
        have: usize,
        /// Bytes needed.
        need: usize,
    },
    /// The commit word counts more than a sub-buffer holds.
    #[error("its commit size {commit} is over the {room} bytes that it has room for")]
    Commit {
        /// Bytes counted.
        commit: usize,
        /// Bytes of room.
        room: usize,
    },
    /// An entry's length is impossible.
    #[error("the entry at byte {offset} of its data has the impossible length {length}")]
    Entry {
        /// Offset in `SubBuffer::data`.
        offset: usize,
        /// Length in the entry.
        length: u64,
    },
}

impl SubBufferError {
    /// The same of data behind so many bytes of other data.
    pub(crate) fn behind(self, before: usize) -> SubBufferError {
        match self {
            SubBufferError::Entry { offset, length } => {
                SubBufferError::Entry { offset: offset.saturating_add(before), length }
            }
            other => other,
        }
    }
}

/// Header of a sub-buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SubBufferHead {
    /// Time from which the entries count.
    pub(crate) timestamp: u64,
    /// Bytes of event data.
    pub(crate) len: usize,
    /// Events were lost before it.
    pub(crate) is_marked: bool,
    /// Their number follows the event data.
    pub(crate) is_counted: bool,
}

impl SubBufferHead {
    /// Takes the header at the start of `bytes` apart.
    #[inline]
    pub(crate) fn parse<O: TargetOrder>(shape: &PageShape, bytes: &[u8]) -> Result<SubBufferHead, SubBufferError> {
        let header = shape.data_offset;
        // Only the low 32 bits count: the kernel sign-extends them into a 64-bit long.
        let low = match (shape.commit_size, O::ENDIAN) {
            (8, Endian::Big) => shape.commit_offset.saturating_add(4),
            _ => shape.commit_offset,
        };
        let (Some(timestamp), Some(commit), true) =
            (u64_at::<O>(bytes, 0), u32_at::<O>(bytes, low), bytes.len() >= header)
        else {
            return Err(SubBufferError::Cut { have: bytes.len(), need: header });
        };
        let is_marked = commit & MISSED_EVENTS != 0;
        let is_counted = is_marked && commit & MISSED_STORED != 0;
        Ok(SubBufferHead { timestamp, len: (commit & COMMIT_MASK) as usize, is_marked, is_counted })
    }
}

impl<'a> SubBuffer<'a> {
    /// Parses the sub-buffer at the start of `bytes`.
    #[inline]
    pub fn parse<O: TargetOrder>(shape: &PageShape, bytes: &'a [u8]) -> Result<SubBuffer<'a>, SubBufferError> {
        let SubBufferHead { timestamp, len, is_marked, is_counted } = SubBufferHead::parse::<O>(shape, bytes)?;
        let cut = |need| SubBufferError::Cut { have: bytes.len(), need };
        let header = shape.data_offset;
        let room = shape.size.saturating_sub(header);
        if len > room {
            return Err(SubBufferError::Commit { commit: len, room });
        }
        let end = header.saturating_add(len);
        let data = bytes.get(header..end).ok_or(cut(end))?;
        let mut stored = end;
        let missed = if !is_marked {
            None
        } else if !is_counted {
            Some(Missed::Uncounted)
        } else {
            let word = usize::from(shape.target.word_bytes);
            stored = stored.saturating_add(word);
            if stored > shape.size {
                return Err(SubBufferError::Commit { commit: len.saturating_add(word), room });
            }
            Some(Missed::Counted(uint_at::<O>(bytes, end, word).ok_or(cut(stored))?))
        };
        Ok(SubBuffer { timestamp, missed, data, stored })
    }

    /// The event records in it, in order.
    #[inline]
    pub fn records<O: TargetOrder>(&self) -> Records<'a, O> {
        Records::new(self.data, self.timestamp)
    }
}

/// An event record: the payload of a data entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Time of the record.
    pub time: u64,
    /// From `common_type` on; padded to 4 bytes, so it may be longer than the event's fields.
    pub payload: &'a [u8],
    /// Data from the payload's start to the end of the sub-buffer: mostly long enough to load a few bytes, however short the
    /// payload.
    pub rest: &'a [u8],
}

/// Iterator over the records of a sub-buffer. An `Err` is the last item.
#[derive(Debug)]
pub struct Records<'a, O> {
    data: &'a [u8],
    offset: usize,
    time: u64,
    order: std::marker::PhantomData<O>,
}

/// An entry of a sub-buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry<'a> {
    /// An event record.
    Record {
        /// The record.
        record: Record<'a>,
        /// Time since the entry before, as the entry has it: 27 bits.
        delta: u32,
        /// Its length is in a word of its own (`type_len` 0).
        is_long: bool,
    },
    /// Time, or an event that was discarded: all bytes of the entry.
    Other(&'a [u8]),
}

impl<'a, O> Records<'a, O> {
    /// Records of entries that count from `time`.
    pub(crate) fn new(data: &'a [u8], time: u64) -> Records<'a, O> {
        Records { data, offset: 0, time, order: std::marker::PhantomData }
    }

    /// Time after the last entry taken.
    pub fn time(&self) -> u64 {
        self.time
    }

    /// Bytes of data before the next entry.
    pub(crate) fn offset(&self) -> usize {
        self.offset
    }
}

impl<'a, O: TargetOrder> Records<'a, O> {
    /// The next entry. `None` at the end, which may be a filler that is no entry.
    #[inline(always)]
    #[expect(
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects,
        reason = "each length is checked against the entry's bytes first"
    )]
    pub(crate) fn entry(&mut self) -> Option<Result<Entry<'a>, SubBufferError>> {
        let entry = self.data.get(self.offset..).filter(|e| !e.is_empty())?;
        let Some(word) = u32_at::<O>(entry, 0) else {
            return Some(Err(self.bad(entry.len() as u64)));
        };
        let (type_len, delta) = match O::ENDIAN {
            Endian::Little => (word & 0x1f, word >> 5),
            Endian::Big => (word >> DELTA_BITS, word & ((1 << DELTA_BITS) - 1)),
        };
        if let 1..PADDING = type_len {
            let len = 4 * type_len as usize;
            let rest = &entry[4..];
            let Some(payload) = rest.get(..len) else {
                return Some(Err(self.bad(4 + len as u64)));
            };
            self.time = self.time.wrapping_add(u64::from(delta));
            self.offset += 4 + len;
            let record = Record { time: self.time, payload, rest };
            return Some(Ok(Entry::Record { record, delta, is_long: false }));
        }
        if type_len == PADDING && delta == 0 {
            self.offset = self.data.len();
            return None;
        }
        let Some(array) = u32_at::<O>(entry, 4) else {
            return Some(Err(self.bad(8)));
        };
        let end = match type_len {
            0 => {
                let end = (array as usize).saturating_add(4);
                if array < 4 || end > entry.len() || !array.is_multiple_of(4) {
                    return Some(Err(self.bad(u64::from(array) + 4)));
                }
                self.time = self.time.wrapping_add(u64::from(delta));
                self.offset += end;
                let record = Record { time: self.time, payload: &entry[8..end], rest: &entry[8..] };
                return Some(Ok(Entry::Record { record, delta, is_long: true }));
            }
            PADDING => {
                let end = (array as usize).saturating_add(4);
                if end > entry.len() {
                    return Some(Err(self.bad(u64::from(array) + 4)));
                }
                // A delta of 1 marks the filler at the end of a sub-buffer, not time.
                if delta > 1 {
                    self.time = self.time.wrapping_add(u64::from(delta));
                }
                end
            }
            TIME_EXTEND => {
                self.time = self.time.wrapping_add(u64::from(array) << DELTA_BITS | u64::from(delta));
                8
            }
            TIME_STAMP => {
                let stamp = u64::from(array) << DELTA_BITS | u64::from(delta);
                self.time = fix_absolute(stamp, self.time);
                8
            }
            _ => return Some(Err(self.bad(0))),
        };
        self.offset += end;
        Some(Ok(Entry::Other(&entry[..end])))
    }
}

impl<'a, O: TargetOrder> Iterator for Records<'a, O> {
    type Item = Result<Record<'a>, SubBufferError>;

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.entry()? {
                Ok(Entry::Record { record, .. }) => return Some(Ok(record)),
                Ok(Entry::Other(_)) => {}
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

/// What a source of records has next.
#[derive(Debug)]
pub(crate) enum Taken<'a> {
    /// A record.
    Record(Record<'a>),
    /// A record that only time and address tell from an earlier one, whose event has this note.
    Noted {
        /// Time of the record.
        time: u64,
        /// Its address.
        address: u64,
        /// Note of the earlier event.
        note: &'a Note,
    },
}

impl Taken<'_> {
    /// Time of the record.
    #[inline(always)]
    pub(crate) fn time(&self) -> u64 {
        match *self {
            Taken::Record(Record { time, .. }) | Taken::Noted { time, .. } => time,
        }
    }
}

/// Where the records of a sub-buffer come from.
pub(crate) trait RecordSource {
    /// The source can keep notes.
    const KEEPS_NOTES: bool;

    /// The next record, which lasts until the one after it. `None` at the end; nothing follows an error. [`Taken::Noted`] comes only where
    /// `takes_notes`.
    fn next_record(&mut self, takes_notes: bool) -> Option<Result<Taken<'_>, SubBufferError>>;

    /// Keeps a note of the event of the record that was taken last, for records that differ from it at these places only.
    fn keep_note(&mut self, note: Note, varying: Varying);
}

impl<O: TargetOrder> RecordSource for Records<'_, O> {
    const KEEPS_NOTES: bool = false;

    #[inline(always)]
    fn next_record(&mut self, _: bool) -> Option<Result<Taken<'_>, SubBufferError>> {
        self.next().map(|record| record.map(Taken::Record))
    }

    fn keep_note(&mut self, _: Note, _: Varying) {}
}

/// Bytes of the whole entries at the start of `data`: fewer than it has where one makes no sense, or a filler ends them.
pub(crate) fn whole_entries<O: TargetOrder>(data: &[u8]) -> usize {
    let mut records = Records::<O>::new(data, 0);
    loop {
        let at = records.offset();
        let Some(Ok(_)) = records.entry() else { return at };
    }
}

/// First word of the entry of a record whose `type_len` is this.
#[inline(always)]
pub(crate) fn entry_word<O: TargetOrder>(type_len: u32, delta: u32) -> [u8; 4] {
    match O::ENDIAN {
        Endian::Little => (delta << 5 | type_len).to_le_bytes(),
        Endian::Big => (type_len << DELTA_BITS | delta).to_be_bytes(),
    }
}

/// Ends the event data of a sub-buffer of which only these bytes are known. A mark of lost events stays, without its number.
pub(crate) fn end_early(
    endian: Endian,
    (commit_offset, commit_size, data_offset): (usize, usize, usize),
    known: &mut [u8],
) {
    let Some(length) = known.len().checked_sub(data_offset) else { return };
    let low = match (commit_size, endian) {
        (8, Endian::Big) => commit_offset.saturating_add(4),
        _ => commit_offset,
    };
    let Some(word) = known.get_mut(low..).and_then(<[u8]>::first_chunk_mut::<4>) else { return };
    let commit = match endian {
        Endian::Little => u32::from_le_bytes(*word),
        Endian::Big => u32::from_be_bytes(*word),
    };
    let commit = commit & MISSED_EVENTS | length as u32 & COMMIT_MASK;
    *word = if endian == Endian::Little { commit.to_le_bytes() } else { commit.to_be_bytes() };
}

impl<O> Records<'_, O> {
    #[cold]
    fn bad(&mut self, length: u64) -> SubBufferError {
        let offset = self.offset;
        self.offset = self.data.len();
        SubBufferError::Entry { offset, length }
    }
}

/// Puts the top bits back that an absolute stamp has no room for (`rb_fix_abs_ts`).
fn fix_absolute(stamp: u64, before: u64) -> u64 {
    let top = before >> ABSOLUTE_BITS << ABSOLUTE_BITS;
    if top == 0 {
        return stamp;
    }
    let fixed = (stamp & ((1 << ABSOLUTE_BITS) - 1)) | top;
    if fixed < before { fixed.wrapping_add(1 << ABSOLUTE_BITS) } else { fixed }
}

/// Counts of a sub-buffer, for a recorder that does not decode it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Event records.
    pub events: u64,
    /// Time of the first one; 0 where there is none.
    pub first: u64,
    /// Time of the last one.
    pub last: u64,
    /// Bytes of event data: the commit size.
    pub commit: u64,
    /// The loss mark.
    pub missed: Option<Missed>,
}

/// Counts the records of the sub-buffer at the start of `bytes`, up to the first that makes no sense.
pub fn tally(shape: &PageShape, bytes: &[u8]) -> Result<(Tally, usize), SubBufferError> {
    match shape.target.endian {
        Endian::Little => tally_in::<Little>(shape, bytes),
        Endian::Big => tally_in::<Big>(shape, bytes),
    }
}

fn tally_in<O: TargetOrder>(shape: &PageShape, bytes: &[u8]) -> Result<(Tally, usize), SubBufferError> {
    let sub_buffer = SubBuffer::parse::<O>(shape, bytes)?;
    let mut tally = Tally { missed: sub_buffer.missed, commit: sub_buffer.data.len() as u64, ..Tally::default() };
    for record in sub_buffer.records::<O>() {
        let Ok(record) = record else { break };
        if tally.events == 0 {
            tally.first = record.time;
        }
        tally.last = record.time;
        tally.events = tally.events.saturating_add(1);
    }
    Ok((tally, sub_buffer.stored))
}

/// Bytes of the sub-buffer at the start of `bytes` when trimmed; 0 where it holds no event data.
pub fn trimmed_len(shape: &PageShape, bytes: &[u8]) -> Result<usize, SubBufferError> {
    let parsed = match shape.target.endian {
        Endian::Little => SubBuffer::parse::<Little>(shape, bytes)?,
        Endian::Big => SubBuffer::parse::<Big>(shape, bytes)?,
    };
    Ok(if parsed.data.is_empty() && parsed.missed.is_none() { 0 } else { parsed.stored })
}

/// Marks a whole sub-buffer: events were lost before it, and their number is not known. Nothing else in it changes.
pub fn mark_missed(shape: &PageShape, sub_buffer: &mut [u8]) {
    if let Some(byte) = flags(shape, sub_buffer) {
        *byte |= (MISSED_EVENTS >> 24) as u8;
    }
}

/// Takes the number of lost events off the mark of a sub-buffer of which the bytes that have it were cut off.
pub fn forget_number(shape: &PageShape, sub_buffer: &mut [u8]) {
    if let Some(byte) = flags(shape, sub_buffer) {
        *byte &= !((MISSED_STORED >> 24) as u8);
    }
}

/// The byte of the commit word that has the marks.
fn flags<'a>(shape: &PageShape, sub_buffer: &'a mut [u8]) -> Option<&'a mut u8> {
    let highest = match (shape.target.endian, shape.commit_size) {
        (Endian::Little, _) => shape.commit_offset.saturating_add(3),
        (Endian::Big, 8) => shape.commit_offset.saturating_add(4),
        (Endian::Big, _) => shape.commit_offset,
    };
    sub_buffer.get_mut(highest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Target;

    fn shape(endian: Endian, word_bytes: u8) -> PageShape {
        let data_offset = 8 + usize::from(word_bytes);
        let commit_size = usize::from(word_bytes);
        PageShape { target: Target { endian, word_bytes }, commit_offset: 8, commit_size, data_offset, size: 4096 }
    }

    #[test]
    fn a_marked_sub_buffer_differs_in_one_bit() {
        for (endian, word_bytes) in [(Endian::Little, 8), (Endian::Little, 4), (Endian::Big, 8), (Endian::Big, 4)] {
            let shape = shape(endian, word_bytes);
            let mut page = vec![0; shape.size];
            mark_missed(&shape, &mut page);
            assert_eq!(page.iter().map(|byte| byte.count_ones()).sum::<u32>(), 1);
            let missed = match endian {
                Endian::Little => SubBuffer::parse::<Little>(&shape, &page).unwrap().missed,
                Endian::Big => SubBuffer::parse::<Big>(&shape, &page).unwrap().missed,
            };
            assert_eq!(missed, Some(Missed::Uncounted), "{endian:?} {word_bytes}");
        }
    }

    fn page(commit: u64, entries: &[u32]) -> Vec<u8> {
        let mut page = 1000u64.to_le_bytes().to_vec();
        page.extend_from_slice(&commit.to_le_bytes());
        entries.iter().for_each(|w| page.extend_from_slice(&w.to_le_bytes()));
        page
    }

    fn times(page: &[u8]) -> Vec<Result<u64, SubBufferError>> {
        let shape = shape(Endian::Little, 8);
        let sub_buffer = SubBuffer::parse::<Little>(&shape, page).unwrap();
        sub_buffer.records::<Little>().map(|r| r.map(|r| r.time)).collect()
    }

    #[test]
    fn time_is_added_extended_and_set() {
        let entries = [
            [(5 << 5) | 1, 0xaaaa], // data, +5
            [(3 << 5) | 30, 1],     // extend: + (1 << 27) + 3
            [1, 0xbbbb],            // data, +0
            [(7 << 5) | 31, 100],   // absolute: (100 << 27) + 7
            [2 << 5, 4],            // long form without payload, +2
            [(1 << 5) | 29, 4],     // filler: no time
            [(9 << 5) | 29, 4],     // discarded event: +9
            [(1 << 5) | 1, 0xdddd], // data, +1
            [29, 77],               // the rest is padding
        ]
        .concat();
        let page = page(entries.len() as u64 * 4, &entries);
        let extended = 1008 + (1 << 27);
        let absolute = (100 << 27) + 7;
        assert_eq!(times(&page), [Ok(1005), Ok(extended), Ok(absolute + 2), Ok(absolute + 12)]);
    }

    #[test]
    fn a_marked_commit_word_is_sign_extended() {
        let shape = shape(Endian::Little, 8);
        let mut marked = page(0xffff_ffff_c000_0008, &[1, 0xaaaa]);
        marked.extend_from_slice(&42u64.to_le_bytes());
        let sub_buffer = SubBuffer::parse::<Little>(&shape, &marked).unwrap();
        assert_eq!((sub_buffer.missed, sub_buffer.data.len(), sub_buffer.stored), (Some(Missed::Counted(42)), 8, 32));
        let uncounted = page(0xffff_ffff_8000_0008, &[1, 0xaaaa]);
        let sub_buffer = SubBuffer::parse::<Little>(&shape, &uncounted).unwrap();
        assert_eq!((sub_buffer.missed, sub_buffer.stored), (Some(Missed::Uncounted), 24));
        assert_eq!(SubBuffer::parse::<Little>(&shape, &marked[..31]), Err(SubBufferError::Cut { have: 31, need: 32 }));
        let long = page(4081, &[]);
        assert_eq!(SubBuffer::parse::<Little>(&shape, &long), Err(SubBufferError::Commit { commit: 4081, room: 4080 }));
    }

    #[test]
    fn big_endian_has_its_fields_at_the_other_end() {
        let shape = shape(Endian::Big, 8);
        let mut page = 1000u64.to_be_bytes().to_vec();
        page.extend_from_slice(&0xffff_ffff_c000_0008u64.to_be_bytes());
        page.extend_from_slice(&((1u32 << 27) | 6).to_be_bytes());
        page.extend_from_slice(&0xaaaau32.to_be_bytes());
        page.extend_from_slice(&3u64.to_be_bytes());
        let (tally, stored) = tally(&shape, &page).unwrap();
        assert_eq!(tally, Tally { events: 1, first: 1006, last: 1006, commit: 8, missed: Some(Missed::Counted(3)) });
        assert_eq!(stored, page.len());
    }

    #[test]
    fn impossible_entries_end_a_sub_buffer() {
        for (entries, offset, length) in [
            (&[(5 << 5) | 1, 0, 10][..], 8, 44), // short form over the end
            (&[0, 3][..], 0, 7),                 // long form shorter than its own length word
            (&[0, 6, 0][..], 0, 10),             // not a multiple of 4
            (&[0, u32::MAX][..], 0, u64::from(u32::MAX) + 4),
            (&[(2 << 5) | 29, 100][..], 0, 104), // discarded event over the end
            (&[(2 << 5) | 30][..], 0, 8),        // extend without its word
        ] {
            let page = page(entries.len() as u64 * 4, entries);
            assert_eq!(times(&page).last(), Some(&Err(SubBufferError::Entry { offset, length })), "{entries:?}");
        }
    }

    #[test]
    fn absolute_stamps_get_their_top_bits_back() {
        assert_eq!(fix_absolute(7, 5), 7);
        let tai = 1_800_000_000_000_000_000u64;
        let low = (tai + 10) & ((1 << 59) - 1);
        assert_eq!(fix_absolute(low, tai), tai + 10);
        let before = (2 << 59) - 1;
        assert_eq!(fix_absolute(3, before), (2 << 59) + 3);
    }

    /// A sub-buffer in either byte order, with words of either size.
    fn made(endian: Endian, word_bytes: u8, commit: u32, entries: &[u32], behind: Option<u64>) -> Vec<u8> {
        let put = |page: &mut Vec<u8>, value: u64, size: usize| match endian {
            Endian::Little => page.extend_from_slice(&value.to_le_bytes()[..size]),
            Endian::Big => page.extend_from_slice(&value.to_be_bytes()[8 - size..]),
        };
        let mut page = Vec::new();
        put(&mut page, 1000, 8);
        // The kernel sign-extends the commit word.
        put(&mut page, i64::from(commit.cast_signed()).cast_unsigned(), word_bytes.into());
        entries.iter().for_each(|&entry| put(&mut page, entry.into(), 4));
        behind.into_iter().for_each(|count| put(&mut page, count, word_bytes.into()));
        page
    }

    /// The first word of an entry.
    fn head(endian: Endian, type_len: u32, delta: u32) -> u32 {
        match endian {
            Endian::Little => delta << 5 | type_len,
            Endian::Big => type_len << DELTA_BITS | delta,
        }
    }

    const ALL: [(Endian, u8); 4] = [(Endian::Little, 8), (Endian::Big, 8), (Endian::Little, 4), (Endian::Big, 4)];

    #[test]
    fn every_entry_is_walked_in_every_byte_order_and_word_size() {
        for (endian, word) in ALL {
            let head = |type_len, delta| head(endian, type_len, delta);
            let entries = [
                &[head(1, 5), 1][..], // data, +5
                &[head(30, 3), 2],    // extend: (2 << 27) + 3
                &[head(28, (1 << 27) - 1)],
                &[7; 28],                    // the longest short form, the greatest delta
                &[head(0, 2), 12, 8, 9],     // long form: +2
                &[head(29, 1), 8, 0],        // filler: no time
                &[head(29, 2), 4],           // discarded event: +2
                &[head(29, 9), 8, 0],        // discarded event: +9
                &[head(31, 7), 100],         // absolute: (100 << 27) + 7
                &[head(0, 0), 4],            // long form without payload
                &[head(29, 0), 99, 1, 2, 3], // the rest is padding
            ]
            .concat();
            let shape = shape(endian, word);
            let page = made(endian, word, entries.len() as u32 * 4, &entries, None);
            let extended = 1005 + (2 << 27) + 3 + (1 << 27) - 1;
            let absolute = (100 << 27) + 7;
            let want = [(1005, 4), (extended, 112), (extended + 2, 8), (absolute, 0)];
            let records: Vec<(u64, usize)> = match endian {
                Endian::Little => walked::<Little>(&shape, &page),
                Endian::Big => walked::<Big>(&shape, &page),
            };
            assert_eq!(records, want, "{endian:?} {word}");
            let (tally, stored) = tally(&shape, &page).unwrap();
            let commit = entries.len() as u64 * 4;
            assert_eq!(tally, Tally { events: 4, first: 1005, last: absolute, commit, missed: None });
            assert_eq!((stored, trimmed_len(&shape, &page)), (page.len(), Ok(page.len())));
        }
    }

    /// Time and payload length of each record; the time after the last one is that of the last entry.
    fn walked<O: TargetOrder>(shape: &PageShape, page: &[u8]) -> Vec<(u64, usize)> {
        let mut records = SubBuffer::parse::<O>(shape, page).unwrap().records::<O>();
        let found: Vec<_> = records.by_ref().map(|record| record.map(|r| (r.time, r.payload.len())).unwrap()).collect();
        assert_eq!(Some(records.time()), found.last().map(|&(time, _)| time));
        assert!(records.next().is_none());
        found
    }

    #[test]
    fn a_record_has_the_bytes_of_its_entry_and_those_behind_it() {
        let entries = [(1 << 5) | 2, 1, 2, 0, 8, 3, (1 << 5) | 1, 4];
        let page = page(32, &entries);
        let shape = shape(Endian::Little, 8);
        let sub_buffer = SubBuffer::parse::<Little>(&shape, &page).unwrap();
        let words = |bytes: &[u8]| bytes.chunks(4).map(|word| word[0]).collect::<Vec<u8>>();
        let found: Vec<_> = sub_buffer.records::<Little>().map(|record| record.unwrap()).collect();
        let found: Vec<_> = found.iter().map(|record| (words(record.payload), words(record.rest))).collect();
        let long_rest = vec![3, 33, 4];
        assert_eq!(found, [(vec![1, 2], vec![1, 2, 0, 8, 3, 33, 4]), (vec![3], long_rest), (vec![4], vec![4])]);
    }

    #[test]
    fn loss_before_a_sub_buffer_is_told_with_its_number_where_there_is_room() {
        for (endian, word) in ALL {
            let shape = shape(endian, word);
            let entries = [head(endian, 1, 6), 1];
            let parse = |page: &[u8]| tally(&shape, page).map(|(tally, stored)| (tally.missed, stored));
            let of = |commit, behind| parse(&made(endian, word, commit, &entries, behind));
            let len = shape.data_offset + 8;
            let counted = Ok((Some(Missed::Counted(0x0102_0304)), len + usize::from(word)));
            assert_eq!(of(MISSED_EVENTS | MISSED_STORED | 8, Some(0x0102_0304)), counted, "{endian:?} {word}");
            assert_eq!(of(MISSED_EVENTS | 8, Some(3)), Ok((Some(Missed::Uncounted), len)));
            assert_eq!(of(8, Some(3)), Ok((None, len)));
            assert_eq!(of(MISSED_STORED | 8, Some(3)), Ok((None, len)));
            // A mark without an event is kept: the loss is before it.
            let empty = made(endian, word, MISSED_EVENTS, &[], None);
            assert_eq!(trimmed_len(&shape, &empty), Ok(shape.data_offset));
            assert_eq!(trimmed_len(&shape, &made(endian, word, 0, &[], None)), Ok(0));
        }
    }

    #[test]
    fn no_sub_buffer_counts_more_than_it_has_room_for() {
        for (endian, word) in ALL {
            let shape = shape(endian, word);
            let word = usize::from(word);
            let room = shape.size - shape.data_offset;
            let of = |commit: usize, flags: u32, bytes: usize| {
                let mut page = made(endian, word as u8, commit as u32 | flags, &[], None);
                page.resize(bytes, 0);
                trimmed_len(&shape, &page)
            };
            let size = shape.size;
            assert_eq!(of(room, 0, size), Ok(size));
            assert_eq!(of(room + 1, 0, size), Err(SubBufferError::Commit { commit: room + 1, room }));
            assert_eq!(of(room, 0, size - 1), Err(SubBufferError::Cut { have: size - 1, need: size }));
            let stored = MISSED_EVENTS | MISSED_STORED;
            assert_eq!(of(room - word, stored, size), Ok(size));
            assert_eq!(of(room - word + 4, stored, size), Err(SubBufferError::Commit { commit: room + 4, room }));
            let page = made(endian, word as u8, 0, &[], None);
            let need = shape.data_offset;
            for have in 0..need {
                assert_eq!(trimmed_len(&shape, &page[..have]), Err(SubBufferError::Cut { have, need }));
            }
        }
        // Event data may begin behind the commit word.
        let shape = PageShape { data_offset: 20, ..shape(Endian::Little, 8) };
        assert_eq!(trimmed_len(&shape, &page(0, &[])), Err(SubBufferError::Cut { have: 16, need: 20 }));
    }

    #[test]
    fn an_entry_may_end_where_the_data_ends_and_no_later() {
        for (entries, want) in [
            (&[1, 0][..], Ok(1000)),
            (&[2, 0], Err((0, 12))),
            (&[0, 8, 0], Ok(1000)),
            (&[0, 12, 0], Err((0, 16))),
            (&[(2 << 5) | 29, 8, 0, 1, 0], Ok(1002)),
            (&[1, 0, (2 << 5) | 29, 8, 0], Ok(1000)),
            (&[(2 << 5) | 29, 12, 0], Err((0, 16))),
            (&[1, 0, 1], Err((8, 8))),
        ] {
            let want = want.map_err(|(offset, length)| SubBufferError::Entry { offset, length });
            let page = page(entries.len() as u64 * 4, entries);
            assert_eq!(times(&page).last(), Some(&want), "{entries:?}");
        }
        // An entry cut in its first word.
        assert_eq!(times(&page(10, &[1, 0, 0])).last(), Some(&Err(SubBufferError::Entry { offset: 8, length: 2 })));
    }

    #[test]
    fn whole_entries_end_before_what_makes_no_sense() {
        let bytes = |entries: &[u32]| entries.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
        for (entries, whole) in [
            (&[][..], 0),
            (&[1, 0, (3 << 5) | 30, 1, 0, 8, 7], 28),
            (&[1, 0, 2, 0], 8),
            (&[1, 0, 29, 0], 8),
            (&[0, 6, 0], 0),
        ] {
            assert_eq!(whole_entries::<Little>(&bytes(entries)), whole, "{entries:?}");
        }
    }

    #[test]
    fn what_is_counted_of_a_sub_buffer_ends_with_what_makes_no_sense() {
        let page = page(20, &[(1 << 5) | 1, 0, (1 << 5) | 1, 0, 9]);
        let (tally, _) = tally(&shape(Endian::Little, 8), &page).unwrap();
        assert_eq!(tally, Tally { events: 2, first: 1001, last: 1002, commit: 20, missed: None });
    }

    #[test]
    fn absolute_stamps_have_59_bits() {
        let top = 5u64 << 59;
        let low = (1u64 << 59) - 1;
        // Equal to the time before it is not before it.
        assert_eq!(fix_absolute(low, top | low), top | low);
        assert_eq!(fix_absolute(0, top), top);
        assert_eq!(fix_absolute(low - 1, top | low), (6 << 59) | (low - 1));
        // Bits of the stamp beyond its 59 are not its own.
        assert_eq!(fix_absolute((1 << 59) | 7, top), top | 7);
        assert_eq!(fix_absolute(low, low), low);
    }
}
