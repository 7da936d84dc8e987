//! Tests on the running kernel, as root. Tests that cannot run here are listed as skipped at the end.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use kmemtrace_abi::kernel::format::{EventFormat, PageShape};
use kmemtrace_abi::kernel::gfp::GfpNames;
use kmemtrace_abi::kernel::subbuffer::{self, Missed};
use kmemtrace_abi::target::Endian;
use kmemtrace_tests::live::{Instance, Tracefs};
use kmemtrace_tests::programs::{data, document, json, json_lines, program, run, run_to};
use kmemtrace_tests::recorder::{Recorder, can_record};
use kmemtrace_tests::recording::Directory;
use kmemtrace_tests::reference::asked::Asked;
use kmemtrace_tests::reference::keys::Key;
use kmemtrace_tests::runner::Skip;
use kmemtrace_tests::{load, views};
use serde_json::Value;

kmemtrace_tests::tests![
    sub_buffers_hold_what_the_kernel_counted,
    formats_of_this_kernel_are_understood,
    flags_are_printed_as_the_kernel_does,
    loads_allocate_what_they_say,
    known_allocations_are_all_recorded,
    objects_held_are_live,
    objects_freed_elsewhere_cross,
    a_captured_tree_has_what_happened,
    a_capture_that_is_stopped_leaves_nothing,
    a_clock_without_order_is_refused,
    the_lines_of_the_documents_make_a_tree,
    a_gate_for_ci_runs_as_written,
];

fn a_clock_without_order_is_refused() -> Result<(), Skip> {
    can_record()?;
    let dir = Directory::new(&[]);
    let out = dir.file("trace");
    let arguments = ["--clock", "uptime", "-B", "clock-without-order", "-o"];
    let refused = run("kmemtraced", &arguments, &[&out, "--".as_ref(), "true".as_ref()]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!((refused.status.code(), said.lines().count()), (Some(2), 1), "{said}");
    assert!(said.contains("--clock uptime") && said.contains("mono") && !out.exists(), "{said}");
    Ok(())
}

fn sub_buffers_hold_what_the_kernel_counted() -> Result<(), Skip> {
    let tracefs = Tracefs::find()?;
    tracefs.need_event("kmem/kmalloc")?;
    let instance = Instance::new(&tracefs)?;
    // The buffer is small enough to overrun, so that there are marks.
    instance.write("buffer_size_kb", "16").unwrap();
    let header_page = instance.read("events/header_page").unwrap();
    let shape = PageShape::parse(&header_page, Endian::NATIVE).unwrap();
    instance.write("events/kmem/enable", "1").unwrap();
    load::iov(20_000, 9).unwrap();
    instance.write("tracing_on", "0").unwrap();
    let mut seen = 0;
    for cpu in instance.cpus().unwrap() {
        let pages = instance.drain(cpu, shape.size).unwrap();
        let (mut events, mut lost, mut uncounted) = (0, 0, false);
        for page in &pages {
            let (tally, stored) = subbuffer::tally(&shape, page).unwrap();
            assert!(stored <= page.len() && page[stored..].iter().all(|&b| b == 0), "bytes behind the stored part");
            events += tally.events;
            match tally.missed {
                Some(Missed::Counted(n)) => lost += n,
                Some(Missed::Uncounted) => uncounted = true,
                None => {}
            }
        }
        if pages.is_empty() {
            continue;
        }
        let stat = |name| instance.stat(cpu, name).unwrap();
        assert_eq!(events, stat("read events"), "CPU {cpu}: events");
        let overrun = stat("overrun");
        assert!(lost == overrun || (uncounted && lost < overrun), "CPU {cpu}: {lost} of {overrun} lost events");
        seen += events;
    }
    assert!(seen > 100, "only {seen} events");
    Ok(())
}

fn flags_are_printed_as_the_kernel_does() -> Result<(), Skip> {
    let tracefs = Tracefs::find()?;
    tracefs.need_event("kmem/kmalloc")?;
    let instance = Instance::new(&tracefs)?;
    if !instance.path().join("options/fields").exists() {
        return Err(Skip("this kernel does not print the fields of events".to_owned()));
    }
    let events = ["kmalloc", "kmem_cache_alloc", "mm_page_alloc"];
    for event in events {
        instance.write(&format!("events/kmem/{event}/enable"), "1").unwrap();
    }
    load::iov(100, 9).unwrap();
    Command::new("ls").arg("-l").arg("/proc/self/fd").output().unwrap();
    instance.write("tracing_on", "0").unwrap();
    let by_name = instance.read("trace").unwrap();
    instance.write("options/fields", "1").unwrap();
    let as_numbers = instance.read("trace").unwrap();
    // The same records, printed in both ways.
    let flags = |line: &str| Some(line.split_once("gfp_flags=")?.1.split_whitespace().next()?.to_owned());
    let [texts, numbers] = [&by_name, &as_numbers].map(|trace| trace.lines().filter_map(flags).collect::<Vec<_>>());
    assert!(texts.len() > 100 && texts.len() == numbers.len(), "{} and {} lines", texts.len(), numbers.len());
    let hex = |number: &String| u64::from_str_radix(number.trim_start_matches("0x"), 16).ok();
    let printed: BTreeMap<u64, String> = numbers.iter().filter_map(hex).zip(texts).collect();
    assert!(printed.len() > 4, "{printed:x?}");
    for event in events {
        let format = instance.read(&format!("events/kmem/{event}/format")).unwrap();
        let names = GfpNames::of_format(&format).unwrap_or_else(|| panic!("{event} has no names of flags"));
        for (flags, text) in &printed {
            assert_eq!(&names.text(*flags).to_string(), text, "{event}: {flags:#x}");
        }
    }
    Ok(())
}

fn formats_of_this_kernel_are_understood() -> Result<(), Skip> {
    let tracefs = Tracefs::find()?;
    tracefs.need_event("kmem/kmalloc")?;
    for (event, fields) in [
        ("kmalloc", &["common_type", "common_pid", "call_site", "ptr", "bytes_req", "bytes_alloc", "gfp_flags"][..]),
        ("kmem_cache_alloc", &["call_site", "ptr", "bytes_req", "bytes_alloc"]),
        ("kfree", &["call_site", "ptr"]),
        ("kmem_cache_free", &["call_site", "ptr"]),
    ] {
        let path = tracefs.path().join("events/kmem").join(event).join("format");
        let text = std::fs::read_to_string(path).unwrap();
        let format = EventFormat::parse(&text).unwrap();
        assert_eq!(format.name, event);
        for field in fields {
            assert!(format.field(field).is_some(), "{event} has no {field}: {text}");
        }
    }
    Ok(())
}

fn loads_allocate_what_they_say() -> Result<(), Skip> {
    let tracefs = Tracefs::find()?;
    tracefs.need_event("kmem/kmalloc")?;
    let instance = Instance::new(&tracefs)?;
    let tid = rustix::thread::gettid().as_raw_nonzero();
    let bytes = 37 * load::VECTOR_BYTES;
    let filter = format!("common_pid == {tid} && bytes_req == {bytes}");
    instance.write("events/kmem/kmalloc/filter", &filter).unwrap();
    instance.write("events/kmem/kmalloc/enable", "1").unwrap();
    load::iov(1000, 37).unwrap();
    instance.write("tracing_on", "0").unwrap();
    let cpus = instance.cpus().unwrap();
    let counted: u64 = cpus.iter().map(|&cpu| instance.stat(cpu, "entries").unwrap_or(0)).sum();
    assert_eq!(counted, 1000);
    Ok(())
}

/// Runs the load to its end; returns its process id.
fn run_load(arguments: &[&str]) -> i64 {
    let output = run_to(0, "kmemload", arguments, &[]);
    pid_of(&output)
}

fn pid_of(stdout: &[u8]) -> i64 {
    let text = String::from_utf8_lossy(stdout);
    text.lines().next().unwrap_or_default().parse().unwrap()
}

/// Number of allocations that a process made for `vectors` iovecs.
fn iovecs_of(trace: &Path, pid: i64, vectors: usize) -> usize {
    let bytes = vectors * load::VECTOR_BYTES;
    views::events_of(trace, pid).iter().filter(|e| e["event"] == "kmalloc" && e["requested"] == bytes).count()
}

fn known_allocations_are_all_recorded() -> Result<(), Skip> {
    can_record()?;
    const COUNT: usize = 5000;
    const VECTORS: usize = 37;
    let recorder = Recorder::start(&[]);
    let pid = run_load(&["iov", &COUNT.to_string(), &VECTORS.to_string()]);
    let trace = recorder.stop_whole();
    let events = views::events_of(&trace.file("trace"), pid);
    let bytes = VECTORS * load::VECTOR_BYTES;
    let made: Vec<_> = events.iter().filter(|e| e["event"] == "kmalloc" && e["requested"] == bytes).collect();
    assert_eq!(made.len(), COUNT);
    // Each iovec is freed before the next, so all have one call-site and none is left.
    let site = &made[0]["call_site"];
    assert!(made.iter().all(|e| e["call_site"] == *site));
    let sites = json(&views::printed("sites", &trace.file("trace")));
    let row =
        sites["rows"].as_array().into_iter().flatten().find(|r| r["call_site"] == *site && r["kind"] == "kmalloc");
    let row = row.unwrap_or_else(|| panic!("no row for {site}"));
    assert!(row["allocs"].as_u64() >= Some(COUNT as u64), "{row}");
    Ok(())
}

fn objects_held_are_live() -> Result<(), Skip> {
    can_record()?;
    const COUNT: usize = 300;
    let recorder = Recorder::start(&[]);
    let mut command = Command::new(program("kmemload"));
    command.args(["leak", &COUNT.to_string()]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut load = command.spawn().unwrap();
    let mut lines = BufReader::new(load.stdout.take().ok_or("none").unwrap()).lines();
    let pid = pid_of(lines.next().unwrap_or(Ok(String::new())).unwrap().as_bytes());
    assert_eq!(lines.next().unwrap_or(Ok(String::new())).unwrap(), "ready");
    let trace = recorder.stop_whole();
    drop(load.stdin.take());
    load.wait().unwrap();
    // One call-site has exactly this number of live objects, as a group and one by one.
    let live = |asked: Asked| json(&views::printed_as(&asked, &trace.file("trace")))["rows"].take();
    let groups = live(Asked::view("live").by(&[Key::Pid, Key::Site]));
    let is_held = |row: &&Value| row["pid"] == pid && row["kind"] == "kmalloc" && row["live_objects"] == COUNT;
    let held: Vec<&Value> = groups.as_array().into_iter().flatten().filter(is_held).collect();
    let [held] = held[..] else { panic!("call-sites with {COUNT} live objects of process {pid}: {held:?}") };
    let objects = live(Asked::view("live").objects());
    let is_one = |row: &&Value| ["pid", "kind", "call_site"].iter().all(|member| row[*member] == held[*member]);
    assert_eq!(objects.as_array().into_iter().flatten().filter(is_one).count(), COUNT, "{held}");
    Ok(())
}

fn objects_freed_elsewhere_cross() -> Result<(), Skip> {
    can_record()?;
    if load::cpus().unwrap().len() < 2 {
        return Err(Skip("needs two CPUs".to_owned()));
    }
    const COUNT: u64 = 3000;
    let recorder = Recorder::start(&[]);
    run_load(&["cross", &COUNT.to_string(), "256"]);
    let trace = recorder.stop_whole();
    let summary = json(&views::printed("summary", &trace.file("trace")));
    let crossed = summary["pairs"]["cross_cpu"].as_u64();
    assert!(crossed >= Some(2 * COUNT), "{crossed:?} of at least {} objects", 2 * COUNT);
    views::assert_invariants("cross", &trace.file("trace"));
    Ok(())
}

fn a_captured_tree_has_what_happened() -> Result<(), Skip> {
    can_record()?;
    const COUNT: u64 = 2000;
    let directory = Directory::new(&[]);
    let tree = directory.file("tree");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../capture.sh");
    let load = program("kmemload");
    let mut command = Command::new("sh");
    command.arg(script).arg(&tree).arg(load).args(["iov", &COUNT.to_string(), "40"]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "capture.sh: {}", String::from_utf8_lossy(&output.stderr));
    run_to(0, "kmemtrace-check", &[], &[&tree]);
    views::assert_invariants("captured", &tree);
    assert_eq!(iovecs_of(&tree, pid_of(&output.stdout), 40) as u64, COUNT);
    let trace = json(&views::printed("summary", &tree))["trace"].clone();
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    assert_eq!((&trace["input"], &trace["clock"]), (&"tree".into(), &"mono".into()));
    assert_eq!(trace["kernel"], release);
    // Who allocated, and what the kernel takes back, as in recordings.
    if fs::read_to_string("/proc/self/cgroup").is_ok_and(|text| !text.is_empty()) {
        let groups = document(&["sites", "--by", "cgroup"], &tree);
        assert!(groups["rows"].as_array().unwrap().iter().any(|row| row["cgroup"].is_string()), "{groups}");
        let lines = json_lines(&run_to(0, "kmemtrace-report", &["export", "--to", "jsonl"], &[&tree]));
        let of_load = |line: &&Value| line["comm"] == "kmemload" && line["event"] != "gap";
        assert!(lines.iter().filter(of_load).any(|line| line["cgroup"].is_string() && line["reclaimable"] == false));
    }
    let flags = document(&["live", "--reclaimable", "yes"], &tree);
    let from = |row: &Value| row["reclaimable_from"] == "flag";
    if Path::new("/sys/kernel/slab").is_dir() {
        assert!(
            flags["rows"].as_array().unwrap().iter().all(|row| from(row) || row["reclaimable_from"] == "list"),
            "{flags}"
        );
        assert!(!fs::read(tree.join("reclaim_account")).unwrap().is_empty());
    }
    Ok(())
}

fn a_capture_that_is_stopped_leaves_nothing() -> Result<(), Skip> {
    let tracefs = can_record()?;
    let directory = Directory::new(&[]);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../capture.sh");
    let instance = tracefs.path().join("instances/kmemtrace-capture");
    let mut command = Command::new("sh");
    command.arg(script).arg(directory.file("tree")).args(["sleep", "60"]).process_group(0);
    let mut child = command.stderr(Stdio::null()).spawn().unwrap();
    let group = rustix::process::Pid::from_child(&child);
    let is_at_work =
        || std::fs::read(instance.join("events/kmem/kfree/enable")).is_ok_and(|text| text.starts_with(b"1"));
    while !is_at_work() {
        assert!(child.try_wait().unwrap().is_none(), "capture.sh ended early");
        sleep(Duration::from_millis(10));
    }
    rustix::process::kill_process_group(group, rustix::process::Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1));
    assert!(!instance.exists(), "{} is left, and records", instance.display());
    Ok(())
}

fn the_lines_of_the_documents_make_a_tree() -> Result<(), Skip> {
    let tracefs = can_record()?;
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/record-on-another-machine.md");
    let page = std::fs::read_to_string(page).unwrap();
    let lines = page.split("```").find_map(|block| block.strip_prefix("sh\nout=/tmp/captured"));
    let lines = lines.unwrap_or_else(|| panic!("the page has no such lines any more"));
    let directory = Directory::new(&[]);
    let tree = directory.file("tree");
    let load = format!("{} iov 500 40", program("kmemload").display());
    let script = format!("out={}{lines}", tree.display())
        .replace("/sys/kernel/tracing", &tracefs.path().display().to_string())
        .replace("kmt", &format!("kmemtrace-lines-{}", std::process::id()))
        .replace("sleep 5", &load);
    let output = Command::new("sh").args(["-c", &script]).output().unwrap();
    assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
    let checked = json(&run_to(0, "kmemtrace-check", &["--format", "json"], &[&tree]));
    let findings = |document: &Value| document["findings"].as_array().map_or(0, Vec::len);
    let files = checked["files"].as_array().map_or(0, |files| files.iter().map(findings).sum());
    assert_eq!(findings(&checked) + files, 0, "nothing is missing: {checked}");
    views::assert_invariants("documents", &tree);
    assert_eq!(iovecs_of(&tree, pid_of(&output.stdout), 40), 500);
    Ok(())
}

fn a_gate_for_ci_runs_as_written() -> Result<(), Skip> {
    can_record()?;
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/compare-two-kernels.md");
    let page = fs::read_to_string(page).unwrap();
    let script = page.split("```").find_map(|block| block.strip_prefix("sh\nkmemtraced -q")).unwrap();
    let script = format!("kmemtraced -q -B kmemtrace-gate-{}{script}", std::process::id());
    let directory = Directory::new(&[]);
    directory.write("load", b"#!/bin/sh\nls /usr >/dev/null\n");
    fs::set_permissions(directory.file("load"), fs::Permissions::from_mode(0o755)).unwrap();
    std::os::unix::fs::symlink(data("amd64-6.18"), directory.file("before")).unwrap();
    let folder = program("kmemtraced").parent().unwrap().to_owned();
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    let mut command = Command::new("sh");
    let output = command.args(["-c", &script]).current_dir(directory.path()).env("PATH", path).output().unwrap();
    // 1: live bytes grew; 3: a busy machine lost events.
    assert!(matches!(output.status.code(), Some(0 | 1 | 3)), "{script}: {output:?}");
    let document = json(&fs::read(directory.file("compare.json")).unwrap());
    assert_eq!(document["schema"], "kmemtrace.compare/1");
    Ok(())
}
