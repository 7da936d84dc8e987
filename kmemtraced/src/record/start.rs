//! The start of a recording: events are enabled, then COMMAND is run.

use std::process::Child;

use anyhow::{Context, bail};

use crate::args::Args;
use crate::control::files::Watching;
use crate::control::foreign::Watcher;
use crate::output::destination::Destination;
use crate::process::memory;
use crate::process::messages;
use crate::process::signals::Signals;
use crate::process::thread::HighPriority;
use crate::record::launcher::{self, Launcher};
use crate::record::notices::{
    list_set_up, report_change, say, say_begin, say_verbose, warn_of_events, warn_of_symbols,
};
use crate::record::shutdown::LAST_WORDS;
use crate::record::tasks::{self, Tasks};
use crate::source::TraceSource;

/// Parts of a recording that exist once events are recorded.
pub(crate) struct Started {
    pub(crate) child: Option<Child>,
    pub(crate) priority: HighPriority,
}

/// Tasks that are recorded alone; without either, the whole machine is recorded.
pub(crate) struct Whom<'a> {
    /// Thread that starts COMMAND.
    pub(crate) launcher: Option<Launcher>,
    /// Tasks that run.
    pub(crate) tasks: Option<&'a mut Tasks>,
}

/// Enables the events and runs COMMAND, with the launcher where COMMAND is recorded alone. The readers take nothing from the buffers before both have succeeded.
pub(crate) fn start(
    args: &Args,
    source: &dyn TraceSource,
    output: &Destination,
    signals: &Signals,
    mut watcher: Option<&mut Watcher>,
    whom: Whom<'_>,
) -> anyhow::Result<Started> {
    if signals.stops() > 0 && output.replaces() {
        bail!("ended by a signal before recording began: the earlier recording is kept");
    }
    let facts = source.facts();
    if args.verbose {
        list_set_up(facts);
    }
    warn_of_events(facts);
    warn_of_symbols();
    if let Err(line) = memory::lock() {
        say_verbose(args, &line);
    }
    let mut priority = HighPriority::take(args.priority);
    if let Some(watcher) = watcher.as_deref_mut() {
        match watcher.watching() {
            Watching::All => {}
            Watching::Partial => say_verbose(
                args,
                "triggers that others set are seen after half a minute here (fs.inotify.max_user_watches is too low)",
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
    let Whom { launcher, mut tasks } = whom;
    if let Some(launcher) = &launcher {
        let thread = [launcher.tid.unsigned_abs()];
        source.follow(&thread)?;
        if let Some(watcher) = watcher.as_deref_mut() {
            watcher.listed(&thread);
        }
    }
    if let Some(tasks) = tasks.as_deref_mut() {
        tasks.begin(source, watcher.as_deref_mut())?;
    }
    source.start()?;
    // A write of another program to a switch is not told from the recorder's own until these are taken.
    report_change(watcher.as_deref_mut().and_then(Watcher::compare));
    let tasks = tasks.as_deref();
    say_begin(args, output.path(), facts, &tasks::whom(args, tasks));
    tasks.and_then(Tasks::grows).iter().for_each(|line| say(args, line));
    let mut child = None;
    if !args.command.is_empty() {
        messages::finish(LAST_WORDS);
        // A child inherits the priority of this thread.
        drop(priority);
        let is_alone = launcher.is_some();
        let spawned = launcher.map_or_else(|| launcher::spawn(&args.command), Launcher::launch);
        priority = HighPriority::take(args.priority);
        child = spawned.transpose().with_context(|| format!("{}: cannot be run", args.command_name()))?;
        if let (Some(child), Some(watcher)) = (child.as_ref().filter(|_| is_alone), watcher) {
            watcher.listed(&[child.id()]);
        }
    }
    Ok(Started { child, priority })
}
