//! Text that people read or type: escaping of names; explanations on short lines; sizes and shares in figures; sizes, spans of time, patterns of names, and reports of memstrack in options.

pub mod cut;
pub mod duration;
pub mod escape;
pub mod glob;
pub mod memstrack;
pub mod size;
pub(crate) mod split;
pub mod units;
pub mod wrap;
