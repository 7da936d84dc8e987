//! Memory of a CPU's blocks. Reader and writer pass it on in a circle; the pool grows when the reader has none left.

use crossbeam_channel::Receiver;

use crate::process::memory;

/// Blocks of a pool at its start: one that is filled, one that is written, and one on the way.
pub(crate) const FIRST_BLOCKS: usize = 3;

/// The blocks that the reader of a CPU may fill.
pub(crate) struct BlockPool {
    /// Memory that the writer has returned.
    returned: Receiver<Vec<u8>>,
    /// Memory taken out of `returned` and not used yet.
    spare: Vec<Vec<u8>>,
    block_bytes: usize,
    /// Blocks that may still be allocated.
    growth: usize,
}

impl BlockPool {
    /// A pool with the blocks in `spare` that may grow by `growth` blocks.
    pub(crate) fn new(
        spare: Vec<Vec<u8>>,
        returned: Receiver<Vec<u8>>,
        block_bytes: usize,
        growth: usize,
    ) -> BlockPool {
        BlockPool { returned, spare, block_bytes, growth }
    }

    /// Takes memory for a block: the one that was returned last, because a part of it is still in the processor's cache, else new
    /// memory. `None` where the pool is at its limit, or no memory can be had: the caller waits for [`BlockPool::returned`].
    pub(crate) fn take(&mut self) -> Option<Vec<u8>> {
        self.spare.extend(self.returned.try_iter());
        self.spare.pop().or_else(|| self.grow())
    }

    /// Allocates a block, with its pages: under locked memory they are locked from then on.
    fn grow(&mut self) -> Option<Vec<u8>> {
        let growth = self.growth.checked_sub(1)?;
        let block = memory::touched(self.block_bytes).ok()?;
        self.growth = growth;
        Some(block)
    }

    /// Memory that the writer returns.
    pub(crate) fn returned(&self) -> &Receiver<Vec<u8>> {
        &self.returned
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_grows_to_its_limit_only_when_all_blocks_are_in_use() {
        let (give_back, returned) = crossbeam_channel::unbounded();
        let mut pool = BlockPool::new(vec![vec![0; 8]], returned, 8, 2);
        let first = pool.take().unwrap();
        give_back.send(first).unwrap();
        pool.take().unwrap();
        assert_eq!(pool.growth, 2, "returned memory comes first");
        assert_eq!([pool.take(), pool.take()].map(|block| block.map(|block| block.len())), [Some(8), Some(8)]);
        assert_eq!(pool.take(), None);
        give_back.send(vec![7; 8]).unwrap();
        assert_eq!(pool.take(), Some(vec![7; 8]));
    }

    #[test]
    fn memory_that_cannot_be_had_is_asked_for_again() {
        let (_give_back, returned) = crossbeam_channel::unbounded();
        let mut pool = BlockPool::new(Vec::new(), returned, isize::MAX.cast_unsigned(), 1);
        assert_eq!(pool.take(), None);
        pool.block_bytes = 8;
        assert!(pool.take().is_some());
    }
}
