//! Changes of a running recording by other programs.
//!
//! `rules` says which control files count. `files` holds them open and compares them with their state at set-up: lists of `threads` by
//! the threads that must be there, triggers of events that are not recorded by `triggers`. `writes` has what the kernel reports meanwhile.
//! `foreign` turns all of it into intervals in which events may be missing. `clock` reads the trace clock, so that the intervals are
//! on the events' time axis.
//!
//! Room for more ways to notice a change. This room only reads; `source` sets control files.

pub(crate) mod clock;
pub(crate) mod files;
pub(crate) mod foreign;
mod rules;
mod threads;
mod triggers;
mod writes;
