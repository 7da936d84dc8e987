//! What the first pass over an input finds and the second hands over: gaps before the events, faults at the end. The number of both is
//! limited.

use crate::event::{Gap, StreamItem};
use crate::fault::Fault;
use crate::stream::report::MAX_FAULTS;

/// Limit of gaps: more of them become one.
const MAX_GAPS: usize = 1 << 16;

/// Adds a gap. Where there are many the last one is extended.
pub(super) fn add_gap(gaps: &mut Vec<Gap>, gap: Gap) {
    let is_full = gaps.len() >= MAX_GAPS;
    match gaps.last_mut().filter(|_| is_full) {
        Some(last) => {
            last.to = last.to.zip(gap.to).map(|(before, to)| before.max(to));
            last.lost = last.lost.zip(gap.lost).map(|(before, lost)| before.saturating_add(lost));
        }
        None => gaps.push(gap),
    }
}

/// Adds a fault, unless there are more than a report shows: it tells that there were more.
pub(super) fn add_fault(faults: &mut Vec<Fault>, fault: Fault) {
    if faults.len() <= MAX_FAULTS {
        faults.push(fault);
    }
}

/// Hands over the gaps before the events, and counts those that were handed over.
#[derive(Debug, Default)]
pub(super) struct GapsFirst(usize);

impl GapsFirst {
    /// Adds the next gaps to `items`, at most `most`; false if all of them were handed over before.
    pub(super) fn hand_over(&mut self, gaps: &[Gap], most: usize, items: &mut Vec<StreamItem>) -> bool {
        let next = gaps.iter().skip(self.0).take(most);
        let before = items.len();
        items.extend(next.copied().map(StreamItem::Gap));
        let count = items.len().saturating_sub(before);
        self.0 = self.0.saturating_add(count);
        count > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::GapCause;

    fn gap(from: u64, lost: Option<u64>) -> Gap {
        Gap { from: Some(from), to: Some(from + 1), cpu: 0, lost, cause: GapCause::Overrun }
    }

    #[test]
    fn gaps_beyond_the_limit_become_one() {
        let mut gaps = Vec::new();
        (0..MAX_GAPS as u64 + 2).for_each(|from| add_gap(&mut gaps, gap(from, Some(1))));
        let last = gaps.last().unwrap();
        assert_eq!((gaps.len(), last.to, last.lost), (MAX_GAPS, Some(MAX_GAPS as u64 + 2), Some(3)));
        add_gap(&mut gaps, gap(0, None));
        assert_eq!((gaps.len(), gaps.last().unwrap().lost), (MAX_GAPS, None));
    }

    #[test]
    fn each_gap_is_handed_over_once() {
        let gaps = [gap(1, None), gap(2, None), gap(3, None)];
        let (mut first, mut items) = (GapsFirst::default(), Vec::new());
        let handed = [(); 3].map(|()| (first.hand_over(&gaps, 2, &mut items), items.len()));
        assert_eq!(handed, [(true, 2), (true, 3), (false, 3)]);
    }
}
