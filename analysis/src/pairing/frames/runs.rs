//! Live frames of a region as runs of neighbours with the same word, in order. A run ends at the end of its chunk.

use std::ops::Range;

use smallvec::SmallVec;

use super::chunk::{CHUNK, CHUNKS};
use crate::memory::prefetch::prefetch;
use crate::pairing::slot::SlotState;

/// Frames beside each other that have the same word, numbered from the first of their region. The word in halves: a run takes 12
/// bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    first: u16,
    pages: u16,
    word: [u32; 2],
}

/// Runs of a region. A single one is kept in place, more in memory of their own.
#[derive(Debug, Default)]
pub(super) struct Runs {
    runs: SmallVec<[Run; 1]>,
    /// Number of runs before each chunk.
    before: [u16; CHUNKS],
}

impl Run {
    fn new(first: usize, pages: usize, word: SlotState) -> Run {
        Run { first: first as u16, pages: pages as u16, word: word.halves() }
    }

    fn from(self) -> usize {
        self.first.into()
    }

    fn end(self) -> usize {
        self.from() + usize::from(self.pages)
    }
}

impl Runs {
    /// Number of runs.
    #[inline(always)]
    pub(super) fn len(&self) -> usize {
        self.runs.len()
    }

    /// Runs that there is room for.
    #[inline(always)]
    pub(super) fn capacity(&self) -> usize {
        self.runs.capacity()
    }

    /// Bytes of memory beside its own.
    #[inline(always)]
    pub(super) fn bytes(&self) -> usize {
        // An allocation has 8 bytes of its allocator, and ends at a multiple of 16.
        if self.runs.spilled() { (self.runs.capacity() * size_of::<Run>() + 8).next_multiple_of(16) } else { 0 }
    }

    /// Starts loading the runs of a frame's chunk.
    #[inline(always)]
    pub(super) fn prefetch(&self, frame: usize) {
        prefetch(&self.runs, self.of_chunk(frame / CHUNK).start);
    }

    /// Each run: first frame, pages and word.
    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, usize, SlotState)> {
        self.runs.iter().map(|run| (run.from(), run.pages.into(), SlotState::from_halves(run.word)))
    }

    /// Changes the word of each run of single pages.
    pub(super) fn each_single(&mut self, change: impl Fn(&mut SlotState)) {
        for run in &mut self.runs {
            let mut word = SlotState::from_halves(run.word);
            if word.is_live() {
                change(&mut word);
                run.word = word.halves();
            }
        }
    }

    /// Numbers of the runs of a chunk.
    #[inline(always)]
    fn of_chunk(&self, chunk: usize) -> Range<usize> {
        let next = self.before.get(chunk + 1).map_or(self.runs.len(), |before| usize::from(*before));
        usize::from(self.before[chunk % CHUNKS])..next
    }

    /// First run that ends behind frame `from`, or would stand in its chunk.
    #[inline]
    fn at(&self, from: usize) -> usize {
        let chunk = self.of_chunk(from / CHUNK);
        let runs = self.runs.get(chunk.clone()).unwrap_or_default();
        chunk.start + runs.partition_point(|run| run.end() <= from)
    }

    /// Takes frames of one chunk off their blocks, each word of which is told to `hit`, and makes them live under `now`.
    #[inline]
    pub(super) fn change(
        &mut self,
        from: usize,
        pages: usize,
        now: Option<SlotState>,
        mut hit: impl FnMut(SlotState, u32),
    ) {
        let (mut index, end) = (self.at(from), from + pages);
        match self.runs.get_mut(index).filter(|run| run.from() < end) {
            None => {}
            Some(run) if run.from() == from && run.end() == end => {
                hit(SlotState::from_halves(run.word), pages as u32);
                self.remove(index);
                self.shrink();
            }
            Some(run) if run.from() == from && run.end() > end => {
                hit(SlotState::from_halves(run.word), pages as u32);
                run.first += pages as u16;
                run.pages -= pages as u16;
            }
            Some(run) if run.from() < from && run.end() == end => {
                hit(SlotState::from_halves(run.word), pages as u32);
                run.pages -= pages as u16;
                index += 1;
            }
            Some(_) => {
                self.take_parts(index, from, end, hit);
                index = self.at(from);
            }
        }
        if let Some(word) = now {
            self.put(index, from, pages, word);
        }
    }

    /// Adds frames of one chunk behind all others.
    pub(super) fn push(&mut self, from: usize, pages: usize, word: SlotState) {
        self.put(self.runs.len(), from, pages, word);
    }

    /// Takes frames out that are parts of runs, or of several: of that at `index`, and those after it.
    fn take_parts(&mut self, index: usize, from: usize, end: usize, mut hit: impl FnMut(SlotState, u32)) {
        let overlapping = self.runs.get(index..).unwrap_or_default().iter().take_while(|run| run.from() < end);
        let (mut count, mut left) = (0, [None; 2]);
        for run in overlapping {
            let word = SlotState::from_halves(run.word);
            hit(word, (run.end().min(end) - run.from().max(from)) as u32);
            count += 1;
            if run.from() < from {
                left[0] = Some(Run::new(run.from(), from - run.from(), word));
            }
            if run.end() > end {
                left[1] = Some(Run::new(end, run.end() - end, word));
            }
        }
        // Parts that are left take the places of the runs that are gone, which may be one too few.
        let mut place = index;
        for run in left.into_iter().flatten() {
            if place < index + count {
                self.runs[place] = run;
            } else {
                self.insert(place, run);
            }
            place += 1;
        }
        let gone = place..place.max(index + count);
        self.count(from / CHUNK, -(gone.len() as i16));
        self.runs.drain(gone);
        self.shrink();
    }

    /// Makes frames live, none of which is; `index`: the first run behind them.
    #[inline]
    fn put(&mut self, index: usize, from: usize, pages: usize, now: SlotState) {
        let is_like = |run: &Run| SlotState::from_halves(run.word).is_same_word(now);
        let (begins_chunk, ends_chunk) = (from.is_multiple_of(CHUNK), (from + pages).is_multiple_of(CHUNK));
        let last = index.checked_sub(1).and_then(|last| self.runs.get(last));
        let joins_last = !begins_chunk && last.is_some_and(|run| run.end() == from && is_like(run));
        let next = self.runs.get(index);
        let joins_next = !ends_chunk && next.is_some_and(|run| run.from() == from + pages && is_like(run));
        match (joins_last, joins_next) {
            (false, false) => self.insert(index, Run::new(from, pages, now)),
            (true, false) => self.runs[index - 1].pages += pages as u16,
            (false, true) => {
                self.runs[index].first = from as u16;
                self.runs[index].pages += pages as u16;
            }
            (true, true) => {
                let next = self.remove(index);
                self.runs[index - 1].pages += pages as u16 + next.pages;
                self.shrink();
            }
        }
    }

    /// Counts runs that a chunk gets, or loses.
    #[inline]
    fn count(&mut self, chunk: usize, by: i16) {
        // Without a branch: the compiler counts several at once.
        for (other, before) in (0..).zip(&mut self.before) {
            *before = before.wrapping_add_signed(if other > chunk as u16 { by } else { 0 });
        }
    }

    #[inline]
    fn insert(&mut self, index: usize, run: Run) {
        if self.runs.len() == self.runs.capacity() {
            // Half of the room that 16 bytes a run leave, so that neither the next insertion nor the next removal moves all.
            self.runs.reserve_exact(1 + self.runs.len() / 6);
        }
        self.runs.insert(index, run);
        self.count(run.from() / CHUNK, 1);
    }

    #[inline]
    fn remove(&mut self, index: usize) -> Run {
        let run = self.runs.remove(index);
        self.count(run.from() / CHUNK, -1);
        run
    }

    /// Gives memory back where the runs take more than 16 bytes each.
    #[inline]
    fn shrink(&mut self) {
        if self.bytes() > 16 * self.runs.len() {
            self.runs.shrink_to_fit();
        }
    }
}
