//! Live bytes over time: growth of rows, and curves of kinds, each where a query asks for it.

use kmemtrace_abi::event::Kind;

use super::growth::{Growth, GrowthTracker};
use super::live_curve::{CurveTracker, LiveCurve};
use super::node_peaks::NodePeaks;
use super::row_paths::{PathForm, SharedPaths};

/// Figures over time that a query asks for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OverTimeRequest {
    /// Growth of each row is counted.
    pub(crate) growth: bool,
    /// Largest number of points of the kinds' curves.
    pub(crate) curve: Option<usize>,
    /// Nodes whose peaks are counted.
    pub(crate) nodes: Option<PathForm>,
}

impl OverTimeRequest {
    /// True where something is asked for.
    pub(crate) fn is_asked(self) -> bool {
        self.growth || self.curve.is_some() || self.nodes.is_some()
    }
}

/// Trackers of figures over time.
#[derive(Debug)]
pub(crate) struct OverTime {
    growth: Option<GrowthTracker>,
    curve: Option<CurveTracker>,
    nodes: Option<NodePeaks>,
}

/// Figures over time, each where it was asked for.
#[derive(Debug, Default)]
pub(crate) struct OverTimeFigures {
    pub(crate) growth: Option<Growth>,
    pub(crate) curve: Option<LiveCurve>,
    /// Largest number of live bytes of each node.
    pub(crate) node_peaks: Vec<u128>,
}

impl OverTime {
    /// Trackers from the key `first` on, the nodes of rows in `paths`; `None` where none is asked for.
    pub(crate) fn new(request: OverTimeRequest, first: u64, paths: Option<SharedPaths>) -> Option<Box<OverTime>> {
        let growth = request.growth.then(|| GrowthTracker::new(first));
        let curve = request.curve.map(|points| CurveTracker::new(first, points));
        request.is_asked().then(|| Box::new(OverTime { growth, curve, nodes: paths.map(NodePeaks::new) }))
    }

    /// Takes an object of `row` that becomes live, or is gone.
    pub(crate) fn change_live(&mut self, at: u64, (row, kind): (u32, Kind), bytes: u64, becomes_live: bool) {
        if let Some(growth) = &mut self.growth {
            growth.change_live(at, row, bytes, becomes_live);
        }
        if let Some(curve) = &mut self.curve {
            curve.change_live(at, kind, bytes, becomes_live);
        }
        if let Some(nodes) = &mut self.nodes {
            nodes.change_live(row, bytes, becomes_live);
        }
    }

    /// Figures up to the key of the last event.
    pub(crate) fn finish(self, last: Option<u64>) -> OverTimeFigures {
        OverTimeFigures {
            growth: self.growth.map(|growth| growth.finish(last)),
            curve: self.curve.map(|curve| curve.finish(last)),
            node_peaks: self.nodes.map(NodePeaks::finish).unwrap_or_default(),
        }
    }
}
