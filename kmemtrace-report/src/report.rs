//! Runs a view: opens the trace, asks the query, prints the document, and finds the exit status.

use std::collections::BTreeSet;
use std::io::{self, IsTerminal, Write};
use std::num::NonZero;
use std::path::{Path, PathBuf};

use kmemtrace::documents::group::AllocinfoAgreement;
use kmemtrace::documents::{self, Body, Document};
use kmemtrace::{
    Analysis, AnalysisError, Completeness, Figure, GroupKey, ModuleRule, Moment, Notes, Observed, Query, Select, Shape,
    SortKey, Space, TimeWindow, Trace,
};
use kmemtrace_abi::event::Kind;
use kmemtrace_abi::fault::Verdict;
use kmemtrace_abi::open::{OpenOptions, Wanted, is_being_recorded};
use kmemtrace_abi::stream::CpuStream;
use kmemtrace_abi::text::escape::escape;
use kmemtrace_abi::trace::{FTRACE_TEXT, InputKind, PERF_DATA};

use crate::args::{Args, ExportTo, Format, SortBy};
use crate::cli::Request;
use crate::of_text::{self, input_name};
use crate::render::event_output::{EventOutput, Limited};
use crate::render::jsonl::LineWriter;
use crate::render::table::Below;
use crate::render::table::events::{EventLabels, EventTable};
use crate::render::table::options::{TableOptions, TellsCgroups};
use crate::render::{csv, json, jsonl, table};
use crate::terminal::messages::say;
use crate::terminal::output::Output;
use crate::terminal::progress::ProgressLine;
use crate::terminal::screen::Screen;
use crate::{exit, fitted, gate, names, suggest, told};

/// Views that take a saved document in place of a trace.
const OF_DOCUMENTS: [&str; 5] = ["sites", "tree", "account", "html", "chart"];
/// View of the calls that the tracer function_graph timed.
const FUNCTIONS: &str = "functions";
/// Views of counts and sums.
const OF_SUMS: [&str; 8] = ["summary", "sites", "tasks", "modules", "uses", "tree", "compare", "account"];
/// Rows of each table below that of `caches --cache`.
const ROWS_BELOW: usize = 10;

/// Prints the document of a view.
pub(crate) fn view(
    request: &Request,
    query: Query,
    document: for<'a> fn(&'a Analysis, &Shape, &Args) -> Document<'a>,
) -> anyhow::Result<u8> {
    check_tree(request)?;
    gate::check(request)?;
    if let Some(saved) = saved_document(request)? {
        let analysis = of_document(request, query, &saved)?;
        return print_view(request, &analysis, (&[], Beside::default()), document);
    }
    let mut trace = open(request, &request.inputs())?;
    if request.view.name == "growth" && !trace.series.is_empty() {
        return growth_of_texts(request, &query, trace);
    }
    let shows_leaks = shows_leaks(request, &trace);
    if shows_leaks && request.asked.filters.is_empty() {
        match analyse_trace(request, Query::leaks(&[]), &mut trace) {
            Ok((found, suggestions)) => {
                let status = print_with_leaks(request, (&found, &found), Beside::of(&trace))?;
                suggestions.iter().for_each(|line| say(line));
                return Ok(status);
            }
            // Rows of threads need more memory than call-sites alone.
            Err(error) if is_of_memory(&error) => trace = open(request, &request.inputs())?,
            Err(error) => return Err(error),
        }
    }
    let (analysis, suggestions) = analyse_trace(request, query, &mut trace)?;
    let beside = Beside::of(&trace);
    let below = objects_of_caches(request)?;
    let is_filtered = !request.asked.filters.is_empty();
    let found = if shows_leaks && is_filtered { leaks_beside(request) } else { None };
    let status = match found {
        Some(found) => print_with_leaks(request, (&analysis, &found), beside)?,
        None => print_view(request, &analysis, (&below, beside), document)?,
    };
    suggestions.iter().for_each(|line| say(line));
    Ok(status)
}

/// True for the screen of `summary`, which has the leaks of inputs that tell frees and can be read again.
fn shows_leaks(request: &Request, trace: &Trace) -> bool {
    let is_asked = request.view.name == "summary" && request.format() == Format::Table;
    is_asked && trace.info.capabilities.past && request.inputs().iter().all(|path| path.is_dir() || path.is_file())
}

/// Prints `summary` with leaks: `analysis` has the objects that the filters take, `found` all of them.
fn print_with_leaks(
    request: &Request,
    (analysis, found): (&Analysis, &Analysis),
    beside: Beside,
) -> anyhow::Result<u8> {
    print_document(request, analysis, (&[], beside), |shape| documents::summary_with_leaks(analysis, found, shape))
}

/// Leaks beside a summary with filters, which choose among them after all objects are counted; `None` where the memory limit is in the
/// way.
fn leaks_beside(request: &Request) -> Option<Analysis> {
    let mut trace = open(request, &request.inputs()).ok()?;
    let query = with_options(request, Query::leaks(&[])).ok()?;
    query.run_with(&mut trace, &mut ProgressLine::new(request.args.quiet)).ok()
}

fn is_of_memory(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(AnalysisError::Memory { .. }))
}

/// Answer of the trace to a query with the options of the command line, and suggestions where the filters take nothing.
pub(crate) fn analyse(request: &Request, query: Query) -> anyhow::Result<(Analysis, Vec<String>)> {
    analyse_trace(request, query, &mut open(request, &request.inputs())?)
}

/// [`analyse`] of a trace that was opened.
fn analyse_trace(request: &Request, query: Query, trace: &mut Trace) -> anyhow::Result<(Analysis, Vec<String>)> {
    let args = &request.args;
    let event_names = trace.names.len();
    let query = with_options(request, query)?;
    let analysis = query.run_with(trace, &mut ProgressLine::new(args.quiet))?;
    let window = match args.at {
        Some(Moment::Until(window)) => ("--at", Some(window)),
        _ => ("--time", args.time),
    };
    told::empty_window(window, trace, analysis.events(), analysis.first_key());
    told::unknown_events(analysis.unknown_events());
    told::bad_text(trace);
    told::warnings(trace);
    let takes_none = analysis.rows().next().is_none();
    let mut suggestions = Vec::new();
    // Leaks are chosen after all objects are counted: rows do not tell whether the filters take any.
    if takes_none || request.view.name == "leaks" {
        suggestions = suggest::suggest(&args.filters, &query, trace, analysis.names(), event_names);
    }
    if takes_none {
        suggestions.extend(may_be_of_cache(request)?);
    }
    Ok((analysis, suggestions))
}

/// Tells which rows of caches may be of the cache that `--cache` names, where no object is known to be of it: slabinfo has other caches
/// with objects of that size.
fn may_be_of_cache(request: &Request) -> anyhow::Result<Vec<String>> {
    let args = &request.args;
    let mut trace = open(request, &request.inputs())?;
    let asked: Vec<_> = args.filters.cache.iter().filter(|glob| suggest::has_cache(glob, &trace)).collect();
    if asked.is_empty() {
        return Ok(Vec::new());
    }
    let aliases = trace.metadata.cache_aliases.clone();
    let select = Select { cache: Vec::new(), ..args.filters.select() };
    let query = with_options(request, Query::by_cache())?.select(select);
    let analysis = query.run_with(&mut trace, &mut ProgressLine::new(args.quiet))?;
    let document =
        documents::caches(&analysis, &Shape { sort: vec![SortKey::Figure(Figure::LiveAllocated)], top: None });
    let Body::Caches(view) = &document.body else { return Ok(Vec::new()) };
    let of_glob = |glob: &&kmemtrace::Glob| suggest::may_be_of(glob, &aliases, view.listing.rows.iter());
    Ok(asked.iter().flat_map(of_glob).collect())
}

/// Analyses below the table of `caches --cache`, each with its title: call-sites, threads and stacks of the objects of these caches.
fn objects_of_caches(request: &Request) -> anyhow::Result<Vec<(&'static str, Analysis)>> {
    let args = &request.args;
    if request.view.name != "caches" || args.filters.cache.is_empty() || request.format() != Format::Table {
        return Ok(Vec::new());
    }
    let mut below = Vec::new();
    for (title, key) in [("Call sites", GroupKey::Site), ("Tasks", GroupKey::Task), ("Stacks", GroupKey::Stack)] {
        let mut trace = open(request, &request.inputs())?;
        if key == GroupKey::Stack && !trace.may_have_stacks() {
            continue;
        }
        let query = with_options(request, Query::by(&[key]))?;
        let analysis = query.run_with(&mut trace, &mut ProgressLine::new(args.quiet))?;
        if analysis.rows().next().is_some() {
            below.push((title, analysis));
        }
    }
    Ok(below)
}

/// Requests for stacks that the recorder makes by itself.
const STACKS_UNASKED: [&str; 3] = ["trigger vmalloc", "trigger percpu", "trigger begin"];

/// Facts of a trace that tables tell, and documents do not.
#[derive(Clone, Copy, Default)]
struct Beside {
    has_stacks: bool,
    /// Events of reclaim were recorded.
    has_reclaim: bool,
    /// Number of caches whose objects have red zones.
    red_zones: usize,
    cgroups: TellsCgroups,
}

impl Beside {
    fn of(trace: &Trace) -> Beside {
        let red_zones = trace.metadata.red_zones.split(|&byte| byte == b'\n').filter(|name| !name.is_empty()).count();
        let asked = trace.metadata.stacks.as_deref();
        // Without a request the recorder gets stacks of areas alone, whose call-site nothing else tells.
        let is_asked = asked.is_some_and(|asked| asked.lines().any(|line| !STACKS_UNASKED.contains(&line)));
        let may_have = trace.info.input != InputKind::Kmemtrace || is_asked;
        let has_reclaim = trace.records_reclaim();
        let has_stacks = may_have && trace.may_have_stacks();
        Beside { has_stacks, has_reclaim, red_zones, cgroups: TellsCgroups::of(trace) }
    }
}

/// Prints the document of an analysis, with those below it, and finds the exit status; `beside` has those, and facts of the trace.
fn print_view(
    request: &Request,
    analysis: &Analysis,
    beside: (&[(&'static str, Analysis)], Beside),
    document: for<'a> fn(&'a Analysis, &Shape, &Args) -> Document<'a>,
) -> anyhow::Result<u8> {
    print_document(request, analysis, beside, |shape| document(analysis, shape, &request.args))
}

/// Prints the document that `make` makes of an analysis, and finds the exit status.
fn print_document<'a>(
    request: &Request,
    analysis: &'a Analysis,
    (below, Beside { has_stacks, has_reclaim, red_zones, cgroups }): (&[(&'static str, Analysis)], Beside),
    make: impl Fn(&Shape) -> Document<'a>,
) -> anyhow::Result<u8> {
    let args = &request.args;
    check_branches(args, &analysis.source_paths())?;
    told::rejected(&analysis.names_report());
    check_static(request, analysis)?;
    // The table of `mismatch` counts the classes of all rows, and limits those that it lists.
    let is_counted = request.format() == Format::Table && request.view.name == "mismatch";
    let text = analysis.info().text.as_ref();
    let sort = if text.is_some() { request.sort_keys_of_text() } else { request.sort_keys() };
    let ranked = sort.first().copied();
    // Filters of leaks choose rows, not allocations.
    let counts_selected = request.view.name != "leaks";
    let selected = counts_selected.then(|| (analysis.selected_allocations(), analysis.allocations()));
    let allocinfo = AllocinfoAgreement::of(analysis);
    let options = TableOptions {
        selected,
        allocinfo,
        ranked,
        has_stacks: has_stacks || text.is_some_and(|text| text.has_stacks),
        has_reclaim,
        red_zones,
        cgroups,
        missing: told::not_recorded(analysis, &args.filters.kind),
        lacks_pages: told::lacks(analysis, Kind::Pages),
        ..table_options(request, &request.inputs()[0])
    };
    let shaped = |top: Option<usize>| make(&Shape { sort: sort.clone(), top: if is_counted { None } else { top } });
    let below = |top: Option<usize>| -> Vec<Below<'_>> {
        let rows = top.map_or(ROWS_BELOW, |top| top.min(ROWS_BELOW));
        let shape = Shape { sort: vec![SortKey::Figure(Figure::LiveAllocated)], top: Some(rows) };
        below.iter().map(|(title, analysis)| (*title, documents::sites(analysis, &shape))).collect()
    };
    let top = fitted::rows(request, &options.screen, |top, out| {
        let options = TableOptions { top, ..options.clone() };
        Ok(write_table(&shaped(top), &below(top), &options, out)?)
    })?;
    let document = shaped(top);
    print_with(request, &document, &below(top), &TableOptions { top, ..options })?;
    if let (Body::Account(_), Format::Table) = (&document.body, request.format()) {
        // The text has no place for its kinds.
        let space = analysis.shown_space();
        if args.filters.kind.is_empty() && space != Space::Slab {
            say(&format!("{0} alone are there, so these are callers of {0}", space.name()));
        }
        told::verdict(analysis.completeness());
    }
    let gate = match &document.body {
        Body::Leaks(view) => gate::leaks(args, view, told::not_recorded(analysis, &args.filters.kind)),
        _ => gate::findings(args, analysis),
    };
    Ok(status(args, analysis.completeness()).max(gate))
}

/// Path of the saved document that is named in place of a trace; `None` for a trace.
///
/// # Errors
/// A view that needs more than a document has.
pub(crate) fn saved_document(request: &Request) -> anyhow::Result<Option<PathBuf>> {
    let inputs = request.inputs();
    let Some(path) = inputs.first().filter(|path| documents::saved::is_document(path)) else { return Ok(None) };
    let path_name = path.display();
    if inputs.len() > 1 {
        anyhow::bail!("{path_name}: a saved document is named alone");
    }
    let names = &request.args.names;
    let given = [
        ("--vmlinux", names.vmlinux.is_some()),
        ("--debug-dir", !names.debug_dir.is_empty()),
        ("--names", names.map.is_some()),
        ("--kallsyms", names.kallsyms.is_some()),
        ("--proc-modules", names.proc_modules.is_some()),
        ("--wrappers", names.wrappers.is_some()),
    ];
    if let Some((option, _)) = given.into_iter().find(|(_, is_given)| *is_given) {
        anyhow::bail!("{path_name}: a saved document keeps its names: give {option} where it is saved");
    }
    if let Some(tree) = &names.kernel {
        let tree = escape(tree.as_os_str().as_encoded_bytes());
        say(&format!("{tree}: static sizes are taken as they are: a saved document cannot check the tree"));
    }
    if request.args.sort.iter().any(is_by_time) {
        anyhow::bail!("{path_name}: a saved document has no times to sort by: name the text of page_owner");
    }
    let view = request.view.name;
    if view == "tree" && request.args.sort.contains(&SortBy::figure(Figure::PeakLiveAllocated)) {
        anyhow::bail!(
            "{path_name}: a saved document has peaks of call-sites, and none of folders: name the trace itself"
        );
    }
    if !OF_DOCUMENTS.contains(&view) {
        anyhow::bail!("{path_name}: {view} needs a trace; {} take a saved document, too", OF_DOCUMENTS.join(", "));
    }
    Ok(Some(path.clone()))
}

/// Answer of a saved document to a query with the options of the command line.
#[cfg(feature = "full")]
fn of_document(request: &Request, query: Query, saved: &Path) -> anyhow::Result<Analysis> {
    Ok(with_options(request, query)?.of_document(saved)?)
}

/// Refuses a saved document.
#[cfg(not(feature = "full"))]
fn of_document(_: &Request, _: Query, saved: &Path) -> anyhow::Result<Analysis> {
    let path = escape(saved.as_os_str().as_encoded_bytes());
    anyhow::bail!("{path}: a saved document: {}", crate::terminal::messages::SMALL)
}

/// Prints the comparison of two traces, or of two windows of one.
pub(crate) fn compare(request: &Request) -> anyhow::Result<u8> {
    let (args, inputs) = (&request.args, request.inputs());
    let analyse = |input: &PathBuf, option: &str, window: Option<TimeWindow>| -> anyhow::Result<Analysis> {
        let mut trace = open(request, std::slice::from_ref(input))?;
        let query = of_text::compared(args, &trace);
        let query = with_options(request, query)?.time(window.or(args.time));
        let mut progress = ProgressLine::new(args.quiet);
        let analysis = match window {
            Some(_) => query.run_carried_with(&mut trace, &mut progress)?,
            None => query.run_with(&mut trace, &mut progress)?,
        };
        let asked = if window.is_some() { (option, window) } else { ("--time", args.time) };
        told::empty_window(asked, &trace, analysis.events(), analysis.first_key());
        Ok(analysis)
    };
    let (first, last) = (&inputs[0], &inputs[inputs.len() - 1]);
    let (before, after) = (analyse(first, "--before", args.before)?, analyse(last, "--after", args.after)?);
    of_text::check_sides(&before, &after)?;
    let is_one_trace = first == last;
    sides_of(&before, &after, is_one_trace).for_each(|side| told::unknown_events(side.unknown_events()));
    sides_of(&before, &after, is_one_trace).for_each(|side| told::rejected(&side.names_report()));
    check_branches(args, &before.source_paths().into_iter().chain(after.source_paths()).collect())?;
    let make = |top| Ok(documents::compare(&before, &after, &Shape { sort: Vec::new(), top })?);
    let title_before = (!is_one_trace).then(|| escape(first.as_os_str().as_encoded_bytes()).into_owned());
    let document = print_fitted(request, &TableOptions { title_before, ..table_options(request, last) }, make)?;
    let worse = before.completeness().verdict.max(after.completeness().verdict);
    if args.strict && worse != Verdict::Complete {
        say("--strict: a trace is not complete; kmemtrace-check shows what is missing");
        return Ok(exit::BAD_TRACE);
    }
    let Body::Compare(compared) = &document.body else { return Ok(exit::OK) };
    match args.fail_over {
        Some(percent) if compared.grew_over(percent) => {
            say(&format!("--fail-over: live bytes grew by more than {percent}%"));
            Ok(exit::GATE)
        }
        _ => {
            gate::tell_blind_growth(args, [&before, &after]);
            Ok(exit::OK)
        }
    }
}

/// Prints the growth of a series of texts.
///
/// # Errors
/// Those of each text's analysis, and of the output.
fn growth_of_texts(request: &Request, query: &Query, mut last: Trace) -> anyhow::Result<u8> {
    let args = &request.args;
    let query = of_text::rows(args, &last, query.clone().with_growth(false));
    let query = with_options(request, query)?;
    let mut texts = std::mem::take(&mut last.series);
    texts.push(last);
    let mut slices = Vec::new();
    for text in &mut texts {
        slices.push(query.run_with(text, &mut ProgressLine::new(args.quiet))?);
        told::bad_text(text);
    }
    let slices: Vec<&Analysis> = slices.iter().collect();
    print_fitted(request, &table_options(request, &request.inputs()[0]), |top| {
        let shape = Shape { sort: Vec::new(), top };
        documents::growth_of_texts(&slices, &shape).ok_or_else(|| anyhow::anyhow!("growth: no text"))
    })?;
    let worst = slices.iter().map(|slice| slice.completeness()).max_by_key(|completeness| completeness.verdict);
    Ok(worst.map_or(exit::OK, |worst| status(args, worst)))
}

/// Prints events and gaps, one by one; in the format of the command line where none is given.
pub(crate) fn events(request: &Request, format: Option<Format>) -> anyhow::Result<u8> {
    let (args, inputs) = (&request.args, request.inputs());
    let mut trace = open(request, &inputs)?;
    let event_names = trace.names.len();
    // A pass of its own finds cgroups: views of events begin without one.
    let with_owners = args.to.is_some();
    let query = with_options(request, Query::by_kind())?.with_owners(with_owners);
    query.check_window(&trace)?;
    let on_terminal = args.output.is_none() && io::stdout().is_terminal();
    let format = format.or(args.format).unwrap_or(if on_terminal { Format::Table } else { Format::Jsonl });
    let options = table_options(request, &inputs[0]);
    // The table names call-sites before the pass takes the symbols out of the trace.
    query.load_symbols(&mut trace, &mut ProgressLine::new(args.quiet))?;
    let names = match format {
        Format::Table => EventLabels::of(&trace),
        _ => EventLabels::default(),
    };
    let mut out = Output::open(args.output.as_deref(), args.force)?;
    // Lines may reach a terminal through a pipe, where a progress line would mix with them.
    let mut progress = ProgressLine::new(args.quiet || !out.is_file);
    let lines: Box<dyn EventOutput> = match format {
        Format::Table => Box::new(EventTable::new(trace.info.keys(), &names, &options, &mut out)),
        Format::Csv => Box::new(csv::EventRows::new(&mut out, with_owners)?),
        Format::Json | Format::Jsonl => Box::new(LineWriter::new(&mut out)),
    };
    let mut lines = Limited::new(lines, args.top);
    let mut observed = query.observe_with(&mut trace, &mut lines, &mut progress)?;
    if let Some(why) = names.left_out() {
        observed.names.leave_out_symbols(args.names.kallsyms.as_deref(), why);
    }
    let is_empty = lines.is_empty();
    check_branches(args, &observed.source_paths)?;
    let written = lines.finish();
    out.finish(written)?;
    Ok(end_observed(request, &trace, &observed, !is_empty, event_names))
}

/// Tells verdict, counts and unknown events of a pass over events or objects, suggests filters where there was nothing, and finds
/// the exit status.
pub(crate) fn end_observed(
    request: &Request,
    trace: &Trace,
    observed: &Observed,
    has_rows: bool,
    event_names: usize,
) -> u8 {
    let (args, completeness) = (&request.args, &observed.completeness);
    told::rejected(&observed.names);
    told::counts(completeness, observed.events);
    told::unknown_events(&completeness.unknown);
    told::bad_text(trace);
    let status = status(args, completeness);
    told::empty_window(("--time", args.time), trace, observed.events, observed.first_key);
    if !has_rows {
        // Options that made this pass are good for another query.
        let lines = with_options(request, Query::by_kind())
            .map(|query| suggest::suggest(&args.filters, &query, trace, &trace.names, event_names));
        lines.iter().flatten().for_each(|line| say(line));
    }
    status
}

/// Query with the options that every view has.
pub(crate) fn with_options(request: &Request, query: Query) -> anyhow::Result<Query> {
    let args = &request.args;
    // Without --time the window of --at stays.
    let query = if args.time.is_some() { query.time(args.time) } else { query };
    let mut query = query
        .given(request.asked.filters.clone())
        .select(args.filters.select())
        .names(names::options(args)?)
        .with_own(args.own)
        .threads(threads(args))
        .max_memory(args.max_memory)
        .cut(args.window_events, args.sized_classes);
    if !args.no_index {
        query = query.index(args.index_from);
    }
    Ok(if args.verbose { query.notes(Notes::to(say)) } else { query })
}

/// Options of opening with what a text of events does not tell.
pub(crate) fn text_options(args: &Args) -> OpenOptions {
    OpenOptions {
        release: args.of_text.release.clone(),
        clock: args.of_text.clock.clone(),
        page_bytes: args.of_text.page_size,
        buffer: args.of_text.buffer.clone(),
        event_formats: args.of_text.event_formats.clone(),
        ..OpenOptions::default()
    }
}

pub(crate) fn open(request: &Request, inputs: &[PathBuf]) -> anyhow::Result<Trace> {
    let args = &request.args;
    let options = OpenOptions {
        released: args.released,
        alike: is_of_sums(request),
        without_threads: !of_text::asks_threads(request),
        without_stacks: !of_text::asks_stacks(request),
        at_free_before: args.sort.iter().any(is_of_free),
        form: args.moment.form.clone(),
        cache_name: args.moment.cache_name.clone(),
        object_size: args.moment.object_size,
        times: of_text::times(args)?,
        member: args.moment.member.clone(),
        report_number: args.moment.report_number,
        takes: of_text::takes(request.view),
        texts: args.to == Some(ExportTo::TraceDat),
        wanted: match request.view.name {
            "latency" | "stalls" | "shrinkers" => Wanted::Waits,
            FUNCTIONS => Wanted::Calls,
            _ => Wanted::Objects,
        },
        ..text_options(args)
    };
    let opened = Trace::open_with(inputs, options).map_err(anyhow::Error::from);
    let trace = opened.map_err(|error| match request.hint() {
        Some(hint) => error.context(hint),
        None => error,
    })?;
    of_text::check(request, &trace)?;
    check_page_owner(&request.args, &trace)?;
    check_text_options(request, &trace)?;
    Ok(trace)
}

/// Refuses options of texts that the trace does not take, and views of a text that has no times.
pub(crate) fn check_text_options(request: &Request, trace: &Trace) -> anyhow::Result<()> {
    let args = &request.args;
    let takes = |option: &&str| match trace.info.input {
        InputKind::Other(FTRACE_TEXT) => *option != "--event-formats",
        InputKind::Other(PERF_DATA) if args.of_text.event_formats.is_some() => {
            ["--event-formats", "--page-size"].contains(option)
        }
        // One that has a text in place of sub-buffers takes what texts take.
        InputKind::TraceDat if trace.streams.iter().any(CpuStream::has_several_cpus) => *option != "--event-formats",
        InputKind::TraceDat => ["--buffer", "--page-size"].contains(option),
        _ if trace.info.text.is_some() => *option == "--page-size",
        _ => false,
    };
    if !trace.info.capabilities.times && (request.view.name != FUNCTIONS || args.time.is_some()) {
        anyhow::bail!(
            "{}: the text has no times, so {FUNCTIONS} is the only view, without --time: write 1 to options/funcgraph-abstime, and read \
             `trace` again",
            input_name(trace)
        );
    }
    if let Some(option) = args.of_text.given().find(|option| !takes(option)) {
        let why = match option {
            "--buffer" => "has no ring buffers to choose from, as a trace.dat may have",
            "--event-formats" => "is no perf.data, and describes its events itself",
            _ => "is no text of events and tells this itself",
        };
        anyhow::bail!("{option}: {} {why}; leave the option out", input_name(trace));
    }
    Ok(())
}

/// True for an order by a time of blocks of page_owner.
fn is_by_time(sort: &SortBy) -> bool {
    matches!(sort.key(), Some(SortKey::Oldest { .. }))
}

/// True for the time at which the owner before gave a page back.
fn is_of_free(sort: &SortBy) -> bool {
    matches!(sort, SortBy::Freed { .. })
}

/// True where neither the time nor the address of an allocation changes the document.
fn is_of_sums(request: &Request) -> bool {
    let args = &request.args;
    let asks_times = [args.time, args.before, args.after].iter().any(Option::is_some) || args.at.is_some();
    OF_SUMS.contains(&request.view.name) && !asks_times
}

/// Refuses options that need a text of page_owner, for any other input, and an order by keys that rows are not made of.
fn check_page_owner(args: &Args, trace: &Trace) -> anyhow::Result<()> {
    let asked = [
        ("--cull", !args.cull.is_empty(), "--by groups rows of any trace"),
        ("--tgid", !args.filters.tgid.is_empty(), "--pid selects threads of any trace"),
        ("--released", args.released, "leave it out"),
    ];
    if trace.info.capabilities.past
        && let Some((option, _, remedy)) = asked.into_iter().find(|(_, is_given, _)| *is_given)
    {
        let input = input_name(trace);
        anyhow::bail!("{option}: {input} is not a text of page_owner, which alone has this; {remedy}");
    }
    let times: BTreeSet<bool> = args.sort.iter().filter(|sort| is_by_time(sort)).map(is_of_free).collect();
    if !times.is_empty() && trace.info.capabilities.past {
        anyhow::bail!("--sort alloc_ts and free_ts: for texts of page_owner alone; the view live has --sort time");
    }
    if times.len() > 1 || (times.contains(&true) && args.time.is_some()) {
        anyhow::bail!("--sort free_ts: not beside alloc_ts or --time, which go by the time of the allocation");
    }
    let keys = args.row_keys();
    let missing = args.sort.iter().find_map(|sort| match sort.key() {
        Some(SortKey::Key { key, .. }) if !keys.contains(&key) => Some(key),
        _ => None,
    });
    match missing {
        Some(key) => anyhow::bail!("--sort: rows are not made of {key}: name it with --cull, or with --by"),
        None => Ok(()),
    }
}

/// Number of threads: `--jobs`, else the number of CPUs.
pub(crate) fn threads(args: &Args) -> usize {
    args.jobs.or_else(|| std::thread::available_parallelism().ok()).map_or(1, NonZero::get)
}

pub(crate) fn status(args: &Args, completeness: &Completeness) -> u8 {
    if args.strict && completeness.verdict != Verdict::Complete {
        say(&format!("--strict: the trace is {}; kmemtrace-check shows what is missing", completeness.verdict_name()));
        return exit::BAD_TRACE;
    }
    exit::OK
}

/// Refuses a branch that holds no call-site of the trace: a mistyped folder would look like an empty one.
pub(crate) fn check_branches(args: &Args, paths: &BTreeSet<Box<[u8]>>) -> anyhow::Result<()> {
    for branch in &args.filters.branch {
        if !paths.iter().any(|path| branch.holds(path)) {
            anyhow::bail!("--branch {}", suggest::no_branch(&branch.to_string(), paths));
        }
    }
    Ok(())
}

/// Analyses to tell of: one where both are of one trace.
fn sides_of<'a>(before: &'a Analysis, after: &'a Analysis, is_one_trace: bool) -> impl Iterator<Item = &'a Analysis> {
    [before, after].into_iter().take(if is_one_trace { 1 } else { 2 })
}

/// Refuses options that a tree over folders, or one over keys, does not have.
pub(crate) fn check_tree(request: &Request) -> anyhow::Result<()> {
    let args = &request.args;
    if !["tree", "chart", "html"].contains(&request.view.name) {
        return Ok(());
    }
    let is_of_folders = |by: &GroupKey| [GroupKey::Folder, GroupKey::Area].contains(by);
    if args.by.len() > 1 && args.by.iter().any(is_of_folders) {
        anyhow::bail!("--by: folder and area make a tree of their own; name them alone");
    }
    if !args.is_key_tree() {
        let given = [("--module-rule", args.module_rule.is_some()), ("--uses", args.uses.is_some())];
        return match given.into_iter().find(|(_, is_given)| *is_given) {
            Some((option, _)) => {
                anyhow::bail!("{option}: not for a tree of folders; for one with --by stack, for example")
            }
            None => Ok(()),
        };
    }
    if args.rule_of_modules() == ModuleRule::Any {
        anyhow::bail!("--module-rule any: rows overlap, which a tree cannot show; the view modules can");
    }
    let kinds = &args.filters.kind;
    if kinds.first().is_some_and(|first| kinds.iter().any(|kind| kind.space() != first.space())) {
        anyhow::bail!("--kind: pages are never added to the objects that they hold; make a tree of each");
    }
    Ok(())
}

/// Refuses an order by static sizes where none are known.
pub(crate) fn check_static(request: &Request, analysis: &Analysis) -> anyhow::Result<()> {
    let is_asked = request.sort_keys().iter().any(|key| matches!(key, SortKey::Static | SortKey::Current));
    if is_asked && !analysis.has_static_sizes() {
        anyhow::bail!(
            "--sort: static sizes need a built tree or the kernel with debug information: name one with -k or --vmlinux"
        );
    }
    Ok(())
}

pub(crate) fn print(request: &Request, document: &Document<'_>, options: &TableOptions) -> anyhow::Result<()> {
    print_with(request, document, &[], options)
}

/// Prints a document; a table has those `below` it.
fn print_with(
    request: &Request,
    document: &Document<'_>,
    below: &[Below<'_>],
    options: &TableOptions,
) -> anyhow::Result<()> {
    let args = &request.args;
    let mut out = Output::open(args.output.as_deref(), args.force)?;
    let written = match request.format() {
        Format::Json => json::json(document, &mut out),
        Format::Jsonl => jsonl::jsonl(document, &mut out),
        Format::Csv => csv::csv(document, &mut out),
        Format::Table => write_table(document, below, options, &mut out),
    };
    out.finish(written)
}

/// Writes a table, with those `below` it.
fn write_table(
    document: &Document<'_>,
    below: &[Below<'_>],
    options: &TableOptions,
    out: &mut dyn Write,
) -> io::Result<()> {
    table::table(document, options, out)?;
    let ranked = Some(SortKey::Figure(Figure::LiveAllocated));
    table::below(document, below, &TableOptions { ranked, ..options.clone() }, out)
}

/// Prints the document that `make` makes with a limit of rows: with as many as fit where it is a table on a terminal.
pub(crate) fn print_fitted<'a>(
    request: &Request,
    options: &TableOptions,
    make: impl Fn(Option<usize>) -> anyhow::Result<Document<'a>>,
) -> anyhow::Result<Document<'a>> {
    let top = fitted::rows(request, &options.screen, |top, out| {
        Ok(table::table(&make(top)?, &TableOptions { top, ..options.clone() }, out)?)
    })?;
    let document = make(top)?;
    print(request, &document, &TableOptions { top, ..options.clone() })?;
    Ok(document)
}

pub(crate) fn table_options(request: &Request, input: &Path) -> TableOptions {
    let (args, asked) = (&request.args, &request.asked);
    let shown = |text: &String| escape(text.as_bytes()).into_owned();
    let filter = |(option, values): &(&'static str, Vec<String>)| {
        ((*option).to_owned(), values.iter().map(shown).collect::<Vec<_>>().join(","))
    };
    TableOptions {
        screen: Screen::of_output(args.output.is_some(), args.color, args.width),
        bytes: args.bytes,
        show_addresses: args.show_addresses,
        shows_own: args.own,
        shows_normal: args.all,
        shows_inlines: args.inlines,
        shows_parts: args.parts,
        top: fitted::top(request),
        selected: None,
        allocinfo: None,
        ranked: request.sort_keys().first().copied(),
        filters: asked.filters.iter().map(filter).collect(),
        time: asked.time.as_ref().map(shown),
        at: asked.at.as_ref().map(shown),
        title: escape(input.as_os_str().as_encoded_bytes()).into_owned(),
        title_before: None,
        is_default_input: args.words.is_empty(),
        more_inputs: args.words.len().saturating_sub(1),
        has_stacks: false,
        has_reclaim: false,
        red_zones: 0,
        cgroups: TellsCgroups::default(),
        is_being_recorded: is_being_recorded(input),
        missing: None,
        lacks_pages: false,
    }
}
