//! JSON documents of each view but those of groups, growth and comparison.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use kmemtrace_abi::event::{Action, Event, Gap, Kind, Space, StreamItem};
use serde_json::{Map, Value, json};

use super::Known;
use super::figures::{findings, free_events, page_frees};
use super::head::{figures, freed, head, hex, ordered, with};
use super::pairs::{Class, End, Finding, Object, Pairs};
use super::selection::context;
use crate::generate::pages::addresses_behind;

pub use super::groups::{caches, live_by, sites, sites_by};

fn site(address: Option<u64>) -> Value {
    address.map_or(Value::Null, |a| hex(a).into())
}

/// Pairs that pairs and findings are counted of.
fn compared<'p>(known: &'p Known, pairs: &'p Pairs) -> impl Iterator<Item = (&'p Object, Event)> {
    freed(pairs).filter(|(object, _)| known.compares(object.kind))
}

/// Bytes of an object that were freed on another CPU.
fn crossed_bytes(object: &Object) -> u64 {
    let losses = object.losses().into_iter();
    losses.filter(|(.., cpu)| cpu.is_some_and(|cpu| cpu != object.alloc.cpu)).map(|(_, bytes, _)| bytes).sum()
}

/// Document of `summary`.
pub fn summary(known: &Known, pairs: &Pairs) -> Value {
    let other = pairs.events.iter().filter(|e| e.action == Action::Other).count();
    let mut kinds = Map::new();
    for kind in Kind::ALL.into_iter().filter(|kind| known.spaces().any(|space| space == kind.space())) {
        let (own, _) = figures(known, pairs, &|_, k| k == kind);
        let own = with(own, json!({ "free_events": free_events(pairs, kind) }));
        kinds.insert(kind.name().into(), with(own, page_frees(pairs, kind)));
    }
    let (total, peak_at) = figures(known, pairs, &|_, kind| kind.space() == Space::Slab);
    let peak_at = ordered(known, json!(peak_at));
    let total = if total["peak_live_allocated"] == 0 { total } else { with(total, json!({ "peak_at": peak_at })) };
    let freed: Vec<(Event, Event)> = compared(known, pairs).map(|(o, free)| (o.alloc, free)).collect();
    let cross: Vec<_> = freed.iter().filter(|(alloc, free)| alloc.cpu != free.cpu).collect();
    let cross_bytes: u64 = pairs.objects.iter().filter(|o| known.compares(o.kind)).map(crossed_bytes).sum();
    let nodes_differ = |(alloc, free): &&(Event, Event)| known.nodes.get(&alloc.cpu) != known.nodes.get(&free.cpu);
    let cross_node = known.nodes_are_known().then(|| freed.iter().filter(nodes_differ).count());
    let mut counts = Map::new();
    for class in Class::SUSPECT {
        let (count, suspect) = findings(known, pairs, class);
        let counted = json!({ "count": count, "suspect": suspect });
        let unseen = pairs.findings.iter().filter(|f| f.class == class && f.unseen).count();
        let has_unseen = Class::UNSEEN.contains(&class);
        let counted = if has_unseen { with(counted, json!({ "unseen": unseen })) } else { counted };
        counts.insert(class.name().into(), counted);
    }
    for class in [Class::FreeWithoutAlloc, Class::ShortAlloc, Class::FailedAlloc, Class::NullFree] {
        counts.insert(class.name().into(), json!({ "count": findings(known, pairs, class).0 }));
    }
    let records = pairs.events.iter().filter(|event| !event.is_address()).count();
    let mut events = json!({
        "total": records, "used": records - other, "other": other,
        "completions": pairs.bulk.completions, "bulk_unknown": pairs.bulk.unknown,
        "unseen_frees": pairs.bulk.unseen_frees, "unseen_allocs": pairs.bulk.unseen_allocs,
    });
    if let Some(names) = &known.unknown {
        let is_unknown = |e: &&Event| names.contains(&*String::from_utf8_lossy(known.names.get(e.name)));
        events["unknown"] = json!(pairs.events.iter().filter(is_unknown).count());
    }
    let body = json!({
        "events": events,
        "kinds": kinds,
        "total": total,
        "pairs": {
            "paired": freed.len(), "cross_cpu": ordered(known, json!(cross.len())),
            "cross_cpu_bytes": ordered(known, json!(cross_bytes)),
            "cross_node": ordered(known, json!(cross_node)),
        },
        "own": known.own_threads.is_some().then(|| json!({ "allocs": pairs.own.0, "allocated": pairs.own.1 })),
        "findings": counts,
    });
    with(head("summary/1", &[], known, pairs), body)
}

/// Members with the symbols of call-sites, by name. Left out if the reference does not know symbols.
pub(super) fn symbols(known: &Known, sites: &[(&str, Option<u64>)]) -> Value {
    let Some(symbols) = &known.symbols else { return json!({}) };
    let symbol =
        |&(name, site): &(&str, Option<u64>)| (name.to_owned(), json!(site.and_then(|site| symbols.symbol(site))));
    sites.iter().map(symbol).collect::<Map<_, _>>().into()
}

/// Document of `mismatch`.
pub fn mismatch(known: &Known, pairs: &Pairs) -> Value {
    let listed =
        |f: &&Finding| known.compares(f.kind) && (Class::SUSPECT.contains(&f.class) || f.class == Class::ShortAlloc);
    let all: Vec<&Finding> = pairs.findings.iter().filter(listed).collect();
    let key = |f: &Finding| (f.class, f.alloc_site, f.free_site, f.kind);
    let keys: BTreeSet<_> = all.iter().map(|f| key(f)).collect();
    let mut rows: Vec<((bool, usize), Value)> = Vec::new();
    for group in keys {
        let (class, alloc_site, free_site, kind) = group;
        let of_group: Vec<_> = all.iter().filter(|f| key(f) == group).collect();
        let first = of_group[0].event;
        let suspect = of_group.iter().filter(|f| f.suspect).count();
        let unseen = of_group.iter().filter(|f| f.unseen).count();
        let has_errors = class.has_errors() && of_group.len() > suspect + unseen;
        let row = json!({
            "class": class.name(), "alloc_site": site(alloc_site), "free_site": site(free_site), "kind": kind.name(),
            "count": of_group.len(), "suspect": suspect,
            "unseen": Class::UNSEEN.contains(&class).then_some(unseen),
            "first": { "at": first.at, "cpu": first.cpu, "address": hex(first.address) },
        });
        let symbols = symbols(known, &[("alloc_symbol", alloc_site), ("free_symbol", free_site)]);
        rows.push(((has_errors, of_group.len()), with(row, symbols)));
    }
    rows.sort_by_key(|(rank, _)| Reverse(*rank));
    let rows: Vec<Value> = rows.into_iter().map(|(_, row)| row).collect();
    with(head("mismatch/1", &[], known, pairs), json!({ "rows": rows }))
}

/// Document of `live --objects`. The cache of an object is the one that its allocation event names.
pub fn live_objects(known: &Known, pairs: &Pairs) -> Value {
    let live = pairs.objects.iter().filter(|o| matches!(o.end, End::Live));
    let rows: Vec<Value> = live
        .map(|object @ Object { alloc, kind, .. }| {
            let (requested, allocated) = object.live_bytes();
            let pages = match object.frames() {
                Some(frames) => Some(frames - object.gone.iter().flatten().map(|gone| gone.pages).sum::<u64>()),
                None => known.trace.page_bytes.filter(|_| *kind == Kind::Pages).map(|size| allocated / size),
            };
            let row = json!({
                "live_pages": pages,
                "address": hex(alloc.address), "call_site": hex(alloc.call_site), "kind": kind.name(),
                "cache": known.cache_in(alloc), "requested": requested, "allocated": allocated,
                "cpu": alloc.cpu, "pid": alloc.pid, "comm": known.comm(alloc), "at": alloc.at,
            });
            with(row, symbols(known, &[("symbol", Some(alloc.call_site))]))
        })
        .collect();
    with(head("live/1", &[], known, pairs), json!({ "rows": rows }))
}

/// Document of `cross`. Rows without a cross-CPU pair are left out, unless the number of pairs is unknown.
pub fn cross(known: &Known, pairs: &Pairs) -> Value {
    let cpus: Vec<u32> = known.cpus.iter().map(|(cpu, _)| *cpu).collect();
    let count =
        |row: u32, column: u32| compared(known, pairs).filter(|(o, f)| (o.alloc.cpu, f.cpu) == (row, column)).count();
    let matrix: Vec<Vec<usize>> =
        cpus.iter().map(|&row| cpus.iter().map(|&column| count(row, column)).collect()).collect();
    let keys: BTreeSet<(u64, Kind)> = compared(known, pairs).map(|(o, _)| (o.alloc.call_site, o.kind)).collect();
    let row = |(call_site, kind): (u64, Kind)| {
        let own: Vec<_> = freed(pairs).filter(|(o, _)| (o.alloc.call_site, o.kind) == (call_site, kind)).collect();
        let crossing = own.iter().filter(|(o, free)| o.alloc.cpu != free.cpu);
        let of_row = pairs.objects.iter().filter(|o| (o.alloc.call_site, o.kind) == (call_site, kind));
        let (count, bytes) = (crossing.count(), of_row.map(crossed_bytes).sum::<u64>());
        (count > 0 || known.is_without_order()).then(|| {
            let row = json!({
                "call_site": hex(call_site), "kind": kind.name(), "frees": own.len(),
                "cross_cpu": ordered(known, json!(count)), "cross_cpu_bytes": ordered(known, json!(bytes)),
            });
            with(row, symbols(known, &[("symbol", Some(call_site))]))
        })
    };
    let rows: Vec<Value> = keys.into_iter().filter_map(row).collect();
    let body = json!({ "cpus": cpus, "matrix": ordered(known, json!(matrix)), "rows": rows });
    with(head("cross/1", &[], known, pairs), body)
}

/// Lines of `events`: events and gaps in the total order. A gap stands before the first event after it.
pub fn events(known: &Known, pairs: &Pairs) -> Vec<Value> {
    let (first, last) = (pairs.events.first().map_or(0, |e| e.at), pairs.events.last().map_or(0, |e| e.at));
    let mut lines: Vec<((u64, u32, usize), Value)> = Vec::new();
    for (cpu, items) in &known.cpus {
        for (position, item) in items.iter().enumerate() {
            let (at, line) = match item {
                StreamItem::Event(event) if event.is_address() => continue,
                StreamItem::Event(event) => (event.at, event_line(known, event, &items[position + 1..])),
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
    let to = gap.to.unwrap_or(last);
    let from = gap.from.unwrap_or(first.min(to));
    json!({ "at": to, "from": from, "cpu": gap.cpu, "event": "gap", "lost": gap.lost })
}

/// Line of an event, behind which `items` come.
fn event_line(known: &Known, event: &Event, items: &[StreamItem]) -> Value {
    let name = String::from_utf8_lossy(known.names.get(event.name)).into_owned();
    let mut line = json!({ "at": event.at, "cpu": event.cpu, "event": name });
    let mut put = |member: &str, value: Value| line[member] = value;
    if event.pid.is_some() {
        put("pid", json!(event.pid));
        put("comm", json!(known.comm(event)));
    }
    if let Some(context) = context(event) {
        put("context", json!(context));
    }
    if event.action != Action::Other {
        if let Some(size) = event.objects() {
            let addresses: Vec<String> = addresses_behind(items).map(|event| hex(event.address)).collect();
            put("addresses", json!(addresses));
            put("size", json!(size));
        } else {
            put("address", hex(event.address).into());
        }
        let is_of_stack = event.stack.is_some()
            && match event.action {
                Action::Alloc(Kind::Percpu) => !known.percpu_names_callers,
                Action::Alloc(kind) => kind.space() != Space::Slab,
                _ => false,
            };
        if event.call_site != 0 && !is_of_stack {
            put("call_site", hex(event.call_site).into());
        }
    }
    if matches!(event.action, Action::Alloc(_)) || event.action == Action::Bulk(Kind::Cache) && event.gfp.is_some() {
        put("requested", json!(event.requested));
        put("allocated", json!(event.allocated));
    }
    if let Some(gfp) = event.gfp {
        put("gfp", json!(gfp));
    }
    if let Some(node) = event.node {
        put("node", json!(node));
    }
    if let Some(cache) = known.cache_in(event) {
        put("cache", json!(cache));
    }
    if let Some(stack) = event.stack {
        put("stack", known.names.stacks.get(stack).iter().map(|&frame| hex(frame)).collect());
    }
    line
}
