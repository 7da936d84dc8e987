//! Last event at each address: which object is live there, or that it was freed, and whether a gap has begun since.
//!
//! An open-addressing table of 16-byte slots, four to a cache line, which is mostly all that an event touches: a freed
//! address keeps its slot, where its next object mostly comes soon. Where that would cost more than 16 bytes a freed
//! address, all freed ones move to a [`FreedSet`], so that memory stays within 48 bytes a live object, 16 a freed address
//! and a fixed part. `grow.rs` moves the slots of a table that grows.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use crate::account::tally::Sizes;
use crate::memory::hashing::{Seed, place};
use crate::memory::prefetch::prefetch;
use crate::memory::zeroed::ZeroedArray;
use crate::pairing::freed::FreedSet;
use crate::pairing::grow::{BucketInfos, OldSlots, new_slots};
use crate::pairing::loss::LossEpoch;
use crate::pairing::slot::{AllocInfo, Bucket, SLOTS, Slot, SlotState};

/// Slots of all partitions together that a table takes without a limit per address. Few in tests, so that short traces, too, make
/// tables grow.
pub(crate) const FIXED_SLOTS: usize = if cfg!(test) { 24 } else { 128 << 10 };
/// Slots of a new table: a page, if that many are fixed.
const FIRST_SLOTS: usize = 256;
/// 16 MiB. Most of a smaller table is in some cache, and [`Table::prefetch_next`] takes longer than it saves.
const CACHED_BUCKETS: usize = if cfg!(test) { 2 } else { 256 << 10 };

/// Limits on slots: a live object may cost 48 bytes and a freed address 16, with all that is kept of it.
#[derive(Clone, Copy, Debug)]
struct Costs {
    slot_bytes: usize,
    /// A live object's share of the slots.
    live_bytes: usize,
    /// A freed address's share of the slots.
    freed_bytes: usize,
    /// Load limit, in eighths of the slots: the more are taken, the longer it takes to find one.
    max_taken: usize,
}

const COSTS: Costs = Costs { slot_bytes: size_of::<Slot>(), live_bytes: 40, freed_bytes: 14, max_taken: 6 };
const COSTS_WITH_ALLOC_INFOS: Costs =
    Costs { slot_bytes: size_of::<Slot>() + size_of::<AllocInfo>(), live_bytes: 45, freed_bytes: 14, max_taken: 7 };

/// Place of a slot: bucket and number in it.
type SlotPlace = (usize, usize);

/// Addresses without a slot, of frees of one sort.
#[derive(Debug, Default)]
struct LeftSlots {
    /// Freed in the current epoch.
    now: FreedSet,
    /// Freed before.
    before: FreedSet,
}

/// Numbers of addresses to add to a [`LeftSlots`].
#[derive(Clone, Copy, Debug, Default)]
struct Leaving {
    now: usize,
    before: usize,
}

impl LeftSlots {
    fn len(&self) -> usize {
        self.now.len() + self.before.len()
    }

    fn bytes(&self) -> usize {
        self.now.bytes() + self.before.bytes()
    }

    /// Memory with more addresses, in bytes.
    fn bytes_with(&self, more: Leaving) -> usize {
        self.now.bytes_with(more.now) + self.before.bytes_with(more.before)
    }

    /// Takes an address out; true if it was freed in the current epoch, `None` if it is not here.
    #[inline(always)]
    fn remove(&mut self, address: u64, hash: impl Fn(u64) -> u32) -> Option<bool> {
        if self.len() == 0 { None } else { self.find_and_remove(address, hash) }
    }

    #[inline(never)]
    fn find_and_remove(&mut self, address: u64, hash: impl Fn(u64) -> u32) -> Option<bool> {
        if self.now.remove(address, &hash) {
            return Some(true);
        }
        self.before.remove(address, hash).then_some(false)
    }

    /// Memory that the next epoch needs beyond the present, in bytes.
    fn bytes_of_epoch(&self) -> usize {
        if self.before.len() == 0 || self.now.len() == 0 {
            return 0;
        }
        self.before.bytes_with(self.now.len()).saturating_sub(self.before.bytes())
    }

    /// Begins an epoch: all addresses were freed before.
    fn begin_epoch(&mut self, hash: impl Fn(u64) -> u32) {
        if self.before.len() == 0 {
            std::mem::swap(&mut self.now, &mut self.before);
        } else if self.now.len() > 0 {
            let mut growing = std::mem::take(&mut self.before).grow(self.now.len());
            self.now.drain().for_each(|address| growing.insert(address, &hash));
            self.before = growing.into_set(hash);
        }
    }
}

/// The addresses of one space that belong to one partition.
#[derive(Debug)]
pub(crate) struct Table {
    seed: Seed,
    buckets: ZeroedArray<Bucket>,
    /// Allocation of each slot's object; meaningless where the object is not live.
    alloc_infos: Option<ZeroedArray<BucketInfos>>,
    /// Slots that are not empty.
    taken: usize,
    /// Addresses that were freed.
    freed: LeftSlots,
    /// Addresses whose last free was a deferred one.
    given_up: LeftSlots,
    own_sizes: HashMap<u64, Sizes, RandomState>,
    epoch: LossEpoch,
    costs: Costs,
    /// Slots without a limit per address, once a sixteenth of them is taken.
    fixed: usize,
    /// Memory when something last grew.
    bytes: usize,
    /// Limit of `bytes`.
    max_bytes: usize,
    over_budget: bool,
}

impl Table {
    /// Empty table; the limit per address begins behind `fixed` slots.
    pub(crate) fn new(seed: Seed, fixed: usize, keeps_alloc_infos: bool) -> Table {
        let (buckets, alloc_infos) = new_slots(FIRST_SLOTS.min(fixed), keeps_alloc_infos);
        Table {
            seed,
            buckets,
            alloc_infos,
            taken: 0,
            freed: LeftSlots::default(),
            given_up: LeftSlots::default(),
            own_sizes: HashMap::default(),
            epoch: LossEpoch::FIRST,
            costs: if keeps_alloc_infos { COSTS_WITH_ALLOC_INFOS } else { COSTS },
            fixed,
            bytes: 0,
            max_bytes: usize::MAX,
            over_budget: false,
        }
    }

    /// Bytes of memory.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Limits the memory. A table that needs more is [`Table::over_budget`].
    #[inline]
    pub(crate) fn set_max_bytes(&mut self, max_bytes: usize) {
        self.max_bytes = max_bytes;
    }

    /// True once the limit was too low: results are invalid from then on, callers stop at their next check. The table works on
    /// and grows when it must.
    #[inline]
    pub(crate) fn over_budget(&self) -> bool {
        self.over_budget
    }

    /// Counts the memory anew, after something has grown.
    fn weigh(&mut self) {
        let slots = self.buckets.len() * SLOTS * self.costs.slot_bytes;
        self.bytes = slots + self.freed.bytes() + self.given_up.bytes() + self.own_sizes_bytes();
    }

    /// Starts loading the bucket of this hash, for an allocation also its `AllocInfo`.
    #[inline(always)]
    pub(crate) fn prefetch(&self, hash: u32, allocates: bool) {
        let buckets = &*self.buckets;
        let bucket = place(hash, buckets.len());
        prefetch(buckets, bucket);
        if let Some(alloc_infos) = &self.alloc_infos {
            // Without a branch: the processor cannot predict an event's action. The first bucket is mostly there.
            prefetch(alloc_infos, bucket * usize::from(allocates));
        }
    }

    /// True where [`Table::prefetch_next`] is worth its time.
    #[inline(always)]
    pub(crate) fn is_large(&self) -> bool {
        self.buckets.len() > CACHED_BUCKETS
    }

    /// Starts loading the next bucket where that of this hash, which has come by now, has neither the address nor room for it: for
    /// one event in five while a table fills, one in fourteen afterwards.
    #[inline(always)]
    pub(crate) fn prefetch_next(&self, address: u64, hash: u32, allocates: bool) {
        let buckets = &*self.buckets;
        let bucket = place(hash, buckets.len());
        // Without a branch: the processor cannot predict which buckets are full. Nothing behind the last one is loaded.
        let next = bucket + usize::from(buckets[bucket].is_full_of_others(address));
        prefetch(buckets, next);
        if let Some(alloc_infos) = &self.alloc_infos {
            prefetch(alloc_infos, next * usize::from(allocates));
        }
    }

    /// Records the event `now` at an address of this hash, with `alloc_info` of an allocation, made of that of the object before;
    /// returns the event before. Sizes of its own that the object before had are for the caller to take.
    #[inline(always)]
    pub(crate) fn record(
        &mut self,
        address: u64,
        hash: u32,
        now: SlotState,
        alloc_info: impl FnOnce(AllocInfo) -> Option<AllocInfo>,
    ) -> SlotState {
        let (bucket, index) = self.probe(hash, |bucket| bucket.find(address));
        let slot = Slot { address, state: now };
        let before = std::mem::replace(&mut self.buckets[bucket].0[index], slot).state;
        if let Some(alloc_infos) = &mut self.alloc_infos
            && let Some(alloc_info) = alloc_info(alloc_infos[bucket][index])
        {
            alloc_infos[bucket][index] = alloc_info;
        }
        if before.is_nothing() { self.record_first(address, hash) } else { before }
    }

    /// Event before of an address that had no slot: it may have been freed long ago.
    #[cold]
    fn record_first(&mut self, address: u64, hash: u32) -> SlotState {
        let seed = self.seed;
        let hash_of = |of| if of == address { hash } else { seed.hash(of) };
        let epoch = |is_now| if is_now { self.epoch } else { LossEpoch::IN_GAP };
        let before = if let Some(is_now) = self.freed.remove(address, hash_of) {
            SlotState::free(epoch(is_now))
        } else if let Some(is_now) = self.given_up.remove(address, hash_of) {
            SlotState::given_up(epoch(is_now))
        } else {
            SlotState::default()
        };
        self.taken += 1;
        if self.taken * 8 > self.buckets.len() * SLOTS * self.costs.max_taken {
            self.make_room();
        }
        before
    }

    /// True for an address that is live or given up.
    pub(crate) fn is_held(&self, address: u64, hash: u32) -> bool {
        let (bucket, index) = self.probe(hash, |bucket| bucket.find(address));
        let state = self.buckets[bucket].0[index].state;
        let left = || [&self.given_up.now, &self.given_up.before].iter().any(|set| set.contains(address, hash));
        if state.is_nothing() { left() } else { state.is_live() || state.is_given_up() }
    }

    /// Keeps the own sizes of the live object at this address.
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

    /// Takes the own sizes of the object that was live at this address.
    #[cold]
    pub(crate) fn take_sizes(&mut self, address: u64) -> Option<Sizes> {
        self.own_sizes.remove(&address)
    }

    /// Begins an epoch: frees until now are told apart from later ones.
    pub(crate) fn begin_epoch(&mut self, epoch: LossEpoch) {
        let seed = self.seed;
        if self.bytes + self.freed.bytes_of_epoch() + self.given_up.bytes_of_epoch() > self.max_bytes {
            self.over_budget = true;
            return;
        }
        let hash = |address| seed.hash(address);
        self.freed.begin_epoch(hash);
        self.given_up.begin_epoch(hash);
        self.weigh();
        if epoch.is_first() {
            // Numbers begin again, so no old one may be left.
            self.buckets.iter_mut().flat_map(|bucket| &mut bucket.0).for_each(|slot| slot.state.forget_epoch());
        }
        self.epoch = epoch;
    }

    /// True if no event was ever recorded.
    pub(crate) fn is_unused(&self) -> bool {
        self.taken == 0 && self.freed.len() == 0 && self.given_up.len() == 0
    }

    /// Number of live objects.
    pub(crate) fn live_objects(&self) -> usize {
        self.slots().filter(|slot| slot.state.is_live()).count()
    }

    /// Hands the live objects to `take`, in no order, with the sizes that their classes do not tell.
    pub(crate) fn each_live(&self, mut take: impl FnMut(SlotState, Option<Sizes>, AllocInfo)) {
        let infos = |bucket: usize| self.alloc_infos.as_ref().and_then(|infos| infos.get(bucket)).copied();
        for (number, Bucket(slots)) in self.buckets.iter().enumerate() {
            let infos = infos(number).unwrap_or_default();
            for (slot, info) in slots.iter().zip(infos).filter(|(slot, _)| slot.state.is_live()) {
                let sizes = if slot.state.is_unsized() { self.own_sizes.get(&slot.address).copied() } else { None };
                take(slot.state, sizes, info);
            }
        }
    }

    /// Forgets all addresses and hands the live objects among them to `take`, in no order, with the sizes that their classes do not
    /// tell. The caller's list needs as much memory, so the table's goes back on the way.
    pub(crate) fn drain_live(&mut self, mut take: impl FnMut(u64, SlotState, Option<Sizes>, AllocInfo)) {
        let empty = Table::new(self.seed, 0, self.alloc_infos.is_some());
        let Table { buckets, alloc_infos, mut own_sizes, .. } = std::mem::replace(self, empty);
        OldSlots::new(buckets, alloc_infos).each_taken(|slot, alloc_info| {
            if slot.state.is_live() {
                let sizes = if slot.state.is_unsized() { own_sizes.remove(&slot.address) } else { None };
                take(slot.address, slot.state, sizes, alloc_info);
            }
        });
    }

    /// Gives a full table more slots, as many as its live objects and freed addresses may cost.
    #[cold]
    fn make_room(&mut self) {
        let (taken, slots) = (self.taken, self.buckets.len() * SLOTS);
        // The caller's next check is near.
        let can_wait = taken * 16 < slots * 15;
        if self.over_budget && can_wait {
            return;
        }
        let (mut live, mut given_up) = (0, 0);
        let mut now = [0; 2];
        for bucket in self.buckets.iter() {
            let count = |is: fn(SlotState, LossEpoch) -> bool| {
                bucket.0.iter().map(|slot| usize::from(is(slot.state, self.epoch))).sum::<usize>()
            };
            live += count(|state, _| state.is_live());
            given_up += count(|state, _| state.is_given_up());
            now[0] += count(SlotState::is_freed_in);
            now[1] += count(SlotState::is_given_up_in);
        }
        let leaving = |all: usize, now: usize| Leaving { now, before: all - now };
        let leaving = [leaving(taken - live - given_up, now[0]), leaving(given_up, now[1])];
        let Costs { slot_bytes, live_bytes, freed_bytes, max_taken } = self.costs;
        let fixed = self.fixed;
        // Large steps at first: a short trace touches little, a longer one soon needs the fixed slots.
        let allowed = |freed| match slots * 2 < fixed {
            true => fixed.min(taken * 16),
            false => (live * live_bytes + freed * freed_bytes) / slot_bytes + fixed,
        };
        // Headroom, so that the table is not soon full again.
        let is_roomy = |slots: usize, taken: usize| slots * max_taken >= taken * 9;
        let sets = |[freed, given_up]: [Leaving; 2]| self.freed.bytes_with(freed) + self.given_up.bytes_with(given_up);
        let left = |sets: usize| self.max_bytes.saturating_sub(sets + self.own_sizes_bytes());
        let most = |sets: usize| left(sets) / (slot_bytes * SLOTS) * SLOTS;
        let with_freed = allowed(taken - live).min(most(sets(Default::default())));
        let without = allowed(0).min(live * 2 + fixed);
        let without_at_most = without.min(most(sets(leaving)));
        if is_roomy(with_freed, taken) {
            self.resize(with_freed, None);
        } else if is_roomy(without_at_most, live) {
            self.resize(without_at_most, Some(leaving));
        } else {
            self.over_budget = true;
            if !can_wait {
                self.resize(without, Some(leaving));
            }
        }
    }

    /// Moves all slots into new memory. `leaving` counts the addresses that were freed and given up: with it only the live objects
    /// move, and freed addresses leave for their sets.
    fn resize(&mut self, slots_wanted: usize, leaving: Option<[Leaving; 2]>) {
        let seed = self.seed;
        let hash = |address| seed.hash(address);
        let [freed, given_up] = leaving.unwrap_or_default();
        let mut freed_now = std::mem::take(&mut self.freed.now).grow(freed.now);
        let mut freed_before = std::mem::take(&mut self.freed.before).grow(freed.before);
        let mut given_up_now = std::mem::take(&mut self.given_up.now).grow(given_up.now);
        let mut given_up_before = std::mem::take(&mut self.given_up.before).grow(given_up.before);
        let (buckets, alloc_infos) = new_slots(slots_wanted, self.alloc_infos.is_some());
        let (buckets, alloc_infos) =
            (std::mem::replace(&mut self.buckets, buckets), std::mem::replace(&mut self.alloc_infos, alloc_infos));
        let old = OldSlots::new(buckets, alloc_infos);
        let strays = old.move_to(&mut self.buckets, self.alloc_infos.as_mut(), seed, |slot| {
            let leaves = leaving.is_some() && !slot.state.is_live();
            if leaves {
                self.taken -= 1;
                let is_now = slot.state.epoch().is_gapless_with(self.epoch);
                let set = match (slot.state.is_given_up(), is_now) {
                    (false, true) => &mut freed_now,
                    (false, false) => &mut freed_before,
                    (true, true) => &mut given_up_now,
                    (true, false) => &mut given_up_before,
                };
                set.insert(slot.address, hash);
            }
            leaves
        });
        for (slot, alloc_info) in strays {
            let (bucket, index) = self.probe(hash(slot.address), Bucket::first_empty);
            self.buckets[bucket].0[index] = slot;
            if let Some(alloc_infos) = &mut self.alloc_infos {
                alloc_infos[bucket][index] = alloc_info;
            }
        }
        self.freed = LeftSlots { now: freed_now.into_set(hash), before: freed_before.into_set(hash) };
        self.given_up = LeftSlots { now: given_up_now.into_set(hash), before: given_up_before.into_set(hash) };
        self.weigh();
    }

    fn slots(&self) -> impl Iterator<Item = &Slot> {
        self.buckets.iter().flat_map(|bucket| &bucket.0)
    }

    fn own_sizes_bytes(&self) -> usize {
        // At most seven eighths of the map's places are taken, and each has a byte beside it.
        self.own_sizes.capacity() * 8 / 7 * (size_of::<(u64, Sizes)>() + 1)
    }

    /// Place in the first bucket from that of `hash` on where `find` finds a slot.
    #[inline(always)]
    fn probe(&self, hash: u32, find: impl Fn(&Bucket) -> Option<usize>) -> SlotPlace {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::hashing::part;

    /// Fixed slots of a program's tables.
    const FIXED: usize = 128 << 10;

    /// Against std's map, with so few fixed slots' worth of objects that freed addresses move out and back.
    #[test]
    fn it_knows_what_every_address_did_last() {
        let seed = Seed::random();
        for parts in [1, 3] {
            let mut table = Table::new(seed, FIXED / parts as usize, true);
            let mut known: HashMap<u64, (SlotState, Option<Sizes>)> = HashMap::new();
            let (mut epoch, mut random) = (LossEpoch::FIRST, 1u64);
            for step in 0..160_000u64 {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                // Few live ones among many freed ones, then the other way round.
                let (address, allocates) = (random >> 47, (random >> 20) % 100 < if step < 100_000 { 30 } else { 80 });
                let hash = seed.hash(address);
                if part(hash, parts) != 0 {
                    continue;
                }
                if step % 40_000 == 39_999 {
                    epoch = epoch.next();
                    table.begin_epoch(epoch);
                }
                let own_sizes = (allocates && (random >> 10).is_multiple_of(50)).then_some((step, u64::MAX - step));
                let (class, stream) = ((random >> 8) as u32 & 0xffff, random as u16);
                let now = match allocates {
                    true => SlotState::alloc(class, own_sizes.is_some(), stream, epoch),
                    false if (random >> 30).is_multiple_of(3) => SlotState::given_up(epoch),
                    false => SlotState::free(epoch),
                };
                let before =
                    table.record(address, hash, now, |_| allocates.then_some(AllocInfo { at: step, tie: 0, pid: 0 }));
                let sizes_before = if before.is_unsized() { table.take_sizes(address) } else { None };
                if let Some(sizes) = own_sizes {
                    table.keep_sizes(address, sizes);
                }
                let (expected, sizes_expected) = known.insert(address, (now, own_sizes)).unwrap_or_default();
                assert_eq!(sizes_before, sizes_expected);
                let in_gap = [SlotState::free(LossEpoch::IN_GAP), SlotState::given_up(LossEpoch::IN_GAP)];
                if in_gap.contains(&before) {
                    // The set of addresses freed before knows only that there was a gap.
                    let is_gapless = expected.epoch().is_gapless_with(epoch);
                    assert!(!expected.is_live() && !expected.is_nothing() && !is_gapless);
                    assert_eq!(before.is_given_up(), expected.is_given_up());
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
                table.record(address, seed.hash(address), SlotState::alloc(1, false, 0, LossEpoch::FIRST), |_| {
                    Some(AllocInfo::default())
                });
                assert!(!table.over_budget(), "{parts} partitions, at address {address}");
            }
            assert_eq!(table.live_objects(), addresses);
        }
    }

    #[test]
    fn it_grows_no_further_than_it_may_and_says_so() {
        // Percentage of objects that stay live: the table needs more slots, or more of the set of freed addresses.
        for percent in [100, 1] {
            let seed = Seed::random();
            let mut table = Table::new(seed, FIXED, false);
            let most = 20 << 20;
            table.set_max_bytes(most);
            let mut addresses = 0u64;
            let see = |table: &mut Table, address: u64| {
                table.record(address, seed.hash(address), SlotState::alloc(1, false, 0, LossEpoch::FIRST), |_| {
                    Some(AllocInfo::default())
                });
                if address % 100 >= percent {
                    table.record(address, seed.hash(address), SlotState::free(LossEpoch::FIRST), |_| None);
                }
            };
            while !table.over_budget() {
                addresses += 1;
                see(&mut table, addresses);
                assert!(table.bytes() <= most, "{} bytes", table.bytes());
            }
            assert!(table.bytes() > most / 2, "{} bytes for {addresses} addresses", table.bytes());
            // The caller does not check for a while.
            let later = addresses + 300_000;
            (addresses + 1..=later).for_each(|address| see(&mut table, address));
            assert_eq!(
                table.live_objects() as u64,
                (1..=later).filter(|address| address % 100 < percent).count() as u64
            );
            let known = table.record(later, seed.hash(later), SlotState::free(LossEpoch::FIRST), |_| None);
            assert!(if later % 100 < percent { known.is_live() } else { known == SlotState::free(LossEpoch::FIRST) });
        }
    }

    /// Numbers of epochs begin again after 65,535 gaps. An event before them is never taken for one after.
    #[test]
    fn an_epoch_with_the_number_of_an_older_one_is_another() {
        let seed = Seed::random();
        let mut table = Table::new(seed, FIXED, false);
        let see = |table: &mut Table, address, now| table.record(address, seed.hash(address), now, |_| None);
        see(&mut table, 7, SlotState::alloc(5, false, 3, LossEpoch::FIRST));
        see(&mut table, 8, SlotState::free(LossEpoch::FIRST));
        let epochs = std::iter::successors(Some(LossEpoch::FIRST.next()), |epoch| Some(epoch.next()));
        epochs.take(usize::from(u16::MAX)).for_each(|epoch| table.begin_epoch(epoch));
        assert!(table.epoch.is_first());
        see(&mut table, 9, SlotState::free(LossEpoch::FIRST));
        let before = see(&mut table, 7, SlotState::free(LossEpoch::FIRST));
        assert_eq!((before.class(), before.stream(), before.epoch().bits()), (5, 3, LossEpoch::IN_GAP.bits()));
        assert_eq!(see(&mut table, 8, SlotState::free(LossEpoch::FIRST)).epoch().bits(), LossEpoch::IN_GAP.bits());
        assert_eq!(see(&mut table, 9, SlotState::free(LossEpoch::FIRST)), SlotState::free(LossEpoch::FIRST));
    }

    /// Freed addresses that have left the slots are told apart by the last gap, however many gaps there were.
    #[test]
    fn frees_before_a_gap_stay_apart_from_those_after() {
        let seed = Seed::random();
        let mut table = Table::new(seed, 24, false);
        let see = |table: &mut Table, address, now| table.record(address, seed.hash(address), now, |_| None);
        let mut epoch = LossEpoch::FIRST;
        for round in 0..5 {
            let own = round * 1000..(round + 1) * 1000;
            for address in own.clone() {
                assert!(see(&mut table, address, SlotState::free(epoch)).is_nothing());
            }
            assert!(table.freed.len() > 500, "{} have left the slots", table.freed.len());
            if round == 4 {
                break;
            }
            epoch = epoch.next();
            table.begin_epoch(epoch);
        }
        for address in 0..5000 {
            let before = see(&mut table, address, SlotState::free(epoch));
            assert!(!before.is_live() && !before.is_nothing(), "address {address}");
            assert_eq!(before.epoch().is_gapless_with(epoch), address >= 4000, "address {address}");
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
                table.record(address, hash, SlotState::alloc(1, is_unsized, 0, epoch), |_| None);
                if is_unsized {
                    table.keep_sizes(address, (address, address));
                } else {
                    table.record(address, hash, SlotState::free(epoch), |_| None);
                    if address % 1000 == 0 {
                        table.begin_epoch(epoch.next());
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

    /// A table that grows keeps every address and what else is known of it.
    #[test]
    fn growth_loses_nothing() {
        for keeps_alloc_infos in [false, true] {
            let seed = Seed::random();
            let mut table = Table::new(seed, 64, keeps_alloc_infos);
            let alloc_info = |address: u64| AllocInfo { at: address * 3, tie: address as u32, pid: 9 };
            for address in 0..30_000u64 {
                let now = SlotState::alloc(address as u32 & 0xffff, false, address as u16, LossEpoch::FIRST);
                let before = table.record(address, seed.hash(address), now, |_| Some(alloc_info(address)));
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
                table.record(address, hash, SlotState::alloc(1, false, 0, LossEpoch::FIRST), |_| {
                    Some(AllocInfo::default())
                });
                live += 1;
                if address > all_stay && address % 10 != 0 {
                    let is_deferred = address % 10 < 4;
                    let free = if is_deferred { SlotState::given_up } else { SlotState::free };
                    table.record(address, hash, free(LossEpoch::FIRST), |_| None);
                    (live, freed) = (live - 1, freed + 1);
                }
                if address % 1000 == 0 {
                    let most = 48 * live + 16 * freed + (FIXED + 4) * table.costs.slot_bytes + 4 * 4096;
                    assert!(table.bytes() <= most, "{} bytes for {live} live and {freed} freed", table.bytes());
                }
            }
        }
    }
}
