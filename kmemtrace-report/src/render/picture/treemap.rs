//! Treemap: rectangles within rectangles, areas by size, as square as they can be (Bruls, Huizing and van Wijk, 2000).

use super::block::Block;
use super::cell::{Cell, Share, cells, shares, spans};
use super::drawing::Outline;

/// Area below which cells of one parent become one, in square pixels.
const LEAST_AREA: f64 = 60.0;
/// Area from which a cell is divided.
const DIVIDED_AREA: f64 = 1600.0;
/// Limit of levels.
const MAX_LEVELS: usize = 12;

/// Left, top, width, height.
type Rect = [f64; 4];

/// Cells of a rectangle, the root first.
pub(crate) fn treemap(root: &Block, rect: Rect) -> Vec<Cell> {
    // Size of a square pixel.
    let pixel = root.size as f64 / (rect[2] * rect[3]).max(f64::MIN_POSITIVE);
    let is_divided = |depth: usize, rect: Rect| depth < MAX_LEVELS && rect[2] * rect[3] >= DIVIDED_AREA;
    let cells = cells(
        root,
        rect,
        |block, depth, rect| if is_divided(depth, rect) { shares(block, pixel * LEAST_AREA) } else { Vec::new() },
        squarified,
    );
    let outlined = |cell: Cell<Rect>| {
        let outline = Outline::Rect(cell.outline);
        cell.with(outline)
    };
    cells.into_iter().map(outlined).collect()
}

/// Rectangles of shares that fill `rect`.
fn squarified<'s, 'b>(shares: &'s [Share<'b>], rect: Rect) -> Vec<(&'s Share<'b>, Rect)> {
    let whole: f64 = shares.iter().map(|share| share.size as f64).sum();
    let scale = rect[2] * rect[3] / whole.max(f64::MIN_POSITIVE);
    let area = |share: &Share<'_>| share.size as f64 * scale;
    let (mut placed, mut left, mut from) = (Vec::with_capacity(shares.len()), rect, 0);
    while from < shares.len() {
        let side = left[2].min(left[3]);
        let (mut until, mut sum) = (from + 1, area(&shares[from]));
        // A row takes the next share as long as its worst ratio of sides gets no worse.
        while let Some(next) = shares.get(until) {
            let (largest, least) = (area(&shares[from]), area(&shares[until - 1]));
            let with_next = area(next);
            if worst((largest, least.min(with_next)), sum + with_next, side) > worst((largest, least), sum, side) {
                break;
            }
            sum += with_next;
            until += 1;
        }
        left = row(&shares[from..until], sum, left, &mut placed);
        from = until;
    }
    placed
}

/// Greatest ratio of sides in a row of areas between `largest` and `least` along a side.
fn worst((largest, least): (f64, f64), sum: f64, side: f64) -> f64 {
    let (square, sums) = (side * side, sum * sum);
    (square * largest / sums).max(sums / (square * least.max(f64::MIN_POSITIVE)))
}

/// Places a row along the shorter side; returns what is left.
fn row<'s, 'b>(shares: &'s [Share<'b>], area: f64, left: Rect, placed: &mut Vec<(&'s Share<'b>, Rect)>) -> Rect {
    let [x, y, width, height] = left;
    let is_column = width >= height;
    let side = if is_column { height } else { width };
    let thickness = if side > 0.0 { (area / side).min(if is_column { width } else { height }) } else { 0.0 };
    for (share, (begin, end)) in spans(shares, (0.0, side)) {
        let length = end - begin;
        let rect = if is_column { [x, y + begin, thickness, length] } else { [x + begin, y, length, thickness] };
        placed.push((share, rect));
    }
    if is_column {
        [x + thickness, y, (width - thickness).max(0.0), height]
    } else {
        [x, y + thickness, width, (height - thickness).max(0.0)]
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{block, random_tree};
    use super::*;

    fn rect(cell: &Cell) -> Rect {
        match cell.outline {
            Outline::Rect(rect) => rect,
            Outline::Wedge(_) => panic!("no rectangle"),
        }
    }

    #[test]
    fn areas_are_sizes_and_cells_do_not_overlap() {
        for seed in 0..40 {
            let root = random_tree(seed);
            let whole = [20.0, 80.0, 1360.0, 900.0];
            let cells = treemap(&root, whole);
            for cell in &cells {
                let [_, _, width, height] = rect(cell);
                let area = whole[2] * whole[3] * (cell.size as f64 / root.size as f64);
                // An edge that is half a pixel off changes the area by half of the other side.
                assert!(
                    (width * height - area).abs() <= 0.5 * width.min(height) + 1e-6,
                    "seed {seed}, {:?}",
                    cell.path
                );
            }
            let leaves: Vec<Rect> = cells.iter().filter(|cell| !cell.has_children).map(rect).collect();
            let sum: f64 = leaves.iter().map(|[_, _, width, height]| width * height).sum();
            assert!((sum - whole[2] * whole[3]).abs() < 1.0, "seed {seed}: {sum}");
            for (index, a) in leaves.iter().enumerate() {
                assert!(a[0] > 19.999 && a[1] > 79.999 && a[0] + a[2] < 1380.001 && a[1] + a[3] < 980.001, "{a:?}");
                for b in &leaves[index + 1..] {
                    let overlap = |at: usize| (a[at] + a[at + 2]).min(b[at] + b[at + 2]) - a[at].max(b[at]);
                    assert!(overlap(0) < 1e-6 || overlap(1) < 1e-6, "seed {seed}: {a:?} {b:?}");
                }
            }
        }
    }

    #[test]
    fn cells_are_about_square() {
        let children = [6u64, 6, 4, 3, 2, 2, 1].map(|n| block(&n.to_string(), n, vec![])).to_vec();
        let cells = treemap(&block("", 24, children), [0.0, 0.0, 600.0, 400.0]);
        // The example of the paper.
        let ratios: Vec<f64> = cells[1..].iter().map(rect).map(|[_, _, w, h]| (w / h).max(h / w)).collect();
        assert!(ratios.iter().all(|ratio| *ratio < 2.8), "{ratios:?}");
    }
}
