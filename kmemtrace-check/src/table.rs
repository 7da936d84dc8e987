//! Table for people: a row a file, then findings with remedies, then totals.

use std::fmt::Write;

use comfy_table::{CellAlignment, Table, presets};
use kmemtrace_abi::clock::{Clock, Unit};
use kmemtrace_abi::fault::{Code, Fault, Verdict};
use kmemtrace_abi::text::escape::escape;

use crate::advice;
use crate::explain::verdict_name;
use crate::machine::count;
use crate::reading::{CheckedFile, CheckedTrace};

/// Format of order keys.
#[derive(Clone, Copy, Debug)]
struct Keys {
    clock: Clock,
    /// Order key of the trace's first event.
    first: u64,
}

impl Keys {
    fn of(trace: &CheckedTrace) -> Keys {
        let first = trace.files.iter().filter_map(|f| f.facts.first).min();
        Keys { clock: trace.info.keys(), first: first.unwrap_or(0) }
    }

    fn cell(self, key: Option<u64>) -> String {
        match key {
            None => "-".to_owned(),
            // A column of numbers needs no sign before each.
            Some(key) if self.clock.unit == Unit::Records => key.to_string(),
            Some(key) => self.clock.moment(key, self.first, 3),
        }
    }
}

/// Column headings; the first and the last column are text.
const HEADINGS: [&str; 8] = ["FILE", "EVENTS", "BLOCKS", "FIRST", "LAST", "LOST", "GAPS", "VERDICT"];

/// Prints all traces as one table, with at most `limit` findings a file.
pub(crate) fn print(traces: &[CheckedTrace], limit: usize, out: &mut Vec<u8>) {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).add_row(HEADINGS);
    let mut findings = String::new();
    for trace in traces {
        let keys = Keys::of(trace);
        for file in &trace.files {
            let label = escape(trace.label(file, traces.len() == 1).as_os_str().as_encoded_bytes()).into_owned();
            describe(&label, file, keys, limit, &mut findings);
            table.add_row(row(label, file, keys));
        }
        describe_directory(trace, &mut findings);
    }
    for column in table.column_iter_mut() {
        let is_text = column.index == 0 || column.index + 1 == HEADINGS.len();
        column.set_padding((0, 2)).set_cell_alignment(if is_text { CellAlignment::Left } else { CellAlignment::Right });
    }
    let mut text = table.trim_fmt();
    text.push('\n');
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

/// Prints a file's name, its findings, a line each, and the remedies.
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
    // Findings about the whole file come first: they sum up the others.
    let mut faults: Vec<&Fault> = facts.faults.iter().collect();
    faults.sort_by_key(|fault| fault.block.is_some() || fault.offset > 0);
    for fault in faults.iter().take(limit) {
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
    remedies(&faults).for_each(|remedy| line("", remedy));
}

/// Prints the findings about a directory.
fn describe_directory(trace: &CheckedTrace, text: &mut String) {
    let name = escape(trace.path.as_os_str().as_encoded_bytes());
    for fault in &trace.findings {
        let _ = writeln!(text, "{name}  {}  {}", fault.code, escape(fault.message.as_bytes()));
    }
    for remedy in remedies(&trace.findings.iter().collect::<Vec<_>>()) {
        let _ = writeln!(text, "{:width$}  {remedy}", "", width = name.chars().count() + 6);
    }
}

/// Remedies for these findings, each once.
fn remedies(faults: &[&Fault]) -> impl Iterator<Item = &'static str> {
    let mut remedies: Vec<&'static str> = Vec::new();
    for remedy in faults.iter().filter_map(|fault| advice::about(fault)) {
        if !remedies.contains(&remedy) {
            remedies.push(remedy);
        }
    }
    remedies.into_iter()
}

/// Duration and time of the gap with the most lost events.
fn worst_gap(file: &CheckedFile, keys: Keys) -> Option<String> {
    let (gap, Keys { clock, first }) = (file.worst_gap?, keys);
    let (from, to) = gap.from.zip(gap.to)?;
    let at = clock.moment(from, first, 6);
    match clock.unit {
        Unit::Nanoseconds => Some(format!("the longest took {}, at {at}", clock.span(to.saturating_sub(from)))),
        Unit::Ticks => Some(format!("the worst was at {at}")),
        Unit::Records => None,
    }
}

#[cfg(test)]
mod tests {
    use kmemtrace_abi::open::OpenOptions;

    use super::*;
    use crate::sample::Sample;
    use crate::{checks, reading};
    use kmemtrace_abi::event::{Gap, GapCause};
    use kmemtrace_tests::generate::{Options, Shape};

    fn trace(sample: &Sample) -> CheckedTrace {
        let mut trace = reading::read(sample.path().to_owned(), OpenOptions::default(), 2).unwrap();
        checks::run(&mut trace);
        trace
    }

    fn printed(traces: &[CheckedTrace], limit: usize) -> String {
        let mut out = Vec::new();
        print(traces, limit, &mut out);
        String::from_utf8(out).unwrap()
    }

    fn fault(code: Code, offset: u64, message: &str) -> Fault {
        Fault { code, offset, block: (offset > 0).then_some(1), message: message.to_owned() }
    }

    #[test]
    fn a_table_has_rows_findings_remedies_and_totals() {
        let sample = Sample::new(&Options::plain(Shape::plain(), 3, 100), 1);
        let mut trace = trace(&sample);
        for (file, events, lost, first) in
            [(0, 3_212_004, 0, 7_000_000_000), (1, 42, 1204, 7_000_500_000), (2, 5, 0, 7_001_999_999)]
        {
            let facts = &mut trace.files[file].facts;
            (facts.events, facts.blocks, facts.lost) = (events, 3055, Some(lost));
            (facts.first, facts.last) = (Some(first), Some(68_204_999_999));
        }
        let gap = Gap {
            from: Some(40_118_204_999),
            to: Some(40_120_304_999),
            cpu: 1,
            lost: Some(1001),
            cause: GapCause::Overrun,
        };
        let lossy = &mut trace.files[1];
        (lossy.worst_gap, lossy.facts.gaps) = (Some(gap), 3);
        lossy.add(fault(Code::RecorderLoss, 9000, "block 3: lost"));
        lossy.add(fault(Code::Overrun, 0, "1204 events lost in 3 gaps"));
        let corrupt = &mut trace.files[2];
        corrupt.facts.unread = 2098;
        for offset in 1..=4 {
            corrupt.add(fault(Code::BadPayload, offset, &format!("block {offset}: \u{1b}[31mchecksum differs")));
        }
        let want = "\
FILE       EVENTS  BLOCKS     FIRST       LAST  LOST  GAPS  VERDICT
cpu0.out  3212004    3055  +0.000 s  +61.204 s     0     0  ok
cpu1.out       42    3055  +0.000 s  +61.204 s  1204     3  lossy
cpu2.out        5    3055  +0.001 s  +61.204 s     0     0  corrupt
meta.out        -       5         -          -     -     -  ok

cpu1.out  K101  1204 events lost in 3 gaps
                the longest took 2.1 ms, at +33.118204 s
          K104  block 3: lost
                the kernel's buffer was full: record again with a larger --buffer-size, or fewer events (-e)
                the disk was full or failed: free some space, or put the trace elsewhere (-o)
cpu2.out  K301  block 1: \\x1b[31mchecksum differs
          K301  block 2: \\x1b[31mchecksum differs
                2 more findings (--limit)
                2098 events cannot be read
                the bytes changed after they were written: check the disk and compare with the original

2 ok   1 lossy   1 corrupt
";
        assert_eq!(printed(&[trace], 2), want);
    }

    #[test]
    fn files_of_several_traces_keep_their_paths() {
        let samples = [1, 2].map(|seed| Sample::new(&Options::plain(Shape::plain(), 1, 10), seed));
        let text = printed(&samples.each_ref().map(trace), 20);
        for sample in &samples {
            assert!(text.contains(&format!("{}  ", sample.file("cpu0.out").display())), "{text}");
        }
        assert!(text.ends_with("\n\n4 ok\n"), "{text}");
    }

    #[test]
    fn a_finding_about_a_directory_names_the_directory() {
        let sample = Sample::new(&Options::plain(Shape::plain(), 1, 10), 1);
        std::fs::remove_file(sample.file("meta.out")).unwrap();
        let text = printed(&[trace(&sample)], 20);
        assert!(text.contains(&format!("\n{}  K501  has no meta.out", sample.path().display())), "{text}");
        assert!(text.ends_with("\n\n1 ok\n"), "{text}");
    }

    #[test]
    fn numbers_that_are_no_times_are_shown_as_they_are() {
        let (_, raw, streams) = Sample::relay(1);
        let first = streams.cpus[0].events[0].at.to_string();
        assert!(printed(&[trace(&raw)], 20).contains(&format!("  {first}  ")));
        let mut counted = trace(&Sample::new(&Options::plain(Shape::plain(), 1, 10), 1));
        counted.info.clock = Some("x86-tsc".into());
        let last = counted.files[0].facts.last.unwrap();
        let first = counted.files[0].facts.first.unwrap();
        let gap = Gap { from: Some(first + 601), to: Some(last), cpu: 0, lost: Some(9), cause: GapCause::Overrun };
        counted.files[0].worst_gap = Some(gap);
        counted.files[0].add(fault(Code::Overrun, 0, "9 events lost"));
        let text = printed(&[counted], 20);
        assert!(text.contains(&format!("  +{} ticks  ", last - first)), "{text}");
        assert!(text.contains("the worst was at +601 ticks") && !text.contains(" s  "), "{text}");
    }
}
