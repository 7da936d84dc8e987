//! What needs more than one crate: the slow, obvious reference model, the binaries as they are run, live kernels.
//!
//! The tests themselves are in `tests/`; what they share is here.

pub mod corpus;
pub mod generate;
pub mod guest;
pub mod live;
pub mod load;
pub mod programs;
pub mod recorder;
pub mod recording;
pub mod reference;
pub mod runner;
pub mod scenario;
pub mod views;
