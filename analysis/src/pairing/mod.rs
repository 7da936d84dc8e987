//! Pairs of allocation and free: the table of live objects, freed addresses, findings. The contract's section "Pairing", in code.

mod blocks;
pub(crate) mod fate;
pub(crate) mod findings;
pub(crate) mod frames;
pub(crate) mod freed;
mod grow;
pub(crate) mod learn;
pub(crate) mod loss;
mod pages;
pub(crate) mod pairs;
mod probes;
pub(crate) mod result;
pub(crate) mod slot;
pub(crate) mod table;
