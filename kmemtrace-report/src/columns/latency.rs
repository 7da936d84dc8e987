//! Columns of the views about the time that tasks wait for memory.

use super::column::Column;

/// `latency`: kinds of spans.
pub(crate) const SPANS: [Column<'static>; 15] = [
    Column::site(
        "SPAN",
        "Kind of span: direct, memcg, softlimit, node, compaction, shrinker, throttled, kswapd, kcompactd.",
    ),
    Column::figure("COUNT", 0, "Spans that no loss touches."),
    Column::figure("TOTAL", 0, "Sum of their durations."),
    Column::figure("SELF", 3, "The same without the spans directly inside."),
    Column::figure("P50", 4, "Duration that half of them do not exceed."),
    Column::figure("P90", 6, "Duration that 90% of them do not exceed."),
    Column::figure("P99", 5, "Duration that 99% of them do not exceed."),
    Column::figure("MAX", 0, "Greatest duration."),
    Column::figure("STALLS", 1, "Spans that an allocation or a charge waited for."),
    Column::figure("ASKED", 7, "Spans that a program asked for: drop_caches, compact_memory, memory.reclaim."),
    Column::figure("INNER", 8, "Spans inside another one."),
    Column::figure("BACKGR", 9, "Spans of the daemons kswapd and kcompactd."),
    Column::figure("SUSPECT", 2, "Spans that a gap touches: in no other column. Where there are some."),
    Column::figure("UNFINISHED", 10, "Spans without an end, not measured. Where there are some."),
    Column::figure("UNSTARTED", 11, "Ends without a begin, not measured. Where there are some."),
];

/// `latency`: nesting of spans.
pub(crate) const NESTING: [Column<'static>; 5] = [
    Column::word("NESTED", 0, "Kind of span."),
    Column::site("INSIDE", "Kind of the span around it; - for none."),
    Column::word("CLASS", 0, "Class: stall, asked, inner or background."),
    Column::figure("COUNT", 0, "Spans."),
    Column::figure("TOTAL", 0, "Sum of their durations."),
];

/// `latency`: tasks that waited.
pub(crate) const WAITING_TASKS: [Column<'static>; 5] = [
    Column::site("TASK", "Command name of the thread."),
    Column::figure("PID", 0, "Thread."),
    Column::figure("STALLS", 0, "Stalls of the thread."),
    Column::figure("TOTAL", 0, "Sum of their durations."),
    Column::figure("MAX", 0, "Longest one."),
];

/// `latency`: durations of a kind of span that has stalls.
pub(crate) const BUCKETS: [Column<'static>; 4] = [
    Column::figure("FROM", 0, "Least duration of the line, a power of two of ns."),
    Column::figure("BELOW", 0, "First duration beyond."),
    Column::figure("COUNT", 0, "Spans."),
    Column::bar("SHARE", 1, "The same as a bar; the most frequent line is the longest."),
];

/// `shrinkers`.
pub(crate) const SHRINKERS: [Column<'static>; 12] = [
    Column::site("SHRINKER", "Function that the shrinker calls."),
    Column::word("ADDRESS", 7, "Shrinker: each superblock has one of its own. Only with --show-addresses."),
    Column::figure("NODE", 8, "NUMA node."),
    Column::figure("CALLS", 0, "Calls that no loss touches."),
    Column::figure("TOTAL", 0, "Sum of their durations."),
    Column::figure("SELF", 9, "The same without the spans directly inside."),
    Column::figure("P50", 5, "Duration that half of them do not exceed."),
    Column::figure("P90", 6, "Duration that 90% of them do not exceed."),
    Column::figure("P99", 4, "Duration that 99% of them do not exceed."),
    Column::figure("MAX", 0, "Longest call."),
    Column::figure("FREED", 1, "Objects freed, as the shrinker counts them."),
    Column::figure("SUSPECT", 2, "Calls that a gap touches: in no other column. Where there are some."),
];

/// `stalls`: a line each, and below it the spans inside.
pub(crate) const STALLS: [Column<'static>; 7] = [
    Column::figure("AT", 0, "Begin, after the first event."),
    Column::word("TASK", 0, "Command name and id of the thread."),
    Column::word("SPAN", 0, "Kind of span."),
    Column::figure("WAITED", 0, "Duration."),
    Column::figure("ORDER", 0, "Binary logarithm of the number of pages asked for."),
    Column::figure("RECLAIMED", 0, "Pages reclaimed."),
    Column::site(
        "CALL SITE",
        "Function that waited: the first one of the stack beyond reclaim, charging and allocators.",
    ),
];

/// `waits`: figures.
pub(crate) const WAITS: [Column<'static>; 6] = [
    Column::figure("ALLOCS", 1, "Allocations of pages in task context, outside of reclaim and compaction."),
    Column::figure("WAITED", 0, "Allocations that waited for reclaim or compaction."),
    Column::figure("P50", 3, "Wait that half of these do not exceed."),
    Column::figure("P99", 2, "Wait that 99% of these do not exceed."),
    Column::figure("MAX", 0, "Longest wait."),
    Column::figure("TOTAL", 0, "Sum of the waits."),
];

/// `waits`: keys of `--by`.
pub(crate) const WAIT_KEYS: [Column<'static>; 5] = [
    Column::site("CALL SITE", "Function that asked for the pages, by the stack; - without one."),
    Column::name("TASK", 0, "Command name and id of the thread."),
    Column::figure("ORDER", 0, "Binary logarithm of the number of pages."),
    Column::name("GFP", 0, "Flags of the allocation, by the kernel's names."),
    Column::name("CGROUP", 0, "Path of the cgroup of the thread; (unknown) where the recording does not tell it."),
];

/// `functions`.
pub(crate) const FUNCTIONS: [Column<'static>; 7] = [
    Column::site("FUNCTION", "Function that the kernel timed."),
    Column::figure("CALLS", 0, "Calls."),
    Column::figure("TOTAL", 0, "Sum of their durations."),
    Column::figure("P50", 2, "Duration that half of them do not exceed."),
    Column::figure("P90", 3, "Duration that 90% of them do not exceed."),
    Column::figure("P99", 1, "Duration that 99% of them do not exceed."),
    Column::figure("MAX", 0, "Longest call."),
];
