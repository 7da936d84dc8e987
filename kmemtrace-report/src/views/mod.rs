//! Table of views: for each view its words for people, its options, its query and its document.
//!
//! A new view is an entry of [`VIEWS`], a document in the library with a variant of its body, and a table of it in `render`. Help,
//! completions, man pages and `docs/views.md` take all that they say from this table.

mod figures;
mod holders;
mod latency;
mod memory;
mod other;
pub(crate) mod view;

pub(crate) use other::{MEMSTRACK, TOP};
pub(crate) use view::{Run, View};

/// Commands, in the order of help; the first view is the default.
pub(crate) static VIEWS: &[View] = &[
    figures::SUMMARY,
    figures::LEAKS,
    figures::SITES,
    figures::TREE,
    holders::TASKS,
    holders::MODULES,
    holders::USES,
    figures::CACHES,
    memory::BALANCE,
    memory::FAILED,
    figures::MISMATCH,
    figures::LIVE,
    figures::CROSS,
    other::COMPARE,
    figures::GROWTH,
    other::ACCOUNT,
    other::EVENTS,
    latency::LATENCY,
    latency::SHRINKERS,
    latency::STALLS,
    latency::WAITS,
    latency::FUNCTIONS,
    other::STATIC,
    other::NAMES,
    other::HTML,
    other::CHART,
    other::EXPORT,
    TOP,
    other::TRACE_ANALYZE,
    other::PACK,
];

impl View {
    /// View of this name or alias.
    pub(crate) fn named(word: &str) -> Option<&'static View> {
        VIEWS.iter().find(|view| view.name == word || view.alias() == Some(word))
    }
}
