//! Total order of all CPUs' events.

use kmemtrace_abi::clock::OrderKey;
use kmemtrace_abi::event::{Event, Gap, GapCause, StreamItem};

use super::Known;

/// Events of the window that is asked for, by (order key, CPU, position in the CPU's stream).
pub fn events(known: &Known) -> Vec<Event> {
    let (from, to) = known.bounds.unwrap_or((0, u64::MAX));
    all_events(known).into_iter().filter(|event| (from..=to).contains(&event.at)).collect()
}

/// Events of the whole trace, in the same order.
pub fn all_events(known: &Known) -> Vec<Event> {
    let mut all = Vec::new();
    for (cpu, items) in &known.cpus {
        for (position, item) in items.iter().enumerate() {
            if let StreamItem::Event(event) = item {
                all.push(((event.at, *cpu, position), *event));
            }
        }
    }
    all.sort_by_key(|(key, _)| *key);
    all.into_iter().map(|(_, event)| event).collect()
}

/// Gaps of a relay channel's drops beyond the missing numbers: one on every CPU, from the first event to the last.
pub fn dropped(known: &Known) -> Vec<Gap> {
    let missing = sequence_gaps(known).iter().filter_map(|gap| gap.lost).sum();
    if known.total_overruns.unwrap_or(0) <= missing {
        return Vec::new();
    }
    let events = events(known);
    let (from, to) = (events.first().map(|e| e.at), events.last().map(|e| e.at));
    let gap = |(cpu, _): &(u32, _)| Gap { from, to, cpu: *cpu, lost: None, cause: GapCause::Counters };
    known.cpus.iter().map(gap).collect()
}

/// Gaps of missing sequence numbers, one for each run. The CPU that lost the events is unknown: `cpu` is that of the
/// number after.
pub fn sequence_gaps(known: &Known) -> Vec<Gap> {
    if known.trace.order == OrderKey::Time {
        return Vec::new();
    }
    let events = all_events(known);
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

impl Known {
    /// Gaps of three kinds: those in the streams, the missing sequence numbers, and a relay channel's drops beyond these.
    pub fn gaps(&self) -> Vec<Gap> {
        let of_items = self.cpus.iter().flat_map(|(_, items)| items).filter_map(|item| match item {
            StreamItem::Gap(gap) => Some(*gap),
            StreamItem::Event(_) => None,
        });
        of_items.chain(sequence_gaps(self)).chain(dropped(self)).collect()
    }
}
