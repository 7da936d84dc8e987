//! Small traces with documents worked out by hand from the contract.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use kmemtrace_abi::event::{Action, StreamItem};
use serde_json::{Value, json};

use super::asked::Asked;
use super::compare::{BY_FUNCTION, compare};
use super::groups::{Shape as Rows, Sort};
use super::keys::Key;
use super::pairs::pairs;
use super::{Known, Selection, documents, groups};
use crate::generate::symbols::{Symbols, call_site};
use crate::generate::{Era, Shape, Workload};
use crate::programs::differences;
use crate::scenario::Scenario;

const A: u64 = 0xffff_8880_0000_1000;
const B: u64 = 0xffff_8880_0000_2000;
const C: u64 = 0xffff_8880_0000_3000;
const D: u64 = 0xffff_8880_0000_4000;
const SITE: u64 = 0x10;
const OTHER_SITE: u64 = 0x20;
const FREE_SITE: u64 = 0xf0;

fn scenario() -> Scenario {
    Scenario::new(Shape::plain(), 2)
}

fn document(asked: &Asked, known: &Known) -> Value {
    asked.document(known, &pairs(known))
}

/// Checks that the rows of `found` are these, in this order, each with all members given.
fn assert_rows(found: &Value, by_hand: Value) {
    assert_eq!(differences(&by_hand, &found["rows"]), [""; 0], "{found:#}");
}

/// Removes the cache names of allocations, which kernels before 6.18 do not tell.
fn without_names(mut workload: Workload) -> Workload {
    for cpu in &mut workload.cpus {
        for item in &mut cpu.items {
            if let StreamItem::Event(event) = item
                && matches!(event.action, Action::Alloc(_))
            {
                event.cache = None;
            }
        }
    }
    workload
}

/// Objects of two threads of one name, and of a thread without.
fn threads() -> Known {
    let mut workload = scenario()
        .thread(7, 0)
        .kmalloc(1, 0, SITE, A, (60, 64))
        .thread(8, 0x10)
        .kmalloc(2, 0, OTHER_SITE, B, (100, 192))
        .thread(9, 0)
        .kmalloc(3, 0, SITE, C, (8, 8))
        .kfree(4, 1, FREE_SITE, A)
        .page_alloc(5, 0, 0x77, 4096)
        .finish();
    workload.comms = vec![(7, "seven"), (8, "seven")];
    Known::of_workload(workload)
}

#[test]
fn rows_are_grouped_by_any_keys_with_null_first() {
    let known = threads();
    let by = |keys: &[Key]| document(&Asked::view("sites").by(keys), &known);
    let comm = by(&[Key::Comm]);
    assert_eq!((&comm["schema"], &comm["query"]["by"]), (&json!("kmemtrace.sites/2"), &json!(["comm"])));
    assert_rows(
        &comm,
        json!([
            { "comm": "seven", "kind": "kmalloc", "allocs": 2, "wasted": 96, "frees": 1, "peak_live_allocated": 256 },
            { "comm": null, "kind": "kmalloc", "allocs": 1, "wasted": 0 },
            { "comm": null, "kind": "pages", "allocs": 1, "wasted": 0 },
        ]),
    );
    assert_rows(
        &by(&[Key::Context, Key::Site]),
        json!([
            { "context": "softirq", "call_site": "0x20", "symbol": null, "module": null, "kind": "kmalloc", "allocs": 1 },
            { "context": "task", "call_site": "0x10", "kind": "kmalloc", "allocs": 2, "wasted": 4 },
            { "context": "task", "call_site": "0x0", "kind": "pages", "allocs": 1 },
        ]),
    );
    assert_rows(
        &by(&[Key::Task]),
        json!([
            { "pid": 8, "comm": "seven", "allocated": 192 },
            { "pid": 7, "comm": "seven", "allocated": 64 },
            { "pid": 9, "comm": null, "kind": "kmalloc", "allocated": 8 },
            { "pid": 9, "comm": null, "kind": "pages", "allocated": 4096 },
        ]),
    );
    assert_rows(
        &by(&[Key::Node, Key::Size, Key::Gfp]),
        json!([
            { "node": -1, "size": 100, "gfp": 0xcc0 },
            { "node": -1, "size": 60 },
            { "node": null, "size": 4096, "kind": "pages" },
            { "node": -1, "size": 8 },
        ]),
    );
    assert_eq!(by(&[Key::Site])["schema"], "kmemtrace.sites/1");
}

#[test]
fn rows_left_out_are_summed_with_pages_apart() {
    let known = threads();
    let shape = Rows { sort: vec![Sort::LIVE], top: Some(1) };
    let sites = groups::sites_by(&known, &pairs(&known), &[Key::Pid], &shape);
    assert_rows(&sites, json!([{ "pid": 9, "kind": "pages", "live_allocated": 4096 }]));
    let others = json!({
        "others": { "allocs": 3, "allocated": 264, "live_allocated": 200, "peak_live_allocated": null },
        "others_pages": { "allocs": 0, "allocated": 0 }, "others_count": 3,
    });
    assert_eq!(differences(&others, &sites), [""; 0]);
}

#[test]
fn filters_stand_in_the_query_as_given() {
    let known = Known {
        selection: Selection { comm: vec!["seven".to_owned()], least: Some(100), ..Selection::default() },
        bounds: Some((0, 9)),
        ..threads()
    };
    let summary = document(&Asked::view("summary"), &known);
    let query = json!({ "filters": { "comm": ["seven"], "size": ["100.."] }, "time": [0, 9], "by": [] });
    assert_eq!(summary["query"], query);
    assert_eq!((&summary["total"]["allocs"], &summary["pairs"]["paired"]), (&json!(1), &json!(0)));
    let softirq = Selection { context: vec!["softirq"], ..Selection::default() };
    let summary = document(&Asked::view("summary"), &Known { selection: softirq, bounds: None, ..known });
    assert_eq!((&summary["total"]["allocs"], &summary["query"]["time"]), (&json!(1), &Value::Null));
}

#[test]
fn findings_on_rows_with_frees_without_events_are_unseen() {
    // An epoll item is freed without an event and its address comes back as an inode: once with the allocation's event, once
    // without.
    let work = scenario()
        .cache_alloc(1, 0, SITE, A, (100, 128), "eventpoll_epi")
        .cache_alloc(2, 0, OTHER_SITE, A, (600, 640), "inode_cache")
        .cache_alloc(3, 0, SITE, B, (100, 128), "eventpoll_epi")
        .cache_free(4, 0, FREE_SITE, B, "inode_cache")
        .cache_free(5, 0, FREE_SITE, B, "inode_cache")
        .cache_alloc(6, 0, OTHER_SITE, C, (600, 640), "inode_cache")
        .cache_free(7, 0, FREE_SITE, C, "dentry")
        .finish();
    let known = Known::of_workload(work);
    let summary = document(&Asked::view("summary"), &known);
    let findings = json!({
        "cache_mismatch": { "count": 2, "suspect": 0, "unseen": 1 },
        "kind_mismatch": { "count": 0, "suspect": 0, "unseen": 0 },
        "kind_mismatch_legal": { "count": 0, "suspect": 0, "unseen": 0 },
        "free_after_free": { "count": 1, "suspect": 0 },
        "inferred_free": { "count": 1, "suspect": 0 },
    });
    assert_eq!(differences(&findings, &summary["findings"]), [""; 0]);
    assert_eq!(summary["findings"]["inferred_free"].get("unseen"), None);
    let rows = json!([
        { "class": "cache_mismatch", "alloc_site": "0x20", "count": 1, "suspect": 0, "unseen": 0, "first": { "at": 7 } },
        { "class": "cache_mismatch", "alloc_site": "0x10", "count": 1, "suspect": 0, "unseen": 1, "first": { "at": 4 } },
        { "class": "free_after_free", "count": 1, "suspect": 0, "unseen": null },
        { "class": "inferred_free", "alloc_site": "0x10", "count": 1, "unseen": null },
    ]);
    assert_rows(&document(&Asked::view("mismatch"), &known), rows);
    // Decided before filters: the row's inferred free is left out here, its class stays unseen.
    let selection = Selection { site: vec![SITE], ..Selection::default() };
    let filtered = document(&Asked::view("summary"), &Known { selection, ..known });
    assert_eq!(filtered["findings"]["cache_mismatch"], json!({ "count": 1, "suspect": 0, "unseen": 1 }));
}

#[test]
fn suspect_findings_are_never_unseen_and_make_none_unseen() {
    // CPU 1 lost events from 2 to 5: the object at A may have been freed then, and so may the one at C.
    let work = scenario()
        .cache_alloc(1, 0, SITE, A, (8, 8), "dentry")
        .cache_alloc(1, 0, OTHER_SITE, C, (8, 8), "dentry")
        .kmalloc(2, 1, FREE_SITE, D, (8, 8))
        .lost(1, 5, 3)
        .kfree(5, 1, FREE_SITE, D)
        // Row SITE: a suspect reissue, and a finding that is not suspect.
        .cache_alloc(6, 0, SITE, A, (8, 8), "dentry")
        .cache_free(7, 0, FREE_SITE, A, "filp")
        // Row OTHER_SITE: a reissue that is not suspect, and a finding that is.
        .cache_free(8, 0, FREE_SITE, C, "filp")
        .cache_alloc(9, 0, OTHER_SITE, B, (8, 8), "dentry")
        .cache_alloc(10, 0, OTHER_SITE, B, (8, 8), "dentry")
        .finish();
    let mismatch = document(&Asked::view("mismatch"), &Known::of_workload(work));
    let rows = json!([
        { "class": "cache_mismatch", "alloc_site": "0x10", "count": 1, "suspect": 0, "unseen": 0 },
        { "class": "cache_mismatch", "alloc_site": "0x20", "count": 1, "suspect": 1, "unseen": 0 },
        { "class": "inferred_free", "alloc_site": "0x10", "count": 1, "suspect": 1 },
        { "class": "inferred_free", "alloc_site": "0x20", "count": 1, "suspect": 0 },
    ]);
    assert_rows(&mismatch, rows);
}

#[test]
fn errors_come_before_findings_that_are_more() {
    let work = scenario()
        .kfree(1, 0, FREE_SITE, A)
        .kfree(2, 0, FREE_SITE, A)
        .kfree(3, 0, FREE_SITE, A)
        .kmalloc(4, 0, SITE, B, (8, 8))
        .cache_free(5, 0, FREE_SITE, B, "dentry")
        .finish();
    let rows = json!([
        { "class": "kind_mismatch", "count": 1, "suspect": 0, "unseen": 0 },
        { "class": "free_after_free", "count": 2, "suspect": 0 },
    ]);
    assert_rows(&document(&Asked::view("mismatch"), &Known::of_workload(work)), rows);
}

#[test]
fn caches_are_named_by_events_or_by_size() {
    let work = scenario()
        .cache_alloc(1, 0, SITE, A, (100, 128), "dentry")
        .kmalloc(2, 0, SITE, B, (1000, 1024))
        .kmalloc(3, 0, SITE, C, (9000, 16384))
        .page_alloc(4, 0, 0x77, 4096)
        .finish();
    let known = Known::of_workload(work);
    let rows = json!([
        { "cache": null, "cache_from": null, "kind": "kmalloc", "wasted": 7384 },
        { "cache": "dentry", "cache_from": "event", "kind": "cache", "wasted": 28 },
        { "cache": "kmalloc-1k", "cache_from": "size", "kind": "kmalloc", "wasted": 24 },
        { "cache": null, "cache_from": null, "kind": "pages", "wasted": 0 },
    ]);
    let caches = document(&Asked::view("caches"), &known);
    assert_eq!(caches["schema"], "kmemtrace.caches/2");
    assert_rows(&caches, rows);
    let selection = Selection { cache: vec!["kmalloc-1k".to_owned()], ..Selection::default() };
    let filtered = document(&Asked::view("caches"), &Known { selection, ..known });
    assert_rows(&filtered, json!([{ "cache": "kmalloc-1k", "kind": "kmalloc", "allocs": 1 }]));
}

#[test]
fn caches_are_learned_from_frees_that_agree() {
    let work = Scenario::new(Shape { era: Era::V6_1, ..Shape::plain() }, 2)
        // Freed once, so that the live one has a name.
        .cache_alloc(1, 0, SITE, A, (100, 128), "dentry")
        .cache_free(2, 0, FREE_SITE, A, "dentry")
        .cache_alloc(3, 0, SITE, B, (100, 128), "dentry")
        // Another size at the same call-site has two names.
        .cache_alloc(4, 0, SITE, C, (200, 256), "filp")
        .cache_free(5, 0, FREE_SITE, C, "filp")
        .cache_alloc(6, 0, SITE, C, (200, 256), "filp")
        .cache_free(7, 0, FREE_SITE, C, "inode_cache")
        // Never freed.
        .cache_alloc(8, 0, OTHER_SITE, D, (100, 128), "dentry")
        .finish();
    let known = Known::of_workload(without_names(work));
    let rows = json!([
        { "cache": null, "cache_from": null, "kind": "cache", "allocs": 3, "live_objects": 1 },
        { "cache": "dentry", "cache_from": "free", "kind": "cache", "allocs": 2, "live_objects": 1 },
    ]);
    assert_rows(&document(&Asked::view("caches"), &known), rows);
    // Learned before filters, and used by them.
    let selection = Selection { cache: vec!["dentry".to_owned()], ..Selection::default() };
    let known = Known { selection, ..known };
    assert_rows(&document(&Asked::view("caches"), &known), json!([{ "cache": "dentry", "allocs": 2 }]));
}

#[test]
fn a_suspect_pair_teaches_no_cache() {
    let work = scenario()
        .cache_alloc(1, 0, SITE, A, (100, 128), "dentry")
        .kmalloc(2, 1, OTHER_SITE, B, (8, 8))
        .lost(1, 5, 3)
        .kfree(6, 1, FREE_SITE, B)
        .cache_free(7, 0, FREE_SITE, A, "dentry")
        .finish();
    let rows = json!([{ "cache": null, "kind": "cache" }, { "cache": "kmalloc-8", "kind": "kmalloc" }]);
    assert_rows(&document(&Asked::view("caches"), &Known::of_workload(without_names(work))), rows);
}

#[test]
fn live_objects_are_grouped_with_their_ages_and_growth() {
    // Slices of 2 keys from 100 to 199: nine tenths are at 189.1, the last end before is 189.
    let work = scenario()
        .kmalloc(100, 0, SITE, A, (60, 64))
        .kmalloc(150, 0, SITE, B, (64, 64))
        .kmalloc(160, 0, OTHER_SITE, C, (10, 16))
        .kmalloc(170, 0, SITE, D, (60, 64))
        .kfree(189, 0, FREE_SITE, C)
        .kmalloc(190, 0, SITE, C, (8, 8))
        .kfree(191, 0, FREE_SITE, D)
        .kmalloc(192, 0, SITE, D, (16, 16))
        .page_alloc(192, 0, 0x77, 4096)
        .kfree(199, 0, FREE_SITE, 0)
        .finish();
    let live = document(&Asked::view("live"), &Known::of_workload(work));
    assert_eq!((&live["schema"], &live["query"]["by"]), (&json!("kmemtrace.live/2"), &json!(["site"])));
    let rows = json!([
        { "call_site": "0x0", "kind": "pages", "live_objects": 1, "live_allocated": 4096, "oldest": 192, "median": 192,
          "grew": 4096 },
        { "call_site": "0x10", "symbol": null, "module": null, "kind": "kmalloc", "live_objects": 4,
          "live_requested": 148, "live_allocated": 152, "live_wasted": 4, "live_is_upper_bound": false, "oldest": 100,
          "median": 150, "grew": -40 },
    ]);
    assert_rows(&live, rows);
}

#[test]
fn growth_has_live_bytes_at_each_end_and_allocations_in_each_slice() {
    let work = scenario()
        .kmalloc(100, 0, SITE, A, (60, 64))
        .kmalloc(101, 0, OTHER_SITE, B, (10, 16))
        .kmalloc(101, 0, SITE, C, (60, 64))
        .kfree(102, 0, FREE_SITE, A)
        .page_alloc(103, 0, 0x77, 4096)
        .page_free_batched(104, 0, 0x78)
        .kmalloc(104, 1, SITE, 0, (10, 16))
        .finish();
    let growth = document(&Asked::view("growth"), &Known::of_workload(work));
    let by_hand = json!({
        "schema": "kmemtrace.growth/1", "slices": [101, 102, 103, 104, 105],
        "total": { "live_allocated": [64, 144, 80, 80, 80], "allocs": [1, 2, 0, 0, 0] },
        "total_pages": { "live_allocated": [0, 0, 0, 4096, 4096], "allocs": [0, 0, 0, 1, 0] },
        "rows": [
            { "call_site": "0x0", "kind": "pages", "live_allocated": [0, 0, 0, 4096, 4096], "allocs": [0, 0, 0, 1, 0] },
            { "call_site": "0x20", "kind": "kmalloc", "live_allocated": [0, 16, 16, 16, 16], "allocs": [0, 1, 0, 0, 0] },
            { "call_site": "0x10", "kind": "kmalloc", "live_allocated": [64, 128, 64, 64, 64], "allocs": [1, 1, 0, 0, 0] },
        ],
    });
    assert_eq!(differences(&by_hand, &growth), [""; 0]);
}

#[test]
fn slices_of_a_window_start_where_it_starts() {
    let work = scenario()
        .kmalloc(100, 0, SITE, A, (60, 64))
        .kmalloc(110, 0, SITE, B, (60, 64))
        .kmalloc(112, 0, SITE, C, (60, 64))
        .finish();
    let known = Known { bounds: Some((109, u64::MAX)), ..Known::of_workload(work) };
    let growth = document(&Asked::view("growth"), &known);
    assert_eq!(growth["slices"], json!([110, 111, 112, 113]));
    assert_eq!(growth["total"]["live_allocated"], json!([0, 64, 64, 128]));
    let known = Known { bounds: Some((0, 110)), ..known };
    assert_eq!(document(&Asked::view("growth"), &known)["slices"].as_array().unwrap().len(), 11);
}

/// Objects of functions of a kernel that was moved by `slide` bytes.
fn moved(slide: u64, seconds: u64, more: u64) -> Known {
    let shape = Shape::plain();
    let site = |number| call_site(&shape, slide, number);
    let work = scenario()
        // Two call-sites of one function, one without a function, two functions of one name.
        .kmalloc(0, 0, site(3), A, (100, 128 + more))
        .kmalloc(1, 0, site(4), B, (100, 128))
        .kmalloc(2, 0, site(0), C, (8, 8))
        .kmalloc(3, 0, site(8), D, (8, 16))
        .kmalloc(4, 0, site(10), D + 64, (8, 16))
        .page_alloc(5, 0, 0x77, 4096)
        .kfree(6, 0, FREE_SITE, B)
        .kfree(seconds * 1_000_000_000, 0, FREE_SITE, 0)
        .with(|workload| workload.symbols = Symbols::of_call_sites(&shape, slide))
        .finish();
    Known::of_workload(work)
}

#[test]
fn functions_of_a_moved_kernel_are_compared() {
    let (before, after) = (moved(0, 2, 0), moved(0x20_0000, 4, 128));
    let pairs = [pairs(&before), pairs(&after)];
    let sides = [(&before, &pairs[0]), (&after, &pairs[1])];
    let document = compare(sides, &BY_FUNCTION, false);
    let by_hand = json!({
        "schema": "kmemtrace.compare/1", "completeness": { "verdict": "complete" },
        "query": { "filters": {}, "time": null, "by": ["function"] },
        "before": { "seconds": 2.0, "completeness": { "verdict": "complete" }, "trace": { "last": 2_000_000_000 } },
        "after": { "seconds": 4.0 },
        "total": {
            "before": { "allocated": 296, "live_allocated": 168, "peak_live_allocated": 296 },
            "after": { "allocated": 424, "live_allocated": 296, "peak_live_allocated": 424 },
            "change": { "live_allocated": 128, "allocated": 128, "allocs": 0 },
            "per_second": { "allocated": [148.0, 106.0], "allocs": [2.5, 1.25] },
        },
        "total_pages": { "change": { "live_allocated": 0, "allocated": 0, "allocs": 0 } },
    });
    assert_eq!(differences(&by_hand, &document), [""; 0]);
    let zero = json!({ "allocs": 0, "allocated": 0, "live_allocated": 0, "peak_live_allocated": 0 });
    let rows = json!([
        { "function": "sock_alloc", "module": null, "kind": "kmalloc",
          "before": { "allocs": 2, "live_allocated": 128, "peak_live_allocated": null }, "after": { "live_allocated": 256 },
          "change": { "live_allocated": 128, "allocated": 128, "allocs": 0 } },
        { "function": null, "module": null, "call_site": "0xffffffff81100000", "kind": "kmalloc", "after": zero,
          "change": { "live_allocated": -8, "allocated": -8, "allocs": -1 } },
        { "function": null, "call_site": "0xffffffff81300000", "before": zero, "change": { "live_allocated": 8 } },
        { "function": null, "call_site": "0x0", "kind": "pages", "change": { "allocs": 0 } },
        { "function": "probe", "module": "ext4", "before": { "allocs": 1 }, "after": { "allocs": 1 } },
        { "function": "probe", "module": "xfs", "before": { "allocs": 1 }, "after": { "allocs": 1 } },
    ]);
    assert_rows(&document, rows);
}

#[test]
fn call_sites_without_a_function_match_on_a_kernel_at_the_same_place() {
    let (before, after) = (moved(0, 2, 0), moved(0, 2, 0));
    let pairs = [pairs(&before), pairs(&after)];
    let sides = [(&before, &pairs[0]), (&after, &pairs[1])];
    let rows = |is_one_trace| compare(sides, &BY_FUNCTION, is_one_trace)["rows"].as_array().unwrap().len();
    assert_eq!([rows(false), rows(true)], [5, 5]);
    let caches = compare(sides, &[Key::Cache], false);
    assert_eq!(caches["query"]["by"], json!(["cache"]));
    let names: Vec<&Value> = caches["rows"].as_array().unwrap().iter().map(|row| &row["cache"]).collect();
    assert_eq!(names, [&Value::Null, &json!("kmalloc-128"), &json!("kmalloc-16"), &json!("kmalloc-8")]);
}

#[test]
fn a_recording_of_some_tasks_has_upper_bounds_only() {
    let work = scenario()
        .cache_alloc(1, 0, SITE, A, (8, 8), "dentry")
        .cache_free(2, 0, FREE_SITE, A, "filp")
        .kmalloc(3, 0, SITE, B, (8, 8))
        .finish();
    let mut known = Known::of_workload(work);
    known.trace.scope = Some("tasks");
    known.trace.filtered = Some("bytes_req > 100".to_owned());
    let summary = document(&Asked::view("summary"), &known);
    let by_hand = json!({
        "trace": { "scope": "tasks", "filtered": "bytes_req > 100" },
        "total": { "live_is_upper_bound": true }, "kinds": { "kmalloc": { "live_is_upper_bound": true } },
        "findings": { "cache_mismatch": { "count": 1, "suspect": 0, "unseen": 1 } },
    });
    assert_eq!(differences(&by_hand, &summary), [""; 0]);
    let live = document(&Asked::view("live"), &known);
    assert_rows(&live, json!([{ "call_site": "0x10", "kind": "kmalloc", "live_is_upper_bound": true }]));
}

#[test]
fn unknown_events_of_objects_are_counted() {
    let mut work =
        scenario().kmalloc(1, 0, SITE, A, (8, 8)).page_free_batched(2, 0, 0x77).page_free_batched(3, 0, 0x77).finish();
    let name = work.names.intern(b"kmem_cache_free_deferred");
    if let Some(StreamItem::Event(event)) = work.cpus[0].items.last_mut() {
        event.name = name;
    }
    let summary = document(&Asked::view("summary"), &Known::of_workload(work));
    let events = json!({ "total": 3, "used": 1, "other": 2, "unknown": 1, "completions": 0, "unseen_frees": 0 });
    assert_eq!(differences(&json!({ "events": events }), &summary), [""; 0]);
}

#[test]
fn a_deferred_free_gives_its_address_up_until_the_next_event_of_it() {
    let work = scenario()
        .kmalloc(1, 0, SITE, A, (8, 8))
        .kvfree_rcu(2, 0, FREE_SITE, A)
        .kfree(3, 0, FREE_SITE, A)
        .kfree(4, 0, FREE_SITE, A)
        .free_bulk(5, 0, FREE_SITE, (1, &[A]), None)
        .finish();
    let summary = document(&Asked::view("summary"), &Known::of_workload(work));
    let by_hand = json!({
        "trace": { "deferred": "seen" },
        "events": { "total": 5, "used": 5, "completions": 1, "bulk_unknown": 1, "unseen_frees": 0 },
        "kinds": {
            "kmalloc": {
                "frees": 1, "free_events": 2, "live_objects": 0, "largest": 8, "deferred_frees": 1, "bulk_frees": 0,
            },
            "pages": { "largest": null, "deferred_frees": 0, "bulk_frees": 0 },
        },
        "findings": { "free_after_free": { "count": 1 }, "free_without_alloc": { "count": 0 } },
    });
    assert_eq!(differences(&by_hand, &summary), [""; 0]);
}

#[test]
fn a_trace_without_events_has_documents() {
    let known = Known::of_workload(scenario().finish());
    for view in ["summary", "sites", "caches", "mismatch", "live", "cross", "growth"] {
        assert!(document(&Asked::view(view), &known)["schema"].is_string(), "{view}");
    }
    let growth = document(&Asked::view("growth"), &known);
    assert_eq!((&growth["slices"], &growth["total"]["allocs"]), (&json!([]), &json!([])));
    let none = pairs(&known);
    let document = compare([(&known, &none), (&known, &none)], &BY_FUNCTION, true);
    assert_eq!((&document["before"]["seconds"], &document["rows"]), (&Value::Null, &json!([])));
    assert_eq!(documents::sites(&known, &none)["rows"], json!([]));
}
