//! Ring buffers of tracefs as a source: an instance made for the recording, or a buffer that the kernel has filled since boot.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use kmemtrace_abi::kernel::format::PageShape;
use kmemtrace_abi::kernel::target::Endian;
use kmemtrace_abi::text::units;
use kmemtrace_abi::trace::Scope;
use rustix::fs::OFlags;

use crate::control::clock::TraceClock;
use crate::control::files::{Control, Selections};
use crate::fs::kernelfs::{self, DEBUGFS, KernelFs, TRACEFS};
use crate::fs::rights;
use crate::source::boot::{self, BootBuffer};
use crate::source::buffer_size;
use crate::source::events;
use crate::source::functions::{self, Functions};
use crate::source::instance::Instance;
use crate::source::latency;
use crate::source::poll::readable;
use crate::source::stacks::{self, Stacks, Wished};
use crate::source::{CpuSource, Framing, Sample, SourceFacts, TraceSource};

/// Size of a sub-buffer where the kernel lets it be set.
const SUB_BUFFER_KIB: u64 = 64;
/// Fewest sub-buffers of that size in a buffer; a smaller buffer keeps sub-buffers of one page.
const MIN_SUB_BUFFERS: u64 = 32;

/// Opens the kernel's trace directory: `given`, else tracefs, or before Linux 4.1 a directory in debugfs.
pub(crate) fn find(given: Option<&Path>) -> anyhow::Result<KernelFs> {
    let found = match given {
        Some(path) => KernelFs::at(path).with_context(|| format!("--tracefs {}", path.display()))?,
        None => KernelFs::find(&TRACEFS).or_else(|error| {
            let older = KernelFs::find(&DEBUGFS).and_then(|debugfs| Ok(debugfs.sub("tracing")?));
            older.map_err(|_| match rustix::process::geteuid().is_root() {
                true => rights::no_tracefs(error),
                // Another user cannot see whether the kernel has trace events.
                false => anyhow!("no trace events for this user: run as root"),
            })
        })?,
    };
    rights::check_trace_directory(&found)?;
    Ok(found)
}

/// Options of a new instance.
pub(crate) struct InstanceOptions<'a> {
    pub(crate) name: &'a str,
    /// Names of events and of profiles (slab, page, all).
    pub(crate) events: &'a [String],
    pub(crate) clock: &'a str,
    /// Filter of the kernel on allocation events.
    pub(crate) filter: Option<&'a str>,
    /// Events that are to have stacks.
    pub(crate) stack: Wished<'a>,
    /// Functions to record, by default those of reclaim and compaction; `None`: no function.
    pub(crate) functions: Option<&'a [String]>,
    /// Part of the system to record.
    pub(crate) scope: Scope,
    /// Bytes of a CPU's buffer, given the number of CPUs.
    pub(crate) buffer_bytes: &'a dyn Fn(usize) -> u64,
}

/// Origin of the buffers.
enum Owner {
    /// The recorder made them.
    Recorder(Instance),
    /// The kernel or another program made them before the recording.
    Boot(BootBuffer),
}

impl Owner {
    /// Trace directory of the buffers.
    fn fs(&self) -> &KernelFs {
        match self {
            Owner::Recorder(instance) => &instance.fs,
            Owner::Boot(boot) => &boot.fs,
        }
    }

    /// Top-level trace directory.
    fn top(&self) -> &KernelFs {
        match self {
            Owner::Recorder(instance) => instance.top(),
            Owner::Boot(boot) => boot.top(),
        }
    }
}

/// Ring buffers of a trace directory, set up and not yet started.
pub(crate) struct RingBuffers {
    facts: Arc<SourceFacts>,
    clock: TraceClock,
    /// Control files until the recording takes them. Declared, and so dropped, before `owner`: an instance with open files cannot be
    /// removed.
    control: RefCell<Option<Control>>,
    /// `saved_cmdlines` of the top-level trace directory, open since it was first read.
    saved_cmdlines: RefCell<Option<File>>,
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
        let filters = events::allocations(&facts.events).map(events::filter_file);
        let own = Selections {
            filters: filters.filter(|_| facts.filter.is_some()).collect(),
            has_tasks: facts.scope == Scope::Tasks,
            has_functions: !facts.functions.recorded.is_empty(),
        };
        let control = Control::of_tracefs(fs.again()?, &facts.events, &facts.cpus, clock, own)?;
        let control = RefCell::new(Some(control));
        Ok(RingBuffers { facts: Arc::new(facts), clock, control, saved_cmdlines: RefCell::default(), owner })
    }

    /// Makes an instance and sets it up.
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
        let stacks = stacks::plan(fs, instance.top(), &events, options.stack, options.scope)?;
        // Before all else that counts: setting the clock empties the buffer.
        let clocks = fs.get("trace_clock")?;
        if !clocks.split_whitespace().any(|c| c.trim_matches(['[', ']']) == options.clock) {
            bail!("--clock {}: this kernel has {}", options.clock, clocks.trim());
        }
        fs.set("trace_clock", options.clock)?;
        // The kernel marks lost events in sub-buffers in overwrite mode only.
        fs.set("options/overwrite", "1")?;
        if buffer_bytes >= MIN_SUB_BUFFERS * SUB_BUFFER_KIB * 1024 {
            // Makes reads fewer and larger. Kernels before 6.8 have no such file, and sub-buffers of one page.
            let _ = fs.write("buffer_subbuf_size_kb", &SUB_BUFFER_KIB.to_string());
        }
        fs.set("buffer_size_kb", &(buffer_bytes / 1024).max(1).to_string())
            .context("the buffers cannot be had: give a smaller --buffer-size")?;
        let _ = fs.write("buffer_percent", &buffer_size::wake_percent(buffer_bytes).to_string());
        if let Some(filter) = options.filter {
            events::set_filter(fs, &events, "--filter", filter)?;
        }
        if options.scope == Scope::Tasks {
            // The kernel adds the children of a recorded task to the list of recorded tasks.
            fs.set("options/event-fork", "1").context("--only-command takes Linux 4.8 or later")?;
        }
        let stacks = stacks.map(|plan| plan.set(fs, &events, options.filter)).transpose()?.unwrap_or_default();
        let functions =
            options.functions.map(|asked| functions::set(fs, instance.top(), asked, options.scope)).unwrap_or_default();
        let missing = if events::has_latency(options.events) { latency::missing(fs)? } else { Vec::new() };
        let shown = kinds(options.events, events.len());
        let facts = SourceFacts {
            scope: options.scope,
            filter: options.filter.map(str::to_owned),
            stacks,
            functions,
            missing,
            ..facts(fs, events, options.clock.to_owned(), buffer_bytes, &shown)?
        };
        let buffers = RingBuffers::new(Owner::Recorder(instance), facts)?;
        buffers.must_be_as_set(options.clock)?;
        Ok(buffers)
    }

    /// Checks that clock, overwrite mode, filters and stacks are still as set. They were set before the control files were watched.
    fn must_be_as_set(&self, clock: &str) -> anyhow::Result<()> {
        let fs = self.owner.fs();
        let mut is_set =
            fs.get("trace_clock")?.contains(&format!("[{clock}]")) && fs.get("options/overwrite")?.trim() == "1";
        if let Some(filter) = &self.facts.filter {
            for event in events::allocations(&self.facts.events) {
                is_set &= fs.get(&events::filter_file(event))?.trim() == filter.trim();
            }
        }
        is_set &= stacks::are_set(fs, &self.facts.stacks)? && functions::are_set(fs, &self.facts.functions)?;
        if !is_set {
            bail!("{}: another program changed it while it was set up: use another name (-B)", fs.path("").display());
        }
        Ok(())
    }

    /// Takes over a buffer that the kernel has filled since boot. `more_events` are enabled in it, and it may grow.
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
        let shown = format!("{}   since boot", kinds(&[], events.len()));
        let stacks = stacks::found(fs, &events)?;
        let facts = SourceFacts { since_boot: true, stacks, ..facts(fs, events, clock, bytes, &shown)? };
        RingBuffers::new(owner, facts)
    }
}

/// Number of kinds of events, for the user, after the profile that stands for them.
fn kinds(asked: &[String], count: usize) -> String {
    let profile = match asked {
        [one] if events::is_profile(one) => format!("{one} events"),
        _ => "events".to_owned(),
    };
    format!("{profile}: {}", units::counted(count as u64, "kind"))
}

/// Describes the buffers of a trace directory, of the whole system; `shown` is a text about the events.
fn facts(
    fs: &KernelFs,
    events: Vec<String>,
    clock: String,
    buffer_bytes: u64,
    shown: &str,
) -> anyhow::Result<SourceFacts> {
    let cpus = fs.numbered("per_cpu", "cpu")?;
    if cpus.is_empty() {
        bail!("{}: has no CPU, so nothing can be recorded", fs.path("per_cpu").display());
    }
    let header_page = fs.get("events/header_page")?;
    let shape = PageShape::parse(&header_page, Endian::NATIVE).context("events/header_page is not understood")?;
    let shown = format!(
        "{} x {} of buffer   {shown}   clock {clock}",
        units::counted(cpus.len() as u64, "CPU"),
        units::bytes(buffer_bytes)
    );
    Ok(SourceFacts {
        word_bytes: shape.target.word_bytes,
        framing: Arc::new(Framing::SubBuffers(shape)),
        clock: Some(clock),
        header_page,
        header_event: fs.get_if_there("events/header_event")?,
        formats: events::formats(fs, &events)?,
        buffer_bytes: Some(buffer_bytes),
        since_boot: false,
        scope: Scope::System,
        filter: None,
        stacks: Stacks::default(),
        functions: Functions::default(),
        missing: Vec::new(),
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
        // One descriptor only: closing a second one would change how the kernel answers reads of this one.
        let Some(raw) = fs.open_if_there(&file("trace_pipe_raw"), OFlags::RDONLY | OFlags::NONBLOCK)? else {
            return Ok(None);
        };
        let Some(stats) = fs.open_if_there(&file("stats"), OFlags::RDONLY)? else {
            bail!(
                "{}: is not there, so lost events of CPU {cpu} could not be counted",
                fs.path(&file("stats")).display()
            );
        };
        Ok(Some(Box::new(RingBuffer { raw, stats, clock: self.clock })))
    }

    fn follow(&self, thread: i32) -> anyhow::Result<()> {
        let fs = self.owner.fs();
        functions::follow(fs, &self.facts.functions, thread)?;
        fs.set("set_event_pid", &thread.to_string())
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
        let mut file = self.saved_cmdlines.borrow_mut();
        if file.is_none() {
            *file = self.owner.top().open("saved_cmdlines", OFlags::RDONLY).ok();
        }
        file.as_ref().and_then(|file| kernelfs::read_again(file).ok()).unwrap_or_default()
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
