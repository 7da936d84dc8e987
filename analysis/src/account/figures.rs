//! Table of the figures of a row. Sums, documents, tables, CSV, sorting and help walk it.
//!
//! A new figure is an entry here, and the place where it is counted: [`super::tally`] for events, [`super::stats::Stats::of_text`] for
//! texts of one moment.

/// Hands the table to the macro `$then`. An entry is
/// `Variant member: type of the sum, how rows add up, when it is known, unit, (exact or bound), title, meaning, [words of --sort]`.
///
/// Rows add up by `sum`, by `max`, or not at all (`none`). `bound`: an upper bound where frees go paths without events.
macro_rules! figures {
    ($then:ident) => {
        $then! {
            Allocs allocs: u64, sum, Always, Count, exact, "ALLOCS", "Successful allocations.",
                ["allocs", "alloc_count"];
            FailedAllocs failed_allocs: u64, sum, Past, Count, exact, "FAILED", "Allocations that returned null.", [];
            Requested requested: u128, sum, Always, Bytes, exact, "REQUESTED",
                "Bytes asked for, over all allocations.", ["requested"];
            Allocated allocated: u128, sum, Always, Bytes, exact, "TOTAL",
                "Bytes handed out, over all allocations.", ["total", "allocated", "total_dynamic"];
            Wasted wasted: u128, sum, Always, Bytes, exact, "WASTED",
                "Bytes handed out and not asked for, over all allocations: cumulative.", ["wasted"];
            Frees frees: u64, sum, Past, Count, exact, "FREED", "Objects whose free was seen.",
                ["frees", "free_count"];
            InferredFrees inferred_frees: u64, sum, Past, Count, exact, "INFERRED",
                "Objects whose address was allocated again without a free event.", [];
            CrossCpu cross_cpu: u64, sum, Ordered, Count, exact, "CROSS",
                "Frees that ran on another CPU than the allocation.", ["cross"];
            LiveObjects live_objects: u64, sum, Always, Count, bound, "OBJECTS", "Objects live at the end.", [];
            LiveRequested live_requested: u128, sum, Always, Bytes, bound, "LIVE REQUESTED",
                "Bytes asked for, of the objects live at the end.", [];
            LiveAllocated live_allocated: u128, sum, Always, Bytes, bound, "LIVE",
                "Bytes of the objects live at the end.", ["live", "current_dynamic"];
            LiveWasted live_wasted: u128, sum, Always, Bytes, bound, "LIVE WASTE",
                "Bytes of the live objects that were handed out and not asked for.", ["live_wasted", "waste"];
            PeakLiveAllocated peak_live_allocated: Option<u128>, none, Ordered, Bytes, bound, "PEAK",
                "Greatest number of live bytes at any time.", ["peak"];
            PagesAllocated pages_allocated: Option<u128>, sum, Told, Count, exact, "PAGES ALLOCATED",
                "Pages allocated.", [];
            PagesFreed pages_freed: Option<u128>, sum, Past, Count, exact, "PAGES FREED",
                "Pages whose free was seen.", [];
            PagesInferred pages_inferred: Option<u128>, sum, Past, Count, exact, "PAGES INFERRED",
                "Pages that were allocated again without a free event.", [];
            LivePages live_pages: Option<u128>, sum, Told, Count, bound, "PAGES", "Pages live at the end.", [];
            PeakLivePages peak_live_pages: Option<u128>, none, Ordered, Count, bound, "PEAK PAGES",
                "Greatest number of live pages at any time.", [];
            PartialFrees partial_frees: Option<u64>, sum, Past, Count, exact, "PARTIAL FREES",
                "Free events that left a part of an allocation.", [];
            Largest largest: Option<u64>, max, Told, Bytes, exact, "LARGEST",
                "Largest requested size of one allocation; of pages: of one block.", [];
            DeferredFrees deferred_frees: u64, sum, Probed, Count, exact, "DEFERRED",
                "Objects whose free was a call of kvfree_rcu.", [];
            BulkFrees bulk_frees: u64, sum, Probed, Count, exact, "BULK",
                "Objects that were freed in bulk: by kfree_bulk or kmem_cache_free_bulk.", [];
        }
    };
}
pub(crate) use figures;

/// Unit of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FigureUnit {
    /// A number of objects, pages or events.
    Count,
    /// Bytes.
    Bytes,
}

/// Inputs that give a figure; it is null in documents of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Availability {
    /// All.
    Always,
    /// Rows that have it: of pages whose size is known, for example.
    Told,
    /// The same, but for inputs of one moment.
    Past,
    /// The same, where the clock orders events of different CPUs.
    Ordered,
    /// Recordings with the events of deferred and bulk frees.
    Probed,
}

/// Entry of the table of figures.
#[derive(Clone, Copy, Debug)]
pub struct FigureEntry {
    /// Member in documents, and column in CSV.
    pub member: &'static str,
    /// When it is known.
    pub known: Availability,
    /// Unit.
    pub unit: FigureUnit,
    /// True for a figure that is an upper bound where objects of the row are freed on paths without events.
    pub is_bound: bool,
    /// Heading in tables.
    pub title: &'static str,
    /// Explanation, one sentence.
    pub meaning: &'static str,
    /// Words of `--sort`, the first that of the contract; empty for a figure that rows are not sorted by.
    pub sort: &'static [&'static str],
}

/// Type of a sum.
pub(crate) trait Sum: Copy {
    /// The sum, if it is known.
    fn known(self) -> Option<u128>;
    /// The sum of both, as far as they are known; the largest number where a text tells more than fits.
    fn plus(self, other: Self) -> Self;
    /// What this sum has more than a part of it; nothing of what is not known.
    fn less(self, part: Self) -> Self;
    /// The sum that a document printed as `figure`.
    fn printed_as(figure: Option<u64>) -> Self;
}

macro_rules! sums {
    ($($type:ty)*) => {$(
        impl Sum for $type {
            fn known(self) -> Option<u128> {
                Some(self.into())
            }

            fn plus(self, other: $type) -> $type {
                self.saturating_add(other)
            }

            fn less(self, part: $type) -> $type {
                self.saturating_sub(part)
            }

            fn printed_as(figure: Option<u64>) -> $type {
                figure.unwrap_or(0).into()
            }
        }

        impl Sum for Option<$type> {
            fn known(self) -> Option<u128> {
                self.map(Into::into)
            }

            fn plus(self, other: Option<$type>) -> Option<$type> {
                self.zip(other).map(|(sum, more)| sum.saturating_add(more)).or(self).or(other)
            }

            fn less(self, part: Option<$type>) -> Option<$type> {
                self.map(|sum| sum.saturating_sub(part.unwrap_or(0)))
            }

            fn printed_as(figure: Option<u64>) -> Option<$type> {
                figure.map(Into::into)
            }
        }
    )*};
}

sums!(u64 u128);

macro_rules! figure_enum {
    ($(
        $figure:ident $member:ident: $type:ty, $adds:ident, $known:ident, $unit:ident, $bound:ident, $title:literal,
        $meaning:literal, [$($word:literal),*];
    )*) => {
        /// Figure of a row.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Figure {
            $(#[doc = $meaning] $figure,)*
        }

        impl Figure {
            /// All figures, in the order of documents.
            pub const ALL: [Figure; [$($title),*].len()] = [$(Figure::$figure),*];

            /// Entry of the figure in the table.
            pub const fn entry(self) -> &'static FigureEntry {
                match self {
                    $(Figure::$figure => &FigureEntry {
                        member: stringify!($member),
                        known: Availability::$known,
                        unit: FigureUnit::$unit,
                        is_bound: figure_enum!(@$bound),
                        title: $title,
                        meaning: $meaning,
                        sort: &[$($word),*],
                    },)*
                }
            }
        }
    };
    (@exact) => { false };
    (@bound) => { true };
}

figures!(figure_enum);
