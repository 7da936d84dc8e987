//! `kmemtraced watch` on the running kernel, as root: the stream of blocks, its watermarks, and its end. A program of the test's own
//! stands where the report is started. Tests that cannot run here are listed as skipped at the end.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::thread::{self, JoinHandle, sleep};
use std::time::{Duration, Instant};

use kmemtrace_abi::disk::block::{End, GAP_NOT_SENT, GapRecord, Header, MAGIC, NO_CPU, Watermark, item, kind};
use kmemtrace_tests::live::{Instance, Tracefs};
use kmemtrace_tests::load;
use kmemtrace_tests::memory_group::MemoryGroup;
use kmemtrace_tests::programs::{json, json_lines, program, run, run_to, text, until};
use kmemtrace_tests::recorder::{can_record, instance_name, sandbox};
use kmemtrace_tests::recording::Directory;
use kmemtrace_tests::runner::Skip;
use kmemtrace_tests::terminal::Terminal;
use rustix::process::{Pid, Signal, kill_process};
use rustix::time::{ClockId, clock_gettime};
use serde_json::Value;
use zerocopy::FromBytes;

kmemtrace_tests::tests![
    the_stream_has_the_blocks_of_the_files_in_order,
    no_file_is_made_without_a_name_for_it,
    watermarks_hold_under_load_and_go_on_without,
    a_signal_ends_the_stream_in_order,
    a_viewer_that_ends_ends_the_recording,
    a_viewer_that_lags_loses_nothing_in_silence,
    a_second_signal_ends_it_while_the_viewer_hangs,
    a_viewer_that_takes_nothing_is_left_by_a_second_signal,
    a_terminal_that_closes_ends_it,
    a_killed_recorder_leaves_nothing_after_recover,
    stalls_of_the_recording_are_printed_as_they_end,
    lines_have_the_names_of_commands_that_have_ended,
];

/// Viewer that keeps the stream, which is no text that would reach standard output.
const COPY: &str = "exec cat >../out/stream";

/// Recorder with a viewer of the test's own, in an instance of its own.
struct Watch<'a> {
    child: Option<Child>,
    instance: Instance<'a>,
    name: String,
    directory: Directory,
    /// Output of the viewer.
    printed: Option<JoinHandle<Vec<u8>>>,
}

/// Recorder that has ended: its exit status, messages, the stream that the viewer has kept, and its output.
struct Ended {
    status: Option<i32>,
    stderr: String,
    stream: Vec<u8>,
    printed: Vec<u8>,
}

fn read_all(mut stdout: ChildStdout) -> JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = stdout.read_to_end(&mut bytes);
        bytes
    })
}

impl<'a> Watch<'a> {
    /// Starts `kmemtraced watch OPTIONS` with a shell's `viewer` in place of the report, and waits until it records.
    fn start(tracefs: &'a Tracefs, viewer: &str, options: &[&str]) -> Watch<'a> {
        let mut watch = Watch::spawn(tracefs, viewer, options);
        until("recording", || {
            watch.is_on() || watch.child.as_mut().is_none_or(|child| child.try_wait().is_ok_and(|s| s.is_some()))
        });
        watch
    }

    /// Starts it and waits for nothing.
    fn spawn(tracefs: &'a Tracefs, viewer: &str, options: &[&str]) -> Watch<'a> {
        let (directory, name) = (Directory::on_disk(), instance_name());
        let me = directory.file("kmemtraced");
        if fs::hard_link(program("kmemtraced"), &me).is_err() {
            fs::copy(program("kmemtraced"), &me).unwrap();
        }
        let here = directory.file("here");
        directory.write("kmemtrace-report", format!("#!/bin/sh\ncd '{}'\n{viewer}\n", here.display()).as_bytes());
        // The viewer has no privileges, and may not write there otherwise.
        let allow = |name: &str, mode| fs::set_permissions(directory.file(name), Permissions::from_mode(mode)).unwrap();
        for name in ["here", "out"] {
            fs::create_dir(directory.file(name)).unwrap();
            allow(name, 0o777);
        }
        allow("kmemtrace-report", 0o755);
        allow("", 0o711);
        let mut command = Command::new(me);
        command.args(["watch", "-B", &name]).args(sandbox()).args(options).current_dir(directory.file("here"));
        let spawned = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = spawned.unwrap();
        let printed = child.stdout.take().map(read_all);
        let instance = Instance::of(tracefs, &name);
        Watch { child: Some(child), instance, name, directory, printed }
    }

    fn is_on(&self) -> bool {
        // Instances are on from the start; the event is enabled at last.
        let enabled = self.instance.read("events/vmscan/mm_shrink_slab_start/enable");
        enabled.is_ok_and(|enabled| enabled.starts_with('1'))
    }

    fn signal(&self, signal: Signal) {
        let child = self.child.as_ref().unwrap_or_else(|| panic!("no recorder"));
        kill_process(Pid::from_child(child), signal).unwrap();
    }

    /// Sends signals until the recorder has ended: the second one that it sees ends it, however long the viewer hangs.
    fn end_by_signals(&mut self) {
        until("an end by a second signal", || {
            self.signal(Signal::INT);
            sleep(Duration::from_millis(200));
            self.child.as_mut().is_none_or(|child| child.try_wait().is_ok_and(|status| status.is_some()))
        });
    }

    /// Waits for the end of recorder and viewer; the recorder leaves no instance.
    fn wait(&mut self) -> Ended {
        let ended = self.wait_only();
        assert!(!self.instance.path().exists(), "instance {} is left: {}", self.name, ended.stderr);
        ended
    }

    fn wait_only(&mut self) -> Ended {
        let child = self.child.take().unwrap_or_else(|| panic!("no recorder"));
        let Output { status, stderr, .. } = child.wait_with_output().unwrap();
        let printed = self.printed.take().and_then(|printed| printed.join().ok()).unwrap_or_default();
        let stream = fs::read(self.directory.file("out/stream")).unwrap_or_default();
        Ended { status: status.code(), stderr: text(&stderr), stream, printed }
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
            run("kmemtraced", &["recover", "-B", &self.name], &[]);
        }
    }
}

/// Block of a stream, with its payload as it is stored.
struct Block<'a> {
    header: Header,
    payload: &'a [u8],
    bytes: &'a [u8],
}

/// Whole blocks of a stream. A rest that is no whole block panics.
fn blocks(mut stream: &[u8]) -> Vec<Block<'_>> {
    let mut found = Vec::new();
    while !stream.is_empty() {
        let (header, rest) =
            Header::read_from_prefix(stream).unwrap_or_else(|_| panic!("a stream that ends in a header"));
        assert_eq!(header.magic, MAGIC, "block {} is torn", found.len());
        let len = header.payload_len.get() as usize;
        let payload = rest.get(..len).unwrap_or_else(|| panic!("a stream that ends in a payload"));
        found.push(Block { header, payload, bytes: &stream[..stream.len() - rest.len() + len] });
        stream = &rest[len..];
    }
    found
}

/// Checks the stream's order, the numbers of blocks, the end of each file, and that no event is earlier than a watermark before it.
/// Returns the events of each CPU.
fn check(stream: &[u8]) -> BTreeMap<u32, u64> {
    let (mut sequences, mut watermarks): (BTreeMap<u32, u64>, BTreeMap<u32, u64>) = Default::default();
    let (mut events, mut ends, mut has_symbols, mut has_data) = (BTreeMap::new(), 0, false, false);
    let blocks = blocks(stream);
    let recording = blocks.first().map(|block| block.header.recording);
    for Block { header, payload, .. } in &blocks {
        let cpu = header.cpu.get();
        assert_eq!(Some(header.recording), recording);
        let sequence = sequences.entry(cpu).or_insert(0);
        assert_eq!(header.sequence.get(), *sequence, "CPU {cpu}");
        assert!(*sequence > 0 || header.kind == kind::FILE_HEADER, "CPU {cpu}: no header");
        *sequence += 1;
        match header.kind {
            kind::FILE_HEADER => {
                assert!(!has_data, "CPU {cpu}: a header behind data");
                assert!(cpu == NO_CPU || has_symbols, "CPU {cpu}: a header before the symbols");
            }
            kind::META if header.flags & 2 == 0 => {
                has_symbols |= item::walk(payload).flatten().any(|(tag, ..)| tag == item::KALLSYMS);
            }
            kind::DATA => {
                has_data = true;
                *events.entry(cpu).or_insert(0) += u64::from(header.events.get());
                let watermark = watermarks.get(&cpu).copied().unwrap_or(0);
                let first = header.first.get();
                assert!(header.events.get() == 0 || first >= watermark, "CPU {cpu}: {first} after {watermark}");
            }
            kind::WATERMARK => {
                let time = Watermark::read_from_bytes(payload).map_err(|_| "its length").unwrap().time.get();
                assert!(time > watermarks.insert(cpu, time).unwrap_or(0), "CPU {cpu}: a watermark that says nothing");
                assert_eq!(header.flags, 1, "older readers skip it");
            }
            kind::END => ends += 1,
            _ => {}
        }
    }
    assert_eq!(ends, sequences.len(), "a file has no end");
    events
}

/// Load on each CPU, one after the other.
fn load_all_cpus() {
    for cpu in load::cpus().unwrap() {
        load::cross(20_000, 100, (cpu, cpu)).unwrap();
    }
}

fn can_watch() -> Result<Tracefs, Skip> {
    let tracefs = can_record()?;
    tracefs.need_event("vmscan/mm_shrink_slab_start")?;
    Ok(tracefs)
}

fn the_stream_has_the_blocks_of_the_files_in_order() -> Result<(), Skip> {
    let tracefs = can_watch()?;
    let mut watch = Watch::start(&tracefs, COPY, &["-e", "slab", "-o", "kept", "--compress", "none"]);
    load_all_cpus();
    sleep(Duration::from_millis(500));
    watch.signal(Signal::TERM);
    let ended = watch.wait();
    assert!(matches!(ended.status, Some(0 | 1)), "{}", ended.stderr);
    let events = check(&ended.stream);
    assert!(events.len() >= load::cpus().unwrap().len(), "CPUs with events: {events:?}");
    let mut files: BTreeMap<u32, Vec<u8>> = BTreeMap::new();
    for block in blocks(&ended.stream) {
        files.entry(block.header.cpu.get()).or_default().extend_from_slice(block.bytes);
    }
    let kept = watch.directory.file("here/kept");
    for (cpu, bytes) in files {
        let name = if cpu == NO_CPU { "meta.out".to_owned() } else { format!("cpu{cpu}.out") };
        assert!(fs::read(kept.join(&name)).unwrap() == bytes, "{name}: other blocks than in the stream");
    }
    let checked = run("kmemtrace-check", &[], &[&kept]);
    assert_eq!(checked.status.code(), ended.status, "{}", String::from_utf8_lossy(&checked.stdout));
    Ok(())
}

fn entries(dir: &Path) -> usize {
    fs::read_dir(dir).unwrap().count()
}

fn no_file_is_made_without_a_name_for_it() -> Result<(), Skip> {
    let tracefs = can_watch()?;
    let viewer = format!("echo \"$@\" >&2; {COPY}");
    let mut watch = Watch::start(&tracefs, &viewer, &["--threshold", "5ms", "-d", "1s"]);
    let here = watch.directory.file("here");
    assert_eq!(entries(&here), 0);
    let ended = watch.wait();
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
    assert_eq!(entries(&here), 0);
    check(&ended.stream);
    assert!(
        ended.stderr.contains("stalls --follow - --viewer --threshold 5ms --flush 200000000ns\n"),
        "{}",
        ended.stderr
    );
    assert!(!ended.stderr.contains("kmemtrace.data"), "{}", ended.stderr);
    Ok(())
}

fn watermarks_hold_under_load_and_go_on_without() -> Result<(), Skip> {
    let tracefs = can_watch()?;
    for clock in ["mono", "global"] {
        let options = ["-e", "slab", "--flush", "100ms", "--clock", clock];
        let mut watch = Watch::start(&tracefs, COPY, &options);
        // Steps take longer on a machine that keeps threads waiting, as the recorder's may.
        let (step, steps, begin) = (Duration::from_millis(2), 350, Instant::now());
        let mut loading = Duration::ZERO;
        for _ in 0..3 {
            let begin = Instant::now();
            load_all_cpus();
            loading += begin.elapsed();
            (0..steps).for_each(|_| sleep(step));
        }
        let stretch = (begin.elapsed() - loading).as_secs_f64() / (step * steps * 3).as_secs_f64();
        let limit = (1_500_000_000.0 * stretch) as u64;
        watch.signal(Signal::INT);
        let ended = watch.wait();
        check(&ended.stream);
        let mut times: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
        for block in blocks(&ended.stream).iter().filter(|block| block.header.kind == kind::WATERMARK) {
            let time = Watermark::read_from_bytes(block.payload).map_or(0, |watermark| watermark.time.get());
            times.entry(block.header.cpu.get()).or_default().push(time);
        }
        for cpu in load::cpus().unwrap() {
            let times = times.get(&(cpu as u32)).cloned().unwrap_or_default();
            let longest = times.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0);
            assert!(times.len() > 8, "clock {clock}, CPU {cpu}: {} watermarks in 2 s", times.len());
            assert!(longest < limit, "clock {clock}, CPU {cpu}: {longest} ns without a watermark, {limit} at most");
        }
    }
    Ok(())
}

fn a_signal_ends_the_stream_in_order() -> Result<(), Skip> {
    let tracefs = can_watch()?;
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let mut watch = Watch::start(&tracefs, COPY, &[]);
        sleep(Duration::from_millis(300));
        watch.signal(signal);
        let ended = watch.wait();
        assert_eq!(ended.status, Some(0), "{signal:?}: {}", ended.stderr);
        check(&ended.stream);
    }
    Ok(())
}

fn a_viewer_that_ends_ends_the_recording() -> Result<(), Skip> {
    let tracefs = can_watch()?;
    for (viewer, status) in [("head -c 300 >/dev/null", 0), ("sleep 1; exit 7", 7), ("sleep 1; kill -9 $$", 3)] {
        let mut watch = Watch::start(&tracefs, viewer, &["-o", "kept"]);
        let ended = watch.wait();
        assert_eq!(ended.status, Some(status), "{viewer}: {}", ended.stderr);
        assert!(ended.stderr.contains("stopped: the viewer has ended"), "{}", ended.stderr);
        run_to(0, "kmemtrace-check", &[], &[&watch.directory.file("here/kept")]);
    }
    Ok(())
}

/// A viewer that takes nothing for a while holds up no writer: what does not fit into 32 MiB is left out, with marks.
fn a_viewer_that_lags_loses_nothing_in_silence() -> Result<(), Skip> {
    let tracefs = can_watch()?;
    let viewer = format!("while [ ! -e go ]; do sleep 0.1; done; {COPY}");
    let mut watch = Watch::start(&tracefs, &viewer, &["-e", "slab", "-b", "16M"]);
    let cpus = load::cpus().unwrap();
    let read = |&cpu: &usize| watch.instance.stat(cpu as u32, "read events").unwrap_or(0);
    // An event has 40 bytes at least.
    until("events", || {
        load_all_cpus();
        cpus.iter().map(read).sum::<u64>() > 2_000_000
    });
    fs::write(watch.directory.file("here/go"), "").unwrap();
    sleep(Duration::from_secs(1));
    watch.signal(Signal::INT);
    let ended = watch.wait();
    assert_eq!(ended.status, Some(1), "{}", ended.stderr);
    let told = ended.stderr.lines().find(|line| line.contains("came faster than they were printed"));
    assert!(told.is_some_and(|line| line.contains("record less, or keep the recording (-o DIR)")), "{}", ended.stderr);
    let (mut sequences, mut events, mut left_out): (BTreeMap<u32, u64>, u64, u64) = Default::default();
    let blocks = blocks(&ended.stream);
    for Block { header, payload, .. } in &blocks {
        let (cpu, sequence) = (header.cpu.get(), header.sequence.get());
        let gap = (header.kind == kind::GAP).then(|| GapRecord::parse(payload)).flatten();
        let mark = gap.map(|(gap, _)| gap).filter(|gap| gap.reason.get() == GAP_NOT_SENT);
        let expected = sequences.insert(cpu, sequence + 1).unwrap_or(0);
        assert!(sequence == expected || mark.is_some() && sequence > expected, "CPU {cpu}: {sequence}, {expected}");
        left_out += mark.map_or(0, |mark| mark.lost.get());
        events += u64::from(header.events.get());
    }
    let ends = blocks.iter().filter(|block| block.header.kind == kind::END && block.header.cpu.get() != NO_CPU);
    let all: u64 = ends.filter_map(|block| Some(End::parse(block.payload)?.events.get())).sum();
    assert!(left_out > 0 && events + left_out == all, "{events} and {left_out} of {all}: {}", ended.stderr);
    Ok(())
}

/// Checks that the viewer, which printed its process id, has ended.
fn assert_viewer_is_gone(ended: &Ended) {
    let pid: i32 = text(&ended.printed).trim().parse().unwrap();
    assert!(!Path::new(&format!("/proc/{pid}")).exists(), "the viewer is left: {}", ended.stderr);
}

fn a_second_signal_ends_it_while_the_viewer_hangs() -> Result<(), Skip> {
    let tracefs = can_watch()?;
    // The viewer takes the names, and the pipe is full some time after.
    let viewer = "echo $$; timeout 3 cat >/dev/null; touch hangs; exec sleep 600";
    let mut watch = Watch::start(&tracefs, viewer, &["-e", "slab"]);
    let hangs = watch.directory.file("here").join("hangs");
    until("viewer that hangs", || hangs.exists());
    load_all_cpus();
    watch.end_by_signals();
    let ended = watch.wait_only();
    assert_eq!(ended.status, Some(3), "{}", ended.stderr);
    assert_viewer_is_gone(&ended);
    Ok(())
}

fn a_viewer_that_takes_nothing_is_left_by_a_second_signal() -> Result<(), Skip> {
    let tracefs = can_watch()?;
    let mut watch = Watch::spawn(&tracefs, "touch began; echo $$; exec sleep 600", &[]);
    let began = watch.directory.file("here").join("began");
    until("viewer", || began.exists());
    // The names do not fit into the pipe.
    sleep(Duration::from_secs(1));
    watch.end_by_signals();
    let ended = watch.wait();
    assert!(matches!(ended.status, Some(2 | 3)), "{:?}: {}", ended.status, ended.stderr);
    assert_viewer_is_gone(&ended);
    Ok(())
}

/// Lines come on a terminal that stops programs in the background that write to it, and nothing is left when it closes.
fn a_terminal_that_closes_ends_it() -> Result<(), Skip> {
    let tracefs = can_watch()?;
    let (name, recorder) = (instance_name(), program("kmemtraced").display().to_string());
    let terminal = Terminal::start(&format!("stty tostop; '{recorder}' watch -B {name} --all-spans"), (100, 30))?;
    terminal.wait_for("watching");
    let instance = Instance::of(&tracefs, &name);
    until("recording", || {
        let enabled = instance.read("events/vmscan/mm_shrink_slab_start/enable");
        enabled.is_ok_and(|enabled| enabled.starts_with('1'))
    });
    fs::write("/proc/sys/vm/drop_caches", "2").unwrap();
    terminal.wait_for("shrinker");
    terminal.close();
    until("end of the instance", || !instance.path().exists());
    until("end of the programs", || {
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let command = |process: &Path| fs::read(process.join("cmdline")).unwrap_or_default();
        !processes.into_iter().any(|process| {
            let words = command(&process.path());
            words.split(|byte| *byte == 0).any(|word| word == name.as_bytes())
        })
    });
    Ok(())
}

fn a_killed_recorder_leaves_nothing_after_recover() -> Result<(), Skip> {
    let tracefs = can_watch()?;
    let mut watch = Watch::start(&tracefs, COPY, &["--functions"]);
    watch.signal(Signal::KILL);
    // The viewer ends with the stream, or this waits for ever.
    let ended = watch.wait_only();
    assert_eq!(ended.status, None);
    run_to(0, "kmemtraced", &["recover", "-B", &watch.name], &[]);
    assert!(!watch.instance.path().exists(), "instance {} is left", watch.name);
    assert_eq!(entries(&watch.directory.file("here")), 0);
    Ok(())
}

/// Members that a printed stall has in common with a row of the view.
const MEMBERS: [&str; 8] = ["at", "end", "pid", "span", "total", "self", "order", "reclaimed"];

fn stall(row: &Value) -> Vec<Value> {
    MEMBERS.iter().map(|member| row[member].clone()).collect()
}

fn stalls_of_the_recording_are_printed_as_they_end() -> Result<(), Skip> {
    let tracefs = can_watch()?;
    let group = MemoryGroup::new(24 << 20)?;
    let (files, name) = (Directory::on_disk(), instance_name());
    let (from, to) = (files.file("from"), files.file("to"));
    fs::write(&from, vec![7; 100 << 20]).unwrap();
    // The last stall is printed before the end, or it is late.
    let load = group.shell(&format!("cp '{}' '{}' && sleep 2", from.display(), to.display()));
    let mut watch = Command::new(program("kmemtraced"));
    watch.args(["watch", "--threshold", "1us", "--format", "jsonl", "-b", "32M", "-B", &name, "-o"]);
    watch.arg(files.file("trace")).args(sandbox()).arg("--").arg(load.get_program()).args(load.get_args());
    let spawned = watch.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut watch = spawned.unwrap();
    let (mut printed, mut late) = (Vec::new(), Vec::new());
    for line in watch.stdout.take().map(BufReader::new).into_iter().flat_map(BufReader::lines) {
        let now = clock_gettime(ClockId::Monotonic);
        let row = json(line.unwrap().as_bytes());
        if let Some(end) = row["end"].as_u64() {
            late.push((now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64).saturating_sub(end) / 1_000_000);
            printed.push(stall(&row));
        }
    }
    let ended = watch.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(0), "{stderr}");
    assert!(!tracefs.path().join("instances").join(&name).exists(), "instance {name} is left");
    let arguments = ["stalls", "--threshold", "1us", "--sort", "time", "--format", "json"];
    let document = json(&run_to(0, "kmemtrace-report", &arguments, &[&files.file("trace")]));
    let mut rows: Vec<_> = document["rows"].as_array().into_iter().flatten().map(stall).collect();
    let by_time = |row: &Vec<Value>| (row[1].as_u64(), row[2].as_u64());
    rows.sort_by_key(by_time);
    printed.sort_by_key(by_time);
    assert!(rows.len() > 10, "{} stalls: {stderr}", rows.len());
    assert_eq!(printed, rows);
    late.sort_unstable();
    // The flush interval and half a second; a machine that does other things, too, delays some.
    let (median, latest) = (late[late.len() / 2], late[late.len() - 1]);
    assert!(median <= 700 && latest < 4000, "stalls are printed {median} ms late, the last {latest} ms");
    Ok(())
}

/// The kernel tells the name of a command that has ended already: a line waits for it.
fn lines_have_the_names_of_commands_that_have_ended() -> Result<(), Skip> {
    can_watch()?;
    let (files, group) = (Directory::on_disk(), MemoryGroup::new(20 << 20)?);
    let (from, to) = (files.file("from").display().to_string(), files.file("to").display().to_string());
    fs::write(&from, vec![7; 2 << 20]).unwrap();
    let load = group.shell(&format!("for i in $(seq 40); do head -c 2M '{from}' >'{to}'$i; done; sleep 2"));
    let mut watch = Command::new(program("kmemtraced"));
    watch.args(["watch", "--threshold", "1us", "--format", "jsonl", "-b", "32M", "-B", &instance_name()]);
    let output = watch
        .args(sandbox())
        .arg("--")
        .arg(load.get_program())
        .args(load.get_args())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let rows = json_lines(&output.stdout);
    let stalls = rows.iter().filter(|row| row["end"].is_u64());
    let (named, unnamed): (Vec<&Value>, Vec<&Value>) = stalls.partition(|row| row["comm"].is_string());
    assert!(named.iter().filter(|row| row["comm"] == "head").count() > 10, "{named:?}");
    // A machine that does other things, too, lets a name come late now and then.
    assert!(unnamed.len() * 10 <= named.len(), "{} of {} lines have no name", unnamed.len(), rows.len());
    Ok(())
}
