//! `sites`: a row per call-site and kind of what it allocated.

use serde_json::{Map, Value, json};

use super::{Naming, SortKey, cut_rows, put_others, rank, sort_rows};
use crate::figures::Narrow;
use crate::pairs::Paired;

/// The members after the head.
pub(crate) fn sites(
    paired: &Paired,
    naming: &Naming<'_>,
    keys: &[SortKey],
    top: Option<usize>,
    narrow: &Narrow,
) -> Map<String, Value> {
    let with_allocations = paired.rows.iter().filter(|(_, figures)| !figures.is_empty());
    let mut rows: Vec<_> = with_allocations.map(|(key, figures)| (*key, figures)).collect();
    rows.sort_by_key(|((call_site, kind), _)| (*call_site, rank(*kind)));
    sort_rows(&mut rows, keys);
    let others = cut_rows(&mut rows, top);
    let rows = rows.into_iter().map(|((call_site, kind), figures)| {
        let mut row = Map::new();
        naming.put_site(&mut row, call_site);
        row.insert("kind".to_owned(), json!(kind.name()));
        figures.put(&mut row, narrow);
        Value::Object(row)
    });
    let mut document = Map::new();
    document.insert("rows".to_owned(), rows.collect());
    put_others(&mut document, others, narrow);
    document
}
