//! `mismatch`: findings, grouped by class and by the two sides of the pair.

use std::cmp::Reverse;

use kmemtrace_abi::event::Kind;
use serde::Serialize;

use super::naming::Naming;
use super::ranked::{Listing, rank, split_others};
use super::row::{Address, EventPlace, Name, Rows, row};
use crate::pairing::findings::Finding;
use crate::pairing::pairs::PairingResult;

row! {
    /// Row of `mismatch`: findings of one class between the same two call-sites.
    pub struct MismatchRow<'a> {
        /// Class of the findings.
        pub class: Finding,
        /// Call-site of the allocation.
        pub alloc_site: Option<Address>,
        /// `function+0x1f` of the allocation.
        pub alloc_symbol: Name<'a>,
        /// Call-site of the free.
        pub free_site: Option<Address>,
        /// `function+0x1f` of the free.
        pub free_symbol: Name<'a>,
        /// Kind of the object.
        pub kind: Kind,
        /// Number of findings.
        pub count: u64,
        /// Number of findings that a gap may explain.
        pub suspect: u64,
        /// Place of the first one.
        pub first: EventPlace,
    }
}

/// Sum of findings left out.
#[derive(Clone, Debug, Serialize)]
pub struct OtherFindings {
    /// Number of findings.
    pub count: u64,
    /// Number of findings that a gap may explain.
    pub suspect: u64,
}

/// The listing of `mismatch`.
pub(super) fn mismatch<'a>(
    paired: &'a PairingResult,
    naming: Naming<'a>,
    top: Option<usize>,
) -> Listing<'a, MismatchRow<'a>, OtherFindings> {
    let mut rows: Vec<_> = paired.findings.iter().collect();
    rows.sort_by_key(|(key, row)| (Reverse(row.count), key.class, key.alloc_site, key.free_site, rank(key.kind)));
    let others = split_others(&mut rows, top, |rest| OtherFindings {
        count: rest.iter().map(|(_, row)| row.count).sum(),
        suspect: rest.iter().map(|(_, row)| row.suspect).sum(),
    });
    let rows = Rows::of(rows, move |(key, found)| {
        let (at, cpu, address) = found.first;
        MismatchRow {
            class: key.class,
            alloc_site: key.alloc_site.map(Address),
            alloc_symbol: naming.symbol(key.alloc_site),
            free_site: key.free_site.map(Address),
            free_symbol: naming.symbol(key.free_site),
            kind: key.kind,
            count: found.count,
            suspect: found.suspect,
            first: EventPlace { at, cpu, address: Address(address) },
        }
    });
    Listing { rows, others }
}
