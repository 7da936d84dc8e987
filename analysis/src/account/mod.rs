//! Accounting: sums per row, per kind and in all, and the loss over all files.

pub(crate) mod births;
pub(crate) mod cgroups;
pub(crate) mod classes;
pub(crate) mod completeness;
pub(crate) mod figures;
pub(crate) mod free_sites;
pub(crate) mod group_reader;
pub(crate) mod grouping;
pub(crate) mod growth;
pub(crate) mod keys;
pub(crate) mod live_curve;
pub(crate) mod machine;
pub(crate) mod module_loads;
pub(crate) mod node_peaks;
pub(crate) mod over_time;
pub(crate) mod own_threads;
pub(crate) mod peak;
pub(crate) mod place_paths;
pub(crate) mod row_extras;
pub(crate) mod row_paths;
pub(crate) mod slices;
pub(crate) mod stack_reader;
pub(crate) mod stacks;
pub(crate) mod stats;
pub(crate) mod tally;
pub(crate) mod text_sites;
