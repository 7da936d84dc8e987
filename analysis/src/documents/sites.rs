//! `sites`: a row per call-site and kind of what it allocated.

use super::{Document, Naming, SortKey, ranked};
use crate::account::stats::Narrow;
use crate::pairing::pairs::PairingResult;

/// The document without the head.
pub(super) fn sites<'a>(
    paired: &'a PairingResult,
    naming: Naming<'a>,
    keys: &[SortKey],
    top: Option<usize>,
    narrow: &Narrow,
) -> Document<'a> {
    let rows = paired.rows.iter().map(|((call_site, kind), figures)| (*call_site, *kind, figures));
    ranked(rows, keys, top, narrow, move |row, call_site| naming.put_site(row, call_site))
}
