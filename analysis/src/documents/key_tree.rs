//! `tree --by stack`, `task`, `cgroup`, `module`, `site`, `use`: a tree over the keys of the query, whose nodes have exact peaks.

use std::cmp::Reverse;

use kmemtrace_abi::event::Space;

use super::group::GroupNaming;
use super::ranked::{Shape, SortKey};
use super::row::Address;
use super::shown::{self, Grown, Shown};
use super::stacks::{StackCounts, StackNaming};
use super::sums::{Ordering, PrintedStats, Saturation};
use super::tree::{KeyTree, NodeKind, TreeBody, TreeNode, TreeOptions};
use crate::account::figures::Figure;
use crate::account::grouping::{GroupKey, NO_VALUE};
use crate::account::row_paths::{NO_FRAME, Nodes, Step};
use crate::analysis::Analysis;
use crate::names::kallsyms::{KERNEL, SiteOwner, UNKNOWN};

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
    /// See [`TreeOptions::passes_entry`].
    passes_entry: bool,
}

/// Names of functions between user space, or the begin of a thread, and the kernel's work; those that end with `*` are the begin of a
/// name. They are of x86, arm64, s390x, powerpc and riscv.
const ENTRY: [&str; 23] = [
    "entry_*",
    "do_syscall_64",
    "do_syscall_*",
    "x64_sys_*",
    "__x64_sys_*",
    "__ia32_*",
    "ia32_sys_*",
    "__do_fast_syscall_32",
    "ret_from_fork*",
    "kthread",
    "el0t_*",
    "el0_*",
    "do_el0_*",
    "invoke_syscall*",
    "__arm64_sys_*",
    "system_call*",
    "__do_syscall",
    "__s390x_sys_*",
    "__se_sys_*",
    "handle_exception",
    "do_trap_ecall_u",
    "asm_exc_*",
    "exc_*",
];

/// True for a frame of the entry into the kernel: `do_syscall_64+0x5c`.
fn is_entry(name: &[u8]) -> bool {
    let function = name.split(|&byte| byte == b'+').next().unwrap_or_default();
    ENTRY.iter().any(|entry| match entry.strip_suffix('*') {
        Some(begin) => function.starts_with(begin.as_bytes()),
        None => function == entry.as_bytes(),
    })
}

/// The tree over the keys of the query, which is one [`crate::Query::with_nodes`].
pub(super) fn key_tree(
    analysis: &Analysis,
    options: &TreeOptions,
    shape: &Shape,
    (saturation, ordering): (&Saturation, Ordering),
) -> TreeBody {
    let space = options.space.unwrap_or_else(|| Shown::of(analysis).tree_space());
    let none = Nodes::default();
    let nodes = analysis.paired.nodes.as_ref().unwrap_or(&none);
    let mut sums = vec![Grown::default(); nodes.nodes.len()];
    for ((row, (key, _)), grown) in (0u32..).zip(&analysis.paired.rows).zip(shown::rows(analysis)) {
        if let Some(&leaf) = nodes.paths.of(row).last().filter(|_| key.kind.space() == space) {
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
    let sort = shape.sort.first().copied().unwrap_or(SortKey::Figure(Figure::LiveAllocated));
    let (naming, stacks) = (GroupNaming::of(analysis), StackNaming::of(analysis));
    let passes_entry = options.passes_entry;
    let form = KeyForm {
        passes_entry,
        naming,
        stacks,
        nodes,
        sums,
        children,
        sort,
        shape,
        throttle: options.throttle,
        ordering,
    };
    let root = space as usize;
    let root = if root < form.sums.len() {
        form.node(root as u32, options.depth.unwrap_or(usize::MAX))
    } else {
        form.with_sums(plain(space.name(), NodeKind::Root), &Grown::default())
    };
    let keys = KeyTree { events: analysis.order.events, stacks: StackCounts::of(analysis) };
    TreeBody { sort: sort.name(), branch: None, wrapped_live: 0, root, shows: space.name(), keys: Some(keys) }
}

impl KeyForm<'_, '_> {
    /// Node with its children, to `depth` levels below it. Stacks and keys limit how deep it is.
    fn node(&self, index: u32, depth: usize) -> TreeNode {
        let at = index as usize;
        let named = match self.nodes.nodes[at].step {
            Some(step) => self.named(step),
            None => plain(Space::ALL.get(at).map_or("", |space| space.name()), NodeKind::Root),
        };
        let is_entry = named.kind == NodeKind::Frame && is_entry(&named.name);
        let depth = if is_entry && self.passes_entry { depth.saturating_add(1) } else { depth };
        let children = if depth == 0 { Vec::new() } else { self.children(at, depth - 1) };
        TreeNode { children, ..self.with_sums(named, &self.sums[at]) }
    }

    fn with_sums(&self, node: TreeNode, grown: &Grown) -> TreeNode {
        TreeNode { stats: PrintedStats::new(&grown.stats, self.ordering), grew: grown.printed_growth(), ..node }
    }

    /// Children, largest first; those beyond the limits folded into one.
    fn children(&self, parent: usize, depth: usize) -> Vec<TreeNode> {
        let figure = |node: u32| self.sums[node as usize].figure(self.sort, self.ordering);
        let mut nodes = self.children[parent].clone();
        let name = |node: u32| self.nodes.nodes[node as usize].step.map(|step| (self.named(step).name, step.value));
        nodes.sort_by_cached_key(|&node| (Reverse(figure(node)), name(node)));
        let rest = shown::cut_off(&mut nodes, |&node| figure(node), self.throttle, self.shape.top);
        let mut shown: Vec<TreeNode> = nodes.into_iter().map(|node| self.node(node, depth)).collect();
        if !rest.is_empty() {
            let mut sum = Grown::default();
            rest.iter().for_each(|&node| sum.add(&self.sums[node as usize]));
            shown.push(TreeNode { folded: rest.len(), ..self.with_sums(plain("others", NodeKind::Others), &sum) });
        }
        shown
    }

    /// Node with its names, and without sums.
    fn named(&self, step: Step) -> TreeNode {
        let numbered = || self.naming.naming.numbered(step.value);
        let node = |name: Box<[u8]>, kind| TreeNode { name, kind, ..TreeNode::default() };
        let or = |unknown: &str| numbered().unwrap_or(unknown.as_bytes()).into();
        match step.key {
            GroupKey::Stack if step.value == NO_FRAME => plain("(no stack)", NodeKind::Frame),
            GroupKey::Task => {
                TreeNode { pid: self.naming.task(step.value).0, ..node(self.task(step.value), NodeKind::Task) }
            }
            GroupKey::Module => {
                let none = if step.value == NO_VALUE { UNKNOWN } else { KERNEL };
                TreeNode { module: numbered().map(Into::into), ..node(or(none), NodeKind::Module) }
            }
            GroupKey::Use => node(or("(slab)"), NodeKind::Use),
            GroupKey::Cgroup => node(or("(unknown)"), NodeKind::Cgroup),
            key => {
                let frame = self.stacks.frame(step.value);
                let kind = if key == GroupKey::Stack { NodeKind::Frame } else { NodeKind::Site };
                let is_unknown = kind == NodeKind::Site && step.value != 0 && frame.owner == SiteOwner::Unknown;
                let name = if is_unknown { frame.owner.text(step.value) } else { frame.text() };
                TreeNode {
                    address: Some(Address(step.value)),
                    module: frame.module.as_deref().map(Into::into),
                    is_gone: frame.is_gone,
                    ..node(name.into(), kind)
                }
            }
        }
    }

    fn task(&self, value: u64) -> Box<[u8]> {
        let (Some(pid), comm) = self.naming.task(value) else { return b"(unknown)"[..].into() };
        [comm.as_deref().unwrap_or(b"(no name)"), format!(" ({pid})").as_bytes()].concat().into()
    }
}

/// Node that has a name and nothing else.
fn plain(name: &str, kind: NodeKind) -> TreeNode {
    TreeNode { name: name.as_bytes().into(), kind, ..TreeNode::default() }
}

#[cfg(test)]
mod tests {
    use super::is_entry;

    #[test]
    fn frames_between_user_space_and_the_kernels_work_are_of_the_entry() {
        for entry in
            ["entry_SYSCALL_64_after_hwframe+0x76", "do_syscall_64+0x71", "el0_svc+0x30", "ret_from_fork_asm+0x1a"]
        {
            assert!(is_entry(entry.as_bytes()), "{entry}");
        }
        for work in ["vfs_write+0x22f", "do_sys_openat2+0x9", "kthread_create+0x1", "(no stack)", ""] {
            assert!(!is_entry(work.as_bytes()), "{work}");
        }
    }
}
