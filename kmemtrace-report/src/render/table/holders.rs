//! Tables of `tasks`, `modules` and `uses`.

use std::io::{self, Write};

use kmemtrace::Figure;
use kmemtrace::Space;
use kmemtrace::documents::Head;
use kmemtrace::documents::holders::{HolderRow, HoldersBody};
use kmemtrace::documents::sums::PrintedStats;

use super::options::TableOptions;
use super::{cells, figures, groups, heading};
use crate::columns::column::{Column, Shows};
use crate::columns::{HELD, MODULES};
use crate::render::grid::Grid;
use crate::render::grid::cell::Cell;

/// Writes the table of a view of holders.
pub(crate) fn holders(
    head: &Head<'_>,
    view: &HoldersBody<'_>,
    options: &TableOptions,
    out: &mut dyn Write,
) -> io::Result<()> {
    if let Some(note) = note(head, view) {
        heading::text(note, options, out)?;
        writeln!(out)?;
    }
    let listing = &view.listing;
    if listing.rows.is_empty() && listing.others.is_none() {
        return heading::empty("no allocation", options, out);
    }
    let shown = figures::shown(&HELD, options.ranked, |column| match column.shows {
        Shows::Growth | Shows::Figure(Figure::Allocs | Figure::Frees) => false,
        Shows::Figure(Figure::LivePages) => view.shows.contains(Space::Pages.name()),
        Shows::Kind => Space::ALL.into_iter().all(|space| space == Space::Slab || view.shows != space.name()),
        _ => true,
    });
    let keys = if view.module_rule.is_some() { MODULES.to_vec() } else { groups::columns(&head.query) };
    let columns: Vec<Column<'static>> = shown.iter().chain(&keys).copied().collect();
    let figures = |stats: &PrintedStats, kind: &str, grew: Option<i64>| {
        let cell = |column: &Column<'_>| match column.shows {
            Shows::Growth => figures::grew(grew, options),
            _ => figures::cell(column, stats, kind, options),
        };
        shown.iter().map(cell).collect::<Vec<Cell>>().into_iter()
    };
    let row = |row: HolderRow<'_>| {
        let figures = figures(&row.stats, row.kind.name(), row.grew);
        figures.chain(groups::cells(&row.names, row.kind, options)).collect::<Vec<Cell>>()
    };
    let others = listing.others.iter().flat_map(|others| {
        let sums_of = others.sums.told().filter(|(_, sum)| !sum.is_empty());
        let row = |(space, sum)| {
            let figures = figures(sum, figures::kind_of_sum(space), None);
            figures.chain(groups::other_cells(&keys, others.others_count)).collect::<Vec<Cell>>()
        };
        sums_of.map(row).collect::<Vec<_>>()
    });
    let others: Vec<Vec<Cell>> = others.collect();
    let grid = Grid { columns: &columns, ranked: None, screen: &options.screen };
    let notes = grid.write(|| listing.rows.iter().map(row).chain(others.iter().cloned()), out)?;
    heading::footer(notes, options, out)?;
    let Some(explained) = view.explained else { return Ok(()) };
    writeln!(out)?;
    if !view.shows.contains(Space::Pages.name()) {
        const NO_PAGES: &str = "No allocation of pages is here, and objects of slabs have no use: record pages with kmemtraced -e page --stack.";
        return heading::text(NO_PAGES, options, out);
    }
    let live = cells::bytes(explained.live_bytes, options);
    let change = explained.memfree_change.map(|change| cells::change(change, options));
    let change = change.map_or("is not known".to_owned(), |change| format!("changed by {change}"));
    heading::text(&format!("Live pages of the trace: {live}; free memory of the machine {change}."), options, out)
}

/// Line over the table.
fn note(head: &Head<'_>, view: &HoldersBody<'_>) -> Option<&'static str> {
    if view.module_rule == Some("any") {
        return Some("Rows overlap: an allocation counts in each module of its stack.");
    }
    let is_of_tasks = head.query.by.iter().any(|by| ["task", "comm"].contains(by));
    is_of_tasks.then_some("By the thread that allocated, which need not be the one that holds the memory.")
}
