//! Lines of a follower: spans that have ended, and the totals at the end.

use std::io::{self, Write};

use kmemtrace::Trace;
use kmemtrace::documents::head::{Filters, QueryMembers, TraceMembers};
use kmemtrace::documents::latency as documents;
use kmemtrace::documents::{Body, Document};
use kmemtrace::follow::FollowerBase;
use kmemtrace::latency::{EndedSpan, EndedTotals, Latency};
use kmemtrace_abi::text::units;
use serde_json::json;

use crate::args::Format;
use crate::cli::Request;
use crate::render::json::line;
use crate::render::table::options::TableOptions;
use crate::render::table::{self, cells, heading, stalls};
use crate::report;
use crate::terminal::output::Output;

/// Form of the lines, as `schema` has it.
const SCHEMA: &str = "kmemtrace.follow/1";

/// Writer of the lines.
pub(super) struct SpanLines<'a> {
    base: &'a FollowerBase,
    request: &'a Request,
    options: TableOptions,
    out: &'a mut Output,
    has_begun: bool,
}

impl<'a> SpanLines<'a> {
    pub(super) fn new(request: &'a Request, base: &'a FollowerBase, out: &'a mut Output) -> SpanLines<'a> {
        let options = options(request);
        SpanLines { base, request, options, out, has_begun: false }
    }

    /// Writes the first line; `first` is the key of the first event.
    pub(super) fn begin(&mut self, first: Option<u64>) -> io::Result<()> {
        if self.request.format() == Format::Table || std::mem::replace(&mut self.has_begun, true) {
            return Ok(());
        }
        let filters = Filters(&self.request.asked.filters);
        let begin = json!({
            "schema": SCHEMA,
            "trace": TraceMembers::of_begun(self.base.info(), first.unwrap_or(0)),
            "query": QueryMembers { filters, time: None, by: Vec::new() },
        });
        line(&begin, self.out)
    }

    /// Writes spans that have ended.
    pub(super) fn rows(&mut self, spans: &[EndedSpan], first: Option<u64>, trace: &Trace) -> io::Result<()> {
        if spans.is_empty() {
            return Ok(());
        }
        self.begin(first)?;
        let members = TraceMembers::of_begun(self.base.info(), first.unwrap_or(0));
        for span in spans {
            let row = self.base.row(span, trace);
            match self.request.format() {
                Format::Table => stalls::ended(&members, &row, &self.options, self.out)?,
                _ => line(&row, self.out)?,
            }
        }
        Ok(())
    }

    /// Hands on what was written.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

fn options(request: &Request) -> TableOptions {
    let inputs = request.inputs();
    let input = inputs.first().map(std::path::PathBuf::as_path).unwrap_or(std::path::Path::new(""));
    TableOptions { top: None, ..report::table_options(request, input) }
}

/// Writes the totals, and the shrinkers.
pub(super) fn totals(
    request: &Request,
    latency: &Latency,
    listed: EndedTotals,
    late_events: u64,
    out: &mut Output,
) -> io::Result<()> {
    let known = |time: u64| latency.has_durations().then_some(time);
    let longest = known(listed.max).filter(|_| listed.count > 0);
    let spans = documents::latency(latency, None);
    let Body::Latency(view) = &spans.body else { return Ok(()) };
    let stalls: u64 = view.tasks.iter().map(|task| task.count).sum();
    let waited = view.tasks.iter().try_fold(0u64, |sum, task| Some(sum.saturating_add(task.total?)));
    let document = documents::shrinkers(latency, false, None);
    if request.format() == Format::Table {
        let options = options(request);
        writeln!(out)?;
        let shown = if request.args.all_spans { "span" } else { "stall" };
        let mut text = format!(
            "{} shown, {}, longest {}",
            units::counted(listed.count, shown),
            duration(known(listed.total)),
            duration(longest),
        );
        if listed.suspect.0 > 0 {
            text += &format!("; {} more that loss may have touched", units::grouped(listed.suspect.0));
        }
        text += &format!(". In all {} waited {}.", cells::counted(stalls, "stall"), duration(waited));
        heading::text(&text, &options, out)?;
        // The threshold chose the lines above; shrinkers count whatever their stalls took.
        let filters = options.filters.into_iter().filter(|(option, _)| option != "threshold").collect();
        return table::table(&document, &TableOptions { filters, ..options }, out);
    }
    let Document { head, body: Body::Shrinkers(shrinkers) } = &document else { return Ok(()) };
    let (suspects, suspect_time) = listed.suspect;
    let end = json!({
        "totals": {
            "listed": {
                "count": listed.count,
                "total": known(listed.total),
                "max": longest,
                "suspect": { "count": suspects, "total": known(suspect_time) },
            },
            "stalls": { "count": stalls, "total": waited, "max": view.tasks.iter().filter_map(|task| task.max).max() },
            "late_events": late_events,
        },
        "completeness": head.completeness,
        "shrinkers": shrinkers.rows.iter().collect::<Vec<_>>(),
    });
    line(&end, out)
}

fn duration(time: Option<u64>) -> String {
    time.map_or_else(|| "-".to_owned(), units::duration)
}
