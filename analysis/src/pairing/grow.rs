//! Growth of the table: slots move from the old memory to the new one.
//!
//! Addresses are in the order of their hashes, more or less, however many slots there are. So slots move from the end of one
//! memory to the end of another, consumed memory goes back on the way, and a table never needs both.

use crate::memory::hashing::{Seed, place};
use crate::memory::prefetch::prefetch;
use crate::memory::zeroed::{DrainingArray, PIECE, ZeroedArray};
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

/// Buckets that a table had, and their allocations.
pub(super) struct OldSlots {
    buckets: DrainingArray<Bucket>,
    alloc_infos: Option<DrainingArray<BucketInfos>>,
}

impl OldSlots {
    pub(super) fn new(buckets: ZeroedArray<Bucket>, alloc_infos: Option<ZeroedArray<BucketInfos>>) -> OldSlots {
        OldSlots { buckets: buckets.into_draining(), alloc_infos: alloc_infos.map(ZeroedArray::into_draining) }
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

    /// Moves the slots into a table's new memory, but those that `leaves` takes. Returns the slots that would follow the last
    /// bucket.
    #[inline(always)]
    pub(super) fn move_to(
        self,
        buckets: &mut ZeroedArray<Bucket>,
        mut alloc_infos: Option<&mut ZeroedArray<BucketInfos>>,
        seed: Seed,
        mut leaves: impl FnMut(&Slot) -> bool,
    ) -> Vec<(Slot, AllocInfo)> {
        let (buckets, memory) = buckets.with_memory();
        let mut strays = Vec::new();
        let mut entered = usize::MAX;
        self.each_taken(|slot, info| {
            if leaves(&slot) {
                return;
            }
            let mut bucket = place(seed.hash(slot.address), buckets.len());
            let piece = bucket / BUCKETS_PER_PIECE;
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
