//! From an encoded block back to sub-buffers. The block comes from a file, so it is hostile: every number is checked before use.

use crate::codec::model::Model;
use crate::codec::wire::{
    BIG_ENDIAN, HEAD_BYTES, LONG_COMMIT, MAX_RECORD_BYTES, MAX_SLOTS, NO_PID, NO_SUB_BUFFER, SUB_BUFFER, control, form,
    op, value,
};
use crate::kernel::subbuffer::{DELTA_BITS, end_early, entry_word};
use crate::target::{Big, Endian, Little, TargetOrder};

/// An encoded block that cannot be decoded to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} at byte {at} of the encoded records")]
pub struct CodecError {
    /// Offset in the encoded block, in bytes.
    at: usize,
    what: Wrong,
}

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum Wrong {
    #[error("the records are cut")]
    Cut,
    #[error("a head that no version writes")]
    Head,
    #[error("an unknown code {0:#x}")]
    Op(u8),
    #[error("slot {0}, which is not defined,")]
    Slot(usize),
    #[error("a slot whose record has an impossible form")]
    Form,
    #[error("a time delta of more than {DELTA_BITS} bits")]
    Delta,
    #[error("a value for a slot without one")]
    Value,
    #[error("more bytes than the block's header tells")]
    TooLong,
    #[error("fewer bytes than the block's header tells")]
    TooShort,
}

/// Records that have all but time, thread and value in common.
#[derive(Clone, Copy, Debug)]
struct Slot {
    /// Start of the record in [`Decoder::records`].
    start: usize,
    /// Bytes of the record.
    len: usize,
    /// See [`form`].
    form: u8,
    /// Offset of the value in the record.
    value_at: usize,
    /// Value of the slot's last record.
    last: u64,
}

/// What the encoder knew of the sub-buffers.
#[derive(Clone, Copy, Debug)]
struct Head {
    endian: Endian,
    commit_at: usize,
    commit_bytes: usize,
    header_bytes: usize,
    /// Offset of the thread id; [`NO_PID`] for none.
    pid_at: usize,
}

impl Head {
    fn parse(block: &[u8]) -> Result<Head, Wrong> {
        let &[flags, header_bytes, commit_at, pid_at] = block.first_chunk::<HEAD_BYTES>().ok_or(Wrong::Cut)?;
        let (header_bytes, commit_at) = (usize::from(header_bytes), usize::from(commit_at));
        let commit_bytes = if flags & LONG_COMMIT == 0 { 4 } else { 8 };
        if flags & !(BIG_ENDIAN | LONG_COMMIT) != 0 || commit_at + commit_bytes > header_bytes {
            return Err(Wrong::Head);
        }
        let endian = if flags & BIG_ENDIAN == 0 { Endian::Little } else { Endian::Big };
        Ok(Head { endian, commit_at, commit_bytes, header_bytes, pid_at: usize::from(pid_at) })
    }
}

/// Bytes that the parts of a record of a slot take at most, and some more to load them.
const NEAR: usize = 32;
/// Mask of the bytes of a time delta, by their number less 1.
const DELTA_MASKS: [u32; 4] = [0xff, 0xffff, 0xff_ffff, u32::MAX];

/// Decodes blocks; keeps its memory from one to the next.
#[derive(Debug)]
pub struct Decoder {
    model: Model,
    slots: Vec<Slot>,
    /// The last record of each slot, one behind the other.
    records: Vec<u8>,
}

impl Default for Decoder {
    fn default() -> Decoder {
        Decoder { model: Model::new(), slots: Vec::new(), records: Vec::new() }
    }
}

impl Decoder {
    /// Replaces `out` by the sub-buffers of an encoded block, `raw_len` bytes.
    ///
    /// # Errors
    /// Where the block is damaged. What was decoded before stands in `out`: whole sub-buffers, and the last one as if it ended with
    /// the last entry that was decoded.
    pub fn decode(&mut self, block: &[u8], raw_len: usize, out: &mut Vec<u8>) -> Result<(), CodecError> {
        self.model.reset();
        self.slots.clear();
        self.records.clear();
        out.clear();
        let head = Head::parse(block).map_err(|what| CodecError { at: 0, what })?;
        out.resize(raw_len, 0);
        match head.endian {
            Endian::Little => self.decode_in::<Little>(block, head, out),
            Endian::Big => self.decode_in::<Big>(block, head, out),
        }
    }

    fn decode_in<O: TargetOrder>(&mut self, block: &[u8], head: Head, out: &mut Vec<u8>) -> Result<(), CodecError> {
        let mut parts = Parts { block, at: HEAD_BYTES, head, in_sub_buffer: false, decoder: self };
        let mut output = Output { bytes: out, len: 0 };
        // Start of the sub-buffer that is not whole yet.
        let mut begun = None;
        let error = loop {
            let from = parts.at;
            let put = parts.next::<O>().and_then(|part| match part {
                Part::Slot { slot, delta } => parts.put_record::<O>(slot, delta, &mut output),
                Part::SubBuffer(header) => {
                    begun = Some(output.len);
                    output.put(header)
                }
                Part::Entries(bytes) => output.put(bytes),
                Part::Rest(bytes) => {
                    output.put(bytes)?;
                    begun = None;
                    Ok(())
                }
                Part::End if output.len == output.bytes.len() => Err(None),
                Part::End => Err(Some(Wrong::TooShort)),
            });
            match put {
                Ok(()) => {}
                Err(None) => return Ok(()),
                Err(Some(what)) => break CodecError { at: from, what },
            }
        };
        let len = output.len;
        out.truncate(len);
        if let Some(begun) = begun {
            end_early(head.endian, (head.commit_at, head.commit_bytes, head.header_bytes), &mut out[begun..]);
        }
        Err(error)
    }
}

/// Sub-buffers as they are put together.
struct Output<'a> {
    /// As long as the block's header tells.
    bytes: &'a mut Vec<u8>,
    /// Bytes that were put.
    len: usize,
}

impl Output<'_> {
    #[inline(always)]
    fn room(&mut self, len: usize) -> Result<&mut [u8], Option<Wrong>> {
        let room = self.bytes.get_mut(self.len..).and_then(|room| room.get_mut(..len)).ok_or(Some(Wrong::TooLong))?;
        self.len += len;
        Ok(room)
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), Option<Wrong>> {
        self.room(bytes.len())?.copy_from_slice(bytes);
        Ok(())
    }
}

/// Part of an encoded block.
enum Part<'a> {
    /// A record of this slot, with its time delta.
    Slot { slot: usize, delta: u32 },
    /// Header of the sub-buffer that begins.
    SubBuffer(&'a [u8]),
    /// Whole entries.
    Entries(&'a [u8]),
    /// What follows the last coded entry of the sub-buffer, or of the block.
    Rest(&'a [u8]),
    /// Nothing follows.
    End,
}

/// Takes a block apart.
struct Parts<'a, 'd> {
    block: &'a [u8],
    at: usize,
    head: Head,
    in_sub_buffer: bool,
    decoder: &'d mut Decoder,
}

impl<'a> Parts<'a, '_> {
    #[inline(always)]
    fn next<O: TargetOrder>(&mut self) -> Result<Part<'a>, Option<Wrong>> {
        let Some(&code) = self.block.get(self.at) else {
            return if self.in_sub_buffer { Err(Some(Wrong::Cut)) } else { Ok(Part::End) };
        };
        self.at += 1;
        if self.in_sub_buffer && code < op::END {
            return Ok(self.slot::<O>(code)?);
        }
        Ok(self.other(code)?)
    }

    /// A part that is no record of a slot.
    #[inline(never)]
    fn other(&mut self, code: u8) -> Result<Part<'a>, Wrong> {
        if !self.in_sub_buffer {
            return match code {
                SUB_BUFFER => {
                    self.in_sub_buffer = true;
                    Ok(Part::SubBuffer(self.take(self.head.header_bytes)?))
                }
                NO_SUB_BUFFER => Ok(Part::Rest(self.take(self.block.len() - self.at)?)),
                _ => Err(Wrong::Op(code)),
            };
        }
        match code {
            op::END => {
                let len = self.number()?;
                self.in_sub_buffer = false;
                return Ok(Part::Rest(self.take(len)?));
            }
            op::ENTRIES => {}
            op::DEFINE => self.define()?,
            op::DERIVE => self.derive()?,
            op::PATCH => {
                let number = self.number()?;
                let slot = *self.decoder.slots.get(number).ok_or(Wrong::Slot(number))?;
                self.words(slot.start, slot.len)?;
            }
            _ => return Err(Wrong::Op(code)),
        }
        let len = if code == op::ENTRIES { self.number()? } else { 0 };
        Ok(Part::Entries(self.take(len)?))
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], Wrong> {
        let bytes = self.block.get(self.at..).and_then(|rest| rest.get(..len)).ok_or(Wrong::Cut)?;
        self.at += len;
        Ok(bytes)
    }

    /// A number of at most 28 bits: 7 bits a byte, the lowest first, the highest bit set but in the last one.
    fn number(&mut self) -> Result<usize, Wrong> {
        let mut number = 0;
        for shift in [0, 7, 14, 21] {
            let byte = usize::from(*self.block.get(self.at).ok_or(Wrong::Cut)?);
            self.at += 1;
            number |= (byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(Wrong::Form)
    }

    fn define(&mut self) -> Result<(), Wrong> {
        let len = self.number()?.saturating_mul(4);
        let form = self.take(1)?[0];
        let has_value = form & (form::VALUE_8 | form::VALUE_4) != 0;
        let value_at = if has_value { self.number()?.saturating_mul(4) } else { 0 };
        let value_bytes = if form & form::VALUE_8 != 0 { 8 } else { 4 };
        let is_short = matches!(len, 4..=112);
        let has_form = if form & form::LONG == 0 { is_short } else { len <= MAX_RECORD_BYTES };
        let has_value_in = !has_value || value_at.saturating_add(value_bytes) <= len;
        let has_pid_in =
            form & form::PID == 0 || (self.head.pid_at < usize::from(NO_PID) && self.head.pid_at + 4 <= len);
        if !(has_form && has_value_in && has_pid_in) || self.decoder.slots.len() == MAX_SLOTS {
            return Err(Wrong::Form);
        }
        let start = self.decoder.records.len();
        self.decoder.records.resize(start + len, 0);
        self.words(start, len)?;
        self.decoder.slots.push(Slot { start, len, form, value_at, last: 0 });
        Ok(())
    }

    fn derive(&mut self) -> Result<(), Wrong> {
        let number = self.number()?;
        let slot = *self.decoder.slots.get(number).ok_or(Wrong::Slot(number))?;
        if self.decoder.slots.len() == MAX_SLOTS {
            return Err(Wrong::Form);
        }
        let start = self.decoder.records.len();
        self.decoder.records.extend_from_within(slot.start..slot.start + slot.len);
        self.words(start, slot.len)?;
        self.decoder.slots.push(Slot { start, ..slot });
        Ok(())
    }

    /// Replaces words of a record: a bit for each, then those whose bit is set.
    fn words(&mut self, start: usize, len: usize) -> Result<(), Wrong> {
        let bits = self.take((len / 4).div_ceil(8))?;
        for word in 0..len / 4 {
            if bits[word / 8] >> (word % 8) & 1 != 0 {
                let bytes = self.take(4)?;
                self.decoder.records[start + 4 * word..][..4].copy_from_slice(bytes);
            }
        }
        Ok(())
    }

    /// A record of a slot: brings the slot's record up to date.
    #[inline(always)]
    fn slot<O: TargetOrder>(&mut self, code: u8) -> Result<Part<'a>, Wrong> {
        let rest = &self.block[self.at..];
        let mut padded = [0; NEAR];
        let near: &[u8; NEAR] = match rest.first_chunk() {
            Some(near) => near,
            None => {
                padded[..rest.len()].copy_from_slice(rest);
                &padded
            }
        };
        let Decoder { model, slots, records } = &mut *self.decoder;
        let mut taken = 0;
        let mut number = model.expected();
        if code & control::OTHER_SLOT != 0 {
            number = u16::from(near[0] & 0x7f);
            taken = 1;
            if near[0] >= 0x80 {
                number |= u16::from(near[1]) << 7;
                taken = 2;
            }
        }
        let size = usize::from(code >> control::DELTA_SHIFT & 3);
        let delta = u32::from_le_bytes(bytes(near, taken)) & DELTA_MASKS[size];
        taken += size + 1;
        if code & control::OTHER_PID != 0 {
            model.pid = bytes(near, taken);
            taken += 4;
        }
        let number = usize::from(number);
        let slot = slots.get_mut(number).ok_or(Wrong::Slot(number))?;
        let record = &mut records[slot.start..slot.start + slot.len];
        let way = code >> control::VALUE_SHIFT & 7;
        if slot.form & (form::VALUE_8 | form::VALUE_4) != 0 {
            let (value, len) = stored_value(model, slot, way, near, taken);
            taken += len;
            slot.last = value;
            model.take_value(value);
            put_value::<O>(record, slot, value);
        } else if way != value::SAME {
            return Err(Wrong::Value);
        }
        if slot.form & form::PID != 0 {
            let at = self.head.pid_at;
            record[at..at + 4].copy_from_slice(&model.pid);
        }
        if taken > rest.len() {
            return Err(Wrong::Cut);
        }
        if delta >> DELTA_BITS != 0 {
            return Err(Wrong::Delta);
        }
        model.follow(number as u16);
        self.at += taken;
        Ok(Part::Slot { slot: number, delta })
    }

    /// Puts the last record of a slot.
    #[inline(always)]
    fn put_record<O: TargetOrder>(&self, slot: usize, delta: u32, out: &mut Output<'_>) -> Result<(), Option<Wrong>> {
        let slot = &self.decoder.slots[slot];
        let record = &self.decoder.records[slot.start..slot.start + slot.len];
        if slot.form & form::LONG == 0 {
            let room = out.room(4 + record.len())?;
            room[..4].copy_from_slice(&entry_word::<O>((record.len() / 4) as u32, delta));
            room[4..].copy_from_slice(record);
        } else {
            let room = out.room(8 + record.len())?;
            room[..4].copy_from_slice(&entry_word::<O>(0, delta));
            let array = record.len() as u32 + 4;
            let array = if O::ENDIAN == Endian::Little { array.to_le_bytes() } else { array.to_be_bytes() };
            room[4..8].copy_from_slice(&array);
            room[8..].copy_from_slice(record);
        }
        Ok(())
    }
}

#[inline(always)]
fn bytes<const N: usize>(near: &[u8; NEAR], at: usize) -> [u8; N] {
    near.get(at..).and_then(<[u8]>::first_chunk).copied().unwrap_or([0; N])
}

/// The value of a record, and the number of bytes that it takes in the block.
#[inline(always)]
fn stored_value(model: &Model, slot: &Slot, way: u8, near: &[u8; NEAR], at: usize) -> (u64, usize) {
    let xor = |difference: u64| slot.last ^ difference << (slot.form >> form::SHIFT);
    let word = u64::from_le_bytes(bytes(near, at));
    match way {
        value::SAME => (slot.last, 0),
        value::RECENT => (model.recent(word as u8), 1),
        value::XOR_2 => (xor(word & 0xffff), 2),
        value::XOR_3 => (xor(word & 0xff_ffff), 3),
        value::XOR_4 => (xor(word & 0xffff_ffff), 4),
        value::WHOLE => (word, 8),
        value::LAST => (model.value, 0),
        // `value::XOR_1`: three bits have no other value.
        _ => (xor(word & 0xff), 1),
    }
}

#[inline(always)]
fn put_value<O: TargetOrder>(record: &mut [u8], slot: &Slot, value: u64) {
    let at = slot.value_at;
    let is_little = O::ENDIAN == Endian::Little;
    if slot.form & form::VALUE_8 != 0 {
        let bytes = if is_little { value.to_le_bytes() } else { value.to_be_bytes() };
        record[at..at + 8].copy_from_slice(&bytes);
    } else {
        let bytes = if is_little { (value as u32).to_le_bytes() } else { (value as u32).to_be_bytes() };
        record[at..at + 4].copy_from_slice(&bytes);
    }
}
