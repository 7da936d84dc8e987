//! Verdict over all files of a trace: whether events are missing, how many and where.

use kmemtrace_abi::fault::Verdict;
use kmemtrace_abi::kernel::unknown::UnknownEvents;
use kmemtrace_abi::stream::CpuStream;
use kmemtrace_abi::stream::report::{FileReport, Source};
use kmemtrace_abi::trace::Trace;
use serde::{Deserialize, Serialize};

/// Totals of the merge.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct MergeStats {
    /// Key of the first event within the bounds.
    pub(crate) first: Option<u64>,
    /// Key of the last event within the bounds.
    pub(crate) last: Option<u64>,
    /// Events within the bounds, a record of several objects once.
    pub(crate) events: u64,
    /// Sequence numbers missing.
    pub(crate) missing: u64,
    /// Runs of missing sequence numbers.
    pub(crate) holes: u64,
}

/// Verdict, loss and damage over all files of a trace, without regard to filters.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Completeness {
    /// The worst verdict of all files.
    pub verdict: Verdict,
    /// Number of events lost; `None` if a file does not give it.
    pub lost_events: Option<u64>,
    /// Number of gaps in all streams.
    pub gaps: u64,
    /// Number of events lost before the first event; `None` if a file does not give it.
    pub lost_before: Option<u64>,
    /// Names of files that end early.
    pub truncated_files: Vec<String>,
    /// CPUs whose file is missing.
    pub missing_cpus: Vec<u32>,
    /// Inferred frees of all events that were read, without regard to filters; `None` for an input of one moment, which gives no
    /// frees.
    pub inferred_frees: Option<u64>,
    /// Frees without an allocation, of all events that were read, without regard to filters; `None` as for inferred ones.
    pub frees_without_alloc: Option<u64>,
    /// Lines and blocks of a text of one moment that were left out; `None` for other inputs.
    #[serde(skip)]
    pub skipped: Option<[u64; 2]>,
    /// Events that may concern objects and are not known.
    pub unknown: UnknownEvents,
    /// Number of call stacks in all streams.
    pub stacks: u64,
    /// Number of them that belong to no event.
    pub stacks_unmatched: u64,
    /// Number of different call stacks of the events of all streams; 0 where the pass told none apart.
    pub stacks_distinct: u64,
}

impl Completeness {
    /// Completeness of a trace that has been read to its end.
    pub(crate) fn of(trace: &Trace, order: &MergeStats) -> Completeness {
        let facts = || trace.streams.iter().map(CpuStream::report).chain(trace.metadata.report.as_ref());
        let mut verdict = facts().map(|f| f.verdict).max().unwrap_or_default();
        let gaps = facts().fold(0u64, |sum, f| sum.saturating_add(f.gaps)).saturating_add(order.holes);
        let on_every_cpu = if trace.dropped_beyond(order.missing) > 0 { trace.info.cpus.len() as u64 } else { 0 };
        let gaps = gaps.saturating_add(on_every_cpu);
        let files = facts().try_fold(0u64, |sum, f| Some(sum.saturating_add(f.lost?)));
        // A relay channel counts its overruns over all CPUs and does not number what it drops: they have no place.
        let lost_events = match trace.info.source {
            Some(Source::Relay) => Some(order.missing.max(trace.total_overruns().unwrap_or(0)).max(files.unwrap_or(0))),
            _ => files,
        };
        if lost_events.is_some_and(|n| n > 0) {
            verdict = verdict.max(Verdict::Lossy);
        }
        let cut = |f: &&FileReport| f.faults.iter().any(|fault| fault.code.verdict() == Verdict::Truncated);
        let name = |f: &FileReport| f.name().to_string_lossy().into_owned();
        let missing = |f: &&FileReport| f.cpu.is_some_and(|cpu| trace.info.missing.contains(&cpu));
        let mut unknown = UnknownEvents::default();
        trace.streams.iter().for_each(|stream| unknown.add(&stream.report().unknown));
        let no_free = trace.info.capabilities.past.then_some(0);
        let skipped = trace.info.text.as_ref().map(|text| [text.skipped_lines, text.skipped_blocks]);
        // A text does not tell what was lost before it was taken.
        let lost_events = lost_events.filter(|_| trace.info.capabilities.past);
        Completeness {
            verdict,
            lost_events,
            gaps,
            lost_before: facts().try_fold(0u64, |sum, f| Some(sum.saturating_add(f.lost_before?))),
            truncated_files: facts().filter(|f| !missing(f)).filter(cut).map(name).collect(),
            missing_cpus: trace.info.missing.clone(),
            inferred_frees: no_free,
            frees_without_alloc: no_free,
            skipped,
            unknown,
            // Entries of a text that are alike come as one event, which has one stack.
            stacks: match &trace.info.text {
                Some(text) => text.stacks_seen,
                None => facts().fold(0u64, |sum, f| sum.saturating_add(f.stacks)),
            },
            stacks_unmatched: facts().fold(0u64, |sum, f| sum.saturating_add(f.stacks_unmatched)),
            stacks_distinct: 0,
        }
    }

    /// Notes the number of different stacks that were found; a text tells its own.
    #[must_use]
    pub(crate) fn with_distinct_stacks(self, trace: &Trace, found: u64) -> Completeness {
        Completeness { stacks_distinct: trace.info.text.as_ref().map_or(found, |text| text.stacks_distinct), ..self }
    }

    /// Notes how many objects were not freed by a free of their own, and how many frees had no allocation, where the input tells frees.
    pub(crate) fn set_unpaired(&mut self, inferred_frees: u64, frees_without_alloc: u64) {
        self.inferred_frees = self.inferred_frees.map(|_| inferred_frees);
        self.frees_without_alloc = self.frees_without_alloc.map(|_| frees_without_alloc);
    }

    /// The verdict as a word: `complete`, `lossy`, `truncated` or `corrupt`.
    pub fn verdict_name(&self) -> &'static str {
        match self.verdict {
            Verdict::Complete => "complete",
            Verdict::Lossy => "lossy",
            Verdict::Truncated => "truncated",
            Verdict::Corrupt => "corrupt",
        }
    }
}
