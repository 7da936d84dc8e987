//! Headers and the end block of a file, held against what its payloads decode to. Only an undamaged file can be compared.

use super::payload::PayloadFormat;
use super::state::StreamState;
use crate::disk::block::{END_ERROR, End, GAP_NOT_WRITTEN, GapRecord, MARKS_COUNTED, MARKS_VAGUE, kind};
use crate::disk::blocks::Block;
use crate::fault::Code;
use crate::kernel::relay;

impl StreamState {
    fn findings(&self) -> u64 {
        self.report.faults_left_out.saturating_add(self.report.faults.len() as u64)
    }

    /// Compares the header of a block that begins with the marks and gap blocks before it. The recorder counts marks in
    /// `lost_before`; other writers may add the numbers of gap blocks, so everything from the one to the other is right.
    pub(super) fn compare_lost_before(&mut self, block: &Block, payload: &[u8]) {
        // Marks in a block that could not be written are counted, and are not in the file.
        self.headers.is_unwritten |= match block.header.kind {
            kind::GAP => GapRecord::parse(payload).is_some_and(|(gap, _)| gap.reason.get() == GAP_NOT_WRITTEN),
            kind::END => End::parse(payload).is_some_and(|end| end.reason.get() == END_ERROR),
            _ => false,
        };
        let (says, marked) = (block.header.lost_before.get(), self.marks.counted);
        let max = if self.headers.is_unwritten { u64::MAX } else { marked.saturating_add(self.marks.recorder) };
        if !self.damaged && !(marked..=max).contains(&says) {
            let message = format!(
                "its header says that {says} events were lost before it; marks before it count {marked}, and gap blocks {}",
                self.marks.recorder
            );
            self.fault(Code::WrongTotals, block, message);
        }
        self.headers.findings_before = self.findings();
    }

    /// Compares the header of a data block with its events, all of which were decoded.
    pub(super) fn compare_times(&mut self, block: &Block, payload: &[u8], format: &PayloadFormat) {
        // A key is the record's own stamp unless time went back, which is a finding.
        if self.damaged || self.findings() != self.headers.findings_before {
            return;
        }
        let has_events = self.report.events > self.before_block;
        let found = if has_events {
            let first = match format {
                PayloadFormat::Relay(format) => relay::first_stamp(format.layout, format.endian, payload),
                PayloadFormat::SubBuffers(_) | PayloadFormat::Unknown => self.first_in_block,
            };
            let Some((first, last)) = first.zip(self.last) else { return };
            (first, format.stamp_of(last))
        } else {
            (0, 0)
        };
        let says = (block.header.first.get(), block.header.last.get());
        if says != found {
            self.fault(Code::WrongTotals, block, wrong_times("its header says that its events", says, found));
        }
    }

    /// Compares the end block with the marks of the file: a reader that trusts it does not look for a mark without a count.
    pub(super) fn compare_marks(&mut self, end: &End, block: &Block) {
        let (says, uncounted) = (end.marks.get(), self.marks.uncounted);
        let is_wrong = match says {
            MARKS_COUNTED => uncounted > 0,
            // The mark without a count may be in a block that could not be written.
            MARKS_VAGUE => uncounted == 0 && !self.headers.is_unwritten,
            _ => false,
        };
        if is_wrong && !self.damaged {
            let said = if says == MARKS_VAGUE { "some mark has no number" } else { "every mark has its number" };
            let message = format!("it says that {said}, and {uncounted} of {} have none", self.marks.count);
            self.fault(Code::WrongTotals, block, message);
        }
    }

    /// Compares the end block with the first and last event of the file.
    pub(super) fn compare_end_times(&mut self, end: &End, block: &Block, format: &PayloadFormat) {
        let went_back =
            self.report.faults_left_out > 0 || self.report.faults.iter().any(|f| f.code == Code::BackInTime);
        if self.damaged || went_back {
            return;
        }
        let found = match self.report.first.zip(self.last) {
            Some((first, last)) => (format.stamp_of(first), format.stamp_of(last)),
            None => (0, 0),
        };
        let says = (end.first.get(), end.last.get());
        if says != found {
            self.fault(Code::WrongTotals, block, wrong_times("it says that the file's events", says, found));
        }
    }
}

fn wrong_times(whose: &str, says: (u64, u64), found: (u64, u64)) -> String {
    format!("{whose} are from {} to {}, and they are from {} to {}", says.0, says.1, found.0, found.1)
}
