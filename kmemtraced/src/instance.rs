//! A tracefs instance of our own: made, locked while we live, and taken away with all that was enabled in it.

use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, anyhow, bail};
use rustix::fs::OFlags;

use crate::boot::made_at_boot;
use crate::kernelfs::{DEBUGFS, KernelFs, TRACEFS};
use crate::messages;

/// What recorders leave word of here, so that a killed one's traces are known as ours.
pub(crate) const STATE: &str = "/run/kmemtraced";

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

/// Dropping it disables its events and removes it.
pub(crate) struct Instance {
    pub(crate) fs: KernelFs,
    tracefs: Arc<KernelFs>,
    _lock: OwnedFd,
}

/// An instance that is to be removed.
struct Held {
    tracefs: Arc<KernelFs>,
    name: String,
    /// Closing it stops tracing and gives the memory back, and the kernel closes it for a killed recorder, too.
    free_buffer: Option<File>,
}

/// This process's instance. A thread can remove it while the one that made it hangs in a system call.
static HELD: Mutex<Option<Held>> = Mutex::new(None);

/// Removes this process's instance, where there is one; waits for another thread that is about it.
pub(crate) fn remove_held() {
    let mut slot = HELD.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(Held { tracefs, name, free_buffer }) = slot.take() else { return };
    drop(free_buffer);
    if let Err(error) = remove(&tracefs, &name) {
        let path = tracefs.path(&format!("instances/{name}"));
        messages::say(format!("kmemtraced: {}: cannot be removed: {error}: run kmemtraced recover", path.display()));
    }
}

fn state_file(name: &str) -> PathBuf {
    Path::new(STATE).join(name)
}

/// Whether an unlocked instance of this name was left by a recorder.
fn is_ours(name: &str) -> bool {
    name.starts_with("kmemtrace") || state_file(name).exists()
}

fn leave_word(name: &str) {
    let _ = fs::create_dir_all(STATE);
    let _ = fs::write(state_file(name), format!("{}\n", std::process::id()));
}

fn lock(instance: &KernelFs, name: &str) -> anyhow::Result<OwnedFd> {
    instance.lock().map_err(|error| {
        if error.kind() != io::ErrorKind::WouldBlock {
            return anyhow::Error::new(error).context(format!("{}: cannot be locked", instance.path("").display()));
        }
        let pid = fs::read_to_string(state_file(name));
        let pid = pid.map(|pid| format!(" (pid {})", pid.trim())).unwrap_or_default();
        anyhow!("instance {name} is in use by another recorder{pid}: stop it, or use another name (-B)")
    })
}

fn remove(tracefs: &KernelFs, name: &str) -> io::Result<()> {
    let dir = format!("instances/{name}");
    let _ = tracefs.write(&format!("{dir}/tracing_on"), "0");
    let _ = tracefs.write(&format!("{dir}/events/enable"), "0");
    tracefs.remove_dir(&dir)?;
    let _ = fs::remove_file(state_file(name));
    Ok(())
}

impl Instance {
    /// Makes the instance, after clearing up what a killed recorder left of it.
    pub(crate) fn create(tracefs: KernelFs, name: &str) -> anyhow::Result<Instance> {
        if name.is_empty() || name.starts_with('.') || name.contains('/') {
            bail!("-B {name}: not a name for an instance");
        }
        let dir = format!("instances/{name}");
        let path = tracefs.path(&dir);
        if let Ok(there) = tracefs.sub(&dir) {
            let held = lock(&there, name)?;
            if !is_ours(name) {
                bail!("instance {name} exists and is not ours: use another name (-B), or remove {}", path.display());
            }
            if made_at_boot(name) && !state_file(name).exists() {
                bail!("instance {name} has recorded since boot: take it over with --boot, or use another name (-B)");
            }
            // What is held open cannot be removed.
            drop((there, held));
            remove(&tracefs, name)
                .with_context(|| format!("{}: left by a killed recorder, cannot be removed", path.display()))?;
        }
        leave_word(name);
        if let Err(error) = tracefs.make_dir(&dir) {
            let _ = fs::remove_file(state_file(name));
            let path = path.display();
            return Err(error)
                .with_context(|| format!("{path}: cannot be made: it takes root and a kernel with trace instances"));
        }
        let fs = tracefs.sub(&dir).with_context(|| format!("{}: cannot be opened", path.display()))?;
        let lock = lock(&fs, name)?;
        let free_buffer =
            fs.write("options/disable_on_free", "1").and_then(|()| fs.open("free_buffer", OFlags::WRONLY));
        let instance = Instance::hold(fs, tracefs, name, free_buffer.ok(), lock);
        instance.fs.set("tracing_on", "0")?;
        Ok(instance)
    }

    /// Takes over one that the kernel has made, with what is in it. It is removed like one of our own.
    pub(crate) fn take_over(tracefs: KernelFs, name: &str) -> anyhow::Result<Instance> {
        let dir = format!("instances/{name}");
        let fs = tracefs.sub(&dir).with_context(|| format!("{}: cannot be opened", tracefs.path(&dir).display()))?;
        let lock = lock(&fs, name)?;
        leave_word(name);
        // Opening free_buffer would empty it in the end.
        Ok(Instance::hold(fs, tracefs, name, None, lock))
    }

    fn hold(fs: KernelFs, tracefs: KernelFs, name: &str, free_buffer: Option<File>, lock: OwnedFd) -> Instance {
        let tracefs = Arc::new(tracefs);
        let held = Held { tracefs: Arc::clone(&tracefs), name: name.to_owned(), free_buffer };
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

/// Removes the instances that killed recorders left; names those it removed.
pub(crate) fn recover(tracefs: &KernelFs, also: &str) -> anyhow::Result<Vec<String>> {
    let mut removed = Vec::new();
    for name in tracefs.names("instances") {
        let dir = format!("instances/{name}");
        let free = tracefs.sub(&dir).is_ok_and(|instance| instance.lock().is_ok());
        let ours = is_ours(&name) && (!made_at_boot(&name) || state_file(&name).exists());
        if (name == also || ours) && free {
            let path = tracefs.path(&dir);
            remove(tracefs, &name).with_context(|| format!("{}: cannot be removed", path.display()))?;
            removed.push(name);
        }
    }
    Ok(removed)
}
