//! Loss of one file, apart from its sub-buffers: what a `trace.dat` keeps of a recording or a tree beside the sub-buffers themselves.
//!
//! Gaps by marks in sub-buffers are not among it: a reader finds them again. `LossLog` notes the others while a file is read,
//! `ToldLoss` hands them over again at the same places. `FORMAT.md` describes the items.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::report::FileReport;
use crate::disk::block::{Counters, NO_CPU, item};
use crate::event::{Gap, GapCause};
use crate::fault::{Code, Fault};

/// Greatest number of gaps, and of findings, that are kept of one file.
pub const MAX_KEPT: usize = 1 << 20;

/// `StoredFile::flags`.
mod file_flag {
    pub(super) const MISSING: u32 = 1;
    pub(super) const LATE_LOSS: u32 = 2;
    pub(super) const LOST: u32 = 4;
    pub(super) const LOST_BEFORE: u32 = 8;
    pub(super) const COUNTERS: u32 = 16;
}

/// `StoredGap::flags`.
mod gap_flag {
    pub(super) const BEFORE: u8 = 1;
    pub(super) const FROM: u8 = 2;
    pub(super) const TO: u8 = 4;
    pub(super) const LOST: u8 = 8;
}

/// Causes by their numbers in files, which never change.
const CAUSES: [GapCause; 7] = [
    GapCause::Overrun,
    GapCause::Counters,
    GapCause::Recorder,
    GapCause::Foreign,
    GapCause::Damage,
    GapCause::Cut,
    GapCause::Sequence,
];

/// Item [`item::FILE`].
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct StoredFile {
    cpu: U32,
    flags: U32,
    lost: U64,
    lost_before: U64,
    unread: U64,
    counters: Counters,
}

/// Element of an item [`item::GAPS`].
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct StoredGap {
    before: U64,
    from: U64,
    to: U64,
    lost: U64,
    cause: u8,
    flags: u8,
    zero: [u8; 6],
}

/// Begin of an item [`item::FINDING`]; the message follows.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct StoredFinding {
    code: U16,
    /// 1 if the finding has a block.
    has_block: U16,
    offset: U64,
    block: U64,
}

/// A gap, and its place among the sub-buffers of its CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlacedGap {
    /// Sub-buffers before it; `None`: the gap is handed over before anything else.
    pub before: Option<u64>,
    /// The gap.
    pub gap: Gap,
}

/// Loss and findings of one file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileLoss {
    /// CPU of the file; `None` for `meta.out` and the texts of a tree.
    pub cpu: Option<u32>,
    /// The file was not there.
    pub is_missing: bool,
    /// Sub-buffers in the file; not stored.
    pub sub_buffers: u64,
    /// Gaps that no sub-buffer tells of, in the order of the stream.
    pub gaps: Vec<PlacedGap>,
    /// Numbers of the sub-buffers, ascending, that are marked because of these gaps alone.
    pub marks: Vec<u64>,
    /// As in the report of the file.
    pub lost: Option<u64>,
    /// As in the report of the file.
    pub lost_before: Option<u64>,
    /// As in the report of the file.
    pub late_loss: bool,
    /// As in the report of the file.
    pub unread: u64,
    /// As in the report of the file.
    pub counters: Option<Counters>,
    /// As in the report of the file.
    pub faults: Vec<Fault>,
}

impl FileLoss {
    /// Loss of a file without sub-buffers, by its report.
    pub fn of_report(report: &FileReport) -> FileLoss {
        FileLoss {
            cpu: report.cpu,
            lost: report.lost,
            lost_before: report.lost_before,
            late_loss: report.late_loss,
            unread: report.unread,
            counters: report.counters,
            faults: report.faults.clone(),
            ..FileLoss::default()
        }
    }

    /// Appends it as items.
    pub fn put(&self, items: &mut Vec<u8>) {
        let flag = |is_set: bool, flag: u32| if is_set { flag } else { 0 };
        let stored = StoredFile {
            cpu: self.cpu.unwrap_or(NO_CPU).into(),
            flags: (flag(self.is_missing, file_flag::MISSING)
                | flag(self.late_loss, file_flag::LATE_LOSS)
                | flag(self.lost.is_some(), file_flag::LOST)
                | flag(self.lost_before.is_some(), file_flag::LOST_BEFORE)
                | flag(self.counters.is_some(), file_flag::COUNTERS))
            .into(),
            lost: self.lost.unwrap_or(0).into(),
            lost_before: self.lost_before.unwrap_or(0).into(),
            unread: self.unread.into(),
            counters: self.counters.unwrap_or_default(),
        };
        item::put(items, item::FILE, 0, stored.as_bytes());
        let gaps: Vec<StoredGap> = self.gaps.iter().map(stored_gap).collect();
        item::put(items, item::GAPS, 0, gaps.as_bytes());
        let marks: Vec<U64> = self.marks.iter().map(|&mark| mark.into()).collect();
        item::put(items, item::MARKS, 0, marks.as_bytes());
        for Fault { code, offset, block, message } in &self.faults {
            let finding = StoredFinding {
                code: (*code as u16).into(),
                has_block: u16::from(block.is_some()).into(),
                offset: (*offset).into(),
                block: block.unwrap_or(0).into(),
            };
            item::put(items, item::FINDING, 0, &[finding.as_bytes(), message.as_bytes()].concat());
        }
    }

    /// All files among the items, in their order; `None` where an item makes no sense.
    #[cfg_attr(not(feature = "inputs"), allow(dead_code))]
    pub(crate) fn all(items: &[u8]) -> Option<Vec<FileLoss>> {
        let mut files: Vec<FileLoss> = Vec::new();
        for found in item::walk(items) {
            let (tag, _, bytes) = found.ok()?;
            match tag {
                item::FILE => files.push(file(StoredFile::read_from_prefix(bytes).ok()?.0)),
                item::GAPS => {
                    let gaps = bytes.chunks_exact(size_of::<StoredGap>()).map(placed_gap);
                    files.last_mut()?.gaps = gaps.collect::<Option<_>>()?;
                }
                item::MARKS => {
                    let marks = bytes.chunks_exact(8).filter_map(|bytes| U64::read_from_bytes(bytes).ok());
                    files.last_mut()?.marks = marks.map(U64::get).collect();
                }
                item::FINDING => files.last_mut()?.faults.extend(finding(bytes)?),
                _ => {}
            }
        }
        let (mut cpus, all): (Vec<_>, usize) = (files.iter().map(|file| file.cpu).collect(), files.len());
        cpus.sort_unstable();
        cpus.dedup();
        (cpus.len() == all).then_some(files)
    }

    /// Adds it to the report of a file that was read. Findings that were found again are not added twice.
    pub(crate) fn add_to(&self, report: &mut FileReport) {
        report.lost = self.lost;
        report.lost_before = self.lost_before;
        report.late_loss = self.late_loss;
        report.unread = self.unread;
        report.counters = self.counters;
        let found: Vec<Code> = report.faults.iter().map(|fault| fault.code).collect();
        let mut met: Vec<Code> = Vec::new();
        for fault in &self.faults {
            met.push(fault.code);
            let count = |codes: &[Code]| codes.iter().filter(|&&code| code == fault.code).count();
            if count(&met) > count(&found) {
                report.add(fault.clone());
            }
        }
    }
}

fn file(stored: StoredFile) -> FileLoss {
    let flags = stored.flags.get();
    let is_set = |flag: u32| flags & flag != 0;
    FileLoss {
        cpu: Some(stored.cpu.get()).filter(|&cpu| cpu != NO_CPU),
        is_missing: is_set(file_flag::MISSING),
        lost: is_set(file_flag::LOST).then_some(stored.lost.get()),
        lost_before: is_set(file_flag::LOST_BEFORE).then_some(stored.lost_before.get()),
        late_loss: is_set(file_flag::LATE_LOSS),
        unread: stored.unread.get(),
        counters: is_set(file_flag::COUNTERS).then_some(stored.counters),
        ..FileLoss::default()
    }
}

fn stored_gap(placed: &PlacedGap) -> StoredGap {
    let PlacedGap { before, gap } = placed;
    let flags = [
        (before.is_some(), gap_flag::BEFORE),
        (gap.from.is_some(), gap_flag::FROM),
        (gap.to.is_some(), gap_flag::TO),
        (gap.lost.is_some(), gap_flag::LOST),
    ];
    StoredGap {
        before: before.unwrap_or(0).into(),
        from: gap.from.unwrap_or(0).into(),
        to: gap.to.unwrap_or(0).into(),
        lost: gap.lost.unwrap_or(0).into(),
        cause: CAUSES.iter().zip(0..).find_map(|(&cause, n)| (cause == gap.cause).then_some(n)).unwrap_or(0),
        flags: flags.into_iter().filter(|(is_set, _)| *is_set).fold(0, |flags, (_, flag)| flags | flag),
        zero: [0; 6],
    }
}

/// A gap of the stored bytes; its CPU is set with those of the whole file.
fn placed_gap(bytes: &[u8]) -> Option<PlacedGap> {
    let stored = StoredGap::read_from_bytes(bytes).ok()?;
    let some = |flag: u8, value: U64| (stored.flags & flag != 0).then_some(value.get());
    let gap = Gap {
        from: some(gap_flag::FROM, stored.from),
        to: some(gap_flag::TO, stored.to),
        cpu: 0,
        lost: some(gap_flag::LOST, stored.lost),
        cause: *CAUSES.get(usize::from(stored.cause))?,
    };
    Some(PlacedGap { before: some(gap_flag::BEFORE, stored.before), gap })
}

/// A finding; none for one of a later version, whose code is not known.
fn finding(bytes: &[u8]) -> Option<Option<Fault>> {
    let (stored, message) = StoredFinding::read_from_prefix(bytes).ok()?;
    let code = Code::ALL.iter().copied().find(|&code| code as u16 == stored.code.get());
    Some(code.map(|code| Fault {
        code,
        offset: stored.offset.get(),
        block: (stored.has_block.get() != 0).then_some(stored.block.get()),
        message: String::from_utf8_lossy(message).into_owned(),
    }))
}

/// Notes loss that no sub-buffer tells of, while a file is read.
#[derive(Debug, Default)]
pub(super) struct LossLog {
    sub_buffers: u64,
    gaps: Vec<PlacedGap>,
    marks: Vec<u64>,
    /// Begins of the gaps before the first sub-buffer, the next one last.
    ahead: Vec<u64>,
    has_begun: bool,
    /// The sub-buffer that is being read has a mark.
    is_marked: Option<bool>,
}

impl LossLog {
    /// A sub-buffer with entries begins, at `timestamp`.
    pub(super) fn begin(&mut self, timestamp: u64, is_marked: bool) {
        if !self.has_begun {
            self.ahead.sort_unstable_by(|a, b| b.cmp(a));
            self.has_begun = true;
        }
        self.is_marked = Some(is_marked);
        while self.ahead.last().is_some_and(|&from| from <= timestamp) {
            self.ahead.pop();
            self.mark();
        }
    }

    pub(super) fn end(&mut self) {
        self.sub_buffers = self.sub_buffers.saturating_add(1);
        self.is_marked = None;
    }

    /// Marks the sub-buffer that is being read, unless it has a mark.
    fn mark(&mut self) {
        if self.is_marked == Some(false) {
            self.marks.push(self.sub_buffers);
            self.is_marked = Some(true);
        }
    }

    /// A gap that no sub-buffer tells of is handed over.
    pub(super) fn gap(&mut self, gap: Gap) {
        let before = self.has_begun.then_some(self.sub_buffers);
        self.gaps.push(PlacedGap { before, gap });
        if self.has_begun {
            self.mark();
        } else {
            self.ahead.push(gap.from.unwrap_or(0));
        }
    }

    /// Loss that was noted, with the rest of the file's report.
    pub(super) fn loss(&self, report: &FileReport) -> FileLoss {
        let LossLog { sub_buffers, gaps, marks, .. } = self;
        let (gaps, marks) = (gaps.clone(), marks.clone());
        FileLoss { sub_buffers: *sub_buffers, gaps, marks, ..FileLoss::of_report(report) }
    }
}

/// Loss as a file tells it, while the sub-buffers are read.
#[derive(Debug)]
pub(super) struct ToldLoss {
    loss: FileLoss,
    sub_buffers: u64,
    next_gap: usize,
    next_mark: usize,
}

impl ToldLoss {
    #[cfg_attr(not(feature = "inputs"), allow(dead_code))]
    pub(super) fn new(mut loss: FileLoss, cpu: u32) -> ToldLoss {
        loss.gaps.iter_mut().for_each(|placed| placed.gap.cpu = cpu);
        ToldLoss { loss, sub_buffers: 0, next_gap: 0, next_mark: 0 }
    }

    /// True if the mark of the sub-buffer that begins stands for gaps that are told apart.
    pub(super) fn takes_mark(&mut self) -> bool {
        let marks = self.loss.marks.get(self.next_mark..).unwrap_or_default();
        let passed = marks.iter().take_while(|&&mark| mark < self.sub_buffers).count();
        self.next_mark = self.next_mark.saturating_add(passed);
        self.loss.marks.get(self.next_mark) == Some(&self.sub_buffers)
    }

    /// The next of the gaps that stand before everything.
    pub(super) fn take_ahead(&mut self) -> Option<Gap> {
        self.take_if(|placed, _| placed.before.is_none())
    }

    /// The next of the gaps that stand before the sub-buffer that is read next.
    pub(super) fn take_due(&mut self) -> Option<Gap> {
        self.take_if(|placed, sub_buffers| placed.before.is_none_or(|before| before <= sub_buffers))
    }

    /// The next gap.
    pub(super) fn take(&mut self) -> Option<Gap> {
        self.take_if(|_, _| true)
    }

    fn take_if(&mut self, is_due: impl Fn(&PlacedGap, u64) -> bool) -> Option<Gap> {
        let next = self.loss.gaps.get(self.next_gap).filter(|placed| is_due(placed, self.sub_buffers))?;
        self.next_gap = self.next_gap.saturating_add(1);
        Some(next.gap)
    }

    /// Counts a sub-buffer that was read.
    pub(super) fn end_sub_buffer(&mut self) {
        self.sub_buffers = self.sub_buffers.saturating_add(1);
    }

    /// The loss itself, once all gaps were taken.
    pub(super) fn into_loss(self) -> FileLoss {
        self.loss
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gap(from: Option<u64>, to: Option<u64>, cause: GapCause) -> Gap {
        Gap { from, to, cpu: 0, lost: from.map(|from| from + 1), cause }
    }

    fn loss() -> FileLoss {
        let fault = |code, block, message: &str| Fault { code, offset: 7, block, message: message.to_owned() };
        FileLoss {
            cpu: Some(3),
            gaps: vec![
                PlacedGap { before: None, gap: gap(None, None, GapCause::Foreign) },
                PlacedGap { before: Some(0), gap: gap(Some(4), None, GapCause::Sequence) },
                PlacedGap { before: Some(9), gap: gap(Some(5), Some(8), GapCause::Overrun) },
            ],
            marks: vec![0, 9],
            lost: Some(12),
            late_loss: true,
            unread: 6,
            counters: Some(Counters { dropped: 2.into(), ..Counters::default() }),
            faults: vec![fault(Code::Cleared, Some(2), "x"), fault(Code::Unplaced, None, "")],
            ..FileLoss::default()
        }
    }

    #[test]
    fn what_is_put_is_read_again() {
        let names = FileLoss { is_missing: true, lost_before: Some(0), ..FileLoss::default() };
        let mut items = Vec::new();
        item::put(&mut items, item::CLOCK, 0, b"mono");
        loss().put(&mut items);
        names.put(&mut items);
        assert_eq!(FileLoss::all(&items), Some(vec![loss(), names]));
        // A later version may have causes and tags of its own; half an item, or one file twice, is damage.
        for len in (1..items.len()).step_by(3) {
            FileLoss::all(&items[..len]);
        }
        assert_eq!(FileLoss::all(&items[..items.len() - 1]), None);
        let twice = [&items[..], &items].concat();
        assert_eq!(FileLoss::all(&twice), None);
    }

    #[test]
    fn a_mark_is_on_the_next_sub_buffer_without_one() {
        let mut log = LossLog::default();
        log.gap(gap(None, Some(10), GapCause::Foreign));
        log.gap(gap(Some(25), Some(30), GapCause::Counters));
        log.gap(gap(Some(90), None, GapCause::Counters));
        for (timestamp, is_marked) in [(10, true), (20, false), (30, false), (40, false), (50, true)] {
            log.begin(timestamp, is_marked);
            if timestamp >= 40 {
                // The begin of damage is known once an event behind it comes.
                log.gap(gap(Some(timestamp), Some(timestamp), GapCause::Damage));
            }
            log.end();
        }
        log.gap(gap(Some(60), None, GapCause::Cut));
        let loss = log.loss(&FileReport::new("cpu0.out".into(), Some(0)));
        assert_eq!((loss.sub_buffers, &loss.marks[..]), (5, &[2, 3][..]), "gaps before sub-buffers 0 and 4 have marks");
        let places: Vec<_> = loss.gaps.iter().map(|placed| placed.before).collect();
        assert_eq!(places, [None, None, None, Some(3), Some(4), Some(5)]);
    }

    #[test]
    fn findings_are_added_once() {
        let mut report = FileReport::new("trace.dat".into(), Some(3));
        report.add(loss().faults[0].clone());
        loss().add_to(&mut report);
        let codes: Vec<Code> = report.faults.iter().map(|fault| fault.code).collect();
        assert_eq!((codes, report.lost), (vec![Code::Cleared, Code::Unplaced], Some(12)));
    }
}
