//! `compare`: figures of two analyses, of two traces or two windows of one, side by side.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use kmemtrace_abi::clock::Unit;
use kmemtrace_abi::event::{Kind, Space};
use serde::{Serialize, Serializer};

use super::head::{CompletenessMembers, TraceMembers};
use super::ranked::{Listing, Others, SpaceSums};
use super::row::{Address, Cell, Field, Name, Row, Rows, TakeMember, row, serialize_row};
use super::sums::{Ordering, PrintedStats, Saturation};
use crate::account::grouping::{GroupKey, Grouping, RowKey};
use crate::account::stats::Stats;
use crate::analysis::Analysis;
use crate::error::AnalysisError;
use crate::names::caches::candidates;

/// Name of a row on both sides.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum SideKey<'a> {
    /// A call-site without a symbol; `before_alone`: of the first trace alone, whose addresses are not those of the second.
    Address { site: u64, before_alone: bool },
    /// Function and module.
    Function(&'a [u8], Option<&'a [u8]>),
    /// Cache.
    Cache(Option<&'a [u8]>),
}

/// Names of a row of `compare`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CompareNames<'a> {
    /// A function, or a call-site that has no symbol.
    Function {
        /// Name of the function, without offset.
        function: Name<'a>,
        /// Module of the function.
        module: Name<'a>,
        /// Call-site, where no symbol is known.
        call_site: Option<Address>,
    },
    /// A cache.
    Cache {
        /// Name of the cache.
        cache: Name<'a>,
    },
}

impl Field for CompareNames<'_> {
    fn put(&self, _: &'static str, take: &mut TakeMember<'_>) {
        match self {
            CompareNames::Function { function, module, call_site } => {
                function.put("function", take);
                module.put("module", take);
                call_site.put("call_site", take);
            }
            CompareNames::Cache { cache } => cache.put("cache", take),
        }
    }
}

row! {
    /// Row of `compare`.
    pub struct CompareRow<'a> {
        /// Names on both sides.
        pub names: CompareNames<'a>,
        /// Kind of the objects.
        pub kind: Kind,
        /// Figures of both sides.
        pub sides: Sides,
    }
}

/// Figures of both sides, and the change from one to the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sides {
    /// Figures of the first analysis.
    pub before: PrintedStats,
    /// Figures of the second analysis.
    pub after: PrintedStats,
    /// Second less first.
    pub change: Change,
    /// Rates of both, where their lengths are known.
    pub per_second: Option<Rates>,
}

impl Row for Sides {
    fn members(&self, take: &mut TakeMember<'_>) {
        take("before", Cell::Figures(&self.before));
        take("after", Cell::Figures(&self.after));
        take("change", Cell::Figures(&self.change));
        self.per_second.put("per_second", take);
    }
}

impl Field for Sides {
    fn put(&self, _: &'static str, take: &mut TakeMember<'_>) {
        self.members(take);
    }
}

impl Serialize for Sides {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serialize_row(self, serializer)
    }
}

row! {
    /// Differences, second less first.
    pub struct Change {
        /// Live bytes.
        pub live_allocated: i64,
        /// Bytes allocated.
        pub allocated: i64,
        /// Number of allocations.
        pub allocs: i64,
    }
}

/// Rates of both sides per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// Bytes allocated.
    pub allocated: [f64; 2],
    /// Number of allocations.
    pub allocs: [f64; 2],
}

// Rates are quotients of integers: never NaN.
impl Eq for Rates {}

impl Row for Rates {
    fn members(&self, take: &mut TakeMember<'_>) {
        take("allocated", Cell::Rates(self.allocated));
        take("allocs", Cell::Rates(self.allocs));
    }
}

impl Field for Option<Rates> {
    fn put(&self, name: &'static str, take: &mut TakeMember<'_>) {
        take(name, self.as_ref().map_or(Cell::Null, |rates| Cell::Figures(rates)));
    }
}

/// Analysis of one side.
#[derive(Serialize)]
pub struct Side<'a> {
    /// Loss and damage.
    pub completeness: CompletenessMembers<'a>,
    /// Origin.
    pub trace: TraceMembers<'a>,
    /// Order keys from and to, both included, where the side is a window.
    pub time: Option<(u64, u64)>,
    /// Time from the first event to the last, in seconds; `None` for a clock that does not count time.
    pub seconds: Option<f64>,
}

/// Body of `compare`.
#[derive(Serialize)]
pub struct CompareBody<'a> {
    /// First analysis.
    pub before: Side<'a>,
    /// Second analysis.
    pub after: Side<'a>,
    /// Sums of all rows.
    #[serde(flatten)]
    pub totals: SpaceSums<Sides>,
    /// Rows with the greatest change of live bytes first.
    #[serde(flatten)]
    pub listing: Listing<'a, CompareRow<'a>, Sides>,
}

impl CompareBody<'_> {
    /// True where live bytes of `kmalloc` and `cache` grew by more than `percent`; from 0 by anything.
    pub fn grew_over(&self, percent: f64) -> bool {
        let [before, after] = [&self.totals.slab.before, &self.totals.slab.after].map(|figures| figures.live_allocated);
        after > before && (before == 0 || (after - before) as f64 > before as f64 * percent / 100.0)
    }
}

impl<'a> Side<'a> {
    fn of(analysis: &'a Analysis) -> Side<'a> {
        let (first, last) = (analysis.order.first.unwrap_or(0), analysis.order.last.unwrap_or(0));
        let keys = analysis.info.keys();
        let is_time = keys.unit == Unit::Nanoseconds;
        Side {
            completeness: CompletenessMembers::of(&analysis.completeness, false),
            trace: TraceMembers::of(analysis),
            time: analysis.window,
            seconds: is_time.then(|| last.saturating_sub(first) as f64 / 1e9),
        }
    }
}

/// Rows of one analysis under a common name.
#[derive(Clone, Debug, Default)]
enum Merged {
    /// No row.
    #[default]
    None,
    /// Number of the row.
    One(usize),
    /// Sums of several rows: peaks do not add up.
    Several(Box<Stats>),
}

impl Merged {
    fn add(&mut self, analysis: &Analysis, row: usize) {
        *self = match std::mem::take(self) {
            Merged::None => Merged::One(row),
            Merged::One(first) => {
                let mut sum = analysis.paired.rows[first].1.clone();
                sum.add(&analysis.paired.rows[row].1);
                Merged::Several(Box::new(sum))
            }
            Merged::Several(mut sum) => {
                sum.add(&analysis.paired.rows[row].1);
                Merged::Several(sum)
            }
        };
    }

    /// Sums; all 0 without a row.
    fn stats(&self, analysis: &Analysis, is_of_pages: bool) -> Stats {
        match self {
            Merged::None => {
                let mut none = Stats { peak_live_allocated: Some(0), ..Stats::default() };
                if is_of_pages && analysis.kind(Kind::Pages).pages_allocated.is_some() {
                    let pages = analysis.kind(Kind::Pages);
                    let known = (pages.pages_allocated.is_some(), pages.partial_frees.is_some());
                    none.set_pages(0, analysis.info.page_bytes, known);
                }
                none
            }
            Merged::One(row) => analysis.paired.rows[*row].1.clone(),
            Merged::Several(sum) => (**sum).clone(),
        }
    }
}

/// Memory of a row of either analysis while both are compared, in bytes, a little more than measured.
const ROW_BYTES: u64 = 400;

/// Checks the memory limit of the second analysis before the rows of both are merged.
pub(super) fn check_room(before: &Analysis, after: &Analysis) -> Result<(), AnalysisError> {
    let rows = (before.paired.rows.len() + after.paired.rows.len()) as u64;
    after.budget.check_bytes(rows.saturating_mul(ROW_BYTES), after.events())
}

/// Rows of both analyses, by name and kind.
type Pairs<'a> = BTreeMap<(SideKey<'a>, Kind), [Merged; 2]>;

/// Rows of both analyses under their common names; none for queries of other groupings.
fn pairs<'a>(before: &'a Analysis, after: &'a Analysis) -> Pairs<'a> {
    let bases = [before, after].map(|analysis| analysis.symbolizer().text_base());
    let is_one_trace = !before.inputs.is_empty() && before.inputs == after.inputs;
    let same_addresses = is_one_trace || bases[0].is_some() && bases[0] == bases[1];
    let mut pairs = Pairs::new();
    let is_known = [Grouping::SITE, Grouping::CACHE].contains(&after.grouping) && before.grouping == after.grouping;
    for (side, analysis) in [before, after].into_iter().enumerate().filter(|_| is_known) {
        for (row, (key, stats)) in analysis.paired.rows.iter().enumerate() {
            // A window may hold or free objects that were allocated before it.
            if !stats.is_empty() || stats.live_objects > 0 || stats.frees > 0 || stats.inferred_frees > 0 {
                let name = side_key(analysis, *key, side == 0 && !same_addresses);
                pairs.entry((name, key.kind)).or_default()[side].add(analysis, row);
            }
        }
    }
    pairs
}

fn side_key<'a>(analysis: &'a Analysis, key: RowKey, before_alone: bool) -> SideKey<'a> {
    if !analysis.grouping.has(GroupKey::Site) {
        // Candidates are no name.
        return SideKey::Cache(analysis.names.numbered(key.others).filter(|name| candidates(name).is_none()));
    }
    match analysis.symbolizer().lookup(key.site) {
        Some(symbol) => SideKey::Function(symbol.name, symbol.module),
        // Events without a call-site are alike in all traces.
        None => SideKey::Address { site: key.site, before_alone: before_alone && key.site != 0 },
    }
}

/// Difference of two sums, as far as 64 bits hold it.
fn difference(before: u128, after: u128) -> i64 {
    let size = i64::try_from(before.abs_diff(after)).unwrap_or(i64::MAX);
    if after < before { -size } else { size }
}

fn change([before, after]: &[Stats; 2]) -> Change {
    Change {
        live_allocated: difference(before.live_allocated, after.live_allocated),
        allocated: difference(before.allocated, after.allocated),
        allocs: difference(before.allocs.into(), after.allocs.into()),
    }
}

/// Facts that turn sums into the figures of a row.
#[derive(Clone, Copy)]
struct Printing {
    orderings: [Ordering; 2],
    seconds: Option<[f64; 2]>,
}

impl Printing {
    fn sides(self, stats: &[Stats; 2]) -> Sides {
        let [before, after] = stats;
        let rate = |[before, after]: [f64; 2]| self.seconds.map(|seconds| [before / seconds[0], after / seconds[1]]);
        let allocated = rate([before.allocated as f64, after.allocated as f64]);
        let allocs = rate([before.allocs as f64, after.allocs as f64]);
        Sides {
            before: PrintedStats::new(before, self.orderings[0]),
            after: PrintedStats::new(after, self.orderings[1]),
            change: change(stats),
            per_second: allocated.zip(allocs).map(|(allocated, allocs)| Rates { allocated, allocs }),
        }
    }
}

/// The body of `compare`.
pub(super) fn compare<'a>(
    before: &'a Analysis,
    after: &'a Analysis,
    top: Option<usize>,
    saturation: &Saturation,
) -> CompareBody<'a> {
    let sides = [before, after];
    let [first, second] = sides.map(Side::of);
    let seconds = first.seconds.zip(second.seconds).map(|(a, b)| [a, b]).filter(|both| both.iter().all(|s| *s > 0.0));
    let orderings = sides.map(|side| Ordering::of(&side.info));
    let printing = Printing { orderings, seconds };
    let stats = move |kind: Kind, [first, second]: &[Merged; 2]| {
        let is_of_pages = kind.space() == Space::Pages;
        [first.stats(before, is_of_pages), second.stats(after, is_of_pages)]
    };
    let mut rows: Vec<(SideKey<'a>, Kind, [Merged; 2])> =
        pairs(before, after).into_iter().map(|((name, kind), merged)| (name, kind, merged)).collect();
    // Stable: rows that changed as much stay in the order of names and kinds.
    rows.sort_by_cached_key(|(_, kind, merged)| {
        let change = change(&stats(*kind, merged));
        Reverse((change.live_allocated.unsigned_abs(), change.allocated.unsigned_abs()))
    });
    let template = rows.first().map(|(name, kind, merged)| row_of(name, *kind, printing.sides(&stats(*kind, merged))));
    let rest = rows.split_off(top.unwrap_or(rows.len()).min(rows.len()));
    let checked = |stats: [Stats; 2]| {
        stats.iter().for_each(|stats| saturation.check(stats));
        stats
    };
    // A space that either input tells of.
    let mut shown = orderings[1];
    shown.capabilities.kinds.iter_mut().for_each(|(kind, has)| *has |= orderings[0].capabilities.kinds[kind]);
    let others = Others::of_spaces(rest.len(), shown, |space| {
        let mut sums: [Stats; 2] = Default::default();
        for (_, kind, merged) in rest.iter().filter(|(_, kind, _)| kind.space() == space) {
            sums.iter_mut().zip(stats(*kind, merged)).for_each(|(sum, stats)| sum.add(&stats));
        }
        printing.sides(&checked(sums))
    });
    for (_, kind, merged) in &rows {
        checked(stats(*kind, merged));
    }
    let rows = Rows::of(rows, move |(name, kind, merged)| row_of(name, *kind, printing.sides(&stats(*kind, merged))));
    CompareBody {
        totals: SpaceSums::new("total", shown, |space| {
            printing.sides(&checked(sides.map(|side| side.of_space(space).clone())))
        }),
        before: first,
        after: second,
        listing: Listing::new(rows, others, template),
    }
}

fn row_of<'a>(name: &SideKey<'a>, kind: Kind, sides: Sides) -> CompareRow<'a> {
    let names = match *name {
        SideKey::Cache(cache) => CompareNames::Cache { cache: cache.map(Into::into) },
        SideKey::Function(function, module) => {
            CompareNames::Function { function: Some(function.into()), module: module.map(Into::into), call_site: None }
        }
        SideKey::Address { site, .. } => {
            CompareNames::Function { function: None, module: None, call_site: Some(Address(site)) }
        }
    };
    CompareRow { names, kind, sides }
}

/// Words of the keys that make the rows of `compare`.
pub(super) fn words(grouping: Grouping) -> Vec<&'static str> {
    vec![if grouping.has(GroupKey::Site) { "function" } else { "cache" }]
}
