//! `live`: objects that are live at the end, summed by the keys of the query.

use std::cmp::Reverse;

use kmemtrace_abi::event::Kind;

use super::group::{GroupNames, GroupNaming};
use super::ranked::{Listing, Others, Shape, SortKey, sum_of};
use super::row::{Rows, row};
use super::sums::{Ordering, Saturation, ToldStats, saturated};
use super::text_members::TextMembers;
use crate::account::completeness::MergeStats;
use crate::account::figures::Figure;
use crate::account::grouping::RowKey;
use crate::account::stats::Stats;
use crate::pairing::result::PairingResult;

row! {
    /// Row of `live`: the live objects of one group.
    pub struct LiveGroupRow<'a> {
        /// Values of the keys.
        pub names: GroupNames<'a>,
        /// Kind of the objects.
        pub kind: Kind,
        /// Number of live objects.
        pub live_objects: Option<u64>,
        /// Bytes requested for them.
        pub live_requested: Option<u64>,
        /// Bytes allocated for them.
        pub live_allocated: Option<u64>,
        /// Bytes that they waste.
        pub live_wasted: Option<u64>,
        /// True if objects of this group are also freed on paths without events, so some may be gone.
        pub live_is_upper_bound: bool,
        /// Order key of the first allocation of a live object; `None` where the input gives no times.
        pub oldest: Option<u64>,
        /// Order key of the allocation in the middle, the earlier of two.
        pub median: Option<u64>,
        /// Live bytes at the end less those at the last end of a slice within nine tenths of the recording; `None` without growth.
        pub grew: Option<i64>,
        /// True if the kernel takes the objects back by itself; `None` where their cache is not known, or the query does not ask for it.
        pub reclaimable: Option<bool>,
        /// `flag` or `list`.
        pub reclaimable_from: Option<&'static str>,
        /// Members of a text of one moment.
        pub text: TextMembers,
    }
}

/// Order keys of the first live object of a row and of the one in the middle.
#[derive(Clone, Copy, Debug, Default)]
struct Ages {
    seen: u64,
    oldest: Option<u64>,
    median: Option<u64>,
}

/// Ages of the live objects, by row. The list is in order; objects of a text without a time stand at 0.
fn ages(paired: &PairingResult, is_of_text: bool) -> Vec<Ages> {
    let mut ages = vec![Ages::default(); paired.rows.len()];
    let mut timed: Vec<u64> = paired.rows.iter().map(|(_, stats)| stats.live_objects).collect();
    let listed = || paired.live.iter().filter(|object| !is_of_text || object.alloc_info.at != 0);
    if is_of_text {
        timed.fill(0);
        listed().for_each(|object| timed[paired.class(&object).row as usize] += 1);
    }
    for object in listed() {
        let row = paired.class(&object).row as usize;
        let (Some(row), Some(objects)) = (ages.get_mut(row), timed.get(row)) else { continue };
        if row.seen == 0 {
            row.oldest = Some(object.alloc_info.at);
        }
        if row.seen == objects.saturating_sub(1) / 2 {
            row.median = Some(object.alloc_info.at);
        }
        row.seen += 1;
    }
    ages
}

/// The listing of `live`, most live bytes first if no sort key is given.
pub(super) fn live_groups<'a>(
    paired: &'a PairingResult,
    naming: GroupNaming<'a>,
    order: &MergeStats,
    shape: &Shape,
    (saturation, ordering): (&Saturation, Ordering),
) -> Listing<'a, LiveGroupRow<'a>, ToldStats> {
    let ages = ages(paired, !ordering.capabilities.past);
    let last = order.last.unwrap_or(0);
    let grew = move |index: usize| {
        // Memory that was given back before the moment of a page_owner text is in none of its blocks.
        let (key, stats) = &paired.rows[index];
        let growth = paired.growth.as_ref().filter(|_| ordering.capabilities.past && stats.has_bytes(key.kind))?;
        let before = growth.live_at(index, growth.nine_tenths(last));
        let grew = i128::try_from(stats.live_allocated).unwrap_or(i128::MAX).saturating_sub(before);
        Some(i64::try_from(grew).unwrap_or(if grew < 0 { i64::MIN } else { i64::MAX }))
    };
    let keys = if shape.sort.is_empty() { &[SortKey::Figure(Figure::LiveAllocated)][..] } else { &shape.sort };
    let ranks = |index: usize| -> Vec<Reverse<i128>> {
        let rank = |key: &SortKey| match key {
            SortKey::Growth => grew(index).unwrap_or(0).into(),
            key => i128::try_from(key.of(&paired.rows[index].1, ordering)).unwrap_or(i128::MAX),
        };
        keys.iter().map(|key| Reverse(rank(key))).collect()
    };
    let is_listed = |stats: &Stats| stats.live_objects > 0 || !ordering.capabilities.past && !stats.told.is_empty();
    let rows = paired.rows.iter().enumerate().filter(|(_, (_, stats))| is_listed(stats));
    let place = |(index, (key, _)): (usize, &(RowKey, Stats))| (ranks(index), naming.place(*key), key.kind, index);
    let mut rows: Vec<_> = rows.map(place).collect();
    rows.sort_unstable();
    let rest = rows.split_off(shape.top.unwrap_or(rows.len()).min(rows.len()));
    let others = Others::of_spaces(rest.len(), ordering, |space| {
        let rest = rest.iter().map(|(.., index)| &paired.rows[*index]).filter(|(key, _)| key.kind.space() == space);
        sum_of(rest.map(|(_, stats)| stats), space, (saturation, ordering))
    });
    rows.iter().for_each(|(.., index)| saturation.check(&paired.rows[*index].1));
    let stacks = naming.stack_members();
    let text = naming.text;
    let figure = move |figure, stats: &Stats| ordering.figure(figure, stats).map(saturated);
    let make = move |index: usize| {
        let (key, stats) = &paired.rows[index];
        LiveGroupRow {
            names: naming.names(*key),
            kind: key.kind,
            live_objects: figure(Figure::LiveObjects, stats),
            live_requested: figure(Figure::LiveRequested, stats),
            live_allocated: figure(Figure::LiveAllocated, stats),
            live_wasted: figure(Figure::LiveWasted, stats),
            live_is_upper_bound: stats.live_is_upper_bound,
            oldest: ages[index].oldest,
            median: ages[index].median,
            grew: grew(index),
            reclaimable: paired.reclaim(index).is_reclaimable(),
            reclaimable_from: paired.reclaim(index).from(),
            text: text.members(key),
        }
    };
    let template = rows.first().or(rest.first()).map(|(.., index)| make(*index));
    let rows: Vec<usize> = rows.into_iter().map(|(.., index)| index).collect();
    Listing { stacks, ..Listing::new(Rows::of(rows, move |index| make(*index)), others, template) }
}
