//! CSV: a header row, exact integers, and no cell that a terminal or a spreadsheet would act on.

use std::borrow::Cow;
use std::io::{self, Write};

use kmemtrace_abi::text::escape::escape_csv;

use kmemtrace::documents::Document;
use kmemtrace::documents::row::Cell;

/// Writes the rows of a view.
pub(crate) fn csv(document: &Document<'_>, out: &mut dyn Write) -> io::Result<()> {
    let mut rows = document.rows.iter().peekable();
    let mut writer = csv::Writer::from_writer(out);
    let Some(first) = rows.peek() else { return writer.flush() };
    writer.write_record(first.cells().map(|(member, _)| *member))?;
    for row in rows {
        for (_, cell) in row.cells() {
            writer.write_field(text(cell)?.as_bytes())?;
        }
        writer.write_record(None::<&[u8]>)?;
    }
    writer.flush()
}

fn text<'c>(cell: &'c Cell<'_>) -> io::Result<Cow<'c, str>> {
    Ok(match cell {
        Cell::Null => Cow::Borrowed(""),
        Cell::Word(word) => Cow::Borrowed(word),
        Cell::Name(name) => escape_csv(name),
        Cell::Address(address) => Cow::Owned(format!("{address:#x}")),
        Cell::Bool(_) | Cell::Count(_) | Cell::Pid(_) | Cell::Event(..) => Cow::Owned(serde_json::to_string(cell)?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use kmemtrace::documents::row::{Row, Rows};
    use serde_json::Map;

    #[test]
    fn a_name_does_not_become_a_formula() {
        let rows = [(&b"=cmd|' /C calc'!A0"[..], u64::MAX, None), (b"a,\"b\"\x1b", 1, Some(2))];
        let rows = Rows::of(rows.to_vec(), |&(name, wasted, peak)| {
            let mut row = Row::default();
            row.extend([("cache", Cell::name(Some(name))), ("wasted", Cell::Count(wasted))]);
            row.extend([("peak", Cell::count(peak)), ("pid", Cell::Pid(-1))]);
            row
        });
        let mut out = Vec::new();
        csv(&Document::new(Map::new(), rows), &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let rows = "'=cmd|' /C calc'!A0,18446744073709551615,,-1\n\"a,\"\"b\"\"\\x1b\",1,2,-1\n";
        assert_eq!(text, format!("cache,wasted,peak,pid\n{rows}"));
    }
}
