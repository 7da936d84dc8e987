//! Names of caches learned from frees: kernels 6.1 to 6.17 name the cache in the free event alone.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use crate::account::classes::CacheNumber;
use crate::pairing::loss::{OpenFindings, Suspicion};

/// Origin and bytes allocated of objects.
type OriginAndSize = (u32, u64);

/// Name that frees of objects from one place have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LearnedName {
    /// All frees name this cache.
    One(CacheNumber),
    /// Frees name different caches.
    Several,
}

impl LearnedName {
    /// Name of two groups of frees together.
    pub(crate) fn and(self, other: LearnedName) -> LearnedName {
        if self == other { self } else { LearnedName::Several }
    }
}

/// Names that pairs without suspicion have, by origin and size of the allocation.
#[derive(Debug, Default)]
pub(crate) struct CacheLearner {
    names: HashMap<OriginAndSize, LearnedName, RandomState>,
    /// Pairs that are suspect if a gap begins at their key.
    open: Vec<(OriginAndSize, CacheNumber)>,
}

impl CacheLearner {
    /// Takes a pair whose free names the cache.
    pub(crate) fn take(&mut self, place: OriginAndSize, cache: CacheNumber, suspicion: Suspicion) {
        match suspicion {
            Suspicion::Suspect => {}
            Suspicion::Open => self.open.push((place, cache)),
            Suspicion::Unexplained => self.learn(place, cache),
        }
    }

    fn learn(&mut self, place: OriginAndSize, cache: CacheNumber) {
        let name = LearnedName::One(cache);
        self.names.entry(place).and_modify(|known| *known = known.and(name)).or_insert(name);
    }

    /// Decides on the open pairs.
    pub(crate) fn decide_open(&mut self, fate: OpenFindings) {
        match fate {
            OpenFindings::Suspect => self.open.clear(),
            OpenFindings::Unexplained => self.learn_open(),
            OpenFindings::StillOpen => {}
        }
    }

    fn learn_open(&mut self) {
        for (place, cache) in std::mem::take(&mut self.open) {
            self.learn(place, cache);
        }
    }

    /// All names. No gap has begun at the key of the open pairs.
    pub(crate) fn finish(mut self) -> impl Iterator<Item = (OriginAndSize, LearnedName)> {
        self.learn_open();
        self.names.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_whose_frees_name_two_caches_has_no_name() {
        let mut learner = CacheLearner::default();
        learner.take((1, 64), 5, Suspicion::Unexplained);
        learner.take((1, 64), 5, Suspicion::Unexplained);
        learner.take((1, 128), 5, Suspicion::Unexplained);
        learner.take((1, 128), 6, Suspicion::Unexplained);
        learner.take((2, 64), 6, Suspicion::Suspect);
        let mut names: Vec<_> = learner.finish().collect();
        names.sort_unstable_by_key(|(place, _)| *place);
        assert_eq!(names, [((1, 64), LearnedName::One(5)), ((1, 128), LearnedName::Several)]);
    }

    /// A pair at the frontier teaches nothing where a gap turns out to begin there.
    #[test]
    fn an_open_pair_waits_for_the_next_window() {
        for (fate, learned) in
            [(OpenFindings::Suspect, 0), (OpenFindings::Unexplained, 1), (OpenFindings::StillOpen, 1)]
        {
            let mut learner = CacheLearner::default();
            learner.take((1, 64), 5, Suspicion::Open);
            learner.decide_open(fate);
            assert_eq!(learner.finish().count(), learned);
        }
    }
}
