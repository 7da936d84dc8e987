//! What is carried from record to record of a stream, whatever the records are.

use std::path::PathBuf;

use super::headers::HeaderChecks;
use super::totals::Marks;
use crate::block::{GAP_CLEARED, GAP_FULL, GapRecord, LOST_UNKNOWN};
use crate::blocks::Block;
use crate::event::{Event, Gap, GapCause, Items, Names};
use crate::fault::{Code, Fault};
use crate::landmarks::{Keeper, Point};
use crate::trace::FileFacts;

/// What is carried from record to record.
#[derive(Debug)]
pub(super) struct Cursor {
    pub(super) cpu: u32,
    pub(super) facts: FileFacts,
    /// The batch is full at this many items.
    pub(super) until: u64,
    /// Key of the last event.
    pub(super) last: Option<u64>,
    /// Events are missing from `last` to the next event.
    pub(super) pending: Option<(GapCause, Option<u64>)>,
    /// Some of the file was not read as it was written, so its totals cannot be compared.
    pub(super) damaged: bool,
    /// Events before the current block.
    pub(super) before_block: u64,
    pub(super) marks: Marks,
    pub(super) headers: HeaderChecks,
    /// Events that somebody else read.
    pub(super) read_by_others: u64,
    /// Keeps landmarks, where somebody wants them.
    pub(super) keeper: Option<Box<Keeper>>,
}

impl Cursor {
    pub(super) fn new(path: PathBuf, cpu: u32) -> Cursor {
        Cursor {
            cpu,
            facts: FileFacts::new(path, Some(cpu)),
            until: 0,
            last: None,
            pending: None,
            damaged: false,
            before_block: 0,
            marks: Marks::default(),
            headers: HeaderChecks::default(),
            read_by_others: 0,
            keeper: None,
        }
    }

    /// Items so far.
    #[inline]
    pub(super) fn items(&self) -> u64 {
        self.facts.events + self.facts.gaps
    }

    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.items() >= self.until
    }

    pub(super) fn fault(&mut self, code: Code, block: &Block, message: String) {
        let number = block.header.sequence.get();
        let message = format!("block {number} at byte {}: {message}", block.offset);
        self.facts.add(Fault { code, offset: block.offset, block: Some(number), message });
    }

    pub(super) fn damage(&mut self) {
        self.damaged = true;
        self.pending.get_or_insert((GapCause::Damage, None));
    }

    pub(super) fn gap_record(&mut self, gap: &GapRecord, block: &Block) {
        let lost = Some(gap.lost.get()).filter(|&n| n != LOST_UNKNOWN);
        match lost {
            Some(n) => self.marks.recorder = self.marks.recorder.saturating_add(n),
            None => self.marks.unknown += 1,
        }
        let number = lost.map_or("some".into(), |n| n.to_string());
        let (code, cause, message) = match gap.reason.get() {
            GAP_CLEARED => {
                (Code::Cleared, GapCause::Recorder, "somebody cleared or changed the buffer here".to_owned())
            }
            GAP_FULL => (
                Code::Overrun,
                GapCause::Overrun,
                format!("{number} events of all CPUs were dropped about here: the channel was full"),
            ),
            _ => (
                Code::RecorderLoss,
                GapCause::Recorder,
                format!("{number} events were read here and could not be written"),
            ),
        };
        self.fault(code, block, message);
        self.pending = Some((cause, lost));
    }

    /// A gap from the last event to the next one, whose key is `to` (`None`: the end of the trace).
    #[cold]
    pub(super) fn gap(&mut self, items: &mut impl Items, cause: Option<GapCause>, to: Option<u64>) {
        let (cause, lost) = self.pending.take().or(cause.map(|c| (c, None))).unwrap_or((GapCause::Damage, None));
        self.push_gap(items, Gap { from: self.last, to, cpu: self.cpu, lost, cause });
    }

    /// Where nothing is missing before a block, reading may begin with it.
    pub(super) fn keep_point(&mut self, block: &Block) {
        if self.pending.is_some() || self.damaged {
            return;
        }
        let (sequence, facts) = (block.header.sequence.get(), &self.facts);
        let point = Point { offset: block.offset, sequence, events: facts.events, gaps: facts.gaps, last: self.last };
        if let Some(keeper) = &mut self.keeper {
            keeper.point(point);
        }
    }

    pub(super) fn push_gap(&mut self, items: &mut impl Items, gap: Gap) {
        if let Some(keeper) = &mut self.keeper {
            keeper.gap(gap);
        }
        self.facts.gaps += 1;
        if gap.from.is_none() && gap.to.is_some() {
            self.facts.lost_before = gap.lost;
        }
        items.gap(gap);
    }

    /// The order key of an event stamped `time`; never before its predecessor's.
    #[inline]
    pub(super) fn key(&mut self, time: u64, offset: u64) -> u64 {
        match self.last {
            Some(last) if time < last => self.back_in_time(time, last, offset),
            _ => time,
        }
    }

    #[cold]
    pub(super) fn back_in_time(&mut self, time: u64, last: u64, offset: u64) -> u64 {
        let message = format!("time stamp {time} follows {last}");
        self.facts.add(Fault { code: Code::BackInTime, offset, block: None, message });
        last
    }

    /// Whether nothing is to be told before the next event.
    #[inline(always)]
    pub(super) fn is_plain(&self) -> bool {
        self.pending.is_none() && self.last.is_some()
    }

    /// So many events were told, the last of them at `last`.
    pub(super) fn settle(&mut self, events: u64, last: u64) {
        if events > 0 {
            self.facts.events += events;
            self.last = Some(last);
        }
    }

    /// What is to be told before the event at `at`; whether that is a gap.
    #[cold]
    pub(super) fn announce(&mut self, at: u64, items: &mut impl Items) -> bool {
        let is_gap = self.pending.is_some();
        if is_gap {
            self.gap(items, None, Some(at));
        }
        if self.last.is_none() {
            self.facts.first = Some(at);
        }
        is_gap
    }

    #[inline(always)]
    pub(super) fn push(&mut self, items: &mut impl Items, event: Event, names: &Names) {
        if !self.is_plain() {
            self.announce(event.at, items);
        }
        self.last = Some(event.at);
        self.facts.events += 1;
        items.event(event, names);
    }
}
