//! One CPU's file as a stream of events and gaps.
//!
//! `state` is carried from record to record, and `waiting` are the events whose stacks have not come yet. Files above it extend it for one kind of bytes or one kind of check: `sub_buffers`,
//! `encoded`, `relay_records` and `source` decode, `gap_blocks`, `unmarked` and `totals` account for loss, `headers` compares. `drive` calls
//! all of them; readers hold a `cpu_stream`.
//!
//! Loss reaches a reader in seven ways. A source of another program hands over gaps of its own.
//!
//! | loss | where it becomes a gap |
//! |---|---|
//! | The kernel marks a sub-buffer before which it lost events. | `SubBuffer::parse` finds the mark, `StreamState::mark` makes the gap |
//! | The kernel's counters grow without a mark. | `unmarked` walks over the file before its first event, `StreamState::foretell` hands over the gaps |
//! | The recorder writes a GAP block. | with an interval as above, without one at the block's place: `gap_blocks` |
//! | A file is damaged, cut or missing. | `StreamState::damage`, `StreamState::finish`, `CpuStream::missing` |
//! | Numbers of relay records are missing. | in the analysis: `GapTracker::add_holes` |
//! | The file tells of loss apart from its sub-buffers. | `StreamState::begin_sub_buffer` hands over the gaps that `file_loss` keeps |
//! | Loss comes to light at the end of a file, or has no number in a relay channel. | no gap in time: all findings are suspect |
//!
//! Gaps without a mark come before the first event because the merger passes each key once: it must know of a gap before it reaches
//! the gap's start.

mod cpu_stream;
mod drive;
mod encoded;
pub mod file_loss;
mod gap_blocks;
mod headers;
mod marks;
pub(crate) mod payload;
mod relay_records;
pub mod report;
mod restricted_range;
pub mod source;
mod state;
mod sub_buffer_copy;
mod sub_buffers;
mod told;
mod totals;
mod unmarked;
mod waiting;

pub use self::cpu_stream::CpuStream;
pub use crate::disk::blocks::Hole;
