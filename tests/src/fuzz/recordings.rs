//! Recordings of our own: blocks whose checksums are right, whatever is in them.

use std::path::Path;
use std::sync::OnceLock;

use kmemtrace::follow::Follower;
use kmemtrace::latency::FollowRequest;
use kmemtrace::live::Fed;
use kmemtrace::{Figure, Query, Shape, SortKey, documents};
use kmemtrace_abi::disk::block::{BlockInfo, FLAG_ZSTD, HEADER_BYTES, NO_CPU, block, item, kind, seal};
use kmemtrace_abi::disk::salvage::{Piece, pieces};
use kmemtrace_abi::event::StreamItem;
use kmemtrace_abi::fault::Verdict;
use kmemtrace_abi::open::OpenOptions;
use kmemtrace_abi::open::stream::StreamInput;
use kmemtrace_abi::trace::{OpenError, Trace};

use crate::fuzz::read::Make;
use crate::fuzz::target::{Target, choice, with_choice};
use crate::fuzz::{mutate, read};
use crate::generate::{Random, trace_dir};
use crate::interleaved;
use crate::programs::data;
use crate::recording::{Directory, random_workload};
use crate::reference::asked::Asked;
use crate::reference::{Known, pairs};
use crate::views::assert_document;

/// Recordings that inputs are put into.
const BASES: u64 = 8;
/// Events of each of them.
const EVENTS: usize = 120;
/// Events up to which an input is compared with the reference, which is slow.
const MAX_COMPARED: usize = 4000;

/// Target of a file of one CPU.
pub const BLOCKS: Target =
    Target { name: "blocks", run: run_blocks, seeds: cpu_files, mutate: mutate_blocks, executions: 150 };
/// Target of the first block of a file.
pub const FILE_HEADER: Target =
    Target { name: "file-header", run: run_header, seeds: headers, mutate: mutate_items, executions: 150 };
/// Target of the blocks of `meta.out`.
pub const META: Target = Target { name: "meta", run: run_meta, seeds: metas, mutate: mutate_items, executions: 150 };
/// Target of the blocks of a pipe.
pub const STREAM: Target =
    Target { name: "stream", run: run_stream, seeds: streams, mutate: mutate_blocks, executions: 100 };

/// Files of a recording.
pub type Files = Vec<(String, Vec<u8>)>;

/// Recordings of all sorts.
pub fn bases() -> &'static [Files] {
    static BASES_MADE: OnceLock<Vec<Files>> = OnceLock::new();
    BASES_MADE.get_or_init(|| (0..BASES).map(|seed| trace_dir(&random_workload(seed, EVENTS).1, seed)).collect())
}

/// The recording that the first byte of an input chooses, and the rest of the input.
fn base(input: &[u8]) -> (&'static Files, &[u8]) {
    let (number, rest) = choice(input);
    (&bases()[number % bases().len()], rest)
}

/// The recording with another file of this name.
fn with_file(files: &Files, name: &str, bytes: Vec<u8>) -> Files {
    let others = files.iter().filter(|(other, _)| other != name).cloned();
    others.chain([(name.to_owned(), bytes)]).collect()
}

/// Name of the file of the first CPU.
fn first_cpu(files: &Files) -> &str {
    files.iter().map(|(name, _)| name.as_str()).find(|name| name.starts_with("cpu")).unwrap_or("cpu0.out")
}

/// Each recording's file of the first CPU, as an input.
fn cpu_files() -> Vec<Vec<u8>> {
    let file = |(number, files): (u8, &Files)| {
        let name = first_cpu(files);
        with_choice(number, &files.iter().find(|(other, _)| other == name).unwrap().1)
    };
    let mut seeds: Vec<Vec<u8>> = (0..).zip(bases()).map(file).collect();
    for sample in ["amd64-6.18", "latency-amd64-6.18"] {
        seeds.push(with_choice(0, &std::fs::read(data(sample).join("cpu0.out")).unwrap()));
    }
    seeds
}

/// The recording with the file of an input.
pub fn with_cpu_file(input: &[u8]) -> Files {
    let (files, bytes) = base(input);
    with_file(files, first_cpu(files), bytes.to_vec())
}

fn run_blocks(input: &[u8]) {
    let (_, bytes) = choice(input);
    let dir = Directory::new(&with_cpu_file(input));
    read::whole(&[dir.path().to_owned()], &OpenOptions::default(), read::sum(bytes) / 8);
    if read::sum(bytes).is_multiple_of(4) {
        compare(dir.path(), read::sum(bytes) / 4);
    }
}

/// Compares the document of a view with that of the reference, which takes its events from the same decoder.
fn compare(dir: &Path, choice: u64) {
    let open = || Trace::open(&[dir.to_owned()]);
    let (Ok(first), Ok(second)) = (open(), open()) else { return };
    let known = Known::of_trace(first);
    // What the reference knows of a damaged file is its events.
    let events: usize = known.cpus.iter().map(|(_, items)| items.len()).sum();
    if events > MAX_COMPARED || known.verdict > Verdict::Truncated {
        return;
    }
    let views: [(&str, Query, Make); 4] = [
        ("sites", Query::by_site(), documents::sites),
        ("caches", Query::by_cache(), documents::caches),
        ("live", Query::by_site().with_live_objects(true).with_growth(true), documents::live_groups),
        ("mismatch", Query::by_site(), |analysis, shape| documents::mismatch(analysis, shape, &[])),
    ];
    let Some((view, query, make)) = views.into_iter().nth((choice % 4) as usize) else { return };
    let sort = if view == "live" { Vec::new() } else { vec![SortKey::Figure(Figure::Wasted)] };
    let Ok(found) = read::answer(query, make, &Shape { sort, top: None }, second, 1) else { return };
    let expected = Asked::view(view).document(&known, &pairs::pairs(&known));
    assert_document(view, (view, expected), found.as_bytes());
}

/// Whole blocks of an input behind its first byte; bytes that are none are left out.
fn whole_blocks(bytes: &[u8]) -> Vec<(BlockInfo, Vec<u8>)> {
    let whole = |piece: Piece<'_>| match piece {
        Piece::Block { info, payload, .. } => Some((info, payload.to_vec())),
        Piece::Other(_) => None,
    };
    pieces(bytes).filter_map(whole).collect()
}

/// A block whose checksums are right, as it is or compressed.
fn sealed(info: &BlockInfo, payload: &[u8]) -> Vec<u8> {
    if info.flags & FLAG_ZSTD == 0 {
        return block(info, payload);
    }
    let mut bytes = vec![0; HEADER_BYTES];
    bytes.extend(zstd::bulk::compress(payload, 1).unwrap());
    seal(&mut bytes, info, Some(payload.len()));
    bytes
}

/// The payload of a block, expanded.
fn expanded(info: &BlockInfo, payload: Vec<u8>) -> Vec<u8> {
    if info.flags & FLAG_ZSTD == 0 {
        return payload;
    }
    zstd::bulk::decompress(&payload, kmemtrace_abi::disk::block::MAX_PAYLOAD_BYTES).unwrap_or(payload)
}

/// Changes blocks and seals them again; one time in four the bytes are changed and the checksums are wrong.
fn mutate_blocks(random: &mut Random, input: &mut Vec<u8>) {
    if random.chance(25) {
        return mutate::chosen_bytes(random, input);
    }
    mutate::behind_choice(random, input, |random, bytes| {
        let mut blocks: Vec<(BlockInfo, Vec<u8>)> = whole_blocks(bytes);
        for (info, payload) in &mut blocks {
            *payload = expanded(info, std::mem::take(payload));
        }
        for _ in 0..1 + random.below(3) {
            change_block(random, &mut blocks);
        }
        *bytes = blocks.iter().flat_map(|(info, payload)| sealed(info, payload)).collect();
    });
}

fn change_block(random: &mut Random, blocks: &mut Vec<(BlockInfo, Vec<u8>)>) {
    if blocks.is_empty() {
        return;
    }
    let at = random.below(blocks.len() as u64) as usize;
    let to = random.below(blocks.len() as u64) as usize;
    match random.below(12) {
        0 => blocks.swap(at, to),
        1 => drop(blocks.remove(at)),
        2 => blocks.insert(to, blocks[at].clone()),
        3 => blocks[at].0.flags ^= FLAG_ZSTD,
        4..7 => change_info(random, &mut blocks[at].0),
        7 if matches!(blocks[at].0.kind, kind::FILE_HEADER | kind::META) => change_items(random, &mut blocks[at].1),
        _ => mutate::bytes(random, &mut blocks[at].1),
    }
}

/// Changes a field of a block's header.
fn change_info(random: &mut Random, info: &mut BlockInfo) {
    let edges =
        [0, 1, info.first, info.last, info.last.wrapping_add(1), info.sequence.wrapping_add(1), u64::MAX - 1, u64::MAX];
    let value = *random.pick(&edges);
    match random.below(9) {
        0 => info.first = value,
        1 => info.last = value,
        2 => info.sequence = value,
        3 => info.events_before = value,
        4 => info.lost_before = value,
        5 => info.events = value as u32,
        6 => info.kind = random.below(9) as u8,
        7 => info.flags ^= 1 << random.below(8),
        _ => info.cpu = *random.pick(&[0, 1, 2, 65_535, NO_CPU]),
    }
}

/// The payload of the first block of each recording's first file.
fn headers() -> Vec<Vec<u8>> {
    let header = |file: Vec<u8>| with_choice(file[0], &whole_blocks(&file[1..])[0].1);
    cpu_files().into_iter().map(header).collect()
}

/// The recording with the first block of an input.
pub fn with_header(input: &[u8]) -> Files {
    let (files, payload) = base(input);
    let name = first_cpu(files);
    let file = files.iter().find(|(other, _)| other == name);
    let mut blocks = file.map_or_else(Vec::new, |(_, bytes)| whole_blocks(bytes));
    if let Some((_, first)) = blocks.first_mut() {
        *first = payload.to_vec();
    }
    with_file(files, name, blocks.iter().flat_map(|(info, payload)| block(info, payload)).collect())
}

fn run_header(input: &[u8]) {
    let (files, payload) = base(input);
    let dir = Directory::new(&with_header(input));
    read::whole(&[dir.file(first_cpu(files))], &OpenOptions::default(), read::sum(payload));
    read::whole(&[dir.path().to_owned()], &OpenOptions::default(), read::sum(payload) / 8);
}

/// The items of each recording's `meta.out`.
fn metas() -> Vec<Vec<u8>> {
    let items = |(number, bytes): (u8, Vec<u8>)| {
        let metas = whole_blocks(&bytes).into_iter().filter(|(info, _)| info.kind == kind::META);
        with_choice(number, &metas.flat_map(|(info, payload)| expanded(&info, payload)).collect::<Vec<u8>>())
    };
    let own = (0..)
        .zip(bases())
        .filter_map(|(number, files)| Some((number, files.iter().find(|(name, _)| name == "meta.out")?.1.clone())));
    let samples = ["amd64-6.18", "exleak_init", "latency-amd64-6.18"];
    let samples = samples.iter().map(|sample| (0, std::fs::read(data(sample).join("meta.out")).unwrap()));
    own.chain(samples).map(items).collect()
}

/// `meta.out` of a recording with these items in place of its own.
pub fn with_items(meta: &[u8], items: &[u8]) -> Vec<u8> {
    let mut blocks = whole_blocks(meta);
    blocks.retain(|(info, _)| info.kind != kind::META);
    let recording = blocks.first().map(|(info, _)| info.recording).unwrap_or_default();
    let of_items = BlockInfo { kind: kind::META, cpu: NO_CPU, recording, ..BlockInfo::default() };
    blocks.insert(1.min(blocks.len()), (of_items, items.to_vec()));
    for ((info, _), sequence) in blocks.iter_mut().zip(0..) {
        info.sequence = sequence;
    }
    blocks.iter().flat_map(|(info, payload)| block(info, payload)).collect()
}

/// The recording with the items of an input.
pub fn with_meta(input: &[u8]) -> Files {
    let (files, items) = base(input);
    let meta = files.iter().find(|(name, _)| name == "meta.out").map_or(&[][..], |(_, meta)| meta);
    with_file(files, "meta.out", with_items(meta, items))
}

fn run_meta(input: &[u8]) {
    let (_, items) = choice(input);
    let dir = Directory::new(&with_meta(input));
    read::whole(&[dir.path().to_owned()], &OpenOptions::default(), read::sum(items));
}

fn mutate_items(random: &mut Random, input: &mut Vec<u8>) {
    mutate::behind_choice(random, input, change_items);
}

/// Changes items and puts them together again; one time in eight the bytes are changed as they are.
fn change_items(random: &mut Random, payload: &mut Vec<u8>) {
    let walked = item::walk(payload).map_while(Result::ok);
    let mut items: Vec<(u16, u16, Vec<u8>)> = walked.map(|(tag, flags, bytes)| (tag, flags, bytes.to_vec())).collect();
    if items.is_empty() || random.chance(12) {
        return mutate::bytes(random, payload);
    }
    let at = random.below(items.len() as u64) as usize;
    let to = random.below(items.len() as u64) as usize;
    match random.below(10) {
        0 => items.swap(at, to),
        1 => drop(items.remove(at)),
        2 => items.insert(to, items[at].clone()),
        3 => items[at].0 = items[to].0,
        4 => items[at].1 ^= item::MORE,
        5 => items[at].0 = *random.pick(&[1, 2, 4, 8, 10, 100, 101, 103, 114, 122, 123, 131, 132, 200, 203, 204]),
        6 => mutate::bytes(random, &mut items[at].2),
        _ => mutate::text(random, &mut items[at].2),
    }
    payload.clear();
    items.iter().for_each(|(tag, flags, bytes)| item::put(payload, *tag, *flags, bytes));
}

/// Each recording as a stream of blocks.
fn streams() -> Vec<Vec<u8>> {
    let stream = |files: &Files| interleaved::blocks(Directory::new(files).path()).concat();
    bases().iter().take(5).map(|files| with_choice(40, &stream(files))).collect()
}

fn run_stream(input: &[u8]) {
    let (number, bytes) = choice(input);
    let at_once = [1, 97, 4096, 1 << 20][number % 4].max(bytes.len() / 2000);
    let small = taken(bytes, at_once);
    let large = taken(bytes, usize::MAX);
    match (small, large) {
        (Ok(small), Ok(large)) => assert_eq!(small, large, "pieces of {at_once} bytes"),
        (Err(small), Err(large)) => assert_eq!(small, large, "pieces of {at_once} bytes"),
        (small, large) => panic!("pieces of {at_once} bytes: {small:?}, and all at once: {large:?}"),
    }
    if let Err(error) = follow(bytes, at_once) {
        read::sentence(&error.to_string());
    }
}

/// Events and gaps of a stream that is taken in pieces and read at its end.
fn taken(bytes: &[u8], at_once: usize) -> Result<Vec<String>, String> {
    let name = Path::new("stream");
    let mut input = StreamInput::new(name);
    let mut taken = || -> Result<Option<Trace>, OpenError> {
        bytes.chunks(at_once).try_for_each(|chunk| input.take(chunk))?;
        input.end()?;
        input.trace()
    };
    let Some(mut trace) = taken().map_err(|error| error.to_string())? else { return Ok(Vec::new()) };
    let mut all = Vec::new();
    for stream in &mut trace.streams {
        let mut items: Vec<StreamItem> = Vec::new();
        while stream.fill(&mut trace.names, &mut items) {
            all.extend(items.drain(..).map(|item| format!("{item:?}")));
        }
    }
    input.report(&mut trace);
    Ok(all)
}

/// Follows a stream as `stalls --follow -` does.
fn follow(bytes: &[u8], at_once: usize) -> Result<(), Box<dyn std::error::Error>> {
    let mut input = StreamInput::new(Path::new("stream"));
    let mut chunks = bytes.chunks(at_once);
    let mut trace = loop {
        if let Some(trace) = input.trace()? {
            break trace;
        }
        match chunks.next() {
            Some(chunk) => input.take(chunk)?,
            None => {
                input.end()?;
                match input.trace()? {
                    Some(trace) => break trace,
                    None => return Ok(()),
                }
            }
        }
    };
    let request = FollowRequest {
        threshold: 0,
        spans: Vec::new(),
        lists_all: true,
        lists_events: true,
        flush: Default::default(),
    };
    let base = Query::by_kind().follow(&mut trace, request)?;
    let mut follower = Follower::new(&base, &trace);
    let mut has_ended = false;
    loop {
        let fed = follower.feed(&mut trace);
        for mut span in follower.take_ended() {
            follower.name(&mut span);
            serde_json::to_string(&base.row(&span, &trace))?;
        }
        match (fed, chunks.next()) {
            (Fed::Ended, _) => break,
            (Fed::Behind, None) => {}
            (_, Some(chunk)) => {
                input.take(chunk)?;
                follower.add_comms(input.take_later().comms);
            }
            (Fed::CaughtUp, None) if has_ended => break,
            (Fed::CaughtUp, None) => {
                input.end()?;
                has_ended = true;
            }
        }
    }
    input.report(&mut trace);
    let followed = follower.finish(&trace, &mut |_| {});
    let latency = base.answer(&mut trace, followed);
    serde_json::to_string(&documents::latency::stalls(&latency, false, None))?;
    Ok(())
}
