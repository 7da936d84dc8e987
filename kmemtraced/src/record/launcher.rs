//! Launcher: a thread that starts COMMAND while the kernel records this thread and its children alone.
//!
//! The kernel lists the recorded tasks by thread id and adds the children of a listed task when they are made. COMMAND is so
//! recorded from its first event on. The launcher ends with the start of COMMAND, and the kernel takes it off the list.

use std::ffi::OsString;
use std::io;
use std::process::{Child, Command};
use std::thread::{self, JoinHandle};

use crossbeam_channel::{Receiver, Sender};

use crate::process::limits;
use crate::process::thread::{not_started, own_tid};

/// Stack of the thread, bytes.
const STACK: usize = 256 << 10;

/// A thread that waits for the order to start COMMAND.
pub(crate) struct Launcher {
    /// Thread id.
    pub(crate) tid: i32,
    go: Sender<()>,
    thread: JoinHandle<Option<io::Result<Child>>>,
}

/// Starts `command` in the calling thread.
pub(crate) fn spawn(command: &[OsString]) -> Option<io::Result<Child>> {
    let (program, rest) = command.split_first()?;
    Some(limits::with_those_of_the_caller(|| Command::new(program).args(rest).spawn()))
}

impl Launcher {
    /// Starts the thread. Dropping the launcher ends it.
    pub(crate) fn start(command: &[OsString]) -> anyhow::Result<Launcher> {
        let name = "launch";
        let (tid_out, tid) = crossbeam_channel::bounded(1);
        let (go, order): (Sender<()>, Receiver<()>) = crossbeam_channel::bounded(1);
        let command = command.to_vec();
        let work = move || {
            let _ = tid_out.send(own_tid());
            order.recv().ok().and_then(|()| spawn(&command))
        };
        let started = thread::Builder::new().name(name.into()).stack_size(STACK).spawn(work);
        let thread = started.map_err(|error| not_started(name, &error))?;
        let tid = tid.recv().map_err(|error| not_started(name, &io::Error::other(error)))?;
        Ok(Launcher { tid, go, thread })
    }

    /// Starts COMMAND.
    pub(crate) fn launch(self) -> Option<io::Result<Child>> {
        let _ = self.go.send(());
        self.thread.join().unwrap_or_else(|_| Some(Err(io::Error::other("the launcher has failed"))))
    }
}
