//! Events and gaps of all CPUs, one by one in the total order, for observers.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::ops::ControlFlow;

use kmemtrace_abi::event::{Action, Event, EventSink, Gap, Names};

use crate::account::own_threads::OwnThreads;
use crate::order::merge::{Chunk, Keyed};
use crate::order::merger::Window;
use crate::query::filter::{Owners, Selected};

/// An event or a gap, in the total order over all CPUs. A gap comes where it ends, before the first event with that key.
#[derive(Clone, Copy, Debug)]
pub enum OrderedItem<'a> {
    /// An event.
    Event {
        /// Place in the total order of all events and gaps of the query's window, from 0; filters do not change it.
        seq: u64,
        /// The event.
        event: &'a Event,
        /// Events of its addresses, for a record of several objects: [`Event::bulk`]. Their places in the order follow `seq`.
        addresses: &'a [Event],
        /// Names of caches and events.
        names: &'a Names,
        /// Command name of its thread, where the trace gives it.
        comm: Option<&'a [u8]>,
        /// Cgroup of its thread, where the query asks for it and the trace gives it.
        cgroup: Option<&'a [u8]>,
        /// Whether the kernel takes the object of an allocation back by itself, where the query asks for it and its cache is known.
        reclaimable: Option<bool>,
        /// True for an allocation that figures leave out: the recorder's own.
        own: bool,
    },
    /// An interval in which events of one CPU may be missing.
    Gap {
        /// Place in the total order.
        seq: u64,
        /// Order key of its start.
        from: u64,
        /// Order key of its end.
        at: u64,
        /// The CPU.
        cpu: u32,
        /// Events lost; `None` where the number is not known.
        lost: Option<u64>,
    },
}

/// Takes events and gaps in the total order.
pub trait Observer {
    /// Takes the order key of the trace's first event, before the first item; it may lie before the query's window.
    fn begin(&mut self, _first: u64) {}

    /// Takes the first and last key of a gap before the events after its begin, as soon as the reader knows it. The gap is handed over as an
    /// item, too, where it ends.
    fn gap_ahead(&mut self, _from: u64, _to: u64) {}

    /// Takes the next one; [`ControlFlow::Break`] ends the pass.
    fn observe(&mut self, item: &OrderedItem<'_>) -> ControlFlow<()>;
}

impl<F: FnMut(&OrderedItem<'_>) -> ControlFlow<()>> Observer for F {
    fn observe(&mut self, item: &OrderedItem<'_>) -> ControlFlow<()> {
        self(item)
    }
}

/// Gap that has not ended yet: its end, CPU and begin, and the number of events lost.
type OpenGap = (u64, u32, u64, Option<u64>);

/// Gaps that have not ended, by their ends. A gap stands before the first event with the key at which it ends. One that begins at
/// this key, too, comes after the event of its CPU that tells where it begins, and follows all events with the key: they may be in
/// an earlier window.
#[derive(Debug, Default)]
pub(crate) struct OpenGaps(BinaryHeap<Reverse<OpenGap>>);

impl OpenGaps {
    /// Adds the gaps of a window; `first` is the first key of the trace.
    pub(crate) fn add(&mut self, gaps: &[Gap], first: u64) {
        let open = |gap: &Gap| {
            let (from, to) = gap.ends(first);
            Reverse((to, gap.cpu, from, gap.lost))
        };
        self.0.extend(gaps.iter().map(open));
    }

    /// Takes out the next gap that stands before an event with this key.
    #[inline]
    pub(crate) fn next_before(&mut self, key: u64) -> Option<OpenGap> {
        let &Reverse((to, _, from, _)) = self.0.peek()?;
        if to < key || to == key && from < to { self.0.pop().map(|Reverse(gap)| gap) } else { None }
    }
}

/// Gives an event of a text the call site and the kind that its stack tells.
pub(crate) type PlaceEvent<'a> = dyn FnMut(&Event, &Names) -> Event + 'a;

/// Puts gaps between events, and hands both to an observer.
pub(crate) struct Ordered<'a> {
    observer: &'a mut dyn Observer,
    comms: &'a HashMap<i32, Box<[u8]>>,
    filter: Option<Selected<'a>>,
    own: Option<OwnThreads<'a>>,
    owners: Option<Owners<'a>>,
    /// Gives the events of a text their call sites and kinds.
    place: Option<&'a mut PlaceEvent<'a>>,
    gaps: OpenGaps,
    /// Place of the next item in the total order, whatever the filter.
    seq: u64,
    /// Set once the observer has taken the first key.
    has_begun: bool,
    /// Set once the observer has ended the pass.
    pub(crate) has_ended: bool,
}

impl Keyed for Event {
    fn key(&self) -> u64 {
        self.at
    }

    fn part(&self, _: u32) -> u8 {
        0
    }

    fn cpu(&self, _: &[u32]) -> u32 {
        self.cpu
    }

    fn addresses(&self) -> u64 {
        Event::addresses(self).into()
    }
}

impl EventSink for Chunk<Event> {
    const FIELDS: bool = true;

    fn event(&mut self, event: Event, _: &Names) {
        self.has_bulk |= event.addresses() > 0;
        self.events.push(event);
    }

    fn gap(&mut self, gap: Gap) {
        self.gaps.push(gap);
    }
}

impl<'a> Ordered<'a> {
    pub(crate) fn new(
        observer: &'a mut dyn Observer,
        comms: &'a HashMap<i32, Box<[u8]>>,
        filter: Option<Selected<'a>>,
        own: Option<OwnThreads<'a>>,
    ) -> Ordered<'a> {
        let gaps = OpenGaps::default();
        Ordered {
            observer,
            comms,
            filter,
            own,
            owners: None,
            place: None,
            gaps,
            seq: 0,
            has_begun: false,
            has_ended: false,
        }
    }

    /// Hands over what `owners` tells of each event, too.
    pub(crate) fn with_owners(self, owners: Option<Owners<'a>>) -> Ordered<'a> {
        Ordered { owners, ..self }
    }

    /// The same, with call sites and kinds that stacks tell.
    pub(crate) fn placing(self, place: Option<&'a mut PlaceEvent<'a>>) -> Ordered<'a> {
        Ordered { place, ..self }
    }

    /// Hands over the events of a window, and the gaps that end before them. `first` is the first key of the trace.
    pub(crate) fn window(&mut self, window: &Window<Event>, first: u64, names: &Names) {
        if !self.has_begun {
            self.has_begun = true;
            self.observer.begin(first);
        }
        self.gaps.add(&window.gaps, first);
        for gap in &window.gaps {
            let (from, to) = gap.ends(first);
            self.observer.gap_ahead(from, to);
        }
        let mut rest = &window.events[..];
        while let Some((event, behind)) = rest.split_first() {
            while let Some(gap) = self.gaps.next_before(event.at) {
                self.gap(gap);
            }
            // A window has all events of a record.
            let (addresses, behind) = behind.split_at(behind.len().min(event.addresses().into()));
            self.event(event, addresses, names);
            rest = behind;
        }
    }

    /// Adds a gap of an unknown number of events on each of these CPUs, between two keys. The merge knows of it only at the end.
    pub(crate) fn gap_on_every_cpu(&mut self, cpus: &[u32], (from, to): (u64, u64)) {
        self.gaps.0.extend(cpus.iter().map(|&cpu| Reverse((to, cpu, from, None))));
    }

    /// Hands over the gaps that go to the end, whose key is `last`.
    pub(crate) fn finish(&mut self, last: u64) {
        while let Some((to, cpu, from, lost)) = self.gaps.next_before(u64::MAX) {
            self.gap((if to == u64::MAX { last.max(from) } else { to }, cpu, from, lost));
        }
    }

    fn gap(&mut self, (at, cpu, from, lost): OpenGap) {
        let seq = self.next_seq();
        self.hand_over(&OrderedItem::Gap { seq, from, at, cpu, lost });
    }

    fn event(&mut self, event: &Event, addresses: &[Event], names: &Names) {
        let seq = self.next_seq();
        self.seq += addresses.len() as u64;
        let placed = self.place.as_mut().map(|place| place(event, names));
        let event = placed.as_ref().unwrap_or(event);
        let is_object = event.action != Action::Other;
        if self.filter.as_mut().is_some_and(|filter| !is_object || !filter.takes(event, names)) {
            return;
        }
        let comm = event.comm(names, self.comms);
        let own = self.own.is_some_and(|own| own.allocates(event));
        let owners = self.owners;
        let cgroup = owners.and_then(|owners| owners.cgroup(event.pid, event.at));
        let reclaimable = owners.and_then(|owners| owners.is_reclaimable(event, names));
        self.hand_over(&OrderedItem::Event { seq, event, addresses, names, comm, cgroup, reclaimable, own });
    }

    #[inline]
    fn next_seq(&mut self) -> u64 {
        let seq = self.seq;
        self.seq += 1;
        seq
    }

    fn hand_over(&mut self, item: &OrderedItem<'_>) {
        if !self.has_ended {
            self.has_ended = self.observer.observe(item).is_break();
        }
    }
}
