//! Pairs of allocation and free: the table of live objects, freed addresses, findings. The contract's section "Pairing", in code.

pub(crate) mod findings;
pub(crate) mod freed;
pub(crate) mod pairs;
pub(crate) mod table;
