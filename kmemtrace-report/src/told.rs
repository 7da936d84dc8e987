//! What a trace lacks, told beside a view: events that were not recorded, loss, damage, an empty window.

use std::io::{self, Write};

use kmemtrace::{Analysis, Completeness, Kind, NamesReport, Space, TimeWindow, Trace, UnknownEvents};
use kmemtrace_abi::fault::{Code, Verdict};
use kmemtrace_abi::text::cut::MAX_NAME_BYTES;
use kmemtrace_abi::text::escape::escape;
use kmemtrace_abi::text::units::counted;
use kmemtrace_abi::trace::InputKind;

use crate::terminal::messages::say;

/// Findings about texts that are told beside a view.
const OF_TEXTS: [Code; 6] =
    [Code::BadText, Code::TextCut, Code::DroppedLines, Code::BadLine, Code::Untold, Code::NoAddress];

/// True where the recorder was not asked for events of this kind.
pub(crate) fn lacks(analysis: &Analysis, kind: Kind) -> bool {
    let info = analysis.info();
    info.input == InputKind::Kmemtrace && !info.capabilities.kinds[kind]
}

/// Reason for a view without rows where no event of the kinds that are asked for was recorded; `None` where one could have been.
pub(crate) fn not_recorded(analysis: &Analysis, asked: &[Kind]) -> Option<String> {
    let kinds = if asked.is_empty() { &Kind::ALL[..] } else { asked };
    if !kinds.iter().all(|&kind| lacks(analysis, kind)) {
        return None;
    }
    let (of, option) = match asked {
        [] => ("allocation", "slab,page"),
        [kind, ..] => match kind.space() {
            Space::Pages => ("page", "page"),
            space => (space.name(), space.name()),
        },
    };
    Some(format!("the recording has no {of} events: record them with kmemtraced -e {option}"))
}

/// Tells verdict, events, loss and gaps beside an output that is no view.
pub(crate) fn counts(completeness: &Completeness, events: u64) {
    if let Some([lines, blocks]) = completeness.skipped {
        let _ = writeln!(
            io::stderr(),
            "{}: {events} entries, {lines} lines and {blocks} blocks skipped",
            completeness.verdict_name()
        );
        return;
    }
    let lost = completeness.lost_events.map_or("an unknown number of".to_owned(), |n| n.to_string());
    let plural = |n: u64| if n == 1 { "" } else { "s" };
    let (verdict, gaps) = (completeness.verdict_name(), completeness.gaps);
    let counts = format!("{events} event{}, {lost} lost, {gaps} gap{}", plural(events), plural(gaps));
    let _ = writeln!(io::stderr(), "{verdict}: {counts}");
}

/// Tells of loss and damage where the output has no place for a verdict.
pub(crate) fn verdict(completeness: &Completeness) {
    if completeness.verdict != Verdict::Complete {
        let lost = completeness.lost_events.map_or("an unknown number of".to_owned(), |n| n.to_string());
        say(&format!("the trace is {}: {lost} events lost, the figures are estimates", completeness.verdict_name()));
    }
}

/// Tells of files of names that are not used, with the reasons.
pub(crate) fn rejected(report: &NamesReport) {
    if report.cut_names > 0 {
        let names = counted(report.cut_names, "name");
        say(&format!("{names} of symbols cut after {MAX_NAME_BYTES} bytes: no kernel has such long ones"));
    }
    for (file, why) in &report.rejected {
        let [file, why] = [file.as_os_str().as_encoded_bytes(), why.as_bytes()].map(|bytes| escape(bytes).into_owned());
        say(&format!("{file}: not used for names: {why}"));
    }
}

/// Explains an empty window of an option by the first event's time: times are those of the trace's clock, not of the wall's.
pub(crate) fn empty_window((option, window): (&str, Option<TimeWindow>), trace: &Trace, events: u64, begins: u64) {
    let Some(window) = window else { return };
    let units = trace.info.keys().per_second();
    let starts = if units == 1 { begins.to_string() } else { (begins as f64 / units as f64).to_string() };
    if events == 0 {
        say(&format!("{option}: no events in this window; the trace starts at {starts}"));
    } else if window.starts_before(begins, units) {
        say(&format!("{option}: the trace starts later, at {starts}; write +TIME for a time after its start"));
    }
}

/// Tells of events that may concern objects and that this version does not know: a newer kernel's path would be missing in silence.
pub(crate) fn unknown_events(unknown: &UnknownEvents) {
    for (name, count) in unknown.iter() {
        let name = escape(name);
        say(&format!(
            "{name}: {count} events of kmem that this version does not know: objects may have gone through them"
        ));
    }
}

/// Prints warnings about a text of one moment.
pub(crate) fn warnings(trace: &Trace) {
    let warnings = trace.info.text.iter().flat_map(|text| &text.warnings);
    warnings.for_each(|warning| say(&escape(warning.as_bytes())));
}

/// Tells what is wrong with a text: the line at which it ends early, or makes no sense, and loss that it does not tell.
pub(crate) fn bad_text(trace: &Trace) {
    for stream in &trace.streams {
        for fault in stream.report().faults.iter().filter(|fault| OF_TEXTS.contains(&fault.code)) {
            let path = escape(stream.path().as_os_str().as_encoded_bytes()).into_owned();
            say(&format!("{path}: {}", fault.message));
        }
    }
}
