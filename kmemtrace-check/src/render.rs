//! Findings as a table, JSON or CSV.

use std::io::{self, Write};

use comfy_table::{CellAlignment, Table, presets};
use kmemtrace_abi::escape::escape;
use kmemtrace_abi::fault::{Code, Verdict};
use kmemtrace_abi::trace::{FileFacts, Source};
use serde_json::{Value, json};

use crate::checks::{Checked, is_recording};

/// A file's verdict as `kmemtrace-check` names it.
fn verdict(facts: &FileFacts) -> &'static str {
    match facts.verdict {
        Verdict::Complete => "ok",
        Verdict::Lossy => "lossy",
        Verdict::Truncated => "truncated",
        Verdict::Corrupt => "corrupt",
    }
}

fn files(all: &[Checked]) -> impl Iterator<Item = &FileFacts> {
    all.iter().flat_map(|checked| &checked.files)
}

fn count(all: &[Checked], of: Verdict) -> usize {
    files(all).filter(|f| f.verdict == of).count()
}

fn version(facts: &FileFacts) -> Option<String> {
    facts.version.map(|(major, minor)| format!("{major}.{minor}"))
}

fn source(facts: &FileFacts) -> Option<&'static str> {
    facts.source.map(|s| match s {
        Source::Tracefs => "tracefs",
        Source::Relay => "relay",
    })
}

/// `kmemtrace.check/1` of the contract.
pub(crate) fn json(all: &[Checked]) -> Value {
    let finding = |f: &kmemtrace_abi::fault::Fault| {
        json!({
            "code": f.code.to_string(), "severity": f.code.severity().name(),
            "offset": f.offset, "block": f.block, "message": f.message,
        })
    };
    let rows: Vec<Value> = files(all)
        .map(|f| {
            json!({
                "path": f.path.to_string_lossy(), "cpu": f.cpu, "verdict": verdict(f), "format_version": version(f),
                "source": source(f), "events": f.events, "blocks": f.blocks, "first": f.first, "last": f.last,
                "lost_events": f.lost, "gaps": f.gaps,
                "findings": f.faults.iter().map(finding).collect::<Vec<_>>(),
            })
        })
        .collect();
    json!({
        "schema": "kmemtrace.check/1",
        "files": rows,
        "ok": count(all, Verdict::Complete),
        "lossy": count(all, Verdict::Lossy),
        "truncated": count(all, Verdict::Truncated),
        "corrupt": count(all, Verdict::Corrupt),
        "findings": all.iter().flat_map(|c| &c.findings).map(finding).collect::<Vec<_>>(),
    })
}

/// One row a file, exact numbers, with `separator` between the cells.
pub(crate) fn rows(all: &[Checked], separator: char, out: &mut dyn Write) -> io::Result<()> {
    let line = |cells: &[String]| cells.join(&separator.to_string());
    let names = ["path", "cpu", "verdict", "events", "blocks", "first", "last", "lost_events", "gaps"];
    writeln!(out, "{}", line(&names.map(str::to_owned)))?;
    let number = |n: Option<u64>| n.map_or(String::new(), |n| n.to_string());
    for f in files(all) {
        let path = escape(f.path.to_string_lossy().as_bytes()).replace([separator, '"'], "_");
        let cpu = number(f.cpu.map(u64::from));
        let (events, blocks) = (f.events.to_string(), f.blocks.to_string());
        let (first, last, lost) = (number(f.first), number(f.last), number(f.lost));
        writeln!(
            out,
            "{}",
            line(&[path, cpu, verdict(f).to_owned(), events, blocks, first, last, lost, f.gaps.to_string()])
        )?;
    }
    Ok(())
}

/// Seconds with milliseconds since `start`; sequence numbers as they are.
fn key(at: Option<u64>, start: u64, sequence: bool) -> String {
    match at {
        None => "-".to_owned(),
        Some(at) if sequence => at.to_string(),
        Some(at) => {
            let ms = at.saturating_sub(start) / 1_000_000;
            format!("+{}.{:03} s", ms / 1000, ms % 1000)
        }
    }
}

/// For people: a row a file, then the findings, at most `limit` a file, then the counts.
pub(crate) fn table(all: &[Checked], limit: usize, out: &mut dyn Write) -> io::Result<()> {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["FILE", "EVENTS", "BLOCKS", "FIRST", "LAST", "LOST", "GAPS", "VERDICT"]);
    for checked in all {
        let start = checked.files.iter().filter_map(|f| f.first).min().unwrap_or(0);
        for f in &checked.files {
            table.add_row([
                name(f),
                f.events.to_string(),
                f.blocks.to_string(),
                key(f.first, start, checked.sequence),
                key(f.last, start, checked.sequence),
                f.lost.map_or("-".to_owned(), |n| n.to_string()),
                f.gaps.to_string(),
                verdict(f).to_owned(),
            ]);
        }
    }
    for column in 1..7 {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    for line in table.lines() {
        writeln!(out, "{}", line.trim_end())?;
    }
    writeln!(out)?;
    let mut codes: Vec<Code> = Vec::new();
    for f in files(all) {
        for fault in f.faults.iter().take(limit) {
            writeln!(out, "{}  {}  {}", name(f), fault.code, escape(fault.message.as_bytes()))?;
            if fault.code == Code::NoEnd && is_recording(&f.path) {
                writeln!(out, "{}        it is still being recorded", " ".repeat(name(f).len()))?;
            }
        }
        let more = f.faults.len().saturating_sub(limit) as u64 + f.faults_left_out;
        if more > 0 {
            writeln!(out, "{}  and {more} more findings (--limit)", name(f))?;
        }
        codes.extend(f.faults.iter().map(|fault| fault.code));
    }
    for fault in all.iter().flat_map(|c| &c.findings) {
        writeln!(out, "{}  {}", fault.code, fault.message)?;
    }
    codes.sort_unstable();
    codes.dedup();
    for code in codes {
        writeln!(out, "{code}: {}; kmemtrace-check --explain {code} tells what to do", code.title())?;
    }
    let [ok, lossy, truncated, corrupt] =
        [Verdict::Complete, Verdict::Lossy, Verdict::Truncated, Verdict::Corrupt].map(|v| count(all, v));
    writeln!(out, "{ok} ok   {lossy} lossy   {truncated} truncated   {corrupt} corrupt")
}

fn name(facts: &FileFacts) -> String {
    let name = facts.path.file_name().unwrap_or(facts.path.as_os_str());
    escape(name.to_string_lossy().as_bytes()).into_owned()
}
