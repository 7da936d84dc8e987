//! `caches`: a row per cache and kind. Objects of `kmalloc` count under their size class. Next to them is what the kernel's own
//! statistics say about each cache, which slabtop shows, too.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use kmemtrace_abi::event::Kind;
use kmemtrace_abi::kernel::kmalloc::is_kmalloc;
use serde::Serialize;

use super::group::GroupNaming;
use super::naming::Candidates;
use super::ranked::{Listing, Shape, ranked};
use super::row::{Name, row};
use super::slab_members::SlabMembers;
use super::sums::{Ordering, PrintedStats, Saturation, ToldStats};
use super::text_members::{TextMembers, TextNaming};
use crate::account::grouping::RowKey;
use crate::analysis::Analysis;
use crate::names::caches::candidates;
use crate::names::slabinfo::{CacheChange, Slabinfo};
use crate::pairing::result::PairingResult;

row! {
    /// Row of `caches`.
    pub struct CacheRow<'a> {
        /// Name of the cache; `None` where nothing gives it.
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
        /// Share of that change that the events explain, in percent; `None` also for `kmalloc`, whose frees do not give the size of
        /// older objects. See [`crate::CacheChange::visibility_percent`].
        pub visibility_percent: Option<u64>,
        /// Other names of the cache, with which the kernel merged it; `None` where the recording does not keep them, and without a
        /// name.
        pub aliases: Option<&'a [Box<[u8]>]>,
        /// Slabs of the cache at the start, by slabinfo; `None` where the recording does not have it.
        pub slab_before: Option<SlabMembers>,
        /// Slabs of the cache at the end.
        pub slab_after: Option<SlabMembers>,
        /// Members of a text of one moment.
        pub text: TextMembers,
    }
}

row! {
    /// Cache in slabinfo of which the recording has no event.
    pub struct IdleCache<'a> {
        /// Name of the cache.
        pub cache: Name<'a>,
        /// Kind that its objects would have.
        pub kind: Kind,
        /// Other names of the cache.
        pub aliases: Option<&'a [Box<[u8]>]>,
        /// Slabs of the cache at the start.
        pub slab_before: Option<SlabMembers>,
        /// Slabs of the cache at the end.
        pub slab_after: Option<SlabMembers>,
    }
}

/// Change of a figure of a cache over the recording; a cache that only one of the texts has was made or removed meanwhile.
pub fn slab_change(
    before: Option<&SlabMembers>,
    after: Option<&SlabMembers>,
    figure: fn(&SlabMembers) -> Option<u64>,
) -> Option<i64> {
    let figure = |slab: Option<&SlabMembers>| slab.map_or(Some(0), figure);
    before.or(after)?;
    i64::try_from(i128::from(figure(after)?) - i128::from(figure(before)?)).ok()
}

/// Body of `caches`.
#[derive(Serialize)]
pub struct CachesBody<'a> {
    /// Rows of caches with events.
    #[serde(flatten)]
    pub listing: Listing<'a, CacheRow<'a>, ToldStats>,
    /// Caches without an event, those whose bytes changed most first; `None` where the recording keeps no slabinfo of both ends, and
    /// where filters other than by the cache may have left their events out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub without_events: Option<Vec<IdleCache<'a>>>,
}

/// Caches by the kernel's statistics at both ends, beside the events.
#[derive(Clone, Copy)]
struct Statistics<'a> {
    analysis: &'a Analysis,
    slabinfo: &'a [Slabinfo; 2],
}

impl<'a> Statistics<'a> {
    /// Change of a cache, and the share of it that the events explain. Both are told of rows that are all objects of the cache.
    fn seen(self, number: u64, name: &[u8], kind: Kind, live: u64) -> Option<(i64, Option<u64>)> {
        let [start, end] = self.slabinfo;
        let old_frees = &self.analysis.paired.counts.old_frees;
        let old = u32::try_from(number).ok().and_then(|number| old_frees.get(&number)).copied();
        let live = i64::try_from(live).unwrap_or(i64::MAX);
        let events = live.saturating_sub(i64::try_from(old.unwrap_or(0)).unwrap_or(i64::MAX));
        let change = CacheChange::of(start, end, name, events).filter(|_| self.analysis.caches.are_whole)?;
        Some((change.change, change.visibility_percent.filter(|_| kind == Kind::Cache).map(u64::from)))
    }

    /// Slabs of a cache at both ends.
    fn slabs(self, name: &[u8]) -> [Option<SlabMembers>; 2] {
        let page_bytes = self.analysis.info.page_bytes;
        self.slabinfo.each_ref().map(|text| text.find(name).map(|cache| SlabMembers::of(cache, page_bytes)))
    }

    /// Caches that no row is of.
    fn without_events(self, paired: &PairingResult, naming: &GroupNaming<'a>) -> Option<Vec<IdleCache<'a>>> {
        let has_texts = self.slabinfo.iter().all(|text| !text.is_empty());
        if !has_texts || !self.analysis.caches.are_whole {
            return None;
        }
        let rows = paired.rows.iter().filter(|(_, stats)| !stats.is_empty());
        let seen: BTreeSet<&[u8]> = rows.filter_map(|(key, _)| naming.naming.numbered(key.others)).collect();
        let listed: BTreeSet<&'a [u8]> =
            self.slabinfo.iter().flat_map(Slabinfo::caches).map(|cache| &*cache.name).collect();
        let globs = &self.analysis.caches.asked;
        let is_asked = |name: &[u8]| globs.is_empty() || globs.iter().any(|glob| glob.matches(name));
        let idle = listed.into_iter().filter(|name| !seen.contains(name) && is_asked(name)).map(|name| {
            let [slab_before, slab_after] = self.slabs(name);
            IdleCache {
                cache: Some(name.into()),
                kind: if is_kmalloc(name) { Kind::Kmalloc } else { Kind::Cache },
                aliases: self.analysis.caches.aliases.as_ref().map(|aliases| aliases.of(name)),
                slab_before,
                slab_after,
            }
        });
        let mut idle: Vec<_> = idle.collect();
        idle.sort_by_key(|cache| {
            let [before, after] = [cache.slab_before.as_ref(), cache.slab_after.as_ref()];
            let change = slab_change(before, after, |slab| slab.bytes).map_or(0, i64::unsigned_abs);
            (Reverse(change), Reverse(after.and_then(|slab| slab.bytes)))
        });
        Some(idle)
    }
}

/// The body of `caches`.
pub(super) fn caches<'a>(
    paired: &'a PairingResult,
    analysis: &'a Analysis,
    text: TextNaming<'a>,
    shape: &Shape,
    sums: (&Saturation, Ordering),
) -> CachesBody<'a> {
    let naming = GroupNaming::of(analysis);
    let (names, aliases) = (naming.naming, analysis.caches.aliases.as_ref());
    let statistics = analysis.caches.slabinfo.as_ref().map(|slabinfo| Statistics { analysis, slabinfo });
    let without_events = statistics.and_then(|statistics| statistics.without_events(paired, &naming));
    // Names of candidates have zeros in them and sort behind the row that has none.
    let place = move |key: &RowKey| {
        let name = names.numbered(key.others);
        let several = name.filter(|name| candidates(name).is_some());
        (name.filter(|_| several.is_none()), several, *key)
    };
    // Only slabs have caches; pages have one row.
    let rows = paired.rows.iter().filter(|(key, _)| key.kind.space().is_always_shown());
    let rows = rows.map(move |(key, stats)| (place(key), key.kind, stats));
    let listing = ranked(rows, shape, sums, move |(cache, _, row), kind, stats| {
        let known = cache.zip(statistics);
        let seen = known
            .and_then(|(name, statistics)| statistics.seen(row.others, name, kind, stats.live_objects.unwrap_or(0)));
        let [slab_before, slab_after] = known.map_or([None, None], |(name, statistics)| statistics.slabs(name));
        CacheRow {
            cache: cache.map(Into::into),
            cache_from: cache.and_then(|_| naming.cache_from(*row)),
            cache_candidates: names.cache(row.others).1,
            kind,
            stats,
            slabinfo_change: seen.map(|(change, _)| change),
            visibility_percent: seen.and_then(|(_, visibility)| visibility),
            aliases: cache.zip(aliases).map(|(name, aliases)| aliases.of(name)),
            slab_before,
            slab_after,
            text: text.members(row),
        }
    });
    CachesBody { listing, without_events }
}
