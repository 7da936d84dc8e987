//! What each event does to the table of live objects, and what that adds to: the contract's section "Pairing", in code.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use kmemtrace_abi::event::{Action, Event, Kind, NameId, Names};

use crate::figures::{Figures, Peak};
use crate::findings::{Class, FindingKey, FindingRow};
use crate::order::Sink;
use crate::table::{Addresses, Before, Live};

type Table<K, V> = HashMap<K, V, RandomState>;

/// `ZERO_SIZE_PTR`: what `kmalloc(0)` returns, without an event.
const ZERO_SIZE_PTR: u64 = 16;

/// A finding whose `suspect` is open until every gap that starts at its key or before is known.
#[derive(Debug)]
struct Open {
    key: FindingKey,
    /// Key of the address's previous event.
    before: u64,
    /// Row of an object whose free was inferred.
    inferred: Option<u32>,
}

/// Which allocations the filters take, by their events.
pub(crate) trait Filter {
    fn takes(&mut self, event: &Event, names: &Names) -> bool;
}

/// What a row stands for, beside its kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Grouping {
    /// Nothing: a row per kind.
    #[default]
    Kind,
    /// The call-site of the allocation.
    Site,
    /// The name of the cache in the allocation event.
    Cache,
}

/// A row's call-site, or its cache, and its kind.
pub(crate) type RowKey = (u64, Kind);

/// The cache of a row of [`Grouping::Cache`], as a [`NameId::index`].
pub(crate) fn cache_of(key: RowKey) -> Option<usize> {
    key.0.checked_sub(1).map(|index| index as usize)
}

/// What the pairing must know of the trace, and of what is asked.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    /// `kfree` of a cache object is legal (Linux 6.4 on), or the kernel is not known.
    pub(crate) kfree_takes_all: bool,
    /// Node of each CPU, where the trace records all of them.
    pub(crate) nodes: Option<HashMap<u32, u32>>,
    /// Which rows to count.
    pub(crate) grouping: Grouping,
    /// Whether to count pairs per (allocating CPU, freeing CPU).
    pub(crate) matrix: bool,
}

/// All that comes out of the events.
pub(crate) struct Pairing<F> {
    rules: Rules,
    filter: Option<F>,
    addresses: Addresses,
    row_of: Table<RowKey, u32>,
    last_row: Option<(RowKey, u32)>,
    /// A row for each key that has an allocation, failed ones included.
    pub(crate) rows: Vec<(RowKey, Figures)>,
    kind_peaks: [Peak; 3],
    /// `kmalloc` and `cache` together.
    total_peak: Peak,
    pub(crate) peak_at: Option<u64>,
    pub(crate) free_events: [u64; 3],
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

impl<F: Filter> Pairing<F> {
    pub(crate) fn new(rules: Rules, filter: Option<F>) -> Pairing<F> {
        Pairing {
            rules,
            filter,
            addresses: Addresses::default(),
            row_of: Table::default(),
            last_row: None,
            rows: Vec::new(),
            kind_peaks: Default::default(),
            total_peak: Peak::default(),
            peak_at: None,
            free_events: [0; 3],
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

    /// Objects live now that the filters take, oldest first: address, key of the allocation, object.
    pub(crate) fn live(&self) -> Vec<(u64, u64, Live)> {
        let all = self.addresses.live().filter(|(_, _, object)| object.selected);
        let mut live: Vec<_> = all.map(|(address, at, object)| (address, at, *object)).collect();
        live.sort_unstable_by_key(|(_, _, object)| object.serial);
        live
    }

    /// Whether frees on another NUMA node can be told.
    pub(crate) fn knows_nodes(&self) -> bool {
        self.rules.nodes.is_some()
    }

    /// Figures of each kind, in the order of [`Kind::ALL`].
    pub(crate) fn kinds(&self) -> [Figures; 3] {
        let mut kinds: [Figures; 3] = Default::default();
        for ((_, kind), figures) in &self.rows {
            kinds[kind_index(*kind)].add(figures);
        }
        for (figures, peak) in kinds.iter_mut().zip(&self.kind_peaks) {
            figures.peak_live_allocated = Some(peak.greatest());
        }
        kinds
    }

    /// Figures of `kmalloc` and `cache` together.
    pub(crate) fn total(&self) -> Figures {
        let mut total = Figures::default();
        self.rows.iter().filter(|((_, kind), _)| *kind != Kind::Pages).for_each(|(_, figures)| total.add(figures));
        total.peak_live_allocated = Some(self.total_peak.greatest());
        total
    }

    /// Takes the next event; returns whether the object it is about is one that the filters take.
    #[inline]
    pub(crate) fn take(&mut self, event: &Event, names: &Names) -> bool {
        match event.action {
            Action::Alloc(kind) => {
                self.used += 1;
                self.alloc(event, kind, names)
            }
            Action::Free(kind) => {
                self.used += 1;
                self.free(event, kind, names)
            }
            Action::Other => false,
        }
    }

    #[inline]
    fn selects(&mut self, event: &Event, names: &Names) -> bool {
        self.filter.as_mut().is_none_or(|filter| filter.takes(event, names))
    }

    /// The row of an allocation.
    #[inline]
    fn row(&mut self, event: &Event, kind: Kind) -> u32 {
        let group = match self.rules.grouping {
            Grouping::Kind => 0,
            Grouping::Site => event.call_site,
            Grouping::Cache => event.cache.map_or(0, |name: NameId| name.index() as u64 + 1),
        };
        let key = (group, kind);
        if let Some((last, row)) = self.last_row
            && last == key
        {
            return row;
        }
        // 2^32 rows do not fit in memory.
        let next = self.rows.len() as u32;
        let row = *self.row_of.entry(key).or_insert(next);
        if row == next {
            self.rows.push((key, Figures::new()));
        }
        self.last_row = Some((key, row));
        row
    }

    fn figures(&mut self, row: u32) -> &mut Figures {
        &mut self.rows[row as usize].1
    }

    /// Call-site of a row's allocations, where rows have one.
    fn site(&self, row: u32) -> Option<u64> {
        (self.rules.grouping == Grouping::Site).then(|| self.rows[row as usize].0.0)
    }

    fn alloc(&mut self, event: &Event, kind: Kind, names: &Names) -> bool {
        let selected = self.selects(event, names);
        if event.failed {
            if selected {
                let row = self.row(event, kind);
                self.figures(row).failed_allocs += 1;
            }
            return selected;
        }
        // An object that no filter takes is in no row.
        let row = if selected { self.row(event, kind) } else { u32::MAX };
        let (requested, allocated) = (event.requested, event.allocated);
        let object = Live {
            serial: self.serial,
            requested,
            allocated,
            row,
            cpu: event.cpu,
            pid: event.pid,
            cache: event.cache,
            kind,
            selected,
        };
        self.serial += 1;
        if let Before::Live(before, old) = self.addresses.alloc(event.address, event.at, object) {
            self.infer_free(&old, before, event);
        }
        if !selected {
            return false;
        }
        self.figures(row).opened(requested, allocated);
        self.kind_peaks[kind_index(kind)].opened(allocated);
        if kind != Kind::Pages && self.total_peak.opened(allocated) {
            self.peak_at = Some(event.at);
        }
        if allocated < requested {
            let key = FindingKey { class: Class::ShortAlloc, alloc_site: self.site(row), free_site: None, kind };
            self.finding(key, event, None, None);
        }
        true
    }

    /// The address of `old` was handed out again by `event`.
    fn infer_free(&mut self, old: &Live, before: u64, event: &Event) {
        self.all_inferred += 1;
        if !old.selected {
            return;
        }
        self.close(old).inferred_frees += 1;
        let alloc_site = self.site(old.row);
        let key = FindingKey { class: Class::InferredFree, alloc_site, free_site: None, kind: old.kind };
        self.finding(key, event, Some(before), Some(old.row));
    }

    #[inline]
    fn close(&mut self, object: &Live) -> &mut Figures {
        self.kind_peaks[kind_index(object.kind)].closed(object.allocated);
        if object.kind != Kind::Pages {
            self.total_peak.closed(object.allocated);
        }
        let figures = self.figures(object.row);
        figures.closed(object.requested, object.allocated);
        figures
    }

    fn free(&mut self, event: &Event, kind: Kind, names: &Names) -> bool {
        if kind != Kind::Pages && (event.address == 0 || event.address == ZERO_SIZE_PTR) {
            let selected = self.selects(event, names);
            self.null_free += u64::from(selected);
            return selected;
        }
        let before = self.addresses.free(event.address, event.at, kind);
        let selected = match before {
            Before::Live(_, object) => object.selected,
            _ => self.selects(event, names),
        };
        self.all_without_alloc += u64::from(matches!(before, Before::Unknown));
        if !selected {
            return false;
        }
        self.free_events[kind_index(kind)] += 1;
        match before {
            Before::Live(before, object) => self.pair(&object, before, event, kind),
            Before::Freed(before) => {
                let free_site = Some(event.call_site);
                let key = FindingKey { class: Class::FreeAfterFree, alloc_site: None, free_site, kind };
                self.finding(key, event, Some(before), None);
            }
            Before::Unknown => self.free_without_alloc += 1,
        }
        true
    }

    #[inline]
    fn pair(&mut self, object: &Live, before: u64, event: &Event, kind: Kind) {
        self.paired += 1;
        let crossed = object.cpu != event.cpu;
        let row = self.close(object);
        row.frees += 1;
        if crossed {
            row.cross_cpu += 1;
            row.cross_cpu_bytes += u128::from(object.allocated);
        }
        if crossed && let Some(nodes) = &self.rules.nodes {
            self.cross_node += u64::from(nodes.get(&object.cpu) != nodes.get(&event.cpu));
        }
        if self.rules.matrix {
            *self.matrix.entry((object.cpu, event.cpu)).or_default() += 1;
        }
        if object.kind != kind {
            let legal = kind == Kind::Kmalloc && self.rules.kfree_takes_all;
            let class = if legal { Class::KindMismatchLegal } else { Class::KindMismatch };
            self.mismatch(class, object, before, event);
        }
        if object.cache.zip(event.cache).is_some_and(|(a, b)| a != b) {
            self.mismatch(Class::CacheMismatch, object, before, event);
        }
    }

    fn mismatch(&mut self, class: Class, object: &Live, before: u64, event: &Event) {
        let (alloc_site, free_site) = (self.site(object.row), Some(event.call_site));
        self.finding(FindingKey { class, alloc_site, free_site, kind: object.kind }, event, Some(before), None);
    }

    /// Counts a finding; with `before`, the key of the address's previous event, loss may be its cause.
    fn finding(&mut self, mut key: FindingKey, event: &Event, before: Option<u64>, inferred: Option<u32>) {
        if self.rules.grouping != Grouping::Site {
            key.free_site = None;
        }
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
    #[inline]
    fn advance(&mut self) {
        while let Some(open) = self.open.pop() {
            if self.reach.is_some_and(|reach| reach >= open.before) {
                if let Some(row) = self.findings.get_mut(&open.key) {
                    row.suspect += 1;
                }
            } else if let Some(row) = open.inferred {
                self.figures(row).live_is_upper_bound = true;
            }
        }
    }

    #[inline]
    fn event(&mut self, event: &Event, names: &Names) {
        self.take(event, names);
    }
}
