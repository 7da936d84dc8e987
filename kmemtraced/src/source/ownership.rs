//! Ownership of a tracefs instance: a recorder made it, the kernel's command line, or another program.

use std::os::fd::OwnedFd;

use anyhow::bail;

use crate::fs::kernelfs::{KernelFs, PROC};
use crate::fs::state;
use crate::source::as_found;
use crate::source::buffer_size;

/// True if the kernel's command line made an instance of this name.
pub(crate) fn made_at_boot(name: &str) -> anyhow::Result<bool> {
    let line = KernelFs::find(&PROC)?.get("cmdline")?;
    let mut instances = line.split_whitespace().filter_map(|word| word.strip_prefix("trace_instance="));
    Ok(instances.any(|instance| instance.split([',', '^', '@']).next() == Some(name)))
}

/// True if a recorder made the unlocked instance `name`: its state file has the inode number of the instance. Where no state file
/// can be kept (an initramfs without /run), the instance must have the `asked` name and the options that recorders set.
pub(crate) fn is_ours(name: &str, instance: &KernelFs, asked: &str) -> anyhow::Result<bool> {
    match state::read(name)? {
        Some(text) => {
            let inode = text.lines().skip(1).find(|line| !line.is_empty() && !line.starts_with('/'));
            // A recorder that was killed between making the state file and locking the instance leaves no number.
            let Some(inode) = inode else { return Ok(live_recorder(name).is_none()) };
            Ok(instance.inode()?.to_string() == inode)
        }
        None if name == asked && !state::can_be_kept() => has_recorder_options(instance),
        None => Ok(false),
    }
}

/// Process id, as text, of the recorder that wrote the state file of the instance `name`.
fn recorder(name: &str) -> Option<String> {
    state::read(name).ok()??.lines().next().map(str::to_owned)
}

/// [`recorder`], if it still runs.
pub(crate) fn live_recorder(name: &str) -> Option<String> {
    recorder(name).filter(|pid| state::may_run(pid))
}

/// True if the options have the values that a recorder sets, which are not the kernel's defaults, and tracing is off, as a
/// recorder's end leaves it.
fn has_recorder_options(instance: &KernelFs) -> anyhow::Result<bool> {
    let is = |file: &str, value: &str| Ok::<bool, anyhow::Error>(instance.get_if_there(file)?.trim() == value);
    let percent = instance.read_if_there("buffer_percent")?;
    Ok(is("options/disable_on_free", "1")?
        && is("tracing_on", "0")?
        && (percent.is_empty() || buffer_size::is_wake_percent(&percent)))
}

/// Writes the state file of an instance, a line each: this process's id, the path of the trace directory, which is empty before
/// the recording has begun, and, once it is known, the instance's inode number.
pub(crate) fn write_state(name: &str, instance: Option<&KernelFs>, trace_dir: &str) {
    let inode = instance.and_then(|fs| fs.inode().ok()).map(|inode| format!("{inode}\n")).unwrap_or_default();
    state::write(name, &format!("{}\n{trace_dir}\n{inode}", std::process::id()));
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
