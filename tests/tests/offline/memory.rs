//! Views of memory that is missing, over texts of proc that a recording keeps: `balance`, `failed`, the kernel's figures in `caches`,
//! and `allocinfo_change`.

use kmemtrace_abi::disk::block::item;
use kmemtrace_abi::event::StreamItem;
use kmemtrace_tests::generate::symbols::{Function, Symbols};
use kmemtrace_tests::generate::{Era, Shape, Workload, trace_dir, tree};
use kmemtrace_tests::programs::{json, run_to};
use kmemtrace_tests::recording::Directory;
use kmemtrace_tests::scenario::Scenario;
use serde_json::{Value, json};

const REPORT: &str = "kmemtrace-report";
const A: u64 = 0xffff_8880_0000_1000;
const SITE: u64 = 0xffff_ffff_8100_0010;
const FUNCTIONS: [&str; 5] =
    ["foo_open", "shmem_alloc_folio", "filemap_alloc_folio", "do_anonymous_page", "exdrv_fill"];
/// `__GFP_NOWARN` of the format below.
const NOWARN: u64 = 0x2000;

/// Call-site in a function of [`FUNCTIONS`].
fn site(function: usize) -> u64 {
    SITE + 0x100 * function as u64
}

fn scenario() -> Scenario {
    let function = |(number, name): (usize, &&str)| Function {
        start: site(number) - 0x10,
        end: site(number) + 0x80,
        name: (*name).to_owned(),
        module: None,
    };
    let functions = FUNCTIONS.iter().enumerate().map(function).collect();
    let shape = Shape { era: Era::V6_18, possible_cpus: 2, ..Shape::plain() };
    Scenario::new(shape, 2).with(|work| work.symbols = Symbols { functions, text: None })
}

/// The scenario with further texts, by item tag.
fn with_texts(scenario: Scenario, texts: &[(u16, &str)]) -> Scenario {
    scenario.with(|work| work.items.extend(texts.iter().map(|(tag, text)| (*tag, (*text).to_owned()))))
}

fn document(work: &Workload, arguments: &[&str]) -> Value {
    let dir = Directory::new(&trace_dir(work, 1));
    json(&run_to(0, REPORT, &[arguments, &["--format", "json"]].concat(), &[dir.path()]))
}

fn printed(work: &Workload, arguments: &[&str]) -> String {
    let dir = Directory::new(&trace_dir(work, 1));
    String::from_utf8(run_to(0, REPORT, arguments, &[dir.path()])).unwrap()
}

/// Text of meminfo with these KiB in place of others.
fn meminfo(kib: &[(&str, u64)]) -> String {
    let usual = [
        ("MemTotal", 10_000),
        ("MemFree", 5000),
        ("Buffers", 10),
        ("Cached", 1000),
        ("SwapCached", 0),
        ("AnonPages", 500),
        ("Shmem", 100),
        ("Slab", 300),
        ("SReclaimable", 200),
        ("SUnreclaim", 100),
        ("KernelStack", 16),
        ("PageTables", 40),
        ("VmallocUsed", 64),
        ("Percpu", 8),
    ];
    let value = |name: &str, usual: u64| kib.iter().find(|(of, _)| *of == name).map_or(usual, |(_, kib)| *kib);
    let line = |(name, kib): (&str, u64)| format!("{name}: {} kB\n", value(name, kib));
    usual.into_iter().map(line).collect::<String>() + "HugePages_Total: 0\nHugepagesize: 2048 kB\n"
}

/// Text of zoneinfo with so many pages on the lists of two CPUs.
fn zoneinfo(pages: [u64; 2]) -> String {
    let [a, b] = pages;
    format!(
        "Node 0, zone DMA\n  pages free 9\n  pagesets\n    cpu: 0\n      count: {a}\n    cpu: 1\n      count: {b}\n"
    )
}

/// A recording in which memory goes to each part; free memory shrinks by 700 KiB.
fn balanced() -> Scenario {
    let pages = |scenario: Scenario, at: u64, frame: u64, function: usize| {
        scenario.page_alloc(at, 0, frame, 4096).stack(at, 0, &[site(function)])
    };
    let mut scenario = scenario()
        .kmalloc(10, 0, site(0), A, (100, 128))
        .cache_alloc(20, 0, site(0), A + 0x1000, (192, 192), "dentry")
        .cache_alloc(30, 0, site(0), A + 0x2000, (250, 256), "filp")
        .percpu_alloc(40, 0, site(0), 0x1000, 64);
    for (number, function) in [1, 2, 3, 4, 4].into_iter().enumerate() {
        scenario = pages(scenario, 50 + number as u64, 16 + number as u64, function);
    }
    let end = [
        ("MemFree", 4300),
        ("Cached", 1300),
        ("Shmem", 300),
        ("AnonPages", 800),
        ("Slab", 340),
        ("SReclaimable", 220),
        ("SUnreclaim", 120),
        ("VmallocUsed", 80),
    ];
    let (start, end) = (meminfo(&[]), meminfo(&end));
    let (zones_start, zones_end) = (zoneinfo([3, 4]), zoneinfo([1, 2]));
    let texts = [
        (item::MEMINFO_START, &*start),
        (item::MEMINFO_END, &end),
        (item::ZONEINFO_START, &zones_start),
        (item::ZONEINFO_END, &zones_end),
    ];
    with_texts(scenario, &texts)
}

fn part<'d>(document: &'d Value, name: &str) -> &'d Value {
    let parts = document["parts"].as_array().unwrap_or_else(|| panic!("{document}"));
    parts.iter().find(|part| part["part"] == name).unwrap_or(&Value::Null)
}

#[test]
fn parts_add_up_to_what_free_memory_lost() {
    let balance = document(&balanced().finish(), &["balance"]);
    assert_eq!(balance["schema"], "kmemtrace.balance/1");
    assert_eq!((&balance["memfree_change"], &balance["memtotal_change"]), (&json!(-700 << 10), &json!(0)));
    let kib = |name: &str| part(&balance, name)["change"].as_i64().map(|bytes| bytes / 1024);
    let changes = [
        ("anonymous", Some(300)),
        ("tmpfs and shared", Some(200)),
        ("files", Some(100)),
        ("slab reclaimable", Some(20)),
        ("slab unreclaimable", Some(20)),
        ("page tables", Some(0)),
        ("vmalloc", Some(16)),
        ("per-CPU", Some(0)),
        ("huge pages", Some(0)),
        ("other counters", None),
        ("free on per-CPU lists", Some(-16)),
        ("other pages", Some(8)),
    ];
    for (name, change) in changes {
        assert_eq!(kib(name), change, "{name}");
    }
    // Stacks are a part, because the symbols lack the function of kernels that map them.
    assert_eq!(kib("kernel stacks"), Some(0));
    let explained = |name: &str| part(&balance, name)["explained"].as_u64();
    let own = [
        ("anonymous", Some(4096)),
        ("tmpfs and shared", Some(4096)),
        ("files", Some(4096)),
        ("slab reclaimable", Some(192)),
        ("slab unreclaimable", Some(128 + 256)),
        ("per-CPU", Some(128)),
        ("vmalloc", None),
        ("huge pages", None),
        ("free on per-CPU lists", None),
        ("other pages", Some(8192)),
    ];
    for (name, bytes) in own {
        assert_eq!(explained(name), bytes, "{name}");
    }
    let sum: i64 = changes.iter().filter_map(|(_, change)| *change).sum();
    assert_eq!(balance["unexplained"], json!((700 - sum) << 10));
    let rows = part(&balance, "other pages")["rows"].as_array().unwrap();
    let row = json!({ "symbol": "exdrv_fill+0x10", "kind": "pages", "live_objects": 2, "live_allocated": 8192 });
    assert_eq!(rows.len(), 1);
    assert!(row.as_object().unwrap().iter().all(|(name, value)| rows[0][name] == *value), "{}", rows[0]);
    assert_eq!(part(&balance, "free on per-CPU lists")["from"], "zoneinfo");
    assert_eq!(part(&balance, "other pages")["from"], "events");
}

#[test]
fn each_number_of_threads_makes_the_same_balance() {
    let work = balanced().finish();
    let first = document(&work, &["balance", "-j", "1", "--no-index"]);
    for jobs in ["2", "5"] {
        assert_eq!(document(&work, &["balance", "-j", jobs]), first);
    }
}

#[test]
fn a_part_without_its_counter_is_null() {
    let without = |names: &[&str]| {
        let mut work = balanced().finish();
        let is_left = |line: &&str| names.iter().all(|name| !line.starts_with(name));
        for (_, text) in &mut work.items {
            *text = text.lines().filter(is_left).map(|line| format!("{line}\n")).collect();
        }
        document(&work, &["balance"])
    };
    let balance = without(&["Percpu:", "SwapCached:"]);
    for name in ["per-CPU", "files"] {
        assert_eq!(part(&balance, name)["change"], Value::Null, "{name}");
    }
    assert!(balance["unexplained"].is_i64());
    assert_eq!(part(&without(&["Node"]), "free on per-CPU lists")["change"], json!(-16 << 10));
    for needed in ["AnonPages", "Cached:", "Slab:"] {
        assert_eq!(without(&[needed])["unexplained"], Value::Null, "{needed}");
    }
    let bare = document(&scenario().kmalloc(10, 0, site(0), A, (100, 128)).finish(), &["balance"]);
    assert_eq!((&bare["memfree_change"], &bare["unexplained"]), (&Value::Null, &Value::Null));
    assert_eq!(part(&bare, "slab unreclaimable")["explained"], 128);
    let window = document(&balanced().finish(), &["balance", "--time", ",50%"]);
    assert_eq!(window["memfree_change"], Value::Null, "the counters are those of the whole recording");
}

#[test]
fn the_table_of_balance_begins_with_free_memory() {
    let work = balanced().finish();
    let text = printed(&work, &["balance", "--width", "80"]);
    assert!(
        text.contains("MemFree shrank by 700 KiB.") && text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
    let place = |what: &str| text.find(what).unwrap_or_else(|| panic!("{what}: {text}"));
    assert!(
        place(" anonymous\n") < place("do_anonymous_page+0x10") && place("do_anonymous_page+0x10") < place(" files\n")
    );
    assert!(text.contains("Unexplained: +"), "{text}");
    let csv = printed(&work, &["balance", "--format", "csv"]);
    // A heading, 13 parts, and eight call-sites.
    assert_eq!(csv.lines().count(), 1 + 13 + 8, "{csv}");
    let bare = printed(&scenario().kmalloc(10, 0, site(0), A, (100, 128)).finish(), &["balance"]);
    assert!(bare.contains("no /proc/meminfo") && bare.contains("kmemtraced"), "{bare}");
}

#[test]
fn a_captured_tree_has_the_same_texts() {
    let work = balanced().finish();
    let names = [
        (item::MEMINFO_START, "meminfo_start"),
        (item::MEMINFO_END, "meminfo_end"),
        (item::ZONEINFO_START, "zoneinfo_start"),
        (item::ZONEINFO_END, "zoneinfo_end"),
    ];
    let mut files = tree(&work, 1);
    files.push(("page_size".into(), b"4096\n".to_vec()));
    for (tag, text) in &work.items {
        let (_, name) = names.iter().find(|(of, _)| of == tag).unwrap();
        files.push(((*name).into(), text.clone().into_bytes()));
    }
    let dir = Directory::new(&files);
    let balance = json(&run_to(0, REPORT, &["balance", "--format", "json"], &[dir.path()]));
    assert_eq!((&balance["trace"]["input"], &balance["memfree_change"]), (&json!("tree"), &json!(-700 << 10)));
    assert_eq!(part(&balance, "free on per-CPU lists")["change"], json!(-16 << 10));
}

/// Format of `kmalloc` that names two flags.
const FORMAT: &str = "kmem/kmalloc\nname: kmalloc\nID: 5\nformat:\n\tfield:unsigned long call_site;\toffset:8;\tsize:8;\tsigned:0;\n\
                      \tfield:gfp_t gfp_flags;\toffset:32;\tsize:4;\tsigned:0;\n\n\
                      print fmt: \"%s\", (REC->gfp_flags) ? __print_flags(REC->gfp_flags, \"|\", {0xcc0U, \"GFP_KERNEL\"}, {0x2000U, \"__GFP_NOWARN\"}, {0x10000U, \"__GFP_NORETRY\"}) : \"none\"\n";
const BUDDYINFO: [&str; 2] =
    ["Node 0, zone   Normal      7      3      1\n", "Node 0, zone   Normal      9      0      0\n"];

/// Four refused requests: two alike, one with a way out, one of pages; and one that was granted.
fn refused() -> Workload {
    let frame = Shape::plain().word_max();
    let scenario = scenario()
        .kmalloc(10, 0, site(0), 0, (4000, 4096))
        .kmalloc(20, 0, site(0), A, (4000, 4096))
        .kmalloc(30, 0, site(0), 0, (4000, 4096))
        .thread(8, 0)
        .kmalloc(40, 0, site(4), 0, (8000, 8192))
        .page_alloc(50, 0, frame, 16 * 4096)
        .with(|work| {
            for item in &mut work.cpus[0].items {
                if let StreamItem::Event(event) = item
                    && event.at == 40
                {
                    event.gfp = Some(0xcc0 | NOWARN);
                }
            }
        });
    let texts =
        [(item::EVENT_FORMAT, FORMAT), (item::BUDDYINFO_START, BUDDYINFO[0]), (item::BUDDYINFO_END, BUDDYINFO[1])];
    with_texts(scenario, &texts).finish()
}

#[test]
fn refused_requests_without_a_fallback_come_first() {
    let work = refused();
    let failed = document(&work, &["failed"]);
    assert_eq!(failed["schema"], "kmemtrace.failed/1");
    let rows = failed["rows"].as_array().unwrap();
    let expected = [
        json!({ "symbol": "foo_open+0x10", "kind": "kmalloc", "order": null, "requested": 4000, "gfp": 0xcc0, "pid": 7,
            "comm": "seven", "failed_allocs": 2, "fallback": false, "first": 10, "last": 30 }),
        json!({ "call_site": "0x0", "kind": "pages", "order": 4, "requested": 65536, "pid": 8, "comm": null,
            "failed_allocs": 1, "fallback": false, "first": 50, "last": 50 }),
        json!({ "symbol": "exdrv_fill+0x10", "kind": "kmalloc", "requested": 8000, "gfp": 0xcc0 | NOWARN,
            "gfp_names": "GFP_KERNEL|__GFP_NOWARN", "failed_allocs": 1, "fallback": true, "first": 40, "last": 40 }),
    ];
    assert_eq!(rows.len(), expected.len(), "{failed}");
    for (row, expected) in rows.iter().zip(&expected) {
        assert!(expected.as_object().unwrap().iter().all(|(name, value)| row[name] == *value), "{row}\n{expected}");
    }
    assert_eq!(failed["total"], json!({ "failed_allocs": 4, "with_fallback": 1 }));
    let zone = |free: [u64; 3]| json!([{ "node": 0, "zone": "Normal", "free": free }]);
    assert_eq!(failed["buddyinfo"], json!({ "before": zone([7, 3, 1]), "after": zone([9, 0, 0]) }));
    let top = document(&work, &["failed", "-n", "1"]);
    assert_eq!((&top["others"]["failed_allocs"], &top["others_count"]), (&json!(2), &json!(2)));
}

#[test]
fn summary_names_failed_where_a_request_has_no_fallback() {
    let next = |work: &Workload| printed(work, &["summary"]).contains("kmemtrace-report failed");
    let all = refused();
    assert!(next(&all));
    let mut with_fallback = refused();
    with_fallback.cpus[0].items.retain(|item| matches!(item, StreamItem::Event(event) if [20, 40].contains(&event.at)));
    assert!(!next(&with_fallback));
    let table = printed(&with_fallback, &["failed"]);
    assert!(table.contains("0 allocations failed; 1 more with a fallback"), "{table}");
    let table = printed(&all, &["failed", "--width", "80"]);
    assert!(table.contains("3 allocations failed; 1 more with a fallback") && table.contains("9 0 0"), "{table}");
    assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
}

/// Text of slabinfo: name, objects in use, objects, bytes of an object, objects and pages of a slab, slabs.
fn slabinfo(caches: &[(&str, [u64; 6])]) -> String {
    let line = |(name, [active, objects, bytes, per_slab, pages, slabs]): &(&str, [u64; 6])| {
        format!("{name} {active} {objects} {bytes} {per_slab} {pages} : tunables 0 0 0 : slabdata {slabs} {slabs} 0\n")
    };
    format!("slabinfo - version: 2.1\n# name <active_objs>\n{}", caches.iter().map(line).collect::<String>())
}

#[test]
fn caches_have_what_slabtop_says() {
    let start = slabinfo(&[
        ("filp", [10, 16, 256, 16, 1, 1]),
        ("idle", [5, 8, 512, 8, 1, 1]),
        ("gone", [1, 8, 512, 8, 2, 1]),
        ("kmalloc-64", [64, 64, 64, 64, 1, 1]),
    ]);
    let end = slabinfo(&[
        ("filp", [12, 32, 256, 16, 1, 2]),
        ("idle", [5, 8, 512, 8, 1, 1]),
        ("kmalloc-64", [64, 640, 64, 64, 1, 10]),
    ]);
    let work = scenario()
        .cache_alloc(10, 0, site(0), A, (250, 256), "filp")
        .cache_alloc(20, 0, site(0), A + 0x1000, (250, 256), "filp")
        .thread(8, 0)
        .kmalloc(30, 0, site(4), A + 0x2000, (100, 128))
        .with(|work| work.slabinfo = [start, end]);
    let work = with_texts(work, &[(item::CACHE_ALIASES, "filp one two three four\n")]).finish();
    let caches = document(&work, &["caches"]);
    let filp = caches["rows"].as_array().unwrap().iter().find(|row| row["cache"] == "filp").unwrap();
    let slab = |active: u64, objects: u64, slabs: u64| {
        json!({ "active_objs": active, "num_objs": objects, "objsize": 256, "objperslab": 16, "pagesperslab": 1,
            "active_slabs": slabs, "num_slabs": slabs, "bytes": slabs * 4096 })
    };
    assert_eq!((&filp["slab_before"], &filp["slab_after"]), (&slab(10, 16, 1), &slab(12, 32, 2)));
    assert_eq!((&filp["slabinfo_change"], &filp["visibility_percent"]), (&json!(2), &json!(100)));
    // Those whose bytes changed most come first.
    let idle = caches["without_events"].as_array().unwrap();
    let names: Vec<&Value> = idle.iter().map(|cache| &cache["cache"]).collect();
    assert_eq!(names, ["kmalloc-64", "gone", "idle"]);
    assert_eq!((&idle[1]["slab_after"], &idle[1]["slab_before"]["bytes"]), (&Value::Null, &json!(8192)));
    assert_eq!((&idle[0]["kind"], &idle[1]["kind"]), (&json!("kmalloc"), &json!("cache")));
    // A filter by threads may leave the events of a cache out.
    let of_thread = document(&work, &["caches", "--pid", "8"]);
    assert_eq!(of_thread.get("without_events"), None);
    let csv = printed(&work, &["caches", "--format", "csv", "-n", "1"]);
    let columns = |line: &str| line.split(',').count();
    assert!(
        csv.contains("slab_after_bytes")
            && csv.lines().all(|line| columns(line) == columns(csv.lines().next().unwrap()))
    );

    let table = printed(&work, &["caches", "--width", "80", "--sort", "live"]);
    assert!(table.contains("upper bound") && table.contains("+4.00 KiB") && table.contains("-8.00 KiB"), "{table}");
    assert!(table.contains("Caches without an event in the recording"), "{table}");
    let one = printed(&work, &["caches", "--cache", "filp"]);
    for text in ["filp is one cache with: one, two, three, four.", "Call sites", "foo_open+0x10", "Tasks", "seven"] {
        assert!(one.contains(text), "{text}: {one}");
    }
    assert!(!one.contains("exdrv_fill") && !one.contains("without an event"), "{one}");
}

#[test]
fn functions_have_their_change_by_allocinfo() {
    const HEAD: &str = "allocinfo - version: 1.0\n#     <size>  <calls> <tag info>\n";
    let start = format!("{HEAD}  4096 1 fs/foo.c:1 func:foo_open \n");
    let end = format!(
        "{HEAD}  8192 2 fs/foo.c:1 func:foo_open \n 1000 1 fs/foo.c:9 func:foo_open \n 300000 1 x.c:1 [x] func:exdrv_fill \n"
    );
    let work = scenario()
        .kmalloc(10, 0, site(0), A, (5000, 5096))
        .kmalloc(20, 0, site(4), A + 0x2000, (100, 128))
        .kmalloc(30, 0, site(2), A + 0x3000, (100, 128));
    let kept = with_texts(work, &[(item::ALLOCINFO_START, &start), (item::ALLOCINFO_END, &end)]).finish();
    let change = |document: &Value, function: &str| {
        let rows = document["rows"].as_array().unwrap().clone();
        rows.into_iter().find(|row| row["function"] == function).unwrap()["allocinfo_change"].clone()
    };
    let by_function = document(&kept, &["sites", "--by", "function"]);
    assert_eq!(change(&by_function, "foo_open"), 5096);
    assert_eq!(change(&by_function, "exdrv_fill"), Value::Null, "the lines are of another module");
    let by_both = document(&kept, &["sites", "--by", "function,comm"]);
    assert_eq!(by_both["rows"][0].get("allocinfo_change"), None);
    let table = printed(&kept, &["sites", "--by", "function"]);
    assert!(table.contains("ALLOCINFO of 0 of 1 function differs") && table.contains("+4.98 KiB"), "{table}");
    let mut without = kept;
    without.items.clear();
    assert_eq!(change(&document(&without, &["sites", "--by", "function"]), "foo_open"), Value::Null);
}
