//! Layers: each level of a tree as parts of one length, which rings bend and an icicle stacks.

use super::block::Block;
use super::cell::{Cell, cells, shares, spans};

/// Share of the length below which a level is left out.
const LEAST_COVERED: f64 = 0.04;

/// Begin and end of a cell.
pub(crate) type Span = (f64, f64);

/// Cells of a tree, parents before their children, `levels` below the root at most. Those of one parent that are shorter than
/// `least` become one.
pub(crate) fn layers(root: &Block, span: Span, least: f64, levels: usize) -> Vec<Cell<Span>> {
    let length = (span.1 - span.0).max(f64::MIN_POSITIVE);
    // Size of a cell that is long enough.
    let least = root.size as f64 * least / length;
    let mut cells =
        cells(root, span, |block, depth, _| if depth < levels { shares(block, least) } else { Vec::new() }, spans);
    // A level of a few splinters would take the room of all others.
    let is_covered = |depth: usize| {
        let level = cells.iter().filter(|cell| cell.depth() == depth);
        level.map(|cell| cell.outline.1 - cell.outline.0).sum::<f64>() >= length * LEAST_COVERED
    };
    let shown = (1..=levels).take_while(|depth| is_covered(*depth)).count().max(1);
    cells.retain(|cell| cell.depth() <= shown);
    cells.iter_mut().filter(|cell| cell.depth() == shown).for_each(|cell| cell.has_children = false);
    cells
}
