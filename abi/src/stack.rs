//! Call stacks of the kernel, each kept once: return addresses, the innermost first.

use std::hash::BuildHasher;
use std::num::NonZeroU32;

use foldhash::fast::RandomState;

/// A stack, interned in [`Stacks`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StackId(NonZeroU32);

impl StackId {
    /// Position of the stack in its [`Stacks`], from 0, without holes.
    #[expect(clippy::arithmetic_side_effects, reason = "the number is not 0")]
    pub fn index(self) -> usize {
        self.0.get() as usize - 1
    }

    fn at(index: usize) -> StackId {
        // 2^32 stacks do not fit in memory, so this never saturates.
        StackId(NonZeroU32::MIN.saturating_add(u32::try_from(index).unwrap_or(u32::MAX)))
    }
}

/// Interned stacks. Frames are return addresses, zero-extended to 64 bits: a symbol is looked up at the address less one.
#[derive(Clone, Debug, Default)]
pub struct Stacks {
    /// Frames of all stacks, one after the other.
    frames: Vec<u64>,
    /// End of each stack in `frames`.
    ends: Vec<usize>,
    /// Open addressing by hash: a power of two, at most three quarters of it used.
    slots: Vec<Slot>,
    hasher: RandomState,
}

/// Slot of the table: the stack, and the upper half of its hash.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    tag: u32,
    stack: Option<StackId>,
}

impl Stacks {
    /// The id of the stack of these frames, innermost first, which is added if it is new.
    #[expect(
        clippy::arithmetic_side_effects,
        clippy::indexing_slicing,
        reason = "stacks and slots take four bytes at least: four times their number fits; the mask keeps places in range"
    )]
    pub fn intern(&mut self, frames: &[u64]) -> StackId {
        if self.slots.len() * 3 <= self.ends.len() * 4 {
            self.grow();
        }
        let hash = self.hasher.hash_one(frames);
        let (tag, mask) = ((hash >> 32) as u32, self.slots.len() - 1);
        let mut at = hash as usize & mask;
        while let Slot { tag: found, stack: Some(id) } = self.slots[at] {
            if found == tag && self.get(id) == frames {
                return id;
            }
            at = (at + 1) & mask;
        }
        let id = StackId::at(self.ends.len());
        self.slots[at] = Slot { tag, stack: Some(id) };
        self.frames.extend_from_slice(frames);
        self.ends.push(self.frames.len());
        id
    }

    #[cold]
    #[expect(
        clippy::arithmetic_side_effects,
        clippy::indexing_slicing,
        reason = "slots take eight bytes: twice their number fits; the mask keeps places in range"
    )]
    fn grow(&mut self) {
        let size = (self.slots.len() * 2).max(64);
        self.slots = vec![Slot::default(); size];
        for index in 0..self.ends.len() {
            let id = StackId::at(index);
            let hash = self.hasher.hash_one(self.get(id));
            let mut at = hash as usize & (size - 1);
            while self.slots[at].stack.is_some() {
                at = (at + 1) & (size - 1);
            }
            self.slots[at] = Slot { tag: (hash >> 32) as u32, stack: Some(id) };
        }
    }

    /// Frames of a stack, innermost first.
    pub fn get(&self, id: StackId) -> &[u64] {
        let begin = id.index().checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or(0);
        let end = self.ends.get(id.index()).copied().unwrap_or(begin);
        self.frames.get(begin..end).unwrap_or_default()
    }

    /// Ids of all stacks.
    pub fn ids(&self) -> impl Iterator<Item = StackId> + use<> {
        (0..self.ends.len()).map(StackId::at)
    }

    /// Number of stacks.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// True if there is no stack.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_are_kept_once() {
        let mut stacks = Stacks::default();
        let first = stacks.intern(&[3, 2, 1]);
        let other = stacks.intern(&[3, 2]);
        assert_eq!((stacks.intern(&[3, 2, 1]), first == other, stacks.len()), (first, false, 2));
        assert_eq!((stacks.get(first), stacks.get(other)), (&[3, 2, 1][..], &[3, 2][..]));
    }

    #[test]
    fn ids_of_many_stacks_stay() {
        let mut stacks = Stacks::default();
        let frames = |number: u64| -> Vec<u64> { (0..number % 17).chain([number]).collect() };
        let ids: Vec<StackId> = (0..5000).map(|number| stacks.intern(&frames(number))).collect();
        assert_eq!(stacks.len(), 5000);
        for (number, &id) in (0..).zip(&ids) {
            assert_eq!((stacks.get(id), id.index() as u64), (&frames(number)[..], number));
            assert_eq!(stacks.intern(&frames(number)), id);
        }
        let unknown = StackId::at(5000);
        assert_eq!((stacks.get(unknown), stacks.len()), (&[][..], 5000));
    }
}
