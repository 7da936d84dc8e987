//! Costs of checking and reporting, beside reading the same bytes: on a recording of the running kernel if one can be
//! made, else on a generated trace.

#![allow(clippy::unwrap_used, reason = "a benchmark fails by panicking")]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use kmemtrace_benches::limits::{decode_all, plain_table, random_update, stages};
use kmemtrace_benches::others::perf_events;
use kmemtrace_benches::{build, median, on_one_core, seconds, table};
use kmemtrace_tests::generate::{Options, Shape, trace_dir, workload};
use kmemtrace_tests::programs::{json, program, run};
use kmemtrace_tests::recorder::{Recorder, can_record};
use kmemtrace_tests::recording::Directory;
use kmemtrace_tests::runner::Skip;

const ROUNDS: usize = 5;

/// Programs measured on one core and on all: name, program, arguments.
const PROGRAMS: [(&str, &str, &[&str]); 7] = [
    ("check", "kmemtrace-check", &[]),
    ("report summary", "kmemtrace-report", &["summary", "--no-index", "--format", "json"]),
    ("report sites", "kmemtrace-report", &["sites", "--no-index", "--format", "json"]),
    ("report caches", "kmemtrace-report", &["caches", "--no-index", "--format", "json"]),
    ("report mismatch", "kmemtrace-report", &["mismatch", "--no-index", "--format", "json"]),
    ("report cross", "kmemtrace-report", &["cross", "--no-index", "--format", "json"]),
    ("report live --top 20", "kmemtrace-report", &["live", "--no-index", "--top", "20", "--format", "json"]),
];

fn main() {
    if !std::env::args().any(|a| a == "--bench") {
        return;
    }
    build();
    let time = seconds(5).to_string();
    for mode in
        [&["mix", &time][..], &["items", "10000", &time], &["items", "1000000", &time], &["items", "4000000", &time]]
    {
        let (name, directory) = recorded(mode).unwrap_or_else(|Skip(reason)| {
            println!("no recording ({reason}): a generated trace");
            generated()
        });
        let perf = if mode[1] == "4000000" { None } else { Perf::recorded(mode) };
        analyse(&name, &directory.file("trace"), perf);
    }
}

fn recorded(mode: &[&str]) -> Result<(String, Directory), Skip> {
    can_record()?;
    let recorder = Recorder::start(&["--compress", "none"]);
    let status = Command::new(program("kmemload")).args(mode).stdout(Stdio::null()).status();
    assert!(status.is_ok_and(|s| s.success()), "kmemload {mode:?}");
    Ok((format!("kmemload {}", mode.join(" ")), recorder.stop().directory))
}

fn generated() -> (String, Directory) {
    let directory = Directory::new(&[]);
    let path = directory.file("trace");
    let files = trace_dir(&workload(1, &Options::plain(Shape::plain(), 2, 3_000_000)), 1);
    std::fs::create_dir(&path).unwrap();
    for (name, bytes) in files {
        directory.write(&format!("trace/{name}"), &bytes);
    }
    ("generated".to_owned(), directory)
}

fn on_all_cores(name: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(program(name));
    command.args(arguments);
    command
}

/// Runs a command on a trace.
fn take(mut command: Command, trace: &Path) {
    command.arg(trace);
    finish(command);
}

/// Runs a command to its end.
fn finish(mut command: Command) {
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    assert!(status.is_ok_and(|status| status.success()), "{command:?} has failed");
}

/// Seconds of each way: the median of [`ROUNDS`] runs after one that warms the page cache. The ways alternate, so that
/// other load on the machine slows all of them alike.
fn in_turns(ways: &[Box<dyn Fn() + '_>]) -> Vec<f64> {
    ways.iter().for_each(|way| way());
    let mut seconds = vec![Vec::new(); ways.len()];
    for _ in 0..ROUNDS {
        for (way, seconds) in ways.iter().zip(&mut seconds) {
            let start = Instant::now();
            way();
            seconds.push(start.elapsed().as_secs_f64());
        }
    }
    seconds.into_iter().map(median).collect()
}

/// Seconds of a single command.
fn time(command: impl Fn() -> Command) -> f64 {
    in_turns(&[Box::new(|| finish(command()))])[0]
}

/// Recording of perf.
struct Perf {
    directory: Directory,
    samples: f64,
    lost: f64,
}

impl Perf {
    /// Records the same load; `None` where perf cannot record.
    fn recorded(mode: &[&str]) -> Option<Perf> {
        let directory = Directory::new(&[]);
        let data = directory.file("perf.data");
        let mut record = Command::new("perf");
        record.args(["kmem", "record", "-q", "-m", "512M", "-o"]).arg(&data).arg(program("kmemload")).args(mode);
        let recorded = record.stdout(Stdio::null()).stderr(Stdio::null()).status();
        if !recorded.is_ok_and(|status| status.success()) {
            println!("perf kmem: cannot record here");
            return None;
        }
        let (samples, lost) = perf_events(&data);
        Some(Perf { directory, samples, lost })
    }

    fn stat(&self) {
        let mut stat = on_one_core(Path::new("perf"), &["kmem", "-i"]);
        stat.arg(self.directory.file("perf.data")).args(["--slab", "--caller", "stat"]);
        finish(stat);
    }
}

fn analyse(name: &str, trace: &Path, perf: Option<Perf>) {
    let files: Vec<PathBuf> = std::fs::read_dir(trace).into_iter().flatten().flatten().map(|f| f.path()).collect();
    let bytes: u64 = files.iter().filter_map(|f| std::fs::metadata(f).ok()).map(|m| m.len()).sum();
    let found = json(&run("kmemtrace-check", &["--format", "json"], &[trace]).stdout);
    let events: u64 = found["files"].as_array().into_iter().flatten().filter_map(|f| f["events"].as_u64()).sum();
    let cat = || {
        let mut command = on_one_core(Path::new("cat"), &[]);
        command.args(&files);
        finish(command);
    };
    let mut ways: Vec<Box<dyn Fn() + '_>> = vec![Box::new(cat)];
    ways.push(Box::new(|| decode_all(trace)));
    ways.push(Box::new(|| perf.iter().for_each(Perf::stat)));
    for (_, name, arguments) in PROGRAMS {
        ways.push(Box::new(|| take(on_one_core(&program(name), arguments), trace)));
        ways.push(Box::new(|| take(on_all_cores(name, arguments), trace)));
    }
    let seconds = in_turns(&ways);
    let [cat, decode, stat, programs_took @ ..] = seconds.as_slice() else { return };
    let perf_took = perf.as_ref().map(|perf| stat / perf.samples);
    let row = |what: &str, seconds: f64, times_perf: Option<f64>, times_one_core: Option<f64>| {
        let figure = |times: Option<f64>| times.map_or_else(String::new, |times| format!("{times:.2}"));
        vec![
            what.to_owned(),
            format!("{:.0}", seconds * 1e3),
            format!("{:.2}", bytes as f64 / seconds / 1e9),
            format!("{:.1}", events as f64 / seconds / 1e6),
            format!("{:.1}", seconds / cat),
            figure(times_perf),
            figure(times_one_core),
        ]
    };
    let decode = row("read and decode, one thread", *decode, None, None);
    let mut rows = vec![row("cat > /dev/null, one core", *cat, None, None), decode];
    for ((what, name, _), took) in PROGRAMS.iter().zip(programs_took.chunks(2)) {
        let &[one, all] = took else { continue };
        let perf = perf_took.filter(|_| *name == "kmemtrace-report");
        rows.push(row(&format!("{what}, one core"), one, perf.map(|perf| perf * events as f64 / one), None));
        rows.push(row(what, all, None, Some(one / all)));
    }
    let title = format!("{name}: {:.1} M events, {} MiB, median of {ROUNDS}", events as f64 / 1e6, bytes >> 20);
    table(&title, &["", "ms", "GB/s", "M events/s", "times cat", "times perf", "times one core"], &rows);
    if let (Some(perf), Some(took)) = (&perf, perf_took) {
        println!(
            "perf kmem --slab --caller stat, one core, {:.1} M events of the same load ({:.1} M lost): {:.2} M events/s",
            perf.samples / 1e6,
            perf.lost / 1e6,
            1e-6 / took
        );
    }
    let document = json(&run("kmemtrace-report", &["summary", "--format", "json"], &[trace]).stdout);
    let live = document["total"]["live_objects"].as_u64().unwrap_or(0);
    let [merging, pairing] = stages(trace);
    println!(
        "to merge an event: {merging:.0} ns; to pair and count it: {pairing:.0} ns; to insert it in or remove it from a plain \
         hash table: {:.0} ns; a random removal and insertion in one with {:.2} M entries: {:.0} ns",
        plain_table(trace),
        live as f64 / 1e6,
        random_update(live as usize),
    );
    with_index(trace);
}

/// Measures reports with and without an index beside the trace.
fn with_index(trace: &Path) {
    let index = trace.join("report.index");
    let report = |options: &[&str]| {
        let mut command = on_all_cores("kmemtrace-report", options);
        command.args(["--format", "json"]).arg(trace);
        command
    };
    let mut rows = Vec::new();
    for options in [&["summary"][..], &["live", "--top", "20"], &["sites", "--time", "50%,51%"]] {
        let without = time(|| report(&[options, &["--no-index"]].concat()));
        let mut add = |what: &str, seconds: f64| {
            let name = format!("{}, {what}", options.join(" "));
            rows.push(vec![name, format!("{:.0}", seconds * 1e3), format!("{:.3}", seconds / without)]);
        };
        add("without", without);
        let first = || {
            let _ = std::fs::remove_file(&index);
            report(options)
        };
        add("the first, which writes it", time(first));
        add("the second", time(|| report(options)));
        if options == ["summary"] {
            add("another view (cross)", time(|| report(&["cross"])));
        }
    }
    let _ = std::fs::remove_file(&index);
    table(&format!("the same with an index, median of {ROUNDS}"), &["", "ms", "ratio"], &rows);
}
