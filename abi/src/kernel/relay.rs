//! Records of the 2008 kmemtrace relay channel (`mm/kmemtrace.c` of its four postings).
//!
//! Addresses and sizes are 64 bit on every machine; only the byte order differs. Every revision announced
//! ABI version 1, so the layout is found from the bytes.

use zerocopy::byteorder::{I32, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use crate::event::Kind;
use crate::target::{Big, Endian, Little, TargetOrder};

/// Layouts of records, by the posting of kmemtrace that wrote them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Layout {
    /// 2008-07-10 and 07-17: fixed 56 bytes, ids of 16 bits, time stamps.
    R1,
    /// 2008-07-22: fixed 56 bytes, ids of 8 bits and a size, time stamps.
    R3,
    /// 2008-08-10 and later: 24 or 48 bytes and optional features, sequence numbers.
    R4,
}

impl Layout {
    /// `"r1"`, `"r3"` or `"r4"`, as a file header has it.
    pub fn name(self) -> &'static str {
        match self {
            Layout::R1 => "r1",
            Layout::R3 => "r3",
            Layout::R4 => "r4",
        }
    }

    /// The layout of this name.
    pub(crate) fn from_name(name: &str) -> Option<Layout> {
        [Layout::R1, Layout::R3, Layout::R4].into_iter().find(|l| l.name() == name)
    }
}

/// Bytes of an R1 or R3 record.
const FIXED_BYTES: usize = 56;
/// Bytes of an R4 free, and of what all R4 records have.
const FREE_BYTES: usize = 24;
/// Bytes of an R4 allocation.
const ALLOC_BYTES: usize = 48;
/// Bytes of a feature's own header: size u16, id u8.
const FEATURE_HEAD: usize = 3;

/// R4, what free and allocation share.
#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct R4Head<O: zerocopy::ByteOrder> {
    event_id: u8,
    type_id: u8,
    event_size: U16<O>,
    sequence: U32<O>,
    call_site: U64<O>,
    ptr: U64<O>,
}

/// R4, the rest of an allocation.
#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct R4Alloc<O: zerocopy::ByteOrder> {
    bytes_req: U64<O>,
    bytes_alloc: U64<O>,
    gfp_flags: U32<O>,
    numa_node: I32<O>,
}

/// R1 and R3 after their four bytes of ids. A free has garbage in node, sizes and flags.
#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct FixedBody<O: zerocopy::ByteOrder> {
    node: I32<O>,
    call_site: U64<O>,
    ptr: U64<O>,
    bytes_req: U64<O>,
    bytes_alloc: U64<O>,
    gfp_flags: U64<O>,
    timestamp: U64<O>,
}

/// Fields of an allocation that a free does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Allocation {
    pub(crate) requested: u64,
    pub(crate) allocated: u64,
    pub(crate) gfp: u64,
    pub(crate) node: i32,
}

/// A relay record of any layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RelayRecord {
    /// R4: the sequence number; else the time stamp.
    pub(crate) stamp: u64,
    /// Index in [`TYPES`].
    pub(crate) type_id: usize,
    pub(crate) call_site: u64,
    pub(crate) ptr: u64,
    pub(crate) allocation: Option<Allocation>,
}

/// Bytes at a place that should hold a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parsed {
    /// A record and its length.
    Record(RelayRecord, usize),
    /// Bytes that could be the start of a record, which is cut.
    Short,
    /// No record.
    Bad,
}

/// Type of a record: the kind of its object, and the tracepoints that tell of its allocation and free today.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RelayType {
    pub(crate) kind: Kind,
    pub(crate) events: [&'static str; 2],
}

/// Types by number: `enum kmemtrace_type_id` of include/linux/kmemtrace.h in all four postings.
pub(crate) const TYPES: [RelayType; 3] = [
    RelayType { kind: Kind::Kmalloc, events: ["kmalloc", "kfree"] },
    RelayType { kind: Kind::Cache, events: ["kmem_cache_alloc", "kmem_cache_free"] },
    RelayType { kind: Kind::Pages, events: ["mm_page_alloc", "mm_page_free"] },
];

fn known_type(type_id: u16) -> Option<usize> {
    Some(usize::from(type_id)).filter(|&id| id < TYPES.len())
}

/// Parses the record at the start of `bytes`.
#[inline]
pub(crate) fn parse<O: TargetOrder>(layout: Layout, bytes: &[u8]) -> Parsed {
    match layout {
        Layout::R4 => parse_r4::<O>(bytes),
        Layout::R1 | Layout::R3 => parse_fixed::<O>(layout, bytes),
    }
}

#[inline]
fn parse_r4<O: TargetOrder>(bytes: &[u8]) -> Parsed {
    let Some((&[event_id, type_id, ..], size)) =
        bytes.first_chunk::<4>().map(|head| (head, U16::<O::View>::from_bytes([head[2], head[3]]).get()))
    else {
        return Parsed::Short;
    };
    let least = match event_id {
        0 => ALLOC_BYTES,
        1 => FREE_BYTES,
        _ => return Parsed::Bad,
    };
    let size = usize::from(size);
    let Some(type_id) = known_type(u16::from(type_id)).filter(|_| size >= least) else { return Parsed::Bad };
    let Some(record) = bytes.get(..size) else { return Parsed::Short };
    if size > least && !record.get(least..).is_some_and(features_fit::<O>) {
        return Parsed::Bad;
    }
    let Ok((head, rest)) = R4Head::<O::View>::ref_from_prefix(record) else { return Parsed::Bad };
    let allocation = match event_id {
        0 => match R4Alloc::<O::View>::ref_from_prefix(rest) {
            Ok((alloc, _)) => Some(Allocation {
                requested: alloc.bytes_req.get(),
                allocated: alloc.bytes_alloc.get(),
                gfp: u64::from(alloc.gfp_flags.get()),
                node: alloc.numa_node.get(),
            }),
            Err(_) => return Parsed::Bad,
        },
        _ => None,
    };
    let stamp = u64::from(head.sequence.get());
    let record = RelayRecord { stamp, type_id, call_site: head.call_site.get(), ptr: head.ptr.get(), allocation };
    Parsed::Record(record, size)
}

/// True if the bytes after the mandatory part are features that end where the record ends.
fn features_fit<O: TargetOrder>(mut features: &[u8]) -> bool {
    while !features.is_empty() {
        let Some(head) = features.first_chunk::<FEATURE_HEAD>() else { return false };
        let size = usize::from(U16::<O::View>::from_bytes([head[0], head[1]]).get());
        match features.get(size..) {
            Some(rest) if size >= FEATURE_HEAD => features = rest,
            _ => return false,
        }
    }
    true
}

fn parse_fixed<O: TargetOrder>(layout: Layout, bytes: &[u8]) -> Parsed {
    let Some((&ids, rest)) = bytes.split_first_chunk::<4>() else { return Parsed::Short };
    let number = |low, high| U16::<O::View>::from_bytes([low, high]).get();
    let (event_id, type_id) = match layout {
        Layout::R1 => (number(ids[0], ids[1]), number(ids[2], ids[3])),
        _ if usize::from(number(ids[2], ids[3])) == FIXED_BYTES => (u16::from(ids[0]), u16::from(ids[1])),
        _ => return Parsed::Bad,
    };
    let (Some(type_id), 1 | 2) = (known_type(type_id), event_id) else { return Parsed::Bad };
    let Ok((body, _)) = FixedBody::<O::View>::ref_from_prefix(rest) else { return Parsed::Short };
    let allocation = (event_id == 1).then(|| Allocation {
        requested: body.bytes_req.get(),
        allocated: body.bytes_alloc.get(),
        gfp: body.gfp_flags.get(),
        node: body.node.get(),
    });
    let (call_site, ptr) = (body.call_site.get(), body.ptr.get());
    let record = RelayRecord { stamp: body.timestamp.get(), type_id, call_site, ptr, allocation };
    Parsed::Record(record, FIXED_BYTES)
}

/// True if `next` can be the stamp after `stamp`: sequence numbers wrap, time stamps do not.
fn follows(layout: Layout, stamp: u64, next: u64) -> bool {
    match layout {
        Layout::R4 => (next as u32).wrapping_sub(stamp as u32).cast_signed() > 0,
        Layout::R1 | Layout::R3 => next >= stamp,
    }
}

/// Records in a row that convince.
const CONVINCING: usize = 64;

/// Number of records in a row at the start of `bytes`; true if the row ends for want of bytes.
fn run_length<O: TargetOrder>(layout: Layout, bytes: &[u8]) -> (usize, bool) {
    let mut offset = 0;
    let mut last: Option<u64> = None;
    for count in 0..CONVINCING {
        match parse::<O>(layout, bytes.get(offset..).unwrap_or_default()) {
            Parsed::Record(record, len) if last.is_none_or(|last| follows(layout, last, record.stamp)) => {
                last = Some(record.stamp);
                offset = offset.saturating_add(len);
            }
            Parsed::Short => return (count, true),
            _ => return (count, false),
        }
    }
    (CONVINCING, true)
}

/// Number of records in a row at the start of `bytes`, by the layout and byte order that have most.
#[cfg(feature = "inputs")]
pub(crate) fn run(bytes: &[u8]) -> usize {
    let runs = [Layout::R4, Layout::R3, Layout::R1].into_iter().flat_map(|layout| {
        [run_length::<Little>(layout, bytes), run_length::<Big>(layout, bytes)].map(|(records, _)| records)
    });
    runs.max().unwrap_or(0)
}

/// Finds layout and byte order from the first records of a stream: the combination under which most records
/// follow one another. `None` where not even one record is there.
pub fn detect(bytes: &[u8]) -> Option<(Layout, Endian)> {
    [Layout::R4, Layout::R3, Layout::R1]
        .into_iter()
        .flat_map(|layout| {
            [
                (layout, Endian::Little, run_length::<Little>(layout, bytes)),
                (layout, Endian::Big, run_length::<Big>(layout, bytes)),
            ]
        })
        .filter(|&(_, _, (records, _))| records > 0)
        // The first of equals: `max_by_key` would take the last.
        .fold(None, |best: Option<(Layout, Endian, (usize, bool))>, found| match best {
            Some(best) if (best.2.0, best.2.1) >= (found.2.0, found.2.1) => Some(best),
            _ => Some(found),
        })
        .filter(|&(_, _, (records, to_the_end))| records > 1 || to_the_end)
        .map(|(layout, endian, _)| (layout, endian))
}

/// Offset at which records stand again, searching `bytes` from its second byte; `None`: not in these bytes.
///
/// Three records in a row convince, fewer where the bytes end with them.
pub(crate) fn resume<O: TargetOrder>(layout: Layout, bytes: &[u8], at_end: bool) -> Option<usize> {
    (1..bytes.len()).find(|&offset| {
        let (records, cut) = run_length::<O>(layout, bytes.get(offset..).unwrap_or_default());
        records >= 3 || (records > 0 && cut && at_end)
    })
}

/// Sequence number (R4) or time stamp of the record at the start of `bytes`; `None` where there is none.
pub(crate) fn first_stamp(layout: Layout, endian: Endian, bytes: &[u8]) -> Option<u64> {
    let parsed = match endian {
        Endian::Little => parse::<Little>(layout, bytes),
        Endian::Big => parse::<Big>(layout, bytes),
    };
    if let Parsed::Record(record, _) = parsed { Some(record.stamp) } else { None }
}

/// Counts of relay bytes, for a recorder that does not decode them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RelayTally {
    /// Whole records.
    pub events: u64,
    /// Stamp (R4: sequence number) of the first one; 0 where there is none.
    pub first: u64,
    /// Stamp of the last one.
    pub last: u64,
    /// Bytes of the whole records; the rest is the start of the next one, unless `bad`.
    pub consumed: usize,
    /// True if the bytes after the whole records are no record.
    pub bad: bool,
}

/// Counts the whole records at the start of `bytes`.
pub fn tally(layout: Layout, endian: Endian, bytes: &[u8]) -> RelayTally {
    match endian {
        Endian::Little => tally_in::<Little>(layout, bytes),
        Endian::Big => tally_in::<Big>(layout, bytes),
    }
}

fn tally_in<O: TargetOrder>(layout: Layout, bytes: &[u8]) -> RelayTally {
    let mut tally = RelayTally::default();
    while let Some(rest) = bytes.get(tally.consumed..).filter(|rest| !rest.is_empty()) {
        match parse::<O>(layout, rest) {
            Parsed::Record(record, len) => {
                if tally.events == 0 {
                    tally.first = record.stamp;
                }
                tally.last = record.stamp;
                tally.events = tally.events.saturating_add(1);
                tally.consumed = tally.consumed.saturating_add(len);
            }
            Parsed::Short => break,
            Parsed::Bad => {
                tally.bad = true;
                break;
            }
        }
    }
    tally
}

#[cfg(test)]
mod tests {
    use super::*;

    fn r4(endian: Endian, id: u8, sequence: u32, features: &[u8]) -> Vec<u8> {
        let size = (if id == 0 { ALLOC_BYTES } else { FREE_BYTES } + features.len()) as u16;
        let mut out = vec![id, 1];
        let mut put = |little: &[u8]| match endian {
            Endian::Little => out.extend_from_slice(little),
            Endian::Big => out.extend(little.iter().rev()),
        };
        put(&size.to_le_bytes());
        put(&sequence.to_le_bytes());
        put(&0xffff_ffff_8100_0000u64.to_le_bytes());
        put(&0xffff_8880_0000_1000u64.to_le_bytes());
        if id == 0 {
            put(&100u64.to_le_bytes());
            put(&128u64.to_le_bytes());
            put(&0xcc0u32.to_le_bytes());
            put(&(-1i32).to_le_bytes());
        }
        out.extend_from_slice(features);
        out
    }

    fn fixed(endian: Endian, layout: Layout, id: u16, time: u64) -> Vec<u8> {
        let mut out = Vec::new();
        let mut put = |little: &[u8]| match endian {
            Endian::Little => out.extend_from_slice(little),
            Endian::Big => out.extend(little.iter().rev()),
        };
        if layout == Layout::R1 {
            put(&id.to_le_bytes());
            put(&0u16.to_le_bytes());
        } else {
            put(&[id as u8]);
            put(&[0]);
            put(&56u16.to_le_bytes());
        }
        put(&(-1i32).to_le_bytes());
        for word in [0xc010_0000u64, 0xc800_1000, 40, 64, 0xd0, time] {
            put(&word.to_le_bytes());
        }
        out
    }

    #[test]
    fn layout_and_byte_order_are_found_from_the_bytes() {
        for endian in [Endian::Little, Endian::Big] {
            // Across the wrap-around, and with a feature on the first record.
            let feature: &[u8] =
                if endian == Endian::Big { &[0, 8, 9, 1, 2, 3, 4, 5] } else { &[8, 0, 9, 1, 2, 3, 4, 5] };
            let stream: Vec<u8> =
                [r4(endian, 1, u32::MAX, feature), r4(endian, 0, 0, &[]), r4(endian, 1, 3, &[])].concat();
            assert_eq!(detect(&stream), Some((Layout::R4, endian)));
            assert_eq!(detect(&r4(endian, 0, 1, &[])), Some((Layout::R4, endian)));
            let tally = tally(Layout::R4, endian, &stream[..stream.len() - 1]);
            assert_eq!(tally, RelayTally { events: 2, first: u32::MAX.into(), last: 0, consumed: 80, bad: false });
            for layout in [Layout::R1, Layout::R3] {
                let stream = [fixed(endian, layout, 1, 10), fixed(endian, layout, 2, 20)].concat();
                assert_eq!(detect(&stream), Some((layout, endian)), "{layout:?}");
                assert_eq!(detect(&stream[..56]), Some((layout, endian)), "{layout:?}");
            }
        }
        assert_eq!(detect(b""), None);
        assert_eq!(detect(&[0; 4096]), None);
        assert_eq!(detect(&b"hello world ".repeat(50)), None);
    }

    #[test]
    fn a_record_has_its_fields_and_frees_have_no_sizes() {
        let bytes = r4(Endian::Big, 0, 7, &[]);
        let Parsed::Record(record, 48) = parse::<Big>(Layout::R4, &bytes) else { panic!("no record") };
        assert_eq!((record.stamp, record.type_id, record.call_site), (7, 1, 0xffff_ffff_8100_0000));
        assert_eq!(record.allocation, Some(Allocation { requested: 100, allocated: 128, gfp: 0xcc0, node: -1 }));
        let bytes = fixed(Endian::Little, Layout::R3, 2, 99);
        let Parsed::Record(record, 56) = parse::<Little>(Layout::R3, &bytes) else { panic!("no record") };
        assert_eq!((record.stamp, record.allocation), (99, None));
    }

    #[test]
    fn reading_resumes_after_damage() {
        let mut stream: Vec<u8> = (1..20).flat_map(|n| r4(Endian::Little, (n % 2) as u8, n, &[])).collect();
        stream[0] = 9;
        assert_eq!(parse::<Little>(Layout::R4, &stream), Parsed::Bad);
        assert_eq!(resume::<Little>(Layout::R4, &stream, true), Some(24));
        assert_eq!(resume::<Little>(Layout::R4, &[0; 500], true), None);
    }

    #[test]
    fn impossible_records_are_refused() {
        let zeros = [0u8; 64];
        assert_eq!(parse::<Little>(Layout::R4, &zeros), Parsed::Bad);
        let mut bad_feature = r4(Endian::Little, 1, 1, &[2, 0, 0, 0]);
        assert_eq!(parse::<Little>(Layout::R4, &bad_feature), Parsed::Bad);
        bad_feature[24] = 4;
        assert!(matches!(parse::<Little>(Layout::R4, &bad_feature), Parsed::Record(_, 28)));
        bad_feature[1] = 3;
        assert_eq!(parse::<Little>(Layout::R4, &bad_feature), Parsed::Bad);
    }

    const BOTH: [Endian; 2] = [Endian::Little, Endian::Big];

    fn parse_in(endian: Endian, layout: Layout, bytes: &[u8]) -> Parsed {
        match endian {
            Endian::Little => parse::<Little>(layout, bytes),
            Endian::Big => parse::<Big>(layout, bytes),
        }
    }

    #[test]
    fn a_layout_has_the_name_that_a_file_header_has() {
        for (layout, name) in [(Layout::R1, "r1"), (Layout::R3, "r3"), (Layout::R4, "r4")] {
            assert_eq!((layout.name(), Layout::from_name(name)), (name, Some(layout)));
        }
        assert_eq!(Layout::from_name("r2"), None);
    }

    #[test]
    fn records_of_every_layout_have_their_fields_in_either_byte_order() {
        for endian in BOTH {
            let allocation = Allocation { requested: 40, allocated: 64, gfp: 0xd0, node: -1 };
            for layout in [Layout::R1, Layout::R3] {
                for (id, allocation) in [(1, Some(allocation)), (2, None)] {
                    let record =
                        RelayRecord { stamp: 99, type_id: 0, call_site: 0xc010_0000, ptr: 0xc800_1000, allocation };
                    let bytes = fixed(endian, layout, id, 99);
                    assert_eq!(parse_in(endian, layout, &bytes), Parsed::Record(record, 56), "{layout:?}");
                    assert_eq!(parse_in(endian, layout, &bytes[..55]), Parsed::Short);
                    assert_eq!(parse_in(endian, layout, &bytes[..3]), Parsed::Short);
                }
                for id in [0, 3] {
                    assert_eq!(parse_in(endian, layout, &fixed(endian, layout, id, 99)), Parsed::Bad, "{layout:?}");
                }
            }
            let allocation = Allocation { requested: 100, allocated: 128, gfp: 0xcc0, node: -1 };
            for (id, len, allocation) in [(0, ALLOC_BYTES, Some(allocation)), (1, FREE_BYTES, None)] {
                let record = RelayRecord {
                    stamp: 7,
                    type_id: 1,
                    call_site: 0xffff_ffff_8100_0000,
                    ptr: 0xffff_8880_0000_1000,
                    allocation,
                };
                let bytes = r4(endian, id, 7, &[]);
                assert_eq!(parse_in(endian, Layout::R4, &bytes), Parsed::Record(record, len));
                assert_eq!(parse_in(endian, Layout::R4, &bytes[..len - 1]), Parsed::Short);
                assert_eq!(parse_in(endian, Layout::R4, &bytes[..3]), Parsed::Short);
            }
        }
    }

    #[test]
    fn the_type_of_a_record_is_the_kind_of_its_object() {
        for (id, kind) in [(0, Some(Kind::Kmalloc)), (1, Some(Kind::Cache)), (2, Some(Kind::Pages)), (3, None)] {
            let mut bytes = r4(Endian::Little, 1, 1, &[]);
            bytes[1] = id;
            let found = match parse::<Little>(Layout::R4, &bytes) {
                Parsed::Record(record, _) => Some(TYPES[record.type_id].kind),
                _ => None,
            };
            assert_eq!(found, kind, "{id}");
        }
    }

    #[test]
    fn features_fill_a_record_to_its_end() {
        let of = |features: &[u8]| parse::<Little>(Layout::R4, &r4(Endian::Little, 1, 1, features));
        for features in [&[3, 0, 9][..], &[4, 0, 9, 1], &[3, 0, 9, 5, 0, 9, 1, 2]] {
            let len = FREE_BYTES + features.len();
            assert!(matches!(of(features), Parsed::Record(_, found) if found == len), "{features:?}");
        }
        for features in [&[3, 0][..], &[2, 0, 9], &[0, 0, 9], &[4, 0, 9], &[3, 0, 9, 1], &[3, 0, 9, 9, 0, 9]] {
            assert_eq!(of(features), Parsed::Bad, "{features:?}");
        }
        // A size that is less than what every record has, and a size that R3 does not know.
        let mut small = r4(Endian::Little, 0, 1, &[]);
        small[2] = ALLOC_BYTES as u8 - 1;
        assert_eq!(parse::<Little>(Layout::R4, &small), Parsed::Bad);
        let mut other = fixed(Endian::Little, Layout::R3, 1, 1);
        other[2] = 57;
        assert_eq!(parse::<Little>(Layout::R3, &other), Parsed::Bad);
    }

    #[test]
    fn numbers_rise_across_their_wrap_and_times_do_not_fall() {
        let of = |stamps: [u32; 3]| stamps.map(|stamp| r4(Endian::Little, 1, stamp, &[])).concat();
        let run = |stamps| run_length::<Little>(Layout::R4, &of(stamps));
        for (stamps, length) in [
            ([1, 2, 3], (3, true)),
            ([u32::MAX - 1, u32::MAX, 0], (3, true)),
            ([5, 5, 6], (1, false)),
            ([5, 6, 4], (2, false)),
            ([0, 0x7fff_ffff, 0xffff_fffe], (3, true)),
            ([0, 0x8000_0001, 0x8000_0002], (1, false)),
        ] {
            assert_eq!(run(stamps), length, "{stamps:?}");
        }
        for layout in [Layout::R1, Layout::R3] {
            let of = |stamps: [u64; 3]| stamps.map(|stamp| fixed(Endian::Big, layout, 1, stamp)).concat();
            assert_eq!(run_length::<Big>(layout, &of([5, 5, 1 << 40])), (3, true));
            assert_eq!(run_length::<Big>(layout, &of([5, 4, 6])), (1, false));
        }
    }

    #[test]
    fn records_behind_other_bytes_are_no_stream_unless_they_go_on() {
        // One record and then something else may be chance, two in a row are none.
        let record = |n| r4(Endian::Little, 1, n, &[]);
        assert_eq!(detect(&[record(1), vec![9; 30]].concat()), None);
        assert_eq!(detect(&[record(1), record(2), vec![9; 30]].concat()), Some((Layout::R4, Endian::Little)));
        assert_eq!(detect(&[record(1), record(2)[..10].to_vec()].concat()), Some((Layout::R4, Endian::Little)));
        // More records than it takes to convince.
        let many: Vec<u8> = (1..100).flat_map(|n| r4(Endian::Big, 0, n, &[])).collect();
        assert_eq!(detect(&many), Some((Layout::R4, Endian::Big)));
    }

    #[test]
    fn three_records_convince_behind_damage_or_those_up_to_the_end() {
        let records = |count: u32| (1..=count).flat_map(|n| r4(Endian::Little, 1, n, &[])).collect::<Vec<u8>>();
        let junk = [9; 5];
        for (bytes, at_end, want) in [
            ([&junk[..], &records(3), &[9; 40]].concat(), false, Some(5)),
            ([&junk[..], &records(2), &[9; 40]].concat(), false, None),
            ([&junk[..], &records(2), &[9; 40]].concat(), true, None),
            ([&junk[..], &records(2)].concat(), false, None),
            ([&junk[..], &records(2)].concat(), true, Some(5)),
            ([&junk[..], &records(1)].concat(), true, Some(5)),
            (records(1)[..10].to_vec(), true, None),
            // The place where reading stands is known to be bad.
            (records(5), false, Some(24)),
        ] {
            assert_eq!(resume::<Little>(Layout::R4, &bytes, at_end), want, "{} bytes, {at_end}", bytes.len());
        }
    }

    #[test]
    fn whole_records_are_counted_up_to_what_is_none() {
        for endian in BOTH {
            let stream = [r4(endian, 1, 8, &[]), r4(endian, 0, 9, &[]), r4(endian, 1, 12, &[])].concat();
            let all = RelayTally { events: 3, first: 8, last: 12, consumed: 96, bad: false };
            assert_eq!(tally(Layout::R4, endian, &stream), all);
            assert_eq!(tally(Layout::R4, endian, &[&stream[..], &[9; 50]].concat()), RelayTally { bad: true, ..all });
            assert_eq!(tally(Layout::R4, endian, &[]), RelayTally::default());
            assert_eq!(first_stamp(Layout::R4, endian, &stream), Some(8));
            assert_eq!(first_stamp(Layout::R4, endian, &stream[..20]), None);
            assert_eq!(first_stamp(Layout::R1, endian, &fixed(endian, Layout::R1, 2, 77)), Some(77));
        }
    }
}
