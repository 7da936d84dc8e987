//! Errors that users meet: one line with cause, place and remedy, the exit status for scripts, and no half-written
//! file.

use std::fs::{self, OpenOptions};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use kmemtrace_tests::archive;
use kmemtrace_tests::generate::{Options, Shape, trace_dir, workload};
use kmemtrace_tests::programs::{data, limited, program, run, run_to, text, unfinished};
use kmemtrace_tests::recording::Directory;
use rustix::process::{Pid, Signal, kill_process};

/// Views, some with options of their own. The sides of the comparison are windows of one trace.
const VIEWS: &[&[&str]] = &[
    &["summary"],
    &["leaks", "--all"],
    &["sites"],
    &["tasks"],
    &["modules"],
    &["tree", "--by", "task,stack"],
    &["sites", "--by", "comm,gfp"],
    &["caches"],
    &["balance"],
    &["failed"],
    &["mismatch"],
    &["live"],
    &["live", "--objects"],
    &["cross"],
    &["growth", "--by", "comm"],
    &["compare", "--before", ",50%", "--after", "50%,"],
    &["account", "--style", "slab-account"],
    &["events"],
];
const FORMATS: [&str; 4] = ["table", "json", "jsonl", "csv"];
/// Formats of exported files.
const EXPORTED: [&str; 8] =
    ["pprof", "folded", "perfetto", "parquet-sites", "parquet-objects", "parquet-events", "jsonl", "csv"];

fn recording(seed: u64) -> Directory {
    Directory::new(&trace_dir(&workload(seed, &Options::plain(Shape::plain(), 2, 3000)), seed))
}

/// Only line on standard error of a program that exits with `status`.
fn complaint(output: &Output, status: i32) -> String {
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    stderr
}

fn report_to(stdout: impl Into<Stdio>, arguments: &[&str], trace: &Path) -> Output {
    let mut command = Command::new(program("kmemtrace-report"));
    command.args(arguments).arg(trace).stdout(stdout).stderr(Stdio::piped()).output().unwrap()
}

#[test]
fn a_small_stack_is_told_in_one_line() {
    for name in ["kmemtraced", "kmemtrace-check", "kmemtrace-report"] {
        let script = "ulimit -s 16; exec \"$0\" --version";
        // The environment is on the stack, too, and of what a large one leaves the dynamic linker needs all.
        let output = Command::new("/bin/sh").env_clear().args(["-c", script]).arg(program(name)).output().unwrap();
        assert!(complaint(&output, 2).contains("ulimit -s"), "{name}");
        let script = "ulimit -s 1024; exec \"$0\" --help";
        let output = Command::new("sh").args(["-c", script]).arg(program(name)).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{name}: {}", text(&output.stderr));
    }
}

#[test]
fn a_closed_pipe_is_no_error() {
    let trace = recording(1);
    for &view in VIEWS {
        for format in FORMATS {
            let (reader, writer) = std::io::pipe().unwrap();
            drop(reader);
            let output = report_to(writer, &[view, &["--format", format]].concat(), trace.path());
            let stderr = text(&output.stderr);
            assert_eq!((output.status.code(), stderr.as_str()), (Some(0), ""), "{view:?} {format}");
        }
    }
}

#[test]
fn an_output_that_cannot_be_written_is_named() {
    let trace = recording(1);
    for &view in VIEWS {
        for format in FORMATS {
            let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
            let line = complaint(&report_to(full, &[view, &["--format", format]].concat(), trace.path()), 2);
            assert!(line.contains("standard output: cannot be written: No space left"), "{view:?} {format}: {line}");
        }
    }
}

#[test]
fn without_further_threads_the_first_does_all() {
    // `timeout` itself fails with its own status, so the limit works.
    let timeout = limited("timeout", 1).args(["9", "true"]).output().unwrap();
    assert_eq!(timeout.status.code(), Some(125), "{timeout:?}");
    let trace = recording(1);
    for &view in VIEWS {
        let report = |mut command: Command, jobs: &str| {
            let options = ["--no-index", "--format", "json", jobs];
            let output = command.args(view).args(options).arg(trace.path()).output().unwrap();
            assert_eq!(output.status.code(), Some(0), "{view:?} {jobs}: {output:?}");
            output.stdout
        };
        let expected = report(Command::new(program("kmemtrace-report")), "-j1");
        for jobs in ["-j1", "-j2", "-j5"] {
            assert!(report(limited(program("kmemtrace-report"), 1), jobs) == expected, "{view:?} {jobs}");
        }
    }
    let checked = limited(program("kmemtrace-check"), 1).arg(trace.path()).output().unwrap();
    assert_eq!(checked.status.code(), Some(0), "{checked:?}");
}

#[test]
fn an_output_file_is_whole_or_as_it_was() {
    let (trace, out) = (recording(1), Directory::new(&[]));
    let file = out.file("live.json");
    let arguments = ["live", "--format", "json", "-o", file.to_str().unwrap()];
    // The size limit of files is one block, as on a full disk.
    let limited = |more: &[&str]| {
        let mut command = Command::new("sh");
        command.args(["-c", "ulimit -f 1; exec \"$0\" \"$@\""]).arg(program("kmemtrace-report"));
        command.args(arguments).args(more).arg(trace.path()).output().unwrap()
    };
    let line = complaint(&limited(&[]), 2);
    assert!(line.contains("live.json: cannot be written: File too large"), "{line}");
    assert_eq!(fs::read_dir(out.path()).unwrap().count(), 0);
    run_to(0, "kmemtrace-report", &arguments, &[trace.path()]);
    let whole = fs::read(&file).unwrap();
    assert!(complaint(&run("kmemtrace-report", &arguments, &[trace.path()]), 2).contains("use -f"));
    complaint(&limited(&["-f"]), 2);
    assert!(fs::read(&file).unwrap() == whole);
    run_to(0, "kmemtrace-report", &[&arguments[..], &["-f"]].concat(), &[trace.path()]);
    assert_eq!(fs::read_dir(out.path()).unwrap().count(), 1);
    // A link stays a link.
    let link = out.file("link");
    std::os::unix::fs::symlink("live.json", &link).unwrap();
    run_to(0, "kmemtrace-report", &["-f", "-o", link.to_str().unwrap()], &[trace.path()]);
    assert!(fs::read_link(&link).is_ok() && fs::read(&file).unwrap() != whole);
}

#[test]
fn an_output_never_replaces_its_input() {
    let (trace, text, out) = (recording(1), data("texts/page_owner_minimal.txt"), Directory::new(&[]));
    let own = out.file("text");
    fs::copy(text, &own).unwrap();
    let tree = archive::unpack("tree-s390x-6.1", out.path()).unwrap();
    let raw = fs::read_dir(tree.join("per_cpu")).unwrap().next().unwrap().unwrap().path().join("stats");
    let link = out.file("link");
    std::os::unix::fs::symlink(trace.file("meta.out"), &link).unwrap();
    let cases = [
        (trace.file("cpu0.out"), trace.path().to_owned()),
        (trace.file("meta.out"), trace.path().to_owned()),
        (trace.file("cpu1.out"), trace.file("cpu1.out")),
        (own.clone(), own),
        (raw, tree),
        (link, trace.path().to_owned()),
    ];
    for (output, input) in cases {
        let before = fs::read(&output).unwrap();
        let output = output.to_str().unwrap();
        let line = complaint(&run("kmemtrace-report", &["summary", "-f", "-o", output], &[&input]), 2);
        assert!(line.contains("is a part of the input"), "{output}: {line}");
        assert!(fs::read(output).unwrap() == before, "{output}");
    }
    // A page may lie beside the files.
    let page = trace.file("page.txt");
    for more in [&["-o"][..], &["-f", "-o"]] {
        run_to(0, "kmemtrace-report", &[more, &[page.to_str().unwrap()]].concat(), &[trace.path()]);
    }
}

#[test]
fn an_output_never_replaces_what_an_option_names() {
    let (trace, dir) = (recording(1), Directory::new(&[]));
    let files = ["list", "folder/boot/vmlinux-6.1", "folder/mm/slab.o", "folder/x.ko.xz", "home/kmemtrace/report.toml"];
    files.iter().for_each(|name| dir.write(name, b"\x7fELF"));
    dir.write("home/kmemtrace/report.toml", b"top = 20\n");
    dir.write("folder/earlier.json", b"{}");
    let at = |name: &str| dir.file(name).to_str().unwrap().to_owned();
    let (list, folder, trace) = (at("list"), at("folder"), trace.path().to_str().unwrap().to_owned());
    let mut cases: Vec<(Vec<&str>, &str)> = vec![
        (vec!["tree", "--skip-frames", &list, &trace], "list"),
        (vec!["uses", "--uses", &list, &trace], "list"),
        (vec!["sites", "--debug-dir", &folder, &trace], "folder/boot/vmlinux-6.1"),
        (vec!["sites", "--kernel", &folder, &trace], "folder/mm/slab.o"),
        (vec!["sites", "--event-formats", &folder, &trace], "folder/mm/slab.o"),
        (vec!["static", &folder], "folder/mm/slab.o"),
        (vec!["static", &list], "list"),
        (vec!["names", &list, &folder], "folder/x.ko.xz"),
        (vec!["sites", &trace], "home/kmemtrace/report.toml"),
    ];
    let of_sites = ["--areas", "--wrappers", "--names", "--kallsyms", "--proc-modules", "--vmlinux", "--event-formats"];
    cases.extend(of_sites.map(|option| (vec!["sites", option, &list, &trace], "list")));
    let report = |words: &[&str], output: &str| {
        let mut command = Command::new(program("kmemtrace-report"));
        command.env("XDG_CONFIG_HOME", dir.file("home")).env_remove("SUDO_UID").env_remove("PKEXEC_UID");
        command.args(words).args(["-f", "-o", &at(output)]).output().unwrap()
    };
    for (words, output) in cases {
        let before = fs::read(dir.file(output)).unwrap();
        let line = complaint(&report(&words, output), 2);
        assert!(line.contains("is read by this view, and would be replaced"), "{words:?} {output}: {line}");
        assert!(fs::read(dir.file(output)).unwrap() == before, "{words:?} {output}");
    }
    let earlier = report(&["sites", "--debug-dir", &folder, &trace], "folder/earlier.json");
    assert!(earlier.status.success(), "{earlier:?}");
    let twice = run("kmemtrace-report", &["trace-analyze", "-f", &trace, "-c", &at("same"), "-l", &at("same")], &[]);
    assert!(complaint(&twice, 2).contains("-l and -c write the same file") && !dir.file("same").exists());
}

#[test]
fn what_cannot_be_printed_is_an_error() {
    let trace = recording(1);
    let trace = trace.path().to_str().unwrap();
    let lines: [(&str, &[&str]); 7] = [
        ("kmemtrace-report", &["sites", trace]),
        ("kmemtrace-report", &["events", "--format", "csv", trace]),
        ("kmemtrace-report", &["--help"]),
        ("kmemtrace-report", &["mismatch", "--explain", "free_after_free"]),
        ("kmemtrace-check", &[trace]),
        ("kmemtrace-check", &["--help"]),
        ("kmemtrace", &["--help"]),
    ];
    for (name, words) in lines {
        let to = |output: Stdio| Command::new(program(name)).args(words).stdout(output).output().unwrap();
        let reading = to(fs::File::open("/dev/null").unwrap().into());
        let said = text(&reading.stderr);
        assert_eq!(reading.status.code(), Some(2), "{name} {words:?}: {said}");
        assert!(said.contains("standard output: cannot be written"), "{name} {words:?}: {said}");
        assert!(to(Stdio::null()).status.success(), "{name} {words:?}");
    }
}

#[test]
fn a_time_zone_is_a_stored_file_or_utc() {
    let (trace, dir) = (data("amd64-6.1"), Directory::new(&[]));
    let fifo = dir.file("fifo");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    // A reader that hangs is ended.
    let printed = |variables: &[(&str, &str)]| {
        let mut command = Command::new("timeout");
        command.arg("30").arg(program("kmemtrace-report")).args(["summary", "--no-index"]).arg(&trace);
        let output = command.env_remove("TZDIR").envs(variables.iter().copied()).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{variables:?}: {output:?}");
        text(&output.stdout)
    };
    let utc = printed(&[("TZ", "UTC0")]);
    assert_ne!(printed(&[("TZ", "EST5")]), utc, "the text has a time");
    let (fifo, folder) = (fifo.to_str().unwrap(), dir.path().to_str().unwrap());
    for variables in [&[("TZ", fifo)][..], &[("TZ", "/dev/zero")], &[("TZ", "fifo"), ("TZDIR", folder)]] {
        assert!(printed(variables).replace("UTC", "") == utc.replace("UTC", ""), "{variables:?}");
    }
}

#[test]
fn limits_that_are_met_are_named() {
    let (trace, dir) = (recording(1), Directory::new(&[]));
    let trace = trace.path().to_str().unwrap();
    for name in ["kmemtrace-report", "kmemtrace-check"] {
        let output = run(name, &["-j", "60000", trace], &[]);
        let said = text(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains("it is a number from 1 to 1024"), "{said}");
    }
    let limited = |limit: &str, words: &[&str]| {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("ulimit {limit}; exec \"$0\" \"$@\"")]).arg(program("kmemtrace-report"));
        command.args(words).output().unwrap()
    };
    let mut refused = 0;
    for files in 4..12 {
        let output = limited(&format!("-n {files}"), &["pack", "-q", "--sandbox", "off", "-j", "1", trace]);
        let said = text(&output.stderr);
        if said.contains("Too many open files") {
            assert!(said.contains("allow more open files (ulimit -n)"), "{files}: {said}");
            refused += 1;
        }
    }
    assert!(refused > 0);
    // The decoder holds a window of 128 MiB.
    let mut packed = zstd::Encoder::new(Vec::new(), 3).unwrap();
    packed.window_log(27).unwrap();
    std::io::Write::write_all(&mut packed, b"a text").unwrap();
    dir.write("text.zst", &packed.finish().unwrap());
    let said = complaint(&limited("-d 60000", &["sites", dir.file("text.zst").to_str().unwrap()]), 2);
    assert!(said.contains("raise ulimit -d and -v"), "{said}");
    // A line of 3 MB.
    let line = format!("     16 __kmalloc+0x1/0x2 age=1/2/3 pid=1 cpus={}\n", "0,".repeat(1_500_000));
    dir.write("alloc_traces", line.as_bytes());
    let said = complaint(&run("kmemtrace-report", &["sites"], &[&dir.file("alloc_traces")]), 3);
    assert!(said.contains("alloc_traces: has no text") && said.contains("64 KiB"), "{said}");
}

#[test]
fn an_empty_variable_names_no_folder() {
    let trace = recording(1);
    for name in ["DEBUGINFOD_CACHE_PATH", "HOME"] {
        let mut command = Command::new(program("kmemtrace-report"));
        command.args(["sites", "-v", "--no-index"]).arg(trace.path()).env_remove("DEBUGINFOD_CACHE_PATH").env(name, "");
        let said = text(&command.output().unwrap().stderr);
        let reads = said.lines().find_map(|line| line.split_once("sandbox: reads ")).unwrap().1;
        assert!(reads.split(", ").all(|folder| folder.starts_with('/')), "{name}: {reads}");
    }
}

#[test]
fn an_export_that_a_full_disk_ends_leaves_no_file() {
    let (trace, out) = (recording(1), Directory::new(&[]));
    let file = out.file("exported");
    // Files that may have no byte: some formats fit into a block.
    for to in EXPORTED {
        let mut command = Command::new("sh");
        command.args(["-c", "ulimit -f 0; exec \"$0\" \"$@\""]).arg(program("kmemtrace-report"));
        command.args(["export", "-q", "--to", to, "-o", file.to_str().unwrap()]);
        let line = complaint(&command.arg(trace.path()).output().unwrap(), 2);
        assert!(line.contains("exported: cannot be written: File too large"), "{to}: {line}");
        assert_eq!(fs::read_dir(out.path()).unwrap().count(), 0, "{to}");
    }
}

#[test]
fn an_interrupted_export_leaves_no_file() {
    let options = Options::plain(Shape::plain(), 2, 150_000);
    let trace = Directory::new(&trace_dir(&workload(9, &options), 9));
    let out = Directory::new(&[]);
    let file = out.file("exported");
    for (to, signal) in EXPORTED.into_iter().zip([Signal::INT, Signal::TERM].into_iter().cycle()) {
        // An earlier file stays as it was.
        fs::write(&file, "earlier").unwrap();
        // A shell's background job, as this test may be, ignores INT, and so would its children.
        let mut command = Command::new("env");
        command.arg("--default-signal=INT,TERM").arg(program("kmemtrace-report"));
        command.args(["export", "-f", "--no-index", "-j", "1", "--to", to, "-o", file.to_str().unwrap()]);
        let mut child = command.arg(trace.path()).stderr(Stdio::null()).spawn().unwrap();
        let pid = Pid::from_child(&child);
        // Lines are written as they come, tables in groups of rows, figures at the end.
        let least = if ["jsonl", "csv"].contains(&to) { 1 } else { 0 };
        let is_midway = || unfinished(child.id(), out.path()).is_some_and(|bytes| bytes >= least);
        let until = Instant::now() + Duration::from_secs(60);
        while !is_midway() {
            assert!(Instant::now() < until, "{to}: no unfinished file");
        }
        kill_process(pid, Signal::STOP).unwrap();
        let is_stopped = || fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap().contains(") T ");
        while !is_stopped() {
            assert!(Instant::now() < until, "{to}: has ended before it was stopped");
        }
        assert!(is_midway(), "{to}: is no more mid-way");
        kill_process(pid, signal).unwrap();
        kill_process(pid, Signal::CONT).unwrap();
        let status = child.wait().unwrap();
        assert_eq!(status.signal(), Some(signal.as_raw()), "{to}: {status}");
        assert_eq!(fs::read_to_string(&file).unwrap(), "earlier", "{to}");
        assert_eq!(fs::read_dir(out.path()).unwrap().count(), 1, "{to}");
    }
}

#[test]
fn a_mistyped_command_line_is_told_from_a_bad_trace() {
    let (trace, other, nowhere) = (recording(1), recording(2), Directory::new(&[]));
    let (dir, second) = (trace.path().to_str().unwrap(), other.path().to_str().unwrap());
    let cpu0 = trace.file("cpu0.out");
    let (cpu0, theirs) = (cpu0.to_str().unwrap(), other.file("cpu1.out"));
    let cases: &[(&[&str], i32, &str)] = &[
        (&[], 2, "kmemtraced -d 10 records one: kmemtrace.data: No such file"),
        (&["xyzzy"], 2, "xyzzy is not a view (kmemtrace-report -h lists them)"),
        (&["live", "--stack", dir], 2, "--stack: no view has this option: use --by stack"),
        (&["live", "--since=3s", dir], 2, "--since: no view has this option: use --time FROM,TO"),
        (&["site", dir], 2, "site is not a view (did you mean sites?)"),
        (&["leeks", "-n", "3"], 2, "leeks is not a view (did you mean leaks?)"),
        (&[dir, "sites"], 2, "sites: put the view before its options and trace"),
        (&[dir, second], 2, "are two recordings; to compare them type kmemtrace-report compare"),
        (&[cpu0, cpu0], 2, "are both of CPU 0"),
        (&[cpu0, theirs.to_str().unwrap()], 3, "are of different recordings: keep"),
        (&["/nowhere/at/all"], 2, "/nowhere/at/all: No such file"),
        (&[nowhere.path().to_str().unwrap()], 3, "it is not a trace directory"),
    ];
    for (arguments, status, said) in cases {
        let mut command = Command::new(program("kmemtrace-report"));
        let output = command.current_dir(nowhere.path()).args(*arguments).output().unwrap();
        let line = complaint(&output, *status);
        assert!(line.contains(said), "{arguments:?}: {line}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
    }
}

#[test]
fn a_mistyped_value_gets_the_nearest() {
    let trace = recording(1);
    for (line, nearest) in [
        (&["sites", "--by", "site,fnction"][..], "'function'"),
        (&["tree", "--sort", "lvie"], "'live'"),
        (&["export", "--to", "parquet-site"], "'parquet-sites'"),
        (&["mismatch", "--class", "kind_mismach"], "'kind_mismatch'"),
        (&["live", "--context", "sofirq"], "'softirq'"),
    ] {
        let output = run("kmemtrace-report", line, &[trace.path()]);
        let told = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{told}");
        assert!(told.contains("a similar value exists") && told.contains(nearest), "{line:?}: {told}");
    }
}

#[test]
fn a_directory_in_place_of_a_file_is_told() {
    let trace = recording(1);
    let place = trace.path().to_str().unwrap();
    for option in ["--vmlinux", "--names", "--areas", "--wrappers"] {
        let line = complaint(&run("kmemtrace-report", &["sites", option, place], &[trace.path()]), 2);
        assert!(line.contains(&format!("{place}: ")) && line.contains("is a directory: name a file in it"), "{line}");
    }
}

#[test]
fn a_file_of_another_program_is_named_and_so_is_the_remedy() {
    let trace = recording(1);
    let place = Directory::new(&[]);
    let mut tar = vec![0; 512];
    tar[257..262].copy_from_slice(b"ustar");
    // An archive has the blocks of the trace in it.
    tar.extend(fs::read(trace.file("cpu0.out")).unwrap());
    for (name, bytes, said) in [
        ("x.dat", b"\x17\x08\x44tracing6\0rest".to_vec(), "x.dat: a damaged trace.dat: the byte order makes no sense"),
        ("perf.data", b"PERFILE2\0\0".to_vec(), "perf.data: a perf.data that ends inside its header"),
        ("x.tar", tar, "x.tar: a tar archive; unpack it"),
        (
            "x.gz",
            b"\x1f\x8b\x08\0".to_vec(),
            "x.gz: cannot be unpacked: unexpected end of file (compressed with gzip; unpack it",
        ),
        ("ls", b"\x7fELF\x02\x01".to_vec(), "ls: an ELF file"),
        ("vmcore", b"KDUMP   \x06\0".to_vec(), "vmcore: a crash dump of kdump (vmcore); name a text of it"),
        ("notes", b"Thursday\n".to_vec(), "notes: a text; not a trace"),
        ("nothing", Vec::new(), "nothing: an empty file; not a trace"),
    ] {
        place.write(name, &bytes);
        for program in ["kmemtrace-report", "kmemtrace-check"] {
            let line = complaint(&run(program, &[], &[&place.file(name)]), 3);
            assert!(line.contains(said), "{program}: {line}");
        }
        let line = complaint(&run("kmemtrace-report", &[], &[place.path()]), 3);
        assert!(line.contains("it is not a trace directory"), "{line}");
        assert_eq!(line.contains(&format!("({name} in it is ")), !said.contains("not a trace"), "{line}");
        fs::remove_file(place.file(name)).unwrap();
    }
    fs::create_dir(place.file("inner")).unwrap();
    fs::copy(trace.file("meta.out"), place.file("inner/meta.out")).unwrap();
    let line = complaint(&run("kmemtrace-report", &[], &[place.path()]), 3);
    assert!(line.contains("/inner is one"), "{line}");
}

#[test]
fn an_empty_window_names_the_first_event() {
    let trace = recording(1);
    for backwards in ["5,1", "+2s,+1s", "-1s,-2s", "60%,50%"] {
        let output = run("kmemtrace-report", &["--time", backwards], &[trace.path()]);
        assert_eq!(output.status.code(), Some(2), "{backwards}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("ends before it begins"), "{output:?}");
    }
    for &view in VIEWS {
        let (line, options) = match view {
            ["compare", ..] => (vec!["compare", "--before", "0,1ns", "--after", "0,1ns"], &["--before", "--after"][..]),
            view => ([view, &["--time", "0,1ns"]].concat(), &["--time"][..]),
        };
        let output = run("kmemtrace-report", &line, &[trace.path()]);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{stderr}");
        for option in options {
            let line = format!("{option}: no events in this window; the trace starts at");
            assert!(stderr.contains(&line), "{view:?}: {stderr}");
        }
    }
    let output = run("kmemtrace-report", &["--time", "+0s,"], &[trace.path()]);
    assert!(output.stderr.is_empty(), "{output:?}");
}

#[test]
fn a_mistyped_view_is_told_before_the_recording() {
    let nowhere = Directory::new(&[]);
    let output = Command::new(program("kmemtraced")).current_dir(nowhere.path()).args(["--report", "summry"]).output();
    let output = output.unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("summary, leaks, sites, "), "{output:?}");
    assert_eq!(fs::read_dir(nowhere.path()).unwrap().count(), 0);
}
