//! Table of `caches`.

use std::io::{self, Write};

use kmemtrace::documents::caches::CacheRow;
use kmemtrace::documents::ranked::Listing;
use kmemtrace::documents::sums::PrintedStats;

use super::options::TableOptions;
use super::{cells, figures, heading};
use crate::render::column::Column;
use crate::render::grid::Grid;

/// Columns of `caches`.
pub(crate) const COLUMNS: [Column<'static>; 13] =
    figures::columns(Column::site("CACHE", "Slab cache, or size class of kmalloc; (no name) where nothing tells it."));

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
        figures::cells(&row.stats, row.kind.name(), name.into(), options)
    };
    let others = || figures::other_cells(listing.others.as_ref(), options);
    let grid = Grid { columns: &COLUMNS, ranked: options.ranked.and_then(figures::ranked), screen: &options.screen };
    let notes = grid.write(|| listing.rows.iter().map(row).chain(others()), out)?;
    heading::footer(notes, options, out)
}
