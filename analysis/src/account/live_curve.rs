//! Live bytes of each kind over time: of each slice the largest number, and the key at which it was reached.

use kmemtrace_abi::event::{ByKind, Kind};

use super::slices::Slices;

/// Live bytes of a kind in a slice, in bytes more than at the slice's begin.
#[derive(Clone, Copy, Debug)]
struct Change {
    slice: u64,
    /// Bytes that became live less those that were freed.
    grown: i128,
    /// Largest number, at least 0, and the first key at which it was reached.
    highest: i128,
    highest_at: u64,
}

/// Counts live bytes of each kind over time.
#[derive(Clone, Debug)]
pub(crate) struct CurveTracker {
    slices: Slices,
    /// Slices ascend.
    kinds: ByKind<Vec<Change>>,
}

impl CurveTracker {
    /// Tracker from the key `first` on, for curves of at most `points` points.
    pub(crate) fn new(first: u64, points: usize) -> CurveTracker {
        // The last point is that of the end.
        CurveTracker { slices: Slices::new(first, (points as u64).saturating_sub(1)), kinds: Default::default() }
    }

    /// Takes an object that becomes live, or is gone.
    pub(crate) fn change_live(&mut self, at: u64, kind: Kind, bytes: u64, becomes_live: bool) {
        if !self.slices.reaches(at) {
            self.advance(at);
        }
        let slice = self.slices.slice();
        let changes = &mut self.kinds[kind];
        if changes.last().is_none_or(|last| last.slice != slice) {
            changes.push(Change { slice, grown: 0, highest: 0, highest_at: self.slices.begin(slice) });
        }
        let bytes = i128::from(bytes);
        if let Some(last) = changes.last_mut() {
            last.grown += if becomes_live { bytes } else { -bytes };
            if last.grown > last.highest {
                (last.highest, last.highest_at) = (last.grown, at);
            }
        }
    }

    /// Goes on to the slice of `at`.
    fn advance(&mut self, at: u64) {
        let wider = self.slices.advance(at);
        if wider > 0 {
            self.kinds.values_mut().for_each(|changes| merge(changes, wider));
        }
    }

    /// Curves up to the key of the last event.
    pub(crate) fn finish(mut self, last: Option<u64>) -> LiveCurve {
        let Some(last) = last else { return LiveCurve::default() };
        self.advance(last);
        LiveCurve { kinds: self.kinds.each_ref().map(|changes| points(changes, &self.slices, last)) }
    }
}

/// Makes slices 2^`wider` times as wide.
fn merge(changes: &mut Vec<Change>, wider: u32) {
    let mut merged: Vec<Change> = Vec::new();
    for change in changes.drain(..) {
        let change = Change { slice: change.slice.checked_shr(wider).unwrap_or(0), ..change };
        match merged.last_mut().filter(|last| last.slice == change.slice) {
            Some(last) => {
                let highest = last.grown + change.highest;
                if highest > last.highest {
                    (last.highest, last.highest_at) = (highest, change.highest_at);
                }
                last.grown += change.grown;
            }
            None => merged.push(change),
        }
    }
    *changes = merged;
}

/// Points of a kind: the largest number of each slice in which it changed and of the first one after it, then the end.
fn points(changes: &[Change], slices: &Slices, last: u64) -> Vec<(u64, u64)> {
    let printed = |bytes: i128| u64::try_from(bytes.max(0)).unwrap_or(u64::MAX);
    let (mut points, mut live, mut after) = (Vec::new(), 0i128, None);
    for change in changes {
        if let Some(after) = after.filter(|after| *after < change.slice) {
            points.push((slices.begin(after), printed(live)));
        }
        points.push((change.highest_at, printed(live + change.highest)));
        live += change.grown;
        after = Some(change.slice + 1);
    }
    if let Some(after) = after.filter(|after| slices.begin(*after) < last) {
        points.push((slices.begin(after), printed(live)));
    }
    if !changes.is_empty() {
        points.push((last, printed(live)));
    }
    // A number that stays needs no point, but for the end.
    let end = points.pop();
    points.dedup_by_key(|(_, bytes)| *bytes);
    points.extend(end.filter(|end| points.last() != Some(end)));
    points
}

/// Live bytes of each kind over time.
#[derive(Clone, Debug, Default)]
pub struct LiveCurve {
    kinds: ByKind<Vec<(u64, u64)>>,
}

impl LiveCurve {
    /// Points of a kind in the order of their keys: an order key, and the live bytes at that key. Between two points there were never
    /// more live bytes than at the greater of them; the last point is that of the last event. None for a kind without objects.
    pub fn points(&self, kind: Kind) -> &[(u64, u64)] {
        &self.kinds[kind]
    }
}

#[cfg(test)]
mod tests {
    use kmemtrace_tests::generate::Random;

    use super::*;

    /// Points against all live bytes at all keys, kept the long way.
    #[test]
    fn points_are_exact_and_no_greater_number_lies_between_them() {
        for seed in 0..400 {
            let mut random = Random::new(seed);
            let (first, limit) = (*random.pick(&[0, 1000]), 2 + random.below(6) as usize);
            let mut tracker = CurveTracker::new(first, limit);
            // All numbers that a key has had, in order.
            let mut numbers: Vec<(u64, u64)> = vec![(first, 0)];
            let (mut at, mut live, mut objects) = (first, 0u64, Vec::new());
            for _ in 0..random.below(60) {
                let step = *random.pick(&[0, 1, 3, 50]);
                numbers.extend((1..=step).map(|more| (at + more, live)));
                at += step;
                let frees = random.chance(45) && !objects.is_empty();
                let bytes = if frees { objects.pop().unwrap_or(0) } else { *random.pick(&[0, 8, 64, 4096]) };
                if !frees {
                    objects.push(bytes);
                }
                live = if frees { live - bytes } else { live + bytes };
                numbers.push((at, live));
                tracker.change_live(at, Kind::Cache, bytes, !frees);
            }
            let has_objects = numbers.len() > 1;
            let last = at + random.below(3) * 100;
            numbers.extend((at + 1..=last).map(|at| (at, live)));
            let curve = tracker.finish(Some(last));
            let points = curve.points(Kind::Cache);
            assert!(curve.points(Kind::Kmalloc).is_empty());
            assert_eq!(points.is_empty(), !has_objects, "seed {seed}");
            assert!(points.len() <= limit, "seed {seed}: {} points", points.len());
            assert!(points.is_sorted_by_key(|(at, _)| *at), "seed {seed}");
            assert!(points.iter().all(|point| numbers.contains(point)), "seed {seed}: {points:?}");
            let Some(end) = points.last() else { continue };
            assert_eq!(*end, (last, live), "seed {seed}");
            let peak = numbers.iter().map(|(_, bytes)| *bytes).max();
            assert_eq!(points.iter().map(|(_, bytes)| *bytes).max(), peak, "seed {seed}");
            for pair in points.windows(2) {
                let [(from, a), (to, b)] = *pair else { unreachable!() };
                let between = numbers.iter().filter(|(at, _)| (from..to).contains(at) && *at > from);
                let greatest = between.map(|(_, bytes)| *bytes).max().unwrap_or(0);
                assert!(greatest <= a.max(b), "seed {seed}: {greatest} between {a} and {b}");
            }
        }
    }
}
