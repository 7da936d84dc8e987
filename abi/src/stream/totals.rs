//! Whether the totals in a file are those of its events, and what marks and counters together say of loss.

use super::cursor::Cursor;
use crate::block::End;
use crate::blocks::{Block, Ending};
use crate::event::{GapCause, Items};
use crate::fault::{Code, Fault, Verdict};
use crate::trace::Source;

/// What the marks in the stream say of lost events.
#[derive(Debug, Default)]
pub(super) struct Marks {
    /// Marks in sub-buffers.
    pub(super) count: u64,
    /// Sum of those with a number.
    pub(super) counted: u64,
    /// Marks without a number.
    pub(super) uncounted: u64,
    /// The greatest number, and the time to which its gap goes.
    pub(super) longest: (u64, u64),
    /// Sum of gap blocks with a number.
    pub(super) recorder: u64,
    /// Gap blocks without one.
    pub(super) unknown: u64,
}

impl Cursor {
    /// All of a data block was decoded: is it what its header says?
    pub(super) fn end_of_data(&mut self, block: &Block) {
        let (says, has) = (u64::from(block.header.events.get()), self.facts.events - self.before_block);
        if !self.damaged && says != has {
            self.fault(
                Code::WrongTotals,
                block,
                format!("its header says that it has {says} events, and it has {has}"),
            );
        }
    }

    /// The file's last block: are its totals those of what was read?
    pub(super) fn end_block(&mut self, end: &End, block: &Block) {
        self.facts.counters = Some(end.counters);
        let ours = end.events.get().saturating_add(end.counters.recorder_lost.get());
        self.read_by_others = end.counters.read.get().saturating_sub(ours);
        if self.read_by_others > 0 {
            let (read, events) = (end.counters.read.get(), end.events.get());
            let message = format!("the kernel handed out {read} events, and {events} are in the file");
            self.fault(Code::OtherReader, block, message);
        }
        if !self.damaged && end.events.get() != self.facts.events {
            let (says, has) = (end.events.get(), self.facts.events);
            self.fault(Code::WrongTotals, block, format!("it says that the file has {says} events, and it has {has}"));
        }
    }

    /// The file is read: what its counters and its ending say of loss.
    pub(super) fn finish(&mut self, ending: Ending, items: &mut impl Items) {
        self.facts.last = self.last;
        let placed = self.marks.counted.saturating_add(self.marks.recorder);
        let counters = self.facts.counters.unwrap_or_default();
        // A relay channel's counter is one for all CPUs; who sees all of them tells what it means.
        let relay = self.facts.source == Some(Source::Relay);
        let counted =
            if relay { counters.recorder_lost.get() } else { counters.lost().saturating_add(self.read_by_others) };
        let lost = counted.max(placed);
        // Without the kernel's counters only marks tell, and one of them may have no number.
        let raw = self.facts.version.is_none() && !relay;
        let told = !raw || self.facts.counters.is_some() || self.marks.uncounted == 0;
        self.facts.lost = (self.marks.unknown == 0 && told).then_some(lost);
        if self.facts.lost_before.is_none() && self.facts.gaps == 1 {
            // There was no room for the number, and the counters have it.
            self.facts.lost_before = self.facts.lost;
        }
        if raw && ending == Ending::Whole && !self.damaged {
            self.compare_with_stats();
        }
        let unmarked = if relay { 0 } else { counters.dropped.get().saturating_add(counters.commit_overrun.get()) };
        let vague = self.marks.uncounted + self.marks.unknown > 0;
        let unplaced = if vague { unmarked } else { counted.saturating_sub(placed) };
        if self.marks.count > 0 {
            let (longest, to) = self.marks.longest;
            let mut message = format!("{} events lost in {} gaps", lost - unplaced.min(lost), self.marks.count);
            if longest > 0 {
                let after = to.saturating_sub(self.facts.first.unwrap_or(to)) as f64 / 1e9;
                message += &format!(", the longest {longest} events, until {after:.6} s after the first event");
            }
            if self.marks.uncounted > 0 {
                message += &format!("; {} gaps have no number of their own", self.marks.uncounted);
            }
            self.facts.add(Fault { code: Code::Overrun, offset: 0, block: None, message });
        }
        if unplaced > 0 {
            let message = format!("{unplaced} more events lost, nobody knows where");
            self.facts.add(Fault { code: Code::Unplaced, offset: 0, block: None, message });
            self.pending.get_or_insert((GapCause::Counters, Some(unplaced)));
        }
        let cut = match ending {
            Ending::Whole => None,
            Ending::Cut => Some(GapCause::Cut),
            Ending::Damaged => Some(GapCause::Damage),
        };
        if cut.is_some() || self.pending.is_some() {
            self.gap(items, cut, None);
        }
        if lost > 0 || self.marks.unknown > 0 {
            self.facts.verdict = self.facts.verdict.max(Verdict::Lossy);
        }
    }

    /// Of a captured tree: stats are copied after the sub-buffers, or before.
    fn compare_with_stats(&mut self) {
        let Some(counters) = self.facts.counters else { return };
        let (read, unread) = (counters.read.get(), counters.unread.get());
        if ![read, read.saturating_add(unread)].contains(&self.facts.events) {
            let message =
                format!("stats count {read} events read and {unread} left, and {} are here", self.facts.events);
            self.facts.add(Fault { code: Code::UnlikeStats, offset: 0, block: None, message });
        }
    }
}
