//! Compile units of a linked image: which addresses of functions and of objects are whose.
//!
//! Units are read one after the other, so that memory holds one of them and not the hundreds of megabytes of all.

use std::sync::Arc;

use gimli::{
    AttributeValue, DebugInfo, Dwarf, DwarfSections, EndianSlice, Expression, Operation, Reader, RunTimeEndian,
    SectionId, Unit, constants,
};
use object::Endianness;

use super::source_paths::UnitPath;
use crate::names::debug::image::{Image, ImageError, Section};

/// Greatest section beside that of the units that is read.
const MAX_SECTION_BYTES: u64 = 512 << 20;
/// Greatest unit that is read.
const MAX_UNIT_BYTES: u64 = 512 << 20;
/// Bytes of a unit's length.
const LENGTH_BYTES: u64 = 12;

type Slice<'d> = EndianSlice<'d, RunTimeEndian>;

/// Units of an image.
#[derive(Debug, Default)]
pub(crate) struct Units {
    /// Path of each unit.
    pub(crate) paths: Vec<UnitPath>,
    /// Code: begin, end and unit, ascending once all are read.
    ranges: Vec<(u64, u64, u32)>,
    /// Variables: address and unit, ascending.
    variables: Vec<(u64, u32)>,
    /// Units that could not be read to their end.
    pub(crate) broken: usize,
}

impl Units {
    /// Reads the units of an image; none without debug information.
    pub(crate) fn read(image: &Image) -> Result<Units, ImageError> {
        let mut units = Units::default();
        let Some(info) = image.section(b".debug_info") else { return Ok(units) };
        let endian = match image.endian {
            Endianness::Little => RunTimeEndian::Little,
            Endianness::Big => RunTimeEndian::Big,
        };
        let beside = DwarfSections::load(|id| match (id, image.section(id.name().as_bytes())) {
            (SectionId::DebugInfo | SectionId::DebugLine | SectionId::DebugTypes, _) | (_, None) => Ok(Vec::new()),
            (_, Some(section)) if is_needed(id) && section.size <= MAX_SECTION_BYTES => image.content(section),
            _ => Ok(Vec::new()),
        })?;
        let dwarf = beside.borrow(|bytes| EndianSlice::new(bytes, endian));
        let mut source = UnitSource::new(image, info)?;
        while let Some(bytes) = source.next_unit(endian)? {
            if units.add(&dwarf, &bytes, endian).is_err() {
                units.broken += 1;
            }
        }
        units.broken += usize::from(source.is_cut);
        units.ranges.sort_unstable();
        units.variables.sort_unstable();
        Ok(units)
    }

    /// Unit of the code at an address.
    pub(crate) fn of_code(&self, address: u64) -> Option<u32> {
        let after = self.ranges.partition_point(|&(begin, ..)| begin <= address);
        let &(_, end, unit) = self.ranges.get(after.checked_sub(1)?)?;
        (address < end).then_some(unit)
    }

    /// Unit of the variable at an address.
    pub(crate) fn of_variable(&self, address: u64) -> Option<u32> {
        let at = self.variables.partition_point(|&(begin, _)| begin < address);
        self.variables.get(at).filter(|&&(begin, _)| begin == address).map(|&(_, unit)| unit)
    }

    /// Adds a unit: its path, its ranges, its variables.
    fn add(&mut self, dwarf: &Dwarf<Slice<'_>>, bytes: &[u8], endian: RunTimeEndian) -> gimli::Result<()> {
        let Some(header) = DebugInfo::new(bytes, endian).units().next()? else { return Ok(()) };
        let abbreviations = Arc::new(header.abbreviations(&dwarf.debug_abbrev)?);
        let unit = bare_unit(dwarf, header, abbreviations)?;
        let Ok(number) = u32::try_from(self.paths.len()) else { return Ok(()) };
        let [name, folder] = [&unit.name, &unit.comp_dir].map(|text| text.as_ref().map_or(&[][..], Slice::slice));
        self.paths.push(UnitPath::of(name, folder));
        let mut ranges = dwarf.unit_ranges(&unit)?;
        while let Some(range) = ranges.next()? {
            // The linker leaves ranges of code that it has dropped at 0 or 1.
            if range.begin > 1 && range.begin < range.end {
                self.ranges.push((range.begin, range.end, number));
            }
        }
        self.add_variables(dwarf, &unit, number)
    }

    /// Adds the variables of a unit that have an address, outside of functions.
    fn add_variables(&mut self, dwarf: &Dwarf<Slice<'_>>, unit: &Unit<Slice<'_>>, number: u32) -> gimli::Result<()> {
        let mut cursor = unit.entries();
        cursor.next_dfs()?;
        if !cursor.next_entry()? {
            return Ok(());
        }
        let mut depth = 1;
        loop {
            let Some(entry) = cursor.current() else {
                // The end of a namespace, or of the unit.
                depth -= 1;
                if depth == 0 || !cursor.next_entry()? {
                    return Ok(());
                }
                continue;
            };
            let (tag, has_children) = (entry.tag(), entry.has_children());
            if tag == constants::DW_TAG_variable
                && let Some(AttributeValue::Exprloc(place)) = entry.attr_value(constants::DW_AT_location)
                && let Some(address) = address_of(dwarf, unit, place)
                && address > 0
            {
                self.variables.push((address, number));
            }
            if tag == constants::DW_TAG_namespace && has_children {
                depth += 1;
                cursor.next_entry()?;
            } else {
                // Stands on the null entry after the last one.
                cursor.next_sibling()?;
            }
        }
    }
}

/// True for sections that names, ranges and addresses of variables stand in.
fn is_needed(id: SectionId) -> bool {
    [
        SectionId::DebugAbbrev,
        SectionId::DebugAddr,
        SectionId::DebugStr,
        SectionId::DebugLineStr,
        SectionId::DebugStrOffsets,
        SectionId::DebugRanges,
        SectionId::DebugRngLists,
    ]
    .contains(&id)
}

/// Address that an expression names, if it does nothing else.
fn address_of(dwarf: &Dwarf<Slice<'_>>, unit: &Unit<Slice<'_>>, place: Expression<Slice<'_>>) -> Option<u64> {
    match place.operations(unit.encoding()).next().ok()?? {
        Operation::Address { address } => Some(address),
        Operation::AddressIndex { index } => dwarf.address(unit, index).ok(),
        _ => None,
    }
}

/// Unit without its table of lines, which [`Unit::new`] would read.
fn bare_unit<'d>(
    dwarf: &Dwarf<Slice<'d>>,
    header: gimli::UnitHeader<Slice<'d>>,
    abbreviations: Arc<gimli::Abbreviations>,
) -> gimli::Result<Unit<Slice<'d>>> {
    let encoding = header.encoding();
    let file_type = dwarf.file_type;
    let mut unit = Unit {
        name: None,
        comp_dir: None,
        low_pc: 0,
        str_offsets_base: gimli::DebugStrOffsetsBase::default_for_encoding_and_file(encoding, file_type),
        addr_base: gimli::DebugAddrBase(0),
        loclists_base: gimli::DebugLocListsBase::default_for_encoding_and_file(encoding, file_type),
        rnglists_base: gimli::DebugRngListsBase::default_for_encoding_and_file(encoding, file_type),
        line_program: None,
        dwo_id: None,
        header,
        abbreviations,
    };
    let (mut name, mut folder, mut low) = (None, None, None);
    {
        let mut cursor = unit.header.entries(&unit.abbreviations);
        let Some(root) = cursor.next_dfs()? else { return Err(gimli::Error::MissingUnitDie) };
        for attribute in root.attrs() {
            match (attribute.name(), attribute.value()) {
                (constants::DW_AT_name, value) => name = Some(value),
                (constants::DW_AT_comp_dir, value) => folder = Some(value),
                (constants::DW_AT_low_pc, value) => low = Some(value),
                (_, AttributeValue::DebugStrOffsetsBase(base)) => unit.str_offsets_base = base,
                (_, AttributeValue::DebugAddrBase(base)) => unit.addr_base = base,
                (_, AttributeValue::DebugRngListsBase(base)) => unit.rnglists_base = base,
                _ => {}
            }
        }
    }
    unit.name = name.and_then(|value| dwarf.attr_string(&unit, value).ok());
    unit.comp_dir = folder.and_then(|value| dwarf.attr_string(&unit, value).ok());
    if let Some(value) = low {
        unit.low_pc = dwarf.attr_address(&unit, value)?.unwrap_or(0);
    }
    Ok(unit)
}

/// Bytes of units, one after the other.
struct UnitSource<'i> {
    image: &'i Image,
    section: &'i Section,
    /// All of it, where the section is compressed.
    unpacked: Option<Vec<u8>>,
    at: u64,
    len: u64,
    /// The last unit ends beyond the section.
    is_cut: bool,
}

impl<'i> UnitSource<'i> {
    fn new(image: &'i Image, section: &'i Section) -> Result<UnitSource<'i>, ImageError> {
        let unpacked = if image.is_plain(section) { None } else { Some(image.content(section)?) };
        let len = unpacked.as_ref().map_or(section.size, |bytes| bytes.len() as u64);
        Ok(UnitSource { image, section, unpacked, at: 0, len, is_cut: false })
    }

    /// Bytes of the next unit with its length.
    fn next_unit(&mut self, endian: RunTimeEndian) -> Result<Option<Vec<u8>>, ImageError> {
        let left = self.len.saturating_sub(self.at);
        if left < LENGTH_BYTES {
            return Ok(None);
        }
        let head = self.bytes(LENGTH_BYTES)?;
        let mut head = EndianSlice::new(&head, endian);
        let Ok((length, format)) = head.read_initial_length() else { return Ok(None) };
        let whole = u64::try_from(length).unwrap_or(u64::MAX).saturating_add(format.initial_length_size().into());
        if whole > left || whole > MAX_UNIT_BYTES {
            self.is_cut = true;
            return Ok(None);
        }
        let bytes = self.bytes(whole)?;
        self.at += whole;
        Ok(Some(bytes))
    }

    fn bytes(&self, count: u64) -> Result<Vec<u8>, ImageError> {
        let range = self.at..self.at + count;
        match &self.unpacked {
            None => self.image.part(self.section, range),
            // Within its length: the caller has looked.
            Some(all) => Ok(all.get(range.start as usize..range.end as usize).unwrap_or_default().to_vec()),
        }
    }
}
