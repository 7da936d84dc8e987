//! Set of freed addresses: those that have left the slots of the table. Eight bytes each, in an open-addressing table that is full
//! to 53 to 80%. The table keeps one set for the current loss epoch and one for all before.

use crate::memory::hashing::place;
use crate::memory::zeroed::{DrainingArray, ZeroedArray};

/// A set of addresses, found by hashes that the caller knows.
#[derive(Debug, Default)]
pub(crate) struct FreedSet {
    /// Address, or 0 where the slot is empty.
    slots: ZeroedArray<u64>,
    taken: usize,
    /// Address 0 is in the set.
    zero: bool,
}

/// 4 KiB.
const FIRST_SLOTS: usize = 512;

impl FreedSet {
    pub(crate) fn len(&self) -> usize {
        self.taken + usize::from(self.zero)
    }

    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.slots)
    }

    /// Memory with `more` addresses, in bytes.
    pub(crate) fn bytes_with(&self, more: usize) -> usize {
        self.slots_with(more) * size_of::<u64>()
    }

    fn slots_with(&self, more: usize) -> usize {
        let (taken, slots) = (self.taken + more, self.slots.len());
        match (taken * 5 > slots * 4, taken * 4 < slots) {
            (true, _) => (taken.max(slots) * 3 / 2).max(FIRST_SLOTS),
            // Most addresses have left.
            (_, true) => slots.min((taken * 3 / 2).max(FIRST_SLOTS)),
            _ => slots,
        }
    }

    /// Set with room for `more` addresses, to be filled.
    pub(crate) fn grow(self, more: usize) -> Growing {
        let slots = self.slots_with(more);
        if slots == self.slots.len() {
            return Growing { set: self, old: ZeroedArray::default().into_draining() };
        }
        let set = FreedSet { slots: ZeroedArray::new(slots), ..FreedSet::default() };
        Growing { set: FreedSet { zero: self.zero, ..set }, old: self.slots.into_draining() }
    }

    /// Adds an address; the caller has made room.
    fn put(&mut self, address: u64, hash: u32) {
        let index = self.find(address, hash);
        self.taken += usize::from(self.slots[index] == 0);
        self.slots[index] = address;
    }

    pub(crate) fn contains(&self, address: u64, hash: u32) -> bool {
        match address {
            0 => self.zero,
            _ => self.taken > 0 && self.slots[self.find(address, hash)] != 0,
        }
    }

    /// Takes an address out; false where it was not in the set.
    #[inline]
    pub(crate) fn remove(&mut self, address: u64, hash: impl Fn(u64) -> u32) -> bool {
        self.len() > 0 && self.find_and_remove(address, hash)
    }

    fn find_and_remove(&mut self, address: u64, hash: impl Fn(u64) -> u32) -> bool {
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
        // Addresses behind the hole that a search would not find any more move up.
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

    /// Takes all addresses out, largest hashes first.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = u64> {
        let FreedSet { slots, zero, .. } = std::mem::take(self);
        let mut slots = slots.into_draining();
        let addresses = std::iter::from_fn(move || slots.take_last()).filter(|&address| address != 0);
        addresses.chain(zero.then_some(0))
    }

    /// Slot of the address, or the empty slot for it.
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

/// Set that takes in many addresses. They come with the largest hashes first, and the old ones move to the new memory beside
/// them: the new memory fills from its end, as the old one goes back to the kernel.
#[derive(Debug)]
pub(crate) struct Growing {
    set: FreedSet,
    /// Addresses that have not moved yet.
    old: DrainingArray<u64>,
}

impl Growing {
    /// Adds an address; `hash` gives the hash of any address of the set.
    pub(crate) fn insert(&mut self, address: u64, hash: impl Fn(u64) -> u32) {
        if address == 0 {
            self.set.zero = true;
            return;
        }
        let own = hash(address);
        self.move_from(own, hash);
        self.set.put(address, own);
    }

    /// Moves the rest of the old addresses; returns the set.
    pub(crate) fn into_set(mut self, hash: impl Fn(u64) -> u32) -> FreedSet {
        self.move_from(0, hash);
        self.set
    }

    fn move_from(&mut self, least: u32, hash: impl Fn(u64) -> u32) {
        while let Some(address) = self.old.last() {
            let own = hash(address);
            if address != 0 && own < least {
                return;
            }
            self.old.take_last();
            if address != 0 {
                self.set.put(address, own);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn it_gives_memory_back_where_most_have_left() {
        let hash = |address: u64| (address as u32).wrapping_mul(0x9e37_79b9);
        let mut addresses: Vec<u64> = (1..=100_000).collect();
        addresses.sort_unstable_by_key(|&address| std::cmp::Reverse(hash(address)));
        let mut growing = FreedSet::default().grow(addresses.len());
        addresses.iter().for_each(|&address| growing.insert(address, hash));
        let mut set = growing.into_set(hash);
        let full = set.bytes();
        assert!((1..=80_000).all(|address| set.remove(address, hash)));
        let expected = set.bytes_with(0);
        let mut set = set.grow(0).into_set(hash);
        assert!(set.bytes() == expected && set.bytes() * 4 < full, "{} of {full} bytes", set.bytes());
        assert!((80_001..=100_000).all(|address| set.remove(address, hash)) && set.len() == 0);
    }

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
                    let mut growing = set.grow(1);
                    growing.insert(address, hash);
                    set = growing.into_set(hash);
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
