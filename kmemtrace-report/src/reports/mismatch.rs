//! `mismatch`: findings, grouped by class and by the two sides of the pair.

use serde_json::{Map, Value, json};

use super::{Naming, address, rank};
use crate::pairs::Paired;

/// The members after the head.
pub(crate) fn mismatch(paired: &Paired, naming: &Naming<'_>, top: Option<usize>) -> Map<String, Value> {
    let mut rows: Vec<_> = paired.findings.iter().collect();
    rows.sort_by_key(|(key, row)| {
        (std::cmp::Reverse(row.count), key.class, key.alloc_site, key.free_site, rank(key.kind))
    });
    let rest = rows.split_off(top.unwrap_or(rows.len()).min(rows.len()));
    let rows = rows.into_iter().map(|(key, row)| {
        let symbol = |site: Option<u64>| site.and_then(|site| naming.symbol(site));
        let (at, cpu, first) = row.first;
        json!({
            "class": key.class.name(),
            "alloc_site": key.alloc_site.map(address),
            "alloc_symbol": symbol(key.alloc_site),
            "free_site": key.free_site.map(address),
            "free_symbol": symbol(key.free_site),
            "kind": key.kind.name(),
            "count": row.count,
            "suspect": row.suspect,
            "first": { "at": at, "cpu": cpu, "address": address(first) },
        })
    });
    let mut document = Map::new();
    document.insert("rows".to_owned(), rows.collect::<Value>());
    if !rest.is_empty() {
        let count: u64 = rest.iter().map(|(_, row)| row.count).sum();
        let suspect: u64 = rest.iter().map(|(_, row)| row.suspect).sum();
        document.insert("others".to_owned(), json!({ "count": count, "suspect": suspect }));
        document.insert("others_count".to_owned(), json!(rest.len()));
    }
    document
}
