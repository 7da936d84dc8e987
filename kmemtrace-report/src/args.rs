//! Command line: options, and the words before them.

use std::num::NonZero;
use std::path::PathBuf;

use clap::{ArgMatches, Parser, ValueEnum};

use kmemtrace_abi::text::escape::escape;

use kmemtrace::{Glob, Kind, Select, Site, SizeRange, SortKey, TimeWindow, parse_kind, parse_size};

use crate::terminal::screen::Color;
use crate::views::{Command, Format, VIEWS};

/// Reports call-sites that allocate kernel memory, bytes wasted, objects still live, and frees that do not match.
#[derive(Debug, Parser)]
#[command(
    version,
    after_help = "Exit status: 0 printed, 2 usage, unreadable or over --max-memory, 3 no trace (or --strict and it is incomplete)"
)]
pub(crate) struct Args {
    /// A view (or pack: store the recording smaller), then the trace directory or files [default: summary of ./kmemtrace.data]
    #[arg(value_name = "VIEW] [DIR|FILE")]
    pub(crate) words: Vec<PathBuf>,
    /// Output format [default: table; of events in a file or a pipe: jsonl]
    #[arg(long, value_enum)]
    pub(crate) format: Option<Format>,
    /// Colours of tables; NO_COLOR and CLICOLOR_FORCE are kept
    #[arg(long, value_enum, value_name = "WHEN", default_value = "auto")]
    pub(crate) color: Color,
    /// Columns of the screen; tests need no terminal
    #[arg(long, value_name = "N", hide = true)]
    pub(crate) width: Option<usize>,
    /// Write to this file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Overwrite the output file; pack files without an end block
    #[arg(short, long)]
    pub(crate) force: bool,
    /// Sort keys of the rows, greatest first
    #[arg(short, long, value_enum, value_name = "KEY,...", value_delimiter = ',', default_value = "wasted")]
    pub(crate) sort: Vec<SortBy>,
    /// Rows to show; the rest becomes one "others" row [default: 20 on a terminal, else all]
    #[arg(short = 'n', long, value_name = "N")]
    pub(crate) top: Option<usize>,
    /// Only events from A to B: seconds of the trace's clock (ticks where it counts those), +1.5s, -2s, 10%; either side may be empty
    #[arg(long, value_name = "A,B", allow_hyphen_values = true)]
    pub(crate) time: Option<TimeWindow>,
    #[command(flatten)]
    pub(crate) filters: Filters,
    /// Show the recorder's own allocations, too
    #[arg(long, help_heading = "Filters")]
    pub(crate) own: bool,
    /// List the call-sites of normal findings, too (mismatch)
    #[arg(long)]
    pub(crate) all: bool,
    /// Exact bytes in tables
    #[arg(long)]
    pub(crate) bytes: bool,
    /// Print object addresses in tables
    #[arg(long)]
    pub(crate) show_addresses: bool,
    /// Threads to use [default: one for each CPU]
    #[arg(short, long, value_name = "N")]
    pub(crate) jobs: Option<NonZero<usize>>,
    /// Events of one window of the analysis; tests make it small
    #[arg(long, value_name = "N", hide = true)]
    pub(crate) window_events: Option<usize>,
    /// Limit of size classes, each kept once for all its objects; tests make it small
    #[arg(long, value_name = "N", hide = true)]
    pub(crate) sized_classes: Option<u32>,
    /// Memory limit, beyond which the report stops with a message: 512M, 4G [default: a quarter of what is free, at least 256M]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) max_memory: Option<u64>,
    /// zstd level of pack [default: 9]
    #[arg(long, value_name = "N")]
    pub(crate) level: Option<i32>,
    /// Neither use nor write the index beside a large trace (report.index), which makes the next report start at once
    #[arg(long)]
    pub(crate) no_index: bool,
    /// Least size of a trace with an index, in bytes; tests make it small
    #[arg(long, value_name = "SIZE", value_parser = size, default_value_t = kmemtrace::cache::PAYS_FROM, hide = true)]
    pub(crate) index_from: u64,
    /// Print on standard error how the index was used, and the time of each stage
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

/// Filters on objects. Options are ANDed, the values of one option are ORed.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Filters {
    /// Only allocations by these thread ids
    #[arg(long, value_name = "PID,...", value_delimiter = ',', help_heading = "Filters")]
    pid: Vec<i32>,
    /// Only allocations by these commands (* and ? allowed)
    #[arg(long, value_name = "COMM,...", value_delimiter = ',', help_heading = "Filters")]
    comm: Vec<Glob>,
    /// Only call-sites in these modules (* and ? allowed)
    #[arg(long, value_name = "MODULE,...", value_delimiter = ',', help_heading = "Filters")]
    module: Vec<Glob>,
    /// Only objects of these caches (* and ? allowed)
    #[arg(long, value_name = "CACHE,...", value_delimiter = ',', help_heading = "Filters")]
    cache: Vec<Glob>,
    /// Only these call-sites: foo_open, foo_*, foo_open+0x3c or 0xffffffff81000100
    #[arg(long, value_name = "SITE,...", value_delimiter = ',', help_heading = "Filters")]
    site: Vec<Site>,
    /// Only these kinds: kmalloc, cache, pages
    #[arg(long, value_name = "KIND,...", value_delimiter = ',', value_parser = parse_kind, help_heading = "Filters")]
    kind: Vec<Kind>,
    /// Only objects of these requested sizes: 512, 1K..4K, 2M.., ..64
    #[arg(long, value_name = "A..B,...", value_delimiter = ',', help_heading = "Filters")]
    size: Vec<SizeRange>,
}

impl Filters {
    /// Filters as the library takes them.
    pub(crate) fn select(&self) -> Select {
        let Filters { pid, comm, module, cache, site, kind, size } = self.clone();
        Select { pid, comm, module, cache, site, kind, size }
    }
}

/// Filters and time window as the user gave them.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    /// Names of filters and their values.
    pub(crate) filters: Vec<(String, String)>,
    /// `--time`.
    pub(crate) time: Option<String>,
}

impl Asked {
    /// Filters and window among the arguments.
    pub(crate) fn of(matches: &ArgMatches) -> Asked {
        let given = |id: &str| -> Option<String> {
            let values = matches.get_raw(id)?.map(|value| escape(value.as_encoded_bytes()).into_owned());
            Some(values.collect::<Vec<String>>().join(","))
        };
        let filters = ["pid", "comm", "module", "cache", "site", "kind", "size"];
        Asked {
            filters: filters.into_iter().filter_map(|id| Some((id.to_owned(), given(id)?))).collect(),
            time: given("time"),
        }
    }
}

/// Sort keys, greatest first (names: smallest first).
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SortBy {
    /// Bytes lost to internal fragmentation.
    #[value(alias = "waste")]
    Wasted,
    /// Bytes live at the end.
    #[value(alias = "current_dynamic")]
    Live,
    /// Greatest number of live bytes.
    Peak,
    /// Allocated bytes, over all allocations.
    #[value(aliases = ["total", "total_dynamic"])]
    Allocated,
    /// Requested bytes, over all allocations.
    Requested,
    /// Number of allocations.
    #[value(alias = "alloc_count")]
    Allocs,
    /// Number of observed frees.
    #[value(alias = "free_count")]
    Frees,
    /// Number of frees on another CPU than the allocation's.
    Cross,
    /// Call-site or cache.
    #[value(alias = "cache")]
    Site,
}

impl From<SortBy> for SortKey {
    fn from(by: SortBy) -> SortKey {
        match by {
            SortBy::Wasted => SortKey::Wasted,
            SortBy::Live => SortKey::Live,
            SortBy::Peak => SortKey::Peak,
            SortBy::Allocated => SortKey::Allocated,
            SortBy::Requested => SortKey::Requested,
            SortBy::Allocs => SortKey::Allocs,
            SortBy::Frees => SortKey::Frees,
            SortBy::Cross => SortKey::Cross,
            SortBy::Site => SortKey::Site,
        }
    }
}

impl Args {
    /// Command that the first word names, if any, and the inputs.
    pub(crate) fn command_and_inputs(&self) -> (Command, Vec<PathBuf>) {
        let first = self.words.first().and_then(|word| word.to_str());
        let named = first.and_then(Command::named);
        // A view wins over a directory of the same name; the user can write `./live` for the directory.
        let inputs = &self.words[usize::from(named.is_some())..];
        let inputs = if inputs.is_empty() { vec![PathBuf::from("kmemtrace.data")] } else { inputs.to_vec() };
        (named.unwrap_or(Command::View(&VIEWS[0])), inputs)
    }

    /// Likely mistake on the command line, for a trace that cannot be opened.
    pub(crate) fn hint(&self) -> Option<String> {
        let is_view =
            |word: &PathBuf| matches!(word.to_str().and_then(Command::named), Some(Command::View(_) | Command::Events));
        let Some((first, rest)) = self.words.split_first() else {
            return Some("no trace is named, and kmemtraced has left none here".to_owned());
        };
        if let Some(view) = rest.iter().find(|word| is_view(word) && !word.exists()) {
            return Some(format!("{}: a view stands before its trace", view.display()));
        }
        let is_name = first.components().count() == 1 && !first.exists();
        let views: Vec<&str> = VIEWS.iter().map(|view| view.name).collect();
        let shown = || format!("{}: is no view ({}, events, pack)", first.display(), views.join(", "));
        (is_name && !is_view(first)).then(shown)
    }
}
