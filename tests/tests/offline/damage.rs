//! Damaged files: cut at any byte, with any bit flipped, with blocks missing, doubled, moved or mixed up. The reader
//! never panics, gives the right verdict, and loses no event of a whole block.
//!
//! `KMEMTRACE_RUNS=all` flips every bit and cuts at every byte; otherwise some.

use std::ops::Range;

use kmemtrace_abi::disk::block::{HEADER_BYTES, crc32c};
use kmemtrace_abi::event::StreamItem;
use kmemtrace_abi::fault::Verdict;
use kmemtrace_abi::target::{Endian, Target};
use kmemtrace_abi::trace::{OpenError, Trace};
use kmemtrace_tests::generate::layout::layouts;
use kmemtrace_tests::generate::{Era, Options, Random, Shape, relay_dir, trace_dir, workload};
use kmemtrace_tests::recording::{Directory, random_relay};
use kmemtrace_tests::runs;

/// Undamaged file of one CPU, and its contents.
struct Seed {
    name: String,
    bytes: Vec<u8>,
    blocks: Vec<Block>,
    verdict: Verdict,
}

#[derive(Clone, Debug)]
struct Block {
    bytes: Range<usize>,
    events: u64,
    is_data: bool,
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

/// Blocks of a whole file, by the offsets in its headers.
fn blocks(bytes: &[u8]) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let header_len = usize::from(u16::from_le_bytes([bytes[at + 12], bytes[at + 13]]));
        let end = at + header_len + u32_at(bytes, at + 84) as usize;
        let events = u64::from(u32_at(bytes, at + 80));
        blocks.push(Block { bytes: at..end, events, is_data: bytes[at + 18] == 2 });
        at = end;
    }
    blocks
}

impl Seed {
    fn new(name: String, bytes: Vec<u8>) -> Seed {
        let mut seed = Seed { blocks: blocks(&bytes), name, bytes, verdict: Verdict::Complete };
        let read = seed.read(&Directory::new(&[]), &seed.bytes);
        assert_eq!(read.events, seed.events(|_| true), "{}", seed.name);
        seed.verdict = read.verdict;
        assert!(seed.verdict <= Verdict::Lossy, "{}: {:?}", seed.name, seed.verdict);
        seed
    }

    /// Events of the blocks that `select` takes by their numbers.
    fn events(&self, select: impl Fn(usize) -> bool) -> u64 {
        self.blocks.iter().enumerate().filter(|(i, _)| select(*i)).map(|(_, b)| b.events).sum()
    }

    /// Result of reading `bytes` in the file's place.
    fn read(&self, dir: &Directory, bytes: &[u8]) -> Read {
        dir.write("cpu0.out", bytes);
        match Trace::open(&[dir.file("cpu0.out")]) {
            Ok(trace) => Read::new(trace),
            Err(error) => panic!("{}: {error}", self.name),
        }
    }

    /// Blocks in this order.
    fn joined(&self, order: &[usize]) -> Vec<u8> {
        order.iter().flat_map(|&i| &self.bytes[self.blocks[i].bytes.clone()]).copied().collect()
    }
}

/// Result of reading the file of CPU 0; other files of the recording may be missing.
struct Read {
    verdict: Verdict,
    events: u64,
    gaps: usize,
}

impl Read {
    fn new(mut trace: Trace) -> Read {
        let stream = trace.streams.iter_mut().find(|s| s.cpu() == 0).unwrap();
        let (mut all, mut items) = (Vec::new(), Vec::new());
        while stream.fill(&mut trace.names, &mut items) {
            all.append(&mut items);
        }
        let events = all.iter().filter(|i| matches!(i, StreamItem::Event(_))).count();
        assert_eq!(stream.report().events, events as u64);
        Read { verdict: stream.report().verdict, events: events as u64, gaps: all.len() - events }
    }
}

/// Small files of every sort: both byte orders and word sizes, several page sizes and kernels, with and without loss,
/// empty, of one event, of a relay channel.
fn seeds() -> Vec<Seed> {
    let mut seeds = Vec::new();
    let shapes = [
        (Endian::Little, 8, 4096, Era::V6_18, false),
        (Endian::Big, 8, 4096, Era::V6_1, true),
        (Endian::Little, 4, 16384, Era::V2_6_32, false),
        (Endian::Big, 4, 65536, Era::V5_15, true),
        (Endian::Little, 8, 65536, Era::V6_12, true),
    ];
    for (i, &(endian, word_bytes, page_bytes, era, aligned)) in shapes.iter().enumerate() {
        for (events, loss) in [(0, false), (1, false), (30, false), (60, true)] {
            // Nearly empty files differ little between shapes.
            if events < 2 && i > 1 {
                continue;
            }
            let shape = Shape {
                target: Target { endian, word_bytes },
                page_bytes,
                sub_buffer_bytes: page_bytes as usize,
                era,
                aligned,
                possible_cpus: 0,
            };
            let mut options = Options::plain(shape, 1, events);
            (options.loss, options.uncounted, options.recorder_loss) = (loss, i % 2 == 0, i % 3 == 0);
            let files = trace_dir(&workload(i as u64, &options), i as u64);
            seeds.push(Seed::new(format!("{endian:?} {word_bytes} {era:?} {events} {loss}"), files[0].1.clone()));
        }
    }
    for seed in [3, 4, 6] {
        let (workload, options, streams) = random_relay(seed, 40);
        let files = relay_dir(&workload, &options, &streams, seed);
        seeds.push(Seed::new(format!("relay {options:?}"), files[0].1.clone()));
    }
    seeds
}

#[test]
fn a_file_cut_anywhere_is_truncated_and_its_whole_blocks_are_reported() {
    let dir = Directory::new(&[]);
    for seed in seeds() {
        // Lengths near the ends of blocks, and some in between.
        let is_near = |len: usize| {
            let distances = seed.blocks.iter().map(|block| block.bytes.start.abs_diff(len));
            distances.min().is_some_and(|least| least <= 4 || least <= 100 && least % runs::step(9) == 0)
        };
        let len_of_all = seed.bytes.len();
        for len in (0..=len_of_all).filter(|&len| is_near(len) || len + 12 > len_of_all || len % runs::step(151) == 0) {
            let read = seed.read(&dir, &seed.bytes[..len]);
            let want = if len == seed.bytes.len() { seed.verdict } else { Verdict::Truncated };
            let whole = seed.events(|i| seed.blocks[i].bytes.end <= len);
            assert_eq!((read.verdict, read.events), (want, whole), "{} cut at {len}", seed.name);
            assert!(read.gaps > 0 || len == seed.bytes.len(), "{} cut at {len}: no gap", seed.name);
        }
    }
}

#[test]
fn a_flipped_bit_anywhere_is_corrupt_and_costs_its_block_only() {
    let step = runs::step(251);
    let dir = Directory::new(&[]);
    for seed in seeds() {
        for bit in (0..seed.bytes.len() * 8).step_by(step) {
            let mut bytes = seed.bytes.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let hit = seed.blocks.iter().position(|b| b.bytes.contains(&(bit / 8))).unwrap();
            let read = seed.read(&dir, &bytes);
            // The first block has the formats for decoding the others.
            let left = seed.events(|i| hit != 0 && i != hit);
            assert_eq!((read.verdict, read.events), (Verdict::Corrupt, left), "{} bit {bit}", seed.name);
            assert!(read.gaps > 0, "{} bit {bit}: no gap", seed.name);
        }
    }
}

/// Gives a changed block the checksums that belong to it.
fn seal(block: &mut [u8]) {
    let payload_crc = crc32c(&block[HEADER_BYTES..]);
    block[92..96].copy_from_slice(&payload_crc.to_le_bytes());
    let header_crc = crc32c(&block[12..HEADER_BYTES]);
    block[8..12].copy_from_slice(&header_crc.to_le_bytes());
}

/// First record of a little-endian block of data: its offset, its words and the id of its event.
fn first_record(block: &[u8]) -> (usize, u32, [u8; 2]) {
    let at = HEADER_BYTES + 16;
    (at, u32_at(block, at) & 0x1f, [block[at + 4], block[at + 5]])
}

#[test]
fn a_record_that_cannot_be_decoded_is_one_gap_with_what_is_missing_before_it() {
    let dir = Directory::new(&[]);
    let files = trace_dir(&workload(2, &Options::plain(Shape::plain(), 1, 3000)), 2);
    let seed = Seed::new("plain".to_owned(), files[0].1.clone());
    let block = |number: usize| &seed.bytes[seed.blocks[number].bytes.clone()];
    let data: Vec<usize> = (0..seed.blocks.len()).filter(|&i| seed.blocks[i].is_data).collect();
    let is_record = |&i: &usize| (1..29).contains(&first_record(block(i)).1);
    // Fields of an allocation have to be there; records of other events may have any length.
    let allocations: Vec<[u8; 2]> = layouts(&Shape::plain())
        .iter()
        .filter(|layout| layout.name.starts_with("kmalloc") || layout.name.starts_with("kmem_cache_alloc"))
        .map(|layout| layout.id.to_le_bytes())
        .collect();
    let is_allocation = |&i: &usize| is_record(&i) && allocations.contains(&first_record(block(i)).2);
    let longest = data.iter().copied().filter(is_allocation).max_by_key(|&i| first_record(block(i)).1).unwrap();
    let (_, max_words, id) = first_record(block(longest));
    let mut tried = 0;
    for (number, next) in data.iter().copied().zip(data.iter().copied().skip(1)).filter(|(_, next)| is_record(next)) {
        let (at, words, _) = first_record(block(next));
        if words >= max_words || next != number + 1 {
            continue;
        }
        tried += 1;
        let mut bytes = seed.bytes.clone();
        let next = seed.blocks[next].bytes.clone();
        // The record becomes an event whose fields are longer than the record.
        bytes[next.start + at + 4..][..2].copy_from_slice(&id);
        seal(&mut bytes[next]);
        let read = seed.read(&dir, &bytes);
        assert_eq!((read.verdict, read.events, read.gaps), (Verdict::Corrupt, seed.events(|_| true), 1));
        bytes[seed.blocks[number].bytes.end - 1] ^= 1;
        let read = seed.read(&dir, &bytes);
        assert_eq!((read.verdict, read.events, read.gaps), (Verdict::Corrupt, seed.events(|i| i != number), 1));
    }
    assert!(tried > 3, "{tried} places were tried");
}

#[test]
fn a_burst_of_flipped_bits_is_corrupt() {
    let dir = Directory::new(&[]);
    let mut random = Random::new(11);
    for seed in seeds() {
        for _ in 0..200 {
            let mut bytes = seed.bytes.clone();
            let from = random.below(bytes.len() as u64 * 8) as usize;
            let bits = (2 + random.below(63) as usize).min(bytes.len() * 8 - from);
            bytes[from / 8] ^= 1 << (from % 8);
            for bit in from + 1..from + bits {
                bytes[bit / 8] ^= (random.below(2) as u8) << (bit % 8);
            }
            let touched = |block: &Block| block.bytes.start < (from + bits).div_ceil(8) && block.bytes.end > from / 8;
            let read = seed.read(&dir, &bytes);
            let least = seed.events(|i| !touched(&seed.blocks[0]) && !touched(&seed.blocks[i]));
            assert_eq!(read.verdict, Verdict::Corrupt, "{} {bits} bits from {from}", seed.name);
            let most = seed.events(|_| true);
            assert!((least..=most).contains(&read.events), "{} {bits} bits from {from}: {}", seed.name, read.events);
        }
    }
}

#[test]
fn one_whole_header_speaks_for_all_files() {
    let mut options = Options::plain(Shape::plain(), 2, 400);
    options.loss = true;
    let files = trace_dir(&workload(1, &options), 1);
    let events = blocks(&files[0].1).iter().map(|b| b.events).sum();
    let dir = Directory::new(&files);
    for bit in (0..blocks(&files[0].1)[0].bytes.end * 8).step_by(101) {
        let mut bytes = files[0].1.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        dir.write("cpu0.out", &bytes);
        let read = Read::new(Trace::open(&[dir.path().to_owned()]).unwrap());
        assert_eq!((read.verdict, read.events), (Verdict::Corrupt, events), "bit {bit}");
    }
}

#[test]
fn missing_doubled_and_moved_blocks_are_corrupt() {
    let dir = Directory::new(&[]);
    let mut random = Random::new(5);
    for seed in seeds().into_iter().filter(|s| s.blocks.len() > 2) {
        let whole: Vec<usize> = (0..seed.blocks.len()).collect();
        for _ in 0..60 {
            let mut order = whole.clone();
            let (a, b) = (random.below(order.len() as u64) as usize, random.below(order.len() as u64) as usize);
            match random.below(3) {
                // A file without its last blocks is only cut.
                0 if a + 1 < order.len() => drop(order.remove(a)),
                1 => order.insert(b, a),
                _ => order.swap(a, b),
            }
            if order == whole {
                continue;
            }
            let read = seed.read(&dir, &seed.joined(&order));
            assert_eq!(read.verdict, Verdict::Corrupt, "{} {order:?}", seed.name);
            assert!(read.events <= seed.events(|_| true), "{} {order:?}: {} events", seed.name, read.events);
            // Blocks at the place of their number count, if the formats are known.
            let mut next = 0;
            let mut kept = vec![false; whole.len()];
            for &i in &order {
                if i >= next {
                    kept[i] = true;
                    next = i + 1;
                }
            }
            let ended = kept.iter().take(whole.len() - 1).filter(|k| **k).count();
            if order[0] == 0 && ended > 0 && order.last() == whole.last() {
                assert_eq!(read.events, seed.events(|i| kept[i]), "{} {order:?}", seed.name);
            }
        }
    }
}

#[test]
fn blocks_of_another_file_are_left_out() {
    let options = Options::plain(Shape::plain(), 2, 300);
    let ours = trace_dir(&workload(1, &options), 1);
    let theirs = trace_dir(&workload(2, &options), 2);
    let dir = Directory::new(&[]);
    let seed = Seed::new("two CPUs".into(), ours[0].1.clone());
    for other in [&ours[1].1, &theirs[0].1, &theirs[1].1] {
        let data = blocks(other).into_iter().find(|b| b.is_data).unwrap();
        for at in 1..seed.blocks.len() {
            let mut bytes = seed.bytes.clone();
            let place = seed.blocks[at].bytes.start;
            bytes.splice(place..place, other[data.bytes.clone()].iter().copied());
            let read = seed.read(&dir, &bytes);
            assert_eq!((read.verdict, read.events), (Verdict::Corrupt, seed.events(|_| true)), "before block {at}");
        }
    }
    // Whole files of two recordings are refused.
    let dir = Directory::new(&[("cpu0.out".into(), ours[0].1.clone()), ("cpu1.out".into(), theirs[1].1.clone())]);
    assert!(matches!(Trace::open(&[dir.path().to_owned()]), Err(OpenError::Mixed { .. })));
}

#[test]
fn a_tail_of_zeros_is_truncated() {
    let dir = Directory::new(&[]);
    for seed in seeds() {
        for block in &seed.blocks {
            for zeros in [512, 4096, 100_000] {
                let mut bytes = seed.bytes[..block.bytes.end].to_vec();
                bytes.resize(bytes.len() + zeros, 0);
                let read = seed.read(&dir, &bytes);
                let whole = seed.events(|i| seed.blocks[i].bytes.end <= block.bytes.end);
                assert_eq!((read.verdict, read.events), (Verdict::Truncated, whole), "{}: {zeros} zeros", seed.name);
            }
        }
    }
}
