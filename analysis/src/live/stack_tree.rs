//! Trees of stacks, from the outermost frame on: numbers of their nodes, and their peaks.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;
use kmemtrace_abi::event::Kind;

/// Nodes of all stacks, as one tree and as a tree for each module. Stacks of pages and of slab objects have nodes of their own.
#[derive(Debug, Default)]
pub(super) struct StackTree {
    /// Numbers of nodes, by the number of the node above and the frame.
    numbers: HashMap<(u32, u64), u32, RandomState>,
    /// Node above each node.
    above: Vec<u32>,
    /// Live bytes of each node at the last look.
    live: Vec<u64>,
    /// Greatest number of live bytes of each node at a look.
    pub(super) peaks: Vec<u64>,
    /// Nodes of each row of stacks, the outermost frame first: of all stacks, and of those of the row's module.
    paths: Vec<[Arc<[u32]>; 2]>,
}

impl StackTree {
    /// Numbers above the outermost frames, of all stacks and of those of a module. Numbers of nodes never come that far.
    fn roots(kind: Kind, module: u32) -> [u32; 2] {
        let of_kind = u32::MAX - u32::from(kind != Kind::Pages);
        [of_kind, of_kind - 2 * (module.min(u32::MAX / 4) + 1)]
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
            let next = self.above.len() as u32;
            let number = *self.numbers.entry((above, frame)).or_insert(next);
            if number == next {
                self.above.push(above);
                self.live.push(0);
                self.peaks.push(0);
            }
            above = number;
            number
        });
        path.collect()
    }

    /// Nodes of a row of stacks in the tree of all.
    pub(super) fn path(&self, row: usize) -> Arc<[u32]> {
        self.paths.get(row).map(|[all, _]| Arc::clone(all)).unwrap_or_default()
    }

    /// Nodes of a row of stacks in the tree of its module.
    pub(super) fn path_in_module(&self, row: usize) -> Arc<[u32]> {
        self.paths.get(row).map(|[_, of_module]| Arc::clone(of_module)).unwrap_or_default()
    }

    /// Looks at the live bytes of all nodes, by those of the rows.
    pub(super) fn look(&mut self, rows: impl Iterator<Item = u64>) {
        self.live.fill(0);
        for (live, path) in rows.zip(&self.paths) {
            path.iter().flat_map(|path| path.iter()).for_each(|&node| self.live[node as usize] += live);
        }
        self.peaks.iter_mut().zip(&self.live).for_each(|(peak, live)| *peak = (*peak).max(*live));
    }
}
