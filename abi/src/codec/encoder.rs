//! From sub-buffers to an encoded block.

use crate::codec::layout::EventLayouts;
use crate::codec::model::Model;
use crate::codec::output::Output;
use crate::codec::slots::{Limits, Slots};
use crate::codec::wire::{BIG_ENDIAN, LONG_COMMIT, NO_SUB_BUFFER, SUB_BUFFER, op};
use crate::kernel::format::PageShape;
use crate::kernel::subbuffer::{Entry, SubBuffer, Tally};
use crate::target::{Big, Endian, Little, TargetOrder};

/// Encodes blocks; keeps its memory from one to the next.
#[derive(Debug)]
pub struct Encoder {
    shape: PageShape,
    layouts: EventLayouts,
    model: Model,
    slots: Slots,
    is_first: bool,
}

impl Encoder {
    /// An encoder for sub-buffers of this shape whose events have these layouts.
    pub fn new(shape: PageShape, layouts: EventLayouts, limits: Limits) -> Encoder {
        Encoder { shape, layouts, model: Model::new(), slots: Slots::new(limits), is_first: true }
    }

    /// Layouts of the events.
    pub fn layouts(&self) -> &EventLayouts {
        &self.layouts
    }

    /// Encodes a run of sub-buffers into `out` and hands the counts of each to `each`, up to bytes that are no sub-buffer. Returns the
    /// bytes used of `out`; `None` where it has too few.
    pub fn encode(&mut self, sub_buffers: &[u8], out: &mut [u8], each: &mut impl FnMut(&Tally)) -> Option<usize> {
        let PageShape { target, commit_offset, commit_size, data_offset, .. } = self.shape;
        if !std::mem::take(&mut self.is_first) {
            self.model.reset();
            self.slots.reset();
        }
        let mut out = Output { bytes: out, len: 0, is_full: false };
        let flags =
            if target.endian == Endian::Big { BIG_ENDIAN } else { 0 } | if commit_size == 8 { LONG_COMMIT } else { 0 };
        let byte = |offset: usize| u8::try_from(offset).unwrap_or(u8::MAX);
        let (header, commit) = (byte(data_offset), byte(commit_offset));
        out.is_full = usize::from(header) != data_offset || usize::from(commit) != commit_offset;
        out.put(&[flags, header, commit, self.layouts.pid_at]);
        match target.endian {
            Endian::Little => self.encode_in::<Little>(sub_buffers, &mut out, each),
            Endian::Big => self.encode_in::<Big>(sub_buffers, &mut out, each),
        }
        (!out.is_full).then_some(out.len)
    }

    fn encode_in<O: TargetOrder>(&mut self, mut rest: &[u8], out: &mut Output<'_>, each: &mut impl FnMut(&Tally)) {
        let Encoder { shape, layouts, model, slots, .. } = self;
        while !rest.is_empty() {
            let Ok(sub_buffer) = SubBuffer::parse::<O>(shape, rest) else {
                out.put(&[NO_SUB_BUFFER]);
                out.put(rest);
                return;
            };
            let mut tally =
                Tally { missed: sub_buffer.missed, commit: sub_buffer.data.len() as u64, ..Tally::default() };
            out.put(&[SUB_BUFFER]);
            let header = rest.get(..shape.data_offset).unwrap_or_default();
            out.put(header);
            let mut records = sub_buffer.records::<O>();
            // Start of an entry that has no room for its own length: it is stored with the next one.
            let mut held = None;
            let coded = loop {
                let at = held.unwrap_or(records.offset());
                match records.entry() {
                    Some(Ok(Entry::Record { record, delta, is_long })) => {
                        if tally.events == 0 {
                            tally.first = record.time;
                        }
                        tally.last = record.time;
                        tally.events = tally.events.saturating_add(1);
                        if held.is_some() || slots.put::<O>((record, delta, is_long), layouts, model, out).is_none() {
                            let entry = sub_buffer.data.get(at..records.offset()).unwrap_or_default();
                            put_whole::<O>(entry, record.payload.len(), layouts, out);
                            held = None;
                        }
                    }
                    Some(Ok(Entry::Other(entry))) if entry.len() < 8 => held = Some(at),
                    Some(Ok(Entry::Other(_))) => {
                        out.with_length(op::ENTRIES, sub_buffer.data.get(at..records.offset()).unwrap_or_default());
                        held = None;
                    }
                    Some(Err(_)) | None => break at,
                }
            };
            let behind = rest.get(header.len().saturating_add(coded)..sub_buffer.stored).unwrap_or_default();
            out.with_length(op::END, behind);
            each(&tally);
            rest = rest.get(sub_buffer.stored..).unwrap_or_default();
        }
    }
}

/// Puts a record that has no slot.
#[cold]
fn put_whole<O: TargetOrder>(entry: &[u8], payload_len: usize, layouts: &EventLayouts, out: &mut Output<'_>) {
    out.with_length(op::ENTRIES, entry);
    if let Some(from) = out.len.checked_sub(payload_len).filter(|_| !out.is_full) {
        layouts.clear_record::<O>(out.bytes.get_mut(from..out.len).unwrap_or_default());
    }
}
