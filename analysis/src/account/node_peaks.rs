//! Peaks of nodes that stand for several rows. Peaks do not add up, so each change of a row changes the live bytes of all its nodes.

use crate::account::peak::Peak;
use crate::account::row_paths::{Paths, SharedPaths};

/// Live bytes of nodes, and their peaks.
#[derive(Debug)]
pub(crate) struct NodePeaks {
    shared: SharedPaths,
    /// Copy of the paths that were needed so far.
    paths: Paths,
    peaks: Vec<Peak>,
}

impl NodePeaks {
    pub(crate) fn new(shared: SharedPaths) -> NodePeaks {
        NodePeaks { shared, paths: Paths::default(), peaks: Vec::new() }
    }

    /// Takes an object of `row` that becomes live, or is gone.
    #[inline]
    pub(crate) fn change_live(&mut self, row: u32, bytes: u64, becomes_live: bool) {
        if !self.paths.has(row) {
            self.learn();
        }
        for &node in self.paths.of(row) {
            let Some(peak) = self.peaks.get_mut(node as usize) else { continue };
            if becomes_live {
                peak.allocated(bytes);
            } else {
                peak.freed(bytes);
            }
        }
    }

    #[cold]
    fn learn(&mut self) {
        let nodes = self.shared.copy_to(&mut self.paths);
        self.peaks.resize(nodes, Peak::default());
    }

    /// Largest number of live bytes of each node.
    pub(crate) fn finish(self) -> Vec<u128> {
        self.peaks.into_iter().map(|peak| peak.greatest).collect()
    }
}
