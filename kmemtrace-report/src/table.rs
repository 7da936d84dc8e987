//! What each address was last seen doing: which object is live there, or that it was freed, and whether a gap has begun
//! since.
//!
//! An open-addressing table of 24-byte slots, one look-up an event, whatever it is: a freed address keeps its slot, where
//! its next object mostly comes soon. Where that would cost more than 16 bytes a freed address, all freed ones move to a
//! [`FreedSet`], so that memory stays within 48 bytes a live object, 16 a freed address and a fixed part. Segments grow
//! one by one: growing never needs twice the memory.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use crate::freed::FreedSet;
use crate::hashing::{Seed, place, split};
use crate::prefetch::prefetch;

/// An object that was allocated and not freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Object {
    pub(crate) requested: u64,
    pub(crate) allocated: u64,
    /// Its class, below 2^29.
    pub(crate) class: u32,
    /// Number of the stream that it was allocated in.
    pub(crate) stream: u16,
}

/// What only a list of live objects shows.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Birth {
    /// Order key of the allocation.
    pub(crate) at: u64,
    /// Its number in the total order.
    pub(crate) serial: u64,
    /// [`crate::decode::NO_PID`]: not known.
    pub(crate) pid: u32,
}

/// Between which gaps something happened: equal ones have none between them, [`IN_GAP`] is not even equal to itself.
pub(crate) type Epoch = u16;
/// Within a gap, or before the last one that is told apart.
pub(crate) const IN_GAP: Epoch = 0;

/// What an address was last seen doing, before an event; and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Before {
    /// Nothing in this trace.
    Unknown,
    /// It was freed.
    Freed(Epoch),
    /// It was allocated.
    Live(Epoch, Object),
}

const EMPTY: u32 = 0;
const FREED: u32 = 1 << 30;
const LIVE: u32 = 2 << 30;
/// The sizes did not fit and are in `Table::wide`.
const WIDE: u32 = 1 << 29;
const STATE: u32 = 3 << 30;

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    address: u64,
    requested: u32,
    allocated: u32,
    /// State, `WIDE`, class.
    word: u32,
    stream: u16,
    epoch: Epoch,
}

const SEGMENTS: u32 = 64;
const FIRST_SLOTS: usize = 16;
/// The fixed part of the memory: slots of all segments of all partitions that are there for the asking.
const FIXED_SLOTS: usize = 128 << 10;

#[derive(Debug, Default)]
struct Segment {
    slots: Vec<Slot>,
    /// As long as `slots`, or empty.
    births: Vec<Birth>,
    /// Slots that are not empty.
    taken: usize,
    live: usize,
    /// Freed in the current epoch.
    freed: FreedSet,
    /// Freed before.
    freed_before: FreedSet,
}

/// The addresses of one space that belong to one partition.
#[derive(Debug)]
pub(crate) struct Table {
    seed: Seed,
    parts: u32,
    segments: Vec<Segment>,
    wide: HashMap<u64, (u64, u64), RandomState>,
    epoch: Epoch,
    keeps_births: bool,
}

impl Table {
    /// For one of `parts` partitions.
    pub(crate) fn new(seed: Seed, parts: u32, keeps_births: bool) -> Table {
        let segments = (0..SEGMENTS).map(|_| Segment::default()).collect();
        Table { seed, parts, segments, wide: HashMap::default(), epoch: 1, keeps_births }
    }

    /// Bytes of memory.
    pub(crate) fn bytes(&self) -> usize {
        self.segments.iter().map(Segment::bytes).sum()
    }

    /// What is left of a hash: the segment, and the place in it.
    #[inline]
    fn locate(hash: u32, parts: u32) -> (usize, u32) {
        let (segment, rest) = split(split(hash, parts).1, SEGMENTS);
        (segment as usize, rest)
    }

    /// Starts loading what an event at an address of this hash will need.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u32) {
        let (segment, rest) = Table::locate(hash, self.parts);
        let slots = &self.segments[segment].slots;
        prefetch(slots, place(rest, slots.len()));
    }

    /// An object becomes live at `address`, whose hash is `hash`. Whatever was live there is not any more.
    #[inline]
    pub(crate) fn alloc(&mut self, address: u64, hash: u32, epoch: Epoch, object: &Object, birth: Birth) -> Before {
        let (segment, index) = self.slot(address, hash);
        let slot = self.segments[segment].slots[index];
        let before = self.before(segment, &slot, address, hash);
        let (requested, allocated) = (u32::try_from(object.requested), u32::try_from(object.allocated));
        let wide = match (requested, allocated) {
            (Ok(_), Ok(_)) => 0,
            _ => self.put_wide(address, object),
        };
        let own = &mut self.segments[segment];
        own.slots[index] = Slot {
            address,
            requested: requested.unwrap_or(0),
            allocated: allocated.unwrap_or(0),
            word: LIVE | wide | object.class & (WIDE - 1),
            stream: object.stream,
            epoch,
        };
        if self.keeps_births {
            own.births[index] = birth;
        }
        own.live += usize::from(slot.word & STATE != LIVE);
        if slot.word == EMPTY {
            self.taken(segment);
        }
        before
    }

    /// An object is freed at `address`.
    #[inline]
    pub(crate) fn free(&mut self, address: u64, hash: u32, epoch: Epoch) -> Before {
        let (segment, index) = self.slot(address, hash);
        let slot = self.segments[segment].slots[index];
        let before = self.before(segment, &slot, address, hash);
        let own = &mut self.segments[segment];
        own.slots[index] = Slot { address, word: FREED, epoch, ..Slot::default() };
        own.live -= usize::from(slot.word & STATE == LIVE);
        if slot.word == EMPTY {
            self.taken(segment);
        }
        before
    }

    /// A gap begins: what happened until now is told apart from what comes.
    pub(crate) fn begin_epoch(&mut self) -> Epoch {
        let (seed, parts) = (self.seed, self.parts);
        let hash = |address| Table::locate(seed.hash(address), parts).1;
        for segment in &mut self.segments {
            if !segment.freed.is_empty() {
                let addresses = segment.freed.drain();
                addresses.for_each(|address| segment.freed_before.insert(address, hash));
            }
        }
        if self.epoch == Epoch::MAX {
            // Numbers begin again, so none may be left of before.
            self.segments.iter_mut().flat_map(|s| &mut s.slots).for_each(|slot| slot.epoch = IN_GAP);
            self.epoch = IN_GAP;
        }
        self.epoch += 1;
        self.epoch
    }

    /// Live objects with their addresses, in no order.
    pub(crate) fn live(&self) -> impl Iterator<Item = (u64, Object, Birth)> {
        self.segments.iter().flat_map(Segment::live).map(|(slot, birth)| {
            let sizes = self.wide.get(&slot.address).filter(|_| slot.word & WIDE != 0);
            (slot.address, object(slot, sizes), birth)
        })
    }

    /// Where the address is, or the empty slot where it belongs.
    #[inline]
    fn slot(&mut self, address: u64, hash: u32) -> (usize, usize) {
        let (segment, rest) = Table::locate(hash, self.parts);
        if self.segments[segment].slots.is_empty() {
            self.resize(segment, FIRST_SLOTS, false);
        }
        (segment, self.segments[segment].find(address, rest))
    }

    /// What a slot says, and takes away what else is kept of its address.
    #[inline]
    fn before(&mut self, segment: usize, slot: &Slot, address: u64, hash: u32) -> Before {
        if slot.word & WIDE != 0 {
            return Before::Live(slot.epoch, object(slot, self.wide.remove(&address).as_ref()));
        }
        match slot.word & STATE {
            LIVE => Before::Live(slot.epoch, object(slot, None)),
            FREED => Before::Freed(slot.epoch),
            _ => self.freed_long_ago(segment, address, hash),
        }
    }

    fn freed_long_ago(&mut self, segment: usize, address: u64, hash: u32) -> Before {
        let (seed, parts) = (self.seed, self.parts);
        let hash_of = |of| Table::locate(if of == address { hash } else { seed.hash(of) }, parts).1;
        let segment = &mut self.segments[segment];
        if segment.freed.remove(address, hash_of) {
            Before::Freed(self.epoch)
        } else if segment.freed_before.remove(address, hash_of) {
            Before::Freed(IN_GAP)
        } else {
            Before::Unknown
        }
    }

    #[cold]
    fn put_wide(&mut self, address: u64, object: &Object) -> u32 {
        self.wide.insert(address, (object.requested, object.allocated));
        WIDE
    }

    /// An empty slot has become somebody's.
    #[inline]
    fn taken(&mut self, segment: usize) {
        let own = &mut self.segments[segment];
        own.taken += 1;
        if own.taken * 4 > own.slots.len() * 3 {
            self.make_room(segment);
        }
    }

    /// The segment is full: more slots, as many as its live objects and freed addresses may cost.
    #[cold]
    fn make_room(&mut self, segment: usize) {
        let own = &self.segments[segment];
        let fixed = FIXED_SLOTS / (SEGMENTS * self.parts) as usize;
        let (live, freed) = (own.live, own.taken - own.live);
        let len = 2 * live + freed * 2 / 3 + fixed.min(own.slots.len() * 2).max(FIRST_SLOTS);
        if own.taken * 5 <= len * 3 {
            self.resize(segment, len, false);
        } else {
            self.resize(segment, 2 * live + fixed.max(FIRST_SLOTS), true);
        }
    }

    /// Moves a segment into new memory, or only its live objects.
    fn resize(&mut self, segment: usize, len: usize, without_freed: bool) {
        let (seed, parts) = (self.seed, self.parts);
        let hash = |address| Table::locate(seed.hash(address), parts).1;
        let own = &mut self.segments[segment];
        let slots = std::mem::replace(&mut own.slots, vec![Slot::default(); len]);
        let births = vec![Birth::default(); if self.keeps_births { len } else { 0 }];
        let births = std::mem::replace(&mut own.births, births);
        for (from, slot) in slots.iter().enumerate().filter(|(_, slot)| slot.word != EMPTY) {
            if without_freed && slot.word == FREED {
                own.taken -= 1;
                let is_now = slot.epoch == self.epoch;
                let set = if is_now { &mut own.freed } else { &mut own.freed_before };
                set.insert(slot.address, hash);
                continue;
            }
            let index = own.find(slot.address, hash(slot.address));
            own.slots[index] = *slot;
            if let Some(birth) = births.get(from) {
                own.births[index] = *birth;
            }
        }
    }
}

impl Segment {
    #[inline]
    fn find(&self, address: u64, rest: u32) -> usize {
        let slots = self.slots.as_slice();
        let mut index = place(rest, slots.len());
        loop {
            let slot = &slots[index];
            if slot.address == address || slot.word == EMPTY {
                return index;
            }
            index = if index + 1 == slots.len() { 0 } else { index + 1 };
        }
    }

    fn live(&self) -> impl Iterator<Item = (&Slot, Birth)> {
        let births = self.births.iter().copied().chain(std::iter::repeat(Birth::default()));
        self.slots.iter().zip(births).filter(|(slot, _)| slot.word & STATE == LIVE)
    }

    fn bytes(&self) -> usize {
        let births = self.births.capacity() * size_of::<Birth>();
        self.slots.capacity() * size_of::<Slot>() + births + self.freed.bytes() + self.freed_before.bytes()
    }
}

#[inline]
fn object(slot: &Slot, wide: Option<&(u64, u64)>) -> Object {
    let (requested, allocated) = wide.copied().unwrap_or((slot.requested.into(), slot.allocated.into()));
    Object { requested, allocated, class: slot.word & (WIDE - 1), stream: slot.stream }
}
