//! Entries of a text, each in 24 bytes, or added up where they are alike.

use std::cmp::Reverse;

use crate::stack::StackId;

/// Entries whose memory is given back at once.
const SHRINK_EVERY: usize = 1 << 18;
/// Least number of entries that are added up at once.
const AT_ONCE: usize = 1 << 16;

/// Entry: its time, its address, its stack, and the number of its facts. 24 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kept {
    pub(super) at: u64,
    pub(super) address: u64,
    pub(super) stack: Option<StackId>,
    pub(super) facts: u32,
}

impl Kept {
    /// Entries with the same key are alike.
    fn key(&self) -> (Option<StackId>, u32) {
        (self.stack, self.facts)
    }

    /// Order of the events.
    fn order(&self) -> (u64, u64) {
        (self.at, self.address)
    }
}

/// Entries of one stack and the same facts: the oldest one, the time of the latest, and their number. 40 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Alike {
    pub(super) oldest: Kept,
    pub(super) newest: u64,
    pub(super) entries: u64,
}

impl From<Kept> for Alike {
    fn from(kept: Kept) -> Alike {
        Alike { oldest: kept, newest: kept.at, entries: 1 }
    }
}

impl Alike {
    fn add(&mut self, more: &Alike) {
        self.entries = self.entries.saturating_add(more.entries);
        self.newest = self.newest.max(more.newest);
        if more.oldest.order() < self.oldest.order() {
            self.oldest = more.oldest;
        }
    }
}

/// Entries in any order; once they are sorted, those handed over first are at the end.
///
/// Where alike ones are added up, an entry that no other is like keeps its 24 bytes, and two or more have 40 together: however many
/// combinations of threads and stacks a text has, its entries never take more than one by one. A table of the combinations would.
#[derive(Debug)]
pub(super) struct Store {
    is_alike: bool,
    /// Entries one by one; the first `settled` of them differ.
    single: Vec<Kept>,
    settled: usize,
    /// Entries that were added up.
    several: Vec<Alike>,
}

impl Store {
    /// An empty store; `is_alike`: alike entries are added up.
    pub(super) fn new(is_alike: bool) -> Store {
        Store { is_alike, single: Vec::new(), settled: 0, several: Vec::new() }
    }

    /// Number of events that the entries make.
    pub(super) fn len(&self) -> usize {
        self.single.len().saturating_add(self.several.len())
    }

    /// True where alike entries are added up.
    pub(super) fn is_alike(&self) -> bool {
        self.is_alike
    }

    pub(super) fn push(&mut self, kept: Kept) {
        self.single.push(kept);
        let waiting = self.single.len().saturating_sub(self.settled);
        // What has been added up is sorted again each time, so that waits until there is half as much to add.
        let known = self.settled.saturating_add(self.several.len());
        if self.is_alike && waiting >= AT_ONCE.max(known / 2) {
            self.add_up();
        }
    }

    /// Adds entries of another store.
    pub(super) fn add(&mut self, more: Alike) {
        if more.entries == 1 {
            self.push(more.oldest);
        } else {
            self.several.push(more);
        }
    }

    /// Adds up entries that are alike, in place.
    fn add_up(&mut self) {
        self.several.sort_unstable_by_key(|alike| alike.oldest.key());
        self.several.dedup_by(|more, alike| {
            let is_alike = more.oldest.key() == alike.oldest.key();
            if is_alike {
                alike.add(more);
            }
            is_alike
        });
        self.single.sort_unstable_by_key(Kept::key);
        let mut known = self.several.iter_mut().peekable();
        let mut new: Vec<Alike> = Vec::new();
        let mut run: Option<Alike> = None;
        let mut single = std::mem::take(&mut self.single);
        let mut kept_single = 0usize;
        let mut end_run = |run: Alike, single: &mut [Kept]| {
            while known.next_if(|alike| alike.oldest.key() < run.oldest.key()).is_some() {}
            if let Some(alike) = known.peek_mut().filter(|alike| alike.oldest.key() == run.oldest.key()) {
                alike.add(&run);
            } else if run.entries > 1 {
                new.push(run);
            } else if let Some(place) = single.get_mut(kept_single) {
                *place = run.oldest;
                kept_single = kept_single.saturating_add(1);
            }
        };
        for index in 0..single.len() {
            let Some(entry) = single.get(index).copied() else { break };
            match &mut run {
                Some(run) if run.oldest.key() == entry.key() => run.add(&entry.into()),
                _ => {
                    if let Some(ended) = run.replace(entry.into()) {
                        end_run(ended, &mut single);
                    }
                }
            }
        }
        if let Some(ended) = run {
            end_run(ended, &mut single);
        }
        single.truncate(kept_single);
        single.shrink_to(kept_single.saturating_add(AT_ONCE));
        self.settled = kept_single;
        self.single = single;
        self.several.append(&mut new);
    }

    /// Hands over each entry, or those that are alike together.
    pub(super) fn each(&self, mut take: impl FnMut(Alike)) {
        self.single.iter().for_each(|kept| take((*kept).into()));
        self.several.iter().for_each(|alike| take(*alike));
    }

    /// Adds up what is left, and sorts: [`Store::take`] hands over the oldest one from here on.
    pub(super) fn sort(&mut self) {
        if self.is_alike {
            self.add_up();
        }
        // Texts without times have their entries in the order in which their facts came.
        let order = |kept: &Kept| Reverse((kept.order(), kept.facts, kept.stack));
        self.single.sort_unstable_by_key(order);
        self.several.sort_unstable_by_key(|alike| order(&alike.oldest));
    }

    /// Takes the oldest entry.
    pub(super) fn take(&mut self) -> Option<Alike> {
        let order = |kept: &Kept| (kept.order(), kept.facts, kept.stack);
        let is_several = match (self.single.last(), self.several.last()) {
            (Some(single), Some(several)) => order(&several.oldest) < order(single),
            (_, several) => several.is_some(),
        };
        if is_several {
            let taken = self.several.pop();
            give_back(&mut self.several);
            return taken;
        }
        let taken = self.single.pop();
        give_back(&mut self.single);
        taken.map(Alike::from)
    }
}

/// Gives back the memory of elements that were taken, now and then.
fn give_back<T>(list: &mut Vec<T>) {
    if list.len().is_multiple_of(SHRINK_EVERY) {
        list.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::stack::Stacks;

    /// Entries of some stacks and facts, most of which come again, and some of which do not.
    fn entries(n: u64) -> Vec<Kept> {
        let mut stacks = Stacks::default();
        let entry = |n: u64| {
            let mixed = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
            let number = if n.is_multiple_of(3) { n } else { mixed % 97 };
            let stack = (!number.is_multiple_of(5)).then(|| stacks.intern(&[number]));
            Kept { at: mixed % 1000, address: n, stack, facts: (mixed % 7) as u32 }
        };
        (0..n).map(entry).collect()
    }

    #[test]
    fn alike_entries_are_added_up_in_any_order() {
        // More than are added up at once, twice.
        let entries = entries(3 * AT_ONCE as u64 + 17);
        let mut want: BTreeMap<(Option<StackId>, u32), Alike> = BTreeMap::new();
        let mut store = Store::new(true);
        for kept in &entries {
            want.entry(kept.key()).and_modify(|alike| alike.add(&(*kept).into())).or_insert((*kept).into());
            store.push(*kept);
        }
        let mut joined = Store::new(true);
        store.each(|alike| joined.add(alike));
        store.each(|alike| joined.add(alike));
        for (mut store, times) in [(store, 1), (joined, 2)] {
            store.sort();
            assert_eq!(store.len(), want.len());
            let mut found = BTreeMap::new();
            let mut latest = (0, 0);
            while let Some(alike) = store.take() {
                assert!(latest <= alike.oldest.order());
                latest = alike.oldest.order();
                assert!(found.insert(alike.oldest.key(), alike).is_none(), "{alike:?} comes twice");
            }
            let want = want.iter().map(|(key, alike)| (*key, Alike { entries: alike.entries * times, ..*alike }));
            assert_eq!(found, want.collect());
        }
    }

    #[test]
    fn an_entry_takes_24_bytes_alone_or_added_up() {
        assert_eq!((size_of::<Kept>(), size_of::<Alike>()), (24, 40));
        for is_alike in [true, false] {
            let mut store = Store::new(is_alike);
            let all = entries(AT_ONCE as u64 * 4);
            all.iter().for_each(|kept| store.push(*kept));
            let bytes = store.single.len() * size_of::<Kept>() + store.several.len() * size_of::<Alike>();
            assert!(bytes <= all.len() * 24, "{bytes}");
            // Several entries of the order of two are handed over oldest first, whichever list they are in.
            store.sort();
            assert_eq!(store.take().map(|alike| alike.oldest.at), all.iter().map(|kept| kept.at).min());
        }
    }
}
