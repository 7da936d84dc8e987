//! Live frames of a region as runs of neighbours with the same word, in order: those of blocks, and single pages that have too many
//! words.

use smallvec::SmallVec;

use super::chunk::REGION;
use crate::memory::heap::heap_bytes;
use crate::pairing::slot::SlotState;

/// Frames of a line: neighbours for which there is one bit.
const LINE: usize = REGION / u64::BITS as usize;

/// Frames beside each other that have the same word, numbered from the first of their region. The word in halves: a run takes 12
/// bytes.
#[derive(Clone, Copy, Debug)]
struct Run {
    first: u16,
    pages: u16,
    word: [u32; 2],
}

/// Runs of a region. A single one is kept in place, more in memory of their own.
#[derive(Debug, Default)]
pub(super) struct Runs {
    runs: SmallVec<[Run; 1]>,
    /// A bit for each line that has frames of runs.
    lines: u64,
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

    fn lines(self) -> u64 {
        lines(self.from(), self.end())
    }

    fn word(self) -> SlotState {
        SlotState::from_halves(self.word)
    }
}

/// Bits of the lines of frames, of which there is at least one.
#[inline(always)]
fn lines(from: usize, end: usize) -> u64 {
    let (first, last) = (from / LINE, (end - 1) / LINE);
    u64::MAX >> (63 - (last - first)) << first
}

impl Runs {
    /// Number of runs.
    #[inline(always)]
    pub(super) fn len(&self) -> usize {
        self.runs.len()
    }

    /// Bytes of memory beside its own.
    #[inline(always)]
    pub(super) fn bytes(&self) -> usize {
        if self.runs.spilled() { heap_bytes(self.runs.capacity() * size_of::<Run>()) } else { 0 }
    }

    /// Each run: first frame, pages and word.
    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, usize, SlotState)> {
        self.runs.iter().map(|run| (run.from(), run.pages.into(), run.word()))
    }

    /// Changes the word of each run of single pages.
    pub(super) fn each_single(&mut self, change: impl Fn(&mut SlotState)) {
        for run in &mut self.runs {
            let mut word = run.word();
            if word.is_live() {
                change(&mut word);
                run.word = word.halves();
            }
        }
    }

    /// True where a run may have a frame from `from` on before `end`.
    #[inline(always)]
    pub(super) fn may_have(&self, from: usize, end: usize) -> bool {
        self.lines & lines(from, end) != 0
    }

    /// First run that ends behind frame `from`.
    fn at(&self, from: usize) -> usize {
        self.runs.partition_point(|run| run.end() <= from)
    }

    /// Takes the frames from `from` on before `end` off their blocks, each word of which is told to `hit`: parts of runs, whole
    /// ones, or several.
    pub(super) fn take(&mut self, from: usize, end: usize, hit: &mut dyn FnMut(SlotState, u32)) {
        let first = self.at(from);
        if self.runs.get(first).is_none_or(|run| run.from() >= end) {
            return;
        }
        let mut index = first;
        while let Some(run) = self.runs.get(index).copied().filter(|run| run.from() < end) {
            hit(run.word(), (run.end().min(end) - run.from().max(from)) as u32);
            let before = (run.from() < from).then(|| Run::new(run.from(), from - run.from(), run.word()));
            let behind = (run.end() > end).then(|| Run::new(end, run.end() - end, run.word()));
            match before.or(behind) {
                Some(left) => self.runs[index] = left,
                None => drop(self.runs.remove(index)),
            }
            index += usize::from(before.is_some());
            if let (Some(_), Some(behind)) = (before, behind) {
                self.insert(index, behind);
            }
        }
        self.clear_lines(first, from, end);
        self.shrink();
    }

    /// Clears the bits of lines of frames that were taken; `index`: the first run that ended behind the first of these.
    fn clear_lines(&mut self, index: usize, from: usize, end: usize) {
        let lines = lines(from, end);
        // The last run before the frames, what is left of one at their begin, and the first run behind them.
        let near = self.runs.get(index.saturating_sub(1)..).unwrap_or_default().iter().take(3);
        self.lines &= !lines | near.fold(0, |used, run| used | run.lines());
    }

    /// Makes frames live, none of which is.
    pub(super) fn put(&mut self, from: usize, pages: usize, now: SlotState) {
        let index = self.at(from);
        self.lines |= lines(from, from + pages);
        let is_like = |run: &Run| run.word().is_same_word(now);
        let last = index.checked_sub(1).and_then(|last| self.runs.get(last));
        let joins_last = last.is_some_and(|run| run.end() == from && is_like(run));
        let next = self.runs.get(index);
        let joins_next = next.is_some_and(|run| run.from() == from + pages && is_like(run));
        match (joins_last, joins_next) {
            (false, false) => self.insert(index, Run::new(from, pages, now)),
            (true, false) => self.runs[index - 1].pages += pages as u16,
            (false, true) => {
                self.runs[index].first = from as u16;
                self.runs[index].pages += pages as u16;
            }
            (true, true) => {
                let next = self.runs.remove(index);
                self.runs[index - 1].pages += pages as u16 + next.pages;
                self.shrink();
            }
        }
    }

    fn insert(&mut self, index: usize, run: Run) {
        if self.runs.len() == self.runs.capacity() {
            // Half of the room that 16 bytes a run leave, so that neither the next insertion nor the next removal moves all.
            self.runs.reserve_exact(1 + self.runs.len() / 6);
        }
        self.runs.insert(index, run);
    }

    /// Gives memory back where the runs take more than 16 bytes each.
    fn shrink(&mut self) {
        if self.bytes() > 16 * self.runs.len() {
            self.runs.shrink_to_fit();
        }
    }
}
