//! Lines at addresses of one unit.

use std::collections::HashMap;

use gimli::UnitRef;

use super::paths;
use super::sections::{Broken, Slice};
use crate::names::work::Work;

/// Place of an instruction in the sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileLine {
    /// File, by its number in the unit's table.
    pub(super) file: u64,
    /// Line, from 1; 0 if the compiler tells none.
    pub(super) line: u64,
}

/// Lines of those of the ascending `probes` that the unit has instructions at.
pub(super) fn lines(
    unit: UnitRef<'_, Slice<'_>>,
    probes: &[u64],
    work: &mut Work,
) -> Result<HashMap<u64, FileLine>, Broken> {
    let mut lines = HashMap::new();
    let Some(program) = unit.line_program.clone() else { return Ok(lines) };
    let mut rows = program.rows();
    let mut before: Option<(u64, FileLine)> = None;
    while let Some((_, row)) = rows.next_row()? {
        work.take(1)?;
        let address = row.address();
        if let Some((begin, line)) = before
            && begin < address
        {
            let first = probes.partition_point(|&probe| probe < begin);
            for &probe in probes.iter().skip(first).take_while(|&&probe| probe < address) {
                work.take(1)?;
                lines.entry(probe).or_insert(line);
            }
        }
        // The last of several rows with one address counts.
        let line = FileLine { file: row.file_index(), line: row.line().map_or(0, std::num::NonZeroU64::get) };
        before = (!row.end_sequence()).then_some((address, line));
    }
    Ok(lines)
}

/// Path of a file of the unit's table, as the compiler saw it from its folder.
pub(super) fn file(unit: UnitRef<'_, Slice<'_>>, index: u64) -> Option<Vec<u8>> {
    let header = unit.line_program.as_ref()?.header();
    let file = header.file(index)?;
    let name = unit.attr_string(file.path_name()).ok()?;
    // Folder 0 is that of the compilation, which every relative path starts from.
    let folder = (file.directory_index() != 0).then(|| file.directory(header)).flatten();
    let folder = folder.and_then(|folder| unit.attr_string(folder).ok());
    paths::of_parts(folder.as_ref().map(gimli::EndianSlice::slice), name.slice())
}
