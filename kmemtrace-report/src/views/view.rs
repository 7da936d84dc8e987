//! Description of a view, and the options of every view.

use kmemtrace::documents::Document;
use kmemtrace::latency::Latency;
use kmemtrace::{Analysis, Query, Shape};

use crate::args::{Args, Format, GroupBy, SortBy};

/// View of a trace, or another command that takes one.
pub(crate) struct View {
    /// Name, as in the document's `schema`.
    pub(crate) name: &'static str,
    /// Second name on the command line.
    pub(crate) alias: Option<&'static str>,
    /// Meaning in one line.
    pub(crate) meaning: &'static str,
    /// Paragraphs of the long help.
    pub(crate) help: &'static str,
    /// Command lines to try, without the program's name, each with a comment.
    pub(crate) examples: &'static [(&'static str, &'static str)],
    /// Options beside [`COMMON`], by their long names.
    pub(crate) options: &'static [&'static str],
    /// Words of `--by`; the first is the default.
    pub(crate) groupings: &'static [GroupBy],
    /// Words of `--sort`; the first is the default.
    pub(crate) sort_keys: &'static [SortBy],
    /// Work that it does.
    pub(crate) run: Run,
}

/// Work of a command.
#[derive(Clone, Copy)]
pub(crate) enum Run {
    /// Prints one document.
    Document {
        /// Query, for an output format.
        query: fn(Format, &Args) -> Query,
        /// Document of the analysis.
        document: for<'a> fn(&'a Analysis, &Shape, &Args) -> Document<'a>,
    },
    /// Prints events, a line each.
    Events,
    /// Prints the time that tasks wait for memory.
    Latency {
        /// Stalls are listed.
        lists_stalls: bool,
        /// Filters by call-site choose among all spans, by the outermost one around each.
        by_call_site: bool,
        /// `--span` takes what is inside such spans, too.
        takes_inside: bool,
        /// Document of the answer.
        document: for<'a> fn(&'a Latency, &Args, Option<usize>) -> Document<'a>,
        /// Events that the view needs.
        needs: Needs,
    },
    /// Compares two traces, or two windows of one.
    Compare,
    /// Prints static sizes, which need no trace.
    Static,
    /// Makes a map of functions to source files.
    Names,
    /// Writes a page for browsers.
    Page,
    /// Draws a tree.
    Chart,
    /// Does what the old program's command line asks for.
    TraceAnalyze,
    /// Writes a file for other programs.
    Export,
    /// Prints reports of memstrack.
    Memstrack,
    /// Makes a smaller copy of the recording.
    Pack,
    /// Shows live figures on a terminal.
    Top,
}

/// Events that a view of the time that tasks wait needs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Needs {
    /// Reclaim, compaction and shrinkers.
    Spans,
    /// The same, and allocations of pages.
    Pages,
    /// Timed functions.
    Functions,
}

/// Options of every view, by their long names; `pack` is no view.
const COMMON: &[&str] = &[
    "format",
    "output",
    "force",
    "time",
    "pid",
    "tgid",
    "comm",
    "module",
    "cache",
    "site",
    "kind",
    "size",
    "context",
    "branch",
    "vmlinux",
    "debug-dir",
    "kernel",
    "names",
    "kallsyms",
    "proc-modules",
    "wrappers",
    "skip-frames",
    "areas",
    "own",
    "released",
    "release",
    "clock",
    "page-size",
    "bytes",
    "show-addresses",
    "color",
    "width",
    "jobs",
    "max-memory",
    "no-index",
    "verbose",
    "quiet",
    "strict",
    "window-events",
    "sized-classes",
    "index-from",
];

/// Options that are about objects, which spans of time do not have.
const OF_OBJECTS: &[&str] = &["module", "cache", "site", "kind", "size", "context", "branch", "own", "sized-classes"];

/// Options of text, which pages, pictures and exported files do not have.
const OF_TEXT: &[&str] = &["format", "bytes", "show-addresses", "color", "width"];

impl View {
    /// True if the view takes the option of this long name.
    pub(crate) fn takes(&self, option: &str) -> bool {
        let is_common = match self.run {
            Run::Static | Run::Names | Run::TraceAnalyze | Run::Pack | Run::Top => false,
            Run::Page | Run::Chart | Run::Export => COMMON.contains(&option) && !OF_TEXT.contains(&option),
            Run::Latency { .. } => COMMON.contains(&option) && !OF_OBJECTS.contains(&option),
            _ => COMMON.contains(&option),
        };
        is_common || self.options.contains(&option)
    }
}
