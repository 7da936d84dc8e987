//! One CPU's file as a stream of events and gaps.
//!
//! `state` is carried from record to record, and `waiting` are the events whose stacks have not come yet. Files above it extend it for one kind of bytes or one kind of check: `sub_buffers`,
//! `relay_records` and `source` decode, `gap_blocks`, `unmarked` and `totals` account for loss, `headers` compares. `drive` calls
//! all of them; readers hold a `cpu_stream`.

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
mod waiting;

pub use self::cpu_stream::CpuStream;
