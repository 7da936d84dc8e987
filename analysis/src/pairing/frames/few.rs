//! Live frames of a region that has few runs: single pages, `singles.rs`, and frames of blocks, `runs.rs`.

use super::runs::Runs;
use super::singles::Singles;
use crate::pairing::slot::SlotState;

/// Single pages and frames of blocks. A frame is in one of them at most.
#[derive(Debug, Default)]
pub(super) struct Few {
    singles: Singles,
    /// Also single pages for whose word `singles` has no room.
    blocks: Runs,
}

impl Few {
    /// Number of runs.
    #[inline(always)]
    pub(super) fn runs(&self) -> usize {
        self.blocks.len()
    }

    /// Bytes of memory beside its own.
    #[inline(always)]
    pub(super) fn bytes(&self) -> usize {
        self.singles.bytes() + self.blocks.bytes()
    }

    /// Starts loading what an event of a single page needs.
    #[inline(always)]
    pub(super) fn prefetch(&self, frame: usize) {
        self.singles.prefetch(frame);
    }

    /// Hands over single pages and runs, in no order: first frame, pages and word.
    pub(super) fn each(&self, mut take: impl FnMut(usize, usize, SlotState)) {
        self.singles.each_frame(|frame, word| take(frame, 1, word));
        self.blocks.iter().for_each(|(from, pages, word)| take(from, pages, word));
    }

    /// Changes the words of single pages.
    pub(super) fn each_single(&mut self, change: impl Fn(&mut SlotState)) {
        self.singles.each_word(&change);
        self.blocks.each_single(change);
    }

    /// Adds frames that are not live.
    #[inline]
    pub(super) fn add(&mut self, from: usize, pages: usize, word: SlotState) {
        let is_single = pages == 1 && word.block_number().is_none();
        if !(is_single && self.singles.add(from, word)) {
            self.blocks.put(from, pages, word);
        }
    }

    /// Takes frames off their blocks, each word of which is told to `hit` in the order of frames, and makes them live under `now`.
    pub(super) fn change(
        &mut self,
        from: usize,
        pages: usize,
        now: Option<SlotState>,
        hit: &mut dyn FnMut(SlotState, u32),
    ) {
        let mut next = from;
        for (group, mut bits) in self.singles.among(from, pages).into_iter().enumerate() {
            while bits != 0 {
                let frame = from + group * 64 + bits.trailing_zeros() as usize;
                self.take_of_blocks(next, frame, hit);
                if let Some(word) = self.singles.take(frame) {
                    hit(word, 1);
                }
                next = frame + 1;
                bits &= bits - 1;
            }
        }
        self.take_of_blocks(next, from + pages, hit);
        if let Some(word) = now {
            self.add(from, pages, word);
        }
    }

    /// Takes a frame off its block; returns the word it had.
    #[inline]
    pub(super) fn take_page(&mut self, frame: usize) -> Option<SlotState> {
        if let Some(word) = self.singles.take(frame) {
            return Some(word);
        }
        let mut taken = None;
        self.take_of_blocks(frame, frame + 1, &mut |word, _| taken = Some(word));
        taken
    }

    #[inline]
    fn take_of_blocks(&mut self, from: usize, end: usize, hit: &mut dyn FnMut(SlotState, u32)) {
        if from < end && self.blocks.may_have(from, end) {
            self.blocks.take(from, end, hit);
        }
    }
}
