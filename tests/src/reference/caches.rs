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
    /// Source of the name: `"event"`, `"free"` or `"size"`.
    pub from: Option<&'static str>,
}

impl Learned {
    /// Takes down that an object of this allocation was freed to the cache `name`.
    pub fn add(&mut self, alloc: &Event, name: &str) {
        self.names.entry((alloc.call_site, alloc.allocated)).or_default().insert(name.to_owned());
    }

    /// Cache of an allocation; `named` is the name in its event. `learns` is true if no allocation of the trace has one.
    pub fn cache(&self, alloc: &Event, kind: Kind, named: Option<&str>, learns: bool) -> Cache {
        let (name, from) = match kind {
            Kind::Kmalloc => (size_class(alloc.allocated), "size"),
            Kind::Cache if learns => (self.only(alloc), "free"),
            Kind::Cache => (named.map(str::to_owned), "event"),
            Kind::Pages => (None, ""),
        };
        Cache { from: name.is_some().then_some(from), name }
    }

    /// Only cache that frees name for the allocation's call-site and size.
    fn only(&self, alloc: &Event) -> Option<String> {
        let names = self.names.get(&(alloc.call_site, alloc.allocated))?;
        names.first().filter(|_| names.len() == 1).cloned()
    }
}

fn size_class(allocated: u64) -> Option<String> {
    CLASSES.iter().find(|(bytes, _)| *bytes == allocated).map(|(_, size)| format!("kmalloc-{size}"))
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
    use super::*;

    #[test]
    fn sizes_have_the_short_names_of_classes() {
        let names = [8, 96, 1024, 8192].map(|bytes| size_class(bytes).unwrap());
        assert_eq!(names, ["kmalloc-8", "kmalloc-96", "kmalloc-1k", "kmalloc-8k"]);
        assert_eq!([0, 4, 100, 1000, 16384].map(size_class), [None, None, None, None, None]);
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
