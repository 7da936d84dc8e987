//! What each address was last seen doing: which object is live there, or that it was freed, and whether a gap has begun
//! since.
//!
//! An open-addressing table of 16-byte slots, four to a cache line, which is mostly all that an event touches: a freed
//! address keeps its slot, where its next object mostly comes soon. Where that would cost more than 16 bytes a freed
//! address, all freed ones move to a [`FreedSet`], so that memory stays within 48 bytes a live object, 16 a freed address
//! and a fixed part. Segments grow one by one: growing never needs twice the memory.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use crate::freed::FreedSet;
use crate::hashing::{Seed, place, split};
use crate::prefetch::prefetch;

/// An object that was allocated and not freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Object {
    /// Its class, below 2^29.
    pub(crate) class: u32,
    /// Number of the stream that it was allocated in.
    pub(crate) stream: u16,
    /// Bytes requested and allocated, where its class does not tell.
    pub(crate) own_sizes: Option<(u64, u64)>,
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

const FREED: u32 = 1 << 30;
const LIVE: u32 = 2 << 30;
/// The object has sizes of its own: they are in `Table::own_sizes`.
const OWN: u32 = 1 << 29;
const STATE: u32 = 3 << 30;

/// An address, and in one word, which the processor writes and soon reads again as one: state, `OWN` and class in 32
/// bits, above them stream and epoch. The word of an empty slot is 0.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    address: u64,
    word: u64,
}

impl Slot {
    #[inline(always)]
    fn new(address: u64, state: u32, stream: u16, epoch: Epoch) -> Slot {
        Slot { address, word: u64::from(state) | u64::from(stream) << 32 | u64::from(epoch) << 48 }
    }

    #[inline(always)]
    fn is_empty(self) -> bool {
        self.word == 0
    }

    #[inline(always)]
    fn is_live(self) -> bool {
        self.word as u32 & STATE == LIVE
    }

    #[inline(always)]
    fn has_own_sizes(self) -> bool {
        self.word as u32 & OWN != 0
    }

    #[inline(always)]
    fn epoch(self) -> Epoch {
        (self.word >> 48) as Epoch
    }

    #[inline(always)]
    fn object(self, own_sizes: Option<(u64, u64)>) -> Object {
        Object { class: self.word as u32 & (OWN - 1), stream: (self.word >> 32) as u16, own_sizes }
    }
}

const SLOTS: usize = 4;

/// A cache line of slots. Those that are empty come last.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
struct Line([Slot; SLOTS]);

impl Line {
    /// The slot of the address, or the first that is empty; `None`: neither is here.
    #[inline(always)]
    fn find(&self, address: u64) -> Option<usize> {
        // Without a branch for each slot: which one it is cannot be predicted.
        let bit = |n: usize| u32::from((self.0[n].address == address) | self.0[n].is_empty()) << n;
        let found = bit(0) | bit(1) | bit(2) | bit(3);
        (found != 0).then(|| found.trailing_zeros() as usize)
    }
}

const SEGMENTS: u32 = 64;
/// The fixed part of the memory: slots of all segments of all partitions that are there for the asking.
const FIXED_SLOTS: usize = 128 << 10;

#[derive(Debug, Default)]
struct Segment {
    lines: Vec<Line>,
    /// One a slot, or none.
    births: Vec<[Birth; SLOTS]>,
    /// Slots that are not empty.
    taken: usize,
    live: usize,
    /// Freed in the current epoch.
    freed: FreedSet,
    /// Freed before.
    freed_before: FreedSet,
}

/// The place of a slot: line and number in it.
type Place = (usize, usize);

/// The addresses of one space that belong to one partition.
#[derive(Debug)]
pub(crate) struct Table {
    seed: Seed,
    parts: u32,
    segments: Vec<Segment>,
    own_sizes: HashMap<u64, (u64, u64), RandomState>,
    epoch: Epoch,
    keeps_births: bool,
    /// Bytes of memory when something last grew.
    bytes: usize,
}

impl Table {
    /// For one of `parts` partitions.
    pub(crate) fn new(seed: Seed, parts: u32, keeps_births: bool) -> Table {
        let segments = (0..SEGMENTS).map(|_| Segment::default()).collect();
        Table { seed, parts, segments, own_sizes: HashMap::default(), epoch: 1, keeps_births, bytes: 0 }
    }

    /// Bytes of memory.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Something has grown.
    fn weigh(&mut self) {
        let own_sizes = self.own_sizes.capacity() * size_of::<(u64, u64, u64)>();
        self.bytes = self.segments.iter().map(Segment::bytes).sum::<usize>() + own_sizes;
    }

    /// What is left of a hash: the segment, and the place in it.
    #[inline(always)]
    fn locate(hash: u32, parts: u32) -> (usize, u32) {
        let (segment, rest) = split(split(hash, parts).1, SEGMENTS);
        (segment as usize, rest)
    }

    /// Starts loading what an event at an address of this hash will need.
    #[inline(always)]
    pub(crate) fn prefetch(&self, hash: u32) {
        let (segment, rest) = Table::locate(hash, self.parts);
        let lines = &self.segments[segment].lines;
        prefetch(lines, place(rest, lines.len()));
    }

    /// An object becomes live at `address`, whose hash is `hash`. Whatever was live there is not any more.
    #[inline(always)]
    pub(crate) fn alloc(&mut self, address: u64, hash: u32, epoch: Epoch, object: &Object, birth: Birth) -> Before {
        let (segment, (line, index)) = self.slot(address, hash);
        let slot = self.segments[segment].lines[line].0[index];
        let before = self.before(segment, slot, address, hash);
        let own = match object.own_sizes {
            None => 0,
            Some(sizes) => self.keep_sizes(address, sizes),
        };
        let state = LIVE | own | object.class & (OWN - 1);
        let segment = &mut self.segments[segment];
        segment.lines[line].0[index] = Slot::new(address, state, object.stream, epoch);
        if self.keeps_births {
            segment.births[line][index] = birth;
        }
        segment.live += usize::from(!slot.is_live());
        if slot.is_empty() {
            self.taken(hash);
        }
        before
    }

    /// An object is freed at `address`.
    #[inline(always)]
    pub(crate) fn free(&mut self, address: u64, hash: u32, epoch: Epoch) -> Before {
        let (segment, (line, index)) = self.slot(address, hash);
        let slot = self.segments[segment].lines[line].0[index];
        let before = self.before(segment, slot, address, hash);
        let segment = &mut self.segments[segment];
        segment.lines[line].0[index] = Slot::new(address, FREED, 0, epoch);
        segment.live -= usize::from(slot.is_live());
        if slot.is_empty() {
            self.taken(hash);
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
        self.weigh();
        if self.epoch == Epoch::MAX {
            // Numbers begin again, so none may be left of before.
            let lines = self.segments.iter_mut().flat_map(|segment| &mut segment.lines);
            lines.flat_map(|line| &mut line.0).for_each(|slot| slot.word &= u64::MAX >> 16);
            self.epoch = IN_GAP;
        }
        self.epoch += 1;
        self.epoch
    }

    /// How many objects are live.
    pub(crate) fn live_objects(&self) -> usize {
        self.segments.iter().map(|segment| segment.live).sum()
    }

    /// Live objects with their addresses, in no order.
    pub(crate) fn live(&self) -> impl Iterator<Item = (u64, Object, Birth)> {
        self.segments.iter().flat_map(Segment::live).map(|(slot, birth)| {
            let own_sizes = self.own_sizes.get(&slot.address).copied().filter(|_| slot.has_own_sizes());
            (slot.address, slot.object(own_sizes), birth)
        })
    }

    /// Where the address is, or the empty slot where it belongs.
    #[inline(always)]
    fn slot(&mut self, address: u64, hash: u32) -> (usize, Place) {
        let (segment, rest) = Table::locate(hash, self.parts);
        if self.segments[segment].lines.is_empty() {
            self.resize(segment, SLOTS, false);
        }
        (segment, self.segments[segment].find(address, rest))
    }

    /// What a slot says, and takes away what else is kept of its address.
    #[inline(always)]
    fn before(&mut self, segment: usize, slot: Slot, address: u64, hash: u32) -> Before {
        if slot.is_live() {
            let own_sizes = if slot.has_own_sizes() { self.own_sizes.remove(&address) } else { None };
            Before::Live(slot.epoch(), slot.object(own_sizes))
        } else if !slot.is_empty() {
            Before::Freed(slot.epoch())
        } else {
            self.freed_long_ago(segment, address, hash)
        }
    }

    #[inline(never)]
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
    fn keep_sizes(&mut self, address: u64, sizes: (u64, u64)) -> u32 {
        let before = self.own_sizes.capacity();
        self.own_sizes.insert(address, sizes);
        if self.own_sizes.capacity() > before {
            self.weigh();
        }
        OWN
    }

    /// An empty slot, where this hash belongs, has become somebody's.
    #[inline(always)]
    fn taken(&mut self, hash: u32) {
        let (number, _) = Table::locate(hash, self.parts);
        let segment = &mut self.segments[number];
        segment.taken += 1;
        if segment.taken * 4 > segment.lines.len() * SLOTS * 3 {
            self.make_room(number);
        }
    }

    /// The segment is full: more slots, as many as its live objects and freed addresses may cost.
    #[cold]
    fn make_room(&mut self, segment: usize) {
        let own = &self.segments[segment];
        let fixed = FIXED_SLOTS / (SEGMENTS * self.parts) as usize;
        let (live, taken) = (own.live, own.taken);
        // 40 bytes a live object and 14 a freed address: some of what segments leave behind is not used again at once.
        let allowed = live * 5 / 2 + (taken - live) * 7 / 8 + fixed;
        if allowed * 2 >= taken * 3 {
            self.resize(segment, allowed.min(taken * 2), false);
        } else {
            self.resize(segment, live * 2 + fixed, true);
        }
    }

    /// Moves a segment into new memory, or only its live objects.
    fn resize(&mut self, segment: usize, slots: usize, without_freed: bool) {
        let (seed, parts) = (self.seed, self.parts);
        let hash = |address| Table::locate(seed.hash(address), parts).1;
        let own = &mut self.segments[segment];
        let len = slots.div_ceil(SLOTS);
        let lines = std::mem::replace(&mut own.lines, vec![Line::default(); len]);
        let births = vec![[Birth::default(); SLOTS]; if self.keeps_births { len } else { 0 }];
        let births = std::mem::replace(&mut own.births, births);
        for (from, line) in lines.iter().enumerate() {
            for (number, slot) in line.0.iter().enumerate().filter(|(_, slot)| !slot.is_empty()) {
                if without_freed && !slot.is_live() {
                    own.taken -= 1;
                    let is_now = slot.epoch() == self.epoch;
                    let set = if is_now { &mut own.freed } else { &mut own.freed_before };
                    set.insert(slot.address, hash);
                    continue;
                }
                let (line, index) = own.find(slot.address, hash(slot.address));
                own.lines[line].0[index] = *slot;
                if let Some(births) = births.get(from) {
                    own.births[line][index] = births[number];
                }
            }
        }
        self.weigh();
    }
}

impl Segment {
    #[inline(always)]
    fn find(&self, address: u64, rest: u32) -> Place {
        let lines = self.lines.as_slice();
        let mut line = place(rest, lines.len());
        loop {
            if let Some(index) = lines[line].find(address) {
                return (line, index);
            }
            line = if line + 1 == lines.len() { 0 } else { line + 1 };
        }
    }

    fn live(&self) -> impl Iterator<Item = (&Slot, Birth)> {
        let births = self.births.iter().flatten().copied().chain(std::iter::repeat(Birth::default()));
        let slots = self.lines.iter().flat_map(|line| &line.0);
        slots.zip(births).filter(|(slot, _)| slot.is_live())
    }

    fn bytes(&self) -> usize {
        let births = self.births.capacity() * size_of::<[Birth; SLOTS]>();
        self.lines.capacity() * size_of::<Line>() + births + self.freed.bytes() + self.freed_before.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Against std's map, with so few fixed slots' worth of objects that freed addresses move out and back.
    #[test]
    fn it_knows_what_every_address_did_last() {
        let seed = Seed::random();
        for parts in [1, 3] {
            let mut table = Table::new(seed, parts, true);
            let mut known: HashMap<u64, Before> = HashMap::new();
            let (mut epoch, mut random) = (1, 1u64);
            for step in 0..160_000u64 {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                // Few live ones among many freed ones, then the other way round.
                let (address, allocates) = (random >> 47, (random >> 20) % 100 < if step < 100_000 { 30 } else { 80 });
                let hash = seed.hash(address);
                if step % 40_000 == 39_999 {
                    epoch = table.begin_epoch();
                }
                let own_sizes = (random >> 10).is_multiple_of(50).then_some((step, u64::MAX - step));
                let object = Object { class: (random >> 8) as u32 & 0xffff, stream: random as u16, own_sizes };
                let birth = Birth { at: step, serial: step, pid: 0 };
                let (before, now) = if allocates {
                    (table.alloc(address, hash, epoch, &object, birth), Before::Live(epoch, object))
                } else {
                    (table.free(address, hash, epoch), Before::Freed(epoch))
                };
                let expected = known.insert(address, now).unwrap_or(Before::Unknown);
                match (before, expected) {
                    // Of long ago it is only known that there was a gap.
                    (Before::Freed(IN_GAP), Before::Freed(then)) => assert_ne!(then, epoch),
                    (before, expected) => assert_eq!(before, expected),
                }
            }
            let live = |before: &Before| match before {
                Before::Live(_, object) => Some(*object),
                _ => None,
            };
            assert_eq!(table.live().count(), known.values().filter_map(live).count());
            for (address, object, birth) in table.live() {
                assert_eq!(known.get(&address).and_then(live), Some(object));
                assert!(object.own_sizes.is_none_or(|(step, _)| step == birth.at));
            }
        }
    }

    #[test]
    fn memory_stays_within_what_live_and_freed_addresses_may_cost() {
        let seed = Seed::random();
        let mut table = Table::new(seed, 1, false);
        let object = Object { class: 1, stream: 0, own_sizes: None };
        let (mut live, mut freed) = (0, 0);
        for address in 1..400_000u64 {
            let hash = seed.hash(address);
            table.alloc(address, hash, 1, &object, Birth::default());
            live += 1;
            // All stay at first, then one in ten.
            if address > 80_000 && address % 10 != 0 {
                table.free(address, hash, 1);
                (live, freed) = (live - 1, freed + 1);
            }
            if address % 1000 == 0 {
                let most = 48 * live + 16 * freed + (FIXED_SLOTS * 16) + (SEGMENTS as usize * 4096);
                assert!(table.bytes() <= most, "{} bytes for {live} live and {freed} freed", table.bytes());
            }
        }
    }
}
