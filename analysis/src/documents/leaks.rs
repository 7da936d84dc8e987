//! `leaks`: rows of live objects that are born evenly over the window, in groups of those that grow together.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use kmemtrace_abi::clock::{OrderKey, Unit};
use kmemtrace_abi::event::{Context, Kind, Space};
use kmemtrace_abi::fault::Verdict as TraceVerdict;
use serde::Serialize;

use super::group::{GroupMember, GroupNames, GroupNaming, KeyValue, SortValue};
use super::ranked::{Listing, Others, Shape};
use super::row::{Quotient, Rows, row};
use super::sums::{Ordering, Saturation, saturated};
use crate::account::births::{Births, TENTHS, tenths_touched};
use crate::account::grouping::{GroupKey, GroupValue, NO_VALUE, RowKey};
use crate::analysis::Analysis;
use crate::names::caches::{CacheFrom, candidates};
use crate::names::kallsyms::Symbolizer;
use crate::names::reclaim::{Reclaim, SlabOwn};
use crate::names::size_class;
use crate::query::select::{Candidate, Select};

/// Least length of a window that tells a leak from memory in use, in nanoseconds.
const SHORTEST: u64 = 2_000_000_000;
/// Uses of pages that the kernel takes back, or that go with their owner.
const USUAL_USES: [&[u8]; 4] = [b"user", b"cache", b"slab", b"page tables"];

/// Verdict on a row, the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LeakVerdict {
    /// Nothing known explains the row.
    Leak,
    /// Some of the objects may be gone, or may be taken back.
    Maybe,
    /// The kernel takes the objects back by itself.
    Cache,
    /// Not steady.
    No,
}

impl LeakVerdict {
    /// Word of documents.
    pub fn name(self) -> &'static str {
        match self {
            LeakVerdict::Leak => "leak",
            LeakVerdict::Maybe => "maybe",
            LeakVerdict::Cache => "cache",
            LeakVerdict::No => "no",
        }
    }
}

/// Options of `leaks`.
#[derive(Clone, Copy, Debug, Default)]
pub struct LeakOptions {
    /// Rows that are not steady are listed, too.
    pub all: bool,
    /// The limit of rows counts groups.
    pub limits_groups: bool,
}

row! {
    /// Row of `leaks`.
    pub struct LeakRow<'a> {
        /// Values of the keys.
        pub names: GroupNames<'a>,
        /// Kind of the objects.
        pub kind: Kind,
        /// Number of live objects.
        pub live_objects: u64,
        /// Bytes allocated for them.
        pub live_allocated: Option<u64>,
        /// Number of allocations.
        pub allocs: u64,
        /// Live objects by the tenth of the window in which they were allocated.
        pub born: Vec<u64>,
        /// Share of the allocations that are live.
        pub kept: Option<Quotient>,
        /// Live objects per second of the window; `None` for a clock that does not count time.
        pub rate: Option<Quotient>,
        /// Live bytes per second of the window.
        pub bytes_rate: Option<Quotient>,
        /// True if objects of the row are also freed on paths without events, so some may be gone.
        pub live_is_upper_bound: bool,
        /// True if the kernel takes the objects back by itself; `None` where their cache is not known.
        pub reclaimable: Option<bool>,
        /// `flag` or `list`.
        pub reclaimable_from: Option<&'static str>,
        /// `leak`, `maybe`, `cache` or `no`; `None` where the recording does not say.
        pub verdict: Option<&'static str>,
        /// Number of the group, from 1; `None` for a row that is not steady.
        pub group: Option<u64>,
        /// True if the thread lived at the end; `None` where that is not known, and for rows of several threads.
        pub task_alive: Option<bool>,
    }
}

row! {
    /// Sum of rows left out.
    pub struct LeakSums {
        /// Number of live objects.
        pub live_objects: u64,
        /// Bytes allocated for them.
        pub live_allocated: Option<u64>,
        /// Number of allocations.
        pub allocs: u64,
    }
}

/// Rows that grow together.
#[derive(Clone, Debug)]
pub struct LeakGroup<'a> {
    /// Its row with most bytes.
    pub most: LeakRow<'a>,
    /// Verdict of its first row.
    pub verdict: Option<&'static str>,
    /// Number of its call-sites; of its rows where these are not made of call-sites.
    pub call_sites: usize,
    /// Sums of its rows.
    pub sums: LeakSums,
    /// Live bytes per second of the window.
    pub bytes_rate: Option<f64>,
}

/// Reason for rows without a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unjudged {
    /// The window has less than two seconds.
    ShortWindow,
    /// Order keys are numbers.
    Sequence,
    /// Frees of some kind were not recorded.
    NoFrees,
}

/// Body of `leaks`.
#[derive(Serialize)]
pub struct LeaksBody<'a> {
    /// Length of the window in seconds; `None` for a clock that does not count time.
    pub seconds: Option<f64>,
    /// Reasons for rows without a verdict.
    pub unjudged: Vec<Unjudged>,
    /// Rows, group by group.
    #[serde(flatten)]
    pub listing: Listing<'a, LeakRow<'a>, LeakSums>,
    /// Groups that are shown.
    #[serde(skip)]
    pub groups: Vec<LeakGroup<'a>>,
    /// Number of groups that are not shown.
    #[serde(skip)]
    pub other_groups: usize,
    /// Live bytes by call-site and kind, of all objects: those that the kernel does not take back by itself, and those that it does.
    #[serde(skip)]
    pub by_site: BTreeMap<(u64, Kind), [u64; 2]>,
}

impl LeaksBody<'_> {
    /// False where no row can have a verdict.
    pub fn is_judged(&self) -> bool {
        self.unjudged.iter().all(|why| *why == Unjudged::NoFrees)
    }

    /// Number of groups that nothing known explains, shown or not.
    pub fn leaks(&self) -> usize {
        self.groups.iter().filter(|group| group.verdict == Some(LeakVerdict::Leak.name())).count()
    }
}

/// Names of a row: keys of `--by`, or thread and call-site.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum LeakKey<'a> {
    /// Call-site, kind, thread and its name; `None` for all of them.
    Site { site: u64, kind: Kind, task: Option<Option<i32>>, comm: Option<Option<&'a [u8]>> },
    /// Values of the keys that were asked for.
    Keys { place: Vec<SortValue<'a>>, kind: Kind, values: Vec<GroupValue> },
}

/// Sums of a row.
#[derive(Clone, Debug, Default)]
struct LeakStats {
    live_objects: u64,
    live_allocated: u128,
    allocs: u64,
    born: Births,
    is_bound: bool,
    /// `None` without a live object.
    reclaim: Option<Reclaim>,
    /// Some live pages are of none of the usual uses.
    has_other_use: bool,
    /// The filters take one of the live objects.
    is_chosen: bool,
    /// Best origin of the names of the objects' caches.
    cache_from: Option<CacheFrom>,
    /// A row of the analysis among those that make up this one.
    example: Option<RowKey>,
}

impl LeakStats {
    /// Live bytes of a row of this kind, if they are known.
    fn bytes(&self, kind: Kind) -> Option<u64> {
        let is_known = self.live_objects == 0 || kind.has_size(self.live_allocated);
        is_known.then(|| saturated(self.live_allocated))
    }

    fn add(&mut self, other: &LeakStats) {
        self.live_objects = self.live_objects.saturating_add(other.live_objects);
        self.live_allocated = self.live_allocated.saturating_add(other.live_allocated);
        self.allocs = self.allocs.saturating_add(other.allocs);
        self.born.iter_mut().zip(other.born).for_each(|(sum, n)| *sum = sum.saturating_add(n));
        self.is_bound |= other.is_bound;
        self.reclaim = match (self.reclaim, other.reclaim) {
            (Some(a), Some(b)) => Some(a.and(b)),
            (a, b) => a.or(b),
        };
        self.has_other_use |= other.has_other_use;
        self.is_chosen |= other.is_chosen;
        self.cache_from = [self.cache_from, other.cache_from].into_iter().flatten().min();
        self.example = self.example.or(other.example);
    }

    /// True for births that are spread evenly. The last tenth is full of what is in use just now, and does not count.
    fn is_steady(&self) -> bool {
        let old = &self.born[..TENTHS - 1];
        let sum = |part: &[u64]| part.iter().map(|&n| u128::from(n)).sum::<u128>();
        let (all, (first, last)) = (sum(old), old.split_at(5));
        let (first, last) = (sum(first), sum(last));
        let most = old.iter().copied().max().unwrap_or(0);
        all >= 10
            && old.iter().filter(|&&n| n > 0).count() >= 8
            && u128::from(most) * 5 <= all * 2
            // Means of the last four and of the first five.
            && last * 5 <= first * 8
            && first * 4 <= last * 15
    }

    /// True for rows whose objects were born together with those of the first row of a group, one, two, three or four at a time.
    fn goes_with(&self, first: &LeakStats) -> bool {
        let (less, more) = (self.live_objects.min(first.live_objects), self.live_objects.max(first.live_objects));
        let is_near = |times: u128| {
            let wanted = u128::from(less) * times;
            u128::from(more).abs_diff(wanted) * 10 <= wanted
        };
        let [a, b] = [self, first].map(|stats| u128::from(stats.live_objects));
        let births = self.born.iter().zip(first.born);
        let distance = births.map(|(&own, other)| (u128::from(own) * b).abs_diff(u128::from(other) * a));
        (1..=4).any(is_near) && distance.fold(0, u128::saturating_add).saturating_mul(5) <= a.saturating_mul(b)
    }
}

/// A row with its verdict.
#[derive(Clone, Debug)]
struct Leak<'a> {
    key: LeakKey<'a>,
    names: GroupNames<'a>,
    kind: Kind,
    stats: LeakStats,
    verdict: Option<LeakVerdict>,
    group: Option<u64>,
}

impl Leak<'_> {
    /// Thread and its name, which rows of a group share.
    fn task(&self) -> (Option<i32>, Option<Vec<u8>>) {
        let mut task = (None, None);
        for GroupMember { key, value } in &self.names.0 {
            match (key, value) {
                (_, KeyValue::Task { pid, comm }) => task = (*pid, comm.as_deref().map(<[u8]>::to_vec)),
                (GroupKey::Pid, KeyValue::Id(pid)) => task.0 = *pid,
                (GroupKey::Comm, KeyValue::Name(comm)) => task.1 = comm.as_deref().map(<[u8]>::to_vec),
                _ => {}
            }
        }
        task
    }
}

/// Facts of an analysis that rows of leaks are made of.
struct Facts<'a> {
    analysis: &'a Analysis,
    naming: GroupNaming<'a>,
    symbols: &'a Symbolizer,
    select: Select,
    seconds: Option<f64>,
    /// Loss in several parts of the window.
    is_lossy: bool,
    unjudged: Vec<Unjudged>,
}

impl<'a> Facts<'a> {
    fn of(analysis: &'a Analysis) -> Facts<'a> {
        let (order, keys) = (&analysis.order, analysis.info.keys());
        let window = (order.first.unwrap_or(0), order.last.unwrap_or(0));
        let span = window.1 - window.0.min(window.1);
        let is_time = analysis.info.order == OrderKey::Time;
        let mut unjudged = Vec::new();
        if !is_time {
            unjudged.push(Unjudged::Sequence);
        } else if keys.unit == Unit::Nanoseconds && span < SHORTEST {
            unjudged.push(Unjudged::ShortWindow);
        }
        let touched = tenths_touched(window, &analysis.paired.gaps);
        Facts {
            analysis,
            naming: GroupNaming::of(analysis),
            symbols: analysis.symbolizer(),
            select: analysis.chosen.with_aliases(analysis.caches.aliases.as_ref()).into_owned(),
            seconds: (keys.unit == Unit::Nanoseconds && span > 0).then(|| span as f64 / 1e9),
            is_lossy: analysis.completeness.verdict != TraceVerdict::Complete && touched > 1,
            unjudged,
        }
    }

    /// True where the recording has frees of the kind.
    fn has_frees(&self, kind: Kind) -> bool {
        self.analysis.records_frees[kind] || self.analysis.paired.counts.free_events[kind] > 0
    }

    /// Verdict on a steady row.
    fn verdict(&self, kind: Kind, stats: &LeakStats) -> Option<LeakVerdict> {
        if !self.unjudged.is_empty() || !self.has_frees(kind) {
            return None;
        }
        let reclaimable = stats.reclaim.and_then(Reclaim::is_reclaimable);
        let is_usual = kind.space() == Space::Pages && !stats.has_other_use;
        Some(match reclaimable {
            Some(true) => LeakVerdict::Cache,
            _ if is_usual => LeakVerdict::Cache,
            Some(false) if !stats.is_bound && !self.is_lossy => LeakVerdict::Leak,
            _ => LeakVerdict::Maybe,
        })
    }

    /// True if the filters take objects of a row of the analysis.
    fn chooses(&self, index: usize, key: RowKey) -> bool {
        if self.select.is_all() {
            return true;
        }
        let select = &self.select;
        let values = self.naming.values(key);
        let value =
            |of: GroupKey| values.iter().find_map(|&(key, value)| (key == of && value != NO_VALUE).then_some(value));
        let (pid, comm) = value(GroupKey::Task).map_or((None, None), |task| self.naming.task(task));
        let cache = value(GroupKey::Cache).and_then(|number| self.naming.naming.numbered(number));
        let cache = cache.filter(|name| candidates(name).is_none());
        let size_class = cache.filter(|_| key.kind == Kind::Kmalloc).and_then(size_class::plain_name);
        let context =
            value(GroupKey::Context).and_then(|number| Context::ALL.get(usize::try_from(number).ok()?).copied());
        let symbol = self.symbols.lookup(key.site);
        let is_of_place =
            |select: &Select| select.branch.is_empty() || select.matches_branch(&self.naming.naming.place(key.site));
        select.matches_site(key.site, symbol.as_ref(), self.symbols.owner_of(key.site, symbol.as_ref()))
            && is_of_place(select)
            && select.matches(&Candidate {
                kind: key.kind,
                pid,
                tgid: value(GroupKey::Tgid).map(|tgid| tgid as u32 as i32),
                comm: comm.as_deref(),
                cache,
                size_class: size_class.as_deref(),
                requested: value(GroupKey::Size),
                context,
                reclaimable: self.analysis.paired.reclaim(index).is_reclaimable(),
                cgroup: value(GroupKey::Cgroup).and_then(|number| self.naming.naming.numbered(number)),
                accounted: value(GroupKey::Accounted).map(|yes| yes != 0),
            })
    }

    /// Sums of each row of the analysis but those of the allocator's own.
    fn rows(&self) -> Vec<(RowKey, LeakStats)> {
        let own = SlabOwn::default();
        let paired = &self.analysis.paired;
        let mut rows = Vec::new();
        for (index, (key, stats)) in paired.rows.iter().enumerate().filter(|(_, (_, stats))| stats.allocs > 0) {
            if self.symbols.lookup(key.site).is_some_and(|symbol| own.has(symbol.name)) {
                continue;
            }
            let is_live = stats.live_objects > 0;
            let of = self.naming.values(*key).into_iter().find_map(|(key, of)| (key == GroupKey::Use).then_some(of));
            let of = of.and_then(|number| self.naming.naming.numbered(number)).unwrap_or_default();
            rows.push((
                *key,
                LeakStats {
                    live_objects: stats.live_objects,
                    live_allocated: stats.live_allocated,
                    allocs: stats.allocs,
                    born: paired.births.get(index).copied().unwrap_or_default(),
                    is_bound: stats.live_is_upper_bound,
                    reclaim: paired.reclaims.get(index).copied().filter(|_| is_live),
                    has_other_use: is_live && key.kind.space() == Space::Pages && !USUAL_USES.contains(&of),
                    is_chosen: is_live && self.chooses(index, *key),
                    cache_from: paired.caches_from.get(key).copied(),
                    example: Some(*key),
                },
            ));
        }
        rows
    }

    /// Thread and name of a row of the analysis.
    fn task(&self, key: RowKey) -> (Option<i32>, Option<&'a [u8]>) {
        let task = self.naming.values(key).into_iter().find_map(|(key, of)| (key == GroupKey::Task).then_some(of));
        let pid = task.and_then(|task| self.naming.task(task).0);
        (pid, pid.and_then(|pid| self.analysis.names.comms.get(&pid)).map(|comm| &**comm))
    }

    /// Names of a row.
    fn names(&self, key: &LeakKey<'a>, stats: &LeakStats) -> GroupNames<'a> {
        match key {
            LeakKey::Keys { .. } => {
                let members = stats.example.map(|row| self.naming.names(row).0).unwrap_or_default();
                let is_asked = |member: &GroupMember<'_>| self.analysis.leaks.contains(&member.key);
                let mut members: Vec<_> = members.into_iter().filter(is_asked).collect();
                for member in &mut members {
                    // The example's name may have a worse origin than those of other rows.
                    if let KeyValue::Cache { cache: Some(_), cache_from: from @ Some(_), .. } = &mut member.value {
                        *from = stats.cache_from.map(CacheFrom::name).or(*from);
                    }
                }
                GroupNames(members)
            }
            LeakKey::Site { site, task, comm, .. } => {
                let comm = comm.flatten().map(Into::into);
                let task = KeyValue::Task { pid: task.flatten(), comm };
                let site = KeyValue::Site(self.naming.naming.call_site(*site));
                GroupNames(vec![
                    GroupMember { key: GroupKey::Task, value: task },
                    GroupMember { key: GroupKey::Site, value: site },
                ])
            }
        }
    }

    /// Rows that are listed, in no order, and with `all` those that are not steady.
    fn leaks(&self, all: bool) -> Vec<Leak<'a>> {
        let rows = self.rows();
        if !self.analysis.leaks.is_empty() {
            let mut level: BTreeMap<LeakKey<'a>, LeakStats> = BTreeMap::new();
            rows.iter().for_each(|(key, stats)| level.entry(self.asked(*key)).or_default().add(stats));
            let leaks = level.into_iter().map(|(key, stats)| self.leak(key, stats));
            return leaks.filter(|leak| all || leak.verdict != Some(LeakVerdict::No)).collect();
        }
        let task_of = |key: RowKey| {
            let (pid, comm) = self.task(key);
            LeakKey::Site { site: key.site, kind: key.kind, task: Some(pid), comm: Some(comm) }
        };
        let mut left: BTreeMap<LeakKey<'a>, LeakStats> = BTreeMap::new();
        rows.iter().for_each(|(key, stats)| left.entry(task_of(*key)).or_default().add(stats));
        let mut leaks = self.take_steady(&mut left, LeakKey::clone, |_| true);
        // Processes that come and go.
        let without_task = |key: &LeakKey<'a>| match key {
            LeakKey::Site { site, kind, comm, .. } => {
                LeakKey::Site { site: *site, kind: *kind, task: None, comm: *comm }
            }
            key => key.clone(),
        };
        leaks.extend(self.take_steady(&mut left, without_task, |_| true));
        let of_site = |key: &LeakKey<'a>| match key {
            LeakKey::Site { site, kind, .. } => LeakKey::Site { site: *site, kind: *kind, task: None, comm: None },
            key => key.clone(),
        };
        let is_half = |stats: &LeakStats| u128::from(stats.live_objects) * 2 >= u128::from(stats.allocs);
        leaks.extend(self.take_steady(&mut left, of_site, is_half));
        if all {
            let live = left.into_iter().filter(|(_, stats)| stats.live_objects > 0);
            leaks.extend(live.map(|(key, stats)| self.leak(key, stats)));
        }
        leaks
    }

    /// Takes the rows out of `left` that are steady once they are put together under the keys of `of`, and whose sums `holds` takes.
    fn take_steady(
        &self,
        left: &mut BTreeMap<LeakKey<'a>, LeakStats>,
        of: impl Fn(&LeakKey<'a>) -> LeakKey<'a>,
        holds: impl Fn(&LeakStats) -> bool,
    ) -> Vec<Leak<'a>> {
        let mut level: BTreeMap<LeakKey<'a>, LeakStats> = BTreeMap::new();
        left.iter().for_each(|(key, stats)| level.entry(of(key)).or_default().add(stats));
        level.retain(|_, stats| stats.is_steady() && holds(stats));
        left.retain(|key, _| !level.contains_key(&of(key)));
        level.into_iter().map(|(key, stats)| self.leak(key, stats)).collect()
    }

    fn leak(&self, key: LeakKey<'a>, stats: LeakStats) -> Leak<'a> {
        let kind = match key {
            LeakKey::Site { kind, .. } | LeakKey::Keys { kind, .. } => kind,
        };
        let verdict = if stats.is_steady() { self.verdict(kind, &stats) } else { Some(LeakVerdict::No) };
        Leak { names: self.names(&key, &stats), key, kind, stats, verdict, group: None }
    }

    /// Values of the keys that were asked for: rows that differ in other keys have the same.
    fn asked(&self, key: RowKey) -> LeakKey<'a> {
        let values = self.naming.values(key).into_iter().filter(|(key, _)| self.analysis.leaks.contains(key));
        let values: Vec<(GroupKey, GroupValue)> = values.collect();
        let mut place = Vec::new();
        values.iter().for_each(|&(key, value)| self.naming.add_place(key, value, &mut place));
        LeakKey::Keys { place, kind: key.kind, values: values.into_iter().map(|(_, value)| value).collect() }
    }

    fn row(&self, leak: &Leak<'a>) -> LeakRow<'a> {
        let stats = &leak.stats;
        let quotient = |part: f64, whole: f64| (whole > 0.0).then_some(Quotient(part / whole));
        let per_second = |figure: f64| self.seconds.and_then(|seconds| quotient(figure, seconds));
        let reclaim = stats.reclaim.unwrap_or_default();
        let threads = self.analysis.threads_end.as_ref();
        LeakRow {
            names: leak.names.clone(),
            kind: leak.kind,
            live_objects: stats.live_objects,
            live_allocated: stats.bytes(leak.kind),
            allocs: stats.allocs,
            born: stats.born.to_vec(),
            kept: quotient(stats.live_objects as f64, stats.allocs as f64),
            rate: per_second(stats.live_objects as f64),
            bytes_rate: stats.bytes(leak.kind).and_then(|bytes| per_second(bytes as f64)),
            live_is_upper_bound: stats.is_bound,
            reclaimable: reclaim.is_reclaimable(),
            reclaimable_from: reclaim.from(),
            verdict: leak.verdict.map(LeakVerdict::name),
            group: leak.group,
            task_alive: leak.task().0.zip(threads).map(|(pid, threads)| threads.binary_search(&pid).is_ok()),
        }
    }

    /// The group of these rows, the first of them its own.
    fn group(&self, leaks: &[Leak<'a>]) -> Option<LeakGroup<'a>> {
        let first = leaks.first()?;
        let most = leaks.iter().min_by_key(|leak| Reverse(leak.stats.live_allocated))?;
        let sums = sums_of(leaks.iter());
        let sites: BTreeSet<u64> = leaks.iter().flat_map(|leak| site_of(&leak.names)).collect();
        Some(LeakGroup {
            most: self.row(most),
            verdict: first.verdict.map(LeakVerdict::name),
            call_sites: if sites.is_empty() { leaks.len() } else { sites.len() },
            bytes_rate: self.seconds.zip(sums.live_allocated).map(|(seconds, bytes)| bytes as f64 / seconds),
            sums,
        })
    }
}

/// Call-site among the names of a row.
fn site_of(names: &GroupNames<'_>) -> Option<u64> {
    names.0.iter().find_map(|member| match &member.value {
        KeyValue::Site(site) => Some(site.call_site.0),
        _ => None,
    })
}

fn sums_of<'l, 'a: 'l>(leaks: impl Iterator<Item = &'l Leak<'a>>) -> LeakSums {
    let (mut sum, mut has_bytes) = (LeakStats::default(), true);
    leaks.for_each(|leak| {
        sum.add(&leak.stats);
        has_bytes &= leak.stats.bytes(leak.kind).is_some();
    });
    let live_allocated = has_bytes.then(|| saturated(sum.live_allocated));
    LeakSums { live_objects: sum.live_objects, live_allocated, allocs: sum.allocs }
}

/// Puts the rows in their order, and gives each steady one its group.
fn number_groups(leaks: &mut [Leak<'_>]) {
    // Bytes per second are in the order of the bytes.
    let rank =
        |leak: &Leak<'_>| (leak.verdict.map_or(5, |verdict| 2 * verdict as u8), Reverse(leak.stats.live_allocated));
    leaks.sort_by(|a, b| rank(a).cmp(&rank(b)).then_with(|| a.key.cmp(&b.key)));
    let mut firsts: Vec<usize> = Vec::new();
    type Task = (Option<i32>, Option<Vec<u8>>);
    let mut by_task: BTreeMap<Task, Vec<usize>> = BTreeMap::new();
    for index in 0..leaks.len() {
        let leak = &leaks[index];
        if leak.verdict == Some(LeakVerdict::No) {
            continue;
        }
        let own = by_task.entry(leak.task()).or_default();
        let found = own.iter().copied().find(|&group| leak.stats.goes_with(&leaks[firsts[group]].stats));
        let group = found.unwrap_or_else(|| {
            firsts.push(index);
            own.push(firsts.len() - 1);
            firsts.len() - 1
        });
        leaks[index].group = Some(group as u64 + 1);
    }
    leaks.sort_by_key(|leak| leak.group.unwrap_or(u64::MAX));
}

/// The body of `leaks`.
pub(super) fn leaks<'a>(
    analysis: &'a Analysis,
    options: LeakOptions,
    shape: &Shape,
    (saturation, ordering): (&Saturation, Ordering),
) -> LeaksBody<'a> {
    let facts = Facts::of(analysis);
    let mut leaks = facts.leaks(options.all);
    let no_frees = leaks.iter().any(|leak| leak.verdict.is_none() && !facts.has_frees(leak.kind));
    leaks.retain(|leak| leak.stats.is_chosen);
    leaks.iter().for_each(|leak| {
        saturation.sum(leak.stats.live_allocated);
    });
    number_groups(&mut leaks);
    let all_groups: Vec<LeakGroup<'a>> = leaks
        .chunk_by(|a, b| a.group.is_some() && a.group == b.group)
        .filter(|rows| rows.first().is_some_and(|leak| leak.group.is_some() || options.all))
        .filter_map(|rows| facts.group(rows))
        .collect();
    let limit = match (shape.top, options.limits_groups) {
        (Some(top), true) => {
            leaks.chunk_by(|a, b| a.group.is_some() && a.group == b.group).take(top).map(<[Leak<'_>]>::len).sum()
        }
        (top, _) => top.unwrap_or(leaks.len()),
    };
    let rest = leaks.split_off(limit.min(leaks.len()));
    let shown = if options.limits_groups { shape.top.unwrap_or(all_groups.len()) } else { all_groups.len() };
    let other_groups = all_groups.len().saturating_sub(shown);
    let others =
        Others::of_spaces(rest.len(), ordering, |space| sums_of(rest.iter().filter(|leak| leak.kind.space() == space)));
    let rows: Vec<LeakRow<'a>> = leaks.iter().map(|leak| facts.row(leak)).collect();
    let template = rows.first().cloned().or_else(|| rest.first().map(|leak| facts.row(leak)));
    let mut unjudged = facts.unjudged.clone();
    unjudged.extend(no_frees.then_some(Unjudged::NoFrees));
    let stacks = facts.naming.stack_members();
    let listing = Listing { stacks, ..Listing::new(Rows::of(rows, LeakRow::clone), others, template) };
    LeaksBody {
        seconds: facts.seconds,
        unjudged,
        by_site: by_site(analysis),
        listing,
        other_groups,
        groups: all_groups,
    }
}

/// Live bytes of each call-site: those that stay, and those that the kernel takes back by itself.
fn by_site(analysis: &Analysis) -> BTreeMap<(u64, Kind), [u64; 2]> {
    let mut sites: BTreeMap<(u64, Kind), [u64; 2]> = BTreeMap::new();
    for (index, (key, stats)) in analysis.paired.rows.iter().enumerate() {
        let reclaim = analysis.paired.reclaim(index);
        let bytes =
            &mut sites.entry((key.site, key.kind)).or_default()[usize::from(reclaim.is_reclaimable() == Some(true))];
        *bytes = bytes.saturating_add(saturated(stats.live_allocated));
    }
    sites
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stats(born: Births) -> LeakStats {
        LeakStats { live_objects: born.iter().sum(), born, ..LeakStats::default() }
    }

    #[test]
    fn the_best_origin_of_a_cache_is_that_of_all_its_rows() {
        let of = |from| LeakStats { cache_from: from, ..LeakStats::default() };
        let sum = |all: &[Option<CacheFrom>]| {
            let mut sum = LeakStats::default();
            all.iter().for_each(|from| sum.add(&of(*from)));
            sum.cache_from
        };
        let [event, free] = [Some(CacheFrom::Event), Some(CacheFrom::Free)];
        assert_eq!([sum(&[free, event, None]), sum(&[None, free]), sum(&[None])], [event, free, None]);
    }

    #[test]
    fn even_births_are_steady() {
        for (born, want) in [
            ([1; 10], false),
            ([2, 1, 1, 1, 1, 1, 1, 1, 1, 0], true),
            // Two of nine may be without a birth, three not.
            ([2, 0, 2, 2, 2, 2, 2, 2, 2, 0], true),
            ([2, 0, 2, 2, 0, 2, 2, 2, 2, 99], false),
            // One tenth has at most 40 percent of the nine.
            ([4, 1, 1, 1, 1, 1, 1, 0, 1, 0], true),
            ([5, 1, 1, 1, 1, 1, 1, 1, 0, 50], false),
            ([8, 1, 1, 1, 1, 2, 2, 2, 2, 0], true),
            ([9, 1, 1, 1, 1, 2, 2, 2, 2, 0], false),
            // The last four have at most twice as many as the first five, and at least a third, in the mean.
            ([5, 5, 5, 5, 5, 10, 10, 10, 10, 0], true),
            ([5, 5, 5, 5, 5, 10, 10, 10, 11, 0], false),
            ([6, 6, 6, 6, 6, 2, 2, 2, 2, 0], true),
            ([6, 6, 6, 6, 7, 2, 2, 2, 2, 0], false),
        ] {
            assert_eq!(stats(born).is_steady(), want, "{born:?}");
        }
    }

    #[test]
    fn rows_that_grow_together_are_a_group() {
        let first = stats([6; 10]);
        for (born, want) in [
            ([6; 10], true),
            ([12; 10], true),
            ([24; 10], true),
            ([30; 10], false),
            ([9; 10], false),
            ([0, 12, 6, 6, 6, 6, 6, 6, 6, 6], true),
            ([0, 12, 0, 12, 6, 6, 6, 6, 6, 6], false),
        ] {
            assert_eq!((stats(born).goes_with(&first), first.goes_with(&stats(born))), (want, want), "{born:?}");
        }
        let near = stats([66, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        let far = stats([67, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        let of = stats([60, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert!(near.goes_with(&of) && !far.goes_with(&of));
    }
}
