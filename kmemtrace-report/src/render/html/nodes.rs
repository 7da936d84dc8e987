//! Tree of a page: the greatest nodes, the others folded into one child of their parent.

use kmemtrace::Figure;
use kmemtrace::documents::sums::PrintedStats;
use kmemtrace::documents::tree::{NodeKind, TreeNode};
use kmemtrace_abi::text::escape::escape;
use serde::Serialize;
use serde::ser::{SerializeSeq, Serializer};

/// Figures of a node; `None`: static bytes.
const FIGURES: [Option<Figure>; 8] = [
    Some(Figure::LiveAllocated),
    Some(Figure::Wasted),
    Some(Figure::Allocated),
    Some(Figure::Allocs),
    None,
    Some(Figure::Frees),
    Some(Figure::LiveObjects),
    Some(Figure::LiveWasted),
];
/// Figures that size a node: the first ones.
const SIZES: usize = 5;
/// Levels of the tree: deeper nodes are folded, so that no reader's stack decides.
const MAX_DEPTH: usize = 60;
/// Kinds of nodes; the data block has indexes.
const KINDS: [NodeKind; 13] = [
    NodeKind::Folder,
    NodeKind::File,
    NodeKind::Function,
    NodeKind::Site,
    NodeKind::Module,
    NodeKind::Area,
    NodeKind::Unknown,
    NodeKind::Others,
    NodeKind::Frame,
    NodeKind::Task,
    NodeKind::Cgroup,
    NodeKind::Use,
    NodeKind::Root,
];

type Figures = [u64; FIGURES.len()];

/// Node, with its parent's place in the list.
struct Node<'a> {
    name: &'a [u8],
    /// Module that the name does not have, in a tree over keys.
    module: Option<&'a [u8]>,
    kind: NodeKind,
    figures: Figures,
    is_bound: bool,
    parent: usize,
    depth: usize,
    /// Nodes folded into it by the document.
    folded: usize,
}

/// Tree of a page.
pub(super) struct Tree {
    has_static: bool,
    /// Number of nodes that stand in no node of their own.
    folded: usize,
    root: PageNode,
}

/// Node of the data block.
#[derive(Debug)]
struct PageNode {
    name: String,
    kind: NodeKind,
    figures: Figures,
    is_bound: bool,
    children: Vec<PageNode>,
}

impl Tree {
    /// The tree with at most `max` nodes. A node is as great as its greatest share of the root, by any figure that sizes nodes.
    pub(super) fn of(root: &TreeNode, max: usize) -> Tree {
        let nodes = listed(root);
        let shares = shares(&nodes);
        let mut order: Vec<usize> = (0..nodes.len()).collect();
        // A parent is as great as its children and stands before them, so the greatest ones have all their parents.
        order.sort_by(|&a, &b| shares[b].total_cmp(&shares[a]).then(a.cmp(&b)));
        let mut kept = vec![false; nodes.len()];
        let mut limit = max;
        loop {
            kept.fill(false);
            order.iter().take(limit).for_each(|&index| kept[index] = is_shallow(&nodes[index]));
            let folding = parents_that_fold(&nodes, &kept);
            let all = kept.iter().filter(|kept| **kept).count() + folding;
            if all <= max || limit <= 1 {
                break;
            }
            limit = limit.saturating_sub(all - max).max(1);
        }
        build(&nodes, &kept, root.static_bytes.is_some())
    }
}

fn is_shallow(node: &Node<'_>) -> bool {
    node.depth < MAX_DEPTH
}

/// All nodes, each after its parent.
fn listed(root: &TreeNode) -> Vec<Node<'_>> {
    let mut nodes: Vec<Node<'_>> = Vec::new();
    let mut open = vec![(root, 0, 0)];
    while let Some((node, parent, depth)) = open.pop() {
        let index = nodes.len();
        nodes.push(Node {
            name: &node.name,
            module: node.module_beside().filter(|_| root.kind == NodeKind::Root),
            kind: node.kind,
            figures: figures_of(&node.stats, node.static_bytes),
            is_bound: node.stats.live_is_upper_bound,
            parent,
            depth,
            folded: node.folded,
        });
        open.extend(node.children.iter().rev().map(|child| (child, index, depth + 1)));
    }
    nodes
}

fn figures_of(stats: &PrintedStats, static_bytes: Option<u64>) -> Figures {
    FIGURES.map(|figure| figure.map_or(static_bytes, |figure| stats.get(figure)).unwrap_or(0))
}

/// Greatest share of the root, for each node; a child has at most its parent's.
fn shares(nodes: &[Node<'_>]) -> Vec<f64> {
    let mut shares: Vec<f64> = Vec::with_capacity(nodes.len());
    for (index, node) in nodes.iter().enumerate() {
        let of_root = node
            .figures
            .iter()
            .zip(&nodes[0].figures)
            .take(SIZES)
            .map(|(part, whole)| if *whole == 0 { 0.0 } else { *part as f64 / *whole as f64 });
        let share = of_root.fold(0.0, f64::max);
        let of_parent = if index == 0 { 1.0 } else { shares[node.parent] };
        shares.push(share.min(of_parent));
    }
    shares
}

/// Number of nodes that get a child of folded ones.
fn parents_that_fold(nodes: &[Node<'_>], kept: &[bool]) -> usize {
    let mut folding = vec![false; nodes.len()];
    for (index, node) in nodes.iter().enumerate() {
        let is_fold = !kept[index] || node.kind == NodeKind::Others;
        folding[node.parent] |= is_fold && index > 0 && kept[node.parent];
    }
    // A child of folded ones that the document has is among the kept ones.
    let own = nodes.iter().zip(kept).filter(|(node, kept)| **kept && node.kind == NodeKind::Others).count();
    folding.iter().filter(|folds| **folds).count().saturating_sub(own)
}

fn build(nodes: &[Node<'_>], kept: &[bool], has_static: bool) -> Tree {
    /// Sums of what a node folds.
    #[derive(Clone, Default)]
    struct Folded {
        figures: Figures,
        is_bound: bool,
        count: usize,
        is_there: bool,
    }
    let mut folds = vec![Folded::default(); nodes.len()];
    // Nodes below a folded one count for its parent, and their figures are in it already.
    let mut fold_of: Vec<usize> = vec![0; nodes.len()];
    for (index, node) in nodes.iter().enumerate().skip(1) {
        let is_others = node.kind == NodeKind::Others;
        if kept[index] && !is_others {
            continue;
        }
        let is_top = kept[node.parent] && nodes[node.parent].kind != NodeKind::Others;
        let parent = if is_top { node.parent } else { fold_of[node.parent] };
        fold_of[index] = parent;
        let fold = &mut folds[parent];
        fold.count += if is_others { node.folded } else { 1 };
        if is_top {
            fold.is_there = true;
            fold.is_bound |= node.is_bound;
            fold.figures.iter_mut().zip(&node.figures).for_each(|(sum, n)| *sum = sum.saturating_add(*n));
        }
    }
    let page_node = |index: usize| PageNode {
        name: match nodes[index].module {
            Some(module) => format!("{} [{}]", escape(nodes[index].name), escape(module)),
            None => escape(nodes[index].name).into_owned(),
        },
        kind: nodes[index].kind,
        figures: nodes[index].figures,
        is_bound: nodes[index].is_bound,
        children: Vec::new(),
    };
    let mut made: Vec<Option<PageNode>> = (0..nodes.len()).map(|_| None).collect();
    let mut total_folded = 0;
    for index in (0..nodes.len()).rev() {
        let is_shown = index == 0 || kept[index] && nodes[index].kind != NodeKind::Others;
        if !is_shown {
            continue;
        }
        // Children were made before their parent, the last one first.
        let mut node = made[index].take().unwrap_or_else(|| page_node(index));
        node.children.reverse();
        let Folded { figures, is_bound, count, is_there } = folds[index].clone();
        total_folded += count;
        if is_there {
            let name = format!("({count} others)");
            node.children.push(PageNode { name, kind: NodeKind::Others, figures, is_bound, children: Vec::new() });
        }
        if index == 0 {
            return Tree { has_static, folded: total_folded, root: node };
        }
        let parent = nodes[index].parent;
        made[parent].get_or_insert_with(|| page_node(parent)).children.push(node);
    }
    Tree { has_static, folded: total_folded, root: page_node(0) }
}

impl Serialize for Tree {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Members<'a> {
            figures: [&'a str; FIGURES.len()],
            kinds: [&'a str; KINDS.len()],
            has_static: bool,
            folded: usize,
            root: &'a PageNode,
        }
        let kinds = KINDS.map(NodeKind::name);
        let members = Members {
            figures: FIGURES.map(|figure| figure.map_or("static", |figure| figure.entry().member)),
            kinds,
            has_static: self.has_static,
            folded: self.folded,
            root: &self.root,
        };
        members.serialize(serializer)
    }
}

/// `[name, kind, bound, figures…, [children…]]`: the members have no names, because there are many nodes.
impl Serialize for PageNode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut seq = serializer.serialize_seq(None)?;
        seq.serialize_element(&self.name)?;
        seq.serialize_element(&KINDS.iter().position(|kind| *kind == self.kind).unwrap_or(0))?;
        seq.serialize_element(&u8::from(self.is_bound))?;
        self.figures.iter().try_for_each(|figure| seq.serialize_element(figure))?;
        if !self.children.is_empty() {
            seq.serialize_element(&self.children)?;
        }
        seq.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaf(name: &str, live: u64) -> TreeNode {
        node(name, NodeKind::Site, live, Vec::new())
    }

    fn node(name: &str, kind: NodeKind, live: u64, children: Vec<TreeNode>) -> TreeNode {
        let stats = PrintedStats {
            allocs: Some(1),
            live_objects: Some(1),
            allocated: Some(live),
            live_allocated: Some(live),
            ..PrintedStats::default()
        };
        let name = name.as_bytes().into();
        TreeNode { name, kind, stats, children, ..TreeNode::default() }
    }

    /// Nodes below and with this one; fails where a parent is not the sum of its children.
    fn count(node: &PageNode) -> usize {
        let live: u64 = node.children.iter().map(|child| child.figures[0]).sum();
        assert!(node.children.is_empty() || live == node.figures[0], "{}: {live}", node.name);
        1 + node.children.iter().map(count).sum::<usize>()
    }

    #[test]
    fn a_great_tree_is_folded_and_still_sums_up() {
        let functions = (0..100u64).map(|n| {
            let sites = (0..10).map(|site| leaf(&format!("f{n}+{site}"), n * 10 + site)).collect();
            node(&format!("f{n}"), NodeKind::Function, n * 100 + 45, sites)
        });
        let functions: Vec<TreeNode> = functions.collect();
        let live = functions.iter().map(|function| function.stats.live_allocated.unwrap_or(0)).sum();
        let root = node("linux", NodeKind::Folder, live, functions);
        for max in [1, 2, 3, 50, 200, 1_100, 1_101, 5_000] {
            let tree = Tree::of(&root, max);
            let nodes = count(&tree.root);
            assert!(nodes <= max.max(2), "{nodes} of {max}");
            assert!(max < 50 || nodes * 10 >= max.min(1_101) * 7, "{nodes} of {max} are too few");
            let others = nodes as i64 - 1_101 + tree.folded as i64;
            assert!((0..=100).contains(&others), "{max}: {} folded, {nodes} shown", tree.folded);
            assert_eq!(tree.folded == 0, max >= 1_101);
        }
    }

    #[test]
    fn a_tree_without_end_is_cut() {
        let mut root = leaf("end", 1);
        for _ in 0..2_000 {
            root = node("a", NodeKind::Folder, 1, vec![root]);
        }
        let tree = Tree::of(&root, 20_000);
        assert_eq!((count(&tree.root), tree.folded), (MAX_DEPTH + 1, 2_001 - MAX_DEPTH));
    }

    #[test]
    fn others_of_the_document_join_those_of_the_page() {
        let mut others = leaf("(7 others)", 5);
        (others.kind, others.folded) = (NodeKind::Others, 7);
        let root = node("linux", NodeKind::Folder, 16, vec![leaf("a", 10), leaf("b", 1), others]);
        let tree = Tree::of(&root, 3);
        let names: Vec<&str> = tree.root.children.iter().map(|child| &*child.name).collect();
        assert_eq!((names, tree.root.children[1].figures[0]), (vec!["a", "(8 others)"], 6));
    }
}
