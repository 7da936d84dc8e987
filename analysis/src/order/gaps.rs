//! Gaps of the merge: they start and end windows' runs of events between which no gap begins or ends.
//!
//! ```text
//!  add: gaps of a stream           add_holes: sequence numbers that no event has
//!     |                                          |
//!     v                                          |
//!  growing: each stream's last gap               |
//!     | advance: the stream has                  |
//!     | an event after it                        |
//!     v                                          |
//!  upcoming_gaps, by begin <---------------------+
//!     |
//!     +- begin <= last window's frontier --------> Window.gap_at_last_frontier +
//!     |                                                                       |
//!     +- begin <= key of an event of the window -> LossRun { starts_gap, .. } +
//!                                                                             v
//!                                                                   pairing: LossState
//! ```
//!
//! The frontier is the last key of a window. Gaps that begin before it are complete; a gap that begins at it may still be unread,
//! and comes to light with the next window.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use kmemtrace_abi::event::{Gap, GapCause};

use crate::account::births::joined;
use crate::order::merge::Keyed;

/// Number of gaps from which they are put together.
const MANY_GAPS: usize = 1024;

/// Order keys at which a gap begins and ends, both included.
type Interval = (u64, u64);

/// Run of a window's events between which no gap begins or ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LossRun {
    /// Number of the run's first event in the window.
    pub(crate) from: u32,
    /// A gap starts here: a new loss epoch.
    pub(crate) starts_gap: bool,
    /// All of the run lies in a gap.
    pub(crate) in_gap: bool,
}

/// Runs of missing sequence numbers, and the numbers in them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SequenceHoles {
    pub(crate) holes: u64,
    pub(crate) missing: u64,
}

/// Gaps of all streams, as the merge passes them.
#[derive(Debug)]
pub(crate) struct GapTracker {
    /// Last gap of each stream, which the next chunk may lengthen.
    growing: Vec<Option<Interval>>,
    /// Complete gaps that have not begun, first ones first.
    upcoming_gaps: BinaryHeap<Reverse<Interval>>,
    /// Largest end of the gaps that have begun.
    gap_open_until: Option<u64>,
    /// Frontier of the last window.
    complete_until: Option<u64>,
    /// Sequence number of the last event, within the merge's bounds or not.
    last_number: Option<u64>,
    /// Gaps since the last window, in no order.
    unreported: Vec<Gap>,
    /// All gaps so far, put together where they overlap up to the number [`GapTracker::joined`].
    all: Vec<Interval>,
    joined: usize,
}

impl GapTracker {
    /// Tracker without gaps, for this many streams.
    pub(crate) fn new(streams: usize) -> GapTracker {
        GapTracker {
            growing: vec![None; streams],
            upcoming_gaps: BinaryHeap::new(),
            gap_open_until: None,
            complete_until: None,
            last_number: None,
            unreported: Vec::new(),
            all: Vec::new(),
            joined: 0,
        }
    }

    /// Adds the next gap of a stream. Gaps with the same begin are one, of which the chunk before told the first part.
    pub(crate) fn add(&mut self, stream: usize, gap: Gap) {
        let Some(growing) = self.growing.get_mut(stream) else { return };
        let (from, to) = (gap.from.unwrap_or(0), gap.to.unwrap_or(u64::MAX));
        match growing {
            Some(before) if before.0 == from => before.1 = before.1.max(to),
            other => self.upcoming_gaps.extend(other.replace((from, to)).map(Reverse)),
        }
        self.unreported.push(gap);
        self.keep((from, to));
    }

    /// Adds a gap to the list of all of them, which takes no more memory than twice what gaps apart from each other need.
    fn keep(&mut self, gap: Interval) {
        self.all.push(gap);
        if self.all.len() > 2 * self.joined.max(MANY_GAPS) {
            self.all = joined(std::mem::take(&mut self.all));
            self.joined = self.all.len();
        }
    }

    /// All gaps so far, put together where they overlap.
    pub(crate) fn all(&mut self) -> Vec<(u64, u64)> {
        joined(std::mem::take(&mut self.all))
    }

    /// Adds a gap for each run of sequence numbers that is missing before or between the next events, on the CPU of the event
    /// after it. `cpus` are those of the streams.
    pub(crate) fn add_holes<E: Keyed>(&mut self, events: &[E], cpus: &[u32]) -> SequenceHoles {
        let mut found = SequenceHoles::default();
        for event in events {
            let key = event.key();
            if let Some(last) = self.last_number.filter(|&last| key > last.saturating_add(1)) {
                let lost = key - last - 1;
                found.holes += 1;
                found.missing = found.missing.saturating_add(lost);
                self.upcoming_gaps.push(Reverse((last, key)));
                self.keep((last, key));
                let (from, to) = (Some(last), Some(key));
                self.unreported.push(Gap {
                    from,
                    to,
                    cpu: event.cpu(cpus),
                    lost: Some(lost),
                    cause: GapCause::Sequence,
                });
            }
            self.last_number = Some(key);
        }
        found
    }

    /// Cuts the events of the next window into `runs`, which is empty; true where a gap begins at the last window's frontier.
    /// `complete_until` is the frontier of this window, `None` at the end of all streams.
    pub(crate) fn advance<E: Keyed>(
        &mut self,
        complete_until: Option<u64>,
        events: &[E],
        runs: &mut Vec<LossRun>,
    ) -> bool {
        self.complete_growing(complete_until);
        let gap_at_last_frontier = self.begin_until_last_frontier();
        self.cut(events, gap_at_last_frontier, runs);
        self.complete_until = Some(complete_until.unwrap_or(u64::MAX));
        gap_at_last_frontier
    }

    /// Moves the gaps since the last window to `gaps`, for observers.
    pub(crate) fn report(&mut self, gaps: &mut Vec<Gap>) {
        gaps.append(&mut self.unreported);
    }

    /// Completes gaps that begin before the frontier: their streams have events after them.
    fn complete_growing(&mut self, complete_until: Option<u64>) {
        for growing in &mut self.growing {
            if growing.is_some_and(|(from, _)| complete_until.is_none_or(|until| from < until)) {
                self.upcoming_gaps.extend(growing.take().map(Reverse));
            }
        }
    }

    /// Begins gaps at the last window's frontier, which came to light only now; true where there is one.
    fn begin_until_last_frontier(&mut self) -> bool {
        self.complete_until.is_some_and(|until| self.begin_until(until))
    }

    /// Begins all gaps up to a key; true where there is one.
    fn begin_until(&mut self, key: u64) -> bool {
        let mut any = false;
        while let Some(&Reverse((from, to))) = self.upcoming_gaps.peek()
            && from <= key
        {
            self.upcoming_gaps.pop();
            self.gap_open_until = self.gap_open_until.max(Some(to));
            any = true;
        }
        any
    }

    /// Cuts events where gaps begin and end. The first run starts a gap where the caller knows of one before it.
    fn cut<E: Keyed>(&mut self, events: &[E], mut starts_gap: bool, runs: &mut Vec<LossRun>) {
        let mut from = 0;
        while let Some(first) = events.get(from).map(Keyed::key) {
            starts_gap |= self.begin_until(first);
            let in_gap = self.gap_open_until.is_some_and(|until| first <= until);
            runs.push(LossRun { from: from as u32, starts_gap, in_gap });
            let next_begin = self.upcoming_gaps.peek().map_or(u64::MAX, |&Reverse((begin, _))| begin);
            let end = self.gap_open_until.filter(|_| in_gap).unwrap_or(u64::MAX);
            let in_run = |key: u64| key < next_begin && key <= end || key == first;
            from += events[from..].partition_point(|event| in_run(event.key()));
            starts_gap = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Keyed for u64 {
        fn key(&self) -> u64 {
            *self
        }

        fn part(&self, _: u32) -> u8 {
            0
        }

        fn cpu(&self, cpus: &[u32]) -> u32 {
            cpus[0]
        }
    }

    fn gap(from: u64, to: u64) -> Gap {
        Gap { from: Some(from), to: Some(to), cpu: 0, lost: None, cause: GapCause::Overrun }
    }

    fn advance(gaps: &mut GapTracker, complete_until: Option<u64>, events: &[u64]) -> (bool, Vec<(u32, bool, bool)>) {
        let mut runs = Vec::new();
        let at_frontier = gaps.advance(complete_until, events, &mut runs);
        (at_frontier, runs.into_iter().map(|run| (run.from, run.starts_gap, run.in_gap)).collect())
    }

    /// Events before, within and after a gap, as in the drawing of `pairing/loss.rs`.
    #[test]
    fn a_gap_cuts_the_events_into_three_runs() {
        let mut gaps = GapTracker::new(1);
        gaps.add(0, gap(200, 300));
        let runs = vec![(0, false, false), (1, true, true), (3, false, false)];
        assert_eq!(advance(&mut gaps, None, &[100, 200, 300, 400]), (false, runs));
        let mut told = Vec::new();
        gaps.report(&mut told);
        assert_eq!(told, [gap(200, 300)]);
    }

    /// A gap at the frontier, and one that a later chunk lengthens.
    #[test]
    fn a_gap_at_the_frontier_comes_to_light_with_the_next_window() {
        let mut gaps = GapTracker::new(1);
        assert_eq!(advance(&mut gaps, Some(20), &[10, 20]), (false, vec![(0, false, false)]));
        gaps.add(0, gap(20, 25));
        gaps.add(0, gap(20, 35));
        let runs = vec![(0, true, true), (1, false, false)];
        assert_eq!(advance(&mut gaps, Some(40), &[30, 40]), (true, runs));
    }

    #[test]
    fn holes_are_found_across_windows() {
        let mut gaps = GapTracker::new(1);
        assert_eq!(gaps.add_holes(&[7u64, 8], &[3]), SequenceHoles::default());
        assert_eq!(gaps.add_holes(&[11u64, 12, 14], &[3]), SequenceHoles { holes: 2, missing: 3 });
        let mut told = Vec::new();
        gaps.report(&mut told);
        assert_eq!(
            told.iter().map(|gap| (gap.cpu, gap.from, gap.to)).collect::<Vec<_>>(),
            [(3, Some(8), Some(11)), (3, Some(12), Some(14))]
        );
    }
}
