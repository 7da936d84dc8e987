//! Table of `live`: memory that is live at the end, by the keys of the query.

use std::io::{self, Write};

use kmemtrace::documents::Head;
use kmemtrace::documents::live_groups::LiveGroupRow;
use kmemtrace::documents::ranked::Listing;
use kmemtrace::documents::sums::ToldStats;
use kmemtrace_abi::event::BySpace;

use super::options::TableOptions;
use super::{cells, figures, groups, heading};
use crate::columns::LIVE;
use crate::columns::column::Column;
use crate::render::grid::Grid;
use crate::render::grid::cell::Cell;

/// Writes the table of `live`.
pub(crate) fn live<'a>(
    head: &Head<'_>,
    listing: &Listing<'a, LiveGroupRow<'a>, ToldStats>,
    options: &TableOptions,
    out: &mut dyn Write,
) -> io::Result<()> {
    if listing.rows.is_empty() && listing.others.is_none() {
        return heading::empty("no object is live at the end", options, out);
    }
    let keys = groups::columns(&head.query);
    let columns: Vec<Column<'_>> = LIVE.into_iter().chain(keys.iter().copied()).collect();
    let others = listing.others.as_ref();
    let mut whole: BySpace<u64> = BySpace::default();
    let rest = others.iter().flat_map(|others| others.sums.told()).map(|(space, sum)| (space, sum.live_allocated));
    for (space, live) in rest.chain(listing.rows.iter().map(|row| (row.kind.space(), row.live_allocated))) {
        whole[space] = whole[space].saturating_add(live.unwrap_or(0));
    }
    let age = |at: Option<u64>| at.map_or("-".to_owned(), |at| cells::age(&head.trace, at));
    let row = |row: LiveGroupRow<'_>| {
        let is_bound = row.live_is_upper_bound;
        let all = whole[row.kind.space()];
        let figures: [Cell; LIVE.len()] = [
            row.kind.name().into(),
            age(row.oldest).into(),
            age(row.median).into(),
            cells::upper(is_bound, cells::bytes(row.live_wasted, options)),
            row.grew.map_or("-".to_owned(), |grew| cells::change(grew, options)).into(),
            cells::upper(is_bound, cells::count(row.live_objects)),
            cells::percent(row.live_allocated, all).into(),
            cells::reclaimed(row.reclaimable, cells::upper(is_bound, cells::bytes(row.live_allocated, options))),
            cells::bar(row.live_allocated.unwrap_or(0), all, &options.screen),
        ];
        let names = groups::cells_through(&row.names, row.kind, &row.text, options);
        figures.into_iter().chain(names).collect::<Vec<Cell>>()
    };
    let rest = others.into_iter().flat_map(|others| {
        let sums =
            others.sums.told().filter(|(_, sum)| sum.live_objects.unwrap_or(0) > 0 || sum.live_pages.unwrap_or(0) > 0);
        sums.map(|(space, sum)| {
            let figures: [Cell; LIVE.len()] = [
                super::figures::kind_of_sum(space).into(),
                "-".into(),
                "-".into(),
                cells::upper(sum.live_is_upper_bound, cells::bytes(sum.live_wasted, options)),
                "-".into(),
                cells::upper(sum.live_is_upper_bound, cells::count(sum.live_objects)),
                cells::percent(sum.live_allocated, whole[space]).into(),
                cells::upper(sum.live_is_upper_bound, cells::bytes(sum.live_allocated, options)),
                Cell::default(),
            ];
            figures.into_iter().chain(groups::other_cells(&keys, others.others_count)).collect::<Vec<Cell>>()
        })
    });
    let rest: Vec<Vec<Cell>> = rest.collect();
    let grid = Grid { columns: &columns, ranked: figures::ranked(&LIVE, options.ranked), screen: &options.screen };
    let notes = grid.write(|| listing.rows.iter().map(row).chain(rest.iter().cloned()), out)?;
    heading::footer(notes, options, out)
}
