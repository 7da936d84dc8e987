//! Promises of the recorder on the running kernel, as root, with users' settings: age of an unread event, other
//! programs' changes to the control files, too few descriptors. Tests that cannot run here are listed as skipped at
//! the end.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use kmemtrace_abi::disk::block::{GAP_CLEARED, GAP_FOREIGN, GapRecord, Header, MAGIC, kind};
use kmemtrace_tests::live::Tracefs;
use kmemtrace_tests::programs::{check, json, program, run, run_to, until};
use kmemtrace_tests::recorder::{Recorded, Recorder, can_record, instance_name, kmemtraced, sandbox};
use kmemtrace_tests::recording::Directory;
use kmemtrace_tests::runner::Skip;
use kmemtrace_tests::terminal::Terminal;
use kmemtrace_tests::{load, runs, views};
use rustix::process::{Pid, Signal, kill_process};
use rustix::time::{ClockId, clock_gettime};
use serde_json::Value;
use zerocopy::FromBytes;

kmemtrace_tests::tests![
    a_report_of_the_recorder_waits_for_no_pager,
    an_event_stays_unread_no_longer_than_flush_says,
    under_load_the_files_are_as_fresh,
    a_foreign_hand_on_each_control_file_is_told,
    a_change_lasts_until_it_is_set_back,
    sub_buffers_of_another_size_leave_readable_files,
    a_switch_that_cannot_be_written_is_told_as_such,
    a_command_that_kills_what_started_it_is_told,
    a_command_that_stops_what_started_it_holds_up_nothing,
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
    the_limit_of_files_is_the_commands_alone,
    without_any_option_it_records_what_the_help_says,
];

/// Nanoseconds on the clock of a recording.
fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

/// Time beyond `--flush` after which an event must be in its file, on a machine that keeps no thread waiting.
const GRACE: Duration = Duration::from_millis(200);

/// Sleeps for at least this long, in steps: it takes longer on a machine that keeps threads waiting.
fn rest(time: Duration) {
    const STEP: Duration = Duration::from_millis(2);
    (0..time.as_millis() / STEP.as_millis()).for_each(|_| sleep(STEP));
}

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
        load::iov(COUNT, VECTORS).unwrap();
        sleep(Duration::from_millis(flush));
        rest(GRACE);
        let ended = recorder.kill();
        let bytes = VECTORS * load::VECTOR_BYTES;
        let thread = i64::from(rustix::thread::gettid().as_raw_nonzero().get());
        let is_ours = |event: &&Value| event["event"] == "kmalloc" && event["requested"] == bytes;
        let found = views::events_of(&ended.trace(), thread).iter().filter(is_ours).count();
        assert_eq!(found, COUNT, "{options:?}: events in the files {flush} ms after the last one");
    }
    Ok(())
}

fn under_load_the_files_are_as_fresh() -> Result<(), Skip> {
    can_record()?;
    let recorder = Recorder::start(&["-b", "64M"]);
    let mut load = spawn_load(&["mix", "30", "200"]);
    sleep(Duration::from_millis(1300));
    let resting = Instant::now();
    rest(Duration::from_secs(1) + GRACE);
    let limit = resting.elapsed();
    let killed = now();
    let ended = recorder.kill();
    load.kill().unwrap();
    let _ = load.wait();
    let found = check(&ended.trace());
    for file in found["files"].as_array().into_iter().flatten().filter(|file| file["cpu"].is_u64()) {
        let last = file["last"].as_u64().unwrap_or_default();
        let age = Duration::from_nanos(killed.saturating_sub(last));
        assert!(age <= limit, "the last event in {} is {age:?} old, {limit:?} at most", file["path"]);
    }
    Ok(())
}

fn spawn_load(arguments: &[&str]) -> Child {
    let mut command = Command::new(program("kmemload"));
    command.args(arguments).stdout(Stdio::null()).spawn().unwrap()
}

/// Control files of which the recorder must name one, with `|` between them, and a shell command in its instance that
/// changes them.
type Hand = (&'static str, &'static str);

/// Changes, and changes that are undone within milliseconds.
const HANDS: [Hand; 30] = [
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
    // The kernel cannot report writes in instances that are gone by then, and what it reports comes behind them.
    (
        "events/kmem/kmalloc/filter",
        "for n in 1 2 3 4; do mkdir ../$$.$n; echo 1 >../$$.$n/tracing_on; rmdir ../$$.$n; done
         echo 'bytes_req > 100' >events/kmem/kmalloc/filter; echo 0 >events/kmem/kmalloc/filter",
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
    // Nothing is written.
    ("trace", ": >trace"),
    ("per_cpu/cpu0/trace", ": >per_cpu/cpu0/trace"),
    ("set_event", "events=$(cat set_event); : >set_event; echo \"$events\" >set_event"),
];

/// Runs a shell command in the instance.
fn lay_hand_on(tracefs: &Tracefs, instance: &str, what: &str) {
    let dir = tracefs.path().join("instances").join(instance);
    let output = Command::new("sh").args(["-c", what]).current_dir(dir).output().unwrap();
    assert!(output.status.success(), "{what}: {}", String::from_utf8_lossy(&output.stderr));
}

fn a_foreign_hand_on_each_control_file_is_told() -> Result<(), Skip> {
    let tracefs = can_record()?;
    // Two at once: most of their time is waiting.
    for hands in HANDS.chunks(2) {
        std::thread::scope(|scope| {
            let laid = hands.iter().map(|hand| scope.spawn(|| lay_and_look(&tracefs, hand))).collect::<Vec<_>>();
            laid.into_iter().for_each(|laid| laid.join().unwrap());
        });
    }
    Ok(())
}

/// Lays a hand on the instance of a recorder, which must tell it at once, and of which the files must have a gap.
fn lay_and_look(tracefs: &Tracefs, (file, what): &(&str, &str)) {
    let begun = now();
    let recorder = Recorder::start(&["-b", "4M"]);
    recorder.until_said("recording to ", 1);
    let before = now();
    lay_hand_on(tracefs, recorder.instance_name(), what);
    let after = now();
    // While it records, not at the end.
    recorder.until_said("another program changed the recording", 1);
    let ended = recorder.stop();
    assert_eq!(ended.status.code(), Some(1), "{what}: {}", ended.stderr);
    let is_named = file.split('|').any(|file| ended.stderr.contains(file));
    assert!(is_named, "{what}: {file} is not named: {}", ended.stderr);
    assert!(ended.stderr.contains("an unknown number"), "{what}: {}", ended.stderr);
    let gaps = gaps(&ended.trace().join("cpu0.out"));
    let is_there = gaps.iter().any(|(gap, _)| {
        let (from, to) = (gap.interval.from.get(), gap.interval.to.get());
        // The change came between the two times.
        gap.reason == GAP_FOREIGN && (begun..=after).contains(&from) && before <= to
    });
    assert!(is_there, "{what}: no gap from {before} to {after}: {gaps:?}");
    let summary = json(&views::printed("summary", &ended.trace()));
    assert_eq!(summary["completeness"]["verdict"], "lossy", "{what}");
    assert_eq!(summary["completeness"]["lost_events"], Value::Null, "{what}");
}

/// GAP blocks of a file, with their texts.
fn gaps(path: &Path) -> Vec<(GapRecord, String)> {
    let bytes = fs::read(path).unwrap();
    let starts = bytes.windows(MAGIC.len()).enumerate().filter(|(_, bytes)| *bytes == MAGIC).map(|(at, _)| at);
    let blocks = starts.filter_map(|at| {
        let (header, _) = Header::read_from_prefix(&bytes[at..]).ok()?;
        Some((header, at + usize::from(header.header_len.get())))
    });
    let payloads = blocks.filter(|(header, _)| header.kind == kind::GAP);
    let payloads = payloads.filter_map(|(header, at)| bytes.get(at..at + header.payload_len.get() as usize));
    payloads
        .filter_map(|payload| GapRecord::parse(payload))
        .map(|(gap, text)| (gap, String::from_utf8_lossy(text).into_owned()))
        .collect()
}

fn a_change_lasts_until_it_is_set_back() -> Result<(), Skip> {
    let tracefs = can_record()?;
    let started = now();
    let recorder = Recorder::start(&[]);
    recorder.until_said("recording to ", 1);
    let hand = |what| lay_hand_on(&tracefs, recorder.instance_name(), what);
    hand("echo 0 >tracing_on");
    let is_off = now();
    recorder.until_said("kmemtraced: ", 1);
    sleep(Duration::from_millis(1500));
    let on = now();
    hand("echo 1 >tracing_on");
    recorder.until_said("kmemtraced: ", 2);
    let is_told = now();
    let instance = recorder.instance(&tracefs).read("tracing_on");
    assert_eq!(instance.unwrap().trim(), "1");
    let ended = recorder.stop();
    assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
    let told: Vec<&str> = ended.stderr.lines().filter(|line| line.contains("kmemtraced: ")).collect();
    assert_eq!(told.len(), 2, "once when it begins, once when it ends: {told:?}");
    let gaps = gaps(&ended.trace().join("cpu0.out"));
    let [(begun, _), (over, text)] = &gaps[..] else { panic!("{gaps:?}") };
    assert!(text.starts_with("tracing_on is 0 instead of 1, set by process "), "{text}");
    assert_eq!((begun.interval.from, begun.interval.to.get()), (over.interval.from, u64::MAX));
    assert!((started..=is_off).contains(&over.interval.from.get()), "{over:?}, off by {is_off}");
    assert!((on..=is_told).contains(&over.interval.to.get()), "{over:?}, on again from {on} on");
    Ok(())
}

fn sub_buffers_of_another_size_leave_readable_files() -> Result<(), Skip> {
    let tracefs = can_record()?;
    // Sub-buffers of 64 KiB that shrink, and of a page that grow. The buffer loses events, before and after.
    for (buffer, sizes) in [("4M", &["8"][..]), ("256K", &["8"]), ("256K", &["16", "4", "8"])] {
        let recorder = Recorder::start(&["-b", buffer]);
        recorder.until_said("recording to ", 1);
        if recorder.instance(&tracefs).read("buffer_subbuf_size_kb").is_err() {
            return Err(Skip("the size of sub-buffers cannot be set before Linux 6.8".to_owned()));
        }
        load::iov(20_000, 9).unwrap();
        for size in sizes {
            lay_hand_on(&tracefs, recorder.instance_name(), &format!("echo {size} >buffer_subbuf_size_kb"));
            load::iov(20_000, 9).unwrap();
        }
        let ended = recorder.stop();
        assert_eq!(ended.status.code(), Some(1), "{buffer} {sizes:?}: {}", ended.stderr);
        assert!(!ended.stderr.contains("another program read"), "{buffer} {sizes:?}: {}", ended.stderr);
        let found = check(&ended.trace());
        assert!(found["corrupt"] == 0 && found["lossy"].as_u64() > Some(0), "{buffer} {sizes:?}: {found}");
    }
    Ok(())
}

/// True if the thread that records, or that will, has CAP_DAC_OVERRIDE.
fn overrides_owners(pid: u32) -> bool {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten().map(|task| task.path());
    let of_record = tasks.filter(|task| fs::read_to_string(task.join("comm")).is_ok_and(|comm| comm == "record\n"));
    let status = of_record.filter_map(|task| fs::read_to_string(task.join("status")).ok()).next().unwrap_or_default();
    let rights = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("CapEff:")?.trim(), 16).ok());
    rights.is_none_or(|rights| rights & 1 << 1 != 0)
}

fn a_switch_that_cannot_be_written_is_told_as_such() -> Result<(), Skip> {
    let tracefs = can_record()?;
    let recorder = Recorder::start(&[]);
    until("the recorder has given CAP_DAC_OVERRIDE away", || !overrides_owners(recorder.pid()));
    lay_hand_on(&tracefs, recorder.instance_name(), "chown 65534 tracing_on; chmod 0 tracing_on");
    let ended = recorder.stop();
    let said =
        "tracing_on: cannot be set to 0: another program has changed its owner or mode: the kernel records until";
    assert!(ended.stderr.contains(said) && !ended.stderr.contains("changed the recording"), "{}", ended.stderr);
    Ok(())
}

fn a_command_that_kills_what_started_it_is_told() -> Result<(), Skip> {
    can_record()?;
    for options in [&[][..], &["--only-command"]] {
        // The one signal comes before the launcher can answer, or just after.
        let recorded = Recorded::new(options, &["sh", "-c", "kill -KILL $PPID"]);
        let stderr = recorded.stderr();
        assert_eq!(recorded.output.status.code(), Some(3), "{stderr}");
        assert!(stderr.contains("the process that started sh was killed"), "{stderr}");
        assert!(recorded.trace().join("meta.out").is_file());
    }
    Ok(())
}

fn a_command_that_stops_what_started_it_holds_up_nothing() -> Result<(), Skip> {
    can_record()?;
    let may = "kmemtraced: the command may go on: the process that starts programs (kmemtrace-run, pid";
    // A limit ends the recording; without one the first signal does, and the second one the wait for a report.
    for (options, by_signals) in [(["-d", "1"], false), (["--report", "summary"], true)] {
        let directory = Directory::new(&[]);
        let (trace, told) = (directory.file("trace"), directory.file("told"));
        let text = |file: &str| fs::read_to_string(directory.file(file)).unwrap_or_default();
        let mut command = kmemtraced();
        // Nothing is read for the second in which the answer is waited for.
        command.args(["-B", &instance_name(), "-b", "16M"]).args(options).arg("-o").arg(&trace);
        command.args(["--", "sh", "-c", "kill -STOP $PPID; echo $PPID $$ >pids; exec sleep 1000"]);
        let mut child = command.current_dir(directory.path()).stderr(fs::File::create(&told).unwrap()).spawn().unwrap();
        until("COMMAND has stopped its launcher", || text("pids").ends_with('\n'));
        let pids = text("pids");
        let (launcher, sleep) = pids.trim().split_once(' ').unwrap();
        if by_signals {
            terminate(child.id());
            until("the recording has ended", || text("told").contains(may));
            terminate(child.id());
        }
        let (status, said) = (child.wait().unwrap(), text("told"));
        kill_process(Pid::from_raw(sleep.parse().unwrap()).unwrap(), Signal::KILL).unwrap();
        assert_eq!(status.code(), Some(if by_signals { 3 } else { 0 }), "{said}");
        let why = if by_signals { "stopped: SIGTERM" } else { "stopped: --duration" };
        assert!(said.contains(why) && said.contains(may) && trace.join("meta.out").is_file(), "{said}");
        until("the launcher has ended", || {
            let state = fs::read_to_string(format!("/proc/{launcher}/stat")).unwrap_or_default();
            state.is_empty() || state.contains(") Z ")
        });
    }
    Ok(())
}

fn terminate(pid: u32) {
    kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), Signal::TERM).unwrap();
}

fn a_buffer_cleared_before_its_first_read_is_told() -> Result<(), Skip> {
    let tracefs = can_record()?;
    // The flush is too long for any read before the clear; the recorder looks at the counters meanwhile in the second
    // case only.
    for wait in [100, 3000] {
        let recorder = Recorder::start(&["--flush", "20s", "-b", "16M"]);
        // Many more events than between the clear and the end.
        load::iov(40_000, 9).unwrap();
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

/// Starts a recorder and changes its instance from a shell as soon as the recorder watches it: then it writes the symbols. Where
/// `is_stopped`, the recorder is stopped once it has told the change.
fn change_at_once(tracefs: &Tracefs, options: &[&str], what: &str, is_stopped: bool) -> (Output, Directory) {
    let (name, directory) = (instance_name(), Directory::new(&[]));
    let instance = tracefs.path().join("instances").join(&name);
    let mut command = kmemtraced();
    command.args(["-B", &name, "-b", "1M"]).args(options).arg("-o").arg(directory.file("trace"));
    let stderr = fs::File::create(directory.file("stderr")).unwrap();
    let mut child = command.stdout(Stdio::null()).stderr(stderr).spawn().unwrap();
    let script = format!("while :; do {what} && break; done 2>/dev/null");
    let deadline = Instant::now() + Duration::from_secs(20);
    while !directory.file("trace").join("meta.out").exists() {
        assert!(Instant::now() < deadline, "the recorder does not begin");
        sleep(Duration::from_millis(1));
    }
    Command::new("sh").args(["-c", &script]).current_dir(&instance).status().unwrap();
    if is_stopped {
        let is_told = || directory.text("stderr").contains("another program changed");
        while !is_told() && child.try_wait().unwrap().is_none() {
            assert!(Instant::now() < deadline, "{what}: is not told");
            sleep(Duration::from_millis(5));
        }
        let _ = rustix::process::kill_process(rustix::process::Pid::from_child(&child), Signal::TERM);
    }
    let output = child.wait_with_output().unwrap();
    (Output { stderr: directory.text("stderr").into_bytes(), ..output }, directory)
}

fn a_change_during_set_up_is_told() -> Result<(), Skip> {
    let tracefs = can_record()?;
    for (file, what) in [
        ("events/kmem/kmalloc/filter", "echo 'bytes_req > 100000000' >events/kmem/kmalloc/filter"),
        ("tracing_cpumask", "echo 1 >tracing_cpumask"),
        ("set_event_pid", "echo 1 >set_event_pid"),
        ("trace_clock", "echo local >trace_clock"),
    ] {
        let (output, directory) = change_at_once(&tracefs, &[], what, true);
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
    let (output, directory) = change_at_once(&tracefs, &["--flush", "20s", "-d", "0.8"], what, false);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert_eq!(run("kmemtrace-check", &[], &[&directory.file("trace")]).status.code(), Some(1), "{stderr}");
    Ok(())
}

fn a_clear_makes_suspect_what_was_not_read() -> Result<(), Skip> {
    let tracefs = can_record()?;
    let recorder = Recorder::start(&["--flush", "20s", "-b", "64M"]);
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
    fs::create_dir(&channel).unwrap();
    for (name, text) in [("cpu0", ""), ("abi_version", "1\n"), ("enabled", "0\n")] {
        fs::write(channel.join(name), text).unwrap();
    }
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-o", "/dev/null", "-e", "trace=pread64", "-e", "inject=pread64:error=ESPIPE", "-P"]);
    command.arg(channel.join("enabled"));
    command.arg(program("kmemtraced")).args(["-d", "0.5", "--relay"]).arg(&channel).arg("-o");
    let output = command.arg(directory.file("trace")).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

fn a_command_that_goes_on_hides_no_loss() -> Result<(), Skip> {
    let tracefs = can_record()?;
    let (name, directory) = (instance_name(), Directory::new(&[]));
    let off = format!("echo 0 >{}/instances/{name}/tracing_on", tracefs.path().display());
    let script = format!("trap '' TERM; {off}; i=0; while [ $i -lt 60 ]; do i=$((i+1)); sleep 0.1; done");
    let mut command = kmemtraced();
    command.args(["-B", &name, "-b", "1M", "-d", "0.5", "-o"]).arg(directory.file("trace"));
    let output = command.args(["--", "sh", "-c", &script]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

fn in_a_pid_namespace_no_thread_is_taken_for_another() -> Result<(), Skip> {
    can_record()?;
    let (name, directory) = (instance_name(), Directory::new(&[]));
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--mount-proc"]).arg(program("kmemtraced")).args(sandbox());
    command.args(["-v", "-B", &name, "-d", "0.5", "--compress", "none", "-o"]).arg(directory.file("trace"));
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
    let meta = fs::read(directory.file("trace/meta.out")).unwrap();
    assert!(!String::from_utf8_lossy(&meta).contains("\n1 kmemtraced\n"));
    Ok(())
}

fn a_command_keeps_its_status_and_the_loss_is_told() -> Result<(), Skip> {
    let tracefs = can_record()?;
    let (name, directory) = (instance_name(), Directory::new(&[]));
    let script = format!("echo 0 >{}/instances/{name}/tracing_on; sleep 0.2; exit 7", tracefs.path().display());
    let mut command = kmemtraced();
    command.args(["-B", &name, "-o"]).arg(directory.file("trace")).args(["--", "sh", "-c", &script]);
    let output = command.output().unwrap();
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
    let share: f64 = line.split(['(', '%']).nth(1).unwrap_or_default().parse().unwrap();
    assert!(share > 0.0 && share < 100.0, "{line}");
    assert_eq!(run("kmemtrace-check", &[], &[&ended.trace()]).status.code(), Some(0));
    Ok(())
}

fn interrupts_on_the_recorders_threads_are_recorded() -> Result<(), Skip> {
    let tracefs = can_record()?;
    let recorder = Recorder::start(&[]);
    let left_out = recorder.instance(&tracefs).read("set_event_notrace_pid").unwrap();
    assert_eq!(left_out.trim(), "", "threads whose events the kernel drops, together with those of interrupts on them");
    let pid = i64::from(recorder.pid());
    run_to(0, "kmemload", &["rounds", "500"], &[]);
    let ended = recorder.stop();
    let events = views::events_of(&ended.trace(), pid);
    assert!(!events.is_empty(), "events of the recorder's main thread are in the trace");
    Ok(())
}

fn a_source_that_is_removed_ends_it() -> Result<(), Skip> {
    kmemtrace_tests::live::root()?;
    // The kernel removes no instance that is held open, so plain files stand for a relay channel.
    let directory = Directory::new(&[]);
    let channel = directory.file("channel");
    fs::create_dir(&channel).unwrap();
    for (name, text) in [("cpu0", ""), ("abi_version", "1\n"), ("enabled", "0\n")] {
        fs::write(channel.join(name), text).unwrap();
    }
    let mut command = kmemtraced();
    command.arg("--relay").arg(&channel).arg("-o").arg(directory.file("trace")).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    while fs::read_to_string(channel.join("enabled")).is_ok_and(|text| text.trim() != "1") {
        assert!(Instant::now() < deadline, "the recorder does not begin to record");
        sleep(Duration::from_millis(10));
    }
    fs::remove_dir_all(&channel).unwrap();
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{stderr}");
    assert!(stderr.contains("the source of the recording was removed"), "{stderr}");
    Ok(())
}

/// Runs a recorder with a limit of open files; returns its output.
fn with_descriptors(limit: u32, name: &str, trace: &Path) -> Output {
    let script = format!("ulimit -n {limit}; exec \"$@\"");
    let mut command = Command::new("sh");
    command.args(["-c", &script, "sh"]).arg(program("kmemtraced")).args(["-B", name, "-b", "2M", "-d", "0.3", "-o"]);
    command.arg(trace).args(sandbox()).output().unwrap()
}

fn few_descriptors_leave_no_cpu_out() -> Result<(), Skip> {
    let tracefs = can_record()?;
    let cpus = load::cpus().unwrap().len();
    let mut load = spawn_load(&["mix", "120", "1000"]);
    let (mut refused, mut recorded) = (0, 0);
    let begun = Instant::now();
    for limit in (3..=110).step_by(runs::step(3)).take_while(|_| begun.elapsed() < Duration::from_secs(80)) {
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
    load.kill().unwrap();
    let _ = load.wait();
    assert!(refused >= 10 && recorded >= 10, "{refused} refused, {recorded} recorded");
    Ok(())
}

fn the_limit_of_files_is_the_commands_alone() -> Result<(), Skip> {
    can_record()?;
    for options in [&[][..], &["--only-command"]] {
        let (name, directory) = (instance_name(), Directory::new(&[]));
        // Fewer files than a recorder of two CPUs takes.
        let script = "ulimit -Sn 20; exec \"$@\"";
        let mut command = Command::new("sh");
        command.args(["-c", script, "sh"]).arg(program("kmemtraced")).args(["-B", &name, "-b", "1M"]).args(options);
        command.arg("-o").arg(directory.file("trace")).args(["--", "sh", "-c", "ulimit -Sn"]);
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{options:?}: {}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(String::from_utf8_lossy(&output.stdout), "20\n", "{options:?}");
    }
    Ok(())
}

fn without_any_option_it_records_what_the_help_says() -> Result<(), Skip> {
    let tracefs = can_record()?;
    let directory = Directory::new(&[]);
    let instance = tracefs.path().join("instances/kmemtrace");
    if instance.exists() {
        return Err(Skip("another recorder uses the default instance".to_owned()));
    }
    let mut command = kmemtraced();
    let child = command.current_dir(directory.path()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    let child = child.unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    let text = |file: &str| fs::read_to_string(instance.join(file)).unwrap_or_default();
    while text("tracing_on").trim() != "1" || !directory.file("kmemtrace.data/meta.out").exists() {
        assert!(Instant::now() < deadline, "the recorder does not begin to record");
        sleep(Duration::from_millis(10));
    }
    assert!(text("trace_clock").contains("[mono]"), "{}", text("trace_clock"));
    assert_eq!(text("options/overwrite").trim(), "1");
    let kib: u64 = text("buffer_size_kb").trim().parse().unwrap();
    assert!((16 << 10..65 << 10).contains(&kib), "{kib} KiB a CPU");
    let enabled = text("set_event");
    // Older kernels have `kmalloc_node` and `kmem_cache_alloc_node`, too.
    let mut events: Vec<&str> = enabled.lines().filter(|event| !event.ends_with("_node")).collect();
    events.sort_unstable();
    // Events that tell the cgroup of a thread are rare, and recorded where the kernel has them.
    let of_cgroups = |event: &str| event.starts_with("cgroup:cgroup_") || event == "task:task_newtask";
    events.retain(|event| !of_cgroups(event));
    assert_eq!(events, ["kmem:kfree", "kmem:kmalloc", "kmem:kmem_cache_alloc", "kmem:kmem_cache_free"]);
    run_to(0, "kmemload", &["rounds", "2000"], &[]);
    sleep(Duration::from_millis(2500));
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
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
    let mut again = kmemtraced();
    let status = again.current_dir(directory.path()).args(["-q", "-d", "0.2"]).stderr(Stdio::null()).status();
    assert!(status.unwrap().success() && second.join("meta.out").exists(), "an earlier one is kept");
    Ok(())
}

fn a_report_of_the_recorder_waits_for_no_pager() -> Result<(), Skip> {
    can_record()?;
    let directory = Directory::new(&[]);
    let (paged, trace) = (directory.file("paged"), directory.file("trace"));
    let recorder =
        format!("{} -q -d 0.2 -B {} {}", program("kmemtraced").display(), instance_name(), sandbox().join(" "));
    // The screen has fewer lines than any summary.
    let line = format!(
        "PAGER='touch {}' {recorder} --report summary -o {}; echo the end; read wait",
        paged.display(),
        trace.display()
    );
    let terminal = Terminal::start(&line, (100, 5))?;
    terminal.wait_for("the end");
    assert!(trace.join("cpu0.out").exists() && !paged.exists());
    Ok(())
}
