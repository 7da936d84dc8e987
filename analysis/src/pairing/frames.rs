//! Table of page frames: the last event of each frame that was ever seen.
//!
//! A flat array: one word of 8 bytes for each frame of a region of 4,096, made when one of its frames is first seen. The word of a
//! live frame is the state of its allocation, of a single page, or the number of its block in `blocks.rs`; that of another frame
//! says whether the frame was seen. So the table takes 0.2% of the memory whose pages are traced.
//!
//! Nearly all events are of single pages and take a shorter path than blocks: `alloc_page` and `free_page`.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use zerocopy::FromZeros;

use crate::memory::hashing::FRAME_BITS;
use crate::memory::prefetch::prefetch;
use crate::pairing::blocks::{BlockState, Blocks};
use crate::pairing::loss::LossEpoch;
use crate::pairing::slot::{AllocInfo, SlotState};

#[cfg(test)]
mod tests;

/// Largest order of a block. The decoder takes larger ones for unreadable.
const MAX_ORDER: u8 = FRAME_BITS as u8;
/// Frames of a region.
const REGION: usize = 4096;
/// Memory of a region's entry in the map and in the list, at most, in bytes.
const KEY_BYTES: usize = 56;
/// Places for regions that were looked up last.
const RECENT: usize = 512;
/// Word of a frame that was seen and is not live. No finding compares the epoch of such a frame, so it keeps none.
const SEEN: SlotState = SlotState::free(LossEpoch::IN_GAP);

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

/// Words of a region's frames.
type Region = [SlotState; REGION];

/// A region's key, and its number in the list.
#[derive(Clone, Copy, Debug)]
struct Known {
    key: u64,
    number: u32,
}

/// Frames of one partition.
#[derive(Debug)]
pub(crate) struct FrameTable {
    regions: Vec<Box<Region>>,
    /// Number of each region in the list, by the region's key: its first frame divided by [`REGION`].
    numbers: HashMap<u64, u32, RandomState>,
    /// Regions that were looked up last, each at its key modulo [`RECENT`]. They are found without the map.
    recent: Vec<Known>,
    blocks: Blocks,
    /// Single pages that are live.
    singles: usize,
    /// Memory of regions.
    bytes: usize,
    max_bytes: usize,
    over_budget: bool,
}

impl FrameTable {
    /// Empty table; `keeps_infos`: [`FrameTable::each_live`] tells allocations.
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

    /// Makes a region; its number in the list. `None` if there is no memory for it: the table is over its budget then.
    #[cold]
    fn add_region(&mut self, key: u64) -> Option<usize> {
        if self.recent.is_empty() {
            // No key of a frame is this large.
            self.recent = vec![Known { key: u64::MAX, number: 0 }; RECENT];
            self.bytes += RECENT * size_of::<Known>();
        }
        let bytes = self.bytes + size_of::<Region>() + KEY_BYTES;
        let number = u32::try_from(self.regions.len()).ok();
        let region = Region::new_box_zeroed().ok().filter(|_| bytes + self.blocks.bytes() <= self.max_bytes);
        let (Some(number), Some(region)) = (number, region) else {
            self.over_budget = true;
            return None;
        };
        self.bytes = bytes;
        self.regions.push(region);
        self.numbers.insert(key, number);
        self.recent[key as usize % RECENT] = Known { key, number };
        Some(number as usize)
    }

    /// The region of a frame; a new one where there is none.
    #[inline(always)]
    fn region(&mut self, frame: u64) -> Option<&mut Region> {
        let key = frame / REGION as u64;
        let number = match self.number(key) {
            Some(number) => number,
            None => self.add_region(key)?,
        };
        self.regions.get_mut(number).map(|region| &mut **region)
    }

    /// Starts loading the word of a frame.
    #[inline(always)]
    pub(crate) fn prefetch(&mut self, frame: u64) {
        if let Some(number) = self.number(frame / REGION as u64)
            && let Some(region) = self.regions.get(number)
        {
            prefetch(&region[..], frame as usize % REGION);
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

    /// Takes frames off their allocations, which are told to `hits` in the order of the frames; they are live under `now` after it.
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
            let Some(words) = self.region(first).and_then(|region| region.get_mut(from..from + pages)) else { break };
            take(words, &mut before, hits);
            words.fill(now.unwrap_or(SEEN));
            first = first.wrapping_add(pages as u64);
            left -= pages;
        }
        self.over_budget |= self.bytes() > self.max_bytes;
        before
    }

    /// [`FrameTable::record`] of one frame.
    #[inline(always)]
    fn record_page(&mut self, frame: u64, now: Option<SlotState>) -> FrameBefore {
        let Some(region) = self.region(frame) else { return FrameBefore::Unseen };
        match std::mem::replace(&mut region[frame as usize % REGION], now.unwrap_or(SEEN)) {
            word if word.is_nothing() => FrameBefore::Unseen,
            word if word.is_same_word(SEEN) => FrameBefore::Seen,
            word => FrameBefore::Live(word),
        }
    }

    /// Begins an epoch of allocations.
    pub(crate) fn begin_epoch(&mut self, epoch: LossEpoch) {
        if !epoch.is_first() {
            return;
        }
        // Numbers begin again, so no old one may be left.
        self.blocks.forget_epochs();
        let words = self.regions.iter_mut().flat_map(|region| region.iter_mut());
        words.filter(|word| word.is_live()).for_each(SlotState::forget_epoch);
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

/// Counts the states of frames, and adds those that are live to the hits.
#[inline]
fn take(words: &[SlotState], before: &mut Before, hits: &mut Vec<Hit>) {
    // Mostly all frames of an event are alike: of one block, or never seen.
    for alike in words.chunk_by(|a, b| a.is_same_word(*b)) {
        let pages = alike.len() as u32;
        match alike[0] {
            word if word.is_nothing() => before.unseen += pages,
            word if word.is_same_word(SEEN) => before.seen += pages,
            word => {
                before.live += pages;
                Hit::add(hits, word, pages);
            }
        }
    }
}
