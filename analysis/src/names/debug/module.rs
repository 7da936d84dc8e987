//! Debug information of one module. Each of its sections was loaded at an address of its own.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::path::Path;

use object::File;
use object::elf;

use super::check::{FEWEST, hex, is_nearly_all};
use super::dwarf::{DwarfFile, FramesByAddress};
use super::image::Image;
use super::paths::Roots;
use super::relocate::{self, Layout};
use super::sections::Sections;
use super::symbols::Symbols;
use crate::names::module_info::ModuleInfo;
use crate::names::work::Spent;

/// Facts of the trace about one module.
#[derive(Clone, Debug, Default)]
pub(super) struct ModuleFacts<'a> {
    /// Lines of the recorder about it; several if it was loaded several times.
    pub(super) infos: &'a [ModuleInfo],
    /// Functions and their addresses by the kernel's list.
    pub(super) functions: Vec<(&'a [u8], u64)>,
}

/// Reason for which a module's file is not used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// File without debug information: this is no fault.
    NoDwarf,
    /// File that fails a check, or cannot be read.
    Rejected(String),
}

/// Module with debug information that passed a check.
#[derive(Debug)]
pub(super) struct ModuleFile {
    dwarf: DwarfFile,
    regions: Vec<Region>,
}

/// Section in memory.
#[derive(Clone, Copy, Debug)]
struct Region {
    start: u64,
    end: u64,
    /// Address that the section is given here.
    laid_out: u64,
}

impl ModuleFile {
    /// Opens and checks a file.
    pub(super) fn open(path: &Path, facts: &ModuleFacts<'_>, kernel: Option<&Roots>) -> Result<ModuleFile, Refusal> {
        let rejected = |why: &str| Refusal::Rejected(why.to_owned());
        let image = Image::open(path).map_err(|error| Refusal::Rejected(error.why))?;
        if !image.has_dwarf() {
            return Err(Refusal::NoDwarf);
        }
        let symbols = Symbols::read(&image).map_err(|error| Refusal::Rejected(error.why))?;
        let same_build = same_build(&image, facts)?;
        if !image.is_relocatable {
            return Err(rejected("it is not a module: its sections have addresses already"));
        }
        let votes = votes(&image, &symbols, facts);
        if !same_build {
            votes.check()?;
        }
        let layout = relocate::layout(&image).ok_or_else(|| rejected("its sections are too large"))?;
        let regions = regions(&image, &layout, facts, &votes, same_build);
        if regions.is_empty() {
            return Err(rejected("the trace does not say where its sections were loaded"));
        }
        let mut work = image.work();
        let bytes = image.whole().map_err(|error| Refusal::Rejected(error.why))?;
        let file = File::parse(&*bytes)
            .map_err(|error| Refusal::Rejected(format!("it is not a complete ELF file: {error}")))?;
        let read = |name: &'static str| relocate::section(&image, (&file, &symbols), &layout, name, &mut work);
        let sections = Sections::in_memory(image.endian, read).map_err(Refusal::Rejected)?;
        let mut dwarf = DwarfFile::new(sections, work);
        if let Some(kernel) = kernel {
            dwarf.add_roots(kernel);
        }
        Ok(ModuleFile { dwarf, regions })
    }

    /// Frames at addresses of the trace.
    pub(super) fn frames(&mut self, addresses: &[u64]) -> FramesByAddress {
        let own: Vec<(u64, u64)> = addresses
            .iter()
            .filter_map(|&address| {
                let region = self.regions.iter().find(|region| (region.start..region.end).contains(&address))?;
                Some((address, region.laid_out.wrapping_add(address.wrapping_sub(region.start))))
            })
            .collect();
        let probes: Vec<u64> = own.iter().map(|&(_, probe)| probe).collect();
        let mut frames = self.dwarf.frames(&probes);
        own.iter().filter_map(|(address, probe)| Some((*address, frames.remove(probe)?))).collect()
    }

    /// The reason for which it is left out from now on.
    pub(super) fn spent(&self) -> Option<Spent> {
        self.dwarf.spent()
    }

    /// Units that could not be read so far.
    pub(super) fn broken(&self) -> u64 {
        self.dwarf.broken()
    }
}

/// True if the trace has the build-id of the module, and the file is of this build; false if either has none.
fn same_build(image: &Image, facts: &ModuleFacts<'_>) -> Result<bool, Refusal> {
    let mut ids = facts.infos.iter().filter_map(|info| info.build_id.as_ref()).peekable();
    let (Some(&first), Some(own)) = (ids.peek(), image.build_id()) else { return Ok(false) };
    if ids.all(|id| *id == own) {
        return Ok(true);
    }
    let why = format!("it is another build: its build-id is {}, the trace's {}", hex(&own), hex(first));
    Err(Refusal::Rejected(why))
}

/// Distances of the module's sections, by the names that are unique in the file and in the trace.
struct Votes {
    /// By section: the distance that most names have, their number, and that of all names of the section.
    sections: HashMap<usize, (u64, usize, usize)>,
    /// Functions of the trace.
    all: usize,
}

impl Votes {
    fn check(&self) -> Result<(), Refusal> {
        let equal = self.sections.values().map(|&(_, most, _)| most).sum();
        let why = if self.all < FEWEST {
            format!("the trace has neither its build-id nor {FEWEST} of its functions to check it by")
        } else if !is_nearly_all(equal, self.all) {
            format!("it is another build: {equal} of {} functions are where the trace has them", self.all)
        } else {
            return Ok(());
        };
        Err(Refusal::Rejected(why))
    }
}

fn votes(image: &Image, symbols: &Symbols, facts: &ModuleFacts<'_>) -> Votes {
    let is_code = |section: usize| image.sections.get(section).is_some_and(super::image::Section::is_executable);
    let of_code = |kind: elf::SymbolType| kind == elf::STT_FUNC || kind == elf::STT_NOTYPE;
    let own = symbols
        .iter()
        .filter(|symbol| of_code(symbol.kind))
        .filter_map(|symbol| Some((symbol.name, (symbol.section.filter(|&section| is_code(section))?, symbol.value))));
    let (own, listed) = (unique(own), unique(facts.functions.iter().copied()));
    let mut counts: HashMap<usize, HashMap<u64, usize>> = HashMap::new();
    let mut all = 0usize;
    for (name, address) in listed.iter().filter_map(|(name, address)| Some((name, (*address)?))) {
        all = all.saturating_add(1);
        if let Some(&Some((section, value))) = own.get(name) {
            let count = counts.entry(section).or_default().entry(address.wrapping_sub(value)).or_default();
            *count = count.saturating_add(1);
        }
    }
    let most = |distances: HashMap<u64, usize>| {
        let sum = distances.values().sum();
        let best = distances.into_iter().max_by_key(|&(distance, count)| (count, distance)).unwrap_or_default();
        (best.0, best.1, sum)
    };
    Votes { sections: counts.into_iter().map(|(section, distances)| (section, most(distances))).collect(), all }
}

/// Values by name; `None` for a name of several values.
fn unique<'a, T: PartialEq>(pairs: impl Iterator<Item = (&'a [u8], T)>) -> HashMap<&'a [u8], Option<T>> {
    let mut unique: HashMap<&[u8], Option<T>> = HashMap::new();
    for (name, value) in pairs {
        match unique.entry(name) {
            Entry::Vacant(place) => {
                place.insert(Some(value));
            }
            Entry::Occupied(mut known) => {
                if known.get().as_ref().is_some_and(|known| *known != value) {
                    known.insert(None);
                }
            }
        }
    }
    unique
}

/// Places of the executable sections in memory: as the recorder saw them, else by the votes.
fn regions(image: &Image, layout: &Layout, facts: &ModuleFacts<'_>, votes: &Votes, same_build: bool) -> Vec<Region> {
    let mut regions = Vec::new();
    let mut is_unique: HashMap<&[u8], bool> = HashMap::new();
    for section in &image.sections {
        is_unique.entry(&section.name).and_modify(|is_unique| *is_unique = false).or_insert(true);
    }
    let mut listed: HashMap<&[u8], Vec<u64>> = HashMap::new();
    for (name, address) in facts.infos.iter().flat_map(|info| &info.sections) {
        listed.entry(name).or_default().push(*address);
    }
    for (at, section) in image.sections.iter().enumerate() {
        let Some(laid_out) = layout.get(at).copied().flatten().filter(|_| section.is_executable()) else { continue };
        let mut starts: Vec<u64> = Vec::new();
        if same_build && is_unique.get(&*section.name) == Some(&true) {
            starts.extend(listed.get(&*section.name).into_iter().flatten());
        }
        if starts.is_empty()
            && let Some(&(distance, most, all)) = votes.sections.get(&at)
            && is_nearly_all(most, all)
        {
            starts.push(distance);
        }
        let region = |start: u64| Some(Region { start, end: start.checked_add(section.size)?, laid_out });
        regions.extend(starts.into_iter().filter_map(region));
    }
    regions
}
