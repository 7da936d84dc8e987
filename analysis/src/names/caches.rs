//! Names of caches that allocation events do not carry: size classes of `kmalloc`, and caches that frees name.

use std::collections::HashMap;

/// Names of caches by what their objects tell.
#[derive(Clone, Debug, Default)]
pub(crate) struct CacheNames {
    /// Caches of `kmem_cache_alloc` by call-site and bytes allocated; empty where allocations name their cache.
    learned: HashMap<(u64, u64), Box<[u8]>>,
}

/// Size classes of `kmalloc`: bytes and name (`mm/slab_common.c`, `kmalloc_info`).
const SIZE_CLASSES: [(u64, &str); 13] = [
    (8, "kmalloc-8"),
    (16, "kmalloc-16"),
    (32, "kmalloc-32"),
    (64, "kmalloc-64"),
    (96, "kmalloc-96"),
    (128, "kmalloc-128"),
    (192, "kmalloc-192"),
    (256, "kmalloc-256"),
    (512, "kmalloc-512"),
    (1 << 10, "kmalloc-1k"),
    (2 << 10, "kmalloc-2k"),
    (4 << 10, "kmalloc-4k"),
    (8 << 10, "kmalloc-8k"),
];

impl CacheNames {
    /// Names with those that frees tell, by call-site and bytes allocated.
    pub(crate) fn with_learned(self, learned: HashMap<(u64, u64), Box<[u8]>>) -> CacheNames {
        CacheNames { learned }
    }

    /// True if `kmalloc` has caches for some flags.
    pub(crate) fn has_variants(&self) -> bool {
        false
    }

    /// Name of the `kmalloc` cache that gives out objects of `allocated` bytes; `None` for a size that no cache has.
    pub(crate) fn size_class(&self, allocated: u64, _gfp: Option<u64>) -> Option<&str> {
        SIZE_CLASSES.iter().find(|(size, _)| *size == allocated).map(|(_, name)| *name)
    }

    /// Name that all frees of objects of this call-site and size have.
    pub(crate) fn learned(&self, place: (u64, u64)) -> Option<&[u8]> {
        self.learned.get(&place).map(|name| &**name)
    }
}
