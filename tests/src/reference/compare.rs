//! Document of `compare`: figures of two traces, or of two windows of one.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use kmemtrace_abi::event::{Event, Kind, Space};
use serde_json::{Map, Value, json};

use super::Known;
use super::groups::groups;
use super::head::{allocations, completeness, figures, merged, of_space, query, trace, with};
use super::keys::{self, Key, KeyValue};
use super::pairs::Pairs;

/// One of the two sides.
pub type Side<'a> = (&'a Known, &'a Pairs);

/// Keys of `compare` where nothing else is asked for.
pub const BY_FUNCTION: [Key; 1] = [Key::Function];

/// Values, kind, and 1 for a row of the second side whose call-site has nothing to do with the first side's.
type RowKey = (Vec<KeyValue>, Kind, usize);

/// Document of `compare --by KEYS`: [`BY_FUNCTION`] or [`Key::Cache`]. `is_one_trace` is true for two windows of one
/// trace, in which a call-site means the same.
pub fn compare(sides: [Side; 2], keys: &[Key], is_one_trace: bool) -> Value {
    let [before, after] = sides;
    let texts = sides.map(|(known, _)| known.symbols.as_ref().and_then(|symbols| symbols.text));
    let shares_sites = is_one_trace || texts[0].is_some() && texts[0] == texts[1];
    let mut names: BTreeMap<RowKey, Value> = BTreeMap::new();
    for (number, (known, pairs)) in sides.into_iter().enumerate() {
        for group in groups(known, pairs, keys) {
            let key = row_key(group.values, group.kind, number, shares_sites);
            names.entry(key).or_insert_with(|| row_names(keys, known, pairs, &group.example, group.kind));
        }
    }
    let row = |(key, names): (RowKey, Value)| {
        let side = |number: usize| {
            let (known, pairs) = sides[number];
            let is_of_row =
                |e: &Event, kind| row_key(keys::values(keys, known, pairs, e, kind), kind, number, shares_sites) == key;
            // A peak of several rows is not known.
            let sites: BTreeSet<u64> =
                allocations(pairs).filter(|(e, kind)| is_of_row(e, *kind)).map(|(e, _)| e.call_site).collect();
            let values: BTreeSet<Vec<KeyValue>> = allocations(pairs)
                .filter(|(e, kind)| is_of_row(e, *kind))
                .map(|(e, kind)| keys::values(keys, known, pairs, e, kind))
                .collect();
            let is_merged = if keys == BY_FUNCTION { sites.len() > 1 } else { values.len() > 1 };
            if is_merged {
                return merged(known, pairs, &is_of_row);
            }
            let mut figures = figures(known, pairs, &is_of_row).0;
            if sites.is_empty() && key.1 == Kind::Pages {
                nothing_of_pages(known, pairs, &mut figures);
            }
            figures
        };
        with(names, changes(sides, side(0), side(1)))
    };
    let mut rows: Vec<Value> = names.into_iter().map(row).collect();
    let change = |row: &Value, member: &str| row["change"][member].as_i64().map(i64::unsigned_abs);
    rows.sort_by_key(|row| Reverse((change(row, "live_allocated"), change(row, "allocated"))));
    let total = |space: Space| {
        let sum = |(known, pairs): Side| figures(known, pairs, &|_, kind| kind.space() == space).0;
        changes(sides, sum(before), sum(after))
    };
    let worse = if before.0.verdict > after.0.verdict { before } else { after };
    let document = json!({
        "schema": "kmemtrace.compare/1",
        "completeness": completeness(worse.0, worse.1),
        "trace": trace(after.0, after.1),
        "query": query(after.0, &keys::words(keys)),
        "before": side(before),
        "after": side(after),
        "rows": rows,
    });
    let spaces: BTreeSet<Space> = sides.iter().flat_map(|(known, _)| known.spaces()).collect();
    let spaces = spaces.into_iter();
    spaces.fold(document, |document, space| with(document, json!({ of_space("total", space): total(space) })))
}

/// Figures of all pages.
fn figures_of_pages(known: &Known, pairs: &Pairs) -> Value {
    figures(known, pairs, &|_, kind| kind == Kind::Pages).0
}

/// Sets the figures of pages of a side without the row to 0, as far as the side's trace tells any.
fn nothing_of_pages(known: &Known, pairs: &Pairs, figures: &mut Value) {
    let (whole, size) = (pairs.has_whole_blocks(), known.trace.page_bytes);
    if whole && size.is_none() {
        return;
    }
    for member in ["pages_allocated", "pages_freed", "pages_inferred", "live_pages"] {
        figures[member] = json!(0);
    }
    let all = figures_of_pages(known, pairs);
    for member in ["peak_live_pages", "partial_frees"] {
        figures[member] = if all[member].is_null() { Value::Null } else { json!(0) };
    }
}

/// Call-sites without a function are the same in both traces only if the kernel's code was at the same place; `0x0` is no
/// call-site, and the same everywhere.
fn row_key(mut values: Vec<KeyValue>, kind: Kind, side: usize, shares_sites: bool) -> RowKey {
    // Candidates of a cache are no name.
    if let [_, _] = values[..] {
        values.truncate(1);
    }
    let is_site = matches!(values.as_slice(), [.., KeyValue::Number(site)] if *site != 0);
    let side = if is_site && !shares_sites { side } else { 0 };
    (values, kind, side)
}

/// Names of a row; that of a cache without `cache_from`, which may differ between the sides.
fn row_names(keys: &[Key], known: &Known, pairs: &Pairs, alloc: &Event, kind: Kind) -> Value {
    let mut names = keys::names(keys, known, pairs, alloc, kind);
    if let Some(members) = names.as_object_mut() {
        members.remove("cache_from");
        members.remove("cache_candidates");
    }
    names
}

/// Members `before` and `after` of the document.
fn side((known, pairs): Side) -> Value {
    json!({
        "completeness": completeness(known, pairs), "trace": trace(known, pairs), "seconds": seconds(known, pairs),
    })
}

/// Seconds from the first event to the last; `None` for keys that are no times.
fn seconds(known: &Known, pairs: &Pairs) -> Option<f64> {
    let (first, last) = pairs.events.first().zip(pairs.events.last())?;
    known.is_timed().then(|| (last.at - first.at) as f64 / 1e9)
}

/// Members of figures on two sides.
fn changes(sides: [Side; 2], before: Value, after: Value) -> Value {
    let number = |figures: &Value, member: &str| figures[member].as_u64().unwrap_or(0);
    let change = |member: &str| {
        let change = i128::from(number(&after, member)) - i128::from(number(&before, member));
        (member.to_owned(), json!(i64::try_from(change).unwrap_or(if change < 0 { i64::MIN } else { i64::MAX })))
    };
    let change: Map<String, Value> = ["live_allocated", "allocated", "allocs"].map(change).into_iter().collect();
    let [then, now] = sides.map(|(known, pairs)| seconds(known, pairs).filter(|&seconds| seconds > 0.0));
    let per_second = then.zip(now).map(|(then, now)| {
        let rates = |member: &str| [number(&before, member) as f64 / then, number(&after, member) as f64 / now];
        json!({ "allocated": rates("allocated"), "allocs": rates("allocs") })
    });
    json!({ "before": before, "after": after, "change": change, "per_second": per_second })
}
