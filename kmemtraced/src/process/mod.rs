//! The recorder as a process of the traced machine: its messages, signals, memory and threads.
//!
//! `messages` writes to standard error without ever blocking a caller. `signals` turns signals into flags. `memory` reserves
//! and locks memory, and lowers the OOM score.
//! `confine` has the sandbox of each thread.
//! `thread` raises the priority of a thread and names the remedy where one cannot be started. `report` finds `kmemtrace-report`,
//! and the user for whom sudo runs this program.
//!
//! Room for more process-wide settings and limits. Recording itself is in `source`, `write` and `record`.

pub(crate) mod confine;
pub(crate) mod memory;
pub(crate) mod messages;
pub(crate) mod report;
pub(crate) mod signals;
pub(crate) mod thread;
