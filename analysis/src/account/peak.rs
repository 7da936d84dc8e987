//! Peak of live bytes.

/// Peak of live bytes, and the distance to it: an event mostly changes one number.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Peak {
    /// Headroom, in bytes: `greatest` less the live bytes, as far as 64 bits hold it.
    headroom: u64,
    /// Headroom beyond 64 bits, in bytes; 0 in every real trace.
    wide_headroom: u128,
    /// Largest number of live bytes.
    pub(crate) greatest: u128,
}

impl Peak {
    /// Adds live bytes; true at a new peak.
    #[inline(always)]
    pub(crate) fn allocated(&mut self, allocated: u64) -> bool {
        match self.headroom.checked_sub(allocated) {
            Some(headroom) => {
                self.headroom = headroom;
                false
            }
            None if self.wide_headroom == 0 => {
                self.greatest += u128::from(allocated - self.headroom);
                self.headroom = 0;
                true
            }
            None => self.opened_wide(allocated.into()),
        }
    }

    #[cold]
    fn opened_wide(&mut self, allocated: u128) -> bool {
        let headroom = self.wide_headroom + u128::from(self.headroom);
        self.set_headroom(headroom.saturating_sub(allocated));
        self.greatest += allocated.saturating_sub(headroom);
        allocated > headroom
    }

    #[inline(always)]
    pub(crate) fn freed(&mut self, allocated: u64) {
        match self.headroom.checked_add(allocated) {
            Some(headroom) => self.headroom = headroom,
            None => self.set_headroom(self.wide_headroom + u128::from(self.headroom) + u128::from(allocated)),
        }
    }

    #[cold]
    fn set_headroom(&mut self, headroom: u128) {
        self.headroom = u64::try_from(headroom).unwrap_or(u64::MAX);
        self.wide_headroom = headroom - u128::from(self.headroom);
    }
}
