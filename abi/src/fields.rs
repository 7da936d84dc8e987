//! Fields of event records, each with its name and value, as the kernel's format of the event describes them.
//!
//! Records are kept only where a reader asks for them, and only until it has handed their events on: see [`FieldTable`].

use std::num::NonZeroU32;
use std::sync::Arc;

use crate::target::{Big, Endian, Little, TargetOrder, uint_at};

/// How the bytes of a field become its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldForm {
    /// Number.
    Unsigned,
    /// Number with a sign.
    Signed,
    /// Address of code or data.
    Address,
    /// Text up to its first NUL.
    Text,
    /// Length and offset of a text, which counts from this byte of the record: upper and lower 16 bits.
    TextFrom(usize),
}

/// Place of a field in the records of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldPlace {
    /// Name of the field.
    pub name: Box<str>,
    /// Bytes from the start of the record.
    pub offset: usize,
    /// Bytes.
    pub size: usize,
    /// How its bytes become the value.
    pub form: FieldForm,
}

/// Value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldValue<'r> {
    /// Number.
    Unsigned(u64),
    /// Number with a sign.
    Signed(i64),
    /// Address of code or data.
    Address(u64),
    /// Any bytes.
    Text(&'r [u8]),
}

/// Record of an event, with the layout of its fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordFields {
    layout: Arc<[FieldPlace]>,
    endian: Endian,
    record: Arc<[u8]>,
}

impl RecordFields {
    /// Fields of a record of the kernel.
    pub fn new(layout: Arc<[FieldPlace]>, endian: Endian, record: &[u8]) -> RecordFields {
        RecordFields { layout, endian, record: record.into() }
    }

    /// Names and values, in the order of the format; a field beyond the end of the record is left out.
    pub fn iter(&self) -> impl Iterator<Item = (&str, FieldValue<'_>)> {
        self.layout.iter().filter_map(|place| {
            let value = match self.endian {
                Endian::Little => place.read::<Little>(&self.record),
                Endian::Big => place.read::<Big>(&self.record),
            };
            Some((&*place.name, value?))
        })
    }
}

impl FieldPlace {
    fn read<'r, O: TargetOrder>(&self, record: &'r [u8]) -> Option<FieldValue<'r>> {
        let number = || uint_at::<O>(record, self.offset, self.size);
        Some(match self.form {
            FieldForm::Unsigned => FieldValue::Unsigned(number()?),
            FieldForm::Address => FieldValue::Address(number()?),
            FieldForm::Signed => {
                let unused = 64u32.checked_sub(u32::try_from(self.size).ok()?.checked_mul(8)?)?;
                FieldValue::Signed(number()?.checked_shl(unused)?.cast_signed() >> unused)
            }
            FieldForm::Text => FieldValue::Text(until_nul(record.get(self.offset..)?.get(..self.size)?)),
            FieldForm::TextFrom(base) => {
                let location = number()? as usize;
                let text = record.get(base.checked_add(location & 0xffff)?..)?.get(..location >> 16 & 0xffff)?;
                FieldValue::Text(until_nul(text))
            }
        })
    }
}

fn until_nul(text: &[u8]) -> &[u8] {
    text.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// Place of a record in its [`FieldTable`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldsId(NonZeroU32);

impl FieldsId {
    #[expect(clippy::arithmetic_side_effects, reason = "the number is not 0")]
    fn index(self) -> usize {
        self.0.get() as usize - 1
    }
}

/// Records of the events that were read and not handed on yet.
#[derive(Clone, Debug, Default)]
pub struct FieldTable {
    is_kept: bool,
    records: Vec<Option<RecordFields>>,
    free: Vec<FieldsId>,
}

impl FieldTable {
    /// True where records are kept.
    pub fn is_kept(&self) -> bool {
        self.is_kept
    }

    /// Keeps the records of events from here on, or stops doing so. The reader that asked for them releases each one.
    pub fn set_kept(&mut self, is_kept: bool) {
        self.is_kept = is_kept;
    }

    /// Keeps a record; `None` where the table is full.
    pub fn put(&mut self, fields: RecordFields) -> Option<FieldsId> {
        let id = match self.free.pop() {
            Some(id) => id,
            None => {
                self.records.push(None);
                FieldsId(NonZeroU32::new(u32::try_from(self.records.len()).ok()?)?)
            }
        };
        *self.records.get_mut(id.index())? = Some(fields);
        Some(id)
    }

    /// Fields of a record that was not released.
    pub fn get(&self, id: FieldsId) -> Option<&RecordFields> {
        self.records.get(id.index())?.as_ref()
    }

    /// Forgets a record.
    pub fn release(&mut self, id: FieldsId) {
        if self.records.get_mut(id.index()).and_then(Option::take).is_some() {
            self.free.push(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(name: &str, offset: usize, size: usize, form: FieldForm) -> FieldPlace {
        FieldPlace { name: name.into(), offset, size, form }
    }

    #[test]
    fn values_have_their_sign_and_byte_order_and_none_is_read_beyond_the_record() {
        let layout: Arc<[FieldPlace]> = [
            place("order", 0, 2, FieldForm::Unsigned),
            place("retval", 2, 2, FieldForm::Signed),
            place("shr", 0, 4, FieldForm::Address),
            place("comm", 4, 4, FieldForm::Text),
            place("name", 8, 4, FieldForm::TextFrom(4)),
            place("beyond", 12, 8, FieldForm::Unsigned),
            place("odd", 0, 9, FieldForm::Signed),
            place("huge", 0, 1 << 29, FieldForm::Signed),
        ]
        .into();
        let record = |location: [u8; 4]| [&[1, 2, 0xff, 0xfe][..], b"cp\0x", &location, b"\0"].concat();
        let little = RecordFields::new(Arc::clone(&layout), Endian::Little, &record([0, 0, 2, 0]));
        let values: Vec<_> = little.iter().collect();
        let want = [
            ("order", FieldValue::Unsigned(0x201)),
            ("retval", FieldValue::Signed(-257)),
            ("shr", FieldValue::Address(0xfeff_0201)),
            ("comm", FieldValue::Text(b"cp")),
            ("name", FieldValue::Text(b"cp")),
        ];
        assert_eq!(values, want);
        let big = RecordFields::new(layout, Endian::Big, &record([0, 90, 0, 0]));
        let values: Vec<_> = big.iter().collect();
        let want = [
            ("order", FieldValue::Unsigned(0x102)),
            ("retval", FieldValue::Signed(-2)),
            ("shr", FieldValue::Address(0x0102_fffe)),
            ("comm", FieldValue::Text(b"cp")),
        ];
        assert_eq!(values, want, "the text is longer than the record");
    }

    #[test]
    fn places_of_released_records_are_used_again() {
        let fields = RecordFields::new([place("a", 0, 1, FieldForm::Unsigned)].into(), Endian::Little, &[7]);
        let mut table = FieldTable::default();
        let first = table.put(fields.clone()).unwrap();
        let second = table.put(fields.clone()).unwrap();
        table.release(first);
        table.release(first);
        assert!(table.get(first).is_none() && table.get(second) == Some(&fields));
        assert_eq!(table.put(fields.clone()), Some(first));
        assert_ne!(table.put(fields), Some(first));
    }
}
