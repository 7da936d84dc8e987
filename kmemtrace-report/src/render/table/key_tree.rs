//! Table of `tree` over keys: a node a line, indented below the one that it is in.

use std::io::{self, Write};

use kmemtrace::SortKey;
use kmemtrace::documents::tree::{NodeKind, TreeBody, TreeNode};
use kmemtrace_abi::text::escape::escape;

use super::options::TableOptions;
use super::tree as table;
use super::{cells, figures, heading};
use crate::columns::KEY_TREE;
use crate::columns::column::Column;
use crate::render::grid::cell::Cell;

/// Writes the table of a tree over keys.
pub(crate) fn tree(view: &TreeBody, options: &TableOptions, out: &mut dyn Write) -> io::Result<()> {
    let root = &view.root;
    if root.children.is_empty() && root.stats.allocs == 0 {
        return heading::empty("no allocation", options, out);
    }
    let is_pages = view.shows == "pages";
    let ranked = options.ranked.and_then(table::ranked);
    // Pages waste nothing.
    let is_shown = |column: &Column<'_>| match column.title {
        "GREW" => options.ranked == Some(SortKey::Growth),
        "PAGES" => is_pages,
        "WASTED" | "LIVE WASTE" => !is_pages,
        _ => true,
    };
    let columns = table::shown(&KEY_TREE, ranked, is_shown);
    table::grid(root, (&KEY_TREE, &columns), cells_of, options, out)
}

/// Cells of a node, in the order of [`KEY_TREE`].
fn cells_of(node: &TreeNode, depth: usize, root: &TreeNode, options: &TableOptions) -> Vec<Cell> {
    let stats = &node.stats;
    let is_bound = stats.live_is_upper_bound;
    vec![
        cells::upper(is_bound, cells::bytes(stats.live_allocated, options)),
        cells::percent(stats.live_allocated, root.stats.live_allocated).into(),
        cells::upper(is_bound, cells::bytes(stats.peak_live_allocated, options)),
        cells::bytes(stats.allocated, options).into(),
        table::grew(node, options),
        cells::upper(is_bound, cells::count(stats.live_pages)),
        cells::upper(is_bound, cells::count(stats.live_objects)),
        cells::upper(is_bound, cells::bytes(stats.live_wasted, options)),
        cells::bytes(stats.wasted, options).into(),
        cells::count(stats.allocs).into(),
        cells::count(stats.frees).into(),
        format!("{}{}", "  ".repeat(depth), name(node)).into(),
    ]
}

/// Name of a node, with the module of a frame or call-site.
fn name(node: &TreeNode) -> String {
    let name = escape(&node.name);
    match (node.kind, node.module_beside()) {
        (NodeKind::Others, _) => figures::others_text(node.folded),
        (_, Some(module)) => format!("{name} {}", cells::in_brackets(&escape(module), node.is_gone)),
        _ => name.into_owned(),
    }
}
