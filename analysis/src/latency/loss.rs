//! Gaps that may explain a span: the largest end of those that begin up to a key.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Gaps, as far as the reader knows of them.
#[derive(Debug, Default)]
pub(super) struct GapReach {
    /// Gaps that begin later: start and end.
    to_come: BinaryHeap<Reverse<(u64, u64)>>,
    /// Largest end of the gaps that have begun.
    reach: Option<u64>,
}

impl GapReach {
    /// Adds a gap.
    pub(super) fn add(&mut self, from: u64, to: u64) {
        self.to_come.push(Reverse((from, to)));
    }

    /// Largest end of the gaps that begin up to `key`; keys of successive calls never decrease. `None`: no gap has begun.
    pub(super) fn until(&mut self, key: u64) -> Option<u64> {
        while let Some(&Reverse((_, to))) = self.to_come.peek().filter(|Reverse((from, _))| *from <= key) {
            self.reach = self.reach.max(Some(to));
            self.to_come.pop();
        }
        self.reach
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_counts_from_its_begin_on() {
        let mut gaps = GapReach::default();
        gaps.add(50, 60);
        gaps.add(10, 90);
        assert_eq!([gaps.until(9), gaps.until(10), gaps.until(70)], [None, Some(90), Some(90)]);
        gaps.add(65, 95);
        assert_eq!(gaps.until(70), Some(95));
    }
}
