//! A recording from start to end: set up, run until something says stop, drain, finish the files.

use std::io::{self, IsTerminal, Write};
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use kmemtrace_abi::block::{END_ASKED, END_ERROR, END_LIMIT, End, NO_CPU, item, kind};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use zerocopy::IntoBytes;

use crate::args::Args;
use crate::block_file::BlockFile;
use crate::boot;
use crate::buffer_limit;
use crate::channel::{self, Channel};
use crate::closing;
use crate::compress::Blocks;
use crate::crew::{self, Crew, share_of_memory};
use crate::foreign::{Hands, Watcher};
use crate::instance;
use crate::kernelfs::KernelFs;
use crate::output::{self, Description, Output, SideTexts};
use crate::own::OwnThreads;
use crate::source::{Framing, TraceSource};
use crate::tracefs::{RingBuffers, Wishes};
use crate::writer::Progress;

/// The default kernel buffer of a CPU, the share of all memory that they may take, and the least of it.
pub(crate) const BUFFER_BYTES: u64 = 16 << 20;
const BUFFER_SHARE: u64 = 4;
const LEAST_BUFFER_BYTES: u64 = 1 << 20;

/// What people ask for by signals.
struct Asked {
    stop: Arc<AtomicBool>,
    counters: Arc<AtomicBool>,
}

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

/// Tells of a failure that the recording goes on after.
fn warn(done: anyhow::Result<()>) {
    if let Err(error) = done {
        let _ = writeln!(io::stderr(), "kmemtraced: {error:#}");
    }
}

/// The buffer of each of so many CPUs where nobody asked for another.
pub(crate) fn default_buffer_bytes(cpus: usize) -> u64 {
    share_of_memory(BUFFER_BYTES, BUFFER_SHARE, cpus).max(LEAST_BUFFER_BYTES)
}

/// tracefs, where the command line says or where it is.
pub(crate) fn tracefs(args: &Args) -> anyhow::Result<KernelFs> {
    match &args.tracefs {
        Some(path) => KernelFs::at(path).with_context(|| format!("--tracefs {}", path.display())),
        None => instance::tracefs(),
    }
}

fn set_up(args: &Args) -> anyhow::Result<Box<dyn TraceSource>> {
    if let Some(path) = &args.relay {
        let channel = KernelFs::at(path).with_context(|| format!("--relay {}", path.display()))?;
        return Ok(Box::new(Channel::set_up(channel)?));
    }
    let tracefs = || {
        let tracefs = tracefs(args)?;
        if let Some(bytes) = args.buffer_size.filter(|_| !args.force_buffer) {
            let held = if args.boot { boot::buffer_bytes(&tracefs, &args.instance) } else { 0 };
            buffer_limit::check(&tracefs, bytes, held)?;
        }
        // What a killed recorder left enabled there.
        boot::recover(&tracefs);
        anyhow::Ok(tracefs)
    };
    if args.boot {
        let more = args.events.as_deref().unwrap_or_default();
        return Ok(Box::new(RingBuffers::take_over(tracefs()?, &args.instance, more, args.buffer_size)?));
    }
    let wants_tracefs =
        args.tracefs.is_some() || args.events.is_some() || args.buffer_size.is_some() || args.clock.is_some();
    if let Some(channel) = channel::find().filter(|_| !wants_tracefs) {
        return Ok(Box::new(Channel::set_up(channel)?));
    }
    let slab = ["slab".to_owned()];
    let wishes = Wishes {
        instance: &args.instance,
        events: args.events.as_deref().unwrap_or(&slab),
        clock: args.clock.as_deref().unwrap_or("mono"),
        buffer_bytes: &|cpus| args.buffer_size.unwrap_or_else(|| default_buffer_bytes(cpus)),
    };
    Ok(Box::new(RingBuffers::set_up(tracefs()?, &wishes)?))
}

/// Records; returns the exit status.
pub(crate) fn record(args: &Args) -> anyhow::Result<u8> {
    // Signals are taken from here on, so that one during set-up undoes it, too.
    let asked = Asked { stop: Arc::default(), counters: Arc::default() };
    for (signal, flag) in
        [(SIGINT, &asked.stop), (SIGTERM, &asked.stop), (SIGHUP, &asked.stop), (SIGUSR1, &asked.counters)]
    {
        signal_hook::flag::register(signal, Arc::clone(flag)).context("signals cannot be taken")?;
    }
    let source = set_up(args)?;
    let mut output = Output::create(args.output.as_deref(), args.force)?;
    let status = run(args, source, &mut output, &asked);
    warn(output.finish_removal());
    match &status {
        Ok(_) if !args.report.is_empty() => closing::report(&args.report, &output.dir),
        Ok(_) => {}
        Err(_) => output.discard(),
    }
    status
}

fn run(args: &Args, source: Box<dyn TraceSource>, output: &mut Output, asked: &Asked) -> anyhow::Result<u8> {
    let facts = Arc::clone(source.facts());
    let recording = output::new_recording()?;
    let description = Arc::new(Description { recording, facts: Arc::clone(&facts), started: output::now() });
    let mut meta = BlockFile::new(output.file("meta.out")?, NO_CPU, recording);
    meta.put(kind::FILE_HEADER, &description.payload(true)).with_context(|| output.unwritable("meta.out"))?;
    let mut texts = SideTexts::open();
    let mut smaller = Blocks::new(args.compress);
    let mut put_text = |meta: &mut BlockFile, payload: &[u8]| match &mut smaller {
        Some(blocks) => meta.put_frame(kind::META, payload, blocks),
        None => meta.put(kind::META, payload),
    };
    for payload in output::meta_payloads(&texts.at_start(&facts.events)) {
        put_text(&mut meta, &payload).with_context(|| output.unwritable("meta.out"))?;
    }
    let sync = args.sync.resolve(args.flush);
    if sync.is_some() {
        meta.sync().with_context(|| output.unwritable("meta.out"))?;
    }
    let hands = Hands::default();
    let own = facts.formats.first().filter(|_| args.verbose).and_then(|(_, format)| OwnThreads::new(format));
    let wishes = crew::Wishes { flush: args.flush, sync, compress: args.compress, hands: hands.clone(), own };
    let crew = Crew::start(&*source, output, &description, &wishes)?;
    let threads: Vec<String> = crew.tids.iter().map(i32::to_string).collect();
    let threads = [(item::OWN_THREADS, threads.join("\n").into_bytes())];
    let named = output::meta_payloads(&threads).iter().try_for_each(|payload| put_text(&mut meta, payload));
    if args.verbose {
        for event in &facts.events {
            say(args, &format!("event {event}"));
        }
        if let Framing::SubBuffers(shape) = &*facts.framing {
            say(args, &format!("sub-buffers of {} KiB", shape.size >> 10));
        }
    }
    let started = named.with_context(|| output.unwritable("meta.out")).and_then(|()| source.start()).and_then(|()| {
        let watcher = Watcher::new(source.control()?, hands);
        if args.verbose && !watcher.is_watched() {
            say(args, "changes by others that last less than a second cannot be seen here (no inotify, or no /proc)");
        }
        let child = match args.command.split_first() {
            Some((program, rest)) => {
                let child = Command::new(program).args(rest).spawn();
                Some(child.with_context(|| format!("{}: cannot be run", program.to_string_lossy()))?)
            }
            None => None,
        };
        // An earlier recording keeps its name until here.
        warn(output.begin());
        if sync.is_some() {
            warn(output.sync().context("the trace directory's names are not on the disk"));
        }
        say(args, &format!("recording to {}   {}   Ctrl-C stops", output.dir.display(), facts.shown));
        Ok((watcher, child))
    });
    let waited = started.map(|(mut watcher, child)| {
        let (stop, child) = wait(args, child, &crew, output, asked, &mut watcher);
        // The last look comes before the recorder itself switches tracing off.
        tell(args, watcher.look(true));
        (stop, child, watcher.happened())
    });
    source.stop();
    let outcomes = crew.stop(waited.as_ref().map_or(END_ERROR, |(stop, ..)| stop.reason));
    let comms = source.comms();
    drop(source);
    let ((ended, child, foreign), outcomes) = (waited?, outcomes?);
    let finished = (|| {
        for payload in output::meta_payloads(&texts.at_end(&comms)) {
            put_text(&mut meta, &payload)?;
        }
        let end = End { blocks: meta.blocks().into(), reason: ended.reason.into(), ..End::default() };
        meta.put(kind::END, end.as_bytes())?;
        if sync.is_some() { meta.sync() } else { Ok(()) }
    })();
    let ended = closing::Ended { why: &ended.why, early: ended.reason == END_ERROR, foreign };
    let status = closing::close(args, output, &facts, &ended, &outcomes, finished.err());
    // The command's status is passed on where the recording has nothing worse to say.
    Ok(match child.map(closing::leave) {
        Some(commands) if status <= 1 => commands,
        _ => status,
    })
}

/// Says what was seen of foreign hands, at once and even where little is to be said.
fn tell(args: &Args, seen: Option<String>) {
    if let Some(seen) = seen {
        // Behind the status line, if there is one.
        let fresh = if !args.quiet && io::stderr().is_terminal() { "\n" } else { "" };
        let _ = writeln!(io::stderr(), "{fresh}kmemtraced: {seen}");
    }
}

/// Waits for the first reason to stop, and looks for foreign hands meanwhile.
fn wait(
    args: &Args,
    mut child: Option<Child>,
    crew: &Crew,
    output: &Output,
    asked: &Asked,
    watcher: &mut Watcher,
) -> (Stop, Option<Child>) {
    let start = Instant::now();
    let show = !args.quiet && io::stderr().is_terminal();
    let mut shown = (Instant::now(), 0);
    let sum =
        |what: fn(&Progress) -> &AtomicU64| crew.progress().map(|(_, p)| what(p).load(Ordering::Relaxed)).sum::<u64>();
    let stop = loop {
        thread::sleep(Duration::from_millis(20));
        if asked.stop.load(Ordering::Acquire) {
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
        if crew.progress().any(|(_, p)| p.failed.load(Ordering::Acquire)) {
            break Stop { why: "cannot write".into(), reason: END_ERROR };
        }
        tell(args, watcher.look(false));
        if watcher.is_gone() {
            break Stop { why: "what was recorded from was removed".into(), reason: END_ERROR };
        }
        if output.is_gone() {
            break Stop { why: format!("{} was removed", output.dir.display()), reason: END_ERROR };
        }
        if asked.counters.swap(false, Ordering::AcqRel) {
            for (cpu, p) in crew.progress() {
                let [events, bytes, lost] = [&p.events, &p.bytes, &p.lost].map(|n| n.load(Ordering::Relaxed));
                let _ = writeln!(io::stderr(), "CPU {cpu}: {events} events   {} KiB   {lost} lost", bytes >> 10);
            }
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
