//! Icicle: the root on top, a row for each level, widths by size.

use super::block::Block;
use super::cell::Cell;
use super::drawing::Outline;
use super::layers::layers;

/// Width below which cells of one parent become one.
const LEAST_WIDTH: f64 = 3.0;
/// Limit of rows below the root.
const MAX_ROWS: usize = 10;
/// Height of a row where there are few.
const MAX_HEIGHT: f64 = 150.0;

/// Cells from `left`, `top` on, in rows of equal height that fill `height` if there are enough.
pub(crate) fn icicle(root: &Block, [left, top, width, height]: [f64; 4]) -> Vec<Cell> {
    let cells = layers(root, (left, left + width), LEAST_WIDTH, MAX_ROWS);
    let rows = cells.iter().map(Cell::depth).max().unwrap_or(0) + 1;
    let row = (height / rows as f64).min(MAX_HEIGHT);
    let stacked = |cell: Cell<(f64, f64)>| {
        let (from, to) = cell.outline;
        let outline = Outline::Rect([from, top + row * cell.depth() as f64, to - from, row]);
        cell.with(outline)
    };
    cells.into_iter().map(stacked).collect()
}

#[cfg(test)]
mod tests {
    use super::super::testing::random_tree;
    use super::*;

    #[test]
    fn widths_are_sizes_within_half_a_pixel() {
        for seed in 0..40 {
            let root = random_tree(seed);
            let cells = icicle(&root, [20.0, 80.0, 1360.0, 900.0]);
            for cell in &cells {
                let Outline::Rect([left, top, width, height]) = cell.outline else { panic!("no rectangle") };
                let share = cell.size as f64 / root.size as f64;
                assert!((width - 1360.0 * share).abs() < 0.5, "seed {seed}, {:?}: {width}", cell.path);
                assert!((top - (80.0 + height * cell.depth() as f64)).abs() < 1e-9);
                assert!(left >= 20.0 && left + width < 1380.001 && top + height < 980.001, "{:?}", cell.outline);
            }
        }
    }
}
