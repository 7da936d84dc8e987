//! `balance`: where free memory went, by parts that no byte is in twice, and the call-sites behind each.

pub mod counters;
pub(crate) mod of_text;
pub mod parts;

use std::cmp::Reverse;
use std::collections::HashMap;

use kmemtrace_abi::event::{ByKind, Kind, Space};
use serde::Serialize;

use super::group::GroupNaming;
use super::naming::{CallSite, Candidates};
use super::row::{Address, Name, RowSource, TakeRow, row};
use super::sums::{Saturation, saturated};
use crate::account::grouping::{GroupKey, RowKey};
use crate::account::machine::{MachineSide, MachineTexts};
use crate::account::stats::Stats;
use crate::analysis::Analysis;
use crate::names::reclaim::ReclaimRules;
use counters::Counters;
use parts::{CounterForm, Part, PartSums};

row! {
    /// Part of memory.
    pub struct PartRow<'a> {
        /// Name of the part.
        pub part: &'static str,
        /// Bytes by which it grew over the recording; `None` where a counter is missing, and for a text of one moment.
        pub change: Option<i64>,
        /// Source of the bytes: `meminfo`, `zoneinfo`, `events`, or `oom`.
        pub from: &'static str,
        /// Live bytes of the recording's objects that belong to the part; `None` where it has no such events.
        pub explained: Option<u64>,
        /// Bytes at the end of the recording, or at the moment; `None` where a counter is missing.
        pub bytes: Option<u64>,
        /// Call-sites with live bytes that belong to the part, those with most first.
        pub rows: Vec<PartSite<'a>>,
    }
}

row! {
    /// Call-site behind a part of memory.
    pub struct PartSite<'a> {
        /// Call-site of the allocations.
        pub site: CallSite<'a>,
        /// Kind of the objects.
        pub kind: Kind,
        /// Objects live at the end.
        pub live_objects: u64,
        /// Their bytes.
        pub live_allocated: u64,
        /// True if objects of the call-site are also freed on paths without events.
        pub live_is_upper_bound: bool,
    }
}

row! {
    /// Process of a report of the OOM killer.
    pub struct Process<'a> {
        /// Process id.
        pub pid: Option<i32>,
        /// Command name.
        pub comm: Name<'a>,
        /// Resident bytes.
        pub rss: u64,
    }
}

/// Body of `balance`.
#[derive(Serialize)]
pub struct BalanceBody<'a> {
    /// Bytes by which free memory grew over the recording.
    pub memfree_change: Option<i64>,
    /// Bytes by which all memory that the kernel manages grew.
    pub memtotal_change: Option<i64>,
    /// Totals of a text of one moment; `None` for a recording.
    #[serde(flatten)]
    pub moment: Option<MomentTotals>,
    /// The parts.
    pub parts: Vec<PartRow<'a>>,
    /// Bytes that are in no part: what free memory shrank by less what the parts grew by. Of a text of one moment: what is neither
    /// free nor in a part. `None` where anonymous pages, files or slab are not known.
    pub unexplained: Option<i64>,
    /// Live bytes of slab objects whose cache is not known, so that they may belong to either part of slab; no member of documents.
    #[serde(skip)]
    pub slab_of_no_cache: u64,
    /// Processes with most memory, of a report of the OOM killer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tasks: Option<Vec<Process<'a>>>,
}

/// Totals of a text of one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct MomentTotals {
    /// All memory that the kernel manages, or the limit of a memory cgroup.
    pub memtotal: Option<u64>,
    /// Free memory, or what is left to the limit.
    pub memfree: Option<u64>,
}

row! {
    /// Line of outputs that have rows: a part, or after it a call-site of it.
    pub struct PartLine<'a> {
        /// Name of the part.
        pub part: &'static str,
        /// [`PartRow::change`]; `None` of a call-site.
        pub change: Option<i64>,
        /// [`PartRow::from`].
        pub from: Option<&'static str>,
        /// [`PartRow::explained`].
        pub explained: Option<u64>,
        /// [`PartRow::bytes`].
        pub bytes: Option<u64>,
        /// Call-site; `None` of a part.
        pub call_site: Option<Address>,
        /// `function+0x1f`.
        pub symbol: Name<'a>,
        /// Module of the function.
        pub module: Name<'a>,
        /// Kind of the objects.
        pub kind: Option<&'static str>,
        /// Objects live at the end.
        pub live_objects: Option<u64>,
        /// Their bytes.
        pub live_allocated: Option<u64>,
    }
}

impl<'a> PartLine<'a> {
    fn of(row: &PartRow<'a>) -> PartLine<'a> {
        let PartRow { part, change, from, explained, bytes, .. } = *row;
        PartLine { change, from: Some(from), explained, bytes, ..PartLine::bare(part) }
    }

    fn of_site(part: &'static str, site: &PartSite<'a>) -> PartLine<'a> {
        PartLine {
            call_site: Some(site.site.call_site),
            symbol: site.site.symbol.clone(),
            module: site.site.module.clone(),
            kind: Some(site.kind.name()),
            live_objects: Some(site.live_objects),
            live_allocated: Some(site.live_allocated),
            ..PartLine::bare(part)
        }
    }

    fn bare(part: &'static str) -> PartLine<'a> {
        PartLine {
            part,
            change: None,
            from: None,
            explained: None,
            bytes: None,
            call_site: None,
            symbol: None,
            module: None,
            kind: None,
            live_objects: None,
            live_allocated: None,
        }
    }
}

impl RowSource for BalanceBody<'_> {
    fn each_row<E>(&self, take: &mut TakeRow<'_, E>) -> Result<(), E> {
        for part in &self.parts {
            take(&PartLine::of(part))?;
            part.rows.iter().try_for_each(|site| take(&PartLine::of_site(part.part, site)))?;
        }
        Ok(())
    }
}

/// The body of a recording's `balance`; at most `top` call-sites behind each part.
pub(super) fn balance<'a>(analysis: &'a Analysis, top: Option<usize>, saturation: &Saturation) -> BalanceBody<'a> {
    let [before, after] = sums_of_machine(analysis);
    let behind = Behind::of(analysis);
    let own_part = [&before, &after].into_iter().any(|sums| sums.parts.iter().any(|(of, _)| *of == Part::KernelStacks));
    let mut parts = Vec::new();
    for part in Part::ALL.into_iter().filter(|part| *part != Part::KernelStacks || own_part) {
        let (change, bytes) = match part {
            Part::OtherPages => (behind.other_pages(analysis), None),
            _ => (difference(before.get(part), after.get(part)), after.get(part)),
        };
        let explained = behind.explained(part, &analysis.paired.has).map(|bytes| saturation.sum(bytes));
        let rows = behind.rows(part, GroupNaming::of(analysis), top);
        parts.push(PartRow {
            part: part.name(),
            change,
            from: CounterForm::Meminfo.source(part),
            explained,
            bytes,
            rows,
        });
    }
    let [memtotal_change, memfree_change] =
        [difference(before.memtotal, after.memtotal), difference(before.memfree, after.memfree)];
    let is_whole = before.is_whole && after.is_whole;
    let known = parts.iter().filter_map(|part| part.change).map(i128::from).sum::<i128>();
    let left = memtotal_change.zip(memfree_change).map(|(total, free)| i128::from(total) - i128::from(free) - known);
    BalanceBody {
        memfree_change,
        memtotal_change,
        moment: None,
        parts,
        unexplained: left.filter(|_| is_whole).and_then(|left| i64::try_from(left).ok()),
        slab_of_no_cache: saturated(behind.of_no_cache),
        tasks: None,
    }
}

/// Parts of the machine's memory at both ends of the recording; none are known where it has no texts.
fn sums_of_machine(analysis: &Analysis) -> [PartSums; 2] {
    let Some(MachineTexts { sides, maps_stacks, .. }) = analysis.machine.as_ref().filter(|_| analysis.window.is_none())
    else {
        return [(); 2].map(|()| PartSums::of(CounterForm::Meminfo, &Counters::default(), true));
    };
    sides.each_ref().map(|MachineSide { meminfo, zoneinfo, .. }| {
        let mut counters = Counters::of_meminfo(meminfo);
        analysis.info.page_bytes.into_iter().for_each(|page_bytes| counters.add_zoneinfo(zoneinfo, page_bytes));
        PartSums::of(CounterForm::Meminfo, &counters, *maps_stacks)
    })
}

/// `after` less `before`.
fn difference(before: Option<u64>, after: Option<u64>) -> Option<i64> {
    i64::try_from(i128::from(after?) - i128::from(before?)).ok()
}

/// Live objects of one call-site and kind that belong to a part.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    objects: u128,
    bytes: u128,
    is_upper_bound: bool,
}

/// Live objects of the recording behind the parts.
#[derive(Debug, Default)]
struct Behind {
    by_site: HashMap<(Part, u64, Kind), Held>,
    /// Slab objects whose cache is not known.
    of_no_cache: u128,
    /// Some pages have a call-site, so that their use is known.
    tells_uses: bool,
}

impl Behind {
    fn of(analysis: &Analysis) -> Behind {
        let naming = GroupNaming::of(analysis);
        let mut behind = Behind::default();
        for (key, stats) in analysis.paired.rows.iter().filter(|(_, stats)| !stats.is_empty()) {
            behind.tells_uses |= key.kind.space() == Space::Pages && key.site != 0;
            match part_of(analysis, &naming, key) {
                Some(part) => behind.add(part, key, stats),
                None if key.kind.space() == Space::Slab => behind.of_no_cache += stats.live_allocated,
                None => {}
            }
        }
        behind
    }

    fn add(&mut self, part: Part, key: &RowKey, stats: &Stats) {
        let held = self.by_site.entry((part, key.site, key.kind)).or_default();
        held.objects += u128::from(stats.live_objects);
        held.bytes += stats.live_allocated;
        held.is_upper_bound |= stats.live_is_upper_bound;
    }

    fn of_part(&self, part: Part) -> impl Iterator<Item = (u64, Kind, &Held)> {
        self.by_site.iter().filter(move |((of, ..), _)| *of == part).map(|((_, site, kind), held)| (*site, *kind, held))
    }

    /// Live bytes that belong to a part; `None` where the recording has no events that tell them.
    fn explained(&self, part: Part, has: &ByKind<bool>) -> Option<u128> {
        let tells = match part {
            Part::SlabReclaimable | Part::SlabUnreclaimable => has[Kind::Kmalloc] || has[Kind::Cache],
            Part::Percpu => has[Kind::Percpu],
            Part::Vmalloc => has[Kind::Vmalloc],
            Part::Anonymous | Part::Files => has[Kind::Pages],
            Part::Shared | Part::PageTables | Part::KernelStacks | Part::OtherPages => {
                has[Kind::Pages] && self.tells_uses
            }
            Part::HugePages | Part::Others | Part::FreeOnCpus => false,
        };
        tells.then(|| self.of_part(part).map(|(.., held)| held.bytes).sum())
    }

    /// Growth of pages that no counter has: what of those that were allocated in the recording is not free again. Filters leave
    /// some of them out.
    fn other_pages(&self, analysis: &Analysis) -> Option<i64> {
        let bytes = self.explained(Part::OtherPages, &analysis.paired.has)?;
        i64::try_from(bytes).ok().filter(|_| analysis.is_whole)
    }

    /// Call-sites behind a part.
    fn rows<'a>(&self, part: Part, naming: GroupNaming<'a>, top: Option<usize>) -> Vec<PartSite<'a>> {
        let mut held: Vec<_> = self.of_part(part).filter(|(.., held)| held.bytes > 0).collect();
        held.sort_by_key(|(site, kind, held)| (Reverse(held.bytes), *site, *kind));
        let rows = held.into_iter().take(top.unwrap_or(usize::MAX)).map(|(site, kind, held)| PartSite {
            site: naming.naming.call_site(site),
            kind,
            live_objects: saturated(held.objects),
            live_allocated: saturated(held.bytes),
            live_is_upper_bound: held.is_upper_bound,
        });
        rows.collect()
    }
}

/// Part that the objects of a row belong to. Pages without a stack have no use: they may be of any part.
fn part_of(analysis: &Analysis, naming: &GroupNaming<'_>, key: &RowKey) -> Option<Part> {
    let value = |of: GroupKey| naming.values(*key).into_iter().find_map(|(key, value)| (key == of).then_some(value));
    match key.kind {
        Kind::Kmalloc | Kind::Cache => {
            let (cache, candidates) = naming.naming.cache(value(GroupKey::Cache)?);
            let rules = &analysis.machine.as_ref()?.reclaim;
            part_of_slab(rules, key.kind, cache, candidates.as_ref())
        }
        Kind::Pages => match naming.naming.numbered(value(GroupKey::Use)?)? {
            b"user" => Some(Part::Anonymous),
            b"cache" if is_of_tmpfs(naming, key.site) => Some(Part::Shared),
            b"cache" => Some(Part::Files),
            b"page tables" => Some(Part::PageTables),
            b"kernel stacks" => Some(Part::KernelStacks),
            b"modules" | b"network" | b"other" if key.site != 0 => Some(Part::OtherPages),
            _ => None,
        },
        Kind::Percpu => Some(Part::Percpu),
        Kind::Vmalloc => Some(Part::Vmalloc),
        // A line of source counts memory of any part.
        Kind::Tag => None,
    }
}

/// True for a call-site in the code of tmpfs and shared memory (`mm/shmem.c`), whose pages are in the cache, too.
fn is_of_tmpfs(naming: &GroupNaming<'_>, site: u64) -> bool {
    naming.naming.symbol(Some(site)).is_some_and(|symbol| symbol.starts_with(b"shmem_"))
}

/// Part of slab that objects of a cache belong to; `None` where the cache is not known and its candidates do not agree.
fn part_of_slab(
    rules: &ReclaimRules,
    kind: Kind,
    cache: Option<&[u8]>,
    candidates: Option<&Candidates>,
) -> Option<Part> {
    let part = |is_reclaimable| if is_reclaimable { Part::SlabReclaimable } else { Part::SlabUnreclaimable };
    if kind == Kind::Kmalloc {
        // Objects that are too large for a class are whole pages, which no shrinker takes back.
        return Some(part(cache.is_some_and(|cache| cache.starts_with(b"kmalloc-rcl-"))));
    }
    let several = candidates.into_iter().flat_map(|candidates| candidates.0.iter().map(|name| &**name));
    let mut parts = cache.into_iter().chain(several).map(|name| part(rules.counts_cache(name)));
    let first = parts.next()?;
    parts.all(|next| next == first).then_some(first)
}
