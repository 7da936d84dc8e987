//! CSV: a header row, exact integers, and no cell that a terminal or a spreadsheet would act on.

use std::borrow::Cow;
use std::io::{self, Write};

use kmemtrace_abi::text::escape::escape_csv;

use kmemtrace::documents::row::{Address, Cell, Row, RowSource};
use kmemtrace::{Action, Frame, OrderedItem};

use super::event_output::EventOutput;

/// Writes the rows of a view, under the names of their members. Members of figures within a row have both names: `before_allocs`.
pub(crate) fn csv(rows: &impl RowSource, out: &mut dyn Write) -> io::Result<()> {
    let mut writer = csv::Writer::from_writer(out);
    let mut header: Vec<String> = Vec::new();
    rows.each_row::<io::Error>(&mut |row| {
        let (mut names, mut fields) = (Vec::new(), Vec::new());
        flat(row, "", &mut |name, cell| {
            names.push(name.to_owned());
            fields.push(text(cell)?.into_owned());
            Ok(())
        })?;
        if header.is_empty() {
            writer.write_record(&names)?;
            header.clone_from(&names);
        }
        if names == header {
            return Ok(writer.write_record(&fields)?);
        }
        // A sum of rows has some of their members.
        let field = |column: &String| names.iter().position(|name| name == column).map_or("", |at| &fields[at]);
        Ok(writer.write_record(header.iter().map(field))?)
    })?;
    writer.flush()
}

/// Hands over the members of a row, those of figures within it with `prefix` before their names.
fn flat(row: &dyn Row, prefix: &str, take: &mut dyn FnMut(&str, Cell<'_>) -> io::Result<()>) -> io::Result<()> {
    let mut result = Ok(());
    row.members(&mut |member, cell| {
        if result.is_ok() {
            let name = format!("{prefix}{member}");
            result = match cell {
                Cell::Figures(figures) => flat(figures, &format!("{name}_"), take),
                Cell::NoFigures(figures) => flat(figures, &format!("{name}_"), &mut |name, _| take(name, Cell::Null)),
                Cell::Rates(rates) => ["before", "after"]
                    .into_iter()
                    .zip(rates)
                    .try_for_each(|(side, rate)| take(&format!("{name}_{side}"), Cell::Rates([rate, rate]))),
                cell => take(&name, cell),
            };
        }
    });
    result
}

fn text(cell: Cell<'_>) -> io::Result<Cow<'_, str>> {
    Ok(match cell {
        Cell::Null => Cow::Borrowed(""),
        Cell::Word(word) => Cow::Borrowed(word),
        Cell::Name(name) => escape_csv(name),
        Cell::Names(names) => Cow::Owned(names.iter().map(|name| escape_csv(name)).collect::<Vec<_>>().join(" ")),
        Cell::Address(address) => Cow::Owned(address.to_string()),
        // One side of a pair, see `flat`.
        Cell::Rates([rate, _]) => Cow::Owned(serde_json::to_string(&rate)?),
        Cell::Counts(counts) => Cow::Owned(counts.iter().map(u64::to_string).collect::<Vec<String>>().join(" ")),
        Cell::Figures(_) | Cell::NoFigures(_) => Cow::Borrowed(""),
        Cell::List(_) | Cell::Fields(_) => {
            Cow::Owned(escape_csv(serde_json::to_string(&cell)?.as_bytes()).into_owned())
        }
        Cell::Frames(frames) => {
            let frame = |frame: &Frame| named(&frame.function, frame.file.as_deref(), frame.line);
            Cow::Owned(escape_csv(&frames.iter().map(frame).collect::<Vec<_>>().join(&b" < "[..])).into_owned())
        }
        Cell::Stack(stack) => Cow::Owned(escape_csv(&stack.text()).into_owned()),
        Cell::Source(source) => {
            let text = named(&source.function, source.file.as_deref(), source.line);
            Cow::Owned(escape_csv(&text).into_owned())
        }
        Cell::Bool(_) | Cell::Quotient(_) | Cell::Count(_) | Cell::Pid(_) | Cell::Change(_) | Cell::Event(..) => {
            Cow::Owned(serde_json::to_string(&cell)?)
        }
    })
}

/// `function file:line`, as far as they are known.
fn named(function: &[u8], file: Option<&[u8]>, line: Option<u32>) -> Vec<u8> {
    let line = line.map_or(String::new(), |line| format!(":{line}"));
    file.map_or(function.to_vec(), |file| [function, b" ", file, line.as_bytes()].concat())
}

/// Columns of `events`: the members of an event and of a gap; the last [`OWNERS`] of them are those of exported files.
const EVENT_MEMBERS: [&str; 19] = [
    "at",
    "from",
    "cpu",
    "pid",
    "comm",
    "context",
    "event",
    "call_site",
    "address",
    "addresses",
    "size",
    "requested",
    "allocated",
    "gfp",
    "node",
    "cache",
    "lost",
    "cgroup",
    "reclaimable",
];
/// Number of the columns that a query [`kmemtrace::Query::with_owners`] fills.
const OWNERS: usize = 2;

/// Writer of a row for each event and each gap; members that it has not are empty.
pub(crate) struct EventRows<'a> {
    writer: csv::Writer<&'a mut dyn Write>,
    /// Number of columns.
    columns: usize,
}

impl<'a> EventRows<'a> {
    /// Writer of the columns; `with_owners`: those of exported files, too.
    pub(crate) fn new(out: &'a mut dyn Write, with_owners: bool) -> io::Result<EventRows<'a>> {
        let mut writer = csv::Writer::from_writer(out);
        let columns = EVENT_MEMBERS.len() - if with_owners { 0 } else { OWNERS };
        writer.write_record(&EVENT_MEMBERS[..columns])?;
        Ok(EventRows { writer, columns })
    }
}

impl EventOutput for EventRows<'_> {
    fn item(&mut self, item: &OrderedItem<'_>) -> io::Result<()> {
        let number = |n: Option<u64>| n.map_or(String::new(), |n| n.to_string());
        let name = |name: Option<&[u8]>| name.map_or(String::new(), |name| escape_csv(name).into_owned());
        let row: [String; EVENT_MEMBERS.len()] = match *item {
            OrderedItem::Gap { from, at, cpu, lost, .. } => {
                let mut row = <[String; EVENT_MEMBERS.len()]>::default();
                (row[0], row[1], row[2]) = (at.to_string(), from.to_string(), cpu.to_string());
                (row[6], row[16]) = ("gap".to_owned(), number(lost));
                row
            }
            OrderedItem::Event { event, addresses, names, comm, cgroup, reclaimable, .. } => {
                let is_alloc = event.allocates();
                let is_object = event.action != Action::Other;
                let size = event.objects();
                let bytes = event.told_bytes();
                let addresses: Vec<String> = addresses.iter().map(|event| Address(event.address).to_string()).collect();
                let address =
                    |n: u64| Address(n).told().filter(|_| is_object).map_or(String::new(), |at| at.to_string());
                [
                    number(event.told_at()),
                    String::new(),
                    number(event.told_cpu().map(u64::from)),
                    event.pid.map_or(String::new(), |pid| pid.to_string()),
                    name(comm),
                    event.context().map_or(String::new(), |context| context.name().to_owned()),
                    name(Some(names.get(event.name))),
                    address(event.call_site),
                    if size.is_none() { address(event.address) } else { String::new() },
                    addresses.join(" "),
                    number(size),
                    number(bytes.map(|(requested, _)| requested)),
                    number(bytes.map(|(_, allocated)| allocated)),
                    number(event.gfp.filter(|_| is_alloc)),
                    event.node.filter(|_| is_alloc).map_or(String::new(), |node| node.to_string()),
                    name(event.cache.map(|cache| names.get(cache))),
                    String::new(),
                    name(cgroup),
                    reclaimable.map_or(String::new(), |yes| yes.to_string()),
                ]
            }
        };
        Ok(self.writer.write_record(&row[..self.columns])?)
    }

    fn finish(mut self: Box<Self>, _: u64) -> io::Result<()> {
        self.writer.flush()
    }
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
