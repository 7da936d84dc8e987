//! Parts that documents share: the opening members, figures of a row, the query.

use std::collections::BTreeSet;

use kmemtrace_abi::clock::OrderKey;
use kmemtrace_abi::event::{Action, Event, Kind, Space};
use kmemtrace_abi::fault::Verdict;
use kmemtrace_abi::stream::report::Source;
use kmemtrace_abi::trace::Deferred;
use serde_json::{Value, json};

use super::Known;
use super::pairs::{End, Object, Pairs};

/// Address as documents have it.
pub fn hex(address: u64) -> String {
    format!("{address:#x}")
}

/// Members of `a` and `b`.
pub fn with(a: Value, b: Value) -> Value {
    match (a, b) {
        (Value::Object(mut a), Value::Object(b)) => {
            a.extend(b);
            Value::Object(a)
        }
        (a, _) => a,
    }
}

/// Name of the member with a sum of a space.
pub fn of_space(member: &str, space: Space) -> String {
    if space == Space::Slab { member.to_owned() } else { format!("{member}_{}", space.name()) }
}

/// Member `completeness`.
pub fn completeness(known: &Known, pairs: &Pairs) -> Value {
    let verdict = match known.verdict {
        Verdict::Complete => "complete",
        Verdict::Lossy => "lossy",
        Verdict::Truncated => "truncated",
        Verdict::Corrupt => "corrupt",
    };
    json!({
        "verdict": verdict, "lost_events": known.lost, "gaps": pairs.gaps.len(),
        "truncated_files": known.truncated, "missing_cpus": known.missing,
        "inferred_frees": pairs.unfiltered.0, "frees_without_alloc": pairs.unfiltered.1,
    })
}

/// Member `trace`.
pub fn trace(known: &Known, pairs: &Pairs) -> Value {
    let trace = &known.trace;
    let source = trace.source.map(|source| match source {
        Source::Tracefs => "tracefs",
        Source::Relay => "relay",
    });
    let members = json!({
        "input": trace.input.name(), "source": source, "kernel": trace.kernel, "arch": trace.arch, "endian": trace.endian,
        "word_bytes": trace.word_bytes, "page_bytes": trace.page_bytes,
        "page_bytes_from": trace.page_bytes.map(|_| trace.page_bytes_from), "addresses": "raw", "clock": trace.clock,
        "cpus": known.cpus.len(), "own_threads": known.own_threads.as_ref().map(BTreeSet::from_iter),
        "scope": trace.scope, "filtered": trace.filtered, "one_moment": false,
        "order": if trace.order == OrderKey::Time { "time" } else { "sequence" },
    });
    let first = pairs.events.first().map(|event| event.at);
    let deferred = trace.deferred.map(|deferred| match deferred {
        Deferred::From(from) if first.is_some_and(|first| first < from) => "partly",
        Deferred::From(_) => "seen",
        Deferred::Unseen => "unseen",
    });
    let members = with(members, json!({ "deferred": deferred }));
    let members = match trace.symbols {
        Some(symbols) => with(members, json!({ "symbols": symbols })),
        None => members,
    };
    // A trace without events has no first or last key.
    match (pairs.events.first(), pairs.events.last()) {
        (Some(first), Some(last)) => with(members, json!({ "first": first.at, "last": last.at })),
        _ => members,
    }
}

/// Member `query`; `by` are the words of the grouping.
pub fn query(known: &Known, by: &[&str]) -> Value {
    json!({ "filters": known.selection.filters(), "time": known.bounds.map(|(from, to)| [from, to]), "by": by })
}

/// Members at the head of a document with this schema (`summary/1`).
pub fn head(schema: &str, by: &[&str], known: &Known, pairs: &Pairs) -> Value {
    json!({
        "schema": format!("kmemtrace.{schema}"),
        "completeness": completeness(known, pairs),
        "trace": trace(known, pairs),
        "query": query(known, by),
    })
}

/// Figure that depends on the order of events: null if the order is unknown.
pub fn ordered(known: &Known, value: Value) -> Value {
    if known.is_without_order() { Value::Null } else { value }
}

/// Figures of a row, and the first order key at which its peak was reached.
pub fn figures(known: &Known, pairs: &Pairs, select: &dyn Fn(&Event, Kind) -> bool) -> (Value, u64) {
    let (figures, peak_at) = super::figures::figures(pairs, select);
    let pages = super::figures::pages(known, pairs, select, &figures["peak_live_allocated"]);
    let mut figures = with(figures, pages);
    for member in ["cross_cpu", "peak_live_allocated", "peak_live_pages"] {
        figures[member] = ordered(known, figures[member].take());
    }
    if !matches!(known.trace.deferred, Some(Deferred::From(_))) {
        ["deferred_frees", "bulk_frees"].into_iter().for_each(|member| figures[member] = Value::Null);
    }
    if known.is_of_tasks() {
        figures["live_is_upper_bound"] = json!(true);
    }
    (figures, peak_at)
}

/// Figures of a sum of rows, of which no peak is known.
pub fn merged(known: &Known, pairs: &Pairs, select: &dyn Fn(&Event, Kind) -> bool) -> Value {
    with(figures(known, pairs, select).0, json!({ "peak_live_allocated": null, "peak_live_pages": null }))
}

/// Objects that a free ended, with the free.
pub fn freed(pairs: &Pairs) -> impl Iterator<Item = (&Object, Event)> {
    pairs.objects.iter().filter_map(|o| match o.end {
        End::Freed { free, .. } => Some((o, free)),
        _ => None,
    })
}

/// Allocation events, failed ones included, with their kinds.
pub fn allocations(pairs: &Pairs) -> impl Iterator<Item = (&Event, Kind)> {
    pairs.taken().filter_map(|e| match e.action {
        Action::Alloc(kind) => Some((e, kind)),
        _ => None,
    })
}
