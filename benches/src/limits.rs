//! What the machine can do: the least that a report needs, without a report.

use std::collections::HashMap;
use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

use foldhash::fast::RandomState;
use kmemtrace_abi::event::{Event, Gap, Items, Names};
use kmemtrace_abi::trace::Trace;

/// Adds up what it gets: nothing that the decoder does may be left out.
#[derive(Default)]
struct Sum(u64);

impl Items for Sum {
    fn event(&mut self, event: Event, _: &Names) {
        self.0 = self.0.wrapping_add(event.at ^ event.address ^ event.call_site ^ event.requested ^ event.allocated);
    }

    fn gap(&mut self, gap: Gap) {
        self.0 = self.0.wrapping_add(gap.lost.unwrap_or(0));
    }
}

/// Reads and decodes all events on this thread.
///
/// # Panics
/// If the trace cannot be opened.
pub fn decode_all(trace: &Path) {
    let mut trace = Trace::open(&[trace.to_owned()]).unwrap_or_else(|error| panic!("{error}"));
    let mut sum = Sum::default();
    for stream in &mut trace.streams {
        while stream.decode(&mut trace.names, &mut sum, 1 << 16) {}
    }
    black_box(sum.0);
}

/// Nanoseconds to change a random one of `entries` entries of a plain hash table, one after the other.
pub fn random_update(entries: u64) -> f64 {
    const UPDATES: u64 = 4_000_000;
    let spread = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15) & !7;
    let mut table: HashMap<u64, [u64; 2], RandomState> = (0..entries.max(1)).map(|n| (spread(n), [n; 2])).collect();
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    let start = Instant::now();
    for _ in 0..UPDATES {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        if let Some(entry) = table.get_mut(&spread(random % entries.max(1))) {
            entry[0] ^= random;
        }
    }
    black_box(&table);
    start.elapsed().as_secs_f64() * 1e9 / UPDATES as f64
}
