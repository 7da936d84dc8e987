//! Size of a page, from the numbers of blocks in a dump of page_owner.

/// Which numbers of frames a block of pages may have.
#[derive(Clone, Copy, Debug)]
pub(super) struct PageSize {
    /// Bit k: `pfn >> k` is the number of the block, for all frames so far.
    fitting: u64,
    has_any: bool,
}

impl Default for PageSize {
    fn default() -> PageSize {
        PageSize { fitting: u64::MAX, has_any: false }
    }
}

impl PageSize {
    /// Notes the number of a frame and that of the block it is in.
    pub(super) fn add(&mut self, pfn: Option<u64>, block: Option<u64>) {
        let Some((pfn, block)) = pfn.zip(block) else { return };
        self.has_any = true;
        let mut left = self.fitting;
        while left != 0 {
            let k = left.trailing_zeros();
            left &= left.wrapping_sub(1);
            if pfn >> k != block {
                self.fitting &= !(1 << k);
            }
        }
    }

    /// Bytes of a page, if the frames of a block are of one size only (`pageblock_order` of the usual configurations).
    pub(super) fn bytes(&self) -> Option<u64> {
        if !self.has_any || !self.fitting.is_power_of_two() {
            return None;
        }
        match 1u64 << self.fitting.trailing_zeros() {
            32 | 8192 => Some(64 << 10),
            128 | 2048 => Some(16 << 10),
            512 | 1024 => Some(4 << 10),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(frames: &[(u64, u64)]) -> Option<u64> {
        let mut size = PageSize::default();
        frames.iter().for_each(|&(pfn, block)| size.add(Some(pfn), Some(block)));
        size.bytes()
    }

    #[test]
    fn blocks_of_one_size_tell_the_page() {
        for (shift, size) in [(5, 64), (13, 64), (7, 16), (11, 16), (9, 4), (10, 4)] {
            assert_eq!(bytes(&[(0x7654_3210, 0x7654_3210 >> shift), (1, 0)]), Some(size << 10), "{shift}");
        }
        // Several sizes fit, none does, none is usual, none is told.
        assert_eq!(bytes(&[(5, 0), (300, 0)]), None);
        assert_eq!(bytes(&[(0x1000, 8), (0x2000, 8)]), None);
        assert_eq!(bytes(&[(0x1000, 0x100)]), None);
        assert_eq!(bytes(&[]), None);
        let mut size = PageSize::default();
        size.add(Some(0x1000), None);
        assert_eq!(size.bytes(), None);
    }
}
