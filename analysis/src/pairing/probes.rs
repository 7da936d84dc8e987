//! Rules for the recorder's probe events: deferred frees, and frees and allocations in bulk.
//!
//! A deferred free ends its object at once, and leaves the address given up: the kernel takes the memory back later, with an event of
//! that free or without. The state holds until the next free or allocation of the address.

use kmemtrace_abi::event::{BulkAction, Kind, Space};

use crate::account::classes::is_selected;
use crate::order::pair_event::{PairAction, PairEvent};
use crate::pairing::pairs::{Number, Pairing, PairingSink};
use crate::pairing::slot::{AllocInfo, SlotState};

impl Pairing<'_> {
    /// Takes an event that only probes record.
    #[inline(never)]
    pub(super) fn take_probe<S: PairingSink>(&mut self, event: &PairEvent, number: Number, sink: &mut S) {
        match event.action {
            PairAction::Deferred => self.free_deferred(event, number, sink),
            PairAction::BulkFree => self.free_of_bulk(event, number, sink),
            _ => self.bulk_record(event),
        }
    }

    /// `kvfree_rcu` takes slab objects and areas of vmalloc.
    fn free_deferred<S: PairingSink>(&mut self, event: &PairEvent, number: Number, sink: &mut S) {
        let is_area = self.tables[Space::Vmalloc].is_held(event.address, event.hash);
        let kind = if is_area { Kind::Vmalloc } else { event.kind };
        let of_space = PairEvent { kind, ..*event };
        let (before, info) = self.record_free::<S>(&of_space, SlotState::given_up(self.loss.now()));
        if before.is_live() {
            self.end_of_any_kind((before, info), &of_space, number, sink);
        } else {
            self.free_alone(before, event, number, sink);
        }
    }

    fn free_of_bulk<S: PairingSink>(&mut self, event: &PairEvent, number: Number, sink: &mut S) {
        let (before, info) = self.record_free::<S>(event, SlotState::free(self.loss.now()));
        if before.is_live() {
            self.end_of_any_kind((before, info), event, number, sink);
        } else if before.is_given_up() {
            self.counts.completions = self.counts.completions.saturating_add(1);
        } else {
            self.counts.bulk_unknown += 1;
        }
    }

    /// Ends an object whose free goes with either kind and any cache.
    fn end_of_any_kind<S: PairingSink>(
        &mut self,
        (object, info): (SlotState, AllocInfo),
        event: &PairEvent,
        number: Number,
        sink: &mut S,
    ) {
        if is_selected(object.class()) {
            self.tallies.count_probed(object.class(), event.action == PairAction::BulkFree);
            let (class, _) = self.pair((object, info), event, number, sink);
            self.count_free(class.kind, event);
        }
    }

    /// Counts the objects of a record whose addresses it has no room for.
    fn bulk_record(&mut self, event: &PairEvent) {
        let (counts, rest) = (&mut self.counts, event.allocated);
        if rest == 0 {
            return;
        }
        let sum = match event.bulk_action() {
            BulkAction::Alloc => &mut counts.unseen_allocs,
            BulkAction::Complete => &mut counts.completions,
            BulkAction::Free => {
                counts.unseen_caches.insert(event.extra);
                &mut counts.unseen_frees
            }
        };
        *sum = sum.saturating_add(rest);
    }
}
