//! Call stacks of the kernel, each kept once: return addresses, the innermost first.

use std::collections::HashMap;
use std::num::NonZeroU32;

/// A stack, interned in [`Stacks`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StackId(NonZeroU32);

impl StackId {
    /// Position of the stack in its [`Stacks`], from 0, without holes.
    pub fn index(self) -> usize {
        self.0.get() as usize - 1
    }
}

/// Interned stacks. Frames are return addresses, zero-extended to 64 bits: a symbol is looked up at the address less one.
#[derive(Clone, Debug, Default)]
pub struct Stacks {
    all: Vec<Box<[u64]>>,
    ids: HashMap<Box<[u64]>, StackId>,
}

impl Stacks {
    /// The id of the stack of these frames, innermost first, which is added if it is new.
    pub fn intern(&mut self, frames: &[u64]) -> StackId {
        if let Some(&id) = self.ids.get(frames) {
            return id;
        }
        // 2^32 stacks do not fit in memory, so this never saturates.
        let id = StackId(NonZeroU32::MIN.saturating_add(u32::try_from(self.all.len()).unwrap_or(u32::MAX)));
        self.all.push(frames.into());
        self.ids.insert(frames.into(), id);
        id
    }

    /// Frames of a stack, innermost first.
    pub fn get(&self, id: StackId) -> &[u64] {
        self.all.get(id.index()).map_or(&[], |frames| frames)
    }

    /// Number of stacks.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// True if there is no stack.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
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
}
