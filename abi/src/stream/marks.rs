//! Marks of lost events, counted while a stream is read.

/// Lost events by the marks in the stream.
#[derive(Debug, Default)]
pub(super) struct Marks {
    /// Marks in sub-buffers.
    pub(super) count: u64,
    /// Sum of those with a number.
    pub(super) counted: u64,
    /// Marks without a number.
    pub(super) uncounted: u64,
    /// The greatest number, and the time to which its gap goes.
    pub(super) longest: (u64, u64),
    /// Sum of gap blocks with a number.
    pub(super) recorder: u64,
    /// Gap blocks without one.
    pub(super) unknown: u64,
    /// Counted events of all marks, by the headers: also of those that cannot be read.
    pub(super) by_headers: u64,
    /// The end block says that a mark has no number: also of marks that cannot be read.
    pub(super) is_vague: bool,
}

impl Marks {
    /// Takes on a header's `lost_before`; some recorders have counted gap blocks in it.
    pub(super) fn take_header(&mut self, lost_before: u64) {
        self.by_headers = self.by_headers.max(lost_before.saturating_sub(self.recorder));
    }
}
