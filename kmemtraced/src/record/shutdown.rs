//! The last lines that a recording says of itself, and the exit status that they come to.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command};
use std::thread;
use std::time::Duration;

use rustix::io::Errno;

use crate::args::Args;
use crate::control::files;
use crate::output::directory::Output;
use crate::process::messages::{self, say};
use crate::process::signals::Signals;
use crate::source::instance;
use crate::source::{Framing, SourceFacts};
use crate::write::writer::Outcome;

/// Events were lost.
const LOST: u8 = 1;
/// Status of a recording that ended early: disk full, I/O error, a second signal.
pub(crate) const ENDED_EARLY: u8 = 3;
/// Time that the end of the process waits for its messages to be written.
pub(crate) const LAST_WORDS: Duration = Duration::from_millis(300);
/// Interval between two looks at a child.
const LOOK: Duration = Duration::from_millis(20);
/// Looks at a COMMAND that was asked to end.
const LOOKS: u32 = 100;

/// The end of a recording.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended<'a> {
    /// The reason, for people.
    pub(crate) why: &'a str,
    /// Something went wrong.
    pub(crate) early: bool,
    /// Another program changed what was recorded.
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
        say(format!("stopped: {why}   {events} events   {mib:.1} MiB   {lost} lost{unknown}"));
    }
    for (cpu, o) in outcomes.iter().filter(|_| args.verbose) {
        say(format!("CPU {cpu}: {} events   {} KiB   {} lost", o.events, o.bytes >> 10, o.lost));
    }
    if let Some(own) = outcomes.iter().filter_map(|(_, o)| o.own).reduce(u64::saturating_add) {
        let share = own as f64 * 100.0 / events.max(1) as f64;
        say(format!("{own} of the events ({share:.2}%) are of the recorder's own threads"));
    }
    for (cpu, o) in outcomes {
        if let Some(error) = &o.unreadable {
            let what = if o.counted {
                "its buffer could not be read to the end"
            } else {
                "its counters could not be read at the end"
            };
            say(format!("kmemtraced: CPU {cpu}: {what}: {error}: events may be missing: record again"));
        }
    }
    for (cpu, o) in outcomes.iter().filter(|(_, o)| o.read_by_others > 0) {
        let (read, events) = (o.read, o.events);
        say(format!(
            "CPU {cpu}: the kernel handed out {read} events and {events} are in its file: somebody else read its buffer"
        ));
    }
    if cleared {
        say("somebody cleared the buffer while recording: an unknown number of events is missing");
    }
    let by_others = sum(|o| o.read_by_others);
    if by_others > 0 && failed.is_none() {
        say(format!(
            "{by_others} of the lost events were read by another program: record in an instance that nobody else reads (-B NAME)"
        ));
    }
    if lost > by_others && failed.is_none() {
        let lost = lost - by_others;
        let remedy = match *facts.framing {
            Framing::SubBuffers(_) if facts.since_boot => {
                "boot with a larger trace_buf_size, or give a larger --buffer-size"
            }
            Framing::SubBuffers(_) => "record again with a larger --buffer-size",
            Framing::Relay(_) => "start the kernel with more kmemtrace.subbufs",
        };
        say(format!("{lost} events were lost: {remedy}"));
    }
    if let Some((name, error)) = &failed {
        say(format!("kmemtraced: {shown}/{name}: {error}, {}", remedy(error, output)));
        return ENDED_EARLY;
    }
    if !removed.is_empty() {
        let removed = removed.join(", ");
        say(format!("kmemtraced: {shown}: somebody removed {removed} while recording: what was in there is lost"));
        return ENDED_EARLY;
    }
    if !args.quiet {
        say(format!("next: kmemtrace-report {shown}     check: kmemtrace-check {shown}"));
    }
    match (ended.early, incomplete) {
        (true, _) => ENDED_EARLY,
        (_, true) => LOST,
        _ => 0,
    }
}

/// The state of a file that the disk did not take, and the remedy.
fn remedy(error: &io::Error, output: &Output) -> String {
    if error.raw_os_error() == Some(Errno::FBIG.raw_os_error()) {
        return "the limit of a file's size (ulimit -f): what is there is valid; raise the limit".to_owned();
    }
    let room = output.room().map(|bytes| bytes >> 10).unwrap_or(0);
    format!("{room} KiB free: what is there is valid; free some space or use -o")
}

/// Says what came of a recording that a second signal has cut; touches no file, because the disk may stall.
pub(crate) fn cut(output: &Output, why: &str, outcomes: &[(u32, Outcome)]) -> u8 {
    let sum = |what: fn(&Outcome) -> u64| outcomes.iter().map(|(_, o)| what(o)).sum::<u64>();
    let mib = sum(|o| o.bytes) as f64 / 1048576.0;
    say(format!("stopped: {why}, at once   {} events   {mib:.1} MiB", sum(|o| o.events)));
    let unfinished = outcomes.iter().filter(|(_, o)| o.unfinished).map(|(cpu, _)| format!("cpu{cpu}.out, "));
    let (shown, unfinished) = (output.dir.display(), unfinished.collect::<String>());
    say(format!(
        "kmemtraced: {shown}: a second signal cut {unfinished}meta.out short: events are missing at the end, what is there is valid"
    ));
    ENDED_EARLY
}

/// Ends the process while a thread hangs in a system call.
pub(crate) fn end_now() {
    say(
        "kmemtraced: ended at once by a second signal: what is in the files is valid, and cut short where they have no end",
    );
    files::let_go();
    instance::remove_held();
    messages::finish(LAST_WORDS / 2);
    std::process::exit(ENDED_EARLY.into());
}

/// Lets go of the command: what has not ended by now is asked to, and a signal ends the wait. Its status, 128 + n for a
/// signal; `None` where it goes on.
pub(crate) fn leave(mut child: Child, signals: &Signals) -> Option<u8> {
    for tries in 0..LOOKS {
        if let Ok(Some(status)) = child.try_wait() {
            let code = status.code().or(status.signal().map(|n| 128 + n)).unwrap_or(0);
            return Some(u8::try_from(code).unwrap_or(u8::MAX));
        }
        if tries == 0 {
            let pid = rustix::process::Pid::from_child(&child);
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        if signals.is_pressing() {
            break;
        }
        thread::sleep(LOOK);
    }
    say("kmemtraced: the command goes on");
    None
}

/// Prints these views of the trace: by `kmemtrace-report` beside this program, or wherever it is found. False where a signal
/// ended it.
pub(crate) fn report(views: &[String], dir: &Path, signals: &Signals) -> bool {
    let beside = std::env::current_exe().ok().map(|me| me.with_file_name("kmemtrace-report")).filter(|p| p.exists());
    // Without /proc there is no telling where this program is but by how it was called.
    let called = || std::env::args_os().next().map(|me| Path::new(&me).with_file_name("kmemtrace-report"));
    let program = beside.or_else(|| called().filter(|p| p.exists())).unwrap_or_else(|| "kmemtrace-report".into());
    if !views.is_empty() {
        // Earlier messages come first where both go to one terminal.
        messages::finish(LAST_WORDS);
    }
    for view in views {
        let child = Command::new(&program).arg(view).arg(dir).spawn();
        let ended = child.and_then(|mut child| {
            while child.try_wait()?.is_none() {
                if signals.is_pressing() {
                    let _ = child.kill();
                    return Ok(false);
                }
                thread::sleep(LOOK);
            }
            Ok(true)
        });
        match ended {
            Ok(true) => {}
            Ok(false) => {
                say(format!("kmemtraced: --report {view}: ended by a signal"));
                return false;
            }
            Err(error) => say(format!("kmemtraced: --report {view}: {}: {error}", program.display())),
        }
    }
    true
}
