//! Blocks that a text tells of, oldest first: each one, or only how many there are of each sort.

use std::cmp::Reverse;
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

/// Block with its facts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub(super) at: u64,
    pub(super) pfn: u64,
    pub(super) stack: Option<StackId>,
    pub(super) facts: Facts,
}

/// Block: its time, its first frame, its stack, and the number of its facts. 24 bytes.
#[derive(Clone, Copy, Debug)]
struct Block {
    at: u64,
    pfn: u64,
    stack: Option<StackId>,
    facts: u32,
}

/// Blocks of one stack and the same facts: the oldest one, and their number.
#[derive(Clone, Copy, Debug)]
struct Alike {
    oldest: Block,
    count: u64,
}

/// Blocks of a text.
#[derive(Debug)]
pub(super) struct Blocks {
    store: Store,
    facts: Vec<Facts>,
    numbers: HashMap<Facts, u32>,
    /// Blocks that were not taken yet.
    left: u64,
}

/// Both in the order of the text; once it is read, the newest first, so that those handed over are taken off the end.
#[derive(Debug)]
enum Store {
    Each(Vec<Block>),
    /// The newest block of all stands apart, so that the time of the last event is that of the text.
    Alike {
        all: Vec<Alike>,
        places: HashMap<(Option<StackId>, u32), usize>,
        newest: Option<Block>,
    },
}

impl Blocks {
    /// No block yet. With `alike`, memory goes by distinct stacks and facts: of blocks that are alike, all have the time and the
    /// frame of the oldest one.
    pub(super) fn new(alike: bool) -> Blocks {
        let store = match alike {
            true => Store::Alike { all: Vec::new(), places: HashMap::new(), newest: None },
            false => Store::Each(Vec::new()),
        };
        Blocks { store, facts: Vec::new(), numbers: HashMap::new(), left: 0 }
    }

    /// Adds a block.
    pub(super) fn push(&mut self, Held { at, pfn, stack, facts }: Held) {
        let next = u32::try_from(self.facts.len()).unwrap_or(u32::MAX);
        let number = *self.numbers.entry(facts).or_insert(next);
        if number == next {
            self.facts.push(facts);
        }
        self.left += 1;
        let mut block = Block { at, pfn, stack, facts: number };
        match &mut self.store {
            Store::Each(blocks) => blocks.push(block),
            Store::Alike { all, places, newest } => {
                let Some(latest) = newest else {
                    *newest = Some(block);
                    return;
                };
                if (latest.at, latest.pfn) < (block.at, block.pfn) {
                    std::mem::swap(latest, &mut block);
                }
                let place = *places.entry((block.stack, block.facts)).or_insert(all.len());
                match all.get_mut(place) {
                    Some(alike) => {
                        alike.count += 1;
                        if (block.at, block.pfn) < (alike.oldest.at, alike.oldest.pfn) {
                            alike.oldest = block;
                        }
                    }
                    None => all.push(Alike { oldest: block, count: 1 }),
                }
            }
        }
    }

    /// Puts the blocks in the order of their times.
    pub(super) fn sort(&mut self) {
        self.numbers = HashMap::new();
        match &mut self.store {
            Store::Each(blocks) => blocks.sort_unstable_by_key(|block| Reverse((block.at, block.pfn))),
            Store::Alike { all, places, .. } => {
                *places = HashMap::new();
                all.sort_unstable_by_key(|alike| Reverse((alike.oldest.at, alike.oldest.pfn)));
            }
        }
    }

    /// Takes the oldest block.
    pub(super) fn take(&mut self) -> Option<Held> {
        let Block { at, pfn, stack, facts } = match &mut self.store {
            Store::Each(blocks) => {
                let block = blocks.pop()?;
                if blocks.len().is_multiple_of(SHRINK_EVERY) {
                    blocks.shrink_to_fit();
                }
                block
            }
            Store::Alike { all, newest, .. } => match all.last_mut() {
                Some(alike) if alike.count > 1 => {
                    alike.count -= 1;
                    alike.oldest
                }
                Some(_) => all.pop()?.oldest,
                None => newest.take()?,
            },
        };
        self.left = self.left.saturating_sub(1);
        Some(Held { at, pfn, stack, facts: *self.facts.get(facts as usize)? })
    }

    /// Number of blocks left.
    pub(super) fn left(&self) -> u64 {
        self.left
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::owner::{Owner, Owners};

    #[test]
    fn blocks_that_are_alike_are_counted_and_the_first_and_last_times_stay() {
        let owner = Owners::default().intern(&Owner::default());
        let taken = |alike| {
            let mut blocks = Blocks::new(alike);
            for (at, pfn, order) in [(30, 1, 0), (10, 2, 0), (50, 3, 1), (20, 4, 1), (40, 5, 0)] {
                let facts = Facts { gfp: 0, owner, pid: None, order };
                blocks.push(Held { at, pfn, stack: None, facts });
            }
            blocks.sort();
            let left = blocks.left();
            let all: Vec<_> =
                std::iter::from_fn(|| blocks.take()).map(|held| (held.at, held.pfn, held.facts.order)).collect();
            (left, all, blocks.left())
        };
        assert_eq!(taken(false), (5, vec![(10, 2, 0), (20, 4, 1), (30, 1, 0), (40, 5, 0), (50, 3, 1)], 0));
        assert_eq!(taken(true), (5, vec![(10, 2, 0), (10, 2, 0), (10, 2, 0), (20, 4, 1), (50, 3, 1)], 0));
    }
}
