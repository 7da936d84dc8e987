//! `compare`: figures of two analyses, of two traces or two windows of one, side by side.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use kmemtrace_abi::clock::Unit;
use kmemtrace_abi::event::{Kind, Space};
use kmemtrace_abi::listed::SlabColumns;
use kmemtrace_abi::trace::is_made_up;
use serde::{Serialize, Serializer};

use super::balance::{PartRow, of_text};
use super::group::GroupNaming;
use super::head::{CompletenessMembers, TraceMembers};
use super::names_of_texts::{CommonNames, identity};
use super::ranked::{Listing, Others, SpaceSums};
use super::row::{Address, Cell, Field, Name, Row, Rows, TakeMember, row, serialize_row};
use super::sums::{Ordering, PrintedStats, Saturation};
use crate::account::figures::Figure;
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
    /// Values of the keys, without what differs between boots and builds.
    Common(Vec<Vec<u8>>),
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
    /// Values of the keys.
    Common(CommonNames<'a>),
    /// A part of memory.
    Part {
        /// Name of the part.
        part: &'static str,
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
            CompareNames::Common(names) => names.put("", take),
            CompareNames::Part { part } => part.put("part", take),
        }
    }
}

row! {
    /// Row of `compare`.
    pub struct CompareRow<'a> {
        /// Names on both sides.
        pub names: CompareNames<'a>,
        /// Kind of the objects; `None` for a part of memory.
        pub kind: Option<Kind>,
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
    /// Differences, second less first; `None` where a side does not give the figure.
    pub struct Change {
        /// Live bytes.
        pub live_allocated: Option<i64>,
        /// Bytes allocated.
        pub allocated: Option<i64>,
        /// Number of allocations.
        pub allocs: Option<i64>,
        /// Differences that texts of one moment have, too.
        pub text: TextChange,
    }
}

impl Change {
    /// The change between two texts where one of them does not tell the figures.
    fn untold() -> Change {
        Change { live_allocated: None, allocated: None, allocs: None, text: TextChange(Some(Box::default())) }
    }
}

/// Differences between two texts of one moment; recordings have none of these members.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TextChange(Option<Box<TextDifferences>>);

/// Differences of live objects, live pages, and where the texts have them of the columns of slabinfo.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct TextDifferences {
    live_objects: Option<i64>,
    live_pages: Option<i64>,
    slab: Option<SlabChange>,
}

row! {
    /// Differences of the columns of slabinfo.
    pub struct SlabChange {
        /// Objects in use.
        pub active_objs: Option<i64>,
        /// All objects.
        pub num_objs: Option<i64>,
        /// Bytes of an object.
        pub objsize: Option<i64>,
        /// Objects of a slab.
        pub objperslab: Option<i64>,
        /// Pages of a slab.
        pub pagesperslab: Option<i64>,
        /// Slabs with objects in use.
        pub active_slabs: Option<i64>,
        /// All slabs.
        pub num_slabs: Option<i64>,
        /// Bytes of all slabs.
        pub bytes: Option<i64>,
    }
}

impl SlabChange {
    /// Differences of two rows; a side without the row is all 0.
    fn of(before: Option<SlabColumns>, after: Option<SlabColumns>) -> Option<SlabChange> {
        let zeros = SlabColumns {
            active_objs: Some(0),
            num_objs: Some(0),
            objsize: Some(0),
            objperslab: Some(0),
            pagesperslab: Some(0),
            active_slabs: Some(0),
            num_slabs: Some(0),
            bytes: Some(0),
        };
        before.or(after)?;
        let [before, after] = [before, after].map(|columns| columns.unwrap_or(zeros));
        let less = |before: Option<u64>, after: Option<u64>| Some(difference(before?.into(), after?.into()));
        Some(SlabChange {
            active_objs: less(before.active_objs, after.active_objs),
            num_objs: less(before.num_objs, after.num_objs),
            objsize: less(before.objsize, after.objsize),
            objperslab: less(before.objperslab, after.objperslab),
            pagesperslab: less(before.pagesperslab, after.pagesperslab),
            active_slabs: less(before.active_slabs, after.active_slabs),
            num_slabs: less(before.num_slabs, after.num_slabs),
            bytes: less(before.bytes, after.bytes),
        })
    }
}

impl TextChange {
    /// Difference of live objects.
    pub fn live_objects(&self) -> Option<i64> {
        self.0.as_ref()?.live_objects
    }

    /// Difference of live pages.
    pub fn live_pages(&self) -> Option<i64> {
        self.0.as_ref()?.live_pages
    }
}

impl Field for TextChange {
    fn put(&self, _: &'static str, take: &mut TakeMember<'_>) {
        let Some(differences) = &self.0 else { return };
        differences.live_objects.put("live_objects", take);
        differences.live_pages.put("live_pages", take);
        if let Some(slab) = &differences.slab {
            take("slab", Cell::Figures(slab));
        }
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
    /// Rows with the largest change of live bytes first.
    #[serde(flatten)]
    pub listing: Listing<'a, CompareRow<'a>, Sides>,
}

impl CompareBody<'_> {
    /// True where live bytes of `kmalloc` and `cache` grew by more than `percent`; from 0 by anything.
    pub fn grew_over(&self, percent: f64) -> bool {
        let [before, after] =
            [&self.totals.slab.before, &self.totals.slab.after].map(|figures| figures.live_allocated.unwrap_or(0));
        after > before && (before == 0 || (after - before) as f64 > before as f64 * percent / 100.0)
    }
}

impl<'a> Side<'a> {
    fn of(analysis: &'a Analysis) -> Side<'a> {
        let (first, last) = (analysis.order.first.unwrap_or(0), analysis.order.last.unwrap_or(0));
        let keys = analysis.info.keys();
        let has_times = analysis.info.text.as_ref().is_none_or(|text| text.has_times);
        let is_time = keys.unit == Unit::Nanoseconds && has_times;
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
    /// One of several rows, and their sums: peaks do not add up.
    Several(Box<(usize, Stats)>),
}

impl Merged {
    fn add(&mut self, analysis: &Analysis, row: usize) {
        *self = match std::mem::take(self) {
            Merged::None => Merged::One(row),
            Merged::One(first) => {
                let mut sum = analysis.paired.rows[first].1.clone();
                sum.add(&analysis.paired.rows[row].1);
                Merged::Several(Box::new((first, sum)))
            }
            Merged::Several(mut sum) => {
                sum.1.add(&analysis.paired.rows[row].1);
                Merged::Several(sum)
            }
        };
    }

    /// A row of it; `None` without any.
    fn row(&self) -> Option<usize> {
        match self {
            Merged::None => None,
            Merged::One(row) => Some(*row),
            Merged::Several(sum) => Some(sum.0),
        }
    }

    /// Columns of slabinfo; rows of a cache are not merged.
    fn slab(&self, analysis: &Analysis) -> Option<SlabColumns> {
        let Merged::One(row) = self else { return None };
        analysis.paired.extras.get(&analysis.paired.rows[*row].0)?.slab
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
            Merged::Several(sum) => sum.1.clone(),
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
    let is_known = [Grouping::SITE, Grouping::CACHE].contains(&after.grouping) || has_common_keys(after);
    let is_known = is_known && before.grouping == after.grouping;
    let namings = [before, after].map(GroupNaming::of);
    for (side, analysis) in [before, after].into_iter().enumerate().filter(|_| is_known) {
        for (row, (key, stats)) in analysis.paired.rows.iter().enumerate() {
            // A window may hold or free objects that were allocated before it.
            if !stats.is_empty() || stats.live_objects > 0 || stats.frees > 0 || stats.inferred_frees > 0 {
                let name = match has_common_keys(after) {
                    true => SideKey::Common(identity(&namings[side].names(*key), true)),
                    false => side_key(analysis, *key, side == 0 && !same_addresses),
                };
                pairs.entry((name, key.kind)).or_default()[side].add(analysis, row);
            }
        }
    }
    pairs
}

/// True where rows are of other keys than functions and caches: stacks, modules, tasks, cgroups, and of texts whatever they list.
fn has_common_keys(analysis: &Analysis) -> bool {
    ![Grouping::SITE, Grouping::CACHE, Grouping::KIND].contains(&analysis.grouping)
}

fn side_key<'a>(analysis: &'a Analysis, key: RowKey, before_alone: bool) -> SideKey<'a> {
    if !analysis.grouping.has(GroupKey::Site) {
        // Candidates are no name.
        return SideKey::Cache(analysis.names.numbered(key.others).filter(|name| candidates(name).is_none()));
    }
    match analysis.symbolizer().lookup(key.site) {
        Some(symbol) => SideKey::Function(symbol.name, symbol.module),
        // Events without a call-site are alike in all traces.
        None => {
            SideKey::Address { site: key.site, before_alone: before_alone && key.site != 0 && !is_made_up(key.site) }
        }
    }
}

/// Difference of two sums, as far as 64 bits hold it.
fn difference(before: u128, after: u128) -> i64 {
    let size = i64::try_from(before.abs_diff(after)).unwrap_or(i64::MAX);
    if after < before { -size } else { size }
}

/// Facts that turn sums into the figures of a row.
#[derive(Clone, Copy)]
struct Printing {
    orderings: [Ordering; 2],
    seconds: Option<[f64; 2]>,
}

impl Printing {
    /// Difference of a figure.
    fn change_of(self, figure: Figure, [before, after]: &[Stats; 2]) -> Option<i64> {
        let [first, second] = self.orderings;
        Some(difference(first.figure(figure, before)?, second.figure(figure, after)?))
    }

    fn change(self, stats: &[Stats; 2]) -> Change {
        let is_of_texts = self.orderings.iter().all(|ordering| !ordering.capabilities.past);
        let texts = || TextDifferences {
            live_objects: self.change_of(Figure::LiveObjects, stats),
            live_pages: self.change_of(Figure::LivePages, stats),
            slab: None,
        };
        Change {
            live_allocated: self.change_of(Figure::LiveAllocated, stats),
            allocated: self.change_of(Figure::Allocated, stats),
            allocs: self.change_of(Figure::Allocs, stats),
            text: TextChange(is_of_texts.then(|| Box::new(texts()))),
        }
    }

    /// Place of a row: largest change first, of live bytes, then of all bytes; of texts that do not tell bytes, of pages, then of objects.
    fn rank(self, stats: &[Stats; 2]) -> Reverse<[u64; 4]> {
        let change = |figure| self.change_of(figure, stats).map_or(0, i64::unsigned_abs);
        let has_bytes = self.change_of(Figure::LiveAllocated, stats).is_some();
        let others = [Figure::LivePages, Figure::LiveObjects].map(|figure| if has_bytes { 0 } else { change(figure) });
        Reverse([change(Figure::LiveAllocated), change(Figure::Allocated), others[0], others[1]])
    }

    fn sides(self, stats: &[Stats; 2]) -> Sides {
        let [before, after] = stats;
        let rate = |[before, after]: [f64; 2]| self.seconds.map(|seconds| [before / seconds[0], after / seconds[1]]);
        let allocated = rate([before.allocated as f64, after.allocated as f64]);
        let allocs = rate([before.allocs as f64, after.allocs as f64]);
        let change = self.change(stats);
        let rates = allocated.zip(allocs).filter(|_| change.allocated.is_some());
        Sides {
            before: PrintedStats::new(before, self.orderings[0]),
            after: PrintedStats::new(after, self.orderings[1]),
            change,
            per_second: rates.map(|(allocated, allocs)| Rates { allocated, allocs }),
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
    if let Some(body) = parts(before, after, top) {
        return body;
    }
    let [mut first, mut second] = sides.map(Side::of);
    let is_of_texts = sides.iter().all(|side| side.info.text.is_some());
    if is_of_texts && (first.seconds.is_none() || second.seconds.is_none()) {
        (first.seconds, second.seconds) = (None, None);
    }
    let seconds = first.seconds.zip(second.seconds).map(|(a, b)| [a, b]).filter(|both| both.iter().all(|s| *s > 0.0));
    let orderings = sides.map(|side| Ordering::of(&side.info));
    let printing = Printing { orderings, seconds };
    let stats = move |kind: Kind, [first, second]: &[Merged; 2]| {
        let is_of_pages = kind.space() == Space::Pages;
        let mut sides = [first.stats(before, is_of_pages), second.stats(after, is_of_pages)];
        // A side without the row is 0 in all figures that the other one tells.
        let told = sides.each_ref().map(|stats| stats.told);
        for (side, told) in sides.iter_mut().zip([told[1], told[0]]) {
            if side.is_empty() && !told.is_empty() {
                *side =
                    Stats { told, live_pages: Some(0), pages_allocated: Some(0), largest: Some(0), ..Stats::default() };
            }
        }
        sides
    };
    let slab = move |merged: &[Merged; 2]| {
        let [first, second] = merged;
        SlabChange::of(first.slab(before), second.slab(after))
    };
    let namings = sides.map(GroupNaming::of);
    let has_keys = has_common_keys(after);
    let common = move |merged: &[Merged; 2]| {
        let of = |side: usize| Some((side, merged[side].row()?));
        let (side, row) = of(1).or_else(|| of(0)).filter(|_| has_keys)?;
        Some(CommonNames::of(namings[side].names(sides[side].paired.rows[row].0)))
    };
    let sides_of = move |kind: Kind, merged: &[Merged; 2]| {
        let mut sides = printing.sides(&stats(kind, merged));
        if let Some(differences) = &mut sides.change.text.0 {
            differences.slab = slab(merged);
        }
        sides
    };
    let mut rows: Vec<(SideKey<'a>, Kind, [Merged; 2])> =
        pairs(before, after).into_iter().map(|((name, kind), merged)| (name, kind, merged)).collect();
    // Stable: rows that changed as much stay in the order of names and kinds.
    rows.sort_by_cached_key(|(_, kind, merged)| printing.rank(&stats(*kind, merged)));
    let template =
        rows.first().map(|(name, kind, merged)| row_of(name, common(merged), *kind, sides_of(*kind, merged)));
    let rest = rows.split_off(top.unwrap_or(rows.len()).min(rows.len()));
    let checked = |stats: [Stats; 2]| {
        stats.iter().for_each(|stats| saturation.check(stats));
        stats
    };
    let known = |space, sums| without_unknown(sums, orderings.map(|ordering| ordering.knows_sums(space)));
    // A space that either input tells of.
    let mut shown = orderings[1];
    shown.capabilities.kinds.iter_mut().for_each(|(kind, has)| *has |= orderings[0].capabilities.kinds[kind]);
    let others = Others::of_spaces(rest.len(), shown, |space| {
        let mut sums: [Stats; 2] = Default::default();
        for (_, kind, merged) in rest.iter().filter(|(_, kind, _)| kind.space() == space) {
            sums.iter_mut().zip(stats(*kind, merged)).for_each(|(sum, stats)| sum.add(&stats));
        }
        known(space, printing.sides(&checked(sums)))
    });
    for (_, kind, merged) in &rows {
        checked(stats(*kind, merged));
    }
    let rows = Rows::of(rows, move |(name, kind, merged)| row_of(name, common(merged), *kind, sides_of(*kind, merged)));
    CompareBody {
        totals: SpaceSums::new("total", shown, |space| {
            known(space, printing.sides(&checked(sides.map(|side| side.of_space(space).clone()))))
        }),
        before: first,
        after: second,
        listing: Listing::new(rows, others, template),
    }
}

/// Sums without those of a side that are not known.
fn without_unknown(mut sums: Sides, [knows_before, knows_after]: [bool; 2]) -> Sides {
    if !knows_before {
        sums.before = PrintedStats::default();
    }
    if !knows_after {
        sums.after = PrintedStats::default();
    }
    if !(knows_before && knows_after) {
        (sums.change, sums.per_second) = (Change::untold(), None);
    }
    sums
}

fn row_of<'a>(name: &SideKey<'a>, common: Option<CommonNames<'a>>, kind: Kind, sides: Sides) -> CompareRow<'a> {
    let names = match *name {
        SideKey::Common(_) => CompareNames::Common(common.unwrap_or_else(CommonNames::none)),
        SideKey::Cache(cache) => CompareNames::Cache { cache: cache.map(Into::into) },
        SideKey::Function(function, module) => {
            CompareNames::Function { function: Some(function.into()), module: module.map(Into::into), call_site: None }
        }
        SideKey::Address { site, .. } => {
            CompareNames::Function { function: None, module: None, call_site: Some(Address(site)) }
        }
    };
    CompareRow { names, kind: Some(kind), sides }
}

/// The body of two texts of counters: rows are parts of memory, which do not add up. `None` for other inputs.
fn parts<'a>(before: &'a Analysis, after: &'a Analysis, top: Option<usize>) -> Option<CompareBody<'a>> {
    let [first, second] = [of_text::parts(before)?, of_text::parts(after)?];
    let bytes = |rows: &[PartRow<'_>], part| rows.iter().find(|row| row.part == part).and_then(|row| row.bytes);
    let mut names: Vec<&'static str> = first.iter().map(|row| row.part).collect();
    names.extend(second.iter().map(|row| row.part).filter(|part| first.iter().all(|row| row.part != *part)));
    let side = |live_allocated| PrintedStats { live_allocated, ..PrintedStats::default() };
    let sides = |[before, after]: [Option<u64>; 2]| Sides {
        before: side(before),
        after: side(after),
        change: Change {
            live_allocated: before.zip(after).map(|(before, after)| difference(before.into(), after.into())),
            ..Change::untold()
        },
        per_second: None,
    };
    let mut rows: Vec<CompareRow<'a>> = Vec::new();
    for part in names {
        let sides = sides([bytes(&first, part), bytes(&second, part)]);
        rows.push(CompareRow { names: CompareNames::Part { part }, kind: None, sides });
    }
    rows.sort_by_key(|row| Reverse(row.sides.change.live_allocated.map_or(0, i64::unsigned_abs)));
    let rest = rows.split_off(top.unwrap_or(rows.len()).min(rows.len()));
    let others = (!rest.is_empty()).then(|| Others::one(rest.len(), sides([None; 2])));
    let template = rows.first().cloned();
    Some(CompareBody {
        before: Side { seconds: None, ..Side::of(before) },
        after: Side { seconds: None, ..Side::of(after) },
        totals: SpaceSums::null("total", sides([None; 2])),
        listing: Listing::new(Rows::of(rows, Clone::clone), others, template),
    })
}

/// Words of the keys that make the rows of `compare`.
pub(super) fn words(analysis: &Analysis) -> Vec<&'static str> {
    let grouping = analysis.grouping;
    if of_text::parts(analysis).is_some() {
        return vec!["part"];
    }
    if has_common_keys(analysis) {
        return grouping.keys().map(GroupKey::name).collect();
    }
    vec![if grouping.has(GroupKey::Site) { "function" } else { "cache" }]
}
