//! Library as other projects use it: its public items suffice to open a trace, and to add an observer and an input.

use std::ops::ControlFlow;
use std::path::Path;

use kmemtrace::{Action, Code, Event, EventNames, EventSource, Fault, Kind, OrderedItem, Query, StreamItem, Trace};
use kmemtrace_tests::programs::data;

/// Input of ten allocations of one size at rising addresses, then a damaged line.
#[derive(Debug)]
struct Made(u64);

impl EventSource for Made {
    fn cpu(&self) -> u32 {
        1
    }

    fn path(&self) -> &Path {
        Path::new("made")
    }

    fn read(&mut self, names: &mut EventNames, items: &mut Vec<StreamItem>) -> Result<(), Fault> {
        if self.0 == 10 {
            let message = "line 11 is no event".to_owned();
            return Err(Fault { code: Code::BadRecord, offset: 0, block: None, message });
        }
        self.0 += 1;
        let event = Event::new(self.0, 0, names.intern(b"kmalloc"));
        let action = Action::Alloc(Kind::Kmalloc);
        let (requested, allocated, address) = (5, 8, self.0 * 8);
        items.push(StreamItem::Event(Event { requested, allocated, address, call_site: 3, action, ..event }));
        Ok(())
    }
}

#[test]
fn an_observer_sees_each_event_of_a_recording() {
    let open = || Trace::open(&[data("amd64-6.1")]).expect("a recording");
    let mut events = 0u64;
    let mut observer = |item: &OrderedItem<'_>| {
        events += u64::from(matches!(item, OrderedItem::Event { .. }));
        ControlFlow::Continue(())
    };
    let observed = Query::by_kind().observe(&mut open(), &mut observer).expect("events");
    let analysis = Query::by_site().run(&mut open()).expect("figures");
    assert!(events > 100);
    assert_eq!([events; 2], [observed.events, analysis.events()]);
    assert!((1..events).contains(&analysis.total().allocs));
}

#[test]
fn an_input_of_another_format_has_figures_and_a_verdict() {
    let mut trace = Trace::of_sources("made", Some("mono"), vec![Box::new(Made(0))]).expect("an input");
    let analysis = Query::by_site().run(&mut trace).expect("figures");
    let total = analysis.total();
    assert_eq!((total.allocs, total.wasted, analysis.completeness().verdict_name()), (10, 30, "corrupt"));
}
