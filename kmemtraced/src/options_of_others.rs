//! Options that other programs have, and what to use in their place.

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Options, and what to use in their place.
type Entry = (&'static [&'static str], &'static str);

/// Options of `perf record` and `perf kmem record`, and what to use in their place.
pub(crate) const OF_PERF: [Entry; 18] = [
    (&["--call-graph"], "use -g (--stack): the kernel walks its own stack, in one way"),
    (&["-F", "--freq", "-c", "--count"], "every event is recorded, none is sampled; leave it out"),
    (&["-C", "--cpu"], "all CPUs are recorded, as an object may be freed on any; leave it out"),
    (&["-t", "--tid"], "use -p: the id of a thread that leads no process stands for that thread"),
    (&["-u", "--uid"], "use --cgroup user.slice/user-UID.slice, or -p"),
    (&["-G"], "use --cgroup PATH"),
    (&["--page"], "use -e page"),
    (&["--slab"], "use -e slab, the default"),
    (&["--caller", "--alloc", "--live"], "record first, then use kmemtrace-report sites, or live"),
    (&["-k", "--clockid"], "use --clock NAME"),
    (&["-m", "--mmap-pages"], "use -b SIZE, the kernel's buffer of each CPU"),
    (&["-z", "--compression-level"], "use --compress zstd:LEVEL"),
    (&["-r", "--realtime"], "use --priority fifo, the default"),
    (&["--switch-output"], "use --max-size SIZE, which ends the recording"),
    (&["-D", "--delay"], "start kmemtraced later, or select a time in the report with --time"),
    (&["-i", "--no-inherit"], "children of recorded processes are always recorded"),
    (&["--exclude-perf"], "the report leaves out the recorder's own allocations unless --own is given"),
    (
        &["-R", "--raw-samples", "-N", "--no-buildid-cache", "-s", "--stat", "--timestamp"],
        "it is not needed here; leave it out",
    ),
];

/// Options of `trace-cmd record`, likewise.
pub(crate) const OF_TRACE_CMD: [Entry; 4] = [
    (&["-T"], "use -g (--stack); times are always recorded"),
    (&["-P"], "use -p PID"),
    (&["-l", "-n"], "use --functions LIST, or the name of an event with -e"),
    (&["-M", "-O"], "it is not needed here; leave it out"),
];

/// Options of `kmemtrace-report top`, which people give to `kmemtraced top`.
pub(crate) const OF_REPORT: [Entry; 2] = [
    (
        &["--once", "--batch", "--from", "--speed", "--script"],
        "use it with kmemtrace-report top, which shows a recording",
    ),
    (&["--by"], "leave it out: the key m changes what rows are, and kmemtrace-report live --by shows a recording"),
];

/// Line about an option of another program that the parser has refused.
pub(crate) fn hint(error: &clap::Error) -> Option<String> {
    if let (ErrorKind::ArgumentConflict, Some(ContextValue::String(given))) =
        (error.kind(), error.get(ContextKind::InvalidArg))
    {
        return (given == "--all-cpus")
            .then(|| "-a records the whole machine, and another option some tasks alone: leave one out".to_owned());
    }
    let (ErrorKind::UnknownArgument, Some(ContextValue::String(given))) =
        (error.kind(), error.get(ContextKind::InvalidArg))
    else {
        return None;
    };
    let name = given.split('=').next().unwrap_or(given);
    let tables: [(&str, &[Entry]); 3] =
        [("perf", &OF_PERF), ("trace-cmd", &OF_TRACE_CMD), ("kmemtrace-report", &OF_REPORT)];
    tables.into_iter().find_map(|(program, table)| {
        let (_, remedy) = table.iter().find(|(names, _)| names.contains(&name))?;
        Some(format!("{name} is an option of {program}: {remedy}"))
    })
}
