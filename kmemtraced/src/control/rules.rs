//! Which control files count. The rule: each file of a trace directory that can be written counts. A write to it by another program,
//! and a text other than the one that the recorder left, is a change of the recording. Exceptions are lines of the tables below.

/// Directories of a trace directory whose files choose what is recorded; those of events are in the last one. The others (`instances`,
/// `osnoise`, `trace_stat`) belong to other buffers and tracers.
pub(crate) const DIRS: [&str; 4] = ["", "options", "per_cpu", "events"];
/// Control files of an event, of an event system, and of all events: other files there can only be read, but for `inject`.
pub(crate) const EVENT_FILES: [&str; 3] = ["enable", "filter", TRIGGER];
/// Control file of an event with what is done when the event happens.
pub(crate) const TRIGGER: &str = "trigger";
/// Control file with the tasks to record; all where it was never written.
pub(crate) const TASKS: &str = "set_event_pid";
/// Control file with the tasks whose functions are recorded.
pub(crate) const FUNCTION_TASKS: &str = "set_ftrace_pid";

/// Part of a control file that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Counts {
    Nothing,
    Writes,
}

/// Files that do not count, or whose text does not, by name.
const EXCEPTIONS: [(Counts, &[&str]); 8] = [
    // A write adds a record of its own and changes no other one.
    (Counts::Nothing, &["trace_marker", "trace_marker_raw"]),
    // The kernel adds the messages of refused writes. They change nothing.
    (Counts::Nothing, &["error_log"]),
    // They define events, and events that appear or vanish are no change.
    (
        Counts::Nothing,
        &[
            "dynamic_events",
            "kprobe_events",
            "uprobe_events",
            "synthetic_events",
            "user_events_data",
            "user_events_status",
        ],
    ),
    // Of other parts of the tracer, which write no records.
    (Counts::Nothing, &["function_profile_enabled", "stack_max_size", "stack_trace_filter"]),
    // Reading takes events out of the buffer, and nobody can write.
    (Counts::Nothing, &["trace_pipe", "trace_pipe_raw", "snapshot_raw"]),
    // Closing it frees the buffer.
    (Counts::Writes, &["free_buffer"]),
    // Reading formats the whole buffer, and before Linux 5.8 stops the tracer. What they empty, the counters show.
    (Counts::Writes, &["trace", "snapshot"]),
    // The kernel sets it to the longest latency that a tracer has seen.
    (Counts::Writes, &["tracing_max_latency"]),
];

/// Trace options that change only how records are printed.
const PRINTING_OPTIONS: [&str; 16] = [
    "annotate",
    "bin",
    "bitmask-list",
    "block",
    "context-info",
    "fields",
    "hash-ptr",
    "hex",
    "latency-format",
    "print-parent",
    "printk-msg-only",
    "raw",
    "sym-addr",
    "sym-offset",
    "sym-userobj",
    "verbose",
];

/// Files whose change may empty the buffer, with all unread events. A trigger or a function command may swap it with the snapshot.
const CLEARING: [&str; 9] = [
    "trace",
    "snapshot",
    "free_buffer",
    "trace_clock",
    "buffer_size_kb",
    "buffer_subbuf_size_kb",
    "current_tracer",
    TRIGGER,
    "set_ftrace_filter",
];

/// Files whose change acts when they are closed. A write to any other file acts at once.
const ACT_AT_CLOSE: [&str; 5] =
    ["free_buffer", "set_ftrace_filter", "set_ftrace_notrace", "set_graph_function", "set_graph_notrace"];

/// Files that an opening which truncates them changes (`: >trace`). A mark of fanotify is told of that at their close alone: the event of
/// the truncation has no path (`fsnotify_change`, Linux 6.18).
const ACT_AT_OPEN: [&str; 5] = ["trace", "set_event", "set_event_pid", "set_event_notrace_pid", TRIGGER];

/// Name for all files, of which the kernel does not tell which one was written to.
pub(crate) const ANY: &str = "control files";

/// Files of which the kernel keeps the text from the time when they were opened (`ftrace_regex_open`, Linux 6.17): they are opened for
/// each look.
const OPENED_ANEW: [&str; 2] = ["set_ftrace_filter", "set_ftrace_notrace"];

/// Last part of a path.
pub(crate) fn name_of(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

fn exception(name: &str) -> Option<Counts> {
    EXCEPTIONS.iter().find(|(_, names)| names.contains(&name)).map(|(counts, _)| *counts)
}

/// True if a write to this file, relative to the trace directory, is a change.
pub(crate) fn is_change(path: &str) -> bool {
    let name = name_of(path);
    match path.split('/').next() {
        Some("options") if path != name => !PRINTING_OPTIONS.contains(&name),
        Some(dir) if path != name && !DIRS.contains(&dir) => false,
        _ => exception(name) != Some(Counts::Nothing),
    }
}

/// True if the text of this file, in the trace directory itself, is compared. Those of directories are not, for files here have the same:
/// `trace_options` those of `options`, `buffer_size_kb` those of `per_cpu`, and `set_event` the switches of all events.
pub(crate) fn is_compared(name: &str) -> bool {
    exception(name).is_none()
}

/// True if the file must be opened for each look.
pub(crate) fn is_opened_anew(name: &str) -> bool {
    OPENED_ANEW.contains(&name)
}

/// True if closing this file after a write may change something, or may be all that is told of its truncation.
pub(crate) fn acts_at_close(path: &str) -> bool {
    let name = name_of(path);
    ACT_AT_CLOSE.contains(&name) || ACT_AT_OPEN.contains(&name)
}

/// True if a write to this file may empty the buffer.
pub(crate) fn may_clear(path: &str) -> bool {
    path == ANY || CLEARING.contains(&name_of(path))
}

/// Part of a control file's text that counts.
pub(crate) fn what_counts(path: &str, text: &str) -> String {
    let text = text.trim_end();
    match name_of(path) {
        "trace_options" => {
            let is_printing = |option: &&str| PRINTING_OPTIONS.contains(&option.strip_prefix("no").unwrap_or(option));
            text.lines().filter(|option| !is_printing(option)).collect::<Vec<_>>().join(" ")
        }
        // A star stands for a trigger, which has a file of its own.
        "enable" => text.strip_suffix('*').unwrap_or(text).to_owned(),
        // A comment lists the triggers that there may be.
        TRIGGER => {
            let lines = text.lines().filter(|line| !line.starts_with('#'));
            lines.map(without_count).collect::<Vec<_>>().join("\n")
        }
        "set_event" => sorted(text.lines().map(str::to_owned).collect()),
        _ => text.to_owned(),
    }
}

/// Lines of `set_event` with some more.
pub(crate) fn with_events(text: &str, events: impl Iterator<Item = String>) -> String {
    sorted(text.lines().map(str::to_owned).chain(events).collect())
}

fn sorted(mut lines: Vec<String>) -> String {
    lines.sort();
    lines.dedup();
    lines.join("\n")
}

/// A trigger without the number of times that it acts: the kernel counts it down.
fn without_count(trigger: &str) -> String {
    let parts = trigger.split(':').filter(|part| !part.starts_with("count="));
    parts.collect::<Vec<_>>().join(":")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_file_counts_unless_it_is_an_exception() {
        let all = [
            "tracing_on",
            "a_file_of_a_later_kernel",
            "set_ftrace_filter",
            "options/record-cmd",
            "per_cpu/cpu3/buffer_size_kb",
            "per_cpu/cpu3/trace",
            "events/enable",
            "events/sched/filter",
            "events/sched/sched_switch/trigger",
            "events/sched/sched_switch/inject",
        ];
        assert!(all.into_iter().all(is_change));
        let none =
            ["trace_marker", "error_log", "kprobe_events", "options/hex", "osnoise/cpus", "instances/other/trace"];
        assert!(!none.into_iter().any(is_change));
        assert!(is_compared("buffer_percent") && !is_compared("trace") && !is_compared("trace_marker"));
    }

    #[test]
    fn only_what_counts_of_a_text_is_compared() {
        assert_eq!(
            what_counts("trace_options", "print-parent\nnohex\noverwrite\nnostacktrace\n"),
            "overwrite nostacktrace"
        );
        assert_eq!(what_counts("events/kmem/kfree/enable", "1*\n"), "1");
        let triggers = "# Available triggers:\n# traceon traceoff\n";
        assert_eq!(what_counts("events/kmem/kfree/trigger", triggers), "");
        assert_eq!(what_counts("events/a/b/trigger", "traceoff:count=3 if x\n"), "traceoff");
        assert_eq!(what_counts("set_event", "kmem:kmalloc\nkmem:kfree\n"), "kmem:kfree\nkmem:kmalloc");
    }
}
