//! A tracefs instance of the recorder: made, locked while the recorder runs, and removed with all events enabled in it.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{anyhow, bail};
use rustix::fs::OFlags;

use crate::fs::kernelfs::{KernelFs, held_open};
use crate::fs::rights;
use crate::fs::state;
use crate::source::kernel;
use crate::source::ownership::{check_name, is_ours, live_recorder, lock, made_at_boot, write_state};
use crate::source::recovery::Recovery;
use crate::source::undo::{self, remove, report_left};

/// Most looks whether another recorder makes an instance, and the pause after each: two seconds.
const MAX_LOOKS: u32 = 200;
const LOOK_PAUSE: Duration = Duration::from_millis(10);

/// An instance made by this process. Dropping it disables its events and removes it.
pub(crate) struct Instance {
    pub(crate) fs: KernelFs,
    tracefs: Arc<KernelFs>,
    _lock: OwnedFd,
}

/// An existing instance, locked.
pub(crate) struct Claim {
    pub(crate) fs: KernelFs,
    pub(crate) lock: OwnedFd,
    /// True if a recorder made it.
    pub(crate) is_recorders: bool,
}

/// Opens and locks the instance `name` without changing it.
pub(crate) fn claim(tracefs: &KernelFs, name: &str) -> anyhow::Result<Claim> {
    check_name(name)?;
    let fs = tracefs.open_dir(&format!("instances/{name}"))?;
    let lock = lock(&fs, name)?;
    let is_recorders = is_ours(name, &fs)?;
    Ok(Claim { fs, lock, is_recorders })
}

impl Instance {
    /// Makes the instance, after removing one of that name that a killed recorder left.
    pub(crate) fn create(tracefs: KernelFs, name: &str) -> anyhow::Result<Instance> {
        check_name(name)?;
        if !tracefs.has("instances")? && tracefs.has("events")? {
            let release = kernel::release();
            bail!(
                "this kernel ({release}) has no trace instances, in which the recorder works: Linux {} or later is required",
                kernel::INSTANCES
            );
        }
        let dir = format!("instances/{name}");
        let path = tracefs.path(&dir);
        let _turn = turn(&tracefs);
        if let Some(there) = tracefs.open_dir_if_there(&dir)? {
            let held = lock(&there, name)?;
            if !is_ours(name, &there)? {
                if made_at_boot(name)? && state::read(name)?.is_none() {
                    bail!(
                        "instance {name} has recorded since boot: take it over with --boot, or use another name (-B)"
                    );
                }
                // That one has made the instance and not locked it yet.
                if let Some(pid) = live_recorder(name) {
                    bail!(
                        "instance {name} is in use by another recorder (pid {pid}): stop it, or use another name (-B)"
                    );
                }
                let path = path.display();
                bail!("instance {name} exists and was not made by a recorder: use another name (-B), or remove {path}");
            }
            // An instance with an open file cannot be removed.
            drop((there, held));
            remove(&tracefs, name).map_err(|error| {
                let busy = if error.kind() == io::ErrorKind::ResourceBusy { held_open(&path) } else { String::new() };
                anyhow!("{}: left by a killed recorder, cannot be removed: {error}{busy}", path.display())
            })?;
        }
        let _ = write_state(name, None, "");
        if let Err(error) = tracefs.make_dir(&dir) {
            state::remove(name);
            let remedy = rights::cannot_make_instance(&tracefs, &error);
            return Err(anyhow!("{}: cannot be made: {error}: {remedy}", path.display()));
        }
        match Instance::prepare(&tracefs, name) {
            Ok((fs, free_buffer, lock)) => Ok(Instance::hold(fs, tracefs, name, free_buffer, lock)),
            Err(error) => {
                // The error is reported by the caller; the new directory must not stay.
                if let Err(left) = remove(&tracefs, name) {
                    report_left(&tracefs, name, &left);
                }
                Err(error)
            }
        }
    }

    /// Locks the new directory, and makes the kernel stop tracing in it when this process ends.
    fn prepare(tracefs: &KernelFs, name: &str) -> anyhow::Result<(KernelFs, Option<File>, OwnedFd)> {
        let fs = tracefs.open_dir(&format!("instances/{name}"))?;
        let lock = lock(&fs, name)?;
        let _ = write_state(name, Some(&fs), "");
        // Before Linux 4.4 the options of an instance are those of the top-level buffer.
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
        undo::plan_removal(&tracefs, name, free_buffer);
        Instance { fs, tracefs, _lock: lock }
    }

    /// Top-level trace directory, with the files that all instances share.
    pub(crate) fn top(&self) -> &KernelFs {
        &self.tracefs
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        undo::run();
    }
}

/// Waits until no other recorder makes an instance or removes a left one: one that is made is neither locked nor marked for a moment. The
/// turn ends as the value is dropped. `None` after [`MAX_LOOKS`]: a recorder that hangs in the kernel keeps no other one from its work.
fn turn(tracefs: &KernelFs) -> Option<OwnedFd> {
    let instances = tracefs.sub("instances").ok()?;
    for _ in 0..MAX_LOOKS {
        match instances.lock_if_free() {
            Ok(None) => thread::sleep(LOOK_PAUSE),
            turn => return turn.ok().flatten(),
        }
    }
    None
}

/// Removes the instances that killed recorders left. The instance `asked` stays where another program made it.
pub(crate) fn recover(tracefs: &KernelFs, asked: &str, recovery: &mut Recovery) {
    for name in recovery.names_of_instances(tracefs) {
        let removed = recover_one(tracefs, &name, asked, recovery);
        // Another `recover` may have been faster.
        let is_gone = || tracefs.has(&format!("instances/{name}")).is_ok_and(|is_there| !is_there);
        let removed = removed.or_else(|error| if is_gone() { Ok(false) } else { Err(error) });
        recovery.add(removed.map(|is_removed| is_removed.then_some(name)));
    }
}

/// Removes the instance `name` if a killed recorder left it.
fn recover_one(tracefs: &KernelFs, name: &str, asked: &str, recovery: &mut Recovery) -> anyhow::Result<bool> {
    let dir = format!("instances/{name}");
    let path = tracefs.path(&dir);
    let _turn = turn(tracefs);
    let Some(instance) = tracefs.open_dir_if_there(&dir)? else { return Ok(false) };
    let Some(held) = instance.lock_if_free()? else { return Ok(false) };
    if !is_ours(name, &instance)? {
        // A recorder that begins has made its instance, and locks it next.
        let is_foreign = name == asked && live_recorder(name).is_none();
        recovery.foreign = recovery.foreign.take().or(is_foreign.then_some(path));
        return Ok(false);
    }
    // An instance with an open file cannot be removed.
    drop((instance, held));
    remove(tracefs, name).map_err(|error| match error.kind() {
        io::ErrorKind::ResourceBusy => {
            anyhow!("{}{}, then recover again", path.display(), held_open(&path))
        }
        _ => anyhow!("{}: cannot be removed: {error}", path.display()),
    })?;
    Ok(true)
}
