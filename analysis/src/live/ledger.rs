//! Rows of all groupings: each object counts in one row of each, from its allocation to its end.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use kmemtrace_abi::event::Kind;

use super::figures::Figures;
use super::snapshot::{LiveGroup, LiveKey};
use super::stack_tree::StackTree;
use super::ticks::Ticks;
use crate::account::classes::{CacheNumber, Class, Classes};
use crate::account::grouping::RowKey;
use crate::names::kallsyms::Symbolizer;
use crate::order::pair_event::{NO_PID, PairEvent};
use crate::pairing::fate::{Ended, Fate};
use crate::pairing::loss::Suspicion;
use crate::pairing::pairs::{Number, PairingSink};
use crate::pairing::slot::AllocInfo;

/// Rows of tasks from which on idle ones are dropped: a machine that starts programs all the time makes thousands of them.
const MANY_TASKS: usize = 4096;
/// Limit of pairs of a call-site and the call-site that frees its objects.
const MAX_FREERS: usize = 1 << 16;
/// Threads whose rows are at hand.
const RECENT: usize = 256;

/// A row and its key.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) key: LiveKey,
    pub(super) kind: Kind,
    /// Number of the name of the cache of the last new class; 0 for none.
    pub(super) cache: u32,
    /// Number of the stack of the last new class; 0 for none.
    pub(super) stack: u32,
    pub(super) figures: Figures,
}

/// Rows of one grouping.
#[derive(Debug, Default)]
pub(super) struct Lines {
    pub(super) lines: Vec<Line>,
    numbers: HashMap<(LiveKey, Kind), u32, RandomState>,
}

impl Lines {
    fn number(&mut self, key: LiveKey, kind: Kind) -> u32 {
        let next = self.lines.len() as u32;
        let number = *self.numbers.entry((key, kind)).or_insert(next);
        if number == next {
            self.lines.push(Line { key, kind, cache: 0, stack: 0, figures: Figures::default() });
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

    pub(super) fn find(&self, key: LiveKey, kind: Kind) -> Option<(u32, &Line)> {
        let number = *self.numbers.get(&(key, kind))?;
        Some((number, self.lines.get(number as usize)?))
    }

    #[inline]
    fn figures(&mut self, number: u32) -> Option<&mut Figures> {
        Some(&mut self.lines.get_mut(number as usize)?.figures)
    }

    /// Drops rows that have nothing and have not changed of late.
    fn drop_idle(&mut self) {
        self.lines.retain(|line| !line.figures.is_idle());
        self.numbers = self.lines.iter().map(|line| (line.key, line.kind)).zip(0..).collect();
    }
}

/// Rows of a class: one of each grouping that its call-site and its cache tell.
#[derive(Clone, Copy, Debug)]
struct Targets {
    site: u32,
    stack: u32,
    module: u32,
    cache: u32,
    usage: u32,
}

/// All rows, and the totals of pages and of slab objects.
pub(super) struct Ledger<'a> {
    classes: &'a Classes,
    /// By row of the pairing.
    targets: Vec<Targets>,
    sites: Lines,
    stacks: Lines,
    modules: Lines,
    caches: Lines,
    uses: Lines,
    tasks: Lines,
    pub(super) tree: StackTree,
    /// Rows of the latest threads, by kind and the low bits of their ids.
    recent: Box<[(u32, u32); 3 * RECENT]>,
    pub(super) pages: Figures,
    pub(super) slab: Figures,
    /// Frees by row of the call-site and freeing call-site.
    pub(super) freers: HashMap<(u32, u64), u64, RandomState>,
    pub(super) ticks: Ticks,
    /// Key of the mark.
    pub(super) mark: Option<u64>,
    /// Symbols as the trace had them at the begin.
    first_symbols: &'a Symbolizer,
    /// Symbols as the trace has them now, where it has more.
    pub(super) more_symbols: Option<Symbolizer>,
    /// Modules by the numbers of their rows; 0 is the kernel.
    pub(super) module_names: Vec<Option<Box<[u8]>>>,
    module_numbers: HashMap<Box<[u8]>, u32, RandomState>,
}

impl<'a> Ledger<'a> {
    /// No rows, at the begin of the trace.
    pub(super) fn new(classes: &'a Classes, first_symbols: &'a Symbolizer) -> Ledger<'a> {
        Ledger {
            classes,
            targets: Vec::new(),
            sites: Lines::default(),
            stacks: Lines::default(),
            modules: Lines::default(),
            caches: Lines::default(),
            uses: Lines::default(),
            tasks: Lines::default(),
            tree: StackTree::default(),
            recent: Box::new([(NO_PID, u32::MAX); 3 * RECENT]),
            pages: Figures::default(),
            slab: Figures::default(),
            freers: HashMap::default(),
            ticks: Ticks::new(0),
            mark: None,
            first_symbols,
            more_symbols: None,
            module_names: vec![None],
            module_numbers: HashMap::default(),
        }
    }

    /// Symbols of the trace.
    pub(super) fn symbols(&self) -> &Symbolizer {
        self.more_symbols.as_ref().unwrap_or(self.first_symbols)
    }

    /// Begins at the key of the first event.
    pub(super) fn begin(&mut self, first: u64) {
        self.ticks = Ticks::new(first);
    }

    /// Rows of a grouping.
    pub(super) fn lines(&self, group: LiveGroup) -> &Lines {
        match group {
            LiveGroup::Sites => &self.sites,
            LiveGroup::Stacks => &self.stacks,
            LiveGroup::Uses => &self.uses,
            LiveGroup::Modules => &self.modules,
            LiveGroup::Caches => &self.caches,
            LiveGroup::Tasks => &self.tasks,
        }
    }

    fn all(&mut self) -> impl Iterator<Item = &mut Figures> {
        let Ledger { sites, stacks, modules, caches, uses, tasks, pages, slab, .. } = self;
        let lines = [sites, stacks, modules, caches, uses, tasks].into_iter().flat_map(|lines| &mut lines.lines);
        lines.map(|line| &mut line.figures).chain([pages, slab])
    }

    /// Goes on to `at`, where a tick is due by then.
    #[inline]
    pub(super) fn advance(&mut self, at: u64) {
        if self.ticks.is_due(at) {
            self.tick(at);
        }
    }

    #[cold]
    fn tick(&mut self, at: u64) {
        let joined = self.ticks.advance(at);
        let ticks = self.ticks.len();
        self.all().for_each(|figures| figures.tick(ticks, &joined));
        if self.tasks.lines.len() > MANY_TASKS {
            self.tasks.drop_idle();
            self.recent.fill((NO_PID, u32::MAX));
        }
    }

    /// Sets the mark: changes since it are those from now on.
    pub(super) fn set_mark(&mut self, at: u64) {
        self.mark = Some(at);
        self.all().for_each(|figures| figures.at_mark = Some(figures.live));
    }

    /// Rows of a class; the first object of a class makes them.
    #[inline]
    fn targets(&mut self, class: &Class) -> Option<Targets> {
        if class.row as usize >= self.targets.len() {
            self.learn();
        }
        self.targets.get(class.row as usize).copied()
    }

    #[cold]
    fn learn(&mut self) {
        let mut keys: Vec<RowKey> = Vec::new();
        self.classes.rows_from(self.targets.len(), |key| keys.push(*key));
        for key in keys {
            let RowKey { site, kind, .. } = key;
            let values = self.classes.values_of(&key);
            let [cache, stack, usage, loaded] =
                [0, 1, 2, 3].map(|at| values.get(at).and_then(|&n| u32::try_from(n).ok()).unwrap_or(0));
            let module = if loaded == 0 { self.module(site, stack) } else { self.loaded_module(loaded) };
            let of_stack = self.stacks.number_of(LiveKey::Stack(stack, module), folded(kind), cache, stack);
            self.tree.add(of_stack, folded(kind), module, &self.classes.frames(stack));
            self.targets.push(Targets {
                site: self.sites.number_of(LiveKey::Site(site), kind, cache, stack),
                stack: of_stack,
                module: self.modules.number(LiveKey::Module(module), folded(kind)),
                cache: self.caches.number(LiveKey::Cache(cache), kind),
                usage: self.uses.number(LiveKey::Use(usage), folded(kind)),
            });
        }
    }

    /// Number of the module of an allocation while none loads: of the frame nearest to it that has one, without a stack of its call-site.
    fn module(&mut self, site: u64, stack: u32) -> u32 {
        let frames = self.classes.frames(stack);
        let module_of = |address: u64| self.symbols().lookup(address)?.module.map(Box::<[u8]>::from);
        frames.iter().copied().chain([site]).find_map(module_of).map_or(0, |name| self.number_of_module(name))
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
        let number = self.tasks.number(LiveKey::Task(pid), kind);
        self.recent[slot] = (pid, number);
        number
    }

    /// Hands the figures of all rows of a class to `change`, but for those of its thread.
    #[inline]
    fn change(&mut self, class: &Class, mut change: impl FnMut(&mut Figures)) {
        let Some(targets) = self.targets(class) else { return };
        let lines = [
            (&mut self.sites, targets.site),
            (&mut self.stacks, targets.stack),
            (&mut self.modules, targets.module),
            (&mut self.caches, targets.cache),
            (&mut self.uses, targets.usage),
        ];
        lines.into_iter().filter_map(|(lines, number)| lines.figures(number)).for_each(&mut change);
        change(if class.kind == Kind::Pages { &mut self.pages } else { &mut self.slab });
    }

    /// Hands the figures of a thread to `change`.
    #[inline]
    fn change_task(&mut self, class: &Class, pid: u32, change: impl FnOnce(&mut Figures)) {
        let number = self.task(pid, folded(class.kind));
        if let Some(figures) = self.tasks.figures(number) {
            change(figures);
        }
    }

    #[inline]
    fn count_freer(&mut self, class: &Class, free_site: u64) {
        let Some(Targets { site, .. }) = self.targets(class) else { return };
        let is_full = self.freers.len() >= MAX_FREERS;
        match self.freers.get_mut(&(site, free_site)) {
            Some(count) => *count += 1,
            None if is_full => {}
            None => drop(self.freers.insert((site, free_site), 1)),
        }
    }
}

/// Kind of rows of tasks and modules: one for all slab objects.
fn folded(kind: Kind) -> Kind {
    if kind == Kind::Pages { Kind::Pages } else { Kind::Kmalloc }
}

/// Sink of one window's objects.
pub(super) struct LedgerSink<'w, 'a> {
    pub(super) ledger: &'w mut Ledger<'a>,
    /// Events of the window.
    pub(super) events: &'w [PairEvent],
}

impl PairingSink for LedgerSink<'_, '_> {
    const FATES: bool = true;

    #[inline]
    fn allocated(&mut self, event: Number, class: &Class, allocated: u64) {
        let Some(PairEvent { requested, extra: pid, .. }) = self.events.get(event.serial as usize) else { return };
        let (ledger, sizes) = (&mut *self.ledger, (*requested, allocated));
        ledger.advance(event.at);
        let (slice, ticks) = (ledger.ticks.len() - 1, ledger.ticks.len());
        ledger.change(class, |figures| figures.allocated(event.at, slice, ticks, sizes));
        if let Some(Targets { stack, .. }) = ledger.targets(class) {
            ledger.tree.allocated(stack, allocated);
        }
        ledger.change_task(class, *pid, |figures| figures.allocated(event.at, slice, ticks, sizes));
    }

    #[inline]
    fn freed(&mut self, event: Number, class: &Class, allocated: u64) {
        self.ledger.advance(event.at);
        // Pages ask for all that they get, and may go in parts.
        let requested = if class.kind == Kind::Pages { allocated } else { 0 };
        self.ledger.change(class, |figures| figures.freed((requested, allocated)));
        if let Some(Targets { stack, .. }) = self.ledger.targets(class) {
            self.ledger.tree.freed(stack, allocated);
        }
    }

    #[inline]
    fn part_freed(&mut self, class: &Class, info: &AllocInfo, bytes: u64) {
        self.ledger.change_task(class, info.pid, |figures| figures.freed((bytes, bytes)));
    }

    #[inline]
    fn ended(&mut self, object: &Ended, fate: Fate, event: &PairEvent, _: Number, _: Suspicion) {
        let Ended { class, sizes: (requested, allocated), info, .. } = object;
        let ledger = &mut *self.ledger;
        let (slice, ticks) = (ledger.ticks.slice(info.at), ledger.ticks.len());
        let crossed = fate == Fate::Pair && object.stream != event.stream;
        let left = if class.kind == Kind::Pages { 0 } else { *requested };
        ledger.change(class, |figures| {
            figures.freed((left, 0));
            figures.ended(slice, ticks, crossed);
        });
        // Bytes of pages one by one have left the thread with each part.
        let whole = if object.pages.is_some() { (0, 0) } else { (*requested, *allocated) };
        ledger.change_task(class, info.pid, |figures| {
            figures.freed(whole);
            figures.ended(slice, ticks, crossed);
        });
        if fate == Fate::Pair && event.requested != 0 {
            // A free has its call-site in `requested`; frees of pages have none.
            ledger.count_freer(class, event.requested);
        }
    }
}
