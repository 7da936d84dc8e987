//! Rows of all groupings: each object counts in one row of each, from its allocation to its end.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use kmemtrace_abi::event::Kind;

use super::figures::Figures;
use super::snapshot::{LiveGroup, LiveKey};
use super::ticks::Ticks;
use crate::account::classes::{Class, Classes};
use crate::account::grouping::RowKey;
use crate::names::kallsyms::Symbolizer;
use crate::order::pair_event::{NO_PID, PairEvent};
use crate::pairing::fate::{Ended, Fate};
use crate::pairing::loss::Suspicion;
use crate::pairing::pairs::{Number, PairingSink};

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
    pub(super) figures: Figures,
}

/// Rows of one grouping.
#[derive(Debug, Default)]
pub(super) struct Lines {
    pub(super) lines: Vec<Line>,
    numbers: HashMap<(LiveKey, Kind), u32, RandomState>,
}

impl Lines {
    fn number(&mut self, key: LiveKey, kind: Kind, cache: u32) -> u32 {
        let next = self.lines.len() as u32;
        let number = *self.numbers.entry((key, kind)).or_insert(next);
        if number == next {
            self.lines.push(Line { key, kind, cache, figures: Figures::default() });
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
    module: u32,
    cache: u32,
}

/// All rows, and the totals of pages and of slab objects.
pub(super) struct Ledger<'a> {
    classes: &'a Classes,
    /// By row of the pairing.
    targets: Vec<Targets>,
    pub(super) sites: Lines,
    pub(super) modules: Lines,
    pub(super) caches: Lines,
    pub(super) tasks: Lines,
    /// Rows of the latest threads, by kind and the low bits of their ids.
    recent: Box<[(u32, u32); 3 * RECENT]>,
    pub(super) pages: Figures,
    pub(super) slab: Figures,
    /// Frees by row of the call-site and freeing call-site.
    pub(super) freers: HashMap<(u32, u64), u64, RandomState>,
    pub(super) ticks: Ticks,
    /// Key of the mark.
    pub(super) mark: Option<u64>,
    pub(super) symbols: Symbolizer,
    /// Modules by the numbers of their rows; 0 is the kernel.
    pub(super) module_names: Vec<Option<Box<[u8]>>>,
}

impl<'a> Ledger<'a> {
    /// No rows, at the begin of the trace.
    pub(super) fn new(classes: &'a Classes, symbols: Symbolizer) -> Ledger<'a> {
        Ledger {
            classes,
            targets: Vec::new(),
            sites: Lines::default(),
            modules: Lines::default(),
            caches: Lines::default(),
            tasks: Lines::default(),
            recent: Box::new([(NO_PID, u32::MAX); 3 * RECENT]),
            pages: Figures::default(),
            slab: Figures::default(),
            freers: HashMap::default(),
            ticks: Ticks::new(0),
            mark: None,
            symbols,
            module_names: vec![None],
        }
    }

    /// Begins at the key of the first event.
    pub(super) fn begin(&mut self, first: u64) {
        self.ticks = Ticks::new(first);
    }

    /// Rows of a grouping.
    pub(super) fn lines(&self, group: LiveGroup) -> &Lines {
        match group {
            LiveGroup::Sites => &self.sites,
            LiveGroup::Modules => &self.modules,
            LiveGroup::Caches => &self.caches,
            LiveGroup::Tasks => &self.tasks,
        }
    }

    fn all(&mut self) -> impl Iterator<Item = &mut Figures> {
        let Ledger { sites, modules, caches, tasks, pages, slab, .. } = self;
        let lines = [sites, modules, caches, tasks].into_iter().flat_map(|lines| &mut lines.lines);
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
        for RowKey { site, others, kind } in keys {
            let cache = u32::try_from(others).unwrap_or(0);
            let module = self.module(site);
            self.targets.push(Targets {
                site: self.sites.number(LiveKey::Site(site), kind, cache),
                module: self.modules.number(LiveKey::Module(module), folded(kind), 0),
                cache: self.caches.number(LiveKey::Cache(cache), kind, cache),
            });
        }
    }

    /// Number of a call-site's module.
    fn module(&mut self, site: u64) -> u32 {
        let Some(name) = self.symbols.lookup(site).and_then(|symbol| symbol.module) else { return 0 };
        let names = &mut self.module_names;
        let found = names.iter().position(|known| known.as_deref() == Some(name));
        let number = found.unwrap_or_else(|| {
            names.push(Some(name.into()));
            names.len() - 1
        });
        u32::try_from(number).unwrap_or(0)
    }

    /// Row of a thread.
    #[inline]
    fn task(&mut self, pid: u32, kind: Kind) -> u32 {
        let slot = kind as usize * RECENT + pid as usize % RECENT;
        let (recent, number) = self.recent[slot];
        if recent == pid && number != u32::MAX {
            return number;
        }
        let number = self.tasks.number(LiveKey::Task(pid), kind, 0);
        self.recent[slot] = (pid, number);
        number
    }

    /// Hands the figures of all rows of an object to `change`.
    #[inline]
    fn change(&mut self, class: &Class, pid: u32, mut change: impl FnMut(&mut Figures)) {
        let Some(targets) = self.targets(class) else { return };
        let task = self.task(pid, folded(class.kind));
        let lines = [
            (&mut self.sites, targets.site),
            (&mut self.modules, targets.module),
            (&mut self.caches, targets.cache),
            (&mut self.tasks, task),
        ];
        lines.into_iter().filter_map(|(lines, number)| lines.figures(number)).for_each(&mut change);
        change(if class.kind == Kind::Pages { &mut self.pages } else { &mut self.slab });
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
        ledger.change(class, *pid, |figures| figures.allocated(event.at, slice, ticks, sizes));
    }

    fn freed(&mut self, _: Number, _: &Class, _: u64) {}

    #[inline]
    fn ended(&mut self, object: &Ended, fate: Fate, event: &PairEvent, _: Number, _: Suspicion) {
        let ledger = &mut *self.ledger;
        ledger.advance(event.at);
        let (slice, ticks) = (ledger.ticks.slice(object.info.at), ledger.ticks.len());
        let crossed = fate == Fate::Pair && object.stream != event.stream;
        ledger.change(&object.class, object.info.pid, |figures| figures.freed(slice, ticks, object.sizes, crossed));
        if fate == Fate::Pair {
            // A free has its call-site in `requested`.
            ledger.count_freer(&object.class, event.requested);
        }
    }
}
