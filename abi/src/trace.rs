//! A trace as its readers see it: what it is, a stream of items for each CPU, and the names beside it.
//!
//! One way to open what `kmemtraced` writes and what the kernel leaves (raw relay bytes), for check and
//! report alike. Reading is one pass in bounded memory; what is found wrong on the way is in each
//! stream's [`FileFacts`], complete once the stream has ended.

use std::collections::HashMap;
use std::path::PathBuf;

use crate::block::Counters;
use crate::clock::Clock;
use crate::event::Names;
use crate::fault::{Fault, Verdict};
pub use crate::stream::CpuStream;
use crate::target::Endian;

/// What was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputKind {
    /// A trace directory of ours, or files out of one.
    Kmemtrace,
    /// Raw relay bytes: `cpu0`, `cpu1`, ... or header-less `cpuN.out`.
    Relay,
    /// The files of a tracefs instance, copied with `cat`.
    Tree,
}

impl InputKind {
    /// `"kmemtrace"`, `"relay"` or `"tree"`, as documents have it.
    pub fn name(self) -> &'static str {
        match self {
            InputKind::Kmemtrace => "kmemtrace",
            InputKind::Relay => "relay",
            InputKind::Tree => "tree",
        }
    }
}

/// Where a recording took its events from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// tracefs ring buffers.
    Tracefs,
    /// A kmemtrace relay channel.
    Relay,
}

/// What `Event::at` is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrderKey {
    /// A time stamp.
    Time,
    /// A relay sequence number: consecutive over all CPUs, so a missing one is a lost record.
    Sequence,
}

/// What is known of a trace before its events are read.
#[derive(Clone, Debug)]
pub struct TraceInfo {
    /// What was opened.
    pub input: InputKind,
    /// Where it was recorded from.
    pub source: Option<Source>,
    /// Kernel release.
    pub kernel: Option<String>,
    /// Machine name.
    pub arch: Option<String>,
    /// Byte order.
    pub endian: Option<Endian>,
    /// Bytes of a `long`: 4 or 8.
    pub word_bytes: Option<u8>,
    /// Bytes of a page.
    pub page_bytes: Option<u64>,
    /// Trace clock.
    pub clock: Option<String>,
    /// Whether the kernel began to record at boot.
    pub since_boot: bool,
    /// CPUs of the recording, ascending, those whose file is missing included.
    pub cpus: Vec<u32>,
    /// CPUs whose file is missing.
    pub missing: Vec<u32>,
    /// What orders the events.
    pub order: OrderKey,
}

impl TraceInfo {
    /// The order keys of its events.
    pub fn keys(&self) -> Clock {
        Clock::of(self.order, self.clock.as_deref())
    }
}

/// What names things: from `meta.out`.
#[derive(Clone, Debug, Default)]
pub struct Side {
    /// `/proc/kallsyms`, lines of start and end.
    pub kallsyms: Vec<u8>,
    /// `/proc/modules`, lines of start and end.
    pub modules: Vec<u8>,
    /// Command names by thread id.
    pub comms: HashMap<i32, Box<[u8]>>,
    /// The recorder's thread ids, ascending, each once, at most [`MAX_OWN_THREADS`]; `None`: the recording does not tell them.
    pub own_threads: Option<Vec<i32>>,
    /// NUMA node by CPU.
    pub nodes: HashMap<u32, u32>,
    /// `/proc/slabinfo` at the start.
    pub slabinfo_start: Vec<u8>,
    /// `/proc/slabinfo` at the end.
    pub slabinfo_end: Vec<u8>,
    /// Node name, release and so on.
    pub uname: Vec<u8>,
    /// Time of day and CLOCK_MONOTONIC when recording started, ns.
    pub started: Option<(u64, u64)>,
    /// What was found wrong with `meta.out`; `None`: there is none.
    pub facts: Option<FileFacts>,
}

/// Greatest number of thread ids that a recording may tell: several for each CPU that a kernel can have.
pub const MAX_OWN_THREADS: usize = 1 << 16;

/// What is known of one file once it has been read.
#[derive(Clone, Debug)]
pub struct FileFacts {
    /// The file.
    pub path: PathBuf,
    /// Its CPU; `None` for `meta.out`.
    pub cpu: Option<u32>,
    /// Format version (major, minor); `None` for raw bytes.
    pub version: Option<(u16, u16)>,
    /// Where it was recorded from.
    pub source: Option<Source>,
    /// Whole blocks.
    pub blocks: u64,
    /// Event records of any type.
    pub events: u64,
    /// Order key of the first event record.
    pub first: Option<u64>,
    /// Order key of the last event record.
    pub last: Option<u64>,
    /// Events lost (report-contract: `lost_events`); `None` where nobody knows the number.
    pub lost: Option<u64>,
    /// Gaps in this CPU's stream.
    pub gaps: u64,
    /// Of the events lost, those before the first one that is here; `None` where nobody knows the number.
    pub lost_before: Option<u64>,
    /// Loss at no known time came to light only at the end of the file, since it cannot be read twice: no gap was told in time for
    /// what was found before.
    pub late_loss: bool,
    /// Events that the blocks after a damaged place count and that could not be read.
    pub unread: u64,
    /// The last counters in the file; only our own recordings have them.
    pub counters: Option<Counters>,
    /// Bytes read.
    pub bytes: u64,
    /// What was found, in the order of the file; at most [`MAX_FAULTS`].
    pub faults: Vec<Fault>,
    /// Findings beyond those.
    pub faults_left_out: u64,
    /// The worst of what was found.
    pub verdict: Verdict,
}

/// Findings kept for one file.
pub const MAX_FAULTS: usize = 1000;

impl FileFacts {
    pub(crate) fn new(path: PathBuf, cpu: Option<u32>) -> FileFacts {
        FileFacts {
            path,
            cpu,
            version: None,
            source: None,
            blocks: 0,
            events: 0,
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

    /// What people call it: its name in its directory, `cpu2.out` or `per_cpu/cpu2/trace_pipe_raw`.
    pub fn name(&self) -> PathBuf {
        let parts: Vec<_> = self.path.components().rev().collect();
        let in_tree = parts.first().is_some_and(|name| name.as_os_str() == "trace_pipe_raw");
        parts.iter().take(if in_tree { 3 } else { 1 }).rev().collect()
    }

    pub(crate) fn add(&mut self, fault: Fault) {
        self.verdict = self.verdict.max(fault.code.verdict());
        if self.faults.len() < MAX_FAULTS {
            self.faults.push(fault);
        } else {
            self.faults_left_out += 1;
        }
    }
}

/// Why nothing could be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A path cannot be opened or read.
    #[error("{path}: {error}", path = path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// The system's reason.
        error: std::io::Error,
    },
    /// Neither our format nor anything else that is known.
    #[error("{path}: {reason}", path = path.display())]
    NoTrace {
        /// The path.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// A newer major version.
    #[error("{path}: written in format version {found}, and this program reads up to version {known}: use a newer kmemtrace", path = path.display(), known = crate::block::MAJOR)]
    Newer {
        /// The path.
        path: PathBuf,
        /// The file's major version.
        found: u16,
    },
    /// Files of different recordings.
    #[error(
        "{a} and {b} are of different recordings: keep the files of each in a directory of its own",
        a = a.display(),
        b = b.display()
    )]
    Mixed {
        /// One file.
        a: PathBuf,
        /// The other.
        b: PathBuf,
    },
    /// Two files of one CPU: its events would be there twice.
    #[error("{a} and {b} are both of CPU {cpu}: name one of them", a = a.display(), b = b.display())]
    Twice {
        /// One file.
        a: PathBuf,
        /// The other.
        b: PathBuf,
        /// Their CPU.
        cpu: u32,
    },
}

impl OpenError {
    /// Exit status 3 (no trace at all) rather than 2 (unreadable).
    pub fn is_no_trace(&self) -> bool {
        !matches!(self, OpenError::Io { .. } | OpenError::Twice { .. })
    }
}

/// An opened trace.
#[derive(Debug)]
pub struct Trace {
    /// What it is.
    pub info: TraceInfo,
    /// One stream for each of `info.cpus`, in that order; a missing CPU's yields one gap.
    pub streams: Vec<CpuStream>,
    /// Names of caches and events.
    pub names: Names,
    /// Symbols, modules, comms, nodes.
    pub side: Side,
    /// From a directory of raw relay files.
    pub(crate) total_overruns: Option<u64>,
}

impl Trace {
    /// Opens a trace directory, a captured tree, a directory of raw relay files, or files out of one.
    pub fn open(paths: &[PathBuf]) -> Result<Trace, OpenError> {
        crate::open::open(paths)
    }

    /// Records that a relay channel dropped because it was full: `total_overruns`, which counts all CPUs together.
    /// `None` where nothing tells. In our own recordings it is complete once the streams have ended.
    pub fn total_overruns(&self) -> Option<u64> {
        if self.total_overruns.is_some() || self.info.source != Some(Source::Relay) {
            return self.total_overruns;
        }
        let counted = self.streams.iter().filter_map(|s| s.facts().counters).map(|c| c.kernel_lost());
        counted.reduce(u64::saturating_add)
    }

    /// Records that a relay channel dropped and that are not among the `missing` sequence numbers: a gap on every CPU, from the
    /// first event to the last. 0 until the streams have ended, and where there is no relay channel.
    pub fn dropped_beyond(&self, missing: u64) -> u64 {
        self.total_overruns().unwrap_or(0).saturating_sub(missing)
    }
}
