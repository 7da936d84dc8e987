//! From the kernel's kmem records to [`Event`]s, by each trace's own event formats.
//!
//! The offsets of an event's fields are resolved once per file, so that decoding a record is a table
//! look-up by `common_type` and a few loads.

use crate::event::{Action, Event, Items, Kind, NameId, Names};
use crate::format::{EventFormat, Field, Place};
use crate::target::{Endian, Order, u16_at, u32_at, u64_at, uint_at};

/// Where a number is in a record.
#[derive(Clone, Copy, Debug)]
struct Slot {
    offset: u32,
    size: u8,
    /// Of the eight bytes at the offset, those that are the number.
    mask: u64,
}

impl Slot {
    /// A number that is not there: 0 wherever it is read.
    const ABSENT: Slot = Slot { offset: 0, size: 0, mask: 0 };

    fn of(field: &Field) -> Option<Slot> {
        let fits = field.place == Place::Fixed && matches!(field.size, 1 | 2 | 4 | 8);
        fits.then(|| Slot::new(field.offset as u32, field.size as u8))
    }

    fn new(offset: u32, size: u8) -> Slot {
        Slot { offset, size, mask: u64::MAX >> (64 - 8 * u32::from(size)) }
    }

    /// The number, 0 where it is not there. Mostly one load, whatever the size.
    #[inline]
    fn read<O: Order>(self, record: &[u8]) -> u64 {
        match u64_at::<O>(record, self.offset as usize) {
            Some(word) => match O::ENDIAN {
                Endian::Little => word & self.mask,
                Endian::Big => word >> (self.mask.leading_zeros() & 63) & self.mask,
            },
            None => self.read_at_end::<O>(record),
        }
    }

    #[cold]
    fn read_at_end<O: Order>(self, record: &[u8]) -> u64 {
        uint_at::<O>(record, self.offset as usize, usize::from(self.size)).unwrap_or(0)
    }

    fn end(self) -> usize {
        self.offset as usize + usize::from(self.size)
    }
}

/// What the sizes of an event's object are taken from.
#[derive(Clone, Copy, Debug)]
enum Size {
    /// `bytes_req` and `bytes_alloc`.
    Bytes(Slot, Slot),
    /// `order`: `page_bytes << order`.
    Order(Slot),
    /// A free, or no object.
    None,
}

/// How records of one event id are decoded.
#[derive(Clone, Debug)]
struct Plan {
    name: NameId,
    action: Action,
    pid: Option<Slot>,
    call_site: Slot,
    address: Slot,
    /// The address that means "nothing was allocated".
    failed: Option<u64>,
    size: Size,
    gfp: Option<Slot>,
    node: Option<Slot>,
    cache: Option<(Slot, Place)>,
    /// A shorter record is damaged.
    least: usize,
}

/// A record that ends before its fields do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the record has {have} bytes, and its event's fields need {need}")]
pub(crate) struct ShortRecord {
    pub(crate) have: usize,
    pub(crate) need: usize,
}

/// The plans of one trace.
#[derive(Clone, Debug, Default)]
pub(crate) struct Decoder {
    /// Index into `plans` by event id; 0: not known.
    by_id: Vec<u16>,
    plans: Vec<Plan>,
    page_bytes: u64,
}

impl Decoder {
    /// A decoder for the events described, each as (system, format). Later descriptions of an id are ignored.
    pub(crate) fn new(formats: &[(String, EventFormat)], page_bytes: u64, names: &mut Names) -> Decoder {
        let unknown = names.intern(b"unknown");
        let other = Plan {
            name: unknown,
            action: Action::Other,
            pid: None,
            call_site: Slot::ABSENT,
            address: Slot::ABSENT,
            failed: None,
            size: Size::None,
            gfp: None,
            node: None,
            cache: None,
            least: 0,
        };
        let mut decoder = Decoder { by_id: Vec::new(), plans: vec![other.clone()], page_bytes };
        for (system, format) in formats {
            let id = usize::from(format.id);
            if decoder.by_id.len() <= id {
                decoder.by_id.resize(id + 1, 0);
            }
            let Ok(index) = u16::try_from(decoder.plans.len()) else { break };
            if let Some(slot) = decoder.by_id.get_mut(id).filter(|slot| **slot == 0) {
                *slot = index;
                decoder.plans.push(Plan::new(system, format, names, &other));
            }
        }
        decoder
    }

    /// Decodes the payload of a record for `I`. `at` and `cpu` are taken as they are.
    #[inline(always)]
    pub(crate) fn decode<O: Order, I: Items>(
        &self,
        at: u64,
        cpu: u32,
        record: &[u8],
        names: &mut Names,
    ) -> Result<Event, ShortRecord> {
        let have = record.len();
        // `common_type` is the first field of every event of every kernel.
        let id = u16_at::<O>(record, 0).ok_or(ShortRecord { have, need: 2 })?;
        let index = self.by_id.get(usize::from(id)).copied().unwrap_or(0);
        let plan = self.plans.get(usize::from(index)).ok_or(ShortRecord { have, need: 0 })?;
        if have < plan.least {
            return Err(ShortRecord { have, need: plan.least });
        }
        let address = plan.address.read::<O>(record);
        let (requested, allocated) = match plan.size {
            Size::Bytes(requested, allocated) => (requested.read::<O>(record), allocated.read::<O>(record)),
            Size::Order(order) => {
                let bytes = page_bytes(self.page_bytes, order.read::<O>(record));
                (bytes, bytes)
            }
            Size::None => (0, 0),
        };
        let cache = match plan.cache {
            Some((slot, place)) if I::NAMES => {
                string::<O>(record, slot, place).and_then(|field| names.intern_field(field))
            }
            _ => None,
        };
        Ok(Event {
            at,
            address,
            call_site: plan.call_site.read::<O>(record),
            requested,
            allocated,
            gfp: plan.gfp.map(|slot| slot.read::<O>(record)),
            cpu,
            pid: plan.pid.map(|slot| slot.read::<O>(record) as u32 as i32),
            node: plan.node.map(|slot| slot.read::<O>(record) as u32 as i32),
            cache,
            name: plan.name,
            action: plan.action,
            failed: plan.failed == Some(address),
        })
    }
}

impl Plan {
    fn new(system: &str, format: &EventFormat, names: &mut Names, other: &Plan) -> Plan {
        let slot = |name: &str| format.field(name).and_then(Slot::of);
        let name = names.intern(format.name.as_bytes());
        let pid = slot("common_pid");
        let plain = Plan { name, pid, ..other.clone() };
        // A page is keyed by its frame; kernels before 4.2 have its `struct page` pointer instead.
        let frame = slot("pfn");
        let object = match (system, format.name.as_str()) {
            ("kmem", "kmalloc" | "kmalloc_node") => (Action::Alloc(Kind::Kmalloc), slot("ptr")),
            ("kmem", "kmem_cache_alloc" | "kmem_cache_alloc_node") => (Action::Alloc(Kind::Cache), slot("ptr")),
            ("kmem", "kfree") => (Action::Free(Kind::Kmalloc), slot("ptr")),
            ("kmem", "kmem_cache_free") => (Action::Free(Kind::Cache), slot("ptr")),
            ("kmem", "mm_page_alloc") => (Action::Alloc(Kind::Pages), frame.or(slot("page"))),
            ("kmem", "mm_page_free" | "mm_page_free_direct") => (Action::Free(Kind::Pages), frame.or(slot("page"))),
            _ => return plain,
        };
        let (action, Some(address)) = object else { return plain };
        let failed = match action {
            Action::Alloc(Kind::Pages) if frame.is_some() => Some(u64::MAX >> (64 - 8 * u32::from(address.size))),
            Action::Alloc(_) => Some(0),
            _ => None,
        };
        let size = match action {
            Action::Alloc(Kind::Pages) => Size::Order(slot("order").unwrap_or(Slot::ABSENT)),
            Action::Alloc(_) => {
                Size::Bytes(slot("bytes_req").unwrap_or(Slot::ABSENT), slot("bytes_alloc").unwrap_or(Slot::ABSENT))
            }
            _ => Size::None,
        };
        let cache =
            format.field("name").filter(|f| f.place != Place::Fixed).map(|f| (Slot::new(f.offset as u32, 4), f.place));
        let call_site = slot("call_site").unwrap_or(Slot::ABSENT);
        let (gfp, node) = (slot("gfp_flags"), slot("node"));
        let sizes = match size {
            Size::Bytes(requested, allocated) => [requested, allocated],
            Size::Order(order) => [order, Slot::ABSENT],
            Size::None => [Slot::ABSENT; 2],
        };
        let slots = [Some(address), Some(call_site), pid, gfp, node, cache.map(|(slot, _)| slot)];
        let least = slots.into_iter().flatten().chain(sizes).map(Slot::end).max().unwrap_or(0);
        Plan { action, address, failed, size, call_site, gfp, node, cache, least, ..plain }
    }
}

/// `page_bytes << order`, saturated: the order is whatever the file says.
pub(crate) fn page_bytes(page_bytes: u64, order: u64) -> u64 {
    u32::try_from(order)
        .ok()
        .and_then(|order| 1u64.checked_shl(order))
        .map_or(u64::MAX, |n| page_bytes.saturating_mul(n))
}

/// The string that a `__data_loc` or `__rel_loc` points at, with its NUL; `None` where it is outside of the record.
#[inline]
fn string<O: Order>(record: &[u8], slot: Slot, place: Place) -> Option<&[u8]> {
    let location = u32_at::<O>(record, slot.offset as usize)?;
    let (len, offset) = ((location >> 16) as usize, (location & 0xffff) as usize);
    let start = if place == Place::RelLoc { slot.end() + offset } else { offset };
    record.get(start..)?.get(..len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Item;
    use crate::target::{Big, Little};

    const CACHE_ALLOC: &str = "name: kmem_cache_alloc\nID: 5\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\
        \tfield:unsigned long call_site;\toffset:8;\tsize:8;\tsigned:0;\n\
        \tfield:const void * ptr;\toffset:16;\tsize:8;\tsigned:0;\n\
        \tfield:__data_loc char[] name;\toffset:24;\tsize:4;\tsigned:0;\n\
        \tfield:size_t bytes_req;\toffset:32;\tsize:8;\tsigned:0;\n\
        \tfield:size_t bytes_alloc;\toffset:40;\tsize:8;\tsigned:0;\n\
        \tfield:unsigned long gfp_flags;\toffset:48;\tsize:8;\tsigned:0;\n\
        \tfield:int node;\toffset:56;\tsize:4;\tsigned:1;\n\
        \tfield:bool accounted;\toffset:60;\tsize:1;\tsigned:0;\n";

    const PAGE_ALLOC: &str = "name: mm_page_alloc\nID: 7\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\
        \tfield:unsigned long pfn;\toffset:8;\tsize:4;\tsigned:0;\n\
        \tfield:unsigned int order;\toffset:12;\tsize:4;\tsigned:0;\n";

    fn decoder(names: &mut Names) -> Decoder {
        let formats: Vec<_> =
            [CACHE_ALLOC, PAGE_ALLOC].map(|text| ("kmem".to_owned(), EventFormat::parse(text).unwrap())).into();
        Decoder::new(&formats, 4096, names)
    }

    #[test]
    fn a_record_becomes_an_event_by_its_format() {
        let mut names = Names::new();
        let decoder = decoder(&mut names);
        let mut record = vec![5, 0, 0, 0];
        record.extend_from_slice(&(-7i32).to_le_bytes());
        record.extend_from_slice(&0xffff_ffff_8123_4567u64.to_le_bytes());
        record.extend_from_slice(&0xffff_8880_1111_2222u64.to_le_bytes());
        record.extend_from_slice(&(61u64 | 7 << 16).to_le_bytes());
        for word in [100u64, 128, 0xcc0] {
            record.extend_from_slice(&word.to_le_bytes());
        }
        record.extend_from_slice(&(-1i32).to_le_bytes());
        record.extend_from_slice(b"\x01dentry\0");
        let event = decoder.decode::<Little, Vec<Item>>(9, 3, &record, &mut names).unwrap();
        assert_eq!((event.at, event.cpu, event.pid, event.node), (9, 3, Some(-7), Some(-1)));
        assert_eq!((event.call_site, event.address), (0xffff_ffff_8123_4567, 0xffff_8880_1111_2222));
        assert_eq!((event.requested, event.allocated, event.gfp), (100, 128, Some(0xcc0)));
        assert_eq!((event.action, event.failed), (Action::Alloc(Kind::Cache), false));
        assert_eq!(names.get(event.cache.unwrap()), b"dentry");
        assert_eq!(names.get(event.name), b"kmem_cache_alloc");
        // A name outside of the record is none; a record cut in its fields is refused.
        let event = decoder.decode::<Little, Vec<Item>>(9, 3, &record[..64], &mut names).unwrap();
        assert_eq!(event.cache, None);
        assert_eq!(
            decoder.decode::<Little, Vec<Item>>(9, 3, &record[..56], &mut names),
            Err(ShortRecord { have: 56, need: 60 })
        );
    }

    #[test]
    fn pages_are_sized_by_their_order_and_fail_with_all_ones() {
        let mut names = Names::new();
        let decoder = decoder(&mut names);
        let record = |pfn: u32, order: u32| {
            let mut record = vec![0, 7, 0, 0, 0, 0, 0, 9];
            record.extend_from_slice(&pfn.to_be_bytes());
            record.extend_from_slice(&order.to_be_bytes());
            record
        };
        let event = decoder.decode::<Big, Vec<Item>>(1, 0, &record(0x1234, 3), &mut names).unwrap();
        assert_eq!((event.address, event.requested, event.allocated, event.failed), (0x1234, 32768, 32768, false));
        assert!(decoder.decode::<Big, Vec<Item>>(1, 0, &record(u32::MAX, 0), &mut names).unwrap().failed);
        assert_eq!(decoder.decode::<Big, Vec<Item>>(1, 0, &record(1, 90), &mut names).unwrap().allocated, u64::MAX);
    }

    #[test]
    fn what_is_not_known_is_other() {
        let mut names = Names::new();
        let decoder = decoder(&mut names);
        for id in [0u16, 6, 8, u16::MAX] {
            let event = decoder.decode::<Little, Vec<Item>>(1, 0, &id.to_le_bytes(), &mut names).unwrap();
            assert_eq!((event.action, event.pid), (Action::Other, None), "{id}");
        }
    }
}
