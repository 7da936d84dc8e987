//! The total order of all CPUs' events.

use kmemtrace_abi::event::{Event, Gap, GapCause, Item};
use kmemtrace_abi::trace::OrderKey;

use super::Known;

/// All events by (order key, CPU, position in the CPU's stream).
pub fn events(known: &Known) -> Vec<Event> {
    let mut all = Vec::new();
    for (cpu, items) in &known.cpus {
        for (position, item) in items.iter().enumerate() {
            if let Item::Event(event) = item {
                all.push(((event.at, *cpu, position), *event));
            }
        }
    }
    all.sort_by_key(|(key, _)| *key);
    all.into_iter().map(|(_, event)| event).collect()
}

/// A gap for each run of sequence numbers that no event has. Whose they were nobody knows: `cpu` is
/// that of the number after.
pub fn sequence_gaps(known: &Known) -> Vec<Gap> {
    if known.trace.order == OrderKey::Time {
        return Vec::new();
    }
    let events = events(known);
    let missing = events.windows(2).filter(|w| w[1].at > w[0].at + 1);
    let gap = |w: &[Event]| Gap {
        from: Some(w[0].at),
        to: Some(w[1].at),
        cpu: w[1].cpu,
        lost: Some(w[1].at - w[0].at - 1),
        cause: GapCause::Sequence,
    };
    missing.map(gap).collect()
}
