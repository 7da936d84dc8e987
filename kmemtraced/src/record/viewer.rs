//! The program that shows a recording while it is made: `kmemtrace-report`, which reads the stream from its standard input.

use std::ffi::OsString;
use std::io::{self, PipeWriter};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ExitStatus};
use std::sync::atomic::{AtomicI32, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::Context;
use rustix::process::{Pid, Signal, kill_process};

use crate::process::messages::say;
use crate::process::report;
use crate::process::signals::Signals;
use crate::record::shutdown::ENDED_EARLY;

/// Poll interval of the program's end.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Process id of the running viewer; 0 without one.
static RUNNING: AtomicI32 = AtomicI32::new(0);

/// Kills the viewer where the thread that would do it hangs.
pub(crate) fn kill_running() {
    if let Some(pid) = Pid::from_raw(RUNNING.load(Ordering::Acquire)) {
        let _ = kill_process(pid, Signal::KILL);
    }
}

/// Running viewer. Dropping it kills it.
pub(crate) struct Viewer {
    child: Child,
    /// End of the program, once it was seen.
    status: Option<ExitStatus>,
}

impl Viewer {
    /// Starts the program with these words, and returns it with the pipe that it reads.
    pub(crate) fn start(words: &[OsString]) -> anyhow::Result<(Viewer, PipeWriter)> {
        let program = report::program();
        let (reader, writer) = io::pipe().context("a pipe cannot be made")?;
        let spawned = report::spawn(&program, report::reader(), |command| {
            // A process group of its own: Ctrl-C ends the recorder, and the end of the stream the viewer, with its totals.
            command.args(words).stdin(reader.try_clone()?).process_group(0);
            Ok(())
        });
        let child = spawned.with_context(|| format!("{}: cannot be run", program.display()))?;
        RUNNING.store(Pid::from_child(&child).as_raw_nonzero().get(), Ordering::Release);
        Ok((Viewer { child, status: None }, writer))
    }

    /// True once the program has ended.
    pub(crate) fn has_ended(&mut self) -> bool {
        if self.status.is_none() {
            self.status = self.child.try_wait().ok().flatten();
            if self.status.is_some() {
                RUNNING.store(0, Ordering::Release);
            }
        }
        self.status.is_some()
    }

    /// Waits for the end of the program, whose stream has ended; a stop signal ends the wait. Returns its exit status.
    pub(crate) fn finish(mut self, signals: &Signals) -> u8 {
        while !self.has_ended() {
            if signals.is_pressing() {
                say("kmemtraced: the viewer was ended by a signal: what it has not printed yet is lost");
                return ENDED_EARLY;
            }
            thread::sleep(POLL_INTERVAL);
        }
        let Some(status) = self.status else { return ENDED_EARLY };
        if let Some(signal) = status.signal() {
            say(format!("kmemtraced: the viewer was killed by signal {signal}"));
        }
        status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(ENDED_EARLY)
    }
}

impl Drop for Viewer {
    fn drop(&mut self) {
        if !self.has_ended() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
