//! Texts: of one moment, as page_owner has them, and of events, as ftrace prints them.

use std::path::PathBuf;

use kmemtrace_abi::open::{OpenOptions, Wanted};

use crate::fuzz::target::{Target, choice, with_choice};
use crate::fuzz::{mutate, read};
use crate::programs::data;
use crate::texts::{KERNELS, made};

/// Target of the forms of page_owner.
pub const PAGE_OWNER: Target = Target {
    name: "page-owner",
    run: run_page_owner,
    seeds: page_owners,
    mutate: mutate::chosen_text,
    executions: 200,
};
/// Target of the other texts of one moment.
pub const MOMENT: Target =
    Target { name: "moment", run: run_moment, seeds: moments, mutate: mutate::chosen_text, executions: 200 };
/// Target of texts of events.
pub const FTRACE_TEXT: Target =
    Target { name: "ftrace-text", run: run_ftrace, seeds: ftraces, mutate: mutate::chosen_text, executions: 200 };

/// Longest seed, in bytes: the whole lines of a sample up to there.
const MAX_SEED: usize = 12 << 10;

/// Forms that an input may be read in; the content tells the form where there is none.
const FORMS: [Option<&str>; 16] = [
    None,
    None,
    Some("alloc_traces"),
    Some("free_traces"),
    Some("vmallocinfo"),
    Some("memleak"),
    Some("slabinfo"),
    Some("slabtop"),
    Some("crash"),
    Some("allocinfo"),
    Some("kmemleak"),
    Some("slab_report"),
    Some("meminfo"),
    Some("zoneinfo"),
    Some("oom"),
    None,
];

/// Samples that are texts of one moment beside page_owner, with the number of their form.
const MOMENTS: [(&str, u8); 17] = [
    ("texts/alloc_calls.txt", 0),
    ("texts/alloc_traces.txt", 2),
    ("texts/slabinfo_router.log", 0),
    ("texts/slabinfo_router.later", 6),
    ("texts-amd64-6.1/dmesg.zst", 0),
    ("texts-amd64-6.1/dmesg.zst", 14),
    ("texts-amd64-6.1/meminfo.zst", 12),
    ("texts-amd64-6.1/slabinfo.zst", 0),
    ("texts-amd64-6.1/vmallocinfo.zst", 4),
    ("texts-amd64-6.1/zoneinfo.zst", 13),
    ("texts-amd64-6.1/slab/kmalloc-128/alloc_traces.zst", 0),
    ("texts-amd64-6.1/slab/kmalloc-128/free_traces.zst", 3),
    ("texts-amd64-6.12/dmesg.zst", 0),
    ("texts-amd64-6.12/dmesg.zst", 11),
    ("texts-amd64-6.12/slabinfo.zst", 0),
    ("texts-amd64-6.12/vmallocinfo.zst", 0),
    ("texts-amd64-6.12/slab/kmalloc-64/alloc_traces.zst", 0),
];

/// Texts of programs that no sample has: the first lines of each.
const OTHERS: [(u8, &str); 6] = [
    (
        9,
        "allocinfo - version: 1.0\n#     <size>  <calls> <tag info>\n        4096        1 mm/slub.c:2442 func:alloc_slab_page\n\
         \x20      128        2 drivers/net/ethernet/a.c:12 [a] func:b accurate:no\n",
    ),
    (
        10,
        "unreferenced object 0xffff8881046b3400 (size 512):\n  comm \"kworker/0:1\", pid 12, jiffies 4294893000 (age 12.340s)\n  hex \
         dump (first 32 bytes):\n    00 00 00 00 ad 4e ad de ff ff ff ff 00 00 00 00  .....N..........\n  backtrace (crc 12ab34cd):\n    \
         [<00000000a1b2c3d4>] kmalloc_trace+0x24/0x90\n    foo_init+0x12/0x30 [foo]\n",
    ),
    (
        5,
        "[12:30:01] Top 10 stacks with outstanding allocations:\n\t4096 bytes in 2 allocations from stack\n\t\t0xffffffff81234567 \
         kmalloc+0x10 [kernel]\n\t\tb'foo+0x1 [kernel]'\n",
    ),
    (
        7,
        " Active / Total Objects (% used)    : 1234 / 2345 (52.6%)\n Active / Total Slabs (% used)      : 10 / 10 (100.0%)\n\n  OBJS \
         ACTIVE  USE OBJ SIZE  SLABS OBJ/SLAB CACHE SIZE NAME\n   4096   4000  97%    0.06K     64       64       256K kmalloc-64\n",
    ),
    (
        8,
        "CACHE             OBJSIZE  ALLOCATED     TOTAL  SLABS  SSIZE  NAME\nffff888100042400      256       1210      1280     80     \
         4k  kmalloc-256\n",
    ),
    (
        11,
        "=============================================================================\nBUG foo_cache (Tainted: G): Objects remaining in \
         foo_cache on __kmem_cache_shutdown()\n-----------------------------------------------------------------------------\n\nSlab \
         0x00000000a1 objects=21 used=1 fp=0x0000000012 flags=0x200\nObject 0x00000000ab @offset=0\nAllocated in foo+0x10/0x20 age=12 \
         cpu=1 pid=99\n\tkmem_cache_alloc+0x1/0x2\n\tfoo+0x10/0x20 [foo]\n",
    ),
];

/// The whole lines at the start of a sample, unpacked.
fn sample(name: &str) -> Vec<u8> {
    let mut bytes = std::fs::read(data(name)).unwrap();
    if name.ends_with(".zst") {
        bytes = zstd::decode_all(&bytes[..]).unwrap();
    }
    let end = bytes.iter().take(MAX_SEED).rposition(|byte| *byte == b'\n').map_or(bytes.len(), |end| end + 1);
    bytes.truncate(end);
    bytes
}

fn page_owners() -> Vec<Vec<u8>> {
    let names = [
        "texts/culled_page_owner.txt",
        "texts/page_owner_6.1_module.txt",
        "texts/page_owner_6.1_post_alloc_hook.txt",
        "texts/page_owner_android_6.12.txt",
        "texts/page_owner_minimal.txt",
        "texts/show_stacks.txt",
        "texts/show_stacks_first.txt",
        "texts/sorted_page_owner.txt",
        "page_owner-amd64-6.1.txt.zst",
        "page_owner_sort/0x-pid.txt.zst",
        "page_owner_sort/6.1-stacktrace.txt.zst",
        "page_owner_sort/plain-stacktrace.txt.zst",
    ];
    (0..).zip(names).map(|(number, name)| with_choice(number, &sample(name))).collect()
}

fn run_page_owner(input: &[u8]) {
    let (number, bytes) = choice(input);
    let options = OpenOptions {
        released: number & 1 != 0,
        alike: number & 2 != 0,
        without_threads: number & 4 != 0,
        at_free_before: number & 8 != 0,
        without_stacks: number & 32 != 0,
        page_bytes: (number & 16 != 0).then_some(65_536),
        ..OpenOptions::default()
    };
    read::file("page_owner", bytes, &options);
}

fn moments() -> Vec<Vec<u8>> {
    let samples = MOMENTS.iter().map(|(name, form)| with_choice(*form, &sample(name)));
    samples.chain(OTHERS.iter().map(|(form, text)| with_choice(*form, text.as_bytes()))).collect()
}

fn run_moment(input: &[u8]) {
    let (number, bytes) = choice(input);
    let options = OpenOptions {
        form: FORMS[number % FORMS.len()].map(str::to_owned),
        object_size: (number & 16 != 0).then_some(192),
        report_number: (number & 32 != 0).then_some(2),
        alike: number & 64 != 0,
        ..OpenOptions::default()
    };
    read::file("kmalloc-64", bytes, &options);
    if number & 128 != 0 {
        in_series(bytes, &options);
    }
}

/// Reads two texts together.
fn in_series(bytes: &[u8], options: &OpenOptions) {
    let dir = crate::recording::Directory::new(&[]);
    let (first, second) = bytes.split_at(bytes.len() / 2);
    let paths = [("1-text", first), ("2-text", second)].map(|(name, part)| -> PathBuf {
        dir.write(name, part);
        dir.file(name)
    });
    read::whole(&paths, options, read::sum(bytes) / 8);
}

fn ftraces() -> Vec<Vec<u8>> {
    let texts = KERNELS.iter().zip(0u8..);
    texts.map(|(kernel, number)| with_choice(number, made(*kernel, number.into(), 40).text.as_bytes())).collect()
}

fn run_ftrace(input: &[u8]) {
    let (number, bytes) = choice(input);
    let kernel = KERNELS.get(number % 16);
    let options = OpenOptions {
        release: kernel.map(|kernel| kernel.release.to_owned()),
        clock: (number & 16 != 0).then(|| "local".to_owned()),
        wanted: [Wanted::Objects, Wanted::Waits, Wanted::Calls, Wanted::Objects][number >> 6],
        ..OpenOptions::default()
    };
    read::file("trace.txt", bytes, &options);
}
