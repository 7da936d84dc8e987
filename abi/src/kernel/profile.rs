//! Profiles of events: the events that are known by system and name, and the meaning of each one's fields.
//!
//! The decoder of a trace is built from this table and the trace's own formats. A further event is a further line here, as long as
//! its fields mean what those of the present ones do.

use crate::event::{Action, Kind, Space};
use crate::kernel::format::EventFormat;
use crate::kernel::release::Release;

/// Field of every event: the thread id.
pub(crate) const PID: &str = "common_pid";
/// Field of every event: interrupt and preemption state.
pub(crate) const FLAGS: &str = "common_flags";

/// System and name of the event that tells of the load of a module, before its initialisation.
pub(crate) const MODULE_LOAD: (&str, &str) = ("module", "module_load");
/// System and name of the event that tells that a module is gone: unloaded, or its initialisation has failed.
pub(crate) const MODULE_FREE: (&str, &str) = ("module", "module_free");
/// Field of these events with the module's name.
pub(crate) const MODULE_NAME: &str = "name";

/// Meaning of one event's fields. A field that a kernel does not have is absent from the decoded event.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EventProfile {
    /// Directory below `events`.
    pub(crate) system: &'static str,
    /// The event's own name.
    pub(crate) name: &'static str,
    /// Allocation or free, and of which kind.
    pub(crate) action: Action,
    /// Fields that may hold the object's key; the first one that the format has is taken. A format that has none of them is of an
    /// unknown event. Empty for an allocation that always failed.
    pub(crate) keys: &'static [Key],
    /// Fields that hold the size.
    pub(crate) size: Size,
    /// Field of the binary logarithm of the number of pages.
    pub(crate) order: Option<&'static str>,
    /// Field that is not 0 if the allocation failed, besides the null of the key.
    pub(crate) failed: Option<&'static str>,
    /// True for an event that kernels of every version have.
    pub(crate) is_in_every_kernel: bool,
    /// First release in which the event only goes with another one, and is counted no more; `None`: in no release so far.
    pub(crate) until: Option<Release>,
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
    /// Bytes asked for and taken.
    Both(&'static str),
    /// Bytes asked for and taken on each possible CPU.
    EachCpu(&'static str),
}

/// Systems of the events of objects.
pub(crate) const SYSTEMS: &[&str] = &["kmem", "percpu", "vmalloc"];

/// Field of the return address of the caller.
pub(crate) const CALL_SITE: &str = "call_site";
/// Field of the flags of the allocation.
pub(crate) const GFP: &str = "gfp_flags";
/// Field that is true for an object on the account of a memory cgroup (`kmem_cache_alloc`, Linux 5.18 and later).
pub(crate) const ACCOUNTED: &str = "accounted";
/// Field of the NUMA node.
pub(crate) const NODE: &str = "node";
/// Field of the name of the cache, `__data_loc` or `__rel_loc`.
pub(crate) const CACHE: &str = "name";

const POINTER: &[Key] = &[Key { field: "ptr", null: Null::Zero }];
/// Kernels before 4.2 have a pointer to the page's `struct page` in place of its frame.
const PAGE: &[Key] = &[Key { field: "pfn", null: Null::AllOnes }, Key { field: "page", null: Null::Zero }];

/// Allocations and frees of areas name the field differently.
const AREA: &[Key] = &[Key { field: "addr", null: Null::Zero }, Key { field: "va_start", null: Null::Zero }];

const BYTES: Size = Size::Bytes { requested: "bytes_req", allocated: "bytes_alloc" };
const ORDER: Size = Size::Order("order");

/// An event of a system.
const fn event(
    (system, name): (&'static str, &'static str),
    action: Action,
    keys: &'static [Key],
    size: Size,
) -> EventProfile {
    let order = order_of(action);
    EventProfile { system, name, action, keys, size, order, failed: None, is_in_every_kernel: false, until: None }
}

/// An event of slabs or pages.
const fn kmem(name: &'static str, action: Action, keys: &'static [Key], size: Size) -> EventProfile {
    event(("kmem", name), action, keys, size)
}

/// Field that only events of pages have.
const fn order_of(action: Action) -> Option<&'static str> {
    match action {
        Action::Alloc(kind) | Action::Free(kind) if matches!(kind.space(), Space::Pages) => Some("order"),
        _ => None,
    }
}

/// An event that every kernel has.
const fn always(profile: EventProfile) -> EventProfile {
    EventProfile { is_in_every_kernel: true, ..profile }
}

/// An event that means nothing of its own from this release on.
const fn until(release: Release, profile: EventProfile) -> EventProfile {
    EventProfile { until: Some(release), ..profile }
}

/// The known events; each name stands once in its system.
pub(crate) const PROFILES: &[EventProfile] = &[
    always(kmem("kmalloc", Action::Alloc(Kind::Kmalloc), POINTER, BYTES)),
    kmem("kmalloc_node", Action::Alloc(Kind::Kmalloc), POINTER, BYTES),
    always(kmem("kfree", Action::Free(Kind::Kmalloc), POINTER, Size::None)),
    always(kmem("kmem_cache_alloc", Action::Alloc(Kind::Cache), POINTER, BYTES)),
    kmem("kmem_cache_alloc_node", Action::Alloc(Kind::Cache), POINTER, BYTES),
    always(kmem("kmem_cache_free", Action::Free(Kind::Cache), POINTER, Size::None)),
    kmem("mm_page_alloc", Action::Alloc(Kind::Pages), PAGE, ORDER),
    kmem("mm_page_free", Action::Free(Kind::Pages), PAGE, Size::None),
    kmem("mm_page_free_direct", Action::Free(Kind::Pages), PAGE, Size::None),
    // Later kernels record an `mm_page_free_direct` beside it.
    until(Release(2, 6, 34), kmem("mm_pagevec_free", Action::Free(Kind::Pages), PAGE, Size::None)),
    // include/trace/events/percpu.h, Linux 4.13 and later; `call_site`, `bytes_alloc` and `gfp_flags` since 5.19.
    event(("percpu", "percpu_alloc_percpu"), Action::Alloc(Kind::Percpu), POINTER, Size::EachCpu("size")),
    event(("percpu", "percpu_alloc_percpu_fail"), Action::Alloc(Kind::Percpu), &[], Size::EachCpu("size")),
    event(("percpu", "percpu_free_percpu"), Action::Free(Kind::Percpu), POINTER, Size::None),
    // include/trace/events/vmalloc.h, Linux 6.2 and later. The size includes the guard page.
    EventProfile {
        failed: Some("failed"),
        ..event(("vmalloc", "alloc_vmap_area"), Action::Alloc(Kind::Vmalloc), AREA, Size::Both("size"))
    },
    event(("vmalloc", "free_vmap_area_noflush"), Action::Free(Kind::Vmalloc), AREA, Size::None),
];

/// The profile of an event of a kernel of this release; `None` for an event that is only counted. A kernel whose release is not
/// known is taken for a current one.
pub(crate) fn find(system: &str, name: &str, release: Option<Release>) -> Option<&'static EventProfile> {
    let profile = named(system, name)?;
    let is_over = profile.until.is_some_and(|until| release.is_none_or(|release| release >= until));
    (!is_over).then_some(profile)
}

fn named(system: &str, name: &str) -> Option<&'static EventProfile> {
    PROFILES.iter().find(|profile| (profile.system, profile.name) == (system, name))
}

/// True for an event that may allocate or free objects on a path that this program does not know: one of the system `kmem` that
/// is not in the table, with a caller and a pointer.
pub(crate) fn is_unknown(system: &str, format: &EventFormat) -> bool {
    let has = |name: &str| format.field(name).is_some();
    system == "kmem" && named(system, &format.name).is_none() && has(CALL_SITE) && has("ptr")
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
        assert_eq!(find("kmem", "kfree", None).map(|found| found.action), Some(Action::Free(Kind::Kmalloc)));
        assert!(find("sched", "kfree", None).is_none() && find("kmem", "rss_stat", None).is_none());
    }

    #[test]
    fn pages_freed_in_a_batch_have_a_free_of_their_own_since_2_6_34() {
        for (release, is_free) in [("2.6.32.71", true), ("2.6.33", true), ("2.6.34", false), ("3.2.0-4", false)] {
            assert_eq!(find("kmem", "mm_pagevec_free", Release::parse(release)).is_some(), is_free, "{release}");
        }
        assert!(find("kmem", "mm_pagevec_free", None).is_none());
    }

    #[test]
    fn systems_are_those_of_the_events() {
        assert!(PROFILES.iter().all(|event| SYSTEMS.contains(&event.system)));
        assert!(SYSTEMS.iter().all(|system| PROFILES.iter().any(|event| event.system == *system)));
    }

    #[test]
    fn an_event_with_caller_and_pointer_is_not_passed_over() {
        let is_unknown = |system: &str, name: &str, fields: &[&str]| {
            let field = |name: &&str| format!("\tfield:void * {name};\toffset:8;\tsize:8;\n");
            let fields: String = fields.iter().map(field).collect();
            is_unknown(system, &EventFormat::parse(&format!("name: {name}\nID: 9\n{fields}")).unwrap())
        };
        assert!(is_unknown("kmem", "kfree_bulk", &["call_site", "ptr"]));
        assert!(!is_unknown("kmem", "kfree", &["call_site", "ptr"]));
        assert!(!is_unknown("other", "kfree_bulk", &["call_site", "ptr"]));
        for fields in [&["call_site", "pfn"][..], &["ptr"], &[]] {
            assert!(!is_unknown("kmem", "kfree_bulk", fields));
        }
    }
}
