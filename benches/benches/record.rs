//! Costs of recording, beside a bare loop that only splices whole sub-buffers into a file; loss at full speed; and
//! agreement of two recorders of one run. Needs root and tracefs.

#![allow(clippy::unwrap_used, reason = "a benchmark fails by panicking")]

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use kmemtrace_abi::kernel::format::PageShape;
use kmemtrace_abi::kernel::subbuffer::{Missed, tally, trimmed_len};
use kmemtrace_abi::target::Endian;
use kmemtrace_benches::others::{perf_events, trace_cmd_events};
use kmemtrace_benches::{build, cpu_ns, median, seconds, table};
use kmemtrace_tests::live::{Instance, Tracefs};
use kmemtrace_tests::programs::{json, program, run, run_to};
use kmemtrace_tests::recorder::{Recorder, instance_name};
use kmemtrace_tests::recording::Directory;
use kmemtrace_tests::runner::Skip;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::{SpliceFlags, splice};
use serde_json::Value;

/// Rounds of each way to drain; the median counts.
const ROUNDS: usize = 3;
const BUFFER_KIB: u64 = 16 << 10;
const EVENTS: [&str; 4] = ["kmalloc", "kmem_cache_alloc", "kfree", "kmem_cache_free"];
/// Instance of `trace-cmd record`, which makes and removes it.
const TRACE_CMD_INSTANCE: &str = "kmemtrace-bench-trace-cmd";
/// Rounds of `mix` a second and CPU: a little more than a million events a second.
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
    draining(&tracefs);
    beside_others(&tracefs);
    buffers(&tracefs);
    full_speed();
    two_recorders();
}

/// Figures of one way to drain, over one load.
struct Run {
    events: u64,
    cpu_ns: u64,
    file_bytes: u64,
    /// Bytes of events: sum of the sub-buffers' commit sizes; 0 where it was not measured.
    event_bytes: u64,
    /// Bytes of the splice loop's files in zstd frames of ten pages each.
    packed_bytes: u64,
    lost: u64,
}

impl Run {
    fn per_event(&self) -> f64 {
        self.cpu_ns as f64 / self.events.max(1) as f64
    }
}

fn load(mode: &[&str]) -> Child {
    Command::new(program("kmemload")).args(mode).stdout(Stdio::null()).spawn().unwrap()
}

/// Size of a file; 0 if it is missing.
fn size(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |m| m.len())
}

/// Bytes of events in a file's sub-buffers, without headers, loss words and slack.
fn event_bytes(path: &Path, shape: &PageShape) -> u64 {
    let mut file = File::open(path).unwrap();
    let mut page = vec![0; shape.size];
    let mut bytes = 0;
    while file.read_exact(&mut page).is_ok() {
        let lost = tally(shape, &page).unwrap().0.missed.is_some_and(|m| matches!(m, Missed::Counted(_)));
        let stored = trimmed_len(shape, &page).unwrap() - shape.data_offset;
        bytes += stored as u64 - if lost { shape.target.word_bytes.into() } else { 0 };
    }
    bytes
}

/// Size of a file in zstd frames of `chunk` bytes each, at zstd's default level.
fn packed_bytes(path: &Path, chunk: usize) -> u64 {
    let bytes = std::fs::read(path).unwrap();
    bytes.chunks(chunk).map(|chunk| zstd::bulk::compress(chunk, 0).unwrap().len() as u64).sum()
}

/// Splices the sub-buffers of one CPU to a file until `stop`; returns processor time, ns.
fn splice_cpu(instance: &Instance<'_>, cpu: u32, file: &File, shape: &PageShape, stop: &AtomicBool) -> u64 {
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu as usize);
    let _ = rustix::thread::sched_setaffinity(None, &set);
    let _ = rustix::process::setpriority_process(None, -20);
    let raw = instance.path().join(format!("per_cpu/cpu{cpu}/trace_pipe_raw"));
    let raw = OpenOptions::new().read(true).custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed()).open(raw);
    let raw = raw.unwrap();
    let (from, to) = rustix::pipe::pipe().unwrap();
    let room = rustix::pipe::fcntl_setpipe_size(&to, 1 << 20).unwrap() / shape.size * shape.size;
    while !stop.load(Ordering::Acquire) {
        let timeout = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
        let _ = poll(&mut [PollFd::new(&raw, PollFlags::IN)], Some(&timeout));
        let mut taken = 0;
        while let Ok(n @ 1..) = splice(&raw, None, &to, None, room, SpliceFlags::NONBLOCK | SpliceFlags::MOVE) {
            let mut left = n;
            while left > 0 {
                left -= splice(&from, None, file, None, left, SpliceFlags::MOVE).unwrap();
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

/// Drains with the bare loop; `None` where the kernel has no sub-buffers of that size.
fn splice_loop(tracefs: &Tracefs, mode: &[&str], subbuffer_kib: Option<&str>) -> Option<Run> {
    let instance = Instance::new(tracefs).unwrap_or_else(|Skip(reason)| panic!("{reason}"));
    if let Some(kib) = subbuffer_kib {
        instance.write("buffer_subbuf_size_kb", kib).ok()?;
    }
    let header_page = instance.read("events/header_page").unwrap();
    let shape = PageShape::parse(&header_page, Endian::NATIVE).unwrap();
    for (file, value) in [("tracing_on", "0"), ("trace_clock", "mono"), ("buffer_percent", "25")] {
        instance.write(file, value).unwrap();
    }
    instance.write("buffer_size_kb", &BUFFER_KIB.to_string()).unwrap();
    for event in EVENTS {
        instance.write(&format!("events/kmem/{event}/enable"), "1").unwrap();
    }
    let directory = Directory::new(&[]);
    let stop = AtomicBool::new(false);
    let cpus = instance.cpus().unwrap();
    let files: Vec<File> = cpus.iter().map(|cpu| File::create(directory.file(&format!("cpu{cpu}"))).unwrap()).collect();
    let cpu_ns = thread::scope(|scope| {
        let (instance, shape, stop) = (&instance, &shape, &stop);
        let splice = |(&cpu, file)| scope.spawn(move || splice_cpu(instance, cpu, file, shape, stop));
        let threads: Vec<_> = cpus.iter().zip(&files).map(splice).collect();
        instance.write("tracing_on", "1").unwrap();
        load(mode).wait().unwrap();
        sleep(Duration::from_millis(200));
        instance.write("tracing_on", "0").unwrap();
        stop.store(true, Ordering::Release);
        threads.into_iter().map(|t| t.join().unwrap_or(0)).sum()
    });
    let sum = |name| cpus.iter().map(|&cpu| instance.stat(cpu, name).unwrap()).sum();
    let paths = cpus.iter().map(|cpu| directory.file(&format!("cpu{cpu}")));
    let event_bytes = paths.clone().map(|path| event_bytes(&path, &shape)).sum();
    let packed_bytes = paths.clone().map(|path| packed_bytes(&path, 10 * shape.size)).sum();
    let file_bytes = paths.map(|path| size(&path)).sum();
    Some(Run { events: sum("read events"), cpu_ns, file_bytes, event_bytes, packed_bytes, lost: sum("overrun") })
}

/// Events and lost events of a recording's CPU files, as check reports them.
fn totals(trace: &Path) -> (u64, u64) {
    let found = json(&run("kmemtrace-check", &["--format", "json"], &[trace]).stdout);
    let files = found["files"].as_array().into_iter().flatten();
    let sum = |name: &str| files.clone().filter_map(|file| file[name].as_u64()).sum();
    (sum("events"), sum("lost_events"))
}

fn recorder(mode: &[&str], options: &[&str]) -> Run {
    let recorder = Recorder::start(options);
    let before = cpu_ns(recorder.pid());
    load(mode).wait().unwrap();
    sleep(Duration::from_millis(200));
    let cpu_ns = cpu_ns(recorder.pid()) - before;
    let ended = recorder.stop();
    assert!(matches!(ended.status.code(), Some(0 | 1)), "{}", ended.stderr);
    let files = std::fs::read_dir(ended.trace()).into_iter().flatten().flatten();
    let files = files.filter(|f| f.file_name().to_str().is_some_and(|name| name.starts_with("cpu")));
    let (events, lost) = totals(&ended.trace());
    Run { events, cpu_ns, file_bytes: files.map(|f| size(&f.path())).sum(), event_bytes: 0, packed_bytes: 0, lost }
}

fn draining(tracefs: &Tracefs) {
    let time = seconds(4).min(4).to_string();
    let mode = ["mix", &time];
    let (mut bare, mut large, mut ours, mut smaller) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        bare.extend(splice_loop(tracefs, &mode, None));
        large.extend(splice_loop(tracefs, &mode, Some("64")));
        ours.push(recorder(&mode, &["--compress", "none"]));
        smaller.push(recorder(&mode, &[]));
    }
    let ratio = |runs: &[Run]| median(runs.iter().zip(&bare).map(|(a, b)| a.per_event() / b.per_event()).collect());
    let bytes = |runs: &[Run]| median(runs.iter().map(|r| r.file_bytes as f64 / r.events.max(1) as f64).collect());
    let event_bytes = median(bare.iter().map(|r| r.event_bytes as f64 / r.events.max(1) as f64).collect());
    let row = |name: &str, runs: &[Run]| {
        let middle = |what: fn(&Run) -> f64| median(runs.iter().map(what).collect());
        vec![
            name.to_owned(),
            format!("{:.1}", middle(|r| r.events as f64) / 1e6),
            format!("{:.1}", middle(Run::per_event)),
            format!("{:.2}", ratio(runs)),
            format!("{:.2}", bytes(runs)),
            format!("{:.3}", bytes(runs) / event_bytes),
            runs.iter().map(|r| r.lost).sum::<u64>().to_string(),
        ]
    };
    let head = ["draining", "M events", "CPU ns/event", "times bare", "bytes/event", "file/event bytes", "lost"];
    let ways = [
        ("bare splice loop", &bare),
        ("the same, sub-buffers of 64 KiB", &large),
        ("kmemtraced --compress none", &ours),
        ("kmemtraced", &smaller),
    ];
    let rows: Vec<_> = ways.iter().filter(|(_, runs)| !runs.is_empty()).map(|(name, runs)| row(name, runs)).collect();
    table(&format!("processor time to drain `kmemload mix {time}`, median of {ROUNDS}"), &head, &rows);
    let packed = median(bare.iter().map(|r| r.packed_bytes as f64 / r.events.max(1) as f64).collect());
    println!("ten pages a zstd frame, as trace-cmd stores them: {packed:.2} bytes/event of the splice loop's");
}

/// Processor time of the children that have ended, ns (`/proc/self/stat`).
fn children_ns() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks: f64 = fields.iter().skip(13).take(2).filter_map(|field| field.parse::<f64>().ok()).sum();
    ticks * 1e9 / rustix::param::clock_ticks_per_second() as f64
}

/// Recorders that run a command, ours and others.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Program {
    Uncompressed,
    Compressed,
    Perf,
    TraceCmd,
}

impl Program {
    const ALL: [Program; 4] = [Program::Uncompressed, Program::Compressed, Program::Perf, Program::TraceCmd];

    fn name(self) -> &'static str {
        match self {
            Program::Uncompressed => "kmemtraced --compress none",
            Program::Compressed => "kmemtraced",
            Program::Perf => "perf kmem record",
            Program::TraceCmd => "trace-cmd record",
        }
    }

    /// Words before the command to be recorded, for a buffer of `kib` KiB for each CPU.
    fn arguments(self, kib: u64, out: &Path) -> Vec<String> {
        let kmemtraced = program("kmemtraced").display().to_string();
        let (size, out) = (format!("{kib}K"), out.display().to_string());
        let words: &[&str] = match self {
            Program::Uncompressed => &[&kmemtraced, "-qf", "--compress", "none", "-b", &size, "-o", &out, "--"],
            Program::Compressed => &[&kmemtraced, "-qf", "-b", &size, "-o", &out, "--"],
            Program::Perf => &["perf", "kmem", "record", "-q", "-m", &size, "-o", &out],
            Program::TraceCmd => &["trace-cmd", "record", "-q", "-d", "-o", &out, "-B", TRACE_CMD_INSTANCE],
        };
        let mut words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        if self == Program::TraceCmd {
            words.extend(["-b".to_owned(), kib.to_string()]);
            words.extend(EVENTS.iter().flat_map(|event| ["-e".to_owned(), format!("kmem:{event}")]));
        }
        words
    }

    /// Events of this program's recording, and lost events.
    fn events(self, out: &Path) -> (f64, f64) {
        match self {
            Program::Uncompressed | Program::Compressed => {
                let (events, lost) = totals(out);
                (events as f64, lost as f64)
            }
            Program::Perf => perf_events(out),
            Program::TraceCmd => trace_cmd_events(out),
        }
    }

    /// Processor time of recording a command, ns; `None`, and a line with the reason, where this program does not run.
    fn cost(self, tracefs: &Tracefs, kib: u64, out: &Path, work: &[String]) -> Option<f64> {
        let cost = cost(&[&self.arguments(kib, out), work].concat());
        if self == Program::TraceCmd && cost.is_err() {
            // trace-cmd leaves its instance, and its children may still read it, so the removal is tried for a while.
            let instance = tracefs.path().join("instances").join(TRACE_CMD_INSTANCE);
            for _ in 0..20 {
                if std::fs::remove_dir(&instance).is_ok() || !instance.exists() {
                    break;
                }
                sleep(Duration::from_millis(50));
            }
        }
        cost.map_err(|reason| println!("\n{}: does not run here: {reason}", self.name())).ok()
    }
}

/// Processor time of a command and its children, ns, or the error. A failed command's process group is killed.
fn cost(words: &[String]) -> Result<f64, String> {
    let directory = Directory::new(&[]);
    let complaints = File::create(directory.file("stderr")).unwrap();
    let start = children_ns();
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(complaints);
    let mut child = command.process_group(0).spawn().map_err(|error| error.to_string())?;
    let group = rustix::process::Pid::from_child(&child);
    let status = child.wait().map_err(|error| error.to_string())?;
    if !status.success() {
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        let said = directory.text("stderr");
        return Err(format!("{status}: {}", said.trim().lines().last().unwrap_or_default().trim()));
    }
    Ok(children_ns() - start)
}

/// Costs of a fixed piece of work in all, kernel and recorder together, beyond the work itself.
fn beside_others(tracefs: &Tracefs) {
    // Differences to the work alone are small, so more rounds are needed.
    const ROUNDS: usize = 7;
    let rounds = (seconds(6) * 10_000).min(60_000).to_string();
    let directory = Directory::new(&[]);
    let out = |program: Program| directory.file(program.name());
    let work = [program("kmemload").display().to_string(), "rounds".to_owned(), rounds.clone()];
    let nothing = ["true".to_owned()];
    let instance = Instance::new(tracefs).unwrap_or_else(|Skip(reason)| panic!("{reason}"));
    for (file, value) in [("trace_clock", "mono"), ("buffer_size_kb", "16384")] {
        instance.write(file, value).unwrap();
    }
    let enable = |value| {
        for event in EVENTS {
            instance.write(&format!("events/kmem/{event}/enable"), value).unwrap();
        }
    };
    let (mut alone, mut kernel) = (Vec::new(), Vec::new());
    // Processor time and bytes of each recorder, without those of its start and end, which do not grow with the
    // recording.
    let mut recorders: Vec<(Program, Vec<f64>, Vec<f64>)> =
        Program::ALL.map(|program| (program, vec![], vec![])).into();
    for _ in 0..ROUNDS {
        alone.extend(cost(&work));
        enable("1");
        kernel.extend(cost(&work));
        enable("0");
        recorders.retain_mut(|(program, costs, bytes)| {
            let out = out(*program);
            let run = |work: &[String]| Some((program.cost(tracefs, BUFFER_KIB, &out, work)?, bytes_of(&out) as f64));
            let ran = run(&nothing).zip(run(&work));
            if let Some(((fixed, fixed_bytes), (all, all_bytes))) = ran {
                costs.push(all - fixed);
                bytes.push(all_bytes - fixed_bytes);
            }
            ran.is_some()
        });
    }
    let events = totals(&out(Program::Uncompressed)).0.max(1) as f64;
    let alone = median(alone);
    let per_event = |costs: &[f64]| (median(costs.to_vec()) - alone) / events;
    let perf = recorders.iter().find(|(program, ..)| *program == Program::Perf);
    let perf = perf.map_or(f64::NAN, |(_, costs, _)| per_event(costs));
    let row = |name: &str, costs: &[f64], bytes: Option<f64>| {
        vec![
            name.to_owned(),
            format!("{:.0}", per_event(costs)),
            format!("{:.2}", per_event(costs) / perf),
            bytes.map_or_else(String::new, |bytes| format!("{:.2}", bytes / events)),
        ]
    };
    let mut rows = vec![row("tracefs, nobody reads", &kernel, None)];
    rows.extend(recorders.into_iter().map(|(program, costs, bytes)| row(program.name(), &costs, Some(median(bytes)))));
    let head = ["kernel and recorder", "CPU ns/event", "times perf", "bytes/event"];
    table(&format!("`kmemload rounds {rounds}`, {:.1} M events, median of {ROUNDS}", events / 1e6), &head, &rows);
}

/// Bytes of a file, or of the files in a directory.
fn bytes_of(path: &Path) -> u64 {
    match std::fs::read_dir(path) {
        Ok(files) => files.flatten().map(|file| size(&file.path())).sum(),
        Err(_) => size(path),
    }
}

/// Loss at full speed with smaller buffers.
fn buffers(tracefs: &Tracefs) {
    let time = seconds(4).min(4).to_string();
    let work = [program("kmemload").display().to_string(), "mix".to_owned(), time.clone()];
    let directory = Directory::new(&[]);
    let mut rows = Vec::new();
    for program in Program::ALL {
        for (name, kib) in [("256K", 256), ("1M", 1 << 10), ("4M", 4 << 10), ("16M", 16 << 10)] {
            let out = directory.file(&format!("{}{name}", program.name()));
            if program.cost(tracefs, kib, &out, &work).is_none() {
                break;
            }
            let (events, lost) = program.events(&out);
            let share = 100.0 * lost / (events + lost);
            rows.push(vec![
                program.name().to_owned(),
                name.to_owned(),
                format!("{:.1}", events / 1e6),
                format!("{lost}"),
                format!("{share:.2}%"),
            ]);
        }
    }
    table(&format!("`kmemload mix {time}`"), &["", "buffer of a CPU", "M events", "lost", "share"], &rows);
}

/// Records at least a million events a second on each CPU, for a minute by default, into files on disk.
fn full_speed() {
    let time = seconds(60);
    let recorder = Recorder::start_in(Directory::on_disk(), &instance_name(), &[]);
    let start = Instant::now();
    load(&["mix", &time.to_string(), ROUNDS_A_SECOND]).wait().unwrap();
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
        &format!("{time} s of `kmemload mix`, {ROUNDS_A_SECOND} rounds a second, default buffer"),
        &["CPU", "events", "M events/s", "lost", "check"],
        &rows,
    );
    // The recorder reports it if the kernel handed out another number of events than its file has.
    let differs = ended.stderr.contains("another program read its buffer");
    println!("events in the files = the kernel's `read events`: {}", if differs { "NO" } else { "yes" });
}

/// Allocations of a command's threads by call-site and kind: number, and bytes.
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
    load(&["mix", &time.to_string()]).wait().unwrap();
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
