//! `mismatch`: findings, grouped by class and by the two sides of the pair.

use std::cmp::Reverse;

use kmemtrace_abi::event::Kind;

use super::naming::{AllocPlace, FreePlace, Naming};
use super::ranked::{Listing, Others};
use super::row::{Address, EventPlace, Name, Rows, row};
use crate::pairing::findings::{Finding, FindingRow, FindingSites};
use crate::pairing::result::PairingResult;

row! {
    /// Row of `mismatch`: findings of one class between the same two call-sites.
    pub struct MismatchRow<'a> {
        /// Class of the findings.
        pub class: Finding,
        /// Call-site of the allocation.
        pub alloc_site: Option<Address>,
        /// `function+0x1f` of the allocation.
        pub alloc_symbol: Name<'a>,
        /// Place of the allocation in the sources.
        pub alloc_place: AllocPlace,
        /// Call-site of the free.
        pub free_site: Option<Address>,
        /// `function+0x1f` of the free.
        pub free_symbol: Name<'a>,
        /// Place of the free in the sources.
        pub free_place: FreePlace,
        /// Kind of the object.
        pub kind: Kind,
        /// Number of findings.
        pub count: u64,
        /// Number of findings that a gap may explain.
        pub suspect: u64,
        /// Number of findings, not suspect, of objects whose call-site has others that are freed on paths without events; `None`
        /// for classes that these do not explain.
        pub unseen: Option<u64>,
        /// Place of the first one.
        pub first: EventPlace,
    }
}

row! {
    /// Sum of findings left out.
    pub struct OtherFindings {
        /// Number of findings.
        pub count: u64,
        /// Number of findings that a gap may explain.
        pub suspect: u64,
        /// Number of findings, not suspect, of objects whose call-site has others that are freed on paths without events.
        pub unseen: u64,
    }
}

impl MismatchRow<'_> {
    /// Number of findings that nothing known explains.
    pub fn errors(&self) -> u64 {
        if self.class.is_error() { self.count - self.suspect - self.unseen.unwrap_or(0) } else { 0 }
    }
}

/// The listing of `mismatch`.
pub(super) fn mismatch<'a>(
    paired: &'a PairingResult,
    naming: Naming<'a>,
    compares: impl Fn(Kind) -> bool,
    top: Option<usize>,
    classes: &[Finding],
) -> Listing<'a, MismatchRow<'a>, OtherFindings> {
    let errors = |(key, row): &(&FindingSites, &FindingRow)| {
        if key.class.is_error() { row.count - row.suspect - row.unseen } else { 0 }
    };
    let is_asked = |key: &FindingSites| compares(key.kind) && (classes.is_empty() || classes.contains(&key.class));
    let mut rows: Vec<(&FindingSites, &FindingRow)> = paired.findings.iter().filter(|(key, _)| is_asked(key)).collect();
    rows.sort_by_key(|found| {
        let (key, row) = found;
        (errors(found) == 0, Reverse(row.count), key.class, key.alloc_site, key.free_site, key.kind)
    });
    let template = rows.first().map(|(key, found)| row(naming, key, found));
    let rest = rows.split_off(top.unwrap_or(rows.len()).min(rows.len()));
    let sum = |figure: fn(&FindingRow) -> u64| rest.iter().map(|(_, row)| figure(row)).sum();
    let others = || {
        let (count, suspect, unseen) = (sum(|row| row.count), sum(|row| row.suspect), sum(|row| row.unseen));
        Others::one(rest.len(), OtherFindings { count, suspect, unseen })
    };
    let others = (!rest.is_empty()).then(others);
    Listing::new(Rows::of(rows, move |(key, found)| row(naming, key, found)), others, template)
}

fn row<'a>(naming: Naming<'a>, key: &FindingSites, found: &FindingRow) -> MismatchRow<'a> {
    let (at, cpu, address) = found.first;
    MismatchRow {
        class: key.class,
        alloc_site: key.alloc_site.map(Address),
        alloc_symbol: naming.symbol(key.alloc_site),
        alloc_place: AllocPlace(key.alloc_site.map(|site| naming.place(site))),
        free_site: key.free_site.map(Address),
        free_symbol: naming.symbol(key.free_site),
        free_place: FreePlace(key.free_site.map(|site| naming.place(site))),
        kind: key.kind,
        count: found.count,
        suspect: found.suspect,
        unseen: key.class.may_be_unseen().then_some(found.unseen),
        first: EventPlace { at, cpu, address: Address(address) },
    }
}
