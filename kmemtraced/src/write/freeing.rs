//! Blocks at the front of a file that are given back to the file system while it grows.

use std::collections::VecDeque;
use std::ops::Range;

/// Bytes that are given back at once, at least.
const STEP: u64 = 1 << 20;

/// Ends of the blocks that a file still has.
#[derive(Debug)]
pub(crate) struct Freeing {
    /// Bytes that stay, at least.
    keep: u64,
    /// Ends of blocks after `freed`, in bytes.
    ends: VecDeque<u64>,
    /// End of the bytes that were given back; the first block, which describes the others, stays.
    freed: Option<u64>,
    /// Bytes given back.
    bytes: u64,
}

impl Freeing {
    pub(crate) fn new(keep: u64) -> Freeing {
        Freeing { keep, ends: VecDeque::new(), freed: None, bytes: 0 }
    }

    /// Adds a block that ends at `end`.
    pub(crate) fn add(&mut self, end: u64) {
        match self.freed {
            None => self.freed = Some(end),
            Some(_) => self.ends.push_back(end),
        }
    }

    /// Blocks to give back, where they are worth it: whole ones, so that a reader finds the next header behind them.
    pub(crate) fn take(&mut self) -> Option<Range<u64>> {
        let (from, last) = (self.freed?, *self.ends.back()?);
        let until = last.saturating_sub(self.keep);
        if until.saturating_sub(from) < STEP {
            return None;
        }
        let mut to = from;
        while let Some(end) = self.ends.front().copied().filter(|end| *end <= until) {
            self.ends.pop_front();
            to = end;
        }
        self.freed = Some(to);
        self.bytes += to - from;
        (to > from).then_some(from..to)
    }

    /// Bytes given back so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_blocks_are_given_back_and_the_last_ones_stay() {
        let mut freeing = Freeing::new(10 << 20);
        let (mut end, mut given) = (700, 700);
        freeing.add(end);
        for number in 0..1000 {
            end += 100_000 + number % 7;
            freeing.add(end);
            if let Some(range) = freeing.take() {
                assert_eq!(range.start, given, "without a space between");
                assert!(range.end - range.start >= STEP - 100_010 && end - range.end >= 10 << 20);
                given = range.end;
            }
            assert!(end - given < (11 << 20) + 200_000, "{end} {given}");
        }
        assert_eq!(freeing.bytes(), given - 700);
        assert!((given - 700).is_multiple_of(100_000) || given > 80 << 20);
    }
}
