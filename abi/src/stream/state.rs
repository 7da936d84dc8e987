//! State that is carried from record to record of a stream, for all payload formats.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::file_loss::{LossLog, ToldLoss};
use super::marks::Marks;
use super::waiting::Waiting;
use crate::clock::Clock;
use crate::disk::block::Interval;
use crate::disk::blocks::{Block, Hole};
use crate::disk::seek_index::{SeekIndexBuilder, SeekPoint};
use crate::event::{Event, EventSink, Gap, GapCause, Names};
use crate::fault::{Code, Fault};
use crate::stream::report::FileReport;

/// State that is carried from record to record.
#[derive(Debug)]
pub(super) struct StreamState {
    pub(super) cpu: u32,
    pub(super) report: FileReport,
    /// The batch is full at this many items.
    pub(super) until: u64,
    /// Key of the last event.
    pub(super) last: Option<u64>,
    /// Events are missing from `last` to the next event.
    pub(super) pending: Option<(GapCause, Option<u64>)>,
    /// Bytes of the file are damaged or missing, so its totals cannot be compared.
    pub(super) damaged: bool,
    /// Events that the writer of a stream left out; `u64::MAX`: some, and their number is not known.
    pub(super) left_out: u64,
    /// Events before the current block.
    pub(super) before_block: u64,
    /// Time stamp of the first record of the current block of sub-buffers.
    pub(super) first_in_block: Option<u64>,
    pub(super) marks: Marks,
    pub(super) headers: HeaderChecks,
    /// Events that other readers took.
    pub(super) read_by_others: u64,
    /// Events of a gap from the first event to the end, which is handed over with that event.
    pub(super) whole: Option<u64>,
    /// Events of the gaps that were handed over because of the counters, before the first event or with it.
    pub(super) foretold: u64,
    /// The part of `foretold` in gaps with ends of their own, in events.
    pub(super) foretold_timed: u64,
    /// The part of `foretold` that the kernel refused or other readers took, in events.
    pub(super) foretold_growth: u64,
    /// Blocks that have an interval; `None` where reading did not begin with the first block.
    pub(super) timed: Option<u64>,
    /// Offset of the last block, in bytes, whose interval was looked at before the first event; `None`: none was. A later one has
    /// come since, because the file grows.
    pub(super) walked_to: Option<u64>,
    /// Changes by other programs that have a finding: begin and end of each, on the trace's clock.
    pub(super) hands: BTreeMap<u64, u64>,
    /// Time of the last watermark: later blocks have no earlier events.
    pub(super) watermark: Option<u64>,
    /// Thousandths of the kernel's buffer that were full before the last watermark.
    pub(super) filled: Option<u32>,
    /// The file grows: loss that a block tells of is a gap at once, since its end is far.
    pub(super) follows: bool,
    /// Such gaps that were not handed over yet.
    pub(super) at_once: Vec<Gap>,
    /// Begin of a change by another program that has not ended, on the trace's clock.
    pub(super) open_hand: Option<Option<u64>>,
    /// The stream's order keys.
    pub(super) keys: Clock,
    /// Events that wait for their stack, and those behind them: counted in the report, and not handed on yet.
    pub(super) waiting: Waiting,
    /// The recording may have stacks.
    pub(super) has_stacks: bool,
    /// Builder of the seek index, where the caller wants one.
    pub(super) seek_index: Option<Box<SeekIndexBuilder>>,
    /// `pending` comes of a sub-buffer that is there: whoever reads its copy finds the same.
    pub(super) is_in_sub_buffer: bool,
    /// Notes of loss that no sub-buffer tells of, where the caller wants them.
    pub(super) log: Option<Box<LossLog>>,
    /// Loss that is told apart from the sub-buffers, in place of counters.
    pub(super) told: Option<Box<ToldLoss>>,
}

/// State of the header checks, carried from block to block.
#[derive(Debug, Default)]
pub(super) struct HeaderChecks {
    /// Findings when the current block began.
    pub(super) findings_before: u64,
    /// The recorder could not write all that it counted.
    pub(super) is_unwritten: bool,
}

impl StreamState {
    pub(super) fn new(path: PathBuf, cpu: u32) -> StreamState {
        StreamState {
            cpu,
            report: FileReport::new(path, Some(cpu)),
            until: 0,
            last: None,
            pending: None,
            damaged: false,
            left_out: 0,
            before_block: 0,
            first_in_block: None,
            marks: Marks::default(),
            headers: HeaderChecks::default(),
            read_by_others: 0,
            whole: None,
            foretold: 0,
            foretold_timed: 0,
            foretold_growth: 0,
            timed: Some(0),
            walked_to: None,
            hands: BTreeMap::new(),
            watermark: None,
            filled: None,
            follows: false,
            at_once: Vec::new(),
            open_hand: None,
            keys: Clock::default(),
            waiting: Waiting::default(),
            has_stacks: true,
            seek_index: None,
            is_in_sub_buffer: false,
            log: None,
            told: None,
        }
    }

    /// Number of items handed on so far.
    #[inline]
    pub(super) fn items(&self) -> u64 {
        self.report.events.saturating_add(self.report.gaps).saturating_sub(self.waiting.len())
    }

    /// Order key up to which all events were handed on, but for some with the same key.
    pub(super) fn handed_to(&self) -> Option<u64> {
        self.waiting.first_key().or(self.last)
    }

    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.items() >= self.until
    }

    pub(super) fn fault(&mut self, code: Code, block: &Block, message: String) {
        let number = block.header.sequence.get();
        let message = format!("block {number} at byte {}: {message}", block.offset);
        self.report.add(Fault { code, offset: block.offset, block: Some(number), message });
    }

    /// Blocks of a stream were left out because its reader was too slow: totals cannot be compared any more.
    pub(super) fn leave_out(&mut self, hole: Hole) {
        self.damaged = true;
        self.pending.get_or_insert((GapCause::Recorder, hole.events));
        self.left_out = hole.events.map_or(u64::MAX, |events| self.left_out.saturating_add(events));
        let number = hole.events.map_or("some".to_owned(), |events| events.to_string());
        let message = format!("{number} events were left out of the stream here: its reader was too slow");
        self.report.add(Fault { code: Code::RecorderLoss, offset: 0, block: None, message });
    }

    pub(super) fn damage(&mut self) {
        self.damaged = true;
        self.pending.get_or_insert((GapCause::Damage, None));
    }

    /// An entry of a sub-buffer makes no sense.
    pub(super) fn damage_in_sub_buffer(&mut self) {
        self.is_in_sub_buffer |= self.pending.is_none();
        self.damage();
    }

    /// Counts a block with an interval.
    pub(super) fn count_timed(&mut self, interval: Interval) {
        if let Some(timed) = &mut self.timed {
            *timed = timed.saturating_add(interval.ends().is_some().into());
        }
    }

    /// Hands over the gap from the first event, at `from`, to the end, where there is one.
    pub(super) fn tell_whole(&mut self, from: Option<u64>, items: &mut impl EventSink) {
        if let Some(lost) = self.whole.take() {
            self.push_gap(items, Gap { from, to: None, cpu: self.cpu, lost: Some(lost), cause: GapCause::Counters });
        }
    }

    /// A gap from the last event to the next one, whose key is `to` (`None`: the end of the trace).
    #[cold]
    pub(super) fn gap(&mut self, items: &mut impl EventSink, cause: Option<GapCause>, to: Option<u64>) {
        let (cause, lost) = self.pending.take().or(cause.map(|c| (c, None))).unwrap_or((GapCause::Damage, None));
        let gap = Gap { from: self.last, to, cpu: self.cpu, lost, cause };
        if std::mem::take(&mut self.is_in_sub_buffer) { self.hand_over(items, gap) } else { self.push_gap(items, gap) }
    }

    /// Adds a block to the seek index, unless events are missing before it: reading may begin there.
    pub(super) fn keep_point(&mut self, block: &Block) {
        if self.pending.is_some() || self.damaged {
            return;
        }
        let (sequence, report) = (block.header.sequence.get(), &self.report);
        let point =
            SeekPoint { offset: block.offset, sequence, events: report.events, gaps: report.gaps, last: self.last };
        if let Some(builder) = &mut self.seek_index {
            builder.point(point);
        }
    }

    pub(super) fn push_gap(&mut self, items: &mut impl EventSink, gap: Gap) {
        if let Some(log) = &mut self.log {
            log.gap(gap);
        }
        self.hand_over(items, gap);
    }

    /// Hands over a gap that a sub-buffer tells of.
    pub(super) fn hand_over(&mut self, items: &mut impl EventSink, gap: Gap) {
        if let Some(builder) = &mut self.seek_index {
            builder.gap(gap);
        }
        self.report.gaps = self.report.gaps.saturating_add(1);
        if gap.from.is_none() && gap.to.is_some() {
            // An interval between two looks at the counters may end after the first event.
            let has_place = !matches!(gap.cause, GapCause::Counters | GapCause::Foreign);
            self.report.lost_before = gap.lost.filter(|_| has_place);
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
        self.report.add(Fault { code: Code::BackInTime, offset, block: None, message });
        last
    }

    /// Fast path: no pending gap, and not the first event.
    #[inline(always)]
    pub(super) fn is_plain(&self) -> bool {
        self.pending.is_none() && self.last.is_some()
    }

    /// Counts `events` events that were handed over, the last of them at `last`.
    pub(super) fn settle(&mut self, events: u64, last: u64) {
        if events > 0 {
            self.report.events = self.report.events.saturating_add(events);
            self.last = Some(last);
        }
    }

    /// Hands over the gaps before the event at `at`; true where one was pending.
    #[cold]
    pub(super) fn announce(&mut self, at: u64, names: &Names, items: &mut impl EventSink) -> bool {
        self.waiting.flush(names, items);
        let is_gap = self.pending.is_some();
        if is_gap {
            self.gap(items, None, Some(at));
        }
        if self.last.is_none() {
            self.report.first = Some(at);
            self.tell_whole(Some(at), items);
        }
        is_gap
    }

    #[inline(always)]
    #[expect(clippy::arithmetic_side_effects, reason = "a count of events, each of which was read")]
    pub(super) fn push(&mut self, items: &mut impl EventSink, event: &Event, names: &Names) {
        if !self.is_plain() {
            self.announce(event.at, names, items);
        }
        self.last = Some(event.at);
        self.report.events += 1;
        event.hand_to(items, names);
    }
}
