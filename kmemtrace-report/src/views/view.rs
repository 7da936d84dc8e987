//! Description of a view, and the options of every view.

use clap::Arg;
use kmemtrace::documents::Document;
use kmemtrace::latency::Latency;
use kmemtrace::{Analysis, GroupKey, Query, Shape};

use crate::args::{Args, Format, SortBy, viewer};
use crate::columns::Parts;

/// View of a trace, or another command that takes one.
pub(crate) struct View {
    /// Name, as in the document's `schema`.
    pub(crate) name: &'static str,
    /// Meaning in one line.
    pub(crate) meaning: &'static str,
    /// Paragraphs of the long help.
    pub(crate) help: &'static str,
    /// Command lines to try, without the program's name, each with a comment.
    pub(crate) examples: &'static [(&'static str, &'static str)],
    /// Options beside those of every view, by their long names.
    pub(crate) options: &'static [&'static str],
    /// Words of `--by`; the first is the default.
    pub(crate) groupings: &'static [GroupKey],
    /// Words of `--sort`; the first is the default.
    pub(crate) sort_keys: &'static [SortBy],
    /// Tables that it prints.
    pub(crate) columns: Parts,
    /// What a text of one moment must have for it; `None`: it needs a recording.
    pub(crate) text: Option<TextNeeds>,
    /// Work that it does.
    pub(crate) run: Run,
}

/// What a text of one moment has, and a view needs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum TextNeeds {
    /// Any text.
    Nothing,
    /// Entries with call sites.
    Sites,
    /// Slab caches.
    Caches,
    /// Stacks, or lines of source.
    Stacks,
    /// Threads.
    Threads,
    /// Single objects.
    Objects,
    /// Pages.
    Pages,
    /// Counters of the whole memory.
    Counters,
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

/// Options of every view that stand among its own in help. The others have a heading there.
const COMMON: &[&str] = &["format", "output", "time"];

/// Options that are about objects, which spans of time do not have.
const OF_OBJECTS: &[&str] = &[
    "module",
    "cache",
    "site",
    "kind",
    "size",
    "context",
    "branch",
    "reclaimable",
    "accounted",
    "own",
    "sized-classes",
];

/// Options of all commands.
const EVERYWHERE: &[&str] = &["no-config"];

/// Options of text, which pages, pictures and exported files do not have.
const OF_TEXT: &[&str] = &["format", "bytes", "show-addresses", "color", "width", "no-pager", "stdio"];

impl View {
    /// Second name on the command line.
    pub(crate) fn alias(&self) -> Option<&'static str> {
        (self.name == "sites").then_some("callsites")
    }

    /// True if the view takes the option; each takes inputs.
    pub(crate) fn takes(&self, option: &Arg) -> bool {
        let Some(long) = option.get_long() else { return true };
        if viewer::OPTIONS.contains(&long) {
            return matches!(self.run, Run::Top) || self.options.contains(&"follow");
        }
        let takes_common = match self.run {
            Run::Static | Run::Names | Run::TraceAnalyze | Run::Pack | Run::Top => false,
            Run::Page | Run::Chart | Run::Export => !OF_TEXT.contains(&long),
            Run::Latency { .. } => !OF_OBJECTS.contains(&long),
            _ => true,
        };
        let is_common = option.get_help_heading().is_some() || COMMON.contains(&long);
        (is_common && takes_common) || EVERYWHERE.contains(&long) || self.options.contains(&long)
    }
}
