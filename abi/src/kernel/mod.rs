//! Bytes that the kernel writes: event formats, sub-buffers of the ring buffer, their event records, relay records, `stats` files, notes.
//!
//! A layout of another kernel version belongs here, and another event into `profile` or `latency`. Every decoder is generic over byte order
//! and word size ([`crate::target`]) and takes one sub-buffer or record at a time.

mod bulk;
pub(crate) mod decoder;
pub mod format;
pub mod gfp;
pub mod kallsyms;
pub mod kmalloc;
pub(crate) mod latency;
pub mod notes;
pub mod probes;
pub(crate) mod profile;
pub mod relay;
pub mod release;
mod slot;
pub(crate) mod stack_record;
pub mod stats;
pub mod subbuffer;
mod tasks;
#[cfg(feature = "inputs")]
pub(crate) mod tracer_stream;
pub mod unknown;
pub(crate) mod varying;
