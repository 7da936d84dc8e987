//! Undoing what this process changed in a trace directory: an instance is removed, a directory that was taken over is set back.

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
use crate::source::ownership::leave_word;

/// Tries to remove an instance that is held by another program, and the pause between them.
const REMOVAL_TRIES: u32 = 20;
const REMOVAL_PAUSE: Duration = Duration::from_millis(10);

/// The end of this process's trace directory.
enum Held {
    /// An instance is removed.
    ToRemove {
        tracefs: Arc<KernelFs>,
        name: String,
        /// Closing it stops tracing and gives the memory back, and the kernel closes it for a killed recorder, too.
        free_buffer: Option<File>,
    },
    /// A directory that was taken over is set back.
    ToRestore(AsFound),
}

/// This process's trace directory. A thread can end it while the one that made it hangs in a system call.
static HELD: Mutex<Option<Held>> = Mutex::new(None);

/// A thread is ending it.
static IS_BEING_ENDED: AtomicBool = AtomicBool::new(false);

/// Removes this process's instance, or sets back what it has taken over. Where another thread is about it, this one waits a
/// little.
pub(crate) fn remove_held() {
    let held = HELD.lock().unwrap_or_else(PoisonError::into_inner).take();
    let Some(held) = held else {
        let mut tries = 0;
        while IS_BEING_ENDED.load(Ordering::Acquire) && tries < REMOVAL_TRIES {
            tries += 1;
            thread::sleep(REMOVAL_PAUSE);
        }
        return;
    };
    IS_BEING_ENDED.store(true, Ordering::Release);
    match held {
        Held::ToRemove { tracefs, name, free_buffer } => {
            // The kernel may take its time for both.
            drop(free_buffer);
            if let Err(error) = remove(&tracefs, &name) {
                tell_left(&tracefs, &name, &error);
            }
        }
        Held::ToRestore(as_found) => as_found.restore(),
    }
    IS_BEING_ENDED.store(false, Ordering::Release);
}

/// This process has made the instance `name`, which is to be removed.
pub(crate) fn hold_made(tracefs: &Arc<KernelFs>, name: &str, free_buffer: Option<File>) {
    let held = Held::ToRemove { tracefs: Arc::clone(tracefs), name: name.to_owned(), free_buffer };
    *HELD.lock().unwrap_or_else(PoisonError::into_inner) = Some(held);
}

/// This process's trace directory is one that was taken over, to be set back to this.
pub(crate) fn hold_as_found(as_found: AsFound) {
    *HELD.lock().unwrap_or_else(PoisonError::into_inner) = Some(Held::ToRestore(as_found));
}

/// Changes what the directory that was taken over is set back to, unless another thread has done so.
pub(crate) fn change_as_found(change: impl FnOnce(&mut AsFound)) {
    let mut slot = HELD.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(Held::ToRestore(as_found)) = slot.as_mut() {
        change(as_found);
    }
}

/// The instance `fs` that was taken over is to be removed, unless another thread has set it back.
pub(crate) fn hold_to_remove(tracefs: &Arc<KernelFs>, name: &str, fs: &KernelFs) {
    let mut slot = HELD.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(Held::ToRestore(as_found)) = slot.take() {
        leave_word(name, Some(fs));
        as_found.forget();
        // Opening free_buffer would empty it in the end.
        *slot = Some(Held::ToRemove { tracefs: Arc::clone(tracefs), name: name.to_owned(), free_buffer: None });
    }
}

pub(crate) fn remove(tracefs: &KernelFs, name: &str) -> io::Result<()> {
    let dir = format!("instances/{name}");
    let _ = tracefs.write(&format!("{dir}/tracing_on"), "0");
    let _ = tracefs.write(&format!("{dir}/events/enable"), "0");
    let mut tries = 0;
    while let Err(error) = tracefs.remove_dir(&dir) {
        tries += 1;
        // Another program may look at it, as `recover` and `probe` do.
        if error.kind() != io::ErrorKind::ResourceBusy || tries >= REMOVAL_TRIES {
            return Err(error);
        }
        thread::sleep(REMOVAL_PAUSE);
    }
    state::remove(name);
    Ok(())
}

/// Says that an instance is left.
pub(crate) fn tell_left(tracefs: &KernelFs, name: &str, error: &io::Error) {
    let path = tracefs.path(&format!("instances/{name}"));
    messages::say(format!("kmemtraced: {}: cannot be removed: {error}: run kmemtraced recover", path.display()));
}
