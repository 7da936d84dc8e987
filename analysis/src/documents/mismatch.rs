//! `mismatch`: findings, grouped by class and by the two sides of the pair.

use serde_json::{Map, Value, json};

use super::row::{Cell, Row, Rows};
use super::{Document, Naming, rank};
use crate::pairing::pairs::PairingResult;

/// The document without the head.
pub(super) fn mismatch<'a>(paired: &'a PairingResult, naming: Naming<'a>, top: Option<usize>) -> Document<'a> {
    let mut rows: Vec<_> = paired.findings.iter().collect();
    rows.sort_by_key(|(key, row)| {
        (std::cmp::Reverse(row.count), key.class, key.alloc_site, key.free_site, rank(key.kind))
    });
    let rest = rows.split_off(top.unwrap_or(rows.len()).min(rows.len()));
    let mut members = Map::new();
    members.insert("rows".to_owned(), Value::Null);
    if !rest.is_empty() {
        let count: u64 = rest.iter().map(|(_, row)| row.count).sum();
        let suspect: u64 = rest.iter().map(|(_, row)| row.suspect).sum();
        members.insert("others".to_owned(), json!({ "count": count, "suspect": suspect }));
        members.insert("others_count".to_owned(), json!(rest.len()));
    }
    let rows = Rows::of(rows, move |(key, found)| {
        let (at, cpu, first) = found.first;
        let mut row = Row::default();
        row.put("class", Cell::Word(key.class.name()));
        row.put("alloc_site", Cell::address(key.alloc_site));
        row.put("alloc_symbol", naming.symbol(key.alloc_site));
        row.put("free_site", Cell::address(key.free_site));
        row.put("free_symbol", naming.symbol(key.free_site));
        row.put("kind", Cell::Word(key.kind.name()));
        row.put("count", Cell::Count(found.count));
        row.put("suspect", Cell::Count(found.suspect));
        row.put("first", Cell::Event(at, cpu, first));
        row
    });
    Document::new(members, rows)
}
