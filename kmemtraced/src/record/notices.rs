//! Lines that a running recording writes to standard error.

use std::io::{self, IsTerminal};
use std::sync::atomic::Ordering;

use crate::args::Args;
use crate::process::messages;
use crate::process::signals::Signals;
use crate::source::{Framing, SourceFacts};
use crate::write::workers::Workers;

/// Writes `text` unless --quiet was given.
pub(crate) fn say(args: &Args, text: &str) {
    if !args.quiet {
        messages::say(text);
    }
}

/// Writes a line that is only for --verbose.
pub(crate) fn say_verbose(args: &Args, text: &str) {
    if args.verbose {
        messages::say(text);
    }
}

/// Reports a failure that does not end the recording.
pub(crate) fn warn(done: anyhow::Result<()>) {
    if let Err(error) = done {
        messages::say(format!("kmemtraced: {error:#}"));
    }
}

/// True if a status line is shown: standard error is a terminal, and --quiet was not given.
pub(crate) fn has_status_line(args: &Args) -> bool {
    !args.quiet && io::stderr().is_terminal()
}

/// Reports a change by another program, even with --quiet.
pub(crate) fn report_change(args: &Args, change: Option<String>) {
    if let Some(change) = change {
        let below_status = if has_status_line(args) { "\n" } else { "" };
        messages::say(format!("{below_status}kmemtraced: {change}"));
    }
}

/// Lists the enabled events and the sub-buffer size.
pub(crate) fn list_set_up(facts: &SourceFacts) {
    for event in &facts.events {
        messages::say(format!("event {event}"));
    }
    if let Framing::SubBuffers(shape) = &*facts.framing {
        messages::say(format!("sub-buffers of {} KiB", shape.size >> 10));
    }
}

/// Writes the counters of each CPU if SIGUSR1 came since the last call.
pub(crate) fn answer_counters(workers: &Workers, signals: &Signals) {
    if !signals.wants_counters() {
        return;
    }
    for (cpu, p) in workers.progress() {
        let [events, bytes, lost] = [&p.events, &p.bytes, &p.lost].map(|n| n.load(Ordering::Relaxed));
        messages::say(format!("CPU {cpu}: {events} events   {} KiB   {lost} lost", bytes >> 10));
    }
}
