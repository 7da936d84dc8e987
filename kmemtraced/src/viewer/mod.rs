//! `kmemtraced top` and `kmemtraced watch`: a recorder, and the program that shows what it records.
//!
//! Both are child processes. This process has the user's terminal, and passes on what both may have of it:
//!
//! ```text
//!            stream (pipe)                       pty or two pipes
//! recorder ---------------> kmemtrace-report --------------------> filter --> terminal
//!    ^                        ^          \------- saved screens -> files
//!    |  orders (pipe)         | keys, size
//!    +------------------ this process <----- signals, keys
//! ```
//!
//! `start` starts a viewer as a user of its own (`identity`), `recorder` the recorder. `filter` is what may reach the terminal, `copy` has the
//! threads that copy, `terminal` the state of the user's terminal, `saved` the screens that are saved, `output` the lines that the recorder
//! writes while the screen is shown.

mod copy;
mod filter;
pub(crate) mod identity;
mod output;
mod recorder;
mod saved;
mod start;
mod terminal;

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, IsTerminal, PipeReader};
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::args::{Args, NOT_STARTED, TopArgs, WatchArgs};
use crate::choices::Priority;
use crate::process::messages::{self, say};
use crate::process::report;
use crate::process::signals::Signals;
use crate::record::shutdown::{ENDED_EARLY, LAST_WORDS};
use crate::{top, watch};
use copy::{Copy, End, To};
use filter::Filter;
use identity::Identity;
use output::Output;
use recorder::Recorder;
use saved::Saved;
use start::{Descriptors, Started};
use terminal::{Pty, UsersTerminal};

/// Poll interval of keys, signals and processes.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Time that a screen has to end once it was asked to, and a program that prints totals.
const SCREENS_TIME: Duration = Duration::from_secs(1);
const TOTALS_TIME: Duration = Duration::from_secs(5);
/// Time that the recorder has to end once it was asked a second time.
const LAST_TIME: Duration = Duration::from_millis(900);
/// Time in which the end of a viewer and a signal have the same cause.
const SAME_END: Duration = Duration::from_millis(500);
/// Time that a copy of what was printed has once the viewer was killed.
const COPYS_TIME: Duration = Duration::from_millis(300);
/// Key that ends a screen, and the recorder once there is none.
const QUIT: u8 = b'q';

/// Kind of a viewer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A screen, which stays when the recording ends by itself.
    Screen,
    /// A program that prints lines, and ends with the stream.
    Lines,
}

/// Records and shows the screen; the exit status.
pub(crate) fn top(args: TopArgs) -> anyhow::Result<u8> {
    let args = top::recording(args)?;
    check_terminal()?;
    let words = top::words(&args);
    show(Kind::Screen, &args, words)
}

/// Records and prints; the exit status.
pub(crate) fn watch(args: WatchArgs) -> anyhow::Result<u8> {
    let words = watch::words(&args);
    let args = watch::recording(args)?;
    show(Kind::Lines, &args, words)
}

/// Refuses what is no terminal.
fn check_terminal() -> anyhow::Result<()> {
    let term = std::env::var("TERM").unwrap_or_default();
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() || term.is_empty() || term == "dumb" {
        bail!(
            "top: there is no terminal that a screen can be drawn on: run kmemtraced, and beside it kmemtrace-report top --batch N"
        );
    }
    Ok(())
}

/// Starts both programs, and waits for their end.
fn show(kind: Kind, args: &Args, words: Vec<OsString>) -> anyhow::Result<u8> {
    messages::start(Priority::None, args.sandbox, kind != Kind::Screen)?;
    let signals = Signals::take()?;
    let program = start::found(report::program())?;
    // Without a terminal for the screen nothing is recorded.
    let pty = if kind == Kind::Screen { Some(Pty::open()?) } else { None };
    let mut output = match kind {
        Kind::Screen => Some(Output::new().context("the recorder's lines cannot be taken")?),
        Kind::Lines => None,
    };
    let typed: Vec<OsString> = std::env::args_os().skip(1).collect();
    let (recorder, stream) = Recorder::start(&typed, output.as_mut())?;
    let both = Both {
        kind,
        args,
        recorder,
        waiting: Some(Waiting { stream, program, words, pty }),
        viewer: None,
        terminal: UsersTerminal::new(),
        signals,
        last: None,
        pressed: 0,
        seen: 0,
        is_gone: false,
        asked: 0,
        viewed_until: None,
        kill_at: None,
        was_forced: false,
        failure: None,
        was_refused: false,
        notes: Vec::new(),
    };
    let (status, lines) = both.run();
    if let Some(output) = output {
        output.show();
    }
    lines.into_iter().for_each(say);
    messages::finish(LAST_WORDS);
    status
}

/// A viewer that is started once the recorder writes: one that cannot record has no screen.
struct Waiting {
    stream: PipeReader,
    program: PathBuf,
    words: Vec<OsString>,
    pty: Option<Pty>,
}

/// Running viewer.
struct Viewer {
    child: Child,
    status: Option<ExitStatus>,
    /// Our end of its terminal.
    keys: Option<OwnedFd>,
    copies: Vec<Copy>,
    saved: Option<Saved>,
    /// Time at which it is killed.
    deadline: Option<Instant>,
    /// It was asked to end by this process.
    was_asked: bool,
    /// It was killed by this process.
    was_killed: bool,
    identity: Option<Identity>,
}

impl Viewer {
    fn has_ended(&mut self) -> bool {
        if self.status.is_none() {
            self.status = self.child.try_wait().ok().flatten();
        }
        self.status.is_some() || self.was_killed
    }

    /// Kills what a viewer that has ended left running, in whatever session: it would hold the stream open, and with it the recorder.
    fn end_its_processes(&self) {
        self.identity.as_ref().into_iter().for_each(Identity::kill_processes);
    }

    fn ask_to_end(&mut self) {
        if !self.has_ended() {
            self.was_asked = true;
            let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        }
    }

    /// True for the signal by which it was asked to end, before it could catch it.
    fn was_ended_by(&self, signal: i32) -> bool {
        self.was_asked && signal == Signal::TERM.as_raw()
    }

    /// Kills it, with the processes of its session that it has left in its group.
    fn kill(&mut self) {
        if self.has_ended() {
            return;
        }
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        let _ = self.child.kill();
        let begun = Instant::now();
        while !self.has_ended() && begun.elapsed() < COPYS_TIME {
            thread::sleep(POLL_INTERVAL);
        }
        self.was_killed = true;
    }

    /// Kills it once its time is over.
    fn look(&mut self) {
        if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            self.kill();
        }
    }
}

/// Both processes, and how far they have been asked to end.
struct Both<'a> {
    kind: Kind,
    args: &'a Args,
    recorder: Recorder,
    waiting: Option<Waiting>,
    viewer: Option<Viewer>,
    terminal: UsersTerminal,
    signals: Signals,
    /// Time of the last signal.
    last: Option<Instant>,
    /// Ends that the user has asked for by keys.
    pressed: u32,
    /// Ends by signals and keys that were acted on.
    seen: u32,
    /// The terminal is gone.
    is_gone: bool,
    /// Times that the end was asked for: 1 in order, 2 at once.
    asked: u8,
    /// Time at which the viewer ended by itself.
    viewed_until: Option<Instant>,
    /// Time at which the recorder is killed.
    kill_at: Option<Instant>,
    /// The recorder was killed by this process.
    was_forced: bool,
    /// Reason for which there is no viewer.
    failure: Option<anyhow::Error>,
    /// What the viewer printed could not be written.
    was_refused: bool,
    /// Lines that wait until the screen is gone.
    notes: Vec<String>,
}

impl Both<'_> {
    /// Runs both to their end. Returns the exit status, and lines for the user.
    fn run(mut self) -> (anyhow::Result<u8>, Vec<String>) {
        let (mut is_undone, mut is_told) = (false, false);
        loop {
            self.start_viewer_if_due();
            self.take_keys();
            self.take_signals();
            if self.signals.limit().is_some() && !std::mem::replace(&mut is_told, true) {
                self.recorder.signal(Signal::POWER);
            }
            let recorded = self.recorder.ended();
            if recorded.is_some_and(recorder::was_killed) && !std::mem::replace(&mut is_undone, true) {
                self.undo();
            }
            if self.look_at_viewer(recorded.is_some()) && (recorded.is_some() || self.is_past(LAST_TIME)) {
                break;
            }
            if recorded.is_none() && self.is_past(Duration::ZERO) {
                self.recorder.kill();
                self.was_forced = true;
            }
        }
        let lines = self.close_viewer();
        (self.status(), lines)
    }

    /// True once so much time has passed since the recorder was to be killed.
    fn is_past(&self, time: Duration) -> bool {
        self.kill_at.is_some_and(|kill_at| Instant::now() >= kill_at + time)
    }

    fn undo(&self) {
        recorder::undo(&self.args.instance, self.args.tracefs.as_deref().map(AsRef::as_ref));
    }

    /// Acts on signals, and on keys that end it.
    fn take_signals(&mut self) {
        self.signals.count(&mut self.last);
        if self.signals.wants_counters() {
            self.recorder.signal(Signal::USR1);
        }
        let [interrupt, hangup] = [Signal::INT, Signal::HUP].map(|signal| u8::try_from(signal.as_raw()).unwrap_or(0));
        // A terminal that is gone sends a signal, too.
        let signalled = self.signals.stops().max(u32::from(self.is_gone));
        let last = match self.signals.last_stop() {
            0 if self.is_gone => hangup,
            0 => interrupt,
            last => last,
        };
        while self.seen < signalled + self.pressed {
            self.seen += 1;
            self.ask(last);
        }
    }

    /// Looks whether the viewer has ended, or has to; true where there is none any more.
    fn look_at_viewer(&mut self, has_ended: bool) -> bool {
        let (kind, asked, is_recorded) = (self.kind, self.asked, self.recorder.has_recorded());
        let Some(viewer) = &mut self.viewer else { return self.waiting.is_none() || has_ended || asked > 0 };
        if viewer.has_ended() {
            viewer.end_its_processes();
            self.leave_screen();
            // A recorder without a viewer has no purpose.
            if self.asked == 0 {
                self.viewed_until = Some(Instant::now());
                self.raise(1, 0);
            }
            return true;
        }
        let time = match kind {
            Kind::Screen if asked > 0 => Some(SCREENS_TIME),
            Kind::Lines if is_recorded => Some(TOTALS_TIME),
            _ => None,
        };
        if viewer.deadline.is_none() {
            viewer.deadline = time.map(|time| Instant::now() + time);
        }
        viewer.look();
        false
    }

    /// Asks both to end once more.
    fn ask(&mut self, signal: u8) {
        // A terminal that is closed ends a viewer and sends a signal.
        let is_same = self.viewed_until.is_some_and(|time| time.elapsed() < SAME_END);
        self.raise(if is_same { 1 } else { self.asked + 1 }, signal);
        if let Some(viewer) = self.viewer.as_mut().filter(|_| self.kind == Kind::Screen) {
            viewer.ask_to_end();
        }
    }

    fn raise(&mut self, asked: u8, signal: u8) {
        if asked <= self.asked || self.asked > 1 {
            return;
        }
        self.asked = asked;
        self.recorder.ask(asked, signal);
        if asked > 1 {
            self.kill_at = Some(Instant::now() + LAST_TIME);
            if let Some(viewer) = &mut self.viewer {
                viewer.kill();
            }
        }
    }

    /// Takes keys, and the size of the terminal.
    fn take_keys(&mut self) {
        let typed = self.terminal.read(POLL_INTERVAL);
        match self.viewer.as_ref().filter(|viewer| viewer.status.is_none() && !viewer.was_killed) {
            Some(Viewer { keys: Some(pty), saved, .. }) => {
                self.terminal.pass_size(pty);
                if let Some(saved) = saved {
                    saved.note(&typed.keys);
                }
                terminal::press(&typed.keys, pty);
            }
            _ => self.pressed += u32::from(typed.keys.contains(&QUIT)),
        }
        self.pressed += u32::from(typed.stops);
        self.is_gone |= typed.is_gone;
    }

    /// Starts the viewer once the stream has begun.
    fn start_viewer_if_due(&mut self) {
        if self.asked > 0 || !self.waiting.as_ref().is_some_and(|waiting| has_begun(&waiting.stream)) {
            return;
        }
        let Some(waiting) = self.waiting.take() else { return };
        match self.start_viewer(waiting) {
            Ok(viewer) => self.viewer = Some(viewer),
            Err(error) => {
                self.failure = Some(error);
                self.raise(1, 0);
            }
        }
    }

    fn start_viewer(&mut self, waiting: Waiting) -> anyhow::Result<Viewer> {
        let Waiting { stream, program, mut words, pty } = waiting;
        let pipe = || io::pipe().context("a pipe cannot be made");
        let mut sources = Vec::new();
        let (mut more, mut keys, mut saved) = (Vec::new(), None, None);
        let descriptors = match pty {
            Some(Pty { ours, its }) => {
                self.terminal.take()?;
                self.terminal.pass_size(&ours);
                let (screens, screens_end) = pipe()?;
                saved = Some(Saved::start(File::from(OwnedFd::from(screens)))?);
                sources.push((terminal::reader(&ours)?, To::Output));
                keys = Some(ours);
                Descriptors::Screen { terminal: its, stream, saved: screens_end.into() }
            }
            None => {
                let ((output, output_end), (error, error_end)) = (pipe()?, pipe()?);
                sources.push((File::from(OwnedFd::from(output)), To::Output));
                sources.push((File::from(OwnedFd::from(error)), To::Error));
                more = of_terminal(&mut words);
                Descriptors::Lines { stream, output: output_end.into(), error: error_end.into() }
            }
        };
        let Started { child, identity } = start::start(&program, &words, &descriptors, &more)?;
        drop(descriptors);
        if identity.is_none() && self.args.verbose {
            self.notes.push(
                "the viewer had the user of this process: there is no other one here that it could have".to_owned(),
            );
        }
        let mut viewer = Viewer {
            child,
            status: None,
            keys,
            copies: Vec::new(),
            saved,
            deadline: None,
            was_asked: false,
            was_killed: false,
            identity,
        };
        for (from, to) in sources {
            let is_terminal = if to == To::Output { io::stdout().is_terminal() } else { io::stderr().is_terminal() };
            let filter = Filter::new(!is_terminal || start::is_unicode());
            match Copy::start(from, to, filter) {
                Ok(copy) => viewer.copies.push(copy),
                Err(error) => {
                    viewer.kill();
                    return Err(error).context("a thread cannot be started");
                }
            }
        }
        Ok(viewer)
    }

    /// Gives the user the usual screen back, while the recorder may still be ending.
    fn leave_screen(&mut self) {
        let Some(viewer) = self.viewer.as_mut().filter(|_| self.kind == Kind::Screen) else { return };
        for copy in std::mem::take(&mut viewer.copies) {
            // The last bytes of a screen that ends in order are those that leave it.
            let _ = copy.wait(COPYS_TIME);
            self.terminal.leave(copy.stop());
        }
    }

    /// Lets the copies of what was printed end, and gives the terminal back. Returns lines for the user.
    fn close_viewer(&mut self) -> Vec<String> {
        self.leave_screen();
        let Some(mut viewer) = self.viewer.take() else {
            self.terminal.give_back();
            return Vec::new();
        };
        let (ended, mut refused) = (Instant::now(), None);
        for copy in std::mem::take(&mut viewer.copies) {
            loop {
                match copy.wait(POLL_INTERVAL) {
                    End::Open if self.waits_for_copy(ended.elapsed(), viewer.was_killed) => {}
                    End::Open | End::Done => break,
                    End::Refused(error) => {
                        refused.get_or_insert(format!(
                            "kmemtraced: standard output: cannot be written: {error}: the lines since then are missing; write to a \
                             place with room, or keep the recording with -o DIR"
                        ));
                    }
                }
            }
            copy.stop();
        }
        self.was_refused = refused.is_some();
        let saved = viewer.saved.take();
        self.terminal.give_back();
        let mut lines = std::mem::take(&mut self.notes);
        lines.extend(saved.map_or_else(Vec::new, Saved::finish));
        lines.extend(self.end_of(&viewer).into_iter().chain(refused));
        self.viewer = Some(viewer);
        lines
    }

    /// True while what a viewer has printed may still be copied: to a slow reader as long as it takes, unless a signal asks for the end.
    fn waits_for_copy(&mut self, waited: Duration, was_killed: bool) -> bool {
        self.signals.count(&mut self.last);
        if was_killed || self.asked > 1 {
            return waited < COPYS_TIME;
        }
        match self.signals.stops() {
            0 => true,
            stops => stops <= self.seen && waited < TOTALS_TIME,
        }
    }

    /// Line about a viewer that did not end by itself.
    fn end_of(&self, viewer: &Viewer) -> Option<String> {
        let signal = match viewer.status {
            Some(status) => status.signal()?,
            None => Signal::KILL.as_raw(),
        };
        Some(match self.kind {
            Kind::Screen if viewer.was_killed => "kmemtraced: the screen did not end in time and was killed".to_owned(),
            Kind::Screen if viewer.was_ended_by(signal) => return None,
            Kind::Screen => format!("kmemtraced: the screen was killed by signal {signal}: the recording has ended"),
            Kind::Lines if viewer.was_killed => {
                "kmemtraced: the viewer did not end in time and was killed: what it has not printed is lost".to_owned()
            }
            Kind::Lines => format!("kmemtraced: the viewer was killed by signal {signal}"),
        })
    }

    /// Exit status: the recorder's; where that has nothing to report, the viewer's.
    fn status(mut self) -> anyhow::Result<u8> {
        if self.was_forced {
            if self.recorder.ended().is_none() {
                // The kernel holds it, and its instance may be free all the same.
                self.undo();
            }
            say("kmemtraced: the recorder did not end within a second and was killed: what it has written is valid");
            return Ok(ENDED_EARLY);
        }
        let ended = self.recorder.ended();
        // A viewer tells that its recording ended early; there is none before it begins.
        if let (Some(signal), None) = (ended.and_then(|status| status.signal()), &self.viewer) {
            say(format!(
                "kmemtraced: the recorder was killed by signal {signal} before it began to record: start it again"
            ));
        }
        let recorded = ended.and_then(|status| u8::try_from(status.code()?).ok()).unwrap_or(ENDED_EARLY);
        if let Some(failure) = self.failure {
            return Err(failure);
        }
        let Some(viewer) = self.viewer.as_ref().filter(|_| recorded == 0) else { return Ok(recorded) };
        let viewed = viewer.status.and_then(|status| u8::try_from(status.code()?).ok());
        let signal = viewer.status.and_then(|status| status.signal());
        Ok(match self.kind {
            _ if self.was_refused => NOT_STARTED,
            // The recording is whole, whatever became of its screen.
            Kind::Screen if self.asked < 2 && (viewer.was_killed || signal.is_some_and(|s| viewer.was_ended_by(s))) => {
                0
            }
            Kind::Screen if viewed == Some(0) => 0,
            Kind::Screen => ENDED_EARLY,
            Kind::Lines => viewed.unwrap_or(ENDED_EARLY),
        })
    }
}

/// True once there are bytes in the stream.
fn has_begun(stream: &PipeReader) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let mut fds = [PollFd::new(stream, PollFlags::IN)];
    matches!(poll(&mut fds, Some(&now)), Ok(1..)) && fds[0].revents().contains(PollFlags::IN)
}

/// Tells a program that prints through pipes which of them lead to a terminal: in its words, and by variables.
fn of_terminal(words: &mut Vec<OsString>) -> Vec<(&'static str, String)> {
    let (output, error) = (io::stdout().is_terminal(), io::stderr().is_terminal());
    let copied: Vec<&str> =
        [("stdout", output), ("stderr", error)].iter().filter(|(_, is)| *is).map(|(name, _)| *name).collect();
    if !copied.is_empty() {
        words.extend(["--copied".into(), copied.join(",").into()]);
    }
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok().filter(|size| size.ws_col > 0 && output);
    let is_set = std::env::var_os("COLUMNS").is_some_and(|columns| !columns.is_empty());
    size.filter(|_| !is_set).map(|size| ("COLUMNS", size.ws_col.to_string())).into_iter().collect()
}
