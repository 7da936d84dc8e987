//! Workloads of made-up machines: each CPU's events and gaps, with every case that reports must tell apart.

use super::layout::{Layout, UNKNOWN_EVENTS, batched_name, layouts};
use super::probes::{ROOM, has_probes};
use super::stacks::{ORPHAN_PID, changed, frames, interrupted};
use super::symbols::{SITES, Symbols, call_site};
use super::{Era, Random, Shape};
use kmemtrace_abi::disk::block::Interval;
use kmemtrace_abi::event::{Action, Bulk, BulkAction, Event, Gap, GapCause, Kind, NameId, Names, StreamItem};
use kmemtrace_abi::stack::StackId;

/// Properties of a workload.
#[derive(Clone, Debug)]
pub struct Options {
    /// The machine and its kernel.
    pub shape: Shape,
    /// CPU numbers, ascending.
    pub cpus: Vec<u32>,
    /// Events that happen, those that get lost included.
    pub events: usize,
    /// The clock at the start.
    pub start: u64,
    /// Greatest usual time between two events.
    pub step: u64,
    /// Page events too.
    pub pages: bool,
    /// Stacks, batched frees and records of unknown types too.
    pub others: bool,
    /// Most events have stacks, and interrupts come between the two. Else the stacks of `others` have no event.
    pub stacks: bool,
    /// Runs of events get lost, in places.
    pub loss: bool,
    /// Some of the losses have no count.
    pub uncounted: bool,
    /// Some of the losses are the recorder's.
    pub recorder_loss: bool,
    /// The kernel's counters tell of losses that no mark tells of.
    pub unplaced: bool,
    /// The recording tells between which looks at the counters they grew.
    pub timed: bool,
    /// Other programs change what is recorded.
    pub foreign: bool,
    /// The trace clock, where the trace tells it. It changes no time.
    pub clock: Option<&'static str>,
    /// CPUs whose files have no end block.
    pub cut: Vec<u32>,
    /// CPUs whose files are not there.
    pub missing: Vec<u32>,
    /// The NUMA nodes of CPUs are known.
    pub nodes: bool,
    /// Command names are known.
    pub comms: bool,
    /// The kernel's release is known.
    pub kernel: bool,
    /// The recorder's thread ids are known: some of the threads are its own.
    pub own_threads: bool,
    /// Call-sites have sizes and caches of their own, objects are freed on paths without events, and there are events that no
    /// reader knows.
    pub varied: bool,
    /// The recorder's probe events are on, on kernels that have them.
    pub probes: bool,
    /// Functions and modules of call-sites are known.
    pub symbols: bool,
    /// Bytes that the kernel's code was moved by at boot.
    pub slide: u64,
}

impl Options {
    /// A whole trace of `events` events on `cpus` CPUs, nothing lost.
    pub fn plain(shape: Shape, cpus: u32, events: usize) -> Options {
        Options {
            shape,
            cpus: (0..cpus).collect(),
            events,
            start: 1_000_000_000,
            step: 2000,
            pages: true,
            others: true,
            stacks: false,
            loss: false,
            uncounted: false,
            recorder_loss: false,
            unplaced: false,
            timed: false,
            foreign: false,
            clock: Some("mono"),
            cut: Vec::new(),
            missing: Vec::new(),
            nodes: true,
            comms: true,
            kernel: true,
            own_threads: false,
            varied: false,
            probes: false,
            symbols: true,
            slide: 0,
        }
    }

    /// Any, of up to `events` events.
    pub fn random(random: &mut Random, events: usize) -> Options {
        let shape = Shape::random(random);
        let cpus: Vec<u32> = (0..1 + random.below(5) as u32).filter(|_| random.chance(85)).collect();
        let cpus = if cpus.is_empty() { vec![random.below(3) as u32] } else { cpus };
        let some = |random: &mut Random, percent| -> Vec<u32> {
            cpus.iter().copied().filter(|_| random.chance(percent)).collect()
        };
        let (cut, missing) = if random.chance(25) { (some(random, 30), some(random, 15)) } else { Default::default() };
        // A trace without any file is none.
        let missing = if missing.len() == cpus.len() { Vec::new() } else { missing };
        // Copies of the generator: the rest of a seed's trace is the same with and without.
        let mut copy = random.clone();
        let has_spaces = Random::new(copy.clone().bits()).chance(50);
        let possible_cpus = if has_spaces { cpus.len() as u64 } else { 0 };
        Options {
            shape: Shape { possible_cpus, ..shape },
            events: random.below(events as u64 + 1) as usize,
            // The last one is where `tai` is: beyond what an absolute stamp holds.
            start: *random.pick(&[0, 1, 1_000_000_000, 86_400_000_000_000, 1_800_000_000_000_000_000]),
            step: *random.pick(&[1, 3, 2000, 50_000_000]),
            pages: random.chance(70),
            others: random.chance(70),
            stacks: copy.chance(50),
            loss: random.chance(60),
            uncounted: random.chance(50),
            recorder_loss: random.chance(30),
            unplaced: random.chance(20),
            timed: random.chance(60),
            foreign: random.chance(10),
            clock: if random.chance(60) { Some("mono") } else { *random.pick(&CLOCKS) },
            cut,
            missing,
            nodes: random.chance(60),
            comms: random.chance(60),
            kernel: random.chance(85),
            own_threads: copy.chance(60),
            varied: true,
            probes: false,
            symbols: copy.chance(60),
            slide: 0,
            cpus,
        }
    }
}

/// Clocks of a trace, of each sort.
const CLOCKS: [Option<&str>; 8] =
    [Some("global"), Some("boot"), Some("local"), Some("perf"), Some("uptime"), Some("x86-tsc"), Some("counter"), None];

/// Growth of the kernel's counters between two samples, in events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Events that the kernel refused.
    pub refused: u64,
    /// Events that other readers took.
    pub taken: u64,
    /// When.
    pub grew: Interval,
}

/// Another program changed what is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hand {
    /// When the state was last seen right.
    pub from: u64,
    /// When it was seen right again; `None`: never.
    pub to: Option<u64>,
}

/// One CPU's stream. Of the events that are neither allocation nor free, a reader may leave all but time, CPU, thread and
/// name out. Events have the stacks that readers tie to them, and records of stacks the frames in them; without a stack they are nonsense.
#[derive(Clone, Debug, Default)]
pub struct PerCpu {
    /// CPU number.
    pub cpu: u32,
    /// Items that a reader must find in the file.
    pub items: Vec<StreamItem>,
    /// Events that the kernel overwrote.
    pub overrun: u64,
    /// Events that the kernel dropped, which no mark tells of.
    pub dropped: u64,
    /// Events that other readers took.
    pub taken: u64,
    /// Events that the recorder lost.
    pub recorder_lost: u64,
    /// Growth of the counters within the recording; part of `dropped` and `taken`.
    pub samples: Vec<Sample>,
    /// When they grew by the rest of `dropped` and `taken`; unknown by default.
    pub last_grew: Interval,
    /// Changes by other programs.
    pub hands: Vec<Hand>,
    /// The file has no end block.
    pub cut: bool,
    /// The CPU has no file.
    pub missing: bool,
}

/// Events of all CPUs, and the machine they happened on.
#[derive(Debug)]
pub struct Workload {
    /// The machine.
    pub shape: Shape,
    /// Names of the events and caches.
    pub names: Names,
    /// Each CPU, ascending.
    pub cpus: Vec<PerCpu>,
    /// Kernel release, where the trace tells it.
    pub kernel: Option<&'static str>,
    /// Command names by thread id.
    pub comms: Vec<(i32, &'static str)>,
    /// The recorder's thread ids, where the trace tells them.
    pub own_threads: Option<Vec<i32>>,
    /// CPU and its node.
    pub nodes: Vec<(u32, u32)>,
    /// Trace clock, where the trace tells it.
    pub clock: Option<&'static str>,
    /// Functions of the call-sites, where the trace tells them.
    pub symbols: Symbols,
    /// Time from which the recorder's probe events are on, 0 for the begin; `None`: there are none.
    pub probes: Option<u64>,
    /// The text of symbols has zeros in place of their addresses.
    pub hidden_symbols: bool,
    /// Lines of `/proc/modules`; empty where the trace has none.
    pub modules: String,
    /// Lines of modules with their sections; empty where the trace has none.
    pub module_info: String,
    /// `/proc/slabinfo` at the start and at the end; empty where the trace has none.
    pub slabinfo: [String; 2],
    /// Further items of `meta.out` by tag; those below 100 are of its header.
    pub items: Vec<(u16, String)>,
    /// Lines `CACHE 0` and `CACHE 1` of caches whose objects the kernel takes back; empty where the trace has none.
    pub reclaim_account: String,
    /// Threads that lived at the end, where the trace tells them.
    pub threads_end: Option<Vec<i32>>,
}

/// Caches in slabinfo with the bytes of their objects, at the start and at the end: alone with their size, two of one size, one that is
/// made while recording.
const SLABINFO: [&[(&str, u64)]; 2] = [
    &[("dentry", 192), ("inode_cache", 640), ("filp", 64), ("maple_node", 64), (":a-0000128", 128), ("bio-1024", 1024)],
    &[
        ("dentry", 192),
        ("late", 32),
        ("maple_node", 64),
        ("nfs_page", 1024),
        ("task_struct", 4096),
        ("kmalloc-rnd-01-32", 32),
    ],
];

/// Text of `/proc/slabinfo` with these caches.
fn slabinfo(caches: &[(&str, u64)]) -> String {
    let line = |(name, bytes): &(&str, u64)| format!("{name} 1 2 {bytes} 16 1 : tunables 0 0 0 : slabdata 1 1 0\n");
    format!("slabinfo - version: 2.1\n# name <active_objs>\n{}", caches.iter().map(line).collect::<String>())
}

/// Names of caches; one is that of a size class.
pub const CACHES: [&str; 6] = ["dentry", "inode_cache", "kmalloc-64", "skbuff_head_cache", "maple_node", ":a-0000128"];
/// Command names by thread id: two threads share one, others have none.
pub const COMMS: [(i32, &str); 4] = [(1, "red"), (77, "kworker/0:1"), (4242, "a b"), (4243, "red")];
/// Thread ids.
pub const PIDS: [i32; 6] = [0, 1, 77, 4242, 4243, 31999];
/// Thread ids of the recorder; the last one has no event.
const OWN_THREADS: [i32; 4] = [77, 4243, 31999, 32000];
/// `common_flags`: contexts, one within another, and bits that are none.
const FLAGS: [u8; 10] = [0, 0, 0, 0x01, 0x24, 0x10, 0x11, 0x08, 0x19, 0x48];
/// Requested and allocated bytes of objects that most call-sites have of their own, as objects of a cache do.
const CACHE_SIZES: [(u64, u64); 5] = [(192, 192), (600, 640), (24, 32), (1000, 1024), (96, 96)];
/// Requested and allocated bytes of objects in size classes that are no powers of two, or large.
const CLASS_SIZES: [(u64, u64); 6] = [(70, 96), (130, 192), (5000, 8192), (3000, 4096), (1500, 2048), (300, 512)];
/// Objects are taken from this many places, so that addresses are used again.
const PLACES: u64 = 160;

/// Makes a workload from `seed`. Times never decrease within a CPU, and often are equal on several.
pub fn workload(seed: u64, options: &Options) -> Workload {
    let mut machine = Machine::new(seed, options);
    for _ in 0..options.events {
        machine.step();
    }
    machine.finish()
}

#[derive(Clone, Copy)]
struct Object {
    address: u64,
    kind: Kind,
    cache: NameId,
}

struct Machine<'a> {
    options: &'a Options,
    shape: Shape,
    random: Random,
    /// Random numbers of the flags alone: the rest of a seed's trace does not depend on them.
    flags: Random,
    /// Random numbers of sizes and caches by call-site, of unknown events, and of frees without an event.
    extra: Random,
    /// Random numbers of the probe events.
    probes: Random,
    /// Random numbers of per-CPU memory and address space.
    spaces: Random,
    /// Addresses of such memory that is allocated, and that was freed.
    others: [Vec<(Kind, u64)>; 2],
    /// Addresses of the next record of several objects.
    addresses: Vec<Event>,
    /// Objects whose free is deferred.
    given_up: Vec<Object>,
    /// Random numbers of stacks, of the interrupts before them, and of the orders of freed pages.
    stacks: Random,
    names: Names,
    layouts: Vec<Layout>,
    now: u64,
    cpus: Vec<PerCpu>,
    /// Events still to be lost, those lost so far, and whether the recorder loses them, for each CPU.
    losing: Vec<(u64, u64, bool)>,
    live: Vec<Object>,
    freed: Vec<Object>,
    /// First frame, or page pointer, and order of blocks that were allocated.
    pages: Vec<(u64, u8)>,
}

impl PerCpu {
    /// How many events its file says are lost; `None` where it cannot say.
    pub fn lost(&self) -> Option<u64> {
        let gaps = self.items.iter().filter_map(|item| match item {
            StreamItem::Gap(gap) => Some(gap),
            StreamItem::Event(_) => None,
        });
        if self.missing
            || gaps.clone().any(|g| g.lost.is_none() && matches!(g.cause, GapCause::Recorder | GapCause::Foreign))
        {
            return None;
        }
        // Without an end block the marks are all there is.
        let marks = gaps.filter_map(|gap| gap.lost).sum();
        Some(if self.cut { marks } else { self.overrun + self.dropped + self.taken + self.recorder_lost })
    }
}

impl<'a> Machine<'a> {
    fn new(seed: u64, options: &'a Options) -> Machine<'a> {
        let per_cpu = |&cpu: &u32| PerCpu {
            cpu,
            cut: options.cut.contains(&cpu),
            missing: options.missing.contains(&cpu),
            ..PerCpu::default()
        };
        Machine {
            options,
            shape: options.shape,
            random: Random::new(seed),
            flags: Random::new(!seed),
            extra: Random::new(seed ^ 0x00e9_17e3),
            probes: Random::new(seed ^ 0x9b0b_e500),
            spaces: Random::new(seed ^ 0x5bac_e500),
            others: Default::default(),
            addresses: Vec::new(),
            given_up: Vec::new(),
            stacks: Random::new(seed ^ 0x57ac_0000),
            names: Names::new(),
            layouts: layouts(&options.shape),
            now: options.start,
            cpus: options.cpus.iter().map(per_cpu).collect(),
            losing: vec![(0, 0, false); options.cpus.len()],
            live: Vec::new(),
            freed: Vec::new(),
            pages: Vec::new(),
        }
    }

    /// One thing happens.
    fn step(&mut self) {
        self.now += match self.random.below(100) {
            0..35 => 0,
            // More than a delta holds.
            35 => self.random.below(40) << 27,
            36 if self.random.chance(5) => self.random.below(3) << 45,
            _ => 1 + self.random.below(self.options.step),
        };
        let cpu = self.random.below(self.cpus.len() as u64) as usize;
        if self.options.varied && self.extra.chance(5) {
            std::mem::swap(&mut self.random, &mut self.extra);
            self.free_unseen(cpu);
            std::mem::swap(&mut self.random, &mut self.extra);
        }
        if self.options.probes && has_probes(&self.shape) && self.probes.chance(15) {
            std::mem::swap(&mut self.random, &mut self.probes);
            self.probe(cpu);
            std::mem::swap(&mut self.random, &mut self.probes);
        }
        if self.shape.possible_cpus > 0 && self.spaces.chance(15) {
            std::mem::swap(&mut self.random, &mut self.spaces);
            self.other_space(cpu);
            std::mem::swap(&mut self.random, &mut self.spaces);
        }
        match self.random.below(100) {
            0..38 => self.allocate(cpu),
            38..42 => self.fail(cpu),
            42..78 => self.free(cpu),
            78..82 => {
                let address = *self.random.pick(&[0, 0, 16]);
                let name = if self.random.chance(80) { "kfree" } else { "kmem_cache_free" };
                let cache = *self.random.pick(&CACHES);
                let cache = self.names.intern(cache.as_bytes());
                self.free_event(cpu, name, address, cache);
            }
            82..94 if self.options.pages => self.page(cpu),
            94.. if self.options.others => self.other(cpu),
            _ => self.allocate(cpu),
        }
    }

    fn place(&mut self) -> u64 {
        let base = if self.shape.target.word_bytes == 8 { 0xffff_8881_0000_0000 } else { 0xc300_0000 };
        base + 0x40 * self.random.below(PLACES)
    }

    fn call_site(&mut self) -> u64 {
        let number = self.random.below(SITES);
        call_site(&self.shape, self.options.slide, number)
    }

    fn slab_name(&mut self, kind: Kind) -> &'static str {
        let node = self.shape.era < Era::V6_1 && self.random.chance(25);
        match (kind, node) {
            (Kind::Cache, false) => "kmem_cache_alloc",
            (Kind::Cache, true) => "kmem_cache_alloc_node",
            (_, false) => "kmalloc",
            (_, true) => "kmalloc_node",
        }
    }

    fn allocate(&mut self, cpu: usize) {
        // Often an address that was just freed; rarely one that is live: its free had no event.
        let address = match self.random.below(10) {
            0..4 => self.random.take(&mut self.freed).map(|o| o.address),
            4 if self.random.chance(40) => self.random.take(&mut self.live).map(|o| o.address),
            _ => None,
        };
        let address = address.unwrap_or_else(|| self.place());
        self.live.retain(|o| o.address != address);
        let kind = if self.random.chance(50) { Kind::Kmalloc } else { Kind::Cache };
        let cache = *self.random.pick(&CACHES);
        let cache = self.names.intern(cache.as_bytes());
        let name = self.slab_name(kind);
        let requested = *self.random.pick(&[1, 8, 17, 64, 100, 192, 600, 4096, 9000]);
        let allocated = match self.random.below(60) {
            0 => requested / 2,
            1 => 0,
            _ => u64::next_power_of_two(requested).max(8),
        };
        let cache = self.alloc_event(cpu, name, kind, address, cache, (requested, allocated));
        self.live.push(Object { address, kind, cache });
    }

    /// Frees on a path without events, as of an epoll item: one object's address comes back as another object with an event, a
    /// second one's without, so that its free is of another cache or kind.
    fn free_unseen(&mut self, cpu: usize) {
        let (first, second) = (self.place(), self.place());
        let kind = if self.random.chance(60) { Kind::Cache } else { Kind::Kmalloc };
        let [epoll, inode] = ["eventpoll_epi", "inode_cache"].map(|cache| self.names.intern(cache.as_bytes()));
        let site = call_site(&self.shape, self.options.slide, 2);
        let objects = [
            (site, kind, first, epoll, (100, 128)),
            (self.call_site(), Kind::Cache, first, inode, (600, 640)),
            (site, kind, second, epoll, (100, 128)),
        ];
        for (call_site, kind, address, cache, bytes) in objects {
            let name = self.slab_name(kind);
            let event = self.event(cpu, name, Action::Alloc(kind));
            self.push_alloc(cpu, name, Event { call_site, address, ..event }, cache, bytes);
        }
        let name = if kind == Kind::Cache && self.random.chance(40) { "kfree" } else { "kmem_cache_free" };
        self.free_event(cpu, name, second, inode);
        self.live.retain(|o| o.address != first && o.address != second);
        self.live.push(Object { address: first, kind: Kind::Cache, cache: inode });
    }

    /// An event of per-CPU memory or of address space, as far as the kernel has them.
    fn other_space(&mut self, cpu: usize) {
        let kind = if self.random.chance(50) { Kind::Percpu } else { Kind::Vmalloc };
        let (alloc, free) = match kind {
            Kind::Percpu => ("percpu_alloc_percpu", "percpu_free_percpu"),
            _ => ("alloc_vmap_area", "free_vmap_area_noflush"),
        };
        if !self.layouts.iter().any(|layout| layout.name == alloc) {
            return;
        }
        let [live, freed] = [0, 1].map(|of| self.other_place(kind, of));
        match self.random.below(20) {
            0..9 => {
                let address = if self.random.chance(20) { live.or(freed) } else { freed };
                let address = address.unwrap_or_else(|| self.new_place(kind));
                self.others[0].push((kind, address));
                self.alloc_other(cpu, alloc, kind, address);
            }
            9 if kind == Kind::Percpu => self.alloc_other(cpu, "percpu_alloc_percpu_fail", kind, 0),
            9 => {
                let (place, failed) = (self.new_place(kind), true);
                let event = self.event(cpu, alloc, Action::Alloc(kind));
                self.push(cpu, Event { address: place, requested: 4096, allocated: 4096, failed, ..event });
            }
            10 if kind == Kind::Vmalloc && self.options.probes && has_probes(&self.shape) => {
                let address = live.unwrap_or_else(|| self.new_place(kind));
                let event = self.event(cpu, "kvfree_rcu", Action::Deferred);
                let call_site = self.call_site();
                self.push(cpu, Event { address, call_site, ..event });
                self.others[1].push((kind, address));
            }
            _ => {
                let address = live.or(freed).unwrap_or_else(|| self.new_place(kind));
                let event = self.event(cpu, free, Action::Free(kind));
                self.push(cpu, Event { address, ..event });
                self.others[1].push((kind, address));
            }
        }
    }

    /// An address of this kind that is allocated, or freed, and no longer is.
    fn other_place(&mut self, kind: Kind, of: usize) -> Option<u64> {
        let place = self.others[of].iter().position(|(other, _)| *other == kind)?;
        self.random.chance(60).then(|| self.others[of].swap_remove(place).1)
    }

    /// An address that slab objects may have, too: each space has its own.
    fn new_place(&mut self, kind: Kind) -> u64 {
        let base = if self.shape.target.word_bytes == 8 { 0xffff_c900_0000_0000 } else { 0xd000_0000 };
        match kind {
            _ if self.random.chance(15) => self.place(),
            Kind::Percpu => 0x1000 + 0x20 * self.random.below(40),
            _ => base + 0x1000 * self.random.below(40),
        }
    }

    fn alloc_other(&mut self, cpu: usize, name: &'static str, kind: Kind, address: u64) {
        let event = self.event(cpu, name, Action::Alloc(kind));
        let bytes = match kind {
            Kind::Percpu => *self.random.pick(&[4, 64, 4096]) * self.shape.possible_cpus,
            _ => 4096 * (1 + self.random.below(9)),
        };
        let has_site = self.layouts.iter().any(|layout| layout.name == name && layout.has_call_site());
        let call_site = if has_site { self.call_site() } else { 0 };
        let event = Event { address, call_site, requested: bytes, allocated: bytes, ..event };
        self.push(cpu, Event { failed: address == 0, ..event });
    }

    /// An event that only a probe records.
    fn probe(&mut self, cpu: usize) {
        match self.random.below(10) {
            0..4 => self.defer(cpu),
            4..7 => self.free_in_bulk(cpu),
            _ => self.allocate_in_bulk(cpu),
        }
    }

    fn defer(&mut self, cpu: usize) {
        let object = match self.random.below(10) {
            0..7 => self.random.take(&mut self.live),
            7 => self.random.take(&mut self.given_up),
            8 => self.random.take(&mut self.freed),
            _ => None,
        };
        let cache = self.names.intern(CACHES[0].as_bytes());
        let address = if self.random.chance(10) { *self.random.pick(&[0, 16]) } else { self.place() };
        let object = object.unwrap_or(Object { address, kind: Kind::Kmalloc, cache });
        self.live.retain(|o| o.address != object.address);
        let event = self.event(cpu, "kvfree_rcu", Action::Deferred);
        let call_site = self.call_site();
        self.push(cpu, Event { address: object.address, call_site, ..event });
        // Next, the address may be allocated, freed by its own function, or completed; no kernel hands out these two.
        if ![0, 16].contains(&object.address) {
            self.freed.push(object);
            self.given_up.push(object);
        }
    }

    /// Number of objects in bulk, of which some have no room in the record.
    fn bulk_size(&mut self) -> u64 {
        match self.random.below(20) {
            0 => 0,
            1 => 64,
            2 => *self.random.pick(&[65, 90, 1 << 30]),
            _ => 1 + self.random.below(6),
        }
    }

    fn free_in_bulk(&mut self, cpu: usize) {
        let size = self.bulk_size();
        let completes = self.random.chance(40);
        let addresses: Vec<u64> = (0..size.min(ROOM as u64))
            .map(|_| {
                let known = match self.random.below(10) {
                    0..4 => self.random.take(&mut self.given_up),
                    4..8 => self.random.take(&mut self.live),
                    8 => self.random.take(&mut self.freed),
                    _ => None,
                };
                known.map_or_else(|| self.place() * u64::from(!self.random.chance(10)), |object| object.address)
            })
            .collect();
        self.live.retain(|o| !addresses.contains(&o.address));
        let name = *self.random.pick(&CACHES);
        let name = (!completes && self.random.chance(85)).then(|| self.names.intern(name.as_bytes()));
        let (action, kind) =
            if completes { (BulkAction::Complete, Kind::Kmalloc) } else { (BulkAction::Free, Kind::Cache) };
        let event = self.event(cpu, "free_bulk", Action::Bulk(kind));
        let event = Event { call_site: self.call_site(), cache: name, ..event };
        self.bulk(cpu, event, (action, size), Action::BulkFree(kind), &addresses);
    }

    fn allocate_in_bulk(&mut self, cpu: usize) {
        let size = self.bulk_size();
        let number = self.random.below(SITES);
        let cache = self.names.intern(CACHES[number as usize % CACHES.len()].as_bytes());
        let (requested, allocated) = CACHE_SIZES[number as usize % CACHE_SIZES.len()];
        let failed = self.random.chance(10);
        let addresses: Vec<u64> = (0..size.min(ROOM as u64))
            .filter(|_| !failed)
            .map(|_| match self.random.below(20) {
                0 => 0,
                1..10 => self.random.take(&mut self.freed).map_or_else(|| self.place(), |object| object.address),
                _ => self.place(),
            })
            .collect();
        self.live.retain(|o| !addresses.contains(&o.address));
        let objects = addresses.iter().filter(|&&address| address != 0);
        self.live.extend(objects.map(|&address| Object { address, kind: Kind::Cache, cache }));
        let action = if failed { Action::Alloc(Kind::Cache) } else { Action::Bulk(Kind::Cache) };
        let event = self.event(cpu, "alloc_bulk", action);
        let call_site = call_site(&self.shape, self.options.slide, number);
        let gfp = Some(*self.random.pick(&[0xcc0, 0xd20]));
        let event = Event { call_site, requested, allocated, cache: Some(cache), failed, gfp, ..event };
        self.bulk(cpu, event, (BulkAction::Alloc, size), Action::Alloc(Kind::Cache), &addresses);
    }

    /// Pushes a record with its addresses, which do `of_address`.
    fn bulk(
        &mut self,
        cpu: usize,
        event: Event,
        (action, size): (BulkAction, u64),
        of_address: Action,
        addresses: &[u64],
    ) {
        let allocates = action == BulkAction::Alloc;
        let of = |&address: &u64| Event {
            address,
            action: of_address,
            failed: allocates && address == 0,
            bulk: Some(Bulk::Address),
            ..event
        };
        self.addresses = addresses.iter().map(of).collect();
        let bulk = Some(Bulk::Record { action, addresses: addresses.len() as u8 });
        self.push(cpu, Event { bulk, value: Some(size.cast_signed()), ..event });
    }

    fn fail(&mut self, cpu: usize) {
        let kind = if self.random.chance(50) { Kind::Kmalloc } else { Kind::Cache };
        let cache = *self.random.pick(&CACHES);
        let cache = self.names.intern(cache.as_bytes());
        let name = self.slab_name(kind);
        let allocated = *self.random.pick(&[0, 64]);
        self.alloc_event(cpu, name, kind, 0, cache, (64, allocated));
    }

    fn free(&mut self, cpu: usize) {
        let object = match self.random.below(100) {
            0..86 => self.random.take(&mut self.live),
            // Twice, or after an allocation without an event.
            86..92 => self.random.take(&mut self.freed),
            // Older than the trace, mostly.
            _ => None,
        };
        let address = self.place();
        let cache = *self.random.pick(&CACHES);
        let other = self.names.intern(cache.as_bytes());
        let object = object.unwrap_or(Object { address, kind: Kind::Kmalloc, cache: other });
        self.live.retain(|o| o.address != object.address);
        let right = if object.kind == Kind::Cache { "kmem_cache_free" } else { "kfree" };
        let wrong = if object.kind == Kind::Cache { "kfree" } else { "kmem_cache_free" };
        let name = if self.random.chance(93) { right } else { wrong };
        let cache = if self.random.chance(94) { object.cache } else { other };
        self.free_event(cpu, name, object.address, cache);
        self.freed.push(object);
    }

    fn page(&mut self, cpu: usize) {
        let old = self.shape.era == Era::V2_6_32;
        let free = if old { "mm_page_free_direct" } else { "mm_page_free" };
        let order = *self.random.pick(&[0, 0, 0, 1, 3, 10]);
        let (place, order) = match (old, self.shape.target.word_bytes) {
            (false, _) => self.frames(order),
            (true, 8) => (0xffff_ea00_0000_0000 + 56 * self.random.below(50), order),
            (true, _) => (0xc700_0000 + 32 * self.random.below(50), order),
        };
        match self.random.below(20) {
            0 => {
                let none = if old { 0 } else { self.shape.word_max() };
                self.page_alloc(cpu, none, order);
            }
            1..11 => {
                self.page_alloc(cpu, place, order);
                self.pages.push((place, order));
            }
            kind => {
                let block = self.random.take(&mut self.pages).unwrap_or((place, order));
                let (address, order) = if old { block } else { self.part_or_more(block) };
                let is_batch = kind == 19 && self.options.others;
                // Kernels before 2.6.34 record nothing else of a page in a batch. Readers know them by their release.
                let stands_alone = is_batch && old && self.options.kernel;
                let name = if stands_alone { "mm_pagevec_free" } else { free };
                let mut event = self.event(cpu, name, Action::Free(Kind::Pages));
                event.address = address;
                event.order = event.order.map(|_| order);
                self.push(cpu, event);
                if is_batch && !stands_alone {
                    let name = batched_name(self.shape.era);
                    let mut event = self.event(cpu, name, Action::Other);
                    event.address = address;
                    self.push(cpu, event);
                }
            }
        }
    }

    /// First frame and order of a block, aligned to its order as the kernel's are, near others.
    fn frames(&mut self, order: u8) -> (u64, u8) {
        let order = match self.extra.below(60) {
            0 => 16,
            1..4 => self.extra.below(17) as u8,
            4..30 => self.extra.below(4) as u8,
            _ => order,
        };
        // Near places of the same partition and of others.
        let base = *self.extra.pick(&[0x1000, 0x1000, 0x1000, 0xf000, 0x2_0000, 0x7_8000]);
        let frame = base + self.random.below(50);
        (frame >> order << order, order)
    }

    /// Frames to free of a block: mostly all of it, else a part, which leaves the rest allocated, or others with it.
    fn part_or_more(&mut self, (first, order): (u64, u8)) -> (u64, u8) {
        let freed = match self.extra.below(10) {
            0..3 => self.extra.below(u64::from(order) + 1) as u8,
            3 => (order + self.extra.below(3) as u8).min(16),
            _ => order,
        };
        let parts = 1 << order.saturating_sub(freed);
        let part = first + (self.extra.below(parts) << freed);
        if freed < order {
            self.pages.push((first, order));
        }
        (part >> freed << freed, freed)
    }

    fn page_alloc(&mut self, cpu: usize, address: u64, order: u8) {
        let mut event = self.event(cpu, "mm_page_alloc", Action::Alloc(Kind::Pages));
        event.address = address;
        event.order = event.order.map(|_| order);
        event.requested = u64::from(self.shape.page_bytes) << order;
        event.allocated = event.requested;
        event.failed = address == if self.shape.era == Era::V2_6_32 { 0 } else { self.shape.word_max() };
        self.push(cpu, event);
    }

    fn other(&mut self, cpu: usize) {
        let name = if self.random.chance(60) { "kernel_stack" } else { "unknown" };
        let is_deferred = self.options.varied && name == "kernel_stack" && self.extra.chance(25);
        let name = if is_deferred { UNKNOWN_EVENTS[0] } else { name };
        let mut event = self.event(cpu, name, Action::Other);
        // Without a format the thread is not known.
        event.pid = event.pid.filter(|_| name != "unknown");
        event.flags = event.flags.filter(|_| name != "unknown");
        if name != "kernel_stack" {
            return self.push(cpu, event);
        }
        event.pid = Some(ORPHAN_PID);
        event.stack = self.some_stack();
        self.land(cpu, event);
    }

    fn event(&mut self, cpu: usize, name: &'static str, action: Action) -> Event {
        let layout = self.layouts.iter().find(|l| l.name == name);
        let has = |what: fn(&Layout) -> bool| layout.is_some_and(what);
        let (gfp, node, order) = (has(Layout::has_gfp), has(Layout::has_node), has(Layout::has_order));
        Event {
            at: self.now,
            address: 0,
            call_site: 0,
            requested: 0,
            allocated: 0,
            gfp: gfp.then(|| *self.random.pick(&[0xcc0, 0xdc0, 0x40_0cc0, 0xd20])),
            // Of no random number, so that the rest of a seed's trace is the same.
            accounted: has(Layout::has_accounted).then_some(self.now.is_multiple_of(3)),
            cpu: self.cpus[cpu].cpu,
            pid: Some(*self.random.pick(&PIDS)),
            flags: Some(*self.flags.pick(&FLAGS)),
            node: node.then(|| *self.random.pick(&[-1, -1, 0, 1])),
            cache: None,
            name: self.names.intern(name.as_bytes()),
            action,
            failed: false,
            order: order.then_some(0),
            stack: None,
            mark: kmemtrace_abi::event::Mark::None,
            value: None,
            owner: None,
            fields: None,
            bulk: None,
        }
    }

    fn names_cache(&self, name: &str) -> bool {
        self.layouts.iter().any(|l| l.name == name && l.has_cache())
    }

    /// An allocation at any call-site; most call-sites of a varied workload have sizes and a cache of their own. Returns the
    /// cache.
    fn alloc_event(
        &mut self,
        cpu: usize,
        name: &'static str,
        kind: Kind,
        address: u64,
        cache: NameId,
        bytes: (u64, u64),
    ) -> NameId {
        let event = self.event(cpu, name, Action::Alloc(kind));
        let number = self.random.below(SITES);
        let (mut cache, mut bytes) = (cache, bytes);
        match kind {
            Kind::Cache if self.options.varied && self.extra.chance(70) => {
                cache = self.names.intern(CACHES[number as usize % CACHES.len()].as_bytes());
                bytes = CACHE_SIZES[number as usize % CACHE_SIZES.len()];
            }
            Kind::Kmalloc if self.options.varied && self.extra.chance(15) => bytes = *self.extra.pick(&CLASS_SIZES),
            _ => {}
        }
        let call_site = call_site(&self.shape, self.options.slide, number);
        self.push_alloc(cpu, name, Event { call_site, address, ..event }, cache, bytes);
        cache
    }

    /// An allocation of (requested, allocated) bytes; its event names the cache where this kernel's do.
    fn push_alloc(
        &mut self,
        cpu: usize,
        name: &'static str,
        mut event: Event,
        cache: NameId,
        (requested, allocated): (u64, u64),
    ) {
        (event.requested, event.allocated) = (requested, allocated);
        event.cache = self.names_cache(name).then_some(cache);
        event.failed = event.address == 0;
        self.push(cpu, event);
    }

    fn free_event(&mut self, cpu: usize, name: &'static str, address: u64, cache: NameId) {
        let kind = if name == "kfree" { Kind::Kmalloc } else { Kind::Cache };
        let mut event = self.event(cpu, name, Action::Free(kind));
        event.address = address;
        event.call_site = self.call_site();
        event.cache = self.names_cache(name).then_some(cache);
        self.push(cpu, event);
    }

    /// A stack of this machine; now and then nonsense in place of one.
    fn some_stack(&mut self) -> Option<StackId> {
        let frames = frames(&self.shape, self.options.slide, &mut self.stacks);
        let is_nonsense = self.stacks.chance(5);
        (!is_nonsense).then(|| self.names.stacks.intern(&frames))
    }

    /// The event gets into the stream or is lost, and so does its stack.
    fn push(&mut self, index: usize, event: Event) {
        let place = self.land(index, event);
        let Some(flags) = event.flags.filter(|_| self.options.stacks && self.stacks.chance(70)) else { return };
        if self.stacks.chance(8)
            && let Some(flags) = interrupted(flags, &mut self.stacks)
        {
            for _ in 0..1 + self.stacks.below(3) {
                self.now += self.stacks.below(2);
                let free = self.event(index, "kfree", Action::Free(Kind::Kmalloc));
                let (address, call_site) = (self.place(), self.call_site());
                let flags = Some(changed(flags, &mut self.stacks));
                self.push(index, Event { address, call_site, flags, pid: event.pid, ..free });
            }
        }
        let record = self.event(index, "kernel_stack", Action::Other);
        let (stack, flags) = (self.some_stack(), Some(changed(flags, &mut self.stacks)));
        let end = self.land(index, Event { pid: event.pid, flags, stack, ..record });
        let items = &mut self.cpus[index].items;
        if let Some((place, end)) = place.zip(end)
            && !items[place..end].iter().any(|item| matches!(item, StreamItem::Gap(_)))
        {
            let of_event = |item: &&mut StreamItem| matches!(item, StreamItem::Event(event) if event.is_address());
            let (record, behind) = items[place..end].split_at_mut(1);
            for item in record.iter_mut().chain(behind.iter_mut().take_while(of_event)) {
                if let StreamItem::Event(event) = item {
                    event.stack = stack;
                }
            }
        }
    }

    /// The event gets into the stream, at this place, or is lost.
    fn land(&mut self, index: usize, event: Event) -> Option<usize> {
        let addresses = std::mem::take(&mut self.addresses);
        let (left, lost, by_recorder) = self.losing[index];
        if left > 0 {
            self.losing[index] = (left - 1, lost + 1, by_recorder);
            return None;
        }
        let options = self.options;
        if lost > 0 {
            self.losing[index] = (0, 0, false);
            let counted = !options.uncounted || self.random.chance(60);
            let cpu = &mut self.cpus[index];
            let from = last_time(cpu);
            // The sub-buffer may count from the loss or from its first event; what the recorder lost
            // has no time of its own.
            let to = if by_recorder || self.random.chance(70) {
                event.at
            } else {
                event.at - self.random.below(event.at - from.unwrap_or(options.start) + 1)
            };
            let cause = if by_recorder { GapCause::Recorder } else { GapCause::Overrun };
            match (by_recorder, counted) {
                (true, true) => cpu.recorder_lost += lost,
                // Another program cleared the buffer: no counter tells of it.
                (true, false) => {}
                (false, _) => cpu.overrun += lost,
            }
            let lost = counted.then_some(lost);
            cpu.items.push(StreamItem::Gap(Gap { from, to: Some(to), cpu: cpu.cpu, lost, cause }));
        } else if options.loss && self.random.chance(2) {
            let by_recorder = options.recorder_loss && self.random.chance(40);
            self.losing[index] = (self.random.below(30), 1, by_recorder);
            return None;
        }
        let items = &mut self.cpus[index].items;
        items.push(StreamItem::Event(event));
        let place = items.len() - 1;
        items.extend(addresses.into_iter().map(StreamItem::Event));
        Some(place)
    }

    fn finish(mut self) -> Workload {
        for (cpu, &(_, lost, by_recorder)) in self.cpus.iter_mut().zip(&self.losing) {
            let from = last_time(cpu);
            let gap = |lost, cause| StreamItem::Gap(Gap { from, to: None, cpu: cpu.cpu, lost, cause });
            if cpu.missing {
                let gap = gap(None, GapCause::Cut);
                *cpu = PerCpu { cpu: cpu.cpu, missing: true, items: vec![gap], ..PerCpu::default() };
                if let StreamItem::Gap(gap) = &mut cpu.items[0] {
                    gap.from = None;
                }
                continue;
            }
            if cpu.cut {
                let gap = gap(None, GapCause::Cut);
                cpu.items.push(gap);
            } else {
                // Events lost at the very end have no mark. A mark without a count may stand for them.
                let is_vague = |item: &StreamItem| matches!(item, StreamItem::Gap(g) if g.cause == GapCause::Overrun && g.lost.is_none());
                let overrun = if by_recorder { 0 } else { lost };
                cpu.overrun += overrun;
                let beyond = if cpu.items.iter().any(is_vague) { 0 } else { overrun };
                (cpu.dropped, cpu.taken) = match (self.options.unplaced, self.options.timed) {
                    (true, false) => (3, self.random.below(2) * self.random.below(6)),
                    _ => (0, 0),
                };
                cpu.lose_unplaced(beyond + cpu.dropped + cpu.taken);
            }
            if self.options.unplaced && self.options.timed {
                cpu.grow(&mut self.random, (self.options.start, self.now));
            }
        }
        if self.options.foreign {
            self.change_what_is_recorded();
        }
        for cpu in &mut self.cpus {
            cpu.foretell();
        }
        let starts = [0, self.options.start, self.options.start + 1, self.now];
        let nodes = self.options.cpus.iter().map(|&cpu| (cpu, cpu % 2)).collect();
        let has_probes = self.options.probes && has_probes(&self.shape);
        Workload {
            reclaim_account: String::new(),
            threads_end: None,
            probes: has_probes.then(|| *self.probes.pick(&starts)),
            shape: self.shape,
            names: self.names,
            cpus: self.cpus,
            kernel: self.options.kernel.then(|| self.shape.era.kernel()),
            comms: if self.options.comms { COMMS.to_vec() } else { Vec::new() },
            own_threads: self.options.own_threads.then(|| OWN_THREADS.to_vec()),
            nodes: if self.options.nodes { nodes } else { Vec::new() },
            clock: self.options.clock,
            symbols: match self.options.symbols {
                true => Symbols::of_call_sites(&self.shape, self.options.slide),
                false => Symbols::default(),
            },
            hidden_symbols: false,
            modules: String::new(),
            module_info: String::new(),
            items: Vec::new(),
            slabinfo: match self.options.varied && self.extra.chance(50) {
                true => SLABINFO.map(slabinfo),
                false => Default::default(),
            },
        }
    }

    /// Other programs do that, one after the other: it concerns all CPUs.
    fn change_what_is_recorded(&mut self) {
        let times = times_within(&mut self.random, (self.options.start, self.now), 4);
        let mut hands: Vec<Hand> =
            times.chunks(2).map(|ends| Hand { from: ends[0], to: Some(ends[1].max(1)) }).collect();
        hands.dedup_by_key(|hand| hand.from);
        if self.random.chance(30)
            && let Some(last) = hands.last_mut()
        {
            last.to = None;
        }
        self.cpus.iter_mut().filter(|cpu| !cpu.missing).for_each(|cpu| cpu.hands.clone_from(&hands));
    }
}

/// Random times from `from` to `to`, ascending.
fn times_within(random: &mut Random, (from, to): (u64, u64), count: usize) -> Vec<u64> {
    let mut times: Vec<u64> = (0..count).map(|_| from + random.below(to - from + 1)).collect();
    times.sort_unstable();
    times
}

impl PerCpu {
    /// Events lost at no known time: one gap, from the first event to the end.
    pub fn lose_unplaced(&mut self, lost: u64) {
        if lost == 0 {
            return;
        }
        let first = self.items.iter().position(|item| matches!(item, StreamItem::Event(_)));
        let from = first.and_then(|first| match self.items[first] {
            StreamItem::Event(event) => Some(event.at),
            StreamItem::Gap(_) => None,
        });
        let gap = Gap { from, to: None, cpu: self.cpu, lost: Some(lost), cause: GapCause::Counters };
        self.items.insert(first.unwrap_or(self.items.len()), StreamItem::Gap(gap));
    }

    /// The counters grow, between looks at them from `from` to `to`.
    fn grow(&mut self, random: &mut Random, within: (u64, u64)) {
        let times = times_within(random, within, 5);
        for (number, ends) in times.windows(2).enumerate() {
            if random.chance(30) {
                continue;
            }
            let from = if number == 0 && random.chance(30) { 0 } else { ends[0] };
            let grew = Interval::new(from, ends[1].max(1));
            let (refused, taken) = (random.below(5), random.below(2) * random.below(5));
            (self.dropped, self.taken) = (self.dropped + refused, self.taken + taken);
            // The end block has the last growth; a file without one has a block of it.
            if number == 3 && !self.cut {
                self.last_grew = grew;
            } else {
                self.samples.push(Sample { refused, taken, grew });
            }
        }
    }

    /// Sums of refused and taken events over all samples.
    fn sampled(&self) -> (u64, u64) {
        self.samples.iter().fold((0, 0), |(refused, taken), sample| (refused + sample.refused, taken + sample.taken))
    }

    /// Puts the gaps that are known before the first event to the front, by their begins: those of samples, of what is left for the
    /// end block, and of what other programs did.
    pub fn foretell(&mut self) {
        let (refused, taken) = self.sampled();
        let rest = Sample { refused: self.dropped - refused, taken: self.taken - taken, grew: self.last_grew };
        let mut gaps = Vec::new();
        for sample in self.samples.iter().chain([&rest]) {
            let lost = sample.refused + sample.taken;
            if let Some((from, to)) = sample.grew.ends().filter(|_| lost > 0) {
                gaps.push(Gap { from, to, cpu: self.cpu, lost: Some(lost), cause: GapCause::Counters });
            }
        }
        for hand in &self.hands {
            let from = Some(hand.from).filter(|&from| from > 0);
            gaps.push(Gap { from, to: hand.to, cpu: self.cpu, lost: None, cause: GapCause::Foreign });
        }
        gaps.sort_by_key(|gap| (gap.from, gap.to.is_none(), gap.to));
        self.items.splice(0..0, gaps.into_iter().map(StreamItem::Gap));
    }
}

fn last_time(cpu: &PerCpu) -> Option<u64> {
    cpu.items.iter().rev().find_map(|item| match item {
        StreamItem::Event(event) => Some(event.at),
        StreamItem::Gap(_) => None,
    })
}
