//! Rows of a view: one struct a view, from whose members each output makes its own text.
//!
//! Rows are made one by one while they are printed, so that a document takes no more memory the more rows it has.

use std::borrow::Cow;

use kmemtrace_abi::event::Kind;
use kmemtrace_abi::fields::{FieldValue, RecordFields};
use kmemtrace_abi::trace::is_made_up;
use serde::Serialize;
use serde::ser::{SerializeMap, SerializeSeq, SerializeStruct, Serializer};

use super::stack_frame::RowStack;
use crate::names::place::{Frame, SourceLine};
use crate::pairing::findings::Finding;

/// Value of a member, as every output takes it.
#[derive(Clone, Copy)]
pub enum Cell<'c> {
    /// No value, or an unknown one.
    Null,
    /// Yes or no.
    Bool(bool),
    /// A count, bytes, an order key or a CPU.
    Count(u64),
    /// A thread id or a node.
    Pid(i32),
    /// A difference.
    Change(i64),
    /// Counts or bytes, one for each slice of time.
    Counts(&'c [u64]),
    /// A quotient.
    Quotient(f64),
    /// Rates of two analyses, per second.
    Rates([f64; 2]),
    /// Figures under one name; their members are members of the row where an output has no members within members.
    Figures(&'c dyn Row),
    /// No figures, in place of those of such a row: its members are empty where an output has no members within members.
    NoFigures(&'c dyn Row),
    /// A word of the contract.
    Word(&'static str),
    /// An address, in hexadecimal digits.
    Address(Address),
    /// Bytes from the trace: any process chooses its comm.
    Name(&'c [u8]),
    /// Names, each of bytes from the trace.
    Names(&'c [Box<[u8]>]),
    /// Place of an event.
    Event(EventPlace),
    /// Frames of a call-site, innermost first.
    Frames(&'c [Frame]),
    /// Line of source.
    Source(&'c SourceLine),
    /// Call stack: its number in the document.
    Stack(&'c RowStack<'c>),
    /// Rows within the row.
    List(&'c dyn List),
    /// Fields of an event's record, each a member of its own where an output has members of any name.
    Fields(&'c RecordFields),
}

/// Rows within a row.
pub trait List {
    /// Hands over each row.
    fn each(&self, take: &mut dyn FnMut(&dyn Row));
}

impl<R: Row> List for Vec<R> {
    fn each(&self, take: &mut dyn FnMut(&dyn Row)) {
        self.iter().for_each(|row| take(row));
    }
}

impl<R: Row> Field for Vec<R> {
    fn put(&self, name: &'static str, take: &mut TakeMember<'_>) {
        take(name, Cell::List(self));
    }
}

fn serialize_list<S: Serializer>(list: &dyn List, serializer: S) -> Result<S::Ok, S::Error> {
    let mut seq = serializer.serialize_seq(None)?;
    let mut result = Ok(());
    list.each(&mut |row| {
        if result.is_ok() {
            result = seq.serialize_element(row);
        }
    });
    result?;
    seq.end()
}

impl Serialize for Cell<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Cell::Null | Cell::NoFigures(_) => serializer.serialize_unit(),
            Cell::Bool(yes) => serializer.serialize_bool(*yes),
            Cell::Count(n) => serializer.serialize_u64(*n),
            Cell::Pid(pid) => serializer.serialize_i32(*pid),
            Cell::Change(n) => serializer.serialize_i64(*n),
            Cell::Counts(counts) => counts.serialize(serializer),
            Cell::Quotient(quotient) => serializer.serialize_f64(*quotient),
            Cell::Rates(rates) => rates.serialize(serializer),
            Cell::Figures(row) => serialize_row(*row, serializer),
            Cell::Word(word) => serializer.serialize_str(word),
            Cell::Address(address) => address.serialize(serializer),
            Cell::Name(name) => serializer.serialize_str(&text_of(name).0),
            Cell::Names(names) => serializer.collect_seq(names.iter().map(|name| text_of(name).0)),
            Cell::Event(place) => place.serialize(serializer),
            Cell::Frames(frames) => serializer.collect_seq(frames.iter().map(FrameMembers::of)),
            Cell::Source(source) => SourceMembers::of(source).serialize(serializer),
            Cell::Stack(stack) => serializer.collect_str(&stack.number),
            Cell::List(list) => serialize_list(*list, serializer),
            Cell::Fields(fields) => {
                let mut map = serializer.serialize_map(None)?;
                serialize_fields(&mut map, fields)?;
                map.end()
            }
        }
    }
}

/// An address, printed as `0xc0de`; null in documents where the input names a function without its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address(pub u64);

impl Address {
    /// The address, if the input gives it.
    pub fn told(self) -> Option<Address> {
        (!is_made_up(self.0)).then_some(self)
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl Serialize for Address {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.told() {
            Some(address) => serializer.collect_str(&address),
            None => serializer.serialize_none(),
        }
    }
}

/// Place of an event: order key, CPU and address of its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventPlace {
    /// Order key.
    pub at: u64,
    /// CPU.
    pub cpu: u32,
    /// Address of the object.
    pub address: Address,
}

impl Serialize for EventPlace {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut event = serializer.serialize_struct("Event", 3)?;
        event.serialize_field("at", &self.at)?;
        event.serialize_field("cpu", &self.cpu)?;
        event.serialize_field("address", &self.address)?;
        event.end()
    }
}

/// Members of a frame.
#[derive(Serialize)]
struct FrameMembers<'f> {
    function: Cow<'f, str>,
    file: Option<Cow<'f, str>>,
    line: Option<u32>,
    inlined: bool,
}

impl FrameMembers<'_> {
    fn of(frame: &Frame) -> FrameMembers<'_> {
        FrameMembers {
            function: text_of(&frame.function).0,
            file: frame.file.as_deref().map(|file| text_of(file).0),
            line: frame.line,
            inlined: frame.inlined,
        }
    }
}

/// Members of a line of source.
#[derive(Serialize)]
struct SourceMembers<'s> {
    function: Cow<'s, str>,
    file: Option<Cow<'s, str>>,
    line: Option<u32>,
}

impl SourceMembers<'_> {
    fn of(source: &SourceLine) -> SourceMembers<'_> {
        SourceMembers {
            function: text_of(&source.function).0,
            file: source.file.as_deref().map(|file| text_of(file).0),
            line: source.line,
        }
    }
}

/// Quotient of two integers: never NaN.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quotient(pub f64);

impl Eq for Quotient {}

/// Bytes of a name; `None` if the trace does not give it.
pub type Name<'a> = Option<Cow<'a, [u8]>>;

/// A name as text, U+FFFD in place of bytes that are no UTF-8; then its bytes as hexadecimal digits, too.
pub(crate) fn text_of(name: &[u8]) -> (Cow<'_, str>, Option<String>) {
    let text = String::from_utf8_lossy(name);
    let is_exact = matches!(text, Cow::Borrowed(_));
    (text, (!is_exact).then(|| name.iter().map(|byte| format!("{byte:02x}")).collect()))
}

/// Receiver of the members of a row: name and value.
pub type TakeMember<'t> = dyn FnMut(&'static str, Cell<'_>) + 't;

/// Row of a view: members and their values.
pub trait Row {
    /// Hands all members to `take`, in the order of the document.
    fn members(&self, take: &mut TakeMember<'_>);
}

impl Serialize for dyn Row + '_ {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serialize_row(self, serializer)
    }
}

/// Serialises a row as a map, with the bytes of each name that is no UTF-8 beside it.
pub(crate) fn serialize_row<S: Serializer>(row: &(impl Row + ?Sized), serializer: S) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(None)?;
    let mut result = Ok(());
    row.members(&mut |member, cell| {
        if result.is_ok() {
            result = serialize_member(&mut map, member, cell);
        }
    });
    result?;
    map.end()
}

fn serialize_member<M: SerializeMap>(map: &mut M, member: &'static str, cell: Cell<'_>) -> Result<(), M::Error> {
    if let Cell::Fields(fields) = cell {
        return serialize_fields(map, fields);
    }
    map.serialize_entry(member, &cell)?;
    if let Cell::Name(name) = cell
        && let Some(hex) = text_of(name).1
    {
        return map.serialize_entry(&format!("{member}_hex"), &hex);
    }
    Ok(())
}

/// Members that rows with fields of a record have of their own.
const BESIDE_FIELDS: [&str; 4] = ["at", "event", "cpu", "context"];

/// Name of the member of a field: the kernel's, with a line after it where the row has such a member of its own.
pub fn field_member(name: &str) -> Cow<'_, str> {
    if BESIDE_FIELDS.contains(&name) { format!("{name}_").into() } else { name.into() }
}

/// Value of a field as outputs take it.
pub fn field_cell(value: FieldValue<'_>) -> Cell<'_> {
    match value {
        FieldValue::Unsigned(n) => Cell::Count(n),
        FieldValue::Signed(n) => Cell::Change(n),
        FieldValue::Address(address) => Cell::Address(Address(address)),
        FieldValue::Text(text) => Cell::Name(text),
    }
}

fn serialize_fields<M: SerializeMap>(map: &mut M, fields: &RecordFields) -> Result<(), M::Error> {
    fields.iter().try_for_each(|(name, value)| map.serialize_entry(&field_member(name), &field_cell(value)))
}

/// Type of a row's field: one member, or the members of a row within the row.
pub(crate) trait Field {
    /// Hands the members of the field `name` to `take`.
    fn put(&self, name: &'static str, take: &mut TakeMember<'_>);
}

/// Implements [`Field`] for types of one member.
macro_rules! cells {
    ($($type:ty: |$value:ident| $cell:expr;)*) => {
        $(impl Field for $type {
            fn put(&self, name: &'static str, take: &mut TakeMember<'_>) {
                let $value = self;
                take(name, $cell);
            }
        })*
    };
}

cells! {
    bool: |yes| Cell::Bool(*yes);
    Option<bool>: |yes| yes.map_or(Cell::Null, Cell::Bool);
    Option<u32>: |n| n.map_or(Cell::Null, |n| Cell::Count(n.into()));
    u32: |n| Cell::Count((*n).into());
    u64: |n| Cell::Count(*n);
    Option<u64>: |n| n.map_or(Cell::Null, Cell::Count);
    Option<i32>: |pid| pid.map_or(Cell::Null, Cell::Pid);
    i64: |n| Cell::Change(*n);
    Option<i64>: |n| n.map_or(Cell::Null, Cell::Change);
    Option<Quotient>: |quotient| quotient.map_or(Cell::Null, |quotient| Cell::Quotient(quotient.0));
    Vec<u64>: |counts| Cell::Counts(counts);
    Option<Vec<u64>>: |counts| counts.as_deref().map_or(Cell::Null, Cell::Counts);
    Option<&'static str>: |word| word.map_or(Cell::Null, Cell::Word);
    &'static str: |word| Cell::Word(word);
    Kind: |kind| Cell::Word(kind.name());
    Option<Kind>: |kind| kind.map_or(Cell::Null, |kind| Cell::Word(kind.name()));
    Finding: |class| Cell::Word(class.name());
    Address: |address| address.told().map_or(Cell::Null, Cell::Address);
    Option<Address>: |address| address.and_then(Address::told).map_or(Cell::Null, Cell::Address);
    Name<'_>: |name| name.as_deref().map_or(Cell::Null, Cell::Name);
    Option<&[Box<[u8]>]>: |names| names.map_or(Cell::Null, Cell::Names);
    EventPlace: |place| Cell::Event(*place);
}

/// Declares a row: each field is a member of the same name, and a field that is a row itself stands for its members.
macro_rules! row {
    (
        $(#[$about:meta])*
        pub struct $name:ident $(<$life:lifetime>)? {
            $($(#[$field_about:meta])* pub $field:ident: $type:ty,)*
        }
    ) => {
        $(#[$about])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $name $(<$life>)? {
            $($(#[$field_about])* pub $field: $type,)*
        }

        impl $(<$life>)? $crate::documents::row::Row for $name $(<$life>)? {
            fn members(&self, take: &mut $crate::documents::row::TakeMember<'_>) {
                $($crate::documents::row::Field::put(&self.$field, stringify!($field), take);)*
            }
        }

        impl $(<$life>)? $crate::documents::row::Field for $name $(<$life>)? {
            fn put(&self, _: &'static str, take: &mut $crate::documents::row::TakeMember<'_>) {
                $crate::documents::row::Row::members(self, take);
            }
        }

        impl $(<$life>)? serde::Serialize for $name $(<$life>)? {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                $crate::documents::row::serialize_row(self, serializer)
            }
        }
    };
}
pub(crate) use row;

/// The rows of a view, made anew each time they are asked for.
pub struct Rows<'a, R> {
    len: usize,
    make: Box<dyn Fn(usize) -> R + 'a>,
}

impl<'a, R: 'a> Rows<'a, R> {
    /// Rows made from the indexes 0 to `len`.
    pub fn new(len: usize, make: impl Fn(usize) -> R + 'a) -> Rows<'a, R> {
        Rows { len, make: Box::new(make) }
    }

    /// A row for each element of a list.
    pub fn of<T: 'a>(list: Vec<T>, make: impl Fn(&T) -> R + 'a) -> Rows<'a, R> {
        Rows::new(list.len(), move |index| make(&list[index]))
    }

    /// All rows, one by one.
    pub fn iter(&self) -> impl Iterator<Item = R> + '_ {
        (0..self.len).map(|index| (self.make)(index))
    }

    /// True if there is no row.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.len
    }
}

/// Sum of rows left out, in the columns of the rows.
pub(super) struct SumRow<'r> {
    pub(super) columns: &'r [&'static str],
    /// Word of the column `kind`.
    pub(super) kind: Option<&'static str>,
    pub(super) sum: &'r dyn Row,
}

impl Row for SumRow<'_> {
    fn members(&self, take: &mut TakeMember<'_>) {
        for &column in self.columns {
            let mut is_there = false;
            self.sum.members(&mut |member, cell| {
                if member == column {
                    is_there = true;
                    take(member, cell);
                }
            });
            match self.kind.filter(|_| column == "kind") {
                _ if is_there => {}
                Some(kind) => take(column, Cell::Word(kind)),
                None => take(column, Cell::Null),
            }
        }
    }
}

/// Names of the members of a row.
pub(super) fn columns_of(row: &dyn Row) -> Vec<&'static str> {
    let mut columns = Vec::new();
    row.members(&mut |member, _| columns.push(member));
    columns
}

impl<R: Serialize> Serialize for Rows<'_, R> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq((0..self.len).map(|index| (self.make)(index)))
    }
}

/// Receiver of rows of any type.
pub type TakeRow<'t, E> = dyn FnMut(&dyn Row) -> Result<(), E> + 't;

/// Source of rows of any type, for outputs that print all types alike.
pub trait RowSource {
    /// Hands all rows to `take`, up to the first error.
    ///
    /// # Errors
    /// The first error of `take`.
    fn each_row<E>(&self, take: &mut TakeRow<'_, E>) -> Result<(), E>;
}

impl<R: Row> RowSource for Rows<'_, R> {
    fn each_row<E>(&self, take: &mut TakeRow<'_, E>) -> Result<(), E> {
        (0..self.len).try_for_each(|index| take(&(self.make)(index)))
    }
}

#[cfg(test)]
#[expect(unreachable_pub, reason = "the macro declares public rows")]
mod tests {
    use super::*;

    row! {
        /// Names and numbers.
        pub struct Names<'a> {
            pub cache: Name<'a>,
            pub comm: Name<'a>,
        }
    }

    row! {
        /// A row with the members of another one.
        pub struct Whole<'a> {
            pub names: Names<'a>,
            pub first: EventPlace,
            pub pid: Option<i32>,
            pub peak: Option<u64>,
        }
    }

    #[test]
    fn a_name_that_is_no_text_keeps_its_bytes_beside_it() {
        let names = Names { cache: Some(b"a\xff"[..].into()), comm: Some(b"b\x1b"[..].into()) };
        let first = EventPlace { at: 7, cpu: 1, address: Address(0xc0de) };
        let text = serde_json::to_string(&Whole { names, first, pid: Some(-1), peak: None }).unwrap();
        let first = r#""first":{"at":7,"cpu":1,"address":"0xc0de"}"#;
        let want = format!(
            "{{\"cache\":\"a\u{fffd}\",\"cache_hex\":\"61ff\",\"comm\":\"b\\u001b\",{first},\"pid\":-1,\"peak\":null}}"
        );
        assert_eq!(text, want);
    }
}
