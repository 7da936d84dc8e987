//! Buffers that the kernel has filled since boot, as its command line said: an instance (`trace_instance=`) or the top-level buffer
//! (`trace_event=`). They are taken over as they are: what is in them stays, and so do clock and sizes.

use std::os::fd::OwnedFd;

use anyhow::bail;

use crate::instance::Instance;
use crate::kernelfs::{KernelFs, PROC};
use crate::state;

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

/// State file of a top-level buffer that was taken over. No instance has a name like this.
const STATE_FILE: &str = ".boot";

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

/// Bytes of a CPU's buffer in the instance `name` where there is one, else in the top-level buffer; 0 where the kernel does not
/// tell.
pub(crate) fn buffer_bytes(tracefs: &KernelFs, name: &str) -> u64 {
    let instance = format!("instances/{name}/buffer_size_kb");
    let file = if tracefs.has(&instance).unwrap_or(false) { &instance } else { "buffer_size_kb" };
    let text = tracefs.get(file).unwrap_or_default();
    let digits = text.trim_start().split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
    digits.parse::<u64>().unwrap_or(0).saturating_mul(1024)
}

/// The instance `name` where there is one, else the top-level buffer.
pub(crate) fn take_over(tracefs: KernelFs, name: &str) -> anyhow::Result<Boot> {
    if tracefs.has(&format!("instances/{name}"))? {
        return Ok(Boot::Instance(Instance::take_over(tracefs, name)?));
    }
    let Ok(lock) = tracefs.lock() else { bail!("the top-level buffer is in use by another recorder") };
    let events = enabled(&tracefs)?;
    if !events.iter().any(|event| event.starts_with("kmem/")) {
        bail!("no kmem events were enabled at boot, and there is no instance {name}: {HOW}");
    }
    let tracing_on = tracefs.get("tracing_on")?;
    state::leave(STATE_FILE, &events.join("\n"));
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
        state::remove(STATE_FILE);
    }
}

/// Disables what a killed recorder left enabled in the top-level buffer; names it.
pub(crate) fn recover(tracefs: &KernelFs) -> Option<String> {
    let events = state::read(STATE_FILE)?;
    let _lock = tracefs.lock().ok()?;
    disable(tracefs, events.lines());
    state::remove(STATE_FILE);
    Some("the events enabled at boot".to_owned())
}
