//! Buffers that were filled before the recorder came, mostly since boot, as the kernel's command line said: an instance
//! (`trace_instance=`) or the top-level buffer (`trace_event=`). They are taken over as they are: what is in them stays, and so do
//! clock and sizes. Until the recording has begun, all that was changed in them is set back at the end.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use anyhow::{Context, bail};

use crate::fs::kernelfs::KernelFs;
use crate::source::as_found::{self, AsFound};
use crate::source::events;
use crate::source::instance::{self, Claim};
use crate::source::ownership::made_at_boot;
use crate::source::undo;

/// What to write on the kernel's command line, for who has not.
const HOW: &str = "boot with trace_event=kmem trace_buf_size=64M trace_clock=global, or with trace_instance=kmemtrace,kmem (Linux 6.12 on)";

/// A buffer that was taken over. Dropping it sets it back to what it was or, once the recording has begun, ends it: an instance
/// that the kernel or a recorder made is removed, one made by hand is set back, and of the top-level buffer all events are disabled
/// and the rest is set back.
pub(crate) struct Boot {
    /// The trace directory of the buffer.
    pub(crate) fs: KernelFs,
    /// The top-level trace directory and the instance's name; nothing where the top-level buffer itself is taken over.
    instance: Option<(Arc<KernelFs>, String)>,
    /// The instance is to go with the recording.
    is_removed: bool,
    /// `system/event` of all that is enabled, or to be enabled.
    events: Vec<String>,
    _lock: OwnedFd,
}

/// KiB as `buffer_size_kb` has them; nothing where CPUs differ.
fn kib(text: &str) -> Option<u64> {
    text.trim_start().split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// The files that say how large the buffers are, in KiB: one for all CPUs where these are equal, else one for each.
fn sizes(fs: &KernelFs) -> anyhow::Result<Vec<(String, u64)>> {
    let all = "buffer_size_kb".to_owned();
    if let Some(kib) = kib(&fs.get(&all)?) {
        return Ok(vec![(all, kib)]);
    }
    let mut sizes = Vec::new();
    for cpu in fs.numbered("per_cpu", "cpu")? {
        let file = format!("per_cpu/cpu{cpu}/buffer_size_kb");
        let size = kib(&fs.get(&file)?).unwrap_or(0);
        sizes.push((file, size));
    }
    Ok(sizes)
}

/// Bytes of the largest buffer of a CPU in a trace directory.
fn bytes_in(fs: &KernelFs) -> anyhow::Result<u64> {
    Ok(sizes(fs)?.iter().map(|(_, kib)| *kib).max().unwrap_or(0).saturating_mul(1024))
}

/// Bytes of a CPU's buffer in the instance `name` where there is one, else in the top-level buffer; 0 where the kernel does not
/// tell.
pub(crate) fn buffer_bytes(tracefs: &KernelFs, name: &str) -> u64 {
    let instance = tracefs.sub(&format!("instances/{name}"));
    bytes_in(instance.as_ref().unwrap_or(tracefs)).unwrap_or(0)
}

/// The instance `name` where there is one, else the top-level buffer. Nothing is changed yet.
pub(crate) fn take_over(tracefs: KernelFs, name: &str) -> anyhow::Result<Boot> {
    if tracefs.has(&format!("instances/{name}"))? {
        let Claim { fs, lock, is_recorders } = instance::claim(&tracefs, name)?;
        let is_removed = is_recorders || made_at_boot(name);
        let events = events::enabled(&fs)?;
        let instance = Some((Arc::new(tracefs), name.to_owned()));
        return Ok(Boot { fs, instance, is_removed, events, _lock: lock });
    }
    let Ok(lock) = tracefs.lock() else { bail!("the top-level buffer is in use by another recorder") };
    let events = events::enabled(&tracefs)?;
    if !events.iter().any(|event| event.starts_with("kmem/")) {
        bail!("no kmem events were enabled at boot, and there is no instance {name}: {HOW}");
    }
    Ok(Boot { fs: tracefs, instance: None, is_removed: false, events, _lock: lock })
}

impl Boot {
    /// The top-level trace directory.
    pub(crate) fn top(&self) -> &KernelFs {
        self.instance.as_ref().map_or(&self.fs, |(top, _)| top)
    }

    /// `system/event` of all that is enabled, or to be enabled; sorted.
    pub(crate) fn events(&self) -> &[String] {
        &self.events
    }

    /// Bytes of the largest buffer of a CPU.
    pub(crate) fn bytes(&self) -> anyhow::Result<u64> {
        bytes_in(&self.fs)
    }

    /// Notes what `more` events and buffers of at least `bytes` per CPU change, then lets the buffers grow. The caller enables the
    /// events.
    pub(crate) fn prepare(&mut self, more: &[String], bytes: Option<u64>) -> anyhow::Result<()> {
        let wanted = bytes.unwrap_or(0) / 1024;
        let mut smaller = sizes(&self.fs)?;
        smaller.retain(|(_, kib)| *kib < wanted);
        let mut values: Vec<(String, String)> =
            more.iter().filter(|event| !self.events.contains(event)).map(|event| switch_of(event, "0")).collect();
        values.extend(smaller.iter().map(|(file, kib)| (file.clone(), kib.to_string())));
        // Last: nothing is recorded before the rest is as it was.
        values.push(("tracing_on".to_owned(), self.fs.get("tracing_on")?.trim().to_owned()));
        undo::hold_as_found(AsFound::note(self.fs.again()?, values));
        self.events.extend(more.iter().cloned());
        self.events.sort();
        self.events.dedup();
        // Growing keeps what is in them.
        for (file, _) in &smaller {
            let grown = self.fs.set(file, &wanted.to_string());
            grown.context("the buffers cannot grow: give a smaller --buffer-size, or none")?;
        }
        Ok(())
    }

    /// The recording has begun: what is in the buffer goes into its files.
    pub(crate) fn begun(&self) {
        match &self.instance {
            Some((top, name)) if self.is_removed => undo::hold_to_remove(top, name, &self.fs),
            Some(_) => {}
            None => undo::change_as_found(|as_found| {
                as_found.add(self.events.iter().map(|event| switch_of(event, "0")));
            }),
        }
    }
}

impl Drop for Boot {
    fn drop(&mut self) {
        undo::remove_held();
    }
}

/// The file that switches an event, and a value for it.
fn switch_of(event: &str, value: &str) -> (String, String) {
    (format!("events/{event}/enable"), value.to_owned())
}

/// Sets the buffers back that killed recorders had taken over; names them.
pub(crate) fn recover(tracefs: &KernelFs) -> Vec<String> {
    let mut recovered = Vec::new();
    if as_found::recover(tracefs) {
        recovered.push("what was changed in the top-level buffer".to_owned());
    }
    for name in tracefs.names("instances").unwrap_or_default() {
        if tracefs.sub(&format!("instances/{name}")).is_ok_and(|instance| as_found::recover(&instance)) {
            recovered.push(format!("what was changed in instance {name}"));
        }
    }
    recovered
}
