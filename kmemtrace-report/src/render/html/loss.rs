//! Times at which events may be missing, from the gaps of all CPUs.

use std::ops::ControlFlow;

use kmemtrace::{Observer, OrderedItem};

/// Shares of the recording that the page tells apart.
const SHARES: u64 = 512;

/// Observer that keeps gaps alone.
#[derive(Default)]
pub(crate) struct Gaps {
    gaps: Vec<(u64, u64)>,
}

impl Observer for Gaps {
    fn observe(&mut self, item: &OrderedItem<'_>) -> ControlFlow<()> {
        if let OrderedItem::Gap { from, at, .. } = item {
            self.gaps.push((*from, *at));
            if self.gaps.len() >= 1 << 16 {
                self.gaps = joined(std::mem::take(&mut self.gaps), 0);
            }
        }
        ControlFlow::Continue(())
    }
}

impl Gaps {
    /// Intervals between the first and the last key, counted from the first one. Intervals too close for a picture are one.
    pub(crate) fn intervals(&self, first: u64, last: u64) -> Vec<(u64, u64)> {
        let within = |at: u64| at.clamp(first, last.max(first)) - first;
        let gaps = self.gaps.iter().map(|(from, to)| (within(*from), within(*to))).collect();
        joined(gaps, last.saturating_sub(first) / SHARES)
    }
}

/// Intervals in order; those that touch or have at most `distance` between them are one.
fn joined(mut gaps: Vec<(u64, u64)>, distance: u64) -> Vec<(u64, u64)> {
    gaps.sort_unstable();
    let mut out: Vec<(u64, u64)> = Vec::new();
    for (from, to) in gaps {
        match out.last_mut() {
            Some(before) if from <= before.1.saturating_add(distance) => before.1 = before.1.max(to),
            _ => out.push((from, to)),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_of_all_cpus_are_joined_where_they_touch() {
        let gaps = Gaps { gaps: vec![(5_000, 6_000), (0, 2_000), (1_500, 2_500), (9_000, u64::MAX)] };
        assert_eq!(gaps.intervals(1_000, 10_000), [(0, 1_500), (4_000, 5_000), (8_000, 9_000)]);
        let far = Gaps { gaps: vec![(0, 10), (1_000, 1_010), (900_000, 900_001)] };
        assert_eq!(far.intervals(0, 1_000_000), [(0, 1_010), (900_000, 900_001)], "closer than a picture shows");
    }
}
