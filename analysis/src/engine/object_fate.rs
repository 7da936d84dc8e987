//! Objects as [`crate::Query::objects`] hands them over.

use std::ops::ControlFlow;

use kmemtrace_abi::event::Kind;

use crate::pairing::fate::{Fate, ObjectPages};

/// Object whose fate is known, or a failed allocation, or a free without an object.
#[derive(Clone, Copy, Debug)]
pub struct ObjectFate<'a> {
    /// Fate.
    pub fate: Fate,
    /// Place of the event in the total order of all events and gaps of the window, as [`crate::OrderedItem`] has it. The event is
    /// the allocation, or the free without an object; the members up to `allocated` are its own.
    pub seq: u64,
    /// Order key of the event.
    pub at: u64,
    /// CPU of the event.
    pub cpu: u32,
    /// Thread of the event, where it is known.
    pub pid: Option<i32>,
    /// Command name of the thread, where the trace tells it.
    pub comm: Option<&'a [u8]>,
    /// Cgroup of the thread, where the query asks for it and the trace tells it.
    pub cgroup: Option<&'a [u8]>,
    /// Whether the kernel takes the object back by itself, where the query asks for it and its cache is known.
    pub reclaimable: Option<bool>,
    /// Object key; 0 for a failed allocation.
    pub address: u64,
    /// Call-site of the event.
    pub call_site: u64,
    /// Kind of the event.
    pub kind: Kind,
    /// Call stack of an allocation, from its call-site on, the innermost frame first; empty where none was recorded.
    pub stack: &'a [u64],
    /// Cache that the event names.
    pub cache: Option<&'a [u8]>,
    /// Bytes asked for; 0 for a free.
    pub requested: u64,
    /// Bytes taken; 0 for a free or a failed allocation.
    pub allocated: u64,
    /// Pages of an object of kind `pages`, where their number is known.
    pub pages: Option<ObjectPages>,
    /// End of the object: its free, or the allocation that took its address.
    pub end: Option<ObjectEnd>,
    /// Free event of a pair.
    pub free: Option<ObjectFree<'a>>,
    /// True where loss or a clock may explain a finding at the object's end; `None` where the fate compares no two events.
    pub suspect: Option<bool>,
}

/// End of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectEnd {
    /// Place of the event in the total order.
    pub seq: u64,
    /// Order key of the event.
    pub at: u64,
}

/// Free event of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectFree<'a> {
    /// CPU of the free.
    pub cpu: u32,
    /// Call-site of the free.
    pub call_site: u64,
    /// Kind of the free.
    pub kind: Kind,
    /// Cache that the free names.
    pub cache: Option<&'a [u8]>,
}

/// Takes objects, each when its fate becomes known; live ones last, in the order of their allocations.
pub trait ObjectSink {
    /// Takes the next one; [`ControlFlow::Break`] ends the pass.
    fn object(&mut self, object: &ObjectFate<'_>) -> ControlFlow<()>;

    /// Takes all objects so far back: loss without a place came to light at the end, and they come again, suspect.
    fn restart(&mut self);
}
