//! Loads of modules: the module whose initialisation a thread runs.
//!
//! The kernel tells of a load before the initialisation, and not of its end. A thread initialises one module at a time, within the
//! function [`INIT`]: an allocation below that function belongs to the module that its thread has loaded last.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use kmemtrace_abi::event::ModuleLoad;

/// Function that initialises a module, and returns once that is done.
pub(crate) const INIT: &[u8] = b"do_init_module";

/// Number of a module that was loaded, from 1.
pub(crate) type LoadedModule = u32;

/// Loads of modules by thread.
#[derive(Clone, Debug, Default)]
pub(crate) struct ModuleLoads {
    /// Order keys of a thread's loads, and the modules; ascending once [`ModuleLoads::sort`] was called.
    by_thread: HashMap<i32, Vec<(u64, LoadedModule)>, RandomState>,
    names: Vec<Box<[u8]>>,
    numbers: HashMap<Box<[u8]>, LoadedModule, RandomState>,
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

    /// Brings the loads of each thread in order: threads move between CPUs, which are read one by one.
    pub(crate) fn sort(&mut self) {
        self.by_thread.values_mut().for_each(|loads| loads.sort_by_key(|(at, _)| *at));
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
}
