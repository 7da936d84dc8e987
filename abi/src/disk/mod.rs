//! Trace files of our own, byte by byte: blocks and their headers, reading them in sequence, what can be salvaged of damaged
//! files, and the index that lets a reader enter a file in the middle. `FORMAT.md` describes the same bytes in words.
//!
//! A new block kind or item belongs into [`block`]. No event is decoded here.

pub mod block;
pub(crate) mod blocks;
pub mod end_block;
pub mod expand;
pub(crate) mod feed;
pub(crate) mod hole;
pub mod left_out;
#[cfg(feature = "inputs")]
pub(crate) mod part;
pub mod salvage;
pub mod seek_index;
pub(crate) mod walk;
