//! Event counts of a block's payload, taken from record headers without decoding the records.

use std::hint::black_box;

use kmemtrace_abi::kernel::relay;
use kmemtrace_abi::kernel::subbuffer::{self, Missed, Tally};
use kmemtrace_abi::target::Endian;

use crate::source::Framing;

/// Number of events, and the times (tracefs) or sequence numbers (relay) of the first and the last.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EventSpan {
    pub(crate) events: u64,
    pub(crate) first: u64,
    pub(crate) last: u64,
}

impl EventSpan {
    /// Appends a later span.
    pub(crate) fn append(&mut self, next: EventSpan) {
        if self.events == 0 {
            self.first = next.first;
        }
        if next.events > 0 {
            self.last = next.last;
        }
        self.events += next.events;
    }
}

/// Events in a payload, and the loss marks between them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BlockTally {
    pub(crate) span: EventSpan,
    /// Sum of the marks that have a count.
    pub(crate) lost: u64,
    /// True if a mark has no count.
    pub(crate) is_vague: bool,
}

impl BlockTally {
    /// Counts a payload. Sub-buffers behind one that cannot be walked are not counted.
    pub(crate) fn of(framing: &Framing, mut payload: &[u8]) -> BlockTally {
        load_into_cache(payload);
        let mut sum = BlockTally::default();
        match framing {
            Framing::Relay(framing) => {
                if let Some(&layout) = framing.layout.get() {
                    let tally = relay::tally(layout, Endian::NATIVE, payload);
                    sum.span = EventSpan { events: tally.events, first: tally.first, last: tally.last };
                }
            }
            Framing::SubBuffers(shape) => {
                while !payload.is_empty() {
                    let Ok((tally, stored)) = subbuffer::tally(shape, payload) else { break };
                    sum.add(&tally);
                    payload = &payload[stored..];
                }
            }
        }
        sum
    }

    /// Adds the counts of the next sub-buffer.
    pub(crate) fn add(&mut self, tally: &Tally) {
        self.span.append(EventSpan { events: tally.events, first: tally.first, last: tally.last });
        match tally.missed {
            Some(Missed::Counted(n)) => self.lost = self.lost.saturating_add(n),
            Some(Missed::Uncounted) => self.is_vague = true,
            None => {}
        }
    }
}

/// Loads a payload into the processor's cache in one sequential pass. By the writer's turn it has often left the cache, and
/// walking from record to record would wait for each of them.
pub(crate) fn load_into_cache(payload: &[u8]) {
    const CACHE_LINE: usize = 64;
    black_box(payload.iter().step_by(CACHE_LINE).fold(0, |sum, byte| sum ^ byte));
}
