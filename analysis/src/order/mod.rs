//! One total order of all CPUs' events: reading them for the pairing, merging the streams, gaps at their places.

pub(crate) mod gaps;
pub(crate) mod merge;
pub(crate) mod merger;
pub(crate) mod ordered;
pub(crate) mod pair_event;
