//! Growth of the table: slots move from the old memory to the new one, on one thread or on two.
//!
//! Addresses stand in the order of their hashes, more or less, however many slots there are. So slots move from the end of one
//! memory to the end of another, consumed memory goes back on the way, and a table never needs both. Each half of the old
//! memory belongs into one part of the new one, so two threads can move a half each.

use std::panic::resume_unwind;
use std::thread;

use crate::memory::hashing::{Seed, place};
use crate::memory::prefetch::prefetch;
use crate::memory::zeroed::{DrainingArray, Memory, PIECE, ZeroedArray};
use crate::pairing::slot::{AllocInfo, Bucket, SLOTS, Slot};

const BUCKETS_PER_PIECE: usize = PIECE / size_of::<Bucket>();
/// Prefetch distance, in buckets.
const AHEAD: usize = 32;

/// Allocations of a bucket's slots.
pub(super) type BucketInfos = [AllocInfo; SLOTS];

/// Buckets for at least this many slots, all empty, and their allocations.
pub(super) fn new_slots(
    slots: usize,
    with_alloc_infos: bool,
) -> (ZeroedArray<Bucket>, Option<ZeroedArray<BucketInfos>>) {
    let len = slots.div_ceil(SLOTS).max(1);
    (ZeroedArray::new(len), with_alloc_infos.then(|| ZeroedArray::new(len)))
}

/// Moves all slots, half of them on a thread of its own. Returns the slots without a place in their half.
pub(super) fn move_in_halves(old: OldHalf, new: NewHalf<'_>, seed: Seed) -> Vec<(Slot, AllocInfo)> {
    let middle = old.buckets.len() / 2;
    // The least hash that belongs into the second half.
    let least = ((middle as u64) << 32).div_ceil(old.buckets.len() as u64) as u32;
    let [old_lower, old_upper] = old.split(middle);
    let of = new.of;
    let [lower, upper] = new.split(place(least, of));
    fill_both((lower, old_lower), (upper, old_upper), seed)
}

/// Buckets that a table had, and their allocations: all, or one half of them.
pub(super) struct OldHalf {
    buckets: DrainingArray<Bucket>,
    alloc_infos: Option<DrainingArray<BucketInfos>>,
}

impl OldHalf {
    pub(super) fn new(buckets: ZeroedArray<Bucket>, alloc_infos: Option<ZeroedArray<BucketInfos>>) -> OldHalf {
        OldHalf { buckets: buckets.into_draining(), alloc_infos: alloc_infos.map(ZeroedArray::into_draining) }
    }

    /// Buckets before `middle`, and from there on.
    fn split(self, middle: usize) -> [OldHalf; 2] {
        let [lower, upper] = self.buckets.split(middle);
        let (lower_infos, upper_infos) = self.alloc_infos.map(|infos| infos.split(middle).into()).unzip();
        [OldHalf { buckets: lower, alloc_infos: lower_infos }, OldHalf { buckets: upper, alloc_infos: upper_infos }]
    }

    /// Hands each slot that is not empty to `take`, from the last bucket on; consumed memory goes back to the kernel.
    #[inline(always)]
    pub(super) fn each_taken(mut self, mut take: impl FnMut(Slot, AllocInfo)) {
        while let Some(Bucket(slots)) = self.buckets.take_last() {
            let infos = self.alloc_infos.as_mut().and_then(DrainingArray::take_last).unwrap_or_default();
            for (slot, info) in slots.into_iter().zip(infos) {
                if slot.state.is_nothing() {
                    break;
                }
                take(slot, info);
            }
        }
    }
}

/// Buckets of a table that grows, and their allocations: all, or one half of them.
pub(super) struct NewHalf<'a> {
    buckets: &'a mut [Bucket],
    alloc_infos: Option<&'a mut [BucketInfos]>,
    /// Number of the first bucket.
    first: usize,
    /// Buckets of the whole table.
    of: usize,
    memory: Memory<'a>,
}

impl<'a> NewHalf<'a> {
    /// All buckets of a table.
    pub(super) fn whole(
        buckets: &'a mut ZeroedArray<Bucket>,
        alloc_infos: Option<&'a mut ZeroedArray<BucketInfos>>,
    ) -> NewHalf<'a> {
        let (buckets, memory) = buckets.with_memory();
        let of = buckets.len();
        NewHalf { buckets, alloc_infos: alloc_infos.map(|infos| &mut **infos), first: 0, of, memory }
    }

    /// Buckets before `middle`, and from there on.
    fn split(self, middle: usize) -> [NewHalf<'a>; 2] {
        let NewHalf { buckets, alloc_infos, first, of, memory } = self;
        let (lower, upper) = buckets.split_at_mut(middle);
        let (lower_infos, upper_infos) = alloc_infos.map(|infos| infos.split_at_mut(middle)).unzip();
        [
            NewHalf { buckets: lower, alloc_infos: lower_infos, first, of, memory },
            NewHalf { buckets: upper, alloc_infos: upper_infos, first: first + middle, of, memory },
        ]
    }

    /// Takes the slots of `old`, but those that `leaves` takes. Returns the slots without a place here: they belong to the other
    /// half, or would stand behind the last bucket.
    #[inline(always)]
    pub(super) fn fill(
        self,
        old: OldHalf,
        seed: Seed,
        mut leaves: impl FnMut(&Slot) -> bool,
    ) -> Vec<(Slot, AllocInfo)> {
        let NewHalf { buckets, mut alloc_infos, first, of, memory } = self;
        let mut strays = Vec::new();
        let mut entered = usize::MAX;
        old.each_taken(|slot, info| {
            if leaves(&slot) {
                return;
            }
            let home = place(seed.hash(slot.address), of);
            let Some(mut bucket) = home.checked_sub(first).filter(|&bucket| bucket < buckets.len()) else {
                return strays.push((slot, info));
            };
            let piece = home / BUCKETS_PER_PIECE;
            if piece < entered {
                memory.populate(piece);
                entered = piece;
            }
            prefetch(buckets, bucket.saturating_sub(AHEAD));
            let index = loop {
                let Some(at) = buckets.get(bucket) else { return strays.push((slot, info)) };
                match at.first_empty() {
                    Some(index) => break index & (SLOTS - 1),
                    None => bucket += 1,
                }
            };
            buckets[bucket].0[index] = slot;
            if let Some(alloc_infos) = &mut alloc_infos {
                alloc_infos[bucket][index] = info;
            }
        });
        strays
    }
}

/// Fills the lower half on a thread of its own, if the system has one to give. Returns the slots without a place in their half.
fn fill_both(lower: (NewHalf<'_>, OldHalf), upper: (NewHalf<'_>, OldHalf), seed: Seed) -> Vec<(Slot, AllocInfo)> {
    let mut lower = Some(lower);
    let mut fill_lower = || lower.take().map_or_else(Vec::new, |(new, old)| new.fill(old, seed, |_| false));
    let mut strays = thread::scope(|scope| {
        let helper = thread::Builder::new().spawn_scoped(scope, &mut fill_lower);
        let (new, old) = upper;
        let mut strays = new.fill(old, seed, |_| false);
        if let Ok(helper) = helper {
            strays.extend(helper.join().unwrap_or_else(|panic| resume_unwind(panic)));
        }
        strays
    });
    strays.extend(fill_lower());
    strays
}
