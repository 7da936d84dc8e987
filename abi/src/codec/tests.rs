//! Encoder and decoder against each other, on generated sub-buffers and on damaged blocks.

use crate::codec::{CodecError, Decoder, Encoder, EventLayouts, Found, Limits};
use crate::kernel::format::{EventFormat, PageShape};
use crate::kernel::subbuffer::{Missed, RecordSource, SubBuffer, SubBufferError, Taken, Tally, tally};
use crate::kernel::varying::{AddressRange, Varying, VaryingPlaces};
use crate::target::{Big, Endian, Little, Target, TargetOrder};

/// Numbers of xorshift64*, the same for a seed everywhere.
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() >> 32) as usize % n.max(1)
    }

    fn is_one_of(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
}

/// An event: its format, and bytes of its records that no field covers.
struct Event {
    system: &'static str,
    format: EventFormat,
    /// Declared bytes of a record.
    len: usize,
    text: Option<usize>,
    /// Words follow at this byte, as many as one likes.
    words: Option<usize>,
}

fn event(system: &'static str, name: &str, id: u16, fields: &[(&str, usize, usize)]) -> Event {
    let line = |(declaration, offset, size): &(&str, usize, usize)| {
        format!("\tfield:{declaration};\toffset:{offset};\tsize:{size};\tsigned:0;\n")
    };
    let common = [
        ("unsigned short common_type", 0, 2),
        ("unsigned char common_flags", 2, 1),
        ("unsigned char common_preempt_count", 3, 1),
        ("int common_pid", 4, 4),
    ];
    let lines: String = common.iter().chain(fields).map(line).collect();
    let format = EventFormat::parse(&format!("name: {name}\nID: {id}\nformat:\n{lines}")).unwrap();
    let end = fields.iter().map(|(_, offset, size)| offset + size).max().unwrap_or(8);
    let text = fields.iter().find(|(declaration, ..)| declaration.starts_with("__")).map(|field| field.1);
    let words = fields.iter().find(|(declaration, ..)| declaration.contains('[')).map(|field| field.1);
    Event { system, format, len: end.next_multiple_of(8), words: words.filter(|_| text.is_none()), text }
}

/// Events of a kernel whose `long` has this many bytes.
fn events(word: usize) -> Vec<Event> {
    let (ptr, at) = (word, |n: usize| 8 + n * word);
    vec![
        event(
            "kmem",
            "kmalloc",
            11,
            &[
                ("unsigned long call_site", at(0), ptr),
                ("const void * ptr", at(1), ptr),
                ("size_t bytes_req", at(2), ptr),
                ("unsigned long gfp_flags", at(3), ptr),
                ("int node", at(4), 4),
            ],
        ),
        event("kmem", "kfree", 12, &[("unsigned long call_site", at(0), ptr), ("const void * ptr", at(1), ptr)]),
        event(
            "kmem",
            "kmem_cache_alloc",
            13,
            &[
                ("unsigned long call_site", at(0), ptr),
                ("const void * ptr", at(1), ptr),
                ("__data_loc char[] name", at(2), 4),
                ("size_t bytes_req", at(3), ptr),
                ("bool accounted", at(4), 1),
            ],
        ),
        event("kmem", "mm_page_free", 14, &[("unsigned long pfn", at(0), ptr), ("unsigned int order", at(1), 4)]),
        event(
            "kmem",
            "rss_stat",
            15,
            &[("unsigned int mm_id", 8, 4), ("unsigned int curr", 12, 4), ("int member", 16, 4), ("long size", 24, 8)],
        ),
        event("ftrace", "kernel_stack", 4, &[("int size", 8, 4), ("unsigned long caller[8]", 8 + ptr, 8 * ptr)]),
        event("kmem", "relative", 16, &[("unsigned short odd", 8, 2), ("__rel_loc char[] name", 12, 4)]),
    ]
}

/// A shape and the generator of its sub-buffers.
struct Machine {
    shape: PageShape,
    /// Records are aligned to 8 bytes and have the long form.
    is_aligned: bool,
    events: Vec<Event>,
}

impl Machine {
    fn new(endian: Endian, word_bytes: u8, is_aligned: bool, size: usize) -> Machine {
        let word = usize::from(word_bytes);
        let target = Target { endian, word_bytes };
        let shape = PageShape { target, commit_offset: 8, commit_size: word, data_offset: 8 + word, size };
        Machine { shape, is_aligned, events: events(word) }
    }

    fn encoder(&self, limits: Limits) -> Encoder {
        let formats = self.events.iter().map(|event| (event.system, &event.format));
        Encoder::new(self.shape, EventLayouts::new(formats), limits)
    }

    fn put(&self, out: &mut Vec<u8>, number: u64, size: usize) {
        match self.shape.target.endian {
            Endian::Little => out.extend_from_slice(&number.to_le_bytes()[..size]),
            Endian::Big => out.extend_from_slice(&number.to_be_bytes()[8 - size..]),
        }
    }

    fn word(&self, out: &mut Vec<u8>, type_len: u32, delta: u64) {
        let delta = delta & ((1 << 27) - 1);
        let little = self.shape.target.endian == Endian::Little;
        let word = if little { delta << 5 | u64::from(type_len) } else { u64::from(type_len) << 27 | delta };
        self.put(out, word, 4);
    }

    /// A record of a kernel in use: bytes without a field have anything.
    fn record(&self, random: &mut Random) -> Vec<u8> {
        let event = &self.events[random.below(self.events.len())];
        let mut record: Vec<u8> = (0..event.len).map(|_| random.next() as u8).collect();
        let set = |record: &mut Vec<u8>, offset: usize, size: usize, number: u64| {
            let mut bytes = Vec::new();
            self.put(&mut bytes, number, size);
            record[offset..offset + size].copy_from_slice(&bytes);
        };
        let few = random.below(4) as u64;
        for field in &event.format.fields {
            let number = match &*field.name {
                "common_type" => u64::from(event.format.id),
                "common_pid" => 1000 + random.below(3) as u64,
                "ptr" => 0xffff_8880_0000_0000 | (random.below(40) as u64) << 6 << (8 * random.below(4)),
                "pfn" => random.below(1 << 20) as u64,
                "mm_id" | "curr" if random.is_one_of(2) => random.next(),
                _ => few,
            };
            if matches!(field.size, 1 | 2 | 4 | 8) {
                set(&mut record, field.offset, field.size, number);
            }
        }
        let word = usize::from(self.shape.target.word_bytes);
        if let Some(at) = event.words {
            record.truncate(at);
            let frames = if random.is_one_of(50) { 700 } else { random.below(12) };
            let shift = random.below(3) as u64;
            (0..frames).for_each(|frame| self.put(&mut record, 0x8100_0000 + shift * frame as u64, word));
            set(&mut record, 8, 4, frames as u64);
        }
        if let Some(at) = event.text {
            let relative = event.format.field("name").is_some_and(|field| field.offset == 12 && event.format.id == 16);
            let text = [&b"kmalloc-64\0"[..], b"x\0", b"dentry\0", b""][random.below(4)];
            let start = if relative { record.len() - at - 4 } else { record.len() };
            // Now and then a place outside of the record: all of its bytes are kept then.
            let start = if random.is_one_of(60) { 60_000 } else { start };
            set(&mut record, at, 4, (text.len() as u64) << 16 | start as u64);
            record.extend_from_slice(text);
        }
        while !record.len().is_multiple_of(if self.is_aligned { 8 } else { 4 }) {
            record.push(random.next() as u8);
        }
        if random.is_one_of(80) {
            // A record that is too short for its fields.
            record.truncate(4 + 4 * random.below(3));
        }
        if random.is_one_of(60) {
            // An event without a format.
            set(&mut record, 0, 2, 999);
        }
        record
    }

    fn entry(&self, random: &mut Random) -> Vec<u8> {
        let mut entry = Vec::new();
        let delta = random.next() >> (37 + random.below(27));
        match random.below(40) {
            0 => {
                self.word(&mut entry, 30, delta);
                self.put(&mut entry, random.next(), 4);
            }
            1 => {
                self.word(&mut entry, 31, delta);
                self.put(&mut entry, random.next(), 4);
            }
            2 => {
                // A discarded event.
                let len = 8 + 8 * random.below(4);
                self.word(&mut entry, 29, delta.max(1));
                self.put(&mut entry, len as u64, 4);
                entry.extend((4..len).map(|_| random.next() as u8));
            }
            _ => {
                let record = self.record(random);
                if self.is_aligned || record.len() > 112 || record.is_empty() {
                    self.word(&mut entry, 0, delta);
                    self.put(&mut entry, record.len() as u64 + 4, 4);
                } else {
                    self.word(&mut entry, record.len() as u32 / 4, delta);
                }
                entry.extend(record);
            }
        }
        entry
    }

    /// A sub-buffer as it is stored: trimmed.
    fn sub_buffer(&self, random: &mut Random) -> Vec<u8> {
        let room = self.shape.size - self.shape.data_offset - 8;
        let wanted = if random.is_one_of(3) { random.below(room) } else { room };
        let mut data = Vec::new();
        loop {
            let entry = self.entry(random);
            if data.len() + entry.len() > wanted {
                break;
            }
            data.extend(entry);
        }
        if random.is_one_of(12) {
            // An end that is no entry, or one that makes no sense.
            let type_len = [29, 28, 0][random.below(3)];
            self.word(&mut data, type_len, 0);
        }
        let word = self.shape.commit_size;
        let marks: u64 = [0, 0, 0, 1 << 31, 3 << 30][random.below(5)];
        let commit = i64::from((data.len() as u32 | marks as u32).cast_signed()).cast_unsigned();
        let mut bytes = Vec::new();
        self.put(&mut bytes, random.next(), 8);
        self.put(&mut bytes, commit, word);
        bytes.extend(data);
        if marks == 3 << 30 {
            self.put(&mut bytes, random.next(), word);
        }
        bytes
    }

    fn block(&self, random: &mut Random) -> Vec<u8> {
        let mut block = Vec::new();
        (0..1 + random.below(6)).for_each(|_| block.extend(self.sub_buffer(random)));
        if random.is_one_of(10) {
            block.truncate(block.len() - random.below(block.len().min(100)));
        }
        block
    }
}

fn machine(random: &mut Random) -> Machine {
    let endian = if random.is_one_of(2) { Endian::Little } else { Endian::Big };
    let word = [4, 8][random.below(2)];
    let size = [4096, 4096, 16384, 65536][random.below(4)];
    let is_aligned = random.is_one_of(4);
    Machine::new(endian, word, is_aligned, size)
}

/// Number of generated blocks: a few, or all with `KMEMTRACE_RUNS=all`.
fn seeds() -> u64 {
    if std::env::var_os("KMEMTRACE_RUNS").is_some_and(|runs| runs == "all") { 10_000 } else { 120 }
}

fn encoded(encoder: &mut Encoder, raw: &[u8]) -> (Vec<u8>, Vec<Tally>) {
    let mut out = vec![0; 2 * raw.len() + 1000];
    let mut tallies = Vec::new();
    let len = encoder.encode(raw, &mut out, &mut |tally| tallies.push(*tally)).unwrap();
    out.truncate(len);
    (out, tallies)
}

/// A sub-buffer: its time, mark, records, and the entry that makes no sense.
#[derive(Debug, PartialEq)]
struct Walked {
    timestamp: u64,
    missed: Option<Missed>,
    records: Vec<(u64, Vec<u8>)>,
    error: Option<SubBufferError>,
}

/// What readers find in sub-buffers, up to what is none.
type Sight = (Vec<Walked>, Option<SubBufferError>);

/// Records of a block whose events have notes: the note is the number of the record.
#[derive(Default)]
struct Noted {
    records: Vec<Vec<u8>>,
    /// Records that came as notes.
    taken: usize,
}

fn take<R: RecordSource>(
    (timestamp, missed): (u64, Option<Missed>),
    source: &mut R,
    shape: &PageShape,
    noted: &mut Noted,
) -> Walked {
    let Target { endian, word_bytes } = shape.target;
    let word = usize::from(word_bytes);
    // Those of the objects' events.
    let places = VaryingPlaces { address: 8 + word, address_bytes: word, pid: 4 };
    let (mut records, mut error) = (Vec::new(), None);
    while let Some(record) = source.next_record(true) {
        match record {
            Ok(Taken::Noted { time, address, note }) => {
                let mut record = noted.records[note[0] as usize].clone();
                let bytes = address.to_le_bytes();
                let bytes: Vec<u8> = match endian {
                    Endian::Little => bytes[..word].to_vec(),
                    Endian::Big => bytes[..word].iter().rev().copied().collect(),
                };
                record[places.address..places.address + word].copy_from_slice(&bytes);
                noted.taken += 1;
                records.push((time, record));
            }
            Ok(Taken::Record(record)) => {
                assert!(record.rest.starts_with(record.payload));
                records.push((record.time, record.payload.to_vec()));
                if R::KEEPS_NOTES {
                    noted.records.push(record.payload.to_vec());
                    let note = [noted.records.len() as u64 - 1, 0, 0, 0];
                    source.keep_note(note, Varying { places, addresses: AddressRange::POINTERS });
                }
            }
            Err(found) => {
                error = Some(found);
                break;
            }
        }
    }
    Walked { timestamp, missed, records, error }
}

fn walked<O: TargetOrder>(shape: &PageShape, mut rest: &[u8], sight: &mut Sight) {
    while !rest.is_empty() && sight.1.is_none() {
        match SubBuffer::parse::<O>(shape, rest) {
            Ok(found) => {
                let mut records = found.records::<O>();
                sight.0.push(take((found.timestamp, found.missed), &mut records, shape, &mut Noted::default()));
                rest = &rest[found.stored..];
            }
            Err(error) => sight.1 = Some(error),
        }
    }
}

/// Takes records straight from a block, and counts those that come as notes.
fn taken<O: TargetOrder>(decoder: &mut Decoder, shape: &PageShape, block: &[u8], raw_len: usize) -> (Sight, usize) {
    let mut sight = (Vec::new(), None);
    let mut noted = Noted::default();
    decoder.begin(raw_len);
    while let Ok(Some(found)) = decoder.next_sub_buffer::<O>(block, shape, false) {
        match found {
            Found::Encoded(head, mut records) => {
                let missed = head.is_marked.then_some(Missed::Uncounted);
                sight.0.push(take((head.timestamp, missed), &mut records, shape, &mut noted));
            }
            Found::Plain(bytes) => walked::<O>(shape, bytes, &mut sight),
        }
        if sight.1.is_some() {
            break;
        }
    }
    (sight, noted.taken)
}

/// Checks that a reader of records finds what stands in the sub-buffers that come back from the same block; counts the records that came as
/// notes.
fn compare_taken(decoder: &mut Decoder, shape: &PageShape, block: &[u8], raw_len: usize, back: &[u8]) -> usize {
    let mut want = (Vec::new(), None);
    let (found, noted) = match shape.target.endian {
        Endian::Little => {
            walked::<Little>(shape, back, &mut want);
            taken::<Little>(decoder, shape, block, raw_len)
        }
        Endian::Big => {
            walked::<Big>(shape, back, &mut want);
            taken::<Big>(decoder, shape, block, raw_len)
        }
    };
    assert_eq!(found, want);
    noted
}

#[test]
fn each_block_comes_back_but_for_bytes_that_no_field_covers() {
    let (mut decoder, mut noted) = (Decoder::default(), 0);
    for seed in 0..seeds() {
        let mut random = Random::new(seed);
        let machine = machine(&mut random);
        let limits = [Limits::USUAL, Limits::LEAN, Limits { slots: 3, bytes: 1000 }][random.below(3)];
        let mut encoder = machine.encoder(limits);
        for _ in 0..3 {
            let raw = machine.block(&mut random);
            let (block, tallies) = encoded(&mut encoder, &raw);
            let mut want = raw.clone();
            encoder.layouts().clear_unused(&machine.shape, &mut want);
            let mut back = Vec::new();
            assert_eq!(decoder.decode(&block, raw.len(), &mut back), Ok(()), "seed {seed}");
            assert!(back == want, "seed {seed}: {:?}", back.iter().zip(&want).position(|(a, b)| a != b));
            noted += compare_taken(&mut decoder, &machine.shape, &block, raw.len(), &back);
            // What comes back is encoded alike.
            assert!(encoded(&mut encoder, &want).0 == block, "seed {seed}");
            let mut rest = &raw[..];
            let mut counted = Vec::new();
            while let Ok((tally, stored)) = tally(&machine.shape, rest) {
                counted.push(tally);
                rest = &rest[stored..];
                if rest.is_empty() {
                    break;
                }
            }
            assert_eq!(tallies, counted, "seed {seed}");
        }
    }
    assert!(noted > 1000, "{noted} records came as notes");
}

#[test]
fn bytes_that_no_field_covers_are_zeros_and_all_others_stay() {
    let machine = Machine::new(Endian::Little, 8, false, 4096);
    let layouts = EventLayouts::new(machine.events.iter().map(|event| (event.system, &event.format)));
    let cleared = |record: &[u8]| {
        let mut record = record.to_vec();
        layouts.clear_record::<crate::target::Little>(&mut record);
        record
    };
    let ones = |id: u16, len: usize| [&id.to_le_bytes()[..], &vec![0xff; len - 2]].concat();
    let zeros = |record: &[u8]| -> Vec<usize> {
        record.iter().enumerate().skip(2).filter(|(_, byte)| **byte == 0).map(|(at, _)| at).collect()
    };
    assert_eq!(zeros(&cleared(&ones(11, 48))), [44, 45, 46, 47], "kmalloc, behind node");
    assert_eq!(zeros(&cleared(&ones(14, 24))), [20, 21, 22, 23], "mm_page_free, behind order");
    assert_eq!(zeros(&cleared(&ones(15, 32))), [20, 21, 22, 23], "rss_stat, before size");
    let mut cache = ones(13, 56);
    cache[24..28].copy_from_slice(&(3u32 << 16 | 48).to_le_bytes());
    let found = zeros(&cleared(&cache));
    assert_eq!(found[..], [25, 27, 28, 29, 30, 31, 41, 42, 43, 44, 45, 46, 47, 51, 52, 53, 54, 55]);
    cache[24..28].copy_from_slice(&(9u32 << 16 | 48).to_le_bytes());
    assert_eq!(cleared(&cache), cache, "a text beyond the record");
    let stack = ones(4, 16 + 20 * 8);
    assert_eq!(zeros(&cleared(&stack)), [12, 13, 14, 15], "more frames than the format says");
    assert_eq!(cleared(&ones(11, 100))[52..], [0xff; 48], "more than alignment leaves");
    assert_eq!(cleared(&ones(999, 40)), ones(999, 40), "no format");
}

#[test]
fn usual_records_take_a_few_bytes() {
    let machine = Machine::new(Endian::Little, 8, false, 65536);
    let mut raw = Vec::new();
    let mut data = Vec::new();
    for n in 0..1000u64 {
        let (id, site) = ([11, 12][n as usize % 2], 0xffff_ffff_8100_0000 + n / 2 % 4 * 64);
        let mut record = Vec::new();
        record.extend(u64::from(id as u32 | 77 << 16).to_le_bytes());
        record.extend([site, 0xffff_8880_1234_0000 + n / 2 % 50 * 64].map(u64::to_le_bytes).concat());
        if id == 11 {
            record.extend([192, 0xcc0, u64::from(u32::MAX) | n << 32].map(u64::to_le_bytes).concat());
        }
        machine.word(&mut data, record.len() as u32 / 4, 90);
        data.extend(record);
    }
    machine.put(&mut raw, 1000, 8);
    machine.put(&mut raw, data.len() as u64, 8);
    raw.extend(data);
    let (block, tallies) = encoded(&mut machine.encoder(Limits::USUAL), &raw);
    assert_eq!(tallies[0].events, 1000);
    assert!(block.len() < 4000, "{} bytes for 1000 events", block.len());
}

#[test]
fn two_frees_are_encoded_as_the_format_says() {
    let machine = Machine::new(Endian::Little, 8, false, 4096);
    let mut raw = [1000u64, 56].map(u64::to_le_bytes).concat();
    for (delta, pointer) in [(10, 0xffff_8880_1234_0000), (90, 0xffff_8880_1234_0040)] {
        machine.word(&mut raw, 6, delta);
        raw.extend((12u64 | 1000 << 32).to_le_bytes());
        raw.extend([0xffff_ffff_8100_0040u64, pointer].map(u64::to_le_bytes).concat());
    }
    let (block, _) = encoded(&mut machine.encoder(Limits::USUAL), &raw);
    let want = [
        &[2, 16, 8, 4][..],
        &[0],
        &raw[..16],
        &[0x82, 6, 0x36, 4, 0x0d, 12, 0, 0, 0, 0x40, 0, 0, 0x81, 0xff, 0xff, 0xff, 0xff],
        &[0x4a, 10, 0xe8, 3, 0, 0, 0, 0, 0x34, 0x12, 0x80, 0x88, 0xff, 0xff],
        &[0x0e, 90, 8],
        &[0x80, 0],
    ];
    assert_eq!(block, want.concat());
}

/// Miri runs this as on a big-endian machine.
#[test]
fn records_come_back_whose_last_word_has_four_bytes() {
    for endian in [Endian::Little, Endian::Big] {
        let machine = Machine::new(endian, 8, false, 4096);
        let (mut data, mut raw) = (Vec::new(), Vec::new());
        for order in [3, 3, 7, 3] {
            // `mm_page_free` as kernels write it: without the bytes behind `order`.
            machine.word(&mut data, 5, 90);
            machine.put(&mut data, 14, 2);
            data.extend([0, 0]);
            machine.put(&mut data, 1000, 4);
            machine.put(&mut data, 0x1234_5678 + order, 8);
            machine.put(&mut data, order, 4);
        }
        machine.put(&mut raw, 1000, 8);
        machine.put(&mut raw, data.len() as u64, 8);
        raw.extend(data);
        let (block, _) = encoded(&mut machine.encoder(Limits::USUAL), &raw);
        assert!(block.len() < raw.len(), "{endian:?}: records are stored whole");
        let mut back = Vec::new();
        assert_eq!(Decoder::default().decode(&block, raw.len(), &mut back), Ok(()));
        assert_eq!(back, raw, "{endian:?}");
    }
}

#[test]
fn a_block_without_room_is_not_encoded_and_counted_all_the_same() {
    let mut random = Random::new(7);
    let machine = Machine::new(Endian::Little, 8, false, 4096);
    let raw = machine.block(&mut random);
    let mut encoder = machine.encoder(Limits::USUAL);
    let (block, tallies) = encoded(&mut encoder, &raw);
    for room in (0..block.len()).step_by(7) {
        let mut counted = Vec::new();
        let len = encoder.encode(&raw, &mut vec![0; room], &mut |tally| counted.push(*tally));
        assert_eq!((len, &counted), (None, &tallies), "{room}");
    }
}

/// Decodes a damaged block; what comes out before the error begins as the whole does, but for the commit word of the last sub-buffer.
fn damaged(decoder: &mut Decoder, block: &[u8], raw_len: usize) -> (Result<(), CodecError>, Vec<u8>) {
    let mut out = vec![1, 2, 3];
    let result = decoder.decode(block, raw_len, &mut out);
    assert!(out.len() <= raw_len);
    (result, out)
}

#[test]
fn a_cut_block_has_what_comes_before_the_cut() {
    let mut decoder = Decoder::default();
    for seed in 0..12 {
        let mut random = Random::new(seed);
        let machine = machine(&mut random);
        let raw = machine.block(&mut random);
        let mut encoder = machine.encoder(Limits::USUAL);
        let (block, _) = encoded(&mut encoder, &raw);
        let mut whole = raw.clone();
        encoder.layouts().clear_unused(&machine.shape, &mut whole);
        let count = |bytes: &[u8]| {
            let (mut rest, mut events) = (bytes, 0);
            while let Ok((tally, stored)) = tally(&machine.shape, rest) {
                events += tally.events;
                rest = &rest[stored..];
            }
            events
        };
        let mut before = 0;
        for cut in (0..block.len()).step_by(1 + block.len() / 300) {
            let (result, out) = damaged(&mut decoder, &block[..cut], raw.len());
            assert!(result.is_err(), "seed {seed}, {cut} bytes");
            compare_taken(&mut decoder, &machine.shape, &block[..cut], raw.len(), &out);
            let events = count(&out);
            assert!(events >= before && events <= count(&raw), "seed {seed}, {cut} bytes: {before}, then {events}");
            before = events;
            let differs = out.iter().zip(&whole).filter(|(a, b)| a != b).count();
            assert!(differs <= 8, "seed {seed}, {cut} bytes: {differs} differ");
        }
    }
}

#[test]
fn no_bytes_make_the_decoder_fail_otherwise_than_with_an_error() {
    let mut decoder = Decoder::default();
    for seed in 0..seeds() {
        let mut random = Random::new(seed);
        let machine = machine(&mut random);
        let raw = machine.block(&mut random);
        let (mut block, _) = encoded(&mut machine.encoder(Limits::LEAN), &raw);
        let head: [u8; 4] = *block.first_chunk().unwrap();
        for _ in 0..20 {
            for _ in 0..1 + random.below(4) {
                let at = random.below(block.len());
                match random.below(4) {
                    0 => block[at] ^= 1 << random.below(8),
                    1 => block[at] = random.next() as u8,
                    2 => drop(block.splice(at..at, [random.next() as u8 | 0x80])),
                    _ => drop(block.splice(at..(at + 3).min(block.len()), [])),
                }
                if block.len() < 8 {
                    return;
                }
            }
            let raw_len = [raw.len(), random.below(raw.len()), raw.len() + random.below(9)][random.below(3)];
            let (_, out) = damaged(&mut decoder, &block, raw_len);
            if block[..4] == head {
                compare_taken(&mut decoder, &machine.shape, &block, raw_len, &out);
            }
        }
        let noise: Vec<u8> = [0, 16, 8, 4].into_iter().chain((0..500).map(|_| random.next() as u8)).collect();
        let _ = damaged(&mut decoder, &noise, 10_000);
    }
}

#[test]
fn errors_name_what_is_wrong_and_where() {
    let mut decoder = Decoder::default();
    let mut message = |block: &[u8], raw_len: usize| damaged(&mut decoder, block, raw_len).0.unwrap_err().to_string();
    let head = [2, 16, 8, 4];
    let begin = [&head[..], &[0], &[0; 16]].concat();
    let of = |bytes: &[u8]| [&begin[..], bytes].concat();
    assert_eq!(message(&[], 0), "the records are cut at byte 0 of the encoded records");
    assert_eq!(message(&[4, 16, 8, 4], 0), "a head that no version writes at byte 0 of the encoded records");
    assert_eq!(message(&begin, 99), "the records are cut at byte 21 of the encoded records");
    assert_eq!(message(&of(&[0, 5]), 99), "slot 0, which is not defined, at byte 21 of the encoded records");
    assert_eq!(message(&of(&[1, 0x85, 1, 5]), 99), "slot 133, which is not defined, at byte 21 of the encoded records");
    assert_eq!(message(&of(&[0x90]), 99), "an unknown code 0x90 at byte 21 of the encoded records");
    assert_eq!(
        message(&of(&[0x82, 29, 0, 0, 0, 0, 0]), 99),
        "a slot whose record has an impossible form at byte 21 of the encoded records"
    );
    assert_eq!(
        message(&of(&[0x82, 1, 0, 0, 2, 9]), 99),
        "a value for a slot without one at byte 25 of the encoded records"
    );
    assert_eq!(
        message(&of(&[0x82, 1, 0, 0, 0x30, 0, 0, 0, 0xff]), 99),
        "a time delta of more than 27 bits at byte 25 of the encoded records"
    );
    assert_eq!(
        message(&of(&[0x81, 4, 1, 0, 0, 0]), 99),
        "a sub-buffer of another length than it tells at byte 21 of the encoded records"
    );
    let holding_8 = [&head[..], &[0], &[0; 8], &[8], &[0; 7], &[0x81, 4, 2, 0, 0, 0]].concat();
    assert_eq!(message(&holding_8, 99), "bytes that are no whole entries at byte 21 of the encoded records");
    assert_eq!(
        message(&of(&[0x80, 0]), 15),
        "more bytes than the block's header tells at byte 4 of the encoded records"
    );
    assert_eq!(
        message(&of(&[0x80, 0]), 17),
        "fewer bytes than the block's header tells at byte 23 of the encoded records"
    );
}
