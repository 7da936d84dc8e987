//! Records of several objects, which the recorder's probe events of bulk frees and allocations write.
//!
//! The decoder hands on an event for the record, [`Bulk::Record`], and right after it one for each address, [`Bulk::Address`], with the
//! same key and CPU. Files, merges and documents count the record alone; pairing and filters see addresses as events like others. All
//! events of a record are in one chunk and one window, and share a stack.

use crate::event::{Action, Bulk, BulkAction, Event, Kind};
use crate::kernel::format::{EventFormat, FieldAddressing};
use crate::kernel::probes::{ADDRESSES, CACHE_POINTER, MAX_ADDRESSES, RESULT, SIZE};
use crate::kernel::slot::Slot;
use crate::target::{TargetOrder, u64_at};

/// Bytes of an address in the array, whatever the word size: the recorder asks for `x64`.
const ADDRESS_BYTES: usize = 8;

/// Places of the objects in a record.
#[derive(Clone, Copy, Debug)]
pub(super) struct BulkPlan {
    /// Number of objects.
    size: Slot,
    /// Offset of the array of addresses, and its elements.
    array: (usize, u8),
    which: Which,
    /// A shorter record is damaged.
    pub(super) least: usize,
}

/// Field that tells what became of the objects.
#[derive(Clone, Copy, Debug)]
enum Which {
    /// A free, by the cache that the caller named.
    Free { cache: Slot },
    /// An allocation, by its result.
    Alloc { result: Slot },
}

impl BulkPlan {
    pub(super) fn of_free(format: &EventFormat) -> Option<BulkPlan> {
        let cache = slot(format, CACHE_POINTER)?;
        BulkPlan::new(format, Which::Free { cache }, cache)
    }

    pub(super) fn of_alloc(format: &EventFormat) -> Option<BulkPlan> {
        let result = slot(format, RESULT)?;
        BulkPlan::new(format, Which::Alloc { result }, result)
    }

    fn new(format: &EventFormat, which: Which, other: Slot) -> Option<BulkPlan> {
        let size = slot(format, SIZE)?;
        let array = format.field(ADDRESSES).filter(|field| field.place == FieldAddressing::Fixed)?;
        let is_of_addresses = array.element_bytes == Some(ADDRESS_BYTES) && array.size > 0;
        let elements = is_of_addresses.then_some(array.size / ADDRESS_BYTES)?;
        let least = [size.end(), other.end(), array.end()].into_iter().max()?;
        let elements = u8::try_from(elements.min(MAX_ADDRESSES as usize)).ok()?;
        Some(BulkPlan { size, array: (array.offset, elements), which, least })
    }

    /// Hands on the record as an event, and its addresses. `event` has what all of them share.
    pub(super) fn events<O: TargetOrder>(&self, event: Event, record: &[u8], mut take: impl FnMut(Event)) {
        let size = self.size.read::<O>(record);
        let (offset, elements) = self.array;
        let mut addresses = u8::try_from(size).unwrap_or(u8::MAX).min(elements);
        let (action, kind) = match self.which {
            Which::Free { cache } if cache.read::<O>(record) == 0 => (BulkAction::Complete, Kind::Kmalloc),
            Which::Free { .. } => (BulkAction::Free, Kind::Cache),
            Which::Alloc { .. } => (BulkAction::Alloc, Kind::Cache),
        };
        let failed = matches!(self.which, Which::Alloc { result } if result.read::<O>(record) == 0);
        if failed {
            addresses = 0;
        }
        let bulk = Some(Bulk::Record { action, addresses });
        // One failed allocation, however many objects were asked for.
        let of_record = if failed { Action::Alloc(kind) } else { Action::Bulk(kind) };
        // Fields of the record go with it alone.
        take(Event { action: of_record, failed, bulk, value: Some(size.cast_signed()), ..event });
        let is_alloc = action == BulkAction::Alloc;
        for number in 0..usize::from(addresses) {
            let address = u64_at::<O>(record, offset.saturating_add(ADDRESS_BYTES.saturating_mul(number))).unwrap_or(0);
            take(Event {
                address,
                action: if is_alloc { Action::Alloc(kind) } else { Action::BulkFree(kind) },
                failed: is_alloc && address == 0,
                bulk: Some(Bulk::Address),
                fields: None,
                ..event
            });
        }
    }
}

fn slot(format: &EventFormat, name: &str) -> Option<Slot> {
    format.field(name).and_then(Slot::of)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{EventSink, Gap, Names, StreamItem};
    use crate::kernel::decoder::{Decoder, RecordError, TraceFacts};
    use crate::kernel::subbuffer::Record;
    use crate::kernel::unknown::UnknownEvents;
    use crate::target::{Big, Endian, Little};

    const GROUP: &str = "kmemtrace_kmemtraced";

    fn facts() -> TraceFacts<'static> {
        TraceFacts { probe_group: Some(GROUP), page_bytes: 4096, ..TraceFacts::default() }
    }

    /// A field of a probe event: declaration, bytes, and the value in the record.
    type FieldValue<'a> = (&'a str, usize, u64);

    /// A probe event: the kernel packs its fields without gaps.
    struct Probe {
        endian: Endian,
        format: EventFormat,
        record: Vec<u8>,
    }

    impl Probe {
        /// Text and record of an event; `addresses` are the first elements of `p`, the others are memory of the caller.
        fn new(endian: Endian, name: &str, lines: &[FieldValue<'_>], (elements, addresses): (usize, &[u64])) -> Probe {
            let mut text = format!("name: {name}\nID: 1701\nformat:\n");
            let mut record = Vec::new();
            let common = [
                ("unsigned short common_type", 2, 1701),
                ("unsigned char common_flags", 1, 0x10),
                ("unsigned char common_preempt_count", 1, 0),
                ("int common_pid", 4, 77),
            ];
            let put = |record: &mut Vec<u8>, value: u64, size: usize| match endian {
                Endian::Little => record.extend(&value.to_le_bytes()[..size]),
                Endian::Big => record.extend(&value.to_be_bytes()[8 - size..]),
            };
            for &(declaration, size, value) in common.iter().chain(lines) {
                text += &format!("\tfield:{declaration};\toffset:{};\tsize:{size};\tsigned:0;\n", record.len());
                put(&mut record, value, size);
            }
            if elements > 0 {
                let (offset, size) = (record.len(), 8 * elements);
                // The kernel prints no bound; another writer of formats may.
                let bound = if endian == Endian::Little { String::new() } else { elements.to_string() };
                text += &format!("\tfield:u64 p[{bound}];\toffset:{offset};\tsize:{size};\tsigned:0;\n");
                let stack = std::iter::repeat(0xffff_c900_dead_beef);
                addresses.iter().copied().chain(stack).take(elements).for_each(|value| put(&mut record, value, 8));
            }
            text += "\nprint fmt: \"(%lx)\", REC->__probe_ip\n";
            Probe { endian, format: EventFormat::parse(&text).unwrap(), record }
        }

        /// Events of the record behind which `text` stands, by a decoder of the format under `system`.
        fn decode(&self, system: &str, text: &[u8], names: &mut Names) -> Result<Vec<Event>, RecordError> {
            let formats = [(system.to_owned(), self.format.clone())];
            let decoder = Decoder::new(&formats, &facts(), names);
            let payload = [&self.record[..], text].concat();
            let record = Record { time: 0, payload: &payload, rest: &payload };
            let (mut items, mut unknown) = (Vec::new(), UnknownEvents::default());
            match self.endian {
                Endian::Little => decoder.decode::<Little, _>(5, 3, &record, names, &mut items, &mut unknown)?,
                Endian::Big => decoder.decode::<Big, _>(5, 3, &record, names, &mut items, &mut unknown)?,
            }
            let event = |item| if let StreamItem::Event(event) = item { event } else { panic!("{item:?}") };
            Ok(items.into_iter().map(event).collect())
        }
    }

    const ORDERS: [Endian; 2] = [Endian::Little, Endian::Big];

    /// `free_bulk` as Linux 6.12 packs it: `p` at offset 44, at 32 on a 32-bit machine.
    fn free_bulk(endian: Endian, word: usize, (s, size, text): (u64, u64, usize), p: (usize, &[u64])) -> Probe {
        let at = 8 + 3 * word + 12 + 8 * p.0;
        let lines = [
            ("unsigned long __probe_ip", word, 0xffff_ffff_8130_0000),
            ("u64 s", word, s),
            ("u64 size", word, size),
            ("__data_loc char[] name", 4, (text << 16 | at) as u64),
            ("u64 call_site", 8, 0xffff_ffff_8110_0001),
        ];
        Probe::new(endian, "free_bulk", &lines, p)
    }

    /// `alloc_bulk` as Linux 7.3 packs it, where `ret` is a `bool`: `p` at offset 49.
    fn alloc_bulk(endian: Endian, (size, ret, ret_bytes): (u64, u64, usize), addresses: &[u64]) -> Probe {
        let at = 48 + ret_bytes + 512;
        let lines = [
            ("unsigned long __probe_func", 8, 0xffff_ffff_8130_0000),
            ("unsigned long __probe_ret_ip", 8, 0xffff_ffff_8110_0002),
            ("__data_loc char[] name", 4, (11 << 16 | at) as u64),
            ("u32 bytes_req", 4, 256),
            ("u32 bytes_alloc", 4, 320),
            ("gfp_t gfp_flags", 4, 0xcc0),
            ("u64 size", 8, size),
            ("s32 ret", ret_bytes, ret),
        ];
        Probe::new(endian, "alloc_bulk", &lines, (64, addresses))
    }

    fn addresses(events: &[Event]) -> Vec<u64> {
        events.iter().filter(|event| event.is_address()).map(|event| event.address).collect()
    }

    #[test]
    fn a_deferred_free_has_its_pointer_and_its_caller() {
        for (endian, word) in ORDERS.into_iter().flat_map(|endian| [(endian, 8), (endian, 4)]) {
            let lines = [
                ("unsigned long __probe_ip", word, 0x8130_0000),
                ("u64 ptr", word, 0x8810_0040),
                ("u64 call_site", 8, 0xffff_ffff_8110_0003),
            ];
            let probe = Probe::new(endian, "kvfree_rcu", &lines, (0, &[]));
            let mut names = Names::new();
            let events = probe.decode(GROUP, b"", &mut names).unwrap();
            let [event] = events[..] else { panic!("{events:?}") };
            let name = names.intern(b"kvfree_rcu");
            let want = Event {
                address: 0x8810_0040,
                call_site: 0xffff_ffff_8110_0003,
                pid: Some(77),
                flags: Some(0x10),
                action: Action::Deferred,
                ..Event::new(5, 3, name)
            };
            assert_eq!((event, event.kind(), event.bulk), (want, Some(Kind::Kmalloc), None));
        }
    }

    #[test]
    fn addresses_follow_their_record_in_order_and_nothing_beyond_size_leaves_it() {
        for (endian, word) in ORDERS.into_iter().flat_map(|endian| [(endian, 8), (endian, 4)]) {
            let mut names = Names::new();
            let [first, second] = [0x1_0000_0040, 0x40];
            let probe = free_bulk(endian, word, (0x77, 2, 7), (64, &[first, second]));
            let events = probe.decode(GROUP, b"dentry\0", &mut names).unwrap();
            assert_eq!(probe.format.field("p").map(|p| p.offset), Some(if word == 8 { 44 } else { 32 }));
            let cache = Some(names.intern(b"dentry"));
            let plain = Event {
                call_site: 0xffff_ffff_8110_0001,
                pid: Some(77),
                flags: Some(0x10),
                cache,
                ..Event::new(5, 3, names.intern(b"free_bulk"))
            };
            let bulk = Some(Bulk::Record { action: BulkAction::Free, addresses: 2 });
            let of =
                |address| Event { address, action: Action::BulkFree(Kind::Cache), bulk: Some(Bulk::Address), ..plain };
            let record = Event { action: Action::Bulk(Kind::Cache), bulk, value: Some(2), ..plain };
            assert_eq!(events, [record, of(first), of(second)]);
        }
    }

    #[test]
    fn a_free_without_a_cache_completes_deferred_frees() {
        for endian in ORDERS {
            let mut names = Names::new();
            let probe = free_bulk(endian, 8, (0, 1, 8), (64, &[0x40]));
            let events = probe.decode(GROUP, b"(fault)\0", &mut names).unwrap();
            assert_eq!(events[0].bulk, Some(Bulk::Record { action: BulkAction::Complete, addresses: 1 }));
            let what: Vec<_> = events.iter().map(|event| (event.action, event.cache)).collect();
            assert_eq!(what, [(Action::Bulk(Kind::Kmalloc), None), (Action::BulkFree(Kind::Kmalloc), None)]);
        }
    }

    #[test]
    fn a_record_has_no_more_addresses_than_its_array() {
        for (elements, size, want) in [(64, 64, 64), (64, 65, 64), (64, u64::MAX, 64), (16, 40, 16), (200, 90, 64)] {
            for endian in ORDERS {
                let all: Vec<u64> = (1..=elements as u64).map(|n| n << 6).collect();
                let probe = free_bulk(endian, 8, (0x77, size, 7), (elements, &all));
                let events = probe.decode(GROUP, b"dentry\0", &mut Names::new()).unwrap();
                assert_eq!(addresses(&events), all[..want], "{elements} {size}");
                assert_eq!((events.len(), usize::from(events[0].addresses())), (want + 1, want));
                assert_eq!(events[0].objects(), Some(size));
            }
        }
        let nothing = free_bulk(Endian::Little, 8, (0x77, 0, 7), (64, &[]));
        let events = nothing.decode(GROUP, b"dentry\0", &mut Names::new()).unwrap();
        assert_eq!((events.len(), events[0].addresses(), events[0].action), (1, 0, Action::Bulk(Kind::Cache)));
    }

    #[test]
    fn objects_allocated_in_bulk_are_those_of_one_cache() {
        for (endian, (ret, bytes)) in ORDERS.into_iter().flat_map(|endian| [(endian, (3, 4)), (endian, (1, 1))]) {
            let mut names = Names::new();
            let probe = alloc_bulk(endian, (3, ret, bytes), &[0x100, 0, 0x300]);
            let events = probe.decode(GROUP, b"maple_node\0", &mut names).unwrap();
            assert_eq!(probe.format.field("p").map(|p| p.offset), Some(48 + bytes));
            let name = names.intern(b"maple_node");
            for event in &events {
                assert_eq!((event.requested, event.allocated, event.gfp), (256, 320, Some(0xcc0)));
                assert_eq!(
                    (event.call_site, event.cache, event.allocates()),
                    (0xffff_ffff_8110_0002, Some(name), true)
                );
            }
            assert_eq!(events[0].bulk, Some(Bulk::Record { action: BulkAction::Alloc, addresses: 3 }));
            assert_eq!(events.iter().map(Event::objects).collect::<Vec<_>>(), [Some(3), None, None, None]);
            let of_addresses: Vec<_> = events[1..].iter().map(|event| (event.address, event.failed)).collect();
            assert_eq!(of_addresses, [(0x100, false), (0, true), (0x300, false)]);
            assert!(events[1..].iter().all(|event| event.action == Action::Alloc(Kind::Cache)));
        }
    }

    #[test]
    fn an_allocation_without_a_result_has_failed_once() {
        for (endian, bytes) in ORDERS.into_iter().flat_map(|endian| [(endian, 4), (endian, 1)]) {
            let probe = alloc_bulk(endian, (8, 0, bytes), &[0x100]);
            let events = probe.decode(GROUP, b"maple_node\0", &mut Names::new()).unwrap();
            let [event] = events[..] else { panic!("{events:?}") };
            assert_eq!((event.action, event.failed, event.address), (Action::Alloc(Kind::Cache), true, 0));
            assert_eq!(event.bulk, Some(Bulk::Record { action: BulkAction::Alloc, addresses: 0 }));
            assert_eq!(event.objects(), Some(8));
        }
    }

    #[test]
    fn the_same_events_of_another_group_are_other() {
        for probe in [
            free_bulk(Endian::Little, 8, (0x77, 1, 7), (64, &[0x40])),
            alloc_bulk(Endian::Little, (1, 1, 1), &[0x40]),
            Probe::new(Endian::Little, "kvfree_rcu", &[("u64 ptr", 8, 1), ("u64 call_site", 8, 2)], (0, &[])),
            Probe::new(Endian::Little, "kmalloc", &[("u64 ptr", 8, 1), ("u64 call_site", 8, 2)], (0, &[])),
        ] {
            for system in ["kmemtrace_other", "kprobes", GROUP] {
                let is_known = system == GROUP && probe.format.name != "kmalloc";
                let events = probe.decode(system, b"", &mut Names::new()).unwrap();
                assert_eq!(events[0].action == Action::Other, !is_known, "{} of {system}", probe.format.name);
                assert!(is_known || events.len() == 1);
            }
        }
    }

    #[test]
    fn fields_that_the_recorder_did_not_define_so_make_the_event_other() {
        let good = || free_bulk(Endian::Little, 8, (0x77, 1, 7), (64, &[0x40]));
        let change = |field: &str, text: &dyn Fn(&str) -> String| {
            let mut probe = good();
            let found = probe.format.fields.iter().position(|f| f.name == field).unwrap();
            let line = text(&format!("{} {}", probe.format.fields[found].offset, field));
            let parsed = EventFormat::parse(&format!("name: x\nID: 1\n{line}\n")).unwrap();
            probe.format.fields.splice(found..=found, parsed.fields);
            probe
        };
        let line = |declaration: &str, size: usize| format!("field:{declaration}; offset:44; size:{size}; signed:0;");
        let bad = [
            ("p", line("u64 q[64]", 512)),
            ("p", line("u64 p", 8)),
            ("p", line("u32 p[64]", 256)),
            ("p", line("u64 p[64]", 511)),
            ("p", line("u64 p[]", 511)),
            ("p", line("u64 p[]", 0)),
            ("p", line("u32 p[]", 512)),
            ("p", line("u0 p[]", 512)),
            ("p", line("char p[]", 512)),
            ("p", line("u64 p[", 512)),
            ("p", line("u64 p[0]", 0)),
            ("p", line("u64 p[18446744073709551616]", 512)),
            ("p", line("__data_loc u64[] p", 4)),
            ("size", line("u64 length", 8)),
            ("size", line("u8 size[3]", 3)),
            ("s", line("char s[16]", 16)),
            ("name", line("u64 name", 8)),
            ("call_site", line("u64 ip", 8)),
        ];
        for (field, text) in bad {
            let probe = change(field, &|_| text.clone());
            let events = probe.decode(GROUP, b"dentry\0", &mut Names::new()).unwrap();
            assert_eq!((events.len(), events[0].action), (1, Action::Other), "{text}");
        }
        let events = good().decode(GROUP, b"dentry\0", &mut Names::new()).unwrap();
        assert_eq!(events.len(), 2);
    }

    #[test]
    fn a_record_that_ends_within_its_array_is_damaged() {
        let mut probe = free_bulk(Endian::Little, 8, (0x77, 1, 7), (64, &[0x40]));
        let whole = probe.record.len();
        probe.record.truncate(whole - 1);
        let error = probe.decode(GROUP, b"", &mut Names::new());
        assert_eq!(error, Err(RecordError::Short { have: whole - 1, need: whole }));
        // The name is there or not: a kernel that cannot read it writes none.
        probe.record.push(0);
        let events = probe.decode(GROUP, b"", &mut Names::new()).unwrap();
        assert_eq!(events.iter().map(|event| event.cache).collect::<Vec<_>>(), [None, None]);
    }

    /// Events of a reader that asks for the fields of records.
    #[derive(Default)]
    struct WithFields(Vec<Event>);

    impl EventSink for WithFields {
        const FIELDS: bool = true;

        fn event(&mut self, event: Event, _: &Names) {
            self.0.push(event);
        }

        fn gap(&mut self, _: Gap) {}
    }

    #[test]
    fn kept_fields_are_those_of_the_record_without_its_array() {
        for p in ["u64 p[]", "u64 p[64]", "u64 p", "char p[512]"] {
            let mut probe = free_bulk(Endian::Little, 8, (0x77, 1, 7), (64, &[0x40]));
            let scalar = format!("name: x\nID: 1\nfield:{p}; offset:44; size:8; signed:0;\n");
            // A field of this name may come twice.
            probe.format.fields.extend(EventFormat::parse(&scalar).unwrap().fields);
            let decoder = Decoder::new(&[(GROUP.to_owned(), probe.format)], &facts(), &mut Names::new());
            let payload = [&probe.record[..], b"dentry\0"].concat();
            let record = Record { time: 0, payload: &payload, rest: &payload };
            let (mut names, mut items) = (Names::new(), WithFields::default());
            names.fields.set_kept(true);
            decoder.decode::<Little, _>(5, 3, &record, &mut names, &mut items, &mut UnknownEvents::default()).unwrap();
            let [of_record, of_address] = items.0[..] else { panic!("{:?}", items.0) };
            let fields = names.fields.get(of_record.fields.unwrap()).unwrap();
            let names: Vec<&str> = fields.iter().map(|(name, _)| name).collect();
            assert_eq!(names, ["__probe_ip", "s", "size", "name", "call_site"], "{p}");
            assert_eq!(of_address.fields, None);
        }
    }
}
