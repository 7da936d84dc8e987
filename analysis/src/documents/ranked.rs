//! Order of rows, and the sum of those left out.

use std::cmp;

use kmemtrace_abi::event::Kind;
use serde::Serialize;

use super::row::{Row, RowSource, Rows, SumRow, TakeRow, columns_of};
use super::stacks::StackMembers;
use super::sums::{Ordering, PrintedStats, Saturation, ToldStats};
use crate::account::figures::Figure;
use crate::account::grouping::GroupKey;
use crate::account::stats::Stats;

/// Sort keys and number of the rows that a document shows.
#[derive(Clone, Debug, Default)]
pub struct Shape {
    /// Sort keys, greatest first.
    pub sort: Vec<SortKey>,
    /// Limit of rows; the rest becomes `others`.
    pub top: Option<usize>,
}

/// Sort key of rows, greatest first (names: smallest first).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SortKey {
    /// A figure that has words of `--sort`.
    Figure(Figure),
    /// Growth of live bytes, in views that have it.
    Growth,
    /// Bytes of functions and objects in the kernel's image, in views that have them.
    Static,
    /// Static and live bytes, in views that have both.
    Current,
    /// Time of the oldest allocation, of an input that tells of one moment alone: smallest first, or greatest first.
    Oldest {
        /// Greatest first.
        is_descending: bool,
    },
    /// The names of the row.
    Site,
    /// Value of a key that rows are made of, in views whose rows are of any keys.
    Key {
        /// The key.
        key: GroupKey,
        /// Greatest first.
        is_descending: bool,
    },
}

impl SortKey {
    /// Word of the contract.
    pub fn name(self) -> &'static str {
        match self {
            SortKey::Figure(figure) => figure.entry().sort.first().copied().unwrap_or_default(),
            SortKey::Growth => "growth",
            SortKey::Static => "static",
            SortKey::Current => "current",
            SortKey::Oldest { .. } => "alloc_ts",
            SortKey::Site => "site",
            SortKey::Key { key, .. } => key.name(),
        }
    }

    /// Figure of a row; 0 where the clock does not tell it.
    pub(super) fn of(self, stats: &Stats, ordering: Ordering) -> u128 {
        match self {
            SortKey::Figure(figure) if !ordering.knows(figure.entry().known) => 0,
            SortKey::Figure(figure) => stats.get(figure).unwrap_or(0),
            SortKey::Oldest { is_descending: true } => stats.oldest.map_or(0, u128::from),
            SortKey::Oldest { is_descending: false } => stats.oldest.map_or(0, |oldest| u128::MAX - u128::from(oldest)),
            SortKey::Growth | SortKey::Static | SortKey::Current | SortKey::Site | SortKey::Key { .. } => 0,
        }
    }
}

/// Rows of a view, and the sum of those left out.
#[derive(Serialize)]
#[serde(bound = "R: Serialize, O: Serialize")]
pub struct Listing<'a, R: 'a, O> {
    /// The rows shown.
    pub rows: Rows<'a, R>,
    /// The rows left out, if any.
    #[serde(flatten)]
    pub others: Option<Others<O>>,
    /// Call stacks that rows name by number.
    #[serde(flatten)]
    pub stacks: Option<StackMembers<'a>>,
    /// Names of the members of a row.
    #[serde(skip)]
    pub columns: Vec<&'static str>,
}

impl<'a, R: Row + 'a, O> Listing<'a, R, O> {
    /// A listing of these rows; `template` is a row like those, if there is any.
    pub fn new(rows: Rows<'a, R>, others: Option<Others<O>>, template: Option<R>) -> Listing<'a, R, O> {
        Listing { rows, others, stacks: None, columns: template.map(|row| columns_of(&row)).unwrap_or_default() }
    }
}

impl<R: Row, O: Row> RowSource for Listing<'_, R, O> {
    /// Hands over the rows, then the sums of those left out, with empty names.
    fn each_row<E>(&self, take: &mut TakeRow<'_, E>) -> Result<(), E> {
        self.rows.each_row(take)?;
        let Some(Others { others, others_pages, .. }) = &self.others else { return Ok(()) };
        take(&SumRow { columns: &self.columns, kind: None, sum: others })?;
        match others_pages {
            Some(pages) => take(&SumRow { columns: &self.columns, kind: Some(Kind::Pages.name()), sum: pages }),
            None => Ok(()),
        }
    }
}

/// Sums and number of the rows left out. Pages are never added to the objects that they hold.
#[derive(Clone, Debug, Serialize)]
pub struct Others<O> {
    /// Sum of rows of `kmalloc` and `cache`.
    pub others: O,
    /// Sum of rows of `pages`; `None` where rows are not summed by kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub others_pages: Option<O>,
    /// Number of rows.
    pub others_count: usize,
}

impl Others<ToldStats> {
    /// Sums of `kmalloc` and `cache`, and of pages, where the input tells them.
    pub fn told(&self) -> [Option<&PrintedStats>; 2] {
        [self.others.0.as_ref(), self.others_pages.as_ref().and_then(|pages| pages.0.as_ref())]
    }
}

/// Splits off the rows after the first `top`, and adds them up with `sum`, if any: pages apart from the other kinds.
pub(super) fn split_others<T: Copy, O>(
    rows: &mut Vec<T>,
    top: Option<usize>,
    kind: impl Fn(&T) -> Kind,
    sum: impl Fn(&[T]) -> O,
) -> Option<Others<O>> {
    let rest = rows.split_off(top.unwrap_or(rows.len()).min(rows.len()));
    let (pages, objects): (Vec<T>, Vec<T>) = rest.iter().partition(|row| kind(row) == Kind::Pages);
    let others = || Others { others: sum(&objects), others_pages: Some(sum(&pages)), others_count: rest.len() };
    (!rest.is_empty()).then(others)
}

/// Index of a kind, for ties.
pub(super) fn rank(kind: Kind) -> usize {
    Kind::ALL.iter().position(|&k| k == kind).unwrap_or(0)
}

/// The listing of a view that has a row for each name and kind: `make` makes a row.
///
/// Rows are sorted by the keys, greatest first, then by name and kind; those after the first `top` are summed in `others`.
pub(super) fn ranked<'a, N: Ord + Clone + 'a, R: Row + 'a>(
    rows: impl Iterator<Item = (N, Kind, &'a Stats)>,
    shape: &Shape,
    sums: (&Saturation, Ordering),
    make: impl Fn(&N, Kind, PrintedStats) -> R + 'a,
) -> Listing<'a, R, ToldStats> {
    ranked_by(rows, shape, sums, |_, _| (), make)
}

/// [`ranked`], where `value` is that of a key of a row.
pub(super) fn ranked_by<'a, N: Ord + Clone + 'a, R: Row + 'a, V: Ord>(
    rows: impl Iterator<Item = (N, Kind, &'a Stats)>,
    shape: &Shape,
    (saturation, ordering): (&Saturation, Ordering),
    value: impl Fn(&N, GroupKey) -> V,
    make: impl Fn(&N, Kind, PrintedStats) -> R + 'a,
) -> Listing<'a, R, ToldStats> {
    let compare = |key: &SortKey, a: &(N, Kind, &Stats), b: &(N, Kind, &Stats)| match *key {
        SortKey::Key { key, is_descending: true } => value(&b.0, key).cmp(&value(&a.0, key)),
        SortKey::Key { key, is_descending: false } => value(&a.0, key).cmp(&value(&b.0, key)),
        figure => figure.of(b.2, ordering).cmp(&figure.of(a.2, ordering)),
    };
    let mut rows: Vec<_> = rows.filter(|(_, _, stats)| !stats.is_empty()).collect();
    rows.sort_by(|(a, kind, _), (b, other, _)| a.cmp(b).then(rank(*kind).cmp(&rank(*other))));
    rows.sort_by(|a, b| {
        shape.sort.iter().map(|key| compare(key, a, b)).find(|o| o.is_ne()).unwrap_or(cmp::Ordering::Equal)
    });
    let template = rows.first().map(|(name, kind, stats)| make(name, *kind, PrintedStats::new(stats, ordering)));
    let rest = rows.split_off(shape.top.unwrap_or(rows.len()).min(rows.len()));
    let sum = |is_pages: bool| {
        let mut sum = Stats::default();
        let rest = rest.iter().filter(|(_, kind, _)| (*kind == Kind::Pages) == is_pages);
        rest.for_each(|(_, _, stats)| sum.add(stats));
        saturation.check(&sum);
        ToldStats::of_pages(is_pages, &sum, ordering)
    };
    let others = || Others { others: sum(false), others_pages: Some(sum(true)), others_count: rest.len() };
    let others = (!rest.is_empty()).then(others);
    rows.iter().for_each(|(_, _, stats)| saturation.check(stats));
    let rows = Rows::of(rows, move |(name, kind, stats)| make(name, *kind, PrintedStats::new(stats, ordering)));
    Listing::new(rows, others, template)
}
