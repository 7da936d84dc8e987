//! What checking and reporting cost, beside reading the same bytes: on a recording of the running kernel where that can be had, on
//! a generated trace else.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use kmemtrace_abi::generate::{Options, Shape, trace_dir, workload};
use kmemtrace_benches::{build, median, seconds, table};
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
    for mode in [
        vec!["mix".to_owned(), seconds(5).to_string()],
        vec!["items".to_owned(), "1000000".to_owned(), seconds(5).to_string()],
    ] {
        let (name, directory) = recorded(&mode).unwrap_or_else(|Skip(reason)| {
            println!("no recording ({reason}): a generated trace");
            generated()
        });
        analyse(&name, &directory.file("trace"));
    }
}

fn recorded(mode: &[String]) -> Result<(String, Directory), Skip> {
    can_record()?;
    let recorder = Recorder::start(&[]);
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

fn analyse(name: &str, trace: &Path) {
    let files: Vec<PathBuf> = std::fs::read_dir(trace).into_iter().flatten().flatten().map(|f| f.path()).collect();
    let bytes: u64 = files.iter().filter_map(|f| std::fs::metadata(f).ok()).map(|m| m.len()).sum();
    let found = json(&run("kmemtrace-check", &["--format", "json"], &[trace]).stdout);
    let events: u64 = found["files"].as_array().into_iter().flatten().filter_map(|f| f["events"].as_u64()).sum();
    let on_one_core = |program: &Path, arguments: &[&str]| {
        let mut command = Command::new("taskset");
        command.args(["-c", "0"]).arg(program).args(arguments);
        command
    };
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
    let mut rows = vec![row("cat > /dev/null, one core", cat)];
    for (what, name, arguments) in [
        ("check", "kmemtrace-check", &[][..]),
        ("report summary", "kmemtrace-report", &["summary", "--format", "json"]),
        ("report sites", "kmemtrace-report", &["sites", "--format", "json"]),
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
}
