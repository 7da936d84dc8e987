//! Blocks of one file that come through a stream: the reader of the stream hands them over, the reader of the file takes them.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Whole blocks of one file, in their order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Feed(Arc<Mutex<Held>>);

/// Blocks that were not taken yet.
#[derive(Debug, Default)]
struct Held {
    blocks: VecDeque<Box<[u8]>>,
    /// Bytes of the first block that were taken.
    taken: usize,
    /// Bytes of the blocks, less those taken.
    bytes: usize,
    /// No more blocks come.
    is_closed: bool,
}

impl Feed {
    fn held(&self) -> MutexGuard<'_, Held> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a whole block.
    pub(crate) fn push(&self, block: &[u8]) {
        let mut held = self.held();
        held.bytes += block.len();
        held.blocks.push_back(block.into());
    }

    /// Notes that no more blocks come.
    pub(crate) fn close(&self) {
        self.held().is_closed = true;
    }

    /// True while more blocks may come.
    pub(crate) fn is_open(&self) -> bool {
        !self.held().is_closed
    }

    /// Bytes that were not taken yet.
    pub(crate) fn bytes(&self) -> usize {
        self.held().bytes
    }

    /// Takes bytes; 0 where none are there.
    pub(crate) fn read(&self, bytes: &mut [u8]) -> usize {
        let mut held = self.held();
        let Held { blocks, taken, bytes: left, .. } = &mut *held;
        let Some(first) = blocks.front() else { return 0 };
        let rest = first.get(*taken..).unwrap_or_default();
        let len = rest.len().min(bytes.len());
        bytes[..len].copy_from_slice(&rest[..len]);
        (*taken, *left) = (*taken + len, *left - len);
        if len == rest.len() {
            *taken = 0;
            blocks.pop_front();
        }
        len
    }
}
