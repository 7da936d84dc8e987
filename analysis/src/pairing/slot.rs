//! Slot of the table: an address, its last event in one word, and four slots to a cache line.

use serde::{Deserialize, Serialize};
use zerocopy::{FromZeros, Immutable};

use crate::pairing::loss::LossEpoch;

/// Facts of an allocation that only a list of live objects shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromZeros, Immutable, Serialize, Deserialize)]
pub(crate) struct AllocInfo {
    /// Order key of the allocation.
    pub(crate) at: u64,
    /// Tie-breaker among events of this key. From the 2^32th of them on they share one.
    pub(crate) tie: u32,
    /// Thread, or [`crate::order::pair_event::NO_PID`].
    pub(crate) pid: u32,
}

const FREED: u32 = 1 << 30;
const LIVE: u32 = 2 << 30;
/// Frame of a block of pages, whose state is elsewhere.
const BLOCK: u32 = 3 << 30;
const STATE: u32 = 3 << 30;
/// Bit of a freed address whose free was a deferred one.
const GIVEN_UP: u32 = 1;
/// Bit of an object whose class has no sizes: they are in `Table::own_sizes`.
const UNSIZED: u32 = 1 << 29;

/// Last event at an address: none, the allocation of an object of a class in a stream, a free, or a deferred free; and its loss epoch. One word,
/// which the processor writes and soon reads again as one: state, `UNSIZED` and class in 32 bits, above them stream and epoch; 0
/// for no event.
#[derive(Clone, Copy, Debug, Default, FromZeros, Immutable)]
#[cfg_attr(test, derive(PartialEq, Eq))]
pub(crate) struct SlotState(u64);

impl SlotState {
    /// Allocation of an object of a class below 2^29, in the stream of this number.
    #[inline(always)]
    pub(crate) fn alloc(class: u32, is_unsized: bool, stream: u16, epoch: LossEpoch) -> SlotState {
        let flag = if is_unsized { UNSIZED } else { 0 };
        let object = u64::from(LIVE | flag | class & (UNSIZED - 1));
        SlotState(object | u64::from(stream) << 32 | u64::from(epoch.bits()) << 48)
    }

    /// Free in an epoch.
    #[inline(always)]
    pub(crate) const fn free(epoch: LossEpoch) -> SlotState {
        SlotState(FREED as u64 | (epoch.bits() as u64) << 48)
    }

    /// Deferred free in an epoch: the address is given up.
    #[inline(always)]
    pub(crate) fn given_up(epoch: LossEpoch) -> SlotState {
        SlotState(u64::from(FREED | GIVEN_UP) | u64::from(epoch.bits()) << 48)
    }

    /// Frame of the block of pages of this number.
    #[inline(always)]
    pub(super) fn block(number: u32) -> SlotState {
        SlotState(u64::from(BLOCK) | u64::from(number) << 32)
    }

    /// Number of the block that the frame belongs to; `None` for any other state.
    #[inline(always)]
    pub(super) fn block_number(self) -> Option<u32> {
        (self.0 as u32 & STATE == BLOCK).then_some((self.0 >> 32) as u32)
    }

    /// True where both are the same word: a block's frames, or frames of like allocations.
    #[inline(always)]
    pub(super) fn is_same_word(self, other: SlotState) -> bool {
        self.0 == other.0
    }

    /// The two halves of the word.
    #[inline(always)]
    pub(super) fn halves(self) -> [u32; 2] {
        [self.0 as u32, (self.0 >> 32) as u32]
    }

    /// State of the halves from [`SlotState::halves`].
    #[inline(always)]
    pub(super) fn from_halves([low, high]: [u32; 2]) -> SlotState {
        SlotState(u64::from(low) | u64::from(high) << 32)
    }

    #[inline(always)]
    pub(crate) fn is_nothing(self) -> bool {
        self.0 == 0
    }

    #[inline(always)]
    pub(crate) fn is_live(self) -> bool {
        self.0 as u32 & STATE == LIVE
    }

    /// True for a deferred free.
    #[inline(always)]
    pub(crate) fn is_given_up(self) -> bool {
        self.0 as u32 == FREED | GIVEN_UP
    }

    /// True for a free in the present epoch, which is not [`LossEpoch::IN_GAP`].
    #[inline(always)]
    pub(super) fn is_freed_in(self, present: LossEpoch) -> bool {
        self.0 == SlotState::free(present).0
    }

    /// True for a deferred free in the present epoch, which is not [`LossEpoch::IN_GAP`].
    #[inline(always)]
    pub(super) fn is_given_up_in(self, present: LossEpoch) -> bool {
        self.0 == SlotState::given_up(present).0
    }

    /// True for a live object that has sizes of its own.
    #[inline(always)]
    pub(crate) fn is_unsized(self) -> bool {
        self.0 as u32 & UNSIZED != 0
    }

    /// Class of a live object.
    #[inline(always)]
    pub(crate) fn class(self) -> u32 {
        self.0 as u32 & (UNSIZED - 1)
    }

    /// Stream of a live object's allocation.
    #[inline(always)]
    pub(crate) fn stream(self) -> u16 {
        (self.0 >> 32) as u16
    }

    #[inline(always)]
    pub(crate) fn epoch(self) -> LossEpoch {
        LossEpoch::from_bits((self.0 >> 48) as u16)
    }

    /// Sets the epoch to [`LossEpoch::IN_GAP`].
    pub(super) fn forget_epoch(&mut self) {
        self.0 &= u64::MAX >> 16;
    }
}

/// An address and its last event; an empty slot has none.
#[derive(Clone, Copy, Debug, FromZeros, Immutable)]
pub(super) struct Slot {
    pub(super) address: u64,
    pub(super) state: SlotState,
}

/// Slots of a bucket.
pub(super) const SLOTS: usize = 4;

/// Cache line of slots. Empty ones come last.
#[derive(Clone, Copy, Debug, FromZeros, Immutable)]
#[repr(align(64))]
pub(super) struct Bucket(pub(super) [Slot; SLOTS]);

impl Bucket {
    /// The slot of the address, or the first empty one; `None`: neither is here.
    #[inline(always)]
    pub(super) fn find(&self, address: u64) -> Option<usize> {
        // Without a branch for each slot: the processor cannot predict which one it is.
        let [a, b, c, d] = &self.0;
        let is = |slot: &Slot, bit: u32| u32::from(slot.address == address) << bit;
        let found = is(a, 0) | is(b, 1) | is(c, 2) | is(d, 3);
        if found == 0 { self.first_empty() } else { Some(found.trailing_zeros() as usize) }
    }

    /// True where neither the slot of the address is here nor an empty one.
    #[inline(always)]
    pub(super) fn is_full_of_others(&self, address: u64) -> bool {
        let [a, b, c, d] = &self.0;
        let is_here = (a.address == address) | (b.address == address) | (c.address == address) | (d.address == address);
        !(is_here | d.state.is_nothing())
    }

    /// The first empty slot.
    #[inline(always)]
    pub(super) fn first_empty(&self) -> Option<usize> {
        // Without a branch: the processor cannot predict how many are taken, either.
        let taken = self.0.iter().map(|slot| usize::from(!slot.state.is_nothing())).sum::<usize>();
        (taken < SLOTS).then_some(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A state is one word: no part of it changes another.
    #[test]
    fn class_sizes_stream_and_epoch_are_kept_apart() {
        let last = LossEpoch::from_bits(u16::MAX);
        for class in [0, 1, 0x1234_5678, UNSIZED - 1] {
            for (stream, epoch, is_unsized) in
                [(0, LossEpoch::IN_GAP, true), (u16::MAX, LossEpoch::FIRST, false), (7, last, true)]
            {
                let state = SlotState::alloc(class, is_unsized, stream, epoch);
                assert!(state.is_live() && !state.is_nothing());
                assert_eq!((state.class(), state.is_unsized()), (class, is_unsized));
                assert_eq!((state.stream(), state.epoch().bits()), (stream, epoch.bits()));
                let freed = SlotState::free(epoch);
                assert!(!freed.is_live() && !freed.is_nothing() && freed.epoch().bits() == epoch.bits());
                assert!(!freed.is_unsized());
                let given_up = SlotState::given_up(epoch);
                assert!(!given_up.is_live() && !given_up.is_nothing() && given_up.epoch().bits() == epoch.bits());
                assert_eq!([state, freed, given_up].map(SlotState::is_given_up), [false, false, true]);
            }
        }
    }
}
