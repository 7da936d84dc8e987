//! Per-CPU memory and areas of kernel address space: kinds with addresses of their own.

use kmemtrace_abi::event::Kind;
use kmemtrace_tests::generate::symbols::{Function, Symbols};
use kmemtrace_tests::reference::Selection;

use super::*;

const RCU_SITE: u64 = 0xffff_ffff_8100_0c00;
/// Address that a per-CPU pointer, an area and an object may all have.
const P: u64 = 0xffff_c900_0000_1000;

/// A machine with three possible CPUs whose events of these kinds are described.
fn described(era: Era) -> Shape {
    Shape { era, possible_cpus: 3, ..Shape::plain() }
}

/// Figures of the only object of a kind, which is live.
fn live(bytes: u64) -> Value {
    json!({ "allocs": 1, "frees": 0, "live_objects": 1, "requested": bytes, "allocated": bytes, "wasted": 0,
        "live_allocated": bytes, "peak_live_allocated": bytes, "pages_allocated": null })
}

/// Output of the program for a view of a trace with these options.
fn shown(dir: &Directory, arguments: &[&str]) -> String {
    String::from_utf8(run_to(0, "kmemtrace-report", arguments, &[dir.path()])).unwrap()
}

#[test]
fn bytes_of_per_cpu_memory_are_those_of_all_possible_cpus() {
    for era in [Era::V5_15, Era::V6_18] {
        let site = if era == Era::V5_15 { 0 } else { SITE };
        let work = Scenario::new(described(era), 3)
            .percpu_alloc(10, 0, site, P, 8)
            .percpu_alloc(20, 0, site, P + 32, 64)
            .percpu_free(30, 1, P + 32)
            .percpu_alloc(40, 0, 0, 0, 4096)
            .finish();
        let percpu = json!({
            "allocs": 2, "failed_allocs": 1, "requested": 216, "allocated": 216, "wasted": 0, "frees": 1, "cross_cpu": 1,
            "live_objects": 1, "live_allocated": 24, "peak_live_allocated": 216, "free_events": 1, "page_pairs": null,
        });
        let total = json!({ "allocs": 0, "live_allocated": 0 });
        let summary = json!({ "kinds": { "percpu": percpu }, "total": total, "events": { "used": 4, "other": 0 } });
        let row = |site: &str, allocs: u64, failed: u64| json!({ "call_site": site, "kind": "percpu", "allocs": allocs, "failed_allocs": failed });
        let rows = match era {
            Era::V5_15 => vec![row("0x0", 2, 1)],
            _ => vec![row("0xffffffff81000010", 2, 0), row("0x0", 0, 1)],
        };
        assert_all(&format!("{era:?}"), work, &[("summary", summary), ("sites", json!({ "rows": rows }))]);
    }
}

#[test]
fn each_space_has_addresses_of_its_own() {
    let work = Scenario::new(described(Era::V6_18), 3)
        .kmalloc(10, 0, SITE, P, (100, 128))
        .percpu_alloc(20, 0, SITE, P, 8)
        .area_alloc(30, 0, P, 8192, false)
        .area_free(40, 0, P)
        .finish();
    let summary = json!({
        "kinds": {
            "kmalloc": { "live_objects": 1, "live_allocated": 128 }, "percpu": live(24),
            "vmalloc": { "allocs": 1, "frees": 1, "live_objects": 0, "allocated": 8192, "wasted": 0 },
        },
        "total": { "allocs": 1, "live_allocated": 128, "peak_live_allocated": 128 },
    });
    assert_all("spaces", work, &[("summary", summary)]);
}

#[test]
fn a_failed_area_is_no_object() {
    let work = Scenario::new(described(Era::V6_18), 3)
        .area_alloc(10, 0, P, 4096, true)
        .area_alloc(20, 0, P, 4096, false)
        .area_alloc(30, 0, P, 12288, false)
        .finish();
    let vmalloc = json!({ "allocs": 2, "failed_allocs": 1, "inferred_frees": 1, "live_allocated": 12288 });
    assert_all("failed", work, &[("summary", json!({ "kinds": { "vmalloc": vmalloc } }))]);
}

#[test]
fn a_deferred_free_gives_an_area_up() {
    let work = Scenario::new(described(Era::V6_18), 3)
        .area_alloc(10, 0, P, 8192, false)
        .kvfree_rcu(20, 0, RCU_SITE, P)
        .kvfree_rcu(30, 0, RCU_SITE, P)
        .area_free(40, 0, P)
        // The address is given up no more.
        .area_free(50, 0, P)
        // An area that is not live: the free counts as one of a slab object.
        .kvfree_rcu(60, 0, RCU_SITE, P)
        .finish();
    let summary = json!({
        "events": { "completions": 1 },
        "kinds": { "kmalloc": { "free_events": 2 }, "vmalloc": { "frees": 1, "free_events": 2, "live_objects": 0 } },
        "findings": {
            "free_after_free": { "count": 1 }, "free_without_alloc": { "count": 1 }, "kind_mismatch": { "count": 0 },
            "kind_mismatch_legal": { "count": 0 }, "cache_mismatch": { "count": 0 },
        },
    });
    assert_all("deferred area", work, &[("summary", summary)]);
}

/// A pair between CPUs and findings of each kind with a space of its own, and one pair of `kmalloc`.
fn pairs_and_findings() -> Workload {
    Scenario::new(described(Era::V6_18), 3)
        .kmalloc(10, 0, SITE, A, (64, 64))
        .kfree(11, 1, FREE_SITE, A)
        .percpu_alloc(20, 0, SITE, P, 8)
        .percpu_free(30, 1, P)
        .percpu_free(40, 1, P)
        .percpu_free(50, 1, P + 32)
        .area_alloc(60, 0, P, 4096, false)
        .area_free(70, 2, P)
        .area_alloc(80, 0, P, 4096, false)
        .area_alloc(90, 0, P, 8192, false)
        .area_free(95, 0, P + 0x9000)
        .finish()
}

#[test]
fn pairs_and_findings_are_of_slab_and_pages_unless_a_kind_is_named() {
    let dir = Directory::new(&trace_dir(&pairs_and_findings(), 1));
    let mut known = Known::of_workload(pairs_and_findings());
    let all = [("summary", &[1u64, 1, 0, 0, 0][..], None), ("percpu", &[1, 1, 1, 1, 0], Some(Kind::Percpu))];
    for (what, want, kind) in all.into_iter().chain([("vmalloc", &[1, 1, 0, 1, 1][..], Some(Kind::Vmalloc))]) {
        let options: Vec<&str> = kind.iter().flat_map(|kind| ["--kind", kind.name()]).collect();
        known.selection = Selection { kind, ..Selection::default() };
        let of_reference = pairs::pairs(&known);
        for view in ["summary", "mismatch", "cross", "caches"] {
            let words = [&[view, "--format", "json"], &options[..]].concat();
            let found = json(shown(&dir, &words).as_bytes());
            let expected = Asked::view(view).document(&known, &of_reference);
            assert_eq!(differences(&expected, &found), [""; 0], "{what} {view}");
            let kinds = |rows: &Value| -> Vec<String> {
                rows.as_array().unwrap().iter().map(|row| row["kind"].as_str().unwrap().to_owned()).collect()
            };
            match view {
                "summary" => {
                    let (pairs, findings) = (&found["pairs"], &found["findings"]);
                    let counts = ["free_after_free", "free_without_alloc", "inferred_free"];
                    let counts = counts.map(|class| findings[class]["count"].as_u64().unwrap());
                    let pairs = ["paired", "cross_cpu"].map(|member| pairs[member].as_u64().unwrap());
                    assert_eq!([&pairs[..], &counts].concat(), want, "{what}");
                }
                "mismatch" | "cross" => {
                    let own = kind.map_or("kmalloc", Kind::name);
                    assert!(kinds(&found["rows"]).iter().all(|kind| kind == own), "{what} {view}: {found}");
                    assert_eq!(found["rows"].as_array().unwrap().is_empty(), view == "mismatch" && kind.is_none());
                }
                _ => assert!(kinds(&found["rows"]).iter().all(|kind| kind == "kmalloc"), "{what}: {found}"),
            }
        }
        let fired = kind.is_some();
        let words = [&["mismatch", "--fail-on", "free_after_free,inferred_free"], &options[..]].concat();
        run_to(fired.into(), "kmemtrace-report", &words, &[dir.path()]);
    }
}

#[test]
fn what_is_left_out_is_summed_by_space() {
    let dir = Directory::new(&trace_dir(&pairs_and_findings(), 1));
    for view in ["sites", "live", "growth", "caches"] {
        let found = json(shown(&dir, &[view, "--top", "0", "--format", "json"]).as_bytes());
        let bytes = |member: &str| match view {
            "growth" => found[member]["live_allocated"].as_array().unwrap().last().unwrap().clone(),
            _ => found[member]["live_allocated"].clone(),
        };
        let vmalloc = if view == "caches" { 0 } else { 8192 };
        let sums = ["others", "others_pages", "others_percpu", "others_vmalloc"].map(|member| bytes(member));
        assert_eq!(sums, [0, 0, 0, vmalloc].map(Value::from), "{view}: {found}");
    }
}

#[test]
fn kinds_without_a_format_are_not_shown() {
    let dir = Directory::new(&trace_dir(&Scenario::new(Shape::plain(), 1).kmalloc(10, 0, SITE, A, (8, 8)).finish(), 1));
    let summary = json(&printed("summary", dir.path()));
    assert_eq!(summary["kinds"].as_object().unwrap().keys().collect::<Vec<_>>(), ["kmalloc", "cache", "pages"]);
    assert_eq!(summary["trace"]["one_moment"], false);
    let sites = json(shown(&dir, &["sites", "--top", "0", "--format", "json"]).as_bytes());
    assert!(sites.get("others_pages").is_some() && sites.get("others_percpu").is_none());
    assert!(!shown(&dir, &["sites"]).contains("address space"));
    // Linux 5.15 has events of per-CPU memory alone.
    let older = Scenario::new(described(Era::V5_15), 1).kmalloc(10, 0, SITE, A, (8, 8)).finish();
    let dir = Directory::new(&trace_dir(&older, 1));
    let kinds = &json(&printed("summary", dir.path()))["kinds"];
    assert!(kinds.get("percpu").is_some() && kinds.get("vmalloc").is_none(), "{kinds}");
}

#[test]
fn views_of_one_space_show_the_kind_that_is_asked_for() {
    let dir = Directory::new(&trace_dir(&pairs_and_findings(), 1));
    for view in ["tree", "tasks", "modules"] {
        for (kind, live) in [("percpu", 0), ("vmalloc", 8192)] {
            let found = json(shown(&dir, &[view, "--kind", kind, "--format", "json"]).as_bytes());
            assert_eq!(found["shows"], kind, "{view}");
            let bytes = if view == "tree" { &found["root"] } else { &found["rows"][0] }["live_allocated"].clone();
            assert_eq!(bytes, live, "{view} {kind}: {found}");
            let table = shown(&dir, &[view, "--kind", kind]);
            assert_eq!(table.contains("address space"), kind == "vmalloc", "{table}");
        }
        assert_eq!(json(&printed(view, dir.path()))["shows"], "slab", "{view}");
    }
    assert!(shown(&dir, &["sites"]).contains("address space"));
    assert!(!shown(&dir, &["sites", "--kind", "kmalloc,percpu"]).contains("address space"));
}

#[test]
fn the_site_of_an_area_lies_behind_its_allocators() {
    let names =
        ["stack_trace_save", "alloc_vmap_area", "__get_vm_area_node", "__vmalloc_node_range_noprof", "foo_init"];
    let start = |number: usize| 0xffff_ffff_8120_0000 + 0x100 * number as u64;
    let function = |(number, name): (usize, &&str)| {
        let (start, end) = (start(number), start(number) + 0x80);
        Function { start, end, name: (*name).to_owned(), module: None }
    };
    let symbols = Symbols { functions: names.iter().enumerate().map(function).collect(), text: None };
    let frames: Vec<u64> = (0..names.len()).map(|number| start(number) + 0x10).collect();
    let work = Scenario::new(described(Era::V6_18), 3)
        .with(|work| work.symbols = symbols)
        .area_alloc(10, 0, P, 8192, false)
        .stack(10, 0, &frames)
        // Pages have their site in the allocator of areas.
        .page_alloc(20, 0, 0x1234, 4096)
        .stack(20, 0, &frames[3..])
        .finish();
    let dir = Directory::new(&trace_dir(&work, 1));
    let found = json(&printed("sites", dir.path()));
    let symbol = |kind: &str| {
        let rows = found["rows"].as_array().unwrap();
        rows.iter().find(|row| row["kind"] == kind).unwrap()["symbol"].clone()
    };
    assert_eq!(symbol("vmalloc"), "foo_init+0x10");
    assert_eq!(symbol("pages"), "__vmalloc_node_range_noprof+0x10");
}
