//! `kmemtraced --boot` on buffers that were filled before its start: a start that fails takes nothing, and the end
//! leaves a buffer as its owner made it. An instance made by hand stands for one that the kernel makes at boot; given
//! as `--tracefs` it stands for the top-level buffer. Tests that cannot run here are listed as skipped at the end.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use kmemtrace_tests::live::{Instance, Tracefs};
use kmemtrace_tests::programs::{json, program, run, run_to, text};
use kmemtrace_tests::recorder::{Recorder, can_record, kmemtraced};
use kmemtrace_tests::recording::Directory;
use kmemtrace_tests::runner::Skip;
use rustix::process::{Pid, Signal, kill_process};

/// Text in a buffer from before the recording.
const MARK: &str = "from before the recording";
/// Switch of an event that fills no buffer.
const RARE: &str = "events/kmem/mm_page_alloc_extfrag/enable";
/// Options that change every setting of a buffer: events, size.
const CHANGES: [&str; 4] = ["-e", "kmem:mm_page_free", "-b", "24M"];

kmemtrace_tests::tests![
    a_start_that_fails_leaves_the_buffer_as_it_was,
    an_instance_made_by_hand_is_left_as_it_was,
    a_killed_recorders_instance_goes_once_recorded,
    the_top_level_buffer_is_left_without_events,
    a_killed_recorders_changes_are_set_back,
    a_stack_that_was_added_is_set_back,
    a_second_signal_during_the_start_leaves_the_buffer,
    a_second_signal_names_a_buffer_that_is_not_set_back,
    losses_while_the_recording_begins_are_told,
    a_buffer_that_leaves_cpus_out_is_told,
];

fn a_buffer_that_leaves_cpus_out_is_told() -> Result<(), Skip> {
    let tracefs = can_record()?;
    let filled = Filled::new(&tracefs, As::Instance, "1")?;
    if filled.instance.cpus().unwrap().len() < 2 {
        return Err(Skip("needs two CPUs".to_owned()));
    }
    filled.instance.write("tracing_cpumask", "1").unwrap();
    let dir = Directory::new(&[]);
    let output = filled.recorder(&dir, &["-e", "kmem:mm_page_free", "-d", "0.3"]).output().unwrap();
    let told = text(&output.stderr);
    assert!(told.contains("a filter of another program leaves out events: tracing_cpumask is 1"), "{told}");
    assert_eq!(output.status.code(), Some(1), "{told}");
    Ok(())
}

/// Kind of buffer, as a recorder's arguments name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum As {
    Instance,
    TopLevel,
}

/// Buffer that holds events.
struct Filled<'a> {
    instance: Instance<'a>,
    kind: As,
    /// Control files and their text before the recording.
    found: Vec<(&'static str, String)>,
}

/// Control files that a recorder changes.
const FILES: [&str; 3] = ["set_event", "tracing_on", "buffer_size_kb"];

impl<'a> Filled<'a> {
    /// Enables a rare event, sets `tracing_on`, and writes [`MARK`] into the buffer, where no other event may take its place.
    fn new(tracefs: &'a Tracefs, kind: As, tracing_on: &str) -> Result<Filled<'a>, Skip> {
        tracefs.need_event("kmem/mm_page_free")?;
        tracefs.need_event("kmem/mm_page_alloc_extfrag")?;
        let instance = Instance::new(tracefs)?;
        for (file, value) in [("buffer_size_kb", "16384"), (RARE, "1"), ("trace_marker", MARK)] {
            instance.write(file, value).unwrap();
        }
        instance.write("tracing_on", tracing_on).unwrap();
        let found = FILES.map(|file| (file, instance.read(file).unwrap())).into();
        let filled = Filled { instance, kind, found };
        assert!(filled.has_mark());
        Ok(filled)
    }

    fn name(&self) -> String {
        self.instance.path().file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Recorder's arguments for this buffer.
    fn arguments(&self) -> Vec<String> {
        let path = self.instance.path().display().to_string();
        match self.kind {
            As::Instance => vec!["--boot".into(), "-B".into(), self.name()],
            As::TopLevel => vec!["--boot".into(), "--tracefs".into(), path],
        }
    }

    /// Recorder command, in a directory.
    fn recorder(&self, dir: &Directory, options: &[&str]) -> Command {
        let mut command = kmemtraced();
        command.arg("-q").args(self.arguments()).args(options).current_dir(dir.path()).stdin(Stdio::null());
        command
    }

    /// Runs `kmemtraced recover`, which removes the leftovers of killed recorders; returns its standard output.
    fn recover(&self) -> String {
        let options: Vec<String> = self.arguments().into_iter().skip(1).collect();
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        text(&run_to(0, "kmemtraced", &[&["recover"], &options[..]].concat(), &[]))
    }

    fn has_mark(&self) -> bool {
        self.instance.read("trace").unwrap().contains(MARK)
    }

    /// Events that the kernel has overwritten.
    fn overrun(&self) -> u64 {
        self.instance.cpus().unwrap().into_iter().map(|cpu| self.instance.stat(cpu, "overrun").unwrap()).sum()
    }

    /// Control files that have changed, with their present text.
    fn changes(&self) -> Vec<(&'static str, String)> {
        let now = |file| self.instance.read(file).unwrap_or_else(|error| error.to_string());
        self.found
            .iter()
            .map(|(file, was)| (*file, now(file), was))
            .filter(|(_, now, was)| now != *was)
            .map(|(file, now, _)| (file, now))
            .collect()
    }

    /// Asserts that no event was taken and no control file changed.
    fn assert_untouched(&self, after: &str) {
        assert!(self.instance.path().is_dir(), "{after}: the instance is gone");
        assert_eq!(self.changes(), [], "{after}");
        assert!(self.has_mark(), "{after}: its events are gone");
        for cpu in self.instance.cpus().unwrap() {
            assert_eq!(self.instance.stat(cpu, "read events").unwrap(), 0, "{after}: CPU {cpu} was read from");
        }
    }
}

impl Drop for Filled<'_> {
    fn drop(&mut self) {
        // The instance of a failed test may be gone.
        let _ = self.instance.write("tracing_on", "0");
        let _ = self.instance.write("events/enable", "0");
    }
}

fn assert_recorded(output: &Output) {
    assert!(matches!(output.status.code(), Some(0 | 1)), "{}: {}", output.status, text(&output.stderr));
}

/// Waits until a recorder has begun to write into the directory `trace`.
fn until_recording(child: &mut Child, dir: &Directory, filled: &Filled<'_>) {
    let deadline = Instant::now() + Duration::from_secs(20);
    let is_read = || {
        let cpus = filled.instance.cpus().unwrap();
        cpus.iter().any(|&cpu| filled.instance.stat(cpu, "read events").is_ok_and(|read| read > 0))
    };
    while !is_read() || !dir.file("trace/meta.out").is_file() {
        assert!(Instant::now() < deadline, "the recorder does not begin to record");
        assert!(matches!(child.try_wait(), Ok(None)), "the recorder has ended early");
        sleep(Duration::from_millis(5));
    }
}

fn a_start_that_fails_leaves_the_buffer_as_it_was() -> Result<(), Skip> {
    let tracefs = can_record()?;
    let failures: [&[&str]; 4] = [
        &["-o", "taken"],
        &["-e", "nosuchevent"],
        &["-o", "trace", "--", "./nosuch"],
        &[&CHANGES[..], &["-o", "trace", "--", "./nosuch"]].concat(),
    ];
    for kind in [As::Instance, As::TopLevel] {
        for tracing_on in ["1", "0"] {
            let filled = Filled::new(&tracefs, kind, tracing_on)?;
            for options in failures {
                let dir = Directory::new(&[("taken/notes".to_owned(), b"x".to_vec())]);
                let output = filled.recorder(&dir, options).output().unwrap();
                let after = format!("{kind:?} {options:?}: {}", text(&output.stderr));
                assert_eq!(output.status.code(), Some(2), "{after}");
                filled.assert_untouched(&after);
                assert!(!dir.file("trace").exists(), "{after}");
                filled.recover();
                filled.assert_untouched("recover");
            }
        }
    }
    Ok(())
}

fn an_instance_made_by_hand_is_left_as_it_was() -> Result<(), Skip> {
    let tracefs = can_record()?;
    for tracing_on in ["1", "0"] {
        let filled = Filled::new(&tracefs, As::Instance, tracing_on)?;
        let dir = Directory::new(&[]);
        let options = [&CHANGES[..], &["-d", "200ms", "-o", "trace"]].concat();
        assert_recorded(&filled.recorder(&dir, &options).output().unwrap());
        assert!(filled.instance.path().is_dir(), "the instance is gone");
        assert_eq!(filled.changes(), []);
        assert!(!filled.has_mark(), "the buffer was not drained");
        let whole = run("kmemtrace-check", &[], &[&dir.file("trace")]);
        let expected = if filled.overrun() == 0 { 0 } else { 1 };
        assert_eq!(whole.status.code(), Some(expected), "{}", text(&whole.stdout));
        filled.recover();
        assert!(filled.instance.path().is_dir(), "recover has removed the instance");
    }
    Ok(())
}

fn a_killed_recorders_instance_goes_once_recorded() -> Result<(), Skip> {
    let tracefs = can_record()?;
    let recorder = Recorder::start(&[]);
    recorder.signal(Signal::KILL);
    let path: PathBuf = recorder.instance(&tracefs).path().to_owned();
    let name = recorder.instance_name().to_owned();
    recorder.wait();
    let dir = Directory::new(&[]);
    let boot = |options: &[&str]| {
        let mut command = kmemtraced();
        command.args(["-q", "--boot", "-B", &name]).args(options).current_dir(dir.path()).output().unwrap()
    };
    assert_eq!(boot(&["-o", "trace", "--", "./nosuch"]).status.code(), Some(2));
    assert!(path.is_dir(), "a start that fails has removed the instance");
    assert_recorded(&boot(&["-d", "50ms", "-o", "trace"]));
    assert!(!path.exists(), "the killed recorder's instance is left");
    Ok(())
}

fn the_top_level_buffer_is_left_without_events() -> Result<(), Skip> {
    let tracefs = can_record()?;
    let filled = Filled::new(&tracefs, As::TopLevel, "1")?;
    let dir = Directory::new(&[]);
    let options = [&CHANGES[..], &["-d", "100ms", "-o", "trace"]].concat();
    assert_recorded(&filled.recorder(&dir, &options).output().unwrap());
    assert_eq!(filled.changes(), [("set_event", String::new())]);
    assert!(!filled.has_mark(), "the buffer was not drained");
    Ok(())
}

fn a_killed_recorders_changes_are_set_back() -> Result<(), Skip> {
    let tracefs = can_record()?;
    for (kind, changed) in [(As::Instance, vec![]), (As::TopLevel, vec![("set_event", String::new())])] {
        let filled = Filled::new(&tracefs, kind, "1")?;
        let dir = Directory::new(&[]);
        let options = [&CHANGES[..], &["-o", "trace"]].concat();
        let mut child = filled.recorder(&dir, &options).spawn().unwrap();
        until_recording(&mut child, &dir, &filled);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(
            filled.changes().iter().any(|(file, _)| *file == "buffer_size_kb"),
            "{kind:?}: nothing is left to set back"
        );
        let said = filled.recover();
        assert!(filled.instance.path().is_dir(), "{kind:?}: recover has removed the instance");
        assert_eq!(filled.changes(), changed, "{kind:?}");
        assert!(said.contains("what was changed in"), "{kind:?}: {said}");
    }
    Ok(())
}

fn a_stack_that_was_added_is_set_back() -> Result<(), Skip> {
    let tracefs = can_record()?;
    tracefs.need_event("vmalloc/alloc_vmap_area")?;
    for kind in [As::Instance, As::TopLevel] {
        let filled = Filled::new(&tracefs, kind, "1")?;
        let trigger = || filled.instance.read("events/vmalloc/alloc_vmap_area/trigger").unwrap();
        let (before, dir) = (trigger(), Directory::new(&[]));
        let options = ["-e", "vmalloc", "-o", "trace"];
        let failed = filled.recorder(&dir, &[&options[..], &["--", "./nosuch"]].concat()).output().unwrap();
        assert_eq!((failed.status.code(), trigger()), (Some(2), before.clone()), "{kind:?}: {}", text(&failed.stderr));
        let mut child = filled.recorder(&dir, &options).spawn().unwrap();
        until_recording(&mut child, &dir, &filled);
        assert!(trigger().starts_with("stacktrace"), "{kind:?}: {}", trigger());
        child.kill().unwrap();
        child.wait().unwrap();
        filled.recover();
        assert_eq!(trigger(), before, "{kind:?}");
        let stacks = kmemtrace_abi::trace::Trace::open(&[dir.file("trace")]).unwrap().metadata.stacks;
        assert_eq!(stacks.as_deref(), Some("trigger vmalloc"), "{kind:?}");
    }
    Ok(())
}

fn has_a_reader_thread(pid: Pid) -> bool {
    let Ok(tasks) = fs::read_dir(format!("/proc/{}/task", pid.as_raw_nonzero())) else { return false };
    tasks.flatten().any(|task| fs::read_to_string(task.path().join("comm")).is_ok_and(|comm| comm.starts_with("read0")))
}

fn a_second_signal_during_the_start_leaves_the_buffer() -> Result<(), Skip> {
    let tracefs = can_record()?;
    for kind in [As::Instance, As::TopLevel] {
        let filled = Filled::new(&tracefs, kind, "1")?;
        let dir = Directory::new(&[]);
        let mut command = Command::new("strace");
        // The recorder pins its reader threads before it enables any event.
        let hang = [
            "-f",
            "-qq",
            "-o",
            "/dev/null",
            "-e",
            "trace=sched_setaffinity",
            "-e",
            "inject=sched_setaffinity:delay_enter=8s",
        ];
        command.args(hang).arg(program("kmemtraced")).arg("-q").args(filled.arguments());
        command.args(CHANGES).args(["-o", "trace"]).current_dir(dir.path()).stderr(Stdio::piped());
        let mut strace = command.spawn().map_err(|error| Skip(format!("strace cannot be run: {error}")))?;
        let deadline = Instant::now() + Duration::from_secs(90);
        let children = format!("/proc/{0}/task/{0}/children", strace.id());
        let pid = loop {
            let children = fs::read_to_string(&children).map_err(|error| Skip(format!("{children}: {error}")))?;
            let pid = children.split_whitespace().next().and_then(|pid| Pid::from_raw(pid.parse().ok()?));
            if let Some(pid) = pid.filter(|pid| has_a_reader_thread(*pid)) {
                break pid;
            }
            assert!(Instant::now() < deadline && matches!(strace.try_wait(), Ok(None)), "the recorder does not set up");
            sleep(Duration::from_millis(10));
        };
        assert!(!filled.changes().is_empty(), "{kind:?}: nothing is left to set back");
        // A signal counts once the recorder has seen it.
        while strace.try_wait().unwrap().is_none() {
            assert!(Instant::now() < deadline, "the recorder does not end");
            let _ = kill_process(pid, Signal::INT);
            sleep(Duration::from_millis(200));
        }
        let output = strace.wait_with_output().unwrap();
        let stderr = text(&output.stderr);
        assert!(stderr.contains("ended at once by a second signal"), "{kind:?}: {stderr}");
        filled.assert_untouched(&format!("{kind:?}: {stderr}"));
    }
    Ok(())
}

fn a_second_signal_names_a_buffer_that_is_not_set_back() -> Result<(), Skip> {
    let tracefs = can_record()?;
    // On a busy machine strace does not always hold the write up.
    for _ in 0..5 {
        let filled = Filled::new(&tracefs, As::Instance, "1")?;
        let output = ended_while_it_sets_back(&filled)?;
        let stderr = text(&output.stderr);
        if output.status.code() == Some(0) && filled.changes().is_empty() {
            continue;
        }
        assert_eq!(output.status.code(), Some(3), "{stderr}");
        // A busy strace may end a delay early, and says so.
        assert!(
            !filled.changes().is_empty() || stderr.contains("delayed wait data"),
            "the event is set back: {stderr}"
        );
        let path = filled.instance.path().display();
        assert!(
            stderr.contains(&format!("{path}: is still being set back: if it stays, run kmemtraced recover")),
            "{stderr}"
        );
        filled.recover();
        assert_eq!(filled.changes(), [], "recover has not set the event back");
        return Ok(());
    }
    Err(Skip("strace has not delayed a write".to_owned()))
}

/// Runs a recorder that strace holds up for ten seconds when it sets back an event, and ends it by signals a second apart.
fn ended_while_it_sets_back(filled: &Filled<'_>) -> Result<Output, Skip> {
    let dir = Directory::new(&[]);
    let switch = filled.instance.path().join("events/kmem/mm_page_free/enable");
    let mut command = Command::new("strace");
    // The first write enables the event, the second one sets it back. With -D strace lets the recorder be the child.
    command.args([
        "-D",
        "-f",
        "-qq",
        "-o",
        "/dev/null",
        "-e",
        "trace=write",
        "-e",
        "inject=write:delay_enter=10s:when=2",
    ]);
    command.arg("-P").arg(switch).arg(program("kmemtraced")).arg("-q").args(filled.arguments());
    command.args(CHANGES).args(["-o", "trace"]).current_dir(dir.path()).stdin(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| Skip(format!("strace cannot be run: {error}")))?;
    until_recording(&mut child, &dir, filled);
    // A signal counts once the recorder has seen it, and the second one ends it.
    let deadline = Instant::now() + Duration::from_secs(90);
    while child.try_wait().unwrap().is_none() {
        assert!(Instant::now() < deadline, "the recorder does not end");
        let _ = kill_process(Pid::from_child(&child), Signal::INT);
        sleep(Duration::from_millis(1000));
    }
    Ok(child.wait_with_output().unwrap())
}

/// Loss before COMMAND starts: the recording begins when the events are enabled.
fn losses_while_the_recording_begins_are_told() -> Result<(), Skip> {
    let tracefs = can_record()?;
    let filled = Filled::new(&tracefs, As::Instance, "0")?;
    filled.instance.write("buffer_size_kb", "16").unwrap();
    filled.instance.write("events/kmem/kfree/enable", "1").unwrap();
    let dir = Directory::new(&[]);
    // COMMAND takes long to start, and the small buffer overruns meanwhile.
    let mut command = Command::new("strace");
    let slow = ["-f", "-qq", "-o", "/dev/null", "-e", "trace=execve", "-e", "inject=execve:delay_enter=1s:when=2"];
    command.args(slow).arg(program("kmemtraced")).arg("-q").args(filled.arguments());
    command.args(["-o", "trace", "--", "true"]).current_dir(dir.path());
    let mut load = Command::new("sh").args(["-c", "while :; do ls / >/dev/null; done"]).spawn().unwrap();
    let output = command.output();
    let _ = load.kill();
    let _ = load.wait();
    let output = output.map_err(|error| Skip(format!("strace cannot be run: {error}")))?;
    assert_recorded(&output);
    let lost = filled.overrun();
    assert!(lost > 0, "the buffer has not run over");
    let check = run("kmemtrace-check", &["--format", "json"], &[&dir.file("trace")]);
    assert_eq!(check.status.code(), Some(1), "{}", text(&check.stdout));
    let told = json(&check.stdout);
    let files = told["files"].as_array().map(Vec::as_slice).unwrap_or_default();
    assert_eq!(files.iter().filter_map(|file| file["lost_events"].as_u64()).sum::<u64>(), lost, "{told}");
    Ok(())
}
