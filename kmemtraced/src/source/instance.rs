//! A tracefs instance of our own: made, locked while we live, and taken away with all that was enabled in it.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use rustix::fs::OFlags;

use crate::fs::kernelfs::{DEBUGFS, KernelFs, TRACEFS};
use crate::fs::state;
use crate::process::messages;
use crate::source::as_found::{self, AsFound};
use crate::source::boot::made_at_boot;

/// The kernel's trace directory: tracefs, or before Linux 4.1 a directory in debugfs.
pub(crate) fn tracefs() -> anyhow::Result<KernelFs> {
    KernelFs::find(&TRACEFS).or_else(|error| {
        let older = KernelFs::find(&DEBUGFS).and_then(|debugfs| Ok(debugfs.sub("tracing")?));
        older.map_err(|_| match rustix::process::geteuid().is_root() {
            true => error.context("no trace events here: it takes a kernel with CONFIG_TRACING"),
            // Whether it is mounted cannot be told from out here.
            false => anyhow!("no trace events for this user: run as root"),
        })
    })
}

/// Tries to remove an instance that is held by another program, and the pause between them.
const REMOVAL_TRIES: u32 = 20;
const REMOVAL_PAUSE: Duration = Duration::from_millis(10);

/// Dropping it disables its events and removes it.
pub(crate) struct Instance {
    pub(crate) fs: KernelFs,
    tracefs: Arc<KernelFs>,
    _lock: OwnedFd,
}

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

/// True if a recorder has made the unlocked instance `name`: its state file says so, with the instance's inode number. Where no
/// state file can be kept (an initramfs without /run), the instance must have the `asked` name and the options that recorders
/// set.
fn is_ours(name: &str, instance: &KernelFs, asked: &str) -> bool {
    match state::read(name) {
        // A recorder that was killed before it knew the number leaves none.
        Some(word) => {
            word.lines().nth(1).is_none_or(|inode| instance.inode().map(|n| n.to_string()).as_deref() == Some(inode))
        }
        None => name == asked && !state::can_be_kept() && has_marks(instance),
    }
}

/// True if options differ from the kernel's defaults as a recorder sets them, and tracing stands still as its end leaves it.
fn has_marks(instance: &KernelFs) -> bool {
    let is = |file: &str, value: &str| instance.read(file).is_ok_and(|text| text.trim_ascii() == value.as_bytes());
    is("options/disable_on_free", "1")
        && is("tracing_on", "0")
        && (!instance.has("buffer_percent").unwrap_or(true) || is("buffer_percent", "25"))
}

/// Leaves the process id and the instance's inode number.
fn leave_word(name: &str, instance: Option<&KernelFs>) {
    let inode = instance.and_then(KernelFs::inode).map(|inode| format!("{inode}\n")).unwrap_or_default();
    state::leave(name, &format!("{}\n{inode}", std::process::id()));
}

fn check_name(name: &str) -> anyhow::Result<()> {
    if name.is_empty() || name.starts_with('.') || name.contains('/') {
        bail!("-B {name}: not a name for an instance");
    }
    Ok(())
}

fn lock(instance: &KernelFs, name: &str) -> anyhow::Result<OwnedFd> {
    instance.lock().map_err(|error| {
        if error.kind() != io::ErrorKind::WouldBlock {
            return anyhow::Error::new(error).context(format!("{}: cannot be locked", instance.path("").display()));
        }
        let maker = || state::read(name)?.lines().next().map(str::to_owned);
        let pid = as_found::holder(instance).or_else(maker).map(|pid| format!(" (pid {pid})")).unwrap_or_default();
        anyhow!("instance {name} is in use by another recorder{pid}: stop it, or use another name (-B)")
    })
}

/// An instance that is there, locked.
pub(crate) struct Claim {
    pub(crate) fs: KernelFs,
    pub(crate) lock: OwnedFd,
    /// A recorder has made it.
    pub(crate) is_recorders: bool,
}

/// Opens and locks the instance `name`, and changes nothing in it.
pub(crate) fn claim(tracefs: &KernelFs, name: &str) -> anyhow::Result<Claim> {
    check_name(name)?;
    let fs = tracefs.open_dir(&format!("instances/{name}"))?;
    let lock = lock(&fs, name)?;
    let is_recorders = is_ours(name, &fs, name);
    Ok(Claim { fs, lock, is_recorders })
}

fn remove(tracefs: &KernelFs, name: &str) -> io::Result<()> {
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
fn tell_left(tracefs: &KernelFs, name: &str, error: &io::Error) {
    let path = tracefs.path(&format!("instances/{name}"));
    messages::say(format!("kmemtraced: {}: cannot be removed: {error}: run kmemtraced recover", path.display()));
}

impl Instance {
    /// Makes the instance, after clearing up what a killed recorder left of it.
    pub(crate) fn create(tracefs: KernelFs, name: &str) -> anyhow::Result<Instance> {
        check_name(name)?;
        let dir = format!("instances/{name}");
        let path = tracefs.path(&dir);
        if let Some(there) = tracefs.open_dir_if_there(&dir)? {
            let held = lock(&there, name)?;
            if made_at_boot(name) && state::read(name).is_none() {
                bail!("instance {name} has recorded since boot: take it over with --boot, or use another name (-B)");
            }
            if !is_ours(name, &there, name) {
                let path = path.display();
                bail!("instance {name} exists and was not made by a recorder: use another name (-B), or remove {path}");
            }
            // What is held open cannot be removed.
            drop((there, held));
            remove(&tracefs, name)
                .with_context(|| format!("{}: left by a killed recorder, cannot be removed", path.display()))?;
        }
        leave_word(name, None);
        if let Err(error) = tracefs.make_dir(&dir) {
            state::remove(name);
            let path = path.display();
            return Err(error)
                .with_context(|| format!("{path}: cannot be made: it takes root and a kernel with trace instances"));
        }
        match Instance::prepare(&tracefs, name) {
            Ok((fs, free_buffer, lock)) => Ok(Instance::hold(fs, tracefs, name, free_buffer, lock)),
            Err(error) => {
                // The directory that was just made must not outlive the error, which says why.
                if let Err(left) = remove(&tracefs, name) {
                    tell_left(&tracefs, name, &left);
                }
                Err(error)
            }
        }
    }

    /// Locks the directory that was just made, and has the kernel stop tracing in it when this process ends.
    fn prepare(tracefs: &KernelFs, name: &str) -> anyhow::Result<(KernelFs, Option<File>, OwnedFd)> {
        let fs = tracefs.open_dir(&format!("instances/{name}"))?;
        let lock = lock(&fs, name)?;
        leave_word(name, Some(&fs));
        // Kernels before 3.10 or so have no such option.
        let free_buffer = match fs.has("options/disable_on_free")? {
            true => {
                fs.set("options/disable_on_free", "1")?;
                fs.open_if_there("free_buffer", OFlags::WRONLY)?
            }
            false => None,
        };
        fs.set("tracing_on", "0")?;
        Ok((fs, free_buffer, lock))
    }

    fn hold(fs: KernelFs, tracefs: KernelFs, name: &str, free_buffer: Option<File>, lock: OwnedFd) -> Instance {
        let tracefs = Arc::new(tracefs);
        let held = Held::ToRemove { tracefs: Arc::clone(&tracefs), name: name.to_owned(), free_buffer };
        *HELD.lock().unwrap_or_else(PoisonError::into_inner) = Some(held);
        Instance { fs, tracefs, _lock: lock }
    }

    /// The directory that has this one, where the kernel keeps what all instances share.
    pub(crate) fn top(&self) -> &KernelFs {
        &self.tracefs
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        remove_held();
    }
}

/// Removes the instances that killed recorders left, and names them. Names also the instance `asked`, where it is there and no
/// recorder has made it: that one stays.
pub(crate) fn recover(tracefs: &KernelFs, asked: &str) -> anyhow::Result<(Vec<String>, Option<PathBuf>)> {
    let (mut removed, mut foreign) = (Vec::new(), None);
    for name in tracefs.names("instances")? {
        let dir = format!("instances/{name}");
        let Ok(instance) = tracefs.sub(&dir) else { continue };
        let Ok(held) = instance.lock() else { continue };
        let is_of_boot = made_at_boot(&name) && state::read(&name).is_none();
        if !is_of_boot && is_ours(&name, &instance, asked) {
            let path = tracefs.path(&dir);
            // A directory that is held open cannot be removed.
            drop((instance, held));
            remove(tracefs, &name).with_context(|| format!("{}: cannot be removed", path.display()))?;
            removed.push(name);
        } else if name == asked {
            foreign = Some(tracefs.path(&dir));
        }
    }
    Ok((removed, foreign))
}
