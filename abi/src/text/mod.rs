//! Text that people read or type: escaping of names; explanations on short lines; sizes and shares in figures; sizes and spans of time in options.

pub mod duration;
pub mod escape;
pub mod size;
pub mod units;
pub mod wrap;
