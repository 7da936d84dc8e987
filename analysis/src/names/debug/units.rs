//! Index of units: addresses of each, without holding more than its place in the file.

use std::ops::Range;

use gimli::{AttributeValue, DebugAddrBase, DebugRngListsBase, DebugStrOffsetsBase, Section, UnitHeader, UnitType};

use super::paths::Roots;
use super::sections::{ALONE, Broken, Dwarf, Sections, Slice};
use crate::names::work::Work;

/// Largest number of units. The largest kernels have some 30,000.
const MAX_UNITS: usize = 1 << 20;
/// Bytes that hold a unit's first entry, but for one with long names.
const HEAD_BYTES: u64 = 1024;
/// Largest length of a unit's header.
const HEADER_BYTES: u64 = 64;

/// Place of a unit in `.debug_info`.
#[derive(Clone, Debug)]
pub(crate) struct UnitPlace {
    /// Bytes of the unit, header included.
    pub(crate) range: Range<u64>,
    /// Begin and end of its abbreviations in their section.
    pub(crate) abbrevs: Range<usize>,
    /// Offset of its table of lines.
    lines: Option<u64>,
}

/// Memory of an attribute in a table of abbreviations, in bytes; it has at least two bytes there.
const ATTRIBUTE_BYTES: usize = 24;
/// Memory of a file in a table of lines, in bytes; it has at least one byte there.
const FILE_BYTES: usize = 160;

impl UnitPlace {
    /// Length of the unit in bytes, header included.
    pub(crate) fn len(&self) -> Result<usize, Broken> {
        Ok(usize::try_from(self.range.end.saturating_sub(self.range.start))?)
    }

    /// Takes what it takes to read the unit's tables.
    pub(crate) fn take_tables(&self, sections: &Sections, work: &mut Work) -> Result<(), Broken> {
        let attributes = self.abbrevs.len() / 2;
        work.take((attributes as u64).saturating_add(1))?;
        work.keep(attributes.saturating_mul(ATTRIBUTE_BYTES))?;
        let files = self.lines.and_then(|lines| sections.line_header_len(lines)).unwrap_or(0);
        work.take(files as u64)?;
        Ok(work.keep(files.saturating_mul(FILE_BYTES))?)
    }
}

/// Units of a file by address.
#[derive(Debug, Default)]
pub(crate) struct Units {
    /// Ascending by place.
    pub(crate) places: Vec<UnitPlace>,
    /// Ascending by end.
    ranges: Vec<UnitRange>,
    /// Units that cannot be read.
    pub(crate) broken: u64,
    /// Folders of the sources.
    pub(crate) roots: Roots,
}

#[derive(Clone, Copy, Debug)]
struct UnitRange {
    begin: u64,
    end: u64,
    unit: u32,
    /// Least begin of this range and those after it: a search ends where it is beyond the address.
    least_begin: u64,
}

impl Units {
    /// Reads the first entry of every unit.
    pub(crate) fn read(sections: &Sections, work: &mut Work) -> Units {
        let mut units = Units::default();
        let abbrevs = units.find_places(sections, work);
        let mut ends: Vec<usize> = abbrevs.clone();
        ends.sort_unstable();
        ends.dedup();
        for (place, &abbrev) in units.places.iter_mut().zip(&abbrevs) {
            let next = ends.partition_point(|&end| end <= abbrev);
            place.abbrevs = abbrev..ends.get(next).copied().unwrap_or(sections.abbrev_len()).max(abbrev);
        }
        for at in 0..units.places.len() {
            let Some(place) = units.places.get(at).cloned() else { break };
            let before = units.ranges.len();
            if units.add(sections, &place, at as u32, work).is_err() {
                units.ranges.truncate(before);
                units.broken = units.broken.saturating_add(1);
            }
        }
        units.ranges.sort_unstable_by_key(|range| (range.end, range.unit));
        let mut least = u64::MAX;
        for range in units.ranges.iter_mut().rev() {
            least = least.min(range.begin);
            range.least_begin = least;
        }
        units
    }

    /// The unit that may hold code at `address`, after `turn` others, and the number of ranges that were looked at.
    pub(crate) fn at(&self, address: u64, turn: usize) -> (Option<usize>, u64) {
        let after = self.ranges.partition_point(|range| range.end <= address);
        let ranges = self.ranges.get(after..).unwrap_or_default().iter();
        let (mut left, mut passed) = (turn, 0u64);
        for range in ranges.take_while(|range| range.least_begin <= address) {
            passed = passed.saturating_add(1);
            if range.begin <= address {
                match left.checked_sub(1) {
                    Some(fewer) => left = fewer,
                    None => return (Some(range.unit as usize), passed),
                }
            }
        }
        (None, passed)
    }

    /// Index of the unit with this place of `.debug_info`.
    pub(crate) fn with(&self, offset: u64) -> Option<usize> {
        let at = self.places.partition_point(|place| place.range.start <= offset).checked_sub(1)?;
        self.places.get(at).filter(|place| offset < place.range.end).map(|_| at)
    }

    /// Finds all units; returns where the abbreviations of each begin.
    fn find_places(&mut self, sections: &Sections, work: &mut Work) -> Vec<usize> {
        let (len, mut at, mut abbrevs) = (sections.info_len(), 0, Vec::new());
        while at < len {
            let Some((unit_len, abbrev)) = header_at(sections, at) else {
                // The next unit is not to be found without this one's length.
                self.broken = self.broken.saturating_add(1);
                break;
            };
            let end = at.saturating_add(unit_len);
            if end > len || self.places.len() == MAX_UNITS || work.take(4).is_err() {
                self.broken = self.broken.saturating_add(1);
                break;
            }
            match abbrev {
                Some(abbrev) => {
                    self.places.push(UnitPlace { range: at..end, abbrevs: 0..0, lines: None });
                    abbrevs.push(abbrev);
                }
                None => self.broken = self.broken.saturating_add(1),
            }
            at = end;
        }
        abbrevs
    }

    /// Adds the addresses of a unit.
    fn add(&mut self, sections: &Sections, place: &UnitPlace, unit: u32, work: &mut Work) -> Result<(), Broken> {
        place.take_tables(sections, work)?;
        let head_end = place.range.start.saturating_add(HEAD_BYTES);
        if place.range.end > head_end {
            let before = self.ranges.len();
            let mut head = sections.info(place.range.start..head_end)?.into_owned();
            shorten(sections, &mut head)?;
            if self.add_root(&sections.dwarf(&head, place.abbrevs.end), unit, work).is_ok() {
                return Ok(());
            }
            self.ranges.truncate(before);
        }
        work.look_at(place.len()?)?;
        let whole = sections.info(place.range.clone())?;
        self.add_root(&sections.dwarf(&whole, place.abbrevs.end), unit, work)
    }

    fn add_root(&mut self, dwarf: &Dwarf<'_>, unit: u32, work: &mut Work) -> Result<(), Broken> {
        let header = dwarf.unit_header(ALONE)?;
        if !matches!(header.type_(), UnitType::Compilation | UnitType::Skeleton(_)) {
            return Ok(());
        }
        let root = Root::read(dwarf, &header, work)?;
        if let (Some(place), Some(lines)) = (self.places.get_mut(unit as usize), root.lines) {
            place.lines = Some(lines);
        }
        let (name, folder) = (root.string(dwarf, &header, root.name), root.string(dwarf, &header, root.folder));
        self.roots.add_unit(name.unwrap_or_default(), folder.unwrap_or_default());
        let encoding = header.encoding();
        let low = root.address(dwarf, &header, root.low);
        let list = match root.ranges {
            Some(AttributeValue::RangeListsRef(offset)) => Some(gimli::RangeListsOffset(offset.0)),
            Some(AttributeValue::DebugRngListsIndex(index)) => {
                Some(dwarf.ranges.get_offset(encoding, root.rnglists_base, index)?)
            }
            Some(AttributeValue::SecOffset(offset)) => Some(gimli::RangeListsOffset(offset)),
            _ => None,
        };
        if let Some(list) = list {
            let base = low.unwrap_or_default();
            let mut ranges = dwarf.ranges.ranges(list, encoding, base, &dwarf.debug_addr, root.addr_base)?;
            while let Some(range) = ranges.next()? {
                work.take(1)?;
                work.keep(size_of::<UnitRange>())?;
                self.push(range.begin, range.end, unit);
            }
        } else if let Some(begin) = low {
            let end = match root.high {
                Some(AttributeValue::Udata(size)) => begin.checked_add(size),
                high => root.address(dwarf, &header, high),
            };
            self.push(begin, end.unwrap_or_default(), unit);
        }
        Ok(())
    }

    fn push(&mut self, begin: u64, end: u64, unit: u32) {
        if begin < end {
            self.ranges.push(UnitRange { begin, end, unit, least_begin: 0 });
        }
    }
}

/// Length of the unit at `at`, and the place of its abbreviations if its header makes sense.
fn header_at(sections: &Sections, at: u64) -> Option<(u64, Option<usize>)> {
    use gimli::Reader;

    let end = sections.info_len().min(at.saturating_add(HEADER_BYTES));
    let mut head = sections.info(at..end).ok()?.into_owned();
    let mut reader = sections.slice(&head);
    let (len, format) = reader.read_initial_length().ok()?;
    let len = (len as u64).checked_add(u64::from(format.initial_length_size()))?;
    let shortened = if len > head.len() as u64 {
        shorten(sections, &mut head)
    } else {
        head.truncate(usize::try_from(len).ok()?);
        Ok(())
    };
    let header = shortened.ok().and_then(|()| sections.dwarf(&head, 0).unit_header(ALONE).ok());
    Some((len, header.map(|header| header.debug_abbrev_offset().0)))
}

/// Gives the first bytes of a unit the length that they have, so that they can be read as one.
fn shorten(sections: &Sections, head: &mut [u8]) -> Result<(), Broken> {
    use gimli::{Endianity, Reader};

    let endian = sections.slice(&[]).endian();
    let is_64 = sections.slice(head).read_initial_length()?.1 == gimli::Format::Dwarf64;
    let total = head.len() as u64;
    if is_64 {
        endian.write_u64(head.get_mut(4..12).ok_or(Broken)?, total.checked_sub(12).ok_or(Broken)?);
    } else {
        endian.write_u32(head.get_mut(..4).ok_or(Broken)?, u32::try_from(total.checked_sub(4).ok_or(Broken)?)?);
    }
    Ok(())
}

type Value<'a> = AttributeValue<Slice<'a>>;

/// Attributes of a unit's first entry.
struct Root<'a> {
    name: Option<Value<'a>>,
    folder: Option<Value<'a>>,
    low: Option<Value<'a>>,
    high: Option<Value<'a>>,
    ranges: Option<Value<'a>>,
    lines: Option<u64>,
    addr_base: DebugAddrBase,
    rnglists_base: DebugRngListsBase,
    str_offsets_base: DebugStrOffsetsBase,
}

impl<'a> Root<'a> {
    fn read(dwarf: &Dwarf<'a>, header: &UnitHeader<Slice<'a>>, work: &mut Work) -> Result<Root<'a>, Broken> {
        let (encoding, file_type) = (header.encoding(), gimli::DwarfFileType::Main);
        let mut root = Root {
            name: None,
            folder: None,
            low: None,
            high: None,
            ranges: None,
            lines: None,
            addr_base: DebugAddrBase(if encoding.version >= 5 { 8 } else { 0 }),
            rnglists_base: DebugRngListsBase::default_for_encoding_and_file(encoding, file_type),
            str_offsets_base: DebugStrOffsetsBase::default_for_encoding_and_file(encoding, file_type),
        };
        // Units may share a table; then it is read again for each.
        let table = dwarf.debug_abbrev.reader().len().saturating_sub(header.debug_abbrev_offset().0);
        work.take((table as u64 / 2).saturating_add(1))?;
        let abbreviations = header.abbreviations(&dwarf.debug_abbrev)?;
        let mut entries = header.entries_raw(&abbreviations, None)?;
        let Some(abbreviation) = entries.read_abbreviation()? else { return Ok(root) };
        for &spec in abbreviation.attributes() {
            let attribute = entries.read_attribute(spec)?;
            let value = attribute.value();
            match (attribute.name(), value) {
                (gimli::DW_AT_name, _) => root.name = Some(value),
                (gimli::DW_AT_comp_dir, _) => root.folder = Some(value),
                (gimli::DW_AT_low_pc, _) => root.low = Some(value),
                (gimli::DW_AT_high_pc, _) => root.high = Some(value),
                (gimli::DW_AT_ranges, _) => root.ranges = Some(value),
                (gimli::DW_AT_stmt_list, AttributeValue::DebugLineRef(offset)) => root.lines = Some(offset.0 as u64),
                (_, AttributeValue::DebugAddrBase(base)) => root.addr_base = base,
                (_, AttributeValue::DebugRngListsBase(base)) => root.rnglists_base = base,
                (_, AttributeValue::DebugStrOffsetsBase(base)) => root.str_offsets_base = base,
                _ => {}
            }
        }
        Ok(root)
    }

    fn address(&self, dwarf: &Dwarf<'a>, header: &UnitHeader<Slice<'a>>, value: Option<Value<'a>>) -> Option<u64> {
        match value? {
            AttributeValue::Addr(address) => Some(address),
            AttributeValue::DebugAddrIndex(index) => {
                dwarf.debug_addr.get_address(header.encoding().address_size, self.addr_base, index).ok()
            }
            _ => None,
        }
    }

    fn string(&self, dwarf: &Dwarf<'a>, header: &UnitHeader<Slice<'a>>, value: Option<Value<'a>>) -> Option<&'a [u8]> {
        let string = match value? {
            AttributeValue::DebugStrOffsetsIndex(index) => {
                let format = header.encoding().format;
                let offset = dwarf.debug_str_offsets.get_str_offset(format, self.str_offsets_base, index).ok()?;
                dwarf.string(offset).ok()?
            }
            AttributeValue::String(string) => string,
            AttributeValue::DebugStrRef(offset) => dwarf.string(offset).ok()?,
            AttributeValue::DebugLineStrRef(offset) => dwarf.line_string(offset).ok()?,
            _ => return None,
        };
        Some(string.slice())
    }
}
