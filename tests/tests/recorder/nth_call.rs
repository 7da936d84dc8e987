//! System calls of a recorder that fail, one at a time, by strace: at start, run and end. Each event is then in a file
//! or reported as lost, nothing hangs, and nothing is left in tracefs. Tests that cannot run here are listed as
//! skipped at the end.
//!
//! By default a sample of the calls fails. `KMEMTRACE_RUNS=all` takes every one of them (some ten minutes on two cores), and
//! `KMEMTRACE_CALLS=NAME` every call of that name.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use kmemtrace_tests::live::Tracefs;
use kmemtrace_tests::load;
use kmemtrace_tests::programs::{json_lines, program, run};
use kmemtrace_tests::recorder::{can_record, instance_name};
use kmemtrace_tests::recording::Directory;
use kmemtrace_tests::runner::Skip;
use kmemtrace_tests::runs;

kmemtrace_tests::tests![
    each_failed_call_has_message_or_harmless,
    a_recovery_that_fails_somewhere_says_so,
    a_doctor_that_fails_somewhere_leaves_nothing,
    names_that_cannot_be_read_are_all_that_is_missing,
];

/// System calls, and errors that they may fail with. Calls that are not listed cannot fail for a reason outside of the
/// program (futex, close, gettid, signal handlers and masks, getrandom once the kernel has booted), or are the memory
/// of its allocator, whose failures `signals.rs` tests by limits.
const FAILURES: [(&str, &str); 34] = [
    ("openat", "EMFILE"),
    ("openat", "EACCES"),
    ("read", "EIO"),
    ("pread64", "EIO"),
    ("write", "EIO"),
    ("write", "ENOSPC"),
    ("getdents64", "EIO"),
    ("fcntl", "EINVAL"),
    ("fstat", "EIO"),
    ("newfstatat", "EIO"),
    ("statx", "EIO"),
    ("fstatfs", "EIO"),
    ("sync_file_range", "EIO"),
    ("ppoll", "ENOMEM"),
    ("poll", "ENOMEM"),
    ("mkdirat", "EACCES"),
    ("fchmod", "EPERM"),
    ("unlinkat", "EBUSY"),
    ("renameat", "EACCES"),
    ("flock", "ENOLCK"),
    ("fanotify_init", "EMFILE"),
    ("fanotify_mark", "ENOSPC"),
    ("readlink", "ENOENT"),
    ("inotify_init1", "EMFILE"),
    ("inotify_add_watch", "ENOSPC"),
    ("clone3", "EAGAIN"),
    ("sched_setaffinity", "EINVAL"),
    ("setpriority", "EACCES"),
    ("sched_setscheduler", "EPERM"),
    ("mlockall", "ENOMEM"),
    ("capget", "EPERM"),
    ("fsopen", "EPERM"),
    ("fsmount", "EPERM"),
    ("clock_nanosleep", "EINTR"),
];

/// Options of the recorder: a short recording with a buffer that the load does not fill.
const OPTIONS: [&str; 8] = ["-e", "slab", "-b", "1M", "--flush", "100ms", "-d", "0.5"];
/// Allocations of the load, and vectors of each.
const COUNT: usize = 300;
const VECTORS: usize = 77;
/// Approximate number of cases in a sample.
const SAMPLE: usize = 36;
/// Calls of one name that are tried: a directory is marked for each event that the kernel has.
const MOST_CALLS: u32 = 400;
/// Time limit of each step.
const PATIENCE: Duration = Duration::from_secs(30);

/// Failure of the `number`th call of `name` in each thread with `error`.
#[derive(Clone, Copy, Debug)]
struct Case {
    name: &'static str,
    error: &'static str,
    number: u32,
}

fn each_failed_call_has_message_or_harmless() -> Result<(), Skip> {
    let tracefs = can_record()?;
    has_strace()?;
    each_of(&cases(), several(), |case| fail(&tracefs, case));
    Ok(())
}

fn has_strace() -> Result<(), Skip> {
    let found = Command::new("strace").arg("--version").stdout(Stdio::null()).status().is_ok();
    if found { Ok(()) } else { Err(Skip("needs strace".to_owned())) }
}

/// Cases at once: most of their time is waiting.
fn several() -> usize {
    thread::available_parallelism().map_or(2, usize::from) * 2
}

/// Runs `test` on all cases, so many `at_once`; it returns how a case ended, or the broken promise.
fn each_of(cases: &[Case], at_once: usize, test: impl Fn(Case) -> Result<String, String> + Sync) {
    let (next, ends, faults) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()), Mutex::new(Vec::new()));
    let work = || {
        while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
            match test(*case) {
                Ok(end) => *ends.lock().expect("counts").entry(end).or_insert(0) += 1,
                Err(fault) => {
                    eprintln!("{case:?}: {fault}");
                    faults.lock().expect("a list").push(format!("{case:?}: {fault}"));
                }
            }
        }
    };
    thread::scope(|scope| {
        (0..at_once).for_each(|_| drop(scope.spawn(work)));
    });
    println!("{} calls failed, one at a time; ends: {:?}", cases.len(), ends.lock().expect("counts"));
    let faults = faults.into_inner().expect("a list");
    assert!(faults.is_empty(), "{} of {}:\n{}", faults.len(), cases.len(), faults.join("\n"));
}

/// `recover` looks at an instance that a killed recorder left, and one of its calls fails: then either the instance is gone, or the
/// status is 2 and a line says why.
fn a_recovery_that_fails_somewhere_says_so() -> Result<(), Skip> {
    let tracefs = can_record()?;
    has_strace()?;
    let name = instance_name();
    let instance = tracefs.path().join("instances").join(&name);
    let recover = [program("kmemtraced").into_os_string(), "recover".into(), "-B".into(), name.clone().into()];
    leave_instance(&instance, &name);
    // One at a time: each looks at what all killed recorders have left.
    each_of(&sample(count_calls(&recover), "a recovery"), 1, |case| {
        if !instance.exists() {
            leave_instance(&instance, &name);
        }
        let output = failing(case).args(&recover).stdin(Stdio::null()).output().expect("strace can be run");
        let (status, stderr) = (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned());
        let is_true = match status {
            Some(0) => !instance.exists(),
            Some(2) => !stderr.trim().is_empty() && !stderr.contains("panicked"),
            _ => stderr.contains("while loading shared libraries"),
        };
        match is_true {
            true => Ok(format!("status {status:?}")),
            false => Err(format!("{status:?}: {stderr}{}", String::from_utf8_lossy(&output.stdout))),
        }
    });
    run("kmemtraced", &["recover", "-B", &name], &[]);
    Ok(())
}

/// `doctor` fails at a call: it prints what it knows, or says why it knows nothing, and leaves no instance without a word.
fn a_doctor_that_fails_somewhere_leaves_nothing() -> Result<(), Skip> {
    let tracefs = can_record()?;
    has_strace()?;
    let doctor = |name: &str| {
        let words = ["doctor", "--quick", "-B", name].map(OsString::from);
        [program("kmemtraced").into_os_string()].into_iter().chain(words).collect::<Vec<_>>()
    };
    let cases = sample(count_calls(&doctor(&instance_name())), "a look at the machine");
    each_of(&cases, several(), |case| {
        let name = instance_name();
        let probe = format!("{name}-probe");
        let output = failing(case).args(doctor(&name)).stdin(Stdio::null()).output().expect("strace can be run");
        let (status, stderr) = (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned());
        let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
        let is_true = match status {
            Some(0) => stdout.contains("symbols"),
            Some(2) => !stderr.trim().is_empty(),
            _ => stderr.contains("while loading shared libraries"),
        };
        let is_left = tracefs.path().join("instances").join(&probe).exists();
        let is_told = stderr.contains("cannot be removed") || stdout.contains("cannot be removed");
        if is_left {
            run("kmemtraced", &["recover", "-B", &probe], &[]);
        }
        match !is_true || stderr.contains("panicked") || (is_left && !is_told) {
            true => Err(format!("{status:?}, left: {is_left}: {stderr}{stdout}")),
            false => Ok(format!("status {status:?}")),
        }
    });
    Ok(())
}

/// A call of the thread that collects names fails: the events are all there, and nothing hangs.
fn names_that_cannot_be_read_are_all_that_is_missing() -> Result<(), Skip> {
    let tracefs = can_record()?;
    has_strace()?;
    let failures = [
        ("openat", "EMFILE"),
        ("read", "EIO"),
        ("pread64", "EIO"),
        ("getdents64", "EIO"),
        ("newfstatat", "EIO"),
        ("statx", "EIO"),
        ("write", "EIO"),
        ("write", "ENOSPC"),
    ];
    let cases = failures.map(|(name, error)| [1, 2, 5].map(|number| Case { name, error, number })).concat();
    each_of(&cases, several(), |case| fail_names(&tracefs, case));
    Ok(())
}

/// Records while a call of the thread `names` fails; returns the way the recording ended, or the broken promise.
fn fail_names(tracefs: &Tracefs, case: Case) -> Result<String, String> {
    let (directory, name) = (Directory::new(&[]), instance_name());
    let trace = directory.file("trace");
    let mut command = Command::new(program("kmemtraced"));
    command.args(["-B", &name, "-e", "slab", "-b", "1M", "--flush", "100ms", "-d", "1.5", "-o"]).arg(&trace);
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    let mut child = child.map_err(|error| format!("kmemtraced: {error}"))?;
    let thread = thread_named(child.id(), "names").ok_or("there is no thread of names")?;
    let inject = format!("inject={}:error={}:when={}", case.name, case.error, case.number);
    let mut strace = Command::new("strace");
    strace.args(["-qq", "-o", "/dev/null", "-e", &format!("trace={}", case.name), "-e", &inject]);
    let strace = strace.args(["-p", &thread.to_string()]).stdin(Stdio::null()).stderr(Stdio::null()).spawn();
    let mut strace = strace.map_err(|error| format!("strace: {error}"))?;
    let is_loaded = load_once_it_records(&mut child, &tracefs.path().join("instances").join(&name), &trace);
    let status = wait(&mut child)?;
    let _ = strace.wait();
    let output = child.wait_with_output().map_err(|error| error.to_string())?;
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    judge(tracefs, &name, &trace, status, is_loaded, &stderr)
        .map_err(|fault| format!("{fault}: status {status}: {stderr}"))
}

/// Thread of a process by its name, once it runs.
fn thread_named(pid: u32, name: &str) -> Option<u32> {
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        for task in tasks {
            if std::fs::read_to_string(task.path().join("comm")).is_ok_and(|comm| comm.trim_end() == name) {
                return task.file_name().to_str()?.parse().ok();
            }
        }
        sleep(Duration::from_millis(1));
    }
    None
}

/// Kills a recorder, so that its instance stays.
fn leave_instance(instance: &Path, name: &str) {
    let directory = Directory::new(&[]);
    let mut command = Command::new(program("kmemtraced"));
    command.args(["-q", "-e", "kmalloc", "-b", "64K", "-B", name, "-o"]).arg(directory.file("trace"));
    let mut recorder = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().expect("kmemtraced can be run");
    let deadline = Instant::now() + PATIENCE;
    while !directory.file("trace").join("meta.out").exists() {
        assert!(Instant::now() < deadline, "the recorder does not begin");
        sleep(Duration::from_millis(2));
    }
    recorder.kill().expect("the recorder runs");
    recorder.wait().expect("the recorder has ended");
    assert!(instance.exists());
}

/// Cases to run: for each system call, numbers up to the greatest count of any thread.
fn cases() -> Vec<Case> {
    let (directory, name) = (Directory::new(&[]), instance_name());
    let mut words: Vec<OsString> = vec![program("kmemtraced").into(), "-B".into(), name.into()];
    words.extend(OPTIONS.map(OsString::from));
    words.extend(["-o".into(), directory.file("trace").into()]);
    sample(count_calls(&words), "a recording")
}

/// A sample of all calls, as the environment asks for it.
fn sample(counts: BTreeMap<String, u32>, what: &str) -> Vec<Case> {
    let wanted = std::env::var("KMEMTRACE_CALLS").unwrap_or_default();
    let takes = |name: &str| wanted.is_empty() || wanted == name;
    let all: Vec<Case> = FAILURES
        .into_iter()
        .filter(|(name, _)| takes(name))
        .flat_map(|(name, error)| {
            let count = counts.get(name).copied().unwrap_or(0).min(MOST_CALLS);
            (1..=count).map(move |number| Case { name, error, number })
        })
        .collect();
    assert!(all.len() > 100 || !wanted.is_empty(), "{what} makes more calls than these: {counts:?}");
    if !wanted.is_empty() || runs::is_all() {
        return all;
    }
    // A sample has the first call of each name, and every `step`th of the later ones.
    let (first, later): (Vec<Case>, Vec<Case>) = all.into_iter().partition(|case| case.number == 1);
    let step = (later.len() / SAMPLE.saturating_sub(first.len()).max(1)).max(1);
    first.into_iter().chain(later.into_iter().step_by(step)).collect()
}

/// Greatest number of calls of each name by a thread of a command.
fn count_calls(words: &[OsString]) -> BTreeMap<String, u32> {
    let directory = Directory::new(&[]);
    let log = directory.file("log");
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-o"]).arg(&log).args(words).stdout(Stdio::null()).stderr(Stdio::null());
    let status = command.status();
    assert!(status.is_ok_and(|status| matches!(status.code(), Some(0 | 1))), "{words:?} under strace fails");
    let mut by_thread: BTreeMap<(&str, &str), u32> = BTreeMap::new();
    let text = directory.text("log");
    for line in text.lines() {
        // `1234  openat(AT_FDCWD, ...`; the second half of an interrupted call begins with `<...`.
        let Some((thread, call)) = line.split_once(' ') else { continue };
        let Some((name, _)) = call.trim_start().split_once('(') else { continue };
        *by_thread.entry((thread, name)).or_default() += 1;
    }
    let mut counts = BTreeMap::new();
    for ((_, name), count) in by_thread {
        let most: &mut u32 = counts.entry(name.to_owned()).or_default();
        *most = count.max(*most);
    }
    counts
}

/// Command that runs another one, of which a call fails.
fn failing(case: Case) -> Command {
    let inject = format!("inject={}:error={}:when={}", case.name, case.error, case.number);
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "--seccomp-bpf", "-e", &format!("trace={}", case.name), "-e", &inject]);
    command.args(["-o", "/dev/null"]);
    command
}

/// Records while the call fails; returns the way the recording ended, or the broken promise.
fn fail(tracefs: &Tracefs, case: Case) -> Result<String, String> {
    let (directory, name) = (Directory::new(&[]), instance_name());
    let trace = directory.file("trace");
    let mut command = failing(case);
    command.arg(program("kmemtraced")).args(["-B", &name]).args(OPTIONS).arg("-o").arg(&trace);
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    let mut child = child.map_err(|error| format!("strace: {error}"))?;
    let is_loaded = load_once_it_records(&mut child, &tracefs.path().join("instances").join(&name), &trace);
    let status = wait(&mut child)?;
    let output = child.wait_with_output().map_err(|error| error.to_string())?;
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    judge(tracefs, &name, &trace, status, is_loaded, &stderr)
        .map_err(|fault| format!("{fault}: status {status}: {stderr}"))
}

/// Makes the known allocations while the recorder records; returns true if it recorded before and after.
fn load_once_it_records(child: &mut Child, instance: &Path, trace: &Path) -> bool {
    let records = || std::fs::read_to_string(instance.join("tracing_on")).is_ok_and(|on| on.trim() == "1");
    let enabled =
        || std::fs::read_to_string(instance.join("events/kmem/kfree/enable")).is_ok_and(|on| on.trim() == "1");
    let is_on = || records() && enabled() && trace.join("meta.out").exists();
    while child.try_wait().is_ok_and(|status| status.is_none()) {
        if is_on() {
            return load::iov(COUNT, VECTORS).is_ok() && is_on();
        }
        sleep(Duration::from_millis(2));
    }
    false
}

fn wait(child: &mut Child) -> Result<i32, String> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return status.code().ok_or_else(|| format!("ended by {status}")),
            Ok(None) if Instant::now() > deadline => {
                let _ = child.kill();
                return Err("hangs".to_owned());
            }
            Ok(None) => sleep(Duration::from_millis(10)),
            Err(error) => return Err(error.to_string()),
        }
    }
}

/// Compares the files and the instance that a recorder left with its messages.
fn judge(
    tracefs: &Tracefs,
    name: &str,
    trace: &Path,
    status: i32,
    is_loaded: bool,
    stderr: &str,
) -> Result<String, String> {
    if stderr.contains("while loading shared libraries") {
        return Ok("not begun".to_owned());
    }
    if stderr.contains("panicked") || !(0..=3).contains(&status) {
        return Err("a defect".to_owned());
    }
    if tracefs.path().join("instances").join(name).exists() {
        let has_message = stderr.contains("cannot be removed");
        run("kmemtraced", &["recover", "-B", name], &[]);
        if !has_message {
            return Err("the instance is left, and no message says so".to_owned());
        }
    }
    if status == 2 {
        let has_message = !stderr.trim().is_empty();
        return if has_message { Ok("refused".to_owned()) } else { Err("refused without a message".to_owned()) };
    }
    let checked = run("kmemtrace-check", &[], &[trace]).status.code();
    if status == 0 && checked != Some(0) {
        return Err(format!("status 0, and check says {checked:?}"));
    }
    if status != 0 && stderr.trim().is_empty() {
        return Err("loss without a message".to_owned());
    }
    if checked != Some(0) {
        return Ok(format!("status {status}, check {}", checked.unwrap_or(-1)));
    }
    let bytes = VECTORS * load::VECTOR_BYTES;
    let thread = rustix::thread::gettid().as_raw_nonzero().get();
    let filter = ["events", "--pid", &thread.to_string()];
    let events = json_lines(&run("kmemtrace-report", &filter, &[trace]).stdout);
    let found = events.iter().filter(|event| event["event"] == "kmalloc" && event["requested"] == bytes).count();
    if is_loaded && found != COUNT {
        return Err(format!("{found} of {COUNT} events, and check finds nothing"));
    }
    Ok(format!("status {status}, complete"))
}
