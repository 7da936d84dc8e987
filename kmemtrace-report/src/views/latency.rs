//! Views of the time that tasks wait for memory.

use kmemtrace::documents::latency as documents;
use kmemtrace::{Figure, GroupKey};

use super::view::{Needs, Run, View};
use crate::args::SortBy;
use crate::columns;

pub(super) const LATENCY: View = View {
    name: "latency",
    meaning: "Time that tasks wait for memory, by kind",
    help: "\
Spans of reclaim, compaction, shrinkers and throttling: how many, how long, by percentiles, and which of them an allocation or a charge \
waited for. Spans inside others are told apart, and so is the work of kswapd and kcompactd. Spans that loss touches are counted as \
suspect and enter no other figure. --site, --module and --branch go by the call-site of the outermost span, which needs its stack. The \
recording needs the events of reclaim: kmemtraced -e latency.",
    examples: &[
        ("latency DIR", "kinds of spans, nesting, and tasks that waited"),
        ("latency --threshold 5ms --comm postgres DIR", "long ones of one command"),
    ],
    options: &["threshold", "span", "site", "module", "branch", "top"],
    groupings: &[],
    sort_keys: &[],
    columns: &[
        ("kinds of spans", &columns::latency::SPANS),
        ("nesting", &columns::latency::NESTING),
        ("tasks", &columns::latency::WAITING_TASKS),
        ("durations", &columns::latency::BUCKETS),
    ],
    text: None,
    run: Run::Latency {
        lists_stalls: false,
        by_call_site: true,
        takes_inside: false,
        document: |latency, args, _| documents::latency(latency, args.top),
        needs: Needs::Spans,
    },
};

pub(super) const SHRINKERS: View = View {
    name: "shrinkers",
    meaning: "Time in shrinkers, each superblock apart",
    help: "\
Calls of each shrinker on each node: durations, and objects freed. Superblocks share a function and have a shrinker each; with \
--by function they are one row. --site and --module go by the function, --span by the spans that \
a shrinker runs in.",
    examples: &[
        ("shrinkers --show-addresses DIR", "each shrinker with its address"),
        ("shrinkers --by function DIR", "a row for each function"),
    ],
    options: &["by", "threshold", "span", "site", "module", "top"],
    groupings: &[GroupKey::Function],
    sort_keys: &[],
    columns: &[("", &columns::latency::SHRINKERS)],
    text: None,
    run: Run::Latency {
        lists_stalls: false,
        by_call_site: false,
        takes_inside: true,
        document: |latency, args, top| documents::shrinkers(latency, args.by.first() == Some(&GroupKey::Function), top),
        needs: Needs::Spans,
    },
};

pub(super) const STALLS: View = View {
    name: "stalls",
    meaning: "Each time that an allocation had to wait",
    help: "\
Each direct, node and memcg reclaim and each compaction that an allocation or a charge waited for, the longest first, with the spans \
inside, and the call-site where stacks were recorded. --site, --module and --branch go by it. --timeline adds all events of the \
thread from begin to end, with the fields of their records. --follow prints each stall once it ends: of a recording that is being \
written, or of the stream that kmemtraced watch pipes to it.",
    examples: &[
        ("stalls --threshold 10ms DIR", "long ones"),
        ("stalls --site 'ext4_*' DIR", "those of one file system"),
        ("stalls --sort time --timeline DIR", "all in their order, with the events inside"),
        ("stalls --follow --threshold 5ms DIR", "long ones as they end, while the recorder runs"),
    ],
    options: &[
        "threshold",
        "span",
        "site",
        "module",
        "branch",
        "sort",
        "timeline",
        "top",
        "follow",
        "all-spans",
        "flush",
    ],
    groupings: &[],
    sort_keys: &[SortBy::figure(Figure::Allocated), SortBy::Time],
    columns: &[("", &columns::latency::STALLS)],
    text: None,
    run: Run::Latency {
        lists_stalls: true,
        by_call_site: false,
        takes_inside: false,
        document: |latency, args, top| documents::stalls(latency, args.sort.first() == Some(&SortBy::Time), top),
        needs: Needs::Spans,
    },
};

pub(super) const WAITS: View = View {
    name: "waits",
    meaning: "Which allocations of pages waited, and how long",
    help: "\
Allocations of pages by call-site, task, cgroup, order or flags: how many waited for direct reclaim, node reclaim or compaction, and how long. \
The wait is that of the thread since its last allocation of pages. The recording needs the events of pages, too: \
kmemtraced -e latency,page. Reclaim for memory cgroups comes after the allocation: see stalls. --span counts only the time of these kinds; --site, --module and --branch go by the call-site, which needs stacks.",
    examples: &[("waits --by task,order DIR", "by thread and order")],
    options: &["by", "threshold", "span", "site", "module", "branch", "top"],
    groupings: &[GroupKey::Site, GroupKey::Task, GroupKey::Cgroup, GroupKey::Order, GroupKey::Gfp],
    sort_keys: &[],
    columns: &[("figures", &columns::latency::WAITS), ("keys of --by", &columns::latency::WAIT_KEYS)],
    text: None,
    run: Run::Latency {
        lists_stalls: false,
        by_call_site: false,
        takes_inside: false,
        document: |latency, _, top| documents::waits(latency, top),
        needs: Needs::Pages,
    },
};

pub(super) const FUNCTIONS: View = View {
    name: "functions",
    meaning: "Time in functions that the kernel timed",
    help: "\
Calls of the functions that the kernel's function_graph tracer timed, by function. The recording needs kmemtraced -e latency --functions, \
where the kernel has that tracer. --site and --module go by the function, --span by the spans that \
a call ends in.",
    examples: &[("functions --threshold 1ms DIR", "long calls")],
    options: &["threshold", "span", "site", "module", "top"],
    groupings: &[],
    sort_keys: &[],
    columns: &[("", &columns::latency::FUNCTIONS)],
    text: None,
    run: Run::Latency {
        lists_stalls: false,
        by_call_site: false,
        takes_inside: true,
        document: |latency, _, top| documents::functions(latency, top),
        needs: Needs::Functions,
    },
};
