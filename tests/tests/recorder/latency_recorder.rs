//! Recording of waits for memory, on the running kernel as root. Tests that cannot run here are listed as skipped at the end.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread::sleep;
use std::time::Duration;

use kmemtrace_abi::trace::Trace;
use kmemtrace_tests::live::{Instance, Tracefs};
use kmemtrace_tests::memory_group::MemoryGroup;
use kmemtrace_tests::programs::{json, json_lines, program, run, run_to};
use kmemtrace_tests::recorder::{Recorder, can_record, instance_name, kmemtraced};
use kmemtrace_tests::recording::Directory;
use kmemtrace_tests::runner::Skip;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

kmemtrace_tests::tests![
    each_begin_of_a_reclaim_is_there_with_its_stack,
    waits_of_a_call_site_are_those_of_its_rows,
    stalls_are_the_same_with_slabs_beside,
    stacks_are_left_out_where_they_are_not_wanted,
    functions_are_recorded_or_refused_in_a_sentence,
    a_killed_recorder_of_functions_leaves_nothing,
    a_trigger_of_a_begin_that_is_removed_is_told,
    doctor_tells_events_and_functions,
    a_signal_leaves_nothing_of_a_doctor,
    clean_spans_of_a_lossy_recording_are_those_of_a_whole_one => clean_spans_of_a_lossy_recording_are_true,
];

/// Event that a command in a small memory cgroup causes.
const BEGIN: &str = "mm_vmscan_memcg_reclaim_begin";
/// Limit of the cgroup, bytes.
const LIMIT: u64 = 24 << 20;
/// Files of the top-level trace directory that no recorder may change.
const TOP: [&str; 14] = [
    "current_tracer",
    "set_ftrace_filter",
    "set_ftrace_notrace",
    "set_graph_function",
    "tracing_thresh",
    "tracing_on",
    "trace_clock",
    "trace_options",
    "set_event",
    "kprobe_events",
    "uprobe_events",
    "dynamic_events",
    "buffer_size_kb",
    "events/vmscan/mm_vmscan_memcg_reclaim_begin/trigger",
];

fn can_record_latency() -> Result<Tracefs, Skip> {
    let tracefs = can_record()?;
    tracefs.need_event(&format!("vmscan/{BEGIN}"))?;
    Ok(tracefs)
}

/// Text of each file in [`TOP`]; empty for one that cannot be read here.
fn top(tracefs: &Tracefs) -> Vec<(&'static str, String)> {
    let text = |file| std::fs::read_to_string(tracefs.path().join(file)).unwrap_or_default();
    TOP.map(|file| (file, text(file))).into()
}

/// Recording of a copy of 100 MiB in a small memory cgroup.
struct Recorded {
    directory: Directory,
    output: Output,
    /// Lines of the kernel's own text about begins of reclaims of the group's task.
    begins: usize,
    /// Thread id of that task.
    pid: u64,
}

impl Recorded {
    fn new(tracefs: &Tracefs, options: &[&str]) -> Result<Recorded, Skip> {
        let (directory, files, instance) = (Directory::new(&[]), Directory::on_disk(), instance_name());
        let truth = Instance::new(tracefs)?;
        truth.write("buffer_size_kb", "4096").unwrap();
        truth.write(&format!("events/vmscan/{BEGIN}/enable"), "1").unwrap();
        let group = MemoryGroup::new(LIMIT)?;
        let (from, to) = (files.file("from"), files.file("to"));
        std::fs::write(&from, vec![7; 100 << 20]).unwrap();
        let pid = files.file("pid");
        let copy = format!("echo $$ >'{}' && exec cp '{}' '{}'", pid.display(), from.display(), to.display());
        let load = group.shell(&copy);
        let mut recorder = kmemtraced();
        recorder.args(["-v", "-B", &instance]).args(options).arg("-o").arg(directory.file("trace")).arg("--");
        recorder.arg(load.get_program()).args(load.get_args()).stdin(Stdio::null());
        let output = recorder.output().unwrap();
        truth.write("tracing_on", "0").unwrap();
        assert!(!tracefs.path().join("instances").join(&instance).exists(), "instance {instance} is left");
        let pid = files.text("pid").trim().parse().unwrap();
        let text = truth.read("trace").unwrap();
        let is_of_task = |line: &&str| line.contains(&format!("-{pid} ")) && line.contains(BEGIN);
        let begins = text.lines().filter(is_of_task).count();
        Ok(Recorded { directory, output, begins, pid })
    }

    fn trace(&self) -> PathBuf {
        self.directory.file("trace")
    }

    fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.output.stderr).into_owned()
    }

    /// Events of the task, of this name.
    fn events(&self, name: &str) -> Vec<Value> {
        let arguments = ["events", "--format", "jsonl"];
        let mut events = json_lines(&run_to(0, "kmemtrace-report", &arguments, &[&self.trace()]));
        events.retain(|event| event["event"] == name && event["pid"] == self.pid);
        events
    }
}

fn has_stack(event: &Value) -> bool {
    event["stack"].as_array().is_some_and(|frames| frames.len() > 3)
}

fn stacks_of(trace: &Path) -> Option<String> {
    Trace::open(&[trace.to_owned()]).unwrap().metadata.stacks
}

fn each_begin_of_a_reclaim_is_there_with_its_stack() -> Result<(), Skip> {
    let tracefs = can_record_latency()?;
    for events in ["latency", "latency,slab,page"] {
        let recorded = Recorded::new(&tracefs, &["-e", events, "-b", "32M"])?;
        assert_eq!(recorded.output.status.code(), Some(0), "{}", recorded.stderr());
        run_to(0, "kmemtrace-check", &[], &[&recorded.trace()]);
        let begins = recorded.events(BEGIN);
        assert!(recorded.begins > 20, "the kernel reclaimed {} times: {}", recorded.begins, recorded.stderr());
        assert_eq!(begins.len(), recorded.begins, "-e {events}: the kernel's text has other begins");
        let ends = recorded.events("mm_vmscan_memcg_reclaim_end");
        assert_eq!(ends.len(), begins.len(), "-e {events}");
        let names_view = recorded.stderr().contains("next: kmemtrace-report latency ");
        assert_eq!(names_view, events == "latency", "{}", recorded.stderr());
        match stacks_of(&recorded.trace()).as_deref() {
            Some("trigger begin") => {
                assert!(begins.iter().all(has_stack), "-e {events}: a begin has no stack");
                assert!(!ends.iter().any(has_stack), "-e {events}: an end has a stack");
            }
            stacks => {
                assert_eq!(stacks, Some(""), "-e {events}");
                assert!(recorded.stderr().contains("no stacks with reclaim and compaction"), "{}", recorded.stderr());
            }
        }
    }
    Ok(())
}

/// Rows of other keys go by the call-site, too.
fn waits_of_a_call_site_are_those_of_its_rows() -> Result<(), Skip> {
    let tracefs = can_record_latency()?;
    let recorded = Recorded::new(&tracefs, &["-e", "latency,page", "--stack", "-b", "32M"])?;
    let trace = recorded.trace();
    let rows = |arguments: &[&str]| -> Vec<Value> {
        let arguments = [&["waits", "--format", "json"], arguments].concat();
        let document = json(&run_to(0, "kmemtrace-report", &arguments, &[&trace]));
        document["rows"].as_array().cloned().unwrap_or_default()
    };
    let function = |row: &Value| Some(row["symbol"].as_str()?.split_once('+')?.0.to_owned());
    let all = rows(&[]);
    let Some(most) = all.iter().max_by_key(|row| row["allocs"].as_u64()).and_then(function) else {
        return Err(Skip("this kernel puts no stacks into an instance".to_owned()));
    };
    let wanted: Vec<Value> = all.iter().filter(|row| function(row).as_ref() == Some(&most)).cloned().collect();
    assert!(wanted.len() < all.len(), "{most}");
    assert_eq!(rows(&["--site", &most]), wanted);
    let allocs = |rows: &[Value]| rows.iter().filter_map(|row| row["allocs"].as_u64()).sum::<u64>();
    let by_order = rows(&["--site", &most, "--by", "order"]);
    assert_eq!(allocs(&by_order), allocs(&wanted));
    assert!(by_order.iter().all(|row| row["order"].is_u64()), "{by_order:?}");
    Ok(())
}

fn stalls_are_the_same_with_slabs_beside() -> Result<(), Skip> {
    can_record_latency()?;
    let (files, group) = (Directory::on_disk(), MemoryGroup::new(LIMIT)?);
    let (from, to) = (files.file("from"), files.file("to"));
    std::fs::write(&from, vec![7; 100 << 20]).unwrap();
    let start = |events| Recorder::start_of(events, Directory::new(&[]), &instance_name(), &["-b", "32M"]);
    let recorders = ["latency,slab", "latency"].map(start);
    let load = group.shell(&format!("exec cp '{}' '{}'", from.display(), to.display())).spawn();
    let mut load = load.unwrap();
    let pid = load.id().to_string();
    load.wait().unwrap();
    let [with, without] = recorders.map(|recorder| {
        let arguments = ["stalls", "--pid", &pid, "--sort", "time", "--format", "json"];
        let document = json(&run_to(0, "kmemtrace-report", &arguments, &[&recorder.stop_whole().file("trace")]));
        let stall = |row: &Value| {
            let inside = row["inside"].as_array().into_iter().flatten();
            let inside: u64 = inside.filter_map(|spans| spans["count"].as_u64()).sum();
            format!("{} {} {} {} {inside} inside", row["pid"], row["span"], row["order"], row["reclaimed"])
        };
        document["rows"].as_array().into_iter().flatten().map(stall).collect::<Vec<_>>()
    });
    assert!(without.len() > 20, "{} stalls", without.len());
    assert_eq!(with, without);
    Ok(())
}

fn stacks_are_left_out_where_they_are_not_wanted() -> Result<(), Skip> {
    let tracefs = can_record_latency()?;
    let recorded = Recorded::new(&tracefs, &["-e", "latency", "--no-stack"])?;
    assert_eq!(recorded.output.status.code(), Some(0), "{}", recorded.stderr());
    assert_eq!(stacks_of(&recorded.trace()).as_deref(), Some(""));
    let begins = recorded.events(BEGIN);
    assert!(begins.len() > 20 && !begins.iter().any(has_stack), "{} begins", begins.len());
    let both = run("kmemtraced", &["-e", "latency", "--no-stack", "--stack"], &[]);
    assert_eq!(both.status.code(), Some(2), "{}", String::from_utf8_lossy(&both.stderr));
    Ok(())
}

fn functions_are_recorded_or_refused_in_a_sentence() -> Result<(), Skip> {
    let tracefs = can_record_latency()?;
    let before = top(&tracefs);
    let recorded = Recorded::new(&tracefs, &["-e", "latency", "--functions"])?;
    assert_eq!(top(&tracefs), before);
    assert_eq!(recorded.output.status.code(), Some(0), "{}", recorded.stderr());
    let stderr = recorded.stderr();
    let calls = recorded.events("funcgraph_exit").len();
    let notes = stderr.lines().filter(|line| line.starts_with("kmemtraced: no times of functions: ")).count();
    let is_recorded = stderr.lines().any(|line| line.starts_with("times of functions: "));
    assert_eq!((notes == 1, calls > 20), (!is_recorded, is_recorded), "{calls} calls: {stderr}");
    assert_eq!(recorded.events(BEGIN).len(), recorded.begins, "the events are recorded either way");
    Ok(())
}

fn a_killed_recorder_of_functions_leaves_nothing() -> Result<(), Skip> {
    let tracefs = can_record_latency()?;
    let before = top(&tracefs);
    let recorder = Recorder::start(&["-e", "latency", "--functions"]);
    let instance = recorder.instance(&tracefs).path().to_owned();
    assert!(instance.is_dir() && top(&tracefs) == before);
    let ended = recorder.kill();
    assert!(!instance.exists(), "{} is left", instance.display());
    assert_eq!(top(&tracefs), before);
    run_to(1, "kmemtrace-check", &[], &[&ended.trace()]);
    Ok(())
}

fn a_trigger_of_a_begin_that_is_removed_is_told() -> Result<(), Skip> {
    let tracefs = can_record_latency()?;
    let recorder = Recorder::start(&["-e", "latency"]);
    let trigger = format!("events/vmscan/{BEGIN}/trigger");
    let instance = recorder.instance(&tracefs);
    if !instance.read(&trigger).unwrap().starts_with("stacktrace") {
        return Err(Skip("this kernel's triggers do not write to the recorder's instance".to_owned()));
    }
    instance.write(&trigger, "!stacktrace").unwrap();
    std::thread::sleep(std::time::Duration::from_millis(1500));
    recorder.signal(Signal::TERM);
    let ended = recorder.wait();
    assert!(ended.stderr.contains(&trigger), "{}", ended.stderr);
    Ok(())
}

fn doctor_tells_events_and_functions() -> Result<(), Skip> {
    let tracefs = can_record_latency()?;
    let before = top(&tracefs);
    let name = instance_name();
    let printed =
        String::from_utf8_lossy(&run_to(0, "kmemtraced", &["doctor", "--quick", "-B", &name], &[])).into_owned();
    let line = |name: &str| printed.lines().find_map(|line| line.strip_prefix(name)).map(str::trim).unwrap_or_default();
    assert!(line("latency ").contains("events"), "{printed}");
    assert!(line("functions ").contains("times of functions: "), "{printed}");
    assert_eq!(top(&tracefs), before);
    assert!(!tracefs.path().join("instances").join(format!("{name}-probe")).exists(), "an instance is left");
    let mut command = Command::new(program("kmemtraced"));
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let output = command.args(["doctor", "--quick", "-B", &name]).stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("standard output: cannot be written: No space left"));
    Ok(())
}

fn a_signal_leaves_nothing_of_a_doctor() -> Result<(), Skip> {
    let tracefs = can_record()?;
    for (n, signal) in [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT].into_iter().cycle().take(8).enumerate() {
        let name = instance_name();
        let mut command = Command::new(program("kmemtraced"));
        let doctor = command.args(["doctor", "-B", &name]).stdout(Stdio::null()).stderr(Stdio::null());
        let mut doctor = doctor.spawn().unwrap();
        sleep(Duration::from_millis(100 + 150 * n as u64));
        let _ = kill_process(Pid::from_child(&doctor), signal);
        doctor.wait().unwrap();
        let left = |folder: &Path| {
            let names = fs::read_dir(folder).into_iter().flatten().flatten();
            names
                .map(|entry| entry.file_name().to_string_lossy().into_owned())
                .filter(|file| file.starts_with(&name))
                .collect::<Vec<_>>()
        };
        assert_eq!(left(&tracefs.path().join("instances")), [""; 0], "{signal:?}");
        assert_eq!(left(Path::new("/run/kmemtraced")), [""; 0], "{signal:?}");
    }
    Ok(())
}

/// Nanoseconds by which two instances may differ about the end and the length of a span: each reads the clock for itself.
const CLOCKS: u64 = 100_000;
/// Nanoseconds by which they may differ where a processor was taken away from the task, or from the machine, between the two clocks.
const TAKEN_AWAY: u64 = 100_000_000;

/// Span as two instances have it.
struct TimedSpan {
    key: (u64, String, String),
    end: u64,
    total: u64,
    is_suspect: bool,
}

/// All spans of a recording.
fn spans(trace: &Path) -> Vec<TimedSpan> {
    let lines = run_to(0, "kmemtrace-report", &["stalls", "--follow", "--all-spans", "--format", "jsonl"], &[trace]);
    let number = |row: &Value, name: &str| row[name].as_u64().unwrap_or_else(|| panic!("no {name}: {row}"));
    let span = |row: &Value| TimedSpan {
        key: (number(row, "pid"), row["span"].to_string(), row["parent"].to_string()),
        end: number(row, "end"),
        total: number(row, "total"),
        is_suspect: row["suspect"] == true,
    };
    json_lines(&lines).iter().filter(|row| row["end"].is_u64() && row["span"].is_string()).map(span).collect()
}

/// The same load, recorded whole, and in small buffers that a reader drains at times: spans of both, and events that were lost.
fn recorded_twice(load: &mut Command) -> [(Vec<TimedSpan>, u64); 2] {
    let start = |options: &[&str]| Recorder::start_of("latency", Directory::new(&[]), &instance_name(), options);
    let (whole, lossy) = (start(&["-b", "32M"]), start(&["-b", "24K"]));
    let mut load = load.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    while load.try_wait().unwrap().is_none() {
        for signal in [Signal::STOP, Signal::CONT] {
            lossy.signal(signal);
            std::thread::sleep(std::time::Duration::from_millis(150));
        }
    }
    // The whole recording begins before the lossy one, and ends after it.
    let lossy = lossy.stop();
    [whole.stop(), lossy].map(|ended| {
        let document = run_to(0, "kmemtrace-report", &["latency", "--no-index", "--format", "json"], &[&ended.trace()]);
        let lost = json(&document)["completeness"]["lost_events"].as_u64();
        (spans(&ended.trace()), lost.unwrap_or(u64::MAX))
    })
}

fn clean_spans_of_a_lossy_recording_are_true() -> Result<(), Skip> {
    can_record_latency()?;
    let files = Directory::on_disk();
    let (from, to) = (files.file("from"), files.file("to"));
    std::fs::write(&from, vec![7; 60 << 20]).unwrap();
    let group = MemoryGroup::new(LIMIT)?;
    // Reclaim on a busy disk has no end in sight.
    let copy = format!("timeout 5 cp '{}' '{}'; timeout 5 ls -lR /usr", from.display(), to.display());
    let [(mut whole, lost_of_whole), (mut lossy, lost)] = recorded_twice(&mut group.shell(&[&*copy; 2].join("; ")));
    if lost_of_whole != 0 {
        return Err(Skip("the machine is too busy to record without loss".to_owned()));
    }
    lossy.retain(|span| !span.is_suspect);
    if lost == 0 || lossy.len() < 100 {
        return Err(Skip(format!("{lost} events were lost, {} spans are clean: too few to tell", lossy.len())));
    }
    whole.sort_by_key(|span| span.end);
    // Spans that agree are taken first: a span that a pause stretched would take its neighbour's truth, that one the next one's.
    let clean = lossy.len();
    lossy.retain(|span| take_nearest(&mut whole, span, CLOCKS).is_none());
    for span in &lossy {
        let key = &span.key;
        let Some(truth) = take_nearest(&mut whole, span, TAKEN_AWAY) else {
            panic!("the kernel had no such span: {key:?} until {}, {} ns", span.end, span.total);
        };
        eprintln!(
            "{key:?} ends at {} after {} ns, truly at {} after {} ns",
            span.end, span.total, truth.end, truth.total
        );
    }
    // One instance may be held up between an event and the other one, more often where other programs run.
    assert!(lossy.len() <= clean / 100 + 1, "{} of {clean} clean spans differ", lossy.len());
    Ok(())
}

/// Takes the span out of `whole`, sorted by end, that is nearest to `span`: each stands for one span of the other recording at most.
/// Ends and lengths differ by `reach` nanoseconds at most.
fn take_nearest(whole: &mut Vec<TimedSpan>, span: &TimedSpan, reach: u64) -> Option<TimedSpan> {
    let first = whole.partition_point(|other| other.end + reach < span.end);
    let near = whole[first..].iter().enumerate().take_while(|(_, other)| other.end <= span.end + reach);
    let like = near.filter(|(_, other)| other.key == span.key && other.total.abs_diff(span.total) <= reach);
    let (place, _) = like.min_by_key(|(_, other)| other.end.abs_diff(span.end) + other.total.abs_diff(span.total))?;
    Some(whole.remove(first + place))
}
