//! `cross`: pairs that were freed on another CPU, as a matrix and per call-site.

use std::cmp::Reverse;
use std::collections::HashMap;

use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};

use super::row::{Cell, Row, Rows};
use super::{Document, Naming, rank};
use crate::account::stats::{Narrow, Stats};
use crate::pairing::pairs::PairingResult;

/// The document without the head.
pub(super) fn cross<'a>(
    paired: &'a PairingResult,
    naming: Naming<'a>,
    cpus: &'a [u32],
    top: Option<usize>,
    narrow: &Narrow,
) -> Document<'a> {
    // Without an order any row may have such pairs.
    let least = |figures: &Stats| if narrow.is_without_order() { figures.frees } else { figures.cross_cpu };
    let mut rows: Vec<_> = paired.rows.iter().filter(|(_, figures)| least(figures) > 0).collect();
    rows.sort_by_key(|((call_site, kind), f)| {
        let crossed = if narrow.is_without_order() { (0, 0) } else { (f.cross_cpu_bytes, f.cross_cpu) };
        (Reverse(crossed), *call_site, rank(*kind))
    });
    let rest = rows.split_off(top.unwrap_or(rows.len()).min(rows.len()));
    let mut members = Map::new();
    members.insert("cpus".to_owned(), json!(cpus));
    members.insert("matrix".to_owned(), Value::Null);
    members.insert("rows".to_owned(), Value::Null);
    if !rest.is_empty() {
        let (frees, cross_cpu) = rest.iter().fold((0, 0), |(a, b), (_, f)| (a + f.frees, b + f.cross_cpu));
        let bytes = narrow.in_order(narrow.u64(rest.iter().map(|(_, f)| f.cross_cpu_bytes).sum()));
        let others =
            json!({ "frees": frees, "cross_cpu": narrow.in_order(json!(cross_cpu)), "cross_cpu_bytes": bytes });
        members.insert("others".to_owned(), others);
        members.insert("others_count".to_owned(), json!(rest.len()));
    }
    let rows: Vec<_> = rows.into_iter().map(|(key, f)| (key, f, narrow.sum(f.cross_cpu_bytes))).collect();
    let own = narrow.clone();
    let rows = Rows::of(rows, move |((call_site, kind), figures, bytes)| {
        let mut row = Row::default();
        naming.put_site(&mut row, *call_site);
        row.put("kind", Cell::Word(kind.name()));
        row.put("frees", Cell::Count(figures.frees));
        row.put("cross_cpu", own.cell_in_order(Cell::Count(figures.cross_cpu)));
        row.put("cross_cpu_bytes", own.cell_in_order(Cell::Count(*bytes)));
        row
    });
    let matrix = (!narrow.is_without_order())
        .then(|| CpuMatrix::new(cpus, paired.counts.matrix.iter().map(|(&cpus, &n)| (cpus, n))));
    Document { matrix, ..Document::new(members, rows) }
}

/// Pairs per allocating and freeing CPU. Only CPUs that have pairs take memory: a trace may name thousands.
pub struct CpuMatrix<'a> {
    /// All CPUs of the trace.
    pub cpus: &'a [u32],
    /// Allocating CPU, freeing CPU and pairs, ascending.
    pairs: Vec<(u32, u32, u64)>,
}

impl<'a> CpuMatrix<'a> {
    /// The pairs that were counted.
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

    /// The CPUs that have pairs, ascending; where there are more than `most`, those with most of them. Then how many CPUs
    /// with pairs that leaves out.
    pub fn busiest(&self, most: usize) -> (Vec<u32>, usize) {
        let mut by_cpu: HashMap<u32, u64> = HashMap::new();
        for &(from, to, pairs) in self.pairs.iter().filter(|pair| pair.2 > 0) {
            *by_cpu.entry(from).or_default() += pairs;
            *by_cpu.entry(to).or_default() += pairs;
        }
        let mut cpus: Vec<u32> = self.cpus.iter().copied().filter(|cpu| by_cpu.contains_key(cpu)).collect();
        let left_out = cpus.len().saturating_sub(most);
        cpus.sort_by_key(|cpu| Reverse(by_cpu.get(cpu).copied()));
        cpus.truncate(most);
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
