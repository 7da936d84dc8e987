//! `caches`: a row per cache name in the allocation events, and kind.

use super::row::Cell;
use super::{Document, Naming, SortKey, ranked};
use crate::account::classes::cache_of;
use crate::account::stats::Narrow;
use crate::pairing::pairs::PairingResult;

/// The document without the head.
pub(super) fn caches<'a>(
    paired: &'a PairingResult,
    naming: Naming<'a>,
    keys: &[SortKey],
    top: Option<usize>,
    narrow: &Narrow,
) -> Document<'a> {
    let name = |index: Option<usize>| index.and_then(|index| naming.names.at(index));
    let rows = paired.rows.iter().map(|(key, figures)| (name(cache_of(*key)), key.1, figures));
    ranked(rows, keys, top, narrow, move |row, name| row.put("cache", Cell::name(name)))
}
