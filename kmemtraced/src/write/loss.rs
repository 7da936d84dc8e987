//! Loss accounting of a CPU's file: which events are missing, how many, and between which times.
//!
//! Loss has four sources: marks in the data, the kernel's counters, changes by other programs, and the recorder's own failed
//! writes. The account turns them into records for the file and does no I/O itself.

use std::collections::{BTreeSet, VecDeque};
use std::io;

use kmemtrace_abi::disk::block::{
    CounterSample, Counters, GAP_CLEARED, GAP_FOREIGN, GAP_FULL, GAP_NOT_WRITTEN, GAP_UNCOUNTED, GapRecord, Interval,
    LOST_UNKNOWN, MARKS_COUNTED, MARKS_VAGUE, kind,
};
use kmemtrace_abi::kernel::stats::Stats;
use zerocopy::IntoBytes;

use crate::control::foreign::ForeignChange;
use crate::source::Sample;
use crate::write::tally::{BlockTally, EventSpan};

/// Drain times that are kept, one a second: a change by another program is reported within a second.
const MAX_DRAIN_TIMES: usize = 8;

/// A record about loss, for the file.
#[derive(Debug)]
pub(crate) enum LossRecord {
    /// A gap, with the text of a change by another program or of an error.
    Gap(GapRecord, String),
    Counters(CounterSample),
}

impl LossRecord {
    fn gap(reason: u32, lost: u64, interval: Interval, text: String) -> LossRecord {
        let gap = GapRecord { lost: lost.into(), reason: reason.into(), interval, ..GapRecord::default() };
        LossRecord::Gap(gap, text)
    }

    /// Kind of the block that has it.
    pub(crate) fn kind(&self) -> u8 {
        match self {
            LossRecord::Gap(..) => kind::GAP,
            LossRecord::Counters(_) => kind::COUNTERS,
        }
    }

    /// Times between which the events are missing.
    pub(crate) fn interval(&self) -> Interval {
        match self {
            LossRecord::Gap(gap, _) => gap.interval,
            LossRecord::Counters(sample) => sample.grew,
        }
    }

    /// Payload of the block.
    pub(crate) fn payload(&self) -> Vec<u8> {
        match self {
            LossRecord::Gap(gap, text) => [gap.as_bytes(), text.as_bytes()].concat(),
            LossRecord::Counters(sample) => sample.as_bytes().to_vec(),
        }
    }
}

/// Loss of a CPU's file up to now.
#[derive(Debug, Default)]
pub(crate) struct LossAccount {
    /// True for a relay channel, whose counters have run since it was made.
    is_relay: bool,
    /// Events in the file.
    written: EventSpan,
    /// Events that could not be written.
    unwritten: u64,
    /// Lost events by the marks in the data.
    marked: u64,
    /// True if a mark has no count.
    is_vague: bool,
    /// The last counters; the first are those from before the recording.
    stats: Option<Stats>,
    /// Times before and after the last counters were read.
    stats_read: Option<(u64, u64)>,
    /// Times up to which all events had been taken, by the last samples: ascending, without repetitions.
    drained: VecDeque<u64>,
    /// True if the kernel counts the events that it hands out; older kernels do not.
    counts_reads: bool,
    /// Values of the counters when the buffer was last reset.
    base: Counters,
    /// The counters last put into the file, and the events that other programs had read by then.
    reported: (Counters, u64),
    /// Lost events by the last counters.
    lost: u64,
    /// Starts of the intervals in which another program emptied the buffer.
    emptied: BTreeSet<u64>,
    is_cleared: bool,
    /// Reason why the last counters could not be read.
    uncounted: Option<io::Error>,
    /// Why the kernel's buffer was not read to the end.
    cut: Option<String>,
}

/// Loss of a whole file.
#[derive(Debug)]
pub(crate) struct FinalLoss {
    /// Gaps that are known at the end only.
    pub(crate) gaps: Vec<LossRecord>,
    pub(crate) counters: Counters,
    /// Interval from the last counters to the end of the trace.
    pub(crate) grew: Interval,
    /// `MARKS_*`: whether every mark in the data has a count.
    pub(crate) marks: u32,
    /// Events that other programs read.
    pub(crate) read_by_others: u64,
    pub(crate) is_cleared: bool,
    /// Why the number of lost events is not known, for the user.
    pub(crate) uncounted: Option<String>,
}

impl LossAccount {
    pub(crate) fn new(is_relay: bool) -> LossAccount {
        LossAccount { is_relay, ..LossAccount::default() }
    }

    /// Events in the file.
    pub(crate) fn written(&self) -> EventSpan {
        self.written
    }

    /// Lost events by the marks in the data.
    pub(crate) fn marked(&self) -> u64 {
        self.marked
    }

    /// Lost events by the last counters.
    pub(crate) fn lost(&self) -> u64 {
        self.lost
    }

    /// Adds a block that came from the reader, written or not.
    pub(crate) fn add_block(&mut self, tally: &BlockTally, is_written: bool) {
        self.marked = self.marked.saturating_add(tally.lost);
        self.is_vague |= tally.is_vague;
        if is_written {
            self.written.append(tally.span);
        } else {
            self.unwritten += tally.span.events;
        }
    }

    /// Adds counters that could not be read; later counters make up for them.
    pub(crate) fn add_failure(&mut self, error: io::Error) {
        self.uncounted = Some(error);
    }

    /// Adds the reason why no more events of the buffer will come, in spite of what the counters say.
    pub(crate) fn add_cut(&mut self, why: String) {
        self.cut = Some(why);
    }

    /// Adds counters; returns a gap where the buffer was reset or a channel ran full, and the counters where they have grown.
    pub(crate) fn add_sample(&mut self, sample: Sample) -> Vec<LossRecord> {
        let mut records = Vec::new();
        let stats = sample.stats;
        let before = self.stats.unwrap_or_default();
        self.counts_reads |= stats.counts_reads;
        if self.is_reset(&stats, &before) {
            self.rebase(&stats, &before);
            let unread = self.since_last(sample.read, true);
            records.push(LossRecord::gap(GAP_CLEARED, LOST_UNKNOWN, unread, String::new()));
        } else if self.is_relay && self.stats.is_some() && stats.overrun > before.overrun {
            let overrun = stats.overrun - before.overrun;
            records.push(LossRecord::gap(GAP_FULL, overrun, Interval::default(), String::new()));
        }
        let mut now = stats.after(&self.base);
        now.recorder_lost = self.unwritten.into();
        let others = if self.counts_reads { now.read.get().saturating_sub(self.handed_out()) } else { 0 };
        self.lost = now.lost().saturating_add(others);
        // The first counters of a channel have events from before the recording.
        let is_ours = self.stats.is_some() || !self.is_relay;
        let is_news = is_ours && (now.kernel_lost(), others) != (self.reported.0.kernel_lost(), self.reported.1);
        let grew = self.since_last(sample.read, others > self.reported.1);
        (self.stats, self.stats_read, self.uncounted) = (Some(stats), sample.read, None);
        self.add_drain_time(sample.drained);
        if is_news {
            self.reported = (now, others);
            records.push(LossRecord::Counters(CounterSample { counters: now, grew }));
        }
        records
    }

    /// Adds a change by another program; returns its gap, after one for unread events where it emptied the buffer.
    pub(crate) fn add_change(&mut self, change: ForeignChange) -> Vec<LossRecord> {
        let mut records = Vec::new();
        let (from, is_known) = (change.interval.from.get(), change.interval.ends().is_some());
        if change.clears && is_known && self.emptied.insert(from) {
            let unread = Interval::new(self.drained_before(from), from.max(1));
            records.push(LossRecord::gap(GAP_CLEARED, LOST_UNKNOWN, unread, String::new()));
        }
        records.push(LossRecord::gap(GAP_FOREIGN, LOST_UNKNOWN, change.interval, change.text));
        records
    }

    /// Loss of the whole file, once no more blocks and counters come.
    pub(crate) fn finish(&mut self) -> FinalLoss {
        let mut gaps = Vec::new();
        if self.unwritten > 0 {
            gaps.push(LossRecord::gap(GAP_NOT_WRITTEN, self.unwritten, Interval::default(), String::new()));
        }
        let are_left = self.stats.is_some_and(|stats| stats.entries > 0);
        let grew = self.since_last(self.stats_read.map(|(from, _)| (from, Interval::TO_THE_END)), are_left);
        let unread = self.uncounted.take();
        if let Some(error) = &unread {
            gaps.push(LossRecord::gap(GAP_UNCOUNTED, LOST_UNKNOWN, grew, error.to_string()));
        }
        // From when on events are missing is not known, but all that were handed out are older.
        if let Some(text) = &self.cut {
            let interval = Interval::new(self.written.last, Interval::TO_THE_END);
            gaps.push(LossRecord::gap(GAP_UNCOUNTED, LOST_UNKNOWN, interval, text.clone()));
        }
        let uncounted =
            unread.map(|error| format!("its counters could not be read at the end: {error}")).or(self.cut.take());
        let mut counters = self.stats.unwrap_or_default().after(&self.base);
        counters.recorder_lost = self.unwritten.into();
        // The buffer goes with the recording, and so do the events left in it.
        counters.dropped = counters.dropped.get().saturating_add(counters.unread.get()).into();
        FinalLoss {
            gaps,
            counters,
            grew,
            marks: if self.is_vague { MARKS_VAGUE } else { MARKS_COUNTED },
            read_by_others: counters.read.get().saturating_sub(self.handed_out()),
            is_cleared: self.is_cleared,
            uncounted,
        }
    }

    /// Events that the reader took out of the kernel's buffer.
    fn handed_out(&self) -> u64 {
        self.written.events + self.unwritten
    }

    /// True if the kernel's counters began anew. All events taken so far were handed out before these counters were read: a
    /// kernel that counts fewer began anew, even if a counter has come farther since than at the last sample.
    fn is_reset(&self, stats: &Stats, before: &Stats) -> bool {
        let is_behind = self.counts_reads && self.base.read.get().saturating_add(stats.read) < self.handed_out();
        stats.is_before(before) || is_behind
    }

    /// Makes the counters before a reset the base of those after it.
    fn rebase(&mut self, stats: &Stats, before: &Stats) {
        self.base = before.after(&self.base);
        if self.counts_reads {
            let read = self.base.read.get().max(self.handed_out().saturating_sub(stats.read));
            self.base.read = read.into();
        }
        self.is_cleared = true;
    }

    /// Interval from the sample before to this one. It starts at the last drain time where unread events are gone.
    fn since_last(&self, read: Option<(u64, u64)>, unread_are_gone: bool) -> Interval {
        let from = self.stats_read.map_or(0, |(from, _)| from);
        let from = if unread_are_gone { from.min(self.drained.back().copied().unwrap_or(0)) } else { from };
        read.map_or_else(Interval::default, |(_, to)| Interval::new(from, to))
    }

    fn add_drain_time(&mut self, drained: Option<u64>) {
        if let Some(time) = drained.filter(|time| self.drained.back() != Some(time)) {
            self.drained.push_back(time);
            if self.drained.len() > MAX_DRAIN_TIMES {
                self.drained.pop_front();
            }
        }
    }

    /// The last drain time not after `time`; the start of the trace where it is not known.
    fn drained_before(&self, time: u64) -> u64 {
        self.drained.iter().rev().copied().find(|&drained| drained <= time).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use kmemtrace_abi::disk::block::End;
    use kmemtrace_abi::event::{Gap, GapCause, StreamItem};
    use kmemtrace_abi::fault::Verdict;
    use kmemtrace_abi::kernel::relay;
    use kmemtrace_abi::kernel::subbuffer::Missed;
    use kmemtrace_abi::target::Endian;
    use kmemtrace_tests::generate::{
        Options, Random, RelayOptions, Shape, pages::Encoder, pages::Page, pages::SubBufferWriter, workload,
    };

    use super::*;
    use crate::control::foreign::ForeignChanges;
    use crate::source::{Framing, RelayFraming};
    use crate::write::fixture::{
        counted, data, description, items_of, one_cpu, payloads, read_back, written_of, written_with,
    };
    use crate::write::reader::Message;

    #[test]
    fn a_counter_that_goes_back_is_a_gap() {
        let messages = [10, 20, 5].map(|read| counted(Stats { read, ..Stats::default() }));
        let (bytes, outcome) = written_of(description(&one_cpu()), messages.into());
        assert!(outcome.cleared);
        assert_eq!(outcome.read, 25);
        let (_, lost, verdict) = read_back(&bytes);
        assert_eq!((lost, verdict), (None, Verdict::Lossy));
    }

    #[test]
    fn events_that_stay_in_the_buffer_are_in_the_last_gap() {
        let finished = |unread| {
            let mut loss = LossAccount::new(false);
            let sample = |unread, at| Sample {
                stats: Stats { entries: unread, ..Stats::default() },
                read: Some((at, at + 1)),
                drained: Some(90),
            };
            loss.add_sample(sample(0, 100));
            loss.add_sample(sample(unread, 200));
            loss.finish()
        };
        let (all, some) = (finished(0), finished(5));
        assert_eq!((all.grew.from.get(), all.counters.lost()), (200, 0));
        assert_eq!((some.grew.from.get(), some.counters.lost()), (90, 5), "they came since the buffer was last empty");
    }

    #[test]
    fn counters_that_began_anew_are_a_gap_even_if_they_have_come_farther_since() {
        let workload = one_cpu();
        let pages = Encoder::new(&workload.shape, &workload.names).pages(&workload.cpus[0], &mut Random::new(1));
        let data = |page: &Page| data(&page.bytes[..page.trimmed]);
        let stats = |read| counted(Stats { read, ..Stats::default() });
        let counts: Vec<u64> = pages.iter().take(4).map(|page| page.events.into()).collect();
        let all: u64 = counts.iter().sum();
        for (clears, counter) in [(false, all), (true, all - counts[0] - counts[1])] {
            let mut messages = vec![stats(0), data(&pages[0]), stats(counts[0])];
            // Cleared after the second page; the next sample comes after the fourth.
            messages.extend(pages[1..4].iter().map(data));
            messages.extend([stats(counter), stats(counter)]);
            assert!(counter >= counts[0]);
            let (bytes, outcome) = written_of(description(&workload), messages);
            assert_eq!((outcome.cleared, outcome.read_by_others, outcome.read), (clears, 0, all));
            let (events, lost, verdict) = read_back(&bytes);
            assert_eq!(events, all);
            let wanted = if clears { (None, Verdict::Lossy) } else { (Some(0), Verdict::Complete) };
            assert_eq!((lost, verdict), wanted);
        }
    }

    #[test]
    fn a_full_channel_is_a_gap_where_its_counter_has_grown() {
        let mut options = Options::plain(Shape::plain(), 1, 100);
        options.loss = false;
        let mut workload = workload(1, &options);
        let relay = RelayOptions {
            layout: relay::Layout::R4,
            endian: Endian::NATIVE,
            first_sequence: 1,
            features: false,
            holes: false,
        };
        let records = kmemtrace_tests::generate::relay(&mut workload, &relay, 1).cpus[0].bytes();
        let framing = RelayFraming::default();
        framing.layout.set(relay::Layout::R4).unwrap();
        let mut description = description(&workload);
        let facts = Arc::get_mut(&mut description.facts).unwrap();
        facts.framing = Arc::new(Framing::Relay(framing));
        let half = relay::tally(relay::Layout::R4, Endian::NATIVE, &records[..records.len() / 2]).consumed;
        let full = |overrun| {
            Message::Counters(Ok(Sample { stats: Stats { overrun, ..Stats::default() }, ..Sample::default() }))
        };
        let messages = vec![full(5), data(&records[..half]), full(5), full(12), data(&records[half..]), full(12)];
        let (bytes, _) = written_of(description, messages);
        let (_, items) = items_of(&bytes);
        let gaps: Vec<&Gap> =
            items.iter().filter_map(|i| if let StreamItem::Gap(gap) = i { Some(gap) } else { None }).collect();
        let [gap] = gaps[..] else { panic!("{gaps:?}") };
        let before = items.iter().take_while(|item| matches!(item, StreamItem::Event(_))).count() as u64;
        assert_eq!(
            (gap.lost, gap.cause, gap.from, gap.to),
            (Some(7), GapCause::Overrun, Some(before), Some(before + 1))
        );
    }

    #[test]
    fn counters_that_grow_say_between_which_samples() {
        let second = 1_000_000_000;
        let at = |n: u64, stats: Stats| {
            let read = Some((n * second, n * second + 7));
            let stats = Stats { counts_reads: true, ..stats };
            Message::Counters(Ok(Sample { stats, read, drained: Some(n * second) }))
        };
        let quiet = Stats::default();
        let refused = Stats { commit_overrun: 3, dropped: 2, ..quiet };
        let others = Stats { read: 40, ..refused };
        let messages = vec![at(1, quiet), at(2, quiet), at(3, refused), at(4, refused), at(5, others), at(6, others)];
        let (bytes, outcome) = written_of(description(&one_cpu()), messages);
        let samples: Vec<CounterSample> =
            payloads(&bytes, kind::COUNTERS).into_iter().filter_map(CounterSample::parse).collect();
        let grew: Vec<_> = samples.iter().map(|sample| sample.grew).collect();
        assert_eq!(grew, [Interval::new(2 * second, 3 * second + 7), Interval::new(4 * second, 5 * second + 7)]);
        assert_eq!(samples.iter().map(|s| s.counters.kernel_lost()).collect::<Vec<_>>(), [5, 5]);
        assert_eq!((outcome.lost, outcome.read_by_others), (45, 40));
        let end = payloads(&bytes, kind::END).into_iter().find_map(End::parse).unwrap();
        assert_eq!((end.timed.get(), end.grew), (2, Interval::new(6 * second, Interval::TO_THE_END)));
    }

    #[test]
    fn the_end_tells_whether_a_mark_lacks_its_count() {
        let shape = one_cpu().shape;
        let page = |missed: Option<Missed>| {
            let (bytes, trimmed) = SubBufferWriter::new(&shape, 1000).finish(missed);
            data(&bytes[..trimmed])
        };
        let counted = Some(Missed::Counted(3));
        for (marks, wanted) in
            [(vec![None, counted], MARKS_COUNTED), (vec![counted, Some(Missed::Uncounted), counted], MARKS_VAGUE)]
        {
            let (bytes, _) = written_of(description(&one_cpu()), marks.into_iter().map(page).collect());
            let end = payloads(&bytes, kind::END).into_iter().find_map(End::parse).unwrap();
            assert_eq!(end.marks.get(), wanted);
        }
    }

    #[test]
    fn events_that_stay_in_the_buffer_are_lost() {
        let messages = vec![
            counted(Stats::default()),
            Message::Unreadable(io::Error::other("no such page")),
            counted(Stats { entries: 9, ..Stats::default() }),
        ];
        let (bytes, outcome) = written_of(description(&one_cpu()), messages);
        assert_eq!((outcome.lost, outcome.counted), (9, true));
        let said = outcome.unreadable.unwrap_or_default();
        assert!(said.ends_with(": no such page"), "{said}");
        assert_eq!(read_back(&bytes), (0, Some(9), Verdict::Lossy));
    }

    #[test]
    fn a_buffer_that_was_not_read_to_the_end_leaves_the_loss_unknown() {
        let messages = vec![
            counted(Stats::default()),
            counted(Stats { entries: 9, ..Stats::default() }),
            Message::Cut("9 events stay".to_owned()),
        ];
        let (bytes, outcome) = written_of(description(&one_cpu()), messages);
        assert_eq!((outcome.lost, outcome.counted), (9, false));
        assert_eq!(outcome.unreadable.as_deref(), Some("9 events stay"));
        assert_eq!(read_back(&bytes), (0, None, Verdict::Lossy));
        let gaps = payloads(&bytes, kind::GAP);
        let (gap, text) = GapRecord::parse(gaps[0]).unwrap();
        assert_eq!((gap.interval.ends(), text), (Some((None, None)), &b"9 events stay"[..]));
    }

    #[test]
    fn counters_that_cannot_be_read_at_the_end_leave_the_loss_unknown() {
        let failed = || Message::Counters(Err(io::Error::other("no counters")));
        let (bytes, outcome) = written_of(description(&one_cpu()), vec![counted(Stats::default()), failed()]);
        assert!(!outcome.counted && outcome.unreadable.is_some());
        assert_eq!(read_back(&bytes), (0, None, Verdict::Lossy));
        // Later ones have what the missing ones would have had.
        let (bytes, outcome) = written_of(description(&one_cpu()), vec![failed(), counted(Stats::default())]);
        assert!(outcome.counted && outcome.unreadable.is_none());
        assert_eq!(read_back(&bytes), (0, Some(0), Verdict::Complete));
    }

    #[test]
    fn a_foreign_hand_is_in_the_file_and_its_end_too() {
        let changes = ForeignChanges::default();
        let change = |from, to, clears| {
            let (interval, text) = (Interval::new(from, to), "tracing_on is 0".to_owned());
            changes.push(ForeignChange { interval, clears, text });
        };
        change(5, Interval::TO_THE_END, false);
        change(5, 9, false);
        let (bytes, _) = written_with(description(&one_cpu()), vec![counted(Stats::default())], changes);
        let gaps: Vec<_> = payloads(&bytes, kind::GAP).into_iter().filter_map(GapRecord::parse).collect();
        let ends: Vec<_> = gaps.iter().map(|(gap, text)| (gap.reason.get(), gap.interval.ends(), *text)).collect();
        let text = &b"tracing_on is 0"[..];
        assert_eq!(ends, [(GAP_FOREIGN, Some((Some(5), None)), text), (GAP_FOREIGN, Some((Some(5), Some(9))), text)]);
        assert_eq!(read_back(&bytes).1, None);
    }

    #[test]
    fn a_buffer_that_was_emptied_has_lost_what_was_not_read() {
        let second = 1_000_000_000;
        let at = |n: u64, drained: u64, read: u64| {
            let stats = Stats { counts_reads: true, read, ..Stats::default() };
            let times = (Some((n * second, n * second + 7)), Some(drained * second));
            Message::Counters(Ok(Sample { stats, read: times.0, drained: times.1 }))
        };
        // Drained at second 1, cleared between samples 3 and 4, and read by others between 5 and 6.
        let messages = vec![at(1, 1, 9), at(2, 1, 9), at(3, 1, 9), at(4, 4, 0), at(5, 4, 0), at(6, 6, 5)];
        let changes = ForeignChanges::default();
        let interval = Interval::new(3 * second + 5, 3 * second + 9);
        changes.push(ForeignChange { interval, clears: true, text: "trace written to".to_owned() });
        let (bytes, _) = written_with(description(&one_cpu()), messages, changes);
        let gaps: Vec<_> = payloads(&bytes, kind::GAP).into_iter().filter_map(GapRecord::parse).collect();
        let gaps: Vec<_> = gaps.iter().map(|(gap, _)| (gap.reason.get(), gap.interval)).collect();
        assert!(gaps.contains(&(GAP_CLEARED, Interval::new(second, 3 * second + 5))), "{gaps:?}");
        assert!(gaps.contains(&(GAP_FOREIGN, interval)), "{gaps:?}");
        assert!(gaps.contains(&(GAP_CLEARED, Interval::new(second, 4 * second + 7))), "{gaps:?}");
        let samples = payloads(&bytes, kind::COUNTERS).into_iter().filter_map(CounterSample::parse);
        let grew: Vec<_> = samples.map(|sample| sample.grew).collect();
        assert_eq!(grew.last(), Some(&Interval::new(4 * second, 6 * second + 7)), "{grew:?}");
    }
}
