//! Hands of other programs on the recorder's instance, on the running kernel: whatever they do there is told, and each event that is
//! missing for it lies in a gap. Tests that cannot run here are listed as skipped at the end.
//!
//! Random runs are three of each kind, or fifty with `KMEMTRACE_RUNS=all`, or as many as it says.

use std::collections::HashMap;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use kmemtrace_tests::generate::Random;
use kmemtrace_tests::live::{Instance, Tracefs};
use kmemtrace_tests::programs::{json, program, run};
use kmemtrace_tests::recorder::{Recorded, Recorder, can_record, instance_name};
use kmemtrace_tests::recording::Directory;
use kmemtrace_tests::runner::Skip;
use kmemtrace_tests::{load, views};
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
    each_missing_event_lies_in_a_gap,
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

fn try_shell(dir: &Path, what: &str) -> Result<(), String> {
    let output = Command::new("sh").args(["-c", what]).current_dir(dir).output().unwrap();
    let failed = || format!("{what}: {}", String::from_utf8_lossy(&output.stderr));
    if output.status.success() { Ok(()) } else { Err(failed()) }
}

fn instance_dir(tracefs: &Tracefs, name: &str) -> PathBuf {
    tracefs.path().join("instances").join(name)
}

/// Gaps among the lines of the view `events`, of a CPU, as (from, to), on the clock of the trace. The view lets no gap begin before the
/// first event: such a one begins before it.
fn gaps(lines: &[Value], cpu: u64) -> Vec<(u64, u64)> {
    let events = lines.iter().filter(|line| line["event"] != "gap");
    let first = events.filter_map(|event| event["at"].as_u64()).min().unwrap_or(0);
    let gaps = lines.iter().filter(|line| line["event"] == "gap" && line["cpu"] == cpu);
    let from = |gap: &Value| gap["from"].as_u64().filter(|from| *from > first).unwrap_or(0);
    gaps.map(|gap| (from(gap), gap["at"].as_u64().unwrap_or(u64::MAX))).collect()
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
fn is_there(dir: &Path, file: &str) -> bool {
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

/// A hand of the random runs: what it does in the instance, and how it sets that back after a while. TID is the thread whose events are
/// recorded.
struct Kind {
    file: &'static str,
    on: &'static str,
    off: &'static str,
}

const fn kind(file: &'static str, on: &'static str, off: &'static str) -> Kind {
    Kind { file, on, off }
}

const KINDS: [Kind; 14] = [
    kind("tracing_on", "echo 0 >tracing_on", "echo 1 >tracing_on"),
    kind("set_event", "echo 0 >events/kmem/kmalloc/enable", "echo 1 >events/kmem/kmalloc/enable"),
    kind("set_event", "echo '!kmem:kmalloc' >>set_event", "echo kmem:kmalloc >>set_event"),
    kind(
        "events/kmem/kmalloc/filter",
        "echo 'bytes_req > 100000000' >events/kmem/kmalloc/filter",
        "echo 'common_pid == TID' >events/kmem/kmalloc/filter",
    ),
    kind(
        "events/sched/sched_switch/trigger",
        "echo traceoff >events/sched/sched_switch/trigger",
        "echo '!traceoff' >>events/sched/sched_switch/trigger; echo 1 >tracing_on",
    ),
    kind(
        "events/sched/sched_switch/trigger",
        "echo disable_event:kmem:kmalloc >events/sched/sched_switch/trigger",
        "echo '!disable_event:kmem:kmalloc' >>events/sched/sched_switch/trigger; echo 1 >events/kmem/kmalloc/enable",
    ),
    kind("set_event_pid", "echo 1 >set_event_pid", "echo >set_event_pid"),
    kind("set_event_notrace_pid", "echo TID >set_event_notrace_pid", "echo >set_event_notrace_pid"),
    kind(
        "tracing_cpumask",
        "cat tracing_cpumask >/dev/shm/mask-TID; echo 1 >tracing_cpumask",
        "cat /dev/shm/mask-TID >tracing_cpumask; rm /dev/shm/mask-TID",
    ),
    kind("trace", "echo >trace", "echo >trace"),
    kind("buffer_size_kb", "echo 64 >buffer_size_kb", "echo 4096 >buffer_size_kb"),
    kind("trace_clock", "echo boot >trace_clock", "echo mono >trace_clock"),
    kind("trace_pipe", "timeout 0.1 cat trace_pipe >/dev/null; true", "timeout 0.1 cat trace_pipe >/dev/null; true"),
    kind(
        "set_ftrace_filter",
        "echo 'ksys_read:traceoff' >set_ftrace_filter",
        "echo '!ksys_read:traceoff' >>set_ftrace_filter; echo 1 >tracing_on",
    ),
];

/// An event of the independent count.
#[derive(Clone, Copy, Debug)]
struct Counted {
    cpu: u64,
    /// Nanoseconds, to a microsecond.
    time: u64,
    bytes: u64,
}

/// Nanoseconds by which the two instances may put an event at different times: an interrupt may come in between.
const SLACK: u64 = 500_000;

/// Allocations of the load by their sizes: a size comes again after this many.
const SIZES: usize = 64;

/// Allocations in each part of a run, at least.
const LEAST: usize = 50;

/// A thread that allocates.
#[derive(Debug, Default)]
struct Load {
    /// Thread id; 0 until it is known.
    thread: AtomicUsize,
    begins: AtomicBool,
    ends: AtomicBool,
    /// Allocations up to now.
    made: AtomicUsize,
}

impl Load {
    /// Allocates from the time when it `begins` until it `ends`.
    fn run(&self) {
        let thread = rustix::thread::gettid().as_raw_nonzero().get();
        self.thread.store(thread.unsigned_abs() as usize, Ordering::Release);
        while !self.begins.load(Ordering::Acquire) {
            sleep(Duration::from_millis(1));
        }
        for vectors in (0..SIZES).cycle() {
            if self.ends.load(Ordering::Acquire) {
                return;
            }
            load::iov(1, load::STACK_VECTORS + 1 + vectors).unwrap();
            self.made.fetch_add(1, Ordering::Release);
            sleep(Duration::from_micros(150));
        }
    }

    /// Waits for a while, and for some allocations.
    fn rest(&self, time: Duration) {
        let before = self.made.load(Ordering::Acquire);
        sleep(time);
        while self.made.load(Ordering::Acquire) < before + LEAST {
            sleep(Duration::from_millis(1));
        }
    }
}

/// Events in the text of the file `trace`.
fn counted(trace: &str) -> Vec<Counted> {
    let line = |line: &str| {
        let (head, record) = line.split_once(": kmalloc: ")?;
        let cpu = head.split_once('[')?.1.split_once(']')?.0.parse().ok()?;
        let (seconds, micros) = head.split_whitespace().last()?.split_once('.')?;
        let time = (seconds.parse::<u64>().ok()? * 1_000_000 + micros.parse::<u64>().ok()?) * 1000;
        let bytes = record.split_once("bytes_req=")?.1.split_whitespace().next()?.parse().ok()?;
        Some(Counted { cpu, time, bytes })
    };
    trace.lines().filter_map(line).collect()
}

/// Counts the events of a thread in an instance of the test's own while a recorder records them and a hand acts on its instance.
/// Returns how the recording ended, or the broken promise.
fn random_run(tracefs: &Tracefs, kind: &Kind, seed: u64) -> Result<String, String> {
    let load = Load::default();
    thread::scope(|scope| {
        scope.spawn(|| load.run());
        while load.thread.load(Ordering::Acquire) == 0 {
            thread::yield_now();
        }
        // A panic must not leave the thread running: the scope waits for it.
        let run = catch_unwind(AssertUnwindSafe(|| hand_at_random(tracefs, kind, seed, &load)));
        load.ends.store(true, Ordering::Release);
        load.begins.store(true, Ordering::Release);
        run.unwrap_or_else(|_| Err("the run panicked".to_owned()))
    })
}

fn hand_at_random(tracefs: &Tracefs, kind: &Kind, seed: u64, load: &Load) -> Result<String, String> {
    let mut random = Random::new(seed);
    let tid = &load.thread.load(Ordering::Acquire).to_string();
    let failed = |error: std::io::Error| error.to_string();
    let own = Instance::new(tracefs).map_err(|Skip(reason)| reason)?;
    let filter = format!("common_pid == {tid}");
    let settings =
        [("trace_clock", "mono"), ("buffer_size_kb", "8192"), ("events/kmem/kmalloc/filter", filter.as_str())];
    for (file, value) in settings.into_iter().chain([("events/kmem/kmalloc/enable", "1")]) {
        own.write(file, value).map_err(failed)?;
    }
    let options = ["-b", "4M", "--filter", &filter];
    let recorder = Recorder::start_of("kmalloc", Directory::new(&[]), &instance_name(), &options);
    let dir = instance_dir(tracefs, recorder.instance_name());
    if !is_there(&dir, kind.file) {
        recorder.stop();
        return Ok("not in this kernel".to_owned());
    }
    recorder.until_said("recording to ", 1);
    load.begins.store(true, Ordering::Release);
    let mut rest = |most| load.rest(Duration::from_millis(random.below(most)));
    rest(300);
    let laid = try_shell(&dir, &kind.on.replace("TID", tid));
    rest(500);
    let laid = laid.and_then(|()| try_shell(&dir, &kind.off.replace("TID", tid)));
    rest(200);
    own.write("tracing_on", "0").map_err(failed)?;
    // What the count has ends before the recording does.
    let ended = recorder.stop();
    laid?;
    let status = ended.status.code();
    let expected = counted(&own.read("trace").map_err(failed)?);
    if expected.len() < 2 * LEAST {
        return Err(format!("only {} events were counted", expected.len()));
    }
    let lines = views::events(&ended.trace());
    let missing = missing(&expected, &lines);
    let gaps: HashMap<u64, Vec<(u64, u64)>> =
        missing.iter().map(|event| event.cpu).map(|cpu| (cpu, gaps(&lines, cpu))).collect();
    let lies_in_a_gap = |event: &&Counted| {
        gaps[&event.cpu]
            .iter()
            .any(|(from, to)| from.saturating_sub(SLACK) <= event.time && event.time <= to.saturating_add(SLACK))
    };
    let outside: Vec<&Counted> = missing.iter().filter(|event| !lies_in_a_gap(event)).collect();
    let lost = json(&views::printed("summary", &ended.trace()))["completeness"]["lost_events"].as_u64();
    let found =
        format!("status {status:?}, {} of {} events missing, lost_events {lost:?}", missing.len(), expected.len());
    if !outside.is_empty() {
        let first = outside[0];
        return Err(format!("{found}: {} in no gap, such as {first:?}: {gaps:?}: {}", outside.len(), ended.stderr));
    }
    if status == Some(0) && !missing.is_empty() {
        return Err(format!("{found}: {}", ended.stderr));
    }
    if lost.is_some_and(|lost| lost < missing.len() as u64) {
        return Err(format!("{found}: the number is wrong: {}", ended.stderr));
    }
    Ok(format!("status {}", status.unwrap_or(-1)))
}

/// Events of the count that the recording does not have.
fn missing(expected: &[Counted], lines: &[Value]) -> Vec<Counted> {
    let mut recorded: HashMap<(u64, u64), Vec<u64>> = HashMap::new();
    for event in lines.iter().filter(|event| event["event"] == "kmalloc") {
        let number = |member: &str| event[member].as_u64().unwrap_or(0);
        recorded.entry((number("cpu"), number("requested"))).or_default().push(number("at"));
    }
    let has = |event: &&Counted| {
        let times = recorded.get(&(event.cpu, event.bytes));
        times.is_some_and(|times| times.iter().any(|time| time.abs_diff(event.time) <= SLACK))
    };
    expected.iter().filter(|event| !has(event)).copied().collect()
}

fn each_missing_event_lies_in_a_gap() -> Result<(), Skip> {
    let tracefs = can_record()?;
    let runs = match std::env::var("KMEMTRACE_RUNS").as_deref() {
        Ok("all") => 50,
        Ok(number) => number.parse().unwrap(),
        Err(_) => 3,
    };
    let cases: Vec<(&Kind, u64)> = KINDS.iter().flat_map(|kind| (0..runs).map(move |seed| (kind, seed))).collect();
    let (next, faults) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let ends: Mutex<HashMap<String, u32>> = Mutex::default();
    let workers = thread::available_parallelism().map_or(2, usize::from) * 2;
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some((kind, seed)) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    match random_run(&tracefs, kind, *seed) {
                        Ok(end) => *ends.lock().unwrap().entry(end).or_insert(0) += 1,
                        Err(fault) => {
                            eprintln!("{}, seed {seed}: {fault}", kind.on);
                            faults.lock().unwrap().push(format!("{}, seed {seed}: {fault}", kind.on));
                        }
                    }
                }
            });
        }
    });
    println!("{} runs; ends: {:?}", cases.len(), ends.lock().unwrap());
    let faults = faults.into_inner().unwrap();
    assert!(faults.is_empty(), "{} of {}:\n{}", faults.len(), cases.len(), faults.join("\n"));
    Ok(())
}
