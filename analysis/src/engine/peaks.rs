//! Live bytes of every row and their peaks, counted in the total order of the events, because peaks depend on it.
//!
//! One partition writes into the [`PeakTracker`] at once. Each of several partitions keeps [`LiveDeltas`] instead, and
//! [`PeakTracker::replay`] takes the entries of all of them in the order of the window: peaks over rows, kinds and all
//! together are those of one partition, because they are found by the same steps.

use kmemtrace_abi::event::{ByKind, BySpace, Kind, Space};

use crate::account::classes::Class;
use crate::account::over_time::OverTime;
use crate::account::peak::Peak;
use crate::order::merge::Keyed;
use crate::order::merger::Window;
use crate::order::pair_event::PairEvent;
use crate::pairing::pairs::{Number, PairingSink};

/// Peaks of live bytes: per row, per kind, and of `kmalloc` and `cache` together.
#[derive(Debug, Default)]
pub(crate) struct PeakTracker {
    rows: Vec<Peak>,
    kinds: ByKind<Peak>,
    /// `kmalloc` and `cache` together.
    total: Peak,
    /// Order key of the event that reached the peak of each space.
    pub(crate) peak_at: BySpace<Option<u64>>,
    /// Figures over time, where a query asks for them.
    pub(crate) over_time: Option<Box<OverTime>>,
}

impl PeakTracker {
    /// Tracker of peaks, and of figures over time.
    pub(crate) fn new(over_time: Option<Box<OverTime>>) -> PeakTracker {
        PeakTracker { over_time, ..PeakTracker::default() }
    }

    #[inline(always)]
    fn row(&mut self, row: u32) -> &mut Peak {
        let index = row as usize;
        if index < self.rows.len() { &mut self.rows[index] } else { self.grow(index) }
    }

    #[cold]
    fn grow(&mut self, index: usize) -> &mut Peak {
        self.rows.resize(index + 1, Peak::default());
        &mut self.rows[index]
    }

    /// Adds live bytes; true at a new peak of the kind's space.
    #[inline(always)]
    fn open(&mut self, row: u32, kind: Kind, allocated: u64) -> bool {
        self.row(row).allocated(allocated);
        let is_new = self.kinds[kind].allocated(allocated);
        if kind.space() == Space::Slab { self.total.allocated(allocated) } else { is_new }
    }

    #[inline(always)]
    fn close(&mut self, row: u32, kind: Kind, allocated: u64) {
        self.row(row).freed(allocated);
        self.kinds[kind].freed(allocated);
        if kind.space() == Space::Slab {
            self.total.freed(allocated);
        }
    }

    /// Applies the deltas of a window's partitions, in the window's order.
    pub(crate) fn replay(&mut self, window: &Window<PairEvent>, deltas: &[LiveDeltas]) {
        let mut rest: Vec<&[LiveChange]> = deltas.iter().map(|partition| partition.entries.as_slice()).collect();
        let mut peaks: BySpace<Option<u32>> = BySpace::default();
        for (&owner, serial) in window.owners.iter().zip(0u32..) {
            let Some(entries) = rest.get_mut(usize::from(owner)) else { continue };
            while let Some((entry, later)) = entries.split_first()
                && entry.serial == serial
            {
                *entries = later;
                if let (Some(over_time), Some(event)) = (&mut self.over_time, window.events.get(serial as usize)) {
                    over_time.change_live(event.key(), (entry.row, entry.kind), entry.allocated, entry.opens);
                }
                if !entry.opens {
                    self.close(entry.row, entry.kind, entry.allocated);
                } else if self.open(entry.row, entry.kind, entry.allocated) {
                    peaks[entry.kind.space()] = Some(serial);
                }
            }
        }
        let key = |serial: u32| window.events.get(serial as usize).map(Keyed::key);
        for (space, peak) in peaks.iter() {
            self.peak_at[space] = peak.and_then(key).or(self.peak_at[space]);
        }
    }

    /// Peak of a row, in bytes.
    pub(crate) fn peak(&self, row: usize) -> u128 {
        self.rows.get(row).map_or(0, |peak| peak.greatest)
    }

    /// Peaks of each kind, and of `kmalloc` and `cache` together, in bytes.
    pub(crate) fn peaks(&self) -> (ByKind<u128>, u128) {
        (self.kinds.map(|peak| peak.greatest), self.total.greatest)
    }
}

impl PairingSink for PeakTracker {
    #[inline(always)]
    fn allocated(&mut self, event: Number, class: &Class, allocated: u64) {
        if let Some(over_time) = &mut self.over_time {
            over_time.change_live(event.at, (class.row, class.kind), allocated, true);
        }
        if self.open(class.row, class.kind, allocated) {
            self.peak_at[class.kind.space()] = Some(event.at);
        }
    }

    #[inline(always)]
    fn freed(&mut self, event: Number, class: &Class, allocated: u64) {
        if let Some(over_time) = &mut self.over_time {
            over_time.change_live(event.at, (class.row, class.kind), allocated, false);
        }
        self.close(class.row, class.kind, allocated);
    }
}

/// Change of the live bytes by one event.
#[derive(Clone, Copy, Debug)]
struct LiveChange {
    allocated: u64,
    serial: u32,
    row: u32,
    kind: Kind,
    /// True for an allocation, false for a free.
    opens: bool,
}

/// Changes of the live bytes that one partition found in a window.
#[derive(Debug, Default)]
pub(crate) struct LiveDeltas {
    entries: Vec<LiveChange>,
}

impl LiveDeltas {
    /// Removes all entries and keeps their memory.
    pub(crate) fn cleared(mut self) -> LiveDeltas {
        self.entries.clear();
        self
    }

    #[inline]
    fn push(&mut self, event: Number, class: &Class, allocated: u64, opens: bool) {
        self.entries.push(LiveChange { allocated, serial: event.serial, row: class.row, kind: class.kind, opens });
    }
}

impl PairingSink for LiveDeltas {
    #[inline(always)]
    fn allocated(&mut self, event: Number, class: &Class, allocated: u64) {
        self.push(event, class, allocated, true);
    }

    #[inline(always)]
    fn freed(&mut self, event: Number, class: &Class, allocated: u64) {
        self.push(event, class, allocated, false);
    }
}

#[cfg(test)]
mod tests {
    use kmemtrace_tests::generate::Random;

    use super::*;
    use crate::order::gaps::LossRun;

    /// Live bytes and their peak, kept the long way.
    #[derive(Clone, Copy, Debug, Default)]
    struct Plain {
        live: u128,
        peak: u128,
    }

    impl Plain {
        fn change(&mut self, opens: bool, allocated: u64) -> bool {
            let before = self.peak;
            let bytes = u128::from(allocated);
            self.live = if opens { self.live + bytes } else { self.live - bytes };
            self.peak = self.peak.max(self.live);
            self.peak > before
        }
    }

    const ROWS: usize = 5;

    fn class(row: usize) -> Class {
        let kind = [Kind::Kmalloc, Kind::Cache, Kind::Pages, Kind::Vmalloc, Kind::Kmalloc][row];
        Class {
            row: row as u32,
            origin: row as u32,
            cache: 0,
            cache_from: None,
            reclaim: Default::default(),
            kind,
            is_sized: false,
            requested: 0,
            allocated: 0,
        }
    }

    /// Peaks of rows, kinds and the total against plain sums, with sizes whose sums exceed 64 bits: written at once by one
    /// partition, and replayed from the deltas of three partitions.
    #[test]
    fn peaks_are_those_of_plain_sums() {
        for seed in 0..300 {
            let mut random = Random::new(seed);
            let (mut rows, mut kinds, mut total) =
                ([Plain::default(); ROWS], ByKind::<Plain>::default(), Plain::default());
            let mut peak_at: BySpace<Option<u64>> = BySpace::default();
            let (mut at_once, mut replayed) = (PeakTracker::default(), PeakTracker::default());
            let mut live: Vec<(usize, u64)> = Vec::new();
            let mut deltas: Vec<LiveDeltas> = (0..3).map(|_| LiveDeltas::default()).collect();
            let mut at = 100;
            for _ in 0..5 {
                let mut window = Window::default();
                for serial in 0..40 {
                    at += random.below(2);
                    let number = Number { serial, at };
                    let owner = random.below(3) as u8;
                    window.owners.push(owner);
                    window.events.push(PairEvent { at, ..PairEvent::default() });
                    // An event may close an object and open another.
                    for _ in 0..random.below(3) {
                        let closes = random.chance(45) && !live.is_empty();
                        let (row, allocated) = if closes {
                            live.swap_remove(random.below(live.len() as u64) as usize)
                        } else {
                            let allocated = *random.pick(&[0, 1, 8, 4096, u64::MAX / 2, u64::MAX - 3, u64::MAX]);
                            (random.below(ROWS as u64) as usize, allocated)
                        };
                        let class = class(row);
                        rows[row].change(!closes, allocated);
                        let is_new = kinds[class.kind].change(!closes, allocated);
                        let is_slab = class.kind.space() == Space::Slab;
                        if if is_slab { total.change(!closes, allocated) } else { is_new } {
                            peak_at[class.kind.space()] = Some(at);
                        }
                        let own = &mut deltas[usize::from(owner)];
                        if closes {
                            at_once.freed(number, &class, allocated);
                            own.freed(number, &class, allocated);
                        } else {
                            live.push((row, allocated));
                            at_once.allocated(number, &class, allocated);
                            own.allocated(number, &class, allocated);
                        }
                    }
                }
                window.loss_runs.push(LossRun { from: 0, starts_gap: false, in_gap: false });
                replayed.replay(&window, &deltas);
                deltas = deltas.into_iter().map(LiveDeltas::cleared).collect();
            }
            for tracker in [at_once, replayed] {
                let peaks: Vec<u128> = (0..ROWS).map(|row| tracker.peak(row)).collect();
                assert_eq!(peaks, rows.map(|row| row.peak), "seed {seed}");
                assert_eq!(tracker.peaks(), (kinds.map(|kind| kind.peak), total.peak), "seed {seed}");
                assert_eq!(tracker.peak_at, peak_at, "seed {seed}");
                assert_eq!(tracker.peak(ROWS), 0, "seed {seed}");
            }
        }
    }
}
