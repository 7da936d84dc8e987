//! Sub-buffers of the ring buffer, and the texts that describe what is in them.

use std::ops::Range;

use kmemtrace_abi::disk::block::{BlockInfo, block, item, kind};
use kmemtrace_abi::disk::salvage::{Piece, pieces};
use kmemtrace_abi::kernel::format::{EventFormat, PageShape, without_print_fmt};
use kmemtrace_abi::kernel::gfp::GfpNames;
use kmemtrace_abi::kernel::relay;
use kmemtrace_abi::kernel::subbuffer::{Missed, SubBuffer, SubBufferError, mark_missed, tally, trimmed_len};
use kmemtrace_abi::open::OpenOptions;
use kmemtrace_abi::target::{Big, Endian, Little, Target as Machine};

use crate::entries::entries;
use crate::fuzz::target::{Target, choice, with_choice};
use crate::fuzz::{mutate, read};
use crate::generate::layout::{header_page, layouts};
use crate::generate::{Era, Options, Random, Shape, trace_dir, tree, workload};
use crate::programs::data;
use crate::recording::{Directory, random_relay};

/// Target of a sub-buffer.
pub const SUB_BUFFER: Target =
    Target { name: "sub-buffer", run: run_page, seeds: pages, mutate: mutate_page, executions: 250 };
/// Target of the format of an event.
pub const FORMAT: Target =
    Target { name: "format", run: run_format, seeds: formats, mutate: mutate::chosen_text, executions: 150 };
/// Target of records of a relay channel.
pub const RELAY: Target =
    Target { name: "relay", run: run_relay, seeds: channels, mutate: mutate::bytes, executions: 150 };

/// The machine that a choice stands for.
pub(super) fn machine(choice: usize) -> Shape {
    let target = Machine {
        endian: if choice & 1 == 0 { Endian::Little } else { Endian::Big },
        word_bytes: if choice & 2 == 0 { 8 } else { 4 },
    };
    let aligned = choice & 4 != 0;
    Shape { target, aligned, era: Era::ALL[(choice >> 3) % Era::ALL.len()], ..Shape::plain() }
}

/// Sub-buffers of a generated machine.
pub(super) fn pages() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for choice in [0u8, 1, 2, 3, 4, 8 + 1, 16, 24 + 2, 32] {
        let mut options = Options::plain(machine(choice.into()), 1, 120);
        (options.loss, options.stacks, options.others) = (true, true, true);
        let files = tree(&workload(u64::from(choice), &options), 1);
        let raw = files.iter().find(|(name, _)| name.ends_with("trace_pipe_raw")).unwrap();
        seeds.extend(raw.1.chunks(4096).take(2).map(|page| with_choice(choice, page)));
    }
    seeds
}

/// Time of a sub-buffer, and its records: time and payload of each.
type Records = (u64, Vec<(u64, Vec<u8>)>);

/// Records of a sub-buffer up to the first that makes no sense, as the decoder has them.
fn records(shape: &PageShape, bytes: &[u8]) -> Result<Records, SubBufferError> {
    macro_rules! records {
        ($order:ty) => {{
            let parsed = SubBuffer::parse::<$order>(shape, bytes)?;
            let whole = parsed.records::<$order>().map_while(Result::ok);
            (parsed.timestamp, whole.map(|record| (record.time, record.payload.to_vec())).collect())
        }};
    }
    Ok(match shape.target.endian {
        Endian::Little => records!(Little),
        Endian::Big => records!(Big),
    })
}

fn run_page(input: &[u8]) {
    let (number, bytes) = choice(input);
    let machine = machine(number);
    let shape = machine.page();
    let found = records(&shape, bytes);
    match (tally(&shape, bytes), trimmed_len(&shape, bytes), &found) {
        (Ok((tally, stored)), Ok(trimmed), Ok((begin, records))) => {
            assert!(stored <= bytes.len() && (trimmed == 0 || trimmed == stored));
            let data = &bytes[shape.data_offset..shape.data_offset + tally.commit as usize];
            let whole = |(time, range): (u64, Range<usize>)| (time, data[range].to_vec());
            assert_eq!(*records, entries(shape.target, data, *begin).into_iter().map(whole).collect::<Vec<_>>());
            let times = [records.first(), records.last()].map(|record| record.map_or(0, |(time, _)| *time));
            assert_eq!((tally.events, [tally.first, tally.last]), (records.len() as u64, times));
            let mut marked = bytes.to_vec();
            mark_missed(&shape, &mut marked);
            if tally.missed.is_none() {
                let missed = super_tally(&shape, &marked);
                assert!(matches!(missed, Ok(Some(Missed::Uncounted)) | Ok(Some(Missed::Counted(_))) | Err(_)));
            }
        }
        (Err(_), Err(_), Err(_)) => {}
        other => panic!("{other:?}"),
    }
    recorded(&machine, bytes);
}

fn super_tally(shape: &PageShape, bytes: &[u8]) -> Result<Option<Missed>, SubBufferError> {
    tally(shape, bytes).map(|(tally, _)| tally.missed)
}

/// Reads the sub-buffer in a recording of the machine.
fn recorded(machine: &Shape, bytes: &[u8]) {
    let files = trace_dir(&workload(1, &Options::plain(*machine, 1, 1)), 1);
    let (name, file) = &files[0];
    let Some(Piece::Block { info: first, whole, .. }) = pieces(file).next() else { return };
    let (events, times) = tally(&machine.page(), bytes).map_or((0, (0, 0)), |(t, _)| (t.events, (t.first, t.last)));
    let info = BlockInfo {
        kind: kind::DATA,
        recording: first.recording,
        sequence: 1,
        events: events as u32,
        first: times.0,
        last: times.1,
        ..BlockInfo::default()
    };
    let file = [whole, &block(&info, bytes)].concat();
    read::file(name, &file, &OpenOptions::default());
}

/// Changes words of a page rather than bytes: entries are made of them.
pub(super) fn mutate_page(random: &mut Random, input: &mut Vec<u8>) {
    if random.chance(40) || input.len() < 40 {
        return mutate::chosen_bytes(random, input);
    }
    let at = 17 + 4 * random.below((input.len() as u64 - 20) / 4) as usize;
    let type_len = *random.pick(&[0u32, 1, 5, 28, 29, 30, 31]);
    let delta = *random.pick(&[0u32, 1, 2, 100, 0x7ff_ffff]);
    let word = match input[0] & 1 {
        0 => (type_len | delta << 5).to_le_bytes(),
        _ => (type_len << 27 | delta & 0x7ff_ffff).to_be_bytes(),
    };
    if let Some(place) = input.get_mut(at..at + 4) {
        place.copy_from_slice(&word);
    }
}

/// Formats of all kernels, and of real ones.
fn formats() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for (number, era) in (0u8..).zip(Era::ALL) {
        let shape = Shape { era, ..Shape::plain() };
        seeds.extend(layouts(&shape).iter().map(|layout| with_choice(number * 2, layout.text().as_bytes())));
        seeds.push(with_choice(number * 2 + 1, header_page(&shape).as_bytes()));
    }
    for sample in ["amd64-6.18", "latency-amd64-6.18"] {
        let file = std::fs::read(data(sample).join("cpu0.out")).unwrap();
        let Some(Piece::Block { payload, .. }) = pieces(&file).next() else { continue };
        let formats = item::walk(payload).map_while(Result::ok).filter(|(tag, ..)| *tag == item::EVENT_FORMAT);
        // The system stands before the text.
        let text = |bytes: &[u8]| bytes.iter().position(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        seeds.extend(formats.map(|(_, _, bytes)| with_choice(0, &bytes[text(bytes)..])));
    }
    seeds
}

/// A tree with the event of this format, and records of it.
pub fn with_format(input: &[u8]) -> Vec<(String, Vec<u8>)> {
    let (number, bytes) = choice(input);
    let machine = Shape { era: Era::ALL[(number / 2) % Era::ALL.len()], ..Shape::plain() };
    let mut files = tree(&workload(3, &Options::plain(machine, 1, 60)), 3);
    let name = if number % 2 == 1 { "events/header_page" } else { "events/kmem/kmalloc/format" };
    if let Some((_, place)) = files.iter_mut().find(|(other, _)| other == name) {
        *place = bytes.to_vec();
    }
    files
}

fn run_format(input: &[u8]) {
    let (_, bytes) = choice(input);
    let text = String::from_utf8_lossy(bytes);
    for endian in [Endian::Little, Endian::Big] {
        if let Ok(shape) = PageShape::parse(&text, endian) {
            assert!(shape.data_offset <= shape.size && shape.commit_offset < shape.size, "{shape:?}");
            let _ = tally(&shape, &[0xff; 64]);
        }
    }
    if let Some(names) = GfpNames::of_format(&text) {
        for flags in [0, 1, 0xcc0, u64::MAX] {
            assert!(names.text(flags).to_string().len() < MAX_FLAGS);
        }
    }
    if let Ok(format) = EventFormat::parse(without_print_fmt(&text)) {
        assert!(format.own_fields().len() <= format.fields.len());
    }
    let dir = Directory::new(&with_format(input));
    read::whole(&[dir.path().to_owned()], &OpenOptions::default(), read::sum(bytes));
}

/// Longest text of flags, in bytes: each of 64 bits has a name, which a format may make long.
const MAX_FLAGS: usize = 64 << 10;

fn channels() -> Vec<Vec<u8>> {
    (0..6).map(|seed| random_relay(seed, 200).2.cpus[0].bytes()).collect()
}

fn run_relay(input: &[u8]) {
    if let Some((layout, endian)) = relay::detect(input) {
        let _ = relay::tally(layout, endian, input);
    }
    let dir = Directory::new(&[("cpu0".to_owned(), input.to_vec())]);
    read::whole(&[dir.path().to_owned()], &OpenOptions::default(), read::sum(input));
}
