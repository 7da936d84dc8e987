//! Lines about a trace, for formats that have room for text: verdict, origin, and what was asked for.

use kmemtrace::documents::Head;
use kmemtrace::documents::head::{TraceMembers, utc};
use kmemtrace_abi::text::escape::escape;
use kmemtrace_abi::text::units::grouped;

use crate::render::table::options::TableOptions;

/// Verdict in one line: `lossy: 12 events lost, 3 gaps, figures are estimates`.
pub(super) fn verdict(head: &Head<'_>) -> String {
    let complete = &head.completeness;
    let lost = complete.lost_events.map_or("an unknown number of".to_owned(), grouped);
    let mut line = format!("{}: {lost} events lost, {} gaps", complete.verdict, grouped(complete.gaps));
    let files = complete.truncated_files.iter().map(|file| format!("cut: {}", escape(file.as_bytes())));
    let missing = complete.missing_cpus.iter().map(|cpu| format!("no file for CPU {cpu}"));
    files.chain(missing).for_each(|part| line += &format!(", {part}"));
    if complete.verdict != "complete" {
        line += ", figures are estimates";
    }
    line
}

/// Verdict, origin of the trace, and what was asked for, each in a line. Neither the time of making nor the place of the trace is
/// among them: a trace gives the same lines wherever it lies.
pub(super) fn lines(head: &Head<'_>, host: Option<&str>, asked: &TableOptions) -> Vec<String> {
    let TraceMembers { kernel, arch, clock, boot, recording, scope, filtered, begun, ended, command, .. } = head.trace;
    let line = |name: &str, value: Option<&str>| Some(format!("{name}: {}", escape(value?.as_bytes())));
    let arch = arch.map_or(String::new(), |arch| format!(" {arch}"));
    let kernel = kernel.map(|kernel| format!("Linux {kernel}{arch}"));
    let time = asked.time.as_ref().map(|time| format!("time: {time}"));
    let origin = [
        line("trace", kernel.as_deref()),
        line("host", host.or(head.trace.host)),
        line("boot", boot),
        line("recording", recording),
        line("begun", begun.and_then(utc).as_deref()),
        line("ended", ended.and_then(utc).as_deref()),
        line("command", command.map(|words| words.join(" ")).as_deref()),
        line("clock", clock),
        (scope == Some("tasks")).then(|| "some tasks alone: frees by others are unseen".to_owned()),
        line("recorded only allocations with", filtered),
        asked.filter(),
        time,
    ];
    std::iter::once(verdict(head)).chain(origin.into_iter().flatten()).collect()
}
