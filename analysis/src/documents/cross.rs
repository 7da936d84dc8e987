//! `cross`: pairs that were freed on another CPU, as a matrix and per call-site.

use std::cmp::Reverse;
use std::collections::HashMap;

use kmemtrace_abi::event::Kind;
use serde::{Serialize, Serializer};

use super::naming::{CallSite, Naming};
use super::ranked::{Listing, split_others};
use super::row::{Rows, row};
use super::sums::{Ordering, Saturation};
use crate::account::grouping::RowKey;
use crate::account::stats::Stats;
use crate::pairing::result::PairingResult;

row! {
    /// Row of `cross`.
    pub struct CrossRow<'a> {
        /// Call-site of the allocations.
        pub site: CallSite<'a>,
        /// Kind of the objects.
        pub kind: Kind,
        /// Number of frees that were paired.
        pub frees: u64,
        /// Number of frees on another CPU; `None` if the clock orders no events.
        pub cross_cpu: Option<u64>,
        /// Bytes allocated of objects freed on another CPU; `None` if the clock orders no events.
        pub cross_cpu_bytes: Option<u64>,
    }
}

row! {
/// Sum of rows left out.
pub struct OtherCross {
    /// Number of frees that were paired.
    pub frees: u64,
    /// Number of frees on another CPU; `None` if the clock orders no events.
    pub cross_cpu: Option<u64>,
    /// Bytes allocated of objects freed on another CPU; `None` if the clock orders no events.
    pub cross_cpu_bytes: Option<u64>,
}
}

/// Body of `cross`.
#[derive(Serialize)]
pub struct Cross<'a> {
    /// CPUs of the trace, ascending; `None` where the input does not give them.
    pub cpus: Option<&'a [u32]>,
    /// Pairs per allocating and freeing CPU; `None` if the clock orders no events.
    pub matrix: Option<CpuMatrix<'a>>,
    /// Rows with most crossing bytes first.
    #[serde(flatten)]
    pub listing: Listing<'a, CrossRow<'a>, OtherCross>,
}

/// The body of `cross`.
pub(super) fn cross<'a>(
    paired: &'a PairingResult,
    naming: Naming<'a>,
    compares: impl Fn(Kind) -> bool,
    cpus: &'a [u32],
    top: Option<usize>,
    (saturation, ordering): (&Saturation, Ordering),
) -> Cross<'a> {
    // Without an order any row may have such pairs.
    let least = |stats: &Stats| if ordering.is_known { stats.cross_cpu } else { stats.frees };
    let rows = paired.rows.iter().map(|(key, stats)| (key, stats));
    let mut rows: Vec<(&RowKey, &Stats)> = rows.filter(|(key, stats)| compares(key.kind) && least(stats) > 0).collect();
    rows.sort_by_key(|(RowKey { site, kind, .. }, stats)| {
        let crossed = if ordering.is_known { (stats.cross_cpu_bytes, stats.cross_cpu) } else { (0, 0) };
        (Reverse(crossed), *site, *kind)
    });
    let template = rows.first().copied();
    let others = split_others(
        &mut rows,
        top,
        ordering,
        |(key, _)| key.kind,
        |rest| OtherCross {
            frees: rest.iter().map(|(_, stats)| stats.frees).sum(),
            cross_cpu: ordering.known(rest.iter().map(|(_, stats)| stats.cross_cpu).sum()),
            cross_cpu_bytes: ordering
                .known(saturation.sum(rest.iter().map(|(_, stats)| stats.cross_cpu_bytes).sum()))
                .filter(|_| rest.iter().all(|(key, stats)| stats.has_bytes(key.kind))),
        },
    );
    let rows: Vec<_> = rows.into_iter().map(|(key, f)| (key, f, saturation.sum(f.cross_cpu_bytes))).collect();
    let make = move |(RowKey { site, kind, .. }, stats, bytes): &(&RowKey, &Stats, u64)| CrossRow {
        site: naming.call_site(*site),
        kind: *kind,
        frees: stats.frees,
        cross_cpu: ordering.known(stats.cross_cpu),
        cross_cpu_bytes: ordering.known(*bytes).filter(|_| stats.has_bytes(*kind)),
    };
    let template = template.map(|(key, stats)| make(&(key, stats, 0)));
    let rows = Rows::of(rows, make);
    let pairs = || paired.counts.matrix.iter().map(|(&cpus, &n)| (cpus, n));
    let matrix = ordering.is_known.then(|| CpuMatrix::new(cpus, pairs()));
    Cross { cpus: ordering.past(cpus), matrix, listing: Listing::new(rows, others, template) }
}

/// Pairs per allocating and freeing CPU. Only CPUs that have pairs take memory: a trace may name thousands.
pub struct CpuMatrix<'a> {
    /// All CPUs of the trace.
    pub cpus: &'a [u32],
    /// Allocating CPU, freeing CPU and pairs, ascending.
    pairs: Vec<(u32, u32, u64)>,
}

impl<'a> CpuMatrix<'a> {
    /// The matrix of the pairs that were counted.
    pub fn new(cpus: &'a [u32], pairs: impl IntoIterator<Item = ((u32, u32), u64)>) -> CpuMatrix<'a> {
        let mut pairs: Vec<_> = pairs.into_iter().map(|((from, to), n)| (from, to, n)).collect();
        pairs.sort_unstable();
        CpuMatrix { cpus, pairs }
    }

    /// Pairs allocated on a CPU, per freeing CPU: those of `to`, in its order.
    pub fn row(&self, from: u32, to: &[u32]) -> Vec<u64> {
        let start = self.pairs.partition_point(|pair| pair.0 < from);
        let len = self.pairs[start..].partition_point(|pair| pair.0 == from);
        let pairs = &self.pairs[start..start + len];
        let freed_on = |to: &u32| pairs.binary_search_by_key(to, |pair| pair.1).map_or(0, |index| pairs[index].2);
        if pairs.is_empty() { vec![0; to.len()] } else { to.iter().map(freed_on).collect() }
    }

    /// The CPUs that have pairs, ascending; if they are more than `max`, those with most pairs. Also the number of CPUs with
    /// pairs that this leaves out.
    pub fn busiest(&self, max: usize) -> (Vec<u32>, usize) {
        let mut by_cpu: HashMap<u32, u64> = HashMap::new();
        for &(from, to, pairs) in self.pairs.iter().filter(|pair| pair.2 > 0) {
            *by_cpu.entry(from).or_default() += pairs;
            *by_cpu.entry(to).or_default() += pairs;
        }
        let mut cpus: Vec<u32> = self.cpus.iter().copied().filter(|cpu| by_cpu.contains_key(cpu)).collect();
        let left_out = cpus.len().saturating_sub(max);
        cpus.sort_by_key(|cpu| Reverse(by_cpu.get(cpu).copied()));
        cpus.truncate(max);
        cpus.sort_unstable();
        (cpus, left_out)
    }
}

impl Serialize for CpuMatrix<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.cpus.iter().map(|&from| self.row(from, self.cpus)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_matrix_is_whole_in_json_and_the_busiest_come_first() {
        let matrix = CpuMatrix::new(&[1, 3, 7, 9], [((3, 3), 5), ((3, 9), 1), ((7, 3), 2)]);
        assert_eq!(serde_json::to_string(&matrix).unwrap(), "[[0,0,0,0],[0,5,0,1],[0,2,0,0],[0,0,0,0]]");
        assert_eq!(matrix.busiest(4), (vec![3, 7, 9], 0));
        assert_eq!(matrix.busiest(2), (vec![3, 7], 1));
    }
}
