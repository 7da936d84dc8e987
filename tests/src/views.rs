//! Comparison of the report program's views with the reference.

use std::path::Path;

use kmemtrace_abi::event::Kind;
use serde_json::Value;

use crate::guest::sites;
use crate::programs::{differences, json, json_lines, run_to};
use crate::reference::asked::Asked;
use crate::reference::head::of_space;
use crate::reference::keys::Key;
use crate::reference::{Known, documents, pairs};

/// Views that print one document.
pub const DOCUMENTS: [&str; 7] = ["summary", "sites", "caches", "failed", "mismatch", "live", "cross"];

/// Bytes that the program prints for a view.
pub fn printed(view: &str, trace: &Path) -> Vec<u8> {
    run_to(0, "kmemtrace-report", &[view, "--format", "json"], &[trace])
}

/// Bytes that the program prints for a view with its options.
pub fn printed_as(asked: &Asked, trace: &Path) -> Vec<u8> {
    let words = asked.arguments();
    let words: Vec<&str> = words.iter().map(String::as_str).chain(["--format", "json"]).collect();
    run_to(0, "kmemtrace-report", &words, &[trace])
}

/// Views of groups: each key alone, and some together.
pub fn groupings() -> Vec<Asked> {
    let sites = Key::ALL.map(|key| Asked::view("sites").by(&[key]));
    let more = [
        Asked::view("sites").by(&[Key::Comm, Key::Site]),
        Asked::view("sites").by(&[Key::Module, Key::Site, Key::Size]),
        Asked::view("sites").by(&[Key::Context, Key::Node, Key::Gfp]),
        Asked::view("live").by(&[Key::Comm]),
        Asked::view("live").by(&[Key::Module]),
        Asked::view("live").by(&[Key::Cache, Key::Pid]),
        Asked::view("live").objects(),
        Asked::view("growth"),
        Asked::view("growth").by(&[Key::Task]),
        Asked::view("growth").by(&[Key::Cache]),
    ];
    sites.into_iter().chain(more).collect()
}

/// Lines of `events`.
pub fn events(trace: &Path) -> Vec<Value> {
    json_lines(&printed("events", trace))
}

/// Lines of `events` of one thread: a recording of a busy machine has millions of others.
pub fn events_of(trace: &Path, thread: i64) -> Vec<Value> {
    let lines = run_to(0, "kmemtrace-report", &["events", "--format", "json", "--pid", &thread.to_string()], &[trace]);
    json_lines(&lines).into_iter().filter(|event| event["pid"] == thread).collect()
}

/// Expected document of every view without options, and the expected lines of `events`.
pub fn expected(known: &Known) -> (Vec<(&'static str, Value)>, Vec<Value>) {
    let pairs = pairs::pairs(known);
    let documents = DOCUMENTS.map(|view| (view, Asked::view(view).document(known, &pairs)));
    (documents.to_vec(), documents::events(known, &pairs))
}

/// Compares views with options of `trace` with the reference.
pub fn assert_asked(what: &str, trace: &Path, known: &Known, asked: &[Asked]) {
    let pairs = pairs::pairs(known);
    for asked in asked {
        let document = asked.document(known, &pairs);
        assert_document(&format!("{what}, {asked:?}"), (asked.view, document), &printed_as(asked, trace));
    }
}

/// Compares every view of `trace` with the reference.
pub fn assert_views(what: &str, trace: &Path, known: &Known) {
    let (documents, lines) = expected(known);
    for (view, document) in documents {
        assert_document(&format!("{what}, {view}"), (view, document), &printed(view, trace));
    }
    assert_lines(what, &lines, &events(trace));
}

/// Compares a printed view with the expected document.
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

/// Document with rows in a fixed order where the contract leaves their order open.
fn comparable(view: &str, mut document: Value) -> Value {
    let key = |row: &Value| KEYS.map(|member| row[member].to_string());
    if ["compare", "leaks"].contains(&view) {
        round(&mut document);
    }
    let Some(rows) = document.get_mut("rows").and_then(Value::as_array_mut) else { return document };
    match view {
        // The contract orders rows by the change of live bytes alone.
        "compare" => {
            let change = |row: &Value| row["change"]["live_allocated"].as_i64().map(i64::unsigned_abs);
            for group in rows.chunk_by_mut(|a, b| change(a) == change(b)) {
                group.sort_by_key(|row| {
                    ["function", "module", "call_site", "cache", "kind"].map(|m| row[m].to_string())
                });
            }
        }
        "mismatch" => {
            for group in rows.chunk_by_mut(|a, b| rank(a) == rank(b)) {
                group.sort_by_key(key);
            }
        }
        // The contract fixes rows only of call-sites with cross-CPU pairs, and leaves their order open.
        "cross" => {
            rows.retain(|row| row["cross_cpu"] != 0);
            rows.sort_by_key(key);
        }
        _ => {}
    }
    document
}

/// Rounds quotients to nine digits: how they are read from text is good for about 15.
fn round(value: &mut Value) {
    match value {
        Value::Array(values) => values.iter_mut().for_each(round),
        Value::Object(members) => members.values_mut().for_each(round),
        Value::Number(number) if number.is_f64() => {
            *value = format!("{:.8e}", number.as_f64().unwrap_or_default()).into()
        }
        _ => {}
    }
}

/// Rank of a row of `mismatch`: errors, and the number of findings.
fn rank(row: &Value) -> (bool, Option<u64>) {
    let [count, suspect, unseen] = ["count", "suspect", "unseen"].map(|member| row[member].as_u64());
    let explained = suspect.unwrap_or(0).saturating_add(unseen.unwrap_or(0));
    let is_serious = row["class"] == "kind_mismatch" || row["class"] == "cache_mismatch";
    (is_serious && count.is_some_and(|count| count > explained), count)
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
        for member in ["address", "addresses", "size", "requested", "allocated", "gfp", "node", "cache", "context"] {
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
    let kinds: Vec<(Kind, &Value)> = shown_kinds(&summary).map(|kind| (kind, &summary["kinds"][kind.name()])).collect();
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
        // Other memory has no caches.
        let of_view = kinds.iter().filter(|(kind, _)| view == "sites" || kind.space().is_always_shown());
        for &(kind, figures) in of_view {
            for member in SUMMED.into_iter().filter(is_known) {
                let own = rows.iter().filter(|row| row["kind"] == kind.name());
                let sum: u64 = own.map(|row| number(row, member)).sum();
                assert_eq!(sum, number(figures, member), "{what}: {view} {kind:?} {member}");
            }
        }
    }
    let live = json(&printed("live", trace));
    let live: u64 = live["rows"].as_array().into_iter().flatten().map(|row| number(row, "live_objects")).sum();
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
    let lines = json_lines(&run_to(0, "kmemtrace-report", &["cross", "--format", "jsonl"], &[trace]));
    assert_eq!((&lines[0]["cpus"], &lines[0]["matrix"]), (&cross["cpus"], &cross["matrix"]), "{what}: JSON Lines");
    if !cross["matrix"].is_null() {
        assert_eq!(pairs, number(&summary["pairs"], "paired"), "{what}: pairs in the matrix");
    }
}

/// Kinds that a summary has.
fn shown_kinds(summary: &Value) -> impl Iterator<Item = Kind> {
    Kind::ALL.into_iter().filter(|kind| summary["kinds"].get(kind.name()).is_some())
}

/// Checks that every grouping of a trace adds up to its summary.
pub fn assert_groupings_add_up(what: &str, trace: &Path) {
    let summary = json(&printed("summary", trace));
    for asked in groupings().iter().filter(|asked| !asked.objects) {
        let document = json(&printed_as(asked, trace));
        assert_adds_up(&format!("{what}, {asked:?}"), &summary, asked.view, &document);
    }
}

/// Figures that add up over rows and are never null.
const ADDED: [&str; 11] = [
    "allocs",
    "failed_allocs",
    "requested",
    "allocated",
    "wasted",
    "frees",
    "inferred_frees",
    "live_objects",
    "live_requested",
    "live_allocated",
    "live_wasted",
];

/// Checks that the rows of a grouping add up to the summary, those of `growth` at every slice.
pub fn assert_adds_up(what: &str, summary: &Value, view: &str, document: &Value) {
    let rows = |is_of: &dyn Fn(&Value) -> bool| -> Vec<&Value> {
        document["rows"].as_array().into_iter().flatten().filter(|row| is_of(row)).collect()
    };
    let sum = |rows: &[&Value], pointer: &str| -> u64 {
        rows.iter().filter_map(|row| row.pointer(pointer)).filter_map(Value::as_u64).sum()
    };
    if view != "growth" {
        for kind in shown_kinds(summary).map(Kind::name) {
            let own = rows(&|row| row["kind"] == kind);
            for member in ADDED.iter().filter(|member| view != "live" || member.starts_with("live_")) {
                let expected = &summary["kinds"][kind][member];
                assert_eq!(sum(&own, &format!("/{member}")), *expected, "{what}: {kind} {member}");
            }
        }
        return;
    }
    let slices = document["slices"].as_array().map_or(0, Vec::len);
    for space in shown_kinds(summary).map(Kind::space) {
        let total = &of_space("total", space);
        let is_of_space =
            |row: &Value| Kind::ALL.iter().any(|kind| kind.space() == space && row["kind"] == kind.name());
        let own = rows(&is_of_space);
        for pointer in (0..slices).flat_map(|slice| ["live_allocated", "allocs"].map(|m| format!("/{m}/{slice}"))) {
            let expected = document[total].pointer(&pointer);
            assert_eq!(Some(sum(&own, &pointer)), expected.and_then(Value::as_u64), "{what}: {total}{pointer}");
        }
    }
    let at_end = document["total"]["live_allocated"].as_array().and_then(|live| live.last()).and_then(Value::as_u64);
    assert_eq!(at_end.unwrap_or(0), summary["total"]["live_allocated"], "{what}: live bytes at the end");
}

/// Compares a recording of `kmemload iov 3000 20` on a machine of this word size with the allocations of that load;
/// `options` select the load.
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
            let row =
                |site| json!({ "class": "free_after_free", "count": if site == 9 { 5 } else { 7 }, "free_site": site });
            comparable("mismatch", json!({ "rows": order.map(row) }))
        };
        assert_eq!(rows([1, 2, 9]), rows([2, 1, 9]));
        assert_ne!(rows([1, 2, 9]), rows([9, 1, 2]));
        let sites = |order: [u64; 2]| {
            comparable("sites", json!({ "rows": order.map(|site| json!({ "wasted": 0, "call_site": site })) }))
        };
        assert_ne!(sites([1, 2]), sites([2, 1]));
    }

    #[test]
    fn groupings_of_random_traces_add_up() {
        for seed in 0..40 {
            let (_, workload) = random_workload(seed, 60);
            let known = Known::of_workload(workload);
            let pairs = pairs::pairs(&known);
            let summary = documents::summary(&known, &pairs);
            for asked in groupings().iter().filter(|asked| !asked.objects) {
                let document = asked.document(&known, &pairs);
                assert_adds_up(&format!("seed {seed}, {asked:?}"), &summary, asked.view, &document);
            }
        }
    }

    #[test]
    fn random_traces_have_every_case_that_groupings_tell_apart() {
        let mut seen = std::collections::BTreeMap::new();
        for seed in 0..200 {
            let (_, workload) = random_workload(seed, 60);
            let known = Known::of_workload(workload);
            let pairs = pairs::pairs(&known);
            let document = |asked: Asked| asked.document(&known, &pairs);
            let summary = document(Asked::view("summary"));
            let is_positive = |pointer: &str| summary.pointer(pointer).and_then(Value::as_u64).is_some_and(|n| n > 0);
            let mut see = |case: String, is_there: bool| *seen.entry(case).or_insert(0) += u32::from(is_there);
            for member in ["unknown", "completions", "bulk_unknown", "unseen_frees", "unseen_allocs"] {
                see(format!("events.{member}"), is_positive(&format!("/events/{member}")));
            }
            for word in ["seen", "partly", "unseen"] {
                see(format!("deferred {word}"), summary["trace"]["deferred"] == word);
            }
            for class in ["kind_mismatch", "kind_mismatch_legal", "cache_mismatch"] {
                see(format!("unseen {class}"), is_positive(&format!("/findings/{class}/unseen")));
            }
            let caches = document(Asked::view("caches"));
            let has_source = |from| caches["rows"].as_array().unwrap().iter().any(|row| row["cache_from"] == from);
            let has_candidates = |row: &Value| !row["cache_candidates"].is_null();
            see("candidates".to_owned(), caches["rows"].as_array().unwrap().iter().any(has_candidates));
            ["event", "free", "slabinfo", "size"]
                .into_iter()
                .for_each(|from| see(format!("cache by {from}"), has_source(from)));
            let modules = document(Asked::view("sites").by(&[Key::Module]));
            let has_module = |name| modules["rows"].as_array().unwrap().iter().any(|row| row["module"] == name);
            let is_unknown = |row: &Value| row["module_known"] == false;
            see("unknown module".to_owned(), modules["rows"].as_array().unwrap().iter().any(is_unknown));
            ["ext4", "xfs"].into_iter().for_each(|name| see(format!("module {name}"), has_module(name)));
        }
        assert!(seen.values().all(|&traces| traces > 0), "traces with each case: {seen:?}");
    }

    #[test]
    fn random_traces_have_every_case_of_leaks() {
        let mut seen = std::collections::BTreeMap::new();
        for seed in 0..200 {
            let workload = crate::generate::leaks::workload_with_leaks(seed);
            let document = crate::reference::leaks::leaks(&Known::of_workload(workload), None);
            let rows = document["rows"].as_array().unwrap();
            let mut see = |case: String, is_there: bool| *seen.entry(case).or_insert(0) += u32::from(is_there);
            for verdict in [json!("leak"), json!("maybe"), json!("cache"), Value::Null] {
                see(format!("verdict {verdict}"), rows.iter().any(|row| row["verdict"] == verdict));
            }
            for from in [json!("flag"), json!("list"), Value::Null] {
                see(format!("reclaimable from {from}"), rows.iter().any(|row| row["reclaimable_from"] == from));
            }
            let has = |row: &Value, member: &str| !row[member].is_null();
            see("processes that come and go".to_owned(), rows.iter().any(|row| !has(row, "pid") && has(row, "comm")));
            see("call-sites alone".to_owned(), rows.iter().any(|row| !has(row, "pid") && !has(row, "comm")));
            see("groups of several rows".to_owned(), rows.windows(2).any(|two| two[0]["group"] == two[1]["group"]));
            see("several groups".to_owned(), rows.iter().any(|row| row["group"] == 2));
            [true, false].into_iter().for_each(|alive| {
                see(format!("alive {alive}"), rows.iter().any(|row| row["task_alive"] == alive));
            });
        }
        assert!(seen.values().all(|&traces| traces > 0), "traces with each case: {seen:?}");
    }

    #[test]
    fn random_texts_have_every_part_of_memory() {
        let mut seen = std::collections::BTreeMap::new();
        for seed in 0..100 {
            let known = Known::of_workload(crate::generate::counters::workload_with_counters(seed));
            let pairs = pairs::pairs(&known);
            let document = |asked: Asked| asked.document(&known, &pairs);
            let mut see = |case: String, is_there: bool| *seen.entry(case).or_insert(0) += u32::from(is_there);
            let balance = document(Asked::view("balance"));
            see("unexplained".to_owned(), balance["unexplained"].is_i64());
            see("nothing unexplained".to_owned(), balance["unexplained"].is_null());
            for part in balance["parts"].as_array().unwrap() {
                let name = part["part"].as_str().unwrap();
                see(format!("{name} changes"), part["change"].as_i64().is_some_and(|change| change != 0));
                see(format!("{name} is not known"), part["change"].is_null());
                // No events tell the first three; made stacks are so deep that another rule holds before those of the last two.
                let without =
                    ["huge pages", "other counters", "free on per-CPU lists", "anonymous", "tmpfs and shared"];
                if !without.contains(&name) {
                    see(format!("{name} has call-sites"), part["rows"][0]["live_allocated"].is_u64());
                }
            }
            let caches = document(Asked::view("caches"));
            let has_slabs = |row: &Value| row["slab_before"]["bytes"].is_u64() && row["slab_after"]["bytes"].is_u64();
            see("slabs of a cache".to_owned(), caches["rows"].as_array().unwrap().iter().any(has_slabs));
            see("caches without events".to_owned(), caches["without_events"][0].is_object());
            see("free blocks".to_owned(), document(Asked::view("failed"))["buddyinfo"].is_object());
            let functions = document(Asked::view("sites").by(&[Key::SourceFunction]));
            let has_change = |row: &Value| row["allocinfo_change"].as_i64().is_some_and(|change| change != 0);
            see("allocinfo".to_owned(), functions["rows"].as_array().unwrap().iter().any(has_change));
        }
        assert!(seen.values().all(|&traces| traces > 0), "traces with each case: {seen:?}");
    }

    #[test]
    fn a_sum_that_differs_is_seen() {
        let (_, workload) = random_workload(1, 300);
        let known = Known::of_workload(workload);
        let pairs = pairs::pairs(&known);
        let summary = documents::summary(&known, &pairs);
        let is_seen = |view: &'static str, member: &str| {
            let mut document = Asked::view(view).document(&known, &pairs);
            let rows = document["rows"].as_array_mut().unwrap();
            let row = rows.iter_mut().find(|row| row["kind"] == "kmalloc").unwrap();
            *row.pointer_mut(member).unwrap() = json!(1u64 << 40);
            let summary = summary.clone();
            std::panic::catch_unwind(move || assert_adds_up("spoilt", &summary, view, &document)).is_err()
        };
        assert!(is_seen("sites", "/wasted") && is_seen("live", "/live_objects") && is_seen("growth", "/allocs/1"));
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
