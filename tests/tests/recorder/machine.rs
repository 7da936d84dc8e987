//! Facts of the machine that recordings and captured trees keep: build-ids, modules, other names of caches, memory, host and boot.
//! Tests that cannot run here are listed as skipped at the end.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use kmemtrace_abi::trace::{Metadata, Trace, TraceInfo};
use kmemtrace_tests::programs::{document, json, program, run_to};
use kmemtrace_tests::recorder::{Recorder, can_record};
use kmemtrace_tests::recording::Directory;
use kmemtrace_tests::runner::Skip;
use kmemtrace_tests::{load, views};
use serde_json::Value;

kmemtrace_tests::tests![
    a_recording_keeps_notes_host_and_boot,
    a_host_that_is_left_out_is_nowhere,
    memory_is_kept_from_begin_to_end,
    merged_caches_are_found_by_any_name,
    a_captured_tree_keeps_notes_host_and_boot,
    shells_write_the_lines_of_modules,
];

fn opened(path: &Path) -> (TraceInfo, Metadata) {
    let trace = Trace::open(&[path.to_owned()]).unwrap();
    (trace.info, trace.metadata)
}

fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Bytes of a file of this kernel; skips the test where the kernel has none.
fn kernel_file(path: &str) -> Result<Vec<u8>, Skip> {
    fs::read(path).map_err(|error| Skip(format!("{path}: {error}")))
}

fn a_recording_keeps_notes_host_and_boot() -> Result<(), Skip> {
    can_record()?;
    let notes = kernel_file("/sys/kernel/notes")?;
    let boot = kernel_file("/proc/sys/kernel/random/boot_id")?;
    let directory = Recorder::start(&[]).stop_whole();
    let (info, metadata) = opened(&directory.file("trace"));
    assert_eq!(metadata.notes, notes);
    let trace = json(&views::printed("summary", &directory.file("trace")))["trace"].take();
    assert_eq!((&trace["host"], info.host), (&host().into(), Some(host())));
    assert_eq!(trace["boot"], String::from_utf8_lossy(&boot).trim());
    let recording = trace["recording"].as_str().unwrap_or_default();
    assert!(recording.len() == 32 && recording.bytes().all(|b| b.is_ascii_hexdigit()), "{trace}");
    // Any file of the recording tells the id.
    let one = json(&views::printed("summary", &directory.file("trace/cpu0.out")))["trace"].take();
    assert_eq!((&one["recording"], &one["host"]), (&trace["recording"], &trace["host"]));
    let modules = fs::read_to_string("/proc/modules").unwrap_or_default();
    let kept = String::from_utf8_lossy(&metadata.module_info).into_owned();
    let names = |text: &str| text.lines().filter_map(|line| Some(line.split(' ').next()?.to_owned())).collect();
    let (there, kept): (BTreeSet<String>, BTreeSet<String>) = (names(&modules), names(&kept));
    assert!(there.is_subset(&kept), "{there:?} {kept:?}");
    Ok(())
}

fn a_host_that_is_left_out_is_nowhere() -> Result<(), Skip> {
    can_record()?;
    let directory = Recorder::start(&["--no-host", "--compress", "none"]).stop_whole();
    let (info, metadata) = opened(&directory.file("trace"));
    let words: Vec<String> = String::from_utf8_lossy(&metadata.uname).split(' ').take(2).map(str::to_owned).collect();
    assert_eq!((info.host, words.join(" ")), (None, "Linux -".to_owned()));
    assert!(info.boot.is_some() && info.recording.is_some());
    let trace = json(&views::printed("summary", &directory.file("trace")))["trace"].take();
    assert_eq!(trace["host"], Value::Null);
    Ok(())
}

fn memory_is_kept_from_begin_to_end() -> Result<(), Skip> {
    can_record()?;
    let freed = |vmstat: &[u8]| {
        let text = String::from_utf8_lossy(vmstat).into_owned();
        text.lines().find_map(|line| line.strip_prefix("pgfree ")?.parse::<u64>().ok())
    };
    let before = freed(&kernel_file("/proc/vmstat")?).ok_or_else(|| Skip("vmstat has no pgfree".to_owned()))?;
    let recorder = Recorder::start(&[]);
    load::iov(1000, 300).unwrap();
    let ending = freed(&kernel_file("/proc/vmstat")?);
    let directory = recorder.stop_whole();
    let after = freed(&kernel_file("/proc/vmstat")?);
    let (_, metadata) = opened(&directory.file("trace"));
    let (start, end) = (freed(&metadata.vmstat_start), freed(&metadata.vmstat_end));
    let (begin, finish) = ([Some(before), start, end], [ending, end, after]);
    assert!(start.is_some() && begin.is_sorted() && finish.is_sorted(), "{begin:?} {finish:?}");
    for text in [&metadata.meminfo_start, &metadata.meminfo_end] {
        assert!(text.starts_with(b"MemTotal:"), "{}", String::from_utf8_lossy(text));
    }
    Ok(())
}

/// Names of this kernel's merged caches: those with one target are of one cache.
fn merged() -> Vec<(PathBuf, String)> {
    let entries = fs::read_dir("/sys/kernel/slab").into_iter().flatten().flatten();
    let link = |entry: fs::DirEntry| {
        Some((fs::read_link(entry.path()).ok()?, entry.file_name().to_string_lossy().into_owned()))
    };
    entries.filter_map(link).collect()
}

fn merged_caches_are_found_by_any_name() -> Result<(), Skip> {
    can_record()?;
    if merged().len() < 2 || fs::read("/proc/slabinfo").is_err() {
        return Err(Skip("this kernel merges no caches, or does not tell".to_owned()));
    }
    let recorder = Recorder::start(&[]);
    // Opened files have objects of several merged caches.
    let files: Vec<_> = (0..100).map(|_| fs::File::open("/proc/self/status")).collect();
    let directory = recorder.stop_whole();
    drop(files);
    let trace = directory.file("trace");
    let document = document(&["caches"], &trace);
    let rows = document["rows"].as_array().cloned().unwrap_or_default();
    let of_events = |row: &&Value| row["kind"] == "cache" && row["cache_from"] == "event";
    let aliases = |row: &Value| row["aliases"].as_array().cloned().unwrap_or_default();
    let Some(row) = rows.iter().filter(of_events).find(|row| !aliases(row).is_empty()) else {
        return Err(Skip("no event names a merged cache".to_owned()));
    };
    let name = row["cache"].as_str().unwrap_or_default();
    let caches = merged();
    let target = caches.iter().find(|(_, cache)| cache == name).map(|(target, _)| target.clone());
    let others: BTreeSet<&str> = caches
        .iter()
        .filter(|(cache, other)| Some(cache) == target.as_ref() && other != name)
        .map(|(_, other)| other.as_str())
        .collect();
    let told = aliases(row);
    assert_eq!(told.iter().filter_map(Value::as_str).collect::<BTreeSet<_>>(), others, "{name}");
    let alias = told[0].as_str().unwrap_or_default();
    let by = |name: &str| {
        let filter = ["caches", "--kind", "cache", "--cache", name, "--format", "json"];
        json(&run_to(0, "kmemtrace-report", &filter, &[&trace]))["rows"].take()
    };
    assert_eq!((by(alias), by(alias)[0]["cache"].as_str()), (by(name), Some(name)));
    // A cache with one name has no other ones; that is not the same as not knowing.
    assert!(rows.iter().filter(|row| row["cache"].is_string()).all(|row| row["aliases"].is_array()), "{document}");
    Ok(())
}

fn a_captured_tree_keeps_notes_host_and_boot() -> Result<(), Skip> {
    can_record()?;
    let notes = kernel_file("/sys/kernel/notes")?;
    let boot = kernel_file("/proc/sys/kernel/random/boot_id")?;
    let directory = Directory::new(&[]);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../capture.sh");
    let capture = |name: &str| {
        let tree = directory.file(name);
        let mut command = Command::new("sh");
        command.arg(&script).arg(&tree).arg(program("kmemload")).args(["iov", "100", "40"]);
        let output = command.output().unwrap();
        assert!(output.status.success(), "capture.sh: {}", String::from_utf8_lossy(&output.stderr));
        tree
    };
    let (tree, later) = (capture("tree"), capture("later"));
    let (info, metadata) = opened(&tree);
    assert_eq!((metadata.notes, info.host), (notes, Some(host())));
    assert_eq!(info.boot.as_deref(), Some(String::from_utf8_lossy(&boot).trim()));
    let modules = fs::read_to_string("/proc/modules").unwrap_or_default();
    assert_eq!(metadata.module_info.iter().filter(|&&b| b == b'\n').count(), modules.lines().count());
    // A copy is the same recording, and a later capture another one.
    let copy = directory.file("copy");
    Command::new("cp").arg("-r").arg(&tree).arg(&copy).status().unwrap();
    let id = |tree: &Path| json(&views::printed("summary", tree))["trace"]["recording"].take();
    assert!(id(&tree).as_str().is_some_and(|id| id.len() == 16), "{}", id(&tree));
    assert_eq!(id(&tree), id(&copy));
    assert_ne!(id(&tree), id(&later));
    Ok(())
}

/// Loop over the modules in a text with shell commands.
fn loop_over_modules(text: &str) -> &str {
    let from = text.find("while read").unwrap_or_else(|| panic!("no loop over modules in {text}"));
    let end = text[from..].find("module_info").map_or(text.len(), |at| from + at);
    text[from..end].rsplit_once("\ndone").map_or("", |(commands, _)| commands)
}

fn shells_write_the_lines_of_modules() -> Result<(), Skip> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let directory = Directory::new(&[]);
    let machine = directory.file("machine");
    let put = |file: &str, bytes: &[u8]| {
        let path = machine.join(file);
        fs::create_dir_all(path.parent().unwrap_or(&machine)).unwrap();
        fs::write(path, bytes).unwrap();
    };
    let note = [&[4, 0, 0, 0, 20, 0, 0, 0, 3, 0, 0, 0][..], b"GNU\0", &[0xab; 20]].concat();
    put("module/dm_mod/notes/.note.gnu.build-id", &note);
    put("module/dm_mod/sections/.text", b"0xffffffffc04aa000\n");
    put("module/dm_mod/sections/.data", b"0xffffffffc04b0000\n");
    put("module/dm_mod/sections/.init.text", b"0x0000000000000000\n");
    put("module/ext4/sections/.text", b"0xffffffffc0400000\n");
    put("module/ext4/sections/.text.unlikely", b"0xffffffffc0401000\n");
    put("modules.dep", b"kernel/a/b/dm-mod.ko.xz: kernel/lib/ext4.ko/x\nkernel/fs/ext4/ext4.ko: kernel/fs/jbd2/jbd2.ko kernel/lib/crc16.ko\n");
    put("modules", b"dm_mod 200704 3 - Live 0x0\next4 1 0 - Live 0x0\nunknown 1 0 - Live 0x0 (OE)\n");
    let id = "ab".repeat(20);
    let expected = [
        format!("dm_mod {id} a/b/dm-mod .init.text=0x0000000000000000 .text=0xffffffffc04aa000"),
        "ext4 - fs/ext4/ext4 .text.unlikely=0xffffffffc0401000 .text=0xffffffffc0400000".to_owned(),
        "unknown - -".to_owned(),
    ];
    for (file, page) in [("capture.sh", "capture.sh"), ("lines of the documents", "docs/record-on-another-machine.md")]
    {
        let text = fs::read_to_string(root.join(page)).unwrap();
        let commands = loop_over_modules(&text)
            .replace("/lib/modules/$(uname -r)", &machine.display().to_string())
            .replace("/sys/module", &machine.join("module").display().to_string());
        let script = format!("set -u\n{commands}\ndone <{}", machine.join("modules").display());
        let output = Command::new("sh").args(["-c", &script]).output().unwrap();
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        let sorted = |line: &str| {
            let mut words: Vec<&str> = line.split_whitespace().collect();
            words.get_mut(3..).unwrap_or_default().sort_unstable();
            words.join(" ")
        };
        let lines: Vec<String> = printed.lines().map(sorted).collect();
        assert_eq!(lines, expected, "{file}: {script}\n{}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}
