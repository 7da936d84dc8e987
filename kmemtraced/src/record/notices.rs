//! Lines that a running recording writes to standard error.

use std::io::{self, IsTerminal};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::Ordering;

use kmemtrace_abi::text::escape::escape;
use kmemtrace_abi::text::units::counted;
use kmemtrace_abi::trace::Scope;

use crate::args::Args;
use crate::fs::kernelfs::{KernelFs, PROC};
use crate::fs::rights;
use crate::process::messages;
use crate::process::signals::Signals;
use crate::source::events::without_frees;
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

/// True if a status line is shown: standard error is a terminal, no COMMAND writes to it, no viewer is beside it, and --quiet was not given.
pub(crate) fn has_status_line(args: &Args) -> bool {
    !args.quiet && args.command.is_empty() && !args.served && io::stderr().is_terminal()
}

/// Reports a change by another program, even with --quiet.
pub(crate) fn report_change(change: Option<String>) {
    if let Some(change) = change {
        messages::say(format!("kmemtraced: {change}"));
    }
}

/// Says what is recorded, and from which buffers; `whom`: the tasks that are recorded alone.
pub(crate) fn say_begin(args: &Args, dir: Option<&Path>, facts: &SourceFacts, whom: &str) {
    let command = args.command_name();
    let has_command = !command.is_empty();
    let begun = dir
        .map_or_else(|| "watching".to_owned(), |dir| format!("recording to {}:", escape(dir.as_os_str().as_bytes())));
    say(
        args,
        &match facts.scope {
            Scope::Tasks if args.only_command => format!("{begun} {whom} alone"),
            Scope::Tasks if has_command => format!("{begun} {whom} alone until {command} ends"),
            Scope::Tasks => format!("{begun} {whom} alone   Ctrl-C stops"),
            Scope::System if has_command => {
                format!("{begun} the whole machine until {command} ends; to record {command} alone add --only-command")
            }
            Scope::System | Scope::Unknown => format!("{begun} the whole machine   Ctrl-C stops"),
        },
    );
    say(args, &facts.shown);
    if let Some(filter) = &facts.filter {
        say(args, &format!("filter on allocations: {}", escape(filter.as_bytes())));
    }
    if let Some(shown) = facts.stacks.shown() {
        let reason = if args.verbose { facts.stacks.reason.as_str() } else { "" };
        say(args, &if reason.is_empty() { shown } else { format!("{shown}: {reason}") });
    }
    if let Some(shown) = facts.functions.shown() {
        say(args, &shown);
    }
    if let Some(shown) = &facts.probes.shown {
        say(args, shown);
    }
}

/// Warns that call sites will have no names, even with --quiet. A file that cannot be read was reported when the symbols were.
pub(crate) fn warn_of_symbols() {
    let missing = KernelFs::find(&PROC).and_then(|proc| rights::no_symbols(&proc));
    if let Ok(Some(line)) = missing {
        messages::say(format!("kmemtraced: {line}"));
    }
}

/// Warns of allocations whose frees are not recorded, and of stacks and functions that the kernel refused, even with --quiet.
pub(crate) fn warn_of_events(facts: &SourceFacts) {
    let stacks = facts.stacks.notes.iter().cloned();
    for warning in without_frees(&facts.events).into_iter().chain(stacks).chain(facts.functions.note.clone()) {
        messages::say(format!("kmemtraced: {warning}"));
    }
}

/// Lists the enabled events, events and functions that the kernel lacks, and the sub-buffer size.
pub(crate) fn list_set_up(facts: &SourceFacts) {
    for event in &facts.events {
        messages::say(format!("event {event}"));
    }
    for event in &facts.missing {
        messages::say(format!("event {event}: not in this kernel"));
    }
    for function in facts.functions.refused.iter().filter(|_| !facts.functions.recorded.is_empty()) {
        messages::say(format!("function {function}: cannot be recorded by this kernel"));
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
        messages::say(format!("CPU {cpu}: {}   {} KiB   {lost} lost", counted(events, "event"), bytes >> 10));
    }
}
