//! Frames at addresses of one file, as `addr2line -i` gives them.

use std::collections::HashMap;

use gimli::{UnitOffset, UnitRef};

use super::lines::{self, FileLine};
use super::paths::Roots;
use super::sections::{ALONE, Broken, Sections, Slice};
use super::units::Units;
use super::walk::{self, Chain, FunctionName, NameRef};
use crate::names::place::Frame;
use crate::names::work::{Spent, Work};
use kmemtrace_abi::text::cut::cut;

/// Largest number of references from a function to the entry with its name. Compilers need two.
const MAX_REFERENCES: usize = 16;
/// Largest number of units that an address is looked for in. Units share no code; only wide ranges of assembler overlap.
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
    pub(super) fn new(sections: Sections, mut work: Work) -> DwarfFile {
        let units = Units::read(&sections, &mut work);
        DwarfFile { sections, units, work, names: HashMap::new() }
    }

    /// Units that could not be read so far.
    pub(super) fn broken(&self) -> u64 {
        self.units.broken
    }

    /// The reason for which it is left out from now on.
    pub(super) fn spent(&self) -> Option<Spent> {
        self.work.spent()
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
            let mut by_unit: Vec<(usize, u64)> = Vec::new();
            for &probe in &open {
                let (unit, passed) = self.units.at(probe, turn);
                if self.work.take(passed).is_err() {
                    return FramesByAddress::new();
                }
                by_unit.extend(unit.map(|unit| (unit, probe)));
            }
            if by_unit.is_empty() {
                break;
            }
            by_unit.sort_unstable();
            for group in by_unit.chunk_by(|a, b| a.0 == b.0) {
                let Some(&(unit, _)) = group.first() else { continue };
                let probes: Vec<u64> = group.iter().map(|&(_, probe)| probe).collect();
                if self.frames_of_unit(unit, &probes, &mut found).is_err() {
                    self.units.broken = self.units.broken.saturating_add(1);
                }
                if self.spent().is_some() {
                    return FramesByAddress::new();
                }
            }
            open.retain(|probe| !found.contains_key(probe));
        }
        found
    }

    fn frames_of_unit(&mut self, at: usize, probes: &[u64], found: &mut FramesByAddress) -> Result<(), Broken> {
        let place = self.units.places.get(at).ok_or(Broken)?.clone();
        place.take_tables(&self.sections, &mut self.work)?;
        self.work.look_at(place.len()?)?;
        let bytes = self.sections.info(place.range.clone())?;
        let dwarf = self.sections.dwarf(&bytes, place.abbrevs.end);
        let unit = dwarf.unit(dwarf.unit_header(ALONE)?)?;
        let unit = UnitRef::new(&dwarf, &unit);
        let chains = walk::chains(unit, probes, &mut self.work)?;
        let lines = lines::lines(unit, probes, &mut self.work)?;
        let mut reader = UnitReader {
            sections: &self.sections,
            units: &self.units,
            names: &mut self.names,
            work: &mut self.work,
            unit,
            start: place.range.start,
            files: HashMap::new(),
        };
        for &probe in probes {
            let (chain, line) = (chains.get(&probe), lines.get(&probe).copied());
            if chain.is_some() || line.is_some() {
                found.insert(probe, reader.frames(chain, line)?);
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
    work: &'r mut Work,
    unit: UnitRef<'u, Slice<'a>>,
    /// Place of the unit in `.debug_info`.
    start: u64,
    files: HashMap<u64, Option<Box<[u8]>>>,
}

impl UnitReader<'_, '_, '_> {
    fn frames(&mut self, chain: Option<&Chain<'_>>, line: Option<FileLine>) -> Result<Vec<Frame>, Broken> {
        let mut frames = Vec::new();
        let (mut file, mut number) = (line.map(|line| line.file), line.map_or(0, |line| line.line));
        for inlined in chain.iter().flat_map(|chain| chain.inlined.iter().rev()) {
            frames.push(self.frame(inlined.name, file, number, true)?);
            (file, number) = (inlined.call_file, inlined.call_line);
        }
        frames.push(self.frame(chain.and_then(|chain| chain.outermost), file, number, false)?);
        Ok(frames)
    }

    fn frame(
        &mut self,
        name: Option<NameRef<'_>>,
        file: Option<u64>,
        line: u64,
        inlined: bool,
    ) -> Result<Frame, Broken> {
        let function = self.name(name)?.unwrap_or_default();
        let file = match file {
            Some(file) => self.file(file)?,
            None => None,
        };
        let line = u32::try_from(line).ok().filter(|&line| line > 0);
        let texts = function.len().saturating_add(file.as_ref().map_or(0, |file| file.len()));
        self.work.keep(size_of::<Frame>().saturating_add(texts))?;
        Ok(Frame { function, file, line, inlined })
    }

    fn file(&mut self, index: u64) -> Result<Option<Box<[u8]>>, Broken> {
        if let Some(known) = self.files.get(&index) {
            return Ok(known.clone());
        }
        let (unit, roots) = (self.unit, &self.units.roots);
        let folder = unit.comp_dir.as_ref().map_or(&[][..], |folder| folder.slice());
        let path: Option<Box<[u8]>> =
            lines::file(unit, index).map(|path| cut(&roots.relative(cut(folder), &path)).into());
        let len = path.as_ref().map_or(0, |path| path.len());
        self.work.look_at(folder.len().saturating_add(len))?;
        self.work.keep(len)?;
        self.files.insert(index, path.clone());
        Ok(path)
    }

    fn name(&mut self, name: Option<NameRef<'_>>) -> Result<Option<Box<[u8]>>, Broken> {
        let place = match name {
            None => return Ok(None),
            Some(NameRef::Name(name)) => return Ok(Some(kept(name))),
            Some(NameRef::Entry(offset)) => self.start.checked_add(offset.0 as u64),
            Some(NameRef::Section(place)) => Some(place),
        };
        let Some(place) = place else { return Ok(None) };
        if let Some(name) = self.names.get(&place) {
            return Ok(name.clone());
        }
        // An entry that cannot be read has no name; the frame stays.
        let name = self.name_at(place).unwrap_or_default();
        if self.work.spent().is_some() {
            return Err(Broken);
        }
        let len = name.as_ref().map_or(0, |name| name.len());
        self.work.keep(size_of::<[(u64, Box<[u8]>); 2]>().saturating_add(len))?;
        self.names.insert(place, name.clone());
        Ok(name)
    }

    /// Name of the entry at a place of `.debug_info`, or of those that it refers to.
    fn name_at(&mut self, mut place: u64) -> Result<Option<Box<[u8]>>, Broken> {
        for _ in 0..=MAX_REFERENCES {
            let at = self.units.with(place).ok_or(Broken)?;
            let unit_place = self.units.places.get(at).ok_or(Broken)?;
            let found = if unit_place.range.start == self.start {
                step(self.unit, (self.start, place), self.work)?
            } else {
                unit_place.take_tables(self.sections, self.work)?;
                self.work.look_at(unit_place.len()?)?;
                let bytes = self.sections.info(unit_place.range.clone())?;
                let dwarf = self.sections.dwarf(&bytes, unit_place.abbrevs.end);
                let unit = dwarf.unit(dwarf.unit_header(ALONE)?)?;
                match step(UnitRef::new(&dwarf, &unit), (unit_place.range.start, place), self.work)? {
                    Step::Name(name) => return Ok(Some(kept(name))),
                    Step::Place(place) => Step::Place(place),
                }
            };
            place = match found {
                Step::Name(name) => return Ok(Some(kept(name))),
                Step::Place(place) => place,
            };
        }
        Ok(None)
    }
}

/// Name of an entry, or the place of the entry that has it.
enum Step<'a> {
    Name(Slice<'a>),
    Place(u64),
}

/// Looks for the name of the entry at `place`, in the unit at `start`.
fn step<'a>(unit: UnitRef<'_, Slice<'a>>, (start, place): (u64, u64), work: &mut Work) -> Result<Step<'a>, Broken> {
    let offset = UnitOffset(usize::try_from(place.checked_sub(start).ok_or(Broken)?)?);
    let mut entries = unit.entries_raw(Some(offset))?;
    let abbreviation = entries.read_abbreviation()?.ok_or(Broken)?;
    work.take((abbreviation.attributes().len() as u64).saturating_add(1))?;
    let mut name = FunctionName::default();
    for &spec in abbreviation.attributes() {
        let attribute = entries.read_attribute(spec)?;
        name.take(unit, attribute.name(), attribute.value(), work)?;
    }
    Ok(match name.best().ok_or(Broken)? {
        NameRef::Name(name) => Step::Name(name),
        NameRef::Entry(offset) => Step::Place(start.checked_add(offset.0 as u64).ok_or(Broken)?),
        NameRef::Section(place) => Step::Place(place),
    })
}

fn kept(name: Slice<'_>) -> Box<[u8]> {
    cut(name.slice()).into()
}
