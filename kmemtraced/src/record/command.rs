//! COMMAND, during which the recorder records, and the reports after it: programs that the launcher starts.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;
use std::thread;
use std::time::Duration;

use rustix::process::Signal;

use crate::args::Args;
use crate::process::messages::{self, say};
use crate::process::report;
use crate::process::signals::Signals;
use crate::record::launcher::{Launcher, Program};
use crate::record::memstrack;
use crate::record::shutdown::LAST_WORDS;

/// Poll interval of a program's status.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Polls of a COMMAND that was asked to end.
const MAX_POLLS: u32 = 100;

/// Asks COMMAND to end with SIGTERM where it still runs, and waits two seconds for it; a stop signal ends the wait. Returns
/// its exit status, 128 + n for signal n; `None` where it goes on.
pub(crate) fn leave(launcher: &mut Launcher, command: Program, signals: &Signals) -> Option<u8> {
    let mut is_asked = false;
    for _ in 0..MAX_POLLS {
        match launcher.try_wait(command) {
            Ok(Some(status)) => {
                let code = status.code().or(status.signal().map(|n| 128 + n)).unwrap_or(0);
                return Some(u8::try_from(code).unwrap_or(u8::MAX));
            }
            Ok(None) => {}
            Err(error) => {
                say(format!("kmemtraced: the command may go on: {error}"));
                return None;
            }
        }
        is_asked = is_asked || launcher.signal(command, Signal::TERM);
        if signals.is_pressing() {
            break;
        }
        thread::sleep(POLL_INTERVAL);
    }
    if launcher.answers() {
        say("kmemtraced: the command goes on");
    } else {
        say(format!("kmemtraced: the command may go on: {}", launcher.silent()));
    }
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

/// Prints reports of the trace with `kmemtrace-report`, the one beside this program or else the one in PATH.
pub(crate) fn report(args: &Args, dir: &Path, launcher: Option<&mut Launcher>, signals: &Signals) -> Reported {
    let Some(launcher) = launcher.filter(|_| !args.report.is_empty()) else { return Reported::All };
    // Earlier messages come first where both go to one terminal.
    messages::finish(LAST_WORDS);
    let mut reported = Reported::All;
    for (number, words) in memstrack::reports(args).iter().enumerate() {
        let shown = words.join(" ");
        let started = launcher.report(number, dir, || signals.is_pressing());
        match started.and_then(|program| wait_for(launcher, program, signals)) {
            Ok(Some(status)) if status.success() => {}
            // The report has said why.
            Ok(Some(_)) => reported = Reported::NotAll,
            Ok(None) => return interrupted(&shown),
            Err(_) if signals.is_pressing() => return interrupted(&shown),
            Err(error) => {
                say(format!("kmemtraced: --report {shown}: {}: {error}", report::program().display()));
                reported = Reported::NotAll;
            }
        }
    }
    reported
}

fn interrupted(report: &str) -> Reported {
    say(format!("kmemtraced: --report {report}: ended by a signal"));
    Reported::Interrupted
}

/// Waits for a report to end, and returns its status; kills it and returns `None` at a stop signal. An error if the launcher gives no
/// sign of life.
fn wait_for(launcher: &mut Launcher, program: Program, signals: &Signals) -> io::Result<Option<ExitStatus>> {
    loop {
        if let Some(status) = launcher.try_wait(program)? {
            return Ok(Some(status));
        }
        if signals.is_pressing() {
            launcher.signal(program, Signal::KILL);
            launcher.answers();
            return Ok(None);
        }
        if launcher.has_gone_silent() {
            return Err(launcher.silent());
        }
        thread::sleep(POLL_INTERVAL);
    }
}
