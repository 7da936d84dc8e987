//! Texts of the kernel as a trace keeps them, for a writer of another container.

/// Texts that a trace was opened by. Only [`OpenOptions::texts`](crate::open::OpenOptions::texts) keeps them.
#[derive(Clone, Debug, Default)]
pub struct KernelTexts {
    /// `events/header_page`.
    pub header_page: Vec<u8>,
    /// `events/header_event`; empty where the trace lacks it.
    pub header_event: Vec<u8>,
    /// System and text of each event's `format`; without its `print fmt` where `meta.out` is missing.
    pub formats: Vec<(String, String)>,
    /// `trace_clock`, or the clock's name.
    pub clock: Option<String>,
    /// Output of `uname`.
    pub uname: Vec<u8>,
    /// `per_cpu/cpuN/stats` of CPUs that have one.
    pub stats: Vec<(u32, String)>,
    /// Number of possible CPUs, as far as the trace says.
    pub cpus: usize,
    /// Facts of the trace as items of a file header and of names, of which `trace.dat` has no section of its own.
    pub items: Vec<u8>,
}
