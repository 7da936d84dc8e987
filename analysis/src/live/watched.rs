//! Sizes and threads of the live objects of one row, counted from the moment on that a screen asks for them.

use std::cmp::Reverse;
use std::collections::HashMap;

use foldhash::fast::RandomState;
use kmemtrace_abi::event::Kind;

use super::numbering::{RowNumbers, folded};
use super::snapshot::{LiveGroup, LiveKey, RowChoice};

/// Live objects of one size.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OfSize {
    /// Bytes of each, of pages when they were allocated.
    pub(super) allocated: u64,
    pub(super) objects: u64,
    pub(super) live: u64,
}

/// Live objects of one row.
#[derive(Debug)]
pub(super) struct Watched {
    pub(super) choice: RowChoice,
    /// Number of the row; those of tasks change.
    number: u32,
    sizes: HashMap<u64, OfSize, RandomState>,
    /// Live bytes by thread.
    threads: HashMap<u32, u64, RandomState>,
}

impl Watched {
    pub(super) fn new(choice: RowChoice, number: u32) -> Watched {
        Watched { choice, number, sizes: HashMap::default(), threads: HashMap::default() }
    }

    /// True where an object of these rows, allocated by a thread, counts here.
    #[inline]
    pub(super) fn has(&self, rows: &RowNumbers, kind: Kind, pid: u32) -> bool {
        match self.choice {
            (LiveGroup::Tasks, LiveKey::Task(of), of_kind) => of == pid && of_kind == folded(kind),
            (group, ..) => rows.of(group) == self.number,
        }
    }

    /// Takes so many objects of `whole` bytes each, of which `live` are together. Their size is not known where their number is 0.
    pub(super) fn allocated(&mut self, pid: u32, objects: u64, (whole, live): (u64, u64)) {
        if objects > 0 {
            let of_size = self.sizes.entry(whole).or_insert(OfSize { allocated: whole, ..OfSize::default() });
            of_size.objects = of_size.objects.saturating_add(objects);
            of_size.live = of_size.live.saturating_add(live);
        }
        let of_thread = self.threads.entry(pid).or_default();
        *of_thread = of_thread.saturating_add(live);
    }

    /// Takes bytes of an object of `whole` bytes that are gone.
    pub(super) fn freed(&mut self, pid: u32, whole: u64, bytes: u64) {
        if let Some(of_size) = self.sizes.get_mut(&whole) {
            of_size.live = of_size.live.saturating_sub(bytes);
        }
        if let Some(of_thread) = self.threads.get_mut(&pid) {
            *of_thread = of_thread.saturating_sub(bytes);
            if *of_thread == 0 {
                self.threads.remove(&pid);
            }
        }
    }

    /// Takes the end of an object of `whole` bytes.
    pub(super) fn ended(&mut self, whole: u64) {
        if let Some(of_size) = self.sizes.get_mut(&whole) {
            of_size.objects = of_size.objects.saturating_sub(1);
            if of_size.objects == 0 {
                self.sizes.remove(&whole);
            }
        }
    }

    /// The sizes with most live bytes.
    pub(super) fn largest_sizes(&self, most: usize) -> Vec<OfSize> {
        let mut sizes: Vec<OfSize> = self.sizes.values().copied().collect();
        sizes.sort_unstable_by_key(|size| (Reverse(size.live), size.allocated));
        sizes.truncate(most);
        sizes
    }

    /// The threads with most live bytes, and these.
    pub(super) fn largest_threads(&self, most: usize) -> Vec<(u32, u64)> {
        let mut threads: Vec<(u32, u64)> = self.threads.iter().map(|(pid, live)| (*pid, *live)).collect();
        threads.sort_unstable_by_key(|&(pid, live)| (Reverse(live), pid));
        threads.truncate(most);
        threads
    }
}
