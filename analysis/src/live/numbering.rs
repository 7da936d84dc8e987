//! Numbers of rows: what is known about an allocation has a row of each grouping, which a key names.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;
use kmemtrace_abi::event::{Kind, Space};

use super::naming::NameMemory;
use super::snapshot::{LiveGroup, LiveKey, LiveName};
use super::stack_tree::{NodePaths, StackTree};
use crate::account::cgroups::{CgroupNumber, LiveCgroups};
use crate::account::classes::{CacheNumber, Class, Classes};
use crate::account::grouping::RowKey;
use crate::names::kallsyms::{SiteOwner, Symbolizer};
use crate::order::pair_event::NO_PID;

/// Number of no row: nothing counts there.
pub(super) const NO_ROW: u32 = u32::MAX;
/// Threads whose rows are at hand.
const RECENT: usize = 256;

/// A row's key, and what its allocations have besides.
#[derive(Debug)]
pub(super) struct NumberedRow {
    pub(super) key: LiveKey,
    pub(super) kind: Kind,
    /// Number of the name of the cache of the last new class; 0 for none.
    pub(super) cache: u32,
    /// Number of the stack of the last new class; 0 for none.
    pub(super) stack: u32,
}

/// Rows of one grouping.
#[derive(Debug, Default)]
pub(super) struct NumberedRows {
    pub(super) lines: Vec<NumberedRow>,
    numbers: HashMap<(LiveKey, Kind), u32, RandomState>,
}

impl NumberedRows {
    fn number(&mut self, key: LiveKey, kind: Kind) -> u32 {
        let next = self.lines.len() as u32;
        let number = *self.numbers.entry((key, kind)).or_insert(next);
        if number == next {
            self.lines.push(NumberedRow { key, kind, cache: 0, stack: 0 });
        }
        number
    }

    /// Row of objects from a cache, with a stack, 0 for none.
    fn number_of(&mut self, key: LiveKey, kind: Kind, cache: u32, stack: u32) -> u32 {
        let number = self.number(key, kind);
        if let Some(line) = self.lines.get_mut(number as usize) {
            line.cache = if cache == 0 { line.cache } else { cache };
            line.stack = if stack == 0 { line.stack } else { stack };
        }
        number
    }

    pub(super) fn find(&self, key: LiveKey, kind: Kind) -> Option<(u32, &NumberedRow)> {
        let number = *self.numbers.get(&(key, kind))?;
        Some((number, self.lines.get(number as usize)?))
    }

    /// Keeps the rows of which `is_kept` is true, under new numbers.
    fn retain(&mut self, is_kept: &[bool]) {
        let mut kept = is_kept.iter();
        self.lines.retain(|_| kept.next().copied().unwrap_or(true));
        self.numbers = self.lines.iter().map(|line| (line.key, line.kind)).zip(0..).collect();
    }
}

/// Rows of a class by grouping; those of tasks and cgroups are a thread's, which its class does not tell.
#[derive(Clone, Copy, Debug)]
pub(super) struct RowNumbers([u32; LiveGroup::ALL.len()]);

impl RowNumbers {
    /// Number of the row of a grouping.
    #[inline]
    pub(super) fn of(&self, group: LiveGroup) -> u32 {
        self.0[group as usize]
    }

    /// Numbers in the order of [`LiveGroup::ALL`].
    #[inline]
    pub(super) fn all(&self) -> [u32; LiveGroup::ALL.len()] {
        self.0
    }
}

/// Rows, nodes and total that an object counts in.
#[derive(Clone, Copy)]
pub(super) struct Places<'n> {
    pub(super) rows: RowNumbers,
    /// Nodes of its stack.
    pub(super) nodes: &'n NodePaths,
    /// Space of the total.
    pub(super) space: Space,
}

/// All rows by their numbers.
pub(super) struct Numbering<'a> {
    classes: &'a Classes,
    /// By row of the pairing.
    rows: Vec<RowNumbers>,
    lines: [NumberedRows; LiveGroup::ALL.len()],
    pub(super) tree: StackTree,
    /// Rows of the latest threads, by kind and the low bits of their ids.
    recent: Box<[(u32, u32); Kind::ALL.len() * RECENT]>,
    names: NameMemory,
    /// Cgroups of threads, where the trace tells them.
    pub(super) cgroups: Option<LiveCgroups>,
    /// Symbols as the trace had them at the start.
    first_symbols: &'a Symbolizer,
    /// Symbols as the trace has them now, where it has more.
    more_symbols: Option<Symbolizer>,
    /// Modules by the numbers of their rows; 0 is the kernel.
    module_names: Vec<Option<Box<[u8]>>>,
    module_numbers: HashMap<Box<[u8]>, u32, RandomState>,
}

impl<'a> Numbering<'a> {
    pub(super) fn new(
        classes: &'a Classes,
        first_symbols: &'a Symbolizer,
        names: NameMemory,
        cgroups: Option<LiveCgroups>,
    ) -> Numbering<'a> {
        Numbering {
            classes,
            rows: Vec::new(),
            lines: Default::default(),
            tree: StackTree::default(),
            recent: Box::new([(NO_PID, u32::MAX); Kind::ALL.len() * RECENT]),
            names,
            cgroups,
            first_symbols,
            more_symbols: None,
            module_names: vec![None],
            module_numbers: HashMap::default(),
        }
    }

    /// Rows of a grouping.
    pub(super) fn lines(&self, group: LiveGroup) -> &NumberedRows {
        &self.lines[group as usize]
    }

    /// Takes what the trace tells by now: its symbols and its command names.
    pub(super) fn renew(&mut self, symbols: Symbolizer, comms: HashMap<i32, Box<[u8]>>) {
        self.more_symbols = Some(symbols);
        self.names.renew(comms);
    }

    /// Name of a row.
    pub(super) fn name(&mut self, key: LiveKey) -> Arc<LiveName> {
        let symbols = self.more_symbols.as_ref().unwrap_or(self.first_symbols);
        self.names.name(key, self.classes, symbols, &self.module_names, self.cgroups.as_ref())
    }

    /// Rows of classes, by the pairing's number of their row; the first object makes them. A class does not tell those of tasks and
    /// cgroups.
    #[inline]
    pub(super) fn of_class(&mut self, row: u32) -> Option<RowNumbers> {
        if row as usize >= self.rows.len() {
            self.learn();
        }
        self.rows.get(row as usize).copied()
    }

    /// Places of an object of a class that a thread has allocated at this order key.
    #[inline]
    pub(super) fn places(&mut self, class: &Class, pid: u32, at: u64) -> Option<Places<'_>> {
        let mut rows = self.of_class(class.row)?;
        let kind = folded(class.kind);
        rows.0[LiveGroup::Tasks as usize] = self.task(pid, kind);
        if let Some(cgroup) = self.cgroup(pid, at) {
            rows.0[LiveGroup::Cgroups as usize] =
                self.lines[LiveGroup::Cgroups as usize].number(LiveKey::Cgroup(cgroup), kind);
        }
        let nodes = self.tree.paths(rows.of(LiveGroup::Stacks));
        Some(Places { rows, nodes, space: class.kind.space() })
    }

    /// Cgroup of a thread at an order key, 0 where it is not known; `None` for a trace that tells none.
    #[inline]
    pub(super) fn cgroup(&self, pid: u32, at: u64) -> Option<CgroupNumber> {
        Some(self.cgroups.as_ref()?.at(pid.cast_signed(), at))
    }

    /// Kind of classes and the names of their rows of these groupings, by the pairing's number of their row; `None` for no class.
    pub(super) fn names_of_class<const N: usize>(
        &mut self,
        row: u32,
        groups: [LiveGroup; N],
    ) -> Option<(Kind, [Arc<LiveName>; N])> {
        let numbers = self.of_class(row)?;
        let line = |group: LiveGroup| self.lines(group).lines.get(numbers.of(group) as usize);
        let kind = line(LiveGroup::Sites)?.kind;
        let keys = groups.map(|group| line(group).map_or(LiveKey::Cache(0), |line| line.key));
        Some((kind, keys.map(|key| self.name(key))))
    }

    #[cold]
    fn learn(&mut self) {
        let mut keys: Vec<RowKey> = Vec::new();
        self.classes.rows_from(self.rows.len(), |key| keys.push(*key));
        for key in keys {
            let RowKey { site, kind, .. } = key;
            let values = self.classes.values_of(&key);
            let [cache, stack, usage, loaded] =
                [0, 1, 2, 3].map(|at| values.get(at).and_then(|&n| u32::try_from(n).ok()).unwrap_or(0));
            let module = if loaded == 0 { self.module(site, stack) } else { self.loaded_module(loaded) };
            let kind_of_all = folded(kind);
            let numbers = LiveGroup::ALL.map(|group| {
                let lines = &mut self.lines[group as usize];
                match group {
                    LiveGroup::Sites => lines.number_of(LiveKey::Site(site), kind, cache, stack),
                    LiveGroup::Stacks => lines.number_of(LiveKey::Stack(stack, module), kind_of_all, cache, stack),
                    LiveGroup::Modules => lines.number(LiveKey::Module(module), kind_of_all),
                    LiveGroup::Tasks => 0,
                    LiveGroup::Cgroups => NO_ROW,
                    LiveGroup::Caches => lines.number(LiveKey::Cache(cache), kind),
                    LiveGroup::Uses => lines.number(LiveKey::Use(usage), kind_of_all),
                }
            });
            let rows = RowNumbers(numbers);
            self.tree.add(rows.of(LiveGroup::Stacks), kind_of_all, module, &self.classes.frames(stack));
            self.rows.push(rows);
        }
    }

    /// Number of the module of an allocation while none loads: of the frame nearest to it that has one, without a stack of its call-site.
    fn module(&mut self, site: u64, stack: u32) -> u32 {
        let symbols = self.more_symbols.as_ref().unwrap_or(self.first_symbols);
        let frames = self.classes.frames(stack);
        let owners = || frames.iter().copied().chain([site]).map(|address| symbols.owner(address));
        let module = owners().find_map(SiteOwner::module);
        // Without a module the call-site tells the kernel from what is not known.
        let unknown = owners().next().filter(|owner| *owner == SiteOwner::Unknown).map(SiteOwner::name);
        let name: Option<Box<[u8]>> = module.or(unknown).map(Into::into);
        name.map_or(0, |name| self.number_of_module(name))
    }

    /// Number of the module that is initialised, by the number of its name.
    fn loaded_module(&mut self, name: CacheNumber) -> u32 {
        let mut found: Option<Box<[u8]>> = None;
        let first = (name as usize).saturating_sub(1);
        self.classes.names_from(first, |name| _ = found.get_or_insert_with(|| name.into()));
        found.map_or(0, |name| self.number_of_module(name))
    }

    fn number_of_module(&mut self, name: Box<[u8]>) -> u32 {
        let names = &mut self.module_names;
        *self.module_numbers.entry(name).or_insert_with_key(|name| {
            names.push(Some(name.clone()));
            u32::try_from(names.len() - 1).unwrap_or(0)
        })
    }

    /// Row of a thread.
    #[inline]
    fn task(&mut self, pid: u32, kind: Kind) -> u32 {
        let slot = kind as usize * RECENT + pid as usize % RECENT;
        let (recent, number) = self.recent[slot];
        if recent == pid && number != u32::MAX {
            return number;
        }
        let number = self.lines[LiveGroup::Tasks as usize].number(LiveKey::Task(pid), kind);
        self.recent[slot] = (pid, number);
        number
    }

    /// Keeps the rows of threads of which `is_kept` is true, under new numbers.
    pub(super) fn retain_tasks(&mut self, is_kept: &[bool]) {
        self.lines[LiveGroup::Tasks as usize].retain(is_kept);
        self.recent.fill((NO_PID, u32::MAX));
    }
}

/// Kind of rows of tasks and modules: one for each space.
pub(super) fn folded(kind: Kind) -> Kind {
    kind.space().kind()
}
