//! Counts per class of object. They do not depend on the order of events, so each partition has its own, and rows are sums of them.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use kmemtrace_abi::event::{Kind, Space};

use crate::account::classes::{CacheNumber, Class, Classes};
use crate::account::stats::Stats;
use crate::names::caches::CacheFrom;
use crate::names::reclaim::Reclaim;

/// Bytes requested and allocated.
pub(crate) type Sizes = (u64, u64);

/// End of an object's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Closed {
    /// Free event on the CPU of the allocation.
    Freed,
    /// Free event on another CPU.
    FreedElsewhere,
    /// Allocation at the same address: the free was not seen.
    Inferred,
}

/// A class and its counts: one cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Tally {
    class: Class,
    opened: u64,
    freed: u64,
    crossed: u64,
    inferred: u64,
}

/// Sums over the objects of a class that have their own sizes each.
#[derive(Clone, Copy, Debug, Default)]
struct OwnSums {
    requested: u128,
    allocated: u128,
    wasted: u128,
    closed_requested: u128,
    closed_allocated: u128,
    closed_wasted: u128,
    crossed: u128,
    pages: u128,
    pages_freed: u128,
    pages_inferred: u128,
    /// Largest requested size.
    largest: u64,
}

/// Failed allocations of a class: their number, and the order keys of the first and the last one.
#[derive(Clone, Copy, Debug)]
struct Failed {
    count: u64,
    first: u64,
    last: u64,
}

/// Counts of a class whose pages are counted one by one.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
struct PageTally {
    opened: u64,
    freed: u64,
    crossed: u64,
    inferred: u64,
    pages: u64,
    pages_freed: u64,
    pages_crossed: u64,
    pages_inferred: u64,
}

/// The counts of one partition.
pub(crate) struct Tallies<'a> {
    registry: &'a Classes,
    /// By class, as far as they were needed.
    tallies: Vec<Tally>,
    own_sums: HashMap<u32, OwnSums, RandomState>,
    /// By class, as far as pages of it were counted one by one.
    pages: Vec<PageTally>,
    /// Size of a page, 0 where it is not known.
    page_bytes: u64,
    /// Pages of the largest block by class, as far as one of several pages was counted.
    largest_blocks: Vec<u32>,
    /// Deferred and bulk frees by class.
    probed: HashMap<u32, [u64; 2], RandomState>,
    /// Free events that left a part of an allocation, by row.
    partial_frees: HashMap<u32, u64, RandomState>,
    /// By class.
    failed: HashMap<u32, Failed, RandomState>,
}

impl<'a> Tallies<'a> {
    /// No counts yet; a page has `page_bytes`, 0 where that is not known.
    pub(crate) fn new(registry: &'a Classes, page_bytes: u64) -> Tallies<'a> {
        Tallies {
            registry,
            tallies: Vec::new(),
            own_sums: HashMap::default(),
            pages: Vec::new(),
            page_bytes,
            largest_blocks: Vec::new(),
            probed: HashMap::default(),
            partial_frees: HashMap::default(),
            failed: HashMap::default(),
        }
    }

    #[inline(always)]
    fn tally(&mut self, class: u32) -> &mut Tally {
        let index = class as usize;
        if index < self.tallies.len() { &mut self.tallies[index] } else { self.new_tally(index) }
    }

    #[cold]
    fn new_tally(&mut self, index: usize) -> &mut Tally {
        self.learn();
        &mut self.tallies[index]
    }

    /// Adds a tally for each class registered since the last call.
    pub(crate) fn learn(&mut self) {
        let tallies = &mut self.tallies;
        self.registry.from(tallies.len(), |class| {
            tallies.push(Tally { class: *class, opened: 0, freed: 0, crossed: 0, inferred: 0 });
        });
    }

    /// Bytes of memory, but for failed allocations.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.tallies.capacity() * size_of::<Tally>()
            + self.own_sums.capacity() * size_of::<(u32, OwnSums)>()
            + self.pages.capacity() * size_of::<PageTally>()
    }

    /// A class that some event was given.
    #[inline]
    pub(crate) fn class(&mut self, class: u32) -> Class {
        self.tally(class).class
    }

    /// An object of these sizes becomes live; its class.
    #[inline(always)]
    pub(crate) fn open(&mut self, class: u32, sizes: Sizes) -> Class {
        let tally = self.tally(class);
        tally.opened += 1;
        let of = tally.class;
        if !of.is_sized {
            self.open_own(class, sizes);
        }
        of
    }

    #[inline(always)]
    fn page_tally(&mut self, class: u32) -> &mut PageTally {
        let index = class as usize;
        if index >= self.pages.len() {
            self.add_page_tallies(index);
        }
        &mut self.pages[index]
    }

    #[cold]
    fn add_page_tallies(&mut self, index: usize) {
        self.learn();
        self.pages.resize(self.tallies.len().max(index + 1), PageTally::default());
    }

    /// A block of pages, counted one by one, becomes live; its class.
    #[inline(always)]
    pub(crate) fn open_pages(&mut self, class: u32, pages: u32) -> Class {
        let tally = self.page_tally(class);
        tally.opened += 1;
        tally.pages += u64::from(pages);
        if pages > 1 {
            self.note_block(class, pages);
        }
        self.class(class)
    }

    /// Notes the pages of a block of several.
    #[inline]
    fn note_block(&mut self, class: u32, pages: u32) {
        let index = class as usize;
        if index >= self.largest_blocks.len() {
            self.largest_blocks.resize(self.pages.len(), 1);
        }
        let largest = &mut self.largest_blocks[index];
        *largest = pages.max(*largest);
    }

    /// A free of an object of the class was deferred, or one of many in bulk.
    pub(crate) fn count_probed(&mut self, class: u32, is_bulk: bool) {
        self.probed.entry(class).or_default()[usize::from(is_bulk)] += 1;
    }

    /// Pages of a class are gone: freed, on the CPU of their allocation or another one, or inferred to be; the class.
    #[inline(always)]
    pub(crate) fn take_pages(&mut self, class: u32, pages: u32, how: Closed) -> Class {
        let tally = self.page_tally(class);
        let pages = u64::from(pages);
        match how {
            Closed::Freed => tally.pages_freed += pages,
            Closed::FreedElsewhere => {
                tally.pages_freed += pages;
                tally.pages_crossed += pages;
            }
            Closed::Inferred => tally.pages_inferred += pages,
        }
        self.class(class)
    }

    /// Blocks of a class have ended with their last pages.
    #[inline(always)]
    pub(crate) fn close_blocks(&mut self, class: u32, blocks: u32, how: Closed) {
        let tally = self.page_tally(class);
        let blocks = u64::from(blocks);
        match how {
            Closed::Freed => tally.freed += blocks,
            Closed::FreedElsewhere => {
                tally.freed += blocks;
                tally.crossed += blocks;
            }
            Closed::Inferred => tally.inferred += blocks,
        }
    }

    /// A free event leaves a part of an allocation of the row.
    pub(crate) fn leave_part(&mut self, row: u32) {
        *self.partial_frees.entry(row).or_default() += 1;
    }

    /// Pages of an object that is counted by its bytes.
    fn pages_of(&self, allocated: u64) -> u64 {
        allocated.checked_div(self.page_bytes).unwrap_or(0)
    }

    #[cold]
    fn open_own(&mut self, class: u32, (requested, allocated): Sizes) {
        let pages = self.pages_of(allocated);
        let sums = self.own_sums.entry(class).or_default();
        sums.pages += u128::from(pages);
        sums.largest = sums.largest.max(requested);
        sums.requested += u128::from(requested);
        sums.allocated += u128::from(allocated);
        sums.wasted += u128::from(allocated.saturating_sub(requested));
    }

    /// An object is gone; its class and its sizes.
    #[inline(always)]
    pub(crate) fn close(&mut self, class: u32, own_sizes: Option<Sizes>, how: Closed) -> (Class, Sizes) {
        let tally = self.tally(class);
        match how {
            Closed::Freed => tally.freed += 1,
            Closed::FreedElsewhere => {
                tally.freed += 1;
                tally.crossed += 1;
            }
            Closed::Inferred => tally.inferred += 1,
        }
        let of = tally.class;
        match own_sizes {
            None => (of, (of.requested, of.allocated)),
            Some(sizes) => {
                self.close_own(class, sizes, how);
                (of, sizes)
            }
        }
    }

    #[cold]
    fn close_own(&mut self, class: u32, (requested, allocated): Sizes, how: Closed) {
        let pages = u128::from(self.pages_of(allocated));
        let sums = self.own_sums.entry(class).or_default();
        *if how == Closed::Inferred { &mut sums.pages_inferred } else { &mut sums.pages_freed } += pages;
        sums.closed_requested += u128::from(requested);
        sums.closed_allocated += u128::from(allocated);
        sums.closed_wasted += u128::from(allocated.saturating_sub(requested));
        sums.crossed += u128::from(if how == Closed::FreedElsewhere { allocated } else { 0 });
    }

    /// An allocation returned null.
    pub(crate) fn fail(&mut self, class: u32, at: u64) {
        self.tally(class);
        let failed = self.failed.entry(class).or_insert(Failed { count: 0, first: at, last: at });
        *failed = Failed { count: failed.count + 1, first: failed.first.min(at), last: failed.last.max(at) };
    }

    /// Adds all counts to the figures of their rows.
    pub(crate) fn add_to(&self, rows: &mut [Stats]) {
        for (number, tally) in self.tallies.iter().enumerate() {
            let Some(row) = rows.get_mut(tally.class.row as usize) else { continue };
            let Class { is_sized, requested, allocated, .. } = tally.class;
            let closed = tally.freed + tally.inferred;
            let is_pages = tally.class.kind.space() == Space::Pages;
            let sums = if is_sized {
                let wasted = allocated.saturating_sub(requested);
                let times = |n: u64, size: u64| u128::from(n) * u128::from(size);
                let pages = self.pages_of(allocated);
                OwnSums {
                    requested: times(tally.opened, requested),
                    allocated: times(tally.opened, allocated),
                    wasted: times(tally.opened, wasted),
                    closed_requested: times(closed, requested),
                    closed_allocated: times(closed, allocated),
                    closed_wasted: times(closed, wasted),
                    crossed: times(tally.crossed, allocated),
                    pages: times(tally.opened, pages),
                    pages_freed: times(tally.freed, pages),
                    pages_inferred: times(tally.inferred, pages),
                    largest: requested,
                }
            } else {
                self.own_sums.get(&(number as u32)).copied().unwrap_or_default()
            };
            row.add(&Stats {
                allocs: tally.opened,
                requested: sums.requested,
                allocated: sums.allocated,
                wasted: sums.wasted,
                frees: tally.freed,
                inferred_frees: tally.inferred,
                cross_cpu: tally.crossed,
                cross_cpu_bytes: sums.crossed,
                live_objects: tally.opened - closed,
                live_requested: sums.requested - sums.closed_requested,
                live_allocated: sums.allocated - sums.closed_allocated,
                live_wasted: sums.wasted - sums.closed_wasted,
                pages_allocated: is_pages.then_some(sums.pages),
                pages_freed: is_pages.then_some(sums.pages_freed),
                pages_inferred: is_pages.then_some(sums.pages_inferred),
                live_pages: is_pages.then_some(sums.pages - sums.pages_freed - sums.pages_inferred),
                partial_frees: is_pages.then_some(0),
                largest: (tally.opened > 0).then_some(sums.largest),
                ..Stats::default()
            });
        }
        self.add_pages_to(rows);
        let mut add = |class: u32, stats: Stats| {
            let row = self.tallies.get(class as usize).and_then(|tally| rows.get_mut(tally.class.row as usize));
            row.into_iter().for_each(|row| row.add(&stats));
        };
        for (&class, &Failed { count, first, last }) in &self.failed {
            add(class, Stats { failed_allocs: count, failed_span: Some((first, last)), ..Stats::default() });
        }
        for (&class, &[deferred_frees, bulk_frees]) in &self.probed {
            add(class, Stats { deferred_frees, bulk_frees, ..Stats::default() });
        }
    }
}

impl Tallies<'_> {
    /// Row and origin of the cache's name of each class that an allocation was counted for, failed ones included.
    pub(crate) fn caches_from(&self) -> impl Iterator<Item = (u32, CacheFrom)> {
        let of_class = |(number, tally): (usize, &Tally)| {
            let is_used = tally.opened > 0 || self.failed.contains_key(&(number as u32));
            Some((tally.class.row, tally.class.cache_from.filter(|_| is_used)?))
        };
        self.tallies.iter().enumerate().filter_map(of_class)
    }

    /// Row of each class that objects were allocated of, and whether the kernel takes these back.
    pub(crate) fn reclaims(&self) -> impl Iterator<Item = (u32, Reclaim)> {
        let has_pages = |number: usize| self.pages.get(number).is_some_and(|pages| pages.opened > 0);
        let used =
            self.tallies.iter().enumerate().filter(move |(number, tally)| tally.opened > 0 || has_pages(*number));
        used.map(|(_, tally)| (tally.class.row, tally.class.reclaim))
    }

    /// Classes of kind `cache` that objects were allocated of, as far as `is_of` takes their caches.
    pub(crate) fn of_caches(&self, is_of: impl Fn(CacheNumber) -> bool) -> impl Iterator<Item = &Class> {
        let has_objects = self.tallies.iter().filter(|tally| tally.opened > 0);
        has_objects.map(|tally| &tally.class).filter(move |class| class.kind == Kind::Cache && is_of(class.cache))
    }

    /// Free events that ended blocks of pages which are not counted one by one.
    pub(crate) fn whole_page_pairs(&self) -> u64 {
        self.tallies.iter().filter(|tally| tally.class.kind.space() == Space::Pages).map(|tally| tally.freed).sum()
    }

    /// Adds the counts of pages one by one to the figures of their rows.
    fn add_pages_to(&self, rows: &mut [Stats]) {
        let all = self.pages.iter().zip(&self.tallies).enumerate();
        for (class, (pages, tally)) in all.filter(|(_, (pages, _))| pages.opened > 0) {
            let Some(row) = rows.get_mut(tally.class.row as usize) else { continue };
            let bytes = |pages: u64| u128::from(pages) * u128::from(self.page_bytes);
            let live = pages.pages - pages.pages_freed - pages.pages_inferred;
            let largest = self.largest_blocks.get(class).copied().unwrap_or(1);
            row.add(&Stats {
                allocs: pages.opened,
                requested: bytes(pages.pages),
                allocated: bytes(pages.pages),
                frees: pages.freed,
                inferred_frees: pages.inferred,
                cross_cpu: pages.crossed,
                cross_cpu_bytes: bytes(pages.pages_crossed),
                live_objects: pages.opened - pages.freed - pages.inferred,
                live_requested: bytes(live),
                live_allocated: bytes(live),
                pages_allocated: Some(pages.pages.into()),
                pages_freed: Some(pages.pages_freed.into()),
                pages_inferred: Some(pages.pages_inferred.into()),
                live_pages: Some(live.into()),
                partial_frees: Some(0),
                largest: Some(self.page_bytes.saturating_mul(largest.into())),
                ..Stats::default()
            });
        }
        for (&row, n) in &self.partial_frees {
            if let Some(partial_frees) = rows.get_mut(row as usize).and_then(|row| row.partial_frees.as_mut()) {
                *partial_frees += n;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use kmemtrace_abi::event::Names;

    use super::*;
    use crate::account::grouping::RowKey;

    const HUGE: u64 = u64::MAX - 5;

    /// Objects of four ends and of sizes that no sum of 64 bits holds, and failed allocations, in one of two rows.
    fn figures(max_sized: u32) -> [Stats; 2] {
        let classes = Classes::new(Names::new(), max_sized);
        let (site, cache) = (7, 0);
        let huge = classes.class(RowKey::of_site(site, Kind::Cache), site, (cache, None), (HUGE - 1000, HUGE));
        let small = classes.class(RowKey::of_site(site, Kind::Cache), site, (cache, None), (100, 64));
        let other = classes.class(RowKey::of_site(site + 1, Kind::Kmalloc), site + 1, (cache, None), (8, 16));
        let mut tallies = Tallies::new(&classes, 4096);
        let mut object = |class: u32, sizes: Sizes, end: Option<Closed>| {
            let is_sized = tallies.open(class, sizes).is_sized;
            assert_eq!(is_sized, class < max_sized);
            if let Some(how) = end {
                let (closed, closed_sizes) = tallies.close(class, (!is_sized).then_some(sizes), how);
                assert_eq!((closed.row, closed_sizes), (tallies.class(class).row, sizes));
            }
        };
        object(huge, (HUGE - 1000, HUGE), None);
        object(huge, (HUGE - 1000, HUGE), Some(Closed::Freed));
        object(huge, (HUGE - 1000, HUGE), Some(Closed::FreedElsewhere));
        object(huge, (HUGE - 1000, HUGE), Some(Closed::Inferred));
        object(small, (100, 64), Some(Closed::FreedElsewhere));
        object(small, (100, 64), None);
        object(other, (8, 16), None);
        [(other, 9), (other, 4), (small, 7)].into_iter().for_each(|(class, at)| tallies.fail(class, at));
        let mut rows = [Stats::default(), Stats::default()];
        tallies.add_to(&mut rows);
        rows
    }

    /// The same figures come of classes with their sizes and of objects that have their own each.
    #[test]
    fn objects_count_by_how_they_ended() {
        let huge = u128::from(HUGE);
        for max_sized in [0, 1, 2, 1000] {
            let [row, other] = figures(max_sized);
            assert_eq!((row.allocs, row.frees, row.inferred_frees, row.cross_cpu, row.live_objects), (6, 3, 1, 2, 2));
            assert_eq!((row.requested, row.allocated), (4 * (huge - 1000) + 200, 4 * huge + 128), "{max_sized}");
            // An object smaller than was asked for wastes nothing.
            assert_eq!((row.wasted, row.live_wasted), (4000, 1000), "{max_sized}");
            assert_eq!(row.cross_cpu_bytes, huge + 64, "{max_sized}");
            assert_eq!((row.live_requested, row.live_allocated), (huge - 1000 + 100, huge + 64), "{max_sized}");
            assert_eq!((row.failed_allocs, other.failed_allocs), (1, 2), "{max_sized}");
            assert_eq!((row.failed_span, other.failed_span), (Some((7, 7)), Some((4, 9))), "{max_sized}");
            assert_eq!((other.allocs, other.frees, other.live_objects), (1, 0, 1), "{max_sized}");
            assert_eq!((other.live_requested, other.live_allocated, other.live_wasted), (8, 16, 8), "{max_sized}");
        }
    }

    /// The limit on memory counts what classes and their sums take: 64 bytes a class at least.
    #[test]
    fn memory_of_classes_is_counted() {
        let classes = Classes::new(Names::new(), 500);
        let mut tallies = Tallies::new(&classes, 4096);
        assert_eq!(tallies.bytes(), 0);
        let class = |n: u64| classes.class(RowKey::of_site(n, Kind::Kmalloc), n, (0, None), (n, n));
        (0..500).map(class).for_each(|class| {
            tallies.open(class, (1, 1));
        });
        let sized = tallies.bytes();
        assert!((500 * 64..500 * 64 * 3).contains(&sized), "{sized} bytes");
        (500..1000).map(class).for_each(|class| {
            tallies.open(class, (1, 1));
        });
        let sums = tallies.own_sums.len() * size_of::<OwnSums>();
        let own = tallies.bytes() - tallies.tallies.capacity() * size_of::<Tally>();
        assert!((sums..sums * 4).contains(&own), "{own} bytes for {sums}");
    }
}
