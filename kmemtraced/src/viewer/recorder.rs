//! The recorder as a child process of the one that has the viewer: it goes on whatever the viewer does.

use std::ffi::{OsStr, OsString};
use std::io::{self, PipeReader, PipeWriter, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};

use super::output::Output;

/// Word by which a recorder knows that it is one of these.
const SERVED: &str = "--served";
/// Poll interval of a child.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// Longest time that undoing may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Running recorder.
pub(super) struct Recorder {
    child: Child,
    orders: PipeWriter,
    /// Times that it was asked to stop.
    asked: u8,
    status: Option<ExitStatus>,
}

/// Path of this program.
fn program() -> PathBuf {
    std::env::current_exe().unwrap_or_else(|_| "kmemtraced".into())
}

impl Recorder {
    /// Starts this program again, with the same words and one more. Returns the end of the stream that is read. Lines of the recorder, and of
    /// COMMAND, go to `output` where that is given.
    pub(super) fn start(words: &[OsString], output: Option<&mut Output>) -> anyhow::Result<(Recorder, PipeReader)> {
        let program = program();
        let (stream, stream_end) = io::pipe().context("a pipe cannot be made")?;
        let (orders_end, orders) = io::pipe().context("a pipe cannot be made")?;
        let mut command = Command::new(&program);
        command.args(with_word(words));
        if let Some(output) = output {
            let [out, error] = output.ends().context("the recorder's lines cannot be taken")?;
            command.stdin(Stdio::null()).stdout(out).stderr(error);
        }
        kmemtrace_sandbox::child::pass(&mut command, vec![stream_end.into(), orders_end.into()])
            .context("descriptors cannot be passed on")?;
        let child = command.spawn().with_context(|| format!("{}: cannot be run", program.display()))?;
        Ok((Recorder { child, orders, asked: 0, status: None }, stream))
    }

    /// Asks it to stop for the `asked`th time, because of a signal, 0 for none.
    pub(super) fn ask(&mut self, asked: u8, signal: u8) {
        if asked > self.asked {
            self.asked = asked;
            // Fails where the recorder has ended.
            let _ = self.orders.write_all(&[asked, signal]);
        }
    }

    /// Hands a signal on.
    pub(super) fn signal(&self, signal: Signal) {
        if self.status.is_none() {
            let _ = kill_process(Pid::from_child(&self.child), signal);
        }
    }

    /// Exit status, once it has ended.
    pub(super) fn ended(&mut self) -> Option<ExitStatus> {
        if self.status.is_none() {
            self.status = self.child.try_wait().ok().flatten();
        }
        self.status
    }

    /// True once all is recorded: it takes no more orders, or has ended.
    pub(super) fn has_recorded(&mut self) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut fds = [PollFd::new(&self.orders, PollFlags::empty())];
        let takes_none = matches!(poll(&mut fds, Some(&now)), Ok(1..)) && fds[0].revents().contains(PollFlags::ERR);
        takes_none || self.ended().is_some()
    }

    /// Kills it, whether or not it is stopped.
    pub(super) fn kill(&mut self) {
        let _ = self.child.kill();
    }
}

/// Undoes what a killed recorder has left in the kernel.
pub(super) fn undo(instance: &str, tracefs: Option<&OsStr>) {
    let mut command = Command::new(program());
    command.args(["recover", "-B", instance]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    if let Some(tracefs) = tracefs {
        command.arg("--tracefs").arg(tracefs);
    }
    let Ok(mut child) = command.spawn() else { return };
    let begun = Instant::now();
    while matches!(child.try_wait(), Ok(None)) {
        if begun.elapsed() > PATIENCE {
            let _ = child.kill();
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// True if a signal ended it.
pub(super) fn was_killed(status: ExitStatus) -> bool {
    status.signal().is_some()
}

/// The words, with the one that makes a recorder of this program before COMMAND.
fn with_word(words: &[OsString]) -> Vec<OsString> {
    let at = words.iter().position(|word| word == "--").unwrap_or(words.len());
    let (ours, command) = words.split_at(at);
    [ours, &[SERVED.into()], command].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_recorder_gets_its_word_before_the_command() {
        let words = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
        assert_eq!(with_word(&words("top -e page")), words("top -e page --served"));
        assert_eq!(with_word(&words("watch -- sh -- x")), words("watch --served -- sh -- x"));
    }
}
