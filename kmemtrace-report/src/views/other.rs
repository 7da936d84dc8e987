//! Comparisons, lists, files for people and other programs, and commands that need no trace.

use kmemtrace::documents;
use kmemtrace::{Figure, GroupKey, Query, Shape, SortKey};

use super::view::{Run, TextNeeds, View};
use crate::args::SortBy;
use crate::columns;

pub(super) const COMPARE: View = View {
    name: "compare",
    meaning: "Changes between two traces, or two windows of one",
    help: "\
Change of live bytes, allocated bytes and allocations from trace A to trace B, for each function and kind, the greatest change of live \
bytes first. --by cache, stack, module, task and cgroup compare other rows; stacks are those of functions, whose offsets differ between \
kernels. Rows that only one side has are marked new or gone. With --before and --after the two sides are windows of one trace: live \
figures are those at the end of each window, of all objects that the recording has seen allocated before it; what is allocated and freed is \
that of the window.",
    examples: &[
        ("compare old.data new.data", "two recordings"),
        ("compare --fail-over 10 old.data new.data", "exit status 1 where live bytes grew by more than 10%"),
        ("compare --before ,30% --after 70%, DIR", "begin and end of one recording"),
        ("compare --by cgroup old.data new.data", "which containers hold more"),
    ],
    options: &["by", "top", "before", "after", "fail-over"],
    groupings: &[
        GroupKey::Function,
        GroupKey::Cache,
        GroupKey::Stack,
        GroupKey::Module,
        GroupKey::Task,
        GroupKey::Cgroup,
    ],
    sort_keys: &[],
    columns: &[("", &columns::COMPARE)],
    text: Some(TextNeeds::Nothing),
    run: Run::Compare,
};

pub(super) const ACCOUNT: View = View {
    name: "account",
    meaning: "Callers as trace_analyze and slab_account list them",
    help: "\
Callers and their sums over kmalloc and cache objects, in the text that other programs print and scripts read. --kind pages accounts for \
pages instead, and so does a recording of only pages. Greatest live bytes come first, in slab-account greatest bytes of all allocations; ties go by name. A verdict that is not \
complete stands on standard error.",
    examples: &[
        ("account --sort live_wasted -o account.txt DIR", "callers whose live objects waste most"),
        ("account --style slab-account DIR", "frees count for the callers that made them"),
    ],
    options: &["style", "sort"],
    groupings: &[],
    sort_keys: &[
        SortBy::figure(Figure::LiveAllocated),
        SortBy::figure(Figure::LiveWasted),
        SortBy::figure(Figure::Allocated),
        SortBy::figure(Figure::Wasted),
        SortBy::figure(Figure::Requested),
        SortBy::figure(Figure::Allocs),
        SortBy::figure(Figure::Frees),
        SortBy::Key(SortKey::Site),
    ],
    columns: &[
        ("--style trace-analyze", &columns::ACCOUNT_TRACE_ANALYZE),
        ("--style slab-account", &columns::ACCOUNT_SLAB),
        ("--style callers", &columns::ACCOUNT_CALLERS),
    ],
    text: Some(TextNeeds::Sites),
    run: Run::Document {
        query: |_, args| Query::by_site().with_free_sites(args.account_style().counts_frees_made()),
        document: |analysis, shape, args| {
            // The form has an order of its own where none is asked for.
            let shape = if args.sort.is_empty() { &Shape::default() } else { shape };
            documents::account(analysis, shape, args.account_style())
        },
    },
};

pub(super) const EVENTS: View = View {
    name: "events",
    meaning: "Every event and every gap, in order",
    help: "\
Each allocation, free and gap of the recording in one order over all CPUs. The verdict goes to standard error.",
    examples: &[("events --pid 4711 --time +1s,+2s DIR", "a second of one thread")],
    options: &["top"],
    groupings: &[],
    sort_keys: &[],
    columns: &[("", &columns::EVENTS)],
    text: Some(TextNeeds::Objects),
    run: Run::Events,
};

pub(super) const STATIC: View = View {
    name: "static",
    meaning: "Bytes of functions and objects by folder; no trace",
    help: "\
Bytes of the kernel's functions and objects by folder and file of its sources, split into code, read-only data, data and zeros, and \
of these what the kernel gives back once it has started. TREE is a built tree: its objects that have a source count, but not those of \
scripts and tools. VMLINUX is the linked kernel with debug information.",
    examples: &[
        ("static --depth 2 linux-6.1", "a built tree, two levels of folders"),
        ("static --branch fs/ext4 linux-6.1", "one folder"),
        ("static --format json vmlinux", "all files of a kernel"),
    ],
    options: &[
        "branch",
        "depth",
        "top",
        "format",
        "output",
        "force",
        "bytes",
        "color",
        "width",
        "max-memory",
        "verbose",
        "sandbox",
    ],
    groupings: &[],
    sort_keys: &[],
    columns: &[("folders", &columns::STATIC), ("sections", &columns::SECTIONS)],
    text: None,
    run: Run::Static,
};

pub(super) const NAMES: View = View {
    name: "names",
    meaning: "Makes a map of functions to files, for --names",
    help: "\
Writes which source file has each function of a kernel with debug information, and of the modules in DIR. The map is small, and serves \
other builds of the series, too.",
    examples: &[("names -o 6.1.names vmlinux /lib/modules/6.1", "the kernel and its modules")],
    options: &["output", "force", "max-memory", "verbose", "sandbox"],
    groupings: &[],
    sort_keys: &[],
    columns: &[],
    text: None,
    run: Run::Names,
};

pub(super) const HTML: View = View {
    name: "html",
    meaning: "A page for browsers: pictures and tables in one file",
    help: "\
Verdict, totals, leaks, stalls, a picture of who holds the memory (treemap, rings, icicle or table), live bytes over time, tasks, frees by \
CPU, requested sizes against what was handed out, and tables of call sites, caches and mismatches: those of them that were recorded. The \
page is one file that asks for nothing: it can be mailed, and opened without a network. It has the date and the kernel; --with-host adds \
the name of the host and the recorder's command line.

The picture groups by folder of the kernel's sources, module, task, cgroup or call stack, whichever the reader chooses there; --by chooses \
the first one. Without debug information that is the module. The first tree has at most 20,000 nodes, the others 2,000; smaller ones are \
folded, and the page says so.

Keys: arrows walk over the picture, Enter goes into a box, Escape out of it. The address in the browser keeps what is shown.",
    examples: &[
        ("html -o page.html DIR", "a page of a recording"),
        ("html -o page.html --by task DIR", "the picture begins with tasks"),
        ("html -o page.html --module ext4 DIR", "of what one module allocates"),
    ],
    options: &["by", "with-host"],
    groupings: PICTURED,
    sort_keys: &[],
    columns: &[],
    text: Some(TextNeeds::Stacks),
    run: Run::Page,
};

pub(super) const CHART: View = View {
    name: "chart",
    meaning: "A picture of the tree, as SVG or PNG",
    help: "\
Draws the folders of the kernel's sources, their files and functions, sized by the sort key: rings around the root, a treemap or an \
icicle. Without debug information, and with --by module, it draws modules and their call sites; --by task, cgroup, stack, site and use, or \
several of them, draw the tree of these keys. The end of the file's name, .svg or .png, is its form. What is too small to be seen is one \
striped piece, named other. In SVG the pointer tells name, size and share of each piece.",
    examples: &[
        ("chart -o live.svg DIR", "rings of live memory"),
        ("chart --by cgroup -o live.svg DIR", "cgroups, and the call sites of each"),
        ("chart --shape treemap --sort wasted -o wasted.png DIR", "a treemap of wasted memory"),
        ("chart --branch fs -o fs.png DIR", "one folder"),
    ],
    options: &["shape", "by", "sort", "depth"],
    groupings: PICTURED,
    sort_keys: &[
        SortBy::figure(Figure::LiveAllocated),
        SortBy::figure(Figure::Wasted),
        SortBy::figure(Figure::LiveWasted),
        SortBy::figure(Figure::Allocated),
        SortBy::figure(Figure::Allocs),
        SortBy::figure(Figure::Frees),
        SortBy::Key(SortKey::Static),
        SortBy::Key(SortKey::Current),
    ],
    columns: &[],
    text: Some(TextNeeds::Stacks),
    run: Run::Chart,
};

/// Keys that pictures group by.
const PICTURED: &[GroupKey] = &[
    GroupKey::Folder,
    GroupKey::Area,
    GroupKey::Stack,
    GroupKey::Task,
    GroupKey::Cgroup,
    GroupKey::Module,
    GroupKey::Site,
    GroupKey::Use,
];

pub(super) const TRACE_ANALYZE: View = View {
    name: "trace-analyze",
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
    columns: &[],
    text: None,
    run: Run::TraceAnalyze,
};

pub(super) const EXPORT: View = View {
    name: "export",
    meaning: "Files that other programs open",
    help: "\
Writes the recording, or its figures, in the format of another program: a file that is whole or not there. The verdict stands on \
standard error, and in the file where its format has room for it.",
    examples: &[
        ("export --to pprof -o kmem.pb.gz DIR", "for go tool pprof"),
        ("export --to folded --weight live -o live.folded DIR", "stacks for flame graph tools"),
        ("export --to perfetto -o kmem.pftrace DIR", "live bytes and events over time, for ui.perfetto.dev"),
        ("export --to parquet-sites -o web-1.parquet DIR", "a table for DuckDB and Spark"),
        ("export --to parquet-leaks -o leaks.parquet DIR", "who holds more and more memory, to add up over hosts"),
        ("export --to trace-dat -o trace.dat DIR", "for trace-cmd report and KernelShark"),
    ],
    options: &["to", "weight", "trace-dat-version", "host", "show-addresses"],
    groupings: &[],
    sort_keys: &[],
    columns: &[],
    text: Some(TextNeeds::Sites),
    run: Run::Export,
};

/// View that the option of its name stands for: it has no word and no options of its own.
pub(crate) static MEMSTRACK: View = View {
    name: "--memstrack",
    meaning: "Reports of memstrack in its own layouts",
    help: "",
    examples: &[],
    options: &[],
    groupings: &[],
    sort_keys: &[],
    columns: &[],
    text: Some(TextNeeds::Pages),
    run: Run::Memstrack,
};

pub(super) const PACK: View = View {
    name: "pack",
    meaning: "Stores a recording smaller; its events stay the same",
    help: "\
Stores the records of a recording in less room, in place, and compresses them with zstd. A file is replaced once its packed copy is \
whole and on the disk. Bytes of records that no field covers become zeros: they hold what the kernel's buffer held before. With --raw \
blocks are stored as plain sub-buffers, in format version 1, for older versions of kmemtrace.",
    examples: &[
        ("pack --level 19 DIR", "smaller and slower than the default level"),
        ("pack --raw DIR", "for a program that does not know the newer format"),
    ],
    options: &["level", "raw", "force", "jobs", "quiet", "verbose", "sandbox"],
    groupings: &[],
    sort_keys: &[],
    columns: &[],
    text: None,
    run: Run::Pack,
};

pub(crate) const TOP: View = View {
    name: "top",
    meaning: "A live screen: memory that grows, while it is recorded",
    help: "\
Follows a trace while kmemtraced writes it, or plays a finished one, and shows which call-sites, modules, tasks or caches hold memory, \
sorted by growth over the last minute. Without DIR it is the trace of the running recorder. The recorder is never waited for: a screen \
that is more than 2 s behind passes over what it has not read, and says SKIPPED.

Keys: ? explains them. --once and --batch print the screen as text, in COLUMNS columns and LINES lines, or 80 and 24.",
    examples: &[
        ("top", "the running recorder"),
        ("top --once DIR", "the screen at the end of a finished trace, as text"),
        ("top --from 90s --speed 10 DIR", "a finished trace, ten times as fast"),
    ],
    options: &[
        "once",
        "batch",
        "script",
        "from",
        "speed",
        "flush",
        "save-in",
        "own",
        "color",
        "max-memory",
        "verbose",
        "sandbox",
        "release",
        "clock",
        "page-size",
        "buffer",
        "event-formats",
    ],
    groupings: &[],
    sort_keys: &[],
    columns: &[],
    text: Some(TextNeeds::Pages),
    run: Run::Top,
};
