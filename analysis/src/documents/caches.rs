//! `caches`: a row per cache and kind. Objects of `kmalloc` count under their size class.

use kmemtrace_abi::event::Kind;

use super::group::GroupNaming;
use super::naming::Candidates;
use super::ranked::{Listing, Shape, ranked};
use super::row::{Name, row};
use super::sums::{Ordering, PrintedStats, Saturation, ToldStats};
use super::text_members::{TextMembers, TextNaming};
use crate::account::grouping::RowKey;
use crate::names::aliases::CacheAliases;
use crate::names::caches::candidates;
use crate::names::slabinfo::{CacheChange, Slabinfo};
use crate::pairing::result::{Counts, PairingResult};

row! {
    /// Row of `caches`.
    pub struct CacheRow<'a> {
        /// Name of the cache; `None` where nothing tells it.
        pub cache: Name<'a>,
        /// Origin of the name: `event`, `free`, `slabinfo` or `size`; `None` without a name.
        pub cache_from: Option<&'static str>,
        /// Caches that the objects may be of, where slabinfo has several with their size.
        pub cache_candidates: Option<Candidates>,
        /// Kind of the objects.
        pub kind: Kind,
        /// Sums.
        pub stats: PrintedStats,
        /// Change of the objects in use over the recording by the kernel's own statistics; `None` without slabinfo of start and
        /// end, and for rows that are not all objects of the cache.
        pub slabinfo_change: Option<i64>,
        /// Share of that change that the events explain, in percent; `None` also for `kmalloc`, whose frees do not tell the size of
        /// older objects. See [`crate::CacheChange::visibility_percent`].
        pub visibility_percent: Option<u64>,
        /// Other names of the cache, with which the kernel merged it; `None` where the recording does not keep them, and without a
        /// name.
        pub aliases: Option<&'a [Box<[u8]>]>,
        /// Members of a text of one moment.
        pub text: TextMembers,
    }
}

/// Objects of each cache, as the kernel's statistics and the events count them.
#[derive(Clone, Copy)]
struct Visibility<'a> {
    slabinfo: Option<&'a [Slabinfo; 2]>,
    counts: &'a Counts,
}

impl Visibility<'_> {
    /// Change of a cache, and the share of it that the events explain.
    fn of(self, number: u64, name: &[u8], kind: Kind, live: u64) -> Option<(i64, Option<u64>)> {
        let [start, end] = self.slabinfo?;
        let old = u32::try_from(number).ok().and_then(|number| self.counts.old_frees.get(&number)).copied();
        let live = i64::try_from(live).unwrap_or(i64::MAX);
        let events = live.saturating_sub(i64::try_from(old.unwrap_or(0)).unwrap_or(i64::MAX));
        let change = CacheChange::of(start, end, name, events)?;
        Some((change.change, change.visibility_percent.filter(|_| kind == Kind::Cache).map(u64::from)))
    }
}

/// The listing of `caches`.
pub(super) fn caches<'a>(
    paired: &'a PairingResult,
    (naming, text): (GroupNaming<'a>, TextNaming<'a>),
    slabinfo: Option<&'a [Slabinfo; 2]>,
    aliases: Option<&'a CacheAliases>,
    shape: &Shape,
    sums: (&Saturation, Ordering),
) -> Listing<'a, CacheRow<'a>, ToldStats> {
    let (names, visibility) = (naming.naming, Visibility { slabinfo, counts: &paired.counts });
    // Names of candidates have zeros in them and sort behind the row that has none.
    let place = move |key: &RowKey| {
        let name = names.numbered(key.others);
        let several = name.filter(|name| candidates(name).is_some());
        (name.filter(|_| several.is_none()), several, *key)
    };
    // Only slabs have caches; pages have one row.
    let rows = paired.rows.iter().filter(|(key, _)| key.kind.space().is_always_shown());
    let rows = rows.map(move |(key, stats)| (place(key), key.kind, stats));
    ranked(rows, shape, sums, move |(cache, _, row), kind, stats| {
        let seen = cache.and_then(|name| visibility.of(row.others, name, kind, stats.live_objects.unwrap_or(0)));
        CacheRow {
            cache: cache.map(Into::into),
            cache_from: cache.and_then(|_| naming.cache_from(*row)),
            cache_candidates: names.cache(row.others).1,
            kind,
            stats,
            slabinfo_change: seen.map(|(change, _)| change),
            visibility_percent: seen.and_then(|(_, visibility)| visibility),
            aliases: cache.zip(aliases).map(|(name, aliases)| aliases.of(name)),
            text: text.members(row),
        }
    })
}
