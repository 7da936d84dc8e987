//! Slices of time of equal width, a power of two. The last key is not known in advance: slices merge in pairs while events come.

/// Slices from a first key on, never more than a limit.
#[derive(Clone, Debug, Default)]
pub(crate) struct Slices {
    /// Key at which the first slice begins.
    first: u64,
    /// Width of a slice as a power of two.
    shift: u32,
    limit: u64,
    /// Slice of the latest event, and the first key beyond it.
    slice: u64,
    until: Option<u64>,
}

impl Slices {
    /// At most `limit` slices, at least one, that begin at `first`.
    pub(crate) fn new(first: u64, limit: u64) -> Slices {
        Slices { first, limit: limit.max(1), ..Slices::default() }
    }

    /// Key at which the first slice begins.
    pub(crate) fn first(&self) -> u64 {
        self.first
    }

    /// Width of a slice as a power of two.
    pub(crate) fn shift(&self) -> u32 {
        self.shift
    }

    /// Slice of the latest event.
    pub(crate) fn slice(&self) -> u64 {
        self.slice
    }

    /// True if the slice of the latest event does not end before `at`.
    #[inline(always)]
    pub(crate) fn reaches(&self, at: u64) -> bool {
        self.until.is_some_and(|until| at < until)
    }

    /// Goes on to the slice of `at`; slices are 2^n times as wide afterwards, for the n that it returns.
    pub(crate) fn advance(&mut self, at: u64) -> u32 {
        let since = at.saturating_sub(self.first);
        let wider = (0..u64::BITS).find(|more| since.checked_shr(self.shift + more).unwrap_or(0) < self.limit);
        let wider = wider.unwrap_or(0);
        self.shift += wider;
        self.slice = since >> self.shift;
        self.until = Some(self.begin(self.slice.saturating_add(1)));
        wider
    }

    /// Key at which a slice begins.
    pub(crate) fn begin(&self, slice: u64) -> u64 {
        let begin = u128::from(self.first) + (u128::from(slice) << self.shift);
        u64::try_from(begin).unwrap_or(u64::MAX)
    }
}
