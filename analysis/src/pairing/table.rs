//! What each address was last seen doing: which object is live there, or that it was freed, and whether a gap has begun
//! since.
//!
//! An open-addressing table of 16-byte slots, four to a cache line, which is mostly all that an event touches: a freed
//! address keeps its slot, where its next object mostly comes soon. Where that would cost more than 16 bytes a freed
//! address, all freed ones move to a [`FreedSet`], so that memory stays within 48 bytes a live object, 16 a freed address
//! and a fixed part. Addresses stand in the order of their hashes, more or less, however many slots there are: a table that
//! grows moves from the end of one memory to that of another, and never needs both.

use std::collections::HashMap;
use std::panic::resume_unwind;
use std::thread;

use foldhash::fast::RandomState;
use zerocopy::{FromZeros, Immutable};

use crate::memory::hashing::{Seed, place};
use crate::memory::prefetch::prefetch;
use crate::memory::zeroed::{DrainingArray, Memory, PIECE, ZeroedArray};
use crate::pairing::freed::FreedSet;

/// What only a list of live objects shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromZeros, Immutable)]
pub(crate) struct AllocInfo {
    /// Order key of the allocation.
    pub(crate) at: u64,
    /// What orders events of this key. From the 2^32th of them on they share one.
    pub(crate) tie: u32,
    /// [`crate::order::pair_event::NO_PID`]: not known.
    pub(crate) pid: u32,
}

/// Bytes requested and allocated.
pub(crate) type Sizes = (u64, u64);

/// Between which gaps something happened: equal ones have none between them, [`IN_GAP`] is not even equal to itself.
pub(crate) type LossEpoch = u16;
/// Within a gap, or before the last one that is told apart.
pub(crate) const IN_GAP: LossEpoch = 0;

const FREED: u32 = 1 << 30;
const LIVE: u32 = 2 << 30;
const STATE: u32 = 3 << 30;
/// The object has sizes of its own: they are in `Table::own_sizes`.
const OWN: u32 = 1 << 29;

/// What an address was last seen doing: nothing, or becoming an object of a class that was allocated in a stream, or being
/// freed; and in which epoch. One word, which the processor writes and soon reads again as one: state, `OWN` and class in
/// 32 bits, above them stream and epoch; 0 for nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromZeros, Immutable)]
pub(crate) struct SlotState(u64);

impl SlotState {
    /// An object becomes live, of a class below 2^29 and in the stream of this number.
    #[inline(always)]
    pub(crate) fn alloc(class: u32, is_unsized: bool, stream: u16, epoch: LossEpoch) -> SlotState {
        let own = if is_unsized { OWN } else { 0 };
        SlotState(u64::from(LIVE | own | class & (OWN - 1)) | u64::from(stream) << 32 | u64::from(epoch) << 48)
    }

    /// It is freed.
    #[inline(always)]
    pub(crate) fn free(epoch: LossEpoch) -> SlotState {
        SlotState(u64::from(FREED) | u64::from(epoch) << 48)
    }

    #[inline(always)]
    pub(crate) fn is_nothing(self) -> bool {
        self.0 == 0
    }

    #[inline(always)]
    pub(crate) fn is_live(self) -> bool {
        self.0 as u32 & STATE == LIVE
    }

    /// Of a live object.
    #[inline(always)]
    pub(crate) fn is_unsized(self) -> bool {
        self.0 as u32 & OWN != 0
    }

    /// Of a live object.
    #[inline(always)]
    pub(crate) fn class(self) -> u32 {
        self.0 as u32 & (OWN - 1)
    }

    /// Of a live object.
    #[inline(always)]
    pub(crate) fn stream(self) -> u16 {
        (self.0 >> 32) as u16
    }

    #[inline(always)]
    pub(crate) fn epoch(self) -> LossEpoch {
        (self.0 >> 48) as LossEpoch
    }

    fn forget_epoch(&mut self) {
        self.0 &= u64::MAX >> 16;
    }
}

/// An address; an empty slot has none.
#[derive(Clone, Copy, Debug, FromZeros, Immutable)]
struct Slot {
    address: u64,
    state: SlotState,
}

const SLOTS: usize = 4;

/// A cache line of slots. Those that are empty come last.
#[derive(Clone, Copy, Debug, FromZeros, Immutable)]
#[repr(align(64))]
struct Bucket([Slot; SLOTS]);

impl Bucket {
    /// The slot of the address, or the first that is empty; `None`: neither is here.
    #[inline(always)]
    fn find(&self, address: u64) -> Option<usize> {
        // Without a branch for each slot: which one it is cannot be predicted.
        let [a, b, c, d] = &self.0;
        let is = |slot: &Slot, bit: u32| u32::from(slot.address == address) << bit;
        let found = is(a, 0) | is(b, 1) | is(c, 2) | is(d, 3);
        if found == 0 { self.first_empty() } else { Some(found.trailing_zeros() as usize) }
    }

    /// Whether neither the slot of the address is here nor one that is empty.
    #[inline(always)]
    fn is_full_of_others(&self, address: u64) -> bool {
        let [a, b, c, d] = &self.0;
        let is_here = (a.address == address) | (b.address == address) | (c.address == address) | (d.address == address);
        !(is_here | d.state.is_nothing())
    }

    /// The first slot that is empty.
    #[inline(always)]
    fn first_empty(&self) -> Option<usize> {
        // How many are taken cannot be predicted, either.
        let taken = self.0.iter().map(|slot| usize::from(!slot.state.is_nothing())).sum::<usize>();
        (taken < SLOTS).then_some(taken)
    }
}

/// The fixed part of the memory: slots of all partitions that are there for the asking. Few in tests, so that short traces, too,
/// make tables grow.
pub(crate) const FIXED_SLOTS: usize = if cfg!(test) { 24 } else { 128 << 10 };
/// Those of a table that is new: a page, if so many are there for the asking.
const FIRST_SLOTS: usize = 256;
const BUCKETS_PER_PIECE: usize = PIECE / size_of::<Bucket>();
/// 16 MiB. Of less than that, most of what is looked at is in some cache, and [`Table::prefetch_next`] takes longer than it saves.
const CACHED_BUCKETS: usize = if cfg!(test) { 2 } else { 256 << 10 };
/// A table that grows asks for lines when it is so many away from them.
const SOON: usize = 32;

/// What may be spent on slots: a live object may cost 48 bytes and a freed address 16, all that is kept of it included.
#[derive(Clone, Copy, Debug)]
struct Costs {
    slot_bytes: usize,
    /// A live object's share of the slots.
    live_bytes: usize,
    /// That of a freed address.
    freed_bytes: usize,
    /// Eighths of the slots that may be taken: the more, the longer it takes to find one.
    max_taken: usize,
}

const COSTS: Costs = Costs { slot_bytes: size_of::<Slot>(), live_bytes: 40, freed_bytes: 14, max_taken: 6 };
const COSTS_WITH_ALLOC_INFOS: Costs =
    Costs { slot_bytes: size_of::<Slot>() + size_of::<AllocInfo>(), live_bytes: 45, freed_bytes: 14, max_taken: 7 };

/// The place of a slot: line and number in it.
type Place = (usize, usize);

/// The addresses of one space that belong to one partition.
#[derive(Debug)]
pub(crate) struct Table {
    seed: Seed,
    buckets: ZeroedArray<Bucket>,
    /// One a slot; what it says of those that are not live means nothing.
    alloc_infos: Option<ZeroedArray<[AllocInfo; SLOTS]>>,
    /// Slots that are not empty.
    taken: usize,
    /// Freed in the current epoch.
    freed: FreedSet,
    /// Freed before.
    freed_before: FreedSet,
    own_sizes: HashMap<u64, Sizes, RandomState>,
    epoch: LossEpoch,
    costs: Costs,
    /// Slots that are there for the asking, once a sixteenth of them is taken.
    fixed: usize,
    /// Whether a thread of its own moves half of it when it grows.
    moves_in_halves: bool,
    /// Bytes of memory when something last grew.
    bytes: usize,
    /// That it may take.
    max_bytes: usize,
    over_budget: bool,
}

impl Table {
    /// With `fixed` slots that are there for the asking.
    pub(crate) fn new(seed: Seed, fixed: usize, keeps_alloc_infos: bool) -> Table {
        let (buckets, alloc_infos) = new_slots(FIRST_SLOTS.min(fixed), keeps_alloc_infos);
        Table {
            seed,
            buckets,
            alloc_infos,
            taken: 0,
            freed: FreedSet::default(),
            freed_before: FreedSet::default(),
            own_sizes: HashMap::default(),
            epoch: 1,
            costs: if keeps_alloc_infos { COSTS_WITH_ALLOC_INFOS } else { COSTS },
            fixed,
            moves_in_halves: false,
            bytes: 0,
            max_bytes: usize::MAX,
            over_budget: false,
        }
    }

    /// When it grows, a thread of its own moves half of it.
    pub(crate) fn move_in_halves(&mut self) {
        self.moves_in_halves = true;
    }

    /// Bytes of memory.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// It grows to no more than so many bytes, until [`Table::over_budget`].
    #[inline]
    pub(crate) fn set_max_bytes(&mut self, max_bytes: usize) {
        self.max_bytes = max_bytes;
    }

    /// It needed more, and what it says from then on may be wrong. It may be used on, and grows when it must, but should not be
    /// used for long.
    #[inline]
    pub(crate) fn over_budget(&self) -> bool {
        self.over_budget
    }

    /// Something has grown.
    fn weigh(&mut self) {
        let slots = self.buckets.len() * SLOTS * self.costs.slot_bytes;
        self.bytes = slots + self.freed.bytes() + self.freed_before.bytes() + self.own_sizes_bytes();
    }

    /// Starts loading what an event at an address of this hash will need; whether it is an allocation.
    #[inline(always)]
    pub(crate) fn prefetch(&self, hash: u32, allocates: bool) {
        let buckets = &*self.buckets;
        let bucket = place(hash, buckets.len());
        prefetch(buckets, bucket);
        if let Some(alloc_infos) = &self.alloc_infos {
            // Without a branch: what an event is cannot be predicted. The first line is mostly there.
            prefetch(alloc_infos, bucket * usize::from(allocates));
        }
    }

    /// Whether [`Table::prefetch_next`] is worth its time.
    #[inline(always)]
    pub(crate) fn is_large(&self) -> bool {
        self.buckets.len() > CACHED_BUCKETS
    }

    /// Starts loading the next line where that of this hash, which has come by now, has neither the address nor room for it: for one
    /// event in five while a table fills, one in fourteen afterwards.
    #[inline(always)]
    pub(crate) fn prefetch_next(&self, address: u64, hash: u32, allocates: bool) {
        let buckets = &*self.buckets;
        let bucket = place(hash, buckets.len());
        // Without a branch: which lines are full cannot be predicted. What follows the last line is not asked for.
        let next = bucket + usize::from(buckets[bucket].is_full_of_others(address));
        prefetch(buckets, next);
        if let Some(alloc_infos) = &self.alloc_infos {
            prefetch(alloc_infos, next * usize::from(allocates));
        }
    }

    /// What an address, whose hash is `hash`, is seen doing now, with the alloc_info of what becomes live; returns what it was seen
    /// doing before. Where that had sizes of its own, they are for the caller to take.
    #[inline(always)]
    pub(crate) fn record(
        &mut self,
        address: u64,
        hash: u32,
        now: SlotState,
        alloc_info: impl FnOnce() -> Option<AllocInfo>,
    ) -> SlotState {
        let (bucket, index) = self.probe(hash, |bucket| bucket.find(address));
        let slot = Slot { address, state: now };
        let before = std::mem::replace(&mut self.buckets[bucket].0[index], slot).state;
        if let Some(alloc_infos) = &mut self.alloc_infos
            && let Some(alloc_info) = alloc_info()
        {
            alloc_infos[bucket][index] = alloc_info;
        }
        if before.is_nothing() { self.record_first(address, hash) } else { before }
    }

    /// An address has been given an empty slot: it may have been freed long ago.
    #[cold]
    fn record_first(&mut self, address: u64, hash: u32) -> SlotState {
        let seed = self.seed;
        let hash_of = |of| if of == address { hash } else { seed.hash(of) };
        let before = if self.freed.remove(address, hash_of) {
            SlotState::free(self.epoch)
        } else if self.freed_before.remove(address, hash_of) {
            SlotState::free(IN_GAP)
        } else {
            SlotState::default()
        };
        self.taken += 1;
        if self.taken * 8 > self.buckets.len() * SLOTS * self.costs.max_taken {
            self.make_room();
        }
        before
    }

    /// The object that is live at this address has sizes of its own.
    #[cold]
    pub(crate) fn keep_sizes(&mut self, address: u64, sizes: Sizes) {
        let before = self.own_sizes.capacity();
        if self.own_sizes.len() == before && self.bytes + 2 * self.own_sizes_bytes() > self.max_bytes {
            self.over_budget = true;
            return;
        }
        self.own_sizes.insert(address, sizes);
        if self.own_sizes.capacity() > before {
            self.weigh();
        }
    }

    /// The sizes of the object that was live at this address.
    #[cold]
    pub(crate) fn take_sizes(&mut self, address: u64) -> Option<Sizes> {
        self.own_sizes.remove(&address)
    }

    /// A gap begins: what happened until now is told apart from what comes.
    pub(crate) fn begin_epoch(&mut self) -> LossEpoch {
        let seed = self.seed;
        if self.freed_before.len() == 0 {
            std::mem::swap(&mut self.freed, &mut self.freed_before);
        } else if self.freed.len() > 0 {
            let more = self.freed_before.bytes_with(self.freed.len()).saturating_sub(self.freed_before.bytes());
            if self.bytes + more > self.max_bytes {
                self.over_budget = true;
                return self.epoch;
            }
            let hash = |address| seed.hash(address);
            let mut growing = std::mem::take(&mut self.freed_before).grow(self.freed.len());
            self.freed.drain().for_each(|address| growing.insert(address, hash));
            self.freed_before = growing.into_set(hash);
        }
        self.weigh();
        if self.epoch == LossEpoch::MAX {
            // Numbers begin again, so none may be left of before.
            self.buckets.iter_mut().flat_map(|bucket| &mut bucket.0).for_each(|slot| slot.state.forget_epoch());
            self.epoch = IN_GAP;
        }
        self.epoch += 1;
        self.epoch
    }

    /// How many objects are live.
    pub(crate) fn live_objects(&self) -> usize {
        self.slots().filter(|slot| slot.state.is_live()).count()
    }

    /// Forgets all addresses; hands the live objects among them to `take`, in no order, with the sizes that their classes do
    /// not tell. What takes their place needs as much memory, so theirs is given back on the way.
    pub(crate) fn drain_live(&mut self, mut take: impl FnMut(u64, SlotState, Option<Sizes>, AllocInfo)) {
        let empty = Table::new(self.seed, 0, self.alloc_infos.is_some());
        let Table { buckets, alloc_infos, mut own_sizes, .. } = std::mem::replace(self, empty);
        OldHalf::new(buckets, alloc_infos).each_taken(|slot, alloc_info| {
            if slot.state.is_live() {
                let sizes = if slot.state.is_unsized() { own_sizes.remove(&slot.address) } else { None };
                take(slot.address, slot.state, sizes, alloc_info);
            }
        });
    }

    /// It is full: more slots, as many as its live objects and freed addresses may cost.
    #[cold]
    fn make_room(&mut self) {
        let (taken, slots) = (self.taken, self.buckets.len() * SLOTS);
        // Soon somebody will see that it is over.
        let can_wait = taken * 16 < slots * 15;
        if self.over_budget && can_wait {
            return;
        }
        let freed_now = SlotState::free(self.epoch);
        let (mut live, mut now) = (0, 0);
        for bucket in self.buckets.iter() {
            live += bucket.0.iter().map(|slot| usize::from(slot.state.is_live())).sum::<usize>();
            now += bucket.0.iter().map(|slot| usize::from(slot.state == freed_now)).sum::<usize>();
        }
        let before = taken - live - now;
        let Costs { slot_bytes, live_bytes, freed_bytes, max_taken } = self.costs;
        let fixed = self.fixed;
        // At first in large steps: a short trace touches little, a longer one soon has what is there for the asking.
        let allowed = |freed| match slots * 2 < fixed {
            true => fixed.min(taken * 16),
            false => (live * live_bytes + freed * freed_bytes) / slot_bytes + fixed,
        };
        // Not so that it is soon full again.
        let is_roomy = |slots: usize, taken: usize| slots * max_taken >= taken * 9;
        let sets = |now, before| self.freed.bytes_with(now) + self.freed_before.bytes_with(before);
        let left = |sets: usize| self.max_bytes.saturating_sub(sets + self.own_sizes_bytes());
        let most = |sets: usize| left(sets) / (slot_bytes * SLOTS) * SLOTS;
        let with_freed = allowed(taken - live).min(most(sets(0, 0)));
        let without = allowed(0).min(live * 2 + fixed);
        let without_at_most = without.min(most(sets(now, before)));
        if is_roomy(with_freed, taken) {
            self.resize(with_freed, None);
        } else if is_roomy(without_at_most, live) {
            self.resize(without_at_most, Some((now, before)));
        } else {
            self.over_budget = true;
            if !can_wait {
                self.resize(without, Some((now, before)));
            }
        }
    }

    /// Moves it into new memory; or, where it is told how many addresses were freed in this epoch and before, only its live objects.
    fn resize(&mut self, slots_wanted: usize, freed: Option<(usize, usize)>) {
        let seed = self.seed;
        let hash = |address| seed.hash(address);
        let (now, before) = freed.unwrap_or_default();
        let mut freed_now = std::mem::take(&mut self.freed).grow(now);
        let mut freed_before = std::mem::take(&mut self.freed_before).grow(before);
        let (buckets, alloc_infos) = new_slots(slots_wanted, self.alloc_infos.is_some());
        let (buckets, alloc_infos) =
            (std::mem::replace(&mut self.buckets, buckets), std::mem::replace(&mut self.alloc_infos, alloc_infos));
        let is_shared = self.moves_in_halves && freed.is_none() && self.buckets.len() > CACHED_BUCKETS;
        let middle = if is_shared { buckets.len() / 2 } else { 0 };
        // The least hash that belongs into the second half.
        let least = ((middle as u64) << 32).div_ceil(buckets.len() as u64) as u32;
        let [old_lower, old_upper] = OldHalf::new(buckets, alloc_infos).split(middle);
        let (buckets, memory) = self.buckets.with_memory();
        let of = buckets.len();
        let fresh = NewHalf { buckets, alloc_infos: self.alloc_infos.as_deref_mut(), first: 0, of, memory };
        let [lower, upper] = fresh.split(place(least, of));
        let strays = if is_shared {
            fill_both((lower, old_lower), (upper, old_upper), seed)
        } else {
            upper.fill(old_upper, seed, |slot| {
                let leaves = freed.is_some() && !slot.state.is_live();
                if leaves {
                    self.taken -= 1;
                    let set = if slot.state.epoch() == self.epoch { &mut freed_now } else { &mut freed_before };
                    set.insert(slot.address, hash);
                }
                leaves
            })
        };
        for (slot, alloc_info) in strays {
            let (bucket, index) = self.probe(hash(slot.address), Bucket::first_empty);
            self.buckets[bucket].0[index] = slot;
            if let Some(alloc_infos) = &mut self.alloc_infos {
                alloc_infos[bucket][index] = alloc_info;
            }
        }
        (self.freed, self.freed_before) = (freed_now.into_set(hash), freed_before.into_set(hash));
        self.weigh();
    }

    fn slots(&self) -> impl Iterator<Item = &Slot> {
        self.buckets.iter().flat_map(|bucket| &bucket.0)
    }

    fn own_sizes_bytes(&self) -> usize {
        // At most seven eighths of its places are taken, and each has a byte beside it.
        self.own_sizes.capacity() * 8 / 7 * (size_of::<(u64, Sizes)>() + 1)
    }

    /// The first line from that of `hash` on where `find` finds a slot.
    #[inline(always)]
    fn probe(&self, hash: u32, find: impl Fn(&Bucket) -> Option<usize>) -> Place {
        let buckets = &*self.buckets;
        let mut bucket = place(hash, buckets.len());
        loop {
            if let Some(index) = find(&buckets[bucket]) {
                return (bucket, index & (SLOTS - 1));
            }
            bucket = if bucket + 1 == buckets.len() { 0 } else { bucket + 1 };
        }
    }
}

/// At least so many slots, which are empty, and what belongs to them.
fn new_slots(slots: usize, with_alloc_infos: bool) -> (ZeroedArray<Bucket>, Option<ZeroedArray<[AllocInfo; SLOTS]>>) {
    let len = slots.div_ceil(SLOTS).max(1);
    (ZeroedArray::new(len), with_alloc_infos.then(|| ZeroedArray::new(len)))
}

/// Lines that a table had, and their alloc_infos.
struct OldHalf {
    buckets: DrainingArray<Bucket>,
    alloc_infos: Option<DrainingArray<[AllocInfo; SLOTS]>>,
}

impl OldHalf {
    fn new(buckets: ZeroedArray<Bucket>, alloc_infos: Option<ZeroedArray<[AllocInfo; SLOTS]>>) -> OldHalf {
        OldHalf { buckets: buckets.into_draining(), alloc_infos: alloc_infos.map(ZeroedArray::into_draining) }
    }

    /// Those before `middle`, and those from there on.
    fn split(self, middle: usize) -> [OldHalf; 2] {
        let [lower, upper] = self.buckets.split(middle);
        let (lower_infos, upper_infos) = self.alloc_infos.map(|alloc_infos| alloc_infos.split(middle).into()).unzip();
        [OldHalf { buckets: lower, alloc_infos: lower_infos }, OldHalf { buckets: upper, alloc_infos: upper_infos }]
    }

    /// Hands each slot that is not empty to `take`, from the last line on; the memory of those lines is given back on the way.
    #[inline(always)]
    fn each_taken(mut self, mut take: impl FnMut(Slot, AllocInfo)) {
        while let Some(Bucket(slots)) = self.buckets.take_last() {
            let alloc_infos = self.alloc_infos.as_mut().and_then(DrainingArray::take_last).unwrap_or_default();
            for (slot, alloc_info) in slots.into_iter().zip(alloc_infos) {
                if slot.state.is_nothing() {
                    break;
                }
                take(slot, alloc_info);
            }
        }
    }
}

/// Lines of a table that grows, and their alloc_infos: all, or one half of them.
struct NewHalf<'a> {
    buckets: &'a mut [Bucket],
    alloc_infos: Option<&'a mut [[AllocInfo; SLOTS]]>,
    /// Number of the first.
    first: usize,
    /// Lines of the whole table.
    of: usize,
    memory: Memory<'a>,
}

impl<'a> NewHalf<'a> {
    /// Those before `middle`, and those from there on.
    fn split(self, middle: usize) -> [NewHalf<'a>; 2] {
        let NewHalf { buckets, alloc_infos, first, of, memory } = self;
        let (lower, upper) = buckets.split_at_mut(middle);
        let (lower_infos, upper_infos) = alloc_infos.map(|alloc_infos| alloc_infos.split_at_mut(middle)).unzip();
        [
            NewHalf { buckets: lower, alloc_infos: lower_infos, first, of, memory },
            NewHalf { buckets: upper, alloc_infos: upper_infos, first: first + middle, of, memory },
        ]
    }

    /// Takes what `old` has, but what `leaves`. Returns what has no place here: it belongs to the other half, or would stand behind
    /// the last line.
    #[inline(always)]
    fn fill(self, old: OldHalf, seed: Seed, mut leaves: impl FnMut(&Slot) -> bool) -> Vec<(Slot, AllocInfo)> {
        let NewHalf { buckets, mut alloc_infos, first, of, memory } = self;
        let mut strays = Vec::new();
        let mut entered = usize::MAX;
        old.each_taken(|slot, alloc_info| {
            if leaves(&slot) {
                return;
            }
            let home = place(seed.hash(slot.address), of);
            let Some(mut bucket) = home.checked_sub(first).filter(|&bucket| bucket < buckets.len()) else {
                return strays.push((slot, alloc_info));
            };
            let piece = home / BUCKETS_PER_PIECE;
            if piece < entered {
                memory.populate(piece);
                entered = piece;
            }
            prefetch(buckets, bucket.saturating_sub(SOON));
            let index = loop {
                let Some(at) = buckets.get(bucket) else { return strays.push((slot, alloc_info)) };
                match at.first_empty() {
                    Some(index) => break index & (SLOTS - 1),
                    None => bucket += 1,
                }
            };
            buckets[bucket].0[index] = slot;
            if let Some(alloc_infos) = &mut alloc_infos {
                alloc_infos[bucket][index] = alloc_info;
            }
        });
        strays
    }
}

/// Fills the lower half on a thread of its own, if the system has one to give. Returns what has no place in its half.
fn fill_both(lower: (NewHalf<'_>, OldHalf), upper: (NewHalf<'_>, OldHalf), seed: Seed) -> Vec<(Slot, AllocInfo)> {
    let mut lower = Some(lower);
    let mut fill_lower = || lower.take().map_or_else(Vec::new, |(fresh, old)| fresh.fill(old, seed, |_| false));
    let mut strays = thread::scope(|scope| {
        let helper = thread::Builder::new().spawn_scoped(scope, &mut fill_lower);
        let (fresh, old) = upper;
        let mut strays = fresh.fill(old, seed, |_| false);
        if let Ok(helper) = helper {
            strays.extend(helper.join().unwrap_or_else(|panic| resume_unwind(panic)));
        }
        strays
    });
    strays.extend(fill_lower());
    strays
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::hashing::part;

    /// Of a program's tables.
    const FIXED: usize = 128 << 10;

    /// Against std's map, with so few fixed slots' worth of objects that freed addresses move out and back.
    #[test]
    fn it_knows_what_every_address_did_last() {
        let seed = Seed::random();
        for (parts, in_halves) in [(1, false), (1, true), (3, false)] {
            let mut table = Table::new(seed, FIXED / parts as usize, true);
            table.moves_in_halves = in_halves;
            let mut known: HashMap<u64, (SlotState, Option<Sizes>)> = HashMap::new();
            let (mut epoch, mut random) = (1, 1u64);
            for step in 0..160_000u64 {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                // Few live ones among many freed ones, then the other way round.
                let (address, allocates) = (random >> 47, (random >> 20) % 100 < if step < 100_000 { 30 } else { 80 });
                let hash = seed.hash(address);
                if part(hash, parts) != 0 {
                    continue;
                }
                if step % 40_000 == 39_999 {
                    epoch = table.begin_epoch();
                }
                let own_sizes = (allocates && (random >> 10).is_multiple_of(50)).then_some((step, u64::MAX - step));
                let (class, stream) = ((random >> 8) as u32 & 0xffff, random as u16);
                let now = match allocates {
                    true => SlotState::alloc(class, own_sizes.is_some(), stream, epoch),
                    false => SlotState::free(epoch),
                };
                let before =
                    table.record(address, hash, now, || allocates.then_some(AllocInfo { at: step, tie: 0, pid: 0 }));
                let sizes_before = if before.is_unsized() { table.take_sizes(address) } else { None };
                if let Some(sizes) = own_sizes {
                    table.keep_sizes(address, sizes);
                }
                let (expected, sizes_expected) = known.insert(address, (now, own_sizes)).unwrap_or_default();
                assert_eq!(sizes_before, sizes_expected);
                if before == SlotState::free(IN_GAP) {
                    // Of long ago it is only known that there was a gap.
                    assert!(!expected.is_live() && !expected.is_nothing() && expected.epoch() != epoch);
                } else {
                    assert_eq!(before, expected);
                }
            }
            let live = known.values().filter(|(state, _)| state.is_live()).count();
            let mut listed = 0;
            table.drain_live(|address, state, own_sizes, alloc_info| {
                assert_eq!(known.get(&address), Some(&(state, own_sizes)));
                assert!(own_sizes.is_none_or(|(step, _)| step == alloc_info.at));
                listed += 1;
            });
            assert_eq!((listed, table.live_objects()), (live, 0));
        }
    }

    #[test]
    fn however_many_partitions_there_are_it_grows() {
        for (parts, keeps_alloc_infos) in (1..=256).flat_map(|parts| [(parts, false), (parts, true)]) {
            let seed = Seed::random();
            let fixed = FIXED / parts;
            let mut table = Table::new(seed, fixed, keeps_alloc_infos);
            let addresses = 3 * fixed;
            for address in 1..=addresses as u64 {
                table.record(address, seed.hash(address), SlotState::alloc(1, false, 0, 1), || {
                    Some(AllocInfo::default())
                });
                assert!(!table.over_budget(), "{parts} partitions, at address {address}");
            }
            assert_eq!(table.live_objects(), addresses);
        }
    }

    #[test]
    fn it_grows_no_further_than_it_may_and_says_so() {
        // Those that stay live, in percent: slots are what it needs more of, or the set of freed ones.
        for percent in [100, 1] {
            let seed = Seed::random();
            let mut table = Table::new(seed, FIXED, false);
            let most = 20 << 20;
            table.set_max_bytes(most);
            let mut addresses = 0u64;
            let see = |table: &mut Table, address: u64| {
                table.record(address, seed.hash(address), SlotState::alloc(1, false, 0, 1), || {
                    Some(AllocInfo::default())
                });
                if address % 100 >= percent {
                    table.record(address, seed.hash(address), SlotState::free(1), || None);
                }
            };
            while !table.over_budget() {
                addresses += 1;
                see(&mut table, addresses);
                assert!(table.bytes() <= most, "{} bytes", table.bytes());
            }
            assert!(table.bytes() > most / 2, "{} bytes for {addresses} addresses", table.bytes());
            // Nobody looks for a while.
            let later = addresses + 300_000;
            (addresses + 1..=later).for_each(|address| see(&mut table, address));
            assert_eq!(
                table.live_objects() as u64,
                (1..=later).filter(|address| address % 100 < percent).count() as u64
            );
            let known = table.record(later, seed.hash(later), SlotState::free(1), || None);
            assert!(if later % 100 < percent { known.is_live() } else { known == SlotState::free(1) });
        }
    }

    /// Numbers of epochs begin again after 65,535 gaps. An event before them is never taken for one after.
    #[test]
    fn an_epoch_with_the_number_of_an_older_one_is_another() {
        let seed = Seed::random();
        let mut table = Table::new(seed, FIXED, false);
        let see = |table: &mut Table, address, now| table.record(address, seed.hash(address), now, || None);
        see(&mut table, 7, SlotState::alloc(5, false, 3, 1));
        see(&mut table, 8, SlotState::free(1));
        let gaps = (1..).take_while(|_| table.begin_epoch() != 1).count();
        assert_eq!(gaps, usize::from(LossEpoch::MAX) - 1);
        see(&mut table, 9, SlotState::free(1));
        let before = see(&mut table, 7, SlotState::free(1));
        assert_eq!((before.class(), before.stream(), before.epoch()), (5, 3, IN_GAP));
        assert_eq!(see(&mut table, 8, SlotState::free(1)).epoch(), IN_GAP);
        assert_eq!(see(&mut table, 9, SlotState::free(1)), SlotState::free(1));
    }

    /// Freed addresses that have left the slots are told apart by the last gap, however many gaps there were.
    #[test]
    fn frees_before_a_gap_stay_apart_from_those_after() {
        let seed = Seed::random();
        let mut table = Table::new(seed, 24, false);
        let see = |table: &mut Table, address, now| table.record(address, seed.hash(address), now, || None);
        let mut epoch = 1;
        for round in 0..5 {
            let own = round * 1000..(round + 1) * 1000;
            for address in own.clone() {
                assert!(see(&mut table, address, SlotState::free(epoch)).is_nothing());
            }
            assert!(table.freed.len() > 500, "{} have left the slots", table.freed.len());
            if round == 4 {
                break;
            }
            epoch = table.begin_epoch();
        }
        for address in 0..5000 {
            let before = see(&mut table, address, SlotState::free(epoch));
            assert!(!before.is_live() && !before.is_nothing(), "address {address}");
            assert_eq!(before.epoch() == epoch, address >= 4000, "address {address}");
        }
    }

    /// What an address did is one word: no part of it changes another.
    #[test]
    fn class_sizes_stream_and_epoch_are_kept_apart() {
        for class in [0, 1, 0x1234_5678, OWN - 1] {
            for (stream, epoch, is_unsized) in [(0, 0, true), (u16::MAX, 1, false), (7, LossEpoch::MAX, true)] {
                let state = SlotState::alloc(class, is_unsized, stream, epoch);
                assert!(state.is_live() && !state.is_nothing());
                assert_eq!((state.class(), state.is_unsized()), (class, is_unsized));
                assert_eq!((state.stream(), state.epoch()), (stream, epoch));
                let freed = SlotState::free(epoch);
                assert!(!freed.is_live() && !freed.is_nothing() && freed.epoch() == epoch);
                assert!(!freed.is_unsized());
            }
        }
    }

    /// Sizes that objects have of their own, and addresses freed before a gap, count towards the limit as slots do.
    #[test]
    fn sizes_and_old_frees_grow_no_further_than_they_may() {
        for is_unsized in [true, false] {
            let seed = Seed::random();
            let mut table = Table::new(seed, 100, false);
            let most = 1 << 20;
            table.set_max_bytes(most);
            let mut address = 0;
            while !table.over_budget() {
                address += 1;
                let hash = seed.hash(address);
                let epoch = table.epoch;
                table.record(address, hash, SlotState::alloc(1, is_unsized, 0, epoch), || None);
                if is_unsized {
                    table.keep_sizes(address, (address, address));
                } else {
                    table.record(address, hash, SlotState::free(epoch), || None);
                    if address % 1000 == 0 {
                        table.begin_epoch();
                    }
                }
                assert!(table.bytes() <= most, "{} bytes at {address}", table.bytes());
            }
            assert!(table.bytes() > most / 4, "{} bytes at {address}", table.bytes());
            assert!(address > most as u64 / 400, "over at {address}");
            if is_unsized {
                // 24 bytes, at most seven eighths of the places are taken, and each is known.
                assert!(table.own_sizes_bytes() >= table.own_sizes.len() * 25);
                assert_eq!(table.take_sizes(1), Some((1, 1)));
                assert_eq!(table.take_sizes(1), None);
            }
        }
    }

    /// A table that grows in halves, with a thread for one of them, keeps every address and what else is known of it.
    #[test]
    fn growth_in_halves_loses_nothing() {
        for keeps_alloc_infos in [false, true] {
            let seed = Seed::random();
            let mut table = Table::new(seed, 64, keeps_alloc_infos);
            table.move_in_halves();
            let alloc_info = |address: u64| AllocInfo { at: address * 3, tie: address as u32, pid: 9 };
            for address in 0..30_000u64 {
                let now = SlotState::alloc(address as u32 & 0xffff, false, address as u16, 1);
                let before = table.record(address, seed.hash(address), now, || Some(alloc_info(address)));
                assert!(before.is_nothing());
            }
            assert_eq!(table.live_objects(), 30_000);
            let mut listed = vec![false; 30_000];
            table.drain_live(|address, state, own_sizes, of| {
                assert_eq!((state.class(), state.stream(), own_sizes), (address as u32 & 0xffff, address as u16, None));
                assert!(!keeps_alloc_infos || of == alloc_info(address));
                assert!(!std::mem::replace(&mut listed[address as usize], true), "address {address} twice");
            });
            assert!(listed.iter().all(|&listed| listed));
        }
    }

    #[test]
    fn memory_stays_within_what_live_and_freed_addresses_may_cost() {
        // All stay at first, then one in ten: mostly freed ones in the end, or as many as live ones.
        for (keeps_alloc_infos, all_stay) in [(false, 80_000), (true, 80_000), (false, 300_000), (true, 300_000)] {
            let seed = Seed::random();
            let mut table = Table::new(seed, FIXED, keeps_alloc_infos);
            let (mut live, mut freed) = (0, 0);
            for address in 1..600_000u64 {
                let hash = seed.hash(address);
                table.record(address, hash, SlotState::alloc(1, false, 0, 1), || Some(AllocInfo::default()));
                live += 1;
                if address > all_stay && address % 10 != 0 {
                    table.record(address, hash, SlotState::free(1), || None);
                    (live, freed) = (live - 1, freed + 1);
                }
                if address % 1000 == 0 {
                    let most = 48 * live + 16 * freed + (FIXED + 4) * table.costs.slot_bytes + 2 * 4096;
                    assert!(table.bytes() <= most, "{} bytes for {live} live and {freed} freed", table.bytes());
                }
            }
        }
    }
}
