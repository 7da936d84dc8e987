//! A recording from start to end: set up, run until something says stop, drain, finish the files.

use std::io::{self, IsTerminal, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use kmemtrace_abi::block::{END_ASKED, END_ERROR, END_LIMIT, End, HEADER_BYTES, NO_CPU, kind};
use kmemtrace_abi::format::PageShape;
use kmemtrace_abi::target::Endian;
use rustix::thread::CpuSet;
use zerocopy::IntoBytes;

use crate::args::Args;
use crate::output::{self, Description, Output};
use crate::reader::{BLOCK_BYTES, Reader};
use crate::tracefs::{Instance, Tracefs, read_control};
use crate::writer::{BlockFile, Outcome, Progress, Writer};

/// Memory for blocks of one CPU, and the share of all memory that the blocks may take.
const POOL_BYTES: u64 = 32 << 20;
const POOL_SHARE: u64 = 10;
/// The default kernel buffer of a CPU, and the share of all memory that they may take.
const BUFFER_BYTES: u64 = 16 << 20;
const BUFFER_SHARE: u64 = 4;

const SLAB: [&str; 6] =
    ["kmalloc", "kmalloc_node", "kmem_cache_alloc", "kmem_cache_alloc_node", "kfree", "kmem_cache_free"];
const PAGE: [&str; 3] = ["mm_page_alloc", "mm_page_free", "mm_page_free_direct"];

/// Why it stopped, for people and for the end block.
struct Stop {
    why: String,
    reason: u32,
}

fn say(args: &Args, text: &str) {
    if !args.quiet {
        let _ = writeln!(io::stderr(), "{text}");
    }
}

/// Records; returns the exit status.
pub(crate) fn record(args: &Args) -> anyhow::Result<u8> {
    // Signals are taken from here on, so that one during set-up undoes it, too.
    let asked = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&asked)).context("signals cannot be taken")?;
    }
    let tracefs = Tracefs::find()?;
    let instance = Instance::create(&tracefs, &args.instance)?;
    let events = choose_events(&instance, &args.events)?;
    let cpus = instance.cpus()?;
    let buffer_bytes =
        args.buffer_size.unwrap_or_else(|| default_share(BUFFER_BYTES, BUFFER_SHARE, cpus.len()).max(1 << 20));
    configure(&instance, args, buffer_bytes)?;
    let header_page = instance.get("events/header_page")?;
    let shape = PageShape::parse(&header_page, Endian::NATIVE).context("events/header_page cannot be understood")?;
    let description = Description {
        recording: output::new_recording()?,
        word_bytes: shape.target.word_bytes,
        cpus: cpus.clone(),
        clock: args.clock.clone(),
        header_page,
        header_event: instance.get("events/header_event").unwrap_or_default(),
        formats: formats(&instance, &events)?,
        buffer_bytes,
        started: output::now(),
    };
    let output = Output::create(args.output.as_deref(), args.force)?;
    match run(args, &tracefs, instance, &output, &description, shape, &events, &asked) {
        Ok(status) => Ok(status),
        Err(error) => {
            output.discard();
            Err(error)
        }
    }
}

/// `wanted` bytes for each CPU, or what `1 / share` of memory leaves.
fn default_share(wanted: u64, share: u64, cpus: usize) -> u64 {
    let info = rustix::system::sysinfo();
    let memory = info.totalram.saturating_mul(info.mem_unit.into());
    wanted.min(memory / share / cpus.max(1) as u64)
}

/// `system/event` of all that is asked for and there.
fn choose_events(instance: &Instance, asked: &[String]) -> anyhow::Result<Vec<String>> {
    let there = |event: &str| instance.path(&format!("events/{event}/enable")).exists();
    let mut events = Vec::new();
    for name in asked {
        let profile: Vec<&str> = match name.as_str() {
            "slab" => SLAB.to_vec(),
            "page" => PAGE.to_vec(),
            "all" => [&SLAB[..], &PAGE[..]].concat(),
            _ => Vec::new(),
        };
        if profile.is_empty() {
            let event = name.replace(':', "/");
            let event = if event.contains('/') { event } else { format!("kmem/{event}") };
            if event.contains("..") || !there(&event) {
                bail!(
                    "-e {name}: this kernel has no such event; there are slab, page, all, and those in events/kmem of tracefs"
                );
            }
            events.push(event);
            continue;
        }
        let found: Vec<String> = profile.iter().map(|e| format!("kmem/{e}")).filter(|e| there(e)).collect();
        if found.is_empty() {
            bail!("-e {name}: this kernel has none of these events: it takes CONFIG_TRACEPOINTS and the kmem events");
        }
        events.extend(found);
    }
    events.sort();
    events.dedup();
    Ok(events)
}

fn configure(instance: &Instance, args: &Args, buffer_bytes: u64) -> anyhow::Result<()> {
    // Clock first: setting it empties the buffer.
    let clocks = instance.get("trace_clock")?;
    if !clocks.split_whitespace().any(|c| c.trim_matches(['[', ']']) == args.clock) {
        bail!("--clock {}: this kernel has {}", args.clock, clocks.trim());
    }
    instance.set("trace_clock", &args.clock)?;
    // Only in overwrite mode do sub-buffers carry marks of what was lost.
    instance.set("options/overwrite", "1")?;
    instance.set("buffer_size_kb", &(buffer_bytes / 1024).max(1).to_string())?;
    let _ = instance.set("buffer_percent", "25");
    Ok(())
}

fn formats(instance: &Instance, events: &[String]) -> anyhow::Result<Vec<(String, String)>> {
    let mut formats = Vec::new();
    for event in events {
        formats.push((event.clone(), instance.get(&format!("events/{event}/format"))?));
    }
    // Events of the tracer itself, which come unasked.
    let own = std::fs::read_dir(instance.path("events/ftrace")).into_iter().flatten().flatten();
    let mut own: Vec<String> = own.filter_map(|e| e.file_name().into_string().ok()).collect();
    own.sort();
    for name in own {
        if let Ok(format) = read_control(&instance.path(&format!("events/ftrace/{name}/format"))) {
            formats.push((format!("ftrace/{name}"), format));
        }
    }
    Ok(formats)
}

/// The threads of one CPU.
struct CpuThreads {
    cpu: u32,
    reader: Option<JoinHandle<()>>,
    writer: JoinHandle<Outcome>,
    progress: Arc<Progress>,
}

#[expect(clippy::too_many_arguments, reason = "everything that was set up")]
fn run(
    args: &Args,
    tracefs: &Tracefs,
    instance: Instance,
    output: &Output,
    description: &Description,
    shape: PageShape,
    events: &[String],
    asked: &AtomicBool,
) -> anyhow::Result<u8> {
    let mut meta = BlockFile::new(output.file("meta.out")?, NO_CPU, description.recording);
    meta.put(kind::FILE_HEADER, &description.payload(true)).context("meta.out: cannot be written")?;
    let texts = output::texts_at_start(events);
    for payload in output::meta_payloads(&texts) {
        meta.put(kind::META, &payload).context("meta.out: cannot be written")?;
    }
    let stop = Arc::new(AtomicBool::new(false));
    let reason = Arc::new(AtomicU64::new(END_ASKED.into()));
    let (tids, own) = crossbeam_channel::unbounded();
    let pool = default_share(POOL_BYTES, POOL_SHARE, description.cpus.len());
    let mut threads = Vec::new();
    for &cpu in &description.cpus {
        let mut file = BlockFile::new(output.file(&format!("cpu{cpu}.out"))?, cpu, description.recording);
        file.put(kind::FILE_HEADER, &description.payload(false))
            .with_context(|| format!("cpu{cpu}.out: cannot be written"))?;
        let block = BLOCK_BYTES.max(shape.size) + HEADER_BYTES;
        let blocks = (pool as usize / block).max(2);
        let (full_in, full) = crossbeam_channel::bounded(blocks + 4);
        let (free_in, free) = crossbeam_channel::bounded(blocks);
        for _ in 0..blocks {
            // Touched, not only reserved.
            let _ = free_in.send(vec![1; block]);
        }
        let progress = Arc::new(Progress::default());
        let writer =
            Writer { file, shape, full, free: free_in, progress: Arc::clone(&progress), reason: Arc::clone(&reason) };
        let tid = tids.clone();
        let writer = thread::Builder::new().name(format!("write{cpu}")).spawn(move || {
            prepare(None);
            let _ = tid.send(rustix::thread::gettid().as_raw_nonzero().get());
            drop(tid);
            writer.run()
        })?;
        // A CPU that was never online has no buffer: its file is whole and empty.
        let reader = match (instance.raw(cpu), instance.stats(cpu)) {
            (Ok(raw), Ok(stats)) => {
                let reader =
                    Reader { raw, stats, shape, flush: args.flush, full: full_in, free, stop: Arc::clone(&stop) };
                let tid = tids.clone();
                Some(thread::Builder::new().name(format!("read{cpu}")).spawn(move || {
                    prepare(Some(cpu));
                    let _ = tid.send(rustix::thread::gettid().as_raw_nonzero().get());
                    drop(tid);
                    reader.run();
                })?)
            }
            _ => None,
        };
        threads.push(CpuThreads { cpu, reader, writer, progress });
    }
    drop(tids);
    let mut own: Vec<i32> = own.iter().collect();
    own.push(rustix::thread::gettid().as_raw_nonzero().get());
    if !instance.leave_out(&own) {
        say(args, "this kernel cannot leave the recorder's own threads out: their events are in the trace");
    }
    let started = (|| {
        events.iter().try_for_each(|event| instance.set(&format!("events/{event}/enable"), "1"))?;
        instance.set("tracing_on", "1")?;
        say(
            args,
            &format!(
                "recording to {}   {} CPUs x {} KiB   {} events   clock {}   Ctrl-C stops",
                output.dir.display(),
                description.cpus.len(),
                description.buffer_bytes / 1024,
                events.len(),
                description.clock
            ),
        );
        match args.command.split_first() {
            Some((program, rest)) => {
                let child = Command::new(program).args(rest).spawn();
                child.map(Some).with_context(|| format!("{}: cannot be run", program.to_string_lossy()))
            }
            None => Ok(None),
        }
    })();
    let waited = started.map(|child| wait(args, child, &threads, asked));
    let _ = instance.set("tracing_on", "0");
    if let Ok((ended, _)) = &waited {
        reason.store(ended.reason.into(), Ordering::Release);
    }
    stop.store(true, Ordering::Release);
    let mut outcomes = Vec::new();
    for cpu in threads {
        if let Some(reader) = cpu.reader {
            let _ = reader.join();
        }
        let outcome = cpu.writer.join().map_err(|_| anyhow::anyhow!("the writer of CPU {} has failed", cpu.cpu))?;
        outcomes.push((cpu.cpu, outcome));
    }
    let (ended, child) = waited?;
    let saved = read_control(&tracefs.root.join("saved_cmdlines")).unwrap_or_default();
    drop(instance);
    let end = End { blocks: meta.blocks().into(), reason: ended.reason.into(), ..End::default() };
    let finished = (|| {
        for payload in output::meta_payloads(&output::texts_at_end(&texts, &saved)) {
            meta.put(kind::META, &payload)?;
        }
        let end = End { blocks: meta.blocks().into(), ..end };
        meta.put(kind::END, end.as_bytes())
    })();
    let status = close(args, output, &ended, &outcomes, finished.err());
    Ok(match child {
        Some(child) if status <= 1 => leave(child),
        Some(child) => {
            leave(child);
            status
        }
        None => status,
    })
}

/// Readers are pinned; readers and writers go before other work. Neither is needed to be right.
fn prepare(cpu: Option<u32>) {
    if let Some(cpu) = cpu.filter(|&cpu| (cpu as usize) < CpuSet::MAX_CPU) {
        let mut set = CpuSet::new();
        set.set(cpu as usize);
        let _ = rustix::thread::sched_setaffinity(None, &set);
    }
    let _ = rustix::process::setpriority_process(None, -20);
}

/// Waits for the first reason to stop.
fn wait(args: &Args, mut child: Option<Child>, threads: &[CpuThreads], asked: &AtomicBool) -> (Stop, Option<Child>) {
    let start = Instant::now();
    let show = !args.quiet && io::stderr().is_terminal();
    let mut shown = (Instant::now(), 0);
    let sum = |what: fn(&Progress) -> &AtomicU64| {
        threads.iter().map(|t| what(&t.progress).load(Ordering::Relaxed)).sum::<u64>()
    };
    let stop = loop {
        thread::sleep(Duration::from_millis(20));
        if asked.load(Ordering::Acquire) {
            break Stop { why: "asked to".into(), reason: END_ASKED };
        }
        if let Some(Ok(Some(status))) = child.as_mut().map(Child::try_wait) {
            let program = args.command.first().map(|c| c.to_string_lossy().into_owned()).unwrap_or_default();
            let how = status.code().map_or_else(|| format!("{status}"), |code| format!("exited {code}"));
            break Stop { why: format!("{program} {how}"), reason: END_ASKED };
        }
        if args.duration.is_some_and(|limit| start.elapsed() >= limit) {
            break Stop { why: "--duration".into(), reason: END_LIMIT };
        }
        if args.max_size.is_some_and(|limit| sum(|p| &p.bytes) >= limit) {
            break Stop { why: "--max-size".into(), reason: END_LIMIT };
        }
        if threads.iter().any(|t| t.progress.failed.load(Ordering::Acquire)) {
            break Stop { why: "cannot write".into(), reason: END_ERROR };
        }
        if show && shown.0.elapsed() >= Duration::from_secs(1) {
            let events = sum(|p| &p.events);
            let rate = (events - shown.1) as f64 / shown.0.elapsed().as_secs_f64();
            let _ = write!(
                io::stderr(),
                "\r+{:.1} s   {rate:.0} events/s   {} MiB   lost {}   ",
                start.elapsed().as_secs_f64(),
                sum(|p| &p.bytes) >> 20,
                sum(|p| &p.lost)
            );
            shown = (Instant::now(), events);
        }
    };
    if show {
        let _ = writeln!(io::stderr());
    }
    (stop, child)
}

/// Lets go of the command: what has not ended by now is asked to. Its status, 128 + n for a signal.
fn leave(mut child: Child) -> u8 {
    for tries in 0..100 {
        if let Ok(Some(status)) = child.try_wait() {
            let code = status.code().or(status.signal().map(|n| 128 + n)).unwrap_or(0);
            return u8::try_from(code).unwrap_or(u8::MAX);
        }
        if tries == 0 {
            let pid = rustix::process::Pid::from_child(&child);
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        thread::sleep(Duration::from_millis(20));
    }
    let _ = writeln!(io::stderr(), "kmemtraced: the command goes on");
    0
}

/// The closing lines; returns the recording's own exit status.
fn close(args: &Args, output: &Output, ended: &Stop, outcomes: &[(u32, Outcome)], meta: Option<io::Error>) -> u8 {
    let sum = |what: fn(&Outcome) -> u64| outcomes.iter().map(|(_, o)| what(o)).sum::<u64>();
    let (events, bytes, lost) = (sum(|o| o.events), sum(|o| o.bytes), sum(|o| o.lost));
    let mut stderr = io::stderr();
    let failed = outcomes.iter().find_map(|(cpu, o)| Some((format!("cpu{cpu}.out"), o.error.as_ref()?)));
    let failed = failed.or(meta.as_ref().map(|error| ("meta.out".to_owned(), error)));
    let cleared = outcomes.iter().any(|(_, o)| o.cleared);
    let dir = output.dir.display();
    if lost > 0 || cleared || failed.is_some() || !args.quiet {
        let _ = writeln!(
            stderr,
            "stopped: {}   {events} events   {:.1} MiB   {lost} lost",
            ended.why,
            bytes as f64 / 1048576.0
        );
    }
    for (cpu, o) in outcomes.iter().filter(|(_, o)| !o.cleared && o.error.is_none() && o.read != o.events) {
        let _ = writeln!(
            stderr,
            "CPU {cpu}: the kernel handed out {} events and {} are in its file: somebody else read its buffer",
            o.read, o.events
        );
    }
    if cleared {
        let _ = writeln!(stderr, "somebody cleared the buffer while recording: an unknown number of events is missing");
    }
    if lost > 0 && failed.is_none() {
        let _ = writeln!(stderr, "{lost} events were lost: record again with a larger --buffer-size");
    }
    if let Some((name, error)) = &failed {
        let room = rustix::fs::statvfs(&output.dir).map(|s| s.f_bavail.saturating_mul(s.f_frsize) >> 10).unwrap_or(0);
        let _ = writeln!(
            stderr,
            "kmemtraced: {dir}/{name}: {error}, {room} KiB free: what is there is valid; free some space or use -o"
        );
        return 3;
    }
    if !args.quiet {
        let _ = writeln!(stderr, "next: kmemtrace-report {dir}     check: kmemtrace-check {dir}");
    }
    u8::from(lost > 0 || cleared)
}
