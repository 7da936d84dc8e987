//! JSON of a screen: the rows that it shows, with exact figures.

use kmemtrace_abi::text::escape::escape;
use serde_json::{Value, json};

use super::{ScreenView, who};

/// Rows of the screen in its order, and the totals.
pub(crate) fn json(view: ScreenView<'_>) -> Value {
    let ScreenView { snapshot, subject, state, .. } = view;
    let is_known = !view.is_still();
    // Every row of a text has pages and objects: where there are 0 the text does not tell them.
    let told = |figure: u64| Some(figure).filter(|figure| is_known || *figure > 0);
    let rows = state.listed(snapshot).into_iter().map(|row| {
        json!({
            "name": who::name(&row.name),
            "origin": who::origin(row),
            "kind": row.kind.name(),
            "live_bytes": told(row.live),
            "peak_live_bytes": is_known.then_some(row.peak),
            "growth_bytes": is_known.then_some(row.growth),
            "since_mark_bytes": row.since_mark.filter(|_| is_known),
            "live_objects": told(row.objects),
            "live_pages": row.pages.and_then(told),
            "live_wasted_bytes": told(row.live).map(|_| row.wasted),
            "allocs": if is_known { Some(row.allocs) } else { told(row.objects) },
            "frees": is_known.then_some(row.frees),
            "cross_cpu": is_known.then_some(row.cross_cpu),
        })
    });
    json!({
        "schema": "kmemtrace.top/1",
        "completeness": subject.head["completeness"],
        "trace": subject.head["trace"],
        "name": subject.name,
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
