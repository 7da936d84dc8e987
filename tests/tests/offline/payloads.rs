//! Blocks with right checksums and senseless contents: report, checker and `pack` end by themselves, with an exit
//! status of the contract.
//!
//! `KMEMTRACE_SEEDS=FROM..TO` tries other traces than the usual ones.

use std::time::Duration;

use kmemtrace_abi::disk::block::{
    BlockInfo, CounterSample, End, GAP_CLEARED, GAP_FOREIGN, GAP_NOT_WRITTEN, GapRecord, Interval, block, item, kind,
};
use kmemtrace_abi::disk::salvage::{Piece, pieces};
use kmemtrace_tests::generate::{Options, Random, Shape, trace_dir, workload};
use kmemtrace_tests::programs::run_within;
use kmemtrace_tests::recording::Directory;
use kmemtrace_tests::runs::seeds;
use zerocopy::IntoBytes;

const LIMIT: Duration = Duration::from_secs(60);

/// Blocks of a file.
type Blocks = Vec<(BlockInfo, Vec<u8>)>;

/// Small recording with samples of counters, gap blocks, the recorder's threads, and end blocks; CPU 0 also as blocks.
fn recording(seed: u64) -> (Vec<(String, Vec<u8>)>, Blocks) {
    let mut options = Options::plain(Shape::plain(), 2, 80);
    (options.loss, options.uncounted, options.recorder_loss) = (true, seed % 2 == 1, true);
    (options.unplaced, options.timed, options.foreign, options.own_threads) = (true, true, true, true);
    let files = trace_dir(&workload(seed, &options), seed);
    let blocks = blocks(&files[0].1);
    (files, blocks)
}

fn blocks(file: &[u8]) -> Blocks {
    let whole = |piece: Piece<'_>| match piece {
        Piece::Block { info, payload, .. } => (info, payload.to_vec()),
        Piece::Other(_) => panic!("a generated file has whole blocks only"),
    };
    pieces(file).map(whole).collect()
}

fn file(blocks: &Blocks) -> Vec<u8> {
    blocks.iter().flat_map(|(info, payload)| block(info, payload)).collect()
}

/// Runs every reader on a directory; none may panic or hang.
fn assert_readers_end(what: &str, dir: &Directory) {
    let readers: [(&str, &[&str]); 6] = [
        ("kmemtrace-report", &["summary", "--own", "--index-from", "0"]),
        ("kmemtrace-report", &["mismatch", "--format", "csv", "--index-from", "0", "--time", "10%,90%"]),
        ("kmemtrace-report", &["live", "--format", "json", "--no-index", "-j", "3"]),
        ("kmemtrace-report", &["events", "--no-index"]),
        ("kmemtrace-check", &["--format", "json"]),
        ("kmemtrace-report", &["pack", "-f"]),
    ];
    for (program, arguments) in readers {
        let output = run_within(LIMIT, program, arguments, &[dir.path()]);
        let is_known = output.status.code().is_some_and(|code| (0..=3).contains(&code));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(is_known && !said.contains("panicked"), "{what}: {program} {arguments:?}: {} {said}", output.status);
    }
}

/// Tries each change of CPU 0's file in a directory of its own.
fn try_each(files: &[(String, Vec<u8>)], changed: impl IntoIterator<Item = (String, Blocks)>) {
    for (what, blocks) in changed {
        let dir = Directory::new(files);
        dir.write("cpu0.out", &file(&blocks));
        assert_readers_end(&what, &dir);
    }
}

/// Indexes of the first block of each kind that records loss.
fn telling(blocks: &Blocks) -> Vec<usize> {
    let first = |kind: u8| blocks.iter().position(|(info, _)| info.kind == kind);
    [kind::COUNTERS, kind::GAP, kind::END].into_iter().filter_map(first).collect()
}

#[test]
fn intervals_that_make_no_sense_end_no_reader() {
    let (files, blocks) = recording(1);
    let middle = blocks.iter().map(|(info, _)| info.first).rfind(|&first| first > 0).unwrap();
    let times = [0, 1, middle, middle + 1, u64::MAX - 1, u64::MAX];
    let pairs: Vec<(u64, u64)> = times.iter().flat_map(|&from| times.iter().map(move |&to| (from, to))).collect();
    let changed = pairs.into_iter().flat_map(|(from, to)| {
        // All blocks get the interval; counters and numbers stay, or become as great as they can be.
        [false, true].map(|is_greatest| {
            let mut changed = blocks.clone();
            for (info, payload) in &mut changed {
                forge(info.kind, payload, Interval::new(from, to), is_greatest);
            }
            (format!("from {from} to {to}, greatest {is_greatest}"), changed)
        })
    });
    try_each(&files, changed);
}

/// Sets the interval of a payload that has one; with `is_greatest`, also sets every number before it to all ones, and
/// a gap's reason to an existing one.
fn forge(of: u8, payload: &mut Vec<u8>, interval: Interval, is_greatest: bool) {
    match of {
        kind::COUNTERS => {
            let mut sample = CounterSample::parse(payload).unwrap();
            sample.grew = interval;
            if is_greatest {
                sample.counters.as_mut_bytes().fill(0xff);
            }
            *payload = sample.as_bytes().to_vec();
        }
        kind::GAP => {
            let (mut record, text) = GapRecord::parse(payload).map(|(gap, text)| (gap, text.to_vec())).unwrap();
            record.interval = interval;
            if is_greatest {
                let reasons = [GAP_CLEARED, GAP_NOT_WRITTEN, GAP_FOREIGN, u32::MAX];
                record.lost = (u64::MAX - 1).into();
                record.reason = reasons[record.reason.get() as usize % reasons.len()].into();
            }
            *payload = [record.as_bytes(), &text].concat();
        }
        kind::END => {
            let mut end = End::parse(payload).unwrap();
            if is_greatest {
                end.as_mut_bytes().fill(0xff);
            }
            end.grew = interval;
            *payload = end.as_bytes().to_vec();
        }
        _ => {}
    }
}

#[test]
fn payloads_of_any_length_end_no_reader() {
    let (files, blocks) = recording(2);
    let telling = telling(&blocks);
    assert_eq!(telling.len(), 3, "a sample, a gap block and an end block");
    let step = if std::env::var_os("KMEMTRACE_SEEDS").is_some() { 1 } else { 8 };
    let changed = telling.into_iter().flat_map(|at| {
        let blocks = &blocks;
        (0..=128).step_by(step).map(move |len| {
            let mut changed = blocks.clone();
            changed[at].1.resize(len, 0xff);
            (format!("block {at} of kind {} with {len} bytes", changed[at].0.kind), changed)
        })
    });
    try_each(&files, changed);
}

#[test]
fn single_bytes_and_header_fields_that_were_forged_end_no_reader() {
    for seed in seeds(3..5) {
        let (files, blocks) = recording(seed);
        let mut random = Random::new(seed);
        let changed = (0..40).map(|_| {
            let mut changed = blocks.clone();
            let at = random.below(changed.len() as u64) as usize;
            let (info, payload) = &mut changed[at];
            let extremes = [0, 1, info.first, info.last + 1, u64::MAX - 1, u64::MAX];
            let value = *random.pick(&extremes);
            let field = random.below(12);
            match field {
                0 => info.first = value,
                1 => info.last = value,
                2 => info.sequence = value,
                3 => info.events_before = value,
                4 => info.lost_before = value,
                5 => info.events = value as u32,
                6 => info.kind = random.below(8) as u8,
                7 => info.cpu = value as u32,
                _ if payload.is_empty() => {}
                _ => {
                    let byte = random.below(payload.len() as u64) as usize;
                    payload[byte] = *random.pick(&[0, 1, 0x7f, 0x80, 0xfe, 0xff, b'\n', b'%']);
                }
            }
            (format!("seed {seed}, block {at}, field {field}, {value}"), changed)
        });
        let changed: Vec<_> = changed.collect();
        try_each(&files, changed);
    }
}

/// Payload whose items of one tag have other bytes.
fn with_item(payload: &[u8], tag: u16, bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for found in item::walk(payload) {
        let (found, flags, old) = found.unwrap();
        item::put(&mut out, found, flags, if found == tag { bytes } else { old });
    }
    out
}

#[test]
fn clocks_and_thread_lists_of_odd_bytes_end_no_reader() {
    let (files, blocks0) = recording(5);
    let long = b"9".repeat(30_000);
    let odd: [&[u8]; 12] = [
        b"",
        b"\0",
        b"\n\n\n",
        b"\xff\xfe",
        b"\x1b]52;c;x\x07",
        b"local\0mono",
        b"x86-tsc",
        b"uptime",
        b"-1\n0\n2147483648\n",
        b"1\n1\n1\n2147483647\n-2147483648",
        "\u{202e}%s%n".as_bytes(),
        &long,
    ];
    for bytes in odd {
        let dir = Directory::new(&files);
        for (name, old) in &files {
            let mut blocks = if name == "cpu0.out" { blocks0.clone() } else { blocks(old) };
            for (info, payload) in &mut blocks {
                if matches!(info.kind, kind::FILE_HEADER | kind::META) {
                    *payload = with_item(&with_item(payload, item::CLOCK, bytes), item::OWN_THREADS, bytes);
                }
            }
            dir.write(name, &file(&blocks));
        }
        assert_readers_end(&String::from_utf8_lossy(&bytes[..bytes.len().min(30)]), &dir);
    }
}
