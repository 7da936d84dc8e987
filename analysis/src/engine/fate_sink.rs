//! Sink of the pairing that makes an [`ObjectFate`] of each fate: names, places in the total order, and suspicion.

use std::collections::HashMap;

use kmemtrace_abi::event::{Event, Kind, Space};

use crate::account::classes::{CacheNumber, Class, Classes};
use crate::account::stacks::StackNumber;
use crate::engine::object_fate::{ObjectEnd, ObjectFate, ObjectFree, ObjectSink};
use crate::order::pair_event::{NO_PID, PairAction, PairEvent};
use crate::pairing::fate::{Ended, Fate, ObjectPages};
use crate::pairing::loss::{OpenFindings, Suspicion};
use crate::pairing::pairs::{Number, PairingOptions, PairingSink};
use crate::pairing::result::Live;
use crate::pairing::slot::AllocInfo;
use crate::query::filter::Owners;

/// Fate with numbers for its names. Few are kept: those whose suspicion is open.
#[derive(Clone, Copy, Debug)]
struct NumberedFate {
    object: ObjectFate<'static>,
    stack: StackNumber,
    cache: CacheNumber,
    /// Cache that the free names.
    free_cache: CacheNumber,
}

/// Fates of objects on their way to the caller's sink.
pub(super) struct Fates<'a> {
    sink: &'a mut dyn ObjectSink,
    names: FoundNames<'a>,
    cpus: &'a [u32],
    /// Places of the window's events in the total order.
    seqs: Vec<u64>,
    places: Places,
    /// Fates whose suspicion the next window decides.
    open: Vec<NumberedFate>,
    is_all_suspect: bool,
    page_bytes: Option<u64>,
    /// Set once the sink has ended the pass.
    pub(super) has_ended: bool,
}

impl<'a> Fates<'a> {
    /// Fates for `sink`; `rules` are those of the pairing. `is_all_suspect`: loss may explain every finding.
    pub(super) fn new(
        sink: &'a mut dyn ObjectSink,
        classes: &'a Classes,
        (comms, owners): (&'a HashMap<i32, Box<[u8]>>, Option<Owners<'a>>),
        rules: &'a PairingOptions,
        is_all_suspect: bool,
    ) -> Fates<'a> {
        Fates {
            sink,
            names: FoundNames {
                classes,
                comms,
                owners,
                sites: Vec::new(),
                caches: Vec::new(),
                rows: Vec::new(),
                stacks: Vec::new(),
            },
            cpus: &rules.cpus,
            seqs: Vec::new(),
            places: Places::default(),
            open: Vec::new(),
            is_all_suspect,
            page_bytes: rules.page_bytes,
            has_ended: false,
        }
    }

    /// Pages of an object whose events do not tell its frames: all of them share its fate.
    fn whole_block(&self, kind: Kind, allocated: u64, fate: Fate, is_elsewhere: bool) -> Option<ObjectPages> {
        let pages = allocated.checked_div(self.page_bytes?).filter(|_| kind.space() == Space::Pages)?;
        let with = |of: Fate| if fate == of { pages } else { 0 };
        let (freed, inferred, live) = (with(Fate::Pair), with(Fate::Inferred), with(Fate::Live));
        let freed_elsewhere = if is_elsewhere { freed } else { 0 };
        Some(ObjectPages { allocated: pages, freed, inferred, live, freed_elsewhere })
    }

    /// Forgets the places of the last window's events.
    pub(super) fn begin_window(&mut self) {
        self.seqs.clear();
    }

    /// Adds the place of the window's next event.
    #[inline]
    pub(super) fn add_seq(&mut self, at: u64, seq: u64) {
        self.seqs.push(seq);
        self.places.add(at, seq);
    }

    /// Decides on what is open: no gap has begun.
    pub(super) fn decide_rest(&mut self) {
        self.decide(false);
    }

    fn decide(&mut self, is_suspect: bool) {
        for found in std::mem::take(&mut self.open) {
            self.hand_over(&found, Some(is_suspect));
        }
    }

    fn seq(&self, number: Number) -> u64 {
        self.seqs.get(number.serial as usize).copied().unwrap_or(0)
    }

    fn cpu(&self, stream: u16) -> u32 {
        self.cpus.get(usize::from(stream)).copied().unwrap_or(0)
    }

    fn take(&mut self, found: NumberedFate, suspicion: Option<Suspicion>) {
        match suspicion {
            Some(_) if self.is_all_suspect => self.hand_over(&found, Some(true)),
            Some(Suspicion::Open) => self.open.push(found),
            suspicion => self.hand_over(&found, suspicion.map(|suspicion| suspicion == Suspicion::Suspect)),
        }
    }

    fn hand_over(&mut self, found: &NumberedFate, suspect: Option<bool>) {
        if self.has_ended {
            return;
        }
        self.names.learn_cache(found.cache.max(found.free_cache));
        self.names.learn_stack(found.stack);
        let (names, of) = (&self.names, found.object);
        let object = ObjectFate {
            comm: of.pid.and_then(|pid| names.comms.get(&pid)).map(|comm| &**comm),
            cgroup: names.owners.and_then(|owners| owners.cgroup(of.pid, of.at)),
            stack: names.stack(found.stack),
            cache: names.cache(found.cache),
            free: of.free.map(|free| ObjectFree { cache: names.cache(found.free_cache), ..free }),
            suspect,
            ..of
        };
        self.has_ended = self.sink.object(&object).is_break();
    }

    /// An object as the tables kept it.
    fn object(&mut self, fate: Fate, address: u64, info: &AllocInfo, class: &Class, cpu: u32) -> NumberedFate {
        let pid = (info.pid != NO_PID).then(|| info.pid.cast_signed());
        let object = ObjectFate {
            address,
            call_site: self.names.call_site(class.origin),
            requested: class.requested,
            allocated: class.allocated,
            reclaimable: self.names.owners.and_then(|_| class.reclaim.is_reclaimable()),
            ..alone(fate, (self.places.seq(info), info.at), (cpu, pid), class.kind)
        };
        NumberedFate { object, stack: self.names.stack_of_row(class.row), cache: class.cache, free_cache: 0 }
    }

    /// Hands over the live objects, oldest first; `classes` are theirs.
    pub(super) fn live(&mut self, mut live: Vec<Live>, classes: &[Class]) {
        live.sort_unstable_by_key(|object| self.places.seq(&object.alloc_info));
        for object in &live {
            let Some(class) = classes.get(object.class as usize) else { continue };
            let mut found = self.object(Fate::Live, object.address, &object.alloc_info, class, object.cpu);
            let of = &mut found.object;
            of.pages = match object.pages {
                Some(pages) => {
                    // The class has the sizes of the pages that are live.
                    let bytes = self.page_bytes.unwrap_or(0).saturating_mul(pages.allocated.into());
                    (of.requested, of.allocated) = (bytes, bytes);
                    Some(pages.into())
                }
                None => self.whole_block(class.kind, of.allocated, Fate::Live, false),
            };
            self.hand_over(&found, None);
            if self.has_ended {
                return;
            }
        }
    }
}

/// Event of its own, without an address, sizes and names.
fn alone(fate: Fate, (seq, at): (u64, u64), (cpu, pid): (u32, Option<i32>), kind: Kind) -> ObjectFate<'static> {
    ObjectFate {
        fate,
        seq,
        at,
        cpu,
        pid,
        comm: None,
        cgroup: None,
        reclaimable: None,
        address: 0,
        call_site: 0,
        kind,
        stack: &[],
        cache: None,
        requested: 0,
        allocated: 0,
        pages: None,
        end: None,
        free: None,
        suspect: None,
    }
}

/// Sink of one window's fates.
pub(super) struct WindowFates<'w, 'a> {
    pub(super) fates: &'w mut Fates<'a>,
    /// Events of the window.
    pub(super) events: &'w [Event],
}

impl PairingSink for WindowFates<'_, '_> {
    const FATES: bool = true;

    fn allocated(&mut self, _: Number, _: &Class, _: u64) {}

    fn freed(&mut self, _: Number, _: &Class, _: u64) {}

    fn decide_open(&mut self, open: OpenFindings) {
        match open {
            OpenFindings::Suspect => self.fates.decide(true),
            OpenFindings::Unexplained => self.fates.decide(false),
            OpenFindings::StillOpen => {}
        }
    }

    fn tie(&self, number: Number) -> u32 {
        self.fates.seq(number) as u32
    }

    fn ended(&mut self, object: &Ended, fate: Fate, event: &PairEvent, number: Number, suspicion: Suspicion) {
        let fates = &mut *self.fates;
        let cpu = fates.cpu(object.stream);
        let mut found = fates.object(fate, object.address, &object.info, &object.class, cpu);
        let of = &mut found.object;
        (of.requested, of.allocated) = object.sizes;
        of.end = Some(ObjectEnd { seq: fates.seq(number), at: event.at });
        let is_elsewhere = object.stream != event.stream;
        of.pages = object.pages.or_else(|| fates.whole_block(object.class.kind, of.allocated, fate, is_elsewhere));
        if fate == Fate::Pair {
            // Deferred and bulk frees go with either kind.
            let has_kind = !matches!(event.action, PairAction::Deferred | PairAction::BulkFree);
            let kind = if has_kind { event.kind } else { object.class.kind };
            // A free has its call-site in `requested` and its cache in `extra`.
            let (cpu, call_site) = (fates.cpu(event.stream), event.requested);
            of.free = Some(ObjectFree { cpu, call_site, kind, cache: None });
            found.free_cache = event.extra;
        }
        fates.take(found, Some(suspicion));
    }

    fn alone(&mut self, fate: Fate, event: &PairEvent, number: Number, suspicion: Option<Suspicion>) {
        let Some(of) = self.events.get(number.serial as usize) else { return };
        let fates = &mut *self.fates;
        let mut object = alone(fate, (fates.seq(number), event.at), (of.cpu, of.pid), event.kind);
        let (stack, cache) = if fate == Fate::Failed {
            object.requested = of.requested;
            let (call_site, stack, cache) = fates.names.of_class(event.class);
            object.call_site = call_site;
            (stack, cache)
        } else {
            (object.address, object.call_site) = (event.address, of.call_site);
            (0, event.extra)
        };
        let found = NumberedFate { object, stack, cache, free_cache: 0 };
        fates.take(found, suspicion);
    }
}

/// Names by their numbers, as far as they were needed.
struct FoundNames<'a> {
    classes: &'a Classes,
    comms: &'a HashMap<i32, Box<[u8]>>,
    owners: Option<Owners<'a>>,
    /// Call-sites of origins.
    sites: Vec<u64>,
    caches: Vec<Box<[u8]>>,
    /// Stacks of rows.
    rows: Vec<StackNumber>,
    /// Frames of stacks by their numbers less one.
    stacks: Vec<Box<[u64]>>,
}

impl FoundNames<'_> {
    fn call_site(&mut self, origin: u32) -> u64 {
        if self.sites.len() <= origin as usize {
            let sites = &mut self.sites;
            self.classes.sites_from(sites.len(), |site| sites.push(site));
        }
        self.sites.get(origin as usize).copied().unwrap_or(0)
    }

    #[inline]
    fn learn_cache(&mut self, number: CacheNumber) {
        if self.caches.len() < number as usize {
            let caches = &mut self.caches;
            self.classes.names_from(caches.len(), |name| caches.push(name.into()));
        }
    }

    fn cache(&self, number: CacheNumber) -> Option<&[u8]> {
        self.caches.get((number as usize).checked_sub(1)?).map(|name| &**name)
    }

    /// Number of the stack that a row is made of; 0 where rows are made of kinds.
    #[inline]
    fn stack_of_row(&mut self, row: u32) -> StackNumber {
        if self.rows.len() <= row as usize {
            let rows = &mut self.rows;
            self.classes.rows_from(rows.len(), |key| rows.push(u32::try_from(key.others).unwrap_or(0)));
        }
        self.rows.get(row as usize).copied().unwrap_or(0)
    }

    #[inline]
    fn learn_stack(&mut self, number: StackNumber) {
        while self.stacks.len() < number as usize {
            let next = u32::try_from(self.stacks.len()).unwrap_or(u32::MAX).saturating_add(1);
            self.stacks.push(self.classes.frames(next));
        }
    }

    fn stack(&self, number: StackNumber) -> &[u64] {
        let index = (number as usize).checked_sub(1);
        index.and_then(|index| self.stacks.get(index)).map_or(&[], |frames| frames)
    }

    /// Call-site, stack and cache of a class; failed allocations are rare.
    #[cold]
    fn of_class(&mut self, class: u32) -> (u64, StackNumber, CacheNumber) {
        let mut found = None;
        self.classes.from(class as usize, |class| {
            found.get_or_insert(*class);
        });
        found.map_or((0, 0, 0), |class| (self.call_site(class.origin), self.stack_of_row(class.row), class.cache))
    }
}

/// Places in the total order, of which the table keeps the low half: keys at which the high half changed tell the rest.
#[derive(Debug, Default)]
struct Places {
    high: u64,
    /// Keys of the first events of each high half from 1 on.
    keys: Vec<u64>,
}

impl Places {
    #[inline]
    fn add(&mut self, at: u64, seq: u64) {
        if seq >> 32 > self.high {
            self.high = seq >> 32;
            self.keys.push(at);
        }
    }

    /// Place of an allocation.
    #[inline]
    fn seq(&self, info: &AllocInfo) -> u64 {
        let low = u64::from(info.tie);
        if self.keys.is_empty() { low } else { self.high_half(info.at, low) << 32 | low }
    }

    /// High half of the place of an event with the key `at`: among events of the key at which it changes, those before have a low
    /// half that is large.
    #[cold]
    fn high_half(&self, at: u64, low: u64) -> u64 {
        let begun = self.keys.partition_point(|&key| key <= at);
        let is_before = begun > 0 && self.keys[begun - 1] == at && low >= 1 << 31;
        (begun - usize::from(is_before)) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table keeps 32 bits of a place: the key tells the rest, also among events of one key.
    #[test]
    fn a_place_is_found_again_from_its_key_and_its_low_half() {
        let mut places = Places::default();
        let around = |half: u64| ((half << 32) - 3..).zip([0, 5, 5, 5, 5, 9].map(|key| half * 10 + key));
        let events: Vec<(u64, u64)> = [(0, 1)].into_iter().chain((1..4).flat_map(around)).collect();
        events.iter().for_each(|&(seq, at)| places.add(at, seq));
        for (seq, at) in events {
            let info = AllocInfo { at, tie: seq as u32, pid: 0 };
            assert_eq!(places.seq(&info), seq, "{seq:#x} at {at}");
        }
    }
}
