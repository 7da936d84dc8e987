//! A recording from start to end.
//!
//! `set_up` chooses the source, `start` enables the events and runs COMMAND, `wait` polls for a reason to stop, `shutdown`
//! reports the result and has the exit status. `launcher` is the process that starts COMMAND and the reports, which `command` deals with;
//! `gate` has the sandboxes of the threads that begin and end a recording, `tasks` chooses other tasks to record alone, `losses` explains lost events, `notices` has the lines written meanwhile, `memstrack` replaces the options of that program by ours.
//!
//! Room for more phases and reasons to stop. Bytes of events pass through `write` only.

pub(crate) mod command;
mod gate;
mod launcher;
mod losses;
mod memstrack;
mod notices;
mod set_up;
pub(crate) mod shutdown;
mod start;
mod tasks;
mod wait;

use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::thread;

use anyhow::{Context, bail};
use kmemtrace_abi::disk::block::{END_ERROR, Major};
use kmemtrace_abi::text::size::whole_units;
use kmemtrace_abi::text::units::{self, counted};

use crate::args::{Args, Sync};
use crate::control::foreign::{ForeignChanges, Watcher};
use crate::output::destination::Destination;
use crate::output::stream::{NotSent, Stream};
use crate::output::trace_dir::TraceDir;
use crate::process::messages;
use crate::process::report;
use crate::process::signals::Signals;
use crate::process::thread::not_started;
use crate::source::{SourceFacts, TraceSource, undo};
use crate::write::header::Description;
use crate::write::meta::{MetaFile, MetaOptions};
use crate::write::names::Names;
use crate::write::outcome::Outcome;
use crate::write::own_threads::{self, OwnThreads};
use crate::write::records;
use crate::write::workers::{RecordOptions, Workers};
use command::Reported;
use gate::Gate;
use launcher::{Job, Launcher, Program};
use losses::Conditions;
use notices::{answer_counters, report_change, say_verbose, warn};
use start::{Parts, Whom};
use tasks::Tasks;
use wait::{Running, Stop};

/// Descriptor of the stream, and that of orders to stop, where a viewer shows the recording.
const STREAM: i32 = kmemtrace_sandbox::child::FIRST_PASSED;
const ORDERS: i32 = STREAM + 1;

/// Records, in a thread that may hang in a system call; returns the exit status.
pub(crate) fn record(mut args: Args) -> anyhow::Result<u8> {
    if args.command.first().is_some_and(|program| program.is_empty()) {
        bail!("the word after -- is empty: name a program there");
    }
    let mut passed = if args.served { Some(Passed::take()?) } else { None };
    let translated = memstrack::translate(&mut args)?;
    let file = memstrack::report_file(&args)?;
    let job = Job { command: args.command.clone(), reports: memstrack::reports(&args), file };
    // Before anything of this process is changed that programs would inherit.
    let launcher = Launcher::fork(job, &mut passed)?;
    // A recorder has three files for each CPU.
    kmemtrace_fence::raise_open_files();
    messages::start(args.priority, args.sandbox, args.prints_stream)?;
    if let Some(line) = translated {
        notices::say(&args, &line);
    }
    let (stream, orders) = passed.map(|Passed { stream, orders }| (stream, orders)).unzip();
    // Before set-up, so that a signal during set-up undoes it.
    let signals = Arc::new(orders.map_or_else(Signals::take, Signals::take_with)?);
    let (watcher, taken, priority) = (thread::current(), Arc::clone(&signals), args.priority);
    let (gate, first_thread) = gate::pair(args.sandbox);
    let work = move || {
        let status = record_until_stopped(&args, &taken, &gate, launcher, stream);
        watcher.unpark();
        status
    };
    let name = "record";
    let started = thread::Builder::new().name(name.into()).spawn(work);
    let recording = started.map_err(|error| not_started(name, &error))?;
    let is_done = || {
        first_thread.look();
        recording.is_finished()
    };
    if !signals.watch(priority, is_done) {
        shutdown::end_now();
    }
    recording.join().unwrap_or_else(|_| {
        messages::say(
            "kmemtraced: ended early by an internal error: what is in the files is valid, record again for the rest",
        );
        Ok(shutdown::ENDED_EARLY)
    })
}

fn record_until_stopped(
    args: &Args,
    signals: &Signals,
    gate: &Gate,
    mut launcher: Option<Launcher>,
    stream: Option<OwnedFd>,
) -> anyhow::Result<u8> {
    let mut tasks = tasks::chosen(args)?;
    let source = set_up::set_up(args, signals)?;
    let mut output = destination(args, signals, stream)?;
    let status = run(args, source, &mut output, signals, gate, launcher.as_mut(), tasks.as_mut());
    warn(output.finish_removal());
    if status.is_err() {
        output.discard();
        return status;
    }
    let status = status.map(|status| close_stream(args, &output, signals, status));
    if signals.is_second() {
        hand_over(&output);
        return status;
    }
    let Some(dir) = output.path_now() else { return status };
    let reported = command::report(args, &dir, launcher.as_mut(), signals);
    if memstrack::is_private(args) {
        remove_private(&dir, reported);
    }
    // The last step: until then no other user can change what the reports read.
    hand_over(&output);
    match reported {
        Reported::Interrupted | Reported::NotAll => Ok(shutdown::ENDED_EARLY),
        Reported::All => status,
    }
}

/// Descriptors that the process of the viewer has passed on.
struct Passed {
    stream: OwnedFd,
    orders: OwnedFd,
}

impl Passed {
    /// Takes them over, before another file is opened.
    fn take() -> anyhow::Result<Passed> {
        let take = |number| {
            kmemtrace_sandbox::inherited(number)
                .context("--served is for kmemtraced top and watch, which pass descriptors on")
        };
        Ok(Passed { stream: take(STREAM)?, orders: take(ORDERS)? })
    }
}

/// Destination of the recording. Beside a viewer, which has a stream, there are files only in a directory that was named.
fn destination(args: &Args, signals: &Signals, stream: Option<OwnedFd>) -> anyhow::Result<Destination> {
    let create = || TraceDir::create(args.output.as_deref(), args.force);
    let Some(stream) = stream else { return Ok(Destination::new(Some(create()?), None)) };
    let stream = Stream::new(stream, &signals.abandon, args.priority, args.sandbox)?;
    let dir = args.output.is_some().then(create).transpose()?;
    Ok(Destination::new(dir, Some(stream)))
}

/// Ends the stream, and reports what its reader was too slow for; the exit status.
fn close_stream(args: &Args, output: &Destination, signals: &Signals, status: u8) -> u8 {
    // From here on the viewer has its time, and its end ends the stream.
    signals.end_orders();
    let NotSent { blocks, events } = output.close_stream(|| signals.stops() < 2 && !signals.is_orphan());
    if blocks == 0 || !args.prints_stream {
        return status;
    }
    let (remedy, is_lost) = match output.path() {
        Some(_) => ("the files have them", false),
        None => ("record less, or keep the recording (-o DIR)", true),
    };
    let events = counted(events, "event");
    messages::say(format!("kmemtraced: {events} came faster than they were printed, and were left out: {remedy}"));
    // As with events that the kernel lost, the status is COMMAND's where there is one.
    if is_lost && args.command.is_empty() { status.max(shutdown::LOST) } else { status }
}

/// Gives the recording to the user who called sudo.
fn hand_over(output: &Destination) {
    if let Some(caller) = report::caller() {
        warn(output.hand_over(caller));
    }
}

/// Removes a recording of which only the reports are wanted, once they are there.
fn remove_private(dir: &Path, reported: Reported) {
    let shown = dir.display();
    if reported == Reported::All {
        warn(std::fs::remove_dir_all(dir).with_context(|| format!("{shown}: cannot be removed")));
    } else {
        messages::say(format!("kmemtraced: a report failed: the recording is kept in {shown}"));
    }
}

fn run(
    args: &Args,
    source: Box<dyn TraceSource>,
    output: &mut Destination,
    signals: &Signals,
    gate: &Gate,
    mut launcher: Option<&mut Launcher>,
    mut tasks: Option<&mut Tasks>,
) -> anyhow::Result<u8> {
    let facts = Arc::clone(source.facts());
    let description = Arc::new(Description::new(&facts, !args.no_host)?);
    let changes = ForeignChanges::default();
    let mut watcher = source.control().map(|control| Watcher::new(control, changes.clone()));
    let mut meta = MetaFile::begin(output, &description, &meta_options(args, &facts))?;
    if let Some(line) = names_fill_limit(args, &meta) {
        messages::say(format!("kmemtraced: {line}"));
    }
    if signals.is_second() {
        let kept = if output.replaces() { "the earlier recording" } else { "nothing" };
        bail!("ended by a second signal before recording began: {kept} is kept");
    }
    let knows_own = own_threads::has_ids_of_events();
    let options = options(args, &facts, changes.clone(), own_threads(args, &facts, knows_own));
    let mut names = Names::start(args.served, args.lean, args.sandbox)?;
    let mut workers = Workers::start(&*source, output, &description, &options, &signals.abandon)?;
    let conditions = conditions(args, &facts, &mut workers);
    let alone = thread_of_command(args, knows_own, launcher.as_deref_mut());
    let of_launcher = [alone.as_ref().ok().copied().flatten(), launcher.as_ref().map(|launcher| launcher.pid)];
    workers.tids.extend(of_launcher.into_iter().flatten().chain([names.tid]).chain(output.stream_thread()));
    options.own.iter().for_each(|own| own.set(&workers.tids));
    let threads = put_threads(args, &mut meta, &workers.tids, knows_own);
    names.learn(&source.comms(), knows_own);
    names.begin(meta);
    let alone = threads.map_err(|error| output.unwritable("meta.out", &error)).and(alone);
    let started = alone.and_then(|thread| {
        let whom = Whom { thread, tasks: tasks.as_deref_mut() };
        let parts = Parts { args, source: &*source, output, signals, gate };
        start::start(&parts, watcher.as_mut(), whom, launcher.as_deref_mut())
    });
    if started.is_ok() {
        begun(args, &*source, output, watcher.as_mut(), &names, &mut workers);
    }
    let waited = started.map(|command| {
        if let Some(pid) = command.and_then(|command| command.pid).filter(|_| knows_own) {
            names.add(pid, &command_comm(args));
        }
        let (watcher, source, names, workers) = (watcher.as_mut(), &*source, &mut names, &workers);
        let (tasks, running) = (tasks.as_deref_mut(), launcher.as_deref_mut().zip(command));
        let running = Running { args, workers, output, signals, source, watcher, command: running, gate, names, tasks };
        (running.wait(), command)
    });
    // After a failed start the source is not stopped: a buffer that was taken over goes on recording.
    let is_stopped = waited.is_ok() && stop(&*source, watcher.as_mut(), &mut names);
    let reason = waited.as_ref().map_or(END_ERROR, |(stop, ..)| stop.reason);
    let outcomes = workers.stop(reason, |workers| {
        answer_counters(workers, signals);
        if workers.are_drained() && !changes.is_closed() {
            // What a failed start left undone is no change by others.
            report_change(watcher.as_mut().filter(|_| waited.is_ok()).and_then(Watcher::last_comparison));
            changes.close();
        }
    });
    let foreign = watcher.as_ref().is_some_and(Watcher::happened);
    // The instance cannot be removed while its control files are open.
    drop(watcher);
    // Reported before the source is undone, which may take the rest of a second.
    let cut = report_cut(output, waited.as_ref().ok().map(|(stop, _)| stop), outcomes.as_deref().ok(), signals);
    names.add_lines(&source.comms());
    drop(source);
    let ((stop, command), outcomes) = (waited?, outcomes?);
    let running = launcher.zip(command);
    if let Some(status) = cut {
        running.map(|(launcher, command)| command::leave(launcher, command, signals));
        return Ok(status);
    }
    let finished = names.finish(stop.reason);
    let whom = tasks::whom(args, tasks.as_deref());
    let early = stop.reason == END_ERROR;
    let ended = shutdown::Ended { why: &stop.why, early, foreign, unstopped: !is_stopped, whom };
    let status = shutdown::close(args, output, &conditions, &ended, &outcomes, finished.err());
    Ok(status_with_command(status, running, signals))
}

/// Line about a limit of which the symbols and texts take more than three quarters before the first event; those of the machine's memory
/// are still to come.
fn names_fill_limit(args: &Args, meta: &MetaFile) -> Option<String> {
    let limit = args.max_size.filter(|&limit| meta.bytes() > limit / 4 * 3)?;
    let [limit, names] = [whole_units(limit), units::bytes(meta.bytes())];
    Some(format!(
        "--max-size {limit}: symbols and texts take {names} before the first event, so there is room for few; use a larger limit"
    ))
}

/// Makes readers and names go, once events are recorded.
fn begun(
    args: &Args,
    source: &dyn TraceSource,
    output: &mut Destination,
    watcher: Option<&mut Watcher>,
    names: &Names,
    workers: &mut Workers,
) {
    if let Some(watcher) = watcher.filter(|_| source.facts().since_boot) {
        // Probe events are enabled now.
        watcher.switch(true, &[]);
    }
    names.put_probes(source.begun());
    names.begun();
    workers.go();
    take_name(args, output);
}

/// Options of the threads that record.
fn options(args: &Args, facts: &SourceFacts, changes: ForeignChanges, own: Option<OwnThreads>) -> RecordOptions {
    RecordOptions {
        pool: set_up::pool(args),
        flush: args.flush(),
        sync: args.sync.resolve(args.flush()),
        priority: args.priority,
        compress: args.compression(),
        major: major(args, facts),
        changes,
        watermarks: args.served,
        own,
        sandbox: args.sandbox,
    }
}

/// Version of the format of the recording's files; what is read meanwhile is a stream.
fn major(args: &Args, facts: &SourceFacts) -> Major {
    records::major(args.compression(), facts, args.served)
}

/// Conditions of a loss; prints the threads' priority for --verbose.
fn conditions<'a>(args: &Args, facts: &'a SourceFacts, workers: &mut Workers) -> Conditions<'a> {
    let granted = workers.granted.take();
    if let Some(granted) = &granted {
        say_verbose(args, &format!("readers and writers run at {granted}"));
    }
    Conditions { facts, asked: args.priority, granted }
}

/// Options of the file of names.
fn meta_options(args: &Args, facts: &SourceFacts) -> MetaOptions {
    MetaOptions {
        compression: args.compression(),
        major: major(args, facts),
        sync: args.sync != Sync::Never,
        late_symbols: args.lean && !args.served,
    }
}

/// Ends the recording of events, after a last look at the control files and the machine's memory; false if the kernel records on.
fn stop(source: &dyn TraceSource, mut watcher: Option<&mut Watcher>, names: &mut Names) -> bool {
    report_change(watcher.as_mut().and_then(|watcher| watcher.compare_now()));
    names.stopping();
    let stopped = source.stop();
    match &stopped {
        Ok(()) => {
            if let Some(watcher) = watcher {
                watcher.switch(false, &[]);
            }
        }
        Err(error) => messages::say(format!(
            "kmemtraced: {error:#}: the kernel records until the buffers are removed, and events at the end count as lost"
        )),
    }
    stopped.is_ok()
}

/// Id of the thread that starts COMMAND, where COMMAND is recorded alone.
fn thread_of_command(args: &Args, knows_own: bool, launcher: Option<&mut Launcher>) -> anyhow::Result<Option<i32>> {
    let Some(launcher) = launcher.filter(|_| args.only_command) else { return Ok(None) };
    if !knows_own {
        bail!(
            "--only-command: the kernel lists tasks by ids that are not known in a pid namespace: record outside of it"
        );
    }
    launcher.prepare().map(Some).map_err(|error| not_started("launch", &error))
}

/// Name that the kernel gives COMMAND: that of its file.
fn command_comm(args: &Args) -> Vec<u8> {
    let program = args.command.first().map(Path::new).and_then(Path::file_name);
    program.map(|name| name.as_bytes().to_vec()).unwrap_or_default()
}

/// Counter of the recorder's own events, for --verbose.
fn own_threads(args: &Args, facts: &SourceFacts, knows_own: bool) -> Option<OwnThreads> {
    let (_, format) = facts.formats.first().filter(|_| args.verbose && knows_own)?;
    OwnThreads::new(format)
}

/// Adds the recorder's thread ids to the names, where the kernel's ids of them are known.
fn put_threads(args: &Args, meta: &mut MetaFile, threads: &[i32], knows_own: bool) -> std::io::Result<()> {
    if knows_own {
        return meta.put_threads(threads);
    }
    let line = "the recorder's own threads are not known in a pid namespace: the report cannot leave them out";
    say_verbose(args, line);
    Ok(())
}

/// Takes the name of an earlier recording, which has it until this one has begun.
fn take_name(args: &Args, output: &mut Destination) {
    warn(output.begin(args.sandbox));
    if args.sync != Sync::Never {
        warn(output.sync().context("the trace directory's names are not on the disk"));
    }
    if let Some(Err(error)) = output.path().map(undo::note_trace_dir) {
        say_verbose(args, &format!("{error:#}"));
    }
}

/// Reports a recording that was cut short and returns its exit status; `None` where all files have their end.
fn report_cut(
    output: &Destination,
    stop: Option<&Stop>,
    outcomes: Option<&[(u32, Outcome)]>,
    signals: &Signals,
) -> Option<u8> {
    let (stop, outcomes) = stop.zip(outcomes)?;
    let is_cut = outcomes.iter().any(|(_, outcome)| outcome.unfinished);
    is_cut.then(|| shutdown::cut(output, &stop.why, outcomes, signals.is_second()))
}

/// COMMAND's exit status where the recording has nothing worse to report than lost events, else the recording's.
fn status_with_command(status: u8, command: Option<(&mut Launcher, Program)>, signals: &Signals) -> u8 {
    match command.and_then(|(launcher, command)| command::leave(launcher, command, signals)) {
        Some(commands) if status <= 1 => commands,
        _ => status,
    }
}
