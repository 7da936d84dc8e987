//! `summary`: totals per kind, pairs and findings on one screen.

use kmemtrace_abi::event::{ByKind, Kind, Space};
use serde::{Serialize, Serializer};

use super::balance::{PartRow, of_text};
use super::leaks::LeaksBody;
use super::row::{Rows, row};
use super::sites::SiteRow;
use super::sums::{Ordering, PrintedStats, Saturation, ToldStats};
use crate::account::stats::Stats;
use crate::analysis::Analysis;
use crate::pairing::findings::{Finding, FindingSites};
use crate::pairing::result::PairingResult;

row! {
    /// Row of `summary`, for outputs that have rows: a kind, or the total.
    pub struct TotalRow {
        /// Name of the kind, or `total`.
        pub kind: &'static str,
        /// Sums.
        pub stats: ToldStats,
    }
}

/// Body of `summary`.
#[derive(Serialize)]
pub struct Summary<'a> {
    /// Number of events.
    pub events: EventCounts,
    /// Sums per kind.
    pub kinds: Kinds,
    /// Sums of `kmalloc` and `cache` together.
    pub total: Total,
    /// Pairs of an allocation and a free.
    pub pairs: PairCounts,
    /// Allocations of the recorder itself; `None` if the trace does not tell them apart.
    pub own: Option<Own>,
    /// Findings by class.
    pub findings: FindingCounts,
    /// Parts of memory, of a text of counters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub balance: Option<Vec<PartRow<'a>>>,
    /// Failed allocations of all kinds whose caller cannot do without the memory, as far as the flags say; no member of documents.
    #[serde(skip)]
    pub failed_without_fallback: u64,
    /// Leaks of the same trace, where they were looked for.
    #[serde(skip)]
    pub leaks: Option<Box<LeaksBody<'a>>>,
    /// A row a kind and one of the total, for outputs that have rows.
    #[serde(skip)]
    pub rows: Rows<'a, TotalRow>,
    /// The call-sites that waste most, if rows are call-sites.
    #[serde(skip)]
    pub top_sites: Option<Rows<'a, SiteRow<'a>>>,
    /// The call-sites with most live bytes, if rows are call-sites.
    #[serde(skip)]
    pub top_live: Option<Rows<'a, SiteRow<'a>>>,
    /// The call-sites whose live objects waste most, if rows are call-sites.
    #[serde(skip)]
    pub top_live_waste: Option<Rows<'a, SiteRow<'a>>>,
}

/// Number of events.
#[derive(Clone, Debug, Serialize)]
pub struct EventCounts {
    /// All events in the window.
    pub total: u64,
    /// Allocations and frees that the filters take.
    pub used: u64,
    /// The others.
    pub other: u64,
    /// Events among the others that may concern objects and are not known.
    pub unknown: u64,
    /// Frees with which the kernel takes back what a deferred free gave up.
    pub completions: u64,
    /// Addresses of bulk frees that were neither live nor given up: older than the recording, mostly.
    pub bulk_unknown: u64,
    /// Frees in bulk whose addresses the recording does not have.
    pub unseen_frees: u64,
    /// Allocations in bulk whose addresses the recording does not have.
    pub unseen_allocs: u64,
}

/// Sums of each kind that is shown, in the order of reports.
#[derive(Clone, Debug)]
pub struct Kinds(pub Vec<(Kind, KindTotal)>);

impl Kinds {
    /// Sums of a kind; `None` where the input says nothing of it.
    pub fn told(&self, kind: Kind) -> Option<&PrintedStats> {
        self.0.iter().find(|(of, _)| *of == kind).and_then(|(_, total)| total.stats.0.as_ref())
    }
}

impl Serialize for Kinds {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(kind, total)| (kind.name(), total)))
    }
}

/// Sums of a kind.
#[derive(Clone, Debug, Serialize)]
pub struct KindTotal {
    /// Sums.
    #[serde(flatten)]
    pub stats: ToldStats,
    /// Number of free events of this kind, paired or not; `None` for an input of one moment, which gives no frees.
    pub free_events: Option<u64>,
    /// Number of free events that took at least one live page; `None` for other kinds than `pages`, and for an input
    /// of one moment.
    pub page_pairs: Option<u64>,
    /// Number of pages of free events that were not live and never seen before; `None` for other kinds than `pages`, and where
    /// events do not give their frames or the input has no frees.
    pub free_pages_without_alloc: Option<u64>,
    /// Number of pages of free events that were not live and seen before; `None` as for those never seen.
    pub free_pages_after_free: Option<u64>,
}

/// Sums of `kmalloc` and `cache` together.
#[derive(Clone, Debug, Serialize)]
pub struct Total {
    /// Sums.
    #[serde(flatten)]
    pub stats: ToldStats,
    /// Order key of the peak; `None` if the clock orders no events.
    pub peak_at: Option<u64>,
}

/// Number of pairs.
#[derive(Clone, Debug, Serialize)]
pub struct PairCounts {
    /// All pairs; `None` for an input of one moment, which gives no frees.
    pub paired: Option<u64>,
    /// Pairs freed on another CPU; `None` if the clock orders no events.
    pub cross_cpu: Option<u64>,
    /// Bytes allocated of pairs freed on another CPU; `None` if the clock orders no events.
    pub cross_cpu_bytes: Option<u64>,
    /// Pairs freed on another NUMA node; `None` also if the trace does not give the nodes.
    pub cross_node: Option<u64>,
}

/// Allocations of the recorder itself.
#[derive(Clone, Debug, Serialize)]
pub struct Own {
    /// Number of allocations.
    pub allocs: u64,
    /// Bytes allocated.
    pub allocated: u64,
}

/// Number of findings by class. Each number is `None` for an input of one moment, which gives no frees.
#[derive(Clone, Debug, Serialize)]
pub struct FindingCounts {
    /// Frees by a function of another kind.
    pub kind_mismatch: Explained,
    /// `kfree` of cache objects, where the kernel allows it.
    pub kind_mismatch_legal: Explained,
    /// Frees into another cache.
    pub cache_mismatch: Explained,
    /// Frees of an object that was free.
    pub free_after_free: Suspicious,
    /// Allocations at a live address.
    pub inferred_free: Suspicious,
    /// Frees of objects older than the recording.
    pub free_without_alloc: Certain,
    /// Allocations of fewer bytes than requested.
    pub short_alloc: Certain,
    /// Allocations that returned a null pointer.
    pub failed_alloc: Certain,
    /// Frees of a null pointer.
    pub null_free: Certain,
}

/// Number of findings of a class that a gap, or frees and allocations on paths without events, may explain.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Explained {
    /// Number of findings.
    pub count: Option<u64>,
    /// Number of findings that a gap may explain.
    pub suspect: Option<u64>,
    /// Number of findings, not suspect, of objects whose call-site has others that are freed on paths without events.
    pub unseen: Option<u64>,
}

impl Explained {
    /// Number of findings that nothing known explains.
    pub fn rest(self) -> Option<u64> {
        Some(self.count? - self.suspect? - self.unseen?)
    }
}

/// Number of findings of a class that a gap may explain.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Suspicious {
    /// Number of findings.
    pub count: Option<u64>,
    /// Number of findings that a gap may explain.
    pub suspect: Option<u64>,
}

/// Number of findings of a class that no gap explains.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Certain {
    /// Number of findings.
    pub count: Option<u64>,
}

/// The body of `summary`, without call-sites.
pub(super) fn summary<'a>(analysis: &'a Analysis, (saturation, ordering): (&Saturation, Ordering)) -> Summary<'a> {
    let Analysis { paired, order, own_threads, .. } = analysis;
    let stats = |kind: Kind, stats: &Stats| {
        saturation.check(stats);
        ToldStats::of(kind, stats, ordering)
    };
    let of_kind = |kind: Kind| {
        let counts = &paired.counts;
        let of_pages = |n: u64| ordering.past(n).filter(|_| kind.space() == Space::Pages);
        let of_frames = |n: u64| of_pages(n).filter(|_| !counts.has_whole_blocks);
        KindTotal {
            stats: stats(kind, &paired.kinds[kind]),
            free_events: ordering.past(counts.free_events[kind]),
            page_pairs: of_pages(counts.page_pairs),
            free_pages_without_alloc: of_frames(counts.free_pages_without_alloc),
            free_pages_after_free: of_frames(counts.free_pages_after_free),
        }
    };
    let of_kinds = || paired.kinds.iter().filter(|(kind, _)| analysis.compares(*kind));
    let all = |figure: fn(&Stats) -> u128| saturation.sum(of_kinds().map(|(_, stats)| figure(stats)).sum::<u128>());
    let has_bytes = of_kinds().all(|(kind, stats)| stats.has_bytes(kind));
    let counts = &paired.counts;
    let own = || Own { allocs: counts.own_allocs, allocated: saturation.sum(counts.own_allocated) };
    Summary {
        events: EventCounts {
            total: order.events,
            used: order.events - counts.other,
            other: counts.other,
            unknown: counts.unknown,
            completions: counts.completions,
            bulk_unknown: counts.bulk_unknown,
            unseen_frees: counts.unseen_frees,
            unseen_allocs: counts.unseen_allocs,
        },
        kinds: Kinds(shown_kinds(ordering).map(|kind| (kind, of_kind(kind))).collect()),
        total: Total {
            stats: stats(Kind::Kmalloc, &paired.total),
            peak_at: ordering.known(paired.peak_at[Space::Slab].or(order.first).unwrap_or(0)),
        },
        pairs: PairCounts {
            paired: ordering.past(all(|k| k.frees.into())),
            cross_cpu: ordering.known(all(|k| k.cross_cpu.into())),
            cross_cpu_bytes: ordering.known(all(|k| k.cross_cpu_bytes)).filter(|_| has_bytes),
            cross_node: ordering.known(compared(analysis, &counts.cross_node)).filter(|_| paired.knows_nodes),
        },
        own: own_threads.is_some().then(own),
        findings: findings(analysis, all(|k| k.failed_allocs.into()), ordering),
        failed_without_fallback: paired
            .kinds
            .values()
            .fold(0u64, |sum, stats| sum.saturating_add(stats.failed_allocs))
            .saturating_sub(counts.failed_with_fallback),
        balance: of_text::parts(analysis),
        rows: rows(paired, ordering),
        leaks: None,
        top_sites: None,
        top_live: None,
        top_live_waste: None,
    }
}

/// Kinds that documents show.
fn shown_kinds(ordering: Ordering) -> impl Iterator<Item = Kind> {
    Kind::ALL.into_iter().filter(move |kind| ordering.shows(kind.space()))
}

/// Sum over the kinds that pairs and findings are counted of.
fn compared(analysis: &Analysis, counts: &ByKind<u64>) -> u64 {
    counts.iter().filter(|(kind, _)| analysis.compares(*kind)).map(|(_, n)| n).sum()
}

fn findings(analysis: &Analysis, failed: u64, ordering: Ordering) -> FindingCounts {
    let paired = &analysis.paired;
    let of = |class: Finding| {
        let is_counted = |key: &FindingSites| key.class == class && analysis.compares(key.kind);
        let rows = paired.findings.iter().filter(|(key, _)| is_counted(key)).map(|(_, row)| row);
        let [count, suspect, unseen] = rows.fold([0u64; 3], |[count, suspect, unseen], row| {
            [count + row.count, suspect + row.suspect, unseen + row.unseen]
        });
        let [count, suspect, unseen] = [count, suspect, unseen].map(|n| ordering.past(n));
        Explained { count, suspect, unseen }
    };
    let certain = |count: u64| Certain { count: ordering.past(count) };
    let suspicious = |class: Finding| {
        let Explained { count, suspect, .. } = of(class);
        Suspicious { count, suspect }
    };
    FindingCounts {
        kind_mismatch: of(Finding::KindMismatch),
        kind_mismatch_legal: of(Finding::KindMismatchLegal),
        cache_mismatch: of(Finding::CacheMismatch),
        free_after_free: suspicious(Finding::FreeAfterFree),
        inferred_free: suspicious(Finding::InferredFree),
        free_without_alloc: certain(compared(analysis, &paired.counts.free_without_alloc)),
        short_alloc: Certain { count: of(Finding::ShortAlloc).count },
        failed_alloc: certain(failed),
        null_free: certain(paired.counts.null_free),
    }
}

/// A row a kind and one of the total.
fn rows<'a>(paired: &'a PairingResult, ordering: Ordering) -> Rows<'a, TotalRow> {
    let kinds = shown_kinds(ordering).map(|kind| ((kind.name(), kind), &paired.kinds[kind]));
    Rows::of(kinds.chain([(("total", Kind::Kmalloc), &paired.total)]).collect(), move |&((name, kind), stats)| {
        TotalRow { kind: name, stats: ToldStats::of(kind, stats, ordering) }
    })
}
