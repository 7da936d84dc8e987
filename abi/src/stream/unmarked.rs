//! Loss without a mark in the sub-buffers: the kernel's counters beyond the marks, and changes by other programs.
//!
//! The search comes before the first event is handed out: the merge of all CPUs can take a gap only while it has not
//! passed the gap's begin.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;

use super::payload::SubBufferFormat;
use crate::disk::block::{
    CounterSample, Counters, End, GAP_FOREIGN, GAP_NOT_WRITTEN, GapRecord, Interval, LOST_UNKNOWN, MARKS_COUNTED,
    MARKS_UNKNOWN, MARKS_VAGUE, kind,
};
use crate::disk::walk::{Known, Met, Walk, read_at};
use crate::event::{Gap, GapCause};
use crate::fault::{Code, Fault};
use crate::kernel::subbuffer::{self, Missed, SubBuffer, trimmed_len};
use crate::target::{Big, Endian, Little, TargetOrder};

/// Greatest number of gaps kept for one file. All others become one gap over everything.
pub(super) const MAX_GAPS: usize = 1 << 16;
/// Greatest distance from the time of a sample to the end of its interval, in ns: the kernel prints times in microseconds.
const ROUNDING: u64 = 1000;
/// Greatest number of bytes of a block's text that a message repeats.
const MAX_TEXT: usize = 500;
/// Bytes of a captured tree's file to look at together, at least.
const AT_ONCE: usize = 128 << 10;

/// A stream's loss as it is known before its first event.
#[derive(Debug, Default)]
pub(super) struct Unmarked {
    /// Gaps with ends of their own, by their begins.
    pub(super) gaps: Vec<Gap>,
    /// Events lost on this CPU at no known time: one gap, from its first event to the end of the trace. 0: none.
    pub(super) whole: u64,
    /// A finding for each change by another program.
    pub(super) hands: Vec<Fault>,
    /// The part of `counted` that the kernel refused or other readers took, in events. The rest is overrun, and events that could
    /// not be written.
    pub(super) growth: u64,
    /// Offset of the last block that was looked at for its interval, in bytes; the file may have grown since. `None`: the walk was
    /// not needed, since the end block says that no block has an interval.
    pub(super) walked_to: Option<u64>,
}

impl Unmarked {
    /// Events that the counters count and that are in one of these gaps.
    pub(super) fn counted(&self) -> u64 {
        let gaps = self.gaps.iter().filter(|gap| gap.cause == GapCause::Counters).filter_map(|gap| gap.lost);
        gaps.fold(self.whole, u64::saturating_add)
    }
}

/// True where the interval of a gap block is its gap; else the gap is where the block stands.
pub(super) fn is_timed(gap: &GapRecord) -> bool {
    gap.reason.get() != GAP_NOT_WRITTEN && gap.interval.ends().is_some()
}

/// Events of `counters` that other readers took, by a block before which the file has `events_before` events.
pub(super) fn read_by_others(counters: &Counters, events_before: u64) -> u64 {
    counters.read.get().saturating_sub(events_before).saturating_sub(counters.recorder_lost.get())
}

/// Events that the kernel refused, which leaves no mark.
pub(super) fn refused(counters: &Counters) -> u64 {
    counters.dropped.get().saturating_add(counters.commit_overrun.get())
}

/// The loss of a file of ours without a mark.
///
/// Most files say in their last block that there is none. Else all headers are walked over. Payloads of data are read only where
/// overrun is beyond the marks that the headers have counted, and no end block says if a mark lacks its count: up to the
/// first such mark.
pub(super) fn of_blocks(file: &File, known: Known, format: Option<&SubBufferFormat>) -> io::Result<Unmarked> {
    if let Some(unmarked) = by_the_end(file, known)? {
        return Ok(unmarked);
    }
    let mut found = WalkState::new(known.2);
    let mut walk = Walk::new(file, known)?;
    while let Some(met) = walk.next()? {
        found.meet(&met);
        if matches!(met.header.kind, kind::COUNTERS | kind::GAP | kind::END) {
            found.has_hole |= !walk.payload(&met)?.is_some_and(|payload| found.take(&met, payload));
        }
    }
    let overrun = found.counters.overrun.get();
    let marked = match found.marks {
        _ if overrun <= found.marked => None,
        MARKS_VAGUE => None,
        // Headers count marks in blocks that could not be written, and may count gap blocks: their sum is vague then.
        MARKS_COUNTED if found.unwritten == 0 => Some(found.marked),
        _ => marks_in(file, known, format)?.map(|marks| marks.max(found.marked)),
    };
    let beyond = marked.map_or(0, |marked| overrun.saturating_sub(marked));
    found.at_no_time = found.at_no_time.saturating_add(beyond);
    let unwritten = found.counters.recorder_lost.get().saturating_sub(found.unwritten);
    found.at_no_time = found.at_no_time.saturating_add(unwritten);
    Ok(found.finish())
}

/// Loss at no known time, by the end block alone; `None` where the blocks before it must be looked at.
fn by_the_end(file: &File, (header_len, recording, cpu): Known) -> io::Result<Option<Unmarked>> {
    let len = file.metadata()?.len();
    let mut tail = [0; End::TAIL_BYTES];
    let start = len.saturating_sub(tail.len() as u64);
    let there = read_at(file, &mut tail, start)?;
    let Some((header, end)) = tail.get(..there).and_then(End::with_header) else { return Ok(None) };
    let is_own =
        (usize::from(header.header_len.get()), header.recording, header.cpu.get()) == (header_len, recording, cpu);
    let counters = &end.counters;
    let beyond = match end.marks.get() {
        MARKS_VAGUE => Some(0),
        MARKS_COUNTED => Some(counters.overrun.get().saturating_sub(header.lost_before.get())),
        _ => Some(0).filter(|_| counters.overrun.get() <= header.lost_before.get()),
    };
    let Some(beyond) = beyond.filter(|_| is_own && end.timed.get() == 0 && counters.recorder_lost.get() == 0) else {
        return Ok(None);
    };
    let growth = refused(counters).saturating_add(read_by_others(counters, header.events_before.get()));
    let unmarked = Unmarked { whole: growth.saturating_add(beyond), growth, ..Unmarked::default() };
    Ok((growth == 0 || end.grew.ends().is_none()).then_some(unmarked))
}

/// Counted events of all marks in a file's data; `None` where a mark has no count.
fn marks_in(file: &File, known: Known, format: Option<&SubBufferFormat>) -> io::Result<Option<u64>> {
    let Some(format) = format else { return Ok(Some(0)) };
    let mut walk = Walk::new(file, known)?;
    let mut counted = 0u64;
    while let Some(met) = walk.next()? {
        if met.header.kind != kind::DATA {
            continue;
        }
        let payload = walk.payload(&met)?.unwrap_or_default();
        let marks = match format.shape.target.endian {
            Endian::Little => marks_of::<Little>(payload, format),
            Endian::Big => marks_of::<Big>(payload, format),
        };
        match marks {
            Some(marks) => counted = counted.saturating_add(marks),
            None => return Ok(None),
        }
    }
    Ok(Some(counted))
}

/// Counted events of all marks in one block; `None` where a mark has no count.
fn marks_of<O: TargetOrder>(payload: &[u8], format: &SubBufferFormat) -> Option<u64> {
    let (mut rest, mut counted) = (payload, 0u64);
    while !rest.is_empty() {
        // A sub-buffer that makes no sense is a finding of the stream.
        let Ok(sub_buffer) = SubBuffer::parse::<O>(&format.shape, rest) else { break };
        match sub_buffer.missed {
            Some(Missed::Counted(n)) => counted = counted.saturating_add(n),
            Some(Missed::Uncounted) => return None,
            None => {}
        }
        rest = rest.get(sub_buffer.stored.max(1)..).unwrap_or_default();
    }
    Some(counted)
}

/// A change by another program.
#[derive(Debug)]
struct Hand {
    gap: Gap,
    fault: Fault,
}

/// Findings of a walk so far.
#[derive(Debug)]
struct WalkState {
    cpu: u32,
    /// The last counters.
    counters: Counters,
    /// The end block's `marks`.
    marks: u32,
    /// Greatest numbers of events refused, and of those read by others, so far.
    grown: (u64, u64),
    /// A time, on the trace's clock, before which the last readable sample with a time was not taken; `None`: there is none.
    sampled: Option<u64>,
    /// A block since the last readable sample is missing or damaged. It may have been a sample, so growth may be older than the
    /// next sample says.
    has_hole: bool,
    next_sequence: u64,
    /// Offset of the last block, in bytes.
    walked_to: u64,
    /// Events lost in no known interval.
    at_no_time: u64,
    /// Counted events of marks, by the headers: these count gap blocks, too, or do not, so each header is asked that has none
    /// or fewer of them before it.
    marked: u64,
    /// Sum of gap blocks.
    unwritten: u64,
    gaps: Vec<Gap>,
    /// Changes by other programs, by the begins of their gaps.
    hands: BTreeMap<u64, Hand>,
    /// Events lost in gaps that are too many; `None`: there are not.
    too_many: Option<u64>,
}

impl WalkState {
    fn new(cpu: u32) -> WalkState {
        WalkState {
            cpu,
            counters: Counters::default(),
            marks: MARKS_UNKNOWN,
            grown: (0, 0),
            sampled: None,
            has_hole: false,
            next_sequence: 0,
            walked_to: 0,
            at_no_time: 0,
            marked: 0,
            unwritten: 0,
            gaps: Vec::new(),
            hands: BTreeMap::new(),
            too_many: None,
        }
    }

    /// Takes on a header.
    fn meet(&mut self, met: &Met) {
        self.marked = self.marked.max(met.header.lost_before.get().saturating_sub(self.unwritten));
        let sequence = met.header.sequence.get();
        self.has_hole |= sequence != self.next_sequence;
        self.next_sequence = sequence.saturating_add(1);
        self.walked_to = met.offset;
    }

    /// Takes on a payload; false where it is cut short.
    fn take(&mut self, met: &Met, payload: &[u8]) -> bool {
        match met.header.kind {
            kind::COUNTERS => {
                let Some(sample) = CounterSample::parse(payload) else { return false };
                self.sample(met, &sample.counters, sample.grew, met.header.minor.get() > 0);
            }
            kind::END => {
                let Some(end) = End::parse(payload) else { return false };
                self.marks = end.marks.get();
                self.sample(met, &end.counters, end.grew, true);
            }
            _ => {
                let Some((record, text)) = GapRecord::parse(payload) else { return false };
                self.record(met, &record, text);
            }
        }
        true
    }

    /// Takes on counters; in minor version 0 only the last ones count what others read.
    fn sample(&mut self, met: &Met, counters: &Counters, grew: Interval, tells_of_others: bool) {
        self.counters = *counters;
        let others = if tells_of_others { read_by_others(counters, met.header.events_before.get()) } else { 0 };
        let now = (refused(counters), others);
        let lost = now.0.saturating_sub(self.grown.0).saturating_add(now.1.saturating_sub(self.grown.1));
        self.grown = (now.0.max(self.grown.0), now.1.max(self.grown.1));
        let has_hole = std::mem::take(&mut self.has_hole);
        match grew.ends() {
            _ if lost == 0 => {}
            None => self.at_no_time = self.at_no_time.saturating_add(lost),
            Some((from, to)) => {
                let from = if has_hole { from.min(self.sampled) } else { from };
                self.push(Gap { from, to, cpu: self.cpu, lost: Some(lost), cause: GapCause::Counters });
            }
        }
        if let Some((_, Some(to))) = grew.ends() {
            self.sampled = Some(to.saturating_sub(ROUNDING));
        }
    }

    fn record(&mut self, met: &Met, record: &GapRecord, text: &[u8]) {
        let reason = record.reason.get();
        let lost = Some(record.lost.get()).filter(|&n| n != LOST_UNKNOWN && reason != GAP_FOREIGN);
        self.unwritten = self.unwritten.saturating_add(lost.unwrap_or(0));
        let Some((from, to)) = record.interval.ends().filter(|_| is_timed(record)) else { return };
        let cause = if reason == GAP_FOREIGN { GapCause::Foreign } else { GapCause::Recorder };
        let gap = Gap { from, to, cpu: self.cpu, lost, cause };
        if reason != GAP_FOREIGN {
            return self.push(gap);
        }
        let begin = record.interval.from.get();
        if self.hands.len() >= MAX_GAPS && !self.hands.contains_key(&begin) {
            return self.too_many = Some(self.too_many.unwrap_or(0));
        }
        let (sequence, offset) = (met.header.sequence.get(), met.offset);
        let message = format!("block {sequence} at byte {offset}: {}", changed(text));
        let fault = Fault { code: Code::ForeignHand, offset, block: Some(sequence), message };
        self.hands.insert(begin, Hand { gap, fault });
    }

    fn push(&mut self, gap: Gap) {
        if self.gaps.len() < MAX_GAPS {
            self.gaps.push(gap);
        } else {
            self.too_many = Some(self.too_many.unwrap_or(0).saturating_add(gap.lost.unwrap_or(0)));
        }
    }

    fn finish(mut self) -> Unmarked {
        if let Some(lost) = self.too_many {
            let everything = Gap { from: None, to: None, cpu: self.cpu, lost: Some(lost), cause: GapCause::Counters };
            self.gaps.push(everything);
        }
        let (gaps, hands): (Vec<_>, Vec<_>) = self.hands.into_values().map(|hand| (hand.gap, hand.fault)).unzip();
        self.gaps.extend(gaps);
        self.gaps.sort_by_key(|gap| (gap.from, gap.to.is_none(), gap.to));
        let growth = self.grown.0.saturating_add(self.grown.1);
        Unmarked { gaps: self.gaps, whole: self.at_no_time, hands, growth, walked_to: Some(self.walked_to) }
    }
}

/// The text of a gap block as a message has it, which is one line, or `otherwise` where there is none.
pub(super) fn shown(text: &[u8], otherwise: &str) -> String {
    let text = text.get(..MAX_TEXT).unwrap_or(text).trim_ascii();
    let line = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let shown = String::from_utf8_lossy(line).trim().to_owned();
    if shown.is_empty() { otherwise.to_owned() } else { shown }
}

/// The message of a change by another program; `text` is the recorder's.
pub(super) fn changed(text: &[u8]) -> String {
    format!("another program changed what is recorded: {}", shown(text, "the recorder does not say what"))
}

/// The loss of a captured tree's file without a mark, by the kernel's `counters`.
///
/// A file whose marks account for all overrun is not read ahead of its events, or not to its end: events
/// that were handed out and are not in the file are then found at the end of the stream (`late_loss`), which is rare, and a second
/// look at every sub-buffer is not cheap.
///
/// `read` fills its buffer with the next bytes of the file, unless they end.
///
/// # Errors
/// The error of the first read.
pub(super) fn of_sub_buffers(
    read: &mut dyn FnMut(&mut [u8]) -> io::Result<usize>,
    format: &SubBufferFormat,
    counters: &Counters,
) -> io::Result<Unmarked> {
    let size = format.shape.size;
    let (refused, overrun) = (refused(counters), counters.overrun.get());
    let mut chunk = Vec::new();
    let (mut events, mut counted, mut is_counted, mut is_whole) = (0u64, 0u64, true, true);
    let mut has_begun = false;
    loop {
        if refused == 0 && (!is_counted || counted >= overrun) {
            return Ok(Unmarked::default());
        }
        chunk.resize(AT_ONCE.div_ceil(size.max(1)).saturating_mul(size), 0);
        let len = match read(&mut chunk) {
            Ok(len) => len,
            Err(error) if !has_begun => return Err(error),
            // The stream meets it, too: what is missing then is a gap of its own.
            Err(_) => {
                is_whole = false;
                break;
            }
        };
        has_begun = true;
        is_whole &= len.is_multiple_of(size.max(1));
        for page in chunk.get(..len).unwrap_or(&chunk).chunks_exact(size.max(1)) {
            let stored = trimmed_len(&format.shape, page).ok();
            is_whole &= stored.is_some();
            let Some(stored) = stored.filter(|&stored| stored > 0).and_then(|stored| page.get(..stored)) else {
                continue;
            };
            let Ok((tally, _)) = subbuffer::tally(&format.shape, stored) else { continue };
            events = events.saturating_add(tally.events);
            match tally.missed {
                Some(Missed::Counted(n)) => counted = counted.saturating_add(n),
                Some(Missed::Uncounted) => is_counted = false,
                None => {}
            }
        }
        if len < chunk.len() {
            break;
        }
    }
    let beyond = if is_counted { overrun.saturating_sub(counted) } else { 0 };
    let gone = if is_whole { not_there(counters, events) } else { 0 };
    let growth = refused.saturating_add(gone);
    Ok(Unmarked { whole: growth.saturating_add(beyond), growth, ..Unmarked::default() })
}

/// Events that the stats of a captured tree count as handed out, and that are not among the `events` of its file.
pub(super) fn not_there(counters: &Counters, events: u64) -> u64 {
    let (read, unread) = (counters.read.get(), counters.unread.get());
    // Stats are copied after the sub-buffers, or before.
    let is_all = [read, read.saturating_add(unread)].contains(&events);
    if is_all { 0 } else { read.saturating_sub(events) }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use zerocopy::IntoBytes;

    use super::*;
    use crate::disk::block::{BlockInfo, HEADER_BYTES, block};

    const KNOWN: Known = (HEADER_BYTES, [0; 16], 1);

    #[test]
    fn a_text_of_the_recorder_is_one_line() {
        for (text, line) in [("", "none"), (" \n", "none"), ("\na b\n", "a b"), ("a\nb", "a")] {
            assert_eq!(shown(text.as_bytes(), "none"), line, "{text:?}");
        }
    }

    fn file(blocks: impl Iterator<Item = (u8, Vec<u8>)>) -> File {
        let mut file = tempfile::tempfile().unwrap();
        let sealed = blocks.zip(0..).map(|((kind, payload), sequence)| {
            block(&BlockInfo { kind, cpu: 1, sequence, events_before: 100, ..BlockInfo::default() }, &payload)
        });
        file.write_all(&sealed.collect::<Vec<_>>().concat()).unwrap();
        file
    }

    fn sample(dropped: u64, read: u64, grew: Interval) -> (u8, Vec<u8>) {
        let counters = Counters { dropped: dropped.into(), read: read.into(), ..Counters::default() };
        (kind::COUNTERS, CounterSample { counters, grew }.as_bytes().to_vec())
    }

    fn ends(found: &Unmarked) -> Vec<(Option<u64>, Option<u64>, Option<u64>)> {
        found.gaps.iter().map(|gap| (gap.from, gap.to, gap.lost)).collect()
    }

    #[test]
    fn gaps_come_by_their_begins_and_the_last_record_of_a_hand_holds() {
        let hand = |from, to, text: &[u8]| {
            let interval = Interval::new(from, to);
            let record = GapRecord { lost: 3.into(), reason: GAP_FOREIGN.into(), interval, ..GapRecord::default() };
            (kind::GAP, [record.as_bytes(), text].concat())
        };
        let blocks = [
            hand(50, u64::MAX, b"filter"),
            sample(2, 100, Interval::new(60, 70)),
            hand(0, u64::MAX, b"\x1b[31m"),
            hand(50, 65, b"filter, no more"),
            sample(2, 103, Interval::new(70, u64::MAX)),
            // Counters that go back have not grown.
            sample(1, 101, Interval::new(80, 81)),
        ];
        let found = of_blocks(&file(blocks.into_iter()), KNOWN, None).unwrap();
        let gaps =
            [(None, None, None), (Some(50), Some(65), None), (Some(60), Some(70), Some(2)), (Some(70), None, Some(3))];
        assert_eq!(ends(&found), gaps);
        assert_eq!((found.whole, found.counted()), (0, 5));
        let said: Vec<&str> = found.hands.iter().map(|fault| fault.message.as_str()).collect();
        assert!(
            said.len() == 2 && said[1].starts_with("block 3 ") && said[1].ends_with(": filter, no more"),
            "{said:?}"
        );
    }

    #[test]
    fn growth_behind_a_hole_begins_at_the_last_readable_sample() {
        let of = |damaged: &[usize], missing: Option<usize>| {
            let samples = [(2, 60_000, 70_000), (4, 71_000, 80_000), (9, 81_000, 90_000), (10, 91_000, 99_000)];
            let sealed = samples.iter().enumerate().map(|(number, &(dropped, from, to))| {
                let (kind, payload) = sample(dropped, 100, Interval::new(from, to));
                let info =
                    BlockInfo { kind, cpu: 1, sequence: number as u64, events_before: 100, ..BlockInfo::default() };
                let mut bytes = block(&info, &payload);
                bytes[HEADER_BYTES] ^= u8::from(damaged.contains(&number));
                if missing == Some(number) { Vec::new() } else { bytes }
            });
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(&sealed.collect::<Vec<_>>().concat()).unwrap();
            ends(&of_blocks(&file, KNOWN, None).unwrap())
        };
        let gap = |from, to, lost| (from, Some(to), Some(lost));
        let (first, last) = (gap(Some(60_000), 70_000, 2), gap(Some(91_000), 99_000, 1));
        // A sample was taken up to a microsecond before the end of its interval.
        let wide = vec![first, gap(Some(69_000), 90_000, 7), last];
        assert_eq!(of(&[1], None), wide);
        assert_eq!(of(&[], Some(1)), wide);
        assert_eq!(of(&[0, 1], None), [gap(None, 90_000, 9), last]);
        assert_eq!(of(&[3], None)[2], gap(Some(81_000), 90_000, 5));
    }

    #[test]
    fn gaps_beyond_those_that_are_kept_become_one_over_everything() {
        let max = MAX_GAPS as u64;
        let many = (1..=max + 10).map(|n| sample(n, 100, Interval::new(n, n + 1)));
        let found = of_blocks(&file(many), KNOWN, None).unwrap();
        assert_eq!(found.gaps.len() as u64, max + 1);
        assert_eq!(ends(&found)[0], (None, None, Some(10)));
        assert_eq!(found.counted(), max + 10);
    }

    #[test]
    fn an_end_without_loss_is_all_that_is_read_of_a_file() {
        let end = |end: End| (kind::END, end.as_bytes().to_vec());
        let damaged = (kind::COUNTERS, vec![0; 5]);
        let counters = Counters { read: 100.into(), ..Counters::default() };
        let good = End { counters, events: 100.into(), ..End::default() };
        let found = by_the_end(&file([damaged.clone(), end(good)].into_iter()), KNOWN).unwrap();
        assert_eq!(found.map(|found| found.whole), Some(0));
        let lossy = End { counters: Counters { dropped: 4.into(), read: 105.into(), ..counters }, ..good };
        let whole = |end_block| {
            by_the_end(&file([damaged.clone(), end(end_block)].into_iter()), KNOWN).unwrap().map(|found| found.whole)
        };
        assert_eq!(whole(lossy), Some(9));
        let overrun =
            |marks: u32| End { counters: Counters { overrun: 7.into(), ..counters }, marks: marks.into(), ..good };
        assert_eq!([MARKS_COUNTED, MARKS_VAGUE].map(overrun).map(whole), [Some(7), Some(0)]);
        for other in [
            End { timed: 1.into(), ..good },
            End { grew: Interval::new(1, 2), ..lossy },
            End { counters: Counters { overrun: 1.into(), ..counters }, ..good },
            End { counters: Counters { recorder_lost: 1.into(), ..counters }, ..good },
        ] {
            assert_eq!(whole(other), None, "{other:?}");
        }
        assert!(by_the_end(&file([end(good), damaged].into_iter()), KNOWN).unwrap().is_none());
    }
}
