//! Tests of the recording of stacks, on the running kernel as root. Tests that cannot run here are listed as skipped at the end.

use std::path::Path;
use std::process::Stdio;

use kmemtrace_abi::trace::Trace;
use kmemtrace_tests::live::{Instance, Tracefs};
use kmemtrace_tests::programs::{document, json_lines, program, run, run_to};
use kmemtrace_tests::recorder::{Recorded, Recorder, can_record, instance_name, kmemtraced};
use kmemtrace_tests::recording::Directory;
use kmemtrace_tests::runner::Skip;
use rustix::process::Signal;
use serde_json::Value;

kmemtrace_tests::tests![
    each_event_that_was_asked_for_has_a_stack,
    each_vmalloc_area_has_a_stack_unasked,
    a_filter_that_an_event_lacks_is_refused_by_its_name,
    triggers_go_with_the_recorder,
    a_trigger_that_is_removed_is_told,
    stacks_of_a_buffer_of_the_boot_are_taken_over,
    doctor_tells_the_cost_of_a_stack_and_records_as_a_test,
    the_words_of_memstrack_leave_a_report_and_no_recording,
];

/// Command that allocates and frees pages of order 0 and above: vectors of 16 KiB.
fn load() -> [String; 4] {
    [program("kmemload").display().to_string(), "iov".to_owned(), "200".to_owned(), "1000".to_owned()]
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

/// Stacks in the trace, and the events, those of the recorder, too, for which `is_counted`.
fn stacks_and_events(recorded: &Recorded, is_counted: impl Fn(&Value) -> bool) -> (u64, Vec<Value>) {
    run_to(0, "kmemtrace-check", &[], &[&recorded.trace()]);
    let summary = document(&["summary"], &recorded.trace());
    let stacks = [&summary["stacks_seen"], &summary["events"]["other"]].into_iter().find_map(Value::as_u64);
    let mut events =
        json_lines(&run_to(0, "kmemtrace-report", &["events", "--own", "--format", "jsonl"], &[&recorded.trace()]));
    events.retain(is_counted);
    (stacks.unwrap_or_default(), events)
}

/// Text about stacks in `meta.out`.
fn stacks_of(trace: &Path) -> Option<String> {
    Trace::open(&[trace.to_owned()]).unwrap().metadata.stacks
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
        let recorded = Recorded::new(&[&["-v", "-e", "kmem:mm_page_alloc,kmem:mm_page_free"], options].concat(), &load);
        let stderr = recorded.stderr();
        assert!(recorded.output.status.success() && !stderr.contains("another program"), "{options:?}: {stderr}");
        let asked = stacks_of(&recorded.trace());
        let way = by_trigger.filter(|_| stderr.contains("by a trigger")).unwrap_or("option all");
        assert_eq!(asked.as_deref(), Some(way), "{options:?}: {stderr}");
        assert!(stderr.contains("stacks with "), "{options:?}: {stderr}");
        let has_all = way == "option all";
        let (stacks, events) =
            stacks_and_events(&recorded, |event| (has_all && is_page_event(event)) || is_counted(event));
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
    assert_eq!((stacks_of(&without.trace()).as_deref(), stacks_and_events(&without, is_page_event).0), (Some(""), 0));
    Ok(())
}

/// The event of a vmalloc area has no call site. Threads take such areas for their stacks.
fn each_vmalloc_area_has_a_stack_unasked() -> Result<(), Skip> {
    can_record_stacks()?.need_event("vmalloc/alloc_vmap_area")?;
    let threads = "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do sleep 0.5 & done; wait";
    for (options, is_with, way) in [
        (&["-e", "vmalloc"][..], true, "trigger vmalloc"),
        (&["-e", "all"], true, "trigger vmalloc"),
        (&["-e", "all", "--only-command"], true, "trigger vmalloc"),
        (&["-e", "vmalloc", "--filter", "size > 8192"], true, "trigger vmalloc"),
        (&["-e", "vmalloc", "--stack"], true, "trigger alloc"),
        (&["-e", "vmalloc", "--no-stack"], false, ""),
    ] {
        let recorded = Recorded::new(options, &["sh", "-c", threads]);
        let stderr = recorded.stderr();
        assert!(matches!(recorded.output.status.code(), Some(0 | 1)), "{options:?}: {stderr}");
        assert_eq!(stacks_of(&recorded.trace()).as_deref(), Some(way), "{options:?}: {stderr}");
        let is_vmap = |event: &Value| event["event"].as_str().is_some_and(|name| name.contains("vmap_area"));
        let (_, events) = stacks_and_events(&recorded, is_vmap);
        let (allocs, frees): (Vec<&Value>, Vec<&Value>) =
            events.iter().partition(|event| event["event"] == "alloc_vmap_area");
        let with = |events: &[&Value]| events.iter().filter(|event| event["stack"].is_array()).count();
        let expected = if is_with { allocs.len() } else { 0 };
        assert_eq!((with(&allocs), with(&frees)), (expected, 0), "{options:?}: {stderr}");
        assert!(allocs.len() >= 4, "{options:?}: {} areas", allocs.len());
    }
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
    let trigger = |instance: &Instance<'_>| instance.read("events/kmem/kmalloc/trigger").unwrap();
    let top = std::fs::read_to_string(tracefs.path().join("events/kmem/kmalloc/trigger")).unwrap();
    let recorder = Recorder::start(&["--stack"]);
    let by_trigger = trigger(&recorder.instance(&tracefs)).starts_with("stacktrace");
    let option = recorder.instance(&tracefs).read("options/stacktrace").unwrap();
    assert_ne!(by_trigger, option.trim() == "1", "one of both ways");
    recorder.signal(Signal::KILL);
    let (name, path) = (recorder.instance_name().to_owned(), recorder.instance(&tracefs).path().to_owned());
    recorder.wait();
    let out = run_to(0, "kmemtraced", &["recover", "-B", &name], &[]);
    assert!(String::from_utf8_lossy(&out).contains(&name) && !path.exists());
    let now = std::fs::read_to_string(tracefs.path().join("events/kmem/kmalloc/trigger")).unwrap();
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
        instance.write(file, text).unwrap();
        for event in ["mm_page_alloc", "mm_page_free"] {
            instance.write(&format!("events/kmem/{event}/enable"), "1").unwrap();
        }
        let found = instance.read(file).unwrap();
        let (directory, name) =
            (Directory::new(&[]), instance.path().file_name().unwrap_or_default().to_string_lossy());
        let out = run("kmemtraced", &["--boot", "-B", &name, "-d", "300ms", "-o"], &[&directory.file("trace")]);
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(said.contains("stacks with ") && !said.contains("another program"), "{said}");
        assert_eq!(stacks_of(&directory.file("trace")).as_deref(), Some(asked), "{said}");
        assert_eq!(instance.read(file).unwrap(), found, "as it was");
        instance.write("events/enable", "0").unwrap();
    }
    Ok(())
}

fn doctor_tells_the_cost_of_a_stack_and_records_as_a_test() -> Result<(), Skip> {
    let tracefs = can_record_stacks()?;
    let name = instance_name();
    let out = run_to(0, "kmemtraced", &["doctor", "-B", &name], &[]);
    let out = String::from_utf8_lossy(&out);
    let line = out.lines().find_map(|line| line.strip_prefix("stacks")).unwrap_or_else(|| panic!("{out}")).trim();
    assert!(line.contains(", by a trigger: ") || line.contains(", by an option: "), "{line}");
    if let Some((micros, _)) = line.split_once(" us each") {
        let micros: f64 = micros.parse().unwrap();
        assert!((0.05..100.0).contains(&micros), "{line}");
    }
    assert!(
        out.lines().any(|line| line.starts_with("self-test  recorded 2 s: ") && line.contains(" events ")),
        "{out}"
    );
    for left in ["probe", "doctor"] {
        assert!(!tracefs.path().join("instances").join(format!("{name}-{left}")).exists(), "{left}");
    }
    // The old word.
    let probe = run_to(0, "kmemtraced", &["probe", "--quick", "-B", &name], &[]);
    assert!(!String::from_utf8_lossy(&probe).contains("self-test"));
    Ok(())
}

fn the_words_of_memstrack_leave_a_report_and_no_recording() -> Result<(), Skip> {
    can_record_stacks()?;
    let (directory, name) = (Directory::new(&[]), instance_name());
    let file = directory.file("report");
    let record_to = |file: &Path, options: &[&str]| {
        let mut recorder = kmemtraced();
        recorder.args(["--notui", "-B", &name]).args(options).arg("--output").arg(file).env("TMPDIR", directory.path());
        recorder.args(["--", "true"]).stdin(Stdio::null()).output().unwrap()
    };
    let left = || std::fs::read_dir(directory.path()).unwrap().count();
    let out = record_to(&file, &["--report", "summary", "--buf-size", "1", "--backend", "perf"]);
    let said = String::from_utf8_lossy(&out.stderr);
    let line = said.lines().next().unwrap_or_default();
    assert!(line.contains("kmemtraced -e page --stack -b 1M") && line.contains("kmemtrace-report summary"), "{said}");
    let report = std::fs::read_to_string(&file).unwrap();
    assert!(report.contains("pages"), "{report}");
    assert_eq!(left(), 1, "the report alone: {said}");
    // A report that cannot be written costs no recording.
    let out = record_to(Path::new("/dev/full"), &["--report", "summary"]);
    let said = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(3), "{said}");
    assert!(said.contains("is kept in") && left() == 2, "{said}");
    Ok(())
}
