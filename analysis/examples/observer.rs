//! A custom observer: the longest pause between consecutive events, all CPUs together, and the number of events lost.
//! `cargo run --example observer -- kmemtrace.data`

use std::ops::ControlFlow;

use kmemtrace::{Observer, OrderedItem, Query, Trace};

/// The longest pause so far, and the key of the last event.
#[derive(Default)]
struct Pauses {
    longest: u64,
    last: Option<u64>,
    lost: u64,
}

impl Observer for Pauses {
    fn observe(&mut self, item: &OrderedItem<'_>) -> ControlFlow<()> {
        match item {
            OrderedItem::Event { event, .. } => {
                self.longest = self.longest.max(event.at - self.last.unwrap_or(event.at));
                self.last = Some(event.at);
            }
            OrderedItem::Gap { lost, .. } => self.lost += lost.unwrap_or(0),
        }
        ControlFlow::Continue(())
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args_os().nth(1).unwrap_or("kmemtrace.data".into());
    let mut trace = Trace::open(&[path.into()])?;
    let keys = trace.info.keys();
    let mut pauses = Pauses::default();
    Query::by_kind().observe(&mut trace, &mut pauses)?;
    println!("longest pause: {}; {} events lost", keys.span(pauses.longest), pauses.lost);
    Ok(())
}
