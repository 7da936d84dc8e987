//! Ownership of a tracefs instance: made by a recorder, by the kernel's command line, or by another program.

use std::io;
use std::os::fd::OwnedFd;

use anyhow::{anyhow, bail};

use crate::fs::kernelfs::{KernelFs, PROC};
use crate::fs::state;
use crate::source::as_found;

/// Whether the kernel's command line has made an instance of this name.
pub(crate) fn made_at_boot(name: &str) -> bool {
    let line = KernelFs::find(&PROC).and_then(|proc| proc.get("cmdline")).unwrap_or_default();
    line.split_whitespace()
        .filter_map(|word| word.strip_prefix("trace_instance="))
        .any(|instance| instance.split([',', '^', '@']).next() == Some(name))
}

/// True if a recorder has made the unlocked instance `name`: its state file says so, with the instance's inode number. Where no
/// state file can be kept (an initramfs without /run), the instance must have the `asked` name and the options that recorders
/// set.
pub(crate) fn is_ours(name: &str, instance: &KernelFs, asked: &str) -> bool {
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
pub(crate) fn leave_word(name: &str, instance: Option<&KernelFs>) {
    let inode = instance.and_then(KernelFs::inode).map(|inode| format!("{inode}\n")).unwrap_or_default();
    state::leave(name, &format!("{}\n{inode}", std::process::id()));
}

pub(crate) fn check_name(name: &str) -> anyhow::Result<()> {
    if name.is_empty() || name.starts_with('.') || name.contains('/') {
        bail!("-B {name}: not a name for an instance");
    }
    Ok(())
}

pub(crate) fn lock(instance: &KernelFs, name: &str) -> anyhow::Result<OwnedFd> {
    instance.lock().map_err(|error| {
        if error.kind() != io::ErrorKind::WouldBlock {
            return anyhow::Error::new(error).context(format!("{}: cannot be locked", instance.path("").display()));
        }
        let maker = || state::read(name)?.lines().next().map(str::to_owned);
        let pid = as_found::holder(instance).or_else(maker).map(|pid| format!(" (pid {pid})")).unwrap_or_default();
        anyhow!("instance {name} is in use by another recorder{pid}: stop it, or use another name (-B)")
    })
}
