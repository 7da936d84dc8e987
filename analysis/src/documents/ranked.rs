//! Order of rows, and the sum of those left out.

use std::cmp;

use kmemtrace_abi::event::{Kind, Space};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use super::row::{Row, RowSource, Rows, SumRow, TakeRow, columns_of};
use super::stacks::StackMembers;
use super::sums::{Ordering, PrintedStats, Saturation, ToldStats};
use crate::account::figures::Figure;
use crate::account::grouping::GroupKey;
use crate::account::stats::Stats;

/// Sort keys and number of the rows that a document shows.
#[derive(Clone, Debug, Default)]
pub struct Shape {
    /// Sort keys, largest first.
    pub sort: Vec<SortKey>,
    /// Limit of rows; the rest becomes `others`.
    pub top: Option<usize>,
}

/// Sort key of rows, largest first (names: smallest first).
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
    /// Time of the oldest allocation, of an input of one moment alone: smallest first, or largest first.
    Oldest {
        /// Largest first.
        is_descending: bool,
    },
    /// The names of the row.
    Site,
    /// Value of a key that rows are made of, in views whose rows are of any keys.
    Key {
        /// The key.
        key: GroupKey,
        /// Largest first.
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

    /// Figure of a row; 0 where the clock does not tell it. Pages and objects stand in for live bytes where these are not told.
    pub(super) fn of(self, stats: &Stats, ordering: Ordering) -> u128 {
        match self {
            SortKey::Figure(Figure::LivePages | Figure::LiveObjects)
                if ordering.figure(Figure::LiveAllocated, stats).is_some() =>
            {
                0
            }
            SortKey::Figure(figure) => ordering.figure(figure, stats).unwrap_or(0),
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
        let Some(Others { sums, .. }) = &self.others else { return Ok(()) };
        let columns = &self.columns;
        take(&SumRow { columns, kind: None, sum: &sums.slab })?;
        let mut others = sums.others.iter();
        others.try_for_each(|(space, sum)| take(&SumRow { columns, kind: Some(space.name()), sum }))
    }
}

/// A sum for each space that a document shows: member `NAME` for slab objects, `NAME_SPACE` for the others. Figures are added up inside a
/// space only.
#[derive(Clone, Debug)]
pub struct SpaceSums<T> {
    /// Name of the member.
    name: &'static str,
    /// Rows do not add up: the member is null.
    is_null: bool,
    /// Sum of `kmalloc` and `cache`; of all rows where these are not of kinds.
    pub slab: T,
    /// Sums of the other spaces.
    pub others: Vec<(Space, T)>,
}

impl<T> SpaceSums<T> {
    /// Sums of the spaces that the input tells of.
    pub(super) fn new(name: &'static str, ordering: Ordering, sum: impl Fn(Space) -> T) -> SpaceSums<T> {
        let others = Space::ALL.into_iter().filter(|&space| space != Space::Slab && ordering.shows(space));
        SpaceSums {
            name,
            is_null: false,
            slab: sum(Space::Slab),
            others: others.map(|space| (space, sum(space))).collect(),
        }
    }

    /// One sum.
    fn alone(name: &'static str, sum: T) -> SpaceSums<T> {
        SpaceSums { name, is_null: false, slab: sum, others: Vec::new() }
    }

    /// No sum, as rows do not add up; `none` stands in for it.
    pub(super) fn null(name: &'static str, none: T) -> SpaceSums<T> {
        SpaceSums { is_null: true, ..SpaceSums::alone(name, none) }
    }

    /// The sums that `of` makes of these.
    pub fn map<U>(&self, of: impl Fn(&T) -> U) -> SpaceSums<U> {
        let others = self.others.iter().map(|(space, sum)| (*space, of(sum))).collect();
        SpaceSums { name: self.name, is_null: self.is_null, slab: of(&self.slab), others }
    }

    /// Sums with their spaces.
    pub fn iter(&self) -> impl Iterator<Item = (Space, &T)> {
        std::iter::once((Space::Slab, &self.slab)).chain(self.others.iter().map(|(space, sum)| (*space, sum)))
    }
}

impl SpaceSums<ToldStats> {
    /// Sums that the input gives, with their spaces.
    pub fn told(&self) -> impl Iterator<Item = (Space, &PrintedStats)> {
        self.iter().filter_map(|(space, sum)| Some((space, sum.0.as_ref()?)))
    }
}

impl<T: Serialize> Serialize for SpaceSums<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut members = serializer.serialize_map(None)?;
        if self.is_null {
            members.serialize_entry(self.name, &None::<()>)?;
            return members.end();
        }
        members.serialize_entry(self.name, &self.slab)?;
        for (space, sum) in &self.others {
            members.serialize_entry(&format!("{}_{}", self.name, space.name()), sum)?;
        }
        members.end()
    }
}

/// Sums and number of the rows left out.
#[derive(Clone, Debug, Serialize)]
pub struct Others<O> {
    /// Sums of these rows.
    #[serde(flatten)]
    pub sums: SpaceSums<O>,
    /// Number of rows.
    pub others_count: usize,
}

impl<O> Others<O> {
    /// Sums of `count` rows by space; `None` without rows.
    pub(super) fn of_spaces(count: usize, ordering: Ordering, sum: impl Fn(Space) -> O) -> Option<Others<O>> {
        (count > 0).then(|| Others { sums: SpaceSums::new("others", ordering, sum), others_count: count })
    }

    /// One sum of `count` rows.
    pub fn one(count: usize, sum: O) -> Others<O> {
        Others { sums: SpaceSums::alone("others", sum), others_count: count }
    }
}

/// Splits off the rows after the first `top`, and adds them up with `sum`, if any, by space.
pub(super) fn split_others<T: Copy, O>(
    rows: &mut Vec<T>,
    top: Option<usize>,
    ordering: Ordering,
    kind: impl Fn(&T) -> Kind,
    sum: impl Fn(&[T]) -> O,
) -> Option<Others<O>> {
    let rest = rows.split_off(top.unwrap_or(rows.len()).min(rows.len()));
    Others::of_spaces(rest.len(), ordering, |space| {
        let of_space: Vec<T> = rest.iter().copied().filter(|row| kind(row).space() == space).collect();
        sum(&of_space)
    })
}

/// Sum of rows of a space.
pub(super) fn sum_of<'s>(
    rows: impl Iterator<Item = &'s Stats>,
    space: Space,
    (saturation, ordering): (&Saturation, Ordering),
) -> ToldStats {
    let mut sum = Stats::default();
    rows.for_each(|stats| sum.add(stats));
    saturation.check(&sum);
    ToldStats::of(space.kind(), &sum, ordering)
}

/// The listing of a view that has a row for each name and kind: `make` makes a row.
///
/// Rows are sorted by the keys, largest first, then by name and kind; those after the first `top` are summed in `others`.
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
    rows.sort_by(|(a, kind, _), (b, other, _)| a.cmp(b).then(kind.cmp(other)));
    rows.sort_by(|a, b| {
        shape.sort.iter().map(|key| compare(key, a, b)).find(|o| o.is_ne()).unwrap_or(cmp::Ordering::Equal)
    });
    let template = rows.first().map(|(name, kind, stats)| make(name, *kind, PrintedStats::new(stats, ordering)));
    let rest = rows.split_off(shape.top.unwrap_or(rows.len()).min(rows.len()));
    let others = Others::of_spaces(rest.len(), ordering, |space| {
        let of_space = rest.iter().filter(|(_, kind, _)| kind.space() == space);
        sum_of(of_space.map(|(_, _, stats)| *stats), space, (saturation, ordering))
    });
    rows.iter().for_each(|(_, _, stats)| saturation.check(stats));
    let rows = Rows::of(rows, move |(name, kind, stats)| make(name, *kind, PrintedStats::new(stats, ordering)));
    Listing::new(rows, others, template)
}
