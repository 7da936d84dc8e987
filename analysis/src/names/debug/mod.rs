//! Debug information: ELF files and the DWARF in them, checked against the trace's kernel.

mod dwarf;
pub(crate) mod image;
mod lines;
pub(crate) mod paths;
pub(crate) mod sections;
pub(crate) mod symbols;
pub(crate) mod units;
mod unpack;
mod walk;
