//! Result of a pass over a whole trace as bytes, for every later view whose request it covers.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use kmemtrace_abi::event::{Kind, Names};

use super::bytes::{Reader, Writer};
use crate::account::classes::{CacheNumber, Class};
use crate::account::completeness::MergeStats;
use crate::account::grouping::{Grouping, RowKey};
use crate::account::stats::Stats;
use crate::names::caches::CacheFrom;
use crate::names::kallsyms::InitSite;
use crate::pairing::findings::{Finding, FindingRow, FindingSites};
use crate::pairing::pairs::kind_index;
use crate::pairing::result::{Counts, Live, LivePages, Matrix, PairingResult};
use crate::pairing::slot::AllocInfo;

/// Limit of live objects that an index keeps.
pub(super) const MAX_LIVE: usize = 1 << 20;

/// Request of a view to a whole trace: grouping, and the parts that take memory or time of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AnalysisRequest {
    pub(crate) grouping: Grouping,
    /// Pairs per allocating and freeing CPU are counted.
    pub(crate) matrix: bool,
    /// Live objects are listed.
    pub(crate) lists_live: bool,
    /// The recorder's own objects are counted, too.
    pub(crate) shows_own: bool,
}

impl AnalysisRequest {
    /// True if the result of this request has that of `other`. Sums per kind follow from rows of any grouping.
    pub(super) fn covers(self, other: AnalysisRequest) -> bool {
        (self.grouping == other.grouping || other.grouping == Grouping::KIND)
            && self.shows_own == other.shows_own
            && self.matrix >= other.matrix
            && self.lists_live >= other.lists_live
    }

    /// This request with parts that cost little, so that the index answers other views, too.
    pub(crate) fn with_more(self) -> AnalysisRequest {
        match self.grouping {
            Grouping::KIND | Grouping::SITE => AnalysisRequest { grouping: Grouping::SITE, matrix: true, ..self },
            Grouping::SITE_AND_STACK => AnalysisRequest { matrix: true, ..self },
            _ => self,
        }
    }

    /// The request that the result of this one is kept under: without stacks, rows of call-sites and their stacks are those of
    /// call-sites. `None` for a result that is not kept.
    pub(super) fn kept(self, has_stacks: bool) -> Option<AnalysisRequest> {
        match self.grouping {
            Grouping::SITE_AND_STACK if has_stacks => None,
            Grouping::SITE_AND_STACK => Some(AnalysisRequest { grouping: Grouping::SITE, ..self }),
            _ => Some(self),
        }
    }

    pub(super) fn write(self, out: &mut Writer) {
        out.u8(match self.grouping {
            Grouping::KIND => 0,
            Grouping::SITE => 1,
            _ => 2,
        });
        out.bool(self.matrix);
        out.bool(self.lists_live);
        out.bool(self.shows_own);
    }

    pub(super) fn read(from: &mut Reader<'_>) -> Option<AnalysisRequest> {
        let grouping = match from.u8()? {
            0 => Grouping::KIND,
            1 => Grouping::SITE,
            2 => Grouping::CACHE,
            _ => return None,
        };
        Some(AnalysisRequest { grouping, matrix: from.bool()?, lists_live: from.bool()?, shows_own: from.bool()? })
    }
}

/// Names of caches, each once, by the numbers that they have in the bytes: 0 is none.
struct Caches<'a> {
    names: &'a Names,
    numbers: HashMap<CacheNumber, u32, RandomState>,
    texts: Writer,
}

impl Caches<'_> {
    fn number(&mut self, cache: CacheNumber) -> u32 {
        let Some(name) = cache.checked_sub(1).and_then(|index| self.names.at(index as usize)) else { return 0 };
        let next = self.numbers.len() as u32 + 1;
        let number = *self.numbers.entry(cache).or_insert(next);
        if number == next {
            self.texts.text(name);
        }
        number
    }
}

/// Bytes of the result of `request`.
pub(super) fn write(request: AnalysisRequest, order: &MergeStats, paired: &PairingResult, names: &Names) -> Vec<u8> {
    let mut caches = Caches { names, numbers: HashMap::default(), texts: Writer::default() };
    let mut out = Writer::default();
    out.maybe(order.first);
    out.maybe(order.last);
    [order.events, order.missing, order.holes].into_iter().for_each(|n| out.u64(n));
    write_counts(&paired.counts, &mut caches, &mut out);
    out.maybe(paired.peak_at);
    out.bool(paired.knows_nodes);
    paired.kinds.iter().chain([&paired.total]).for_each(|figures| write_figures(figures, &mut out));
    out.u64(paired.rows.len() as u64);
    for (RowKey { site, others, kind }, figures) in &paired.rows {
        out.u64(match request.grouping {
            Grouping::CACHE => caches.number(u32::try_from(*others).unwrap_or(0)).into(),
            _ => *site,
        });
        write_kind(*kind, &mut out);
        let from = paired.caches_from.get(&RowKey { site: *site, others: *others, kind: *kind });
        out.u8(from.map_or(0, |from| *from as u8 + 1));
        write_figures(figures, &mut out);
    }
    out.u64(paired.init_sites.len() as u64);
    for (site, InitSite { module, offset }) in &paired.init_sites {
        out.u64(*site);
        out.text(module);
        out.maybe(*offset);
    }
    out.u64(paired.findings.len() as u64);
    for (sites, row) in &paired.findings {
        out.u8(Finding::ALL.iter().position(|&class| class == sites.class).unwrap_or(0) as u8);
        out.maybe(sites.alloc_site);
        out.maybe(sites.free_site);
        write_kind(sites.kind, &mut out);
        let (at, cpu, address) = row.first;
        [row.count, row.suspect, row.unseen, at, address, row.serial].into_iter().for_each(|n| out.u64(n));
        out.u32(cpu);
    }
    let (live, classes) = if request.lists_live { (&paired.live[..], &paired.classes[..]) } else { Default::default() };
    out.u64(classes.len() as u64);
    for class in classes {
        [class.requested, class.allocated].into_iter().for_each(|n| out.u64(n));
        [class.row, caches.number(class.cache)].into_iter().for_each(|n| out.u32(n));
        write_kind(class.kind, &mut out);
    }
    out.u64(live.len() as u64);
    for Live { address, alloc_info, class, cpu, pages } in live {
        [*address, alloc_info.at].into_iter().for_each(|n| out.u64(n));
        [alloc_info.pid, *class, *cpu].into_iter().for_each(|n| out.u32(n));
        out.bool(pages.is_some());
        if let Some(LivePages { allocated, live, inferred, crossed }) = pages {
            [*allocated, *live, *inferred, *crossed].into_iter().for_each(|n| out.u32(n));
        }
    }
    let mut all = Writer::default();
    all.u64(caches.numbers.len() as u64);
    all.0.append(&mut caches.texts.0);
    all.0.append(&mut out.0);
    all.0
}

/// The result of `request` in `bytes`, with live objects only if `with_live`; names of caches are added to `names`. `None` if the
/// bytes are no result, or sums of it do not fit.
pub(super) fn read(
    request: AnalysisRequest,
    bytes: &[u8],
    with_live: bool,
    names: &mut Names,
) -> Option<(MergeStats, PairingResult)> {
    let mut from = Reader(bytes);
    let number = |from: &mut Reader<'_>| {
        let index = names.intern(from.text()?).index();
        u32::try_from(index).ok()?.checked_add(1)
    };
    let caches: Vec<CacheNumber> = from.list(number)?;
    let cache = |number: u32| match number.checked_sub(1) {
        Some(index) => caches.get(index as usize).copied(),
        None => Some(0),
    };
    let (first, last) = (from.maybe()?, from.maybe()?);
    let order = MergeStats { first, last, events: from.u64()?, missing: from.u64()?, holes: from.u64()? };
    let counts = read_counts(&mut from, cache)?;
    let (peak_at, knows_nodes) = (from.maybe()?, from.bool()?);
    let kinds = [read_figures(&mut from)?, read_figures(&mut from)?, read_figures(&mut from)?];
    let total = read_figures(&mut from)?;
    let mut caches_from = HashMap::default();
    let rows = from.list(|from| {
        let (key, cache_from) = read_key(request, from, cache)?;
        caches_from.extend(cache_from.map(|cache_from| (key, cache_from)));
        Some((key, read_figures(from)?))
    })?;
    let init_sites = from.list(read_init_site)?.into_iter().collect();
    let findings = from.list(|from| {
        let class = *Finding::ALL.get(usize::from(from.u8()?))?;
        let (alloc_site, free_site) = (from.maybe()?, from.maybe()?);
        let sites = FindingSites { class, alloc_site, free_site, kind: read_kind(from)? };
        let [count, suspect, unseen, at, address, serial] = numbers(from)?;
        let is_possible = suspect.checked_add(unseen).is_some_and(|explained| explained <= count);
        let row = FindingRow { count, suspect, unseen, first: (at, from.u32()?, address), serial };
        is_possible.then_some((sites, row))
    })?;
    let one_class = |from: &mut Reader<'_>| {
        let [requested, allocated] = numbers(from)?;
        let (row, cache, kind) = (from.u32()?, cache(from.u32()?)?, read_kind(from)?);
        let class = Class { row, origin: row, cache, cache_from: None, kind, is_sized: true, requested, allocated };
        ((row as usize) < rows.len()).then_some(class)
    };
    let (mut classes, mut live) = (Vec::new(), Vec::new());
    if with_live {
        classes = from.list(one_class)?;
        // The order of the list is that of the index.
        live = from.list(|from| {
            let ([address, at], pid) = (numbers(from)?, from.u32()?);
            let (class, cpu) = (from.u32()?, from.u32()?);
            let alloc_info = AllocInfo { at, tie: 0, pid };
            let pages = read_live_pages(from)?;
            ((class as usize) < classes.len()).then_some(Live { address, alloc_info, class, cpu, pages })
        })?;
        from.end(())?;
    }
    let findings = findings.into_iter().collect();
    let paired = PairingResult {
        counts,
        rows,
        kinds,
        total,
        peak_at,
        findings,
        live,
        classes,
        knows_nodes,
        caches_from,
        init_sites,
        ..PairingResult::default()
    };
    sums_fit(&order, &paired).then_some((order, paired))
}

/// Key of a row, and the origin of the name of its cache.
fn read_key(
    request: AnalysisRequest,
    from: &mut Reader<'_>,
    cache: impl Fn(u32) -> Option<CacheNumber>,
) -> Option<(RowKey, Option<CacheFrom>)> {
    let group = from.u64()?;
    let (site, others) = match request.grouping {
        Grouping::CACHE => (0, cache(u32::try_from(group).ok()?)?.into()),
        _ => (group, 0),
    };
    let key = RowKey { site, others, kind: read_kind(from)? };
    Some(match from.u8()?.checked_sub(1) {
        Some(index) => (key, Some(*CacheFrom::ALL.get(usize::from(index))?)),
        None => (key, None),
    })
}

/// Call-site in the initialisation of a module.
fn read_init_site(from: &mut Reader<'_>) -> Option<(u64, InitSite)> {
    let (site, module) = (from.u64()?, from.text()?.into());
    Some((site, InitSite { module, offset: from.maybe()? }))
}

/// Pages of a live object, where it has some.
fn read_live_pages(from: &mut Reader<'_>) -> Option<Option<LivePages>> {
    if !from.bool()? {
        return Some(None);
    }
    let (allocated, live, inferred, crossed) = (from.u32()?, from.u32()?, from.u32()?, from.u32()?);
    Some(Some(LivePages { allocated, live, inferred, crossed }))
}

fn numbers<const N: usize>(from: &mut Reader<'_>) -> Option<[u64; N]> {
    let mut all = [0; N];
    for n in &mut all {
        *n = from.u64()?;
    }
    Some(all)
}

/// True if no sum that a view makes of these overflows: a real trace's sums never do.
fn sums_fit(order: &MergeStats, paired: &PairingResult) -> bool {
    let figures = || paired.rows.iter().map(|(_, figures)| figures).chain(&paired.kinds);
    let all_fit = || {
        let (mut sums, mut byte_sums) = ([0u64; 8], [0u128; 7]);
        let (mut page_sums, mut partial_frees) = ([0u128; 4], 0u64);
        for row in figures() {
            for (sum, n) in sums.iter_mut().zip(counts_of(row)) {
                *sum = sum.checked_add(n)?;
            }
            for (sum, n) in byte_sums.iter_mut().zip(bytes_of(row)) {
                *sum = sum.checked_add(n)?;
            }
            for (sum, n) in page_sums.iter_mut().zip(pages_of(row)) {
                *sum = sum.checked_add(n)?;
            }
            partial_frees = partial_frees.checked_add(row.partial_frees.unwrap_or(0))?;
        }
        paired.findings.values().try_fold(0u64, |sum, row| sum.checked_add(row.count)?.checked_add(row.suspect))
    };
    paired.counts.other <= order.events && all_fit().is_some()
}

fn write_kind(kind: Kind, out: &mut Writer) {
    out.u8(kind_index(kind) as u8);
}

fn read_kind(from: &mut Reader<'_>) -> Option<Kind> {
    [Kind::Kmalloc, Kind::Cache, Kind::Pages].get(usize::from(from.u8()?)).copied()
}

fn write_counts(counts: &Counts, caches: &mut Caches<'_>, out: &mut Writer) {
    let Counts { other, unknown, free_events, paired, cross_node, null_free, free_without_alloc, .. } = counts;
    let [kmalloc, cache, pages] = *free_events;
    let single = [*other, *unknown, kmalloc, cache, pages, *paired, *cross_node, *null_free, *free_without_alloc];
    single.into_iter().chain([counts.all_inferred, counts.all_without_alloc]).for_each(|n| out.u64(n));
    let Counts { page_pairs, free_pages_without_alloc, free_pages_after_free, partial_frees, .. } = counts;
    let of_pages = [*page_pairs, *free_pages_without_alloc, *free_pages_after_free, *partial_frees];
    of_pages.into_iter().for_each(|n| out.u64(n));
    let Counts { completions, bulk_unknown, unseen_frees, unseen_allocs, .. } = counts;
    [*completions, *bulk_unknown, *unseen_frees, *unseen_allocs].into_iter().for_each(|n| out.u64(n));
    out.bool(counts.has_whole_blocks);
    out.u64(counts.unselected_allocs);
    out.u64(counts.own_allocs);
    out.u128(counts.own_allocated);
    out.u64(counts.old_frees.len() as u64);
    for (cache, frees) in &counts.old_frees {
        out.u32(caches.number(*cache));
        out.u64(*frees);
    }
    out.u64(counts.matrix.len() as u64);
    for ((from, to), pairs) in &counts.matrix {
        out.u32(*from);
        out.u32(*to);
        out.u64(*pairs);
    }
}

fn read_counts(from: &mut Reader<'_>, cache_number: impl Fn(u32) -> Option<CacheNumber>) -> Option<Counts> {
    let [other, unknown, kmalloc, cache, pages, paired, cross_node, null_free, free_without_alloc] = numbers(from)?;
    let [all_inferred, all_without_alloc] = numbers(from)?;
    let [page_pairs, free_pages_without_alloc, free_pages_after_free, partial_frees] = numbers(from)?;
    let [completions, bulk_unknown, unseen_frees, unseen_allocs] = numbers(from)?;
    let has_whole_blocks = from.bool()?;
    let (unselected_allocs, own_allocs, own_allocated) = (from.u64()?, from.u64()?, from.u128()?);
    let old_frees = from.list(|from| Some((cache_number(from.u32()?)?, from.u64()?)))?.into_iter().collect();
    let matrix: Matrix = from.list(|from| Some(((from.u32()?, from.u32()?), from.u64()?)))?.into_iter().collect();
    let free_events = [kmalloc, cache, pages];
    let counts = Counts {
        other,
        unknown,
        free_events,
        paired,
        cross_node,
        null_free,
        free_without_alloc,
        matrix,
        page_pairs,
        free_pages_without_alloc,
        free_pages_after_free,
        partial_frees,
        has_whole_blocks,
        completions,
        bulk_unknown,
        unseen_frees,
        unseen_allocs,
        ..Counts::default()
    };
    Some(Counts { old_frees, all_inferred, all_without_alloc, unselected_allocs, own_allocs, own_allocated, ..counts })
}

/// The counts of a row.
fn counts_of(f: &Stats) -> [u64; 8] {
    let ends = [f.deferred_frees, f.bulk_frees, f.inferred_frees, f.live_objects];
    let [deferred, bulk, inferred, live] = ends;
    [f.frees, f.cross_cpu, f.allocs, f.failed_allocs, inferred, live, deferred, bulk]
}

/// The bytes of a row, its peak aside.
fn bytes_of(f: &Stats) -> [u128; 7] {
    [f.requested, f.allocated, f.wasted, f.cross_cpu_bytes, f.live_requested, f.live_allocated, f.live_wasted]
}

fn write_figures(figures: &Stats, out: &mut Writer) {
    counts_of(figures).into_iter().for_each(|n| out.u64(n));
    bytes_of(figures).into_iter().for_each(|n| out.u128(n));
    out.bool(figures.peak_live_allocated.is_some());
    out.u128(figures.peak_live_allocated.unwrap_or(0));
    out.maybe(figures.largest);
    out.bool(figures.live_is_upper_bound);
    out.bool(figures.pages_allocated.is_some());
    if figures.pages_allocated.is_some() {
        pages_of(figures).into_iter().for_each(|n| out.u128(n));
        out.bool(figures.peak_live_pages.is_some());
        out.u128(figures.peak_live_pages.unwrap_or(0));
        out.maybe(figures.partial_frees);
    }
}

/// The pages of a row, their peak aside.
fn pages_of(figures: &Stats) -> [u128; 4] {
    [figures.pages_allocated, figures.pages_freed, figures.pages_inferred, figures.live_pages]
        .map(Option::unwrap_or_default)
}

fn read_pages(figures: Stats, from: &mut Reader<'_>) -> Option<Stats> {
    let (allocated, freed, inferred, live) = (from.u128()?, from.u128()?, from.u128()?, from.u128()?);
    let has_peak = from.bool()?;
    Some(Stats {
        pages_allocated: Some(allocated),
        pages_freed: Some(freed),
        pages_inferred: Some(inferred),
        live_pages: Some(live),
        peak_live_pages: Some(from.u128()?).filter(|_| has_peak),
        partial_frees: from.maybe()?,
        ..figures
    })
}

fn read_figures(from: &mut Reader<'_>) -> Option<Stats> {
    let [frees, cross_cpu, allocs, failed_allocs, inferred_frees, live_objects, deferred_frees, bulk_frees] =
        numbers(from)?;
    let mut bytes = [0; 7];
    for n in &mut bytes {
        *n = from.u128()?;
    }
    let [requested, allocated, wasted, cross_cpu_bytes, live_requested, live_allocated, live_wasted] = bytes;
    let has_peak = from.bool()?;
    let peak_live_allocated = Some(from.u128()?).filter(|_| has_peak);
    let figures = Stats {
        allocs,
        failed_allocs,
        requested,
        allocated,
        wasted,
        frees,
        inferred_frees,
        cross_cpu,
        cross_cpu_bytes,
        live_objects,
        live_requested,
        live_allocated,
        live_wasted,
        peak_live_allocated,
        largest: from.maybe()?,
        live_is_upper_bound: from.bool()?,
        deferred_frees,
        bulk_frees,
        ..Stats::default()
    };
    if from.bool()? { read_pages(figures, from) } else { Some(figures) }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::account::free_sites::FreeSites;

    const REQUEST: AnalysisRequest =
        AnalysisRequest { grouping: Grouping::SITE, matrix: true, lists_live: true, shows_own: false };

    fn figures(n: u64) -> Stats {
        let wide = |more: u64| u128::from(n + more) << 40;
        Stats {
            allocs: n,
            failed_allocs: n + 1,
            requested: wide(2),
            allocated: wide(3),
            wasted: wide(4),
            frees: n + 5,
            inferred_frees: n + 6,
            cross_cpu: n + 7,
            cross_cpu_bytes: wide(8),
            live_objects: n + 9,
            live_requested: wide(10),
            live_allocated: wide(11),
            live_wasted: wide(12),
            peak_live_allocated: n.is_multiple_of(2).then_some(wide(13)),
            live_is_upper_bound: n.is_multiple_of(3),
            pages_allocated: n.is_multiple_of(2).then_some(wide(14)),
            pages_freed: n.is_multiple_of(2).then_some(wide(15)),
            pages_inferred: n.is_multiple_of(2).then_some(wide(16)),
            live_pages: n.is_multiple_of(2).then_some(wide(17)),
            peak_live_pages: n.is_multiple_of(4).then_some(wide(18)),
            partial_frees: n.is_multiple_of(4).then_some(n + 19),
            largest: n.is_multiple_of(3).then_some(n + 20),
            deferred_frees: n + 21,
            bulk_frees: n + 22,
            oldest: None,
        }
    }

    /// An answer of which no two numbers are the same; rows are of the caches `a` and `b`, which `names` gets, or of call-sites.
    fn answer(names: &mut Names, grouping: Grouping) -> (MergeStats, PairingResult) {
        let [a, b] = [b"a", b"b"].map(|name| names.intern(name).index() as u64 + 1);
        let groups = if grouping == Grouping::CACHE { [(0, a), (0, b), (0, 0)] } else { [(71, 0), (72, 0), (73, 0)] };
        let row = |(((site, others), kind), n)| (RowKey { site, others, kind }, figures(n));
        let rows = groups.into_iter().zip(Kind::ALL).zip([100, 201, 300]).map(row).collect();
        let with_name = RowKey { site: groups[1].0, others: groups[1].1, kind: Kind::Cache };
        let matrix = [((1, 2), 31), ((2, 1), 32)].into_iter().collect();
        let counts = Counts {
            other: 41,
            completions: 51,
            bulk_unknown: 52,
            unseen_frees: 53,
            unseen_allocs: 54,
            unknown: 40,
            free_events: [42, 43, 44],
            page_pairs: 53,
            free_pages_without_alloc: 54,
            free_pages_after_free: 55,
            partial_frees: 56,
            has_whole_blocks: true,
            paired: 45,
            cross_node: 46,
            null_free: 47,
            free_without_alloc: 48,
            unselected_allocs: 39,
            own_allocs: 49,
            own_allocated: 50 << 70,
            matrix,
            old_frees: [(a as u32, 38)].into_iter().collect(),
            free_sites: FreeSites::default(),
            all_inferred: 51,
            all_without_alloc: 52,
            unseen_caches: HashSet::default(),
        };
        let of_class = |(n, class): (u64, Finding)| {
            let (alloc_site, free_site) =
                (n.is_multiple_of(2).then_some(60 + n), n.is_multiple_of(3).then_some(70 + n));
            let sites = FindingSites { class, alloc_site, free_site, kind: Kind::ALL[n as usize % 3] };
            let row = FindingRow {
                count: 80 + n,
                suspect: 20 + n,
                unseen: 10 + n,
                first: (90 + n, 7, 95 + n),
                serial: 99 + n,
            };
            (sites, row)
        };
        let class = |n: u64, cache: u64, kind| Class {
            cache_from: None,
            row: n as u32,
            origin: n as u32,
            cache: cache as u32,
            kind,
            is_sized: true,
            requested: 500 + n,
            allocated: 600 + n,
        };
        let live = |n: u64| Live {
            address: 700 + n,
            alloc_info: AllocInfo { at: 800 + n, tie: 0, pid: 9 },
            class: n as u32,
            cpu: 6,
            pages: (n == 1).then_some(LivePages { allocated: 64, live: 60, inferred: 2, crossed: 1 }),
        };
        let paired = PairingResult {
            counts,
            rows,
            kinds: [figures(400), figures(501), figures(602)],
            total: figures(700),
            peak_at: Some(53),
            findings: (0..).zip(Finding::ALL).map(of_class).collect(),
            live: vec![live(0), live(1)],
            classes: vec![class(0, a, Kind::Cache), class(1, 0, Kind::Pages)],
            knows_nodes: true,
            caches_from: [(with_name, CacheFrom::Slabinfo)].into_iter().collect(),
            init_sites: [(57, InitSite { module: b"m"[..].into(), offset: Some(58) })].into_iter().collect(),
            ..PairingResult::default()
        };
        (MergeStats { first: Some(1), last: Some(2), events: 1000, missing: 3, holes: 4 }, paired)
    }

    /// All of it as text, in one order; names of caches instead of their numbers.
    fn shown(order: &MergeStats, paired: &PairingResult, grouping: Grouping, names: &Names) -> String {
        let cache = |number: u64| number.checked_sub(1).and_then(|index| names.at(index as usize)).map(<[u8]>::to_vec);
        let row = |(RowKey { site, others, kind }, figures): &(RowKey, Stats)| match grouping {
            Grouping::CACHE => format!("{:?} {kind:?} {figures:?}", cache(*others)),
            _ => format!("{site} {kind:?} {figures:?}"),
        };
        let mut findings: Vec<String> = paired.findings.iter().map(|finding| format!("{finding:?}")).collect();
        findings.sort_unstable();
        let mut matrix: Vec<_> = paired.counts.matrix.iter().collect();
        matrix.sort_unstable();
        let mut old_frees: Vec<_> =
            paired.counts.old_frees.iter().map(|(number, n)| (cache((*number).into()), *n)).collect();
        old_frees.sort_unstable();
        let counts = Counts { matrix: Matrix::default(), old_frees: HashMap::default(), ..paired.counts.clone() };
        let class = |class: &Class| (cache(class.cache.into()), Class { cache: 0, ..*class });
        format!(
            "{order:?} {counts:?} {old_frees:?} {matrix:?} {:?} {:?} {:?} {:?} {} {:?} {findings:?} {:?} {:?}",
            paired.rows.iter().map(row).collect::<Vec<_>>(),
            paired.kinds,
            paired.total,
            paired.peak_at,
            paired.knows_nodes,
            (paired.caches_from.iter().map(|(key, from)| (key.kind, *from)).collect::<Vec<_>>(), &paired.init_sites),
            paired.live,
            paired.classes.iter().map(class).collect::<Vec<_>>(),
        )
    }

    /// Every figure of an answer comes back from its bytes, in a run that has numbered the caches otherwise.
    #[test]
    fn an_answer_comes_back_from_its_bytes() {
        for grouping in [Grouping::KIND, Grouping::SITE, Grouping::CACHE] {
            let request = AnalysisRequest { grouping, ..REQUEST };
            let mut names = Names::new();
            let (order, paired) = answer(&mut names, grouping);
            let bytes = write(request, &order, &paired, &names);
            let mut others = Names::new();
            for name in [&b"x"[..], b"b", b"y"] {
                others.intern(name);
            }
            let (order_read, read_back) = read(request, &bytes, true, &mut others).unwrap();
            let want = shown(&order, &paired, grouping, &names);
            assert_eq!(shown(&order_read, &read_back, grouping, &others), want);
            let (_, without_live) = read(request, &bytes, false, &mut others).unwrap();
            assert!(without_live.live.is_empty() && without_live.rows.len() == 3);
            let bytes = write(AnalysisRequest { lists_live: false, ..request }, &order, &paired, &names);
            let (_, none) = read(request, &bytes, true, &mut others).unwrap();
            assert!(none.live.is_empty() && none.classes.is_empty());
        }
    }

    #[test]
    fn an_answer_that_is_cut_or_longer_is_none() {
        let mut names = Names::new();
        let (order, paired) = answer(&mut names, Grouping::CACHE);
        let request = AnalysisRequest { grouping: Grouping::CACHE, ..REQUEST };
        let mut bytes = write(request, &order, &paired, &names);
        for len in 0..bytes.len() {
            assert!(read(request, &bytes[..len], true, &mut names).is_none(), "{len} bytes");
        }
        bytes.push(0);
        assert!(read(request, &bytes, true, &mut names).is_none());
    }

    /// Numbers that no trace comes to, and that a sum over rows would not hold, are no answer.
    #[test]
    fn sums_that_overflow_are_no_answer() {
        let spoil = |change: &dyn Fn(&mut PairingResult)| {
            let mut names = Names::new();
            let (order, mut paired) = answer(&mut names, Grouping::SITE);
            change(&mut paired);
            read(REQUEST, &write(REQUEST, &order, &paired, &names), true, &mut names).is_some()
        };
        assert!(spoil(&|paired| paired.counts.other = 1000));
        assert!(!spoil(&|paired| paired.counts.other = 1001));
        assert!(!spoil(&|paired| paired.rows[0].1.allocs = u64::MAX));
        assert!(!spoil(&|paired| paired.rows[2].1.live_objects = u64::MAX));
        assert!(!spoil(&|paired| paired.rows[1].1.requested = u128::MAX));
        assert!(!spoil(&|paired| paired.kinds[1].live_wasted = u128::MAX));
        let spoil_finding = |change: fn(&mut FindingRow)| {
            spoil(&|paired: &mut PairingResult| change(paired.findings.values_mut().next().unwrap()))
        };
        assert!(!spoil_finding(|row| row.count = u64::MAX));
        assert!(!spoil_finding(|row| row.suspect = u64::MAX));
        assert!(!spoil(&|paired| paired.live[0].class = 2));
        assert!(!spoil(&|paired| paired.classes[0].row = 3));
        assert!(spoil(&|paired| paired.classes[0].row = 2));
    }

    /// An answer serves a view that asks for no more: the same rows, or only sums over all of them.
    #[test]
    fn an_answer_covers_requests_that_ask_for_less() {
        let groupings = [Grouping::KIND, Grouping::SITE, Grouping::CACHE];
        let all = || {
            let flags = (0..8).map(|n| [n & 1 != 0, n & 2 != 0, n & 4 != 0]);
            flags.flat_map(move |[matrix, lists_live, shows_own]| {
                groupings.map(|grouping| AnalysisRequest { grouping, matrix, lists_live, shows_own })
            })
        };
        for known in all() {
            for asked in all() {
                let has_rows = known.grouping == asked.grouping || asked.grouping == Grouping::KIND;
                let has_more_than = |known: bool, asked: bool| known || !asked;
                let covers = has_rows
                    && known.shows_own == asked.shows_own
                    && has_more_than(known.matrix, asked.matrix)
                    && has_more_than(known.lists_live, asked.lists_live);
                assert_eq!(known.covers(asked), covers, "{known:?} {asked:?}");
            }
            assert!(known.with_more().covers(known));
            let mut out = Writer::default();
            known.write(&mut out);
            assert_eq!(AnalysisRequest::read(&mut Reader(&out.0)), Some(known));
        }
        assert_eq!(AnalysisRequest::read(&mut Reader(&[3, 0, 0, 0])), None);
    }
}
