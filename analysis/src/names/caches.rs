//! Names of caches that allocation events do not carry: size classes of `kmalloc`, caches that frees name, and caches that are alone in
//! the trace's slabinfo with the size of their objects.

use std::collections::{BTreeSet, HashMap};

use kmemtrace_abi::kernel::kmalloc::is_kmalloc;
use kmemtrace_abi::trace::Metadata;
use serde::{Deserialize, Serialize};

use crate::names::reclaim::ReclaimRules;
use crate::names::size_class::SizeClasses;
use crate::names::slabinfo::Slabinfo;

/// Names of caches by what their objects tell.
#[derive(Clone, Debug)]
pub(crate) struct CacheNames {
    classes: SizeClasses,
    /// Caches of `kmem_cache_alloc` by call-site and bytes allocated; empty where allocations name their cache.
    learned: HashMap<(u64, u64), Box<[u8]>>,
    /// Caches of `kmem_cache_alloc` by bytes allocated: a name, or the candidates as [`candidates`] takes them apart.
    by_size: HashMap<u64, Box<[u8]>>,
    /// Rules by which the kernel takes objects back.
    pub(crate) reclaim: ReclaimRules,
}

/// Origin of the name of a cache, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum CacheFrom {
    /// The allocation event has it.
    Event,
    /// Frees of objects of the same call-site and size have it.
    Free,
    /// No other cache in slabinfo has objects of the size.
    Slabinfo,
}

impl CacheFrom {
    /// Word of the contract.
    pub(crate) fn name(self) -> &'static str {
        match self {
            CacheFrom::Event => "event",
            CacheFrom::Free => "free",
            CacheFrom::Slabinfo => "slabinfo",
        }
    }
}

/// Caches that an object may be of, where its name is one of several: names with a zero between them. `None` for the name of a cache,
/// which has no zero.
pub(crate) fn candidates(name: &[u8]) -> Option<impl Iterator<Item = &[u8]>> {
    name.contains(&0).then(|| name.split(|byte| *byte == 0))
}

impl CacheNames {
    /// Names of a trace's size classes, and of the caches in its slabinfo.
    pub(crate) fn of(metadata: &Metadata, page_bytes: Option<u64>) -> CacheNames {
        let [start, end] = [&metadata.slabinfo_start, &metadata.slabinfo_end].map(|text| Slabinfo::parse(text));
        let classes = SizeClasses::of(&start, metadata.gfp_names.as_deref(), page_bytes);
        let mut of_size: HashMap<u64, BTreeSet<&[u8]>> = HashMap::new();
        for cache in start.caches().iter().chain(end.caches()) {
            // A name with a zero would look like two.
            if !is_kmalloc(&cache.name) && !cache.name.contains(&0) {
                of_size.entry(cache.object_bytes).or_default().insert(&cache.name);
            }
        }
        let joined = |names: BTreeSet<&[u8]>| names.into_iter().collect::<Vec<_>>().join(&0).into();
        let by_size = of_size.into_iter().map(|(bytes, names)| (bytes, joined(names))).collect();
        CacheNames { classes, learned: HashMap::new(), by_size, reclaim: ReclaimRules::of(metadata) }
    }

    /// The names together with those that frees tell, by call-site and bytes allocated.
    pub(crate) fn with_learned(self, learned: HashMap<(u64, u64), Box<[u8]>>) -> CacheNames {
        CacheNames { learned, ..self }
    }

    /// Name of the `kmalloc` cache that gives out objects of `allocated` bytes; `None` for a size that no cache has.
    pub(crate) fn size_class(&self, allocated: u64, gfp: Option<u64>) -> Option<&str> {
        self.classes.name(allocated, gfp)
    }

    /// Name of the size class without its kind of memory.
    pub(crate) fn plain_size_class(&self, allocated: u64, gfp: Option<u64>) -> Option<&str> {
        self.classes.class(allocated, gfp)
    }

    /// Name, or candidates, of the cache of an object that `kmem_cache_alloc` gave out to this call-site with so many bytes, and the
    /// origin of the name.
    pub(crate) fn of_object(&self, place: (u64, u64)) -> Option<(&[u8], CacheFrom)> {
        let learned = self.learned.get(&place).map(|name| (&**name, CacheFrom::Free));
        learned.or_else(|| self.by_size.get(&place.1).map(|name| (&**name, CacheFrom::Slabinfo)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(start: &str, end: &str) -> CacheNames {
        let text = |lines: &str| {
            if lines.is_empty() { Vec::new() } else { format!("slabinfo - version: 2.1\n{lines}").into_bytes() }
        };
        let metadata = Metadata { slabinfo_start: text(start), slabinfo_end: text(end), ..Metadata::default() };
        CacheNames::of(&metadata, None)
    }

    #[test]
    fn a_cache_is_named_where_it_is_alone_with_its_size() {
        let start = "filp 1 1 232 1 1\nkmalloc-256 1 1 256 1 1\nkmalloc-rnd-01-256 1 1 256 1 1\nskb 1 1 256 1 1\nb 1 1 64 1 1\n";
        let names = names(start, "filp 2 2 232 1 1\nlate 1 1 208 1 1\na 1 1 64 1 1\n");
        let name = |bytes| names.of_object((7, bytes)).map(|(name, from)| (name.escape_ascii().to_string(), from));
        assert_eq!(name(232), Some(("filp".to_owned(), CacheFrom::Slabinfo)));
        assert_eq!(name(256).unwrap().0, "skb", "caches of kmalloc do not count");
        assert_eq!(name(208).unwrap().0, "late", "the end's text counts, too");
        assert_eq!(name(100), None);
        let two: Vec<&[u8]> = candidates(names.of_object((7, 64)).unwrap().0).unwrap().collect();
        assert_eq!(two, [&b"a"[..], b"b"]);
    }

    #[test]
    fn frees_rank_before_slabinfo() {
        let learned = HashMap::from([((7, 64), b"x"[..].into())]);
        let names = names("b 1 1 64 1 1\n", "").with_learned(learned);
        assert_eq!(names.of_object((7, 64)), Some((&b"x"[..], CacheFrom::Free)));
        assert_eq!(names.of_object((8, 64)), Some((&b"b"[..], CacheFrom::Slabinfo)));
    }

    #[test]
    fn a_name_with_a_zero_is_no_candidate() {
        let names = names("a\0b 1 1 64 1 1\nc 1 1 64 1 1\n", "");
        assert_eq!(names.of_object((7, 64)), Some((&b"c"[..], CacheFrom::Slabinfo)));
    }
}
