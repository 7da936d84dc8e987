//! Reading blocks: damage, cuts, holes and foreign blocks, and the bytes that a reader takes at once.

use std::io::{Seek, Write};

use super::*;
use crate::disk::block::{BlockInfo, FLAG_OPTIONAL, FLAG_ZSTD, NO_CPU, crc32c};

const RECORDING: RecordingId = [7; 16];
const CPU: u32 = 3;

fn file(bytes: &[u8]) -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    file.rewind().unwrap();
    file
}

fn info(kind: u8, sequence: u64) -> BlockInfo {
    BlockInfo { kind, cpu: CPU, recording: RECORDING, sequence, ..BlockInfo::default() }
}

fn data(sequence: u64) -> Vec<u8> {
    block::block(&info(kind::DATA, sequence), format!("payload {sequence}").as_bytes())
}

fn end(sequence: u64) -> Vec<u8> {
    block::block(&info(kind::END, sequence), b"")
}

/// A block whose header is not as [`block::seal`] makes it; its checksum is right.
fn with_header(info: &BlockInfo, payload: &[u8], change: impl Fn(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = block::block(info, payload);
    change(&mut bytes);
    let len = usize::from(u16::from_le_bytes([bytes[12], bytes[13]]));
    let crc = crc32c(&bytes[12..len]).to_le_bytes();
    bytes[8..12].copy_from_slice(&crc);
    bytes
}

fn flipped(mut bytes: Vec<u8>, at: usize) -> Vec<u8> {
    bytes[at] ^= 1;
    bytes
}

/// A block that was handed out.
#[derive(Debug, PartialEq, Eq)]
struct Got {
    sequence: u64,
    offset: u64,
    damage_before: bool,
    payload: Vec<u8>,
}

/// Blocks, findings and ending of a file.
struct Seen {
    reader: BlockReader,
    got: Vec<Got>,
    faults: Vec<Fault>,
    ending: Ending,
}

impl Seen {
    fn of(file: File) -> Seen {
        let mut reader = BlockReader::new(file);
        let (mut got, mut faults) = (Vec::new(), Vec::new());
        let ending = Seen::rest(&mut reader, &mut got, &mut faults);
        Seen { reader, got, faults, ending }
    }

    fn rest(reader: &mut BlockReader, got: &mut Vec<Got>, faults: &mut Vec<Fault>) -> Ending {
        let ending = loop {
            match reader.next(&mut |fault| faults.push(fault)) {
                Ok(Block { header, offset, damage_before, .. }) => {
                    let (sequence, payload) = (header.sequence.get(), reader.payload().to_vec());
                    got.push(Got { sequence, offset, damage_before, payload });
                }
                Err(ending) => break ending,
            }
        };
        let told = faults.len();
        assert_eq!(reader.next(&mut |fault| faults.push(fault)).err(), Some(ending), "the end is told once");
        assert_eq!(faults.len(), told, "{faults:?}");
        ending
    }

    fn parts(parts: &[&[u8]]) -> Seen {
        Seen::of(file(&parts.concat()))
    }

    /// Number of each block, and whether there was damage before it.
    fn numbers(&self) -> Vec<(u64, bool)> {
        self.got.iter().map(|got| (got.sequence, got.damage_before)).collect()
    }

    fn found(&self) -> Vec<(Code, u64, Option<u64>)> {
        self.faults.iter().map(|fault| (fault.code, fault.offset, fault.block)).collect()
    }

    /// The only finding's text.
    fn message(&self) -> &str {
        let [fault] = &self.faults[..] else { panic!("{:?}", self.faults) };
        &fault.message
    }
}

#[test]
fn a_whole_file_comes_block_by_block_without_a_finding() {
    let (first, second, last) = (data(0), data(1), end(2));
    let seen = Seen::parts(&[&first, &second, &last]);
    let got = |sequence, offset: usize, payload: &[u8]| Got {
        sequence,
        offset: offset as u64,
        damage_before: false,
        payload: payload.to_vec(),
    };
    let two = first.len() + second.len();
    assert_eq!(seen.got, [got(0, 0, b"payload 0"), got(1, first.len(), b"payload 1"), got(2, two, b"")]);
    assert_eq!((seen.ending, seen.found()), (Ending::Whole, vec![]));
    let reader = &seen.reader;
    assert_eq!(reader.known(), Some((HEADER_BYTES, RECORDING, CPU)));
    assert_eq!((reader.recording(), reader.cpu(), reader.newer()), (Some(RECORDING), Some(CPU), None));
    assert_eq!((reader.version(), reader.blocks()), ((block::Major::One.number(), block::MINOR), 3));
    assert_eq!(reader.bytes_read(), (two + last.len()) as u64);
    let nothing = BlockReader::new(file(b""));
    assert_eq!((nothing.known(), nothing.recording(), nothing.cpu()), (None, None, None));
}

#[test]
fn a_file_without_a_cpu_and_of_another_minor_version_is_read() {
    let info = BlockInfo { kind: kind::META, cpu: NO_CPU, ..BlockInfo::default() };
    let old = with_header(&info, b"x", |bytes| bytes[16] = 0);
    let seen = Seen::parts(&[&old]);
    assert_eq!((seen.reader.version(), seen.reader.cpu()), ((1, 0), Some(NO_CPU)));
    let newer = with_header(&info, b"x", |bytes| bytes[16] = 9);
    assert_eq!(Seen::parts(&[&newer]).reader.version(), (1, 9));
}

#[test]
fn a_file_cut_anywhere_keeps_its_whole_blocks() {
    let blocks = [data(0), data(1), end(2)];
    let file = blocks.concat();
    let ends = [0, blocks[0].len(), blocks[0].len() + blocks[1].len()];
    for len in 0..file.len() {
        let seen = Seen::parts(&[&file[..len]]);
        let whole = ends.iter().filter(|&&end| end <= len).count() - 1;
        let from = ends[whole];
        let (code, block) = match len {
            0 => (Code::Empty, None),
            _ if len == from => (Code::NoEnd, None),
            _ => (Code::CutInBlock, Some(whole as u64)),
        };
        assert_eq!(seen.numbers(), [(0, false), (1, false)][..whole], "{len}");
        assert_eq!((seen.ending, seen.found()), (Ending::Cut, vec![(code, from as u64, block)]), "{len}");
        assert_eq!((seen.reader.blocks(), seen.reader.newer()), (whole as u64, None));
    }
}

#[test]
fn a_cut_is_told_with_the_bytes_that_are_there() {
    let (first, second) = (data(0), data(1));
    for (parts, message) in [
        (&[&first[..50]][..], "ends inside block 0 at byte 0: 50 of its bytes are there; every earlier block is whole"),
        (
            &[&first, &second[..40]],
            "ends inside block 1 at byte 105: 40 of its 96 bytes are there; every earlier block is whole",
        ),
        (
            &[&first, &second[..100]],
            "ends inside block 1 at byte 105: 100 of its 105 bytes are there; every earlier block is whole",
        ),
        (&[&first, &second], "ends after block 1 without an end block; all 2 are whole"),
        (&[], "the file has no bytes"),
    ] {
        assert_eq!(Seen::parts(parts).message(), message);
    }
    // A block whose number is not the next one is cut under its own number.
    let seen = Seen::parts(&[&first, &data(5)[..100]]);
    assert_eq!(seen.found(), [(Code::CutInBlock, 105, Some(5))]);
}

#[test]
fn a_payload_with_a_wrong_checksum_is_left_out_and_told_with_its_place() {
    let bad = flipped(data(1), HEADER_BYTES + 2);
    let seen = Seen::parts(&[&data(0), &bad, &data(2), &end(3)]);
    assert_eq!(seen.numbers(), [(0, false), (2, true), (3, false)]);
    assert_eq!((seen.ending, seen.found()), (Ending::Whole, vec![(Code::BadPayload, 105, Some(1))]));
    assert_eq!(seen.message(), "block 1 at byte 105: checksum differs; good data resumes at 210");
    // Damage that nothing follows is no cut.
    let seen = Seen::parts(&[&data(0), &bad]);
    assert_eq!((seen.ending, seen.found()), (Ending::Damaged, vec![(Code::BadPayload, 105, Some(1))]));
    assert_eq!((seen.reader.blocks(), seen.reader.bytes_read()), (1, 210));
    // The header of a damaged first block still tells of which file the others are.
    let seen = Seen::parts(&[&flipped(data(0), HEADER_BYTES), &data(1), &end(2)]);
    assert_eq!(seen.numbers(), [(1, true), (2, false)]);
    assert_eq!(seen.reader.known(), Some((HEADER_BYTES, RECORDING, CPU)));
}

#[test]
fn reading_resumes_at_the_next_whole_header_behind_damage() {
    let other = BlockInfo { recording: [8; 16], ..info(kind::DATA, 2) };
    let bad = flipped(data(1), 40);
    let between = [
        bad.clone(),
        [&bad[..], b"no header"].concat(),
        [&bad[..], &MAGIC, &MAGIC[..5], &MAGIC].concat(),
        // The header of another recording is not where this one resumes.
        [&bad[..], &block::block(&other, b"other")].concat(),
        [&bad[..], &vec![MAGIC[0]; 3000]].concat(),
        [&bad[..], &vec![0; 200_000], b"\x01"].concat(),
        [&vec![b'x'; 600][..], &MAGIC[..7]].concat(),
        b"x".to_vec(),
    ];
    for junk in between {
        let seen = Seen::parts(&[&data(0), &junk, &data(2), &end(3)]);
        assert_eq!(seen.numbers(), [(0, false), (2, true), (3, false)], "{}", junk.len());
        assert_eq!((seen.ending, seen.found()), (Ending::Whole, vec![(Code::BadHeader, 105, None)]));
        let message = format!("no whole block header at byte 105; good data resumes at {}", 105 + junk.len());
        assert_eq!(seen.message(), message);
        assert_eq!(seen.got[1].payload, b"payload 2");
        assert_eq!(seen.got[1].offset, 105 + junk.len() as u64);
        // Behind the last block nothing resumes.
        let seen = Seen::parts(&[&data(0), &junk]);
        assert_eq!((seen.numbers(), seen.ending), (vec![(0, false)], Ending::Damaged));
        assert_eq!(seen.found(), [(Code::BadHeader, 105, None)]);
        assert_eq!(seen.message(), "no whole block header at byte 105, and none after it");
        assert_eq!(seen.reader.bytes_read(), 105 + junk.len() as u64);
    }
}

#[test]
fn the_last_header_of_a_file_is_found_behind_damage() {
    // An end block without a payload: nothing stands behind its header.
    let seen = Seen::parts(&[&data(0), b"junk", &end(2)]);
    assert_eq!((seen.numbers(), seen.ending), (vec![(0, false), (2, true)], Ending::Whole));
    let seen = Seen::parts(&[&data(0), b"junk", &end(2)[..HEADER_BYTES - 1]]);
    assert_eq!((seen.numbers(), seen.ending), (vec![(0, false)], Ending::Damaged));
}

#[test]
fn damage_at_the_start_is_that_of_the_file_header() {
    let bad = flipped(data(0), 20);
    for junk in [&bad[..], b"junk before", &bad[8..]] {
        let seen = Seen::parts(&[junk, &data(1), &end(2)]);
        // The number of the first block is missing because of the damage, which is told.
        assert_eq!(seen.numbers(), [(1, true), (2, false)]);
        assert_eq!(seen.found(), [(Code::BadFileHeader, 0, None)]);
        assert_eq!(seen.reader.recording(), Some(RECORDING));
    }
    // A first header that is whole, and a second one that is not: the file header was there.
    let seen = Seen::parts(&[&flipped(data(0), HEADER_BYTES), &flipped(data(1), 20), &data(2), &end(3)]);
    assert_eq!(seen.found(), [(Code::BadPayload, 0, Some(0)), (Code::BadHeader, 105, None)]);
}

#[test]
fn a_hole_in_the_numbers_is_told_and_a_block_that_comes_twice_is_left_out() {
    let seen = Seen::parts(&[&data(0), &data(3), &end(4)]);
    assert_eq!(seen.numbers(), [(0, false), (3, true), (4, false)]);
    assert_eq!((seen.ending, seen.found()), (Ending::Whole, vec![(Code::OutOfSequence, 105, Some(3))]));
    assert_eq!(seen.message(), "block 3 at byte 105 stands where block 1 should");
    let seen = Seen::parts(&[&data(0), &data(1), &data(0), &data(2), &end(3)]);
    assert_eq!(seen.numbers(), [(0, false), (1, false), (2, true), (3, false)]);
    assert_eq!(seen.found(), [(Code::OutOfSequence, 210, Some(0))]);
    assert_eq!(seen.message(), "block 0 at byte 210 stands where block 2 should");
    // Damage explains a hole, but not a block that comes twice.
    let seen = Seen::parts(&[&data(0), b"junk", &data(3), &end(4)]);
    assert_eq!(seen.found(), [(Code::BadHeader, 105, None)]);
    let seen = Seen::parts(&[&data(0), &data(1), b"junk", &data(0), &data(2), &end(3)]);
    assert_eq!(seen.found(), [(Code::BadHeader, 210, None), (Code::OutOfSequence, 214, Some(0))]);
    assert_eq!(seen.numbers(), [(0, false), (1, false), (2, true), (3, false)]);
}

#[test]
fn blocks_of_other_files_are_left_out() {
    let cpu = block::block(&BlockInfo { cpu: 4, ..info(kind::DATA, 1) }, b"other");
    let recording = block::block(&BlockInfo { recording: [8; 16], ..info(kind::DATA, 1) }, b"other");
    for (foreign, message) in [(cpu, "block 1 belongs to CPU 4"), (recording, "block 1 belongs to another recording")] {
        let seen = Seen::parts(&[&data(0), &foreign, &data(1), &end(2)]);
        assert_eq!(seen.numbers(), [(0, false), (1, true), (2, false)]);
        assert_eq!((seen.ending, seen.found()), (Ending::Whole, vec![(Code::Foreign, 105, Some(1))]));
        assert_eq!((seen.message(), seen.reader.blocks()), (message, 3));
        let seen = Seen::parts(&[&data(0), &foreign]);
        assert_eq!((seen.ending, seen.reader.bytes_read()), (Ending::Damaged, 105 + foreign.len() as u64));
    }
}

#[test]
fn unknown_kinds_are_skipped_and_cost_something_only_where_they_are_needed() {
    let of = |kind: u8, flags: u8| block::block(&BlockInfo { flags, ..info(kind, 1) }, b"later");
    for (kind, flags, code, damage) in [
        (8, FLAG_OPTIONAL, Code::UnknownBlock, false),
        (255, FLAG_OPTIONAL | FLAG_ZSTD, Code::UnknownBlock, false),
        (8, 0, Code::BadHeader, true),
        (0, FLAG_ZSTD, Code::BadHeader, true),
    ] {
        let seen = Seen::parts(&[&data(0), &of(kind, flags), &data(2), &end(3)]);
        assert_eq!(seen.numbers(), [(0, false), (2, damage), (3, false)], "{kind} {flags}");
        assert_eq!((seen.ending, seen.found()), (Ending::Whole, vec![(code, 105, Some(1))]));
        assert_eq!(seen.message(), format!("block 1 at byte 105 is of kind {kind}, which is not known here"));
        assert_eq!((seen.reader.blocks(), seen.reader.bytes_read()), (4, 105 + 101 + 105 + 96));
    }
    // Damage before a block that may be skipped is damage before the next one.
    let seen = Seen::parts(&[&data(0), &flipped(data(1), 100), &of(7, FLAG_OPTIONAL)[..], &end(3)]);
    assert_eq!(seen.numbers(), [(0, false), (3, true)]);
}

#[cfg(feature = "zstd")]
#[test]
fn compressed_payloads_are_expanded_to_the_size_they_tell() {
    let text = b"many many many many bytes".repeat(40);
    let packed = zstd::bulk::compress(&text, 3).unwrap();
    let compressed = |sequence, flags, raw_len| {
        let mut bytes = [&[0; HEADER_BYTES][..], &packed].concat();
        block::seal(&mut bytes, &BlockInfo { flags, ..info(kind::DATA, sequence) }, Some(raw_len));
        bytes
    };
    let good = compressed(0, FLAG_ZSTD, text.len());
    let len = good.len() as u64;
    let seen = Seen::parts(&[&good, &compressed(1, FLAG_ZSTD | FLAG_OPTIONAL, text.len()), &data(2), &end(3)]);
    assert_eq!((seen.ending, seen.found()), (Ending::Whole, vec![]));
    assert!(seen.got[0].payload == text && seen.got[1].payload == text);
    assert_eq!(seen.got[2].payload, b"payload 2");
    // Without the flag the bytes are the payload.
    let seen = Seen::parts(&[&compressed(0, FLAG_OPTIONAL, text.len()), &end(1)]);
    assert_eq!((&seen.got[0].payload, seen.found()), (&packed, vec![]));
    for raw_len in [text.len() - 1, text.len() + 1, 0] {
        let seen = Seen::parts(&[&good, &compressed(1, FLAG_ZSTD, raw_len), &data(2), &end(3)]);
        assert_eq!(seen.numbers(), [(0, false), (2, true), (3, false)], "{raw_len}");
        assert_eq!((seen.ending, seen.found()), (Ending::Whole, vec![(Code::BadCompression, len, Some(1))]));
        assert_eq!(seen.message(), format!("block 1 at byte {len} does not expand to {raw_len} bytes"));
        assert_eq!(seen.reader.blocks(), 3);
    }
}

#[test]
fn a_newer_major_version_is_told_by_the_first_block_alone() {
    let newer = |sequence| with_header(&info(kind::DATA, sequence), b"later", |bytes| bytes[14] = 3);
    let seen = Seen::parts(&[&newer(0), &data(1)]);
    assert_eq!((seen.ending, seen.reader.newer(), seen.found()), (Ending::Damaged, Some(3), vec![]));
    let seen = Seen::parts(&[&data(0), &newer(1), &data(2), &end(3)]);
    assert_eq!((seen.reader.newer(), seen.found()), (None, vec![(Code::BadHeader, 105, None)]));
    assert_eq!(seen.numbers(), [(0, false), (2, true), (3, false)]);
}

#[test]
fn a_longer_header_of_a_later_minor_version_is_passed_over() {
    let longer = |sequence: u64, kind: u8, len: usize| {
        with_header(&info(kind, sequence), b"payload", |bytes| {
            bytes.splice(HEADER_BYTES..HEADER_BYTES, vec![0xee; len - HEADER_BYTES]);
            bytes[12..14].copy_from_slice(&(len as u16).to_le_bytes());
        })
    };
    for len in [HEADER_BYTES + 1, 128, block::MAX_HEADER_BYTES] {
        let seen = Seen::parts(&[&longer(0, kind::DATA, len), &longer(1, kind::END, len)]);
        assert_eq!((seen.ending, seen.found()), (Ending::Whole, vec![]));
        assert!(seen.got.iter().all(|got| got.payload == b"payload"));
        assert_eq!(seen.got[1].offset, len as u64 + 7);
        assert_eq!(seen.reader.known(), Some((len, RECORDING, CPU)));
        // Headers of a file have the same length.
        let seen = Seen::parts(&[&longer(0, kind::DATA, len), &data(1), &longer(2, kind::END, len)]);
        assert_eq!(seen.numbers(), [(0, false), (2, true)]);
        assert_eq!(seen.found(), [(Code::BadHeader, len as u64 + 7, None)]);
    }
    let seen = Seen::parts(&[&longer(0, kind::DATA, block::MAX_HEADER_BYTES + 1), &data(1)]);
    assert_eq!(seen.numbers(), [(1, true)]);
}

#[test]
fn zeros_at_the_end_are_what_a_power_cut_leaves() {
    let big = block::block(&info(kind::DATA, 1), &[1; 2000]);
    let zeros = |len: usize| vec![0; len];
    let before = data(0);
    let whole = big.len();
    for (parts, code, block, ending) in [
        // Zeros where a header should stand: a single one will do.
        (&[&before[..], &zeros(1)][..], Code::ZeroTail, None, Ending::Cut),
        (&[&before[..], &zeros(300_000)], Code::ZeroTail, None, Ending::Cut),
        // The start of a header: only a sector of zeros tells them from damage.
        (&[&before[..], &big[..40], &zeros(1000)], Code::ZeroTail, None, Ending::Cut),
        (&[&before[..], &big[..40], &zeros(SECTOR + 40)], Code::ZeroTail, None, Ending::Cut),
        (&[&before[..], &big[..19], &zeros(SECTOR)], Code::ZeroTail, None, Ending::Cut),
        (&[&before[..], &big[..19], &zeros(SECTOR - 1)], Code::BadHeader, None, Ending::Damaged),
        (&[&before[..], &big[..19], &zeros(SECTOR), b"x"], Code::BadHeader, None, Ending::Damaged),
        (&[&before[..], &zeros(600), b"x"], Code::BadHeader, None, Ending::Damaged),
        // Zeros at the end of a payload.
        (&[&before[..], &big[..whole - SECTOR], &zeros(SECTOR)], Code::ZeroTail, Some(1), Ending::Cut),
        (&[&before[..], &big[..whole - SECTOR], &zeros(SECTOR + 9)], Code::ZeroTail, Some(1), Ending::Cut),
        (&[&before[..], &big[..whole - SECTOR + 1], &zeros(SECTOR - 1)], Code::BadPayload, Some(1), Ending::Damaged),
    ] {
        let seen = Seen::parts(parts);
        assert_eq!((seen.numbers(), seen.ending), (vec![(0, false)], ending), "{:?}", seen.faults);
        assert_eq!(seen.found(), [(code, 105, block)]);
    }
    let seen = Seen::parts(&[&before, &zeros(9)]);
    assert_eq!(seen.message(), "nothing but zeros from byte 105 on; every earlier block is whole");
    let seen = Seen::parts(&[&before, &big[..19], &zeros(600)]);
    assert_eq!(seen.message(), "nothing but zeros from byte 124 on; every earlier block is whole");
    let seen = Seen::parts(&[&before, &big[..whole - 600], &zeros(600)]);
    assert_eq!(seen.message(), "block 1 at byte 105 ends in zeros; every earlier block is whole");
    // Zeros that blocks follow are damage.
    let seen = Seen::parts(&[&before, &big[..whole - 600], &zeros(600), &data(2), &end(3)]);
    assert_eq!((seen.numbers(), seen.ending), (vec![(0, false), (2, true), (3, false)], Ending::Whole));
    assert_eq!(seen.found(), [(Code::BadPayload, 105, Some(1))]);
}

#[test]
fn bytes_behind_the_end_block_are_told() {
    let seen = Seen::parts(&[&data(0), &end(1), b"x"]);
    assert_eq!((seen.numbers(), seen.ending), (vec![(0, false), (1, false)], Ending::Damaged));
    assert_eq!(seen.found(), [(Code::AfterEnd, 105 + 96, None)]);
    // Zeros are what a copy in whole sectors leaves.
    for zeros in [1, 300, 5000] {
        let seen = Seen::parts(&[&data(0), &end(1), &vec![0; zeros]]);
        assert_eq!((seen.numbers(), seen.ending), (vec![(0, false), (1, false)], Ending::Cut));
        assert_eq!(seen.found(), [(Code::ZeroTail, 105 + 96, None)]);
    }
    let seen = Seen::parts(&[&data(0), &end(1), &[0; 300], b"x"]);
    assert_eq!((seen.found(), seen.ending), (vec![(Code::AfterEnd, 105 + 96, None)], Ending::Damaged));
}

#[test]
fn blocks_of_any_size_come_back_from_files_and_pipes() {
    let sizes = [0, 1, 20_000, 130_000, 3, 1_500_000, 64, 700_000, 700_000, 5, 2_000_000, 0];
    let payload = |n: usize, len: usize| (0..len).map(|at| (at * 31 + n) as u8).collect::<Vec<u8>>();
    let blocks = sizes.iter().enumerate().map(|(n, &len)| block::block(&info(kind::DATA, n as u64), &payload(n, len)));
    let bytes = [blocks.collect::<Vec<_>>().concat(), end(sizes.len() as u64)].concat();
    let (reader, mut writer) = std::io::pipe().unwrap();
    let to_write = bytes.clone();
    let writing = std::thread::spawn(move || writer.write_all(&to_write));
    for file in [file(&bytes), File::from(std::os::fd::OwnedFd::from(reader))] {
        let seen = Seen::of(file);
        assert_eq!((seen.ending, seen.found()), (Ending::Whole, vec![]));
        assert_eq!(seen.got.len(), sizes.len() + 1);
        for (n, (got, &len)) in seen.got.iter().zip(&sizes).enumerate() {
            assert!(got.payload == payload(n, len), "block {n}");
        }
        // Memory is bounded by the largest block, not by the file.
        assert!(seen.reader.window.buffer.len() <= 2_000_000 + 2 * CHUNK.end(), "{}", seen.reader.window.buffer.len());
    }
    writing.join().unwrap().unwrap();
}

#[test]
fn a_reader_goes_on_at_a_block_that_it_is_told() {
    let blocks = [data(0), data(1), data(2), end(3)];
    let mut reader = BlockReader::new(file(&blocks.concat()));
    let (mut got, mut faults) = (Vec::new(), Vec::new());
    assert!(reader.next(&mut |fault| faults.push(fault)).is_ok());
    assert_eq!((reader.bytes_read(), reader.bytes_met()), (0, 105));
    reader.enter(210, 2).unwrap();
    assert_eq!((reader.bytes_read(), reader.bytes_met(), reader.blocks()), (0, 0, 2));
    assert_eq!(Seen::rest(&mut reader, &mut got, &mut faults), Ending::Whole);
    assert_eq!(got.iter().map(|got| (got.sequence, got.offset)).collect::<Vec<_>>(), [(2, 210), (3, 315)]);
    // Bytes that were passed over do not count as read.
    assert_eq!((reader.bytes_read(), reader.blocks(), faults.len()), (105 + 96, 4, 0));
    // A file that was read to its end is entered again.
    reader.enter(105, 1).unwrap();
    got.clear();
    assert_eq!(Seen::rest(&mut reader, &mut got, &mut faults), Ending::Whole);
    assert_eq!(got.iter().map(|got| got.sequence).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(faults, []);
}

#[test]
fn a_file_that_cannot_be_read_is_cut_there() {
    let dir = tempfile::tempdir().unwrap();
    let seen = Seen::of(File::open(dir.path()).unwrap());
    assert_eq!((seen.numbers(), seen.ending), (vec![], Ending::Cut));
    assert_eq!(seen.found(), [(Code::CutInBlock, 0, None)]);
    assert!(seen.message().starts_with("cannot be read beyond byte 0: "), "{}", seen.message());
    let mut window = Window::new(File::open(dir.path()).unwrap());
    assert!(window.fill(1).is_empty());
    assert!(window.take_error().is_some() && window.take_error().is_none());
}

#[test]
fn a_window_hands_out_bytes_in_order_and_reads_no_more_than_it_should() {
    let bytes: Vec<u8> = (0..500_000u32).map(|n| (n / 3) as u8).collect();
    let mut window = Window::new(file(&bytes));
    let position = |window: &Window| window.file().unwrap().stream_position().unwrap();
    assert_eq!((window.bytes().len(), window.offset()), (0, 0));
    assert_eq!(window.fill(0).len(), 0);
    // Little at a file's beginning, which is all that opening most files takes.
    assert!(window.fill(10) == &bytes[..16 << 10]);
    assert_eq!(position(&window), 16 << 10);
    window.fill(16 << 10);
    assert_eq!(position(&window), 16 << 10);
    window.advance(1000);
    assert_eq!(window.offset(), 1000);
    assert!(window.bytes() == &bytes[1000..16 << 10]);
    // The bytes that are wanted and the next block's header come with one call.
    assert!(window.fill(300_000) == &bytes[1000..301_000 + AHEAD]);
    window.advance(300_000);
    assert_eq!(window.fill(AHEAD).len(), AHEAD);
    assert!(window.fill(AHEAD + 1) == &bytes[301_000..301_000 + AHEAD + (128 << 10)]);
    // A file that ends before gives what it has.
    assert!(window.fill(400_000) == &bytes[301_000..]);
    window.advance(usize::MAX);
    assert_eq!((window.offset(), window.fill(1).len()), (bytes.len() as u64, 0));
    window.enter(7).unwrap();
    assert_eq!((window.offset(), window.fill(3)[..3].to_vec()), (7, bytes[7..10].to_vec()));
    // One call asks for a megabyte at most, and for the few bytes that are wanted beyond two of them no third is read.
    let mut window = Window::new(file(&vec![1; 3 << 20]));
    window.fill((2 << 20) + 5);
    assert_eq!(position(&window), (2 << 20) + (128 << 10));
}

#[test]
fn only_zeros_are_left_where_at_least_one_byte_is_and_all_are_zero() {
    for (bytes, want, at) in [
        (vec![], false, 0),
        (vec![0], true, 1),
        (vec![1], false, 0),
        (vec![0; 200_000], true, 200_000),
        ([vec![0; 200_000], vec![5, 0]].concat(), false, 200_000),
    ] {
        let mut window = Window::new(file(&bytes));
        assert_eq!((window.only_zeros_left(), window.offset()), (want, at));
    }
}
