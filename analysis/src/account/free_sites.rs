//! Frees by the call-site that made them.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use kmemtrace_abi::event::Kind;

/// Numbers of free events by call-site: those of `kmalloc` and `cache` apart from those of `pages`.
#[derive(Clone, Debug, Default)]
pub(crate) struct FreeSites {
    counts: HashMap<(u64, bool), u64, RandomState>,
}

impl FreeSites {
    /// Counts a free.
    pub(crate) fn count(&mut self, call_site: u64, kind: Kind) {
        *self.counts.entry((call_site, kind == Kind::Pages)).or_default() += 1;
    }

    /// Adds the counts of another partition.
    pub(crate) fn add(&mut self, other: &FreeSites) {
        for (site, n) in &other.counts {
            *self.counts.entry(*site).or_default() += n;
        }
    }

    /// Bytes of memory.
    pub(crate) fn bytes(&self) -> usize {
        self.counts.capacity() * size_of::<((u64, bool), u64)>()
    }

    /// Number of call-sites.
    pub(crate) fn len(&self) -> usize {
        self.counts.len()
    }

    /// Call-sites and their frees, in no order: those of `pages`, or those of `kmalloc` and `cache`.
    pub(crate) fn iter(&self, is_pages: bool) -> impl Iterator<Item = (u64, u64)> + '_ {
        let of_kind = self.counts.iter().filter(move |((_, pages), _)| *pages == is_pages);
        of_kind.map(|((site, _), n)| (*site, *n))
    }
}
