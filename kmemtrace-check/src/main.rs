//! `kmemtrace-check`: is a trace whole, and if not, what is missing, where, and what to do about it.
//!
//! [`input`] finds the paths, [`reading`] reads every byte of them once, [`checks`] looks at what was read as a
//! whole, [`table`] and [`machine`] print it. What is wrong within a file the reader of `kmemtrace-abi` finds.

mod advice;
mod checks;
mod explain;
mod input;
mod machine;
mod reading;
mod table;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use kmemtrace_abi::escape::escape;
use kmemtrace_abi::fault::{Code, Verdict};

use reading::CheckedTrace;

/// Checks the files of a kmemtrace recording, or raw relay files, and tells what is lost, missing or damaged.
#[derive(Debug, Parser)]
#[command(version, after_help = AFTER_HELP)]
struct Options {
    /// Files or directories [default: ./kmemtrace.data, else ./cpu*.out]
    ///
    /// A FILE is checked alone. What shows only over all CPUs (a CPU's file missing, holes in the sequence
    /// numbers of a relay channel) is checked in a DIR.
    #[arg(value_name = "FILE or DIR")]
    paths: Vec<PathBuf>,
    /// Exit with 3 unless every file is ok
    #[arg(long)]
    strict: bool,
    /// How to print
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    /// Findings shown a file in a table
    #[arg(long, value_name = "N", default_value_t = 20)]
    limit: usize,
    /// Print nothing where every file is ok
    #[arg(short, long)]
    quiet: bool,
    /// Say what a finding means, and end
    #[arg(long, value_name = "CODE", value_parser = explain::parse_code, conflicts_with = "paths")]
    explain: Option<Code>,
}

const AFTER_HELP: &str = "\
Exit status: 0 every file is whole and nothing was lost; 1 usable but incomplete (lossy or truncated);
2 could not be checked (usage, unreadable); 3 corrupt, or no trace at all.";

/// How results are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people
    Table,
    /// One document, all findings
    Json,
    /// A row a file
    Csv,
    /// A row a file
    Tsv,
}

/// Exit statuses, from best to worst.
mod status {
    pub(crate) const OK: u8 = 0;
    pub(crate) const INCOMPLETE: u8 = 1;
    pub(crate) const UNREADABLE: u8 = 2;
    pub(crate) const CORRUPT: u8 = 3;
}

fn main() -> ExitCode {
    let options = Options::parse();
    let mut text = Vec::new();
    let mut status = status::OK;
    if let Some(code) = options.explain {
        explain::print(code, &mut text);
    } else {
        let mut traces = Vec::new();
        for result in check_all(&options.paths) {
            match result {
                Ok(trace) => {
                    status = status.max(status_of(&trace, options.strict));
                    traces.push(trace);
                }
                Err(problem) => {
                    status = status.max(problem.status);
                    complain(&problem.message);
                }
            }
        }
        let is_silent = traces.is_empty() || options.quiet && status == status::OK;
        if !is_silent {
            match options.format {
                Format::Table => table::print(&traces, options.limit, &mut text),
                Format::Json => machine::json(&traces, &mut text),
                Format::Csv => machine::csv(&traces, &mut text),
                Format::Tsv => machine::tsv(&traces, &mut text),
            }
        }
    }
    let mut stdout = io::stdout();
    match stdout.write_all(&text).and_then(|()| stdout.flush()) {
        // Whoever reads may stop when they have seen enough.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            complain(&format!("standard output cannot be written: {error}"));
            status = status.max(status::UNREADABLE);
        }
        _ => {}
    }
    ExitCode::from(status)
}

/// Why an input was not checked.
struct Problem {
    status: u8,
    message: String,
}

/// Checks the inputs one after the other, each for itself: they may be of different recordings.
fn check_all(paths: &[PathBuf]) -> Vec<Result<CheckedTrace, Problem>> {
    let paths = match input::or_default(paths) {
        Ok(paths) => paths,
        Err(message) => return vec![Err(Problem { status: status::UNREADABLE, message })],
    };
    let check = |path| {
        let mut trace = reading::read(path).map_err(|error| {
            let status = if error.is_no_trace() { status::CORRUPT } else { status::UNREADABLE };
            Problem { status, message: error.to_string() }
        })?;
        checks::run(&mut trace);
        Ok(trace)
    };
    paths.into_iter().map(check).collect()
}

fn status_of(trace: &CheckedTrace, strict: bool) -> u8 {
    match trace.files.iter().map(|f| f.facts.verdict).max().unwrap_or_default() {
        Verdict::Complete => status::OK,
        Verdict::Corrupt => status::CORRUPT,
        Verdict::Lossy | Verdict::Truncated if strict => status::CORRUPT,
        Verdict::Lossy | Verdict::Truncated => status::INCOMPLETE,
    }
}

/// One line on standard error. It names a path, so it passes the escaping function as a whole.
fn complain(message: &str) {
    let _ = writeln!(io::stderr(), "kmemtrace-check: {}", escape(message.as_bytes()));
}
