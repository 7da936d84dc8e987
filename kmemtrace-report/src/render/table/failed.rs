//! Table of `failed`: refused requests, and the free blocks at both ends of the recording.

use std::io::{self, Write};

use kmemtrace::documents::Head;
use kmemtrace::documents::failed::{Buddyinfo, FailedBody, FailedRow, ZoneBlocks};
use kmemtrace_abi::text::escape::escape;

use super::options::TableOptions;
use super::{cells, figures, heading};
use crate::columns::{FAILED, FREE_BLOCKS};
use crate::render::grid::Grid;
use crate::render::grid::cell::Cell;

/// Writes the tables of `failed`.
pub(crate) fn failed(
    head: &Head<'_>,
    view: &FailedBody<'_>,
    options: &TableOptions,
    out: &mut dyn Write,
) -> io::Result<()> {
    let listing = &view.listing;
    if listing.rows.is_empty() && listing.others.is_none() {
        return heading::empty("no allocation failed", options, out);
    }
    let without = view.total.failed_allocs.saturating_sub(view.total.with_fallback);
    let apart = match view.total.with_fallback {
        0 => String::new(),
        count => format!("; {} more with a fallback (__GFP_NOWARN or __GFP_NORETRY)", cells::count(count)),
    };
    heading::text(&format!("{} failed{apart}.", cells::counted(without, "allocation")), options, out)?;
    writeln!(out)?;
    let others = || {
        listing.others.iter().map(|others| {
            let mut cells = vec![Cell::from(cells::count(others.sums.slab.failed_allocs))];
            cells.resize(FAILED.len() - 2, Cell::default());
            cells.extend([figures::others_text(others.others_count).into(), Cell::default()]);
            cells
        })
    };
    let row = |row: FailedRow<'_>| cells_of(head, &row, options);
    let grid = Grid { columns: &FAILED, ranked: None, screen: &options.screen };
    let notes = grid.write(|| listing.rows.iter().map(row).chain(others()), out)?;
    heading::footer(notes, options, out)?;
    match &view.buddyinfo {
        Some(blocks) => free_blocks(blocks, options, out),
        None => Ok(()),
    }
}

fn cells_of(head: &Head<'_>, row: &FailedRow<'_>, options: &TableOptions) -> Vec<Cell> {
    let flags = row.gfp.map_or("-".to_owned(), |gfp| format!("{gfp:#x}"));
    vec![
        cells::count(row.failed_allocs).into(),
        row.fallback.map_or("-", |fallback| if fallback { "yes" } else { "no" }).into(),
        row.kind.name().into(),
        row.order.map_or("-".to_owned(), |order| order.to_string()).into(),
        cells::bytes(row.requested, options).into(),
        cells::moment(&head.trace, row.first).into(),
        cells::moment(&head.trace, row.last).into(),
        row.pid.map_or("-".to_owned(), |pid| pid.to_string()).into(),
        cells::text(&row.comm),
        cells::site(&row.site, row.kind),
        cells::shown(&row.gfp_names).unwrap_or(flags).into(),
    ]
}

/// Writes the free blocks of each zone, before and after.
fn free_blocks(blocks: &Buddyinfo, options: &TableOptions, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out)?;
    heading::title("Free blocks by order, from order 0 on", options, out)?;
    // An order is a column of its own.
    let mut widths: Vec<usize> = Vec::new();
    for zone in blocks.before.iter().chain(&blocks.after) {
        widths.resize(widths.len().max(zone.free.len()), 0);
        widths.iter_mut().zip(&zone.free).for_each(|(width, free)| *width = free.to_string().len().max(*width));
    }
    let row = |(end, zone): (&'static str, &ZoneBlocks)| -> Vec<Cell> {
        let free: Vec<String> = zone.free.iter().zip(&widths).map(|(free, width)| format!("{free:>width$}")).collect();
        let name = escape(zone.zone.as_deref().unwrap_or_default()).into_owned();
        vec![zone.node.to_string().into(), name.into(), end.into(), free.join(" ").into()]
    };
    let of_zone = |before: &ZoneBlocks| {
        blocks.after.iter().find(|after| (after.node, &after.zone) == (before.node, &before.zone)).cloned()
    };
    let rows = || {
        blocks.before.iter().flat_map(|before| {
            let after = of_zone(before).map(|after| row(("end", &after)));
            std::iter::once(row(("start", before))).chain(after)
        })
    };
    let grid = Grid { columns: &FREE_BLOCKS, ranked: None, screen: &options.screen };
    grid.write(rows, out).map(|_| ())
}
