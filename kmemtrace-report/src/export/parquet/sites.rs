//! `parquet-sites`: a row per call site and kind. The figures are the members of [`PrintedStats`], and so are their names.

use kmemtrace::documents;
use kmemtrace::documents::head::CompletenessMembers;
use kmemtrace::documents::row::{Address, Cell, Row as _};
use kmemtrace::documents::sums::PrintedStats;
use kmemtrace::{Analysis, Query, Row, Shape};
use kmemtrace_abi::clock::Unit;

use super::Origin;
use super::table::{Columns, column};
use super::texts::{TextId, Texts};
use crate::export::Job;

struct SiteRow {
    kind: TextId,
    module: Option<TextId>,
    function: Option<TextId>,
    symbol: Option<TextId>,
    call_site: Option<u64>,
    text_offset: Option<u64>,
    reclaimable: Option<bool>,
    /// In the order of [`each_figure`]; a sum that does not fit is the largest number.
    figures: Vec<Option<i64>>,
    verdict: TextId,
}

/// Writes the table of call sites.
pub(crate) fn sites(job: &Job<'_>) -> anyhow::Result<u8> {
    // An output that exists is reported before the analysis.
    let out = job.binary_output()?;
    let analysis = job.analyse(Query::by_site().with_reclaim(true))?;
    let head = documents::sites(&analysis, &Shape { sort: Vec::new(), top: None }).head;
    let origin = Origin::of(analysis.info(), job);
    let is_timed = analysis.info().keys().unit == Unit::Nanoseconds;
    let seconds = is_timed.then(|| head.trace.last.saturating_sub(head.trace.first) as f64 / 1e9);
    let mut table = origin.table(out, columns(seconds, analysis.completeness().lost_events))?;
    let mut rows: Vec<Row<'_>> = analysis.rows().collect();
    rows.sort_unstable_by_key(|row| (row.call_site, row.kind));
    let mut saturated = head.completeness.saturated;
    let written = rows.iter().try_for_each(|row| {
        let row = site_row(&analysis, row, &mut table.texts);
        saturated |= row.figures.contains(&Some(i64::MAX));
        table.push(row)
    });
    let completeness = CompletenessMembers { saturated, ..head.completeness.clone() };
    table.finish(written, &origin.footer(completeness, head.trace.clone()))?;
    Ok(job.end(&analysis))
}

fn columns(seconds: Option<f64>, lost_events: Option<u64>) -> Columns<SiteRow> {
    let mut figures: Columns<SiteRow> = Vec::new();
    each_figure(&PrintedStats::default(), None, &mut |name, cell| {
        let index = figures.len();
        figures.push(match cell {
            Cell::Count(_) => column(name, move |row: &SiteRow| row.figures[index].unwrap_or(0)),
            Cell::Bool(_) => column(name, move |row: &SiteRow| row.figures[index] == Some(1)),
            _ => column(name, move |row: &SiteRow| row.figures[index]),
        });
    });
    let names: Columns<SiteRow> = vec![
        column("kind", |row: &SiteRow| row.kind),
        column("module", |row: &SiteRow| row.module),
        column("function", |row: &SiteRow| row.function),
        column("symbol", |row: &SiteRow| row.symbol),
        column("call_site", |row: &SiteRow| row.call_site),
        column("text_offset", |row: &SiteRow| row.text_offset),
    ];
    let end: Columns<SiteRow> = vec![
        column("reclaimable", |row: &SiteRow| row.reclaimable),
        column("seconds", move |_: &SiteRow| seconds),
        column("verdict", |row: &SiteRow| row.verdict),
        column("lost_events", move |_: &SiteRow| lost_events),
    ];
    names.into_iter().chain(figures).chain(end).collect()
}

/// Hands over name and value of each figure: those of every document, and a figure of `cross`.
fn each_figure(stats: &PrintedStats, cross_cpu_bytes: Option<u64>, take: &mut dyn FnMut(&'static str, Cell<'_>)) {
    stats.members(&mut |name, cell| {
        if name == "live_is_upper_bound" {
            take("cross_cpu_bytes", cross_cpu_bytes.map_or(Cell::Null, Cell::Count));
        }
        take(name, cell);
    });
}

fn site_row(analysis: &Analysis, row: &Row<'_>, texts: &mut Texts) -> SiteRow {
    let symbols = analysis.symbolizer();
    let call_site = row.call_site.unwrap_or(0);
    let symbol = symbols.lookup(call_site);
    let is_kernel = symbol.is_some_and(|symbol| symbol.module.is_none());
    let start = symbols.kernel_symbol(b"_stext").filter(|_| is_kernel);
    let stats = PrintedStats::of(row.stats, analysis.info());
    let cross_cpu_bytes = stats.cross_cpu.map(|_| row.stats.cross_cpu_bytes.try_into().unwrap_or(u64::MAX));
    let mut figures = Vec::new();
    each_figure(&stats, cross_cpu_bytes, &mut |_, cell| {
        figures.push(match cell {
            Cell::Count(count) => Some(count.try_into().unwrap_or(i64::MAX)),
            Cell::Bool(yes) => Some(yes.into()),
            _ => None,
        });
    });
    SiteRow {
        kind: texts.id(row.kind.name().as_bytes()),
        module: symbols.owner(call_site).module().map(|name| texts.id(name)),
        function: symbol.map(|symbol| texts.id(symbol.name)),
        symbol: symbol.map(|symbol| texts.id(&symbol.text())),
        call_site: Address(call_site).told().map(|address| address.0),
        text_offset: start.map(|start| call_site.wrapping_sub(start)),
        reclaimable: row.reclaimable,
        figures,
        verdict: texts.id(analysis.completeness().verdict_name().as_bytes()),
    }
}
