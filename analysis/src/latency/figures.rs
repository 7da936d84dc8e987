//! Figures of durations: count, sums, extremes and percentiles, in buckets of the top eleven bits.

use std::collections::BTreeMap;

use foldhash::HashMap;

/// Values below this one have buckets of their own.
const EXACT: u64 = 2048;
/// Buckets of each further power of two.
const PER_POWER: u64 = EXACT / 2;

/// Figures of durations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DurationFigures {
    /// Number of durations.
    pub count: u64,
    /// Sum of the durations.
    pub total: u64,
    /// Sum of the durations less what others inside took.
    pub own: u64,
    /// Least duration; 0 without any.
    pub min: u64,
    /// Largest duration.
    pub max: u64,
    /// Number of durations in each bucket.
    buckets: HashMap<u16, u64>,
}

impl DurationFigures {
    /// Adds a duration, `own` of which nothing else inside took.
    pub(super) fn add(&mut self, duration: u64, own: u64) {
        self.min = if self.count == 0 { duration } else { self.min.min(duration) };
        self.max = self.max.max(duration);
        self.count += 1;
        self.total = self.total.saturating_add(duration);
        self.own = self.own.saturating_add(own);
        *self.buckets.entry(bucket(duration)).or_default() += 1;
    }

    /// Adds the durations of other figures.
    pub(super) fn merge(&mut self, other: &DurationFigures) {
        if other.count == 0 {
            return;
        }
        self.min = if self.count == 0 { other.min } else { self.min.min(other.min) };
        self.max = self.max.max(other.max);
        self.count += other.count;
        self.total = self.total.saturating_add(other.total);
        self.own = self.own.saturating_add(other.own);
        for (bucket, count) in &other.buckets {
            *self.buckets.entry(*bucket).or_default() += count;
        }
    }

    /// Percentiles by nearest rank, in the order asked for: values below 2048 are exact, another stands for the largest with the
    /// same top eleven bits. None is above the maximum; 0 without durations.
    pub fn percentiles<const N: usize>(&self, percents: [u64; N]) -> [u64; N] {
        let mut sorted: Vec<(u16, u64)> = self.buckets.iter().map(|(bucket, count)| (*bucket, *count)).collect();
        sorted.sort_unstable();
        percents.map(|percent| {
            let rank = (u128::from(self.count) * u128::from(percent)).div_ceil(100).max(1);
            let mut below = 0;
            let at = sorted.iter().find(|(_, count)| {
                below += u128::from(*count);
                below >= rank
            });
            at.map_or(0, |(bucket, _)| greatest(*bucket).min(self.max))
        })
    }

    /// Numbers of durations by powers of two, ascending: first value, first value beyond, and number. None is empty.
    pub fn histogram(&self) -> Vec<(u64, u64, u64)> {
        let mut powers: BTreeMap<u64, u64> = BTreeMap::new();
        for (bucket, count) in &self.buckets {
            let value = greatest(*bucket);
            *powers.entry(if value == 0 { 0 } else { 1 << value.ilog2() }).or_default() += count;
        }
        let end = |from: u64| if from == 0 { 1 } else { from.saturating_mul(2) };
        powers.into_iter().map(|(from, count)| (from, end(from), count)).collect()
    }
}

/// Bucket of a duration.
fn bucket(value: u64) -> u16 {
    if value < EXACT {
        return value as u16;
    }
    let shift = u64::from(value.ilog2()) - 10;
    (EXACT + (shift - 1) * PER_POWER + (value >> shift) - PER_POWER) as u16
}

/// Largest duration of a bucket.
fn greatest(bucket: u16) -> u64 {
    let bucket = u64::from(bucket);
    match bucket.checked_sub(EXACT) {
        None => bucket,
        Some(beyond) => {
            let shift = beyond / PER_POWER + 1;
            (beyond % PER_POWER + PER_POWER) << shift | ((1 << shift) - 1)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_holds_the_values_with_the_same_top_eleven_bits() {
        for value in (0..5000).chain((11..64).flat_map(|bit| [(1 << bit) - 1, 1 << bit, (1 << bit) + 12345])) {
            let end = greatest(bucket(value));
            let shift = value.checked_ilog2().map_or(0, |bits| bits.saturating_sub(10));
            assert_eq!(end, if value < 2048 { value } else { value | ((1 << shift) - 1) }, "{value}");
        }
        assert_eq!(greatest(bucket(u64::MAX)), u64::MAX);
    }

    #[test]
    fn percentiles_go_by_nearest_rank_and_end_at_the_greatest_value() {
        let mut figures = DurationFigures::default();
        assert_eq!(figures.percentiles([50]), [0]);
        (1..=10).for_each(|n| figures.add(n * 100, 0));
        assert_eq!(figures.percentiles([1, 10, 11, 50, 90, 99, 100]), [100, 100, 200, 500, 900, 1000, 1000]);
        figures.add(1_000_001, 7);
        assert_eq!(figures.percentiles([99]), [1_000_001]);
        let mut twice = figures.clone();
        twice.merge(&figures);
        assert_eq!((twice.count, twice.min, twice.max, twice.own), (22, 100, 1_000_001, 14));
        // 1,000,001 has 20 bits: the lower nine do not count.
        twice.add(2_000_000, 0);
        assert_eq!(twice.percentiles([95]), [1_000_447]);
    }

    #[test]
    fn a_histogram_has_a_bucket_for_each_power_of_two_with_values() {
        let mut figures = DurationFigures::default();
        [0, 0, 1, 2, 3, 2047, 2048, 4095, u64::MAX].into_iter().for_each(|value| figures.add(value, 0));
        let want = [(0, 1, 2), (1, 2, 1), (2, 4, 2), (1024, 2048, 1), (2048, 4096, 2), (1 << 63, u64::MAX, 1)];
        assert_eq!(figures.histogram(), want);
    }
}
