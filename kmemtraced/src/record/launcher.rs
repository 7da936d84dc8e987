//! Launcher: a process that starts COMMAND and the reports, with the caller's privileges, limits, priority and OOM score.
//!
//! It is forked before the recorder changes any of these, and has no descriptor of the recording. Orders come through one pipe, and what
//! became of them goes back through another. The launcher ends when the recorder's end of the pipe is closed; one that was stopped, by
//! COMMAND maybe, is killed by the kernel when the recorder ends, and nobody waits for its answers without end.
//!
//! The kernel lists the tasks of a recording of COMMAND alone by thread id, and adds the children of a listed task when they are made. So a
//! thread of its own starts such a COMMAND, which is recorded from its first event on, and ends. The kernel takes it off the list then.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::thread::{self, JoinHandle};

use anyhow::anyhow;
use crossbeam_channel::{Receiver, Sender};
use kmemtrace_abi::unreadable::more_files;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};

use crate::process::report;
use crate::process::signals::Signals;
use crate::process::thread::own_tid;

/// Stack of the thread that starts COMMAND, bytes.
const STACK: usize = 256 << 10;
/// Interval at which a wait for an answer checks whether the answer is still wanted.
const ANSWER_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
/// Intervals for which the recorder waits for the start of COMMAND. It reads nothing from the buffers meanwhile; [`Launcher::try_wait`] takes
/// a later answer.
const START_INTERVALS: u32 = 50;
/// Intervals, or calls of [`Launcher::try_wait`], after which a launcher that has not answered is given up. They are counted, so that time
/// for which the recorder itself was stopped does not count.
const ANSWER_INTERVALS: u32 = 1500;
/// Intervals for which a recorder that is about to end waits for the answer to its last order.
const LAST_INTERVALS: u32 = 10;
/// Calls of [`Launcher::try_wait`] after which the launcher is asked for a sign of life.
const LOOKS: u32 = 50;
/// Name of the process, so that it is not taken for the recorder.
const NAME: &std::ffi::CStr = c"kmemtrace-run";

/// What the launcher may be told to start.
#[derive(Debug)]
pub(crate) struct Job {
    /// COMMAND with its words; empty without one.
    pub(crate) command: Vec<OsString>,
    /// Words of each report, without the trace directory.
    pub(crate) reports: Vec<Vec<String>>,
    /// File that the reports are written to, in place of standard output.
    pub(crate) file: Option<File>,
}

/// Kinds of frames, those of orders first.
mod kind {
    /// Makes the thread that starts COMMAND; answered by `THREAD`.
    pub(super) const PREPARE: u8 = 1;
    /// Starts COMMAND; answered by `STARTED` or `FAILED`.
    pub(super) const COMMAND: u8 = 2;
    /// Starts the report of a number, on a directory whose path has a length and follows; answered by `STARTED` or `FAILED`.
    pub(super) const REPORT: u8 = 3;
    /// Sends a program a signal, 0 for none; answered by `SIGNALLED`.
    pub(super) const SIGNAL: u8 = 4;
    /// Thread id.
    pub(super) const THREAD: u8 = 5;
    /// Process id of a program that was started.
    pub(super) const STARTED: u8 = 6;
    /// Number of an error, 0 where it has none.
    pub(super) const FAILED: u8 = 7;
    /// Process id and status of a program that has ended; comes unasked.
    pub(super) const ENDED: u8 = 8;
    pub(super) const SIGNALLED: u8 = 9;
}

/// An order or an answer: its kind, and two numbers.
#[derive(Clone, Copy, Debug)]
struct Frame(u8, i32, i32);

impl Frame {
    fn write(self, pipe: &mut PipeWriter, path: &[u8]) -> io::Result<()> {
        let Frame(kind, first, second) = self;
        pipe.write_all(&[&[kind], &first.to_ne_bytes()[..], &second.to_ne_bytes(), path].concat())
    }

    fn read(pipe: &mut PipeReader) -> io::Result<Frame> {
        let (mut kind, mut first, mut second) = ([0], [0; 4], [0; 4]);
        pipe.read_exact(&mut kind)?;
        pipe.read_exact(&mut first)?;
        pipe.read_exact(&mut second)?;
        Ok(Frame(kind[0], i32::from_ne_bytes(first), i32::from_ne_bytes(second)))
    }
}

/// Program that the launcher has started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Program {
    /// Process id; `None` if the launcher was killed or stopped, maybe by the program itself, before it told the id.
    pub(crate) pid: Option<i32>,
}

/// The launcher, as the recorder has it.
#[derive(Debug)]
pub(crate) struct Launcher {
    /// Process id.
    pub(crate) pid: i32,
    orders: PipeWriter,
    answers: PipeReader,
    /// Number of orders without an answer.
    unanswered: u32,
    /// Calls of [`Launcher::try_wait`] since the last order or answer.
    looks: u32,
    /// Process id of COMMAND, if it came after [`Launcher::launch`] had stopped waiting.
    late: Option<i32>,
    ended: Vec<(i32, ExitStatus)>,
}

impl Launcher {
    fn new(pid: i32, orders: PipeWriter, answers: PipeReader) -> Launcher {
        Launcher { pid, orders, answers, unanswered: 0, looks: 0, late: None, ended: Vec::new() }
    }

    /// Forks the launcher, before the first thread is started; `None` where there is nothing to start. It does without the descriptors of
    /// the recording that are there.
    pub(crate) fn fork(job: Job, of_recording: &mut Option<impl Sized>) -> anyhow::Result<Option<Launcher>> {
        if job.command.is_empty() && job.reports.is_empty() {
            return Ok(None);
        }
        let pipe = || io::pipe().map_err(|error| anyhow!("a pipe cannot be made: {error}{}", more_files(&error)));
        let ((orders_in, orders), (answers, answers_out)) = (pipe()?, pipe()?);
        let forked = kmemtrace_sandbox::fork_first().map_err(|error| {
            anyhow!(
                "the process that starts programs cannot be forked: {error}: allow more (pids.max of the cgroup, ulimit -u)"
            )
        })?;
        if let Some(pid) = forked {
            return Ok(Some(Launcher::new(pid, orders, answers)));
        }
        drop((orders, answers, of_recording.take()));
        let _ = rustix::thread::set_name(NAME);
        // A launcher that is stopped does not see that the recorder has ended.
        let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
        // Handlers, which programs do not inherit: a signal for the whole process group is for the recorder and for COMMAND.
        let _ = Signals::take();
        // A recorder that is gone has no use for the reason.
        let _ = Server::serve(job, orders_in, answers_out);
        std::process::exit(0);
    }

    fn order(&mut self, frame: Frame, path: &[u8]) -> io::Result<()> {
        self.unanswered += 1;
        self.looks = 0;
        frame.write(&mut self.orders, path).map_err(|error| match error.kind() {
            io::ErrorKind::BrokenPipe => killed(),
            _ => error,
        })
    }

    /// Next answer that is there; programs that have ended are noted.
    fn next(&mut self) -> io::Result<Option<Frame>> {
        while has_data(&self.answers, Timespec::default())? {
            match Frame::read(&mut self.answers) {
                Ok(Frame(kind::ENDED, pid, status)) => self.ended.push((pid, ExitStatus::from_raw(status))),
                Ok(answer) => {
                    self.unanswered = self.unanswered.saturating_sub(1);
                    self.looks = 0;
                    return Ok(Some(answer));
                }
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Err(killed()),
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// The answer to the last order. An error of the kind `TimedOut` if there is none within some [`ANSWER_INTERVAL`], or `is_over`.
    fn answer(&mut self, intervals: u32, is_over: impl Fn() -> bool) -> io::Result<Frame> {
        for _ in 0..intervals {
            if has_data(&self.answers, ANSWER_INTERVAL)?
                && let Some(answer) = self.next()?
                && self.unanswered == 0
            {
                return Ok(answer);
            }
            if is_over() {
                break;
            }
        }
        Err(self.silent())
    }

    /// Id of the thread that will start COMMAND.
    pub(crate) fn prepare(&mut self) -> io::Result<i32> {
        self.order(Frame(kind::PREPARE, 0, 0), &[])?;
        match self.answer(ANSWER_INTERVALS, || false)? {
            Frame(kind::THREAD, tid, _) => Ok(tid),
            Frame(_, error, _) => Err(io::Error::from_raw_os_error(error)),
        }
    }

    /// Starts COMMAND; `is_over`: nobody waits for the answer any more. If the launcher is killed or stopped meanwhile, COMMAND may run, and
    /// the next wait for its end says so.
    pub(crate) fn launch(&mut self, is_over: impl Fn() -> bool) -> io::Result<Program> {
        self.order(Frame(kind::COMMAND, 0, 0), &[])?;
        match self.started(START_INTERVALS, is_over) {
            Err(error) if matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::TimedOut) => {
                Ok(Program { pid: None })
            }
            started => started,
        }
    }

    /// Starts a report of this directory, by its number.
    pub(crate) fn report(&mut self, number: usize, dir: &Path, is_over: impl Fn() -> bool) -> io::Result<Program> {
        let path = dir.as_os_str().as_bytes();
        let [number, len] = [number, path.len()].map(|n| i32::try_from(n).unwrap_or(i32::MAX));
        self.order(Frame(kind::REPORT, number, len), path)?;
        self.started(ANSWER_INTERVALS, is_over)
    }

    fn started(&mut self, intervals: u32, is_over: impl Fn() -> bool) -> io::Result<Program> {
        match self.answer(intervals, is_over)? {
            Frame(kind::STARTED, pid, _) => Ok(Program { pid: Some(pid) }),
            Frame(_, error, _) => Err(not_run(error)),
        }
    }

    /// Sends a program that was started a signal, if it still runs; false where its process id is not known yet.
    pub(crate) fn signal(&mut self, program: Program, signal: Signal) -> bool {
        let Some(pid) = program.pid.or(self.late) else { return false };
        // A launcher that is gone is told by the next wait.
        let _ = self.order(Frame(kind::SIGNAL, pid, signal.as_raw()), &[]);
        true
    }

    /// True while an order has no answer.
    fn is_silent(&self) -> bool {
        self.unanswered > 0
    }

    /// Waits a moment for the answer to the last order; true if it came. Before it, the launcher may not have carried the order out.
    pub(crate) fn answers(&mut self) -> bool {
        !self.is_silent() || self.answer(LAST_INTERVALS, || false).is_ok()
    }

    /// True once: at the call of [`Launcher::try_wait`] that gives the launcher up.
    pub(crate) fn has_gone_silent(&self) -> bool {
        self.is_silent() && self.looks == ANSWER_INTERVALS
    }

    /// Status of a program, if it has ended; now and then, the launcher is asked for a sign of life. An error if the launcher was killed,
    /// and the end of its programs cannot be known, or if a COMMAND whose start nobody waited for could not be run.
    pub(crate) fn try_wait(&mut self, program: Program) -> io::Result<Option<ExitStatus>> {
        while let Some(answer) = self.next()? {
            match answer {
                Frame(kind::STARTED, pid, _) => self.late = Some(pid),
                Frame(kind::FAILED, error, _) => return Err(not_run(error)),
                Frame(..) => {}
            }
        }
        let pid = program.pid.or(self.late);
        if let Some((_, status)) = self.ended.iter().find(|(ended, _)| Some(*ended) == pid) {
            return Ok(Some(*status));
        }
        self.looks = self.looks.saturating_add(1);
        if !self.is_silent() && self.looks >= LOOKS {
            self.order(Frame(kind::SIGNAL, 0, 0), &[])?;
        }
        Ok(None)
    }

    /// Error of a launcher that does not answer.
    pub(crate) fn silent(&self) -> io::Error {
        let text = format!(
            "the process that starts programs ({}, pid {}) does not answer: another program may have stopped it",
            NAME.to_string_lossy(),
            self.pid
        );
        io::Error::new(io::ErrorKind::TimedOut, text)
    }
}

/// Error of a launcher that is gone.
fn killed() -> io::Error {
    let text = format!("the process that starts programs ({}) was killed", NAME.to_string_lossy());
    io::Error::new(io::ErrorKind::UnexpectedEof, text)
}

/// Error of a program that cannot be run. It has no number where it could be taken for a refusal of the sandbox, which is not around the
/// launcher.
fn not_run(errno: i32) -> io::Error {
    let error = io::Error::from_raw_os_error(errno);
    match error.kind() {
        kind @ io::ErrorKind::PermissionDenied => {
            io::Error::new(kind, "it is a directory, or may not be executed: use an executable file")
        }
        _ => error,
    }
}

/// True if a read does not wait, now or within a time.
fn has_data(pipe: &PipeReader, time: Timespec) -> io::Result<bool> {
    match poll(&mut [PollFd::new(pipe, PollFlags::IN)], Some(&time)) {
        Err(Errno::INTR) => Ok(false),
        ready => Ok(ready? > 0),
    }
}

/// The launcher itself.
struct Server {
    job: Job,
    orders: PipeReader,
    answers: PipeWriter,
    /// Thread that starts COMMAND alone.
    alone: Option<Alone>,
    running: Vec<Child>,
}

impl Server {
    /// Carries orders out until there will be no more.
    fn serve(job: Job, orders: PipeReader, answers: PipeWriter) -> io::Result<()> {
        let (mut woken, wake) = io::pipe()?;
        signal_hook::low_level::pipe::register(Signal::CHILD.as_raw(), wake)?;
        let mut server = Server { job, orders, answers, alone: None, running: Vec::new() };
        loop {
            server.tell_ended()?;
            let (of_orders, of_children) = {
                let mut pipes =
                    [server.orders.as_fd(), woken.as_fd()].map(|pipe| PollFd::from_borrowed_fd(pipe, PollFlags::IN));
                match poll(&mut pipes, None) {
                    Err(Errno::INTR) => continue,
                    ready => ready?,
                };
                (!pipes[0].revents().is_empty(), !pipes[1].revents().is_empty())
            };
            if of_children {
                let _ = woken.read(&mut [0; 64])?;
            }
            if of_orders {
                let order = Frame::read(&mut server.orders)?;
                server.carry_out(order)?;
            }
        }
    }

    fn answer(&mut self, answer: Frame) -> io::Result<()> {
        answer.write(&mut self.answers, &[])
    }

    /// Tells of the programs that have ended since the last call.
    fn tell_ended(&mut self) -> io::Result<()> {
        let mut ended = Vec::new();
        self.running.retain_mut(|child| match child.try_wait() {
            Ok(None) => true,
            Ok(Some(status)) => {
                ended.push(Frame(kind::ENDED, child.id().cast_signed(), status.into_raw()));
                false
            }
            Err(_) => false,
        });
        ended.into_iter().try_for_each(|frame| self.answer(frame))
    }

    fn carry_out(&mut self, order: Frame) -> io::Result<()> {
        match order {
            Frame(kind::PREPARE, ..) => {
                let prepared = Alone::start(&self.job.command);
                let answer = prepared.map(|alone| {
                    let tid = alone.tid;
                    self.alone = Some(alone);
                    Frame(kind::THREAD, tid, 0)
                });
                self.answer(answer.unwrap_or_else(|error| failure(&error)))
            }
            Frame(kind::COMMAND, ..) => {
                let started = match self.alone.take() {
                    Some(alone) => alone.launch(),
                    None => spawn(&self.job.command),
                };
                self.tell_started(started)
            }
            Frame(kind::REPORT, number, len) => {
                let mut path = vec![0; usize::try_from(len).unwrap_or(0)];
                self.orders.read_exact(&mut path)?;
                let started = self.report(usize::try_from(number).unwrap_or(usize::MAX), OsStr::from_bytes(&path));
                self.tell_started(started)
            }
            Frame(kind::SIGNAL, pid, signal) => {
                let is_running = self.running.iter().any(|child| child.id().cast_signed() == pid);
                if let (true, Some(pid), Some(signal)) =
                    (is_running, Pid::from_raw(pid), Signal::from_named_raw(signal))
                {
                    let _ = kill_process(pid, signal);
                }
                self.answer(Frame(kind::SIGNALLED, 0, 0))
            }
            Frame(..) => Ok(()),
        }
    }

    fn tell_started(&mut self, started: io::Result<Child>) -> io::Result<()> {
        let answer = match started {
            Ok(child) => {
                let pid = child.id().cast_signed();
                self.running.push(child);
                Frame(kind::STARTED, pid, 0)
            }
            Err(error) => failure(&error),
        };
        self.answer(answer)
    }

    fn report(&self, number: usize, dir: &OsStr) -> io::Result<Child> {
        let mut command = Command::new(report::program());
        // A recorder ends by itself: no pager waits for somebody who leaves it.
        command.env("KMEMTRACE_PAGER", "");
        command.args(self.job.reports.get(number).into_iter().flatten()).arg(dir);
        if let Some(file) = &self.job.file {
            command.stdout(file.try_clone()?);
        }
        command.spawn()
    }
}

fn failure(error: &io::Error) -> Frame {
    Frame(kind::FAILED, error.raw_os_error().unwrap_or(Errno::INVAL.raw_os_error()), 0)
}

fn spawn(command: &[OsString]) -> io::Result<Child> {
    let (program, rest) = command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    Command::new(program).args(rest).spawn()
}

/// A thread that waits for the order to start COMMAND.
struct Alone {
    tid: i32,
    go: Sender<()>,
    thread: JoinHandle<io::Result<Child>>,
}

impl Alone {
    fn start(command: &[OsString]) -> io::Result<Alone> {
        let (tid_out, tid) = crossbeam_channel::bounded(1);
        let (go, order): (Sender<()>, Receiver<()>) = crossbeam_channel::bounded(1);
        let command = command.to_vec();
        let work = move || {
            let _ = tid_out.send(own_tid());
            order.recv().map_err(io::Error::other).and_then(|()| spawn(&command))
        };
        let thread = thread::Builder::new().name("launch".into()).stack_size(STACK).spawn(work)?;
        Ok(Alone { tid: tid.recv().map_err(io::Error::other)?, go, thread })
    }

    fn launch(self) -> io::Result<Child> {
        let _ = self.go.send(());
        self.thread.join().unwrap_or_else(|_| Err(io::Error::other("the thread has failed")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A launcher that is a thread of the test, which may not fork.
    fn launcher(job: Job) -> Launcher {
        let (orders_in, orders) = io::pipe().unwrap();
        let (answers, answers_out) = io::pipe().unwrap();
        thread::spawn(move || Server::serve(job, orders_in, answers_out));
        Launcher::new(0, orders, answers)
    }

    fn ended(launcher: &mut Launcher, program: Program) -> ExitStatus {
        loop {
            if let Some(status) = launcher.try_wait(program).unwrap() {
                return status;
            }
            thread::sleep(std::time::Duration::from_millis(2));
        }
    }

    fn job(command: &[&str]) -> Job {
        Job { command: command.iter().map(OsString::from).collect(), reports: Vec::new(), file: None }
    }

    #[test]
    fn a_command_is_started_signalled_and_its_status_told() {
        let mut quick = launcher(job(&["sh", "-c", "exit 7"]));
        let tid = quick.prepare().unwrap();
        assert!(tid > 0 && tid != own_tid());
        let program = quick.launch(|| false).unwrap();
        assert_eq!(ended(&mut quick, program).code(), Some(7));
        let mut slow = launcher(job(&["sleep", "1000"]));
        let program = slow.launch(|| false).unwrap();
        assert_eq!(slow.try_wait(program).unwrap(), None);
        slow.signal(program, Signal::TERM);
        assert_eq!(ended(&mut slow, program).signal(), Some(Signal::TERM.as_raw()));
    }

    #[test]
    fn a_command_whose_launcher_is_killed_may_run() {
        let (orders_in, orders) = io::pipe().unwrap();
        let (answers, answers_out) = io::pipe().unwrap();
        let mut launcher = Launcher::new(0, orders, answers);
        drop(answers_out);
        let program = launcher.launch(|| false).unwrap();
        assert_eq!(program.pid, None);
        assert!(launcher.try_wait(program).is_err());
        drop(orders_in);
        let error = launcher.launch(|| false).unwrap_err();
        assert_eq!(error.to_string(), "the process that starts programs (kmemtrace-run) was killed");
    }

    #[test]
    fn a_command_that_is_not_there_has_its_error() {
        let mut launcher = launcher(job(&["/no/such/program"]));
        assert_eq!(launcher.launch(|| false).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(launcher.prepare().is_ok());
        assert_eq!(launcher.launch(|| false).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_command_that_may_not_be_executed_is_no_refusal_of_the_sandbox() {
        let error = launcher(job(&["/"])).launch(|| false).unwrap_err();
        assert_eq!(error.to_string(), "it is a directory, or may not be executed: use an executable file");
    }
}
