//! What each event does to the table of live objects: the contract's section "Pairing", in code.
//!
//! A [`Pairing`] goes through the events of one partition of the addresses, in order. What only adds up is summed here;
//! what an event changes in the live bytes goes to a [`Changes`], because peaks depend on the order over all partitions.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use kmemtrace_abi::event::Kind;

use crate::classes::{Class, Classes, RowKey, UNSELECTED};
use crate::decode::{Compact, What};
use crate::figures::Figures;
use crate::findings::{Class as Of, FindingKey, FindingRow, FindingSites, Findings};
use crate::hashing::Seed;
use crate::order::{Place, Window};
use crate::table::{Before, Birth, Epoch, IN_GAP, Object, Table};
use crate::tally::{Closed, Tallies};

/// What the pairing must know of the trace, and of what is asked.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rules {
    /// `kfree` of a cache object is legal (Linux 6.4 on), or the kernel is not known.
    pub(crate) kfree_takes_all: bool,
    /// CPU of each stream.
    pub(crate) cpus: Vec<u32>,
    /// Node of each CPU, where the trace records all of them.
    pub(crate) nodes: Option<HashMap<u32, u32>>,
    /// Rows are call-sites, so findings tell theirs.
    pub(crate) by_site: bool,
    /// Whether to count pairs per (allocating CPU, freeing CPU).
    pub(crate) matrix: bool,
    /// Whether the live objects are listed at the end.
    pub(crate) lists_live: bool,
}

/// Who takes what events change in the live bytes, in order.
pub(crate) trait Changes {
    /// An object becomes live.
    fn opened(&mut self, event: Number, class: &Class, allocated: u64);
    /// An object is gone.
    fn closed(&mut self, event: Number, class: &Class, allocated: u64);
}

/// An event's number in its window, and its key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Number {
    pub(crate) serial: u32,
    pub(crate) at: u64,
}

/// Pairs per allocating and freeing CPU.
pub(crate) type Matrix = HashMap<(u32, u32), u64, RandomState>;

/// What adds up over events and partitions.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) used: u64,
    pub(crate) free_events: [u64; 3],
    pub(crate) paired: u64,
    pub(crate) cross_node: u64,
    pub(crate) null_free: u64,
    pub(crate) free_without_alloc: u64,
    pub(crate) matrix: Matrix,
    /// Over the whole trace, whatever the filters.
    pub(crate) all_inferred: u64,
    pub(crate) all_without_alloc: u64,
}

impl Counts {
    pub(crate) fn add(&mut self, other: &Counts) {
        self.used += other.used;
        self.free_events.iter_mut().zip(other.free_events).for_each(|(sum, n)| *sum += n);
        self.paired += other.paired;
        self.cross_node += other.cross_node;
        self.null_free += other.null_free;
        self.free_without_alloc += other.free_without_alloc;
        self.all_inferred += other.all_inferred;
        self.all_without_alloc += other.all_without_alloc;
        for (cpus, n) in &other.matrix {
            *self.matrix.entry(*cpus).or_default() += n;
        }
    }
}

/// An object that is live at the end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Live {
    pub(crate) address: u64,
    pub(crate) class: Class,
    pub(crate) requested: u64,
    pub(crate) allocated: u64,
    pub(crate) cpu: u32,
    pub(crate) birth: Birth,
}

/// All that comes out of the events.
#[derive(Debug, Default)]
pub(crate) struct Paired {
    pub(crate) counts: Counts,
    /// A row for each key that an event of an allocation has had.
    pub(crate) rows: Vec<(RowKey, Figures)>,
    /// Figures of each kind, in the order of [`Kind::ALL`].
    pub(crate) kinds: [Figures; 3],
    /// Figures of `kmalloc` and `cache` together.
    pub(crate) total: Figures,
    pub(crate) peak_at: Option<u64>,
    pub(crate) findings: HashMap<FindingSites, FindingRow, RandomState>,
    /// Oldest first; only where they are asked for.
    pub(crate) live: Vec<Live>,
    /// Whether frees on another NUMA node can be told.
    pub(crate) knows_nodes: bool,
}

/// Number of a kind in arrays.
pub(crate) fn kind_index(kind: Kind) -> usize {
    match kind {
        Kind::Kmalloc => 0,
        Kind::Cache => 1,
        Kind::Pages => 2,
    }
}

/// Events whose slots of the table are asked for before the first of them is used.
const GROUP: usize = 32;

/// Some events, with their numbers in the window.
#[derive(Clone, Copy, Default)]
struct Group<'e> {
    events: [Option<&'e Compact>; GROUP],
    serials: [u32; GROUP],
    len: usize,
}

/// The pairing of one partition.
pub(crate) struct Pairing<'a> {
    rules: &'a Rules,
    pub(crate) tallies: Tallies<'a>,
    part: usize,
    objects: Table,
    pages: Table,
    epoch: Epoch,
    in_gap: bool,
    pub(crate) counts: Counts,
    pub(crate) findings: Findings,
    /// Frontier of the last window.
    frontier: Option<u64>,
    /// Bytes that its tables may take.
    most_bytes: usize,
    /// They took more, and it stopped.
    pub(crate) is_over: bool,
}

impl<'a> Pairing<'a> {
    /// The pairing of partition `part` of `parts`.
    pub(crate) fn new(rules: &'a Rules, registry: &'a Classes, seed: Seed, part: usize, parts: u32) -> Pairing<'a> {
        let table = || Table::new(seed, parts, rules.lists_live);
        Pairing {
            rules,
            tallies: Tallies::new(registry),
            part,
            objects: table(),
            pages: table(),
            epoch: 1,
            in_gap: false,
            counts: Counts::default(),
            findings: Findings::default(),
            frontier: None,
            most_bytes: usize::MAX,
            is_over: false,
        }
    }

    /// Stops where its tables take more than so many bytes.
    pub(crate) fn set_most_bytes(&mut self, most_bytes: usize) {
        self.most_bytes = most_bytes;
    }

    /// Takes the partition's events of the next window.
    pub(crate) fn take(&mut self, window: &Window<Compact>, changes: &mut impl Changes) {
        if window.touches_before {
            self.findings.suspect_open();
        } else if window.frontier != self.frontier {
            self.findings.settle_open();
        }
        self.frontier = window.frontier;
        let slices = window.slices();
        let Some(places) = window.parts.get(self.part) else { return };
        let mut rest = places.as_slice();
        for (index, stretch) in window.stretches.iter().enumerate() {
            if stretch.fresh {
                self.epoch = self.objects.begin_epoch();
                self.pages.begin_epoch();
            }
            self.in_gap = stretch.in_gap;
            let until = window.stretches.get(index + 1).map_or(u32::MAX, |next| next.from);
            let (now, later) = rest.split_at(rest.partition_point(|place| place.serial < until));
            self.run(now, &slices, window.first_serial, changes);
            rest = later;
        }
    }

    /// Takes events between which no gap begins or ends.
    fn run(&mut self, places: &[Place], slices: &[&[Compact]], first_serial: u64, changes: &mut impl Changes) {
        // Slots are asked for a group before they are used: the processor waits for many as long as for one.
        let mut ahead = Group::default();
        let mut groups = places.chunks(GROUP);
        let first = groups.next().unwrap_or_default();
        self.ask(first, slices, &mut ahead);
        for places in groups.chain([[].as_slice()]) {
            self.is_over |= self.objects.bytes() + self.pages.bytes() > self.most_bytes;
            if self.is_over {
                return;
            }
            let group = ahead;
            self.ask(places, slices, &mut ahead);
            for (event, serial) in group.events.iter().zip(group.serials).take(group.len) {
                if let Some(event) = event {
                    self.take_event(event, Number { serial, at: event.at }, first_serial, changes);
                }
            }
        }
    }

    /// Finds events, and starts loading their slots.
    #[inline(always)]
    fn ask<'e>(&self, places: &[Place], slices: &[&'e [Compact]], group: &mut Group<'e>) {
        group.len = places.len();
        for ((event, serial), place) in group.events.iter_mut().zip(&mut group.serials).zip(places) {
            *event = slices.get(place.slice as usize).and_then(|slice| slice.get(place.offset as usize));
            *serial = place.serial;
            if let Some(event) = event {
                let table = if event.kind == Kind::Pages { &self.pages } else { &self.objects };
                table.prefetch(event.hash);
            }
        }
    }

    #[inline(always)]
    fn take_event(&mut self, event: &Compact, number: Number, first_serial: u64, changes: &mut impl Changes) {
        self.counts.used += u64::from(event.what != What::Other);
        match event.what {
            What::Alloc => self.alloc(event, number, first_serial, changes),
            What::Free => self.free(event, number, first_serial, changes),
            What::Failed if event.class != UNSELECTED => self.tallies.fail(event.class),
            What::NullFree => self.counts.null_free += u64::from(event.class != UNSELECTED),
            What::Failed | What::Other => {}
        }
    }

    /// What is kept of the time of an event.
    #[inline(always)]
    fn now(&self) -> Epoch {
        if self.in_gap { IN_GAP } else { self.epoch }
    }

    /// Whether a gap touches the time from `before` to now.
    #[inline(always)]
    fn suspects(&self, before: Epoch) -> bool {
        self.in_gap || before != self.epoch
    }

    #[inline(always)]
    fn alloc(&mut self, event: &Compact, number: Number, first_serial: u64, changes: &mut impl Changes) {
        let sizes = (event.requested, event.allocated);
        let class = (event.class != UNSELECTED).then(|| self.tallies.open(event.class, sizes));
        let own_sizes = class.filter(|class| !class.is_sized).map(|_| sizes);
        let object = Object { class: event.class, stream: event.stream, own_sizes };
        let serial = first_serial + u64::from(number.serial);
        let birth = Birth { at: event.at, serial, pid: event.extra };
        let now = self.now();
        let table = if event.kind == Kind::Pages { &mut self.pages } else { &mut self.objects };
        if let Before::Live(before, old) = table.alloc(event.address, event.hash, now, &object, birth) {
            self.infer_free(&old, before, event, number, serial, changes);
        }
        let Some(class) = class else { return };
        changes.opened(number, &class, event.allocated);
        if event.allocated < event.requested {
            let key = FindingKey { class: Of::ShortAlloc, alloc: Some(class.row), free_site: None, kind: class.kind };
            self.finding(key, event, serial, None);
        }
    }

    /// The address of `old` was handed out again by `event`.
    #[inline(never)]
    fn infer_free(
        &mut self,
        old: &Object,
        before: Epoch,
        event: &Compact,
        number: Number,
        serial: u64,
        changes: &mut impl Changes,
    ) {
        self.counts.all_inferred += 1;
        if old.class == UNSELECTED {
            return;
        }
        let (class, allocated) = self.tallies.close(old, Closed::Inferred);
        changes.closed(number, &class, allocated);
        let key = FindingKey { class: Of::InferredFree, alloc: Some(class.row), free_site: None, kind: class.kind };
        self.finding(key, event, serial, Some(before));
    }

    #[inline(always)]
    fn free(&mut self, event: &Compact, number: Number, first_serial: u64, changes: &mut impl Changes) {
        let now = self.now();
        let table = if event.kind == Kind::Pages { &mut self.pages } else { &mut self.objects };
        let before = table.free(event.address, event.hash, now);
        let selected = match before {
            Before::Live(_, object) => object.class != UNSELECTED,
            _ => event.class != UNSELECTED,
        };
        self.counts.all_without_alloc += u64::from(before == Before::Unknown);
        if !selected {
            return;
        }
        self.counts.free_events[kind_index(event.kind)] += 1;
        let serial = first_serial + u64::from(number.serial);
        match before {
            Before::Live(before, object) => self.pair(&object, before, event, number, serial, changes),
            Before::Freed(before) => {
                let free_site = Some(event.requested);
                let key = FindingKey { class: Of::FreeAfterFree, alloc: None, free_site, kind: event.kind };
                self.finding(key, event, serial, Some(before));
            }
            Before::Unknown => self.counts.free_without_alloc += 1,
        }
    }

    #[inline(always)]
    fn pair(
        &mut self,
        object: &Object,
        before: Epoch,
        event: &Compact,
        number: Number,
        serial: u64,
        changes: &mut impl Changes,
    ) {
        self.counts.paired += 1;
        let crossed = object.stream != event.stream;
        let how = if crossed { Closed::FreedElsewhere } else { Closed::Freed };
        let (class, allocated) = self.tallies.close(object, how);
        changes.closed(number, &class, allocated);
        if crossed || self.rules.matrix {
            self.count_cpus(object.stream, event.stream);
        }
        if class.kind != event.kind {
            let legal = event.kind == Kind::Kmalloc && self.rules.kfree_takes_all;
            let of = if legal { Of::KindMismatchLegal } else { Of::KindMismatch };
            self.mismatch(of, &class, before, event, serial);
        }
        if class.cache != 0 && event.extra != 0 && class.cache != event.extra {
            self.mismatch(Of::CacheMismatch, &class, before, event, serial);
        }
    }

    #[inline(never)]
    fn count_cpus(&mut self, from: u16, to: u16) {
        let cpu = |stream: u16| self.rules.cpus.get(usize::from(stream)).copied().unwrap_or(0);
        let (from, to) = (cpu(from), cpu(to));
        if from != to
            && let Some(nodes) = &self.rules.nodes
        {
            self.counts.cross_node += u64::from(nodes.get(&from) != nodes.get(&to));
        }
        if self.rules.matrix {
            *self.counts.matrix.entry((from, to)).or_default() += 1;
        }
    }

    #[cold]
    fn mismatch(&mut self, of: Of, class: &Class, before: Epoch, event: &Compact, serial: u64) {
        let (alloc, free_site) = (Some(class.row), Some(event.requested));
        self.finding(FindingKey { class: of, alloc, free_site, kind: class.kind }, event, serial, Some(before));
    }

    /// Counts a finding; with `before`, the time of the address's previous event, loss may be its cause.
    #[inline(never)]
    fn finding(&mut self, mut key: FindingKey, event: &Compact, serial: u64, before: Option<Epoch>) {
        if !self.rules.by_site {
            key.alloc = key.alloc.filter(|_| key.class == Of::InferredFree);
            key.free_site = None;
        }
        let cpu = self.rules.cpus.get(usize::from(event.stream)).copied().unwrap_or(0);
        let row = FindingRow { count: 0, suspect: 0, first: (event.at, cpu, event.address), serial };
        let suspect = before.is_some_and(|before| self.suspects(before));
        // A gap that begins at this very key may not have been read yet.
        let open = before.is_some() && !suspect && self.frontier == Some(event.at);
        self.findings.count(key, row, suspect, open);
    }

    /// How many objects are live, whatever the filters.
    pub(crate) fn live_objects(&self) -> usize {
        self.objects.live_objects() + self.pages.live_objects()
    }

    /// Live objects that the filters take, in no order.
    pub(crate) fn live(&mut self) -> Vec<Live> {
        let (objects, pages, tallies) = (&self.objects, &self.pages, &mut self.tallies);
        let selected = objects.live().chain(pages.live()).filter(|(_, object, _)| object.class != UNSELECTED);
        let live = selected.map(|(address, object, birth)| {
            let class = tallies.class(object.class);
            let (requested, allocated) = object.own_sizes.unwrap_or((class.requested, class.allocated));
            let cpu = self.rules.cpus.get(usize::from(object.stream)).copied().unwrap_or(0);
            Live { address, class, requested, allocated, cpu, birth }
        });
        live.collect()
    }
}
