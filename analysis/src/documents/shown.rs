//! Spaces that a view of tasks, modules, uses or stacks shows.

use kmemtrace_abi::event::{BySpace, Kind, Space};

use super::ranked::SortKey;
use super::sums::Ordering;
use crate::account::stats::Stats;
use crate::analysis::Analysis;

/// Spaces that a view shows, each in rows of its own.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shown(BySpace<bool>);

impl Shown {
    /// Spaces of the kinds that were asked for, else one: pages where they were recorded, else slab, else what was recorded.
    pub(super) fn of(analysis: &Analysis) -> Shown {
        let asked = |space| analysis.kinds.iter().any(|kind| kind.space() == space);
        let has = |space: &Space| Kind::ALL.into_iter().any(|kind| kind.space() == *space && analysis.paired.has[kind]);
        let recorded = || Space::PAGES_FIRST.into_iter().find(has).unwrap_or(Space::Slab);
        if analysis.kinds.is_empty() { Shown::one(recorded()) } else { Shown(BySpace::from_fn(asked)) }
    }

    pub(super) fn one(space: Space) -> Shown {
        Shown(BySpace::from_fn(|of| of == space))
    }

    pub(super) fn takes(self, kind: Kind) -> bool {
        self.0[kind.space()]
    }

    /// The only space, or the one of several that a tree shows: slab if it is among them.
    pub(super) fn tree_space(self) -> Space {
        Space::ALL.into_iter().find(|&space| self.0[space]).unwrap_or(Space::Slab)
    }

    /// Words of documents.
    pub(super) fn name(self) -> String {
        let names = Space::PAGES_FIRST.into_iter().filter(|&space| self.0[space]).map(Space::name);
        names.collect::<Vec<_>>().join(" and ")
    }
}

/// Sums of a row, with the growth of its live bytes, if it was counted.
#[derive(Clone, Debug, Default)]
pub(super) struct Grown {
    pub(super) stats: Stats,
    pub(super) grew: Option<i128>,
}

impl Grown {
    pub(super) fn add(&mut self, other: &Grown) {
        self.stats.add(&other.stats);
        self.grew = match (self.grew, other.grew) {
            (Some(sum), Some(grew)) => Some(sum.saturating_add(grew)),
            (sum, grew) => sum.or(grew),
        };
    }

    /// Sets the peak of a node, in bytes; a page has `page_bytes`.
    pub(super) fn set_peak(&mut self, peak: u128, page_bytes: Option<u64>) {
        self.stats.peak_live_allocated = Some(peak);
        let of_pages = self.stats.pages_allocated.and(page_bytes);
        self.stats.peak_live_pages = of_pages.and_then(|bytes| peak.checked_div(bytes.into()));
    }

    /// Figure of a sort key.
    pub(super) fn figure(&self, key: SortKey, ordering: Ordering) -> i128 {
        match key {
            SortKey::Growth => self.grew.unwrap_or(0),
            key => i128::try_from(key.of(&self.stats, ordering)).unwrap_or(i128::MAX),
        }
    }

    /// Growth as documents have it.
    pub(super) fn printed_growth(&self) -> Option<i64> {
        let fits = |grew: i128| i64::try_from(grew).unwrap_or(if grew < 0 { i64::MIN } else { i64::MAX });
        self.grew.map(fits)
    }
}

/// Sums of each row of an analysis, by its number.
pub(super) fn rows(analysis: &Analysis) -> impl Iterator<Item = Grown> + '_ {
    let paired = &analysis.paired;
    paired.rows.iter().enumerate().map(|(index, (_, stats))| {
        let grew = paired.growth.as_ref().map(|growth| {
            let live = growth.live(index);
            live.last().copied().unwrap_or(0).saturating_sub(live.first().copied().unwrap_or(0))
        });
        Grown { stats: stats.clone(), grew }
    })
}

/// Takes off the rows beyond the limits, the largest of which come first: those beyond the number `top`, and beyond the largest that
/// make up `throttle` percent of all.
pub(super) fn cut_off<T>(
    rows: &mut Vec<T>,
    figure: impl Fn(&T) -> i128,
    throttle: Option<f64>,
    top: Option<usize>,
) -> Vec<T> {
    let kept = throttle.map_or(rows.len(), |percent| {
        let figures: Vec<i128> = rows.iter().map(|row| figure(row).max(0)).collect();
        kept(&figures, percent)
    });
    rows.split_off(kept.min(top.unwrap_or(kept)))
}

/// Number of the largest figures, which are sorted, that make up so many percent of all.
fn kept(figures: &[i128], percent: f64) -> usize {
    let all: i128 = figures.iter().sum();
    let mut sum = 0i128;
    let enough = |figure: &i128| {
        let is_enough = sum as f64 >= all as f64 * percent / 100.0;
        sum += figure;
        is_enough
    };
    figures.iter().position(enough).unwrap_or(figures.len())
}

#[cfg(test)]
mod tests {
    use super::kept;

    #[test]
    fn the_greatest_that_make_up_a_share_are_kept() {
        let figures = [50, 30, 15, 5];
        for (percent, want) in [(0.0, 0), (50.0, 1), (51.0, 2), (80.0, 2), (95.0, 3), (100.0, 4)] {
            assert_eq!(kept(&figures, percent), want, "{percent}");
        }
        assert_eq!((kept(&[0, 0], 80.0), kept(&[], 80.0)), (0, 0));
    }
}
