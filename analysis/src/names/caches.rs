//! Names of caches that allocation events do not carry: size classes of `kmalloc`, and caches that frees name.

use std::collections::HashMap;

use kmemtrace_abi::trace::Metadata;

use crate::names::size_class::SizeClasses;
use crate::names::slabinfo::Slabinfo;

/// Names of caches by what their objects tell.
#[derive(Clone, Debug)]
pub(crate) struct CacheNames {
    classes: SizeClasses,
    /// Caches of `kmem_cache_alloc` by call-site and bytes allocated; empty where allocations name their cache.
    learned: HashMap<(u64, u64), Box<[u8]>>,
}

impl CacheNames {
    /// Names of a trace's size classes.
    pub(crate) fn of(metadata: &Metadata) -> CacheNames {
        let classes = SizeClasses::of(&Slabinfo::parse(&metadata.slabinfo_start), metadata.gfp_names.as_deref());
        CacheNames { classes, learned: HashMap::new() }
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

    /// Name that all frees of objects of this call-site and size have.
    pub(crate) fn learned(&self, place: (u64, u64)) -> Option<&[u8]> {
        self.learned.get(&place).map(|name| &**name)
    }
}
