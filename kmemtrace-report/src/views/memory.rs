//! Views of memory that is missing: where free memory went, and which requests were refused.

use kmemtrace::Query;
use kmemtrace::documents;

use super::view::{Run, TextNeeds, View};
use crate::columns;

pub(super) const BALANCE: View = View {
    name: "balance",
    meaning: "Where free memory went: parts of memory, and who has them",
    help: "\
The change of each part of the machine's memory over the recording, by /proc/meminfo and /proc/zoneinfo of start and end, without double \
counting: what the parts grew by is what MemFree shrank by, but for what stays unexplained. EXPLAINED has the live bytes of the \
recording's own objects that belong to the part. Below each part that makes up a hundredth of the changes stand the call sites with most \
of them, three or -n. \
It may exceed the change: what was freed meanwhile may be older than the recording, and has no size.

Call sites of pages need events of pages with stacks: kmemtraced -e all --stack. Without them, pages that no counter has, such as those of \
drivers and network buffers, are a part of what stays unexplained.",
    examples: &[
        ("balance DIR", "where free memory went"),
        ("balance -n 10 DIR", "ten call sites of each part"),
        ("balance --format json DIR", "all call sites of each part"),
    ],
    options: &["top"],
    groupings: &[],
    sort_keys: &[],
    columns: &[("", &columns::BALANCE)],
    text: Some(TextNeeds::Counters),
    run: Run::Document {
        query: |_, _| Query::by_part(),
        document: |analysis, shape, _| documents::balance(analysis, shape),
    },
};

pub(super) const FAILED: View = View {
    name: "failed",
    meaning: "Allocations that the kernel refused",
    help: "\
Allocations that returned no memory, by call site, size, flags and thread, the most frequent first. Below stand the free blocks of each \
zone at the start and at the end, by order: a request of order 4 fails where there are only blocks of orders below 4.

The flags __GFP_NOWARN and __GFP_NORETRY say that the caller has a way without the memory, or asks for less then. Such requests have a \
fallback: they are counted apart and come last.",
    examples: &[
        ("failed DIR", "refused requests"),
        ("failed --kind pages DIR", "those of whole pages"),
    ],
    options: &["top"],
    groupings: &[],
    sort_keys: &[],
    columns: &[("requests", &columns::FAILED), ("free blocks", &columns::FREE_BLOCKS)],
    text: None,
    run: Run::Document {
        query: |_, _| Query::by_failure(),
        document: |analysis, shape, _| documents::failed(analysis, shape),
    },
};
