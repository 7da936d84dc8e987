//! Texts of page_owner: groups and selections beside those of the kernel's page_owner_sort, owners of single blocks, and texts that
//! make no sense.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use kmemtrace_tests::generate::Random;
use kmemtrace_tests::measured;
use kmemtrace_tests::programs::{data, document, json, program, run, run_to};
use kmemtrace_tests::recording::Directory;
use serde_json::Value;

/// Blocks and pages by the name of their group.
type Sums = BTreeMap<String, (u64, u64)>;

fn unpacked(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("data").join(name);
    String::from_utf8(zstd::decode_all(&std::fs::read(path).unwrap()[..]).unwrap()).unwrap()
}

/// The recorded text, of Linux 6.1.
fn recorded() -> String {
    unpacked("page_owner-amd64-6.1.txt.zst")
}

/// The text as older kernels write it: with thread and time of the allocation alone and frame numbers in hexadecimal digits, or with
/// neither and an address before each frame.
fn older(text: &str, has_threads: bool) -> String {
    let line = |line: &str| -> Option<String> {
        if let Some((head, rest)) = line.split_once(", pid ").filter(|_| line.starts_with("Page allocated")) {
            let (pid, times) = (rest.split(',').next()?, rest.rsplit_once("), ts ")?.1);
            let time = times.split(" ns").next()?;
            return Some(if has_threads { format!("{head}, pid {pid}, ts {time} ns") } else { head.to_owned() });
        }
        if let Some((pfn, rest)) = line.strip_prefix("PFN ").and_then(|rest| rest.split_once(' ')) {
            let pfn: u64 = pfn.parse().ok()?;
            return Some(if has_threads { format!("PFN {pfn:#x} {rest}") } else { line.to_owned() });
        }
        match line {
            frame if frame.starts_with(' ') && !has_threads => Some(format!(" [<ffffffff81000000>]{frame}")),
            note if note.starts_with("Charged") && !has_threads => None,
            other => Some(other.to_owned()),
        }
    };
    text.lines().filter_map(line).map(|line| line + "\n").collect()
}

fn file(dir: &Directory, text: &str) -> PathBuf {
    dir.write("owners", text.as_bytes());
    dir.file("owners")
}

/// Groups in an output of page_owner_sort. Stacks stand without addresses and sizes, and lines that are no frames are left out.
fn sorted(output: &str, key: &str) -> Sums {
    let mut sums = Sums::new();
    for group in
        output.split("\n\n").flat_map(|part| if key == "stacktrace" { vec![part] } else { part.lines().collect() })
    {
        let Some((counts, rest)) = group.trim_start().split_once(" pages") else { continue };
        let (blocks, pages) = counts.split_once(" times, ").unwrap();
        let name = match key {
            "stacktrace" => stack(rest.lines().skip(1)),
            "name" => rest.strip_prefix(", task_comm_name: ").unwrap().to_owned(),
            _ => rest.rsplit(' ').next().unwrap().to_owned(),
        };
        let sum = sums.entry(name).or_default();
        *sum = (sum.0 + blocks.parse::<u64>().unwrap(), sum.1 + pages.parse::<u64>().unwrap());
    }
    sums
}

/// Frames as the report names them.
fn stack<'l>(lines: impl Iterator<Item = &'l str>) -> String {
    let frames = lines.filter_map(|line| line.strip_prefix(' ')).map(|frame| {
        let frame = frame.rsplit("] ").next().unwrap();
        frame.split('/').next().unwrap().to_owned()
    });
    let frames: Vec<String> = frames.collect();
    let is = |name: &str| frames.iter().any(|frame| frame.starts_with(name));
    match (is("register_early_stack"), is("register_dummy_stack")) {
        (true, _) => "before page_owner".to_owned(),
        (_, true) => "no stack".to_owned(),
        _ => frames.join(" "),
    }
}

/// Groups of the report.
fn grouped(document: &Value, member: &str) -> Sums {
    let name = |row: &Value| match &row[member] {
        Value::String(number) if member == "stack" => {
            let frames = document["stacks"][number].as_array().unwrap();
            let frames: Vec<&str> = frames.iter().map(|frame| frame["symbol"].as_str().unwrap()).collect();
            if frames[0].starts_with("before page_owner") { "before page_owner".to_owned() } else { frames.join(" ") }
        }
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let figure = |row: &Value, member: &str| row[member].as_u64().unwrap();
    let rows = document["rows"].as_array().unwrap().iter();
    rows.map(|row| (name(row), (figure(row, "live_objects"), figure(row, "live_pages")))).collect()
}

fn sites(path: &Path, options: &[&str]) -> Value {
    let options: Vec<&str> = ["sites", "--format", "json"].iter().chain(options).copied().collect();
    json(&run_to(0, "kmemtrace-report", &options, &[path]))
}

/// Output of page_owner_sort: the recorded one, or that of the program which `PAGE_OWNER_SORT` names.
fn page_owner_sort(path: &Path, form: &str, key: &str) -> String {
    let Some(program) = std::env::var_os("PAGE_OWNER_SORT") else {
        return unpacked(&format!("page_owner_sort/{form}-{key}.txt.zst"));
    };
    let output = path.with_extension("sorted");
    let done = Command::new(program).args(["--cull", key]).args([path, &output]).output().unwrap();
    assert!(done.status.success());
    std::fs::read_to_string(output).unwrap()
}

#[test]
fn groups_are_those_of_page_owner_sort() {
    let text = recorded();
    let dir = Directory::new(&[]);
    for (form, text, keys) in [
        ("6.1", text.clone(), &["pid", "tgid", "name", "stacktrace"][..]),
        ("0x", older(&text, true), &["pid", "stacktrace"]),
        ("plain", older(&text, false), &["stacktrace"]),
    ] {
        let path = file(&dir, &text);
        for &key in keys {
            let expected = sorted(&page_owner_sort(&path, form, key), key);
            let member = match key {
                "name" => "comm",
                "stacktrace" => "stack",
                other => other,
            };
            let document = sites(&path, &["--cull", key]);
            assert_eq!(grouped(&document, member), expected, "{form} by {key}");
            let (blocks, pages) = expected.values().fold((0, 0), |sum, group| (sum.0 + group.0, sum.1 + group.1));
            assert_eq!((blocks, pages), (2_614, 2_693), "{form}");
            assert_eq!(document["trace"]["input"], "page_owner");
        }
    }
}

/// The lists that page_owner_sort made of a dump have the dump's sums.
#[test]
fn lists_of_page_owner_sort_have_the_sums_of_their_dump() {
    let dir = Directory::new(&[]);
    let dump = file(&dir, &recorded());
    let list = dir.file("list");
    for (key, member) in [("pid", "pid"), ("tgid", "tgid"), ("name", "comm")] {
        std::fs::write(&list, unpacked(&format!("page_owner_sort/6.1-{key}.txt.zst"))).unwrap();
        let document = sites(&list, &["--by", member]);
        assert_eq!(document["trace"]["form"], "culled");
        assert_eq!(grouped(&document, member), grouped(&sites(&dump, &["--cull", key]), member), "{key}");
    }
    std::fs::write(&list, unpacked("page_owner_sort/6.1-stacktrace.txt.zst")).unwrap();
    let by_site = |path: &Path| -> BTreeMap<String, (u64, u64)> {
        let document = sites(path, &[]);
        assert_eq!(document["completeness"]["skipped_lines"], 0);
        let row = |row: &Value| {
            let name = ["symbol", "module", "through"].map(|member| row[member].to_string()).join(" ");
            (name, (row["live_objects"].as_u64().unwrap(), row["live_pages"].as_u64().unwrap()))
        };
        document["rows"].as_array().unwrap().iter().map(row).collect()
    };
    assert_eq!(by_site(&list), by_site(&dump));
}

/// Short words, signs and several keys; rows are sorted by blocks where nothing else is asked for.
#[test]
fn words_and_letters_of_page_owner_sort_are_taken() {
    let dir = Directory::new(&[]);
    let path = file(&dir, &recorded());
    let column = |options: &[&str], member: &str| -> Vec<Value> {
        let document = sites(&path, options);
        document["rows"].as_array().unwrap().iter().map(|row| row[member].clone()).collect()
    };
    assert_eq!(column(&["--cull", "p"], "pid")[..3], [1, 28, 7].map(Value::from));
    assert_eq!(column(&["--cull", "p", "--sort", "-p"], "pid")[..3], [32, 30, 29].map(Value::from));
    assert_eq!(column(&["--cull", "p,tg", "--sort", "tg"], "tgid")[..3], [1, 2, 7].map(Value::from));
    assert_eq!(column(&["--cull=n", "--sort=-n", "--pid=1"], "comm")[..], ["swapper/0", "init"].map(Value::from));
    assert_eq!(column(&["--cull", "n,f", "--name", "dd"], "released")[..], [Value::from(false)]);
    assert_eq!(column(&["--cull", "ator", "--tgid", "28"], "live_objects"), [512, 1].map(Value::from));
    assert_eq!(column(&["--cull", "pid", "--sort", "live", "--tgid", "28,7"], "pid"), [28, 7].map(Value::from));
}

/// Groups come by the times of their blocks, of which a script takes the first ones out of the text.
#[test]
fn groups_come_by_the_times_of_their_blocks() {
    let (dir, text) = (Directory::new(&[]), recorded());
    let path = file(&dir, &text);
    let number = |line: &str, word: &str| -> u64 {
        let rest = &line[line.find(word).unwrap() + word.len()..];
        rest[..rest.find([' ', ',']).unwrap()].parse().unwrap()
    };
    for (words, time) in [(["alloc_ts", "at", "-alloc_ts"], ", ts "), (["free_ts", "+ft", "-ft"], ", free_ts ")] {
        let mut first = BTreeMap::new();
        for line in text.lines().filter(|line| line.starts_with("Page allocated")) {
            if number(line, ", free_ts ") <= number(line, ", ts ") {
                let oldest = first.entry(number(line, ", pid ")).or_insert(u64::MAX);
                *oldest = number(line, time).min(*oldest);
            }
        }
        let mut up: Vec<u64> = first.keys().copied().collect();
        up.sort_by_key(|pid| (first[pid], *pid));
        let mut down = up.clone();
        down.sort_by_key(|pid| (Reverse(first[pid]), *pid));
        for (word, pids) in words.into_iter().zip([&up, &up, &down]) {
            let document = sites(&path, &["--cull", "pid", &format!("--sort={word}")]);
            let rows: Vec<u64> =
                document["rows"].as_array().unwrap().iter().map(|row| row["pid"].as_u64().unwrap()).collect();
            assert_eq!(&rows, pids, "{word}");
        }
    }
}

/// Sums need no memory for a block: they are there under a limit of data that a list of all blocks exceeds.
#[test]
fn memory_goes_by_distinct_stacks() {
    let dir = Directory::new(&[]);
    let mut text = String::new();
    for pfn in 0..BLOCKS {
        writeln!(text, "Page allocated via order 0, mask 0x0, pid 1, tgid 1 (a), ts {pfn} ns, free_ts 0 ns").unwrap();
        writeln!(text, "PFN {pfn} type Movable Block 0 type Movable Flags 0x0()\n foo+0x4/0x40 [foo]\n").unwrap();
    }
    let path = file(&dir, &text);
    let limited = |arguments: &[&str]| {
        let mut report = Command::new("sh");
        report.args(["-c", "ulimit -d 24576 && exec \"$@\"", "sh"]).arg(program("kmemtrace-report"));
        report.args(arguments).arg(&path).output().unwrap()
    };
    let output = limited(&["sites", "--cull", "st,pid", "-j", "1", "--format", "json"]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(json(&output.stdout)["rows"][0]["live_pages"], BLOCKS);
    assert!(!limited(&["live", "--objects", "-j", "1", "--format", "json"]).status.success());
}

/// What asks for single blocks takes 24 bytes for each of them: threads and stacks are kept once, and their pairs are not kept.
#[test]
fn single_blocks_take_no_more_where_every_thread_has_every_stack() {
    const PAIRS: u64 = 100_000;
    const MOST_KIB: u64 = 64 << 10;
    /// Most of the views that have no row for a pair.
    const FEW_ROWS_KIB: u64 = 40 << 10;
    let dir = Directory::new(&[]);
    let mut random = Random::new(7);
    let mut text = String::new();
    for pfn in 0..PAIRS {
        let (pid, stack, at) = (1 + random.below(2000), random.below(2000), 1 + random.below(1 << 40));
        writeln!(
            text,
            "Page allocated via order 0, mask 0x0, pid {pid}, tgid {pid} (c{pid}), ts {at} ns, free_ts 0 ns"
        )
        .unwrap();
        writeln!(
            text,
            "PFN {pfn} type Movable Block 0 type Movable Flags 0x0()\n foo_{stack}+0x4/0x40 [foo]\n bar+0x4/0x40\n"
        )
        .unwrap();
    }
    let path = file(&dir, &text);
    let exported = dir.path().join("objects.parquet");
    let exported = exported.to_str().unwrap();
    let asked: [&[&str]; 6] = [
        &["live", "--objects", "--format", "json"],
        &["live", "--objects", "--top", "5"],
        &["sites", "--by", "pid", "--time", "1%,99%", "--format", "json"],
        &["tasks", "--format", "json"],
        &["top", "--once"],
        &["export", "--to", "parquet-objects", "-o", exported],
    ];
    for arguments in asked {
        let mut report = Command::new(program("kmemtrace-report"));
        // The screen has one thread anyway.
        let threads: &[&str] = if arguments[0] == "top" { &[] } else { &["-j", "1"] };
        let ran = measured::run(report.args(arguments).args(threads).arg(&path), Duration::from_secs(300));
        assert_eq!(ran.status, Some(0), "{arguments:?}: {}", ran.stderr);
        let most = if ["tasks", "top"].contains(&arguments[0]) { FEW_ROWS_KIB } else { MOST_KIB };
        assert!(ran.peak < most, "{arguments:?}: {} KiB", ran.peak);
    }
}

/// Blocks that are alike are read together, and each of them has a stack all the same.
#[test]
fn each_view_has_the_same_number_of_stacks() {
    let dir = Directory::new(&[]);
    let path = file(&dir, &recorded());
    let blocks = document(&["summary"], &path)["kinds"]["pages"]["live_objects"].clone();
    for view in [&["tasks"][..], &["modules"], &["tree", "--by", "stack"], &["live", "--objects"]] {
        let document = document(view, &path);
        assert_eq!((&document["stacks_seen"], &document["stacks_distinct"]), (&blocks, &Value::from(158)), "{view:?}");
    }
}

/// Blocks of a text; a list of them takes 24 bytes each.
const BLOCKS: u64 = 900_000;

const HELD: &str = "\
Page allocated via order 1, mask 0xcc0(GFP_KERNEL), pid 7, tgid 6 (sh), ts 300 ns, free_ts 0 ns
PFN 16 type Unmovable Block 0 type Unmovable Flags 0x0()
 __alloc_pages+0x10/0x20
 foo+0x4/0x40 [foo]
Page has been migrated, last migrate reason: compaction
Charged (via objcg) to offline memcg some.scope

Page allocated via order 0, mask 0x0, pid 7, tgid 6 (), ts 9 (dd), ts 500 ns, free_ts 0 ns
PFN 18 type Movable Block 0 type Movable Flags 0x0()
 foo+0x4/0x40 [foo]

";
const RELEASED: &str = "\
Page allocated via order 2, mask 0x0, pid 9, tgid 9 (x), ts 200 ns, free_ts 250 ns
PFN 32 type Movable Block 0 type Movable Flags 0x0()
 foo+0x4/0x40 [foo]

";

/// A block of an order that no kernel has, and a whole one behind it.
const BAD_ORDER: &str = "\
Page allocated via order 99, mask 0x0, pid 7, tgid 6 (sh), ts 300 ns, free_ts 0 ns
PFN 64 type Movable Block 0 type Movable Flags 0x0()
 foo+0x4/0x40 [foo]

Page allocated via order 0, mask 0x0, pid 8, tgid 8 (x), ts 300 ns, free_ts 0 ns
PFN 65 type Movable Block 0 type Movable Flags 0x0()
 foo+0x4/0x40 [foo]

";

/// A thread's blocks have the command that it had; blocks that were given back show where they are asked for.
#[test]
fn a_block_has_the_owner_that_its_lines_tell() {
    let dir = Directory::new(&[]);
    let path = file(&dir, &format!("{HELD}{RELEASED}"));
    let rows = |arguments: &[&str]| -> Vec<Value> {
        let document = json(&run_to(0, "kmemtrace-report", arguments, &[&path]));
        document["rows"].as_array().unwrap().clone()
    };
    let tasks = rows(&["tasks", "--format", "json"]);
    let names: Vec<(&Value, &Value)> = tasks.iter().map(|row| (&row["pid"], &row["comm"])).collect();
    let [seven, shell, other] = [Value::from(7), Value::from("sh"), Value::from("), ts 9 (dd")];
    assert_eq!(names, [(&seven, &shell), (&seven, &other)]);
    let objects = rows(&["live", "--objects", "--format", "json"]);
    let comms: Vec<&Value> = objects.iter().map(|row| &row["comm"]).collect();
    assert_eq!(comms, [&shell, &other]);
    let all = grouped(&sites(&path, &["--by", "released", "--released"]), "released");
    assert_eq!(all, Sums::from([("false".to_owned(), (2, 3)), ("true".to_owned(), (1, 4))]));
    let modules = rows(&["modules", "--format", "json"]);
    assert_eq!((&modules[0]["module"], &modules[0]["live_pages"]), (&Value::from("foo"), &Value::from(3)));
}

/// A text has no CPUs, no addresses of functions and, of older kernels, no times: each of them is null, and no address is made up.
#[test]
fn what_a_text_does_not_tell_is_null() {
    let dir = Directory::new(&[]);
    let path = file(&dir, &older(HELD, false));
    let document = document(&["live", "--objects"], &path);
    for row in document["rows"].as_array().unwrap() {
        for member in ["cpu", "at", "call_site", "pid", "comm"] {
            assert_eq!(row[member], Value::Null, "{member}");
        }
        assert_eq!(row["symbol"].as_str().map(|symbol| symbol.starts_with("foo+")), Some(true));
    }
    let frames = document["stacks"]["1"].as_array().unwrap();
    assert!(frames.iter().all(|frame| frame["address"].is_null() && frame["symbol"].is_string()));
    assert_eq!(document["stacks_seen"], 2);
    assert_eq!((&document["trace"]["addresses"], &document["trace"]["cpus"]), (&Value::Null, &Value::Null));
    let csv = String::from_utf8(run_to(0, "kmemtrace-report", &["events", "--format", "csv"], &[&path])).unwrap();
    assert!(csv.lines().skip(1).all(|line| line.starts_with(",,,,,,mm_page_alloc,")), "{csv}");
    let memstrack = run_to(0, "kmemtrace-report", &["--memstrack", "task_top"], &[&path]);
    assert!(!String::from_utf8(memstrack).unwrap().contains("0x"));
}

/// A text tells of pages that are held, and of nothing else: no figure of frees, of growth or of slab objects is 0.
#[test]
fn figures_of_frees_and_slab_objects_are_null() {
    let dir = Directory::new(&[]);
    let path = file(&dir, HELD);
    let document = |arguments: &[&str]| {
        let arguments: Vec<&str> = arguments.iter().chain(&["--format", "json"]).copied().collect();
        json(&run_to(0, "kmemtrace-report", &arguments, &[&path]))
    };
    let numbers = |value: &Value| -> Vec<String> {
        let members = value.as_object().unwrap().iter();
        members.filter(|(_, value)| value.is_number()).map(|(name, _)| name.clone()).collect()
    };
    let summary = document(&["summary"]);
    for part in ["kmalloc", "cache"] {
        assert_eq!(numbers(&summary["kinds"][part]), [""; 0], "{part}");
    }
    for (name, finding) in summary["findings"].as_object().unwrap() {
        assert_eq!(numbers(finding), [""; 0], "{name}");
    }
    assert_eq!((numbers(&summary["total"]), numbers(&summary["pairs"])), (vec![], vec![]));
    let of_pages = [
        "allocs",
        "requested",
        "allocated",
        "wasted",
        "live_objects",
        "live_requested",
        "live_allocated",
        "live_wasted",
        "pages_allocated",
        "live_pages",
        "largest",
    ];
    assert_eq!(numbers(&summary["kinds"]["pages"]), of_pages);
    assert_eq!(summary["completeness"]["inferred_frees"], Value::Null);
    assert_eq!(summary["completeness"]["frees_without_alloc"], Value::Null);
    for view in ["sites", "tasks", "live"] {
        let arguments = if view == "tasks" { vec![view] } else { vec![view, "--by=comm"] };
        let rest = document(&[&arguments[..], &["--top=1"]].concat());
        assert_eq!(
            (numbers(&rest["others"]), &rest["others_pages"]["live_objects"]),
            (vec![], &Value::from(1)),
            "{view}"
        );
    }
    assert_eq!(document(&["live"])["rows"][0]["grew"], Value::Null);
    let table = |view| String::from_utf8(run_to(0, "kmemtrace-report", &[view], &[&path])).unwrap();
    let summary = table("summary");
    assert!(!["kmalloc", "Mismatches", "freed on other CPU"].iter().any(|word| summary.contains(word)), "{summary}");
}

/// Blocks beside a cut or a block without sense count, and both programs tell the line and the reason.
#[test]
fn a_text_that_ends_early_or_in_nonsense_counts_without_that() {
    let dir = Directory::new(&[]);
    for (rest, verdict, reason) in [
        ("\u{1b}[2J\n", "complete", ""),
        ("rubbish\n", "complete", ""),
        ("Page allocated via order 0, mask 0x0, pid 1", "truncated", "line 12: the text ends inside a"),
        ("Page allocated via order 0, mask 0x0\n", "truncated", "the text ends inside a block"),
        (BAD_ORDER, "corrupt", "a block that has a number out of range was left out"),
    ] {
        let path = file(&dir, &format!("{HELD}{rest}"));
        let report = run("kmemtrace-report", &["sites", "--cull", "pid", "--format", "json"], &[&path]);
        let document = json(&report.stdout);
        assert_eq!(grouped(&document, "pid")["7"], (2, 3), "{rest}");
        assert_eq!(document["completeness"]["verdict"], verdict, "{rest}");
        assert_eq!(document["completeness"]["skipped_lines"], u64::from(rest == "rubbish\n"), "{rest}");
        let told = String::from_utf8(report.stderr).unwrap();
        assert!(told.contains(reason) && told.lines().count() == usize::from(!reason.is_empty()), "{told}");
        let check = String::from_utf8(run("kmemtrace-check", &[], &[&path]).stdout).unwrap();
        let code = match verdict {
            "corrupt" => "K314",
            "truncated" => "K208",
            _ => "ok",
        };
        assert!(check.contains(code) && check.contains(reason), "{check}");
    }
}

#[test]
fn options_of_page_owner_are_refused_for_other_inputs() {
    let dir = Directory::new(&[]);
    let owners = file(&dir, HELD);
    let recording = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/amd64-6.18");
    let document = run_to(0, "kmemtrace-report", &["sites", "--format", "json"], &[&owners]);
    let saved = dir.path().join("saved.json");
    std::fs::write(&saved, document).unwrap();
    for (path, arguments, reason) in [
        (&saved, &["sites"][..], "was saved from a text of one moment (page_owner)"),
        (&recording, &["sites", "--cull", "st"], "--cull: "),
        (&recording, &["tasks", "--tgid", "1"], "--tgid: "),
        (&recording, &["live", "--released"], "--released: "),
        (&owners, &["sites", "--cull", "pid", "--sort", "-name"], "--sort: rows are not made of comm"),
        (&owners, &["sites", "--cull", "pid", "--by", "pid"], "cannot be used with"),
        (&recording, &["sites", "--by", "pid", "--sort", "alloc_ts"], "for texts of page_owner alone"),
        (&owners, &["sites", "--cull", "pid", "--sort", "ft,at"], "--sort free_ts: not beside alloc_ts"),
        (&owners, &["sites", "--cull", "folder"], "invalid value 'folder'"),
    ] {
        let output = run("kmemtrace-report", arguments, &[path]);
        let told = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(2) && told.contains(reason), "{arguments:?}: {told}");
    }
}

/// The site of a page of a slab, or of vmalloc, is who asked for the object or the area; its use is told by what the stack passes over.
#[test]
fn uses_are_told_by_the_whole_stack() {
    const TEXT: &str = "\
Page allocated via order 1, mask 0xcc0(GFP_KERNEL), pid 7, tgid 7 (a), ts 1 ns
PFN 0x10 type Unmovable Block 0 type Unmovable Flags 0x0()
 post_alloc_hook+0x10/0x20
 allocate_slab+0x10/0x20
 ___slab_alloc+0x10/0x20
 kmem_cache_alloc+0x10/0x20
 filemap_get_folio_of_ours+0x10/0x20

Page allocated via order 2, mask 0xcc0(GFP_KERNEL), pid 7, tgid 7 (a), ts 2 ns
PFN 0x20 type Unmovable Block 0 type Unmovable Flags 0x0()
 post_alloc_hook+0x10/0x20
 __vmalloc_area_node+0x10/0x20
 __vmalloc_node_range+0x10/0x20
 load_it+0x10/0x20

";
    let dir = Directory::new(&[]);
    let uses = document(&["uses"], &file(&dir, TEXT));
    let found: Vec<_> = uses["rows"].as_array().unwrap().iter().map(|row| (&row["use"], &row["live_pages"])).collect();
    assert_eq!(found, [(&"vmalloc".into(), &4.into()), (&"slab".into(), &2.into())]);
    // Slabs hold a third of the memory of a small guest, and are nothing but slabs.
    let uses = document(&["uses"], &data("page_owner-amd64-6.1.txt.zst"));
    let slab = uses["rows"].as_array().unwrap().iter().find(|row| row["use"] == "slab").expect("a row of slabs");
    assert_eq!(slab["live_pages"], 618);
}
