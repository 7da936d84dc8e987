//! What the pairing finds: which classes there are, and findings of one class between the same two call-sites as one row.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use kmemtrace_abi::event::Kind;

/// What a finding is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Finding {
    /// Freed as another kind than it was allocated.
    KindMismatch,
    /// `kfree` of a cache object, which the kernel allows since Linux 6.4.
    KindMismatchLegal,
    /// Freed to another cache.
    CacheMismatch,
    /// Freed twice without an allocation in between.
    FreeAfterFree,
    /// Allocated again without a free in between.
    InferredFree,
    /// Fewer bytes taken than asked for.
    ShortAlloc,
}

impl Finding {
    /// All classes, in the contract's order.
    pub const ALL: [Finding; 6] = [
        Finding::KindMismatch,
        Finding::KindMismatchLegal,
        Finding::CacheMismatch,
        Finding::FreeAfterFree,
        Finding::InferredFree,
        Finding::ShortAlloc,
    ];

    /// The contract's word.
    pub fn name(self) -> &'static str {
        match self {
            Finding::KindMismatch => "kind_mismatch",
            Finding::KindMismatchLegal => "kind_mismatch_legal",
            Finding::CacheMismatch => "cache_mismatch",
            Finding::FreeAfterFree => "free_after_free",
            Finding::InferredFree => "inferred_free",
            Finding::ShortAlloc => "short_alloc",
        }
    }
}

/// Findings of one class between the same two call-sites.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FindingKey {
    pub(crate) class: Finding,
    /// Row of the allocation.
    pub(crate) alloc: Option<u32>,
    pub(crate) free_site: Option<u64>,
    pub(crate) kind: Kind,
}

impl FindingKey {
    /// Whether at least one of the inferred frees of the row has no gap that may explain it.
    pub(crate) fn is_unexplained(&self, row: &FindingRow) -> bool {
        self.class == Finding::InferredFree && row.count > row.suspect
    }
}

/// The same with the call-sites themselves, where rows have them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FindingSites {
    pub(crate) class: Finding,
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
    /// Number of the first in the total order.
    pub(crate) serial: u64,
}

/// Findings of one partition, in the order of its events.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    by_key: HashMap<FindingKey, FindingRow, RandomState>,
    /// Inferred frees, by far the most frequent, by row of the allocation.
    inferred: Vec<Option<(Kind, FindingRow)>>,
    /// Findings that are suspect if a gap begins at their key.
    open: Vec<FindingKey>,
}

impl Findings {
    /// Counts a finding, of which `row` tells if it is the first of its key.
    #[inline]
    pub(crate) fn count(&mut self, key: FindingKey, row: FindingRow, suspect: bool, open: bool) {
        let row = self.row(key, row);
        row.count += 1;
        row.suspect += u64::from(suspect);
        if open {
            self.open.push(key);
        }
    }

    /// Counts an inferred free where there has been one of the same row before; whether there has.
    #[inline(always)]
    pub(crate) fn infer_again(&mut self, alloc: u32, suspect: bool) -> bool {
        let Some(Some((_, row))) = self.inferred.get_mut(alloc as usize) else { return false };
        row.count += 1;
        row.suspect += u64::from(suspect);
        true
    }

    fn row(&mut self, key: FindingKey, row: FindingRow) -> &mut FindingRow {
        let Some(alloc) = key.alloc.filter(|_| key.class == Finding::InferredFree) else {
            return self.by_key.entry(key).or_insert(row);
        };
        let index = alloc as usize;
        if self.inferred.len() <= index {
            self.inferred.resize(index + 1, None);
        }
        &mut self.inferred[index].get_or_insert((key.kind, row)).1
    }

    /// A gap begins where the open findings are.
    pub(crate) fn suspect_open(&mut self) {
        for key in std::mem::take(&mut self.open) {
            let nothing = FindingRow { count: 0, suspect: 0, first: (0, 0, 0), serial: 0 };
            self.row(key, nothing).suspect += 1;
        }
    }

    /// No gap begins where the open findings are.
    #[inline]
    pub(crate) fn settle_open(&mut self) {
        self.open.clear();
    }

    /// All rows.
    pub(crate) fn rows(&self) -> impl Iterator<Item = (FindingKey, FindingRow)> {
        let inferred = self.inferred.iter().enumerate().filter_map(|(index, row)| {
            let (kind, row) = (*row)?;
            let key = FindingKey { class: Finding::InferredFree, alloc: Some(index as u32), free_site: None, kind };
            Some((key, row))
        });
        self.by_key.iter().map(|(key, row)| (*key, *row)).chain(inferred)
    }
}

impl FindingRow {
    /// Adds those of another partition.
    pub(crate) fn add(&mut self, other: &FindingRow) {
        self.count += other.count;
        self.suspect += other.suspect;
        if other.serial < self.serial {
            (self.first, self.serial) = (other.first, other.serial);
        }
    }
}
