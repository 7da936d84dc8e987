//! Threads and formats between a kernel buffer and a trace file.
//!
//! `workers` starts and stops a reader and a writer thread per CPU. `reader` moves bytes out of the kernel, `writer` counts their
//! events and writes them as blocks of a `block_file`, as they are or after `compress`. `meta` writes `meta.out`, which names
//! things. `own_threads` counts events that the recorder caused itself.
//!
//! Room for more kinds of blocks and other ways to store them. Records are never decoded or changed here.

mod block_buffer;
pub(crate) mod block_file;
pub(crate) mod compress;
#[cfg(test)]
mod fixture;
pub(crate) mod header;
pub(crate) mod host_texts;
mod loss;
pub(crate) mod meta;
pub(crate) mod outcome;
pub(crate) mod own_threads;
pub(crate) mod reader;
mod tally;
pub(crate) mod workers;
pub(crate) mod writer;
