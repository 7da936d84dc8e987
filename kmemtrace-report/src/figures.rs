//! The figures of a row: one kind, one call-site, one cache. Sums are wide, so that no trace overflows them.

use std::cell::Cell;

use kmemtrace_abi::clock::Agreement;
use serde_json::{Map, Value, json};

/// Sums of one row, over the objects that belong to it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Figures {
    pub(crate) allocs: u64,
    pub(crate) failed_allocs: u64,
    pub(crate) requested: u128,
    pub(crate) allocated: u128,
    pub(crate) wasted: u128,
    pub(crate) frees: u64,
    pub(crate) inferred_frees: u64,
    pub(crate) cross_cpu: u64,
    pub(crate) cross_cpu_bytes: u128,
    pub(crate) live_objects: u64,
    pub(crate) live_requested: u128,
    pub(crate) live_allocated: u128,
    pub(crate) live_wasted: u128,
    /// `None` in sums of rows: peaks do not add up.
    pub(crate) peak_live_allocated: Option<u128>,
    pub(crate) live_is_upper_bound: bool,
}

impl Figures {
    /// Whether nothing ever happened in it.
    pub(crate) fn is_empty(&self) -> bool {
        self.allocs == 0 && self.failed_allocs == 0
    }

    /// Adds another row; the sum has no peak.
    pub(crate) fn add(&mut self, other: &Figures) {
        self.allocs += other.allocs;
        self.failed_allocs += other.failed_allocs;
        self.requested += other.requested;
        self.allocated += other.allocated;
        self.wasted += other.wasted;
        self.frees += other.frees;
        self.inferred_frees += other.inferred_frees;
        self.cross_cpu += other.cross_cpu;
        self.cross_cpu_bytes += other.cross_cpu_bytes;
        self.live_objects += other.live_objects;
        self.live_requested += other.live_requested;
        self.live_allocated += other.live_allocated;
        self.live_wasted += other.live_wasted;
        self.peak_live_allocated = None;
        self.live_is_upper_bound |= other.live_is_upper_bound;
    }

    /// Appends the contract's members.
    pub(crate) fn put(&self, row: &mut Map<String, Value>, narrow: &Narrow) {
        let mut put = |name: &str, value: Value| row.insert(name.to_owned(), value);
        put("allocs", json!(self.allocs));
        put("failed_allocs", json!(self.failed_allocs));
        put("requested", narrow.u64(self.requested));
        put("allocated", narrow.u64(self.allocated));
        put("wasted", narrow.u64(self.wasted));
        put("frees", json!(self.frees));
        put("inferred_frees", json!(self.inferred_frees));
        put("cross_cpu", narrow.in_order(json!(self.cross_cpu)));
        put("live_objects", json!(self.live_objects));
        put("live_requested", narrow.u64(self.live_requested));
        put("live_allocated", narrow.u64(self.live_allocated));
        put("live_wasted", narrow.u64(self.live_wasted));
        let peak = self.peak_live_allocated.map_or(Value::Null, |peak| narrow.u64(peak));
        put("peak_live_allocated", narrow.in_order(peak));
        put("live_is_upper_bound", json!(self.live_is_upper_bound));
    }
}

/// Brings sums down to the contract's unsigned 64 bits, and remembers whether one did not fit. Leaves out what the trace's clock
/// does not tell.
#[derive(Debug, Default)]
pub(crate) struct Narrow {
    saturated: Cell<bool>,
    /// The clock puts events in no order.
    without_order: bool,
}

impl Narrow {
    /// For a trace whose clock agrees so far.
    pub(crate) fn new(agreement: Agreement) -> Narrow {
        Narrow { without_order: agreement == Agreement::Nothing, ..Narrow::default() }
    }

    /// A figure that depends on the order of events: null where that is not known.
    pub(crate) fn in_order(&self, figure: Value) -> Value {
        if self.without_order { Value::Null } else { figure }
    }

    /// True where such figures are null.
    pub(crate) fn is_without_order(&self) -> bool {
        self.without_order
    }

    pub(crate) fn u64(&self, sum: u128) -> Value {
        json!(u64::try_from(sum).unwrap_or_else(|_| {
            self.saturated.set(true);
            u64::MAX
        }))
    }

    pub(crate) fn saturated(&self) -> bool {
        self.saturated.get()
    }
}
