//! One CPU's file as a stream of events and gaps.
//!
//! `state` is what is carried from record to record. Files above it add to it what one kind of bytes needs: `sub_buffers`,
//! `relay_records` and `source` decode, `gap_blocks`, `unmarked` and `totals` account for loss, `headers` compares. `drive` calls
//! all of them; `cpu_stream` is what readers hold.

mod cpu_stream;
mod drive;
mod gap_blocks;
mod headers;
mod marks;
pub(crate) mod payload;
mod relay_records;
pub mod report;
mod restricted_range;
pub mod source;
mod state;
mod sub_buffers;
mod totals;
mod unmarked;

pub use self::cpu_stream::CpuStream;
