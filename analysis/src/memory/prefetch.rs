//! Prefetch: the processor loads memory before it is needed. With `zeroed`, the only unsafe code of the pairing and the merge.

#![cfg_attr(
    target_arch = "x86_64",
    expect(unsafe_code, reason = "a prefetch is an intrinsic, and it changes nothing that a program can see")
)]

/// Starts loading the cache line of `slice[index]`, if there is such an element.
#[inline(always)]
pub(crate) fn prefetch<T>(slice: &[T], index: usize) {
    if let Some(element) = slice.get(index) {
        prefetch_beyond(element, 0);
    }
}

/// Starts loading the cache line `elements` elements beyond `element`, whatever is there.
#[inline(always)]
pub(crate) fn prefetch_beyond<T>(element: &T, elements: usize) {
    let beyond = std::ptr::from_ref(element).wrapping_add(elements);
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: SSE is part of x86_64; a prefetch of any address, mapped or not, reads nothing into the program.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(beyond.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = beyond;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_may_be_there_or_not() {
        let slice = [1u64, 2, 3];
        for index in [0, 2, 3, usize::MAX] {
            prefetch(&slice, index);
            prefetch_beyond(&slice[2], index);
        }
        prefetch::<u64>(&[], 0);
        assert_eq!(slice, [1, 2, 3]);
    }
}
