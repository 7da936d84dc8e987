//! Live frames as runs of neighbours with the same word, in order.

use smallvec::SmallVec;

use crate::memory::prefetch::prefetch;
use crate::pairing::slot::SlotState;

/// Live frames that an event has taken from one block, or from single pages of like allocations.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hit {
    pub(super) word: SlotState,
    pub(crate) pages: u32,
}

/// Adds frames with one word to the hits.
#[inline]
pub(super) fn add_hit(hits: &mut Vec<Hit>, word: SlotState, pages: u32) {
    match hits.last_mut() {
        Some(last) if last.word.is_same_word(word) => last.pages += pages,
        _ => hits.push(Hit { word, pages }),
    }
}

/// Frames beside each other that have the same word, numbered from the first of their region or chunk. The word in halves: a run
/// takes 12 bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    first: u16,
    pages: u16,
    word: [u32; 2],
}

/// Runs of a region or chunk. A single one is kept in place, more in memory of their own.
#[derive(Debug, Default)]
pub(super) struct Runs(SmallVec<[Run; 1]>);

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
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Bytes of memory beside its own.
    pub(super) fn bytes(&self) -> usize {
        // An allocation has 8 bytes of its allocator, and ends at a multiple of 16.
        if self.0.spilled() { (self.0.capacity() * size_of::<Run>() + 8).next_multiple_of(16) } else { 0 }
    }

    /// Starts loading the runs.
    #[inline(always)]
    pub(super) fn prefetch(&self) {
        prefetch(&self.0, self.0.len() / 2);
    }

    /// Each run: first frame, pages and word.
    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, usize, SlotState)> {
        self.0.iter().map(|run| (run.from(), run.pages.into(), SlotState::from_halves(run.word)))
    }

    /// Changes the word of each run of single pages.
    pub(super) fn each_single(&mut self, change: impl Fn(&mut SlotState)) {
        for run in &mut self.0 {
            let mut word = SlotState::from_halves(run.word);
            if word.is_live() {
                change(&mut word);
                run.word = word.halves();
            }
        }
    }

    /// First run that ends behind frame `from`.
    #[inline]
    fn at(&self, from: usize) -> usize {
        self.0.partition_point(|run| run.end() <= from)
    }

    /// Takes frames off their blocks, and makes them live under `now`; the number of those that were live.
    #[inline]
    pub(super) fn change(&mut self, from: usize, pages: usize, now: Option<SlotState>, hits: &mut Vec<Hit>) -> u32 {
        let (mut index, end) = (self.at(from), from + pages);
        let mut taken = 0;
        match self.0.get_mut(index).filter(|run| run.from() < end) {
            None => {}
            Some(run) if run.from() == from && run.end() == end => {
                add_hit(hits, SlotState::from_halves(run.word), run.pages.into());
                taken = pages as u32;
                self.0.remove(index);
                self.shrink();
            }
            Some(_) => {
                taken = self.take_parts(index, from, end, hits);
                index = self.at(from);
            }
        }
        if let Some(word) = now {
            self.put(index, from, pages, word);
        }
        taken
    }

    /// Adds frames behind all others.
    pub(super) fn push(&mut self, from: usize, pages: usize, word: SlotState) {
        self.put(self.0.len(), from, pages, word);
    }

    /// Takes frames out that are parts of runs, or of several: of that at `index`, and those after it.
    fn take_parts(&mut self, index: usize, from: usize, end: usize, hits: &mut Vec<Hit>) -> u32 {
        let overlapping = self.0.get(index..).unwrap_or_default().iter().take_while(|run| run.from() < end);
        let (mut taken, mut count, mut left) = (0, 0, [None; 2]);
        for run in overlapping {
            let word = SlotState::from_halves(run.word);
            let gone = (run.end().min(end) - run.from().max(from)) as u32;
            add_hit(hits, word, gone);
            taken += gone;
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
                self.0[place] = run;
            } else {
                self.insert(place, run);
            }
            place += 1;
        }
        self.0.drain(place..place.max(index + count));
        self.shrink();
        taken
    }

    /// Makes frames live, none of which is; `index`: the first run behind them.
    #[inline]
    fn put(&mut self, index: usize, from: usize, pages: usize, now: SlotState) {
        let is_like = |run: &Run| SlotState::from_halves(run.word).is_same_word(now);
        let joins_last = index > 0 && self.0.get(index - 1).is_some_and(|run| run.end() == from && is_like(run));
        let joins_next = self.0.get(index).is_some_and(|run| run.from() == from + pages && is_like(run));
        match (joins_last, joins_next) {
            (false, false) => self.insert(index, Run::new(from, pages, now)),
            (true, false) => self.0[index - 1].pages += pages as u16,
            (false, true) => {
                self.0[index].first = from as u16;
                self.0[index].pages += pages as u16;
            }
            (true, true) => {
                let next = self.0.remove(index);
                self.0[index - 1].pages += pages as u16 + next.pages;
                self.shrink();
            }
        }
    }

    fn insert(&mut self, index: usize, run: Run) {
        if self.0.len() == self.0.capacity() {
            // Half of the room that 16 bytes a run leave, so that neither the next insertion nor the next removal moves all.
            self.0.reserve_exact(1 + self.0.len() / 6);
        }
        self.0.insert(index, run);
    }

    /// Gives memory back where the runs take more than 16 bytes each.
    #[inline]
    fn shrink(&mut self) {
        if self.bytes() > 16 * self.0.len() {
            self.0.shrink_to_fit();
        }
    }
}
