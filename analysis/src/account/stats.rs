//! The figures of a row: one kind, one call-site, one cache. Sums are wide, so that no trace overflows them.

use kmemtrace_abi::clock::Agreement;
use serde_json::{Map, Value, json};

use crate::documents::row::Cell;

/// Sums of one row, over the objects that belong to it.
#[derive(Clone, Debug, Default)]
pub struct Stats {
    /// Allocations.
    pub allocs: u64,
    /// Allocations that returned a null pointer.
    pub failed_allocs: u64,
    /// Bytes asked for.
    pub requested: u128,
    /// Bytes taken.
    pub allocated: u128,
    /// `allocated` less `requested`, in bytes.
    pub wasted: u128,
    /// Frees that were paired.
    pub frees: u64,
    /// Objects whose free was not seen: their address was allocated again.
    pub inferred_frees: u64,
    /// Frees on another CPU than the allocation.
    pub cross_cpu: u64,
    /// Bytes allocated of those.
    pub cross_cpu_bytes: u128,
    /// Objects live at the end.
    pub live_objects: u64,
    /// Bytes asked for of those.
    pub live_requested: u128,
    /// Bytes taken of those.
    pub live_allocated: u128,
    /// Bytes wasted of those.
    pub live_wasted: u128,
    /// Greatest sum of live bytes at any time. `None` in sums of rows: peaks do not add up.
    pub peak_live_allocated: Option<u128>,
    /// A gap may hide frees: live figures are upper bounds.
    pub live_is_upper_bound: bool,
}

impl Stats {
    /// Whether nothing ever happened in it.
    pub(crate) fn is_empty(&self) -> bool {
        self.allocs == 0 && self.failed_allocs == 0
    }

    /// Adds another row; the sum has no peak.
    pub(crate) fn add(&mut self, other: &Stats) {
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

    /// The contract's members; a sum that does not fit is the greatest number.
    pub(crate) fn cells(&self, narrow: &Narrow) -> [(&'static str, Cell<'static>); 14] {
        let sum = |sum: u128| Cell::Count(saturated(sum));
        [
            ("allocs", Cell::Count(self.allocs)),
            ("failed_allocs", Cell::Count(self.failed_allocs)),
            ("requested", sum(self.requested)),
            ("allocated", sum(self.allocated)),
            ("wasted", sum(self.wasted)),
            ("frees", Cell::Count(self.frees)),
            ("inferred_frees", Cell::Count(self.inferred_frees)),
            ("cross_cpu", narrow.cell_in_order(Cell::Count(self.cross_cpu))),
            ("live_objects", Cell::Count(self.live_objects)),
            ("live_requested", sum(self.live_requested)),
            ("live_allocated", sum(self.live_allocated)),
            ("live_wasted", sum(self.live_wasted)),
            ("peak_live_allocated", narrow.cell_in_order(Cell::count(self.peak_live_allocated.map(saturated)))),
            ("live_is_upper_bound", Cell::Bool(self.live_is_upper_bound)),
        ]
    }

    /// Appends the contract's members.
    pub(crate) fn put(&self, row: &mut Map<String, Value>, narrow: &Narrow) {
        narrow.note(self);
        row.extend(self.cells(narrow).map(|(member, cell)| (member.to_owned(), json!(cell))));
    }
}

/// A sum as the contract's unsigned 64 bits.
fn saturated(sum: u128) -> u64 {
    u64::try_from(sum).unwrap_or(u64::MAX)
}

/// Brings sums down to the contract's unsigned 64 bits, and remembers whether one did not fit. Leaves out what the trace's clock
/// does not tell.
#[derive(Clone, Debug, Default)]
pub(crate) struct Narrow {
    saturated: std::cell::Cell<bool>,
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

    /// The same of a row.
    pub(crate) fn cell_in_order(&self, figure: Cell<'static>) -> Cell<'static> {
        if self.without_order { Cell::Null } else { figure }
    }

    /// True where such figures are null.
    pub(crate) fn is_without_order(&self) -> bool {
        self.without_order
    }

    /// A sum as a member of a document.
    pub(crate) fn u64(&self, sum: u128) -> Value {
        json!(self.sum(sum))
    }

    /// A sum as 64 bits.
    pub(crate) fn sum(&self, sum: u128) -> u64 {
        self.saturated.set(self.saturated() || sum > u64::MAX.into());
        saturated(sum)
    }

    /// Takes note of the figures of a row that is printed later.
    pub(crate) fn note(&self, of: &Stats) {
        let live = [of.live_requested, of.live_allocated, of.live_wasted, of.peak_live_allocated.unwrap_or(0)];
        let fits = [of.requested, of.allocated, of.wasted].into_iter().chain(live).all(|sum| sum <= u64::MAX.into());
        self.saturated.set(self.saturated() || !fits);
    }

    pub(crate) fn saturated(&self) -> bool {
        self.saturated.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A row whose figures are `n` and the numbers after it.
    fn figures(n: u64) -> Stats {
        let wide = |more: u64| u128::from(n + more);
        Stats {
            allocs: n,
            failed_allocs: n + 1,
            requested: wide(2),
            allocated: wide(3),
            wasted: wide(4),
            frees: n + 5,
            inferred_frees: n + 6,
            cross_cpu: n + 7,
            cross_cpu_bytes: wide(8),
            live_objects: n + 9,
            live_requested: wide(10),
            live_allocated: wide(11),
            live_wasted: wide(12),
            peak_live_allocated: Some(wide(13)),
            live_is_upper_bound: n % 2 == 1,
        }
    }

    #[test]
    fn rows_add_up_in_every_figure_but_the_peak() {
        let mut sum = figures(100);
        sum.add(&figures(1000));
        let Value::Object(members) = json!({
            "allocs": 1100, "failed_allocs": 1102, "requested": 1104, "allocated": 1106, "wasted": 1108, "frees": 1110,
            "inferred_frees": 1112, "cross_cpu": 1114, "live_objects": 1118, "live_requested": 1120,
            "live_allocated": 1122, "live_wasted": 1124, "peak_live_allocated": null, "live_is_upper_bound": false,
        }) else {
            unreachable!()
        };
        let mut row = Map::new();
        sum.put(&mut row, &Narrow::default());
        assert_eq!(row, members);
        assert_eq!(sum.cross_cpu_bytes, 1116);
        sum.add(&figures(1));
        sum.add(&figures(2));
        assert!(sum.live_is_upper_bound);
    }

    #[test]
    fn a_row_without_an_allocation_is_empty() {
        assert!(Stats { frees: 1, ..Stats::default() }.is_empty());
        assert!(!Stats { allocs: 1, ..Stats::default() }.is_empty());
        assert!(!Stats { failed_allocs: 1, ..Stats::default() }.is_empty());
    }

    /// A sum beyond 64 bits is printed as the greatest number, and the document says that there was one.
    #[test]
    fn sums_that_do_not_fit_are_the_greatest_number() {
        let most = u128::from(u64::MAX);
        for (sum, shown, saturated) in
            [(most - 1, u64::MAX - 1, false), (most, u64::MAX, false), (most + 1, u64::MAX, true)]
        {
            let narrow = Narrow::default();
            assert_eq!((narrow.sum(sum), narrow.u64(sum)), (shown, json!(shown)));
            assert_eq!(narrow.saturated(), saturated);
            assert_eq!((narrow.sum(1), narrow.saturated()), (1, saturated));
            let rows: [fn(&mut Stats) -> &mut u128; 6] = [
                |row| &mut row.requested,
                |row| &mut row.allocated,
                |row| &mut row.wasted,
                |row| &mut row.live_requested,
                |row| &mut row.live_allocated,
                |row| &mut row.live_wasted,
            ];
            for member in rows {
                let (mut row, narrow) = (figures(1), Narrow::default());
                *member(&mut row) = sum;
                narrow.note(&row);
                assert_eq!(narrow.saturated(), saturated);
                narrow.note(&figures(1));
                assert_eq!(narrow.saturated(), saturated);
            }
            let (narrow, mut printed) = (Narrow::default(), Map::new());
            Stats { peak_live_allocated: Some(sum), ..figures(1) }.put(&mut printed, &narrow);
            assert_eq!(printed["peak_live_allocated"], json!(shown));
            assert_eq!(narrow.saturated(), saturated);
        }
    }

    /// A clock that puts events in no order tells no figure that depends on it.
    #[test]
    fn figures_that_need_an_order_are_null_without_one() {
        for (agreement, is_known) in
            [(Agreement::AllCpus, true), (Agreement::OneCpu, true), (Agreement::Nothing, false)]
        {
            let narrow = Narrow::new(agreement);
            assert_eq!(narrow.is_without_order(), !is_known);
            let mut row = Map::new();
            figures(1).put(&mut row, &narrow);
            let null: Vec<&str> = row.iter().filter(|(_, value)| value.is_null()).map(|(name, _)| &**name).collect();
            assert_eq!(null, if is_known { vec![] } else { vec!["cross_cpu", "peak_live_allocated"] });
            assert_eq!(narrow.in_order(json!(3)), if is_known { json!(3) } else { Value::Null });
        }
    }
}
