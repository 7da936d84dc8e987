//! Arrays of zeros straight from the system. What is not touched takes no memory, but for the rest of a huge page: as far as an
//! array fills them, they are asked for, because an element that is looked up at random mostly misses the processor's cache of small
//! pages, too.
#![expect(unsafe_code, reason = "elements stand in memory that is mapped as bytes")]

use std::alloc::{Layout, handle_alloc_error};
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use memmap2::{Advice, MmapMut, UncheckedAdvice};
use zerocopy::{FromZeros, Immutable};

/// Bytes that are given back at once, and those of a huge page of most processors.
pub(crate) const PIECE: usize = 2 << 20;

/// Elements that are all zeros at first.
#[derive(Debug)]
pub(crate) struct Zeroed<T> {
    map: MmapMut,
    len: usize,
    elements: PhantomData<T>,
}

impl<T: FromZeros + Immutable> Zeroed<T> {
    /// So many elements. Where there is no memory for them, it ends as a `Vec` would.
    pub(crate) fn new(len: usize) -> Zeroed<T> {
        const { assert!(align_of::<T>() <= 4096 && PIECE.is_multiple_of(size_of::<T>())) }; // A page's, or less.
        let layout = Layout::array::<T>(len).unwrap_or_else(|_| handle_alloc_error(Layout::new::<T>()));
        // As long as so many huge pages, it is placed (from Linux 6.7 on) so that each can be one. The last is not filled: small
        // ones do.
        let whole = layout.size() / PIECE * PIECE;
        let bytes = if whole == 0 { layout.size() } else { layout.size().next_multiple_of(PIECE) };
        let map = MmapMut::map_anon(bytes).unwrap_or_else(|_| handle_alloc_error(layout));
        if whole > 0 {
            // Without them it works as well, if not as fast.
            let _ = map.advise_range(Advice::HugePage, 0, whole);
            let _ = map.advise_range(Advice::NoHugePage, whole, bytes - whole);
        }
        Zeroed { map, len, elements: PhantomData }
    }

    /// Takes memory for all elements of this piece, as they will be written to: some kernels have no huge page for where something
    /// was read first.
    pub(crate) fn populate(&self, piece: usize) {
        let from = piece * PIECE;
        let bytes = PIECE.min((self.len * size_of::<T>()).saturating_sub(from));
        let _ = self.map.advise_range(Advice::PopulateWrite, from, bytes);
    }
}

impl<T: FromZeros + Immutable> Default for Zeroed<T> {
    fn default() -> Zeroed<T> {
        Zeroed::new(0)
    }
}

impl<T: FromZeros + Immutable + Copy> Zeroed<T> {
    /// Takes the last element off; its memory is given back together with that of its neighbours.
    #[inline]
    pub(crate) fn take_last(&mut self) -> Option<T> {
        let element = *self.last()?;
        self.len -= 1;
        let from = self.len * size_of::<T>();
        if from.is_multiple_of(PIECE) {
            let bytes = PIECE.min(self.map.len() - from);
            // SAFETY: no element is left there, so nobody will look at what this memory becomes.
            let _ = unsafe { self.map.unchecked_advise_range(UncheckedAdvice::DontNeed, from, bytes) };
        }
        Some(element)
    }
}

impl<T: FromZeros + Immutable> Deref for Zeroed<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: so many elements have place in the mapping, which begins at a page; it was all zeros, which are elements, and
        // nothing but elements was written since.
        unsafe { std::slice::from_raw_parts(self.map.as_ptr().cast(), self.len) }
    }
}

impl<T: FromZeros + Immutable> DerefMut for Zeroed<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above, and `self` is borrowed for as long.
        unsafe { std::slice::from_raw_parts_mut(self.map.as_mut_ptr().cast(), self.len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_elements_come_back_from_the_end() {
        for len in [0, 1, 1000, 3 * PIECE / 64, 3 * PIECE / 64 + 1] {
            let mut array = Zeroed::<[u64; 8]>::new(len);
            assert!(array.len() == len && array.iter().all(|element| *element == [0; 8]));
            for (index, element) in array.iter_mut().enumerate() {
                element[7] = index as u64;
            }
            let from_the_end = std::iter::from_fn(|| array.take_last());
            assert!(from_the_end.map(|element| element[7]).eq((0..len as u64).rev()), "{len}");
        }
    }
}
