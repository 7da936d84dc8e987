//! The ring buffers of tracefs as a source: events chosen and enabled in an instance of our own, or a buffer that the kernel has
//! filled since boot.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use kmemtrace_abi::format::PageShape;
use kmemtrace_abi::target::Endian;
use rustix::fs::OFlags;

use crate::control::clock::TraceClock;
use crate::control::files::Control;
use crate::fs::kernelfs::{DEBUGFS, KernelFs, TRACEFS};
use crate::source::boot::{self, Boot};
use crate::source::events;
use crate::source::instance::Instance;
use crate::source::poll::readable;
use crate::source::{CpuSource, Framing, Sample, SourceFacts, TraceSource};

/// Size of a sub-buffer, and the least number of them that a buffer is to have.
const SUB_BUFFER_KIB: u64 = 64;
const SUB_BUFFERS_AT_LEAST: u64 = 32;

/// The kernel's trace directory: the one given, tracefs where it is mounted or can be, or before Linux 4.1 a directory in debugfs.
pub(crate) fn find(given: Option<&Path>) -> anyhow::Result<KernelFs> {
    if let Some(path) = given {
        return KernelFs::at(path).with_context(|| format!("--tracefs {}", path.display()));
    }
    KernelFs::find(&TRACEFS).or_else(|error| {
        let older = KernelFs::find(&DEBUGFS).and_then(|debugfs| Ok(debugfs.sub("tracing")?));
        older.map_err(|_| match rustix::process::geteuid().is_root() {
            true => error.context("no trace events here: it takes a kernel with CONFIG_TRACING"),
            // Whether it is mounted cannot be told from out here.
            false => anyhow!("no trace events for this user: run as root"),
        })
    })
}

/// What to set up.
pub(crate) struct InstanceOptions<'a> {
    pub(crate) name: &'a str,
    /// Profiles and names of events.
    pub(crate) events: &'a [String],
    pub(crate) clock: &'a str,
    /// Bytes of a CPU's buffer, given the number of CPUs.
    pub(crate) buffer_bytes: &'a dyn Fn(usize) -> u64,
}

/// Whose buffers they are.
enum Owner {
    Us(Instance),
    Boot(Boot),
}

impl Owner {
    /// The trace directory of the buffers.
    fn fs(&self) -> &KernelFs {
        match self {
            Owner::Us(instance) => &instance.fs,
            Owner::Boot(boot) => &boot.fs,
        }
    }

    /// The top-level trace directory.
    fn top(&self) -> &KernelFs {
        match self {
            Owner::Us(instance) => instance.top(),
            Owner::Boot(boot) => boot.top(),
        }
    }
}

/// The buffers of a trace directory, set up and not yet started.
pub(crate) struct RingBuffers {
    facts: Arc<SourceFacts>,
    clock: TraceClock,
    /// Until the recording takes it: before `owner`, which cannot remove what is held open.
    control: RefCell<Option<Control>>,
    owner: Owner,
}

impl RingBuffers {
    fn new(owner: Owner, facts: SourceFacts) -> anyhow::Result<RingBuffers> {
        let fs = owner.fs();
        let mut clock = TraceClock::named(facts.clock.as_deref().unwrap_or_default());
        for cpu in facts.cpus.iter().take(1) {
            let file = format!("per_cpu/cpu{cpu}/stats");
            if let Some(stats) = fs.open_if_there(&file, OFlags::RDONLY)? {
                clock =
                    clock.checked(&stats).with_context(|| format!("{}: cannot be read", fs.path(&file).display()))?;
            }
        }
        let control = Control::of_tracefs(fs.again()?, &facts.events, &facts.cpus, clock)?;
        Ok(RingBuffers { facts: Arc::new(facts), clock, control: RefCell::new(Some(control)), owner })
    }

    pub(crate) fn set_up(tracefs: KernelFs, options: &InstanceOptions<'_>) -> anyhow::Result<RingBuffers> {
        if options.clock == "uptime" {
            bail!(
                "--clock uptime: it puts events in no order, for it ticks a hundred times a second: use mono, or global"
            );
        }
        let instance = Instance::create(tracefs, options.name)?;
        let fs = &instance.fs;
        let events = events::choose(fs, options.events)?;
        let buffer_bytes = (options.buffer_bytes)(fs.numbered("per_cpu", "cpu")?.len());
        // Clock first: setting it empties the buffer.
        let clocks = fs.get("trace_clock")?;
        if !clocks.split_whitespace().any(|c| c.trim_matches(['[', ']']) == options.clock) {
            bail!("--clock {}: this kernel has {}", options.clock, clocks.trim());
        }
        fs.set("trace_clock", options.clock)?;
        // Only in overwrite mode do sub-buffers carry marks of what was lost.
        fs.set("options/overwrite", "1")?;
        if buffer_bytes >= SUB_BUFFERS_AT_LEAST * SUB_BUFFER_KIB * 1024 {
            // Fewer and larger reads. Linux 6.8 on; elsewhere a sub-buffer is a page.
            let _ = fs.write("buffer_subbuf_size_kb", &SUB_BUFFER_KIB.to_string());
        }
        fs.set("buffer_size_kb", &(buffer_bytes / 1024).max(1).to_string())
            .context("the buffers cannot be had: give a smaller --buffer-size")?;
        let _ = fs.write("buffer_percent", "25");
        let clock = options.clock.to_owned();
        let facts = facts(fs, events, clock, buffer_bytes, false)?;
        let buffers = RingBuffers::new(Owner::Us(instance), facts)?;
        buffers.must_be_as_set(options.clock)?;
        Ok(buffers)
    }

    /// From here on the control files are watched: what was set before must have stayed.
    fn must_be_as_set(&self, clock: &str) -> anyhow::Result<()> {
        let fs = self.owner.fs();
        let is_set =
            fs.get("trace_clock")?.contains(&format!("[{clock}]")) && fs.get("options/overwrite")?.trim() == "1";
        if !is_set {
            bail!("{}: another program changed it while it was set up: use another name (-B)", fs.path("").display());
        }
        Ok(())
    }

    /// Takes over what the kernel has filled since boot. More events may be enabled in it, and its buffers may grow.
    pub(crate) fn take_over(
        tracefs: KernelFs,
        instance: &str,
        more_events: &[String],
        buffer_bytes: Option<u64>,
    ) -> anyhow::Result<RingBuffers> {
        let mut boot = boot::take_over(tracefs, instance)?;
        let more = events::choose(&boot.fs, more_events)?;
        boot.prepare(&more, buffer_bytes)?;
        let (events, bytes) = (boot.events().to_vec(), boot.bytes()?);
        let owner = Owner::Boot(boot);
        let fs = owner.fs();
        let clocks = fs.get("trace_clock")?;
        let clock = clocks.split_whitespace().find_map(|clock| clock.strip_prefix('[')?.strip_suffix(']'));
        let clock = clock.unwrap_or("local").to_owned();
        let facts = facts(fs, events, clock, bytes, true)?;
        RingBuffers::new(owner, facts)
    }
}

fn facts(
    fs: &KernelFs,
    events: Vec<String>,
    clock: String,
    buffer_bytes: u64,
    since_boot: bool,
) -> anyhow::Result<SourceFacts> {
    let cpus = fs.numbered("per_cpu", "cpu")?;
    if cpus.is_empty() {
        bail!("{}: has no CPU, so nothing can be recorded", fs.path("per_cpu").display());
    }
    let header_page = fs.get("events/header_page")?;
    let shape = PageShape::parse(&header_page, Endian::NATIVE).context("events/header_page is not understood")?;
    let shown = format!(
        "{} CPUs x {} KiB   {} events   clock {clock}{}",
        cpus.len(),
        buffer_bytes / 1024,
        events.len(),
        if since_boot { "   since boot" } else { "" }
    );
    Ok(SourceFacts {
        word_bytes: shape.target.word_bytes,
        framing: Arc::new(Framing::SubBuffers(shape)),
        clock: Some(clock),
        header_page,
        header_event: fs.get_if_there("events/header_event")?,
        formats: events::formats(fs, &events)?,
        buffer_bytes: Some(buffer_bytes),
        since_boot,
        shown,
        cpus,
        events,
    })
}

impl TraceSource for RingBuffers {
    fn facts(&self) -> &Arc<SourceFacts> {
        &self.facts
    }

    fn cpu(&self, cpu: u32) -> anyhow::Result<Option<Box<dyn CpuSource>>> {
        let fs = self.owner.fs();
        let file = |name: &str| format!("per_cpu/cpu{cpu}/{name}");
        // Exactly one descriptor: closing a copy would change how the kernel answers.
        let Some(raw) = fs.open_if_there(&file("trace_pipe_raw"), OFlags::RDONLY | OFlags::NONBLOCK)? else {
            return Ok(None);
        };
        let Some(stats) = fs.open_if_there(&file("stats"), OFlags::RDONLY)? else {
            bail!("{}: is not there, so losses of CPU {cpu} could not be told", fs.path(&file("stats")).display());
        };
        Ok(Some(Box::new(RingBuffer { raw, stats, clock: self.clock })))
    }

    fn start(&self) -> anyhow::Result<()> {
        let fs = self.owner.fs();
        self.facts.events.iter().try_for_each(|event| fs.set(&format!("events/{event}/enable"), "1"))?;
        fs.set("tracing_on", "1")
    }

    fn begun(&self) {
        if let Owner::Boot(boot) = &self.owner {
            boot.begun();
        }
    }

    fn control(&self) -> Option<Control> {
        self.control.take()
    }

    fn stop(&self) {
        let _ = self.owner.fs().write("tracing_on", "0");
    }

    fn comms(&self) -> Vec<u8> {
        self.owner.top().read("saved_cmdlines").unwrap_or_default()
    }
}

/// One CPU's `trace_pipe_raw` and `stats`.
struct RingBuffer {
    raw: File,
    stats: File,
    clock: TraceClock,
}

impl CpuSource for RingBuffer {
    fn wait(&self, timeout: Duration) -> bool {
        readable(&self.raw, timeout)
    }

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.raw.read(buffer)
    }

    fn sample(&self) -> io::Result<Sample> {
        let (stats, read) = self.clock.read_counters(&self.stats)?;
        Ok(Sample { stats, read, drained: None })
    }

    fn now(&self) -> Option<u64> {
        self.clock.system_now().map(|(not_later, _)| not_later)
    }
}
