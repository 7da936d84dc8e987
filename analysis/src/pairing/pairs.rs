//! Pairing of allocations and frees: the contract's section "Pairing", in code.
//!
//! A [`Pairing`] goes through the events of one partition of the addresses, in order. Sums are kept
//! here; changes in the live bytes go to a [`PairingSink`], because peaks depend on the order over all partitions. A sink may
//! ask for the fate of each object, too.

use std::collections::HashMap;
use std::ops::Range;

use kmemtrace_abi::clock::Agreement;
use kmemtrace_abi::event::{ByKind, BySpace, Kind, Space};

use crate::account::classes::{Class, Classes, is_selected, origin_of_unselected};
use crate::account::tally::{Closed, Sizes, Tallies};
use crate::memory::hashing::Seed;
use crate::order::merger::{Part, Share, Window};
use crate::order::pair_event::{PairAction, PairEvent};
use crate::pairing::fate::{Ended, Fate};
use crate::pairing::findings::{Finding, FindingKey, FindingRow, Findings};
use crate::pairing::frames::{FrameTable, Hit};
use crate::pairing::learn::CacheLearner;
use crate::pairing::loss::{LossState, OpenFindings, Suspicion};
use crate::pairing::result::{Counts, Live};
use crate::pairing::slot::{AllocInfo, SlotState};
use crate::pairing::table::{FIXED_SLOTS, Table};

/// Facts of the trace and of the query that the pairing depends on.
#[derive(Clone, Debug, Default)]
pub(crate) struct PairingOptions {
    /// `kfree` of a cache object is legal (Linux 6.4 on), or the kernel is not known.
    pub(crate) kfree_takes_all: bool,
    /// CPU of each stream.
    pub(crate) cpus: Vec<u32>,
    /// Node of each CPU, where the trace records all of them.
    pub(crate) nodes: Option<HashMap<u32, u32>>,
    /// Events that are in the order in which they happened: of all CPUs, of one, or none.
    pub(crate) agreement: Agreement,
    /// Addresses are hashes, so every finding is suspect, and inferred frees make upper bounds nevertheless.
    pub(crate) is_hashed: bool,
    /// Rows are call-sites, so findings have theirs.
    pub(crate) by_site: bool,
    /// Frees without an allocation are counted for each cache that they name.
    pub(crate) counts_old_frees: bool,
    /// Names of caches are learned from frees.
    pub(crate) learns_caches: bool,
    /// Events of some tasks alone are recorded, so frees by others are unseen.
    pub(crate) is_partial: bool,
    /// Counts pairs per (allocating CPU, freeing CPU).
    pub(crate) matrix: bool,
    /// Kinds of these pairs.
    pub(crate) compares: ByKind<bool>,
    /// Lists the live objects at the end.
    pub(crate) lists_live: bool,
    /// Events of pages tell their frames.
    pub(crate) tells_frames: bool,
    /// Counts frees by the call-site that makes them.
    pub(crate) counts_free_sites: bool,
    /// Size of a page, where the trace tells it.
    pub(crate) page_bytes: Option<u64>,
}

/// Takes the changes in the live bytes, and the fates of objects where it asks for them, in the order of events.
pub(crate) trait PairingSink {
    /// The sink takes fates; where false, nothing is done for them. The table keeps an [`AllocInfo`] of each object then.
    const FATES: bool = false;

    /// Takes an object that becomes live.
    fn allocated(&mut self, event: Number, class: &Class, allocated: u64);
    /// Takes an object that is gone.
    fn freed(&mut self, event: Number, class: &Class, allocated: u64);

    /// Takes what has become known of the suspicions that are open, before the events of a window.
    fn decide_open(&mut self, _: OpenFindings) {}

    /// Tie-breaker that the table keeps of an allocation, in place of its own.
    fn tie(&self, _: Number) -> u32 {
        0
    }

    /// Takes pages of an allocation of `whole` bytes that are gone, the last ones included: [`PairingSink::freed`] has taken their
    /// bytes, and does not tell the allocation.
    fn part_freed(&mut self, _class: &Class, _info: &AllocInfo, _whole: u64, _bytes: u64) {}

    /// Takes an object whose life has ended with an event.
    fn ended(&mut self, _object: &Ended, _fate: Fate, _event: &PairEvent, _number: Number, _suspicion: Suspicion) {}

    /// Takes a failed allocation, or a free where no object is live.
    fn alone(&mut self, _fate: Fate, _event: &PairEvent, _number: Number, _suspicion: Option<Suspicion>) {}
}

/// Object that is live, or several that a text of one moment lists together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LiveObject {
    pub(crate) class: Class,
    pub(crate) info: AllocInfo,
    /// Number of objects; 0 where a text does not tell.
    pub(crate) objects: u64,
    /// Bytes of each allocation.
    pub(crate) whole: u64,
    /// Requested and allocated bytes that are live, of all of them.
    pub(crate) left: Sizes,
}

/// An event's number in its window, and its key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Number {
    pub(crate) serial: u32,
    pub(crate) at: u64,
}

/// Tie-breaker of an allocation among events of its key; `tie_base` is [`Window::tie_base`].
#[inline(always)]
fn tie(tie_base: (u64, u64), first_serial: u64, number: Number) -> u32 {
    let tie_before = if number.at == tie_base.0 { first_serial - tie_base.1 } else { 0 };
    u32::try_from(tie_before + u64::from(number.serial)).unwrap_or(u32::MAX)
}

/// Prefetch distance, in events: the processor waits for many slots as long as for one.
const AHEAD: usize = 32;
/// Events whose slots are prefetched together. In large tables address translation takes longest, and the processor translates
/// several addresses at once only if nothing stands between. The slots of one group ago have mostly come.
const GROUP: usize = 16;
/// Events between two checks of the memory limit.
const WEIGHED: usize = 256;

/// The pairing of one partition.
pub(crate) struct Pairing<'a> {
    pub(super) options: &'a PairingOptions,
    pub(crate) tallies: Tallies<'a>,
    part: usize,
    share: Share<PairEvent>,
    /// Node of each stream, where the trace gives it.
    nodes: Vec<Option<u32>>,
    /// Objects by address; of pages, those blocks whose events do not tell their frames.
    pub(super) tables: BySpace<Table>,
    pub(super) frames: FrameTable,
    /// Live frames that the present event takes; empty between events.
    pub(super) hits: Vec<Hit>,
    pub(super) loss: LossState,
    pub(super) counts: Counts,
    /// Pairs within the CPU of each stream, where the options want the matrix.
    pub(super) own_pairs: Vec<u64>,
    pub(crate) findings: Findings,
    pub(crate) learner: Option<Box<CacheLearner>>,
    /// Number of the window's first event in the trace.
    first_serial: u64,
    /// [`Window::tie_base`]
    tie_base: (u64, u64),
    /// Limit of the tables and tallies, in bytes.
    max_bytes: usize,
    /// Set once the limit was exceeded: the pairing has stopped.
    pub(crate) over_budget: bool,
}

impl<'a> Pairing<'a> {
    /// The pairing of partition `part` of `parts`.
    pub(crate) fn new(
        options: &'a PairingOptions,
        registry: &'a Classes,
        seed: Seed,
        part: usize,
        parts: u32,
    ) -> Pairing<'a> {
        let table = |_| Table::new(seed, FIXED_SLOTS / parts as usize, options.lists_live);
        let node = |cpu| options.nodes.as_ref()?.get(cpu).copied();
        Pairing {
            options,
            tallies: Tallies::new(registry, options.page_bytes.unwrap_or(0)),
            part,
            share: Share::default(),
            nodes: options.cpus.iter().map(node).collect(),
            tables: BySpace::from_fn(table),
            frames: FrameTable::new(options.lists_live),
            hits: Vec::new(),
            loss: LossState::default(),
            counts: Counts::default(),
            own_pairs: vec![0; if options.matrix { options.cpus.len() } else { 0 }],
            findings: Findings::default(),
            learner: options.learns_caches.then(Box::default),
            first_serial: 0,
            tie_base: (0, 0),
            max_bytes: usize::MAX,
            over_budget: false,
        }
    }

    /// Limits the tables and tallies, in bytes: the pairing stops where they need more.
    pub(crate) fn set_max_bytes(&mut self, max_bytes: usize) {
        self.max_bytes = max_bytes;
    }

    /// Takes the partition's events of the next window.
    pub(crate) fn take(&mut self, window: &Window<PairEvent>, sink: &mut impl PairingSink) {
        let open = self.loss.begin_window(window.gap_at_last_frontier, window.complete_until);
        self.findings.decide_open(open);
        sink.decide_open(open);
        if let Some(learner) = &mut self.learner {
            learner.decide_open(open);
        }
        self.first_serial = window.first_serial;
        self.tie_base = window.tie_base;
        let mut share = std::mem::take(&mut self.share);
        self.take_part(window.part(self.part, &mut share), window, sink);
        self.share = share;
    }

    fn take_part(&mut self, part: Part<'_, PairEvent>, window: &Window<PairEvent>, sink: &mut impl PairingSink) {
        part.events.iter().take(AHEAD).for_each(|event| self.ask(event));
        let mut from = 0;
        for (index, run) in window.loss_runs.iter().enumerate() {
            if let Some(epoch) = self.loss.enter(run) {
                self.tables.values_mut().for_each(|table| table.begin_epoch(epoch));
                self.frames.begin_epoch(epoch);
            }
            let until = window.loss_runs.get(index + 1).map_or(part.events.len(), |next| part.position(next.from));
            while from < until {
                if !self.share_budget() {
                    return;
                }
                let next = until.min(from + WEIGHED);
                self.run(part, from..next, sink);
                from = next;
            }
        }
        self.over_budget |= self.needs_more();
    }

    /// True where a table has reached its limit.
    fn needs_more(&self) -> bool {
        self.tables.values().any(Table::over_budget) || self.frames.over_budget()
    }

    /// Gives each table what the others leave of the limit; false where that is exceeded.
    fn share_budget(&mut self) -> bool {
        let counted = self.tallies.bytes() + self.counts.free_sites.bytes();
        let max_bytes = self.max_bytes.saturating_sub(counted);
        let bytes = self.table_bytes();
        self.over_budget |= self.needs_more() || bytes > max_bytes;
        if !self.over_budget {
            let left = max_bytes - bytes;
            self.tables.values_mut().for_each(|table| table.set_max_bytes(table.bytes() + left));
            self.frames.set_max_bytes(self.frames.bytes() + left);
        }
        !self.over_budget
    }

    /// Pairs events between which no gap begins or ends.
    fn run(&mut self, part: Part<'_, PairEvent>, range: Range<usize>, sink: &mut impl PairingSink) {
        let Some(events) = part.events.get(range.clone()) else { return };
        for (group, from) in events.chunks(GROUP).zip(range.step_by(GROUP)) {
            let ahead = part.events.get(from + AHEAD..).unwrap_or_default();
            ahead.iter().take(group.len()).for_each(|event| self.ask(event));
            if self.tables.values().any(Table::is_large) {
                let near = part.events.get(from + GROUP..).unwrap_or_default();
                near.iter().take(group.len()).for_each(|event| self.ask_again(event));
            }
            for (event, index) in group.iter().zip(from..) {
                self.take_event(event, Number { serial: part.serial(index), at: event.at }, sink);
            }
        }
    }

    /// Starts loading the slot of an event's address.
    #[inline(always)]
    fn ask(&mut self, event: &PairEvent) {
        if event.action.is_of_frames() {
            return self.frames.prefetch(event.address);
        }
        self.table(event.kind).prefetch(event.hash, event.action == PairAction::Alloc);
    }

    /// Starts loading the next bucket where the slot cannot be in the first.
    #[inline(always)]
    fn ask_again(&self, event: &PairEvent) {
        let table = self.table(event.kind);
        if table.is_large() && !event.action.is_of_frames() {
            table.prefetch_next(event.address, event.hash, event.action == PairAction::Alloc);
        }
    }

    #[inline(always)]
    fn take_event(&mut self, event: &PairEvent, number: Number, sink: &mut impl PairingSink) {
        match event.action {
            PairAction::Alloc | PairAction::Own => {
                if event.action == PairAction::Own {
                    self.count_own(event.allocated);
                }
                self.alloc(event, number, sink);
            }
            PairAction::Free => self.free(event, number, sink),
            PairAction::Deferred | PairAction::BulkFree | PairAction::BulkRecord => {
                self.take_probe(event, number, sink);
            }
            PairAction::AllocFrames | PairAction::OwnFrames => {
                if event.action == PairAction::OwnFrames {
                    self.count_own(self.bytes_of(event));
                }
                self.alloc_frames(event, number, sink);
            }
            PairAction::FreeFrames => self.free_frames(event, number, sink),
            _ => {
                self.other(event);
                let fate = match event.action {
                    PairAction::Failed => Fate::Failed,
                    PairAction::NullFree => Fate::NullFree,
                    _ => return,
                };
                self.alone(fate, event, number, None, sink);
            }
        }
    }

    /// Hands over an event without an object.
    #[inline(always)]
    fn alone<S: PairingSink>(
        &self,
        fate: Fate,
        event: &PairEvent,
        number: Number,
        before: Option<SlotState>,
        sink: &mut S,
    ) {
        if S::FATES && is_selected(event.class) {
            let suspicion = before.map(|before| self.suspicion(Finding::FreeAfterFree, event, before));
            sink.alone(fate, event, number, suspicion);
        }
    }

    /// Facts of an allocation that lists of objects show.
    #[inline(always)]
    pub(super) fn alloc_info<S: PairingSink>(&self, event: &PairEvent, number: Number, sink: &S) -> AllocInfo {
        if S::FATES {
            return AllocInfo { at: event.at, tie: sink.tie(number), pid: event.extra };
        }
        AllocInfo { at: event.at, tie: tie(self.tie_base, self.first_serial, number), pid: event.extra }
    }

    /// Counts an allocation of the recorder itself.
    #[cold]
    fn count_own(&mut self, allocated: u64) {
        self.counts.own_allocs += 1;
        self.counts.own_allocated += u128::from(allocated);
    }

    /// Counts an event that changes nothing at its address.
    #[cold]
    fn other(&mut self, event: &PairEvent) {
        match event.action {
            PairAction::Failed if is_selected(event.class) => {
                self.counts.failed_with_fallback += event.allocated;
                self.tallies.fail(event.class, event.at);
            }
            PairAction::NullFree => self.counts.null_free += u64::from(is_selected(event.class)),
            PairAction::Other => {
                self.counts.other += 1;
                self.counts.unknown += u64::from(event.extra);
            }
            _ => {}
        }
    }

    /// Number of an event in the trace.
    #[inline(always)]
    fn serial(&self, number: Number) -> u64 {
        self.first_serial + u64::from(number.serial)
    }

    #[inline(always)]
    fn table(&self, kind: Kind) -> &Table {
        &self.tables[kind.space()]
    }

    #[inline(always)]
    fn table_mut(&mut self, kind: Kind) -> &mut Table {
        &mut self.tables[kind.space()]
    }

    #[inline(always)]
    fn alloc<S: PairingSink>(&mut self, event: &PairEvent, number: Number, sink: &mut S) {
        let sizes = (event.requested, event.allocated);
        let class = is_selected(event.class).then(|| self.tallies.open(event.class, sizes));
        let is_unsized = class.is_some_and(|class| !class.is_sized);
        let state = SlotState::alloc(event.class, is_unsized, event.stream, self.loss.now());
        let table = &mut self.tables[event.kind.space()];
        let mut old = AllocInfo::default();
        let before = table.record(event.address, event.hash, state, |info_before| {
            if S::FATES {
                old = info_before;
                return Some(AllocInfo { at: event.at, tie: sink.tie(number), pid: event.extra });
            }
            Some(AllocInfo { at: event.at, tie: tie(self.tie_base, self.first_serial, number), pid: event.extra })
        });
        if before.is_live() {
            self.infer_free((before, old), event, number, sink);
        }
        let Some(class) = class else {
            self.counts.unselected_allocs += 1;
            return;
        };
        if is_unsized {
            self.table_mut(event.kind).keep_sizes(event.address, sizes);
        }
        sink.allocated(number, &class, event.allocated);
        if event.allocated < event.requested {
            let key =
                FindingKey { class: Finding::ShortAlloc, alloc: Some(class.origin), free_site: None, kind: class.kind };
            self.finding(key, event, number, Suspicion::Unexplained);
        }
    }

    /// Closes the object at an event's address; returns its class and its sizes.
    #[inline(always)]
    fn close(
        &mut self,
        object: SlotState,
        how: Closed,
        event: &PairEvent,
        number: Number,
        sink: &mut impl PairingSink,
    ) -> (Class, Sizes) {
        let own_sizes = if object.is_unsized() { self.table_mut(event.kind).take_sizes(event.address) } else { None };
        let (class, sizes) = self.tallies.close(object.class(), own_sizes, how);
        sink.freed(number, &class, sizes.1);
        (class, sizes)
    }

    /// Closes an object whose address the kernel has handed out again: its free was lost or not traced.
    #[inline(never)]
    fn infer_free<S: PairingSink>(
        &mut self,
        (object, info): (SlotState, AllocInfo),
        event: &PairEvent,
        number: Number,
        sink: &mut S,
    ) {
        self.counts.all_inferred += 1;
        let (origin, kind) = if is_selected(object.class()) {
            let (class, sizes) = self.close(object, Closed::Inferred, event, number, sink);
            if S::FATES {
                let suspicion = self.suspicion(Finding::InferredFree, event, object);
                let ended = Ended { address: event.address, pages: None, info, stream: object.stream(), class, sizes };
                sink.ended(&ended, Fate::Inferred, event, number, suspicion);
            }
            (class.origin, class.kind)
        } else if let Some(origin) = origin_of_unselected(object.class()) {
            // The kind of an object that is not counted does not matter.
            (origin, event.kind)
        } else {
            return;
        };
        self.count_inferred((origin, kind), object, event, number);
    }

    /// Counts an inferred free of an object, at the event that ended it.
    #[inline(always)]
    pub(super) fn count_inferred(
        &mut self,
        (origin, kind): (u32, Kind),
        object: SlotState,
        event: &PairEvent,
        number: Number,
    ) {
        let suspicion = self.suspicion(Finding::InferredFree, event, object);
        if suspicion == Suspicion::Open || !self.findings.infer_again(origin, suspicion) {
            let key = FindingKey { class: Finding::InferredFree, alloc: Some(origin), free_site: None, kind };
            self.finding(key, event, number, suspicion);
        }
    }

    #[inline(always)]
    fn free<S: PairingSink>(&mut self, event: &PairEvent, number: Number, sink: &mut S) {
        let (object, info) = self.record_free::<S>(event, SlotState::free(self.loss.now()));
        if !object.is_live() {
            if object.is_given_up() {
                self.counts.completions = self.counts.completions.saturating_add(1);
                return;
            }
            return self.free_alone(object, event, number, sink);
        }
        if !is_selected(object.class()) {
            return;
        }
        self.count_free(event.kind, event);
        let (class, sizes) = self.pair((object, info), event, number, sink);
        if class.kind != event.kind {
            let legal = event.kind == Kind::Kmalloc && self.options.kfree_takes_all;
            let of = if legal { Finding::KindMismatchLegal } else { Finding::KindMismatch };
            self.mismatch(of, &class, object, event, number);
        }
        if class.cache != event.extra && class.cache != 0 && event.extra != 0 {
            self.mismatch(Finding::CacheMismatch, &class, object, event, number);
        }
        if self.learner.is_some() && class.kind == Kind::Cache && event.kind == Kind::Cache && event.extra != 0 {
            self.learn(&class, sizes.1, object, event);
        }
    }

    /// Records a free; returns the address's event before, and the allocation if that is one and fates are asked for.
    #[inline(always)]
    pub(super) fn record_free<S: PairingSink>(&mut self, event: &PairEvent, now: SlotState) -> (SlotState, AllocInfo) {
        let mut info = AllocInfo::default();
        let before = self.table_mut(event.kind).record(event.address, event.hash, now, |info_before| {
            if S::FATES {
                info = info_before;
            }
            None
        });
        (before, info)
    }

    /// Counts a free of an address where no object is live, and hands it over.
    #[inline(always)]
    pub(super) fn free_alone<S: PairingSink>(
        &mut self,
        before: SlotState,
        event: &PairEvent,
        number: Number,
        sink: &mut S,
    ) {
        self.free_again(before, event, number);
        let (fate, before) =
            if before.is_nothing() { (Fate::FreeWithoutAlloc, None) } else { (Fate::FreeAfterFree, Some(before)) };
        self.alone(fate, event, number, before, sink);
    }

    /// Closes an object that the filters take, with the free that ends it.
    #[inline(always)]
    pub(super) fn pair<S: PairingSink>(
        &mut self,
        (object, info): (SlotState, AllocInfo),
        event: &PairEvent,
        number: Number,
        sink: &mut S,
    ) -> (Class, Sizes) {
        let crossed = object.stream() != event.stream;
        let how = if crossed { Closed::FreedElsewhere } else { Closed::Freed };
        let (class, sizes) = self.close(object, how, event, number, sink);
        if S::FATES {
            // A mismatch of any class is suspect under the same conditions.
            let suspicion = self.suspicion(Finding::KindMismatch, event, object);
            let ended = Ended { address: event.address, pages: None, info, stream: object.stream(), class, sizes };
            sink.ended(&ended, Fate::Pair, event, number, suspicion);
        }
        if crossed {
            self.count_cpus(object.stream(), event.stream, class.kind);
        } else if let Some(pairs) = self.own_pairs.get_mut(usize::from(event.stream)) {
            *pairs += u64::from(self.options.compares[class.kind]);
        }
        (class, sizes)
    }

    /// Learns the name of the object's cache from its free.
    #[cold]
    fn learn(&mut self, class: &Class, allocated: u64, object: SlotState, event: &PairEvent) {
        let suspicion = self.suspicion(Finding::CacheMismatch, event, object);
        if let Some(learner) = &mut self.learner {
            learner.take((class.origin, allocated), event.extra, suspicion);
        }
    }

    /// Counts a free event of this kind: a pair by the filters of its allocation, any other free by its own.
    #[inline(always)]
    pub(super) fn count_free(&mut self, kind: Kind, event: &PairEvent) {
        self.counts.free_events[kind] += 1;
        if self.options.counts_free_sites {
            self.counts.free_sites.count(event.requested, kind);
        }
    }

    /// Counts a free of an address where no object is live.
    #[inline(never)]
    fn free_again(&mut self, before: SlotState, event: &PairEvent, number: Number) {
        self.counts.all_without_alloc += u64::from(before.is_nothing());
        if !is_selected(event.class) {
            return;
        }
        self.count_free(event.kind, event);
        if self.options.counts_old_frees && event.extra != 0 {
            *self.counts.old_frees.entry(event.extra).or_default() += 1;
        }
        if before.is_nothing() {
            self.counts.free_without_alloc[event.kind] += 1;
            return;
        }
        let free_site = Some(event.requested);
        let key = FindingKey { class: Finding::FreeAfterFree, alloc: None, free_site, kind: event.kind };
        let suspicion = self.suspicion(key.class, event, before);
        self.finding(key, event, number, suspicion);
    }

    /// Counts a pair of two CPUs, by their streams.
    #[inline(never)]
    pub(super) fn count_cpus(&mut self, from: u16, to: u16, kind: Kind) {
        let node = |stream: u16| self.nodes.get(usize::from(stream));
        self.counts.cross_node[kind] += u64::from(node(from) != node(to));
        if self.options.matrix && self.options.compares[kind] {
            let cpu = |stream: u16| self.options.cpus.get(usize::from(stream)).copied().unwrap_or(0);
            *self.counts.matrix.entry((cpu(from), cpu(to))).or_default() += 1;
        }
    }

    #[cold]
    fn mismatch(&mut self, of: Finding, class: &Class, object: SlotState, event: &PairEvent, number: Number) {
        let (alloc, free_site) = (Some(class.origin), Some(event.requested));
        let key = FindingKey { class: of, alloc, free_site, kind: class.kind };
        let suspicion = self.suspicion(of, event, object);
        self.finding(key, event, number, suspicion);
    }

    /// Counts a finding.
    #[inline(never)]
    pub(super) fn finding(&mut self, mut key: FindingKey, event: &PairEvent, number: Number, suspicion: Suspicion) {
        if !self.options.by_site {
            let needs_origin = key.class == Finding::InferredFree || key.class.may_be_unseen();
            key.alloc = key.alloc.filter(|_| needs_origin);
            key.free_site = None;
        }
        let cpu = self.options.cpus.get(usize::from(event.stream)).copied().unwrap_or(0);
        let row = FindingRow {
            count: 0,
            suspect: 0,
            unseen: 0,
            first: (event.at, cpu, event.address),
            serial: self.serial(number),
        };
        self.findings.count(key, row, suspicion);
    }

    /// Suspicion of a finding at an address whose last event was `before`: loss or a clock may be its cause.
    #[inline(always)]
    pub(super) fn suspicion(&self, class: Finding, event: &PairEvent, before: SlotState) -> Suspicion {
        match self.loss.explains(before.epoch(), event.at) {
            Suspicion::Suspect => Suspicion::Suspect,
            _ if self.is_out_of_order(class, event, before) => Suspicion::Suspect,
            by_loss => by_loss,
        }
    }

    /// True where the two events may have happened in the other order: by the contract always, where both are frees.
    fn is_out_of_order(&self, class: Finding, event: &PairEvent, before: SlotState) -> bool {
        match self.options.agreement {
            Agreement::AllCpus => false,
            Agreement::OneCpu => class == Finding::FreeAfterFree || before.stream() != event.stream,
            Agreement::Nothing => true,
        }
    }

    /// Frees without their allocation, and objects whose free is inferred, so far.
    pub(crate) fn unpaired(&self) -> (u64, u64) {
        (self.counts.all_without_alloc, self.counts.all_inferred)
    }

    /// Sums of this partition.
    pub(crate) fn counts(&self) -> Counts {
        let mut counts = self.counts.clone();
        counts.has_whole_blocks |= !self.tables[Space::Pages].is_unused();
        counts.page_pairs += self.tallies.whole_page_pairs();
        for (&cpu, &pairs) in self.options.cpus.iter().zip(&self.own_pairs).filter(|(_, pairs)| **pairs > 0) {
            *counts.matrix.entry((cpu, cpu)).or_default() += pairs;
        }
        counts
    }

    /// Memory of the tables, in bytes.
    pub(crate) fn table_bytes(&self) -> usize {
        self.tables.values().map(Table::bytes).sum::<usize>() + self.frames.bytes()
    }

    /// Number of live objects, whatever the filters.
    pub(crate) fn live_objects(&self) -> usize {
        self.tables.values().map(Table::live_objects).sum::<usize>() + self.frames.live_objects()
    }

    /// Hands over the live objects that the filters take, in no order. Where no lists of them are asked for, their
    /// [`AllocInfo`] is none.
    pub(crate) fn each_live(&mut self, mut take: impl FnMut(&LiveObject)) {
        let Pairing { tables, frames, tallies, options, .. } = self;
        for table in tables.values_mut() {
            table.each_live(|state, own_sizes, info| {
                if is_selected(state.class()) {
                    let class = tallies.class(state.class());
                    let left = own_sizes.unwrap_or((class.requested, class.allocated));
                    take(&LiveObject { class, info, objects: 1, whole: left.1, left });
                }
            });
        }
        frames.each_live(|block| {
            if is_selected(block.state.class()) {
                let bytes = |pages: u32| options.page_bytes.unwrap_or(0).saturating_mul(pages.into());
                let (whole, left) = (bytes(block.pages), bytes(block.left));
                let class = tallies.class(block.state.class());
                take(&LiveObject { class, info: block.alloc_info, objects: 1, whole, left: (left, left) });
            }
        });
    }

    /// Moves the live objects that the filters take from the tables to the list, in no order. `classes` are those of the
    /// trace; an object with sizes of its own adds one.
    pub(crate) fn list_live(&mut self, list: &mut Vec<Live>, classes: &mut Vec<Class>) {
        // The tables are empty afterwards.
        self.counts.has_whole_blocks |= !self.tables[Space::Pages].is_unused();
        let cpus = &self.options.cpus;
        for table in self.tables.values_mut() {
            table.drain_live(|address, state, own_sizes, alloc_info| {
                let mut class = state.class();
                let Some(&of) = classes.get(class as usize).filter(|_| is_selected(class)) else { return };
                if let Some((requested, allocated)) = own_sizes {
                    // 2^32 classes do not fit in memory, so this never saturates.
                    class = u32::try_from(classes.len()).unwrap_or(u32::MAX);
                    classes.push(Class { requested, allocated, ..of });
                }
                let cpu = cpus.get(usize::from(state.stream())).copied().unwrap_or(0);
                list.push(Live { address, alloc_info, class, cpu, pages: None });
            });
        }
        self.list_blocks(list, classes);
    }
}

#[cfg(test)]
mod tests {
    use kmemtrace_abi::event::Names;

    use super::*;
    use crate::account::grouping::RowKey;
    use crate::engine::peaks::PeakTracker;
    use crate::order::gaps::LossRun;

    /// Live objects at new addresses, as frames or not.
    fn allocations(seed: Seed, addresses: Range<u64>, kind: Kind, class: u32) -> Window<PairEvent> {
        let event = |address| {
            let (hash, action) = (seed.hash(address), PairAction::Alloc);
            PairEvent {
                at: address,
                address,
                requested: 8,
                allocated: 8,
                class,
                hash,
                action,
                kind,
                ..PairEvent::default()
            }
        };
        let loss_runs = vec![LossRun { from: 0, starts_gap: false, in_gap: false }];
        Window { events: addresses.map(event).collect(), loss_runs, ..Window::default() }
    }

    /// Tables of objects and of frames share one limit with the tallies. The pairing stops at it, soon, and says so.
    #[test]
    fn pairing_stops_where_its_memory_ends() {
        let most = 1 << 20;
        for kinds in [[Kind::Kmalloc; 2], [Kind::Pages; 2], [Kind::Kmalloc, Kind::Pages]] {
            let (seed, options) = (Seed::random(), PairingOptions { cpus: vec![0], ..PairingOptions::default() });
            let classes = Classes::new(Names::new(), 10);
            let [first, second] = kinds.map(|kind| classes.class(RowKey::of_site(0, kind), 0, (0, None), (8, 8)));
            let mut pairing = Pairing::new(&options, &classes, seed, 0, 1);
            pairing.set_max_bytes(most);
            let (mut peaks, mut address) = (PeakTracker::default(), 1);
            while !pairing.over_budget {
                for (kind, class) in kinds.into_iter().zip([first, second]) {
                    let window = allocations(seed, address..address + 500, kind, class);
                    pairing.take(&window, &mut peaks);
                    address += 500;
                }
                let bytes = pairing.table_bytes() + pairing.tallies.bytes();
                assert!(bytes <= most, "{bytes} bytes at {address}, {kinds:?}");
                assert!(address < 200_000, "no end, {kinds:?}");
            }
            assert!(pairing.table_bytes() > most / 3, "{} bytes, {kinds:?}", pairing.table_bytes());
            assert_eq!(pairing.live_objects() as u64, peaks.peaks().0.values().sum::<u128>() as u64 / 8);
            let live = pairing.live_objects();
            pairing.take(&allocations(seed, address..address + 500, kinds[0], first), &mut peaks);
            assert_eq!(pairing.live_objects(), live, "it takes nothing more, {kinds:?}");
        }
    }

    /// A finding at the frontier is suspect where a gap begins there, which may come to light with the next window; once that
    /// has gone on beyond the frontier, later gaps say nothing of it.
    #[test]
    fn only_a_gap_at_its_key_makes_a_finding_suspect_later() {
        for (next_frontier, suspect) in [(Some(1), 1), (Some(20), 0)] {
            let (seed, options) = (
                Seed::random(),
                PairingOptions { cpus: vec![0], agreement: Agreement::AllCpus, ..PairingOptions::default() },
            );
            let classes = Classes::new(Names::new(), 10);
            let class = classes.class(RowKey::of_site(0, Kind::Kmalloc), 0, (0, None), (8, 8));
            let mut pairing = Pairing::new(&options, &classes, seed, 0, 1);
            let mut peaks = PeakTracker::default();
            let complete_until = |window: Window<PairEvent>, complete_until, gap_at_last_frontier| Window {
                complete_until,
                gap_at_last_frontier,
                ..window
            };
            // The same address twice, at the key of the frontier: an inferred free.
            let mut again = allocations(seed, 1..2, Kind::Kmalloc, class);
            again.events.push(again.events[0]);
            pairing.take(&complete_until(again, Some(1), false), &mut peaks);
            pairing.take(&complete_until(Window::default(), next_frontier, false), &mut peaks);
            pairing.take(&complete_until(Window::default(), Some(30), true), &mut peaks);
            let rows: Vec<_> = pairing.findings.rows().map(|(key, row)| (key.class, row.count, row.suspect)).collect();
            assert_eq!(rows, [(Finding::InferredFree, 1, suspect)], "{next_frontier:?}");
        }
    }

    /// A class that needs memory leaves less for the tables.
    #[test]
    fn classes_count_towards_the_limit() {
        let (seed, options) = (Seed::random(), PairingOptions { cpus: vec![0], ..PairingOptions::default() });
        let classes = Classes::new(Names::new(), 100_000);
        let first = classes.class(RowKey::of_site(0, Kind::Kmalloc), 0, (0, None), (8, 8));
        let mut pairing = Pairing::new(&options, &classes, seed, 0, 1);
        pairing.set_max_bytes(100 << 10);
        let mut peaks = PeakTracker::default();
        pairing.take(&allocations(seed, 1..500, Kind::Kmalloc, first), &mut peaks);
        assert!(!pairing.over_budget, "{} bytes of tables", pairing.table_bytes());
        let last =
            (0..2000).map(|n| classes.class(RowKey::of_site(0, Kind::Kmalloc), 0, (0, None), (n, n))).last().unwrap();
        pairing.take(&allocations(seed, 500..501, Kind::Kmalloc, last), &mut peaks);
        pairing.take(&allocations(seed, 501..502, Kind::Kmalloc, last), &mut peaks);
        assert!(pairing.over_budget, "{} bytes of classes", pairing.tallies.bytes());
    }
}
