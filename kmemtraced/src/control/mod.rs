//! Changes of a running recording by other programs.
//!
//! `files` holds the control files open and compares them with their state at set-up. `foreign` turns differences into
//! intervals in which events may be missing. `clock` reads the trace clock, so that the intervals are on the events' time axis.
//!
//! Room for more ways to notice a change. This room only reads; `source` sets control files.

pub(crate) mod clock;
pub(crate) mod files;
pub(crate) mod foreign;
