//! What each address was last seen doing: which object is live there, or when it was last freed.
//!
//! An address that was seen once keeps its slot for the rest of the trace, so nothing is ever removed: one look-up an
//! event, whatever it is. A slot is 24 bytes, and a live object has its own entry, which the next object takes over.

use std::hash::BuildHasher;

use foldhash::fast::RandomState;
use kmemtrace_abi::event::{Kind, NameId};

/// An object that was allocated and not freed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Live {
    /// Number of its allocation in the total order.
    pub(crate) serial: u64,
    pub(crate) requested: u64,
    pub(crate) allocated: u64,
    /// Its row of figures; none where `selected` is false.
    pub(crate) row: u32,
    pub(crate) cpu: u32,
    pub(crate) pid: Option<i32>,
    pub(crate) cache: Option<NameId>,
    pub(crate) kind: Kind,
    /// Whether the filters take it.
    pub(crate) selected: bool,
}

/// What an address was last seen doing, before an event; with the order key of that.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Before {
    /// Nothing in this trace.
    Unknown,
    /// It was freed.
    Freed(u64),
    /// It was allocated.
    Live(u64, Live),
}

/// All addresses of a trace. `kmalloc` and `cache` objects share one space, `pages` have one of their own.
#[derive(Debug, Default)]
pub(crate) struct Addresses {
    objects: Slots,
    pages: Slots,
    live: Vec<Live>,
    /// Entries of `live` that no object has.
    vacant: Vec<usize>,
}

impl Addresses {
    /// An object becomes live at `address`. Whatever was live there is not any more.
    #[inline]
    pub(crate) fn alloc(&mut self, address: u64, at: u64, object: Live) -> Before {
        let slots = if object.kind == Kind::Pages { &mut self.pages } else { &mut self.objects };
        let slot = slots.of(address);
        let before = slot.at;
        slot.at = at;
        if let Some(index) = slot.live() {
            return Before::Live(before, std::mem::replace(&mut self.live[index], object));
        }
        let is_new = slot.state == EMPTY;
        let index = match self.vacant.pop() {
            Some(index) => {
                self.live[index] = object;
                index
            }
            None => {
                self.live.push(object);
                self.live.len() - 1
            }
        };
        slot.state = FIRST_LIVE + index as u64;
        if is_new {
            slots.taken();
            return Before::Unknown;
        }
        Before::Freed(before)
    }

    /// An object of `kind` is freed at `address`.
    #[inline]
    pub(crate) fn free(&mut self, address: u64, at: u64, kind: Kind) -> Before {
        let slots = if kind == Kind::Pages { &mut self.pages } else { &mut self.objects };
        let slot = slots.of(address);
        let before = slot.at;
        let was = slot.state;
        let live = slot.live();
        slot.at = at;
        slot.state = FREED;
        match live {
            Some(index) => {
                self.vacant.push(index);
                Before::Live(before, self.live[index])
            }
            None if was == EMPTY => {
                slots.taken();
                Before::Unknown
            }
            None => Before::Freed(before),
        }
    }

    /// Live objects with their addresses and the keys of their allocations, in no order.
    pub(crate) fn live(&self) -> impl Iterator<Item = (u64, u64, &Live)> {
        let slots = self.objects.slots.iter().chain(&self.pages.slots);
        slots.filter_map(|slot| Some((slot.address, slot.at, self.live.get(slot.live()?)?)))
    }
}

/// Nobody's.
const EMPTY: u64 = 0;
/// The last event of the address was a free.
const FREED: u64 = 1;
/// Greater ones: the entry of the live object.
const FIRST_LIVE: u64 = 2;

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    address: u64,
    /// Key of the address's last event.
    at: u64,
    state: u64,
}

impl Slot {
    #[inline]
    fn live(&self) -> Option<usize> {
        self.state.checked_sub(FIRST_LIVE).map(|index| index as usize)
    }
}

/// An open-addressing table with linear probing. Hashes are keyed at random, so that no trace can make it slow.
#[derive(Debug, Default)]
struct Slots {
    hasher: RandomState,
    /// A power of two of them, at most three quarters taken; or none.
    slots: Vec<Slot>,
    taken: usize,
}

const FIRST_SLOTS: usize = 1024;

impl Slots {
    /// The slot of `address`, or the empty one where it belongs, marked with it.
    #[inline]
    fn of(&mut self, address: u64) -> &mut Slot {
        if self.slots.is_empty() {
            self.slots = vec![Slot::default(); FIRST_SLOTS];
        }
        let index = self.find(address);
        let slot = &mut self.slots[index];
        slot.address = address;
        slot
    }

    #[inline]
    fn find(&self, address: u64) -> usize {
        let mask = self.slots.len() - 1;
        let mut index = self.hasher.hash_one(address) as usize & mask;
        loop {
            let slot = &self.slots[index & mask];
            if slot.address == address || slot.state == EMPTY {
                return index & mask;
            }
            index = index.wrapping_add(1);
        }
    }

    /// An empty slot has become somebody's.
    #[inline]
    fn taken(&mut self) {
        self.taken += 1;
        if self.taken > self.slots.len() / 4 * 3 {
            self.grow();
        }
    }

    #[cold]
    fn grow(&mut self) {
        let twice = vec![Slot::default(); self.slots.len() * 2];
        for slot in std::mem::replace(&mut self.slots, twice) {
            if slot.state != EMPTY {
                let index = self.find(slot.address);
                self.slots[index] = slot;
            }
        }
    }
}
