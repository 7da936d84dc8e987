//! CSV: a header row, exact integers, and no cell that a terminal or a spreadsheet would act on.

use std::borrow::Cow;
use std::io::{self, Write};

use kmemtrace_abi::text::escape::escape_csv;

use kmemtrace::documents::row::{Cell, RowSource};

/// Writes the rows of a view, under the names of their members.
pub(crate) fn csv(rows: &impl RowSource, out: &mut dyn Write) -> io::Result<()> {
    let mut writer = csv::Writer::from_writer(out);
    let mut has_header = false;
    rows.each_row::<io::Error>(&mut |row| {
        if !has_header {
            let mut header = Vec::new();
            row.members(&mut |member, _| header.push(member));
            writer.write_record(header)?;
            has_header = true;
        }
        let mut written = Ok(());
        row.members(&mut |_, cell| {
            if written.is_ok() {
                written = text(cell).and_then(|text| Ok(writer.write_field(text.as_bytes())?));
            }
        });
        written?;
        Ok(writer.write_record(None::<&[u8]>)?)
    })?;
    writer.flush()
}

fn text(cell: Cell<'_>) -> io::Result<Cow<'_, str>> {
    Ok(match cell {
        Cell::Null => Cow::Borrowed(""),
        Cell::Word(word) => Cow::Borrowed(word),
        Cell::Name(name) => escape_csv(name),
        Cell::Address(address) => Cow::Owned(address.to_string()),
        Cell::Bool(_) | Cell::Count(_) | Cell::Pid(_) | Cell::Event(..) => Cow::Owned(serde_json::to_string(&cell)?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use kmemtrace::documents::row::{Row, Rows, TakeMember};

    struct Line(&'static [u8], u64, Option<u64>);

    impl Row for Line {
        fn members(&self, take: &mut TakeMember<'_>) {
            take("cache", Cell::Name(self.0));
            take("wasted", Cell::Count(self.1));
            take("peak", self.2.map_or(Cell::Null, Cell::Count));
            take("pid", Cell::Pid(-1));
        }
    }

    #[test]
    fn a_name_does_not_become_a_formula() {
        let rows = [(&b"=cmd|' /C calc'!A0"[..], u64::MAX, None), (b"a,\"b\"\x1b", 1, Some(2))];
        let rows = Rows::of(rows.to_vec(), |&(name, wasted, peak)| Line(name, wasted, peak));
        let mut out = Vec::new();
        csv(&rows, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let rows = "'=cmd|' /C calc'!A0,18446744073709551615,,-1\n\"a,\"\"b\"\"\\x1b\",1,2,-1\n";
        assert_eq!(text, format!("cache,wasted,peak,pid\n{rows}"));
    }
}
