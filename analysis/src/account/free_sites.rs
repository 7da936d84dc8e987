//! Frees by the call-site that made them.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use kmemtrace_abi::event::{Kind, Space};

/// Numbers of free events by call-site and space.
#[derive(Clone, Debug, Default)]
pub(crate) struct FreeSites {
    counts: HashMap<(u64, Space), u64, RandomState>,
}

impl FreeSites {
    /// Counts a free.
    pub(crate) fn count(&mut self, call_site: u64, kind: Kind) {
        *self.counts.entry((call_site, kind.space())).or_default() += 1;
    }

    /// Adds the counts of another partition.
    pub(crate) fn add(&mut self, other: &FreeSites) {
        for (site, n) in &other.counts {
            *self.counts.entry(*site).or_default() += n;
        }
    }

    /// Bytes of memory.
    pub(crate) fn bytes(&self) -> usize {
        self.counts.capacity() * size_of::<((u64, Space), u64)>()
    }

    /// Number of call-sites.
    pub(crate) fn len(&self) -> usize {
        self.counts.len()
    }

    /// Call-sites and their frees of a space, in no order.
    pub(crate) fn iter(&self, space: Space) -> impl Iterator<Item = (u64, u64)> + '_ {
        let of_kind = self.counts.iter().filter(move |((_, of), _)| *of == space);
        of_kind.map(|((site, _), n)| (*site, *n))
    }
}
