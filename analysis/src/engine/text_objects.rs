//! Objects of a text of one moment, as [`Query::objects`] hands them over: each entry is a live object, and nothing is paired.

use std::cell::Cell;
use std::collections::HashMap;

use foldhash::fast::RandomState;
use kmemtrace_abi::event::{Event, Names as EventNames, Space};
use kmemtrace_abi::listed::Listed;
use kmemtrace_abi::trace::Trace;

use crate::account::classes::{Classes, MAX_CLASSES};
use crate::account::stacks::StackNumber;
use crate::account::text_sites::{TextSite, TextSites, with_site};
use crate::engine::object_fate::{ObjectFate, ObjectSink};
use crate::engine::observe::{Observed, in_order};
use crate::error::{AnalysisError, LESS_OF_THE_TRACE};
use crate::memory::budget::Budget;
use crate::order::merger::Window;
use crate::pairing::fate::{Fate, ObjectPages};
use crate::progress::Progress;
use crate::query::Query;
use crate::query::filter::{EventFilter, Owners};

impl Query {
    /// Hands the entries of a text that the filters take to `sink`, oldest first.
    pub(super) fn listed_objects(
        &self,
        trace: &mut Trace,
        sink: &mut dyn ObjectSink,
        progress: &mut dyn Progress,
    ) -> Result<Observed, AnalysisError> {
        let (budget, first_key) = (Budget::new(self.max_memory), Cell::new(0));
        let (pass, index) = self.open_pass(trace, &first_key, budget, progress)?;
        let classes = Classes::new(EventNames::new(), MAX_CLASSES);
        let mut objects = TextObjects {
            sink,
            filter: EventFilter::new(pass.filter(), pass.own_threads(), self.shows_own),
            sites: TextSites::new(pass.facts(), &classes),
            stacks: HashMap::default(),
            classes: &classes,
            comms: &pass.names.comms,
            owners: self.tells_owners.then(|| pass.owners()),
            has_ended: false,
        };
        let mut is_over = false;
        let take = |window: &Window<Event>, _, names: &EventNames| {
            objects.window(window, names);
            is_over = budget.is_exceeded();
            !objects.has_ended && !is_over
        };
        let (order, mut completeness) = in_order(trace, self.window_events, index, pass.window, progress, take)?;
        if is_over {
            return Err(budget.exceeded("entries of the text", order.events, LESS_OF_THE_TRACE));
        }
        drop(objects);
        completeness.set_unpaired(0, 0);
        Ok(pass.end(trace, &order, completeness))
    }
}

/// Entries on their way to the caller's sink.
struct TextObjects<'a> {
    sink: &'a mut dyn ObjectSink,
    filter: EventFilter<'a>,
    sites: TextSites<'a>,
    /// Frames of stacks, from their sites on.
    stacks: HashMap<StackNumber, Box<[u64]>, RandomState>,
    classes: &'a Classes,
    comms: &'a HashMap<i32, Box<[u8]>>,
    owners: Option<Owners<'a>>,
    /// Set once the sink has ended the pass.
    has_ended: bool,
}

impl TextObjects<'_> {
    fn window(&mut self, window: &Window<Event>, names: &EventNames) {
        for (event, seq) in window.events.iter().zip(window.first_serial..) {
            let listed = event.owner(names).and_then(|owner| owner.listed.as_deref());
            if let Some(listed) = listed.filter(|_| !self.has_ended) {
                self.entry(event, seq, listed, names);
            }
        }
    }

    fn entry(&mut self, event: &Event, seq: u64, listed: &Listed, names: &EventNames) {
        let found = self.sites.read(event, listed, names);
        let event = &with_site(*event, &found);
        if !self.filter.takes(event, names) {
            return;
        }
        let TextSite { stack, kind, .. } = found;
        let pages = listed.amounts.pages.filter(|_| kind.space() == Space::Pages);
        let whole = |pages| ObjectPages { allocated: pages, freed: 0, inferred: 0, live: pages, freed_elsewhere: 0 };
        let classes = self.classes;
        let object = ObjectFate {
            fate: Fate::Live,
            seq,
            at: event.at,
            cpu: event.cpu,
            pid: event.pid,
            comm: event.comm(names, self.comms),
            cgroup: self.owners.and_then(|owners| owners.cgroup(event.pid, event.at)),
            reclaimable: self.owners.and_then(|owners| owners.is_reclaimable(event, names)),
            address: event.address,
            call_site: event.call_site,
            kind,
            stack: self.stacks.entry(stack).or_insert_with(|| classes.frames(stack)),
            cache: event.cache.map(|cache| names.get(cache)),
            requested: event.requested,
            allocated: event.allocated,
            pages: pages.map(whole),
            end: None,
            free: None,
            suspect: None,
        };
        self.has_ended = self.sink.object(&object).is_break();
    }
}
