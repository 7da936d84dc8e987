//! The engine: passes over a trace.
//!
//! | a caller wants | file | what it runs |
//! |---|---|---|
//! | figures: `Query::run` | `query_run` | finds names, window and filter, makes the `Analysis` |
//! | | `index_or_pass` | takes the result from `report.index`, or reads the trace and keeps the result |
//! | | `read_trace` | reads, merges, pairs and counts, on one thread or several: `scheduler` has the stages, `peaks` the live bytes |
//! | | `add_up` | adds the partitions up |
//! | | `read_text` | adds up the entries of a text of one moment, in place of `read_trace` |
//! | figures of a window with what came before: `Query::run_carried_with` | `carried` | several of these runs, and their differences |
//! | events in order: `Query::observe` | `observe` | one thread: `read_in_order` |
//! | objects one by one: `Query::objects` | `objects` | the same pass with a pairing, whose fates `fate_sink` turns into `object_fate` |
//! | | `text_objects` | hands over the entries of a text of one moment, in place of `objects` |
//!
//! `config` has the sizes of all passes. `init_sites` finds the call-sites in the initialisation of modules, in a pass of its own.

mod add_up;
mod carried;
pub(crate) mod config;
mod fate_sink;
pub(crate) mod index_or_pass;
pub(crate) mod init_sites;
pub(crate) mod object_fate;
pub(crate) mod objects;
pub(crate) mod observe;
pub(crate) mod peaks;
pub(crate) mod query_run;
pub(crate) mod read_in_order;
mod read_text;
pub(crate) mod read_trace;
pub(crate) mod scheduler;
mod text_objects;
