//! Documents whose rows are groups of allocations: `sites`, `caches`, `live` without `--objects`.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use kmemtrace_abi::event::{Event, Kind, Space};
use serde_json::{Value, json};

use super::growth::Slices;
use super::head::{allocations, figures, head, merged, of_space, with};
use super::keys::{self, Key, KeyValue};
use super::pairs::{End, Object, Pairs};
use super::{Known, machine};

/// Sort key of rows, greatest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sort {
    /// Word of the sort key.
    pub word: &'static str,
    /// Member of the row; none for the names of the row, ascending.
    member: Option<&'static str>,
}

impl Sort {
    /// Live allocated bytes.
    pub const LIVE: Sort = Sort::new("live", "live_allocated");
    const LIVE_WASTED: Sort = Sort::new("live_wasted", "live_wasted");
    const WASTED: Sort = Sort::new("wasted", "wasted");
    const SITE: Sort = Sort { word: "site", member: None };

    /// Sort keys of rows with all figures.
    pub const OF_FIGURES: [Sort; 10] = [
        Sort::LIVE,
        Sort::LIVE_WASTED,
        Sort::SITE,
        Sort::WASTED,
        Sort::new("peak", "peak_live_allocated"),
        Sort::new("total", "allocated"),
        Sort::new("requested", "requested"),
        Sort::new("allocs", "allocs"),
        Sort::new("frees", "frees"),
        Sort::new("cross", "cross_cpu"),
    ];

    /// Sort keys of `live` without `--objects`.
    pub const OF_LIVE: [Sort; 4] = [Sort::LIVE, Sort::LIVE_WASTED, Sort::SITE, Sort::new("growth", "grew")];

    const fn new(word: &'static str, member: &'static str) -> Sort {
        Sort { word, member: Some(member) }
    }

    /// Rank of a row. Figures that are null rank last.
    fn rank(self, row: &Value) -> Reverse<Option<i128>> {
        let figure = self.member.map(|member| &row[member]);
        Reverse(figure.and_then(|figure| figure.as_u64().map(i128::from).or(figure.as_i64().map(i128::from))))
    }
}

/// Order and number of rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// Sort keys; none: those of the view.
    pub sort: Vec<Sort>,
    /// Limit of rows; the rest is summed.
    pub top: Option<usize>,
}

/// Values and kind of a row.
type RowKey = (Vec<KeyValue>, Kind);

/// Group of allocations with equal values and kinds, and one of them.
#[derive(Clone, Debug)]
pub struct Group {
    /// Values in the order of the keys.
    pub values: Vec<KeyValue>,
    /// Kind.
    pub kind: Kind,
    /// Any allocation of the group.
    pub example: Event,
}

/// Groups in the order of their values and kinds.
pub fn groups(known: &Known, pairs: &Pairs, keys: &[Key]) -> Vec<Group> {
    let key = |event: &Event, kind| (keys::values(keys, known, pairs, event, kind), kind);
    let all: BTreeMap<RowKey, Event> = allocations(pairs).map(|(e, kind)| (key(e, kind), *e)).collect();
    all.into_iter().map(|((values, kind), example)| Group { values, kind, example }).collect()
}

impl Group {
    /// True for an allocation of the group.
    pub fn has(&self, known: &Known, pairs: &Pairs, keys: &[Key], event: &Event, kind: Kind) -> bool {
        kind == self.kind && keys::values(keys, known, pairs, event, kind) == self.values
    }
}

/// Sorts rows; equal ones keep their order.
fn sort(rows: &mut [(Group, Value)], keys: &[Sort]) {
    rows.sort_by_key(|(_, row)| keys.iter().map(|key| key.rank(row)).collect::<Vec<_>>());
}

fn or<'a>(asked: &'a [Sort], usual: &'a [Sort]) -> &'a [Sort] {
    if asked.is_empty() { usual } else { asked }
}

/// Member `rows` with all figures, and the sums of the rows left out.
fn figure_rows(known: &Known, pairs: &Pairs, keys: &[Key], shape: &Shape, of_caches: bool) -> Value {
    // Documents of caches have no others.
    let is_shown = |group: &Group| !of_caches || group.kind.space().is_always_shown();
    let row = |group: Group| {
        let (figures, _) = figures(known, pairs, &|e, kind| group.has(known, pairs, keys, e, kind));
        let names = keys::row_names(keys, known, pairs, &group.example, group.kind);
        let texts = match keys {
            [Key::Cache] if of_caches => machine::slabs(known, names["cache"].as_str()),
            [Key::SourceFunction] => machine::allocinfo_change(known, &names),
            _ => json!({}),
        };
        (group, with(names, with(figures, texts)))
    };
    let mut rows: Vec<(Group, Value)> = groups(known, pairs, keys).into_iter().filter(is_shown).map(row).collect();
    sort(&mut rows, or(&shape.sort, &[Sort::WASTED]));
    let rest = rows.split_off(shape.top.unwrap_or(rows.len()).min(rows.len()));
    let rows: Vec<Value> = rows.into_iter().map(|(_, row)| row).collect();
    if rest.is_empty() {
        return json!({ "rows": rows });
    }
    let is_left_out = |e: &Event, kind| rest.iter().any(|(group, _)| group.has(known, pairs, keys, e, kind));
    let sum = |space: Space| merged(known, pairs, &|e, kind| kind.space() == space && is_left_out(e, kind));
    let members = json!({ "rows": rows, "others_count": rest.len() });
    known.spaces().fold(members, |members, space| with(members, json!({ of_space("others", space): sum(space) })))
}

/// Document of `sites --by KEYS`.
pub fn sites_by(known: &Known, pairs: &Pairs, keys: &[Key], shape: &Shape) -> Value {
    let schema = if keys == [Key::Site] { "sites/1" } else { "sites/2" };
    with(head(schema, &keys::words(keys), known, pairs), figure_rows(known, pairs, keys, shape, false))
}

/// Document of `sites`.
pub fn sites(known: &Known, pairs: &Pairs) -> Value {
    sites_by(known, pairs, &[Key::Site], &Shape::default())
}

/// Document of `caches`.
pub fn caches(known: &Known, pairs: &Pairs, shape: &Shape) -> Value {
    let keys = [Key::Cache];
    let rows = figure_rows(known, pairs, &keys, &Shape::default(), true);
    let idle = machine::without_events(known, rows["rows"].as_array().map_or(&[], |rows| rows));
    let members = with(figure_rows(known, pairs, &keys, shape, true), idle);
    with(head("caches/2", &keys::words(&keys), known, pairs), members)
}

/// Document of `live --by KEYS`.
pub fn live_by(known: &Known, pairs: &Pairs, keys: &[Key], shape: &Shape) -> Value {
    let boundary = Slices::of(known, pairs).and_then(|slices| slices.boundary_at_nine_tenths());
    let row = |group: Group| live_row(known, pairs, keys, boundary, group);
    let mut rows: Vec<(Group, Value)> = groups(known, pairs, keys).into_iter().filter_map(row).collect();
    sort(&mut rows, or(&shape.sort, &[Sort::LIVE]));
    let rows: Vec<Value> = rows.into_iter().map(|(_, row)| row).collect();
    with(head("live/2", &keys::words(keys), known, pairs), json!({ "rows": rows }))
}

/// Row of `live`; `None` for a group without live objects. `boundary` is the key that growth is counted from.
fn live_row(known: &Known, pairs: &Pairs, keys: &[Key], boundary: Option<u64>, group: Group) -> Option<(Group, Value)> {
    let is_of_group = |e: &Event, kind| group.has(known, pairs, keys, e, kind);
    let own: Vec<&Object> = pairs.objects.iter().filter(|o| is_of_group(&o.alloc, o.kind)).collect();
    let live: Vec<&Object> = own.iter().copied().filter(|o| matches!(o.end, End::Live)).collect();
    let (oldest, median) = (live.first()?.alloc.at, live[(live.len() - 1) / 2].alloc.at);
    let (figures, _) = figures(known, pairs, &is_of_group);
    let now: i128 = live.iter().map(|o| i128::from(o.live_bytes().1)).sum();
    let then = boundary.map_or(0, |at| super::growth::live_at(pairs, &own, at));
    let mut row = with(
        keys::row_names(keys, known, pairs, &group.example, group.kind),
        json!({ "oldest": oldest, "median": median, "grew": (now - i128::from(then)) as i64 }),
    );
    for member in ["live_objects", "live_requested", "live_allocated", "live_wasted", "live_is_upper_bound"] {
        row[member] = figures[member].clone();
    }
    Some((group, row))
}
