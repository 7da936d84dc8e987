//! Addresses that were freed some while ago: which they are, and whether a gap has begun since. Eight bytes each and what
//! an open-addressing table at 53 to 80% needs beside them.

use crate::hashing::place;
use crate::zeroed::Zeroed;

/// A set of addresses, found by hashes that the caller knows.
#[derive(Debug, Default)]
pub(crate) struct FreedSet {
    /// 0: nobody's.
    slots: Zeroed<u64>,
    taken: usize,
    /// Whether address 0 is in it.
    zero: bool,
}

/// A page of them.
const FIRST_SLOTS: usize = 512;

impl FreedSet {
    pub(crate) fn len(&self) -> usize {
        self.taken + usize::from(self.zero)
    }

    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.slots)
    }

    /// Makes room for so many more. Addresses that come in the order of their hashes, as those of a table do, would crowd in a
    /// set that grows on the way.
    pub(crate) fn reserve(&mut self, more: usize, hash: impl Fn(u64) -> u32) {
        let taken = self.taken + more;
        if taken * 5 <= self.slots.len() * 4 {
            return;
        }
        let slots = taken.max(self.slots.len()) * 3 / 2;
        for address in addresses(std::mem::replace(&mut self.slots, Zeroed::new(slots.max(FIRST_SLOTS)))) {
            let index = self.find(address, hash(address));
            self.slots[index] = address;
        }
    }

    /// Adds an address; `hash` is that of any address of the set.
    pub(crate) fn insert(&mut self, address: u64, hash: impl Fn(u64) -> u32) {
        if address == 0 {
            self.zero = true;
            return;
        }
        self.reserve(1, &hash);
        let index = self.find(address, hash(address));
        self.taken += usize::from(self.slots[index] == 0);
        self.slots[index] = address;
    }

    /// Takes an address out; whether it was there.
    pub(crate) fn remove(&mut self, address: u64, hash: impl Fn(u64) -> u32) -> bool {
        if address == 0 {
            return std::mem::take(&mut self.zero);
        }
        if self.taken == 0 {
            return false;
        }
        let mut hole = self.find(address, hash(address));
        if self.slots[hole] == 0 {
            return false;
        }
        self.taken -= 1;
        // What stands behind it and would not be found any more moves up.
        let len = self.slots.len();
        let mut index = hole;
        loop {
            self.slots[hole] = 0;
            loop {
                index = if index + 1 == len { 0 } else { index + 1 };
                let next = self.slots[index];
                if next == 0 {
                    return true;
                }
                let home = place(hash(next), len);
                let (to_hole, to_home) = ((index + len - hole) % len, (index + len - home) % len);
                if to_home >= to_hole {
                    self.slots[hole] = next;
                    hole = index;
                    break;
                }
            }
        }
    }

    /// All addresses, which leave.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = u64> {
        let zero = std::mem::take(&mut self.zero).then_some(0);
        self.taken = 0;
        addresses(std::mem::take(&mut self.slots)).chain(zero)
    }

    /// Slot of the address, or the empty one where it belongs.
    fn find(&self, address: u64, hash: u32) -> usize {
        let mut index = place(hash, self.slots.len());
        loop {
            let slot = self.slots[index];
            if slot == address || slot == 0 {
                return index;
            }
            index = if index + 1 == self.slots.len() { 0 } else { index + 1 };
        }
    }
}

/// Those in these slots, from the end, whose memory is given back on the way.
fn addresses(slots: Zeroed<u64>) -> impl Iterator<Item = u64> {
    slots.into_iter_from_end().filter(|&address| address != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// Against std's set, with hashes that collide often and wrap around.
    #[test]
    fn it_is_a_set() {
        for spread in [1u32, 1 << 20, 1 << 28] {
            let hash = |address: u64| u32::MAX - (address as u32 % 7).wrapping_mul(spread);
            let (mut set, mut known) = (FreedSet::default(), HashSet::new());
            let mut random = 1u64;
            for _ in 0..20_000 {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let address = (random >> 33) % 300;
                if random >> 63 == 0 {
                    set.insert(address, hash);
                    known.insert(address);
                } else {
                    assert_eq!(set.remove(address, hash), known.remove(&address), "{address}");
                }
                assert_eq!(set.len(), known.len());
            }
            assert_eq!(set.drain().collect::<HashSet<_>>(), known);
            assert_eq!(set.len(), 0);
        }
    }
}
