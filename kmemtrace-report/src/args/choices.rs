//! Words that options choose from: formats, shapes and colours.

use clap::ValueEnum;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use kmemtrace::documents::AccountStyle;
use kmemtrace::{Finding, Kind};

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

/// Forms of an account.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Style {
    /// Callers by live bytes, with the frees of their objects: as trace_analyze writes it
    #[default]
    TraceAnalyze,
    /// Callers by all bytes, with the frees that they made: as slab_account writes it
    SlabAccount,
    /// Callers, their live bytes and their object files, without a heading
    Callers,
}

impl Style {
    /// Style of the library.
    pub(crate) fn style(self) -> AccountStyle {
        match self {
            Style::TraceAnalyze => AccountStyle::TraceAnalyze,
            Style::SlabAccount => AccountStyle::SlabAccount,
            Style::Callers => AccountStyle::Callers,
        }
    }
}

/// Shapes of pictures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum ChartShape {
    /// Rings around the root, angles by size
    #[default]
    Rings,
    /// Rectangles within rectangles, areas by size
    Treemap,
    /// Rows below the root, widths by size
    Icicle,
}

/// Formats of `export`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportTo {
    /// Profile of go tool pprof, Perfetto, speedscope, Parca, Pyroscope
    Pprof,
    /// Folded stacks of flame graph tools and speedscope
    Folded,
    /// Tracks of live bytes and events for Perfetto
    Perfetto,
    /// Table of call-sites for DuckDB, Spark, Trino, ClickHouse
    ParquetSites,
    /// Table of memory that grows evenly
    ParquetLeaks,
    /// Table of objects
    ParquetObjects,
    /// Table of events
    ParquetEvents,
    /// Sub-buffers for trace-cmd report and KernelShark
    TraceDat,
    /// Events as JSON Lines
    Jsonl,
    /// Events as comma-separated rows
    Csv,
}

/// Figures that folded stacks are weighted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Weight {
    /// Number of allocations
    Allocs,
    /// Bytes handed out, over all allocations
    Allocated,
    /// Bytes lost to internal fragmentation, over all allocations
    Wasted,
    /// Bytes live at the end
    Live,
}

/// Versions of `trace.dat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TraceDatVersion {
    /// Every trace-cmd and KernelShark reads it
    #[value(name = "6")]
    V6,
    /// trace-cmd 3.1 and later
    #[value(name = "7")]
    V7,
}

/// Reason for the exit status 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailOn {
    /// Errors of a class of findings.
    Class(Finding),
    /// A group of `leaks` that nothing known explains.
    Leak,
}

impl FailOn {
    /// All reasons.
    pub(crate) const ALL: [FailOn; Finding::ALL.len() + 1] = {
        let mut all = [FailOn::Leak; Finding::ALL.len() + 1];
        let mut index = 0;
        while index < Finding::ALL.len() {
            all[index] = FailOn::Class(Finding::ALL[index]);
            index += 1;
        }
        all
    };

    /// Word of the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            FailOn::Class(class) => class.name(),
            FailOn::Leak => "leak",
        }
    }
}

/// Use of colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    /// On a terminal
    #[default]
    Auto,
    /// In files and pipes, too
    Always,
    /// Nowhere
    Never,
}

/// Parser of a kind of objects. The recorder's word for pages, `page`, is one, too.
pub(crate) fn kind() -> impl TypedValueParser<Value = Kind> {
    let word = |kind: Kind| match kind {
        Kind::Pages => PossibleValue::new(kind.name()).alias("page"),
        kind => PossibleValue::new(kind.name()),
    };
    let named = |word: String| Kind::ALL.into_iter().find(|kind| kind.name() == word).unwrap_or(Kind::Pages);
    PossibleValuesParser::new(Kind::ALL.map(word)).map(named)
}

/// Parser of a word that names one of the values.
pub(crate) fn one_of<T: Copy + Send + Sync>(
    all: &'static [T],
    name: fn(T) -> &'static str,
) -> impl TypedValueParser<Value = T> {
    let words = PossibleValuesParser::new(all.iter().map(|&one| name(one)));
    words.try_map(move |word| all.iter().copied().find(|&one| name(one) == word).ok_or("no such word"))
}
