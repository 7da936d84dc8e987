//! Sizes of a linked kernel: its symbols by compile unit, else by the file symbols of its table.

use std::collections::HashMap;
use std::path::Path;

use super::sizes::{Counted, SectionPlaces, StaticSizes};
use super::symbols;
use super::symbols::{SizedSymbol, SymbolKind};
use super::units::Units;
use crate::names::debug::image::Image;
use crate::names::debug::relocate;
use crate::names::debug::sections::Sections;
use crate::names::error::NamesError;

/// Kind of a linked file.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Linked {
    /// The kernel itself.
    Kernel,
    /// A module, whose sections have no addresses yet.
    Module,
}

/// Sizes of a linked kernel, or of a module.
pub(super) fn read(path: &Path, kind: Linked) -> Result<StaticSizes, NamesError> {
    let image = Image::open(path)?;
    if image.is_relocatable && kind == Linked::Kernel {
        return Err(NamesError::unusable(
            path,
            "an object or a module, not a linked kernel: name the kernel's vmlinux",
        ));
    }
    let table = symbols::table(&image)?;
    let mut sizes = StaticSizes::default();
    sizes.objects = 1;
    sizes.add_sections(&mut SectionPlaces::new(), symbols::sections(&image));
    let parts = symbols::parts(&image);
    let layout = if image.is_relocatable { relocate::layout(&image) } else { None };
    let layout = layout.unwrap_or_default();
    let units = match image.section(b".debug_info") {
        None => Ok(Units::default()),
        Some(_) if image.is_relocatable => {
            let mut work = image.work();
            let sections = relocate::without_lines(&image, &table, &layout, &mut work);
            Units::read(&sections.map_err(|why| NamesError::unusable(path, why))?, work)
        }
        Some(_) => {
            let work = image.work();
            Units::read(&Sections::without_lines(image)?, work)
        }
    };
    let units = units.map_err(|spent| NamesError::unusable(path, spent.to_string()))?;
    if units.broken > 0 {
        sizes.leave_out(path, format!("{} compile units of its debug information are damaged", units.broken));
    }
    let mut counted = Counted::default();
    let mut runs = FileRuns::new(&units);
    symbols::each(&parts, &table, &mut |symbol| {
        let symbol = &placed(symbol, &layout);
        counted.add(symbol);
        runs.add(symbol);
    });
    if counted.is_empty() {
        return Err(NamesError::unusable(path, "it has no symbols: name the vmlinux of a build or of a debug package"));
    }
    for symbol in counted.symbols() {
        match runs.source_of(symbol) {
            Ok(file) => sizes.files.entry(file.into()).or_default().add(symbol),
            Err(name) => sizes.placeless.entry(name.into()).or_default().add(symbol),
        }
    }
    symbols::each(&parts, &table, &mut |symbol| {
        let symbol = &placed(symbol, &layout);
        if symbol.kind == SymbolKind::Function
            && let Ok(file) = runs.source_of(symbol)
            && let Some(known) = sizes.files.get_mut(file)
        {
            known.add_alias(symbol.name);
        }
    });
    match units.spent() {
        Some(spent) => Err(NamesError::unusable(path, spent.to_string())),
        None => Ok(sizes),
    }
}

/// Symbol with the address that the layout of a module gives it.
fn placed<'s>(symbol: &SizedSymbol<'s>, layout: &[Option<u64>]) -> SizedSymbol<'s> {
    let begin = symbol.section.and_then(|section| layout.get(section as usize).copied().flatten());
    SizedSymbol { address: symbol.address.wrapping_add(begin.unwrap_or(0)), ..*symbol }
}

/// Local symbols of one file: those after a file symbol.
struct FileRun<'s> {
    name: &'s [u8],
    /// Units of that name which have symbols of the run, with their number.
    votes: HashMap<usize, usize>,
}

/// All of them, in the order of the table.
struct FileRuns<'s, 'u> {
    runs: Vec<FileRun<'s>>,
    /// Units by the name of their file without folder and ending; `None` for a name of several.
    by_stem: HashMap<&'u [u8], Option<usize>>,
    units: &'u Units,
}

impl<'s, 'u> FileRuns<'s, 'u> {
    fn new(units: &'u Units) -> FileRuns<'s, 'u> {
        let mut by_stem: HashMap<&[u8], Option<usize>> = HashMap::new();
        for (number, source) in units.sources().enumerate() {
            by_stem.entry(stem(source)).and_modify(|known| *known = None).or_insert(Some(number));
        }
        FileRuns { runs: Vec::new(), by_stem, units }
    }

    /// Takes a symbol of the table: a new run, or a vote for the unit of the run that it is in.
    fn add(&mut self, symbol: &SizedSymbol<'s>) {
        if symbol.kind == SymbolKind::File {
            self.runs.push(FileRun { name: symbol.name, votes: HashMap::new() });
            return;
        }
        let unit = self.unit_at(symbol);
        if let Some(run) = symbol.file_run.and_then(|run| self.runs.get_mut(run as usize))
            && let Some(unit) = unit
            && self.units.source(unit).map(stem) == Some(stem(run.name))
        {
            let votes = run.votes.entry(unit).or_default();
            *votes = votes.saturating_add(1);
        }
    }

    /// Source of a symbol: that of the unit at its address, else that of its run; the name of its file where that is all.
    fn source_of<'f>(&'f self, symbol: &SizedSymbol<'_>) -> Result<&'f [u8], &'s [u8]> {
        let run = symbol.file_run.and_then(|run| self.runs.get(run as usize));
        let of_run = |run: &FileRun<'_>| {
            let most = run.votes.iter().max_by_key(|&(&unit, &votes)| (votes, unit)).map(|(&unit, _)| unit);
            most.or_else(|| *self.by_stem.get(stem(run.name))?)
        };
        let unit = self.unit_at(symbol).or_else(|| run.and_then(of_run));
        unit.and_then(|unit| self.units.source(unit)).ok_or(run.map_or(&[][..], |run| run.name))
    }

    /// Unit that has the address of a symbol.
    fn unit_at(&self, symbol: &SizedSymbol<'_>) -> Option<usize> {
        match symbol.kind {
            // A compiler may begin a function's range behind the room that it leaves for tracers.
            SymbolKind::Function => {
                let within = [0, symbol.bytes / 2, symbol.bytes.saturating_sub(1)];
                within.iter().find_map(|bytes| self.units.of_code(symbol.address.checked_add(*bytes)?))
            }
            SymbolKind::Object => self.units.of_variable(symbol.address),
            SymbolKind::File => None,
        }
    }
}

/// Name of a file without folder and ending: the linker calls assembler by its object, `head_64.o`.
fn stem(path: &[u8]) -> &[u8] {
    let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
    memchr::memrchr(b'.', name).and_then(|end| name.get(..end)).unwrap_or(name)
}
