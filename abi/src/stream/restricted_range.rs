//! A part of a file that is read, with the gaps of all of it.

use crate::event::{EventSink, Gap};

/// A part of a file that is read, with the gaps of all of it.
#[derive(Debug)]
pub(super) struct RestrictedRange {
    gaps: Vec<Gap>,
    /// How many of them are before it.
    before: usize,
    /// Whether those were handed over.
    begun: bool,
    /// Greatest order key that is wanted.
    to: u64,
}

impl RestrictedRange {
    pub(super) fn new(gaps: Vec<Gap>, before: u64, to: u64) -> RestrictedRange {
        let before = usize::try_from(before).unwrap_or(usize::MAX).min(gaps.len());
        RestrictedRange { gaps, before, begun: false, to }
    }

    /// Hands over the gaps before it, once; whether there are any.
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

    /// Whether a stream whose last event has this key is through with it.
    pub(super) fn is_passed_by(&self, last: Option<u64>) -> bool {
        last > Some(self.to)
    }

    /// Hands over the gaps behind the first `met`; whether there are any.
    pub(super) fn end(self, met: u64, items: &mut impl EventSink) -> bool {
        hand_over(usize::try_from(met).ok().and_then(|met| self.gaps.get(met..)), items)
    }
}

fn hand_over(gaps: Option<&[Gap]>, items: &mut impl EventSink) -> bool {
    let gaps = gaps.unwrap_or_default();
    gaps.iter().for_each(|gap| items.gap(*gap));
    !gaps.is_empty()
}
