//! Outputs of single events.

use std::io;
use std::ops::ControlFlow;

use kmemtrace::{Observer, OrderedItem};

/// Writer of events as they come.
pub(crate) trait EventOutput {
    /// Begins, with the key of the first event.
    fn begin(&mut self, _: u64) {}

    /// Writes an event or a gap. Nothing is written after an error.
    fn item(&mut self, item: &OrderedItem<'_>) -> io::Result<()>;

    /// Ends the output; `left_out` events after the last one were not written.
    fn finish(self: Box<Self>, left_out: u64) -> io::Result<()>;
}

/// Observer that writes the first events, and counts the others.
pub(crate) struct Limited<'a> {
    output: Box<dyn EventOutput + 'a>,
    /// Events that are still handed on; `None`: all.
    left: Option<usize>,
    left_out: u64,
    has_events: bool,
    written: io::Result<()>,
}

impl<'a> Limited<'a> {
    pub(crate) fn new(output: Box<dyn EventOutput + 'a>, top: Option<usize>) -> Limited<'a> {
        Limited { output, left: top, left_out: 0, has_events: false, written: Ok(()) }
    }

    /// True as long as there was no event.
    pub(crate) fn is_empty(&self) -> bool {
        !self.has_events
    }

    /// Ends the output.
    pub(crate) fn finish(self) -> io::Result<()> {
        self.written.and_then(|()| self.output.finish(self.left_out))
    }
}

impl Observer for Limited<'_> {
    fn begin(&mut self, first: u64) {
        self.output.begin(first);
    }

    // The verdict is that of the whole trace, so events that are not written are read all the same.
    fn observe(&mut self, item: &OrderedItem<'_>) -> ControlFlow<()> {
        let is_event = matches!(item, OrderedItem::Event { .. });
        self.has_events |= is_event;
        match &mut self.left {
            Some(0) => {
                self.left_out += u64::from(is_event);
                return ControlFlow::Continue(());
            }
            Some(left) => *left -= usize::from(is_event),
            None => {}
        }
        self.written = self.output.item(item);
        if self.written.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Counting<'a>(&'a mut (u64, u64));

    impl EventOutput for Counting<'_> {
        fn item(&mut self, _: &OrderedItem<'_>) -> io::Result<()> {
            self.0.0 += 1;
            Ok(())
        }

        fn finish(self: Box<Self>, left_out: u64) -> io::Result<()> {
            self.0.1 = left_out;
            Ok(())
        }
    }

    #[test]
    fn events_beyond_the_limit_are_counted_and_gaps_are_none() {
        let mut names = kmemtrace::EventNames::default();
        let event = kmemtrace::Event::new(1, 0, names.intern(b"kmalloc"));
        for (top, expected) in [(None, (4, 0)), (Some(0), (0, 3)), (Some(2), (3, 1)), (Some(9), (4, 0))] {
            let mut counted = (0, 0);
            let mut limited = Limited::new(Box::new(Counting(&mut counted)), top);
            let (addresses, names, none) = (&[][..], &names, None);
            let event = OrderedItem::Event {
                seq: 0,
                event: &event,
                addresses,
                names,
                comm: none,
                cgroup: none,
                reclaimable: None,
                own: false,
            };
            for item in [event, OrderedItem::Gap { seq: 0, from: 0, at: 1, cpu: 0, lost: None }, event, event] {
                assert!(limited.observe(&item).is_continue());
            }
            limited.finish().unwrap();
            assert_eq!(counted, expected, "{top:?}");
        }
    }
}
