//! Pairs of allocation and free: the table of live objects, freed addresses, findings. The contract's section "Pairing", in code.

pub(crate) mod fate;
pub(crate) mod findings;
pub(crate) mod freed;
mod grow;
pub(crate) mod learn;
pub(crate) mod loss;
pub(crate) mod pairs;
pub(crate) mod slot;
pub(crate) mod table;
