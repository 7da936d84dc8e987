//! Filter of a query: the recorder's own allocations, and what the options select.
//!
//! Nearly all passes select everything, so [`EventFilter::takes`] is inlined into the reader and asks for no more than that;
//! [`Selected`] stays a call.

use std::collections::HashMap;

use kmemtrace_abi::event::{Action, Event, Kind, Names};

use crate::account::cgroups::Cgroups;
use crate::account::own_threads::OwnThreads;
use crate::names::caches::{CacheNames, candidates};
use crate::names::kallsyms::Symbolizer;
use crate::names::known::KnownNames;
use crate::names::reclaim::ReclaimedObject;
use crate::names::resolver::Places;
use crate::query::select::{Candidate, Select};

/// Filter of a pass: which events figures are made of.
#[derive(Clone)]
pub(crate) struct EventFilter<'a> {
    /// Threads of the recorder; none where events do not give theirs.
    own: OwnThreads<'a>,
    has_own: bool,
    /// Allocations of the recorder are taken, too.
    shows_own: bool,
    /// `None`: every event is taken.
    selected: Option<Box<Selected<'a>>>,
    /// Of allocations only failed ones are taken.
    only_failed: bool,
}

impl<'a> EventFilter<'a> {
    /// A filter that leaves allocations of the threads `own` out, unless it `shows_own`.
    pub(crate) fn new(selected: Option<Selected<'a>>, own: Option<&'a [i32]>, shows_own: bool) -> EventFilter<'a> {
        let own = own.unwrap_or_default();
        let selected = selected.map(Box::new);
        EventFilter { own: OwnThreads::new(own), has_own: !own.is_empty(), shows_own, selected, only_failed: false }
    }

    /// The same filter, which of allocations takes only failed ones if `yes`.
    pub(crate) fn only_failed(self, yes: bool) -> EventFilter<'a> {
        EventFilter { only_failed: yes, ..self }
    }

    /// True where options of the query select allocations.
    pub(crate) fn selects(&self) -> bool {
        self.selected.is_some() || self.only_failed
    }

    /// True for an allocation that the recorder makes for itself.
    #[inline(always)]
    pub(crate) fn is_own(&self, event: &Event) -> bool {
        self.has_own && self.own.allocates(event)
    }

    /// As [`EventFilter::takes`], where no option selects events.
    #[inline(always)]
    pub(crate) fn takes_unselected(&self, event: &Event) -> bool {
        self.shows_own || !self.is_own(event)
    }

    #[inline(always)]
    pub(crate) fn takes(&mut self, event: &Event, names: &Names) -> bool {
        self.takes_unselected(event)
            && !(self.only_failed && event.allocates() && !event.failed)
            && self.selected.as_mut().is_none_or(|selected| selected.takes(event, names))
    }
}

/// Selection of allocations by the options of a query; remembers its verdict for each call-site.
#[derive(Clone)]
pub(crate) struct Selected<'a> {
    pub(crate) select: &'a Select,
    pub(crate) symbols: &'a Symbolizer,
    pub(crate) comms: &'a HashMap<i32, Box<[u8]>>,
    places: &'a Places,
    caches: &'a CacheNames,
    cgroups: Option<&'a Cgroups>,
    sites: HashMap<u64, bool, foldhash::fast::RandomState>,
}

impl<'a> Selected<'a> {
    /// `None` where every event is taken.
    pub(crate) fn new(
        select: &'a Select,
        names: &'a KnownNames,
        caches: &'a CacheNames,
        cgroups: Option<&'a Cgroups>,
    ) -> Option<Selected<'a>> {
        (!select.is_all()).then(|| Selected {
            select,
            symbols: names.symbolizer(),
            comms: &names.comms,
            places: &names.places,
            caches,
            cgroups,
            sites: HashMap::default(),
        })
    }

    /// Name of the object's cache, and of its size class.
    fn cache<'n>(&'n self, event: &Event, names: &'n Names) -> (Option<&'n [u8]>, Option<&'n [u8]>) {
        let named = event.cache.map(|name| names.get(name));
        match event.action {
            _ if self.select.cache.is_empty() || named.is_some() => (named, None),
            Action::Alloc(Kind::Kmalloc) => {
                let (caches, allocated, gfp) = (self.caches, event.allocated, event.gfp);
                let (name, class) = (caches.size_class(allocated, gfp), caches.plain_size_class(allocated, gfp));
                (name.map(str::as_bytes), class.map(str::as_bytes))
            }
            Action::Alloc(Kind::Cache) => {
                let known = self.caches.of_object((event.call_site, event.allocated)).map(|(name, _)| name);
                // One of several candidates is no name.
                (known.filter(|name| candidates(name).is_none()), None)
            }
            _ => (None, None),
        }
    }

    /// Whether the kernel takes the event's object back by itself, where an option asks for it.
    fn is_reclaimable(&self, event: &Event, names: &Names, kind: Kind) -> Option<bool> {
        self.select.reclaimable?;
        is_reclaimable(event, names, kind, (self.caches, self.symbols))
    }

    #[inline(never)]
    pub(crate) fn takes(&mut self, event: &Event, names: &Names) -> bool {
        let Some(kind) = event.kind() else { return false };
        let requested = match event.owner(names).and_then(|owner| owner.listed.as_deref()) {
            // A text's entry may be of several objects.
            Some(listed) => listed.amounts.requested_of_each(),
            None => event.allocates().then_some(event.requested),
        };
        let (select, symbols, places) = (self.select, self.symbols, self.places);
        let site = *self.sites.entry(event.call_site).or_insert_with(|| {
            let symbol = symbols.lookup(event.call_site);
            select.matches_site(event.call_site, symbol.as_ref(), symbols.owner_of(event.call_site, symbol.as_ref()))
                && (select.branch.is_empty() || select.matches_branch(&places.place(event.call_site, symbols)))
        });
        let reclaimable = self.is_reclaimable(event, names, kind);
        let (cache, size_class) = self.cache(event, names);
        site && select.matches(&Candidate {
            kind,
            pid: event.pid,
            tgid: event.owner(names).and_then(|owner| owner.tgid),
            comm: event.comm(names, self.comms),
            cache,
            size_class,
            requested,
            context: event.context(),
            reclaimable,
            cgroup: self.cgroups.zip(event.pid).and_then(|(cgroups, pid)| cgroups.path(pid, event.at)),
            accounted: if select.accounted.is_some() { self.caches.reclaim.is_accounted(event) } else { None },
        })
    }
}

/// Whether the kernel takes an event's object back by itself; `None` where its cache is not known.
fn is_reclaimable(
    event: &Event,
    names: &Names,
    kind: Kind,
    (caches, symbols): (&CacheNames, &Symbolizer),
) -> Option<bool> {
    let rules = &caches.reclaim;
    let known = || {
        let place = (event.call_site, event.allocated);
        let known = caches.of_object(place).filter(|_| event.action == Action::Alloc(Kind::Cache))?;
        Some(known.0).filter(|name| candidates(name).is_none())
    };
    let symbol = symbols.lookup(event.call_site).filter(|_| event.allocates());
    let object = ReclaimedObject {
        kind,
        cache: event.cache.map(|name| names.get(name)).or_else(known),
        asks_reclaimable: rules.asks_reclaimable(event.gfp),
        function: symbol.map(|symbol| symbol.name),
    };
    rules.of_object(object).is_reclaimable()
}

/// Facts of the objects of single events, where a query asks for them: [`crate::Query::with_owners`].
#[derive(Clone, Copy)]
pub(crate) struct Owners<'a> {
    pub(crate) symbols: &'a Symbolizer,
    pub(crate) caches: &'a CacheNames,
    pub(crate) cgroups: Option<&'a Cgroups>,
}

impl<'a> Owners<'a> {
    /// Cgroup of a thread at an order key.
    pub(crate) fn cgroup(&self, pid: Option<i32>, at: u64) -> Option<&'a [u8]> {
        self.cgroups.zip(pid).and_then(|(cgroups, pid)| cgroups.path(pid, at))
    }

    /// Whether the kernel takes the object of an allocation back by itself.
    pub(crate) fn is_reclaimable(&self, event: &Event, names: &Names) -> Option<bool> {
        let kind = event.kind().filter(|_| event.allocates())?;
        is_reclaimable(event, names, kind, (self.caches, self.symbols))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kmemtrace_abi::event::{Action, Kind};

    #[test]
    fn only_the_threads_of_the_list_are_the_recorders() {
        let listed = [3, 64, 4096, 5000, i32::MAX];
        let mut names = Names::new();
        let name = names.intern(b"kmalloc");
        let event = Event {
            at: 0,
            address: 1,
            call_site: 0,
            requested: 0,
            allocated: 0,
            gfp: None,
            accounted: None,
            cpu: 0,
            pid: None,
            flags: Some(0),
            node: None,
            cache: None,
            name,
            action: Action::Alloc(Kind::Kmalloc),
            failed: false,
            order: None,
            stack: None,
            mark: kmemtrace_abi::event::Mark::None,
            value: None,
            owner: None,
            fields: None,
            bulk: None,
        };
        let pids = (-70..9000).chain([i32::MIN, i32::MAX - 4096, i32::MAX]);
        for pid in pids {
            let event = Event { pid: Some(pid), ..event };
            let is_listed = listed.contains(&pid);
            for shows_own in [false, true] {
                let mut filter = EventFilter::new(None, Some(&listed), shows_own);
                assert_eq!(filter.is_own(&event), is_listed, "{pid}");
                assert_eq!(filter.takes(&event, &names), shows_own || !is_listed, "{pid}");
                // Frees count as any, and so do allocations of unknown context.
                for event in [
                    Event { action: Action::Free(Kind::Kmalloc), ..event },
                    Event { flags: None, ..event },
                    Event { flags: Some(0x10), ..event },
                    Event { pid: None, ..event },
                ] {
                    assert!(!filter.is_own(&event) && filter.takes(&event, &names), "{event:?}");
                }
            }
        }
    }
}
