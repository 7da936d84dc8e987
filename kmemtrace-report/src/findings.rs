//! What the pairing finds: which classes there are, and findings of one class between the same two call-sites as one row.

use kmemtrace_abi::event::Kind;

/// What a finding is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Class {
    KindMismatch,
    KindMismatchLegal,
    CacheMismatch,
    FreeAfterFree,
    InferredFree,
    ShortAlloc,
}

impl Class {
    pub(crate) const ALL: [Class; 6] = [
        Class::KindMismatch,
        Class::KindMismatchLegal,
        Class::CacheMismatch,
        Class::FreeAfterFree,
        Class::InferredFree,
        Class::ShortAlloc,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Class::KindMismatch => "kind_mismatch",
            Class::KindMismatchLegal => "kind_mismatch_legal",
            Class::CacheMismatch => "cache_mismatch",
            Class::FreeAfterFree => "free_after_free",
            Class::InferredFree => "inferred_free",
            Class::ShortAlloc => "short_alloc",
        }
    }
}

/// Findings of one class between the same two call-sites.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FindingKey {
    pub(crate) class: Class,
    pub(crate) alloc_site: Option<u64>,
    pub(crate) free_site: Option<u64>,
    pub(crate) kind: Kind,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct FindingRow {
    pub(crate) count: u64,
    pub(crate) suspect: u64,
    /// Key, CPU and address of the first.
    pub(crate) first: (u64, u32, u64),
}
