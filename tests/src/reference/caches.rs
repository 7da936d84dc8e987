//! Caches of objects: named by the allocation, learned from frees, or the size class of a kmalloc object.

use std::collections::{BTreeMap, BTreeSet};

use kmemtrace_abi::event::{Event, Kind};

/// Allocated bytes of each size class, and the size in the class's name.
const CLASSES: [(u64, &str); 13] = [
    (8, "8"),
    (16, "16"),
    (32, "32"),
    (64, "64"),
    (96, "96"),
    (128, "128"),
    (192, "192"),
    (256, "256"),
    (512, "512"),
    (1024, "1k"),
    (2048, "2k"),
    (4096, "4k"),
    (8192, "8k"),
];

/// Caches of kmalloc objects: those of a trace's slabinfo, else the usual size classes.
#[derive(Clone, Debug, Default)]
pub struct Classes {
    /// Bytes of an object by the name of its cache, in the short form; empty without slabinfo.
    listed: BTreeMap<String, u64>,
    /// Flags of allocations that ask for a kind of cache, and the first part of its name, the deciding one first.
    kinds: Vec<(u64, &'static str)>,
    /// Caches of no size class by the bytes of their objects.
    others: BTreeMap<u64, BTreeSet<String>>,
    /// Bytes of a page, if they are known.
    page_bytes: Option<u64>,
}

impl Classes {
    /// Caches of slabinfo at the start and at the end; `flag` has the bits of a gfp flag, by its name.
    pub fn of_slabinfo(slabinfo: [&str; 2], flag: impl Fn(&str) -> Option<u64>) -> Classes {
        let is_kmalloc = |name: &str| name.starts_with("kmalloc-") || name.starts_with("dma-kmalloc-");
        let cache = |line: &str| {
            let mut words = line.split_whitespace();
            let name = words.next()?.to_owned();
            Some((name, words.nth(2)?.parse::<u64>().ok()?))
        };
        let of_kmalloc = slabinfo[0].lines().filter_map(cache).filter(|(name, _)| is_kmalloc(name));
        let listed: BTreeMap<String, u64> = of_kmalloc.collect();
        let mut others = BTreeMap::<u64, BTreeSet<String>>::new();
        for (name, bytes) in slabinfo.iter().flat_map(|text| text.lines()).filter_map(cache) {
            if !is_kmalloc(&name) && !name.starts_with('#') {
                others.entry(bytes).or_default().insert(name);
            }
        }
        let kinds =
            [("__GFP_DMA", "dma-kmalloc-"), ("__GFP_RECLAIMABLE", "kmalloc-rcl-"), ("__GFP_ACCOUNT", "kmalloc-cg-")];
        let has = |start: &str| listed.keys().any(|name| name.starts_with(start));
        let kinds = kinds.into_iter().filter(|(_, start)| has(start));
        let kinds = kinds.filter_map(|(name, start)| Some((flag(name)?, start))).collect();
        Classes { listed, kinds, others, page_bytes: None }
    }

    /// The same of a kernel with pages of this many bytes.
    pub fn with_pages(self, page_bytes: Option<u64>) -> Classes {
        Classes { page_bytes, ..self }
    }

    /// Cache of a kmalloc object; `None` for a size that is no class.
    fn name(&self, alloc: &Event) -> Option<String> {
        if self.listed.is_empty() {
            return size_class(alloc.allocated, self.page_bytes);
        }
        let gfp = alloc.gfp.unwrap_or(0);
        let kind = self.kinds.iter().find(|(flag, _)| gfp & flag != 0).map_or("kmalloc-", |&(_, start)| start);
        let of_kind = |start: &str| {
            let is_class = |name: &&String| {
                name.strip_prefix(start).is_some_and(|size| size.starts_with(|first: char| first.is_ascii_digit()))
            };
            let own = self.listed.iter().filter(|(_, bytes)| **bytes == alloc.allocated).map(|(name, _)| name);
            own.filter(is_class).min_by_key(|name| (name.len(), (*name).clone())).cloned()
        };
        of_kind(kind).or_else(|| of_kind("kmalloc-"))
    }
}

/// Caches that the frees of a window name.
#[derive(Clone, Debug, Default)]
pub struct Learned {
    /// Names by (call-site, allocated bytes) of the allocation.
    names: BTreeMap<(u64, u64), BTreeSet<String>>,
}

/// Cache of an object, and the member `cache_from`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cache {
    /// Name.
    pub name: Option<String>,
    /// Source of the name: `"event"`, `"free"`, `"slabinfo"` or `"size"`.
    pub from: Option<&'static str>,
    /// Caches that the object may be of, without a name.
    pub candidates: Option<Vec<String>>,
}

/// Rank of a source of names, the best first.
pub fn rank(from: &str) -> Option<usize> {
    ["event", "free", "slabinfo", "size"].iter().position(|other| *other == from)
}

impl Learned {
    /// Takes down that an object of this allocation was freed to the cache `name`.
    pub fn add(&mut self, alloc: &Event, name: &str) {
        self.names.entry((alloc.call_site, alloc.allocated)).or_default().insert(name.to_owned());
    }

    /// Cache of an allocation; `named` is the name in its event. `learns` is true if no plain allocation of the trace has one; those in
    /// bulk have.
    pub fn cache(&self, classes: &Classes, alloc: &Event, kind: Kind, named: Option<&str>, learns: bool) -> Cache {
        let (name, from) = match kind {
            Kind::Kmalloc => (classes.name(alloc), "size"),
            Kind::Cache if named.is_none() && learns => (self.only(alloc), "free"),
            Kind::Cache => (named.map(str::to_owned), "event"),
            Kind::Pages | Kind::Percpu | Kind::Vmalloc | Kind::Tag => (None, ""),
        };
        if name.is_none() && kind == Kind::Cache {
            let of_size: Vec<String> = classes.others.get(&alloc.allocated).into_iter().flatten().cloned().collect();
            return match &of_size[..] {
                [] => Cache::default(),
                [only] => Cache { name: Some(only.clone()), from: Some("slabinfo"), candidates: None },
                _ => Cache { candidates: Some(of_size), ..Cache::default() },
            };
        }
        Cache { from: name.is_some().then_some(from), name, candidates: None }
    }

    /// Only cache that frees name for the allocation's call-site and size.
    fn only(&self, alloc: &Event) -> Option<String> {
        let names = self.names.get(&(alloc.call_site, alloc.allocated))?;
        names.first().filter(|_| names.len() == 1).cloned()
    }
}

/// Class of a kernel without slabinfo: those of all kernels, and up to two pages.
fn size_class(allocated: u64, page_bytes: Option<u64>) -> Option<String> {
    let usual = CLASSES.iter().find(|(bytes, _)| *bytes == allocated).map(|(_, size)| format!("kmalloc-{size}"));
    let is_large = allocated > 8192 && allocated.is_power_of_two() && allocated <= 2 * page_bytes.unwrap_or(4096);
    usual.or(is_large.then(|| format!("kmalloc-{}k", allocated >> 10)))
}

/// True if `--cache ASKED` takes objects of the cache `name`: `kmalloc-1k` takes all its variants.
pub fn takes(asked: &str, name: &str) -> bool {
    let size = asked.strip_prefix("kmalloc-").filter(|size| CLASSES.iter().any(|(_, known)| known == size));
    let is_variant =
        |size| ["kmalloc-rcl-", "kmalloc-cg-", "dma-kmalloc-"].iter().any(|v| name == format!("{v}{size}"));
    name == asked || size.is_some_and(is_variant)
}

#[cfg(test)]
mod tests {
    use kmemtrace_abi::event::Names;

    use super::*;

    #[test]
    fn flags_and_slabinfo_tell_the_kind_of_a_cache() {
        let slabinfo = "slabinfo - version: 2.1\n# name <active_objs> <num_objs> <objsize>\n\
            kmalloc-cg-1k 1 2 1024 16\nkmalloc-1k 1 2 1024 16\nkmalloc-rnd-01-1k 1 2 1024 16\nkmalloc-64 1 2 64 16\n";
        let flags = [("__GFP_ACCOUNT", 4), ("__GFP_RECLAIMABLE", 2)];
        let flag = |name: &str| flags.iter().find(|(own, _)| *own == name).map(|&(_, flag)| flag);
        let classes = Classes::of_slabinfo([slabinfo, ""], flag);
        let name = |allocated, gfp| {
            let kmalloc = Names::default().intern(b"kmalloc");
            classes.name(&Event { allocated, gfp: Some(gfp), ..Event::new(1, 0, kmalloc) })
        };
        assert_eq!(name(1024, 4).as_deref(), Some("kmalloc-cg-1k"));
        assert_eq!(name(1024, 6).as_deref(), Some("kmalloc-cg-1k"), "no reclaimable caches are listed");
        assert_eq!(name(1024, 0).as_deref(), Some("kmalloc-1k"));
        assert_eq!(name(64, 4).as_deref(), Some("kmalloc-64"));
        assert_eq!(name(32, 0), None);
    }

    #[test]
    fn sizes_have_the_short_names_of_classes() {
        let names = [8, 96, 1024, 8192].map(|bytes| size_class(bytes, None).unwrap());
        assert_eq!(names, ["kmalloc-8", "kmalloc-96", "kmalloc-1k", "kmalloc-8k"]);
        assert!([0, 4, 100, 1000, 16384].into_iter().all(|bytes| size_class(bytes, Some(4096)).is_none()));
        assert_eq!(size_class(131_072, Some(65536)).as_deref(), Some("kmalloc-128k"));
        assert_eq!(size_class(262_144, Some(65536)), None);
    }

    #[test]
    fn a_size_class_takes_its_variants_and_a_variant_itself() {
        for name in ["kmalloc-1k", "kmalloc-rcl-1k", "kmalloc-cg-1k", "dma-kmalloc-1k"] {
            assert!(takes("kmalloc-1k", name), "{name}");
            assert!(takes(name, name), "{name}");
        }
        for (asked, name) in
            [("kmalloc-rcl-1k", "kmalloc-1k"), ("kmalloc-1k", "kmalloc-16"), ("kmalloc-x", "kmalloc-cg-x")]
        {
            assert!(!takes(asked, name), "{asked} {name}");
        }
    }
}
