//! Buffers that were filled before the recorder started, mostly since boot by the kernel's command line: an instance
//! (`trace_instance=`) or the top-level buffer (`trace_event=`). The recorder takes them over with their events, clock and sizes. If
//! the recording does not begin, it sets back all that it changed.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use anyhow::{Context, bail};

use crate::fs::kernelfs::KernelFs;
use crate::source::as_found::{self, AsFound};
use crate::source::buffer_size;
use crate::source::events;
use crate::source::instance::{self, Claim};
use crate::source::ownership::made_at_boot;
use crate::source::probes::{self, Probes};
use crate::source::recovery::Recovery;
use crate::source::undo;

/// Remedy where nothing was recorded at boot: words for the kernel's command line.
const REMEDY: &str = "boot with trace_event=kmem trace_buf_size=64M trace_clock=global, or with trace_instance=kmemtrace,kmem (Linux 6.12 on)";

/// A buffer that was taken over. Dropping it restores its control files if the recording has not begun. After that, dropping it
/// removes an instance that the kernel or a recorder made, restores one made by hand, and disables all events of the top-level
/// buffer before it restores the rest.
pub(crate) struct BootBuffer {
    /// Trace directory of the buffer.
    pub(crate) fs: KernelFs,
    /// Top-level trace directory and name of the instance; `None` for the top-level buffer itself.
    instance: Option<(Arc<KernelFs>, String)>,
    /// True if the instance is removed at the end of the recording.
    is_removed: bool,
    /// Events that are or will be enabled, as sorted `system/event`.
    events: Vec<String>,
    _lock: OwnedFd,
}

/// Number in `buffer_size_kb`; `None` where CPUs differ.
fn kib(text: &str) -> Option<u64> {
    text.trim_start().split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// Files with the size of the buffers, and the sizes in KiB: one file for all CPUs where sizes are equal, else one for each.
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

/// Bytes of a CPU's buffer in the instance `name` where it exists, else in the top-level buffer; 0 where they cannot be read.
pub(crate) fn buffer_bytes(tracefs: &KernelFs, name: &str) -> u64 {
    let instance = tracefs.sub(&format!("instances/{name}"));
    bytes_in(instance.as_ref().unwrap_or(tracefs)).unwrap_or(0)
}

/// Opens and locks the instance `name` where it exists, else the top-level buffer, without changing it.
pub(crate) fn take_over(tracefs: KernelFs, name: &str) -> anyhow::Result<BootBuffer> {
    if tracefs.has(&format!("instances/{name}"))? {
        let Claim { fs, lock, is_recorders } = instance::claim(&tracefs, name)?;
        let is_removed = is_recorders || made_at_boot(name)?;
        let events = events::enabled(&fs)?;
        let instance = Some((Arc::new(tracefs), name.to_owned()));
        return Ok(BootBuffer { fs, instance, is_removed, events, _lock: lock });
    }
    let lock = tracefs.lock_or(|| "the top-level buffer is in use by another recorder: stop it".to_owned())?;
    let events = events::enabled(&tracefs)?;
    if !events.iter().any(|event| event.starts_with("kmem/")) {
        bail!("no kmem events were enabled at boot, and there is no instance {name}: {REMEDY}");
    }
    Ok(BootBuffer { fs: tracefs, instance: None, is_removed: false, events, _lock: lock })
}

impl BootBuffer {
    /// Top-level trace directory.
    pub(crate) fn top(&self) -> &KernelFs {
        self.instance.as_ref().map_or(&self.fs, |(top, _)| top)
    }

    /// Events that are or will be enabled, as sorted `system/event`.
    pub(crate) fn events(&self) -> &[String] {
        &self.events
    }

    /// Bytes of the largest buffer of a CPU.
    pub(crate) fn bytes(&self) -> anyhow::Result<u64> {
        bytes_in(&self.fs)
    }

    /// Name of the instance, or that of the top-level buffer.
    pub(crate) fn name(&self) -> &str {
        self.instance.as_ref().map_or(probes::TOP_LEVEL, |(_, name)| name)
    }

    /// Plans the undo for `more` events, probe events and buffers of at least `bytes` per CPU, then grows the buffers in steps, until a
    /// signal asks for the end. The caller enables the events.
    pub(crate) fn prepare(
        &mut self,
        more: &[String],
        bytes: Option<u64>,
        is_stopped: &dyn Fn() -> bool,
    ) -> anyhow::Result<()> {
        let wanted = bytes.unwrap_or(0) / 1024;
        let mut smaller = sizes(&self.fs)?;
        smaller.retain(|(_, kib)| *kib < wanted);
        let mut values: Vec<(String, String)> =
            more.iter().filter(|event| !self.events.contains(event)).map(|event| switch_of(event, "0")).collect();
        values.extend(smaller.iter().map(|(file, kib)| (file.clone(), kib.to_string())));
        // Restored last: nothing is recorded before the rest is as it was.
        values.push(("tracing_on".to_owned(), self.fs.get("tracing_on")?.trim().to_owned()));
        let group = probes::group_of(self.name());
        undo::plan_restore(AsFound::save(self.fs.again()?, self.top().again()?, Some(group), values));
        self.events.extend(more.iter().cloned());
        self.events.sort();
        self.events.dedup();
        // A buffer that grows keeps its events.
        let cpus = self.fs.numbered("per_cpu", "cpu")?.len();
        for (file, kib) in &smaller {
            let grown = buffer_size::steps(wanted, cpus).filter(|size| size > kib);
            for size in grown.take_while(|_| !is_stopped()) {
                let grown = self.fs.set(file, &size.to_string());
                grown.context("the buffers cannot grow: give a smaller --buffer-size, or none")?;
            }
        }
        Ok(())
    }

    /// Defines probe events, which are enabled once the recording has begun: until then nothing may empty the buffer, and the
    /// removal of an event that was enabled does.
    pub(crate) fn define_probes(&mut self) -> anyhow::Result<Probes> {
        let wanted = probes::Wanted {
            top: self.top(),
            fs: &self.fs,
            name: self.name(),
            events: &self.events,
            filters: &[],
            enables: false,
        };
        let probes = probes::set_up(&wanted)?;
        self.events.extend(probes.events.iter().cloned());
        Ok(probes)
    }

    /// Notes that the recording has begun: the readers move the events of the buffer into its files.
    pub(crate) fn begun(&self) {
        match &self.instance {
            Some((top, name)) if self.is_removed => undo::plan_removal_instead(top, name, &self.fs),
            Some(_) => {}
            None => undo::change_restore(|as_found| {
                // The probe events are gone by then, with their switches.
                let probes = format!("{}/", probes::group_of(self.name()));
                let others = self.events.iter().filter(|event| !event.starts_with(&probes));
                as_found.add(others.map(|event| switch_of(event, "0")));
            }),
        }
    }
}

impl Drop for BootBuffer {
    fn drop(&mut self) {
        undo::run();
    }
}

/// The switch of an event, with a value for it.
fn switch_of(event: &str, value: &str) -> (String, String) {
    (format!("events/{event}/enable"), value.to_owned())
}

/// Restores buffers that killed recorders had taken over.
pub(crate) fn recover(tracefs: &KernelFs, recovery: &mut Recovery) {
    let undone = as_found::recover(tracefs, tracefs);
    recovery.add(undone.map(|is_undone| is_undone.then(|| "what was changed in the top-level buffer".to_owned())));
    for name in recovery.names_of_instances(tracefs) {
        let undone = tracefs.open_dir_if_there(&format!("instances/{name}")).and_then(|instance| {
            let is_undone = instance.map_or(Ok(false), |instance| as_found::recover(&instance, tracefs))?;
            Ok(is_undone.then(|| format!("what was changed in instance {name}")))
        });
        recovery.add(undone);
    }
}
