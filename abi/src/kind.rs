//! Kinds of objects and the spaces that their addresses belong to: one table, and arrays indexed by it.

use std::ops::{Index, IndexMut};

/// Objects whose addresses are of one space. Figures are added up inside a space only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Space {
    /// Objects of the slab allocator, by kernel address.
    Slab,
    /// Pages, by frame number.
    Pages,
    /// Per-CPU memory, by per-CPU pointer.
    Percpu,
    /// Areas of kernel address space, by start address. Their bytes are address space, not memory.
    Vmalloc,
    /// Lines of source that allocate, as `/proc/allocinfo` counts them. Their bytes may be counted twice.
    Tag,
}

impl Space {
    /// All spaces, in the order that reports show them.
    pub const ALL: [Space; 5] = [Space::Slab, Space::Pages, Space::Percpu, Space::Vmalloc, Space::Tag];

    /// All spaces, pages first: the order of the live screen, and that of preference where a view shows one space.
    pub const PAGES_FIRST: [Space; Space::ALL.len()] =
        [Space::Pages, Space::Slab, Space::Percpu, Space::Vmalloc, Space::Tag];

    /// `"slab"`, `"pages"`, `"percpu"`, `"vmalloc"` or `"tag"`.
    pub const fn name(self) -> &'static str {
        match self {
            Space::Slab => "slab",
            Space::Pages => "pages",
            Space::Percpu => "percpu",
            Space::Vmalloc => "vmalloc",
            Space::Tag => "tag",
        }
    }

    /// True for a space that every recording shows, even with zeros alone; the others are shown where the input describes their events.
    pub const fn is_always_shown(self) -> bool {
        matches!(self, Space::Slab | Space::Pages)
    }

    /// The kind whose figures stand for the space: its first one.
    pub fn kind(self) -> Kind {
        Kind::ALL.into_iter().find(|kind| kind.space() == self).unwrap_or(Kind::Kmalloc)
    }
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident, $name:literal, $space:ident;)*) => {
        /// Allocator that an object belongs to.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        pub enum Kind {
            $($(#[$doc])* $kind,)*
        }

        impl Kind {
            /// All kinds, in the order that reports show them.
            pub const ALL: [Kind; KINDS] = [$(Kind::$kind),*];

            /// Word of documents and of `--kind`.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Kind::$kind => $name,)*
                }
            }

            /// True if an allocation that is kept with so many bytes has a known size. One of per-CPU memory is kept with 0 bytes if
            /// the number of CPUs is not known.
            #[inline]
            pub fn has_size(self, bytes: u128) -> bool {
                bytes > 0 || self != Kind::Percpu
            }

            /// Space of the object's address.
            #[inline(always)]
            pub const fn space(self) -> Space {
                match self {
                    $(Kind::$kind => Space::$space,)*
                }
            }
        }

        const KINDS: usize = [$($name),*].len();
    };
}

kinds! {
    /// `kmalloc`, `kmalloc_node` / `kfree`; relay type 0.
    Kmalloc, "kmalloc", Slab;
    /// `kmem_cache_alloc`, `kmem_cache_alloc_node` / `kmem_cache_free`; relay type 1.
    Cache, "cache", Slab;
    /// `mm_page_alloc` / `mm_page_free`, `mm_page_free_direct`, `mm_pagevec_free` before Linux 2.6.34; relay type 2.
    Pages, "pages", Pages;
    /// `percpu_alloc_percpu`, `percpu_alloc_percpu_fail` / `percpu_free_percpu`.
    Percpu, "percpu", Percpu;
    /// `alloc_vmap_area` / `free_vmap_area_noflush`, Linux 6.2 and later.
    Vmalloc, "vmalloc", Vmalloc;
    /// Line of `/proc/allocinfo`; its key is file and line.
    Tag, "tag", Tag;
}

/// One value for each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ByKind<T>([T; KINDS]);

/// One value for each space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct BySpace<T>([T; Space::ALL.len()]);

macro_rules! indexed_by {
    ($array:ident, $index:ident) => {
        impl<T> $array<T> {
            /// The values that `of` gives.
            pub fn from_fn(of: impl FnMut($index) -> T) -> $array<T> {
                $array($index::ALL.map(of))
            }

            /// The values that `of` gives; `None` if it lacks one.
            pub fn try_from_fn(of: impl FnMut($index) -> Option<T>) -> Option<$array<T>> {
                let values: Option<Vec<T>> = $index::ALL.into_iter().map(of).collect();
                values?.try_into().ok().map($array)
            }

            /// The values that `of` makes of these.
            pub fn map<U>(self, of: impl FnMut(T) -> U) -> $array<U> {
                $array(self.0.map(of))
            }

            /// References to the values.
            pub fn each_ref(&self) -> $array<&T> {
                $array(self.0.each_ref())
            }

            /// The values, each with its kind or space, in the order of reports.
            pub fn iter(&self) -> impl ExactSizeIterator<Item = ($index, &T)> {
                $index::ALL.into_iter().zip(&self.0)
            }

            /// The values, which may be changed, each with its kind or space.
            pub fn iter_mut(&mut self) -> impl ExactSizeIterator<Item = ($index, &mut T)> {
                $index::ALL.into_iter().zip(&mut self.0)
            }

            /// The values alone.
            pub fn values(&self) -> std::slice::Iter<'_, T> {
                self.0.iter()
            }

            /// The values alone, which may be changed.
            pub fn values_mut(&mut self) -> std::slice::IterMut<'_, T> {
                self.0.iter_mut()
            }
        }

        impl<T> Index<$index> for $array<T> {
            type Output = T;

            #[inline(always)]
            #[expect(clippy::indexing_slicing, reason = "there is a value for each index")]
            fn index(&self, index: $index) -> &T {
                &self.0[index as usize]
            }
        }

        impl<T> IndexMut<$index> for $array<T> {
            #[inline(always)]
            #[expect(clippy::indexing_slicing, reason = "there is a value for each index")]
            fn index_mut(&mut self, index: $index) -> &mut T {
                &mut self.0[index as usize]
            }
        }
    };
}

indexed_by!(ByKind, Kind);
indexed_by!(BySpace, Space);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_found_by_what_it_is_of() {
        let mut names = ByKind::from_fn(Kind::name);
        assert!(names.iter().all(|(kind, name)| kind.name() == *name && names[kind] == *name));
        names[Kind::Percpu] = "other";
        assert_eq!(names.values().filter(|name| **name == "other").count(), 1);
        let spaces = BySpace::from_fn(Space::kind);
        assert!(spaces.iter().all(|(space, kind)| kind.space() == space));
        assert_eq!(spaces[Space::Slab], Kind::Kmalloc);
        assert!(Space::ALL.iter().all(|space| Space::PAGES_FIRST.contains(space)));
    }
}
