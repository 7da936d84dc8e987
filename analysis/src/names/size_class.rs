//! Size classes of `kmalloc` objects: the name of the cache that an object of so many bytes is from.

use kmemtrace_abi::kernel::gfp::GfpNames;

use super::slabinfo::{SlabCache, Slabinfo};

/// Bytes of the classes of most kernels, for a trace without slabinfo: those that are the same everywhere.
const USUAL: [u64; 12] = [8, 16, 32, 64, 96, 128, 192, 256, 512, 1024, 2048, 4096];
/// Bytes of a page, where the trace does not tell them.
const USUAL_PAGE: u64 = 4096;
/// Largest page that a kernel is built with: 256 KiB (PowerPC 44x).
const LARGEST_PAGE: u64 = 256 << 10;

/// Bytes of the classes of a kernel whose pages have so many bytes: the largest has two pages (`KMALLOC_MAX_CACHE_SIZE` of SLUB,
/// `include/linux/slab.h`, Linux 3.8 to 7.3). Larger objects are whole pages.
fn usual_classes(page_bytes: Option<u64>) -> Vec<u64> {
    let page = page_bytes.filter(|bytes| bytes.is_power_of_two() && *bytes <= LARGEST_PAGE).unwrap_or(USUAL_PAGE);
    let larger = (13..).map(|shift| 1 << shift).take_while(|bytes| *bytes <= page.saturating_mul(2));
    USUAL.into_iter().chain(larger).collect()
}

/// Kinds of memory that kernels have `kmalloc` caches of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Memory {
    Normal,
    /// In the range that old devices reach.
    Dma,
    /// Memory that the kernel can take back when it is short of it.
    Reclaimable,
    /// Charged to a control group.
    Accounted,
}

impl Memory {
    /// Name of the cache of a class such as `1k`, in the form of current kernels.
    fn cache(self, class: &str) -> String {
        match self {
            Memory::Normal => format!("kmalloc-{class}"),
            Memory::Dma => format!("dma-kmalloc-{class}"),
            Memory::Reclaimable => format!("kmalloc-rcl-{class}"),
            Memory::Accounted => format!("kmalloc-cg-{class}"),
        }
    }
}

/// Cache of one class.
#[derive(Clone, Debug)]
struct ClassCache {
    /// Bytes that an allocation event gives for an object.
    object_bytes: u64,
    memory: Memory,
    /// Bytes in the name: fewer where the kernel adds its own to each object, for debugging.
    named_bytes: u64,
    /// Name in the short form, `kmalloc-rcl-1k`.
    name: String,
    /// Name without the kind of memory, `kmalloc-1k`.
    class: String,
}

/// Classes of a trace's kernel.
#[derive(Clone, Debug)]
pub struct SizeClasses {
    /// By object bytes and memory, each once.
    caches: Vec<ClassCache>,
    /// Flags that ask for a kind of memory, in the order in which the kernel looks at them.
    flags: [(u64, Memory); 3],
}

impl SizeClasses {
    /// The classes in a trace's slabinfo, or the usual ones for pages of `page_bytes` where it has none; `gfp_names` tell the kinds of
    /// memory apart.
    pub fn of(slabinfo: &Slabinfo, gfp_names: Option<&GfpNames>, page_bytes: Option<u64>) -> SizeClasses {
        let mut caches: Vec<ClassCache> = slabinfo.caches().iter().filter_map(ClassCache::parse).collect();
        if !caches.iter().any(|cache| cache.memory == Memory::Normal) {
            let usual = usual_classes(page_bytes).into_iter();
            caches = usual.map(|bytes| ClassCache::new(Memory::Normal, bytes, bytes)).collect();
        }
        // The smaller of two classes whose objects have one size names both.
        caches.sort_by_key(|cache| (cache.object_bytes, cache.memory, cache.named_bytes));
        caches.dedup_by_key(|cache| (cache.object_bytes, cache.memory));
        // A kernel without caches of a kind of memory does not look at its flag.
        let flag = |name: &str, memory| {
            let names = gfp_names.filter(|_| caches.iter().any(|cache| cache.memory == memory))?;
            // Old kernels print some flags without the underscores.
            names.flags(name).or_else(|| names.flags(name.trim_start_matches('_')))
        };
        // As in the kernel's `kmalloc_type`: the first of these flags decides.
        let flags = [
            ("__GFP_DMA", Memory::Dma),
            ("__GFP_RECLAIMABLE", Memory::Reclaimable),
            ("__GFP_ACCOUNT", Memory::Accounted),
        ];
        let flags = flags.map(|(name, memory)| (flag(name, memory).unwrap_or(0), memory));
        SizeClasses { caches, flags }
    }

    /// The cache of an object of so many allocated bytes, by its flags: `kmalloc-1k`, `kmalloc-rcl-1k`, `kmalloc-cg-1k` or
    /// `dma-kmalloc-1k`. Always in the short form, and of a kind of memory only where slabinfo lists that cache. `None` for a
    /// size that is no class: large objects are whole pages.
    pub fn name(&self, allocated: u64, gfp: Option<u64>) -> Option<&str> {
        self.find(allocated, self.memory(gfp)).map(|cache| cache.name.as_str())
    }

    /// The class of an object of so many allocated bytes, of whatever kind of memory: `kmalloc-1k`. `None` as for
    /// [`SizeClasses::name`].
    pub fn class(&self, allocated: u64, gfp: Option<u64>) -> Option<&str> {
        self.find(allocated, self.memory(gfp)).map(|cache| cache.class.as_str())
    }

    fn memory(&self, gfp: Option<u64>) -> Memory {
        let gfp = gfp.unwrap_or(0);
        self.flags.iter().find(|&&(flag, _)| gfp & flag != 0).map_or(Memory::Normal, |&(_, memory)| memory)
    }

    fn find(&self, allocated: u64, memory: Memory) -> Option<&ClassCache> {
        let of = |memory| {
            let place =
                self.caches.binary_search_by_key(&(allocated, memory), |cache| (cache.object_bytes, cache.memory));
            self.caches.get(place.ok()?)
        };
        of(memory).or_else(|| of(Memory::Normal))
    }
}

impl ClassCache {
    fn new(memory: Memory, named_bytes: u64, object_bytes: u64) -> ClassCache {
        let class = if named_bytes >= 1 << 20 && named_bytes.is_multiple_of(1 << 20) {
            format!("{}M", named_bytes >> 20)
        } else if named_bytes >= 1 << 10 && named_bytes.is_multiple_of(1 << 10) {
            format!("{}k", named_bytes >> 10)
        } else {
            named_bytes.to_string()
        };
        let name = memory.cache(&class);
        ClassCache { object_bytes, memory, named_bytes, name, class: Memory::Normal.cache(&class) }
    }

    /// Parses the name of a `kmalloc` cache: `kmalloc-1k`, `kmalloc-cg-1k`, `kmalloc-1024`, of SLAB in old kernels `size-1024` and
    /// `size-1024(DMA)`.
    fn parse(cache: &SlabCache) -> Option<ClassCache> {
        let name = std::str::from_utf8(&cache.name).ok()?;
        let (memory, size) = if let Some(size) = name.strip_prefix("size-") {
            size.strip_suffix("(DMA)").map_or((Memory::Normal, size), |size| (Memory::Dma, size))
        } else if let Some(size) = name.strip_prefix("dma-kmalloc-") {
            (Memory::Dma, size)
        } else {
            let rest = name.strip_prefix("kmalloc-")?;
            let kinds = [("rcl-", Memory::Reclaimable), ("cg-", Memory::Accounted), ("dma-", Memory::Dma)];
            let found = kinds.iter().find_map(|&(kind, memory)| Some((memory, rest.strip_prefix(kind)?)));
            found.unwrap_or((Memory::Normal, rest))
        };
        let units = [("k", 10), ("M", 20)];
        let in_units = |(unit, shift)| Some((size.strip_suffix(unit)?, shift));
        let (digits, shift) = units.into_iter().find_map(in_units).unwrap_or((size, 0));
        // No class has more bytes than fit 32 bits.
        let named_bytes = u64::from(digits.parse::<u32>().ok()?) << shift;
        let is_class = digits.starts_with(|c: char| c.is_ascii_digit()) && named_bytes > 0 && cache.object_bytes > 0;
        is_class.then(|| ClassCache::new(memory, named_bytes, cache.object_bytes))
    }
}

/// Name of a size class without its kind of memory, in the short form: `kmalloc-1k` of `kmalloc-rcl-1k`. `None` for other names.
pub(crate) fn plain_name(name: &[u8]) -> Option<Vec<u8>> {
    let class = name.strip_prefix(b"dma-kmalloc-").or_else(|| name.strip_prefix(b"kmalloc-"))?;
    let kinds: [&[u8]; 2] = [b"rcl-", b"cg-"];
    let class = kinds.into_iter().find_map(|kind| class.strip_prefix(kind)).unwrap_or(class);
    Some([b"kmalloc-", class].concat())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use kmemtrace_abi::event::{Action, Kind, StreamItem};
    use kmemtrace_abi::trace::Trace;

    use super::*;

    const DMA: u64 = 0x1;
    const RECLAIMABLE: u64 = 0x10;
    const ACCOUNT: u64 = 0x40_0000;

    /// Names of these flags and values.
    fn names(entries: &[(&str, u64)]) -> GfpNames {
        let entry = |&(name, flag): &(&str, u64)| format!("{{{flag}UL, \"{name}\"}}");
        let entries: Vec<String> = entries.iter().map(entry).collect();
        let print = format!("__print_flags(REC->gfp_flags, \"|\", {})", entries.join(", "));
        let field = "\tfield:unsigned long gfp_flags;\toffset:40;\tsize:8;\tsigned:0;";
        GfpNames::of_format(&format!("name: kmalloc\nID: 5\n{field}\nprint fmt: \"%s\", {print}\n")).unwrap()
    }

    fn current() -> GfpNames {
        names(&[("GFP_DMA", DMA), ("__GFP_RECLAIMABLE", RECLAIMABLE), ("__GFP_ACCOUNT", ACCOUNT), ("__GFP_DMA", DMA)])
    }

    /// Slabinfo with caches of these names and object sizes.
    fn slabinfo(caches: &[(&str, u64)]) -> Slabinfo {
        let line = |(name, bytes): &(&str, u64)| format!("{name} 1 1 {bytes} 1 1 : tunables 0 0 0\n");
        let lines: String = caches.iter().map(line).collect();
        Slabinfo::parse(format!("slabinfo - version: 2.1\n{lines}").as_bytes())
    }

    #[test]
    fn without_slabinfo_there_are_the_usual_classes() {
        let classes = SizeClasses::of(&Slabinfo::default(), Some(&current()), None);
        for (bytes, name) in [
            (0, None),
            (8, Some("kmalloc-8")),
            (96, Some("kmalloc-96")),
            (97, None),
            (512, Some("kmalloc-512")),
            (1024, Some("kmalloc-1k")),
            (8192, Some("kmalloc-8k")),
            (16384, None),
            (u64::MAX, None),
        ] {
            assert_eq!(classes.name(bytes, Some(ACCOUNT)), name, "{bytes}");
        }
        assert!(USUAL.iter().all(|&bytes| classes.name(bytes, None).is_some()));
    }

    #[test]
    fn larger_pages_have_larger_classes() {
        let largest = |page_bytes| {
            let classes = SizeClasses::of(&Slabinfo::default(), None, page_bytes);
            let mut known = (3..40).rev().filter_map(|shift| classes.name(1 << shift, None));
            known.next().unwrap().to_owned()
        };
        assert_eq!(
            [Some(4096), None, Some(0), Some(12345), Some(1 << 40)].map(largest),
            ["kmalloc-8k"; 5].map(str::to_owned)
        );
        assert_eq!((largest(Some(16384)), largest(Some(65536))), ("kmalloc-32k".to_owned(), "kmalloc-128k".to_owned()));
    }

    #[test]
    fn memory_is_told_where_flags_ask_for_it_and_slabinfo_lists_it() {
        let listed = slabinfo(&[
            ("kmalloc-1k", 1024),
            ("kmalloc-rcl-1k", 1024),
            ("kmalloc-cg-1k", 1024),
            ("dma-kmalloc-1k", 1024),
            ("kmalloc-rcl-96", 96),
            ("kmalloc-96", 96),
            ("kmalloc-rnd-05-96", 96),
        ]);
        let classes = SizeClasses::of(&listed, Some(&current()), None);
        for (bytes, gfp, name) in [
            (1024, None, "kmalloc-1k"),
            (1024, Some(0xcc0), "kmalloc-1k"),
            (1024, Some(0xcc0 | ACCOUNT), "kmalloc-cg-1k"),
            (1024, Some(RECLAIMABLE), "kmalloc-rcl-1k"),
            (1024, Some(DMA), "dma-kmalloc-1k"),
            // The kernel looks at them in this order.
            (1024, Some(DMA | RECLAIMABLE | ACCOUNT), "dma-kmalloc-1k"),
            (1024, Some(RECLAIMABLE | ACCOUNT), "kmalloc-rcl-1k"),
            (96, Some(RECLAIMABLE), "kmalloc-rcl-96"),
            (96, Some(ACCOUNT), "kmalloc-96"),
        ] {
            assert_eq!(classes.name(bytes, gfp), Some(name), "{bytes} {gfp:x?}");
        }
        assert_eq!(classes.class(1024, Some(RECLAIMABLE)), Some("kmalloc-1k"));
        // A kernel without accounting, and a trace that does not name its flags.
        let less = SizeClasses::of(&slabinfo(&[("kmalloc-64", 64), ("kmalloc-rcl-64", 64)]), Some(&current()), None);
        assert_eq!(less.name(64, Some(DMA | RECLAIMABLE)), Some("kmalloc-rcl-64"));
        assert_eq!(less.name(64, Some(ACCOUNT)), Some("kmalloc-64"));
        assert_eq!(SizeClasses::of(&listed, None, None).name(1024, Some(u64::MAX)), Some("kmalloc-1k"));
        // Old kernels print flags without underscores.
        let old = names(&[("GFP_RECLAIMABLE", 0x8_0000)]);
        assert_eq!(SizeClasses::of(&listed, Some(&old), None).name(96, Some(0x8_0000)), Some("kmalloc-rcl-96"));
    }

    #[test]
    fn classes_are_those_of_the_kernel() {
        // No class of 96 bytes, classes beyond 8 KiB, and old names.
        let classes = SizeClasses::of(
            &slabinfo(&[
                ("kmalloc-128", 128),
                ("kmalloc-1024", 1024),
                ("kmalloc-16k", 16384),
                ("size-4194304", 4 << 20),
                ("size-64(DMA)", 64),
            ]),
            Some(&current()),
            None,
        );
        for (bytes, name) in [
            (96, None),
            (128, Some("kmalloc-128")),
            (1024, Some("kmalloc-1k")),
            (16384, Some("kmalloc-16k")),
            (4 << 20, Some("kmalloc-4M")),
            (64, None),
        ] {
            assert_eq!(classes.name(bytes, None), name, "{bytes}");
        }
        assert_eq!(classes.name(64, Some(DMA)), Some("dma-kmalloc-64"));
    }

    #[test]
    fn a_kernel_that_adds_bytes_to_objects_names_them_by_the_class() {
        let classes =
            SizeClasses::of(&slabinfo(&[("kmalloc-64", 128), ("kmalloc-128", 192), ("kmalloc-8", 32)]), None, None);
        assert_eq!(
            [64, 128, 192, 32].map(|bytes| classes.name(bytes, None)),
            [None, Some("kmalloc-64"), Some("kmalloc-128"), Some("kmalloc-8"),]
        );
    }

    #[test]
    fn hostile_names_are_no_classes() {
        let hostile = [
            "kmalloc-",
            "kmalloc-k",
            "kmalloc-0",
            "kmalloc--8",
            "kmalloc-+8",
            "kmalloc-99999999999M",
            "kmalloc-8x",
            "kmalloc-\u{e9}",
            "size-",
            "size-(DMA)",
            "dma-kmalloc-",
            "kmalloc-cg-rcl-8",
        ];
        for name in hostile {
            let classes = SizeClasses::of(&slabinfo(&[(name, 77)]), None, None);
            assert_eq!(classes.name(77, None), None, "{name}");
            assert_eq!(classes.name(64, None), Some("kmalloc-64"));
        }
        assert_eq!(SizeClasses::of(&slabinfo(&[("kmalloc-8", 0)]), None, None).name(0, None), None);
    }

    /// Recordings of real machines, and the largest size that their SLUB has a class of: two pages.
    #[test]
    fn objects_of_real_kernels_have_their_classes() {
        let machines = [("amd64-6.18", 8192), ("amd64-6.1", 8192), ("i386-6.1", 8192), ("s390x-6.1", 8192)];
        for (name, greatest) in machines.into_iter().chain([("ppc64el-6.1", 131_072), ("arm64-16k-6.12", 32768)]) {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data").join(name);
            let mut trace = Trace::open(&[path]).unwrap();
            let slabinfo = Slabinfo::parse(&trace.metadata.slabinfo_start);
            let classes = SizeClasses::of(&slabinfo, trace.metadata.gfp_names.as_deref(), None);
            let (mut caches, mut items) = (BTreeSet::new(), Vec::new());
            for stream in &mut trace.streams {
                while stream.fill(&mut trace.names, &mut items) {
                    for item in &items {
                        let StreamItem::Event(event) = item else { continue };
                        if event.action != Action::Alloc(Kind::Kmalloc) || event.failed {
                            continue;
                        }
                        let class = classes.name(event.allocated, event.gfp);
                        assert_eq!(class.is_some(), event.allocated <= greatest, "{name}: {event:?}");
                        let cache = class.map(|class| slabinfo.find(class.as_bytes()).map(|cache| cache.object_bytes));
                        assert!(cache.is_none_or(|bytes| bytes == Some(event.allocated)), "{name}: {class:?}");
                        caches.extend(class.map(str::to_owned));
                    }
                }
            }
            // Accounted objects have had caches of their own since 5.14.
            assert!(
                caches.len() > 4 && caches.iter().any(|cache| cache.starts_with("kmalloc-cg-")),
                "{name}: {caches:?}"
            );
        }
    }
}
