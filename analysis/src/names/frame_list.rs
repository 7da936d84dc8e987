//! Functions whose frames are no place to look at: tracing, allocators of pages, reclaim.

use kmemtrace_abi::event::Space;

use crate::names::wrappers::plain_name;
use kmemtrace_abi::text::glob::Glob;

/// Part of the kernel that a listed function belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameClass {
    /// Tracing, which records the stack.
    Tracing,
    /// Allocator of pages.
    Allocator,
    /// Waiting for memory, and charging it.
    Reclaim,
    /// Allocator of slabs, which waits for pages and charges; an allocation of pages has its site there.
    Slabs,
    /// Allocator of kernel address space; an allocation of pages has its site there.
    Vmalloc,
}

/// Sections of a list of names.
const SECTIONS: [(&str, FrameClass); 5] = [
    ("[tracing]", FrameClass::Tracing),
    ("[allocators]", FrameClass::Allocator),
    ("[reclaim]", FrameClass::Reclaim),
    ("[slabs]", FrameClass::Slabs),
    ("[vmalloc]", FrameClass::Vmalloc),
];

/// Names of functions that come between an allocation and the code that asked for it.
#[derive(Clone, Debug)]
pub struct FrameList {
    patterns: Vec<(FrameClass, Glob)>,
    /// Number of built-in names.
    built_in: usize,
}

/// Names that come with the library.
const BUILT_IN: &str = include_str!("allocators.txt");

impl Default for FrameList {
    fn default() -> FrameList {
        let mut list = FrameList { patterns: Vec::new(), built_in: 0 };
        list.add(BUILT_IN);
        list.built_in = list.patterns.len();
        list
    }
}

impl FrameList {
    /// Adds names from a text: a name a line, `*` and `?` allowed. `[tracing]`, `[allocators]`, `[reclaim]`, `[slabs]` and `[vmalloc]`
    /// begin sections, names before them are allocators; lines that begin with `#` are comments.
    pub fn add(&mut self, text: &str) {
        let mut class = FrameClass::Allocator;
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            match SECTIONS.iter().find(|(section, _)| *section == line) {
                Some((_, section)) => class = *section,
                None => self.patterns.push((class, Glob::new(line))),
            }
        }
    }

    /// No names: stacks are whole, and their site is the innermost frame.
    pub fn none() -> FrameList {
        FrameList { patterns: Vec::new(), ..FrameList::default() }
    }

    /// True where the names are not the built-in ones.
    pub(crate) fn is_other(&self) -> bool {
        self.patterns.len() != self.built_in
    }

    /// Class of a function, whatever suffixes its name has; `None` where it is not listed.
    pub fn class(&self, function: &[u8]) -> Option<FrameClass> {
        let name = plain_name(function);
        self.patterns.iter().find(|(_, pattern)| pattern.matches(name)).map(|(class, _)| *class)
    }

    /// Section of a function by the rule of sites of texts, where a name may be in several; `None` for a function that may be a site.
    pub(crate) fn section(&self, function: &[u8]) -> Option<FrameClass> {
        const SECTIONS: [FrameClass; 4] =
            [FrameClass::Tracing, FrameClass::Allocator, FrameClass::Vmalloc, FrameClass::Slabs];
        let name = plain_name(function);
        let has = |section: &FrameClass| {
            self.patterns.iter().any(|(class, pattern)| class == section && pattern.matches(name))
        };
        SECTIONS.into_iter().find(has)
    }

    /// True for a function that asks for no memory of this space itself: the site of an allocation is a frame further out.
    pub fn is_passed_over(&self, function: &[u8], space: Space) -> bool {
        match self.class(function) {
            Some(FrameClass::Tracing | FrameClass::Allocator) => true,
            Some(FrameClass::Vmalloc) => space == Space::Vmalloc,
            Some(FrameClass::Reclaim | FrameClass::Slabs) | None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn glue_and_allocators_are_passed_over() {
        let list = FrameList::default();
        for name in
            ["trace_event_raw_event_mm_page_alloc", "__traceiter_mm_page_alloc", "__alloc_pages", "alloc_pages_mpol"]
        {
            assert!(list.is_passed_over(name.as_bytes(), Space::Pages), "{name}");
        }
        for name in ["__alloc_frozen_pages_noprof", "folio_alloc_mpol_noprof", "vma_alloc_folio_noprof.isra.0"] {
            assert!(list.is_passed_over(name.as_bytes(), Space::Pages), "{name}");
        }
        for name in ["shmem_alloc_folio", "allocate_slab", "pte_alloc_one", "shrink_node", "page_cache_ra_unbounded"] {
            assert!(!list.is_passed_over(name.as_bytes(), Space::Pages), "{name}");
        }
        assert_eq!(list.class(b"shrink_node"), Some(FrameClass::Reclaim));
        for name in ["pcpu_alloc_noprof", "__alloc_percpu_gfp"] {
            assert!(list.is_passed_over(name.as_bytes(), Space::Percpu), "{name}");
        }
    }

    /// Frames that pages of a kernel have, innermost first, and the frame that asked for them.
    #[test]
    fn pages_of_all_kernels_have_the_site_that_asked_for_them() {
        let list = FrameList::default();
        let single: [(&str, &[&str]); 5] = [
            ("3.19", &["get_page_from_freelist", "__alloc_pages_nodemask", "alloc_pages_current"]),
            (
                "4.9",
                &[
                    "save_stack_trace",
                    "save_stack",
                    "__set_page_owner",
                    "post_alloc_hook",
                    "prep_new_page",
                    "__alloc_pages_nodemask",
                ],
            ),
            ("5.15", &["post_alloc_hook", "get_page_from_freelist", "__alloc_pages", "alloc_pages_vma"]),
            ("6.12", &["post_alloc_hook", "__alloc_pages_noprof", "alloc_pages_mpol_noprof", "vma_alloc_folio_noprof"]),
            ("7.1", &["post_alloc_hook", "__alloc_frozen_pages_noprof", "alloc_frozen_pages_noprof.constprop.0"]),
        ];
        let of_slabs: [(&str, &[&str]); 6] = [
            ("3.19", &["kmem_getpages", "cache_grow", "fallback_alloc", "____cache_alloc_node", "kmem_cache_alloc"]),
            ("4.9", &["new_slab", "___slab_alloc", "__slab_alloc.isra.7", "kmem_cache_alloc_trace"]),
            (
                "5.10",
                &["alloc_slab_page", "allocate_slab", "new_slab_objects", "__slab_alloc", "__kmalloc_track_caller"],
            ),
            ("6.1", &["alloc_slab_page", "new_slab", "___slab_alloc", "__kmem_cache_alloc_lru", "kmalloc_node_trace"]),
            ("6.12", &["allocate_slab", "___slab_alloc", "__kmalloc_cache_noprof", "krealloc_noprof"]),
            (
                "7.1",
                &[
                    "new_slab",
                    "refill_objects",
                    "__refill_objects_node",
                    "__pcs_replace_empty_main",
                    "kmem_cache_alloc_noprof",
                ],
            ),
        ];
        let large: [(&str, &[&str]); 3] = [
            ("5.10", &["alloc_pages_current", "kmalloc_order", "kmalloc_order_trace", "__kmalloc"]),
            ("6.1", &["__alloc_pages", "__kmalloc_large_node", "kmalloc_large", "kvmalloc_node"]),
            (
                "6.12",
                &["___kmalloc_large_node", "__kmalloc_large_node_noprof", "__kmalloc_noprof", "__kvmalloc_node_noprof"],
            ),
        ];
        let areas: [(&str, &[&str]); 3] = [
            ("4.4", &["alloc_pages_current", "__vmalloc_node_range", "vzalloc"]),
            (
                "6.1",
                &["__alloc_pages_bulk", "vm_area_alloc_pages", "__vmalloc_area_node", "__vmalloc_node", "vmalloc_user"],
            ),
            (
                "6.18",
                &[
                    "alloc_pages_bulk_noprof",
                    "__vmalloc_node_range_noprof",
                    "vrealloc_noprof",
                    "vmalloc_huge_node_noprof",
                ],
            ),
        ];
        let of_cache: [(&str, &[&str]); 3] = [
            ("5.10", &["__alloc_pages_nodemask", "__page_cache_alloc"]),
            ("6.12", &["folio_alloc_noprof", "filemap_alloc_folio_noprof"]),
            ("6.19", &["alloc_contig_range_noprof", "split_free_pages", "compaction_alloc"]),
        ];
        let all = [&single[..], &of_slabs, &large, &areas, &of_cache].concat();
        for (kernel, frames) in all {
            for frame in frames {
                let section = list.section(frame.as_bytes());
                assert!(section.is_some(), "{kernel}: {frame}");
                let is_slab = of_slabs.iter().any(|(_, all)| all.contains(frame)) && *frame != "__kmalloc";
                assert!(!is_slab || section == Some(FrameClass::Slabs), "{kernel}: {frame}");
            }
            for site in ["example_open", "page_frag_alloc_align", "__netdev_alloc_skb", "sk_prot_alloc", "kstrdup"] {
                assert_eq!(list.section(site.as_bytes()), None, "{site}");
            }
        }
    }

    /// A name that patterns of several sections match.
    #[test]
    fn vmalloc_goes_before_slabs() {
        let mut list = FrameList::default();
        list.add("[vmalloc]\nkmalloc_area\n");
        assert_eq!(list.section(b"kmalloc_area"), Some(FrameClass::Vmalloc));
        assert_eq!(list.section(b"__kmalloc_large_node"), Some(FrameClass::Allocator));
    }

    #[test]
    fn only_areas_are_asked_for_through_vmalloc() {
        let list = FrameList::default();
        for name in ["alloc_vmap_area", "__get_vm_area_node", "__vmalloc_node_range_noprof", "vmap", "execmem_alloc"] {
            let is_passed_over = |space| list.is_passed_over(name.as_bytes(), space);
            assert!(is_passed_over(Space::Vmalloc) && !is_passed_over(Space::Pages), "{name}");
        }
    }

    #[test]
    fn a_text_adds_names() {
        let mut list = FrameList::default();
        list.add("# mine\nmy_pages_*\n[tracing]\nmy_probe\n");
        assert_eq!(list.class(b"my_pages_get.part.0"), Some(FrameClass::Allocator));
        assert_eq!(list.class(b"my_probe"), Some(FrameClass::Tracing));
        let is_passed_over = |name| list.is_passed_over(name, Space::Slab);
        assert!(is_passed_over(b"__alloc_pages") && !is_passed_over(b"my_driver_open"));
    }
}
