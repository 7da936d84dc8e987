//! Classes of objects: a number for each combination of row, kind, cache and sizes.
//!
//! All threads share the numbers. A thread keeps the numbers it has seen, so that the lock is rarely taken.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use foldhash::fast::RandomState;
use kmemtrace_abi::event::{Kind, Names};

/// Key of a row: its call-site or its cache, and its kind.
pub(crate) type RowKey = (u64, Kind);

/// Members that make a row, beside the kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Grouping {
    /// No member: a row per kind.
    #[default]
    Kind,
    /// The call-site of the allocation.
    Site,
    /// The name of the cache in the allocation event.
    Cache,
}

/// The cache of a row of [`Grouping::Cache`], as a [`kmemtrace_abi::event::NameId::index`].
pub(crate) fn cache_of(key: RowKey) -> Option<usize> {
    key.0.checked_sub(1).map(|index| index as usize)
}

/// No class: an object that the filters do not take.
pub(crate) const UNSELECTED: u32 = (1 << 29) - 1;

/// A number for a cache name: 0 for none, else one more than its index.
pub(crate) type CacheNumber = u32;

/// Limit of classes with sizes of their own. Objects beyond it keep their sizes themselves, so that the number of classes does
/// not grow with every size that a hostile trace makes up.
pub(crate) const MAX_SIZED_CLASSES: u32 = 1 << 18;

/// Members that all objects of a class share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Class {
    pub(crate) row: u32,
    pub(crate) cache: CacheNumber,
    pub(crate) kind: Kind,
    /// True if all objects of the class have its sizes.
    pub(crate) is_sized: bool,
    pub(crate) requested: u64,
    pub(crate) allocated: u64,
}

/// All rows and classes by their numbers.
#[derive(Debug)]
pub(crate) struct Registry {
    /// Names of caches and events.
    pub(crate) names: Names,
    /// Keys, by the number of the row.
    pub(crate) rows: Vec<RowKey>,
    by_row: HashMap<RowKey, u32, RandomState>,
    max_sized: u32,
    classes: Vec<Class>,
    by_class: HashMap<Class, u32, RandomState>,
    /// True if there were more classes than numbers.
    pub(crate) exhausted: bool,
}

/// The registry as threads share it.
#[derive(Debug)]
pub(crate) struct Classes(Mutex<Registry>);

impl Classes {
    pub(crate) fn new(names: Names, max_sized: u32) -> Classes {
        Classes(Mutex::new(Registry {
            names,
            rows: Vec::new(),
            by_row: HashMap::default(),
            max_sized,
            classes: Vec::new(),
            by_class: HashMap::default(),
            exhausted: false,
        }))
    }

    fn lock(&self) -> MutexGuard<'_, Registry> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of a cache.
    pub(crate) fn cache(&self, name: &[u8]) -> CacheNumber {
        (self.lock().names.intern(name).index() as u32).saturating_add(1)
    }

    /// The class of objects of these sizes that count in the row `key` and come from `cache`.
    pub(crate) fn class(&self, key: RowKey, cache: CacheNumber, (requested, allocated): (u64, u64)) -> u32 {
        let registry = &mut *self.lock();
        let next = registry.rows.len() as u32;
        let row = *registry.by_row.entry(key).or_insert(next);
        if row == next {
            registry.rows.push(key);
        }
        let sized = Class { row, cache, kind: key.1, is_sized: true, requested, allocated };
        let next = registry.classes.len() as u32;
        if let Some(&number) = registry.by_class.get(&sized) {
            return number;
        }
        let class = if next < registry.max_sized {
            sized
        } else {
            Class { is_sized: false, requested: 0, allocated: 0, ..sized }
        };
        let number = *registry.by_class.entry(class).or_insert(next);
        if number == next {
            if next >= UNSELECTED {
                registry.exhausted = true;
                return UNSELECTED;
            }
            registry.classes.push(class);
        }
        number
    }

    /// Hands the classes from number `from` on to `take`.
    pub(crate) fn from(&self, from: usize, take: impl FnMut(&Class)) {
        self.lock().classes.get(from..).unwrap_or_default().iter().for_each(take);
    }

    /// Number of rows.
    pub(crate) fn rows(&self) -> usize {
        self.lock().rows.len()
    }

    pub(crate) fn into_inner(self) -> Registry {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(classes: &Classes) -> Vec<Class> {
        let mut all = Vec::new();
        classes.from(0, |class| all.push(*class));
        all
    }

    #[test]
    fn equal_objects_have_one_class_and_rows_one_number() {
        let classes = Classes::new(Names::new(), 100);
        let cache = classes.cache(b"dentry");
        assert_eq!((classes.cache(b"dentry"), cache != 0, classes.cache(b"inode") != cache), (cache, true, true));
        let (cached, kmalloc) = ((7, Kind::Cache), (7, Kind::Kmalloc));
        let first = classes.class(cached, cache, (10, 16));
        let others = [
            classes.class(kmalloc, cache, (10, 16)),
            classes.class(cached, 0, (10, 16)),
            classes.class(cached, cache, (11, 16)),
            classes.class(cached, cache, (10, 32)),
        ];
        assert_eq!(classes.class(cached, cache, (10, 16)), first);
        assert_eq!((first, others), (0, [1, 2, 3, 4]));
        assert_eq!(all(&classes).iter().map(|class| class.row).collect::<Vec<_>>(), [0, 1, 0, 0, 0]);
        assert_eq!(classes.rows(), 2);
        let mut later = 0;
        classes.from(3, |_| later += 1);
        assert_eq!(later, 2);
        assert_eq!(classes.into_inner().rows, [cached, kmalloc]);
    }

    /// A trace that makes up sizes makes no more classes: beyond the limit one of a row and a cache is for all of them.
    #[test]
    fn sizes_beyond_the_limit_share_a_class() {
        let classes = Classes::new(Names::new(), 3);
        let row = (7, Kind::Cache);
        let numbers: Vec<u32> = (0..1000).map(|n| classes.class(row, 1, (n, 2 * n))).collect();
        assert_eq!(numbers[..4], [0, 1, 2, 3]);
        assert!(numbers[3..].iter().all(|&number| number == 3));
        // Classes that have their sizes keep them.
        assert_eq!(classes.class(row, 1, (1, 2)), 1);
        let shared = Class { row: 0, cache: 1, kind: Kind::Cache, is_sized: false, requested: 0, allocated: 0 };
        assert_eq!(all(&classes)[3..], [shared]);
        assert_eq!(classes.class((8, Kind::Cache), 1, (5, 5)), 4);
        assert!(!classes.into_inner().exhausted);
    }

    #[test]
    fn a_cache_comes_back_from_the_key_of_its_row() {
        assert_eq!([0, 1, 9].map(|number| cache_of((number, Kind::Cache))), [None, Some(0), Some(8)]);
    }
}
