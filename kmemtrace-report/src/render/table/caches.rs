//! Table of `caches`: figures of the events, beside what the kernel's own statistics tell of each cache.

use std::io::{self, Write};

use kmemtrace::documents::caches::{CacheRow, CachesBody, IdleCache, slab_change};
use kmemtrace::documents::slab_members::SlabMembers;
use kmemtrace_abi::text::escape::escape;

use super::options::TableOptions;
use super::{cells, figures, heading};
use crate::columns::column::Column;
use crate::columns::{CACHE_SLABS, CACHES, FIGURES, IDLE_CACHES};
use crate::render::grid::Grid;
use crate::render::grid::cell::Cell;

/// Rows of caches without an event where the number of rows is limited.
const FEW: usize = 10;
/// Other names of a cache that a row shows.
const NAMES: usize = 3;

/// Writes the table of `caches`.
pub(crate) fn caches(view: &CachesBody<'_>, options: &TableOptions, out: &mut dyn Write) -> io::Result<()> {
    let listing = &view.listing;
    let has_slabs = listing.rows.iter().any(|row| row.slab_before.is_some() || row.slab_after.is_some());
    if has_slabs || view.without_events.is_some() {
        const ACTIVE: &str = "SLAB and SLABINFO, the change of active objects, are the kernel's own figures, of /proc/slabinfo. Under \
                              SLUB, active objects are an upper bound: free objects in slabs that a CPU holds count as active.";
        heading::text(ACTIVE, options, out)?;
        writeln!(out)?;
    }
    if listing.rows.is_empty() && listing.others.is_none() {
        heading::empty("no allocation", options, out)?;
        return idle(view, options, out);
    }
    // Without the kernel's figures their columns say nothing.
    let shown: Vec<usize> =
        (0..CACHES.len()).filter(|&index| has_slabs || !CACHE_SLABS.contains(&CACHES[index])).collect();
    let columns: Vec<Column<'static>> = shown.iter().map(|&index| CACHES[index]).collect();
    let of_shown = |cells: Vec<Cell>| -> Vec<Cell> {
        let mut cells: Vec<Option<Cell>> = cells.into_iter().map(Some).collect();
        shown.iter().map(|&index| cells.get_mut(index).and_then(Option::take).unwrap_or_default()).collect()
    };
    let row = |row: CacheRow<'_>| {
        let change = row.slabinfo_change.map_or("-".to_owned(), cells::signed);
        let seen = row.visibility_percent.map_or("-".to_owned(), |percent| format!("{percent}%"));
        let mut cells = figures::sums(&row.stats, row.kind.name(), options);
        cells.extend(slab_cells(row.slab_before.as_ref(), row.slab_after.as_ref(), options));
        cells.extend([Cell::from(change), seen.into(), other_names(row.aliases)]);
        cells.push(cells::cache(&row.cache, row.cache_candidates.as_ref()));
        of_shown(cells)
    };
    let others = || {
        figures::other_rows(listing.others.as_ref(), options).map(|(mut cells, rows)| {
            cells.resize(FIGURES.len() + CACHE_SLABS.len() + 2, "-".into());
            cells.extend([Cell::default(), figures::others_text(rows).into()]);
            of_shown(cells)
        })
    };
    let grid = Grid { columns: &columns, ranked: figures::ranked(&columns, options.ranked), screen: &options.screen };
    let notes = grid.write(|| listing.rows.iter().map(row).chain(others()), out)?;
    heading::footer(notes, options, out)?;
    idle(view, options, out)
}

/// Cells of the kernel's figures: bytes, their change, and objects in use.
fn slab_cells(before: Option<&SlabMembers>, after: Option<&SlabMembers>, options: &TableOptions) -> [Cell; 3] {
    let change = slab_change(before, after, |slab| slab.bytes);
    [
        cells::bytes(after.and_then(|slab| slab.bytes), options).into(),
        change.map_or("-".to_owned(), |change| cells::change(change, options)).into(),
        cells::count(after.and_then(|slab| slab.active_objs)).into(),
    ]
}

/// Other names of a merged cache, the first few of many.
fn other_names(names: Option<&[Box<[u8]>]>) -> Cell {
    let names = names.unwrap_or_default();
    let mut shown: Vec<String> = names.iter().take(NAMES).map(|name| escape(name).into_owned()).collect();
    if names.len() > NAMES {
        shown.push(format!("{} more", names.len() - NAMES));
    }
    shown.join(", ").into()
}

/// Writes the caches without an event.
fn idle(view: &CachesBody<'_>, options: &TableOptions, out: &mut dyn Write) -> io::Result<()> {
    let Some(caches) = view.without_events.as_ref().filter(|caches| !caches.is_empty()) else { return Ok(()) };
    writeln!(out)?;
    heading::title("Caches without an event in the recording", options, out)?;
    let row = |cache: &IdleCache<'_>| -> Vec<Cell> {
        let (before, after) = (cache.slab_before.as_ref(), cache.slab_after.as_ref());
        let change = slab_change(before, after, |slab| slab.active_objs);
        let mut cells = slab_cells(before, after, options).to_vec();
        cells.push(change.map_or("-".to_owned(), cells::signed).into());
        cells.extend([other_names(cache.aliases), cells::cache(&cache.cache, None)]);
        cells
    };
    // The first table has the room of a small screen.
    let few = |top: usize| if options.screen.height.is_some() { (top / 3).clamp(1, FEW) } else { top.min(FEW) };
    let rows = options.top.map_or(caches.len(), few).min(caches.len());
    let grid = Grid { columns: &IDLE_CACHES, ranked: None, screen: &options.screen };
    grid.write(|| caches[..rows].iter().map(row), out)?;
    heading::more_rows((caches.len() - rows) as u64, options, out)
}

/// Writes all other names of the caches of a filter.
pub(crate) fn merged(view: &CachesBody<'_>, options: &TableOptions, out: &mut dyn Write) -> io::Result<()> {
    for row in view.listing.rows.iter() {
        let names = row.aliases.filter(|names| !names.is_empty());
        if let (Some(cache), Some(names)) = (cells::shown(&row.cache), names) {
            let names: Vec<String> = names.iter().map(|name| escape(name).into_owned()).collect();
            let line = format!("{cache} is one cache with: {}.", names.join(", "));
            writeln!(out)?;
            heading::text(&line, options, out)?;
        }
    }
    Ok(())
}
