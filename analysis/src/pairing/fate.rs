//! Fates of objects: the end of an object's life, or a free or an allocation without an object.

use crate::account::classes::Class;
use crate::account::tally::Sizes;
use crate::pairing::slot::AllocInfo;

/// Fate of an object, or of an event without one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Fate {
    /// A free event ended the object.
    Pair,
    /// The kernel handed out the object's address again: its free has no event.
    Inferred,
    /// The object is live at the end.
    Live,
    /// An allocation returned null.
    Failed,
    /// A free of an object that is older than the trace.
    FreeWithoutAlloc,
    /// A free of an address whose last event was a free.
    FreeAfterFree,
    /// A free of `NULL` or `ZERO_SIZE_PTR`.
    NullFree,
}

impl Fate {
    /// All fates.
    pub const ALL: [Fate; 7] = [
        Fate::Pair,
        Fate::Inferred,
        Fate::Live,
        Fate::Failed,
        Fate::FreeWithoutAlloc,
        Fate::FreeAfterFree,
        Fate::NullFree,
    ];

    /// Name in exported tables.
    pub fn name(self) -> &'static str {
        match self {
            Fate::Pair => "pair",
            Fate::Inferred => "inferred",
            Fate::Live => "live",
            Fate::Failed => "failed",
            Fate::FreeWithoutAlloc => "free_without_alloc",
            Fate::FreeAfterFree => "free_after_free",
            Fate::NullFree => "null_free",
        }
    }
}

/// Pages of an object, one by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectPages {
    /// Pages of the allocation.
    pub allocated: u64,
    /// Pages that were freed.
    pub freed: u64,
    /// Pages whose free was not seen: they were allocated again.
    pub inferred: u64,
    /// Pages that are live at the end.
    pub live: u64,
    /// Freed pages, those freed on another CPU than the allocation's.
    pub freed_elsewhere: u64,
}

/// Object whose life has ended, as the tables kept it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    pub(crate) address: u64,
    /// Pages, where they were counted one by one.
    pub(crate) pages: Option<ObjectPages>,
    pub(crate) info: AllocInfo,
    /// Number of the allocation's stream.
    pub(crate) stream: u16,
    pub(crate) class: Class,
    pub(crate) sizes: Sizes,
}
