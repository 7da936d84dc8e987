//! Table of views: for each view its query and its document.
//!
//! A new view is a line of [`VIEWS`], a document in the library with a variant of its body, and a table of it in `render`.

use clap::ValueEnum;
use kmemtrace::documents::{self, Document};
use kmemtrace::{Analysis, Query, Shape};

/// Output formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Aligned table for people
    Table,
    /// One JSON document
    Json,
    /// JSON Lines, one object a line
    Jsonl,
    /// Comma-separated rows
    Csv,
}

/// View: a query and the document made of its result.
pub(crate) struct View {
    /// Name, as in the document's `schema`.
    pub(crate) name: &'static str,
    /// Second name on the command line.
    alias: Option<&'static str>,
    /// Query, for an output format.
    pub(crate) query: fn(Format) -> Query,
    /// Document of the analysis.
    pub(crate) document: for<'a> fn(&'a Analysis, &Shape) -> Document<'a>,
}

/// Views that make a document; the first is the default.
pub(crate) const VIEWS: [View; 6] = [
    View {
        name: "summary",
        alias: None,
        // Only the table shows call-sites.
        query: |format| if format == Format::Table { Query::by_site() } else { Query::by_kind() },
        document: documents::summary,
    },
    View { name: "sites", alias: Some("callsites"), query: |_| Query::by_site(), document: documents::sites },
    View { name: "caches", alias: None, query: |_| Query::by_cache(), document: documents::caches },
    View { name: "mismatch", alias: None, query: |_| Query::by_site(), document: documents::mismatch },
    View { name: "live", alias: None, query: |_| Query::by_site().with_live_objects(true), document: documents::live },
    View { name: "cross", alias: None, query: |_| Query::by_site().with_cpu_matrix(true), document: documents::cross },
];

/// Command, from the first word of the command line.
#[derive(Clone, Copy)]
pub(crate) enum Command {
    /// View of the table.
    View(&'static View),
    /// Events, a line each.
    Events,
    /// Smaller copy of the recording.
    Pack,
}

impl Command {
    /// The command of this name.
    pub(crate) fn named(word: &str) -> Option<Command> {
        match word {
            "events" => Some(Command::Events),
            "pack" => Some(Command::Pack),
            _ => VIEWS.iter().find(|view| view.name == word || view.alias == Some(word)).map(Command::View),
        }
    }
}
