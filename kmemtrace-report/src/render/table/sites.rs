//! Table of `sites`.

use std::io::{self, Write};

use kmemtrace::documents::ranked::Listing;
use kmemtrace::documents::sites::SiteRow;
use kmemtrace::documents::sums::ToldStats;

use super::options::TableOptions;
use super::{cells, figures, heading};
use crate::columns::{FIGURES, SITES};
use crate::render::grid::Grid;
use crate::render::grid::cell::Cell;

/// Writes the table of `sites`.
pub(crate) fn sites<'a>(
    listing: &Listing<'a, SiteRow<'a>, ToldStats>,
    options: &TableOptions,
    out: &mut dyn Write,
) -> io::Result<()> {
    if listing.rows.is_empty() && listing.others.is_none() {
        return heading::empty("no allocation", options, out);
    }
    let row = |row: SiteRow<'_>| {
        let mut cells = figures::sums(&row.stats, row.kind.name(), options);
        cells.extend([cells::site_through(&row.site, row.kind, &row.text), cells::source(&row.site.place)]);
        let frames = if options.shows_inlines { cells::frames(&row.site.place) } else { Vec::new() };
        std::iter::once(cells).chain(frames.into_iter().map(frame))
    };
    let others = || figures::other_cells(listing.others.as_ref(), options);
    let grid = Grid { columns: &SITES, ranked: figures::ranked(&SITES, options.ranked), screen: &options.screen };
    let notes = grid.write(|| listing.rows.iter().flat_map(row).chain(others()), out)?;
    heading::footer(notes, options, out)
}

/// Row of a frame: its text stands below the call-site.
fn frame(text: String) -> Vec<Cell> {
    let mut cells = vec![Cell::default(); FIGURES.len()];
    cells.push(text.into());
    cells
}
