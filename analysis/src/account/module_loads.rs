//! Loads of modules: the module whose initialisation a thread runs.
//!
//! The kernel reports a load before the initialisation, and not its end. A thread initialises one module at a time, within the
//! function [`INIT`]: an allocation below that function belongs to the module that its thread has loaded last.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use kmemtrace_abi::event::{ModuleFree, ModuleLoad};

/// Function that initialises a module, and returns once that is done.
pub(crate) const INIT: &[u8] = b"do_init_module";

/// Number of a module that was loaded, from 1.
pub(crate) type LoadedModule = u32;

/// Limits of loads as they come: loads of a thread, threads, and names.
const MAX_LOADS: usize = 16;
const MAX_THREADS: usize = 4096;
const MAX_NAMES: usize = 1 << 16;

/// Loads of modules by thread.
#[derive(Clone, Debug, Default)]
pub(crate) struct ModuleLoads {
    /// Order keys of a thread's loads, and the modules; ascending once [`ModuleLoads::sort`] was called.
    by_thread: HashMap<i32, Vec<(u64, LoadedModule)>, RandomState>,
    names: Vec<Box<[u8]>>,
    numbers: HashMap<Box<[u8]>, LoadedModule, RandomState>,
    /// Order keys of the ends of modules, by name; ascending once [`ModuleLoads::sort`] was called.
    frees: HashMap<Box<[u8]>, Vec<u64>, RandomState>,
}

impl ModuleLoads {
    pub(crate) fn add(&mut self, load: ModuleLoad<'_>) {
        let next = u32::try_from(self.names.len()).unwrap_or(u32::MAX).saturating_add(1);
        let number = *self.numbers.entry(load.name.into()).or_insert(next);
        if number == next {
            self.names.push(load.name.into());
        }
        self.by_thread.entry(load.pid).or_default().push((load.at, number));
    }

    /// Adds a load of a trace that is being read: the latest loads of the latest threads are kept, in order.
    pub(crate) fn add_latest(&mut self, load: ModuleLoad<'_>) {
        if self.names.len() >= MAX_NAMES && !self.numbers.contains_key(load.name) {
            return;
        }
        if self.by_thread.len() >= MAX_THREADS && !self.by_thread.contains_key(&load.pid) {
            self.by_thread.clear();
        }
        self.add(load);
        if let Some(loads) = self.by_thread.get_mut(&load.pid) {
            loads.sort_by_key(|(at, _)| *at);
            loads.drain(..loads.len().saturating_sub(MAX_LOADS));
        }
    }

    /// Adds the end of a module.
    pub(crate) fn add_free(&mut self, free: ModuleFree<'_>) {
        self.frees.entry(free.name.into()).or_default().push(free.at);
    }

    /// True where nothing was loaded.
    pub(crate) fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Brings the loads of each thread in order: threads move between CPUs, which are read one by one.
    pub(crate) fn sort(&mut self) {
        self.by_thread.values_mut().for_each(|loads| loads.sort_by_key(|(at, _)| *at));
        self.frees.values_mut().for_each(|frees| frees.sort_unstable());
    }

    /// Name of the module that the thread has loaded last at this order key, of those that have not ended since. Of a thread that loads
    /// more than [`MAX_LOADS`] modules which all end, none is found.
    pub(crate) fn latest_there(&self, pid: i32, at: u64) -> Option<&[u8]> {
        let loads = self.by_thread.get(&pid)?;
        let before = loads.partition_point(|(of, _)| *of <= at);
        let mut latest = loads[..before].iter().rev().take(MAX_LOADS);
        let has_ended = |name: &[u8], from: u64| {
            let frees = self.frees.get(name).map_or(&[][..], |frees| frees);
            frees.get(frees.partition_point(|free| *free < from)).is_some_and(|free| *free <= at)
        };
        latest.find_map(|(from, module)| self.name(*module).filter(|name| !has_ended(name, *from)))
    }

    /// The module that the thread has loaded last at this order key; 0 for none.
    pub(crate) fn latest(&self, pid: i32, at: u64) -> LoadedModule {
        let loads = self.by_thread.get(&pid).map_or(&[][..], |loads| loads);
        let before = loads.partition_point(|(of, _)| *of <= at);
        before.checked_sub(1).and_then(|last| loads.get(last)).map_or(0, |(_, module)| *module)
    }

    /// Name of a module by its number.
    pub(crate) fn name(&self, module: LoadedModule) -> Option<&[u8]> {
        self.names.get((module as usize).checked_sub(1)?).map(|name| &**name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_initialises_the_module_that_it_loaded_last() {
        let mut loads = ModuleLoads::default();
        for (at, pid, name) in [(30, 7, "bar"), (10, 7, "foo"), (20, 8, "foo")] {
            loads.add(ModuleLoad { at, pid, name: name.as_bytes() });
        }
        loads.sort();
        let name = |pid, at| loads.name(loads.latest(pid, at)).map(|name| name.escape_ascii().to_string());
        assert_eq!((name(7, 9), name(7, 10).as_deref(), name(7, 29).as_deref()), (None, Some("foo"), Some("foo")));
        assert_eq!((name(7, 30).as_deref(), name(8, 99).as_deref(), name(9, 99)), (Some("bar"), Some("foo"), None));
    }

    #[test]
    fn a_module_that_has_ended_is_not_there() {
        let mut loads = ModuleLoads::default();
        for (at, name) in [(10, "foo"), (30, "bar"), (50, "foo")] {
            loads.add(ModuleLoad { at, pid: 7, name: name.as_bytes() });
        }
        for (at, name) in [(60, "foo"), (35, "bar"), (5, "foo")] {
            loads.add_free(ModuleFree { at, name: name.as_bytes() });
        }
        loads.sort();
        let there = |at| loads.latest_there(7, at).map(|name| name.escape_ascii().to_string());
        let there: Vec<_> = [9, 10, 34, 35, 49, 59, 60].into_iter().map(there).collect();
        let some = |name: &str| Some(name.to_owned());
        assert_eq!(there, [None, some("foo"), some("bar"), some("foo"), some("foo"), some("foo"), None]);
    }

    #[test]
    fn loads_that_come_late_are_put_in_order_and_old_ones_are_forgotten() {
        let mut loads = ModuleLoads::default();
        for (at, pid, name) in [(30, 7, "bar"), (10, 7, "foo")].into_iter().chain((0..5000).map(|pid| (50, pid, "x"))) {
            loads.add_latest(ModuleLoad { at, pid, name: name.as_bytes() });
        }
        let name = |pid, at| loads.name(loads.latest(pid, at)).map(|name| name.escape_ascii().to_string());
        assert_eq!((name(4999, 60).as_deref(), name(7, 60)), (Some("x"), None));
        (0..100).for_each(|at| loads.add_latest(ModuleLoad { at, pid: 4999, name: b"y" }));
        let name = |at| loads.name(loads.latest(4999, at));
        assert_eq!((name(49), name(99)), (None, Some(&b"y"[..])));
    }
}
