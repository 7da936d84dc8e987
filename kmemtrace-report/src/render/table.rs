//! Tables for people: the verdict first, bytes before ratios, sums that add up.

use std::fmt::Write;

use comfy_table::{CellAlignment, Table, presets};
use kmemtrace_abi::clock::{Clock, Unit};
use kmemtrace_abi::trace::OrderKey;
use serde_json::Value;

use super::units;

/// How a table looks.
pub(crate) struct TableOptions {
    /// Bytes as exact numbers.
    pub(crate) bytes: bool,
    /// Print the addresses of objects.
    pub(crate) show_addresses: bool,
    /// What was opened.
    pub(crate) title: String,
}

/// The text of a view. Strings in the document must be escaped already.
pub(crate) fn table(view: &str, document: &Value, options: &TableOptions) -> String {
    let mut text = verdict(document);
    match view {
        "summary" => summary(document, options, &mut text),
        "mismatch" => mismatch(document, options, &mut text),
        "live" => live(document, options, &mut text),
        "cross" => cross(document, options, &mut text),
        _ => rows(document, "rows", options, &mut text),
    }
    text
}

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

fn site(row: &Value, address: &str, symbol: &str) -> String {
    let name = row[symbol].as_str().or(row[address].as_str()).unwrap_or("-");
    match row["module"].as_str() {
        Some(module) => format!("{name} [{module}]"),
        None => name.to_owned(),
    }
}

/// The order keys of the trace.
fn keys(document: &Value) -> Clock {
    let trace = &document["trace"];
    let order = if trace["order"] == "sequence" { OrderKey::Sequence } else { OrderKey::Time };
    Clock::of(order, trace["clock"].as_str())
}

/// Time since the trace began; sequence numbers as they are.
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
    // What is missing behind a cut is a gap that nobody has counted.
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

fn new_table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(header.to_vec());
    table
}

/// Columns are numbers but for those named.
fn finish(mut table: Table, left: &[usize], out: &mut String) {
    for index in 0..table.column_count() {
        if let Some(column) = table.column_mut(index).filter(|_| !left.contains(&index)) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    for line in table.lines() {
        let _ = writeln!(out, "{}", line.trim_end());
    }
}

/// The line that says which recording this is.
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
        let lost = since_boot["lost_before_first"].as_u64().map_or("an unknown number".into(), super::units::grouped);
        head.push(format!("since {first} after boot, {lost} lost before"));
    }
    head.join("   ")
}

fn summary(document: &Value, options: &TableOptions, out: &mut String) {
    let _ = writeln!(out, "{}\n", heading(document, options));
    let mut table = new_table(&["", "allocs", "freed", "inferred", "live", "requested", "allocated", "wasted", ""]);
    for row in super::summary_rows(document) {
        table.add_row([
            text(&row["kind"]).to_owned(),
            count(&row["allocs"]),
            count(&row["frees"]),
            count(&row["inferred_frees"]),
            upper(&row, count(&row["live_objects"])),
            bytes(&row["requested"], options),
            bytes(&row["allocated"], options),
            bytes(&row["wasted"], options),
            percent(&row["wasted"], &row["allocated"]),
        ]);
    }
    finish(table, &[0], out);
    let (total, pairs, findings) = (&document["total"], &document["pairs"], &document["findings"]);
    out.push('\n');
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
    if document["top_sites"].as_array().is_some_and(|rows| !rows.is_empty()) {
        let _ = writeln!(
            out,
            "\n  top call-sites by bytes wasted   (kmemtrace-report sites, caches, live, mismatch, cross)"
        );
        rows(document, "top_sites", options, out);
    }
}

/// Marks what may be too much: objects are freed on a path without events.
fn upper(row: &Value, figure: String) -> String {
    if row["live_is_upper_bound"] == true { format!("<={figure}") } else { figure }
}

fn rows(document: &Value, member: &str, options: &TableOptions, out: &mut String) {
    let caches = document["schema"] == "kmemtrace.caches/1";
    let what = if caches { "CACHE" } else { "CALL SITE" };
    let mut table = new_table(&["WASTED", "WASTE%", "LIVE", "PEAK", "TOTAL", "ALLOCS", "FREED", "XCPU", "KIND", what]);
    let mut add = |row: &Value, name: String| {
        table.add_row([
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
        ]);
    };
    for row in document[member].as_array().into_iter().flatten() {
        let name = if caches {
            row["cache"].as_str().unwrap_or("(no name)").to_owned()
        } else {
            site(row, "call_site", "symbol")
        };
        add(row, name);
    }
    if document["others"].is_object() {
        add(&document["others"], format!("({} others)", count(&document["others_count"])));
    }
    finish(table, &[8, 9], out);
}

fn mismatch(document: &Value, options: &TableOptions, out: &mut String) {
    let mut table = new_table(&["COUNT", "SUSPECT", "CLASS", "KIND", "FIRST", "CPU", "ALLOCATED", "FREED"]);
    for row in document["rows"].as_array().into_iter().flatten() {
        let mut first = moment(document, &row["first"]["at"]);
        if options.show_addresses {
            let _ = write!(first, " {}", text(&row["first"]["address"]));
        }
        table.add_row([
            count(&row["count"]),
            count(&row["suspect"]),
            text(&row["class"]).to_owned(),
            text(&row["kind"]).to_owned(),
            first,
            count(&row["first"]["cpu"]),
            site(row, "alloc_site", "alloc_symbol"),
            site(row, "free_site", "free_symbol"),
        ]);
    }
    finish(table, &[2, 3, 6, 7], out);
    others_line(document, out);
    let _ = writeln!(
        out,
        "\ninferred_free and free_after_free are mostly frees and allocations on paths without events (bulk, RCU);"
    );
    let _ =
        writeln!(out, "suspect: events were lost in between, or the clocks of CPUs differ, which may be the cause.");
}

fn others_line(document: &Value, out: &mut String) {
    if document["others"].is_object() {
        let _ = writeln!(out, "({} more rows: --top N)", count(&document["others_count"]));
    }
}

fn live(document: &Value, options: &TableOptions, out: &mut String) {
    let mut table =
        new_table(&["SINCE", "ALLOCATED", "REQUESTED", "CPU", "PID", "COMM", "KIND", "CACHE", "CALL SITE", ""]);
    for row in document["rows"].as_array().into_iter().flatten() {
        table.add_row([
            moment(document, &row["at"]),
            bytes(&row["allocated"], options),
            bytes(&row["requested"], options),
            count(&row["cpu"]),
            row["pid"].as_i64().map_or("-".to_owned(), |pid| pid.to_string()),
            text(&row["comm"]).to_owned(),
            text(&row["kind"]).to_owned(),
            text(&row["cache"]).to_owned(),
            upper(row, site(row, "call_site", "symbol")),
            if options.show_addresses { text(&row["address"]).to_owned() } else { String::new() },
        ]);
    }
    finish(table, &[5, 6, 7, 8, 9], out);
    others_line(document, out);
    let _ =
        writeln!(out, "\n<= marks call-sites whose objects are also freed on paths without events: they may be gone.");
}

fn cross(document: &Value, options: &TableOptions, out: &mut String) {
    let cpus: Vec<String> = document["cpus"].as_array().into_iter().flatten().map(|c| format!("cpu{c}")).collect();
    let mut header = vec!["allocated \\ freed"];
    header.extend(cpus.iter().map(String::as_str));
    let mut matrix = new_table(&header);
    for (cpu, pairs) in cpus.iter().zip(document["matrix"].as_array().into_iter().flatten()) {
        let cells = pairs.as_array().into_iter().flatten().map(count);
        matrix.add_row(std::iter::once(cpu.clone()).chain(cells).collect::<Vec<_>>());
    }
    if document["matrix"].is_array() {
        finish(matrix, &[0], out);
    } else {
        let _ =
            writeln!(out, "Which CPU freed what another allocated is not known: the clock puts events in no order.");
    }
    out.push('\n');
    let mut table = new_table(&["CROSS", "OF FREES", "XCPU", "BYTES", "KIND", "CALL SITE"]);
    for row in document["rows"].as_array().into_iter().flatten() {
        table.add_row([
            count(&row["cross_cpu"]),
            count(&row["frees"]),
            percent(&row["cross_cpu"], &row["frees"]),
            bytes(&row["cross_cpu_bytes"], options),
            text(&row["kind"]).to_owned(),
            site(row, "call_site", "symbol"),
        ]);
    }
    finish(table, &[4, 5], out);
    others_line(document, out);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn sites() -> Value {
        let row = |site: &str, live: u64, bound: bool| {
            json!({"call_site": site, "symbol": null, "module": null, "kind": "kmalloc", "wasted": 2048, "allocated": 4096,
                "live_allocated": live, "peak_live_allocated": 4096, "allocs": 2, "frees": 1, "cross_cpu": 1,
                "live_is_upper_bound": bound})
        };
        let mut others = row("", 5, false);
        others["peak_live_allocated"] = Value::Null;
        json!({"schema": "kmemtrace.sites/1",
            "completeness": {"verdict": "lossy", "lost_events": 1204, "gaps": 3, "truncated_files": [], "missing_cpus": [2]},
            "trace": {"order": "time", "first": 0, "last": 9}, "rows": [row("0xc0de", 1024, true)],
            "others": others, "others_count": 407})
    }

    #[test]
    fn the_verdict_comes_first_and_bounds_are_marked() {
        let options = TableOptions { bytes: false, show_addresses: false, title: String::new() };
        let text = table("sites", &sites(), &options);
        assert!(text.starts_with("LOSSY   1,204 lost in 3 gaps   no file for CPU: 2\n"), "{text}");
        assert!(text.contains("<=1.00 KiB"), "{text}");
        let mut cut = sites();
        cut["completeness"] =
            json!({"verdict": "truncated", "lost_events": 0, "gaps": 1, "truncated_files": ["cpu2.out"]});
        let cut = table("sites", &cut, &options);
        assert!(cut.starts_with("TRUNCATED   0 lost, 1 gap   cut: cpu2.out\n"), "{cut}");
        let others = text.lines().find(|line| line.contains("(407 others)")).expect("an others row");
        assert!(others.contains(" - "), "peaks do not add up: {others}");
        assert!(!text.contains('\x1b'));
    }
}
