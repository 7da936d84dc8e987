//! Texts of ftrace, trace-cmd and perf: figures as made, or as of the same events' pages; loss; damage; packed files.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use kmemtrace_abi::event::StreamItem;
use kmemtrace_abi::trace::Trace;
use kmemtrace_tests::archive;
use kmemtrace_tests::programs::{json, program, run, run_to};
use kmemtrace_tests::recording::Directory;
use kmemtrace_tests::runs;
use kmemtrace_tests::texts::{self, KERNELS, MadeText};
use serde_json::{Value, json};

/// `summary` of a text, with options.
fn summary(path: &Path, options: &[&str]) -> Value {
    json(&run_to(0, "kmemtrace-report", &[&["summary", "--format", "json"], options].concat(), &[path]))
}

fn write(dir: &Directory, name: &str, text: &str) -> PathBuf {
    dir.write(name, text.as_bytes());
    dir.file(name)
}

/// Verdict, lost events and gaps.
fn completeness(document: &Value) -> (String, Option<u64>, u64) {
    let complete = &document["completeness"];
    let verdict = complete["verdict"].as_str().unwrap().to_owned();
    (verdict, complete["lost_events"].as_u64(), complete["gaps"].as_u64().unwrap())
}

fn assert_figures(what: &str, found: &Value, made: &MadeText) {
    assert_eq!(found["events"]["total"], made.events, "{what}");
    for (kind, figures) in ["kmalloc", "cache", "pages"].into_iter().zip(made.kinds) {
        let of_kind = &found["kinds"][kind];
        let expected = [
            ("allocs", figures.allocs),
            ("failed_allocs", figures.failed_allocs),
            ("requested", figures.requested),
            ("allocated", figures.allocated),
            ("frees", figures.frees),
            ("inferred_frees", figures.inferred_frees),
            ("cross_cpu", figures.cross_cpu),
            ("live_objects", figures.live_objects),
        ];
        for (name, value) in expected {
            assert_eq!(of_kind[name], value, "{what}: {name} of {kind}");
        }
    }
    for (class, count) in [
        ("null_free", made.null_free),
        ("free_without_alloc", made.free_without_alloc),
        ("free_after_free", made.free_after_free),
    ] {
        assert_eq!(found["findings"][class]["count"], count, "{what}: {class}");
    }
}

#[test]
fn texts_of_twelve_kernels_have_the_figures_that_they_were_made_with() {
    let dir = Directory::new(&[]);
    for (seed, kernel) in (1..).zip(KERNELS) {
        let made = texts::made(kernel, seed, 600);
        let path = write(&dir, kernel.release, &made.text);
        let found = summary(&path, &["--release", kernel.release, "--clock", "local"]);
        assert_figures(kernel.release, &found, &made);
        let addresses = if kernel.hashes() { "hashed" } else { "raw" };
        assert_eq!(found["trace"]["addresses"], addresses, "{}", kernel.release);
        // Headers before Linux 3.3 do not count entries.
        let is_told = kernel.release.starts_with("2.") || kernel.release == "3.2";
        let (verdict, lost) = if is_told { ("lossy", None) } else { ("complete", Some(0)) };
        assert_eq!(completeness(&found), (verdict.to_owned(), lost, 0), "{}", kernel.release);
        if kernel.hashes() {
            let findings = found["findings"].as_object().unwrap();
            let unsuspected = findings.iter().filter(|(_, class)| class["suspect"] != class["count"]);
            let unsuspected: Vec<_> = unsuspected.filter(|(_, class)| class.get("suspect").is_some()).collect();
            assert!(unsuspected.is_empty(), "{}: {unsuspected:?}", kernel.release);
        }
    }
}

/// One ring as the kernel's pages and as its text, of five machines: the same figures, and the same callers of pages.
#[test]
fn a_text_has_the_figures_of_the_pages_that_it_was_printed_from() {
    let dir = Directory::new(&[]);
    for name in ["amd64-6.1", "arm64-6.12", "i386-6.1", "ppc64el-6.1", "s390x-6.1"] {
        let tree = archive::unpack(&format!("tree-stacks-{name}"), dir.path()).unwrap();
        let of_pages = summary(&tree, &["--no-index"]);
        let page = of_pages["trace"]["page_bytes"].to_string();
        let of_text = summary(&tree.join("trace"), &["--page-size", &page]);
        for (member, without) in
            [("events", ""), ("pairs", ""), ("kinds", ""), ("findings", "suspect"), ("completeness", "")]
        {
            let plain = |document: &Value| {
                let mut member = document[member].clone();
                if member.is_object() && !without.is_empty() {
                    member.as_object_mut().unwrap().values_mut().for_each(|class| {
                        class.as_object_mut().unwrap().retain(|name, _| name == "count");
                    });
                }
                member
            };
            assert_eq!(plain(&of_text), plain(&of_pages), "{name}: {member}");
        }
        let functions = |path: &Path, options: &[&str]| -> BTreeMap<String, Value> {
            let arguments = [&["sites", "--by", "function", "--format", "json"], options].concat();
            let document = json(&run_to(0, "kmemtrace-report", &arguments, &[path]));
            let rows = document["rows"].as_array().unwrap().iter();
            rows.map(|row| (row["function"].to_string(), json!([row["module"], row["allocs"], row["frees"]]))).collect()
        };
        assert_eq!(
            functions(&tree.join("trace"), &["--page-size", &page]),
            functions(&tree, &["--no-index"]),
            "{name}"
        );
    }
}

/// An address that the text does not have is null, and the symbol is there.
#[test]
fn a_function_without_an_address_has_a_symbol_and_no_call_site() {
    let dir = Directory::new(&[]);
    let made = texts::made(KERNELS[11], 5, 200);
    let path = write(&dir, "text", &made.text);
    let document = json(&run_to(0, "kmemtrace-report", &["sites", "--format", "json"], &[&path]));
    let rows = document["rows"].as_array().unwrap();
    let symbols: Vec<_> = rows.iter().filter(|row| row["kind"] == "kmalloc").map(|row| &row["symbol"]).collect();
    assert!(
        symbols.contains(&&json!("foo.isra.0+0x10")) && symbols.contains(&&json!("do_thing+0x1234")),
        "{symbols:?}"
    );
    assert!(rows.iter().all(|row| row["call_site"].is_null() || row["call_site"] == "0x0"), "{rows:?}");
    assert!(rows.iter().any(|row| row["module"] == "foo"));
}

/// The site of pages comes from perf's call chain, whose frames have addresses; those of the program are left out.
#[test]
fn a_call_chain_of_perf_gives_the_site_of_pages() {
    let dir = Directory::new(&[]);
    let text = "\
bash  8212 [001] 13716.000001: kmem:mm_page_alloc: page=0x10 pfn=0x10 order=1 migratetype=0 gfp_flags=GFP_KERNEL
\tffffffff8162184b __alloc_pages+0x26b ([kernel.kallsyms])
\tffffffff815ebeb5 do_thing+0x2325 ([kernel.kallsyms])
\t         8d02a96 main+0xd6 (/usr/bin/x)

bash  8212 [000] 13716.000002: kmem:mm_page_free: page=0x10 pfn=0x10 order=1
\tffffffff815ebfff give_back+0x1 ([mod])

";
    let path = write(&dir, "chain", text);
    let document = json(&run_to(0, "kmemtrace-report", &["sites", "--format", "json"], &[&path]));
    let row = &document["rows"][0];
    let found = ["call_site", "symbol", "kind", "allocs", "frees", "cross_cpu"].map(|name| &row[name]);
    let expected =
        [json!("0xffffffff815ebeb5"), json!("do_thing+0x2325"), json!("pages"), json!(1), json!(1), json!(1)];
    assert_eq!(found, expected.each_ref(), "{row}");
}

const HEAD: &str = "# tracer: nop\n#\n# entries-in-buffer/entries-written: ENTRIES   #P:2\n#\n";
const KMALLOC: &str =
    "kmalloc: call_site=f+0x1/0x2 ptr=00000000a2a7b693 bytes_req=11 bytes_alloc=16 gfp_flags=GFP_KERNEL";

fn line(cpu: u32, micros: u32, rest: &str) -> String {
    format!("            bash-8212    [{cpu:03}] ..... 13716.{micros:06}: {rest}\n")
}

#[test]
fn loss_is_told_as_the_text_tells_it() {
    let dir = Directory::new(&[]);
    let free = "kfree: call_site=f+0x1/0x2 ptr=00000000a2a7b693";
    let two = [line(0, 1, KMALLOC), line(1, 2, free)].concat();
    // No line of an event has so many bytes.
    let long = "x".repeat(200_000);
    let with_head = |entries: &str, lines: &str| HEAD.replace("ENTRIES", entries) + lines;
    let perf = |lost: &str| {
        format!(
            "            perf  8212 [001] 13716.000001:     kmem:kfree: call_site=f+0x1 ptr=0xffff888104732738\n{lost}"
        )
    };
    for (name, text, want) in [
        ("whole", with_head("2/2", &two), ("complete", Some(0), 0)),
        ("overwritten", with_head("2/9", &two), ("lossy", Some(7), 2)),
        ("pipe", two.clone(), ("complete", Some(0), 0)),
        ("marked", format!("{two}CPU:1 [LOST 42 EVENTS]\n{}", line(1, 9, free)), ("lossy", Some(42), 1)),
        ("at the end", format!("{two}CPU:1 [LOST 42 EVENTS]\n"), ("lossy", Some(42), 1)),
        ("trace-cmd", format!("cpus=2\n{two}CPU:0 [7 EVENTS DROPPED]\n{}", line(0, 9, free)), ("lossy", Some(7), 1)),
        ("uncounted", format!("{two}CPU:1 [LOST EVENTS]\n{}", line(1, 9, free)), ("lossy", None, 1)),
        ("one of two", with_head("5/9", &line(1, 2, free)), ("lossy", None, 0)),
        ("old header", format!("# tracer: nop\n#\n{two}"), ("lossy", None, 0)),
        ("perf", perf(""), ("lossy", None, 0)),
        (
            "perf with loss",
            perf("            perf  8212 [001] 13716.000009: PERF_RECORD_LOST lost 5\n"),
            ("lossy", Some(5), 1),
        ),
        ("few lines", with_head("3/3", &two), ("truncated", Some(0), 1)),
        ("cut", two.trim_end().to_owned(), ("truncated", Some(0), 1)),
        ("rubbish", format!("{}rubbish\n{}", line(0, 1, KMALLOC), line(0, 3, free)), ("corrupt", Some(0), 1)),
        (
            "zeros in a line",
            [line(0, 1, KMALLOC), line(0, 2, &KMALLOC.replacen("loc:", "\0\0\0\0", 1)), line(0, 3, free)].concat(),
            ("corrupt", Some(0), 1),
        ),
        ("no pointer", line(0, 1, "kfree: call_site=f+0x1/0x2"), ("corrupt", Some(0), 1)),
        ("long line", format!("{}{long}\n{}", line(0, 1, KMALLOC), line(0, 3, free)), ("corrupt", Some(0), 1)),
        ("prompt", format!("{two}^C\n[root@host ~]# \n"), ("complete", Some(0), 0)),
        ("rubbish at the end", format!("{two}{}", "rubbish\n".repeat(4)), ("corrupt", Some(0), 1)),
        ("long line at the end", format!("{two}{long}\n"), ("corrupt", Some(0), 1)),
    ] {
        let path = write(&dir, name, &text);
        let (verdict, lost, gaps) = completeness(&summary(&path, &[]));
        assert_eq!((verdict.as_str(), lost, gaps), want, "{name}");
        let output = run("kmemtrace-check", &["--format", "json"], &[&path]);
        let file = &json(&output.stdout)["files"][0];
        let verdict = if want.0 == "complete" { "ok" } else { want.0 };
        assert_eq!((&file["verdict"], file["lost_events"].as_u64()), (&json!(verdict), want.1), "{name}");
        assert_eq!(
            (&file["cpu"], &file["blocks"], &file["gaps"]),
            (&Value::Null, &Value::Null, &json!(want.2)),
            "{name}"
        );
    }
    assert_eq!(summary(&dir.file("long line"), &[])["events"]["total"], json!(2));
    for before in ["(+39)    ", "         1   kmem:"] {
        let path = write(&dir, "times or periods", &line(0, 1, &format!("{before}{KMALLOC}")));
        assert_eq!(summary(&path, &[])["events"]["used"], json!(1), "{before}");
    }
    let nameless = line(0, 1, KMALLOC.strip_prefix("kmalloc: ").unwrap());
    let nameless = run("kmemtrace-report", &["summary"], &[&write(&dir, "nameless", &nameless)]);
    assert_eq!(nameless.status.code(), Some(3));
    let tasks = format!("    perf  1 [000]     0.000000: PERF_RECORD_COMM: perf:1/1\n{}", line(0, 1, KMALLOC));
    assert_eq!(summary(&write(&dir, "tasks", &tasks), &[])["events"]["total"], json!(1));
    let message = run("kmemtrace-report", &["summary"], &[&dir.file("perf")]);
    assert!(String::from_utf8_lossy(&message.stderr).contains("--show-lost-events"));
}

/// Bytes of per-CPU memory need the number of CPUs that the kernel may have, which not every text tells.
#[test]
fn bytes_of_per_cpu_memory_are_null_without_the_number_of_cpus() {
    let dir = Directory::new(&[]);
    let alloc = |pointer: u32, size: u32| {
        format!(
            "percpu_alloc_percpu: call_site=f+0x2/0x4 reserved=0 is_atomic=0 size={size} align=8 base_addr=000000004f0bd231 \
             off=25376 ptr={pointer:016x} bytes_alloc=64 gfp_flags=GFP_KERNEL"
        )
    };
    let free = "percpu_free_percpu: base_addr=000000004f0bd231 off=25376 ptr=0000000000000001";
    let failed = "percpu_alloc_percpu_fail: reserved=0 is_atomic=0 size=8 align=8";
    let lines = [
        line(0, 1, &alloc(1, 16)),
        line(0, 2, &alloc(2, 32)),
        line(1, 3, free),
        line(1, 4, failed),
        line(1, 5, KMALLOC),
    ];
    let told = write(&dir, "told", &(HEAD.replace("ENTRIES", "5/5") + &lines.concat()));
    let untold = write(&dir, "untold", &lines.concat());
    let view = |path: &Path, arguments: &[&str]| {
        json(&run_to(0, "kmemtrace-report", &[arguments, &["--format", "json"]].concat(), &[path]))
    };
    let [of_told, of_untold] =
        [&told, &untold].map(|path| view(path, &["summary"])["kinds"]["percpu"].as_object().unwrap().clone());
    assert_eq!((&of_told["requested"], &of_told["live_allocated"]), (&json!(96), &json!(64)));
    let bytes = ["requested", "allocated", "wasted", "live_requested", "live_allocated", "live_wasted"];
    for (name, value) in &of_untold {
        let is_of_bytes = bytes.contains(&name.as_str()) || ["peak_live_allocated", "largest"].contains(&name.as_str());
        assert_eq!(value, if is_of_bytes { &Value::Null } else { &of_told[name] }, "{name}");
    }
    let row = |view_and_options: &[&str]| view(&untold, view_and_options)["rows"][0].clone();
    let live = row(&["live", "--kind", "percpu"]);
    assert_eq!(
        (&live["live_objects"], &live["live_allocated"], &live["grew"]),
        (&json!(1), &Value::Null, &Value::Null)
    );
    let object = row(&["live", "--objects", "--kind", "percpu"]);
    assert_eq!((&object["requested"], &object["allocated"]), (&Value::Null, &Value::Null));
    assert_eq!(row(&["failed", "--kind", "percpu"])["requested"], Value::Null);
    let growth = view(&untold, &["growth", "--kind", "percpu"]);
    let allocs = growth["rows"][0]["allocs"].as_array().unwrap().iter().filter_map(Value::as_u64).sum::<u64>();
    assert_eq!((&growth["rows"][0]["live_allocated"], allocs), (&Value::Null, 2));
    assert_eq!(growth["total_percpu"].get("live_allocated"), Some(&Value::Null), "{growth}");
    let cross = row(&["cross", "--kind", "percpu"]);
    assert_eq!((&cross["cross_cpu"], &cross["cross_cpu_bytes"]), (&json!(1), &Value::Null));
    let leaks = row(&["leaks", "--all", "--kind", "percpu"]);
    assert_eq!((&leaks["live_objects"], &leaks["live_allocated"]), (&json!(1), &Value::Null));
    for (path, bytes) in [(&told, Some(32)), (&untold, None)] {
        let events = String::from_utf8(run_to(0, "kmemtrace-report", &["events"], &[path])).unwrap();
        let first: Value = serde_json::from_str(events.lines().next().unwrap()).unwrap();
        assert_eq!(first.get("requested").and_then(Value::as_u64), bytes);
    }
    let compared = json(&run_to(0, "kmemtrace-report", &["compare", "--format", "json"], &[&untold, &untold]));
    let mut rows = compared["rows"].as_array().unwrap().iter();
    let percpu = rows.find(|row| row["kind"] == "percpu" && row["after"]["allocs"] == 2).unwrap();
    assert_eq!((&percpu["change"]["allocated"], &percpu["change"]["allocs"]), (&Value::Null, &json!(0)));
    for arguments in ["live", "live --objects", "growth", "leaks --all", "failed", "sites", "tree", "events", "cross"] {
        let arguments: Vec<&str> = arguments.split(' ').chain(["--kind", "percpu", "--format", "table"]).collect();
        let arguments = if arguments[0] == "events" { vec!["events", "--format", "table"] } else { arguments };
        run_to(0, "kmemtrace-report", &arguments, &[&untold]);
    }
    let html = dir.file("page.html");
    run_to(0, "kmemtrace-report", &["html", "-o", html.to_str().unwrap()], &[&untold]);
}

/// A loss line stands behind events that the gap touches: what they find is suspect all the same.
#[test]
fn a_gap_reaches_back_to_its_cpus_last_event() {
    let dir = Directory::new(&[]);
    let pointer = "ffff888104732738";
    let alloc = KMALLOC.replace("00000000a2a7b693", pointer);
    let again = |mark: &str| {
        let lines = [line(0, 1, &alloc), line(1, 2, &alloc), line(0, 3, &alloc.replace("2738", "2740"))];
        let [first, second, third] = lines;
        // CPU 0 has lost events between its two lines.
        let text = format!("{first}{second}{mark}{third}");
        summary(&write(&dir, "text", &text), &["--clock", "mono"])["findings"]["inferred_free"].clone()
    };
    assert_eq!(again(""), json!({"count": 1, "suspect": 0}));
    assert_eq!(again("CPU:0 [LOST 3 EVENTS]\n"), json!({"count": 1, "suspect": 1}));
}

#[test]
fn texts_of_single_cpus_merge_by_time() {
    let dir = Directory::new(&[]);
    let free = "kfree: call_site=f+0x1/0x2 ptr=00000000a2a7b693";
    let head = HEAD.replace("ENTRIES", "4/9");
    let cpu0 = write(&dir, "cpu0", &format!("{head}{}{}", line(0, 1, KMALLOC), line(0, 3, KMALLOC)));
    let cpu1 = write(&dir, "cpu1", &format!("{head}{}{}", line(1, 2, free), line(1, 4, free)));
    let both = json(&run_to(0, "kmemtrace-report", &["summary", "--format", "json"], &[&cpu0, &cpu1]));
    assert_eq!(completeness(&both), ("lossy".to_owned(), Some(5), 2));
    assert_eq!((&both["pairs"]["paired"], &both["pairs"]["cross_cpu"]), (&json!(2), &json!(2)));
    assert_eq!(both["trace"]["cpus"], 2);
    // Without the texts of all CPUs nobody knows whose events were lost.
    let of_three = |name: &str, cpu: u32| {
        let text = format!("{}{}", head.replace("#P:2", "#P:3"), line(cpu, cpu, KMALLOC));
        write(&dir, name, &text)
    };
    let fewer = [of_three("three0", 0), of_three("three1", 1)];
    let fewer = json(&run_to(0, "kmemtrace-report", &["summary", "--format", "json"], &[&fewer[0], &fewer[1]]));
    assert_eq!(completeness(&fewer), ("lossy".to_owned(), None, 0));
    let twice = run("kmemtrace-report", &["summary"], &[&cpu0, &cpu0]);
    assert_eq!(twice.status.code(), Some(2), "{}", String::from_utf8_lossy(&twice.stderr));
}

#[test]
fn lines_may_have_what_consoles_and_mail_put_before_them() {
    let dir = Directory::new(&[]);
    let made = texts::made(KERNELS[10], 3, 200);
    let plain = summary(&write(&dir, "plain", &made.text), &[]);
    let prefixed = |prefix: &str, end: &str| -> String {
        made.text.lines().map(|line| format!("{prefix}{line}{end}\n")).collect()
    };
    for (name, text) in [
        ("crlf", prefixed("", "\r")),
        ("printk", prefixed("[   12.345678] ", "")),
        ("syslog", prefixed("Nov 26 16:00:01 host kernel: [   12.345678] ", "")),
        ("quoted", prefixed("> ", "")),
    ] {
        let found = summary(&write(&dir, name, &text), &[]);
        for member in ["events", "kinds", "findings", "completeness"] {
            assert_eq!(found[member], plain[member], "{name}: {member}");
        }
    }
}

#[test]
fn packed_texts_and_standard_input_are_read() {
    let dir = Directory::new(&[]);
    let made = texts::made(KERNELS[10], 3, 300);
    // The peak needs a second pass.
    const VIEW: [&str; 5] = ["tasks", "--at", "peak", "--format", "json"];
    let view = |path: &Path| json(&run_to(0, "kmemtrace-report", &VIEW, &[path]));
    let plain = view(&write(&dir, "plain", &made.text));
    let path = dir.file("packed");
    std::fs::write(&path, zstd::encode_all(made.text.as_bytes(), 3).unwrap()).unwrap();
    let mut report = Command::new(program("kmemtrace-report"));
    let report = report.args(VIEW).arg("-");
    let mut report = report.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    report.stdin.take().unwrap().write_all(made.text.as_bytes()).unwrap();
    let piped = json(&report.wait_with_output().unwrap().stdout);
    for found in [view(&path), piped] {
        for member in ["rows", "completeness"] {
            assert_eq!(found[member], plain[member], "{member}");
        }
    }
}

#[test]
fn texts_without_fields_are_refused_with_the_option_to_switch() {
    let dir = Directory::new(&[]);
    for (line, says) in [
        ("8212 1 13716767059325 type: 656", "options/raw"),
        ("00002014 00000001 00000c79af072d7d type: 656", "options/hex"),
        ("kfree: call_site=f+0x1/0x2 ptr=0000000000000000", "options/context-info"),
        ("[    5.000001] kfree: call_site=f+0x1/0x2 ptr=0000000000000000", "tp_printk"),
    ] {
        let path = write(&dir, "text", &format!("# tracer: nop\n#\n{line}\n{line}\n"));
        let output = run("kmemtrace-report", &["summary"], &[&path]);
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), message.contains(says)), (Some(3), true), "{message}");
    }
}

/// All events and gaps of a text, whatever its bytes are.
fn read(path: &Path) -> usize {
    let Ok(mut trace) = Trace::open(&[path.to_owned()]) else { return 0 };
    let mut count = 0;
    for stream in &mut trace.streams {
        let mut items: Vec<StreamItem> = Vec::new();
        while stream.fill(&mut trace.names, &mut items) {
            count += items.len();
        }
    }
    count
}

#[test]
fn no_damage_stops_the_reader() {
    let dir = Directory::new(&[]);
    let lines = [
        line(0, 1, KMALLOC),
        " => f+0x1/0x2 [mod] <ffffffff81000001>\n".to_owned(),
        line(0, 2, "<stack trace>"),
        " => f+0x1/0x2 [mod]\n".to_owned(),
        "CPU:1 [LOST 42 EVENTS]\n".to_owned(),
        "    bash-8212      1..s1. 26417us : mm_page_free: page=00000000e95c624a pfn=0x238d6 order=0\n".to_owned(),
        "a b c  8212/7 [001] 13716.000009: PERF_RECORD_LOST lost 5\n".to_owned(),
        "\tffffffff8112c3d1 f+0x12 ([kernel.kallsyms])\n".to_owned(),
        line(1, 9, "mm_page_alloc: page=          (null) pfn=0 order=9 migratetype=0 gfp_flags=0xcc0"),
    ];
    let text = [HEAD.replace("ENTRIES", "7/9"), lines.concat()].concat().into_bytes();
    for len in 0..text.len() {
        dir.write("text", &text[..len]);
        read(&dir.file("text"));
    }
    let (mut read_some, step) = (0, runs::step(5));
    for bit in (0..text.len() * 8).step_by(step) {
        let mut bad = text.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        dir.write("text", &bad);
        read_some += usize::from(read(&dir.file("text")) > 0);
    }
    let cases = text.len() * 8 / step;
    assert!(read_some > cases * 7 / 8, "one bit hides the whole text in {read_some} of {cases} cases");
}

/// trace-cmd prints the name of a buffer in front of its lines, but not in front of the event behind a line of loss.
#[test]
fn one_of_the_buffers_that_trace_cmd_prints_is_read() {
    let dir = Directory::new(&[]);
    let other = line(0, 1, "sched_switch: prev_comm=a next_comm=b");
    let free = "kfree: call_site=f+0x1/0x2 ptr=00000000a2a7b693";
    let one = format!("one: {}", line(1, 2, KMALLOC));
    let dropped = format!("one: CPU:1 [EVENTS DROPPED]\n{}", line(1, 9, free));
    let two = format!("two: {}", line(0, 10, KMALLOC));
    let path = write(&dir, "one", &format!("cpus=2\n{other}{one}{dropped}{other}"));
    let found = summary(&path, &[]);
    assert_eq!((&found["events"]["total"], &found["pairs"]["paired"]), (&json!(2), &json!(1)));
    assert_eq!(completeness(&found), ("lossy".to_owned(), None, 1));
    assert_eq!(completeness(&summary(&path, &["--buffer", ""])), ("complete".to_owned(), Some(0), 0));
    let path = write(&dir, "two", &format!("cpus=2\n{other}{one}{dropped}{two}"));
    let refused = |options: &[&str]| {
        let output = run("kmemtrace-report", &[&["summary"], options].concat(), &[&path]);
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8(output.stderr).unwrap()
    };
    let message = refused(&[]);
    assert!(message.contains("'' (1 event), 'one' (2 events), 'two' (1 event); choose one with --buffer"), "{message}");
    assert!(refused(&["--buffer", "three"]).contains("has no buffer 'three'; it has ''"));
    assert_eq!(summary(&path, &["--buffer", "two"])["events"]["total"], 1);
    assert_eq!(summary(&path, &["--buffer", "one"])["events"]["total"], 2);
}

/// Call sites that are addresses take a list of symbols, although the frames of stacks have names.
#[test]
fn addresses_of_a_text_are_named_by_a_list_of_symbols() {
    let dir = Directory::new(&[]);
    let text = [
        line(0, 1, "kfree: call_site=ffffffff81000110 ptr=ffff888104732738"),
        line(0, 2, &KMALLOC.replace("f+0x1/0x2", "ffffffff81000110").replace("00000000a2a7b693", "ffff888104732738")),
        line(0, 3, "<stack trace>"),
        " => g\n".to_owned(),
    ];
    let path = write(&dir, "text", &text.concat());
    dir.write("list", b"ffffffff81000000 T _text\nffffffff81000100 t here\nffffffffc0000000 t x\t[mod]\n");
    let list = dir.file("list").display().to_string();
    let arguments = ["sites", "--format", "json", "--kallsyms", &list];
    let document = json(&run_to(0, "kmemtrace-report", &arguments, &[&path]));
    assert_eq!((&document["rows"][0]["symbol"], &document["trace"]["symbols"]), (&json!("here+0x10"), &json!("file")));
    // A text that names all of its functions takes none.
    let named = write(&dir, "named", &line(0, 1, KMALLOC));
    let message = run("kmemtrace-report", &arguments, &[&named]).stderr;
    assert!(String::from_utf8_lossy(&message).contains("not for this text, which names its functions itself"));
}

/// Options of texts count in every view that takes a text, and are refused elsewhere.
#[test]
fn all_programs_take_the_options_of_texts() {
    let dir = Directory::new(&[]);
    let pages = "mm_page_alloc: page=00000000e95c624a pfn=0x238d6 order=0 migratetype=0 gfp_flags=GFP_KERNEL";
    let path = write(&dir, "text", &line(0, 1, pages));
    let top = |options: &[&str], path: &Path| run("kmemtrace-report", &[&["top", "--once"], options].concat(), &[path]);
    let screen = top(&["--page-size", "64K", "--clock", "mono", "--release", "6.1"], &path);
    let text = String::from_utf8_lossy(&screen.stdout).into_owned();
    assert!(screen.status.success() && text.contains("64.0 KiB"), "{text}");
    let tree = archive::unpack("tree-s390x-6.1", dir.path()).unwrap();
    let refused = top(&["--page-size", "64K"], &tree);
    let message = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(2) && message.contains("is no text of events"), "{message}");
    for (options, says) in
        [(&["--clock", "mono"][..], "pack has no --clock"), (&[], "is not a recording of kmemtraced")]
    {
        let output = run("kmemtrace-report", &[&["pack"], options].concat(), &[&path]);
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && message.contains(says), "{message}");
    }
    run_to(0, "kmemtrace-check", &["--page-size", "64K"], &[&path]);
    assert_eq!(run("kmemtrace-check", &["--page-size", "5"], &[&path]).status.code(), Some(2));
}
