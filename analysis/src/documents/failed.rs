//! `failed`: allocations that returned null, by call-site, size, flags and thread.

use std::cmp::Reverse;

use kmemtrace_abi::event::Kind;
use kmemtrace_abi::kernel::gfp::GfpNames;
use kmemtrace_abi::trace::MADE_UP;
use serde::Serialize;

use super::group::GroupNaming;
use super::naming::CallSite;
use super::ranked::{Listing, Others};
use super::row::{Name, Rows, row};
use crate::account::grouping::{GroupKey, GroupValue, NO_VALUE, RowKey};
use crate::analysis::Analysis;

/// Largest number of zones that are kept of a text. Machines have some for each node.
const MAX_ZONES: usize = 1 << 14;
/// Largest number of orders. Kernels have 11.
const MAX_ORDERS: usize = 64;

row! {
    /// Row of `failed`: refused requests that are alike.
    pub struct FailedRow<'a> {
        /// Call-site of the requests.
        pub site: CallSite<'a>,
        /// Kind of the objects.
        pub kind: Kind,
        /// Binary logarithm of the number of pages; `None` for other kinds.
        pub order: Option<u64>,
        /// Bytes of one request.
        pub requested: Option<u64>,
        /// Flags of the requests; `None` where the event has none.
        pub gfp: Option<u64>,
        /// Their names, as the kernel prints them.
        pub gfp_names: Name<'a>,
        /// Thread.
        pub pid: Option<i32>,
        /// Command name of the thread.
        pub comm: Name<'a>,
        /// Number of requests.
        pub failed_allocs: u64,
        /// True where the flags say that the caller can do without the memory; `None` where the flags, or the kernel's names of
        /// them, are not known.
        pub fallback: Option<bool>,
        /// Order key of the first one.
        pub first: u64,
        /// Order key of the last one.
        pub last: u64,
    }
}

row! {
    /// Sum of refused requests left out.
    pub struct OtherFailures {
        /// Number of requests.
        pub failed_allocs: u64,
    }
}

row! {
    /// Free blocks of a zone.
    pub struct ZoneBlocks {
        /// Node.
        pub node: u64,
        /// Name of the zone.
        pub zone: Name<'static>,
        /// Number of free blocks by order.
        pub free: Vec<u64>,
    }
}

/// Numbers of refused requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct FailedTotal {
    /// All of them.
    pub failed_allocs: u64,
    /// Those whose caller can do without the memory.
    pub with_fallback: u64,
}

/// Free blocks at both ends of the recording.
#[derive(Clone, Debug, Serialize)]
pub struct Buddyinfo {
    /// At the start.
    pub before: Vec<ZoneBlocks>,
    /// At the end.
    pub after: Vec<ZoneBlocks>,
}

/// Body of `failed`.
#[derive(Serialize)]
pub struct FailedBody<'a> {
    /// Rows: those without a fallback first, then the most frequent.
    #[serde(flatten)]
    pub listing: Listing<'a, FailedRow<'a>, OtherFailures>,
    /// Numbers of all rows.
    pub total: FailedTotal,
    /// `/proc/buddyinfo` of start and end; `None` where the recording does not have both.
    pub buddyinfo: Option<Buddyinfo>,
}

/// Row before it has the form of a document. Members in the order in which rows of equal rank are sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Failure {
    has_fallback: bool,
    count: Reverse<u64>,
    /// A call-site that the input names without an address comes last.
    is_made_up: bool,
    site: u64,
    kind: Kind,
    order: Option<u64>,
    requested: Option<u64>,
    gfp: Option<u64>,
    pid: Option<i32>,
    /// Value of the thread, which gives names that it had.
    task: GroupValue,
    fallback: Option<bool>,
    span: (u64, u64),
}

/// The body of `failed`; at most `top` rows.
pub(super) fn failed(analysis: &Analysis, top: Option<usize>) -> FailedBody<'_> {
    let naming = GroupNaming::of(analysis);
    let gfp_names = analysis.gfp_names.as_deref();
    let flags = gfp_names.and_then(GfpNames::fallback_flags);
    let rows = analysis.paired.rows.iter().filter(|(_, stats)| stats.failed_allocs > 0);
    let mut rows: Vec<Failure> = rows
        .map(|(key, stats)| failure(&naming, key, (stats.failed_allocs, stats.failed_span.unwrap_or_default()), flags))
        .collect();
    rows.sort_unstable();
    let count = |rows: &[Failure]| rows.iter().fold(0u64, |sum, row| sum.saturating_add(row.count.0));
    let with_fallback: Vec<Failure> = rows.iter().copied().filter(|row| row.has_fallback).collect();
    let total = FailedTotal { failed_allocs: count(&rows), with_fallback: count(&with_fallback) };
    let make = move |row: &Failure| FailedRow {
        site: naming.naming.call_site(row.site),
        kind: row.kind,
        order: row.order,
        requested: row.requested,
        gfp: row.gfp,
        gfp_names: row.gfp.zip(gfp_names).map(|(gfp, names)| names.text(gfp).to_string().into_bytes().into()),
        pid: row.pid,
        comm: naming.task(row.task).1,
        failed_allocs: row.count.0,
        fallback: row.fallback,
        first: row.span.0,
        last: row.span.1,
    };
    let template = rows.first().map(&make);
    let rest = rows.split_off(top.unwrap_or(rows.len()).min(rows.len()));
    let others = (!rest.is_empty()).then(|| Others::one(rest.len(), OtherFailures { failed_allocs: count(&rest) }));
    FailedBody { listing: Listing::new(Rows::of(rows, make), others, template), total, buddyinfo: buddyinfo(analysis) }
}

fn failure(
    naming: &GroupNaming<'_>,
    key: &RowKey,
    (count, span): (u64, (u64, u64)),
    fallback_flags: Option<u64>,
) -> Failure {
    let values = naming.values(*key);
    let value = |of: GroupKey| values.iter().find_map(|&(key, value)| (key == of).then_some(value));
    let known = |of: GroupKey| value(of).filter(|&value| value != NO_VALUE);
    let (gfp, task) = (known(GroupKey::Gfp), value(GroupKey::Task).unwrap_or(NO_VALUE));
    let fallback = gfp.zip(fallback_flags).map(|(gfp, flags)| gfp & flags != 0);
    Failure {
        has_fallback: fallback == Some(true),
        count: Reverse(count),
        is_made_up: MADE_UP.contains(&key.site),
        site: key.site,
        kind: key.kind,
        order: known(GroupKey::Order),
        requested: known(GroupKey::Size),
        gfp,
        pid: naming.task(task).0,
        task,
        fallback,
        span,
    }
}

fn buddyinfo(analysis: &Analysis) -> Option<Buddyinfo> {
    let [before, after] = analysis
        .machine
        .as_ref()
        .filter(|_| analysis.window.is_none())?
        .sides
        .each_ref()
        .map(|side| zones(&side.buddyinfo));
    (!before.is_empty() && !after.is_empty()).then_some(Buddyinfo { before, after })
}

/// Zones in the text of `/proc/buddyinfo`: lines `Node N, zone NAME BLOCKS…`. Other lines are skipped.
fn zones(text: &[u8]) -> Vec<ZoneBlocks> {
    let zone = |line: &[u8]| {
        let line = std::str::from_utf8(line).ok()?.trim().strip_prefix("Node ")?;
        let (node, rest) = line.split_once(',')?;
        let mut words = rest.trim_start().strip_prefix("zone")?.split_ascii_whitespace();
        let zone = words.next()?.as_bytes().to_vec();
        let free: Option<Vec<u64>> = words.map(|word| word.parse().ok()).collect();
        let free = free.filter(|free| (1..=MAX_ORDERS).contains(&free.len()))?;
        Some(ZoneBlocks { node: node.trim().parse().ok()?, zone: Some(zone.into()), free })
    };
    text.split(|&byte| byte == b'\n').filter_map(zone).take(MAX_ZONES).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_buddyinfo_are_zones() {
        let text = b"Node 0, zone      DMA      1      0      2\nNode 1, zone   Normal  3 4 5 \nNode 2, zone x a\nnone\n\xff\n";
        let zone = |node, zone: &'static [u8], free: [u64; 3]| ZoneBlocks {
            node,
            zone: Some(zone.into()),
            free: free.to_vec(),
        };
        assert_eq!(zones(text), [zone(0, b"DMA", [1, 0, 2]), zone(1, b"Normal", [3, 4, 5])]);
        let many = format!("Node 0, zone DMA{}\nNode 0, zone DMA\n", " 1".repeat(MAX_ORDERS + 1));
        assert!(zones(many.as_bytes()).is_empty());
    }

    #[test]
    fn rows_without_a_fallback_come_first() {
        let row = |fallback: Option<bool>, count, site| Failure {
            has_fallback: fallback == Some(true),
            count: Reverse(count),
            is_made_up: false,
            site,
            kind: Kind::Kmalloc,
            order: None,
            requested: Some(8),
            gfp: None,
            pid: None,
            task: NO_VALUE,
            fallback,
            span: (0, 0),
        };
        let mut rows = [row(Some(true), 9, 1), row(Some(false), 1, 2), row(None, 2, 4), row(Some(false), 2, 3)];
        rows.sort_unstable();
        assert_eq!(rows.map(|row| row.site), [3, 4, 2, 1]);
    }
}
