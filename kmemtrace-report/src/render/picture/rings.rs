//! Rings: the root in the centre, a ring for each level, angles by size.

use super::block::Block;
use super::cell::Cell;
use super::drawing::{Outline, Wedge};
use super::layers::layers;

/// Angle below which wedges of one parent become one.
const LEAST_ANGLE: f64 = 1.0;
/// Limit of rings.
const MAX_RINGS: usize = 7;
/// Radius of the centre, as a share of the whole.
const CENTER: f64 = 0.17;

/// Cells of a disc, the root first.
pub(crate) fn rings(root: &Block, center: [f64; 2], radius: f64) -> Vec<Cell> {
    let cells = layers(root, (0.0, 360.0), LEAST_ANGLE, MAX_RINGS);
    let rings = cells.iter().map(Cell::depth).max().unwrap_or(0).max(1);
    let width = radius * (1.0 - CENTER) / rings as f64;
    let bent = |cell: Cell<(f64, f64)>| {
        let outer = radius * CENTER + width * cell.depth() as f64;
        let inner = if cell.depth() == 0 { 0.0 } else { outer - width };
        let (from, to) = cell.outline;
        cell.with(Outline::Wedge(Wedge { center, inner, outer, from, to }))
    };
    cells.into_iter().map(bent).collect()
}

#[cfg(test)]
mod tests {
    use super::super::testing::{block, random_tree};
    use super::*;

    fn wedge(cell: &Cell) -> Wedge {
        match cell.outline {
            Outline::Wedge(wedge) => wedge,
            Outline::Rect(_) => panic!("no wedge"),
        }
    }

    #[test]
    fn angles_are_sizes_within_half_a_pixel() {
        for seed in 0..40 {
            let root = random_tree(seed);
            let radius = 560.0;
            let cells = rings(&root, [600.0; 2], radius);
            for cell in &cells {
                let (wedge, share) = (wedge(cell), cell.size as f64 / root.size as f64);
                let pixels = (wedge.angle() - 360.0 * share).abs().to_radians() * wedge.outer;
                assert!(pixels < 0.5, "seed {seed}, {:?}: {pixels}", cell.path);
                assert!(wedge.outer <= radius + 1e-9 && wedge.inner < wedge.outer, "{wedge:?}");
            }
            // Children lie side by side over their parent, and fill it.
            for parent in cells.iter().filter(|cell| cell.has_children) {
                let is_child = |cell: &&Cell| cell.depth() == parent.depth() + 1 && cell.path.starts_with(&parent.path);
                let mut at = wedge(parent).from;
                for child in cells.iter().filter(is_child) {
                    assert!(
                        (wedge(child).from - at).abs() < 1e-9
                            && (wedge(child).inner - wedge(parent).outer).abs() < 1e-9
                    );
                    at = wedge(child).to;
                }
                assert!((at - wedge(parent).to).abs() < 1e-9, "seed {seed}: {:?}", parent.path);
            }
        }
    }

    #[test]
    fn wedges_below_a_degree_become_one() {
        let mut children: Vec<Block> = (0..100).map(|n| block(&format!("small{n}"), 9, vec![])).collect();
        children.push(block("large", 9000, vec![]));
        children.push(block("degree", 28, vec![]));
        let root = block("linux", 9000 + 28 + 900, children);
        let cells = rings(&root, [0.0; 2], 500.0);
        let names: Vec<_> = cells.iter().map(|cell| (cell.path.concat(), cell.size, cell.is_vague)).collect();
        let expected = [("", 9928, false), ("large", 9000, false), ("degree", 28, false), ("other (100)", 900, true)];
        assert_eq!(names, expected.map(|(name, size, is_vague)| (name.to_owned(), size, is_vague)));
        assert!(wedge(&cells[2]).angle() > 1.0);
    }

    #[test]
    fn a_tree_of_nothing_is_a_disc() {
        let cells = rings(&block("linux", 0, vec![]), [0.0; 2], 500.0);
        assert_eq!((cells.len(), wedge(&cells[0]).is_round()), (1, true));
    }
}
