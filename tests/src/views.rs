//! Comparison of the report program's views with the reference.

use std::path::Path;

use serde_json::Value;

use crate::guest::sites;
use crate::programs::{differences, json, json_lines, run_to};
use crate::reference::{Known, documents, pairs};

/// Views that print one document.
pub const DOCUMENTS: [&str; 6] = ["summary", "sites", "caches", "mismatch", "live", "cross"];

/// Bytes that the program prints for a view.
///
/// # Panics
/// If the program fails.
pub fn printed(view: &str, trace: &Path) -> Vec<u8> {
    run_to(0, "kmemtrace-report", &[view, "--format", "json"], &[trace])
}

/// Lines of `events`.
///
/// # Panics
/// If there is no report.
pub fn events(trace: &Path) -> Vec<Value> {
    json_lines(&printed("events", trace))
}

/// Expected document of every view, and the expected lines of `events`.
pub fn expected(known: &Known) -> (Vec<(&'static str, Value)>, Vec<Value>) {
    let pairs = pairs::pairs(known);
    let documents = vec![
        ("summary", documents::summary(known, &pairs)),
        ("sites", documents::sites(known, &pairs)),
        ("caches", documents::caches(known, &pairs)),
        ("mismatch", documents::mismatch(known, &pairs)),
        ("live", documents::live(known, &pairs)),
        ("cross", documents::cross(known, &pairs)),
    ];
    (documents, documents::events(known, &pairs))
}

/// Compares every view of `trace` with the reference.
///
/// # Panics
/// If a view differs, with a list of the differences.
pub fn assert_views(what: &str, trace: &Path, known: &Known) {
    let (documents, lines) = expected(known);
    for (view, document) in documents {
        assert_document(&format!("{what}, {view}"), (view, document), &printed(view, trace));
    }
    assert_lines(what, &lines, &events(trace));
}

/// Compares a printed view with the expected document.
///
/// # Panics
/// If the view differs, with a list of the differences.
pub fn assert_document(what: &str, (view, expected): (&str, Value), printed: &[u8]) {
    let (expected, found) = (comparable(view, expected), comparable(view, json(printed)));
    let differences = differences(&expected, &found);
    assert!(differences.is_empty(), "{what}:\n{}", listed(&differences));
}

fn listed(differences: &[String]) -> String {
    let some: Vec<&str> = differences.iter().take(20).map(String::as_str).collect();
    format!("{}\n({} differences)", some.join("\n"), differences.len())
}

/// Members that name a row.
const KEYS: [&str; 7] = ["class", "alloc_site", "free_site", "call_site", "cache", "kind", "address"];

/// Members that the reference does not have: it resolves no addresses.
const SYMBOLS: [&str; 4] = ["symbol", "module", "alloc_symbol", "free_symbol"];

/// Document without symbols, with rows of equal rank in a fixed order where the contract leaves their order open.
fn comparable(view: &str, mut document: Value) -> Value {
    for row in document["rows"].as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
        row.retain(|member, _| !SYMBOLS.contains(&member.as_str()));
    }
    let key = |row: &Value| KEYS.map(|member| row[member].to_string());
    let rank = match view {
        "sites" | "caches" => "wasted",
        "mismatch" => "count",
        // The contract fixes rows only of call-sites with cross-CPU pairs, and leaves their order open.
        "cross" => {
            if let Some(rows) = document["rows"].as_array_mut() {
                rows.retain(|row| row["cross_cpu"] != 0);
                rows.sort_by_key(key);
            }
            return document;
        }
        _ => return document,
    };
    if let Some(rows) = document["rows"].as_array_mut() {
        for group in rows.chunk_by_mut(|a, b| a[rank] == b[rank]) {
            group.sort_by_key(key);
        }
    }
    document
}

/// Compares lines: events must come in order, gaps in any order.
fn assert_lines(what: &str, expected: &[Value], found: &[Value]) {
    let split = |lines: &[Value]| -> (Vec<Value>, Vec<Value>) {
        let (mut gaps, events): (Vec<_>, Vec<_>) = lines.iter().cloned().partition(|line| line["event"] == "gap");
        gaps.sort_by_key(|gap| ["cpu", "from", "at", "lost"].map(|member| gap[member].as_u64()));
        (events, gaps)
    };
    let ((want, want_gaps), (have, have_gaps)) = (split(expected), split(found));
    assert_eq!(want.len(), have.len(), "{what}: number of events");
    for (number, (want, have)) in want.iter().zip(&have).enumerate() {
        let mut differences = differences(want, have);
        // A member that the event does not have must not be in its line.
        for member in ["requested", "allocated", "gfp", "node", "cache", "context"] {
            if want.get(member).is_none() && have.get(member).is_some_and(|value| !value.is_null()) {
                differences.push(format!("$.{member}: {}, and the event has none", have[member]));
            }
        }
        assert!(differences.is_empty(), "{what}, event {number}: {want}\n{}", listed(&differences));
    }
    let differences = differences(&want_gaps.into(), &have_gaps.into());
    assert!(differences.is_empty(), "{what}, gaps:\n{}", listed(&differences));
}

/// Checks invariants of any trace: rows sum to totals, and every allocation has one fate.
///
/// # Panics
/// If an invariant does not hold.
pub fn assert_invariants(what: &str, trace: &Path) {
    let summary = json(&printed("summary", trace));
    let number = |value: &Value, member: &str| {
        value[member].as_u64().unwrap_or_else(|| panic!("{what}: {member} is no number: {value}"))
    };
    let fates = |value: &Value| {
        let fates = number(value, "frees") + number(value, "inferred_frees") + number(value, "live_objects");
        assert_eq!(number(value, "allocs"), fates, "{what}: {value}");
    };
    const SUMMED: [&str; 12] = [
        "allocs",
        "failed_allocs",
        "requested",
        "allocated",
        "wasted",
        "frees",
        "inferred_frees",
        "cross_cpu",
        "live_objects",
        "live_requested",
        "live_allocated",
        "live_wasted",
    ];
    let kinds = ["kmalloc", "cache", "pages"].map(|kind| (kind, &summary["kinds"][kind]));
    fates(&summary["total"]);
    // Figures that need an order of events are null on a clock without order.
    let is_known = |member: &&str| !summary["total"][*member].is_null();
    for member in SUMMED.into_iter().filter(is_known) {
        let sum = number(kinds[0].1, member) + number(kinds[1].1, member);
        assert_eq!(sum, number(&summary["total"], member), "{what}: total {member}");
    }
    for view in ["sites", "caches"] {
        let document = json(&printed(view, trace));
        let rows = document["rows"].as_array().unwrap_or_else(|| panic!("{what}: {view} has no rows"));
        rows.iter().for_each(fates);
        for (kind, figures) in kinds {
            for member in SUMMED.into_iter().filter(is_known) {
                let own = rows.iter().filter(|row| row["kind"] == kind);
                let sum: u64 = own.map(|row| number(row, member)).sum();
                assert_eq!(sum, number(figures, member), "{what}: {view} {kind} {member}");
            }
        }
    }
    let live = json(&printed("live", trace))["rows"].as_array().map_or(0, Vec::len) as u64;
    let of_kinds: u64 = kinds.iter().map(|(_, figures)| number(figures, "live_objects")).sum();
    assert_eq!(live, of_kinds, "{what}: live");
    let cross = json(&printed("cross", trace));
    let pairs: u64 = cross["matrix"]
        .as_array()
        .into_iter()
        .flatten()
        .flat_map(|row| row.as_array())
        .flatten()
        .filter_map(Value::as_u64)
        .sum();
    if !cross["matrix"].is_null() {
        assert_eq!(pairs, number(&summary["pairs"], "paired"), "{what}: pairs in the matrix");
    }
}

/// Compares a recording of `kmemload iov 3000 20` on a machine of this word size with the allocations of that load;
/// `options` select the load.
///
/// # Panics
/// If the recording differs.
pub fn assert_iov(trace: &Path, options: &[&str], word_bytes: u64) {
    let rows = sites(trace, options, &["iovec_from_user"]);
    let [row] = &rows[..] else { panic!("{}: call-sites of iovecs: {rows:?}", trace.display()) };
    let requested = 3000 * 20 * 2 * word_bytes;
    for (member, expected) in [("allocs", 3000), ("frees", 3000), ("live_objects", 0), ("requested", requested)] {
        assert_eq!(row[member], expected, "{}: {member} of {row}", trace.display());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::random_workload;
    use serde_json::json;

    #[test]
    fn rows_of_equal_rank_may_change_places_and_no_others() {
        let rows = |order: [u64; 3]| {
            let rows = order.map(|site| json!({ "wasted": if site == 9 { 5 } else { 7 }, "call_site": site }));
            comparable("sites", json!({ "rows": rows }))
        };
        assert_eq!(rows([1, 2, 9]), rows([2, 1, 9]));
        assert_ne!(rows([1, 2, 9]), rows([9, 1, 2]));
    }

    #[test]
    fn a_line_that_is_wrong_missing_or_moved_is_seen() {
        let (_, workload) = random_workload(1, 300);
        let (_, lines) = expected(&Known::of_workload(workload));
        assert_lines("same", &lines, &lines);
        let event = lines.iter().position(|line| line["event"] == "kfree").unwrap();
        let spoil = |change: &dyn Fn(&mut Vec<Value>)| {
            let mut found = lines.clone();
            change(&mut found);
            let (lines, found) = (lines.clone(), found);
            assert!(std::panic::catch_unwind(move || assert_lines("spoilt", &lines, &found)).is_err());
        };
        spoil(&|found| drop(found.remove(event)));
        spoil(&|found| found[event]["address"] = json!("0x1"));
        spoil(&|found| found[event]["requested"] = json!(0));
        spoil(&|found| {
            let line = found.remove(event);
            found.push(line);
        });
    }
}
