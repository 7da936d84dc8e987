//! Buffer of one block: room for the block header, then the payload. Reader and writer pass it on without copying.

use std::time::{Duration, Instant};

use kmemtrace_abi::disk::block::Major;

/// Room for a header of any major version; a shorter one takes its end.
pub(crate) const HEADER_ROOM: usize = Major::Two.header_bytes();

/// A block that is being filled or written.
#[derive(Debug)]
pub(crate) struct BlockBuffer {
    bytes: Vec<u8>,
    /// Payload bytes behind the header's room.
    used: usize,
    /// Time when the payload was complete; `None` until then.
    complete: Option<Instant>,
}

impl BlockBuffer {
    /// An empty block in memory that holds at least a header.
    pub(crate) fn empty(bytes: Vec<u8>) -> BlockBuffer {
        BlockBuffer { bytes, used: 0, complete: None }
    }

    /// A block with this payload and no free room.
    pub(crate) fn holding(payload: &[u8]) -> BlockBuffer {
        BlockBuffer { bytes: [&[0; HEADER_ROOM], payload].concat(), used: payload.len(), complete: None }
    }

    pub(crate) fn payload(&self) -> &[u8] {
        &self.bytes[HEADER_ROOM..HEADER_ROOM + self.used]
    }

    pub(crate) fn payload_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[HEADER_ROOM..HEADER_ROOM + self.used]
    }

    /// Header room and payload, as they go to the file.
    pub(crate) fn block(&mut self) -> &mut [u8] {
        &mut self.bytes[..HEADER_ROOM + self.used]
    }

    /// Free room behind the payload.
    pub(crate) fn free(&mut self) -> &mut [u8] {
        &mut self.bytes[HEADER_ROOM + self.used..]
    }

    /// Bytes of free room.
    pub(crate) fn free_len(&self) -> usize {
        self.bytes.len() - HEADER_ROOM - self.used
    }

    /// Makes the first `len` bytes of the free room part of the payload.
    pub(crate) fn advance(&mut self, len: usize) {
        self.used += len;
    }

    /// Ends the payload after `len` bytes, and starts the next block, in `memory`, with the rest.
    pub(crate) fn split(&mut self, len: usize, memory: Vec<u8>) -> BlockBuffer {
        let mut next = BlockBuffer::empty(memory);
        let rest = &self.payload()[len..];
        next.free()[..rest.len()].copy_from_slice(rest);
        next.advance(rest.len());
        (self.used, self.complete) = (len, Some(Instant::now()));
        next
    }

    /// Time since the payload was complete.
    pub(crate) fn waited(&self) -> Duration {
        self.complete.map_or(Duration::ZERO, |complete| complete.elapsed())
    }

    /// The memory, for another block.
    pub(crate) fn into_memory(self) -> Vec<u8> {
        self.bytes
    }
}
