//! `cross`: pairs that were freed on another CPU, as a matrix and per call-site.

use std::cmp::Reverse;

use serde_json::{Map, Value, json};

use super::{Naming, rank};
use crate::figures::{Figures, Narrow};
use crate::pairs::Paired;

/// The members after the head.
pub(crate) fn cross(
    paired: &Paired,
    naming: &Naming<'_>,
    cpus: &[u32],
    top: Option<usize>,
    narrow: &Narrow,
) -> Map<String, Value> {
    let pairs = |from: u32, to: u32| paired.counts.matrix.get(&(from, to)).copied().unwrap_or(0);
    let matrix: Vec<Vec<u64>> = cpus.iter().map(|&from| cpus.iter().map(|&to| pairs(from, to)).collect()).collect();
    // Without an order any row may have such pairs.
    let least = |figures: &Figures| if narrow.is_without_order() { figures.frees } else { figures.cross_cpu };
    let mut rows: Vec<_> = paired.rows.iter().filter(|(_, figures)| least(figures) > 0).collect();
    rows.sort_by_key(|((call_site, kind), f)| {
        let crossed = if narrow.is_without_order() { (0, 0) } else { (f.cross_cpu_bytes, f.cross_cpu) };
        (Reverse(crossed), *call_site, rank(*kind))
    });
    let rest = rows.split_off(top.unwrap_or(rows.len()).min(rows.len()));
    let sums = |row: &mut Map<String, Value>, frees: u64, cross_cpu: u64, bytes: u128| {
        row.insert("frees".to_owned(), json!(frees));
        row.insert("cross_cpu".to_owned(), narrow.in_order(json!(cross_cpu)));
        row.insert("cross_cpu_bytes".to_owned(), narrow.in_order(narrow.u64(bytes)));
    };
    let rows = rows.into_iter().map(|((call_site, kind), figures)| {
        let mut row = Map::new();
        naming.put_site(&mut row, *call_site);
        row.insert("kind".to_owned(), json!(kind.name()));
        sums(&mut row, figures.frees, figures.cross_cpu, figures.cross_cpu_bytes);
        Value::Object(row)
    });
    let rows: Value = rows.collect();
    let mut document = Map::new();
    document.insert("cpus".to_owned(), json!(cpus));
    document.insert("matrix".to_owned(), narrow.in_order(json!(matrix)));
    document.insert("rows".to_owned(), rows);
    if !rest.is_empty() {
        let mut others = Map::new();
        let (frees, cross_cpu) = rest.iter().fold((0, 0), |(a, b), (_, f)| (a + f.frees, b + f.cross_cpu));
        sums(&mut others, frees, cross_cpu, rest.iter().map(|(_, f)| f.cross_cpu_bytes).sum());
        document.insert("others".to_owned(), Value::Object(others));
        document.insert("others_count".to_owned(), json!(rest.len()));
    }
    document
}
