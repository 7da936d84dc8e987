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
    /// Live bytes of each node, and their peak.
    live: Vec<(u64, u64)>,
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
            let next = self.live.len() as u32;
            let number = *self.numbers.entry((above, frame)).or_insert(next);
            if number == next {
                self.live.push((0, 0));
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

    /// Takes bytes of a row of stacks that become live. Peaks do not add up, so each change of a row is one of all its nodes.
    #[inline]
    pub(super) fn allocated(&mut self, row: u32, bytes: u64) {
        let Some(paths) = self.paths.get(row as usize) else { return };
        for &node in paths.iter().flat_map(|path| path.iter()) {
            let Some((live, peak)) = self.live.get_mut(node as usize) else { continue };
            *live = live.saturating_add(bytes);
            *peak = (*peak).max(*live);
        }
    }

    /// Takes bytes of a row of stacks that are gone.
    #[inline]
    pub(super) fn freed(&mut self, row: u32, bytes: u64) {
        let Some(paths) = self.paths.get(row as usize) else { return };
        for &node in paths.iter().flat_map(|path| path.iter()) {
            let Some((live, _)) = self.live.get_mut(node as usize) else { continue };
            *live = live.saturating_sub(bytes);
        }
    }

    /// Greatest number of live bytes of each node.
    pub(super) fn peaks(&self) -> Vec<u64> {
        self.live.iter().map(|(_, peak)| *peak).collect()
    }
}
