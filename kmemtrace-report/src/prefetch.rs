//! Asking the processor for memory before it is needed: the only unsafe code of the pairing.

#![cfg_attr(
    target_arch = "x86_64",
    expect(unsafe_code, reason = "a prefetch is an intrinsic, and it changes nothing that a program can see")
)]

/// Starts loading the cache line of `slice[index]`; does nothing where there is no such element.
#[inline(always)]
pub(crate) fn prefetch<T>(slice: &[T], index: usize) {
    let Some(element) = slice.get(index) else { return };
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: SSE is part of x86_64; the address is that of an element, and prefetching reads nothing into the program.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(element).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = element;
}
