//! The sandboxes of the two threads that begin and end a recording: the one that records, and the process's first one, which undoes what was
//! changed if the other one hangs. They close them once all is set up, before the events are enabled.

use std::cell::Cell;
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
    /// True while this thread has rights that only the replacing of an earlier recording needs.
    is_wide: Cell<bool>,
}

/// Parts of a recording that something is allowed for.
#[derive(Clone, Copy)]
pub(crate) struct Allowed<'a> {
    pub(crate) args: &'a Args,
    pub(crate) source: &'a dyn TraceSource,
    pub(crate) output: &'a Destination,
    pub(crate) tasks: Option<&'a Tasks>,
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
    let gate = Gate { mode, first_thread, sandbox: sandbox_in, closed, is_wide: Cell::new(false) };
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
    pub(crate) fn close(&self, allowed: Allowed<'_>) -> anyhow::Result<()> {
        if self.mode == Mode::Off {
            return Ok(());
        }
        let mut of_first_thread = undoing(allowed.source)?;
        // It has forked the launcher, which is killed when this process ends.
        of_first_thread.keep_signals();
        self.sandbox.send(of_first_thread).map_err(|_| anyhow!("the first thread has ended"))?;
        self.first_thread.unpark();
        self.closed.recv().map_err(|_| anyhow!("the first thread has ended"))??;
        let sandbox = recording(allowed, true)?;
        let missing = confine::close(&sandbox, self.mode)?;
        self.is_wide.set(true);
        sandbox.described().iter().for_each(|line| say_verbose(allowed.args, line));
        missing.iter().for_each(|lack| say_verbose(allowed.args, &format!("sandbox: left out: {lack}")));
        Ok(())
    }

    /// Gives away what only the replacing of an earlier recording needs, once that is done.
    pub(crate) fn narrow(&self, allowed: Allowed<'_>) {
        if !self.is_wide.get() || allowed.output.is_replacing() {
            return;
        }
        self.is_wide.set(false);
        let narrowed = recording(allowed, false).and_then(|sandbox| confine::narrow(&sandbox, self.mode));
        if let Err(error) = narrowed {
            messages::say(format!("kmemtraced: {error:#}"));
        }
    }
}

/// Rules for the thread that records.
fn recording(allowed: Allowed<'_>, replaces: bool) -> anyhow::Result<Sandbox> {
    let Allowed { args, source, output, tasks } = allowed;
    let mut sandbox = undoing(source)?;
    confine::allow_names(&mut sandbox)?;
    output.allow(&mut sandbox, replaces, args.memstrack.notui)?;
    if report::caller().is_some() {
        sandbox.keep(Kept::owners());
    }
    tasks.map_or(Ok(()), |tasks| tasks.allow(&mut sandbox))?;
    Ok(sandbox)
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
