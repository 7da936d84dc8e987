//! Texts of one moment: documents, figures that a text does not tell, views that each text has, comparisons and series.

use std::path::{Path, PathBuf};

use kmemtrace_tests::programs::{document, json, run, run_to, stderr};
use kmemtrace_tests::recording::Directory;
use serde_json::{Value, json};

/// A text that was made by hand.
fn made(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("data/texts").join(name)
}

fn written(dir: &Directory, name: &str, text: &str) -> PathBuf {
    dir.write(name, text.as_bytes());
    dir.file(name)
}

/// Rows of a view, each as these members of it.
fn rows(document: &Value, members: &[&str]) -> Vec<Value> {
    let of = |row: &Value| Value::Array(members.iter().map(|member| row[*member].clone()).collect());
    document["rows"].as_array().unwrap().iter().map(of).collect()
}

/// Blocks of one stack are alike but for their sizes, and a list of a cache has sums.
#[test]
fn a_size_is_that_of_each_object() {
    let dir = Directory::new(&[]);
    let block = |order: u32, pfn: u32| {
        let head =
            format!("Page allocated via order {order}, mask 0x0, pid 1, tgid 1 (a), ts {pfn} ns, free_ts 0 ns\n");
        format!("{head}PFN {pfn} type Unmovable Block 1 type Unmovable Flags 0x0()\n example_open+0x1c/0x40\n\n")
    };
    let blocks = [block(0, 513), block(1, 514), block(0, 516)].concat();
    let line = "      3 example_open+0x1c/0x40 waste=24/8 age=1/2/3 pid=7 cpus=0\n        example_open+0x1c/0x40\n\n";
    for (text, options, sizes) in [
        (&blocks[..], &[][..], json!([[4096, 2, 8192], [8192, 1, 8192]])),
        (line, &["--cache-name", "kmalloc-64"][..], json!([[56, 3, 192]])),
    ] {
        let path = written(&dir, "text", text);
        for view in ["sites", "live"] {
            let words = [&[view, "--by", "size", "--sort", "site"][..], options].concat();
            let found = rows(&document(&words, &path), &["size", "live_objects", "live_allocated"]);
            assert_eq!(Value::from(found), sizes, "{view}");
        }
    }
}

const SITES: [&str; 5] = ["symbol", "module", "through", "live_objects", "live_pages"];

/// Sites by the rule of texts: allocators are passed over, whichever of their functions a kernel's stacks have.
#[test]
fn pages_have_the_site_that_asked_for_them() {
    let frag = json!(["page_frag_alloc_align+0xa8", null, null, 1, 4]);
    let refill = json!(["examplewifi_rx_refill+0x90", "examplewifi", null, 1, 1]);
    let shared = [
        ("page_owner_6.1_module.txt", vec![frag.clone(), refill.clone()]),
        ("page_owner_6.1_post_alloc_hook.txt", vec![frag, refill]),
        (
            "page_owner_android_6.12.txt",
            vec![
                json!(["nf_ct_alloc_hashtable+0x84", null, null, 1, 512]),
                json!(["do_anonymous_page+0x1b0", null, null, 1, 1]),
            ],
        ),
        (
            "page_owner_minimal.txt",
            vec![
                json!(["exampledrv_open+0x5c", "exampledrv", null, 1, 1]),
                json!(["pte_alloc_one+0x15", null, null, 1, 1]),
            ],
        ),
        (
            "sorted_page_owner.txt",
            vec![
                json!(["page_frag_alloc_align+0xa8", null, null, 3, 12]),
                json!(["getname_flags+0x4c", null, "slab", 2, 2]),
            ],
        ),
        (
            "show_stacks.txt",
            vec![
                json!(["examplewifi_rx_refill+0x90", "examplewifi", null, null, 7824]),
                json!(["sk_prot_alloc+0x58", null, "slab", null, 16]),
            ],
        ),
        (
            "show_stacks_first.txt",
            vec![
                json!(["examplewifi_rx_refill+0x90", "examplewifi", null, 7824, null]),
                json!(["sk_prot_alloc+0x58", null, "slab", 16, null]),
            ],
        ),
    ];
    for (name, want) in shared {
        let document = document(&["sites"], &made(name));
        assert_eq!(rows(&document, &SITES), want, "{name}");
        assert_eq!(document["completeness"]["verdict"], "complete", "{name}");
        assert!(document["rows"].as_array().unwrap().iter().all(|row| row["call_site"].is_null()), "{name}");
        for view in ["sites", "live", "tree", "modules"] {
            let text = String::from_utf8(run_to(0, "kmemtrace-report", &[view], &[&made(name)])).unwrap();
            assert!(!text.contains("0x4000"), "no address is made up: {text}");
        }
    }
    let table = String::from_utf8(run_to(0, "kmemtrace-report", &["sites"], &[&made("show_stacks.txt")])).unwrap();
    assert!(table.contains("sk_prot_alloc+0x58 (new slab)"), "{table}");
    assert!(table.starts_with("COMPLETE   a list of page_owner_stacks of one moment: 2 stacks\n"), "{table}");
}

#[test]
fn modules_have_all_pages_of_a_text() {
    for (name, want) in [
        ("page_owner_6.1_module.txt", json!([["examplewifi", 5]])),
        ("culled_page_owner.txt", json!([["examplewifi", 12], [null, 2]])),
        ("show_stacks.txt", json!([["examplewifi", 7824], [null, 16]])),
    ] {
        for options in [&["modules"][..], &["modules", "--module-rule", "any"]] {
            let document = document(options, &made(name));
            assert_eq!(Value::from(rows(&document, &["module", "live_pages"])), want, "{name} {options:?}");
        }
    }
    let tasks = document(&["tasks", "--by", "comm"], &made("culled_page_owner.txt"));
    assert_eq!(rows(&tasks, &["comm", "live_pages"]), [json!(["wifid", 12]), json!(["init", 2])]);
}

/// Culled rows without a stack tell their module by name; the kernel's own has one that is none.
#[test]
fn a_culled_row_of_the_kernel_itself_has_no_module() {
    let dir = Directory::new(&[]);
    let rows_of = "5 times, 20 pages, module: exampledrv\n2 times, 2 pages, module: vmlinux\n";
    let path = written(&dir, "culled", rows_of);
    let document = document(&["sites", "--by", "module"], &path);
    assert_eq!(rows(&document, &["module", "live_pages"]), [json!(["exampledrv", 20]), json!([null, 2])]);
    let table = String::from_utf8(run_to(0, "kmemtrace-report", &["sites", "--by", "module"], &[&path])).unwrap();
    assert!(table.contains("(kernel)") && !table.contains("vmlinux"), "{table}");
}

/// The live screen adds up what each form of page_owner lists. A figure that the form does not tell is not 0.
#[test]
fn the_screen_has_the_sums_of_each_form() {
    for (name, symbol, want) in [
        ("sorted_page_owner.txt", "page_frag_alloc_align", "48.0 K 12 3 "),
        ("sorted_page_owner.txt", "getname_flags", "8.00 K 2 2 "),
        ("culled_page_owner.txt", "page_frag_alloc_align", "48.0 K 12 3 "),
        ("show_stacks.txt", "sk_prot_alloc", "64.0 K 16 - "),
        ("show_stacks_first.txt", "sk_prot_alloc", "- - 16 "),
        ("page_owner_android_6.12.txt", "nf_ct_alloc_hashtable", "2.00 M 512 1 "),
    ] {
        let screen = String::from_utf8(run_to(0, "kmemtrace-report", &["top", "--once"], &[&made(name)])).unwrap();
        let line = screen.lines().find(|line| line.contains(symbol)).unwrap_or_default();
        let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(line.starts_with(want), "{name}: {line}");
    }
    let refused = run("kmemtrace-report", &["top", "--once"], &[&made("alloc_traces.txt")]);
    let message = stderr(2, &refused);
    assert!(message.contains("top needs what"), "{message}");
}

/// Counts of which the bytes are not told have none; an option tells them.
#[test]
fn a_figure_that_needs_an_unknown_one_is_null() {
    let members = ["symbol", "live_objects", "live_requested", "live_allocated", "live_wasted", "age_jiffies", "pids"];
    let path = made("alloc_traces.txt");
    let told = document(&["live"], &path);
    let want = [
        json!(["example_scan_result+0x64", 5412, null, null, 692_736, [12, 450_021, 904_120], [6, 6]]),
        json!(["kstrdup+0x30", 101, null, null, 1212, told["rows"][1]["age_jiffies"], told["rows"][1]["pids"]]),
    ];
    assert_eq!(rows(&told, &members), want);
    assert_eq!((&told["rows"][0]["oldest"], &told["trace"]["first"]), (&Value::Null, &Value::Null));
    let sized = document(&["live", "--object-size", "192"], &path);
    let row = &sized["rows"][0];
    assert_eq!((&row["live_allocated"], &row["live_requested"]), (&json!(5412 * 192), &json!(5412 * 192 - 692_736)));
    let summary = document(&["summary"], &made("show_stacks_first.txt"));
    let pages = &summary["kinds"]["pages"];
    assert_eq!(
        (&pages["live_objects"], &pages["allocs"], &pages["live_allocated"]),
        (&json!(7840), &json!(7840), &Value::Null)
    );
    assert_eq!((&summary["kinds"]["kmalloc"]["allocs"], &summary["total"]["allocs"]), (&Value::Null, &Value::Null));
    assert_eq!(summary["trace"]["form"], "stacks");
    assert_eq!(summary["completeness"]["lost_events"], Value::Null);
}

const ALLOCINFO: &str = "allocinfo - version: 1.0
#     <size>  <calls> <tag info>
       16384        4 drivers/net/x.c:12 [exampledrv] func:example_open 
        8192        2 mm/slub.c:3021 func:alloc_slab_page 
";

#[test]
fn lines_of_source_make_a_tree() {
    let dir = Directory::new(&[]);
    let path = written(&dir, "allocinfo", ALLOCINFO);
    let tree = document(&["tree"], &path);
    let names = |node: &Value| -> Vec<String> {
        node["children"].as_array().unwrap().iter().map(|child| child["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(
        (tree["shows"].as_str(), names(&tree["root"])),
        (Some("tag"), vec!["drivers".to_owned(), "mm".to_owned()])
    );
    let summary = document(&["summary"], &path);
    assert_eq!(
        (&summary["kinds"]["tag"]["live_allocated"], &summary["kinds"]["tag"]["live_requested"]),
        (&json!(24_576), &Value::Null)
    );
    let sites = document(&["sites", "--top", "1"], &path);
    assert_eq!((&sites["others_tag"]["live_allocated"], &sites["others_tag"]["allocs"]), (&json!(8192), &json!(2)));
    // Without its head the text may be a part of the list.
    let part: String = ALLOCINFO.lines().skip(2).map(|line| format!("{line}\n")).collect();
    let path = written(&dir, "part", &part);
    assert_eq!(document(&["summary"], &path)["kinds"]["tag"]["live_allocated"], Value::Null);
    let sites = document(&["sites", "--top", "1"], &path);
    assert_eq!(
        (&sites["others_tag"]["live_allocated"], &sites["rows"][0]["live_allocated"]),
        (&Value::Null, &json!(16_384))
    );
}

/// Lines move between two builds; a row is file, function and module.
#[test]
fn texts_are_compared_by_what_they_list() {
    let dir = Directory::new(&[]);
    let before = written(&dir, "before", ALLOCINFO);
    let after =
        written(&dir, "after", &ALLOCINFO.replace("x.c:12", "x.c:14").replace("16384        4", "20480        5"));
    let compared = |options: &[&str], paths: &[&Path]| {
        let arguments: Vec<&str> = [&["compare", "--format", "json"], options].concat();
        json(&run_to(0, "kmemtrace-report", &arguments, paths))
    };
    let document = compared(&[], &[&before, &after]);
    let row = &document["rows"][0];
    assert_eq!(
        (&row["function"], &row["file"], &row["module"]),
        (&json!("example_open"), &json!("drivers/net/x.c"), &json!("exampledrv"))
    );
    assert_eq!((&row["change"]["live_allocated"], &row["change"]["live_objects"]), (&json!(4096), &json!(1)));
    assert_eq!(
        (&row["change"]["live_pages"], &row["per_second"], &document["before"]["seconds"]),
        (&Value::Null, &Value::Null, &Value::Null)
    );
    let document = compared(&[], &[&made("slabinfo_router.log"), &made("slabinfo_router.later")]);
    let row = &document["rows"][0];
    assert_eq!((&row["cache"], &row["kind"]), (&json!("kmalloc-4096"), &json!("kmalloc")));
    assert_eq!((&row["change"]["live_objects"], &row["change"]["slab"]["active_objs"]), (&json!(5422), &json!(5422)));
    assert_eq!(row["change"]["slab"]["objsize"], 0);
    // A cache that nobody uses is in the document, and not in the table.
    let unused = "unused_cache  0  0  64  64  1 : tunables  0  0  0 : slabdata  0  0  0\n";
    let with_unused = ["slabinfo_router.log", "slabinfo_router.later"]
        .map(|name| written(&dir, name, &(std::fs::read_to_string(made(name)).unwrap() + unused)));
    let both = [&*with_unused[0], &*with_unused[1]];
    let document = json(&run_to(0, "kmemtrace-report", &["compare", "--format", "json"], &both));
    assert!(document["rows"].as_array().unwrap().iter().any(|row| row["cache"] == "unused_cache"));
    let table = String::from_utf8(run_to(0, "kmemtrace-report", &["compare"], &both)).unwrap();
    assert!(table.contains("kmalloc-4096") && !table.contains("unused_cache"), "{table}");
    for (key, member) in [("stack", "stack"), ("module", "module"), ("task", "pid")] {
        let paths = [made("page_owner_6.1_module.txt"), made("page_owner_6.1_post_alloc_hook.txt")];
        let document = compared(&["--by", key], &[&paths[0], &paths[1]]);
        assert!(document["rows"][0].get(member).is_some(), "{key}: {}", document["rows"][0]);
    }
    let other = run("kmemtrace-report", &["compare"], &[&before, &made("alloc_traces.txt")]);
    assert!(stderr(2, &other).contains("name two of one kind"));
}

/// Texts of one input are slices of growth, by the times that are known.
#[test]
fn texts_of_one_input_are_a_series() {
    let dir = Directory::new(&[]);
    let text = |calls: u64| ALLOCINFO.replace("16384        4", &format!("{}        {calls}", calls * 4096));
    let paths = [("a-20261126-1127.txt", 6), ("b-20261126-1126.txt", 4), ("c-20261126-1128.txt", 9)]
        .map(|(name, calls)| written(&dir, name, &text(calls)));
    let paths: Vec<&Path> = paths.iter().map(PathBuf::as_path).collect();
    let grown = |options: &[&str]| {
        let arguments: Vec<&str> = [&["growth", "--format", "json"], options].concat();
        json(&run_to(0, "kmemtrace-report", &arguments, &paths))
    };
    let document = grown(&[]);
    assert_eq!((&document["slices_from"], &document["slices"][1]), (&json!("name"), &json!(1_795_692_420)));
    let row = &document["rows"][0];
    assert_eq!(
        (&row["symbol"], &row["live_allocated"], &row["allocs"]),
        (&json!("example_open"), &json!([16_384, 24_576, 36_864]), &Value::Null)
    );
    assert_eq!(document["total_tag"]["live_allocated"], json!([24_576, 32_768, 45_056]));
    let document = grown(&["--times", "300,200,100"]);
    assert_eq!((&document["slices_from"], &document["slices"]), (&json!("option"), &json!([100, 200, 300])));
    let row = document["rows"].as_array().unwrap().iter().find(|row| row["symbol"] == "example_open").unwrap();
    assert_eq!(row["live_allocated"], json!([36_864, 16_384, 24_576]));
    let wrong = run("kmemtrace-report", &["growth", "--times", "1,2"], &paths);
    assert!(stderr(2, &wrong).contains("give one for each"));
    // Other views have the last text.
    let last = json(&run_to(0, "kmemtrace-report", &["sites", "--format", "json"], &paths));
    assert_eq!(last["rows"][0]["live_allocated"], 36_864);
}

/// Views that need what a text does not have are refused with the names of those that it has.
#[test]
fn views_without_an_answer_are_refused() {
    let dir = Directory::new(&[]);
    let allocinfo = written(&dir, "allocinfo", ALLOCINFO);
    for (path, arguments, reason) in [
        (&made("slabinfo_router.log"), &["modules"][..], "use summary, caches, compare, growth"),
        (&made("slabinfo_router.log"), &["live"], "use summary"),
        (&made("alloc_traces.txt"), &["tasks"], "use summary"),
        (&made("alloc_traces.txt"), &["growth"], "has no times"),
        (&made("alloc_traces.txt"), &["live", "--objects"], "does not list single objects"),
        (&allocinfo, &["tree", "--by", "stack"], "has no stacks"),
        (&allocinfo, &["sites", "--by", "pid"], "does not tell threads"),
        (&allocinfo, &["caches"], "use summary"),
        (&made("page_owner_minimal.txt"), &["cross"], "use summary"),
        (&made("page_owner_minimal.txt"), &["leaks"], "use summary"),
        (&made("page_owner_minimal.txt"), &["summary", "--fail-on", "inferred_free"], "--fail-on"),
        (&made("page_owner_minimal.txt"), &["balance"], "use summary"),
    ] {
        let output = run("kmemtrace-report", arguments, &[path]);
        let told = stderr(2, &output);
        assert!(told.contains(reason) && told.lines().count() == 1, "{arguments:?}: {told}");
    }
    let recording = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/amd64-6.18");
    let output = run("kmemtrace-report", &["summary", "--cache-name", "x"], &[&recording]);
    assert!(stderr(2, &output).contains("--cache-name"));
}

const MEMINFO: &str = "MemTotal:       1000 kB\nMemFree:         100 kB\nBuffers:          10 kB\nCached:          200 kB\nSwapCached:        0 kB\n\
AnonPages:       300 kB\nShmem:            20 kB\nSlab:             70 kB\nSReclaimable:     40 kB\nSUnreclaim:       30 kB\n\
KernelStack:       5 kB\nPageTables:        8 kB\nVmallocUsed:      12 kB\nPercpu:            1 kB\n";

/// Parts of memory have bytes, and rows of them do not add up.
#[test]
fn counters_of_memory_are_parts() {
    let dir = Directory::new(&[]);
    let before = written(&dir, "before", MEMINFO);
    let after = written(&dir, "after", &MEMINFO.replace(" 300 kB", " 360 kB"));
    let balance = document(&["balance"], &before);
    assert_eq!(
        (&balance["memtotal"], &balance["memfree"], &balance["memfree_change"]),
        (&json!(1_024_000), &json!(102_400), &Value::Null)
    );
    let part = |document: &Value, name: &str| -> Value {
        let parts = document["parts"].as_array().or(document["balance"].as_array()).unwrap().iter();
        parts.clone().find(|part| part["part"] == name).unwrap()["bytes"].clone()
    };
    assert_eq!(part(&balance, "files"), json!((200 + 10 - 20) * 1024));
    assert_eq!(balance["unexplained"], json!((1000 - 100 - 300 - 20 - 190 - 40 - 30 - 8 - 12 - 1) * 1024));
    let summary = document(&["summary"], &before);
    assert_eq!(part(&summary, "anonymous"), json!(300 * 1024));
    assert_eq!((&summary["kinds"]["kmalloc"]["allocs"], &summary["total"]["allocs"]), (&Value::Null, &Value::Null));
    let compared = json(&run_to(0, "kmemtrace-report", &["compare", "--format", "json"], &[&before, &after]));
    let row = &compared["rows"][0];
    assert_eq!(
        (&row["part"], &row["kind"], &row["change"]["live_allocated"]),
        (&json!("anonymous"), &Value::Null, &json!(60 * 1024))
    );
    assert_eq!((&row["before"]["allocs"], &compared["total"]), (&Value::Null, &Value::Null));
    let grown =
        json(&run_to(0, "kmemtrace-report", &["growth", "--format", "json", "--times", "1,2"], &[&before, &after]));
    assert_eq!(
        (&grown["rows"][0]["part"], &grown["rows"][0]["live_allocated"]),
        (&json!("anonymous"), &json!([300 * 1024, 360 * 1024]))
    );
}

/// Files for other programs are written of texts with stacks.
#[test]
fn stacks_of_texts_go_to_other_programs() {
    let dir = Directory::new(&[]);
    for name in ["page_owner_6.1_module.txt", "show_stacks.txt"] {
        for to in ["pprof", "folded", "parquet-sites"] {
            let output = dir.file(&format!("{name}.{to}"));
            let output = output.to_str().unwrap();
            run_to(0, "kmemtrace-report", &["export", "--to", to, "-o", output], &[&made(name)]);
        }
        let page = dir.file(&format!("{name}.html"));
        run_to(0, "kmemtrace-report", &["html", "-o", page.to_str().unwrap()], &[&made(name)]);
    }
    let folded = std::fs::read_to_string(dir.file("show_stacks.txt.folded")).unwrap();
    assert!(
        folded.lines().any(|line| line.contains("examplewifi_rx_refill") && line.ends_with(" 32047104")),
        "{folded}"
    );
    let output =
        run("kmemtrace-report", &["export", "--to", "perfetto", "-o", "x"], &[&made("page_owner_minimal.txt")]);
    assert_eq!(output.status.code(), Some(2));
}
