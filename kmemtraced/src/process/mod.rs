//! The recorder as a process of the traced machine: its messages, signals, memory and threads.
//!
//! `messages` writes to standard error without ever blocking a caller. `signals` turns signals into flags. `memory` reserves
//! and locks memory, and lowers the OOM score.
//! `limits` raises the limit of open files, for the recorder alone.
//! `thread` raises the priority of a thread and names the remedy where one cannot be started. `report` starts `kmemtrace-report`
//! without privileges.
//!
//! Room for more process-wide settings and limits. Recording itself is in `source`, `write` and `record`.

pub(crate) mod limits;
pub(crate) mod memory;
pub(crate) mod messages;
pub(crate) mod report;
pub(crate) mod signals;
pub(crate) mod thread;
