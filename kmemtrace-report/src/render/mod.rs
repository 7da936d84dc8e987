//! From values to text: nothing outside this module knows how a figure or a name looks.

pub(crate) mod escape;
pub(crate) mod units;
