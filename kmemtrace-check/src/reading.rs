//! Reading: every byte of a trace once. Memory does not grow with the length of the trace, because only facts for the
//! checks and the table are kept.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::thread;

use kmemtrace_abi::clock::OrderKey;
use kmemtrace_abi::event::{Event, EventSink, Gap, GapCause, Names, Note, StreamItem};
use kmemtrace_abi::fault::Fault;
use kmemtrace_abi::open::OpenOptions;
use kmemtrace_abi::stream::CpuStream;
use kmemtrace_abi::stream::report::FileReport;
use kmemtrace_abi::trace::{InputKind, OpenError, Trace, TraceInfo};

/// Trace after reading.
#[derive(Debug)]
pub(crate) struct CheckedTrace {
    /// Path as given.
    pub(crate) path: PathBuf,
    /// True for a directory, read as a whole; false for a single file.
    pub(crate) is_dir: bool,
    pub(crate) info: TraceInfo,
    /// Files of the CPUs, ascending, then `meta.out`.
    pub(crate) files: Vec<CheckedFile>,
    /// Findings about the directory rather than one of its files.
    pub(crate) findings: Vec<Fault>,
    /// Records that a relay channel dropped, all CPUs together.
    pub(crate) total_overruns: Option<u64>,
}

/// File of a trace, present or missing.
#[derive(Debug)]
pub(crate) struct CheckedFile {
    pub(crate) facts: FileReport,
    pub(crate) is_there: bool,
    /// Gap with the most events lost in the kernel's buffer.
    pub(crate) worst_gap: Option<Gap>,
    /// File of another program: of all CPUs, and without blocks.
    pub(crate) is_foreign: bool,
    /// Missing sequence numbers before records of this file.
    pub(crate) holes: Holes,
}

/// Holes: runs of missing sequence numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Holes {
    /// Number of runs.
    pub(crate) count: u64,
    /// Missing numbers, over all runs.
    pub(crate) missing: u64,
    /// Missing numbers of the longest run.
    pub(crate) longest: u64,
    /// Sequence number after the longest run.
    pub(crate) longest_before: u64,
}

impl Holes {
    fn add(&mut self, missing: u64, before: u64) {
        self.count += 1;
        self.missing = self.missing.saturating_add(missing);
        if missing > self.longest {
            (self.longest, self.longest_before) = (missing, before);
        }
    }
}

impl CheckedFile {
    pub(crate) fn new(facts: FileReport, is_there: bool) -> CheckedFile {
        CheckedFile { facts, is_there, worst_gap: None, is_foreign: false, holes: Holes::default() }
    }

    /// The file with the facts of another part of it: a file of another program holds several CPUs.
    fn with(mut self, other: CheckedFile) -> CheckedFile {
        let (facts, more) = (&mut self.facts, other.facts);
        let earliest = [facts.first, more.first].into_iter().flatten().min();
        (facts.first, facts.last) = (earliest, facts.last.max(more.last));
        facts.events += more.events;
        facts.gaps += more.gaps;
        facts.lost = facts.lost.zip(more.lost).map(|(lost, more)| lost.saturating_add(more));
        facts.bytes = facts.bytes.max(more.bytes);
        facts.verdict = facts.verdict.max(more.verdict);
        more.faults.into_iter().for_each(|fault| facts.add(fault));
        facts.faults_left_out += more.faults_left_out;
        let is_worse =
            other.worst_gap.is_some_and(|gap| self.worst_gap.is_none_or(|worst| weight(&gap) > weight(&worst)));
        self.worst_gap = if is_worse { other.worst_gap } else { self.worst_gap };
        self.is_there |= other.is_there;
        self
    }

    /// Adds a finding to those of the reader.
    pub(crate) fn add(&mut self, fault: Fault) {
        self.facts.add(fault);
    }
}

/// Figures gathered from a stream's items.
#[derive(Debug, Default)]
struct Noted {
    worst_gap: Option<Gap>,
}

impl Noted {
    fn note(&mut self, gap: &Gap) {
        let is_worse = self.worst_gap.is_none_or(|worst| weight(gap) > weight(&worst));
        if gap.cause == GapCause::Overrun && is_worse {
            self.worst_gap = Some(*gap);
        }
    }
}

impl EventSink for Noted {
    const NAMES: bool = false;
    const FLAGS: bool = false;
    const STACKS: bool = false;
    const MARKS: bool = false;
    const NOTES: bool = true;

    #[inline]
    fn event(&mut self, _: Event, _: &Names) {}

    /// Nothing becomes of any event: one like another need not be decoded.
    fn last_note(&self) -> Option<Note> {
        Some(Note::default())
    }

    fn gap(&mut self, gap: Gap) {
        self.note(&gap);
    }
}

/// Rank of a gap: lost events, then duration.
fn weight(gap: &Gap) -> (u64, u64) {
    let time = gap.from.zip(gap.to).map_or(0, |(from, to)| to.saturating_sub(from));
    (gap.lost.unwrap_or(0), time)
}

/// Reads the trace directory or file at `path` on `threads` threads.
pub(crate) fn read(path: PathBuf, options: OpenOptions, threads: usize) -> Result<CheckedTrace, OpenError> {
    let is_dir = path.is_dir();
    let mut trace = Trace::open_with(std::slice::from_ref(&path), OpenOptions { alike: true, ..options })?;
    // One file with the events of several CPUs, of whatever program, is one entry.
    let is_foreign = matches!(trace.info.input, InputKind::TraceDat | InputKind::Other(_))
        || trace.streams.iter().any(CpuStream::has_several_cpus);
    if !is_dir && !is_foreign {
        // A single file is checked alone, without the recording's other CPUs.
        let missing = std::mem::take(&mut trace.info.missing);
        trace.streams.retain(|s| !missing.contains(&s.cpu()));
    }
    let mut files: Vec<CheckedFile> = if is_dir && trace.info.order == OrderKey::Sequence {
        read_together(&mut trace.streams, &mut trace.names)
    } else {
        read_apart(&mut trace.streams, &trace.names, threads)
    };
    for file in &mut files {
        file.is_foreign = is_foreign;
        file.is_there = !file.facts.cpu.is_some_and(|cpu| trace.info.missing.contains(&cpu));
    }
    let total_overruns = trace.total_overruns();
    files.extend(trace.metadata.report.map(|facts| CheckedFile::new(facts, true)));
    if is_foreign {
        files = files.into_iter().reduce(CheckedFile::with).into_iter().collect();
    }
    Ok(CheckedTrace { path, is_dir, info: trace.info, files, findings: Vec::new(), total_overruns })
}

/// Reads streams on `threads` threads, each stream to its end on one of them.
fn read_apart(streams: &mut [CpuStream], names: &Names, threads: usize) -> Vec<CheckedFile> {
    let count = streams.len();
    let mut files: Vec<Option<CheckedFile>> = streams.iter().map(|_| None).collect();
    let next = Mutex::new(streams.iter_mut().zip(&mut files));
    let work = || {
        let mut names = names.clone();
        let take = || next.lock().unwrap_or_else(PoisonError::into_inner).next();
        while let Some((stream, file)) = take() {
            *file = Some(read_alone(stream, &mut names));
        }
    };
    thread::scope(|scope| {
        // A thread that the system refuses is no error: the others read its files.
        (1..threads.min(count)).for_each(|_| drop(thread::Builder::new().spawn_scoped(scope, work)));
        work();
    });
    files.into_iter().flatten().collect()
}

fn read_alone(stream: &mut CpuStream, names: &mut Names) -> CheckedFile {
    /// Items of one read.
    const BATCH: usize = 1 << 16;
    let mut noted = Noted::default();
    while stream.decode(names, &mut noted, BATCH) {}
    CheckedFile { worst_gap: noted.worst_gap, ..CheckedFile::new(stream.report().clone(), true) }
}

/// Stream and its next event.
struct Head<'a> {
    stream: &'a mut CpuStream,
    items: Vec<StreamItem>,
    index: usize,
    /// Order key of the next event; `None` at the end.
    next: Option<u64>,
    file: CheckedFile,
    noted: Noted,
}

impl Head<'_> {
    /// Moves to the next event.
    fn advance(&mut self, names: &mut Names) {
        loop {
            while let Some(item) = self.items.get(self.index) {
                self.index += 1;
                if let StreamItem::Event(event) = item {
                    self.next = Some(event.at);
                    return;
                }
            }
            self.index = 0;
            if !self.stream.fill(names, &mut self.items) {
                self.next = None;
                return;
            }
            for item in &self.items {
                if let StreamItem::Gap(gap) = item {
                    self.noted.note(gap);
                }
            }
        }
    }
}

/// Reads all streams merged by sequence number. The numbers run over all CPUs, so a number that no file has is a lost
/// record.
fn read_together(streams: &mut [CpuStream], names: &mut Names) -> Vec<CheckedFile> {
    let mut heads: Vec<Head<'_>> = streams
        .iter_mut()
        .map(|stream| {
            let file = CheckedFile::new(stream.report().clone(), true);
            Head { stream, items: Vec::new(), index: 0, next: None, file, noted: Noted::default() }
        })
        .collect();
    heads.iter_mut().for_each(|head| head.advance(names));
    let mut last: Option<u64> = None;
    while let Some((index, until)) = least(&heads) {
        let head = &mut heads[index];
        while let Some(at) = head.next.filter(|&at| at <= until) {
            let missing = last.map_or(0, |last| at.saturating_sub(last).saturating_sub(1));
            if missing > 0 {
                head.file.holes.add(missing, at);
            }
            last = last.max(Some(at));
            head.advance(names);
        }
    }
    let file = |head: Head<'_>| CheckedFile {
        facts: head.stream.report().clone(),
        worst_gap: head.noted.worst_gap,
        ..head.file
    };
    heads.into_iter().map(file).collect()
}

/// Index of the stream with the least next key, and the key up to which that stream stays the least.
fn least(heads: &[Head<'_>]) -> Option<(usize, u64)> {
    let mut first: Option<(u64, usize)> = None;
    let mut until = u64::MAX;
    for (index, at) in heads.iter().enumerate().filter_map(|(i, head)| Some((i, head.next?))) {
        match first {
            Some((least, _)) if least <= at => until = until.min(at),
            _ => {
                until = first.map_or(until, |(least, _)| until.min(least));
                first = Some((at, index));
            }
        }
    }
    first.map(|(_, index)| (index, until))
}

impl CheckedTrace {
    /// Displayed name of a file: the bare name if one directory is checked, else the path.
    pub(crate) fn label(&self, file: &CheckedFile, only_trace: bool) -> PathBuf {
        if only_trace && self.is_dir { file.facts.name() } else { file.facts.path.clone() }
    }
}
