//! Tree of stacks, from the outermost frame on: numbers of its nodes, and their peaks.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;
use kmemtrace_abi::event::Kind;

/// Nodes of all stacks. Stacks of pages and of slab objects have nodes of their own.
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
    /// Nodes of each row of stacks, the outermost frame first.
    paths: Vec<Arc<[u32]>>,
}

impl StackTree {
    /// Number above the outermost frames.
    fn root(kind: Kind) -> u32 {
        if kind == Kind::Pages { u32::MAX } else { u32::MAX - 1 }
    }

    /// Adds a row of stacks, unless it is known; `frames` are its own, the call-site first.
    pub(super) fn add(&mut self, row: u32, kind: Kind, frames: &[u64]) {
        if (row as usize) < self.paths.len() {
            return;
        }
        // A stack without frames is a node, too.
        let none = [0];
        let frames = if frames.is_empty() { &none } else { frames };
        let mut above = StackTree::root(kind);
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
        let path = path.collect();
        self.paths.push(path);
    }

    /// Nodes of a row of stacks.
    pub(super) fn path(&self, row: usize) -> Arc<[u32]> {
        self.paths.get(row).cloned().unwrap_or_default()
    }

    /// Looks at the live bytes of all nodes, by those of the rows.
    pub(super) fn look(&mut self, rows: impl Iterator<Item = u64>) {
        self.live.fill(0);
        for (live, path) in rows.zip(&self.paths) {
            path.iter().for_each(|&node| self.live[node as usize] += live);
        }
        self.peaks.iter_mut().zip(&self.live).for_each(|(peak, live)| *peak = (*peak).max(*live));
    }
}
