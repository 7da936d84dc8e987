//! Filters of a query, with a memory for call-sites, which many events share.

use std::collections::HashMap;

use kmemtrace_abi::event::{Action, Event, Kind, Names};

use crate::names::caches::{CacheNames, candidates};
use crate::names::kallsyms::Symbolizer;
use crate::names::known::KnownNames;
use crate::names::resolver::Places;
use crate::order::pair_event::Filter;
use crate::query::select::{Candidate, Select};

/// Filter of allocations that remembers its verdict for each call-site.
#[derive(Clone)]
pub(crate) struct Selected<'a> {
    pub(crate) select: &'a Select,
    pub(crate) symbols: &'a Symbolizer,
    pub(crate) comms: &'a HashMap<i32, Box<[u8]>>,
    places: &'a Places,
    caches: &'a CacheNames,
    sites: HashMap<u64, bool, foldhash::fast::RandomState>,
}

impl<'a> Selected<'a> {
    /// `None` where every event is taken.
    pub(crate) fn new(select: &'a Select, names: &'a KnownNames, caches: &'a CacheNames) -> Option<Selected<'a>> {
        (!select.is_all()).then(|| Selected {
            select,
            symbols: names.symbolizer(),
            comms: &names.comms,
            places: &names.places,
            caches,
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
}

impl Filter for Selected<'_> {
    /// `--context` looks at them.
    const FLAGS: bool = true;

    fn takes(&mut self, event: &Event, names: &Names) -> bool {
        let (kind, requested) = match event.action {
            Action::Alloc(kind) => (kind, Some(event.requested)),
            Action::Free(kind) => (kind, None),
            Action::Other => return false,
        };
        let (select, symbols, places) = (self.select, self.symbols, self.places);
        let site = *self.sites.entry(event.call_site).or_insert_with(|| {
            let symbol = symbols.lookup(event.call_site);
            select.matches_site(event.call_site, symbol.as_ref(), symbols.owner_of(event.call_site, symbol.as_ref()))
                && (select.branch.is_empty() || select.matches_branch(&places.place(event.call_site, symbols)))
        });
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
        })
    }
}
