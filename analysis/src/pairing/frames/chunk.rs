//! Chunk of 256 page frames: the words of those that are live.

use crate::memory::heap::heap_bytes;
use crate::pairing::slot::SlotState;

/// Frames of a region.
pub(super) const REGION: usize = 4096;
/// Frames of a chunk.
pub(super) const CHUNK: usize = 256;
/// Chunks of a region.
pub(super) const CHUNKS: usize = REGION / CHUNK;
/// Words of bits of a chunk.
pub(super) const WORDS: usize = CHUNK / 64;
/// Live frames from which a chunk has a word for each frame. Were they fewer, a region that has just got chunks could take more
/// than 16 bytes a live frame.
const MANY: usize = 176;
/// Live frames from which on down a chunk with a word for each frame has one for each live frame again.
const FEW: usize = 112;

/// A bit for each frame of a chunk.
pub(super) type Bits = [u64; WORDS];

/// Words of the live frames of a chunk.
#[derive(Clone, Debug)]
pub(super) enum Chunk {
    /// The same for all.
    Same(SlotState),
    /// One for each live frame; or, if there are [`CHUNK`], one for each frame.
    Each(Vec<SlotState>),
}

/// Words of bits that hold `pages` bits from bit `from` on, each with the mask of these.
#[inline]
pub(super) fn masks(from: usize, pages: usize) -> impl Iterator<Item = (usize, u64)> {
    let end = from + pages;
    (from / 64..end.div_ceil(64)).map(move |word| {
        let low = from.saturating_sub(word * 64);
        let high = (end - word * 64).min(64);
        (word, u64::MAX >> (64 - (high - low)) << low)
    })
}

/// Live ones of `pages` frames from frame `from` on.
#[inline]
fn live(bits: &Bits, from: usize, pages: usize) -> usize {
    masks(from, pages).map(|(word, mask)| (bits[word] & mask).count_ones() as usize).sum()
}

/// Live frames of a chunk before frame `index`.
fn rank(bits: &Bits, index: usize) -> usize {
    live(bits, 0, index)
}

/// Live frames of a chunk.
fn count(bits: &Bits) -> usize {
    live(bits, 0, CHUNK)
}

impl Chunk {
    /// Bytes of memory beside its own.
    #[inline]
    pub(super) fn bytes(&self) -> usize {
        match self {
            Chunk::Same(_) => 0,
            Chunk::Each(words) => heap_bytes(words.capacity() * size_of::<SlotState>()),
        }
    }

    /// Hands over each live frame and its word, in order.
    pub(super) fn each_live(&self, bits: &Bits, mut take: impl FnMut(usize, SlotState)) {
        let live = (0..CHUNK).filter(|index| bits[index / 64] >> (index % 64) & 1 != 0);
        match self {
            Chunk::Same(word) => live.for_each(|index| take(index, *word)),
            Chunk::Each(words) if words.len() == CHUNK => live.for_each(|index| take(index, words[index])),
            Chunk::Each(words) => live.zip(words).for_each(|(index, word)| take(index, *word)),
        }
    }

    /// Changes the words of single pages.
    pub(super) fn each_single(&mut self, change: impl Fn(&mut SlotState)) {
        let words = match self {
            Chunk::Same(word) => std::slice::from_mut(word),
            Chunk::Each(words) => words.as_mut_slice(),
        };
        words.iter_mut().filter(|word| word.is_live()).for_each(change);
    }

    /// Takes frames out, and tells the words of those that were live to `hit`; returns their number.
    #[inline]
    pub(super) fn take(
        &mut self,
        bits: &mut Bits,
        first: usize,
        pages: usize,
        hit: &mut dyn FnMut(SlotState, u32),
    ) -> u32 {
        let taken = live(bits, first, pages) as u32;
        if taken == 0 {
            return 0;
        }
        match self {
            Chunk::Same(word) => hit(*word, taken),
            Chunk::Each(words) if words.len() == CHUNK => {
                for (word, mask) in masks(first, pages) {
                    let mut live = bits[word] & mask;
                    while live != 0 {
                        let index = word * 64 + live.trailing_zeros() as usize;
                        hit(words[index], 1);
                        live &= live - 1;
                    }
                }
            }
            Chunk::Each(words) => {
                let rank = rank(bits, first);
                words.drain(rank..rank + taken as usize).for_each(|word| hit(word, 1));
            }
        }
        masks(first, pages).for_each(|(word, mask)| bits[word] &= !mask);
        self.shrink(bits);
        taken
    }

    /// Gives memory back that few live frames do not need.
    #[inline]
    fn shrink(&mut self, bits: &Bits) {
        let Chunk::Each(words) = self else { return };
        let live = if words.len() == CHUNK { count(bits) } else { words.len() };
        if live == 0 {
            *self = Chunk::Same(SlotState::default());
        } else if words.len() == CHUNK && live < FEW {
            let mut packed = Vec::with_capacity(live + live / 16 + 2);
            self.each_live(bits, |_, word| packed.push(word));
            *self = Chunk::Each(packed);
        } else if words.len() < CHUNK && words.capacity() > live + (live / 2 + 8).min(live.saturating_sub(10).max(4)) {
            words.shrink_to(live + live / 16 + 2);
        }
    }

    /// Makes frames live, none of which is.
    #[inline]
    pub(super) fn put(&mut self, bits: &mut Bits, first: usize, pages: usize, now: SlotState) {
        match self {
            Chunk::Same(word) if word.is_same_word(now) => {}
            Chunk::Same(word) if word.is_nothing() || bits.iter().all(|bits| *bits == 0) => *word = now,
            Chunk::Same(word) => {
                let live = count(bits);
                *self = Chunk::Each(vec![*word; live]);
                self.insert(bits, first, pages, now);
            }
            Chunk::Each(_) => self.insert(bits, first, pages, now),
        }
        masks(first, pages).for_each(|(word, mask)| bits[word] |= mask);
    }

    /// Adds the words of frames that become live.
    fn insert(&mut self, bits: &Bits, first: usize, pages: usize, now: SlotState) {
        let Chunk::Each(words) = self else { return };
        let live = words.len();
        if live == CHUNK {
            words[first..first + pages].fill(now);
            return;
        }
        if live + pages >= MANY {
            let mut all = vec![now; CHUNK];
            let mut packed = words.iter();
            for (word, mut live) in bits.iter().copied().enumerate() {
                while live != 0 {
                    if let Some(packed) = packed.next() {
                        all[word * 64 + live.trailing_zeros() as usize] = *packed;
                    }
                    live &= live - 1;
                }
            }
            *words = all;
            return;
        }
        if words.capacity() - live < pages {
            words.reserve_exact((pages + live / 16 + 2) | 1);
        }
        let rank = rank(bits, first);
        words.resize(live + pages, now);
        words.copy_within(rank..live, rank + pages);
        words[rank..rank + pages].fill(now);
    }
}
