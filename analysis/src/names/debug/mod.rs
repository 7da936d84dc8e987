//! Debug information: ELF files and the DWARF in them, checked against the trace's kernel.

mod dwarf;
pub(crate) mod image;
mod lines;
mod paths;
mod sections;
pub(crate) mod symbols;
mod units;
mod unpack;
mod walk;
