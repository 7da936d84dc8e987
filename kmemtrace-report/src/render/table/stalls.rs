//! Table of `stalls`: a line for each, and below it the spans and events inside.

use std::io::{self, Write};

use kmemtrace::documents::Head;
use kmemtrace::documents::head::TraceMembers;
use kmemtrace::documents::latency::{EndedRow, EventRow, InsideRow, StallRow, Stalls};
use kmemtrace::documents::row::{self, Cell as Value, Row as _};
use kmemtrace::latency::SpanClass;
use kmemtrace_abi::text::escape::escape;
use kmemtrace_abi::text::units;

use super::options::TableOptions;
use super::{cells, heading};
use crate::render::wrap;

/// Indent of spans and events inside.
const INDENT: usize = 3;

/// Writes the stalls.
pub(super) fn stalls(
    head: &Head<'_>,
    view: &Stalls<'_>,
    options: &TableOptions,
    out: &mut dyn Write,
) -> io::Result<()> {
    if view.count == 0 {
        return heading::empty("no stall", options, out);
    }
    for row in view.listing.rows.iter() {
        first_line(&head.trace, &row, Vec::new(), options, out)?;
        inside(&head.trace, &row, options, out)?;
    }
    heading::more_rows(view.listing.others.as_ref().map_or(0, |others| others.others_count as u64), options, out)
}

/// Writes a span that has just ended.
pub(crate) fn ended(
    trace: &TraceMembers<'_>,
    row: &EndedRow<'_>,
    options: &TableOptions,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut more = Vec::new();
    if let Some(function) = row.function {
        more.push(cells::shown(&row.function_name).unwrap_or_else(|| function.to_string()));
        more.extend(row.freed.map(|freed| format!("freed {}", units::grouped(freed))));
    }
    if row.class != SpanClass::Stall {
        more.push(row.class.name().to_owned());
    }
    if row.is_suspect {
        more.push("suspect: events were lost".to_owned());
    }
    let is_bare = row.class != SpanClass::Stall && row.stall.inside.is_empty();
    first_line(trace, &row.stall, more, options, out)?;
    if is_bare { Ok(()) } else { inside(trace, &row.stall, options, out) }
}

/// Writes the line of a stall; `more` are parts behind the usual ones.
fn first_line(
    trace: &TraceMembers<'_>,
    row: &StallRow<'_>,
    more: Vec<String>,
    options: &TableOptions,
    out: &mut dyn Write,
) -> io::Result<()> {
    let pid = row.pid.map_or("-".to_owned(), |pid| pid.to_string());
    let comm = cells::shown(&row.comm).map_or(String::new(), |comm| format!("{comm}-"));
    let span = cells::shown(&row.span).unwrap_or_default();
    let clock = heading::clock_time(trace, row.at, options).map_or(String::new(), |time| format!("{time}  "));
    let mut line = vec![
        format!("{clock}{}  {comm}{pid}", cells::moment(trace, row.at)),
        format!("{span} {}", cells::duration(row.total)),
    ];
    line.extend(cells::shown(&row.cgroup).map(|cgroup| format!("cgroup {cgroup}")));
    line.extend(row.order.map(|order| format!("order {order}")));
    line.extend(row.reclaimed.map(|pages| format!("reclaimed {}", cells::counted(pages, "page"))));
    line.extend(row.call_site.map(|site| cells::shown(&row.symbol).unwrap_or_else(|| site.to_string())));
    line.extend(more);
    writeln!(out, "{}", wrap::parts(&line, 2, options.screen.width, options.screen.cut_mark()))
}

/// Writes the spans and events inside a stall.
fn inside(trace: &TraceMembers<'_>, row: &StallRow<'_>, options: &TableOptions, out: &mut dyn Write) -> io::Result<()> {
    for line in row.inside.iter().map(spans) {
        below(&line, options, out)?;
    }
    if !row.inside.is_empty() {
        below(&format!("outside of these {}", cells::duration(row.own)), options, out)?;
    }
    for event in row.events.iter().flatten() {
        below(&event_text(trace, event), options, out)?;
    }
    Ok(())
}

fn below(line: &str, options: &TableOptions, out: &mut dyn Write) -> io::Result<()> {
    let blanks = " ".repeat(INDENT);
    heading::indented(&format!("{blanks}{line}"), 2 * INDENT, options, out)
}

/// Spans inside, of one kind.
fn spans(row: &InsideRow<'_>) -> String {
    let span = cells::shown(&row.span).unwrap_or_default();
    let function = row.function.map(|at| cells::shown(&row.symbol).unwrap_or_else(|| at.to_string()));
    let function = function.map_or(String::new(), |function| format!(" {function}"));
    let times = cells::counted(row.count, "time");
    let freed = row.freed.map_or(String::new(), |freed| format!(", freed {}", units::grouped(freed)));
    format!("{span}{function}   {times} {}, longest {}{freed}", cells::duration(row.total), cells::duration(row.max))
}

/// Event with its fields.
fn event_text(trace: &TraceMembers<'_>, row: &EventRow<'_>) -> String {
    let mut text = cells::moment(trace, row.inside.event.at);
    row.members(&mut |name, value| match (name, value) {
        ("at", _) => {}
        ("event", Value::Name(name)) => text += &format!("  {}", escape(name)),
        (_, Value::Fields(fields)) => {
            for (name, value) in fields.iter() {
                text += &named(&escape(row::field_member(name).as_bytes()), &row::field_cell(value));
            }
        }
        (name, value) => text += &named(name, &value),
    });
    text
}

/// Name and value of a field.
fn named(name: &str, value: &Value<'_>) -> String {
    match value {
        Value::Name(value) => format!(" {name}={}", escape(value)),
        Value::Count(n) => format!(" {name}={n}"),
        Value::Change(n) => format!(" {name}={n}"),
        Value::Pid(n) => format!(" {name}={n}"),
        Value::Word(word) => format!(" {name}={word}"),
        Value::Address(at) => format!(" {name}={at}"),
        _ => String::new(),
    }
}
