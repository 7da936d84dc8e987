//! The ledger: each object counts in one row of each grouping, from its allocation to its end.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::figures::Birth;
use super::held::Held;
use super::naming::NameMemory;
use super::numbering::{Numbering, Places, RowNumbers};
use super::selected::SelectedObjects;
use super::snapshot::{LiveGroup, RowChoice, Selection};
use super::sums::LiveSums;
use super::ticks::Ticks;
use super::watched::Watched;
use crate::account::cgroups::LiveCgroups;
use crate::account::classes::{Class, Classes};
use crate::account::tally::Sizes;
use crate::names::kallsyms::Symbolizer;
use crate::order::pair_event::PairEvent;
use crate::pairing::fate::{Ended, Fate};
use crate::pairing::loss::Suspicion;
use crate::pairing::pairs::{LiveObject, Number, PairingSink};
use crate::pairing::slot::AllocInfo;

/// Rows of tasks from which on idle ones are dropped: a machine that starts programs all the time makes thousands of them.
const MANY_TASKS: usize = 4096;
/// Time of a pass over the live objects that needs no limit.
const SHORT_PASS: Duration = Duration::from_millis(5);
/// Time between two longer passes, as a multiple of what one takes.
const PASS_SHARE: u32 = 20;

/// Rows and figures of all objects, and of those that are selected.
pub(super) struct Ledger<'a> {
    pub(super) numbering: Numbering<'a>,
    pub(super) sums: LiveSums,
    /// Figures of the objects that a filter takes.
    pub(super) selected: Option<SelectedObjects>,
    /// The row that more is told about.
    pub(super) watched: Option<Watched>,
    /// Time before which no other row is watched, where a pass over the live objects takes long.
    watch_due: Option<Instant>,
    pub(super) ticks: Ticks,
    /// Key of the mark.
    pub(super) mark: Option<u64>,
}

impl<'a> Ledger<'a> {
    /// No rows, at the begin of the trace.
    pub(super) fn new(
        classes: &'a Classes,
        first_symbols: &'a Symbolizer,
        names: NameMemory,
        cgroups: Option<LiveCgroups>,
    ) -> Ledger<'a> {
        Ledger {
            numbering: Numbering::new(classes, first_symbols, names, cgroups),
            sums: LiveSums::default(),
            selected: None,
            watched: None,
            watch_due: None,
            ticks: Ticks::new(0),
            mark: None,
        }
    }

    /// Begins at the key of the first event.
    pub(super) fn begin(&mut self, first: u64) {
        self.ticks = Ticks::new(first);
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
        self.each_sums(|sums| sums.all().for_each(|figures| figures.tick(ticks, &joined)));
        if self.numbering.lines(LiveGroup::Tasks).lines.len() > MANY_TASKS {
            self.drop_idle_tasks();
        }
    }

    /// Drops rows of tasks that have nothing and have not changed of late.
    fn drop_idle_tasks(&mut self) {
        // Each object counts in the figures of all, whichever are selected.
        let is_kept: Vec<bool> = self.sums.rows(LiveGroup::Tasks).iter().map(|figures| !figures.is_idle()).collect();
        self.numbering.retain_tasks(&is_kept);
        self.each_sums(|sums| sums.retain_tasks(&is_kept));
    }

    fn each_sums(&mut self, mut change: impl FnMut(&mut LiveSums)) {
        change(&mut self.sums);
        self.selected.iter_mut().for_each(|selected| change(&mut selected.sums));
    }

    /// Sets the mark: changes since it are those from now on.
    pub(super) fn set_mark(&mut self, at: u64) {
        self.mark = Some(at);
        self.each_sums(|sums| sums.all().for_each(|figures| figures.at_mark = Some(figures.live)));
    }

    /// Hands the places of an object that a thread has allocated at an order key to `change`, with all figures that it counts in. Returns
    /// its rows where the selection takes it, or there is none.
    #[inline]
    fn change(
        &mut self,
        class: &Class,
        (pid, at): (u32, u64),
        mut change: impl FnMut(&mut LiveSums, Places<'_>),
    ) -> Option<RowNumbers> {
        let Ledger { numbering, sums, selected, .. } = self;
        let is_selected = selected.as_mut().is_none_or(|selected| selected.takes(numbering, class.row, (pid, at)));
        let places = numbering.places(class, pid, at)?;
        change(sums, places);
        if let Some(selected) = selected.as_mut().filter(|_| is_selected) {
            change(&mut selected.sums, places);
        }
        is_selected.then_some(places.rows)
    }

    /// The watched row, where an object of these rows counts in it.
    #[inline]
    fn watched(&mut self, rows: Option<RowNumbers>, class: &Class, pid: u32) -> Option<&mut Watched> {
        let rows = rows?;
        self.watched.as_mut().filter(|watched| watched.has(&rows, class.kind, pid))
    }

    fn allocated(&mut self, class: &Class, pid: u32, at: u64, sizes: Sizes) {
        let birth = Birth { at, slice: self.ticks.len() - 1, ticks: self.ticks.len() };
        let rows = self.change(class, (pid, at), |sums, places| sums.allocated(places, birth, sizes));
        if let Some(watched) = self.watched(rows, class, pid) {
            watched.allocated(pid, 1, (sizes.1, sizes.1));
        }
    }

    /// Takes objects that a text lists together.
    pub(super) fn listed(&mut self, object: &LiveObject) {
        let LiveObject { class, info, objects, whole, left } = object;
        let birth = Birth { at: info.at, slice: 0, ticks: self.ticks.len() };
        let rows = self.change(class, (info.pid, info.at), |sums, places| sums.found(places, birth, *left, *objects));
        if let Some(watched) = self.watched(rows, class, info.pid) {
            watched.allocated(info.pid, *objects, (*whole, left.1));
        }
    }

    /// Takes bytes of an allocation of `whole` bytes that are gone.
    fn freed(&mut self, class: &Class, info: &AllocInfo, whole: u64, sizes: Sizes) {
        let pid = info.pid;
        let rows = self.change(class, (pid, info.at), |sums, places| sums.freed(places, sizes));
        if let Some(watched) = self.watched(rows, class, pid) {
            watched.freed(pid, whole, sizes.1);
        }
    }

    /// Takes the end of an object with its last bytes; `free_site` is the call-site that freed it, 0 where that is not known.
    fn ended(&mut self, object: &Ended, last: Sizes, crossed: bool, free_site: u64) {
        let Ended { class, info, sizes: (_, whole), .. } = object;
        let age = (self.ticks.slice(info.at), self.ticks.len());
        let rows = self.change(class, (info.pid, info.at), |sums, places| {
            sums.ended(places, last, age, crossed);
            if free_site != 0 {
                sums.count_freer(places.rows.of(LiveGroup::Sites), free_site);
            }
        });
        if let Some(watched) = self.watched(rows, class, info.pid) {
            watched.freed(info.pid, *whole, last.1);
            watched.ended(*whole);
        }
    }

    /// Counts the objects that a selection takes from `at` on, or of all where there is none.
    pub(super) fn select(&mut self, selection: Option<&Arc<dyn Selection>>, held: &mut Held<'_>, at: u64) {
        let text = self.selected.as_ref().map(|selected| selected.selection.text());
        if text == selection.map(|selection| selection.text()) {
            return;
        }
        self.watched = None;
        self.selected = selection.map(|selection| SelectedObjects::new(Arc::clone(selection), at));
        let Ledger { numbering, selected: Some(selected), ticks, .. } = self else { return };
        held.each_live(|object| {
            if selected.takes(numbering, object.class.row, (object.info.pid, object.info.at)) {
                found(numbering, &mut selected.sums, ticks, object);
            }
        });
        let has_mark = self.mark.is_some();
        selected.sums.all().for_each(|figures| figures.begin(at, has_mark));
    }

    /// Takes the names of the trace as it is now. A selection by names takes other objects then: those that are live move.
    pub(super) fn renew_names(&mut self, symbols: Symbolizer, comms: HashMap<i32, Box<[u8]>>, held: &mut Held<'_>) {
        let Ledger { numbering, selected, ticks, .. } = self;
        numbering.renew(symbols, comms);
        let Some(selected) = selected else { return };
        let Some(before) = selected.judge_again(numbering) else { return };
        self.watched = None;
        held.each_live(|object| {
            let (row, AllocInfo { pid, at, .. }) = (object.class.row, object.info);
            let cgroup = numbering.cgroup(pid, at).unwrap_or(0);
            match (before.takes(row, pid, cgroup), selected.takes(numbering, row, (pid, at))) {
                (false, true) => found(numbering, &mut selected.sums, ticks, object),
                (true, false) => lost(numbering, &mut selected.sums, ticks, object),
                _ => {}
            }
        });
    }

    /// Tells more about a row from now on. The first row of a busy screen is another one each second, so long passes over the live
    /// objects take a small share of the time.
    pub(super) fn watch(&mut self, choice: Option<RowChoice>, held: &mut Held<'_>) {
        if self.watched.as_ref().map(|watched| watched.choice) == choice {
            return;
        }
        self.watched = None;
        let begun = Instant::now();
        if self.watch_due.is_some_and(|due| begun < due) {
            return;
        }
        let Some((group, key, kind)) = choice else { return };
        let Some((number, _)) = self.numbering.lines(group).find(key, kind) else { return };
        let mut watched = Watched::new((group, key, kind), number);
        let Ledger { numbering, selected, .. } = self;
        held.each_live(|object| {
            let LiveObject { class, info, objects, whole, left } = object;
            let Some(rows) = numbering.places(class, info.pid, info.at).map(|places| places.rows) else { return };
            if watched.has(&rows, class.kind, info.pid)
                && selected.as_mut().is_none_or(|selected| selected.takes(numbering, class.row, (info.pid, info.at)))
            {
                watched.allocated(info.pid, *objects, (*whole, left.1));
            }
        });
        self.watched = Some(watched);
        let taken = begun.elapsed();
        self.watch_due = (taken > SHORT_PASS).then(|| Instant::now() + taken * PASS_SHARE);
    }
}

/// Adds an object to the sums that was live before they took it.
fn found(numbering: &mut Numbering<'_>, sums: &mut LiveSums, ticks: &Ticks, object: &LiveObject) {
    let LiveObject { class, info, objects, left, .. } = object;
    let birth = Birth { at: info.at, slice: ticks.slice(info.at), ticks: ticks.len() };
    if let Some(places) = numbering.places(class, info.pid, info.at) {
        sums.found(places, birth, *left, *objects);
    }
}

/// Takes an object that stays live off the sums.
fn lost(numbering: &mut Numbering<'_>, sums: &mut LiveSums, ticks: &Ticks, object: &LiveObject) {
    let LiveObject { class, info, objects, left, .. } = object;
    if let Some(places) = numbering.places(class, info.pid, info.at) {
        sums.lost(places, (ticks.slice(info.at), ticks.len()), *left, *objects);
    }
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
        self.ledger.advance(event.at);
        self.ledger.allocated(class, *pid, event.at, (*requested, allocated));
    }

    #[inline]
    fn freed(&mut self, event: Number, _: &Class, _: u64) {
        // The thread is told with the end of the object, or with the part.
        self.ledger.advance(event.at);
    }

    #[inline]
    fn part_freed(&mut self, class: &Class, info: &AllocInfo, whole: u64, bytes: u64) {
        // Pages ask for all that they get.
        self.ledger.freed(class, info, whole, (bytes, bytes));
    }

    #[inline]
    fn ended(&mut self, object: &Ended, fate: Fate, event: &PairEvent, _: Number, _: Suspicion) {
        let is_pair = fate == Fate::Pair;
        // Bytes of pages have gone part by part.
        let last = if object.pages.is_some() { (0, 0) } else { object.sizes };
        // A free has its call-site in `requested`; frees of pages have none.
        let free_site = if is_pair { event.requested } else { 0 };
        self.ledger.ended(object, last, is_pair && object.stream != event.stream, free_site);
    }
}
