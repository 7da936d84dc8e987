//! Blocks at which a CPU's file can be entered, and its gaps: kept while all of it is read, so that a reader can read a part
//! of it later and still know every gap.

use crate::event::Gap;

/// Largest number of a file's points: each time it is reached, every second point is dropped.
pub const MAX_POINTS: usize = 4096;
/// Largest number of a file's gaps. A file with more has no index.
pub const MAX_GAPS: usize = 1 << 16;

/// A block of data where reading may begin, and the counts before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct SeekPoint {
    /// Offset of its header in the file, in bytes.
    pub offset: u64,
    /// Number of the block in the file.
    pub sequence: u64,
    /// Event records before it.
    pub events: u64,
    /// Gaps before it.
    pub gaps: u64,
    /// Order key of the last event before it.
    pub last: Option<u64>,
}

/// Entry points and gaps of one CPU's file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct SeekIndex {
    /// Points in the order of the file.
    pub points: Vec<SeekPoint>,
    /// Gaps, all of them, in the order of the file.
    pub gaps: Vec<Gap>,
}

impl SeekIndex {
    /// The last point before which no event has a key of `from` or more.
    pub(crate) fn before(&self, from: u64) -> Option<&SeekPoint> {
        let count = self.points.partition_point(|point| point.last.is_none_or(|last| last < from));
        self.points.get(count.checked_sub(1)?)
    }

    /// Offset behind all events with keys up to `to`, in bytes, if that is before the end of the file.
    pub(crate) fn end(&self, to: u64) -> Option<u64> {
        let count = self.points.partition_point(|point| point.last.is_none_or(|last| last <= to));
        self.points.get(count).map(|point| point.offset)
    }
}

/// Builds the index of a file that is being read.
#[derive(Debug)]
pub(crate) struct SeekIndexBuilder {
    kept: SeekIndex,
    /// Blocks to a point.
    stride: u64,
    blocks: u64,
    too_many: bool,
}

impl SeekIndexBuilder {
    pub(crate) fn new() -> SeekIndexBuilder {
        SeekIndexBuilder { kept: SeekIndex::default(), stride: 1, blocks: 0, too_many: false }
    }

    pub(crate) fn point(&mut self, point: SeekPoint) {
        if self.blocks.is_multiple_of(self.stride) {
            self.kept.points.push(point);
        }
        self.blocks = self.blocks.saturating_add(1);
        if self.kept.points.len() > MAX_POINTS {
            let mut is_kept = false;
            self.kept.points.retain(|_| {
                is_kept = !is_kept;
                is_kept
            });
            self.stride = self.stride.saturating_mul(2);
        }
    }

    pub(crate) fn gap(&mut self, gap: Gap) {
        self.too_many |= self.kept.gaps.len() >= MAX_GAPS;
        if !self.too_many {
            self.kept.gaps.push(gap);
        }
    }

    pub(crate) fn seek_index(&self) -> Option<&SeekIndex> {
        (!self.too_many).then_some(&self.kept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::GapCause;

    fn point(n: u64) -> SeekPoint {
        SeekPoint { offset: 100 * n, sequence: n, events: 10 * n, gaps: 0, last: n.checked_sub(1).map(|n| 10 * n) }
    }

    #[test]
    fn points_stay_few_and_evenly_spread() {
        let mut builder = SeekIndexBuilder::new();
        (0..50_000).for_each(|n| builder.point(point(n)));
        let points = &builder.seek_index().unwrap().points;
        assert!((MAX_POINTS / 2..=MAX_POINTS).contains(&points.len()), "{}", points.len());
        assert!(points.iter().zip((0..).step_by(16)).all(|(kept, n)| *kept == point(n)));
    }

    #[test]
    fn a_part_is_entered_before_its_first_event() {
        let seek_index = SeekIndex { points: (0..5).map(point).collect(), gaps: Vec::new() };
        for (from, want) in [(0, 0), (1, 1), (10, 1), (11, 2), (30, 3), (31, 4), (u64::MAX, 4)] {
            assert_eq!(seek_index.before(from), Some(&point(want)), "{from}");
        }
        assert_eq!(SeekIndex::default().before(5), None);
    }

    #[test]
    fn too_many_gaps_are_no_index() {
        let gap = Gap { from: None, to: None, cpu: 0, lost: None, cause: GapCause::Overrun };
        let mut builder = SeekIndexBuilder::new();
        (0..MAX_GAPS).for_each(|_| builder.gap(gap));
        assert!(builder.seek_index().is_some());
        builder.gap(gap);
        assert!(builder.seek_index().is_none());
    }
}
