//! Tables for people: the verdict first, bytes before ratios, sums that add up.

use std::fmt::Write as _;
use std::io::{self, Write};

use kmemtrace::documents::caches::CacheRow;
use kmemtrace::documents::cross::{Cross, CrossRow};
use kmemtrace::documents::document::TraceMembers;
use kmemtrace::documents::live::{LiveRow, OtherObjects};
use kmemtrace::documents::mismatch::{MismatchRow, OtherFindings};
use kmemtrace::documents::naming::CallSite;
use kmemtrace::documents::ranked::{Listing, Others};
use kmemtrace::documents::row::{Address, Name};
use kmemtrace::documents::sites::SiteRow;
use kmemtrace::documents::summary::{Summary, TotalRow};
use kmemtrace::documents::sums::PrintedStats;
use kmemtrace::documents::{Body, CpuMatrix, Document, Head};
use kmemtrace_abi::clock::Unit;
use kmemtrace_abi::text::escape::escape;
use kmemtrace_abi::text::units;

use super::grid::Grid;

/// Limit of CPUs in a table's matrix. Larger machines show the CPUs with most pairs.
const MAX_MATRIX_CPUS: usize = 256;

/// Options of a table.
pub(crate) struct TableOptions {
    /// True for exact bytes.
    pub(crate) bytes: bool,
    /// True to print the addresses of objects.
    pub(crate) show_addresses: bool,
    /// True if the figures include the recorder's own objects.
    pub(crate) shows_own: bool,
    /// True if filters select objects: the recorder's own are counted before them.
    pub(crate) is_filtered: bool,
    /// Escaped name of the trace.
    pub(crate) title: String,
}

/// Writes the verdict, then the view's table.
pub(crate) fn table(document: &Document<'_>, options: &TableOptions, out: &mut dyn Write) -> io::Result<()> {
    let Document { head, body } = document;
    let events = if let Body::Summary(summary) = body { Some(summary.events.total) } else { None };
    out.write_all(verdict(head, events).as_bytes())?;
    match body {
        Body::Summary(view) => summary(head, view, options, out),
        Body::Sites(listing) => sites(listing, options, out),
        Body::Caches(listing) => caches(listing, options, out),
        Body::Mismatch(listing) => mismatch(head, listing, options, out),
        Body::Live(listing) => live(head, listing, options, out),
        Body::Cross(view) => cross(view, options, out),
    }
}

fn count(n: impl Into<Option<u64>>) -> String {
    n.into().map_or("-".to_owned(), units::grouped)
}

fn bytes(n: impl Into<Option<u64>>, options: &TableOptions) -> String {
    match n.into() {
        None => "-".to_owned(),
        Some(n) if options.bytes => n.to_string(),
        Some(n) => units::bytes(n),
    }
}

/// Name escaped for a terminal.
fn shown(name: &Name<'_>) -> Option<String> {
    name.as_deref().map(|name| escape(name).into_owned())
}

fn text(name: &Name<'_>) -> String {
    shown(name).unwrap_or("-".to_owned())
}

fn percent(part: impl Into<Option<u64>>, whole: u64) -> String {
    part.into().map_or("-".to_owned(), |part| units::percent(part, whole))
}

/// Symbol, else the address.
fn function(symbol: &Name<'_>, address: Option<Address>) -> String {
    shown(symbol).or(address.map(|address| address.to_string())).unwrap_or("-".to_owned())
}

fn site(site: &CallSite<'_>) -> String {
    let name = function(&site.symbol, Some(site.call_site));
    match shown(&site.module) {
        Some(module) => format!("{name} [{module}]"),
        None => name,
    }
}

/// Time since the trace's first event; a sequence number as it is.
fn moment(trace: &TraceMembers<'_>, at: impl Into<Option<u64>>) -> String {
    at.into().map_or("-".to_owned(), |at| trace.keys().moment(at, trace.first, 6))
}

fn verdict(head: &Head<'_>, events: Option<u64>) -> String {
    let complete = &head.completeness;
    let mut line = complete.verdict.to_uppercase();
    if let Some(events) = events {
        let _ = write!(line, "   {} events", units::grouped(events));
    }
    let lost = complete.lost_events;
    let _ = match lost {
        Some(lost) => write!(line, "   {} lost", units::grouped(lost)),
        None => write!(line, "   lost: unknown"),
    };
    // A cut file has a gap with an unknown count, so "0 lost, 1 gap" is right and "0 lost in 1 gap" is not.
    let joined = if lost.is_some_and(|lost| lost > 0) { " in" } else { "," };
    let _ = match complete.gaps {
        0 => Ok(()),
        1 => write!(line, "{joined} 1 gap"),
        gaps => write!(line, "{joined} {} gaps", units::grouped(gaps)),
    };
    let files: Vec<String> = complete.truncated_files.iter().map(|f| escape(f.as_bytes()).into_owned()).collect();
    let cpus: Vec<String> = complete.missing_cpus.iter().map(u32::to_string).collect();
    for (what, names) in [("cut", files), ("no file for CPU", cpus)] {
        if !names.is_empty() {
            let _ = write!(line, "   {what}: {}", names.join(", "));
        }
    }
    if complete.verdict != "complete" {
        line += "\nFigures are estimates where events are missing; kmemtrace-check tells where.";
    }
    line + "\n"
}

/// Line that identifies the recording.
fn heading(trace: &TraceMembers<'_>, options: &TableOptions) -> String {
    let mut head = vec![options.title.clone()];
    if let Some(kernel) = trace.kernel {
        let [kernel, arch] = [kernel, trace.arch.unwrap_or_default()].map(|text| escape(text.as_bytes()));
        head.push(format!("Linux {kernel} {arch}"));
    }
    head.push(format!("{} CPUs", count(trace.cpus as u64)));
    let last = moment(trace, trace.last);
    head.push(match trace.keys().unit {
        Unit::Records => format!("numbers {} to {}", count(trace.first), count(trace.last)),
        Unit::Ticks => format!("recorded -, to {last}"),
        Unit::Nanoseconds => format!("recorded {}", last.trim_start_matches('+')),
    });
    if let Some(since_boot) = &trace.since_boot {
        let first = trace.keys().moment(trace.first, 0, 6);
        let first = first.trim_start_matches('+');
        let lost = since_boot.lost_before_first.map_or("an unknown number".into(), units::grouped);
        head.push(format!("since {first} after boot, {lost} lost before"));
    }
    head.join("   ")
}

/// Table of `summary`.
fn summary(head: &Head<'_>, view: &Summary<'_>, options: &TableOptions, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{}\n", heading(&head.trace, options))?;
    let header = ["", "allocs", "freed", "inferred", "live", "requested", "allocated", "wasted", ""];
    let cells = |TotalRow { kind, stats }: TotalRow| {
        vec![
            kind.to_owned(),
            count(stats.allocs),
            count(stats.frees),
            count(stats.inferred_frees),
            upper(stats.live_is_upper_bound, count(stats.live_objects)),
            bytes(stats.requested, options),
            bytes(stats.allocated, options),
            bytes(stats.wasted, options),
            percent(stats.wasted, stats.allocated),
        ]
    };
    Grid { header: &header, left: &[0] }.write(|| view.rows.iter().map(cells), out)?;
    out.write_all(totals(&head.trace, view, options).as_bytes())?;
    if let Some(top_sites) = view.top_sites.as_ref().filter(|rows| !rows.is_empty()) {
        writeln!(out, "\n  top call-sites by bytes wasted   (kmemtrace-report sites, caches, live, mismatch, cross)")?;
        figure_rows("CALL SITE", || top_sites.iter().map(|row| site_cells(row, options)), out)?;
    }
    Ok(())
}

/// Lines of `summary` under its table.
fn totals(trace: &TraceMembers<'_>, view: &Summary<'_>, options: &TableOptions) -> String {
    let (total, pairs, findings) = (&view.total.stats, &view.pairs, &view.findings);
    let mut out = "\n".to_owned();
    let mut line = |what: &str, value: String| {
        let _ = writeln!(out, "  {what:<21}{value}");
    };
    let live = upper(total.live_is_upper_bound, bytes(total.live_allocated, options));
    line("still live at end", format!("{live} in {} objects (pages not counted)", count(total.live_objects)));
    let peak = bytes(total.peak_live_allocated, options);
    line("peak", format!("{peak} at {}", moment(trace, view.total.peak_at)));
    let crossed = percent(pairs.cross_cpu, pairs.paired);
    let (cross_cpu, paired, cross_node) = (count(pairs.cross_cpu), count(pairs.paired), count(pairs.cross_node));
    line("freed on other CPU", format!("{crossed}  ({cross_cpu} of {paired} pairs)   other node: {cross_node}"));
    let inferred = count(findings.inferred_free.count);
    line("frees inferred", format!("{inferred}  the address came back without a free event (bulk and RCU frees)"));
    line(
        "frees not paired",
        format!(
            "{}  older than the recording; {} after another free; {} of NULL",
            count(findings.free_without_alloc.count),
            count(findings.free_after_free.count),
            count(findings.null_free.count)
        ),
    );
    line(
        "mismatches",
        format!(
            "{} kind, {} cache, {} legal kfree of cache objects, {} short, {} failed allocations",
            count(findings.kind_mismatch.count),
            count(findings.cache_mismatch.count),
            count(findings.kind_mismatch_legal.count),
            count(findings.short_alloc.count),
            count(findings.failed_alloc.count)
        ),
    );
    if let Some((what, value)) = own(view, options) {
        line(what, value);
    }
    out
}

/// Line on the recorder's own allocations, if any.
fn own(view: &Summary<'_>, options: &TableOptions) -> Option<(&'static str, String)> {
    let own = view.own.as_ref().filter(|own| own.allocs > 0)?;
    let allocated = bytes(own.allocated, options);
    let before = if options.is_filtered { ", before filters" } else { "" };
    let of = format!("{} allocations ({allocated}) of the recorder itself{before}", units::grouped(own.allocs));
    Some(match (options.shows_own, options.is_filtered) {
        (true, false) => ("counted above", of),
        (true, true) => ("not left out", of),
        (false, _) => ("left out", of + " (--own shows them)"),
    })
}

/// Marks an upper bound: some objects are freed on a path without events.
fn upper(is_upper_bound: bool, figure: String) -> String {
    if is_upper_bound { format!("<={figure}") } else { figure }
}

/// Table of `sites`.
fn sites<'a>(
    listing: &Listing<'a, SiteRow<'a>, PrintedStats>,
    options: &TableOptions,
    out: &mut dyn Write,
) -> io::Result<()> {
    let others = || other_figures(listing.others.as_ref(), options);
    figure_rows("CALL SITE", || listing.rows.iter().map(|row| site_cells(row, options)).chain(others()), out)
}

fn site_cells(row: SiteRow<'_>, options: &TableOptions) -> Vec<String> {
    figures(&row.stats, row.kind.name(), site(&row.site), options)
}

/// Table of `caches`.
fn caches<'a>(
    listing: &Listing<'a, CacheRow<'a>, PrintedStats>,
    options: &TableOptions,
    out: &mut dyn Write,
) -> io::Result<()> {
    let cells = |row: CacheRow<'_>| {
        let name = shown(&row.cache).unwrap_or("(no name)".to_owned());
        figures(&row.stats, row.kind.name(), name, options)
    };
    let others = || other_figures(listing.others.as_ref(), options);
    figure_rows("CACHE", || listing.rows.iter().map(cells).chain(others()), out)
}

fn figure_rows<I: Iterator<Item = Vec<String>>>(
    what: &str,
    rows: impl Fn() -> I,
    out: &mut dyn Write,
) -> io::Result<()> {
    let header = ["WASTED", "WASTE%", "LIVE", "PEAK", "TOTAL", "ALLOCS", "FREED", "XCPU", "KIND", what];
    Grid { header: &header, left: &[8, 9] }.write(rows, out)
}

fn other_figures(others: Option<&Others<PrintedStats>>, options: &TableOptions) -> Option<Vec<String>> {
    let Others { others, others_count } = others?;
    Some(figures(others, "-", format!("({} others)", count(*others_count as u64)), options))
}

/// Cells of a row of figures.
fn figures(stats: &PrintedStats, kind: &str, name: String, options: &TableOptions) -> Vec<String> {
    vec![
        bytes(stats.wasted, options),
        percent(stats.wasted, stats.allocated),
        upper(stats.live_is_upper_bound, bytes(stats.live_allocated, options)),
        bytes(stats.peak_live_allocated, options),
        bytes(stats.allocated, options),
        count(stats.allocs),
        count(stats.frees),
        percent(stats.cross_cpu, stats.frees),
        kind.to_owned(),
        name,
    ]
}

/// Table of `mismatch`.
fn mismatch<'a>(
    head: &Head<'_>,
    listing: &Listing<'a, MismatchRow<'a>, OtherFindings>,
    options: &TableOptions,
    out: &mut dyn Write,
) -> io::Result<()> {
    let cells = |row: MismatchRow<'_>| {
        let mut first = moment(&head.trace, row.first.at);
        if options.show_addresses {
            let _ = write!(first, " {}", row.first.address);
        }
        vec![
            count(row.count),
            count(row.suspect),
            row.class.name().to_owned(),
            row.kind.name().to_owned(),
            first,
            count(u64::from(row.first.cpu)),
            function(&row.alloc_symbol, row.alloc_site),
            function(&row.free_symbol, row.free_site),
        ]
    };
    let header = ["COUNT", "SUSPECT", "CLASS", "KIND", "FIRST", "CPU", "ALLOCATED", "FREED"];
    Grid { header: &header, left: &[2, 3, 6, 7] }.write(|| listing.rows.iter().map(cells), out)?;
    others_line(listing.others.as_ref(), out)?;
    writeln!(
        out,
        "\ninferred_free and free_after_free are mostly frees and allocations on paths without events (bulk, RCU);"
    )?;
    writeln!(out, "suspect: events were lost in between, or the clocks of CPUs differ, which may be the cause.")
}

fn others_line<O>(others: Option<&Others<O>>, out: &mut dyn Write) -> io::Result<()> {
    match others {
        Some(others) => writeln!(out, "({} more rows: --top N)", count(others.others_count as u64)),
        None => Ok(()),
    }
}

/// Table of `live`.
fn live<'a>(
    head: &Head<'_>,
    listing: &Listing<'a, LiveRow<'a>, OtherObjects>,
    options: &TableOptions,
    out: &mut dyn Write,
) -> io::Result<()> {
    let cells = |row: LiveRow<'_>| {
        vec![
            moment(&head.trace, row.at),
            bytes(row.allocated, options),
            bytes(row.requested, options),
            count(u64::from(row.cpu)),
            row.pid.map_or("-".to_owned(), |pid| pid.to_string()),
            text(&row.comm),
            row.kind.name().to_owned(),
            text(&row.cache),
            upper(row.live_is_upper_bound, site(&row.site)),
            if options.show_addresses { row.address.to_string() } else { String::new() },
        ]
    };
    let header = ["SINCE", "ALLOCATED", "REQUESTED", "CPU", "PID", "COMM", "KIND", "CACHE", "CALL SITE", ""];
    Grid { header: &header, left: &[5, 6, 7, 8, 9] }.write(|| listing.rows.iter().map(cells), out)?;
    others_line(listing.others.as_ref(), out)?;
    writeln!(out, "\n<= marks call-sites whose objects are also freed on paths without events: they may be gone.")
}

/// Table of `cross`.
fn cross(view: &Cross<'_>, options: &TableOptions, out: &mut dyn Write) -> io::Result<()> {
    match &view.matrix {
        Some(pairs) => matrix(pairs, out)?,
        None => {
            writeln!(out, "Which CPU freed what another allocated is not known: the clock puts events in no order.")?;
        }
    }
    writeln!(out)?;
    let cells = |row: CrossRow<'_>| {
        vec![
            count(row.cross_cpu),
            count(row.frees),
            percent(row.cross_cpu, row.frees),
            bytes(row.cross_cpu_bytes, options),
            row.kind.name().to_owned(),
            site(&row.site),
        ]
    };
    let header = ["CROSS", "OF FREES", "XCPU", "BYTES", "KIND", "CALL SITE"];
    Grid { header: &header, left: &[4, 5] }.write(|| view.listing.rows.iter().map(cells), out)?;
    others_line(view.listing.others.as_ref(), out)
}

fn matrix(pairs: &CpuMatrix<'_>, out: &mut dyn Write) -> io::Result<()> {
    let is_whole = pairs.cpus.len() <= MAX_MATRIX_CPUS;
    let (cpus, fewer) = if is_whole { (pairs.cpus.to_vec(), 0) } else { pairs.busiest(MAX_MATRIX_CPUS) };
    let names: Vec<String> = cpus.iter().map(|cpu| format!("cpu{cpu}")).collect();
    let header: Vec<&str> = std::iter::once("allocated \\ freed").chain(names.iter().map(String::as_str)).collect();
    let row = |(&cpu, name): (&u32, &String)| {
        let cells = pairs.row(cpu, &cpus).into_iter().map(units::grouped);
        std::iter::once(name.clone()).chain(cells).collect()
    };
    Grid { header: &header, left: &[0] }.write(|| cpus.iter().zip(&names).map(row), out)?;
    let without = (pairs.cpus.len() - cpus.len() - fewer) as u64;
    for (left_out, which) in [(fewer as u64, "with fewer pairs"), (without, "without pairs")] {
        if left_out > 0 {
            writeln!(out, "({} CPUs {which} are left out; --format json has all)", units::grouped(left_out))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    use kmemtrace::documents::document::CompletenessMembers;
    use kmemtrace::documents::row::Rows;
    use kmemtrace::{Kind, documents};
    use kmemtrace_abi::clock::OrderKey;

    const STATS: PrintedStats = PrintedStats {
        allocs: 2,
        failed_allocs: 0,
        requested: 2048,
        allocated: 4096,
        wasted: 2048,
        frees: 1,
        inferred_frees: 0,
        cross_cpu: Some(1),
        live_objects: 1,
        live_requested: 5,
        live_allocated: 1024,
        live_wasted: 0,
        peak_live_allocated: None,
        live_is_upper_bound: true,
    };

    /// Completeness with this verdict, loss and number of gaps.
    fn completeness(verdict: &'static str, lost: u64, gaps: u64) -> CompletenessMembers<'static> {
        CompletenessMembers {
            verdict,
            lost_events: Some(lost),
            gaps,
            truncated_files: &[],
            missing_cpus: &[],
            inferred_frees: 0,
            frees_without_alloc: 0,
            saturated: false,
        }
    }

    fn printed(completeness: CompletenessMembers<'_>) -> String {
        let trace = TraceMembers {
            input: "kmemtrace",
            source: None,
            kernel: None,
            arch: None,
            endian: None,
            word_bytes: None,
            page_bytes: None,
            addresses: "raw",
            clock: None,
            cpus: 1,
            order: OrderKey::Time,
            first: 0,
            last: 9,
            own_threads: None,
            scope: "system",
            filtered: None,
            since_boot: None,
        };
        let rows = Rows::new(1, |_| {
            let symbol = Some(b"a\x1b\xff+0x1"[..].into());
            let site = CallSite { call_site: Address(0xc0de), symbol, module: None };
            SiteRow { site, kind: Kind::Kmalloc, stats: STATS }
        });
        let others = Some(Others { others: STATS, others_count: 407 });
        let document = Document {
            head: documents::Head { schema: "kmemtrace.sites/1".to_owned(), completeness, trace },
            body: Body::Sites(Listing { rows, others }),
        };
        let options = TableOptions {
            bytes: false,
            show_addresses: false,
            shows_own: false,
            is_filtered: false,
            title: String::new(),
        };
        let mut out = Vec::new();
        table(&document, &options, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn the_verdict_comes_first_and_bounds_are_marked() {
        let text = printed(CompletenessMembers { missing_cpus: &[2], ..completeness("lossy", 1204, 3) });
        assert!(text.starts_with("LOSSY   1,204 lost in 3 gaps   no file for CPU: 2\n"), "{text}");
        assert!(text.contains("<=1.00 KiB"), "{text}");
        let others = text.lines().find(|line| line.contains("(407 others)")).expect("an others row");
        assert!(others.contains(" - "), "peaks do not add up: {others}");
        assert!(text.contains(r" a\x1b\xff+0x1"), "a name is escaped once: {text}");
        let files = ["cpu2.out\u{1b}".to_owned()];
        let cut = printed(CompletenessMembers { truncated_files: &files, ..completeness("truncated", 0, 1) });
        assert!(cut.starts_with("TRUNCATED   0 lost, 1 gap   cut: cpu2.out\\x1b\n"), "{cut}");
    }

    #[test]
    fn a_machine_of_thousands_of_cpus_shows_those_that_have_pairs() {
        let all: Vec<u32> = (0..8192).collect();
        let printed = |cpus: &[u32], pairs: &[((u32, u32), u64)]| {
            let mut out = Vec::new();
            matrix(&CpuMatrix::new(cpus, pairs.iter().copied()), &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        let few = printed(&all, &[((5, 8000), 1234), ((5, 5), 1)]);
        let want = " allocated \\ freed  cpu5  cpu8000\n cpu5                  1    1,234\n cpu8000               0        0\n";
        assert_eq!(few, format!("{want}(8,190 CPUs without pairs are left out; --format json has all)\n"));
        let most: Vec<_> = (0..300).map(|cpu| ((cpu, cpu), u64::from(cpu) + 1)).collect();
        let most = printed(&all, &most);
        assert_eq!(most.lines().count(), 1 + MAX_MATRIX_CPUS + 2);
        assert!(most.contains("\n cpu44 ") && !most.contains("\n cpu43 "), "those with fewest pairs are left out");
        assert!(most.contains("\n(44 CPUs with fewer pairs are left out") && most.contains("\n(7,892 CPUs without"));
        assert_eq!(printed(&all[..MAX_MATRIX_CPUS], &[]).lines().count(), 1 + MAX_MATRIX_CPUS);
    }
}
