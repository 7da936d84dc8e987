//! Figures of a CPU's file: while it is written, and at its end.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use crate::write::block_file::Stored;
use crate::write::load::CpuLoad;
use crate::write::overruns::Overruns;

/// Figures of a CPU that other threads read during the recording.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    pub(crate) events: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) lost: AtomicU64,
    /// True once the file cannot be written.
    pub(crate) failed: AtomicBool,
    /// Load of the CPU, for the writer.
    pub(crate) load: CpuLoad,
    /// Blocks that wait for the writer.
    pub(crate) waiting: Arc<AtomicUsize>,
    /// Thread ids of the reader and of the writer; 0 before they run.
    pub(crate) reader: AtomicI32,
    pub(crate) writer: AtomicI32,
}

/// Blocks of events by the way they are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BlockCounts {
    /// Records are encoded, not compressed.
    pub(crate) encoded: u64,
    /// Compressed, with records that are encoded or not.
    pub(crate) compressed: u64,
    /// As they are.
    pub(crate) plain: u64,
    /// Blocks among these that were not compressed because they had waited too long.
    pub(crate) late: u64,
}

impl BlockCounts {
    /// Counts a block.
    pub(crate) fn count(&mut self, stored: &Stored<'_>) {
        let count = match (stored.is_compressed, stored.coded_len) {
            (true, _) => &mut self.compressed,
            (false, Some(_)) => &mut self.encoded,
            (false, None) => &mut self.plain,
        };
        *count += 1;
    }

    /// Both together.
    pub(crate) fn plus(self, other: BlockCounts) -> BlockCounts {
        BlockCounts {
            encoded: self.encoded + other.encoded,
            compressed: self.compressed + other.compressed,
            plain: self.plain + other.plain,
            late: self.late + other.late,
        }
    }
}

/// Final figures of a CPU's file.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) events: u64,
    pub(crate) bytes: u64,
    pub(crate) lost: u64,
    /// Events that the kernel handed out, by its own counter.
    pub(crate) read: u64,
    /// Events among `read` that another program took.
    pub(crate) read_by_others: u64,
    /// True if the kernel's buffer was cleared during the recording.
    pub(crate) cleared: bool,
    /// Events caused by the recorder's own threads; `None` where they were not counted.
    pub(crate) own: Option<u64>,
    /// Why events stayed in the kernel's buffer, or the last counters could not be read, for the user.
    pub(crate) unreadable: Option<String>,
    /// True if the number of lost events is known.
    pub(crate) counted: bool,
    /// True if the file has no end block, because a second stop signal came first.
    pub(crate) unfinished: bool,
    /// Events that the kernel overwrote, by reason.
    pub(crate) overruns: Overruns,
    /// Longest time that writing a block took.
    pub(crate) slowest_write: Duration,
    /// Blocks of events by the way they are stored.
    pub(crate) blocks: BlockCounts,
    /// Reason why the file could not be written.
    pub(crate) error: Option<io::Error>,
}

impl Outcome {
    /// Outcome of a thread that was left behind after a second stop signal.
    pub(crate) fn unfinished(progress: &Progress) -> Outcome {
        let [events, bytes, lost] =
            [&progress.events, &progress.bytes, &progress.lost].map(|n| n.load(Ordering::Relaxed));
        Outcome {
            events,
            bytes,
            lost,
            read: 0,
            read_by_others: 0,
            cleared: false,
            own: None,
            unreadable: None,
            counted: true,
            unfinished: true,
            overruns: Overruns::default(),
            slowest_write: Duration::ZERO,
            blocks: BlockCounts::default(),
            error: None,
        }
    }
}
