//! What lines mean that a text has many times.

use std::hash::BuildHasher;

use foldhash::fast::RandomState;

/// Limit of different lines; kernels with all their modules have some hundred thousand frames.
const MAX_LINES: usize = 1 << 20;

/// Slot of the table: the hashes of a line, and what it means.
#[derive(Clone, Copy, Debug)]
struct Slot<V> {
    hashes: [u64; 2],
    value: Option<V>,
}

/// Meanings of lines, found by 128 bits of hashes with random seeds.
///
/// The lines themselves are not kept: reading one of 500,000 lines again from memory takes longer than its hashes, and a text of 2^20
/// different lines has two with the same hashes once in 2^88 times.
#[derive(Debug)]
pub(super) struct LineTable<V> {
    /// Open addressing: a power of two, at most three quarters of it used.
    slots: Vec<Slot<V>>,
    used: usize,
    hashers: [RandomState; 2],
}

impl<V> Default for LineTable<V> {
    fn default() -> LineTable<V> {
        LineTable { slots: Vec::new(), used: 0, hashers: [RandomState::default(), RandomState::default()] }
    }
}

impl<V: Copy> LineTable<V> {
    fn hashes(&self, line: &[u8]) -> [u64; 2] {
        let [first, second] = &self.hashers;
        [first.hash_one(line), second.hash_one(line)]
    }

    /// The slot of a line, or the free one that it may take; `None` without slots.
    #[inline]
    fn place(&self, hashes: [u64; 2]) -> Option<usize> {
        let mask = self.slots.len().checked_sub(1)?;
        let mut at = hashes[0] as usize & mask;
        while self.slots.get(at).is_some_and(|slot| slot.value.is_some() && slot.hashes != hashes) {
            at = at.wrapping_add(1) & mask;
        }
        Some(at)
    }

    /// The meaning of a line, where it is known.
    #[inline]
    pub(super) fn get(&self, line: &[u8]) -> Option<V> {
        self.slots.get(self.place(self.hashes(line))?)?.value
    }

    /// Notes the meaning of a line, unless there are too many.
    pub(super) fn insert(&mut self, line: &[u8], value: V) {
        if self.used >= MAX_LINES {
            return;
        }
        if self.slots.len().saturating_mul(3) <= self.used.saturating_mul(4) {
            self.grow();
        }
        let hashes = self.hashes(line);
        if let Some(slot) = self.place(hashes).and_then(|at| self.slots.get_mut(at)) {
            self.used = self.used.saturating_add(usize::from(slot.value.is_none()));
            *slot = Slot { hashes, value: Some(value) };
        }
    }

    #[cold]
    fn grow(&mut self) {
        let larger = vec![Slot { hashes: [0; 2], value: None }; self.slots.len().saturating_mul(2).max(64)];
        let before = std::mem::replace(&mut self.slots, larger);
        for slot in before.into_iter().filter(|slot| slot.value.is_some()) {
            if let Some(place) = self.place(slot.hashes).and_then(|at| self.slots.get_mut(at)) {
                *place = slot;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_found_again() {
        let mut table = LineTable::default();
        let line = |number: usize| format!(" function_{number}+0x1/0x2").into_bytes();
        assert_eq!(table.get(&line(0)), None);
        for number in 0..3000 {
            table.insert(&line(number), number);
        }
        table.insert(&line(7), 8);
        assert_eq!((table.used, table.get(&line(7))), (3000, Some(8)));
        for number in 8..3000 {
            assert_eq!(table.get(&line(number)), Some(number));
        }
        assert_eq!((table.get(b" function_1+0x1/0x"), table.get(b"")), (None, None));
    }
}
