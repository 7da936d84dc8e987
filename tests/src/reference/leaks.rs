//! Document of `leaks`: every row is counted again from the list of all objects, level by level.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use kmemtrace_abi::clock::OrderKey;
use kmemtrace_abi::event::{Event, Kind, Space};
use kmemtrace_abi::fault::Verdict;
use serde_json::{Value, json};

use super::head::{figures, head, with};
use super::keys::{self, Key, KeyValue};
use super::pairs::{End, Object, Pairs, pairs};
use super::{Known, Selection};

/// Names that the kernel's memory is told by; the library reads the same files.
const RECLAIMABLE: &str = include_str!("../../../analysis/src/names/reclaimable.txt");
const SLAB_OWN: &str = include_str!("../../../analysis/src/names/slab_own.txt");

/// Names of a section of the list.
fn listed(section: &str) -> Vec<&'static str> {
    let (mut names, mut is_in) = (Vec::new(), false);
    for line in RECLAIMABLE.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if line.starts_with('[') {
            is_in = line == section;
        } else if is_in {
            names.push(line);
        }
    }
    names
}

/// True if a pattern with `*` at its end, or none, matches.
pub(super) fn matches(pattern: &str, name: &str) -> bool {
    pattern.strip_suffix('*').map_or(pattern == name, |begin| name.starts_with(begin))
}

pub(super) fn is_listed(section: &str, name: &str) -> bool {
    listed(section).iter().any(|pattern| matches(pattern, name))
}

/// Whether the kernel takes an object back, and the origin of this; the contract's rule for one object.
fn reclaimable(known: &Known, pairs: &Pairs, object: &Object) -> (Option<bool>, Option<&'static str>) {
    if object.kind.space() != Space::Slab {
        return (Some(false), None);
    }
    let cache = if object.kind == Kind::Cache { pairs.cache(known, &object.alloc, Kind::Cache).name } else { None };
    let function = known.symbols.as_ref().and_then(|symbols| symbols.function(object.alloc.call_site));
    if function.is_some_and(|function| is_listed("[call-sites]", &function.name))
        || cache.as_ref().is_some_and(|name| is_listed("[followers]", name))
    {
        return (Some(true), Some("list"));
    }
    if object.kind == Kind::Kmalloc {
        // The generator's formats have no names of flags, so no flag asks for such memory.
        return (Some(false), Some("flag"));
    }
    let Some(cache) = cache else { return (None, None) };
    match known.reclaim_account.lines().find_map(|line| line.strip_prefix(&format!("{cache} "))) {
        Some(flag) => (Some(flag == "1"), Some("flag")),
        None => (Some(is_listed("[caches]", &cache)), Some("list")),
    }
}

/// Whether the kernel takes the objects of a row back: not if it leaves one; not known if one is not known; else it does.
fn reclaimable_row(known: &Known, pairs: &Pairs, objects: &[&Object]) -> (Option<bool>, Option<&'static str>) {
    let all: Vec<_> = objects.iter().map(|object| reclaimable(known, pairs, object)).collect();
    let is = if all.iter().any(|(is, _)| *is == Some(false)) {
        Some(false)
    } else if all.iter().any(|(is, _)| is.is_none()) {
        None
    } else {
        Some(true)
    };
    let from = all.iter().filter(|(of, _)| *of == is).filter_map(|(_, from)| *from).max_by_key(|from| *from == "list");
    (is, from.filter(|_| is.is_some()))
}

/// Row: the names that it has, its live objects, and what it counts.
#[derive(Clone, Debug)]
struct Row<'p> {
    names: Value,
    order: Vec<KeyValue>,
    task: (Option<i32>, Option<String>),
    kind: Kind,
    live: Vec<&'p Object>,
    bytes: u64,
    allocs: u64,
    born: [u64; 10],
    is_bound: bool,
    reclaimable: (Option<bool>, Option<&'static str>),
    verdict: Option<&'static str>,
}

/// Facts of the trace, and its pairs without filters.
struct Leaks<'k> {
    known: &'k Known,
    pairs: &'k Pairs,
    first: u64,
    last: u64,
    is_judged: bool,
    is_lossy: bool,
}

impl<'k> Leaks<'k> {
    fn tenth(&self, at: u64) -> usize {
        let (since, all) = (u128::from(at - self.first), u128::from(self.last - self.first));
        (since * 10).checked_div(all).map_or(0, |tenth| (tenth as usize).min(9))
    }

    fn seconds(&self) -> Option<f64> {
        let span = self.last - self.first;
        (self.known.is_timed() && span > 0).then(|| span as f64 / 1e9)
    }

    /// The row of the allocations of `is_of`; `None` without a live object.
    fn row(
        &self,
        (names, order): (Value, Vec<KeyValue>),
        kind: Kind,
        is_of: &dyn Fn(&Event) -> bool,
    ) -> Option<Row<'k>> {
        let is_of_kind = |event: &Event, of: Kind| of == kind && is_of(event);
        let live = self.pairs.objects.iter().filter(|o| matches!(o.end, End::Live) && is_of_kind(&o.alloc, o.kind));
        let live: Vec<&Object> = live.collect();
        let mut born = [0; 10];
        live.iter().for_each(|object| born[self.tenth(object.alloc.at)] += 1);
        let (figures, _) = figures(self.known, self.pairs, &is_of_kind);
        let row = Row {
            task: (names["pid"].as_i64().map(|pid| pid as i32), names["comm"].as_str().map(str::to_owned)),
            names,
            order,
            kind,
            bytes: live.iter().map(|object| object.live_bytes().1).sum(),
            allocs: figures["allocs"].as_u64().unwrap_or(0),
            born,
            is_bound: figures["live_is_upper_bound"] == true,
            reclaimable: reclaimable_row(self.known, self.pairs, &live),
            verdict: None,
            live,
        };
        (!row.live.is_empty()).then(|| Row { verdict: self.verdict(&row), ..row })
    }

    fn verdict(&self, row: &Row<'_>) -> Option<&'static str> {
        let frees =
            self.known.recorded_frees.contains(&row.kind) || super::figures::free_events(self.pairs, row.kind) > 0;
        if !is_steady(&row.born) {
            return Some("no");
        }
        if !self.is_judged || !frees {
            return None;
        }
        Some(match row.reclaimable.0 {
            Some(true) => "cache",
            Some(false) if !row.is_bound && !self.is_lossy => "leak",
            _ => "maybe",
        })
    }

    /// True for a call-site of the allocator's own.
    fn is_own(&self, event: &Event) -> bool {
        let function = self.known.symbols.as_ref().and_then(|symbols| symbols.function(event.call_site));
        let names = SLAB_OWN.lines().filter(|line| !line.starts_with('#'));
        function.is_some_and(|function| names.into_iter().any(|name| name == function.name))
    }

    /// Rows by these keys of the allocations that `takes`, the other rows' keys null in the names of `nulls`.
    fn level(&self, by: &[Key], nulls: &[&str], takes: &dyn Fn(&Event, Kind) -> bool) -> Vec<Row<'k>> {
        let mut groups: BTreeMap<(Vec<KeyValue>, Kind), Event> = BTreeMap::new();
        for object in self.pairs.objects.iter().filter(|o| takes(&o.alloc, o.kind) && !self.is_own(&o.alloc)) {
            let values = keys::values(by, self.known, self.pairs, &object.alloc, object.kind);
            groups.insert((values, object.kind), object.alloc);
        }
        let row = |((values, kind), example): ((Vec<KeyValue>, Kind), Event)| {
            let mut names = keys::row_names(by, self.known, self.pairs, &example, kind);
            nulls.iter().for_each(|null| names[*null] = Value::Null);
            let is_of = |event: &Event| {
                takes(event, kind)
                    && !self.is_own(event)
                    && keys::values(by, self.known, self.pairs, event, kind) == values
            };
            self.row((names, values.clone()), kind, &is_of)
        };
        groups.into_iter().filter_map(row).collect()
    }

    /// Rows that are listed, in no order.
    fn rows(&self, by: Option<&[Key]>) -> Vec<Row<'k>> {
        if let Some(keys) = by {
            let mut rows = self.level(keys, &[], &|_, _| true);
            rows.retain(|row| row.verdict != Some("no"));
            return rows;
        }
        let mut listed: Vec<Row<'k>> = Vec::new();
        let levels: [(&[Key], &[&str]); 3] =
            [(&[Key::Site, Key::Task], &[]), (&[Key::Site, Key::Comm], &["pid"]), (&[Key::Site], &["pid", "comm"])];
        // Allocations of the rows that are listed, by what these are made of.
        let mut gone: Vec<(&[Key], Vec<KeyValue>, Kind)> = Vec::new();
        for (number, (keys, nulls)) in levels.into_iter().enumerate() {
            let is_left = |event: &Event, kind: Kind| {
                !gone.iter().any(|(keys, values, of)| {
                    *of == kind && keys::values(keys, self.known, self.pairs, event, kind) == *values
                })
            };
            let mut rows = self.level(keys, nulls, &is_left);
            let is_half = |row: &Row<'_>| number < 2 || row.live.len() as u64 * 2 >= row.allocs;
            rows.retain(|row| row.verdict != Some("no") && is_half(row));
            gone.extend(rows.iter().map(|row| (keys, row.order.clone(), row.kind)));
            listed.extend(rows);
        }
        listed
    }
}

/// The contract's definition.
fn is_steady(born: &[u64; 10]) -> bool {
    let old = &born[..9];
    let s: u64 = old.iter().sum();
    let mean = |part: &[u64]| part.iter().sum::<u64>() as f64 / part.len() as f64;
    let (first, last) = (mean(&old[..5]), mean(&old[5..]));
    s >= 10
        && old.iter().filter(|&&n| n > 0).count() >= 8
        && old.iter().all(|&n| n as f64 <= 0.4 * s as f64 + 1e-9)
        && last <= 2.0 * first + 1e-9
        && first <= 3.0 * last + 1e-9
}

/// True if the row belongs to the group of `first`.
fn matches_group(row: &Row<'_>, first: &Row<'_>) -> bool {
    let (a, b) = (row.live.len() as f64, first.live.len() as f64);
    let is_near =
        (1..=4).any(|times| (a.max(b) - f64::from(times) * a.min(b)).abs() <= 0.1 * f64::from(times) * a.min(b) + 1e-9);
    let births = row.born.iter().zip(first.born);
    let distance: f64 = births.map(|(&own, other)| (own as f64 / a - other as f64 / b).abs()).sum();
    row.task == first.task && is_near && distance <= 0.2 + 1e-9
}

/// Document of `leaks`, or of `leaks --by KEYS`.
pub fn leaks(known: &Known, by: Option<&[Key]>) -> Value {
    let all = Known { selection: Selection::default(), ..known.clone() };
    let of_all = pairs(&all);
    let (first, last) = (of_all.events.first().map_or(0, |e| e.at), of_all.events.last().map_or(0, |e| e.at));
    let is_short = known.is_timed() && last - first < 2_000_000_000;
    let mut leaks = Leaks {
        known: &all,
        pairs: &of_all,
        first,
        last,
        is_judged: known.trace.order == OrderKey::Time && !is_short,
        is_lossy: false,
    };
    let touched = (0..10i128).filter(|tenth| {
        // Keys of the tenth, both ends included; none where the last is below the first.
        let (first, last) = (i128::from(first), i128::from(last));
        let begin = |tenth: i128| first + ((last - first) * tenth + 9) / 10;
        let (from, to) = (begin(*tenth), if *tenth == 9 { last } else { begin(tenth + 1) - 1 });
        let mut gaps = all.gaps().into_iter();
        gaps.any(|gap| {
            i128::from(gap.from.unwrap_or(0)) <= to && i128::from(gap.to.unwrap_or(u64::MAX)) >= from && from <= to
        })
    });
    leaks.is_lossy = known.verdict != Verdict::Complete && touched.count() > 1;
    let mut rows = leaks.rows(by);
    rows.retain(|row| row.live.iter().any(|object| of_all.takes(known, &object.alloc)));
    let rank = |row: &Row<'_>| match row.verdict {
        Some("leak") => 0,
        Some("maybe") => 1,
        Some("cache") => 2,
        _ => 3,
    };
    rows.sort_by_key(|row| {
        let (pid, comm) = row.task.clone();
        (rank(row), Reverse(row.bytes), row.order.clone(), row.kind, pid, comm)
    });
    let mut groups: Vec<Vec<Row<'_>>> = Vec::new();
    for row in rows {
        match groups.iter_mut().find(|group| matches_group(&row, &group[0])) {
            Some(group) => group.push(row),
            None => groups.push(vec![row]),
        }
    }
    let seconds = leaks.seconds();
    let printed = |group: usize, row: &Row<'_>| {
        let objects = row.live.len() as f64;
        let alive = row.task.0.zip(known.threads_end.as_ref()).map(|(pid, threads)| threads.contains(&pid));
        with(
            row.names.clone(),
            json!({
                "live_objects": row.live.len(), "live_allocated": row.bytes, "allocs": row.allocs, "born": row.born,
                "kept": objects / row.allocs as f64, "rate": seconds.map(|s| objects / s),
                "bytes_rate": seconds.map(|s| row.bytes as f64 / s), "live_is_upper_bound": row.is_bound,
                "reclaimable": row.reclaimable.0, "reclaimable_from": row.reclaimable.1, "verdict": row.verdict,
                "group": group + 1, "task_alive": alive,
            }),
        )
    };
    let rows: Vec<Value> = groups
        .iter()
        .enumerate()
        .flat_map(|(number, rows)| rows.iter().map(move |row| (number, row)))
        .map(|(number, row)| printed(number, row))
        .collect();
    let words = by.map_or(vec!["task", "site"], keys::words);
    with(head("leaks/1", &words, known, &of_all), json!({ "rows": rows }))
}
