//! Findings of the pairing: their classes, and one row for all of one class between the same two call-sites.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use kmemtrace_abi::event::Kind;
use serde::{Deserialize, Serialize};

use crate::pairing::loss::{OpenFindings, Suspicion};

/// Class of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Finding {
    /// An object was freed as another kind than it was allocated.
    KindMismatch,
    /// `kfree` of a cache object, which the kernel allows since Linux 6.4.
    KindMismatchLegal,
    /// An object was freed to another cache.
    CacheMismatch,
    /// An address was freed twice without an allocation in between.
    FreeAfterFree,
    /// An address was allocated again without a free in between.
    InferredFree,
    /// An allocation took fewer bytes than the caller asked for.
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

    /// True for a class whose findings may be due to objects freed and allocated on paths without events: the kind or the cache of
    /// the address has changed unseen.
    pub fn may_be_unseen(self) -> bool {
        matches!(self, Finding::KindMismatch | Finding::KindMismatchLegal | Finding::CacheMismatch)
    }

    /// True for a class that is an error of the kernel where nothing known explains it.
    pub fn is_error(self) -> bool {
        matches!(self, Finding::KindMismatch | Finding::CacheMismatch)
    }

    /// Name in the contract.
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
    /// Number of the allocation's origin.
    pub(crate) alloc: Option<u32>,
    pub(crate) free_site: Option<u64>,
    pub(crate) kind: Kind,
}

impl FindingKey {
    /// True where at least one inferred free of the origin has no gap that may explain it.
    pub(crate) fn is_unexplained(&self, row: &FindingRow) -> bool {
        self.class == Finding::InferredFree && row.count > row.suspect
    }
}

/// [`FindingKey`] with the call-sites themselves, where rows have them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct FindingSites {
    pub(crate) class: Finding,
    pub(crate) alloc_site: Option<u64>,
    pub(crate) free_site: Option<u64>,
    pub(crate) kind: Kind,
}

/// Number of findings of one key, and the first of them.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct FindingRow {
    pub(crate) count: u64,
    /// Findings that loss or a clock may explain.
    pub(crate) suspect: u64,
    /// Findings, not suspect, of objects whose call-site has others that are freed on paths without events. Known at the end.
    pub(crate) unseen: u64,
    /// Key, CPU and address of the first.
    pub(crate) first: (u64, u32, u64),
    /// Number of the first in the total order.
    pub(crate) serial: u64,
}

/// Findings of one partition, in the order of its events.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    by_key: HashMap<FindingKey, FindingRow, RandomState>,
    /// Inferred frees, by far the most frequent, by origin of the allocation; also of objects that the filters do not take.
    inferred: Vec<Option<(Kind, FindingRow)>>,
    /// Findings that are suspect if a gap begins at their key.
    open: Vec<FindingKey>,
}

impl Findings {
    /// Counts a finding; `row` is the one to keep if the finding is the first of its key.
    #[inline]
    pub(crate) fn count(&mut self, key: FindingKey, row: FindingRow, suspicion: Suspicion) {
        let row = self.row(key, row);
        row.count += 1;
        row.suspect += u64::from(suspicion == Suspicion::Suspect);
        if suspicion == Suspicion::Open {
            self.open.push(key);
        }
    }

    /// Counts an inferred free of an origin that has one already; false where it has none.
    #[inline(always)]
    pub(crate) fn infer_again(&mut self, alloc: u32, suspicion: Suspicion) -> bool {
        let Some(Some((_, row))) = self.inferred.get_mut(alloc as usize) else { return false };
        row.count += 1;
        row.suspect += u64::from(suspicion == Suspicion::Suspect);
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

    /// Decides on the open findings.
    #[inline]
    pub(crate) fn decide_open(&mut self, fate: OpenFindings) {
        match fate {
            OpenFindings::Suspect => self.suspect_open(),
            OpenFindings::Unexplained => self.open.clear(),
            OpenFindings::StillOpen => {}
        }
    }

    /// Makes the open findings suspect: a gap begins at their key.
    fn suspect_open(&mut self) {
        for key in std::mem::take(&mut self.open) {
            let nothing = FindingRow { count: 0, suspect: 0, unseen: 0, first: (0, 0, 0), serial: 0 };
            self.row(key, nothing).suspect += 1;
        }
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
    /// Adds the findings of another partition.
    pub(crate) fn add(&mut self, other: &FindingRow) {
        self.count += other.count;
        self.suspect += other.suspect;
        self.unseen += other.unseen;
        if other.serial < self.serial {
            (self.first, self.serial) = (other.first, other.serial);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(class: Finding, alloc: Option<u32>) -> FindingKey {
        FindingKey { class, alloc, free_site: None, kind: Kind::Cache }
    }

    fn first(serial: u64) -> FindingRow {
        FindingRow { count: 0, suspect: 0, unseen: 0, first: (10 * serial, 1, 0x40 * serial), serial }
    }

    fn counts(findings: &Findings) -> Vec<(Finding, Option<u32>, u64, u64, u64)> {
        let row = |(key, row): (FindingKey, FindingRow)| (key.class, key.alloc, row.count, row.suspect, row.serial);
        let mut rows: Vec<_> = findings.rows().map(row).collect();
        rows.sort_unstable();
        rows
    }

    /// Findings of one class and row are counted together and keep the first of them, inferred frees as all others.
    #[test]
    fn findings_of_one_key_are_one_row() {
        let mut findings = Findings::default();
        assert!(!findings.infer_again(3, Suspicion::Unexplained));
        findings.count(key(Finding::InferredFree, Some(3)), first(1), Suspicion::Unexplained);
        assert!(
            findings.infer_again(3, Suspicion::Suspect)
                && !findings.infer_again(2, Suspicion::Suspect)
                && !findings.infer_again(4, Suspicion::Suspect)
        );
        findings.count(key(Finding::InferredFree, Some(0)), first(2), Suspicion::Suspect);
        findings.count(key(Finding::FreeAfterFree, None), first(3), Suspicion::Suspect);
        findings.count(key(Finding::FreeAfterFree, None), first(4), Suspicion::Unexplained);
        findings.count(key(Finding::ShortAlloc, Some(3)), first(5), Suspicion::Unexplained);
        let expected = [
            (Finding::FreeAfterFree, None, 2, 1, 3),
            (Finding::InferredFree, Some(0), 1, 1, 2),
            (Finding::InferredFree, Some(3), 2, 1, 1),
            (Finding::ShortAlloc, Some(3), 1, 0, 5),
        ];
        assert_eq!(counts(&findings), expected);
    }

    /// A finding at the frontier is suspect once a gap turns out to begin there, and only then, and once.
    #[test]
    fn an_open_finding_is_suspect_where_a_gap_begins() {
        for (fate, suspect) in [(OpenFindings::Suspect, 1), (OpenFindings::Unexplained, 0)] {
            let mut findings = Findings::default();
            for class in [Finding::InferredFree, Finding::CacheMismatch] {
                findings.count(key(class, Some(1)), first(1), Suspicion::Open);
                findings.count(key(class, Some(1)), first(2), Suspicion::Unexplained);
            }
            findings.decide_open(OpenFindings::StillOpen);
            findings.decide_open(fate);
            findings.decide_open(OpenFindings::Suspect);
            let expected = [Finding::CacheMismatch, Finding::InferredFree].map(|class| (class, Some(1), 2, suspect, 1));
            assert_eq!(counts(&findings), expected);
        }
    }

    /// Two partitions: the first finding of the sum has the lower number in the trace.
    #[test]
    fn the_first_finding_of_a_sum_is_the_earlier_one() {
        for serials in [[5, 9], [9, 5]] {
            let [mut sum, other] = serials.map(|serial| FindingRow { count: serial, suspect: 1, ..first(serial) });
            sum.add(&other);
            assert_eq!((sum.count, sum.suspect), (14, 2));
            assert_eq!((sum.first, sum.serial), ((50, 1, 0x140), 5));
        }
    }

    /// Live bytes are an upper bound where an inferred free has no gap that explains it.
    #[test]
    fn an_inferred_free_is_unexplained_unless_all_are_suspect() {
        let row = |count, suspect| FindingRow { count, suspect, ..first(1) };
        assert!(key(Finding::InferredFree, Some(1)).is_unexplained(&row(3, 2)));
        assert!(!key(Finding::InferredFree, Some(1)).is_unexplained(&row(3, 3)));
        assert!(!key(Finding::FreeAfterFree, Some(1)).is_unexplained(&row(3, 2)));
    }
}
