//! Blocks that a stream lacks because its reader was too slow, and the mark that stands for them.
//!
//! The mark is a gap block with the number of the last block that was left out, so that the numbers go on after it.

use zerocopy::{FromBytes, IntoBytes};

use crate::disk::block::{self, BlockInfo, GAP_NOT_SENT, GapRecord, Header, Interval, LOST_UNKNOWN, RecordingId, kind};

/// Blocks of one file, one after the other, that were left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeftOut {
    cpu: u32,
    recording: RecordingId,
    /// Number of the last one.
    sequence: u64,
    events: u64,
    /// Times of the first and the last event, where there is one.
    span: Option<(u64, u64)>,
    /// A block that reports loss is among them.
    is_unknown: bool,
}

impl LeftOut {
    /// True for a block that may be left out: the others are small, and report loss or the end.
    pub fn may_be(kind: u8) -> bool {
        matches!(kind, kind::DATA | kind::META | kind::WATERMARK)
    }

    /// A block that is left out, by its header.
    pub fn of(header: &Header) -> LeftOut {
        let (events, kind) = (u64::from(header.events.get()), header.kind);
        LeftOut {
            cpu: header.cpu.get(),
            recording: header.recording,
            sequence: header.sequence.get(),
            events,
            span: (events > 0).then(|| (header.first.get(), header.last.get())),
            is_unknown: matches!(kind, kind::GAP | kind::COUNTERS),
        }
    }

    /// The header of a block.
    pub fn header(block: &[u8]) -> Option<Header> {
        Header::read_from_prefix(block).ok().map(|(header, _)| header)
    }

    /// Adds a later block of the same file.
    pub fn add(&mut self, later: LeftOut) {
        self.sequence = later.sequence;
        self.events = self.events.saturating_add(later.events);
        self.is_unknown |= later.is_unknown;
        self.span = match (self.span, later.span) {
            (Some((first, _)), Some((_, last))) => Some((first, last)),
            (one, other) => one.or(other),
        };
    }

    /// Events that were left out, where their number is known.
    pub fn events(&self) -> Option<u64> {
        (!self.is_unknown).then_some(self.events)
    }

    /// The mark, a whole block.
    pub fn mark(&self) -> Vec<u8> {
        let LeftOut { cpu, recording, sequence, .. } = *self;
        let info = BlockInfo { kind: kind::GAP, cpu, recording, sequence, ..BlockInfo::default() };
        let (from, to) = self.span.unwrap_or_default();
        let gap = GapRecord {
            lost: self.events().unwrap_or(LOST_UNKNOWN).into(),
            reason: GAP_NOT_SENT.into(),
            interval: Interval::new(from, to),
            ..GapRecord::default()
        };
        block::block(&info, gap.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(kind: u8, sequence: u64, events: u32, times: (u64, u64)) -> Header {
        let info = BlockInfo { kind, cpu: 3, sequence, events, first: times.0, last: times.1, ..BlockInfo::default() };
        LeftOut::header(&block::block(&info, b"payload")).unwrap()
    }

    #[test]
    fn a_mark_has_the_number_of_the_last_block_and_the_events_of_all() {
        let mut left_out = LeftOut::of(&header(kind::WATERMARK, 4, 0, (0, 0)));
        left_out.add(LeftOut::of(&header(kind::DATA, 5, 10, (100, 200))));
        left_out.add(LeftOut::of(&header(kind::DATA, 6, 7, (210, 300))));
        assert_eq!(left_out.events(), Some(17));
        let mark = left_out.mark();
        let found = LeftOut::header(&mark).unwrap();
        assert_eq!((found.kind, found.cpu.get(), found.sequence.get()), (kind::GAP, 3, 6));
        let (gap, _) = GapRecord::parse(&mark[block::HEADER_BYTES..]).unwrap();
        assert_eq!((gap.lost.get(), gap.reason.get()), (17, GAP_NOT_SENT));
        assert_eq!(gap.interval.ends(), Some((Some(100), Some(300))));
        left_out.add(LeftOut::of(&header(kind::GAP, 7, 0, (0, 0))));
        assert_eq!(left_out.events(), None, "the block told of loss");
    }
}
