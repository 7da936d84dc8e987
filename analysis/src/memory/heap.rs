//! Memory that the allocator of the C library takes, for tables that count theirs.

/// Bytes of the heap that an allocation of `bytes` takes: the allocator adds 8, and rounds up to a multiple of 16.
#[inline(always)]
pub(crate) fn heap_bytes(bytes: usize) -> usize {
    (bytes + 8).next_multiple_of(16)
}
