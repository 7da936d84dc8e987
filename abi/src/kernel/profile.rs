//! Profiles of events: the events that are known by system and name, and the meaning of each one's fields.
//!
//! The decoder of a trace is built from this table and the trace's own formats. A further event is a further line here, as long as
//! its fields mean what those of the present ones do.

use crate::event::{Action, Kind};

/// Field of every event: the thread id.
pub(crate) const PID: &str = "common_pid";
/// Field of every event: interrupt and preemption state.
pub(crate) const FLAGS: &str = "common_flags";

/// Meaning of one event's fields. A field that a kernel does not have is absent from the decoded event.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EventProfile {
    /// Directory below `events`.
    pub(crate) system: &'static str,
    /// The event's own name.
    pub(crate) name: &'static str,
    /// Allocation or free, and of which kind.
    pub(crate) action: Action,
    /// Fields that may hold the object's key; the first one that the format has is taken. Without any, the event is an unknown one.
    pub(crate) keys: &'static [Key],
    /// Fields that hold the size.
    pub(crate) size: Size,
    /// Fields with the same meaning in all events of a system.
    pub(crate) fields: Fields,
    /// True for an event that kernels of every version have.
    pub(crate) is_in_every_kernel: bool,
}

/// A field that holds an object's key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key {
    pub(crate) field: &'static str,
    /// The value in an allocation that failed.
    pub(crate) null: Null,
}

/// The value of a key that stands for no object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Null {
    /// A null pointer.
    Zero,
    /// All bits of the field set: -1 as a page frame number.
    AllOnes,
}

/// Fields that hold an object's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Size {
    /// No field: a free.
    None,
    /// Bytes asked for, and bytes taken.
    Bytes { requested: &'static str, allocated: &'static str },
    /// The binary logarithm of the number of pages.
    Order(&'static str),
}

/// Names of fields.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fields {
    /// Return address of the caller.
    pub(crate) call_site: &'static str,
    /// Flags of the allocation.
    pub(crate) gfp: &'static str,
    /// NUMA node.
    pub(crate) node: &'static str,
    /// Name of the cache, `__data_loc` or `__rel_loc`.
    pub(crate) cache: &'static str,
}

const KMEM: Fields = Fields { call_site: "call_site", gfp: "gfp_flags", node: "node", cache: "name" };

const POINTER: &[Key] = &[Key { field: "ptr", null: Null::Zero }];
/// Kernels before 4.2 have a pointer to the page's `struct page` in place of its frame.
const PAGE: &[Key] = &[Key { field: "pfn", null: Null::AllOnes }, Key { field: "page", null: Null::Zero }];

const BYTES: Size = Size::Bytes { requested: "bytes_req", allocated: "bytes_alloc" };
const ORDER: Size = Size::Order("order");

/// An event of slabs or pages.
const fn kmem(name: &'static str, action: Action, keys: &'static [Key], size: Size) -> EventProfile {
    EventProfile { system: "kmem", name, action, keys, size, fields: KMEM, is_in_every_kernel: false }
}

/// An event that every kernel has.
const fn always(profile: EventProfile) -> EventProfile {
    EventProfile { is_in_every_kernel: true, ..profile }
}

/// The known events; each name stands once in its system.
pub(crate) const PROFILES: [EventProfile; 9] = [
    always(kmem("kmalloc", Action::Alloc(Kind::Kmalloc), POINTER, BYTES)),
    kmem("kmalloc_node", Action::Alloc(Kind::Kmalloc), POINTER, BYTES),
    always(kmem("kfree", Action::Free(Kind::Kmalloc), POINTER, Size::None)),
    always(kmem("kmem_cache_alloc", Action::Alloc(Kind::Cache), POINTER, BYTES)),
    kmem("kmem_cache_alloc_node", Action::Alloc(Kind::Cache), POINTER, BYTES),
    always(kmem("kmem_cache_free", Action::Free(Kind::Cache), POINTER, Size::None)),
    kmem("mm_page_alloc", Action::Alloc(Kind::Pages), PAGE, ORDER),
    kmem("mm_page_free", Action::Free(Kind::Pages), PAGE, Size::None),
    kmem("mm_page_free_direct", Action::Free(Kind::Pages), PAGE, Size::None),
];

/// The profile of an event; `None` for an event that is only counted.
pub(crate) fn find(system: &str, name: &str) -> Option<&'static EventProfile> {
    PROFILES.iter().find(|profile| (profile.system, profile.name) == (system, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_known_by_system_and_name() {
        for (index, profile) in PROFILES.iter().enumerate() {
            let same = |other: &EventProfile| (other.system, other.name) == (profile.system, profile.name);
            assert_eq!(PROFILES.iter().position(same), Some(index), "{}", profile.name);
            assert_eq!(matches!(profile.action, Action::Alloc(_)), profile.size != Size::None, "{}", profile.name);
        }
        assert_eq!(find("kmem", "kfree").map(|found| found.action), Some(Action::Free(Kind::Kmalloc)));
        assert!(find("sched", "kfree").is_none() && find("kmem", "rss_stat").is_none());
    }
}
