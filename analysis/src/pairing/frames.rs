//! Table of page frames: the block that each live frame belongs to, and one bit for each frame that was ever seen.
//!
//! Frames are kept in regions of 4,096, made when one of their frames is first seen. A region has a bit for each frame that was
//! seen; while frames are live, a bit for each of these, and 16 chunks of 256 frames. A chunk has one word where all of its live
//! frames have the same, else a word for each live frame, or, where most are live, one for each frame. The word of a single page
//! is the state of its allocation; that of a frame in a larger block is the number of the block in `blocks.rs`.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use crate::memory::hashing::FRAME_BITS;
use crate::pairing::blocks::{BlockState, Blocks};
use crate::pairing::loss::LossEpoch;
use crate::pairing::slot::{AllocInfo, SlotState};

/// Greatest order of a block. The decoder takes larger ones for unreadable.
const MAX_ORDER: u8 = FRAME_BITS as u8;

const REGION: usize = 4096;
const CHUNK: usize = 256;
const CHUNKS: usize = REGION / CHUNK;
/// Words of bits of a chunk.
const WORDS: usize = CHUNK / 64;
/// Live frames from which a chunk has a word for each frame. Fewer take no more than 16 bytes each.
const MANY: usize = 160;
/// Live frames from which on down a chunk with a word for each frame has one for each live frame again.
const FEW: usize = 112;
/// Bytes of a region's key and pointer in the map, at most.
const KEY_BYTES: usize = 32;

/// Frames of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameRange {
    pub(crate) first: u64,
    pub(crate) pages: u32,
    order: u8,
}

impl FrameRange {
    /// Frames of a block from `first` on, as far as they are of one partition.
    #[inline(always)]
    pub(crate) fn new(first: u64, order: u8) -> FrameRange {
        let order = order.min(MAX_ORDER);
        let left = (1 << FRAME_BITS) - (first as u32 & ((1 << FRAME_BITS) - 1));
        FrameRange { first, pages: left.min(1 << order), order }
    }
}

/// Live frames that an event has taken from one block, or from single pages of like allocations.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hit {
    word: SlotState,
    pub(crate) pages: u32,
}

/// End of pages that were live.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Off {
    /// Single pages of like allocations, each of which has ended.
    Singles(SlotState),
    /// Pages of a block.
    Block(BlockState),
}

/// Number of frames of an event that were live, seen before but not live, and never seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Before {
    pub(crate) live: u32,
    pub(crate) seen: u32,
    pub(crate) unseen: u32,
}

/// Words of the live frames of a chunk.
#[derive(Clone, Debug)]
enum Chunk {
    /// The same for all.
    Same(SlotState),
    /// One for each live frame; or, if there are [`CHUNK`], one for each frame.
    Each(Vec<SlotState>),
}

type Bits = [u64; WORDS];

/// Live frames of a region.
#[derive(Debug)]
struct LiveFrames {
    bits: [Bits; CHUNKS],
    chunks: [Chunk; CHUNKS],
    count: usize,
}

#[derive(Debug)]
struct Region {
    seen: [u64; REGION / 64],
    live: Option<Box<LiveFrames>>,
}

/// Frames of one partition.
#[derive(Debug)]
pub(crate) struct FrameTable {
    regions: HashMap<u64, Box<Region>, RandomState>,
    blocks: Blocks,
    /// Single pages that are live.
    singles: usize,
    /// Memory of regions and chunks.
    bytes: usize,
    max_bytes: usize,
    over_budget: bool,
}

impl FrameTable {
    /// Empty table; `keeps_infos`: [`FrameTable::live`] lists allocations.
    pub(crate) fn new(keeps_infos: bool) -> FrameTable {
        FrameTable {
            regions: HashMap::default(),
            blocks: Blocks::new(keeps_infos),
            singles: 0,
            bytes: 0,
            max_bytes: usize::MAX,
            over_budget: false,
        }
    }

    /// Bytes of memory.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes + self.blocks.bytes()
    }

    /// Limits the memory. A table that needs more is [`FrameTable::over_budget`].
    pub(crate) fn set_max_bytes(&mut self, max_bytes: usize) {
        self.max_bytes = max_bytes;
    }

    /// True once the limit was too low: the table takes no more events, and results are invalid.
    pub(crate) fn over_budget(&self) -> bool {
        self.over_budget
    }

    /// Number of allocations that have live pages.
    pub(crate) fn live_objects(&self) -> usize {
        self.singles + self.blocks.len()
    }

    /// Makes the frames live under a new allocation. Frames that were live are told to `hits`, for [`FrameTable::take_off`].
    #[inline]
    pub(crate) fn alloc(
        &mut self,
        range: FrameRange,
        state: SlotState,
        alloc_info: AllocInfo,
        hits: &mut Vec<Hit>,
    ) -> Before {
        let is_single = range.order == 0 && !self.blocks.keeps_infos();
        if is_single {
            self.singles += 1;
            return self.record(range, Some(state), hits);
        }
        let Some(number) = self.blocks.add(state, range.order, range.first, alloc_info) else {
            self.over_budget = true;
            return Before::default();
        };
        // A block that is not aligned may be cut at the end of its partition.
        let cut = (1 << range.order) - range.pages;
        if cut > 0 {
            self.blocks.take_pages(number, cut, false);
        }
        self.record(range, Some(SlotState::block(number)), hits)
    }

    /// Takes the frames off the allocations that they are live under, which are told to `hits`, for [`FrameTable::take_off`].
    #[inline]
    pub(crate) fn free(&mut self, range: FrameRange, hits: &mut Vec<Hit>) -> Before {
        self.record(range, None, hits)
    }

    /// Takes the frames of a hit off their block, inferred to be free or freed by an event of the stream `freed_in`.
    #[inline]
    pub(crate) fn take_off(&mut self, hit: Hit, freed_in: Option<u16>) -> Option<Off> {
        let Some(number) = hit.word.block_number() else {
            self.singles = self.singles.saturating_sub(hit.pages as usize);
            return Some(Off::Singles(hit.word));
        };
        if self.blocks.keeps_infos()
            && let Some(stream) = freed_in
            && self.blocks.get(number).is_some_and(|block| block.state.stream() != stream)
        {
            self.blocks.cross(number, hit.pages);
        }
        self.blocks.take_pages(number, hit.pages, freed_in.is_none()).map(Off::Block)
    }

    /// True where the block of a hit has pages left.
    #[inline]
    pub(crate) fn is_left(&self, hit: Hit) -> bool {
        hit.word.block_number().is_some_and(|number| self.blocks.is_live(number))
    }

    /// State of the allocation of a hit whose block has pages left.
    pub(crate) fn left_state(&self, hit: Hit) -> Option<SlotState> {
        let number = hit.word.block_number().filter(|number| self.blocks.is_live(*number))?;
        self.blocks.get(number).map(|block| block.state)
    }

    #[inline]
    fn record(&mut self, range: FrameRange, now: Option<SlotState>, hits: &mut Vec<Hit>) -> Before {
        let mut before = Before::default();
        if self.over_budget {
            return before;
        }
        let (mut first, mut left) = (range.first, range.pages as usize);
        while left > 0 {
            let from = first as usize % REGION;
            let pages = left.min(REGION - from);
            let Region { seen, live } = match self.regions.entry(first / REGION as u64) {
                std::collections::hash_map::Entry::Occupied(region) => &mut **region.into_mut(),
                std::collections::hash_map::Entry::Vacant(place) => {
                    self.bytes += size_of::<Region>() + KEY_BYTES;
                    place.insert(Box::new(Region { seen: [0; REGION / 64], live: None }))
                }
            };
            let (new, bytes) = (see(seen, from, pages), &mut self.bytes);
            let taken = change(live, from, pages, now, hits, bytes);
            before.unseen += new;
            before.live += taken;
            before.seen += pages as u32 - new - taken;
            first = first.wrapping_add(pages as u64);
            left -= pages;
        }
        self.over_budget |= self.bytes() > self.max_bytes;
        before
    }

    /// Begins an epoch of allocations.
    pub(crate) fn begin_epoch(&mut self, epoch: LossEpoch) {
        if !epoch.is_first() {
            return;
        }
        // Numbers begin again, so no old one may be left.
        self.blocks.forget_epochs();
        let chunks = self.regions.values_mut().flat_map(|region| &mut region.live).flat_map(|live| &mut live.chunks);
        for chunk in chunks {
            let words = match chunk {
                Chunk::Same(word) => std::slice::from_mut(word),
                Chunk::Each(words) => words.as_mut_slice(),
            };
            words.iter_mut().filter(|word| word.is_live()).for_each(SlotState::forget_epoch);
        }
    }

    /// Forgets all frames, and hands over the allocations that have live pages, in no order. A table without lists of objects has
    /// none.
    pub(crate) fn drain_live(&mut self, take: impl FnMut(BlockState)) {
        let keeps_infos = self.blocks.keeps_infos();
        let FrameTable { regions, blocks, .. } = std::mem::replace(self, FrameTable::new(keeps_infos));
        drop(regions);
        blocks.iter().for_each(take);
    }
}

/// Sets the bits of frames that are seen; the number of those that were not.
#[inline]
fn see(seen: &mut [u64; REGION / 64], from: usize, pages: usize) -> u32 {
    let mut new = 0;
    for (word, mask) in masks(from, pages) {
        if let Some(bits) = seen.get_mut(word) {
            new += (mask & !*bits).count_ones();
            *bits |= mask;
        }
    }
    new
}

/// Words of bits that hold `pages` bits from bit `from` on, each with the mask of these.
#[inline]
fn masks(from: usize, pages: usize) -> impl Iterator<Item = (usize, u64)> {
    let end = from + pages;
    (from / 64..end.div_ceil(64)).map(move |word| {
        let low = from.saturating_sub(word * 64);
        let high = (end - word * 64).min(64);
        (word, u64::MAX >> (64 - (high - low)) << low)
    })
}

/// Takes frames of a region off their blocks, and makes them live under `now`; the number of those that were live.
#[inline]
fn change(
    live: &mut Option<Box<LiveFrames>>,
    from: usize,
    pages: usize,
    now: Option<SlotState>,
    hits: &mut Vec<Hit>,
    bytes: &mut usize,
) -> u32 {
    if live.is_none() {
        if now.is_none() {
            return 0;
        }
        *bytes += size_of::<LiveFrames>();
    }
    let frames = live.get_or_insert_with(LiveFrames::new);
    let (mut from, mut left, mut taken) = (from, pages, 0);
    while left > 0 {
        let (index, first) = (from / CHUNK, from % CHUNK);
        let pages = left.min(CHUNK - first);
        if let (Some(bits), Some(chunk)) = (frames.bits.get_mut(index), frames.chunks.get_mut(index)) {
            let had = chunk.bytes();
            taken += chunk.take(bits, first, pages, hits);
            if let Some(word) = now {
                chunk.put(bits, first, pages, word);
            }
            *bytes = (*bytes + chunk.bytes()).saturating_sub(had);
        }
        from += pages;
        left -= pages;
    }
    frames.count = (frames.count + if now.is_some() { pages } else { 0 }).saturating_sub(taken as usize);
    if frames.count == 0 {
        *live = None;
        *bytes = bytes.saturating_sub(size_of::<LiveFrames>());
    }
    taken
}

impl LiveFrames {
    fn new() -> Box<LiveFrames> {
        let nothing = Chunk::Same(SlotState::default());
        Box::new(LiveFrames { bits: [[0; WORDS]; CHUNKS], chunks: [(); CHUNKS].map(|()| nothing.clone()), count: 0 })
    }
}

/// Live frames of a chunk before frame `index`.
#[inline]
fn rank(bits: &Bits, index: usize) -> usize {
    masks(0, index).map(|(word, mask)| (bits[word] & mask).count_ones() as usize).sum()
}

#[inline]
fn count(bits: &Bits) -> usize {
    bits.iter().map(|word| word.count_ones() as usize).sum()
}

/// Adds frames with one word to the hits.
#[inline]
fn add_hit(hits: &mut Vec<Hit>, word: SlotState, pages: u32) {
    match hits.last_mut() {
        Some(last) if last.word.is_same_word(word) => last.pages += pages,
        _ => hits.push(Hit { word, pages }),
    }
}

impl Chunk {
    /// Bytes of memory beside its own.
    #[inline]
    fn bytes(&self) -> usize {
        match self {
            Chunk::Same(_) => 0,
            // An allocation has a header of 16 bytes in most allocators.
            Chunk::Each(words) => words.capacity() * size_of::<SlotState>() + 16,
        }
    }

    /// Takes frames out; returns the number of those that were live.
    #[inline]
    fn take(&mut self, bits: &mut Bits, first: usize, pages: usize, hits: &mut Vec<Hit>) -> u32 {
        let taken: u32 = masks(first, pages).map(|(word, mask)| (bits[word] & mask).count_ones()).sum();
        if taken == 0 {
            return 0;
        }
        match self {
            Chunk::Same(word) => add_hit(hits, *word, taken),
            Chunk::Each(words) if words.len() == CHUNK => {
                for (word, mask) in masks(first, pages) {
                    let mut live = bits[word] & mask;
                    while live != 0 {
                        let index = word * 64 + live.trailing_zeros() as usize;
                        add_hit(hits, words[index], 1);
                        live &= live - 1;
                    }
                }
            }
            Chunk::Each(words) => {
                let rank = rank(bits, first);
                words.drain(rank..rank + taken as usize).for_each(|word| add_hit(hits, word, 1));
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
        let live = count(bits);
        if live == 0 {
            *self = Chunk::Same(SlotState::default());
        } else if words.len() == CHUNK && live < FEW {
            let mut packed = Vec::with_capacity(live + live / 16 + 2);
            let is_live = |index: usize| bits[index / 64] >> (index % 64) & 1 != 0;
            packed.extend(words.iter().enumerate().filter(|(index, _)| is_live(*index)).map(|(_, word)| *word));
            *words = packed;
        } else if words.len() < CHUNK && words.capacity() > live + live / 2 + 8 {
            words.shrink_to(live + live / 16 + 2);
        }
    }

    /// Makes frames live, none of which is.
    #[inline]
    fn put(&mut self, bits: &mut Bits, first: usize, pages: usize, now: SlotState) {
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
            words.reserve_exact(pages + live / 16 + 2);
        }
        let rank = rank(bits, first);
        words.resize(live + pages, now);
        words.copy_within(rank..live, rank + pages);
        words[rank..rank + pages].fill(now);
    }
}

#[cfg(test)]
mod tests;
