//! Event records and their `format` texts, both from one list of fields for each event and kernel.

use super::stacks::{CLAIMED_FRAMES, put_frames, put_nonsense};
use super::{Era, Random, Shape, put, set};
use kmemtrace_abi::event::Event;

/// Meaning of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slot {
    CommonType,
    CommonFlags,
    CommonPreempt,
    CommonPid,
    CallSite,
    Address,
    Requested,
    Allocated,
    /// Bytes on each possible CPU.
    EachCpu,
    Failed,
    Accounted,
    Gfp,
    Node,
    CacheName,
    Order,
    StackSize,
    Callers,
    /// No reader looks at it: arbitrary bytes.
    Any,
}

/// A field before it has its place: `bytes` 0 stands for a word.
#[derive(Clone, Copy, Debug)]
struct Line {
    declaration: &'static str,
    bytes: usize,
    signed: bool,
    slot: Slot,
}

const fn line(declaration: &'static str, bytes: usize, signed: bool, slot: Slot) -> Line {
    Line { declaration, bytes, signed, slot }
}

const WORD: usize = 0;

/// The layout of one event.
#[derive(Clone, Debug)]
pub struct Layout {
    /// `kmem`, `ftrace`, `module`, `percpu` or `vmalloc`.
    pub system: &'static str,
    /// The event's name.
    pub name: &'static str,
    /// The event's `common_type`.
    pub id: u16,
    /// Field lists: (line, offset, size).
    fields: Vec<(Line, usize, usize)>,
    /// How many of them are common to all events.
    common: usize,
    shape: Shape,
}

/// The id of a record whose format no trace tells.
pub(crate) const FOREIGN_ID: u16 = 1999;

/// Events of `kmem` that no reader knows, and that tell of objects by `call_site` and `ptr`.
pub const UNKNOWN_EVENTS: [&str; 1] = ["kmem_cache_free_deferred"];

/// Events that this kernel has, in the order their ids are given. The name of a module stands in the place of a cache's.
pub fn layouts(shape: &Shape) -> Vec<Layout> {
    let names: &[&str] = match shape.era {
        Era::V2_6_32 => &[
            "kmalloc",
            "kmem_cache_alloc",
            "kmalloc_node",
            "kmem_cache_alloc_node",
            "kfree",
            "kmem_cache_free",
            "mm_page_free_direct",
            "mm_pagevec_free",
            "mm_page_alloc",
        ],
        Era::V5_15 => &[
            "kmalloc",
            "kmem_cache_alloc",
            "kmalloc_node",
            "kmem_cache_alloc_node",
            "kfree",
            "kmem_cache_free",
            "mm_page_free",
            "mm_page_free_batched",
            "mm_page_alloc",
        ],
        Era::V6_1 | Era::V6_12 | Era::V6_18 => &[
            "kmem_cache_alloc",
            "kmalloc",
            "kfree",
            "kmem_cache_free",
            "mm_page_free",
            "mm_page_free_batched",
            "mm_page_alloc",
        ],
    };
    // Ids differ from kernel to kernel.
    let first = 300 + 90 * (shape.era as u16);
    let names_len = (names.len() + UNKNOWN_EVENTS.len()) as u16;
    let names = names.iter().chain(&UNKNOWN_EVENTS);
    let kmem = names.enumerate().map(|(i, name)| layout(shape, "kmem", name, first + 3 * i as u16));
    let modules = ["module_load", "module_free"].into_iter().zip(names_len..);
    let modules = modules.map(|(name, i)| layout(shape, "module", name, first + 3 * i));
    let spaces = space_events(shape).into_iter().zip(names_len + 2..);
    let spaces = spaces.map(|((system, name), i)| layout(shape, system, name, first + 3 * i));
    kmem.chain([layout(shape, "ftrace", "kernel_stack", 4)]).chain(modules).chain(spaces).collect()
}

/// Events of per-CPU memory and of address space, by system and name.
fn space_events(shape: &Shape) -> Vec<(&'static str, &'static str)> {
    let percpu = ["percpu_alloc_percpu", "percpu_alloc_percpu_fail", "percpu_free_percpu"].map(|name| ("percpu", name));
    let vmalloc = ["alloc_vmap_area", "free_vmap_area_noflush"].map(|name| ("vmalloc", name));
    let has = |first: Era| shape.possible_cpus > 0 && shape.era >= first;
    let percpu = percpu.into_iter().filter(|_| has(Era::V5_15));
    percpu.chain(vmalloc.into_iter().filter(|_| has(Era::V6_12))).collect()
}

/// Name of the event of a page in a batch: no free of its own but in kernels before 2.6.34.
pub(crate) fn batched_name(era: Era) -> &'static str {
    if era == Era::V2_6_32 { "mm_pagevec_free" } else { "mm_page_free_batched" }
}

fn event_lines(name: &str, era: Era) -> Vec<Line> {
    let call_site = line("unsigned long call_site", WORD, false, Slot::CallSite);
    let ptr = line("const void * ptr", WORD, false, Slot::Address);
    let requested = line("size_t bytes_req", WORD, false, Slot::Requested);
    let allocated = line("size_t bytes_alloc", WORD, false, Slot::Allocated);
    let gfp = if era < Era::V6_1 {
        line("gfp_t gfp_flags", 4, false, Slot::Gfp)
    } else {
        line("unsigned long gfp_flags", WORD, false, Slot::Gfp)
    };
    let node = line("int node", 4, true, Slot::Node);
    let accounted = line("bool accounted", 1, false, Slot::Accounted);
    let cache = line("__data_loc char[] name", 4, false, Slot::CacheName);
    let frame = if era == Era::V2_6_32 {
        line("struct page * page", WORD, false, Slot::Address)
    } else {
        line("unsigned long pfn", WORD, false, Slot::Address)
    };
    let order = line("unsigned int order", 4, false, Slot::Order);
    let callers = line("unsigned long caller[8]", WORD, false, Slot::Callers);
    let any = |declaration, bytes| line(declaration, bytes, false, Slot::Any);
    let (reserved, atomic) = (any("bool reserved", 1), any("bool is_atomic", 1));
    let (each_cpu, align) = (line("size_t size", WORD, false, Slot::EachCpu), any("size_t align", WORD));
    let (base, off) = (any("void * base_addr", WORD), any("int off", 4));
    let percpu_ptr = line("void __percpu * ptr", WORD, false, Slot::Address);
    match name {
        "percpu_alloc_percpu" if era >= Era::V6_1 => {
            let charged = any("size_t bytes_alloc", WORD);
            vec![call_site, reserved, atomic, each_cpu, align, base, off, percpu_ptr, charged, gfp]
        }
        "percpu_alloc_percpu" => vec![reserved, atomic, each_cpu, align, base, off, percpu_ptr],
        "percpu_alloc_percpu_fail" => vec![reserved, atomic, each_cpu, align],
        "percpu_free_percpu" => vec![base, off, percpu_ptr],
        "alloc_vmap_area" => vec![
            line("unsigned long addr", WORD, false, Slot::Address),
            line("unsigned long size", WORD, false, Slot::Requested),
            any("unsigned long align", WORD),
            any("unsigned long vstart", WORD),
            any("unsigned long vend", WORD),
            line("int failed", 4, true, Slot::Failed),
        ],
        "free_vmap_area_noflush" => vec![
            line("unsigned long va_start", WORD, false, Slot::Address),
            any("unsigned long nr_lazy", WORD),
            any("unsigned long nr_lazy_max", WORD),
        ],
        "kmalloc" if era >= Era::V6_1 => vec![call_site, ptr, requested, allocated, gfp, node],
        "kmem_cache_alloc" if era >= Era::V6_18 => {
            vec![call_site, ptr, cache, requested, allocated, gfp, node, accounted]
        }
        "kmem_cache_alloc" if era >= Era::V6_1 => vec![call_site, ptr, requested, allocated, gfp, node, accounted],
        "kmalloc" | "kmem_cache_alloc" => vec![call_site, ptr, requested, allocated, gfp],
        "kmalloc_node" | "kmem_cache_alloc_node" => vec![call_site, ptr, requested, allocated, gfp, node],
        "kmem_cache_free" if era >= Era::V5_15 => vec![call_site, ptr, cache],
        "kfree" | "kmem_cache_free" | "kmem_cache_free_deferred" => vec![call_site, ptr],
        "mm_page_alloc" => vec![frame, order, gfp, line("int migratetype", 4, true, Slot::Any)],
        "mm_page_free" | "mm_page_free_direct" => vec![frame, order],
        "mm_pagevec_free" => vec![frame, line("int cold", 4, true, Slot::Any)],
        "mm_page_free_batched" => vec![frame],
        "module_free" => vec![cache],
        "module_load" => vec![line("unsigned int taints", 4, false, Slot::Any), cache],
        _ if era == Era::V2_6_32 => vec![callers],
        _ => vec![line("int size", 4, true, Slot::StackSize), callers],
    }
}

fn layout(shape: &Shape, system: &'static str, name: &'static str, id: u16) -> Layout {
    let mut lines = vec![
        line("unsigned short common_type", 2, false, Slot::CommonType),
        line("unsigned char common_flags", 1, false, Slot::CommonFlags),
        line("unsigned char common_preempt_count", 1, false, Slot::CommonPreempt),
        line("int common_pid", 4, true, Slot::CommonPid),
    ];
    if shape.era == Era::V2_6_32 {
        lines.push(line("int common_tgid", 4, true, Slot::Any));
    }
    let common = lines.len();
    lines.extend(event_lines(name, shape.era));
    let word = usize::from(shape.target.word_bytes);
    let mut offset = 0usize;
    let fields = lines
        .into_iter()
        .map(|line| {
            let bytes = if line.bytes == WORD { word } else { line.bytes };
            offset = offset.next_multiple_of(bytes);
            let size = if line.slot == Slot::Callers { CLAIMED_FRAMES * bytes } else { bytes };
            let placed = (line, offset, size);
            offset += size;
            placed
        })
        .collect();
    Layout { system, name, id, fields, common, shape: *shape }
}

impl Layout {
    /// The text of its `format` file.
    pub fn text(&self) -> String {
        let mut text = format!("name: {}\nID: {}\nformat:\n", self.name, self.id);
        for (i, (line, offset, size)) in self.fields.iter().enumerate() {
            if i == self.common {
                text.push('\n');
            }
            text.push_str(&format!("\tfield:{};\toffset:{offset};\tsize:{size};", line.declaration));
            if self.shape.era != Era::V2_6_32 {
                text.push_str(&format!("\tsigned:{};", u8::from(line.signed)));
            }
            text.push('\n');
        }
        text.push_str("\nprint fmt: \"field:%lx;\", REC->call_site\n");
        text
    }

    fn has(&self, slot: Slot) -> bool {
        self.fields.iter().any(|(line, ..)| line.slot == slot)
    }

    /// True if records name a cache.
    pub(crate) fn has_cache(&self) -> bool {
        self.has(Slot::CacheName)
    }

    /// True if records carry a NUMA node.
    pub(crate) fn has_node(&self) -> bool {
        self.has(Slot::Node)
    }

    /// True if records name the caller.
    pub(crate) fn has_call_site(&self) -> bool {
        self.has(Slot::CallSite)
    }

    /// True if records tell whether the object is on the account of a cgroup.
    pub(crate) fn has_accounted(&self) -> bool {
        self.has(Slot::Accounted)
    }

    /// True if records carry gfp flags.
    pub(crate) fn has_gfp(&self) -> bool {
        self.has(Slot::Gfp)
    }

    /// True if readers take the order of a block from records.
    pub(crate) fn has_order(&self) -> bool {
        self.has(Slot::Order) && self.shape.era != Era::V2_6_32
    }

    /// The record of `event`, whose cache has the name `cache`; a stack has these frames, or is nonsense without any. What no
    /// reader looks at is random.
    pub fn record(&self, event: &Event, cache: &[u8], frames: Option<&[u64]>, random: &mut Random) -> Vec<u8> {
        let endian = self.shape.target.endian;
        let word = usize::from(self.shape.target.word_bytes);
        let is_stack = self.has(Slot::Callers);
        let fixed = self.fields.iter().filter(|f| f.0.slot != Slot::Callers).map(|(_, at, size)| at + size).max();
        let mut record = Vec::with_capacity(fixed.unwrap_or(0) + cache.len() + word);
        record.extend((0..fixed.unwrap_or(0)).map(|_| random.bits() as u8));
        let order = match (event.order, event.requested) {
            (Some(order), _) => order.into(),
            (None, 0) => random.below(4),
            (None, bytes) => u64::from((bytes / u64::from(self.shape.page_bytes)).trailing_zeros()),
        };
        for (line, offset, size) in &self.fields {
            let value = match line.slot {
                Slot::CommonType => u64::from(self.id),
                Slot::CommonPreempt | Slot::Any | Slot::StackSize | Slot::Callers => continue,
                Slot::CommonFlags => event.flags.unwrap_or(0).into(),
                Slot::CommonPid => event.pid.unwrap_or(0) as u64,
                Slot::CallSite => event.call_site,
                Slot::Address => event.address,
                Slot::Requested => event.requested,
                Slot::Allocated => event.allocated,
                Slot::EachCpu => event.requested / self.shape.possible_cpus.max(1),
                Slot::Failed => event.failed.into(),
                Slot::Accounted => event.accounted.unwrap_or(false).into(),
                Slot::Gfp => event.gfp.unwrap_or(0),
                Slot::Node => event.node.unwrap_or(-1) as u64,
                Slot::CacheName => ((cache.len() as u64 + 1) << 16) | record.len() as u64,
                Slot::Order => order,
            };
            set(&mut record, endian, *offset, value, *size);
        }
        if self.has_cache() {
            record.extend_from_slice(cache);
            record.push(0);
        }
        // The kernel's records are as long as a C struct, plus what they carry behind it.
        let end = record.len().next_multiple_of(word);
        record.resize_with(end, || random.bits() as u8);
        if is_stack {
            let size = match frames {
                Some(frames) => put_frames(&mut record, &self.shape, frames),
                None => put_nonsense(&mut record, &self.shape, random),
            };
            let place = self.fields.iter().find(|(line, ..)| line.slot == Slot::StackSize);
            place.into_iter().for_each(|&(_, at, bytes)| set(&mut record, endian, at, size, bytes));
        }
        record
    }
}

/// A record of a type that the trace has no format of.
pub(crate) fn foreign_record(shape: &Shape, pid: i32, random: &mut Random) -> Vec<u8> {
    let mut record = Vec::new();
    put(&mut record, shape.target.endian, u64::from(FOREIGN_ID), 2);
    put(&mut record, shape.target.endian, 0, 2);
    put(&mut record, shape.target.endian, pid as u64, 4);
    let more = random.below(60);
    record.extend((0..more).map(|_| random.bits() as u8));
    record
}

/// The text of `events/header_page`.
pub fn header_page(shape: &Shape) -> String {
    let page = shape.page();
    let (commit, data, size) = (page.commit_size, page.data_offset, page.size - page.data_offset);
    let sign = |signed: u8| if shape.era == Era::V2_6_32 { String::new() } else { format!("\tsigned:{signed};") };
    format!(
        "\tfield: u64 timestamp;\toffset:0;\tsize:8;{}\n\tfield: local_t commit;\toffset:8;\tsize:{commit};{}\n\
         \tfield: int overwrite;\toffset:8;\tsize:1;{}\n\tfield: char data;\toffset:{data};\tsize:{size};{}\n",
        sign(0),
        sign(1),
        sign(1),
        sign(0)
    )
}

/// The text of `events/header_event`.
pub fn header_event() -> &'static str {
    "# compressed entry header\n\ttype_len    :    5 bits\n\ttime_delta  :   27 bits\n\tarray       :   32 bits\n\n\
     \tpadding     : type == 29\n\ttime_extend : type == 30\n\ttime_stamp : type == 31\n\tdata max type_len  == 28\n"
}
