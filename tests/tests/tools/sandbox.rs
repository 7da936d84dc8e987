//! The sandbox of check and report: what is done in it is what is done without, and what is not of it is refused.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use kmemtrace_tests::archive;
use kmemtrace_tests::generate::{Options, Shape, trace_dir, workload};
use kmemtrace_tests::programs::{data, program, run, stderr, text};
use kmemtrace_tests::recording::Directory;
use kmemtrace_tests::runner::Skip;
use kmemtrace_tests::runs;
use kmemtrace_tests::sandbox_layers::{LAYERS, SIGSYS};

const REPORT: &str = "kmemtrace-report";
const CHECK: &str = "kmemtrace-check";

kmemtrace_tests::tests![
    every_view_of_every_sample_prints_the_same,
    texts_and_archives_print_the_same,
    names_of_debug_files_are_the_same,
    outputs_and_indices_are_written,
    links_lead_on_and_none_leads_everywhere,
    a_decoder_in_a_strangers_hands_is_refused,
    a_layer_that_is_missing_is_told_or_refused,
    each_failed_call_ends_in_a_sentence,
];

/// Views of a recording.
const VIEWS: &[&str] = &[
    "summary",
    "leaks",
    "sites",
    "tree",
    "tasks",
    "modules",
    "uses",
    "caches",
    "balance",
    "failed",
    "mismatch",
    "live",
    "cross",
    "growth",
    "account",
    "events",
    "latency",
    "shrinkers",
    "html",
    "chart",
];

/// Skips where the kernel or the machine lacks a layer.
fn has_all_layers() -> Result<(), Skip> {
    let ran = run(CHECK, &["--sandbox", "strict"], &[&data("amd64-6.18")]);
    match ran.status.code() {
        Some(0) => Ok(()),
        _ => Err(Skip(text(&ran.stderr).trim().to_owned())),
    }
}

/// Runs a program in a folder with these bytes as its standard input.
fn run_in(folder: &Path, name: &str, words: &[&str], input: &[u8]) -> Output {
    let mut command = Command::new(program(name));
    command.args(words).current_dir(folder).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // A program that refuses its input closes the pipe.
    let _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap()
}

/// Runs a program with and without the sandbox, and expects the same output, messages and status.
fn assert_same_in(folder: &Path, name: &str, words: &[&str], input: &[u8]) {
    let asked = |mode: &str| {
        let at = usize::from(name == REPORT);
        let words = [&words[..at], &["--sandbox", mode], &words[at..]].concat();
        let ran = run_in(folder, name, &words, input);
        (ran.status.code(), ran.stdout, text(&ran.stderr))
    };
    let (without, within) = (asked("off"), asked("strict"));
    assert_eq!((within.0, &within.2), (without.0, &without.2), "{name} {words:?}");
    assert!(within.1 == without.1, "{name} {words:?}: another output");
}

fn assert_same(words: &[&str]) {
    assert_same_in(Path::new("/"), REPORT, words, b"");
}

fn trace() -> Directory {
    Directory::new(&trace_dir(&workload(1, &Options::plain(Shape::plain(), 2, 300)), 1))
}

fn every_view_of_every_sample_prints_the_same() -> Result<(), Skip> {
    has_all_layers()?;
    let samples = fs::read_dir(data("")).unwrap().map(|entry| entry.unwrap().path());
    let samples: Vec<PathBuf> = samples.filter(|path| path.join("meta.out").exists()).collect();
    assert!(samples.len() > 5);
    for sample in samples.iter().step_by(runs::step(3)) {
        let path = sample.to_str().unwrap();
        VIEWS.iter().for_each(|view| assert_same(&[view, path, "--no-index"]));
        assert_same(&["top", "--once", path]);
        assert_same(&["export", "--to", "folded", path]);
        assert_same_in(Path::new("/"), CHECK, &[path], b"");
    }
    let [one, other] = [&samples[0], &samples[1]].map(|path| path.to_str().unwrap());
    assert_same(&["compare", one, other]);
    Ok(())
}

fn texts_and_archives_print_the_same() -> Result<(), Skip> {
    has_all_layers()?;
    let others = ["texts", "page_owner_sort"].map(|folder| fs::read_dir(data(folder)).unwrap());
    let mut inputs: Vec<PathBuf> = others.into_iter().flatten().map(|entry| entry.unwrap().path()).collect();
    inputs.push(data("page_owner-amd64-6.1.txt.zst"));
    for path in inputs.iter().filter(|path| path.is_file()) {
        assert_same(&["summary", path.to_str().unwrap()]);
        assert_same_in(Path::new("/"), REPORT, &["summary", "-"], &fs::read(path).unwrap());
    }
    for name in ["relay-amd64-6.1", "tree-stacks-amd64-6.1"] {
        let dir = Directory::new(&[]);
        let path = archive::unpack(name, dir.path()).unwrap();
        let path = path.to_str().unwrap();
        assert_same(&["sites", path]);
        assert_same_in(Path::new("/"), CHECK, &[path], b"");
    }
    let one_cpu = data("amd64-6.1/cpu0.out");
    assert_same(&["summary", one_cpu.to_str().unwrap()]);
    assert_same(&["summary", "/proc/meminfo", "--format", "csv", "--by", "site"]);
    Ok(())
}

fn names_of_debug_files_are_the_same() -> Result<(), Skip> {
    has_all_layers()?;
    let (sample, debug) = (data("amd64-6.1"), data("debug-info"));
    let [sample, debug] = [&sample, &debug].map(|path| path.to_str().unwrap());
    let dir = Directory::new(&[]);
    let file = |name: &str, text: &str| {
        dir.write(name, text.as_bytes());
        dir.file(name).to_str().unwrap().to_owned()
    };
    let (areas, wrappers) = (file("areas", "MEMORY\tmm/*\n"), file("wrappers", "kmemdup\n"));
    let vmlinux = data("debug-info/vmlinux");
    let vmlinux = vmlinux.to_str().unwrap();
    assert_same(&["sites", "--debug-dir", debug, "--areas", &areas, "--by", "area", sample]);
    assert_same(&["sites", "--vmlinux", vmlinux, "--wrappers", &wrappers, sample]);
    assert_same(&["sites", "--kallsyms", "/proc/kallsyms", "--proc-modules", "/proc/modules", sample]);
    assert_same(&["tree", "--kernel", debug, sample]);
    assert_same(&["static", vmlinux]);
    assert_same(&["names", vmlinux, debug]);
    assert_same(&["trace-analyze", "-k", debug, "-f", sample, "-c", "/dev/null"]);
    Ok(())
}

fn outputs_and_indices_are_written() -> Result<(), Skip> {
    has_all_layers()?;
    let dir = trace();
    let folder = dir.path();
    fs::create_dir(dir.file("below")).unwrap();
    symlink("below", dir.file("link")).unwrap();
    let is_written = |words: &[&str], name: &str| {
        let ran = run_in(folder, REPORT, &[words, &["--sandbox", "strict", "."]].concat(), b"");
        assert_eq!(stderr(0, &ran).lines().filter(|line| !line.starts_with("complete")).count(), 0, "{words:?}");
        assert!(dir.file(name).metadata().unwrap().len() > 0, "{words:?}");
    };
    is_written(&["summary", "-o", "here"], "here");
    is_written(&["summary", "-o", "here", "-f"], "here");
    is_written(&["summary", "-o", "link/there"], "below/there");
    is_written(&["export", "--to", "pprof", "-o", "below/pprof"], "below/pprof");
    is_written(&["chart", "-o", "below/x.png"], "below/x.png");
    is_written(&["summary", "--index-from", "1"], "report.index");
    fs::remove_file(dir.file("report.index")).unwrap();
    is_written(&["pack"], "cpu0.out");
    for device in ["/dev/null", "/dev/full"] {
        assert_same_in(folder, REPORT, &["summary", "-f", "-o", device, "."], b"");
    }
    // A folder of temporary files that is not there is told as ever.
    let packed = fs::read(data("relay-amd64-6.1.tar.zst")).unwrap();
    assert_same_in(folder, REPORT, &["summary", "-"], &packed);
    Ok(())
}

/// A link in a trace directory stands for its file; one in a tree for its folder, but for none that the tree is in itself.
fn links_lead_on_and_none_leads_everywhere() -> Result<(), Skip> {
    has_all_layers()?;
    let (trace, links, tree) = (trace(), Directory::new(&[]), Directory::new(&[]));
    for name in ["cpu0.out", "cpu1.out", "meta.out"] {
        symlink(trace.file(name), links.file(name)).unwrap();
    }
    let path = links.path().to_str().unwrap();
    assert_same(&["summary", path]);
    assert_same_in(Path::new("/"), CHECK, &[path], b"");
    let [sources, debug] = ["sources", "debug"].map(|name| tree.file(name));
    fs::create_dir_all(sources.join("a")).unwrap();
    fs::create_dir_all(&debug).unwrap();
    symlink("/", sources.join("everything")).unwrap();
    symlink(&debug, sources.join("a/elsewhere")).unwrap();
    let vmlinux = data("debug-info/vmlinux");
    let words = [
        "names",
        "-v",
        vmlinux.to_str().unwrap(),
        sources.to_str().unwrap(),
        "--sandbox",
        "auto",
        "-o",
        "/dev/null",
        "-f",
    ];
    let told = text(&run_in(Path::new("/"), REPORT, &words, b"").stderr);
    let read = told.lines().find(|line| line.contains("sandbox: reads ")).unwrap_or_default();
    assert!(read.contains(debug.to_str().unwrap()) && !read.contains(" /,"), "{told}");
    Ok(())
}

/// Deeds of `hostile.c` that need an open file, and those that need another system call.
const OPENS: [&str; 12] = [
    "open-shadow",
    "open-passwd",
    "list-root",
    "open-parent-environment",
    "open-memory",
    "make-file",
    "change-file",
    "read-file",
    "cut-file",
    "remove-file",
    "make-link",
    "make-folder",
];
const CALLS: [&str; 18] = [
    "change-mode",
    "change-open-mode",
    "connect",
    "connect-local",
    "execute",
    "fork",
    "trace",
    "signal",
    "signal-thread",
    "mount",
    "namespace",
    "type",
    "execute-memory",
    "raise-limit",
    "read-process",
    "program-kernel",
    "change-user",
    "change-root",
];

/// The report, whose decoder is replaced by code that does what it must not.
fn a_decoder_in_a_strangers_hands_is_refused() -> Result<(), Skip> {
    has_all_layers()?;
    let (dir, elsewhere) = (trace(), Directory::new(&[]));
    let library = elsewhere.file("hostile.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tools/hostile.c");
    let built = Command::new("gcc").args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(source).output();
    let built = built.map_err(|error| Skip(format!("gcc cannot be run: {error}")))?;
    assert!(built.status.success(), "{}", text(&built.stderr));
    elsewhere.write("kept", b"kept");
    let hostile = |name: &str, mode: &str, deeds: &str| {
        let mut command = Command::new(program(name));
        command.env("LD_PRELOAD", &library).env("HOSTILE", deeds).env("ELSEWHERE", elsewhere.path());
        command.args(["--sandbox", mode]).arg(dir.path()).stdin(Stdio::null()).output().unwrap()
    };
    let all = [&OPENS[..], &CALLS].concat();
    // Without the sandbox nothing holds it up: the deeds themselves are no failures.
    let free = text(&hostile(REPORT, "off", "open-passwd make-file change-file connect fork make-folder").stderr);
    assert_eq!(free.lines().filter(|line| line.contains(": done")).count(), 7, "both processes go on: {free}");
    let _ = (fs::remove_file(elsewhere.file("made")), fs::remove_dir(elsewhere.file("folder")));
    for name in [REPORT, CHECK] {
        let ran = hostile(name, "auto", &all.join(" "));
        assert_eq!(ran.status.code(), Some(99), "{}", text(&ran.stderr));
        let told = text(&ran.stderr);
        let refused: Vec<&str> = told.lines().filter(|line| line.contains(": refused")).collect();
        assert!(refused.len() == all.len() && !told.contains("not supported"), "{told}");
        for deed in CALLS {
            let ran = hostile(name, "strict", deed);
            assert_eq!(ran.status.signal(), Some(SIGSYS), "{name} {deed}: {}", text(&ran.stderr));
        }
        for deed in OPENS {
            let ran = hostile(name, "strict", deed);
            let is_refused = ran.status.signal() == Some(SIGSYS) || text(&ran.stderr).contains(": refused");
            assert!(is_refused, "{name} {deed}: {}", text(&ran.stderr));
        }
    }
    assert_eq!(elsewhere.text("kept"), "kept");
    let names = fs::read_dir(elsewhere.path()).unwrap().count();
    assert_eq!(names, 2, "nothing is made: the library and the file stay alone");
    Ok(())
}

/// Runs a program under strace, which fails calls; skips without strace.
fn with_failures(name: &str, inject: &[&str], words: &[&str]) -> Result<Output, Skip> {
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-o", "/dev/null", "-e", "trace=all"]);
    for fault in inject {
        command.args(["-e", &format!("inject={fault}")]);
    }
    let ran = command.arg(program(name)).args(words).stdin(Stdio::null()).output();
    ran.map_err(|error| Skip(format!("strace cannot be run: {error}")))
}

fn a_layer_that_is_missing_is_told_or_refused() -> Result<(), Skip> {
    has_all_layers()?;
    let dir = trace();
    let path = dir.path().to_str().unwrap();
    for name in [REPORT, CHECK] {
        let whole = run(name, &["--sandbox", "off"], &[dir.path()]).stdout;
        for (fault, layer) in LAYERS {
            let ran = with_failures(name, &[fault], &["-v", path])?;
            let told = stderr(0, &ran);
            assert!(told.contains(&format!("sandbox: left out: {layer}: ")), "{name} {fault}: {told}");
            assert!(ran.stdout == whole, "{name} {fault}");
            let told = stderr(2, &with_failures(name, &[fault], &["--sandbox", "strict", path])?);
            assert!(told.lines().count() == 1 && told.contains(&format!("--sandbox strict: {layer}: ")), "{told}");
        }
        let told = stderr(2, &with_failures(name, &["landlock_add_rule:error=ENOMEM"], &[path])?);
        assert!(told.contains("--sandbox auto: landlock: Cannot allocate memory"), "{told}");
    }
    Ok(())
}

/// System calls of a reader, with errors that they may fail with.
const FAILURES: [(&str, &str); 9] = [
    ("openat", "EMFILE"),
    ("openat", "EACCES"),
    ("read", "EIO"),
    ("pread64", "EIO"),
    ("statx", "EIO"),
    ("getdents64", "EIO"),
    ("landlock_add_rule", "EPERM"),
    ("capget", "EPERM"),
    ("prctl", "EPERM"),
];

/// The mode auto works under strace, whose failures are calls of number -1, and each failure ends in a sentence or harms nothing.
fn each_failed_call_ends_in_a_sentence() -> Result<(), Skip> {
    let dir = trace();
    let path = dir.path().to_str().unwrap();
    let mut seen: BTreeMap<Option<i32>, usize> = BTreeMap::new();
    for (call, error) in FAILURES {
        for number in (1..=40).step_by(runs::step(3)) {
            let fault = format!("{call}:error={error}:when={number}");
            let ran = with_failures(REPORT, &[&fault], &["sites", "--no-index", "-j", "1", path])?;
            let told = text(&ran.stderr);
            // The loader ends with 127 where it cannot open a library.
            let is_loader = ran.status.code() == Some(127) || told.contains("error while loading shared libraries");
            let is_told = matches!(ran.status.code(), Some(0..=3)) && told.lines().count() <= 4;
            assert!(is_loader || is_told && !told.contains("panicked"), "{fault}: {:?} {told}", ran.status);
            *seen.entry(ran.status.code()).or_default() += 1;
        }
    }
    assert!(seen.contains_key(&Some(0)) && seen.contains_key(&Some(2)), "{seen:?}");
    Ok(())
}
