//! Checks that an image is the traced kernel's: a wrong line is worse than none.

use std::collections::{HashMap, HashSet};

use kmemtrace_abi::target::Endian;
use object::elf;

use super::image::Image;
use super::symbols::Symbols;
use crate::names::kallsyms::Symbolizer;
use crate::names::module_info::build_id_of_notes;

/// Fewest symbols or call-sites that a check goes by.
pub(super) const FEWEST: usize = 20;

/// Facts about the traced kernel that names are found and checked by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KernelFacts<'a> {
    /// Release, as `uname -r` has it.
    pub(crate) release: Option<&'a str>,
    /// Bytes of `/sys/kernel/notes`; empty without them.
    pub(crate) notes: &'a [u8],
    /// Lines about modules, as the recorder writes them; empty without them.
    pub(crate) module_info: &'a [u8],
    /// Byte order of the machine; `None` where the trace does not tell.
    pub(crate) endian: Option<Endian>,
    /// Symbols of the trace.
    pub(crate) kallsyms: &'a Symbolizer,
    /// Call-sites of the trace; they check an image where there are neither build-id nor symbols.
    pub(crate) call_sites: &'a [u64],
}

impl KernelFacts<'_> {
    /// Build-id of the kernel.
    pub(super) fn build_id(&self) -> Option<Vec<u8>> {
        match self.endian {
            Some(endian) => build_id_of_notes(self.notes, endian),
            // Notes make sense in one order only.
            None => [Endian::Little, Endian::Big].iter().find_map(|&endian| build_id_of_notes(self.notes, endian)),
        }
    }
}

/// Image that passed a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Match {
    /// Check that it passed; `None` for an image that could not be checked.
    pub(super) checked: Option<&'static str>,
    /// Distance from the image's addresses to the trace's, modulo 2^64: KASLR.
    pub(super) distance: u64,
    /// The functions that the trace's call-sites have to be in, where these are known only after it was read.
    pub(super) unproven: Option<Functions>,
}

/// Checks an image of a kernel by its symbols. `is_named`: the caller named this very file.
pub(super) fn kernel(
    image: &Image,
    symbols: &Symbols,
    facts: &KernelFacts<'_>,
    is_named: bool,
) -> Result<Match, String> {
    let same_build = match (facts.build_id(), image.build_id()) {
        (Some(trace), Some(file)) if trace == file => true,
        (Some(trace), Some(file)) => {
            return Err(format!("it is another build: its build-id is {}, the trace's {}", hex(&file), hex(&trace)));
        }
        _ => false,
    };
    let listed = || facts.kallsyms.symbols().filter(|symbol| symbol.module.is_none() && symbol.is_code);
    let count = listed().count();
    if count == 0 || (count < FEWEST && !same_build) {
        if count > 0 {
            return Err(format!("the trace has neither a build-id nor {FEWEST} symbols to check it by"));
        }
        if !same_build && !is_named {
            return Err("the trace has neither a build-id nor symbols to check it by".into());
        }
        let functions = Functions::of(image, symbols);
        let checked = same_build.then_some("build-id");
        if facts.call_sites.is_empty() {
            return Ok(Match { checked, distance: 0, unproven: Some(functions) });
        }
        functions.check(facts.call_sites)?;
        return Ok(Match { checked, distance: 0, unproven: None });
    }
    let listed_at = || listed().map(|symbol| (symbol.name, symbol.address));
    let own_at = || symbols.iter().filter(|symbol| symbol.section.is_some()).map(|symbol| (symbol.name, symbol.value));
    let stext = |(name, _): &(&[u8], u64)| *name == b"_stext";
    let distance = match (listed_at().find(stext), own_at().find(stext)) {
        (Some((_, listed)), Some((_, own))) => listed.wrapping_sub(own),
        (Some(_), None) => return Err("it has no symbol _stext to check it by".into()),
        // A list that was cut to the symbols that occur.
        (None, _) => commonest_distance(listed_at(), own_at()).ok_or("no function of the trace is in it")?,
    };
    let own: HashSet<(&[u8], u64)> =
        symbols.iter().filter(|symbol| symbol.section.is_some()).map(|symbol| (symbol.name, symbol.value)).collect();
    let equal = listed()
        .filter(|symbol| own.contains(&(symbol.name, within(image, symbol.address.wrapping_sub(distance)))))
        .count();
    if !same_build && !is_nearly_all(equal, count) {
        return Err(format!("it is another build: {equal} of {count} functions are where the trace has them"));
    }
    Ok(Match { checked: Some(if same_build { "build-id" } else { "symbols" }), distance, unproven: None })
}

/// Distance that most functions have whose names stand once in the image.
fn commonest_distance<'n>(
    listed: impl Iterator<Item = (&'n [u8], u64)>,
    own: impl Iterator<Item = (&'n [u8], u64)>,
) -> Option<u64> {
    let mut places: HashMap<&[u8], Option<u64>> = HashMap::new();
    for (name, value) in own {
        places.entry(name).and_modify(|place| *place = None).or_insert(Some(value));
    }
    let mut votes: HashMap<u64, usize> = HashMap::new();
    for (name, address) in listed {
        if let Some(Some(value)) = places.get(name) {
            let count = votes.entry(address.wrapping_sub(*value)).or_default();
            *count = count.saturating_add(1);
        }
    }
    votes.into_iter().max_by_key(|&(distance, votes)| (votes, distance)).map(|(distance, _)| distance)
}

/// Addresses of an image's functions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Functions {
    /// Begin and end, ascending by begin.
    ranges: Vec<(u64, u64)>,
}

impl Functions {
    fn of(image: &Image, symbols: &Symbols) -> Functions {
        let is_code = |section: Option<usize>| {
            section.and_then(|section| image.sections.get(section)).is_some_and(super::image::Section::is_executable)
        };
        let functions = symbols.iter().filter(|symbol| symbol.kind == elf::STT_FUNC && is_code(symbol.section));
        let mut ranges: Vec<(u64, u64)> =
            functions.map(|function| (function.value, function.value.saturating_add(function.size))).collect();
        ranges.sort_unstable();
        Functions { ranges }
    }

    /// Checks that the call-sites are in these functions.
    pub(super) fn check(&self, call_sites: &[u64]) -> Result<(), String> {
        let mut sites: Vec<u64> = call_sites.iter().filter_map(|site| site.checked_sub(1)).collect();
        sites.sort_unstable();
        sites.dedup();
        if sites.len() < FEWEST {
            return Err(format!("the trace has neither symbols nor {FEWEST} call-sites to check it by"));
        }
        let holds = |site: &&u64| {
            let after = self.ranges.partition_point(|range| range.0 <= **site);
            after.checked_sub(1).and_then(|last| self.ranges.get(last)).is_some_and(|range| **site < range.1)
        };
        let count = sites.iter().filter(holds).count();
        if is_nearly_all(count, sites.len()) {
            return Ok(());
        }
        Err(format!("{count} of the trace's {} call-sites are in its functions", sites.len()))
    }
}

/// True for 99% or more.
pub(super) fn is_nearly_all(some: usize, all: usize) -> bool {
    some.saturating_mul(100) >= all.saturating_mul(99)
}

/// The address as wide as the image's are.
fn within(image: &Image, address: u64) -> u64 {
    if image.is_64 { address } else { address & u64::from(u32::MAX) }
}

/// Bytes as hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
