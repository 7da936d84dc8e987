//! Blocks of pages that are live, in whole or in part: the allocation of each, and the number of its pages that are left.

use crate::pairing::loss::LossEpoch;
use crate::pairing::slot::{AllocInfo, SlotState};

/// Facts of a block that only lists of objects show.
#[derive(Clone, Copy, Debug, Default)]
struct BlockInfo {
    alloc_info: AllocInfo,
    first: u64,
    inferred: u32,
    crossed: u32,
}

/// A block as it is after some of its pages have gone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockState {
    /// State of the allocation.
    pub(crate) state: SlotState,
    /// Pages of the allocation.
    pub(crate) pages: u32,
    /// Pages that are live.
    pub(crate) left: u32,
    /// True where a page of the block was inferred to be free.
    pub(crate) is_inferred: bool,
    /// Number of pages inferred to be free; 0 where no lists of objects are asked for.
    pub(crate) inferred: u32,
    /// Number of pages freed on another CPU than the allocation's; 0 where no lists of objects are asked for.
    pub(crate) crossed: u32,
    /// First frame of the allocation; 0 where no lists of objects are asked for.
    pub(crate) first: u64,
    pub(crate) alloc_info: AllocInfo,
}

const INFERRED: u32 = 1 << 31;
const ORDER_SHIFT: u32 = 24;
const LEFT: u32 = (1 << ORDER_SHIFT) - 1;

/// All blocks by their numbers, 12 bytes each: the state of the allocation in two words, then the pages that are left, the order
/// and `INFERRED`. A number without a block has no pages left, and the next such number in its first word.
#[derive(Debug)]
pub(super) struct Blocks {
    blocks: Vec<[u32; 3]>,
    infos: Option<Vec<BlockInfo>>,
    /// First number without a block; the length of `blocks` where there is none.
    vacant: u32,
    live: usize,
}

impl Blocks {
    pub(super) fn new(keeps_infos: bool) -> Blocks {
        Blocks { blocks: Vec::new(), infos: keeps_infos.then(Vec::new), vacant: 0, live: 0 }
    }

    /// Bytes of memory.
    pub(super) fn bytes(&self) -> usize {
        let infos = self.infos.as_ref().map_or(0, |infos| infos.capacity() * size_of::<BlockInfo>());
        self.blocks.capacity() * size_of::<[u32; 3]>() + infos
    }

    /// Number of blocks.
    pub(super) fn len(&self) -> usize {
        self.live
    }

    /// True where each allocation is to be a block, even one of a single page.
    #[inline(always)]
    pub(super) fn keeps_infos(&self) -> bool {
        self.infos.is_some()
    }

    /// Adds the block of an allocation; `None` where there are 2^32 already.
    #[inline]
    pub(super) fn add(&mut self, state: SlotState, order: u8, first: u64, alloc_info: AllocInfo) -> Option<u32> {
        let number = self.vacant;
        if number == u32::MAX {
            return None;
        }
        let [low, high] = state.halves();
        let block = [low, high, 1 << order | u32::from(order) << ORDER_SHIFT];
        let info = BlockInfo { alloc_info, first, inferred: 0, crossed: 0 };
        let index = number as usize;
        if let Some(slot) = self.blocks.get_mut(index) {
            self.vacant = slot[0];
            *slot = block;
        } else {
            grow(&mut self.blocks);
            self.blocks.push(block);
            self.vacant = number + 1;
        }
        if let Some(infos) = &mut self.infos {
            match infos.get_mut(index) {
                Some(slot) => *slot = info,
                None => {
                    grow(infos);
                    infos.push(info);
                }
            }
        }
        self.live += 1;
        Some(number)
    }

    /// Takes pages off a block, inferred to be free or freed; the block ends with its last page.
    #[inline]
    pub(super) fn take_pages(&mut self, number: u32, pages: u32, inferred: bool) -> Option<BlockState> {
        let index = number as usize;
        let block = self.blocks.get_mut(index)?;
        let left = (block[2] & LEFT).saturating_sub(pages);
        block[2] = block[2] & !LEFT | left | if inferred { INFERRED } else { 0 };
        if let Some(info) = self.infos.as_mut().and_then(|infos| infos.get_mut(index)) {
            info.inferred += if inferred { pages } else { 0 };
        }
        let state = self.get(number);
        if left == 0
            && let Some(block) = self.blocks.get_mut(index)
        {
            *block = [self.vacant, 0, 0];
            self.vacant = number;
            self.live -= 1;
        }
        state
    }

    /// Notes pages of a block as freed on another CPU, before they are taken off.
    #[inline]
    pub(super) fn cross(&mut self, number: u32, pages: u32) {
        if let Some(info) = self.infos.as_mut().and_then(|infos| infos.get_mut(number as usize)) {
            info.crossed += pages;
        }
    }

    /// True where a block of this number is live.
    pub(super) fn is_live(&self, number: u32) -> bool {
        self.blocks.get(number as usize).is_some_and(|block| block[2] & LEFT > 0)
    }

    pub(super) fn get(&self, number: u32) -> Option<BlockState> {
        let [low, high, rest] = *self.blocks.get(number as usize)?;
        let info = self.infos.as_ref().and_then(|infos| infos.get(number as usize)).copied().unwrap_or_default();
        Some(BlockState {
            state: SlotState::from_halves([low, high]),
            pages: 1 << (rest >> ORDER_SHIFT & 0x1f),
            left: rest & LEFT,
            is_inferred: rest & INFERRED != 0,
            inferred: info.inferred,
            crossed: info.crossed,
            first: info.first,
            alloc_info: info.alloc_info,
        })
    }

    /// All blocks that are live, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = BlockState> {
        (0..self.blocks.len() as u32).filter_map(|number| self.get(number)).filter(|block| block.left > 0)
    }

    /// Sets the epochs of all allocations to [`LossEpoch::IN_GAP`].
    pub(super) fn forget_epochs(&mut self) {
        for block in self.blocks.iter_mut().filter(|block| block[2] & LEFT > 0) {
            let mut state = SlotState::from_halves([block[0], block[1]]);
            state.forget_epoch();
            [block[0], block[1]] = state.halves();
        }
        debug_assert_eq!(LossEpoch::IN_GAP.bits(), 0, "an epoch that is forgotten is that of a gap");
    }
}

/// Makes room in small steps: a block may take no more memory than its frames leave it.
#[inline]
fn grow<T>(list: &mut Vec<T>) {
    if list.len() == list.capacity() {
        list.reserve_exact(list.len() / 16 + 64);
    }
}
