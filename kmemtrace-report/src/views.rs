//! The table of views: what each asks of the trace, the document that it makes of the answer, and its table for people.
//!
//! A new view is a line of [`VIEWS`], a document in the library and a table in `render`.

use kmemtrace::documents::{self, Document};
use kmemtrace::{Analysis, Query, Shape};

use crate::args::Format;
use crate::render::table::{self, Table};

/// One view.
pub(crate) struct View {
    /// Its name, as in the document's `schema`.
    pub(crate) name: &'static str,
    /// Another name for it.
    alias: Option<&'static str>,
    /// The question, for a format of output.
    pub(crate) query: fn(Format) -> Query,
    /// The document of the answer.
    pub(crate) document: for<'a> fn(&'a Analysis, &Shape) -> Document<'a>,
    /// Its table for people.
    pub(crate) table: Table,
}

/// All views that make a document; the first is the one for a trace without a word before it.
pub(crate) const VIEWS: [View; 6] = [
    View {
        name: "summary",
        alias: None,
        // Only the table shows call-sites.
        query: |format| if format == Format::Table { Query::by_site() } else { Query::by_kind() },
        document: documents::summary,
        table: table::summary,
    },
    View {
        name: "sites",
        alias: Some("callsites"),
        query: |_| Query::by_site(),
        document: documents::sites,
        table: table::rows,
    },
    View { name: "caches", alias: None, query: |_| Query::by_cache(), document: documents::caches, table: table::rows },
    View {
        name: "mismatch",
        alias: None,
        query: |_| Query::by_site(),
        document: documents::mismatch,
        table: table::mismatch,
    },
    View {
        name: "live",
        alias: None,
        query: |_| Query::by_site().with_live_objects(true),
        document: documents::live,
        table: table::live,
    },
    View {
        name: "cross",
        alias: None,
        query: |_| Query::by_site().with_cpu_matrix(true),
        document: documents::cross,
        table: table::cross,
    },
];

/// What the first word of the command line asks for.
#[derive(Clone, Copy)]
pub(crate) enum Command {
    /// A view of the table.
    View(&'static View),
    /// The events themselves, a line each.
    Events,
    /// A smaller copy of the recording.
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
