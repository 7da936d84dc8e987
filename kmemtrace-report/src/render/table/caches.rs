//! Table of `caches`.

use std::io::{self, Write};

use kmemtrace::documents::caches::CacheRow;
use kmemtrace::documents::ranked::Listing;
use kmemtrace::documents::sums::PrintedStats;

use super::options::TableOptions;
use super::{cells, figures, heading};
use crate::render::column::Column;
use crate::render::grid::Grid;
use crate::render::grid::cell::Cell;

/// Columns of `caches`.
pub(crate) const COLUMNS: [Column<'static>; 15] = {
    let mut columns = [NAME; 15];
    let mut index = 0;
    while index < figures::FIGURES.len() {
        columns[index] = figures::FIGURES[index];
        index += 1;
    }
    columns[12] = SLABINFO;
    columns[13] = SEEN;
    columns
};

const SLABINFO: Column<'static> =
    Column::figure("SLABINFO", 14, "Change of the objects in use over the recording, by the kernel's own statistics.");
const SEEN: Column<'static> = Column::figure(
    "SEEN",
    13,
    "Share of that change that the events explain; less where objects go paths without events.",
);
const NAME: Column<'static> =
    Column::site("CACHE", "Slab cache, or size class of kmalloc; (no name) where nothing tells it.");

/// Writes the table of `caches`.
pub(crate) fn caches<'a>(
    listing: &Listing<'a, CacheRow<'a>, PrintedStats>,
    options: &TableOptions,
    out: &mut dyn Write,
) -> io::Result<()> {
    if listing.rows.is_empty() && listing.others.is_none() {
        return heading::empty("no allocation", options, out);
    }
    let row = |row: CacheRow<'_>| {
        let name = cells::shown(&row.cache).unwrap_or("(no name)".to_owned());
        let change = row.slabinfo_change.map_or("-".to_owned(), cells::signed);
        let seen = row.visibility_percent.map_or("-".to_owned(), |percent| format!("{percent}%"));
        let mut cells = figures::sums(&row.stats, row.kind.name(), options);
        cells.extend([Cell::from(change), seen.into(), name.into()]);
        cells
    };
    let others = || {
        figures::other_rows(listing.others.as_ref(), options).map(|(mut cells, rows)| {
            cells.extend([Cell::from("-"), "-".into(), figures::others_text(rows).into()]);
            cells
        })
    };
    let grid = Grid { columns: &COLUMNS, ranked: options.ranked.and_then(figures::ranked), screen: &options.screen };
    let notes = grid.write(|| listing.rows.iter().map(row).chain(others()), out)?;
    heading::footer(notes, options, out)
}
