//! What is live: objects that were paired, or all that a text of one moment lists.

use crate::account::classes::{Class, Classes, Numbered, is_selected};
use crate::memory::budget::Budget;
use crate::order::pair_event::{PairAction, PairEvent};
use crate::pairing::pairs::{LiveObject, Pairing};
use crate::pairing::slot::AllocInfo;

/// Live objects of a monitor.
pub(super) enum Held<'a> {
    /// Of a trace of events.
    Paired(Box<Pairing<'a>>),
    /// Of a text of one moment: each entry counts as it stands, and none ends.
    Listed(ListedEntries<'a>),
}

impl Held<'_> {
    /// Hands over all live objects, in no order; those of an entry together.
    pub(super) fn each_live(&mut self, take: impl FnMut(&LiveObject)) {
        match self {
            Held::Paired(pairing) => pairing.each_live(take),
            Held::Listed(listed) => listed.each_live(take),
        }
    }

    /// True once the memory limit was exceeded.
    pub(super) fn is_over_memory(&self) -> bool {
        match self {
            Held::Paired(pairing) => pairing.over_budget,
            Held::Listed(listed) => listed.is_over_memory,
        }
    }

    /// Frees without an allocation and inferred frees.
    pub(super) fn unpaired(&self) -> (u64, u64) {
        match self {
            Held::Paired(pairing) => pairing.unpaired(),
            Held::Listed(_) => (0, 0),
        }
    }
}

/// Entry of a text. 12 bytes: a text may list millions.
#[derive(Clone, Copy, Debug)]
struct ListedEntry {
    class: u32,
    pid: u32,
    /// Number of its sums.
    amounts: u32,
}

/// Sums of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Amounts {
    /// Number of objects; 0 where the text does not tell.
    objects: u64,
    requested: u64,
    allocated: u64,
}

/// Entries of a text of one moment.
pub(super) struct ListedEntries<'a> {
    classes: &'a Classes,
    /// Classes that entries have had so far, by number.
    known: Vec<Class>,
    amounts: Numbered<Amounts>,
    entries: Vec<ListedEntry>,
    budget: Budget,
    is_over_memory: bool,
}

impl<'a> ListedEntries<'a> {
    pub(super) fn new(classes: &'a Classes, budget: Budget) -> ListedEntries<'a> {
        ListedEntries {
            classes,
            known: Vec::new(),
            amounts: Numbered::default(),
            entries: Vec::new(),
            budget,
            is_over_memory: false,
        }
    }

    /// Takes entries, and hands them on.
    pub(super) fn take(&mut self, events: &[PairEvent], mut hand_on: impl FnMut(&LiveObject)) {
        self.classes.from(self.known.len(), |class| self.known.push(*class));
        for event in events.iter().filter(|event| event.action == PairAction::Listed && is_selected(event.class)) {
            let PairEvent { address: objects, requested, allocated, class, extra: pid, .. } = *event;
            let amounts = self.amounts.number(Amounts { objects, requested, allocated });
            let entry = ListedEntry { class, pid, amounts };
            if self.entries.len() == self.entries.capacity() {
                // In small steps: the text that the entries come from gives its memory back as it is read.
                self.entries.reserve_exact(self.entries.len() / 16 + events.len());
            }
            self.entries.push(entry);
            if let Some(object) = self.object(entry) {
                hand_on(&object);
            }
        }
        self.is_over_memory |= self.budget.is_exceeded();
    }

    fn object(&self, ListedEntry { class, pid, amounts }: ListedEntry) -> Option<LiveObject> {
        let class = *self.known.get(class as usize)?;
        let Amounts { objects, requested, allocated } = self.amounts.get(amounts)?;
        let whole = allocated.checked_div(objects).unwrap_or(0);
        let info = AllocInfo { at: 0, tie: 0, pid };
        Some(LiveObject { class, info, objects, whole, left: (requested, allocated) })
    }

    fn each_live(&self, mut take: impl FnMut(&LiveObject)) {
        self.entries.iter().filter_map(|entry| self.object(*entry)).for_each(|object| take(&object));
    }
}
