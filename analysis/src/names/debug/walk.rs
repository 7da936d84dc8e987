//! Functions at addresses of one unit: the function that holds each, and those that the compiler put into it.

use std::collections::HashMap;

use gimli::{AttributeValue, RangeListsOffset, UnitOffset, UnitRef};

use super::sections::{Broken, Slice};
use crate::names::work::Work;

/// Largest number of functions in each other at one address. Kernels have some 20.
const MAX_INLINED: usize = 256;

/// Name of a function, or the entry that has it.
#[derive(Clone, Copy, Debug)]
pub(super) enum NameRef<'a> {
    /// The name itself.
    Name(Slice<'a>),
    /// Entry of this unit.
    Entry(UnitOffset),
    /// Entry by its place in `.debug_info`; it may be in another unit.
    Section(u64),
}

/// Function in another one, at the place of a call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Inlined<'a> {
    pub(super) name: Option<NameRef<'a>>,
    /// File of the call, by its number in the unit's table of lines.
    pub(super) call_file: Option<u64>,
    /// Line of the call; 0 if it is not known.
    pub(super) call_line: u64,
}

/// Functions at an address.
#[derive(Clone, Debug, Default)]
pub(super) struct Chain<'a> {
    /// Name of the function that the others are in.
    pub(super) outermost: Option<NameRef<'a>>,
    /// Functions in it, outermost first.
    pub(super) inlined: Vec<Inlined<'a>>,
}

type Unit<'u, 'a> = UnitRef<'u, Slice<'a>>;

/// Chains of those of the ascending `probes` that a function of the unit holds.
pub(super) fn chains<'a>(
    unit: Unit<'_, 'a>,
    probes: &[u64],
    work: &mut Work,
) -> Result<HashMap<u64, Chain<'a>>, Broken> {
    let mut chains = HashMap::new();
    let mut by_function: Vec<(UnitOffset, u64)> =
        functions(unit, probes, work)?.into_iter().map(|(probe, found)| (found.offset, probe)).collect();
    by_function.sort_unstable();
    for group in by_function.chunk_by(|a, b| a.0 == b.0) {
        let Some(&(offset, _)) = group.first() else { continue };
        let probes: Vec<u64> = group.iter().map(|&(_, probe)| probe).collect();
        chains.extend(probes.iter().copied().zip(chains_of(unit, offset, &probes, work)?));
    }
    Ok(chains)
}

/// Function that holds an address.
#[derive(Clone, Copy)]
struct FunctionAt {
    offset: UnitOffset,
    /// Bytes of the range that holds the address: of several functions the smallest counts.
    bytes: u64,
}

/// The function of each probe.
fn functions(unit: Unit<'_, '_>, probes: &[u64], work: &mut Work) -> Result<HashMap<u64, FunctionAt>, Broken> {
    let mut found: HashMap<u64, FunctionAt> = HashMap::new();
    let mut entries = unit.entries_raw(None)?;
    while !entries.is_empty() {
        work.take(1)?;
        let offset = entries.next_offset();
        let Some(abbreviation) = entries.read_abbreviation()? else { continue };
        // Attributes may have no bytes: an entry of one byte can have thousands.
        work.take(abbreviation.attributes().len() as u64)?;
        if abbreviation.tag() != gimli::DW_TAG_subprogram {
            entries.skip_attributes(abbreviation.attributes())?;
            continue;
        }
        let mut ranges = Ranges::default();
        for &spec in abbreviation.attributes() {
            let attribute = entries.read_attribute(spec)?;
            ranges.take(unit, attribute.name(), attribute.value())?;
        }
        ranges.each(unit, work, |work, begin, end| {
            let held = held(probes, begin, end);
            work.take(held.len() as u64)?;
            for &probe in held {
                let this = FunctionAt { offset, bytes: end.saturating_sub(begin) };
                let best = found.entry(probe).or_insert(this);
                if this.bytes < best.bytes {
                    *best = this;
                }
            }
            Ok(())
        })?;
    }
    Ok(found)
}

/// Chains of the function at `offset`, one for each of the ascending `probes`, which all are in it.
fn chains_of<'a>(
    unit: Unit<'_, 'a>,
    offset: UnitOffset,
    probes: &[u64],
    work: &mut Work,
) -> Result<Vec<Chain<'a>>, Broken> {
    let mut chains: Vec<Chain<'a>> = vec![Chain::default(); probes.len()];
    let mut entries = unit.entries_raw(Some(offset))?;
    let top = entries.next_depth();
    let Some(abbreviation) = entries.read_abbreviation()? else { return Ok(chains) };
    work.take(abbreviation.attributes().len() as u64)?;
    work.keep(probes.len().saturating_mul(size_of::<Chain<'_>>()))?;
    let mut name = FunctionName::default();
    for &spec in abbreviation.attributes() {
        let attribute = entries.read_attribute(spec)?;
        name.take(unit, attribute.name(), attribute.value(), work)?;
    }
    for chain in &mut chains {
        chain.outermost = name.best();
    }
    // Depths of the inlined functions around the entry, and of a function of its own that is skipped.
    let mut around: Vec<isize> = Vec::new();
    let mut skipped: Option<isize> = None;
    while !entries.is_empty() {
        let depth = entries.next_depth();
        if depth <= top {
            break;
        }
        work.take(1)?;
        let Some(abbreviation) = entries.read_abbreviation()? else { continue };
        work.take(abbreviation.attributes().len() as u64)?;
        while around.last().is_some_and(|&outer| outer >= depth) {
            around.pop();
        }
        skipped = skipped.filter(|&outer| depth > outer);
        if skipped.is_some() || abbreviation.tag() != gimli::DW_TAG_inlined_subroutine {
            if skipped.is_none() && abbreviation.tag() == gimli::DW_TAG_subprogram {
                skipped = Some(depth);
            }
            entries.skip_attributes(abbreviation.attributes())?;
            continue;
        }
        let (mut ranges, mut name) = (Ranges::default(), FunctionName::default());
        let mut inlined = Inlined { name: None, call_file: None, call_line: 0 };
        for &spec in abbreviation.attributes() {
            let attribute = entries.read_attribute(spec)?;
            let value = attribute.value();
            ranges.take(unit, attribute.name(), value)?;
            name.take(unit, attribute.name(), value, work)?;
            match (attribute.name(), value) {
                // Before version 5, 0 is no file.
                (gimli::DW_AT_call_file, AttributeValue::FileIndex(file)) => {
                    inlined.call_file = (file > 0 || unit.header.version() >= 5).then_some(file);
                }
                (gimli::DW_AT_call_line, _) => inlined.call_line = attribute.udata_value().unwrap_or(0),
                _ => {}
            }
        }
        inlined.name = name.best();
        let level = around.len();
        ranges.each(unit, work, |work, begin, end| {
            let first = probes.partition_point(|&probe| probe < begin);
            for (chain, _) in chains.iter_mut().zip(probes).skip(first).take_while(|&(_, &probe)| probe < end) {
                work.take(1)?;
                if chain.inlined.len() == level && level < MAX_INLINED {
                    work.keep(size_of::<[Inlined<'_>; 2]>())?;
                    chain.inlined.push(inlined);
                }
            }
            Ok(())
        })?;
        around.push(depth);
    }
    Ok(chains)
}

/// Part of the ascending probes that is in a range.
fn held(probes: &[u64], begin: u64, end: u64) -> &[u64] {
    let first = probes.partition_point(|&probe| probe < begin);
    let after = probes.partition_point(|&probe| probe < end);
    probes.get(first..after).unwrap_or_default()
}

/// Attributes with the name of a function: the linker's name is the best, one by reference the last.
#[derive(Clone, Copy, Default)]
pub(super) struct FunctionName<'a> {
    linkage: Option<Slice<'a>>,
    plain: Option<Slice<'a>>,
    other: Option<NameRef<'a>>,
}

impl<'a> FunctionName<'a> {
    pub(super) fn take(
        &mut self,
        unit: Unit<'_, 'a>,
        name: gimli::DwAt,
        value: AttributeValue<Slice<'a>>,
        work: &mut Work,
    ) -> Result<(), Broken> {
        match name {
            gimli::DW_AT_linkage_name | gimli::DW_AT_MIPS_linkage_name => {
                self.linkage = unit.attr_string(value).ok().or(self.linkage);
                work.look_at(self.linkage.map_or(0, |name| name.slice().len()))?;
            }
            gimli::DW_AT_name => {
                self.plain = unit.attr_string(value).ok().or(self.plain);
                work.look_at(self.plain.map_or(0, |name| name.slice().len()))?;
            }
            gimli::DW_AT_abstract_origin | gimli::DW_AT_specification => {
                self.other = match value {
                    AttributeValue::UnitRef(offset) => Some(NameRef::Entry(offset)),
                    AttributeValue::DebugInfoRef(offset) => Some(NameRef::Section(offset.0 as u64)),
                    _ => self.other,
                };
            }
            _ => {}
        }
        Ok(())
    }

    pub(super) fn best(&self) -> Option<NameRef<'a>> {
        self.linkage.or(self.plain).map(NameRef::Name).or(self.other)
    }
}

/// Attributes with the addresses of an entry.
#[derive(Clone, Copy, Default)]
struct Ranges {
    low: Option<u64>,
    high: Option<u64>,
    size: Option<u64>,
    list: Option<RangeListsOffset>,
}

impl Ranges {
    fn take<'a>(
        &mut self,
        unit: Unit<'_, 'a>,
        name: gimli::DwAt,
        value: AttributeValue<Slice<'a>>,
    ) -> Result<(), Broken> {
        match name {
            gimli::DW_AT_low_pc => self.low = unit.attr_address(value)?,
            gimli::DW_AT_high_pc => match value {
                AttributeValue::Udata(size) => self.size = Some(size),
                _ => self.high = unit.attr_address(value)?,
            },
            gimli::DW_AT_ranges => self.list = unit.attr_ranges_offset(value)?,
            _ => {}
        }
        Ok(())
    }

    fn each(
        &self,
        unit: Unit<'_, '_>,
        work: &mut Work,
        mut range: impl FnMut(&mut Work, u64, u64) -> Result<(), Broken>,
    ) -> Result<(), Broken> {
        if let Some(list) = self.list {
            let mut ranges = unit.ranges(list)?;
            while let Some(found) = ranges.next()? {
                work.take(2)?;
                if found.begin < found.end {
                    range(work, found.begin, found.end)?;
                }
            }
        } else if let Some(begin) = self.low {
            let end = self.high.or_else(|| begin.checked_add(self.size?));
            if let Some(end) = end.filter(|&end| begin < end) {
                range(work, begin, end)?;
            }
        }
        Ok(())
    }
}
