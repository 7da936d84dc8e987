//! Recordings with encoded records: every document is that of the recording as the kernel wrote it.
//!
//! `KMEMTRACE_SEEDS=FROM..TO` tries other traces than the usual ones.

use std::fs;
use std::path::{Path, PathBuf};

use kmemtrace_abi::codec::Decoder;
use kmemtrace_abi::disk::block::{BlockInfo, FLAG_RECORDS, Major, kind};
use kmemtrace_abi::disk::expand::Expander;
use kmemtrace_abi::disk::salvage::{Piece, pieces};
use kmemtrace_abi::event::StreamItem;
use kmemtrace_abi::fault::{Code, Verdict};
use kmemtrace_abi::open;
use kmemtrace_abi::trace::Trace;
use kmemtrace_tests::encoded::{cleared, encoded, encoded_file, sealed};
use kmemtrace_tests::generate::{Options, Random, Shape, trace_dir, workload};
use kmemtrace_tests::guest::checked;
use kmemtrace_tests::programs::{data, run, run_to};
use kmemtrace_tests::recording::{Directory, random_workload};
use kmemtrace_tests::runs::seeds;
use kmemtrace_tests::unused::Formats;

/// Views and options that read records in different ways.
const VIEWS: &[&[&str]] = &[
    &["summary"],
    &["leaks"],
    &["sites"],
    &["sites", "--by", "site,size"],
    &["sites", "--by", "site,task,context,node", "--own"],
    &["sites", "--by", "cgroup,site"],
    &["sites", "--by", "module"],
    &["sites", "--kind", "kmalloc"],
    &["caches"],
    &["live", "--objects"],
    &["cross"],
    &["failed"],
    &["tree", "--by", "stack"],
    &["events"],
    &["sites", "--time", "20%,70%"],
];

fn documents(dir: &Path, jobs: &str) -> Vec<Vec<u8>> {
    let print = |view: &&[&str]| {
        let words: Vec<&str> = view.iter().copied().chain(["--format", "json", "-j", jobs]).collect();
        let output = run("kmemtrace-report", &words, &[dir]);
        let status = output.status.code().unwrap_or(-1).to_string();
        [output.stdout, status.into_bytes()].concat()
    };
    VIEWS.iter().map(print).collect()
}

fn is_encoded(file: &[u8]) -> bool {
    pieces(file).any(|piece| matches!(piece, Piece::Block { info, .. } if info.flags & FLAG_RECORDS != 0))
}

#[test]
fn documents_are_those_of_the_recording_as_the_kernel_wrote_it() {
    for seed in seeds(0..6) {
        let (_, workload) = random_workload(seed, 2500);
        let files = trace_dir(&workload, seed);
        let raw = Directory::new(&files);
        let (want, verdict) = (documents(raw.path(), "1"), checked(raw.path()));
        for is_compressed in [false, true] {
            let files = encoded(&files, is_compressed);
            assert!(files.iter().any(|(name, bytes)| name.starts_with("cpu") && is_encoded(bytes)), "seed {seed}");
            let dir = Directory::new(&files);
            assert_eq!(checked(dir.path()), verdict, "seed {seed}");
            for jobs in ["1", "3"] {
                assert!(documents(dir.path(), jobs) == want, "seed {seed}, {is_compressed}, -j {jobs}");
            }
        }
    }
}

#[test]
fn samples_of_five_machines_come_back() {
    for name in ["amd64-6.18", "amd64-6.1", "amd64-6.1-lossy", "i386-6.1", "ppc64el-6.1", "arm64-16k-6.12", "s390x-6.1"]
    {
        let read = |entry: fs::DirEntry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            name.ends_with(".out").then(|| (name, fs::read(entry.path()).unwrap()))
        };
        let files: Vec<_> = fs::read_dir(data(name)).unwrap().flatten().filter_map(read).collect();
        let dir = Directory::new(&encoded(&files, false));
        let want = (documents(&data(name), "1"), checked(&data(name)));
        assert!((documents(dir.path(), "2"), checked(dir.path())) == want, "{name}");
        let before = fs::read(dir.file("cpu0.out")).unwrap().len();
        let raw = Directory::new(&files);
        run_to(0, "kmemtrace-report", &["pack", "--raw", "-f"], &[raw.path()]);
        let plain = fs::read(raw.file("cpu0.out")).unwrap();
        assert!(before * 2 < plain.len(), "{name}: {before} of {} bytes", plain.len());
    }
}

/// Files of CPUs in the samples, by their paths.
fn sampled_files() -> Vec<(String, Vec<u8>)> {
    let entries = |dir: &Path| -> Vec<PathBuf> {
        fs::read_dir(dir).into_iter().flatten().map(|entry| entry.unwrap().path()).collect()
    };
    let mut files = Vec::new();
    for path in entries(&data("")).iter().flat_map(|dir| entries(dir)) {
        let (name, bytes) = (path.display().to_string(), || fs::read(&path).unwrap());
        if name.ends_with(".out.zst") {
            files.push((name, zstd::decode_all(&*bytes()).unwrap()));
        } else if name.contains("/cpu") && name.ends_with(".out") {
            files.push((name, bytes()));
        }
    }
    files
}

#[test]
fn each_block_of_every_sample_comes_back_but_for_bytes_that_no_field_covers() {
    let (mut blocks, mut stale) = (0, 0);
    for (name, file) in sampled_files() {
        let (mut expander, mut decoder, mut known) = (Expander::default(), Decoder::default(), None);
        for piece in pieces(&file) {
            let Piece::Block { info, payload, whole } = piece else { panic!("{name}") };
            if info.kind == kind::FILE_HEADER {
                known = open::encoder::of_file_header(payload).zip(Formats::of_file_header(payload));
            }
            let Some(((encoder, _), formats)) = known.as_mut().filter(|_| info.kind == kind::DATA) else { continue };
            let raw = expander.payload_of(whole).unwrap();
            let (places, sub_buffers) = formats.of_sub_buffers(raw);
            assert!(sub_buffers > 0, "{name}");
            let mut want = raw.to_vec();
            stale += places.iter().filter(|&&at| std::mem::take(&mut want[at]) != 0).count();
            let mut coded = vec![0; 2 * raw.len()];
            let len = encoder.encode(raw, &mut coded, &mut |_| {}).unwrap();
            let mut back = Vec::new();
            assert_eq!(decoder.decode(&coded[..len], raw.len(), &mut back), Ok(()), "{name}");
            assert!(back == want, "{name}: block {}", info.sequence);
            blocks += 1;
        }
    }
    assert!(blocks > 20 && stale > 10_000, "{blocks} blocks, {stale} bytes of a used buffer");
}

#[test]
fn a_recording_is_packed_and_stored_as_before_again() {
    for seed in 0..4 {
        let (_, workload) = random_workload(seed, 2000);
        let files = trace_dir(&workload, seed);
        let dir = Directory::new(&files);
        let want = (documents(dir.path(), "2"), checked(dir.path()));
        run_to(0, "kmemtrace-report", &["pack", "--level", "3", "-f"], &[dir.path()]);
        assert!(is_encoded(&fs::read(dir.file(&files[0].0)).unwrap()), "seed {seed}");
        assert!((documents(dir.path(), "2"), checked(dir.path())) == want, "seed {seed}");
        run_to(0, "kmemtrace-report", &["pack", "--raw", "-f"], &[dir.path()]);
        for (name, bytes) in cleared(&files) {
            let found = fs::read(dir.file(&name)).unwrap();
            let plain = |info: &BlockInfo| info.flags == 0 || info.kind == kind::WATERMARK;
            let is_plain = |piece: Piece<'_>| matches!(piece, Piece::Block { info, .. } if plain(&info) && info.major == Major::One);
            assert!(pieces(&found).all(is_plain), "seed {seed}: {name}");
            assert!(found == bytes || !is_all_plain(&bytes), "seed {seed}: {name}");
        }
        assert!((documents(dir.path(), "2"), checked(dir.path())) == want, "seed {seed}");
    }
}

fn is_all_plain(file: &[u8]) -> bool {
    pieces(file).all(|piece| matches!(piece, Piece::Block { info, .. } if info.flags == 0))
}

/// Events and gaps of one file, and its verdict.
fn items(file: &[u8]) -> (Vec<StreamItem>, Verdict, Vec<Code>) {
    let dir = Directory::new(&[("cpu0.out".to_owned(), file.to_vec())]);
    let mut trace = Trace::open(&[dir.file("cpu0.out")]).unwrap();
    let (mut all, mut items) = (Vec::new(), Vec::new());
    while trace.streams[0].fill(&mut trace.names, &mut items) {
        all.append(&mut items);
    }
    let report = trace.streams[0].report();
    (all, report.verdict, report.faults.iter().map(|fault| fault.code).collect())
}

/// Events of a file that grows: `there` of its bytes at first, then the rest.
fn followed(file: &[u8], there: usize) -> Vec<StreamItem> {
    let dir = Directory::new(&[("cpu0.out".to_owned(), file[..there].to_vec())]);
    let mut trace = Trace::open(&[dir.file("cpu0.out")]).unwrap();
    trace.streams[0].follow(true);
    let (mut all, mut items) = (Vec::new(), Vec::new());
    for grown in [None, Some(file)] {
        if let Some(whole) = grown {
            dir.write("cpu0.out", whole);
        }
        while trace.streams[0].fill(&mut trace.names, &mut items) {
            all.extend(items.drain(..).filter(|item| matches!(item, StreamItem::Event(_))));
        }
    }
    assert!(trace.streams[0].has_ended());
    all
}

#[test]
fn a_file_with_encoded_records_that_grows_is_followed() {
    for seed in 0..4 {
        let files = trace_dir(&workload(seed, &Options::plain(Shape::plain(), 1, 2000)), seed);
        let (_, raw) = files.iter().find(|(name, _)| name == "cpu0.out").unwrap();
        let want: Vec<StreamItem> =
            items(raw).0.into_iter().filter(|item| matches!(item, StreamItem::Event(_))).collect();
        let file = encoded_file(raw, seed % 2 == 0);
        let begin = pieces(&file).next().unwrap().bytes().len();
        for part in 0..6 {
            assert_eq!(followed(&file, begin + (file.len() - begin) * part / 6), want, "seed {seed}, part {part}");
        }
    }
}

/// Files with damage in the encoded records of one block; their checksums are right.
fn damaged(file: &[u8], random: &mut Random) -> Vec<u8> {
    let blocks: Vec<Piece<'_>> = pieces(file).collect();
    let is_encoded = |piece: &&Piece<'_>| matches!(piece, Piece::Block { info, .. } if info.flags == FLAG_RECORDS);
    let which = random.below(blocks.iter().filter(is_encoded).count() as u64) as usize;
    let (mut out, mut met) = (Vec::new(), 0);
    for piece in &blocks {
        let Piece::Block { info, payload, whole } = piece else { panic!() };
        if is_encoded(&piece) {
            met += 1;
            if met == which + 1 {
                let mut coded = payload.to_vec();
                let raw_len = u32::from_le_bytes(whole[88..92].try_into().unwrap()) as usize;
                match random.below(3) {
                    0 => coded.truncate(random.below(coded.len() as u64) as usize),
                    1 => {
                        let at = random.below(coded.len() as u64) as usize;
                        coded[at] ^= 1 << random.below(8);
                    }
                    _ => coded.extend_from_slice(&[0, 0x90, 7]),
                }
                out.extend(sealed(info, &coded, raw_len, false));
                continue;
            }
        }
        out.extend_from_slice(whole);
    }
    out
}

#[test]
fn what_comes_before_damage_in_records_stands_and_the_next_block_is_good() {
    for seed in seeds(0..40) {
        let mut random = Random::new(seed);
        let files = trace_dir(&workload(seed, &Options::plain(Shape::plain(), 1, 3000)), seed);
        let (_, raw) = files.iter().find(|(name, _)| name == "cpu0.out").unwrap();
        let file = encoded_file(raw, false);
        let (whole, verdict, _) = items(&file);
        assert_eq!((verdict, &whole), (items(raw).1, &items(raw).0), "seed {seed}");
        let bad = damaged(&file, &mut random);
        let (found, verdict, codes) = items(&bad);
        // A flipped bit may make other records.
        if codes.contains(&Code::BadCompression) {
            assert_eq!(verdict, Verdict::Corrupt, "seed {seed}");
            let gap = found.iter().position(|item| matches!(item, StreamItem::Gap(_)));
            assert!(gap.is_some(), "seed {seed}");
        }
        let dir = Directory::new(&[files[..].to_vec(), vec![("cpu0.out".to_owned(), bad)]].concat());
        assert!(documents(dir.path(), "1") == documents(dir.path(), "3"), "seed {seed}");
    }
}
