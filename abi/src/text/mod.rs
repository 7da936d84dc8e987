//! Text that people read or type: escaping of names, sizes and shares in figures.

pub mod escape;
pub mod units;
