//! Workloads that keep texts of the machine's memory at both ends: counters, slabs, free blocks, functions; and with pages for
//! several uses.

use kmemtrace_abi::disk::block::item;

use super::symbols::Function;
use super::workload::CACHES;
use super::{Options, Random, Workload, workload};

/// Names in place of those of the usual functions: each stands for a use of pages, the last one is in the code of kernel stacks.
const FUNCTIONS: [&str; 10] = [
    "do_anonymous_page",
    "page_cache_ra_unbounded",
    "shmem_get_folio_gfp",
    "pte_alloc_one",
    "dup_task_struct",
    "skb_page_frag_refill",
    "ext4_alloc",
    "xfs_alloc",
    "load_module",
    "free_vm_stack_cache",
];
/// Counters of meminfo.
const COUNTERS: [&str; 25] = [
    "MemTotal",
    "MemFree",
    "Buffers",
    "Cached",
    "SwapCached",
    "AnonPages",
    "Shmem",
    "Slab",
    "SReclaimable",
    "SUnreclaim",
    "KernelStack",
    "PageTables",
    "SecPageTables",
    "VmallocUsed",
    "Percpu",
    "Hugetlb",
    "Hugepagesize",
    "GPUActive",
    "GPUReclaim",
    "Balloon",
    "Zswap",
    "Bounce",
    "Mapped",
    "Active(anon)",
    "MemAvailable",
];
/// Caches of slabinfo that no event names.
const OTHER_CACHES: [&str; 4] = ["filp", "kmalloc-rcl-64", "mnt_cache", "lsm_inode_cache"];

/// Size classes, and the bytes of their objects.
const CLASSES: [(&str, u64); 13] = [
    ("kmalloc-8", 8),
    ("kmalloc-16", 16),
    ("kmalloc-32", 32),
    ("kmalloc-64", 64),
    ("kmalloc-96", 96),
    ("kmalloc-128", 128),
    ("kmalloc-192", 192),
    ("kmalloc-256", 256),
    ("kmalloc-512", 512),
    ("kmalloc-1k", 1024),
    ("kmalloc-2k", 2048),
    ("kmalloc-4k", 4096),
    ("kmalloc-8k", 8192),
];

/// A random workload with such texts; each of them may be missing, and so may any of their lines.
pub fn workload_with_counters(seed: u64) -> Workload {
    let mut random = Random::new(seed ^ 0xc0de);
    let mut options = Options::random(&mut random, 100);
    options.pages |= random.chance(80);
    (options.stacks, options.symbols) = (random.chance(80), random.chance(85));
    let mut workload = workload(seed, &options);
    let first = random.below(FUNCTIONS.len() as u64) as usize;
    for (number, Function { name, .. }) in workload.symbols.functions.iter_mut().enumerate() {
        *name = FUNCTIONS[(first + number) % FUNCTIONS.len()].to_owned();
    }
    let functions: Vec<Function> = workload.symbols.functions.clone();
    let mut texts: Vec<(u16, String)> = Vec::new();
    for (start, end, text) in [
        (item::MEMINFO_START, item::MEMINFO_END, &meminfo as &dyn Fn(&mut Random) -> String),
        (item::ZONEINFO_START, item::ZONEINFO_END, &zoneinfo),
        (item::BUDDYINFO_START, item::BUDDYINFO_END, &buddyinfo),
        (item::ALLOCINFO_START, item::ALLOCINFO_END, &|random| allocinfo(&functions, random)),
    ] {
        let has_both = random.chance(90);
        texts.push((start, text(&mut random)));
        texts.extend(has_both.then(|| (end, text(&mut random))));
    }
    workload.items.extend(texts.into_iter().filter(|_| random.chance(95)));
    workload.slabinfo = [(); 2].map(|()| if random.chance(90) { slabinfo(&mut random) } else { String::new() });
    if random.chance(70) {
        workload.reclaim_account = format!("dentry 1\nfilp 0\ninode_cache {}\n", random.below(2));
    }
    workload
}

fn meminfo(random: &mut Random) -> String {
    let has_all = random.chance(60);
    let mut lines = String::new();
    for name in COUNTERS {
        if !has_all && random.chance(10) {
            continue;
        }
        let kib = if random.chance(15) { 0 } else { random.below(1 << 24) };
        lines.push_str(&format!("{name}:{kib:>12} kB\n"));
    }
    lines + &format!("HugePages_Total: {:>6}\nHugePages_Free: 1\n", random.below(20))
}

fn zoneinfo(random: &mut Random) -> String {
    let cpus = |random: &mut Random| -> String {
        (0..random.below(3))
            .map(|cpu| format!("    cpu: {cpu}\n              count: {}\n              high:  9\n", random.below(900)))
            .collect()
    };
    ["DMA", "Normal"]
        .map(|zone| format!("Node 0, zone {zone:>8}\n  pages free 9\n  pagesets\n{}", cpus(random)))
        .concat()
}

fn buddyinfo(random: &mut Random) -> String {
    let zone = |(node, zone): (u64, &str)| {
        let blocks: String = (0..11).map(|_| format!(" {:>6}", random.below(100))).collect();
        format!("Node {node}, zone {zone:>8}{blocks} \n")
    };
    [(0, "DMA"), (0, "Normal"), (1, "Normal")].map(zone).concat()
}

fn allocinfo(functions: &[Function], random: &mut Random) -> String {
    let mut lines = String::from("allocinfo - version: 1.0\n#     <size>  <calls> <tag info>\n");
    for Function { name, module, .. } in functions {
        for line in 0..random.below(4) {
            let module = module.as_ref().map_or(String::new(), |module| format!("[{module}] "));
            let suffix = random.pick(&["", "", "_noprof"]);
            let bytes = random.below(1 << 20) as i64 - 1000;
            lines.push_str(&format!("{bytes:>12} {:>8} mm/file.c:{line} {module}func:{name}{suffix} \n", line + 1));
        }
    }
    lines
}

fn slabinfo(random: &mut Random) -> String {
    let mut lines = String::from("slabinfo - version: 2.1\n# name            <active_objs> <num_objs> <objsize>\n");
    let mut put = |name: &str, bytes: u64, random: &mut Random| {
        let (slabs, per_slab, pages) = (random.below(500), 1 + random.below(40), 1 << random.below(4));
        let objects = slabs * per_slab;
        let active = objects - random.below(objects / 2 + 1);
        lines.push_str(&format!(
            "{name:<17} {active:>6} {objects:>6} {bytes:>6} {per_slab:>4} {pages:>4} : tunables    0    0    0 : slabdata {slabs:>6} {slabs:>6}      0\n"
        ));
    };
    // A kernel has every class.
    CLASSES.into_iter().for_each(|(name, bytes)| put(name, bytes, random));
    for name in CACHES.into_iter().chain(OTHER_CACHES).filter(|name| *name != "kmalloc-64") {
        let bytes = if name == "kmalloc-rcl-64" { 64 } else { 8 * (1 + random.below(90)) };
        if random.chance(85) {
            put(name, bytes, random);
        }
    }
    lines
}
