//! Ownership of a tracefs instance: a recorder made it, the kernel's command line, or another program.

use std::os::fd::OwnedFd;

use anyhow::bail;

use crate::fs::kernelfs::{KernelFs, PROC};
use crate::fs::state;
use crate::source::as_found;

/// True if the kernel's command line made an instance of this name.
pub(crate) fn made_at_boot(name: &str) -> anyhow::Result<bool> {
    let line = KernelFs::find(&PROC)?.get("cmdline")?;
    let mut instances = line.split_whitespace().filter_map(|word| word.strip_prefix("trace_instance="));
    Ok(instances.any(|instance| instance.split([',', '^', '@']).next() == Some(name)))
}

/// True if a recorder made the unlocked instance `name`: it has the mark, or its state file has its inode number. The mark also holds
/// where the state file could not be written or is gone.
pub(crate) fn is_ours(name: &str, instance: &KernelFs) -> anyhow::Result<bool> {
    if instance.has_mark()? {
        return Ok(true);
    }
    let Some(text) = state::read(name)? else { return Ok(false) };
    let inode = text.lines().skip(1).find(|line| !line.is_empty() && !line.starts_with('/'));
    // A recorder that was killed between making the state file and locking the instance leaves no number.
    let Some(inode) = inode else { return Ok(live_recorder(name).is_none()) };
    Ok(instance.inode()?.to_string() == inode)
}

/// Process id, as text, of the recorder that wrote the state file of the instance `name`.
fn recorder(name: &str) -> Option<String> {
    state::read(name).ok()??.lines().next().map(str::to_owned)
}

/// [`recorder`], if it still runs.
pub(crate) fn live_recorder(name: &str) -> Option<String> {
    recorder(name).filter(|pid| state::may_run(pid))
}

/// Marks an instance as a recorder's, and writes its state file, a line each: this process's id, the path of the trace directory, which
/// is empty before the recording has begun, and the instance's inode number. Before the instance is made there is no number.
pub(crate) fn write_state(name: &str, instance: Option<&KernelFs>, trace_dir: &str) -> anyhow::Result<()> {
    // A file system that keeps no such time still has the state file.
    let _ = instance.map(KernelFs::mark);
    let inode = instance.and_then(|fs| fs.inode().ok()).map(|inode| format!("{inode}\n")).unwrap_or_default();
    state::write(name, &format!("{}\n{trace_dir}\n{inode}", std::process::id()))
}

/// Refuses names that the kernel would take for another directory.
pub(crate) fn check_name(name: &str) -> anyhow::Result<()> {
    if name.is_empty() || name.starts_with('.') || name.contains('/') {
        bail!("-B {name}: not a name for an instance; use one without a slash that does not begin with a dot");
    }
    Ok(())
}

/// Locks an instance; the error names the recorder that uses it.
pub(crate) fn lock(instance: &KernelFs, name: &str) -> anyhow::Result<OwnedFd> {
    instance.lock_or(|| {
        let pid = as_found::holder(instance)
            .or_else(|| recorder(name))
            .map(|pid| format!(" (pid {pid})"))
            .unwrap_or_default();
        format!("instance {name} is in use by another recorder{pid}: stop it, or use another name (-B)")
    })
}
