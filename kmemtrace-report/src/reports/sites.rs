//! `sites`: a row per call-site and kind of what it allocated.

use super::{Document, Naming, SortKey, ranked};
use crate::figures::Narrow;
use crate::pairs::Paired;

/// The document without the head.
pub(crate) fn sites<'a>(
    paired: &'a Paired,
    naming: &'a Naming<'a>,
    keys: &[SortKey],
    top: Option<usize>,
    narrow: &'a Narrow,
) -> Document<'a> {
    let rows = paired.rows.iter().map(|((call_site, kind), figures)| (*call_site, *kind, figures));
    ranked(rows, keys, top, narrow, |row, call_site| naming.put_site(row, call_site))
}
