//! The sandboxes of the two threads that begin and end a recording: the one that records, and the process's first one, which undoes what was
//! changed if the other one hangs. They close them once all is set up, before the events are enabled.

use std::cell::RefCell;
use std::thread::Thread;

use anyhow::anyhow;
use crossbeam_channel::{Receiver, Sender, bounded};
use kmemtrace_sandbox::{Kept, Mode, Role, Sandbox};

use crate::args::Args;
use crate::fs::kernelfs;
use crate::output::destination::Destination;
use crate::process::confine;
use crate::process::messages;
use crate::process::report;
use crate::record::notices::say_verbose;
use crate::record::tasks::Tasks;
use crate::source::TraceSource;

/// Sandboxes of a recording, as its thread has them.
pub(crate) struct Gate {
    mode: Mode,
    first_thread: Thread,
    sandbox: Sender<Sandbox>,
    closed: Receiver<anyhow::Result<()>>,
    /// The rules that hold once an earlier recording is replaced, until they do.
    narrow: RefCell<Option<Sandbox>>,
}

/// The side of the first thread.
pub(crate) struct FirstThread {
    mode: Mode,
    sandbox: Receiver<Sandbox>,
    closed: Sender<anyhow::Result<()>>,
}

/// Both sides; to be called by the first thread.
pub(crate) fn pair(mode: Mode) -> (Gate, FirstThread) {
    let (sandbox_in, sandbox) = bounded(1);
    let (closed_in, closed) = bounded(1);
    let first_thread = std::thread::current();
    let gate = Gate { mode, first_thread, sandbox: sandbox_in, closed, narrow: RefCell::default() };
    (gate, FirstThread { mode, sandbox, closed: closed_in })
}

impl FirstThread {
    /// Closes the sandbox of this thread, if it has come.
    pub(crate) fn look(&self) {
        if let Ok(sandbox) = self.sandbox.try_recv() {
            let _ = self.closed.send(confine::close(&sandbox, self.mode).map(drop));
        }
    }
}

impl Gate {
    /// Closes the sandboxes of both threads; says what is missing, for --verbose.
    pub(crate) fn close(
        &self,
        args: &Args,
        source: &dyn TraceSource,
        output: &Destination,
        tasks: Option<&Tasks>,
    ) -> anyhow::Result<()> {
        if self.mode == Mode::Off {
            return Ok(());
        }
        let undoing = undoing(source)?;
        let of_recording = |replaces: bool| -> anyhow::Result<Sandbox> {
            let mut sandbox = self::undoing(source)?;
            confine::allow_names(&mut sandbox)?;
            output.allow(&mut sandbox, replaces, args.memstrack.notui)?;
            if report::caller().is_some() {
                sandbox.keep(Kept::owners());
            }
            tasks.map_or(Ok(()), |tasks| tasks.allow(&mut sandbox))?;
            Ok(sandbox)
        };
        let (wide, narrow) = (of_recording(true)?, of_recording(false)?);
        self.sandbox.send(undoing).map_err(|_| anyhow!("the first thread has ended"))?;
        self.first_thread.unpark();
        self.closed.recv().map_err(|_| anyhow!("the first thread has ended"))??;
        let missing = confine::close(&wide, self.mode)?;
        narrow.described().iter().for_each(|line| say_verbose(args, line));
        missing.iter().for_each(|lack| say_verbose(args, &format!("sandbox: left out: {lack}")));
        *self.narrow.borrow_mut() = Some(narrow);
        Ok(())
    }

    /// Gives away what only the replacing of an earlier recording needs, once that is done.
    pub(crate) fn narrow(&self, output: &Destination) {
        if self.narrow.borrow().is_none() || output.is_replacing() {
            return;
        }
        let narrowed = self.narrow.take().map_or(Ok(()), |sandbox| confine::narrow(&sandbox, self.mode));
        if let Err(error) = narrowed {
            messages::say(format!("kmemtraced: {error:#}"));
        }
    }
}

/// Rules for the undoing of what was changed.
fn undoing(source: &dyn TraceSource) -> anyhow::Result<Sandbox> {
    let mut sandbox = confine::sandbox(Role::Recorder);
    source.allow(&mut sandbox)?;
    if kernelfs::has_mount_at_path() {
        sandbox.keep(Kept::mounts());
    }
    Ok(sandbox)
}
