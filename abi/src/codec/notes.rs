//! Notes of events, each for all records of a slot that differ from the event's own in time and address alone: these records are not
//! decoded again.

use crate::event::Note;
use crate::kernel::varying::AddressRange;

/// Notes of the events of a block's slots, by the numbers of the slots. Later slots have none.
#[derive(Debug, Default)]
pub(super) struct Notes(Vec<Option<SlotNote>>);

/// Note of the event of a slot's record.
#[derive(Clone, Copy, Debug)]
struct SlotNote {
    note: Note,
    /// Thread of the event, in the bytes of the record.
    pid: [u8; 4],
    /// Addresses of events that it stands for.
    addresses: AddressRange,
}

impl Notes {
    /// Forgets all notes.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// The note that stands for a record of this slot.
    #[inline(always)]
    pub(super) fn note(&self, slot: u16, pid: [u8; 4], address: u64) -> Option<&Note> {
        let kept = self.0.get(usize::from(slot))?.as_ref()?;
        (kept.pid == pid && kept.addresses.has(address)).then_some(&kept.note)
    }

    /// Keeps the note of the last event of a slot.
    pub(super) fn keep(&mut self, slot: u16, note: Note, pid: [u8; 4], addresses: AddressRange) {
        let slot = usize::from(slot);
        if self.0.len() <= slot {
            self.0.resize(slot.saturating_add(1), None);
        }
        if let Some(kept) = self.0.get_mut(slot) {
            *kept = Some(SlotNote { note, pid, addresses });
        }
    }

    /// Forgets the note of a slot whose record changes.
    pub(super) fn forget(&mut self, slot: usize) {
        if let Some(kept) = self.0.get_mut(slot) {
            *kept = None;
        }
    }
}
