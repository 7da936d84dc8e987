//! Results of the pairing: counts, figures of rows and kinds, findings, and the objects that are live at the end.

use std::collections::{HashMap, HashSet};

use foldhash::fast::RandomState;
use kmemtrace_abi::event::{ByKind, BySpace};
use serde::{Deserialize, Serialize};

use crate::account::births::Births;
use crate::account::classes::{CacheNumber, Class, Numbered};
use crate::account::free_sites::FreeSites;
use crate::account::grouping::{RowKey, ValueLists};
use crate::account::growth::Growth;
use crate::account::live_curve::LiveCurve;
use crate::account::row_extras::JoinedExtras;
use crate::account::row_paths::Nodes;
use crate::account::stacks::KnownStacks;
use crate::account::stats::Stats;
use crate::names::caches::CacheFrom;
use crate::names::kallsyms::InitSites;
use crate::names::reclaim::Reclaim;
use crate::order::pair_event::NO_PID;
use crate::pairing::fate::ObjectPages;
use crate::pairing::findings::{FindingRow, FindingSites};
use crate::pairing::learn::LearnedName;
use crate::pairing::slot::AllocInfo;

/// Pairs per allocating and freeing CPU.
pub(crate) type Matrix = HashMap<(u32, u32), u64, RandomState>;

/// Sums over events and partitions.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Counts {
    /// Events that are neither allocations nor frees.
    pub(crate) other: u64,
    /// Events that may concern objects and are not known.
    pub(crate) unknown: u64,
    pub(crate) free_events: ByKind<u64>,
    /// Free events without an allocation, by kind.
    pub(crate) free_without_alloc: ByKind<u64>,
    /// Free events of pages that took at least one live page.
    pub(crate) page_pairs: u64,
    /// Pages of free events that were not live, and that no event before had told of.
    pub(crate) free_pages_without_alloc: u64,
    /// Pages of free events that were not live, and that some event before had told of.
    pub(crate) free_pages_after_free: u64,
    /// Free events that left a part of an allocation.
    pub(crate) partial_frees: u64,
    /// Some event of pages does not tell its frames, whatever the filters: blocks are whole.
    pub(crate) has_whole_blocks: bool,
    /// Pairs freed on another NUMA node, by kind of the allocation.
    pub(crate) cross_node: ByKind<u64>,
    pub(crate) null_free: u64,
    /// Failed allocations whose caller has a way without the memory, by their flags.
    pub(crate) failed_with_fallback: u64,
    /// Allocations that the filters do not take.
    pub(crate) unselected_allocs: u64,
    /// Objects that the recorder itself allocated, whatever the filters.
    pub(crate) own_allocs: u64,
    pub(crate) own_allocated: u128,
    pub(crate) matrix: Matrix,
    /// Frees of objects that were not seen live, by the cache that they name; only where the options want them.
    pub(crate) old_frees: HashMap<CacheNumber, u64, RandomState>,
    /// Inferred frees of all objects, whatever the filters.
    pub(crate) all_inferred: u64,
    pub(crate) all_without_alloc: u64,
    /// Frees by their own call-sites; only where the options want them.
    #[serde(skip)]
    pub(crate) free_sites: FreeSites,
    /// Frees of addresses that were given up.
    pub(crate) completions: u64,
    /// Addresses of bulk frees that were neither live nor given up.
    pub(crate) bulk_unknown: u64,
    /// Frees and allocations in bulk whose addresses the trace does not have.
    pub(crate) unseen_frees: u64,
    pub(crate) unseen_allocs: u64,
    /// Caches of such frees, 0 for one without a name.
    #[serde(skip)]
    pub(crate) unseen_caches: HashSet<CacheNumber, RandomState>,
}

impl Counts {
    pub(crate) fn add(&mut self, other: &Counts) {
        self.other += other.other;
        self.unknown += other.unknown;
        for (kind, n) in other.free_events.iter() {
            self.free_events[kind] += n;
            self.free_without_alloc[kind] += other.free_without_alloc[kind];
            self.cross_node[kind] += other.cross_node[kind];
        }
        self.page_pairs += other.page_pairs;
        self.free_pages_without_alloc += other.free_pages_without_alloc;
        self.free_pages_after_free += other.free_pages_after_free;
        self.partial_frees += other.partial_frees;
        self.has_whole_blocks |= other.has_whole_blocks;
        self.null_free += other.null_free;
        self.failed_with_fallback += other.failed_with_fallback;
        self.unselected_allocs += other.unselected_allocs;
        self.own_allocs += other.own_allocs;
        self.own_allocated += other.own_allocated;
        self.all_inferred += other.all_inferred;
        self.all_without_alloc += other.all_without_alloc;
        self.free_sites.add(&other.free_sites);
        self.bulk_unknown += other.bulk_unknown;
        // Sizes of records are whatever the file says.
        self.completions = self.completions.saturating_add(other.completions);
        self.unseen_frees = self.unseen_frees.saturating_add(other.unseen_frees);
        self.unseen_allocs = self.unseen_allocs.saturating_add(other.unseen_allocs);
        self.unseen_caches.extend(&other.unseen_caches);
        for (cache, n) in &other.old_frees {
            *self.old_frees.entry(*cache).or_default() += n;
        }
        for (cpus, n) in &other.matrix {
            *self.matrix.entry(*cpus).or_default() += n;
        }
    }
}

/// Object that is live at the end. There may be millions.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Live {
    pub(crate) address: u64,
    pub(crate) alloc_info: AllocInfo,
    /// Number in [`PairingResult::classes`], all of which have their sizes.
    pub(crate) class: u32,
    pub(crate) cpu: u32,
    /// Pages, where they were counted one by one: the class has the sizes of those that are live.
    pub(crate) pages: Option<LivePages>,
}

/// Live object of a text of one moment. 24 bytes: a text may list millions.
#[derive(Clone, Copy, Debug)]
struct ListedLive {
    address: u64,
    at: u64,
    class: u32,
    /// Number of its thread in [`ListedObjects::threads`].
    thread: u32,
}

/// Thread of an allocation, with the command name that it had then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ListedThread {
    /// [`crate::order::pair_event::NO_PID`] where it is not known.
    pub(crate) pid: u32,
    /// Number of the name; 0 for none.
    pub(crate) comm: CacheNumber,
}

/// Live objects of a text of one moment, and the threads that allocated them.
#[derive(Debug, Default)]
pub(crate) struct ListedObjects {
    objects: Vec<ListedLive>,
    threads: Numbered<ListedThread>,
}

impl ListedObjects {
    /// Adds an object, which is no older than those before.
    pub(crate) fn push(&mut self, (address, at): (u64, u64), class: u32, thread: ListedThread) {
        let thread = self.threads.number(thread);
        self.objects.push(ListedLive { address, at, class, thread });
    }

    fn thread(&self, object: &ListedLive) -> ListedThread {
        self.threads.get(object.thread).unwrap_or(ListedThread { pid: NO_PID, comm: 0 })
    }

    fn get(&self, index: usize) -> Option<Live> {
        let object = self.objects.get(index)?;
        let ListedLive { address, at, class, .. } = *object;
        // The class has the sizes, and so the pages.
        let alloc_info = AllocInfo { at, tie: 0, pid: self.thread(object).pid };
        Some(Live { address, alloc_info, class, cpu: 0, pages: None })
    }
}

/// Live objects, oldest first.
#[derive(Debug)]
pub(crate) enum LiveList {
    /// Of a trace of events.
    Paired(Vec<Live>),
    /// Of a text of one moment.
    Listed(ListedObjects),
}

impl Default for LiveList {
    fn default() -> LiveList {
        LiveList::Paired(Vec::new())
    }
}

impl LiveList {
    pub(crate) fn len(&self) -> usize {
        match self {
            LiveList::Paired(objects) => objects.len(),
            LiveList::Listed(listed) => listed.objects.len(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The object at a position.
    pub(crate) fn get(&self, index: usize) -> Option<Live> {
        match self {
            LiveList::Paired(objects) => objects.get(index).copied(),
            LiveList::Listed(listed) => listed.get(index),
        }
    }

    /// Number of the command name that a text tells with the object at a position; `None` without one, and for a trace of events.
    pub(crate) fn told_comm(&self, index: usize) -> Option<CacheNumber> {
        match self {
            LiveList::Paired(_) => None,
            LiveList::Listed(listed) => {
                let comm = listed.thread(listed.objects.get(index)?).comm;
                (comm != 0).then_some(comm)
            }
        }
    }

    /// The objects from a position on.
    pub(crate) fn iter_from(&self, begin: usize) -> impl Iterator<Item = Live> {
        (begin..self.len()).filter_map(|index| self.get(index))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Live> {
        self.iter_from(0)
    }

    /// Objects of a trace of events; none of a text.
    pub(crate) fn paired(&self) -> &[Live] {
        match self {
            LiveList::Paired(objects) => objects,
            LiveList::Listed(_) => &[],
        }
    }
}

/// Pages of an allocation that is live, in whole or in part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LivePages {
    pub(crate) allocated: u32,
    pub(crate) live: u32,
    pub(crate) inferred: u32,
    pub(crate) crossed: u32,
}

impl From<LivePages> for ObjectPages {
    fn from(pages: LivePages) -> ObjectPages {
        let LivePages { allocated, live, inferred, crossed } = pages;
        let freed = allocated.saturating_sub(live).saturating_sub(inferred);
        ObjectPages {
            allocated: allocated.into(),
            freed: freed.into(),
            inferred: inferred.into(),
            live: live.into(),
            freed_elsewhere: crossed.into(),
        }
    }
}

/// Results of the pairing over all partitions.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct PairingResult {
    pub(crate) counts: Counts,
    /// Row of each key that an allocation has had.
    pub(crate) rows: Vec<(RowKey, Stats)>,
    /// Values of the rows' keys, where there are several beside the call-site.
    #[serde(skip)]
    pub(crate) lists: ValueLists,
    /// Stacks of allocations by their numbers.
    #[serde(skip)]
    pub(crate) stacks: KnownStacks,
    /// Nodes that stand for several rows, where a query asks for them.
    #[serde(skip)]
    pub(crate) nodes: Option<Nodes>,
    /// Kinds that were allocated, whatever the filters take.
    pub(crate) has: ByKind<bool>,
    pub(crate) kinds: ByKind<Stats>,
    /// Stats of `kmalloc` and `cache` together.
    pub(crate) total: Stats,
    /// Order key of the event that reached the peak of a space.
    pub(crate) peak_at: BySpace<Option<u64>>,
    pub(crate) findings: HashMap<FindingSites, FindingRow, RandomState>,
    /// Live objects, oldest first; only where the query asks for them.
    #[serde(skip)]
    pub(crate) live: LiveList,
    /// Classes of the live objects.
    #[serde(skip)]
    pub(crate) classes: Vec<Class>,
    /// Live bytes of rows over time, where the query asks for them.
    #[serde(skip)]
    pub(crate) growth: Option<Growth>,
    /// Live bytes of kinds over time, where the query asks for them.
    #[serde(skip)]
    pub(crate) curve: Option<LiveCurve>,
    /// Names of caches by call-site and bytes allocated, where they were to be learned.
    #[serde(skip)]
    pub(crate) learned: HashMap<(u64, u64), LearnedName>,
    /// Best origin of the names of the caches of a row's objects, where rows are made of caches.
    pub(crate) caches_from: HashMap<RowKey, CacheFrom, RandomState>,
    /// Members that rows of a text of one moment have beside the figures.
    #[serde(skip)]
    pub(crate) extras: HashMap<RowKey, JoinedExtras, RandomState>,
    /// Whether the kernel takes the objects of a row back by itself, by row, where the query asks for it.
    pub(crate) reclaims: Vec<Reclaim>,
    /// Births of the live objects, by row, where the query asks for them.
    pub(crate) births: Vec<Births>,
    /// Gaps of the whole trace: order keys from and to, in no order.
    pub(crate) gaps: Vec<(u64, u64)>,
    /// Some event told of the load of a module.
    pub(crate) has_loads: bool,
    /// Call-sites in the initialisation of modules, where a document may name them.
    pub(crate) init_sites: InitSites,
    /// Nodes of all CPUs are known, so frees on another NUMA node can be told.
    pub(crate) knows_nodes: bool,
}

impl PairingResult {
    /// Whether the kernel takes the objects of the row of this number back by itself.
    pub(crate) fn reclaim(&self, row: usize) -> Reclaim {
        self.reclaims.get(row).copied().unwrap_or_default()
    }

    /// Class of a live object: its row, kind, cache and sizes.
    pub(crate) fn class(&self, object: &Live) -> &Class {
        &self.classes[object.class as usize]
    }
}
