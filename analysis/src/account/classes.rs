//! Classes of objects: a number for each combination of row, call-site, kind, cache and sizes.
//!
//! All threads share the numbers. A thread keeps the numbers it has seen, so that the lock is rarely taken.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};

use foldhash::fast::RandomState;
use kmemtrace_abi::event::{Kind, Names};
use serde::{Deserialize, Serialize};

use crate::account::grouping::{GroupKey, GroupValue, Grouping, ModuleRule, NO_VALUE, RowKey, ValueLists};
use crate::account::place_paths::PlaceSteps;
use crate::account::row_paths::{NO_FRAME, SharedPaths, Step};
use crate::account::stacks::{KnownStacks, StackNumber, StackTable};
use crate::names::caches::CacheFrom;
use crate::names::reclaim::Reclaim;

/// Numbers below are classes of objects that the filters take; those from here on are classes of objects that they do not take,
/// and stand for an origin: [`FIRST_UNSELECTED`] and the number of the origin.
const FIRST_UNSELECTED: u32 = 1 << 28;
/// Limit of classes of objects that the filters take.
pub(crate) const MAX_CLASSES: u32 = FIRST_UNSELECTED;

/// No class: an event that the filters do not take, or an object that is not taken and whose origin has no number.
pub(crate) const UNSELECTED: u32 = (1 << 29) - 1;

/// True for the class of an object that the filters take.
#[inline(always)]
pub(crate) fn is_selected(class: u32) -> bool {
    class < FIRST_UNSELECTED
}

/// Origin of an object that the filters do not take.
pub(crate) fn origin_of_unselected(class: u32) -> Option<u32> {
    (!is_selected(class) && class != UNSELECTED).then(|| class - FIRST_UNSELECTED)
}

/// A number for a cache name: 0 for none, else one more than its index.
pub(crate) type CacheNumber = u32;

/// Limit of classes with sizes of their own. Objects beyond it keep their sizes themselves, so that the number of classes does
/// not grow with every size that a hostile trace makes up.
pub(crate) const MAX_SIZED_CLASSES: u32 = 1 << 18;

/// Members that all objects of a class share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Class {
    pub(crate) row: u32,
    /// Number of the pair of row and call-site.
    pub(crate) origin: u32,
    pub(crate) cache: CacheNumber,
    /// Origin of the cache's name, of objects of `kmem_cache_alloc` if rows are made of caches.
    pub(crate) cache_from: Option<CacheFrom>,
    /// Whether the kernel takes the objects back by itself, where the query asks for it.
    pub(crate) reclaim: Reclaim,
    pub(crate) kind: Kind,
    /// True if all objects of the class have its sizes.
    pub(crate) is_sized: bool,
    pub(crate) requested: u64,
    pub(crate) allocated: u64,
}

/// Cache of the objects of a class, and what follows from it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ClassCache {
    pub(crate) number: CacheNumber,
    pub(crate) from: Option<CacheFrom>,
    pub(crate) reclaim: Reclaim,
}

impl From<(CacheNumber, Option<CacheFrom>)> for ClassCache {
    fn from((number, from): (CacheNumber, Option<CacheFrom>)) -> ClassCache {
        ClassCache { number, from, ..ClassCache::default() }
    }
}

/// Row and call-site that objects come from: findings are counted by both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Origin {
    /// Number of the row; `None` for objects that the filters do not take.
    pub(crate) row: Option<u32>,
    /// Number of the call-site and kind, whatever the grouping.
    pub(crate) site: u32,
}

/// A list whose elements have numbers, each element once.
#[derive(Debug)]
pub(crate) struct Numbered<T> {
    all: Vec<T>,
    numbers: HashMap<T, u32, RandomState>,
}

impl<T> Default for Numbered<T> {
    fn default() -> Self {
        Numbered { all: Vec::new(), numbers: HashMap::default() }
    }
}

impl<T: Copy + Eq + Hash> Numbered<T> {
    /// The element of this number.
    pub(crate) fn get(&self, number: u32) -> Option<T> {
        self.all.get(number as usize).copied()
    }

    /// The number of an element, which is added if it is new.
    pub(crate) fn number(&mut self, element: T) -> u32 {
        let next = self.all.len() as u32;
        let number = *self.numbers.entry(element).or_insert(next);
        if number == next {
            self.all.push(element);
        }
        number
    }
}

/// Nodes of rows, where a query wants them.
#[derive(Debug)]
pub(crate) struct NodesOfRows {
    /// Keys that nodes are made of.
    pub(crate) grouping: Grouping,
    pub(crate) rule: ModuleRule,
    /// Steps to call-sites, where nodes are places in the sources and not keys.
    pub(crate) places: Option<PlaceSteps>,
    pub(crate) paths: SharedPaths,
}

/// All rows and classes by their numbers.
#[derive(Debug)]
pub(crate) struct Registry {
    /// Names of caches and events, and of the commands and modules that rows are made of.
    pub(crate) names: Names,
    rows: Numbered<RowKey>,
    sites: Numbered<(u64, Kind)>,
    origins: Numbered<Origin>,
    lists: HashMap<Box<[GroupValue]>, u64, RandomState>,
    list_values: Vec<GroupValue>,
    /// Number of values of each list.
    list_len: usize,
    stacks: StackTable,
    /// Nodes of rows, where a query wants them.
    paths: Option<NodesOfRows>,
    max_sized: u32,
    classes: Numbered<Class>,
    /// Sites of cache objects that the filters do not take, each with its caches.
    unselected_caches: HashSet<(u32, CacheNumber), RandomState>,
    /// True if there were more classes than numbers.
    pub(crate) exhausted: bool,
    /// An event reported the load of a module.
    has_loads: bool,
}

impl Registry {
    /// The number of a row, which is added if it is new.
    fn row(&mut self, key: RowKey) -> u32 {
        let rows = self.rows.all.len();
        let row = self.rows.number(key);
        if self.rows.all.len() > rows {
            self.add_path(key);
        }
        row
    }

    /// Adds the nodes of a new row.
    fn add_path(&mut self, key: RowKey) {
        let Some(mut of) = self.paths.take() else { return };
        let steps = match &mut of.places {
            Some(places) => places.to(key.site),
            None => self.steps(key, of.grouping, of.rule),
        };
        of.paths.add(key.kind, steps.into_iter());
        self.paths = Some(of);
    }

    /// Steps to the values of a row's keys.
    fn steps(&mut self, key: RowKey, grouping: Grouping, rule: ModuleRule) -> Vec<Step> {
        let list = self.list_of(key.others);
        let mut others = list.iter().copied();
        let mut steps = Vec::new();
        for name in grouping.keys() {
            let value = if name == GroupKey::Site { key.site } else { others.next().unwrap_or(0) };
            match name {
                GroupKey::Stack => {
                    let frames = self.stacks.frames(u32::try_from(value).unwrap_or(0));
                    let none = frames.is_empty().then_some(NO_FRAME);
                    steps.extend(frames.iter().rev().copied().chain(none).map(|value| Step { key: name, value }));
                }
                GroupKey::Module if rule == ModuleRule::Any => {
                    let modules = self.names_of_list(value);
                    steps.extend(modules.into_iter().map(|value| Step { key: name, value }));
                }
                _ => steps.push(Step { key: name, value }),
            }
        }
        steps
    }

    fn list_of(&self, others: u64) -> Vec<GroupValue> {
        if self.list_len < 2 {
            return vec![others];
        }
        let from = usize::try_from(others).unwrap_or(usize::MAX).saturating_mul(self.list_len);
        self.list_values.get(from..from.saturating_add(self.list_len)).unwrap_or_default().to_vec()
    }

    /// Numbers of the names that the name of number `list` has with zeros between them; 0 for none.
    fn names_of_list(&mut self, list: GroupValue) -> Vec<GroupValue> {
        if list == NO_VALUE {
            return vec![NO_VALUE];
        }
        let index = usize::try_from(list).unwrap_or(usize::MAX).checked_sub(1);
        let Some(name) = index.and_then(|index| self.names.at(index)).map(<[u8]>::to_vec) else { return vec![0] };
        let names = name.split(|byte| *byte == 0);
        names.map(|name| self.names.intern(name).index() as u64 + 1).collect()
    }
}

/// Rows, call-sites and origins by their numbers, once all events were read.
#[derive(Debug)]
pub(crate) struct Numbers {
    pub(crate) names: Names,
    pub(crate) rows: Vec<RowKey>,
    /// Call-site and kind.
    pub(crate) sites: Vec<(u64, Kind)>,
    pub(crate) origins: Vec<Origin>,
    pub(crate) lists: ValueLists,
    pub(crate) stacks: KnownStacks,
    /// Sites of cache objects that the filters do not take, each with its caches.
    pub(crate) unselected_caches: HashSet<(u32, CacheNumber), RandomState>,
    /// True if there were more classes than numbers.
    pub(crate) exhausted: bool,
    /// An event told of the load of a module.
    pub(crate) has_loads: bool,
}

/// The registry as threads share it.
#[derive(Debug)]
pub(crate) struct Classes(Mutex<Registry>);

impl Classes {
    pub(crate) fn new(names: Names, max_sized: u32) -> Classes {
        Classes(Mutex::new(Registry {
            names,
            rows: Numbered::default(),
            sites: Numbered::default(),
            origins: Numbered::default(),
            lists: HashMap::default(),
            list_values: Vec::new(),
            list_len: 0,
            stacks: StackTable::default(),
            paths: None,
            max_sized,
            classes: Numbered::default(),
            unselected_caches: HashSet::default(),
            exhausted: false,
            has_loads: false,
        }))
    }

    /// Classes whose rows have nodes.
    pub(crate) fn with_nodes(self, nodes: NodesOfRows) -> Classes {
        self.lock().paths = Some(nodes);
        self
    }

    fn lock(&self) -> MutexGuard<'_, Registry> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of a cache, or of another name that rows are made of.
    pub(crate) fn cache(&self, name: &[u8]) -> CacheNumber {
        (self.lock().names.intern(name).index() as u32).saturating_add(1)
    }

    /// The number of a list of values; all lists have the same length.
    pub(crate) fn list(&self, values: &[GroupValue]) -> u64 {
        let registry = &mut *self.lock();
        if let Some(&number) = registry.lists.get(values) {
            return number;
        }
        let number = registry.lists.len() as u64;
        registry.list_len = values.len();
        registry.list_values.extend_from_slice(values);
        registry.lists.insert(values.into(), number);
        number
    }

    /// The number of the stack that `recorded` is from the frame `site` on.
    pub(crate) fn stack(&self, recorded: &[u64], site: usize) -> StackNumber {
        self.lock().stacks.number(recorded, site)
    }

    /// The number of the frames before the frame `site` of the stack `recorded`; 0 for none.
    pub(crate) fn passed(&self, recorded: &[u64], site: usize) -> StackNumber {
        self.lock().stacks.number_of_passed(recorded, site)
    }

    /// True where rows have nodes.
    pub(crate) fn has_paths(&self) -> bool {
        self.lock().paths.is_some()
    }

    /// The number of a stack of the call-site alone.
    pub(crate) fn stack_of_site(&self, site: u64) -> StackNumber {
        self.lock().stacks.number_of_site(site)
    }

    /// Frames of a stack, its site first.
    pub(crate) fn frames(&self, number: StackNumber) -> Box<[u64]> {
        self.lock().stacks.frames(number).into()
    }

    /// The number of the row `key`, of objects without classes.
    pub(crate) fn row(&self, key: RowKey) -> u32 {
        self.lock().row(key)
    }

    /// The class of objects of these sizes that count in the row `key`, were allocated at `site` and come from `cache`.
    pub(crate) fn class(
        &self,
        key: RowKey,
        site: u64,
        cache: impl Into<ClassCache>,
        (requested, allocated): (u64, u64),
    ) -> u32 {
        let ClassCache { number: cache, from: cache_from, reclaim } = cache.into();
        let registry = &mut *self.lock();
        let row = registry.row(key);
        let site = registry.sites.number((site, key.kind));
        let origin = registry.origins.number(Origin { row: Some(row), site });
        let sized =
            Class { row, origin, cache, cache_from, reclaim, kind: key.kind, is_sized: true, requested, allocated };
        if let Some(&number) = registry.classes.numbers.get(&sized) {
            return number;
        }
        let next = registry.classes.all.len() as u32;
        let class = if next < registry.max_sized {
            sized
        } else {
            Class { is_sized: false, requested: 0, allocated: 0, ..sized }
        };
        if next >= FIRST_UNSELECTED && !registry.classes.numbers.contains_key(&class) {
            registry.exhausted = true;
            return UNSELECTED;
        }
        registry.classes.number(class)
    }

    /// The row of a class.
    pub(crate) fn row_of(&self, class: u32) -> Option<u32> {
        self.lock().classes.all.get(class as usize).map(|class| class.row)
    }

    /// The class of objects of `cache` allocated at `site` that the filters do not take.
    pub(crate) fn unselected(&self, site: u64, kind: Kind, cache: CacheNumber) -> u32 {
        let registry = &mut *self.lock();
        let site = registry.sites.number((site, kind));
        if kind == Kind::Cache {
            registry.unselected_caches.insert((site, cache));
        }
        let origin = registry.origins.number(Origin { row: None, site });
        origin.saturating_add(FIRST_UNSELECTED).min(UNSELECTED)
    }

    /// Hands the classes from number `from` on to `take`.
    pub(crate) fn from(&self, from: usize, take: impl FnMut(&Class)) {
        self.lock().classes.all.get(from..).unwrap_or_default().iter().for_each(take);
    }

    /// Hands the call-sites of the origins from number `from` on to `take`.
    pub(crate) fn sites_from(&self, from: usize, mut take: impl FnMut(u64)) {
        let registry = &*self.lock();
        for origin in registry.origins.all.get(from..).unwrap_or_default() {
            take(registry.sites.all.get(origin.site as usize).map_or(0, |(site, _)| *site));
        }
    }

    /// The name of a cache's number; `None` for 0.
    pub(crate) fn name(&self, number: CacheNumber) -> Option<Box<[u8]>> {
        self.lock().names.at((number as usize).checked_sub(1)?).map(Into::into)
    }

    /// Hands the names from index `from` on to `take`: index and one is the [`CacheNumber`].
    pub(crate) fn names_from(&self, from: usize, take: impl FnMut(&[u8])) {
        let registry = &*self.lock();
        (from..registry.names.len()).filter_map(|index| registry.names.at(index)).for_each(take);
    }

    /// Hands the keys of the rows from number `from` on to `take`.
    pub(crate) fn rows_from(&self, from: usize, take: impl FnMut(&RowKey)) {
        self.lock().rows.all.get(from..).unwrap_or_default().iter().for_each(take);
    }

    /// Values of a row's keys but the call-site.
    pub(crate) fn values_of(&self, key: &RowKey) -> Vec<GroupValue> {
        self.lock().list_of(key.others)
    }

    /// Number of rows.
    pub(crate) fn rows(&self) -> usize {
        self.lock().rows.all.len()
    }

    /// Notes that an event told of the load of a module.
    #[cold]
    pub(crate) fn note_load(&self) {
        self.lock().has_loads = true;
    }

    pub(crate) fn into_numbers(self) -> Numbers {
        let registry = self.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        Numbers {
            names: registry.names,
            rows: registry.rows.all,
            sites: registry.sites.all,
            origins: registry.origins.all,
            lists: ValueLists::new(registry.list_values, registry.list_len),
            stacks: registry.stacks.finish(),
            unselected_caches: registry.unselected_caches,
            exhausted: registry.exhausted,
            has_loads: registry.has_loads,
        }
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
        let [cached, kmalloc] = [Kind::Cache, Kind::Kmalloc].map(|kind| RowKey::of_site(7, kind));
        let first = classes.class(cached, 7, (cache, None), (10, 16));
        let others = [
            classes.class(kmalloc, 7, (cache, None), (10, 16)),
            classes.class(cached, 7, (0, None), (10, 16)),
            classes.class(cached, 7, (cache, None), (11, 16)),
            classes.class(cached, 7, (cache, None), (10, 32)),
        ];
        assert_eq!(classes.class(cached, 7, (cache, None), (10, 16)), first);
        assert_eq!((first, others), (0, [1, 2, 3, 4]));
        assert_eq!(all(&classes).iter().map(|class| class.row).collect::<Vec<_>>(), [0, 1, 0, 0, 0]);
        assert_eq!(classes.rows(), 2);
        let mut later = 0;
        classes.from(3, |_| later += 1);
        assert_eq!(later, 2);
        assert_eq!(classes.into_numbers().rows, [cached, kmalloc]);
    }

    /// A trace that makes up sizes makes no more classes: beyond the limit one of a row and a cache is for all of them.
    #[test]
    fn sizes_beyond_the_limit_share_a_class() {
        let classes = Classes::new(Names::new(), 3);
        let row = RowKey::of_site(7, Kind::Cache);
        let numbers: Vec<u32> = (0..1000).map(|n| classes.class(row, 7, (1, None), (n, 2 * n))).collect();
        assert_eq!(numbers[..4], [0, 1, 2, 3]);
        assert!(numbers[3..].iter().all(|&number| number == 3));
        // Classes that have their sizes keep them.
        assert_eq!(classes.class(row, 7, (1, None), (1, 2)), 1);
        let shared = Class {
            row: 0,
            origin: 0,
            cache: 1,
            cache_from: None,
            reclaim: Reclaim::Unknown,
            kind: Kind::Cache,
            is_sized: false,
            requested: 0,
            allocated: 0,
        };
        assert_eq!(all(&classes)[3..], [shared]);
        assert_eq!(classes.class(RowKey::of_site(8, Kind::Cache), 8, (1, None), (5, 5)), 4);
        assert!(!classes.into_numbers().exhausted);
    }

    /// One row of two call-sites has two origins; an object that is not taken has an origin without a row.
    #[test]
    fn an_origin_is_a_row_and_a_call_site() {
        let classes = Classes::new(Names::new(), 100);
        let row = RowKey { others: 3, ..RowKey::of_site(0, Kind::Cache) };
        let numbers = [7, 8, 7].map(|site| classes.class(row, site, (0, None), (1, 1)));
        assert_eq!(numbers, [0, 1, 0]);
        let hidden = classes.unselected(8, Kind::Cache, 3);
        assert!(is_selected(1) && !is_selected(hidden) && !is_selected(UNSELECTED));
        let origins = [origin_of_unselected(hidden), origin_of_unselected(UNSELECTED), origin_of_unselected(0)];
        assert_eq!(origins, [Some(2), None, None]);
        let numbers = classes.into_numbers();
        assert_eq!(numbers.sites, [(7, Kind::Cache), (8, Kind::Cache)]);
        let origin = |row, site| Origin { row, site };
        assert_eq!(numbers.origins, [origin(Some(0), 0), origin(Some(0), 1), origin(None, 1)]);
        assert_eq!(numbers.unselected_caches.into_iter().collect::<Vec<_>>(), [(1, 3)]);
    }
}
