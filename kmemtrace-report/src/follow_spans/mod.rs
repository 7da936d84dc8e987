//! Stalls of a trace that grows, each printed once it ends: of a stream on standard input, or of a directory.

mod alive;
mod directory;
mod held;
mod input;
mod lines;
mod stop;
mod stream;

use kmemtrace::follow::Follower;
use kmemtrace::latency::{FollowRequest, Latency};
use kmemtrace::live::Fed;
use kmemtrace::{Query, Trace};
use kmemtrace_abi::fault::Verdict;
use kmemtrace_abi::stream::Hole;
use kmemtrace_abi::text::units::counted;

use crate::args::{Args, Format};
use crate::cli::Request;
use crate::latency::{check_threshold, missing};
use crate::terminal::messages::say;
use crate::terminal::output::Output;
use crate::views::view::Needs;
use crate::{exit, report, told};
use alive::Alive;
use held::Held;
use input::Input;
use lines::SpanLines;
use stop::{Next, Stop};

/// Prints spans as they end, and the totals at the end.
pub(crate) fn follow(request: &Request) -> anyhow::Result<u8> {
    let args = &request.args;
    check(args)?;
    let stop = Stop::register(args.output.is_none())?;
    let (mut input, opened) = Input::open(request, &stop)?;
    let Some(mut trace) = opened else { return Ok(exit::OK) };
    check_threshold(args, &trace)?;
    let query = report::with_options(request, Query::by_kind())?;
    let asked = FollowRequest {
        threshold: args.threshold.unwrap_or(0),
        spans: args.span.clone(),
        lists_all: args.all_spans,
        lists_events: args.timeline,
        flush: args.live.flush,
    };
    let base = query.follow(&mut trace, asked)?;
    let mut follower = Follower::new(&base, &trace);
    let mut out = Output::open(args.output.as_deref(), args.force)?;
    let mut lines = SpanLines::new(request, &base, &mut out);
    let (mut written, mut held) = (Ok(()), Held::new(matches!(input, Input::Stream(_))));
    let mut alive = Alive::new(args.quiet);
    loop {
        if input.is_full() {
            follower.hurry();
        }
        let fed = follower.feed(&mut trace);
        if let Some(hole) = follower.take_left_out() {
            alive.clear();
            tell_left_out(hole, follower.first().unwrap_or(0));
        }
        let ready = held.pass(follower.take_ended(), &follower);
        alive.make_room(ready.len());
        written = written.and_then(|()| lines.rows(&ready, follower.first(), &trace));
        if fed == Fed::Behind && written.is_ok() {
            continue;
        }
        written = written.and_then(|()| lines.flush());
        if fed == Fed::Ended && written.is_ok() {
            input.drain(&stop)?;
            break;
        }
        alive.look();
        if written.is_err() || input.next(&mut trace, &mut follower, &stop)? == Next::Stopped {
            break;
        }
    }
    drop(alive);
    input.report(request, &mut trace);
    let first = follower.first();
    let mut last = held.rest(&follower);
    let followed = follower.finish(&trace, &mut |spans| last.extend(spans));
    written = written.and_then(|()| lines.rows(&last, first, &trace)).and_then(|()| lines.begin(first));
    let (totals, late_events) = (followed.totals, followed.late_events);
    drop(lines);
    let latency = base.answer(&mut trace, followed);
    let written = written.and_then(|()| lines::totals(request, &latency, totals, late_events, &mut out));
    out.finish(written)?;
    tell(&latency, &trace, args, late_events);
    if let Some(paths) = latency.source_paths() {
        report::check_branches(args, paths)?;
    }
    Ok(report::status(args, &latency.observed().completeness))
}

/// Refuses options that ask for an order of rows, or for a part of a trace that has an end.
fn check(args: &Args) -> anyhow::Result<()> {
    let given = [
        ("--sort", !args.sort.is_empty(), "spans are printed in the order of their ends"),
        ("--top", args.top.is_some(), "--threshold leaves out short spans"),
        ("--time", args.time.is_some(), "leave it out"),
        ("--format", matches!(args.format, Some(Format::Json | Format::Csv)), "the formats are table and jsonl"),
    ];
    if let Some((option, _, remedy)) = given.into_iter().find(|(_, is_given, _)| *is_given) {
        anyhow::bail!("{option}: not with --follow, which prints lines as they come: {remedy}");
    }
    if args.words.len() > 1 {
        anyhow::bail!("--follow: name one directory, or - for a stream on standard input");
    }
    Ok(())
}

/// Tells of events that did not come, because this program was too slow for them.
fn tell_left_out(hole: Hole, first: u64) {
    let events = hole.events.map_or_else(|| "some events".to_owned(), |events| counted(events, "event"));
    let seconds = |key: u64| format!("+{:.1} s", key.saturating_sub(first) as f64 / 1e9);
    let when = hole.span.map_or(String::new(), |(from, to)| format!(" from {} to {}", seconds(from), seconds(to)));
    say(&format!(
        "{events} were left out{when}: they came faster than they can be shown; lines may be missing or wrong there"
    ));
}

/// Tells on standard error of what the lines cannot say.
fn tell(latency: &Latency, trace: &Trace, args: &Args, late_events: u64) {
    let observed = latency.observed();
    told::rejected(&latency.names_report());
    if let Some(missing) = missing(latency, Needs::Spans, trace, args) {
        say(missing);
    }
    if observed.completeness.verdict >= Verdict::Truncated && !observed.completeness.truncated_files.is_empty() {
        say("the recorder ended before its files did: the last events are missing");
    }
    if observed.has_late_loss {
        say("some events were lost at an unknown time; any span printed above may be wrong");
    }
    if late_events > 0 {
        say(&format!(
            "{late_events} events came later than the recorder's flush interval allows, and count at a later time: name the interval \
             with --flush"
        ));
    }
}
