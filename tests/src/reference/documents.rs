//! JSON documents of each view. Symbols are null: the reference knows no names of functions.

use std::collections::BTreeSet;

use kmemtrace_abi::clock::OrderKey;
use kmemtrace_abi::event::{Action, Event, Gap, Kind, StreamItem};
use kmemtrace_abi::fault::Verdict;
use kmemtrace_abi::stream::report::Source;
use serde_json::{Map, Value, json};

use super::Known;
use super::figures::{findings, free_events};
use super::pairs::{Class, End, Finding, Object, Pairs};

fn hex(address: u64) -> String {
    format!("{address:#x}")
}

fn site(address: Option<u64>) -> Value {
    address.map_or(Value::Null, |a| hex(a).into())
}

/// Members of `a` and `b`.
fn with(a: Value, b: Value) -> Value {
    match (a, b) {
        (Value::Object(mut a), Value::Object(b)) => {
            a.extend(b);
            Value::Object(a)
        }
        (a, _) => a,
    }
}

/// Members at the head of every document.
fn head(view: &str, known: &Known, pairs: &Pairs) -> Value {
    let verdict = match known.verdict {
        Verdict::Complete => "complete",
        Verdict::Lossy => "lossy",
        Verdict::Truncated => "truncated",
        Verdict::Corrupt => "corrupt",
    };
    let trace = &known.trace;
    let input = trace.input.name();
    let source = trace.source.map(|source| match source {
        Source::Tracefs => "tracefs",
        Source::Relay => "relay",
    });
    let mut members = json!({
        "input": input, "source": source, "kernel": trace.kernel, "arch": trace.arch, "endian": trace.endian,
        "word_bytes": trace.word_bytes, "page_bytes": trace.page_bytes, "addresses": "raw", "clock": trace.clock,
        "cpus": known.cpus.len(), "own_threads": known.own_threads.as_ref().map(BTreeSet::from_iter),
        "order": if trace.order == OrderKey::Time { "time" } else { "sequence" },
    });
    // A trace without events has no first or last key.
    if let (Some(first), Some(last)) = (pairs.events.first(), pairs.events.last()) {
        members = with(members, json!({ "first": first.at, "last": last.at }));
    }
    json!({
        "schema": format!("kmemtrace.{view}/1"),
        "completeness": {
            "verdict": verdict, "lost_events": known.lost, "gaps": pairs.gaps.len(),
            "truncated_files": known.truncated, "missing_cpus": known.missing,
            "inferred_frees": pairs.unfiltered.0, "frees_without_alloc": pairs.unfiltered.1,
        },
        "trace": members,
    })
}

/// Figure that depends on the order of events: null if the order is unknown.
fn ordered(known: &Known, value: Value) -> Value {
    if known.is_without_order() { Value::Null } else { value }
}

/// Figures of a row.
fn figures(known: &Known, pairs: &Pairs, select: &dyn Fn(&Event, Kind) -> bool) -> (Value, u64) {
    let (mut figures, peak_at) = super::figures::figures(pairs, select);
    for member in ["cross_cpu", "peak_live_allocated"] {
        figures[member] = ordered(known, figures[member].take());
    }
    (figures, peak_at)
}

/// Document of `summary`.
pub fn summary(known: &Known, pairs: &Pairs) -> Value {
    let other = pairs.events.iter().filter(|e| e.action == Action::Other).count();
    let mut kinds = Map::new();
    for kind in Kind::ALL {
        let (own, _) = figures(known, pairs, &|_, k| k == kind);
        kinds.insert(kind.name().into(), with(own, json!({ "free_events": free_events(pairs, kind) })));
    }
    let (total, peak_at) = figures(known, pairs, &|_, kind| kind != Kind::Pages);
    let peak_at = ordered(known, json!(peak_at));
    let total = if total["peak_live_allocated"] == 0 { total } else { with(total, json!({ "peak_at": peak_at })) };
    let freed: Vec<(Event, Event)> = freed(pairs).map(|(o, free)| (o.alloc, free)).collect();
    let cross: Vec<_> = freed.iter().filter(|(alloc, free)| alloc.cpu != free.cpu).collect();
    let nodes_differ = |(alloc, free): &&(Event, Event)| known.nodes.get(&alloc.cpu) != known.nodes.get(&free.cpu);
    let cross_node = known.nodes_are_known().then(|| freed.iter().filter(nodes_differ).count());
    let mut counts = Map::new();
    for class in Class::SUSPECT {
        let (count, suspect) = findings(pairs, class);
        counts.insert(class.name().into(), json!({ "count": count, "suspect": suspect }));
    }
    for class in [Class::FreeWithoutAlloc, Class::ShortAlloc, Class::FailedAlloc, Class::NullFree] {
        counts.insert(class.name().into(), json!({ "count": findings(pairs, class).0 }));
    }
    let body = json!({
        "events": { "total": pairs.events.len(), "used": pairs.events.len() - other, "other": other },
        "kinds": kinds,
        "total": total,
        "pairs": {
            "paired": freed.len(), "cross_cpu": ordered(known, json!(cross.len())),
            "cross_cpu_bytes": ordered(known, json!(cross.iter().map(|(alloc, _)| alloc.allocated).sum::<u64>())),
            "cross_node": ordered(known, json!(cross_node)),
        },
        "own": known.own_threads.is_some().then(|| json!({ "allocs": pairs.own.0, "allocated": pairs.own.1 })),
        "findings": counts,
    });
    with(head("summary", known, pairs), body)
}

fn freed(pairs: &Pairs) -> impl Iterator<Item = (&Object, Event)> {
    pairs.objects.iter().filter_map(|o| match o.end {
        End::Freed { free, .. } => Some((o, free)),
        _ => None,
    })
}

/// Allocation events, failed ones included, with their kinds.
fn allocations(pairs: &Pairs) -> impl Iterator<Item = (&Event, Kind)> {
    pairs.taken().filter_map(|e| match e.action {
        Action::Alloc(kind) => Some((e, kind)),
        _ => None,
    })
}

/// Sorts rows by waste, greatest first; ties keep their order.
fn by_waste(mut rows: Vec<Value>) -> Vec<Value> {
    rows.sort_by_key(|row| std::cmp::Reverse(row["wasted"].as_u64()));
    rows
}

/// Document of `sites`.
pub fn sites(known: &Known, pairs: &Pairs) -> Value {
    let keys: BTreeSet<(u64, Kind)> = allocations(pairs).map(|(e, kind)| (e.call_site, kind)).collect();
    let row = |&(call_site, kind): &(u64, Kind)| {
        let (figures, _) = figures(known, pairs, &|e, k| (e.call_site, k) == (call_site, kind));
        let key = json!({ "call_site": hex(call_site), "symbol": null, "module": null, "kind": kind.name() });
        with(key, figures)
    };
    with(head("sites", known, pairs), json!({ "rows": by_waste(keys.iter().map(row).collect()) }))
}

/// Name of the cache in an event.
fn cache<'a>(known: &'a Known, event: &Event) -> Option<&'a str> {
    event.cache.map(|id| std::str::from_utf8(known.names.get(id)).unwrap_or("?"))
}

/// Document of `caches`.
pub fn caches(known: &Known, pairs: &Pairs) -> Value {
    let keys: BTreeSet<(Option<&str>, Kind)> = allocations(pairs).map(|(e, kind)| (cache(known, e), kind)).collect();
    let row = |&(name, kind): &(Option<&str>, Kind)| {
        let (figures, _) = figures(known, pairs, &|e, k| (cache(known, e), k) == (name, kind));
        with(json!({ "cache": name, "kind": kind.name() }), figures)
    };
    with(head("caches", known, pairs), json!({ "rows": by_waste(keys.iter().map(row).collect()) }))
}

/// Document of `mismatch`.
pub fn mismatch(known: &Known, pairs: &Pairs) -> Value {
    let listed = |f: &&Finding| Class::SUSPECT.contains(&f.class) || f.class == Class::ShortAlloc;
    let all: Vec<&Finding> = pairs.findings.iter().filter(listed).collect();
    let key = |f: &Finding| (f.class, f.alloc_site, f.free_site, f.kind);
    let keys: BTreeSet<_> = all.iter().map(|f| key(f)).collect();
    let mut rows: Vec<Value> = Vec::new();
    for group in keys {
        let of_group: Vec<_> = all.iter().filter(|f| key(f) == group).collect();
        let first = of_group[0].event;
        rows.push(json!({
            "class": group.0.name(), "alloc_site": site(group.1), "alloc_symbol": null,
            "free_site": site(group.2), "free_symbol": null, "kind": group.3.name(),
            "count": of_group.len(), "suspect": of_group.iter().filter(|f| f.suspect).count(),
            "first": { "at": first.at, "cpu": first.cpu, "address": hex(first.address) },
        }));
    }
    rows.sort_by_key(|row| std::cmp::Reverse(row["count"].as_u64()));
    with(head("mismatch", known, pairs), json!({ "rows": rows }))
}

fn comm(known: &Known, event: &Event) -> Value {
    event.pid.and_then(|pid| known.comms.get(&pid)).map_or(Value::Null, |comm| comm.clone().into())
}

/// Document of `live`.
pub fn live(known: &Known, pairs: &Pairs) -> Value {
    let live = pairs.objects.iter().filter(|o| matches!(o.end, End::Live));
    let rows: Vec<Value> = live
        .map(|Object { alloc, kind, .. }| {
            json!({
                "address": hex(alloc.address), "call_site": hex(alloc.call_site), "symbol": null, "kind": kind.name(),
                "cache": cache(known, alloc), "requested": alloc.requested, "allocated": alloc.allocated,
                "cpu": alloc.cpu, "pid": alloc.pid, "comm": comm(known, alloc), "at": alloc.at,
            })
        })
        .collect();
    with(head("live", known, pairs), json!({ "rows": rows }))
}

/// Document of `cross`. Rows without a cross-CPU pair are left out, unless the number of pairs is unknown.
pub fn cross(known: &Known, pairs: &Pairs) -> Value {
    let cpus: Vec<u32> = known.cpus.iter().map(|(cpu, _)| *cpu).collect();
    let count = |row: u32, column: u32| freed(pairs).filter(|(o, f)| (o.alloc.cpu, f.cpu) == (row, column)).count();
    let matrix: Vec<Vec<usize>> =
        cpus.iter().map(|&row| cpus.iter().map(|&column| count(row, column)).collect()).collect();
    let keys: BTreeSet<(u64, Kind)> = freed(pairs).map(|(o, _)| (o.alloc.call_site, o.kind)).collect();
    let row = |(call_site, kind): (u64, Kind)| {
        let own: Vec<_> = freed(pairs).filter(|(o, _)| (o.alloc.call_site, o.kind) == (call_site, kind)).collect();
        let crossing = own.iter().filter(|(o, free)| o.alloc.cpu != free.cpu);
        let (count, bytes) = (crossing.clone().count(), crossing.map(|(o, _)| o.alloc.allocated).sum::<u64>());
        (count > 0 || known.is_without_order()).then(|| {
            json!({
                "call_site": hex(call_site), "symbol": null, "kind": kind.name(), "frees": own.len(),
                "cross_cpu": ordered(known, json!(count)), "cross_cpu_bytes": ordered(known, json!(bytes)),
            })
        })
    };
    let rows: Vec<Value> = keys.into_iter().filter_map(row).collect();
    with(head("cross", known, pairs), json!({ "cpus": cpus, "matrix": ordered(known, json!(matrix)), "rows": rows }))
}

/// Lines of `events`: events and gaps in the total order. A gap stands before the first event after it.
pub fn events(known: &Known, pairs: &Pairs) -> Vec<Value> {
    let (first, last) = (pairs.events.first().map_or(0, |e| e.at), pairs.events.last().map_or(0, |e| e.at));
    let mut lines: Vec<((u64, u32, usize), Value)> = Vec::new();
    for (cpu, items) in &known.cpus {
        for (position, item) in items.iter().enumerate() {
            let (at, line) = match item {
                StreamItem::Event(event) => (event.at, event_line(known, event)),
                StreamItem::Gap(gap) => (gap.to.unwrap_or(last), gap_line(gap, first, last)),
            };
            lines.push(((at, *cpu, position), line));
        }
    }
    for gap in super::order::dropped(known) {
        lines.push(((last, gap.cpu, usize::MAX), gap_line(&gap, first, last)));
    }
    lines.sort_by_key(|(key, _)| *key);
    let mut lines: Vec<Value> = lines.into_iter().map(|(_, line)| line).collect();
    for gap in super::order::sequence_gaps(known) {
        let after = lines.iter().position(|line| line["event"] != "gap" && line["at"] == json!(gap.to));
        lines.insert(after.unwrap_or(lines.len()), gap_line(&gap, first, last));
    }
    lines
}

fn gap_line(gap: &Gap, first: u64, last: u64) -> Value {
    let (from, to) = (gap.from.unwrap_or(first), gap.to.unwrap_or(last));
    json!({ "at": to, "from": from, "cpu": gap.cpu, "event": "gap", "lost": gap.lost })
}

fn event_line(known: &Known, event: &Event) -> Value {
    let name = String::from_utf8_lossy(known.names.get(event.name)).into_owned();
    let mut line = json!({ "at": event.at, "cpu": event.cpu, "event": name });
    let mut put = |member: &str, value: Value| line[member] = value;
    if event.pid.is_some() {
        put("pid", json!(event.pid));
        put("comm", comm(known, event));
    }
    if let Some(flags) = event.flags {
        let contexts = [(0x40, "nmi"), (0x08, "hardirq"), (0x10, "softirq")];
        let context = contexts.iter().find(|(bit, _)| flags & bit != 0).map_or("task", |(_, name)| name);
        put("context", json!(context));
    }
    if event.action != Action::Other {
        put("address", hex(event.address).into());
        if event.call_site != 0 {
            put("call_site", hex(event.call_site).into());
        }
    }
    if matches!(event.action, Action::Alloc(_)) {
        put("requested", json!(event.requested));
        put("allocated", json!(event.allocated));
    }
    if let Some(gfp) = event.gfp {
        put("gfp", json!(gfp));
    }
    if let Some(node) = event.node {
        put("node", json!(node));
    }
    if let Some(cache) = cache(known, event) {
        put("cache", json!(cache));
    }
    line
}
