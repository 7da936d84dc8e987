//! JSON of a screen: the rows that it shows, with exact figures.

use kmemtrace_abi::text::escape::escape;
use serde_json::{Value, json};

use super::{View, who};

/// Rows of the screen in its order, and the totals.
pub(crate) fn json(view: View<'_>) -> Value {
    let View { snapshot, subject, state, .. } = view;
    let rows = state.listed(snapshot).into_iter().map(|row| {
        json!({
            "name": who::name(&row.name),
            "origin": who::origin(row),
            "kind": row.kind.name(),
            "live_bytes": row.live,
            "peak_live_bytes": row.peak,
            "growth_bytes": row.growth,
            "since_mark_bytes": row.since_mark,
            "live_objects": row.objects,
            "live_pages": row.pages,
            "live_wasted_bytes": row.wasted,
            "allocs": row.allocs,
            "frees": row.frees,
            "cross_cpu": row.cross_cpu,
        })
    });
    json!({
        "schema": "kmemtrace.top/1",
        "trace": subject.name,
        "elapsed_ns": snapshot.elapsed,
        "events": snapshot.events,
        "lost_events": snapshot.lost,
        "skipped_ns": snapshot.skipped,
        "group": state.group.name(),
        "window_s": state.window(),
        "filter": escape(state.filter.text.as_bytes()),
        "rows": rows.collect::<Vec<Value>>(),
    })
}
