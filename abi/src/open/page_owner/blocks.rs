//! Blocks that a text tells of, oldest first: 20 bytes each, and the facts that many share once.

use std::collections::HashMap;

use crate::owner::OwnerId;
use crate::stack::StackId;

/// Blocks whose memory is given back at once.
const SHRINK_EVERY: usize = 1 << 18;

/// Facts of a block that many blocks share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Facts {
    pub(super) gfp: u64,
    pub(super) stack: Option<StackId>,
    pub(super) owner: OwnerId,
    pub(super) pid: Option<i32>,
    pub(super) order: u8,
}

/// Block: its time, its first frame, and the number of its facts.
#[derive(Clone, Copy, Debug)]
#[repr(C, packed(4))]
struct Block {
    at: u64,
    pfn: u64,
    facts: u32,
}

/// Blocks of a text.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    /// In the order of the text; once it is read, the newest first, so that those handed over are taken off the end.
    blocks: Vec<Block>,
    facts: Vec<Facts>,
    numbers: HashMap<Facts, u32>,
}

impl Blocks {
    /// Adds a block.
    pub(super) fn push(&mut self, at: u64, pfn: u64, facts: Facts) {
        let next = u32::try_from(self.facts.len()).unwrap_or(u32::MAX);
        let number = *self.numbers.entry(facts).or_insert(next);
        if number == next {
            self.facts.push(facts);
        }
        self.blocks.push(Block { at, pfn, facts: number });
    }

    /// Puts the blocks in the order of their times.
    pub(super) fn sort(&mut self) {
        self.numbers = HashMap::new();
        self.blocks.sort_unstable_by_key(|block| std::cmp::Reverse((block.at, block.pfn, block.facts)));
    }

    /// Takes the oldest block: its time, its first frame and its facts.
    pub(super) fn take(&mut self) -> Option<(u64, u64, Facts)> {
        let Block { at, pfn, facts } = self.blocks.pop()?;
        // The table of frames grows meanwhile: the memory of blocks that were handed over is its.
        if self.blocks.len() % SHRINK_EVERY == 0 {
            self.blocks.shrink_to_fit();
        }
        Some((at, pfn, *self.facts.get(facts as usize)?))
    }

    /// Number of blocks left.
    pub(super) fn len(&self) -> usize {
        self.blocks.len()
    }
}
