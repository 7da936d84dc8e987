//! Tests of recordings of some tasks that run, on the running kernel as root. Tests that cannot run here are listed as skipped at the
//! end.

use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, sleep};
use std::time::Duration;

use kmemtrace_tests::load;
use kmemtrace_tests::memory_group::MemoryGroup;
use kmemtrace_tests::programs::{document, json_lines, program, run_to, text};
use kmemtrace_tests::recorder::{Recorded, Recorder, can_record, kmemtraced};
use kmemtrace_tests::recording::Directory;
use kmemtrace_tests::runner::Skip;

kmemtrace_tests::tests![
    processes_that_run_are_recorded_alone,
    a_leak_of_chosen_threads_is_a_maybe,
    threads_that_come_into_a_cgroup_are_added,
    the_recording_ends_with_its_tasks,
    a_choice_that_cannot_be_recorded_is_refused,
];

/// Names of the threads whose events the trace has, but for the recorder's own.
fn comms(recorded: &Recorded) -> Vec<String> {
    let trace = recorded.trace();
    run_to(0, "kmemtrace-check", &[], &[&trace]);
    let own = document(&["summary"], &trace)["trace"]["own_threads"].as_array().cloned().unwrap_or_default();
    let events = json_lines(&run_to(0, "kmemtrace-report", &["events", "--format", "jsonl"], &[&trace]));
    let others = events.iter().filter(|event| !own.contains(&event["pid"]));
    // The kernel does not keep the name of each child that ends at once.
    let mut comms: Vec<String> = others.filter_map(|event| Some(event["comm"].as_str()?.to_owned())).collect();
    comms.sort();
    comms.dedup();
    comms
}

/// A shell that runs the load again and again until it is killed.
fn load_again_and_again() -> Child {
    let script = format!("while :; do {} iov 50 40; done", program("kmemload").display());
    Command::new("sh").args(["-c", &script]).stdout(Stdio::null()).spawn().unwrap()
}

fn end(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

fn processes_that_run_are_recorded_alone() -> Result<(), Skip> {
    can_record()?;
    let load = load_again_and_again();
    let pids = format!("{},{}", load.id(), i32::MAX);
    let recorded = Recorded::new(&["--pid", &pids], &["timeout", "1", "tail", "-f", "/dev/null"]);
    end(load);
    let stderr = recorded.stderr();
    assert_eq!(recorded.output.status.code(), Some(124), "{stderr}");
    assert_eq!(comms(&recorded), ["kmemload", "sh"], "{stderr}");
    assert_eq!(document(&["summary"], &recorded.trace())["trace"]["scope"], "tasks");
    let whom = format!("1 thread (--pid {pids}) and its children alone");
    assert!(stderr.contains(&format!(": {whom} until timeout ends\n")), "{stderr}");
    assert!(stderr.contains(&format!("recorded {whom}: frees by others are unseen")), "{stderr}");
    let missing = format!("kmemtraced: --pid {}: there is no such process or thread", i32::MAX);
    assert!(stderr.contains(&missing) && !stderr.contains("another program"), "{stderr}");
    Ok(())
}

fn a_leak_of_chosen_threads_is_a_maybe() -> Result<(), Skip> {
    can_record()?;
    let stop = Arc::new(AtomicBool::new(false));
    let is_over = Arc::clone(&stop);
    let leak = move || {
        let mut held = Vec::new();
        while !is_over.load(Ordering::Acquire) {
            held.push(load::hold("pipes", 1));
            sleep(Duration::from_millis(20));
        }
    };
    let leaker = thread::Builder::new().name("kmt-leaker".to_owned()).spawn(leak).unwrap();
    // The thread names itself as it begins.
    sleep(Duration::from_millis(100));
    let recorded = Recorded::new(&["--comm", "kmt-leak?r"], &["sleep", "3"]);
    stop.store(true, Ordering::Release);
    leaker.join().unwrap();
    assert_eq!(comms(&recorded), ["kmt-leaker"], "{}", recorded.stderr());
    let leaks = document(&["leaks", "--all"], &recorded.trace());
    let rows = leaks["rows"].as_array().cloned().unwrap_or_default();
    let verdicts: Vec<&str> = rows.iter().filter_map(|row| row["verdict"].as_str()).collect();
    assert!(verdicts.contains(&"maybe") && !verdicts.contains(&"leak"), "{leaks:#}");
    let live = document(&["live"], &recorded.trace());
    let rows = live["rows"].as_array().cloned().unwrap_or_default();
    assert!(!rows.is_empty() && rows.iter().all(|row| row["live_is_upper_bound"] == true), "{live:#}");
    Ok(())
}

fn threads_that_come_into_a_cgroup_are_added() -> Result<(), Skip> {
    can_record()?;
    let group = MemoryGroup::new(256 << 20)?;
    let first = group.shell("exec sleep 30").spawn().unwrap();
    sleep(Duration::from_millis(300));
    let path = group.path().display().to_string();
    // The shell of COMMAND is not in the cgroup, and so not recorded, before it moves itself.
    let load = program("kmemload").display().to_string();
    let script = format!("echo $$ >{path}/cgroup.procs; sleep 2.5; {load} iov 100 40; sleep 0.2");
    let recorded = Recorded::new(&["--cgroup", &path, "-v"], &["sh", "-c", &script]);
    end(first);
    let stderr = recorded.stderr();
    assert_eq!(recorded.output.status.code(), Some(0), "{stderr}");
    let comms = comms(&recorded);
    assert!(comms.contains(&"kmemload".to_owned()) && !comms.contains(&"kmemtraced".to_owned()), "{comms:?}");
    for line in ["threads that come into the cgroup are added once a second\n", " came into the cgroup\n"] {
        assert!(stderr.contains(line), "{line}: {stderr}");
    }
    assert!(!stderr.contains("another program"), "{stderr}");
    Ok(())
}

fn the_recording_ends_with_its_tasks() -> Result<(), Skip> {
    can_record()?;
    let load = load_again_and_again();
    let recorder = Recorder::start(&["--pid", &load.id().to_string()]);
    end(load);
    let ended = recorder.wait();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    assert!(ended.stderr.contains("stopped: the recorded tasks have ended "), "{}", ended.stderr);
    Ok(())
}

/// Runs a recorder that must refuse, and returns its message.
fn refusal(options: &[&str]) -> String {
    let directory = Directory::new(&[]);
    let mut recorder = kmemtraced();
    recorder.args(options).arg("-o").arg(directory.file("trace")).args(["--", "true"]).stdin(Stdio::null());
    let output = recorder.output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{options:?}: {}", text(&output.stderr));
    assert!(!directory.file("trace").exists(), "{options:?}");
    text(&output.stderr)
}

fn a_choice_that_cannot_be_recorded_is_refused() -> Result<(), Skip> {
    can_record()?;
    let start = "no thread matches: start the program first, or run it as COMMAND with --only-command";
    for (options, message) in [
        (
            &["--pid", "1", "--relay", "/"][..],
            "--pid: a relay channel has the events of all tasks: leave --pid out, and give it to the report".to_owned(),
        ),
        (
            &["--comm", "init", "--boot"],
            "--comm: the kernel has recorded all tasks since boot: leave --comm out, and give it to the report"
                .to_owned(),
        ),
        (
            &["--cgroup", "/", "--only-command"],
            "--cgroup: --only-command records COMMAND and its children alone: leave one of the two out".to_owned(),
        ),
        (&["--pid", "2147483647"], format!("--pid 2147483647: {start}")),
        (&["--pid", "1", "--comm", "no*such-thread"], format!("--pid 1 --comm no*such-thread: {start}")),
    ] {
        assert_eq!(refusal(options), format!("kmemtraced: {message}\n"), "{options:?}");
    }
    let message = refusal(&["--cgroup", "/no/such\u{1b}[2J"]);
    assert!(
        message.starts_with("kmemtraced: --cgroup /no/such\\x1b[2J: ") && message.lines().count() == 1,
        "{message}"
    );
    assert!(refusal(&["--pid", "0"]).contains("a process id is a number"), "a thread id is positive");
    let mut elsewhere = Command::new("unshare");
    elsewhere.args(["--pid", "--fork", "--mount-proc"]).arg(program("kmemtraced")).args(["--pid", "1", "--", "true"]);
    let output = elsewhere.output().map_err(|error| Skip(format!("unshare: {error}")))?;
    let message = text(&output.stderr);
    let expected = "kmemtraced: --pid: the kernel lists tasks by ids that are not known in a pid namespace: record outside of it\n";
    if message.starts_with("unshare: ") {
        Err(Skip(message))
    } else {
        assert_eq!(message, expected);
        Ok(())
    }
}
