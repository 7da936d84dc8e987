//! Compile units of an image: whose the addresses of functions and of objects are.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use gimli::{AttributeValue, Expression, Operation, Unit, constants};

use crate::names::debug::sections::{ALONE, Broken, Dwarf, Sections, Slice};
use crate::names::debug::units;
use crate::names::work::{Spent, Work};

/// Largest number of bytes in the names of all units together; the largest kernels have some 2 MB.
const MAX_NAME_BYTES: usize = 64 << 20;

/// Units of an image, by the sources that they are made of.
#[derive(Debug, Default)]
pub(crate) struct Units {
    index: units::Units,
    /// Source of each unit below the root of the sources; empty for a source elsewhere.
    sources: Vec<Box<[u8]>>,
    /// Variables: address and unit, ascending.
    variables: Vec<(u64, u32)>,
    /// Units that could not be read to their end.
    pub(crate) broken: u64,
    /// Work that is left for questions.
    work: RefCell<Work>,
}

/// Name of a unit, and number of the folder that the compiler ran in.
type UnitName = (Box<[u8]>, usize);

/// Names of units while they are read.
#[derive(Default)]
struct UnitNames {
    names: Vec<UnitName>,
    folders: Vec<Box<[u8]>>,
    numbers: HashMap<Box<[u8]>, usize>,
    bytes: usize,
}

impl Units {
    /// Reads all units, one at a time.
    ///
    /// # Errors
    /// The reason, where they take too much.
    pub(crate) fn read(sections: &Sections, mut work: Work) -> Result<Units, Spent> {
        let index = units::Units::read(sections, &mut work);
        let mut units = Units { broken: index.broken, ..Units::default() };
        let mut names = UnitNames::default();
        for (number, place) in index.places.iter().enumerate() {
            let read = place.take_tables(sections, &mut work).and_then(|()| {
                let bytes = sections.info(place.range.clone())?;
                let dwarf = sections.dwarf(&bytes, place.abbrevs.end);
                units.add(&dwarf, number, &mut names, &mut work)
            });
            units.broken = units.broken.saturating_add(read.is_err().into());
            if let Some(spent) = work.spent() {
                return Err(spent);
            }
            // Every unit has a name, so that numbers stay those of the index.
            names.names.resize_with(number.saturating_add(1), UnitName::default);
        }
        let roots = &index.roots;
        let source = |(name, folder): &UnitName| {
            let folder = names.folders.get(*folder).map(|folder| &**folder).unwrap_or_default();
            let path = if name.is_empty() { Vec::new() } else { roots.relative(folder, name) };
            let is_below = !path.starts_with(b"/") && !path.starts_with(b"..") && !path.starts_with(b"<");
            if is_below { path.into() } else { Box::default() }
        };
        units.sources = names.names.iter().map(source).collect();
        units.index = index;
        units.variables.sort_unstable();
        units.work = RefCell::new(work);
        Ok(units)
    }

    /// Source of a unit, below the root of the sources.
    pub(crate) fn source(&self, unit: usize) -> Option<&[u8]> {
        self.sources.get(unit).map(|path| &**path).filter(|path| !path.is_empty())
    }

    /// Sources of all units; empty for one that is elsewhere.
    pub(crate) fn sources(&self) -> impl Iterator<Item = &[u8]> {
        self.sources.iter().map(|path| &**path)
    }

    /// Unit of the code at an address.
    pub(crate) fn of_code(&self, address: u64) -> Option<usize> {
        let (unit, passed) = self.index.at(address, 0);
        self.work.borrow_mut().take(passed).ok()?;
        unit
    }

    /// The reason for which questions have no answers any more.
    pub(crate) fn spent(&self) -> Option<Spent> {
        self.work.borrow().spent()
    }

    /// Unit of the variable at an address.
    pub(crate) fn of_variable(&self, address: u64) -> Option<usize> {
        let at = self.variables.partition_point(|&(begin, _)| begin < address);
        self.variables.get(at).filter(|&&(begin, _)| begin == address).map(|&(_, unit)| unit as usize)
    }

    /// Adds a unit: its name and its variables.
    fn add(&mut self, dwarf: &Dwarf<'_>, number: usize, names: &mut UnitNames, work: &mut Work) -> Result<(), Broken> {
        let header = dwarf.unit_header(ALONE)?;
        let abbreviations = Arc::new(header.abbreviations(&dwarf.debug_abbrev)?);
        let unit = bare_unit(dwarf, header, abbreviations)?;
        let [name, folder] = [&unit.name, &unit.comp_dir].map(|text| text.as_ref().map_or(&[][..], Slice::slice));
        names.add(name, folder, number);
        self.add_variables(dwarf, &unit, u32::try_from(number)?, work)
    }

    /// Adds the variables of a unit that have an address, outside of functions.
    fn add_variables(
        &mut self,
        dwarf: &Dwarf<'_>,
        unit: &Unit<Slice<'_>>,
        number: u32,
        work: &mut Work,
    ) -> Result<(), Broken> {
        let mut cursor = unit.header.entries(&unit.abbreviations);
        if cursor.next_dfs()?.is_none_or(|root| !root.has_children()) {
            return Ok(());
        }
        // Namespaces that are open, and levels below an entry whose end is searched for.
        let (mut namespaces, mut below) = (0u64, 0u64);
        while cursor.next_entry()? {
            let Some(entry) = cursor.current() else {
                match (below.checked_sub(1), namespaces.checked_sub(1)) {
                    (Some(less), _) => below = less,
                    (None, Some(less)) => namespaces = less,
                    (None, None) => break,
                }
                continue;
            };
            work.take((entry.attrs().len() as u64).saturating_add(1))?;
            if below > 0 {
                below = below.saturating_add(entry.has_children().into());
                continue;
            }
            let tag = entry.tag();
            if tag == constants::DW_TAG_variable
                && let Some(AttributeValue::Exprloc(place)) = entry.attr_value(constants::DW_AT_location)
                && let Some(address) = address_of(dwarf, unit, place)
                // The linker leaves what it has dropped at 0.
                && address > 0
            {
                work.keep(size_of::<(u64, u32)>())?;
                self.variables.push((address, number));
            }
            if !entry.has_children() {
                continue;
            }
            match entry.attr_value(constants::DW_AT_sibling) {
                _ if tag == constants::DW_TAG_namespace => namespaces = namespaces.saturating_add(1),
                Some(AttributeValue::UnitRef(next)) if next > cursor.next_offset() => {
                    cursor = unit.header.entries_at_offset(&unit.abbreviations, next)?;
                }
                _ => below = 1,
            }
        }
        Ok(())
    }
}

impl UnitNames {
    /// Adds the name of a unit; names beyond the limit are empty.
    fn add(&mut self, name: &[u8], folder: &[u8], number: usize) {
        // Rust names a part of a crate after the path of its source.
        let name = memchr::memmem::find(name, b"/@/").and_then(|end| name.get(..end)).unwrap_or(name);
        self.names.resize_with(number, UnitName::default);
        let known = self.numbers.get(folder).copied();
        let of_folder = if known.is_none() { folder.len().saturating_mul(2) } else { 0 };
        self.bytes = self.bytes.saturating_add(name.len()).saturating_add(of_folder);
        if self.bytes > MAX_NAME_BYTES {
            return;
        }
        let folder = known.unwrap_or_else(|| {
            let number = self.folders.len();
            self.numbers.insert(folder.into(), number);
            self.folders.push(folder.into());
            number
        });
        self.names.push((name.into(), folder));
    }
}

/// Address that an expression names, if it does nothing else.
fn address_of(dwarf: &Dwarf<'_>, unit: &Unit<Slice<'_>>, place: Expression<Slice<'_>>) -> Option<u64> {
    match place.operations(unit.encoding()).next().ok()?? {
        Operation::Address { address } => Some(address),
        Operation::AddressIndex { index } => dwarf.address(unit, index).ok(),
        _ => None,
    }
}

/// Unit without its table of lines, which [`Unit::new`] would read.
fn bare_unit<'d>(
    dwarf: &Dwarf<'d>,
    header: gimli::UnitHeader<Slice<'d>>,
    abbreviations: Arc<gimli::Abbreviations>,
) -> Result<Unit<Slice<'d>>, Broken> {
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
    let (mut name, mut folder) = (None, None);
    {
        let mut cursor = unit.header.entries(&unit.abbreviations);
        let Some(root) = cursor.next_dfs()? else { return Err(Broken) };
        for attribute in root.attrs() {
            match (attribute.name(), attribute.value()) {
                (constants::DW_AT_name, value) => name = Some(value),
                (constants::DW_AT_comp_dir, value) => folder = Some(value),
                (_, AttributeValue::DebugStrOffsetsBase(base)) => unit.str_offsets_base = base,
                (_, AttributeValue::DebugAddrBase(base)) => unit.addr_base = base,
                _ => {}
            }
        }
    }
    unit.name = name.and_then(|value| dwarf.attr_string(&unit, value).ok());
    unit.comp_dir = folder.and_then(|value| dwarf.attr_string(&unit, value).ok());
    Ok(unit)
}
