//! What recording costs, beside a bare loop that splices whole sub-buffers into a file and does nothing else; whether anything
//! is lost at full speed; and whether two recorders of one run say the same. Needs root and tracefs.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use kmemtrace_abi::format::PageShape;
use kmemtrace_abi::subbuffer::{Missed, tally, trimmed_len};
use kmemtrace_abi::target::Endian;
use kmemtrace_benches::{build, cpu_ns, median, seconds, table};
use kmemtrace_tests::live::{Instance, Tracefs};
use kmemtrace_tests::programs::{json, program, run, run_to};
use kmemtrace_tests::recorder::{Recorder, instance_name};
use kmemtrace_tests::recording::Directory;
use kmemtrace_tests::runner::Skip;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::{SpliceFlags, splice};
use serde_json::Value;

/// Of each way to drain, and the median of so many.
const ROUNDS: usize = 3;
const BUFFER_KIB: u64 = 16 << 10;
/// Of `mix`, that make a little more than a million events a second.
const ROUNDS_A_SECOND: &str = "13000";

fn main() {
    // `cargo test` and `cargo bench -- --list` run this, too.
    if !std::env::args().any(|a| a == "--bench") {
        return;
    }
    let tracefs = match Tracefs::find() {
        Ok(tracefs) => tracefs,
        Err(Skip(reason)) => return println!("skipped: record: {reason}"),
    };
    build();
    cost(&tracefs);
    beside_perf(&tracefs);
    buffers();
    full_speed();
    two_recorders();
}

fn must<T, E: std::fmt::Display>(what: &str, result: Result<T, E>) -> T {
    result.unwrap_or_else(|error| panic!("{what}: {error}"))
}

/// One way to drain, over one load.
struct Run {
    events: u64,
    cpu_ns: u64,
    file_bytes: u64,
    /// Sum of the sub-buffers' commit sizes; 0 where it was not looked at.
    event_bytes: u64,
    /// Of the splice loop's files, ten pages a zstd frame.
    packed_bytes: u64,
    lost: u64,
}

impl Run {
    fn per_event(&self) -> f64 {
        self.cpu_ns as f64 / self.events.max(1) as f64
    }
}

fn load(mode: &[&str]) -> Child {
    must("kmemload", Command::new(program("kmemload")).args(mode).stdout(Stdio::null()).spawn())
}

/// A file of a recorder, and how much is in it.
fn size(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |m| m.len())
}

/// What the sub-buffers in a file have of events: all but headers, loss words and slack.
fn event_bytes(path: &Path, shape: &PageShape) -> u64 {
    let mut file = must("file", File::open(path));
    let mut page = vec![0; shape.size];
    let mut bytes = 0;
    while file.read_exact(&mut page).is_ok() {
        let lost = must("sub-buffer", tally(shape, &page)).0.missed.is_some_and(|m| matches!(m, Missed::Counted(_)));
        let stored = must("sub-buffer", trimmed_len(shape, &page)) - shape.data_offset;
        bytes += stored as u64 - if lost { shape.target.word_bytes.into() } else { 0 };
    }
    bytes
}

/// Bytes of a file in zstd frames of so many bytes each, at zstd's own level.
fn packed_bytes(path: &Path, chunk: usize) -> u64 {
    let bytes = must("file", std::fs::read(path));
    bytes.chunks(chunk).map(|chunk| must("zstd", zstd::bulk::compress(chunk, 0)).len() as u64).sum()
}

/// Splices the sub-buffers of one CPU to a file until told to stop; processor time, ns.
fn splice_cpu(instance: &Instance<'_>, cpu: u32, file: &File, shape: &PageShape, stop: &AtomicBool) -> u64 {
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu as usize);
    let _ = rustix::thread::sched_setaffinity(None, &set);
    let _ = rustix::process::setpriority_process(None, -20);
    let raw = instance.path().join(format!("per_cpu/cpu{cpu}/trace_pipe_raw"));
    let raw = OpenOptions::new().read(true).custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed()).open(raw);
    let raw = must("trace_pipe_raw", raw);
    let (from, to) = must("pipe", rustix::pipe::pipe());
    let room = must("pipe", rustix::pipe::fcntl_setpipe_size(&to, 1 << 20)) / shape.size * shape.size;
    while !stop.load(Ordering::Acquire) {
        let timeout = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
        let _ = poll(&mut [PollFd::new(&raw, PollFlags::IN)], Some(&timeout));
        let mut taken = 0;
        while let Ok(n @ 1..) = splice(&raw, None, &to, None, room, SpliceFlags::NONBLOCK | SpliceFlags::MOVE) {
            let mut left = n;
            while left > 0 {
                left -= must("splice", splice(&from, None, file, None, left, SpliceFlags::MOVE));
            }
            taken += n;
        }
        if taken == 0 {
            sleep(Duration::from_millis(5));
        }
    }
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

fn splice_loop(tracefs: &Tracefs, mode: &[&str]) -> Run {
    let instance = Instance::new(tracefs).unwrap_or_else(|Skip(reason)| panic!("{reason}"));
    let header_page = must("header_page", instance.read("events/header_page"));
    let shape = must("header_page", PageShape::parse(&header_page, Endian::NATIVE));
    for (file, value) in [("tracing_on", "0"), ("trace_clock", "mono"), ("buffer_percent", "25")] {
        must(file, instance.write(file, value));
    }
    must("buffer", instance.write("buffer_size_kb", &BUFFER_KIB.to_string()));
    for event in ["kmalloc", "kmem_cache_alloc", "kfree", "kmem_cache_free"] {
        must(event, instance.write(&format!("events/kmem/{event}/enable"), "1"));
    }
    let directory = Directory::new(&[]);
    let stop = AtomicBool::new(false);
    let cpus = must("per_cpu", instance.cpus());
    let files: Vec<File> =
        cpus.iter().map(|cpu| must("file", File::create(directory.file(&format!("cpu{cpu}"))))).collect();
    let cpu_ns = thread::scope(|scope| {
        let (instance, shape, stop) = (&instance, &shape, &stop);
        let splice = |(&cpu, file)| scope.spawn(move || splice_cpu(instance, cpu, file, shape, stop));
        let threads: Vec<_> = cpus.iter().zip(&files).map(splice).collect();
        must("tracing_on", instance.write("tracing_on", "1"));
        must("kmemload", load(mode).wait());
        sleep(Duration::from_millis(200));
        must("tracing_on", instance.write("tracing_on", "0"));
        stop.store(true, Ordering::Release);
        threads.into_iter().map(|t| t.join().unwrap_or(0)).sum()
    });
    let sum = |name| cpus.iter().map(|&cpu| must(name, instance.stat(cpu, name))).sum();
    let paths = cpus.iter().map(|cpu| directory.file(&format!("cpu{cpu}")));
    let event_bytes = paths.clone().map(|path| event_bytes(&path, &shape)).sum();
    let packed_bytes = paths.clone().map(|path| packed_bytes(&path, 10 * shape.size)).sum();
    let file_bytes = paths.map(|path| size(&path)).sum();
    Run { events: sum("read events"), cpu_ns, file_bytes, event_bytes, packed_bytes, lost: sum("overrun") }
}

/// What check says of a recording's CPU files.
fn totals(trace: &Path) -> (u64, u64) {
    let found = json(&run("kmemtrace-check", &["--format", "json"], &[trace]).stdout);
    let files = found["files"].as_array().into_iter().flatten();
    let sum = |name: &str| files.clone().filter_map(|file| file[name].as_u64()).sum();
    (sum("events"), sum("lost_events"))
}

fn recorder(mode: &[&str], options: &[&str]) -> Run {
    let recorder = Recorder::start(options);
    let before = cpu_ns(recorder.pid());
    must("kmemload", load(mode).wait());
    sleep(Duration::from_millis(200));
    let cpu_ns = cpu_ns(recorder.pid()) - before;
    let ended = recorder.stop();
    assert!(matches!(ended.status.code(), Some(0 | 1)), "{}", ended.stderr);
    let files = std::fs::read_dir(ended.trace()).into_iter().flatten().flatten();
    let files = files.filter(|f| f.file_name().to_str().is_some_and(|name| name.starts_with("cpu")));
    let (events, lost) = totals(&ended.trace());
    Run { events, cpu_ns, file_bytes: files.map(|f| size(&f.path())).sum(), event_bytes: 0, packed_bytes: 0, lost }
}

fn cost(tracefs: &Tracefs) {
    let time = seconds(4).min(4).to_string();
    let mode = ["mix", &time];
    let (mut bare, mut ours, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    let (mut smaller, mut smaller_ratios) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let a = splice_loop(tracefs, &mode);
        let (b, c) = (recorder(&mode, &["--compress", "none"]), recorder(&mode, &[]));
        ratios.push(b.per_event() / a.per_event());
        smaller_ratios.push(c.per_event() / a.per_event());
        bare.push(a);
        ours.push(b);
        smaller.push(c);
    }
    let bytes = |runs: &[Run]| median(runs.iter().map(|r| r.file_bytes as f64 / r.events.max(1) as f64).collect());
    let event_bytes = median(bare.iter().map(|r| r.event_bytes as f64 / r.events.max(1) as f64).collect());
    let row = |name: &str, runs: &[Run], ratio: f64| {
        let middle = |what: fn(&Run) -> f64| median(runs.iter().map(what).collect());
        vec![
            name.to_owned(),
            format!("{:.1}", middle(|r| r.events as f64) / 1e6),
            format!("{:.1}", middle(Run::per_event)),
            format!("{ratio:.2}"),
            format!("{:.2}", bytes(runs)),
            format!("{:.3}", bytes(runs) / event_bytes),
            runs.iter().map(|r| r.lost).sum::<u64>().to_string(),
        ]
    };
    let head = ["draining", "M events", "CPU ns/event", "ratio", "bytes/event", "file/event bytes", "lost"];
    let rows = [
        row("bare splice loop", &bare, 1.0),
        row("kmemtraced --compress none", &ours, median(ratios)),
        row("kmemtraced", &smaller, median(smaller_ratios)),
    ];
    table(&format!("processor time to drain `kmemload mix {time}`, median of {ROUNDS}"), &head, &rows);
    let packed = median(bare.iter().map(|r| r.packed_bytes as f64 / r.events.max(1) as f64).collect());
    println!("ten pages a zstd frame, as trace-cmd stores them: {packed:.2} bytes/event of the splice loop's");
}

/// Processor time of the children that have ended, ns (`/proc/self/stat`).
fn children_ns() -> f64 {
    let stat = must("/proc/self/stat", std::fs::read_to_string("/proc/self/stat"));
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks: f64 = fields.iter().skip(13).take(2).filter_map(|field| field.parse::<f64>().ok()).sum();
    ticks * 1e9 / rustix::param::clock_ticks_per_second() as f64
}

/// What a fixed piece of work costs in all, kernel and recorder together, beyond the work itself.
fn beside_perf(tracefs: &Tracefs) {
    // Of what differs little from the work alone, more is needed to tell.
    const ROUNDS: usize = 7;
    let rounds = (seconds(6) * 10_000).min(60_000).to_string();
    let directory = Directory::new(&[]);
    let out = |name: &str| directory.file(name).display().to_string();
    let (ours, smaller, perf) = (out("none"), out("auto"), out("perf.data"));
    let kmemtraced = program("kmemtraced").display().to_string();
    let recorders: [(&str, Vec<&str>); 3] = [
        ("kmemtraced --compress none", vec![&kmemtraced, "-qf", "--compress", "none", "-o", &ours, "--"]),
        ("kmemtraced", vec![&kmemtraced, "-qf", "-o", &smaller, "--"]),
        ("perf kmem record -m 16M", vec!["perf", "kmem", "record", "-q", "-m", "16M", "-o", &perf]),
    ];
    let work = [program("kmemload").display().to_string(), "rounds".to_owned(), rounds.clone()];
    let work: Vec<&str> = work.iter().map(String::as_str).collect();
    let cost = |before: &[&str], work: &[&str]| {
        let all = [before, work].concat();
        let start = children_ns();
        let run = Command::new(all[0]).args(&all[1..]).stdout(Stdio::null()).stderr(Stdio::null()).status();
        run.ok().map(|_| children_ns() - start)
    };
    let (mut alone, mut kernel, mut extra) = (Vec::new(), Vec::new(), vec![Vec::new(); recorders.len()]);
    let instance = Instance::new(tracefs).unwrap_or_else(|Skip(reason)| panic!("{reason}"));
    for (file, value) in [("trace_clock", "mono"), ("buffer_size_kb", "16384")] {
        must(file, instance.write(file, value));
    }
    let enable = |value| {
        for event in ["kmalloc", "kmem_cache_alloc", "kfree", "kmem_cache_free"] {
            must(event, instance.write(&format!("events/kmem/{event}/enable"), value));
        }
    };
    for _ in 0..ROUNDS {
        alone.extend(cost(&[], &work));
        enable("1");
        kernel.extend(cost(&[], &work));
        enable("0");
        for ((_, before), extra) in recorders.iter().zip(&mut extra) {
            // Without what it takes to begin and end, which is the same for a second and for a day.
            let fixed = cost(before, &["true"]);
            extra.extend(cost(before, &work).zip(fixed).map(|(all, fixed)| all - fixed));
        }
    }
    let events = totals(&directory.file("none")).0.max(1) as f64;
    let alone = median(alone);
    let per_event = |costs: &[f64]| (median(costs.to_vec()) - alone) / events;
    let perf = per_event(&extra[2]);
    let row = |name: &str, costs: &[f64]| {
        vec![name.to_owned(), format!("{:.0}", per_event(costs)), format!("{:.2}", per_event(costs) / perf)]
    };
    let mut rows = vec![row("tracefs, nobody reads", &kernel)];
    rows.extend(recorders.iter().zip(&extra).map(|((name, _), costs)| row(name, costs)));
    let head = ["kernel and recorder", "CPU ns/event", "ratio"];
    table(&format!("`kmemload rounds {rounds}`, {:.1} M events, median of {ROUNDS}", events / 1e6), &head, &rows);
}

/// What is lost at full speed with smaller buffers.
fn buffers() {
    let time = seconds(4).min(4).to_string();
    let row = |size: &str| {
        let run = recorder(&["mix", &time], &["-b", size]);
        vec![size.to_owned(), format!("{:.1}", run.events as f64 / 1e6), run.lost.to_string()]
    };
    let rows: Vec<_> = ["256K", "1M", "4M", "16M"].map(row).into();
    table(&format!("kmemtraced, `kmemload mix {time}`"), &["buffer of a CPU", "M events", "lost"], &rows);
}

/// At least a million events a second on each CPU for a minute, into files on disk.
fn full_speed() {
    let time = seconds(60);
    let recorder = Recorder::start_in(Directory::on_disk(), &instance_name(), &[]);
    let start = Instant::now();
    must("kmemload", load(&["mix", &time.to_string(), ROUNDS_A_SECOND]).wait());
    let elapsed = start.elapsed().as_secs_f64();
    let ended = recorder.stop();
    assert!(matches!(ended.status.code(), Some(0 | 1)), "{}: {}", ended.status, ended.stderr);
    let found = json(&run("kmemtrace-check", &["--format", "json"], &[&ended.trace()]).stdout);
    let rows: Vec<Vec<String>> = found["files"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|f| f["cpu"].is_u64())
        .map(|file| {
            let events = file["events"].as_u64().unwrap_or(0);
            vec![
                file["cpu"].to_string(),
                events.to_string(),
                format!("{:.2}", events as f64 / elapsed / 1e6),
                file["lost_events"].to_string(),
                file["verdict"].as_str().unwrap_or_default().to_owned(),
            ]
        })
        .collect();
    table(
        &format!("{time} s of `kmemload mix` with the default buffer"),
        &["CPU", "events", "M events/s", "lost", "check"],
        &rows,
    );
    // It says so where the kernel handed out another number of events than there are in a file.
    let differs = ended.stderr.contains("somebody else read its buffer");
    println!("events in the files = the kernel's `read events`: {}", if differs { "NO" } else { "yes" });
}

/// Allocations of a command's threads by call-site and kind: how many, and bytes.
fn allocations(trace: &Path, comm: &str) -> Vec<[String; 5]> {
    let sites = json(&run_to(0, "kmemtrace-report", &["sites", "--format", "json", "--comm", comm], &[trace]));
    let rows = sites["rows"].as_array().cloned().unwrap_or_default();
    let cells =
        |row: Value| ["call_site", "kind", "allocs", "requested", "allocated"].map(|name| row[name].to_string());
    let mut rows: Vec<[String; 5]> = rows.into_iter().map(cells).collect();
    rows.sort();
    rows
}

fn two_recorders() {
    let time = seconds(5).min(5);
    let (one, other) = (Recorder::start(&[]), Recorder::start(&[]));
    must("kmemload", load(&["mix", &time.to_string()]).wait());
    let (one, other) = (one.stop(), other.stop());
    let lost = totals(&one.trace()).1 + totals(&other.trace()).1;
    let (a, b) = (allocations(&one.trace(), "kmemload"), allocations(&other.trace(), "kmemload"));
    let events: u64 = a.iter().filter_map(|row| row[2].parse::<u64>().ok()).sum();
    println!(
        "\n{events} allocations of the load at {} call-sites, by two recorders ({lost} lost): {}",
        a.len(),
        if a == b { "the same" } else { "NOT the same" }
    );
}
