//! Profile `latency`: events of reclaim, compaction and lack of memory, from which a report finds waits for memory.

use anyhow::bail;

/// Name of the profile.
pub(crate) const PROFILE: &str = "latency";

/// Events of the profile, as `system/event`; a kernel has some of them.
pub(crate) const EVENTS: [&str; 26] = [
    "vmscan/mm_vmscan_direct_reclaim_begin",
    "vmscan/mm_vmscan_direct_reclaim_end",
    "vmscan/mm_vmscan_memcg_reclaim_begin",
    "vmscan/mm_vmscan_memcg_reclaim_end",
    "vmscan/mm_vmscan_memcg_softlimit_reclaim_begin",
    "vmscan/mm_vmscan_memcg_softlimit_reclaim_end",
    "vmscan/mm_vmscan_node_reclaim_begin",
    "vmscan/mm_vmscan_node_reclaim_end",
    "vmscan/mm_shrink_slab_start",
    "vmscan/mm_shrink_slab_end",
    "vmscan/mm_vmscan_throttled",
    "vmscan/mm_vmscan_lru_shrink_inactive",
    "vmscan/mm_vmscan_lru_shrink_active",
    "vmscan/mm_vmscan_kswapd_wake",
    "vmscan/mm_vmscan_kswapd_sleep",
    "vmscan/mm_vmscan_wakeup_kswapd",
    "compaction/mm_compaction_begin",
    "compaction/mm_compaction_end",
    "compaction/mm_compaction_try_to_compact_pages",
    "compaction/mm_compaction_finished",
    "compaction/mm_compaction_deferred",
    "compaction/mm_compaction_kcompactd_wake",
    "compaction/mm_compaction_kcompactd_sleep",
    "oom/mark_victim",
    "oom/reclaim_retry_zone",
    "oom/compact_retry",
];

/// Ends of the names of two events that make a span.
const PAIRS: [(&str, &str); 2] = [("_begin", "_end"), ("_start", "_end")];

/// Events among `events` that begin a reclaim or a compaction.
pub(crate) fn begins(events: &[String]) -> impl Iterator<Item = &str> {
    events.iter().map(String::as_str).filter(|event| is_begin(event))
}

/// True for an event that begins a reclaim or a compaction.
pub(crate) fn is_begin(event: &str) -> bool {
    event.ends_with("_begin") && EVENTS.contains(&event)
}

/// Checks that the events `found` of the profile make spans.
pub(crate) fn check(found: &[String]) -> anyhow::Result<()> {
    let has = |name: String| found.contains(&name);
    let is_paired = |event: &String| {
        let span = |&(begin, end): &(&str, &str)| Some(format!("{}{end}", event.strip_suffix(begin)?));
        PAIRS.iter().filter_map(span).any(has)
    };
    if !found.iter().any(is_paired) {
        bail!(
            "-e {PROFILE}: this kernel has no begin and end of a reclaim or compaction: it requires the events of vmscan or compaction"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(events: &[&str]) -> Vec<String> {
        events.iter().map(|&event| event.to_owned()).collect()
    }

    #[test]
    fn a_begin_without_its_end_is_no_span() {
        let all = names(&EVENTS);
        assert!(check(&all).is_ok());
        assert_eq!(begins(&all).count(), 5, "four kinds of reclaim, and compaction");
        let begin = "vmscan/mm_vmscan_memcg_reclaim_begin";
        assert!(check(&names(&[begin, "vmscan/mm_vmscan_direct_reclaim_end"])).is_err());
        assert!(check(&names(&[begin, "vmscan/mm_vmscan_memcg_reclaim_end"])).is_ok());
        assert!(check(&names(&["vmscan/mm_shrink_slab_start", "vmscan/mm_shrink_slab_end"])).is_ok());
        assert!(check(&names(&["vmscan/mm_vmscan_kswapd_wake", "vmscan/mm_vmscan_throttled"])).is_err());
        assert_eq!(begins(&names(&["kmem/kmalloc", begin])).collect::<Vec<_>>(), [begin]);
    }
}
