//! Sizes of a linked kernel: its symbols by compile unit, else by the file symbols of its table.

use std::collections::HashMap;
use std::path::Path;

use super::source_paths::{self, UnitPath};
use super::symbols::{SizedSymbol, SymbolKind};
use super::units::Units;
use super::{Counted, SectionPlaces, StaticSizes, symbols};
use crate::names::debug::image::{Image, ImageError};
use crate::names::error::NamesError;

/// Sizes of a linked kernel.
pub(super) fn read(path: &Path) -> Result<StaticSizes, NamesError> {
    let told = |error: ImageError| NamesError::unusable(&error.path, error.why);
    let image = Image::open(path).map_err(told)?;
    if image.is_relocatable {
        return Err(NamesError::unusable(
            path,
            "no linked kernel but an object or a module: name the kernel's vmlinux",
        ));
    }
    let table = symbols::table(&image).map_err(told)?;
    let units = Units::read(&image).map_err(told)?;
    let mut sizes = StaticSizes { objects: 1, ..StaticSizes::default() };
    sizes.add_sections(&mut SectionPlaces::new(), symbols::sections(&image));
    if units.broken > 0 {
        sizes.leave_out(path, format!("{} damaged compile units of its debug information", units.broken));
    }
    let mut counted = Counted::default();
    let mut runs = FileRuns::new(&units);
    symbols::each(&image, &table, &mut |symbol| {
        counted.add(symbol);
        runs.add(symbol, &units);
    });
    let mut is_empty = true;
    let root = source_paths::root(units.paths.iter());
    for symbol in counted.symbols() {
        is_empty = false;
        let run = symbol.file_run.and_then(|run| runs.runs.get(run as usize));
        let unit = unit_of(&units, symbol).or_else(|| run.and_then(|run| runs.unit_of(run)));
        let file = unit.and_then(|unit| source_paths::below(&units.paths[unit as usize], root.as_deref()));
        let known = match file {
            Some(file) => sizes.files.entry(file.into()).or_default(),
            None => sizes.placeless.entry(run.map_or(&[][..], |run| run.name).into()).or_default(),
        };
        known.add(symbol);
    }
    if is_empty {
        return Err(NamesError::unusable(path, "it has no symbols: name the vmlinux of a build or of a debug package"));
    }
    Ok(sizes)
}

/// Unit that has the address of a symbol.
fn unit_of(units: &Units, symbol: &SizedSymbol<'_>) -> Option<u32> {
    match symbol.kind {
        SymbolKind::Function => units.of_code(symbol.address),
        SymbolKind::Object => units.of_variable(symbol.address),
        SymbolKind::File => None,
    }
}

/// Local symbols of one file: those after a file symbol.
struct FileRun<'s> {
    name: &'s [u8],
    /// Units of that name which have symbols of the run, with their number.
    votes: HashMap<u32, usize>,
}

/// All of them, in the order of the table.
struct FileRuns<'s, 'u> {
    runs: Vec<FileRun<'s>>,
    /// Units by the name of their file without folder and ending; `None` for a name of several.
    by_stem: HashMap<&'u [u8], Option<u32>>,
}

impl<'s, 'u> FileRuns<'s, 'u> {
    fn new(units: &'u Units) -> FileRuns<'s, 'u> {
        let mut by_stem: HashMap<&[u8], Option<u32>> = HashMap::new();
        for (number, path) in units.paths.iter().enumerate() {
            let number = u32::try_from(number).ok();
            by_stem.entry(stem(path.base_name())).and_modify(|known| *known = None).or_insert(number);
        }
        FileRuns { runs: Vec::new(), by_stem }
    }

    /// Takes a symbol of the table: a new run, or a vote for the unit of the run that it is in.
    fn add(&mut self, symbol: &SizedSymbol<'s>, units: &Units) {
        if symbol.kind == SymbolKind::File {
            self.runs.push(FileRun { name: symbol.name, votes: HashMap::new() });
        } else if let Some(run) = symbol.file_run.and_then(|run| self.runs.get_mut(run as usize))
            && let Some(unit) = unit_of(units, symbol)
            && units.paths.get(unit as usize).map(UnitPath::base_name).map(stem) == Some(stem(run.name))
        {
            *run.votes.entry(unit).or_default() += 1;
        }
    }

    /// Unit of a run: that of most of its symbols, else the only one of its name.
    fn unit_of(&self, run: &FileRun<'_>) -> Option<u32> {
        let most = run.votes.iter().max_by_key(|&(&unit, &votes)| (votes, unit)).map(|(&unit, _)| unit);
        most.or_else(|| *self.by_stem.get(stem(run.name))?)
    }
}

/// Name of a file without its ending: the linker calls assembler by its object, `head_64.o`.
fn stem(name: &[u8]) -> &[u8] {
    memchr::memrchr(b'.', name).map_or(name, |end| &name[..end])
}
