//! A codec for the kernel's event records: it stores what a record has of its own, and the rest as the number of a *slot*.
//!
//! A slot is a record without its time, its thread and one number that is different in most records (a pointer, a page frame). In a
//! block of 256 KiB there are some dozens of slots, each used by hundreds of records. Encoder and decoder predict the next slot from
//! the last two, so that most records take a control byte, a time delta and a part of the pointer.
//!
//! `encoder` is guided by the event formats (`layout` finds the parts of a record), `decoder` needs none: slots are defined in
//! the block. Both keep the same `model` of what comes next; the numbers of
//! the encoding are in `wire`. Each block is independent of all others. Byte by byte: `FORMAT.md`.
//!
//! Bytes of a record that no field covers hold what the page of the ring buffer held before. The encoder stores them as zeros; every
//! other byte of a sub-buffer comes back as it was.

mod decoder;
mod encoder;
mod layout;
mod model;
#[cfg(test)]
mod tests;
mod wire;

pub use self::decoder::{CodecError, Decoder};
pub use self::encoder::{Encoder, Limits};
pub use self::layout::EventLayouts;
