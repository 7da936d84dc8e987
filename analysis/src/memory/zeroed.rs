//! Arrays of zeros, mapped by the kernel. Untouched elements take no memory, but for the rest of a huge page. Arrays ask for huge
//! pages as far as they fill them: a random element's small page mostly misses the TLB, too.
#![expect(unsafe_code, reason = "elements stand in memory that is mapped as bytes")]

use std::alloc::{Layout, handle_alloc_error};
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut, Range};

#[cfg(not(miri))]
use memmap2::{Advice, MmapMut, MmapRaw, UncheckedAdvice};
#[cfg(miri)]
use on_a_vec::{Advice, MmapMut, MmapRaw, UncheckedAdvice};
use zerocopy::{FromZeros, Immutable};

/// Unit in which memory goes back to the kernel, in bytes: a huge page of most processors. Miri takes a second for a megabyte.
pub(crate) const PIECE: usize = if cfg!(miri) { 4 << 10 } else { 2 << 20 };

/// Array of elements that are all zeros at first.
#[derive(Debug)]
pub(crate) struct ZeroedArray<T> {
    map: MmapRaw,
    len: usize,
    elements: PhantomData<T>,
}

impl<T: FromZeros + Immutable> ZeroedArray<T> {
    /// Array of `len` elements. Without memory for them the process ends as with a `Vec`.
    pub(crate) fn new(len: usize) -> ZeroedArray<T> {
        const { assert!(align_of::<T>() <= 4096 && PIECE.is_multiple_of(size_of::<T>())) }; // At most a page.
        let layout = Layout::array::<T>(len).unwrap_or_else(|_| handle_alloc_error(Layout::new::<T>()));
        // A mapping of whole huge pages is aligned to them from Linux 6.7 on. The last one is not filled, so small pages do.
        let whole = layout.size() / PIECE * PIECE;
        let bytes = if whole == 0 { layout.size() } else { layout.size().next_multiple_of(PIECE) };
        let map = MmapMut::map_anon(bytes).unwrap_or_else(|_| {
            kmemtrace_fence::refuse();
            handle_alloc_error(layout)
        });
        if whole > 0 {
            // Without huge pages the array works as well, if not as fast.
            let _ = map.advise_range(Advice::HugePage, 0, whole);
            let _ = map.advise_range(Advice::NoHugePage, whole, bytes - whole);
        }
        ZeroedArray { map: map.into(), len, elements: PhantomData }
    }

    /// All elements, to be written to, and their memory.
    pub(crate) fn with_memory(&mut self) -> (&mut [T], Memory<'_>) {
        let memory = Memory { map: &self.map, bytes: self.len * size_of::<T>() };
        // SAFETY: as in `deref_mut`; `memory` never looks at what is there.
        (unsafe { std::slice::from_raw_parts_mut(self.map.as_mut_ptr().cast(), self.len) }, memory)
    }

    /// Turns the array into one that is consumed from its end.
    pub(crate) fn into_draining(self) -> DrainingArray<T> {
        DrainingArray { left: 0..self.len, map: self.map, elements: PhantomData }
    }
}

/// Memory of an array that is being filled.
#[derive(Clone, Copy)]
pub(crate) struct Memory<'a> {
    map: &'a MmapRaw,
    bytes: usize,
}

impl Memory<'_> {
    /// Takes memory for all elements of this piece before they are written to: some kernels give no huge page to memory that was
    /// read first.
    pub(crate) fn populate(self, piece: usize) {
        let from = piece * PIECE;
        let _ = self.map.advise_range(Advice::PopulateWrite, from, PIECE.min(self.bytes.saturating_sub(from)));
    }
}

/// A read-only array that is consumed from its end; consumed 2 MiB pieces go back to the kernel.
#[derive(Debug)]
pub(crate) struct DrainingArray<T> {
    map: MmapRaw,
    left: Range<usize>,
    elements: PhantomData<T>,
}

impl<T: FromZeros + Immutable + Copy> DrainingArray<T> {
    /// The last element.
    #[inline]
    pub(crate) fn last(&self) -> Option<T> {
        let last = self.left.clone().next_back()?;
        // SAFETY: the element is one of the array's, as in `deref`; the mapping is only read from now on.
        Some(unsafe { self.map.as_ptr().cast::<T>().add(last).read() })
    }

    /// Takes the last element off; the memory of a piece goes back once all of its elements are taken.
    #[inline]
    pub(crate) fn take_last(&mut self) -> Option<T> {
        let element = self.last()?;
        self.left.end -= 1;
        let from = self.left.end * size_of::<T>();
        if from.is_multiple_of(PIECE) {
            let bytes = PIECE.min(self.map.len() - from);
            // SAFETY: all elements from there to the end have been taken: no reader is left for this memory.
            let _ = unsafe { self.map.unchecked_advise_range(UncheckedAdvice::DontNeed, from, bytes) };
        }
        Some(element)
    }
}

impl<T: FromZeros + Immutable> Default for ZeroedArray<T> {
    fn default() -> ZeroedArray<T> {
        ZeroedArray::new(0)
    }
}

impl<T: FromZeros + Immutable> Deref for ZeroedArray<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: the mapping has room for `len` elements and begins at a page; all zeros are elements, and nothing but elements
        // was written since.
        unsafe { std::slice::from_raw_parts(self.map.as_ptr().cast(), self.len) }
    }
}

impl<T: FromZeros + Immutable> DerefMut for ZeroedArray<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`, and `self` is borrowed mutably for as long.
        unsafe { std::slice::from_raw_parts_mut(self.map.as_mut_ptr().cast(), self.len) }
    }
}

/// Part of memmap2 that is used above, on a `Vec`: Miri maps no memory.
#[cfg(miri)]
mod on_a_vec {
    use std::io;
    use std::mem::MaybeUninit;

    const PAGE: usize = 4096;

    #[derive(Clone, Copy, Debug)]
    #[repr(C, align(4096))]
    struct Page([u8; PAGE]);

    #[derive(Debug)]
    pub(super) struct MmapRaw {
        pages: Vec<Page>,
        len: usize,
    }

    pub(super) type MmapMut = MmapRaw;

    pub(super) enum Advice {
        HugePage,
        NoHugePage,
        PopulateWrite,
    }

    pub(super) enum UncheckedAdvice {
        DontNeed,
    }

    impl MmapRaw {
        pub(super) fn map_anon(len: usize) -> io::Result<MmapRaw> {
            Ok(MmapRaw { pages: vec![Page([0; PAGE]); len.div_ceil(PAGE)], len })
        }

        pub(super) fn len(&self) -> usize {
            self.len
        }

        pub(super) fn as_ptr(&self) -> *const u8 {
            self.pages.as_ptr().cast()
        }

        pub(super) fn as_mut_ptr(&self) -> *mut u8 {
            self.as_ptr().cast_mut()
        }

        pub(super) fn advise_range(&self, _: Advice, from: usize, len: usize) -> io::Result<()> {
            assert!(from.is_multiple_of(PAGE) && from + len <= self.len, "{from}, {len} of {}", self.len);
            Ok(())
        }

        /// Makes reading the range an error that Miri finds: the system would hand out zeros.
        pub(super) unsafe fn unchecked_advise_range(
            &self,
            _: UncheckedAdvice,
            from: usize,
            len: usize,
        ) -> io::Result<()> {
            assert!(from.is_multiple_of(PAGE) && from + len <= self.len, "{from}, {len} of {}", self.len);
            let gone = vec![MaybeUninit::<u8>::uninit(); len];
            // SAFETY: the range is in the pages, and the caller has the last look at it behind them.
            unsafe {
                self.as_mut_ptr().add(from).cast::<MaybeUninit<u8>>().copy_from_nonoverlapping(gone.as_ptr(), len)
            };
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_elements_come_back_from_the_end() {
        for len in [0, 1, 1000, 3 * PIECE / 64, 3 * PIECE / 64 + 1, 12 * PIECE / 64, 12 * PIECE / 64 + 5] {
            let mut array = ZeroedArray::<[u64; 8]>::new(len);
            assert!(array.len() == len && array.iter().all(|element| *element == [0; 8]));
            for (index, element) in array.iter_mut().enumerate() {
                element[7] = index as u64;
            }
            let mut array = array.into_draining();
            let taken = std::iter::from_fn(|| array.take_last());
            assert!(taken.map(|element| element[7]).eq((0..len as u64).rev()), "{len}");
        }
    }

    type Element = [u64; 8];

    /// Elements of some pieces, and of a part of one.
    const SOME: usize = 5 * PIECE / size_of::<Element>() / 2;

    fn numbered(len: usize) -> ZeroedArray<Element> {
        let mut array = ZeroedArray::<Element>::new(len);
        array.iter_mut().enumerate().for_each(|(index, element)| *element = [index as u64; 8]);
        array
    }

    #[test]
    fn an_array_grows_by_moving_its_elements_from_the_end() {
        let mut array = numbered(1);
        while array.len() < SOME {
            let len = array.len();
            let mut grown = ZeroedArray::<Element>::new(2 * len + 1);
            let (elements, memory) = grown.with_memory();
            (0..(size_of_val(elements)).div_ceil(PIECE)).for_each(|piece| memory.populate(piece));
            let mut old = array.into_draining();
            for index in (0..len).rev() {
                assert_eq!(old.last(), Some([index as u64; 8]));
                elements[index] = old.take_last().unwrap();
            }
            assert!(old.take_last().is_none() && old.last().is_none());
            drop(old);
            assert!(elements[len..].iter().all(|element| *element == [0; 8]));
            for (index, element) in elements.iter_mut().enumerate().skip(len) {
                *element = [index as u64; 8];
            }
            array = grown;
        }
        assert!(array.iter().enumerate().all(|(index, element)| *element == [index as u64; 8]));
    }

    #[test]
    fn an_array_may_be_dropped_with_elements_in_it() {
        drop(numbered(SOME));
        drop(ZeroedArray::<Element>::default().into_draining());
        let mut array = numbered(SOME).into_draining();
        assert!((0..SOME / 2).all(|_| array.take_last().is_some()));
    }
}
