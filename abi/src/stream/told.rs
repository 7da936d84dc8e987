//! Loss that is told apart from the sub-buffers, noted and handed over at its place among them.

use super::file_loss::{FileLoss, ToldLoss};
use super::state::StreamState;
use crate::disk::blocks::Ending;
use crate::event::{EventSink, GapCause, Names};

impl StreamState {
    /// True if the mark of the sub-buffer that begins stands for gaps that are told apart.
    pub(super) fn has_told_mark(&mut self) -> bool {
        self.told.as_deref_mut().is_some_and(ToldLoss::takes_mark)
    }

    /// A sub-buffer with entries or a mark begins.
    #[cold]
    pub(super) fn begin_sub_buffer(
        &mut self,
        timestamp: u64,
        is_marked: bool,
        names: &Names,
        items: &mut impl EventSink,
    ) {
        if let Some(log) = &mut self.log {
            log.begin(timestamp, is_marked);
        }
        while let Some(gap) = self.told.as_deref_mut().and_then(ToldLoss::take_due) {
            self.waiting.flush(names, items);
            self.push_gap(items, gap);
        }
    }

    #[cold]
    pub(super) fn end_sub_buffer(&mut self) {
        if let Some(log) = &mut self.log {
            log.end();
        }
        if let Some(told) = &mut self.told {
            told.end_sub_buffer();
        }
    }

    /// Hands over the gaps that stand before everything.
    pub(super) fn tell_ahead(&mut self, items: &mut impl EventSink) {
        while let Some(gap) = self.told.as_deref_mut().and_then(ToldLoss::take_ahead) {
            self.push_gap(items, gap);
        }
    }

    /// Ends a file whose loss is told apart; `ending` is that of its sub-buffers.
    pub(super) fn finish_told(&mut self, mut told: ToldLoss, ending: Ending, items: &mut impl EventSink) {
        self.report.last = self.last;
        while let Some(gap) = told.take() {
            self.push_gap(items, gap);
        }
        let cut = match ending {
            Ending::Whole => None,
            Ending::Cut => Some(GapCause::Cut),
            Ending::Damaged => Some(GapCause::Damage),
        };
        if cut.is_some() || self.pending.is_some() {
            self.gap(items, cut, None);
        }
        told.into_loss().add_to(&mut self.report);
    }

    /// Loss of a file that has been read, where it was noted.
    pub(super) fn file_loss(&self) -> Option<FileLoss> {
        self.log.as_deref().map(|log| log.loss(&self.report))
    }
}
