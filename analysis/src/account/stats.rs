//! Sums of a row: one kind, one call-site, one cache. They are wide, so that no trace overflows them.

use serde::{Deserialize, Serialize};

/// Pages of a row. They are the bytes of the row in pages of the machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageStats {
    /// Number of pages allocated.
    pub allocated: u128,
    /// Number of pages freed.
    pub freed: u128,
    /// Number of pages whose free was not seen: they were allocated again.
    pub inferred: u128,
    /// Number of pages live at the end.
    pub live: u128,
    /// Greatest number of live pages at any time. `None` in sums of rows, and where the size of a page is not known.
    pub peak_live: Option<u128>,
    /// Number of free events that left a part of an allocation of the row; `None` where events do not tell their frames.
    pub partial_frees: Option<u64>,
}

impl PageStats {
    /// Figures of no pages, of events that tell their frames.
    pub(crate) const NONE: PageStats =
        PageStats { allocated: 0, freed: 0, inferred: 0, live: 0, peak_live: Some(0), partial_frees: Some(0) };

    /// Figures of no pages, as far as they are known of these.
    pub(crate) fn nothing_of(self) -> PageStats {
        PageStats {
            peak_live: self.peak_live.map(|_| 0),
            partial_frees: self.partial_frees.map(|_| 0),
            ..PageStats::NONE
        }
    }

    /// Sum of two rows; it has no peak.
    fn plus(self, other: PageStats) -> PageStats {
        PageStats {
            allocated: self.allocated + other.allocated,
            freed: self.freed + other.freed,
            inferred: self.inferred + other.inferred,
            live: self.live + other.live,
            peak_live: None,
            partial_frees: self.partial_frees.zip(other.partial_frees).map(|(n, more)| n + more),
        }
    }
}

/// Sums of one row, over the objects that belong to it.
///
/// A free counts in the row of its allocation. Bytes are those of the allocation event: requested by the caller, and allocated
/// for it by the kernel.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Stats {
    /// Number of allocations, without failed ones.
    pub allocs: u64,
    /// Number of allocations that returned a null pointer.
    pub failed_allocs: u64,
    /// Bytes requested, over all allocations.
    pub requested: u128,
    /// Bytes allocated, over all allocations.
    pub allocated: u128,
    /// Bytes allocated and not requested, over all allocations: internal fragmentation.
    pub wasted: u128,
    /// Number of free events paired with an allocation.
    pub frees: u64,
    /// Number of objects whose free was not seen: their address was allocated again.
    pub inferred_frees: u64,
    /// Number of paired frees on another CPU than the allocation.
    pub cross_cpu: u64,
    /// Bytes allocated of objects freed on another CPU.
    pub cross_cpu_bytes: u128,
    /// Number of objects live at the end.
    pub live_objects: u64,
    /// Bytes requested for objects live at the end.
    pub live_requested: u128,
    /// Bytes allocated for objects live at the end.
    pub live_allocated: u128,
    /// Bytes wasted by objects live at the end.
    pub live_wasted: u128,
    /// Greatest number of live bytes at any time. `None` in sums of rows: peaks do not add up.
    pub peak_live_allocated: Option<u128>,
    /// True if a gap may hide frees: live figures are upper bounds.
    pub live_is_upper_bound: bool,
    /// Pages, in rows of pages where their number is known; `None` in all other rows.
    pub pages: Option<PageStats>,
    /// Time of the oldest allocation, where the input tells of one moment alone.
    #[serde(skip)]
    pub(crate) oldest: Option<u64>,
}

impl Stats {
    /// True for a row without an allocation.
    pub(crate) fn is_empty(&self) -> bool {
        self.allocs == 0 && self.failed_allocs == 0
    }

    /// Adds another row; the sum has no peak.
    pub(crate) fn add(&mut self, other: &Stats) {
        self.allocs += other.allocs;
        self.failed_allocs += other.failed_allocs;
        self.requested += other.requested;
        self.allocated += other.allocated;
        self.wasted += other.wasted;
        self.frees += other.frees;
        self.inferred_frees += other.inferred_frees;
        self.cross_cpu += other.cross_cpu;
        self.cross_cpu_bytes += other.cross_cpu_bytes;
        self.live_objects += other.live_objects;
        self.live_requested += other.live_requested;
        self.live_allocated += other.live_allocated;
        self.live_wasted += other.live_wasted;
        self.peak_live_allocated = None;
        self.live_is_upper_bound |= other.live_is_upper_bound;
        self.pages = match (self.pages, other.pages) {
            (Some(pages), Some(more)) => Some(pages.plus(more)),
            (pages, more) => pages.or(more).map(|pages| PageStats { peak_live: None, ..pages }),
        };
        self.oldest = [self.oldest, other.oldest].into_iter().flatten().min();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_without_an_allocation_is_empty() {
        assert!(Stats { frees: 1, ..Stats::default() }.is_empty());
        assert!(!Stats { allocs: 1, ..Stats::default() }.is_empty());
        assert!(!Stats { failed_allocs: 1, ..Stats::default() }.is_empty());
    }
}
