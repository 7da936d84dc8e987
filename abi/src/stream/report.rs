//! Findings and totals of one file, collected while its stream is read.

use std::path::PathBuf;

use crate::disk::block::Counters;
use crate::fault::{Code, Fault, Verdict};
use crate::kernel::unknown::UnknownEvents;

/// Kernel interfaces that a recording takes its events from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// tracefs ring buffers.
    Tracefs,
    /// A kmemtrace relay channel.
    Relay,
}

/// Findings and totals of one file, once it has been read.
#[derive(Clone, Debug)]
pub struct FileReport {
    /// The file.
    pub path: PathBuf,
    /// CPU of the file; `None` for `meta.out`.
    pub cpu: Option<u32>,
    /// Format version (major, minor); `None` for raw bytes.
    pub version: Option<(u16, u16)>,
    /// Kernel interface that it was recorded from.
    pub source: Option<Source>,
    /// Whole blocks.
    pub blocks: u64,
    /// Event records of any type.
    pub events: u64,
    /// Events that may allocate or free objects and that are not known by name; part of `events`.
    pub unknown: UnknownEvents,
    /// Stacks that were tied to their events; 0 where the consumer does not look at stacks.
    pub stacks: u64,
    /// Records of stacks that could not be tied: without an event of their own, cut, or without frames.
    pub stacks_unmatched: u64,
    /// Order key of the first event record.
    pub first: Option<u64>,
    /// Order key of the last event record.
    pub last: Option<u64>,
    /// Events lost (report-contract: `lost_events`); `None` where the number is not known.
    pub lost: Option<u64>,
    /// Gaps in this CPU's stream.
    pub gaps: u64,
    /// Events lost before the first one that is here, a part of `lost`; `None` where the number is not known.
    pub lost_before: Option<u64>,
    /// Loss at no known time came to light only at the end of the file, since it cannot be read twice: no gap was handed
    /// over in time for findings made before.
    pub late_loss: bool,
    /// Events that the blocks after a damaged place count and that could not be read.
    pub unread: u64,
    /// The last counters in the file; only our own recordings have them.
    pub counters: Option<Counters>,
    /// Bytes read.
    pub bytes: u64,
    /// Findings in the order of the file; at most [`MAX_FAULTS`].
    pub faults: Vec<Fault>,
    /// Findings beyond those.
    pub faults_left_out: u64,
    /// The worst verdict of the findings.
    pub verdict: Verdict,
}

/// Findings kept for one file.
pub const MAX_FAULTS: usize = 1000;

impl FileReport {
    pub(crate) fn new(path: PathBuf, cpu: Option<u32>) -> FileReport {
        FileReport {
            path,
            cpu,
            version: None,
            source: None,
            blocks: 0,
            events: 0,
            unknown: UnknownEvents::default(),
            stacks: 0,
            stacks_unmatched: 0,
            first: None,
            last: None,
            lost: Some(0),
            gaps: 0,
            lost_before: Some(0),
            late_loss: false,
            unread: 0,
            counters: None,
            bytes: 0,
            faults: Vec::new(),
            faults_left_out: 0,
            verdict: Verdict::Complete,
        }
    }

    /// Name of the file in its directory, as people know it: `cpu2.out` or `per_cpu/cpu2/trace_pipe_raw`.
    pub fn name(&self) -> PathBuf {
        let parts: Vec<_> = self.path.components().rev().collect();
        let in_tree = parts.first().is_some_and(|name| name.as_os_str() == "trace_pipe_raw");
        parts.iter().take(if in_tree { 3 } else { 1 }).rev().collect()
    }

    /// Adds a finding: the verdict becomes at least as bad, and findings beyond [`MAX_FAULTS`] are counted.
    pub fn add(&mut self, fault: Fault) {
        self.verdict = self.verdict.max(fault.code.verdict());
        if self.faults.len() < MAX_FAULTS {
            self.faults.push(fault);
        } else {
            self.faults_left_out = self.faults_left_out.saturating_add(1);
        }
    }

    /// As [`FileReport::add`], for a finding that a file may have millions of times: the message is made only if the finding is kept.
    pub(crate) fn add_one_of_many(
        &mut self,
        code: Code,
        offset: u64,
        block: Option<u64>,
        message: impl FnOnce() -> String,
    ) {
        let message = if self.faults.len() < MAX_FAULTS { message() } else { String::new() };
        self.add(Fault { code, offset, block, message });
    }
}
