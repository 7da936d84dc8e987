//! Table of views: for each view its words for people, its options, its query and its document.
//!
//! A new view is an entry of [`VIEWS`], a document in the library with a variant of its body, and a table of it in `render`. Help,
//! completions, man pages and `docs/views.md` take all that they say from this table.

use kmemtrace::documents::{self, Document};
use kmemtrace::{Analysis, Query, Shape};

use crate::args::{Args, Format, GroupBy, SortBy};

/// View of a trace, or another command that takes one.
pub(crate) struct View {
    /// Name, as in the document's `schema`.
    pub(crate) name: &'static str,
    /// Second name on the command line.
    pub(crate) alias: Option<&'static str>,
    /// Meaning in one line.
    pub(crate) meaning: &'static str,
    /// Paragraphs of the long help.
    pub(crate) help: &'static str,
    /// Command lines to try, without the program's name, each with a comment.
    pub(crate) examples: &'static [(&'static str, &'static str)],
    /// Options beside [`COMMON`], by their long names.
    pub(crate) options: &'static [&'static str],
    /// Words of `--by`; the first is the default.
    pub(crate) groupings: &'static [GroupBy],
    /// Words of `--sort`; the first is the default.
    pub(crate) sort_keys: &'static [SortBy],
    /// Work that it does.
    pub(crate) run: Run,
}

/// Work of a command.
#[derive(Clone, Copy)]
pub(crate) enum Run {
    /// Prints one document.
    Document {
        /// Query, for an output format.
        query: fn(Format, &Args) -> Query,
        /// Document of the analysis.
        document: for<'a> fn(&'a Analysis, &Shape, &Args) -> Document<'a>,
    },
    /// Prints events, a line each.
    Events,
    /// Compares two traces, or two windows of one.
    Compare,
    /// Writes a page for browsers.
    Page,
    /// Makes a smaller copy of the recording.
    Pack,
}

/// Options of every view, by their long names; `pack` is no view.
pub(crate) const COMMON: &[&str] = &[
    "format",
    "output",
    "force",
    "time",
    "pid",
    "comm",
    "module",
    "cache",
    "site",
    "kind",
    "size",
    "context",
    "own",
    "bytes",
    "show-addresses",
    "color",
    "width",
    "jobs",
    "max-memory",
    "no-index",
    "verbose",
    "quiet",
    "strict",
    "window-events",
    "sized-classes",
    "index-from",
];

/// Those of them that a page does not have: they shape text.
const OF_TEXT: &[&str] = &["format", "bytes", "show-addresses", "color", "width"];

const ALL_GROUPINGS: &[GroupBy] = &[
    GroupBy::Site,
    GroupBy::Task,
    GroupBy::Pid,
    GroupBy::Comm,
    GroupBy::Cache,
    GroupBy::Module,
    GroupBy::Size,
    GroupBy::Gfp,
    GroupBy::Node,
    GroupBy::Context,
];

/// Sort keys that every row of figures has.
const FIGURES: &[SortBy] = &[
    SortBy::Wasted,
    SortBy::LiveWasted,
    SortBy::Live,
    SortBy::Peak,
    SortBy::Total,
    SortBy::Requested,
    SortBy::Allocs,
    SortBy::Frees,
    SortBy::Cross,
    SortBy::Site,
];

/// Commands, in the order of help; the first view is the default.
pub(crate) static VIEWS: [View; 11] =
    [SUMMARY, SITES, CACHES, MISMATCH, LIVE, CROSS, COMPARE, GROWTH, EVENTS, HTML, PACK];

const SUMMARY: View = View {
    name: "summary",
    alias: None,
    meaning: "Verdict, totals of each kind, what to look at first",
    help: "\
Totals of kmalloc, cache and page objects, the call-sites that rank first, and the number of findings. The first line is the verdict: \
complete, lossy (events were lost), truncated or corrupt.

This is the view of a command line that names none.",
    examples: &[("", "the summary of ./kmemtrace.data"), ("summary --time 10%,90% DIR", "without start and end of the recording")],
    options: &["fail-on", "explain"],
    groupings: &[],
    sort_keys: &[],
    run: Run::Document {
        // Only the table shows call-sites.
        query: |format, _| if format == Format::Table { Query::by_site() } else { Query::by_kind() },
        document: |analysis, shape, _| documents::summary(analysis, shape),
    },
};

const SITES: View = View {
    name: "sites",
    alias: Some("callsites"),
    meaning: "Rows of call-sites, tasks, modules, sizes and more",
    help: "\
Figures for each group of allocations: by default for each call-site, which is the place in the kernel that asked for the memory. \
Each kind of object has a row of its own. --by groups by other keys, or by several at once.",
    examples: &[
        ("sites --sort live --top 10 DIR", "call-sites that hold most memory at the end"),
        ("sites --by comm,site DIR", "call-sites of each command"),
    ],
    options: &["by", "sort", "top"],
    groupings: ALL_GROUPINGS,
    sort_keys: FIGURES,
    run: Run::Document {
        query: |_, args| args.grouped(),
        document: |analysis, shape, _| documents::sites(analysis, shape),
    },
};

const CACHES: View = View {
    name: "caches",
    alias: None,
    meaning: "Rows of slab caches and kmalloc sizes",
    help: "\
Figures for each slab cache. Objects of kmalloc count under their size class, such as kmalloc-1k. Kernels 6.1 to 6.17 name the cache \
in frees alone: there a first pass over the trace learns which cache each call-site allocates from.",
    examples: &[("caches --sort live DIR", "caches that hold most memory at the end")],
    options: &["sort", "top"],
    groupings: &[],
    sort_keys: FIGURES,
    run: Run::Document {
        query: |_, _| Query::by_cache(),
        document: |analysis, shape, _| documents::caches(analysis, shape),
    },
};

const MISMATCH: View = View {
    name: "mismatch",
    alias: None,
    meaning: "Frees that do not match their allocations",
    help: "\
Findings about pairs of allocation and free, by class and by the two call-sites. A finding is suspect where a lost event may explain \
it, and unseen where objects of the same call-site are freed on a path without events. The rest are errors: bugs in the kernel, as far \
as this trace can tell.",
    examples: &[
        ("mismatch --class kind_mismatch DIR", "one class alone"),
        ("mismatch --fail-on kind_mismatch,cache_mismatch DIR", "exit status 1 where there are errors"),
        ("--explain free_after_free", "the kernel's reason for a class"),
    ],
    options: &["top", "all", "class", "fail-on", "explain"],
    groupings: &[],
    sort_keys: &[],
    run: Run::Document {
        query: |_, _| Query::by_site(),
        document: |analysis, shape, args| documents::mismatch(analysis, shape, &args.class),
    },
};

const LIVE: View = View {
    name: "live",
    alias: None,
    meaning: "Memory still allocated at the end: who leaks",
    help: "\
Objects that were allocated in the recording and not freed in it, by call-site: number, bytes, age and growth. --objects lists the \
objects one by one, oldest first. A row marked <= is an upper bound: objects of it are also freed on a path without events.",
    examples: &[
        ("live --by comm DIR", "commands that hold memory"),
        ("live --objects --site foo_open DIR", "each object of one function"),
    ],
    options: &["by", "objects", "sort", "top"],
    groupings: ALL_GROUPINGS,
    sort_keys: &[SortBy::Live, SortBy::LiveWasted, SortBy::Growth, SortBy::Site],
    run: Run::Document {
        query: |_, args| {
            let query = if args.objects { Query::by_site() } else { args.grouped().with_growth(true) };
            query.with_live_objects(true)
        },
        document: |analysis, shape, args| {
            if args.objects { documents::live(analysis, shape) } else { documents::live_groups(analysis, shape) }
        },
    },
};

const CROSS: View = View {
    name: "cross",
    alias: None,
    meaning: "Objects freed on another CPU than their own",
    help: "\
Pairs whose free happened on another CPU than the allocation: a matrix of CPUs, and rows of call-sites.",
    examples: &[("cross --top 10 DIR", "the ten call-sites with most of them")],
    options: &["top"],
    groupings: &[],
    sort_keys: &[],
    run: Run::Document {
        query: |_, _| Query::by_site().with_cpu_matrix(true),
        document: |analysis, shape, _| documents::cross(analysis, shape),
    },
};

const COMPARE: View = View {
    name: "compare",
    alias: None,
    meaning: "Changes between two traces, or two windows of one",
    help: "\
Change of live bytes, allocated bytes and allocations from trace A to trace B, for each function and kind, the greatest change of live \
bytes first. Rows that only one side has are marked new or gone. With --before and --after the two sides are windows of one trace.",
    examples: &[
        ("compare old.data new.data", "two recordings"),
        ("compare --fail-over 10 old.data new.data", "exit status 1 where live bytes grew by more than 10%"),
        ("compare --before ,30% --after 70%, DIR", "begin and end of one recording"),
    ],
    options: &["by", "top", "before", "after", "fail-over"],
    groupings: &[GroupBy::Function, GroupBy::Cache],
    sort_keys: &[],
    run: Run::Compare,
};

const GROWTH: View = View {
    name: "growth",
    alias: None,
    meaning: "Live memory and allocations over the recording",
    help: "\
Live bytes at the end of each of at most 64 slices of the recording, and allocations in each slice: in total, and for the rows that \
grew most from the first slice to the last.",
    examples: &[("growth --by comm DIR", "commands that grow")],
    options: &["by", "top"],
    groupings: ALL_GROUPINGS,
    sort_keys: &[],
    run: Run::Document {
        query: |_, args| args.grouped().with_growth(true),
        document: |analysis, shape, _| documents::growth(analysis, shape),
    },
};

const EVENTS: View = View {
    name: "events",
    alias: None,
    meaning: "Every event and every gap, in order",
    help: "\
Each allocation, free and gap of the recording in one order over all CPUs. The verdict stands on standard error.",
    examples: &[("events --pid 4711 --time +1s,+2s DIR", "a second of one thread")],
    options: &["top"],
    groupings: &[],
    sort_keys: &[],
    run: Run::Events,
};

const HTML: View = View {
    name: "html",
    alias: None,
    meaning: "A page for browsers: pictures and tables in one file",
    help: "\
Verdict, totals, the tree of the kernel's sources as treemap, rings, icicle or table, live bytes over time, frees by CPU, requested sizes \
against what was handed out, and tables of call-sites, caches and mismatches. The page is one file that asks for nothing: it can be \
mailed, and opened without a network. Its tree has at most 20,000 nodes; smaller ones are folded, and the page says so.

Keys: arrows walk over the picture, Enter goes into a folder, Escape out of it. The address in the browser keeps what is shown.",
    examples: &[
        ("html -o page.html DIR", "a page of a recording"),
        ("html -o page.html --module ext4 DIR", "of what one module allocates"),
    ],
    options: &[],
    groupings: &[],
    sort_keys: &[],
    run: Run::Page,
};

const PACK: View = View {
    name: "pack",
    alias: None,
    meaning: "Stores a recording smaller; its events stay the same",
    help: "\
Compresses the blocks of a recording in place, with zstd. A file is replaced once its packed copy is whole and on the disk.",
    examples: &[("pack --level 19 DIR", "smaller and slower than the default level")],
    options: &["level", "force", "jobs", "quiet"],
    groupings: &[],
    sort_keys: &[],
    run: Run::Pack,
};

impl View {
    /// View of this name or alias.
    pub(crate) fn named(word: &str) -> Option<&'static View> {
        VIEWS.iter().find(|view| view.name == word || view.alias == Some(word))
    }

    /// True if the view takes the option of this long name.
    pub(crate) fn takes(&self, option: &str) -> bool {
        let is_common = match self.run {
            Run::Pack => false,
            Run::Page => COMMON.contains(&option) && !OF_TEXT.contains(&option),
            _ => COMMON.contains(&option),
        };
        is_common || self.options.contains(&option)
    }
}
