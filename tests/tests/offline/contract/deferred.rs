//! Deferred frees, and frees and allocations in bulk, as the recorder's probe events tell of them.

use super::*;

const BULK_SITE: u64 = 0xffff_ffff_8100_0b00;
const RCU_SITE: u64 = 0xffff_ffff_8100_0c00;

/// Addresses of 64 objects, all that a record has room for.
fn many() -> Vec<u64> {
    (1..=64).map(|n| 0xffff_8880_0010_0000 + 0x100 * n).collect()
}

#[test]
fn a_deferred_free_ends_an_object_of_either_kind() {
    let work = Scenario::new(Shape::plain(), 2)
        .kmalloc(10, 0, SITE, A, (100, 128))
        .cache_alloc(20, 0, OTHER_SITE, B, (200, 256), "dentry")
        .kvfree_rcu(30, 1, RCU_SITE, A)
        .kvfree_rcu(40, 0, RCU_SITE, B)
        .kvfree_rcu(50, 0, RCU_SITE, 0)
        .kvfree_rcu(50, 0, RCU_SITE, 16)
        .finish();
    let kind = |crossed| json!({ "frees": 1, "free_events": 1, "live_objects": 0, "cross_cpu": crossed });
    let summary = json!({
        "trace": { "deferred": "seen" },
        "events": {
            "total": 6, "used": 6, "other": 0, "completions": 0, "bulk_unknown": 0, "unseen_frees": 0, "unseen_allocs": 0,
        },
        "kinds": { "kmalloc": kind(1), "cache": kind(0) },
        "pairs": { "paired": 2, "cross_cpu": 1, "cross_cpu_bytes": 128 },
        "findings": {
            "kind_mismatch": { "count": 0 }, "kind_mismatch_legal": { "count": 0 }, "cache_mismatch": { "count": 0 },
            "free_without_alloc": { "count": 0 }, "free_after_free": { "count": 0 }, "null_free": { "count": 2 },
        },
    });
    assert_all("deferred", work, &[("summary", summary), ("mismatch", json!({ "rows": [] }))]);
}

#[test]
fn the_first_free_of_a_given_up_address_completes_it() {
    let work = Scenario::new(Shape::plain(), 1)
        .kmalloc(10, 0, SITE, A, (8, 8))
        .kmalloc(11, 0, SITE, B, (8, 8))
        .kmalloc(12, 0, SITE, C, (8, 8))
        .kvfree_rcu(20, 0, RCU_SITE, A)
        .kvfree_rcu(21, 0, RCU_SITE, B)
        .kvfree_rcu(22, 0, RCU_SITE, C)
        .kfree(30, 0, FREE_SITE, A)
        .cache_free(31, 0, FREE_SITE, B, "dentry")
        .free_bulk(32, 0, BULK_SITE, (1, &[C]), None)
        // The addresses are not given up any more.
        .kfree(40, 0, FREE_SITE, A)
        .free_bulk(41, 0, BULK_SITE, (2, &[B, C]), None)
        .finish();
    let summary = json!({
        "events": { "total": 11, "used": 11, "completions": 3, "bulk_unknown": 2 },
        "kinds": { "kmalloc": { "free_events": 4, "frees": 3 }, "cache": { "free_events": 0 } },
        "pairs": { "paired": 3 },
        "findings": {
            "free_after_free": { "count": 1, "suspect": 0 }, "free_without_alloc": { "count": 0 },
            "kind_mismatch": { "count": 0 }, "cache_mismatch": { "count": 0 },
        },
    });
    assert_all("completions", work, &[("summary", summary)]);
}

#[test]
fn an_allocation_ends_the_state_of_a_given_up_address() {
    let work = Scenario::new(Shape::plain(), 1)
        .kmalloc(10, 0, SITE, A, (8, 8))
        .kvfree_rcu(20, 0, RCU_SITE, A)
        .kmalloc(30, 0, SITE, A, (8, 8))
        .kfree(40, 0, FREE_SITE, A)
        .kfree(50, 0, FREE_SITE, A)
        .finish();
    let summary = json!({
        "events": { "completions": 0 },
        "kinds": { "kmalloc": { "allocs": 2, "frees": 2, "inferred_frees": 0, "free_events": 3, "live_is_upper_bound": false } },
        "findings": { "inferred_free": { "count": 0 }, "free_after_free": { "count": 1 } },
    });
    assert_all("given up and allocated", work, &[("summary", summary)]);
}

#[test]
fn a_deferred_free_without_an_object_is_a_finding_of_kmalloc() {
    let work = Scenario::new(Shape::plain(), 1)
        // Older than the recording: a deferred free gives it up all the same.
        .kvfree_rcu(10, 0, RCU_SITE, A)
        .cache_free(15, 0, FREE_SITE, A, "dentry")
        .cache_alloc(20, 0, SITE, B, (8, 8), "dentry")
        .kvfree_rcu(30, 0, RCU_SITE, B)
        .kvfree_rcu(40, 0, RCU_SITE, B)
        .cache_alloc(50, 0, SITE, C, (8, 8), "dentry")
        .cache_free(60, 0, FREE_SITE, C, "dentry")
        .kvfree_rcu(70, 0, RCU_SITE, C)
        .finish();
    let summary = json!({
        "events": { "completions": 1 },
        "kinds": { "kmalloc": { "free_events": 3 }, "cache": { "free_events": 2, "frees": 2 } },
        "findings": { "free_without_alloc": { "count": 1 }, "free_after_free": { "count": 2 } },
    });
    let mismatch = json!({ "rows": [{
        "class": "free_after_free", "free_site": "0xffffffff81000c00", "kind": "kmalloc", "count": 2,
        "first": { "at": 40, "address": "0xffff888000002000" },
    }] });
    assert_all("without an object", work, &[("summary", summary), ("mismatch", mismatch)]);
}

#[test]
fn addresses_freed_in_bulk_are_pairs_completions_or_not_known() {
    let work = Scenario::new(Shape::plain(), 2)
        .cache_alloc(10, 0, SITE, A, (200, 256), "dentry")
        .kmalloc(11, 0, SITE, B, (100, 128))
        .kmalloc(12, 0, OTHER_SITE, C, (100, 128))
        .kvfree_rcu(20, 0, RCU_SITE, C)
        // A null pointer is an address like another one.
        .free_bulk(30, 1, BULK_SITE, (5, &[A, B, C, D, 0]), Some("inode_cache"))
        .free_bulk(40, 1, BULK_SITE, (1, &[A]), Some("inode_cache"))
        .kfree(50, 1, FREE_SITE, B)
        .free_bulk(60, 1, BULK_SITE, (0, &[]), Some("inode_cache"))
        .finish();
    let summary = json!({
        "events": { "total": 8, "used": 8, "completions": 1, "bulk_unknown": 3, "unseen_frees": 0 },
        "kinds": {
            "kmalloc": { "frees": 2, "free_events": 3, "cross_cpu": 1 }, "cache": { "frees": 1, "free_events": 1, "cross_cpu": 1 },
        },
        "pairs": { "paired": 3, "cross_cpu": 2, "cross_cpu_bytes": 384 },
        "findings": {
            "free_after_free": { "count": 1 }, "free_without_alloc": { "count": 0 }, "null_free": { "count": 0 },
            "kind_mismatch": { "count": 0 }, "cache_mismatch": { "count": 0 },
        },
    });
    assert_all("freed in bulk", work, &[("summary", summary)]);
}

#[test]
fn addresses_allocated_in_bulk_are_objects_of_their_cache() {
    let work = Scenario::new(Shape::plain(), 1)
        .alloc_bulk(10, 0, BULK_SITE, (3, &[C, A, B]), "maple_node")
        .cache_free(20, 0, FREE_SITE, A, "maple_node")
        .alloc_bulk(30, 0, BULK_SITE, (8, &[]), "maple_node")
        .finish();
    let summary = json!({
        "events": { "total": 3, "used": 3, "unseen_allocs": 0 },
        "kinds": { "cache": {
            "allocs": 3, "failed_allocs": 1, "requested": 600, "allocated": 768, "live_objects": 2, "peak_live_allocated": 768,
        } },
        "findings": { "failed_alloc": { "count": 1 }, "cache_mismatch": { "count": 0 } },
    });
    let sites = json!({ "rows": [
        { "call_site": "0xffffffff81000b00", "kind": "cache", "allocs": 3, "failed_allocs": 1, "frees": 1 },
    ] });
    let caches = json!({ "rows": [{ "cache": "maple_node", "cache_from": "event", "allocs": 3 }] });
    let object =
        |address| json!({ "address": address, "call_site": "0xffffffff81000b00", "cache": "maple_node", "at": 10 });
    let objects = json!({ "rows": [object("0xffff888000003000"), object("0xffff888000002000")] });
    let view = Asked::view;
    let views = [
        (view("summary"), &summary),
        (view("sites"), &sites),
        (view("caches"), &caches),
        (view("live").objects(), &objects),
    ];
    let dir = Directory::new(&trace_dir(&work, 1));
    assert_asked_by_hand("allocated in bulk", work, &views);
    let live = json(&run_to(0, "kmemtrace-report", &["live", "--objects", "--format", "json"], &[dir.path()]));
    let order: Vec<&Value> = live["rows"].as_array().unwrap().iter().map(|row| &row["address"]).collect();
    assert_eq!(order, ["0xffff888000003000", "0xffff888000002000"], "in the order of the record");
}

#[test]
fn objects_beyond_the_room_of_a_record_are_counted() {
    let many = many();
    let work = Scenario::new(Shape::plain(), 1)
        .alloc_bulk(10, 0, BULK_SITE, (70, &many), "maple_node")
        .cache_alloc(11, 0, SITE, A, (8, 8), "dentry")
        .free_bulk(20, 0, BULK_SITE, (1000, &many), None)
        .finish();
    let summary = json!({
        "events": { "total": 3, "completions": 936, "bulk_unknown": 0, "unseen_allocs": 6, "unseen_frees": 0 },
        "kinds": { "cache": { "allocs": 65, "frees": 64, "live_objects": 1, "live_is_upper_bound": false } },
    });
    assert_all("beyond 64", work, &[("summary", summary)]);
}

/// Two caches and a size class, and frees to a cache of which the record has no addresses.
fn with_unseen_frees(cache: &str) -> Workload {
    let many = many();
    Scenario::new(Shape::plain(), 1)
        .cache_alloc(10, 0, SITE, A, (8, 8), "dentry")
        .cache_alloc(11, 0, OTHER_SITE, B, (8, 8), "maple_node")
        .kmalloc(12, 0, SITE, C, (8, 8))
        .free_bulk(20, 0, BULK_SITE, (66, &many), Some(cache))
        .finish()
}

#[test]
fn unseen_frees_make_bounds_of_the_rows_of_their_cache() {
    for (cache, [dentry, maple]) in [("maple_node", [false, true]), ("inode_cache", [false, false]), ("", [true, true])]
    {
        let work = with_unseen_frees(cache);
        let is_any = dentry || maple;
        let summary = json!({
            "events": { "unseen_frees": 2, "bulk_unknown": 64 },
            "kinds": { "cache": { "live_is_upper_bound": is_any }, "kmalloc": { "live_is_upper_bound": false } },
            "total": { "live_is_upper_bound": is_any },
        });
        let row = |site, kind, bound| json!({ "call_site": site, "kind": kind, "live_is_upper_bound": bound });
        let sites = json!({ "rows": [
            row("0xffffffff81000010", "cache", dentry), row("0xffffffff81000020", "cache", maple),
            row("0xffffffff81000010", "kmalloc", false),
        ] });
        let caches = json!({ "rows": [
            { "cache": "dentry", "live_is_upper_bound": dentry }, { "cache": "maple_node", "live_is_upper_bound": maple },
            { "cache": "kmalloc-8", "live_is_upper_bound": false },
        ] });
        let live = json!({ "rows": [
            row("0xffffffff81000010", "cache", dentry), row("0xffffffff81000020", "cache", maple),
            row("0xffffffff81000010", "kmalloc", false),
        ] });
        let views = [("summary", summary), ("sites", sites), ("caches", caches), ("live", live)];
        assert_all(&format!("unseen frees of {cache:?}"), work, &views);
    }
}

#[test]
fn mismatches_in_rows_with_unseen_frees_are_no_errors() {
    let many = many();
    let work = Scenario::new(Shape::plain(), 1)
        .cache_alloc(10, 0, SITE, A, (8, 8), "dentry")
        .free_bulk(20, 0, BULK_SITE, (65, &many), Some("dentry"))
        .cache_free(30, 0, FREE_SITE, A, "inode_cache")
        .finish();
    let dir = Directory::new(&trace_dir(&work, 1));
    let summary = json!({ "findings": { "cache_mismatch": { "count": 1, "suspect": 0, "unseen": 1 } } });
    assert_all("unseen", work, &[("summary", summary)]);
    // A filter changes nothing of it.
    let words = ["summary", "--cache", "dentry", "--format", "json"];
    let filtered = json(&run_to(0, "kmemtrace-report", &words, &[dir.path()]));
    assert_eq!(filtered["findings"]["cache_mismatch"], json!({ "count": 1, "suspect": 0, "unseen": 1 }));
}

#[test]
fn a_window_takes_records_whole_and_knows_of_nothing_before_it() {
    let work = Scenario::new(Shape::plain(), 1)
        .kmalloc(1_000_000_000, 0, SITE, A, (8, 8))
        .alloc_bulk(1_000_000_000, 0, BULK_SITE, (2, &[C, D]), "maple_node")
        .kvfree_rcu(2_000_000_000, 0, RCU_SITE, A)
        .free_bulk(3_000_000_000, 0, BULK_SITE, (3, &[A, C, D]), None)
        .finish();
    let dir = Directory::new(&trace_dir(&work, 1));
    for (time, total, completions, unknown, allocs) in
        [(",1.5", 2, 0, 0, 3), ("1.5,", 2, 1, 2, 0), ("2.5,", 1, 0, 3, 0), ("0,9", 4, 1, 0, 3)]
    {
        let words = ["summary", "--time", time, "--format", "json"];
        let found = json(&run_to(0, "kmemtrace-report", &words, &[dir.path()]));
        let events = json!({ "total": total, "completions": completions, "bulk_unknown": unknown });
        let by_hand = json!({ "events": events, "total": { "allocs": allocs } });
        assert_document(time, &by_hand, &found);
    }
}

/// Text that a view prints.
fn text(words: &[&str], dir: &Directory) -> String {
    String::from_utf8(run_to(0, "kmemtrace-report", words, &[dir.path()])).unwrap()
}

#[test]
fn events_of_several_objects_are_one_line_in_every_format() {
    let work = Scenario::new(Shape::plain(), 1)
        .alloc_bulk(1000, 0, BULK_SITE, (70, &many()), "maple_node")
        .free_bulk(2000, 0, BULK_SITE, (2, &[A, B]), Some("dentry"))
        .free_bulk(3000, 0, BULK_SITE, (0, &[]), None)
        .kvfree_rcu(4000, 0, RCU_SITE, C)
        .alloc_bulk(5000, 0, BULK_SITE, (4, &[]), "maple_node")
        .finish();
    let dir = Directory::new(&trace_dir(&work, 1));
    let lines = events(dir.path());
    let of = |line: &Value, member: &str| line[member].clone();
    let told: Vec<_> = lines.iter().map(|line| ["event", "size", "address"].map(|member| of(line, member))).collect();
    let none = Value::Null;
    assert_eq!(
        told,
        [
            [json!("alloc_bulk"), json!(70), none.clone()],
            [json!("free_bulk"), json!(2), none.clone()],
            [json!("free_bulk"), json!(0), none.clone()],
            [json!("kvfree_rcu"), none.clone(), json!("0xffff888000003000")],
            [json!("alloc_bulk"), json!(4), none],
        ]
    );
    let addresses: Vec<usize> = lines.iter().filter_map(|line| Some(line["addresses"].as_array()?.len())).collect();
    assert_eq!(addresses, [64, 2, 0, 0]);
    assert_eq!(lines[1]["addresses"], json!(["0xffff888000001000", "0xffff888000002000"]));
    assert_eq!((&lines[0]["requested"], &lines[1]["requested"]), (&json!(200), &Value::Null));
    let csv = text(&["events", "--format", "csv"], &dir);
    let rows: Vec<&str> = csv.lines().collect();
    assert_eq!(rows.len(), 6, "{csv}");
    assert!(rows[0].contains(",address,addresses,size,"), "{csv}");
    assert!(rows[2].contains(",,0xffff888000001000 0xffff888000002000,2,,"), "{csv}");
    let table = text(&["events", "--show-addresses", "--format", "table"], &dir);
    assert!(table.contains("free_bulk x2") && table.contains("0xffff888000001000 and 1 more"), "{table}");
    assert_eq!(table.matches("_bulk x").count(), 4, "{table}");
    // A filter takes a record or leaves it out.
    let filtered = text(&["events", "--cache", "dentry", "--format", "jsonl"], &dir);
    assert_eq!(filtered.lines().count(), 1, "{filtered}");
}

#[test]
fn events_of_another_group_are_other() {
    let work = Scenario::new(Shape::plain(), 1)
        .kmalloc(10, 0, SITE, A, (8, 8))
        .kvfree_rcu(20, 0, RCU_SITE, A)
        .free_bulk(30, 0, BULK_SITE, (1, &[A]), None)
        .finish();
    let files = tree(&work, 1);
    let foreign: Vec<(String, Vec<u8>)> =
        files.iter().map(|(name, bytes)| (name.replace("kmemtrace_capture", "kprobes"), bytes.clone())).collect();
    for (files, used, deferred) in [(files, 3, "seen"), (foreign, 1, "unseen")] {
        let dir = Directory::new(&files);
        let summary = json(&printed("summary", dir.path()));
        assert_eq!(summary["events"]["used"], used, "{summary:#}");
        assert_eq!(summary["events"]["total"], 3);
        assert_eq!(summary["trace"]["deferred"], deferred);
    }
}

/// A row with an upper bound: its object's address was handed out again.
fn bounded() -> Scenario {
    Scenario::new(Shape::plain(), 1)
        .kmalloc(1_000_000_000, 0, SITE, A, (8, 8))
        .kmalloc(2_000_000_000, 0, SITE, A, (8, 8))
        .kmalloc(3_000_000_000, 0, SITE, B, (8, 8))
}

#[test]
fn a_document_tells_whether_deferred_frees_were_seen() {
    type Facts = (Option<u64>, Option<&'static str>);
    let of = |(probes, kernel): Facts, scenario: Scenario| {
        let work = scenario.with(|work| (work.probes, work.kernel) = (probes, kernel)).finish();
        Directory::new(&trace_dir(&work, 1))
    };
    const UNSEEN: &str = "Frees by kfree_rcu were not recorded, so rows marked <= may hold freed objects; kmemtraced doctor prints whether \
                          a kernel can record them.";
    const PARTLY: &str = "Frees by kfree_rcu were not recorded from the start, so rows marked <= may hold freed objects; --time \
                          +0.500000000, leaves that part out.";
    for (facts, deferred, line) in [
        ((Some(0), Some("6.18.1")), json!("seen"), None),
        ((Some(1_000_000_000), Some("6.18.1")), json!("seen"), None),
        ((Some(1_500_000_000), Some("6.18.1")), json!("partly"), Some(PARTLY)),
        ((None, Some("6.18.1")), json!("unseen"), Some(UNSEEN)),
        ((None, Some("5.7.0")), json!("unseen"), Some(UNSEEN)),
        ((None, Some("5.6.19")), Value::Null, None),
        ((None, None), Value::Null, None),
    ] {
        let dir = of(facts, bounded());
        for view in DOCUMENTS {
            assert_eq!(json(&printed(view, dir.path()))["trace"]["deferred"], deferred, "{view} {facts:?}");
        }
        for words in [&["summary"][..], &["live"], &["live", "--objects"], &["sites"]] {
            let text = text(words, &dir);
            let want = line.filter(|_| words != ["sites"]).into_iter().collect::<Vec<_>>();
            let found: Vec<&str> = text.lines().filter(|line| line.contains("kfree_rcu")).collect();
            assert_eq!(found, want, "{words:?} {facts:?}");
            assert_eq!(
                // Only what is missing at all, such as symbols, comes before it.
                text.lines().skip(1).take(2).find(|line| line.contains("kfree_rcu")),
                line.filter(|_| words != ["sites"])
            );
        }
        // A view without an upper bound has nothing to explain.
        let plain = of(facts, Scenario::new(Shape::plain(), 1).kmalloc(1_000_000_000, 0, SITE, A, (8, 8)));
        assert!(!text(&["live"], &plain).contains("kfree_rcu"), "{facts:?}");
        // Events before a window are as if not recorded.
        let window = ["summary", "--time", "1.8,", "--format", "json"];
        let windowed = json(&run_to(0, "kmemtrace-report", &window, &[dir.path()]));
        let seen_later = deferred == "partly" || deferred == "seen";
        assert_eq!(windowed["trace"]["deferred"], if seen_later { json!("seen") } else { deferred }, "{facts:?}");
    }
    // No window is left behind the last event.
    let late = text(&["live"], &of((Some(3_500_000_000), Some("6.18.1")), bounded()));
    assert!(late.contains("from the start, so rows marked <= may hold freed objects.\n"), "{late}");
}
