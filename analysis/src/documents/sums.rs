//! Sums as documents have them: unsigned 64 bits, and null where the trace's clock does not tell a figure.

use std::cell::Cell;

use kmemtrace_abi::clock::Agreement;
use kmemtrace_abi::event::Kind;
use kmemtrace_abi::trace::TraceInfo;
use serde::{Serialize, Serializer};

use super::row::{Cell as Member, Field, Row, TakeMember, row, serialize_row};
use crate::account::stats::{PageStats, Stats};

/// A sum as the contract's unsigned 64 bits; one that does not fit is the greatest number.
pub(super) fn saturated(sum: u128) -> u64 {
    u64::try_from(sum).unwrap_or(u64::MAX)
}

/// Record of whether a printed sum did not fit 64 bits.
#[derive(Debug, Default)]
pub(super) struct Saturation(Cell<bool>);

impl Saturation {
    /// A sum as 64 bits.
    pub(super) fn sum(&self, sum: u128) -> u64 {
        self.0.set(self.has_occurred() || sum > u64::MAX.into());
        saturated(sum)
    }

    /// Checks the figures of a row that is printed later.
    pub(super) fn check(&self, row: &Stats) {
        let live = [row.live_requested, row.live_allocated, row.live_wasted, row.peak_live_allocated.unwrap_or(0)];
        let pages = row.pages.map_or([0; 2], |pages| [pages.allocated, pages.peak_live.unwrap_or(0)]);
        let sums = [row.requested, row.allocated, row.wasted].into_iter().chain(live).chain(pages);
        let fits = sums.into_iter().all(|sum| sum <= u64::MAX.into());
        self.0.set(self.has_occurred() || !fits);
    }

    /// True once a sum did not fit.
    pub(super) fn has_occurred(&self) -> bool {
        self.0.get()
    }
}

/// Agreement of the trace's clock between CPUs: without one, figures that depend on the order of events are not known.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ordering {
    pub(super) is_known: bool,
    /// False for an input that has what is live at one moment alone: frees and peaks are not known.
    pub(super) has_past: bool,
}

impl Ordering {
    /// Ordering by a clock that agrees so far.
    pub(super) fn new(agreement: Agreement) -> Ordering {
        Ordering { is_known: agreement != Agreement::Nothing, has_past: true }
    }

    /// Ordering of a trace.
    pub(super) fn of(info: &TraceInfo) -> Ordering {
        let has_past = !info.input.is_of_one_moment();
        let ordering = Ordering::new(info.keys().agreement);
        Ordering { is_known: ordering.is_known && has_past, has_past }
    }

    /// True if the input tells of objects of this kind: one that has what is live at one moment alone tells of pages.
    pub(super) fn tells(self, kind: Kind) -> bool {
        self.has_past || kind == Kind::Pages
    }

    /// A figure of what was before the end.
    pub(super) fn past<T>(self, figure: T) -> Option<T> {
        self.has_past.then_some(figure)
    }

    /// A figure that depends on the order of events.
    pub(super) fn known<T>(self, figure: T) -> Option<T> {
        self.is_known.then_some(figure)
    }
}

row! {
    /// The contract's members of [`Stats`]. Those of nothing are the default.
    #[derive(Default)]
    pub struct PrintedStats {
        /// Number of allocations.
        pub allocs: u64,
        /// Number of allocations that returned a null pointer; `None` for an input of one moment, as all figures of frees and peaks.
        pub failed_allocs: Option<u64>,
        /// Bytes requested.
        pub requested: u64,
        /// Bytes allocated.
        pub allocated: u64,
        /// Bytes allocated and not requested.
        pub wasted: u64,
        /// Number of frees that were paired.
        pub frees: Option<u64>,
        /// Number of objects whose address was allocated again without a free.
        pub inferred_frees: Option<u64>,
        /// Number of frees on another CPU; `None` if the clock orders no events.
        pub cross_cpu: Option<u64>,
        /// Number of objects live at the end.
        pub live_objects: u64,
        /// Bytes requested for live objects.
        pub live_requested: u64,
        /// Bytes allocated for live objects.
        pub live_allocated: u64,
        /// Bytes wasted by live objects.
        pub live_wasted: u64,
        /// Greatest number of live bytes; `None` in sums of rows, and if the clock orders no events.
        pub peak_live_allocated: Option<u64>,
        /// True if a gap may hide frees: live figures are upper bounds.
        pub live_is_upper_bound: bool,
        /// Number of pages allocated; this and the next ones are `None` for other kinds than `pages`, and where the size of a
        /// page is not known.
        pub pages_allocated: Option<u64>,
        /// Number of pages freed.
        pub pages_freed: Option<u64>,
        /// Number of pages allocated again without a free.
        pub pages_inferred: Option<u64>,
        /// Number of pages live at the end.
        pub live_pages: Option<u64>,
        /// Greatest number of live pages; `None` also in sums of rows, and if the clock orders no events.
        pub peak_live_pages: Option<u64>,
        /// Number of free events that left a part of an allocation; `None` also where events do not tell their frames.
        pub partial_frees: Option<u64>,
    }
}

impl PrintedStats {
    /// Figures of a row of a trace.
    pub fn of(stats: &Stats, info: &TraceInfo) -> PrintedStats {
        PrintedStats::new(stats, Ordering::of(info))
    }

    pub(super) fn new(stats: &Stats, ordering: Ordering) -> PrintedStats {
        let pages = |figure: fn(&PageStats) -> u128| stats.pages.as_ref().map(|pages| saturated(figure(pages)));
        PrintedStats {
            allocs: stats.allocs,
            failed_allocs: ordering.past(stats.failed_allocs),
            requested: saturated(stats.requested),
            allocated: saturated(stats.allocated),
            wasted: saturated(stats.wasted),
            frees: ordering.past(stats.frees),
            inferred_frees: ordering.past(stats.inferred_frees),
            cross_cpu: ordering.known(stats.cross_cpu),
            live_objects: stats.live_objects,
            live_requested: saturated(stats.live_requested),
            live_allocated: saturated(stats.live_allocated),
            live_wasted: saturated(stats.live_wasted),
            peak_live_allocated: ordering.known(stats.peak_live_allocated.map(saturated)).flatten(),
            live_is_upper_bound: stats.live_is_upper_bound,
            pages_allocated: pages(|pages| pages.allocated),
            pages_freed: ordering.past(pages(|pages| pages.freed)).flatten(),
            pages_inferred: ordering.past(pages(|pages| pages.inferred)).flatten(),
            live_pages: pages(|pages| pages.live),
            peak_live_pages: ordering.known(stats.pages.and_then(|pages| pages.peak_live).map(saturated)).flatten(),
            partial_frees: ordering.past(stats.pages.and_then(|pages| pages.partial_frees)).flatten(),
        }
    }
}

/// Sums of kinds of which the input may tell nothing: each count is null then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToldStats(pub Option<PrintedStats>);

impl ToldStats {
    /// Sums of `kind`.
    pub(super) fn of(kind: Kind, stats: &Stats, ordering: Ordering) -> ToldStats {
        ToldStats(ordering.tells(kind).then(|| PrintedStats::new(stats, ordering)))
    }

    /// Sums of pages, or of `kmalloc` and `cache`.
    pub(super) fn of_pages(is_pages: bool, stats: &Stats, ordering: Ordering) -> ToldStats {
        ToldStats::of(if is_pages { Kind::Pages } else { Kind::Kmalloc }, stats, ordering)
    }
}

impl Row for ToldStats {
    fn members(&self, take: &mut TakeMember<'_>) {
        match &self.0 {
            Some(stats) => stats.members(take),
            None => PrintedStats::default().members(&mut |member, value| match value {
                Member::Count(_) => take(member, Member::Null),
                other => take(member, other),
            }),
        }
    }
}

impl Field for ToldStats {
    fn put(&self, _: &'static str, take: &mut TakeMember<'_>) {
        self.members(take);
    }
}

impl Serialize for ToldStats {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serialize_row(self, serializer)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn printed(stats: &Stats, agreement: Agreement) -> Value {
        json!(PrintedStats::new(stats, Ordering::new(agreement)))
    }

    /// A row whose figures are `n` and the numbers after it.
    fn figures(n: u64) -> Stats {
        let wide = |more: u64| u128::from(n + more);
        Stats {
            allocs: n,
            failed_allocs: n + 1,
            requested: wide(2),
            allocated: wide(3),
            wasted: wide(4),
            frees: n + 5,
            inferred_frees: n + 6,
            cross_cpu: n + 7,
            cross_cpu_bytes: wide(8),
            live_objects: n + 9,
            live_requested: wide(10),
            live_allocated: wide(11),
            live_wasted: wide(12),
            peak_live_allocated: Some(wide(13)),
            live_is_upper_bound: n % 2 == 1,
            pages: Some(PageStats {
                allocated: wide(14),
                freed: wide(15),
                inferred: wide(16),
                live: wide(17),
                peak_live: Some(wide(18)),
                partial_frees: Some(n + 19),
            }),
            oldest: None,
        }
    }

    #[test]
    fn rows_add_up_in_every_figure_but_the_peak() {
        let mut sum = figures(100);
        sum.add(&figures(1000));
        let members = json!({
            "allocs": 1100, "failed_allocs": 1102, "requested": 1104, "allocated": 1106, "wasted": 1108, "frees": 1110,
            "inferred_frees": 1112, "cross_cpu": 1114, "live_objects": 1118, "live_requested": 1120,
            "live_allocated": 1122, "live_wasted": 1124, "peak_live_allocated": null, "live_is_upper_bound": false,
            "pages_allocated": 1128, "pages_freed": 1130, "pages_inferred": 1132, "live_pages": 1134,
            "peak_live_pages": null, "partial_frees": 1138,
        });
        assert_eq!(printed(&sum, Agreement::AllCpus), members);
        assert_eq!(sum.cross_cpu_bytes, 1116);
        sum.add(&figures(1));
        sum.add(&figures(2));
        assert!(sum.live_is_upper_bound);
    }

    /// A sum beyond 64 bits is printed as the greatest number, and the document says that there was one.
    #[test]
    fn sums_that_do_not_fit_are_the_greatest_number() {
        let max = u128::from(u64::MAX);
        for (sum, shown, is_saturated) in
            [(max - 1, u64::MAX - 1, false), (max, u64::MAX, false), (max + 1, u64::MAX, true)]
        {
            let saturation = Saturation::default();
            assert_eq!((saturation.sum(sum), saturation.has_occurred()), (shown, is_saturated));
            assert_eq!((saturation.sum(1), saturation.has_occurred()), (1, is_saturated));
            let rows: [fn(&mut Stats) -> &mut u128; 6] = [
                |row| &mut row.requested,
                |row| &mut row.allocated,
                |row| &mut row.wasted,
                |row| &mut row.live_requested,
                |row| &mut row.live_allocated,
                |row| &mut row.live_wasted,
            ];
            for member in rows {
                let (mut row, saturation) = (figures(1), Saturation::default());
                *member(&mut row) = sum;
                saturation.check(&row);
                assert_eq!(saturation.has_occurred(), is_saturated);
                saturation.check(&figures(1));
                assert_eq!(saturation.has_occurred(), is_saturated);
            }
            let (saturation, row) = (Saturation::default(), Stats { peak_live_allocated: Some(sum), ..figures(1) });
            saturation.check(&row);
            assert_eq!(printed(&row, Agreement::AllCpus)["peak_live_allocated"], json!(shown));
            assert_eq!(saturation.has_occurred(), is_saturated);
        }
    }

    /// A clock that puts events in no order tells no figure that depends on it.
    #[test]
    fn figures_that_need_an_order_are_null_without_one() {
        for (agreement, is_known) in
            [(Agreement::AllCpus, true), (Agreement::OneCpu, true), (Agreement::Nothing, false)]
        {
            let row = printed(&figures(1), agreement);
            let members = row.as_object().unwrap();
            let null: Vec<&str> =
                members.iter().filter(|(_, value)| value.is_null()).map(|(name, _)| &**name).collect();
            assert_eq!(
                null,
                if is_known { vec![] } else { vec!["cross_cpu", "peak_live_allocated", "peak_live_pages"] }
            );
            assert_eq!(Ordering::new(agreement).known(3), is_known.then_some(3));
        }
    }
}
