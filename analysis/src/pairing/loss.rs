//! Loss between two events at one address: may a gap explain what the pairing finds?
//!
//! ```text
//!  order key    100        200           300                    400
//!  CPU 1        -----------[ gap --------]----------------------------
//!  run          |          | starts_gap, |                      |
//!               |          | in_gap      |                      |
//!  LossEpoch    1          IN_GAP        2                      2
//! ```
//!
//! A gap that begins starts a new epoch. The table keeps with each address the epoch of its last event, and `IN_GAP` for an
//! event within a gap. `order/gaps.rs` cuts the runs.
//!
//! From the stream to a suspect finding:
//!
//! ```text
//!  CpuStream::decode -> EventSink::gap -> Chunk.gaps                       order/pair_event.rs, order/merge.rs
//!                                            | Merger::add
//!                                            v
//!                       GapTracker::add: each stream's last gap may still grow              order/gaps.rs
//!                                            | GapTracker::advance: the stream has an event after it
//!                                            v
//!                       GapTracker.upcoming_gaps: gaps ahead, by their start
//!                             |                                    |
//!         starts at or before the last frontier         starts at the key of an event of this window
//!                             v                                    v
//!         Window.gap_at_last_frontier                   Window.loss_runs: LossRun
//!  ===========================|============ pairing ===============|======================================
//!         LossState::begin_window                       LossState::enter: a new LossEpoch, or IN_GAP
//!         decides open findings                         Table::record keeps the epoch with the address
//!                                                                  v
//!                       LossState::explains(before, at) -> Suspicion -> Findings::count -> FindingRow.suspect
//! ```
//!
//! - The epochs are equal, and neither event lies in a gap: no gap is between them, and the finding counts.
//! - The epochs differ, or one of them is `IN_GAP`: the finding is suspect.
//! - The CPUs' clocks do not agree: `Pairing::is_out_of_order` makes the finding suspect, too.
//! - The event's key is the frontier, the last key of the window: a gap that starts at this key may not have been read yet. The finding
//!   stays open, and the next window with another frontier decides (`Findings::decide_open`).
//!
//! At the end `add_findings` makes every other finding suspect if loss came to light too late. All partitions see the same runs, so the
//! result does not depend on threads.

use crate::order::gaps::LossRun;

/// Loss epoch. Two events with equal epochs have no gap between them; `IN_GAP` equals nothing, itself included. There is no
/// `==`, so that no comparison forgets `IN_GAP`.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub(crate) struct LossEpoch(u16);

impl LossEpoch {
    /// Epoch of an event within a gap, or before the last gap that is told apart.
    pub(crate) const IN_GAP: LossEpoch = LossEpoch(0);
    pub(crate) const FIRST: LossEpoch = LossEpoch(1);

    /// True where no gap touches the time between events of the two epochs.
    #[inline(always)]
    pub(crate) fn is_gapless_with(self, other: LossEpoch) -> bool {
        self.0 == other.0 && self.0 != LossEpoch::IN_GAP.0
    }

    /// Epoch after this one. After 65,535 numbers begin again with [`LossEpoch::FIRST`].
    pub(crate) fn next(self) -> LossEpoch {
        self.0.checked_add(1).map_or(LossEpoch::FIRST, LossEpoch)
    }

    /// True for the epoch whose number may be that of older ones.
    pub(crate) fn is_first(self) -> bool {
        self.0 == LossEpoch::FIRST.0
    }

    /// Number of 16 bits, 0 for [`LossEpoch::IN_GAP`].
    #[inline(always)]
    pub(crate) const fn bits(self) -> u16 {
        self.0
    }

    /// Epoch of a number from [`LossEpoch::bits`].
    #[inline(always)]
    pub(crate) fn from_bits(bits: u16) -> LossEpoch {
        LossEpoch(bits)
    }
}

/// Suspicion that something else than the kernel's code made a finding: lost events, or clocks that do not agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Suspicion {
    /// Nothing else explains the finding.
    Unexplained,
    /// No gap is known yet, but one that begins at the finding's very key may still be unread.
    Open,
    /// A gap, or a clock, may explain the finding.
    Suspect,
}

/// Fate of the findings that the windows before have left open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpenFindings {
    /// A gap begins at their key.
    Suspect,
    /// No gap begins at their key.
    Unexplained,
    /// The frontier is still at their key.
    StillOpen,
}

/// Gaps as one partition of the addresses passes them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LossState {
    /// Epoch since the last gap began.
    epoch: LossEpoch,
    /// Epoch of the present run's events: `epoch`, or [`LossEpoch::IN_GAP`].
    now: LossEpoch,
    /// Frontier of the window.
    complete_until: Option<u64>,
    /// A first run was entered.
    has_begun: bool,
    /// A gap touches the time since the first event.
    had_gap: bool,
}

impl Default for LossState {
    /// State before the first window.
    fn default() -> LossState {
        LossState {
            epoch: LossEpoch::FIRST,
            now: LossEpoch::FIRST,
            complete_until: None,
            has_begun: false,
            had_gap: false,
        }
    }
}

impl LossState {
    /// Goes on to the next window, with its frontier; a gap may begin at the last one's.
    pub(crate) fn begin_window(&mut self, gap_at_last_frontier: bool, complete_until: Option<u64>) -> OpenFindings {
        let has_moved = complete_until != self.complete_until;
        self.complete_until = complete_until;
        match (gap_at_last_frontier, has_moved) {
            (true, _) => OpenFindings::Suspect,
            (false, true) => OpenFindings::Unexplained,
            (false, false) => OpenFindings::StillOpen,
        }
    }

    /// Goes on to the next run of the window. Returns the new epoch where a gap starts.
    pub(crate) fn enter(&mut self, run: &LossRun) -> Option<LossEpoch> {
        let new = run.starts_gap.then(|| self.epoch.next());
        self.epoch = new.unwrap_or(self.epoch);
        self.now = if run.in_gap { LossEpoch::IN_GAP } else { self.epoch };
        // A gap that has ended before the first event explains nothing.
        self.had_gap |= run.in_gap || run.starts_gap && self.has_begun;
        self.has_begun = true;
        new
    }

    /// Epoch of the present run's events, which the table keeps with their addresses.
    #[inline(always)]
    pub(crate) fn now(&self) -> LossEpoch {
        self.now
    }

    /// Suspicion of a finding at key `at` of the present run, at a frame whose last event may be any before.
    pub(crate) fn explains_since_the_first(&self, at: u64) -> Suspicion {
        if self.had_gap {
            Suspicion::Suspect
        } else if self.complete_until == Some(at) {
            Suspicion::Open
        } else {
            Suspicion::Unexplained
        }
    }

    /// Suspicion of a finding at key `at` of the present run, at an address whose last event was in epoch `before`.
    #[inline(always)]
    pub(crate) fn explains(&self, before: LossEpoch, at: u64) -> Suspicion {
        if !before.is_gapless_with(self.now) {
            Suspicion::Suspect
        } else if self.complete_until == Some(at) {
            Suspicion::Open
        } else {
            Suspicion::Unexplained
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(starts_gap: bool, in_gap: bool) -> LossRun {
        LossRun { from: 0, starts_gap, in_gap }
    }

    #[test]
    fn an_epoch_equals_only_itself_and_in_gap_nothing() {
        let (first, second) = (LossEpoch::FIRST, LossEpoch::FIRST.next());
        assert!(first.is_gapless_with(first) && second.is_gapless_with(second));
        assert!(!first.is_gapless_with(second) && !second.is_gapless_with(first));
        for epoch in [first, second, LossEpoch::IN_GAP] {
            assert!(!LossEpoch::IN_GAP.is_gapless_with(epoch) && !epoch.is_gapless_with(LossEpoch::IN_GAP));
        }
    }

    /// Numbers begin again, and none is that of `IN_GAP`.
    #[test]
    fn the_epoch_after_the_last_is_the_first() {
        let epochs: Vec<u16> = std::iter::successors(Some(LossEpoch::FIRST), |epoch| Some(epoch.next()))
            .map(LossEpoch::bits)
            .take(usize::from(u16::MAX) + 1)
            .collect();
        assert!(epochs[..epochs.len() - 1].iter().copied().eq(1..=u16::MAX));
        assert_eq!(epochs.last(), Some(&1));
    }

    /// The drawing above: events before, within and after a gap.
    #[test]
    fn a_gap_explains_what_happens_across_it_and_within() {
        let mut loss = LossState::default();
        loss.begin_window(false, Some(400));
        assert!(loss.enter(&run(false, false)).is_none());
        let before = loss.now();
        assert_eq!(loss.explains(before, 100), Suspicion::Unexplained);
        assert!(loss.enter(&run(true, true)).is_some());
        let within = loss.now();
        assert_eq!([before, within].map(|then| loss.explains(then, 200)), [Suspicion::Suspect; 2]);
        assert!(loss.enter(&run(false, false)).is_none());
        let after = loss.now();
        assert_eq!([before, within].map(|then| loss.explains(then, 350)), [Suspicion::Suspect; 2]);
        assert_eq!(loss.explains(after, 350), Suspicion::Unexplained);
        assert_eq!(loss.explains(after, 400), Suspicion::Open, "the key is the frontier");
    }

    #[test]
    fn open_findings_are_decided_once_the_frontier_has_moved() {
        let mut loss = LossState::default();
        assert_eq!(loss.begin_window(false, Some(1)), OpenFindings::Unexplained);
        assert_eq!(loss.begin_window(false, Some(1)), OpenFindings::StillOpen);
        assert_eq!(loss.begin_window(true, Some(1)), OpenFindings::Suspect);
        assert_eq!(loss.begin_window(false, None), OpenFindings::Unexplained);
    }
}
