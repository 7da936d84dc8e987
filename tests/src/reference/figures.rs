//! Figures of a set of objects, counted from the set.

use kmemtrace_abi::event::{Action, Event, Kind};
use serde_json::{Value, json};

use super::pairs::{Class, End, Object, Pairs};

/// Figures of the objects and failed allocations whose allocation event `select` takes, as a JSON object, and the
/// first order key at which the peak was reached.
pub fn figures(pairs: &Pairs, select: &dyn Fn(&Event, Kind) -> bool) -> (Value, u64) {
    let objects: Vec<&Object> = pairs.objects.iter().filter(|o| select(&o.alloc, o.kind)).collect();
    let failed = pairs.taken().filter(|e| match e.action {
        Action::Alloc(kind) => e.failed && select(e, kind),
        _ => false,
    });
    let waste = |o: &&Object| o.alloc.allocated.saturating_sub(o.alloc.requested);
    let live: Vec<&Object> = objects.iter().copied().filter(|o| matches!(o.end, End::Live)).collect();
    let freed = objects.iter().filter_map(|o| match o.end {
        End::Freed { free, .. } => Some((o.alloc, free)),
        _ => None,
    });
    let reissued: Vec<bool> = objects
        .iter()
        .filter_map(|o| match o.end {
            End::Reissued { suspect, .. } => Some(suspect),
            _ => None,
        })
        .collect();
    let (peak, peak_at) = peak(pairs, &objects);
    let figures = json!({
        "allocs": objects.len(),
        "failed_allocs": failed.count(),
        "requested": objects.iter().map(|o| o.alloc.requested).sum::<u64>(),
        "allocated": objects.iter().map(|o| o.alloc.allocated).sum::<u64>(),
        "wasted": objects.iter().map(waste).sum::<u64>(),
        "frees": freed.clone().count(),
        "inferred_frees": reissued.len(),
        "cross_cpu": freed.filter(|(alloc, free)| alloc.cpu != free.cpu).count(),
        "live_objects": live.len(),
        "live_requested": live.iter().map(|o| o.alloc.requested).sum::<u64>(),
        "live_allocated": live.iter().map(|o| o.alloc.allocated).sum::<u64>(),
        "live_wasted": live.iter().map(waste).sum::<u64>(),
        "peak_live_allocated": peak,
        "live_is_upper_bound": reissued.contains(&false),
    });
    (figures, peak_at)
}

/// Peak of live allocated bytes after any event, and the order key at which it was first reached.
fn peak(pairs: &Pairs, objects: &[&Object]) -> (u64, u64) {
    let mut change = vec![0i128; pairs.events.len()];
    for object in objects {
        let bytes = i128::from(object.alloc.allocated);
        change[object.number] += bytes;
        if let End::Freed { number, .. } | End::Reissued { number, .. } = object.end {
            change[number] -= bytes;
        }
    }
    let (mut live, mut peak, mut peak_at) = (0, 0, 0);
    for (event, change) in pairs.events.iter().zip(change) {
        live += change;
        if live > peak {
            (peak, peak_at) = (live, event.at);
        }
    }
    (peak as u64, peak_at)
}

/// Number of findings of a class, and of the suspect ones among them.
pub fn findings(pairs: &Pairs, class: Class) -> (usize, usize) {
    let all = pairs.findings.iter().filter(|f| f.class == class);
    (all.clone().count(), all.filter(|f| f.suspect).count())
}

/// Number of free events of a kind with a real pointer.
pub fn free_events(pairs: &Pairs, kind: Kind) -> usize {
    let real = |e: &Event| kind == Kind::Pages || !matches!(e.address, 0 | 16);
    pairs.taken().filter(|e| e.action == Action::Free(kind) && real(e)).count()
}
