//! Figures of a set of objects, counted from the set.

use kmemtrace_abi::event::{Action, Event, Kind, Space};
use serde_json::{Map, Value, json};

use super::Known;
use super::pairs::{Class, End, Object, PageFree, Pairs};

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
    let live_waste = |o: &&Object| if o.frames().is_some() { 0 } else { waste(o) };
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
        "cross_cpu": freed.clone().filter(|(alloc, free)| alloc.cpu != free.cpu).count(),
        "live_objects": live.len(),
        "live_requested": live.iter().map(|o| o.live_bytes().0).sum::<u64>(),
        "live_allocated": live.iter().map(|o| o.live_bytes().1).sum::<u64>(),
        "live_wasted": live.iter().map(live_waste).sum::<u64>(),
        "peak_live_allocated": peak,
        "live_is_upper_bound": reissued.contains(&false) || objects.iter().any(|o| pairs.bulk.may_have_freed(o)),
        "largest": objects.iter().map(|o| o.alloc.requested).max(),
        "deferred_frees": freed.clone().filter(|(_, free)| free.action == Action::Deferred).count(),
        "bulk_frees": freed.clone().filter(|(_, free)| matches!(free.action, Action::BulkFree(_))).count(),
    });
    (figures, peak_at)
}

/// Peak of live allocated bytes after any event, and the order key at which it was first reached.
fn peak(pairs: &Pairs, objects: &[&Object]) -> (u64, u64) {
    let mut change = vec![0i128; pairs.events.len()];
    for object in objects {
        change[object.number] += i128::from(object.alloc.allocated);
        for (number, bytes, _) in object.losses() {
            change[number] -= i128::from(bytes);
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

/// Figures of pages of the objects whose allocation event `select` takes: of a set of pages, and null for others. `size` is that of
/// a page, `peak` the greatest number of live bytes.
pub fn pages(known: &Known, pairs: &Pairs, select: &dyn Fn(&Event, Kind) -> bool, peak: &Value) -> Value {
    let size = known.trace.page_bytes;
    let is_chosen = |e: &Event| e.action == Action::Alloc(Kind::Pages) && select(e, Kind::Pages);
    let no_event = Event::new(0, u32::MAX, known.names.clone().intern(b"none"));
    let is_kind = select(&no_event, Kind::Pages) && !select(&no_event, Kind::Cache);
    let whole = pairs.has_whole_blocks();
    if !(is_kind || pairs.taken().any(is_chosen)) || whole && size.is_none() {
        let members =
            ["pages_allocated", "pages_freed", "pages_inferred", "live_pages", "peak_live_pages", "partial_frees"];
        return members.into_iter().map(|member| (member.to_owned(), Value::Null)).collect::<Map<_, _>>().into();
    }
    let objects: Vec<&Object> = pairs.objects.iter().filter(|o| select(&o.alloc, o.kind)).collect();
    let (mut allocated, mut freed, mut inferred) = (0, 0, 0);
    for object in objects {
        let pages = object.frames().unwrap_or_else(|| object.alloc.allocated / size.unwrap_or(u64::MAX));
        allocated += pages;
        match (&object.gone, object.end) {
            (Some(gone), _) => {
                let sum = |is_inferred| gone.iter().filter(|g| g.inferred == is_inferred).map(|g| g.pages).sum::<u64>();
                (freed, inferred) = (freed + sum(false), inferred + sum(true));
            }
            (None, End::Freed { .. }) => freed += pages,
            (None, End::Reissued { .. }) => inferred += pages,
            (None, End::Live) => {}
        }
    }
    let parts = |free: &&PageFree| free.left.iter().any(|e| pairs.takes(known, e) && select(e, Kind::Pages));
    json!({
        "pages_allocated": allocated, "pages_freed": freed, "pages_inferred": inferred,
        "live_pages": allocated - freed - inferred,
        "peak_live_pages": match (allocated, size) {
            (0, _) => Some(0),
            (_, size) => peak.as_u64().zip(size).map(|(peak, size)| peak / size),
        },
        "partial_frees": (known.has_frames && !whole).then(|| pairs.taken_page_frees().filter(parts).count()),
    })
}

/// Members of the kind `pages` beside its free events, and of the others, where they are null.
pub fn page_frees(pairs: &Pairs, kind: Kind) -> Value {
    if kind != Kind::Pages {
        return json!({ "page_pairs": null, "free_pages_without_alloc": null, "free_pages_after_free": null });
    }
    let frees = || pairs.taken_page_frees();
    let is_whole_pair = |o: &&Object| o.kind == Kind::Pages && o.gone.is_none() && matches!(o.end, End::Freed { .. });
    let whole = pairs.objects.iter().filter(is_whole_pair).count();
    let known = |sum: u64| (!pairs.has_whole_blocks()).then_some(sum);
    json!({
        "page_pairs": frees().filter(|free| !free.hits.is_empty()).count() + whole,
        "free_pages_without_alloc": known(frees().map(|free| free.unseen).sum()),
        "free_pages_after_free": known(frees().map(|free| free.seen).sum()),
    })
}

/// Number of findings of a class, and of the suspect ones among them.
pub fn findings(known: &Known, pairs: &Pairs, class: Class) -> (usize, usize) {
    let all = pairs.findings.iter().filter(|f| f.class == class && known.compares(f.kind));
    (all.clone().count(), all.filter(|f| f.suspect).count())
}

/// Number of free events of a kind with a real pointer.
pub fn free_events(pairs: &Pairs, kind: Kind) -> usize {
    let is_of_kind = |number: usize, e: &Event| match e.action {
        Action::Free(of) => {
            let real = kind.space() != Space::Slab || !matches!(e.address, 0 | 16);
            of == kind && real && !pairs.bulk.completions_at.contains(&number)
        }
        Action::Deferred | Action::BulkFree(_) => pairs.bulk.kinds.get(&number) == Some(&kind),
        _ => false,
    };
    pairs.taken_numbers().filter(|&(number, event)| is_of_kind(number, event)).count()
}
