//! `tasks`, `modules` and `uses`: rows by who allocated, or what for.

use std::cmp::Reverse;

use kmemtrace_abi::event::{Kind, Space};
use serde::Serialize;

use super::group::{GroupMember, GroupNames, GroupNaming, KeyValue, SortValue};
use super::ranked::{Listing, Others, Shape, SortKey, sum_of};
use super::row::{Rows, row};
use super::shown::{self, Grown, Shown};
use super::stacks::StackCounts;
use super::sums::{Ordering, PrintedStats, Saturation, ToldStats};
use crate::account::figures::Figure;
use crate::account::grouping::{GroupKey, ModuleRule, NO_VALUE, RowKey};
use crate::account::stats::Stats;
use crate::analysis::Analysis;

row! {
    /// Row of `tasks`, `modules` and `uses`.
    pub struct HolderRow<'a> {
        /// Values of the keys.
        pub names: GroupNames<'a>,
        /// Kind of the objects.
        pub kind: Kind,
        /// Sums.
        pub stats: PrintedStats,
        /// Live bytes at the end less those at the end of the first slice of time; `None` where growth was not counted.
        pub grew: Option<i64>,
    }
}

/// Live bytes of pages next to the change of free memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Explained {
    /// Live bytes of all rows.
    pub live_bytes: u64,
    /// Bytes by which MemFree grew over the recording; `None` where the trace does not give it, and for a part of the trace.
    pub memfree_change: Option<i64>,
}

/// Body of `tasks`, `modules` and `uses`.
#[derive(Serialize)]
pub struct HoldersBody<'a> {
    /// Name of the space that is shown; `pages and slab` and the like where several were asked for.
    pub shows: String,
    /// Number of events that were read.
    pub events: u64,
    /// Rule by which rows of modules take an allocation; `None` in other views.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub module_rule: Option<&'static str>,
    /// Rows, largest first.
    #[serde(flatten)]
    pub listing: Listing<'a, HolderRow<'a>, ToldStats>,
    /// Sums next to the change of free memory, in `uses`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub explained: Option<Explained>,
    /// Numbers of stacks.
    #[serde(flatten)]
    pub stacks: StackCounts,
}

/// Row before it has the form of a document.
#[derive(Clone)]
struct Holder<'a> {
    names: GroupNames<'a>,
    place: Vec<SortValue<'a>>,
    kind: Kind,
    grown: Grown,
}

/// The body of a view of holders; `module_rule` where rows are modules.
pub(super) fn holders<'a>(
    analysis: &'a Analysis,
    module_rule: Option<ModuleRule>,
    shape: &Shape,
    (saturation, ordering): (&Saturation, Ordering),
) -> HoldersBody<'a> {
    let shown = Shown::of(analysis);
    let mut rows = match module_rule {
        Some(ModuleRule::Any) => overlapping(analysis),
        _ => rows_of_keys(analysis),
    };
    // Uses are of pages; slab objects have one row.
    let has_uses = analysis.grouping.has(GroupKey::Use);
    rows.retain(|row| shown.takes(row.kind) && !row.grown.stats.is_empty());
    rows.retain(|row| !has_uses || row.kind.space().is_always_shown());
    rows.iter().for_each(|row| saturation.check(&row.grown.stats));
    let keys = if shape.sort.is_empty() { &[SortKey::Figure(Figure::LiveAllocated)][..] } else { &shape.sort };
    let figures =
        |row: &Holder<'_>| -> Vec<_> { keys.iter().map(|key| Reverse(row.grown.figure(*key, ordering))).collect() };
    rows.sort_by(|a, b| figures(a).cmp(&figures(b)).then(a.place.cmp(&b.place)).then(a.kind.cmp(&b.kind)));
    let rest = rows.split_off(shape.top.unwrap_or(rows.len()).min(rows.len()));
    let others = Others::of_spaces(rest.len(), ordering, |space| {
        let of_space = rest.iter().filter(|row| row.kind.space() == space);
        sum_of(of_space.map(|row| &row.grown.stats), space, (saturation, ordering))
    });
    let make = move |row: &Holder<'a>| HolderRow {
        names: row.names.clone(),
        kind: row.kind,
        stats: PrintedStats::new(&row.grown.stats, ordering),
        grew: row.grown.printed_growth(),
    };
    let template = rows.first().or(rest.first()).map(&make);
    HoldersBody {
        shows: shown.name(),
        events: analysis.order.events,
        module_rule: module_rule.map(ModuleRule::name),
        listing: Listing::new(Rows::of(rows, make), others, template),
        explained: None,
        stacks: StackCounts::of(analysis),
    }
}

/// Sums of all pages beside the change of free memory.
pub(super) fn explained(analysis: &Analysis, saturation: &Saturation) -> Explained {
    let rows = analysis.paired.rows.iter().filter(|(key, _)| key.kind.space() == Space::Pages);
    let live = rows.fold(0u128, |sum, (_, stats)| sum.saturating_add(stats.live_allocated));
    Explained { live_bytes: saturation.sum(live), memfree_change: analysis.memfree_change }
}

/// A row for each combination of the keys and each kind.
fn rows_of_keys(analysis: &Analysis) -> Vec<Holder<'_>> {
    let naming = GroupNaming::of(analysis);
    let rows = analysis.paired.rows.iter().zip(shown::rows(analysis));
    let holder = |((key, _), grown): (&(RowKey, Stats), Grown)| {
        let (place, key) = naming.place(*key);
        Holder { names: naming.names(key), place, kind: key.kind, grown }
    };
    rows.map(holder).collect()
}

/// A row for each module of a stack: one allocation counts in several.
fn overlapping(analysis: &Analysis) -> Vec<Holder<'_>> {
    let naming = GroupNaming::of(analysis);
    let Some(nodes) = &analysis.paired.nodes else { return Vec::new() };
    let mut sums = vec![Grown::default(); nodes.nodes.len()];
    for (row, grown) in (0u32..).zip(shown::rows(analysis)) {
        for &node in nodes.paths.of(row) {
            sums[node as usize].add(&grown);
        }
    }
    let rows = nodes.nodes.iter().zip(sums).zip(&nodes.peaks).filter_map(|((node, mut grown), peak)| {
        let (step, kind) = (node.step?, *Kind::ALL.get(node.parent? as usize)?);
        grown.set_peak(*peak, analysis.info.page_bytes);
        let module = naming.naming.numbered(step.value);
        let is_known = step.value != NO_VALUE;
        let value = KeyValue::Module { module: module.map(Into::into), is_known };
        let names = GroupNames(vec![GroupMember { key: GroupKey::Module, value }]);
        Some(Holder { names, place: vec![SortValue::of_name(module), SortValue::of_flag(!is_known)], kind, grown })
    });
    rows.collect()
}
