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
    /// Prints static sizes, which need no trace.
    Static,
    /// Makes a map of functions to source files.
    Names,
    /// Writes a page for browsers.
    Page,
    /// Draws a tree.
    Chart,
    /// Does what the old program's command line asks for.
    TraceAnalyze,
    /// Writes a file for other programs.
    Export,
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
    "branch",
    "vmlinux",
    "debug-dir",
    "kernel",
    "names",
    "wrappers",
    "areas",
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

/// Options of text, which pages, pictures and exported files do not have.
const OF_TEXT: &[&str] = &["format", "bytes", "show-addresses", "color", "width"];

const ALL_GROUPINGS: &[GroupBy] = &[
    GroupBy::Site,
    GroupBy::Source,
    GroupBy::Function,
    GroupBy::File,
    GroupBy::Folder,
    GroupBy::Area,
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
pub(crate) static VIEWS: [View; 18] = [
    SUMMARY,
    SITES,
    TREE,
    CACHES,
    MISMATCH,
    LIVE,
    CROSS,
    COMPARE,
    GROWTH,
    ACCOUNT,
    EVENTS,
    STATIC,
    NAMES,
    HTML,
    CHART,
    EXPORT,
    TRACE_ANALYZE,
    PACK,
];

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
    options: &["by", "sort", "top", "inlines"],
    groupings: ALL_GROUPINGS,
    sort_keys: FIGURES,
    run: Run::Document {
        query: |_, args| args.grouped(),
        document: |analysis, shape, _| documents::sites(analysis, shape),
    },
};

const TREE: View = View {
    name: "tree",
    alias: None,
    meaning: "Folders of the kernel's sources, down to call-sites",
    help: "\
Figures of each folder of the kernel's sources, of the files in it, their functions and call-sites. Source files come from debug \
information, from a built tree (-k) or from a map (--names); without any, call-sites are sorted into modules. The sort key sizes the \
nodes and is the first column. Objects of kmalloc and of caches count; --kind pages makes a tree of pages.",
    examples: &[
        ("tree --depth 2 DIR", "folders of two levels"),
        ("tree --branch fs/ext4 DIR", "one folder, with its functions"),
        ("tree --by area --areas linux/MAINTAINERS DIR", "areas of the kernel's maintainers"),
    ],
    options: &["by", "sort", "top", "depth"],
    groupings: &[GroupBy::Folder, GroupBy::Area],
    sort_keys: &[
        SortBy::Live,
        SortBy::Wasted,
        SortBy::LiveWasted,
        SortBy::Total,
        SortBy::Allocs,
        SortBy::Frees,
        SortBy::Static,
        SortBy::Current,
    ],
    run: Run::Document {
        query: |_, _| Query::by_site().with_static_sizes(true),
        document: |analysis, shape, args| documents::tree(analysis, shape, &args.tree()),
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
    options: &["by", "objects", "sort", "top", "inlines"],
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

const ACCOUNT: View = View {
    name: "account",
    alias: None,
    meaning: "Callers as trace_analyze and slab_account list them",
    help: "\
Callers and their sums over kmalloc and cache objects, in the text that other programs print and scripts read. --kind pages accounts for \
pages instead. Greatest live bytes come first, in slab-account greatest bytes of all allocations; ties go by name. A verdict that is not \
complete stands on standard error.",
    examples: &[
        ("account --sort live_wasted -o account.txt DIR", "callers whose live objects waste most"),
        ("account --style slab-account DIR", "frees count for the callers that made them"),
    ],
    options: &["style", "sort"],
    groupings: &[],
    sort_keys: &[
        SortBy::Live,
        SortBy::LiveWasted,
        SortBy::Total,
        SortBy::Wasted,
        SortBy::Requested,
        SortBy::Allocs,
        SortBy::Frees,
        SortBy::Site,
    ],
    run: Run::Document {
        query: |_, args| Query::by_site().with_free_sites(args.account_style().counts_frees_made()),
        document: |analysis, shape, args| {
            // The form has an order of its own where none is asked for.
            let shape = if args.sort.is_empty() { &Shape::default() } else { shape };
            documents::account(analysis, shape, args.account_style())
        },
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

const STATIC: View = View {
    name: "static",
    alias: None,
    meaning: "Bytes of functions and objects by folder; no trace",
    help: "\
Bytes of the kernel's functions and objects by folder and file of its sources, split into code, read-only data, data and zeros, and \
of these what the kernel gives back once it has started. TREE is a built tree: its objects that have a source count, but not those of \
scripts and tools. VMLINUX is the linked kernel with debug information.",
    examples: &[
        ("static --depth 2 linux-6.1", "a built tree, two levels of folders"),
        ("static --format json vmlinux", "all files of a kernel"),
    ],
    options: &["depth", "top", "format", "output", "force", "bytes", "color", "width"],
    groupings: &[],
    sort_keys: &[],
    run: Run::Static,
};

const NAMES: View = View {
    name: "names",
    alias: None,
    meaning: "Makes a map of functions to files, for --names",
    help: "\
Writes which source file has each function of a kernel with debug information, and of the modules in DIR. The map is small, and serves \
other builds of the series, too.",
    examples: &[("names -o 6.1.names vmlinux /lib/modules/6.1", "the kernel and its modules")],
    options: &["output", "force"],
    groupings: &[],
    sort_keys: &[],
    run: Run::Names,
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
    options: &["by"],
    groupings: &[GroupBy::Folder, GroupBy::Area],
    sort_keys: &[],
    run: Run::Page,
};

const CHART: View = View {
    name: "chart",
    alias: None,
    meaning: "A picture of the tree, as SVG or PNG",
    help: "\
Draws the folders of the kernel's sources, their files and functions, sized by the sort key: rings around the root, a treemap or an \
icicle. The end of the file's name, .svg or .png, is its form. What is too small to be seen is one striped piece, named other. In SVG the \
pointer tells name, size and share of each piece.",
    examples: &[
        ("chart -o live.svg DIR", "rings of live memory"),
        ("chart --shape treemap --sort wasted -o wasted.png DIR", "a treemap of wasted memory"),
        ("chart --branch fs -o fs.png DIR", "one folder"),
    ],
    options: &["shape", "by", "sort", "depth"],
    groupings: &[GroupBy::Folder, GroupBy::Area],
    sort_keys: &[
        SortBy::Live,
        SortBy::Wasted,
        SortBy::LiveWasted,
        SortBy::Total,
        SortBy::Allocs,
        SortBy::Frees,
        SortBy::Static,
        SortBy::Current,
    ],
    run: Run::Chart,
};

const TRACE_ANALYZE: View = View {
    name: "trace-analyze",
    alias: None,
    meaning: "The command line of trace_analyze",
    help: "\
Takes the options of trace_analyze.py with the meanings that they had, on recordings and saved documents: -f, -o and --cache mean \
something else in the other views. Files are overwritten, as they were. Text logs of ftrace are not read yet.",
    examples: &[
        ("trace-analyze -f DIR -c account.txt -o waste", "an account file"),
        ("trace-analyze -k linux -f DIR -r rings.png -a current", "rings of static and live memory"),
        ("trace-analyze -f DIR --save-db db", "a document for --db-file"),
    ],
    options: &[],
    groupings: &[],
    sort_keys: &[],
    run: Run::TraceAnalyze,
};

const EXPORT: View = View {
    name: "export",
    alias: None,
    meaning: "Files that other programs open",
    help: "\
Writes the recording, or its figures, in the format of another program: a file that is whole or not there. The verdict stands on \
standard error, and in the file where its format has room for it.",
    examples: &[
        ("export --to pprof -o kmem.pb.gz DIR", "for go tool pprof"),
        ("export --to folded --weight live -o live.folded DIR", "stacks for flame graph tools"),
        ("export --to perfetto -o kmem.pftrace DIR", "live bytes and events over time, for ui.perfetto.dev"),
        ("export --to parquet-sites -o web-1.parquet DIR", "a table for DuckDB and Spark"),
    ],
    options: &["to", "weight", "host", "show-addresses"],
    groupings: &[],
    sort_keys: &[],
    run: Run::Export,
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
            Run::Static | Run::Names | Run::TraceAnalyze | Run::Pack => false,
            Run::Page | Run::Chart | Run::Export => COMMON.contains(&option) && !OF_TEXT.contains(&option),
            _ => COMMON.contains(&option),
        };
        is_common || self.options.contains(&option)
    }
}
