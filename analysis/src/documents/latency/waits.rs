//! `waits`: allocations of pages that waited for reclaim and compaction.

use kmemtrace_abi::event::Span;
use serde::Serialize;

use super::naming::{gfp_name, known, symbol};
use crate::documents::ranked::{Listing, Others};
use crate::documents::row::{Address, Name, Rows, row};
use crate::latency::{Latency, NestingRow, SpanClass, WaitBy, WaitKey, WaitSums};

row! {
    /// Row of `waits`: keys that were not asked for are `None`.
    pub struct WaitRow<'a> {
        /// Call-site, by the stack.
        pub call_site: Option<Address>,
        /// Name of the function.
        pub symbol: Name<'a>,
        /// Thread.
        pub pid: Option<i32>,
        /// Command name of the thread.
        pub comm: Name<'a>,
        /// Binary logarithm of the number of pages.
        pub order: Option<u64>,
        /// Flags of the allocation.
        pub gfp: Name<'a>,
        /// Path of the thread's cgroup.
        pub cgroup: Name<'a>,
        /// Allocations.
        pub allocs: u64,
        /// Allocations that waited.
        pub waited: u64,
        /// Sum of the waits.
        pub total: Option<u64>,
        /// Percentile of the waits.
        pub p50: Option<u64>,
        /// Percentile of the waits.
        pub p99: Option<u64>,
        /// Longest wait.
        pub max: Option<u64>,
    }
}

row! {
    /// Sum of rows left out.
    pub struct OtherWaits {
        /// Allocations.
        pub allocs: u64,
        /// Allocations that waited.
        pub waited: u64,
        /// Sum of the waits.
        pub total: Option<u64>,
    }
}

/// Body of `waits`.
#[derive(Serialize)]
pub struct Waits<'a> {
    /// Allocations.
    pub allocs: u64,
    /// Allocations that waited.
    pub waited: u64,
    /// Rows with the largest sum of waits first.
    #[serde(flatten)]
    pub listing: Listing<'a, WaitRow<'a>, OtherWaits>,
    /// Stalls of memory cgroups: a charge waits in them, and no allocation of pages.
    pub memcg_stalls: u64,
    /// Keys of the rows.
    #[serde(skip)]
    pub keys: &'a [WaitBy],
}

/// The body of `waits`.
pub(super) fn waits(latency: &Latency, top: Option<usize>) -> Waits<'_> {
    let sum = |rows: &[&(WaitKey, WaitSums)]| OtherWaits {
        allocs: rows.iter().map(|(_, sums)| sums.allocs).sum(),
        waited: rows.iter().map(|(_, sums)| sums.figures.count).sum(),
        total: known(latency, rows.iter().fold(0, |sum, (_, sums)| sums.figures.total.saturating_add(sum))),
    };
    let mut rows: Vec<&(WaitKey, WaitSums)> = latency.waits.iter().collect();
    let all = sum(&rows);
    let rest = rows.split_off(top.unwrap_or(rows.len()).min(rows.len()));
    let others = Others::one(rest.len(), sum(&rest));
    let make = move |(key, sums): &(WaitKey, WaitSums)| {
        let of_any = |duration: u64| known(latency, duration).filter(|_| sums.figures.count > 0);
        let [p50, p99] = sums.figures.percentiles([50, 99]).map(of_any);
        WaitRow {
            call_site: key.call_site.map(Address),
            symbol: key.call_site.and_then(|site| symbol(latency, site)),
            pid: key.pid,
            comm: key.pid.and_then(|pid| latency.names.comms.get(&pid)).map(|comm| (&**comm).into()),
            order: key.order.map(u64::from),
            gfp: key.gfp.and_then(|flags| gfp_name(latency, flags)),
            cgroup: key.cgroup.and_then(|number| Some(latency.cgroups.as_ref()?.path_of(number)?.into())),
            allocs: sums.allocs,
            waited: sums.figures.count,
            total: known(latency, sums.figures.total),
            p50,
            p99,
            max: of_any(sums.figures.max),
        }
    };
    let template = rows.first().or(rest.first()).map(|row| make(row));
    let listing = Listing::new(Rows::of(rows, move |row| make(row)), (!rest.is_empty()).then_some(others), template);
    let is_of_cgroup =
        |row: &&NestingRow| matches!(row.span, Span::Memcg | Span::Softlimit) && row.class == SpanClass::Stall;
    let memcg_stalls = latency.nesting.iter().filter(is_of_cgroup).map(|row| row.count).sum();
    Waits { allocs: all.allocs, waited: all.waited, listing, memcg_stalls, keys: latency.request.wait_keys() }
}
