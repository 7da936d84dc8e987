//! Runs an analysis: from the index beside the trace, over a time window, or over the whole trace, whose result the index keeps.

use kmemtrace_abi::trace::Trace;

use crate::account::completeness::Completeness;
use crate::account::completeness::MergeStats;
use crate::account::group_reader::GroupFacts;
use crate::account::grouping::GroupKey;
use crate::cache::{AnalysisRequest, Index, Restricted};
use crate::engine::config::RunConfig;
use crate::engine::init_sites::{self, InitFacts};
use crate::engine::read_trace;
use crate::error::AnalysisError;
use crate::pairing::result::PairingResult;
use crate::progress::Progress;
use crate::query::filter::EventFilter;
use crate::query::window::AskedWindow;

/// One run: a trace, its index, the request and the configuration.
pub(crate) struct AnalysisRun<'a> {
    pub(crate) trace: &'a mut Trace,
    pub(crate) index: Option<Index>,
    pub(crate) config: RunConfig<'a>,
    pub(crate) request: AnalysisRequest,
    pub(crate) progress: &'a mut dyn Progress,
}

type Outcome = Result<(MergeStats, PairingResult, Completeness), AnalysisError>;

impl AnalysisRun<'_> {
    /// Runs over the whole trace, or a window of it; no index answers where the filter selects allocations.
    pub(crate) fn run(self, filter: &EventFilter<'_>, window: Option<AskedWindow<'_>>) -> Outcome {
        match window {
            Some(window) => self.of_window(filter, window),
            None if filter.selects() => self.through(filter, |_| (0, u64::MAX)),
            None => self.of_all(filter),
        }
    }

    /// Answers from the index, else by a pass over the whole trace.
    fn of_all(mut self, filter: &EventFilter<'_>) -> Outcome {
        if let Some(index) = &mut self.index
            && let Some(answer) = index.answer(self.request, &mut self.trace.names)
            && self.config.has_room_for(answer.1.live.len(), 0)
        {
            return Ok(answer);
        }
        self.prepare();
        let whole = |_| (0, u64::MAX);
        let request = (self.config.facts, self.request);
        let (order, mut paired) = read_trace::run(self.trace, self.config, filter, whole, None, self.progress)?;
        find_init_sites(self.trace, request, &mut paired, whole, self.progress)?;
        let completeness = completeness(self.trace, &order, &paired);
        if let Some(index) = &self.index {
            index.keep(self.trace, &completeness, Some((self.request, &order, &paired)));
        }
        Ok((order, paired, completeness))
    }

    /// Reads the files' parts that a window needs, if the index has seek points, else all.
    fn of_window(mut self, filter: &EventFilter<'_>, window: AskedWindow<'_>) -> Outcome {
        if let Some(index) = &mut self.index
            && let Some(Restricted { bounds, completeness, first }) =
                index.restrict(self.trace, |first| window.resolve(first))
        {
            let (order, mut paired) =
                read_trace::run(self.trace, self.config.clone(), filter, |_| bounds, Some(first), self.progress)?;
            let request = (self.config.facts, self.request);
            find_init_sites(self.trace, request, &mut paired, |_| bounds, self.progress)?;
            if index.was_good(self.trace) {
                return Ok((order, paired, completeness));
            }
            *self.trace = self.trace.reopen()?;
        }
        self.through(filter, |first| window.resolve(first))
    }

    /// Reads the whole trace.
    fn through(mut self, filter: &EventFilter<'_>, window: impl Fn(u64) -> (u64, u64)) -> Outcome {
        self.prepare();
        let request = (self.config.facts, self.request);
        let (order, mut paired) = read_trace::run(self.trace, self.config, filter, &window, None, self.progress)?;
        find_init_sites(self.trace, request, &mut paired, window, self.progress)?;
        let completeness = completeness(self.trace, &order, &paired);
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

/// Completeness of a trace that a pass has read to its end, with the number of its different stacks.
fn completeness(trace: &Trace, order: &MergeStats, paired: &PairingResult) -> Completeness {
    Completeness::of(trace, order).with_distinct_stacks(trace, paired.stacks.distinct)
}

/// Finds the call-sites in the initialisation of modules, by one more pass: where rows are call-sites or stacks, modules were loaded, and a
/// call-site may be of one of them.
fn find_init_sites(
    trace: &Trace,
    (facts, request): (GroupFacts<'_>, AnalysisRequest),
    paired: &mut PairingResult,
    bounds: impl FnOnce(u64) -> (u64, u64),
    progress: &mut dyn Progress,
) -> Result<(), AnalysisError> {
    let has_sites = [GroupKey::Site, GroupKey::Stack].into_iter().any(|key| request.grouping.has(key));
    if !paired.has_loads || !has_sites || trace.inputs.is_empty() {
        return Ok(());
    }
    let symbols = facts.symbolizer().filter(|symbols| !symbols.knows_init_sites());
    let Some(init) = symbols.and_then(|symbols| InitFacts::of(trace, symbols)) else { return Ok(()) };
    let of_rows = paired.rows.iter().map(|(key, _)| key.site);
    let of_findings = paired.findings.keys().flat_map(|key| [key.alloc_site, key.free_site]).flatten();
    let of_stacks = paired.stacks.all().flatten().copied();
    if of_rows.chain(of_findings).chain(of_stacks).any(|site| init.may_be_init(site)) {
        paired.init_sites = init_sites::find(trace, init, bounds, progress)?;
    }
    Ok(())
}
