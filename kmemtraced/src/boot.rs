//! Buffers that the kernel has filled since boot, as its command line said: an instance (`trace_instance=`) or the top-level buffer
//! (`trace_event=`). They are taken over as they are: what is in them stays, and so do clock and sizes.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use anyhow::bail;

use crate::instance::{Instance, STATE};
use crate::kernelfs::{KernelFs, PROC};

/// What to write on the kernel's command line, for who has not.
const HOW: &str = "boot with trace_event=kmem trace_buf_size=64M trace_clock=global, or with trace_instance=kmemtrace,kmem (Linux 6.12 on)";

/// A buffer of the kernel.
pub(crate) enum Boot {
    Instance(Instance),
    TopLevel(TopLevel),
}

/// The top-level buffer. Dropping it disables what was enabled in it at boot; the rest is left as it was.
pub(crate) struct TopLevel {
    pub(crate) fs: KernelFs,
    events: Vec<String>,
    /// `tracing_on` as it was found.
    tracing_on: String,
    _lock: OwnedFd,
}

/// Word of a top-level buffer that was taken over. No instance has a name like this.
fn state_file() -> PathBuf {
    Path::new(STATE).join(".boot")
}

/// `system/event` of all that is enabled in a trace directory.
pub(crate) fn enabled(fs: &KernelFs) -> anyhow::Result<Vec<String>> {
    Ok(fs.get("set_event")?.lines().map(|line| line.replacen(':', "/", 1)).filter(|e| e.contains('/')).collect())
}

/// Whether the kernel's command line has made an instance of this name.
pub(crate) fn made_at_boot(name: &str) -> bool {
    let line = KernelFs::find(&PROC).and_then(|proc| proc.get("cmdline")).unwrap_or_default();
    line.split_whitespace()
        .filter_map(|word| word.strip_prefix("trace_instance="))
        .any(|instance| instance.split([',', '^', '@']).next() == Some(name))
}

/// The instance `name` where there is one, else the top-level buffer.
pub(crate) fn take_over(tracefs: KernelFs, name: &str) -> anyhow::Result<Boot> {
    if tracefs.has(&format!("instances/{name}")) {
        return Ok(Boot::Instance(Instance::take_over(tracefs, name)?));
    }
    let Ok(lock) = tracefs.lock() else { bail!("the top-level buffer is in use by another recorder") };
    let events = enabled(&tracefs)?;
    if !events.iter().any(|event| event.starts_with("kmem/")) {
        bail!("no kmem events were enabled at boot, and there is no instance {name}: {HOW}");
    }
    let tracing_on = tracefs.get("tracing_on")?;
    let _ = fs::create_dir_all(STATE);
    let _ = fs::write(state_file(), events.join("\n"));
    Ok(Boot::TopLevel(TopLevel { fs: tracefs, events, tracing_on, _lock: lock }))
}

fn disable<'a>(tracefs: &KernelFs, events: impl Iterator<Item = &'a str>) {
    for event in events.filter(|event| !event.contains("..")) {
        let _ = tracefs.write(&format!("events/{event}/enable"), "0");
    }
}

impl Drop for TopLevel {
    fn drop(&mut self) {
        disable(&self.fs, self.events.iter().map(String::as_str));
        let _ = self.fs.write("tracing_on", self.tracing_on.trim());
        let _ = fs::remove_file(state_file());
    }
}

/// Disables what a killed recorder left enabled in the top-level buffer; names it.
pub(crate) fn recover(tracefs: &KernelFs) -> Option<String> {
    let events = fs::read_to_string(state_file()).ok()?;
    let _lock = tracefs.lock().ok()?;
    disable(tracefs, events.lines());
    let _ = fs::remove_file(state_file());
    Some("the events enabled at boot".to_owned())
}
