//! The rows of figures, kept in the total order of the events: sums, and the peaks that depend on it.
//!
//! With one partition the pairing writes into the [`Ledger`] at once. With several, each keeps a [`Log`] of what it would
//! have written, and [`Ledger::replay`] takes the entries of all logs in the order of the window: peaks over rows, kinds
//! and everything are exactly those of one partition, because they are found by the same steps.

use kmemtrace_abi::event::Kind;

use crate::classes::Class;
use crate::decode::Compact;
use crate::figures::Figures;
use crate::order::{Keyed, Window};
use crate::pairs::{Changes, Closed, Number, kind_index};

/// Sums of one row, as events change them.
#[derive(Clone, Debug, Default)]
struct Row {
    allocs: u64,
    failed: u64,
    requested: u128,
    allocated: u128,
    wasted: u128,
    live: u128,
    peak: u128,
    freed: u64,
    inferred: u64,
    crossed: u64,
    closed_requested: u128,
    closed_wasted: u128,
    crossed_bytes: u128,
}

/// Live bytes of several rows together, and the most they ever were.
#[derive(Clone, Copy, Debug, Default)]
struct Peak {
    live: u128,
    greatest: u128,
}

impl Peak {
    /// Bytes become live; true where there were never as many.
    #[inline]
    fn opened(&mut self, allocated: u64) -> bool {
        self.live += u128::from(allocated);
        let higher = self.live > self.greatest;
        self.greatest = self.greatest.max(self.live);
        higher
    }

    #[inline]
    fn closed(&mut self, allocated: u64) {
        self.live -= u128::from(allocated);
    }
}

/// All rows of figures.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    rows: Vec<Row>,
    kinds: [Peak; 3],
    /// `kmalloc` and `cache` together.
    total: Peak,
    pub(crate) peak_at: Option<u64>,
}

impl Ledger {
    #[inline]
    fn row(&mut self, row: u32) -> &mut Row {
        let index = row as usize;
        if index >= self.rows.len() {
            self.grow(index);
        }
        &mut self.rows[index]
    }

    #[cold]
    fn grow(&mut self, index: usize) {
        self.rows.resize(index + 1, Row::default());
    }

    /// An object becomes live; whether there were never as many live bytes.
    #[inline]
    fn open(&mut self, row: u32, kind: Kind, requested: u64, allocated: u64) -> bool {
        let sums = self.row(row);
        sums.allocs += 1;
        sums.requested += u128::from(requested);
        sums.allocated += u128::from(allocated);
        sums.wasted += u128::from(allocated.saturating_sub(requested));
        sums.live += u128::from(allocated);
        sums.peak = sums.peak.max(sums.live);
        self.kinds[kind_index(kind)].opened(allocated);
        kind != Kind::Pages && self.total.opened(allocated)
    }

    #[inline]
    fn close(&mut self, row: u32, kind: Kind, requested: u64, allocated: u64, how: Closed) {
        let sums = self.row(row);
        sums.live -= u128::from(allocated);
        sums.closed_requested += u128::from(requested);
        sums.closed_wasted += u128::from(allocated.saturating_sub(requested));
        match how {
            Closed::Freed => sums.freed += 1,
            Closed::FreedElsewhere => {
                sums.freed += 1;
                sums.crossed += 1;
                sums.crossed_bytes += u128::from(allocated);
            }
            Closed::Inferred => sums.inferred += 1,
        }
        self.kinds[kind_index(kind)].closed(allocated);
        if kind != Kind::Pages {
            self.total.closed(allocated);
        }
    }

    /// Takes the changes that a window's partitions have logged, in the window's order.
    pub(crate) fn replay(&mut self, window: &Window<Compact>, logs: &[&Log]) {
        let mut rest: Vec<&[Entry]> = logs.iter().map(|log| log.entries.as_slice()).collect();
        let mut peak = None;
        for (&owner, serial) in window.owners.iter().zip(0u32..) {
            let Some(entries) = rest.get_mut(usize::from(owner)) else { continue };
            while let Some((entry, later)) = entries.split_first()
                && entry.serial == serial
            {
                *entries = later;
                if self.apply(entry) {
                    peak = Some((serial, owner));
                }
            }
        }
        if let Some((serial, owner)) = peak {
            self.peak_at = window.event(usize::from(owner), serial).map(Keyed::key);
        }
    }

    #[inline]
    fn apply(&mut self, entry: &Entry) -> bool {
        let &Entry { row, kind, requested, allocated, .. } = entry;
        match entry.what {
            Change::Opened => return self.open(row, kind, requested, allocated),
            Change::Closed(how) => self.close(row, kind, requested, allocated, how),
            Change::Failed => self.row(row).failed += 1,
        }
        false
    }

    /// Figures of a row.
    pub(crate) fn figures(&self, row: usize) -> Figures {
        let nothing = Row::default();
        let sums = self.rows.get(row).unwrap_or(&nothing);
        Figures {
            allocs: sums.allocs,
            failed_allocs: sums.failed,
            requested: sums.requested,
            allocated: sums.allocated,
            wasted: sums.wasted,
            frees: sums.freed,
            inferred_frees: sums.inferred,
            cross_cpu: sums.crossed,
            cross_cpu_bytes: sums.crossed_bytes,
            live_objects: sums.allocs - sums.freed - sums.inferred,
            live_requested: sums.requested - sums.closed_requested,
            live_allocated: sums.live,
            live_wasted: sums.wasted - sums.closed_wasted,
            peak_live_allocated: Some(sums.peak),
            live_is_upper_bound: false,
        }
    }

    /// Greatest number of live bytes of each kind, and of `kmalloc` and `cache` together.
    pub(crate) fn peaks(&self) -> ([u128; 3], u128) {
        (self.kinds.map(|peak| peak.greatest), self.total.greatest)
    }
}

impl Changes for Ledger {
    #[inline]
    fn opened(&mut self, event: Number, class: &Class, requested: u64, allocated: u64) {
        if self.open(class.row, class.kind, requested, allocated) {
            self.peak_at = Some(event.at);
        }
    }

    #[inline]
    fn closed(&mut self, _: Number, class: &Class, requested: u64, allocated: u64, how: Closed) {
        self.close(class.row, class.kind, requested, allocated, how);
    }

    fn failed(&mut self, _: Number, class: &Class) {
        self.row(class.row).failed += 1;
    }
}

#[derive(Clone, Copy, Debug)]
enum Change {
    Opened,
    Closed(Closed),
    Failed,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    requested: u64,
    allocated: u64,
    serial: u32,
    row: u32,
    what: Change,
    kind: Kind,
}

/// What one partition changes in a window.
#[derive(Debug, Default)]
pub(crate) struct Log {
    entries: Vec<Entry>,
}

impl Log {
    pub(crate) fn clear(&mut self) {
        self.entries.clear();
    }

    #[inline]
    fn push(&mut self, event: Number, class: &Class, sizes: (u64, u64), what: Change) {
        let (requested, allocated) = sizes;
        self.entries.push(Entry { requested, allocated, serial: event.serial, row: class.row, what, kind: class.kind });
    }
}

impl Changes for Log {
    #[inline]
    fn opened(&mut self, event: Number, class: &Class, requested: u64, allocated: u64) {
        self.push(event, class, (requested, allocated), Change::Opened);
    }

    #[inline]
    fn closed(&mut self, event: Number, class: &Class, requested: u64, allocated: u64, how: Closed) {
        self.push(event, class, (requested, allocated), Change::Closed(how));
    }

    fn failed(&mut self, event: Number, class: &Class) {
        self.push(event, class, (0, 0), Change::Failed);
    }
}
