//! Options of the command line, with typed values.
//!
//! [`Args`] has the options of all views; `cli` gives each view those that the table of views names for it.

use std::io::IsTerminal;
use std::num::NonZero;
use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{ArgMatches, Parser, ValueEnum};

use kmemtrace::documents::AccountStyle;
use kmemtrace::{
    Branch, Context, Finding, Glob, GroupKey, Kind, Query, Select, Site, SizeRange, SortKey, TimeWindow, TreeOptions,
    parse_kind, parse_size,
};

/// Levels of a tree on a terminal.
const TREE_DEPTH_ON_TERMINAL: usize = 2;

/// Options of all views.
#[derive(Debug, Parser)]
#[command(name = "kmemtrace-report")]
pub(crate) struct Args {
    /// Trace directory, or files out of one [default: ./kmemtrace.data]
    #[arg(value_name = "DIR|FILE", hide_short_help = true)]
    pub(crate) words: Vec<PathBuf>,
    /// Keys that group rows
    ///
    /// Several keys make a row for each combination of them.
    #[arg(long, value_enum, value_name = "KEY,...", value_delimiter = ',')]
    pub(crate) by: Vec<GroupBy>,
    /// Greatest of these first
    ///
    /// Rows that are equal by the first key are sorted by the next one. Names are sorted smallest first.
    #[arg(short, long, value_enum, value_name = "KEY,...", value_delimiter = ',')]
    pub(crate) sort: Vec<SortBy>,
    /// Form of the account
    #[arg(long, value_enum, value_name = "STYLE")]
    pub(crate) style: Option<Style>,
    /// Shape: rings (default), treemap or icicle
    #[arg(long, value_enum, value_name = "SHAPE", hide_possible_values = true)]
    pub(crate) shape: Option<ChartShape>,
    /// List objects one by one, oldest first
    #[arg(long, conflicts_with_all = ["by", "sort"])]
    pub(crate) objects: bool,
    /// Show all rows of classes that are normal, too
    #[arg(long)]
    pub(crate) all: bool,
    /// Only findings of these classes
    #[arg(long, value_name = "CLASS,...", value_delimiter = ',', value_parser = class_parser(), hide_possible_values = true)]
    pub(crate) class: Vec<Finding>,
    /// Exit with 1 if there are errors of these classes
    #[arg(long, value_name = "CLASS,...", value_delimiter = ',', value_parser = class_parser(), hide_possible_values = true)]
    pub(crate) fail_on: Vec<Finding>,
    /// Exit with 1 if live bytes grew by more than P percent
    #[arg(long, value_name = "P", value_parser = percent)]
    pub(crate) fail_over: Option<f64>,
    /// Window of the first side: A,B as in --time
    #[arg(long, value_name = "A,B", allow_hyphen_values = true, requires = "after")]
    pub(crate) before: Option<TimeWindow>,
    /// Window of the second side
    #[arg(long, value_name = "A,B", allow_hyphen_values = true, requires = "before", conflicts_with = "time")]
    pub(crate) after: Option<TimeWindow>,
    /// Explain a class of findings, and exit
    ///
    /// Classes stand at the end of the help of mismatch.
    #[arg(long, value_name = "CLASS", value_parser = PossibleValuesParser::new(crate::classes::names()), hide_possible_values = true)]
    pub(crate) explain: Option<String>,
    /// Rows to show [default: 20 on a terminal, else all]
    ///
    /// A last row sums up the rest. Of a tree: children of each node, 8 on a terminal.
    #[arg(short = 'n', long, value_name = "N")]
    pub(crate) top: Option<usize>,
    /// Show the functions that the compiler put into each other
    #[arg(long)]
    pub(crate) inlines: bool,
    /// Format of the file
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub(crate) to: Option<ExportTo>,
    /// Figure that folded stacks are weighted by [default: wasted]
    #[arg(long, value_enum, value_name = "FIGURE")]
    pub(crate) weight: Option<Weight>,
    /// Name of the host, in place of the recorded one
    #[arg(long, value_name = "NAME")]
    pub(crate) host: Option<String>,
    /// Levels below the root [default: 2 on a terminal, static: 1 in a table, else all]
    #[arg(long, value_name = "N")]
    pub(crate) depth: Option<usize>,
    /// Only events from A to B: 10%,90% or +1.5s,-2s
    ///
    /// 12.5 is a time on the trace's clock in seconds (ticks where it counts those), +1.5s after the first event, -2s before the
    /// last one, 10% of the way between them. Either side may be empty. Units: ns, us, ms, s, min (or m), h; 1h30m is one time.
    #[arg(long, value_name = "A,B", allow_hyphen_values = true)]
    pub(crate) time: Option<TimeWindow>,
    /// table (default), json, jsonl or csv
    #[arg(long, value_enum, hide_possible_values = true)]
    pub(crate) format: Option<Format>,
    /// Write to this file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// zstd level [default: 9]
    #[arg(long, value_name = "N")]
    pub(crate) level: Option<i32>,
    #[command(flatten)]
    pub(crate) filters: Filters,
    #[command(flatten)]
    pub(crate) names: NameArgs,
    /// Show the recorder's own allocations, too
    #[arg(long, help_heading = "Filters", hide_short_help = true)]
    pub(crate) own: bool,
    /// Overwrite the output file; pack: take files without an end block
    #[arg(short, long, help_heading = "Output", hide_short_help = true)]
    pub(crate) force: bool,
    /// Colours of tables: auto (on a terminal), always or never
    ///
    /// NO_COLOR and CLICOLOR_FORCE count where the option is not given.
    #[arg(
        long,
        value_enum,
        value_name = "WHEN",
        default_value = "auto",
        hide_possible_values = true,
        hide_default_value = true,
        help_heading = "Output",
        hide_short_help = true
    )]
    pub(crate) color: Color,
    /// Columns of the screen; tests need no terminal
    #[arg(long, value_name = "N", hide = true)]
    pub(crate) width: Option<usize>,
    /// Exact bytes in tables
    #[arg(long, help_heading = "Output", hide_short_help = true)]
    pub(crate) bytes: bool,
    /// Print object addresses in tables
    #[arg(long, help_heading = "Output", hide_short_help = true)]
    pub(crate) show_addresses: bool,
    /// No progress line on a terminal
    #[arg(short, long, help_heading = "Output", hide_short_help = true)]
    pub(crate) quiet: bool,
    /// Print on standard error how the index was used, and the time of each stage
    #[arg(short, long, help_heading = "Output", hide_short_help = true)]
    pub(crate) verbose: bool,
    /// Refuse a trace that is lossy, truncated or corrupt (exit status 3)
    #[arg(long, help_heading = "Limits", hide_short_help = true)]
    pub(crate) strict: bool,
    /// Threads to use [default: one for each CPU]
    #[arg(short, long, value_name = "N", help_heading = "Limits", hide_short_help = true)]
    pub(crate) jobs: Option<NonZero<usize>>,
    /// Memory limit, beyond which the report stops with a message: 512M, 1.5G [default: a quarter of what is free, at least 256M]
    #[arg(long, value_name = "SIZE", value_parser = size, help_heading = "Limits", hide_short_help = true)]
    pub(crate) max_memory: Option<u64>,
    /// Neither use nor write the index beside a large trace (report.index), which makes the next report start at once
    #[arg(long, help_heading = "Limits", hide_short_help = true)]
    pub(crate) no_index: bool,
    /// Events of one window of the analysis; tests make it small
    #[arg(long, value_name = "N", hide = true)]
    pub(crate) window_events: Option<usize>,
    /// Limit of size classes, each kept once for all its objects; tests make it small
    #[arg(long, value_name = "N", hide = true)]
    pub(crate) sized_classes: Option<u32>,
    /// Least size of a trace with an index, in bytes; tests make it small
    #[arg(long, value_name = "SIZE", value_parser = size, default_value_t = kmemtrace::cache::PAYS_FROM, hide = true)]
    pub(crate) index_from: u64,
}

fn size(text: &str) -> Result<u64, String> {
    parse_size(text).ok_or_else(|| "a size is bytes, or a number with a unit: 512M, 1.5GiB, 64k".to_owned())
}

/// Parses `10` and `2.5%`: a percentage that is not negative.
fn percent(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').unwrap_or(text).parse::<f64>().ok();
    number
        .filter(|n| n.is_finite() && *n >= 0.0)
        .ok_or_else(|| "a percentage is a number from 0 on: 10 or 2.5".to_owned())
}

fn pid(text: &str) -> Result<i32, String> {
    text.parse().map_err(|_| "a thread id is a number; --comm takes names of commands".to_owned())
}

fn class_parser() -> impl TypedValueParser<Value = Finding> {
    let names = Finding::ALL.map(Finding::name);
    PossibleValuesParser::new(names).try_map(|text| {
        Finding::ALL.into_iter().find(|class| class.name() == text).ok_or("there is no such class of findings")
    })
}

fn kind_parser() -> impl TypedValueParser<Value = Kind> {
    PossibleValuesParser::new(Kind::ALL.map(Kind::name)).try_map(|text| parse_kind(&text))
}

fn context_parser() -> impl TypedValueParser<Value = Context> {
    PossibleValuesParser::new(Context::ALL.map(Context::name)).try_map(|text| text.parse::<Context>())
}

/// Filters on objects. Options are ANDed, the values of one option are ORed.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Filters")]
pub(crate) struct Filters {
    /// Only allocations by these thread ids
    #[arg(long, value_name = "PID,...", value_delimiter = ',', value_parser = pid, hide_short_help = true)]
    pub(crate) pid: Vec<i32>,
    /// Only allocations by these commands (* and ? allowed)
    #[arg(long, value_name = "COMM,...", value_delimiter = ',', hide_short_help = true)]
    pub(crate) comm: Vec<Glob>,
    /// Only call-sites in these modules (* and ? allowed)
    #[arg(long, value_name = "MODULE,...", value_delimiter = ',', hide_short_help = true)]
    pub(crate) module: Vec<Glob>,
    /// Only objects of these caches (* and ? allowed)
    #[arg(long, value_name = "CACHE,...", value_delimiter = ',', hide_short_help = true)]
    pub(crate) cache: Vec<Glob>,
    /// Only these call-sites: foo_open, foo_*, foo_open+0x3c or 0xffffffff81000100
    #[arg(long, value_name = "SITE,...", value_delimiter = ',', hide_short_help = true)]
    pub(crate) site: Vec<Site>,
    /// Only these kinds of objects
    #[arg(long, value_name = "KIND,...", value_delimiter = ',', value_parser = kind_parser(), hide_short_help = true)]
    pub(crate) kind: Vec<Kind>,
    /// Only objects of these requested sizes: 512, 1K..4K, 1.5M.., ..64
    #[arg(long, value_name = "A..B,...", value_delimiter = ',', hide_short_help = true)]
    pub(crate) size: Vec<SizeRange>,
    /// Only allocations in these contexts of the kernel
    #[arg(long, value_name = "CONTEXT,...", value_delimiter = ',', value_parser = context_parser(), hide_short_help = true)]
    pub(crate) context: Vec<Context>,
    /// Only call-sites in these folders or files of the kernel's sources: fs/ext4
    #[arg(short, long, value_name = "FOLDER,...", value_delimiter = ',', hide_short_help = true)]
    pub(crate) branch: Vec<Branch>,
}

/// Sources of names beside the trace.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Names")]
pub(crate) struct NameArgs {
    /// Kernel with debug information [default: searched for by build-id and release]
    ///
    /// The vmlinux of the very kernel that the trace is of, as a distribution's debug package has it. The report checks it: another
    /// build's is refused.
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub(crate) vmlinux: Option<PathBuf>,
    /// Folder that is searched for debug information first; may be repeated
    #[arg(long, value_name = "DIR", hide_short_help = true)]
    pub(crate) debug_dir: Vec<PathBuf>,
    /// Built tree of the kernel: source files of functions, and static sizes
    #[arg(short, long, value_name = "TREE", hide_short_help = true)]
    pub(crate) kernel: Option<PathBuf>,
    /// Map of functions to source files, made by the command names
    #[arg(long = "names", value_name = "FILE", hide_short_help = true)]
    pub(crate) map: Option<PathBuf>,
    /// Functions that allocate for their callers, a name a line; none: no function
    #[arg(long, value_name = "FILE|none", hide_short_help = true)]
    pub(crate) wrappers: Option<PathBuf>,
    /// Areas of source files: the kernel's MAINTAINERS, or lines of area, tab and pattern
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub(crate) areas: Option<PathBuf>,
}

impl Filters {
    /// Filters as the library takes them.
    pub(crate) fn select(&self) -> Select {
        let Filters { pid, comm, module, cache, site, kind, size, context, branch } = self.clone();
        Select { pid, comm, module, cache, site, kind, size, context, branch }
    }
}

/// Output formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Aligned table for people
    Table,
    /// One JSON document
    Json,
    /// JSON Lines, one object a line
    Jsonl,
    /// Comma-separated rows
    Csv,
}

/// Forms of an account.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Style {
    /// Callers by live bytes, with the frees of their objects: as trace_analyze writes it
    #[default]
    TraceAnalyze,
    /// Callers by all bytes, with the frees that they made: as slab_account writes it
    SlabAccount,
    /// Callers, their live bytes and their object files, without a heading
    Callers,
}

/// Shapes of pictures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum ChartShape {
    /// Rings around the root, angles by size
    #[default]
    Rings,
    /// Rectangles within rectangles, areas by size
    Treemap,
    /// Rows below the root, widths by size
    Icicle,
}

/// Formats of `export`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportTo {
    /// Profile of go tool pprof, Perfetto, speedscope, Parca, Pyroscope
    Pprof,
    /// Folded stacks of flame graph tools and speedscope
    Folded,
    /// Tracks of live bytes and events for Perfetto
    Perfetto,
    /// Table of call-sites for DuckDB, Spark, Trino, ClickHouse
    ParquetSites,
    /// Table of objects
    ParquetObjects,
    /// Table of events
    ParquetEvents,
    /// Events as JSON Lines
    Jsonl,
    /// Events as comma-separated rows
    Csv,
}

/// Figures that folded stacks are weighted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Weight {
    /// Number of allocations
    Allocs,
    /// Bytes handed out, over all allocations
    Allocated,
    /// Bytes lost to internal fragmentation, over all allocations
    Wasted,
    /// Bytes live at the end
    Live,
}

/// Use of colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    /// On a terminal
    #[default]
    Auto,
    /// In files and pipes, too
    Always,
    /// Nowhere
    Never,
}

/// Filters and time window as the user gave them.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    /// Options of filters and their values.
    pub(crate) filters: Vec<(&'static str, Vec<String>)>,
    /// `--time`.
    pub(crate) time: Option<String>,
}

impl Asked {
    /// Filters and window among the arguments.
    pub(crate) fn of(matches: &ArgMatches) -> Asked {
        let given = |id: &str| -> Option<Vec<String>> {
            Some(matches.get_raw(id)?.map(|value| value.to_string_lossy().into_owned()).collect())
        };
        let filters = ["pid", "comm", "module", "cache", "site", "kind", "size", "context", "branch"];
        Asked {
            filters: filters.into_iter().filter_map(|id| Some((id, given(id)?))).collect(),
            time: given("time").map(|values| values.join(",")),
        }
    }
}

/// Keys of `--by`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum GroupBy {
    /// Call-site of the allocation
    Site,
    /// Thread: its id and its command
    Task,
    /// Thread id
    Pid,
    /// Command of the thread
    Comm,
    /// Slab cache, or size class of kmalloc
    Cache,
    /// Module of the call-site
    Module,
    /// Requested bytes
    Size,
    /// Flags of the allocation, by the kernel's names
    Gfp,
    /// NUMA node that the caller asked for
    Node,
    /// Context: task, softirq, hardirq or nmi
    Context,
    /// Function that asked for the memory, whatever its place in the function
    Function,
    /// Line of the kernel's sources that asked for the memory
    Source,
    /// Source file of that line
    File,
    /// Folder of the source file
    Folder,
    /// Area of the source file, with --areas
    Area,
}

/// Sort keys, greatest first (names: smallest first).
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SortBy {
    /// Bytes lost to internal fragmentation, over all allocations
    Wasted,
    /// Bytes lost to internal fragmentation by objects live at the end
    #[value(name = "live_wasted", alias = "waste")]
    LiveWasted,
    /// Bytes live at the end
    #[value(alias = "current_dynamic")]
    Live,
    /// Greatest number of live bytes
    Peak,
    /// Allocated bytes, over all allocations
    #[value(aliases = ["allocated", "total_dynamic"])]
    Total,
    /// Requested bytes, over all allocations
    Requested,
    /// Number of allocations
    #[value(alias = "alloc_count")]
    Allocs,
    /// Number of observed frees
    #[value(alias = "free_count")]
    Frees,
    /// Number of frees on another CPU than the allocation's
    Cross,
    /// Live bytes gained over the recording
    Growth,
    /// Bytes of functions and objects in the kernel's image
    Static,
    /// Static and live bytes
    Current,
    /// Time of the first allocation
    Time,
    /// Name of the row: call-site, cache or group
    #[value(alias = "cache")]
    Site,
}

impl Args {
    /// Form of the account.
    pub(crate) fn account_style(&self) -> AccountStyle {
        self.style.unwrap_or_default().style()
    }

    /// Query whose rows are made of the keys of `--by`, else of call-sites.
    pub(crate) fn grouped(&self) -> Query {
        let keys: Vec<GroupKey> = self.by.iter().map(|by| by.key()).collect();
        if keys.is_empty() { Query::by_site() } else { Query::by(&keys) }
    }
}

impl Style {
    /// Style of the library.
    pub(crate) fn style(self) -> AccountStyle {
        match self {
            Style::TraceAnalyze => AccountStyle::TraceAnalyze,
            Style::SlabAccount => AccountStyle::SlabAccount,
            Style::Callers => AccountStyle::Callers,
        }
    }
}

impl Args {
    /// Options of a tree.
    pub(crate) fn tree(&self) -> TreeOptions {
        let on_terminal = self.output.is_none() && self.format.is_none() && std::io::stdout().is_terminal();
        TreeOptions {
            // Areas that were given are meant, whatever else is not said.
            by_area: self.by.first() == Some(&GroupBy::Area) || (self.by.is_empty() && self.names.areas.is_some()),
            depth: self.depth.or(on_terminal.then_some(TREE_DEPTH_ON_TERMINAL)),
            branches: self.filters.branch.clone(),
        }
    }
}

impl GroupBy {
    /// Key of the library.
    pub(crate) fn key(self) -> GroupKey {
        match self {
            GroupBy::Site => GroupKey::Site,
            GroupBy::Function => GroupKey::Function,
            GroupBy::Source => GroupKey::Source,
            GroupBy::File => GroupKey::File,
            GroupBy::Folder => GroupKey::Folder,
            GroupBy::Area => GroupKey::Area,
            GroupBy::Task => GroupKey::Task,
            GroupBy::Pid => GroupKey::Pid,
            GroupBy::Comm => GroupKey::Comm,
            GroupBy::Cache => GroupKey::Cache,
            GroupBy::Module => GroupKey::Module,
            GroupBy::Size => GroupKey::Size,
            GroupBy::Gfp => GroupKey::Gfp,
            GroupBy::Node => GroupKey::Node,
            GroupBy::Context => GroupKey::Context,
        }
    }
}

impl SortBy {
    /// Key of the library; `None` for an order that rows of figures do not have.
    pub(crate) fn key(self) -> Option<SortKey> {
        Some(match self {
            SortBy::Wasted => SortKey::Wasted,
            SortBy::LiveWasted => SortKey::LiveWasted,
            SortBy::Live => SortKey::Live,
            SortBy::Peak => SortKey::Peak,
            SortBy::Total => SortKey::Allocated,
            SortBy::Requested => SortKey::Requested,
            SortBy::Allocs => SortKey::Allocs,
            SortBy::Frees => SortKey::Frees,
            SortBy::Cross => SortKey::Cross,
            SortBy::Site => SortKey::Site,
            SortBy::Growth => SortKey::Growth,
            SortBy::Static => SortKey::Static,
            SortBy::Current => SortKey::Current,
            SortBy::Time => return None,
        })
    }
}
