//! Layers: each level of a tree as parts of one length, which rings bend and an icicle stacks.

use super::block::Block;
use super::cell::{Cell, shares, spans};

/// Share of the length below which a level is left out.
const LEAST_COVERED: f64 = 0.04;

/// Begin and end of a cell.
pub(crate) type Span = (f64, f64);

/// Cells of a tree, parents before their children, `levels` below the root at most. Those of one parent that are shorter than
/// `least` become one.
pub(crate) fn layers(root: &Block, span: Span, least: f64, levels: usize) -> Vec<Cell<Span>> {
    let length = (span.1 - span.0).max(f64::MIN_POSITIVE);
    let mut layers = Layers { least: root.size as f64 * least / length, levels, cells: Vec::new() };
    layers.add(root, Vec::new(), None, span);
    let mut cells = layers.cells;
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

struct Layers {
    /// Size of a cell that is long enough.
    least: f64,
    levels: usize,
    cells: Vec<Cell<Span>>,
}

impl Layers {
    fn add(&mut self, block: &Block, path: Vec<String>, branch: Option<usize>, span: Span) {
        let depth = path.len();
        let shares = if depth < self.levels { shares(block, self.least) } else { Vec::new() };
        // One grey cell for all children says less than their parent alone.
        let has_children = shares.iter().any(|share| share.child.is_some());
        let Block { size, is_vague, .. } = *block;
        self.cells.push(Cell { path: path.clone(), size, branch, is_vague, has_children, outline: span });
        if !has_children {
            return;
        }
        for (rank, (share, span)) in spans(&shares, span).enumerate() {
            let path = [&path[..], std::slice::from_ref(&share.name)].concat();
            // Branches begin where there are several.
            let branch = branch.or((shares.len() > 1).then_some(rank));
            match share.child {
                Some(child) => self.add(child, path, branch, span),
                None => {
                    let has_children = false;
                    self.cells.push(Cell {
                        path,
                        size: share.size,
                        branch,
                        is_vague: true,
                        has_children,
                        outline: span,
                    });
                }
            }
        }
    }
}
