//! Encoded records: bytes of a stranger as a block of them, and as sub-buffers for the encoder.

use kmemtrace::documents;
use kmemtrace::{GroupKey, Query, Shape};
use kmemtrace_abi::codec::{Decoder, Encoder};
use kmemtrace_abi::disk::block::{BlockInfo, Major, block, in_major, kind};
use kmemtrace_abi::disk::salvage::{Piece, pieces};
use kmemtrace_abi::event::StreamItem;
use kmemtrace_abi::kernel::format::PageShape;
use kmemtrace_abi::open::{self, OpenOptions};
use kmemtrace_abi::trace::Trace;

use crate::encoded::sealed;
use crate::fuzz::target::{MAX_BYTES, Target, choice, with_choice};
use crate::fuzz::{mutate, pages, read};
use crate::generate::{Options, Random, trace_dir, workload};
use crate::recording::Directory;

/// Target of the codec of records.
pub const ENCODED: Target =
    Target { name: "encoded", run: run_encoded, seeds: blocks, mutate: mutate_block, executions: 150 };

/// Bytes at the begin of a block that tell the byte order and the places of data and commit word.
const PLACES: usize = 3;
/// Bytes of sub-buffers that a block claims, at most.
const MAX_RAW: usize = 4 * MAX_BYTES;

/// The first block of a file of the machine that a choice stands for, and its encoder.
fn begun(number: usize) -> (Vec<u8>, BlockInfo, Encoder, PageShape) {
    let files = trace_dir(&workload(1, &Options::plain(pages::machine(number), 1, 1)), 1);
    let Some(Piece::Block { info, payload, whole }) = pieces(&files[0].1).next() else { panic!("no block") };
    let (encoder, shape) = open::encoder::of_file_header(payload).expect("a file of sub-buffers");
    (whole.to_vec(), info, encoder, shape)
}

/// Sub-buffers, and blocks that they are encoded to.
fn blocks() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for page in pages::pages() {
        let (number, raw) = choice(&page);
        let (.., mut encoder, _) = begun(number);
        let mut coded = vec![0; 2 * raw.len()];
        let len = encoder.encode(raw, &mut coded, &mut |_| {}).expect("room");
        seeds.push(with_choice(number as u8, &coded[..len]));
        seeds.push(page);
    }
    seeds
}

fn run_encoded(input: &[u8]) {
    let (number, bytes) = choice(input);
    let (header, info, mut encoder, shape) = begun(number);
    as_sub_buffers(&mut encoder, &shape, bytes);
    let mut head = [0; 64];
    let len = encoder.encode(&[], &mut head, &mut |_| {}).expect("room for a head");
    as_block((&header, &info), &head[..len.min(PLACES)], bytes);
}

/// What is encoded comes back, but for bytes that no field covers.
fn as_sub_buffers(encoder: &mut Encoder, shape: &PageShape, bytes: &[u8]) {
    let mut coded = vec![0; 3 * bytes.len() + 1000];
    let len = encoder.encode(bytes, &mut coded, &mut |_| {}).expect("room for whatever it is");
    let mut cleared = bytes.to_vec();
    encoder.layouts().clear_unused(shape, &mut cleared);
    let mut back = Vec::new();
    assert_eq!(Decoder::default().decode(&coded[..len], bytes.len(), &mut back), Ok(()));
    assert!(back == cleared, "{:?}", back.iter().zip(&cleared).position(|(a, b)| a != b));
}

/// A reader of the block's records finds what it finds in the sub-buffers that come back, unless the block says that it has sub-buffers of
/// another machine than the file: it begins with other bytes than `own`.
fn as_block((header, first): (&[u8], &BlockInfo), own: &[u8], coded: &[u8]) {
    let mut decoder = Decoder::default();
    let mut raw = Vec::new();
    // Damaged, or as long as it is.
    let whole = decoder.decode(coded, MAX_RAW, &mut raw).is_ok() || {
        assert!(raw.len() <= MAX_RAW);
        let len = raw.len();
        decoder.decode(coded, len, &mut raw).is_ok()
    };
    if raw.len() < coded.len() {
        return;
    }
    let info = BlockInfo { kind: kind::DATA, recording: first.recording, sequence: 1, ..BlockInfo::default() };
    let begin = in_major(header, Major::Two).expect("a block");
    let file = [begin, sealed(&info, coded, raw.len(), false)].concat();
    read::file("cpu0.out", &file, &OpenOptions::default());
    if whole && coded.starts_with(own) {
        let plain = [header, &block(&info, &raw)].concat();
        assert!(items(&file) == items(&plain));
        assert_eq!(rows(&file), rows(&plain));
    }
}

/// All events and gaps of a file.
fn items(file: &[u8]) -> Vec<StreamItem> {
    let dir = Directory::new(&[("cpu0.out".to_owned(), file.to_vec())]);
    let mut trace = Trace::open(&[dir.file("cpu0.out")]).expect("a recording");
    let (mut all, mut items) = (Vec::new(), Vec::new());
    while trace.streams[0].fill(&mut trace.names, &mut items) {
        all.append(&mut items);
    }
    all
}

/// Rows of call sites and threads: events of encoded records that are alike come from the first of them.
fn rows(file: &[u8]) -> Vec<serde_json::Value> {
    let dir = Directory::new(&[("cpu0.out".to_owned(), file.to_vec())]);
    let trace = Trace::open(&[dir.file("cpu0.out")]).expect("a recording");
    let query = Query::by(&[GroupKey::Site, GroupKey::Task]).with_own(true);
    let document = read::answer(query, documents::sites, &Shape::default(), trace, 1).expect("rows");
    let document: serde_json::Value = serde_json::from_str(&document).expect("JSON");
    document["rows"].as_array().cloned().expect("rows")
}

fn mutate_block(random: &mut Random, input: &mut Vec<u8>) {
    if random.chance(30) { pages::mutate_page(random, input) } else { mutate::chosen_bytes(random, input) }
}
