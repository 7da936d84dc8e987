//! `kmemtrace-report`: prints views of a kernel memory trace.
//!
//! Figures and documents come from the library `kmemtrace`. This program has the arguments, the table of views, the
//! terminal, and the renderers.

mod args;
mod pack;
mod render;
mod terminal;
mod views;

use std::io::{self, IsTerminal, Write};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches};
use kmemtrace::{AnalysisError, Completeness, Notes, OpenError, Query, Shape, SortKey, Symbolizer, Trace};
use kmemtrace_abi::fault::Verdict;
use kmemtrace_abi::text::escape::escape;

use args::{Args, Asked};
use render::csv::EventRows;
use render::event_output::{EventOutput, Limited};
use render::jsonl::LineWriter;
use render::table::events::EventTable;
use render::table::options::TableOptions;
use terminal::output::Output;
use terminal::progress::ProgressLine;
use terminal::screen::Screen;
use views::{Command, Format, View};

/// Exit statuses; `kmemtrace-check` uses the same names. Status 1 is check's for an incomplete trace: a report is printed
/// for such a trace, too.
mod exit {
    /// A view was printed, whatever the verdict on the trace.
    pub(crate) const OK: u8 = 0;
    /// Wrong usage, unreadable input, an output that cannot be written, or more memory than `--max-memory`.
    pub(crate) const UNUSABLE: u8 = 2;
    /// No trace at all, or `--strict` and a verdict other than complete.
    pub(crate) const BAD_TRACE: u8 = 3;
}

/// Rows of a table on a terminal.
const ROWS_ON_TERMINAL: usize = 20;

fn main() -> ExitCode {
    let matches = Args::command().get_matches();
    let args = Args::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    match run(&args, &Asked::of(&matches)) {
        Ok(status) => ExitCode::from(status),
        Err(error) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            say(&escape(format!("{error:#}").as_bytes()));
            ExitCode::from(if is_no_trace(&error) { exit::BAD_TRACE } else { exit::UNUSABLE })
        }
    }
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

fn run(args: &Args, asked: &Asked) -> anyhow::Result<u8> {
    let (command, inputs) = args.command_and_inputs();
    match command {
        Command::Pack => {
            let level = args.level.unwrap_or(pack::LEVEL);
            let how = pack::How { level, takes_unfinished: args.force, threads: threads(args), is_quiet: args.quiet };
            pack::pack(&inputs, how)?;
            Ok(exit::OK)
        }
        Command::Events => print_events(args, asked, &inputs),
        Command::View(view) => print_view(args, asked, view, &inputs),
    }
}

fn print_view(args: &Args, asked: &Asked, view: &View, inputs: &[PathBuf]) -> anyhow::Result<u8> {
    let mut trace = open(args, inputs)?;
    let format = args.format.unwrap_or(Format::Table);
    let query = with_options(args, (view.query)(format));
    let analysis = query.run_with(&mut trace, &mut ProgressLine::new(args.quiet))?;
    explain_empty_window(args, &trace, analysis.events(), analysis.first_key());
    let on_terminal = args.output.is_none() && io::stdout().is_terminal();
    let top = args.top.or((format == Format::Table && on_terminal).then_some(ROWS_ON_TERMINAL));
    // The table of `mismatch` counts the classes of all rows, and limits those that it lists.
    let listed = if format == Format::Table && view.name == "mismatch" { None } else { top };
    let shape = Shape { sort: args.sort.iter().map(|&by| by.into()).collect(), top: listed };
    let document = (view.document)(&analysis, &shape);
    let mut out = Output::open(args.output.as_deref(), args.force)?;
    let written = match format {
        Format::Json => render::json::json(&document, &mut out),
        Format::Jsonl => render::jsonl::jsonl(&document, &mut out),
        Format::Csv => render::csv::csv(&document, &mut out),
        Format::Table => render::table::table(&document, &table_options(args, asked, &inputs[0], top), &mut out),
    };
    out.finish(written)?;
    Ok(status(args, analysis.completeness()))
}

fn print_events(args: &Args, asked: &Asked, inputs: &[PathBuf]) -> anyhow::Result<u8> {
    let mut trace = open(args, inputs)?;
    let query = with_options(args, Query::by_kind());
    query.check_window(&trace)?;
    let on_terminal = args.output.is_none() && io::stdout().is_terminal();
    let format = args.format.unwrap_or(if on_terminal { Format::Table } else { Format::Jsonl });
    let options = table_options(args, asked, &inputs[0], args.top);
    // The pass takes the texts out of the trace.
    let symbols = match format {
        Format::Table => Symbolizer::new(trace.metadata.kallsyms.clone(), &trace.metadata.modules),
        _ => Symbolizer::default(),
    };
    let mut out = Output::open(args.output.as_deref(), args.force)?;
    // Lines may reach a terminal through a pipe, where a progress line would mix with them.
    let mut progress = ProgressLine::new(args.quiet || !out.is_file);
    let lines: Box<dyn EventOutput> = match format {
        Format::Table => Box::new(EventTable::new(trace.info.keys(), &symbols, &options, &mut out)),
        Format::Csv => Box::new(EventRows::new(&mut out)),
        Format::Json | Format::Jsonl => Box::new(LineWriter::new(&mut out)),
    };
    let mut lines = Limited::new(lines, args.top);
    let observed = query.observe_with(&mut trace, &mut lines, &mut progress)?;
    let written = lines.finish();
    out.finish(written)?;
    let completeness = &observed.completeness;
    let lost = completeness.lost_events.map_or("an unknown number of".to_owned(), |n| n.to_string());
    let plural = |n: u64| if n == 1 { "" } else { "s" };
    let (verdict, events, gaps) = (completeness.verdict_name(), observed.events, completeness.gaps);
    let counts = format!("{events} event{}, {lost} lost, {gaps} gap{}", plural(events), plural(gaps));
    let _ = writeln!(io::stderr(), "{verdict}: {counts}");
    let status = status(args, completeness);
    explain_empty_window(args, &trace, observed.events, observed.first_key);
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

fn open(args: &Args, inputs: &[PathBuf]) -> anyhow::Result<Trace> {
    let opened = Trace::open(inputs).map_err(anyhow::Error::from);
    opened.map_err(|error| match args.hint() {
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

fn table_options(args: &Args, asked: &Asked, input: &Path, top: Option<usize>) -> TableOptions {
    TableOptions {
        screen: Screen::of_output(args.output.is_some(), args.color, args.width),
        bytes: args.bytes,
        show_addresses: args.show_addresses,
        shows_own: args.own,
        shows_normal: args.all,
        top,
        ranked: args.sort.first().map_or(SortKey::Wasted, |&by| by.into()),
        filters: asked.filters.clone(),
        time: asked.time.clone(),
        title: escape(input.as_os_str().as_encoded_bytes()).into_owned(),
    }
}
