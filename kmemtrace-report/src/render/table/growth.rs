//! Table of `growth`: live memory and allocations in slices of the recording.

use kmemtrace::{Kind, Space};
use std::io::{self, Write};

use kmemtrace::documents::Head;
use kmemtrace::documents::growth::{GrowthBody, GrowthRow, SliceFigures};

use super::options::TableOptions;
use super::{cells, groups, heading};
use crate::columns::GROWTH;
use crate::columns::column::Column;
use crate::render::grid::Grid;
use crate::render::grid::cell::Cell;
use crate::terminal::screen::Screen;

/// Characters of a line of blocks.
const BLOCKS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Characters of the same without UTF-8.
const PLAIN: [char; 9] = [' ', '.', '.', ':', ':', '-', '=', '+', '#'];
/// Columns of a line of blocks.
const WIDTH: usize = 32;
/// Columns of a line of blocks on a screen of fewer than [`NARROW`].
const NARROW_WIDTH: usize = 16;
/// Columns of a screen with room for the longer lines.
const NARROW: usize = 100;

/// Live bytes as a line of blocks.
fn blocks(live: &[u64], screen: &Screen) -> String {
    let greatest = live.iter().copied().max().unwrap_or(0);
    let is_narrow = screen.width.is_some_and(|width| width < NARROW);
    let places = live.len().min(if is_narrow { NARROW_WIDTH } else { WIDTH });
    let characters = if screen.is_unicode { BLOCKS } else { PLAIN };
    let at = |place: usize| {
        // The greatest value of the slices that share a place.
        let (from, to) = (place * live.len() / places, (place + 1) * live.len() / places);
        let value = live[from..to].iter().copied().max().unwrap_or(0);
        let eighths = (u128::from(value) * 8).div_ceil(u128::from(greatest.max(1)));
        characters[eighths as usize]
    };
    (0..places).map(at).collect()
}

/// Cells of the figures of a row.
fn figures(figures: &SliceFigures, kind: &str, seconds: Option<f64>, options: &TableOptions) -> Vec<Cell> {
    let allocs = figures.allocs.as_ref().map(|allocs| allocs.iter().fold(0u64, |sum, n| sum.saturating_add(*n)));
    let is_bytes = figures.live_allocated.is_some();
    // Bytes of per-CPU memory may not be known, and then nothing is.
    let is_told = is_bytes || figures.live_objects.0.is_some();
    let at = |live: Option<&u64>| match live.copied().unwrap_or(0) {
        _ if !is_told => "-".to_owned(),
        bytes if is_bytes => cells::bytes(bytes, options),
        objects => cells::count(objects),
    };
    let grown = i64::try_from(figures.grown()).unwrap_or(i64::MAX);
    vec![
        kind.into(),
        cells::count(allocs).into(),
        allocs.map_or("-".to_owned(), |allocs| cells::rate(allocs, seconds)).into(),
        at(figures.live().first()).into(),
        cells::upper(figures.bound.0, at(figures.live().last())),
        blocks(figures.live(), &options.screen).into(),
        match (is_told, is_bytes) {
            (false, _) => "-".to_owned(),
            (true, true) => cells::change(grown, options),
            (true, false) => cells::signed(grown),
        }
        .into(),
    ]
}

/// Writes the table of `growth`.
pub(crate) fn growth(
    head: &Head<'_>,
    view: &GrowthBody<'_>,
    options: &TableOptions,
    out: &mut dyn Write,
) -> io::Result<()> {
    let listing = &view.listing;
    if listing.rows.is_empty() && listing.others.is_none() {
        return heading::empty("no allocation", options, out);
    }
    let keys = groups::columns(&head.query);
    let columns: Vec<Column<'_>> = GROWTH.into_iter().chain(keys.iter().copied()).collect();
    let seconds = cells::seconds(&head.trace);
    let row = |row: GrowthRow<'_>| {
        let mut of_row = figures(&row.slices, row.kind.map_or("-", Kind::name), seconds, options);
        let grew = of_row.pop().unwrap_or_default();
        of_row.push(cells::reclaimed(row.reclaimable, grew));
        let names = match row.part.0 {
            Some(part) => vec![part.into()],
            None => groups::cells(&row.names, row.kind.unwrap_or(Kind::Kmalloc), options),
        };
        of_row.into_iter().chain(names).collect::<Vec<Cell>>()
    };
    let summed = |figures_of: &SliceFigures, kind: &str, name: Vec<Cell>| {
        figures(figures_of, kind, seconds, options).into_iter().chain(name).collect::<Vec<Cell>>()
    };
    let name = |text: &str| groups::text_cells(&keys, text);
    let has_any = |figures: &SliceFigures| {
        let counts = figures.allocs.iter().flatten().chain(figures.live());
        counts.into_iter().any(|&n| n > 0)
    };
    let totals = view.totals.iter().filter(|(_, figures)| has_any(figures));
    let of_total = |space: Space| if space == Space::Slab { "total" } else { space.name() };
    let sums: Vec<Vec<Cell>> = totals.map(|(space, figures)| summed(figures, of_total(space), name("(all)"))).collect();
    let mut rest = Vec::new();
    if let Some(others) = &listing.others {
        let text = super::figures::others_text(others.others_count);
        let shown = others.sums.iter().filter(|(_, figures)| has_any(figures));
        rest.extend(shown.map(|(space, f)| summed(f, super::figures::kind_of_sum(space), name(&text))));
    }
    let grid = Grid { columns: &columns, ranked: Some("GREW"), screen: &options.screen };
    let rows = || sums.iter().cloned().chain(listing.rows.iter().map(row)).chain(rest.iter().cloned());
    let notes = grid.write(rows, out)?;
    let slices = match view.slices_from {
        Some(from) => format!("\n{} texts; times: {from}.", view.slices.len()),
        None => format!("\n{} slices of {}.", view.slices.len(), cells::slice_width(&head.trace, &view.slices)),
    };
    heading::text(&slices, options, out)?;
    heading::footer(notes, options, out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_blocks_shows_the_course() {
        let screen = Screen::coloured(120);
        assert_eq!(blocks(&[0, 1, 4, 8], &screen), " ▁▄█");
        assert_eq!(blocks(&[0; 64], &screen), " ".repeat(32));
        assert_eq!(blocks(&[], &screen), "");
        assert_eq!(blocks(&[1; 64], &Screen::coloured(80)), "█".repeat(16));
        let peak: Vec<u64> = (0..64).map(|n| u64::from(n == 63) * u64::MAX).collect();
        assert_eq!(blocks(&peak, &screen), format!("{}█", " ".repeat(31)));
        let ascii = Screen { is_unicode: false, ..Screen::plain(None) };
        assert_eq!(blocks(&[0, 1, 4, 8], &ascii), " .:#");
    }
}
