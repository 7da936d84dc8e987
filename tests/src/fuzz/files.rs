//! Files of trace-cmd and perf, streams of the tracer of 2009, and packed files of all sorts.

use std::io::Write;

use kmemtrace_abi::open::{OpenOptions, Wanted};

use crate::fuzz::target::{MAX_BYTES, Target, choice, with_choice};
use crate::fuzz::{mutate, read};
use crate::generate::Random;
use crate::programs::data;

/// Target of a `trace.dat`.
pub const TRACE_DAT: Target =
    Target { name: "trace-dat", run: run_trace_dat, seeds: trace_dats, mutate: mutate_container, executions: 60 };
/// Target of a `perf.data`.
pub const PERF_DATA: Target =
    Target { name: "perf-data", run: run_perf_data, seeds: perf_datas, mutate: mutate_container, executions: 60 };
/// Target of a stream of the tracer "kmemtrace".
pub const TRACER_STREAM: Target = Target {
    name: "tracer-stream",
    run: run_tracer_stream,
    seeds: tracer_streams,
    mutate: mutate::bytes,
    executions: 200,
};
/// Target of packed files and archives.
pub const PACKED: Target =
    Target { name: "packed", run: run_packed, seeds: packed, mutate: mutate::chosen_text, executions: 200 };

/// Samples of a sort, unpacked; those that are too long are left out.
fn samples(end: &str) -> Vec<Vec<u8>> {
    let names = ["amd64-6.1", "arm64-16k-6.12", "i386-6.1", "ppc64el-6.1", "s390x-6.1"];
    let sample = |name: &str| {
        let packed = std::fs::read(data("other-programs").join(format!("{name}.{end}.zst"))).unwrap();
        zstd::decode_all(&packed[..]).unwrap()
    };
    names.into_iter().map(sample).filter(|bytes| bytes.len() < MAX_BYTES).collect()
}

fn trace_dats() -> Vec<Vec<u8>> {
    samples("trace.dat")
}

fn run_trace_dat(input: &[u8]) {
    let wanted = [Wanted::Objects, Wanted::Waits, Wanted::Calls][(read::sum(input) % 3) as usize];
    read::file("trace.dat", input, &OpenOptions { wanted, texts: true, ..OpenOptions::default() });
}

fn perf_datas() -> Vec<Vec<u8>> {
    samples("perf.data")
}

fn run_perf_data(input: &[u8]) {
    read::file("perf.data", input, &OpenOptions::default());
}

/// Changes the head of a container more often than what is in it.
fn mutate_container(random: &mut Random, input: &mut Vec<u8>) {
    let end = if random.chance(60) { input.len().min(4096) } else { input.len() };
    let rest = input.split_off(end);
    match random.chance(80) {
        true => mutate::bytes(random, input),
        false => mutate::text(random, input),
    }
    input.extend(rest);
}

/// Records of both byte orders and word sizes (`include/trace/kmemtrace.h` of Linux 2.6.30).
fn tracer_streams() -> Vec<Vec<u8>> {
    let record = |word: usize, is_big: bool, n: u64| {
        let is_free = n % 3 == 2;
        let mut out = vec![u8::from(is_free), (n % 3) as u8];
        let mut put = |number: u64, len: usize| match is_big {
            true => out.extend(&number.to_be_bytes()[8 - len..]),
            false => out.extend(&number.to_le_bytes()[..len]),
        };
        put((16 + 2 * word + if is_free { 0 } else { 2 * word + 8 }) as u64, 2);
        put(n % 2, 4);
        put(100 * n, 8);
        put(0xc012_3456, word);
        put(0xc100_0000 + 64 * (n / 3), word);
        if !is_free {
            put(40, word);
            put(64, word);
            put(0xd0, 4);
            put(u32::MAX.into(), 4);
        }
        out
    };
    let machines = [(8, false), (8, true), (4, false), (4, true)];
    machines.map(|(word, is_big)| (0..40).flat_map(|n| record(word, is_big, n)).collect()).to_vec()
}

fn run_tracer_stream(input: &[u8]) {
    read::file("kmem.trace", input, &OpenOptions::default());
}

/// Text, to be packed in each way; and bytes that a packer wrote, as they are.
fn packed() -> Vec<Vec<u8>> {
    let text = std::fs::read(data("texts/page_owner_minimal.txt")).unwrap();
    let mut seeds: Vec<Vec<u8>> = (1..12).map(|way| with_choice(way, &text)).collect();
    let packed = (1..7).map(|way| with_choice(0, &packed_by(way, &text)));
    seeds.extend(packed);
    seeds
}

/// The packed file of an input.
pub fn packed_file(input: &[u8]) -> Vec<u8> {
    let (way, bytes) = choice(input);
    packed_by(way % 16, bytes)
}

/// A file that is packed in one of several ways; as it is where there is no such way.
fn packed_by(way: usize, bytes: &[u8]) -> Vec<u8> {
    let gzip = |bytes: &[u8]| {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(bytes).unwrap();
        gzip.finish().unwrap()
    };
    let xz = |bytes: &[u8]| {
        let mut out = Vec::new();
        lzma_rs::xz_compress(&mut &bytes[..], &mut out).unwrap();
        out
    };
    let zstd = |bytes: &[u8]| zstd::bulk::compress(bytes, 1).unwrap();
    match way {
        1 => gzip(bytes),
        2 => xz(bytes),
        3 => zstd(bytes),
        4 => tar(&[("page_owner", bytes)]),
        5 => gzip(&tar(&[("a/page_owner", bytes), ("b/page_owner", bytes)])),
        6 => zstd(&tar(&[("trace.txt", b"# tracer: nop\n"), ("slabinfo", bytes)])),
        7 => gzip(&gzip(bytes)),
        8 => [gzip(bytes), gzip(bytes)].concat(),
        9 => [zstd(bytes), zstd(bytes)].concat(),
        10 => utf16(bytes),
        11 => xz(&tar(&[("page_owner", bytes)])),
        _ => bytes.to_vec(),
    }
}

fn utf16(bytes: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(bytes);
    [0xfeff].into_iter().chain(text.encode_utf16()).flat_map(u16::to_le_bytes).collect()
}

/// An archive of these members (POSIX ustar).
pub fn tar(members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, bytes) in members {
        let mut head = [0u8; 512];
        head[..name.len()].copy_from_slice(name.as_bytes());
        head[100..108].copy_from_slice(b"0000644\0");
        head[124..136].copy_from_slice(format!("{:011o}\0", bytes.len()).as_bytes());
        head[136..148].copy_from_slice(b"14000000000\0");
        head[148..156].fill(b' ');
        head[156] = b'0';
        head[257..265].copy_from_slice(b"ustar\x0000");
        let sum: u32 = head.iter().map(|byte| u32::from(*byte)).sum();
        head[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        out.extend_from_slice(&head);
        out.extend_from_slice(bytes);
        out.resize(out.len().next_multiple_of(512), 0);
    }
    out.resize(out.len() + 1024, 0);
    out
}

fn run_packed(input: &[u8]) {
    let (way, bytes) = choice(input);
    let name = if way & 16 == 0 { "file" } else { "page_owner.gz" };
    read::file(name, &packed_file(input), &OpenOptions::default());
    if way == 0 {
        let dir = crate::recording::Directory::new(&[]);
        dir.write(name, bytes);
        let member = OpenOptions { member: Some("page_owner".to_owned()), ..OpenOptions::default() };
        read::whole(&[dir.file(name)], &member, read::sum(bytes));
    }
}
