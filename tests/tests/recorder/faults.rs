//! Faults while recording on the running kernel, as root: a slow reader, a kill, a full disk, another program in the
//! instance. Tests that cannot run here are listed as skipped at the end.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::{self, sleep};
use std::time::Duration;

use kmemtrace_abi::kernel::stats::Stats;
use kmemtrace_tests::generate::{Options, Shape, trace_dir, workload};
use kmemtrace_tests::live::{Tracefs, root};
use kmemtrace_tests::programs::{check, json, json_lines, limited, program, run, run_to, until};
use kmemtrace_tests::recorder::{Recorder, can_record, instance_name, kmemtraced};
use kmemtrace_tests::recording::Directory;
use kmemtrace_tests::runner::Skip;
use kmemtrace_tests::{load, views};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use rustix::process::Signal;
use serde_json::Value;

kmemtrace_tests::tests![
    a_stopped_reader_loses_what_the_kernel_counts,
    two_recorders_of_one_run_say_the_same,
    a_killed_recorder_leaves_a_trace_and_nothing_enabled,
    a_full_disk_ends_it_with_what_fitted,
    packing_makes_the_room_that_it_needs,
    a_second_recorder_is_refused,
    a_changed_output_is_told,
    a_renamed_directory_is_told_and_recording_goes_on,
    an_earlier_recording_is_not_lost,
    a_cleared_buffer_is_told,
    signals_at_any_time_make_one_clean_end,
    a_command_is_recorded_and_its_status_passed_on,
    limits_end_it,
    a_thread_that_cannot_be_had_is_told,
    a_thread_that_the_kernel_has_killed_ends_it,
    events_read_by_another_program_are_reported,
    a_reader_of_trace_pipe_is_told_with_its_remedy,
    a_killed_recorders_channel_is_set_back,
];

fn load_for(milliseconds: u64) {
    let end = std::time::Instant::now() + Duration::from_millis(milliseconds);
    let cpus = load::cpus().unwrap().len();
    thread::scope(|scope| {
        for _ in 0..cpus {
            scope.spawn(|| {
                while std::time::Instant::now() < end {
                    load::iov(500, 9).unwrap();
                }
            });
        }
    });
}

fn nothing_is_left(tracefs: &Tracefs, instance: &str) {
    let left = tracefs.path().join("instances").join(instance);
    assert!(!left.exists(), "{} is left", left.display());
}

fn a_stopped_reader_loses_what_the_kernel_counts() -> Result<(), Skip> {
    let tracefs = can_record()?;
    let recorder = Recorder::start(&["-b", "64K"]);
    load_for(300);
    recorder.signal(Signal::STOP);
    load_for(1000);
    recorder.signal(Signal::CONT);
    load_for(100);
    // The kernel's counters are held open, so that they can be read after the recorder has drained the buffers. The
    // open files keep the instance.
    let instance = recorder.instance(&tracefs);
    let cpus = instance.cpus().unwrap();
    let held: Vec<File> =
        cpus.iter().map(|cpu| File::open(instance.path().join(format!("per_cpu/cpu{cpu}/stats"))).unwrap()).collect();
    let name = recorder.instance_name().to_owned();
    let ended = recorder.stop();
    let counted = held.iter().map(|stats| {
        let mut text = [0; 1024];
        let len = stats.read_at(&mut text, 0).unwrap();
        let stats = Stats::parse(&String::from_utf8_lossy(&text[..len]));
        (stats.read + stats.entries, stats.overrun + stats.dropped + stats.commit_overrun)
    });
    let counted: Vec<(u64, u64)> = counted.collect();
    drop(held);
    run_to(0, "kmemtraced", &["recover", "-B", &name], &[]);
    assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
    let starved = ended.stderr.lines().find(|line| line.contains("events were lost: the reader of CPU"));
    let starved = starved.unwrap_or_else(|| panic!("{}", ended.stderr));
    assert!(starved.contains(" overran; record again with a larger --buffer-size"), "{starved}");
    let found = check(&ended.trace());
    for (cpu, (written, lost)) in cpus.iter().zip(counted) {
        let files = found["files"].as_array().into_iter().flatten();
        let mut file = files.filter(|file| file["cpu"] == *cpu);
        let file = file.next().unwrap_or_else(|| panic!("no file of CPU {cpu}: {found}"));
        assert_eq!(file["events"], written, "CPU {cpu}: events");
        assert_eq!(file["lost_events"], lost, "CPU {cpu}: lost");
        assert_eq!(file["verdict"] == "lossy", lost > 0, "CPU {cpu}: {file}");
        assert_eq!(file["gaps"].as_u64() > Some(0), lost > 0, "CPU {cpu}: {file}");
    }
    let summary = json(&views::printed("summary", &ended.trace()));
    assert_eq!(summary["completeness"]["verdict"], "lossy");
    assert!(summary["completeness"]["lost_events"].as_u64() > Some(10_000), "{}", summary["completeness"]);
    views::assert_invariants("overrun", &ended.trace());
    nothing_is_left(&tracefs, &name);
    Ok(())
}

/// Number of events of a process by event and call-site.
fn events_by_site(trace: &Path, pid: i64) -> BTreeMap<(String, String), u64> {
    let lines = run_to(0, "kmemtrace-report", &["events", "--pid", &pid.to_string()], &[trace]);
    let mut sites = BTreeMap::new();
    for event in json_lines(&lines) {
        if event["pid"] == pid {
            *sites.entry((event["event"].to_string(), event["call_site"].to_string())).or_default() += 1;
        }
    }
    sites
}

fn two_recorders_of_one_run_say_the_same() -> Result<(), Skip> {
    can_record()?;
    let (one, other) = (Recorder::start(&[]), Recorder::start(&[]));
    let output = run_to(0, "kmemload", &["iov", "20000", "20"], &[]);
    let pid = String::from_utf8_lossy(&output).lines().next().unwrap_or_default().parse().unwrap();
    let (one, other) = (one.stop_whole(), other.stop_whole());
    let (one, other) = (events_by_site(&one.file("trace"), pid), events_by_site(&other.file("trace"), pid));
    assert!(one.values().sum::<u64>() >= 40_000, "{one:?}");
    assert_eq!(one, other);
    Ok(())
}

fn a_killed_recorder_leaves_a_trace_and_nothing_enabled() -> Result<(), Skip> {
    let tracefs = can_record()?;
    let name = instance_name();
    for milliseconds in [0, 5, 60, 300, 1100] {
        // Each recorder starts although the one before it was killed.
        let recorder = Recorder::start_in(Directory::new(&[]), &name, &["--flush", "100ms"]);
        load_for(milliseconds);
        recorder.signal(Signal::KILL);
        let instance = recorder.instance(&tracefs);
        let ended = recorder.wait();
        let on = instance.read("tracing_on").unwrap();
        assert_eq!(on.trim(), "0", "the kernel goes on tracing after {milliseconds} ms");
        let status = run("kmemtrace-check", &[], &[&ended.trace()]).status.code();
        assert_eq!(status, Some(1), "after {milliseconds} ms");
        let summary = json(&views::printed("summary", &ended.trace()));
        assert_eq!(summary["completeness"]["verdict"], "truncated", "after {milliseconds} ms");
    }
    let output = run_to(0, "kmemtraced", &["recover", "-B", &name], &[]);
    assert!(String::from_utf8_lossy(&output).contains(&name));
    nothing_is_left(&tracefs, &name);
    let output = run_to(0, "kmemtraced", &["recover", "-B", &name], &[]);
    assert!(!String::from_utf8_lossy(&output).contains(&name), "the instance is gone already");
    Ok(())
}

/// File system of a few bytes.
struct Small<'a>(&'a Path);

impl<'a> Small<'a> {
    fn new(path: &'a Path, kib: usize) -> Small<'a> {
        let size = std::ffi::CString::new(format!("size={kib}k")).unwrap();
        mount("none", path, "tmpfs", MountFlags::empty(), size.as_c_str()).unwrap();
        Small(path)
    }
}

impl Drop for Small<'_> {
    fn drop(&mut self) {
        let _ = unmount(self.0, UnmountFlags::DETACH);
    }
}

fn a_full_disk_ends_it_with_what_fitted() -> Result<(), Skip> {
    let tracefs = can_record()?;
    for kib in [24 << 10, (25 << 10) + 37] {
        let directory = Directory::new(&[]);
        let path = directory.path().to_owned();
        let _small = Small::new(&path, kib);
        // No compression, so that the recording fills the disk.
        let recorder = Recorder::start_in(directory, &instance_name(), &["--flush", "100ms", "--compress", "none"]);
        let name = recorder.instance_name().to_owned();
        load_for(2000);
        let ended = recorder.wait();
        assert_eq!(ended.status.code(), Some(3), "{}", ended.stderr);
        assert!(ended.stderr.contains("No space left on device"), "{}", ended.stderr);
        let found = check(&ended.trace());
        let verdicts = found["files"].as_array().into_iter().flatten().filter_map(|file| file["verdict"].as_str());
        let verdicts: Vec<&str> = verdicts.collect();
        assert!(verdicts.iter().any(|v| *v != "ok") && !verdicts.contains(&"corrupt"), "{verdicts:?}");
        views::assert_invariants("full disk", &ended.trace());
        nothing_is_left(&tracefs, &name);
    }
    Ok(())
}

fn packing_makes_the_room_that_it_needs() -> Result<(), Skip> {
    root()?;
    let files = trace_dir(&workload(1, &Options::plain(Shape::plain(), 4, 40_000)), 1);
    let kib = |bytes: usize| bytes.div_ceil(4096) * 4;
    let read = |dir: &Directory| -> Vec<Vec<u8>> {
        files.iter().map(|(name, _)| std::fs::read(dir.file(name)).unwrap()).collect()
    };
    let pack = |dir: &Directory| run("kmemtrace-report", &["pack", "-j", "4"], &[dir.path()]);
    let elsewhere = Directory::new(&files);
    assert_eq!(pack(&elsewhere).status.code(), Some(0));
    let packed = read(&elsewhere);
    let all: usize = files.iter().map(|(_, bytes)| kib(bytes.len())).sum();
    let largest = packed.iter().map(|bytes| kib(bytes.len())).max().unwrap_or_default();
    assert!(largest > 100, "{largest} KiB: several are not made at once");
    for (room, has_enough) in [(largest + 16, true), (8, false)] {
        let directory = Directory::new(&[]);
        let _small = Small::new(directory.path(), all + room);
        files.iter().for_each(|(name, bytes)| directory.write(name, bytes));
        let output = pack(&directory);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(if has_enough { 0 } else { 2 }), "{stderr}");
        if has_enough {
            assert!(read(&directory) == packed);
        } else {
            assert!(stderr.contains("room beside") && stderr.contains("No space left on device"), "{stderr}");
            assert!(read(&directory).iter().eq(files.iter().map(|(_, bytes)| bytes)));
        }
        let there = std::fs::read_dir(directory.path()).into_iter().flatten().count();
        assert_eq!(there, files.len(), "nothing else is left there");
    }
    Ok(())
}

fn a_second_recorder_is_refused() -> Result<(), Skip> {
    can_record()?;
    let recorder = Recorder::start(&[]);
    let elsewhere = Directory::new(&[]);
    let name = recorder.instance_name().to_owned();
    let second = run("kmemtraced", &["-B", &name, "-o"], &[&elsewhere.file("trace")]);
    let stderr = String::from_utf8_lossy(&second.stderr).into_owned();
    assert_eq!(second.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("in use by another recorder (pid "), "{stderr}");
    assert!(!elsewhere.file("trace").exists());
    // Another instance, and the same directory.
    let third = run("kmemtraced", &["-f", "-B", &instance_name(), "-o"], &[&recorder.directory.file("trace")]);
    let stderr = String::from_utf8_lossy(&third.stderr).into_owned();
    assert_eq!(third.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("another recorder writes to it"), "{stderr}");
    recorder.stop_whole();
    Ok(())
}

fn a_thread_that_cannot_be_had_is_told() -> Result<(), Skip> {
    let tracefs = can_record()?;
    let cpus = load::cpus().unwrap().len() as u32;
    // Threads in the order of their start: main, messages, record and names, then writer and reader of each CPU.
    let refused = ["messages", "record", "names", "write0", "read0", "write1", "read1"];
    for (threads, refused) in (1..).zip(refused) {
        if threads > 3 + 2 * cpus {
            continue;
        }
        let (directory, instance) = (Directory::new(&[]), instance_name());
        let mut recorder = limited(program("kmemtraced"), threads);
        let output = recorder.args(["-d", "1", "-B", &instance, "-o"]).arg(directory.file("trace")).output();
        let output = output.unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
        let said = format!("thread {refused} cannot be started: Resource temporarily unavailable");
        assert!(stderr.contains(&said) && stderr.contains("pids.max"), "{stderr}");
        assert!(!directory.file("trace").exists());
        nothing_is_left(&tracefs, &instance);
    }
    Ok(())
}

fn a_changed_output_is_told() -> Result<(), Skip> {
    let tracefs = can_record()?;
    type Change = fn(&Path);
    let changes: [(Change, &str); 6] = [
        (|dir| fs::remove_dir_all(dir).unwrap(), "what was written can no longer be reached"),
        (|dir| fs::remove_file(dir.join("cpu0.out")).unwrap(), "cpu0.out was removed by another program"),
        (|dir| fs::rename(dir.join("meta.out"), dir.join("x")).unwrap(), "meta.out was removed by another program"),
        (
            // As editors and rsync do.
            |dir| {
                fs::copy(dir.join("cpu0.out"), dir.join("y")).unwrap();
                fs::rename(dir.join("y"), dir.join("cpu0.out")).unwrap();
            },
            "cpu0.out was replaced by another program",
        ),
        (
            |dir| File::options().write(true).open(dir.join("meta.out")).unwrap().set_len(10).unwrap(),
            "meta.out was cut by another program",
        ),
        (
            |dir| File::options().append(true).open(dir.join("meta.out")).unwrap().write_all(&[0; 1 << 20]).unwrap(),
            "meta.out was written to by another program",
        ),
    ];
    for (change, said) in changes {
        let recorder = Recorder::start(&[]);
        let name = recorder.instance_name().to_owned();
        change(&recorder.directory.file("trace"));
        // The recording ends by itself.
        let ended = recorder.wait();
        assert_eq!(ended.status.code(), Some(3), "{}", ended.stderr);
        assert!(ended.stderr.contains(said) && !ended.stderr.contains("next: "), "{said}: {}", ended.stderr);
        nothing_is_left(&tracefs, &name);
    }
    Ok(())
}

fn a_renamed_directory_is_told_and_recording_goes_on() -> Result<(), Skip> {
    let tracefs = can_record()?;
    let recorder = Recorder::start(&[]);
    let name = recorder.instance_name().to_owned();
    let (dir, moved) = (recorder.directory.file("trace"), recorder.directory.file("moved"));
    fs::rename(&dir, &moved).unwrap();
    // Another directory takes the old name.
    fs::create_dir(&dir).unwrap();
    load::iov(100, 9).unwrap();
    let ended = recorder.stop();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    let shown = moved.canonicalize().unwrap();
    assert!(ended.stderr.contains(&format!("the recording is in {}", shown.display())), "{}", ended.stderr);
    assert!(ended.stderr.contains(&format!("check: kmemtrace-check {}", shown.display())), "{}", ended.stderr);
    run_to(0, "kmemtrace-check", &["-q"], &[&shown]);
    nothing_is_left(&tracefs, &name);
    Ok(())
}

fn an_earlier_recording_is_not_lost() -> Result<(), Skip> {
    can_record()?;
    let directory = Directory::new(&[]);
    let in_directory = |arguments: &[&str]| {
        let mut command = kmemtraced();
        command.current_dir(directory.path()).args(["-q", "-B", &instance_name()]).args(arguments);
        command.output().unwrap()
    };
    let status = |output: &std::process::Output| output.status.code();
    assert_eq!(status(&in_directory(&["-d", "50ms"])), Some(0));
    let events = std::fs::read(directory.file("kmemtrace.data/cpu0.out")).unwrap();
    // A recording that did not begin takes no name away.
    assert_eq!(status(&in_directory(&["--", "/no/such/command"])), Some(2));
    assert_eq!(std::fs::read(directory.file("kmemtrace.data/cpu0.out")).unwrap(), events);
    assert!(!directory.file("kmemtrace.data.old").exists());
    // The target of a link is not emptied.
    std::os::unix::fs::symlink("kmemtrace.data", directory.file("link")).unwrap();
    let refused = in_directory(&["-d", "50ms", "-f", "-o", "link"]);
    assert_eq!(status(&refused), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("is not a directory"), "{refused:?}");
    assert_eq!(std::fs::read(directory.file("kmemtrace.data/cpu0.out")).unwrap(), events);
    // The leftover of a killed pack is no reason to refuse.
    directory.write("kmemtrace.data/cpu0.out.packing", b"half of it");
    for _ in 0..2 {
        let output = in_directory(&["-d", "50ms"]);
        assert_eq!(status(&output), Some(0), "{output:?}");
    }
    Ok(())
}

fn a_cleared_buffer_is_told() -> Result<(), Skip> {
    let tracefs = can_record()?;
    let recorder = Recorder::start(&["--flush", "100ms"]);
    load_for(1200);
    std::fs::write(tracefs.path().join("instances").join(recorder.instance_name()).join("trace"), "").unwrap();
    load_for(1500);
    let ended = recorder.stop();
    assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
    assert!(ended.stderr.contains("another program cleared the buffer"), "{}", ended.stderr);
    let summary = json(&views::printed("summary", &ended.trace()));
    assert_eq!(summary["completeness"]["verdict"], "lossy");
    assert_eq!(summary["completeness"]["lost_events"], Value::Null, "the number of lost events is unknown");
    Ok(())
}

fn signals_at_any_time_make_one_clean_end() -> Result<(), Skip> {
    let tracefs = can_record()?;
    for run in 0..4u64 {
        let name = instance_name();
        let directory = Directory::new(&[]);
        let mut command = kmemtraced();
        command.args(["-q", "-B", &name, "-o"]).arg(directory.file("trace"));
        let mut child = command.spawn().unwrap();
        let pid = rustix::process::Pid::from_child(&child);
        // Without a handler a signal ends any program.
        let handles = || {
            let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
            let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap_or_default();
            u64::from_str_radix(caught.trim(), 16).is_ok_and(|caught| caught & (1 << (Signal::USR2.as_raw() - 1)) != 0)
        };
        while !handles() {
            sleep(Duration::from_millis(1));
        }
        // Later runs meet the start, the recording, and the drain.
        sleep(Duration::from_millis(150 * run));
        for n in 0..60 {
            // Only one signal asks for the end: a second one would not wait for the drain.
            let stopping = [Signal::INT, Signal::HUP, Signal::TERM, Signal::QUIT][run as usize];
            let signal = if n == 30 { stopping } else { [Signal::USR1, Signal::USR2][n % 2] };
            if rustix::process::kill_process(pid, signal).is_err() {
                break;
            }
            sleep(Duration::from_micros(300));
        }
        let status = child.wait().unwrap();
        assert!(matches!(status.code(), Some(0 | 1)), "run {run}: {status}");
        let found = check(&directory.file("trace"));
        assert_eq!((&found["truncated"], &found["corrupt"]), (&0.into(), &0.into()), "run {run}");
        nothing_is_left(&tracefs, &name);
    }
    Ok(())
}

fn a_command_is_recorded_and_its_status_passed_on() -> Result<(), Skip> {
    can_record()?;
    for (script, status) in [("exit 7", 7), ("kill -9 $$", 128 + 9), ("exit 0", 0)] {
        let directory = Directory::new(&[]);
        let mut command = kmemtraced();
        command.args(["-B", &instance_name(), "--report", "summary", "-o"]).arg(directory.file("trace"));
        let output = command.args(["--", "sh", "-c", script]).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{script}: {stderr}");
        assert!(stderr.contains("stopped: sh "), "{stderr}");
        let report = String::from_utf8_lossy(&output.stdout);
        assert!(report.starts_with("COMPLETE "), "{report}");
    }
    let directory = Directory::new(&[]);
    let refused = run(
        "kmemtraced",
        &["-B", &instance_name(), "-o"],
        &[&directory.file("trace"), "--".as_ref(), "/no/such".as_ref()],
    );
    assert_eq!(refused.status.code(), Some(2));
    assert!(!directory.file("trace").exists(), "nothing is left of a recording that did not begin");
    Ok(())
}

fn limits_end_it() -> Result<(), Skip> {
    can_record()?;
    for options in [["-d", "200ms"], ["--max-size", "1M"]] {
        let recorder = Recorder::start(&options);
        load_for(1500);
        let ended = recorder.wait();
        assert_eq!(ended.status.code(), Some(0), "{options:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(options[0].trim_start_matches("-d")), "{}", ended.stderr);
        assert_eq!(check(&ended.trace())["truncated"], 0);
    }
    // The files of names count, too.
    let ended = Recorder::start(&["--max-size", "4K"]).wait();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    assert!(ended.stderr.contains("stopped: --max-size 4 KiB: events "), "{}", ended.stderr);
    assert!(ended.stderr.contains(", symbols and texts "), "{}", ended.stderr);
    assert!(ended.stderr.contains("--max-size 4 KiB: symbols and texts take "), "{}", ended.stderr);
    Ok(())
}

fn a_killed_recorders_channel_is_set_back() -> Result<(), Skip> {
    kmemtrace_tests::live::root()?;
    let channel = Directory::new(&[]);
    for (name, text) in [("cpu0", ""), ("abi_version", "1\n"), ("enabled", "0\n")] {
        channel.write(name, text.as_bytes());
    }
    let enabled = || std::fs::read_to_string(channel.file("enabled")).unwrap().trim().to_owned();
    let out = Directory::new(&[]);
    let mut command = kmemtraced();
    let mut child =
        command.arg("--relay").arg(channel.path()).args(["-q", "-o"]).arg(out.file("trace")).spawn().unwrap();
    for _ in 0..500 {
        if enabled() == "1" {
            break;
        }
        sleep(Duration::from_millis(10));
    }
    assert_eq!(enabled(), "1");
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, Signal::KILL).unwrap();
    child.wait().unwrap();
    assert_eq!(enabled(), "1", "a killed recorder has set the switch back");
    let output = run("kmemtraced", &["recover"], &[]);
    assert!(String::from_utf8_lossy(&output.stdout).contains("enabled is 0 again"), "{output:?}");
    assert_eq!(enabled(), "0");
    Ok(())
}

fn a_thread_that_the_kernel_has_killed_ends_it() -> Result<(), Skip> {
    can_record()?;
    let directory = Directory::new(&[]);
    let (preloaded, go) = (directory.file("killed_thread.so"), directory.file("go"));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recorder/killed_thread.c");
    let built = Command::new("gcc").args(["-shared", "-fPIC", "-O1", "-o"]).arg(&preloaded).arg(source).output();
    let built = built.map_err(|error| Skip(format!("gcc cannot be run: {error}")))?;
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let of_reader = "stopped: the kernel killed the reader of CPU 0 (see dmesg)";
    let of_writer = "stopped: the kernel killed the writer of CPU 0 (see dmesg), at once";
    for (place, said, verdict) in [("read0", of_reader, "lossy"), ("write0", of_writer, "truncated")] {
        let (trace, name) = (directory.file(place), instance_name());
        // In the sandbox the file could not be looked for.
        let mut command = Command::new(program("kmemtraced"));
        command.args(["--sandbox", "off", "--flush", "50ms", "-d", "60", "-B", &name, "-b", "1M", "-o"]).arg(&trace);
        command.env("LD_PRELOAD", &preloaded).env("PLACE", place).env("GO", &go);
        let child = command.stderr(Stdio::piped()).spawn().unwrap();
        until("the recording has begun", || trace.join("meta.out").exists());
        load::iov(2_000, 9).unwrap();
        sleep(Duration::from_millis(200));
        directory.write("go", b"");
        let output = child.wait_with_output().unwrap();
        fs::remove_file(&go).unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(3) && stderr.contains(said), "{place}: {stderr}");
        assert_eq!(check(&trace)["files"][0]["verdict"], verdict, "{place}: {stderr}");
        let found = json(&views::printed("summary", &trace));
        assert_eq!(found["trace"]["lost_events"], Value::Null, "{place}");
        run("kmemtraced", &["recover", "-B", &name], &[]);
    }
    Ok(())
}

fn events_read_by_another_program_are_reported() -> Result<(), Skip> {
    let tracefs = can_record()?;
    let recorder = Recorder::start(&[]);
    let instance = recorder.instance(&tracefs);
    let end = std::time::Instant::now() + Duration::from_secs(20);
    let mut taken = 0;
    while std::time::Instant::now() < end && taken < 10 {
        load_for(20);
        taken += instance.drain(0, 4096).unwrap().len();
    }
    let ended = recorder.stop();
    if taken == 0 {
        return Err(Skip("the recorder was always first".to_owned()));
    }
    assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
    assert!(ended.stderr.contains("another program read its buffer"), "{}", ended.stderr);
    let found = check(&ended.trace());
    assert_eq!(found["lossy"], 1, "{found}");
    assert!(found.to_string().contains("K106"), "{found}");
    assert!(found["files"][0]["lost_events"].as_u64() > Some(0), "{found}");
    Ok(())
}

fn a_reader_of_trace_pipe_is_told_with_its_remedy() -> Result<(), Skip> {
    let tracefs = can_record()?;
    let recorder = Recorder::start(&[]);
    let pipe = recorder.instance(&tracefs).path().join("per_cpu/cpu0/trace_pipe");
    let taken = Directory::new(&[]);
    let file = File::create(taken.file("taken")).unwrap();
    let mut stranger = Command::new("cat").arg(pipe).stdout(file).spawn().unwrap();
    // The buffer is large enough for this pace, so all loss comes from the other reader.
    let mut load = Command::new(program("kmemload"));
    let mut load = load.args(["mix", "60", "500"]).stdout(Stdio::null()).spawn().unwrap();
    for _ in 0..3000 {
        if std::fs::metadata(taken.file("taken")).is_ok_and(|taken| taken.len() > 0) {
            break;
        }
        sleep(Duration::from_millis(10));
    }
    for child in [&mut load, &mut stranger] {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    assert!(!taken.text("taken").is_empty(), "the other reader takes nothing");
    let ended = recorder.stop();
    assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
    let remedy = " of the lost events were read by another program: record in an instance of another name (-B NAME)";
    let line = ended.stderr.lines().find_map(|line| line.strip_suffix(remedy));
    let line = line.unwrap_or_else(|| panic!("no remedy: {}", ended.stderr));
    let lost: u64 = line.parse().unwrap();
    assert!(lost > 0 && ended.stderr.contains(&format!(" {lost} lost\n")), "{}", ended.stderr);
    assert!(!ended.stderr.contains("--buffer-size"), "a larger buffer helps nothing: {}", ended.stderr);
    let found = check(&ended.trace());
    assert_eq!((&found["files"][0]["lost_events"], &found["files"][0]["verdict"]), (&lost.into(), &"lossy".into()));
    let mut findings = found["files"][0]["findings"].as_array().into_iter().flatten();
    assert!(findings.any(|finding| finding["code"] == "K106"), "{found}");
    let output = run("kmemtrace-check", &[], &[&ended.trace()]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("record again in an instance that no other program touches (-B NAME)"), "{text}");
    Ok(())
}
