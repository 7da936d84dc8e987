//! Sums as documents have them: unsigned 64 bits, and null where the trace's clock does not give a figure.

use std::cell::Cell;

use kmemtrace_abi::clock::Agreement;
use kmemtrace_abi::event::{Kind, Space};
use kmemtrace_abi::trace::{Deferred, InputCapabilities, TraceInfo};
use serde::{Deserialize, Serialize, Serializer};

use super::row::{Field, Row, TakeMember, serialize_row};
use crate::account::figures::{Availability, Figure, Sum, figures};
use crate::account::stats::Stats;

/// A sum as the contract's unsigned 64 bits; one that does not fit is the largest number.
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
        let fits = Figure::ALL.iter().all(|figure| row.get(*figure) <= Some(u64::MAX.into()));
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
    /// What the input tells.
    pub(super) capabilities: InputCapabilities,
    /// True for a recording that has the events of deferred and bulk frees.
    pub(super) is_probed: bool,
    /// Lines of a text of one moment may be missing: sums over all lines of allocinfo are not known.
    pub(super) lacks_lines: bool,
    /// A text of counters: parts of memory, and no kinds.
    pub(super) is_of_counters: bool,
}

impl Ordering {
    /// Ordering by a clock that agrees so far.
    #[cfg(test)]
    pub(super) fn new(agreement: Agreement) -> Ordering {
        let capabilities = InputCapabilities::events(kmemtrace_abi::event::ByKind::default());
        Ordering {
            is_known: agreement != Agreement::Nothing,
            capabilities,
            is_probed: true,
            lacks_lines: false,
            is_of_counters: false,
        }
    }

    /// Ordering of no trace.
    pub(super) fn of_nothing() -> Ordering {
        let capabilities = InputCapabilities::one_moment(kmemtrace_abi::event::ByKind::default());
        Ordering { is_known: false, capabilities, is_probed: false, lacks_lines: false, is_of_counters: false }
    }

    /// Ordering of a trace.
    pub(super) fn of(info: &TraceInfo) -> Ordering {
        let InputCapabilities { past, .. } = info.capabilities;
        let is_known = past && info.keys().agreement != Agreement::Nothing;
        let is_probed = matches!(info.deferred, Some(Deferred::From(_)));
        let lacks_lines = info.text.as_ref().is_some_and(|text| text.lacks_lines);
        let is_of_counters = info.text.is_some() && info.input.name() == "meminfo";
        Ordering { is_known, capabilities: info.capabilities, is_probed, lacks_lines, is_of_counters }
    }

    /// True if figures of this kind are known. A recording without its events has none, which is 0.
    pub(super) fn tells(self, kind: Kind) -> bool {
        self.capabilities.past || self.capabilities.kinds[kind] && self.knows_sums(kind.space()) && !self.is_of_counters
    }

    /// True if sums over all rows of the space are known.
    pub(super) fn knows_sums(self, space: Space) -> bool {
        !(self.lacks_lines && space == Kind::Tag.space())
    }

    /// True if documents show the space.
    pub(super) fn shows(self, space: Space) -> bool {
        space.is_always_shown() || self.capabilities.kinds[space.kind()]
    }

    /// True if the input tells such figures.
    pub(super) fn knows(self, figures: Availability) -> bool {
        match figures {
            Availability::Always | Availability::Told => true,
            Availability::Past => self.capabilities.past,
            Availability::Ordered => self.is_known,
            Availability::Probed => self.is_probed,
        }
    }

    /// A figure of a row, if the input tells it.
    pub(super) fn figure(self, figure: Figure, stats: &Stats) -> Option<u128> {
        let is_told = stats.told.is_empty() || stats.told.has(figure);
        stats.get(figure).filter(|_| is_told && self.knows(figure.entry().known))
    }

    /// A figure of what was before the end.
    pub(super) fn past<T>(self, figure: T) -> Option<T> {
        self.capabilities.past.then_some(figure)
    }

    /// A figure that depends on the order of events.
    pub(super) fn known<T>(self, figure: T) -> Option<T> {
        self.is_known.then_some(figure)
    }
}

macro_rules! printed_stats {
    ($(
        $figure:ident $member:ident: $type:ty, $adds:ident, $known:ident, $unit:ident, $bound:ident, $title:literal,
        $meaning:literal, [$($word:literal),*];
    )*) => {
        /// The contract's members of [`Stats`]; `None` where the input does not give the figure, as by default.
        #[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
        pub struct PrintedStats {
            $(#[doc = $meaning] pub $member: Option<u64>,)*
            /// True if a gap may hide frees: live figures are upper bounds.
            pub live_is_upper_bound: bool,
        }

        impl PrintedStats {
            /// Figures of a row of a trace.
            pub fn of(stats: &Stats, info: &TraceInfo) -> PrintedStats {
                PrintedStats::new(stats, Ordering::of(info))
            }

            pub(super) fn new(stats: &Stats, ordering: Ordering) -> PrintedStats {
                PrintedStats {
                    $($member: ordering.figure(Figure::$figure, stats).map(saturated),)*
                    live_is_upper_bound: stats.live_is_upper_bound,
                }
            }

            /// The sums that were printed.
            pub(super) fn sums(&self) -> Stats {
                Stats {
                    $($member: Sum::printed_as(self.$member),)*
                    live_is_upper_bound: self.live_is_upper_bound,
                    ..Stats::default()
                }
            }

            /// True if no figure is above 0.
            pub fn is_empty(&self) -> bool {
                Figure::ALL.iter().all(|figure| self.get(*figure).unwrap_or(0) == 0)
            }

            /// A figure, if the input gives it.
            pub fn get(&self, figure: Figure) -> Option<u64> {
                match figure {
                    $(Figure::$figure => self.$member,)*
                }
            }
        }
    };
}

figures!(printed_stats);

impl Row for PrintedStats {
    fn members(&self, take: &mut TakeMember<'_>) {
        for figure in Figure::ALL {
            self.get(figure).put(figure.entry().member, take);
            if figure == Figure::PeakLiveAllocated {
                self.live_is_upper_bound.put("live_is_upper_bound", take);
            }
        }
    }
}

impl Field for PrintedStats {
    fn put(&self, _: &'static str, take: &mut TakeMember<'_>) {
        self.members(take);
    }
}

impl Serialize for PrintedStats {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serialize_row(self, serializer)
    }
}

/// Sums of kinds of which the input may say nothing: each count is null then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToldStats(pub Option<PrintedStats>);

impl ToldStats {
    /// Sums of `kind`.
    pub(super) fn of(kind: Kind, stats: &Stats, ordering: Ordering) -> ToldStats {
        ToldStats(ordering.tells(kind).then(|| PrintedStats::new(stats, ordering)))
    }
}

impl Row for ToldStats {
    fn members(&self, take: &mut TakeMember<'_>) {
        match &self.0 {
            Some(stats) => stats.members(take),
            None => PrintedStats::default().members(take),
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
    use crate::account::stats::Told;

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
            pages_allocated: Some(wide(14)),
            pages_freed: Some(wide(15)),
            pages_inferred: Some(wide(16)),
            live_pages: Some(wide(17)),
            peak_live_pages: Some(wide(18)),
            partial_frees: Some(n + 19),
            largest: Some(n + 20),
            deferred_frees: n + 21,
            bulk_frees: n + 22,
            oldest: None,
            told: Told::default(),
            failed_span: None,
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
            "peak_live_pages": null, "partial_frees": 1138, "largest": 1020, "deferred_frees": 1142, "bulk_frees": 1144,
        });
        assert_eq!(printed(&sum, Agreement::AllCpus), members);
        assert_eq!(sum.cross_cpu_bytes, 1116);
        sum.add(&figures(1));
        sum.add(&figures(2));
        assert!(sum.live_is_upper_bound);
    }

    /// A sum beyond 64 bits is printed as the largest number, and the document says that there was one.
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
