//! Table of page frames: the block that each live frame belongs to, and one bit for each frame that was ever seen.
//!
//! Frames are kept in regions of 4,096, made when one of their frames is first seen. A region has a bit for each frame that was
//! seen, and words of those that are live. Mostly these are single pages and a few blocks, `few.rs`. A region with many blocks, or
//! with single pages of many words, has 16 chunks of 256 frames, `chunk.rs`. A live frame takes 16 bytes at most, wherever it is.
//! The word of a single page is the state of its allocation; that of a frame in a larger block is the number of the block in
//! `blocks.rs`.
//!
//! Nearly all events are of single pages, and take a shorter path than blocks: `alloc_page` and `free_page`.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use crate::memory::hashing::FRAME_BITS;
use crate::memory::prefetch::{prefetch, prefetch_beyond};
use crate::pairing::blocks::{BlockState, Blocks};
use crate::pairing::loss::LossEpoch;
use crate::pairing::slot::{AllocInfo, SlotState};

mod chunk;
mod few;
mod runs;
mod singles;
#[cfg(test)]
mod tests;

use chunk::{Bits, CHUNK, CHUNKS, Chunk, REGION, WORDS, masks};
use few::Few;

/// Greatest order of a block. The decoder takes larger ones for unreadable.
const MAX_ORDER: u8 = FRAME_BITS as u8;

/// Runs from which a region has chunks.
const MANY: usize = 288;
/// Live frames below which a region with chunks has lists again.
const FEW: usize = 232;
/// Bytes of a region's key and number in the map, and of its pointer, at most.
const KEY_BYTES: usize = 56;
/// Places for regions that were looked up last.
const RECENT: usize = 512;

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

/// State of a single frame before an event.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FrameBefore {
    /// Live, with this word.
    Live(SlotState),
    /// Seen before, and not live.
    Seen,
    Unseen,
}

/// Live frames that an event has taken from one block, or from single pages of like allocations.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hit {
    word: SlotState,
    pub(crate) pages: u32,
}

impl Hit {
    /// A single frame that had this word.
    pub(crate) fn of(word: SlotState) -> Hit {
        Hit { word, pages: 1 }
    }

    /// Adds frames with one word to the hits.
    fn add(hits: &mut Vec<Hit>, word: SlotState, pages: u32) {
        match hits.last_mut() {
            Some(last) if last.word.is_same_word(word) => last.pages += pages,
            _ => hits.push(Hit { word, pages }),
        }
    }
}

/// Live frames of a region that has many runs: a bit for each frame, and their words.
#[derive(Debug)]
struct Chunks {
    bits: [Bits; CHUNKS],
    chunks: [Chunk; CHUNKS],
    /// Live frames.
    count: usize,
    /// Memory, that of chunks included.
    bytes: usize,
}

/// Live frames of a region.
#[derive(Debug)]
enum Live {
    Few(Few),
    Many(Box<Chunks>),
}

#[derive(Debug)]
struct Region {
    seen: [u64; REGION / 64],
    live: Live,
}

/// A region's key, and its number in the list.
#[derive(Clone, Copy, Debug)]
struct Known {
    key: u64,
    number: u32,
}

/// Frames of one partition.
#[derive(Debug)]
pub(crate) struct FrameTable {
    #[expect(clippy::vec_box, reason = "the list grows often, and a region is large")]
    regions: Vec<Box<Region>>,
    /// Number of each region in the list, by the region's key: its first frame divided by [`REGION`].
    numbers: HashMap<u64, u32, RandomState>,
    /// Regions that were looked up last, each at its key modulo [`RECENT`]. They are found without the map.
    recent: Vec<Known>,
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
            regions: Vec::new(),
            numbers: HashMap::default(),
            recent: Vec::new(),
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

    /// True if no frame was ever seen.
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.regions.is_empty()
    }

    /// Number of allocations that have live pages.
    pub(crate) fn live_objects(&self) -> usize {
        self.singles + self.blocks.len()
    }

    /// Number of a region in the list, if it was looked up last.
    #[inline(always)]
    fn recent(&self, key: u64) -> Option<usize> {
        self.recent.get(key as usize % RECENT).filter(|known| known.key == key).map(|known| known.number as usize)
    }

    /// Number of a region in the list, if there is one with this key.
    #[inline(always)]
    fn number(&mut self, key: u64) -> Option<usize> {
        self.recent(key).or_else(|| self.look_up(key))
    }

    /// Looks a region up in the map, and keeps it with the recent ones.
    #[inline(never)]
    fn look_up(&mut self, key: u64) -> Option<usize> {
        let number = *self.numbers.get(&key)?;
        self.recent[key as usize % RECENT] = Known { key, number };
        Some(number as usize)
    }

    /// Makes a region; its number in the list.
    #[cold]
    fn add_region(&mut self, key: u64) -> usize {
        if self.recent.is_empty() {
            // No key of a frame is this large.
            self.recent = vec![Known { key: u64::MAX, number: 0 }; RECENT];
            self.bytes += RECENT * size_of::<Known>();
        }
        self.bytes += size_of::<Region>() + KEY_BYTES;
        // 2^32 regions do not fit in memory, so this never saturates.
        let number = u32::try_from(self.regions.len()).unwrap_or(u32::MAX);
        self.regions.push(Box::new(Region { seen: [0; REGION / 64], live: Live::Few(Few::default()) }));
        self.numbers.insert(key, number);
        self.recent[key as usize % RECENT] = Known { key, number };
        number as usize
    }

    /// Number of a region in the list; a new one where there is none with this key.
    #[inline]
    fn region(&mut self, key: u64) -> usize {
        match self.number(key) {
            Some(number) => number,
            None => self.add_region(key),
        }
    }

    /// Starts loading the region of a frame: the first of two steps, some events apart, the second of which needs memory of the first.
    #[inline(always)]
    pub(crate) fn prefetch_region(&mut self, frame: u64) {
        if let Some(number) = self.number(frame / REGION as u64)
            && let Some(region) = self.regions.get(number)
        {
            prefetch(&region.seen, frame as usize % REGION / 64);
            prefetch_beyond(&region.live, 0);
        }
    }

    /// Live frames of a frame's region, which [`FrameTable::prefetch_region`] has looked up.
    #[inline(always)]
    fn live_near(&self, frame: u64) -> Option<&Live> {
        Some(&self.regions.get(self.recent(frame / REGION as u64)?)?.live)
    }

    /// Starts loading a frame's bit and chunk, or what is known of single pages: the second step.
    #[inline(always)]
    pub(crate) fn prefetch_chunk(&self, frame: u64) {
        match self.live_near(frame) {
            Some(Live::Many(live)) => {
                let chunk = frame as usize % REGION / CHUNK;
                prefetch(&live.bits, chunk);
                prefetch(&live.chunks, chunk);
            }
            Some(Live::Few(few)) => few.prefetch(frame as usize % REGION),
            None => {}
        }
    }

    /// Makes the frames live under a new allocation, which is a block. Frames that were live are told to `hits`, for [`FrameTable::take_off`].
    #[inline]
    pub(crate) fn alloc(
        &mut self,
        range: FrameRange,
        state: SlotState,
        alloc_info: AllocInfo,
        hits: &mut Vec<Hit>,
    ) -> Before {
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

    /// Makes a frame live under a new allocation of a single page; returns the frame's state before. The caller hands one that
    /// was live to [`FrameTable::take_off`].
    #[inline(always)]
    pub(crate) fn alloc_page(&mut self, frame: u64, state: SlotState) -> FrameBefore {
        debug_assert!(!self.blocks.keeps_infos(), "an allocation is a block where objects are listed");
        self.singles += 1;
        self.record_page(frame, Some(state))
    }

    /// Takes a frame off the allocation that it is live under; returns the frame's state before. The caller hands one that was
    /// live to [`FrameTable::take_page`], or to [`FrameTable::take_off`].
    #[inline(always)]
    pub(crate) fn free_page(&mut self, frame: u64) -> FrameBefore {
        self.record_page(frame, None)
    }

    /// True where each allocation is to be a block, even one of a single page.
    #[inline(always)]
    pub(crate) fn has_blocks_alone(&self) -> bool {
        self.blocks.keeps_infos()
    }

    /// Takes the frames off the allocations that they are live under, which are told to `hits`, for [`FrameTable::take_off`].
    #[inline]
    pub(crate) fn free(&mut self, range: FrameRange, hits: &mut Vec<Hit>) -> Before {
        self.record(range, None, hits)
    }

    /// Ends the allocation of a single page that had this word; false, and nothing is done, where the word is that of a block.
    #[inline(always)]
    pub(crate) fn take_page(&mut self, word: SlotState) -> bool {
        let is_single = word.block_number().is_none();
        self.singles = self.singles.saturating_sub(is_single.into());
        is_single
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
            let pages = left.min(CHUNK - from % CHUNK);
            let number = self.region(first / REGION as u64);
            let Some(region) = self.regions.get_mut(number) else { break };
            let new = see(&mut region.seen, from, pages);
            let mut taken = 0;
            let mut hit = |word, pages| {
                taken += pages;
                Hit::add(hits, word, pages);
            };
            region.live.change(from, pages, now, &mut self.bytes, &mut hit);
            before.unseen += new;
            before.live += taken;
            before.seen += pages as u32 - new - taken;
            first = first.wrapping_add(pages as u64);
            left -= pages;
        }
        self.over_budget |= self.bytes() > self.max_bytes;
        before
    }

    /// [`FrameTable::record`] of one frame.
    #[inline(never)]
    fn record_page(&mut self, frame: u64, now: Option<SlotState>) -> FrameBefore {
        if self.over_budget {
            return FrameBefore::Unseen;
        }
        let number = self.region(frame / REGION as u64);
        let Some(region) = self.regions.get_mut(number) else { return FrameBefore::Unseen };
        let (from, bytes) = (frame as usize % REGION, self.bytes);
        let (seen, bit) = (&mut region.seen[from / 64], 1 << (from % 64));
        let mut before = if *seen & bit == 0 { FrameBefore::Unseen } else { FrameBefore::Seen };
        *seen |= bit;
        if let Some(word) = region.live.change_page(from, now, &mut self.bytes) {
            before = FrameBefore::Live(word);
        }
        if self.bytes > bytes {
            self.over_budget |= self.bytes() > self.max_bytes;
        }
        before
    }

    /// Begins an epoch of allocations.
    pub(crate) fn begin_epoch(&mut self, epoch: LossEpoch) {
        if !epoch.is_first() {
            return;
        }
        // Numbers begin again, so no old one may be left.
        self.blocks.forget_epochs();
        self.regions.iter_mut().for_each(|region| region.live.each_single(SlotState::forget_epoch));
    }

    /// Hands over the allocations that have live pages, in no order. A table without lists of objects has none.
    pub(crate) fn each_live(&self, take: impl FnMut(BlockState)) {
        self.blocks.iter().for_each(take);
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

impl Live {
    /// Takes frames of one chunk off their blocks, each word of which is told to `hit`, and makes them live under `now`. `bytes`
    /// gets what memory that takes, or gives back. One copy for all callers keeps the programs small.
    #[inline(never)]
    fn change(
        &mut self,
        from: usize,
        pages: usize,
        now: Option<SlotState>,
        bytes: &mut usize,
        hit: &mut dyn FnMut(SlotState, u32),
    ) {
        match self {
            Live::Few(few) => {
                let had = few.bytes();
                few.change(from, pages, now, hit);
                *bytes = (*bytes + few.bytes()).saturating_sub(had);
                if few.runs() >= MANY {
                    self.spread(bytes);
                }
            }
            Live::Many(chunks) => {
                let had = chunks.bytes;
                chunks.change(from, pages, now, hit);
                *bytes = (*bytes + chunks.bytes).saturating_sub(had);
                // Chunks that have lost many frames may take more than 16 bytes for each that is left.
                if chunks.count < FEW || chunks.bytes > 16 * chunks.count {
                    self.gather(bytes);
                }
            }
        }
    }

    /// [`Live::change`] of one frame; returns the word it had.
    #[inline(always)]
    fn change_page(&mut self, frame: usize, now: Option<SlotState>, bytes: &mut usize) -> Option<SlotState> {
        let Live::Few(few) = self else {
            let mut before = None;
            self.change(frame, 1, now, bytes, &mut |word, _| before = Some(word));
            return before;
        };
        let had = few.bytes();
        let before = few.take_page(frame);
        if let Some(word) = now {
            few.add(frame, 1, word);
        }
        *bytes = (*bytes + few.bytes()).saturating_sub(had);
        if few.runs() >= MANY {
            self.spread(bytes);
        }
        before
    }

    /// Makes chunks of lists.
    #[cold]
    fn spread(&mut self, bytes: &mut usize) {
        let Live::Few(few) = self else { return };
        *bytes = bytes.saturating_sub(few.bytes());
        let nothing = Chunk::Same(SlotState::default());
        let chunks = [(); CHUNKS].map(|()| nothing.clone());
        let mut chunks = Box::new(Chunks { bits: [[0; WORDS]; CHUNKS], chunks, count: 0, bytes: size_of::<Chunks>() });
        few.each(|mut from, mut pages, word| {
            while pages > 0 {
                let part = pages.min(CHUNK - from % CHUNK);
                chunks.change(from, part, Some(word), &mut |_, _| {});
                from += part;
                pages -= part;
            }
        });
        *bytes += chunks.bytes;
        *self = Live::Many(chunks);
    }

    /// Makes lists of chunks.
    #[cold]
    fn gather(&mut self, bytes: &mut usize) {
        let Live::Many(chunks) = self else { return };
        let mut few = Few::default();
        for (number, (bits, chunk)) in chunks.bits.iter().zip(&chunks.chunks).enumerate() {
            chunk.each_live(bits, |index, word| few.add(number * CHUNK + index, 1, word));
        }
        *bytes = (*bytes + few.bytes()).saturating_sub(chunks.bytes);
        *self = Live::Few(few);
    }

    /// Changes the words of single pages.
    fn each_single(&mut self, change: impl Fn(&mut SlotState)) {
        match self {
            Live::Few(few) => few.each_single(change),
            Live::Many(chunks) => chunks.chunks.iter_mut().for_each(|chunk| chunk.each_single(&change)),
        }
    }
}

impl Chunks {
    fn change(&mut self, from: usize, pages: usize, now: Option<SlotState>, hit: &mut dyn FnMut(SlotState, u32)) {
        let (index, first) = (from / CHUNK, from % CHUNK);
        let (Some(bits), Some(chunk)) = (self.bits.get_mut(index), self.chunks.get_mut(index)) else { return };
        let had = chunk.bytes();
        let taken = chunk.take(bits, first, pages, hit);
        if let Some(word) = now {
            chunk.put(bits, first, pages, word);
            self.count += pages;
        }
        self.bytes = (self.bytes + chunk.bytes()).saturating_sub(had);
        self.count = self.count.saturating_sub(taken as usize);
    }
}
