//! Live bytes and allocations over time, in at most [`MAX_SLICES`] slices of equal width.
//!
//! Rows keep only slices in which something changed.

use super::slices::Slices;

/// Limit of slices.
pub(crate) const MAX_SLICES: u64 = 64;

/// Change of a row in one slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Change {
    slice: u64,
    /// Bytes that became live less those that were freed.
    grown: i128,
    allocs: u64,
}

/// Growth of all rows.
#[derive(Clone, Debug)]
pub(crate) struct GrowthTracker {
    slices: Slices,
    /// By row; slices ascend.
    rows: Vec<Vec<Change>>,
}

impl GrowthTracker {
    /// Tracker whose first slice begins at `first`.
    pub(crate) fn new(first: u64) -> GrowthTracker {
        GrowthTracker { slices: Slices::new(first, MAX_SLICES), rows: Vec::new() }
    }

    /// Takes an object of `row` that becomes live, or is gone.
    pub(crate) fn change_live(&mut self, at: u64, row: u32, bytes: u64, becomes_live: bool) {
        let change = self.change(at, row);
        let bytes = i128::from(bytes);
        change.grown += if becomes_live { bytes } else { -bytes };
        change.allocs += u64::from(becomes_live);
    }

    fn change(&mut self, at: u64, row: u32) -> &mut Change {
        if !self.slices.reaches(at) {
            self.advance(at);
        }
        let index = row as usize;
        if index >= self.rows.len() {
            self.rows.resize(index + 1, Vec::new());
        }
        let (slice, changes) = (self.slices.slice(), &mut self.rows[index]);
        if changes.last().is_none_or(|last| last.slice != slice) {
            changes.push(Change { slice, grown: 0, allocs: 0 });
        }
        let last = changes.len() - 1;
        &mut changes[last]
    }

    /// Goes on to the slice of `at`, and makes slices wider until there are few enough.
    fn advance(&mut self, at: u64) {
        let wider = self.slices.advance(at);
        if wider > 0 {
            self.rows.iter_mut().for_each(|changes| merge(changes, wider));
        }
    }

    /// Slices up to the key of the last event; none without an event.
    pub(crate) fn finish(mut self, last: Option<u64>) -> Growth {
        let Some(last) = last else { return Growth::default() };
        self.advance(last);
        let slices = self.slices;
        Growth { first: slices.first(), shift: slices.shift(), len: slices.slice() as usize + 1, rows: self.rows }
    }
}

/// Makes slices 2^`wider` times as wide.
fn merge(changes: &mut Vec<Change>, wider: u32) {
    let mut merged: Vec<Change> = Vec::new();
    for change in changes.drain(..) {
        let slice = change.slice >> wider;
        match merged.last_mut().filter(|last| last.slice == slice) {
            Some(last) => {
                last.grown += change.grown;
                last.allocs += change.allocs;
            }
            None => merged.push(Change { slice, ..change }),
        }
    }
    *changes = merged;
}

/// Live bytes and allocations of all rows in slices of time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Growth {
    first: u64,
    shift: u32,
    len: usize,
    /// By row.
    rows: Vec<Vec<Change>>,
}

impl Growth {
    /// Number of slices.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Keys at which the slices end: the first key beyond each.
    pub(crate) fn ends(&self) -> impl Iterator<Item = u64> + '_ {
        (1..=self.len as u128).map(|n| u64::try_from(u128::from(self.first) + (n << self.shift)).unwrap_or(u64::MAX))
    }

    /// Live bytes of a row at the end of each slice.
    pub(crate) fn live(&self, row: usize) -> Vec<i128> {
        let mut live = vec![0; self.len];
        let mut changes = self.rows.get(row).into_iter().flatten().peekable();
        let mut bytes = 0;
        for (slice, at_end) in live.iter_mut().enumerate() {
            while let Some(change) = changes.next_if(|change| change.slice <= slice as u64) {
                bytes += change.grown;
            }
            *at_end = bytes;
        }
        live
    }

    /// Number of allocations of a row in each slice.
    pub(crate) fn allocs(&self, row: usize) -> Vec<u64> {
        let mut allocs = vec![0; self.len];
        for change in self.rows.get(row).into_iter().flatten() {
            if let Some(n) = allocs.get_mut(change.slice as usize) {
                *n += change.allocs;
            }
        }
        allocs
    }

    /// Key at nine tenths of the way from the first slice's start to `last`.
    pub(crate) fn nine_tenths(&self, last: u64) -> u64 {
        self.first + (u128::from(last.saturating_sub(self.first)) * 9 / 10) as u64
    }

    /// Live bytes of a row at the last end of a slice at or before `key`; 0 where the first one ends later.
    pub(crate) fn live_at(&self, row: usize, key: u64) -> i128 {
        let slices = key.saturating_sub(self.first) >> self.shift;
        let changes = self.rows.get(row).into_iter().flatten();
        changes.take_while(|change| change.slice < slices).map(|change| change.grown).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// However many slices merge, their sums are those of all events.
    #[test]
    fn slices_are_as_narrow_as_their_limit_allows() {
        for (last, width, len) in [(63, 1, 64), (64, 2, 33), (127, 2, 64), (128, 4, 33), (1 << 40, 1 << 35, 33)] {
            let mut tracker = GrowthTracker::new(1000);
            tracker.change_live(1000, 0, 10, true);
            tracker.change_live(1000 + last / 2, 1, 7, true);
            tracker.change_live(1000 + last, 0, 4, false);
            let growth = tracker.finish(Some(1000 + last));
            assert_eq!(growth.len(), len, "{last}");
            let ends: Vec<u64> = growth.ends().collect();
            assert_eq!((ends[0], ends[len - 1]), (1000 + width, 1000 + width * len as u64), "{last}");
            let live = growth.live(0);
            assert_eq!((live[0], live[len - 2], live[len - 1]), (10, 10, 6), "{last}");
            assert_eq!(growth.allocs(0).iter().sum::<u64>(), 1);
            assert_eq!(growth.live(1)[(last / 2 / width) as usize], 7);
            assert_eq!(growth.live_at(0, 1000 + last), 10);
        }
    }

    #[test]
    fn a_slice_that_has_not_ended_counts_for_nothing() {
        let mut tracker = GrowthTracker::new(0);
        tracker.change_live(0, 0, 1, true);
        tracker.change_live(130, 0, 2, true);
        let growth = tracker.finish(Some(255));
        assert_eq!(growth.ends().next(), Some(4));
        assert_eq!([0, 3, 4, 131, 132, 255].map(|key| growth.live_at(0, key)), [0, 0, 1, 1, 3, 3]);
        assert_eq!(growth.live_at(9, 255), 0);
    }

    #[test]
    fn keys_up_to_the_greatest_have_slices() {
        let mut tracker = GrowthTracker::new(0);
        tracker.change_live(u64::MAX, 0, u64::MAX, true);
        let growth = tracker.finish(Some(u64::MAX));
        assert_eq!((growth.len(), growth.ends().last()), (64, Some(u64::MAX)));
        assert_eq!(growth.live(0)[63], u64::MAX.into());
    }
}
