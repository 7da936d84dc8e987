//! `kmemtrace-report`: prints views of a kernel memory trace.
//!
//! Figures and documents come from the library `kmemtrace`. This program has the arguments, the table of views, the
//! terminal, and the renderers.

mod args;
mod classes;
mod cli;
mod pack;
mod render;
mod suggest;
mod terminal;
mod views;

use std::io::{self, IsTerminal, Write};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use kmemtrace::documents::Document;
use kmemtrace::{Analysis, AnalysisError, Completeness, Notes, Observer, OpenError, OrderedItem, Query, Shape, Trace};
use kmemtrace_abi::fault::Verdict;
use kmemtrace_abi::text::escape::escape;

use args::{Args, Format, GroupBy};
use cli::{CommandLine, Refusal, Request};
use render::jsonl::LineWriter;
use terminal::output::Output;
use terminal::progress::ProgressLine;
use views::{Run, View};

/// Exit statuses; `kmemtrace-check` uses the same names.
mod exit {
    /// A view was printed, whatever the verdict on the trace.
    pub(crate) const OK: u8 = 0;
    /// A gate fired: `--fail-on`, `--fail-over`.
    pub(crate) const GATE: u8 = 1;
    /// Wrong usage, unreadable input, an output that cannot be written, or more memory than `--max-memory`.
    pub(crate) const UNUSABLE: u8 = 2;
    /// No trace at all, or `--strict` and a verdict other than complete.
    pub(crate) const BAD_TRACE: u8 = 3;
}

/// Rows of a table on a terminal.
const ROWS_ON_TERMINAL: usize = 20;

fn main() -> ExitCode {
    let done = match cli::parse(std::env::args_os().collect()) {
        Ok(CommandLine::Request(request)) => run(&request),
        Ok(CommandLine::Text(text)) => write_text(&text),
        Err(Refusal::Clap(error)) => error.exit(),
        Err(Refusal::Line(line)) => Err(anyhow::anyhow!(line)),
    };
    match done {
        Ok(status) => ExitCode::from(status),
        Err(error) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            say(&escape(format!("{error:#}").as_bytes()));
            ExitCode::from(if is_no_trace(&error) { exit::BAD_TRACE } else { exit::UNUSABLE })
        }
    }
}

fn write_text(text: &str) -> anyhow::Result<u8> {
    let mut out = io::stdout();
    out.write_all(text.as_bytes()).and_then(|()| out.flush())?;
    Ok(exit::OK)
}

fn say(text: &str) {
    let _ = writeln!(io::stderr(), "kmemtrace-report: {text}");
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
}

fn is_no_trace(error: &anyhow::Error) -> bool {
    let open = error.downcast_ref::<OpenError>().or_else(|| match error.downcast_ref::<AnalysisError>() {
        Some(AnalysisError::Open(error)) => Some(error),
        _ => None,
    });
    open.is_some_and(OpenError::is_no_trace)
}

fn run(request: &Request) -> anyhow::Result<u8> {
    let args = &request.args;
    refuse_unconnected(args, request.view)?;
    match request.view.run {
        Run::Document { query, document } => print_view(request, query(request.format()), document),
        Run::Events => print_events(request),
        Run::Compare | Run::Growth => anyhow::bail!("{}: there is no such view yet", request.view.name),
        Run::Pack => {
            let level = args.level.unwrap_or(pack::LEVEL);
            let how = pack::How { level, takes_unfinished: args.force, threads: threads(args), is_quiet: args.quiet };
            pack::pack(&request.inputs(), how)?;
            Ok(exit::OK)
        }
    }
}

/// Refuses options that no engine answers yet.
fn refuse_unconnected(args: &Args, view: &View) -> anyhow::Result<()> {
    let is_grouped = args.by.iter().any(|&by| by != GroupBy::Site);
    let is_events = matches!(view.run, Run::Events);
    let asked = [("--by", is_grouped), ("--class", !args.class.is_empty()), ("--top", is_events && args.top.is_some())];
    match asked.into_iter().find(|(_, is_asked)| *is_asked) {
        Some((option, _)) => anyhow::bail!("{option}: {} cannot do this yet", view.name),
        None => Ok(()),
    }
}

fn print_view(
    request: &Request,
    query: Query,
    document: for<'a> fn(&'a Analysis, &Shape) -> Document<'a>,
) -> anyhow::Result<u8> {
    let (args, inputs) = (&request.args, request.inputs());
    let mut trace = open(request, &inputs)?;
    let event_names = trace.names.len();
    let query = with_options(args, query);
    let analysis = query.run_with(&mut trace, &mut ProgressLine::new(args.quiet))?;
    explain_empty_window(args, &trace, analysis.events(), analysis.first_key());
    let on_terminal = args.output.is_none() && io::stdout().is_terminal();
    let top = args.top.or((request.format() == Format::Table && on_terminal).then_some(ROWS_ON_TERMINAL));
    print(request, &inputs[0], &document(&analysis, &Shape { sort: request.sort_keys(), top }))?;
    if analysis.rows().next().is_none() {
        suggest::suggest(&args.filters, &trace, analysis.names(), event_names).iter().for_each(|line| say(line));
    }
    Ok(status(args, analysis.completeness()).max(gate(args, &analysis)))
}

/// Status of `--fail-on`: the gate fires on findings that loss does not explain.
fn gate(args: &Args, analysis: &Analysis) -> u8 {
    let errors = |class| {
        let of_class = analysis.findings().filter(|finding| finding.class == class);
        of_class.fold(0u64, |sum, finding| sum.saturating_add(finding.count.saturating_sub(finding.suspect)))
    };
    let fired: Vec<String> = args
        .fail_on
        .iter()
        .map(|&class| (class, errors(class)))
        .filter(|(_, errors)| *errors > 0)
        .map(|(class, errors)| format!("{errors} {}", class.name()))
        .collect();
    if fired.is_empty() {
        return exit::OK;
    }
    say(&format!("--fail-on: {}", fired.join(", ")));
    exit::GATE
}

fn print_events(request: &Request) -> anyhow::Result<u8> {
    let (args, inputs) = (&request.args, request.inputs());
    let mut trace = open(request, &inputs)?;
    let event_names = trace.names.len();
    let query = with_options(args, Query::by_kind());
    query.check_window(&trace)?;
    let mut out = Output::open(args.output.as_deref(), args.force)?;
    // Lines may reach a terminal through a pipe, where a progress line would mix with them.
    let mut progress = ProgressLine::new(args.quiet || !out.is_file);
    let mut lines = LineWriter::new(&mut out);
    let mut is_empty = true;
    let mut observer = |item: &OrderedItem<'_>| {
        is_empty &= !matches!(item, OrderedItem::Event { .. });
        lines.observe(item)
    };
    let observed = query.observe_with(&mut trace, &mut observer, &mut progress)?;
    let written = lines.finish();
    out.finish(written)?;
    let completeness = &observed.completeness;
    let lost = completeness.lost_events.map_or("an unknown number of".to_owned(), |n| n.to_string());
    let (verdict, gaps) = (completeness.verdict_name(), completeness.gaps);
    let _ = writeln!(io::stderr(), "{verdict}: {} events, {lost} lost, {gaps} gaps", observed.events);
    let status = status(args, completeness);
    explain_empty_window(args, &trace, observed.events, observed.first_key);
    if is_empty {
        suggest::suggest(&args.filters, &trace, &trace.names, event_names).iter().for_each(|line| say(line));
    }
    Ok(status)
}

/// Query with the options that every view has.
fn with_options(args: &Args, query: Query) -> Query {
    let mut query = query
        .select(args.filters.select())
        .time(args.time)
        .with_own(args.own)
        .threads(threads(args))
        .max_memory(args.max_memory)
        .cut(args.window_events, args.sized_classes);
    if !args.no_index {
        query = query.index(args.index_from);
    }
    if args.verbose { query.notes(Notes::to(say)) } else { query }
}

fn open(request: &Request, inputs: &[PathBuf]) -> anyhow::Result<Trace> {
    let opened = Trace::open(inputs).map_err(anyhow::Error::from);
    opened.map_err(|error| match request.hint() {
        Some(hint) => error.context(hint),
        None => error,
    })
}

/// Number of threads: `--jobs`, else the number of CPUs.
fn threads(args: &Args) -> usize {
    args.jobs.or_else(|| std::thread::available_parallelism().ok()).map_or(1, NonZero::get)
}

fn status(args: &Args, completeness: &Completeness) -> u8 {
    if args.strict && completeness.verdict != Verdict::Complete {
        say(&format!("the trace is {}", completeness.verdict_name()));
        return exit::BAD_TRACE;
    }
    exit::OK
}

/// Explains an empty `--time` window by the first event's time: times are those of the trace's clock, not of the wall's.
fn explain_empty_window(args: &Args, trace: &Trace, events: u64, begins: u64) {
    if args.time.is_some() && events == 0 {
        let units = trace.info.keys().per_second();
        let begins = if units == 1 { begins.to_string() } else { (begins as f64 / units as f64).to_string() };
        say(&format!("--time: no event is in there; the first one of the trace is at {begins}"));
    }
}

fn print(request: &Request, input: &Path, document: &Document<'_>) -> anyhow::Result<()> {
    let args = &request.args;
    let mut out = Output::open(args.output.as_deref(), args.force)?;
    let written = match request.format() {
        Format::Json => render::json::json(document, &mut out),
        Format::Jsonl => render::jsonl::jsonl(document, &mut out),
        Format::Csv => render::csv::csv(document, &mut out),
        Format::Table => {
            let options = render::table::TableOptions {
                bytes: args.bytes,
                show_addresses: args.show_addresses,
                shows_own: args.own,
                is_filtered: !args.filters.select().is_all(),
                title: escape(input.as_os_str().as_encoded_bytes()).into_owned(),
            };
            render::table::table(document, &options, &mut out)
        }
    };
    out.finish(written)
}
