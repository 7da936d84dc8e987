//! Table of `live --objects`: objects, oldest first.

use std::io::{self, Write};

use kmemtrace::documents::Head;
use kmemtrace::documents::live::{LiveRow, OtherObjects};
use kmemtrace::documents::ranked::Listing;

use super::options::TableOptions;
use super::{cells, heading};
use crate::render::column::Column;
use crate::render::grid::Grid;
use crate::render::grid::cell::Cell;

/// Columns of `live --objects`.
pub(crate) const COLUMNS: [Column<'static>; 10] = [
    Column::figure("CPU", 6, "CPU of the allocation."),
    Column::figure("PID", 5, "Thread of the allocation."),
    Column::name("COMM", 3, "Command name of the thread: its last known one."),
    Column::word("KIND", 7, "Allocator: kmalloc, cache (kmem_cache_alloc) or pages."),
    Column::name("CACHE", 4, "Cache named by the allocation event."),
    Column::figure("REQUESTED", 8, "Bytes asked for."),
    Column::figure("ALLOCATED", 2, "Bytes handed out."),
    ADDRESS,
    Column::figure("SINCE", 0, "Time of the allocation, from the first event of the trace."),
    Column::site("CALL SITE", "Return address of the allocating call: function, offset in it, and module in brackets."),
];

const ADDRESS: Column<'static> =
    Column::word("ADDRESS", 1, "Address of the object, a frame number for pages; only with --show-addresses.");

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
    let columns: Vec<Column<'_>> = COLUMNS.into_iter().filter(is_shown).collect();
    let row = |row: LiveRow<'_>| {
        let cells: [Cell; COLUMNS.len()] = [
            cells::count(u64::from(row.cpu)).into(),
            row.pid.map_or("-".to_owned(), |pid| pid.to_string()).into(),
            cells::text(&row.comm),
            row.kind.name().into(),
            cells::text(&row.cache),
            cells::bytes(row.requested, options).into(),
            cells::upper(row.live_is_upper_bound, cells::bytes(row.allocated, options)),
            row.address.to_string().into(),
            cells::moment(&head.trace, row.at).into(),
            cells::site(&row.site, row.kind),
        ];
        COLUMNS.iter().zip(cells).filter(|(column, _)| is_shown(column)).map(|(_, cell)| cell).collect()
    };
    let grid = Grid { columns: &columns, ranked: Some("SINCE"), screen: &options.screen };
    let notes = grid.write(|| listing.rows.iter().map(row), out)?;
    heading::more_rows(listing.others.as_ref().map_or(0, |others| others.others_count as u64), options, out)?;
    heading::footer(notes, options, out)
}
