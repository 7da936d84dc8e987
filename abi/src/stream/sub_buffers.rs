//! Sub-buffers of tracefs, one after the other: in the blocks of a file of ours, or as `cat` leaves them.

use std::io;

use super::payload::SubBufferFormat;
use super::state::StreamState;
use super::waiting::WaitingSink;
use crate::disk::blocks::{Block, Ending, Window};
use crate::event::{Event, EventSink, Gap, GapCause, Names};
use crate::fault::Code;
use crate::kernel::decoder::RecordError;
use crate::kernel::stack_record::StackFormat;
use crate::kernel::subbuffer::{Missed, Record, RecordSource, SubBuffer, SubBufferError, Taken, trimmed_len};
use crate::target::{Big, Endian, Little, TargetOrder};

/// Place of sub-buffers in a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct SubBufferPlace {
    /// Offset of the block in bytes, or of the sub-buffer where there are no blocks.
    offset: u64,
    block: Option<u64>,
    /// Offset in the block's sub-buffers.
    from: usize,
}

impl SubBufferPlace {
    pub(super) fn of(block: &Block) -> SubBufferPlace {
        SubBufferPlace { offset: block.offset, block: Some(block.header.sequence.get()), from: 0 }
    }

    /// The place so many bytes behind this one.
    pub(super) fn at(self, from: usize) -> SubBufferPlace {
        SubBufferPlace { from: self.from.saturating_add(from), ..self }
    }

    /// The sub-buffer, for messages.
    fn sub_buffer(&self) -> String {
        let SubBufferPlace { offset, from, .. } = self;
        match self.block {
            Some(number) => format!("block {number} at byte {offset}: the sub-buffer at byte {from} of it"),
            None => format!("the sub-buffer at byte {}", offset.saturating_add(*from as u64)),
        }
    }
}

impl StreamState {
    /// Decodes some of a file of whole sub-buffers, as `cat` leaves them; says how it ended once it has.
    pub(super) fn raw_sub_buffers(
        &mut self,
        window: &mut Window,
        format: &SubBufferFormat,
        names: &mut Names,
        items: &mut impl EventSink,
    ) -> Option<Ending> {
        while !self.is_full() {
            let place = SubBufferPlace { offset: window.offset(), block: None, from: 0 };
            let size = format.shape.size;
            let bytes = window.fill(size);
            let Some(whole) = bytes.get(..size) else {
                let is_empty = bytes.is_empty();
                if let Some(error) = window.take_error() {
                    return Some(self.unreadable(error, place));
                }
                if is_empty {
                    return Some(Ending::Whole);
                }
                let message =
                    || format!("ends inside the sub-buffer at byte {}; every earlier one is whole", place.offset);
                self.place_fault(Code::SubBufferCut, place, message);
                return Some(Ending::Cut);
            };
            // The kernel's sub-buffers begin with a time.
            let zeros = whole.iter().all(|&byte| byte == 0);
            match trimmed_len(&format.shape, whole) {
                Ok(stored) => {
                    let trimmed = whole.get(..stored).unwrap_or(whole);
                    self.sub_buffers(trimmed, 0, place, format, names, items);
                }
                Err(error) => self.bad_sub_buffer(error, 0, place),
            }
            window.advance(size);
            let hole = if zeros { window.skip_hole(size, size) } else { 0 };
            if hole > 0 {
                let message = || format!("the file has a hole of {hole} bytes at byte {}", place.offset);
                self.place_fault(Code::BadSubBuffer, place, message);
                self.damage();
            }
        }
        None
    }

    pub(super) fn sub_buffers<I: EventSink>(
        &mut self,
        payload: &[u8],
        from: usize,
        place: SubBufferPlace,
        format: &SubBufferFormat,
        names: &mut Names,
        items: &mut I,
    ) -> Option<usize> {
        match format.shape.target.endian {
            Endian::Little => self.sub_buffers_in::<Little, I>(payload, from, place, format, names, items),
            Endian::Big => self.sub_buffers_in::<Big, I>(payload, from, place, format, names, items),
        }
    }

    fn sub_buffers_in<O: TargetOrder, I: EventSink>(
        &mut self,
        payload: &[u8],
        mut from: usize,
        place: SubBufferPlace,
        format: &SubBufferFormat,
        names: &mut Names,
        items: &mut I,
    ) -> Option<usize> {
        while !self.is_full() {
            from = self.plain_sub_buffer::<O, I>(payload, from, place, format, names, items)?;
        }
        (from < payload.len()).then_some(from)
    }

    /// Decodes the sub-buffer at byte `from`; returns where the next one begins, `None` where there is none.
    pub(super) fn plain_sub_buffer<O: TargetOrder, I: EventSink>(
        &mut self,
        payload: &[u8],
        from: usize,
        place: SubBufferPlace,
        format: &SubBufferFormat,
        names: &mut Names,
        items: &mut I,
    ) -> Option<usize> {
        let bytes = payload.get(from..).filter(|rest| !rest.is_empty())?;
        let sub_buffer = match SubBuffer::parse::<O>(&format.shape, bytes) {
            Ok(sub_buffer) => sub_buffer,
            Err(error) => {
                self.bad_sub_buffer(error, from, place);
                return None;
            }
        };
        let SubBuffer { timestamp, missed, data, stored } = sub_buffer;
        let has_content = !data.is_empty() || missed.is_some();
        let has_places = has_content && self.counts_sub_buffers();
        if let Some(missed) = missed
            && !(has_places && self.has_told_mark())
        {
            self.waiting.flush(names, items);
            self.mark(missed, timestamp, items);
        }
        if has_places {
            self.begin_sub_buffer(timestamp, missed.is_some(), names, items);
        }
        self.records::<O, I, _>(&mut sub_buffer.records::<O>(), place.at(from), format, names, items);
        if has_places {
            self.end_sub_buffer();
        }
        Some(from.saturating_add(stored))
    }

    /// True where loss has its place by the number of a sub-buffer.
    pub(super) fn counts_sub_buffers(&self) -> bool {
        self.log.is_some() || self.told.is_some()
    }

    /// Decodes the records of the sub-buffer at this place.
    #[expect(clippy::arithmetic_side_effects, reason = "one event for each record of a sub-buffer in memory")]
    pub(super) fn records<O: TargetOrder, I: EventSink, R: RecordSource>(
        &mut self,
        records: &mut R,
        place: SubBufferPlace,
        format: &SubBufferFormat,
        names: &mut Names,
        items: &mut I,
    ) {
        let stacks = format.decoder.stacks().filter(|_| I::STACKS && self.has_stacks);
        // An event that waits for its stack is like no other.
        let takes_notes = I::NOTES && stacks.is_none();
        // On the fast path only these two are carried from event to event.
        let mut last = self.last.unwrap_or(0);
        let mut events = 0;
        let mut is_plain = self.is_plain() && self.first_in_block.is_some();
        while let Some(taken) = records.next_record(takes_notes) {
            let taken = match taken {
                Ok(taken) => taken,
                Err(error) => {
                    self.bad_entry(error, place);
                    break;
                }
            };
            let time = taken.time();
            let at = if time < last { self.back_in_time(time, last, place.offset) } else { time };
            let is_after_gap = !is_plain && self.begin_events((time, at), names, items);
            is_plain = true;
            let record = match taken {
                Taken::Record(record) => record,
                Taken::Noted { address, note, .. } => {
                    items.noted(at, address, note);
                    events += 1;
                    last = at;
                    continue;
                }
            };
            let varying =
                if R::KEEPS_NOTES && takes_notes { format.decoder.varying::<O>(record.payload) } else { None };
            let decoded = match stacks {
                Some(stacks) => self.decode_waiting::<O, I>(at, &record, (format, stacks), names, items),
                None => {
                    let unknown = &mut self.report.unknown;
                    format.decoder.decode::<O, I>(at, self.cpu, &record, names, items, unknown)
                }
            };
            match decoded {
                Ok(()) => {
                    events += 1;
                    if let Some((varying, note)) = varying.and_then(|varying| Some((varying, items.last_note()?))) {
                        records.keep_note(note, varying);
                    }
                }
                Err(error) => {
                    self.settle(std::mem::take(&mut events), last);
                    self.bad_record(error, place, is_after_gap);
                    self.push_unreadable(at, names, items);
                }
            }
            last = at;
        }
        self.settle(events, last);
    }

    /// Notes the time of a block's first event, and hands over the gaps before an event at the key `at`; true where one was pending.
    #[cold]
    fn begin_events(&mut self, (time, at): (u64, u64), names: &Names, items: &mut impl EventSink) -> bool {
        self.first_in_block.get_or_insert(time);
        !self.is_plain() && self.announce(at, names, items)
    }

    /// Bytes that cannot be read: the file ends there, is damaged, or the system refuses.
    #[cold]
    fn unreadable(&mut self, error: io::Error, place: SubBufferPlace) -> Ending {
        let at = place.offset;
        let (code, ending, message) = match error.kind() {
            io::ErrorKind::UnexpectedEof => {
                (Code::SubBufferCut, Ending::Cut, format!("the file ends at the sub-buffer at byte {at} of this CPU"))
            }
            io::ErrorKind::InvalidData => {
                (Code::BadCompression, Ending::Damaged, format!("behind byte {at} of this CPU: {error}"))
            }
            _ => (Code::CutInBlock, Ending::Cut, format!("cannot be read from byte {at} on: {error}")),
        };
        self.place_fault(code, place, || message);
        ending
    }

    /// Decodes a record of a trace with stacks: a stack is tied to its event, and an event waits for its stack.
    #[inline]
    #[expect(clippy::arithmetic_side_effects, reason = "counts of records, each of which was read")]
    fn decode_waiting<O: TargetOrder, I: EventSink>(
        &mut self,
        at: u64,
        record: &Record<'_>,
        (format, stacks): (&SubBufferFormat, &StackFormat),
        names: &mut Names,
        items: &mut I,
    ) -> Result<(), RecordError> {
        let origin = stacks.origin::<O>(record);
        let is_stack = stacks.is_stack::<O>(record.payload);
        if is_stack {
            let is_tied = self.waiting.tie::<O>((stacks, origin), record, format.shape.target.word_bytes, names);
            self.report.stacks += u64::from(is_tied);
            self.report.stacks_unmatched += u64::from(!is_tied);
        }
        let mut sink = WaitingSink { waiting: &mut self.waiting, items, origin, is_stack };
        let unknown = &mut self.report.unknown;
        format.decoder.decode::<O, WaitingSink<'_, I>>(at, self.cpu, record, names, &mut sink, unknown)
    }

    /// Events were lost before a sub-buffer that starts at `timestamp`.
    #[cold]
    pub(super) fn mark(&mut self, missed: Missed, timestamp: u64, items: &mut impl EventSink) {
        let to = self.last.map_or(timestamp, |last| last.max(timestamp));
        self.marks.count = self.marks.count.saturating_add(1);
        let lost = match missed {
            Missed::Counted(n) => {
                self.marks.counted = self.marks.counted.saturating_add(n);
                self.marks.longest = self.marks.longest.max((n, to));
                Some(n)
            }
            Missed::Uncounted => {
                self.marks.uncounted = self.marks.uncounted.saturating_add(1);
                None
            }
        };
        self.hand_over(items, Gap { from: self.last, to: Some(to), cpu: self.cpu, lost, cause: GapCause::Overrun });
    }

    /// A record that cannot be decoded; `is_after_gap`: a gap was handed over just before it.
    #[cold]
    fn bad_record(&mut self, error: RecordError, place: SubBufferPlace, is_after_gap: bool) {
        self.place_fault(Code::BadRecord, place, || format!("{}: {error}", place.sub_buffer()));
        if is_after_gap {
            self.damaged = true;
        } else {
            self.damage_in_sub_buffer();
        }
    }

    #[cold]
    fn push_unreadable(&mut self, at: u64, names: &mut Names, items: &mut impl EventSink) {
        let event = Event::unreadable(at, self.cpu, names);
        self.push(items, &event, names);
    }

    /// An entry that cannot be one: what follows it in the sub-buffer is lost.
    #[cold]
    fn bad_entry(&mut self, error: SubBufferError, place: SubBufferPlace) {
        self.place_fault(Code::BadSubBuffer, place, || format!("{}: {error}", place.sub_buffer()));
        self.damage_in_sub_buffer();
    }

    #[cold]
    fn bad_sub_buffer(&mut self, error: SubBufferError, from: usize, place: SubBufferPlace) {
        self.place_fault(Code::BadSubBuffer, place, || format!("{}: {error}", place.at(from).sub_buffer()));
        self.damage();
    }

    #[cold]
    pub(super) fn place_fault(&mut self, code: Code, place: SubBufferPlace, message: impl FnOnce() -> String) {
        self.report.add_one_of_many(code, place.offset, place.block, message);
    }
}
