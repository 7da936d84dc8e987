//! Undo of this process's changes in a trace directory: an instance is removed, a directory that was taken over is set back.
//!
//! The pending undo is a static, so that a second thread can do it while the thread that made the changes hangs in a system call.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use crate::fs::kernelfs::KernelFs;
use crate::fs::state;
use crate::process::messages;
use crate::source::as_found::AsFound;
use crate::source::ownership::write_state;

/// Most attempts to remove an instance that another program has open.
const MAX_REMOVAL_ATTEMPTS: u32 = 20;
/// Pause between two attempts.
const REMOVAL_PAUSE: Duration = Duration::from_millis(10);

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

/// True while a thread does the undo.
static IS_RUNNING: AtomicBool = AtomicBool::new(false);

/// Does the pending undo. While another thread does it, waits for at most 200 ms.
pub(crate) fn run() {
    let undo = PENDING.lock().unwrap_or_else(PoisonError::into_inner).take();
    let Some(undo) = undo else {
        let mut attempts = 0;
        while IS_RUNNING.load(Ordering::Acquire) && attempts < MAX_REMOVAL_ATTEMPTS {
            attempts += 1;
            thread::sleep(REMOVAL_PAUSE);
        }
        return;
    };
    IS_RUNNING.store(true, Ordering::Release);
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
    IS_RUNNING.store(false, Ordering::Release);
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
        write_state(name, Some(fs));
        as_found.forget();
        // The file free_buffer stays closed: closing it after use would empty the buffer.
        *slot = Some(Undo::Remove { tracefs: Arc::clone(tracefs), name: name.to_owned(), free_buffer: None });
    }
}

/// Disables the events of the instance `name` and removes it with its state file.
pub(crate) fn remove(tracefs: &KernelFs, name: &str) -> io::Result<()> {
    let dir = format!("instances/{name}");
    let _ = tracefs.write(&format!("{dir}/tracing_on"), "0");
    let _ = tracefs.write(&format!("{dir}/events/enable"), "0");
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
    Ok(())
}

/// Reports an instance that could not be removed.
pub(crate) fn report_left(tracefs: &KernelFs, name: &str, error: &io::Error) {
    let path = tracefs.path(&format!("instances/{name}"));
    messages::say(format!("kmemtraced: {}: cannot be removed: {error}: run kmemtraced recover", path.display()));
}
