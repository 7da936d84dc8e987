//! Accounting: sums per row, per kind and in all, and the loss over all files.

pub(crate) mod classes;
pub(crate) mod completeness;
pub(crate) mod stats;
pub(crate) mod tally;
