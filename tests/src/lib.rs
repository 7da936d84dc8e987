//! Shared parts of the tests that need more than one crate: the slow reference model, runs of the programs, live
//! kernels.
//!
//! The tests themselves are in `tests/`. Functions panic where a test cannot go on.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(missing_docs, reason = "a comment is for what a name does not say")]

pub mod archive;
pub mod browser;
pub mod cgroup_loads;
pub mod corpus;
pub mod counted;
pub mod encoded;
pub mod entries;
#[cfg(feature = "fuzz")]
pub mod fuzz;
pub mod generate;
pub mod graph_text;
pub mod growing;
pub mod guest;
pub mod guest_memory;
pub mod interleaved;
pub mod kernels;
pub mod live;
pub mod load;
pub mod measured;
pub mod memory_group;
#[cfg(feature = "fuzz")]
pub mod mutated;
pub mod npm;
pub mod old_kernel;
pub mod programs;
pub mod python;
pub mod recorder;
pub mod recording;
pub mod reference;
pub mod runner;
pub mod runs;
pub mod sandbox_layers;
pub mod scenario;
pub mod spaces;
pub mod terminal;
pub mod texts;
pub mod unused;
pub mod views;
