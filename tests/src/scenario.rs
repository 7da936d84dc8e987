//! Scenarios: workloads written by hand, one event a line.

use crate::generate::symbols::Symbols;
use crate::generate::{Era, PerCpu, Shape, Workload};
use kmemtrace_abi::event::{Action, Bulk, BulkAction, Event, Gap, GapCause, Kind, Names, StreamItem};

/// Builder of a workload, on a current little-endian 64-bit kernel (or another [`Shape`]).
#[derive(Debug)]
pub struct Scenario {
    workload: Workload,
    /// Thread id and `common_flags` of the next events.
    thread: (i32, u8),
}

impl Scenario {
    /// Empty workload on CPUs 0 to `cpus` - 1.
    pub fn new(shape: Shape, cpus: u32) -> Scenario {
        let per_cpu = |cpu| PerCpu { cpu, ..PerCpu::default() };
        Scenario {
            workload: Workload {
                reclaim_account: String::new(),
                threads_end: None,
                shape,
                names: Names::new(),
                cpus: (0..cpus).map(per_cpu).collect(),
                kernel: Some(shape.era.kernel()),
                comms: vec![(7, "seven")],
                own_threads: None,
                nodes: Vec::new(),
                clock: Some("mono"),
                symbols: Symbols::default(),
                probes: None,
                hidden_symbols: false,
                modules: String::new(),
                module_info: String::new(),
                slabinfo: Default::default(),
                items: Vec::new(),
            },
            thread: (7, 0),
        }
    }

    /// Changes facts that the trace has about itself.
    pub fn with(mut self, change: impl FnOnce(&mut Workload)) -> Scenario {
        change(&mut self.workload);
        self
    }

    /// Sets thread id and `common_flags` of the next events.
    pub fn thread(mut self, pid: i32, flags: u8) -> Scenario {
        self.thread = (pid, flags);
        self
    }

    pub fn finish(self) -> Workload {
        self.workload
    }

    fn push(mut self, cpu: u32, name: &str, cache: Option<&str>, event: Event) -> Scenario {
        let name = self.workload.names.intern(name.as_bytes());
        let cache = cache.map(|cache| self.workload.names.intern(cache.as_bytes()));
        self.workload.cpus[cpu as usize].items.push(StreamItem::Event(Event { cpu, name, cache, ..event }));
        self
    }

    fn blank(&mut self, at: u64, action: Action, address: u64, call_site: u64) -> Event {
        let allocates = matches!(action, Action::Alloc(_));
        Event {
            accounted: None,
            at,
            address,
            call_site,
            requested: 0,
            allocated: 0,
            gfp: allocates.then_some(0xcc0),
            cpu: 0,
            pid: Some(self.thread.0),
            flags: Some(self.thread.1),
            node: (allocates && action != Action::Alloc(Kind::Pages)).then_some(-1),
            cache: None,
            name: self.workload.names.intern(b"kmalloc"),
            action,
            failed: allocates && address == 0,
            order: None,
            stack: None,
            mark: kmemtrace_abi::event::Mark::None,
            value: None,
            owner: None,
            fields: None,
            bulk: None,
        }
    }

    /// Adds a `kmalloc` of (requested, allocated) bytes.
    pub fn kmalloc(mut self, at: u64, cpu: u32, site: u64, address: u64, bytes: (u64, u64)) -> Scenario {
        let event = self.blank(at, Action::Alloc(Kind::Kmalloc), address, site);
        self.push(cpu, "kmalloc", None, Event { requested: bytes.0, allocated: bytes.1, ..event })
    }

    pub fn cache_alloc(
        mut self,
        at: u64,
        cpu: u32,
        site: u64,
        address: u64,
        bytes: (u64, u64),
        cache: &str,
    ) -> Scenario {
        let event = self.blank(at, Action::Alloc(Kind::Cache), address, site);
        self.push(cpu, "kmem_cache_alloc", Some(cache), Event { requested: bytes.0, allocated: bytes.1, ..event })
    }

    /// Adds an `mm_page_alloc` of `bytes` at a frame, which is aligned to them.
    pub fn page_alloc(mut self, at: u64, cpu: u32, frame: u64, bytes: u64) -> Scenario {
        let event = self.blank(at, Action::Alloc(Kind::Pages), frame, 0);
        let failed = frame == self.workload.shape.word_max();
        let order = (bytes / u64::from(self.workload.shape.page_bytes)).trailing_zeros() as u8;
        let order = self.has_frames().then_some(order);
        self.push(cpu, "mm_page_alloc", None, Event { requested: bytes, allocated: bytes, failed, order, ..event })
    }

    pub fn kfree(mut self, at: u64, cpu: u32, site: u64, address: u64) -> Scenario {
        let event = self.blank(at, Action::Free(Kind::Kmalloc), address, site);
        self.push(cpu, "kfree", None, event)
    }

    pub fn cache_free(mut self, at: u64, cpu: u32, site: u64, address: u64, cache: &str) -> Scenario {
        let event = self.blank(at, Action::Free(Kind::Cache), address, site);
        self.push(cpu, "kmem_cache_free", Some(cache), event)
    }

    /// Adds a `kvfree_rcu` by the recorder's probe, which is on from the begin.
    pub fn kvfree_rcu(mut self, at: u64, cpu: u32, site: u64, address: u64) -> Scenario {
        self.workload.probes.get_or_insert(0);
        let event = self.blank(at, Action::Deferred, address, site);
        self.push(cpu, "kvfree_rcu", None, event)
    }

    /// Adds a `free_bulk` of `size` objects, the first of which have these addresses. Without a cache it is the kernel's own.
    pub fn free_bulk(
        self,
        at: u64,
        cpu: u32,
        site: u64,
        (size, addresses): (u64, &[u64]),
        cache: Option<&str>,
    ) -> Scenario {
        let (action, kind) = match cache {
            Some(_) => (BulkAction::Free, Kind::Cache),
            None => (BulkAction::Complete, Kind::Kmalloc),
        };
        // The kernel may be unable to read a name.
        let cache = cache.filter(|name| !name.is_empty());
        self.bulk(at, cpu, site, ("free_bulk", action, Action::Bulk(kind)), (size, addresses), cache)
    }

    /// Adds an `alloc_bulk` of `size` objects of 200 bytes in 256, the first of which have these addresses; a failed one for none.
    pub fn alloc_bulk(self, at: u64, cpu: u32, site: u64, (size, addresses): (u64, &[u64]), cache: &str) -> Scenario {
        let action = if addresses.is_empty() { Action::Alloc(Kind::Cache) } else { Action::Bulk(Kind::Cache) };
        self.bulk(at, cpu, site, ("alloc_bulk", BulkAction::Alloc, action), (size, addresses), Some(cache))
    }

    fn bulk(
        mut self,
        at: u64,
        cpu: u32,
        site: u64,
        (name, bulk_action, action): (&str, BulkAction, Action),
        (size, addresses): (u64, &[u64]),
        cache: Option<&str>,
    ) -> Scenario {
        self.workload.probes.get_or_insert(0);
        let allocates = bulk_action == BulkAction::Alloc;
        let (requested, allocated) = if allocates { (200, 256) } else { (0, 0) };
        let bulk = Some(Bulk::Record { action: bulk_action, addresses: addresses.len() as u8 });
        let failed = matches!(action, Action::Alloc(_));
        let gfp = allocates.then_some(0xcc0);
        let value = Some(size.cast_signed());
        let plain = self.blank(at, action, 0, site);
        let event = Event { requested, allocated, bulk, value, failed, gfp, node: None, ..plain };
        let of_address = match action {
            Action::Bulk(kind) if !allocates => Action::BulkFree(kind),
            _ => Action::Alloc(Kind::Cache),
        };
        self = self.push(cpu, name, cache, event);
        addresses.iter().fold(self, |scenario, &address| {
            let failed = allocates && address == 0;
            let bulk = Some(Bulk::Address);
            scenario.push(cpu, name, cache, Event { address, action: of_address, failed, bulk, value: None, ..event })
        })
    }

    /// Adds a `percpu_alloc_percpu` of `bytes` on each possible CPU; a failed one at address 0, which has an event of its own.
    pub fn percpu_alloc(mut self, at: u64, cpu: u32, site: u64, address: u64, bytes: u64) -> Scenario {
        let name = if address == 0 { "percpu_alloc_percpu_fail" } else { "percpu_alloc_percpu" };
        let bytes = bytes * self.workload.shape.possible_cpus;
        let event = self.blank(at, Action::Alloc(Kind::Percpu), address, site);
        let gfp = event.gfp.filter(|_| address != 0 && self.workload.shape.era >= Era::V6_1);
        self.push(cpu, name, None, Event { requested: bytes, allocated: bytes, gfp, node: None, ..event })
    }

    /// Adds a `percpu_free_percpu`.
    pub fn percpu_free(mut self, at: u64, cpu: u32, address: u64) -> Scenario {
        let event = self.blank(at, Action::Free(Kind::Percpu), address, 0);
        self.push(cpu, "percpu_free_percpu", None, event)
    }

    /// Adds an `alloc_vmap_area` of `bytes`.
    pub fn area_alloc(mut self, at: u64, cpu: u32, address: u64, bytes: u64, failed: bool) -> Scenario {
        let event = self.blank(at, Action::Alloc(Kind::Vmalloc), address, 0);
        let event = Event { requested: bytes, allocated: bytes, gfp: None, node: None, failed, ..event };
        self.push(cpu, "alloc_vmap_area", None, event)
    }

    /// Adds a `free_vmap_area_noflush`.
    pub fn area_free(mut self, at: u64, cpu: u32, address: u64) -> Scenario {
        let event = self.blank(at, Action::Free(Kind::Vmalloc), address, 0);
        self.push(cpu, "free_vmap_area_noflush", None, event)
    }

    /// Adds an `mm_page_free` of `1 << order` pages.
    pub fn page_free(mut self, at: u64, cpu: u32, frame: u64, order: u8) -> Scenario {
        let event = self.blank(at, Action::Free(Kind::Pages), frame, 0);
        let order = self.has_frames().then_some(order);
        self.push(cpu, "mm_page_free", None, Event { order, ..event })
    }

    /// True where events of pages carry frame numbers.
    fn has_frames(&self) -> bool {
        self.workload.shape.era != Era::V2_6_32
    }

    /// Adds an `mm_page_free_batched`, which is no free of its own.
    pub fn page_free_batched(mut self, at: u64, cpu: u32, frame: u64) -> Scenario {
        let event = self.blank(at, Action::Other, frame, 0);
        self.push(cpu, "mm_page_free_batched", None, event)
    }

    /// Adds the call stack of the CPU's last event of the thread: return addresses from the innermost on.
    pub fn stack(mut self, at: u64, cpu: u32, frames: &[u64]) -> Scenario {
        let stack = self.workload.names.stacks.intern(frames);
        let event = self.blank(at, Action::Other, 0, 0);
        self.push(cpu, "kernel_stack", None, Event { stack: Some(stack), ..event })
    }

    /// Adds a `module_load`: the thread loads a module, and initialises it next.
    pub fn module_load(mut self, at: u64, cpu: u32, module: &str) -> Scenario {
        let event = self.blank(at, Action::Other, 0, 0);
        self.push(cpu, "module_load", Some(module), event)
    }

    /// Adds a `module_free`: the module is gone.
    pub fn module_free(mut self, at: u64, cpu: u32, module: &str) -> Scenario {
        let event = self.blank(at, Action::Other, 0, 0);
        self.push(cpu, "module_free", Some(module), event)
    }

    /// Adds a mark before the CPU's next event: the kernel overwrote `lost` events between the last event and `to`.
    pub fn lost(mut self, cpu: u32, to: u64, lost: u64) -> Scenario {
        let stream = &mut self.workload.cpus[cpu as usize];
        let from = stream.items.iter().rev().find_map(|item| match item {
            StreamItem::Event(event) => Some(event.at),
            StreamItem::Gap(_) => None,
        });
        stream.items.push(StreamItem::Gap(Gap { from, to: Some(to), cpu, lost: Some(lost), cause: GapCause::Overrun }));
        stream.overrun += lost;
        self
    }
}
