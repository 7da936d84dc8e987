//! Options of opening a trace.

/// Wishes of the caller for inputs that list what is live at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenOptions {
    /// Memory that was given back is read, too.
    pub released: bool,
    /// Allocations that differ in time and address alone may be handed over with the time and the address of the oldest of them,
    /// so that memory goes by distinct stacks. Counts and sums are the same.
    pub alike: bool,
    /// Events stand at the time at which the memory's owner before gave it back, in place of the allocation's.
    pub at_free_before: bool,
}
