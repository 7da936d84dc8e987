//! Table of `live --objects`: objects, oldest first.

use std::io::{self, Write};

use kmemtrace::documents::Head;
use kmemtrace::documents::live::{LiveRow, OtherObjects};
use kmemtrace::documents::ranked::Listing;

use super::options::TableOptions;
use super::{cells, heading};
use crate::columns::column::Column;
use crate::columns::{ADDRESS, OBJECTS};
use crate::render::grid::Grid;
use crate::render::grid::cell::Cell;

/// Writes the table of `live --objects`.
pub(crate) fn objects<'a>(
    head: &Head<'_>,
    listing: &Listing<'a, LiveRow<'a>, OtherObjects>,
    options: &TableOptions,
    out: &mut dyn Write,
) -> io::Result<()> {
    if listing.rows.is_empty() && listing.others.is_none() {
        return heading::empty("no object is live at the end", options, out);
    }
    let is_shown = |column: &Column<'_>| options.show_addresses || *column != ADDRESS;
    let columns: Vec<Column<'_>> = OBJECTS.into_iter().filter(is_shown).collect();
    let row = |row: LiveRow<'_>| {
        let cells: [Cell; OBJECTS.len()] = [
            row.cpu.map_or_else(|| "-".into(), |cpu| cells::count(u64::from(cpu)).into()),
            row.pid.map_or("-".to_owned(), |pid| pid.to_string()).into(),
            cells::text(&row.comm),
            row.kind.name().into(),
            cells::text(&row.cache),
            cells::bytes(row.requested, options).into(),
            cells::upper(row.live_is_upper_bound, cells::bytes(row.allocated, options)),
            row.address.to_string().into(),
            row.at.map_or("-".to_owned(), |at| cells::moment(&head.trace, at)).into(),
            cells::site(&row.site, row.kind),
            cells::source(&row.site.place),
        ];
        OBJECTS.iter().zip(cells).filter(|(column, _)| is_shown(column)).map(|(_, cell)| cell).collect()
    };
    let grid = Grid { columns: &columns, ranked: Some("SINCE"), screen: &options.screen };
    let notes = grid.write(|| listing.rows.iter().map(row), out)?;
    heading::more_rows(listing.others.as_ref().map_or(0, |others| others.others_count as u64), options, out)?;
    heading::footer(notes, options, out)
}
