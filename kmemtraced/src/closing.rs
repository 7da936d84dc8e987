//! The last lines that a recording says of itself, and the exit status that they come to.

use std::io::{self, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command};
use std::thread;
use std::time::Duration;

use crate::args::Args;
use crate::output::Output;
use crate::source::{Framing, SourceFacts};
use crate::writer::Outcome;

/// Events were lost.
const LOST: u8 = 1;
/// It ended early: disk full, I/O error.
const ENDED_EARLY: u8 = 3;

/// How a recording ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended<'a> {
    /// The reason, for people.
    pub(crate) why: &'a str,
    /// Something went wrong.
    pub(crate) early: bool,
    /// Somebody else changed what was recorded.
    pub(crate) foreign: bool,
}

/// Says what came of it; returns the recording's own exit status.
pub(crate) fn close(
    args: &Args,
    output: &Output,
    facts: &SourceFacts,
    ended: &Ended<'_>,
    outcomes: &[(u32, Outcome)],
    meta: Option<io::Error>,
) -> u8 {
    let sum = |what: fn(&Outcome) -> u64| outcomes.iter().map(|(_, o)| what(o)).sum::<u64>();
    let (events, bytes, lost) = (sum(|o| o.events), sum(|o| o.bytes), sum(|o| o.lost));
    let mut stderr = io::stderr();
    let failed = outcomes.iter().find_map(|(cpu, o)| Some((format!("cpu{cpu}.out"), o.error.as_ref()?)));
    let failed = failed.or(meta.as_ref().map(|error| ("meta.out".to_owned(), error)));
    let cleared = outcomes.iter().any(|(_, o)| o.cleared);
    let uncounted = outcomes.iter().any(|(_, o)| !o.counted);
    let incomplete = lost > 0 || cleared || uncounted || ended.foreign;
    let why = ended.why;
    let names = outcomes.iter().map(|(cpu, _)| format!("cpu{cpu}.out")).chain(["meta.out".to_owned()]);
    let removed: Vec<String> = names.filter(|name| !output.has(name)).collect();
    let shown = output.dir.display();
    if incomplete || ended.early || failed.is_some() || !removed.is_empty() || !args.quiet {
        let mib = bytes as f64 / 1048576.0;
        let unknown = if cleared || uncounted || ended.foreign { ", and an unknown number more" } else { "" };
        let _ = writeln!(stderr, "stopped: {why}   {events} events   {mib:.1} MiB   {lost} lost{unknown}");
    }
    for (cpu, o) in outcomes.iter().filter(|_| args.verbose) {
        let _ = writeln!(stderr, "CPU {cpu}: {} events   {} KiB   {} lost", o.events, o.bytes >> 10, o.lost);
    }
    if args.verbose && matches!(*facts.framing, Framing::SubBuffers(_)) {
        let own = sum(|o| o.own);
        let share = own as f64 * 100.0 / events.max(1) as f64;
        let _ = writeln!(stderr, "{own} of the events ({share:.2}%) are of the recorder's own threads");
    }
    for (cpu, o) in outcomes {
        if let Some(error) = &o.unreadable {
            let what = if o.counted {
                "its buffer could not be read to the end"
            } else {
                "its counters could not be read at the end"
            };
            let _ = writeln!(stderr, "kmemtraced: CPU {cpu}: {what}: {error}: events may be missing: record again");
        }
    }
    for (cpu, o) in outcomes.iter().filter(|(_, o)| o.read_by_others > 0) {
        let (read, events) = (o.read, o.events);
        let _ = writeln!(
            stderr,
            "CPU {cpu}: the kernel handed out {read} events and {events} are in its file: somebody else read its buffer"
        );
    }
    if cleared {
        let _ = writeln!(stderr, "somebody cleared the buffer while recording: an unknown number of events is missing");
    }
    if lost > 0 && failed.is_none() {
        let remedy = match *facts.framing {
            Framing::SubBuffers(_) if facts.since_boot => {
                "boot with a larger trace_buf_size, or give a larger --buffer-size"
            }
            Framing::SubBuffers(_) => "record again with a larger --buffer-size",
            Framing::Relay(_) => "start the kernel with more kmemtrace.subbufs",
        };
        let _ = writeln!(stderr, "{lost} events were lost: {remedy}");
    }
    if let Some((name, error)) = &failed {
        let room = output.room().map(|bytes| bytes >> 10).unwrap_or(0);
        let _ = writeln!(
            stderr,
            "kmemtraced: {shown}/{name}: {error}, {room} KiB free: what is there is valid; free some space or use -o"
        );
        return ENDED_EARLY;
    }
    if !removed.is_empty() {
        let removed = removed.join(", ");
        let _ = writeln!(
            stderr,
            "kmemtraced: {shown}: somebody removed {removed} while recording: what was in there is lost"
        );
        return ENDED_EARLY;
    }
    if !args.quiet {
        let _ = writeln!(stderr, "next: kmemtrace-report {shown}     check: kmemtrace-check {shown}");
    }
    match (ended.early, incomplete) {
        (true, _) => ENDED_EARLY,
        (_, true) => LOST,
        _ => 0,
    }
}

/// Lets go of the command: what has not ended by now is asked to. Its status, 128 + n for a signal.
pub(crate) fn leave(mut child: Child) -> u8 {
    for tries in 0..100 {
        if let Ok(Some(status)) = child.try_wait() {
            let code = status.code().or(status.signal().map(|n| 128 + n)).unwrap_or(0);
            return u8::try_from(code).unwrap_or(u8::MAX);
        }
        if tries == 0 {
            let pid = rustix::process::Pid::from_child(&child);
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        thread::sleep(Duration::from_millis(20));
    }
    let _ = writeln!(io::stderr(), "kmemtraced: the command goes on");
    0
}

/// Prints these views of the trace: by `kmemtrace-report` beside this program, or wherever it is found.
pub(crate) fn report(views: &[String], dir: &Path) {
    let beside = std::env::current_exe().ok().map(|me| me.with_file_name("kmemtrace-report")).filter(|p| p.exists());
    // Without /proc there is no telling where this program is but by how it was called.
    let called = || std::env::args_os().next().map(|me| Path::new(&me).with_file_name("kmemtrace-report"));
    let program = beside.or_else(|| called().filter(|p| p.exists())).unwrap_or_else(|| "kmemtrace-report".into());
    for view in views {
        let ended = Command::new(&program).arg(view).arg(dir).status();
        if let Err(error) = ended {
            let _ = writeln!(io::stderr(), "kmemtraced: --report {view}: {}: {error}", program.display());
        }
    }
}
