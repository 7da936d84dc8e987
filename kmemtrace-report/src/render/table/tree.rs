//! Tables of `tree`: a node a line, indented below the one that it is in.

use std::io::{self, Write};

use kmemtrace::documents::tree::{NodeKind, TreeBody, TreeNode};
use kmemtrace::{Figure, SortKey};
use kmemtrace_abi::text::escape::escape;

use super::options::TableOptions;
use super::{cells, figures, heading};
use crate::columns::column::{Column, Shows};
use crate::columns::{KEY_TREE, TREE};
use crate::render::grid::Grid;
use crate::render::grid::cell::Cell;

/// Writes the table of `tree`.
pub(crate) fn tree(view: &TreeBody, options: &TableOptions, out: &mut dyn Write) -> io::Result<()> {
    let root = &view.root;
    if root.children.is_empty() && root.stats.is_empty() && root.static_bytes.is_none() {
        return heading::empty("no allocation", options, out);
    }
    let is_pages = view.shows == "pages";
    let columns = if view.keys.is_some() {
        figures::shown(&KEY_TREE, options.ranked, |column| match column.shows {
            Shows::Growth => options.ranked == Some(SortKey::Growth),
            Shows::Figure(Figure::LivePages) => is_pages,
            // Pages waste nothing.
            Shows::Figure(Figure::Wasted | Figure::LiveWasted) => !is_pages,
            _ => true,
        })
    } else {
        figures::shown(&TREE, options.ranked, |column| match column.shows {
            Shows::Static | Shows::Current => root.static_bytes.is_some(),
            Shows::Figure(Figure::PeakLiveAllocated) | Shows::Growth => false,
            _ => true,
        })
    };
    let mut nodes = Vec::new();
    flatten(root, 0, &mut nodes);
    let row = |&(node, depth): &(&TreeNode, usize)| {
        let name = name(node);
        let cell = |column: &Column<'_>| cell(column, node, root, options);
        let cells = columns.iter().map(|column| cell(column).unwrap_or(format!("{}{name}", "  ".repeat(depth)).into()));
        cells.collect::<Vec<Cell>>()
    };
    let grid = Grid { columns: &columns, ranked: None, screen: &options.screen };
    let notes = grid.write(|| nodes.iter().map(row), out)?;
    heading::footer(notes, options, out)
}

/// Cell of a figure of a node; `None` in the column of names.
fn cell(column: &Column<'_>, node: &TreeNode, root: &TreeNode, options: &TableOptions) -> Option<Cell> {
    Some(match column.shows {
        Shows::ShareOfAll(figure) => cells::percent(node.stats.get(figure), root.stats.get(figure).unwrap_or(0)).into(),
        Shows::Growth => figures::grew(node.grew, options),
        Shows::Static => cells::bytes(node.static_bytes, options).into(),
        Shows::Current => cells::bytes(node.current, options).into(),
        Shows::Own => return None,
        _ => figures::cell(column, &node.stats, "", options),
    })
}

fn flatten<'n>(node: &'n TreeNode, depth: usize, nodes: &mut Vec<(&'n TreeNode, usize)>) {
    nodes.push((node, depth));
    node.children.iter().for_each(|child| flatten(child, depth + 1, nodes));
}

/// Name of a node; in a tree over keys with the module of a frame or call site.
fn name(node: &TreeNode) -> String {
    let name = escape(&node.name);
    match (node.kind, node.module_beside()) {
        (NodeKind::Others, _) => figures::others_text(node.folded),
        (_, Some(module)) => format!("{name} {}", cells::in_brackets(&escape(module), node.is_gone)),
        _ => name.into_owned(),
    }
}
