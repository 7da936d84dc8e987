//! COMMAND, during which the recorder records, and the reports after it: child processes of the recorder.

use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::thread;
use std::time::Duration;

use crate::args::Args;
use crate::process::limits;
use crate::process::messages::{self, say};
use crate::process::report;
use crate::process::signals::Signals;
use crate::record::memstrack;
use crate::record::shutdown::LAST_WORDS;

/// Poll interval of a child's status.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Polls of a COMMAND that was asked to end.
const MAX_POLLS: u32 = 100;

/// Asks COMMAND to end with SIGTERM where it still runs, and waits two seconds for it; a stop signal ends the wait. Returns
/// its exit status, 128 + n for signal n; `None` where it goes on.
pub(crate) fn leave(mut child: Child, signals: &Signals) -> Option<u8> {
    for tries in 0..MAX_POLLS {
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
        thread::sleep(POLL_INTERVAL);
    }
    say("kmemtraced: the command goes on");
    None
}

/// End of the reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reported {
    All,
    /// A report could not be printed.
    NotAll,
    /// A signal ended a report.
    Interrupted,
}

/// Prints reports of the trace with `kmemtrace-report`, the one beside this program or else the one in PATH, to standard output or to
/// `file`.
pub(crate) fn report(args: &Args, dir: &Path, file: Option<&File>, signals: &Signals) -> Reported {
    let program = report::program();
    if !args.report.is_empty() {
        // Earlier messages come first where both go to one terminal.
        messages::finish(LAST_WORDS);
    }
    let mut reported = Reported::All;
    for words in memstrack::reports(args) {
        let mut command = Command::new(&program);
        command.args(&words).arg(dir);
        let spawned = file.map(File::try_clone).transpose().and_then(|file| {
            if let Some(file) = file {
                command.stdout(file);
            }
            limits::with_those_of_the_caller(|| command.spawn())
        });
        let shown = words.join(" ");
        match spawned.and_then(|child| wait_for(child, signals)) {
            Ok(Some(status)) if status.success() => {}
            // The report has said why.
            Ok(Some(_)) => reported = Reported::NotAll,
            Ok(None) => {
                say(format!("kmemtraced: --report {shown}: ended by a signal"));
                return Reported::Interrupted;
            }
            Err(error) => {
                say(format!("kmemtraced: --report {shown}: {}: {error}", program.display()));
                reported = Reported::NotAll;
            }
        }
    }
    reported
}

/// Waits for a report to end, and returns its status; kills it and returns `None` at a stop signal.
fn wait_for(mut child: Child, signals: &Signals) -> std::io::Result<Option<ExitStatus>> {
    loop {
        match child.try_wait()? {
            Some(status) => return Ok(Some(status)),
            None if signals.is_pressing() => {
                let _ = child.kill();
                return Ok(None);
            }
            None => thread::sleep(POLL_INTERVAL),
        }
    }
}
