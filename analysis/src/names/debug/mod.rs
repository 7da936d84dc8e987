//! Debug information: ELF files and the DWARF in them, checked against the trace's kernel.

pub(crate) mod image;
pub(crate) mod symbols;
mod unpack;
