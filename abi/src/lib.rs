//! Every byte that crosses a boundary in kmemtrace, and nothing else: what the kernel writes, what
//! `kmemtraced` keeps, what the readers decode. No analysis, no command line, no threads.
//!
//! Rooms, in the order the data flows: [`disk`] frames bytes in files, [`kernel`] takes the kernel's sub-buffers and records
//! apart, [`codec`] stores them in less room, [`stream`] turns one CPU's file into [`event`]s and gaps, [`open`] finds out what a path holds and opens a
//! [`trace`]. [`fault`] says what can be wrong, [`clock`] what an order key means, [`stack`] keeps call stacks, [`owner`] owners of
//! memory, [`text`] how names are escaped. [`memory`] is the limit on what all of them take.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects, clippy::indexing_slicing))]

mod capabilities;
pub mod clock;
pub mod codec;
pub mod disk;
pub mod event;
pub mod fault;
pub mod fields;
pub mod kernel;
pub mod kernel_texts;
mod kind;
pub mod listed;
pub mod memory;
pub mod open;
pub mod owner;
pub mod random;
pub mod stack;
pub mod stream;
pub mod target;
pub mod text;
pub mod trace;
pub mod unreadable;
