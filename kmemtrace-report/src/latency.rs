//! Runs the views of the time that tasks wait for memory.

use kmemtrace::documents::Document;
use kmemtrace::latency::{Latency, LatencyRequest, WaitBy};
use kmemtrace::{GroupKey, Query, Trace};
use kmemtrace_abi::clock::Unit;
use kmemtrace_abi::text::escape::escape;

use crate::args::{Args, Format};
use crate::cli::Request;
use crate::render::table::options::{TableOptions, TellsCgroups};
use crate::report;
use crate::suggest;
use crate::terminal::messages::say;
use crate::terminal::progress::ProgressLine;
use crate::told;
use crate::views::view::Needs;

/// Prints a view.
pub(crate) fn latency(
    request: &Request,
    asked: LatencyRequest,
    document: for<'a> fn(&'a Latency, &Args, Option<usize>) -> Document<'a>,
    needs: Needs,
) -> anyhow::Result<u8> {
    let (args, inputs) = (&request.args, request.inputs());
    report::saved_document(request)?;
    let mut trace = report::open(request, &inputs)?;
    check_threshold(args, &trace)?;
    let query = report::with_options(request, Query::by_kind())?;
    let asked = LatencyRequest {
        threshold: args.threshold.unwrap_or(0),
        spans: args.span.clone(),
        lists_events: args.timeline,
        waits_by: wait_keys(&args.by),
        ..asked
    };
    let event_names = trace.names.len();
    let latency = query.latency(&mut trace, asked, &mut ProgressLine::new(args.quiet))?;
    let observed = latency.observed();
    told::empty_window(("--time", args.time), &trace, observed.events, observed.first_key);
    if let Some(paths) = latency.source_paths() {
        report::check_branches(args, paths)?;
    }
    // Names of filters that are nowhere in the trace.
    suggest::suggest(&args.filters, &query, &trace, &trace.names, event_names).iter().for_each(|line| say(line));
    let missing = missing(&latency, needs, &trace, args);
    // A table has it above its rows.
    if let (Some(missing), true) = (missing, request.format() != Format::Table) {
        say(missing);
    }
    let missing = missing.map(str::to_owned);
    let cgroups = TellsCgroups::of(&trace);
    let options = TableOptions { missing, cgroups, ..report::table_options(request, &inputs[0]) };
    report::print_fitted(request, &options, |top| Ok(document(&latency, args, top)))?;
    told::rejected(&latency.names_report());
    Ok(report::status(args, &observed.completeness))
}

/// Refuses a threshold where no duration is known: all would be below it.
///
/// # Errors
/// `--threshold` for a trace whose clock counts no nanoseconds.
pub(crate) fn check_threshold(args: &Args, trace: &Trace) -> anyhow::Result<()> {
    if args.threshold.is_some_and(|least| least > 0) && trace.info.keys().unit != Unit::Nanoseconds {
        let clock = escape(trace.info.clock.as_deref().unwrap_or("none").as_bytes()).into_owned();
        anyhow::bail!(
            "--threshold: the clock of this trace, {clock}, counts no nanoseconds, so no duration is known: leave it out"
        );
    }
    Ok(())
}

/// Keys of rows of waits, each once.
fn wait_keys(by: &[GroupKey]) -> Vec<WaitBy> {
    let mut keys = Vec::new();
    for key in by.iter().filter_map(wait_key) {
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    keys
}

/// Key of rows of waits.
fn wait_key(by: &GroupKey) -> Option<WaitBy> {
    match by {
        GroupKey::Site => Some(WaitBy::Site),
        GroupKey::Task => Some(WaitBy::Task),
        GroupKey::Order => Some(WaitBy::Order),
        GroupKey::Gfp => Some(WaitBy::Gfp),
        GroupKey::Cgroup => Some(WaitBy::Cgroup),
        _ => None,
    }
}

/// Line about events that a view needs and that are not there: not recorded, not left by the filters, or none came.
pub(crate) fn missing(latency: &Latency, needs: Needs, trace: &Trace, args: &Args) -> Option<&'static str> {
    // An empty window was told of.
    if args.time.is_some() && latency.observed().events == 0 {
        return None;
    }
    match needs {
        Needs::Functions if latency.function_calls() == 0 && args.time.is_some() => {
            Some("no timed function ended in the time that --time names")
        }
        Needs::Functions if latency.function_calls() == 0 => Some(
            "the recording has no timed functions: record them with kmemtraced -e latency --functions, on a kernel that has the \
                 function_graph tracer in instances (Linux 6.12)",
        ),
        Needs::Functions if !latency.has_functions() => Some("the filters leave no timed function"),
        Needs::Spans | Needs::Pages if latency.reclaim_events() == 0 && trace.records_reclaim() => {
            Some("no memory was reclaimed or compacted: such events were recorded, and none came")
        }
        Needs::Spans | Needs::Pages if latency.reclaim_events() == 0 => Some(
            "the recording has no events of reclaim, compaction or shrinkers: record them with kmemtraced -e latency",
        ),
        Needs::Pages if latency.page_allocations() == 0 && trace.records_page_allocs() => {
            Some("no task allocated pages: such events were recorded, and none came")
        }
        Needs::Pages if latency.page_allocations() == 0 => {
            Some("the recording has no page allocations: record them with kmemtraced -e latency,page")
        }
        Needs::Pages if !latency.has_waits() => Some("the filters leave no page allocation"),
        _ => None,
    }
}
