//! Tests of the recording of stacks, on the running kernel as root. Tests that cannot run here are listed as skipped at the end.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use kmemtrace_abi::trace::Trace;
use kmemtrace_tests::live::{Instance, Tracefs};
use kmemtrace_tests::programs::{json, json_lines, program, run, run_to};
use kmemtrace_tests::recorder::{Recorder, can_record, instance_name};
use kmemtrace_tests::recording::Directory;
use kmemtrace_tests::runner::Skip;
use rustix::process::Signal;
use serde_json::Value;

kmemtrace_tests::tests![
    each_event_that_was_asked_for_has_a_stack,
    a_filter_that_an_event_lacks_is_refused_by_its_name,
    triggers_go_with_the_recorder,
    a_trigger_that_is_removed_is_told,
    stacks_of_a_buffer_of_the_boot_are_taken_over,
    probe_tells_the_cost_of_a_stack,
    the_words_of_memstrack_leave_a_report_and_no_recording,
];

/// Command that allocates and frees pages of order 0 and above: vectors of 16 KiB.
fn load() -> [String; 4] {
    [program("kmemload").display().to_string(), "iov".to_owned(), "200".to_owned(), "1000".to_owned()]
}

/// Panics on an error in the test's environment.
fn must<T, E: std::fmt::Display>(what: &str, result: Result<T, E>) -> T {
    result.unwrap_or_else(|error| panic!("{what}: {error}"))
}

/// Skips where the kernel has no stacks of page events.
fn can_record_stacks() -> Result<Tracefs, Skip> {
    let tracefs = can_record()?;
    tracefs.need_event("kmem/mm_page_alloc")?;
    match tracefs.path().join("options/stacktrace").exists() {
        true => Ok(tracefs),
        false => Err(Skip("this kernel records no stacks".to_owned())),
    }
}

/// Recording of a command that has ended.
struct Recorded {
    directory: Directory,
    output: Output,
}

impl Recorded {
    /// Records `command`; the word INSTANCE in it becomes the instance's path.
    fn new(options: &[&str], command: &[&str]) -> Recorded {
        let tracefs = Tracefs::find().unwrap_or_else(|Skip(reason)| panic!("{reason}"));
        let (directory, instance) = (Directory::new(&[]), instance_name());
        let path = tracefs.path().join("instances").join(&instance).display().to_string();
        let mut recorder = Command::new(program("kmemtraced"));
        recorder.args(["-v", "-B", &instance]).args(options).arg("-o").arg(directory.file("trace")).arg("--");
        recorder.args(command.iter().map(|word| word.replace("INSTANCE", &path))).stdin(Stdio::null());
        let output = must("kmemtraced", recorder.output());
        assert!(!Path::new(&path).exists(), "instance {instance} is left");
        Recorded { directory, output }
    }

    fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.output.stderr).into_owned()
    }

    fn trace(&self) -> PathBuf {
        self.directory.file("trace")
    }

    /// Stacks in the trace, and the events, those of the recorder, too, for which `is_counted`.
    fn stacks_and_events(&self, is_counted: impl Fn(&Value) -> bool) -> (u64, Vec<Value>) {
        run_to(0, "kmemtrace-check", &[], &[&self.trace()]);
        let summary = json(&run_to(0, "kmemtrace-report", &["summary", "--format", "json"], &[&self.trace()]));
        let stacks = [&summary["stacks_seen"], &summary["events"]["other"]].into_iter().find_map(Value::as_u64);
        let mut events =
            json_lines(&run_to(0, "kmemtrace-report", &["events", "--own", "--format", "jsonl"], &[&self.trace()]));
        events.retain(is_counted);
        (stacks.unwrap_or_default(), events)
    }
}

/// Text about stacks in `meta.out`.
fn stacks_of(trace: &Path) -> Option<String> {
    must("trace", Trace::open(&[trace.to_owned()])).metadata.stacks
}

fn is_page_event(event: &Value) -> bool {
    event["event"].as_str().is_some_and(|name| name.starts_with("mm_page_"))
}

fn is_alloc(event: &Value) -> bool {
    event["event"] == "mm_page_alloc"
}

/// Events whose stack may be missing: a few on each CPU.
const AT_THE_ENDS: usize = 8;

fn is_large(event: &Value) -> bool {
    is_alloc(event) && event["requested"].as_u64().is_some_and(|bytes| bytes > rustix::param::page_size() as u64)
}

fn each_event_that_was_asked_for_has_a_stack() -> Result<(), Skip> {
    can_record_stacks()?;
    let load = load();
    let load = load.each_ref().map(String::as_str);
    for (options, is_counted, by_trigger) in [
        (&["--stack"][..], &is_alloc as &dyn Fn(&Value) -> bool, Some("trigger alloc")),
        (&["--stack=order > 0"], &is_large, Some("trigger order > 0")),
        // A trigger fires for events that a filter leaves out.
        (&["--stack", "--filter", "order > 0"], &is_large, Some("trigger alloc")),
        (&["--stack=all"], &is_page_event, None),
        (&["--stack", "--only-command"], &is_page_event, None),
    ] {
        let recorded = Recorded::new(&[&["-e", "kmem:mm_page_alloc,kmem:mm_page_free"], options].concat(), &load);
        let stderr = recorded.stderr();
        assert!(recorded.output.status.success() && !stderr.contains("another program"), "{options:?}: {stderr}");
        let asked = stacks_of(&recorded.trace());
        let way = by_trigger.filter(|_| stderr.contains("by a trigger")).unwrap_or("option all");
        assert_eq!(asked.as_deref(), Some(way), "{options:?}: {stderr}");
        assert!(stderr.contains("stacks with "), "{options:?}: {stderr}");
        let has_all = way == "option all";
        let (stacks, events) =
            recorded.stacks_and_events(|event| (has_all && is_page_event(event)) || is_counted(event));
        assert!(events.len() > 100, "{options:?}: {} events", events.len());
        // Tracing may begin between an event and its stack: a stack without an event on each CPU, which is counted as unmatched.
        assert!(stacks <= (events.len() + AT_THE_ENDS) as u64, "{options:?}: {stacks} stacks, {} events", events.len());
        // Tracing may end between the two. Linux 6.18 leaves out the stacks of some events in
        // interrupts: 11 of 6,004 in eight seconds, in its own text, too.
        let without = |event: &&Value| event["stack"].is_null() && event["context"] == "task";
        let without: Vec<_> = events.iter().filter(without).collect();
        assert!(without.len() <= AT_THE_ENDS, "{options:?}: {stacks} stacks, {} events: {without:?}", events.len());
    }
    let without = Recorded::new(&["-e", "kmem:mm_page_alloc,kmem:mm_page_free"], &load);
    assert_eq!((stacks_of(&without.trace()).as_deref(), without.stacks_and_events(is_page_event).0), (Some(""), 0));
    Ok(())
}

fn a_filter_that_an_event_lacks_is_refused_by_its_name() -> Result<(), Skip> {
    can_record_stacks()?;
    for (options, event) in [
        (&["--stack=order > 0", "-e", "all"][..], "kmem/kmalloc"),
        (&["--stack=bytes_req > 0", "-e", "page"], "kmem/mm_page_alloc"),
        (&["--stack=bytes_req >"], "kmem/kmalloc"),
        (&["--stack", "-e", "kfree"], "no allocation event"),
        (&["--stack=bytes_req > 0", "-e", "kfree"], "no allocation event"),
    ] {
        let recorded = Recorded::new(options, &["true"]);
        let stderr = recorded.stderr();
        assert_eq!((recorded.output.status.code(), stderr.lines().count()), (Some(2), 1), "{options:?}: {stderr}");
        assert!(stderr.contains("--stack") && stderr.contains(event), "{options:?}: {stderr}");
        assert!(!recorded.trace().exists(), "{options:?}");
    }
    Ok(())
}

fn triggers_go_with_the_recorder() -> Result<(), Skip> {
    let tracefs = can_record_stacks()?;
    let trigger = |instance: &Instance<'_>| must("trigger", instance.read("events/kmem/kmalloc/trigger"));
    let top = must("trigger", std::fs::read_to_string(tracefs.path().join("events/kmem/kmalloc/trigger")));
    let recorder = Recorder::start(&["--stack"]);
    let by_trigger = trigger(&recorder.instance(&tracefs)).starts_with("stacktrace");
    let option = must("option", recorder.instance(&tracefs).read("options/stacktrace"));
    assert_ne!(by_trigger, option.trim() == "1", "one of both ways");
    recorder.signal(Signal::KILL);
    let (name, path) = (recorder.instance_name().to_owned(), recorder.instance(&tracefs).path().to_owned());
    recorder.wait();
    let out = run_to(0, "kmemtraced", &["recover", "-B", &name], &[]);
    assert!(String::from_utf8_lossy(&out).contains(&name) && !path.exists());
    let now = must("trigger", std::fs::read_to_string(tracefs.path().join("events/kmem/kmalloc/trigger")));
    assert_eq!(now, top, "the top-level buffer has the triggers that it had");
    Ok(())
}

fn a_trigger_that_is_removed_is_told() -> Result<(), Skip> {
    can_record_stacks()?;
    let script = "echo '!stacktrace' >INSTANCE/events/kmem/kmalloc/trigger; \
                  echo nostacktrace >INSTANCE/trace_options; sleep 0.3";
    for options in ["--stack", "--stack=all"] {
        let recorded = Recorded::new(&[options], &["sh", "-c", script]);
        let stderr = recorded.stderr();
        assert!(stderr.contains("another program changed the recording"), "{options}: {stderr}");
    }
    Ok(())
}

fn stacks_of_a_buffer_of_the_boot_are_taken_over() -> Result<(), Skip> {
    let tracefs = can_record_stacks()?;
    for (file, text, asked) in [
        ("options/stacktrace", "1", "option all"),
        ("events/kmem/mm_page_alloc/trigger", "stacktrace if order > 0", "trigger order > 0"),
    ] {
        // An instance made by hand stands for that of the kernel's command line.
        let instance = Instance::new(&tracefs)?;
        must("trigger", instance.write(file, text));
        for event in ["mm_page_alloc", "mm_page_free"] {
            must("enable", instance.write(&format!("events/kmem/{event}/enable"), "1"));
        }
        let found = must(file, instance.read(file));
        let (directory, name) =
            (Directory::new(&[]), instance.path().file_name().unwrap_or_default().to_string_lossy());
        let out = run("kmemtraced", &["--boot", "-B", &name, "-d", "300ms", "-o"], &[&directory.file("trace")]);
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(said.contains("stacks with ") && !said.contains("another program"), "{said}");
        assert_eq!(stacks_of(&directory.file("trace")).as_deref(), Some(asked), "{said}");
        assert_eq!(must(file, instance.read(file)), found, "as it was");
        must("stop", instance.write("events/enable", "0"));
    }
    Ok(())
}

fn probe_tells_the_cost_of_a_stack() -> Result<(), Skip> {
    let tracefs = can_record_stacks()?;
    let name = instance_name();
    let out = run_to(0, "kmemtraced", &["probe", "-B", &name], &[]);
    let out = String::from_utf8_lossy(&out);
    let line = out.lines().find_map(|line| line.strip_prefix("stacks")).unwrap_or_else(|| panic!("{out}")).trim();
    assert!(line.contains(", by a trigger: ") || line.contains(", by an option: "), "{line}");
    if let Some((micros, _)) = line.split_once(" us each") {
        let micros: f64 = must(line, micros.parse());
        assert!((0.05..100.0).contains(&micros), "{line}");
    }
    assert!(!tracefs.path().join("instances").join(format!("{name}-probe")).exists());
    Ok(())
}

fn the_words_of_memstrack_leave_a_report_and_no_recording() -> Result<(), Skip> {
    can_record_stacks()?;
    let (directory, name) = (Directory::new(&[]), instance_name());
    let file = directory.file("report");
    let record_to = |file: &Path, options: &[&str]| {
        let mut recorder = Command::new(program("kmemtraced"));
        recorder.args(["--notui", "-B", &name]).args(options).arg("--output").arg(file).env("TMPDIR", directory.path());
        must("kmemtraced", recorder.args(["--", "true"]).stdin(Stdio::null()).output())
    };
    let left = || must("directory", std::fs::read_dir(directory.path())).count();
    let out = record_to(&file, &["--report", "summary", "--buf-size", "1", "--backend", "perf"]);
    let said = String::from_utf8_lossy(&out.stderr);
    let line = said.lines().next().unwrap_or_default();
    assert!(line.contains("kmemtraced -e page --stack -b 1M") && line.contains("kmemtrace-report summary"), "{said}");
    let report = must("report", std::fs::read_to_string(&file));
    assert!(report.contains("pages"), "{report}");
    assert_eq!(left(), 1, "the report alone: {said}");
    // A report that cannot be written costs no recording.
    let out = record_to(Path::new("/dev/full"), &["--report", "summary"]);
    let said = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(3), "{said}");
    assert!(said.contains("is kept in") && left() == 2, "{said}");
    Ok(())
}
