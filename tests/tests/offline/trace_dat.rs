//! `export --to trace-dat`: a report of the file has the figures of the trace that it was made from, and the file has the kernel's own
//! sub-buffers.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use kmemtrace_abi::kernel::format::PageShape;
use kmemtrace_abi::kernel::subbuffer::SubBuffer;
use kmemtrace_abi::target::{Endian, Little};
use kmemtrace_tests::corpus::{self, Origin};
use kmemtrace_tests::programs::{check, data, document, json, json_lines, run, run_to, stderr, text};
use kmemtrace_tests::recording::Directory;
use kmemtrace_tests::runs;
use kmemtrace_tests::{archive, generate};
use serde_json::Value;

use crate::other_programs::Tree;

const REPORT: &str = "kmemtrace-report";

/// Views with what each of them shows of loss, names and addresses.
const VIEWS: &[&[&str]] = &[
    &["summary"],
    &["sites"],
    &["sites", "--by", "task,size,gfp,context,node"],
    &["caches"],
    &["mismatch"],
    &["live"],
    &["live", "--objects"],
    &["cross"],
    &["tree"],
    &["tree", "--by", "stack"],
    &["growth"],
    &["tasks"],
    &["modules"],
    &["waits"],
    &["latency"],
    &["stalls"],
    &["shrinkers"],
    &["functions"],
    &["leaks"],
    &["balance"],
    &["failed"],
    &["uses"],
];

/// The trace as a `trace.dat` in `dir`.
fn exported(version: &str, trace: &Path, dir: &Directory) -> PathBuf {
    let file = dir.file(&format!("trace-{version}.dat"));
    let name = file.display().to_string();
    let options = ["export", "--no-index", "--to", "trace-dat", "--trace-dat-version", version, "-f", "-o", &name];
    run_to(0, REPORT, &options, &[trace]);
    file
}

/// Document of a view without the members that tell of which input it is; the error where there is none.
fn plain(view: &[&str], trace: &Path) -> Result<Value, (Option<i32>, String)> {
    let output = run(REPORT, &[view, &["--format", "json", "--no-index"]].concat(), &[trace]);
    if output.status.code() != Some(0) {
        // The name of the file stands in front.
        return Err((output.status.code(), text(&output.stderr).rsplit(": ").next().unwrap_or_default().to_owned()));
    }
    let mut document = json(&output.stdout);
    for member in ["input", "recording"] {
        document["trace"].as_object_mut().unwrap().remove(member);
    }
    let files = document["completeness"]["truncated_files"].as_array().unwrap().len();
    document["completeness"]["truncated_files"] = files.into();
    Ok(document)
}

fn events(trace: &Path) -> Vec<Value> {
    json_lines(&run_to(0, REPORT, &["events", "--no-index", "--format", "jsonl"], &[trace]))
}

/// Asserts that the exported files of a trace have its figures: all views of version 6, and some of version 7.
fn assert_same(what: &str, trace: &Path) {
    let dir = Directory::new(&[]);
    let expected = events(trace);
    for version in ["6", "7"] {
        let file = exported(version, trace, &dir);
        for view in VIEWS.iter().take(if version == "6" { VIEWS.len() } else { 2 }) {
            assert_eq!(plain(view, &file), plain(view, trace), "{what}, version {version}: {view:?}");
        }
        assert!(events(&file) == expected, "{what}, version {version}: events");
    }
}

#[test]
fn a_recording_has_the_same_figures_as_a_trace_dat() {
    // Lost events, sub-buffers of 64 KiB, pages of 16 and 64 KiB, big endian, 32 bits, blocks of zstd, modules that loaded.
    let samples = ["amd64-6.1-lossy", "latency-amd64-6.12", "arm64-16k-6.12", "s390x-6.1", "exleak_init"];
    for sample in samples.into_iter().step_by(runs::step(2)) {
        assert_same(sample, &data(sample));
    }
    let dir = Directory::new(&[]);
    corpus::copy(&data("i386-6.1"), dir.path()).unwrap();
    run_to(0, REPORT, &["pack"], &[&dir.file("i386-6.1")]);
    assert_same("i386-6.1, packed", &dir.file("i386-6.1"));
}

#[test]
fn a_tree_has_the_same_figures_as_a_trace_dat() {
    let samples =
        ["tree-latency-s390x-6.1", "tree-spaces-amd64-6.18", "tree-stacks-i386-6.1", "tree-stacks-ppc64el-6.1"];
    for sample in samples {
        let dir = Directory::new(&[]);
        assert_same(sample, &archive::unpack(sample, dir.path()).unwrap());
    }
}

#[test]
fn a_trace_dat_has_the_same_figures_as_another_one() {
    let dir = Directory::new(&[]);
    for (sample, compression) in [("tree-stacks-amd64-6.1", "zstd"), ("tree-latency-s390x-6.1", "none")] {
        dir.write("trace.dat", &Tree::of(sample).version_7(compression));
        assert_same(sample, &dir.file("trace.dat"));
    }
    // A cut one stays cut, and a second export keeps what the first has kept.
    let whole = Tree::of("tree-s390x-6.1").version_6();
    dir.write("trace.dat", &whole[..whole.len() - 5000]);
    assert_same("cut", &dir.file("trace.dat"));
    let once = exported("7", &data("amd64-6.1-lossy"), &dir);
    assert_same("exported twice", &once);
    assert_eq!(
        plain(&["summary"], &exported("6", &once, &Directory::new(&[]))),
        plain(&["summary"], &data("amd64-6.1-lossy"))
    );
}

#[test]
fn loss_and_damage_of_any_trace_are_kept() {
    let dir = Directory::on_disk();
    let cases = corpus::write(dir.path(), 16).unwrap();
    let cases = cases.iter().filter(|case| case.origin == Origin::Generated && !case.name.starts_with("relay"));
    let (mut lossy, mut corrupt) = (0, 0);
    for case in cases {
        let trace = dir.file(&case.name);
        let Ok(summary) = plain(&["summary"], &trace) else { continue };
        let files = Directory::new(&[]);
        let file = exported("6", &trace, &files);
        for view in ["summary", "mismatch", "live"] {
            assert_eq!(plain(&[view], &file), plain(&[view], &trace), "{}: {view}", case.name);
        }
        assert!(events(&file) == events(&trace), "{}: events", case.name);
        lossy += u32::from(summary["completeness"]["gaps"] != 0);
        corrupt += u32::from(summary["completeness"]["verdict"] == "corrupt");
    }
    assert!(lossy > 3 && corrupt > 0, "{lossy} lossy traces, {corrupt} corrupt ones");
}

#[test]
fn sub_buffers_are_the_kernels_own_and_a_gap_without_a_mark_gets_one() {
    let dir = Directory::new(&[]);
    let tree = archive::unpack("tree-stacks-amd64-6.1", dir.path()).unwrap();
    let raw = |cpu: u32| tree.join(format!("per_cpu/cpu{cpu}/trace_pipe_raw"));
    let stats = tree.join("per_cpu/cpu1/stats");
    let dropped = fs::read_to_string(&stats).unwrap().replace("dropped events: 0", "dropped events: 5");
    fs::write(&stats, dropped).unwrap();
    let mut expected: Vec<u8> = [0, 1].into_iter().flat_map(|cpu| fs::read(raw(cpu)).unwrap()).collect();
    // Loss at no known time is a gap from the CPU's first event on; the mark is the highest bit of the commit word's low half.
    let first_of_1 = fs::read(raw(0)).unwrap().len();
    assert_eq!(expected[first_of_1 + 11] & 0x80, 0);
    expected[first_of_1 + 11] |= 0x80;
    for version in ["6", "7"] {
        let file = exported(version, &tree, &dir);
        let bytes = fs::read(&file).unwrap();
        assert!(bytes.ends_with(&expected), "version {version}");
        assert_eq!((bytes.len() - expected.len()) % 4096, 0, "version {version}");
        assert_eq!(bytes[10..12], [version.as_bytes()[0], 0]);
        let summary = document(&["summary"], &file);
        assert_eq!((&summary["completeness"]["lost_events"], &summary["completeness"]["gaps"]), (&5.into(), &1.into()));
        assert_eq!(check(&file)["files"][0]["verdict"], "lossy");
    }
}

#[test]
fn a_recording_keeps_the_bytes_of_its_sub_buffers() {
    let dir = Directory::new(&[]);
    let file = fs::read(exported("6", &data("amd64-6.1-lossy"), &dir)).unwrap();
    let text = "\tfield: local_t commit;\toffset:8;\tsize:8;\n\tfield: char data;\toffset:16;\tsize:4080;\n";
    let shape = PageShape::parse(text, Endian::Little).unwrap();
    // The last sub-buffers of the file, up to the one before which the recorder's counters alone tell of nothing.
    let (mut records, mut marks) = (0, 0);
    for page in file.rchunks_exact(4096).take(40) {
        let sub_buffer = SubBuffer::parse::<Little>(&shape, page).unwrap();
        assert!(page[sub_buffer.stored..].iter().all(|&byte| byte == 0), "whatever the recorder has cut off is zeros");
        records += sub_buffer.records::<Little>().map(Result::unwrap).count();
        marks += usize::from(sub_buffer.missed.is_some());
    }
    assert!(records > 500 && marks < 5, "{records} records, {marks} marks");
}

#[test]
fn what_the_report_keeps_in_it_may_be_damaged_or_lost() {
    let dir = Directory::new(&[]);
    let whole = fs::read(exported("6", &data("amd64-6.18"), &dir)).unwrap();
    let at = whole.windows(4).position(|four| four == b"\x28\xb5\x2f\xfd").unwrap();
    for n in 0..60 {
        let mut bytes = whole.clone();
        bytes[at + n * n * 3] ^= 1 << (n % 8);
        dir.write("damaged.dat", &bytes);
        let summary = document(&["summary"], &dir.file("damaged.dat"));
        assert_eq!(summary["events"]["total"], 1259, "byte {n}");
    }
    // A number that no program knows: trace-cmd passes over ours in the same way.
    let mut plain_file = whole;
    assert_eq!(plain_file[at - 6..at - 4], 0x4b4d_u16.to_le_bytes());
    plain_file[at - 6] = 0x4e;
    dir.write("plain.dat", &plain_file);
    let [plain_one, ours] = [dir.file("plain.dat"), data("amd64-6.18")].map(|path| document(&["summary"], &path));
    assert_eq!((&plain_one["kinds"], &plain_one["findings"]), (&ours["kinds"], &ours["findings"]));
    assert_eq!(plain_one["trace"]["scope"], Value::Null);
}

#[test]
fn wrong_requests_are_refused_and_leave_no_file() {
    let dir = Directory::new(&[]);
    let trace = data("amd64-6.1");
    let name = dir.file("trace.dat").display().to_string();
    let to_file = |options: &[&str], trace: &Path| {
        let line = [&["export", "--to", "trace-dat", "-o", &name], options].concat();
        let said = stderr(2, &run(REPORT, &line, &[trace]));
        assert!(!dir.file("trace.dat").exists(), "{options:?}");
        assert_eq!(said.lines().count(), 1, "{said}");
        said
    };
    for (options, option) in [
        (&["--comm", "sh"][..], "--comm"),
        (&["--kind", "pages"], "--kind"),
        (&["--time", "39,"], "--time"),
        (&["--host", "web-1"], "--host"),
    ] {
        let said = to_file(options, &trace);
        assert!(said.contains(&format!("{option} does not go with --to trace-dat")), "{said}");
    }
    let others = Directory::new(&[]);
    let tree = archive::unpack("tree-stacks-amd64-6.1", others.path()).unwrap();
    let owners = zstd::decode_all(&fs::read(data("page_owner-amd64-6.1.txt.zst")).unwrap()[..]).unwrap();
    others.write("page_owner", &owners);
    let relay = archive::unpack("relay-amd64-6.1", others.path()).unwrap();
    for other in [tree.join("trace"), others.file("page_owner"), relay] {
        let said = to_file(&[], &other);
        assert!(said.contains("has no sub-buffers of the kernel") && said.contains("name a recording"), "{said}");
    }
    let said = stderr(2, &run(REPORT, &["export", "--to", "csv", "--trace-dat-version", "7"], &[&trace]));
    assert!(said.contains("--trace-dat-version goes with --to trace-dat"), "{said}");
    dir.write("trace.dat", b"of somebody");
    let said = stderr(2, &run(REPORT, &["export", "--to", "trace-dat", "-o", &name], &[&trace]));
    assert!(said.contains("exists already"), "{said}");
    assert_eq!(dir.text("trace.dat"), "of somebody");
    symlink("/dev/full", dir.file("full")).unwrap();
    let full = dir.file("full").display().to_string();
    let said = stderr(2, &run(REPORT, &["export", "--to", "trace-dat", "-f", "-o", &full], &[&trace]));
    assert!(said.contains("cannot be written"), "{said}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2, "no unfinished file is left");
}

#[test]
fn a_trace_without_an_event_is_exported_too() {
    let dir = Directory::new(&[]);
    let options = generate::Options::plain(generate::Shape::plain(), 2, 0);
    let recording = Directory::new(&generate::trace_dir(&generate::workload(3, &options), 3));
    for version in ["6", "7"] {
        let file = exported(version, recording.path(), &dir);
        assert_eq!(plain(&["summary"], &file), plain(&["summary"], recording.path()), "version {version}");
    }
}
