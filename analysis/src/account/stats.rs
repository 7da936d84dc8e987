//! Sums of a row: one kind, one call-site, one cache. They are wide, so that no trace overflows them.

use kmemtrace_abi::event::Kind;
use kmemtrace_abi::listed::Amounts;
use serde::{Deserialize, Serialize};

use super::figures::{Figure, FigureUnit, Sum, figures};

/// Set of figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Told(u64);

impl Told {
    /// The set with one more figure.
    #[must_use]
    pub(crate) fn with(self, figure: Figure) -> Told {
        Told(self.0 | 1 << figure as u32)
    }

    /// True if the set has the figure.
    pub(crate) fn has(self, figure: Figure) -> bool {
        self.0 & 1 << figure as u32 != 0
    }

    /// All figures but those in bytes.
    pub(crate) fn without_bytes() -> Told {
        let is_counted = |figure: &&Figure| figure.entry().unit != FigureUnit::Bytes;
        Figure::ALL.iter().filter(is_counted).copied().fold(Told::default(), Told::with)
    }

    /// True for the empty set.
    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    fn or(self, other: Told) -> Told {
        Told(self.0 | other.0)
    }
}

macro_rules! stats {
    ($(
        $figure:ident $member:ident: $type:ty, $adds:ident, $known:ident, $unit:ident, $bound:ident, $title:literal,
        $meaning:literal, [$($word:literal),*];
    )*) => {
        /// Sums of one row, over the objects that belong to it.
        ///
        /// A free counts in the row of its allocation. Bytes are those of the allocation event: requested by the caller, and
        /// allocated for it by the kernel. Figures of pages are `None` in rows of other kinds, and where the size of a page is not
        /// known; peaks are `None` in sums of rows.
        #[derive(Clone, Debug, Default, Serialize, Deserialize)]
        pub struct Stats {
            $(#[doc = $meaning] pub $member: $type,)*
            /// True if a gap may hide frees: live figures are upper bounds.
            pub live_is_upper_bound: bool,
            /// Bytes allocated of objects freed on another CPU.
            pub cross_cpu_bytes: u128,
            /// Time of the oldest allocation, where the input tells of one moment alone.
            #[serde(skip)]
            pub(crate) oldest: Option<u64>,
            /// Figures that the input tells, of a text of one moment, and of per-CPU memory whose bytes are not known; empty: all.
            #[serde(skip)]
            pub(crate) told: Told,
            /// Order keys of the first and the last allocation that failed.
            pub(crate) failed_span: Option<(u64, u64)>,
        }

        impl Stats {
            /// A figure, if the row has it.
            pub(crate) fn get(&self, figure: Figure) -> Option<u128> {
                match figure {
                    $(Figure::$figure => self.$member.known(),)*
                }
            }

            /// Figures since the moment at which the row had those of `before`: live ones stay, peaks are not known.
            pub(crate) fn since(&self, before: &Stats) -> Stats {
                Stats {
                    $($member: stats!(@since $adds $bound self.$member, before.$member),)*
                    live_is_upper_bound: self.live_is_upper_bound,
                    cross_cpu_bytes: self.cross_cpu_bytes.saturating_sub(before.cross_cpu_bytes),
                    oldest: self.oldest,
                    told: self.told,
                    failed_span: self.failed_span,
                }
            }

            /// Adds another row.
            pub(crate) fn add(&mut self, other: &Stats) {
                $(self.$member = stats!(@$adds self.$member, other.$member);)*
                self.live_is_upper_bound |= other.live_is_upper_bound;
                self.cross_cpu_bytes += other.cross_cpu_bytes;
                self.oldest = [self.oldest, other.oldest].into_iter().flatten().min();
                self.told = self.told.or(other.told);
                let spans = [self.failed_span, other.failed_span].into_iter().flatten();
                self.failed_span = spans.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
            }
        }
    };
    (@since sum exact $sum:expr, $part:expr) => { Sum::less($sum, $part) };
    (@since sum bound $live:expr, $before:expr) => { $live };
    (@since max $bound:ident $most:expr, $before:expr) => { $most };
    (@since none $bound:ident $peak:expr, $before:expr) => { None };
    (@sum $sum:expr, $more:expr) => { Sum::plus($sum, $more) };
    (@max $most:expr, $more:expr) => { $most.max($more) };
    (@none $peak:expr, $more:expr) => { None };
}

figures!(stats);

impl Stats {
    /// True if the bytes of a row of this kind are known.
    pub(crate) fn has_bytes(&self, kind: Kind) -> bool {
        self.allocs == 0 || kind.has_size(self.requested)
    }

    /// True for a row without an allocation.
    pub(crate) fn is_empty(&self) -> bool {
        self.allocs == 0 && self.failed_allocs == 0 && self.told.is_empty()
    }

    /// Figures of an entry of a text of one moment: all of it is live, and nothing was freed. `largest`: bytes of its largest object.
    pub(crate) fn of_text(amounts: &Amounts, largest: Option<u64>) -> Stats {
        use Figure::{
            Allocated, Allocs, Largest, LiveAllocated, LiveObjects, LivePages, LiveRequested, LiveWasted,
            PagesAllocated, Requested, Wasted,
        };
        let told = [
            (amounts.objects.is_some(), [Allocs, LiveObjects]),
            (amounts.requested.is_some(), [Requested, LiveRequested]),
            (amounts.allocated.is_some(), [Allocated, LiveAllocated]),
            (amounts.wasted.is_some(), [Wasted, LiveWasted]),
            (amounts.pages.is_some(), [PagesAllocated, LivePages]),
            (largest.is_some(), [Largest; 2]),
        ];
        let told = told.into_iter().filter(|(is_told, _)| *is_told).flat_map(|(_, figures)| figures);
        let objects = amounts.objects.unwrap_or(0);
        let [requested, allocated, wasted] =
            [amounts.requested, amounts.allocated, amounts.wasted].map(|bytes| u128::from(bytes.unwrap_or(0)));
        let pages = amounts.pages.map(Into::into);
        Stats {
            allocs: objects,
            requested,
            allocated,
            wasted,
            live_objects: objects,
            live_requested: requested,
            live_allocated: allocated,
            live_wasted: wasted,
            pages_allocated: pages,
            live_pages: pages,
            largest,
            // Without any figure, too, the row is one of a text: the largest object stays null.
            told: told.fold(Told::default().with(Largest), Told::with),
            ..Stats::default()
        }
    }

    /// Makes these the figures of a row of pages that have `page_bytes` each, with this peak in bytes. `is_known`: numbers of pages are
    /// known; `tells_frames`: each event tells its frames, so that blocks may be freed in parts.
    pub(crate) fn set_pages(&mut self, peak: u128, page_bytes: Option<u64>, (is_known, tells_frames): (bool, bool)) {
        let pages = [&mut self.pages_allocated, &mut self.pages_freed, &mut self.pages_inferred, &mut self.live_pages];
        pages.into_iter().for_each(|pages| *pages = is_known.then_some(pages.unwrap_or(0)));
        self.partial_frees = tells_frames.then_some(self.partial_frees.unwrap_or(0));
        let peak = page_bytes.and_then(|size| peak.checked_div(size.into()));
        // A row without a successful allocation has no pages, either.
        self.peak_live_pages = if is_known && self.pages_allocated == Some(0) { Some(0) } else { peak };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_allocated_since_is_a_difference_and_what_is_live_is_not() {
        let before = Stats { allocs: 3, requested: 30, live_objects: 2, live_allocated: 20, ..Stats::default() };
        let end = Stats {
            allocs: 5,
            requested: 70,
            frees: 1,
            live_objects: 4,
            live_allocated: 50,
            peak_live_allocated: Some(60),
            pages_freed: Some(7),
            ..Stats::default()
        };
        let since = end.since(&before);
        assert_eq!((since.allocs, since.requested, since.frees, since.pages_freed), (2, 40, 1, Some(7)));
        assert_eq!((since.live_objects, since.live_allocated, since.peak_live_allocated), (4, 50, None));
    }

    #[test]
    fn a_row_without_an_allocation_is_empty() {
        assert!(Stats { frees: 1, ..Stats::default() }.is_empty());
        assert!(!Stats { allocs: 1, ..Stats::default() }.is_empty());
        assert!(!Stats { failed_allocs: 1, ..Stats::default() }.is_empty());
    }
}
