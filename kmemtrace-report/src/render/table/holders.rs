//! Tables of `tasks`, `modules` and `uses`.

use std::io::{self, Write};

use kmemtrace::documents::Head;
use kmemtrace::documents::holders::{HolderRow, HoldersBody};
use kmemtrace::documents::sums::PrintedStats;
use kmemtrace::{SortKey, Space};

use super::options::TableOptions;
use super::{cells, figures, groups, heading};
use crate::columns::column::Column;
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
    let is_shown = |column: &Column<'_>| match column.title {
        "GREW" => options.ranked == Some(SortKey::Growth),
        "ALLOCS" => options.ranked == Some(SortKey::Allocs),
        "FREED" => options.ranked == Some(SortKey::Frees),
        "PAGES" => view.shows.contains(Space::Pages.name()),
        "KIND" => Space::ALL.into_iter().all(|space| space == Space::Slab || view.shows != space.name()),
        _ => true,
    };
    let ranked =
        options.ranked.and_then(|key| if key == SortKey::Growth { Some("GREW") } else { figures::ranked(key) });
    // The sort key comes first.
    let mut shown: Vec<usize> = (0..HELD.len()).filter(|&at| is_shown(&HELD[at])).collect();
    shown.sort_by_key(|&at| Some(HELD[at].title) != ranked);
    let keys = if view.module_rule.is_some() { MODULES.to_vec() } else { groups::columns(&head.query) };
    let columns: Vec<Column<'_>> = shown.iter().map(|&at| HELD[at]).chain(keys.iter().copied()).collect();
    let take = |cells: Vec<Cell>| shown.iter().map(|&at| cells[at].clone()).collect::<Vec<Cell>>().into_iter();
    let row = |row: HolderRow<'_>| {
        let grew = row.grew.map_or("-".to_owned(), |grew| cells::change(grew, options));
        let figures = take(sums(&row.stats, row.kind.name(), grew, options));
        figures.chain(groups::cells(&row.names, row.kind, options)).collect::<Vec<Cell>>()
    };
    let others = listing.others.iter().flat_map(|others| {
        let sums_of = others.sums.told().filter(|(_, sum)| sum.allocs > 0);
        let row = |(space, sum)| {
            let figures = take(sums(sum, figures::kind_of_sum(space), "-".to_owned(), options));
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

/// Cells of a row, in the order of [`HELD`].
fn sums(stats: &PrintedStats, kind: &str, grew: String, options: &TableOptions) -> Vec<Cell> {
    let is_bound = stats.live_is_upper_bound;
    vec![
        cells::upper(is_bound, cells::bytes(stats.live_allocated, options)),
        cells::upper(is_bound, cells::bytes(stats.peak_live_allocated, options)),
        cells::bytes(stats.allocated, options).into(),
        grew.into(),
        cells::upper(is_bound, cells::count(stats.live_pages)),
        cells::upper(is_bound, cells::count(stats.live_objects)),
        cells::count(stats.allocs).into(),
        cells::count(stats.frees).into(),
        kind.into(),
    ]
}
