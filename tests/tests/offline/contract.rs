//! Small traces with figures worked out by hand from the contract: reference and program must both give them.

mod deferred;
mod spaces;

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};

use kmemtrace_abi::event::{Gap, GapCause, StreamItem};
use kmemtrace_tests::generate::relay::RelayStream;
use kmemtrace_tests::generate::{Era, Options, Random, Shape, Workload, relay_dir, trace_dir, tree, workload};
use kmemtrace_tests::programs::{data, differences, document, json, program, run, run_to};
use kmemtrace_tests::recording::{Directory, random_relay, random_workload};
use kmemtrace_tests::reference::asked::Asked;
use kmemtrace_tests::reference::compare::{BY_FUNCTION, compare};
use kmemtrace_tests::reference::keys::Key;
use kmemtrace_tests::reference::{Known, pairs};
use kmemtrace_tests::runs::{self, seeds};
use kmemtrace_tests::scenario::Scenario;
use kmemtrace_tests::views::{
    self, DOCUMENTS, assert_asked, assert_groupings_add_up, assert_views, events, expected, groupings, printed,
    printed_as,
};
use serde_json::{Value, json};

const A: u64 = 0xffff_8880_0000_1000;
const B: u64 = 0xffff_8880_0000_2000;
const C: u64 = 0xffff_8880_0000_3000;
const D: u64 = 0xffff_8880_0000_4000;
const SITE: u64 = 0xffff_ffff_8100_0010;
const OTHER_SITE: u64 = 0xffff_ffff_8100_0020;
const FREE_SITE: u64 = 0xffff_ffff_8100_0f00;

/// Compares the views of reference and program with figures worked out by hand.
fn assert_all(what: &str, workload: Workload, by_hand: &[(&'static str, Value)]) {
    let by_hand: Vec<(Asked, &Value)> = by_hand.iter().map(|(view, document)| (Asked::view(view), document)).collect();
    assert_asked_by_hand(what, workload, &by_hand);
}

/// The same for views with options.
fn assert_asked_by_hand(what: &str, workload: Workload, by_hand: &[(Asked, &Value)]) {
    let dir = Directory::new(&trace_dir(&workload, 1));
    let known = Known::of_workload(workload);
    let pairs = pairs::pairs(&known);
    for (asked, by_hand) in by_hand {
        assert_document(&format!("{what}: the reference's {asked:?}"), by_hand, &asked.document(&known, &pairs));
        let program = json(&printed_as(asked, dir.path()));
        assert_document(&format!("{what}: the program's {asked:?}"), by_hand, &program);
    }
    assert_views(what, dir.path(), &known);
    assert_asked(what, dir.path(), &known, &groupings());
}

/// Compares a document with the members given by hand; rows may come in any order, each exactly once.
fn assert_document(what: &str, by_hand: &Value, found: &Value) {
    if let (Some(by_hand), Some(rows)) = (by_hand["rows"].as_array(), found["rows"].as_array()) {
        assert_eq!(by_hand.len(), rows.len(), "{what}: {found}");
        for row in by_hand {
            let matching = rows.iter().filter(|found| differences(row, found).is_empty());
            assert_eq!(matching.count(), 1, "{what}: {row} in {found:#}");
        }
        return;
    }
    assert_eq!(differences(by_hand, found), [""; 0], "{what}");
}

fn shape(era: Era) -> Shape {
    Shape { era, ..Shape::plain() }
}

#[test]
fn pairs_waste_and_peaks() {
    let work = Scenario::new(Shape::plain(), 2)
        .kmalloc(10, 0, SITE, A, (100, 128))
        .kmalloc(20, 0, SITE, B, (60, 64))
        .kfree(30, 1, FREE_SITE, A)
        .cache_alloc(40, 1, SITE, C, (200, 256), "dentry")
        .cache_free(50, 1, FREE_SITE, C, "dentry")
        .kmalloc(60, 1, OTHER_SITE, 0, (50, 64))
        .kmalloc(70, 1, OTHER_SITE, D, (50, 40))
        .kfree(80, 0, FREE_SITE, 0)
        .kfree(80, 0, FREE_SITE, 16)
        .page_alloc(90, 0, 0x1234, 8192)
        .page_free(95, 0, 0x1234, 1)
        .page_free_batched(95, 0, 0x1234)
        .page_alloc(96, 0, u64::MAX, 4096)
        .finish();
    let kmalloc = json!({
        "allocs": 3, "failed_allocs": 1, "requested": 210, "allocated": 232, "wasted": 32, "frees": 1, "inferred_frees": 0,
        "cross_cpu": 1, "live_objects": 2, "live_requested": 110, "live_allocated": 104, "live_wasted": 4,
        "peak_live_allocated": 192, "live_is_upper_bound": false, "free_events": 1,
    });
    let pages = json!({
        "allocs": 1, "failed_allocs": 1, "requested": 8192, "allocated": 8192, "frees": 1, "free_events": 1,
        "peak_live_allocated": 8192, "pages_allocated": 2, "pages_freed": 2, "pages_inferred": 0, "live_pages": 0,
        "peak_live_pages": 2, "partial_frees": 0, "page_pairs": 1, "free_pages_without_alloc": 0, "free_pages_after_free": 0,
    });
    let total = json!({ "allocs": 4, "wasted": 88, "peak_live_allocated": 320, "peak_at": 40, "live_objects": 2 });
    let summary = json!({
        "completeness": { "verdict": "complete", "lost_events": 0, "gaps": 0, "truncated_files": [], "missing_cpus": [] },
        "trace": { "kernel": "6.18.1", "clock": "mono", "cpus": 2, "first": 10, "last": 96, "order": "time" },
        "events": { "total": 13, "used": 12, "other": 1 },
        "kinds": { "kmalloc": kmalloc, "pages": pages },
        "total": total,
        "pairs": { "paired": 3, "cross_cpu": 1, "cross_cpu_bytes": 128, "cross_node": null },
        "findings": {
            "short_alloc": { "count": 1 }, "failed_alloc": { "count": 2 }, "null_free": { "count": 2 },
            "kind_mismatch": { "count": 0, "suspect": 0 }, "free_after_free": { "count": 0, "suspect": 0 },
            "free_without_alloc": { "count": 0 },
        },
    });
    let sites = json!({ "rows": [
        { "call_site": "0xffffffff81000010", "kind": "cache", "wasted": 56, "allocs": 1, "symbol": null },
        { "call_site": "0xffffffff81000010", "kind": "kmalloc", "wasted": 32, "allocs": 2, "frees": 1 },
        { "call_site": "0x0", "kind": "pages", "wasted": 0, "allocs": 1, "failed_allocs": 1 },
        { "call_site": "0xffffffff81000020", "kind": "kmalloc", "wasted": 0, "allocs": 1, "failed_allocs": 1 },
    ]});
    let objects = json!({ "rows": [
        { "address": "0xffff888000002000", "kind": "kmalloc", "cache": null, "requested": 60, "cpu": 0, "pid": 7,
          "comm": "seven", "at": 20 },
        { "address": "0xffff888000004000", "requested": 50, "allocated": 40, "cpu": 1, "at": 70 },
    ]});
    // Rows without a cross-CPU pair may or may not be listed.
    let cross = json!({ "cpus": [0, 1], "matrix": [[1, 1], [0, 1]] });
    let live = json!({ "rows": [
        { "call_site": "0xffffffff81000010", "kind": "kmalloc", "live_objects": 1, "live_allocated": 64, "oldest": 20,
          "median": 20, "grew": 0 },
        { "call_site": "0xffffffff81000020", "kind": "kmalloc", "live_objects": 1, "live_requested": 50, "oldest": 70 },
    ]});
    let view = Asked::view;
    let views = [
        (view("summary"), &summary),
        (view("sites"), &sites),
        (view("live"), &live),
        (view("live").objects(), &objects),
        (view("cross"), &cross),
    ];
    assert_asked_by_hand("pairs", work, &views);
}

/// Blocks come back in parts, and several at once; pages of one are allocated again.
#[test]
fn pages_are_live_one_by_one() {
    let work = Scenario::new(Shape::plain(), 2)
        .page_alloc(10, 0, 0x100, 8 * 4096)
        .page_free(20, 1, 0x102, 1) // a part of it, on the other CPU
        .page_free(30, 0, 0x102, 0) // again
        .page_alloc(40, 0, 0x104, 4096) // one of its pages: its free was not seen
        .page_free(50, 0, 0x100, 3) // the rest of both
        .page_alloc(60, 0, 0x200, 4 * 4096)
        .page_free(70, 0, 0x201, 0)
        .page_free(80, 0, 0x1_0000, 4) // older than the trace
        .page_free(90, 0, 0x200, 5) // the rest of it, and pages that were never seen
        .page_alloc(95, 0, 0x300, 2 * 4096)
        .page_free(96, 1, 0x301, 0)
        .finish();
    let pages = json!({
        "allocs": 4, "frees": 2, "inferred_frees": 1, "live_objects": 1, "allocated": 15 * 4096, "live_allocated": 4096,
        "peak_live_allocated": 8 * 4096, "cross_cpu": 0, "live_is_upper_bound": true,
        "pages_allocated": 15, "pages_freed": 13, "pages_inferred": 1, "live_pages": 1, "peak_live_pages": 8,
        "partial_frees": 3, "free_events": 7, "page_pairs": 5, "free_pages_without_alloc": 16 + 28,
        "free_pages_after_free": 1 + 2 + 1,
    });
    let summary = json!({
        "kinds": { "pages": pages, "kmalloc": { "pages_allocated": null, "page_pairs": null } },
        "total": { "live_pages": null },
        "pairs": { "paired": 2, "cross_cpu": 0, "cross_cpu_bytes": 3 * 4096 },
        "findings": {
            "free_after_free": { "count": 1, "suspect": 0 }, "inferred_free": { "count": 1, "suspect": 0 },
            "free_without_alloc": { "count": 1 },
        },
    });
    let sites = json!({ "rows": [{ "call_site": "0x0", "kind": "pages", "live_pages": 1, "partial_frees": 3 }] });
    let mismatch = json!({ "rows": [
        { "class": "free_after_free", "kind": "pages", "first": { "at": 30, "cpu": 0, "address": "0x102" } },
        { "class": "inferred_free", "kind": "pages", "first": { "at": 50, "cpu": 0, "address": "0x100" } },
    ]});
    let objects = json!({ "rows": [
        { "address": "0x300", "kind": "pages", "requested": 4096, "allocated": 4096, "live_pages": 1, "at": 95 },
    ]});
    let view = Asked::view;
    let views = [
        (view("summary"), &summary),
        (view("sites"), &sites),
        (view("mismatch"), &mismatch),
        (view("live").objects(), &objects),
    ];
    assert_asked_by_hand("parts", work, &views);
}

#[test]
fn the_last_event_of_an_address_decides() {
    let work = Scenario::new(Shape::plain(), 1)
        .kfree(1, 0, FREE_SITE, A) // older than the trace
        .kfree(2, 0, FREE_SITE, A) // second free in a row
        .kmalloc(3, 0, SITE, A, (8, 8))
        .cache_alloc(4, 0, OTHER_SITE, A, (8, 16), "dentry") // inferred free of the object before
        .cache_free(5, 0, FREE_SITE, A, "dentry")
        .cache_free(6, 0, FREE_SITE, A, "dentry")
        .page_alloc(7, 0, A, 4096) // frames are another address space
        .page_free(8, 0, A + 1, 0)
        .finish();
    let summary = json!({
        "completeness": { "verdict": "complete", "inferred_frees": 1, "frees_without_alloc": 2 },
        "kinds": {
            "kmalloc": { "allocs": 1, "frees": 0, "inferred_frees": 1, "live_objects": 0, "free_events": 2,
                         "live_is_upper_bound": true, "peak_live_allocated": 8 },
            "cache": { "allocs": 1, "frees": 1, "free_events": 2, "live_is_upper_bound": false },
            "pages": { "live_objects": 1, "frees": 0, "free_events": 1 },
        },
        "total": { "peak_live_allocated": 16, "peak_at": 4 },
        "findings": {
            "free_after_free": { "count": 2, "suspect": 0 }, "inferred_free": { "count": 1, "suspect": 0 },
            "free_without_alloc": { "count": 2 },
        },
    });
    let mismatch = json!({ "rows": [
        { "class": "free_after_free", "alloc_site": null, "free_site": "0xffffffff81000f00", "kind": "cache", "count": 1,
          "first": { "at": 6, "cpu": 0, "address": "0xffff888000001000" } },
        { "class": "free_after_free", "kind": "kmalloc", "count": 1, "first": { "at": 2 } },
        { "class": "inferred_free", "alloc_site": "0xffffffff81000010", "free_site": null, "kind": "kmalloc", "count": 1,
          "suspect": 0, "first": { "at": 4, "address": "0xffff888000001000" } },
    ]});
    assert_all("addresses", work, &[("summary", summary), ("mismatch", mismatch)]);
}

#[test]
fn kinds_and_caches_that_do_not_match() {
    let scenario = |era| {
        Scenario::new(shape(era), 1)
            .cache_alloc(1, 0, SITE, A, (8, 8), "dentry")
            .kfree(2, 0, FREE_SITE, A) // legal from 6.4 on
            .kmalloc(3, 0, SITE, A, (8, 8))
            .cache_free(4, 0, FREE_SITE, A, "kmalloc-8") // never legal
            .cache_alloc(5, 0, SITE, A, (8, 8), "dentry")
            .cache_free(6, 0, FREE_SITE, A, "inode_cache")
    };
    let findings = |illegal: u64, legal: u64| {
        json!({ "pairs": { "paired": 3 }, "findings": {
            "kind_mismatch": { "count": illegal, "suspect": 0 },
            "kind_mismatch_legal": { "count": legal, "suspect": 0 },
            "cache_mismatch": { "count": 1, "suspect": 0 },
        }})
    };
    assert_all("6.18", scenario(Era::V6_18).finish(), &[("summary", findings(1, 1))]);
    let unknown = scenario(Era::V6_18).with(|w| w.kernel = None).finish();
    assert_all("unknown kernel", unknown, &[("summary", findings(1, 1))]);
    let old = scenario(Era::V6_18).with(|w| w.kernel = Some("6.3.13-custom")).finish();
    assert_all("6.3", old, &[("summary", findings(2, 0))]);
    let first = scenario(Era::V6_18).with(|w| w.kernel = Some("6.4")).finish();
    assert_all("6.4", first, &[("summary", findings(1, 1))]);
}

#[test]
fn loss_that_may_explain_a_finding_makes_it_suspect() {
    // CPU 1 lost events between 20 and 40.
    let work = Scenario::new(Shape::plain(), 2)
        .kmalloc(20, 1, SITE, C, (8, 8))
        .lost(1, 40, 5)
        .kfree(45, 1, FREE_SITE, C)
        // Second free, before the loss.
        .kfree(1, 0, FREE_SITE, A)
        .kfree(19, 0, FREE_SITE, A)
        // Reissue that touches the end of the loss.
        .kmalloc(40, 0, SITE, B, (8, 8))
        .kmalloc(42, 0, SITE, B, (8, 8))
        // Reissue after the loss.
        .kmalloc(43, 0, OTHER_SITE, D, (8, 8))
        .kmalloc(44, 0, OTHER_SITE, D, (8, 8))
        // Second free: the first was before the loss, this one is after it.
        .kfree(50, 0, FREE_SITE, A)
        .finish();
    let summary = json!({
        "completeness": { "verdict": "lossy", "lost_events": 5, "gaps": 1 },
        "findings": {
            "free_after_free": { "count": 2, "suspect": 1 }, "inferred_free": { "count": 2, "suspect": 1 },
            "free_without_alloc": { "count": 1 },
        },
    });
    let mismatch = json!({ "rows": [
        { "class": "free_after_free", "kind": "kmalloc", "count": 2, "suspect": 1, "first": { "at": 19 } },
        { "class": "inferred_free", "alloc_site": "0xffffffff81000010", "count": 1, "suspect": 1, "first": { "at": 42 } },
        { "class": "inferred_free", "alloc_site": "0xffffffff81000020", "count": 1, "suspect": 0, "first": { "at": 44 } },
    ]});
    // A row with one inferred free that loss does not explain is an upper bound, one without is not.
    let sites = json!({ "rows": [
        { "call_site": "0xffffffff81000010", "live_is_upper_bound": false, "inferred_frees": 1 },
        { "call_site": "0xffffffff81000020", "live_is_upper_bound": true, "inferred_frees": 1 },
    ]});
    assert_all("suspect", work, &[("summary", summary), ("mismatch", mismatch), ("sites", sites)]);
}

#[test]
fn equal_times_go_by_cpu_and_position() {
    // CPU 0's free comes before CPU 1's allocation, so the object is older than the trace and stays live.
    let work = Scenario::new(Shape::plain(), 2).kmalloc(5, 1, SITE, A, (8, 8)).kfree(5, 0, FREE_SITE, A).finish();
    let summary = json!({ "findings": { "free_without_alloc": { "count": 1 } }, "pairs": { "paired": 0 },
                          "kinds": { "kmalloc": { "live_objects": 1 } } });
    assert_all("ties", work, &[("summary", summary)]);
}

#[test]
fn nodes_count_where_they_are_known_of_every_cpu() {
    let scenario = || {
        Scenario::new(Shape::plain(), 3)
            .kmalloc(1, 0, SITE, A, (8, 8))
            .kfree(2, 1, FREE_SITE, A)
            .kmalloc(3, 0, SITE, A, (8, 8))
            .kfree(4, 2, FREE_SITE, A)
    };
    let with = |nodes: &[(u32, u32)]| scenario().with(|w| w.nodes = nodes.to_vec()).finish();
    let summary = |nodes: Value| json!({ "pairs": { "cross_cpu": 2, "cross_node": nodes } });
    assert_all("all", with(&[(0, 0), (1, 0), (2, 1)]), &[("summary", summary(json!(1)))]);
    assert_all("some", with(&[(0, 0), (2, 1)]), &[("summary", summary(json!(null)))]);
}

#[test]
fn a_missing_or_unfinished_file_is_a_gap() {
    let scenario = || {
        Scenario::new(Shape::plain(), 2).kmalloc(1, 0, SITE, A, (8, 8)).kmalloc(9, 0, SITE, A, (8, 8)).kmalloc(
            5,
            1,
            SITE,
            B,
            (8, 8),
        )
    };
    let mut cut = scenario().finish();
    cut.cpus[1].cut = true;
    let gap = |from| StreamItem::Gap(Gap { from, to: None, cpu: 1, lost: None, cause: GapCause::Cut });
    cut.cpus[1].items.push(gap(Some(5)));
    let completeness =
        json!({ "verdict": "truncated", "gaps": 1, "truncated_files": ["cpu1.out"], "missing_cpus": [] });
    let summary =
        json!({ "completeness": completeness, "findings": { "inferred_free": { "count": 1, "suspect": 1 } } });
    assert_all("cut", cut, &[("summary", summary)]);
    let mut missing = scenario().finish();
    missing.cpus[1].missing = true;
    missing.cpus[1].items = vec![gap(None)];
    let completeness = json!({ "verdict": "truncated", "gaps": 1, "truncated_files": [], "missing_cpus": [1] });
    let summary =
        json!({ "completeness": completeness, "findings": { "inferred_free": { "count": 1, "suspect": 1 } } });
    assert_all("missing", missing, &[("summary", summary)]);
}

/// Makes thread 77 the recorder's.
fn own_threads(workload: &mut Workload) {
    workload.own_threads = Some(vec![77]);
}

const SOFT_IRQ: u8 = 0x10;
const HARD_IRQ: u8 = 0x08;

/// Objects of the recorder's thread 77, of interrupts on it, and of other threads, freed by either.
fn own_and_other_objects() -> Scenario {
    Scenario::new(Shape::plain(), 2)
        .kmalloc(10, 0, OTHER_SITE, A, (100, 128))
        // The recorder's own: one is freed by another thread, one stays, one fails, one is too small.
        .thread(77, 0x01)
        .kmalloc(20, 1, SITE, B, (1000, 1024))
        .kmalloc(21, 1, SITE, C, (2000, 2048))
        .kmalloc(22, 1, SITE, 0, (50, 64))
        .page_alloc(23, 1, 0x77, 4096)
        .kmalloc(24, 1, SITE, D, (8, 4))
        // The first object, freed by the recorder.
        .kfree(30, 1, FREE_SITE, A)
        // Interrupts on the recorder's thread allocate for others.
        .thread(77, HARD_IRQ)
        .kmalloc(40, 1, OTHER_SITE, A, (200, 256))
        .thread(77, SOFT_IRQ | 0x01)
        .cache_alloc(41, 1, OTHER_SITE, A + 0x80, (64, 64), "dentry")
        .thread(77, 0x40)
        .page_alloc(42, 1, 0x78, 8192)
        // Frees of the recorder's object, by an interrupt, and of another object, by another thread.
        .thread(77, HARD_IRQ)
        .kfree(50, 1, FREE_SITE, B)
        .thread(7, 0)
        .kfree(60, 0, FREE_SITE, A)
        // No object is live at these addresses, so a free by the recorder counts as any.
        .thread(77, 0)
        .kfree(70, 1, FREE_SITE, A)
        .kfree(71, 1, FREE_SITE, A + 0x1000_0000)
        .kfree(72, 1, FREE_SITE, 0)
        // Reuse of the recorder's address, and the recorder's reuse of another's.
        .thread(7, 0)
        .kmalloc(80, 0, OTHER_SITE, C, (10, 16))
        .thread(77, 0)
        .cache_alloc(90, 1, SITE, A + 0x80, (64, 64), "dentry")
        .with(own_threads)
}

#[test]
fn objects_of_the_recorder_itself_are_left_out_and_interrupts_on_its_threads_are_not() {
    let summary = json!({
        "completeness": { "verdict": "complete", "inferred_frees": 2, "frees_without_alloc": 1 },
        "trace": { "own_threads": [77] },
        "events": { "total": 17, "used": 17, "other": 0 },
        "kinds": {
            "kmalloc": { "allocs": 3, "failed_allocs": 0, "frees": 2, "inferred_frees": 0, "live_objects": 1,
                         "requested": 310, "allocated": 400, "free_events": 4, "peak_live_allocated": 256 },
            "cache": { "allocs": 1, "frees": 0, "inferred_frees": 1, "live_objects": 0, "free_events": 0 },
            "pages": { "allocs": 1, "live_objects": 1, "allocated": 8192 },
        },
        "total": { "allocs": 4, "peak_live_allocated": 320, "peak_at": 41 },
        "pairs": { "paired": 2, "cross_cpu": 2 },
        "own": { "allocs": 5, "allocated": 1024 + 2048 + 4096 + 4 + 64 },
        "findings": {
            "inferred_free": { "count": 1, "suspect": 0 }, "free_after_free": { "count": 1, "suspect": 0 },
            "free_without_alloc": { "count": 1 }, "null_free": { "count": 1 }, "short_alloc": { "count": 0 },
            "failed_alloc": { "count": 0 },
        },
    });
    let sites = json!({ "rows": [
        { "call_site": "0xffffffff81000020", "kind": "kmalloc", "allocs": 3 },
        { "call_site": "0xffffffff81000020", "kind": "cache", "allocs": 1 },
        { "call_site": "0x0", "kind": "pages", "allocs": 1 },
    ]});
    let live = json!({ "rows": [
        { "call_site": "0x0", "kind": "pages", "oldest": 42, "live_objects": 1, "live_allocated": 8192 },
        { "call_site": "0xffffffff81000020", "kind": "kmalloc", "oldest": 80, "live_objects": 1 },
    ]});
    let objects = json!({ "rows": [{ "at": 42, "pid": 77, "kind": "pages" }, { "at": 80, "pid": 7 }] });
    let view = Asked::view;
    let views = [
        (view("summary"), &summary),
        (view("sites"), &sites),
        (view("live"), &live),
        (view("live").objects(), &objects),
    ];
    assert_asked_by_hand("left out", own_and_other_objects().finish(), &views);
}

#[test]
fn objects_of_the_recorder_itself_are_shown_on_request() {
    let dir = Directory::new(&trace_dir(&own_and_other_objects().finish(), 1));
    let report = |options: &[&str]| {
        json(&run_to(0, "kmemtrace-report", &[options, &["--format", "json"]].concat(), &[dir.path()]))
    };
    let shown = json!({
        "kinds": {
            "kmalloc": { "allocs": 6, "failed_allocs": 1, "frees": 3, "inferred_frees": 1, "live_objects": 2 },
            "cache": { "allocs": 2, "inferred_frees": 1, "live_objects": 1 }, "pages": { "allocs": 2, "live_objects": 2 },
        },
        "own": { "allocs": 5, "allocated": 7236 },
        "findings": { "inferred_free": { "count": 2 }, "short_alloc": { "count": 1 }, "failed_alloc": { "count": 1 } },
    });
    assert_document("shown", &shown, &report(&["summary", "--own"]));
    // A filter does not change the recorder's own figures; a window does.
    let filtered = json!({ "total": { "allocs": 0 }, "own": { "allocs": 5, "allocated": 7236 } });
    assert_document("filtered", &filtered, &report(&["summary", "--size", "1000..2000"]));
    let filtered = json!({ "total": { "allocs": 2 }, "own": { "allocs": 5, "allocated": 7236 } });
    assert_document("both", &filtered, &report(&["summary", "--size", "1000..2000", "--own"]));
    let window = json!({ "own": { "allocs": 2, "allocated": 4100 }, "events": { "total": 3 } });
    assert_document("window", &window, &report(&["summary", "--time", "0.000000022,0.000000024"]));

    let table = |options: &[&str]| {
        String::from_utf8(run_to(0, "kmemtrace-report", &[options, &["--format", "table"]].concat(), &[dir.path()]))
            .unwrap()
    };
    let line = "  left out             5 allocations (7.07 KiB) of the recorder itself (--own shows them)\n";
    assert!(table(&["summary"]).contains(line), "{}", table(&["summary"]));
    let line = "  counted above        5 allocations (7.07 KiB) of the recorder itself\n";
    assert!(table(&["summary", "--own"]).contains(line), "{}", table(&["summary", "--own"]));
    // Filters may hide the recorder's objects from the figures above this line.
    let line = "  not left out         5 allocations (7.07 KiB) of the recorder itself, before filters\n";
    let filtered = table(&["summary", "--own", "--kind", "pages"]);
    assert!(filtered.contains(line), "{filtered}");
    let line =
        "  left out             5 allocations (7.07 KiB) of the recorder itself, before filters (--own shows them)\n";
    let filtered = table(&["summary", "--kind", "pages"]);
    assert!(filtered.contains(line), "{filtered}");
}

#[test]
fn events_tell_their_contexts_and_leave_nothing_out() {
    let work = Scenario::new(Shape::plain(), 1)
        .thread(77, 0x05)
        .kmalloc(1, 0, SITE, A, (8, 8))
        .thread(77, SOFT_IRQ)
        .kmalloc(2, 0, SITE, B, (8, 8))
        .thread(77, HARD_IRQ | SOFT_IRQ)
        .kfree(3, 0, FREE_SITE, A)
        .thread(7, 0x40 | HARD_IRQ)
        .page_free_batched(4, 0, 0x1234)
        .with(own_threads)
        .finish();
    let dir = Directory::new(&trace_dir(&work, 1));
    let contexts: Vec<Value> = events(dir.path()).iter().map(|line| line["context"].clone()).collect();
    assert_eq!(contexts, ["task", "softirq", "hardirq", "nmi"]);
    // Records of a relay channel have no flags.
    let (workload, options, streams) = random_relay(3, 200);
    let dir = Directory::new(&relay_dir(&workload, &options, &streams, 3));
    assert!(events(dir.path()).iter().all(|line| line.get("context").is_none()));
}

/// Pages and the objects that they hold have peaks at different times: a view shows the moment of the kind that it has.
#[test]
fn the_moment_of_the_peak_is_that_of_the_shown_kind() {
    let work = Scenario::new(Shape::plain(), 1)
        .kmalloc(1, 0, SITE, A, (64, 64))
        .kfree(2, 0, FREE_SITE, A)
        .page_alloc(3, 0, 0x1234, 4096)
        .finish();
    let dir = Directory::new(&trace_dir(&work, 1));
    for (view, live) in [
        (&["tree"][..], 64),
        (&["tree", "--kind", "pages"], 4096),
        (&["tree", "--by", "site"], 4096),
        (&["tree", "--by", "site", "--kind", "kmalloc"], 64),
    ] {
        let arguments = [view, &["--at", "peak", "--format", "json"]].concat();
        let document = json(&run_to(0, "kmemtrace-report", &arguments, &[dir.path()]));
        assert_eq!(document["root"]["live_allocated"], live, "{view:?}");
    }
}

#[test]
fn an_input_without_the_recorders_threads_leaves_nothing_out() {
    let scenario = || Scenario::new(Shape::plain(), 1).thread(77, 0).kmalloc(1, 0, SITE, A, (8, 8));
    let untold = json!({ "trace": { "own_threads": null }, "own": null, "total": { "allocs": 1 } });
    assert_all("an old recording", scenario().finish(), &[("summary", untold.clone())]);
    let nothing = json!({ "trace": { "own_threads": [77] }, "own": { "allocs": 0, "allocated": 0 } });
    let others = Scenario::new(Shape::plain(), 1).kmalloc(1, 0, SITE, A, (8, 8)).with(own_threads).finish();
    let dir = Directory::new(&trace_dir(&others, 1));
    assert_all("nothing to leave out", others, &[("summary", nothing)]);
    let table = run_to(0, "kmemtrace-report", &["summary", "--format", "table"], &[dir.path()]);
    assert!(!String::from_utf8(table).unwrap().contains("left out"));
    // A damaged list of threads is reported as damage.
    let damaged = scenario().with(|workload| workload.own_threads = Some(vec![77, -1])).finish();
    let dir = Directory::new(&trace_dir(&damaged, 1));
    let found = json(&printed("summary", dir.path()));
    assert_document("damaged", &untold, &found);
    assert_eq!(found["completeness"]["verdict"], "corrupt");
    let output = run("kmemtrace-check", &[], &[dir.path()]);
    let told = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(3), "{told}");
    assert!(told.contains("OWN_THREADS is no list of thread ids"), "{told}");
}

/// Compares every view of a trace, at any number of threads and any window size, with the bytes that one thread prints
/// by default, and those with the reference.
fn assert_any_cut(what: &str, dir: &Directory, known: Known, seed: u64) {
    assert_views(what, dir.path(), &known);
    let random = &mut Random::new(seed);
    let grouped: Vec<Asked> = (0..4).map(|_| Asked::random(random)).chain([Asked::view("live").objects()]).collect();
    assert_asked(what, dir.path(), &known, &grouped);
    for asked in DOCUMENTS.into_iter().map(Asked::view).chain(grouped) {
        let alone = printed_as(&asked, dir.path());
        let view = asked.arguments();
        let view: Vec<&str> = view.iter().map(String::as_str).collect();
        for jobs in (1..=8u64).step_by(runs::step(3)) {
            // Window sizes from one event to more than the trace has.
            let window = [1, 2, 7, 40, 300][(seed + jobs) as usize % 5];
            let sized = [0, 5, 1000][(seed + jobs) as usize % 3];
            let [jobs, window, sized] = [jobs, window, sized].map(|n| n.to_string());
            let options = [
                &view[..],
                &["--format", "json", "-j", &jobs],
                &["--window-events", &window, "--sized-classes", &sized],
            ]
            .concat();
            let cut = run_to(0, "kmemtrace-report", &options, &[dir.path()]);
            assert!(alone == cut, "{what}, {view:?}, -j {jobs}, windows of {window}, {sized} sized classes: {:?}", {
                differences(&json(&alone), &json(&cut))
            });
        }
    }
    let known = Known { shows_own: true, ..known };
    for (jobs, (view, document)) in (1..).zip(expected(&known).0) {
        let options = [view, "--format", "json", "--own", "--window-events", "7", "-j", &format!("{jobs}")];
        let shown = run_to(0, "kmemtrace-report", &options, &[dir.path()]);
        views::assert_document(&format!("{what}, {view} --own"), (view, document), &shown);
    }
}

#[test]
fn any_number_of_threads_prints_the_same() {
    for seed in seeds(500..508) {
        let (options, workload) = random_workload(seed, 700);
        let dir = Directory::new(&trace_dir(&workload, seed));
        assert_any_cut(&format!("seed {seed}, {:?}", options.shape), &dir, Known::of_workload(workload), seed);
    }
    for seed in seeds(500..502) {
        let (workload, options, streams) = random_relay(seed, 500);
        let dir = Directory::new(&relay_dir(&workload, &options, &streams, seed));
        let known = Known::of_relay(workload, &options, &streams, false, None);
        assert_any_cut(&format!("seed {seed}, {options:?}"), &dir, known, seed);
    }
}

#[test]
fn groupings_of_traces_equal_the_reference_and_add_up() {
    for seed in seeds(520..526) {
        let (options, workload) = random_workload(seed, 400);
        let dir = Directory::new(&trace_dir(&workload, seed));
        let what = format!("seed {seed}, {:?}", options.shape);
        assert_asked(&what, dir.path(), &Known::of_workload(workload), &groupings());
        assert_groupings_add_up(&what, dir.path());
    }
    for seed in seeds(520..522) {
        let (workload, options, streams) = random_relay(seed, 400);
        let dir = Directory::new(&relay_dir(&workload, &options, &streams, seed));
        let known = Known::of_relay(workload, &options, &streams, false, None);
        assert_asked(&format!("seed {seed}, {options:?}"), dir.path(), &known, &groupings());
        assert_groupings_add_up(&format!("seed {seed}, {options:?}"), dir.path());
    }
}

/// Memory that grows in the last tenth of a recording of 100 ns, and some that does not.
fn growing() -> Scenario {
    Scenario::new(Shape::plain(), 1)
        .kmalloc(0, 0, SITE, A, (100, 128))
        .kmalloc(50, 0, SITE, B, (100, 128))
        .kfree(60, 0, FREE_SITE, A)
        .kmalloc(80, 0, OTHER_SITE, C, (64, 64))
        .kmalloc(95, 0, SITE, D, (500, 512))
        .kfree(100, 0, FREE_SITE, C)
}

#[test]
fn growth_is_counted_in_slices_of_a_power_of_two() {
    // 100 ns in at most 64 slices: 51 of 2 ns, of which the 45th ends before nine tenths.
    let live = json!({ "rows": [
        { "call_site": "0xffffffff81000010", "live_objects": 2, "live_allocated": 640, "oldest": 50, "median": 50, "grew": 512 },
    ]});
    assert_asked_by_hand("live", growing().finish(), &[(Asked::view("live"), &live)]);
    let dir = Directory::new(&trace_dir(&growing().finish(), 1));
    let growth = json(&printed("growth", dir.path()));
    assert_eq!(growth["slices"].as_array().unwrap().len(), 51, "{growth}");
    let at = |row: &Value, slice: usize| (row["live_allocated"][slice].clone(), row["allocs"][slice].clone());
    for (slice, live, allocs) in
        [(0, 128, 1), (24, 128, 0), (25, 256, 1), (30, 128, 0), (40, 192, 1), (47, 704, 1), (50, 640, 0)]
    {
        assert_eq!(at(&growth["total"], slice), (json!(live), json!(allocs)), "slice {slice}: {growth}");
    }
    assert_eq!(growth["rows"][0]["call_site"], "0xffffffff81000010", "most growth first");
}

/// Document that the program prints for `compare` with options.
fn compared(options: &[&str], traces: &[&Path]) -> Vec<u8> {
    run_to(0, "kmemtrace-report", &[&["compare", "--format", "json"], options].concat(), traces)
}

#[test]
fn a_comparison_says_what_changed() {
    let before = Scenario::new(Shape::plain(), 1)
        .kmalloc(0, 0, SITE, A, (100, 128))
        .kmalloc(1_000_000_000, 0, OTHER_SITE, B, (64, 64))
        .finish();
    let after = Scenario::new(Shape::plain(), 1)
        .kmalloc(0, 0, SITE, A, (100, 128))
        .kmalloc(5, 0, SITE, B, (100, 128))
        .kmalloc(6, 0, SITE, C, (100, 128))
        .kfree(500_000_000, 0, FREE_SITE, B)
        .finish();
    let dirs = [before, after].map(|work| Directory::new(&trace_dir(&work, 1)));
    let paths: Vec<&Path> = dirs.iter().map(Directory::path).collect();
    let found = json(&compared(&[], &paths));
    let total = json!({
        "before": { "live_allocated": 192, "allocs": 2 }, "after": { "live_allocated": 256, "allocs": 3 },
        "change": { "live_allocated": 64, "allocated": 192, "allocs": 1 },
        "per_second": { "allocs": [2.0, 6.0], "allocated": [192.0, 768.0] },
    });
    assert_document(
        "total",
        &json!({ "total": total, "before": { "seconds": 1.0 }, "after": { "seconds": 0.5 } }),
        &found,
    );
    // A gate fires where live bytes grew by more, here by a third.
    for (percent, status) in [("33", 1), ("34", 0), ("0", 1)] {
        run_to(status, "kmemtrace-report", &["compare", "--fail-over", percent], &paths);
    }
    run_to(0, "kmemtrace-report", &["compare", "--fail-over", "0"], &[paths[1], paths[0]]);
}

#[test]
fn comparisons_of_traces_equal_the_reference() {
    for seed in seeds(530..536) {
        let traces = [seed, seed + 1000].map(|seed| random_workload(seed, 400).1);
        let dirs = traces.each_ref().map(|work| Directory::new(&trace_dir(work, seed)));
        let paths: Vec<&Path> = dirs.iter().map(Directory::path).collect();
        let known = traces.map(Known::of_workload);
        let pairs = known.each_ref().map(pairs::pairs);
        for (words, keys) in [(&[][..], &BY_FUNCTION), (&["--by", "cache"], &[Key::Cache])] {
            let document = compare([(&known[0], &pairs[0]), (&known[1], &pairs[1])], keys, false);
            views::assert_document(&format!("seed {seed}, {words:?}"), ("compare", document), &compared(words, &paths));
        }
    }
}

#[test]
fn a_window_holds_what_was_allocated_before_it() {
    // One object of SITE stays from the first window, one is freed in the second; OTHER_SITE has one in each.
    let work = Scenario::new(Shape::plain(), 1)
        .kmalloc(1_000, 0, SITE, A, (100, 128))
        .kmalloc(2_000, 0, SITE, B, (100, 128))
        .kmalloc(3_000, 0, OTHER_SITE, C, (64, 64))
        .kfree(11_000, 0, FREE_SITE, B)
        .kmalloc(12_000, 0, OTHER_SITE, D, (64, 64))
        .finish();
    let dir = Directory::new(&trace_dir(&work, 1));
    let windows = ["--before", ",0.000005000", "--after", "0.000010000,"];
    for by in [&[][..], &["--by", "cache"]] {
        for jobs in ["1", "2"] {
            let found = json(&compared(&[&windows[..], by, &["-j", jobs]].concat(), &[dir.path()]));
            let total = json!({
                "before": { "live_allocated": 320, "live_objects": 3, "allocs": 3, "frees": 0 },
                "after": { "live_allocated": 256, "live_objects": 3, "allocs": 1, "allocated": 64, "frees": 1 },
                "change": { "live_allocated": -64 },
            });
            assert_document("total", &json!({ "total": total }), &found);
        }
    }
    let found = json(&compared(&windows, &[dir.path()]));
    let row =
        |site: &str| found["rows"].as_array().unwrap().iter().find(|row| row["call_site"] == site).cloned().unwrap();
    let held = row(&format!("{SITE:#x}"));
    assert_eq!(
        (&held["after"]["live_allocated"], &held["after"]["allocs"], &held["after"]["frees"]),
        (&json!(128), &json!(0), &json!(1))
    );
    assert!(held["after"]["peak_live_allocated"].is_null() && held["before"]["peak_live_allocated"] == 256, "{held}");
    let whole = json(&run_to(0, "kmemtrace-report", &["sites", "--format", "json"], &[dir.path()]));
    let live: u64 = whole["rows"].as_array().unwrap().iter().map(|row| row["live_allocated"].as_u64().unwrap()).sum();
    assert_eq!(found["total"]["after"]["live_allocated"], live, "all that the recording has seen");
}

#[test]
fn a_window_has_rows_of_any_key() {
    let sample = data("amd64-6.1");
    // The second window ends with the recording, so what is live there is live in the whole.
    let windows = ["--before", ",50%", "--after", "50%,"];
    for (key, names) in
        [("task", &["pid", "comm"][..]), ("module", &["module", "module_known"]), ("cgroup", &["cgroup"])]
    {
        let name = |row: &Value| names.iter().chain(&["kind"]).map(|name| row[*name].to_string()).collect::<Vec<_>>();
        let found = json(&compared(&[&windows[..], &["--by", key]].concat(), &[&sample]));
        assert_eq!(found["query"]["by"], json!([key]));
        let after =
            found["rows"].as_array().unwrap().iter().map(|row| (name(row), row["after"]["live_allocated"].as_u64()));
        let whole = json(&run_to(0, "kmemtrace-report", &["sites", "--by", key, "--format", "json"], &[&sample]));
        let rows = whole["rows"].as_array().unwrap();
        let live = rows.iter().map(|row| (name(row), row["live_allocated"].as_u64()));
        let [after, live] = [after.collect::<BTreeMap<_, _>>(), live.collect::<BTreeMap<_, _>>()];
        assert_eq!(after, live, "{key}");
        let before = found["rows"].as_array().unwrap().iter().filter(|row| row["before"]["allocs"].as_u64() > Some(0));
        assert!(before.count() > 0, "{key}: rows of both windows");
    }
}

#[test]
fn a_report_beyond_its_memory_limit_stops_with_a_line() {
    let (_, workload) = random_workload(1, 700);
    let dir = Directory::new(&trace_dir(&workload, 1));
    for (jobs, view) in [("1", "summary"), ("3", "sites"), ("2", "live")] {
        let output = run("kmemtrace-report", &[view, "-j", jobs, "--max-memory", "1M"], &[dir.path()]);
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), output.stdout.len(), told.lines().count()), (Some(2), 0, 1), "{told}");
        assert!(told.contains("1.00 MiB of --max-memory") && told.contains("allow more"), "{told}");
    }
    let whole = run_to(0, "kmemtrace-report", &["summary", "--format", "json", "--max-memory", "1G"], &[dir.path()]);
    assert!(whole == printed("summary", dir.path()));
}

#[test]
fn a_line_that_ends_a_run_tells_how_to_allow_more() {
    let (_, workload) = random_workload(1, 700);
    let dir = Directory::new(&trace_dir(&workload, 1));
    let output = run("kmemtrace-report", &["sites", "--max-memory", "3M"], &[dir.path()]);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("allow more with --max-memory 8M, or take less"), "{told}");
}

#[test]
fn rows_take_no_memory_however_many_they_are() {
    const SITES: u64 = 30_000;
    let each = |work: Scenario, n| work.kmalloc(n + 1, 0, SITE + n * 16, A + n * 64, (60 + n % 5, 64));
    let work = (0..SITES).fold(Scenario::new(Shape::plain(), 1), each);
    let dir = Directory::new(&trace_dir(&work.finish(), 1));
    for (view, format) in
        [("sites", "json"), ("sites", "csv"), ("sites", "table"), ("live", "table"), ("growth", "csv")]
    {
        let asked = [view, "--format", format, "--max-memory", "112M", "--no-index"];
        let (rows, peak) = measured(&asked, dir.path());
        assert!(rows as u64 >= SITES, "{view}, {format}: {rows} lines");
        assert!(peak < 112 << 10, "{view}, {format}: {peak} KiB");
    }
}

/// Lines on a report's standard output, and the greatest memory of the report, in KiB. Lines are counted while they
/// arrive.
fn measured(arguments: &[&str], trace: &Path) -> (usize, u64) {
    let mut command = Command::new(program("kmemtrace-report"));
    let mut child = command.args(arguments).arg(trace).stdout(Stdio::piped()).spawn().unwrap();
    let status = format!("/proc/{}/status", child.id());
    let mut stdout = child.stdout.take().unwrap();
    // The program waits with the rest of its first buffer until the first page is read, which starts with one byte.
    rustix::pipe::fcntl_setpipe_size(&stdout, 4096).unwrap();
    let (mut lines, mut peak, mut buffer) = (0, 0, vec![0; 1]);
    loop {
        let len = stdout.read(&mut buffer).unwrap();
        // The program may have ended before its status is read; then the last value counts.
        let text = fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB"));
        peak = line.map_or(peak, |kilobytes| kilobytes.trim().parse().unwrap());
        if len == 0 {
            break;
        }
        lines += buffer[..len].iter().filter(|&&byte| byte == b'\n').count();
        buffer.resize(1 << 16, 0);
    }
    assert!(child.wait().unwrap().success(), "{arguments:?}");
    assert!(peak > 0, "the memory of the report was never read");
    (lines, peak)
}

#[test]
fn a_file_may_be_named_after_a_cpu_that_no_machine_has() {
    let (_, _, streams) = random_relay(3, 200);
    let bytes = streams.cpus.iter().map(RelayStream::bytes).max_by_key(Vec::len).unwrap();
    let dir = Directory::new(&[("cpu70000".to_owned(), bytes)]);
    for view in DOCUMENTS.iter().filter(|view| **view != "cross") {
        let said = document(&[view], dir.path());
        assert_eq!(said["completeness"]["missing_cpus"].as_array().unwrap().len(), 8192, "{view}");
    }
    let table = run_to(0, "kmemtrace-report", &["cross"], &[dir.path()]);
    let table = String::from_utf8_lossy(&table);
    let first = table.lines().find(|line| line.contains("allocated \\ freed")).unwrap();
    assert_eq!(first.split_whitespace().next_back(), Some("cpu70000"), "{table}");
    assert!(table.contains("\n(8,192 CPUs without pairs are left out; --format json has all)\n"), "{table}");
}

#[test]
fn a_matrix_of_thousands_of_cpus_takes_little_memory() {
    const CPUS: u32 = 2048;
    let mut options = Options::plain(Shape::plain(), CPUS, 500);
    options.missing = (4..CPUS).collect();
    let dir = Directory::new(&trace_dir(&workload(1, &options), 1));
    let (lines, peak) = measured(&["cross", "--format", "json"], dir.path());
    assert!(lines > (CPUS * CPUS) as usize, "{lines} lines");
    assert!(peak < 64 << 10, "{peak} KiB");
    let (lines, peak) = measured(&["cross"], dir.path());
    assert!(lines < 100 && peak < 64 << 10, "{lines} lines, {peak} KiB");
}
