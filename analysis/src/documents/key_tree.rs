//! `tree --by stack`, `task`, `module`, `site`, `use`: a tree over the keys of the query, whose nodes have exact peaks.

use std::cmp::Reverse;

use super::group::GroupNaming;
use super::ranked::{Shape, SortKey};
use super::row::Address;
use super::shown::{self, Grown, Shown};
use super::stacks::{StackCounts, StackNaming};
use super::sums::{Ordering, PrintedStats, Saturation};
use super::tree::{KeyTree, NodeKind, TreeBody, TreeNode, TreeOptions};
use crate::account::grouping::GroupKey;
use crate::account::row_paths::{NO_FRAME, Nodes, Step, root_of_tree};
use crate::analysis::Analysis;

/// Nodes with their sums and their children, on the way to a document.
struct KeyForm<'a, 'f> {
    naming: GroupNaming<'a>,
    stacks: StackNaming<'a>,
    nodes: &'a Nodes,
    sums: Vec<Grown>,
    children: Vec<Vec<u32>>,
    sort: SortKey,
    shape: &'f Shape,
    throttle: Option<f64>,
    ordering: Ordering,
}

/// The tree over the keys of the query, which is one [`crate::Query::with_nodes`].
pub(super) fn key_tree(
    analysis: &Analysis,
    options: &TreeOptions,
    shape: &Shape,
    (saturation, ordering): (&Saturation, Ordering),
) -> TreeBody {
    let shown = if Shown::of(analysis) == Shown::Pages { Shown::Pages } else { Shown::Slab };
    let none = Nodes::default();
    let nodes = analysis.paired.nodes.as_ref().unwrap_or(&none);
    let mut sums = vec![Grown::default(); nodes.nodes.len()];
    for ((row, (key, _)), grown) in (0u32..).zip(&analysis.paired.rows).zip(shown::rows(analysis)) {
        if let Some(&leaf) = nodes.paths.of(row).last().filter(|_| shown.takes(key.kind)) {
            sums[leaf as usize].add(&grown);
        }
    }
    let mut children = vec![Vec::new(); nodes.nodes.len()];
    // A node stands behind the one above it.
    for index in (0..nodes.nodes.len()).rev() {
        saturation.check(&sums[index].stats);
        if let Some(parent) = nodes.nodes[index].parent.filter(|_| !sums[index].stats.is_empty()) {
            let sum = sums[index].clone();
            sums[parent as usize].add(&sum);
            children[parent as usize].push(index as u32);
        }
        sums[index].set_peak(nodes.peaks.get(index).copied().unwrap_or(0), analysis.info.page_bytes);
    }
    let sort = shape.sort.first().copied().unwrap_or(SortKey::Live);
    let (naming, stacks) = (GroupNaming::of(analysis), StackNaming::of(analysis));
    let form = KeyForm { naming, stacks, nodes, sums, children, sort, shape, throttle: options.throttle, ordering };
    let root = root_of_tree(shown == Shown::Pages);
    let root = if root < form.sums.len() {
        form.node(root as u32, options.depth.unwrap_or(usize::MAX))
    } else {
        form.plain(shown.name().as_bytes().into(), NodeKind::Root, &Grown::default())
    };
    let keys = KeyTree { shows: shown.name(), events: analysis.order.events, stacks: StackCounts::of(analysis) };
    TreeBody { sort: sort.name(), branch: None, wrapped_live: 0, root, keys: Some(keys) }
}

impl KeyForm<'_, '_> {
    /// Node with its children, to `depth` levels below it. Stacks and keys limit how deep it is.
    fn node(&self, index: u32, depth: usize) -> TreeNode {
        let at = index as usize;
        let (name, kind, names) = match self.nodes.nodes[at].step {
            Some(step) => self.names(step),
            None => {
                let name = if at == root_of_tree(true) { Shown::Pages } else { Shown::Slab };
                (name.name().as_bytes().into(), NodeKind::Root, TreeNode::default())
            }
        };
        let children = if depth == 0 { Vec::new() } else { self.children(at, depth - 1) };
        let TreeNode { address, module, is_gone, pid, .. } = names;
        TreeNode { address, module, is_gone, pid, children, ..self.plain(name, kind, &self.sums[at]) }
    }

    fn plain(&self, name: Box<[u8]>, kind: NodeKind, grown: &Grown) -> TreeNode {
        TreeNode {
            name,
            kind,
            stats: PrintedStats::new(&grown.stats, self.ordering),
            grew: grown.printed_growth(),
            ..TreeNode::default()
        }
    }

    /// Children, greatest first; those beyond the limits folded into one.
    fn children(&self, parent: usize, depth: usize) -> Vec<TreeNode> {
        let figure = |node: u32| self.sums[node as usize].figure(self.sort, self.ordering);
        let mut nodes = self.children[parent].clone();
        let name = |node: u32| self.nodes.nodes[node as usize].step.map(|step| (self.names(step).0, step.value));
        nodes.sort_by_cached_key(|&node| (Reverse(figure(node)), name(node)));
        let kept = self.throttle.map_or(nodes.len(), |percent| {
            let figures: Vec<i128> = nodes.iter().map(|&node| figure(node).max(0)).collect();
            shown::kept(&figures, percent)
        });
        let rest = nodes.split_off(kept.min(self.shape.top.unwrap_or(kept)).min(nodes.len()));
        let mut shown: Vec<TreeNode> = nodes.into_iter().map(|node| self.node(node, depth)).collect();
        if !rest.is_empty() {
            let mut sum = Grown::default();
            rest.iter().for_each(|&node| sum.add(&self.sums[node as usize]));
            shown.push(TreeNode { folded: rest.len(), ..self.plain(b"others"[..].into(), NodeKind::Others, &sum) });
        }
        shown
    }

    /// Name and kind of a node, and a node with its address, module and thread.
    fn names(&self, step: Step) -> (Box<[u8]>, NodeKind, TreeNode) {
        let named = |unknown: &str| {
            let name = self.naming.naming.numbered(step.value);
            name.map_or_else(|| unknown.as_bytes().into(), Into::into)
        };
        match step.key {
            GroupKey::Stack if step.value == NO_FRAME => {
                (b"(no stack)"[..].into(), NodeKind::Frame, TreeNode::default())
            }
            GroupKey::Task => {
                let pid = self.naming.task(step.value).0;
                (self.task(step.value), NodeKind::Task, TreeNode { pid, ..TreeNode::default() })
            }
            GroupKey::Module => {
                let module = self.naming.naming.numbered(step.value).map(Into::into);
                (named("(kernel)"), NodeKind::Module, TreeNode { module, ..TreeNode::default() })
            }
            GroupKey::Use => (named("(slab)"), NodeKind::Use, TreeNode::default()),
            key => {
                let frame = self.stacks.frame(step.value);
                let kind = if key == GroupKey::Stack { NodeKind::Frame } else { NodeKind::Site };
                let module = frame.module.as_deref().map(Into::into);
                (
                    frame.text().into(),
                    kind,
                    TreeNode {
                        address: Some(Address(step.value)),
                        module,
                        is_gone: frame.is_gone,
                        ..TreeNode::default()
                    },
                )
            }
        }
    }

    fn task(&self, value: u64) -> Box<[u8]> {
        let (Some(pid), comm) = self.naming.task(value) else { return b"(unknown)"[..].into() };
        [comm.as_deref().unwrap_or(b"(no name)"), format!(" ({pid})").as_bytes()].concat().into()
    }
}
