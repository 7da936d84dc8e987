//! Tables for people: the verdict first, bytes before ratios, sums that add up.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::ops::Index;

use kmemtrace_abi::clock::OrderKey;
use kmemtrace_abi::clock::{Clock, Unit};
use kmemtrace_abi::text::escape::escape;
use serde_json::{Value, json};

use super::grid::Grid;
use kmemtrace::documents::row::{Cell, Row, Rows};
use kmemtrace::documents::{CpuMatrix, Document};
use kmemtrace_abi::text::units;

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

/// Renderer of a view's table; takes the document's members, escaped for a terminal, and the document.
pub(crate) type Table = fn(&Value, &Document<'_>, &TableOptions, &mut dyn Write) -> io::Result<()>;

/// Writes the verdict, then the view's table.
pub(crate) fn table(
    view: Table,
    document: &Document<'_>,
    options: &TableOptions,
    out: &mut dyn Write,
) -> io::Result<()> {
    let head = escaped(&Value::Object(document.members.clone()));
    out.write_all(verdict(&head).as_bytes())?;
    view(&head, document, options, out)
}

/// Value with every string escaped for a terminal.
fn escaped(value: &Value) -> Value {
    match value {
        Value::String(text) => Value::String(escape(text.as_bytes()).into_owned()),
        Value::Array(values) => values.iter().map(escaped).collect(),
        Value::Object(members) => members.iter().map(|(name, value)| (name.clone(), escaped(value))).collect(),
        other => other.clone(),
    }
}

/// Row with every name escaped for a terminal.
struct Shown(Vec<(&'static str, Value)>);

fn shown(row: &Row<'_>) -> Shown {
    let value = |cell: &Cell<'_>| match cell {
        Cell::Name(name) => Value::String(escape(name).into_owned()),
        other => json!(other),
    };
    Shown(row.cells().map(|(member, cell)| (*member, value(cell))).collect())
}

impl Index<&'static str> for Shown {
    type Output = Value;

    fn index(&self, name: &'static str) -> &Value {
        self.0.iter().find(|(member, _)| *member == name).map_or(&Value::Null, |(_, value)| value)
    }
}

/// Members by name, of a row or of the sum of the rows left out.
trait Members: Index<&'static str, Output = Value> {}
impl Members for Shown {}
impl Members for Value {}

fn number(value: &Value) -> Option<u64> {
    value.as_u64()
}

fn count(value: &Value) -> String {
    number(value).map_or("-".to_owned(), units::grouped)
}

fn bytes(value: &Value, options: &TableOptions) -> String {
    match number(value) {
        None => "-".to_owned(),
        Some(n) if options.bytes => n.to_string(),
        Some(n) => units::bytes(n),
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("-")
}

fn percent(part: &Value, whole: &Value) -> String {
    number(part).zip(number(whole)).map_or("-".to_owned(), |(part, whole)| units::percent(part, whole))
}

fn site(row: &Shown, address: &'static str, symbol: &'static str) -> String {
    let name = row[symbol].as_str().or(row[address].as_str()).unwrap_or("-");
    match row["module"].as_str() {
        Some(module) => format!("{name} [{module}]"),
        None => name.to_owned(),
    }
}

/// Clock of the trace's order keys.
fn keys(document: &Value) -> Clock {
    let trace = &document["trace"];
    let order = if trace["order"] == "sequence" { OrderKey::Sequence } else { OrderKey::Time };
    Clock::of(order, trace["clock"].as_str())
}

/// Time since the trace's first event; a sequence number as it is.
fn moment(document: &Value, at: &Value) -> String {
    let first = number(&document["trace"]["first"]).unwrap_or(0);
    number(at).map_or("-".to_owned(), |at| keys(document).moment(at, first, 6))
}

fn verdict(document: &Value) -> String {
    let complete = &document["completeness"];
    let mut line = text(&complete["verdict"]).to_uppercase();
    if let Some(events) = number(&document["events"]["total"]) {
        let _ = write!(line, "   {} events", units::grouped(events));
    }
    let lost = number(&complete["lost_events"]);
    let _ = match lost {
        Some(lost) => write!(line, "   {} lost", units::grouped(lost)),
        None => write!(line, "   lost: unknown"),
    };
    // A cut file has a gap with an unknown count, so "0 lost, 1 gap" is right and "0 lost in 1 gap" is not.
    let joined = if lost.is_some_and(|lost| lost > 0) { " in" } else { "," };
    let _ = match number(&complete["gaps"]).unwrap_or(0) {
        0 => Ok(()),
        1 => write!(line, "{joined} 1 gap"),
        gaps => write!(line, "{joined} {} gaps", units::grouped(gaps)),
    };
    let list = |value: &Value| -> Vec<String> {
        let all = value.as_array().into_iter().flatten();
        all.map(|v| v.as_str().map_or(v.to_string(), str::to_owned)).collect()
    };
    for (what, member) in [("cut", "truncated_files"), ("no file for CPU", "missing_cpus")] {
        let names = list(&complete[member]);
        if !names.is_empty() {
            let _ = write!(line, "   {what}: {}", names.join(", "));
        }
    }
    if complete["verdict"] != "complete" {
        line += "\nFigures are estimates where events are missing; kmemtrace-check tells where.";
    }
    line + "\n"
}

/// Line that identifies the recording.
fn heading(document: &Value, options: &TableOptions) -> String {
    let trace = &document["trace"];
    let mut head = vec![options.title.clone()];
    if let Some(kernel) = trace["kernel"].as_str() {
        head.push(format!("Linux {kernel} {}", trace["arch"].as_str().unwrap_or_default()));
    }
    head.push(format!("{} CPUs", count(&trace["cpus"])));
    let last = moment(document, &trace["last"]);
    head.push(match keys(document).unit {
        Unit::Records => format!("numbers {} to {}", count(&trace["first"]), count(&trace["last"])),
        Unit::Ticks => format!("recorded -, to {last}"),
        Unit::Nanoseconds => format!("recorded {}", last.trim_start_matches('+')),
    });
    if let Some(since_boot) = trace.get("since_boot") {
        let first = keys(document).moment(number(&trace["first"]).unwrap_or(0), 0, 6);
        let first = first.trim_start_matches('+');
        let lost = since_boot["lost_before_first"].as_u64().map_or("an unknown number".into(), units::grouped);
        head.push(format!("since {first} after boot, {lost} lost before"));
    }
    head.join("   ")
}

/// Table of `summary`.
pub(crate) fn summary(
    document: &Value,
    view: &Document<'_>,
    options: &TableOptions,
    out: &mut dyn Write,
) -> io::Result<()> {
    writeln!(out, "{}\n", heading(document, options))?;
    let header = ["", "allocs", "freed", "inferred", "live", "requested", "allocated", "wasted", ""];
    let cells = |row: &Shown| {
        vec![
            text(&row["kind"]).to_owned(),
            count(&row["allocs"]),
            count(&row["frees"]),
            count(&row["inferred_frees"]),
            upper(row, count(&row["live_objects"])),
            bytes(&row["requested"], options),
            bytes(&row["allocated"], options),
            bytes(&row["wasted"], options),
            percent(&row["wasted"], &row["allocated"]),
        ]
    };
    let grid = Grid { header: &header, left: &[0] };
    grid.write(|| view.rows.iter().map(|row| cells(&shown(&row))), out)?;
    out.write_all(totals(document, options).as_bytes())?;
    if !view.top_sites.is_empty() {
        writeln!(out, "\n  top call-sites by bytes wasted   (kmemtrace-report sites, caches, live, mismatch, cross)")?;
        figure_rows(document, &view.top_sites, options, out)?;
    }
    Ok(())
}

/// Lines of `summary` under its table.
fn totals(document: &Value, options: &TableOptions) -> String {
    let (total, pairs, findings) = (&document["total"], &document["pairs"], &document["findings"]);
    let mut out = "\n".to_owned();
    let mut line = |what: &str, value: String| {
        let _ = writeln!(out, "  {what:<21}{value}");
    };
    let live = upper(total, bytes(&total["live_allocated"], options));
    line("still live at end", format!("{live} in {} objects (pages not counted)", count(&total["live_objects"])));
    line(
        "peak",
        format!("{} at {}", bytes(&total["peak_live_allocated"], options), moment(document, &total["peak_at"])),
    );
    let crossed = percent(&pairs["cross_cpu"], &pairs["paired"]);
    line(
        "freed on other CPU",
        format!(
            "{crossed}  ({} of {} pairs)   other node: {}",
            count(&pairs["cross_cpu"]),
            count(&pairs["paired"]),
            count(&pairs["cross_node"])
        ),
    );
    let found = |class: &str| count(&findings[class]["count"]);
    line(
        "frees inferred",
        format!("{}  the address came back without a free event (bulk and RCU frees)", found("inferred_free")),
    );
    line(
        "frees not paired",
        format!(
            "{}  older than the recording; {} after another free; {} of NULL",
            found("free_without_alloc"),
            found("free_after_free"),
            found("null_free")
        ),
    );
    line(
        "mismatches",
        format!(
            "{} kind, {} cache, {} legal kfree of cache objects, {} short, {} failed allocations",
            found("kind_mismatch"),
            found("cache_mismatch"),
            found("kind_mismatch_legal"),
            found("short_alloc"),
            found("failed_alloc")
        ),
    );
    if let Some((what, value)) = own(document, options) {
        line(what, value);
    }
    out
}

/// Line on the recorder's own allocations, if any.
fn own(document: &Value, options: &TableOptions) -> Option<(&'static str, String)> {
    let own = &document["own"];
    let allocs = number(&own["allocs"]).filter(|&allocs| allocs > 0)?;
    let allocated = bytes(&own["allocated"], options);
    let before = if options.is_filtered { ", before filters" } else { "" };
    let of = format!("{} allocations ({allocated}) of the recorder itself{before}", units::grouped(allocs));
    Some(match (options.shows_own, options.is_filtered) {
        (true, false) => ("counted above", of),
        (true, true) => ("not left out", of),
        (false, _) => ("left out", of + " (--own shows them)"),
    })
}

/// Marks an upper bound: some objects are freed on a path without events.
fn upper(row: &impl Members, figure: String) -> String {
    if row["live_is_upper_bound"] == true { format!("<={figure}") } else { figure }
}

/// Table of views with a row per name and kind.
pub(crate) fn rows(
    document: &Value,
    view: &Document<'_>,
    options: &TableOptions,
    out: &mut dyn Write,
) -> io::Result<()> {
    figure_rows(document, &view.rows, options, out)
}

fn figure_rows(document: &Value, rows: &Rows<'_>, options: &TableOptions, out: &mut dyn Write) -> io::Result<()> {
    let caches = document["schema"] == "kmemtrace.caches/1";
    let what = if caches { "CACHE" } else { "CALL SITE" };
    let header = ["WASTED", "WASTE%", "LIVE", "PEAK", "TOTAL", "ALLOCS", "FREED", "XCPU", "KIND", what];
    let name = |row: &Shown| match caches {
        true => row["cache"].as_str().unwrap_or("(no name)").to_owned(),
        false => site(row, "call_site", "symbol"),
    };
    let row = |row: Row<'_>| {
        let row = shown(&row);
        figures(&row, name(&row), options)
    };
    let others = || {
        let others = Some(&document["others"]).filter(|others| others.is_object())?;
        Some(figures(others, format!("({} others)", count(&document["others_count"])), options))
    };
    Grid { header: &header, left: &[8, 9] }.write(|| rows.iter().map(row).chain(others()), out)
}

/// Cells of a row of figures.
fn figures(row: &impl Members, name: String, options: &TableOptions) -> Vec<String> {
    vec![
        bytes(&row["wasted"], options),
        percent(&row["wasted"], &row["allocated"]),
        upper(row, bytes(&row["live_allocated"], options)),
        bytes(&row["peak_live_allocated"], options),
        bytes(&row["allocated"], options),
        count(&row["allocs"]),
        count(&row["frees"]),
        percent(&row["cross_cpu"], &row["frees"]),
        text(&row["kind"]).to_owned(),
        name,
    ]
}

/// Table of `mismatch`.
pub(crate) fn mismatch(
    document: &Value,
    view: &Document<'_>,
    options: &TableOptions,
    out: &mut dyn Write,
) -> io::Result<()> {
    let rows = &view.rows;
    let cells = |row: Row<'_>| {
        let row = shown(&row);
        let mut first = moment(document, &row["first"]["at"]);
        if options.show_addresses {
            let _ = write!(first, " {}", text(&row["first"]["address"]));
        }
        vec![
            count(&row["count"]),
            count(&row["suspect"]),
            text(&row["class"]).to_owned(),
            text(&row["kind"]).to_owned(),
            first,
            count(&row["first"]["cpu"]),
            site(&row, "alloc_site", "alloc_symbol"),
            site(&row, "free_site", "free_symbol"),
        ]
    };
    let header = ["COUNT", "SUSPECT", "CLASS", "KIND", "FIRST", "CPU", "ALLOCATED", "FREED"];
    Grid { header: &header, left: &[2, 3, 6, 7] }.write(|| rows.iter().map(cells), out)?;
    others_line(document, out)?;
    writeln!(
        out,
        "\ninferred_free and free_after_free are mostly frees and allocations on paths without events (bulk, RCU);"
    )?;
    writeln!(out, "suspect: events were lost in between, or the clocks of CPUs differ, which may be the cause.")
}

fn others_line(document: &Value, out: &mut dyn Write) -> io::Result<()> {
    if document["others"].is_object() {
        writeln!(out, "({} more rows: --top N)", count(&document["others_count"]))?;
    }
    Ok(())
}

/// Table of `live`.
pub(crate) fn live(
    document: &Value,
    view: &Document<'_>,
    options: &TableOptions,
    out: &mut dyn Write,
) -> io::Result<()> {
    let rows = &view.rows;
    let cells = |row: Row<'_>| {
        let row = shown(&row);
        vec![
            moment(document, &row["at"]),
            bytes(&row["allocated"], options),
            bytes(&row["requested"], options),
            count(&row["cpu"]),
            row["pid"].as_i64().map_or("-".to_owned(), |pid| pid.to_string()),
            text(&row["comm"]).to_owned(),
            text(&row["kind"]).to_owned(),
            text(&row["cache"]).to_owned(),
            upper(&row, site(&row, "call_site", "symbol")),
            if options.show_addresses { text(&row["address"]).to_owned() } else { String::new() },
        ]
    };
    let header = ["SINCE", "ALLOCATED", "REQUESTED", "CPU", "PID", "COMM", "KIND", "CACHE", "CALL SITE", ""];
    Grid { header: &header, left: &[5, 6, 7, 8, 9] }.write(|| rows.iter().map(cells), out)?;
    others_line(document, out)?;
    writeln!(out, "\n<= marks call-sites whose objects are also freed on paths without events: they may be gone.")
}

/// Table of `cross`.
pub(crate) fn cross(
    document: &Value,
    view: &Document<'_>,
    options: &TableOptions,
    out: &mut dyn Write,
) -> io::Result<()> {
    if let Some(pairs) = &view.matrix {
        matrix(pairs, out)?;
    }
    if view.matrix.is_none() {
        writeln!(out, "Which CPU freed what another allocated is not known: the clock puts events in no order.")?;
    }
    writeln!(out)?;
    let cells = |row: Row<'_>| {
        let row = shown(&row);
        vec![
            count(&row["cross_cpu"]),
            count(&row["frees"]),
            percent(&row["cross_cpu"], &row["frees"]),
            bytes(&row["cross_cpu_bytes"], options),
            text(&row["kind"]).to_owned(),
            site(&row, "call_site", "symbol"),
        ]
    };
    let header = ["CROSS", "OF FREES", "XCPU", "BYTES", "KIND", "CALL SITE"];
    Grid { header: &header, left: &[4, 5] }.write(|| view.rows.iter().map(cells), out)?;
    others_line(document, out)
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
    use serde_json::json;

    fn printed(completeness: Value) -> String {
        let members = json!({"schema": "kmemtrace.sites/1", "completeness": completeness,
            "trace": {"order": "time", "first": 0, "last": 9}, "rows": null,
            "others": {"kind": null, "wasted": 2048, "allocated": 4096, "live_allocated": 5, "peak_live_allocated": null,
                "allocs": 2, "frees": 1, "cross_cpu": 1, "live_is_upper_bound": false}, "others_count": 407});
        let site = Rows::new(1, |_| {
            let mut row = Row::default();
            row.extend([("call_site", Cell::Address(0xc0de)), ("symbol", Cell::name(Some(&b"a\x1b\xff+0x1"[..])))]);
            row.extend([("wasted", Cell::Count(2048)), ("allocated", Cell::Count(4096))]);
            row.extend([("live_allocated", Cell::Count(1024)), ("live_is_upper_bound", Cell::Bool(true))]);
            row
        });
        let options = TableOptions {
            bytes: false,
            show_addresses: false,
            shows_own: false,
            is_filtered: false,
            title: String::new(),
        };
        let mut out = Vec::new();
        table(super::rows, &Document::new(members.as_object().unwrap().clone(), site), &options, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn the_verdict_comes_first_and_bounds_are_marked() {
        let lossy =
            json!({"verdict": "lossy", "lost_events": 1204, "gaps": 3, "truncated_files": [], "missing_cpus": [2]});
        let text = printed(lossy);
        assert!(text.starts_with("LOSSY   1,204 lost in 3 gaps   no file for CPU: 2\n"), "{text}");
        assert!(text.contains("<=1.00 KiB"), "{text}");
        let others = text.lines().find(|line| line.contains("(407 others)")).expect("an others row");
        assert!(others.contains(" - "), "peaks do not add up: {others}");
        assert!(text.contains(r" a\x1b\xff+0x1"), "a name is escaped once: {text}");
        let cut = printed(
            json!({"verdict": "truncated", "lost_events": 0, "gaps": 1, "truncated_files": ["cpu2.out\u{1b}"]}),
        );
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
