//! Every byte that crosses a boundary in kmemtrace, and nothing else: what the kernel writes, what
//! `kmemtraced` keeps, what the readers decode. No analysis, no command line, no threads.
//!
//! Read in the order the data flows: [`block`] frames bytes on disk, [`mod@format`] and [`subbuffer`] take the
//! kernel's sub-buffers apart, [`event`] is what comes out, [`trace`] is how readers open all of it,
//! [`fault`] says what can be wrong.

pub mod block;
mod blocks;
pub mod clock;
pub mod escape;
pub mod event;
pub mod fault;
pub mod format;
#[cfg(feature = "generator")]
pub mod generate;
mod header;
mod kmem;
pub mod landmarks;
mod open;
pub mod pieces;
pub mod regular;
pub mod relay;
pub mod stats;
mod stream;
pub mod subbuffer;
pub mod target;
pub mod trace;
mod walk;
