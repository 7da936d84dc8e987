//! A row of a view: typed members, from which each output makes its own text. Rows are made one by one while they are
//! printed, so that a view takes no more memory the more of them it has.

use std::borrow::Cow;

use serde::ser::{SerializeMap, Serializer};
use serde::{Serialize, ser::SerializeStruct};

/// A member's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cell<'a> {
    /// Not known, or there is none.
    Null,
    /// Yes or no.
    Bool(bool),
    /// A count, bytes, an order key or a CPU.
    Count(u64),
    /// A thread id.
    Pid(i32),
    /// A word of the contract.
    Word(&'static str),
    /// An address, in hexadecimal digits.
    Address(u64),
    /// Bytes from the trace: any process chooses its comm.
    Name(Cow<'a, [u8]>),
    /// Order key, CPU and address of an event.
    Event(u64, u32, u64),
}

impl<'a> Cell<'a> {
    /// The cell of a name, or [`Cell::Null`].
    pub fn name(name: Option<impl Into<Cow<'a, [u8]>>>) -> Cell<'a> {
        name.map_or(Cell::Null, |name| Cell::Name(name.into()))
    }

    /// The cell of an address, or [`Cell::Null`].
    pub fn address(address: Option<u64>) -> Cell<'a> {
        address.map_or(Cell::Null, Cell::Address)
    }

    /// The cell of a number, or [`Cell::Null`].
    pub fn count(n: Option<u64>) -> Cell<'a> {
        n.map_or(Cell::Null, Cell::Count)
    }
}

impl Serialize for Cell<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Cell::Null => serializer.serialize_unit(),
            Cell::Bool(yes) => serializer.serialize_bool(*yes),
            Cell::Count(n) => serializer.serialize_u64(*n),
            Cell::Pid(pid) => serializer.serialize_i32(*pid),
            Cell::Word(word) => serializer.serialize_str(word),
            Cell::Address(address) => Address(*address).serialize(serializer),
            Cell::Name(name) => serializer.serialize_str(&text_of(name).0),
            Cell::Event(at, cpu, address) => {
                let mut event = serializer.serialize_struct("Event", 3)?;
                event.serialize_field("at", at)?;
                event.serialize_field("cpu", cpu)?;
                event.serialize_field("address", &Address(*address))?;
                event.end()
            }
        }
    }
}

/// An address as the contract writes it.
pub(crate) struct Address(pub(crate) u64);

impl Serialize for Address {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{:#x}", self.0))
    }
}

/// A name as text, U+FFFD in place of bytes that are no UTF-8; then its bytes as hexadecimal digits, too.
pub(crate) fn text_of(name: &[u8]) -> (Cow<'_, str>, Option<String>) {
    let text = String::from_utf8_lossy(name);
    let is_exact = matches!(text, Cow::Borrowed(_));
    (text, (!is_exact).then(|| name.iter().map(|byte| format!("{byte:02x}")).collect()))
}

/// Members and their values, in the order of the document.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Row<'a>(Vec<(&'static str, Cell<'a>)>);

impl<'a> Row<'a> {
    /// Appends a member.
    pub fn put(&mut self, member: &'static str, cell: Cell<'a>) {
        self.0.push((member, cell));
    }

    /// Appends members.
    pub fn extend(&mut self, cells: impl IntoIterator<Item = (&'static str, Cell<'a>)>) {
        self.0.extend(cells);
    }

    /// All members.
    pub fn cells(&self) -> impl Iterator<Item = &(&'static str, Cell<'a>)> {
        self.0.iter()
    }
}

impl Serialize for Row<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (member, cell) in &self.0 {
            map.serialize_entry(member, cell)?;
            if let Cell::Name(name) = cell
                && let Some(hex) = text_of(name).1
            {
                map.serialize_entry(&format!("{member}_hex"), &hex)?;
            }
        }
        map.end()
    }
}

/// The rows of a view, made anew each time they are asked for.
pub struct Rows<'a> {
    len: usize,
    make: Box<dyn Fn(usize) -> Row<'a> + 'a>,
}

impl<'a> Rows<'a> {
    /// A number of rows, made from their indexes.
    pub fn new(len: usize, make: impl Fn(usize) -> Row<'a> + 'a) -> Rows<'a> {
        Rows { len, make: Box::new(make) }
    }

    /// A row for each of a list.
    pub fn of<T: 'a>(list: Vec<T>, make: impl Fn(&T) -> Row<'a> + 'a) -> Rows<'a> {
        Rows::new(list.len(), move |index| make(&list[index]))
    }

    /// Rows of a view that has none.
    pub fn none() -> Rows<'a> {
        Rows::new(0, |_| Row::default())
    }

    /// All rows, one by one.
    pub fn iter(&self) -> impl Iterator<Item = Row<'a>> + '_ {
        (0..self.len).map(|index| (self.make)(index))
    }

    /// True where there is no row.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.len
    }
}

impl Serialize for Rows<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_no_text_keeps_its_bytes_beside_it() {
        let mut row = Row::default();
        row.extend([("cache", Cell::name(Some(&b"a\xff"[..]))), ("comm", Cell::name(Some(&b"b\x1b"[..])))]);
        row.extend([("first", Cell::Event(7, 1, 0xc0de)), ("pid", Cell::Pid(-1)), ("peak", Cell::count(None))]);
        let text = serde_json::to_string(&row).unwrap();
        let first = r#""first":{"at":7,"cpu":1,"address":"0xc0de"}"#;
        let want = format!(
            "{{\"cache\":\"a\u{fffd}\",\"cache_hex\":\"61ff\",\"comm\":\"b\\u001b\",{first},\"pid\":-1,\"peak\":null}}"
        );
        assert_eq!(text, want);
    }
}
