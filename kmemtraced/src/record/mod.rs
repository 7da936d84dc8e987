//! A recording from start to end.
//!
//! `set_up` chooses the source, `start` enables the events and runs COMMAND, `wait` polls for a reason to stop, `shutdown`
//! reports the result and has the exit status. `command` deals with child processes, `launcher` starts a COMMAND that is
//! recorded alone, `tasks` chooses other tasks to record alone, `losses` explains lost events, `viewer` with a program that shows the recording meanwhile, `notices` has the lines written meanwhile, `memstrack` replaces the options of that program by ours.
//!
//! Room for more phases and reasons to stop. Bytes of events pass through `write` only.

pub(crate) mod command;
mod launcher;
mod losses;
mod memstrack;
mod notices;
mod set_up;
pub(crate) mod shutdown;
mod start;
mod tasks;
mod viewer;
mod wait;

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Child;
use std::sync::Arc;
use std::thread;

use anyhow::{Context, bail};
use kmemtrace_abi::disk::block::END_ERROR;
use kmemtrace_abi::text::size::whole_units;
use kmemtrace_abi::text::units;

use crate::args::{Args, Sync};
use crate::control::foreign::{ForeignChanges, Watcher};
use crate::output::destination::Destination;
use crate::output::stream::Stream;
use crate::output::trace_dir::TraceDir;
use crate::process::memory;
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
use crate::write::workers::{RecordOptions, Workers};
use command::Reported;
use launcher::Launcher;
use losses::Conditions;
use notices::{answer_counters, report_change, say_verbose, warn};
use start::{Started, Whom};
use tasks::Tasks;
use viewer::Viewer;
use wait::{Running, Stop};

/// Bytes of a file that stay where old ones are given back to the file system, at least.
const LEAST_KEPT: u64 = 4 << 20;

/// Records, in a thread that may hang in a system call; returns the exit status.
pub(crate) fn record(mut args: Args) -> anyhow::Result<u8> {
    if let Some(line) = memstrack::translate(&mut args)? {
        notices::say(&args, &line);
    }
    // Before set-up, so that a signal during set-up undoes it.
    let signals = Arc::new(Signals::take()?);
    let (watcher, taken, priority) = (thread::current(), Arc::clone(&signals), args.priority);
    let work = move || {
        let status = record_until_stopped(&args, &taken);
        watcher.unpark();
        status
    };
    let name = "record";
    let started = thread::Builder::new().name(name.into()).spawn(work);
    let recording = started.map_err(|error| not_started(name, &error))?;
    if !signals.watch(priority, || recording.is_finished()) {
        viewer::kill_running();
        shutdown::end_now();
    }
    recording.join().unwrap_or_else(|_| {
        messages::say(
            "kmemtraced: ended early by an internal error: what is in the files is valid, record again for the rest",
        );
        Ok(shutdown::ENDED_EARLY)
    })
}

fn record_until_stopped(args: &Args, signals: &Signals) -> anyhow::Result<u8> {
    let report_file = memstrack::report_file(args)?;
    let mut tasks = tasks::chosen(args)?;
    let source = set_up::set_up(args)?;
    let (mut output, mut viewer) = destination(args, signals)?;
    if let Some(reader) = args.reader {
        // A recorder whose screen is gone has no purpose.
        let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM));
        output.lend(reader)?;
    }
    let status = run(args, source, &mut output, viewer.as_mut(), signals, tasks.as_mut());
    warn(output.finish_removal());
    if status.is_err() {
        // Before the stream's end, which it would report.
        drop(viewer);
        output.discard();
        return status;
    }
    output.close_stream();
    let viewed = viewer.map_or(0, |viewer| viewer.finish(signals));
    if signals.is_second() {
        hand_over(args, &output);
        return status;
    }
    let status = status.map(|status| if status == 0 { viewed } else { status });
    let Some(dir) = output.path_now() else { return status };
    let reported = command::report(args, &dir, report_file.as_ref(), signals);
    if memstrack::is_private(args) {
        remove_private(&dir, reported);
    }
    // The last step: until then no other user can change what the reports read.
    hand_over(args, &output);
    match reported {
        Reported::Interrupted => Ok(shutdown::ENDED_EARLY),
        // The reports are what was asked for.
        Reported::NotAll if memstrack::is_private(args) => Ok(shutdown::ENDED_EARLY),
        Reported::NotAll | Reported::All => status,
    }
}

/// Destination of the recording, and the program that shows it where the command line names one: without a directory there are no
/// files then.
fn destination(args: &Args, signals: &Signals) -> anyhow::Result<(Destination, Option<Viewer>)> {
    let create = || TraceDir::create(args.output.as_deref(), args.force);
    let Some(words) = &args.viewer else { return Ok((Destination::new(Some(create()?), None), None)) };
    let dir = args.output.is_some().then(create).transpose()?;
    let started = Viewer::start(words).and_then(|(viewer, pipe)| {
        let stream = Stream::new(pipe, &signals.abandon).context("a pipe cannot be set up")?;
        Ok((viewer, stream))
    });
    match started {
        Ok((viewer, stream)) => Ok((Destination::new(dir, Some(stream)), Some(viewer))),
        Err(error) => {
            Destination::new(dir, None).discard();
            Err(error)
        }
    }
}

/// Gives the recording to the user who called sudo; a directory that another user reads meanwhile has its owner.
fn hand_over(args: &Args, output: &Destination) {
    if let Some(caller) = report::caller().filter(|_| args.reader.is_none()) {
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
    viewer: Option<&mut Viewer>,
    signals: &Signals,
    mut tasks: Option<&mut Tasks>,
) -> anyhow::Result<u8> {
    let facts = Arc::clone(source.facts());
    let description = Arc::new(Description::new(&facts, !args.no_host)?);
    let changes = ForeignChanges::default();
    let mut watcher = source.control().map(|control| Watcher::new(control, changes.clone()));
    let mut meta = MetaFile::begin(output, &description, &meta_options(args))?;
    if let Some(line) = names_fill_limit(args, &meta) {
        messages::say(format!("kmemtraced: {line}"));
    }
    if signals.is_second() {
        bail!("ended by a second signal before recording began: nothing is kept");
    }
    let knows_own = own_threads::has_ids_of_events();
    let options = options(args, &facts, changes.clone(), own_threads(args, &facts, knows_own));
    let mut names = Names::start(args.viewer.is_some() || args.reader.is_some(), args.lean)?;
    let mut workers = Workers::start(&*source, output, &description, &options, &signals.abandon)?;
    let conditions = conditions(args, &facts, &mut workers);
    let launcher = launcher(args, knows_own);
    let launcher_tid = launcher.as_ref().ok().and_then(|launcher| Some(launcher.as_ref()?.tid));
    workers.tids.extend(launcher_tid.into_iter().chain([names.tid]));
    options.own.iter().for_each(|own| own.set(&workers.tids));
    let threads = put_threads(args, &mut meta, &workers.tids, knows_own);
    names.learn(&source.comms(), knows_own);
    names.begin(meta);
    let launcher = threads.map_err(|error| output.unwritable("meta.out", &error)).and(launcher);
    let started = launcher.and_then(|launcher| {
        let whom = Whom { launcher, tasks: tasks.as_deref_mut() };
        start::start(args, &*source, output, signals, watcher.as_mut(), whom)
    });
    if started.is_ok() {
        begun(args, &*source, output, watcher.as_mut(), &names, &mut workers);
    }
    let score = memory::OomScore::lower().inspect_err(|line| say_verbose(args, line));
    let waited = started.map(|mut started| {
        if let Some(child) = started.child.as_ref().filter(|_| knows_own) {
            names.add(rustix::process::Pid::from_child(child).as_raw_nonzero().get(), &command_comm(args));
        }
        let (watcher, child, source) = (watcher.as_mut(), started.child.as_mut(), &*source);
        let (names, workers) = (&mut names, &workers);
        let tasks = tasks.as_deref_mut();
        let stop = Running { args, workers, output, signals, source, watcher, child, names, viewer, tasks }.wait();
        (stop, started)
    });
    if waited.is_ok() {
        // After a failed start the source is not stopped: a buffer that was taken over goes on recording.
        stop(&*source, watcher.as_mut(), &mut names);
    }
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
    let cut = report_cut(output, waited.as_ref().ok(), outcomes.as_deref().ok());
    names.add_lines(&source.comms());
    drop(source);
    drop(score);
    let ((stop, Started { child, priority }), outcomes) = (waited?, outcomes?);
    drop(priority);
    if let Some(status) = cut {
        child.map(|child| command::leave(child, signals));
        return Ok(status);
    }
    let finished = names.finish(stop.reason);
    let whom = tasks::whom(args, tasks.as_deref());
    let ended = shutdown::Ended { why: &stop.why, early: stop.reason == END_ERROR, foreign, whom };
    let status = shutdown::close(args, output, &conditions, &ended, &outcomes, finished.err());
    Ok(status_with_command(status, child, signals))
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
    let cpus = facts.cpus.len().max(1) as u64;
    RecordOptions {
        pool: set_up::pool(args),
        flush: args.flush(),
        sync: args.sync.resolve(args.flush()),
        priority: args.priority,
        compress: args.compression(),
        changes,
        keep: args.free_behind.map(|bytes| (bytes / cpus).max(LEAST_KEPT)),
        watermarks: args.viewer.is_some() || args.reader.is_some(),
        own,
    }
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
fn meta_options(args: &Args) -> MetaOptions {
    MetaOptions {
        compression: args.compression(),
        sync: args.sync != Sync::Never,
        late_symbols: args.lean && args.viewer.is_none(),
    }
}

/// Ends the recording of events, after a last look at the control files and the machine's memory.
fn stop(source: &dyn TraceSource, mut watcher: Option<&mut Watcher>, names: &mut Names) {
    report_change(watcher.as_mut().and_then(|watcher| watcher.compare_now()));
    if let Some(watcher) = watcher {
        watcher.switch(false, &[]);
    }
    names.stopping();
    source.stop();
}

/// The thread that starts COMMAND where COMMAND is recorded alone.
fn launcher(args: &Args, knows_own: bool) -> anyhow::Result<Option<Launcher>> {
    if !args.only_command {
        return Ok(None);
    }
    if !knows_own {
        bail!(
            "--only-command: the kernel lists tasks by ids that are not known in a pid namespace: record outside of it"
        );
    }
    Launcher::start(&args.command).map(Some)
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
    warn(output.begin());
    if args.sync != Sync::Never {
        warn(output.sync().context("the trace directory's names are not on the disk"));
    }
    if let Some(dir) = output.path() {
        undo::note_trace_dir(dir);
    }
}

/// Reports a recording that a second signal cut short and returns its exit status; `None` where all files have their end.
fn report_cut(
    output: &Destination,
    waited: Option<&(Stop, Started)>,
    outcomes: Option<&[(u32, Outcome)]>,
) -> Option<u8> {
    let ((stop, _), outcomes) = waited.zip(outcomes)?;
    let is_cut = outcomes.iter().any(|(_, outcome)| outcome.unfinished);
    is_cut.then(|| shutdown::cut(output, &stop.why, outcomes))
}

/// COMMAND's exit status where the recording has nothing worse to report than lost events, else the recording's.
fn status_with_command(status: u8, child: Option<Child>, signals: &Signals) -> u8 {
    match child.and_then(|child| command::leave(child, signals)) {
        Some(commands) if status <= 1 => commands,
        _ => status,
    }
}
