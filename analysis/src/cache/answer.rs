//! What a pass over a whole trace came to, as bytes: the answer to a question, for every view that asks the same.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use kmemtrace_abi::event::{Kind, Names};

use super::bytes::{Reader, Writer};
use crate::account::classes::{CacheNumber, Class, Grouping, RowKey};
use crate::account::stats::Stats;
use crate::order::merger::Order;
use crate::pairing::findings::{Finding, FindingRow, FindingSites};
use crate::pairing::pairs::{Counts, Live, Matrix, Paired, kind_index};
use crate::pairing::table::Birth;

/// Live objects of which an index keeps rows.
pub(super) const MOST_LIVE: usize = 1 << 20;

/// What a view wants to know of a whole trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Question {
    pub(crate) grouping: Grouping,
    /// Pairs per (allocating CPU, freeing CPU).
    pub(crate) matrix: bool,
    /// The live objects themselves.
    pub(crate) lists_live: bool,
    /// The recorder's own objects are not left out.
    pub(crate) shows_own: bool,
}

impl Question {
    /// Whether who knows the answer to this one knows that of `other`. Sums over kinds are those of any rows.
    pub(super) fn covers(self, other: Question) -> bool {
        (self.grouping == other.grouping || other.grouping == Grouping::Kind)
            && self.shows_own == other.shows_own
            && self.matrix >= other.matrix
            && self.lists_live >= other.lists_live
    }

    /// With what costs little to find out beside it, so that other views have it, too.
    pub(crate) fn with_more(self) -> Question {
        match self.grouping {
            Grouping::Kind | Grouping::Site => Question { grouping: Grouping::Site, matrix: true, ..self },
            Grouping::Cache => self,
        }
    }

    pub(super) fn write(self, out: &mut Writer) {
        out.u8(match self.grouping {
            Grouping::Kind => 0,
            Grouping::Site => 1,
            Grouping::Cache => 2,
        });
        out.bool(self.matrix);
        out.bool(self.lists_live);
        out.bool(self.shows_own);
    }

    pub(super) fn read(from: &mut Reader<'_>) -> Option<Question> {
        let grouping = match from.u8()? {
            0 => Grouping::Kind,
            1 => Grouping::Site,
            2 => Grouping::Cache,
            _ => return None,
        };
        Some(Question { grouping, matrix: from.bool()?, lists_live: from.bool()?, shows_own: from.bool()? })
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

/// The bytes of an answer.
pub(super) fn write(question: Question, order: &Order, paired: &Paired, names: &Names) -> Vec<u8> {
    let mut caches = Caches { names, numbers: HashMap::default(), texts: Writer::default() };
    let mut out = Writer::default();
    out.maybe(order.first);
    out.maybe(order.last);
    [order.events, order.missing, order.holes].into_iter().for_each(|n| out.u64(n));
    write_counts(&paired.counts, &mut out);
    out.maybe(paired.peak_at);
    out.bool(paired.knows_nodes);
    paired.kinds.iter().chain([&paired.total]).for_each(|figures| write_figures(figures, &mut out));
    out.u64(paired.rows.len() as u64);
    for ((group, kind), figures) in &paired.rows {
        out.u64(match question.grouping {
            Grouping::Cache => caches.number(u32::try_from(*group).unwrap_or(0)).into(),
            _ => *group,
        });
        write_kind(*kind, &mut out);
        write_figures(figures, &mut out);
    }
    out.u64(paired.findings.len() as u64);
    for (sites, row) in &paired.findings {
        out.u8(Finding::ALL.iter().position(|&class| class == sites.class).unwrap_or(0) as u8);
        out.maybe(sites.alloc_site);
        out.maybe(sites.free_site);
        write_kind(sites.kind, &mut out);
        let (at, cpu, address) = row.first;
        [row.count, row.suspect, at, address, row.serial].into_iter().for_each(|n| out.u64(n));
        out.u32(cpu);
    }
    let (live, classes) =
        if question.lists_live { (&paired.live[..], &paired.classes[..]) } else { Default::default() };
    out.u64(classes.len() as u64);
    for class in classes {
        [class.requested, class.allocated].into_iter().for_each(|n| out.u64(n));
        [class.row, caches.number(class.cache)].into_iter().for_each(|n| out.u32(n));
        write_kind(class.kind, &mut out);
    }
    out.u64(live.len() as u64);
    for Live { address, birth, class, cpu } in live {
        [*address, birth.at].into_iter().for_each(|n| out.u64(n));
        [birth.pid, *class, *cpu].into_iter().for_each(|n| out.u32(n));
    }
    let mut all = Writer::default();
    all.u64(caches.numbers.len() as u64);
    all.0.append(&mut caches.texts.0);
    all.0.append(&mut out.0);
    all.0
}

/// The answer to `question` in `bytes`, its live objects only `with_live`; names of caches are added to `names`. `None` where
/// that is no answer, or sums of it would not fit.
pub(super) fn read(question: Question, bytes: &[u8], with_live: bool, names: &mut Names) -> Option<(Order, Paired)> {
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
    let order = Order { first, last, events: from.u64()?, missing: from.u64()?, holes: from.u64()? };
    let counts = read_counts(&mut from)?;
    let (peak_at, knows_nodes) = (from.maybe()?, from.bool()?);
    let kinds = [read_figures(&mut from)?, read_figures(&mut from)?, read_figures(&mut from)?];
    let total = read_figures(&mut from)?;
    let rows = from.list(|from| {
        let group = from.u64()?;
        let group = match question.grouping {
            Grouping::Cache => cache(u32::try_from(group).ok()?)?.into(),
            _ => group,
        };
        let key: RowKey = (group, read_kind(from)?);
        Some((key, read_figures(from)?))
    })?;
    let findings = from.list(|from| {
        let class = *Finding::ALL.get(usize::from(from.u8()?))?;
        let (alloc_site, free_site) = (from.maybe()?, from.maybe()?);
        let sites = FindingSites { class, alloc_site, free_site, kind: read_kind(from)? };
        let [count, suspect, at, address, serial] = numbers(from)?;
        Some((sites, FindingRow { count, suspect, first: (at, from.u32()?, address), serial }))
    })?;
    let one_class = |from: &mut Reader<'_>| {
        let [requested, allocated] = numbers(from)?;
        let (row, cache, kind) = (from.u32()?, cache(from.u32()?)?, read_kind(from)?);
        let class = Class { row, cache, kind, is_sized: true, requested, allocated };
        ((row as usize) < rows.len()).then_some(class)
    };
    let (mut classes, mut live) = (Vec::new(), Vec::new());
    if with_live {
        classes = from.list(one_class)?;
        // They are in order.
        live = from.list(|from| {
            let ([address, at], pid) = (numbers(from)?, from.u32()?);
            let (class, cpu) = (from.u32()?, from.u32()?);
            let birth = Birth { at, tie: 0, pid };
            ((class as usize) < classes.len()).then_some(Live { address, birth, class, cpu })
        })?;
        from.end(())?;
    }
    let findings = findings.into_iter().collect();
    let paired = Paired { counts, rows, kinds, total, peak_at, findings, live, classes, knows_nodes };
    sums_fit(&order, &paired).then_some((order, paired))
}

fn numbers<const N: usize>(from: &mut Reader<'_>) -> Option<[u64; N]> {
    let mut all = [0; N];
    for n in &mut all {
        *n = from.u64()?;
    }
    Some(all)
}

/// Whether no sum that a view makes of these overflows. Those of a real trace do not.
fn sums_fit(order: &Order, paired: &Paired) -> bool {
    let figures = || paired.rows.iter().map(|(_, figures)| figures).chain(&paired.kinds);
    let all_fit = || {
        let (mut sums, mut byte_sums) = ([0u64; 6], [0u128; 7]);
        for row in figures() {
            for (sum, n) in sums.iter_mut().zip(counts_of(row)) {
                *sum = sum.checked_add(n)?;
            }
            for (sum, n) in byte_sums.iter_mut().zip(bytes_of(row)) {
                *sum = sum.checked_add(n)?;
            }
        }
        paired.findings.values().try_fold(0u64, |sum, row| sum.checked_add(row.count)?.checked_add(row.suspect))
    };
    paired.counts.used <= order.events && all_fit().is_some()
}

fn write_kind(kind: Kind, out: &mut Writer) {
    out.u8(kind_index(kind) as u8);
}

fn read_kind(from: &mut Reader<'_>) -> Option<Kind> {
    [Kind::Kmalloc, Kind::Cache, Kind::Pages].get(usize::from(from.u8()?)).copied()
}

fn write_counts(counts: &Counts, out: &mut Writer) {
    let Counts { used, free_events, paired, cross_node, null_free, free_without_alloc, .. } = counts;
    let [kmalloc, cache, pages] = *free_events;
    let single = [*used, kmalloc, cache, pages, *paired, *cross_node, *null_free, *free_without_alloc];
    single.into_iter().chain([counts.all_inferred, counts.all_without_alloc]).for_each(|n| out.u64(n));
    out.u64(counts.own_allocs);
    out.u128(counts.own_allocated);
    out.u64(counts.matrix.len() as u64);
    for ((from, to), pairs) in &counts.matrix {
        out.u32(*from);
        out.u32(*to);
        out.u64(*pairs);
    }
}

fn read_counts(from: &mut Reader<'_>) -> Option<Counts> {
    let [used, kmalloc, cache, pages, paired, cross_node, null_free, free_without_alloc] = numbers(from)?;
    let [all_inferred, all_without_alloc] = numbers(from)?;
    let (own_allocs, own_allocated) = (from.u64()?, from.u128()?);
    let matrix: Matrix = from.list(|from| Some(((from.u32()?, from.u32()?), from.u64()?)))?.into_iter().collect();
    let free_events = [kmalloc, cache, pages];
    let counts =
        Counts { used, free_events, paired, cross_node, null_free, free_without_alloc, matrix, ..Counts::default() };
    Some(Counts { all_inferred, all_without_alloc, own_allocs, own_allocated, ..counts })
}

/// The counts of a row.
fn counts_of(f: &Stats) -> [u64; 6] {
    [f.frees, f.cross_cpu, f.allocs, f.failed_allocs, f.inferred_frees, f.live_objects]
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
    out.bool(figures.live_is_upper_bound);
}

fn read_figures(from: &mut Reader<'_>) -> Option<Stats> {
    let [frees, cross_cpu, allocs, failed_allocs, inferred_frees, live_objects] = numbers(from)?;
    let mut bytes = [0; 7];
    for n in &mut bytes {
        *n = from.u128()?;
    }
    let [requested, allocated, wasted, cross_cpu_bytes, live_requested, live_allocated, live_wasted] = bytes;
    let has_peak = from.bool()?;
    let peak_live_allocated = Some(from.u128()?).filter(|_| has_peak);
    Some(Stats {
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
        live_is_upper_bound: from.bool()?,
    })
}
