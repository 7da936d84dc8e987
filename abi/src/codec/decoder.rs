//! From an encoded block back to its records, or to sub-buffers as the kernel wrote them.

use crate::codec::entries::{Entries, Part, SlotRecord, Slots};
use crate::codec::error::{CodecError, Wrong};
use crate::codec::notes::Notes;
use crate::codec::wire::{BIG_ENDIAN, HEAD_BYTES, LONG_COMMIT, NO_SUB_BUFFER, SUB_BUFFER};
use crate::event::Note;
use crate::kernel::format::PageShape;
use crate::kernel::subbuffer::{
    Entry, Record, RecordSource, Records, SubBufferError, SubBufferHead, Taken, end_early, entry_word,
};
use crate::kernel::varying::Varying;
use crate::target::{Big, Endian, Little, Target, TargetOrder};

/// What the encoder knew of the sub-buffers.
#[derive(Clone, Copy, Debug)]
struct Head {
    /// The size of a sub-buffer is not known.
    shape: PageShape,
    /// Offset of the thread id in a record.
    pid_at: usize,
}

impl Head {
    fn parse(block: &[u8]) -> Result<Head, Wrong> {
        let &[flags, data_offset, commit_offset, pid_at] = block.first_chunk::<HEAD_BYTES>().ok_or(Wrong::Cut)?;
        let (data_offset, commit_offset) = (usize::from(data_offset), usize::from(commit_offset));
        let word_bytes = if flags & LONG_COMMIT == 0 { 4 } else { 8 };
        let commit_size = usize::from(word_bytes);
        if flags & !(BIG_ENDIAN | LONG_COMMIT) != 0
            || commit_offset.saturating_add(commit_size) > data_offset
            || data_offset < 8
        {
            return Err(Wrong::Head);
        }
        let endian = if flags & BIG_ENDIAN == 0 { Endian::Little } else { Endian::Big };
        let target = Target { endian, word_bytes };
        let shape = PageShape { target, commit_offset, commit_size, data_offset, size: usize::MAX };
        Ok(Head { shape, pid_at: pid_at.into() })
    }

    fn sub_buffer(&self, header: &[u8]) -> Result<SubBufferHead, Wrong> {
        let parsed = match self.shape.target.endian {
            Endian::Little => SubBufferHead::parse::<Little>(&self.shape, header),
            Endian::Big => SubBufferHead::parse::<Big>(&self.shape, header),
        };
        parsed.map_err(|_| Wrong::Cut)
    }
}

/// How far a block is decoded.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    /// Known once the block was begun.
    head: Option<Head>,
    /// Offset in the block.
    at: usize,
    /// Bytes of the sub-buffers before it.
    raw: usize,
    /// Bytes of all sub-buffers.
    raw_len: usize,
    /// The block ends here for this reason.
    error: Option<CodecError>,
}

/// What comes next in a block.
enum Begun<'b> {
    /// A sub-buffer with this header.
    SubBuffer(&'b [u8], SubBufferHead),
    /// The rest of the block, which is no sub-buffer.
    Rest(&'b [u8]),
    /// Nothing.
    End,
}

/// A sub-buffer of an encoded block.
#[derive(Debug)]
pub(crate) enum Found<'b, 'd, O> {
    /// Its records can be taken.
    Encoded(SubBufferHead, EncodedRecords<'b, 'd, O>),
    /// The bytes that the kernel wrote, or bytes that are no sub-buffer.
    Plain(&'d [u8]),
}

/// Decodes blocks; keeps its memory from one to the next.
#[derive(Debug, Default)]
pub struct Decoder {
    slots: Slots,
    notes: Notes,
    place: Place,
    /// A sub-buffer that was put together.
    page: Vec<u8>,
}

impl Decoder {
    /// Replaces `out` by the sub-buffers of an encoded block, `raw_len` bytes.
    ///
    /// # Errors
    /// Where the block is damaged. What was decoded before stands in `out`: whole sub-buffers, and the last one as if it ended with
    /// the last entry that was decoded.
    pub fn decode(&mut self, block: &[u8], raw_len: usize, out: &mut Vec<u8>) -> Result<(), CodecError> {
        self.begin(raw_len);
        out.clear();
        out.reserve(raw_len);
        loop {
            match self.begin_next(block)? {
                Begun::SubBuffer(header, head) => self.put_sub_buffer(block, (header, head), out)?,
                Begun::Rest(bytes) => out.extend_from_slice(bytes),
                Begun::End => return Ok(()),
            }
        }
    }

    /// Begins a block whose sub-buffers have `raw_len` bytes.
    pub(crate) fn begin(&mut self, raw_len: usize) {
        self.slots.reset(raw_len);
        self.notes.clear();
        self.place = Place { raw_len, ..Place::default() };
    }

    /// Bytes of the sub-buffers that were found before the next one.
    pub(crate) fn raw_offset(&self) -> usize {
        self.place.raw
    }

    /// True if nothing of a block of this length is left.
    pub(crate) fn is_at_end(&self, len: usize) -> bool {
        self.place.error.is_none() && (self.place.at, self.place.raw) == (len, self.place.raw_len)
    }

    /// Finds the next sub-buffer of the block that was begun; `None` at its end.
    ///
    /// One with a number of lost events, which stands behind its records, or that has no place in sub-buffers of this shape is put
    /// together again; with `is_plain` each of them is. Of one that is damaged there is what comes before the damage.
    ///
    /// # Errors
    /// Where the block is damaged: nothing more is found in it.
    pub(crate) fn next_sub_buffer<'b: 'd, 'd, O: TargetOrder>(
        &'d mut self,
        block: &'b [u8],
        shape: &PageShape,
        is_plain: bool,
    ) -> Result<Option<Found<'b, 'd, O>>, CodecError> {
        let (header, head) = match self.begin_next(block)? {
            Begun::SubBuffer(header, head) => (header, head),
            Begun::Rest(bytes) => return Ok(Some(Found::Plain(bytes))),
            Begun::End => return Ok(None),
        };
        let Some(Head { shape: own, pid_at }) = self.place.head else { return Ok(None) };
        if (PageShape { size: shape.size, ..own }) != *shape {
            return Err(self.fail(0, Wrong::OtherHead));
        }
        if is_plain || head.is_counted || head.len > shape.size.saturating_sub(shape.data_offset) {
            let mut page = std::mem::take(&mut self.page);
            page.clear();
            // The next call returns the error.
            let _ = self.put_sub_buffer(block, (header, head), &mut page);
            self.page = page;
            return Ok(Some(Found::Plain(&self.page)));
        }
        let Decoder { slots, notes, place, .. } = self;
        let entries = Entries::new((block, place.at), (head.len, 0), pid_at, (slots, notes));
        let plain = Records::new(&[], head.timestamp);
        let header_bytes = shape.data_offset;
        let records = EncodedRecords {
            entries,
            place,
            header_bytes,
            data_bytes: head.len,
            time: head.timestamp,
            plain,
            before_rest: None,
            slot: None,
        };
        Ok(Some(Found::Encoded(head, records)))
    }

    fn fail(&mut self, at: usize, what: Wrong) -> CodecError {
        *self.place.error.insert(CodecError { at, what })
    }

    fn begin_next<'b>(&mut self, block: &'b [u8]) -> Result<Begun<'b>, CodecError> {
        match self.place.error {
            Some(error) => Err(error),
            None => self.place.begin_next(block).map_err(|what| self.fail(self.place.at, what)),
        }
    }

    /// Puts a sub-buffer together behind what is in `out`.
    fn put_sub_buffer(
        &mut self,
        block: &[u8],
        (header, head): (&[u8], SubBufferHead),
        out: &mut Vec<u8>,
    ) -> Result<(), CodecError> {
        let Some(Head { shape, pid_at }) = self.place.head else { return Ok(()) };
        let begun = out.len();
        out.extend_from_slice(header);
        let count_bytes = if head.is_counted { shape.commit_size } else { 0 };
        let kept = (&mut self.slots, &mut self.notes);
        let mut entries = Entries::new((block, self.place.at), (head.len, count_bytes), pid_at, kept);
        let put = match shape.target.endian {
            Endian::Little => put_entries::<Little>(&mut entries, out),
            Endian::Big => put_entries::<Big>(&mut entries, out),
        };
        let at = entries.at;
        if let Err(what) = put {
            let places = (shape.commit_offset, shape.commit_size, shape.data_offset);
            end_early(shape.target.endian, places, out.get_mut(begun..).unwrap_or_default());
            return Err(self.fail(at, what));
        }
        self.place.end_sub_buffer(at, out.len().saturating_sub(begun));
        Ok(())
    }
}

impl Place {
    fn begin_next<'b>(&mut self, block: &'b [u8]) -> Result<Begun<'b>, Wrong> {
        let head = match self.head {
            Some(head) => head,
            None => {
                let head = *self.head.insert(Head::parse(block)?);
                self.at = HEAD_BYTES;
                head
            }
        };
        let left = self.raw_len.saturating_sub(self.raw);
        let Some((&code, rest)) = block.get(self.at..).and_then(<[u8]>::split_first) else {
            return if left == 0 { Ok(Begun::End) } else { Err(Wrong::TooShort) };
        };
        match code {
            SUB_BUFFER => {
                let header = rest.get(..head.shape.data_offset).ok_or(Wrong::Cut)?;
                let parsed = head.sub_buffer(header)?;
                let count_bytes = if parsed.is_counted { head.shape.commit_size } else { 0 };
                if header.len().saturating_add(parsed.len).saturating_add(count_bytes) > left {
                    return Err(Wrong::TooLong);
                }
                self.at = self.at.saturating_add(header.len()).saturating_add(1);
                Ok(Begun::SubBuffer(header, parsed))
            }
            NO_SUB_BUFFER if rest.len() > left => Err(Wrong::TooLong),
            NO_SUB_BUFFER => {
                self.at = block.len();
                self.raw = self.raw.saturating_add(rest.len());
                Ok(Begun::Rest(rest))
            }
            _ => Err(Wrong::Op(code)),
        }
    }

    /// Goes on behind a sub-buffer that has so many bytes.
    fn end_sub_buffer(&mut self, at: usize, bytes: usize) {
        self.at = at;
        self.raw = self.raw.saturating_add(bytes);
    }
}

/// Puts the entries of a sub-buffer, and what stands behind them.
fn put_entries<O: TargetOrder>(entries: &mut Entries<'_, '_>, out: &mut Vec<u8>) -> Result<(), Wrong> {
    loop {
        match entries.next::<O>()? {
            Part::Record(taken) => put_record::<O>(entries, &taken, out),
            Part::Entries(bytes) => out.extend_from_slice(bytes),
            Part::Rest(bytes) => {
                out.extend_from_slice(bytes);
                return Ok(());
            }
        }
    }
}

/// Puts the entry of a record of a slot.
#[inline(always)]
fn put_record<O: TargetOrder>(entries: &mut Entries<'_, '_>, taken: &SlotRecord, out: &mut Vec<u8>) {
    let (record, _) = entries.bytes_of::<O>(taken);
    let type_len = if taken.is_long { 0 } else { (record.len() / 4) as u32 };
    out.extend_from_slice(&entry_word::<O>(type_len, taken.delta));
    if taken.is_long {
        let array = (record.len() as u32).saturating_add(4);
        let array = if O::ENDIAN == Endian::Little { array.to_le_bytes() } else { array.to_be_bytes() };
        out.extend_from_slice(&array);
    }
    out.extend_from_slice(record);
}

/// The records of an encoded sub-buffer.
#[derive(Debug)]
pub(crate) struct EncodedRecords<'b, 'd, O> {
    entries: Entries<'b, 'd>,
    place: &'d mut Place,
    header_bytes: usize,
    /// Bytes of event data.
    data_bytes: usize,
    /// Time of the last entry.
    time: u64,
    /// Entries that are stored as they are.
    plain: Records<'b, O>,
    /// Bytes of event data before the entries behind the last code, once that was met.
    before_rest: Option<usize>,
    /// Slot of the record that was taken last; `None` for one that is not encoded.
    slot: Option<u16>,
}

/// A record that is not encoded, or the reason why there is none.
enum Other<'b> {
    Record(Record<'b>),
    /// Records may follow.
    Nothing,
    Bad(SubBufferError),
    End,
}

impl<'b, O: TargetOrder> EncodedRecords<'b, '_, O> {
    /// What comes where no code of a slot does.
    #[inline(never)]
    fn other(&mut self) -> Other<'b> {
        let entry = self.plain.entry();
        if let Some(entry) = entry {
            self.time = self.plain.time();
            return match entry {
                Ok(Entry::Record { record, .. }) => Other::Record(record),
                Ok(Entry::Other(_)) => Other::Nothing,
                Err(error) => Other::Bad(error.behind(self.before_rest.unwrap_or(0))),
            };
        }
        if self.before_rest.is_some() {
            return Other::End;
        }
        self.entries.hold(false);
        if self.entries.code().is_some() {
            return Other::Nothing;
        }
        match self.entries.other::<O>() {
            Ok(Part::Entries(&[]) | Part::Record(_)) => {}
            Ok(Part::Entries(bytes)) => self.read_plain(bytes),
            Ok(Part::Rest(bytes)) => {
                self.before_rest = Some(self.data_bytes.saturating_sub(bytes.len()));
                self.place.end_sub_buffer(self.entries.at, self.header_bytes.saturating_add(self.data_bytes));
                self.read_plain(bytes);
            }
            Err(what) => {
                self.fail(what);
                return Other::End;
            }
        }
        Other::Nothing
    }

    fn read_plain(&mut self, bytes: &'b [u8]) {
        self.entries.hold(true);
        self.plain = Records::new(bytes, self.time);
    }

    #[cold]
    fn fail(&mut self, what: Wrong) {
        self.place.error = Some(CodecError { at: self.entries.at, what });
    }
}

impl<O: TargetOrder> RecordSource for EncodedRecords<'_, '_, O> {
    const KEEPS_NOTES: bool = true;

    #[inline(always)]
    fn next_record(&mut self, takes_notes: bool) -> Option<Result<Taken<'_>, SubBufferError>> {
        loop {
            if let Some(code) = self.entries.code() {
                return match self.entries.record(code) {
                    Ok(taken) => {
                        self.time = self.time.wrapping_add(taken.delta.into());
                        self.slot = Some(taken.number);
                        let time = self.time;
                        Some(Ok(self.entries.taken::<O>(&taken, time, takes_notes)))
                    }
                    Err(what) => {
                        self.fail(what);
                        None
                    }
                };
            }
            match self.other() {
                Other::Record(record) => {
                    self.slot = None;
                    return Some(Ok(Taken::Record(record)));
                }
                Other::Nothing => {}
                Other::Bad(error) => return Some(Err(error)),
                Other::End => return None,
            }
        }
    }

    fn keep_note(&mut self, note: Note, varying: Varying) {
        if let Some(slot) = self.slot {
            self.entries.keep_note(slot, note, varying);
        }
    }
}
