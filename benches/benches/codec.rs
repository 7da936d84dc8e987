//! The codec of records: bytes and processor time of an event, of the samples in `tests/data` and, beside zstd, of blocks of a used
//! buffer. The latter needs root and tracefs, or `KMEMTRACE_BENCH_RECORDING=DIR`: a recording made with `--compress none`.

#![allow(clippy::unwrap_used, reason = "a benchmark fails by panicking")]

use std::fs;
use std::hint::black_box;
use std::path::{Path, PathBuf};

use kmemtrace_abi::codec::{Decoder, Encoder};
use kmemtrace_abi::disk::block::kind;
use kmemtrace_abi::disk::expand::Expander;
use kmemtrace_abi::disk::salvage::{Piece, pieces};
use kmemtrace_abi::kernel::format::PageShape;
use kmemtrace_abi::kernel::subbuffer::tally;
use kmemtrace_abi::open;
use kmemtrace_benches::{build, seconds, table};
use kmemtrace_tests::live::Tracefs;
use kmemtrace_tests::programs::{data, program, run_to};
use kmemtrace_tests::recording::Directory;
use kmemtrace_tests::runner::Skip;

/// Bytes of a CPU after which its buffer has been filled: records have stale bytes from then on.
const USED: usize = 20 << 20;
/// Bytes that are measured.
const MEASURED: usize = 64 << 20;
/// Rounds of each measurement; the least time counts.
const ROUNDS: usize = 5;
/// Samples with formats of their own kind: five architectures, a buffer that was used, page events with stacks in long form.
const SAMPLES: [&str; 8] = [
    "amd64-6.18",
    "amd64-6.1",
    "i386-6.1",
    "ppc64el-6.1",
    "arm64-16k-6.12",
    "s390x-6.1",
    "used-buffer/slab-amd64-6.18.out.zst",
    "used-buffer/stacks-amd64-6.18.out.zst",
];

fn main() {
    // `cargo test` and `cargo bench -- --list` run this, too.
    if !std::env::args().any(|a| a == "--bench") {
        return;
    }
    samples();
    if let Some(recording) = std::env::var_os("KMEMTRACE_BENCH_RECORDING") {
        return measure(&PathBuf::from(recording));
    }
    if let Err(Skip(reason)) = Tracefs::find() {
        return println!("skipped: codec: {reason}");
    }
    build();
    let directory = Directory::new(&[]);
    let trace = directory.file("trace");
    let (load, trace_name) = (program("kmemload"), trace.to_string_lossy().into_owned());
    let words = ["-q", "--compress", "none", "-o", &trace_name, "--", &*load.to_string_lossy(), "mix"];
    run_to(0, "kmemtraced", &[&words[..], &[&seconds(8).to_string()]].concat(), &[]);
    measure(&trace);
}

/// Payloads of a CPU's file behind so many bytes, and their encoder.
fn blocks(file: &[u8], from: usize) -> (Vec<Vec<u8>>, Encoder, PageShape) {
    let (mut encoder, mut expander, mut blocks, mut seen) = (None, Expander::default(), Vec::new(), 0);
    for piece in pieces(file) {
        let Piece::Block { info, payload, whole } = piece else { continue };
        match info.kind {
            kind::FILE_HEADER => encoder = open::encoder::of_file_header(payload),
            kind::DATA => {
                let raw = expander.payload_of(whole).unwrap();
                seen += raw.len();
                if (from..from + MEASURED).contains(&seen) {
                    blocks.push(raw.to_vec());
                }
            }
            _ => {}
        }
    }
    let (encoder, shape) = encoder.unwrap();
    (blocks, encoder, shape)
}

/// Files of the CPUs of a sample: its directory, or a packed file.
fn files(sample: &str) -> Vec<Vec<u8>> {
    let path = data(sample);
    if path.is_file() {
        return vec![zstd::decode_all(&*fs::read(path).unwrap()).unwrap()];
    }
    let paths = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    let is_of_cpu = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("cpu"));
    paths.filter(is_of_cpu).map(|path| fs::read(path).unwrap()).collect()
}

/// Bytes and processor time of an event of each sample. A sample has less than a block of full size for each CPU, so most of its
/// records are the first of their kind.
fn samples() {
    let mut rows = Vec::new();
    for sample in SAMPLES {
        let (mut events, mut raw_bytes, mut bytes, mut encoding, mut decoding) = (0, 0, 0, 0, 0);
        for file in files(sample) {
            let (raw, mut encoder, _) = blocks(&file, 0);
            let (coded, counted) = encode(&mut encoder, &raw);
            events += counted;
            raw_bytes += raw.iter().map(Vec::len).sum::<usize>();
            bytes += coded.iter().map(Vec::len).sum::<usize>();
            let repeat = |work: &mut dyn FnMut()| {
                // Once is too short to be measured.
                const TIMES: u64 = 20;
                least(|| (0..TIMES).for_each(|_| work())) / TIMES
            };
            encoding += repeat(&mut || encode_all(&mut encoder, &raw));
            decoding += repeat(&mut || decode_all(&coded, &raw));
        }
        let of = |n: f64| format!("{:.2}", n / events as f64);
        let figures = [raw_bytes as f64, bytes as f64, encoding as f64, decoding as f64].map(of);
        rows.push([&[sample.to_owned(), events.to_string()], &figures[..]].concat());
    }
    let head = ["sample", "events", "raw bytes/event", "encoded", "encode ns/event", "decode ns/event"];
    table("the samples, all blocks of all CPUs", &head, &rows);
}

/// The encoded blocks, and the number of their events.
fn encode(encoder: &mut Encoder, raw: &[Vec<u8>]) -> (Vec<Vec<u8>>, u64) {
    let mut events = 0;
    let encode = |block: &Vec<u8>| {
        // A block that would not become smaller is stored as it is.
        let mut out = vec![0; 2 * block.len()];
        let len = encoder.encode(block, &mut out, &mut |counts| events += counts.events).unwrap();
        out.truncate(len);
        out
    };
    let coded = raw.iter().map(encode).collect();
    (coded, events)
}

fn encode_all(encoder: &mut Encoder, raw: &[Vec<u8>]) {
    let mut out = vec![0; 2 * raw.iter().map(Vec::len).max().unwrap_or(0)];
    for block in raw {
        black_box(encoder.encode(block, &mut out, &mut |_| {}));
    }
}

fn decode_all(coded: &[Vec<u8>], raw: &[Vec<u8>]) {
    let (mut decoder, mut back) = (Decoder::default(), Vec::new());
    for (coded, raw) in coded.iter().zip(raw) {
        decoder.decode(coded, raw.len(), &mut back).unwrap();
        black_box(&back);
    }
}

/// Least processor time of this thread for `work`, ns.
fn least(mut work: impl FnMut()) -> u64 {
    let now = || {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
    };
    let once = |_| {
        let begun = now();
        work();
        now() - begun
    };
    (0..ROUNDS).map(once).min().unwrap_or(0)
}

fn compressed(blocks: &[Vec<u8>], level: i32) -> usize {
    blocks.iter().map(|block| zstd::bulk::compress(block, level).unwrap().len()).sum()
}

fn measure(recording: &Path) {
    let (raw, mut encoder, shape) = blocks(&fs::read(recording.join("cpu0.out")).unwrap(), USED);
    let (coded, events) = encode(&mut encoder, &raw);
    assert!(events > 0, "the recording is too short: {USED} bytes of a CPU are left out");
    let tallied = least(|| {
        for mut block in raw.iter().map(Vec::as_slice) {
            while let Ok((counts, stored)) = tally(&shape, block) {
                black_box(counts);
                block = &block[stored..];
            }
        }
    });
    let encoded = least(|| encode_all(&mut encoder, &raw));
    let decoded = least(|| decode_all(&coded, &raw));
    let len = |blocks: &[Vec<u8>]| blocks.iter().map(Vec::len).sum::<usize>();
    let row = |name: &str, bytes: usize, ns: u64| {
        let of = |n: f64| format!("{:.2}", n / events as f64);
        vec![name.to_owned(), of(bytes as f64), of(ns as f64)]
    };
    let frames = |blocks: &[Vec<u8>], level| {
        let mut bytes = 0;
        let ns = least(|| bytes = compressed(blocks, level));
        (bytes, ns)
    };
    let [of_raw, of_coded, packed] = [frames(&raw, 1), frames(&coded, 1), frames(&coded, 9)];
    let title = format!("{events} events of CPU 0, blocks of {} KiB", (len(&raw) / raw.len().max(1)) >> 10);
    let rows = [
        row("as the kernel wrote them, counted", len(&raw), tallied),
        row("encoded and counted", len(&coded), encoded),
        row("decoded", len(&raw), decoded),
        row("zstd 1 of the raw block", of_raw.0, of_raw.1),
        row("zstd 1 of the encoded block", of_coded.0, of_coded.1),
        row("zstd 9 of the encoded block (pack)", packed.0, packed.1),
    ];
    table(&title, &["", "bytes/event", "ns/event"], &rows);
}
