//! Frames at addresses of one file, as `addr2line -i` tells them.

use std::collections::HashMap;

use gimli::{UnitOffset, UnitRef};

use super::lines::{self, FileLine};
use super::paths::Roots;
use super::sections::{ALONE, Broken, Sections, Slice, Work};
use super::units::Units;
use super::walk::{self, Chain, FunctionName, NameRef};
use crate::names::place::Frame;

/// Greatest number of references from a function to the entry with its name. Compilers need two.
const MAX_REFERENCES: usize = 16;
/// Greatest length of a name, in bytes. Names of C++ and Rust are long.
const MAX_NAME: usize = 1 << 16;

/// Greatest number of units that an address is looked for in. Units share no code; only wide ranges of assembler overlap.
const MAX_TURNS: usize = 16;

/// Frames by address; an address that the file has no unit for is missing.
pub(super) type FramesByAddress = HashMap<u64, Vec<Frame>>;

/// Debug information of one file, indexed by address.
#[derive(Debug)]
pub(super) struct DwarfFile {
    sections: Sections,
    units: Units,
    work: Work,
    /// Names of entries in other units, by their place.
    names: HashMap<u64, Option<Box<[u8]>>>,
}

impl DwarfFile {
    /// Indexes the units.
    pub(super) fn new(sections: Sections) -> DwarfFile {
        let mut work = Work::new();
        let units = Units::read(&sections, &mut work);
        DwarfFile { sections, units, work, names: HashMap::new() }
    }

    /// Units that could not be read so far.
    pub(super) fn broken(&self) -> u64 {
        self.units.broken
    }

    /// Folders of the sources.
    pub(super) fn roots(&self) -> &Roots {
        &self.units.roots
    }

    /// Adds the kernel's roots to those of a module.
    pub(super) fn add_roots(&mut self, kernel: &Roots) {
        self.units.roots.add_kernel(kernel);
    }

    /// Frames at each of the `probes`, innermost first; each unit is read once.
    ///
    /// A function without a name is called by the empty one.
    pub(super) fn frames(&mut self, probes: &[u64]) -> FramesByAddress {
        let mut open: Vec<u64> = probes.to_vec();
        open.sort_unstable();
        open.dedup();
        let mut found = FramesByAddress::new();
        // An address in several units is asked of one after the other until one knows it.
        for turn in 0..MAX_TURNS {
            let mut by_unit: Vec<(usize, u64)> =
                open.iter().filter_map(|&probe| Some((self.units.at(probe).nth(turn)?, probe))).collect();
            if by_unit.is_empty() {
                break;
            }
            by_unit.sort_unstable();
            for group in by_unit.chunk_by(|a, b| a.0 == b.0) {
                let Some(&(unit, _)) = group.first() else { continue };
                let probes: Vec<u64> = group.iter().map(|&(_, probe)| probe).collect();
                if self.frames_of_unit(unit, &probes, &mut found).is_err() {
                    self.units.broken += 1;
                }
            }
            open.retain(|probe| !found.contains_key(probe));
        }
        found
    }

    fn frames_of_unit(&mut self, at: usize, probes: &[u64], found: &mut FramesByAddress) -> Result<(), Broken> {
        let place = self.units.places.get(at).ok_or(Broken)?.clone();
        let bytes = self.sections.info(place.range.clone())?;
        let dwarf = self.sections.dwarf(&bytes, place.abbrev_end);
        let unit = dwarf.unit(dwarf.unit_header(ALONE)?)?;
        let unit = UnitRef::new(&dwarf, &unit);
        let chains = walk::chains(unit, probes, &mut self.work)?;
        let lines = lines::lines(unit, probes, &mut self.work)?;
        let mut reader = UnitReader {
            sections: &self.sections,
            units: &self.units,
            names: &mut self.names,
            unit,
            start: place.range.start,
            files: HashMap::new(),
        };
        for &probe in probes {
            let (chain, line) = (chains.get(&probe), lines.get(&probe).copied());
            if chain.is_some() || line.is_some() {
                found.insert(probe, reader.frames(chain, line));
            }
        }
        Ok(())
    }
}

/// A unit, its names and its files.
struct UnitReader<'r, 'u, 'a> {
    sections: &'r Sections,
    units: &'r Units,
    names: &'r mut HashMap<u64, Option<Box<[u8]>>>,
    unit: UnitRef<'u, Slice<'a>>,
    /// Place of the unit in `.debug_info`.
    start: u64,
    files: HashMap<u64, Option<Box<[u8]>>>,
}

impl UnitReader<'_, '_, '_> {
    fn frames(&mut self, chain: Option<&Chain<'_>>, line: Option<FileLine>) -> Vec<Frame> {
        let mut frames = Vec::new();
        let (mut file, mut number) = (line.map(|line| line.file), line.map_or(0, |line| line.line));
        for inlined in chain.iter().flat_map(|chain| chain.inlined.iter().rev()) {
            frames.push(self.frame(inlined.name, file, number, true));
            (file, number) = (inlined.call_file, inlined.call_line);
        }
        frames.push(self.frame(chain.and_then(|chain| chain.outermost), file, number, false));
        frames
    }

    fn frame(&mut self, name: Option<NameRef<'_>>, file: Option<u64>, line: u64, inlined: bool) -> Frame {
        Frame {
            function: self.name(name).unwrap_or_default(),
            file: file.and_then(|file| self.file(file)),
            line: u32::try_from(line).ok().filter(|&line| line > 0),
            inlined,
        }
    }

    fn file(&mut self, index: u64) -> Option<Box<[u8]>> {
        let (unit, roots) = (self.unit, &self.units.roots);
        let path = || {
            let folder = unit.comp_dir.as_ref().map_or(&[][..], |folder| folder.slice());
            Some(roots.relative(folder, &lines::file(unit, index)?).into())
        };
        self.files.entry(index).or_insert_with(path).clone()
    }

    fn name(&mut self, name: Option<NameRef<'_>>) -> Option<Box<[u8]>> {
        let place = match name? {
            NameRef::Name(name) => return kept(name),
            NameRef::Entry(offset) => self.start.checked_add(offset.0 as u64)?,
            NameRef::Section(place) => place,
        };
        if let Some(name) = self.names.get(&place) {
            return name.clone();
        }
        let name = self.name_at(place);
        self.names.insert(place, name.clone());
        name
    }

    /// Name of the entry at a place of `.debug_info`, or of those that it refers to.
    fn name_at(&self, mut place: u64) -> Option<Box<[u8]>> {
        let mut steps = MAX_REFERENCES;
        loop {
            let unit_place = self.units.places.get(self.units.with(place)?)?;
            if unit_place.range.start == self.start {
                place = match self.step(self.unit, self.start, place)? {
                    Ok(name) => return kept(name),
                    Err(next) => next,
                };
            } else {
                let bytes = self.sections.info(unit_place.range.clone()).ok()?;
                let dwarf = self.sections.dwarf(&bytes, unit_place.abbrev_end);
                let unit = dwarf.unit(dwarf.unit_header(ALONE).ok()?).ok()?;
                place = match self.step(UnitRef::new(&dwarf, &unit), unit_place.range.start, place)? {
                    Ok(name) => return kept(name),
                    Err(next) => next,
                };
            }
            steps = steps.checked_sub(1)?;
        }
    }

    /// Name of an entry, or the place of the entry that has it.
    fn step<'a>(&self, unit: UnitRef<'_, Slice<'a>>, start: u64, place: u64) -> Option<Result<Slice<'a>, u64>> {
        let offset = UnitOffset(usize::try_from(place.checked_sub(start)?).ok()?);
        let mut entries = unit.entries_raw(Some(offset)).ok()?;
        let abbreviation = entries.read_abbreviation().ok()??;
        let mut name = FunctionName::default();
        for &spec in abbreviation.attributes() {
            let attribute = entries.read_attribute(spec).ok()?;
            name.take(unit, attribute.name(), attribute.value());
        }
        Some(match name.best()? {
            NameRef::Name(name) => Ok(name),
            NameRef::Entry(offset) => Err(start.checked_add(offset.0 as u64)?),
            NameRef::Section(place) => Err(place),
        })
    }
}

fn kept(name: Slice<'_>) -> Option<Box<[u8]>> {
    (name.slice().len() <= MAX_NAME).then(|| name.slice().into())
}
