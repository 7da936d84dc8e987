//! Analysis of recordings of kernel memory allocations: call-sites, caches, live objects, and frees that do not match.
//!
//! Three steps: [`Trace::open`] opens a recording, a [`Query`] says which rows, events and limits, and [`Query::run`] returns an
//! [`Analysis`].
//!
//! The leaks of a recording, as `kmemtrace-report leaks` finds them:
//!
//! ```no_run
//! use kmemtrace::documents::{self, Body, leaks::LeakOptions};
//! use kmemtrace::{Query, Shape, Trace};
//!
//! let mut trace = Trace::open(&["kmemtrace.data".into()])?;
//! let analysis = Query::leaks(&[]).run(&mut trace)?;
//! let document = documents::leaks(&analysis, &Shape::default(), LeakOptions::default());
//! if let Body::Leaks(view) = &document.body {
//!     for group in view.groups.iter().filter(|group| group.verdict == Some("leak")) {
//!         println!("{} objects at {} call sites", group.sums.live_objects, group.call_sites);
//!     }
//! }
//! println!("the recording is {}", analysis.completeness().verdict_name());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The folder `examples` has whole programs: `leaks`, `totals` and `live_diff` ask, `observer` takes every event, `input` reads another
//! format, and `ci` is a check for CI.
//!
//! # Chapters
//!
//! | to … | see |
//! |---|---|
//! | choose rows, filters, a time window, threads, a memory limit | [`Query`], [`Select`], [`TimeWindow`] |
//! | read sums, findings and live objects | [`Analysis`], [`Stats`], [`Row`], [`FindingEntry`], [`LiveObject`] |
//! | know how far the figures can be trusted | [`Completeness`], [`FindingEntry::suspect`], [`Stats::live_is_upper_bound`] |
//! | name call-sites | [`Analysis::symbolizer`], [`Symbol`] |
//! | take every event in order | [`Observer`], [`Query::observe`] |
//! | take every object at its end | [`ObjectSink`], [`Query::objects`], [`Fate`] |
//! | measure how long tasks wait for memory | [`Query::latency`], [`latency`], [`documents::latency`] |
//! | print the JSON of `kmemtrace-report`, or write a renderer | [`documents`] |
//! | show progress, and notes on time and cache | [`Progress`], [`Notes`] |
//! | read another tool's trace | [`EventSource`], below |
//!
//! Sizes are in bytes. Times are order keys in the unit of the trace's [`Clock`]; a trace ordered by sequence has numbers instead.
//!
//! # Other inputs
//!
//! An [`EventSource`] adds a format. This one has an allocation a line.
//!
//! ```
//! use std::path::Path;
//!
//! use kmemtrace::{Action, Event, EventNames, EventSource, Fault, Kind, Query, StreamItem, Trace};
//!
//! /// Lines `TIME CALL-SITE ADDRESS BYTES` of allocations on CPU 0.
//! #[derive(Debug)]
//! struct Lines(std::vec::IntoIter<&'static str>);
//!
//! impl EventSource for Lines {
//!     fn cpu(&self) -> u32 {
//!         0
//!     }
//!
//!     fn path(&self) -> &Path {
//!         Path::new("lines")
//!     }
//!
//!     fn read(&mut self, names: &mut EventNames, items: &mut Vec<StreamItem>) -> Result<(), Fault> {
//!         for line in self.0.by_ref().take(1000) {
//!             let numbers: Vec<u64> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
//!             let [at, call_site, address, bytes] = numbers[..] else { continue };
//!             let event = Event::new(at, 0, names.intern(b"kmalloc"));
//!             let action = Action::Alloc(Kind::Kmalloc);
//!             items.push(StreamItem::Event(Event { call_site, address, requested: bytes, allocated: 64, action, ..event }));
//!         }
//!         Ok(())
//!     }
//! }
//!
//! let lines = vec!["1000 7 4096 40", "1001 7 8192 60", "1002 9 12288 64"];
//! let mut trace = Trace::of_sources("lines", Some("mono"), vec![Box::new(Lines(lines.into_iter()))])?;
//! let analysis = Query::by_site().run(&mut trace)?;
//!
//! assert_eq!(analysis.total().live_allocated, 3 * 64);
//! let wasted: Vec<_> = analysis.rows().map(|row| (row.call_site, row.stats.wasted)).collect();
//! assert!(wasted.contains(&(Some(7), 28)) && wasted.contains(&(Some(9), 0)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Every event in order
//!
//! An [`Observer`] takes the events and gaps of all CPUs in one order. A closure is an observer, too.
//!
//! ```no_run
//! use std::ops::ControlFlow;
//!
//! use kmemtrace::{OrderedItem, Query, Trace};
//!
//! let mut failed = 0u64;
//! let mut count = |item: &OrderedItem<'_>| {
//!     if let OrderedItem::Event { event, .. } = item {
//!         failed += u64::from(event.address == 0);
//!     }
//!     ControlFlow::Continue(())
//! };
//! let observed = Query::by_kind().observe(&mut Trace::open(&["kmemtrace.data".into()])?, &mut count)?;
//! println!("{failed} of {} events have a null pointer", observed.events);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Rooms
//!
//! In the order the data flows: `order` makes one sequence of all CPUs' streams, `pairing` finds the allocation of each free,
//! `account` adds up, `engine` runs all of it, [`cache`] keeps the result next to the trace, [`documents`] gives it the form of a
//! view. `query` has rows, filters and limits, `names` the names of call-sites and caches, `memory` the tables.

mod account;
mod analysis;
pub mod cache;
pub mod documents;
mod engine;
mod error;
#[cfg(test)]
mod exact;
pub mod follow;
pub mod latency;
pub mod live;
mod memory;
mod names;
mod order;
mod pairing;
mod progress;
mod query;
pub mod whole_file;

pub use account::completeness::Completeness;
pub use account::figures::{Availability, Figure, FigureEntry, FigureUnit};
pub use account::grouping::ModuleRule;
pub use account::keys::{ColumnContent, GroupKey, KeyColumn, KeyEntry, KeyForm};
pub use account::live_curve::LiveCurve;
pub use account::stats::Stats;
pub use analysis::{Analysis, FindingEntry, LiveObject, Row};
pub use documents::{PlacedBy, Shape, SortKey, TreeOptions};
pub use engine::object_fate::{ObjectEnd, ObjectFate, ObjectFree, ObjectSink};
pub use engine::observe::Observed;
pub use error::AnalysisError;
pub use kmemtrace_abi::clock::Clock;
pub use kmemtrace_abi::event::{
    Action, Bulk, BulkAction, ByKind, BySpace, Context, Event, EventSink, Gap, GapCause, Kind, Names as EventNames,
    Space, StreamItem,
};
pub use kmemtrace_abi::fault::{Code, Fault, Verdict};
pub use kmemtrace_abi::kernel::gfp::GfpNames;
pub use kmemtrace_abi::kernel::unknown::UnknownEvents;
pub use kmemtrace_abi::stream::source::EventSource;
pub use kmemtrace_abi::text::glob::Glob;
pub use kmemtrace_abi::trace::{Deferred, InputCapabilities, OpenError, Scope, SymbolSource, Trace, TraceInfo};
pub use names::areas::Areas;
#[cfg(feature = "dwarf")]
pub use names::debug::{MODULES, debug_folders};
pub use names::error::NamesError;
pub use names::frame_list::{FrameClass, FrameList};
#[cfg(feature = "dwarf")]
pub use names::image_sizes::{FileSizes, LeftOut, ModuleSizes, PartSizes, StaticSizes};
pub use names::kallsyms::{SiteOwner, Symbol, Symbolizer};
#[cfg(feature = "dwarf")]
pub use names::map::{NameMap, write_map};
pub use names::module_info::{ModuleInfo, build_id_of_notes};
pub use names::options::NameOptions;
pub use names::place::{Frame, NameSource, NamesReport, Place, SourceLine};
pub use names::size_class::SizeClasses;
pub use names::slabinfo::{CacheChange, SlabCache, Slabinfo};
pub use names::uses::{Uses, UsesError};
pub use names::wrappers::Wrappers;
pub use order::ordered::Observer;
pub use order::ordered::OrderedItem;
pub use pairing::fate::{Fate, ObjectPages};
pub use pairing::findings::Finding;
pub use progress::{Notes, Progress, Silent};
pub use query::select::{Branch, Select, Site, SizeRange, parse_kind, parse_size};
pub use query::time::{Moment, TimeWindow};
pub use query::{PAYS_FROM, Query};
