//! A filter of any options, which looks at each event what is asked: one for all of them where speed is not what counts.

use kmemtrace_abi::event::{Event, Names};

use crate::account::own_threads::OwnThreads;
use crate::order::pair_event::Filter;
use crate::query::filter::Selected;

/// Filter of any options.
#[derive(Clone)]
pub(crate) struct AnyFilter<'a> {
    /// `None`: every event is taken.
    pub(crate) selected: Option<Selected<'a>>,
    /// Threads of the recorder, where events tell theirs.
    pub(crate) own: Option<OwnThreads<'a>>,
    /// Allocations of the recorder are taken, too.
    pub(crate) shows_own: bool,
}

impl Filter for AnyFilter<'_> {
    const FLAGS: bool = true;

    #[inline(always)]
    fn takes(&mut self, event: &Event, names: &Names) -> bool {
        (self.shows_own || !self.is_own(event))
            && self.selected.as_mut().is_none_or(|selected| selected.takes(event, names))
    }

    #[inline(always)]
    fn is_own(&self, event: &Event) -> bool {
        self.own.is_some_and(|own| own.allocates(event))
    }
}
