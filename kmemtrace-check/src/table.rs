//! Results for people: a row a file, then what was found and what to do, then the count.

use std::fmt::Write;

use kmemtrace_abi::escape::escape;
use kmemtrace_abi::fault::{Code, Verdict};
use kmemtrace_abi::trace::OrderKey;

use crate::advice;
use crate::explain::verdict_name;
use crate::machine::count;
use crate::reading::{CheckedFile, CheckedTrace};

/// How order keys are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keys {
    /// Nanoseconds, as seconds after the trace's first event.
    Since(u64),
    /// Numbers that stand for no time that is known.
    Raw,
}

impl Keys {
    fn of(trace: &CheckedTrace) -> Keys {
        // Of the kernel's clocks only these do not count nanoseconds.
        let is_time = !matches!(trace.info.clock.as_deref(), Some("counter" | "uptime" | "x86-tsc"));
        let first = trace.files.iter().filter_map(|f| f.facts.first).min();
        match first {
            Some(first) if is_time && trace.info.order == OrderKey::Time => Keys::Since(first),
            _ => Keys::Raw,
        }
    }

    fn cell(self, key: Option<u64>) -> String {
        match (self, key) {
            (_, None) => "-".to_owned(),
            (Keys::Since(first), Some(key)) => {
                let ms = key.saturating_sub(first) / 1_000_000;
                format!("+{}.{:03} s", ms / 1000, ms % 1000)
            }
            (Keys::Raw, Some(key)) => key.to_string(),
        }
    }
}

/// Columns; the first and the last are text.
const HEADINGS: [&str; 8] = ["FILE", "EVENTS", "BLOCKS", "FIRST", "LAST", "LOST", "GAPS", "VERDICT"];

/// Prints all traces as one table; at most `limit` findings a file.
pub(crate) fn print(traces: &[CheckedTrace], limit: usize, out: &mut Vec<u8>) {
    let mut rows = vec![HEADINGS.map(str::to_owned)];
    let mut findings = String::new();
    for trace in traces {
        let keys = Keys::of(trace);
        for file in &trace.files {
            let label = escape(trace.label(file, traces.len() == 1).as_os_str().as_encoded_bytes()).into_owned();
            describe(&label, file, keys, limit, &mut findings);
            rows.push(row(label, file, keys));
        }
    }
    let mut text = aligned(&rows);
    if !findings.is_empty() {
        text.push('\n');
        text.push_str(&findings);
    }
    text.push('\n');
    let counts = [Verdict::Complete, Verdict::Lossy, Verdict::Truncated, Verdict::Corrupt]
        .into_iter()
        .map(|verdict| (count(traces, verdict), verdict_name(verdict)))
        .filter(|(n, _)| *n > 0);
    text.push_str(&counts.map(|(n, name)| format!("{n} {name}")).collect::<Vec<_>>().join("   "));
    text.push('\n');
    out.extend_from_slice(text.as_bytes());
}

fn row(label: String, file: &CheckedFile, keys: Keys) -> [String; HEADINGS.len()] {
    let facts = &file.facts;
    let dash_if = |unknown: bool, text: String| if unknown { "-".to_owned() } else { text };
    // `meta.out` has blocks, and no events to lose.
    let no_events = facts.cpu.is_none() || !file.is_there;
    [
        label,
        dash_if(no_events, facts.events.to_string()),
        dash_if(!file.is_there || facts.version.is_none(), facts.blocks.to_string()),
        keys.cell(facts.first),
        keys.cell(facts.last),
        dash_if(no_events || facts.lost.is_none(), facts.lost.unwrap_or_default().to_string()),
        dash_if(facts.cpu.is_none(), facts.gaps.to_string()),
        verdict_name(facts.verdict).to_owned(),
    ]
}

/// Cells under their headings: numbers to the right, the first and the last column to the left. Nothing is cut.
fn aligned(rows: &[[String; HEADINGS.len()]]) -> String {
    let mut widths = [0; HEADINGS.len()];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let mut text = String::new();
    for row in rows {
        for (column, (cell, width)) in row.iter().zip(widths).enumerate() {
            // Writing to a String cannot fail.
            let _ = match column {
                0 => write!(text, "{cell:<width$}"),
                7 => write!(text, "  {cell}"),
                _ => write!(text, "  {cell:>width$}"),
            };
        }
        text.push('\n');
    }
    text
}

/// What was found in a file: its name once, then a line a finding, then what to do.
fn describe(label: &str, file: &CheckedFile, keys: Keys, limit: usize, text: &mut String) {
    let facts = &file.facts;
    if facts.faults.is_empty() {
        return;
    }
    let margin = label.chars().count();
    let mut name = label;
    let mut line = |code: &str, message: &str| {
        let _ = writeln!(text, "{name:<margin$}  {code:<4}  {message}");
        name = "";
    };
    for fault in facts.faults.iter().take(limit) {
        line(&fault.code.to_string(), &escape(fault.message.as_bytes()));
        if fault.code == Code::Overrun {
            worst_gap(file, keys).iter().for_each(|message| line("", message));
        }
    }
    let hidden = facts.faults.len().saturating_sub(limit) as u64 + facts.faults_left_out;
    if hidden > 0 {
        line("", &format!("{hidden} more findings (--limit)"));
    }
    if facts.unread > 0 {
        line("", &format!("{} events cannot be read", facts.unread));
    }
    let mut told = Vec::new();
    for remedy in facts.faults.iter().filter_map(|fault| advice::remedy(fault.code)) {
        if !told.contains(&remedy) {
            line("", remedy);
            told.push(remedy);
        }
    }
}

/// How long the gap that lost most events took, and when it was.
fn worst_gap(file: &CheckedFile, keys: Keys) -> Option<String> {
    let (gap, Keys::Since(first)) = (file.worst_gap?, keys) else { return None };
    let (from, to) = gap.from.zip(gap.to)?;
    let micros = from.saturating_sub(first) / 1000;
    let at = format!("+{}.{:06} s", micros / 1_000_000, micros % 1_000_000);
    Some(format!("the longest took {}, at {at}", span(to.saturating_sub(from))))
}

/// Nanoseconds with one decimal of the largest unit that fits.
fn span(ns: u64) -> String {
    let (unit, name) = match ns {
        0..1_000 => return format!("{ns} ns"),
        1_000..1_000_000 => (1_000, "us"),
        1_000_000..1_000_000_000 => (1_000_000, "ms"),
        _ => (1_000_000_000, "s"),
    };
    format!("{}.{} {name}", ns / unit, ns % unit / (unit / 10))
}
