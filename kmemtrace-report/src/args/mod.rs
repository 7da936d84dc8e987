//! Options of the command line, with typed values.
//!
//! [`Args`] has the options of all views. Those under a heading of help are of every view; a view names the others that it takes.

mod choices;
mod filters;
mod keys;
mod memstrack;
mod top;
pub(crate) mod viewer;

use std::io::IsTerminal;
use std::num::NonZero;
use std::path::PathBuf;

use clap::Parser;
use clap::builder::PossibleValuesParser;

use kmemtrace::documents::AccountStyle;
use kmemtrace::documents::leaks::LeakOptions;
use kmemtrace_abi::clock::Clock;
use kmemtrace_abi::event::Span;
use kmemtrace_abi::kernel::release::Release;
use kmemtrace_abi::text::duration;
use kmemtrace_abi::text::size::{LARGE_SIZES, number_of_threads, parse_large, parse_page};

use kmemtrace::{
    Figure, Finding, GroupKey, ModuleRule, Moment, PlacedBy, Query, SortKey, TimeWindow, TreeOptions, parse_size,
};
use kmemtrace_abi::text::memstrack::Report as MemstrackReport;
use kmemtrace_sandbox::Mode;

pub(crate) use choices::one_of;
pub(crate) use choices::{ChartShape, Color, ExportTo, FailOn, Format, Style, TraceDatVersion, Weight};
pub(crate) use filters::{Asked, Filters};
pub(crate) use keys::{SortBy, Word};
pub(crate) use memstrack::ReportParser;
pub(crate) use top::TopArgs;
use viewer::ViewerArgs;

/// Levels of a tree on a terminal.
const TREE_DEPTH_ON_TERMINAL: usize = 2;
/// Levels of a tree of stacks on a terminal, below the frames of the entry into the kernel.
const STACK_DEPTH_ON_TERMINAL: usize = 3;

/// Options of all views.
#[derive(Debug, Parser)]
#[command(name = "kmemtrace-report")]
pub(crate) struct Args {
    /// Trace directory, or files out of one [default: ./kmemtrace.data]
    #[arg(value_name = "DIR|FILE", hide_short_help = true)]
    pub(crate) words: Vec<PathBuf>,
    /// Trace directory or file, as perf names it; may be repeated
    #[arg(
        short,
        long,
        value_name = "DIR|FILE",
        conflicts_with = "words",
        help_heading = "Limits",
        hide_short_help = true
    )]
    pub(crate) input: Vec<PathBuf>,
    /// Keys that group rows
    ///
    /// Several keys make a row for each combination of them.
    #[arg(long, value_name = "KEY,...", value_delimiter = ',')]
    pub(crate) by: Vec<GroupKey>,
    /// Keys that group blocks of page_owner, as page_owner_sort has them: pid tgid name stacktrace allocator free
    ///
    /// Or their letters: p tg n st ator f. Stacks are whole, and rows are sorted by the number of blocks where --sort names no key.
    #[arg(
        long,
        value_parser = keys::cull(),
        value_name = "KEY,...",
        value_delimiter = ',',
        conflicts_with = "by",
        hide_possible_values = true,
        hide_short_help = true
    )]
    pub(crate) cull: Vec<GroupKey>,
    /// Greatest of these first
    ///
    /// Rows that are equal by the first key are sorted by the next one. Names are sorted smallest first.
    #[arg(short, long, value_name = "KEY,...", value_delimiter = ',', allow_hyphen_values = true)]
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
    /// Show rows that are normal or not steady, too
    #[arg(long)]
    pub(crate) all: bool,
    /// Show the rows of each group
    #[arg(long)]
    pub(crate) parts: bool,
    /// Only findings of these classes
    #[arg(long, value_name = "CLASS,...", value_delimiter = ',', value_parser = one_of(&Finding::ALL, Finding::name), hide_possible_values = true)]
    pub(crate) class: Vec<Finding>,
    /// Exit with 1 if there are errors of these classes; of leaks: leak
    #[arg(long, value_name = "CLASS,...", value_delimiter = ',', value_parser = one_of(&FailOn::ALL, FailOn::name), hide_possible_values = true)]
    pub(crate) fail_on: Vec<FailOn>,
    /// Exit with 1 if live bytes of slab objects (kmalloc and cache) grew by more than P percent
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
    /// Print reports of memstrack in its own layouts: module_summary,task_top:top=5
    ///
    /// The reports are module_summary, module_top, task_summary, task_top, task_top_json and proc_slab_static. Each may have
    /// parameters: sort_by_alloc, sort_by_peak, throttle=PERCENT, top=NUMBER. They count pages.
    #[arg(
        long,
        value_name = "REPORT,...",
        value_delimiter = ',',
        value_parser = ReportParser,
        conflicts_with_all = ["format", "kind", "fail_on", "bytes", "show_addresses"],
        hide_short_help = true
    )]
    pub(crate) memstrack: Vec<MemstrackReport>,
    /// Rows to show [default: a screenful, else all]
    ///
    /// A last row sums up the rest. Of a tree: children of each node. A terminal that does not tell its height gets 20 rows.
    #[arg(short = 'n', long, value_name = "N")]
    pub(crate) top: Option<usize>,
    /// Show inlined functions, too
    #[arg(long)]
    pub(crate) inlines: bool,
    /// Format of the file
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub(crate) to: Option<ExportTo>,
    /// Figure that folded stacks are weighted by [default: wasted, of pages live]
    #[arg(long, value_enum, value_name = "FIGURE")]
    pub(crate) weight: Option<Weight>,
    /// Version of the trace.dat [default: 6]
    #[arg(long, value_enum, value_name = "VERSION", hide_short_help = true)]
    pub(crate) trace_dat_version: Option<TraceDatVersion>,
    /// Name of the host, in place of the recorded one
    #[arg(long, value_name = "NAME")]
    pub(crate) host: Option<String>,
    /// Keep the name of the host and the recorder's command line in the page
    #[arg(long)]
    pub(crate) with_host: bool,
    /// Levels below the root [default: 2 on a terminal, static: 1 in a table, else all]
    #[arg(long, value_name = "N")]
    pub(crate) depth: Option<usize>,
    /// Largest children that make up P percent
    #[arg(long, value_name = "P", value_parser = throttle)]
    pub(crate) throttle: Option<f64>,
    /// Module that an allocation belongs to: innermost (default), outermost, any or site
    ///
    /// innermost: that of the frame nearest to the allocation that is in a module, else the kernel; outermost: of the farthest one. any:
    /// each module of the stack, so that rows overlap. site: that of the call-site, which --module and sites go by. While a module
    /// loads, what its thread allocates belongs to it, but by site. Allocations without a stack belong to the module of their call-site.
    #[arg(long, value_name = "RULE", value_parser = one_of(&ModuleRule::ALL, ModuleRule::name), hide_possible_values = true, hide_short_help = true)]
    pub(crate) module_rule: Option<ModuleRule>,
    /// Figures at the peak of live bytes, or at a time
    ///
    /// A time is one side of --time: 12.5, +1.5s, -2s or 10%. For the peak the trace is read twice.
    #[arg(long, value_name = "peak|TIME", allow_hyphen_values = true, conflicts_with = "time", hide_short_help = true)]
    pub(crate) at: Option<Moment>,
    /// Rules for the use of pages, in place of the built-in ones
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub(crate) uses: Option<PathBuf>,
    /// Only spans, waits and calls of at least this duration: 134us, 5ms
    ///
    /// Units: ns, us, ms, s, min (or m), h; a number alone is seconds.
    #[arg(long, value_name = "TIME", value_parser = span_of_time)]
    pub(crate) threshold: Option<u64>,
    /// Only these kinds of spans: direct, memcg, shrinker
    ///
    /// Kinds are direct, memcg, softlimit, node, compaction, shrinker, throttled, kswapd, kcompactd, and the names of pairs of events
    /// that have no kind. Spans inside and around are found whatever is chosen.
    #[arg(long, value_name = "SPAN,...", value_delimiter = ',', value_parser = kind_of_span)]
    pub(crate) span: Vec<String>,
    /// List below each stall the events inside it
    #[arg(long)]
    pub(crate) timeline: bool,
    /// Print stalls as they end: of DIR, or - for a stream
    ///
    /// DIR is a recording that is being written; the stream is that of kmemtraced watch, on standard input. At the end come the totals and
    /// the shrinkers. Ctrl-C ends it.
    #[arg(long)]
    pub(crate) follow: bool,
    /// With --follow: print every span, not only stalls
    #[arg(long, requires = "follow")]
    pub(crate) all_spans: bool,
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
    /// Store blocks as the kernel wrote them, in format version 1, which older versions of kmemtrace read
    #[arg(long, conflicts_with = "level")]
    pub(crate) raw: bool,
    #[command(flatten)]
    pub(crate) live: TopArgs,
    #[command(flatten)]
    pub(crate) viewer: ViewerArgs,
    #[command(flatten)]
    pub(crate) filters: Filters,
    /// Show blocks of page_owner that were given back, too
    #[arg(long, help_heading = "Filters", hide_short_help = true)]
    pub(crate) released: bool,
    #[command(flatten)]
    pub(crate) of_text: TextArgs,
    #[command(flatten)]
    pub(crate) moment: MomentArgs,
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
    /// Print long tables without a pager
    ///
    /// Text that is longer than the terminal goes through KMEMTRACE_PAGER, else PAGER, else less; an empty value or cat is none. Under
    /// sudo it is less without commands, whatever the variables say.
    #[arg(long, help_heading = "Output", hide_short_help = true)]
    pub(crate) no_pager: bool,
    /// Width of tables in columns [default: that of the terminal; no limit in a file or pipe]
    #[arg(long, value_name = "N", help_heading = "Output", hide_short_help = true)]
    pub(crate) width: Option<usize>,
    /// Tables on standard output, as they always are: perf has other ways, too
    #[arg(long, help_heading = "Output", hide = true)]
    #[allow(dead_code, reason = "it asks for what is done without it")]
    pub(crate) stdio: bool,
    /// Exact bytes in tables
    #[arg(long, help_heading = "Output", hide_short_help = true)]
    pub(crate) bytes: bool,
    /// Print object addresses in tables
    #[arg(long, help_heading = "Output", hide_short_help = true)]
    pub(crate) show_addresses: bool,
    /// No progress line on a terminal
    #[arg(short, long, help_heading = "Output", hide_short_help = true)]
    pub(crate) quiet: bool,
    /// Print on standard error how the index was used, the time of each stage, and what the sandbox allows
    #[arg(short, long, help_heading = "Output", hide_short_help = true)]
    pub(crate) verbose: bool,
    /// Refuse a trace that is lossy, truncated or corrupt (exit status 3)
    #[arg(long, help_heading = "Limits", hide_short_help = true)]
    pub(crate) strict: bool,
    /// Threads to use [default: one for each CPU]
    #[arg(short, long, value_name = "N", value_parser = number_of_threads, help_heading = "Limits", hide_short_help = true)]
    pub(crate) jobs: Option<NonZero<usize>>,
    /// Memory limit, beyond which the report stops with a message: 512M, 1.5G; 1 to 4095 without a unit are MiB [default: a quarter
    /// of what is free, at least 256M]
    #[arg(long, value_name = "SIZE", value_parser = large_size, help_heading = "Limits", hide_short_help = true)]
    pub(crate) max_memory: Option<u64>,
    /// Sandbox around the reading of files: auto (what the kernel has), strict (all of it) or off
    ///
    /// It is closed before a byte of a trace is read: only the files that are named, and folders that names come from, can be opened;
    /// no network, no other programs. -v lists the folders, and what the kernel lacks. With strict, anything else ends the program.
    #[arg(
        long,
        value_parser = one_of(&Mode::ALL, Mode::name),
        value_name = "MODE",
        default_value = "auto",
        hide_possible_values = true,
        hide_default_value = true,
        help_heading = "Limits",
        hide_short_help = true
    )]
    pub(crate) sandbox: Mode,
    /// Neither use nor write the index beside a large trace (report.index), which makes the next report start at once
    #[arg(long, help_heading = "Limits", hide_short_help = true)]
    pub(crate) no_index: bool,
    /// Do not read ~/.config/kmemtrace/report.toml
    ///
    /// The file has values of options by their long names: top = 20, color = "never". A table with the name of a view, such as "sites", has
    /// those of that view. The command line wins. Under sudo it is not read.
    #[arg(long, help_heading = "Limits", hide_short_help = true)]
    pub(crate) no_config: bool,
    /// Events of one window of the analysis; tests make it small
    #[arg(long, value_name = "N", help_heading = "Limits", hide = true)]
    pub(crate) window_events: Option<usize>,
    /// Limit of size classes, each kept once for all its objects; tests make it small
    #[arg(long, value_name = "N", help_heading = "Limits", hide = true)]
    pub(crate) sized_classes: Option<u32>,
    /// Least size of a trace with an index, in bytes; tests make it small
    #[arg(long, value_name = "SIZE", value_parser = size, default_value_t = kmemtrace::PAYS_FROM, help_heading = "Limits", hide = true)]
    pub(crate) index_from: u64,
}

/// Facts that texts of events do not tell.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Texts of ftrace, trace-cmd and perf")]
pub(crate) struct TextArgs {
    /// Kernel that a text is of: 4.14.336
    ///
    /// It decides which frees are legal, and whether pointers are hashed.
    #[arg(long, value_name = "RELEASE", value_parser = release, hide_short_help = true)]
    pub(crate) release: Option<String>,
    /// Trace clock of a text's times: mono, local, x86-tsc, ... [default: unknown, findings over two CPUs are suspect]
    #[arg(
        long,
        value_name = "NAME",
        value_parser = PossibleValuesParser::new(Clock::NAMES),
        hide_possible_values = true,
        hide_short_help = true
    )]
    pub(crate) clock: Option<String>,
    /// Bytes of a page on the machine of a text [default: 4096]
    #[arg(long, value_name = "SIZE", value_parser = parse_page, hide_short_help = true)]
    pub(crate) page_size: Option<u64>,
    /// Ring buffer of a trace.dat, or of a text of trace-cmd, that has events of several; '' is the main one
    #[arg(long, value_name = "NAME", hide_short_help = true)]
    pub(crate) buffer: Option<String>,
    /// Formats of the events of a perf.data that perf has not finished: any trace of the same boot, or the directory events of its tracefs
    #[arg(long, value_name = "FILE|DIR", hide_short_help = true)]
    pub(crate) event_formats: Option<PathBuf>,
}

impl TextArgs {
    /// Options that were given, by their names.
    pub(crate) fn given(&self) -> impl Iterator<Item = &'static str> {
        let given = [
            ("--release", self.release.is_some()),
            ("--clock", self.clock.is_some()),
            ("--page-size", self.page_size.is_some()),
            ("--buffer", self.buffer.is_some()),
            ("--event-formats", self.event_formats.is_some()),
        ];
        given.into_iter().filter(|(_, is_given)| *is_given).map(|(name, _)| name)
    }
}

/// Facts that texts of one moment do not tell.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Texts that list memory at one moment")]
pub(crate) struct MomentArgs {
    /// Form of the text where its content does not show it: alloc_traces, free_traces, dump, slabinfo, ...
    #[arg(long, value_name = "FORM", hide_short_help = true)]
    pub(crate) form: Option<String>,
    /// Times of the texts, in their order: 2026-11-26T11:27:31Z, or seconds
    ///
    /// Without it the times come from a date in the texts, from the names of the files, or from their last change.
    #[arg(long, value_name = "A,B,...", value_delimiter = ',', hide_short_help = true)]
    pub(crate) times: Vec<String>,
    /// Cache that a text of alloc_traces is of [default: the folder of the file]
    #[arg(long, value_name = "NAME", hide_short_help = true)]
    pub(crate) cache_name: Option<String>,
    /// Bytes of an object of that cache [default: those in the name of a kmalloc cache]
    #[arg(long, value_name = "SIZE", value_parser = object_size, hide_short_help = true)]
    pub(crate) object_size: Option<u64>,
    /// File of an archive, or one of several texts: its name, the end of its name, or FILE:LINE
    #[arg(long, value_name = "NAME", hide_short_help = true)]
    pub(crate) member: Option<String>,
    /// OOM report among several, from 1 [default: the last one]
    #[arg(long, value_name = "N", hide_short_help = true)]
    pub(crate) report_number: Option<usize>,
}

impl MomentArgs {
    /// Options that were given, by their names.
    pub(crate) fn given(&self) -> impl Iterator<Item = &'static str> {
        let given = [
            ("--form", self.form.is_some()),
            ("--times", !self.times.is_empty()),
            ("--cache-name", self.cache_name.is_some()),
            ("--object-size", self.object_size.is_some()),
            ("--member", self.member.is_some()),
            ("--report-number", self.report_number.is_some()),
        ];
        given.into_iter().filter(|(_, is_given)| *is_given).map(|(name, _)| name)
    }
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
    /// Symbols in place of the trace's: a copy of /proc/kallsyms of the same boot, or System.map
    ///
    /// For a trace of a kernel that hides its symbols (kptr_restrict, no CAP_SYSLOG). The System.map of the same build is moved as the
    /// trace's kernel was at boot; where the trace does not tell how far, it is used as it is, if 99% of the call-sites lie behind its
    /// functions.
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub(crate) kallsyms: Option<PathBuf>,
    /// Modules in place of the trace's: a copy of /proc/modules of the same boot
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub(crate) proc_modules: Option<PathBuf>,
    /// Functions that allocate for their callers, a name a line; none: no function
    #[arg(long, value_name = "FILE|none", hide_short_help = true)]
    pub(crate) wrappers: Option<PathBuf>,
    /// Functions to pass over in stacks of pages beside the built-in allocators, a name a line
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub(crate) skip_frames: Option<PathBuf>,
    /// Areas of source files: the kernel's MAINTAINERS, or lines of area, tab and pattern
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub(crate) areas: Option<PathBuf>,
}

impl Args {
    /// Form of the account.
    pub(crate) fn account_style(&self) -> AccountStyle {
        self.style.unwrap_or_default().style()
    }

    /// Query whose rows are made of the keys of `--by`, else of call-sites.
    pub(crate) fn grouped(&self) -> Query {
        let keys = self.row_keys();
        if keys.is_empty() { Query::by_site() } else { Query::by(&keys) }
    }

    /// Keys of `--by` or `--cull`.
    pub(crate) fn row_keys(&self) -> Vec<GroupKey> {
        [&self.by[..], &self.cull].concat()
    }

    /// Rule of modules in views that are about them.
    pub(crate) fn rule_of_modules(&self) -> ModuleRule {
        self.module_rule.unwrap_or(ModuleRule::Innermost)
    }

    /// Query by these keys, with growth where rows are sorted by it, at the moment that was asked for.
    pub(crate) fn held_by(&self, keys: &[GroupKey]) -> Query {
        self.at_moment(Query::by(keys).module_rule(self.rule_of_modules()))
    }

    /// The query at the moment that was asked for, with growth where rows are sorted by it.
    fn at_moment(&self, query: Query) -> Query {
        let query = query.with_growth(self.sort.contains(&SortBy::Key(SortKey::Growth)));
        match self.at {
            Some(moment) => query.at(moment),
            None => query,
        }
    }

    /// Query of a tree of the kernel's sources. Outputs with all members have the peaks of its nodes, too, and the table where it is sorted
    /// by them: no index knows them.
    pub(crate) fn placed(&self, format: Format) -> Query {
        let query = self.at_moment(Query::by_site().with_static_sizes(true).with_slab_peak());
        let has_peaks = format != Format::Table || self.sort.contains(&SortBy::figure(Figure::PeakLiveAllocated));
        if has_peaks { query.with_place_nodes(self.tree().by == PlacedBy::Area) } else { query }
    }

    /// True for a tree over keys of allocations rather than over folders.
    pub(crate) fn is_key_tree(&self) -> bool {
        self.by.first().is_some_and(|by| ![GroupKey::Folder, GroupKey::Area].contains(by))
    }

    /// Options of leaks: a line of the table is a group, where its rows are not asked for.
    pub(crate) fn leaks(&self) -> LeakOptions {
        let is_table = self.format.is_none_or(|format| format == Format::Table);
        LeakOptions { all: self.all, limits_groups: is_table && !self.parts }
    }

    /// Options of a tree.
    pub(crate) fn tree(&self) -> TreeOptions {
        let on_terminal = self.output.is_none() && self.format.is_none() && std::io::stdout().is_terminal();
        // Areas that were given are meant, whatever else is not said.
        let is_by_area = self.by.first() == Some(&GroupKey::Area) || (self.by.is_empty() && self.names.areas.is_some());
        let usual_depth = if self.by == [GroupKey::Stack] { STACK_DEPTH_ON_TERMINAL } else { TREE_DEPTH_ON_TERMINAL };
        TreeOptions {
            by: if is_by_area { PlacedBy::Area } else { PlacedBy::Folder },
            space: None,
            depth: self.depth.or(on_terminal.then_some(usual_depth)),
            passes_entry: self.depth.is_none(),
            throttle: self.throttle,
            branches: self.filters.branch.clone(),
        }
    }
}

fn size(text: &str) -> Result<u64, String> {
    parse_size(text).ok_or_else(|| "a size is bytes, or a number with a unit: 512M, 1.5GiB, 64k".to_owned())
}

/// Parses the size of an object.
fn object_size(text: &str) -> Result<u64, String> {
    let size = size(text)?;
    (size > 0).then_some(size).ok_or_else(|| "an object has at least one byte".to_owned())
}

/// Parses a size that nobody means in single bytes.
fn large_size(text: &str) -> Result<u64, String> {
    parse_large(text).ok_or_else(|| LARGE_SIZES.to_owned())
}

/// Takes a kernel's release.
fn release(text: &str) -> Result<String, String> {
    let is_release = Release::parse(text).is_some();
    is_release.then(|| text.to_owned()).ok_or_else(|| "a release begins with its numbers: 4.14.336".to_owned())
}

/// Takes a kind of span, or the name of a pair of events without its end, which only the trace knows.
fn kind_of_span(text: &str) -> Result<String, String> {
    let kinds: Vec<&str> = Span::NAMED.iter().filter_map(|span| span.name()).collect();
    let ends = ["_begin", "_start", "_end"];
    let is_pair = text.contains('_') && !ends.iter().any(|end| text.ends_with(end));
    if is_pair || kinds.contains(&text) {
        return Ok(text.to_owned());
    }
    Err(format!(
        "kinds of spans are {}, and names of pairs of events without _begin, _start and _end",
        kinds.join(", ")
    ))
}

/// Parses a span of time.
fn span_of_time(text: &str) -> Result<u64, String> {
    let time = duration::parse(text).and_then(|time| u64::try_from(time).ok());
    time.ok_or_else(|| "a time is a number with a unit: 134us, 5ms, 1.5s".to_owned())
}

/// Parses `10` and `2.5%`: a percentage that is not negative.
fn percent(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').unwrap_or(text).parse::<f64>().ok();
    number
        .filter(|n| n.is_finite() && *n >= 0.0)
        .ok_or_else(|| "a percentage is a number from 0 on: 10 or 2.5".to_owned())
}

/// Parses a share of more than 0 to 100 percent: with 0 there would be no rows.
fn throttle(text: &str) -> Result<f64, String> {
    let number = percent(text).ok().filter(|n| *n > 0.0 && *n <= 100.0);
    number.ok_or_else(|| "a share is a number above 0 and up to 100: 80; without --throttle all are shown".to_owned())
}
