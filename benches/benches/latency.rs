//! Speed and memory of a report of a million spans, and the cost of the stacks of `-e latency`: stacks times the time of one, as a share of the
//! processor time of loads that reclaim. The second needs root, tracefs and memory cgroups.

use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use kmemtrace_benches::child::usage;
use kmemtrace_benches::{build, table};
use kmemtrace_tests::archive;
use kmemtrace_tests::live::Tracefs;
use kmemtrace_tests::memory_group::MemoryGroup;
use kmemtrace_tests::programs::{json, json_lines, program, run_to};
use kmemtrace_tests::recorder::{Recorder, instance_name};
use kmemtrace_tests::recording::Directory;
use kmemtrace_tests::runner::Skip;

/// Bytes of the file that is copied.
const FILE: usize = 100 << 20;
/// Measurements of the time of a stack.
const PROBES: usize = 5;
/// Captured tree that is repeated until it has a million spans.
const TREE: &str = "tree-latency-amd64-6.18";
/// Times that it is repeated; once has 1,652 spans.
const REPEATS: u64 = 606;
/// Time from one repetition to the next, ns: more than the tree has.
const PERIOD: u64 = 5_000_000_000;
/// Bytes of its sub-buffers, the first eight of which are their time.
const SUB_BUFFER: usize = 4096;

fn main() {
    // `cargo test` and `cargo bench -- --list` run this, too.
    if !std::env::args().any(|a| a == "--bench") {
        return;
    }
    build();
    report();
    if let Err(Skip(reason)) = Tracefs::find().and_then(|tracefs| stacks(&tracefs)) {
        println!("skipped: latency: {reason}");
    }
}

/// The tree, repeated, in a directory.
fn repeated(directory: &Directory) -> io::Result<PathBuf> {
    let tree = archive::unpack(TREE, directory.path())?;
    for cpu in fs::read_dir(tree.join("per_cpu"))? {
        repeat(&cpu?.path())?;
    }
    Ok(tree)
}

/// Repeats the events of a CPU, whose counters are right for one time only.
fn repeat(cpu: &Path) -> io::Result<()> {
    let file = cpu.join("trace_pipe_raw");
    let once = fs::read(&file)?;
    let mut all = BufWriter::new(fs::File::create(&file)?);
    for shift in (0..REPEATS).map(|number| number * PERIOD) {
        for page in once.chunks(SUB_BUFFER) {
            let Some((time, rest)) = page.split_first_chunk() else { continue };
            all.write_all(&(u64::from_le_bytes(*time) + shift).to_le_bytes())?;
            all.write_all(rest)?;
        }
    }
    all.flush()?;
    fs::remove_file(cpu.join("stats"))
}

/// Speed and memory of views of a million spans. Their documents are the same with one thread, with eight, and again.
fn report() {
    let directory = Directory::on_disk();
    let tree = match repeated(&directory) {
        Ok(tree) => tree,
        Err(error) => return println!("skipped: report of spans: {error}"),
    };
    let views = ["latency", "shrinkers", "stalls"];
    // The memory of a child is at least that of this process, so documents are read later.
    let measure = |view| usage(Command::new(program("kmemtrace-report")).args([view, "--no-index", "-q"]).arg(&tree));
    let used = views.map(measure);
    let print = |view: &str, threads: &str| {
        run_to(0, "kmemtrace-report", &[view, "-j", threads, "--format", "json", "--no-index"], &[&tree])
    };
    for view in views {
        let [one, eight, again] = ["1", "8", "1"].map(|threads| print(view, threads));
        assert!(one == eight && one == again, "{view}: documents differ");
    }
    let document = json(&print("latency", "1"));
    let spans = document["spans"].as_array().into_iter().flatten().filter_map(|row| row["count"].as_u64()).sum::<u64>();
    let events = json(&print("summary", "1"))["events"]["total"].as_u64().unwrap_or(0);
    let rows = views.iter().zip(used).map(|(view, used)| {
        let rate = events as f64 / used.seconds / 1e6;
        let peak = used.peak_bytes >> 20;
        vec![(*view).to_owned(), spans.to_string(), events.to_string(), format!("{rate:.1}"), peak.to_string()]
    });
    table("report of spans", &["view", "spans", "events", "M events/s", "peak MiB"], &rows.collect::<Vec<_>>());
}

/// Microseconds of a stack, by `kmemtraced doctor`: the least of some, because other programs can only add; `None` where the machine is too
/// busy to tell.
fn each() -> Option<f64> {
    (0..PROBES).filter_map(|_| probe()).min_by(f64::total_cmp)
}

fn probe() -> Option<f64> {
    let printed = run_to(0, "kmemtraced", &["doctor", "--quick", "-B", &instance_name()], &[]);
    let text = String::from_utf8_lossy(&printed).into_owned();
    let line = text.lines().find_map(|line| line.strip_prefix("stacks "))?.trim().to_owned();
    line.split_once(" us each")?.0.parse().ok()
}

/// Loads that reclaim in a memory cgroup: name, limit in bytes, and the line of the shell, in which FROM and TO stand for files. The first does
/// nothing else; the second is what a machine that is short of memory does beside it.
const LOADS: [(&str, u64, &str); 2] = [
    ("20 copies of 100 MiB in 24 MiB", 24 << 20, "for i in $(seq 20); do cp FROM TO; done"),
    (
        "dd of 500 MB, ls -lR /usr, sort in 48 MiB",
        48 << 20,
        "{ dd if=/dev/zero of=TO bs=64k count=8000 & ls -lR /usr | sort; wait; }",
    ),
];

/// Seconds of processors that a load takes.
fn load(limit: u64, line: &str) -> Result<f64, Skip> {
    let group = MemoryGroup::new(limit)?;
    Ok(usage(group.shell(line).stderr(Stdio::null())).cpu_seconds)
}

/// Number of stacks in a trace.
fn stacks_of(trace: &Path) -> usize {
    let events = json_lines(&run_to(0, "kmemtrace-report", &["events", "--format", "jsonl"], &[trace]));
    events.iter().filter(|event| event["event"] == "kernel_stack").count()
}

fn stacks(tracefs: &Tracefs) -> Result<(), Skip> {
    tracefs.need_event("vmscan/mm_vmscan_memcg_reclaim_begin")?;
    let directory = Directory::on_disk();
    let (from, to) = (directory.file("from"), directory.file("to"));
    fs::write(&from, vec![7; FILE]).map_err(|error| Skip(format!("no room for a file: {error}")))?;
    let each = each().ok_or_else(|| Skip("the machine is too busy to tell the time of a stack".to_owned()))?;
    let mut rows = Vec::new();
    for (name, limit, line) in LOADS {
        let line = line.replace("FROM", &from.display().to_string()).replace("TO", &to.display().to_string());
        let recorder = Recorder::start(&["-e", "latency"]);
        let cpu_seconds = load(limit, &line)?;
        let stacks = stacks_of(&recorder.stop_whole().file("trace"));
        let share = stacks as f64 * each / 1e6 / cpu_seconds;
        let figures =
            [format!("{cpu_seconds:.2}"), stacks.to_string(), format!("{each:.1}"), format!("{:.2} %", share * 100.0)];
        rows.push([&[name.to_owned()], &figures[..]].concat());
    }
    table("stacks of `-e latency`", &["load", "CPU s", "stacks", "us each", "share"], &rows);
    Ok(())
}
