//! Columns and cells of the sums that rows of call-sites and of caches have in common.

use kmemtrace::SortKey;
use kmemtrace::documents::ranked::Others;
use kmemtrace::documents::sums::{PrintedStats, ToldStats};
use kmemtrace_abi::event::Space;

use super::cells::{bytes, count, percent, upper};
use super::options::TableOptions;
use crate::render::grid::cell::Cell;

/// Column that a sort key ranks by.
pub(crate) fn ranked(by: SortKey) -> Option<&'static str> {
    Some(match by {
        SortKey::Wasted => "WASTED",
        SortKey::LiveWasted => "LIVE WASTE",
        SortKey::Live => "LIVE",
        SortKey::Peak => "PEAK",
        SortKey::Allocated => "TOTAL",
        SortKey::Requested => "REQUESTED",
        SortKey::Allocs => "ALLOCS",
        SortKey::Frees => "FREED",
        SortKey::Cross => "XCPU",
        SortKey::Static => "STATIC",
        SortKey::Current => "CURRENT",
        SortKey::Growth | SortKey::Oldest { .. } | SortKey::Site | SortKey::Key { .. } => return None,
    })
}

/// Cells of a row.
pub(crate) fn cells(stats: &PrintedStats, kind: &str, name: Cell, options: &TableOptions) -> Vec<Cell> {
    let mut cells = sums(stats, kind, options);
    cells.push(name);
    cells
}

/// Cells of the sums of a row.
pub(crate) fn sums(stats: &PrintedStats, kind: &str, options: &TableOptions) -> Vec<Cell> {
    let is_bound = stats.live_is_upper_bound;
    vec![
        kind.into(),
        count(stats.allocs).into(),
        count(stats.frees).into(),
        percent(stats.cross_cpu, stats.frees.unwrap_or(0)).into(),
        bytes(stats.requested, options).into(),
        bytes(stats.allocated, options).into(),
        upper(is_bound, bytes(stats.peak_live_allocated, options)),
        upper(is_bound, count(stats.live_objects)),
        upper(is_bound, bytes(stats.live_wasted, options)),
        upper(is_bound, bytes(stats.live_allocated, options)),
        percent(stats.wasted, stats.allocated).into(),
        bytes(stats.wasted, options).into(),
    ]
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
        let is_there = |stats: &&PrintedStats| stats.allocs > 0 || stats.failed_allocs.unwrap_or(0) > 0;
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
