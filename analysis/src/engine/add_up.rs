//! Figures of all partitions together: live objects, rows, sums per kind and findings.

use std::collections::{HashMap, HashSet};

use foldhash::fast::RandomState;
use kmemtrace_abi::event::{Kind, Space};

use crate::account::classes::{CacheNumber, Class, Classes, MAX_CLASSES, Numbers, Origin};
use crate::account::grouping::RowKey;
use crate::account::stats::{Stats, Told};
use crate::engine::config::RunConfig;
use crate::engine::peaks::PeakTracker;
use crate::engine::scheduler::Partition;
use crate::error::{AnalysisError, LESS_OF_THE_TRACE};
use crate::names::caches::CacheFrom;
use crate::names::reclaim::Reclaim;
use crate::pairing::findings::{Finding, FindingKey, FindingRow, FindingSites, Findings};
use crate::pairing::learn::{CacheLearner, LearnedName};
use crate::pairing::pairs::{Pairing, PairingOptions};
use crate::pairing::result::{Counts, Live, LiveList, PairingResult};

/// Counts and findings of all partitions, before they are added to rows.
pub(super) struct Collected {
    paired: PairingResult,
    /// By row.
    figures: Vec<Stats>,
    findings: Vec<Findings>,
    learners: Vec<CacheLearner>,
    /// Origins of objects of caches that have unseen frees.
    bounds: HashSet<u32, RandomState>,
    /// Best origin of the names of the caches of a row's objects, by row.
    caches_from: HashMap<u32, CacheFrom, RandomState>,
}

/// Takes counts, live objects and findings out of the partitions, after `events` events.
pub(super) fn collect(
    mut partitions: Vec<Partition<'_>>,
    classes: &Classes,
    config: &RunConfig<'_>,
    events: u64,
) -> Result<Collected, AnalysisError> {
    let (live, known) = if config.rules.lists_live {
        let mut pairings: Vec<_> = partitions.iter_mut().map(|part| &mut part.pairing).collect();
        list_live(&mut pairings, classes, config, events)?
    } else {
        Default::default()
    };
    let knows_nodes = config.rules.nodes.is_some();
    let live = LiveList::Paired(live);
    let mut paired = PairingResult { live, classes: known, knows_nodes, ..PairingResult::default() };
    // Figures stand twice in memory while each gets its key.
    config.budget.check_bytes((classes.rows() * 2 * size_of::<(RowKey, Stats)>()) as u64, events)?;
    let mut figures = vec![Stats::default(); classes.rows()];
    let reclaims = if config.facts.marks_reclaim { reclaims(&paired, &partitions, figures.len()) } else { Vec::new() };
    paired.reclaims = reclaims;
    let (mut findings, mut learners, mut bounds) = (Vec::new(), Vec::new(), HashSet::default());
    let mut caches_from = HashMap::default();
    partitions.iter().for_each(|part| paired.counts.add(&part.pairing.counts()));
    for part in partitions {
        let of_caches = part.pairing.tallies.of_caches(|cache| has_unseen_frees(&paired.counts, cache));
        bounds.extend(of_caches.map(|class| class.origin));
        part.pairing.tallies.add_to(&mut figures);
        for (row, from) in part.pairing.tallies.caches_from() {
            let best: &mut CacheFrom = caches_from.entry(row).or_insert(from);
            *best = from.min(*best);
        }
        findings.push(part.pairing.findings);
        learners.extend(part.pairing.learner.map(|learner| *learner));
    }
    Ok(Collected { paired, figures, findings, learners, bounds, caches_from })
}

/// Whether the kernel takes the objects of each row back by itself: those that are live, where they are listed, else all.
fn reclaims(paired: &PairingResult, partitions: &[Partition<'_>], rows: usize) -> Vec<Reclaim> {
    let mut reclaims: Vec<Option<Reclaim>> = vec![None; rows];
    let mut add = |row: u32, reclaim: Reclaim| {
        if let Some(of_row) = reclaims.get_mut(row as usize) {
            *of_row = Some(of_row.map_or(reclaim, |known| known.and(reclaim)));
        }
    };
    if paired.live.is_empty() {
        partitions.iter().flat_map(|part| part.pairing.tallies.reclaims()).for_each(|(row, of)| add(row, of));
    } else {
        let classes = paired.live.iter().map(|object| paired.class(&object));
        classes.for_each(|class| add(class.row, class.reclaim));
    }
    reclaims.into_iter().map(Option::unwrap_or_default).collect()
}

/// True for a cache some of whose frees the trace does not show, or may not show: it, or that of the frees, has no name.
fn has_unseen_frees(counts: &Counts, cache: CacheNumber) -> bool {
    let caches = &counts.unseen_caches;
    !caches.is_empty() && (cache == 0 || caches.contains(&0) || caches.contains(&cache))
}

/// The live objects of all partitions, oldest first, with their classes. The tables go as the list grows.
pub(super) fn list_live(
    pairings: &mut [&mut Pairing<'_>],
    classes: &Classes,
    config: &RunConfig<'_>,
    events: u64,
) -> Result<(Vec<Live>, Vec<Class>), AnalysisError> {
    let rows: usize = pairings.iter().map(|pairing| pairing.live_objects()).sum();
    // The list takes less memory than the tables whose place it takes.
    if !config.has_room_for(rows, pairings.iter().map(|pairing| pairing.table_bytes()).sum()) {
        return Err(config.budget.exceeded("rows of live objects", events, LESS_OF_THE_TRACE));
    }
    let (mut live, mut known) = (Vec::new(), Vec::new());
    live.reserve_exact(rows);
    classes.from(0, |class| known.push(*class));
    pairings.iter_mut().for_each(|pairing| pairing.list_live(&mut live, &mut known));
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
        let Collected { mut paired, figures, findings, learners, bounds, caches_from } = self;
        let numbers = classes.into_numbers();
        if numbers.exhausted {
            return Err(AnalysisError::TooMany { limit: MAX_CLASSES });
        }
        paired.rows = numbers.rows.iter().copied().zip(figures).collect();
        add_sums(&mut paired, peaks, rules);
        add_findings(&mut paired, rules, &findings, &numbers, &bounds, all_suspect);
        if !all_suspect {
            paired.learned = learned(learners, &numbers);
        }
        numbers.sites.iter().for_each(|(_, kind)| paired.has[*kind] = true);
        paired.has_loads = numbers.has_loads;
        let with_key = |(row, from): (u32, CacheFrom)| Some((*numbers.rows.get(row as usize)?, from));
        paired.caches_from = caches_from.into_iter().filter_map(with_key).collect();
        paired.lists = numbers.lists;
        paired.stacks = numbers.stacks;
        Ok((paired, numbers.names))
    }
}

/// Names of caches by call-site and bytes allocated.
fn learned(learners: Vec<CacheLearner>, numbers: &Numbers) -> HashMap<(u64, u64), LearnedName> {
    let mut learned = HashMap::new();
    for ((origin, allocated), name) in learners.into_iter().flat_map(CacheLearner::finish) {
        let site = numbers.origins.get(origin as usize).and_then(|origin| numbers.sites.get(origin.site as usize));
        if let Some((site, _)) = site {
            let known = learned.entry((*site, allocated));
            known.and_modify(|known: &mut LearnedName| *known = known.and(name)).or_insert(name);
        }
    }
    learned
}

/// Adds peaks to the rows, and sums of each kind and in all.
fn add_sums(paired: &mut PairingResult, peaks: &PeakTracker, rules: &PairingOptions) {
    let page_bytes = rules.page_bytes;
    paired.peak_at = peaks.peak_at;
    let has_whole_blocks = paired.counts.has_whole_blocks;
    let is_known = !has_whole_blocks || page_bytes.is_some();
    let tells_frames = rules.tells_frames && !has_whole_blocks;
    for (index, (RowKey { kind, .. }, figures)) in paired.rows.iter_mut().enumerate() {
        figures.peak_live_allocated = Some(peaks.peak(index));
        if kind.space() == Space::Pages {
            figures.set_pages(peaks.peak(index), page_bytes, (is_known, tells_frames));
        }
        if !figures.has_bytes(*kind) {
            figures.told = Told::without_bytes();
        }
        paired.kinds[*kind].add(figures);
        if kind.space() == Space::Slab {
            paired.total.add(figures);
        }
    }
    let (kinds, total) = peaks.peaks();
    for (kind, figures) in paired.kinds.iter_mut() {
        figures.peak_live_allocated = Some(kinds[kind]);
    }
    paired.total.peak_live_allocated = Some(total);
    let of_kind = &mut paired.kinds[Kind::Pages];
    of_kind.set_pages(kinds[Kind::Pages], page_bytes, (is_known, tells_frames));
    // An event that leaves parts of several rows is one event of the kind.
    of_kind.partial_frees = tells_frames.then_some(paired.counts.partial_frees);
}

/// Adds the findings of all partitions, by their call-sites.
fn add_findings(
    paired: &mut PairingResult,
    rules: &PairingOptions,
    findings: &[Findings],
    numbers: &Numbers,
    bounds: &HashSet<u32, RandomState>,
    all_suspect: bool,
) {
    let all = || {
        findings.iter().flat_map(Findings::rows).map(|(key, mut row)| {
            if all_suspect && key.class != Finding::ShortAlloc {
                row.suspect = row.count;
            }
            (key, row, key.alloc.and_then(|origin| numbers.origins.get(origin as usize)))
        })
    };
    let is_hash = |key: &FindingKey| rules.is_hashed && key.class == Finding::InferredFree;
    // Call-sites whose objects are also freed on paths without events, whatever the filters and the grouping.
    let mut is_bound = vec![rules.is_partial; numbers.sites.len()];
    let inferred =
        all().filter(|(key, row, _)| key.is_unexplained(row) || is_hash(key)).filter_map(|(.., origin)| Some(*origin?));
    let in_bulk = bounds.iter().filter_map(|&origin| numbers.origins.get(origin as usize).copied());
    let unselected = numbers.unselected_caches.iter().filter(|(_, cache)| has_unseen_frees(&paired.counts, *cache));
    let unselected = unselected.map(|&(site, _)| Origin { row: None, site });
    let of_bounds: Vec<Origin> = inferred.chain(in_bulk).chain(unselected).collect();
    for origin in of_bounds {
        is_bound[origin.site as usize] = true;
        if let Some((RowKey { kind, .. }, figures)) = origin.row.and_then(|row| paired.rows.get_mut(row as usize)) {
            figures.live_is_upper_bound = true;
            paired.kinds[*kind].live_is_upper_bound = true;
            paired.total.live_is_upper_bound |= kind.space() == Space::Slab;
        }
    }
    if rules.is_partial {
        let rows = paired.rows.iter_mut().map(|(_, figures)| figures).chain(paired.kinds.values_mut());
        rows.chain([&mut paired.total]).for_each(|figures| figures.live_is_upper_bound = true);
    }
    let mut rows: HashMap<FindingSites, FindingRow, RandomState> = HashMap::default();
    for (key, mut row, origin) in all() {
        if origin.is_some_and(|origin| origin.row.is_none()) {
            continue;
        }
        let site = origin.map(|origin| origin.site as usize);
        if key.class.may_be_unseen() && site.is_some_and(|site| is_bound[site]) {
            row.unseen = row.count - row.suspect;
        }
        let alloc_site = site.filter(|_| rules.by_site).and_then(|site| numbers.sites.get(site)).map(|(site, _)| *site);
        let sites = FindingSites { class: key.class, alloc_site, free_site: key.free_site, kind: key.kind };
        rows.entry(sites).and_modify(|sum| sum.add(&row)).or_insert(row);
    }
    paired.findings = rows;
}
