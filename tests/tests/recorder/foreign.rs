//! Hands of other programs on the recorder's instance, on the running kernel: whatever they do there is told. Tests that cannot run here
//! are listed as skipped at the end.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use kmemtrace_tests::counted::gaps;
use kmemtrace_tests::live::{Instance, Tracefs};
use kmemtrace_tests::programs::{json, program, run};
use kmemtrace_tests::recorder::{Recorded, Recorder, can_record, instance_name};
use kmemtrace_tests::recording::Directory;
use kmemtrace_tests::runner::Skip;
use kmemtrace_tests::views;
use rustix::time::{ClockId, clock_gettime};
use serde_json::Value;

kmemtrace_tests::tests![
    a_hand_on_anything_of_the_instance_is_told,
    a_hand_is_told_without_fanotify,
    a_trigger_is_found_where_the_kernel_reports_nothing,
    a_trigger_on_another_event_is_a_gap_until_it_is_gone,
    a_list_of_tasks_that_lost_one_stays_wrong,
    what_others_do_elsewhere_is_no_change,
    a_mapped_buffer_is_another_reader,
];

/// Nanoseconds on the clock of a recording.
fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

/// Runs a shell command in a directory of tracefs.
fn shell(dir: &Path, what: &str) {
    try_shell(dir, what).unwrap();
}

pub(crate) fn try_shell(dir: &Path, what: &str) -> Result<(), String> {
    let output = Command::new("sh").args(["-c", what]).current_dir(dir).output().unwrap();
    let failed = || format!("{what}: {}", String::from_utf8_lossy(&output.stderr));
    if output.status.success() { Ok(()) } else { Err(failed()) }
}

pub(crate) fn instance_dir(tracefs: &Tracefs, name: &str) -> PathBuf {
    tracefs.path().join("instances").join(name)
}

fn needs(program: &str) -> Result<(), Skip> {
    let is_there = Command::new(program).arg("--version").stdout(Stdio::null()).status().is_ok();
    if is_there { Ok(()) } else { Err(Skip(format!("needs {program}"))) }
}

/// A file that the recorder must name, and a shell command in its instance that writes to it.
const HANDS: [(&str, &str); 9] = [
    ("events/sched/sched_switch/trigger", "echo 'traceoff if next_pid == 99999999' >events/sched/sched_switch/trigger"),
    (
        "events/sched/sched_switch/trigger",
        "f=events/sched/sched_switch/trigger; echo traceoff:1 >$f; echo '!traceoff' >>$f",
    ),
    (
        "events/sched/sched_switch/enable",
        "echo 1 >events/sched/sched_switch/enable; echo 0 >events/sched/sched_switch/enable",
    ),
    ("set_ftrace_filter", "echo 'vfs_fsync:traceoff:1' >set_ftrace_filter"),
    ("set_ftrace_pid", "echo 1 >set_ftrace_pid"),
    ("record-cmd|trace_options", "echo 0 >options/record-cmd"),
    ("buffer_percent", "echo 99 >buffer_percent"),
    ("current_tracer", "echo blk >current_tracer; echo nop >current_tracer"),
    ("snapshot", "echo 1 >snapshot"),
];

/// True if the instance has the file that a hand writes to: not every kernel has each, and some let nobody open it.
pub(crate) fn is_there(dir: &Path, file: &str) -> bool {
    let can_be_opened = |path: PathBuf| fs::File::open(path).is_ok();
    file.split('|').all(|file| can_be_opened(dir.join(file)) || can_be_opened(dir.join("options").join(file)))
}

fn a_hand_on_anything_of_the_instance_is_told() -> Result<(), Skip> {
    let tracefs = can_record()?;
    let debugfs = Path::new("/sys/kernel/debug/tracing/instances");
    for (number, (file, what)) in HANDS.into_iter().enumerate() {
        let recorder = Recorder::start(&["-b", "1M"]);
        recorder.until_said("recording to ", 1);
        let mut dir = instance_dir(&tracefs, recorder.instance_name());
        if !is_there(&dir, file) {
            assert!(recorder.stop().status.success());
            continue;
        }
        // The same file system by another path.
        if number % 2 == 1 && debugfs.join(recorder.instance_name()).exists() {
            dir = debugfs.join(recorder.instance_name());
        }
        shell(&dir, what);
        recorder.until_said("another program changed the recording", 1);
        let ended = recorder.stop();
        assert_eq!(ended.status.code(), Some(1), "{what}: {}", ended.stderr);
        assert!(
            file.split('|').any(|file| ended.stderr.contains(file)),
            "{what}: {file} is not named: {}",
            ended.stderr
        );
        assert!(ended.stderr.contains(" by process "), "{what}: the writer is not named: {}", ended.stderr);
        let summary = json(&views::printed("summary", &ended.trace()));
        assert_eq!(summary["completeness"]["lost_events"], Value::Null, "{what}");
    }
    Ok(())
}

/// Starts a recorder that records for some seconds while these system calls fail, and waits until it records.
fn without(calls: &str, seconds: &str, tracefs: &Tracefs) -> (Child, String, Directory) {
    let (name, directory) = (instance_name(), Directory::new(&[]));
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "--seccomp-bpf", "-o", "/dev/null", "-e", &format!("trace={calls}")]);
    command.args(["-e", &format!("inject={calls}:error=ENOSYS")]).arg(program("kmemtraced"));
    command.args(["-v", "-e", "slab", "-b", "1M", "-d", seconds, "-B", &name, "-o"]).arg(directory.file("trace"));
    let stderr = fs::File::create(directory.file("stderr")).unwrap();
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr).spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    let on = instance_dir(tracefs, &name).join("tracing_on");
    while !fs::read_to_string(&on).is_ok_and(|on| on.trim() == "1") || !directory.file("trace/meta.out").exists() {
        assert!(child.try_wait().unwrap().is_none(), "{}", directory.text("stderr"));
        assert!(Instant::now() < deadline, "the recorder does not begin");
        sleep(Duration::from_millis(5));
    }
    sleep(Duration::from_millis(200));
    (child, name, directory)
}

fn a_hand_is_told_without_fanotify() -> Result<(), Skip> {
    let tracefs = can_record()?;
    needs("strace")?;
    for (file, what) in [
        (
            "events/sched/sched_switch/trigger",
            "f=events/sched/sched_switch/trigger; echo traceoff:1 >$f; echo '!traceoff' >>$f",
        ),
        ("tracing_on", "echo 0 >tracing_on; echo 1 >tracing_on"),
    ] {
        let (mut child, name, directory) = without("fanotify_init", "2", &tracefs);
        shell(&instance_dir(&tracefs, &name), what);
        let status = child.wait().unwrap();
        let stderr = directory.text("stderr");
        assert_eq!(status.code(), Some(1), "{what}: {stderr}");
        assert!(stderr.contains("another program changed") && stderr.contains(file), "{what}: {stderr}");
    }
    Ok(())
}

fn a_trigger_is_found_where_the_kernel_reports_nothing() -> Result<(), Skip> {
    let tracefs = can_record()?;
    needs("strace")?;
    let (mut child, name, directory) = without("fanotify_init,inotify_init1", "2", &tracefs);
    let set = now();
    // It never acts: nothing but its text can be found.
    shell(&instance_dir(&tracefs, &name), "echo 'traceoff if next_pid == 99999999' >events/sched/sched_switch/trigger");
    let status = child.wait().unwrap();
    let stderr = directory.text("stderr");
    assert_eq!(status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("no fanotify and no inotify"), "{stderr}");
    assert!(stderr.contains("events/sched/sched_switch/trigger is traceoff"), "{stderr}");
    let gaps = gaps(&views::events(&directory.file("trace")), 0);
    assert!(gaps.iter().any(|(from, to)| *from <= set && set < *to), "at {set}: {gaps:?}");
    Ok(())
}

fn a_trigger_on_another_event_is_a_gap_until_it_is_gone() -> Result<(), Skip> {
    let tracefs = can_record()?;
    let recorder = Recorder::start(&["-b", "1M"]);
    recorder.until_said("recording to ", 1);
    let dir = instance_dir(&tracefs, recorder.instance_name());
    let set = now();
    shell(&dir, "echo traceoff >events/sched/sched_switch/trigger");
    sleep(Duration::from_millis(1500));
    shell(&dir, "echo '!traceoff' >>events/sched/sched_switch/trigger; echo 1 >tracing_on");
    let on = now();
    recorder.until_said("as the recorder set them again", 1);
    sleep(Duration::from_millis(1200));
    let later = now();
    let ended = recorder.stop();
    assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
    let gaps = gaps(&views::events(&ended.trace()), 0);
    assert!(gaps.iter().any(|(from, to)| *from <= set && on <= *to), "from {set} to {on}: {gaps:?}");
    assert!(gaps.iter().all(|(_, to)| *to < later), "it was over before {later}: {gaps:?}");
    Ok(())
}

fn a_list_of_tasks_that_lost_one_stays_wrong() -> Result<(), Skip> {
    can_record()?;
    let load = program("kmemload").display().to_string();
    // COMMAND takes itself off the list, and adds its shell again: what it started meanwhile stays off.
    let script = format!(
        "sleep 0.3; echo 1 >INSTANCE/set_event_pid; {load} rounds 64; sleep 1.5; echo $$ >>INSTANCE/set_event_pid; sleep 0.5"
    );
    let recorded = Recorded::new(&["--only-command", "-b", "1M"], &["sh", "-c", &script]);
    let stderr = recorded.stderr();
    assert_eq!(recorded.output.status.code(), Some(0), "COMMAND's own: {stderr}");
    assert!(stderr.contains("set_event_pid lacks threads that were recorded"), "{stderr}");
    assert_eq!(run("kmemtrace-check", &[], &[&recorded.trace()]).status.code(), Some(1));
    let events = views::events(&recorded.trace());
    let last = events.iter().filter_map(|event| event["at"].as_u64()).max().unwrap();
    let gaps = gaps(&events, 0);
    let longest = gaps.iter().map(|(from, to)| (*to).min(last).saturating_sub(*from)).max().unwrap_or(0);
    assert!(longest > 1_500_000_000, "it lasts until the end: {gaps:?}");
    // Children that begin and end, and tasks that are added, are no change of the list.
    let script = "for i in 1 2 3 4 5 6; do sleep 0.3 & sleep 0.2; done; wait";
    let left_alone = Recorded::new(&["--only-command", "-b", "1M"], &["sh", "-c", script]);
    assert!(!left_alone.stderr().contains("another program"), "{}", left_alone.stderr());
    assert_eq!(run("kmemtrace-check", &[], &[&left_alone.trace()]).status.code(), Some(0));
    Ok(())
}

fn what_others_do_elsewhere_is_no_change() -> Result<(), Skip> {
    let tracefs = can_record()?;
    let recorder = Recorder::start(&["-b", "1M"]);
    recorder.until_said("recording to ", 1);
    let own = instance_dir(&tracefs, recorder.instance_name());
    // The kernel opens and closes each file that it reports: in another instance that would free its buffer (free_buffer), and keep
    // others from removing it. So nothing is marked but what belongs to the recorder's own.
    let marks = fanotify_marks(recorder.pid());
    assert!(!marks.is_empty() && marks.iter().all(|mark| mark.starts_with("ino:")), "{marks:?}");
    shell(
        &own,
        "echo a marker >trace_marker; cat trace >/dev/null; cat events/kmem/kfree/filter tracing_on >/dev/null",
    );
    let other = Instance::new(&tracefs)?;
    for what in [
        "echo 0 >tracing_on; echo 1 >events/sched/sched_switch/enable; echo 1 >tracing_on; echo >trace",
        "echo traceoff >events/sched/sched_switch/trigger; echo '!traceoff' >>events/sched/sched_switch/trigger",
        "echo 256 >buffer_size_kb; echo 1 >set_event_pid; echo 0 >events/enable; echo >set_event_pid",
    ] {
        shell(other.path(), what);
    }
    drop(other);
    // Events of another recorder appear in all instances, and vanish.
    let group = format!("kmemtrace_test_{}", std::process::id());
    let probe = format!("echo 'p:{group}/one /bin/sh:0' >>uprobe_events");
    if Command::new("sh").args(["-c", &probe]).current_dir(tracefs.path()).output().unwrap().status.success() {
        sleep(Duration::from_millis(1200));
        shell(tracefs.path(), &format!("echo '-:{group}/one' >>uprobe_events"));
    }
    let second = Recorder::start(&["-b", "1M"]);
    sleep(Duration::from_millis(1200));
    assert_eq!(second.stop().status.code(), Some(0));
    let ended = recorder.stop();
    assert!(!ended.stderr.contains("another program"), "{}", ended.stderr);
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    Ok(())
}

/// Kinds of the fanotify marks of a process, as `/proc/PID/fdinfo` lists them: `ino:…` of a file, `sdev:…` of a file system.
fn fanotify_marks(pid: u32) -> Vec<String> {
    let files = fs::read_dir(format!("/proc/{pid}/fdinfo")).unwrap().flatten();
    let lines = files.filter_map(|file| fs::read_to_string(file.path()).ok());
    let marks = lines.flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>());
    marks
        .filter_map(|line| Some(line.strip_prefix("fanotify ")?.to_owned()))
        .filter(|mark| !mark.starts_with("flags"))
        .collect()
}

/// Takes what is in a CPU's buffer by a mapping of `trace_pipe_raw` (`include/uapi/linux/trace_mmap.h`): the first ioctl hands out a
/// sub-buffer. Ends with 3 where the kernel has no such mapping.
const MAPPED: &str = "
import ctypes, fcntl, mmap, os, sys, time
fd = os.open(sys.argv[1], os.O_RDONLY | os.O_NONBLOCK)
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
if libc.mmap(None, mmap.PAGESIZE, mmap.PROT_READ, mmap.MAP_SHARED, fd, 0) == ctypes.c_void_p(-1).value:
    sys.exit(3)
end = time.time() + 1
while time.time() < end:
    fcntl.ioctl(fd, 0x5220)
    time.sleep(0.01)
";

fn a_mapped_buffer_is_another_reader() -> Result<(), Skip> {
    let tracefs = can_record()?;
    needs("python3")?;
    let recorder = Recorder::start(&["-b", "4M", "--flush", "3s"]);
    recorder.until_said("recording to ", 1);
    let raw = instance_dir(&tracefs, recorder.instance_name()).join("per_cpu/cpu0/trace_pipe_raw");
    let mut load = Command::new(program("kmemload"));
    let mut load = load.args(["mix", "3", "300"]).stdout(Stdio::null()).spawn().unwrap();
    let status = Command::new("python3").args(["-c", MAPPED]).arg(raw).status().unwrap();
    load.wait().unwrap();
    let ended = recorder.stop();
    if status.code() == Some(3) {
        return Err(Skip("this kernel maps no ring buffer".to_owned()));
    }
    assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
    assert!(ended.stderr.contains("another program read its buffer"), "{}", ended.stderr);
    assert_eq!(run("kmemtrace-check", &[], &[&ended.trace()]).status.code(), Some(1), "{}", ended.stderr);
    Ok(())
}
