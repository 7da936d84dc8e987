//! A tracefs instance of our own: made, locked while we live, and taken away with all that was enabled in it.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, bail};
use rustix::fs::OFlags;

use crate::fs::kernelfs::KernelFs;
use crate::fs::state;
use crate::source::ownership::{check_name, is_ours, leave_word, lock, made_at_boot};
use crate::source::undo::{self, remove, tell_left};

/// Dropping it disables its events and removes it.
pub(crate) struct Instance {
    pub(crate) fs: KernelFs,
    tracefs: Arc<KernelFs>,
    _lock: OwnedFd,
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
        undo::hold_made(&tracefs, name, free_buffer);
        Instance { fs, tracefs, _lock: lock }
    }

    /// The directory that has this one, where the kernel keeps what all instances share.
    pub(crate) fn top(&self) -> &KernelFs {
        &self.tracefs
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        undo::remove_held();
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
