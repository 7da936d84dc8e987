//! Live figures: a [`Monitor`] pairs the events of a trace while it is written, or played, and says at any moment what its rows are.
//!
//! Events come from the same streams, merge and pairing as those of a report. Sums per row are kept as events pass, so that a
//! [`Snapshot`] costs a step for each row, however many events there were.

pub(crate) mod clock;
mod figures;
mod held;
mod ledger;
mod monitor;
mod naming;
mod numbering;
mod rows;
mod selected;
mod snapshot;
mod stack_tree;
mod sums;
mod ticks;
mod watched;

pub use monitor::{Fed, Monitor, MonitorBase, MonitorOptions};
pub use snapshot::{
    Ages, Detail, LiveGroup, LiveKey, LiveName, LiveRow, LiveSymbol, ObjectNames, RowChoice, Selection, Shares,
    SizeShare, Snapshot, SnapshotRequest, Totals,
};
