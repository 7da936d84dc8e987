//! Random runs: at a random moment hands of others act on the recorder's instance or on its output, or a stranger's program stands in
//! place of the viewer. What an independent count has and the files have not is told. Tests that cannot run here are listed as skipped at
//! the end.
//!
//! Runs are two of each kind, or fifty with `KMEMTRACE_RUNS=all`, or as many as it says.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use kmemtrace_tests::counted::{Count, Load, make_runs, told};
use kmemtrace_tests::generate::Random;
use kmemtrace_tests::live::Tracefs;
use kmemtrace_tests::programs::{json, until};
use kmemtrace_tests::recorder::{Part, Recorder, can_record, instance_name};
use kmemtrace_tests::recording::Directory;
use kmemtrace_tests::runner::Skip;
use kmemtrace_tests::views;
use rustix::process::Signal;

use crate::foreign::{instance_dir, is_there, try_shell};
use crate::viewer::{ESCAPES, PUSHES, Place};

kmemtrace_tests::tests![
    hands_on_the_instance_leave_no_event_untold,
    hands_on_the_output_end_with_0_only_if_all_is_there,
    viewers_of_strangers_cost_no_event,
];

/// What a recording lacks of a count, or what is broken.
fn lacks(count: &Count<'_>, trace: &Path) -> Result<usize, String> {
    let lost = json(&views::printed("summary", trace))["completeness"]["lost_events"].as_u64();
    told(&count.events()?, &views::events(trace), lost)
}

/// Starts a recorder of what the load allocates, and the load.
fn record(load: &Load) -> Recorder {
    let options = ["-b", "4M", "--filter", &load.filter()];
    let recorder = Recorder::start_of("kmalloc", Directory::new(&[]), &instance_name(), &options);
    recorder.until_said("recording to ", 1);
    recorder
}

/// What a hand does in the instance, and how it sets that back after a while. TID is the thread whose events are recorded.
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

fn hand_on_the_instance(tracefs: &Tracefs, hand: &Kind, seed: u64, load: &Load) -> Result<String, String> {
    let mut random = Random::new(seed);
    let tid = &load.thread().to_string();
    let count = Count::begin(tracefs, load)?;
    let recorder = record(load);
    let dir = instance_dir(tracefs, recorder.instance_name());
    if !is_there(&dir, hand.file) {
        recorder.stop();
        return Ok("not in this kernel".to_owned());
    }
    load.begin();
    let mut rest = |most| load.rest(Duration::from_millis(random.below(most)));
    rest(300);
    let laid = try_shell(&dir, &hand.on.replace("TID", tid));
    rest(500);
    let laid = laid.and_then(|()| try_shell(&dir, &hand.off.replace("TID", tid)));
    rest(200);
    count.end()?;
    let ended = recorder.stop();
    laid?;
    let missing = lacks(&count, &ended.trace()).map_err(|fault| format!("{fault}: {}", ended.stderr))?;
    match ended.status.code() {
        Some(0) if missing > 0 => Err(format!("status 0 and {missing} events are missing: {}", ended.stderr)),
        status => Ok(format!("status {status:?}")),
    }
}

fn hands_on_the_instance_leave_no_event_untold() -> Result<(), Skip> {
    let tracefs = can_record()?;
    make_runs(
        &KINDS,
        |hand| hand.on,
        |hand, seed| Load::beside(|load| hand_on_the_instance(&tracefs, hand, seed, load)),
    );
    Ok(())
}

/// A hand on the directory `trace` of a recording, and the status that the recorder then ends with.
type OutputHand = (&'static str, i32);

const OUTPUT_HANDS: [OutputHand; 12] = [
    ("cp trace/cpu0.out x; mv x trace/cpu0.out", 3),
    ("cp trace/meta.out x; mv x trace/meta.out", 3),
    ("mv trace/cpu0.out trace/x", 3),
    ("mv trace/cpu0.out x; ln -s ../x trace/cpu0.out", 3),
    ("rm trace/cpu0.out", 3),
    ("rm trace/meta.out", 3),
    ("truncate -s 100 trace/cpu0.out", 3),
    (": >trace/meta.out", 3),
    ("head -c 1M /dev/zero >>trace/cpu0.out", 3),
    ("rm -r trace", 3),
    ("mv trace moved", 0),
    ("mv trace moved; mkdir trace", 0),
];

fn hand_on_the_output(
    tracefs: &Tracefs,
    &(hand, status): &OutputHand,
    seed: u64,
    load: &Load,
) -> Result<String, String> {
    let mut random = Random::new(seed);
    let count = Count::begin(tracefs, load)?;
    let recorder = record(load);
    load.begin();
    load.rest(Duration::from_millis(random.below(300)));
    try_shell(recorder.directory.path(), hand)?;
    load.rest(Duration::from_millis(random.below(1500)));
    count.end()?;
    let ended = recorder.stop();
    if ended.status.code() != Some(status) {
        return Err(format!("{}, not {status}: {}", ended.status, ended.stderr));
    }
    if status == 0 {
        let missing = lacks(&count, &named(&ended.stderr)?).map_err(|fault| format!("{fault}: {}", ended.stderr))?;
        if missing > 0 {
            return Err(format!("{missing} events are missing: {}", ended.stderr));
        }
    } else if ended.stderr.contains("next: ") {
        return Err(format!("files that are not there are recommended: {}", ended.stderr));
    }
    Ok(format!("status {status}"))
}

/// The directory that the recorder's last line names.
fn named(stderr: &str) -> Result<PathBuf, String> {
    let named = stderr.lines().last().and_then(|line| line.rsplit_once("kmemtrace-check "));
    named.map(|(_, path)| PathBuf::from(path)).ok_or_else(|| format!("no directory is named: {stderr}"))
}

fn hands_on_the_output_end_with_0_only_if_all_is_there() -> Result<(), Skip> {
    let tracefs = can_record()?;
    make_runs(
        &OUTPUT_HANDS,
        |(hand, _)| hand,
        |hand, seed| Load::beside(|load| hand_on_the_output(&tracefs, hand, seed, load)),
    );
    Ok(())
}

/// What a program in place of the viewer does once it has ignored all signals.
const VIEWERS: [&str; 5] = [
    "touch ready; while :; do sleep 600; done",
    "touch ready; kill -STOP $$; sleep 600",
    "touch ready; while :; do echo flood of lines; done",
    "touch ready; head -c 10000 <&3 >/dev/null; sleep 600",
    "while :; do ESCAPES; PUSHES; touch ready; done",
];

fn viewer_of_a_stranger(tracefs: &Tracefs, viewer: &str, seed: u64, load: &Load) -> Result<String, String> {
    let mut random = Random::new(seed);
    let skipped = |Skip(reason)| reason;
    let viewer = viewer.replace("ESCAPES", ESCAPES).replace("PUSHES", PUSHES);
    let place = Place::new(&format!("trap '' TERM HUP INT; {viewer}")).map_err(skipped)?;
    let count = Count::begin(tracefs, load)?;
    let options = format!("-e kmalloc -b 4M --filter '{}' --keep kept", load.filter());
    let terminal = place.top(&options).map_err(skipped)?;
    place.wait_for_file("ready");
    // The viewer is started before the recording.
    let instance = instance_dir(tracefs, &place.instance);
    let is_on = |file| fs::read_to_string(instance.join(file)).is_ok_and(|text| text.trim() == "1");
    let has_files = || terminal.directory.file("kept/meta.out").is_file();
    until("recording", || is_on("tracing_on") && is_on("events/kmem/kmalloc/enable") && has_files());
    load.begin();
    load.rest(Duration::from_millis(random.below(1500)));
    count.end()?;
    let begun = Instant::now();
    place.signal(Part::First, Signal::TERM);
    let screen = terminal.wait_for("left with ");
    if begun.elapsed() > Duration::from_secs(8) {
        return Err(format!("it ended only after {:?}: {screen}", begun.elapsed()));
    }
    while place.has_process() {
        sleep(Duration::from_millis(10));
    }
    if place.has_instance() || screen.contains("stolen") || Path::new("/pushed").exists() {
        return Err(format!("something is left, or reached the terminal: {screen}"));
    }
    let missing = lacks(&count, &terminal.directory.file("kept")).map_err(|fault| format!("{fault}: {screen}"))?;
    let end = screen.split_once("left with ").map_or("", |(_, status)| status).trim().to_owned();
    if missing > 0 && end == "0" {
        return Err(format!("status 0 and {missing} events are missing: {screen}"));
    }
    Ok(format!("status {end}, {}", if missing > 0 { "events missing" } else { "all events" }))
}

fn viewers_of_strangers_cost_no_event() -> Result<(), Skip> {
    let tracefs = can_record()?;
    make_runs(
        &VIEWERS,
        |viewer| viewer,
        |viewer, seed| Load::beside(|load| viewer_of_a_stranger(&tracefs, viewer, seed, load)),
    );
    Ok(())
}
