//! What checking and reporting cost, beside reading the same bytes: on a recording of the running kernel where that can be had, on
//! a generated trace else.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use kmemtrace_abi::generate::{Options, Shape, trace_dir, workload};
use kmemtrace_benches::limits::{decode_all, pairing, plain_table, random_update};
use kmemtrace_benches::{build, median, on_one_core, seconds, table};
use kmemtrace_tests::programs::{json, program, run};
use kmemtrace_tests::recorder::{Recorder, can_record};
use kmemtrace_tests::recording::Directory;
use kmemtrace_tests::runner::Skip;

const ROUNDS: usize = 5;

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
        analyse(&name, &directory.file("trace"));
        if mode[1] != "4000000" {
            beside_perf(mode);
        }
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
    std::fs::create_dir(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    for (name, bytes) in files {
        directory.write(&format!("trace/{name}"), &bytes);
    }
    ("generated".to_owned(), directory)
}

/// Seconds of a command, whole process, the median of some runs after one that warms the page cache.
fn time(command: impl Fn() -> Command) -> f64 {
    let once = || {
        let start = Instant::now();
        let status = command().stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
        assert!(status.is_ok(), "cannot run");
        start.elapsed().as_secs_f64()
    };
    once();
    median((0..ROUNDS).map(|_| once()).collect())
}

/// Seconds to read and decode all events on this thread.
fn decode(trace: &Path) -> f64 {
    let once = || {
        let start = Instant::now();
        decode_all(trace);
        start.elapsed().as_secs_f64()
    };
    once();
    median((0..ROUNDS).map(|_| once()).collect())
}

/// `perf kmem stat` on a recording of its own of the same load.
fn beside_perf(mode: &[&str]) {
    let directory = Directory::new(&[]);
    let data = directory.file("perf.data");
    let mut record = Command::new("perf");
    record.args(["kmem", "record", "-q", "-m", "512M", "-o"]).arg(&data).arg(program("kmemload")).args(mode);
    let recorded = record.stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !recorded.is_ok_and(|status| status.success()) {
        return println!("perf kmem: cannot record here");
    }
    let stats = Command::new("perf").args(["report", "--stats", "-i"]).arg(&data).output();
    let stats = stats.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    // First of all events together, where records of loss are counted, then of each, where their sums are.
    let numbers = |name: &str| -> Vec<f64> {
        let numbers = stats.lines().filter_map(|line| line.trim().strip_prefix(name)?.split_whitespace().next());
        numbers.filter_map(|number| number.parse().ok()).collect()
    };
    let samples = numbers("SAMPLE events:").first().copied().unwrap_or(f64::NAN);
    let lost = numbers("LOST_SAMPLES events:").iter().skip(1).fold(0.0, |sum, n| sum + n);
    let start = Instant::now();
    let mut stat = Command::new("perf");
    stat.arg("kmem").arg("-i").arg(&data).args(["--slab", "--caller", "stat"]);
    let stated = stat.stdout(Stdio::null()).stderr(Stdio::null()).status();
    assert!(stated.is_ok(), "perf kmem cannot run");
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "perf kmem --slab --caller stat, {:.1} M events of the same load ({:.1} M lost): {:.2} M events/s",
        samples / 1e6,
        lost / 1e6,
        samples / seconds / 1e6
    );
}

fn analyse(name: &str, trace: &Path) {
    let files: Vec<PathBuf> = std::fs::read_dir(trace).into_iter().flatten().flatten().map(|f| f.path()).collect();
    let bytes: u64 = files.iter().filter_map(|f| std::fs::metadata(f).ok()).map(|m| m.len()).sum();
    let found = json(&run("kmemtrace-check", &["--format", "json"], &[trace]).stdout);
    let events: u64 = found["files"].as_array().into_iter().flatten().filter_map(|f| f["events"].as_u64()).sum();
    let cat = time(|| {
        let mut command = on_one_core(Path::new("cat"), &[]);
        command.args(&files);
        command
    });
    let row = |what: &str, seconds: f64| {
        vec![
            what.to_owned(),
            format!("{:.0}", seconds * 1e3),
            format!("{:.2}", bytes as f64 / seconds / 1e9),
            format!("{:.1}", events as f64 / seconds / 1e6),
            format!("{:.1}", seconds / cat),
        ]
    };
    let decode = decode(trace);
    let mut rows = vec![row("cat > /dev/null, one core", cat), row("read and decode, one thread", decode)];
    for (what, name, arguments) in [
        ("check", "kmemtrace-check", &[][..]),
        ("report summary", "kmemtrace-report", &["summary", "--no-index", "--format", "json"]),
        ("report sites", "kmemtrace-report", &["sites", "--no-index", "--format", "json"]),
        ("report caches", "kmemtrace-report", &["caches", "--no-index", "--format", "json"]),
        ("report mismatch", "kmemtrace-report", &["mismatch", "--no-index", "--format", "json"]),
        ("report cross", "kmemtrace-report", &["cross", "--no-index", "--format", "json"]),
        ("report live --top 20", "kmemtrace-report", &["live", "--no-index", "--top", "20", "--format", "json"]),
    ] {
        let (program, what) = (program(name), what.to_owned());
        let on_all = || {
            let mut command = Command::new(&program);
            command.args(arguments).arg(trace);
            command
        };
        let on_one = || {
            let mut command = on_one_core(&program, arguments);
            command.arg(trace);
            command
        };
        rows.push(row(&format!("{what}, one core"), time(on_one)));
        rows.push(row(&what, time(on_all)));
    }
    let title = format!("{name}: {:.1} M events, {} MiB, median of {ROUNDS}", events as f64 / 1e6, bytes >> 20);
    table(&title, &["", "ms", "GB/s", "M events/s", "times cat"], &rows);
    let document = json(&run("kmemtrace-report", &["summary", "--format", "json"], &[trace]).stdout);
    let live = document["total"]["live_objects"].as_u64().unwrap_or(0);
    println!(
        "to pair and count an event: {:.0} ns; to insert it in or remove it from a plain hash table: {:.0} ns; a random update \
         of one with {:.2} M entries: {:.0} ns",
        pairing(trace),
        plain_table(trace),
        live as f64 / 1e6,
        random_update(live as usize),
    );
    with_index(trace);
}

/// What the index beside a trace is good for.
fn with_index(trace: &Path) {
    let index = trace.join("report.index");
    let report = |options: &[&str]| {
        let mut command = Command::new(program("kmemtrace-report"));
        command.args(options).args(["--format", "json"]).arg(trace);
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
