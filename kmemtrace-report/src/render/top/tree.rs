//! Tree of stacks: nodes are added up from the rows that the filter takes, and shown below those that are open.

use std::collections::{BTreeMap, HashSet};
use std::ops::Deref;
use std::sync::Arc;

use kmemtrace::Kind;
use kmemtrace::live::{LiveKey, LiveName, LiveRow, Snapshot};

/// Row of the table: one of the snapshot, or a node that several rows add up to.
#[derive(Clone, Debug)]
pub(crate) struct Shown<'a> {
    row: Row<'a>,
    /// Place in the tree; none in a list.
    pub(crate) place: Option<Place>,
}

#[derive(Clone, Debug)]
enum Row<'a> {
    Listed(&'a LiveRow),
    Sum(Box<LiveRow>),
}

/// Place of a node in the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) depth: u16,
    pub(crate) fold: Fold,
    /// Key of the one row below the node, where there are no more.
    pub(crate) only: Option<LiveKey>,
}

/// State of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fold {
    Open,
    Closed,
    /// Nothing is below.
    Leaf,
}

impl<'a> Shown<'a> {
    /// Row of a list.
    pub(crate) fn listed(row: &'a LiveRow) -> Shown<'a> {
        Shown { row: Row::Listed(row), place: None }
    }
}

impl Deref for Shown<'_> {
    type Target = LiveRow;

    fn deref(&self) -> &LiveRow {
        match &self.row {
            Row::Listed(row) => row,
            Row::Sum(row) => row,
        }
    }
}

/// Node while it is added up.
struct Node<'a> {
    /// Rows below, and those of the node itself.
    rows: Vec<&'a LiveRow>,
    below: BTreeMap<u32, Node<'a>>,
}

impl<'a> Node<'a> {
    fn new() -> Node<'a> {
        Node { rows: Vec::new(), below: BTreeMap::new() }
    }
}

/// Rows of the tree of stacks, with all nodes below those of `open`; `sort` puts the nodes below one in order.
pub(crate) fn rows<'a>(
    snapshot: &'a Snapshot,
    taken: &[&'a LiveRow],
    open: &HashSet<u32>,
    sort: &dyn Fn(&mut Vec<Shown<'a>>),
) -> Vec<Shown<'a>> {
    let mut root = Node::new();
    for row in taken {
        let mut node = &mut root;
        for number in &*row.path {
            node = node.below.entry(*number).or_insert_with(Node::new);
            node.rows.push(row);
        }
    }
    let mut shown = Vec::new();
    list(snapshot, root, 0, open, sort, &mut shown);
    shown
}

/// Lists the nodes below one, and below these. Stacks have a limit of frames, so that this ends soon.
fn list<'a>(
    snapshot: &'a Snapshot,
    node: Node<'a>,
    depth: u16,
    open: &HashSet<u32>,
    sort: &dyn Fn(&mut Vec<Shown<'a>>),
    shown: &mut Vec<Shown<'a>>,
) {
    let mut below = node.below;
    let mut level: Vec<Shown<'a>> = below
        .iter()
        .map(|(&number, node)| {
            let fold = match (node.below.is_empty(), open.contains(&number)) {
                (true, _) => Fold::Leaf,
                (false, true) => Fold::Open,
                (false, false) => Fold::Closed,
            };
            let only = if let [row] = &node.rows[..] { Some(row.key) } else { None };
            let row = Row::Sum(Box::new(sum(snapshot, number, usize::from(depth), &node.rows)));
            Shown { row, place: Some(Place { depth, fold, only }) }
        })
        .collect();
    sort(&mut level);
    for row in level {
        let LiveKey::Node(number) = row.key else { continue };
        let is_open = row.place.is_some_and(|place| place.fold == Fold::Open);
        shown.push(row);
        if let Some(node) = below.remove(&number).filter(|_| is_open) {
            list(snapshot, node, depth + 1, open, sort, shown);
        }
    }
}

/// Figures of a node: sums over its rows, but for its peak.
fn sum(snapshot: &Snapshot, number: u32, depth: usize, rows: &[&LiveRow]) -> LiveRow {
    let add = |of: fn(&LiveRow) -> u64| rows.iter().map(|row| of(row)).fold(0, u64::saturating_add);
    let change = |of: fn(&LiveRow) -> i64| rows.iter().map(|row| of(row)).fold(0, i64::saturating_add);
    let live = add(|row| row.live);
    let kind = rows.first().map_or(Kind::Kmalloc, |row| row.kind);
    let name = rows.first().map_or_else(|| Arc::new(LiveName::Stack(Vec::new())), |row| frame(row, depth));
    let of_parts = rows.iter().map(|row| row.peak).max().unwrap_or(0);
    // A filter may leave out parts of what the peak was counted of.
    let counted = snapshot.node_peaks.get(number as usize).copied().unwrap_or(0);
    let is_one = rows.len() == 1;
    LiveRow {
        key: LiveKey::Node(number),
        kind,
        name,
        cache: None,
        live,
        peak: if is_one { of_parts } else { of_parts.max(live).max(counted) },
        growth: change(|row| row.growth),
        since_mark: rows.iter().any(|row| row.since_mark.is_some()).then(|| change(|row| row.since_mark.unwrap_or(0))),
        growth_now: change(|row| row.growth_now),
        objects: add(|row| row.objects),
        pages: (kind == Kind::Pages).then(|| add(|row| row.pages.unwrap_or(0))),
        wasted: add(|row| row.wasted),
        allocs: add(|row| row.allocs),
        allocs_now: add(|row| row.allocs_now),
        frees_now: add(|row| row.frees_now),
        frees: add(|row| row.frees),
        cross_cpu: add(|row| row.cross_cpu),
        median_age: if is_one { rows.first().and_then(|row| row.median_age) } else { None },
        path: Arc::default(),
    }
}

/// Name of the frame at a depth of a row's stack.
fn frame(row: &LiveRow, depth: usize) -> Arc<LiveName> {
    let LiveName::Stack(frames) = &*row.name else { return Arc::clone(&row.name) };
    let frame = frames.len().checked_sub(depth + 1).and_then(|at| frames.get(at));
    match frame {
        Some((address, symbol)) => Arc::new(LiveName::Site(*address, symbol.clone())),
        None => Arc::clone(&row.name),
    }
}
