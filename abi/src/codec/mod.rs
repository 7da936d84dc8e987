//! A codec for the kernel's event records: it stores what a record has of its own, and the rest as the number of a *slot*.
//!
//! A slot is a record without its time, its thread and one number that is different in most records (a pointer, a page frame). In a
//! block of 256 KiB there are some dozens of slots, each used by hundreds of records. Encoder and decoder predict the next slot from
//! the last two, so that most records take a control byte, a time delta and a part of the pointer.
//!
//! `encoder` is guided by the event formats (`layout` finds the parts of a record), `decoder` needs none: slots are defined in
//! the block. `entries` takes one sub-buffer apart for it. Both sides keep the same `model` of what comes next; the numbers of
//! the encoding are in `wire`. Each block is independent of all others. Byte by byte: `FORMAT.md`.
//!
//! A reader takes records straight from a block: a slot has a record in memory, and what changes is written there when somebody reads the
//! record. A consumer's note of the slot's event is kept, too (`notes`): later records come as time, address and that note, and nobody
//! decodes them. Sub-buffers are put together again for those who copy them.
//!
//! Bytes of a record that no field covers hold what the page of the ring buffer held before. The encoder stores them as zeros; every
//! other byte of a sub-buffer comes back as it was.

mod decoder;
mod encoder;
mod entries;
mod error;
mod layout;
mod model;
mod notes;
mod output;
mod slots;
#[cfg(test)]
mod tests;
mod wire;

pub use self::decoder::Decoder;
pub(crate) use self::decoder::Found;
pub use self::encoder::Encoder;
pub use self::error::CodecError;
pub use self::layout::EventLayouts;
pub use self::slots::Limits;
