//! `sites`: a row per call-site and kind of its objects.

use kmemtrace_abi::event::Kind;

use super::naming::{CallSite, Naming};
use super::ranked::{Listing, Shape, ranked};
use super::row::row;
use super::sums::{Ordering, PrintedStats, Saturation};
use crate::pairing::pairs::PairingResult;

row! {
    /// Row of `sites`.
    pub struct SiteRow<'a> {
        /// Call-site of the allocations.
        pub site: CallSite<'a>,
        /// Kind of the objects.
        pub kind: Kind,
        /// Sums.
        pub stats: PrintedStats,
    }
}

/// The listing of `sites`.
pub(super) fn sites<'a>(
    paired: &'a PairingResult,
    naming: Naming<'a>,
    shape: &Shape,
    sums: (&Saturation, Ordering),
) -> Listing<'a, SiteRow<'a>, PrintedStats> {
    let rows = paired.rows.iter().map(|(key, stats)| (key.site, key.kind, stats));
    ranked(rows, shape, sums, move |site, kind, stats| SiteRow { site: naming.call_site(*site), kind, stats })
}
