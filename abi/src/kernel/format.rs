//! The kernel's descriptions of its own bytes: `events/*/format` and `events/header_page`.
//!
//! Layouts are taken from these texts by field name, never from structs of one kernel. The texts come from
//! a trace file, so they are hostile: every number is bounded before use, and parsing is one pass.

use std::collections::HashSet;

use crate::fields::{FieldForm, FieldPlace};
use crate::target::{Endian, Target};

/// No event has more fields; one that claims to is refused.
const MAX_FIELDS: usize = 1024;
/// No sub-buffer is longer: the kernel makes them of at most 128 pages of 64 KiB.
pub const MAX_SUB_BUFFER_BYTES: usize = 16 << 20;
/// No field reaches further than the longest record, a sub-buffer.
const MAX_EXTENT: usize = MAX_SUB_BUFFER_BYTES;

/// Reasons why a text is not a format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// A line that every format has is not there.
    #[error("no `{0}` line")]
    Missing(&'static str),
    /// A field line that cannot be read, with its number from 1.
    #[error("line {0} is not a field description")]
    BadField(usize),
    /// More fields than any event has.
    #[error("more than {MAX_FIELDS} fields")]
    TooManyFields,
    /// Sizes that contradict each other.
    #[error("{0}")]
    Contradiction(&'static str),
}

/// Where the bytes of a field are in a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldAddressing {
    /// At the offset.
    Fixed,
    /// At the offset stands a u32, (length << 16) | position from the start of the record (`__data_loc`).
    DataLoc,
    /// As `DataLoc`, with the position counted from the end of this field (`__rel_loc`).
    RelLoc,
}

/// Field of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Name of the field.
    pub name: String,
    /// Bytes from the start of the record.
    pub offset: usize,
    /// Bytes; 0 for a trailing `[]`.
    pub size: usize,
    /// True for a signed number.
    pub signed: bool,
    /// Where its bytes are.
    pub place: FieldAddressing,
    /// How its bytes become the value; `None` for an array of numbers.
    pub form: Option<FieldForm>,
    /// Bytes of an element, of an array of numbers in the record.
    pub element_bytes: Option<usize>,
}

impl Field {
    /// Bytes from the start of the record to what is behind the field.
    pub(crate) fn end(&self) -> usize {
        self.offset.saturating_add(self.size)
    }
}

/// Record layout of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventFormat {
    /// The event's name.
    pub name: String,
    /// `common_type` of its records, valid for one boot.
    pub id: u16,
    /// Fields, as listed.
    pub fields: Vec<Field>,
}

impl EventFormat {
    /// Parses the text of a `format` file.
    pub fn parse(text: &str) -> Result<EventFormat, FormatError> {
        let mut name = None;
        let mut id = None;
        let mut fields = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if let Some(rest) = line.strip_prefix("name:") {
                name = Some(rest.trim().to_owned());
            } else if let Some(rest) = line.strip_prefix("ID:") {
                id = rest.trim().parse().ok();
            } else if line.starts_with("field:") {
                if fields.len() == MAX_FIELDS {
                    return Err(FormatError::TooManyFields);
                }
                fields.push(parse_field(line).ok_or(FormatError::BadField(number.saturating_add(1)))?);
            } else if line.starts_with("print fmt:") {
                break;
            }
        }
        Ok(EventFormat {
            name: name.ok_or(FormatError::Missing("name:"))?,
            id: id.ok_or(FormatError::Missing("ID:"))?,
            fields,
        })
    }

    /// The field of this name.
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|f| f.name == name)
    }

    /// The event's own fields, each name once; those that all events have are left out.
    pub fn own_fields(&self) -> Vec<FieldPlace> {
        let mut seen = HashSet::new();
        let own = self.fields.iter().filter(|field| !field.name.starts_with("common_") && seen.insert(&field.name));
        let place = |field: &Field| {
            let form = field.form?;
            Some(FieldPlace { name: field.name.as_str().into(), offset: field.offset, size: field.size, form })
        };
        own.filter_map(place).collect()
    }
}

/// The text of a `format` file up to its `print fmt`, which no decoder needs.
pub fn without_print_fmt(text: &str) -> &str {
    text.find("\nprint fmt:").map_or(text, |end| &text[..=end])
}

/// `field:TYPE NAME[N]; offset:N; size:N; signed:N;`, tabs between them.
fn parse_field(line: &str) -> Option<Field> {
    let mut parts = line.split(';');
    let declaration = parts.next()?.strip_prefix("field:")?.trim();
    let mut offset = None;
    let mut size = None;
    let mut signed = None;
    for part in parts {
        match part.trim().split_once(':') {
            Some(("offset", n)) => offset = Some(n.trim().parse::<usize>().ok()?),
            Some(("size", n)) => size = Some(n.trim().parse::<usize>().ok()?),
            Some(("signed", n)) => signed = Some(n.trim() == "1"),
            _ => {}
        }
    }
    let (offset, size) = (offset?, size?);
    if offset > MAX_EXTENT || size > MAX_EXTENT {
        return None;
    }
    let place = match declaration.split_whitespace().next()? {
        "__data_loc" => FieldAddressing::DataLoc,
        "__rel_loc" => FieldAddressing::RelLoc,
        _ => FieldAddressing::Fixed,
    };
    if place != FieldAddressing::Fixed && size != 4 {
        return None;
    }
    // The name is the last word before an array bound; the bound of a `__data_loc T[] name` stands before it.
    let named = if place == FieldAddressing::Fixed { declaration.split('[').next()? } else { declaration };
    let name = named.split(|c: char| c.is_whitespace() || c == '*').rfind(|w| !w.is_empty())?;
    // Kernels up to 2.6.32 have no `signed:`.
    let signed = signed.unwrap_or_else(|| {
        let kind = declaration.strip_prefix("const ").unwrap_or(declaration);
        ["int ", "short ", "long ", "char ", "s8 ", "s16 ", "s32 ", "s64 ", "pid_t "]
            .iter()
            .any(|t| kind.starts_with(t))
    });
    let form = form(declaration, name, (offset, size), signed, place);
    let element_bytes = if place == FieldAddressing::Fixed { element_bytes(declaration, size) } else { None };
    Some(Field { name: name.to_owned(), offset, size, signed, place, form, element_bytes })
}

/// Bytes of an element of an array that has `size` bytes. The kernel prints the bound, as in `unsigned long caller[8]`, but not that of a
/// probe's array: `u64 p[]`, whose type tells its bits.
fn element_bytes(declaration: &str, size: usize) -> Option<usize> {
    let (element, bound) = declaration.split_once('[')?;
    let bound = bound.strip_suffix(']')?;
    if !bound.is_empty() {
        let elements: usize = bound.parse().ok()?;
        return size.checked_div(elements).filter(|_| size.is_multiple_of(elements));
    }
    let bits: usize = element.split_whitespace().next()?.strip_prefix(['u', 's'])?.parse().ok()?;
    Some(bits / 8).filter(|&bytes| bytes > 0 && size.is_multiple_of(bytes))
}

/// Fields that hold addresses of code, though the kernel declares them as numbers.
const CODE: [&str; 6] = ["call_site", "func", "ip", "parent_ip", "caller", "retaddr"];

/// Way to the value of a field.
fn form(
    declaration: &str,
    name: &str,
    (offset, size): (usize, usize),
    signed: bool,
    place: FieldAddressing,
) -> Option<FieldForm> {
    let is_text = declaration.split(|c: char| !c.is_alphanumeric()).any(|word| word == "char");
    match place {
        FieldAddressing::DataLoc => is_text.then_some(FieldForm::TextFrom(0)),
        FieldAddressing::RelLoc => is_text.then_some(FieldForm::TextFrom(offset.saturating_add(size))),
        FieldAddressing::Fixed if declaration.contains('[') => is_text.then_some(FieldForm::Text),
        FieldAddressing::Fixed if !matches!(size, 1 | 2 | 4 | 8) => None,
        FieldAddressing::Fixed if declaration.contains('*') || CODE.contains(&name) => Some(FieldForm::Address),
        FieldAddressing::Fixed => Some(if signed { FieldForm::Signed } else { FieldForm::Unsigned }),
    }
}

/// The shape of a sub-buffer, from the instance's `events/header_page`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageShape {
    /// Byte order and word size of the kernel.
    pub target: Target,
    /// Offset of the commit word.
    pub commit_offset: usize,
    /// Bytes of the commit word, which is a `long`.
    pub commit_size: usize,
    /// Offset of the event data.
    pub data_offset: usize,
    /// Bytes of a whole sub-buffer, header included.
    pub size: usize,
}

impl PageShape {
    /// Parses `events/header_page`. Its word size is the authoritative one.
    pub fn parse(text: &str, endian: Endian) -> Result<PageShape, FormatError> {
        let mut commit = None;
        let mut data = None;
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if !line.starts_with("field:") {
                continue;
            }
            let field = parse_field(line).ok_or(FormatError::BadField(number.saturating_add(1)))?;
            match field.name.as_str() {
                "commit" => commit = Some(field),
                "data" => data = Some(field),
                _ => {}
            }
        }
        let commit = commit.ok_or(FormatError::Missing("commit"))?;
        let data = data.ok_or(FormatError::Missing("data"))?;
        let word_bytes = match commit.size {
            4 => 4,
            8 => 8,
            _ => return Err(FormatError::Contradiction("the commit word has neither 4 nor 8 bytes")),
        };
        if commit.offset < 8 || commit.end() > data.offset {
            return Err(FormatError::Contradiction("timestamp, commit word and data overlap"));
        }
        if data.size == 0 || data.end() > MAX_EXTENT {
            return Err(FormatError::Contradiction("the data has no room, or too much"));
        }
        Ok(PageShape {
            target: Target { endian, word_bytes },
            commit_offset: commit.offset,
            commit_size: commit.size,
            data_offset: data.offset,
            size: data.end(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_current_format_is_read_by_name() {
        let text = "name: kmem_cache_alloc\nID: 659\nformat:\n\
            \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
            \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
            \tfield:const void * ptr;\toffset:16;\tsize:8;\tsigned:0;\n\
            \tfield:__data_loc char[] name;\toffset:24;\tsize:4;\tsigned:0;\n\
            \tfield:void __seg_gs * gs;\toffset:32;\tsize:8;\tsigned:0;\n\
            \tfield:unsigned long caller[8];\toffset:40;\tsize:64;\tsigned:0;\n\n\
            print fmt: \"field:x y; offset:9;\", REC->ptr\n";
        let format = EventFormat::parse(text).unwrap();
        assert_eq!((format.name.as_str(), format.id, format.fields.len()), ("kmem_cache_alloc", 659, 6));
        assert_eq!(format.field("ptr").unwrap().offset, 16);
        assert_eq!(format.field("name").unwrap().place, FieldAddressing::DataLoc);
        assert_eq!(format.field("gs").unwrap().size, 8);
        assert_eq!(format.field("caller").unwrap().offset, 40);
        assert!(format.field("common_pid").unwrap().signed);
        assert_eq!(EventFormat::parse(without_print_fmt(text)).unwrap(), format);
        assert!(!without_print_fmt(text).contains("print"));
    }

    #[test]
    fn own_fields_have_the_form_of_their_type() {
        let line = |declaration: &str, offset: usize, size: usize, signed: u8| {
            format!("\tfield:{declaration};\toffset:{offset};\tsize:{size};\tsigned:{signed};\n")
        };
        let text = [
            line("int common_pid", 4, 4, 1),
            line("void * shr", 8, 8, 0),
            line("unsigned long call_site", 16, 8, 0),
            line("int nid", 24, 4, 1),
            line("unsigned char flag", 28, 1, 0),
            line("char comm[16]", 29, 16, 0),
            line("__data_loc char[] name", 48, 4, 0),
            line("__rel_loc char[] path", 52, 4, 0),
            line("unsigned long caller[8]", 56, 64, 0),
            line("int nid", 120, 4, 1),
        ];
        let format = EventFormat::parse(&format!("name: x\nID: 1\n{}", text.concat())).unwrap();
        let forms: Vec<_> = format.own_fields().iter().map(|place| (place.name.to_string(), place.form)).collect();
        let want = [
            ("shr", FieldForm::Address),
            ("call_site", FieldForm::Address),
            ("nid", FieldForm::Signed),
            ("flag", FieldForm::Unsigned),
            ("comm", FieldForm::Text),
            ("name", FieldForm::TextFrom(0)),
            ("path", FieldForm::TextFrom(56)),
        ];
        assert_eq!(forms, want.map(|(name, form)| (name.to_owned(), form)));
    }

    #[test]
    fn old_formats_tell_no_sign() {
        let text = "name: kmalloc\nID: 31\nformat:\n\tfield:int common_pid;\toffset:4;\tsize:4;\n\
            \tfield:size_t bytes_req;\toffset:24;\tsize:8;\n";
        let format = EventFormat::parse(text).unwrap();
        assert!(format.field("common_pid").unwrap().signed);
        assert!(!format.field("bytes_req").unwrap().signed);
    }

    #[test]
    fn hostile_formats_are_refused() {
        for (text, want) in [
            ("ID: 3\n", FormatError::Missing("name:")),
            ("name: x\nID: 70000\n", FormatError::Missing("ID:")),
            ("name: x\nID: 3\n\tfield:int a;\toffset:99999999999999999999;\tsize:4;\n", FormatError::BadField(3)),
            ("name: x\nID: 3\n\tfield:int a;\toffset:4000000000;\tsize:4;\n", FormatError::BadField(3)),
            ("name: x\nID: 3\n\tfield:__data_loc char[] n;\toffset:4;\tsize:8;\n", FormatError::BadField(3)),
        ] {
            assert_eq!(EventFormat::parse(text), Err(want), "{text}");
        }
        let many = format!("name: x\nID: 3\n{}", "field:int a; offset:0; size:4;\n".repeat(MAX_FIELDS + 1));
        assert_eq!(EventFormat::parse(&many), Err(FormatError::TooManyFields));
    }

    #[test]
    fn the_commit_word_tells_the_word_size() {
        let page = |commit, data, size| {
            format!(
                "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\
                 \tfield: local_t commit;\toffset:8;\tsize:{commit};\tsigned:1;\n\
                 \tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;\n\
                 \tfield: char data;\toffset:{data};\tsize:{size};\tsigned:1;\n"
            )
        };
        let shape = PageShape::parse(&page(8, 16, 4080), Endian::Big).unwrap();
        assert_eq!((shape.target.word_bytes, shape.data_offset, shape.size), (8, 16, 4096));
        let shape = PageShape::parse(&page(4, 12, 4084), Endian::Little).unwrap();
        assert_eq!((shape.target.word_bytes, shape.data_offset, shape.size), (4, 12, 4096));
        assert!(PageShape::parse(&page(2, 16, 4080), Endian::Little).is_err());
        assert!(PageShape::parse(&page(8, 12, 4084), Endian::Little).is_err());
        assert!(PageShape::parse("", Endian::Little).is_err());
    }

    #[test]
    fn every_field_has_its_place_size_and_sign() {
        let line = |text: &str| parse_field(text).map(|f| (f.name, f.offset, f.size, f.signed, f.place));
        let field = |name: &str, offset, size, signed, place| Some((name.to_owned(), offset, size, signed, place));
        for (text, want) in [
            ("field:int a;\toffset:4;\tsize:4;\tsigned:1;", field("a", 4, 4, true, FieldAddressing::Fixed)),
            ("field:int a;\toffset:4;\tsize:4;\tsigned:0;", field("a", 4, 4, false, FieldAddressing::Fixed)),
            ("field:char *a;\toffset:0;\tsize:8;\tsigned:0;", field("a", 0, 8, false, FieldAddressing::Fixed)),
            ("field:u8 a[];\toffset:9;\tsize:0;\tsigned:0;", field("a", 9, 0, false, FieldAddressing::Fixed)),
            (
                "field:__data_loc char[] a;\toffset:8;\tsize:4;\tsigned:0;",
                field("a", 8, 4, false, FieldAddressing::DataLoc),
            ),
            (
                "field:__rel_loc char[] a;\toffset:8;\tsize:4;\tsigned:0;",
                field("a", 8, 4, false, FieldAddressing::RelLoc),
            ),
            ("field:__rel_loc char[] a;\toffset:8;\tsize:2;\tsigned:0;", None),
            // Kernels up to 2.6.32 tell no sign, so it is that of the type.
            ("field:pid_t a;\toffset:0;\tsize:4;", field("a", 0, 4, true, FieldAddressing::Fixed)),
            ("field:const long a;\toffset:0;\tsize:8;", field("a", 0, 8, true, FieldAddressing::Fixed)),
            ("field:unsigned int a;\toffset:0;\tsize:4;", field("a", 0, 4, false, FieldAddressing::Fixed)),
            ("field:internal a;\toffset:0;\tsize:4;", field("a", 0, 4, false, FieldAddressing::Fixed)),
            ("field:int a;\toffset:0;", None),
            ("field:int a;\tsize:4;", None),
            ("field:int a;\toffset:-1;\tsize:4;", None),
            ("field:;\toffset:0;\tsize:4;", None),
            ("int a;\toffset:0;\tsize:4;", None),
        ] {
            assert_eq!(line(text), want, "{text}");
        }
        // No field reaches beyond the longest record, 16 MiB.
        for (offset, size, is_good) in
            [(16_777_216, 0, true), (16_777_217, 0, false), (0, 16_777_216, true), (0, 16_777_217, false)]
        {
            let text = format!("field:u8 a[9]; offset:{offset}; size:{size}; signed:0;");
            assert_eq!(parse_field(&text).is_some(), is_good, "{text}");
        }
    }

    #[test]
    fn a_field_is_found_by_its_own_name() {
        let text = "name: x\nID: 3\n\tfield:int a;\toffset:0;\tsize:4;\n\tfield:int ab;\toffset:4;\tsize:4;\n";
        let format = EventFormat::parse(text).unwrap();
        assert_eq!(format.field("ab").map(|field| field.offset), Some(4));
        assert_eq!(format.field("b"), None);
        let many = format!("name: x\nID: 3\n{}", "field:int a; offset:0; size:4;\n".repeat(1024));
        assert_eq!(EventFormat::parse(&many).map(|format| format.fields.len()), Ok(1024));
        assert_eq!(EventFormat::parse("name: x\nID: 3\n\n\nfield:a"), Err(FormatError::BadField(5)));
        assert_eq!(without_print_fmt("name: x\nID: 3\n"), "name: x\nID: 3\n");
    }

    #[test]
    fn a_page_whose_parts_overlap_is_refused() {
        let text = |(commit, size): (usize, usize), (data, room): (usize, usize)| {
            format!(
                "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\
                 \tfield: local_t commit;\toffset:{commit};\tsize:{size};\tsigned:1;\n\
                 \tfield: char data;\toffset:{data};\tsize:{room};\tsigned:1;\n"
            )
        };
        let parse = |commit, data| PageShape::parse(&text(commit, data), Endian::Little);
        let good = |commit, data, word_bytes: u8| {
            let (commit_offset, commit_size) = commit;
            let (data_offset, room): (usize, usize) = data;
            let target = Target { endian: Endian::Little, word_bytes };
            let shape = PageShape { target, commit_offset, commit_size, data_offset, size: data_offset + room };
            assert_eq!(parse(commit, data), Ok(shape));
        };
        good((8, 8), (16, 4080), 8);
        good((8, 4), (12, 4084), 4);
        good((16, 8), (24, 1), 8);
        good((8, 8), (16, 16_777_200), 8);
        let overlap = Err(FormatError::Contradiction("timestamp, commit word and data overlap"));
        for (commit, data) in [((7, 8), (16, 4080)), ((8, 8), (15, 4080)), ((9, 8), (16, 4080)), ((9, 4), (12, 4080))] {
            assert_eq!(parse(commit, data), overlap, "{commit:?} {data:?}");
        }
        let room = Err(FormatError::Contradiction("the data has no room, or too much"));
        assert_eq!([parse((8, 8), (16, 0)), parse((8, 8), (16, 16_777_201))], [room.clone(), room]);
        let text = text((8, 8), (16, 4080));
        let lines: Vec<&str> = text.lines().collect();
        let without = |n: usize| {
            let kept = lines.iter().enumerate().filter(|&(line, _)| line != n).map(|(_, text)| *text);
            PageShape::parse(&kept.collect::<Vec<_>>().join("\n"), Endian::Big)
        };
        assert_eq!(without(1), Err(FormatError::Missing("commit")));
        assert_eq!(without(2), Err(FormatError::Missing("data")));
        assert_eq!(PageShape::parse("\n\tfield: x\n", Endian::Big), Err(FormatError::BadField(2)));
        assert!(PageShape::parse(&format!("# a comment\n{text}"), Endian::Big).is_ok());
    }
}
