//! `caches`: a row per cache name in the allocation events, and kind.

use kmemtrace_abi::event::Kind;

use super::naming::Naming;
use super::ranked::{Listing, Shape, ranked};
use super::row::{Name, row};
use super::sums::{Ordering, PrintedStats, Saturation};
use crate::pairing::pairs::PairingResult;

row! {
    /// Row of `caches`.
    pub struct CacheRow<'a> {
        /// Name of the cache; `None` where events name none.
        pub cache: Name<'a>,
        /// Kind of the objects.
        pub kind: Kind,
        /// Sums.
        pub stats: PrintedStats,
    }
}

/// The listing of `caches`.
pub(super) fn caches<'a>(
    paired: &'a PairingResult,
    naming: Naming<'a>,
    shape: &Shape,
    sums: (&Saturation, Ordering),
) -> Listing<'a, CacheRow<'a>, PrintedStats> {
    let rows = paired.rows.iter().map(|(key, stats)| (naming.numbered(key.others), key.kind, stats));
    ranked(rows, shape, sums, |cache, kind, stats| CacheRow { cache: cache.map(Into::into), kind, stats })
}
