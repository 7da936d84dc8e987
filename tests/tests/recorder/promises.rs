//! Promises of the recorder on the running kernel, as root, with users' settings: age of an unread event, other
//! programs' changes to the control files, too few descriptors. Tests that cannot run here are listed as skipped at
//! the end.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use kmemtrace_abi::disk::block::{GAP_CLEARED, GAP_FOREIGN, GapRecord, HEADER_BYTES, Header, MAGIC, kind};
use kmemtrace_tests::live::Tracefs;
use kmemtrace_tests::programs::{json, program, run, run_to};
use kmemtrace_tests::recorder::{Recorder, can_record, instance_name};
use kmemtrace_tests::recording::Directory;
use kmemtrace_tests::runner::Skip;
use kmemtrace_tests::{load, views};
use rustix::process::Signal;
use rustix::time::{ClockId, clock_gettime};
use serde_json::Value;
use zerocopy::FromBytes;

kmemtrace_tests::tests![
    an_event_stays_unread_no_longer_than_flush_says,
    under_load_the_files_are_as_fresh,
    a_foreign_hand_on_each_control_file_is_told,
    a_change_lasts_until_it_is_set_back,
    a_buffer_cleared_before_its_first_read_is_told,
    a_change_during_set_up_is_told,
    a_buffer_cleared_after_the_stop_is_told,
    a_clear_makes_suspect_what_was_not_read,
    a_switch_that_cannot_seek_is_read_all_the_same,
    a_command_that_goes_on_hides_no_loss,
    in_a_pid_namespace_no_thread_is_taken_for_another,
    a_command_keeps_its_status_and_the_loss_is_told,
    a_recording_that_is_left_alone_is_complete,
    interrupts_on_the_recorders_threads_are_recorded,
    a_source_that_is_removed_ends_it,
    few_descriptors_leave_no_cpu_out,
    without_any_option_it_records_what_the_help_says,
];

/// Panics on an error in the test's environment.
fn must<T, E: std::fmt::Display>(what: &str, result: Result<T, E>) -> T {
    result.unwrap_or_else(|error| panic!("{what}: {error}"))
}

fn check(trace: &Path) -> Value {
    json(&run("kmemtrace-check", &["--format", "json"], &[trace]).stdout)
}

/// Nanoseconds on the clock of a recording.
fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

/// Time beyond `--flush` after which an event must be in its file.
const GRACE: Duration = Duration::from_millis(200);

fn an_event_stays_unread_no_longer_than_flush_says() -> Result<(), Skip> {
    can_record()?;
    const COUNT: usize = 5000;
    const VECTORS: usize = 77;
    // Fill levels far below the kernel's wake-up mark. The first case has the default `--flush`.
    for (options, flush) in
        [(&["-b", "64M"][..], 1000), (&["-b", "64M", "--flush", "2s"], 2000), (&["-b", "64M", "--flush", "300ms"], 300)]
    {
        let recorder = Recorder::start(options);
        // The delay is out of step with the recorder's timers.
        sleep(Duration::from_millis(1337));
        must("load", load::iov(COUNT, VECTORS));
        sleep(Duration::from_millis(flush) + GRACE);
        let ended = recorder.kill();
        let bytes = VECTORS * load::VECTOR_BYTES;
        let thread = i64::from(rustix::thread::gettid().as_raw_nonzero().get());
        let is_ours =
            |event: &&Value| event["event"] == "kmalloc" && event["requested"] == bytes && event["pid"] == thread;
        let found = views::events(&ended.trace()).iter().filter(is_ours).count();
        assert_eq!(found, COUNT, "{options:?}: events in the files {flush} ms after the last one");
    }
    Ok(())
}

fn under_load_the_files_are_as_fresh() -> Result<(), Skip> {
    can_record()?;
    let recorder = Recorder::start(&["-b", "64M"]);
    let mut load = spawn_load(&["mix", "30", "200"]);
    sleep(Duration::from_millis(2500));
    let killed = now();
    let ended = recorder.kill();
    must("kill", load.kill());
    let _ = load.wait();
    let found = check(&ended.trace());
    for file in found["files"].as_array().into_iter().flatten().filter(|file| file["cpu"].is_u64()) {
        let last = file["last"].as_u64().unwrap_or_default();
        let age = Duration::from_nanos(killed.saturating_sub(last));
        assert!(age <= Duration::from_secs(1) + GRACE, "the last event in {} is {age:?} old", file["path"]);
    }
    Ok(())
}

fn spawn_load(arguments: &[&str]) -> Child {
    let mut command = Command::new(program("kmemload"));
    must("kmemload", command.args(arguments).stdout(Stdio::null()).spawn())
}

/// Control files of which the recorder must name one, with `|` between them, and a shell command in its instance that
/// changes them.
type Hand = (&'static str, &'static str);

/// Changes, and changes that are undone within milliseconds.
const HANDS: [Hand; 26] = [
    ("tracing_on", "echo 0 >tracing_on"),
    ("tracing_on", "echo 0 >tracing_on; echo 1 >tracing_on"),
    ("events/kmem/kfree/enable", "echo 0 >events/kmem/kfree/enable"),
    ("events/kmem/kfree/enable", "echo 0 >events/kmem/kfree/enable; echo 1 >events/kmem/kfree/enable"),
    ("events/kmem/kmalloc/enable", "echo 0 >events/kmem/enable; echo 1 >events/kmem/kfree/enable"),
    ("events/kmem/kmalloc/enable", "echo 0 >events/enable"),
    ("events/kmem/kmalloc/enable", "echo '!kmem:kmalloc' >>set_event"),
    // The recorder may look between the two writes.
    ("set_event|events/kmem/kmalloc/enable", "echo '!kmem:kmalloc' >>set_event; echo kmem:kmalloc >>set_event"),
    ("events/kmem/kmalloc/filter", "echo 'bytes_req > 100' >events/kmem/kmalloc/filter"),
    (
        "events/kmem/kmalloc/filter",
        "echo 'bytes_req > 100' >events/kmem/kmalloc/filter; echo 0 >events/kmem/kmalloc/filter",
    ),
    (
        "events/kmem/filter|events/kmem/kfree/filter",
        "echo 'common_pid != 1' >events/kmem/filter; echo 0 >events/kmem/filter",
    ),
    ("events/kmem/kfree/trigger", "echo traceoff:1 >events/kmem/kfree/trigger"),
    ("set_event_pid", "echo 1 >set_event_pid"),
    ("set_event_pid", "echo 1 >set_event_pid; echo >set_event_pid"),
    ("set_event_notrace_pid", "echo $$ >set_event_notrace_pid"),
    ("tracing_cpumask", "echo 1 >tracing_cpumask"),
    ("trace_options", "echo nooverwrite >trace_options"),
    ("options/overwrite", "echo 0 >options/overwrite; echo 1 >options/overwrite"),
    ("buffer_size_kb", "echo 512 >buffer_size_kb"),
    ("buffer_size_kb", "echo 512 >per_cpu/cpu0/buffer_size_kb"),
    ("buffer_subbuf_size_kb", "echo 8 >buffer_subbuf_size_kb"),
    ("free_buffer", "echo >free_buffer"),
    ("current_tracer", "echo nop >current_tracer"),
    ("trace_clock", "echo boot >trace_clock"),
    ("trace", "echo >trace"),
    ("per_cpu/cpu0/trace", "echo >per_cpu/cpu0/trace"),
];

/// Runs a shell command in the instance.
fn lay_hand_on(tracefs: &Tracefs, instance: &str, what: &str) {
    let dir = tracefs.path().join("instances").join(instance);
    let output = must("sh", Command::new("sh").args(["-c", what]).current_dir(dir).output());
    assert!(output.status.success(), "{what}: {}", String::from_utf8_lossy(&output.stderr));
}

fn a_foreign_hand_on_each_control_file_is_told() -> Result<(), Skip> {
    let tracefs = can_record()?;
    for (file, what) in HANDS {
        let recorder = Recorder::start(&["-b", "4M"]);
        sleep(Duration::from_millis(120));
        let before = now();
        lay_hand_on(&tracefs, recorder.instance_name(), what);
        let after = now();
        // The recorder reports the change at once, not at the end.
        sleep(Duration::from_millis(120));
        let ended = recorder.stop();
        assert_eq!(ended.status.code(), Some(1), "{what}: {}", ended.stderr);
        assert!(ended.stderr.contains("another program changed the recording"), "{what}: {}", ended.stderr);
        let is_named = file.split('|').any(|file| ended.stderr.contains(file));
        assert!(is_named, "{what}: {file} is not named: {}", ended.stderr);
        assert!(ended.stderr.contains("an unknown number"), "{what}: {}", ended.stderr);
        let gaps = gaps(&ended.trace().join("cpu0.out"));
        let is_there = gaps.iter().any(|(gap, _)| {
            let (from, to) = (gap.interval.from.get(), gap.interval.to.get());
            // The change came between the two times.
            gap.reason == GAP_FOREIGN && from <= after && from + 1_000_000_000 > before && before <= to
        });
        assert!(is_there, "{what}: no gap from {before} to {after}: {gaps:?}");
        let summary = json(&views::printed("summary", &ended.trace()));
        assert_eq!(summary["completeness"]["verdict"], "lossy", "{what}");
        assert_eq!(summary["completeness"]["lost_events"], Value::Null, "{what}");
    }
    Ok(())
}

/// GAP blocks of a file, with their texts.
fn gaps(path: &Path) -> Vec<(GapRecord, String)> {
    let bytes = must("file", fs::read(path));
    let starts = bytes.windows(MAGIC.len()).enumerate().filter(|(_, bytes)| *bytes == MAGIC).map(|(at, _)| at);
    let blocks = starts.filter_map(|at| Some((Header::read_from_prefix(&bytes[at..]).ok()?.0, at + HEADER_BYTES)));
    let payloads = blocks.filter(|(header, _)| header.kind == kind::GAP);
    let payloads = payloads.filter_map(|(header, at)| bytes.get(at..at + header.payload_len.get() as usize));
    payloads
        .filter_map(|payload| GapRecord::parse(payload))
        .map(|(gap, text)| (gap, String::from_utf8_lossy(text).into_owned()))
        .collect()
}

fn a_change_lasts_until_it_is_set_back() -> Result<(), Skip> {
    let tracefs = can_record()?;
    let recorder = Recorder::start(&[]);
    let hand = |what| lay_hand_on(&tracefs, recorder.instance_name(), what);
    sleep(Duration::from_millis(300));
    let off = now();
    hand("echo 0 >tracing_on");
    let is_off = now();
    sleep(Duration::from_millis(1500));
    let on = now();
    hand("echo 1 >tracing_on");
    let is_on = now();
    sleep(Duration::from_millis(300));
    let instance = recorder.instance(&tracefs).read("tracing_on");
    assert_eq!(must("tracing_on", instance).trim(), "1");
    let ended = recorder.stop();
    assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
    let told: Vec<&str> = ended.stderr.lines().filter(|line| line.contains("kmemtraced: ")).collect();
    assert_eq!(told.len(), 2, "once when it begins, once when it ends: {told:?}");
    let gaps = gaps(&ended.trace().join("cpu0.out"));
    let [(begun, _), (over, text)] = &gaps[..] else { panic!("{gaps:?}") };
    assert_eq!(text, "tracing_on is 0 instead of 1");
    assert_eq!((begun.interval.from, begun.interval.to.get()), (over.interval.from, u64::MAX));
    let slack = 200_000_000;
    assert!((off - slack..=is_off).contains(&over.interval.from.get()), "{over:?}, off by {off}");
    assert!((on..=is_on + slack).contains(&over.interval.to.get()), "{over:?}, on again by {on}");
    Ok(())
}

fn a_buffer_cleared_before_its_first_read_is_told() -> Result<(), Skip> {
    let tracefs = can_record()?;
    // The flush is too long for any read before the clear; the recorder looks at the counters meanwhile in the second
    // case only.
    for wait in [100, 1300] {
        let recorder = Recorder::start(&["--flush", "20s", "-b", "16M"]);
        // Many more events than between the clear and the end.
        must("load", load::iov(40_000, 9));
        sleep(Duration::from_millis(wait));
        lay_hand_on(&tracefs, recorder.instance_name(), "echo >trace");
        let ended = recorder.stop();
        assert_eq!(ended.status.code(), Some(1), "after {wait} ms: {}", ended.stderr);
        let gaps = gaps(&ended.trace().join("cpu0.out"));
        let reasons: Vec<u32> = gaps.iter().map(|(gap, _)| gap.reason.get()).collect();
        assert!(reasons.contains(&GAP_FOREIGN), "after {wait} ms: {gaps:?}");
        // Counters show the clear, too, if the recorder had looked at them before.
        assert!(wait < 1000 || reasons.contains(&GAP_CLEARED), "after {wait} ms: {gaps:?}");
    }
    Ok(())
}

/// Starts a recorder and changes its instance from a shell as soon as the recorder watches it: then it writes the symbols.
fn change_at_once(tracefs: &Tracefs, options: &[&str], what: &str) -> (Output, Directory) {
    let (name, directory) = (instance_name(), Directory::new(&[]));
    let instance = tracefs.path().join("instances").join(&name);
    let mut command = Command::new(program("kmemtraced"));
    command.args(["-B", &name, "-b", "1M"]).args(options).arg("-o").arg(directory.file("trace"));
    let child = must("kmemtraced", command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn());
    let script = format!("while :; do {what} && break; done 2>/dev/null");
    let deadline = Instant::now() + Duration::from_secs(20);
    while !directory.file("trace").join("meta.out").exists() {
        assert!(Instant::now() < deadline, "the recorder does not begin");
        sleep(Duration::from_millis(1));
    }
    must("sh", Command::new("sh").args(["-c", &script]).current_dir(&instance).status());
    (must("kmemtraced", child.wait_with_output()), directory)
}

fn a_change_during_set_up_is_told() -> Result<(), Skip> {
    let tracefs = can_record()?;
    for (file, what) in [
        ("events/kmem/kmalloc/filter", "echo 'bytes_req > 100000000' >events/kmem/kmalloc/filter"),
        ("tracing_cpumask", "echo 1 >tracing_cpumask"),
        ("set_event_pid", "echo 1 >set_event_pid"),
        ("trace_clock", "echo local >trace_clock"),
    ] {
        let (output, directory) = change_at_once(&tracefs, &["-d", "0.6"], what);
        let stderr = String::from_utf8_lossy(&output.stderr);
        // The recorder refuses a change that comes before the control files are watched.
        if output.status.code() == Some(2) && stderr.contains("changed it while it was set up") {
            continue;
        }
        assert_eq!(output.status.code(), Some(1), "{what}: {stderr}");
        assert!(stderr.contains(file), "{what}: {stderr}");
        assert_eq!(run("kmemtrace-check", &[], &[&directory.file("trace")]).status.code(), Some(1), "{what}");
    }
    Ok(())
}

fn a_buffer_cleared_after_the_stop_is_told() -> Result<(), Skip> {
    let tracefs = can_record()?;
    let what = "[ $(cat tracing_on) = 1 ] && while [ $(cat tracing_on) = 1 ]; do :; done; echo >trace; true";
    let (output, directory) = change_at_once(&tracefs, &["--flush", "20s", "-d", "0.8"], what);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert_eq!(run("kmemtrace-check", &[], &[&directory.file("trace")]).status.code(), Some(1), "{stderr}");
    Ok(())
}

fn a_clear_makes_suspect_what_was_not_read() -> Result<(), Skip> {
    let tracefs = can_record()?;
    let recorder = Recorder::start(&["--flush", "20s", "-b", "256M"]);
    // A recorder that stands still reads nothing, however busy the machine is.
    recorder.signal(Signal::STOP);
    let begun = now();
    sleep(Duration::from_millis(1700));
    lay_hand_on(&tracefs, recorder.instance_name(), "echo >per_cpu/cpu0/trace");
    let cleared = now();
    recorder.signal(Signal::CONT);
    let ended = recorder.stop();
    let gaps = gaps(&ended.trace().join("cpu0.out"));
    // Nothing was read since then, so the gap covers all of it.
    let covers = |gap: &GapRecord| gap.interval.from.get() <= begun && gap.interval.to.get() + 500_000_000 > cleared;
    assert!(gaps.iter().any(|(gap, _)| covers(gap)), "from {begun} to {cleared}: {gaps:?}");
    Ok(())
}

fn a_switch_that_cannot_seek_is_read_all_the_same() -> Result<(), Skip> {
    kmemtrace_tests::live::root()?;
    if Command::new("strace").arg("--version").stdout(Stdio::null()).status().is_err() {
        return Err(Skip("needs strace".to_owned()));
    }
    // Switches of debugfs cannot seek; plain files stand for a channel, and strace for the kernel.
    let directory = Directory::new(&[]);
    let channel = directory.file("channel");
    must("channel", fs::create_dir(&channel));
    for (name, text) in [("cpu0", ""), ("abi_version", "1\n"), ("enabled", "0\n")] {
        must(name, fs::write(channel.join(name), text));
    }
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-o", "/dev/null", "-e", "trace=pread64", "-e", "inject=pread64:error=ESPIPE", "-P"]);
    command.arg(channel.join("enabled"));
    command.arg(program("kmemtraced")).args(["-d", "0.5", "--relay"]).arg(&channel).arg("-o");
    let output = must("strace", command.arg(directory.file("trace")).output());
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

fn a_command_that_goes_on_hides_no_loss() -> Result<(), Skip> {
    let tracefs = can_record()?;
    let (name, directory) = (instance_name(), Directory::new(&[]));
    let off = format!("echo 0 >{}/instances/{name}/tracing_on", tracefs.path().display());
    let script = format!("trap '' TERM; {off}; i=0; while [ $i -lt 60 ]; do i=$((i+1)); sleep 0.1; done");
    let mut command = Command::new(program("kmemtraced"));
    command.args(["-B", &name, "-b", "1M", "-d", "0.5", "-o"]).arg(directory.file("trace"));
    let output = must("kmemtraced", command.args(["--", "sh", "-c", &script]).output());
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

fn in_a_pid_namespace_no_thread_is_taken_for_another() -> Result<(), Skip> {
    can_record()?;
    let (name, directory) = (instance_name(), Directory::new(&[]));
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--mount-proc"]).arg(program("kmemtraced"));
    command.args(["-v", "-B", &name, "-b", "1M", "-d", "0.5", "--compress", "none", "-o"]).arg(directory.file("trace"));
    let Ok(output) = command.output() else { return Err(Skip("needs unshare".to_owned())) };
    let stderr = String::from_utf8_lossy(&output.stderr);
    if stderr.contains("unshare failed") {
        return Err(Skip(format!("no pid namespace can be had: {}", stderr.trim())));
    }
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    assert!(stderr.contains("pid namespace"), "{stderr}");
    let summary = json(&views::printed("summary", &directory.file("trace")));
    assert_eq!((&summary["trace"]["own_threads"], &summary["own"]), (&Value::Null, &Value::Null));
    // Thread 1 there is the recorder.
    let meta = must("meta.out", fs::read(directory.file("trace/meta.out")));
    assert!(!String::from_utf8_lossy(&meta).contains("\n1 kmemtraced\n"));
    Ok(())
}

fn a_command_keeps_its_status_and_the_loss_is_told() -> Result<(), Skip> {
    let tracefs = can_record()?;
    let (name, directory) = (instance_name(), Directory::new(&[]));
    let script = format!("echo 0 >{}/instances/{name}/tracing_on; sleep 0.2; exit 7", tracefs.path().display());
    let mut command = Command::new(program("kmemtraced"));
    command.args(["-B", &name, "-o"]).arg(directory.file("trace")).args(["--", "sh", "-c", &script]);
    let output = must("kmemtraced", command.output());
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(7), "{stderr}");
    assert!(stderr.contains("tracing_on is 0 instead of 1"), "{stderr}");
    assert_eq!(run("kmemtrace-check", &[], &[&directory.file("trace")]).status.code(), Some(1));
    Ok(())
}

fn a_recording_that_is_left_alone_is_complete() -> Result<(), Skip> {
    can_record()?;
    let recorder = Recorder::start(&["-v"]);
    run_to(0, "kmemload", &["rounds", "3000"], &[]);
    sleep(Duration::from_millis(2200));
    let ended = recorder.stop();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    assert!(!ended.stderr.contains("another program"), "{}", ended.stderr);
    // The recorder measures and prints its own share.
    let line = ended.stderr.lines().find(|line| line.contains("of the recorder's own threads"));
    let line = line.unwrap_or_else(|| panic!("the own share is not told: {}", ended.stderr));
    let share: f64 = must("share", line.split(['(', '%']).nth(1).unwrap_or_default().parse());
    assert!(share > 0.0 && share < 100.0, "{line}");
    assert_eq!(run("kmemtrace-check", &[], &[&ended.trace()]).status.code(), Some(0));
    Ok(())
}

fn interrupts_on_the_recorders_threads_are_recorded() -> Result<(), Skip> {
    let tracefs = can_record()?;
    let recorder = Recorder::start(&[]);
    let left_out = must("set_event_notrace_pid", recorder.instance(&tracefs).read("set_event_notrace_pid"));
    assert_eq!(left_out.trim(), "", "threads whose events the kernel drops, together with those of interrupts on them");
    let pid = i64::from(recorder.pid());
    run_to(0, "kmemload", &["rounds", "500"], &[]);
    let ended = recorder.stop();
    let tids = views::events(&ended.trace()).iter().filter(|event| event["pid"] == pid).count();
    assert!(tids > 0, "events of the recorder's main thread are in the trace");
    Ok(())
}

fn a_source_that_is_removed_ends_it() -> Result<(), Skip> {
    kmemtrace_tests::live::root()?;
    // The kernel removes no instance that is held open, so plain files stand for a relay channel.
    let directory = Directory::new(&[]);
    let channel = directory.file("channel");
    must("channel", fs::create_dir(&channel));
    for (name, text) in [("cpu0", ""), ("abi_version", "1\n"), ("enabled", "0\n")] {
        must(name, fs::write(channel.join(name), text));
    }
    let mut command = Command::new(program("kmemtraced"));
    command.arg("--relay").arg(&channel).arg("-o").arg(directory.file("trace")).stderr(Stdio::piped());
    let child = must("kmemtraced", command.spawn());
    let deadline = Instant::now() + Duration::from_secs(30);
    while fs::read_to_string(channel.join("enabled")).is_ok_and(|text| text.trim() != "1") {
        assert!(Instant::now() < deadline, "the recorder does not begin to record");
        sleep(Duration::from_millis(10));
    }
    must("channel", fs::remove_dir_all(&channel));
    let output = must("kmemtraced", child.wait_with_output());
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{stderr}");
    assert!(stderr.contains("what was recorded from was removed"), "{stderr}");
    Ok(())
}

/// Runs a recorder with a limit of open files; returns its output.
fn with_descriptors(limit: u32, name: &str, trace: &Path) -> Output {
    let script = format!("ulimit -n {limit}; exec \"$@\"");
    let mut command = Command::new("sh");
    command.args(["-c", &script, "sh"]).arg(program("kmemtraced")).args(["-B", name, "-b", "2M", "-d", "0.3", "-o"]);
    must("sh", command.arg(trace).output())
}

fn few_descriptors_leave_no_cpu_out() -> Result<(), Skip> {
    let tracefs = can_record()?;
    let cpus = must("affinity", load::cpus()).len();
    let mut load = spawn_load(&["mix", "120", "1000"]);
    let (mut refused, mut recorded) = (0, 0);
    let begun = Instant::now();
    for limit in (3..=90).take_while(|_| begun.elapsed() < Duration::from_secs(80)) {
        let (name, directory) = (instance_name(), Directory::new(&[]));
        let trace = directory.file("trace");
        let output = with_descriptors(limit, &name, &trace);
        let stderr = String::from_utf8_lossy(&output.stderr);
        let left = tracefs.path().join("instances").join(&name);
        assert!(!left.exists(), "ulimit -n {limit}: {} is left: {stderr}", left.display());
        match output.status.code() {
            Some(0 | 1) => {
                recorded += 1;
                let found = check(&trace);
                let files = found["files"].as_array().into_iter().flatten();
                let filled = files.filter(|file| file["cpu"].is_u64() && file["events"].as_u64() > Some(0)).count();
                assert_eq!(filled, cpus, "ulimit -n {limit}: a busy CPU has no events: {stderr}\n{found}");
            }
            // The system's loader cannot even start the recorder below this limit.
            Some(127) if limit < 5 => {}
            status => {
                assert_eq!(status, Some(2), "ulimit -n {limit}: {stderr}");
                assert!(stderr.contains("Too many open files"), "ulimit -n {limit}: {stderr}");
                assert!(!trace.exists(), "ulimit -n {limit}: {} is left: {stderr}", trace.display());
                refused += 1;
            }
        }
    }
    must("kill", load.kill());
    let _ = load.wait();
    assert!(refused >= 10 && recorded >= 10, "{refused} refused, {recorded} recorded");
    Ok(())
}

fn without_any_option_it_records_what_the_help_says() -> Result<(), Skip> {
    let tracefs = can_record()?;
    let directory = Directory::new(&[]);
    let instance = tracefs.path().join("instances/kmemtrace");
    if instance.exists() {
        return Err(Skip("another recorder uses the default instance".to_owned()));
    }
    let mut command = Command::new(program("kmemtraced"));
    let child = command.current_dir(directory.path()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    let child = must("kmemtraced", child);
    let deadline = Instant::now() + Duration::from_secs(30);
    let text = |file: &str| fs::read_to_string(instance.join(file)).unwrap_or_default();
    while text("tracing_on").trim() != "1" || !directory.file("kmemtrace.data/meta.out").exists() {
        assert!(Instant::now() < deadline, "the recorder does not begin to record");
        sleep(Duration::from_millis(10));
    }
    assert!(text("trace_clock").contains("[mono]"), "{}", text("trace_clock"));
    assert_eq!(text("options/overwrite").trim(), "1");
    let kib: u64 = must("buffer_size_kb", text("buffer_size_kb").trim().parse());
    assert!((16 << 10..65 << 10).contains(&kib), "{kib} KiB a CPU");
    let enabled = text("set_event");
    // Older kernels have `kmalloc_node` and `kmem_cache_alloc_node`, too.
    let mut events: Vec<&str> = enabled.lines().filter(|event| !event.ends_with("_node")).collect();
    events.sort_unstable();
    assert_eq!(events, ["kmem:kfree", "kmem:kmalloc", "kmem:kmem_cache_alloc", "kmem:kmem_cache_free"]);
    run_to(0, "kmemload", &["rounds", "2000"], &[]);
    sleep(Duration::from_millis(2500));
    let pid = rustix::process::Pid::from_child(&child);
    must("kill", rustix::process::kill_process(pid, Signal::INT));
    let output = must("kmemtraced", child.wait_with_output());
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    assert!(!instance.exists(), "the instance is left");
    let trace = directory.file("kmemtrace.data");
    assert_eq!(run("kmemtrace-check", &[], &[&trace]).status.code(), Some(0));
    // Blocks are compressed while the writers keep up: an event takes more than 60 bytes in the kernel's buffer.
    let found = check(&trace);
    let files = found["files"].as_array().into_iter().flatten().filter(|file| file["cpu"].is_u64());
    let (mut all, mut bytes) = (0, 0);
    for file in files {
        all += file["events"].as_u64().unwrap_or_default();
        bytes += fs::metadata(file["path"].as_str().unwrap_or_default()).map_or(0, |data| data.len());
    }
    assert!(all > 100_000 && bytes < all * 30, "{bytes} bytes of {all} events: {found}");
    let second = directory.file("kmemtrace.data.old");
    let mut again = Command::new(program("kmemtraced"));
    let status = again.current_dir(directory.path()).args(["-q", "-d", "0.2"]).stderr(Stdio::null()).status();
    assert!(must("kmemtraced", status).success() && second.join("meta.out").exists(), "an earlier one is kept");
    Ok(())
}
