//! Analysis of recordings of kernel memory allocations: call-sites, caches, live objects, and frees that do not match.
//!
//! Open a trace, ask a question, get typed rows:
//!
//! ```no_run
//! use kmemtrace::{Query, Trace};
//!
//! let mut trace = Trace::open(&["kmemtrace.data".into()])?;
//! let analysis = Query::by_site().run(&mut trace)?;
//! println!("{} bytes wasted", analysis.total().wasted);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Rooms, in the order the data flows: `input` and `order` make one ordered sequence of events of all CPUs' streams, `pairing`
//! finds the allocation of each free, `account` adds up, `engine` runs all of it, `cache` keeps the result beside the trace,
//! [`documents`] gives it the form of a view. `query` says what is asked, `names` what call-sites are called, `memory` holds the
//! tables.

mod account;
mod analysis;
pub mod cache;
pub mod documents;
mod engine;
mod error;
#[cfg(test)]
mod exact;
mod memory;
mod names;
mod order;
mod pairing;
mod progress;
mod query;
pub mod whole_file;

pub use account::completeness::Completeness;
pub use account::stats::Stats;
pub use analysis::{Analysis, FindingEntry, LiveObject, Names, Row};
pub use documents::events::OrderedItem;
pub use documents::{Shape, SortKey};
pub use engine::run::Observed;
pub use error::AnalysisError;
pub use kmemtrace_abi::clock::Clock;
pub use kmemtrace_abi::event::{Action, Event, EventSink, Gap, GapCause, Kind};
pub use kmemtrace_abi::trace::{OpenError, Trace, TraceInfo};
pub use names::kallsyms::{Symbol, Symbolizer};
pub use order::ordered::Observer;
pub use pairing::findings::Finding;
pub use progress::{Notes, Progress, Silent};
pub use query::Query;
pub use query::glob::Glob;
pub use query::select::{Select, Site, SizeRange, parse_kind, parse_size};
pub use query::time::TimeWindow;
