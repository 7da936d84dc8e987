//! Columns of slabinfo, as members of rows of recordings and of texts.

use kmemtrace_abi::listed::SlabColumns;

use super::row::{Cell, Field, TakeMember, row};
use crate::names::slabinfo::SlabCache;

row! {
    /// Line of slabinfo; `None`: the text does not say the figure.
    pub struct SlabMembers {
        /// Objects in use. Under SLUB an upper bound: those in slabs that a CPU holds all count.
        pub active_objs: Option<u64>,
        /// Objects in use and free.
        pub num_objs: Option<u64>,
        /// Bytes of an object, with all that the allocator adds to it.
        pub objsize: Option<u64>,
        /// Objects in a slab.
        pub objperslab: Option<u64>,
        /// Pages of a slab.
        pub pagesperslab: Option<u64>,
        /// Slabs with objects in use.
        pub active_slabs: Option<u64>,
        /// Slabs.
        pub num_slabs: Option<u64>,
        /// Bytes of all slabs.
        pub bytes: Option<u64>,
    }
}

impl SlabMembers {
    /// Nothing is known.
    pub const UNKNOWN: SlabMembers = SlabMembers {
        active_objs: None,
        num_objs: None,
        objsize: None,
        objperslab: None,
        pagesperslab: None,
        active_slabs: None,
        num_slabs: None,
        bytes: None,
    };

    /// Figures of a cache; pages have `page_bytes`.
    pub(super) fn of(cache: &SlabCache, page_bytes: Option<u64>) -> SlabMembers {
        SlabMembers {
            active_objs: Some(cache.active_objects),
            num_objs: Some(cache.objects),
            objsize: Some(cache.object_bytes),
            objperslab: Some(cache.objects_per_slab),
            pagesperslab: Some(cache.pages_per_slab),
            active_slabs: cache.active_slabs,
            num_slabs: Some(cache.slabs),
            bytes: page_bytes.map(|bytes| cache.pages().saturating_mul(bytes)),
        }
    }
}

impl Field for Option<SlabMembers> {
    fn put(&self, name: &'static str, take: &mut TakeMember<'_>) {
        match self {
            Some(slab) => take(name, Cell::Figures(slab)),
            None => take(name, Cell::NoFigures(&SlabMembers::UNKNOWN)),
        }
    }
}

impl From<SlabColumns> for SlabMembers {
    fn from(columns: SlabColumns) -> SlabMembers {
        let SlabColumns { active_objs, num_objs, objsize, objperslab, pagesperslab, active_slabs, num_slabs, bytes } =
            columns;
        SlabMembers { active_objs, num_objs, objsize, objperslab, pagesperslab, active_slabs, num_slabs, bytes }
    }
}
