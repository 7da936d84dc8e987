//! A recording from start to end: set up, run until something says stop, drain, finish the files.

pub(crate) mod shutdown;

use std::io::{self, IsTerminal};
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use kmemtrace_abi::block::{END_ASKED, END_ERROR, END_LIMIT};

use crate::args::{Args, Sync};
use crate::control::foreign::{Hands, Watcher};
use crate::fs::kernelfs::KernelFs;
use crate::output::directory::{self, Description, Output};
use crate::process::memory;
use crate::process::messages;
use crate::process::signals::Signals;
use crate::source::boot;
use crate::source::buffer_limit;
use crate::source::instance;
use crate::source::relay::{self, Channel};
use crate::source::tracefs::{RingBuffers, Wishes};
use crate::source::{Framing, SourceFacts, TraceSource};
use crate::write::meta::Meta;
use crate::write::own_threads::{self, OwnThreads};
use crate::write::workers::{self, Crew, First, share_of_memory};
use crate::write::writer::Progress;

/// The default kernel buffer of a CPU, the share of all memory that they may take, and the least of it.
pub(crate) const BUFFER_BYTES: u64 = 16 << 20;
const BUFFER_SHARE: u64 = 4;
const LEAST_BUFFER_BYTES: u64 = 1 << 20;

/// Why it stopped, for people and for the end block.
struct Stop {
    why: String,
    reason: u32,
}

fn say(args: &Args, text: &str) {
    if !args.quiet {
        messages::say(text);
    }
}

/// Tells of a failure that the recording goes on after.
fn warn(done: anyhow::Result<()>) {
    if let Err(error) = done {
        messages::say(format!("kmemtraced: {error:#}"));
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
    let relay = |channel: KernelFs| -> anyhow::Result<Box<dyn TraceSource>> {
        memory::try_out(channel.numbered(".", "cpu")?.len())?;
        Ok(Box::new(Channel::set_up(channel)?))
    };
    if let Some(path) = &args.relay {
        return relay(KernelFs::at(path).with_context(|| format!("--relay {}", path.display()))?);
    }
    let tracefs = || {
        let tracefs = tracefs(args)?;
        if let Some(bytes) = args.buffer_size.filter(|_| !args.force_buffer) {
            let held = if args.boot { boot::buffer_bytes(&tracefs, &args.instance) } else { 0 };
            buffer_limit::check(&tracefs, bytes, held)?;
        }
        memory::try_out(tracefs.numbered("per_cpu", "cpu")?.len())?;
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
    if let Some(channel) = relay::find().filter(|_| !wants_tracefs) {
        return relay(channel);
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

/// Records, in a thread that may hang in a system call; returns the exit status.
pub(crate) fn record(args: Args) -> anyhow::Result<u8> {
    // Signals are taken from here on, so that one during set-up undoes it, too.
    let signals = Arc::new(Signals::take()?);
    let (watcher, taken) = (thread::current(), Arc::clone(&signals));
    let work = move || {
        let status = record_until_stopped(&args, &taken);
        watcher.unpark();
        status
    };
    let name = "record";
    let started = thread::Builder::new().name(name.into()).spawn(work);
    let recording = started.map_err(|error| workers::not_started(name, &error))?;
    if !signals.watch(|| recording.is_finished()) {
        shutdown::end_now();
    }
    recording.join().unwrap_or_else(|_| {
        messages::say("kmemtraced: ended early by a defect of its own: what is in the files is valid");
        Ok(shutdown::ENDED_EARLY)
    })
}

fn record_until_stopped(args: &Args, signals: &Signals) -> anyhow::Result<u8> {
    let source = set_up(args)?;
    let mut output = Output::create(args.output.as_deref(), args.force)?;
    let status = run(args, source, &mut output, signals);
    warn(output.finish_removal());
    if status.is_err() {
        output.discard();
    } else if !signals.is_second() && !shutdown::report(&args.report, &output.dir, signals) {
        return Ok(shutdown::ENDED_EARLY);
    }
    status
}

fn run(args: &Args, source: Box<dyn TraceSource>, output: &mut Output, signals: &Signals) -> anyhow::Result<u8> {
    let facts = Arc::clone(source.facts());
    let recording = directory::new_recording()?;
    let description = Arc::new(Description { recording, facts: Arc::clone(&facts), started: directory::now() });
    let hands = Hands::default();
    let mut watcher = source.control().map(|control| Watcher::new(control, hands.clone()));
    let sync = args.sync.resolve(args.flush);
    let mut meta = Meta::begin(output, &description, args.compress, sync)?;
    if signals.is_second() {
        bail!("ended by a second signal before recording began: nothing is kept");
    }
    let knows_own = own_threads::has_ids_of_events();
    let own =
        facts.formats.first().filter(|_| args.verbose && knows_own).and_then(|(_, format)| OwnThreads::new(format));
    let wishes = workers::Wishes { flush: args.flush, sync, compress: args.compress, hands: hands.clone(), own };
    let mut crew = Crew::start(&*source, output, &description, &wishes, &signals.abandon)?;
    let threads = if knows_own { meta.put_threads(&crew.tids) } else { Ok(()) };
    if args.verbose && !knows_own {
        messages::say("the recorder's own threads are not known in a pid namespace: the report cannot leave them out");
    }
    let started = threads.with_context(|| output.unwritable("meta.out"));
    let started = started.and_then(|()| start(args, &*source, output, signals, watcher.as_mut()));
    if started.is_ok() {
        source.begun();
        crew.go();
        take_name(args, output);
    }
    let score = memory::Score::lower();
    if let (true, Err(line)) = (args.verbose, &score) {
        messages::say(line);
    }
    let waited = started.map(|mut started| {
        let stop = wait(args, &crew, output, signals, watcher.as_mut(), &mut started.child);
        tell(args, watcher.as_mut().and_then(|watcher| watcher.look(true)));
        (stop, started)
    });
    // A start that failed leaves a buffer that was taken over to record on.
    if waited.is_ok() {
        if let Some(watcher) = &mut watcher {
            watcher.switch(false);
        }
        source.stop();
    }
    let reason = waited.as_ref().map_or(END_ERROR, |(stop, ..)| stop.reason);
    let outcomes = crew.stop(reason, |crew| {
        tell_counters(crew, signals);
        if crew.are_drained() && !hands.is_closed() {
            tell(args, watcher.as_mut().and_then(Watcher::last_look));
            hands.close();
        }
    });
    let foreign = watcher.as_ref().is_some_and(Watcher::happened);
    // The instance cannot be removed while its control files are open.
    drop(watcher);
    // Before the source is undone, which may take the rest of a second.
    let cut = match (&waited, &outcomes) {
        (Ok((ended, ..)), Ok(all)) if all.iter().any(|(_, o)| o.unfinished) => {
            Some(shutdown::cut(output, &ended.why, all))
        }
        _ => None,
    };
    let comms = source.comms();
    drop(source);
    drop(score);
    let ((ended, Started { child, first }), outcomes) = (waited?, outcomes?);
    drop(first);
    if let Some(status) = cut {
        child.map(|child| shutdown::leave(child, signals));
        return Ok(status);
    }
    let finished = meta.finish(&comms, ended.reason);
    let ended = shutdown::Ended { why: &ended.why, early: ended.reason == END_ERROR, foreign };
    let status = shutdown::close(args, output, &facts, &ended, &outcomes, finished.err());
    // The command's status is passed on where the recording has nothing worse to say.
    Ok(match child.and_then(|child| shutdown::leave(child, signals)) {
        Some(commands) if status <= 1 => commands,
        _ => status,
    })
}

/// The parts of a recording that exist once events come.
struct Started {
    child: Option<Child>,
    first: First,
}

/// Enables the events and starts COMMAND. Nothing is taken out of the buffers before both have succeeded.
fn start(
    args: &Args,
    source: &dyn TraceSource,
    output: &mut Output,
    signals: &Signals,
    watcher: Option<&mut Watcher>,
) -> anyhow::Result<Started> {
    let facts = source.facts();
    if signals.stops() > 0 && output.replaces() {
        bail!("ended by a signal before recording began: the earlier recording is kept");
    }
    if args.verbose {
        tell_set_up(facts);
    }
    let locked = memory::lock();
    if let (true, Err(line)) = (args.verbose, &locked) {
        messages::say(line);
    }
    let mut first = First::take();
    if let Some(watcher) = watcher {
        if args.verbose && !watcher.is_watched() {
            say(args, "changes by others that last less than a second cannot be seen here (no inotify, or no /proc)");
        }
        tell(args, watcher.selections());
        watcher.switch(true);
    }
    source.start()?;
    say(args, &format!("recording to {}   {}   Ctrl-C stops", output.dir.display(), facts.shown));
    let child = match args.command.split_first() {
        Some((program, rest)) => {
            messages::finish(shutdown::LAST_WORDS);
            // This thread's place before others is not the command's.
            drop(first);
            let child = Command::new(program).args(rest).spawn();
            first = First::take();
            Some(child.with_context(|| format!("{}: cannot be run", program.to_string_lossy()))?)
        }
        None => None,
    };
    Ok(Started { child, first })
}

/// Takes the name of an earlier recording, which keeps it until this one has begun.
fn take_name(args: &Args, output: &mut Output) {
    warn(output.begin());
    if args.sync != Sync::Never {
        warn(output.sync().context("the trace directory's names are not on the disk"));
    }
}

/// True if a status line is shown.
fn has_status_line(args: &Args) -> bool {
    !args.quiet && io::stderr().is_terminal()
}

/// Says that another program changed the recording, at once, and with --quiet too.
fn tell(args: &Args, seen: Option<String>) {
    if let Some(seen) = seen {
        let below_status = if has_status_line(args) { "\n" } else { "" };
        messages::say(format!("{below_status}kmemtraced: {seen}"));
    }
}

/// Says what was enabled, and how.
fn tell_set_up(facts: &SourceFacts) {
    for event in &facts.events {
        messages::say(format!("event {event}"));
    }
    if let Framing::SubBuffers(shape) = &*facts.framing {
        messages::say(format!("sub-buffers of {} KiB", shape.size >> 10));
    }
}

/// Says the counters so far, where a signal has asked for them.
fn tell_counters(crew: &Crew, signals: &Signals) {
    if !signals.wants_counters() {
        return;
    }
    for (cpu, p) in crew.progress() {
        let [events, bytes, lost] = [&p.events, &p.bytes, &p.lost].map(|n| n.load(Ordering::Relaxed));
        messages::say(format!("CPU {cpu}: {events} events   {} KiB   {lost} lost", bytes >> 10));
    }
}

/// Waits for the first reason to stop, and looks for foreign hands meanwhile.
fn wait(
    args: &Args,
    crew: &Crew,
    output: &Output,
    signals: &Signals,
    mut watcher: Option<&mut Watcher>,
    child: &mut Option<Child>,
) -> Stop {
    let start = Instant::now();
    let show = has_status_line(args);
    let mut shown = (Instant::now(), 0);
    let sum =
        |what: fn(&Progress) -> &AtomicU64| crew.progress().map(|(_, p)| what(p).load(Ordering::Relaxed)).sum::<u64>();
    let stop = loop {
        thread::sleep(Duration::from_millis(20));
        if signals.stops() > 0 {
            break Stop { why: "asked to".into(), reason: END_ASKED };
        }
        if let Some(why) = signals.limit() {
            break Stop { why: why.into(), reason: END_LIMIT };
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
        tell(args, watcher.as_mut().and_then(|watcher| watcher.look(false)));
        if watcher.as_ref().is_some_and(|watcher| watcher.is_gone()) {
            break Stop { why: "what was recorded from was removed".into(), reason: END_ERROR };
        }
        if output.is_gone() {
            break Stop { why: format!("{} was removed", output.dir.display()), reason: END_ERROR };
        }
        tell_counters(crew, signals);
        if show && shown.0.elapsed() >= Duration::from_secs(1) {
            let events = sum(|p| &p.events);
            let rate = (events - shown.1) as f64 / shown.0.elapsed().as_secs_f64();
            let seconds = start.elapsed().as_secs_f64();
            let (mib, lost) = (sum(|p| &p.bytes) >> 20, sum(|p| &p.lost));
            messages::show(&format!("\r+{seconds:.1} s   {rate:.0} events/s   {mib} MiB   lost {lost}   "));
            shown = (Instant::now(), events);
        }
    };
    signals.answer();
    if show {
        messages::say("");
    }
    stop
}
