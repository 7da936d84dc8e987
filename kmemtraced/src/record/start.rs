//! The start of a recording: events are enabled, then COMMAND is run.

use anyhow::{Context, bail};

use crate::args::Args;
use crate::control::files::Watching;
use crate::control::foreign::Watcher;
use crate::output::destination::Destination;
use crate::process::memory;
use crate::process::messages;
use crate::process::signals::Signals;
use crate::process::thread::raise;
use crate::record::gate::{Allowed, Gate};
use crate::record::launcher::{Launcher, Program};
use crate::record::notices::{
    list_set_up, report_change, say, say_begin, say_verbose, warn_of_events, warn_of_symbols,
};
use crate::record::shutdown::LAST_WORDS;
use crate::record::tasks::{self, Tasks};
use crate::source::TraceSource;

/// Parts of a recording that a start needs.
pub(crate) struct Parts<'a> {
    pub(crate) args: &'a Args,
    pub(crate) source: &'a dyn TraceSource,
    pub(crate) output: &'a Destination,
    pub(crate) signals: &'a Signals,
    pub(crate) gate: &'a Gate,
}

/// Tasks that are recorded alone; without either, the whole machine is recorded.
pub(crate) struct Whom<'a> {
    /// Id of the thread that starts COMMAND.
    pub(crate) thread: Option<i32>,
    /// Tasks that run.
    pub(crate) tasks: Option<&'a mut Tasks>,
}

/// Closes the sandbox, enables the events and runs COMMAND. The readers take nothing from the buffers before all have succeeded.
pub(crate) fn start(
    parts: &Parts<'_>,
    mut watcher: Option<&mut Watcher>,
    whom: Whom<'_>,
    launcher: Option<&mut Launcher>,
) -> anyhow::Result<Option<Program>> {
    let Parts { args, source, output, signals, gate } = *parts;
    if signals.stops() > 0 && output.replaces() {
        bail!("ended by a signal before recording began: the earlier recording is kept");
    }
    let facts = source.facts();
    if args.verbose {
        list_set_up(facts);
    }
    warn_of_events(facts);
    warn_of_symbols();
    for lack in [memory::lock(), memory::lower_oom_score()].into_iter().filter_map(Result::err) {
        say_verbose(args, &lack);
    }
    raise(args.priority);
    if let Some(watcher) = watcher.as_deref_mut() {
        match watcher.watching() {
            Watching::All => {}
            Watching::Partial => say_verbose(
                args,
                "triggers that others set for less than a second cannot be seen here (fs.inotify.max_user_watches is too low)",
            ),
            Watching::None => say_verbose(
                args,
                "changes by others that last less than a second cannot be seen here (no fanotify and no inotify, or no /proc)",
            ),
        }
        report_change(watcher.selections());
        // Probe events of a buffer of the boot come once the recording has begun.
        let later: &[String] = if facts.since_boot { &facts.probes.events } else { &[] };
        watcher.switch(true, later);
    }
    let Whom { thread, mut tasks } = whom;
    if let Some(thread) = thread {
        let listed = [thread.unsigned_abs()];
        source.follow(&listed)?;
        if let Some(watcher) = watcher.as_deref_mut() {
            watcher.listed(&listed);
        }
    }
    if let Some(tasks) = tasks.as_deref_mut() {
        tasks.begin(source, watcher.as_deref_mut())?;
    }
    gate.close(Allowed { args, source, output, tasks: tasks.as_deref() })?;
    source.start()?;
    // A write of another program to a switch is not told from the recorder's own until these are taken.
    report_change(watcher.as_deref_mut().and_then(Watcher::compare));
    let tasks = tasks.as_deref();
    say_begin(args, output.path(), facts, &tasks::whom(args, tasks));
    tasks.and_then(Tasks::grows).iter().for_each(|line| say(args, line));
    let Some(launcher) = launcher.filter(|_| !args.command.is_empty()) else { return Ok(None) };
    messages::finish(LAST_WORDS);
    let program =
        launcher.launch(|| signals.stops() > 0).with_context(|| format!("{}: cannot be run", args.command_name()))?;
    if let (Some(_), Some(watcher), Some(pid)) = (thread, watcher, program.pid) {
        watcher.listed(&[pid.unsigned_abs()]);
    }
    Ok(Some(program))
}
