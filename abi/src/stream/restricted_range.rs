//! Range of order keys that a stream is restricted to.

use crate::event::{EventSink, Gap};

/// Range of order keys that a stream is restricted to, with the gaps of the whole file.
#[derive(Debug)]
pub(super) struct RestrictedRange {
    gaps: Vec<Gap>,
    /// Number of gaps before the range.
    before: usize,
    /// True once those were handed over.
    begun: bool,
    /// Greatest order key that is wanted.
    to: u64,
}

impl RestrictedRange {
    pub(super) fn new(gaps: Vec<Gap>, before: u64, to: u64) -> RestrictedRange {
        let before = usize::try_from(before).unwrap_or(usize::MAX).min(gaps.len());
        RestrictedRange { gaps, before, begun: false, to }
    }

    /// Hands over the gaps before the range, once; true where there are any.
    pub(super) fn begin(&mut self, items: &mut impl EventSink) -> bool {
        if std::mem::replace(&mut self.begun, true) {
            return false;
        }
        hand_over(self.gaps.get(..self.before), items)
    }

    /// True where reading began behind gaps; the gaps known before the first event are among them.
    pub(super) fn is_behind_gaps(&self) -> bool {
        self.before > 0
    }

    /// True if a stream whose last event has this key has passed the range.
    pub(super) fn is_passed_by(&self, last: Option<u64>) -> bool {
        last > Some(self.to)
    }

    /// Hands over the gaps behind the first `met`; true where there are any.
    pub(super) fn end(self, met: u64, items: &mut impl EventSink) -> bool {
        hand_over(usize::try_from(met).ok().and_then(|met| self.gaps.get(met..)), items)
    }
}

fn hand_over(gaps: Option<&[Gap]>, items: &mut impl EventSink) -> bool {
    let gaps = gaps.unwrap_or_default();
    gaps.iter().for_each(|gap| items.gap(*gap));
    !gaps.is_empty()
}
