//! Options of the command line.

use std::num::NonZero;
use std::path::{Path, PathBuf};

use clap::builder::PossibleValuesParser;
use clap::{Parser, ValueEnum};
use clap_complete::Shell;
use kmemtrace_abi::clock::Clock;
use kmemtrace_abi::fault::Code;
use kmemtrace_abi::kernel::release::Release;
use kmemtrace_abi::open::OpenOptions;
use kmemtrace_abi::text::size;
use kmemtrace_sandbox::Mode;

/// Tells what of a recording, or of raw relay files, is lost, missing or damaged.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 80, after_long_help = AFTER_HELP)]
pub(crate) struct Options {
    /// Files or directories [default: ./kmemtrace.data, else ./cpu*.out]
    ///
    /// A FILE is checked alone. Findings over all CPUs (a CPU's file missing, holes in the sequence numbers of a
    /// relay channel) need a DIR.
    #[arg(value_name = "FILE or DIR")]
    pub(crate) paths: Vec<PathBuf>,
    /// Kernel that a text of ftrace, trace-cmd or perf is of: 4.14.336
    #[arg(long, value_name = "RELEASE", value_parser = parse_release)]
    pub(crate) release: Option<String>,
    /// Trace clock of a text's times
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(Clock::NAMES), hide_possible_values = true)]
    pub(crate) clock: Option<String>,
    /// Bytes of a page on the machine of a text: 4096, 16K, 64K [default: 4096]
    #[arg(long, value_name = "SIZE", value_parser = size::parse_page)]
    pub(crate) page_size: Option<u64>,
    /// Ring buffer of a trace.dat, or of a text of trace-cmd, that has events of several; '' is the main one
    #[arg(long, value_name = "NAME")]
    pub(crate) buffer: Option<String>,
    /// Formats of the events of a perf.data that perf has not finished: any trace of the same boot, or the directory
    /// events of its tracefs
    #[arg(long, value_name = "FILE|DIR")]
    pub(crate) event_formats: Option<PathBuf>,
    /// Exit with 3 unless every file is ok
    #[arg(long)]
    pub(crate) strict: bool,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub(crate) format: Format,
    /// Findings to show for each file of a table
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub(crate) limit: usize,
    /// Files to read at the same time [default: one for each CPU]
    #[arg(short, long, value_name = "N", value_parser = kmemtrace_abi::text::size::number_of_threads)]
    pub(crate) jobs: Option<NonZero<usize>>,
    /// Memory limit, beyond which the check stops with a message: 512M, 1.5G; 1 to 4095 without a unit are MiB [default: a quarter
    /// of what is free, at least 256M]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) max_memory: Option<u64>,
    /// Sandbox around the reading of files: auto (what the kernel has), strict (all of it) or off
    ///
    /// It is closed before a byte of a trace is read: only the files that are named can be opened; no network, no other programs. With
    /// strict, anything else ends the program.
    #[arg(long, value_name = "MODE", value_parser = parse_mode, default_value = "auto", hide_default_value = true)]
    pub(crate) sandbox: Mode,
    /// Print on standard error what the sandbox lets through, and what of it the kernel lacks
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// Print nothing if every file is ok
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// Explain the code of a finding, and exit
    #[arg(long, value_name = "CODE", value_parser = parse_code, conflicts_with = "paths")]
    pub(crate) explain: Option<Code>,
}

/// Shell of a line `kmemtrace-check completions SHELL`; `None` for files to check, as one of the name `completions` is.
pub(crate) fn completions() -> Option<Shell> {
    let words: Vec<String> = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    match &words[..] {
        [word, shell] if word == "completions" && !Path::new(word).exists() => shell.parse().ok(),
        _ => None,
    }
}

const AFTER_HELP: &str = "\
Exit status:
  0  every file is whole and nothing was lost
  1  usable but incomplete: lossy or truncated
  2  could not be checked: usage, unreadable
  3  corrupt, or no trace at all

Completions:
  kmemtrace-check completions bash|zsh|fish
      Prints a script for the shell";

impl Options {
    /// Facts that texts of events do not tell.
    pub(crate) fn of_text(&self) -> OpenOptions {
        OpenOptions {
            release: self.release.clone(),
            clock: self.clock.clone(),
            page_bytes: self.page_size,
            buffer: self.buffer.clone(),
            event_formats: self.event_formats.clone(),
            ..OpenOptions::default()
        }
    }
}

/// Output formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Aligned table for people
    Table,
    /// One JSON document with all findings
    Json,
    /// Comma-separated rows, one a file
    Csv,
    /// Tab-separated rows, one a file
    Tsv,
}

fn parse_mode(text: &str) -> Result<Mode, String> {
    let mode = Mode::ALL.into_iter().find(|mode| mode.name() == text);
    mode.ok_or_else(|| format!("a mode is {}", Mode::ALL.map(Mode::name).join(", ")))
}

fn parse_size(text: &str) -> Result<u64, String> {
    size::parse_large(text).ok_or_else(|| size::LARGE_SIZES.to_owned())
}

fn parse_release(text: &str) -> Result<String, String> {
    let is_release = Release::parse(text).is_some();
    is_release.then(|| text.to_owned()).ok_or_else(|| "a release begins with its numbers: 4.14.336".to_owned())
}

/// Parses `K301`, `k301` or `301`.
fn parse_code(text: &str) -> Result<Code, String> {
    let digits = text.strip_prefix(['K', 'k']).unwrap_or(text);
    let code = digits.parse().ok().and_then(Code::from_number);
    code.ok_or_else(|| {
        let all: Vec<String> = Code::ALL.iter().map(ToString::to_string).collect();
        format!("there is no such code; there are {}", all.join(" "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_found_in_every_spelling() {
        for text in ["K301", "k301", "301"] {
            assert_eq!(parse_code(text), Ok(Code::BadPayload));
        }
        for text in ["", "K", "K1", "K99999", "KK301", "K-301", "checksum"] {
            assert!(parse_code(text).unwrap_err().contains("K101 K102"), "{text}");
        }
    }
}
