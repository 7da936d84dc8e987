//! Records of the ftrace tracer "kmemtrace" of Linux 2.6.29 to 2.6.31 (`kernel/trace/kmemtrace.c`), as its `trace_pipe` has them in
//! binary: those of all CPUs in one stream, by time.
//!
//! Numbers have the machine's byte order, and addresses and sizes its word size:
//!
//! | 64 bits | 32 bits | type | field |
//! |---:|---:|---|---|
//! | 0 | 0 | u8 | 0: allocation, 1: free |
//! | 1 | 1 | u8 | type of the object |
//! | 2 | 2 | u16 | bytes of the record: 56 or 32, with 32 bits 40 or 24 |
//! | 4 | 4 | u32 | CPU |
//! | 8 | 8 | u64 | time in nanoseconds |
//! | 16 | 16 | long | call site |
//! | 24 | 20 | long | address |
//! | 32 | 24 | long | bytes asked for, of an allocation |
//! | 40 | 28 | long | bytes taken |
//! | 48 | 32 | u32 | flags |
//! | 52 | 36 | i32 | NUMA node asked for |

use super::relay::{self, TYPES};
use crate::target::{Endian, u32_of, u64_of};

/// Records in a row that convince.
const CONVINCING: usize = 64;
/// Records in a row behind bytes that are none.
const RESUMING: usize = 3;
/// Largest number of a CPU that a machine of 2009 had (`NR_CPUS`).
const MAX_CPU: u32 = 4096;

/// Layout of a stream's records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Bytes of a `long`.
    pub(crate) word_bytes: u8,
    pub(crate) endian: Endian,
}

/// Numbers of an allocation that a free does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Allocation {
    pub(crate) requested: u64,
    pub(crate) allocated: u64,
    pub(crate) gfp: u64,
    pub(crate) node: i32,
}

/// A record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TracerRecord {
    /// Nanoseconds.
    pub(crate) time: u64,
    pub(crate) cpu: u32,
    /// Index in [`TYPES`].
    pub(crate) type_id: usize,
    pub(crate) call_site: u64,
    pub(crate) address: u64,
    pub(crate) allocation: Option<Allocation>,
}

/// Bytes at a place that should hold a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parsed {
    /// A record and its length.
    Record(TracerRecord, usize),
    /// Bytes that could be the start of a record, which is cut.
    Short,
    /// No record.
    Bad,
}

impl Layout {
    const ALL: [Layout; 4] = [
        Layout { word_bytes: 8, endian: Endian::Little },
        Layout { word_bytes: 8, endian: Endian::Big },
        Layout { word_bytes: 4, endian: Endian::Little },
        Layout { word_bytes: 4, endian: Endian::Big },
    ];

    /// Bytes of an allocation and of a free.
    fn lens(self) -> [usize; 2] {
        if self.word_bytes == 8 { [56, 32] } else { [40, 24] }
    }

    /// Bytes of the longest record.
    pub(crate) fn longest(self) -> usize {
        self.lens()[0]
    }

    /// Parses the record at the start of `bytes`.
    pub(crate) fn parse(self, bytes: &[u8]) -> Parsed {
        let Some(&[event, type_id, a, b]) = bytes.first_chunk::<4>() else { return Parsed::Short };
        let size = match self.endian {
            Endian::Little => u16::from_le_bytes([a, b]),
            Endian::Big => u16::from_be_bytes([a, b]),
        };
        let (event, type_id) = (usize::from(event), usize::from(type_id));
        let Some(&len) = self.lens().get(event).filter(|&&len| len == usize::from(size) && type_id < TYPES.len())
        else {
            return Parsed::Bad;
        };
        let Some(record) = bytes.get(..len) else { return Parsed::Short };
        match self.read(record, type_id, event == 0) {
            Some(record) => Parsed::Record(record, len),
            None => Parsed::Bad,
        }
    }

    #[expect(clippy::arithmetic_side_effects, reason = "words of a record are numbered from 0 to 3")]
    fn read(self, record: &[u8], type_id: usize, allocates: bool) -> Option<TracerRecord> {
        let endian = self.endian;
        let word = |index: usize| match self.word_bytes {
            8 => u64_of(endian, record, 16 + 8 * index),
            _ => u32_of(endian, record, 16 + 4 * index).map(u64::from),
        };
        let behind = 16 + 4 * usize::from(self.word_bytes);
        let allocation = match allocates {
            true => Some(Allocation {
                requested: word(2)?,
                allocated: word(3)?,
                gfp: u32_of(endian, record, behind)?.into(),
                node: u32_of(endian, record, behind + 4)?.cast_signed(),
            }),
            false => None,
        };
        let cpu = u32_of(endian, record, 4).filter(|&cpu| cpu < MAX_CPU)?;
        let (time, call_site, address) = (u64_of(endian, record, 8)?, word(0)?, word(1)?);
        Some(TracerRecord { time, cpu, type_id, call_site, address, allocation })
    }

    /// Number of records in a row at the start of `bytes` whose times do not fall; true if the row ends for want of bytes.
    fn run_length(self, bytes: &[u8]) -> (usize, bool) {
        let (mut offset, mut last) = (0, 0);
        for count in 0..CONVINCING {
            match self.parse(bytes.get(offset..).unwrap_or_default()) {
                Parsed::Record(record, len) if record.time >= last => {
                    last = record.time;
                    offset = offset.saturating_add(len);
                }
                Parsed::Short => return (count, true),
                _ => return (count, false),
            }
        }
        (CONVINCING, true)
    }

    /// Offset at which records stand again, searching `bytes` from its second byte; `None`: not in these bytes.
    pub(crate) fn resume(self, bytes: &[u8], at_end: bool) -> Option<usize> {
        (1..bytes.len()).find(|&offset| {
            let (records, is_cut) = self.run_length(bytes.get(offset..).unwrap_or_default());
            records >= RESUMING || (records > 0 && is_cut && at_end)
        })
    }
}

/// Finds the layout from the first records of a file. A free of 32 bits looks like one of a relay channel, whose records have numbers
/// where these have CPUs: the longer row decides, and the relay channel where both are equal.
pub(crate) fn detect(bytes: &[u8]) -> Option<Layout> {
    let (layout, (records, is_cut)) =
        Layout::ALL.into_iter().map(|layout| (layout, layout.run_length(bytes))).rev().max_by_key(|(_, run)| *run)?;
    let convinces = records > 1 || (records > 0 && is_cut);
    (convinces && records > relay::run(bytes)).then_some(layout)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An allocation, or a free without sizes.
    fn record(layout: Layout, time: u64, cpu: u32, sizes: Option<(u64, u64)>) -> Vec<u8> {
        let mut out = vec![u8::from(sizes.is_none()), 1];
        let mut put = |number: u64, len: usize| match layout.endian {
            Endian::Little => out.extend(&number.to_le_bytes()[..len]),
            Endian::Big => out.extend(&number.to_be_bytes()[8 - len..]),
        };
        let word = usize::from(layout.word_bytes);
        put(layout.lens()[usize::from(sizes.is_none())] as u64, 2);
        put(cpu.into(), 4);
        put(time, 8);
        put(0xc010_0000, word);
        put(0xc800_1000, word);
        if let Some((requested, allocated)) = sizes {
            put(requested, word);
            put(allocated, word);
            put(0xd0, 4);
            put(u32::MAX.into(), 4);
        }
        out
    }

    #[test]
    fn layouts_are_found_and_records_have_their_fields() {
        for layout in Layout::ALL {
            let stream =
                [record(layout, 5, 3, Some((40, 64))), record(layout, 5, 1, None), record(layout, 9, 3, None)].concat();
            assert_eq!(detect(&stream), Some(layout));
            assert_eq!(detect(&stream[..stream.len() - 1]), Some(layout), "cut in its last record");
            let allocation = Some(Allocation { requested: 40, allocated: 64, gfp: 0xd0, node: -1 });
            let want =
                TracerRecord { time: 5, cpu: 3, type_id: 1, call_site: 0xc010_0000, address: 0xc800_1000, allocation };
            assert_eq!(layout.parse(&stream), Parsed::Record(want, layout.longest()));
            for len in 0..layout.longest() {
                assert_eq!(layout.parse(&stream[..len]), Parsed::Short);
            }
            let damaged = [&stream[..], &[9; 7], &stream[..], &stream[..]].concat();
            assert_eq!(layout.resume(&damaged[stream.len()..], false), Some(7));
        }
    }

    #[test]
    fn other_bytes_are_no_stream() {
        let layout = Layout::ALL[2];
        let frees: Vec<u8> = (0..9).flat_map(|time| record(layout, time, 0, None)).collect();
        assert_eq!(detect(&frees), Some(layout), "its CPU does not rise as a number does");
        for bytes in
            [&b""[..], &[0; 4096], &b"hello world ".repeat(50), &frees[..23], &[&frees[..24], &[9; 40]].concat()]
        {
            assert_eq!(detect(bytes), None);
        }
        let mut bad = record(layout, 1, MAX_CPU, None);
        assert_eq!(layout.parse(&bad), Parsed::Bad);
        bad = record(layout, 1, 0, None);
        bad[1] = 3;
        assert_eq!(layout.parse(&bad), Parsed::Bad);
    }
}
