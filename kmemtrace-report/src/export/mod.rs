//! `export`: files that other programs open, a file a format.

mod about;
mod folded;
#[cfg(feature = "parquet")]
mod parquet;
mod perfetto;
mod pprof;
mod protobuf;

use std::io::{self, IsTerminal};

use kmemtrace::{Analysis, Kind, Observer, Query, Trace};

use crate::args::{ExportTo, Format, Weight};
use crate::cli::Request;
use crate::render::table::options::TableOptions;
use crate::report;
use crate::terminal::messages::say;
use crate::terminal::output::Output;
use crate::terminal::progress::ProgressLine;

/// Writes the file that was asked for.
pub(crate) fn export(request: &Request) -> anyhow::Result<u8> {
    let args = &request.args;
    let Some(to) = args.to else {
        anyhow::bail!("export: name a format with --to; see kmemtrace-report help export");
    };
    if args.weight.is_some() && to != ExportTo::Folded {
        anyhow::bail!("export: --weight goes with --to folded: the other formats have all figures");
    }
    // A saved document has no rows of these formats, and is refused by its name.
    report::saved_document(request)?;
    let job = Job { request, asked: report::table_options(request, &request.inputs()[0]) };
    match to {
        ExportTo::Pprof => pprof::pprof(&job),
        ExportTo::Folded => folded::folded(&job, args.weight.unwrap_or(Weight::Wasted)),
        ExportTo::Jsonl => report::events(request, Some(Format::Jsonl)),
        ExportTo::Csv => report::events(request, Some(Format::Csv)),
        ExportTo::Perfetto => perfetto::perfetto(&job),
        #[cfg(feature = "parquet")]
        ExportTo::ParquetSites => parquet::sites(&job),
        #[cfg(feature = "parquet")]
        ExportTo::ParquetObjects => parquet::objects(&job),
        #[cfg(feature = "parquet")]
        ExportTo::ParquetEvents => parquet::events(&job),
        #[cfg(not(feature = "parquet"))]
        ExportTo::ParquetSites | ExportTo::ParquetObjects | ExportTo::ParquetEvents => {
            anyhow::bail!("export: this kmemtrace-report was built without Parquet: build it with the feature parquet")
        }
    }
}

/// Export of one file.
struct Job<'a> {
    request: &'a Request,
    /// Filters and window as the user gave them.
    asked: TableOptions,
}

impl Job<'_> {
    /// Name of the host that the command line gives.
    fn host(&self) -> Option<&str> {
        self.request.args.host.as_deref()
    }

    /// True where pages are exported: they are never added to the objects that they hold, so no other kind is.
    fn has_pages(&self) -> bool {
        self.request.args.filters.kind == [Kind::Pages]
    }

    fn open(&self) -> anyhow::Result<Trace> {
        report::open(self.request, &self.request.inputs())
    }

    fn output(&self) -> anyhow::Result<Output> {
        Output::open(self.request.args.output.as_deref(), self.request.args.force)
    }

    /// Output of a format that is no text.
    fn binary_output(&self) -> anyhow::Result<Output> {
        if self.request.args.output.is_none() && io::stdout().is_terminal() {
            anyhow::bail!("export: this format is no text for a terminal: name a file with -o FILE");
        }
        self.output()
    }

    /// Answer to a query, with the options of the command line.
    fn analyse(&self, query: Query) -> anyhow::Result<Analysis> {
        let (analysis, suggestions) = report::analyse(self.request, query)?;
        report::check_branches(&self.request.args, &analysis.source_paths())?;
        suggestions.iter().for_each(|line| say(line));
        Ok(analysis)
    }

    /// Hands events and gaps to an observer, with the options of the command line.
    fn observe(&self, observer: &mut dyn Observer) -> anyhow::Result<()> {
        let mut trace = self.open()?;
        let query = report::with_options(self.request, Query::by_kind())?;
        query.observe_with(&mut trace, observer, &mut ProgressLine::new(self.request.args.quiet))?;
        Ok(())
    }

    /// Tells the verdict, and finds the exit status.
    fn end(&self, analysis: &Analysis) -> u8 {
        report::tell_counts(analysis.completeness(), analysis.events());
        report::status(&self.request.args, analysis.completeness())
    }
}
