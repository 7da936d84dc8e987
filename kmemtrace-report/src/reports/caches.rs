//! `caches`: a row per cache name in the allocation events, and kind.

use serde_json::{Map, Value};

use super::{Naming, SortKey, put_name, ranked};
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
    let rows = paired.rows.iter().map(|(key, figures)| (name(cache_of(*key)), key.1, figures));
    ranked(rows, keys, top, narrow, |row, name| put_name(row, "cache", name))
}
