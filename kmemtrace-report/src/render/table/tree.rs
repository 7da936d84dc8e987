//! Table of `tree`: a node a line, indented below the one that it is in.

use std::io::{self, Write};

use kmemtrace::SortKey;
use kmemtrace::documents::tree::{NodeKind, TreeBody, TreeNode};
use kmemtrace_abi::text::escape::escape;

use super::options::TableOptions;
use super::{cells, figures, heading};
use crate::columns::TREE;
use crate::columns::column::Column;
use crate::render::grid::Grid;
use crate::render::grid::cell::Cell;

/// Writes the table of `tree`.
pub(crate) fn tree(view: &TreeBody, options: &TableOptions, out: &mut dyn Write) -> io::Result<()> {
    let root = &view.root;
    if root.children.is_empty() && root.stats.allocs == 0 && root.static_bytes.is_none() {
        return heading::empty("no allocation", options, out);
    }
    let ranked = options.ranked.and_then(self::ranked);
    // The column of the sort key is shown in any case.
    let is_shown = |column: &Column<'_>| match column.title {
        "STATIC" | "CURRENT" => root.static_bytes.is_some(),
        "PEAK" | "GREW" => false,
        _ => true,
    };
    let columns = shown(&TREE, ranked, is_shown);
    grid(root, (&TREE, &columns), cells_of, options, out)
}

/// Column that a sort key ranks by.
pub(super) fn ranked(by: SortKey) -> Option<&'static str> {
    if by == SortKey::Growth { Some("GREW") } else { figures::ranked(by) }
}

/// The columns that are shown; that of the sort key comes first.
pub(super) fn shown<'c>(
    all: &[Column<'c>],
    ranked: Option<&str>,
    is_shown: impl Fn(&Column<'_>) -> bool,
) -> Vec<Column<'c>> {
    let first = all.iter().filter(|column| Some(column.title) == ranked);
    let others = all.iter().filter(|column| Some(column.title) != ranked && is_shown(column));
    first.chain(others).copied().collect()
}

/// Writes a line for each node; `cells_of` has its cells in the order of all columns.
pub(super) fn grid(
    root: &TreeNode,
    (all, columns): (&[Column<'_>], &[Column<'_>]),
    cells_of: impl Fn(&TreeNode, usize, &TreeNode, &TableOptions) -> Vec<Cell>,
    options: &TableOptions,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut nodes = Vec::new();
    flatten(root, 0, &mut nodes);
    let row = |&(node, depth): &(&TreeNode, usize)| {
        let cells = cells_of(node, depth, root, options);
        let cell = |column: &Column<'_>| {
            let at = all.iter().position(|known| known.title == column.title);
            at.and_then(|at| cells.get(at)).cloned().unwrap_or_default()
        };
        columns.iter().map(cell).collect::<Vec<Cell>>()
    };
    let grid = Grid { columns, ranked: None, screen: &options.screen };
    let notes = grid.write(|| nodes.iter().map(row), out)?;
    heading::footer(notes, options, out)
}

fn flatten<'n>(node: &'n TreeNode, depth: usize, nodes: &mut Vec<(&'n TreeNode, usize)>) {
    nodes.push((node, depth));
    node.children.iter().for_each(|child| flatten(child, depth + 1, nodes));
}

/// Cell of a node's growth.
pub(super) fn grew(node: &TreeNode, options: &TableOptions) -> Cell {
    node.grew.map_or("-".to_owned(), |grew| cells::change(grew, options)).into()
}

/// Cells of a node, in the order of [`TREE`].
fn cells_of(node: &TreeNode, depth: usize, root: &TreeNode, options: &TableOptions) -> Vec<Cell> {
    let stats = &node.stats;
    let is_bound = stats.live_is_upper_bound;
    let name = match node.kind {
        NodeKind::Others => figures::others_text(node.folded),
        _ => escape(&node.name).into_owned(),
    };
    vec![
        cells::upper(is_bound, cells::bytes(stats.live_allocated, options)),
        cells::percent(stats.live_allocated, root.stats.live_allocated).into(),
        cells::upper(is_bound, cells::bytes(stats.peak_live_allocated, options)),
        grew(node, options),
        cells::upper(is_bound, cells::bytes(stats.live_wasted, options)),
        cells::bytes(stats.wasted, options).into(),
        cells::bytes(stats.allocated, options).into(),
        cells::count(stats.allocs).into(),
        cells::count(stats.frees).into(),
        cells::bytes(node.static_bytes, options).into(),
        cells::bytes(node.current, options).into(),
        format!("{}{name}", "  ".repeat(depth)).into(),
    ]
}
