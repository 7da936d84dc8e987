//! `kmemtrace-report`: prints views of a kernel memory trace.
//!
//! Figures and documents come from the library `kmemtrace`. This program has the arguments, the table of views, the
//! terminal, and the renderers.

mod args;
#[cfg(feature = "full")]
mod built;
#[cfg(feature = "full")]
mod chart;
mod classes;
mod cli;
mod columns;
#[cfg(feature = "full")]
mod config;
mod confine;
mod exit;
#[cfg(feature = "full")]
mod export;
mod fitted;
mod follow_spans;
mod gate;
mod latency;
mod memstrack;
mod names;
mod of_text;
mod old;
#[cfg(feature = "full")]
mod pack;
#[cfg(feature = "full")]
mod page;
mod render;
mod report;
mod sources;
mod suggest;
mod terminal;
mod told;
#[cfg(feature = "top")]
mod top;
mod views;

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Context;
use kmemtrace::latency::LatencyRequest;
use kmemtrace::{AnalysisError, OpenError};
use kmemtrace_abi::memory::{self, Limit};
use kmemtrace_abi::text::escape::escape;
use kmemtrace_abi::unreadable::more_files;
use kmemtrace_sandbox::pager;

use args::{Color, viewer};
use cli::{CommandLine, Refusal, Request};
use rustix::process::DumpableBehavior;
use terminal::messages::say;
use terminal::output::{Output, UNPRINTABLE};
use terminal::paged;
use terminal::screen::Screen;
use views::Run;

#[global_allocator]
static ALLOCATOR: kmemtrace_fence::Allocator = kmemtrace_fence::Allocator;

fn main() -> ExitCode {
    if std::env::args_os().any(|word| word == viewer::WORD) {
        // First of all: until then another process of this user could take this one over.
        let _ = rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable);
    }
    if let Some(small) = kmemtrace_fence::small_stack("kmemtrace-report") {
        return small;
    }
    kmemtrace_fence::raise_open_files();
    kmemtrace_fence::no_signal_for_large_files();
    if std::env::args_os().nth(1).is_some_and(|word| word == pager::WORD) {
        return pager::wait_for_text();
    }
    let done = match cli::parse(std::env::args_os().collect(), settings) {
        Ok(CommandLine::Request(request)) => {
            if is_paged(&request) {
                paged::start();
            }
            run(&request)
        }
        Ok(CommandLine::Steps(steps, mode)) => {
            old::confine(&steps, mode, limit_memory).and_then(|()| old::run(steps, run))
        }
        Ok(CommandLine::Text(text)) => write_text(&text),
        Err(Refusal::Clap(error)) if !error.use_stderr() => write_help(&error),
        Err(Refusal::Clap(error)) => error.exit(),
        Err(Refusal::Line(line)) => Err(anyhow::anyhow!(line)),
    };
    match done {
        Ok(status) => ExitCode::from(status),
        Err(error) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            let hint = if may_be_refused(&error) { REFUSED } else { limit_met(&error) };
            say(&escape(format!("{error:#}{hint}").as_bytes()));
            ExitCode::from(if is_no_trace(&error) { exit::BAD_TRACE } else { exit::UNUSABLE })
        }
    }
}

/// The user's settings.
fn settings() -> Result<cli::settings::Settings, String> {
    #[cfg(feature = "full")]
    return config::read();
    #[cfg(not(feature = "full"))]
    Ok(cli::settings::Settings::default())
}

/// End of a message about a system call that the sandbox may have refused.
const REFUSED: &str = "; the sandbox refuses system calls outside of its list: --sandbox off allows all";

fn may_be_refused(error: &anyhow::Error) -> bool {
    error.chain().filter_map(|error| error.downcast_ref::<io::Error>()).any(kmemtrace_sandbox::may_have_refused)
}

/// The limit of open files that an error of a system call has met, for the end of its message.
fn limit_met(error: &anyhow::Error) -> &'static str {
    error.chain().filter_map(|error| error.downcast_ref::<io::Error>()).map(more_files).next().unwrap_or_default()
}

fn write_text(text: &str) -> anyhow::Result<u8> {
    kmemtrace_fence::check_stdout().context(UNPRINTABLE)?;
    let mut out = io::stdout();
    out.write_all(text.as_bytes()).and_then(|()| out.flush())?;
    Ok(exit::OK)
}

/// Prints help, the long one through the pager.
fn write_help(help: &clap::Error) -> anyhow::Result<u8> {
    if std::env::args_os().all(|word| word != "-h") {
        paged::start();
    }
    let mut out = Output::open(None, false)?;
    let text = help.render();
    let has_colour = Screen::of_output(false, Color::Auto, None).has_colour;
    let written = if has_colour { write!(out, "{}", text.ansi()) } else { write!(out, "{text}") };
    out.finish(written)?;
    Ok(exit::OK)
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

/// True for a text that is read as a whole: neither lines that come as they are found, nor a file.
fn is_paged(request: &Request) -> bool {
    let args = &request.args;
    let is_text = match request.view.run {
        Run::Document { .. } | Run::Latency { .. } | Run::Compare | Run::Static | Run::Memstrack => true,
        Run::Events | Run::Top | Run::Names | Run::Page | Run::Chart | Run::TraceAnalyze | Run::Export | Run::Pack => {
            false
        }
    };
    is_text && !args.no_pager && !args.follow && args.output.is_none()
}

/// Limits the memory of the process, by the first view that it runs. In the sandbox no limit is set any more.
fn limit_memory(request: &Request) {
    let limit = Limit::new(request.args.max_memory);
    match request.view.run {
        // The terminal has to be set right at the end, however that comes.
        Run::Top => memory::set_limit(limit),
        _ => kmemtrace_fence::set("kmemtrace-report", limit, report::threads(&request.args)),
    }
}

fn run(request: &Request) -> anyhow::Result<u8> {
    let args = &request.args;
    limit_memory(request);
    terminal::screen::set_copied(&args.viewer.copied);
    if let Some(output) = &args.output {
        sources::refuse_replacing(output, &sources::of(request))?;
    }
    // A program that the view needs beside it is started here: in the sandbox nothing is.
    confine::close(request)?;
    match request.view.run {
        Run::Document { query, document } => report::view(request, query(request.format(), args), document),
        Run::Latency { .. } if args.follow => follow_spans::follow(request),
        Run::Latency { lists_stalls, by_call_site, takes_inside, document, needs } => {
            let asked = LatencyRequest { lists_stalls, by_call_site, takes_inside, ..LatencyRequest::default() };
            latency::latency(request, asked, document, needs)
        }
        Run::Events => report::events(request, None),
        Run::Compare => report::compare(request),
        // The command line has made steps of it.
        Run::TraceAnalyze => Ok(exit::OK),
        #[cfg(feature = "top")]
        Run::Top => top::run(request),
        #[cfg(not(feature = "top"))]
        Run::Top => anyhow::bail!("top: this program was built without the live screen: build it with the feature top"),
        Run::Memstrack => memstrack::memstrack(request),
        Run::Static | Run::Names | Run::Page | Run::Chart | Run::Export | Run::Pack => run_full(request),
    }
}

#[cfg(feature = "full")]
fn run_full(request: &Request) -> anyhow::Result<u8> {
    let args = &request.args;
    match request.view.run {
        Run::Static => built::static_sizes(request),
        Run::Names => built::names(request),
        Run::Page => page::page(request),
        Run::Chart => chart::chart(request),
        Run::Export => export::export(request),
        _ => {
            let level = (!args.raw).then(|| args.level.unwrap_or(pack::LEVEL));
            let threads = report::threads(args);
            let how = pack::How { level, takes_unfinished: args.force, threads, is_quiet: args.quiet };
            pack::pack(&request.inputs(), how)?;
            Ok(exit::OK)
        }
    }
}

#[cfg(not(feature = "full"))]
fn run_full(request: &Request) -> anyhow::Result<u8> {
    anyhow::bail!("{}: {}", request.view.name, terminal::messages::SMALL)
}
