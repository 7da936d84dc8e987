//! The slots of an encoder: records that have most in common, how they are found, and what is stored of each record.

use foldhash::fast::FixedState;
use std::hash::BuildHasher;
use std::hint::select_unpredictable;

use crate::codec::layout::{EventLayout, EventLayouts, ValuePlace};
use crate::codec::model::{Model, recent_index};
use crate::codec::output::{Output, put_bytes};
use crate::codec::wire::{MAX_RECORD_BYTES, MAX_SLOTS, control, form, op, value};
use crate::kernel::subbuffer::Record;
use crate::target::{TargetOrder, u32_at, u64_at};

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

/// Words of a record that are compared at once, whatever its length: few records have more.
const NEAR_WORDS: usize = 12;
/// Their bytes.
const NEAR_BYTES: usize = 8 * NEAR_WORDS;
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
    /// Start of the words behind the first ones, in [`Slots::far`].
    far: u32,
    /// Number of the masks of the first words, in [`Slots::masks`].
    masks: u32,
    /// Bytes of the record.
    len: u16,
    is_long: bool,
    has_pid: bool,
    /// Bytes of the value: 4 or 8, 0 for none.
    value_bytes: u8,
    /// Its lower bits that are equal in most records.
    shift: u8,
    /// Its place in the record.
    value_at: u16,
    /// Value of the slot's last record.
    last: u64,
    /// Hash of its words and masks; of a slot that is patched, not to be found by it.
    hash: u64,
}

/// The slots of a block, and how they are found.
#[derive(Debug)]
pub(super) struct Slots {
    limits: Limits,
    slots: Vec<Slot>,
    /// The first masked words of each slot's record, zeros behind its end.
    words: Vec<[u64; NEAR_WORDS]>,
    /// Masks of first words: slots of an event mostly have the same.
    masks: Vec<[u64; NEAR_WORDS]>,
    /// The other words of records that have more, then their masks.
    far: Vec<u64>,
    /// Bytes of all slots' records.
    bytes: usize,
    /// Each record has two places: two slots that share the first one would evict each other.
    near: Box<[u16; NEAR_SLOTS]>,
    all: Box<[u16; ALL_SLOTS]>,
    bases: Box<[u16; BASES]>,
    /// Masked words of the record at hand, and their masks.
    found: Vec<u64>,
    found_masks: Vec<u64>,
    mask: Vec<u8>,
}

/// A record for which a slot is looked for.
#[derive(Clone, Copy)]
struct Wanted<'a> {
    record: &'a [u8],
    /// The first bytes of the record; behind a short one comes anything.
    near: &'a [[u8; 8]; NEAR_WORDS],
    is_long: bool,
}

/// Words of a record, whose length is a multiple of 4: the last one is filled up with zeros.
fn words(record: &[u8]) -> impl Iterator<Item = u64> {
    let (words, rest) = record.as_chunks::<8>();
    words.iter().map(|word| u64::from_ne_bytes(*word)).chain(rest.first_chunk().map(|half| word_of_half(*half)))
}

fn word_of_half([a, b, c, d]: [u8; 4]) -> u64 {
    u64::from_ne_bytes([a, b, c, d, 0, 0, 0, 0])
}

#[expect(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "numbers of its own tables; a record has at most 64 KiB"
)]
impl Slots {
    pub(super) fn new(limits: Limits) -> Slots {
        Slots {
            limits: Limits { slots: limits.slots.min(ALL_SLOTS / 2).min(MAX_SLOTS), ..limits },
            slots: Vec::new(),
            words: Vec::new(),
            masks: Vec::new(),
            far: Vec::new(),
            bytes: 0,
            near: Box::new([NONE; NEAR_SLOTS]),
            all: Box::new([NONE; ALL_SLOTS]),
            bases: Box::new([NONE; BASES]),
            found: Vec::new(),
            found_masks: Vec::new(),
            mask: Vec::new(),
        }
    }

    /// Forgets all slots: a block begins.
    pub(super) fn reset(&mut self) {
        self.slots.clear();
        self.words.clear();
        self.masks.clear();
        self.far.clear();
        self.bytes = 0;
        self.near.fill(NONE);
        self.all.fill(NONE);
        self.bases.fill(NONE);
    }

    /// Encodes a record; `None` where it can have no slot.
    #[inline(always)]
    pub(super) fn put<O: TargetOrder>(
        &mut self,
        (Record { payload: record, rest, .. }, delta, is_long): (Record<'_>, u32, bool),
        layouts: &EventLayouts,
        model: &mut Model,
        out: &mut Output<'_>,
    ) -> Option<()> {
        let padded;
        let near = match rest.as_chunks().0.first_chunk() {
            Some(near) => near,
            None => {
                padded = near_words(rest);
                &padded
            }
        };
        let wanted = Wanted { record, near, is_long };
        let expected = model.expected();
        let is_expected = self.is_of(expected, &wanted);
        let number = if is_expected { expected } else { self.unexpected::<O>(&wanted, layouts, out)? };
        let slot = self.slots.get_mut(usize::from(number))?;
        let pid = record.get(usize::from(layouts.pid_at)..).and_then(<[u8]>::first_chunk).filter(|_| slot.has_pid);
        let value_at = usize::from(slot.value_at);
        let value = match slot.value_bytes {
            8 => u64_at::<O>(record, value_at),
            4 => u32_at::<O>(record, value_at).map(u64::from),
            _ => None,
        };
        // Without room the block is not stored in this form: nothing has to be right any more.
        let room = out.room()?;
        // No branches on what a record holds: half of the records would have one mispredicted.
        let is_other = u8::from(number != expected);
        let is_large = u8::from(number >= 0x80) & is_other;
        let mut code = control::OTHER_SLOT * is_other;
        room[1] = number as u8 | is_large << 7;
        room[2] = (number >> 7) as u8;
        let mut len = 1 + usize::from(is_other + is_large);
        let size = (DELTA_SIZES >> (delta.leading_zeros() & !7)) as u8 & 3;
        code |= size << control::DELTA_SHIFT;
        put_bytes(room, len, delta.to_le_bytes());
        len += usize::from(size) + 1;
        if let Some(pid) = pid {
            let is_other = u8::from(*pid != model.pid);
            code |= control::OTHER_PID * is_other;
            model.pid = *pid;
            put_bytes(room, len, *pid);
            len += 4 * usize::from(is_other);
        }
        if let Some(value) = value {
            let (way, stored, bytes) = value_way(value, slot.last, slot.shift, model);
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

    /// True if a record has all that the records of the slot with this number have in common.
    #[inline(always)]
    fn is_of(&self, number: u16, wanted: &Wanted<'_>) -> bool {
        let slot = self.slots.get(usize::from(number)).zip(self.words.get(usize::from(number)));
        let Some((slot, own)) = slot else { return false };
        let masks = &self.masks[slot.masks as usize];
        let mut differs =
            (wanted.record.len() as u64) ^ u64::from(slot.len) | u64::from(slot.is_long != wanted.is_long);
        for at in 0..NEAR_WORDS {
            differs |= (u64::from_ne_bytes(wanted.near[at]) & masks[at]) ^ own[at];
        }
        differs == 0 && (wanted.record.len() <= NEAR_BYTES || self.is_far_of(slot, wanted.record))
    }

    /// The same for the words behind the first ones.
    fn is_far_of(&self, slot: &Slot, record: &[u8]) -> bool {
        let (words, rest) = record[NEAR_BYTES..].as_chunks::<8>();
        let count = words.len() + usize::from(!rest.is_empty());
        let (own, masks) = self.far[slot.far as usize..][..2 * count].split_at(count);
        let pairs = words.iter().zip(own.iter().zip(masks));
        let differs = pairs.fold(0, |all, (word, (own, mask))| all | (u64::from_ne_bytes(*word) & mask) ^ own);
        let half = rest.first_chunk().map_or(0, |half| word_of_half(*half) & masks[count - 1] ^ own[count - 1]);
        differs | half == 0
    }

    /// Finds the slot of a record that is not of the expected one.
    fn unexpected<O: TargetOrder>(
        &mut self,
        wanted: &Wanted<'_>,
        layouts: &EventLayouts,
        out: &mut Output<'_>,
    ) -> Option<u16> {
        let layout = layouts.of::<O>(wanted.record)?;
        let places = near_places(wanted.record, layout);
        for place in places {
            let number = self.near[place];
            if self.is_of(number, wanted) {
                return Some(number);
            }
        }
        let number = self.find::<O>((wanted.record, wanted.is_long), (layout, usize::from(layouts.pid_at)), out)?;
        let [first, second] = places;
        let place = if self.near[first] == NONE { first } else { second };
        self.near[place] = number;
        Some(number)
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
        // A record is compared with a slot by its words alone, so the event's id has to be among them.
        if !self.mask.starts_with(&[0xff; 2]) {
            return None;
        }
        let count = record.len().div_ceil(8);
        self.found_masks.clear();
        self.found_masks.extend(words(&self.mask));
        self.found.clear();
        self.found.extend(words(record).zip(&self.found_masks).map(|(word, mask)| word & mask));
        let hash = FixedState::default().hash_one((&self.found, &self.found_masks, is_long, record.len()));
        let mut at = hash as usize % ALL_SLOTS;
        while let Some(slot) = self.slots.get(usize::from(self.all[at])) {
            let number = self.all[at];
            if slot.hash == hash
                && slot.is_long == is_long
                && usize::from(slot.len) == record.len()
                && self.words_of(number).eq(&self.found)
                && self.masks_of(number).eq(&self.found_masks)
            {
                return Some(number);
            }
            at = (at + 1) % ALL_SLOTS;
        }
        let key = (record.len() / 4 * 5 + usize::from(is_long) + usize::from(record[0] ^ record[1]) * 7) % BASES;
        let base = self.bases[key];
        let is_base = |slot: &&Slot| {
            let id = |word: Option<&u64>| word.map(|word| [word.to_ne_bytes()[0], word.to_ne_bytes()[1]]);
            let is_alike = usize::from(slot.len) == record.len() && slot.is_long == is_long;
            is_alike && id(self.words[usize::from(base)].first()) == id(self.found.first())
        };
        let base = self.slots.get(usize::from(base)).filter(is_base).map(|slot| (base, *slot));
        let has_room = self.slots.len() < self.limits.slots && self.bytes + 8 * count <= self.limits.bytes;
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
        self.put_words_of(number, record.len(), out);
        let far = self.far_of_found();
        let own_far = slot.far as usize..slot.far as usize + far.len();
        self.far.splice(own_far, far);
        self.words[usize::from(number)] = first_words(&self.found);
        // Nothing is found by the words that it had; those that it has now do not stay.
        self.slots[usize::from(number)] = Slot { masks: self.masks_of_found(), hash: !hash, ..slot };
        Some(number)
    }

    /// Masked words of a slot's record.
    fn words_of(&self, number: u16) -> impl Iterator<Item = &u64> {
        let slot = &self.slots[usize::from(number)];
        let count = usize::from(slot.len).div_ceil(8);
        self.words[usize::from(number)].iter().chain(&self.far[slot.far as usize..]).take(count)
    }

    /// Their masks.
    fn masks_of(&self, number: u16) -> impl Iterator<Item = &u64> {
        let slot = &self.slots[usize::from(number)];
        let count = usize::from(slot.len).div_ceil(8);
        let far = slot.far as usize + count.saturating_sub(NEAR_WORDS);
        self.masks[slot.masks as usize].iter().chain(&self.far[far..]).take(count)
    }

    /// What [`Slots::far`] has of the record at hand.
    fn far_of_found(&self) -> Vec<u64> {
        let far = [&self.found, &self.found_masks].map(|words| words.get(NEAR_WORDS..).unwrap_or_default());
        far.concat()
    }

    /// Number of the first masks of the record at hand.
    fn masks_of_found(&mut self) -> u32 {
        let masks = first_words(&self.found_masks);
        let number = self.masks.iter().position(|known| *known == masks).unwrap_or(self.masks.len());
        if number == self.masks.len() {
            self.masks.push(masks);
        }
        number as u32
    }

    /// Puts the words of the record at hand that differ from those of a slot.
    fn put_words_of(&self, number: u16, len: usize, out: &mut Output<'_>) {
        let before: Vec<u64> = self.words_of(number).copied().collect();
        put_words(&before, &self.found, len, out);
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
        let mut last = 0;
        if let Some((number, slot)) = base {
            out.put(&[op::DERIVE]);
            out.number(usize::from(number));
            self.put_words_of(number, len, out);
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
            put_words(&vec![0; self.found.len()], &self.found, len, out);
        }
        let far = self.far.len() as u32;
        self.far.extend(self.far_of_found());
        self.words.push(first_words(&self.found));
        self.bytes += 8 * self.found.len();
        let value = layout.value.unwrap_or(ValuePlace { offset: 0, bytes: 0, shift: 0 });
        Slot {
            far,
            masks: self.masks_of_found(),
            len: len as u16,
            is_long,
            has_pid: layout.has_pid,
            value_bytes: value.bytes as u8,
            shift: value.shift,
            value_at: value.offset as u16,
            last,
            hash,
        }
    }
}

/// The first ones of a record's words, filled up with zeros.
fn first_words(words: &[u64]) -> [u64; NEAR_WORDS] {
    std::array::from_fn(|at| words.get(at).copied().unwrap_or(0))
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

/// Ways to store a value, with the bytes that are stored: by the leading zeros of what is different, in steps of 8 bits; then those of a
/// recent value, of the last one, and of the slot's last one.
const WAYS: [(u8, u8); 12] = [
    (value::WHOLE, 8),
    (value::WHOLE, 8),
    (value::WHOLE, 8),
    (value::WHOLE, 8),
    (value::XOR_4, 4),
    (value::XOR_3, 3),
    (value::XOR_2, 2),
    (value::XOR_1, 1),
    (value::XOR_1, 1),
    (value::RECENT, 1),
    (value::LAST, 0),
    (value::SAME, 0),
];
const RECENT: usize = 9;
const LAST: usize = 10;
const SAME: usize = 11;

/// The way a value is stored, the number to store and its bytes.
#[inline(always)]
#[expect(clippy::indexing_slicing, reason = "a number has at most 64 leading zeros")]
fn value_way(value: u64, last: u64, shift: u8, model: &Model) -> (u8, u64, usize) {
    let difference = value ^ last;
    let shifted = difference.wrapping_shr(shift.into());
    let index = recent_index(value);
    let mut way =
        select_unpredictable(shifted.wrapping_shl(shift.into()) == difference, shifted.leading_zeros() as usize / 8, 0);
    let stored = select_unpredictable(way < 4, value, shifted);
    let is_recent = model.recent(index) == value;
    way = select_unpredictable(is_recent, RECENT, way);
    let stored = select_unpredictable(is_recent, u64::from(index), stored);
    way = select_unpredictable(value == model.value, LAST, way);
    way = select_unpredictable(value == last, SAME, way);
    let (way, bytes) = WAYS[way];
    (way, stored, usize::from(bytes))
}

/// The first words of a record near the end of its sub-buffer.
#[cold]
fn near_words(rest: &[u8]) -> [[u8; 8]; NEAR_WORDS] {
    let mut near = [[0; 8]; NEAR_WORDS];
    near.as_flattened_mut().iter_mut().zip(rest).for_each(|(to, byte)| *to = *byte);
    near
}

/// Places of a record among the slots that are looked for first.
#[inline(always)]
fn near_places(record: &[u8], layout: &EventLayout) -> [usize; 2] {
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
        let (words, _) = record.as_chunks();
        let own = words.get(layout.probes[1].0 / 8..).unwrap_or_default();
        for word in own {
            hash = (hash.rotate_left(5) ^ u64::from_ne_bytes(*word)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        }
    } else {
        let [first, second, third] = layout.probes;
        hash ^= word(first).wrapping_mul(0xd6e8_feb8_6659_fd93);
        hash = hash.rotate_left(29) ^ word(second).wrapping_mul(0xa076_1d64_78bd_642f);
        hash ^= word(third).wrapping_mul(0xe703_7ed1_a0b4_28db);
        hash = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
    [52, 40].map(|shift| (hash >> shift) as usize % NEAR_SLOTS)
}
