//! Stalls that are printed as they end: of streams, whole, cut and damaged, and of directories that grow.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use kmemtrace_abi::disk::block::{CounterSample, Counters, GAP_FOREIGN, GapRecord, Interval, LOST_UNKNOWN, kind};
use kmemtrace_tests::growing::Growing;
use kmemtrace_tests::interleaved;
use kmemtrace_tests::programs::{data, document, json_lines, program, stderr};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use zerocopy::IntoBytes;

const REPORT: &str = "kmemtrace-report";
const RECORDINGS: [&str; 2] = ["latency-amd64-6.18", "latency-amd64-6.12"];
/// Members that a live line has in common with a row of `stalls`.
const MEMBERS: [&str; 12] =
    ["at", "end", "pid", "comm", "span", "total", "self", "order", "gfp", "reclaimed", "call_site", "symbol"];

/// The report, following a stream.
fn follower(arguments: &[&str]) -> Child {
    let mut command = Command::new(program(REPORT));
    command.args(["stalls", "--follow"]).args(arguments).stdin(Stdio::piped());
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Output of the report over a stream of these bytes.
fn follow(bytes: &[u8], arguments: &[&str]) -> Output {
    let mut child = follower(&[&["-"], arguments].concat());
    let mut stdin = child.stdin.take().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            // The report may end before it has read all.
            let _ = stdin.write_all(bytes);
        });
        child.wait_with_output().unwrap()
    })
}

/// Lines of spans, and the last line.
fn lines(output: &Output) -> (Vec<Value>, Value) {
    stderr(0, output);
    let mut lines = json_lines(&output.stdout);
    assert_eq!(lines[0]["schema"], "kmemtrace.follow/1");
    let end = lines.pop().unwrap();
    assert!(end["totals"].is_object(), "{end}");
    (lines.split_off(1), end)
}

/// Members and the spans inside, in an order of their own.
fn keys<'v>(rows: impl IntoIterator<Item = &'v Value>) -> Vec<String> {
    let key = |row: &Value| {
        let members: Vec<&Value> = MEMBERS.iter().map(|member| &row[*member]).collect();
        format!("{members:?} {}", row["inside"])
    };
    let mut keys: Vec<String> = rows.into_iter().map(key).collect();
    keys.sort();
    keys
}

fn clean(rows: &[Value]) -> impl Iterator<Item = &Value> {
    rows.iter().filter(|row| row["suspect"] == false && row["class"] == "stall")
}

#[test]
fn a_stream_has_the_stalls_of_its_recording() {
    for name in RECORDINGS {
        let bytes = interleaved::blocks(&data(name)).concat();
        let rows = document(&["stalls"], &data(name))["rows"].as_array().unwrap().clone();
        let mut totals: Vec<u64> = rows.iter().map(|row| row["total"].as_u64().unwrap()).collect();
        totals.sort_unstable();
        let middle = format!("{}ns", totals[totals.len() / 2]);
        for threshold in ["0ns", &middle] {
            let rows = document(&["stalls", "--threshold", threshold], &data(name));
            let rows = rows["rows"].as_array().unwrap();
            let (found, end) = lines(&follow(&bytes, &["--threshold", threshold, "--format", "jsonl"]));
            assert!(!found.is_empty());
            assert_eq!(keys(clean(&found)), keys(rows), "{name} {threshold}");
            assert_eq!(end["totals"]["listed"]["count"], rows.len(), "{name}");
            assert_eq!(end["totals"]["stalls"]["count"], totals.len(), "{name}");
            assert_eq!(end["shrinkers"], document(&["shrinkers"], &data(name))["rows"], "{name}");
            assert_eq!(end["completeness"]["verdict"], "complete", "{end}");
            let ends: Vec<u64> = found.iter().map(|row| row["end"].as_u64().unwrap()).collect();
            assert!(ends.is_sorted(), "{name}");
        }
        let (all, _) = lines(&follow(&bytes, &["--all-spans", "--format", "jsonl"]));
        let spans = document(&["latency"], &data(name));
        let count: u64 = spans["spans"].as_array().unwrap().iter().map(|row| row["count"].as_u64().unwrap()).sum();
        assert_eq!(all.iter().filter(|row| row["suspect"] == false).count() as u64, count, "{name}");
    }
}

#[test]
fn a_stream_that_is_cut_at_any_block_ends_with_what_it_had() {
    let blocks = interleaved::blocks(&data(RECORDINGS[0]));
    let rows = document(&["stalls"], &data(RECORDINGS[0]));
    let whole = keys(rows["rows"].as_array().unwrap());
    let first = blocks.iter().position(|block| block[18] == 2).unwrap();
    let mut most = 0;
    for cut in (0..blocks.len()).step_by((blocks.len() / 25).max(1)) {
        let mut bytes = blocks[..cut].concat();
        // In the middle of a block, too.
        bytes.extend_from_slice(&blocks[cut][..blocks[cut].len() / 2]);
        let output = follow(&bytes, &["--format", "jsonl"]);
        let errors = String::from_utf8(output.stderr.clone()).unwrap();
        assert!(!errors.contains("panicked"), "{errors}");
        if cut < first {
            continue;
        }
        let (found, end) = lines(&output);
        let found = keys(clean(&found));
        assert!(found.iter().all(|key| whole.binary_search(key).is_ok()), "cut at {cut}");
        assert_eq!(end["completeness"]["verdict"], "truncated", "cut at {cut}: {end}");
        assert!(errors.contains("the recorder ended before its files did"), "{errors}");
        most = most.max(found.len());
    }
    assert!(most > whole.len() / 2, "{most} of {}", whole.len());
}

#[test]
fn what_is_no_stream_is_refused_in_one_line() {
    let blocks = interleaved::blocks(&data(RECORDINGS[0]));
    let middle = blocks.iter().position(|block| block[18] == 2).unwrap();
    let elf = b"\x7fELF\x02\x01\x01 and more".to_vec();
    let inputs = [vec![], b"nonsense\n".repeat(1000), elf, blocks[0][..50].to_vec(), blocks[middle..].concat()];
    for bytes in inputs {
        let output = follow(&bytes, &[]);
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), errors.lines().count()), (Some(3), 1), "{errors}");
        assert!(errors.contains("standard input: "), "{errors}");
    }
}

#[test]
fn damage_costs_what_it_touches() {
    let blocks = interleaved::blocks(&data(RECORDINGS[0]));
    let whole = keys(document(&["stalls"], &data(RECORDINGS[0]))["rows"].as_array().unwrap());
    let first = blocks.iter().position(|block| block[18] == 2).unwrap();
    let places: Vec<usize> = (first..blocks.len()).filter(|&place| blocks[place][18] == 2).collect();
    for (kind, &place) in places.iter().step_by((places.len() / 12).max(1)).enumerate() {
        let mut damaged = blocks.clone();
        match kind % 4 {
            0 => damaged[place][30] ^= 1,
            1 => *damaged[place].last_mut().unwrap() ^= 0x80,
            2 => damaged[place] = b"\x89kmTRC garbage \x89".repeat(300),
            _ => damaged.swap(place, place + 1),
        }
        let (found, end) = lines(&follow(&damaged.concat(), &["--format", "jsonl"]));
        let found = keys(clean(&found));
        assert!(found.iter().all(|key| whole.binary_search(key).is_ok()), "damage {kind} of block {place}");
        if kind % 4 < 3 {
            assert_ne!(end["completeness"]["verdict"], "complete", "damage {kind} of block {place}");
        }
    }
}

/// Stalls of a stream with these blocks of CPU 0 more: those that are clean, those that are suspect, and errors.
fn with_loss(more: &[(u8, Vec<u8>)]) -> (Vec<Value>, Vec<Value>, String) {
    let output = follow(&interleaved::blocks_with(&data(RECORDINGS[0]), more).concat(), &["--format", "jsonl"]);
    let errors = String::from_utf8(output.stderr.clone()).unwrap();
    let (found, end) = lines(&output);
    let (suspect, clean): (Vec<Value>, Vec<Value>) = found.into_iter().partition(|row| row["suspect"] == true);
    assert_eq!(end["totals"]["listed"]["suspect"]["count"], suspect.len());
    (clean, suspect, errors)
}

#[test]
fn loss_that_a_block_tells_of_marks_the_stalls_that_it_touches() {
    let whole = document(&["stalls", "--sort", "time"], &data(RECORDINGS[0]));
    let whole = whole["rows"].as_array().unwrap();
    let time = |row: &Value, member: &str| row[member].as_u64().unwrap();
    // From the middle of a stall to that of a later one.
    let middle = |row: &Value| time(row, "at").midpoint(time(row, "end"));
    let (from, to) = (middle(&whole[whole.len() / 3]), middle(&whole[whole.len() / 2]));
    let is_touched = |row: &&Value| time(row, "end") >= from && time(row, "at") <= to;
    let touched: Vec<&Value> = whole.iter().filter(is_touched).collect();
    let counters = Counters { dropped: 5.into(), ..Counters::default() };
    let sample = CounterSample { counters, grew: Interval::new(from, to) };
    let hand = |to: u64| {
        let record = GapRecord {
            lost: LOST_UNKNOWN.into(),
            reason: GAP_FOREIGN.into(),
            reserved: 0.into(),
            interval: Interval::new(from, to),
        };
        (kind::GAP, [record.as_bytes(), b"events/enable"].concat())
    };
    for more in [vec![(kind::COUNTERS, sample.as_bytes().to_vec())], vec![hand(Interval::TO_THE_END), hand(to)]] {
        let (clean, suspect, errors) = with_loss(&more);
        assert_eq!(keys(&suspect), keys(touched.iter().copied()));
        assert_eq!(clean.len() + suspect.len(), whole.len());
        assert!(!errors.contains("at no known time"), "{errors}");
    }
    let (clean, suspect, _) = with_loss(&[]);
    assert_eq!((clean.len(), suspect.len()), (whole.len(), 0));
}

#[test]
fn a_stall_is_printed_once_its_blocks_are_there() {
    let blocks = interleaved::blocks(&data(RECORDINGS[0]));
    let whole = document(&["stalls"], &data(RECORDINGS[0]));
    let first_end = whole["rows"].as_array().unwrap().iter().map(|row| row["end"].as_u64().unwrap()).min().unwrap();
    // Blocks up to the first watermark, of each CPU, that is behind the first stall.
    let time = |block: &[u8]| u64::from_le_bytes(block[96..104].try_into().unwrap());
    let is_behind = |block: &Vec<u8>| block[18] == 7 && time(block) > first_end || block[18] == 6;
    let enough = blocks.iter().position(is_behind).unwrap() + 1;
    let mut child = follower(&["-", "--format", "jsonl"]);
    let mut stdin = child.stdin.take().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let written = Instant::now();
    stdin.write_all(&blocks[..enough].concat()).unwrap();
    let mut text = String::new();
    stdout.read_line(&mut text).unwrap();
    text.clear();
    stdout.read_line(&mut text).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&text).unwrap()["end"], first_end);
    assert!(written.elapsed() < Duration::from_secs(5), "{:?}", written.elapsed());
    // TERM ends it, with the totals, though the stream is open.
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    text.clear();
    stdout.read_to_string(&mut text).unwrap();
    assert!(text.lines().next_back().unwrap().contains("\"totals\""), "{text}");
    assert_eq!(child.wait().unwrap().code(), Some(0));
    drop(stdin);
}

#[test]
fn a_closed_pipe_ends_it_in_silence() {
    let blocks = interleaved::blocks(&data(RECORDINGS[0]));
    let mut child = follower(&["-"]);
    let mut stdin = child.stdin.take().unwrap();
    drop(child.stdout.take());
    // The stream stays open, and has nothing to print.
    let _ = stdin.write_all(&blocks[..3].concat());
    let mut errors = String::new();
    child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
    assert_eq!((child.wait().unwrap().code(), errors.as_str()), (Some(0), ""));
    drop(stdin);
}

/// The follower has ended, and its lines are the stalls of the whole recording.
fn assert_whole(child: Child, recording: &Path) {
    let (found, end) = lines(&child.wait_with_output().unwrap());
    let rows = document(&["stalls"], recording);
    assert_eq!(keys(clean(&found)), keys(rows["rows"].as_array().unwrap()));
    assert_eq!(end["completeness"]["verdict"], "complete");
}

#[test]
fn a_directory_is_followed_while_it_grows() {
    let recording = data(RECORDINGS[0]);
    let mut growing = Growing::new(&recording);
    let directory = growing.directory.path().to_owned();
    // The recorder writes the last names when all events are there.
    let names = std::fs::read(directory.join("meta.out")).unwrap();
    std::fs::write(directory.join("meta.out"), &names[..names.len() - 10]).unwrap();
    let mut child = follower(&[directory.to_str().unwrap(), "--format", "jsonl"]);
    drop(child.stdin.take());
    let (first, last) = growing.times;
    for step in 1..=4 {
        growing.grow_to(first + (last - first) / 4 * step);
        std::thread::sleep(Duration::from_millis(200));
    }
    growing.finish();
    std::thread::sleep(Duration::from_millis(300));
    std::fs::write(directory.join("meta.out"), &names).unwrap();
    let _directory = growing.unlock();
    assert_whole(child, &recording);
}

/// A recorder that has just started has made a file, and not yet written its first block.
#[test]
fn a_file_without_its_first_block_is_waited_for() {
    let recording = data(RECORDINGS[0]);
    for there in [0, 96] {
        let mut growing = Growing::new(&recording);
        let directory = growing.directory.path().to_owned();
        let header = std::fs::read(directory.join("cpu1.out")).unwrap();
        std::fs::write(directory.join("cpu1.out"), &header[..there]).unwrap();
        let mut child = follower(&[directory.to_str().unwrap(), "--format", "jsonl"]);
        drop(child.stdin.take());
        std::thread::sleep(Duration::from_millis(300));
        std::fs::write(directory.join("cpu1.out"), header).unwrap();
        growing.finish();
        let _directory = growing.unlock();
        assert_whole(child, &recording);
    }
}

/// A recorder may need long before it has a file of a CPU: on a machine in trouble, or while it sets up many events.
#[test]
fn a_recorder_without_a_file_of_a_cpu_is_waited_for() {
    let recording = data(RECORDINGS[0]);
    let mut growing = Growing::new(&recording);
    let path = |name: &str| growing.directory.file(name);
    let files = ["cpu0.out", "cpu1.out"].map(|name| (path(name), std::fs::read(path(name)).unwrap()));
    files.iter().for_each(|(path, _)| std::fs::remove_file(path).unwrap());
    let mut child = follower(&[growing.directory.path().to_str().unwrap(), "--format", "jsonl"]);
    drop(child.stdin.take());
    // Longer than between its first file and its last one.
    std::thread::sleep(Duration::from_millis(5500));
    files.iter().for_each(|(path, bytes)| std::fs::write(path, bytes).unwrap());
    growing.finish();
    let _directory = growing.unlock();
    assert_whole(child, &recording);
}

/// The merge has passed the times of events that come late: spans that they begin or end have wrong lengths.
#[test]
fn spans_of_events_that_come_late_are_suspect() {
    let recording = data(RECORDINGS[1]);
    let rows = document(&["stalls"], &recording);
    let whole = keys(rows["rows"].as_array().unwrap());
    let mut marked = 0;
    for early in ["cpu0.out", "cpu1.out"] {
        let mut growing = Growing::new(&recording);
        let directory = growing.directory.path().to_owned();
        let child = follower(&[directory.to_str().unwrap(), "--format", "jsonl", "--flush", "1ms"]);
        std::thread::sleep(Duration::from_millis(300));
        growing.finish_file(early);
        std::thread::sleep(Duration::from_millis(700));
        growing.finish();
        let _directory = growing.unlock();
        let (found, end) = lines(&child.wait_with_output().unwrap());
        assert!(end["totals"]["late_events"].as_u64() > Some(0), "{early}: {end}");
        // Lines that were printed before stay.
        let since = found.iter().position(|line| line["suspect"] == true).unwrap_or(found.len());
        let since = keys(clean(&found[since..]));
        assert!(since.iter().all(|key| whole.binary_search(key).is_ok()), "{early}: {since:?}");
        marked += found.iter().filter(|line| line["suspect"] == true).count();
    }
    assert!(marked > 0);
}

#[test]
fn a_recorder_that_is_killed_leaves_what_there_is() {
    let recording = data(RECORDINGS[0]);
    let mut growing = Growing::new(&recording);
    let directory = growing.directory.path().to_owned();
    let child = follower(&[directory.to_str().unwrap(), "--format", "jsonl"]);
    let (first, last) = growing.times;
    growing.grow_to(first + (last - first) / 2);
    std::thread::sleep(Duration::from_millis(300));
    let _directory = growing.unlock();
    let output = child.wait_with_output().unwrap();
    let (found, end) = lines(&output);
    let rows = document(&["stalls"], &recording);
    let whole = keys(rows["rows"].as_array().unwrap());
    assert!(keys(clean(&found)).iter().all(|key| whole.binary_search(key).is_ok()));
    assert_eq!(end["completeness"]["verdict"], "truncated");
    assert!(String::from_utf8_lossy(&output.stderr).contains("the recorder ended before its files did"));
}

#[test]
fn filters_and_events_inside_are_those_of_the_view() {
    let bytes = interleaved::blocks(&data(RECORDINGS[0])).concat();
    let all = document(&["stalls"], &data(RECORDINGS[0]));
    let row = &all["rows"][0];
    let symbol = row["symbol"].as_str().unwrap().split('+').next().unwrap().to_owned();
    let pid = row["pid"].to_string();
    for filter in [["--site", symbol.as_str()], ["--pid", pid.as_str()], ["--span", "memcg"], ["--comm", "no such"]] {
        let rows = document(&[&["stalls"], &filter[..]].concat(), &data(RECORDINGS[0]));
        let (found, end) = lines(&follow(&bytes, &[&filter[..], &["--format", "jsonl"]].concat()));
        assert_eq!(keys(clean(&found)), keys(rows["rows"].as_array().unwrap()), "{filter:?}");
        assert_eq!(end["totals"]["listed"]["count"], rows["rows"].as_array().unwrap().len(), "{filter:?}");
    }
    let timeline = document(&["stalls", "--timeline", "--sort", "time"], &data(RECORDINGS[0]));
    let (found, _) = lines(&follow(&bytes, &["--timeline", "--format", "jsonl"]));
    let events = |rows: &[Value]| {
        let mut all: Vec<String> = rows.iter().map(|row| format!("{} {}", row["at"], row["events"])).collect();
        all.sort();
        all
    };
    assert_eq!(events(&found), events(timeline["rows"].as_array().unwrap()));
}

#[test]
fn options_that_need_an_end_are_refused() {
    for (arguments, word) in [
        (&["--sort", "time"][..], "--sort"),
        (&["-n", "3"], "--top"),
        (&["--time", "1s,2s"], "--time"),
        (&["--format", "json"], "--format"),
        (&["--format", "csv"], "--format"),
    ] {
        let output = follow(b"", arguments);
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), errors.lines().count()), (Some(2), 1), "{errors}");
        assert!(errors.contains(word), "{errors}");
    }
}
