//! Names of rows. Each is made once, and again when the trace has more symbols.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;

use super::snapshot::{LiveKey, LiveName, LiveSymbol};
use crate::account::cgroups::LiveCgroups;
use crate::account::classes::Classes;
use crate::names::kallsyms::Symbolizer;
use crate::names::threads;
use crate::order::pair_event::NO_PID;

/// Names that are kept.
const MAX_NAMES: usize = 1 << 16;

/// Names of rows by their keys.
#[derive(Debug, Default)]
pub(super) struct NameMemory {
    names: HashMap<LiveKey, Arc<LiveName>, RandomState>,
    /// Command names by thread id.
    comms: HashMap<i32, Box<[u8]>>,
    /// Names of caches, by number less one.
    caches: Vec<Box<[u8]>>,
    /// Threads of the trace are those of this machine: `/proc` has names that the trace does not have yet.
    is_here: bool,
}

impl NameMemory {
    /// Command names alone; `is_here`: the threads of the trace are those of this machine.
    pub(super) fn new(comms: HashMap<i32, Box<[u8]>>, is_here: bool) -> NameMemory {
        NameMemory { comms, is_here, ..NameMemory::default() }
    }

    /// Forgets the names of call-sites and threads: the trace has more of them.
    pub(super) fn renew(&mut self, comms: HashMap<i32, Box<[u8]>>) {
        self.comms = comms;
        self.names.clear();
    }

    /// Name of a row; `modules` are by number, and so are `cgroups`.
    pub(super) fn name(
        &mut self,
        key: LiveKey,
        classes: &Classes,
        symbols: &Symbolizer,
        modules: &[Option<Box<[u8]>>],
        cgroups: Option<&LiveCgroups>,
    ) -> Arc<LiveName> {
        if let Some(name) = self.names.get(&key) {
            return Arc::clone(name);
        }
        let name = Arc::new(match key {
            LiveKey::Site(site) => LiveName::Site(site, symbol_of(site, symbols)),
            LiveKey::Module(number) => LiveName::Module(modules.get(number as usize).cloned().flatten()),
            LiveKey::Task(NO_PID) => LiveName::Task(None, None),
            LiveKey::Task(pid) => LiveName::Task(Some(pid.cast_signed()), self.comm(pid.cast_signed())),
            LiveKey::Cgroup(number) => {
                LiveName::Cgroup(cgroups.and_then(|cgroups| cgroups.path_of(number)).map(Into::into))
            }
            LiveKey::Cache(number) => LiveName::Cache(self.cache(number, classes)),
            LiveKey::Use(number) => LiveName::Use(self.cache(number, classes)),
            // Nodes are made of rows by screens.
            LiveKey::Node(_) => LiveName::Stack(Vec::new()),
            LiveKey::Stack(number, _) => {
                let frames = classes.frames(number);
                LiveName::Stack(frames.iter().map(|&frame| (frame, symbol_of(frame, symbols))).collect())
            }
        });
        if self.names.len() >= MAX_NAMES {
            self.names.clear();
        }
        self.names.insert(key, Arc::clone(&name));
        name
    }

    fn comm(&self, pid: i32) -> Option<Box<[u8]>> {
        let of_trace = self.comms.get(&pid).cloned();
        of_trace.or_else(|| threads::comm(pid).filter(|_| self.is_here))
    }

    fn cache(&mut self, number: u32, classes: &Classes) -> Option<Box<[u8]>> {
        let index = (number as usize).checked_sub(1)?;
        if index >= self.caches.len() {
            let caches = &mut self.caches;
            classes.names_from(caches.len(), |name| caches.push(name.into()));
        }
        self.caches.get(index).cloned()
    }
}

/// Function of an address.
fn symbol_of(site: u64, symbols: &Symbolizer) -> Option<LiveSymbol> {
    let symbol = symbols.lookup(site)?;
    Some(LiveSymbol { name: symbol.name.into(), offset: symbol.offset, module: symbol.module.map(Into::into) })
}
