//! Exit statuses; `kmemtrace-check` uses the same names.

/// A view was printed, whatever the verdict on the trace.
pub(crate) const OK: u8 = 0;
/// A gate fired: `--fail-on`, `--fail-over`.
pub(crate) const GATE: u8 = 1;
/// Wrong usage, unreadable input, an output that cannot be written, or more memory than `--max-memory`.
pub(crate) const UNUSABLE: u8 = 2;
/// No trace at all, or `--strict` and a verdict other than complete.
pub(crate) const BAD_TRACE: u8 = 3;
