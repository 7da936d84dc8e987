//! The recorder's own allocations: told from those of others by the thread and the context of their events.

#[cfg(any(test, feature = "fast"))]
use kmemtrace_abi::event::{Event, Names};

#[cfg(any(test, feature = "fast"))]
use crate::account::own_threads::OwnThreads;
#[cfg(any(test, feature = "fast"))]
use crate::order::pair_event::Filter;

/// A filter that knows the recorder's own allocations, and takes them only where they are shown.
#[cfg(any(test, feature = "fast"))]
#[derive(Clone)]
pub(crate) struct ButOwn<'a, F> {
    pub(crate) filter: F,
    pub(crate) own: OwnThreads<'a>,
    pub(crate) shows_own: bool,
}

#[cfg(any(test, feature = "fast"))]
impl<F: Filter> Filter for ButOwn<'_, F> {
    const FLAGS: bool = true;
    const KEYS: bool = F::KEYS;

    #[inline(always)]
    fn takes(&mut self, event: &Event, names: &Names) -> bool {
        (self.shows_own || !self.is_own(event)) && self.filter.takes(event, names)
    }

    #[inline(always)]
    fn is_own(&self, event: &Event) -> bool {
        self.own.allocates(event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::pair_event::All;
    use kmemtrace_abi::event::{Action, Kind};

    #[test]
    fn only_the_threads_of_the_list_are_the_recorders() {
        let listed = [3, 64, 4096, 5000, i32::MAX];
        let own = OwnThreads::new(&listed);
        let mut names = Names::new();
        let name = names.intern(b"kmalloc");
        let event = Event {
            at: 0,
            address: 1,
            call_site: 0,
            requested: 0,
            allocated: 0,
            gfp: None,
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
                let mut filter = ButOwn { filter: All, own, shows_own };
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
