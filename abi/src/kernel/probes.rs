//! Probe events that a recorder defines for frees without an event of their own: their names and the name of their group.
//!
//! Linux 6.9 and later hands objects given to `kfree_rcu` back through sheaves or in bulk, without `kfree` or `kmem_cache_free`
//! events. Recorder and decoder share what is here.

/// Deferred free: `kvfree_call_rcu` of `mm/slab_common.c`.
pub const KVFREE_RCU: &str = "kvfree_rcu";
/// Free of several objects: `kmem_cache_free_bulk` of `mm/slub.c`.
pub const FREE_BULK: &str = "free_bulk";
/// Allocation of several objects: return of `kmem_cache_alloc_bulk_noprof` of `mm/slub.c`.
pub const ALLOC_BULK: &str = "alloc_bulk";

/// Elements of the array `p` of [`FREE_BULK`] and [`ALLOC_BULK`], the most that a probe event can fetch.
pub const MAX_ADDRESSES: u64 = 64;

/// Field of [`KVFREE_RCU`]: address of the object.
pub(crate) const POINTER: &str = "ptr";
/// Field of [`KVFREE_RCU`] and [`FREE_BULK`]: return address of the caller.
pub(crate) const CALL_SITE: &str = "call_site";
/// Field of every return probe: return address of the caller.
pub(crate) const RETURN_ADDRESS: &str = "__probe_ret_ip";
/// Field of [`FREE_BULK`]: the cache; 0 if the caller named none.
pub(crate) const CACHE_POINTER: &str = "s";
/// Field of [`FREE_BULK`] and [`ALLOC_BULK`]: name of the cache.
pub(crate) const CACHE: &str = "name";
/// Field of [`FREE_BULK`] and [`ALLOC_BULK`]: number of objects.
pub(crate) const SIZE: &str = "size";
/// Field of [`FREE_BULK`] and [`ALLOC_BULK`]: array of addresses. Elements beyond [`SIZE`] are memory of the caller.
pub(crate) const ADDRESSES: &str = "p";
/// Field of [`ALLOC_BULK`]: bytes of an object without what the allocator adds.
pub(crate) const REQUESTED: &str = "bytes_req";
/// Field of [`ALLOC_BULK`]: bytes of an object.
pub(crate) const ALLOCATED: &str = "bytes_alloc";
/// Field of [`ALLOC_BULK`]: flags of the allocation.
pub(crate) const GFP: &str = "gfp_flags";
/// Field of [`ALLOC_BULK`]: 0 if nothing was allocated.
pub(crate) const RESULT: &str = "ret";

/// Text that the kernel writes for a string that it cannot read.
pub(crate) const NO_TEXT: &[u8] = b"(fault)";

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
