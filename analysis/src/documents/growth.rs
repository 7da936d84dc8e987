//! `growth`: live bytes and allocations of each row in slices of time.

use std::cmp::Reverse;

use kmemtrace_abi::event::{BySpace, Kind, Space};
use serde::Serialize;

use super::group::{GroupNames, GroupNaming};
use super::ranked::{Listing, Others, SpaceSums};
use super::row::{Cell, Field, Rows, TakeMember, row};
use super::sums::{Ordering, Saturation, saturated};
use crate::account::grouping::RowKey;
use crate::account::growth::Growth;
use crate::pairing::result::PairingResult;

row! {
    /// Row of `growth`.
    pub struct GrowthRow<'a> {
        /// Values of the keys.
        pub names: GroupNames<'a>,
        /// Part of memory, of a text of counters.
        pub part: PartName,
        /// Kind of the objects; `None` for a part of memory.
        pub kind: Option<Kind>,
        /// Live bytes and allocations.
        pub slices: SliceFigures,
        /// True if the kernel takes the objects back by itself; `None` where their cache is not known, or the query does not ask for it.
        pub reclaimable: Option<bool>,
        /// `flag` or `list`.
        pub reclaimable_from: Option<&'static str>,
    }
}

row! {
    /// Figures of each slice.
    pub struct SliceFigures {
        /// Live bytes at the end of each slice; `None` where texts do not give bytes.
        pub live_allocated: Option<Vec<u64>>,
        /// Live objects at each text, where the texts do not give bytes.
        pub live_objects: ObjectCounts,
        /// Number of allocations in each slice; `None` for a series of texts.
        pub allocs: Option<Vec<u64>>,
        /// Whether some of what is live may be gone.
        pub bound: UpperBound,
    }
}

/// True if objects are also freed on paths without events. It has no member of its own: `live` has that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UpperBound(pub bool);

impl Field for UpperBound {
    fn put(&self, _: &'static str, _: &mut TakeMember<'_>) {}
}

/// Live objects at each text of a series; no member where it is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectCounts(pub Option<Vec<u64>>);

/// Name of a part of memory; no member where it is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartName(pub Option<&'static str>);

impl Field for PartName {
    fn put(&self, name: &'static str, take: &mut TakeMember<'_>) {
        if self.0.is_some() {
            self.0.put(name, take);
        }
    }
}

impl Field for ObjectCounts {
    fn put(&self, name: &'static str, take: &mut TakeMember<'_>) {
        if let Some(counts) = &self.0 {
            take(name, Cell::Counts(counts));
        }
    }
}

impl SliceFigures {
    pub(super) fn none(slices: usize) -> SliceFigures {
        let zeros = || Some(vec![0; slices]);
        SliceFigures { live_allocated: zeros(), allocs: zeros(), ..SliceFigures::untold() }
    }

    /// Figures of which none is known.
    pub(super) fn untold() -> SliceFigures {
        let live_objects = ObjectCounts::default();
        SliceFigures { live_allocated: None, live_objects, allocs: None, bound: UpperBound::default() }
    }

    /// Live bytes, or live objects where these are not known.
    pub fn live(&self) -> &[u64] {
        self.live_allocated.as_ref().or(self.live_objects.0.as_ref()).map_or(&[], Vec::as_slice)
    }

    fn of(growth: &Growth, (row, has_bytes): (usize, bool), bound: UpperBound) -> SliceFigures {
        let live = growth.live(row).into_iter().map(|bytes| saturated(bytes.max(0).cast_unsigned()));
        SliceFigures {
            live_allocated: has_bytes.then(|| live.collect()),
            allocs: Some(growth.allocs(row)),
            bound,
            ..SliceFigures::untold()
        }
    }

    pub(super) fn add(&mut self, other: &SliceFigures, saturation: &Saturation) {
        let add = |sums: &mut Option<Vec<u64>>, more: &Option<Vec<u64>>| {
            let Some(more) = more else { return };
            let sums = sums.get_or_insert_with(|| vec![0; more.len()]);
            let pairs = sums.iter_mut().zip(more);
            pairs.for_each(|(sum, n)| *sum = saturation.sum(u128::from(*sum) + u128::from(*n)));
        };
        add(&mut self.live_allocated, &other.live_allocated);
        add(&mut self.live_objects.0, &other.live_objects.0);
        add(&mut self.allocs, &other.allocs);
        self.bound.0 |= other.bound.0;
    }

    /// Live bytes at the end less those at the end of the first slice.
    pub fn grown(&self) -> i128 {
        let at = |slice: Option<&u64>| i128::from(slice.copied().unwrap_or(0));
        at(self.live().last()) - at(self.live().first())
    }
}

/// Body of `growth`.
#[derive(Serialize)]
pub struct GrowthBody<'a> {
    /// Order keys at which the slices end: the first key beyond each.
    pub slices: Vec<u64>,
    /// Source of the times of a series of texts; `None` for other inputs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slices_from: Option<&'static str>,
    /// Sums of all rows.
    #[serde(flatten)]
    pub totals: SpaceSums<SliceFigures>,
    /// Rows that grew most first.
    #[serde(flatten)]
    pub listing: Listing<'a, GrowthRow<'a>, SliceFigures>,
}

/// The body of `growth`; without slices for an analysis whose query asked for none.
pub(super) fn growth<'a>(
    paired: &'a PairingResult,
    naming: GroupNaming<'a>,
    top: Option<usize>,
    (saturation, ordering): (&Saturation, Ordering),
) -> GrowthBody<'a> {
    let Some(growth) = &paired.growth else {
        let listing = Listing::new(Rows::new(0, |_| unused()), None, None);
        let totals = SpaceSums::new("total", ordering, |_| SliceFigures::none(0));
        return GrowthBody { slices: Vec::new(), slices_from: None, totals, listing };
    };
    let of = |index: usize| {
        let (key, stats) = &paired.rows[index];
        SliceFigures::of(growth, (index, stats.has_bytes(key.kind)), UpperBound(stats.live_is_upper_bound))
    };
    let mut totals = BySpace::from_fn(|_| SliceFigures::none(growth.len()));
    let mut tells_bytes = BySpace::from_fn(|_| true);
    let mut rows = Vec::new();
    for (index, (key, stats)) in paired.rows.iter().enumerate() {
        for bytes in growth.live(index) {
            saturation.sum(bytes.max(0).cast_unsigned());
        }
        let figures = of(index);
        totals[key.kind.space()].add(&figures, saturation);
        tells_bytes[key.kind.space()] &= figures.live_allocated.is_some();
        if stats.allocs > 0 || !stats.told.is_empty() {
            rows.push((Reverse(figures.grown()), naming.place(*key), key.kind, index));
        }
    }
    for space in Space::ALL.into_iter().filter(|space| !tells_bytes[*space]) {
        totals[space].live_allocated = None;
    }
    rows.sort_unstable();
    let rest = rows.split_off(top.unwrap_or(rows.len()).min(rows.len()));
    let others = Others::of_spaces(rest.len(), ordering, |space| {
        let mut sum = SliceFigures::none(growth.len());
        let rest = || rest.iter().filter(|(.., index)| paired.rows[*index].0.kind.space() == space);
        let has_bytes = rest().all(|(.., index)| of(*index).live_allocated.is_some());
        rest().for_each(|(.., index)| sum.add(&of(*index), saturation));
        sum.live_allocated = sum.live_allocated.filter(|_| has_bytes);
        sum
    });
    let stacks = naming.stack_members();
    let make = move |index: usize| {
        let key: RowKey = paired.rows[index].0;
        let reclaim = paired.reclaim(index);
        GrowthRow {
            names: naming.names(key),
            part: PartName::default(),
            kind: Some(key.kind),
            slices: of(index),
            reclaimable: reclaim.is_reclaimable(),
            reclaimable_from: reclaim.from(),
        }
    };
    let template = rows.first().or(rest.first()).map(|(.., index)| make(*index));
    let rows: Vec<usize> = rows.into_iter().map(|(.., index)| index).collect();
    let totals = SpaceSums::new("total", ordering, |space| totals[space].clone());
    let listing = Listing { stacks, ..Listing::new(Rows::of(rows, move |index| make(*index)), others, template) };
    GrowthBody { slices: growth.ends().collect(), slices_from: None, totals, listing }
}

/// Row of an empty list.
fn unused<'a>() -> GrowthRow<'a> {
    GrowthRow {
        names: GroupNames(Vec::new()),
        part: PartName::default(),
        kind: Some(Kind::Kmalloc),
        slices: SliceFigures::none(0),
        reclaimable: None,
        reclaimable_from: None,
    }
}
