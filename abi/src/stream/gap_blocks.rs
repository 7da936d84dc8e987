//! Loss that the recorder knows of: gap blocks of a file, and the gaps that are known before its first event.

use super::state::StreamState;
use super::unmarked::{MAX_GAPS, Unmarked, changed, is_timed, refused, shown};
use crate::disk::block::{
    Counters, GAP_CLEARED, GAP_FOREIGN, GAP_FULL, GAP_NOT_WRITTEN, GAP_UNCOUNTED, GapRecord, Interval, LOST_UNKNOWN,
};
use crate::disk::blocks::Block;
use crate::event::{EventSink, Gap, GapCause};
use crate::fault::Code;

impl StreamState {
    /// Hands over the gaps that are known before the first event; `is_entered`: reading
    /// began behind them, so they were handed over already.
    pub(super) fn foretell(&mut self, unmarked: Unmarked, is_entered: bool, items: &mut impl EventSink) {
        self.walked_to = unmarked.walked_to;
        let hands = unmarked.gaps.iter().filter(|gap| gap.cause == GapCause::Foreign);
        self.hands = hands.map(|gap| (gap.from.unwrap_or(0), gap.to.unwrap_or(Interval::TO_THE_END))).collect();
        self.foretold = unmarked.counted();
        self.foretold_growth = unmarked.growth;
        self.foretold_timed = self.foretold.saturating_sub(unmarked.whole);
        if self.last.is_none() && unmarked.whole > 0 {
            self.whole = Some(unmarked.whole);
        }
        if is_entered {
            return;
        }
        self.marks.unknown = self.marks.unknown.saturating_add(unmarked.hands.len() as u64);
        unmarked.hands.into_iter().for_each(|fault| self.report.add(fault));
        unmarked.gaps.into_iter().for_each(|gap| self.push_gap(items, gap));
    }

    /// Remembers a change by another program; true where all of its interval has a finding already.
    fn is_known_change(&mut self, interval: Interval) -> bool {
        let (from, to) = (interval.from.get(), interval.to.get());
        let has_ends = interval.ends().is_some();
        let is_known = has_ends && self.hands.get(&from).is_some_and(|&told| told >= to);
        if has_ends && !is_known && self.hands.len() < MAX_GAPS {
            self.hands.insert(from, to);
        }
        is_known
    }

    /// Hands over the gaps that the blocks of a file that grows tell of.
    pub(super) fn tell_at_once(&mut self, items: &mut impl EventSink) {
        for gap in std::mem::take(&mut self.at_once) {
            self.push_gap(items, gap);
        }
    }

    /// Notes the gap of a block of a file that grows. The end of a change by another program comes with a later block.
    fn note_gap(&mut self, gap: &GapRecord) {
        let Some((from, to)) = gap.interval.ends() else { return };
        let lost = Some(gap.lost.get()).filter(|&n| n != LOST_UNKNOWN);
        let (_, cause, _) = cause_of(gap.reason.get(), lost, b"");
        let mut end = to;
        if cause == GapCause::Foreign {
            self.open_hand = to.is_none().then_some(from);
            end = to.or(from.max(self.last));
        }
        self.at_once.push(Gap { from, to: end, cpu: self.cpu, lost, cause });
    }

    /// Notes the gap between two looks at the counters of a file that grows, where these tell of loss that no block told of.
    pub(super) fn note_growth(&mut self, counters: &Counters, grew: Interval, block: &Block) {
        let is_foretold = self.walked_to.is_some_and(|last| block.offset <= last);
        let growth = refused(counters).saturating_add(self.read_by_others);
        let more = growth.saturating_sub(self.foretold_growth);
        let Some((from, to)) = grew.ends().filter(|_| self.follows && !is_foretold && more > 0) else { return };
        self.foretold_growth = self.foretold_growth.saturating_add(more);
        self.foretold = self.foretold.saturating_add(more);
        self.foretold_timed = self.foretold_timed.saturating_add(more);
        self.at_once.push(Gap { from, to, cpu: self.cpu, lost: Some(more), cause: GapCause::Counters });
    }

    pub(super) fn gap_record(&mut self, gap: &GapRecord, text: &[u8], block: &Block) {
        self.count_timed(gap.interval);
        let is_foretold = is_timed(gap) && self.walked_to.is_some_and(|last| block.offset <= last);
        let is_foreign = gap.reason.get() == GAP_FOREIGN;
        let is_at_once = self.follows && is_timed(gap) && !is_foretold;
        if is_at_once {
            self.note_gap(gap);
        }
        if is_foreign && (is_foretold || self.is_known_change(gap.interval)) {
            return;
        }
        let lost = Some(gap.lost.get()).filter(|&n| n != LOST_UNKNOWN && !is_foreign);
        match lost {
            Some(n) => self.marks.recorder = self.marks.recorder.saturating_add(n),
            None => self.marks.unknown = self.marks.unknown.saturating_add(1),
        }
        let (code, cause, message) = cause_of(gap.reason.get(), lost, text);
        self.fault(code, block, message);
        // Too late for a gap that begins where it should.
        self.report.late_loss |= is_timed(gap) && !is_foretold && !is_at_once;
        if !is_foretold && !is_timed(gap) {
            self.pending = Some((cause, lost));
        }
    }
}

/// Finding, cause and message of a gap block of `reason`; `text` is the recorder's.
fn cause_of(reason: u32, lost: Option<u64>, text: &[u8]) -> (Code, GapCause, String) {
    let number = lost.map_or("some".to_owned(), |n| n.to_string());
    match reason {
        GAP_CLEARED => {
            (Code::Cleared, GapCause::Recorder, "another program cleared or changed the buffer here".to_owned())
        }
        GAP_FOREIGN => (Code::ForeignHand, GapCause::Foreign, changed(text)),
        GAP_FULL => (
            Code::Overrun,
            GapCause::Overrun,
            format!("{number} events of all CPUs were dropped about here: the channel was full"),
        ),
        GAP_NOT_WRITTEN => {
            (Code::RecorderLoss, GapCause::Recorder, format!("{number} events were read here and could not be written"))
        }
        GAP_UNCOUNTED => {
            let error = shown(text, "the recorder does not say why");
            let message = format!(
                "the end of the kernel's buffer could not be read or counted: {error}; events lost from then on are not counted"
            );
            (Code::Uncounted, GapCause::Recorder, message)
        }
        other => {
            let said = shown(text, "the recorder says no more");
            let message = format!("{number} events were lost for reason {other}, which is not known here: {said}");
            (Code::UnknownLoss, GapCause::Recorder, message)
        }
    }
}
