//! A workload as the bytes of a relay kmemtrace channel, as `cat cpuN` leaves them.

use super::{Random, put};
use crate::generate::Workload;
use kmemtrace_abi::event::{Action, Event, Kind, StreamItem};
use kmemtrace_abi::kernel::relay::Layout;
use kmemtrace_abi::target::Endian;

/// Properties of a relay channel.
#[derive(Clone, Copy, Debug)]
pub struct RelayOptions {
    /// Layout of the records.
    pub layout: Layout,
    /// Byte order.
    pub endian: Endian,
    /// Number of the first record (R4).
    pub first_sequence: u32,
    /// Some records carry extensions (R4).
    pub features: bool,
    /// Runs of records are lost by the reader.
    pub holes: bool,
}

/// One CPU's relay stream.
#[derive(Clone, Debug, Default)]
pub struct RelayStream {
    /// The CPU.
    pub cpu: u32,
    /// Order key and bytes of each record.
    pub records: Vec<(u64, Vec<u8>)>,
    /// Events that a reader must find; missing numbers are in [`RelayStreams::holes`].
    pub events: Vec<Event>,
}

impl RelayStream {
    /// The stream's bytes.
    pub fn bytes(&self) -> Vec<u8> {
        self.records.iter().flat_map(|(_, bytes)| bytes).copied().collect()
    }
}

/// All CPUs' relay streams.
#[derive(Clone, Debug, Default)]
pub struct RelayStreams {
    /// Each CPU, ascending.
    pub cpus: Vec<RelayStream>,
    /// Runs of missing numbers between those that are there: the number before, the one after.
    pub holes: Vec<(u64, u64)>,
}

/// The relay streams of `workload`'s allocations and frees; names are added to its names.
///
/// The channel numbers records in the total order.
pub fn relay(workload: &mut Workload, options: &RelayOptions, seed: u64) -> RelayStreams {
    let mut random = Random::new(seed);
    let mut events: Vec<(usize, Event)> = Vec::new();
    for (index, cpu) in workload.cpus.iter().enumerate() {
        events.extend(cpu.items.iter().filter_map(|item| match item {
            StreamItem::Event(event) if event.action != Action::Other => Some((index, *event)),
            _ => None,
        }));
    }
    // Stable, and the CPUs are ascending: the total order.
    events.sort_by_key(|(_, event)| event.at);

    let mut streams = RelayStreams {
        cpus: workload.cpus.iter().map(|c| RelayStream { cpu: c.cpu, ..RelayStream::default() }).collect(),
        holes: Vec::new(),
    };
    let numbered = options.layout == Layout::R4;
    let mut number = u64::from(options.first_sequence);
    let mut previous = None;
    let mut losing = 0;
    for (index, event) in events {
        let Some((id, name)) = ids(&event) else { continue };
        let address = if event.failed { 0 } else { event.address };
        if !numbered && address == 0 {
            continue;
        }
        let at = if numbered { number } else { event.at };
        number += 1;
        // The first number of a recording is no loss, so nothing is lost before it.
        if losing > 0 || (options.holes && previous.is_some() && random.chance(1)) {
            losing = if losing > 0 { losing - 1 } else { random.below(20) };
            continue;
        }
        if numbered {
            if let Some(before) = previous.filter(|p| p + 1 < at) {
                streams.holes.push((before, at));
            }
            previous = Some(at);
        }
        let alloc = matches!(event.action, Action::Alloc(_));
        let event = Event {
            at,
            address,
            gfp: alloc.then(|| event.gfp.unwrap_or(0xd0)),
            node: alloc.then(|| event.node.unwrap_or(-1)),
            pid: None,
            flags: None,
            order: None,
            stack: None,
            mark: kmemtrace_abi::event::Mark::None,
            value: None,
            owner: None,
            fields: None,
            cache: None,
            name: workload.names.intern(name.as_bytes()),
            // A null pointer is the only sign of failure here.
            failed: alloc && address == 0,
            ..event
        };
        let stream = &mut streams.cpus[index];
        stream.records.push((at, record(&event, id, options, &mut random)));
        stream.events.push(event);
    }
    streams
}

/// Type id and the name of the event.
fn ids(event: &Event) -> Option<(u8, &'static str)> {
    Some(match event.action {
        Action::Alloc(Kind::Kmalloc) => (0, "kmalloc"),
        Action::Alloc(Kind::Cache) => (1, "kmem_cache_alloc"),
        Action::Alloc(Kind::Pages) => (2, "mm_page_alloc"),
        Action::Free(Kind::Kmalloc) => (0, "kfree"),
        Action::Free(Kind::Cache) => (1, "kmem_cache_free"),
        Action::Free(Kind::Pages) => (2, "mm_page_free"),
        // A relay channel has no probe events, and types for these three kinds.
        Action::Alloc(Kind::Percpu | Kind::Vmalloc | Kind::Tag) => return None,
        Action::Free(Kind::Percpu | Kind::Vmalloc | Kind::Tag) => return None,
        Action::Deferred | Action::BulkFree(_) | Action::Bulk(_) | Action::Other => return None,
    })
}

fn record(event: &Event, type_id: u8, options: &RelayOptions, random: &mut Random) -> Vec<u8> {
    let endian = options.endian;
    let alloc = matches!(event.action, Action::Alloc(_));
    let mut out = Vec::new();
    if options.layout != Layout::R4 {
        let event_id = if alloc { 1 } else { 2 };
        if options.layout == Layout::R1 {
            put(&mut out, endian, event_id, 2);
            put(&mut out, endian, u64::from(type_id), 2);
        } else {
            out.extend_from_slice(&[event_id as u8, type_id]);
            put(&mut out, endian, 56, 2);
        }
        // A free leaves its other fields as they were on the stack.
        let field = |value: u64, random: &mut Random| if alloc { value } else { random.bits() };
        put(&mut out, endian, field(event.node.unwrap_or(-1) as u64, random), 4);
        put(&mut out, endian, event.call_site, 8);
        put(&mut out, endian, event.address, 8);
        put(&mut out, endian, field(event.requested, random), 8);
        put(&mut out, endian, field(event.allocated, random), 8);
        put(&mut out, endian, field(event.gfp.unwrap_or(0), random), 8);
        put(&mut out, endian, event.at, 8);
        return out;
    }
    let mut feature = Vec::new();
    if options.features && random.chance(10) {
        let bytes = random.below(20);
        put(&mut feature, endian, bytes + 3, 2);
        feature.push(1 + random.below(5) as u8);
        feature.extend((0..bytes).map(|_| random.bits() as u8));
    }
    let size = if alloc { 48 } else { 24 } + feature.len() as u64;
    out.extend_from_slice(&[u8::from(!alloc), type_id]);
    put(&mut out, endian, size, 2);
    put(&mut out, endian, event.at, 4);
    put(&mut out, endian, event.call_site, 8);
    put(&mut out, endian, event.address, 8);
    if alloc {
        put(&mut out, endian, event.requested, 8);
        put(&mut out, endian, event.allocated, 8);
        put(&mut out, endian, event.gfp.unwrap_or(0), 4);
        put(&mut out, endian, event.node.unwrap_or(-1) as u64, 4);
    }
    out.extend_from_slice(&feature);
    out
}
