//! Columns and cells of the sums that rows of call-sites and of caches have in common.

use kmemtrace::documents::ranked::Others;
use kmemtrace::documents::sums::{PrintedStats, ToldStats};
use kmemtrace::{Figure, FigureUnit, SortKey};
use kmemtrace_abi::event::Space;

use super::cells::{bytes, change, count, percent, upper};
use super::options::TableOptions;
use crate::columns::FIGURES;
use crate::columns::column::{Column, Shows};
use crate::render::grid::cell::Cell;

/// Heading of the column that a sort key ranks by: that of the figure, else that of its share.
pub(crate) fn ranked(columns: &[Column<'static>], by: Option<SortKey>) -> Option<&'static str> {
    let by = by?;
    let is_share = |column: &&Column<'_>| matches!(column.shows, Shows::Share(part, _) if by == SortKey::Figure(part));
    let of_figure = columns.iter().find(|column| column.shows.is_sorted_by(by));
    of_figure.or_else(|| columns.iter().find(is_share)).map(|column| column.title)
}

/// Cell of a figure.
pub(crate) fn figure(stats: &PrintedStats, figure: Figure, options: &TableOptions) -> Cell {
    let (value, entry) = (stats.get(figure), figure.entry());
    let text = match entry.unit {
        FigureUnit::Count => count(value),
        FigureUnit::Bytes => bytes(value, options),
    };
    upper(entry.is_bound && stats.live_is_upper_bound, text)
}

/// Cell of a row in a column of figures; empty in other columns.
pub(crate) fn cell(column: &Column<'_>, stats: &PrintedStats, kind: &str, options: &TableOptions) -> Cell {
    match column.shows {
        Shows::Figure(shown) => figure(stats, shown, options),
        Shows::Share(part, whole) => percent(stats.get(part), stats.get(whole).unwrap_or(0)).into(),
        Shows::Kind => kind.into(),
        _ => Cell::default(),
    }
}

/// Cells of a row, in the order of [`FIGURES`].
pub(crate) fn sums(stats: &PrintedStats, kind: &str, options: &TableOptions) -> Vec<Cell> {
    FIGURES.iter().map(|column| cell(column, stats, kind, options)).collect()
}

/// Cell of the growth of live bytes.
pub(crate) fn grew(grew: Option<i64>, options: &TableOptions) -> Cell {
    grew.map_or("-".to_owned(), |grew| change(grew, options)).into()
}

/// Columns that are shown; that of the sort key comes first, whatever else is shown.
pub(crate) fn shown(
    all: &[Column<'static>],
    by: Option<SortKey>,
    is_shown: impl Fn(&Column<'_>) -> bool,
) -> Vec<Column<'static>> {
    let is_first = |column: &&Column<'_>| by.is_some_and(|by| column.shows.is_sorted_by(by));
    let others = all.iter().filter(|column| !is_first(column) && is_shown(column));
    all.iter().filter(is_first).chain(others).copied().collect()
}

/// Name of the row that sums up `rows` rows left out.
pub(crate) fn others_text(rows: usize) -> String {
    format!("({} other{})", count(rows as u64), if rows == 1 { "" } else { "s" })
}

/// Kind of a row that sums up rows of a space.
pub(crate) fn kind_of_sum(space: Space) -> &'static str {
    if space == Space::Slab { "-" } else { space.name() }
}

/// Sums of the rows left out, each with their number: of slab, and of each other space that has any.
pub(crate) fn other_rows(
    others: Option<&Others<ToldStats>>,
    options: &TableOptions,
) -> impl Iterator<Item = (Vec<Cell>, usize)> {
    let rows = others.into_iter().flat_map(|others| {
        let is_there = |stats: &&PrintedStats| !stats.is_empty();
        let has_any = others.sums.told().any(|(_, stats)| is_there(&stats));
        let shown = others.sums.told().filter(move |(space, stats)| match has_any {
            true => is_there(stats),
            false => *space == Space::Slab,
        });
        shown.map(|(space, stats)| (sums(stats, kind_of_sum(space), options), others.others_count))
    });
    rows.collect::<Vec<_>>().into_iter()
}

/// Cells of the rows that sum up those left out.
pub(crate) fn other_cells(
    others: Option<&Others<ToldStats>>,
    options: &TableOptions,
) -> impl Iterator<Item = Vec<Cell>> {
    other_rows(others, options).map(|(mut cells, rows)| {
        cells.push(others_text(rows).into());
        cells
    })
}
