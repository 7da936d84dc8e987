//! How the figures of a view are come by: from the index beside the trace, by reading what a window needs, or by a pass over all
//! of it, of which the index keeps what it came to.

use kmemtrace_abi::trace::Trace;

use crate::account::completeness::Completeness;
use crate::cache::{Index, Narrowed, Question};
use crate::engine::pipeline::{self, Job};
use crate::error::AnalysisError;
use crate::order::merger::MergeStats;
use crate::order::pair_event::Filter;
use crate::pairing::pairs::PairingResult;
use crate::progress::Progress;
use crate::query::window::AskedWindow;

/// What to go through, and how.
pub(crate) struct Pass<'a> {
    pub(crate) trace: &'a mut Trace,
    pub(crate) index: Option<Index>,
    pub(crate) job: Job,
    pub(crate) asked: Question,
    pub(crate) progress: &'a mut dyn Progress,
}

type Outcome = Result<(MergeStats, PairingResult, Completeness), AnalysisError>;

impl Pass<'_> {
    /// The whole trace, or a window of it; `is_filtered`: some of the views' options select.
    pub(crate) fn run<F: Filter + Clone + Send>(
        self,
        filter: &F,
        is_filtered: bool,
        window: Option<AskedWindow<'_>>,
    ) -> Outcome {
        match window {
            Some(window) => self.of_window(filter, window),
            None if is_filtered => self.through(filter, |_| (0, u64::MAX)),
            None => self.of_all(filter),
        }
    }

    /// The whole trace, as an earlier pass or this one has seen it.
    fn of_all<F: Filter + Clone + Send>(mut self, filter: &F) -> Outcome {
        if let Some(index) = &mut self.index
            && let Some(answer) = index.answer(self.asked, &mut self.trace.names)
            && self.job.has_room_for(answer.1.live.len(), 0)
        {
            return Ok(answer);
        }
        self.prepare();
        let (order, paired) = pipeline::run(self.trace, self.job, filter, |_| (0, u64::MAX), self.progress)?;
        let completeness = Completeness::of(self.trace, &order);
        if let Some(index) = &self.index {
            index.keep(self.trace, &completeness, Some((self.asked, &order, &paired)));
        }
        Ok((order, paired, completeness))
    }

    /// A window, without reading what is far from it where the index tells what that is.
    fn of_window<F: Filter + Clone + Send>(mut self, filter: &F, window: AskedWindow<'_>) -> Outcome {
        if let Some(index) = &mut self.index
            && let Some(Narrowed { bounds, completeness, .. }) = index.narrow(self.trace, |first| window.resolve(first))
        {
            let (order, paired) = pipeline::run(self.trace, self.job.clone(), filter, |_| bounds, self.progress)?;
            if index.was_good(self.trace) {
                return Ok((order, paired, completeness));
            }
            *self.trace = Trace::open(&self.trace.inputs)?;
        }
        self.through(filter, |first| window.resolve(first))
    }

    /// By reading all of it.
    fn through<F: Filter + Clone + Send>(mut self, filter: &F, window: impl FnOnce(u64) -> (u64, u64)) -> Outcome {
        self.prepare();
        let (order, paired) = pipeline::run(self.trace, self.job, filter, window, self.progress)?;
        let completeness = Completeness::of(self.trace, &order);
        if let Some(index) = &self.index {
            index.keep(self.trace, &completeness, None);
        }
        Ok((order, paired, completeness))
    }

    fn prepare(&mut self) {
        if let Some(index) = &self.index {
            index.prepare(self.trace);
        }
    }
}
