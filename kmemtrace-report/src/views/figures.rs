//! Views of figures: rows, trees and findings.

use kmemtrace::documents;
use kmemtrace::{Figure, GroupKey, Query, SortKey};

use super::view::{Run, TextNeeds, View};
use crate::args::{Format, SortBy};
use crate::columns;

/// Sort keys that every row of figures has.
const FIGURES: &[SortBy] = &[
    SortBy::figure(Figure::Wasted),
    SortBy::figure(Figure::LiveWasted),
    SortBy::figure(Figure::LiveAllocated),
    SortBy::figure(Figure::PeakLiveAllocated),
    SortBy::figure(Figure::Allocated),
    SortBy::figure(Figure::Requested),
    SortBy::figure(Figure::Allocs),
    SortBy::figure(Figure::Frees),
    SortBy::figure(Figure::CrossCpu),
    SortBy::Key(SortKey::Site),
];

pub(super) const SUMMARY: View = View {
    name: "summary",
    meaning: "Verdict, totals of each kind, what to look at first",
    help: "\
Totals of kmalloc, cache and page objects, the call-sites that rank first, and the number of findings. The first line is the verdict: \
complete, lossy (events were lost), truncated or corrupt.

This is the view of a command line that names none.",
    examples: &[("", "the summary of ./kmemtrace.data"), ("summary --time 10%,90% DIR", "without start and end of the recording")],
    options: &["fail-on", "explain"],
    groupings: &[],
    sort_keys: &[],
    columns: &[
        ("kinds", &columns::KINDS),
        ("most bytes live now", &columns::TOP_LIVE),
        ("most bytes wasted by objects live now", &columns::TOP_LIVE_WASTE),
        ("churn", &columns::TOP_CHURN),
    ],
    text: Some(TextNeeds::Nothing),
    run: Run::Document {
        // Only the table shows call-sites.
        query: |format, _| if format == Format::Table { Query::by_site() } else { Query::by_kind() },
        document: |analysis, shape, _| documents::summary(analysis, shape),
    },
};

pub(super) const SITES: View = View {
    name: "sites",
    meaning: "Rows of call-sites, tasks, modules, sizes and more",
    help: "\
Figures for each group of allocations: by default for each call-site, which is the place in the kernel that asked for the memory. \
Each kind of object has a row of its own. --by groups by other keys, or by several at once.

A text of page_owner is grouped by --cull, too, in the words of page_owner_sort: pid, tgid, name, stacktrace, allocator, free, or p, \
tg, n, st, ator, f. Its rows are sorted by the number of blocks, or by --sort, which takes these words with + or - before them.",
    examples: &[
        ("sites --sort live --top 10 DIR", "call-sites that hold most memory at the end"),
        ("sites --by comm,site DIR", "call-sites of each command"),
        ("sites --cull st,pid /sys/kernel/debug/page_owner", "pages that are held now, as page_owner_sort groups them"),
    ],
    options: &["by", "cull", "sort", "top", "inlines"],
    groupings: &GroupKey::ALL,
    sort_keys: FIGURES,
    columns: &[
        ("", &columns::SITES),
        ("groups of page_owner", &columns::BLOCKS),
        ("--by function", &columns::ALLOCINFO),
        ("keys of --by", &columns::KEYS),
    ],
    text: Some(TextNeeds::Sites),
    run: Run::Document {
        query: |_, args| args.grouped(),
        document: |analysis, shape, _| documents::sites(analysis, shape),
    },
};

pub(super) const TREE: View = View {
    name: "tree",
    meaning: "Folders of the kernel's sources, or stacks, tasks, modules",
    help: "\
Figures of each folder of the kernel's sources, of the files in it, their functions and call-sites. Source files come from debug \
information, from a built tree (-k) or from a map (--names); without any, call-sites are sorted into modules. The sort key sizes the \
nodes and is the first column. Each node has a peak of its own, which is not the sum of those below; of folders it is counted for \
--sort peak and for JSON, JSON Lines and CSV, which no index answers. Objects of kmalloc and of caches count; --kind pages makes a \
tree of pages, and so does a recording of only pages.

--by stack, task, cgroup, module, site or use, or several of them, makes a tree over these: the first key at the top, stacks from their \
outermost frame to the call-site. There pages count where they were recorded, else objects of slabs; --kind chooses. An allocation without a stack stands under its call-site.",
    examples: &[
        ("tree --depth 2 DIR", "folders of two levels"),
        ("tree --branch fs/ext4 DIR", "one folder, with its functions"),
        ("tree --by module,stack --throttle 80 DIR", "most of what each module holds, by stack"),
        ("tree --by area --areas linux/MAINTAINERS DIR", "areas of the kernel's maintainers"),
    ],
    options: &["by", "sort", "top", "depth", "throttle", "module-rule", "at", "uses"],
    groupings: &[
        GroupKey::Folder,
        GroupKey::Area,
        GroupKey::Stack,
        GroupKey::Task,
        GroupKey::Cgroup,
        GroupKey::Module,
        GroupKey::Site,
        GroupKey::Use,
    ],
    sort_keys: &[
        SortBy::figure(Figure::LiveAllocated),
        SortBy::figure(Figure::Wasted),
        SortBy::figure(Figure::LiveWasted),
        SortBy::figure(Figure::PeakLiveAllocated),
        SortBy::figure(Figure::Allocated),
        SortBy::figure(Figure::Allocs),
        SortBy::figure(Figure::Frees),
        SortBy::Key(SortKey::Growth),
        SortBy::Key(SortKey::Static),
        SortBy::Key(SortKey::Current),
    ],
    columns: &[("folders", &columns::TREE), ("--by stack, task, module, site, use", &columns::KEY_TREE)],
    text: Some(TextNeeds::Stacks),
    run: Run::Document {
        query: |format, args| {
            if !args.is_key_tree() {
                return args.placed(format);
            }
            args.held_by(&args.by).with_nodes(true)
        },
        document: |analysis, shape, args| {
            if args.is_key_tree() {
                documents::key_tree(analysis, shape, &args.tree())
            } else {
                documents::tree(analysis, shape, &args.tree())
            }
        },
    },
};

pub(super) const CACHES: View = View {
    name: "caches",
    meaning: "Rows of slab caches and kmalloc sizes",
    help: "\
Figures for each slab cache. Objects of kmalloc count under their size class, such as kmalloc-1k. Kernels 6.1 to 6.17 name the cache \
only in frees: there a first pass over the trace learns which cache each call-site allocates from.",
    examples: &[("caches --sort live DIR", "caches that hold most memory at the end")],
    options: &["sort", "top"],
    groupings: &[],
    sort_keys: FIGURES,
    columns: &[("", &columns::CACHES), ("caches without an event", &columns::IDLE_CACHES)],
    text: Some(TextNeeds::Caches),
    run: Run::Document {
        query: |_, _| Query::by_cache(),
        document: |analysis, shape, _| documents::caches(analysis, shape),
    },
};

pub(super) const MISMATCH: View = View {
    name: "mismatch",
    meaning: "Frees that do not match their allocations",
    help: "\
Findings about pairs of allocation and free, by class and by the two call-sites. A finding is suspect where a lost event may explain \
it, and unseen where objects of the same call-site are freed on a path without events. The rest are errors: bugs in the kernel, as far \
as this trace can tell.",
    examples: &[
        ("mismatch --class kind_mismatch DIR", "only one class"),
        ("mismatch --fail-on kind_mismatch,cache_mismatch DIR", "exit status 1 where there are errors"),
        ("--explain free_after_free", "the kernel's reason for a class"),
    ],
    options: &["top", "all", "class", "fail-on", "explain"],
    groupings: &[],
    sort_keys: &[],
    columns: &[("", &columns::MISMATCH)],
    text: None,
    run: Run::Document {
        query: |_, _| Query::by_site(),
        document: |analysis, shape, args| documents::mismatch(analysis, shape, &args.class),
    },
};

pub(super) const LIVE: View = View {
    name: "live",
    meaning: "Memory still allocated at the end: who leaks",
    help: "\
Objects that were allocated in the recording and not freed in it, by call-site: number, bytes, age and growth. --objects lists the \
objects one by one, oldest first. A row marked <= is an upper bound: objects of it are also freed on a path without events.",
    examples: &[
        ("live --by comm DIR", "commands that hold memory"),
        ("live --objects --site foo_open DIR", "each object of one function"),
    ],
    options: &["by", "objects", "sort", "top", "inlines"],
    groupings: &GroupKey::ALL,
    sort_keys: &[
        SortBy::figure(Figure::LiveAllocated),
        SortBy::figure(Figure::LiveWasted),
        SortBy::Key(SortKey::Growth),
        SortBy::Key(SortKey::Site),
    ],
    columns: &[("figures", &columns::LIVE), ("keys of --by", &columns::KEYS), ("--objects", &columns::OBJECTS)],
    text: Some(TextNeeds::Sites),
    run: Run::Document {
        query: |_, args| {
            let query = if args.objects {
                Query::by_site().with_stacks(true)
            } else {
                args.grouped().with_growth(true).with_reclaim(true)
            };
            query.with_live_objects(true)
        },
        document: |analysis, shape, args| {
            if args.objects { documents::live(analysis, shape) } else { documents::live_groups(analysis, shape) }
        },
    },
};

pub(super) const LEAKS: View = View {
    name: "leaks",
    meaning: "Memory that grows evenly and is not freed",
    help: "\
Objects that are live at the end and were allocated evenly over the recording, by thread and call-site; then those of short \
processes by their command, and at last only by call-site. Rows that grow together are one line: --parts shows each of them. \
leak: nothing known explains it. maybe: some of the objects may be gone, or their cache is not known, or events were lost in more \
than one tenth of the recording. cache: the kernel takes the memory back by itself when it is short of it, or they are pages of \
programs, files, slabs or page tables. (runs): the thread lived at the end. any task: threads of that command, which come and go.

A program that grows on purpose looks the same. A leak that begins late, or of fewer than ten objects, is not found. Filters choose \
rows once they are known to be steady.",
    examples: &[
        ("leaks DIR", "who holds more and more memory"),
        ("leaks --parts --comm nginx DIR", "each call-site of one command"),
        ("leaks --by module DIR", "modules that hold more and more"),
        ("leaks --fail-on leak DIR", "exit status 1 where there is a leak"),
    ],
    options: &["by", "all", "parts", "top", "fail-on"],
    groupings: &GroupKey::ALL,
    sort_keys: &[],
    columns: &[("groups", &columns::LEAKS), ("--parts", &columns::LEAK_PARTS), ("keys of --by", &columns::KEYS)],
    text: None,
    run: Run::Document {
        query: |_, args| Query::leaks(&args.by),
        document: |analysis, shape, args| documents::leaks(analysis, shape, args.leaks()),
    },
};

pub(super) const CROSS: View = View {
    name: "cross",
    meaning: "Objects freed on another CPU than their own",
    help: "\
Pairs whose free happened on another CPU than the allocation: a matrix of CPUs, and rows of call-sites.",
    examples: &[("cross --top 10 DIR", "the ten call-sites with most of them")],
    options: &["top"],
    groupings: &[],
    sort_keys: &[],
    columns: &[("", &columns::CROSS)],
    text: None,
    run: Run::Document {
        query: |_, _| Query::by_site().with_cpu_matrix(true),
        document: |analysis, shape, _| documents::cross(analysis, shape),
    },
};

pub(super) const GROWTH: View = View {
    name: "growth",
    meaning: "Live memory and allocations over the recording",
    help: "\
Live bytes at the end of each of at most 64 slices of the recording, and allocations in each slice: in total, and for the rows that \
grew most from the first slice to the last.",
    examples: &[("growth --by comm DIR", "commands that grow")],
    options: &["by", "top"],
    groupings: &GroupKey::ALL,
    sort_keys: &[],
    columns: &[("figures", &columns::GROWTH), ("keys of --by", &columns::KEYS)],
    text: Some(TextNeeds::Nothing),
    run: Run::Document {
        query: |_, args| args.grouped().with_growth(true).with_reclaim(true),
        document: |analysis, shape, _| documents::growth(analysis, shape),
    },
};
