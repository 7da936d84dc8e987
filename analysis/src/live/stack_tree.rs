//! Trees of stacks, from the outermost frame on: the numbers of their nodes.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;
use kmemtrace_abi::event::{Kind, Space};

/// Nodes of all stacks, as one tree and as a tree for each module. Stacks of each space have nodes of their own.
#[derive(Debug, Default)]
pub(super) struct StackTree {
    /// Numbers of nodes, by the number of the node above and the frame.
    numbers: HashMap<(u32, u64), u32, RandomState>,
    /// Nodes of each row of stacks.
    paths: Vec<NodePaths>,
    none: NodePaths,
}

/// Nodes of a row of stacks, the outermost frame first: in the tree of all stacks, and in that of the row's module.
pub(super) type NodePaths = [Arc<[u32]>; 2];

impl StackTree {
    /// Numbers above the outermost frames, of all stacks and of those of a module. Numbers of nodes never come that far.
    fn roots(kind: Kind, module: u32) -> [u32; 2] {
        let spaces = Space::ALL.len() as u32;
        let of_space = u32::MAX - kind.space() as u32;
        [of_space, of_space - spaces * (module.min(u32::MAX / 2 / spaces) + 1)]
    }

    /// Adds a row of stacks of a module, unless it is known; `frames` are its own, the call-site first.
    pub(super) fn add(&mut self, row: u32, kind: Kind, module: u32, frames: &[u64]) {
        if (row as usize) < self.paths.len() {
            return;
        }
        // A stack without frames is a node, too.
        let none = [0];
        let frames = if frames.is_empty() { &none } else { frames };
        let paths = StackTree::roots(kind, module).map(|root| self.path_from(root, frames));
        self.paths.push(paths);
    }

    /// Nodes of the frames below a root; new ones get numbers.
    fn path_from(&mut self, root: u32, frames: &[u64]) -> Arc<[u32]> {
        let mut above = root;
        let path = frames.iter().rev().map(|&frame| {
            let next = self.numbers.len() as u32;
            above = *self.numbers.entry((above, frame)).or_insert(next);
            above
        });
        path.collect()
    }

    /// Nodes of a row of stacks.
    pub(super) fn paths(&self, row: u32) -> &NodePaths {
        self.paths.get(row as usize).unwrap_or(&self.none)
    }
}
