//! From sub-buffers to an encoded block.

use foldhash::fast::FixedState;
use std::hash::BuildHasher;

use crate::codec::layout::{EventLayout, EventLayouts, ValuePlace};
use crate::codec::model::{Model, recent_index};
use crate::codec::wire::{
    BIG_ENDIAN, LONG_COMMIT, MAX_RECORD_BYTES, MAX_SLOTS, NO_SUB_BUFFER, SUB_BUFFER, control, form, op, value,
};
use crate::kernel::format::PageShape;
use crate::kernel::subbuffer::{Entry, SubBuffer, Tally};
use crate::target::{Big, Endian, Little, TargetOrder, uint_at};

/// Limits on what an encoder remembers of a block.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Slots.
    pub slots: usize,
    /// Bytes of their records.
    pub bytes: usize,
}

impl Limits {
    /// For blocks of 256 KiB.
    pub const USUAL: Limits = Limits { slots: 2048, bytes: 128 << 10 };
    /// Tables of less than 128 KiB, for blocks of 64 KiB.
    pub const LEAN: Limits = Limits { slots: 512, bytes: 24 << 10 };
}

/// Entries of the table from the words that tell most slots apart.
const NEAR_SLOTS: usize = 4096;
/// Entries of the table from all words: at most half of them are used.
const ALL_SLOTS: usize = 4096;
/// Entries of the table of slots that others are derived from.
const BASES: usize = 64;
/// No slot, in a table.
const NONE: u16 = u16::MAX;

/// Records that have all but time, thread, value and unused bytes in common.
#[derive(Clone, Copy, Debug)]
struct Slot {
    /// Start of the record's words in [`Slots::words`]; behind them are the masks.
    start: u32,
    /// Bytes of the record.
    len: u16,
    is_long: bool,
    value: Option<ValuePlace>,
    /// Value of the slot's last record.
    last: u64,
    /// Hash of its words and masks; of a slot that is patched, not to be found by it.
    hash: u64,
}

/// The slots of a block, and how they are found.
#[derive(Debug)]
struct Slots {
    limits: Limits,
    slots: Vec<Slot>,
    words: Vec<u64>,
    near: Box<[u16; NEAR_SLOTS]>,
    all: Box<[u16; ALL_SLOTS]>,
    bases: Box<[u16; BASES]>,
    /// Masked words of the record at hand, then their masks.
    found: Vec<u64>,
    mask: Vec<u8>,
}

/// Encodes blocks; keeps its memory from one to the next.
#[derive(Debug)]
pub struct Encoder {
    shape: PageShape,
    layouts: EventLayouts,
    model: Model,
    slots: Slots,
    is_first: bool,
}

/// The encoded block as it grows.
struct Output<'a> {
    bytes: &'a mut [u8],
    len: usize,
    /// There was no room for all of it.
    is_full: bool,
}

/// Room for the parts of a record, which take at most 19 bytes.
const ROOM: usize = 24;

impl Output<'_> {
    /// Room for a record; what is written there and not taken is overwritten.
    #[inline(always)]
    fn room(&mut self) -> Option<&mut [u8; ROOM]> {
        let room = self.bytes.get_mut(self.len..).and_then(<[u8]>::first_chunk_mut);
        self.is_full |= room.is_none();
        room
    }

    fn put(&mut self, bytes: &[u8]) {
        match self.bytes.get_mut(self.len..).and_then(|room| room.get_mut(..bytes.len())) {
            Some(room) => {
                room.copy_from_slice(bytes);
                self.len = self.len.saturating_add(bytes.len());
            }
            None => self.is_full = true,
        }
    }

    fn number(&mut self, mut number: usize) {
        while number >= 0x80 {
            self.put(&[number as u8 | 0x80]);
            number >>= 7;
        }
        self.put(&[number as u8]);
    }

    fn with_length(&mut self, code: u8, bytes: &[u8]) {
        self.put(&[code]);
        self.number(bytes.len());
        self.put(bytes);
    }
}

impl Encoder {
    /// An encoder for sub-buffers of this shape whose events have these layouts.
    pub fn new(shape: PageShape, layouts: EventLayouts, limits: Limits) -> Encoder {
        let slots = Slots {
            limits: Limits { slots: limits.slots.min(ALL_SLOTS / 2).min(MAX_SLOTS), ..limits },
            slots: Vec::new(),
            words: Vec::new(),
            near: Box::new([NONE; NEAR_SLOTS]),
            all: Box::new([NONE; ALL_SLOTS]),
            bases: Box::new([NONE; BASES]),
            found: Vec::new(),
            mask: Vec::new(),
        };
        Encoder { shape, layouts, model: Model::new(), slots, is_first: true }
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
                        let layout = layouts.of::<O>(record.payload).filter(|_| held.is_none());
                        let is_coded = layout.and_then(|layout| {
                            slots.put::<O>((record.payload, delta, is_long), (layout, layouts.pid_at), model, out)
                        });
                        if is_coded.is_none() {
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

/// Words of 8 bytes of a record, whose length is a multiple of 4.
#[inline(always)]
fn words(record: &[u8]) -> (&[[u8; 8]], u64) {
    let (words, rest) = record.as_chunks::<8>();
    (words, rest.first_chunk::<4>().map_or(0, |rest| u64::from(u32::from_ne_bytes(*rest))))
}

#[expect(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "numbers of its own tables; a record has at most 64 KiB"
)]
impl Slots {
    fn reset(&mut self) {
        self.slots.clear();
        self.words.clear();
        self.near.fill(NONE);
        self.all.fill(NONE);
        self.bases.fill(NONE);
    }

    /// Encodes a record; `None` where it can have no slot.
    #[inline(always)]
    fn put<O: TargetOrder>(
        &mut self,
        (record, delta, is_long): (&[u8], u32, bool),
        (layout, pid_at): (&EventLayout, u8),
        model: &mut Model,
        out: &mut Output<'_>,
    ) -> Option<()> {
        let near = near_index(record, layout);
        let number = self.near[near];
        let number = match self.slots.get(usize::from(number)) {
            Some(slot) if slot.is_long == is_long && self.is_of(slot, record) => number,
            _ => {
                let number = self.find::<O>((record, is_long), (layout, usize::from(pid_at)), out)?;
                self.near[near] = number;
                number
            }
        };
        let slot = self.slots.get_mut(usize::from(number))?;
        let pid = layout.has_pid.then(|| record.get(usize::from(pid_at)..)?.first_chunk::<4>()).flatten();
        let value = slot.value.map(|place| uint_at::<O>(record, place.offset, place.bytes).unwrap_or(0));
        // Without room the block is not stored in this form: nothing has to be right any more.
        let room = out.room()?;
        let mut code = 0;
        let mut len = 1;
        if model.expected() != number {
            code |= control::OTHER_SLOT;
            room[1] = number as u8;
            len = 2;
            if number >= 0x80 {
                room[1] |= 0x80;
                room[2] = (number >> 7) as u8;
                len = 3;
            }
        }
        let size = (DELTA_SIZES >> (delta.leading_zeros() & !7)) as u8 & 3;
        code |= size << control::DELTA_SHIFT;
        put_bytes(room, len, delta.to_le_bytes());
        len += usize::from(size) + 1;
        if let Some(pid) = pid
            && *pid != model.pid
        {
            code |= control::OTHER_PID;
            model.pid = *pid;
            put_bytes(room, len, *pid);
            len += 4;
        }
        if let Some((value, place)) = value.zip(slot.value) {
            let (way, stored, bytes) = value_way(value, slot.last, place.shift, model);
            code |= way << control::VALUE_SHIFT;
            put_bytes(room, len, stored.to_le_bytes());
            len += bytes;
            slot.last = value;
            model.take_value(value);
        }
        room[0] = code;
        out.len += len;
        model.follow(number);
        Some(())
    }

    /// True if a record has all that a slot's records have in common.
    #[inline(always)]
    fn is_of(&self, slot: &Slot, record: &[u8]) -> bool {
        if usize::from(slot.len) != record.len() {
            return false;
        }
        let count = record.len().div_ceil(8);
        let of = &self.words[slot.start as usize..][..2 * count];
        let (own, masks) = of.split_at(count);
        let (words, last) = words(record);
        let pairs = words.iter().zip(own.iter().zip(masks));
        let mut differs =
            pairs.fold(0, |differs, (word, (own, mask))| differs | (u64::from_ne_bytes(*word) & mask) ^ own);
        if words.len() < count {
            differs |= (last & masks[count - 1]) ^ own[count - 1];
        }
        differs == 0
    }

    /// Finds the slot of a record by all of its words, or makes one.
    #[inline(never)]
    fn find<O: TargetOrder>(
        &mut self,
        (record, is_long): (&[u8], bool),
        (layout, pid_at): (&EventLayout, usize),
        out: &mut Output<'_>,
    ) -> Option<u16> {
        let ends = [layout.value.map(|value| value.offset + value.bytes), layout.has_pid.then_some(pid_at + 4)];
        let is_short = ends.into_iter().flatten().any(|end| end > record.len());
        if is_short || record.is_empty() || record.len() > MAX_RECORD_BYTES || !record.len().is_multiple_of(4) {
            return None;
        }
        layout.mask::<O>(record, &mut self.mask);
        if layout.has_pid {
            self.mask[pid_at..pid_at + 4].fill(0);
        }
        if let Some(value) = layout.value {
            self.mask[value.offset..value.offset + value.bytes].fill(0);
        }
        let count = record.len().div_ceil(8);
        self.found.clear();
        let masked = |(words, last): (&[[u8; 8]], u64), found: &mut Vec<u64>| {
            found.extend(words.iter().map(|word| u64::from_ne_bytes(*word)));
            if words.len() < count {
                found.push(last);
            }
        };
        masked(words(record), &mut self.found);
        masked(words(&self.mask), &mut self.found);
        let (own, masks) = self.found.split_at_mut(count);
        own.iter_mut().zip(&*masks).for_each(|(word, mask)| *word &= mask);
        let hash = FixedState::default().hash_one((&self.found, is_long, record.len()));
        let mut at = hash as usize % ALL_SLOTS;
        while let Some(slot) = self.slots.get(usize::from(self.all[at])) {
            let len = self.found.len();
            if slot.hash == hash
                && slot.is_long == is_long
                && usize::from(slot.len) == record.len()
                && self.words.get(slot.start as usize..).is_some_and(|words| words.starts_with(&self.found[..len]))
            {
                return Some(self.all[at]);
            }
            at = (at + 1) % ALL_SLOTS;
        }
        let key = (record.len() / 4 * 5 + usize::from(is_long) + usize::from(record[0] ^ record[1]) * 7) % BASES;
        let base = self.bases[key];
        let is_base = |slot: &&Slot| {
            let id = |words: &[u64]| {
                words.first().map(|word| u16::from_ne_bytes([word.to_ne_bytes()[0], word.to_ne_bytes()[1]]))
            };
            let is_alike = usize::from(slot.len) == record.len() && slot.is_long == is_long;
            is_alike && id(&self.words[slot.start as usize..]) == id(&self.found)
        };
        let base = self.slots.get(usize::from(base)).filter(is_base).map(|slot| (base, *slot));
        let has_room =
            self.slots.len() < self.limits.slots && (self.words.len() + self.found.len()) * 8 <= 2 * self.limits.bytes;
        if has_room {
            let number = self.slots.len() as u16;
            let slot = self.define((record.len(), is_long), layout, base, hash, out);
            self.slots.push(slot);
            self.all[at] = number;
            self.bases[key] = number;
            return Some(number);
        }
        let (number, slot) = base?;
        out.put(&[op::PATCH]);
        out.number(usize::from(number));
        put_words(&self.words[slot.start as usize..][..count], &self.found[..count], record.len(), out);
        self.words[slot.start as usize..][..2 * count].copy_from_slice(&self.found);
        // Nothing is found by the words that it had; those that it has now do not stay.
        self.slots[usize::from(number)].hash = !hash;
        Some(number)
    }

    /// Puts the definition of a slot for the record at hand.
    fn define(
        &mut self,
        (len, is_long): (usize, bool),
        layout: &EventLayout,
        base: Option<(u16, Slot)>,
        hash: u64,
        out: &mut Output<'_>,
    ) -> Slot {
        let count = len.div_ceil(8);
        let start = self.words.len();
        let mut last = 0;
        if let Some((number, slot)) = base {
            out.put(&[op::DERIVE]);
            out.number(usize::from(number));
            put_words(&self.words[slot.start as usize..][..count], &self.found[..count], len, out);
            last = slot.last;
        } else {
            let long = if is_long { form::LONG } else { 0 };
            let pid = if layout.has_pid { form::PID } else { 0 };
            let value = layout.value.map_or(0, |place| {
                let bytes = if place.bytes == 8 { form::VALUE_8 } else { form::VALUE_4 };
                bytes | place.shift << form::SHIFT
            });
            out.put(&[op::DEFINE]);
            out.number(len / 4);
            out.put(&[long | pid | value]);
            if let Some(place) = layout.value {
                out.number(place.offset / 4);
            }
            let zeros = vec![0; count];
            put_words(&zeros, &self.found[..count], len, out);
        }
        self.words.extend_from_slice(&self.found);
        Slot { start: start as u32, len: len as u16, is_long, value: layout.value, last, hash }
    }
}

/// Puts the words of 4 bytes of a record that differ from those before: a bit for each, then those whose bit is set.
fn put_words(before: &[u64], after: &[u64], len: usize, out: &mut Output<'_>) {
    let halves = |words: &[u64]| -> Vec<[u8; 4]> {
        let bytes = words.iter().flat_map(|word| word.to_ne_bytes()).take(len).collect::<Vec<u8>>();
        bytes.as_chunks::<4>().0.to_vec()
    };
    let (before, after) = (halves(before), halves(after));
    let differs: Vec<bool> = before.iter().zip(&after).map(|(before, after)| before != after).collect();
    for bits in differs.chunks(8) {
        out.put(&[bits.iter().enumerate().fold(0, |byte, (bit, differs)| byte | u8::from(*differs) << bit)]);
    }
    for (word, _) in after.iter().zip(&differs).filter(|(_, differs)| **differs) {
        out.put(word);
    }
}

/// Number of bytes of a time delta less 1, two bits for each: by its leading zeros, in steps of 8 bits.
const DELTA_SIZES: u64 = 3 | 2 << 8 | 1 << 16;

#[inline(always)]
fn put_bytes<const N: usize>(room: &mut [u8; ROOM], at: usize, bytes: [u8; N]) {
    if let Some(to) = room.get_mut(at..).and_then(<[u8]>::first_chunk_mut) {
        *to = bytes;
    }
}

/// The way a value is stored, the number to store and its bytes.
#[inline(always)]
fn value_way(value: u64, last: u64, shift: u8, model: &Model) -> (u8, u64, usize) {
    if value == last {
        return (value::SAME, 0, 0);
    }
    if value == model.value {
        return (value::LAST, 0, 0);
    }
    let index = recent_index(value);
    if model.recent(index) == value {
        return (value::RECENT, u64::from(index), 1);
    }
    let difference = value ^ last;
    let shifted = difference >> shift;
    if shifted << shift != difference {
        return (value::WHOLE, value, 8);
    }
    match shifted.leading_zeros() / 8 {
        7 | 8 => (value::XOR_1, shifted, 1),
        6 => (value::XOR_2, shifted, 2),
        5 => (value::XOR_3, shifted, 3),
        4 => (value::XOR_4, shifted, 4),
        _ => (value::WHOLE, value, 8),
    }
}

/// Index of a record among those that are looked for first.
#[inline(always)]
fn near_index(record: &[u8], layout: &EventLayout) -> usize {
    let word = |(at, mask): (usize, u64)| {
        let rest = record.get(at..).unwrap_or_default();
        let half = || {
            let &[a, b, c, d] = rest.first_chunk().unwrap_or(&[0; 4]);
            u64::from_ne_bytes([a, b, c, d, 0, 0, 0, 0])
        };
        rest.first_chunk().map_or_else(half, |word| u64::from_ne_bytes(*word)) & mask
    };
    let head = record.first_chunk().map_or(0, |word| u32::from_ne_bytes(*word));
    let mut hash = (u64::from(head) | (record.len() as u64) << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    if layout.is_array {
        let (words, _) = words(record);
        let own = words.get(layout.probes[1].0 / 8..).unwrap_or_default();
        for word in own {
            hash = (hash.rotate_left(5) ^ u64::from_ne_bytes(*word)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        }
    } else {
        let [first, second] = layout.probes;
        hash ^= word(first).wrapping_mul(0xd6e8_feb8_6659_fd93);
        hash = hash.rotate_left(29) ^ word(second).wrapping_mul(0xa076_1d64_78bd_642f);
        hash = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
    (hash >> 52) as usize % NEAR_SLOTS
}
