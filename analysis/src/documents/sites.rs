//! `sites`: a row per call-site and kind of its objects.

use std::cmp::Reverse;

use kmemtrace_abi::event::{Kind, Space};

use super::naming::{CallSite, Naming};
use super::ranked::{Listing, Shape, ranked};
use super::row::{Rows, row};
use super::sums::{Ordering, PrintedStats, Saturation, ToldStats};
use super::text_members::{TextMembers, TextNaming};
use crate::account::grouping::RowKey;
use crate::account::stats::Stats;
use crate::pairing::result::PairingResult;

row! {
    /// Row of `sites`.
    pub struct SiteRow<'a> {
        /// Call-site of the allocations.
        pub site: CallSite<'a>,
        /// Kind of the objects.
        pub kind: Kind,
        /// Sums.
        pub stats: PrintedStats,
        /// Members of a text of one moment.
        pub text: TextMembers,
    }
}

/// The listing of `sites`.
pub(super) fn sites<'a>(
    paired: &'a PairingResult,
    (naming, text): (Naming<'a>, TextNaming<'a>),
    shape: &Shape,
    sums: (&Saturation, Ordering),
) -> Listing<'a, SiteRow<'a>, ToldStats> {
    let rows = paired.rows.iter().map(|(key, stats)| ((naming.place_of(key.site), *key), key.kind, stats));
    ranked(rows, shape, sums, move |(_, key), kind, stats| SiteRow {
        site: naming.call_site(key.site),
        kind,
        stats,
        text: text.members(key),
    })
}

/// The `limit` call-sites with the largest figures, one of which is above 0. Rows of other spaces than slab without a call-site point
/// nowhere, and are left out.
pub(super) fn top<'a, 'r>(
    rows: impl Iterator<Item = (RowKey, &'r Stats)>,
    (naming, text): (Naming<'a>, TextNaming<'a>),
    by: &dyn Fn(&RowKey, &Stats) -> (u128, u128),
    limit: usize,
    ordering: Ordering,
) -> Rows<'a, SiteRow<'a>> {
    let is_place = |key: &RowKey| key.kind.space() == Space::Slab || key.site != 0;
    let mut rows: Vec<_> = rows.filter(|(key, stats)| by(key, stats) > (0, 0) && is_place(key)).collect();
    rows.sort_by_cached_key(|(key, stats)| (Reverse(by(key, stats)), naming.place_of(key.site), key.kind));
    rows.truncate(limit);
    let rows: Vec<(RowKey, Stats)> = rows.into_iter().map(|(key, stats)| (key, stats.clone())).collect();
    Rows::of(rows, move |(key, stats)| SiteRow {
        site: naming.call_site(key.site),
        kind: key.kind,
        stats: PrintedStats::new(stats, ordering),
        text: text.members(key),
    })
}
