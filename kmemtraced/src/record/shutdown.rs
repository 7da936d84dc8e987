//! The end of a recording: its last lines, and the exit status.

use std::io;
use std::time::Duration;

use kmemtrace_abi::text::escape::escape;
use kmemtrace_abi::text::units::{self, counted};
use kmemtrace_abi::trace::Scope;

use crate::args::Args;
use crate::control::files;
use crate::output::destination::Destination;
use crate::output::trace_dir::Place;
use crate::process::messages::{self, say};
use crate::record::losses::{self, Conditions};
use crate::source::SourceFacts;
use crate::source::events;
use crate::source::undo;
use crate::write::compress::Compression;
use crate::write::outcome::{BlockCounts, Outcome};

/// Exit status of a recording that lost events.
pub(crate) const LOST: u8 = 1;
/// Exit status of a recording that ended early: disk full, I/O error, a second signal.
pub(crate) const ENDED_EARLY: u8 = 3;
/// Longest time that the end of the process waits for its messages to be written.
pub(crate) const LAST_WORDS: Duration = Duration::from_millis(300);

/// The end of a recording.
#[derive(Clone, Debug)]
pub(crate) struct Ended<'a> {
    /// The reason, as text for the user.
    pub(crate) why: &'a str,
    /// True after a failure.
    pub(crate) early: bool,
    /// True if another program changed the recording.
    pub(crate) foreign: bool,
    /// True if the kernel recorded on, because it could not be told to stop.
    pub(crate) unstopped: bool,
    /// Tasks that were recorded alone, as text for the user.
    pub(crate) whom: String,
}

impl Ended<'_> {
    /// What explains lost events beside slow threads, with its remedy.
    fn disturbance(&self, totals: &Totals) -> Option<&'static str> {
        match (totals.uncounted, self.unstopped, self.foreign) {
            (true, ..) => Some("a buffer could not be read to the end"),
            (_, true, _) => Some("the kernel recorded on until the buffers were removed"),
            (.., true) => {
                Some("another program changed the recording meanwhile: record in an instance of another name (-B NAME)")
            }
            _ => None,
        }
    }
}

/// Sums over the files of a recording.
struct Totals {
    events: u64,
    bytes: u64,
    lost: u64,
    read_by_others: u64,
    /// A buffer was cleared during the recording.
    cleared: bool,
    /// The end of a CPU's buffer could not be read or counted.
    uncounted: bool,
}

impl Totals {
    fn of(outcomes: &[(u32, Outcome)]) -> Totals {
        let sum = |figure: fn(&Outcome) -> u64| outcomes.iter().map(|(_, o)| figure(o)).sum::<u64>();
        Totals {
            events: sum(|o| o.events),
            bytes: sum(|o| o.bytes),
            lost: sum(|o| o.lost),
            read_by_others: sum(|o| o.read_by_others),
            cleared: outcomes.iter().any(|(_, o)| o.cleared),
            uncounted: outcomes.iter().any(|(_, o)| !o.counted),
        }
    }

    fn size(&self) -> String {
        units::bytes(self.bytes)
    }
}

/// Reports the result of a recording; returns its exit status.
pub(crate) fn close(
    args: &Args,
    output: &Destination,
    conditions: &Conditions<'_>,
    ended: &Ended<'_>,
    outcomes: &[(u32, Outcome)],
    meta: Option<io::Error>,
) -> u8 {
    let (facts, totals) = (conditions.facts, Totals::of(outcomes));
    let failed = outcomes.iter().find_map(|(cpu, o)| Some((format!("cpu{cpu}.out"), o.error.as_ref()?)));
    let failed = failed.or(meta.as_ref().map(|error| ("meta.out".to_owned(), error)));
    let is_unknown = totals.cleared || totals.uncounted || ended.foreign;
    let incomplete = totals.lost > 0 || is_unknown;
    let (place, changes) = (output.place(), output.changes());
    let is_lost = place == Place::Unreached || !changes.is_empty();
    let asked = output.shown();
    let shown = if let Place::Moved(now) = &place { now.display().to_string() } else { asked.clone() };
    if incomplete || ended.early || failed.is_some() || is_lost || !args.quiet {
        let Totals { events, lost, .. } = totals;
        let unknown = if is_unknown { ", and an unknown number more" } else { "" };
        let events = counted(events, "event");
        say(format!("stopped: {}   {events}   {}   {lost} lost{unknown}", ended.why, totals.size()));
        say_scope(facts, &ended.whom);
    }
    say_each_cpu(args, totals.events, outcomes);
    say_losses(conditions, &totals, outcomes, failed.is_none(), ended.disturbance(&totals));
    if let Some((name, error)) = &failed {
        say(format!("kmemtraced: {shown}/{name}: {error}, {}; what is there is valid", output.remedy(error)));
        return ENDED_EARLY;
    }
    if place == Place::Unreached {
        say(format!(
            "kmemtraced: {asked}: what was written can no longer be reached: another program removed, unmounted or moved the directory"
        ));
        return ENDED_EARLY;
    }
    if !changes.is_empty() {
        say(format!("kmemtraced: {shown}: {} by another program while recording: record again", changes.join(", ")));
        return ENDED_EARLY;
    }
    if shown != asked {
        say(format!("kmemtraced: {asked}: another program moved the directory: the recording is in {shown}"));
    }
    if output.path().is_some() && !args.quiet && !args.memstrack.notui {
        let view = if events::are_of_latency(&facts.events) { "latency " } else { "" };
        say(format!("next: kmemtrace-report {view}{shown}     check: kmemtrace-check {shown}"));
    }
    match (ended.early, incomplete) {
        (true, _) => ENDED_EARLY,
        (_, true) => LOST,
        _ => 0,
    }
}

/// Says which events were not recorded on purpose.
fn say_scope(facts: &SourceFacts, whom: &str) {
    if facts.scope == Scope::Tasks {
        say(format!("recorded {whom} alone: frees by others are unseen, live figures are upper bounds"));
    }
    if let Some(filter) = &facts.filter {
        let filter = escape(filter.as_bytes());
        say(format!("recorded only allocations with {filter}: frees of others look like frees of older objects"));
    }
}

/// Reports the figures of each CPU (with --verbose), and each CPU with a failure or another reader.
fn say_each_cpu(args: &Args, events: u64, outcomes: &[(u32, Outcome)]) {
    for (cpu, o) in outcomes.iter().filter(|_| args.verbose) {
        let events = counted(o.events, "event");
        say(format!("CPU {cpu}: {events}   {} KiB   {} lost", o.bytes >> 10, o.lost));
    }
    let blocks = outcomes.iter().map(|(_, o)| o.blocks).fold(BlockCounts::default(), BlockCounts::plus);
    if args.verbose && args.compression() != Compression::None {
        let BlockCounts { encoded, compressed, plain, late } = blocks;
        let late = if late > 0 { format!("; {late} not compressed, because they had waited") } else { String::new() };
        say(format!(
            "blocks of events: {encoded} with encoded records, {compressed} compressed, too, {plain} as they are{late}"
        ));
    }
    if let Some(own) = outcomes.iter().filter_map(|(_, o)| o.own).reduce(u64::saturating_add) {
        let share = own as f64 * 100.0 / events.max(1) as f64;
        say(format!("{own} of the events ({share:.2}%) are of the recorder's own threads"));
    }
    for (cpu, o) in outcomes {
        if let Some(why) = &o.unreadable {
            say(format!("kmemtraced: CPU {cpu}: {why}: events may be missing: record again"));
        }
    }
    for (cpu, o) in outcomes.iter().filter(|(_, o)| o.read_by_others > 0) {
        let (read, events) = (o.read, o.events);
        say(format!(
            "CPU {cpu}: the kernel handed out {read} events, and {events} of them are in its file: another program read its buffer"
        ));
    }
}

/// Reports lost events with the remedy; none where a file could not be written, which is the reason then.
fn say_losses(
    conditions: &Conditions<'_>,
    totals: &Totals,
    outcomes: &[(u32, Outcome)],
    is_written: bool,
    disturbance: Option<&str>,
) {
    if totals.cleared {
        say("another program cleared the buffer while recording: an unknown number of events is missing");
    }
    let by_others = totals.read_by_others;
    if by_others > 0 && is_written {
        say(format!(
            "{by_others} of the lost events were read by another program: record in an instance of another name (-B NAME)"
        ));
    }
    if totals.lost > by_others && is_written {
        losses::lines(conditions, totals.lost - by_others, outcomes, disturbance).into_iter().for_each(say);
    }
}

/// Reports a recording that was cut short, by a second signal or because the kernel has killed a writer. Touches no file, because the
/// disk may stall.
pub(crate) fn cut(output: &Destination, why: &str, outcomes: &[(u32, Outcome)], is_second: bool) -> u8 {
    let totals = Totals::of(outcomes);
    say(format!("stopped: {why}, at once   {}   {}", counted(totals.events, "event"), totals.size()));
    let unfinished = outcomes.iter().filter(|(_, o)| o.unfinished).map(|(cpu, _)| format!("cpu{cpu}.out, "));
    let (shown, unfinished) = (output.shown(), unfinished.collect::<String>());
    let what = if is_second { "a second signal" } else { "an error of the kernel" };
    say(format!(
        "kmemtraced: {shown}: {what} cut {unfinished}meta.out short: events are missing at the end, what is there is valid"
    ));
    ENDED_EARLY
}

/// Ends the process while a thread hangs in a system call.
pub(crate) fn end_now() {
    say(
        "kmemtraced: ended at once by a second signal: what is in the files is valid, and cut short where they have no end",
    );
    files::close_all();
    undo::run();
    messages::finish(LAST_WORDS / 2);
    std::process::exit(ENDED_EARLY.into());
}
