//! Passes that hand over events in the total order: [`Query::observe`], and the windows that the pass over objects shares with it.

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::BTreeSet;

use kmemtrace_abi::event::{Event, Names as EventNames};
use kmemtrace_abi::trace::Trace;

use crate::account::cgroups::Cgroups;
use crate::account::classes::{Classes, MAX_SIZED_CLASSES};
use crate::account::completeness::Completeness;
use crate::account::completeness::MergeStats;
use crate::account::group_reader::GroupFacts;
use crate::account::grouping::ModuleRule;
use crate::account::own_threads::OwnThreads;
use crate::account::text_sites::{TextSites, with_site};
use crate::cache::{Index, Restricted};
use crate::engine::config::WINDOW;
use crate::engine::query_run::begin;
use crate::engine::read_in_order;
use crate::error::AnalysisError;
use crate::memory::budget::Budget;
use crate::names::aliases::CacheAliases;
use crate::names::caches::CacheNames;
use crate::names::known::KnownNames;
use crate::names::place::NamesReport;
use crate::order::merger::Window;
use crate::order::ordered::{Observer, Ordered, PlaceEvent};
use crate::progress::{Progress, Silent};
use crate::query::Query;
use crate::query::filter::{Owners, Selected};
use crate::query::select::Select;
use crate::query::window::AskedWindow;

/// Totals of a pass for an observer.
#[derive(Clone, Debug)]
pub struct Observed {
    /// Loss and damage over all files; after [`std::ops::ControlFlow::Break`] only of what was read by then.
    pub completeness: Completeness,
    /// Events in the window; filters do not change the number.
    pub events: u64,
    /// Order key of the trace's first event, if the query had a window; else 0.
    pub first_key: u64,
    /// Order keys of the first and the last event of the window; `None` without events.
    pub keys: Option<(u64, u64)>,
    /// Thread ids of the recorder, if the trace tells them.
    pub own_threads: Option<Vec<i32>>,
    /// Loss without a place came to light at the end: it may explain every finding.
    pub has_late_loss: bool,
    /// Folders and files of the call-sites, ascending, if the query selects by them; else none.
    pub source_paths: BTreeSet<Box<[u8]>>,
    /// Origin of the names that filters and events asked for, and the files of names that are left out.
    pub names: NamesReport,
}

impl Query {
    /// Hands all events of the query, and all gaps, to `observer`, in the total order, on the caller's thread. Grouping, live
    /// objects and [`Query::with_own`] do not matter here: the recorder's own events are handed over, too. The crate's front page has an example.
    ///
    /// # Errors
    /// [`AnalysisError::NoSeconds`], [`AnalysisError::EndUnknown`] or [`AnalysisError::Open`]; with a filter on caches that only frees
    /// name those of [`Query::run`], too, which learns the names.
    pub fn observe(&self, trace: &mut Trace, observer: &mut dyn Observer) -> Result<Observed, AnalysisError> {
        self.observe_with(trace, observer, &mut Silent)
    }

    /// [`Query::observe`] with progress.
    ///
    /// # Errors
    /// As for [`Query::observe`].
    pub fn observe_with(
        &self,
        trace: &mut Trace,
        observer: &mut dyn Observer,
        progress: &mut dyn Progress,
    ) -> Result<Observed, AnalysisError> {
        let first_key = Cell::new(0);
        let (pass, index) = self.open_pass(trace, &first_key, Budget::new(self.max_memory), progress)?;
        let classes = Classes::new(EventNames::new(), MAX_SIZED_CLASSES);
        let own = pass.own_threads().map(OwnThreads::new);
        let mut place = trace.info.text.is_some().then(|| pass.place(&classes));
        let placing = place.as_mut().map(|place| &mut **place as &mut PlaceEvent<'_>);
        let mut ordered = Ordered::new(observer, &pass.names.comms, pass.filter(), own)
            .placing(placing)
            .with_owners(self.tells_owners.then(|| pass.owners()));
        let (order, completeness) =
            observe_in_order(trace, self.window_events, index, pass.window, progress, &mut ordered)?;
        drop(place);
        Ok(pass.end(trace, &order, completeness))
    }

    /// Opens a pass over the events in order; also returns the index, for [`in_order`].
    pub(crate) fn open_pass<'a>(
        &'a self,
        trace: &mut Trace,
        first_key: &'a Cell<u64>,
        budget: Budget,
        progress: &mut dyn Progress,
    ) -> Result<(OrderedPass<'a>, Option<Index>), AnalysisError> {
        begin(trace)?;
        let index = self.find_index(trace, budget);
        let (mut names, own_threads) = self.take_names(trace, progress)?;
        if !self.select.branch.is_empty() {
            names.find_sources(trace)?;
        }
        let window = self.window_on(trace, index.as_ref(), first_key, progress)?;
        self.find_init_sites(trace, &names, window, progress)?;
        let caches = self.cache_names(trace, false, progress)?;
        let cgroups = self.cgroups(trace, progress)?;
        let aliases = CacheAliases::parse(&trace.metadata.cache_aliases);
        let select = self.select.with_aliases(aliases.as_ref());
        Ok((OrderedPass { names, own_threads, window, first_key, caches, cgroups, select }, index))
    }
}

/// Pass over the events in order, with the facts that its filters ask for.
pub(crate) struct OrderedPass<'a> {
    pub(crate) names: KnownNames,
    own_threads: Option<Vec<i32>>,
    pub(crate) window: Option<AskedWindow<'a>>,
    /// First key of the trace, once the window was put onto it.
    first_key: &'a Cell<u64>,
    pub(super) caches: CacheNames,
    cgroups: Option<Cgroups>,
    select: Cow<'a, Select>,
}

impl OrderedPass<'_> {
    /// Filter of the query.
    pub(super) fn filter(&self) -> Option<Selected<'_>> {
        Selected::new(&self.select, &self.names, &self.caches, self.cgroups.as_ref())
    }

    /// Facts of the objects of single events.
    pub(super) fn owners(&self) -> Owners<'_> {
        Owners { symbols: self.names.symbolizer(), caches: &self.caches, cgroups: self.cgroups.as_ref() }
    }

    /// Facts that values of keys depend on.
    pub(super) fn facts(&self) -> GroupFacts<'_> {
        GroupFacts {
            comms: &self.names.comms,
            symbols: None,
            places: &self.names.places,
            caches: &self.caches,
            names: Some(&self.names),
            gfp_names: None,
            module_rule: ModuleRule::Innermost,
            loads: None,
            marks_reclaim: false,
            cgroups: None,
        }
    }

    /// Call sites and kinds of a text's events.
    pub(super) fn place<'p>(&'p self, classes: &'p Classes) -> Box<PlaceEvent<'p>> {
        let mut sites = TextSites::new(self.facts(), classes);
        Box::new(move |event, names| {
            let listed = event.owner(names).and_then(|owner| owner.listed.as_deref());
            listed.map_or(*event, |listed| with_site(*event, &sites.read(event, listed, names)))
        })
    }

    /// Threads of the recorder, if it has any.
    pub(super) fn own_threads(&self) -> Option<&[i32]> {
        self.own_threads.as_deref().filter(|threads| !threads.is_empty())
    }

    /// Totals at the end.
    pub(super) fn end(self, trace: &Trace, order: &MergeStats, completeness: Completeness) -> Observed {
        self.end_with_names(trace, order, completeness).0
    }

    /// Totals at the end, and the names.
    pub(crate) fn end_with_names(
        self,
        trace: &Trace,
        order: &MergeStats,
        completeness: Completeness,
    ) -> (Observed, KnownNames) {
        let observed = Observed {
            completeness,
            events: order.events,
            first_key: self.first_key.get(),
            keys: order.first.zip(order.last),
            own_threads: self.own_threads,
            has_late_loss: has_late_loss(trace, order),
            source_paths: self.names.places.paths(),
            names: self.names.report(),
        };
        (observed, self.names)
    }
}

/// Hands all events and gaps within the window to the observer of `ordered`: [`in_order`], and what comes to light at the end.
pub(crate) fn observe_in_order(
    trace: &mut Trace,
    window_events: Option<usize>,
    index: Option<Index>,
    window: Option<AskedWindow<'_>>,
    progress: &mut dyn Progress,
    ordered: &mut Ordered<'_>,
) -> Result<(MergeStats, Completeness), AnalysisError> {
    let (order, completeness) = in_order(trace, window_events, index, window, progress, |window, first, names| {
        ordered.window(window, first, names);
        !ordered.has_ended
    })?;
    if trace.dropped_beyond(order.missing) > 0 {
        ordered.gap_on_every_cpu(&trace.info.cpus, (order.first.unwrap_or(0), order.last.unwrap_or(0)));
    }
    ordered.finish(order.last.unwrap_or(0));
    Ok((order, completeness))
}

/// Hands all events within the window to `take`, in order, and what the merge knows of gaps; an index tells the parts of the files
/// that the window needs. `take` ends the pass where it returns false.
pub(super) fn in_order(
    trace: &mut Trace,
    window_events: Option<usize>,
    mut index: Option<Index>,
    window: Option<AskedWindow<'_>>,
    progress: &mut dyn Progress,
    mut take: impl FnMut(&Window<Event>, u64, &EventNames) -> bool,
) -> Result<(MergeStats, Completeness), AnalysisError> {
    let mut restricted = restrict(index.as_mut(), trace, window);
    if let Some(index) = index.as_mut().filter(|_| restricted.is_some()) {
        // No line can be taken back, so all is read once before the first of them.
        read_in_order::last_key(trace, progress);
        let is_good = index.was_good(trace);
        let (keeps_fields, symbols) = (trace.names.fields.is_kept(), trace.info.symbols);
        *trace = trace.reopen()?;
        trace.info.symbols = symbols;
        trace.names.fields.set_kept(keeps_fields);
        restricted = if is_good { restrict(Some(index), trace, window) } else { None };
    }
    if let Some(index) = index.as_ref().filter(|_| restricted.is_none()) {
        index.prepare(trace);
    }
    let first = restricted.as_ref().map(|restricted| restricted.first);
    let resolve = |first| window.map_or((0, u64::MAX), |window| window.resolve(first));
    let bounds = |first| restricted.as_ref().map_or_else(|| resolve(first), |restricted| restricted.bounds);
    let mut has_ended = false;
    let order = read_in_order::in_order(
        trace,
        window_events.unwrap_or(WINDOW),
        first,
        bounds,
        progress,
        |window, first, names| {
            has_ended = !take(window, first, names);
            !has_ended
        },
    );
    let completeness = match restricted {
        Some(restricted) => restricted.completeness,
        // Observers get every stack, which the names of the trace keep once.
        None => Completeness::of(trace, &order).with_distinct_stacks(trace, trace.names.stacks.len() as u64),
    };
    if let Some(index) = index.filter(|_| first.is_none() && !has_ended) {
        index.keep(trace, &completeness, None);
    }
    Ok((order, completeness))
}

/// True where loss without a place came to light at the end of a pass.
pub(crate) fn has_late_loss(trace: &Trace, order: &MergeStats) -> bool {
    trace.dropped_beyond(order.missing) > 0 || trace.streams.iter().any(|stream| stream.report().late_loss)
}

/// Has the streams read only what the window needs, where the index tells what that is.
fn restrict(index: Option<&mut Index>, trace: &mut Trace, window: Option<AskedWindow<'_>>) -> Option<Restricted> {
    let (index, window) = (index?, window?);
    index.restrict(trace, |first| window.resolve(first))
}
