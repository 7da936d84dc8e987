//! `parquet-sites`: a row per call-site and kind.

use kmemtrace::documents;
use kmemtrace::documents::head::{CompletenessMembers, TraceMembers};
use kmemtrace::documents::row::Address;
use kmemtrace::{Analysis, Query, Row, Shape};
use kmemtrace_abi::clock::{Agreement, Unit};

use super::names::utf8;
use super::table::{Of, Spec, Table};
use super::{Origin, footer};
use crate::export::Job;
use crate::terminal::output::Output;

/// Columns after those of the origin.
const COLUMNS: [Spec; 30] = [
    Spec::each("kind", Of::Text),
    Spec::some("module", Of::Text),
    Spec::some("function", Of::Text),
    Spec::some("symbol", Of::Text),
    Spec::each("call_site", Of::Int64),
    Spec::some("text_offset", Of::Int64),
    Spec::each("allocs", Of::Int64),
    Spec::each("failed_allocs", Of::Int64),
    Spec::each("requested", Of::Int64),
    Spec::each("allocated", Of::Int64),
    Spec::each("wasted", Of::Int64),
    Spec::each("frees", Of::Int64),
    Spec::each("inferred_frees", Of::Int64),
    Spec::some("cross_cpu", Of::Int64),
    Spec::each("live_objects", Of::Int64),
    Spec::each("live_requested", Of::Int64),
    Spec::each("live_allocated", Of::Int64),
    Spec::each("live_wasted", Of::Int64),
    Spec::some("peak_live_allocated", Of::Int64),
    Spec::some("cross_cpu_bytes", Of::Int64),
    Spec::each("live_is_upper_bound", Of::Boolean),
    Spec::some("pages_allocated", Of::Int64),
    Spec::some("pages_freed", Of::Int64),
    Spec::some("pages_inferred", Of::Int64),
    Spec::some("live_pages", Of::Int64),
    Spec::some("peak_live_pages", Of::Int64),
    Spec::some("partial_frees", Of::Int64),
    Spec::some("seconds", Of::Double),
    Spec::each("verdict", Of::Text),
    Spec::some("lost_events", Of::Int64),
];

/// Writes the table of call-sites.
pub(crate) fn sites(job: &Job<'_>) -> anyhow::Result<u8> {
    // A name that is taken is told before the analysis.
    let out = job.binary_output()?;
    let analysis = job.analyse(Query::by_site())?;
    write(&analysis, &Origin::of(analysis.info(), job.host()), out)?;
    Ok(job.end(&analysis))
}

fn write(analysis: &Analysis, origin: &Origin, out: Output) -> anyhow::Result<()> {
    let document = documents::sites(analysis, &Shape { sort: Vec::new(), top: None });
    let head = &document.head;
    let specs = origin.columns(COLUMNS);
    let mut table = Table::new(out, &specs)?;
    let (mut sums, origin_ids) = (Sums::default(), origin.ids(&mut table));
    let mut rows: Vec<Row<'_>> = analysis.rows().collect();
    rows.sort_unstable_by_key(|row| (row.call_site, row.kind));
    let written = rows.iter().try_for_each(|row| {
        table.texts(&origin_ids);
        put_row(analysis, row, &mut sums, &mut table);
        put_end(analysis, &head.trace, &mut table);
        table.end_row()
    });
    let saturated = head.completeness.saturated || sums.has_saturated;
    let completeness = CompletenessMembers { saturated, ..head.completeness.clone() };
    table.finish(written, &footer(completeness, head.trace.clone(), origin.host(), true))
}

/// Sums as INT64.
#[derive(Default)]
struct Sums {
    /// A sum did not fit.
    has_saturated: bool,
}

impl Sums {
    fn fit(&mut self, sum: u128) -> Option<i64> {
        let fits = i64::try_from(sum);
        self.has_saturated |= fits.is_err();
        Some(fits.unwrap_or(i64::MAX))
    }
}

fn put_row(analysis: &Analysis, row: &Row<'_>, sums: &mut Sums, table: &mut Table) {
    let call_site = row.call_site.unwrap_or(0);
    let symbol = analysis.symbolizer().lookup(call_site);
    let is_kernel = symbol.is_some_and(|symbol| symbol.module.is_none());
    let start = analysis.symbolizer().kernel_symbol(b"_stext").filter(|_| is_kernel);
    let module = analysis.symbolizer().owner(call_site).module().map(utf8);
    let stats = row.stats;
    // Pages that are live at one moment tell nothing of what failed or was freed before.
    let has_past = !analysis.info().input.is_of_one_moment();
    let is_ordered = has_past && analysis.info().keys().agreement != Agreement::Nothing;
    table
        .new_text(Some(row.kind.name().as_bytes()))
        .new_text(module.as_deref())
        .new_text(symbol.map(|symbol| utf8(symbol.name)).as_deref())
        .new_text(symbol.map(|symbol| symbol.text()).as_deref().map(utf8).as_deref())
        .bits(Address(call_site).told().map(|address| address.0))
        .bits(start.map(|start| call_site.wrapping_sub(start)));
    table.int64(sums.fit(stats.allocs.into())).int64(sums.fit(stats.failed_allocs.into()).filter(|_| has_past));
    for sum in [stats.requested, stats.allocated, stats.wasted] {
        table.int64(sums.fit(sum));
    }
    for count in [stats.frees, stats.inferred_frees] {
        table.int64(sums.fit(count.into()).filter(|_| has_past));
    }
    table.int64(sums.fit(stats.cross_cpu.into()).filter(|_| is_ordered));
    for sum in [stats.live_objects.into(), stats.live_requested, stats.live_allocated, stats.live_wasted] {
        table.int64(sums.fit(sum));
    }
    let peak = stats.peak_live_allocated.filter(|_| is_ordered).and_then(|peak| sums.fit(peak));
    table.int64(peak).int64(sums.fit(stats.cross_cpu_bytes).filter(|_| is_ordered));
    table.boolean(Some(stats.live_is_upper_bound));
    let pages = [
        (stats.pages_allocated, true),
        (stats.pages_freed, has_past),
        (stats.pages_inferred, has_past),
        (stats.live_pages, true),
        (stats.peak_live_pages, is_ordered),
        (stats.partial_frees.map(u128::from), true),
    ];
    for (sum, is_known) in pages {
        table.int64(sum.filter(|_| is_known).and_then(|sum| sums.fit(sum)));
    }
}

/// Puts the length of the trace, its verdict and its loss.
fn put_end(analysis: &Analysis, origin: &TraceMembers<'_>, table: &mut Table) {
    let is_timed = analysis.info().keys().unit == Unit::Nanoseconds;
    let seconds = is_timed.then(|| origin.last.saturating_sub(origin.first) as f64 / 1e9);
    let completeness = analysis.completeness();
    table.double(seconds).new_text(Some(completeness.verdict_name().as_bytes())).bits(completeness.lost_events);
}
