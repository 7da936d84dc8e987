//! The table of live objects, and what each event does to it: the contract's section "Pairing", in code.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use kmemtrace_abi::event::{Action, Event, Kind, NameId, Names};

use crate::figures::Figures;
use crate::order::Sink;

type Table<K, V> = HashMap<K, V, RandomState>;

/// `ZERO_SIZE_PTR`: what `kmalloc(0)` returns, without an event.
const ZERO_SIZE_PTR: u64 = 16;

/// An object that was allocated and not freed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Live {
    pub(crate) at: u64,
    /// Number of its allocation in the total order.
    pub(crate) serial: u64,
    pub(crate) requested: u64,
    pub(crate) allocated: u64,
    /// Row of its call-site.
    pub(crate) site: u32,
    pub(crate) cpu: u32,
    pub(crate) pid: Option<i32>,
    pub(crate) cache: Option<NameId>,
    pub(crate) kind: Kind,
    /// Whether the filters take it.
    pub(crate) selected: bool,
}

/// What a finding is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Class {
    KindMismatch,
    KindMismatchLegal,
    CacheMismatch,
    FreeAfterFree,
    InferredFree,
    ShortAlloc,
}

impl Class {
    pub(crate) const ALL: [Class; 6] = [
        Class::KindMismatch,
        Class::KindMismatchLegal,
        Class::CacheMismatch,
        Class::FreeAfterFree,
        Class::InferredFree,
        Class::ShortAlloc,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Class::KindMismatch => "kind_mismatch",
            Class::KindMismatchLegal => "kind_mismatch_legal",
            Class::CacheMismatch => "cache_mismatch",
            Class::FreeAfterFree => "free_after_free",
            Class::InferredFree => "inferred_free",
            Class::ShortAlloc => "short_alloc",
        }
    }
}

/// Findings of one class between the same two call-sites.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FindingKey {
    pub(crate) class: Class,
    pub(crate) alloc_site: Option<u64>,
    pub(crate) free_site: Option<u64>,
    pub(crate) kind: Kind,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct FindingRow {
    pub(crate) count: u64,
    pub(crate) suspect: u64,
    /// Key, CPU and address of the first.
    pub(crate) first: (u64, u32, u64),
}

/// A finding whose `suspect` is open until every gap that starts at its key or before is known.
#[derive(Debug)]
struct Open {
    key: FindingKey,
    /// Key of the address's previous event.
    before: u64,
    /// Row and cache of an object whose free was inferred.
    inferred: Option<(u32, Option<NameId>)>,
}

/// Which allocations the filters take, by their events.
pub(crate) trait Filter {
    fn takes(&mut self, event: &Event, names: &Names) -> bool;
}

/// What the pairing must know of the trace.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    /// `kfree` of a cache object is legal (Linux 6.4 on), or the kernel is not known.
    pub(crate) kfree_takes_all: bool,
    /// Node of each CPU, where the trace records all of them.
    pub(crate) nodes: Option<HashMap<u32, u32>>,
    /// Whether to count pairs per (allocating CPU, freeing CPU).
    pub(crate) matrix: bool,
}

/// All that comes out of the events.
pub(crate) struct Pairing<F> {
    rules: Rules,
    filter: Option<F>,
    objects: Table<u64, Live>,
    pages: Table<u64, Live>,
    /// Key of the last free of an address, where the last event was a free.
    freed_objects: Table<u64, u64>,
    freed_pages: Table<u64, u64>,
    site_rows: Table<(u64, Kind), u32>,
    last_site: ((u64, Kind), u32),
    /// (call-site, kind) of each row.
    pub(crate) sites: Vec<((u64, Kind), Figures)>,
    /// Row `3 * (name + 1) + kind`; name -1 is "no name".
    pub(crate) caches: Vec<Figures>,
    pub(crate) kinds: [Figures; 3],
    pub(crate) free_events: [u64; 3],
    /// `kmalloc` and `cache` together; only its live bytes and peak are kept up.
    total_live: u128,
    pub(crate) total_peak: u128,
    pub(crate) peak_at: Option<u64>,
    pub(crate) used: u64,
    pub(crate) paired: u64,
    pub(crate) cross_node: u64,
    pub(crate) null_free: u64,
    pub(crate) free_without_alloc: u64,
    pub(crate) matrix: Table<(u32, u32), u64>,
    pub(crate) findings: Table<FindingKey, FindingRow>,
    /// Over the whole trace, whatever the filters.
    pub(crate) all_inferred: u64,
    pub(crate) all_without_alloc: u64,
    open: Vec<Open>,
    /// The farthest that a known gap reaches; `None` without any.
    reach: Option<u64>,
    serial: u64,
}

fn kind_index(kind: Kind) -> usize {
    match kind {
        Kind::Kmalloc => 0,
        Kind::Cache => 1,
        Kind::Pages => 2,
    }
}

fn cache_index(cache: Option<NameId>, kind: Kind) -> usize {
    3 * cache.map_or(0, |name| name.index() + 1) + kind_index(kind)
}

impl<F: Filter> Pairing<F> {
    pub(crate) fn new(rules: Rules, filter: Option<F>) -> Pairing<F> {
        Pairing {
            rules,
            filter,
            objects: Table::default(),
            pages: Table::default(),
            freed_objects: Table::default(),
            freed_pages: Table::default(),
            site_rows: Table::default(),
            last_site: ((0, Kind::Kmalloc), u32::MAX),
            sites: Vec::new(),
            caches: Vec::new(),
            kinds: std::array::from_fn(|_| Figures::new()),
            free_events: [0; 3],
            total_live: 0,
            total_peak: 0,
            peak_at: None,
            used: 0,
            paired: 0,
            cross_node: 0,
            null_free: 0,
            free_without_alloc: 0,
            matrix: Table::default(),
            findings: Table::default(),
            all_inferred: 0,
            all_without_alloc: 0,
            open: Vec::new(),
            reach: None,
            serial: 0,
        }
    }

    /// Objects live now that the filters take, by their addresses, oldest first.
    pub(crate) fn live(&self) -> Vec<(u64, Live)> {
        let all = self.objects.iter().chain(&self.pages);
        let mut live: Vec<_> = all.filter(|(_, o)| o.selected).map(|(&address, &object)| (address, object)).collect();
        live.sort_unstable_by_key(|(_, object)| object.serial);
        live
    }

    /// Whether frees on another NUMA node can be told.
    pub(crate) fn knows_nodes(&self) -> bool {
        self.rules.nodes.is_some()
    }

    /// Figures of `kmalloc` and `cache` together.
    pub(crate) fn total(&self) -> Figures {
        let mut total = Figures::new();
        total.add(&self.kinds[0]);
        total.add(&self.kinds[1]);
        total.peak_live_allocated = Some(self.total_peak);
        total
    }

    /// Each cache and kind that has a row.
    pub(crate) fn cache_rows(&self) -> impl Iterator<Item = (Option<usize>, Kind, &Figures)> {
        self.caches
            .iter()
            .enumerate()
            .filter(|(_, figures)| !figures.is_empty())
            .map(|(index, figures)| ((index / 3).checked_sub(1), Kind::ALL[index % 3], figures))
    }

    fn site_row(&mut self, call_site: u64, kind: Kind) -> u32 {
        let key = (call_site, kind);
        if self.last_site.0 == key && self.last_site.1 != u32::MAX {
            return self.last_site.1;
        }
        let next = self.sites.len() as u32;
        let row = *self.site_rows.entry(key).or_insert(next);
        if row == next {
            self.sites.push((key, Figures::new()));
        }
        self.last_site = (key, row);
        row
    }

    /// The three rows that an object of the allocation belongs to.
    #[inline]
    fn rows(&mut self, site: u32, cache: Option<NameId>, kind: Kind) -> [&mut Figures; 3] {
        let index = cache_index(cache, kind);
        if self.caches.len() <= index {
            self.caches.resize_with(index + 1, Figures::new);
        }
        [&mut self.sites[site as usize].1, &mut self.caches[index], &mut self.kinds[kind_index(kind)]]
    }

    fn alloc(&mut self, event: &Event, kind: Kind, names: &Names) {
        let selected = self.filter.as_mut().is_none_or(|filter| filter.takes(event, names));
        if event.failed {
            if selected {
                let site = self.site_row(event.call_site, kind);
                self.rows(site, event.cache, kind).into_iter().for_each(|row| row.failed_allocs += 1);
            }
            return;
        }
        let site = self.site_row(event.call_site, kind);
        let object = Live {
            at: event.at,
            serial: self.serial,
            requested: event.requested,
            allocated: event.allocated,
            site,
            cpu: event.cpu,
            pid: event.pid,
            cache: event.cache,
            kind,
            selected,
        };
        let table = if kind == Kind::Pages { &mut self.pages } else { &mut self.objects };
        if let Some(old) = table.insert(event.address, object) {
            self.infer_free(&old, event);
        }
        if !selected {
            return;
        }
        let (requested, allocated) = (event.requested, event.allocated);
        for row in self.rows(site, event.cache, kind) {
            row.opened(requested, allocated);
        }
        if kind != Kind::Pages {
            self.total_live += u128::from(allocated);
            if self.total_live > self.total_peak {
                self.total_peak = self.total_live;
                self.peak_at = Some(event.at);
            }
        }
        if allocated < requested {
            let key = FindingKey { class: Class::ShortAlloc, alloc_site: Some(event.call_site), free_site: None, kind };
            self.finding(key, event, None, None);
        }
    }

    /// The address of `old` was handed out again by `event`.
    fn infer_free(&mut self, old: &Live, event: &Event) {
        self.all_inferred += 1;
        if !old.selected {
            return;
        }
        self.close(old);
        self.rows(old.site, old.cache, old.kind).into_iter().for_each(|row| row.inferred_frees += 1);
        let alloc_site = Some(self.sites[old.site as usize].0.0);
        let key = FindingKey { class: Class::InferredFree, alloc_site, free_site: None, kind: old.kind };
        self.finding(key, event, Some(old.at), Some((old.site, old.cache)));
    }

    fn close(&mut self, object: &Live) {
        for row in self.rows(object.site, object.cache, object.kind) {
            row.closed(object.requested, object.allocated);
        }
        if object.kind != Kind::Pages {
            self.total_live -= u128::from(object.allocated);
        }
    }

    fn free(&mut self, event: &Event, kind: Kind, names: &Names) {
        if kind != Kind::Pages && (event.address == 0 || event.address == ZERO_SIZE_PTR) {
            if self.filter.as_mut().is_none_or(|filter| filter.takes(event, names)) {
                self.null_free += 1;
            }
            return;
        }
        let (table, freed) = match kind {
            Kind::Pages => (&mut self.pages, &mut self.freed_pages),
            _ => (&mut self.objects, &mut self.freed_objects),
        };
        let object = table.remove(&event.address);
        let freed_before = freed.insert(event.address, event.at);
        match object {
            Some(object) => {
                if object.selected {
                    self.free_events[kind_index(kind)] += 1;
                    self.pair(&object, event, kind);
                }
            }
            None => {
                self.all_without_alloc += u64::from(freed_before.is_none());
                if self.filter.as_mut().is_some_and(|filter| !filter.takes(event, names)) {
                    return;
                }
                self.free_events[kind_index(kind)] += 1;
                match freed_before {
                    Some(before) => {
                        let free_site = Some(event.call_site);
                        let key = FindingKey { class: Class::FreeAfterFree, alloc_site: None, free_site, kind };
                        self.finding(key, event, Some(before), None);
                    }
                    None => self.free_without_alloc += 1,
                }
            }
        }
    }

    fn pair(&mut self, object: &Live, event: &Event, kind: Kind) {
        self.paired += 1;
        self.close(object);
        let crossed = object.cpu != event.cpu;
        for row in self.rows(object.site, object.cache, object.kind) {
            row.frees += 1;
            if crossed {
                row.cross_cpu += 1;
                row.cross_cpu_bytes += u128::from(object.allocated);
            }
        }
        if crossed && let Some(nodes) = &self.rules.nodes {
            self.cross_node += u64::from(nodes.get(&object.cpu) != nodes.get(&event.cpu));
        }
        if self.rules.matrix {
            *self.matrix.entry((object.cpu, event.cpu)).or_default() += 1;
        }
        let mismatch =
            |class| FindingKey { class, alloc_site: None, free_site: Some(event.call_site), kind: object.kind };
        let mut found = [None; 2];
        if object.kind != kind {
            let legal = kind == Kind::Kmalloc && self.rules.kfree_takes_all;
            found[0] = Some(mismatch(if legal { Class::KindMismatchLegal } else { Class::KindMismatch }));
        }
        if object.cache.zip(event.cache).is_some_and(|(a, b)| a != b) {
            found[1] = Some(mismatch(Class::CacheMismatch));
        }
        for key in found.into_iter().flatten() {
            let alloc_site = Some(self.sites[object.site as usize].0.0);
            self.finding(FindingKey { alloc_site, ..key }, event, Some(object.at), None);
        }
    }

    /// Counts a finding; with `before`, the key of the address's previous event, loss may be its cause.
    fn finding(
        &mut self,
        key: FindingKey,
        event: &Event,
        before: Option<u64>,
        inferred: Option<(u32, Option<NameId>)>,
    ) {
        let first = (event.at, event.cpu, event.address);
        self.findings.entry(key).or_insert(FindingRow { count: 0, suspect: 0, first }).count += 1;
        if let Some(before) = before {
            self.open.push(Open { key, before, inferred });
        }
    }
}

impl<F: Filter> Sink for Pairing<F> {
    fn gap_known(&mut self, to: u64) {
        self.reach = self.reach.max(Some(to));
    }

    /// Of all gaps that start no later than the open findings, one touches [before, key] if the farthest one does.
    fn advance(&mut self) {
        if self.open.is_empty() {
            return;
        }
        for open in std::mem::take(&mut self.open) {
            let suspect = self.reach.is_some_and(|reach| reach >= open.before);
            if suspect {
                if let Some(row) = self.findings.get_mut(&open.key) {
                    row.suspect += 1;
                }
            } else if let Some((site, cache)) = open.inferred {
                for row in self.rows(site, cache, open.key.kind) {
                    row.live_is_upper_bound = true;
                }
            }
        }
    }

    #[inline]
    fn event(&mut self, event: &Event, names: &Names) {
        self.serial += 1;
        match event.action {
            Action::Alloc(kind) => {
                self.used += 1;
                self.alloc(event, kind, names);
            }
            Action::Free(kind) => {
                self.used += 1;
                self.free(event, kind, names);
            }
            Action::Other => {}
        }
    }
}
