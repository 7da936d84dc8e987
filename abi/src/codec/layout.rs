//! The parts of an event's records, by its format: bytes that fields cover, the value, the thread.

use crate::codec::wire::NO_PID;
use crate::fields::FieldForm;
use crate::kernel::format::{EventFormat, Field, FieldAddressing, PageShape};
use crate::kernel::profile;
use crate::kernel::subbuffer::{Entry, SubBuffer};
use crate::target::{Big, Endian, Little, TargetOrder, u16_at, u32_at};

/// Fields that are different in most records of an event, the first one that it has.
const VALUES: [&str; 6] = ["ptr", "pfn", "page", "addr", "va_start", "size"];
/// Bytes that alignment leaves without a field are fewer than these.
const MAX_HOLE: usize = 8;
/// Bits of a pointer to memory that are 0.
const POINTER_SHIFT: u8 = 3;

/// Place of the number that is different in most records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ValuePlace {
    pub(super) offset: usize,
    /// 4 or 8.
    pub(super) bytes: usize,
    /// Lower bits that are equal in most values.
    pub(super) shift: u8,
}

/// Place of the place of a text or an array.
#[derive(Clone, Copy, Debug)]
struct Location {
    offset: usize,
    /// Byte from which the place counts.
    base: usize,
}

/// The parts of one event's records.
#[derive(Debug)]
pub(super) struct EventLayout {
    /// Bytes that fields cover, in order.
    covered: Vec<(usize, usize)>,
    /// End of the last field.
    extent: usize,
    /// The last field may have more elements than the format says.
    is_open: bool,
    locations: Vec<Location>,
    pub(super) value: Option<ValuePlace>,
    /// The thread id is where the block says.
    pub(super) has_pid: bool,
    /// Words of 8 bytes that tell most of its slots apart: their offsets, and masks of the bytes that fields cover.
    pub(super) probes: [(usize, u64); 3],
    /// Slots differ in any word, as stacks do.
    pub(super) is_array: bool,
}

/// The parts of all events' records.
#[derive(Debug, Default)]
pub struct EventLayouts {
    by_id: Vec<Option<Box<EventLayout>>>,
    /// Offset of the thread id, [`NO_PID`] for none.
    pub(super) pid_at: u8,
}

impl EventLayouts {
    /// Layouts of the events described, each as (system, format). Later descriptions of an id are ignored.
    pub fn new<'a>(formats: impl IntoIterator<Item = (&'a str, &'a EventFormat)>) -> EventLayouts {
        let mut layouts = EventLayouts { by_id: Vec::new(), pid_at: NO_PID };
        for (system, format) in formats {
            let pid = format.field(profile::PID).filter(|pid| pid.size == 4 && pid.offset < usize::from(NO_PID));
            if let Some(pid) = pid.filter(|_| layouts.pid_at == NO_PID) {
                layouts.pid_at = pid.offset as u8;
            }
            let id = usize::from(format.id);
            if layouts.by_id.len() <= id {
                layouts.by_id.resize_with(id.saturating_add(1), || None);
            }
            let has_pid = pid.is_some_and(|pid| pid.offset == usize::from(layouts.pid_at));
            if let Some(place) = layouts.by_id.get_mut(id) {
                place.get_or_insert_with(|| Box::new(EventLayout::new(system, format, has_pid)));
            }
        }
        layouts
    }

    /// Layout of a record; `None` where its event has no format.
    #[inline(always)]
    pub(super) fn of<O: TargetOrder>(&self, record: &[u8]) -> Option<&EventLayout> {
        self.by_id.get(usize::from(u16_at::<O>(record, 0)?))?.as_deref()
    }

    /// Makes the bytes of records zero that no field covers, in a run of sub-buffers: what comes back from an encoded block.
    pub fn clear_unused(&self, shape: &PageShape, sub_buffers: &mut [u8]) {
        match shape.target.endian {
            Endian::Little => self.clear_unused_in::<Little>(shape, sub_buffers),
            Endian::Big => self.clear_unused_in::<Big>(shape, sub_buffers),
        }
    }

    fn clear_unused_in<O: TargetOrder>(&self, shape: &PageShape, mut rest: &mut [u8]) {
        let mut places = Vec::new();
        while let Ok(sub_buffer) = SubBuffer::parse::<O>(shape, rest) {
            let stored = sub_buffer.stored;
            let mut records = sub_buffer.records::<O>();
            while let Some(Ok(entry)) = records.entry() {
                if let Entry::Record { record, .. } = entry {
                    let end = shape.data_offset.saturating_add(records.offset());
                    places.push(end.saturating_sub(record.payload.len())..end);
                }
            }
            for place in places.drain(..) {
                self.clear_record::<O>(rest.get_mut(place).unwrap_or_default());
            }
            rest = rest.get_mut(stored..).unwrap_or_default();
        }
    }

    /// Makes the bytes of a record zero that no field covers.
    pub(super) fn clear_record<O: TargetOrder>(&self, record: &mut [u8]) {
        let Some(layout) = self.of::<O>(record) else { return };
        let mut mask = Vec::new();
        layout.mask::<O>(record, &mut mask);
        record.iter_mut().zip(&mask).for_each(|(byte, mask)| *byte &= mask);
    }
}

impl EventLayout {
    fn new(system: &str, format: &EventFormat, has_pid: bool) -> EventLayout {
        let mut covered: Vec<_> = format.fields.iter().map(|field| (field.offset, field.end())).collect();
        covered.sort_unstable();
        let last = format.fields.iter().max_by_key(|field| (field.offset, field.size));
        let is_array = format.fields.iter().any(|field| field.element_bytes.is_some());
        // Elements of `ftrace:kernel_stack` are as many as its field `size` says.
        let is_open = last.is_some_and(|last| last.size == 0 || (system == "ftrace" && last.form.is_none()));
        let located = format.fields.iter().filter(|field| field.place != FieldAddressing::Fixed);
        let location = |field: &Field| Location {
            offset: field.offset,
            base: if field.place == FieldAddressing::RelLoc { field.end() } else { 0 },
        };
        let value = VALUES.into_iter().find_map(|name| format.field(name)).filter(|_| !is_array).and_then(value_place);
        let own = format.fields.iter().filter(|field| {
            let is_value = value.is_some_and(|value| value.offset == field.offset);
            field.place == FieldAddressing::Fixed && !is_value && !field.name.starts_with("common_")
        });
        let mut words = own.map(|field| field.offset & !7);
        let first = words.next().unwrap_or(0);
        let second = words.find(|&word| word != first).unwrap_or(first);
        // A call site may ask for the same bytes with GFP_KERNEL and with GFP_ATOMIC.
        let third = format.field(profile::GFP).map_or(second, |flags| flags.offset & !7);
        let is_covered = |byte: usize| covered.iter().any(|&(from, to)| (from..to).contains(&byte));
        let probe = |at: usize| {
            (
                at,
                u64::from_ne_bytes(std::array::from_fn(
                    |byte| if is_covered(at.saturating_add(byte)) { 0xff } else { 0 },
                )),
            )
        };
        let probes = [probe(first), probe(second), probe(third)];
        EventLayout {
            extent: covered.iter().map(|&(_, end)| end).max().unwrap_or(0),
            covered,
            is_open,
            locations: located.map(location).collect(),
            value,
            has_pid,
            probes,
            is_array,
        }
    }

    /// Replaces `mask` by ones for the bytes of a record that are kept, zeros for those that no field covers. All are kept where the
    /// record is not as its format says.
    pub(super) fn mask<O: TargetOrder>(&self, record: &[u8], mask: &mut Vec<u8>) {
        let len = record.len();
        mask.clear();
        mask.resize(len, 0);
        let mut cover = |from: usize, to: usize| {
            if let Some(covered) = mask.get_mut(from.min(len)..to.min(len)) {
                covered.fill(0xff);
            }
        };
        for &(from, to) in &self.covered {
            cover(from, to);
        }
        if self.is_open {
            cover(self.extent, len);
        }
        for location in &self.locations {
            let Some(word) = u32_at::<O>(record, location.offset) else { continue };
            let from = location.base.saturating_add((word & 0xffff) as usize);
            let to = from.saturating_add((word >> 16) as usize);
            if to > len {
                return cover(0, len);
            }
            cover(from, to);
        }
        // More than alignment leaves is data that the format does not tell of.
        for run in mask.chunk_by_mut(|a, b| a == b) {
            if run.len() >= MAX_HOLE {
                run.fill(0xff);
            }
        }
    }
}

fn value_place(field: &Field) -> Option<ValuePlace> {
    let is_number = field.place == FieldAddressing::Fixed && matches!(field.size, 4 | 8);
    let shift = if field.form == Some(FieldForm::Address) { POINTER_SHIFT } else { 0 };
    let place = ValuePlace { offset: field.offset, bytes: field.size, shift };
    (is_number && field.offset.is_multiple_of(4)).then_some(place)
}
