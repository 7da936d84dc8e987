//! The entries of an encoded sub-buffer, one after the other. The block comes from a file, so it is hostile: every number is checked
//! before use.

use crate::codec::error::Wrong;
use crate::codec::model::Model;
use crate::codec::notes::Notes;
use crate::codec::wire::{MAX_RECORD_BYTES, MAX_SLOTS, NO_PID, control, form, op, value};
use crate::event::Note;
use crate::kernel::subbuffer::{DELTA_BITS, LOADED, Record, Taken, whole_entries};
use crate::kernel::varying::{Varying, VaryingPlaces};
use crate::target::{Endian, TargetOrder};

/// Bytes that the parts of a record of a slot take at most, and some more to load them.
const NEAR: usize = 32;
/// Mask of the bytes of a time delta, by their number less 1.
const DELTA_MASKS: [u32; 4] = [0xff, 0xffff, 0xff_ffff, u32::MAX];
/// Bytes of a stored value, by its way.
const VALUE_BYTES: [u8; 8] = [0, 1, 2, 3, 4, 8, 0, 1];
/// Bits of a stored value that are changed in another one, by its way.
const VALUE_MASKS: [u64; 8] = [0, 0, 0xffff, 0xff_ffff, 0xffff_ffff, u64::MAX, 0, 0xff];

/// Records that have all but time, thread and value in common.
#[derive(Clone, Copy, Debug)]
struct Slot {
    /// Start of the record in [`Slots::records`], where value and thread may be those of an earlier one.
    start: u32,
    /// Bytes of the record.
    len: u16,
    /// Offset of the value in the record.
    value_at: u16,
    /// See [`form`].
    form: u8,
    /// Value of the slot's last record.
    last: u64,
}

impl Slot {
    fn range(&self) -> std::ops::Range<usize> {
        let start = self.start as usize;
        start..start.saturating_add(self.len.into())
    }

    /// Bytes of an entry of the slot before its record.
    #[inline(always)]
    fn head_bytes(&self) -> usize {
        if self.form & form::LONG == 0 { 4 } else { 8 }
    }
}

/// What a decoder remembers of a block.
#[derive(Debug)]
pub(super) struct Slots {
    model: Model,
    slots: Vec<Slot>,
    /// A record of each slot, one behind the other, and [`LOADED`] zeros. Value and thread are put where a record is read.
    records: Vec<u8>,
    /// Bytes of all records at most: each slot has one in the block.
    limit: usize,
}

impl Default for Slots {
    fn default() -> Slots {
        Slots { model: Model::new(), slots: Vec::new(), records: Vec::new(), limit: 0 }
    }
}

impl Slots {
    /// State at the start of a block whose sub-buffers have so many bytes.
    pub(super) fn reset(&mut self, raw_len: usize) {
        self.model.reset();
        self.slots.clear();
        self.records.clear();
        self.records.resize(LOADED, 0);
        self.limit = raw_len;
    }

    /// A record that was just taken, and all bytes from its start on; `pid_at` is where its thread stands.
    #[inline(always)]
    fn record<O: TargetOrder>(&mut self, taken: &SlotRecord, pid_at: usize) -> (&[u8], &[u8]) {
        let rest = self.records.get_mut(taken.start..).unwrap_or_default();
        if let Some(slot) = self.slots.get(usize::from(taken.number)) {
            let record = rest.get_mut(..taken.len).unwrap_or_default();
            put_value::<O>(record, slot, taken.value);
            if slot.form & form::PID != 0
                && let Some(pid) = record.get_mut(pid_at..).and_then(<[u8]>::first_chunk_mut::<4>)
            {
                *pid = self.model.pid;
            }
        }
        (rest.get(..taken.len).unwrap_or_default(), rest)
    }

    /// Where records of this slot differ beside their time, `pid_at` being where their thread stands; `None` where value or thread do not.
    fn varying(&self, number: u16, pid_at: usize) -> Option<VaryingPlaces> {
        let slot = self.slots.get(usize::from(number)).filter(|slot| slot.form & form::PID != 0)?;
        let address_bytes = match slot.form & (form::VALUE_8 | form::VALUE_4) {
            0 => return None,
            form::VALUE_4 => 4,
            _ => 8,
        };
        Some(VaryingPlaces { address: slot.value_at.into(), address_bytes, pid: pid_at })
    }

    /// The bytes of a slot's record.
    fn bytes_of(&mut self, slot: &Slot) -> &mut [u8] {
        self.records.get_mut(slot.range()).unwrap_or_default()
    }

    /// Adds a slot whose record is that of `base`, or zeros.
    fn add(&mut self, slot: Slot, base: Option<Slot>) -> Result<Slot, Wrong> {
        let start = self.records.len().saturating_sub(LOADED);
        let slot = Slot { start: start as u32, ..slot };
        if self.slots.len() == MAX_SLOTS || slot.range().end > self.limit {
            return Err(Wrong::Form);
        }
        if let Some(base) = base {
            self.records.truncate(start);
            self.records.extend_from_within(base.range());
        }
        self.records.resize(slot.range().end.saturating_add(LOADED), 0);
        Ok(slot)
    }
}

/// A record of a slot, which the slot has until its next one.
#[derive(Clone, Copy, Debug)]
pub(super) struct SlotRecord {
    /// Number of the slot.
    pub(super) number: u16,
    /// Its value, in as many bytes as the record has for it; 0 where it has none.
    pub(super) value: u64,
    /// Its place in [`Slots::records`].
    start: usize,
    len: usize,
    /// Time since the entry before.
    pub(super) delta: u32,
    /// Its entry has the long form.
    pub(super) is_long: bool,
}

/// Part of an encoded sub-buffer.
pub(super) enum Part<'b> {
    Record(SlotRecord),
    /// Whole entries, or nothing.
    Entries(&'b [u8]),
    /// What follows the last coded entry: event data, then the count of lost events.
    Rest(&'b [u8]),
}

/// Parts of an encoded sub-buffer.
#[derive(Debug)]
pub(super) struct Entries<'b, 'd> {
    block: &'b [u8],
    /// The block, or nothing where something else comes before its next code.
    codes: &'b [u8],
    /// Offset of the next code in the block.
    pub(super) at: usize,
    /// Bytes of event data that are still to come.
    pub(super) left: usize,
    /// Bytes behind the event data.
    count_bytes: usize,
    /// Offset of the thread id in a record; [`NO_PID`] for none.
    pid_at: usize,
    /// Met behind the last part.
    wrong: Option<Wrong>,
    slots: &'d mut Slots,
    notes: &'d mut Notes,
}

/// A place in a block, for parts that are read byte by byte.
struct Cursor<'b> {
    block: &'b [u8],
    at: usize,
}

impl<'b> Cursor<'b> {
    fn take(&mut self, len: usize) -> Result<&'b [u8], Wrong> {
        let bytes = self.block.get(self.at..).and_then(|rest| rest.get(..len)).ok_or(Wrong::Cut)?;
        self.at = self.at.saturating_add(len);
        Ok(bytes)
    }

    fn byte(&mut self) -> Result<u8, Wrong> {
        self.take(1)?.first().copied().ok_or(Wrong::Cut)
    }

    /// A number of at most 28 bits: 7 bits a byte, the lowest first, the highest bit set but in the last one.
    fn number(&mut self) -> Result<usize, Wrong> {
        let mut number = 0;
        for shift in [0, 7, 14, 21] {
            let byte = usize::from(self.byte()?);
            number |= (byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(Wrong::Form)
    }

    /// Replaces words of a record: a bit for each, then those whose bit is set.
    fn words(&mut self, record: &mut [u8]) -> Result<(), Wrong> {
        let bits = self.take((record.len() / 4).div_ceil(8))?;
        for (words, bits) in record.chunks_mut(8 * 4).zip(bits) {
            for (number, word) in words.chunks_exact_mut(4).enumerate() {
                if bits >> number & 1 != 0 {
                    word.copy_from_slice(self.take(4)?);
                }
            }
        }
        Ok(())
    }
}

impl<'b, 'd> Entries<'b, 'd> {
    /// Parts of the sub-buffer whose codes begin at `at`: so many bytes of event data and behind it.
    pub(super) fn new(
        (block, at): (&'b [u8], usize),
        (left, count_bytes): (usize, usize),
        pid_at: usize,
        (slots, notes): (&'d mut Slots, &'d mut Notes),
    ) -> Entries<'b, 'd> {
        Entries { block, codes: block, at, left, count_bytes, pid_at, wrong: None, slots, notes }
    }

    /// Code of the record of a slot that comes next; `None` where another part does.
    #[inline(always)]
    pub(super) fn code(&self) -> Option<u8> {
        self.codes.get(self.at).copied().filter(|&code| code < op::END)
    }

    /// Makes [`Entries::code`] have none, or have the block's next one again.
    pub(super) fn hold(&mut self, yes: bool) {
        self.codes = if yes || self.wrong.is_some() { &[] } else { self.block };
    }

    /// A record that was just taken, and all bytes from its start on.
    #[inline(always)]
    pub(super) fn bytes_of<O: TargetOrder>(&mut self, taken: &SlotRecord) -> (&[u8], &[u8]) {
        self.slots.record::<O>(taken, self.pid_at)
    }

    /// A record that was just taken; of its event the note that stands for it, if there is one and it `takes_notes`.
    #[inline(always)]
    pub(super) fn taken<O: TargetOrder>(&mut self, taken: &SlotRecord, time: u64, takes_notes: bool) -> Taken<'_> {
        let (number, address) = (taken.number, taken.value);
        if takes_notes && let Some(note) = self.notes.note(number, self.slots.model.pid, address) {
            return Taken::Noted { time, address, note };
        }
        let (payload, rest) = self.slots.record::<O>(taken, self.pid_at);
        Taken::Record(Record { time, payload, rest })
    }

    /// Keeps a note of the event of this slot's record, which was taken last, if records of the slot differ in nothing but time and what
    /// is `varying`.
    pub(super) fn keep_note(&mut self, number: u16, note: Note, varying: Varying) {
        if self.slots.varying(number, self.pid_at) == Some(varying.places) {
            self.notes.keep(number, note, self.slots.model.pid, varying.addresses);
        }
    }

    /// The next part; after an error [`Entries::at`] is where it began.
    #[inline(always)]
    pub(super) fn next<O: TargetOrder>(&mut self) -> Result<Part<'b>, Wrong> {
        match self.code() {
            Some(code) => self.record(code).map(Part::Record),
            None => self.other::<O>(),
        }
    }

    /// A part that is no record of a slot.
    #[inline(never)]
    pub(super) fn other<O: TargetOrder>(&mut self) -> Result<Part<'b>, Wrong> {
        if let Some(wrong) = self.wrong {
            return Err(wrong);
        }
        let mut cursor = Cursor { block: self.block, at: self.at };
        let mut part = Part::Entries(&[]);
        match cursor.byte()? {
            op::END => {
                let len = cursor.number()?;
                if len != self.left.saturating_add(self.count_bytes) {
                    return Err(Wrong::Length);
                }
                part = Part::Rest(cursor.take(len)?);
            }
            op::ENTRIES => {
                let len = cursor.number()?;
                let bytes = cursor.take(len)?;
                self.left = self.left.checked_sub(len).ok_or(Wrong::Length)?;
                let whole = whole_entries::<O>(bytes);
                if whole < len {
                    self.wrong = Some(Wrong::Entries);
                    self.hold(true);
                    return Ok(Part::Entries(bytes.get(..whole).unwrap_or_default()));
                }
                part = Part::Entries(bytes);
            }
            op::DEFINE => self.define(&mut cursor)?,
            op::DERIVE => {
                let (_, base) = self.slot(&mut cursor)?;
                let slot = self.slots.add(base, Some(base))?;
                cursor.words(self.slots.bytes_of(&slot))?;
                self.slots.slots.push(slot);
            }
            op::PATCH => {
                let (number, slot) = self.slot(&mut cursor)?;
                self.notes.forget(number);
                cursor.words(self.slots.bytes_of(&slot))?;
            }
            code => return Err(Wrong::Op(code)),
        }
        self.at = cursor.at;
        Ok(part)
    }

    /// A slot by its number.
    fn slot(&self, cursor: &mut Cursor<'_>) -> Result<(usize, Slot), Wrong> {
        let number = cursor.number()?;
        self.slots.slots.get(number).map(|slot| (number, *slot)).ok_or(Wrong::Slot(number))
    }

    fn define(&mut self, cursor: &mut Cursor<'_>) -> Result<(), Wrong> {
        let len = cursor.number()?.saturating_mul(4);
        let form = cursor.byte()?;
        let has_value = form & (form::VALUE_8 | form::VALUE_4) != 0;
        let value_at = if has_value { cursor.number()?.saturating_mul(4) } else { 0 };
        let value_bytes = if form & form::VALUE_8 != 0 { 8 } else { 4 };
        let is_short = matches!(len, 4..=112);
        let has_form = if form & form::LONG == 0 { is_short } else { len <= MAX_RECORD_BYTES };
        let has_value_in = !has_value || value_at.saturating_add(value_bytes) <= len;
        let has_pid_in =
            form & form::PID == 0 || (self.pid_at < usize::from(NO_PID) && self.pid_at.saturating_add(4) <= len);
        if !(has_form && has_value_in && has_pid_in) {
            return Err(Wrong::Form);
        }
        let slot = Slot { start: 0, len: len as u16, value_at: value_at as u16, form, last: 0 };
        let slot = self.slots.add(slot, None)?;
        cursor.words(self.slots.bytes_of(&slot))?;
        self.slots.slots.push(slot);
        Ok(())
    }

    /// A record of a slot. [`Slots::record`] has its bytes: most are not read, as a note stands for them.
    #[inline(always)]
    #[expect(clippy::arithmetic_side_effects, reason = "an entry has at most 22 bytes, and a slot is in its block")]
    #[expect(clippy::indexing_slicing, reason = "tables of two and three bits; what is padded is shorter than `NEAR`")]
    pub(super) fn record(&mut self, code: u8) -> Result<SlotRecord, Wrong> {
        let rest = self.block.get(self.at + 1..).unwrap_or_default();
        let mut padded = [0; NEAR];
        let near: &[u8; NEAR] = match rest.first_chunk() {
            Some(near) => near,
            None => {
                padded[..rest.len()].copy_from_slice(rest);
                &padded
            }
        };
        let Slots { model, slots, .. } = &mut *self.slots;
        // Without branches: half of the records would be mispredicted in one of them.
        let is_other = code & control::OTHER_SLOT;
        let is_long = near[0] >> 7 & is_other;
        let stored = u16::from(near[0] & 0x7f) | (u16::from(near[1]) << 7) & 0u16.wrapping_sub(is_long.into());
        let is_stored = 0u16.wrapping_sub(is_other.into());
        let number = (stored & is_stored) | (model.expected() & !is_stored);
        let mut taken = usize::from(is_other + is_long);
        let size = usize::from(code >> control::DELTA_SHIFT & 3);
        let delta = u32::from_le_bytes(bytes(near, taken)) & DELTA_MASKS[size];
        taken += size + 1;
        if code & control::OTHER_PID != 0 {
            model.pid = bytes(near, taken);
            taken += 4;
        }
        let slot = slots.get_mut(usize::from(number)).ok_or(Wrong::Slot(number.into()))?;
        let way = code >> control::VALUE_SHIFT & 7;
        let mut value_in_record = 0;
        if slot.form & (form::VALUE_8 | form::VALUE_4) != 0 {
            let value = stored_value(model, slot, way, u64::from_le_bytes(bytes(near, taken)));
            taken += usize::from(VALUE_BYTES[usize::from(way)]);
            slot.last = value;
            model.take_value(value);
            value_in_record = if slot.form & form::VALUE_8 == 0 { u64::from(value as u32) } else { value };
        } else if way != value::SAME {
            return Err(Wrong::Value);
        }
        if taken > rest.len() {
            return Err(Wrong::Cut);
        }
        if delta >> DELTA_BITS != 0 {
            return Err(Wrong::Delta);
        }
        let (start, len) = (slot.start as usize, usize::from(slot.len));
        self.left = self.left.checked_sub(slot.head_bytes() + len).ok_or(Wrong::Length)?;
        model.follow(number);
        self.at += 1 + taken;
        Ok(SlotRecord { number, value: value_in_record, start, len, delta, is_long: slot.form & form::LONG != 0 })
    }
}

#[inline(always)]
fn bytes<const N: usize>(near: &[u8; NEAR], at: usize) -> [u8; N] {
    near.get(at..).and_then(<[u8]>::first_chunk).copied().unwrap_or([0; N])
}

/// The value of a record that stores it in this way; `word` has the stored bytes.
#[inline(always)]
#[expect(clippy::indexing_slicing, reason = "a way has three bits")]
fn stored_value(model: &Model, slot: &Slot, way: u8, word: u64) -> u64 {
    let recent = model.recent(word as u8);
    let mut base = slot.last;
    base = if way == value::RECENT { recent } else { base };
    base = if way == value::LAST { model.value } else { base };
    base = if way == value::WHOLE { 0 } else { base };
    let shift = if way == value::WHOLE { 0 } else { slot.form >> form::SHIFT };
    base ^ (word & VALUE_MASKS[usize::from(way)]) << shift
}

/// Puts the value of a record in its place.
#[inline(always)]
fn put_value<O: TargetOrder>(record: &mut [u8], slot: &Slot, value: u64) {
    let is_little = O::ENDIAN == Endian::Little;
    let place = record.get_mut(slot.value_at.into()..).unwrap_or_default();
    if slot.form & form::VALUE_8 != 0 {
        if let Some(place) = place.first_chunk_mut() {
            *place = if is_little { value.to_le_bytes() } else { value.to_be_bytes() };
        }
    } else if slot.form & form::VALUE_4 != 0
        && let Some(place) = place.first_chunk_mut()
    {
        let value = value as u32;
        *place = if is_little { value.to_le_bytes() } else { value.to_be_bytes() };
    }
}
