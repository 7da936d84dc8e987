//! Configuration of a run: rules, grouping, memory limit, and how the work is cut into windows and partitions.

use std::sync::Arc;

use crate::account::classes::MAX_SIZED_CLASSES;
use crate::account::group_reader::GroupFacts;
use crate::account::grouping::Grouping;
use crate::account::over_time::OverTimeRequest;
use crate::memory::budget::Budget;
use crate::names::known::KnownNames;
use crate::order::merge::MAX_CHUNKS;
use crate::pairing::pairs::PairingOptions;
use crate::pairing::result::Live;
use crate::progress::Notes;

/// Rules, grouping and limits of one run of the pipeline.
#[derive(Clone)]
pub(crate) struct RunConfig<'a> {
    pub(crate) rules: PairingOptions,
    pub(crate) grouping: Grouping,
    /// Facts that the values of keys depend on.
    pub(crate) facts: GroupFacts<'a>,
    /// Figures over time that are counted.
    pub(crate) over_time: OverTimeRequest,
    /// Births of the live objects are counted, in place of their list.
    pub(crate) counts_births: bool,
    /// Names of the places that are the nodes whose peaks are counted; true for areas, else folders.
    pub(crate) places: Option<(Arc<KnownNames>, bool)>,
    pub(crate) parallelism: Parallelism,
    pub(crate) budget: Budget,
    /// Receiver of the stages' times.
    pub(crate) notes: Notes,
}

impl RunConfig<'_> {
    /// True if the memory limit allows a list of `objects` live objects once `given_back` bytes are returned.
    pub(crate) fn has_room_for(&self, objects: usize, given_back: usize) -> bool {
        let listed = (objects * LISTED_BYTES) as u64;
        listed.saturating_sub(given_back as u64) <= self.budget.left(0)
    }
}

/// Number of threads, and the sizes that follow from it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parallelism {
    pub(crate) threads: u32,
    /// Events of a window, about.
    pub(crate) window: usize,
    /// Limit of classes with sizes of their own, see [`MAX_SIZED_CLASSES`].
    pub(crate) sized_classes: u32,
}

impl Parallelism {
    /// The sizes for `threads` threads.
    pub(crate) fn of_threads(threads: u32) -> Parallelism {
        let window = if threads == 1 { WINDOW } else { WINDOW_AT_ONCE };
        Parallelism { threads, window, sized_classes: MAX_SIZED_CLASSES }
    }

    /// Partitions of the addresses: one for each thread.
    pub(crate) fn parts(self) -> u32 {
        self.threads.clamp(1, 256)
    }

    /// Chunks to read of each of `streams` streams before the merge has consumed the first of them. With several threads some
    /// read while one merges the [`MAX_CHUNKS`] that it has waited for.
    pub(crate) fn ahead(self, streams: usize) -> usize {
        match (self.threads, streams) {
            (1, ..=2) => 1,
            (1, _) => MAX_CHUNKS,
            _ => MAX_CHUNKS + 1,
        }
    }
}

/// Events of a window on one thread: the part of them that is in memory should stay in a core's cache.
pub(crate) const WINDOW: usize = 2048;
/// Events of a window on several threads: large enough that scheduling costs nothing noticeable.
const WINDOW_AT_ONCE: usize = 16 << 10;

/// Memory for each live object that is listed, in bytes.
const LISTED_BYTES: usize = size_of::<Live>();

/// Events to read of a stream at once, for windows of about `window` events.
pub(crate) fn batch(window: usize, streams: usize) -> usize {
    (window / streams.max(1)).max(window.min(256)).max(1)
}
