//! Made texts of ftrace: the same events as kernels from Linux 2.6.32 to 5.15 print them, and the figures that belong to them.

use std::collections::HashMap;
use std::fmt::Write;

use crate::generate::Random;

/// Spelling of one kernel.
#[derive(Clone, Copy, Debug)]
pub struct Kernel {
    /// Release, as `--release` takes it.
    pub release: &'static str,
    /// Major, minor and patch number.
    number: (u32, u32, u32),
}

const fn kernel(release: &'static str, number: (u32, u32, u32)) -> Kernel {
    Kernel { release, number }
}

/// Kernels between which spellings changed.
pub const KERNELS: [Kernel; 12] = [
    kernel("2.6.32", (2, 6, 32)),
    kernel("2.6.37", (2, 6, 37)),
    kernel("3.2", (3, 2, 0)),
    kernel("3.4", (3, 4, 0)),
    kernel("3.10.108", (3, 10, 108)),
    kernel("4.4", (4, 4, 0)),
    kernel("4.14.336", (4, 14, 336)),
    kernel("4.19", (4, 19, 0)),
    kernel("5.3", (5, 3, 0)),
    kernel("5.10", (5, 10, 0)),
    kernel("5.14", (5, 14, 0)),
    kernel("5.15.1", (5, 15, 1)),
];

/// An allocation or a free.
#[derive(Clone, Debug)]
struct Made {
    name: &'static str,
    at: u64,
    cpu: u32,
    pid: u32,
    /// Address of an object, frame of a block; 0 for none.
    key: u64,
    sizes: (u64, u64),
    order: u32,
    site: usize,
}

/// Figures of a kind, as `summary` has them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Successful allocations.
    pub allocs: u64,
    /// Allocations that returned null.
    pub failed_allocs: u64,
    /// Bytes asked for.
    pub requested: u64,
    /// Bytes taken.
    pub allocated: u64,
    /// Pairs.
    pub frees: u64,
    /// Objects that ended because their address was handed out again.
    pub inferred_frees: u64,
    /// Pairs freed on another CPU.
    pub cross_cpu: u64,
    /// Objects that are live at the end.
    pub live_objects: u64,
}

/// A text and its figures.
#[derive(Clone, Debug, Default)]
pub struct MadeText {
    /// The text.
    pub text: String,
    /// Number of its events.
    pub events: u64,
    /// Figures of `kmalloc`, `cache` and `pages`.
    pub kinds: [Figures; 3],
    /// Frees of null, and of what is not live.
    pub null_free: u64,
    /// Frees of an address that was never allocated.
    pub free_without_alloc: u64,
    /// Frees of an address that was freed before.
    pub free_after_free: u64,
}

/// Names that tasks have.
const COMMS: [&str; 6] = ["bash", "kworker/0:1", "a b: c", "(y)-7 [0]", "x:[1]-3", "fifteen_letters"];
/// Functions, their sizes, and a module.
const SITES: [(&str, u64, u64, Option<&str>); 4] = [
    ("alloc_inode", 0xa3, 0xc0, None),
    ("foo.isra.0", 0x10, 0x20, Some("foo")),
    ("foo_open", 0x1, 0x44, Some("foo")),
    ("do_thing", 0x1234, 0x2000, None),
];
const PAGE: u64 = 4096;
const CPUS: u32 = 3;

impl Kernel {
    fn is(&self, number: (u32, u32, u32)) -> bool {
        self.number >= number
    }

    /// True where pointers are hashed.
    pub fn hashes(&self) -> bool {
        self.is((4, 15, 0))
    }

    /// The number that stands for an address in the text.
    fn printed(&self, address: u64) -> u64 {
        let hashes_null = self.is((5, 2, 0)) && !self.is((5, 7, 0));
        match address {
            0 if !hashes_null => 0,
            address if self.hashes() => (address ^ 0x1234_5678).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32,
            address => address,
        }
    }

    fn pointer(&self, address: u64) -> String {
        match self.printed(address) {
            0 if !self.is((2, 6, 37)) => "(null)".to_owned(),
            0 if !self.is((5, 2, 0)) => format!("{:>16}", "(null)"),
            printed => format!("{printed:016x}"),
        }
    }

    fn site(&self, site: usize) -> String {
        let (name, offset, size, module) = SITES[site];
        if !self.is((5, 4, 0)) {
            return format!("{:x}", 0xffff_ffff_8100_0000 + (site as u64) * 0x1_0000 + offset);
        }
        let module = module.map_or(String::new(), |module| format!(" [{module}]"));
        format!("{name}+{offset:#x}/{size:#x}{module}")
    }

    fn frame(&self, frame: u64) -> String {
        if self.is((5, 14, 0)) { format!("{frame:#x}") } else { frame.to_string() }
    }

    fn fields(&self, made: &Made) -> String {
        let (site, pointer) = (self.site(made.site), self.pointer(made.key));
        let (requested, allocated) = made.sizes;
        let page = if made.key == 0 { 0 } else { 0xffff_ea00_0000_0000u64.wrapping_add(made.key.wrapping_mul(64)) };
        let page = self.pointer(page);
        // The frame of a failed allocation was rubbish at first.
        let frame =
            self.frame(if made.key == 0 && !self.is((2, 6, 33)) { 6_148_914_691_236_517_205 } else { made.key });
        match made.name {
            "kmalloc" | "kmem_cache_alloc" => format!(
                "call_site={site} ptr={pointer} bytes_req={requested} bytes_alloc={allocated} gfp_flags=GFP_KERNEL|0x80"
            ),
            "kmem_cache_free" if self.is((5, 12, 0)) => format!("call_site={site} ptr={pointer} name=dentry"),
            "kfree" | "kmem_cache_free" => format!("call_site={site} ptr={pointer}"),
            "mm_page_alloc" => {
                format!("page={page} pfn={frame} order={} migratetype=0 gfp_flags=GFP_KERNEL", made.order)
            }
            "mm_pagevec_free" => format!("page={page} pfn={frame} order=0 cold=0"),
            _ => format!("page={page} pfn={frame} order={}", made.order),
        }
    }

    fn line(&self, made: &Made) -> String {
        let comm = COMMS[made.pid as usize % COMMS.len()];
        let pid = if self.is((5, 9, 0)) { format!("{:<7}", made.pid) } else { format!("{:<5}", made.pid) };
        let flags = match () {
            () if self.is((5, 15, 0)) => "d.h1. ",
            () if self.is((3, 3, 0)) => "..s1 ",
            () => "",
        };
        let (seconds, micros) = (made.at / 1_000_000_000, made.at / 1_000 % 1_000_000);
        let (cpu, name, fields) = (made.cpu, made.name, self.fields(made));
        format!("{comm:>16}-{pid} [{cpu:03}] {flags}{seconds:5}.{micros:06}: {name}: {fields}\n")
    }

    fn header(&self, events: u64) -> String {
        let mut header = "# tracer: nop\n#\n".to_owned();
        if self.is((3, 3, 0)) {
            let _ = writeln!(header, "# entries-in-buffer/entries-written: {events}/{events}   #P:{CPUS}\n#");
        }
        header
            + "#           TASK-PID    CPU#    TIMESTAMP  FUNCTION\n#              | |       |          |         |\n"
    }

    fn frees_pages(&self, order: u32) -> &'static str {
        match order {
            _ if self.is((3, 3, 0)) => "mm_page_free",
            0 if !self.is((2, 6, 34)) => "mm_pagevec_free",
            _ => "mm_page_free_direct",
        }
    }
}

/// Random events, the same for all kernels but for the names of the events of pages.
fn events(random: &mut Random, kernel: Kernel, count: usize) -> Vec<Made> {
    let mut live: [Vec<(u64, u32)>; 3] = Default::default();
    let mut at = 5_000_000_000 + random.below(1000) * 1000;
    let mut all = Vec::new();
    for _ in 0..count {
        // Many events share a printed time.
        at += random.below(3) * 700;
        let kind = random.below(3) as usize;
        let mut made = Made {
            name: "",
            at,
            cpu: random.below(CPUS.into()) as u32,
            pid: 1 + random.below(40) as u32,
            key: 0,
            sizes: (0, 0),
            order: 0,
            site: random.below(SITES.len() as u64) as usize,
        };
        let frees = random.chance(45);
        if frees && kind < 2 && random.chance(10) {
            made.name = ["kfree", "kmem_cache_free"][kind];
        } else if let Some((key, order)) = live[kind].pop().filter(|_| frees) {
            (made.key, made.order) = (key, order);
            made.name = ["kfree", "kmem_cache_free", kernel.frees_pages(order)][kind];
        } else {
            made.name = ["kmalloc", "kmem_cache_alloc", "mm_page_alloc"][kind];
            let requested = 1 + random.below(4000);
            made.sizes = (requested, requested.next_power_of_two());
            made.order = if kind == 2 { random.below(3) as u32 } else { 0 };
            if !random.chance(5) {
                // Blocks of 2^order pages that never overlap another one.
                let number = all.len() as u64 * 4;
                made.key = if kind == 2 { 0x10_0000 + number } else { 0xffff_8800_1000_0000 + number * 0x1000 };
                live[kind].push((made.key, made.order));
            }
            if random.chance(3) {
                // Its free has no event: the address is handed out again.
                let again = Made { at: at + 700, ..made.clone() };
                all.push(made.clone());
                made = again;
            }
        }
        all.push(made);
    }
    all
}

/// A text of this kernel with about `count` events.
pub fn made(kernel: Kernel, seed: u64, count: usize) -> MadeText {
    let mut random = Random::new(seed);
    let all = events(&mut random, kernel, count);
    let mut text = MadeText { events: all.len() as u64, ..MadeText::default() };
    text.text = kernel.header(text.events);
    // Live and freed addresses: slabs share one space.
    let mut seen: HashMap<(bool, u64), Option<(usize, u32)>> = HashMap::new();
    for made in &all {
        text.text.push_str(&kernel.line(made));
        let kind = match made.name {
            "kmalloc" | "kfree" => 0,
            "kmem_cache_alloc" | "kmem_cache_free" => 1,
            _ => 2,
        };
        let address = if kind == 2 { made.key } else { kernel.printed(made.key) };
        let place = (kind == 2, address);
        if !made.name.contains("alloc") {
            match seen.insert(place, None) {
                _ if address == 0 && kind < 2 => text.null_free += 1,
                Some(Some((kind, cpu))) => {
                    text.kinds[kind].frees += 1;
                    text.kinds[kind].cross_cpu += u64::from(cpu != made.cpu);
                }
                Some(None) => text.free_after_free += 1,
                None => text.free_without_alloc += 1,
            }
            continue;
        }
        if address == 0 {
            text.kinds[kind].failed_allocs += 1;
            continue;
        }
        if let Some(Some((before, _))) = seen.insert(place, Some((kind, made.cpu))) {
            text.kinds[before].inferred_frees += 1;
        }
        let (requested, allocated) = if kind == 2 { (PAGE << made.order, PAGE << made.order) } else { made.sizes };
        let figures = &mut text.kinds[kind];
        figures.allocs += 1;
        figures.requested += requested;
        figures.allocated += allocated;
    }
    for figures in &mut text.kinds {
        figures.live_objects = figures.allocs - figures.frees - figures.inferred_frees;
    }
    text
}
