//! `caches`: a row per cache and kind. Objects of `kmalloc` count under their size class.

use kmemtrace_abi::event::Kind;

use super::group::GroupNaming;
use super::ranked::{Listing, Shape, ranked};
use super::row::{Name, row};
use super::sums::{Ordering, PrintedStats, Saturation};
use crate::pairing::pairs::PairingResult;

row! {
    /// Row of `caches`.
    pub struct CacheRow<'a> {
        /// Name of the cache; `None` where nothing tells it.
        pub cache: Name<'a>,
        /// Origin of the name: `event`, `free` or `size`; `None` without a name.
        pub cache_from: Option<&'static str>,
        /// Kind of the objects.
        pub kind: Kind,
        /// Sums.
        pub stats: PrintedStats,
    }
}

/// The listing of `caches`.
pub(super) fn caches<'a>(
    paired: &'a PairingResult,
    naming: GroupNaming<'a>,
    shape: &Shape,
    sums: (&Saturation, Ordering),
) -> Listing<'a, CacheRow<'a>, PrintedStats> {
    let names = naming.naming;
    let rows = paired.rows.iter().map(move |(key, stats)| (names.numbered(key.others), key.kind, stats));
    ranked(rows, shape, sums, move |cache, kind, stats| CacheRow {
        cache: cache.map(Into::into),
        cache_from: cache.map(|_| naming.origin(kind)),
        kind,
        stats,
    })
}
