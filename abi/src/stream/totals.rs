//! Totals of a file, held against its events; loss by marks and counters together.

use super::state::StreamState;
use super::unmarked::{not_there, read_by_others, refused};
use crate::disk::block::{CounterSample, Counters, End, MARKS_VAGUE};
use crate::disk::blocks::{Block, Ending};
use crate::event::{EventSink, Gap, GapCause};
use crate::fault::{Code, Fault, Verdict};
use crate::stream::report::Source;
use crate::text::units::counted;

impl StreamState {
    /// Compares a decoded data block with its header.
    pub(super) fn end_of_data(&mut self, block: &Block) {
        let (says, has) = (u64::from(block.header.events.get()), self.report.events.saturating_sub(self.before_block));
        if !self.damaged && says != has {
            self.fault(
                Code::WrongTotals,
                block,
                format!("its header says that it has {says} events, and it has {has}"),
            );
        }
    }

    /// Compares the totals in the file's last block with those of the events read.
    pub(super) fn end_block(&mut self, end: &End, block: &Block) {
        self.report.counters = Some(end.counters);
        self.marks.is_vague = end.marks.get() == MARKS_VAGUE;
        self.compare_timed(end, block);
        let others = read_by_others(&end.counters, end.events.get());
        self.read_by_others = self.read_by_others.max(others);
        if others > 0 {
            let (read, events) = (end.counters.read.get(), end.events.get());
            let message = format!("the kernel handed out {read} events, and {events} are in the file");
            self.fault(Code::OtherReader, block, message);
        }
        self.note_growth(&end.counters, end.grew, block);
        if !self.damaged && end.events.get() != self.report.events {
            let (says, has) = (end.events.get(), self.report.events);
            self.fault(Code::WrongTotals, block, format!("it says that the file has {says} events, and it has {has}"));
        }
    }

    /// Compares the number of blocks with intervals: a reader that trusts the end block does not look for them.
    pub(super) fn compare_timed(&mut self, end: &End, block: &Block) {
        let says = u64::from(end.timed.get());
        if let Some(has) = self.timed.filter(|&has| !self.damaged && block.header.minor.get() > 0 && has != says) {
            let message = format!("it says that {says} blocks of the file tell when events were lost, and {has} do");
            self.fault(Code::WrongTotals, block, message);
        }
    }

    /// Ends a file that was read: accounts for loss by counters, marks and ending.
    pub(super) fn finish(&mut self, ending: Ending, items: &mut impl EventSink) {
        if let Some(told) = self.told.take() {
            return self.finish_told(*told, ending, items);
        }
        self.report.last = self.last;
        let placed = self.marks.counted.saturating_add(self.marks.recorder);
        let counters = self.report.counters.unwrap_or_default();
        // A relay channel's counter is one for all CPUs; the reader of all of them accounts for it.
        let relay = self.report.source == Some(Source::Relay);
        let raw = self.report.version.is_none() && !relay;
        if raw && ending == Ending::Whole && !self.damaged {
            self.compare_with_stats();
        }
        let counted =
            if relay { counters.recorder_lost.get() } else { counters.lost().saturating_add(self.read_by_others) };
        let lost = counted.max(placed);
        // Without the kernel's counters only marks count, and one of them may have no number.
        let told = !raw || self.report.counters.is_some() || self.marks.uncounted == 0;
        let is_known = self.marks.unknown == 0 && told && self.left_out != u64::MAX;
        self.report.lost = is_known.then(|| lost.saturating_add(self.left_out));
        if self.report.lost_before.is_none() && self.report.gaps == 1 && self.marks.uncounted == 1 {
            // The sub-buffer had no room for the number, and the counters have it.
            self.report.lost_before = self.report.lost;
        }
        let (growth, beyond) = self.unplaced(&counters, relay);
        let unplaced = growth.saturating_add(beyond);
        self.tell_of_marks(lost.saturating_sub(unplaced));
        // Events that another program read have a finding of their own, with another remedy.
        let has_own = self.report.faults.iter().any(|fault| fault.code == Code::OtherReader);
        if unplaced > (if has_own { self.read_by_others } else { 0 }) {
            self.tell_of_unplaced(unplaced);
        }
        self.tell_whole(None, items);
        // A file that grows may have counters that were not there when its gaps were looked for.
        let foretold_beyond = self.foretold.saturating_sub(self.foretold_growth);
        let late_growth = growth.saturating_sub(self.foretold_growth);
        let rest = late_growth.saturating_add(beyond.saturating_sub(foretold_beyond));
        if rest > 0 || self.report.late_loss {
            // The number of events that a change by another program cost is not known.
            let lost = Some(rest).filter(|_| !self.report.late_loss);
            self.report.late_loss = true;
            let (from, cpu) = (self.report.first, self.cpu);
            self.push_gap(items, Gap { from, to: None, cpu, lost, cause: GapCause::Counters });
        }
        let cut = match ending {
            Ending::Whole => None,
            Ending::Cut => Some(GapCause::Cut),
            Ending::Damaged => Some(GapCause::Damage),
        };
        if cut.is_some() || self.pending.is_some() {
            self.gap(items, cut, None);
        }
        if let Some(from) = self.open_hand.take() {
            self.push_gap(items, Gap { from, to: None, cpu: self.cpu, lost: None, cause: GapCause::Foreign });
        }
        if lost > 0 || self.marks.unknown > 0 {
            self.report.verdict = self.report.verdict.max(Verdict::Lossy);
        }
    }

    /// Events lost beyond marks and gap blocks: those that the kernel refused or other readers took, and overrun and unwritten
    /// events.
    fn unplaced(&self, counters: &Counters, relay: bool) -> (u64, u64) {
        let marked = self.marks.counted.max(self.marks.by_headers);
        // A mark without a count may stand for any number.
        let is_vague = relay || self.marks.uncounted > 0 || self.marks.is_vague;
        let beyond = if is_vague { 0 } else { counters.overrun.get().saturating_sub(marked) };
        let refused = if relay { 0 } else { refused(counters) };
        let unwritten = counters.recorder_lost.get().saturating_sub(self.marks.recorder);
        (refused.saturating_add(self.read_by_others), beyond.saturating_add(unwritten))
    }

    /// Adds the finding of the marks, over `lost` events.
    fn tell_of_marks(&mut self, lost: u64) {
        if self.marks.count == 0 {
            return;
        }
        let mut message = format!("{} lost in {}", counted(lost, "event"), counted(self.marks.count, "gap"));
        let (longest, to) = self.marks.longest;
        if longest > 0 {
            let until = self.keys.moment(to, self.report.first.unwrap_or(to), 6);
            let after = until.trim_start_matches('+');
            message += &format!(", the longest {}, until {after} after the first event", counted(longest, "event"));
        }
        if self.marks.uncounted > 0 {
            message += &format!("; {} without a number of events", counted(self.marks.uncounted, "gap"));
        }
        self.report.add(Fault { code: Code::Overrun, offset: 0, block: None, message });
    }

    /// Adds the finding of loss without a mark.
    fn tell_of_unplaced(&mut self, unplaced: u64) {
        let timed = self.foretold_timed.min(unplaced);
        let message = match (timed, unplaced.saturating_sub(timed)) {
            (0, _) => format!("{unplaced} more events lost that no mark tells of, at an unknown time"),
            (_, 0) => {
                format!("{unplaced} more events lost that no mark tells of, each between two looks at the counters")
            }
            (_, rest) => format!(
                "{unplaced} more events lost that no mark tells of: {timed} between two looks at the counters, {rest} at an unknown time"
            ),
        };
        self.report.add(Fault { code: Code::Unplaced, offset: 0, block: None, message });
    }

    /// Takes on counters within the file: events that other readers have taken until then. Minor version 0 has them only in the
    /// end.
    pub(super) fn sample(&mut self, sample: &CounterSample, block: &Block) {
        self.report.counters = Some(sample.counters);
        self.count_timed(sample.grew);
        if block.header.minor.get() > 0 && self.report.source != Some(Source::Relay) {
            let others = read_by_others(&sample.counters, block.header.events_before.get());
            self.read_by_others = self.read_by_others.max(others);
        }
        if self.report.source != Some(Source::Relay) {
            self.note_growth(&sample.counters, sample.grew, block);
        }
    }

    /// Compares a captured tree's events with its stats, which are copied after the sub-buffers, or before.
    fn compare_with_stats(&mut self) {
        let Some(counters) = self.report.counters else { return };
        let (read, unread) = (counters.read.get(), counters.unread.get());
        self.read_by_others = not_there(&counters, self.report.events);
        if ![read, read.saturating_add(unread)].contains(&self.report.events) {
            let message =
                format!("stats count {read} events read and {unread} left, and {} are here", self.report.events);
            self.report.add(Fault { code: Code::UnlikeStats, offset: 0, block: None, message });
        }
    }
}
