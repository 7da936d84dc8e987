//! Text that people read or type: escaping of names.

pub mod escape;
