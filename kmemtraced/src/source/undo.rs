//! Undo of this process's changes in a trace directory: an instance is removed, a directory that was taken over is set back.
//!
//! The pending undo is a static, so that a second thread can do it while the thread that made the changes hangs in a system call.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::anyhow;

use crate::fs::kernelfs::KernelFs;
use crate::fs::state;
use crate::process::messages;
use crate::source::as_found::AsFound;
use crate::source::ownership::write_state;
use crate::source::probes;

/// Most attempts to remove an instance that another program has open.
const MAX_REMOVAL_ATTEMPTS: u32 = 20;
/// Pause between two attempts.
const REMOVAL_PAUSE: Duration = Duration::from_millis(10);
/// Most looks at an undo that another thread does, one each pause. With the time that a second signal has waited before, they take
/// less than a second.
const MAX_LOOKS: u32 = 10;

/// A pending undo.
enum Undo {
    /// Removal of an instance.
    Remove {
        tracefs: Arc<KernelFs>,
        name: String,
        /// Open `free_buffer`: closing it stops tracing and frees the buffer, for a killed recorder, too.
        free_buffer: Option<File>,
    },
    /// Restoring of a directory that was taken over.
    Restore(AsFound),
}

/// The pending undo of this process.
static PENDING: Mutex<Option<Undo>> = Mutex::new(None);

/// The directory of the undo that a thread does, and the state that it is in meanwhile, for people.
static RUNNING: Mutex<Option<String>> = Mutex::new(None);

fn running() -> MutexGuard<'static, Option<String>> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Undo {
    /// The directory, and the state that it is in until the undo is done.
    fn unfinished(&self) -> String {
        match self {
            Undo::Remove { tracefs, name, .. } => {
                format!("{}: is still being removed", tracefs.path(&format!("instances/{name}")).display())
            }
            Undo::Restore(as_found) => format!("{}: is still being set back", as_found.path().display()),
        }
    }
}

/// Does the pending undo. While another thread does it, waits for at most 100 ms, and then tells of the directory: the process may
/// end before the kernel lets that thread go on.
pub(crate) fn run() {
    let mut slot = PENDING.lock().unwrap_or_else(PoisonError::into_inner);
    let undo = slot.take();
    if let Some(undo) = &undo {
        *running() = Some(undo.unfinished());
    }
    drop(slot);
    let Some(undo) = undo else { return wait_for_other_thread() };
    match undo {
        Undo::Remove { tracefs, name, free_buffer } => {
            // Slow in the kernel, as is the removal.
            drop(free_buffer);
            if let Err(error) = remove(&tracefs, &name) {
                report_left(&tracefs, &name, &error);
            }
        }
        Undo::Restore(as_found) => as_found.restore(),
    }
    *running() = None;
}

fn wait_for_other_thread() {
    for _ in 0..MAX_LOOKS {
        if running().is_none() {
            return;
        }
        thread::sleep(REMOVAL_PAUSE);
    }
    if let Some(unfinished) = &*running() {
        messages::say(format!("kmemtraced: {unfinished}: if it stays, run kmemtraced recover"));
    }
}

/// Plans the removal of the instance `name`, which this process made.
pub(crate) fn plan_removal(tracefs: &Arc<KernelFs>, name: &str, free_buffer: Option<File>) {
    let undo = Undo::Remove { tracefs: Arc::clone(tracefs), name: name.to_owned(), free_buffer };
    *PENDING.lock().unwrap_or_else(PoisonError::into_inner) = Some(undo);
}

/// Plans the restoring of a directory that this process takes over.
pub(crate) fn plan_restore(as_found: AsFound) {
    *PENDING.lock().unwrap_or_else(PoisonError::into_inner) = Some(Undo::Restore(as_found));
}

/// Changes the values to restore, unless another thread has restored them already.
pub(crate) fn change_restore(change: impl FnOnce(&mut AsFound)) {
    let mut slot = PENDING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(Undo::Restore(as_found)) = slot.as_mut() {
        change(as_found);
    }
}

/// Plans the removal of the instance `fs`, which was taken over, instead of its restoring, unless another thread has restored it
/// already.
pub(crate) fn plan_removal_instead(tracefs: &Arc<KernelFs>, name: &str, fs: &KernelFs) {
    let mut slot = PENDING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(Undo::Restore(as_found)) = slot.take() {
        let _ = write_state(name, Some(fs), "");
        as_found.forget();
        // The file free_buffer stays closed: closing it after use would empty the buffer.
        *slot = Some(Undo::Remove { tracefs: Arc::clone(tracefs), name: name.to_owned(), free_buffer: None });
    }
}

/// Writes the path of the trace directory into the state file, where other programs look for it, unless another thread has undone
/// the changes already. A path that is no text of one line is left out. An error says why there is no state file, and what lacks it.
pub(crate) fn note_trace_dir(dir: &Path) -> anyhow::Result<()> {
    let path = dir.canonicalize().ok().and_then(|path| path.into_os_string().into_string().ok());
    let Some(path) = path.filter(|path| !path.contains('\n')) else { return Ok(()) };
    let mut slot = PENDING.lock().unwrap_or_else(PoisonError::into_inner);
    let (noted, lacks) = match slot.as_mut() {
        Some(Undo::Remove { tracefs, name, .. }) => {
            let Ok(instance) = tracefs.sub(&format!("instances/{name}")) else { return Ok(()) };
            (write_state(name, Some(&instance), &path), "other programs do not find this recording")
        }
        Some(Undo::Restore(as_found)) => {
            (as_found.set_trace_dir(path), "if the recorder is killed, recover cannot set the buffer back")
        }
        None => return Ok(()),
    };
    noted.map_err(|error| anyhow!("{error:#}: {lacks}"))
}

/// Disables the events of the instance `name` and removes it with its state file and its probe events. Reports a probe event that
/// stays.
pub(crate) fn remove(tracefs: &KernelFs, name: &str) -> io::Result<()> {
    let dir = format!("instances/{name}");
    let _ = tracefs.write(&format!("{dir}/tracing_on"), "0");
    let _ = tracefs.write(&format!("{dir}/events/enable"), "0");
    // An instance that stays, as long as another program has it open, is to cost nothing.
    let _ = tracefs.write(&format!("{dir}/current_tracer"), "nop");
    let mut attempts = 0;
    while let Err(error) = tracefs.remove_dir(&dir) {
        attempts += 1;
        // Another program may have it open for a moment, as `recover` and `probe` do.
        if error.kind() != io::ErrorKind::ResourceBusy || attempts >= MAX_REMOVAL_ATTEMPTS {
            return Err(error);
        }
        thread::sleep(REMOVAL_PAUSE);
    }
    state::remove(name);
    if let Err(error) = probes::remove_leftovers(tracefs) {
        messages::say(format!("kmemtraced: {error:#}"));
    }
    Ok(())
}

/// Reports an instance that could not be removed.
pub(crate) fn report_left(tracefs: &KernelFs, name: &str, error: &io::Error) {
    let path = tracefs.path(&format!("instances/{name}"));
    messages::say(format!("kmemtraced: {}: cannot be removed: {error}: run kmemtraced recover", path.display()));
}
