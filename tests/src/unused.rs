//! Bytes of records that no field covers, by a first reading of the kernel's formats. The kernel writes nothing there: in a used ring
//! buffer they are what the page held before.

use std::collections::HashMap;
use std::ops::Range;

use kmemtrace_abi::disk::block::{item, kind};
use kmemtrace_abi::disk::expand::Expander;
use kmemtrace_abi::disk::salvage::{Piece, pieces};
use kmemtrace_abi::kernel::format::PageShape;
use kmemtrace_abi::open;
use kmemtrace_abi::target::Endian;

use crate::entries::entries;

/// Alignment leaves fewer bytes than these without a field.
const MAX_HOLE: usize = 8;

/// A field of an event: its place, and what says where the rest of it is.
#[derive(Clone, Debug)]
struct Field {
    range: Range<usize>,
    /// The field is place and length of other bytes, counted from here.
    base: Option<usize>,
    /// It has as many elements as there is room for.
    is_open: bool,
}

/// Fields of the events of a file.
#[derive(Debug)]
pub struct Formats {
    pub shape: PageShape,
    fields: HashMap<u16, Vec<Field>>,
}

/// Sums over a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// Sub-buffers.
    pub sub_buffers: u64,
    /// Bytes that no field covers.
    pub unused: u64,
    /// Those of them that are not zero.
    pub stale: u64,
}

impl Formats {
    /// By the payload of the first block of a file; `None` where it describes none.
    pub fn of_file_header(payload: &[u8]) -> Option<Formats> {
        let (_, shape) = open::encoder::of_file_header(payload)?;
        let texts = item::walk(payload).map_while(Result::ok).filter(|(tag, ..)| *tag == item::EVENT_FORMAT);
        let fields = texts.filter_map(|(_, _, text)| event(std::str::from_utf8(text).ok()?)).collect();
        Some(Formats { shape, fields })
    }

    fn number(&self, bytes: &[u8]) -> usize {
        let digits = |number: usize, byte: &u8| number << 8 | usize::from(*byte);
        match self.shape.target.endian {
            Endian::Little => bytes.iter().rev().fold(0, digits),
            Endian::Big => bytes.iter().fold(0, digits),
        }
    }

    /// Offsets in a record.
    fn of_record(&self, record: &[u8]) -> Vec<usize> {
        let id = record.get(..2).map(|id| self.number(id) as u16);
        let Some(fields) = id.and_then(|id| self.fields.get(&id)) else { return Vec::new() };
        let mut covered = vec![false; record.len()];
        for field in fields {
            let mut ranges = vec![field.range.clone()];
            if field.is_open {
                ranges.push(field.range.start..record.len());
            }
            if let (Some(base), Some(place)) = (field.base, record.get(field.range.clone())) {
                let place = self.number(place);
                let from = base + place % 0x1_0000;
                ranges.push(from..from + place / 0x1_0000);
                if from + place / 0x1_0000 > record.len() {
                    return Vec::new();
                }
            }
            for byte in ranges.into_iter().flatten().filter(|&byte| byte < record.len()) {
                covered[byte] = true;
            }
        }
        let numbered: Vec<(usize, bool)> = covered.into_iter().enumerate().collect();
        let runs = numbered.chunk_by(|a, b| a.1 == b.1);
        let holes = runs.filter(|run| !run[0].1 && run.len() < MAX_HOLE);
        holes.flatten().map(|(at, _)| *at).collect()
    }

    /// Offsets in a run of sub-buffers, and the number of these.
    pub fn of_sub_buffers(&self, payload: &[u8]) -> (Vec<usize>, u64) {
        let PageShape { target, commit_offset, commit_size, data_offset, .. } = self.shape;
        let (mut places, mut at, mut count) = (Vec::new(), 0, 0);
        while let Some(header) = payload.get(at..at + data_offset) {
            let commit = self.number(&header[commit_offset..commit_offset + commit_size]);
            let data = at + data_offset..at + data_offset + commit % (1 << 30);
            let Some(bytes) = payload.get(data.clone()) else { break };
            for (_, record) in entries(target, bytes, 0) {
                let start = data.start + record.start;
                places.extend(self.of_record(&bytes[record]).iter().map(|at| start + at));
            }
            at = data.end + if commit >> 30 & 3 == 3 { commit_size } else { 0 };
            count += 1;
        }
        (places, count)
    }
}

/// Id and fields of an event: `SYSTEM/NAME`, then its format.
fn event(text: &str) -> Option<(u16, Vec<Field>)> {
    let id = text.lines().find_map(|line| line.strip_prefix("ID: "))?.trim().parse().ok()?;
    let is_stack = text.starts_with("ftrace/");
    let field = |line: &str| {
        let rest = line.trim().strip_prefix("field:")?;
        let number = |name: &str| -> Option<usize> { rest.split(name).nth(1)?.split(';').next()?.trim().parse().ok() };
        let (offset, size) = (number("offset:")?, number("size:")?);
        let base = if rest.starts_with("__data_loc") { Some(0) } else { None };
        let base = if rest.starts_with("__rel_loc") { Some(offset + size) } else { base };
        let is_array = rest.split(';').next()?.contains('[') && base.is_none();
        Some(Field { range: offset..offset + size, base, is_open: size == 0 || is_stack && is_array })
    };
    Some((id, text.lines().filter_map(field).collect()))
}

/// Sums over a file of a recording.
pub fn sums(file: &[u8]) -> Sums {
    let (mut expander, mut formats, mut sums) = (Expander::default(), None, Sums::default());
    for piece in pieces(file) {
        let Piece::Block { info, payload, whole } = piece else { continue };
        match (info.kind, &formats) {
            (kind::FILE_HEADER, _) => formats = Formats::of_file_header(payload),
            (kind::DATA, Some(formats)) => {
                let raw = expander.payload_of(whole).unwrap();
                let (places, count) = formats.of_sub_buffers(raw);
                sums.sub_buffers += count;
                sums.unused += places.len() as u64;
                sums.stale += places.iter().filter(|&&at| raw[at] != 0).count() as u64;
            }
            _ => {}
        }
    }
    sums
}
