//! The command line.

use std::num::NonZero;
use std::path::{Path, PathBuf};

use clap::{Parser, ValueEnum};

use crate::reports::SortKey;
use crate::select::time::TimeWindow;
use crate::select::{Select, parse_size};

/// Reports who allocates kernel memory, how much of it is wasted, what stays, and which frees do not match.
#[derive(Debug, Parser)]
#[command(
    version,
    after_help = "Exit status: 0 printed, 2 usage, unreadable or over --max-memory, 3 no trace (or --strict and it is incomplete)"
)]
pub(crate) struct Args {
    /// A view (or pack: store the recording smaller), then the trace directory or files [default: summary of ./kmemtrace.data]
    #[arg(value_name = "VIEW] [DIR|FILE")]
    pub(crate) words: Vec<PathBuf>,
    /// How to print
    #[arg(long, value_enum, default_value = "table")]
    pub(crate) format: Format,
    /// Write to this file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Overwrite the output file; pack what has no end
    #[arg(short, long)]
    pub(crate) force: bool,
    /// Sort rows by these, greatest first
    #[arg(short, long, value_enum, value_name = "KEY,...", value_delimiter = ',', default_value = "wasted")]
    pub(crate) sort: Vec<SortKey>,
    /// Rows to show; the rest becomes one "others" row [default: 20 on a terminal, else all]
    #[arg(short = 'n', long, value_name = "N")]
    pub(crate) top: Option<usize>,
    /// Only events from A to B: seconds of the trace's clock (ticks where it counts those), +1.5s, -2s, 10%; either side may be empty
    #[arg(long, value_name = "A,B", allow_hyphen_values = true)]
    pub(crate) time: Option<TimeWindow>,
    #[command(flatten)]
    pub(crate) select: Select,
    /// Show what the recorder itself allocates, too
    #[arg(long, help_heading = "Filters")]
    pub(crate) own: bool,
    /// Exact bytes in tables
    #[arg(long)]
    pub(crate) bytes: bool,
    /// Print object addresses in tables
    #[arg(long)]
    pub(crate) show_addresses: bool,
    /// Threads to use [default: one for each CPU]
    #[arg(short, long, value_name = "N")]
    pub(crate) jobs: Option<NonZero<usize>>,
    /// Events taken at once; tests make it small
    #[arg(long, value_name = "N", hide = true)]
    pub(crate) window_events: Option<usize>,
    /// Sizes of objects that are kept once; tests make them few
    #[arg(long, value_name = "N", hide = true)]
    pub(crate) sized_classes: Option<u32>,
    /// Stop with a message where more memory would be needed: 512M, 4G [default: a quarter of what is free, at least 256M]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) max_memory: Option<u64>,
    /// How small pack makes it: a zstd level [default: 9]
    #[arg(long, value_name = "N")]
    pub(crate) level: Option<i32>,
    /// Neither use nor write the index beside a large trace (report.index), which makes the next report start at once
    #[arg(long)]
    pub(crate) no_index: bool,
    /// Bytes of a trace from which it has an index; tests make it small
    #[arg(long, value_name = "SIZE", value_parser = size, default_value_t = crate::index::PAYS_FROM, hide = true)]
    pub(crate) index_from: u64,
    /// Say on standard error what became of the index, and what took how long
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// No progress line on a terminal
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// Refuse a trace that is lossy, truncated or corrupt (exit status 3)
    #[arg(long)]
    pub(crate) strict: bool,
}

fn size(text: &str) -> Result<u64, String> {
    parse_size(text).ok_or_else(|| "a size is bytes, or a number with K, M or G: 512M".to_owned())
}

/// Output formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people
    Table,
    /// One document
    Json,
    /// One object a line
    Jsonl,
    /// Comma-separated rows
    Csv,
}

/// What can be looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum View {
    Summary,
    #[value(alias = "callsites")]
    Sites,
    Caches,
    Mismatch,
    Live,
    Cross,
    Events,
}

impl View {
    /// Its name, as in the document's `schema`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            View::Summary => "summary",
            View::Sites => "sites",
            View::Caches => "caches",
            View::Mismatch => "mismatch",
            View::Live => "live",
            View::Cross => "cross",
            View::Events => "events",
        }
    }
}

impl Args {
    /// The view, if the first word is one, and the inputs.
    pub(crate) fn view_and_inputs(&self) -> (View, Vec<PathBuf>) {
        let named = self.words.first().and_then(|word| View::from_str(word.to_str()?, false).ok());
        // A directory of that name is a directory: `./live` says so.
        let is_pack = self.words.first().is_some_and(|word| word == Path::new("pack"));
        let inputs = &self.words[usize::from(named.is_some() || is_pack)..];
        let inputs = if inputs.is_empty() { vec![PathBuf::from("kmemtrace.data")] } else { inputs.to_vec() };
        (named.unwrap_or(View::Summary), inputs)
    }

    /// What may be the matter where the trace cannot be opened, other than the trace.
    pub(crate) fn hint(&self) -> Option<String> {
        let is_view = |word: &PathBuf| word.to_str().is_some_and(|word| View::from_str(word, false).is_ok());
        let Some((first, rest)) = self.words.split_first() else {
            return Some("no trace is named, and kmemtraced has left none here".to_owned());
        };
        if let Some(view) = rest.iter().find(|word| is_view(word) && !word.exists()) {
            return Some(format!("{}: a view stands before its trace", view.display()));
        }
        let is_name = first.components().count() == 1 && !first.exists();
        let views: Vec<&str> = View::value_variants().iter().map(|view| view.name()).collect();
        (is_name && !is_view(first)).then(|| format!("{}: is no view ({}, pack)", first.display(), views.join(", ")))
    }
}
