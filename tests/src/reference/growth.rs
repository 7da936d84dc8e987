//! Document of `growth`: live bytes and allocations over slices of the recording.

use std::cmp::Reverse;

use kmemtrace_abi::event::{Event, Kind, Space};
use serde_json::{Value, json};

use super::Known;
use super::head::{head, of_space, with};
use super::keys::{self, Key, KeyValue};
use super::order;
use super::pairs::{Object, Pairs};

/// Greatest number of slices.
const MAX_SLICES: u64 = 64;

/// Slices of a recording, each 2^`shift` order keys wide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slices {
    /// First key of the first slice.
    pub start: u64,
    /// Key of the last event.
    pub last: u64,
    /// Logarithm of the width: the least that gives at most 64 slices.
    pub shift: u32,
}

impl Slices {
    /// Slices of the window that is asked for; `None` for a trace without events.
    ///
    /// The first one starts where the window does, or with the first event of the trace where that is later.
    pub fn of(known: &Known, pairs: &Pairs) -> Option<Slices> {
        let last = pairs.events.last()?.at;
        let first = order::all_events(known).first()?.at;
        let start = known.bounds.map_or(first, |(from, _)| from.max(first));
        let shift = (0..u64::BITS).find(|&shift| (last - start) >> shift < MAX_SLICES)?;
        Some(Slices { start, last, shift })
    }

    /// Number of slices.
    pub fn count(&self) -> u64 {
        ((self.last - self.start) >> self.shift) + 1
    }

    /// First key beyond each slice. The last slice may end after the last event.
    pub fn ends(&self) -> Vec<u64> {
        let end = |number: u64| u128::from(self.start) + (u128::from(number + 1) << self.shift);
        (0..self.count()).map(|number| u64::try_from(end(number)).unwrap_or(u64::MAX)).collect()
    }

    /// Last end of a slice that is not after nine tenths of the recording; `None` if the first slice ends later.
    pub fn boundary_at_nine_tenths(&self) -> Option<u64> {
        let tenths = u128::from(self.last - self.start) * 9 / 10;
        let at = u128::from(self.start) + tenths;
        self.ends().into_iter().rfind(|&end| u128::from(end) <= at)
    }
}

/// Live allocated bytes of `objects` after the last event before `at`.
pub fn live_at(pairs: &Pairs, objects: &[&Object], at: u64) -> u64 {
    let live = |o: &&Object| {
        let lost = o.losses().into_iter().filter(|(number, ..)| pairs.events[*number].at < at);
        o.alloc.allocated - lost.map(|(_, bytes, _)| bytes).sum::<u64>()
    };
    objects.iter().filter(|o| o.alloc.at < at).map(live).sum()
}

/// Live bytes at each end, and allocations in each slice.
fn figures(pairs: &Pairs, ends: &[u64], select: &dyn Fn(&Event, Kind) -> bool) -> (Vec<u64>, Vec<usize>) {
    let own: Vec<&Object> = pairs.objects.iter().filter(|o| select(&o.alloc, o.kind)).collect();
    let live = ends.iter().map(|&end| live_at(pairs, &own, end)).collect();
    let until = |end: u64| own.iter().filter(|o| o.alloc.at < end).count();
    let before = |slice: usize| slice.checked_sub(1).map_or(0, |slice| until(ends[slice]));
    let allocs = (0..ends.len()).map(|slice| until(ends[slice]) - before(slice)).collect();
    (live, allocs)
}

fn members((live, allocs): &(Vec<u64>, Vec<usize>)) -> Value {
    json!({ "live_allocated": live, "allocs": allocs })
}

/// Document of `growth --by KEYS`. Rows without a successful allocation are left out.
pub fn growth(known: &Known, pairs: &Pairs, keys: &[Key]) -> Value {
    let ends = Slices::of(known, pairs).map_or(Vec::new(), |slices| slices.ends());
    let key = |event: &Event, kind| (keys::values(keys, known, pairs, event, kind), kind);
    let mut groups: Vec<((Vec<KeyValue>, Kind), &Event)> =
        pairs.objects.iter().map(|o| (key(&o.alloc, o.kind), &o.alloc)).collect();
    groups.sort_by(|(a, _), (b, _)| a.cmp(b));
    groups.dedup_by(|(a, _), (b, _)| a == b);
    let mut rows: Vec<(i128, Value)> = Vec::new();
    for (group, example) in groups {
        let figures = figures(pairs, &ends, &|e, kind| key(e, kind) == group);
        let live = &figures.0;
        let grew = live.last().map_or(0, |&last| i128::from(last)) - live.first().map_or(0, |&first| i128::from(first));
        rows.push((grew, with(keys::row_names(keys, known, pairs, example, group.1), members(&figures))));
    }
    rows.sort_by_key(|(grew, _)| Reverse(*grew));
    let total = |space: Space| members(&figures(pairs, &ends, &|_, kind| kind.space() == space));
    let rows: Vec<Value> = rows.into_iter().map(|(_, row)| row).collect();
    let document = with(head("growth/1", &keys::words(keys), known, pairs), json!({ "slices": ends, "rows": rows }));
    known.spaces().fold(document, |document, space| with(document, json!({ of_space("total", space): total(space) })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_are_the_narrowest_of_which_64_suffice() {
        let slices = |start, last| {
            let shift = (0..u64::BITS).find(|&shift| (last - start) >> shift < MAX_SLICES).unwrap();
            Slices { start, last, shift }
        };
        assert_eq!(slices(7, 7).ends(), [8]);
        assert_eq!(slices(7, 7).boundary_at_nine_tenths(), None);
        assert_eq!((slices(0, 63).count(), slices(0, 63).shift), (64, 0));
        assert_eq!((slices(100, 164).count(), slices(100, 164).shift), (33, 1));
        assert_eq!(slices(100, 164).ends()[..2], [102, 104]);
        assert_eq!(slices(100, 164).ends()[32], 166);
        // Nine tenths of 64 are 57.6.
        assert_eq!(slices(100, 164).boundary_at_nine_tenths(), Some(156));
        let all = slices(0, u64::MAX);
        assert_eq!((all.count(), all.ends()[63], all.ends()[0]), (64, u64::MAX, 1 << 58));
    }
}
