//! Trees of stacks, of all and of each module: nodes are added up from the rows that the filter takes, and shown below those that are
//! open.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::{Deref, RangeInclusive};
use std::sync::Arc;

use kmemtrace::live::{LiveKey, LiveName, LiveRow, Snapshot};
use kmemtrace::{Kind, Space};

/// Key and kind of a row.
pub(crate) type RowId = (LiveKey, Kind);

/// Row of the table: one of the snapshot, or a node that several rows add up to.
#[derive(Clone, Debug)]
pub(crate) struct Shown<'a> {
    row: ShownRow<'a>,
    /// Place in the tree; none in a list.
    pub(crate) place: Option<NodePlace>,
}

#[derive(Clone, Debug)]
enum ShownRow<'a> {
    Listed(&'a LiveRow),
    Sum(Box<LiveRow>),
}

/// Place of a node in the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NodePlace {
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
        Shown { row: ShownRow::Listed(row), place: None }
    }

    /// Key and kind: they tell the row apart from all others.
    pub(crate) fn id(&self) -> RowId {
        (self.key, self.kind)
    }
}

impl Deref for Shown<'_> {
    type Target = LiveRow;

    fn deref(&self) -> &LiveRow {
        match &self.row {
            ShownRow::Listed(row) => row,
            ShownRow::Sum(row) => row,
        }
    }
}

/// Node while it is added up.
struct Node<'a> {
    /// Number of nodes above it.
    level: usize,
    /// Rows below, and those of the node itself.
    rows: Vec<&'a LiveRow>,
    below: BTreeMap<u32, Node<'a>>,
}

impl<'a> Node<'a> {
    fn new(level: usize) -> Node<'a> {
        Node { level, rows: Vec::new(), below: BTreeMap::new() }
    }

    /// Nodes of the rows, below one that stands for all.
    fn tree(rows: &[&'a LiveRow]) -> Node<'a> {
        let mut root = Node::new(0);
        for row in rows {
            let mut node = &mut root;
            for (level, number) in row.path.iter().enumerate() {
                node = node.below.entry(*number).or_insert_with(|| Node::new(level));
                node.rows.push(row);
            }
        }
        root
    }

    /// The only node below, which has all rows of this one, unless it is a call-site.
    fn only_way(&mut self) -> Option<(u32, Node<'a>)> {
        let entry = self.below.first_entry()?;
        let is_only = entry.get().rows.len() == self.rows.len() && !entry.get().below.is_empty();
        is_only.then(|| entry.remove_entry())
    }
}

/// Order of the nodes below one.
type SortRows<'s, 'a> = &'s dyn Fn(&mut Vec<Shown<'a>>);

/// Tree that is listed.
struct Tree<'s, 'a> {
    snapshot: &'a Snapshot,
    open: &'s HashSet<RowId>,
    sort: SortRows<'s, 'a>,
    /// Frames with one way between them are one node.
    joins: bool,
    shown: Vec<Shown<'a>>,
}

/// Rows of the tree of stacks, with all nodes below those of `open`; `sort` puts the nodes below one in order.
pub(crate) fn stacks<'a>(
    snapshot: &'a Snapshot,
    taken: &[&'a LiveRow],
    open: &HashSet<RowId>,
    sort: SortRows<'_, 'a>,
) -> Vec<Shown<'a>> {
    let mut tree = Tree { snapshot, open, sort, joins: false, shown: Vec::new() };
    tree.list(Node::tree(taken), 0);
    tree.shown
}

/// Rows of modules, with the stacks below those of `open`.
pub(crate) fn modules<'a>(
    snapshot: &'a Snapshot,
    taken: &[&'a LiveRow],
    open: &HashSet<RowId>,
    sort: SortRows<'_, 'a>,
) -> Vec<Shown<'a>> {
    let mut below: HashMap<RowId, Vec<&'a LiveRow>> = HashMap::new();
    for row in snapshot.below.iter().filter(|row| row.allocs > 0) {
        let LiveKey::Stack(_, module) = row.key else { continue };
        below.entry((LiveKey::Module(module), row.kind)).or_default().push(row);
    }
    let mut tree = Tree { snapshot, open, sort, joins: true, shown: Vec::new() };
    for row in taken {
        let mut shown = Shown::listed(row);
        let has_stacks = |row: &&LiveRow| !matches!(row.key, LiveKey::Stack(0, _));
        let stacks = below.get(&shown.id()).filter(|rows| rows.iter().any(has_stacks));
        let fold = tree.fold(shown.id(), stacks.is_some());
        shown.place = Some(NodePlace { depth: 0, fold, only: None });
        tree.shown.push(shown);
        if let Some(rows) = stacks.filter(|_| fold == Fold::Open) {
            tree.list(Node::tree(rows), 1);
        }
    }
    tree.shown
}

impl<'a> Tree<'_, 'a> {
    fn fold(&self, id: RowId, has_below: bool) -> Fold {
        match (has_below, self.open.contains(&id)) {
            (false, _) => Fold::Leaf,
            (true, true) => Fold::Open,
            (true, false) => Fold::Closed,
        }
    }

    /// Lists the nodes below one, and below these. Stacks have a limit of frames, so that this ends soon.
    fn list(&mut self, node: Node<'a>, depth: u16) {
        let mut level = Vec::new();
        let mut below: HashMap<RowId, Node<'a>> = HashMap::new();
        for (mut number, mut node) in node.below {
            let outermost = node.level;
            while let Some(only) = self.joins.then(|| node.only_way()).flatten() {
                (number, node) = only;
            }
            let sum = sum(self.snapshot, number, outermost..=node.level, &node.rows);
            let id = (sum.key, sum.kind);
            let fold = self.fold(id, !node.below.is_empty());
            let only = if let [row] = &node.rows[..] { Some(row.key) } else { None };
            level.push(Shown { row: ShownRow::Sum(Box::new(sum)), place: Some(NodePlace { depth, fold, only }) });
            below.insert(id, node);
        }
        (self.sort)(&mut level);
        for row in level {
            let is_open = row.place.is_some_and(|place| place.fold == Fold::Open);
            let node = below.remove(&row.id()).filter(|_| is_open);
            self.shown.push(row);
            if let Some(node) = node {
                self.list(node, depth + 1);
            }
        }
    }
}

/// Figures of a node: sums over its rows, but for its peak.
fn sum(snapshot: &Snapshot, number: u32, levels: RangeInclusive<usize>, rows: &[&LiveRow]) -> LiveRow {
    let add = |of: fn(&LiveRow) -> u64| rows.iter().map(|row| of(row)).fold(0, u64::saturating_add);
    let change = |of: fn(&LiveRow) -> i64| rows.iter().map(|row| of(row)).fold(0, i64::saturating_add);
    let live = add(|row| row.live);
    let kind = rows.first().map_or(Kind::Kmalloc, |row| row.kind);
    let name = rows.first().map_or_else(|| Arc::new(LiveName::Stack(Vec::new())), |row| frames(row, levels));
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
        pages: (kind.space() == Space::Pages).then(|| add(|row| row.pages.unwrap_or(0))),
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

/// Name of the frames of a row's stack at some levels: the one frame, or all of them, the innermost first.
fn frames(row: &LiveRow, levels: RangeInclusive<usize>) -> Arc<LiveName> {
    let LiveName::Stack(frames) = &*row.name else { return Arc::clone(&row.name) };
    let at = |level: usize| frames.len().checked_sub(level + 1).and_then(|at| frames.get(at)).cloned();
    let mut found: Vec<_> = levels.rev().filter_map(at).collect();
    match found.len() {
        0 => Arc::clone(&row.name),
        1 => Arc::new(found.pop().map_or(LiveName::Site(0, None), |(address, symbol)| LiveName::Site(address, symbol))),
        _ => Arc::new(LiveName::Stack(found)),
    }
}
