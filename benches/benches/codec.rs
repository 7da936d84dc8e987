//! The codec of records beside zstd, on blocks of a used buffer: bytes and processor time of an event. Needs root and tracefs, or
//! `KMEMTRACE_BENCH_RECORDING=DIR`: a recording made with `--compress none`.

#![allow(clippy::unwrap_used, reason = "a benchmark fails by panicking")]

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
use kmemtrace_tests::programs::{program, run_to};
use kmemtrace_tests::recording::Directory;
use kmemtrace_tests::runner::Skip;

/// Bytes of a CPU after which its buffer has been filled: records have stale bytes from then on.
const USED: usize = 20 << 20;
/// Bytes that are measured.
const MEASURED: usize = 64 << 20;
/// Rounds of each measurement; the least time counts.
const ROUNDS: usize = 5;

fn main() {
    // `cargo test` and `cargo bench -- --list` run this, too.
    if !std::env::args().any(|a| a == "--bench") {
        return;
    }
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

/// Payloads of a CPU's file behind its first bytes, and their encoder.
fn blocks(path: &Path) -> (Vec<Vec<u8>>, Encoder, PageShape) {
    let file = std::fs::read(path).unwrap();
    let (mut encoder, mut expander, mut blocks, mut seen) = (None, Expander::default(), Vec::new(), 0);
    for piece in pieces(&file) {
        let Piece::Block { info, payload, whole } = piece else { continue };
        match info.kind {
            kind::FILE_HEADER => encoder = open::encoder::of_file_header(payload),
            kind::DATA => {
                let raw = expander.payload_of(whole).unwrap();
                seen += raw.len();
                if (USED..USED + MEASURED).contains(&seen) {
                    blocks.push(raw.to_vec());
                }
            }
            _ => {}
        }
    }
    let (encoder, shape) = encoder.unwrap();
    (blocks, encoder, shape)
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
    let (raw, mut encoder, shape) = blocks(&recording.join("cpu0.out"));
    let mut out = vec![0; raw.iter().map(Vec::len).max().unwrap_or(0)];
    let mut events = 0;
    let encode = |block: &Vec<u8>| {
        let len = encoder.encode(block, &mut out, &mut |counts| events += counts.events).unwrap();
        out[..len].to_vec()
    };
    let coded: Vec<Vec<u8>> = raw.iter().map(encode).collect();
    assert!(events > 0, "the recording is too short: {USED} bytes of a CPU are left out");
    let (mut decoder, mut back) = (Decoder::default(), Vec::new());
    let tallied = least(|| {
        for mut block in raw.iter().map(Vec::as_slice) {
            while let Ok((counts, stored)) = tally(&shape, block) {
                black_box(counts);
                block = &block[stored..];
            }
        }
    });
    let encoded = least(|| {
        for block in &raw {
            black_box(encoder.encode(block, &mut out, &mut |_| {}));
        }
    });
    let decoded = least(|| {
        for (coded, raw) in coded.iter().zip(&raw) {
            decoder.decode(coded, raw.len(), &mut back).unwrap();
        }
    });
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
