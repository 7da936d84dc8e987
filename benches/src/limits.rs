//! Limits of the machine: the least work that a report needs, without a report.

use std::collections::HashMap;
use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

use foldhash::fast::RandomState;
use kmemtrace_abi::event::{Action, Event, EventSink, Gap, Names};
use kmemtrace_abi::trace::Trace;
use kmemtrace_tests::generate::Random;
use kmemtrace_tests::programs::program;

use crate::{median, on_one_core};

/// Checksum over the decoded items, so that the compiler cannot leave any decoding out.
#[derive(Default)]
struct Sum(u64);

impl EventSink for Sum {
    const FLAGS: bool = false;
    const STACKS: bool = false;
    const MARKS: bool = false;

    fn event(&mut self, event: Event, _: &Names) {
        self.0 = self.0.wrapping_add(event.at ^ event.address ^ event.call_site ^ event.requested ^ event.allocated);
    }

    fn gap(&mut self, gap: Gap) {
        self.0 = self.0.wrapping_add(gap.lost.unwrap_or(0));
    }
}

/// Update of a table of live objects by an event.
struct Update {
    at: u64,
    address: u64,
    /// Sizes, for an allocation.
    sizes: Option<[u64; 2]>,
}

#[derive(Default)]
struct Updates(Vec<Update>);

impl EventSink for Updates {
    const FLAGS: bool = false;
    const STACKS: bool = false;
    const MARKS: bool = false;

    fn event(&mut self, event: Event, _: &Names) {
        let sizes = match event.action {
            Action::Alloc(_) => Some([event.requested, event.allocated]),
            Action::Free(_) | Action::Deferred | Action::BulkFree(_) => None,
            Action::Bulk(_) | Action::Other => return,
        };
        self.0.push(Update { at: event.at, address: event.address, sizes });
    }

    fn gap(&mut self, _: Gap) {}
}

/// Reads and decodes all events on this thread.
pub fn decode_all(trace: &Path) {
    let mut trace = Trace::open(&[trace.to_owned()]).unwrap_or_else(|error| panic!("{error}"));
    let mut sum = Sum::default();
    for stream in &mut trace.streams {
        while stream.decode(&mut trace.names, &mut sum, 1 << 16) {}
    }
    black_box(sum.0);
}

/// Nanoseconds to merge an event, and to pair and count it, as a report on one core prints them; the medians of three
/// runs.
pub fn stages(trace: &Path) -> [f64; 2] {
    let once = || {
        let mut report =
            on_one_core(&program("kmemtrace-report"), &["summary", "-v", "--no-index", "--format", "json"]);
        let output = report.arg(trace).output().unwrap_or_else(|error| panic!("kmemtrace-report: {error}"));
        let told = String::from_utf8_lossy(&output.stderr);
        let number = |before: &str| told.split_once(before)?.1.split_whitespace().next()?.parse::<f64>().ok();
        let told = ["kmemtrace-report: ", "merged for ", "paired for "].map(number);
        let [Some(events), Some(merged), Some(paired)] = told else { panic!("kmemtrace-report -v has changed") };
        [merged, paired].map(|seconds| seconds * 1e9 / events)
    };
    let three = [once(), once(), once()];
    [0, 1].map(|stage| median(three.iter().map(|stages| stages[stage]).collect()))
}

/// Nanoseconds of a plain hash table for an event of the trace, in the order of time: an allocation inserts its
/// address, a free removes it.
pub fn plain_table(trace: &Path) -> f64 {
    let mut trace = Trace::open(&[trace.to_owned()]).unwrap_or_else(|error| panic!("{error}"));
    let mut updates = Updates::default();
    for stream in &mut trace.streams {
        while stream.decode(&mut trace.names, &mut updates, 1 << 16) {}
    }
    let mut updates = updates.0;
    updates.sort_by_key(|update| update.at);
    let mut table: HashMap<u64, [u64; 2], RandomState> = HashMap::default();
    let start = Instant::now();
    for update in &updates {
        match update.sizes {
            Some(sizes) => table.insert(update.address, sizes),
            None => table.remove(&update.address),
        };
    }
    let time = start.elapsed().as_secs_f64();
    black_box(&table);
    time * 1e9 / updates.len() as f64
}

/// Nanoseconds of a plain hash table with `live` entries for a random update: one entry is removed, and another one
/// inserted.
pub fn random_update(live: usize) -> f64 {
    const UPDATES: usize = 4_000_000;
    let live = live.max(1);
    let mut random = Random::new(1);
    let mut addresses: Vec<u64> = (0..live).map(|_| random.bits()).collect();
    let mut table: HashMap<u64, [u64; 2], RandomState> = addresses.iter().map(|&address| (address, [8, 8])).collect();
    let updates: Vec<(usize, u64)> =
        (0..UPDATES).map(|_| (random.below(live as u64) as usize, random.bits())).collect();
    let start = Instant::now();
    for (which, new) in updates {
        let old = std::mem::replace(&mut addresses[which], new);
        table.remove(&old);
        table.insert(new, [8, 8]);
    }
    let time = start.elapsed().as_secs_f64();
    black_box(&table);
    time * 1e9 / UPDATES as f64
}
