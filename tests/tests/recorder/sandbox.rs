//! The sandbox of the recorder: each thread has its own, what is not of it is refused, and COMMAND has nothing of it. All other tests of
//! the recorder run in it, too. Tests that cannot run here are listed as skipped at the end.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::Duration;

use kmemtrace_tests::live::Tracefs;
use kmemtrace_tests::programs::{program, run, stderr, text, until};
use kmemtrace_tests::recorder::{Recorded, Recorder, can_record, instance_name, sandbox};
use kmemtrace_tests::recording::Directory;
use kmemtrace_tests::runner::Skip;
use kmemtrace_tests::sandbox_layers::{LAYERS, SIGSYS};
use rustix::process::{Pid, Signal, kill_process};

kmemtrace_tests::tests![
    each_thread_has_its_sandbox_and_few_capabilities,
    a_command_has_nothing_of_it,
    a_thread_in_a_strangers_hands_is_refused,
    a_layer_that_is_missing_is_told_or_refused,
    a_refusal_is_told,
    options_that_record_do_so_in_it,
];

/// Capabilities that threads keep, by their bits: CAP_DAC_READ_SEARCH, CAP_IPC_LOCK and CAP_SYSLOG.
const LOOKS: u64 = 1 << 2;
const MEMORY: u64 = 1 << 14;
const ADDRESSES: u64 = 1 << 34;
/// CAP_CHOWN, for the hand-over under sudo.
const OWNERS: u64 = 1;

/// Skips where the kernel or the machine lacks a layer.
fn has_all_layers() -> Result<Tracefs, Skip> {
    let tracefs = can_record()?;
    if sandbox().contains(&"strict") {
        Ok(tracefs)
    } else {
        Err(Skip("the kernel lacks a layer of the sandbox".to_owned()))
    }
}

/// A line of a thread's status that is a number of base 16, or 10 if it is short.
fn number(status: &str, name: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("{name}: {status}"));
    u64::from_str_radix(line.trim(), 16).unwrap()
}

/// States of the threads of a process, by name.
fn threads(pid: u32) -> BTreeMap<String, String> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    let states = tasks.filter_map(|task| fs::read_to_string(task.path().join("status")).ok());
    let name = |state: &str| state.lines().find_map(|line| line.strip_prefix("Name:\t")).unwrap().to_owned();
    states.map(|state| (name(&state), state)).collect()
}

fn each_thread_has_its_sandbox_and_few_capabilities() -> Result<(), Skip> {
    has_all_layers()?;
    let permitted = number(&fs::read_to_string("/proc/self/status").unwrap(), "CapPrm:");
    let recorder = Recorder::start(&["--flush", "50ms"]);
    // Rights for an earlier recording are given away at the next look.
    let narrow = || {
        let threads = threads(recorder.pid());
        threads
            .get("record")
            .is_some_and(|state| number(state, "CapEff:") & !(LOOKS | MEMORY | ADDRESSES | OWNERS) == 0)
    };
    until("only these capabilities", narrow);
    let threads = threads(recorder.pid());
    assert!(threads.len() >= 6, "{:?}", threads.keys());
    for (name, state) in &threads {
        assert_eq!([number(state, "Seccomp:"), number(state, "NoNewPrivs:")], [2, 1], "{name}");
        let kept = match name.as_str() {
            "record" => LOOKS | MEMORY | ADDRESSES,
            "names" => MEMORY | ADDRESSES,
            _ => MEMORY,
        };
        for set in ["CapEff:", "CapPrm:", "CapInh:", "CapAmb:"] {
            assert_eq!(number(state, set) & !(kept & permitted), 0, "{name}: {set}");
        }
    }
    drop(recorder.stop_whole());
    Ok(())
}

fn a_command_has_nothing_of_it() -> Result<(), Skip> {
    has_all_layers()?;
    let ask =
        "grep -E '^(Cap|NoNewPrivs|Seccomp:)' /proc/self/status; cat /proc/self/oom_score_adj; nice; ls /proc/self/fd";
    let plain = Command::new("sh").args(["-c", ask]).stdin(Stdio::null()).output().unwrap();
    for alone in [&[][..], &["--only-command"]] {
        let recorded = Recorded::new(&[&["-q"], alone].concat(), &["sh", "-c", ask]);
        assert_eq!(text(&recorded.output.stdout), text(&plain.stdout), "{alone:?}: {}", recorded.stderr());
    }
    Ok(())
}

/// Deeds of `hostile.c`, those that need an open file first.
const DEEDS: &str = "open-shadow open-passwd list-root open-parent-environment open-memory make-file change-file read-file cut-file \
                     remove-file make-link make-folder change-mode change-open-mode connect connect-local execute fork trace signal \
                     signal-thread mount namespace type execute-memory raise-limit read-process program-kernel change-user change-root";
/// Threads of the recorder with the deeds of a run each in the mode strict.
const PLACES: [(&str, &[&str]); 5] = [
    ("record", &["execute", "connect"]),
    ("read0", &["open-passwd", "trace"]),
    ("write0", &["open-passwd", "signal"]),
    ("names", &["execute", "remove-file"]),
    ("messages", &["open-passwd", "fork"]),
];

/// The recorder with a library in place of some functions of the C library.
struct Hostile {
    preloaded: PathBuf,
    elsewhere: Directory,
}

impl Hostile {
    fn new() -> Result<Hostile, Skip> {
        let elsewhere = Directory::new(&[]);
        let preloaded = elsewhere.file("hostile.so");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recorder/hostile.c");
        let built = Command::new("gcc").args(["-shared", "-fPIC", "-O1", "-o"]).arg(&preloaded).arg(source).output();
        let built = built.map_err(|error| Skip(format!("gcc cannot be run: {error}")))?;
        assert!(built.status.success(), "{}", text(&built.stderr));
        elsewhere.write("kept", b"kept");
        Ok(Hostile { preloaded, elsewhere })
    }

    /// Records until the thread `place` has done the deeds; returns the end and what was said.
    fn run(&self, tracefs: &Tracefs, mode: &str, place: &str, deeds: &str) -> (ExitStatus, String) {
        let (directory, name) = (Directory::new(&[]), instance_name());
        let _ = fs::remove_file(self.elsewhere.file("go"));
        let mut command = Command::new(program("kmemtraced"));
        command
            .args(["--sandbox", mode, "--flush", "20ms", "-d", "30", "-B", &name, "-o"])
            .arg(directory.file("trace"));
        command.env("LD_PRELOAD", &self.preloaded).env("HOSTILE", deeds).env("PLACE", place);
        command.env("ELSEWHERE", self.elsewhere.path()).stdin(Stdio::null()).stdout(Stdio::null());
        let mut child = command.stderr(fs::File::create(directory.file("stderr")).unwrap()).spawn().unwrap();
        let on = tracefs.path().join("instances").join(&name).join("tracing_on");
        let is_on =
            || fs::read_to_string(&on).is_ok_and(|on| on.trim() == "1") && directory.file("trace/meta.out").exists();
        until("the start of a recording", || is_on() || directory.text("stderr").contains("kmemtraced: "));
        self.elsewhere.write("go", b"");
        let mut status = None;
        until("the end of the recorder", || {
            // Something to say for the thread of the messages.
            let _ = kill_process(Pid::from_child(&child), Signal::USR1);
            sleep(Duration::from_millis(20));
            status = child.try_wait().unwrap();
            status.is_some()
        });
        run("kmemtraced", &["recover", "-B", &name], &[]);
        (status.unwrap(), directory.text("stderr"))
    }
}

fn a_thread_in_a_strangers_hands_is_refused() -> Result<(), Skip> {
    let tracefs = has_all_layers()?;
    let hostile = Hostile::new()?;
    // Without the sandbox nothing holds it up: the deeds themselves are no failures.
    let (_, free) = hostile.run(&tracefs, "off", "read0", "open-passwd make-file connect make-folder");
    assert_eq!(free.matches(": done").count(), 4, "{free}");
    let _ = (fs::remove_file(hostile.elsewhere.file("made")), fs::remove_dir(hostile.elsewhere.file("folder")));
    for (place, strict) in PLACES {
        let (status, told) = hostile.run(&tracefs, "auto", place, DEEDS);
        assert_eq!(status.code(), Some(99), "{place}: {told}");
        let refused = told.lines().filter(|line| line.contains(": refused")).count();
        assert_eq!(refused, DEEDS.split_whitespace().count(), "{place}: {told}");
        assert!(!told.contains("not supported"), "{place}: {told}");
        for deed in strict {
            let (status, told) = hostile.run(&tracefs, "strict", place, deed);
            let is_refused = status.signal() == Some(SIGSYS) || told.contains(&format!("{deed}: refused"));
            assert!(is_refused, "{place}: {deed}: {status}: {told}");
        }
    }
    assert_eq!(hostile.elsewhere.text("kept"), "kept");
    let mut names: Vec<_> =
        fs::read_dir(hostile.elsewhere.path()).unwrap().map(|file| file.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["go", "hostile.so", "kept"], "nothing is made");
    Ok(())
}

/// Runs the recorder under strace, which fails calls; returns its end, what it said, and its trace.
fn with_failure(fault: &str, options: &[&str], sudo: bool) -> Result<(Option<i32>, String, Directory), Skip> {
    let (directory, name) = (Directory::new(&[]), instance_name());
    let call = fault.split(':').next().unwrap();
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-o", "/dev/null", "-e", &format!("trace={call}"), "-e", &format!("inject={fault}")]);
    command.arg(program("kmemtraced")).args(["-d", "0.1", "-B", &name]).args(options).arg("-o");
    if sudo {
        command.env("SUDO_UID", "1000").env("SUDO_GID", "1000");
    }
    let ran = command.arg(directory.file("trace")).stdin(Stdio::null()).output();
    let ran = ran.map_err(|error| Skip(format!("strace cannot be run: {error}")))?;
    Ok((ran.status.code(), text(&ran.stderr), directory))
}

fn a_layer_that_is_missing_is_told_or_refused() -> Result<(), Skip> {
    let tracefs = has_all_layers()?;
    for (fault, layer) in LAYERS {
        let (status, told, directory) = with_failure(fault, &["-v"], false)?;
        assert_eq!(status, Some(0), "{fault}: {told}");
        assert!(told.contains(&format!("sandbox: left out: {layer}: ")), "{fault}: {told}");
        stderr(0, &run("kmemtrace-check", &[], &[&directory.file("trace")]));
        let (status, told, directory) = with_failure(fault, &["--sandbox", "strict"], false)?;
        assert_eq!(status, Some(2), "{fault}: {told}");
        assert!(told.lines().count() == 1 && told.contains(&format!("--sandbox strict: {layer}: ")), "{fault}: {told}");
        assert!(!directory.file("trace").exists());
    }
    // A thread that lacks what the others have.
    for when in 1..6 {
        let fault = format!("landlock_restrict_self:error=ENOMEM:when={when}");
        let (status, told, directory) = with_failure(&fault, &[], false)?;
        if status != Some(2) {
            continue;
        }
        assert!(told.contains("--sandbox auto: landlock: Cannot allocate memory"), "{fault}: {told}");
        assert!(!directory.file("trace").exists(), "{fault}");
    }
    let left = fs::read_dir(tracefs.path().join("instances")).unwrap().flatten();
    let own = format!("kmemtrace-recorder-{}-", std::process::id());
    assert_eq!(left.filter(|left| left.file_name().to_string_lossy().starts_with(&own)).count(), 0);
    Ok(())
}

/// A call that is not on the list fails with EPERM, and the message of a failure with EPERM names the sandbox.
fn a_refusal_is_told() -> Result<(), Skip> {
    has_all_layers()?;
    let (status, told, _) = with_failure("fchown:error=EPERM", &["-q"], true)?;
    assert_eq!(status, Some(0), "{told}");
    let is_told =
        told.contains("cannot be given to user 1000") && told.contains("; the sandbox refuses what is not on its list");
    assert!(is_told, "{told}");
    let (_, told, _) = with_failure("fchown:error=EPERM", &["-q", "--sandbox", "off"], true)?;
    assert!(told.contains("cannot be given to user 1000") && !told.contains("the sandbox"), "{told}");
    Ok(())
}

/// What the options make the recorder do is allowed; the tests of each option say whether it is right.
fn options_that_record_do_so_in_it() -> Result<(), Skip> {
    has_all_layers()?;
    let own = std::process::id().to_string();
    let cases: [&[&str]; 16] = [
        &["-e", "all"],
        &["-e", "latency"],
        &["-e", "slab,page", "--stack"],
        &["--stack=all", "--compress", "zstd:3"],
        &["--lean", "--report", "summary"],
        &["--functions"],
        &["--filter", "bytes_req >= 64", "--sync", "flush"],
        &["--pid", &own],
        &["--comm", "*"],
        &["--cgroup", "/"],
        &["--only-command"],
        &["--max-size", "100M", "--compress", "none"],
        &["--clock", "global", "--priority", "nice"],
        &["--no-probes", "--no-host", "--priority", "none"],
        &["-e", "slab,task/task_newtask", "--report", "sites,caches"],
        &["--flush", "20ms", "--sync", "50ms"],
    ];
    for options in cases {
        let recorded = Recorded::new(options, &["sh", "-c", "sleep 0.1; ls /proc >/dev/null"]);
        let said = recorded.stderr();
        if said.contains("no such cgroup")
            || said.contains("no cgroup file system")
            || said.contains("this kernel has no")
        {
            continue;
        }
        let is_clean =
            !["(os error", "cannot be", "will be missing", "no names"].iter().any(|fault| said.contains(fault));
        assert!(matches!(recorded.output.status.code(), Some(0 | 1)) && is_clean, "{options:?}: {said}");
        let checked = run("kmemtrace-check", &[], &[&recorded.trace()]).status.code();
        assert!(matches!(checked, Some(0 | 1)), "{options:?}: {said}");
    }
    Ok(())
}
