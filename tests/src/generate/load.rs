//! A load of any size: so many objects are live however many events follow, and none of it is kept but what is live.

use super::symbols::Symbols;
use super::workload::{PerCpu, Workload};
use super::{Random, Shape};
use kmemtrace_abi::event::{Action, Event, Kind, NameId, Names};

/// How large a load is.
#[derive(Clone, Copy, Debug)]
pub struct LoadOptions {
    /// CPUs, and so files: from number 0 on. At least 1.
    pub cpus: u32,
    /// Events in all: first `live` allocations, then frees and allocations in about equal parts.
    pub events: u64,
    /// Objects that are live, but for some dozens.
    pub live: u32,
    /// Freed addresses are allocated again; else every allocation has an address of its own, of 2^32.
    pub reuses: bool,
}

/// Call-sites that allocate.
const SITES: u64 = 300;
/// Sorts of objects, each with a pair of sizes.
const SORTS: u64 = 40;
/// Caches among them: one of two sorts, until there are no more.
const CACHES: [&str; 16] = [
    "skbuff_head_cache",
    "skbuff_small_head",
    "dentry",
    "filp",
    "sock_inode_cache",
    "vm_area_struct",
    "maple_node",
    "inode_cache",
    "ext4_inode_cache",
    "anon_vma",
    "anon_vma_chain",
    "task_struct",
    "radix_tree_node",
    "names_cache",
    "pid",
    "cred_jar",
];
/// Addresses that are free, about.
const FREE: usize = 64;
/// Mean time between two events, ns.
const STEP: u64 = 200;

/// Properties that objects share.
#[derive(Clone, Copy, Debug)]
struct Sort {
    kind: Kind,
    cache: Option<NameId>,
    requested: u64,
    allocated: u64,
    alloc: NameId,
    free: NameId,
}

/// An object: where it is, and the CPU that allocated it.
#[derive(Clone, Copy, Debug)]
struct Object {
    place: u32,
    cpu: u32,
}

/// The events of all CPUs, in the order of their times, which never are equal.
///
/// Any object may be the next to be freed, one in fifty by another CPU, and any free address the next to be allocated. What
/// a place is used for never changes, as with the slabs of a kernel.
#[derive(Debug)]
pub struct Load {
    options: LoadOptions,
    random: Random,
    sorts: Vec<Sort>,
    now: u64,
    done: u64,
    live: Vec<Object>,
    free: Vec<u32>,
    /// Places from this one on were never used.
    unused: u32,
}

impl Load {
    /// The load of `seed`, and the machine it happens on.
    pub fn new(seed: u64, options: LoadOptions) -> (Workload, Load) {
        let mut names = Names::new();
        let sorts = (0..SORTS as usize).map(|number| Sort::new(number, &mut names)).collect();
        let cpus = 0..options.cpus.max(1);
        let shape = Shape::plain();
        let machine = Workload {
            reclaim_account: String::new(),
            threads_end: None,
            shape,
            names,
            cpus: cpus.clone().map(|cpu| PerCpu { cpu, ..PerCpu::default() }).collect(),
            kernel: Some(shape.era.kernel()),
            comms: vec![(1000, "load")],
            own_threads: None,
            nodes: cpus.map(|cpu| (cpu, 0)).collect(),
            clock: Some("mono"),
            symbols: Symbols::default(),
            probes: None,
            modules: String::new(),
            module_info: String::new(),
            slabinfo: Default::default(),
            items: Vec::new(),
            hidden_symbols: false,
        };
        let load = Load {
            options,
            random: Random::new(seed),
            sorts,
            now: 1_000_000_000,
            done: 0,
            live: Vec::new(),
            free: (0..FREE as u32).collect(),
            unused: FREE as u32,
        };
        (machine, load)
    }

    /// An event of the object at a place; what only allocations have is for the caller to add.
    fn event(&self, cpu: u32, place: u32, of: impl Fn(&Sort) -> (NameId, Action)) -> (Event, u64, Sort) {
        let number = sort_of(place);
        let sort = self.sorts[number as usize];
        let (name, action) = of(&sort);
        let event = Event {
            at: self.now,
            address: address_of(place),
            call_site: 0,
            requested: 0,
            allocated: 0,
            gfp: None,
            accounted: None,
            cpu,
            pid: Some(1000 + cpu as i32),
            flags: Some(0),
            node: None,
            cache: sort.cache,
            name,
            action,
            failed: false,
            order: None,
            stack: None,
            mark: kmemtrace_abi::event::Mark::None,
            value: None,
            owner: None,
            fields: None,
            bulk: None,
        };
        (event, number, sort)
    }

    fn allocate(&mut self, place: u32) -> Event {
        let cpu = self.random.below(u64::from(self.options.cpus)) as u32;
        self.live.push(Object { place, cpu });
        let (event, number, sort) = self.event(cpu, place, |sort| (sort.alloc, Action::Alloc(sort.kind)));
        // Some of its sites are much busier than others.
        let sites = (SITES - number).div_ceil(SORTS);
        let site = number + SORTS * self.random.below(sites).min(self.random.below(sites));
        let (requested, allocated) = (sort.requested, sort.allocated);
        let (gfp, node) = (Some(0xcc0), Some(-1));
        let accounted = (event.action == Action::Alloc(Kind::Cache)).then_some(false);
        Event { call_site: call_site(site), requested, allocated, gfp, node, accounted, ..event }
    }

    fn free(&mut self) -> Option<Event> {
        let object = self.random.take(&mut self.live)?;
        let next = if self.options.reuses { object.place } else { self.unused() };
        self.free.push(next);
        let other = self.options.cpus > 1 && self.random.below(50) == 0;
        let away = if other { 1 + self.random.below(u64::from(self.options.cpus) - 1) as u32 } else { 0 };
        let cpu = (object.cpu + away) % self.options.cpus.max(1);
        let (event, number, _) = self.event(cpu, object.place, |sort| (sort.free, Action::Free(sort.kind)));
        Some(Event { call_site: call_site(SITES + number), ..event })
    }

    fn unused(&mut self) -> u32 {
        self.unused = self.unused.wrapping_add(1);
        self.unused.wrapping_sub(1)
    }
}

impl Iterator for Load {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        if self.done == self.options.events {
            return None;
        }
        self.done += 1;
        self.now += 1 + self.random.below(2 * STEP);
        if self.live.len() < self.options.live as usize && self.done <= u64::from(self.options.live) {
            let place = self.unused();
            return Some(self.allocate(place));
        }
        // The more addresses are free, the likelier is an allocation.
        if self.random.below(2 * FREE as u64) >= self.free.len() as u64
            && let Some(event) = self.free()
        {
            return Some(event);
        }
        let place = self.random.take(&mut self.free).unwrap_or_else(|| self.unused());
        Some(self.allocate(place))
    }
}

impl Sort {
    fn new(number: usize, names: &mut Names) -> Sort {
        let cache = if number.is_multiple_of(2) { CACHES.get(number / 2) } else { None };
        let kind = if cache.is_some() { Kind::Cache } else { Kind::Kmalloc };
        let size = 32 << (number % 8);
        let requested = size - size * number as u64 / 64;
        let (alloc, free) =
            if cache.is_some() { ("kmem_cache_alloc", "kmem_cache_free") } else { ("kmalloc", "kfree") };
        Sort {
            kind,
            cache: cache.map(|name| names.intern(name.as_bytes())),
            requested,
            allocated: size,
            alloc: names.intern(alloc.as_bytes()),
            free: names.intern(free.as_bytes()),
        }
    }
}

/// Sort of the objects at a place: the first sorts have more places than the last ones.
fn sort_of(place: u32) -> u64 {
    let mut random = Random::new(place.into());
    random.below(SORTS).min(random.below(SORTS))
}

/// Addresses of a page lie together, pages anywhere in half a TiB.
fn address_of(place: u32) -> u64 {
    let page = (u64::from(place >> 5) * 0x9e37_79b9) % (1 << 27);
    0xffff_8880_0000_0000 | page << 12 | u64::from(place % 32) << 7
}

fn call_site(number: u64) -> u64 {
    0xffff_ffff_8110_0000 + 0x1005 * number
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::write_trace;
    use kmemtrace_abi::event::StreamItem;
    use kmemtrace_abi::trace::Trace;
    use std::collections::{HashMap, HashSet};

    const LOAD: LoadOptions = LoadOptions { cpus: 3, events: 100_000, live: 5000, reuses: true };

    #[test]
    fn so_many_objects_are_live_however_many_events_follow() {
        for reuses in [true, false] {
            let options = LoadOptions { reuses, ..LOAD };
            let mut live = HashMap::new();
            let (mut addresses, mut sites, mut sizes) = (HashSet::new(), HashSet::new(), HashSet::new());
            let (mut frees, mut elsewhere, mut last, mut events) = (0, 0, 0, 0);
            for event in Load::new(1, options).1 {
                assert!(event.at > last);
                (last, events) = (event.at, events + 1);
                match event.action {
                    Action::Alloc(kind) => {
                        let before = live.insert(event.address, (kind, event.cache, event.cpu));
                        assert_eq!(before, None);
                        addresses.insert(event.address);
                        sites.insert(event.call_site);
                        sizes.insert((event.requested, event.allocated));
                    }
                    Action::Free(kind) => {
                        let (alloc_kind, cache, cpu) = live.remove(&event.address).unwrap();
                        assert_eq!((alloc_kind, cache), (kind, event.cache));
                        frees += 1;
                        elsewhere += usize::from(cpu != event.cpu);
                    }
                    other => panic!("{other:?}"),
                }
                assert!(events <= 5000 || live.len().abs_diff(5000) <= 2 * FREE, "{}", live.len());
            }
            assert_eq!(events, options.events);
            let expected = if reuses { 5000..5000 + 3 * FREE } else { 52_000..53_000 };
            assert!(expected.contains(&addresses.len()), "{}", addresses.len());
            assert!((280..=300).contains(&sites.len()) && sizes.len() > 35, "{} {}", sites.len(), sizes.len());
            assert!((30..70).contains(&(frees / elsewhere)), "{elsewhere} of {frees}");
        }
    }

    #[test]
    fn what_is_written_event_by_event_is_read_event_by_event() {
        let dir = tempfile::tempdir().unwrap();
        let (machine, load) = Load::new(2, LOAD);
        write_trace(dir.path(), &machine, load, 2).unwrap();
        let mut trace = Trace::open(&[dir.path().to_owned()]).unwrap();
        let (machine, load) = Load::new(2, LOAD);
        let mut expected: Vec<Vec<Event>> = vec![Vec::new(); machine.cpus.len()];
        load.for_each(|event| expected[event.cpu as usize].push(event));
        let mut items = Vec::new();
        for (stream, expected) in trace.streams.iter_mut().zip(&expected) {
            let mut left = expected.iter();
            while stream.fill(&mut trace.names, &mut items) {
                for item in &items {
                    let (StreamItem::Event(found), Some(event)) = (item, left.next()) else { panic!("{item:?}") };
                    let name = |names: &Names, id: Option<NameId>| id.map(|id| names.get(id).to_vec());
                    assert_eq!(name(&trace.names, Some(found.name)), name(&machine.names, Some(event.name)));
                    assert_eq!(name(&trace.names, found.cache), name(&machine.names, event.cache));
                    assert_eq!(Event { name: event.name, cache: event.cache, ..*found }, *event);
                }
            }
            assert_eq!(left.count(), 0);
            let facts = stream.report();
            assert_eq!((facts.faults.len(), facts.lost, facts.gaps), (0, Some(0), 0), "{facts:?}");
            assert!(facts.blocks > 8, "{} blocks are too few to mean anything", facts.blocks);
        }
    }
}
