//! From the kernel's kmem records to [`Event`]s, by each trace's own event formats.
//!
//! The offsets of an event's fields are resolved once per file, so that decoding a record is a table
//! look-up by `common_type` and a few loads.

use std::sync::Arc;

use byteorder::ByteOrder;

use crate::event::{Action, Event, EventSink, Kind, ModuleFree, ModuleLoad, NameId, Names};
use crate::fields::{FieldPlace, FieldsId, RecordFields};
use crate::kernel::bulk::BulkPlan;
use crate::kernel::format::EventFormat;
use crate::kernel::latency::{EventNames, LatencyPlan};
use crate::kernel::probes;
use crate::kernel::profile::{self, Null, Size};
use crate::kernel::release::Release;
use crate::kernel::slot::{Head, NEAR, NamePlace, Slot, name_place};
use crate::kernel::stack_record::StackFormat;
use crate::kernel::subbuffer::{LOADED, Record};
use crate::kernel::tasks::TaskPlan;
use crate::kernel::unknown::UnknownEvents;
use crate::kernel::varying::{AddressRange, Varying, VaryingPlaces};
use crate::target::{TargetOrder, u16_at};

/// Meaning of an event about a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ModuleEvent {
    Load,
    Free,
}

/// Meaning of [`Plan::sizes`].
#[derive(Clone, Copy, Debug)]
enum Sizing {
    /// Bytes asked for, and bytes taken.
    Bytes,
    /// `order`, of which the bytes are `page_bytes << order`.
    Order,
    /// Bytes, of which so many times were asked for and taken.
    Times(u64),
}

/// Decoding of one event id's records.
#[derive(Clone, Debug)]
struct Plan {
    name: NameId,
    action: Action,
    pid: Option<Slot>,
    flags: Option<Slot>,
    call_site: Slot,
    address: Slot,
    /// The address that means "nothing was allocated".
    failed: Option<u64>,
    /// Not 0 in an allocation that failed.
    failure: Option<Slot>,
    /// Bytes asked for and taken, as `sizing` reads them.
    sizes: [Slot; 2],
    sizing: Sizing,
    /// Order of the block of pages.
    order: Option<Slot>,
    /// Bits that say where between two borders the block begins; 0 where `address` is not the number of its first frame.
    frame_bits: u64,
    gfp: Option<Slot>,
    node: Option<Slot>,
    cache: Option<NamePlace>,
    /// Meaning for a module, and the place of its name.
    module: Option<(ModuleEvent, NamePlace)>,
    /// Meaning for threads and cgroups.
    task: Option<Box<TaskPlan>>,
    /// True for an object on the account of a cgroup.
    accounted: Option<Slot>,
    /// A shorter record is damaged.
    least: usize,
    /// Places of address and thread, where no other number of the event stands in the same bytes.
    varying: Option<VaryingPlaces>,
    /// Slots of the fields in the record if one of them begins beyond [`NEAR`]: the slots above are in the moved [`Head`].
    far: Vec<Slot>,
    /// Numbers of an event about waiting for memory.
    latency: Option<Box<LatencyPlan>>,
    /// Objects of an event of several.
    bulk: Option<Box<BulkPlan>>,
    /// Fields of the format.
    fields: Arc<[FieldPlace]>,
}

/// Largest order of a block of pages: that of `MAX_ORDER` 17, the largest that a kernel was built with. Kernels of today go to
/// 13, most to 10.
const MAX_ORDER: u64 = 16;

/// A record that cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RecordError {
    /// The record ends before its fields do.
    #[error("the record has {have} bytes, and its event's fields need {need}")]
    Short { have: usize, need: usize },
    /// Pages that are no block: too many, or not aligned and on both sides of a border of 65,536 frames.
    #[error("it is of a block of order {order} at frame {frame:#x}, which no kernel has")]
    Block { order: u64, frame: u64 },
}

/// Facts of a trace that the meaning of its records depends on.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TraceFacts<'a> {
    /// System of the recorder's own probe events.
    pub(crate) probe_group: Option<&'a str>,
    /// Bytes of a page, 0 where they are not known.
    pub(crate) page_bytes: u64,
    /// Number of possible CPUs, 0 where it is not known.
    pub(crate) cpus: usize,
    /// Release of the kernel.
    pub(crate) release: Option<Release>,
}

/// The plans of one trace.
#[derive(Clone, Debug, Default)]
pub(crate) struct Decoder {
    /// Index into `plans` by event id; 0: not known.
    by_id: Vec<u16>,
    plans: Vec<Plan>,
    page_bytes: u64,
    stacks: Option<StackFormat>,
}

impl Decoder {
    /// A decoder for the events described, each as (system, format). Later descriptions of an id are ignored.
    pub(crate) fn new(formats: &[(String, EventFormat)], facts: &TraceFacts<'_>, names: &mut Names) -> Decoder {
        let unknown = names.intern(b"unknown");
        let other = Plan {
            name: unknown,
            action: Action::Other,
            pid: None,
            flags: None,
            call_site: Slot::ABSENT,
            address: Slot::ABSENT,
            failed: None,
            failure: None,
            sizes: [Slot::ABSENT; 2],
            sizing: Sizing::Bytes,
            order: None,
            frame_bits: 0,
            gfp: None,
            node: None,
            cache: None,
            module: None,
            task: None,
            accounted: None,
            least: 0,
            varying: None,
            far: Vec::new(),
            latency: None,
            bulk: None,
            fields: Arc::default(),
        };
        let mut decoder =
            Decoder { by_id: Vec::new(), plans: vec![other.clone()], page_bytes: facts.page_bytes, stacks: None };
        let all: EventNames<'_> = formats.iter().map(|(system, format)| (&**system, &*format.name)).collect();
        for (system, format) in formats {
            let id = usize::from(format.id);
            if decoder.by_id.len() <= id {
                decoder.by_id.resize(id + 1, 0);
            }
            let Ok(index) = u16::try_from(decoder.plans.len()) else { break };
            if let Some(slot) = decoder.by_id.get_mut(id).filter(|slot| **slot == 0) {
                *slot = index;
                decoder.stacks = decoder.stacks.or_else(|| StackFormat::new(system, format));
                let latency = LatencyPlan::new(system, format, &all, names);
                let is_probe = facts.probe_group == Some(system);
                let plan = match is_probe.then(|| Plan::of_probe(format, names, &other)).flatten() {
                    Some(plan) => plan,
                    None => Plan::new((system, format), facts, names, &other),
                };
                let least = plan.least.max(latency.as_ref().map_or(0, |latency| latency.least));
                let mut fields = format.own_fields();
                // Whatever a format declares the array as: its end is memory of the caller.
                fields.retain(|field| !is_probe || *field.name != *probes::ADDRESSES);
                decoder.plans.push(Plan { latency: latency.map(Box::new), least, fields: fields.into(), ..plan });
            }
        }
        decoder
    }

    /// True where frees name the cache of an object and allocations do not: Linux 6.1 to 6.17.
    pub(crate) fn frees_alone_name_caches(&self) -> bool {
        let names = |action: Action| self.plans.iter().any(|plan| plan.action == action && plan.cache.is_some());
        names(Action::Free(Kind::Cache)) && !names(Action::Alloc(Kind::Cache))
    }

    /// True where the trace describes events of reclaim, compaction or shrinkers. Timed functions are described in any trace.
    pub(crate) fn describes_reclaim(&self) -> bool {
        self.plans.iter().filter_map(|plan| plan.latency.as_ref()).any(|latency| latency.is_of_reclaim())
    }

    /// True where the trace describes allocations of this kind.
    pub(crate) fn describes_allocs(&self, kind: Kind) -> bool {
        self.plans.iter().any(|plan| plan.action == Action::Alloc(kind))
    }

    /// True where the trace describes frees of this kind.
    pub(crate) fn describes_frees(&self, kind: Kind) -> bool {
        self.plans.iter().any(|plan| plan.action == Action::Free(kind))
    }

    /// True where allocations of pages tell no frame number.
    pub(crate) fn has_page_pointers(&self) -> bool {
        self.plans.iter().any(|plan| plan.action == Action::Alloc(Kind::Pages) && plan.frame_bits == 0)
    }

    /// True where the trace describes events that tell of loads of modules.
    pub(crate) fn tells_module_loads(&self) -> bool {
        self.plans.iter().any(|plan| matches!(plan.module, Some((ModuleEvent::Load, _))))
    }

    /// True where the trace describes events that tell of threads and cgroups.
    pub(crate) fn tells_tasks(&self) -> bool {
        self.plans.iter().any(|plan| plan.task.is_some())
    }

    /// True where the trace describes the recorder's event of deferred frees.
    pub(crate) fn describes_deferred_frees(&self) -> bool {
        self.plans.iter().any(|plan| plan.action == Action::Deferred)
    }

    /// What may change in a record without changing its event in more than time and address; `None` where that is not known.
    pub(crate) fn varying<O: TargetOrder>(&self, record: &[u8]) -> Option<Varying> {
        let index = *self.by_id.get(usize::from(u16_at::<O>(record, 0)?))?;
        let plan = self.plans.get(usize::from(index))?;
        let places = plan.varying?;
        let addresses = match plan.order.filter(|_| plan.frame_bits > 0) {
            Some(order) if plan.far.is_empty() => AddressRange::frames(order.read::<O>(record))?,
            Some(_) => return None,
            None => AddressRange::POINTERS,
        };
        // A damaged record may have the name of its cache anywhere.
        let end = places.address.saturating_add(places.address_bytes).max(places.pid.saturating_add(4));
        let is_apart = plan.cache.is_none_or(|name| name.start::<O>(record) >= end);
        is_apart.then_some(Varying { places, addresses })
    }

    /// Layout of records that hold stacks; `None` where the trace does not describe them.
    pub(crate) fn stacks(&self) -> Option<&StackFormat> {
        self.stacks.as_ref()
    }

    /// Decodes a record and hands its event to `items`; `at` and `cpu` are taken as they are. An event that
    /// [may be one of objects](profile::is_unknown) is counted in `unknown`.
    ///
    /// There is a branch for each action, so that the code of `items` is compiled for each of them.
    #[inline(always)]
    pub(crate) fn decode<O: TargetOrder, I: EventSink>(
        &self,
        at: u64,
        cpu: u32,
        record: &Record<'_>,
        names: &mut Names,
        items: &mut I,
        unknown: &mut UnknownEvents,
    ) -> Result<(), RecordError> {
        let have = record.payload.len();
        // `common_type` is the first field of every event of every kernel.
        let id = u16_at::<O>(record.payload, 0).ok_or(RecordError::Short { have, need: 2 })?;
        let index = self.by_id.get(usize::from(id)).copied().unwrap_or(0);
        let plan = self.plans.get(usize::from(index)).ok_or(RecordError::Short { have, need: 0 })?;
        if have < plan.least {
            return Err(RecordError::Short { have, need: plan.least });
        }
        let moved;
        let head = match record.rest.first_chunk() {
            Some(head) if plan.far.is_empty() => head,
            _ => {
                moved = plan.head::<O>(record.payload);
                &moved
            }
        };
        let read = |slot: Slot| slot.read_near::<O>(head);
        let order = plan.block_order::<O>(head)?;
        let event = Event {
            pid: plan.pid.map(|slot| read(slot) as u32 as i32),
            flags: plan.flags.filter(|_| I::FLAGS).map(|slot| read(slot) as u8),
            action: plan.action,
            order: (plan.frame_bits > 0).then_some(order as u8),
            fields: if I::FIELDS { plan.kept_fields::<O>(record.payload, names) } else { None },
            ..Event::new(at, cpu, plan.name)
        };
        // Read in each branch: the compiler drops them where `items` does not look at them.
        let gfp = || plan.gfp.map(read);
        let node = || plan.node.map(|slot| read(slot) as u32 as i32);
        match plan.action {
            Action::Alloc(kind) => {
                let (address, call_site) = (read(plan.address), read(plan.call_site));
                let accounted = plan.accounted.map(|slot| slot.read::<O>(record.payload) != 0);
                let event = Event { gfp: gfp(), node: node(), accounted, ..event };
                let mut failed = plan.failed == Some(address);
                let [requested, allocated] = match plan.sizing {
                    Sizing::Bytes => plan.sizes.map(read),
                    Sizing::Order => [page_bytes(self.page_bytes, order); 2],
                    Sizing::Times(n) => {
                        failed |= plan.failure.is_some_and(|slot| read(slot) != 0);
                        [read(plan.sizes[0]).saturating_mul(n); 2]
                    }
                };
                let cache = plan.cache_name::<O, I>(record.payload, names);
                let action = Action::Alloc(kind);
                items.event(Event { address, call_site, requested, allocated, cache, failed, action, ..event }, names);
            }
            Action::Free(kind) => {
                let (address, call_site) = (read(plan.address), read(plan.call_site));
                let event = Event { gfp: gfp(), node: node(), ..event };
                let cache = plan.cache_name::<O, I>(record.payload, names);
                items.event(Event { address, call_site, cache, action: Action::Free(kind), ..event }, names);
            }
            Action::Deferred | Action::BulkFree(_) | Action::Bulk(_) => {
                let cache = plan.cache_name::<O, I>(record.payload, names);
                plan.probe_events::<O>(Event { cache, ..event }, (head, record.payload), names, items);
            }
            Action::Other => {
                if names.is_unknown(plan.name) {
                    unknown.count(names.get(plan.name));
                }
                if let Some((what, place)) = plan.module {
                    tell_of_module::<O>(what, place, record.payload, &event, items);
                }
                if let Some(task) = &plan.task {
                    task.tell::<O>(record.payload, &event, items);
                }
                let event = Event { action: Action::Other, ..event };
                items.event(plan.with_mark::<O, I>(event, record.payload), names);
            }
        }
        Ok(())
    }
}

/// Places of address and thread of records, if no other number of theirs stands there.
fn varying(address: Slot, pid: Slot, others: impl Iterator<Item = Slot>) -> Option<VaryingPlaces> {
    let kind = Slot::new(0, 2);
    let is_apart = |one: Slot, other: Slot| one.end() <= other.offset as usize || other.end() <= one.offset as usize;
    let mut others = others.filter(|other| other.mask != 0).chain([kind]);
    let has_places = is_apart(address, pid) && others.all(|other| is_apart(address, other) && is_apart(pid, other));
    let place = |slot: Slot| (slot.offset as usize, slot.end().saturating_sub(slot.offset as usize));
    let ((address, address_bytes), (pid, pid_bytes)) = (place(address), place(pid));
    (has_places && pid_bytes == 4).then_some(VaryingPlaces { address, address_bytes, pid })
}

impl Plan {
    fn new((system, format): (&str, &EventFormat), facts: &TraceFacts<'_>, names: &mut Names, other: &Plan) -> Plan {
        let slot = |name: &str| format.field(name).and_then(Slot::of);
        let name = names.intern(format.name.as_bytes());
        let (pid, flags) = (slot(profile::PID), slot(profile::FLAGS));
        let module_event = match (system, &*format.name) {
            profile::MODULE_LOAD => Some(ModuleEvent::Load),
            profile::MODULE_FREE => Some(ModuleEvent::Free),
            _ => None,
        };
        let module = module_event.and_then(|what| Some((what, name_place(format, profile::MODULE_NAME)?)));
        let task = TaskPlan::new(system, format).map(Box::new);
        let plain = Plan { name, pid, flags, module, task, ..other.clone() }.brought_near();
        let Some(profile) = profile::find(system, &format.name, facts.release) else {
            if profile::is_unknown(system, format) {
                names.mark_unknown(name);
            }
            return plain;
        };
        let key = profile.keys.iter().find_map(|key| Some((slot(key.field)?, key.null)));
        // An allocation that always failed has no address: 0 is read in its place.
        let Some((address, null)) = key.or(profile.keys.is_empty().then_some((Slot::ABSENT, Null::Zero))) else {
            return plain;
        };
        let action = profile.action;
        let null_address = if null == Null::AllOnes { address.mask } else { 0 };
        let size = |name| slot(name).unwrap_or(Slot::ABSENT);
        let (sizes, sizing) = match profile.size {
            Size::None => ([Slot::ABSENT; 2], Sizing::Bytes),
            Size::Bytes { requested, allocated } => ([size(requested), size(allocated)], Sizing::Bytes),
            Size::Order(order) => ([size(order), Slot::ABSENT], Sizing::Order),
            Size::Both(bytes) => ([size(bytes), Slot::ABSENT], Sizing::Times(1)),
            Size::EachCpu(bytes) => ([size(bytes), Slot::ABSENT], Sizing::Times(facts.cpus as u64)),
        };
        let failure = profile.failed.and_then(slot);
        let cache = name_place(format, profile::CACHE);
        let call_site = size(profile::CALL_SITE);
        let (gfp, node, accounted) = (slot(profile::GFP), slot(profile::NODE), slot(profile::ACCOUNTED));
        let order = profile.order.and_then(slot);
        let frame_bits = if order.is_some() && null == Null::AllOnes { 0xffff } else { 0 };
        let slots = [pid, flags, order, gfp, node, failure, accounted, cache.map(|name| name.location)];
        let slots = slots.into_iter().flatten().chain([address, call_site]).chain(sizes);
        let least = slots.map(Slot::end).max().unwrap_or(0);
        let others = [flags, order, gfp, node, failure, accounted, cache.map(|name| name.location)];
        let others = others.into_iter().flatten().chain([call_site]).chain(sizes);
        // An allocation that failed is told by its address.
        let has_null = failure.is_none() && (null == Null::Zero || frame_bits > 0);
        let varying = pid.filter(|_| has_null).and_then(|pid| varying(address, pid, others));
        Plan {
            name,
            action,
            pid,
            flags,
            call_site,
            address,
            failed: matches!(action, Action::Alloc(_)).then_some(null_address),
            failure,
            sizes,
            sizing,
            order,
            frame_bits,
            gfp,
            node,
            cache,
            accounted,
            least,
            varying,
            ..other.clone()
        }
        .brought_near()
    }

    /// Plan of a probe event of the recorder's; `None` for another event of the group, and for one whose fields are not those that the
    /// recorder defines.
    fn of_probe(format: &EventFormat, names: &mut Names, other: &Plan) -> Option<Plan> {
        let slot = |name: &str| format.field(name).and_then(Slot::of);
        let plan = Plan {
            name: names.intern(format.name.as_bytes()),
            pid: slot(profile::PID),
            flags: slot(profile::FLAGS),
            ..other.clone()
        };
        let plan = match &*format.name {
            probes::KVFREE_RCU => Plan {
                action: Action::Deferred,
                address: slot(probes::POINTER)?,
                call_site: slot(probes::CALL_SITE)?,
                ..plan
            },
            probes::FREE_BULK => Plan {
                action: Action::Bulk(Kind::Cache),
                call_site: slot(probes::CALL_SITE)?,
                cache: Some(name_place(format, probes::CACHE)?),
                bulk: Some(Box::new(BulkPlan::of_free(format)?)),
                ..plan
            },
            probes::ALLOC_BULK => Plan {
                action: Action::Bulk(Kind::Cache),
                call_site: slot(probes::RETURN_ADDRESS)?,
                sizes: [slot(probes::REQUESTED)?, slot(probes::ALLOCATED)?],
                gfp: Some(slot(probes::GFP)?),
                cache: Some(name_place(format, probes::CACHE)?),
                bulk: Some(Box::new(BulkPlan::of_alloc(format)?)),
                ..plan
            },
            _ => return None,
        };
        let slots = [Some(plan.address), Some(plan.call_site), plan.pid, plan.flags, plan.gfp].into_iter().flatten();
        let fields = slots.chain(plan.sizes).map(Slot::end).chain(plan.cache.map(NamePlace::end));
        let least = fields.chain(plan.bulk.as_ref().map(|bulk| bulk.least)).max().unwrap_or(0);
        Some(Plan { least, ..plan }.brought_near())
    }

    /// Hands on the events of a probe's record. Apart, so that plain events are decoded as fast as without it.
    #[cold]
    #[inline(never)]
    fn probe_events<O: TargetOrder>(
        &self,
        event: Event,
        (head, record): (&Head, &[u8]),
        names: &Names,
        items: &mut impl EventSink,
    ) {
        let read = |slot: Slot| slot.read_near::<O>(head);
        let event = Event { call_site: read(self.call_site), ..event };
        let Some(bulk) = &self.bulk else {
            return items.probe_event(&Event { address: read(self.address), ..event }, names);
        };
        let [requested, allocated] = self.sizes.map(read);
        // The kernel cannot read the name of a cache that is not there.
        let cache = event.cache.filter(|&cache| names.get(cache) != probes::NO_TEXT);
        let event = Event { gfp: self.gfp.map(read), requested, allocated, cache, ..event };
        bulk.events::<O>(event, record, |event| event.hand_to(items, names));
    }

    /// With all numbers where [`Slot::read_near`] finds them.
    fn brought_near(mut self) -> Plan {
        let Plan {
            address, call_site, failure, sizes: [requested, allocated], pid, flags, order, gfp, node, far, ..
        } = &mut self;
        let always = [address, call_site, requested, allocated].into_iter();
        let slots: Vec<&mut Slot> =
            always.chain(pid).chain(flags).chain(order).chain(gfp).chain(node).chain(failure).collect();
        if slots.iter().any(|slot| slot.offset as usize >= NEAR) {
            far.extend(
                slots.into_iter().zip((0..).step_by(8)).map(|(slot, at)| std::mem::replace(slot, Slot::new(at, 8))),
            );
        }
        self
    }

    /// Order of the block of pages, 0 of other events; refuses pages that are no block.
    #[inline(always)]
    fn block_order<O: TargetOrder>(&self, head: &Head) -> Result<u64, RecordError> {
        let Some(slot) = self.order else { return Ok(0) };
        let (order, address) = (slot.read_near::<O>(head), self.address.read_near::<O>(head));
        // An aligned block of at most this order never crosses a border of 65,536 frames.
        if order > MAX_ORDER || (address & self.frame_bits).saturating_add(1 << order) > 0x1_0000 {
            self.refuse_block(order, address)?;
        }
        Ok(order)
    }

    /// Refuses pages that are no block; an allocation that failed has none.
    #[cold]
    fn refuse_block(&self, order: u64, address: u64) -> Result<(), RecordError> {
        let is_block = order <= MAX_ORDER && self.failed == Some(address);
        if is_block { Ok(()) } else { Err(RecordError::Block { order, frame: address }) }
    }

    /// The start of a record behind which too little stands to take it as a [`Head`], or its numbers, one after the other.
    #[inline(never)]
    fn head<O: TargetOrder>(&self, record: &[u8]) -> Head {
        let mut head = [0; LOADED];
        if self.far.is_empty() {
            head.iter_mut().zip(record).for_each(|(to, from)| *to = *from);
        }
        for (slot, to) in self.far.iter().zip(head.chunks_exact_mut(8)) {
            O::Stream::write_u64(to, slot.read::<O>(record));
        }
        head
    }

    /// Place of the record in the table of names, where that keeps records.
    fn kept_fields<O: TargetOrder>(&self, record: &[u8], names: &mut Names) -> Option<FieldsId> {
        let fields = names.fields.is_kept().then(|| RecordFields::new(Arc::clone(&self.fields), O::ENDIAN, record))?;
        names.fields.put(fields)
    }

    /// The event with its meaning for waits and the numbers of that, where `I` looks at them.
    #[inline(always)]
    fn with_mark<O: TargetOrder, I: EventSink>(&self, event: Event, record: &[u8]) -> Event {
        let latency = self.latency.as_ref().filter(|_| I::MARKS);
        latency.map_or(event, |latency| latency.read::<O>(event, record))
    }

    /// The name of the cache, where `I` looks at it.
    #[inline(always)]
    fn cache_name<O: TargetOrder, I: EventSink>(&self, record: &[u8], names: &mut Names) -> Option<NameId> {
        let place = self.cache.filter(|_| I::NAMES)?;
        place.read::<O>(record).and_then(|field| names.intern_field(field))
    }
}

/// Hands on the load or the end of a module whose name is at `place`; a record without a name is neither.
#[cold]
fn tell_of_module<O: TargetOrder>(
    what: ModuleEvent,
    place: NamePlace,
    record: &[u8],
    event: &Event,
    items: &mut impl EventSink,
) {
    let Some(name) = place.read::<O>(record) else { return };
    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
    match (what, event.pid) {
        _ if name.is_empty() => {}
        (ModuleEvent::Load, Some(pid)) => items.module_load(ModuleLoad { at: event.at, pid, name }),
        (ModuleEvent::Load, None) => {}
        (ModuleEvent::Free, _) => items.module_free(ModuleFree { at: event.at, name }),
    }
}

/// `page_bytes << order`, saturated: the order is whatever the file says.
pub(crate) fn page_bytes(page_bytes: u64, order: u64) -> u64 {
    u32::try_from(order)
        .ok()
        .and_then(|order| 1u64.checked_shl(order))
        .map_or(u64::MAX, |n| page_bytes.saturating_mul(n))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::StreamItem;
    use crate::target::{Big, Endian, Little};

    const FACTS: TraceFacts<'_> = TraceFacts { probe_group: None, page_bytes: 4096, cpus: 4, release: None };

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
        Decoder::new(&formats, &FACTS, names)
    }

    fn decode<O: TargetOrder>(
        decoder: &Decoder,
        at: u64,
        cpu: u32,
        record: &Record<'_>,
        names: &mut Names,
    ) -> Result<Event, RecordError> {
        let mut items = Vec::new();
        decoder.decode::<O, _>(at, cpu, record, names, &mut items, &mut UnknownEvents::default())?;
        let [StreamItem::Event(event)] = items[..] else { panic!("{items:?}") };
        Ok(event)
    }

    /// A record with nothing behind it.
    fn whole(payload: &[u8]) -> Record<'_> {
        Record { time: 0, payload, rest: payload }
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
        let event = decode::<Little>(&decoder, 9, 3, &whole(&record), &mut names).unwrap();
        // Bytes behind a record are not part of it.
        let more = [&record[..], &[0xff; 80]].concat();
        let among = Record { time: 0, payload: &record, rest: &more };
        assert_eq!(decode::<Little>(&decoder, 9, 3, &among, &mut names), Ok(event));
        assert_eq!((event.at, event.cpu, event.pid, event.node), (9, 3, Some(-7), Some(-1)));
        assert_eq!((event.call_site, event.address), (0xffff_ffff_8123_4567, 0xffff_8880_1111_2222));
        assert_eq!((event.requested, event.allocated, event.gfp), (100, 128, Some(0xcc0)));
        assert_eq!((event.action, event.failed), (Action::Alloc(Kind::Cache), false));
        assert_eq!(names.get(event.cache.unwrap()), b"dentry");
        assert_eq!(names.get(event.name), b"kmem_cache_alloc");
        // A name outside of the record is none; a record cut in its fields is refused.
        let event = decode::<Little>(&decoder, 9, 3, &whole(&record[..64]), &mut names).unwrap();
        assert_eq!(event.cache, None);
        assert_eq!(
            decode::<Little>(&decoder, 9, 3, &whole(&record[..56]), &mut names),
            Err(RecordError::Short { have: 56, need: 61 })
        );
    }

    #[test]
    fn fields_may_stand_as_far_behind_as_a_format_says() {
        const FAR: usize = 200;
        let moved: Vec<String> = CACHE_ALLOC
            .split("offset:")
            .enumerate()
            .map(|(n, part)| match part.split_once(';') {
                // Text before the first offset, and `common_type`, which is always the first field.
                Some((offset, rest)) if n > 1 => format!("{};{rest}", offset.parse::<usize>().unwrap() + FAR),
                _ => part.to_owned(),
            })
            .collect();
        let mut names = Names::new();
        let far = [("kmem".to_owned(), EventFormat::parse(&moved.join("offset:")).unwrap())];
        let far = Decoder::new(&far, &FACTS, &mut names);
        let near = decoder(&mut names);
        let fields: Vec<u8> = (1..60).collect();
        let record = |before: usize, name: u32| {
            let mut record = [&5u16.to_le_bytes(), &[0; 2][..], &vec![0; before], &fields[..], b"dentry\0"].concat();
            record[before + 24..before + 28].copy_from_slice(&(name | 7 << 16).to_le_bytes());
            record
        };
        let (record_near, record_far) = (record(0, 63), record(FAR, FAR as u32 + 63));
        let event = decode::<Little>(&near, 9, 3, &whole(&record_near), &mut names).unwrap();
        assert_eq!(names.get(event.cache.unwrap()), b"dentry");
        assert_eq!(decode::<Little>(&far, 9, 3, &whole(&record_far), &mut names), Ok(event));
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
        let event = decode::<Big>(&decoder, 1, 0, &whole(&record(0x1234, 3)), &mut names).unwrap();
        assert_eq!((event.address, event.requested, event.allocated, event.failed), (0x1234, 32768, 32768, false));
        assert!(decode::<Big>(&decoder, 1, 0, &whole(&record(u32::MAX, 0)), &mut names).unwrap().failed);
    }

    #[test]
    fn pages_that_are_no_block_are_not_decoded() {
        let mut names = Names::new();
        let decoder = decoder(&mut names);
        let mut order = |pfn: u32, order: u32| {
            let mut record = vec![0, 7, 0, 0, 0, 0, 0, 9];
            record.extend_from_slice(&pfn.to_be_bytes());
            record.extend_from_slice(&order.to_be_bytes());
            decode::<Big>(&decoder, 1, 0, &whole(&record), &mut names).map(|event| event.order)
        };
        for good in [(0, 16), (0x1_0000, 16), (0x1_ff00, 8), (0x1_fff0, 4), (3, 10), (u32::MAX, 0), (u32::MAX, 3)] {
            assert_eq!(order(good.0, good.1), Ok(Some(good.1 as u8)), "{good:?}");
        }
        for bad in [(0, 17), (0, 64), (0, 90), (0, u32::MAX), (1, 16), (0x1_ff01, 8), (0x1_ffff, 1), (u32::MAX, 17)] {
            let want = RecordError::Block { order: bad.1.into(), frame: bad.0.into() };
            assert_eq!(order(bad.0, bad.1), Err(want), "{bad:?}");
        }
    }

    #[test]
    fn what_is_not_known_is_other() {
        let mut names = Names::new();
        let decoder = decoder(&mut names);
        for id in [0u16, 6, 8, u16::MAX] {
            let event = decode::<Little>(&decoder, 1, 0, &whole(&id.to_le_bytes()), &mut names).unwrap();
            assert_eq!((event.action, event.pid), (Action::Other, None), "{id}");
        }
    }

    /// A format of event 9 with these fields, each its declaration, offset and size, behind `common_type`.
    fn format(name: &str, fields: &[(&str, usize, usize)]) -> EventFormat {
        let common = ("unsigned short common_type", 0, 2);
        let field = |&(declaration, offset, size): &(&str, usize, usize)| {
            format!("\tfield:{declaration};\toffset:{offset};\tsize:{size};\tsigned:0;\n")
        };
        let fields: String = [common].iter().chain(fields).map(field).collect();
        EventFormat::parse(&format!("name: {name}\nID: 9\nformat:\n{fields}")).unwrap()
    }

    fn one(system: &str, format: EventFormat, names: &mut Names) -> Decoder {
        Decoder::new(&[(system.to_owned(), format)], &FACTS, names)
    }

    /// A record of event 9 with these numbers, each its offset and size.
    fn record(endian: Endian, len: usize, numbers: &[(u64, usize, usize)]) -> Vec<u8> {
        let mut record = vec![0; len];
        for &(number, offset, size) in [(9, 0, 2)].iter().chain(numbers) {
            match endian {
                Endian::Little => record[offset..offset + size].copy_from_slice(&number.to_le_bytes()[..size]),
                Endian::Big => record[offset..offset + size].copy_from_slice(&number.to_be_bytes()[8 - size..]),
            }
        }
        record
    }

    fn decode_in(endian: Endian, decoder: &Decoder, record: &Record<'_>, names: &mut Names) -> Event {
        match endian {
            Endian::Little => decode::<Little>(decoder, 1, 0, record, names),
            Endian::Big => decode::<Big>(decoder, 1, 0, record, names),
        }
        .unwrap()
    }

    #[test]
    fn numbers_of_every_size_are_read_in_either_byte_order() {
        // The last fields begin right before the place from which a decoder has to look elsewhere, at it and behind it.
        for last in [56, NEAR - 1, NEAR, NEAR + 1, 300] {
            let fields = [
                ("unsigned char common_flags", 2, 1),
                ("int common_pid", 4, 4),
                ("unsigned long call_site", 8, 4),
                ("const void * ptr", 12, 8),
                ("size_t bytes_req", 20, 2),
                ("size_t bytes_alloc", 22, 4),
                ("gfp_t gfp_flags", 26, 8),
                ("int node", last, 1),
            ];
            let mut names = Names::new();
            let decoder = one("kmem", format("kmalloc_node", &fields), &mut names);
            for endian in [Endian::Little, Endian::Big] {
                let numbers = [
                    (0xa5, 2, 1),
                    (0x0102_0304, 4, 4),
                    (0x1122_3344, 8, 4),
                    (0x0102_0304_0506_0708, 12, 8),
                    (0x5566, 20, 2),
                    (0x99aa_bbcc, 22, 4),
                    (0xf1f2_f3f4_f5f6_f7f8, 26, 8),
                    (0x7e, last, 1),
                ];
                let record = record(endian, last + 1, &numbers);
                let more = [&record[..], &[0xff; 400]].concat();
                for rest in [&record, &more] {
                    let record = Record { time: 0, payload: &record, rest };
                    let event = decode_in(endian, &decoder, &record, &mut names);
                    assert_eq!((event.flags, event.pid), (Some(0xa5), Some(0x0102_0304)), "{endian:?} {last}");
                    assert_eq!((event.call_site, event.address), (0x1122_3344, 0x0102_0304_0506_0708));
                    assert_eq!((event.requested, event.allocated), (0x5566, 0x99aa_bbcc));
                    assert_eq!((event.gfp, event.node), (Some(0xf1f2_f3f4_f5f6_f7f8), Some(0x7e)));
                    assert_eq!((event.action, event.failed), (Action::Alloc(Kind::Kmalloc), false));
                }
            }
        }
    }

    #[test]
    fn every_event_does_to_objects_what_its_name_says() {
        let fields = [("const void * ptr", 8, 8), ("struct page * page", 16, 8), ("unsigned long call_site", 24, 8)];
        for (system, name, action) in [
            ("kmem", "kmalloc", Action::Alloc(Kind::Kmalloc)),
            ("kmem", "kmalloc_node", Action::Alloc(Kind::Kmalloc)),
            ("kmem", "kmem_cache_alloc", Action::Alloc(Kind::Cache)),
            ("kmem", "kmem_cache_alloc_node", Action::Alloc(Kind::Cache)),
            ("kmem", "kfree", Action::Free(Kind::Kmalloc)),
            ("kmem", "kmem_cache_free", Action::Free(Kind::Cache)),
            ("kmem", "mm_page_alloc", Action::Alloc(Kind::Pages)),
            ("kmem", "mm_page_free", Action::Free(Kind::Pages)),
            ("kmem", "mm_page_free_direct", Action::Free(Kind::Pages)),
            ("kmem", "rss_stat", Action::Other),
            ("sched", "kmalloc", Action::Other),
        ] {
            let mut names = Names::new();
            let decoder = one(system, format(name, &fields), &mut names);
            let record = record(Endian::Little, 32, &[(0x1111, 8, 8), (0x2222, 16, 8), (0x3333, 24, 8)]);
            let event = decode_in(Endian::Little, &decoder, &whole(&record), &mut names);
            // Kernels before 4.2 tell of a page by its `struct page`.
            let (address, call_site) = match action {
                Action::Other => (0, 0),
                Action::Alloc(Kind::Pages) | Action::Free(Kind::Pages) => (0x2222, 0x3333),
                _ => (0x1111, 0x3333),
            };
            assert_eq!((event.action, event.address, event.call_site), (action, address, call_site), "{name}");
            assert_eq!((names.get(event.name), event.failed), (name.as_bytes(), false));
        }
    }

    /// A format of fields that lie behind each other as in a C struct: a declaration and its bytes each.
    fn packed(name: &str, fields: &[(&'static str, usize)]) -> EventFormat {
        let common =
            [("unsigned char common_flags", 1), ("unsigned char common_preempt_count", 1), ("int common_pid", 4)];
        let mut end = 2usize;
        let place = |&(declaration, size): &(&'static str, usize)| {
            let offset = end.next_multiple_of(size);
            end = offset + size;
            (declaration, offset, size)
        };
        format(name, &common.iter().chain(fields).map(place).collect::<Vec<_>>())
    }

    /// Event of a record that has these numbers in fields of these names.
    fn event_of(system: &str, format: EventFormat, numbers: &[(&str, u64)]) -> Event {
        let place = |&(name, number): &(&str, u64)| {
            let field = format.field(name).unwrap_or_else(|| panic!("no field {name}"));
            (number, field.offset, field.size)
        };
        let placed: Vec<_> = numbers.iter().map(place).collect();
        let end = format.fields.iter().map(|field| field.offset + field.size).max().unwrap_or(0);
        let bytes = record(Endian::Little, end, &placed);
        let mut names = Names::new();
        let decoder = one(system, format, &mut names);
        decode_in(Endian::Little, &decoder, &whole(&bytes), &mut names)
    }

    const LEADING: [(&str, usize); 4] =
        [("bool reserved", 1), ("bool is_atomic", 1), ("size_t size", 8), ("size_t align", 8)];

    #[test]
    fn per_cpu_memory_takes_its_size_on_each_possible_cpu() {
        let base = [("void * base_addr", 8), ("int off", 4)];
        let own = [&LEADING[..], &base].concat();
        let v5_10 = [&own[..], &[("void __percpu * ptr", 8)]].concat();
        let caller = [("unsigned long call_site", 8)];
        let behind = [("size_t bytes_alloc", 8), ("unsigned long gfp_flags", 8)];
        let v6_1 = [&caller[..], &own, &[("void __percpu * ptr", 8)], &behind].concat();
        // As a compiler with named address spaces prints the type.
        let v6_18 = [&caller[..], &own, &[("void __seg_gs * ptr", 8)], &behind].concat();
        let numbers = [("reserved", 1), ("size", 24), ("align", 8), ("off", 7), ("ptr", 0x607f_d4a0_2a40)];
        for (fields, is_new) in [(v5_10, false), (v6_1, true), (v6_18, true)] {
            let more = [("call_site", 0xffff_ffff_8123_4567), ("bytes_alloc", 999), ("gfp_flags", 0xcc0)];
            let numbers = [&numbers[..], if is_new { &more } else { &[] }].concat();
            let event = event_of("percpu", packed("percpu_alloc_percpu", &fields), &numbers);
            assert_eq!((event.action, event.failed), (Action::Alloc(Kind::Percpu), false));
            assert_eq!((event.address, event.requested, event.allocated), (0x607f_d4a0_2a40, 4 * 24, 4 * 24));
            let (site, gfp) = if is_new { (0xffff_ffff_8123_4567, Some(0xcc0)) } else { (0, None) };
            assert_eq!((event.call_site, event.gfp, event.node, event.order), (site, gfp, None, None));
        }
        let failed = event_of("percpu", packed("percpu_alloc_percpu_fail", &LEADING), &[("size", 1 << 62)]);
        assert_eq!((failed.action, failed.failed), (Action::Alloc(Kind::Percpu), true));
        assert_eq!((failed.address, failed.call_site, failed.requested), (0, 0, u64::MAX), "the size is any number");
        let free = [&base[..], &[("void __percpu * ptr", 8)]].concat();
        let free = event_of("percpu", packed("percpu_free_percpu", &free), &[("base_addr", 5), ("ptr", 0x1000)]);
        assert_eq!((free.action, free.address, free.call_site), (Action::Free(Kind::Percpu), 0x1000, 0));
    }

    #[test]
    fn areas_have_the_size_of_their_address_space() {
        let word = |name| (name, 8);
        let fields = ["unsigned long addr", "unsigned long size", "unsigned long align", "unsigned long vstart"];
        let fields = fields.into_iter().chain(["unsigned long vend"]).map(word).chain([("int failed", 4)]);
        let format = packed("alloc_vmap_area", &fields.collect::<Vec<_>>());
        for (result, failed) in [(0, false), (1, true), (u64::from(u32::MAX), true)] {
            let numbers = [("addr", 0xffff_c900_0000_1000), ("size", 0x5000), ("vend", 7), ("failed", result)];
            let event = event_of("vmalloc", format.clone(), &numbers);
            assert_eq!((event.action, event.failed), (Action::Alloc(Kind::Vmalloc), failed));
            assert_eq!((event.address, event.call_site), (0xffff_c900_0000_1000, 0));
            assert_eq!((event.requested, event.allocated), (0x5000, 0x5000));
        }
        let fields = ["unsigned long va_start", "unsigned long nr_lazy", "unsigned long nr_lazy_max"].map(word);
        let free =
            event_of("vmalloc", packed("free_vmap_area_noflush", &fields), &[("va_start", 0x1000), ("nr_lazy", 3)]);
        assert_eq!((free.action, free.address), (Action::Free(Kind::Vmalloc), 0x1000));
    }

    #[test]
    fn pages_of_a_batch_are_freed_in_kernels_that_record_no_other_free() {
        let fields = [("struct page * page", 8, 8), ("int cold", 16, 4)];
        for (release, action) in [("2.6.32.71", Action::Free(Kind::Pages)), ("2.6.34", Action::Other)] {
            let mut names = Names::new();
            let formats = [("kmem".to_owned(), format("mm_pagevec_free", &fields))];
            let decoder = Decoder::new(&formats, &TraceFacts { release: Release::parse(release), ..FACTS }, &mut names);
            let record = record(Endian::Little, 20, &[(0x2222, 8, 8)]);
            let event = decode_in(Endian::Little, &decoder, &whole(&record), &mut names);
            assert_eq!(event.action, action, "{release}");
        }
    }

    #[test]
    fn events_that_may_be_of_objects_are_counted_by_name() {
        let fields = [("const void * ptr", 8, 8), ("unsigned long call_site", 16, 8)];
        let mut names = Names::new();
        for (event, counts) in [("kfree_bulk", vec![("kfree_bulk", 2)]), ("kfree", vec![]), ("rss_stat", vec![])] {
            let fields = if event == "rss_stat" { &fields[..1] } else { &fields };
            let decoder = one("kmem", format(event, fields), &mut names);
            let (mut items, mut unknown) = (Vec::new(), UnknownEvents::default());
            for id in [9u64, 7, 9] {
                let bytes = record(Endian::Little, 24, &[(id, 0, 2)]);
                decoder.decode::<Little, _>(1, 0, &whole(&bytes), &mut names, &mut items, &mut unknown).unwrap();
            }
            let counted: Vec<_> = unknown.iter().map(|(name, events)| (name.to_vec(), events)).collect();
            assert_eq!(counted, counts.iter().map(|&(name, n)| (name.into(), n)).collect::<Vec<(Vec<u8>, u64)>>());
            assert_eq!(items.len(), 3);
        }
        let [kfree, bulk, unknown] = ["kfree", "kfree_bulk", "unknown"].map(|name| names.intern(name.as_bytes()));
        assert_eq!([kfree, bulk, unknown].map(|name| names.is_unknown(name)), [false, true, false]);
    }

    #[test]
    fn an_allocation_that_failed_has_no_object() {
        let object = [("const void * ptr", 8, 8), ("struct page * page", 8, 8)];
        let frame = [("unsigned long pfn", 8, 8), ("struct page * page", 8, 8)];
        for (name, fields, address, failed) in [
            ("kmalloc", &object[..], 0, true),
            ("kmalloc", &object, u64::MAX, false),
            ("kfree", &object, 0, false),
            ("mm_page_alloc", &object, 0, true),
            ("mm_page_alloc", &frame, 0, false),
            ("mm_page_alloc", &frame, u64::MAX, true),
            ("mm_page_alloc", &frame, u64::MAX >> 1, false),
        ] {
            let mut names = Names::new();
            let decoder = one("kmem", format(name, fields), &mut names);
            let record = record(Endian::Big, 16, &[(address, 8, 8)]);
            let event = decode_in(Endian::Big, &decoder, &whole(&record), &mut names);
            assert_eq!((event.address, event.failed), (address, failed), "{name} {address:#x}");
        }
    }

    #[test]
    fn an_event_without_its_object_is_other() {
        // Too large for a number, in another place than the record, or not there.
        for fields in [&[("char ptr", 8, 3)][..], &[("__data_loc char[] ptr", 8, 4)], &[("int node", 8, 4)]] {
            let mut names = Names::new();
            let decoder = one("kmem", format("kmalloc", fields), &mut names);
            let record = record(Endian::Little, 16, &[(7, 8, 4)]);
            let event = decode_in(Endian::Little, &decoder, &whole(&record), &mut names);
            assert_eq!((event.action, event.address, event.node), (Action::Other, 0, None), "{fields:?}");
        }
    }

    #[test]
    fn a_cache_has_its_name_wherever_the_record_says_that_it_stands() {
        for (declaration, base) in [("__data_loc char[] name", 0), ("__rel_loc char[] name", 20)] {
            let fields = [("const void * ptr", 8, 8), (declaration, 16, 4)];
            let mut names = Names::new();
            for event in ["kmem_cache_free", "kmem_cache_alloc"] {
                let decoder = one("kmem", format(event, &fields), &mut names);
                for endian in [Endian::Little, Endian::Big] {
                    for (at, len, want) in [(24, 7, Some(&b"dentry"[..])), (25, 6, Some(b"entry")), (28, 4, None)] {
                        let mut record = record(endian, 31, &[(5, 8, 8), ((at - base) | len << 16, 16, 4)]);
                        record[24..].copy_from_slice(b"dentry\0");
                        let event = decode_in(endian, &decoder, &whole(&record), &mut names);
                        let cache = event.cache.map(|name| names.get(name));
                        assert_eq!((event.address, cache), (5, want), "{declaration} {endian:?} {at}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_record_that_ends_before_its_fields_is_refused() {
        let fields = [("const void * ptr", 8, 8), ("int common_pid", 4, 4)];
        let mut names = Names::new();
        let decoder = one("kmem", format("kfree", &fields), &mut names);
        let bytes = record(Endian::Little, 16, &[(5, 8, 8)]);
        assert_eq!(decode_in(Endian::Little, &decoder, &whole(&bytes), &mut names).address, 5);
        for (have, need) in [(15, 16), (2, 16), (1, 2), (0, 2)] {
            let error = decode::<Little>(&decoder, 1, 0, &whole(&bytes[..have]), &mut names);
            assert_eq!(error, Err(RecordError::Short { have, need }));
        }
    }

    #[test]
    fn the_first_description_of_an_event_holds() {
        let formats = ["kfree", "kmalloc"].map(|name| ("kmem".to_owned(), format(name, &[("const void * ptr", 8, 8)])));
        let mut names = Names::new();
        let decoder = Decoder::new(&formats, &FACTS, &mut names);
        let bytes = record(Endian::Little, 16, &[]);
        let event = decode_in(Endian::Little, &decoder, &whole(&bytes), &mut names);
        assert_eq!(event.action, Action::Free(Kind::Kmalloc));
    }

    #[test]
    fn bytes_of_pages_are_doubled_for_each_order() {
        for (order, bytes) in [(0, 4096), (1, 8192), (10, 4 << 20), (51, 1 << 63), (52, u64::MAX), (64, u64::MAX)] {
            assert_eq!(page_bytes(4096, order), bytes, "{order}");
        }
        assert_eq!((page_bytes(0, 63), page_bytes(1, 1 << 32)), (0, u64::MAX));
    }
}
