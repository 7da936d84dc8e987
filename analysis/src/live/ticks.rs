//! Moments at which every row keeps its live bytes: each second of the last minute, and fewer of the time before.
//!
//! All rows share the moments. Between two of them lies a slice; a row keeps, for each slice, its live bytes at the start and how
//! many of its objects are of that age. Far slices grow with their age, so that a day costs a row less than a kilobyte.

/// Distance of ticks, in nanoseconds.
pub(super) const TICK: u64 = 1_000_000_000;
/// Age up to which every tick is kept, in nanoseconds.
const NEAR: u64 = 64 * TICK;
/// Width of a far slice: at most this part of its age.
const FAR_PARTS: u64 = 8;

/// Moments, shared by all rows.
#[derive(Debug)]
pub(super) struct Ticks {
    /// Begins of slices, ascending; the first one is the start of the trace.
    begins: Vec<u64>,
    /// Key from which on the next tick is due.
    next: u64,
}

impl Ticks {
    /// The first slice, which begins at `first`.
    pub(super) fn new(first: u64) -> Ticks {
        Ticks { begins: vec![first], next: first.saturating_add(TICK) }
    }

    /// True where an event at `at` begins a slice.
    #[inline]
    pub(super) fn is_due(&self, at: u64) -> bool {
        at >= self.next && self.next < u64::MAX
    }

    /// Number of slices.
    pub(super) fn len(&self) -> usize {
        self.begins.len()
    }

    /// Begin of a slice.
    pub(super) fn begin(&self, slice: usize) -> u64 {
        self.begins.get(slice).copied().unwrap_or(u64::MAX)
    }

    /// Begins a slice at the last whole tick up to `at`, and returns the slices that are joined with the one before, the last
    /// first: their numbers hold for the slices as they were, the new one included.
    pub(super) fn advance(&mut self, at: u64) -> Vec<usize> {
        let ticks = at.saturating_sub(self.next) / TICK;
        let begin = self.next.saturating_add(ticks.saturating_mul(TICK));
        self.begins.push(begin);
        self.next = begin.saturating_add(TICK);
        let mut joined = Vec::new();
        let mut from = 0;
        for slice in 1..self.begins.len() {
            let (age, width) = (begin.saturating_sub(self.begins[from]), self.begin(slice + 1) - self.begins[from]);
            if age > NEAR && width <= age / FAR_PARTS {
                joined.push(slice);
            } else {
                from = slice;
            }
        }
        joined.reverse();
        for &slice in &joined {
            self.begins.remove(slice);
        }
        joined
    }

    /// Slice of a moment.
    #[inline]
    pub(super) fn slice(&self, at: u64) -> usize {
        // Most objects are young.
        match self.begins.last() {
            Some(&last) if at >= last => self.begins.len() - 1,
            _ => self.begins.partition_point(|&begin| begin <= at).saturating_sub(1),
        }
    }

    /// The latest slice that begins at `at` or before; `None` where all begin later.
    pub(super) fn at_or_before(&self, at: u64) -> Option<usize> {
        self.begins.partition_point(|&begin| begin <= at).checked_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_ticks_stay_and_far_ones_become_few() {
        let mut ticks = Ticks::new(500);
        for second in 1..=86_400 {
            ticks.advance(500 + second * TICK + TICK / 3);
        }
        assert!(ticks.len() < 140, "{}", ticks.len());
        let now = 500 + 86_400 * TICK;
        for window in [1, 10, 60] {
            let slice = ticks.at_or_before(now - window * TICK).unwrap();
            assert_eq!(ticks.begin(slice), now - window * TICK, "{window} s");
        }
        for window in [300, 600, 3600] {
            let slice = ticks.at_or_before(now - window * TICK).unwrap();
            let off = now - window * TICK - ticks.begin(slice);
            assert!(off <= window * TICK / 7, "{window} s: {off} ns off");
        }
        assert_eq!(ticks.begin(0), 500);
        assert_eq!(ticks.at_or_before(499), None);
        assert_eq!(ticks.slice(now + 5), ticks.len() - 1);
    }

    #[test]
    fn a_long_pause_is_one_tick() {
        let mut ticks = Ticks::new(0);
        assert_eq!(ticks.advance(1000 * TICK + 5), [] as [usize; 0]);
        assert_eq!((ticks.len(), ticks.begin(1), ticks.next), (2, 1000 * TICK, 1001 * TICK));
        ticks.advance(u64::MAX);
        for _ in 0..9 {
            if ticks.is_due(u64::MAX) {
                ticks.advance(u64::MAX);
            }
        }
        assert!(ticks.len() <= 4);
    }
}
