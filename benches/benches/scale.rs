//! Costs of checking and reporting as traces grow: from a million events to a hundred, from ten thousand live objects
//! to ten million, from two CPUs' files to 64. All load is generated; limits of the machine on the same data stand
//! beside it.
//!
//! `live` is `live --top 20`. The tables compare processor time, because it hardly depends on other load. Each run is
//! a process of its own: a child's greatest memory is never less than its parent's.

#![allow(clippy::unwrap_used, reason = "a benchmark fails by panicking")]

use std::path::{Path, PathBuf};
use std::process::Command;

use kmemtrace_benches::child::{Usage, usage};
use kmemtrace_benches::limits::{decode_all, plain_table, random_update, stages};
use kmemtrace_benches::{build, median, on_one_core, seconds, table};
use kmemtrace_tests::generate::{Load, LoadOptions, write_trace};
use kmemtrace_tests::programs::{json, program, run_to};
use kmemtrace_tests::recording::Directory;
use serde_json::Value;

const ROUNDS: usize = 3;
/// Value of `KMEMTRACE_BENCH_SECONDS` that gives the loads their full size; smaller values shrink them.
const FULL: u64 = 30;
const FEW_LIVE: u32 = 10_000;
/// Reference row of the comparisons: 10 M events, few live objects, two files.
const USUAL: usize = 1;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["generate", dir, events, live, cpus, reuses] => {
            let [events, live, cpus] = [events, live, cpus].map(|text| text.parse().unwrap_or(0));
            let reuses = reuses == "true";
            let (machine, load) = Load::new(1, LoadOptions { events, live: live as u32, cpus: cpus as u32, reuses });
            write_trace(Path::new(dir), &machine, load, 1).unwrap();
        }
        ["decode", trace] => decode_all(Path::new(trace)),
        ["plain-table", trace] => println!("{}", plain_table(Path::new(trace))),
        ["random-update", live] => println!("{}", random_update(live.parse().unwrap_or(0))),
        _ if words.contains(&"--bench") => all(),
        _ => {}
    }
}

fn all() {
    build();
    let of = |events: u64, live: u32, cpus| LoadOptions { events: events * 1_000_000, live, cpus, reuses: true };
    let loads = [
        of(1, FEW_LIVE, 2),
        of(10, FEW_LIVE, 2),
        of(100, FEW_LIVE, 2),
        of(10, 1_000_000, 2),
        of(30, 10_000_000, 2),
        of(10, FEW_LIVE, 16),
        of(10, FEW_LIVE, 64),
        LoadOptions { reuses: false, ..of(10, FEW_LIVE, 2) },
    ];
    let part = seconds(FULL).clamp(1, FULL);
    let smaller = |load: LoadOptions| {
        let live = if load.live == FEW_LIVE { FEW_LIVE } else { (u64::from(load.live) * part / FULL) as u32 };
        LoadOptions { events: load.events * part / FULL, live, ..load }
    };
    let rows: Vec<Row> = loads.into_iter().map(smaller).map(measure).collect();
    print(&rows);
}

/// Ways to read a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Cat,
    Decode,
    Check,
    CheckOnAll,
    Summary,
    SummaryOnAll,
    Sites,
    Live,
}

impl Way {
    const ALL: [Way; 8] =
        [Way::Cat, Way::Decode, Way::Check, Way::CheckOnAll, Way::Summary, Way::SummaryOnAll, Way::Sites, Way::Live];

    fn name(self) -> &'static str {
        match self {
            Way::Cat => "cat",
            Way::Decode => "decode",
            Way::Check => "check",
            Way::CheckOnAll => "check all",
            Way::Summary => "summary",
            Way::SummaryOnAll => "summary all",
            Way::Sites => "sites",
            Way::Live => "live",
        }
    }

    fn command(self, trace: &Path) -> Command {
        let report = program("kmemtrace-report");
        let check = program("kmemtrace-check");
        let summary = ["summary", "--no-index", "--format", "json"];
        let mut command = match self {
            Way::Cat => {
                let mut command = on_one_core(Path::new("cat"), &[]);
                command.args(files(trace));
                return command;
            }
            Way::Decode => on_one_core(&own_path(), &["decode"]),
            Way::Check => on_one_core(&check, &["--format", "json"]),
            Way::CheckOnAll => {
                let mut command = Command::new(check);
                command.args(["--format", "json"]);
                command
            }
            Way::Summary => on_one_core(&report, &summary),
            Way::SummaryOnAll => {
                let mut command = Command::new(report);
                command.args(summary);
                command
            }
            Way::Sites => on_one_core(&report, &["sites", "--no-index", "--format", "json"]),
            Way::Live => on_one_core(&report, &["live", "--no-index", "--top", "20", "--format", "json"]),
        };
        command.arg(trace);
        command
    }
}

fn own_path() -> PathBuf {
    std::env::current_exe().unwrap()
}

fn files(trace: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(trace).into_iter().flatten().flatten().map(|file| file.path()).collect()
}

/// Results of a load.
struct Row {
    load: LoadOptions,
    bytes: u64,
    /// Frees in the summary.
    frees: u64,
    /// Runs by [`Way`].
    runs: Vec<Vec<Usage>>,
    /// Nanoseconds to pair and count an event, to insert it in or remove it from a plain hash table, and for a random
    /// update of one.
    pairing: f64,
    plain: f64,
    update: f64,
}

impl Row {
    fn middle(&self, way: Way, what: fn(&Usage) -> f64) -> f64 {
        median(self.runs[way as usize].iter().map(what).collect())
    }

    /// Processor time, ns an event.
    fn cpu_ns(&self, way: Way) -> f64 {
        self.middle(way, |run| run.cpu_seconds) * 1e9 / self.load.events as f64
    }

    fn peak(&self, way: Way) -> f64 {
        self.middle(way, |run| run.peak_bytes as f64)
    }

    /// Events, live objects and files.
    fn name(&self) -> Vec<String> {
        let short = |n: u64| match n {
            1_000_000.. => format!("{} M", n as f64 / 1e6),
            _ => format!("{} k", n as f64 / 1e3),
        };
        let addresses = if self.load.reuses { "" } else { " fresh" };
        let live = format!("{}{addresses}", short(self.load.live.into()));
        vec![short(self.load.events), live, self.load.cpus.to_string()]
    }
}

fn measure(load: LoadOptions) -> Row {
    let directory = Directory::on_disk();
    let trace = directory.path();
    let [events, live, cpus] = [load.events, load.live.into(), load.cpus.into()].map(|n: u64| n.to_string());
    let mut generate = Command::new(own_path());
    generate.arg("generate").arg(trace).args([&events, &live, &cpus, &load.reuses.to_string()]);
    let generated = usage(&mut generate);
    let bytes = files(trace).iter().filter_map(|file| std::fs::metadata(file).ok()).map(|m| m.len()).sum();
    eprintln!(
        "{events} events, {live} live, {cpus} files, {} MiB: generated in {:.1} s, {:.1} M events/s",
        bytes >> 20,
        generated.seconds,
        load.events as f64 / generated.seconds / 1e6
    );
    let document =
        json(&run_to(0, "kmemtrace-report", &["summary", "--no-index", "--strict", "--format", "json"], &[trace]));
    let number = |value: &Value| value.as_u64().unwrap_or(u64::MAX);
    assert_eq!(number(&document["events"]["total"]), load.events, "the report has another number of events");
    let live = number(&document["total"]["live_objects"]);
    assert!(live.abs_diff(load.live.into()) <= 128, "{live} live objects are reported");
    let runs = Way::ALL.map(|way| (0..ROUNDS).map(|_| usage(&mut way.command(trace))).collect()).into();
    let limit = |what: &[&str], argument: &Path| {
        let output = on_one_core(&own_path(), what).arg(argument).output();
        let told = output.ok().and_then(|output| String::from_utf8(output.stdout).ok()?.trim().parse().ok());
        told.unwrap_or(f64::NAN)
    };
    let ([_, pairing], plain) = (stages(trace), limit(&["plain-table"], trace));
    let update = limit(&["random-update"], Path::new(&live.to_string()));
    Row { load, bytes, frees: number(&document["total"]["frees"]), runs, pairing, plain, update }
}

fn print(rows: &[Row]) {
    let with = |more: &dyn Fn(&Row) -> Vec<String>| -> Vec<Vec<String>> {
        rows.iter().map(|row| [row.name(), more(row)].concat()).collect()
    };
    let head = |more: &[&'static str]| [&["events", "live", "files"], more].concat();
    println!("all: on all cores, the others on one; fresh: no address is used twice; median of {ROUNDS}");
    let ways = Way::ALL.map(Way::name);
    let cells = with(&|row| Way::ALL.map(|way| format!("{:.1}", row.cpu_ns(way))).into());
    table("processor time, ns an event", &head(&ways), &cells);
    let cells = with(&|row| Way::ALL.map(|way| format!("{:.0}", row.middle(way, |run| run.seconds) * 1e3)).into());
    table("the same runs from start to end, ms", &head(&ways), &cells);
    let limits = with(&|row| {
        let cat = row.middle(Way::Cat, |run| run.cpu_seconds);
        let speed = row.bytes as f64 / cat / 1e9;
        let figures = [speed, row.cpu_ns(Way::Decode), row.pairing, row.plain, row.update, row.update / row.pairing];
        figures.map(|figure| format!("{figure:.1}")).into()
    });
    let of_limits = ["cat GB/s", "decode ns", "pair, count ns", "its plain table ns", "random update ns", "times"];
    let title = "beside a plain hash table: an insert or remove for each event, and a random remove and insert";
    table(title, &head(&of_limits), &limits);

    let usual = &rows[USUAL];
    let ways = [Way::Check, Way::Summary, Way::SummaryOnAll, Way::Sites, Way::Live];
    let cells = with(&|row| ways.map(|way| format!("{:.1}", row.peak(way) / f64::from(1 << 20))).into());
    table("most memory, MiB", &head(&ways.map(Way::name)), &cells);
    let reports = &ways[1..];
    let costs: Vec<Vec<String>> = rows
        .iter()
        .filter_map(|row| {
            // Difference to the usual row that takes memory.
            let (what, number) = match row.load.reuses {
                true => ("live object", f64::from(row.load.live - usual.load.live)),
                false => ("freed address", row.frees as f64),
            };
            let each = |&way: &Way| format!("{:.1}", (row.peak(way) - usual.peak(way)) / number);
            (number > 0.0).then(|| [row.name(), vec![what.to_owned()], reports.iter().map(each).collect()].concat())
        })
        .collect();
    let names: Vec<&'static str> = reports.iter().map(|way| way.name()).collect();
    table("memory beyond that of the second row, bytes", &head(&[&["for each"], names.as_slice()].concat()), &costs);
    let larger = &rows[USUAL + 1];
    println!("\nten times as many events, from the second row to the third:");
    for way in ways {
        let (time, memory) = (larger.cpu_ns(way) / usual.cpu_ns(way), larger.peak(way) / usual.peak(way));
        println!("  {}: {time:.2} times the time an event, {memory:.2} times the memory", way.name());
    }
}
