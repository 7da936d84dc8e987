//! Stack of an event, and the site of an allocation: each is found once for each different stack.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use kmemtrace_abi::event::{Event, Kind, Names, Space};
use kmemtrace_abi::stack::StackId;

use crate::account::classes::Classes;
use crate::account::group_reader::GroupFacts;
use crate::account::stacks::StackNumber;

/// Stack of an allocation, and its site.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct EventStack {
    pub(crate) number: StackNumber,
    /// Frames before the site, which the stack passes over, of pages; 0 for none.
    pub(crate) passed: StackNumber,
    /// Call-site of the event, or the frame that asked for the memory; 0 where neither is known.
    pub(crate) site: u64,
}

/// Answer for the latest call-site of a stack: nearly all stacks have one call-site.
#[derive(Clone, Copy, Debug)]
struct Latest {
    call_site: u64,
    space: Space,
    /// `None`: not looked up yet.
    found: Option<EventStack>,
}

/// Reader of the stacks of events.
#[derive(Clone)]
pub(crate) struct StackReader<'a> {
    facts: GroupFacts<'a>,
    classes: &'a Classes,
    /// By index of the thread's own stacks.
    latest: Vec<Latest>,
    /// True for frames that are passed over, by address and space.
    passed_over: HashMap<(u64, Space), bool, RandomState>,
}

impl<'a> StackReader<'a> {
    pub(crate) fn new(facts: GroupFacts<'a>, classes: &'a Classes) -> StackReader<'a> {
        StackReader { facts, classes, latest: Vec::new(), passed_over: HashMap::default() }
    }

    /// Stack and site of an event.
    #[inline]
    pub(crate) fn read(&mut self, event: &Event, names: &Names) -> EventStack {
        let Some(id) = event.stack else { return EventStack { site: event.call_site, ..EventStack::default() } };
        let space = event.kind().map_or(Space::Slab, Kind::space);
        let found = match self.latest.get(id.index()) {
            Some(&Latest { call_site, space: of, found: Some(found) })
                if (call_site, of) == (event.call_site, space) =>
            {
                found
            }
            _ => self.other(id, event.call_site, space, names),
        };
        // Failed allocations of per-CPU memory are all at one place.
        if space == Space::Percpu && event.failed { EventStack { site: 0, ..found } } else { found }
    }

    #[cold]
    fn other(&mut self, id: StackId, call_site: u64, space: Space, names: &Names) -> EventStack {
        let recorded = names.stacks.get(id);
        let from = self.site_of(recorded, call_site, space);
        let site = match from {
            _ if call_site != 0 => call_site,
            Some(from) => recorded.get(from).copied().unwrap_or(0),
            None => 0,
        };
        let number = self.classes.stack(recorded, from.unwrap_or(0));
        let passed = if space == Space::Pages { self.classes.passed(recorded, from.unwrap_or(0)) } else { 0 };
        let found = EventStack { number, passed, site };
        if self.latest.len() <= id.index() {
            self.latest.resize(id.index() + 1, Latest { call_site: 0, space, found: None });
        }
        self.latest[id.index()] = Latest { call_site, space, found: Some(found) };
        found
    }

    /// Index of the frame that asked for the memory: the call-site, else the first that is no tracing and no allocator. `None` where
    /// all are, and where no frame has a name.
    fn site_of(&mut self, frames: &[u64], call_site: u64, space: Space) -> Option<usize> {
        let at_call_site = frames.iter().position(|&frame| frame == call_site && call_site != 0);
        at_call_site.or_else(|| {
            let symbols = self.facts.symbolizer().filter(|symbols| !symbols.is_empty())?;
            let list = &self.facts.places.options.frames;
            frames.iter().position(|&frame| {
                let is_listed = || symbols.lookup(frame).is_some_and(|symbol| list.is_passed_over(symbol.name, space));
                !*self.passed_over.entry((frame, space)).or_insert_with(is_listed)
            })
        })
    }
}
