//! Relay channel of the 2008 kmemtrace as a source: `cpuN`, `total_overruns`, `abi_version` and `enabled` in a directory of
//! debugfs.

use std::cell::RefCell;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use kmemtrace_abi::kernel::stats::Stats;
use kmemtrace_abi::trace::Scope;
use kmemtrace_sandbox::{Purpose, Sandbox};
use rustix::fs::OFlags;

use crate::control::files::Control;
use crate::fs::kernelfs::{DEBUGFS, KernelFs};
use crate::fs::state;
use crate::source::functions::Functions;
use crate::source::poll::readable;
use crate::source::probes::Probes;
use crate::source::stacks::Stacks;
use crate::source::stop::Stop;
use crate::source::{CpuSource, Framing, RelayFraming, Sample, SourceFacts, TraceSource};

/// The only ABI version that the kernel ever announced, for four record layouts.
const ABI_VERSION: &str = "1";

/// A relay channel, locked. Dropping it sets `enabled` to its earlier value.
pub(crate) struct RelayChannel {
    /// Control files until the recording takes them.
    control: RefCell<Option<Control>>,
    fs: KernelFs,
    facts: Arc<SourceFacts>,
    /// Earlier text of `enabled`; the first revisions have no such file.
    was_enabled: Option<String>,
    /// True if the channel has a `total_overruns`.
    has_overruns: bool,
    _lock: OwnedFd,
}

/// Opens the channel `kmemtrace` in debugfs; `None` where the kernel has none.
pub(crate) fn find() -> Option<KernelFs> {
    let channel = KernelFs::find(&DEBUGFS).ok()?.sub("kmemtrace").ok()?;
    channel.numbered(".", "cpu").is_ok_and(|cpus| !cpus.is_empty()).then_some(channel)
}

/// Name of the state file of a channel whose `enabled` was changed. No instance has such a name.
const STATE_FILE: &str = ".relay";

impl RelayChannel {
    /// Checks and locks a channel.
    pub(crate) fn set_up(fs: KernelFs) -> anyhow::Result<RelayChannel> {
        let shown = fs.path("").display().to_string();
        let cpus = fs.numbered(".", "cpu")?;
        if cpus.is_empty() {
            bail!("{shown}: has no cpu0, cpu1, ...: it is not a kmemtrace channel");
        }
        let version = fs.get_if_there("abi_version")?;
        if !["", ABI_VERSION].contains(&version.trim()) {
            bail!(
                "{shown}: announces ABI version {}, and only {ABI_VERSION} is known; use a kmemtraced of that kernel's patch",
                version.trim()
            );
        }
        // A counter that is there must be readable: without it, loss would go unseen.
        let has_overruns = match total_overruns(&fs) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            counted => counted.map(|_| true).with_context(|| format!("{shown}/total_overruns: cannot be read"))?,
        };
        let lock = fs.lock_or(|| {
            format!("{shown}: in use by another recorder: stop it, or record from tracefs meanwhile (--tracefs DIR)")
        })?;
        let enabled = fs.get_if_there("enabled")?;
        let was_enabled = Some(enabled.trim().to_owned()).filter(|text| !text.is_empty());
        let facts = SourceFacts {
            framing: Arc::new(Framing::Relay(RelayFraming::default())),
            word_bytes: size_of::<usize>() as u8,
            clock: None,
            header_page: String::new(),
            header_event: String::new(),
            formats: Vec::new(),
            events: Vec::new(),
            buffer_bytes: None,
            since_boot: false,
            scope: Scope::System,
            filter: None,
            stacks: Stacks::default(),
            functions: Functions::default(),
            probes: Probes::default(),
            missing: Vec::new(),
            shown: format!("{} CPUs   relay channel {shown}", cpus.len()),
            cpus,
        };
        let control = RefCell::new(Some(Control::of_channel(fs.again()?)?));
        Ok(RelayChannel { control, fs, facts: Arc::new(facts), has_overruns, was_enabled, _lock: lock })
    }
}

impl TraceSource for RelayChannel {
    fn facts(&self) -> &Arc<SourceFacts> {
        &self.facts
    }

    fn cpu(&self, cpu: u32) -> anyhow::Result<Option<Box<dyn CpuSource>>> {
        let Some(raw) = self.fs.open_if_there(&format!("cpu{cpu}"), OFlags::RDONLY | OFlags::NONBLOCK)? else {
            return Ok(None);
        };
        // The counter is one for all CPUs, so only the first CPU reports it.
        let first = self.facts.cpus.first() == Some(&cpu);
        let overruns = if first && self.has_overruns { Some(self.fs.again()?) } else { None };
        Ok(Some(Box::new(RelayBuffer { raw, overruns })))
    }

    fn allow(&self, sandbox: &mut Sandbox) -> anyhow::Result<()> {
        self.fs.allow(Purpose::Control, sandbox)?;
        state::allow(sandbox)
    }

    fn allow_reading(&self, sandbox: &mut Sandbox) -> anyhow::Result<()> {
        self.fs.allow(Purpose::Read, sandbox)
    }

    fn start(&self) -> anyhow::Result<()> {
        if let Some(before) = &self.was_enabled {
            let path = fs::canonicalize(self.fs.path("")).unwrap_or_else(|_| self.fs.path(""));
            let _ = state::write(STATE_FILE, &format!("{before}\n{}\n", path.display()));
            self.fs.set("enabled", "1")?;
        }
        Ok(())
    }

    fn control(&self) -> Option<Control> {
        self.control.take()
    }

    fn stop(&self) -> anyhow::Result<()> {
        let is_ours = self.was_enabled.is_some() && !self.fs.is_gone();
        if is_ours { self.fs.set("enabled", "0") } else { Ok(()) }
    }

    fn comms(&self) -> Vec<u8> {
        Vec::new()
    }
}

impl Drop for RelayChannel {
    fn drop(&mut self) {
        if let Some(before) = &self.was_enabled {
            let _ = self.fs.write("enabled", before);
            state::remove(STATE_FILE);
        }
    }
}

/// Restores `enabled` of a channel that a killed recorder left; returns a text with its path.
pub(crate) fn recover() -> anyhow::Result<Option<String>> {
    let Some(state) = state::read(STATE_FILE)? else { return Ok(None) };
    let Some((before, path)) = state.trim_end().split_once('\n') else { return Ok(None) };
    let named = match path.starts_with('/').then(|| KernelFs::at(path.as_ref())) {
        Some(Err(error)) if error.kind() != io::ErrorKind::NotFound => bail!("{path}: cannot be opened: {error}"),
        named => named.and_then(Result::ok),
    };
    if let Some(channel) = named.or_else(find) {
        let Some(_lock) = channel.lock_if_free()? else { return Ok(None) };
        channel.set("enabled", before)?;
    }
    state::remove(STATE_FILE);
    Ok(Some(format!("{path} (enabled is {before} again)")))
}

/// Events lost on all CPUs since the channel was made.
fn total_overruns(channel: &KernelFs) -> io::Result<u64> {
    let text = channel.read("total_overruns")?;
    let number = str::from_utf8(&text).ok().and_then(|text| text.trim().parse().ok());
    number.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "no number"))
}

/// One CPU's channel file.
struct RelayBuffer {
    raw: File,
    /// Directory of the channel, for the CPU that reports `total_overruns`: the file cannot seek, so it is opened for each reading.
    overruns: Option<KernelFs>,
}

impl CpuSource for RelayBuffer {
    fn wait(&self, timeout: Duration, stop: &Stop) -> bool {
        readable(&self.raw, stop, timeout)
    }

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.raw.read(buffer)
    }

    fn sample(&self) -> io::Result<Sample> {
        let overrun = self.overruns.as_ref().map_or(Ok(0), total_overruns)?;
        Ok(Sample { stats: Stats { overrun, ..Stats::default() }, ..Sample::default() })
    }

    fn now(&self) -> Option<u64> {
        None
    }
}
