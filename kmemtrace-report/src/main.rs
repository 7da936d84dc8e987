//! `kmemtrace-report`: what a trace says of the kernel's memory.
//!
//! Read in the order the data flows, all of it driven by the `pipeline`: `decode` reads the CPUs' streams, `merge` makes one of
//! them and `order` windows of that, `pairs` says what each event does to the live `table` and to addresses that were `freed`,
//! `tally` and `ledger` count that, `figures` are their sums, `findings` what does not match. `reports` makes a document of
//! them, `render` prints it; `select` and `symbols` tell which objects are asked for and what they are called. A `pass` does
//! all of this for a trace, or finds in the `index` beside it what an earlier one came to.

mod args;
mod board;
mod budget;
mod classes;
mod decode;
mod end_block;
#[cfg(test)]
mod exact;
mod figures;
mod filter;
mod findings;
mod freed;
mod hashing;
mod index;
mod ledger;
mod merge;
mod order;
mod output;
mod own;
mod pack;
mod pairs;
mod pass;
mod pipeline;
mod prefetch;
mod progress;
mod render;
mod reports;
mod room;
mod select;
mod symbols;
mod table;
mod tally;
mod whole_file;
mod zeroed;

use std::cell::Cell;
use std::collections::{BinaryHeap, HashMap};
use std::io::{self, IsTerminal, Write};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::bail;
use clap::Parser;
use kmemtrace_abi::block::End;
use kmemtrace_abi::clock::Unit;
use kmemtrace_abi::escape::escape;
use kmemtrace_abi::fault::Verdict;
use kmemtrace_abi::regular;
use kmemtrace_abi::trace::{OpenError, OrderKey, Source, Trace};
use serde_json::Map;

use args::{Args, Format, View};
use budget::Budget;
use classes::Grouping;
use decode::All;
use figures::Narrow;
use filter::Selected;
use index::{Index, Question, Settings};
use order::Order;
use output::Output;
use own::{ButOwn, OwnThreads};
use pairs::{Paired, Rules};
use pass::Pass;
use pipeline::{CrewSize, Job};
use reports::row::Rows;
use reports::{Completeness, Document, Naming};
use symbols::Symbols;

/// Usage, or something that cannot be read or written.
const UNUSABLE: u8 = 2;
/// No trace at all, or `--strict` and an incomplete one.
const NO_TRACE: u8 = 3;

/// Rows of a table on a terminal.
const ROWS_ON_TERMINAL: usize = 20;

fn main() -> ExitCode {
    let args = Args::parse();
    match run(&args) {
        Ok(status) => ExitCode::from(status),
        Err(error) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            let text = escape(format!("{error:#}").as_bytes()).into_owned();
            let _ = writeln!(io::stderr(), "kmemtrace-report: {text}");
            let no_trace = error.downcast_ref::<OpenError>().is_some_and(OpenError::is_no_trace);
            ExitCode::from(if no_trace { NO_TRACE } else { UNUSABLE })
        }
    }
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
}

fn run(args: &Args) -> anyhow::Result<u8> {
    let (view, inputs) = args.view_and_inputs();
    if args.words.first().is_some_and(|word| word == Path::new("pack")) {
        let level = args.level.unwrap_or(pack::LEVEL);
        let how = pack::How { level, takes_unfinished: args.force, threads: threads(args), is_quiet: args.quiet };
        pack::pack(&inputs, how)?;
        return Ok(0);
    }
    let mut trace = open(args, &inputs)?;
    let budget = Budget::new(args.max_memory);
    let settings = Settings { from: args.index_from, is_wanted: !args.no_index, is_told: args.verbose };
    let index = Index::of(&inputs, &trace, settings, budget);
    let keys = trace.info.keys();
    let units = keys.per_second();
    refuse_units(args, &trace)?;
    let window = match &args.time {
        Some(window) => {
            let last =
                if window.needs_last() { last_key(&trace, &inputs, index.as_ref(), args.quiet)? } else { u64::MAX };
            Some((*window, units, last))
        }
        None => None,
    };
    let begins = Cell::new(0);
    let window = |first| {
        begins.set(first);
        window.map_or((0, u64::MAX), |(window, units, last)| window.resolve_in(first, last, units))
    };
    let kallsyms = std::mem::take(&mut trace.side.kallsyms);
    let modules = std::mem::take(&mut trace.side.modules);
    let comms = std::mem::take(&mut trace.side.comms);
    // A relay channel's events do not tell their threads.
    let own_threads = trace.side.own_threads.take().filter(|_| trace.info.source != Some(Source::Relay));
    let needs_symbols =
        view != View::Summary && view != View::Events || !args.select.is_all() || args.format == Format::Table;
    let symbols = if needs_symbols { Symbols::new(&kallsyms, &modules) } else { Symbols::default() };
    let filter = Selected::new(&args.select, &symbols, &comms);
    if view == View::Events {
        let (status, order) = events(args, &inputs, &mut trace, index, &comms, filter, window)?;
        tell_empty_window(args, &order, begins.get(), units);
        return Ok(status);
    }
    let mut asked = Question {
        grouping: match view {
            View::Caches => Grouping::Cache,
            View::Summary if args.format != Format::Table => Grouping::Kind,
            _ => Grouping::Site,
        },
        matrix: view == View::Cross,
        lists_live: view == View::Live,
        shows_own: args.own && own_threads.is_some(),
    };
    let is_whole = filter.is_none() && args.time.is_none();
    if is_whole && index.as_ref().is_some_and(|index| index.lacks(asked)) {
        asked = asked.with_more();
    }
    let rules = Rules {
        kfree_takes_all: trace.info.kernel.as_deref().is_none_or(kfree_takes_all),
        cpus: Vec::new(),
        nodes: every_node(&trace),
        agreement: keys.agreement,
        by_site: asked.grouping == Grouping::Site,
        matrix: asked.matrix,
        lists_live: asked.lists_live,
    };
    let on_terminal = args.output.is_none() && io::stdout().is_terminal();
    let top = args.top.or((args.format == Format::Table && on_terminal).then_some(ROWS_ON_TERMINAL));
    let job = Job {
        rules,
        grouping: asked.grouping,
        crew: crew_size(args),
        budget,
        is_quiet: args.quiet,
        is_told: args.verbose,
    };
    let pass = Pass { trace: &mut trace, inputs: &inputs, index, job, asked };
    let own = own_threads.as_deref().filter(|threads| !threads.is_empty()).map(OwnThreads::new);
    let asked_window = args.time.is_some().then_some(window);
    let (order, paired, mut completeness) = analyse(pass, filter, own, args.own, asked_window)?;
    tell_empty_window(args, &order, begins.get(), units);
    completeness.inferred_frees = paired.counts.all_inferred;
    completeness.frees_without_alloc = paired.counts.all_without_alloc;
    budget.check_sorted(paired.rows.len() + paired.findings.len() + paired.counts.matrix.len(), order.events)?;
    let naming = Naming { symbols: &symbols, names: &trace.names, comms: &comms };
    let narrow = Narrow::new(keys.agreement);
    let body = match view {
        View::Summary => {
            let members = reports::summary::summary(&paired, own_threads.is_some(), &order, &narrow);
            let mut body = Document::new(members, reports::summary::rows(&paired, &narrow));
            if args.format == Format::Table {
                body.top_sites = reports::sites::sites(&paired, &naming, &args.sort, Some(5), &narrow).rows;
            }
            body
        }
        View::Sites => reports::sites::sites(&paired, &naming, &args.sort, top, &narrow),
        View::Caches => reports::caches::caches(&paired, &naming, &args.sort, top, &narrow),
        View::Mismatch => reports::mismatch::mismatch(&paired, &naming, top),
        View::Live => reports::live::live(&paired, &naming, top, &narrow),
        View::Cross => reports::cross::cross(&paired, &naming, &trace.info.cpus, top, &narrow),
        View::Events => Document::new(Map::new(), Rows::none()),
    };
    let mut members = reports::head(view.name(), &completeness, &trace.info, own_threads.as_deref(), &order, &narrow);
    members.extend(body.members);
    print(args, view, &inputs[0], &Document { members, ..body })?;
    Ok(status(args, &completeness))
}

/// Runs the pass with the filters that are asked for, and no others: each is compiled on its own.
fn analyse(
    pass: Pass<'_>,
    filter: Option<Selected<'_>>,
    own: Option<OwnThreads<'_>>,
    shows_own: bool,
    window: Option<impl FnOnce(u64) -> (u64, u64) + Copy>,
) -> anyhow::Result<(Order, Paired, Completeness)> {
    match (filter, own) {
        (None, None) => pass.run(&All, false, window),
        (None, Some(own)) => pass.run(&ButOwn { filter: All, own, shows_own }, false, window),
        (Some(filter), None) => pass.run(&filter, true, window),
        (Some(filter), Some(own)) => pass.run(&ButOwn { filter, own, shows_own }, true, window),
    }
}

fn open(args: &Args, inputs: &[PathBuf]) -> anyhow::Result<Trace> {
    let opened = Trace::open(inputs).map_err(anyhow::Error::from);
    opened.map_err(|error| match args.hint() {
        Some(hint) => error.context(hint),
        None => error,
    })
}

/// A trace whose keys are no times has no seconds that `--time` could mean.
fn refuse_units(args: &Args, trace: &Trace) -> anyhow::Result<()> {
    let has_units = args.time.is_some_and(|window| window.has_units);
    if !has_units || trace.info.keys().unit == Unit::Nanoseconds {
        return Ok(());
    }
    let clock = trace.info.clock.as_deref().unwrap_or("none");
    bail!(
        "--time: this trace's clock ({clock}) counts no seconds: give ticks or numbers, as +601, or percent, without a unit"
    );
}

/// The threads that are asked for, or as many as there are CPUs.
fn threads(args: &Args) -> usize {
    args.jobs.or_else(|| std::thread::available_parallelism().ok()).map_or(1, NonZero::get)
}

fn crew_size(args: &Args) -> CrewSize {
    let threads = threads(args);
    let mut size = CrewSize::of_threads(u32::try_from(threads).unwrap_or(u32::MAX));
    size.window = args.window_events.unwrap_or(size.window);
    size.sized_classes = args.sized_classes.unwrap_or(size.sized_classes);
    size
}

fn status(args: &Args, completeness: &Completeness) -> u8 {
    if args.strict && completeness.verdict != Verdict::Complete {
        let _ = writeln!(io::stderr(), "kmemtrace-report: the trace is {}", completeness.verdict_name());
        return NO_TRACE;
    }
    0
}

fn events(
    args: &Args,
    inputs: &[PathBuf],
    trace: &mut Trace,
    mut index: Option<Index>,
    comms: &HashMap<i32, Box<[u8]>>,
    filter: Option<Selected<'_>>,
    window: impl FnOnce(u64) -> (u64, u64) + Copy,
) -> anyhow::Result<(u8, Order)> {
    let mut out = Output::open(args.output.as_deref(), args.force)?;
    // Not between the lines, which may go to a terminal through whatever reads them.
    let is_quiet = args.quiet || !out.is_file;
    let mut lines = reports::events::Lines {
        out: &mut out,
        comms,
        filter,
        error: None,
        gaps: BinaryHeap::new(),
        buffer: Vec::new(),
    };
    let narrow = |index: &mut Index, trace: &mut Trace| index.narrow(trace, window);
    let mut narrowed = index.as_mut().filter(|_| args.time.is_some()).and_then(|index| narrow(index, trace));
    if let Some(index) = index.as_mut().filter(|_| narrowed.is_some()) {
        // No line can be taken back, so all is read once before the first of them.
        pipeline::last_key(trace, args.quiet);
        let is_good = index.was_good(trace);
        *trace = Trace::open(inputs)?;
        narrowed = if is_good { narrow(index, trace) } else { None };
    }
    if let Some(index) = index.as_ref().filter(|_| narrowed.is_none()) {
        index.prepare(trace);
    }
    let first = narrowed.as_ref().map(|narrowed| narrowed.first);
    let bounds = |first| narrowed.as_ref().map_or_else(|| window(first), |narrowed| narrowed.bounds);
    let order = pipeline::in_order(trace, first, bounds, is_quiet, |window, first, names| {
        lines.window(window, first, names);
        lines.error.is_none()
    });
    if trace.dropped_beyond(order.missing) > 0 {
        lines.gap_on_every_cpu(&trace.info.cpus, (order.first.unwrap_or(0), order.last.unwrap_or(0)));
    }
    lines.finish(order.last.unwrap_or(0));
    let written = lines.error.take().map_or(Ok(()), Err);
    out.finish(written)?;
    let completeness = match narrowed {
        Some(narrowed) => narrowed.completeness,
        None => {
            let completeness = Completeness::of(trace, &order);
            if let Some(index) = &index {
                index.keep(trace, &completeness, None);
            }
            completeness
        }
    };
    let lost = completeness.lost_events.map_or("an unknown number of".to_owned(), |n| n.to_string());
    let verdict = completeness.verdict_name();
    let _ = writeln!(io::stderr(), "{verdict}: {} events, {lost} lost, {} gaps", order.events, completeness.gaps);
    Ok((status(args, &completeness), order))
}

/// Says why there is nothing to see where `--time` has no event: the trace's clock is not the wall's.
fn tell_empty_window(args: &Args, order: &Order, begins: u64, units: u64) {
    if args.time.is_some() && order.events == 0 {
        let begins = if units == 1 { begins.to_string() } else { (begins as f64 / units as f64).to_string() };
        let _ = writeln!(
            io::stderr(),
            "kmemtrace-report: --time: no event is in there; the first one of the trace is at {begins}"
        );
    }
}

/// Key of the last event: from the end blocks of finished files, or the index, else by a pass of its own over the trace.
fn last_key(trace: &Trace, inputs: &[PathBuf], index: Option<&Index>, is_quiet: bool) -> anyhow::Result<u64> {
    // A clock that may go back has its last time not always at the end.
    if trace.info.order == OrderKey::Time && trace.info.clock.as_deref().is_some_and(|clock| clock != "local") {
        let ends = trace.streams.iter().map(|stream| end_block::of(&regular::open(stream.path()).ok()?).ok()?);
        if let Some(ends) = ends.collect::<Option<Vec<End>>>() {
            return Ok(ends.iter().filter(|end| end.events.get() > 0).map(|end| end.last.get()).max().unwrap_or(0));
        }
    }
    if let Some(last) = index.and_then(Index::last_key) {
        return Ok(last);
    }
    Ok(pipeline::last_key(&mut Trace::open(inputs)?, is_quiet))
}

/// Whether `kfree` frees objects of any cache: from Linux 6.4 on (`Documentation/core-api/memory-allocation.rst`).
fn kfree_takes_all(release: &str) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|n| n.parse::<u32>().ok());
    match (numbers.next().flatten(), numbers.next().flatten()) {
        (Some(major), Some(minor)) => (major, minor) >= (6, 4),
        _ => true,
    }
}

/// The node of each CPU, if the trace has that of all.
fn every_node(trace: &Trace) -> Option<HashMap<u32, u32>> {
    let nodes = &trace.side.nodes;
    (!nodes.is_empty() && trace.info.cpus.iter().all(|cpu| nodes.contains_key(cpu))).then(|| nodes.clone())
}

fn print(args: &Args, view: View, input: &Path, document: &Document<'_>) -> anyhow::Result<()> {
    let mut out = Output::open(args.output.as_deref(), args.force)?;
    let written = match args.format {
        Format::Json => render::json::json(document, &mut out),
        Format::Jsonl => render::jsonl::jsonl(view.name(), document, &mut out),
        Format::Csv => render::csv::csv(document, &mut out),
        Format::Table => {
            let options = render::table::TableOptions {
                bytes: args.bytes,
                show_addresses: args.show_addresses,
                shows_own: args.own,
                is_filtered: !args.select.is_all(),
                title: escape(input.as_os_str().as_encoded_bytes()).into_owned(),
            };
            render::table::table(view.name(), document, &options, &mut out)
        }
    };
    out.finish(written)
}
