//! Files of `export --to trace-dat` in the hands of trace-cmd.

use std::path::Path;
use std::process::Command;

use kmemtrace_tests::archive;
use kmemtrace_tests::programs::{data, json_lines, run_to, text};
use kmemtrace_tests::recording::Directory;
use kmemtrace_tests::runner::Skip;
use serde_json::Value;

const REPORT: &str = "kmemtrace-report";

kmemtrace_tests::tests![
    trace_cmd_prints_the_events_of_the_view,
    marks_stand_in_their_place,
    trace_cmd_and_perf_read_the_samples_alike,
];

/// Events and marks of loss as `trace-cmd report -R` prints them, in its order.
fn printed(file: &Path) -> Result<Vec<String>, Skip> {
    let output = Command::new("trace-cmd").args(["report", "-R"]).arg(file).output();
    let output = output.map_err(|_| Skip("trace-cmd is not installed: package trace-cmd".to_owned()))?;
    assert!(output.status.success() && output.stderr.is_empty(), "{}", text(&output.stderr));
    // Frames of call stacks begin with an arrow, and a comm may hold anything.
    let is_event = |line: &&str| line.contains("] ") && !line.starts_with("=>") || line.starts_with("CPU:");
    Ok(text(&output.stdout).lines().filter(is_event).map(str::to_owned).collect())
}

/// Member of an event as trace-cmd prints it, in hexadecimal digits where it is an address.
fn field<'l>(line: &'l str, name: &str) -> Option<&'l str> {
    line.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
}

/// CPU, microseconds, thread, name, and for allocations and frees of slabs the address, as the view has them.
fn of_view(event: &Value) -> (u64, u64, i64, String, Option<String>) {
    let name = event["event"].as_str().unwrap().to_owned();
    let is_of_slab = ["kmalloc", "kfree"].contains(&name.as_str()) || name.starts_with("kmem_cache_");
    let address = event["address"].as_str().filter(|_| is_of_slab).map(str::to_owned);
    let micros = (event["at"].as_u64().unwrap() + 500) / 1000;
    (event["cpu"].as_u64().unwrap(), micros, event["pid"].as_i64().unwrap(), name, address)
}

/// The same of a line: `comm-PID [CPU] SECONDS.MICROS: NAME: FIELDS`.
fn of_line(line: &str) -> (u64, u64, i64, String, Option<String>) {
    let (task, rest) = line.rsplit_once(" [").map(|(task, _)| (task, &line[task.len() + 2..])).unwrap();
    let (cpu, rest) = rest.split_once(']').unwrap();
    let (time, rest) = rest.trim().split_once(": ").unwrap();
    let (seconds, micros) = time.split_once('.').unwrap();
    let (name, fields) = rest.split_once(':').unwrap();
    let pid = task.trim().rsplit('-').next().unwrap().parse().unwrap();
    // A null pointer is printed as one is by printf.
    let address = field(fields, "ptr").map(|ptr| if ptr == "(nil)" { "0x0" } else { ptr }.to_owned());
    let micros = seconds.parse::<u64>().unwrap() * 1_000_000 + micros.parse::<u64>().unwrap();
    (cpu.parse().unwrap(), micros, pid, name.to_owned(), address)
}

fn exported(version: &str, trace: &Path, dir: &Directory) -> std::path::PathBuf {
    let file = dir.file("trace.dat");
    let name = file.display().to_string();
    let options = ["export", "--no-index", "--to", "trace-dat", "--trace-dat-version", version, "-f", "-o", &name];
    run_to(0, REPORT, &options, &[trace]);
    file
}

fn trace_cmd_prints_the_events_of_the_view() -> Result<(), Skip> {
    let dir = Directory::new(&[]);
    let trees = Directory::new(&[]);
    let tree = |name: &str| archive::unpack(name, trees.path()).unwrap();
    let traces = [
        data("amd64-6.18"),
        data("i386-6.1"),
        data("latency-amd64-6.12"),
        data("ppc64el-6.1"),
        tree("tree-s390x-6.1"),
        tree("tree-latency-amd64-6.1"),
    ];
    for trace in &traces {
        let lines = run_to(0, REPORT, &["events", "--no-index", "--format", "jsonl"], &[trace]);
        let mut expected: Vec<_> =
            json_lines(&lines).iter().filter(|event| event["event"] != "gap").map(of_view).collect();
        expected.sort();
        for version in ["6", "7"] {
            let mut found: Vec<_> =
                printed(&exported(version, trace, &dir))?.iter().map(|line| of_line(line)).collect();
            found.sort();
            assert_eq!(found.len(), expected.len(), "{}, version {version}", trace.display());
            let other = found.iter().zip(&expected).find(|(found, expected)| found != expected);
            assert_eq!(other, None, "{}, version {version}", trace.display());
        }
    }
    Ok(())
}

fn marks_stand_in_their_place() -> Result<(), Skip> {
    let dir = Directory::new(&[]);
    let trace = data("amd64-6.1-lossy");
    let lines = run_to(0, REPORT, &["events", "--no-index", "--format", "jsonl"], &[&trace]);
    let gaps: Vec<(u64, Option<u64>)> = json_lines(&lines)
        .iter()
        .filter(|event| event["event"] == "gap")
        .map(|gap| (gap["cpu"].as_u64().unwrap(), gap["lost"].as_u64()))
        .collect();
    for version in ["6", "7"] {
        let printed = printed(&exported(version, &trace, &dir))?;
        let marks = printed.iter().filter_map(|line| {
            let (cpu, lost) = line.strip_prefix("CPU:")?.split_once(" [")?;
            Some((cpu.parse().unwrap(), lost.split(' ').next()?.parse().ok()))
        });
        let mut marks: Vec<(u64, Option<u64>)> = marks.collect();
        let mut gaps = gaps.clone();
        gaps.sort();
        marks.sort();
        assert_eq!(marks, gaps, "version {version}");
    }
    Ok(())
}

/// Number of lines of a program that name one of the events.
fn counted(program: &str, arguments: &[&str], file: &Path) -> Result<usize, Skip> {
    let output = Command::new(program).args(arguments).arg(file).output();
    let output = output.map_err(|_| Skip(format!("{program} is not installed")))?;
    let is_event = |line: &&str| line.contains("call_site=");
    Ok(text(&output.stdout).lines().filter(is_event).count())
}

/// The samples of `tests/data/other-programs` are files that trace-cmd and perf read, with as many events.
fn trace_cmd_and_perf_read_the_samples_alike() -> Result<(), Skip> {
    let dir = Directory::new(&[]);
    let mut files: Vec<_> =
        std::fs::read_dir(data("other-programs")).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "zst"));
    assert_eq!(files.len(), 10);
    for packed in files {
        let file = dir.file("file");
        let bytes = zstd::stream::decode_all(std::fs::File::open(&packed).unwrap()).unwrap();
        dir.write("file", &bytes);
        let expected = json_lines(&run_to(0, REPORT, &["events"], &[&file])).len();
        let name = packed.file_name().unwrap().to_string_lossy().into_owned();
        let found = match name.contains("perf.data") {
            true => counted("perf", &["script", "-i"], &file)?,
            // Some builds of trace-cmd have no zlib.
            false if bytes.windows(5).any(|five| five == b"zlib\0") => continue,
            false => counted("trace-cmd", &["report", "-R"], &file)?,
        };
        assert_eq!(found, expected, "{name}");
    }
    Ok(())
}
