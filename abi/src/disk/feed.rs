//! Blocks of one file that come through a stream: the reader of the stream hands them over, the reader of the file takes them.

use std::collections::VecDeque;
use std::io::Read;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::disk::block::kind;
use crate::disk::left_out::LeftOut;

/// Whole blocks of one file, in their order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Feed(Arc<Mutex<Held>>);

/// Blocks that were not taken yet.
#[derive(Debug, Default)]
struct Held {
    blocks: VecDeque<Box<[u8]>>,
    /// Bytes of the first block that were taken.
    taken: usize,
    /// Bytes of the blocks, less those taken.
    bytes: usize,
    /// No more blocks come.
    is_closed: bool,
}

impl Feed {
    fn held(&self) -> MutexGuard<'_, Held> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a whole block.
    pub(crate) fn push(&self, block: &[u8]) {
        let mut held = self.held();
        held.bytes = held.bytes.saturating_add(block.len());
        held.blocks.push_back(block.into());
    }

    /// Notes that no more blocks come.
    pub(crate) fn close(&self) {
        self.held().is_closed = true;
    }

    /// True while more blocks may come.
    pub(crate) fn is_open(&self) -> bool {
        !self.held().is_closed
    }

    /// Leaves out the blocks before the last one with events, but for those that tell of loss, and puts marks in their places. False
    /// where there are none. A block that was taken in part stays.
    pub(crate) fn leave_out(&self) -> bool {
        let mut held = self.held();
        let from = usize::from(held.taken > 0);
        let kind_of = |block: &[u8]| LeftOut::header(block).map_or(0, |header| header.kind);
        let last = held.blocks.iter().rposition(|block| kind_of(block) == kind::DATA).unwrap_or(0);
        let range = from..last.max(from);
        if !held.blocks.range(range.clone()).any(|block| kind_of(block) == kind::DATA) {
            return false;
        }
        let rest = held.blocks.split_off(range.end);
        let mut left_out: Option<LeftOut> = None;
        for block in held.blocks.split_off(range.start) {
            match LeftOut::header(&block) {
                Some(header) if LeftOut::may_be(header.kind) => match &mut left_out {
                    Some(left_out) => left_out.add(LeftOut::of(&header)),
                    None => left_out = Some(LeftOut::of(&header)),
                },
                _ => {
                    held.blocks.extend(left_out.take().map(|left_out| left_out.mark().into()));
                    held.blocks.push_back(block);
                }
            }
        }
        held.blocks.extend(left_out.map(|left_out| left_out.mark().into()));
        held.blocks.extend(rest);
        held.bytes = held.blocks.iter().map(|block| block.len()).sum::<usize>().saturating_sub(held.taken);
        true
    }

    /// Bytes that were not taken yet.
    pub(crate) fn bytes(&self) -> usize {
        self.held().bytes
    }

    /// Takes bytes; 0 where none are there.
    pub(crate) fn read(&self, bytes: &mut [u8]) -> usize {
        let mut held = self.held();
        let Held { blocks, taken, bytes: left, .. } = &mut *held;
        let Some(first) = blocks.front() else { return 0 };
        let mut rest = first.get(*taken..).unwrap_or_default();
        let len = rest.read(bytes).unwrap_or(0);
        (*taken, *left) = (taken.saturating_add(len), left.saturating_sub(len));
        if rest.is_empty() {
            *taken = 0;
            blocks.pop_front();
        }
        len
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::block::{BlockInfo, block};

    fn kinds(feed: &Feed) -> Vec<(u8, u64)> {
        let held = feed.held();
        let headers = held.blocks.iter().map(|block| LeftOut::header(block).unwrap());
        headers.map(|header| (header.kind, header.sequence.get())).collect()
    }

    #[test]
    fn blocks_before_the_last_one_with_events_are_left_out_and_loss_stays() {
        let feed = Feed::default();
        assert!(!feed.leave_out());
        for (kind, sequence) in [
            (kind::DATA, 1),
            (kind::WATERMARK, 2),
            (kind::COUNTERS, 3),
            (kind::DATA, 4),
            (kind::DATA, 5),
            (kind::WATERMARK, 6),
        ] {
            feed.push(&block(&BlockInfo { kind, sequence, events: 1, ..BlockInfo::default() }, &[7; 100]));
        }
        // The first one is being read.
        feed.read(&mut [0; 10]);
        assert!(feed.leave_out());
        let expected = [(kind::DATA, 1), (kind::GAP, 2), (kind::COUNTERS, 3), (kind::GAP, 4), (kind::DATA, 5)];
        assert_eq!(kinds(&feed), [&expected[..], &[(kind::WATERMARK, 6)]].concat());
        let mut bytes = 0;
        while feed.bytes() > 0 {
            bytes += feed.read(&mut [0; 64]);
        }
        assert!(bytes > 400, "the sum of bytes is right: {bytes}");
        assert!(!feed.leave_out());
    }
}
