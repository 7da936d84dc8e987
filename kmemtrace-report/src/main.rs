//! `kmemtrace-report`: prints views of a kernel memory trace.
//!
//! Figures and documents come from the library `kmemtrace`. This program has the arguments, the table of views, the
//! terminal, and the renderers.

mod args;
mod built;
#[cfg(feature = "pictures")]
mod chart;
mod classes;
mod cli;
mod columns;
mod exit;
#[cfg(feature = "export")]
mod export;
mod follow;
mod latency;
mod memstrack;
mod names;
mod old;
#[cfg(feature = "pack")]
mod pack;
#[cfg(feature = "html")]
mod page;
mod render;
mod report;
mod suggest;
mod terminal;
#[cfg(feature = "top")]
mod top;
mod views;

use std::io::{self, Write};
use std::process::ExitCode;

use kmemtrace::latency::LatencyRequest;
use kmemtrace::{AnalysisError, OpenError};
use kmemtrace_abi::text::escape::escape;

use cli::{CommandLine, Refusal, Request};
use terminal::messages::say;
use views::Run;

fn main() -> ExitCode {
    let done = match cli::parse(std::env::args_os().collect()) {
        Ok(CommandLine::Request(request)) => run(&request),
        Ok(CommandLine::Steps(steps)) => old::run(steps, run),
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
    match request.view.run {
        Run::Document { query, document } => report::view(request, query(request.format(), args), document),
        Run::Latency { .. } if args.follow => follow::follow(request),
        Run::Latency { lists_stalls, by_call_site, takes_inside, document, needs } => {
            let asked = LatencyRequest { lists_stalls, by_call_site, takes_inside, ..LatencyRequest::default() };
            latency::latency(request, asked, document, needs)
        }
        Run::Events => report::events(request, None),
        Run::Compare => report::compare(request),
        Run::Static => built::static_sizes(request),
        Run::Names => built::names(request),
        // The command line has made steps of it.
        Run::TraceAnalyze => Ok(exit::OK),
        #[cfg(feature = "html")]
        Run::Page => page::page(request),
        #[cfg(not(feature = "html"))]
        Run::Page => anyhow::bail!("html: this program was built without pages: build it with the feature html"),
        #[cfg(feature = "pictures")]
        Run::Chart => chart::chart(request),
        #[cfg(not(feature = "pictures"))]
        Run::Chart => {
            anyhow::bail!("chart: this program was built without pictures: build it with the feature pictures")
        }
        #[cfg(feature = "top")]
        Run::Top => top::run(request),
        #[cfg(not(feature = "top"))]
        Run::Top => anyhow::bail!("top: this program was built without the live screen: build it with the feature top"),
        #[cfg(feature = "export")]
        Run::Export => export::export(request),
        #[cfg(not(feature = "export"))]
        Run::Export => {
            anyhow::bail!("export: this program was built without exports: build it with the feature export")
        }
        Run::Memstrack => memstrack::memstrack(request),
        #[cfg(not(feature = "pack"))]
        Run::Pack => anyhow::bail!("pack: this program was built without packing: build it with the feature pack"),
        #[cfg(feature = "pack")]
        Run::Pack => {
            let (level, threads) = (args.level.unwrap_or(pack::LEVEL), report::threads(args));
            let how = pack::How { level, takes_unfinished: args.force, threads, is_quiet: args.quiet };
            pack::pack(&request.inputs(), how)?;
            Ok(exit::OK)
        }
    }
}
