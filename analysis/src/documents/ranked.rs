//! Order of rows, and the sum of those left out.

use std::cmp;

use kmemtrace_abi::event::Kind;
use serde::Serialize;

use super::row::Rows;
use super::sums::{Ordering, PrintedStats, Saturation};
use crate::account::stats::Stats;

/// Sort keys and number of the rows that a document shows.
#[derive(Clone, Debug, Default)]
pub struct Shape {
    /// Sort keys, greatest first.
    pub sort: Vec<SortKey>,
    /// Limit of rows; the rest becomes `others`.
    pub top: Option<usize>,
}

/// Sort key of rows, greatest first (names: smallest first).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SortKey {
    /// Bytes lost to internal fragmentation.
    Wasted,
    /// Bytes lost to internal fragmentation by objects that are live at the end.
    LiveWasted,
    /// Bytes live at the end.
    Live,
    /// Greatest number of live bytes.
    Peak,
    /// Bytes allocated, over all allocations.
    Allocated,
    /// Bytes requested, over all allocations.
    Requested,
    /// Number of allocations.
    Allocs,
    /// Number of frees that were paired.
    Frees,
    /// Number of frees on another CPU.
    Cross,
    /// The call-site or cache itself.
    Site,
}

impl SortKey {
    fn of(self, stats: &Stats) -> u128 {
        match self {
            SortKey::Wasted => stats.wasted,
            SortKey::LiveWasted => stats.live_wasted,
            SortKey::Live => stats.live_allocated,
            SortKey::Peak => stats.peak_live_allocated.unwrap_or(0),
            SortKey::Allocated => stats.allocated,
            SortKey::Requested => stats.requested,
            SortKey::Allocs => stats.allocs.into(),
            SortKey::Frees => stats.frees.into(),
            SortKey::Cross => stats.cross_cpu.into(),
            SortKey::Site => 0,
        }
    }
}

/// Rows of a view, and the sum of those left out.
#[derive(Serialize)]
#[serde(bound = "R: Serialize, O: Serialize")]
pub struct Listing<'a, R: 'a, O> {
    /// The rows shown.
    pub rows: Rows<'a, R>,
    /// The rows left out, if any.
    #[serde(flatten)]
    pub others: Option<Others<O>>,
}

/// Sum and number of the rows left out.
#[derive(Clone, Debug, Serialize)]
pub struct Others<O> {
    /// The sum.
    pub others: O,
    /// Number of rows.
    pub others_count: usize,
}

/// Splits off the rows after the first `top`, and adds them up with `sum`, if any.
pub(super) fn split_others<T, O>(
    rows: &mut Vec<T>,
    top: Option<usize>,
    sum: impl FnOnce(&[T]) -> O,
) -> Option<Others<O>> {
    let rest = rows.split_off(top.unwrap_or(rows.len()).min(rows.len()));
    (!rest.is_empty()).then(|| Others { others: sum(&rest), others_count: rest.len() })
}

/// Index of a kind, for ties.
pub(super) fn rank(kind: Kind) -> usize {
    Kind::ALL.iter().position(|&k| k == kind).unwrap_or(0)
}

/// The listing of a view that has a row for each name and kind: `make` makes a row.
///
/// Rows are sorted by the keys, greatest first, then by name and kind; those after the first `top` are summed in `others`.
pub(super) fn ranked<'a, N: Ord + Copy + 'a, R: 'a>(
    rows: impl Iterator<Item = (N, Kind, &'a Stats)>,
    shape: &Shape,
    (saturation, ordering): (&Saturation, Ordering),
    make: impl Fn(N, Kind, PrintedStats) -> R + 'a,
) -> Listing<'a, R, PrintedStats> {
    let mut rows: Vec<_> = rows.filter(|(_, _, stats)| !stats.is_empty()).collect();
    rows.sort_by_key(|(name, kind, _)| (*name, rank(*kind)));
    rows.sort_by(|(_, _, a), (_, _, b)| {
        shape.sort.iter().map(|key| key.of(b).cmp(&key.of(a))).find(|o| o.is_ne()).unwrap_or(cmp::Ordering::Equal)
    });
    let others = split_others(&mut rows, shape.top, |rest| {
        let mut sum = Stats::default();
        rest.iter().for_each(|(_, _, stats)| sum.add(stats));
        saturation.check(&sum);
        PrintedStats::new(&sum, ordering)
    });
    rows.iter().for_each(|(_, _, stats)| saturation.check(stats));
    let rows = Rows::of(rows, move |(name, kind, stats)| make(*name, *kind, PrintedStats::new(stats, ordering)));
    Listing { rows, others }
}
