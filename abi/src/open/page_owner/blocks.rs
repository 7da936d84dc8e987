//! Blocks that a text tells of, oldest first: 24 bytes each, and the facts that many share once.

use std::collections::HashMap;

use crate::owner::OwnerId;
use crate::stack::StackId;

/// Blocks whose memory is given back at once.
const SHRINK_EVERY: usize = 1 << 18;

/// Facts of a block that many blocks share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Facts {
    pub(super) gfp: u64,
    pub(super) owner: OwnerId,
    pub(super) pid: Option<i32>,
    pub(super) order: u8,
}

/// Block: its time, its first frame, its stack, and the number of its facts.
#[derive(Clone, Copy, Debug)]
struct Block {
    at: u64,
    pfn: u64,
    stack: Option<StackId>,
    facts: u32,
}

/// Block with its facts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub(super) at: u64,
    pub(super) pfn: u64,
    pub(super) stack: Option<StackId>,
    pub(super) facts: Facts,
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
    pub(super) fn push(&mut self, Held { at, pfn, stack, facts }: Held) {
        let next = u32::try_from(self.facts.len()).unwrap_or(u32::MAX);
        let number = *self.numbers.entry(facts).or_insert(next);
        if number == next {
            self.facts.push(facts);
        }
        self.blocks.push(Block { at, pfn, stack, facts: number });
    }

    /// Puts the blocks in the order of their times.
    pub(super) fn sort(&mut self) {
        self.numbers = HashMap::new();
        self.blocks.sort_unstable_by_key(|block| std::cmp::Reverse((block.at, block.pfn)));
    }

    /// Takes the oldest block.
    pub(super) fn take(&mut self) -> Option<Held> {
        let Block { at, pfn, stack, facts } = self.blocks.pop()?;
        if self.blocks.len().is_multiple_of(SHRINK_EVERY) {
            self.blocks.shrink_to_fit();
        }
        Some(Held { at, pfn, stack, facts: *self.facts.get(facts as usize)? })
    }

    /// Number of blocks left.
    pub(super) fn len(&self) -> usize {
        self.blocks.len()
    }
}
