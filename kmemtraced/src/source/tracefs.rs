//! Ring buffers of tracefs as a source: an instance made for the recording, or a buffer that the kernel has filled since boot.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use kmemtrace_abi::kernel::format::PageShape;
use kmemtrace_abi::target::Endian;
use kmemtrace_abi::text::escape::escape;
use kmemtrace_abi::text::units;
use kmemtrace_abi::trace::Scope;
use kmemtrace_sandbox::{Purpose, Sandbox};
use rustix::fs::OFlags;

use crate::choices::StackWhen;
use crate::control::clock::TraceClock;
use crate::control::files::{Control, Selections};
use crate::fs::kernelfs::{self, DEBUGFS, KernelFs, TRACEFS};
use crate::fs::rights;
use crate::fs::state;
use crate::process::messages;
use crate::source::boot::{self, BootBuffer};
use crate::source::buffer_size;
use crate::source::events;
use crate::source::functions::{self, Functions};
use crate::source::instance::Instance;
use crate::source::kernel;
use crate::source::poll::readable;
use crate::source::probes::{self, Probes, Wanted};
use crate::source::stacks::{self, Stacks, Wished};
use crate::source::stop::Stop;
use crate::source::task_lists;
use crate::source::{CpuSource, Framing, Sample, SourceFacts, TraceSource};

/// Size of a sub-buffer where the kernel lets it be set.
const SUB_BUFFER_KIB: u64 = 64;
/// Control file with that size. Kernels before 6.8 have no such file, and sub-buffers of one page.
const SUB_BUFFER_SIZE: &str = "buffer_subbuf_size_kb";
/// Control file with the tasks to record.
const TASKS: &str = "set_event_pid";
/// Switch of a buffer.
const ON: &str = "tracing_on";
/// Option that adds the children of these tasks.
const FORK: &str = "options/event-fork";
/// Default clocks, best first: older kernels have no `mono`.
const CLOCKS: [&str; 2] = ["mono", "global"];
/// Option of a trace directory: a full buffer loses its oldest events.
const OVERWRITE: &str = "overwrite";

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
    /// Names of events and of profiles.
    pub(crate) events: &'a [String],
    /// Trace clock; `None`: the first of [`CLOCKS`] that the kernel has.
    pub(crate) clock: Option<&'a str>,
    /// Filter of the kernel on allocation events.
    pub(crate) filter: Option<&'a str>,
    /// Events that are to have stacks.
    pub(crate) stack: Wished<'a>,
    /// Functions to record, by default those of reclaim and compaction; `None`: no function.
    pub(crate) functions: Option<&'a [String]>,
    /// True if probe events may be defined.
    pub(crate) probes: bool,
    /// Part of the system to record.
    pub(crate) scope: Scope,
    /// Option that limits the recording to some tasks; empty without one.
    pub(crate) task_option: &'a str,
    /// Bytes of a CPU's buffer, given the number of CPUs.
    pub(crate) buffer_bytes: &'a dyn Fn(usize) -> u64,
    /// True once a signal has asked for the end.
    pub(crate) is_stopped: &'a dyn Fn() -> bool,
}

impl InstanceOptions<'_> {
    /// Defines and enables the probe events for these events of an instance that records nothing yet.
    fn probes(&self, instance: &Instance, events: &[String]) -> anyhow::Result<Probes> {
        if !self.probes {
            return Ok(probes::left_out(events));
        }
        let stack = self.stack.when.and_then(|when| match when {
            StackWhen::Filter(filter) => Some(filter.as_str()),
            _ => None,
        });
        let filters: Vec<&str> = self.filter.into_iter().chain(stack).collect();
        let (top, fs) = (instance.top(), &instance.fs);
        probes::set_up(&Wanted { top, fs, name: self.name, events, filters: &filters, enables: true })
    }

    /// Refuses what cannot be done at all, or not by this kernel, before anything is changed.
    fn check(&self, tracefs: &KernelFs) -> anyhow::Result<()> {
        if self.clock == Some("uptime") {
            bail!(
                "--clock uptime: it puts events in no order, for it ticks a hundred times a second: use mono, or global"
            );
        }
        let release = kernel::release();
        if self.filter.is_some() {
            kernel::check_own_filters(&release, "--filter")?;
        }
        if let Some(StackWhen::Filter(_)) = self.stack.when {
            kernel::check_own_filters(&release, "--stack=FILTER")?;
        }
        if self.scope == Scope::Tasks && !(tracefs.has(TASKS)? && tracefs.has(FORK)?) {
            bail!(
                "{}: Linux {} or later is required (set_event_pid with event-fork), and this is {release}: \
                 record the whole machine, and give the report --comm NAME",
                self.task_option,
                kernel::EVENT_FORK
            );
        }
        Ok(())
    }
}

/// What the recorder adds to a buffer that the kernel has filled since boot.
pub(crate) struct AddedToBoot<'a> {
    /// Names of events and of profiles.
    pub(crate) events: &'a [String],
    /// True if events among them are to have stacks where nothing else gives a call site.
    pub(crate) stacks: bool,
    /// True if probe events may be defined.
    pub(crate) probes: bool,
    /// True once a signal has asked for the end.
    pub(crate) is_stopped: &'a dyn Fn() -> bool,
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
    /// [`SUB_BUFFER_SIZE`], which the buffers of all CPUs have open.
    sub_buffer_size: RefCell<Weak<File>>,
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
            is_used: matches!(owner, Owner::Boot(_)),
        };
        let control = Control::of_tracefs(fs.again()?, &facts.events, &facts.cpus, clock, own)?;
        let control = RefCell::new(Some(control));
        let (facts, sub_buffer_size, saved_cmdlines) = (Arc::new(facts), RefCell::default(), RefCell::default());
        Ok(RingBuffers { facts, clock, control, sub_buffer_size, saved_cmdlines, owner })
    }

    /// Makes an instance and sets it up.
    pub(crate) fn set_up(tracefs: KernelFs, options: &InstanceOptions<'_>) -> anyhow::Result<RingBuffers> {
        options.check(&tracefs)?;
        let instance = Instance::create(tracefs, options.name)?;
        let fs = &instance.fs;
        let mut events = events::choose(fs, options.events)?;
        let shown = kinds(options.events, events.iter().filter(|event| !events::is_of_cgroups(event)).count());
        let cpus = fs.numbered("per_cpu", "cpu")?.len();
        let buffer_bytes = (options.buffer_bytes)(cpus);
        let stacks = stacks::plan(fs, instance.top(), &events, options.stack, options.scope)?;
        // Before all else that counts: setting the clock empties the buffer.
        let clock = choose_clock(&fs.get("trace_clock")?, options.clock)?;
        fs.set("trace_clock", &clock)?;
        set_overwrite(fs)?;
        if buffer_bytes >= MIN_SUB_BUFFERS * SUB_BUFFER_KIB * 1024 {
            // Makes reads fewer and larger.
            let _ = fs.write(SUB_BUFFER_SIZE, &SUB_BUFFER_KIB.to_string());
        }
        let buffer_bytes = allocate(fs, buffer_bytes, cpus, options.is_stopped)?;
        let _ = fs.write("buffer_percent", &buffer_size::wake_percent(buffer_bytes).to_string());
        let probes = options.probes(&instance, &events)?;
        events.extend(probes.events.iter().cloned());
        if let Some(filter) = options.filter {
            events::set_filter(fs, &events, "--filter", filter)?;
        }
        if options.scope == Scope::Tasks {
            // The kernel adds the children of a recorded task to the list of recorded tasks.
            fs.set(FORK, "1")?;
        }
        let stacks = stacks.map(|plan| plan.set(fs, &events, options.filter)).transpose()?.unwrap_or_default();
        let functions =
            options.functions.map(|asked| functions::set(fs, instance.top(), asked, options.scope)).unwrap_or_default();
        let missing = events::missing(fs, options.events)?;
        let mut facts = SourceFacts {
            scope: options.scope,
            filter: options.filter.map(str::to_owned),
            stacks,
            functions,
            probes,
            missing,
            ..facts(fs, events, clock.clone(), buffer_bytes, &shown)?
        };
        if options.clock.is_none() && clock != CLOCKS[0] {
            facts.shown.push_str(&format!(" (this kernel has no {})", CLOCKS[0]));
        }
        let buffers = RingBuffers::new(Owner::Recorder(instance), facts)?;
        buffers.must_be_as_set(&clock)?;
        Ok(buffers)
    }

    /// Upper bound of the current time on the trace clock of all CPUs; `None` if the kernel does not print it.
    fn now(&self) -> Option<u64> {
        if let Some((_, not_earlier)) = self.clock.system_now() {
            return Some(not_earlier);
        }
        let fs = self.owner.fs();
        let times = self.facts.cpus.iter().filter_map(|cpu| {
            let stats = fs.open(&format!("per_cpu/cpu{cpu}/stats"), OFlags::RDONLY).ok()?;
            self.clock.now(&stats).ok().flatten()
        });
        times.map(|(_, not_earlier)| not_earlier).max()
    }

    /// Checks that clock, overwrite mode, filters and stacks are still as set. They were set before the control files were watched.
    fn must_be_as_set(&self, clock: &str) -> anyhow::Result<()> {
        let fs = self.owner.fs();
        let mut is_set = fs.get("trace_clock")?.contains(&format!("[{clock}]")) && overwrites(fs)?;
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

    /// Takes over a buffer that the kernel has filled since boot. It may grow.
    pub(crate) fn take_over(
        tracefs: KernelFs,
        instance: &str,
        added: &AddedToBoot<'_>,
        buffer_bytes: Option<u64>,
    ) -> anyhow::Result<RingBuffers> {
        let mut boot = boot::take_over(tracefs, instance)?;
        let more = events::choose(&boot.fs, added.events)?;
        boot.prepare(&more, buffer_bytes, added.is_stopped)?;
        let notes = if added.stacks { stacks::add_sites(&boot.fs, &more)? } else { Vec::new() };
        let kinds = kinds(&[], boot.events().len());
        let probes = if added.probes { boot.define_probes()? } else { probes::left_out(boot.events()) };
        let (events, bytes) = (boot.events().to_vec(), boot.bytes()?);
        let owner = Owner::Boot(boot);
        let fs = owner.fs();
        let clocks = fs.get("trace_clock")?;
        let clock = clocks.split_whitespace().find_map(|clock| clock.strip_prefix('[')?.strip_suffix(']'));
        let clock = clock.unwrap_or("local").to_owned();
        let shown = format!("{kinds}   since boot");
        let mut stacks = stacks::found(fs, &events)?;
        stacks.notes = notes;
        let missing = events::missing(fs, added.events)?;
        let facts =
            SourceFacts { since_boot: true, stacks, probes, missing, ..facts(fs, events, clock, bytes, &shown)? };
        RingBuffers::new(owner, facts)
    }
}

/// Control file that enables an event.
fn switch(event: &str) -> String {
    format!("events/{event}/enable")
}

/// Clock of a new instance whose `trace_clock` has the text `clocks`. An error names the clocks that there are.
fn choose_clock(clocks: &str, asked: Option<&str>) -> anyhow::Result<String> {
    let has = |name: &&str| clocks.split_whitespace().any(|clock| clock.trim_matches(['[', ']']) == *name);
    let clock = match asked {
        Some(asked) => Some(asked).filter(has),
        None => CLOCKS.into_iter().find(has),
    };
    clock.map(str::to_owned).with_context(|| {
        let wanted = asked.map_or_else(|| CLOCKS.join(" or "), str::to_owned);
        format!("--clock {wanted}: this kernel has {}", escape(clocks.trim().as_bytes()))
    })
}

/// Grows the buffers of all CPUs to so many bytes each, or to what they have when a signal asks for the end: a recording that ends before it
/// begins has no use for more. Returns the bytes of one.
fn allocate(fs: &KernelFs, bytes: u64, cpus: usize, is_stopped: &dyn Fn() -> bool) -> anyhow::Result<u64> {
    let mut allocated = 0;
    for kib in buffer_size::steps((bytes / 1024).max(1), cpus) {
        if allocated > 0 && is_stopped() {
            return Ok(allocated);
        }
        fs.set("buffer_size_kb", &kib.to_string())
            .context("the buffers cannot be allocated: give a smaller --buffer-size")?;
        allocated = kib * 1024;
    }
    Ok(bytes)
}

/// Makes a full buffer lose its oldest events: the kernel marks lost events in sub-buffers only then.
fn set_overwrite(fs: &KernelFs) -> anyhow::Result<()> {
    let option = format!("options/{OVERWRITE}");
    if fs.has(&option)? {
        return fs.set(&option, "1");
    }
    // The kernel's options hold for all buffers here, and belong to others.
    if !overwrites(fs)? {
        bail!(
            "trace_options has no{OVERWRITE}, which before Linux {} holds for all buffers: echo {OVERWRITE} >{}",
            kernel::OWN_OPTIONS,
            fs.path("trace_options").display()
        );
    }
    Ok(())
}

/// True if a full buffer loses its oldest events.
fn overwrites(fs: &KernelFs) -> anyhow::Result<bool> {
    let option = format!("options/{OVERWRITE}");
    if fs.has(&option)? {
        return Ok(fs.get(&option)?.trim() == "1");
    }
    Ok(fs.get("trace_options")?.lines().any(|line| line == OVERWRITE))
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
    let shape = PageShape::parse(&header_page, Endian::NATIVE)
        .context("events/header_page is not understood; report it, with the kernel's release")?;
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
        probes: Probes::default(),
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
        let held = self.sub_buffer_size.borrow().upgrade();
        let size = match held {
            Some(held) => Some(held),
            None => fs.open_if_there(SUB_BUFFER_SIZE, OFlags::RDONLY)?.map(Arc::new),
        };
        *self.sub_buffer_size.borrow_mut() = size.as_ref().map(Arc::downgrade).unwrap_or_default();
        Ok(Some(Box::new(RingBuffer { raw, stats, size, clock: self.clock })))
    }

    fn follow(&self, threads: &[u32]) -> anyhow::Result<()> {
        let fs = self.owner.fs();
        functions::follow(fs, &self.facts.functions, threads)?;
        task_lists::add(fs, TASKS, threads)
    }

    fn followed(&self) -> Option<BTreeSet<u32>> {
        task_lists::threads(self.owner.fs(), TASKS)
    }

    fn allow(&self, sandbox: &mut Sandbox) -> anyhow::Result<()> {
        let (fs, top) = (self.owner.fs(), self.owner.top());
        fs.allow(Purpose::Control, sandbox)?;
        top.allow(Purpose::Read, sandbox)?;
        if let Some(instances) = top.open_dir_if_there("instances")? {
            instances.allow(Purpose::RemoveFolders, sandbox)?;
        }
        probes::hold(top)?;
        state::allow(sandbox)
    }

    fn start(&self) -> anyhow::Result<()> {
        let fs = self.owner.fs();
        // Probe events are enabled by now, or they are once the recording has begun.
        let mut events = self.facts.events.iter().filter(|event| !self.facts.probes.events.contains(event));
        events.try_for_each(|event| fs.set(&switch(event), "1"))?;
        fs.set(ON, "1")
    }

    fn begun(&self) -> Option<String> {
        let Owner::Boot(boot) = &self.owner else { return self.facts.probes.text(0) };
        boot.begun();
        for event in &self.facts.probes.events {
            if let Err(error) = boot.fs.set(&switch(event), "1") {
                messages::say(format!("kmemtraced: {error:#}: some frees are not seen"));
                return None;
            }
        }
        // If nothing tells the time, the events were not enabled at any time that is known.
        self.facts.probes.text(self.now().unwrap_or(u64::MAX))
    }

    fn control(&self) -> Option<Control> {
        self.control.take()
    }

    fn stop(&self) -> anyhow::Result<()> {
        let fs = self.owner.fs();
        match fs.write(ON, "0") {
            Err(_) if fs.is_gone() => Ok(()),
            // Not by the sandbox, then, in which root has no right over files of others.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied && !fs.belongs_to_caller(ON) => {
                bail!("{}: cannot be set to 0: another program has changed its owner or mode", fs.path(ON).display())
            }
            written => written.map_err(|error| fs.failed(ON, "set to 0", error)),
        }
    }

    fn comms(&self) -> Vec<u8> {
        let mut file = self.saved_cmdlines.borrow_mut();
        if file.is_none() {
            *file = self.owner.top().open("saved_cmdlines", OFlags::RDONLY).ok();
        }
        file.as_ref().and_then(|file| kernelfs::read_again(file).ok()).unwrap_or_default()
    }
}

/// One CPU's `trace_pipe_raw` and `stats`, and the file with the size of sub-buffers.
struct RingBuffer {
    raw: File,
    stats: File,
    size: Option<Arc<File>>,
    clock: TraceClock,
}

impl CpuSource for RingBuffer {
    fn wait(&self, timeout: Duration, stop: &Stop) -> bool {
        readable(&self.raw, stop, timeout)
    }

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.raw.read(buffer)
    }

    fn sub_buffer_bytes(&self) -> Option<usize> {
        let text = kernelfs::read_again(self.size.as_ref()?).ok()?;
        str::from_utf8(&text).ok()?.trim().parse::<usize>().ok()?.checked_mul(1024)
    }

    fn sample(&self) -> io::Result<Sample> {
        let (stats, read) = self.clock.read_counters(&self.stats)?;
        Ok(Sample { stats, read, drained: None })
    }

    fn now(&self) -> Option<u64> {
        self.clock.system_now().map(|(not_later, _)| not_later)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_clock_is_one_that_the_kernel_has() {
        let choose = |clocks: &str, asked| choose_clock(clocks, asked).map_err(|error| format!("{error:#}"));
        let (old, new) = ("[local] global counter uptime perf x86-tsc\n", "local global mono mono_raw [boot]\n");
        assert_eq!(choose(old, None).unwrap(), "global");
        assert_eq!(choose(new, None).unwrap(), "mono");
        assert_eq!(choose(old, Some("x86-tsc")).unwrap(), "x86-tsc");
        assert_eq!(choose(new, Some("boot")).unwrap(), "boot");
        let missing = "--clock mono: this kernel has [local] global counter uptime perf x86-tsc";
        assert_eq!(choose(old, Some("mono")).unwrap_err(), missing);
        assert_eq!(choose("[local]", None).unwrap_err(), "--clock mono or global: this kernel has [local]");
        // A part of a name is no name.
        assert!(choose("[mono_raw]", Some("mono")).is_err());
    }

    #[test]
    fn options_of_all_buffers_are_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let fs = KernelFs::at(dir.path()).unwrap();
        let options = dir.path().join("trace_options");
        std::fs::write(&options, "print-parent\noverwrite\nnodisable_on_free\n").unwrap();
        assert!(set_overwrite(&fs).is_ok() && overwrites(&fs).unwrap());
        std::fs::write(&options, "print-parent\nnooverwrite\n").unwrap();
        let error = format!("{:#}", set_overwrite(&fs).unwrap_err());
        assert!(error.starts_with("trace_options has nooverwrite, which before Linux 4.4 holds for all"), "{error}");
        assert_eq!(fs.get("trace_options").unwrap(), "print-parent\nnooverwrite\n");
        // The instance's own option.
        std::fs::create_dir(dir.path().join("options")).unwrap();
        std::fs::write(dir.path().join("options/overwrite"), "0").unwrap();
        assert!(!overwrites(&fs).unwrap());
        set_overwrite(&fs).unwrap();
        assert!(overwrites(&fs).unwrap());
    }
}
