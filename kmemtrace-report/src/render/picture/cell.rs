//! Cells: nodes with their place in a picture, before they are painted.

use super::block::Block;
use super::drawing::Outline;

/// Node with its outline.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Cell<O = Outline> {
    /// Names from below the root to this node.
    pub(crate) path: Vec<String>,
    /// Size.
    pub(crate) size: u64,
    /// Rank of the branch that it belongs to; `None` where there is one alone.
    pub(crate) branch: Option<usize>,
    /// True for a node without a place of its own.
    pub(crate) is_vague: bool,
    /// True where cells of its children are drawn.
    pub(crate) has_children: bool,
    /// Outline.
    pub(crate) outline: O,
}

impl<O> Cell<O> {
    /// Level: 0 for the root.
    pub(crate) fn depth(&self) -> usize {
        self.path.len()
    }

    /// The same cell with another outline.
    pub(crate) fn with<P>(self, outline: P) -> Cell<P> {
        let Cell { path, size, branch, is_vague, has_children, .. } = self;
        Cell { path, size, branch, is_vague, has_children, outline }
    }
}

/// Cells of a tree, parents before their children. `divide` makes shares of a node that is drawn at a level within an outline, or
/// none; `place` gives each share its outline.
pub(crate) fn cells<O: Copy>(
    root: &Block,
    outline: O,
    divide: impl for<'b> Fn(&'b Block, usize, O) -> Vec<Share<'b>>,
    place: impl for<'s, 'b> Fn(&'s [Share<'b>], O) -> Vec<(&'s Share<'b>, O)>,
) -> Vec<Cell<O>> {
    let mut growing = Growing { divide, place, cells: Vec::new() };
    growing.add(root, Vec::new(), None, outline);
    growing.cells
}

struct Growing<O, D, P> {
    divide: D,
    place: P,
    cells: Vec<Cell<O>>,
}

impl<O: Copy, D, P> Growing<O, D, P>
where
    D: for<'b> Fn(&'b Block, usize, O) -> Vec<Share<'b>>,
    P: for<'s, 'b> Fn(&'s [Share<'b>], O) -> Vec<(&'s Share<'b>, O)>,
{
    fn add(&mut self, block: &Block, path: Vec<String>, branch: Option<usize>, outline: O) {
        let shares = (self.divide)(block, path.len(), outline);
        // One grey cell for all children says less than their parent alone.
        let has_children = shares.iter().any(|share| share.child.is_some());
        let Block { size, is_vague, .. } = *block;
        self.cells.push(Cell { path: path.clone(), size, branch, is_vague, has_children, outline });
        if !has_children {
            return;
        }
        for (rank, (share, outline)) in (self.place)(&shares, outline).into_iter().enumerate() {
            let path = [&path[..], std::slice::from_ref(&share.name)].concat();
            // Branches begin where there are several.
            let branch = branch.or((shares.len() > 1).then_some(rank));
            match share.child {
                Some(child) => self.add(child, path, branch, outline),
                None => {
                    let (size, has_children) = (share.size, false);
                    self.cells.push(Cell { path, size, branch, is_vague: true, has_children, outline });
                }
            }
        }
    }
}

/// Part of a node: a child, or several small ones together.
#[derive(Clone, Debug)]
pub(crate) struct Share<'b> {
    /// Name.
    pub(crate) name: String,
    /// Size.
    pub(crate) size: u64,
    /// The child; `None` for several.
    pub(crate) child: Option<&'b Block>,
}

/// Shares of a node's children, the greatest first; together they are the node. Children of less than `least` become one, the last.
pub(crate) fn shares(block: &Block, least: f64) -> Vec<Share<'_>> {
    let is_small = |child: &&Block| (child.size as f64) < least;
    let (small, large): (Vec<&Block>, Vec<&Block>) = block.children.iter().partition(is_small);
    let shown = large.iter().fold(0u64, |sum, child| sum.saturating_add(child.size));
    let mut shares: Vec<Share<'_>> =
        large.iter().map(|child| Share { name: child.name.clone(), size: child.size, child: Some(child) }).collect();
    let rest = block.size.saturating_sub(shown);
    if rest > 0 && !block.children.is_empty() {
        let name = if small.is_empty() { "other".to_owned() } else { format!("other ({})", small.len()) };
        shares.push(Share { name, size: rest, child: None });
    }
    shares
}

/// Sizes as parts of `whole`, which they share out without gaps: begin and end of each.
pub(crate) fn spans<'s, 'b>(shares: &'s [Share<'b>], (from, to): (f64, f64)) -> Vec<(&'s Share<'b>, (f64, f64))> {
    let whole: u128 = shares.iter().map(|share| u128::from(share.size)).sum();
    let mut before = 0u128;
    let placed = shares.iter().map(|share| {
        let place = |sum: u128| from + (to - from) * (sum as f64 / whole.max(1) as f64);
        let begin = place(before);
        before += u128::from(share.size);
        (share, (begin, place(before)))
    });
    placed.collect()
}
