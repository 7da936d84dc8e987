//! Document of `failed`.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use kmemtrace_abi::event::{Action, Event, Kind};
use serde_json::{Value, json};

use super::documents::symbols;
use super::head::{head, hex, with};
use super::pairs::Pairs;
use super::{Known, machine};

/// What makes a row: call-site, kind, order of pages, bytes, flags, thread.
type RowKey = (u64, Kind, Option<u8>, u64, Option<u64>, Option<i32>);

/// Document of `failed`. Made traces name no flags, so that nothing is known of fallbacks.
pub fn failed(known: &Known, pairs: &Pairs) -> Value {
    let mut groups: BTreeMap<RowKey, Vec<&Event>> = BTreeMap::new();
    for event in pairs.taken().filter(|event| event.failed) {
        if let Action::Alloc(kind) = event.action {
            let key = (event.call_site, kind, event.order, event.requested, event.gfp, event.pid);
            groups.entry(key).or_default().push(event);
        }
    }
    let count: usize = groups.values().map(Vec::len).sum();
    let mut rows: Vec<_> = groups.into_iter().collect();
    rows.sort_by_key(|(_, events)| Reverse(events.len()));
    let rows: Vec<Value> = rows
        .into_iter()
        .map(|((site, kind, order, requested, gfp, pid), events)| {
            let at = |event: Option<&&Event>| event.map(|event| event.at);
            let row = json!({
                "call_site": hex(site), "kind": kind.name(), "order": order, "requested": requested, "gfp": gfp,
                "pid": pid, "comm": known.comm(events[0]), "failed_allocs": events.len(), "fallback": null,
                "first": at(events.first()), "last": at(events.last()),
            });
            with(row, symbols(known, &[("symbol", Some(site))]))
        })
        .collect();
    let members = json!({
        "rows": rows, "total": { "failed_allocs": count, "with_fallback": 0 },
    });
    with(head("failed/1", &[], known, pairs), with(members, machine::buddyinfo(known)))
}
