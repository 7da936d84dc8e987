//! Snapshots of a monitor: a step for each row.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use kmemtrace_abi::event::{BySpace, Space};
use kmemtrace_abi::stream::CpuStream;
use kmemtrace_abi::trace::Trace;

use super::figures::Figures;
use super::monitor::Monitor;
use super::numbering::NumberedRow;
use super::snapshot::{
    Ages, Detail, LiveGroup, LiveKey, LiveRow, RowChoice, Shares, SizeShare, Snapshot, SnapshotRequest, Totals,
};
use super::sums::LiveSums;
use super::ticks::TICK;
use super::watched::OfSize;
use crate::account::completeness::Completeness;
use crate::engine::observe::{Observed, has_late_loss};
use crate::names::place::NamesReport;

/// Call-sites that free an object, of a detail.
const FREERS: usize = 4;
/// Sizes and threads of a detail.
const SIZES: usize = 4;
const THREADS: usize = 2;

impl Monitor<'_> {
    /// Figures at present.
    pub fn snapshot(&mut self, trace: &Trace, request: &SnapshotRequest) -> Snapshot {
        self.ledger.select(request.selection.as_ref(), &mut self.held, self.frontier);
        self.ledger.watch(request.detail, &mut self.held);
        let reports = || trace.streams.iter().map(CpuStream::report);
        let lossy = reports().filter(|report| report.lost.is_none_or(|lost| lost > 0)).filter_map(|report| report.cpu);
        let since = |at: u64| at.saturating_sub(self.first);
        let mut snapshot = Snapshot {
            elapsed: self.elapsed(),
            events: self.events(),
            events_now: self.events_now(),
            lost: reports().map(|report| report.lost).sum(),
            gaps: reports().map(|report| report.gaps).sum(),
            stacks_unmatched: reports().map(|report| report.stacks_unmatched).sum(),
            cpus: trace.info.cpus.clone(),
            lossy_cpus: lossy.collect(),
            filled: trace.streams.iter().filter_map(|stream| Some((stream.cpu(), stream.filled()?))).collect(),
            lag: self.lag(),
            bytes_read: trace.streams.iter().map(CpuStream::bytes_read).sum(),
            bytes: trace.streams.iter().map(CpuStream::bytes_to_read).sum(),
            skipped: self.skipped,
            is_over_memory: self.is_over_memory(),
            totals: self.ledger.sums.totals.each_ref().map(|figures| self.totals(figures, request)),
            curve: self.curve(request),
            mark: self.ledger.mark.map(since),
            group: request.group,
            selected: self.ledger.selected.as_ref().map(|of| (of.selection.text().into(), since(of.since))),
            groups: self.groups(),
            rows: Vec::new(),
            below: Vec::new(),
            node_peaks: match request.group {
                LiveGroup::Stacks | LiveGroup::Modules => self.sums().peaks(),
                _ => Vec::new(),
            },
            detail: request.detail.and_then(|choice| self.detail(choice, request)),
        };
        snapshot.rows = self.rows(request.group, request);
        if request.group == LiveGroup::Modules && snapshot.groups.contains(&LiveGroup::Stacks) {
            snapshot.below = self.rows(LiveGroup::Stacks, request);
        }
        snapshot
    }

    /// Completeness and keys of what was read so far.
    pub fn observed(&self, trace: &Trace) -> Observed {
        let order = &self.merger.merged;
        let (frees_without_alloc, inferred_frees) = self.held.unpaired();
        let distinct = trace.names.stacks.len() as u64;
        let mut completeness = Completeness::of(trace, order).with_distinct_stacks(trace, distinct);
        completeness.set_unpaired(inferred_frees, frees_without_alloc);
        Observed {
            completeness,
            events: self.events(),
            first_key: self.first,
            keys: (self.events() > 0).then_some((self.first, self.frontier)),
            own_threads: trace.metadata.own_threads.clone(),
            has_late_loss: has_late_loss(trace, order),
            source_paths: BTreeSet::new(),
            names: NamesReport::default(),
        }
    }

    /// Groupings whose rows tell objects apart: without stacks there are no rows of stacks, without pages none of uses.
    fn groups(&self) -> Vec<LiveGroup> {
        let has = |group: &LiveGroup| {
            let is_one = |key| match group {
                LiveGroup::Stacks => !matches!(key, LiveKey::Stack(0, _)),
                LiveGroup::Uses => key != LiveKey::Use(0),
                LiveGroup::Cgroups => key != LiveKey::Cgroup(0),
                _ => true,
            };
            matches!(group, LiveGroup::Sites | LiveGroup::Modules | LiveGroup::Tasks | LiveGroup::Caches)
                || self.ledger.numbering.lines(*group).lines.iter().any(|line| is_one(line.key))
        };
        LiveGroup::ALL.into_iter().filter(has).collect()
    }

    /// Slice at whose begin the window begins; `None` where the trace is younger.
    fn window_slice(&self, window: u64) -> Option<usize> {
        let from = self.frontier.checked_sub(window)?;
        // The last tick may lie behind the present by nearly one second.
        self.ledger.ticks.at_or_before(from.saturating_add(TICK / 2))
    }

    /// Time since rows began to be counted, in nanoseconds; `None` where two whole seconds have passed since then.
    fn short_time(&self) -> Option<u64> {
        let begin = self.ledger.selected.as_ref().map_or(self.first, |selected| selected.since);
        let last_tick = self.ledger.ticks.begin(self.ledger.ticks.len() - 1);
        (last_tick < begin.saturating_add(2 * TICK)).then(|| self.frontier.saturating_sub(begin))
    }

    fn growth(&self, figures: &Figures, window: u64) -> i64 {
        let slice = self.window_slice(window);
        let before = slice.map_or(0, |slice| figures.live_at(slice, self.ledger.ticks.len()));
        difference(figures.live, before)
    }

    fn totals(&self, figures: &Figures, request: &SnapshotRequest) -> Totals {
        Totals {
            live: figures.live,
            peak: figures.peak,
            peak_after: figures.peak_at.saturating_sub(self.first),
            growth: self.growth(figures, request.window),
            allocs: figures.allocs,
        }
    }

    /// Live bytes over the window, the present last.
    fn curve(&self, request: &SnapshotRequest) -> Vec<BySpace<u64>> {
        let totals = self.ledger.sums.totals.each_ref();
        let points = request.points as u64;
        let ticks = &self.ledger.ticks;
        let at = |point: u64| self.frontier.checked_sub(request.window / points.max(1) * (points - 1 - point));
        let live = |point| {
            let slice = at(point).and_then(|at| ticks.at_or_before(at))?;
            Some(totals.map(|figures| figures.live_at(slice, ticks.len())))
        };
        let past = (0..points.saturating_sub(1)).map(|point| live(point).unwrap_or_default());
        past.chain((points > 0).then(|| totals.map(|figures| figures.live))).collect()
    }

    /// Figures that the rows of a snapshot have: those of the selection, where there is one.
    fn sums(&self) -> &LiveSums {
        self.ledger.selected.as_ref().map_or(&self.ledger.sums, |selected| &selected.sums)
    }

    fn rows(&mut self, group: LiveGroup, request: &SnapshotRequest) -> Vec<LiveRow> {
        let mut named = Vec::new();
        let numbering = &mut self.ledger.numbering;
        for index in 0..numbering.lines(group).lines.len() {
            let Some(&NumberedRow { key, cache, .. }) = numbering.lines(group).lines.get(index) else { break };
            let is_site = matches!(key, LiveKey::Site(_));
            named.push((numbering.name(key), (is_site && cache > 0).then(|| numbering.name(LiveKey::Cache(cache)))));
        }
        let (sums, numbering) = (self.sums(), &self.ledger.numbering);
        let path = |row: u32| match (group, request.group) {
            (LiveGroup::Stacks, LiveGroup::Modules) => std::sync::Arc::clone(&numbering.tree.paths(row)[1]),
            (LiveGroup::Stacks, _) => std::sync::Arc::clone(&numbering.tree.paths(row)[0]),
            _ => std::sync::Arc::default(),
        };
        let lines = numbering.lines(group).lines.iter().zip(sums.rows(group)).zip(named);
        let rows = lines.map(|((line, figures), (name, cache))| self.row(line, figures, name, cache, request));
        rows.zip(0..).map(|(row, number)| LiveRow { path: path(number), ..row }).collect()
    }

    fn row(
        &self,
        line: &NumberedRow,
        figures: &Figures,
        name: std::sync::Arc<super::LiveName>,
        cache: Option<std::sync::Arc<super::LiveName>>,
        request: &SnapshotRequest,
    ) -> LiveRow {
        let NumberedRow { key, kind, .. } = line;
        let rates = figures.rates(self.short_time());
        let page_bytes = self.page_bytes.filter(|_| kind.space() == Space::Pages);
        LiveRow {
            key: *key,
            kind: *kind,
            name,
            cache,
            live: figures.live,
            peak: figures.peak,
            growth: self.growth(figures, request.window),
            since_mark: self.ledger.mark.map(|_| difference(figures.live, figures.at_mark.unwrap_or(0))),
            growth_now: rates.growth,
            objects: figures.objects,
            pages: page_bytes.map(|bytes| figures.live / bytes),
            wasted: figures.live.saturating_sub(figures.live_requested),
            allocs: figures.allocs,
            allocs_now: rates.allocs,
            frees_now: rates.frees,
            frees: figures.frees,
            cross_cpu: figures.cross_cpu,
            median_age: figures.median_age(&self.ledger.ticks, self.frontier),
            path: std::sync::Arc::default(),
        }
    }

    fn detail(&mut self, (group, key, kind): RowChoice, request: &SnapshotRequest) -> Option<Detail> {
        let (number, &NumberedRow { stack, .. }) = self.ledger.numbering.lines(group).find(key, kind)?;
        let sums = self.sums();
        let figures = sums.row(group, number as usize)?;
        let mut ages = Ages::default();
        for (age, objects) in figures.ages(&self.ledger.ticks, self.frontier) {
            let class = [1, 10, 60].iter().position(|seconds| age < seconds * TICK).unwrap_or(3);
            ages.counts[class] += objects;
            ages.beyond_window += if age > request.window { objects } else { 0 };
            ages.oldest = age;
        }
        let mut freed_by: Vec<(u64, u64)> = Vec::new();
        if let LiveKey::Site(_) = key {
            let freers = sums.freers.iter().filter(|((site, _), _)| *site == number);
            freed_by = freers.map(|((_, free_site), count)| (*free_site, *count)).collect();
            freed_by.sort_unstable_by_key(|&(free_site, count)| (Reverse(count), free_site));
            freed_by.truncate(FREERS);
        }
        let since = |at: u64| at.saturating_sub(self.first);
        let times = (figures.allocs > 0).then(|| (since(figures.first_at), since(figures.last_at)));
        let requested = figures.live_requested;
        let page_bytes = self.page_bytes.filter(|_| kind.space() == Space::Pages);
        let order = |bytes: u64| Some(bytes.checked_div(page_bytes?)?.checked_ilog2().unwrap_or(0));
        let numbering = &mut self.ledger.numbering;
        let shares = self.ledger.watched.as_ref().map(|watched| Shares {
            sizes: watched
                .largest_sizes(SIZES)
                .into_iter()
                .map(|OfSize { allocated, objects, live }| SizeShare {
                    allocated,
                    order: order(allocated),
                    objects,
                    live,
                })
                .collect(),
            threads: watched
                .largest_threads(THREADS)
                .into_iter()
                .map(|(pid, live)| (numbering.name(LiveKey::Task(pid)), live))
                .collect(),
        });
        let stack = (stack > 0).then(|| numbering.name(LiveKey::Stack(stack, 0)));
        let freed_by = freed_by.into_iter().map(|(site, count)| (numbering.name(LiveKey::Site(site)), count)).collect();
        Some(Detail { ages, requested, freed_by, stack, shares, times })
    }
}

/// `now` less `before`.
fn difference(now: u64, before: u64) -> i64 {
    let difference = i128::from(now) - i128::from(before);
    difference.clamp(i64::MIN.into(), i64::MAX.into()) as i64
}
