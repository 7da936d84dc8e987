//! Call-sites in the initialisation of modules, whose code the kernel frees after the load: no symbol and no module's range holds them.
//!
//! Such a call-site belongs to the module that its thread has loaded last. Rows are made of call-sites, so a call-site has a module only
//! if all of its events come to the same one: the code of a module that is loaded later may lie where that of an earlier one was.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use kmemtrace_abi::event::{Action, Event, EventSink, Gap, ModuleFree, ModuleLoad, Names};
use kmemtrace_abi::stack::StackId;
use kmemtrace_abi::stream::CpuStream;
use kmemtrace_abi::trace::{OpenError, Trace};

use super::read_in_order;
use crate::account::module_loads::ModuleLoads;
use crate::names::kallsyms::{InitSite, InitSites, SiteOwner, Symbolizer};
use crate::names::module_area::ModuleArea;
use crate::names::module_info::{self, ModuleInfo};
use crate::progress::Progress;

/// Limit of pairs of call-site and thread. Modules have some tens; with more of them no call-site has a module.
const MAX_PAIRS: usize = 1 << 18;
/// Limit of call-sites whose owners are remembered.
const MAX_REMEMBERED: usize = 1 << 16;

/// Facts that call-sites are looked up by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InitFacts<'a> {
    pub(crate) symbols: &'a Symbolizer,
    area: ModuleArea,
}

impl<'a> InitFacts<'a> {
    /// Facts of a trace; `None` where its modules may be anywhere.
    pub(crate) fn of(trace: &Trace, symbols: &'a Symbolizer) -> Option<InitFacts<'a>> {
        let area = ModuleArea::of(trace.info.arch.as_deref(), trace.info.word_bytes, symbols)?;
        Some(InitFacts { symbols, area })
    }

    /// True for a call-site that may be in the initialisation of a module.
    pub(crate) fn may_be_init(self, call_site: u64) -> bool {
        self.area.holds(call_site) && self.symbols.owner(call_site) == SiteOwner::Unknown
    }
}

/// Finds the call-sites, by a pass over all events between the order keys that `bounds` gives for the first key of all: events outside
/// count as not recorded.
///
/// # Errors
/// The trace cannot be opened again.
pub(crate) fn find(
    trace: &Trace,
    facts: InitFacts<'_>,
    bounds: impl FnOnce(u64) -> (u64, u64),
    progress: &mut dyn Progress,
) -> Result<InitSites, OpenError> {
    let bounds = bounds(first_key(trace.reopen()?));
    let mut trace = trace.reopen()?;
    let seen = Seen {
        facts,
        bounds,
        owners: HashMap::default(),
        stacks: HashMap::default(),
        loads: ModuleLoads::default(),
        pairs: HashMap::default(),
    };
    let seen = if trace.may_have_stacks() {
        let mut sink = Sink::<true>(seen);
        read_in_order::decode_all(&mut trace, &mut sink, progress);
        sink.0
    } else {
        let mut sink = Sink::<false>(seen);
        read_in_order::decode_all(&mut trace, &mut sink, progress);
        sink.0
    };
    Ok(seen.sites(&ModuleInfo::parse(&trace.metadata.module_info)))
}

/// First order key of all streams.
fn first_key(mut trace: Trace) -> u64 {
    let names = &mut trace.names;
    let mut first = |stream: &mut CpuStream| {
        let mut items = Vec::new();
        while stream.report().first.is_none() && stream.fill(names, &mut items) {}
        stream.report().first
    };
    trace.streams.iter_mut().filter_map(&mut first).min().unwrap_or(0)
}

/// Loads, and call-sites that may be in the initialisation of a module.
struct Seen<'a> {
    facts: InitFacts<'a>,
    bounds: (u64, u64),
    /// True for call-sites that may be in the initialisation of a module.
    owners: HashMap<u64, bool, RandomState>,
    /// Such frames of each stack.
    stacks: HashMap<StackId, Box<[u64]>, RandomState>,
    loads: ModuleLoads,
    /// Order keys of the first and the last event, by call-site and thread.
    pairs: HashMap<(u64, Option<i32>), (u64, u64), RandomState>,
}

impl Seen<'_> {
    fn holds(&self, at: u64) -> bool {
        (self.bounds.0..=self.bounds.1).contains(&at)
    }

    fn may_be_init(&mut self, call_site: u64) -> bool {
        if !self.facts.area.holds(call_site) {
            return false;
        }
        if self.owners.len() >= MAX_REMEMBERED {
            self.owners.clear();
        }
        let facts = self.facts;
        *self.owners.entry(call_site).or_insert_with(|| facts.may_be_init(call_site))
    }

    fn add(&mut self, call_site: u64, event: &Event) {
        if self.pairs.len() <= MAX_PAIRS {
            let (first, last) = self.pairs.entry((call_site, event.pid)).or_insert((event.at, event.at));
            (*first, *last) = ((*first).min(event.at), (*last).max(event.at));
        }
    }

    fn add_stack(&mut self, stack: StackId, event: &Event, names: &Names) {
        if !self.stacks.contains_key(&stack) {
            let frames = names.stacks.get(stack).iter().copied();
            let frames = frames.filter(|frame| self.may_be_init(*frame)).collect();
            if self.stacks.len() >= MAX_REMEMBERED {
                self.stacks.clear();
            }
            self.stacks.insert(stack, frames);
        }
        let frames = self.stacks.get(&stack).cloned().unwrap_or_default();
        frames.iter().for_each(|frame| self.add(*frame, event));
    }

    /// Call-sites all of whose events belong to one module.
    fn sites(mut self, modules: &[ModuleInfo]) -> InitSites {
        if self.loads.is_empty() || self.pairs.len() > MAX_PAIRS {
            return InitSites::new();
        }
        self.loads.sort();
        let mut found: HashMap<u64, Option<&[u8]>> = HashMap::new();
        for (&(site, pid), &(first, last)) in &self.pairs {
            let module = |at| pid.and_then(|pid| self.loads.latest_there(pid, at));
            let of_thread = module(first).filter(|name| module(last) == Some(name));
            let all = found.entry(site).or_insert(of_thread);
            if *all != of_thread {
                *all = None;
            }
        }
        let known = found.into_iter().filter_map(|(site, module)| Some((site, module?)));
        known
            .map(|(site, module)| {
                (site, InitSite { module: module.into(), offset: module_info::offset_in_init(modules, module, site) })
            })
            .collect()
    }
}

/// Sink of one stream after the other; `STACKS`: events have call stacks.
struct Sink<'a, const STACKS: bool>(Seen<'a>);

impl<const STACKS: bool> EventSink for Sink<'_, STACKS> {
    const NAMES: bool = false;
    const FLAGS: bool = false;
    const STACKS: bool = STACKS;
    const MARKS: bool = false;

    fn event(&mut self, event: Event, names: &Names) {
        let seen = &mut self.0;
        if event.action == Action::Other || !seen.holds(event.at) {
            return;
        }
        if seen.may_be_init(event.call_site) {
            seen.add(event.call_site, &event);
        }
        if let Some(stack) = event.stack {
            seen.add_stack(stack, &event, names);
        }
    }

    fn gap(&mut self, _: Gap) {}

    fn module_load(&mut self, load: ModuleLoad<'_>) {
        if self.0.holds(load.at) {
            self.0.loads.add(load);
        }
    }

    fn module_free(&mut self, free: ModuleFree<'_>) {
        if self.0.holds(free.at) {
            self.0.loads.add_free(free);
        }
    }
}
