//! Probe events that a recorder defines for frees without an event of their own: their names and the name of their group.
//!
//! Linux 6.9 and later hands objects given to `kfree_rcu` back through sheaves or in bulk, without `kfree` or `kmem_cache_free`
//! events. Recorder and decoder share what is here; the fields of the events are in the decoder.

/// Deferred free: `kvfree_call_rcu` of `mm/slab_common.c`.
pub const KVFREE_RCU: &str = "kvfree_rcu";
/// Free of several objects: `kmem_cache_free_bulk` of `mm/slub.c`.
pub const FREE_BULK: &str = "free_bulk";
/// Allocation of several objects: return of `kmem_cache_alloc_bulk_noprof` of `mm/slub.c`.
pub const ALLOC_BULK: &str = "alloc_bulk";

/// Elements of the array `p` of [`FREE_BULK`] and [`ALLOC_BULK`], the most that a probe event can fetch.
pub const MAX_ADDRESSES: u64 = 64;

/// Group of the probe events that `capture.sh` defines.
pub const CAPTURE_GROUP: &str = "kmemtrace_capture";

/// Group of the probe events of a recorder with this tracefs instance: `kmemtrace_` and the instance's name, with `_` for each byte
/// that is not an ASCII letter, digit or `_`.
pub fn group_of(instance: &str) -> String {
    let letters = instance.bytes().map(|b| if b.is_ascii_alphanumeric() { char::from(b) } else { '_' });
    "kmemtrace_".chars().chain(letters).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_has_letters_digits_and_underscores_alone() {
        assert_eq!(group_of("kmemtraced"), "kmemtrace_kmemtraced");
        assert_eq!(group_of("a-b.c_1"), "kmemtrace_a_b_c_1");
        assert_eq!(group_of("kmemtrace-é"), "kmemtrace_kmemtrace___");
    }
}
