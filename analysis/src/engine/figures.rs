//! Figures of all partitions together: live objects, rows, sums per kind and findings.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use kmemtrace_abi::event::Kind;

use crate::account::classes::{Class, Classes, UNSELECTED};
use crate::account::stats::Stats;
use crate::engine::config::RunConfig;
use crate::engine::peaks::PeakTracker;
use crate::engine::scheduler::Partition;
use crate::error::{AnalysisError, LESS_OF_THE_TRACE};
use crate::pairing::findings::{Finding, FindingRow, FindingSites, Findings};
use crate::pairing::pairs::{Live, PairingOptions, PairingResult, kind_index};

/// Counts and findings of all partitions, before they are added to rows.
pub(super) struct Collected {
    paired: PairingResult,
    /// By row.
    figures: Vec<Stats>,
    findings: Vec<Findings>,
}

/// Takes counts, live objects and findings out of the partitions, after `events` events.
pub(super) fn collect(
    mut partitions: Vec<Partition<'_>>,
    classes: &Classes,
    config: &RunConfig,
    events: u64,
) -> Result<Collected, AnalysisError> {
    let (live, known) =
        if config.rules.lists_live { list_live(&mut partitions, classes, config, events)? } else { Default::default() };
    let knows_nodes = config.rules.nodes.is_some();
    let mut paired = PairingResult { live, classes: known, knows_nodes, ..PairingResult::default() };
    config.budget.check_figures(classes.rows(), events)?;
    let mut figures = vec![Stats::default(); classes.rows()];
    let mut findings = Vec::new();
    for part in partitions {
        paired.counts.add(&part.pairing.counts());
        part.pairing.tallies.add_to(&mut figures);
        findings.push(part.pairing.findings);
    }
    Ok(Collected { paired, figures, findings })
}

/// The live objects of all partitions, oldest first, with their classes. The tables go as the list grows.
fn list_live(
    partitions: &mut [Partition<'_>],
    classes: &Classes,
    config: &RunConfig,
    events: u64,
) -> Result<(Vec<Live>, Vec<Class>), AnalysisError> {
    let rows: usize = partitions.iter().map(|part| part.pairing.live_objects()).sum();
    // The list takes less memory than the tables whose place it takes.
    if !config.has_room_for(rows, partitions.iter().map(|part| part.pairing.table_bytes()).sum()) {
        return Err(config.budget.exceeded("rows of live objects", events, LESS_OF_THE_TRACE));
    }
    let (mut live, mut known) = (Vec::new(), Vec::new());
    live.reserve_exact(rows);
    classes.from(0, |class| known.push(*class));
    partitions.iter_mut().for_each(|part| part.pairing.list_live(&mut live, &mut known));
    live.sort_unstable_by_key(|object| (object.alloc_info.at, object.alloc_info.tie, object.address));
    Ok((live, known))
}

impl Collected {
    /// Adds everything up under the rows that `classes` has; `all_suspect`: there is a gap from the first event to the last.
    /// Also returns the names of caches and events.
    pub(super) fn add_up(
        self,
        classes: Classes,
        rules: &PairingOptions,
        peaks: &PeakTracker,
        all_suspect: bool,
    ) -> Result<(PairingResult, kmemtrace_abi::event::Names), AnalysisError> {
        let Collected { mut paired, figures, findings } = self;
        let registry = classes.into_inner();
        if registry.exhausted {
            return Err(AnalysisError::TooMany { limit: UNSELECTED });
        }
        paired.rows = registry.rows.iter().copied().zip(figures).collect();
        add_sums(&mut paired, peaks);
        add_findings(&mut paired, rules, &findings, all_suspect);
        Ok((paired, registry.names))
    }
}

/// Adds peaks to the rows, and sums of each kind and in all.
fn add_sums(paired: &mut PairingResult, peaks: &PeakTracker) {
    paired.peak_at = peaks.peak_at;
    for (index, ((_, kind), figures)) in paired.rows.iter_mut().enumerate() {
        figures.peak_live_allocated = Some(peaks.peak(index));
        paired.kinds[kind_index(*kind)].add(figures);
        if *kind != Kind::Pages {
            paired.total.add(figures);
        }
    }
    let (kinds, total) = peaks.peaks();
    for (figures, peak) in paired.kinds.iter_mut().zip(kinds) {
        figures.peak_live_allocated = Some(peak);
    }
    paired.total.peak_live_allocated = Some(total);
}

/// Adds the findings of all partitions, by their call-sites.
fn add_findings(paired: &mut PairingResult, rules: &PairingOptions, findings: &[Findings], all_suspect: bool) {
    let mut rows: HashMap<FindingSites, FindingRow, RandomState> = HashMap::default();
    for (key, mut row) in findings.iter().flat_map(Findings::rows) {
        if all_suspect && key.class != Finding::ShortAlloc {
            row.suspect = row.count;
        }
        let of = key.alloc.and_then(|alloc| paired.rows.get_mut(alloc as usize));
        let mut alloc_site = None;
        if let Some(((site, kind), figures)) = of {
            alloc_site = rules.by_site.then_some(*site);
            if key.is_unexplained(&row) {
                figures.live_is_upper_bound = true;
                paired.kinds[kind_index(*kind)].live_is_upper_bound = true;
                paired.total.live_is_upper_bound |= *kind != Kind::Pages;
            }
        }
        let sites = FindingSites { class: key.class, alloc_site, free_site: key.free_site, kind: key.kind };
        rows.entry(sites).and_modify(|sum| sum.add(&row)).or_insert(row);
    }
    paired.findings = rows;
}
