//! Hash of an address: it picks the partition, and the place in its table. The hash is keyed at random, so that no trace can make
//! all of its addresses collide.

use std::hash::{BuildHasher, RandomState};

/// Frames of pages that are of one partition, whatever the number of partitions: `1 << FRAME_BITS`. No block reaches further.
pub(crate) const FRAME_BITS: u32 = 16;

/// Random key of one analysis.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seed {
    xor: u64,
    factor: u64,
}

impl Seed {
    pub(crate) fn random() -> Seed {
        let state = RandomState::new();
        Seed { xor: state.hash_one(0), factor: state.hash_one(1) | 1 }
    }

    /// Hash of 32 bits. Each bit of the address changes bits in all places.
    #[inline]
    pub(crate) fn hash(self, address: u64) -> u32 {
        let product = u128::from(address ^ self.xor) * u128::from(self.factor);
        (((product >> 64) as u64 ^ product as u64) >> 32) as u32
    }
}

/// Place of a hash among `places`, which are fewer than 2^32.
#[inline]
pub(crate) fn place(hash: u32, places: usize) -> usize {
    (u64::from(hash).wrapping_mul(places as u64) >> 32) as usize
}

/// Partition of a hash, of at most 256. Each partition has hashes at all places.
#[inline]
pub(crate) fn part(hash: u32, parts: u32) -> u8 {
    place(hash.wrapping_mul(0x9e37_79b1), parts as usize) as u8
}
