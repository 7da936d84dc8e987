//! `caches`: a row per cache name in the allocation events, and kind.

use serde_json::{Map, Value, json};

use super::{Naming, SortKey, cut_rows, put_name, put_others, rank, sort_rows};
use crate::classes::cache_of;
use crate::figures::Narrow;
use crate::pairs::Paired;

/// The members after the head.
pub(crate) fn caches(
    paired: &Paired,
    naming: &Naming<'_>,
    keys: &[SortKey],
    top: Option<usize>,
    narrow: &Narrow,
) -> Map<String, Value> {
    let name = |index: Option<usize>| index.and_then(|index| naming.names.at(index));
    let with_allocations = paired.rows.iter().filter(|(_, figures)| !figures.is_empty());
    let mut rows: Vec<_> = with_allocations.map(|(key, figures)| ((name(cache_of(*key)), key.1), figures)).collect();
    rows.sort_by_key(|((name, kind), _)| (*name, rank(*kind)));
    sort_rows(&mut rows, keys);
    let others = cut_rows(&mut rows, top);
    let rows = rows.into_iter().map(|((name, kind), figures)| {
        let mut row = Map::new();
        put_name(&mut row, "cache", name);
        row.insert("kind".to_owned(), json!(kind.name()));
        figures.put(&mut row, narrow);
        Value::Object(row)
    });
    let mut document = Map::new();
    document.insert("rows".to_owned(), rows.collect());
    put_others(&mut document, others, narrow);
    document
}
