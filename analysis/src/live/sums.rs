//! Figures of all rows and nodes, by the numbers that a [`super::numbering::Numbering`] gives them.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use kmemtrace_abi::event::BySpace;

use super::figures::{Birth, Figures};
use super::numbering::{NO_ROW, Places};
use super::snapshot::LiveGroup;
use crate::account::tally::Sizes;

/// Limit of pairs of a call-site and the call-site that frees its objects.
const MAX_FREERS: usize = 1 << 16;

/// Live bytes of a node of the trees, and their peak.
#[derive(Clone, Copy, Debug, Default)]
struct NodeSums {
    live: u64,
    peak: u64,
}

/// Figures of all rows and nodes, and the totals of each space.
#[derive(Debug, Default)]
pub(super) struct LiveSums {
    rows: [Vec<Figures>; LiveGroup::ALL.len()],
    nodes: Vec<NodeSums>,
    pub(super) totals: BySpace<Figures>,
    /// Frees by row of the call-site and freeing call-site.
    pub(super) freers: HashMap<(u32, u64), u64, RandomState>,
}

impl LiveSums {
    /// Figures of the row of a grouping; `None` where nothing has counted in it.
    pub(super) fn row(&self, group: LiveGroup, number: usize) -> Option<&Figures> {
        self.rows[group as usize].get(number)
    }

    /// Rows of a grouping that something has counted in, up to the last one.
    pub(super) fn rows(&self, group: LiveGroup) -> &[Figures] {
        &self.rows[group as usize]
    }

    /// Largest number of live bytes of each node.
    pub(super) fn peaks(&self) -> Vec<u64> {
        self.nodes.iter().map(|node| node.peak).collect()
    }

    pub(super) fn all(&mut self) -> impl Iterator<Item = &mut Figures> {
        self.rows.iter_mut().flatten().chain(self.totals.values_mut())
    }

    /// Hands the figures of all rows of an object, and its total, to `change`.
    #[inline]
    fn change(&mut self, places: Places<'_>, mut change: impl FnMut(&mut Figures)) {
        for (rows, number) in self.rows.iter_mut().zip(places.rows.all()) {
            if number == NO_ROW {
                continue;
            }
            let number = number as usize;
            if number >= rows.len() {
                add_rows(rows, number);
            }
            rows.get_mut(number).into_iter().for_each(&mut change);
        }
        change(&mut self.totals[places.space]);
    }

    /// Takes an object that becomes live.
    #[inline]
    pub(super) fn allocated(&mut self, places: Places<'_>, birth: Birth, (requested, allocated): Sizes) {
        self.change(places, |figures| figures.allocated(birth, (requested, allocated), 1));
        self.add_to_nodes(places, allocated);
    }

    /// Takes so many objects that were live before these sums took them.
    pub(super) fn found(&mut self, places: Places<'_>, birth: Birth, sizes: Sizes, objects: u64) {
        self.change(places, |figures| {
            figures.reach_back(birth.ticks);
            figures.allocated(birth, sizes, objects);
        });
        self.add_to_nodes(places, sizes.1);
    }

    /// Adds bytes to all nodes of a stack: peaks do not add up, so each change of a row is one of all its nodes.
    #[inline]
    fn add_to_nodes(&mut self, places: Places<'_>, bytes: u64) {
        for &node in places.nodes.iter().flat_map(|path| path.iter()) {
            let node = node as usize;
            if node >= self.nodes.len() {
                self.nodes.resize(node + 1, NodeSums::default());
            }
            let Some(NodeSums { live, peak }) = self.nodes.get_mut(node) else { continue };
            *live = live.saturating_add(bytes);
            *peak = (*peak).max(*live);
        }
    }

    /// Takes bytes of an object that are gone.
    #[inline]
    pub(super) fn freed(&mut self, places: Places<'_>, sizes: Sizes) {
        self.change(places, |figures| figures.freed(sizes));
        self.take_off_nodes(places, sizes.1);
    }

    #[inline]
    fn take_off_nodes(&mut self, places: Places<'_>, bytes: u64) {
        for &node in places.nodes.iter().flat_map(|path| path.iter()) {
            if let Some(NodeSums { live, .. }) = self.nodes.get_mut(node as usize) {
                *live = live.saturating_sub(bytes);
            }
        }
    }

    /// Takes the end of an object with its last bytes.
    #[inline]
    pub(super) fn ended(&mut self, places: Places<'_>, last: Sizes, (slice, ticks): (usize, usize), crossed: bool) {
        self.change(places, |figures| {
            figures.freed(last);
            figures.ended(slice, ticks, crossed);
        });
        if last.1 > 0 {
            self.take_off_nodes(places, last.1);
        }
    }

    /// Takes so many live objects off these sums, as if they had never been in them.
    pub(super) fn lost(&mut self, places: Places<'_>, (slice, ticks): (usize, usize), sizes: Sizes, objects: u64) {
        self.freed(places, sizes);
        self.change(places, |figures| figures.lost(slice, ticks, objects));
    }

    /// Counts a free of an object by the call-site that makes it.
    #[inline]
    pub(super) fn count_freer(&mut self, site: u32, free_site: u64) {
        let is_full = self.freers.len() >= MAX_FREERS;
        match self.freers.get_mut(&(site, free_site)) {
            Some(count) => *count += 1,
            None if is_full => {}
            None => drop(self.freers.insert((site, free_site), 1)),
        }
    }

    /// Keeps the rows of threads of which `is_kept` is true, under new numbers.
    pub(super) fn retain_tasks(&mut self, is_kept: &[bool]) {
        let mut kept = is_kept.iter();
        self.rows[LiveGroup::Tasks as usize].retain(|_| kept.next().copied().unwrap_or(true));
    }
}

#[cold]
fn add_rows(rows: &mut Vec<Figures>, number: usize) {
    rows.resize_with(number + 1, Figures::default);
}
