//! Stats: what pairs add up to per row, per kind and in all, and what the files say of loss.

pub(crate) mod classes;
pub(crate) mod completeness;
pub(crate) mod stats;
pub(crate) mod tally;
