//! Format texts and records of the events of older kernels on x86_64, written from `include/trace/events/kmem.h`, `vmscan.h` and
//! `kernel/trace/trace_entries.h` of each release.

use super::version::Version;

/// Declaration, offset, size and sign of a field, as `kernel/trace/trace_events.c` prints them.
type Field = (&'static str, usize, usize, u8);

/// Fields of every event, from Linux 3.9 on without padding behind them.
const COMMON: [Field; 4] = [
    ("unsigned short common_type", 0, 2, 0),
    ("unsigned char common_flags", 2, 1, 0),
    ("unsigned char common_preempt_count", 3, 1, 0),
    ("int common_pid", 4, 4, 1),
];
const CALL_SITE: Field = ("unsigned long call_site", 8, 8, 0);
const PTR: Field = ("const void * ptr", 16, 8, 0);
/// Fields of `DECLARE_EVENT_CLASS(kmem_alloc)`.
const ALLOC: [Field; 5] =
    [CALL_SITE, PTR, ("size_t bytes_req", 24, 8, 0), ("size_t bytes_alloc", 32, 8, 0), ("gfp_t gfp_flags", 40, 4, 0)];
const RECLAIMED: Field = ("unsigned long nr_reclaimed", 8, 8, 0);
const ALLOC_PRINT: &str = "\"call_site=%lx ptr=%p bytes_req=%zu bytes_alloc=%zu gfp_flags=%s\", REC->call_site, REC->ptr, REC->bytes_req, REC->bytes_alloc, GFP";

/// An event of one release.
#[derive(Debug)]
pub(super) struct Format {
    pub(super) system: &'static str,
    pub(super) name: &'static str,
    id: u16,
    fields: Vec<Field>,
    print: String,
}

/// All events that a release has for slab objects and pages, the two of a direct reclaim, and those of `ftrace` that recordings meet.
pub(super) fn formats(version: Version) -> Vec<Format> {
    let frame: Field = match version.has((4, 1)) {
        true => ("unsigned long pfn", 8, 8, 0),
        false => ("struct page * page", 8, 8, 0),
    };
    let cold: Option<Field> = (!version.has((4, 15))).then_some(("int cold", 16, 4, 1));
    let callers: Field = match version.has((5, 2)) {
        true => ("unsigned long caller[8]", 16, 64, 0),
        false => ("unsigned long caller", 16, 0, 0),
    };
    let reclaim = match version.has((5, 0)) {
        true => vec![("int order", 8, 4, 1), ("gfp_t gfp_flags", 12, 4, 0)],
        false => vec![("int order", 8, 4, 1), ("int may_writepage", 12, 4, 1), ("gfp_t gfp_flags", 16, 4, 0)],
    };
    let order: Field = ("unsigned int order", 16, 4, 0);
    let node = [&ALLOC[..], &[("int node", 44, 4, 1)]].concat();
    let free = vec![CALL_SITE, PTR];
    let free_print = "\"call_site=%lx ptr=%p\", REC->call_site, REC->ptr";
    let node_print = ALLOC_PRINT.replace("%s\"", "%s node=%d\"") + ", REC->node";
    let page_alloc = vec![frame, order, ("gfp_t gfp_flags", 20, 4, 0), ("int migratetype", 24, 4, 1)];
    let events: Vec<(&str, &str, Vec<Field>, &str)> = vec![
        ("kmem", "kmalloc", ALLOC.to_vec(), ALLOC_PRINT),
        ("kmem", "kmem_cache_alloc", ALLOC.to_vec(), ALLOC_PRINT),
        ("kmem", "kmalloc_node", node.clone(), &node_print),
        ("kmem", "kmem_cache_alloc_node", node, &node_print),
        ("kmem", "kfree", free.clone(), free_print),
        ("kmem", "kmem_cache_free", free, free_print),
        ("kmem", "mm_page_free", vec![frame, order], "\"order=%d\", REC->order"),
        ("kmem", "mm_page_free_batched", [frame].into_iter().chain(cold).collect(), "\"order=0\""),
        (
            "kmem",
            "mm_page_alloc",
            page_alloc,
            "\"order=%d migratetype=%d gfp_flags=%s\", REC->order, REC->migratetype, GFP",
        ),
        ("vmscan", "mm_vmscan_direct_reclaim_begin", reclaim, "\"order=%d gfp_flags=%s\", REC->order, GFP"),
        ("vmscan", "mm_vmscan_direct_reclaim_end", vec![RECLAIMED], "\"nr_reclaimed=%lu\", REC->nr_reclaimed"),
        ("ftrace", "kernel_stack", vec![("int size", 8, 4, 1), callers], "\"\\t=> (%016lx)\\n\", REC->caller[0]"),
        (
            "ftrace",
            "print",
            vec![("unsigned long ip", 8, 8, 0), ("char buf", 16, 0, 1)],
            "\"%pf: %s\", (void *)REC->ip, REC->buf",
        ),
    ];
    let gfp = format!(
        "(REC->gfp_flags) ? __print_flags(REC->gfp_flags, \"|\", {{(unsigned long)((( gfp_t){:#x}u)), \"GFP_KERNEL\"}}, {{(unsigned long)((( gfp_t)0x20u)), \"GFP_ATOMIC\"}}) : \"GFP_NOWAIT\"",
        version.gfp_kernel
    );
    // `enum trace_type` has 4 for stacks and 5 for prints; others get theirs at boot.
    let id = |at: usize, name: &str| match name {
        "kernel_stack" => 4,
        "print" => 5,
        _ => 290 + at as u16,
    };
    let format = |(at, (system, name, fields, print)): (usize, (&'static str, &'static str, Vec<Field>, &str))| {
        Format { system, name, id: id(at, name), fields, print: print.replace("GFP", &gfp) }
    };
    events.into_iter().enumerate().map(format).collect()
}

/// Name of a field, without its type and its length.
fn name_of(field: &Field) -> &str {
    let name = field.0.rsplit(' ').next().unwrap_or_default();
    name.split('[').next().unwrap_or_default()
}

impl Format {
    /// Text of the `format` file.
    pub(super) fn text(&self) -> String {
        let line = |(declaration, offset, size, signed): &Field| {
            format!("\tfield:{declaration};\toffset:{offset};\tsize:{size};\tsigned:{signed};\n")
        };
        let common: String = COMMON.iter().map(line).collect();
        let own: String = self.fields.iter().map(line).collect();
        format!("name: {}\nID: {}\nformat:\n{common}\n{own}\nprint fmt: {}\n", self.name, self.id, self.print)
    }

    /// Record of thread `pid` with these values by field name; other fields are 0. `frames` follow behind a stack's size.
    pub(super) fn record(&self, pid: i32, values: &[(&str, u64)], frames: &[u64]) -> Vec<u8> {
        let end = self.fields.iter().map(|(_, offset, size, _)| offset + size).max().unwrap_or(8);
        let end = if self.name == "kernel_stack" { 16 } else { end };
        let mut record = vec![0; end];
        record[..2].copy_from_slice(&self.id.to_le_bytes());
        record[4..8].copy_from_slice(&pid.to_le_bytes());
        for (name, value) in values {
            let field = self.fields.iter().find(|field| name_of(field) == *name);
            if let Some((_, offset, size, _)) = field {
                record[*offset..offset + size].copy_from_slice(&value.to_le_bytes()[..*size]);
            }
        }
        record.extend(frames.iter().flat_map(|frame| frame.to_le_bytes()));
        record.resize(record.len().next_multiple_of(8), 0);
        record
    }
}
