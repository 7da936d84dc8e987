//! Options of opening a trace.

/// Wishes of the caller: `released`, `alike` and `at_free_before` for inputs that list what is live at one moment, the others for texts of
/// events.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    /// Memory that was given back is read, too.
    pub released: bool,
    /// Allocations that differ in time and address alone may be handed over with the time and the address of the oldest of them,
    /// so that memory goes by distinct stacks. Counts and sums are the same.
    pub alike: bool,
    /// Events stand at the time at which the memory's owner before gave it back, in place of the allocation's.
    pub at_free_before: bool,
    /// Name of the ring buffer that is read, of an input that has several; the main one has none.
    pub buffer: Option<String>,
    /// Release of the kernel that the text is of.
    pub release: Option<String>,
    /// Trace clock of the text's times, as the kernel's `trace_clock` names it.
    pub clock: Option<String>,
    /// Bytes of a page.
    pub page_bytes: Option<u64>,
    /// The texts that the trace is opened by are kept, for a writer of another container.
    pub texts: bool,
}
