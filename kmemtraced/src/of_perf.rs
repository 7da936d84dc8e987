//! Options of perf that this program has under another name, or not at all.

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Options of `perf record`, and what to use in their place.
pub(crate) const OPTIONS: [(&[&str], &str); 14] = [
    (&["--call-graph"], "use -g (--stack): the kernel walks its own stack, in one way"),
    (&["-F", "--freq", "-c", "--count"], "every event is recorded, none is sampled; leave it out"),
    (&["-C", "--cpu"], "all CPUs are recorded, as an object may be freed on any; leave it out"),
    (&["-t", "--tid"], "use -p: the id of a thread that leads no process stands for that thread"),
    (&["-u", "--uid"], "use --cgroup user.slice/user-UID.slice, or -p"),
    (&["-G"], "use --cgroup PATH"),
    (&["-m", "--mmap-pages"], "use -b SIZE, the kernel's buffer of each CPU"),
    (&["-z", "--compression-level"], "use --compress zstd:LEVEL"),
    (&["-r", "--realtime"], "use --priority fifo, the default"),
    (&["--switch-output"], "use --max-size SIZE, which ends the recording"),
    (&["-D", "--delay"], "start kmemtraced later, or select a time in the report with --time"),
    (&["-i", "--no-inherit"], "children of recorded processes are always recorded"),
    (&["--exclude-perf"], "the report leaves out the recorder's own allocations unless --own is given"),
    (
        &["-R", "--raw-samples", "-N", "--no-buildid-cache", "-s", "--stat", "-T", "--timestamp"],
        "it is not needed here; leave it out",
    ),
];

/// Line about an option of perf that the parser has refused.
pub(crate) fn hint(error: &clap::Error) -> Option<String> {
    let (ErrorKind::UnknownArgument, Some(ContextValue::String(given))) =
        (error.kind(), error.get(ContextKind::InvalidArg))
    else {
        return None;
    };
    let name = given.split('=').next().unwrap_or(given);
    let (_, remedy) = OPTIONS.iter().find(|(names, _)| names.contains(&name))?;
    Some(format!("{name} is an option of perf: {remedy}"))
}
