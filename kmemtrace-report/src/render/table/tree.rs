//! Table of `tree`: a node a line, indented below the one that it is in.

use std::io::{self, Write};

use kmemtrace::SortKey;
use kmemtrace::documents::tree::{NodeKind, TreeBody, TreeNode};
use kmemtrace_abi::text::escape::escape;

use super::options::TableOptions;
use super::{cells, figures, heading};
use crate::columns::column::{Column, Holds};
use crate::columns::{KEY_TREE, TREE};
use crate::render::grid::Grid;
use crate::render::grid::cell::Cell;

/// Writes the table of a tree over folders, or over keys.
pub(crate) fn tree(view: &TreeBody, options: &TableOptions, out: &mut dyn Write) -> io::Result<()> {
    let root = &view.root;
    if root.children.is_empty() && root.stats.allocs == 0 && root.static_bytes.is_none() {
        return heading::empty("no allocation", options, out);
    }
    let of_keys = view.keys.is_some();
    let is_pages = view.shows == "pages";
    let is_shown = |column: &Column<'_>| match column.title {
        "STATIC" | "CURRENT" => root.static_bytes.is_some(),
        "GREW" => false,
        "PEAK" => of_keys,
        "PAGES" => is_pages,
        // Pages waste nothing.
        "WASTED" | "LIVE WASTE" => !(of_keys && is_pages),
        _ => true,
    };
    let ranked = options.ranked.and_then(|by| match by {
        SortKey::Growth => Some("GREW"),
        by => figures::ranked(by),
    });
    // The column of the sort key comes first, and is shown in any case.
    let all: &[Column<'_>] = if of_keys { &KEY_TREE } else { &TREE };
    let (first, others): (Vec<_>, Vec<_>) = all.iter().copied().partition(|column| Some(column.title) == ranked);
    let columns: Vec<Column<'_>> = first.into_iter().chain(others.into_iter().filter(is_shown)).collect();
    let mut nodes = Vec::new();
    flatten(root, 0, &mut nodes);
    let row = |&(node, depth): &(&TreeNode, usize)| -> Vec<Cell> {
        columns.iter().map(|column| cell(column, (node, depth), root, options)).collect()
    };
    let grid = Grid { columns: &columns, ranked: None, screen: &options.screen };
    let notes = grid.write(|| nodes.iter().map(row), out)?;
    heading::footer(notes, options, out)
}

fn flatten<'n>(node: &'n TreeNode, depth: usize, nodes: &mut Vec<(&'n TreeNode, usize)>) {
    nodes.push((node, depth));
    node.children.iter().for_each(|child| flatten(child, depth + 1, nodes));
}

/// Cell of a node.
fn cell(column: &Column<'_>, (node, depth): (&TreeNode, usize), root: &TreeNode, options: &TableOptions) -> Cell {
    let stats = &node.stats;
    let bounded = |figure: String| cells::upper(stats.live_is_upper_bound, figure);
    match column.title {
        _ if column.holds == Holds::Site => format!("{}{}", "  ".repeat(depth), name(node)).into(),
        "LIVE" => bounded(cells::bytes(stats.live_allocated, options)),
        "LIVE%" => cells::percent(stats.live_allocated, root.stats.live_allocated).into(),
        "PEAK" => bounded(cells::bytes(stats.peak_live_allocated, options)),
        "TOTAL" => cells::bytes(stats.allocated, options).into(),
        "GREW" => node.grew.map_or("-".to_owned(), |grew| cells::change(grew, options)).into(),
        "PAGES" => bounded(cells::count(stats.live_pages)),
        "OBJECTS" => bounded(cells::count(stats.live_objects)),
        "LIVE WASTE" => bounded(cells::bytes(stats.live_wasted, options)),
        "WASTED" => cells::bytes(stats.wasted, options).into(),
        "ALLOCS" => cells::count(stats.allocs).into(),
        "FREED" => cells::count(stats.frees).into(),
        "STATIC" => cells::bytes(node.static_bytes, options).into(),
        "CURRENT" => cells::bytes(node.current, options).into(),
        _ => Cell::default(),
    }
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
