//! Columns of all tables: help, man pages and `docs/views.md` explain them.
//!
//! Tables take their columns from here, in this order; a narrow table drops some.

pub(crate) mod column;
pub(crate) mod latency;

use kmemtrace::{Figure, GroupKey};

use column::{Column, Shows};

/// Tables of a view: name of the part, empty where there is one part, and its columns.
pub(crate) type Parts = &'static [(&'static str, &'static [Column<'static>])];

/// Sums that rows of call-sites, caches and other keys have in common.
pub(crate) const FIGURES: [Column<'static>; 13] = [
    Column::kind(3),
    Column::of(Figure::Allocs, 4),
    Column::of(Figure::Frees, 9),
    Column::figure("XCPU", 10, "Share of the frees that ran on another CPU than the allocation.")
        .showing(Shows::Share(Figure::CrossCpu, Figure::Frees)),
    Column::of(Figure::Requested, 11),
    Column::of(Figure::Allocated, 7),
    Column::of(Figure::PeakLiveAllocated, 6),
    Column::of(Figure::LiveObjects, 8),
    Column::of(Figure::LiveWasted, 12),
    Column::of(Figure::LiveAllocated, 2),
    Column::of(Figure::Largest, 15),
    Column::figure("WASTE%", 5, "Share of TOTAL that was not asked for.")
        .showing(Shows::Share(Figure::Wasted, Figure::Allocated)),
    Column::of(Figure::Wasted, 1),
];

/// First column of a key.
const fn key(key: GroupKey) -> Column<'static> {
    Column::of_key(&key.entry().columns[0])
}

/// Key `site`.
pub(crate) const KEY_SITE: Column<'static> = key(GroupKey::Site);

/// Line of source of a call-site.
pub(crate) const KEY_SOURCE: Column<'static> = Column::of_key(&GroupKey::Site.entry().columns[1]);

/// Number of columns of all keys. Those of a task are those of its parts.
const KEY_COLUMNS: usize = {
    let (mut columns, mut at) = (0, 0);
    while at < GroupKey::ALL.len() {
        if !matches!(GroupKey::ALL[at], GroupKey::Task) {
            columns += GroupKey::ALL[at].entry().columns.len();
        }
        at += 1;
    }
    columns
};

/// Columns of all keys of `--by`.
pub(crate) const KEYS: [Column<'static>; KEY_COLUMNS] = {
    let (mut columns, mut filled, mut at) = ([KEY_SITE; KEY_COLUMNS], 0, 0);
    while at < GroupKey::ALL.len() {
        let of_key = GroupKey::ALL[at].entry().columns;
        let mut index = 0;
        while index < of_key.len() && !matches!(GroupKey::ALL[at], GroupKey::Task) {
            columns[filled] = Column::of_key(&of_key[index]);
            filled += 1;
            index += 1;
        }
        at += 1;
    }
    columns
};

/// Groups of blocks of page_owner, which tells of nothing that is past.
pub(crate) const BLOCKS: [Column<'static>; 3] = [
    Column::of(Figure::LiveObjects, 0).titled("BLOCKS").meaning("Blocks that are held: page_owner_sort's times."),
    Column::of(Figure::LivePages, 0).meaning("Pages of these blocks."),
    Column::of(Figure::LiveAllocated, 0).meaning("Bytes of these blocks."),
];

/// `sites --by function`, where the recording keeps `/proc/allocinfo`.
pub(crate) const ALLOCINFO: [Column<'static>; 1] = [Column::figure(
    "ALLOCINFO",
    1,
    "Change of the function's bytes over the recording, by /proc/allocinfo; the same in its rows of all kinds.",
)];

/// `sites`, by call-site.
pub(crate) const SITES: [Column<'static>; FIGURES.len() + 2] = {
    let mut columns = [KEY_SITE; FIGURES.len() + 2];
    let mut index = 0;
    while index < FIGURES.len() {
        columns[index] = FIGURES[index];
        index += 1;
    }
    columns[FIGURES.len() + 1] = KEY_SOURCE;
    columns
};

/// `tree`; the sort key's column comes first.
pub(crate) const TREE: [Column<'static>; 12] = [
    Column::of(Figure::LiveAllocated, 0),
    Column::figure("LIVE%", 6, "Share of the root's.").showing(Shows::ShareOfAll(Figure::LiveAllocated)),
    Column::of(Figure::PeakLiveAllocated, 0)
        .meaning("Greatest number of live bytes at any time, not the sum of the peaks below; with --sort peak."),
    Column::growth(),
    Column::of(Figure::LiveWasted, 8),
    Column::of(Figure::Wasted, 3),
    Column::of(Figure::Allocated, 2),
    Column::of(Figure::Allocs, 5),
    Column::of(Figure::Frees, 9),
    Column::figure("STATIC", 4, "Bytes of functions and objects in the kernel's image.").showing(Shows::Static),
    Column::figure("CURRENT", 7, "Static and live bytes.").showing(Shows::Current),
    Column::site("FOLDER", "Folder, file, function or call-site, below the one that it is in."),
];

/// `tree` over keys; the sort key's column comes first.
pub(crate) const KEY_TREE: [Column<'static>; 12] = [
    Column::of(Figure::LiveAllocated, 0),
    Column::figure("LIVE%", 6, "Share of the root's.").showing(Shows::ShareOfAll(Figure::LiveAllocated)),
    Column::of(Figure::PeakLiveAllocated, 1)
        .meaning("Greatest number of live bytes at any time; not the sum of the peaks below."),
    Column::of(Figure::Allocated, 3),
    Column::growth(),
    Column::of(Figure::LivePages, 4),
    Column::of(Figure::LiveObjects, 5),
    Column::of(Figure::LiveWasted, 9),
    Column::of(Figure::Wasted, 8),
    Column::of(Figure::Allocs, 7),
    Column::of(Figure::Frees, 10),
    Column::site("FRAME", "Frame, task, module, use or call-site, below the one that it is in; module in brackets."),
];

/// Figures of `tasks`, `modules` and `uses`.
pub(crate) const HELD: [Column<'static>; 9] = [
    Column::of(Figure::LiveAllocated, 0).meaning("Bytes of the objects live at the end, or at the moment of --at."),
    Column::of(Figure::PeakLiveAllocated, 2),
    Column::of(Figure::Allocated, 3),
    Column::growth(),
    Column::of(Figure::LivePages, 4),
    Column::of(Figure::LiveObjects, 5)
        .titled("OBJS")
        .meaning("Objects live at the end: allocations of which something is left."),
    Column::of(Figure::Allocs, 7),
    Column::of(Figure::Frees, 8),
    Column::kind(6),
];

/// Names of `tasks`.
pub(crate) const TASKS: [Column<'static>; 2] = [key(GroupKey::Pid), key(GroupKey::Comm)];

/// Names of `modules`.
pub(crate) const MODULES: [Column<'static>; 1] = [Column::site(
    "MODULE",
    "Module, by --module-rule; (kernel) for the kernel itself, (unknown) for code in no symbol and no module.",
)];

/// Names of `uses`.
pub(crate) const USES: [Column<'static>; 1] = [key(GroupKey::Use)];

/// Figures of the kernel's own statistics, in `caches`.
pub(crate) const CACHE_SLABS: [Column<'static>; 3] = [
    Column::figure("SLAB", 4, "Bytes of all slabs of the cache at the end, by the kernel's own statistics."),
    Column::figure("SLAB +/-", 3, "Change of these bytes over the recording."),
    Column::figure(
        "ACTIVE",
        13,
        "Objects in use at the end, by the kernel's own statistics; under SLUB an upper bound.",
    ),
];

/// Change of objects by slabinfo, in `caches`.
const CACHE_SLABINFO: Column<'static> =
    Column::figure("SLABINFO", 5, "Change of the objects in use over the recording, by the kernel's own statistics.");

/// Share of it that events explain.
const CACHE_SEEN: Column<'static> = Column::figure(
    "SEEN",
    4,
    "Share of that change that the events explain; less where objects go paths without events.",
);

/// Other names of a merged cache.
const CACHE_ALSO: Column<'static> = Column::name(
    "ALSO",
    16,
    "Other names of the cache, with which the kernel merged it; where the recording keeps them.",
);

/// `caches`.
pub(crate) const CACHES: [Column<'static>; FIGURES.len() + CACHE_SLABS.len() + 4] = {
    let mut columns = [key(GroupKey::Cache); FIGURES.len() + CACHE_SLABS.len() + 4];
    let mut index = 0;
    while index < FIGURES.len() {
        columns[index] = FIGURES[index];
        index += 1;
    }
    let mut slabs = 0;
    while slabs < CACHE_SLABS.len() {
        columns[index] = CACHE_SLABS[slabs];
        (index, slabs) = (index + 1, slabs + 1);
    }
    columns[index] = CACHE_SLABINFO;
    columns[index + 1] = CACHE_SEEN;
    columns[index + 2] = CACHE_ALSO;
    columns
};

/// `caches`: caches without an event.
pub(crate) const IDLE_CACHES: [Column<'static>; 6] =
    [CACHE_SLABS[0], CACHE_SLABS[1], CACHE_SLABS[2], CACHE_SLABINFO, CACHE_ALSO, key(GroupKey::Cache)];

/// Address of an object, in `live --objects`.
pub(crate) const ADDRESS: Column<'static> =
    Column::word("ADDRESS", 1, "Address of the object, a frame number for pages; only with --show-addresses.");

/// Call-site, in `summary`.
pub(crate) const TOP_SITE: Column<'static> = Column::site("CALL SITE", "Return address of the allocating call.");

/// `summary`: kinds.
pub(crate) const KINDS: [Column<'static>; 10] = [
    Column::word("", 0, "Allocator; the total is that of kmalloc and cache."),
    Column::of(Figure::Allocs, 1),
    Column::of(Figure::Frees, 5),
    Column::of(Figure::InferredFrees, 6),
    Column::of(Figure::LiveObjects, 2),
    Column::of(Figure::LiveAllocated, 0),
    Column::of(Figure::Requested, 8),
    Column::of(Figure::Allocated, 3).titled("ALLOCATED"),
    Column::of(Figure::Wasted, 4),
    Column::figure("WASTE%", 7, "Share of ALLOCATED that was not asked for.")
        .showing(Shows::Share(Figure::Wasted, Figure::Allocated)),
];

/// `summary`: most bytes live now.
pub(crate) const TOP_LIVE: [Column<'static>; 6] = [
    Column::of(Figure::LiveObjects, 2),
    Column::of(Figure::LiveAllocated, 0),
    Column::figure("SHARE", 1, "Share of all live bytes of kmalloc and cache.")
        .showing(Shows::ShareOfAll(Figure::LiveAllocated)),
    Column::bar("", 3, "SHARE as a bar."),
    TOP_SITE,
    KEY_SOURCE,
];

/// `summary`: most bytes wasted by objects live now.
pub(crate) const TOP_LIVE_WASTE: [Column<'static>; 6] = [
    Column::of(Figure::LiveAllocated, 2),
    Column::of(Figure::LiveWasted, 0),
    Column::figure("SHARE", 1, "Share of all live bytes wasted by kmalloc and cache.")
        .showing(Shows::ShareOfAll(Figure::LiveWasted)),
    Column::bar("", 3, "SHARE as a bar."),
    TOP_SITE,
    KEY_SOURCE,
];

/// `summary`: churn.
pub(crate) const TOP_CHURN: [Column<'static>; 6] = [
    Column::of(Figure::Allocs, 2),
    Column::of(Figure::Wasted, 0),
    Column::figure("SHARE", 1, "Share of all bytes wasted by kmalloc and cache.")
        .showing(Shows::ShareOfAll(Figure::Wasted)),
    Column::bar("", 3, "SHARE as a bar."),
    TOP_SITE,
    KEY_SOURCE,
];

/// `balance`.
pub(crate) const BALANCE: [Column<'static>; 5] = [
    Column::figure("CHANGE", 0, "Bytes by which the part grew over the recording."),
    Column::figure("AT END", 2, "Bytes of the part at the end of the recording."),
    Column::figure(
        "EXPLAINED",
        1,
        "Live bytes of the recording's own objects that belong to the part, or to the call site.",
    ),
    Column::figure("OBJECTS", 3, "Live objects of a call site."),
    Column::site(
        "PART",
        "Part of memory, and below it the call sites behind it; those of parts with at least 1% of the changes.",
    ),
];

/// `failed`: refused requests.
pub(crate) const FAILED: [Column<'static>; 11] = [
    Column::figure("FAILED", 0, "Requests that returned no memory."),
    Column::word(
        "FALLBACK",
        4,
        "yes where the flags say that the caller has a way without the memory, - where they are not known.",
    ),
    Column::kind(6),
    Column::figure("ORDER", 5, "Binary logarithm of the number of pages of a request; - for other kinds."),
    Column::figure("REQUESTED", 1, "Bytes of one request."),
    Column::figure("FIRST", 8, "Time of the first one, from the first event of the trace."),
    Column::figure("LAST", 9, "Time of the last one."),
    Column::figure("PID", 3, "Thread of the requests."),
    Column::name("COMM", 2, "Command name of the thread: its last known one."),
    KEY_SITE,
    Column::name("GFP", 7, "Flags of the requests, by the kernel's names."),
];

/// `failed`: free blocks.
pub(crate) const FREE_BLOCKS: [Column<'static>; 4] = [
    Column::figure("NODE", 0, "NUMA node."),
    Column::word("ZONE", 0, "Zone of memory."),
    Column::word("AT", 0, "Start or end of the recording."),
    Column::word("BLOCKS", 0, "Free blocks of 1, 2, 4 pages and so on."),
];

/// `mismatch`.
pub(crate) const MISMATCH: [Column<'static>; 11] = [
    Column::figure("CPU", 9, "CPU of the first finding."),
    Column::figure("FIRST", 6, "Time of the first finding, from the first event of the trace."),
    Column::word(
        "KIND",
        7,
        "Allocator of the object: kmalloc, cache (kmem_cache_alloc), pages, or another kind by its name.",
    ),
    Column::figure("COUNT", 5, "Findings of this class between these two call-sites."),
    Column::figure("SUSPECT", 4, "Findings that lost events or clocks may explain."),
    Column::figure(
        "UNSEEN",
        8,
        "Findings that frees without events explain: other objects of the call-site go that way.",
    ),
    Column::figure("ERRORS", 3, "Findings that nothing known explains."),
    Column::word("CLASS", 2, "Class of the findings."),
    Column::word("SEVERITY", 10, "Error, suspect or normal."),
    Column::site("ALLOCATED BY", "Call-site of the allocation."),
    Column::site("FREED BY", "Call-site of the free."),
];

/// `live`, beside the keys.
pub(crate) const LIVE: [Column<'static>; 9] = [
    Column::kind(6),
    Column::figure("OLDEST", 5, "Age of the oldest live object at the end of the recording."),
    Column::figure("MEDIAN", 8, "Age of the object in the middle, of those live at the end."),
    Column::of(Figure::LiveWasted, 7).titled("WASTED"),
    Column::figure("GREW", 2, "Change of the live bytes over about the last tenth of the recording.")
        .showing(Shows::Growth),
    Column::of(Figure::LiveObjects, 3),
    Column::figure("SHARE", 4, "Share of the live bytes of all rows of this kind: pages apart from the others."),
    Column::of(Figure::LiveAllocated, 1),
    Column::bar("BAR", 9, "The share as a bar; on a terminal only."),
];

/// `leaks`: groups, whose table has no headings.
pub(crate) const LEAKS: [Column<'static>; 5] = [
    Column::word("1", 0, "Verdict: leak, maybe, cache, with --all no; - where the recording does not tell."),
    Column::name("2", 0, "Command and thread, and whether the thread lived at the end; or the values of the keys."),
    Column::site(
        "3",
        "Live objects of the call-site with most bytes, and the number of other call-sites that grow with it.",
    ),
    Column::figure(
        "4",
        0,
        "These objects per second of the recording, and the share of the group's allocations that was freed.",
    ),
    Column::figure("5", 0, "Live bytes of the group, and their growth per second."),
];

/// `leaks --parts`, beside the keys.
pub(crate) const LEAK_PARTS: [Column<'static>; 10] = [
    Column::figure("GROUP", 7, "Number of the group: rows that grow together."),
    Column::word("VERDICT", 0, "leak, maybe, cache, with --all no; - where the recording does not tell."),
    Column::kind(6),
    Column::word("BORN", 3, "Live objects by the tenth of the recording in which they were allocated."),
    Column::of(Figure::Allocs, 8),
    Column::figure("KEPT", 5, "Share of the allocations that are live."),
    Column::figure("/S", 4, "Live objects per second of the recording."),
    Column::of(Figure::LiveObjects, 2),
    Column::figure("BYTES/S", 9, "Live bytes per second of the recording."),
    Column::of(Figure::LiveAllocated, 1),
];

/// `live --objects`.
pub(crate) const OBJECTS: [Column<'static>; 11] = [
    Column::figure("CPU", 6, "CPU of the allocation."),
    Column::figure("PID", 5, "Thread of the allocation."),
    Column::name("COMM", 3, "Command name of the thread: its last known one."),
    Column::kind(7),
    Column::name("CACHE", 4, "Cache named by the allocation event."),
    Column::figure("REQUESTED", 8, "Bytes asked for."),
    Column::figure("ALLOCATED", 2, "Bytes handed out."),
    ADDRESS,
    Column::figure("SINCE", 0, "Time of the allocation, from the first event of the trace."),
    KEY_SITE,
    KEY_SOURCE,
];

/// `cross`.
pub(crate) const CROSS: [Column<'static>; 7] = [
    Column::kind(3),
    Column::figure("OF FREES", 4, "Objects whose free was seen."),
    Column::figure("XCPU", 2, "Share of the frees that ran on another CPU than the allocation."),
    Column::figure("CROSS", 1, "Frees that ran on another CPU than the allocation."),
    Column::figure("BYTES", 0, "Bytes of the objects that were freed on another CPU."),
    KEY_SITE,
    KEY_SOURCE,
];

/// `account --style trace-analyze`.
pub(crate) const ACCOUNT_TRACE_ANALYZE: [Column<'static>; 5] = [
    Column::figure("total", 0, "Bytes handed out, over all allocations."),
    Column::figure("waste", 0, "Bytes of the live objects that were handed out and not asked for."),
    Column::figure("net", 0, "Bytes of the objects live at the end."),
    Column::figure("alloc/free", 0, "Allocations, and frees of those objects, inferred ones included."),
    Column::site("caller", "Return address of the allocating call: function, offset in it, and module in brackets."),
];

/// `account --style slab-account`.
pub(crate) const ACCOUNT_SLAB: [Column<'static>; 5] = [
    Column::figure("total", 0, "Bytes handed out, over all allocations."),
    Column::figure("slack", 0, "Bytes handed out and not asked for, over all allocations."),
    Column::figure("req", 0, "Bytes asked for, over all allocations."),
    Column::figure("alloc/free", 0, "Allocations, and frees that the caller made, of any objects."),
    Column::site("caller", "Return address of the call: function, offset in it, and module in brackets."),
];

/// `account --style callers`, which has no heading.
pub(crate) const ACCOUNT_CALLERS: [Column<'static>; 4] = [
    Column::site("1", "Return address of the allocating call: function and offset in it."),
    Column::figure("2", 0, "Bytes of the objects live at the end."),
    Column::figure("3", 0, "Bytes of the live objects that were handed out and not asked for."),
    Column::name("4", 0, "Object file of the caller's source, such as fs/inode.o; empty where it is not known."),
];

/// `events`.
pub(crate) const EVENTS: [Column<'static>; 13] = [
    Column::figure("SINCE", 0, "Time since the first event of the trace."),
    Column::figure("CPU", 6, "CPU of the event."),
    Column::figure("PID", 7, "Thread of the event."),
    Column::name("COMM", 2, "Command name of the thread: its last known one."),
    Column::word("CONTEXT", 11, "Context that the kernel worked in: task, softirq, hardirq or nmi."),
    Column::name("EVENT", 0, "Name of the event in the kernel; of an event of several objects also their number."),
    Column::figure("REQUESTED", 9, "Bytes asked for."),
    Column::figure("BYTES", 1, "Bytes handed out; failed: none were."),
    Column::name("FLAGS", 10, "Flags of the allocation, by the kernel's names."),
    Column::figure("NODE", 12, "NUMA node asked for."),
    Column::name("CACHE", 8, "Cache that the event names."),
    Column::word(
        "ADDRESS",
        3,
        "Address of the object or of the first one, a frame number for pages; only with --show-addresses.",
    ),
    Column::site("CALL SITE", "Return address of the call: function, offset in it, and module in brackets."),
];

/// `static`: folders and files.
pub(crate) const STATIC: [Column<'static>; 7] = [
    Column::figure("TEXT", 2, "Bytes of code."),
    Column::figure("RODATA", 3, "Bytes of data that is only read once the kernel runs."),
    Column::figure("DATA", 4, "Bytes of data with values."),
    Column::figure("BSS", 5, "Bytes of zeros, which no file has."),
    Column::figure("INIT", 6, "Bytes of all four that the kernel gives back once it has started."),
    Column::figure("STATIC", 0, "Bytes of functions and objects."),
    Column::site("FOLDER", "Folder or file of the sources, below the one that it is in."),
];

/// `static`: sections.
pub(crate) const SECTIONS: [Column<'static>; 2] = [
    Column::figure("BYTES", 0, "Bytes of the section, over all files read."),
    Column::site("SECTION", "Name of the section."),
];

/// `compare`.
pub(crate) const COMPARE: [Column<'static>; 9] = [
    Column::kind(5),
    Column::word("SEEN", 6, "new: only in the second trace; gone: only in the first."),
    Column::figure("ALLOCS +/-", 4, "Change of the number of allocations."),
    Column::figure("TOTAL +/-", 3, "Change of the bytes handed out, over all allocations."),
    Column::figure("TOTAL/S +/-", 7, "Change of the bytes handed out per second; where the lengths differ."),
    Column::figure("LIVE BEFORE", 1, "Live bytes at the end of the first trace or window."),
    Column::figure("LIVE AFTER", 2, "Live bytes at the end of the second."),
    Column::figure("LIVE +/-", 0, "Change of the live bytes."),
    Column::site("NAME", "Function of the call-site and its module; with --by cache the cache.").showing(Shows::Key),
];

/// `growth`, beside the keys.
pub(crate) const GROWTH: [Column<'static>; 7] = [
    Column::kind(3).meaning(
        "Allocator: kmalloc, cache (kmem_cache_alloc), pages, or another kind by its name; total is kmalloc and cache together.",
    ),
    Column::figure("ALLOCS", 6, "Successful allocations in all slices."),
    Column::figure("ALLOCS/S", 7, "Allocations per second, over the whole recording."),
    Column::figure("FIRST", 5, "Live bytes at the end of the first slice."),
    Column::figure("LAST", 4, "Live bytes at the end of the last slice."),
    Column::word("LIVE OVER TIME", 2, "Live bytes at the end of each slice, from nothing to the greatest of the row."),
    Column::figure("GREW", 1, "Live bytes at the end of the last slice less those at the end of the first."),
];
