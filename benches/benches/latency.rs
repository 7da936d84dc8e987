//! Cost of the stacks of `-e latency`: stacks times the time of one, as a share of the processor time of a load that reclaims memory all
//! the time. Needs root, tracefs and memory cgroups.

use std::fs;
use std::path::Path;

use kmemtrace_benches::child::usage;
use kmemtrace_benches::{build, table};
use kmemtrace_tests::live::Tracefs;
use kmemtrace_tests::memory_group::MemoryGroup;
use kmemtrace_tests::programs::{json_lines, run_to};
use kmemtrace_tests::recorder::{Recorder, instance_name};
use kmemtrace_tests::recording::Directory;
use kmemtrace_tests::runner::Skip;

/// Limit of the load's memory cgroup, bytes.
const LIMIT: u64 = 24 << 20;
/// Bytes of the file that the load copies.
const FILE: usize = 100 << 20;
/// Measurements of the time of a stack.
const PROBES: usize = 5;
/// Copies of a run.
const COPIES: usize = 20;

fn main() {
    // `cargo test` and `cargo bench -- --list` run this, too.
    if !std::env::args().any(|a| a == "--bench") {
        return;
    }
    if let Err(Skip(reason)) = Tracefs::find().and_then(|tracefs| stacks(&tracefs)) {
        println!("skipped: latency: {reason}");
    }
}

/// Microseconds of a stack, by `kmemtraced probe`: the least of some, because other programs can only add; `None` where the machine is too
/// busy to tell.
fn each() -> Option<f64> {
    (0..PROBES).filter_map(|_| probe()).min_by(f64::total_cmp)
}

fn probe() -> Option<f64> {
    let printed = run_to(0, "kmemtraced", &["probe", "-B", &instance_name()], &[]);
    let text = String::from_utf8_lossy(&printed).into_owned();
    let line = text.lines().find_map(|line| line.strip_prefix("stacks "))?.trim().to_owned();
    line.split_once(" us each")?.0.parse().ok()
}

/// Seconds of processors that the copies take.
fn load(from: &Path, to: &Path) -> Result<f64, Skip> {
    let group = MemoryGroup::new(LIMIT)?;
    let copy = format!("cp '{}' '{}'", from.display(), to.display());
    Ok(usage(&mut group.shell(&vec![copy; COPIES].join(" && "))).cpu_seconds)
}

/// Number of stacks in a trace.
fn stacks_of(trace: &Path) -> usize {
    let events = json_lines(&run_to(0, "kmemtrace-report", &["events", "--format", "jsonl"], &[trace]));
    events.iter().filter(|event| event["event"] == "kernel_stack").count()
}

fn stacks(tracefs: &Tracefs) -> Result<(), Skip> {
    tracefs.need_event("vmscan/mm_vmscan_memcg_reclaim_begin")?;
    build();
    let directory = Directory::on_disk();
    let (from, to) = (directory.file("from"), directory.file("to"));
    fs::write(&from, vec![7; FILE]).map_err(|error| Skip(format!("no room for a file: {error}")))?;
    let each = each().ok_or_else(|| Skip("the machine is too busy to tell the time of a stack".to_owned()))?;
    let recorder = Recorder::start(&["-e", "latency"]);
    let cpu_seconds = load(&from, &to)?;
    let stacks = stacks_of(&recorder.stop_whole().file("trace"));
    let share = stacks as f64 * each / 1e6 / cpu_seconds;
    let row = [
        format!("{COPIES} copies of {} MiB in {} MiB", FILE >> 20, LIMIT >> 20),
        format!("{cpu_seconds:.2}"),
        stacks.to_string(),
        format!("{each:.1}"),
        format!("{:.2} %", share * 100.0),
    ];
    table("stacks of `-e latency`", &["load", "CPU s", "stacks", "us each", "share"], &[row.into()]);
    Ok(())
}
