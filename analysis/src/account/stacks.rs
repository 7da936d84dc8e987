//! Call stacks by their numbers, which all threads share.

use std::collections::{HashMap, HashSet};

use foldhash::fast::RandomState;

/// Number of a stack that begins at its site; 0 for none.
pub(crate) type StackNumber = u32;

/// Limit of the frames of a numbered stack; the outermost ones are left out. Kernels have up to 43. Readers of JSON have limits of
/// 128 members within each other, of which a frame takes two.
pub(crate) const MAX_FRAMES: usize = 52;

/// All stacks of a trace by their numbers.
#[derive(Debug, Default)]
pub(crate) struct StackTable {
    /// Stacks as the kernel recorded them.
    recorded: HashSet<Box<[u64]>, RandomState>,
    /// Stacks that begin at their sites.
    all: Vec<Box<[u64]>>,
    numbers: HashMap<Box<[u64]>, StackNumber, RandomState>,
}

impl StackTable {
    /// The number of the stack that `recorded` is from the frame `site` on; 0 for one without frames.
    pub(crate) fn number(&mut self, recorded: &[u64], site: usize) -> StackNumber {
        if !self.recorded.contains(recorded) {
            self.recorded.insert(recorded.into());
        }
        let frames = recorded.get(site..).unwrap_or_default();
        let frames = &frames[..frames.len().min(MAX_FRAMES)];
        if frames.is_empty() { 0 } else { self.number_of(frames) }
    }

    /// The number of the frames before the site of the stack `recorded`, which it passes over; 0 for none.
    pub(crate) fn number_of_passed(&mut self, recorded: &[u64], site: usize) -> StackNumber {
        let frames = recorded.get(..site).unwrap_or(recorded);
        if frames.is_empty() { 0 } else { self.number_of(frames) }
    }

    /// The number of a stack of the call-site alone, which the kernel did not record as a stack.
    pub(crate) fn number_of_site(&mut self, site: u64) -> StackNumber {
        self.number_of(&[site])
    }

    fn number_of(&mut self, frames: &[u64]) -> StackNumber {
        if let Some(&number) = self.numbers.get(frames) {
            return number;
        }
        self.all.push(frames.into());
        let number = u32::try_from(self.all.len()).unwrap_or(u32::MAX);
        self.numbers.insert(frames.into(), number);
        number
    }

    /// Frames of a stack, its site first.
    pub(crate) fn frames(&self, number: StackNumber) -> &[u64] {
        let index = usize::try_from(number).unwrap_or(usize::MAX).checked_sub(1);
        index.and_then(|index| self.all.get(index)).map_or(&[], |frames| frames)
    }

    /// The stacks by their numbers less one, and the number of different stacks as they were recorded.
    pub(crate) fn finish(self) -> KnownStacks {
        KnownStacks { distinct: self.recorded.len() as u64, frames: self.all }
    }
}

/// Stacks of an analysis.
#[derive(Clone, Debug, Default)]
pub(crate) struct KnownStacks {
    /// Number of different stacks as the kernel recorded them.
    pub(crate) distinct: u64,
    frames: Vec<Box<[u64]>>,
}

impl KnownStacks {
    /// Frames of all stacks.
    pub(crate) fn all(&self) -> impl Iterator<Item = &[u64]> {
        self.frames.iter().map(|frames| &**frames)
    }

    /// Frames of a stack, its site first; none for no stack.
    pub(crate) fn frames(&self, number: u64) -> &[u64] {
        let index = usize::try_from(number).unwrap_or(usize::MAX).checked_sub(1);
        index.and_then(|index| self.frames.get(index)).map_or(&[], |frames| frames)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_stacks_from_their_sites_on_have_one_number() {
        let mut table = StackTable::default();
        let first = table.number(&[9, 8, 3, 2, 1], 2);
        assert_eq!((first, table.number(&[7, 3, 2, 1], 1), table.number(&[3, 2], 0)), (1, 1, 2));
        assert_eq!((table.frames(1), table.frames(0), table.frames(9)), (&[3, 2, 1][..], &[][..], &[][..]));
        let deep: Vec<u64> = (1..10_000).collect();
        let number = table.number(&deep, 5);
        assert_eq!((table.frames(number).len(), table.frames(number)[0]), (MAX_FRAMES, 6));
        let passed = table.number_of_passed(&[9, 8, 3, 2, 1], 2);
        assert_eq!((table.number_of_passed(&[3, 2], 0), table.frames(passed)), (0, &[9, 8][..]));
        let alone = table.number_of_site(77);
        assert_eq!((table.number_of_site(77), table.frames(alone)), (alone, &[77][..]));
        let known = table.finish();
        assert_eq!((known.distinct, known.frames(1)), (4, &[3, 2, 1][..]), "a call-site is no stack");
        assert_eq!(StackTable::default().number(&[], 0), 0);
    }
}
