//! `sites`: a row per call-site and kind of what it allocated.

use serde_json::{Map, Value};

use super::{Naming, SortKey, ranked};
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
    let rows = paired.rows.iter().map(|((call_site, kind), figures)| (*call_site, *kind, figures));
    ranked(rows, keys, top, narrow, |row, call_site| naming.put_site(row, call_site))
}
