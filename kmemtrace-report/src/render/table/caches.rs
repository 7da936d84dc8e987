//! Table of `caches`.

use std::io::{self, Write};

use kmemtrace::documents::caches::CacheRow;
use kmemtrace::documents::ranked::Listing;
use kmemtrace::documents::sums::ToldStats;

use super::options::TableOptions;
use super::{cells, figures, heading};
use crate::columns::CACHES;
use crate::render::grid::Grid;
use crate::render::grid::cell::Cell;

/// Writes the table of `caches`.
pub(crate) fn caches<'a>(
    listing: &Listing<'a, CacheRow<'a>, ToldStats>,
    options: &TableOptions,
    out: &mut dyn Write,
) -> io::Result<()> {
    if listing.rows.is_empty() && listing.others.is_none() {
        return heading::empty("no allocation", options, out);
    }
    let row = |row: CacheRow<'_>| {
        let name = cells::cache(&row.cache, row.cache_candidates.as_ref());
        let change = row.slabinfo_change.map_or("-".to_owned(), cells::signed);
        let seen = row.visibility_percent.map_or("-".to_owned(), |percent| format!("{percent}%"));
        let mut cells = figures::sums(&row.stats, row.kind.name(), options);
        cells.extend([Cell::from(change), seen.into(), name]);
        cells
    };
    let others = || {
        figures::other_rows(listing.others.as_ref(), options).map(|(mut cells, rows)| {
            cells.extend([Cell::from("-"), "-".into(), figures::others_text(rows).into()]);
            cells
        })
    };
    let grid = Grid { columns: &CACHES, ranked: figures::ranked(&CACHES, options.ranked), screen: &options.screen };
    let notes = grid.write(|| listing.rows.iter().map(row).chain(others()), out)?;
    heading::footer(notes, options, out)
}
