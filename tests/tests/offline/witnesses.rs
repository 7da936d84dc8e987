//! Texts that tell of memory beside page_owner: slab's own lists, allocinfo, kmemleak, vmallocinfo, OOM reports; archives of them.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use kmemtrace_tests::programs::{data, document, run, run_to, stderr};
use kmemtrace_tests::recording::Directory;
use serde_json::{Value, json};

const ALLOC_TRACES: &str =
    "   5412 example_scan+0x64/0x1c0 [exampledrv] waste=692736/128 age=12/450021/904120 pid=6 cpus=0
        __kmalloc+0xa8/0x198
        example_scan+0x64/0x1c0 [exampledrv]

    101 kstrdup+0x30/0x58 age=900 pid=1-300 cpus=0-1,4
        __kmalloc_track_caller+0xb0/0x1a0
        kstrdup+0x30/0x58

";
const SLABINFO: &str = "slabinfo - version: 2.1
# name            <active_objs> <num_objs> <objsize> <objperslab> <pagesperslab> : tunables <limit> : slabdata <active_slabs> <num_slabs>
kmalloc-4k          5532   5551   4352    7    8 : tunables    0    0    0 : slabdata    793    793      0
dentry               273    280    192   21    1 : tunables    0    0    0 : slabdata     28     28      0
";
const ALLOCINFO: &str = "allocinfo - version: 1.0
#     <size>  <calls> <tag info>
       16384        4 drivers/x.c:12 [exampledrv] func:example_open 
        8192        2 mm/slub.c:3021 func:alloc_slab_page 
";
const KMEMLEAK: &str = "unreferenced object 0xffff888112345678 (size 192):
  comm \"example\", pid 77, jiffies 4294901234 (age 12.345s)
  backtrace:
    [<00000000abcdef01>] kmem_cache_alloc+0x1c/0x40
    [<00000000abcdef02>] example_open+0x1c/0x40 [exampledrv]
";

const OOM: &str = "[   12.345678] example invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0
[   12.345679] Mem-Info:
[   12.345680] active_anon:100 inactive_anon:20 isolated_anon:1
[   12.345680]  active_file:30 inactive_file:40 isolated_file:2
[   12.345680]  unevictable:5 dirty:0 writeback:0
[   12.345680]  slab_reclaimable:50 slab_unreclaimable:60
[   12.345680]  mapped:7 shmem:8 pagetables:9
[   12.345680]  free:500 free_pcp:11 free_cma:0
[   12.345681] Node 0 active_anon:400kB inactive_anon:80kB kernel_stack:160kB pagetables:36kB all_unreclaimable? no
[   12.345682] Node 0 DMA: 3*4kB (UM) 2*8kB (U) 0*16kB = 28kB
[   12.345683] 1000 pages RAM
[   12.345683] 100 pages reserved
[   12.345684] Unreclaimable slab info:
[   12.345684] Name                      Used          Total
[   12.345684] kmalloc-64                 4KB          8KB
[   12.345685] Tasks state (memory values in pages):
[   12.345685] [  pid  ]   uid  tgid total_vm      rss pgtables_bytes swapents oom_score_adj name
[   12.345685] [     77]     0    77     1234      567    45056        0             0 exa mple
[   12.345686] Out of memory: Killed process 77 (exa mple) total-vm:4936kB, anon-rss:2000kB, file-rss:268kB
";

fn written(dir: &Directory, name: &str, text: &str) -> PathBuf {
    let path = dir.file(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, text).unwrap();
    path
}

/// The row of a document whose member is this text.
fn row<'d>(document: &'d Value, member: &str, is: &str) -> &'d Value {
    let rows = document["rows"].as_array().unwrap();
    rows.iter().find(|row| row[member] == is).unwrap_or_else(|| panic!("{is}: {document:#}"))
}

fn is(row: &Value, members: &[(&str, Value)]) {
    for (name, value) in members {
        assert_eq!(&row[*name], value, "{name}: {row:#}");
    }
}

#[test]
fn lists_of_a_cache_have_its_size_from_folder_or_options() {
    let dir = Directory::on_disk();
    let plain = written(&dir, "alloc_traces.txt", ALLOC_TRACES);
    let sites = document(&["sites"], &plain);
    is(
        &sites["trace"],
        &[("input", json!("alloc_traces")), ("form", json!("alloc_traces")), ("one_moment", json!(true))],
    );
    let scan = [
        ("live_objects", json!(5412)),
        ("live_allocated", json!(null)),
        ("live_wasted", json!(692_736)),
        ("module", json!("exampledrv")),
        ("kind", json!("kmalloc")),
        ("age_jiffies", json!([12, 450_021, 904_120])),
        ("pids", json!([6, 6])),
    ];
    is(row(&sites, "symbol", "example_scan+0x64"), &scan);
    let sized = document(&["sites", "--object-size", "256"], &plain);
    is(row(&sized, "symbol", "example_scan+0x64"), &[("live_allocated", json!(5412 * 256))]);
    let of_cache = written(&dir, "slab/kmalloc-1k/alloc_traces", ALLOC_TRACES);
    let known = document(&["sites"], &of_cache);
    let bytes = 5412 * 1024;
    let members = [("live_allocated", json!(bytes)), ("live_requested", json!(bytes - 692_736))];
    is(row(&known, "symbol", "example_scan+0x64"), &members);
}

#[test]
fn lists_of_frees_are_refused() {
    let dir = Directory::on_disk();
    for (name, text, option) in [
        ("slab/kmalloc-64/free_traces", ALLOC_TRACES, &[][..]),
        ("other.txt", "     12 <not-available> age=4294967 pid=0\n", &[]),
        ("alloc_traces", ALLOC_TRACES, &["--form", "free_traces"]),
    ] {
        let path = written(&dir, name, text);
        let output = run("kmemtrace-report", &[&["sites"], option].concat(), &[&path]);
        assert!(stderr(2, &output).contains("by their previous free"), "{name}");
    }
    let path = written(&dir, "free_traces", ALLOC_TRACES);
    run_to(0, "kmemtrace-report", &["sites", "--form", "alloc_traces"], &[&path]);
}

#[test]
fn caches_of_slabinfo_have_its_columns() {
    let dir = Directory::on_disk();
    let before = written(&dir, "before.txt", SLABINFO);
    let caches = document(&["caches"], &before);
    let kmalloc = row(&caches, "cache", "kmalloc-4k");
    is(kmalloc, &[("kind", json!("kmalloc")), ("live_objects", json!(5532)), ("live_allocated", json!(5532 * 4352))]);
    is(&kmalloc["slab"], &[("objsize", json!(4352)), ("num_slabs", json!(793)), ("bytes", json!(793 * 8 * 4096))]);
    let headless = written(&dir, "grep.txt", &SLABINFO[SLABINFO.find("kmalloc").unwrap()..]);
    assert_eq!(document(&["caches"], &headless)["rows"], caches["rows"]);
    let output = run("kmemtrace-report", &["sites"], &[&before]);
    assert!(stderr(2, &output).contains("caches"));
}

#[test]
fn lines_of_allocinfo_are_rows_by_source() {
    let dir = Directory::on_disk();
    let sites = document(&["sites"], &written(&dir, "allocinfo", ALLOCINFO));
    let open = row(&sites, "symbol", "example_open");
    is(
        open,
        &[
            ("kind", json!("tag")),
            ("live_allocated", json!(16384)),
            ("live_objects", json!(4)),
            ("rounded", json!(false)),
        ],
    );
    is(&open["source"], &[("file", json!("drivers/x.c")), ("line", json!(12)), ("function", json!("example_open"))]);
    // A list that may lack lines has no sums.
    let cut = written(&dir, "top", &ALLOCINFO[ALLOCINFO.find("       16384").unwrap()..]);
    let summary = document(&["summary"], &cut);
    assert_eq!(summary["kinds"]["tag"]["live_allocated"], json!(null), "{summary:#}");
}

#[test]
fn numbers_that_no_machine_has_end_no_view() {
    let dir = Directory::on_disk();
    let lines = ["a", "b", "c"].map(|name| format!("{0} {0} mm/slub.c:1 func:{name}\n", i64::MAX));
    let head = &ALLOCINFO[..ALLOCINFO.find("       16384").unwrap()];
    let path = written(&dir, "allocinfo", &format!("{head}{}", lines.concat()));
    for view in ["summary", "sites", "tree", "modules", "account", "live", "growth", "caches"] {
        let output = run("kmemtrace-report", &[view], &[&path]);
        assert!(matches!(output.status.code(), Some(0..=3)), "{view}: {}", String::from_utf8_lossy(&output.stderr));
    }
    let summary = document(&["summary"], &path);
    assert_eq!(summary["completeness"]["saturated"], json!(true), "{summary:#}");
    let shown = run("kmemtrace-report", &["summary"], &[&path]);
    let shown = String::from_utf8_lossy(&shown.stdout);
    assert!(shown.contains("A sum that does not fit 64 bits is shown as the largest number that does."), "{shown}");
}

#[test]
fn objects_of_kmemleak_have_threads_and_sites() {
    let dir = Directory::on_disk();
    let path = written(&dir, "kmemleak", KMEMLEAK);
    let members = [("live_objects", json!(1)), ("live_allocated", json!(192)), ("kind", json!("cache"))];
    is(row(&document(&["sites"], &path), "symbol", "example_open+0x1c"), &members);
    let objects = document(&["live", "--objects"], &path);
    is(
        &objects["rows"][0],
        &[("address", json!("0xffff888112345678")), ("pid", json!(77)), ("comm", json!("example"))],
    );
    let cut = written(&dir, "cut", &KMEMLEAK.repeat(2)[..KMEMLEAK.len() + 100]);
    assert_eq!(document(&["summary"], &cut)["completeness"]["verdict"], "truncated");
}

/// Single objects have the site and the kind that their stacks tell, and no figure that the text does not have.
#[test]
fn events_of_a_text_are_what_it_tells() {
    let dir = Directory::on_disk();
    let path = written(&dir, "kmemleak", KMEMLEAK);
    let events = run_to(0, "kmemtrace-report", &["events", "--format", "jsonl"], &[&path]);
    let event: Value = serde_json::from_slice(events.split(|byte| *byte == b'\n').next().unwrap()).unwrap();
    is(&event, &[("requested", json!(null)), ("allocated", json!(192)), ("call_site", json!(null))]);
    let table = run_to(0, "kmemtrace-report", &["events", "--format", "table"], &[&path]);
    let table = String::from_utf8(table).unwrap();
    assert!(table.contains("example_open+0x1c [exampledrv]"), "{table}");
    let of_site = run_to(0, "kmemtrace-report", &["events", "--format", "jsonl", "--site", "example_open"], &[&path]);
    assert_eq!(of_site, events);
    for (size, count) in [("..4K", 1), ("4097..", 0)] {
        let pages = written(&dir, "owners", &PAGES.repeat(2));
        let sites = document(&["sites", "--size", size], &pages);
        assert_eq!(sites["rows"].as_array().unwrap().len(), count, "{size}");
    }
}

const PAGES: &str = "\
Page allocated via order 0, mask 0xcc0(GFP_KERNEL), pid 7, tgid 7 (a), ts 1200 ns
PFN 4096 type Unmovable Block 8 type Unmovable Flags 0x0()
 example_open+0x1c/0x40 [exampledrv]

";

/// What stands around a text tells the machine. A row without a known number stands.
#[test]
fn lines_around_a_text_tell_the_machine() {
    let dir = Directory::on_disk();
    let uname =
        "# uname -a\nLinux host 6.1.0-18-amd64 #1 SMP PREEMPT_DYNAMIC Debian 6.1.76-1 (2024-02-01) x86_64 GNU/Linux\n";
    let path = written(&dir, "posted", &format!("{uname}# cat owners\n{PAGES}"));
    let sites = document(&["sites"], &path);
    is(&sites["trace"], &[("kernel", json!("6.1.0-18-amd64")), ("arch", json!("x86_64"))]);
    let crash = "CACHE             OBJSIZE  ALLOCATED     TOTAL  SLABS  SSIZE  NAME\nffff888100042b00     1024          ?         ?      ?     8k  example\n";
    let path = written(&dir, "kmem", crash);
    let caches = document(&["caches"], &path);
    is(row(&caches, "cache", "example"), &[("live_objects", json!(null)), ("live_allocated", json!(null))]);
}

#[test]
fn reports_of_memory_that_ran_out_have_parts_and_tasks() {
    let dir = Directory::on_disk();
    let path = written(&dir, "dmesg.txt", OOM);
    let balance = document(&["balance"], &path);
    is(&balance, &[("memtotal", json!(900 * 4096)), ("memfree", json!(500 * 4096))]);
    let part = |name: &str| {
        let parts = balance["parts"].as_array().unwrap();
        parts.iter().find(|part| part["part"] == name).map(|part| part["bytes"].clone())
    };
    assert_eq!(part("anonymous"), Some(json!((100 + 20 + 1 - 8) * 4096)));
    assert_eq!(part("kernel stacks"), Some(json!(160 << 10)));
    assert_eq!(balance["tasks"], json!([{ "pid": 77, "comm": "exa mple", "rss": 567 * 4096 }]));
    let slabs = document(&["caches"], &path);
    let slab = row(&slabs, "cache", "kmalloc-64");
    is(slab, &[("live_allocated", json!(4 << 10)), ("kind", json!("kmalloc"))]);
    assert_eq!(slab["slab"]["bytes"], json!(8 << 10));
}

#[test]
fn archives_are_read_as_their_members() {
    let dir = Directory::on_disk();
    for name in ["slab/kmalloc-64/alloc_traces", "slab/kmalloc-1k/alloc_traces"] {
        written(&dir, name, ALLOC_TRACES);
    }
    written(&dir, "slab/notes.txt", "nothing of interest\n");
    let archive = dir.file("slab.tar.gz");
    let tar = Command::new("tar").arg("-C").arg(dir.path()).arg("-czf").arg(&archive).arg("slab").status().unwrap();
    assert!(tar.success());
    let both = document(&["sites", "--by", "cache,site"], &archive);
    let objects = |cache: &str| -> u64 {
        let rows = both["rows"].as_array().unwrap().iter().filter(|row| row["cache"] == cache);
        rows.map(|row| row["live_objects"].as_u64().unwrap()).sum()
    };
    assert_eq!((objects("kmalloc-64"), objects("kmalloc-1k")), (5513, 5513), "{both:#}");
    let one = document(&["sites", "--member", "slab/kmalloc-64/alloc_traces"], &archive);
    is(row(&one, "symbol", "kstrdup+0x30"), &[("live_objects", json!(101))]);
}

/// A recording keeps the kernel's texts, as slabinfo, which are not read in its place. A capture has them beside it.
#[test]
fn a_packed_recording_is_told_as_such() {
    let dir = Directory::on_disk();
    let sample = data("amd64-6.18");
    let archive = dir.file("recording.tar");
    let tar = Command::new("tar").arg("-C").arg(&sample).arg("-cf").arg(&archive).arg(".").status().unwrap();
    assert!(tar.success());
    let capture = data("tree-stacks-amd64-6.1.tar.zst");
    for (program, archive) in [
        ("kmemtrace-report", &archive),
        ("kmemtrace-check", &archive),
        ("kmemtrace-report", &capture),
        ("kmemtrace-check", &capture),
    ] {
        let said = run(program, &[], &[archive]);
        assert!(stderr(3, &said).contains("is an archive with a recording in it: unpack it"), "{said:?}");
    }
    for name in ["meta.out", "cpu0.out"] {
        let packed = dir.file(&format!("{name}.zst"));
        fs::write(&packed, zstd::bulk::compress(&fs::read(sample.join(name)).unwrap(), 1).unwrap()).unwrap();
        let said = run("kmemtrace-report", &[], &[&packed]);
        assert!(stderr(3, &said).contains("is, when unpacked, a file of a recording; name the directory"), "{said:?}");
    }
}

#[test]
fn files_of_others_are_told_by_their_content() {
    let dir = Directory::on_disk();
    for (text, said) in [
        ("{\"traceEvents\": []}", "JSON of another program"),
        ("[   12.3] usb 1-1: new device\n[   12.4] usb 1-1: Product\n", "a kernel log without a report on memory"),
        ("[  1.0] BUG: KASAN: slab-use-after-free in example_open+0x1c/0x40\n", "a report of KASAN"),
    ] {
        let path = written(&dir, "other", text);
        let output = run("kmemtrace-report", &["summary"], &[&path]);
        assert!(stderr(3, &output).contains(said), "{text}: {output:?}");
    }
}
