//! `summary`: the one screen that answers the first question.

use kmemtrace_abi::event::Kind;
use serde_json::{Map, Value, json};

use super::row::{Cell, Row, Rows};
use crate::account::stats::Narrow;
use crate::order::merger::MergeStats;
use crate::pairing::findings::Finding;
use crate::pairing::pairs::PairingResult;

/// A row a kind and one of the total, for outputs that have rows.
pub(super) fn rows<'a>(paired: &'a PairingResult, narrow: &Narrow) -> Rows<'a> {
    let kinds = Kind::ALL.into_iter().map(Kind::name).zip(&paired.kinds);
    let narrow = narrow.clone();
    Rows::of(kinds.chain([("total", &paired.total)]).collect(), move |(name, figures)| {
        let mut row = Row::default();
        row.put("kind", Cell::Word(name));
        row.extend(figures.cells(&narrow));
        row
    })
}

/// The members after the head; `knows_own`: the trace tells the recorder's threads.
pub(super) fn summary(
    paired: &PairingResult,
    knows_own: bool,
    order: &MergeStats,
    narrow: &Narrow,
) -> Map<String, Value> {
    let mut document = Map::new();
    let mut put = |name: &str, value| document.insert(name.to_owned(), value);
    let (total, used) = (order.events, paired.counts.used);
    put("events", json!({ "total": total, "used": used, "other": total - used }));
    let of_kinds = &paired.kinds;
    let mut kinds = Map::new();
    for (index, kind) in Kind::ALL.into_iter().enumerate() {
        let mut row = Map::new();
        of_kinds[index].put(&mut row, narrow);
        row.insert("free_events".to_owned(), json!(paired.counts.free_events[index]));
        kinds.insert(kind.name().to_owned(), Value::Object(row));
    }
    put("kinds", Value::Object(kinds));
    let mut total = Map::new();
    paired.total.put(&mut total, narrow);
    let peak_at = json!(paired.peak_at.or(order.first).unwrap_or(0));
    total.insert("peak_at".to_owned(), narrow.in_order(peak_at));
    put("total", Value::Object(total));
    let all = |figure: fn(&crate::account::stats::Stats) -> u128| of_kinds.iter().map(figure).sum::<u128>();
    put(
        "pairs",
        json!({
            "paired": paired.counts.paired,
            "cross_cpu": narrow.in_order(narrow.u64(all(|k| k.cross_cpu.into()))),
            "cross_cpu_bytes": narrow.in_order(narrow.u64(all(|k| k.cross_cpu_bytes))),
            "cross_node": narrow.in_order(json!(paired.knows_nodes.then_some(paired.counts.cross_node))),
        }),
    );
    let counts = &paired.counts;
    let own = || json!({ "allocs": counts.own_allocs, "allocated": narrow.u64(counts.own_allocated) });
    put("own", knows_own.then(own).unwrap_or_default());
    let mut findings = Map::new();
    for class in Finding::ALL {
        let rows = paired.findings.iter().filter(|(key, _)| key.class == class).map(|(_, row)| row);
        let (count, suspect) = rows.fold((0u64, 0u64), |(c, s), row| (c + row.count, s + row.suspect));
        if class != Finding::ShortAlloc {
            findings.insert(class.name().to_owned(), json!({ "count": count, "suspect": suspect }));
            continue;
        }
        let failed = narrow.u64(all(|k| k.failed_allocs.into()));
        findings.insert("free_without_alloc".to_owned(), json!({ "count": paired.counts.free_without_alloc }));
        findings.insert("short_alloc".to_owned(), json!({ "count": count }));
        findings.insert("failed_alloc".to_owned(), json!({ "count": failed }));
        findings.insert("null_free".to_owned(), json!({ "count": paired.counts.null_free }));
    }
    put("findings", Value::Object(findings));
    document
}
